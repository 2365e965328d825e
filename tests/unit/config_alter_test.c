/* config: what AlterConfigs and IncrementalAlterConfigs accept, and how they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
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

static struct config_map *map_of(const char *name, const char *value)
{
    struct config_map *m = config_map_new();
    if (name) config_map_set(m, str_of(name), str_of(value));
    return m;
}

static struct config_change change(const char *name, int op, const char *value)
{
    return (struct config_change){str_of(name), op, str_of(value)};
}

/* One change of a topic that has `old_name`; gives the new value of the changed key. */
static void assert_topic(const char *old_name, const char *old_value, struct config_change c, const char *expected)
{
    struct config *cfg = load("");
    struct config_map *old = map_of(old_name, old_value), *out = NULL;
    struct fault f = {0};
    if (config_alter_topic(&out, cfg, old, &c, 1, &f) != CONFIG_ACCEPTED) fail_msg("%s", f.text);
    const char *value = config_map_get(out, c.name.data);
    if (expected)
        assert_string_equal(value, expected);
    else
        assert_null(value);
    config_map_free(old);
    config_map_free(out);
    config_unref(cfg);
}

static void assert_topic_refused(struct config_change c, enum config_verdict verdict, const char *why)
{
    struct config *cfg = load("");
    struct config_map *out = NULL;
    struct fault f = {0};
    assert_int_equal(config_alter_topic(&out, cfg, NULL, &c, 1, &f), verdict);
    assert_null(out);
    assert_string_equal(f.text, why);
    config_unref(cfg);
}

static void operations_set_delete_append_and_subtract(void **state)
{
    (void)state;
    assert_topic(NULL, NULL, change("retention.ms", CONFIG_SET, "5"), "5");
    assert_topic("retention.ms", "5", change("retention.ms", CONFIG_SET, "6"), "6");
    assert_topic("retention.ms", "5", change("retention.ms", CONFIG_DELETE, NULL), NULL);
    assert_topic("segment.ms", "5", change("retention.ms", CONFIG_DELETE, NULL), NULL);
    assert_topic("cleanup.policy", "compact", change("cleanup.policy", CONFIG_APPEND, "delete"), "compact,delete");
    assert_topic("cleanup.policy", "compact", change("cleanup.policy", CONFIG_APPEND, "compact"), "compact");
    /* Without an override the list starts from the topic key's own default. */
    assert_topic(NULL, NULL, change("cleanup.policy", CONFIG_APPEND, "compact"), "delete,compact");
    assert_topic("cleanup.policy", "compact,delete", change("cleanup.policy", CONFIG_SUBTRACT, "compact"), "delete");
    assert_topic("cleanup.policy", "compact", change("cleanup.policy", CONFIG_SUBTRACT, "compact"), "");
    assert_topic("leader.replication.throttled.replicas", "0:1,1:2,2:3",
                 change("leader.replication.throttled.replicas", CONFIG_SUBTRACT, "1:2,9:9,0:1"), "2:3");
    assert_topic(NULL, NULL, change("leader.replication.throttled.replicas", CONFIG_APPEND, "0:1,1:2"), "0:1,1:2");
}

static void malformed_changes_are_bad_requests(void **state)
{
    (void)state;
    assert_topic_refused(change("retention.ms", CONFIG_SET, NULL), CONFIG_BAD_REQUEST,
                         "Null value not supported for : retention.ms");
    assert_topic_refused(change("retention.ms", 4, "1"), CONFIG_BAD_REQUEST, "Unknown operations type 4");
    assert_topic_refused(change("retention.ms", -1, "1"), CONFIG_BAD_REQUEST, "Unknown operations type -1");
    assert_topic_refused(change("", CONFIG_SET, "1"), CONFIG_BAD_REQUEST, "A config name is missing or malformed");
    struct config_change zero = {STR("retention.ms"), CONFIG_SET, STR("1\0002")};
    assert_topic_refused(zero, CONFIG_BAD_REQUEST, "The value of retention.ms has a zero byte");

    struct config *cfg = load("");
    struct config_map *out = NULL;
    struct fault f = {0};
    struct config_change twice[] = {change("retention.ms", CONFIG_SET, "1"), change("segment.ms", CONFIG_SET, "2"),
                                    change("retention.ms", CONFIG_DELETE, NULL)};
    assert_int_equal(config_alter_topic(&out, cfg, NULL, twice, 3, &f), CONFIG_BAD_REQUEST);
    assert_string_equal(f.text, "Error due to duplicate config keys");
    config_unref(cfg);
}

