/* config: layers, bounds, refusals, notices and snapshots of broker keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "broker/config.h"

static struct config *load(const char *text)
{
    struct config *cfg = NULL;
    struct fault f = {0};
    struct config_input in = {.file_name = "s.properties", .text = str_of(text)};
    enum err e = config_load(&cfg, &in, &f);
    if (e) fail_msg("%s", f.text);
    return cfg;
}

/* The file must be refused with exactly this explanation. */
static void assert_refused(const char *text, enum err code, const char *why)
{
    struct config *cfg = NULL;
    struct fault f = {0};
    struct config_input in = {.file_name = "s.properties", .text = str_of(text)};
    assert_int_equal(config_load(&cfg, &in, &f), code);
    assert_int_equal(f.code, code);
    assert_string_equal(f.text, why);
    assert_null(cfg);
}

/* The same, by what the explanation begins with. */
static void assert_refused_with(const char *text, enum err code, const char *begin)
{
    struct config *cfg = NULL;
    struct fault f = {0};
    struct config_input in = {.file_name = "s.properties", .text = str_of(text)};
    assert_int_equal(config_load(&cfg, &in, &f), code);
    if (strncmp(f.text, begin, strlen(begin)) != 0) fail_msg("%s", f.text);
}

static const struct config_notice *notice_of(const struct config *cfg, const char *name)
{
    for (size_t i = 0; i < config_notice_count(cfg); i++)
        if (strcmp(config_notice_at(cfg, i)->name, name) == 0) return config_notice_at(cfg, i);
    return NULL;
}

static void without_a_file_it_is_one_node_on_port_9092(void **state)
{
    (void)state;
    struct config *cfg = NULL;
    struct fault f = {0};
    assert_int_equal(config_load(&cfg, &(struct config_input){.cpu_count = 6}, &f), OK);
    assert_int_equal(config_broker_id(cfg, -1), 0);
    assert_int_equal(config_broker_id(cfg, 7), 7);
    struct listener_list l = config_listeners(cfg);
    assert_int_equal(l.count, 1);
    assert_string_equal(l.items[0].name, "PLAINTEXT");
    assert_null(l.items[0].host);
    assert_int_equal(l.items[0].port, 9092);
    assert_int_equal(config_advertised(cfg).count, 1);
    assert_string_equal(config_inter_broker(cfg)->name, "PLAINTEXT");
    assert_int_equal(config_log_dirs(cfg).count, 1);
    assert_string_equal(config_log_dirs(cfg).items[0], "/tmp/barnabas-logs");
    assert_int_equal(config_i64(cfg, CFG_NUM_IO_THREADS), 6);
    assert_int_equal(config_notice_count(cfg), 0);
    config_unref(cfg);
}

static void values_have_their_types(void **state)
{
    (void)state;
    struct config *cfg =
        load("num.partitions = +3 \nauto.create.topics.enable=FALSE\nlog.cleaner.min.cleanable.ratio=1e-1\n"
             "log.cleanup.policy= compact , delete\nbroker.rack=  r 1\noffsets.commit.required.acks=-1\n"
             "log.segment.bytes=1048576\nlog.retention.ms=-1\nssl.keystore.password= geheim \n");
    assert_int_equal(config_i64(cfg, CFG_NUM_PARTITIONS), 3);
    assert_false(config_bool(cfg, CFG_AUTO_CREATE_TOPICS_ENABLE));
    assert_true(config_f64(cfg, CFG_LOG_CLEANER_MIN_CLEANABLE_RATIO) == 0.1);
    struct config_list policy = config_list(cfg, CFG_LOG_CLEANUP_POLICY);
    assert_int_equal(policy.count, 2);
    assert_string_equal(policy.items[0], "compact");
    assert_string_equal(policy.items[1], "delete");
    assert_string_equal(config_str(cfg, CFG_BROKER_RACK), "r 1");
    assert_int_equal(config_i64(cfg, CFG_OFFSETS_COMMIT_REQUIRED_ACKS), -1);
    assert_true(config_i64(cfg, CFG_LOG_RETENTION_MS) == -1);
    assert_true(config_is_null(cfg, CFG_LOG_RETENTION_MINUTES));
    assert_null(config_str(cfg, CFG_ADVERTISED_LISTENERS));
    assert_string_equal(config_str(cfg, CFG_SSL_KEYSTORE_PASSWORD), "geheim");
    assert_int_equal(config_source_of(cfg, CFG_NUM_PARTITIONS), CONFIG_FROM_STATIC);
    assert_int_equal(config_source_of(cfg, CFG_MESSAGE_MAX_BYTES), CONFIG_FROM_DEFAULT);
    config_unref(cfg);
}

