/* config.h: the broker's configuration, Kafka's keys with Kafka's types, units, defaults and rules.
 *
 * Every key is one row of config_broker.inc (broker keys and our own) or config_topic.inc (topic keys).  Parsing,
 * bounds, the typed getters, DescribeConfigs and docs/configuration.md all come from these rows.
 *
 * A value is taken from the first layer that has it:
 *     dynamic, this broker   >  dynamic, whole cluster  >  --override, server.properties  >  default
 * and, for a topic, from the topic's own overrides before all of them.
 *
 * `struct config` is a snapshot: it never changes after it is made, so any thread that holds a reference reads it
 * without a lock.  A dynamic change makes a new snapshot (config_with_dynamic) and hands it to `struct config_live`;
 * each loop owns a `struct config_reader`, which notices the change by one atomic load and swaps its reference.
 *
 * The module only looks at bytes: reading the file, asking for the number of CPUs, printing notices and storing dynamic
 * values are the callers' work. */
#ifndef BROKER_CONFIG_H
#define BROKER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "wire/security.h"

/* ---- Rows ---- */

/* CFG_LISTENERS and so on: the name in capitals, dots as underscores; in the order of the names' bytes. */
enum config_key {
#define BROKER(id, ...) CFG_##id,
#include "broker/config_broker.inc"
#undef BROKER
    CFG_COUNT
};

/* The same for topic keys: TCFG_RETENTION_MS. */
enum topic_key {
#define TOPIC(id, ...) TCFG_##id,
#include "broker/config_topic.inc"
#undef TOPIC
    TCFG_COUNT
};

/* Kafka's numbers, as DescribeConfigs sends them; 0 is "unknown". */
enum config_type {
    CONFIG_UNKNOWN,
    CONFIG_BOOLEAN,
    CONFIG_STRING,
    CONFIG_INT,
    CONFIG_SHORT,
    CONFIG_LONG,
    CONFIG_DOUBLE,
    CONFIG_LIST,
    CONFIG_CLASS,
    CONFIG_PASSWORD
};

/* Kafka's numbers, as DescribeConfigs sends them. */
enum config_source {
    CONFIG_FROM_TOPIC = 1,
    CONFIG_FROM_DYNAMIC_BROKER = 2,
    CONFIG_FROM_DYNAMIC_CLUSTER = 3,
    CONFIG_FROM_STATIC = 4,
    CONFIG_FROM_DEFAULT = 5,
    CONFIG_FROM_DYNAMIC_LOGGER = 6
};

/* ---- Maps of overrides ---- */

/* Key and text, ordered by key.  Thread: as its owner. */
struct config_map;

struct config_pair {
    char *name;
    char *value;
    int line; /* in the file it came from; 0: from elsewhere */
};

struct config_map *config_map_new(void);
struct config_map *config_map_copy(const struct config_map *m);
/* NULL is allowed. */
void config_map_free(struct config_map *m);
/* Copies both; replaces an older value. */
void config_map_set(struct config_map *m, struct str name, struct str value);
/* NULL when it is not there; lent until the next change. */
const char *config_map_get(const struct config_map *m, const char *name);
/* False when it was not there. */
bool config_map_remove(struct config_map *m, const char *name);
size_t config_map_count(const struct config_map *m);
/* In order of the keys; `index` below the count. */
const struct config_pair *config_map_at(const struct config_map *m, size_t index);

/* ---- Making a snapshot ---- */

enum { CONFIG_FILE_BYTES_MAX = 1 << 20 };

/* Reads `text` in the syntax of Java's .properties (comments, continued lines, escapes; the last of equal keys wins)
 * into `m`, with line numbers.  Bytes above 127 are kept as UTF-8, where Java reads Latin-1. ERR_INVALID, ERR_TOO_BIG:
 * `f` names `file_name` and the line; `m` holds what came before. */
MUST_USE enum err config_parse_properties(struct config_map *m, struct str text, const char *file_name,
                                          struct fault *f);

/* What the broker was started with.  Everything is copied. */
struct config_input {
    const char *file_name;        /* for messages; NULL: no file */
    struct str text;              /* the file's bytes */
    const char *const *overrides; /* "key=value", as given to --override; later ones win, all win over the file */
    size_t override_count;
    int cpu_count; /* default of num.io.threads; 0: Kafka's 8 */
};

struct config;

/* Parses and checks everything; the only reference is the caller's.  No file and no overrides is a valid input.
 * On a bad value, key or combination `f` has key, value, reason and where it stands.  ERR_UNSUPPORTED: Kafka has it,
 * this build does not, and to go on without it would be unsafe. */
MUST_USE enum err config_load(struct config **out, const struct config_input *in, struct fault *f);

/* A new snapshot: `base`'s file and overrides under these dynamic values, either of which may be NULL for none.
 * `cluster` is /config/brokers/<default>, `broker` is /config/brokers/ID.  Keys that may not be dynamic and values that
 * do not parse are left out with a notice, as in Kafka.  Fails when what remains does not go together: keep `base`
 * then. */
