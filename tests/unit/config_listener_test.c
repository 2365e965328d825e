/* config: listeners and advertised listeners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "broker/config.h"

static struct config *load(const char *text)
{
    struct config *cfg = NULL;
    struct fault f = {0};
    struct config_input in = {.file_name = "s.properties", .text = str_of(text)};
    if (config_load(&cfg, &in, &f) != OK) fail_msg("%s", f.text);
    return cfg;
}

static void assert_refused_with(const char *text, enum err code, const char *begin)
{
    struct config *cfg = NULL;
    struct fault f = {0};
    struct config_input in = {.file_name = "s.properties", .text = str_of(text)};
    assert_int_equal(config_load(&cfg, &in, &f), code);
    if (strncmp(f.text, begin, strlen(begin)) != 0) fail_msg("%s", f.text);
}

static void assert_listener(const struct listener *l, const char *name, const char *host, int port)
{
    assert_string_equal(l->name, name);
    assert_int_equal(l->protocol, SECURITY_PLAINTEXT);
    if (host)
        assert_string_equal(l->host, host);
    else
        assert_null(l->host);
    assert_int_equal(l->port, port);
}

#define MAP "listener.security.protocol.map=internal:plaintext, EXTERNAL : PLAINTEXT,V6:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"

static void hosts_may_be_names_addresses_or_nothing(void **state)
{
    (void)state;
    struct config *cfg = load(MAP "inter.broker.listener.name=Internal\n"
                                  "listeners=Internal://:0 , external://node-1.example_x:9092, V6://[::1]:9093,"
                                  "PLAINTEXT://fe80::1%eth0:9094\n");
    struct listener_list l = config_listeners(cfg);
    assert_int_equal(l.count, 4);
    assert_listener(&l.items[0], "INTERNAL", NULL, 0);
    assert_listener(&l.items[1], "EXTERNAL", "node-1.example_x", 9092);
    assert_listener(&l.items[2], "V6", "::1", 9093);
    assert_listener(&l.items[3], "PLAINTEXT", "fe80::1%eth0", 9094);
    assert_ptr_equal(config_advertised(cfg).items, l.items);
    assert_ptr_equal(config_inter_broker(cfg), &l.items[0]);
    assert_ptr_equal(listener_find(l, "v6"), &l.items[2]);
    assert_null(listener_find(l, "v7"));
    config_unref(cfg);
}

static void advertised_listeners_are_a_list_of_their_own(void **state)
{
    (void)state;
    struct config *cfg = load(MAP "listeners=INTERNAL://0.0.0.0:9092,EXTERNAL://:9093\n"
                                  "advertised.listeners=EXTERNAL://kafka.example:19093,INTERNAL://:0\n"
                                  "inter.broker.listener.name=INTERNAL\n");
    struct listener_list l = config_advertised(cfg);
    assert_int_equal(l.count, 2);
    assert_listener(&l.items[0], "EXTERNAL", "kafka.example", 19093);
    assert_listener(&l.items[1], "INTERNAL", NULL, 0);
    assert_ptr_equal(config_inter_broker(cfg), &l.items[1]);
    assert_listener(&config_listeners(cfg).items[0], "INTERNAL", "0.0.0.0", 9092);
    config_unref(cfg);
}

static void malformed_listeners_are_refused(void **state)
{
    (void)state;
    const char *bad[] = {
        "PLAINTEXT",         "PLAINTEXT:9092",       "PLAINTEXT://",         "PLAINTEXT://host",
        "PLAINTEXT://h:",    "PLAINTEXT://h:65536",  "PLAINTEXT://h:-1",     "PLAINTEXT://h:9o",
        "://:9092",          "PLAINTEXT://a/b:9092", "PLAINTEXT://h:9092/x", "PLAINTEXT://h:999999999999",
        "PLAINTEXT://a b:1", "OTHER://:9092"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        char text[100];
        snprintf(text, sizeof text, "listeners=%s", bad[i]);
        assert_refused_with(text, ERR_INVALID, "s.properties:1: ");
    }
    assert_refused_with("listeners=OTHER://:9092", ERR_INVALID,
                        "s.properties:1: No security protocol defined for listener OTHER");
    assert_refused_with("listeners=", ERR_INVALID, "s.properties:1: There must be at least one listener");
    assert_refused_with("listener.security.protocol.map=PLAINTEXT", ERR_INVALID,
                        "s.properties:1: Invalid value PLAINTEXT for configuration listener.security.protocol.map");
    assert_refused_with("listener.security.protocol.map=PLAINTEXT:TLS", ERR_INVALID,
                        "s.properties:1: Invalid security protocol `TLS` defined in listener.security.protocol.map");
}

static void names_and_ports_must_differ_but_for_one_ipv4_and_one_ipv6(void **state)
{
    (void)state;
    config_unref(load(MAP "listeners=PLAINTEXT://127.0.0.1:9092,V6://[::1]:9092"));
    config_unref(load(MAP "listeners=PLAINTEXT://:0,V6://:0"));
    const char *bad[] = {
        "PLAINTEXT://:9092,PLAINTEXT://:9093",
        "PLAINTEXT://:9092,plaintext://:9093",
        "PLAINTEXT://:9092,V6://:9092",
        "PLAINTEXT://127.0.0.1:9092,V6://:9092",
        "PLAINTEXT://127.0.0.1:9092,V6://host:9092",
        "PLAINTEXT://127.0.0.1:9092,V6://127.0.0.2:9092",
        "PLAINTEXT://127.0.0.1:9092,V6://[::1]:9092,EXTERNAL://:9092",
        "PLAINTEXT://127.0.0.1:9092,V6://[::1]:9092,EXTERNAL://[::2]:9092",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        char text[300];
        snprintf(text, sizeof text, MAP "listeners=%s", bad[i]);
        assert_refused_with(text, ERR_INVALID, "s.properties:2: Each listener must have a different ");
    }
    /* Advertised ports may be equal. */
    config_unref(load(MAP "listeners=PLAINTEXT://:9092,V6://:9093\n"
                          "advertised.listeners=PLAINTEXT://a:9092,V6://b:9092"));
}