static void bad_values_are_told_with_key_value_reason_and_line(void **state)
{
    (void)state;
    assert_refused("\nnum.partitions=many\n", ERR_INVALID,
                   "s.properties:2: Invalid value many for configuration num.partitions: Not a number of type INT");
    assert_refused("num.partitions=0", ERR_INVALID,
                   "s.properties:1: Invalid value 0 for configuration num.partitions: Value must be at least 1");
    assert_refused(
        "num.partitions=2147483648", ERR_INVALID,
        "s.properties:1: Invalid value 2147483648 for configuration num.partitions: Not a number of type INT");
    assert_refused("num.partitions=", ERR_INVALID,
                   "s.properties:1: Invalid value  for configuration num.partitions: Not a number of type INT");
    assert_refused("offsets.topic.replication.factor=32768", ERR_INVALID,
                   "s.properties:1: Invalid value 32768 for configuration offsets.topic.replication.factor: "
                   "Not a number of type SHORT");
    assert_refused("log.segment.bytes=13", ERR_INVALID,
                   "s.properties:1: Invalid value 13 for configuration log.segment.bytes: Value must be at least 14");
    assert_refused(
        "compression.lz4.level=18", ERR_INVALID,
        "s.properties:1: Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17");
    assert_refused("compression.gzip.level=0", ERR_INVALID,
                   "s.properties:1: Invalid value 0 for configuration compression.gzip.level: "
                   "Value must be between 1 and 9 or equal to -1");
    assert_refused("delete.topic.enable=yes", ERR_INVALID,
                   "s.properties:1: Invalid value yes for configuration delete.topic.enable: "
                   "Expected value to be either true or false");
    assert_refused("compression.type=lzma", ERR_INVALID,
                   "s.properties:1: Invalid value lzma for configuration compression.type: "
                   "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer");
    assert_refused("log.cleanup.policy=delete,shrink", ERR_INVALID,
                   "s.properties:1: Invalid value delete,shrink for configuration log.cleanup.policy: "
                   "String must be one of: compact, delete");
    assert_refused("log.cleaner.min.cleanable.ratio=1.5", ERR_INVALID,
                   "s.properties:1: Invalid value 1.5 for configuration log.cleaner.min.cleanable.ratio: "
                   "Value must be no more than 1");
    assert_refused("inter.broker.protocol.version=3.10", ERR_INVALID,
                   "s.properties:1: Invalid value 3.10 for configuration inter.broker.protocol.version: "
                   "Version 3.10 is not a valid version");
}

static void versions_of_kafka_are_known(void **state)
{
    (void)state;
    const char *good[] = {"0.8.2",   "0.8.2.1", "0.10.0", "0.10.0-IV1", "1.0",
                          "2.8-IV1", "3.5",     "3.5.2",  "3.9-IV0",    "4.0-IV1"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        char text[80];
        snprintf(text, sizeof text, "inter.broker.protocol.version=%s", good[i]);
        config_unref(load(text));
    }
    const char *bad[] = {"0.7.2", "0.8", "3.9-IV1", "4.1", "3.5-IV", "3.5-IV22", "latest"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        char text[80];
        snprintf(text, sizeof text, "inter.broker.protocol.version=%s", bad[i]);
        assert_refused_with(text, ERR_INVALID, "s.properties:1: Invalid value");
    }
}

static void overrides_win_over_the_file_and_the_last_over_the_others(void **state)
{
    (void)state;
    const char *overrides[] = {"num.partitions=5", "log.dir = /a=b", "num.partitions=6"};
    struct config_input in = {.file_name = "s.properties",
                              .text = STR("num.partitions=4\nlog.dir=/x\n"),
                              .overrides = overrides,
                              .override_count = 3};
    struct config *cfg;
    struct fault f = {0};
    assert_int_equal(config_load(&cfg, &in, &f), OK);
    assert_int_equal(config_i64(cfg, CFG_NUM_PARTITIONS), 6);
    assert_string_equal(config_log_dirs(cfg).items[0], "/a=b");
    config_unref(cfg);

    overrides[1] = "num.partitions=x";
    in.override_count = 2;
    assert_int_equal(config_load(&cfg, &in, &f), ERR_INVALID);
    assert_string_equal(f.text, "--override num.partitions: Invalid value x for configuration num.partitions: "
                                "Not a number of type INT");
    overrides[1] = "num.partitions";
    assert_int_equal(config_load(&cfg, &in, &f), ERR_INVALID);
    assert_string_equal(f.text, "--override num.partitions: expected key=value");
}

