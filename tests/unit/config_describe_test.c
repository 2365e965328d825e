/* config: what DescribeConfigs shows, with Kafka's sources and synonyms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "broker/config.h"

struct fixture {
    struct config *cfg;
    struct arena arena;
};

/* The file under dynamic values, each "key=value" or NULL. */
static void fixture_init(struct fixture *x, const char *file, const char *cluster, const char *broker)
{
    struct fault f = {0};
    struct config_map *for_all = config_map_new(), *for_one = config_map_new();
    if (cluster) assert_int_equal(config_parse_properties(for_all, str_of(cluster), "c", &f), OK);
    if (broker) assert_int_equal(config_parse_properties(for_one, str_of(broker), "b", &f), OK);
    struct config *base = NULL;
    struct config_input in = {.file_name = "s.properties", .text = str_of(file), .cpu_count = 3};
    if (config_load(&base, &in, &f) != OK) fail_msg("%s", f.text);
    if (config_with_dynamic(&x->cfg, base, for_all, for_one, &f) != OK) fail_msg("%s", f.text);
    config_unref(base);
    config_map_free(for_all);
    config_map_free(for_one);
    arena_init(&x->arena, SIZE_MAX);
}

static void fixture_fini(struct fixture *x)
{
    arena_fini(&x->arena);
    config_unref(x->cfg);
}

static const struct config_entry *entry_of(struct config_entries entries, const char *name)
{
    for (size_t i = 0; i < entries.count; i++)
        if (strcmp(entries.items[i].name, name) == 0) return &entries.items[i];
    return NULL;
}

static void assert_synonym(const struct config_entry *e, size_t index, const char *name, const char *value,
                           enum config_source source)
{
    assert_true(index < e->synonym_count);
    assert_string_equal(e->synonyms[index].name, name);
    if (value)
        assert_string_equal(e->synonyms[index].value, value);
    else
        assert_null(e->synonyms[index].value);
    assert_int_equal(e->synonyms[index].source, source);
}

static void a_brokers_values_show_every_layer(void **state)
{
    (void)state;
    struct fixture x;
    fixture_init(&x, "message.max.bytes= 2000\n", "message.max.bytes=3000", "message.max.bytes=4000");
    struct config_entries all = config_describe_broker(x.cfg, &x.arena);
    const struct config_entry *e = entry_of(all, "message.max.bytes");
    assert_string_equal(e->value, "4000");
    assert_int_equal(e->source, CONFIG_FROM_DYNAMIC_BROKER);
    assert_int_equal(e->type, CONFIG_INT);
    assert_false(e->read_only);
    assert_false(e->sensitive);
    assert_non_null(e->doc);
    assert_int_equal(e->synonym_count, 4);
    assert_synonym(e, 0, "message.max.bytes", "4000", CONFIG_FROM_DYNAMIC_BROKER);
    assert_synonym(e, 1, "message.max.bytes", "3000", CONFIG_FROM_DYNAMIC_CLUSTER);
    assert_synonym(e, 2, "message.max.bytes", "2000", CONFIG_FROM_STATIC);
    assert_synonym(e, 3, "message.max.bytes", "1048588", CONFIG_FROM_DEFAULT);
    e = entry_of(all, "num.io.threads");
    assert_string_equal(e->value, "3");
    assert_synonym(e, 0, "num.io.threads", "3", CONFIG_FROM_DEFAULT);
    e = entry_of(all, "broker.id");
    assert_true(e->read_only);
    for (size_t i = 1; i < all.count; i++) assert_true(strcmp(all.items[i - 1].name, all.items[i].name) < 0);
    fixture_fini(&x);
}

static void hidden_keys_are_shown_only_as_part_of_the_file(void **state)
{
    (void)state;
    struct fixture x;
    fixture_init(&x, "log.initial.task.delay.ms=5\n", NULL, NULL);
    struct config_entries all = config_describe_broker(x.cfg, &x.arena);
    assert_string_equal(entry_of(all, "log.initial.task.delay.ms")->value, "5");
    assert_null(entry_of(all, "unstable.api.versions.enable"));
    fixture_fini(&x);
}