MUST_USE enum err config_with_dynamic(struct config **out, const struct config *base, const struct config_map *cluster,
                                      const struct config_map *broker, struct fault *f);

struct config *config_ref(const struct config *cfg);
/* The last one frees; NULL is allowed. */
void config_unref(const struct config *cfg);

/* What a person should know although it is no error: a key that is set but has no effect, an unknown key with the
 * nearest known one, a dynamic value that was left out.  Lent, in order of the keys.  Log them at WARN. */
enum config_notice_kind { CONFIG_NOTICE_NO_EFFECT, CONFIG_NOTICE_UNKNOWN, CONFIG_NOTICE_IGNORED };
struct config_notice {
    enum config_notice_kind kind;
    const char *name;
    const char *text; /* a sentence; never has a password in it */
};
size_t config_notice_count(const struct config *cfg);
const struct config_notice *config_notice_at(const struct config *cfg, size_t index);

/* ---- Following changes ---- */

/* The newest snapshot.  Thread: any. */
struct config_live;

/* Keeps the reference. */
struct config_live *config_live_new(struct config *give);
/* Every reader must be gone. */
void config_live_free(struct config_live *live);
/* Keeps the reference; readers see it at their next look. */
void config_live_give(struct config_live *live, struct config *give);
/* A reference of the caller's own. */
struct config *config_live_ref(struct config_live *live);

/* One loop's view.  Thread: its loop. */
struct config_reader {
    struct config_live *live;
    struct config *cfg;
    uint64_t version;
};
void config_reader_init(struct config_reader *r, struct config_live *live);
void config_reader_fini(struct config_reader *r);
/* Lent until the next call on the same reader.  Takes no lock unless the configuration changed. */
const struct config *config_reader_get(struct config_reader *r);

/* ---- Broker values ---- */

/* The type must fit the key (ASSERT): i64 for INT, SHORT, LONG; str for STRING, CLASS, PASSWORD.  All is lent.
 * i64, f64 and bool of a key whose value is null are an ASSERT too: ask config_is_null() where null is a default. */
bool config_is_null(const struct config *cfg, enum config_key key);
int64_t config_i64(const struct config *cfg, enum config_key key);
bool config_bool(const struct config *cfg, enum config_key key);
double config_f64(const struct config *cfg, enum config_key key);
/* NULL for null. */
const char *config_str(const struct config *cfg, enum config_key key);

struct config_list {
    const char *const *items;
    size_t count;
};
struct config_list config_list(const struct config *cfg, enum config_key key);

/* Which layer the value comes from. */
enum config_source config_source_of(const struct config *cfg, enum config_key key);

/* What to give sockets as their receive buffer, in bytes, by one of the keys that have it; -1: nothing, as also where
 * the key is not set.  Kafka's defaults of 64 and 100 KB would end the kernel's own tuning, and with it large batches
 * arrive in small pieces, each with an acknowledgement of its own: measured, a third more CPU a GB at 1 MB batches. */
int config_receive_buffer(const struct config *cfg, enum config_key key);

/* zookeeper.connect is not set: there is no other broker, and the store is the broker's own. */
bool config_is_alone(const struct config *cfg);

/* broker.id or node.id; where neither is set `stored`, the id in meta.properties (-1: none there).  Where that has none
 * either 0 when the broker is alone, else -1: a number is to be asked for. */
int32_t config_broker_id(const struct config *cfg, int32_t stored);

/* log.dirs, else log.dir; never empty. */
struct config_list config_log_dirs(const struct config *cfg);

struct listener {
    const char *name; /* in capitals */
    enum security_protocol protocol;
    const char *host; /* without brackets.  NULL: to listen, every interface; to advertise, this machine's name */
    uint16_t port;    /* 0: to listen, any free one; to advertise, the one that was bound */
};

struct listener_list {
    const struct listener *items;
    size_t count;
};
struct listener_list config_listeners(const struct config *cfg);
/* advertised.listeners, else the same as config_listeners(). */
struct listener_list config_advertised(const struct config *cfg);
/* The advertised listener that other brokers use. */
const struct listener *config_inter_broker(const struct config *cfg);
/* By name, in any case; NULL when there is none. */
const struct listener *listener_find(struct listener_list list, const char *name);

/* max.connections.per.ip.overrides; host is an address or a host name. */
struct ip_limit {
    const char *host;
    int32_t connections_max;
};
struct ip_limit_list {
    const struct ip_limit *items;
    size_t count;
};
struct ip_limit_list config_ip_limits(const struct config *cfg);

/* ---- Topic values ---- */

/* Kafka's numbers in a record batch's attributes. */
enum timestamp_type { TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME };

/* Kafka's codec numbers, and -1 for the one the producer chose. */
enum topic_compression {
    TOPIC_COMPRESSION_PRODUCER = -1,
    TOPIC_COMPRESSION_NONE,
    TOPIC_COMPRESSION_GZIP,
    TOPIC_COMPRESSION_SNAPPY,
    TOPIC_COMPRESSION_LZ4,
    TOPIC_COMPRESSION_ZSTD
};