static void what_would_be_unsafe_to_ignore_is_an_error(void **state)
{
    (void)state;
    const char *bad[] = {
        "zookeeper.ssl.crl.enable=true",
        "process.roles=broker,controller",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "create.topic.policy.class.name=com.example.Policy",
        "alter.config.policy.class.name=com.example.Policy",
        "client.quota.callback.class=com.example.Quota",
        "principal.builder.class=com.example.Principals",
        "remote.log.storage.system.enable=true",
        "zookeeper.metadata.migration.enable=true",
        "controller.listener.names=CONTROLLER",
        "config.providers=file",
        "listeners=SSL://:9093",
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) assert_refused_with(bad[i], ERR_UNSUPPORTED, "s.properties:1: ");
    assert_refused_with("zookeeper.ssl.ocsp.enable=true", ERR_UNSUPPORTED,
                        "s.properties:1: zookeeper.ssl.ocsp.enable=true is not supported: ");
    config_unref(
        load("process.roles=\nauthorizer.class.name=\nremote.log.storage.system.enable=false\nzookeeper.connect=\n"));
}

static void keys_without_effect_and_unknown_keys_are_noticed(void **state)
{
    (void)state;
    struct config *cfg =
        load("num.partition=3\nnum.network.threads=3\ngroup.consumer.max.size=5\nnum.partitions=2\nmy.plugin.key=1\n"
             "listener.name.plaintext.max.connections=7\nlistener.name.internal.ssl.truststore.type=PEM\n"
             "listener.name.x.scram-sha-256.sasl.jaas.config=secret\nlistener.name.x.nonsense=1\n");
    assert_int_equal(notice_of(cfg, "num.partition")->kind, CONFIG_NOTICE_UNKNOWN);
    assert_string_equal(notice_of(cfg, "num.partition")->text, "unknown key; did you mean num.partitions?");
    assert_string_equal(notice_of(cfg, "my.plugin.key")->text, "unknown key; it has no effect");
    assert_int_equal(notice_of(cfg, "group.consumer.max.size")->kind, CONFIG_NOTICE_NO_EFFECT);
    assert_string_equal(notice_of(cfg, "group.consumer.max.size")->text, "the key is set but has no effect yet");
    assert_int_equal(notice_of(cfg, "num.network.threads")->kind, CONFIG_NOTICE_NO_EFFECT);
    assert_null(notice_of(cfg, "num.partitions"));
    assert_int_equal(notice_of(cfg, "listener.name.plaintext.max.connections")->kind, CONFIG_NOTICE_NO_EFFECT);
    assert_int_equal(notice_of(cfg, "listener.name.internal.ssl.truststore.type")->kind, CONFIG_NOTICE_NO_EFFECT);
    assert_int_equal(notice_of(cfg, "listener.name.x.scram-sha-256.sasl.jaas.config")->kind, CONFIG_NOTICE_NO_EFFECT);
    assert_int_equal(notice_of(cfg, "listener.name.x.nonsense")->kind, CONFIG_NOTICE_UNKNOWN);
    assert_true(config_i64(cfg, CFG_MAX_CONNECTIONS) == INT32_MAX);
    config_unref(cfg);
    assert_refused_with("listener.name.x.max.connections=no", ERR_INVALID,
                        "s.properties:1: Invalid value no for configuration max.connections");
}

static void broker_ids_follow_kafkas_rules(void **state)
{
    (void)state;
    struct config *cfg = load("broker.id=1000");
    assert_int_equal(config_broker_id(cfg, 7), 1000);
    config_unref(cfg);
    cfg = load("node.id=4");
    assert_int_equal(config_broker_id(cfg, -1), 4);
    config_unref(cfg);
    config_unref(load("broker.id=-1"));
    config_unref(load("broker.id=5000\nbroker.id.generation.enable=false"));
    assert_refused_with("broker.id=1001", ERR_INVALID, "s.properties:1: broker.id must be greater than or equal to -1");
    assert_refused_with("broker.id=-2", ERR_INVALID, "s.properties:1: broker.id must be");
    assert_refused_with("broker.id.generation.enable=false", ERR_INVALID,
                        "broker.id must be greater than or equal to 0");
    assert_refused("broker.id=1\nnode.id=2", ERR_INVALID,
                   "s.properties:2: You must set `node.id` to the same value as `broker.id`.");
}

