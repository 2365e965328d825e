/* config_topic.c: a topic's values: its own overrides over what the broker keys give it. */
#include "broker/config_internal.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* What the broker gives a topic: the first of the row's broker keys that is set or has a default, in the topic's unit.
 */
static struct config_value server_value(const struct config *cfg, enum topic_key key, struct arena *a)
{
    const struct config_row *row = &config_topic_rows[key];
    /* Kafka ignores the broker's message format since 3.0 and always shows the default. */
    if (key == TCFG_MESSAGE_FORMAT_VERSION) return config_value_default(row, a);
    for (int i = 0; i < CONFIG_SERVER_KEYS_MAX && row->server[i].factor > 0; i++) {
        struct config_value v = cfg->values[row->server[i].key];
        if (!v.text) continue;
        int64_t factor = row->server[i].factor;
        bool forever = key == TCFG_RETENTION_MS && v.i64 < 0; /* any negative retention means -1 */
        if (factor != 1 || forever) {
            v.i64 = forever ? -1 : v.i64 * factor; /* an INT of hours fits */
            v.text = arena_printf(a, "%lld", (long long)v.i64).data;
        }
        return v;
    }
    return config_value_default(row, a);
}

/* Until Kafka drops the deprecated difference, it stands in for a limit that has its default. */
static int64_t timestamp_limit(int64_t limit, int64_t difference)
{
    return limit != INT64_MAX ? limit : difference;
}

static void server_timestamp_limit(struct config_value values[TCFG_COUNT], enum topic_key key, struct arena *a)
{
    values[key].i64 = timestamp_limit(values[key].i64, values[TCFG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS].i64);
    values[key].text = arena_printf(a, "%lld", (long long)values[key].i64).data;
}

void config_topic_values(struct config_value out[TCFG_COUNT], const struct config *cfg,
                         const struct config_map *overrides, struct arena *a, struct fault *f)
{
    for (int i = 0; i < TCFG_COUNT; i++) out[i] = server_value(cfg, (enum topic_key)i, a);
    server_timestamp_limit(out, TCFG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS, a);
    server_timestamp_limit(out, TCFG_MESSAGE_TIMESTAMP_AFTER_MAX_MS, a);
    struct fault first = {0};
    for (size_t i = 0; overrides && i < config_map_count(overrides); i++) {
        const struct config_pair *p = config_map_at(overrides, i);
        struct fault *why = first.code ? NULL : &first;
        int key = config_topic_find(p->name);
        if (key < 0) {
            (void)fault_set(why, ERR_NOT_FOUND, "Unknown topic config name: %.200s", p->name);
            continue;
        }
        struct config_value v;
        if (config_value_parse(&v, &config_topic_rows[key], str_of(p->value), a, why) == OK) out[key] = v;
    }
    if (f) *f = first;
}

static bool list_has(struct config_list list, const char *name)
{
    for (size_t i = 0; i < list.count; i++)
        if (strcasecmp(list.items[i], name) == 0) return true;
    return false;
}

static enum topic_compression compression_of(const char *name)
{
    static const char *const names[] = {
        [TOPIC_COMPRESSION_NONE] = "uncompressed", [TOPIC_COMPRESSION_GZIP] = "gzip",
        [TOPIC_COMPRESSION_SNAPPY] = "snappy",     [TOPIC_COMPRESSION_LZ4] = "lz4",
        [TOPIC_COMPRESSION_ZSTD] = "zstd",
    };
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return (enum topic_compression)i;
    return TOPIC_COMPRESSION_PRODUCER;
}