static void advertised_names_must_be_listeners_and_addresses_reachable(void **state)
{
    (void)state;
    assert_refused_with(MAP "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://h:1,V6://h:2", ERR_INVALID,
                        "s.properties:3: advertised.listeners listener names must be equal to or a subset of");
    assert_refused_with("listeners=PLAINTEXT://0.0.0.0:9092", ERR_INVALID,
                        "s.properties:1: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0.");
    assert_refused_with("advertised.listeners=PLAINTEXT://[::]:9092", ERR_INVALID,
                        "s.properties:1: advertised.listeners cannot use the nonroutable meta-address ::.");
    assert_refused_with("advertised.listeners=", ERR_INVALID, "s.properties:1: There must be at least one broker");
}

static void the_inter_broker_listener_must_be_advertised(void **state)
{
    (void)state;
    assert_refused_with(
        MAP "listeners=INTERNAL://:9092", ERR_INVALID,
        "inter.broker.listener.name must be a listener name defined in advertised.listeners: PLAINTEXT");
    assert_refused_with("inter.broker.listener.name=V6", ERR_INVALID,
                        "s.properties:1: inter.broker.listener.name must be a listener name");
    assert_refused_with("inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT", ERR_INVALID,
                        "s.properties:1: Only one of inter.broker.listener.name and security.inter.broker.protocol");
    assert_refused_with("security.inter.broker.protocol=SSL", ERR_INVALID, "inter.broker.listener.name must be");
    assert_refused_with("control.plane.listener.name=PLAINTEXT", ERR_INVALID,
                        "s.properties:1: control.plane.listener.name, when defined, should have a different value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_may_be_names_addresses_or_nothing),
        cmocka_unit_test(advertised_listeners_are_a_list_of_their_own),
        cmocka_unit_test(malformed_listeners_are_refused),
        cmocka_unit_test(names_and_ports_must_differ_but_for_one_ipv4_and_one_ipv6),
        cmocka_unit_test(advertised_names_must_be_listeners_and_addresses_reachable),
        cmocka_unit_test(the_inter_broker_listener_must_be_advertised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