/* Everything that a partition acts on, settled; a plain value, to be copied at will. */
struct topic_config {
    int32_t segment_bytes;
    int64_t segment_ms;
    int64_t segment_jitter_ms;
    int32_t segment_index_bytes;
    int32_t index_interval_bytes;
    int64_t retention_ms;    /* -1: for ever */
    int64_t retention_bytes; /* -1: no limit */
    bool cleanup_delete;
    bool cleanup_compact;
    int32_t max_message_bytes;
    int32_t min_insync_replicas;
    enum timestamp_type message_timestamp_type;
    int64_t message_timestamp_before_max_ms; /* the deprecated difference is already worked in */
    int64_t message_timestamp_after_max_ms;
    enum topic_compression compression_type;
    int32_t compression_gzip_level;
    int32_t compression_lz4_level;
    int32_t compression_zstd_level;
    int64_t flush_messages;
    bool flush_group; /* flush.mode */
    int64_t flush_ms;
    int64_t file_delete_delay_ms;
    int64_t delete_retention_ms;
    double min_cleanable_dirty_ratio;
    int64_t min_compaction_lag_ms;
    int64_t max_compaction_lag_ms;
    bool preallocate;
    bool unclean_leader_election_enable;
};

/* The topic's values over the broker's.  `overrides` is /config/topics/T, NULL for none.  Always fills `out`: a key
 * that is unknown or does not parse is passed over, and `f` (may be NULL) tells of the first one. */
void topic_config_build(struct topic_config *out, const struct config *cfg, const struct config_map *overrides,
                        struct fault *f);

/* What Kafka demands of a topic's overrides before it stores them, in its words: known names, values in bounds, values
 * that go together.  config_alter_topic() calls it; what comes from a peer goes there, as it bounds sizes too. */
MUST_USE enum err topic_config_check(const struct config *cfg, const struct config_map *overrides, struct fault *f);
/* One stored value by itself, of a topic or of a broker.  A name that is no key's passes: whoever reads it passes it
 * over.  ERR_INVALID: `f` says it as Kafka does. */
MUST_USE enum err config_topic_check_value(const char *name, struct str value, struct fault *f);
MUST_USE enum err config_broker_check_value(const char *name, struct str value, struct fault *f);

/* ---- DescribeConfigs ---- */

struct config_synonym {
    const char *name;
    const char *value; /* NULL: sensitive */
    enum config_source source;
};

struct config_entry {
    const char *name;
    const char *value; /* NULL: null, or sensitive */
    enum config_source source;
    enum config_type type;
    bool read_only;
    bool sensitive;
    const char *doc; /* NULL for a key that has no row */
    const struct config_synonym *synonyms;
    size_t synonym_count; /* by precedence */
};

struct config_entries {
    const struct config_entry *items;
    size_t count;
};

/* All entries, in order of the names (topic overrides that have no row come last), made in `a`.  They also lend from
 * `cfg` and `overrides`. */
struct config_entries config_describe_broker(const struct config *cfg, struct arena *a);
/* The cluster-wide dynamic values (resource type broker, empty name). */
struct config_entries config_describe_cluster(const struct config *cfg, struct arena *a);
struct config_entries config_describe_topic(const struct config *cfg, const struct config_map *overrides,
                                            struct arena *a);

/* ---- AlterConfigs, IncrementalAlterConfigs ---- */

/* Kafka's numbers. */
enum config_op { CONFIG_SET, CONFIG_DELETE, CONFIG_APPEND, CONFIG_SUBTRACT };

struct config_change {
    struct str name;
    int op;           /* an enum config_op from a peer: any number may come */
    struct str value; /* may be null for CONFIG_DELETE only */
};

/* How to answer a refusal: INVALID_REQUEST or INVALID_CONFIG. */
enum config_verdict { CONFIG_ACCEPTED, CONFIG_BAD_REQUEST, CONFIG_BAD_VALUE };

/* `old` (NULL for empty) with `changes` applied, checked as a whole; the caller owns *out, which is set only when
 * accepted. For the older AlterConfigs give no `old` and CONFIG_SET only. */
MUST_USE enum config_verdict config_alter_topic(struct config_map **out, const struct config *cfg,
                                                const struct config_map *old, const struct config_change *changes,
                                                size_t count, struct fault *f);

/* The same for broker values: `scope` is CONFIG_FROM_DYNAMIC_BROKER or CONFIG_FROM_DYNAMIC_CLUSTER, `old` what is
 * stored there. */
MUST_USE enum config_verdict config_alter_broker(struct config_map **out, const struct config *cfg,
                                                 enum config_source scope, const struct config_map *old,
                                                 const struct config_change *changes, size_t count, struct fault *f);

/* ---- Documentation ---- */

/* Writes docs/configuration.md.  False: `out` has an error. */
bool config_write_markdown(FILE *out);

#endif
