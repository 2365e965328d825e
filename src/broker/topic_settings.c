/* topic_settings.c: the one place where a topic's configuration turns into the log's. */
#include "broker/topic_settings.h"

static int compression_level(const struct topic_config *t)
{
    switch (t->compression_type) {
    case TOPIC_COMPRESSION_GZIP: return t->compression_gzip_level;
    case TOPIC_COMPRESSION_LZ4: return t->compression_lz4_level;
    case TOPIC_COMPRESSION_ZSTD: return t->compression_zstd_level;
    default: return COMPRESS_LEVEL_DEFAULT;
    }
}

void topic_settings_build(struct topic_settings *out, const struct config *cfg, const struct config_map *overrides)
{
    struct topic_config t;
    topic_config_build(&t, cfg, overrides, NULL);
    *out = (struct topic_settings){
        .log =
            {
                .segment_bytes = t.segment_bytes,
                /* Or what is appended last would never come to be compacted in time. */
                .segment_ms = t.cleanup_compact ? MIN(t.segment_ms, t.max_compaction_lag_ms) : t.segment_ms,
                .segment_jitter_ms = t.segment_jitter_ms,
                .segment_index_bytes = t.segment_index_bytes,
                .index_interval_bytes = t.index_interval_bytes,
                .retention_ms = t.retention_ms,
                .retention_bytes = t.retention_bytes,
                .cleanup_delete = t.cleanup_delete,
                .cleanup_compact = t.cleanup_compact,
                .min_cleanable_dirty_ratio = t.min_cleanable_dirty_ratio,
                .min_compaction_lag_ms = t.min_compaction_lag_ms,
                .max_compaction_lag_ms = t.max_compaction_lag_ms,
                .delete_retention_ms = t.delete_retention_ms,
                .log_append_time = t.message_timestamp_type == TIMESTAMP_LOG_APPEND_TIME,
                .flush_messages = t.flush_messages,
                .flush_ms = t.flush_ms,
                .flush_group = t.flush_group,
                .file_delete_delay_ms = t.file_delete_delay_ms,
                .producer_expiration_ms = config_i64(cfg, CFG_PRODUCER_ID_EXPIRATION_MS),
            },
        .max_message_bytes = t.max_message_bytes,
        .min_insync_replicas = t.min_insync_replicas,
        .timestamp_before_max_ms = t.message_timestamp_before_max_ms,
        .timestamp_after_max_ms = t.message_timestamp_after_max_ms,
        .keep_codec = t.compression_type == TOPIC_COMPRESSION_PRODUCER,
        .codec = t.compression_type == TOPIC_COMPRESSION_PRODUCER ? CODEC_NONE : (enum codec)t.compression_type,
        .compression_level = compression_level(&t),
    };
}
