/* config: a topic's values, from its overrides and the broker keys. */
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

static struct config_map *map_of(const char *properties)
{
    struct config_map *m = config_map_new();
    struct fault f = {0};
    assert_int_equal(config_parse_properties(m, str_of(properties), "m", &f), OK);
    return m;
}

static struct topic_config topic(const char *broker, const char *overrides)
{
    struct config *cfg = load(broker);
    struct config_map *m = map_of(overrides);
    struct topic_config t;
    struct fault f = {0};
    topic_config_build(&t, cfg, m, &f);
    assert_int_equal(f.code, OK);
    config_map_free(m);
    config_unref(cfg);
    return t;
}

static void defaults_are_kafkas(void **state)
{
    (void)state;
    struct config *cfg = load("");
    struct topic_config t;
    topic_config_build(&t, cfg, NULL, NULL);
    config_unref(cfg);
    assert_int_equal(t.segment_bytes, 1073741824);
    assert_int_equal(t.segment_ms, 604800000);
    assert_int_equal(t.segment_jitter_ms, 0);
    assert_int_equal(t.segment_index_bytes, 10485760);
    assert_int_equal(t.index_interval_bytes, 4096);
    assert_int_equal(t.retention_ms, 604800000);
    assert_int_equal(t.retention_bytes, -1);
    assert_true(t.cleanup_delete);
    assert_false(t.cleanup_compact);
    assert_int_equal(t.max_message_bytes, 1048588);
    assert_int_equal(t.min_insync_replicas, 1);
    assert_int_equal(t.message_timestamp_type, TIMESTAMP_CREATE_TIME);
    assert_true(t.message_timestamp_before_max_ms == INT64_MAX);
    assert_true(t.message_timestamp_after_max_ms == INT64_MAX);
    assert_int_equal(t.compression_type, TOPIC_COMPRESSION_PRODUCER);
    assert_int_equal(t.compression_gzip_level, -1);
    assert_int_equal(t.compression_lz4_level, 9);
    assert_int_equal(t.compression_zstd_level, 3);
    assert_true(t.flush_messages == INT64_MAX);
    assert_true(t.flush_ms == INT64_MAX);
    assert_int_equal(t.file_delete_delay_ms, 60000);
    assert_int_equal(t.delete_retention_ms, 86400000);
    assert_true(t.min_cleanable_dirty_ratio == 0.5);
    assert_int_equal(t.min_compaction_lag_ms, 0);
    assert_true(t.max_compaction_lag_ms == INT64_MAX);
    assert_false(t.preallocate);
    assert_false(t.unclean_leader_election_enable);
}

static void broker_keys_give_values_in_the_topics_unit(void **state)
{
    (void)state;
    struct topic_config t = topic("log.retention.hours=2\nlog.roll.hours=3\nlog.roll.jitter.hours=1\n"
                                  "log.flush.scheduler.interval.ms=77\n",
                                  "");
    assert_int_equal(t.retention_ms, 7200000);
    assert_int_equal(t.segment_ms, 10800000);
    assert_int_equal(t.segment_jitter_ms, 3600000);
    assert_int_equal(t.flush_ms, 77);
    t = topic("log.retention.hours=2\nlog.retention.minutes=3\nlog.roll.hours=3\nlog.roll.ms=4\n"
              "log.flush.scheduler.interval.ms=77\nlog.flush.interval.ms=78\n",
              "");
    assert_int_equal(t.retention_ms, 180000);
    assert_int_equal(t.segment_ms, 4);
    assert_int_equal(t.flush_ms, 78);
    t = topic("log.retention.hours=2\nlog.retention.minutes=3\nlog.retention.ms=4\n", "");
    assert_int_equal(t.retention_ms, 4);
    t = topic("log.retention.hours=-5\n", "");
    assert_int_equal(t.retention_ms, -1);
    t = topic("log.retention.hours=2147483647\n", "");
    assert_true(t.retention_ms == INT64_C(7730941129200000));
}

static void overrides_win(void **state)
{
    (void)state;
    struct topic_config t = topic("log.retention.ms=5\nlog.cleanup.policy=delete\ncompression.type=gzip\n",
                                  "retention.ms=-1\ncleanup.policy=compact\ncompression.type=zstd\n"
                                  "message.timestamp.type=LogAppendTime\nsegment.bytes=14\npreallocate=TRUE\n"
                                  "min.cleanable.dirty.ratio=0.25\nmin.insync.replicas=2\n");
    assert_int_equal(t.retention_ms, -1);
    assert_true(t.cleanup_compact);
    assert_false(t.cleanup_delete);
    assert_int_equal(t.compression_type, TOPIC_COMPRESSION_ZSTD);
    assert_int_equal(t.message_timestamp_type, TIMESTAMP_LOG_APPEND_TIME);
    assert_int_equal(t.segment_bytes, 14);
    assert_true(t.preallocate);
    assert_true(t.min_cleanable_dirty_ratio == 0.25);
    assert_int_equal(t.min_insync_replicas, 2);
    t = topic("", "cleanup.policy=compact, delete\ncompression.type=uncompressed");
    assert_true(t.cleanup_compact && t.cleanup_delete);
    assert_int_equal(t.compression_type, TOPIC_COMPRESSION_NONE);
}