static void values_must_go_together(void **state)
{
    (void)state;
    assert_refused("log.roll.ms=0", ERR_INVALID, "s.properties:1: log.roll.ms must be greater than or equal to 1");
    assert_refused_with("log.retention.ms=0", ERR_INVALID, "s.properties:1: log.retention.ms must be unlimited (-1)");
    assert_refused_with("log.retention.minutes=0", ERR_INVALID, "s.properties:1: log.retention.ms must be unlimited");
    config_unref(load("log.retention.ms=5\nlog.retention.minutes=0"));
    assert_refused_with("queued.max.request.bytes=1000", ERR_INVALID,
                        "s.properties:1: queued.max.request.bytes must be larger or equal to socket.request.max.bytes");
    assert_refused_with("max.connections.per.ip=0", ERR_INVALID,
                        "s.properties:1: max.connections.per.ip can be set to zero");
    assert_refused_with("replica.fetch.wait.max.ms=40000\nreplica.socket.timeout.ms=50000", ERR_INVALID,
                        "s.properties:1: replica.fetch.wait.max.ms should always be less than or equal to");
    assert_refused_with("log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8", ERR_INVALID,
                        "s.properties:1: conflict topic config setting min.compaction.lag.ms (9) > "
                        "max.compaction.lag.ms (8)");
    assert_refused_with("log.cleaner.dedupe.buffer.size=1048576", ERR_INVALID,
                        "s.properties:1: log.cleaner.dedupe.buffer.size must be at least 1MB");
    assert_refused_with("connections.max.idle.ms=50", ERR_INVALID, "s.properties:1: connection.failed.authentication");
    assert_refused_with("log.dirs=,", ERR_INVALID, "s.properties:1: At least one log directory");
    assert_refused("log.dirs=/a,/b,/a", ERR_INVALID, "s.properties:1: Duplicate log directory in log.dirs: /a");
}

static void lists_in_disguise_are_taken_apart(void **state)
{
    (void)state;
    struct config *cfg = load("log.dir=/never\nlog.dirs= /a , /b\nmax.connections.per.ip=0\n"
                              "max.connections.per.ip.overrides=127.0.0.1:5, ::1:0 ,host.example:2147483647\n");
    assert_int_equal(config_log_dirs(cfg).count, 2);
    assert_string_equal(config_log_dirs(cfg).items[1], "/b");
    struct ip_limit_list limits = config_ip_limits(cfg);
    assert_int_equal(limits.count, 3);
    assert_string_equal(limits.items[0].host, "127.0.0.1");
    assert_int_equal(limits.items[0].connections_max, 5);
    assert_string_equal(limits.items[1].host, "::1");
    assert_int_equal(limits.items[1].connections_max, 0);
    assert_int_equal(limits.items[2].connections_max, INT32_MAX);
    config_unref(cfg);
    const char *bad[] = {"max.connections.per.ip.overrides=nonsense", "max.connections.per.ip.overrides=h:-1",
                         "max.connections.per.ip.overrides=h:x", "max.connections.per.ip.overrides=:3",
                         "max.connections.per.ip.overrides=h/8:3"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) assert_refused_with(bad[i], ERR_INVALID, "s.properties:1: ");
}

static struct config_map *map_of(const char *name, const char *value)
{
    struct config_map *m = config_map_new();
    config_map_set(m, str_of(name), str_of(value));
    return m;
}

static void dynamic_values_win_this_broker_over_the_cluster(void **state)
{
    (void)state;
    struct config *base = load("message.max.bytes=1000\nlog.segment.bytes=2000\n");
    struct config_map *cluster = map_of("message.max.bytes", "2000");
    config_map_set(cluster, STR("log.segment.bytes"), STR("3000"));
    struct config_map *broker = map_of("message.max.bytes", "3000");
    struct config *cfg;
    struct fault f = {0};
    assert_int_equal(config_with_dynamic(&cfg, base, cluster, broker, &f), OK);
    assert_int_equal(config_i64(cfg, CFG_MESSAGE_MAX_BYTES), 3000);
    assert_int_equal(config_source_of(cfg, CFG_MESSAGE_MAX_BYTES), CONFIG_FROM_DYNAMIC_BROKER);
    assert_int_equal(config_i64(cfg, CFG_LOG_SEGMENT_BYTES), 3000);
    assert_int_equal(config_source_of(cfg, CFG_LOG_SEGMENT_BYTES), CONFIG_FROM_DYNAMIC_CLUSTER);
    assert_int_equal(config_i64(base, CFG_MESSAGE_MAX_BYTES), 1000);
    struct config *back;
    assert_int_equal(config_with_dynamic(&back, cfg, NULL, NULL, &f), OK);
    assert_int_equal(config_i64(back, CFG_MESSAGE_MAX_BYTES), 1000);
    config_unref(back);
    config_unref(cfg);
    config_unref(base);
    config_map_free(cluster);
    config_map_free(broker);
}