static void passwords_and_unknown_keys_show_no_value(void **state)
{
    (void)state;
    struct fixture x;
    fixture_init(&x,
                 "ssl.key.password=geheim\nmy.key=1\nlistener.name.a.ssl.key.password=geheim\n"
                 "listener.name.a.ssl.keystore.type=PEM\nssl.keystore.type=JKS\n",
                 NULL, NULL);
    struct config_entries all = config_describe_broker(x.cfg, &x.arena);
    const char *secret[] = {"ssl.key.password", "my.key", "listener.name.a.ssl.key.password"};
    for (size_t i = 0; i < ARRAY_COUNT(secret); i++) {
        const struct config_entry *e = entry_of(all, secret[i]);
        assert_null(e->value);
        assert_true(e->sensitive);
        assert_int_equal(e->source, CONFIG_FROM_STATIC);
        assert_synonym(e, 0, secret[i], NULL, CONFIG_FROM_STATIC);
    }
    assert_int_equal(entry_of(all, "my.key")->type, CONFIG_UNKNOWN);
    const struct config_entry *e = entry_of(all, "listener.name.a.ssl.keystore.type");
    assert_string_equal(e->value, "PEM");
    assert_int_equal(e->type, CONFIG_STRING);
    assert_int_equal(e->synonym_count, 3);
    assert_synonym(e, 0, "listener.name.a.ssl.keystore.type", "PEM", CONFIG_FROM_STATIC);
    assert_synonym(e, 1, "ssl.keystore.type", "JKS", CONFIG_FROM_STATIC);
    assert_synonym(e, 2, "ssl.keystore.type", "JKS", CONFIG_FROM_DEFAULT);
    fixture_fini(&x);
}

static void synonyms_in_other_units_start_at_the_entrys_own_name(void **state)
{
    (void)state;
    struct fixture x;
    fixture_init(&x, "log.retention.hours=2\n", "log.retention.ms=50", NULL);
    struct config_entries all = config_describe_broker(x.cfg, &x.arena);
    const struct config_entry *e = entry_of(all, "log.retention.ms");
    assert_string_equal(e->value, "50");
    assert_int_equal(e->synonym_count, 3);
    assert_synonym(e, 0, "log.retention.ms", "50", CONFIG_FROM_DYNAMIC_CLUSTER);
    assert_synonym(e, 1, "log.retention.hours", "2", CONFIG_FROM_STATIC);
    assert_synonym(e, 2, "log.retention.hours", "168", CONFIG_FROM_DEFAULT);
    e = entry_of(all, "log.retention.hours");
    assert_string_equal(e->value, "2");
    assert_int_equal(e->synonym_count, 2);
    assert_synonym(e, 0, "log.retention.hours", "2", CONFIG_FROM_STATIC);
    e = entry_of(all, "log.retention.minutes");
    assert_null(e->value);
    assert_int_equal(e->synonym_count, 0);
    assert_int_equal(e->source, CONFIG_FROM_DEFAULT);
    fixture_fini(&x);
}

static void the_cluster_shows_only_its_own_values(void **state)
{
    (void)state;
    struct fixture x;
    fixture_init(&x, "message.max.bytes=2000\n", "message.max.bytes=3000", "message.max.bytes=4000");
    struct config_entries all = config_describe_cluster(x.cfg, &x.arena);
    assert_int_equal(all.count, 1);
    assert_string_equal(all.items[0].value, "3000");
    assert_int_equal(all.items[0].source, CONFIG_FROM_DYNAMIC_CLUSTER);
    assert_int_equal(all.items[0].synonym_count, 1);
    assert_synonym(&all.items[0], 0, "message.max.bytes", "3000", CONFIG_FROM_DYNAMIC_CLUSTER);
    fixture_fini(&x);
}