void topic_config_build(struct topic_config *out, const struct config *cfg, const struct config_map *overrides,
                        struct fault *f)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct config_value v[TCFG_COUNT];
    config_topic_values(v, cfg, overrides, &a, f);
    int64_t difference = v[TCFG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS].i64;
    *out = (struct topic_config){
        .segment_bytes = (int32_t)v[TCFG_SEGMENT_BYTES].i64,
        .segment_ms = v[TCFG_SEGMENT_MS].i64,
        .segment_jitter_ms = v[TCFG_SEGMENT_JITTER_MS].i64,
        .segment_index_bytes = (int32_t)v[TCFG_SEGMENT_INDEX_BYTES].i64,
        .index_interval_bytes = (int32_t)v[TCFG_INDEX_INTERVAL_BYTES].i64,
        .retention_ms = v[TCFG_RETENTION_MS].i64,
        .retention_bytes = v[TCFG_RETENTION_BYTES].i64,
        .cleanup_delete = list_has(v[TCFG_CLEANUP_POLICY].list, "delete"),
        .cleanup_compact = list_has(v[TCFG_CLEANUP_POLICY].list, "compact"),
        .max_message_bytes = (int32_t)v[TCFG_MAX_MESSAGE_BYTES].i64,
        .min_insync_replicas = (int32_t)v[TCFG_MIN_INSYNC_REPLICAS].i64,
        .message_timestamp_type = strcmp(v[TCFG_MESSAGE_TIMESTAMP_TYPE].text, "LogAppendTime") == 0
                                      ? TIMESTAMP_LOG_APPEND_TIME
                                      : TIMESTAMP_CREATE_TIME,
        .message_timestamp_before_max_ms = timestamp_limit(v[TCFG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS].i64, difference),
        .message_timestamp_after_max_ms = timestamp_limit(v[TCFG_MESSAGE_TIMESTAMP_AFTER_MAX_MS].i64, difference),
        .compression_type = compression_of(v[TCFG_COMPRESSION_TYPE].text),
        .compression_gzip_level = (int32_t)v[TCFG_COMPRESSION_GZIP_LEVEL].i64,
        .compression_lz4_level = (int32_t)v[TCFG_COMPRESSION_LZ4_LEVEL].i64,
        .compression_zstd_level = (int32_t)v[TCFG_COMPRESSION_ZSTD_LEVEL].i64,
        .flush_messages = v[TCFG_FLUSH_MESSAGES].i64,
        .flush_ms = v[TCFG_FLUSH_MS].i64,
        .flush_group = strcmp(v[TCFG_FLUSH_MODE].text, "group") == 0,
        .file_delete_delay_ms = v[TCFG_FILE_DELETE_DELAY_MS].i64,
        .delete_retention_ms = v[TCFG_DELETE_RETENTION_MS].i64,
        .min_cleanable_dirty_ratio = v[TCFG_MIN_CLEANABLE_DIRTY_RATIO].f64,
        .min_compaction_lag_ms = v[TCFG_MIN_COMPACTION_LAG_MS].i64,
        .max_compaction_lag_ms = v[TCFG_MAX_COMPACTION_LAG_MS].i64,
        .preallocate = v[TCFG_PREALLOCATE].i64 != 0,
        .unclean_leader_election_enable = v[TCFG_UNCLEAN_LEADER_ELECTION_ENABLE].i64 != 0,
    };
    arena_fini(&a);
}

/* Tiered storage is what Kafka calls it when it is switched off; its two other switches do not exist in ZooKeeper mode.
 */
static enum err check_remote(const struct config_value v[TCFG_COUNT], struct fault *f)
{
    if (v[TCFG_REMOTE_LOG_COPY_DISABLE].i64 || v[TCFG_REMOTE_LOG_DELETE_ON_DISABLE].i64)
        return fault_set(f, ERR_INVALID,
                         "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under "
                         "Zookeeper's mode.");
    if (v[TCFG_REMOTE_STORAGE_ENABLE].i64)
        return fault_set(
            f, ERR_INVALID,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage.");
    return OK;
}

enum err topic_config_check(const struct config *cfg, const struct config_map *overrides, struct fault *f)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct config_value v[TCFG_COUNT];
    struct fault bad = {0};
    config_topic_values(v, cfg, overrides, &a, &bad);
    enum err e = OK;
    int64_t low = v[TCFG_MIN_COMPACTION_LAG_MS].i64, high = v[TCFG_MAX_COMPACTION_LAG_MS].i64;
    if (bad.code)
        e = fault_set(f, ERR_INVALID, "%s", bad.text);
    else if (low > high)
        e = fault_set(f, ERR_INVALID,
                      "conflict topic config setting min.compaction.lag.ms (%lld) > max.compaction.lag.ms (%lld)",
                      (long long)low, (long long)high);
    else
        e = check_remote(v, f);
    arena_fini(&a);
    return e;
}