static void what_a_peer_sends_is_bounded(void **state)
{
    (void)state;
    struct config *cfg = load("");
    struct config_map *out = NULL;
    struct fault f = {0};
    enum { SIZE = 600 * 1024, MANY = 1001 };
    char *big = malloc(SIZE + 1);
    memset(big, ',', SIZE);
    big[SIZE] = '\0';
    struct config_change c = change("leader.replication.throttled.replicas", CONFIG_APPEND, big);
    assert_int_equal(config_alter_topic(&out, cfg, NULL, &c, 1, &f), CONFIG_BAD_REQUEST);
    for (size_t i = 0; i < SIZE; i += 4) memcpy(big + i, "0:1,", 4);
    big[SIZE / 2] = '\0';
    assert_int_equal(config_alter_topic(&out, cfg, NULL, &c, 1, &f), CONFIG_BAD_REQUEST);
    struct config_change *many = calloc(MANY, sizeof *many);
    assert_int_equal(config_alter_topic(&out, cfg, NULL, many, MANY, &f), CONFIG_BAD_REQUEST);
    free(many);
    free(big);
    config_unref(cfg);
}

static void topics_are_refused_in_kafkas_words(void **state)
{
    (void)state;
    assert_topic_refused(change("num.partitions", CONFIG_SET, "1"), CONFIG_BAD_VALUE,
                         "Unknown topic config name: num.partitions");
    assert_topic_refused(change("what", CONFIG_APPEND, "1"), CONFIG_BAD_VALUE, "Unknown topic config name: what");
    assert_topic_refused(change("retention.ms", CONFIG_APPEND, "1"), CONFIG_BAD_VALUE,
                         "Config value append is not allowed for config key: retention.ms");
    assert_topic_refused(change("retention.ms", CONFIG_SUBTRACT, "1"), CONFIG_BAD_VALUE,
                         "Config value subtract is not allowed for config key: retention.ms");
    assert_topic_refused(change("cleanup.policy", CONFIG_APPEND, "shrink"), CONFIG_BAD_VALUE,
                         "Invalid value delete,shrink for configuration cleanup.policy: "
                         "String must be one of: compact, delete");
    assert_topic_refused(change("min.insync.replicas", CONFIG_SET, "0"), CONFIG_BAD_VALUE,
                         "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1");
}

static void assert_broker(enum config_source scope, struct config_change c, const char *why)
{
    struct config *cfg = load("num.io.threads=8\n");
    struct config_map *out = NULL;
    struct fault f = {0};
    enum config_verdict v = config_alter_broker(&out, cfg, scope, NULL, &c, 1, &f);
    if (why) {
        assert_int_equal(v, CONFIG_BAD_REQUEST);
        assert_string_equal(f.text, why);
        assert_null(out);
    } else {
        if (v != CONFIG_ACCEPTED) fail_msg("%s", f.text);
        assert_string_equal(config_map_get(out, c.name.data), c.value.data);
        config_map_free(out);
    }
    config_unref(cfg);
}