static void stored_values_that_cannot_be_dynamic_are_left_out_with_a_notice(void **state)
{
    (void)state;
    struct config *base = load("");
    struct config_map *cluster = map_of("num.partitions", "9");
    config_map_set(cluster, STR("listeners"), STR("PLAINTEXT://:1"));
    config_map_set(cluster, STR("message.max.bytes"), STR("big"));
    config_map_set(cluster, STR("ssl.keystore.type"), STR("PEM"));
    config_map_set(cluster, STR("max.connections"), STR("12"));
    struct config *cfg;
    struct fault f = {0};
    assert_int_equal(config_with_dynamic(&cfg, base, cluster, NULL, &f), OK);
    assert_int_equal(config_i64(cfg, CFG_NUM_PARTITIONS), 1);
    assert_int_equal(config_i64(cfg, CFG_MESSAGE_MAX_BYTES), 1048588);
    assert_int_equal(config_i64(cfg, CFG_MAX_CONNECTIONS), 12);
    assert_int_equal(config_listeners(cfg).items[0].port, 9092);
    assert_int_equal(config_notice_count(cfg), 4);
    assert_int_equal(notice_of(cfg, "num.partitions")->kind, CONFIG_NOTICE_IGNORED);
    assert_int_equal(notice_of(cfg, "message.max.bytes")->kind, CONFIG_NOTICE_IGNORED);
    config_unref(cfg);
    config_map_free(cluster);

    cluster = map_of("log.retention.ms", "0");
    assert_int_equal(config_with_dynamic(&cfg, base, cluster, NULL, &f), ERR_INVALID);
    config_map_free(cluster);
    config_unref(base);
}

static void readers_see_the_newest_snapshot_and_keep_theirs_alive(void **state)
{
    (void)state;
    struct config_live *live = config_live_new(load("num.partitions=1"));
    struct config_reader r;
    config_reader_init(&r, live);
    const struct config *first = config_reader_get(&r);
    assert_int_equal(config_i64(first, CFG_NUM_PARTITIONS), 1);
    assert_ptr_equal(config_reader_get(&r), first);
    config_live_give(live, load("num.partitions=2"));
    assert_int_equal(config_i64(first, CFG_NUM_PARTITIONS), 1); /* still lent */
    assert_int_equal(config_i64(config_reader_get(&r), CFG_NUM_PARTITIONS), 2);
    struct config *mine = config_live_ref(live);
    config_live_give(live, load("num.partitions=3"));
    assert_int_equal(config_i64(mine, CFG_NUM_PARTITIONS), 2);
    config_unref(mine);
    config_reader_fini(&r);
    config_live_free(live);
}

static void *read_until_three(void *arg)
{
    struct config_reader r;
    config_reader_init(&r, arg);
    int64_t last = 0, seen;
    do {
        seen = config_i64(config_reader_get(&r), CFG_NUM_PARTITIONS);
        if (seen < last) return "went back";
        last = seen;
    } while (seen < 3);
    config_reader_fini(&r);
    return NULL;
}

static void readers_on_several_threads_end_at_the_newest(void **state)
{
    (void)state;
    struct config_live *live = config_live_new(load("num.partitions=1"));
    pthread_t threads[3];
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_until_three, live), 0);
    config_live_give(live, load("num.partitions=2"));
    config_live_give(live, load("num.partitions=3"));
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) {
        void *what = NULL;
        assert_int_equal(pthread_join(threads[i], &what), 0);
        assert_null(what);
    }
    config_live_free(live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_it_is_one_node_on_port_9092),
        cmocka_unit_test(values_have_their_types),
        cmocka_unit_test(bad_values_are_told_with_key_value_reason_and_line),
        cmocka_unit_test(versions_of_kafka_are_known),
        cmocka_unit_test(overrides_win_over_the_file_and_the_last_over_the_others),
        cmocka_unit_test(what_would_be_unsafe_to_ignore_is_an_error),
        cmocka_unit_test(keys_without_effect_and_unknown_keys_are_noticed),
        cmocka_unit_test(broker_ids_follow_kafkas_rules),
        cmocka_unit_test(values_must_go_together),
        cmocka_unit_test(lists_in_disguise_are_taken_apart),
        cmocka_unit_test(dynamic_values_win_this_broker_over_the_cluster),
        cmocka_unit_test(stored_values_that_cannot_be_dynamic_are_left_out_with_a_notice),
        cmocka_unit_test(readers_see_the_newest_snapshot_and_keep_theirs_alive),
        cmocka_unit_test(readers_on_several_threads_end_at_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