static void the_deprecated_timestamp_difference_fills_in_for_unset_limits(void **state)
{
    (void)state;
    struct topic_config t = topic("log.message.timestamp.difference.max.ms=10\n", "");
    assert_int_equal(t.message_timestamp_before_max_ms, 10);
    assert_int_equal(t.message_timestamp_after_max_ms, 10);
    t = topic("log.message.timestamp.difference.max.ms=10\nlog.message.timestamp.before.max.ms=20\n", "");
    assert_int_equal(t.message_timestamp_before_max_ms, 20);
    assert_int_equal(t.message_timestamp_after_max_ms, 10);
    t = topic("", "message.timestamp.difference.max.ms=30\nmessage.timestamp.after.max.ms=40\n");
    assert_int_equal(t.message_timestamp_before_max_ms, 30);
    assert_int_equal(t.message_timestamp_after_max_ms, 40);
}

static void stored_overrides_that_are_wrong_are_passed_over_and_told(void **state)
{
    (void)state;
    struct config *cfg = load("");
    struct config_map *m = map_of("retention.ms=-2\nsegment.bytes=1000\nwhat=1");
    struct topic_config t;
    struct fault f = {0};
    topic_config_build(&t, cfg, m, &f);
    assert_int_equal(t.retention_ms, 604800000);
    assert_int_equal(t.segment_bytes, 1000);
    assert_int_equal(f.code, ERR_INVALID);
    assert_string_equal(f.text, "Invalid value -2 for configuration retention.ms: Value must be at least -1");
    config_map_free(m);
    config_unref(cfg);
}

static void assert_check(const char *broker, const char *overrides, const char *why)
{
    struct config *cfg = load(broker);
    struct config_map *m = map_of(overrides);
    struct fault f = {0};
    enum err e = topic_config_check(cfg, m, &f);
    if (why) {
        assert_int_equal(e, ERR_INVALID);
        assert_string_equal(f.text, why);
    } else if (e) {
        fail_msg("%s", f.text);
    }
    config_map_free(m);
    config_unref(cfg);
}

static void overrides_are_checked_in_kafkas_words(void **state)
{
    (void)state;
    assert_check("", "retention.ms=1\nsegment.bytes=14\ncleanup.policy=", NULL);
    assert_check("", "log.retention.ms=1", "Unknown topic config name: log.retention.ms");
    assert_check("", "segment.bytes=13", "Invalid value 13 for configuration segment.bytes: Value must be at least 14");
    assert_check("", "segment.bytes=x", "Invalid value x for configuration segment.bytes: Not a number of type INT");
    assert_check("", "message.timestamp.type=Later",
                 "Invalid value Later for configuration message.timestamp.type: "
                 "String must be one of: CreateTime, LogAppendTime");
    assert_check("", "min.compaction.lag.ms=5\nmax.compaction.lag.ms=4",
                 "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)");
    assert_check("log.cleaner.max.compaction.lag.ms=4", "min.compaction.lag.ms=5",
                 "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)");
    assert_check("", "remote.storage.enable=true",
                 "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                 "storage.");
    assert_check("", "remote.storage.enable=false\nremote.log.copy.disable=false", NULL);
    assert_check(
        "", "remote.log.copy.disable=true",
        "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.");
}

static void throttled_replicas_are_pairs_or_a_star(void **state)
{
    (void)state;
    const char *good[] = {"", "*", "0:1", "0:1,1:2, 10:1000", "0:1,"};
    const char *bad[] = {"0", "0:", ":1", "0:1:2", "a:1", "*,0:1", "0:1 2:3", "-1:0"};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        char text[100];
        snprintf(text, sizeof text, "leader.replication.throttled.replicas=%s", good[i]);
        assert_check("", text, NULL);
    }
    struct config *cfg = load("");
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct config_map *m = config_map_new();
        config_map_set(m, STR("follower.replication.throttled.replicas"), str_of(bad[i]));
        struct fault f = {0};
        assert_int_equal(topic_config_check(cfg, m, &f), ERR_INVALID);
        assert_non_null(strstr(f.text, "must be the literal '*' or a list of replicas"));
        config_map_free(m);
    }
    config_unref(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_kafkas),
        cmocka_unit_test(broker_keys_give_values_in_the_topics_unit),
        cmocka_unit_test(overrides_win),
        cmocka_unit_test(the_deprecated_timestamp_difference_fills_in_for_unset_limits),
        cmocka_unit_test(stored_overrides_that_are_wrong_are_passed_over_and_told),
        cmocka_unit_test(overrides_are_checked_in_kafkas_words),
        cmocka_unit_test(throttled_replicas_are_pairs_or_a_star),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