static void a_topics_values_name_the_brokers_keys(void **state)
{
    (void)state;
    struct fixture x;
    fixture_init(&x, "log.segment.bytes=5000\nlog.retention.hours=1\n", "compression.type=lz4", NULL);
    struct config_map *overrides = config_map_new();
    config_map_set(overrides, STR("segment.bytes"), STR("6000"));
    config_map_set(overrides, STR("remote.storage.enable"), STR("false"));
    config_map_set(overrides, STR("zz.unknown"), STR("1"));
    struct config_entries all = config_describe_topic(x.cfg, overrides, &x.arena);
    assert_int_equal(all.count, TCFG_COUNT + 1);

    const struct config_entry *e = entry_of(all, "segment.bytes");
    assert_string_equal(e->value, "6000");
    assert_int_equal(e->source, CONFIG_FROM_TOPIC);
    assert_false(e->read_only);
    assert_int_equal(e->synonym_count, 3);
    assert_synonym(e, 0, "segment.bytes", "6000", CONFIG_FROM_TOPIC);
    assert_synonym(e, 1, "log.segment.bytes", "5000", CONFIG_FROM_STATIC);
    assert_synonym(e, 2, "log.segment.bytes", "1073741824", CONFIG_FROM_DEFAULT);

    e = entry_of(all, "compression.type");
    assert_string_equal(e->value, "lz4");
    assert_int_equal(e->source, CONFIG_FROM_DYNAMIC_CLUSTER);

    /* The value comes from hours, and by Kafka's rule no synonym tells. */
    e = entry_of(all, "retention.ms");
    assert_string_equal(e->value, "3600000");
    assert_int_equal(e->synonym_count, 0);
    assert_int_equal(e->source, CONFIG_FROM_DEFAULT);

    e = entry_of(all, "remote.storage.enable");
    assert_string_equal(e->value, "false");
    assert_int_equal(e->source, CONFIG_FROM_TOPIC);
    e = entry_of(all, "remote.log.copy.disable");
    assert_int_equal(e->source, CONFIG_FROM_DEFAULT);
    assert_int_equal(e->synonym_count, 0);
    e = entry_of(all, "message.format.version");
    assert_string_equal(e->value, "3.0-IV1");
    e = entry_of(all, "zz.unknown");
    assert_true(e->sensitive);
    assert_null(e->value);
    config_map_free(overrides);
    fixture_fini(&x);
}

static void numbers_are_kafkas(void **state)
{
    (void)state;
    const int types[] = {CONFIG_UNKNOWN, CONFIG_BOOLEAN, CONFIG_STRING, CONFIG_INT,   CONFIG_SHORT,
                         CONFIG_LONG,    CONFIG_DOUBLE,  CONFIG_LIST,   CONFIG_CLASS, CONFIG_PASSWORD};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) assert_int_equal(types[i], i);
    assert_int_equal(CONFIG_FROM_TOPIC, 1);
    assert_int_equal(CONFIG_FROM_DYNAMIC_LOGGER, 6);
    assert_int_equal(CONFIG_SUBTRACT, 3);
    /* Kafka 3.9 has 328 broker keys, two throttled rates that are dynamic only, and 36 topic keys; log.file, log.level,
     * log.flush.mode, log.dir.re*, controller.fast.failure.detection, controller.election.log.end.wait.ms,
     * zookeeper.digest.* and flush.mode are ours. */
    assert_int_equal(CFG_COUNT, 340);
    assert_int_equal(TCFG_COUNT, 37);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_brokers_values_show_every_layer),
        cmocka_unit_test(hidden_keys_are_shown_only_as_part_of_the_file),
        cmocka_unit_test(passwords_and_unknown_keys_show_no_value),
        cmocka_unit_test(synonyms_in_other_units_start_at_the_entrys_own_name),
        cmocka_unit_test(the_cluster_shows_only_its_own_values),
        cmocka_unit_test(a_topics_values_name_the_brokers_keys),
        cmocka_unit_test(numbers_are_kafkas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