static void broker_keys_change_in_their_scope_only(void **state)
{
    (void)state;
    assert_broker(CONFIG_FROM_DYNAMIC_CLUSTER, change("message.max.bytes", CONFIG_SET, "10"), NULL);
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("message.max.bytes", CONFIG_SET, "10"), NULL);
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("plugin.key", CONFIG_SET, "10"), NULL);
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("num.partitions", CONFIG_SET, "10"),
                  "Cannot update these configs dynamically: Set(num.partitions)");
    assert_broker(CONFIG_FROM_DYNAMIC_CLUSTER, change("ssl.keystore.type", CONFIG_SET, "PEM"),
                  "These security configs can be dynamically updated only per-listener using the listener prefix: "
                  "Set(ssl.keystore.type)");
    assert_broker(
        CONFIG_FROM_DYNAMIC_CLUSTER, change("ssl.protocol", CONFIG_SET, "TLSv1.2"),
        "Cannot update these configs at default cluster level, broker id must be specified: Set(ssl.protocol)");
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("ssl.protocol", CONFIG_SET, "TLSv1.2"), NULL);
    const char *keystore = "listener.name.internal.ssl.keystore.type";
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change(keystore, CONFIG_SET, "PEM"), NULL);
    assert_broker(CONFIG_FROM_DYNAMIC_CLUSTER, change(keystore, CONFIG_SET, "PEM"),
                  "Cannot update these configs at default cluster level, broker id must be specified: "
                  "Set(listener.name.internal.ssl.keystore.type)");
    assert_broker(
        CONFIG_FROM_DYNAMIC_BROKER, change("listener.name.internal.ssl.key.password", CONFIG_SET, "x"),
        "Passwords cannot be kept in dynamic configuration yet: Set(listener.name.internal.ssl.key.password)");
    assert_broker(CONFIG_FROM_DYNAMIC_CLUSTER, change("listener.name.internal.max.connections", CONFIG_SET, "5"), NULL);
}

static void broker_values_are_checked_as_a_whole(void **state)
{
    (void)state;
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("message.max.bytes", CONFIG_SET, "x"),
                  "Invalid value x for configuration message.max.bytes: Not a number of type INT");
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("log.retention.ms", CONFIG_SET, "0"),
                  "log.retention.ms must be unlimited (-1) or, greater than or equal to 1 (set by log.retention.ms)");
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("num.io.threads", CONFIG_SET, "16"), NULL);
    assert_broker(
        CONFIG_FROM_DYNAMIC_BROKER, change("num.io.threads", CONFIG_SET, "17"),
        "Dynamic thread count update validation failed for num.io.threads=17, value should not be greater than "
        "double the current value 8");
    assert_broker(
        CONFIG_FROM_DYNAMIC_BROKER, change("num.io.threads", CONFIG_SET, "3"),
        "Dynamic thread count update validation failed for num.io.threads=3, value should be at least half the "
        "current value 8");
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("log.cleaner.threads", CONFIG_SET, "0"),
                  "log.cleaner.threads must be at least 1");
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("listeners", CONFIG_SET, "PLAINTEXT://:9099"),
                  "listeners cannot be changed while the broker runs yet; change it in the broker's file and restart");
    assert_broker(CONFIG_FROM_DYNAMIC_BROKER, change("listeners", CONFIG_SET, "PLAINTEXT://:9092"), NULL);
}

static void several_keys_are_refused_in_one_sentence(void **state)
{
    (void)state;
    struct config *cfg = load("");
    struct config_map *old = map_of("max.connections", "5"), *out = NULL;
    struct fault f = {0};
    struct config_change c[] = {change("num.partitions", CONFIG_SET, "1"), change("log.dirs", CONFIG_SET, "/x"),
                                change("message.max.bytes", CONFIG_SET, "2")};
    assert_int_equal(config_alter_broker(&out, cfg, CONFIG_FROM_DYNAMIC_CLUSTER, old, c, 3, &f), CONFIG_BAD_REQUEST);
    assert_string_equal(f.text, "Cannot update these configs dynamically: Set(log.dirs, num.partitions)");
    assert_int_equal(config_alter_broker(&out, cfg, CONFIG_FROM_DYNAMIC_CLUSTER, old, c + 2, 1, &f), CONFIG_ACCEPTED);
    assert_int_equal(config_map_count(out), 2);
    assert_string_equal(config_map_get(out, "max.connections"), "5");
    config_map_free(out);
    config_map_free(old);
    config_unref(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_set_delete_append_and_subtract),
        cmocka_unit_test(malformed_changes_are_bad_requests),
        cmocka_unit_test(what_a_peer_sends_is_bounded),
        cmocka_unit_test(topics_are_refused_in_kafkas_words),
        cmocka_unit_test(broker_keys_change_in_their_scope_only),
        cmocka_unit_test(broker_values_are_checked_as_a_whole),
        cmocka_unit_test(several_keys_are_refused_in_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
