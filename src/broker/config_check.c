/* config_check.c: what broker keys must be together, and the ones that are lists in disguise.  Rules and words are
 * Kafka's (KafkaConfig and LogManager), as far as the keys have a meaning here. */
#include "broker/config_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "wire/compress.h"

static enum err resolve_log_dirs(struct config *cfg, struct fault *f)
{
    enum config_key key = config_is_null(cfg, CFG_LOG_DIRS) ? CFG_LOG_DIR : CFG_LOG_DIRS;
    const char *name = config_broker_rows[key].name;
    cfg->log_dirs = config_split(str_of(config_str(cfg, key)), &cfg->arena);
    if (cfg->log_dirs.count == 0)
        return config_fault(cfg, f, ERR_INVALID, name,
                            "At least one log directory must be defined via log.dirs or log.dir.");
    for (size_t i = 0; i < cfg->log_dirs.count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(cfg->log_dirs.items[i], cfg->log_dirs.items[j]) == 0)
                return config_fault(cfg, f, ERR_INVALID, name, "Duplicate log directory in %s: %s", name,
                                    cfg->log_dirs.items[i]);
    return OK;
}

static enum err resolve_ip_limits(struct config *cfg, struct fault *f)
{
    static const char key[] = "max.connections.per.ip.overrides";
    static const struct config_row count_row = {
        .name = key, .type = CONFIG_INT, .rule = {.kind = RULE_AT_LEAST, .min = 0}};
    struct config_list pairs = config_split(str_of(config_str(cfg, CFG_MAX_CONNECTIONS_PER_IP_OVERRIDES)), &cfg->arena);
    struct ip_limit *items = arena_array(&cfg->arena, struct ip_limit, pairs.count);
    for (size_t i = 0; i < pairs.count; i++) {
        const char *colon = strrchr(pairs.items[i], ':'); /* the last: an IPv6 address has more */
        struct str host = config_trim((struct str){pairs.items[i], colon ? (size_t)(colon - pairs.items[i]) : 0});
        if (host.size == 0)
            return config_fault(cfg, f, ERR_INVALID, key,
                                "Invalid value %.100s for configuration %s: expected host:count", pairs.items[i], key);
        struct config_value count;
        struct fault why = {0};
        enum err e = config_value_parse(&count, &count_row, str_of(colon + 1), &cfg->arena, &why);
        if (e) return config_fault(cfg, f, e, key, "%s", why.text);
        const char *text = arena_str(&cfg->arena, host).data;
        if (strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:") != host.size)
            return config_fault(cfg, f, ERR_INVALID, key, "%s contains invalid addresses : %.100s", key, text);
        items[i] = (struct ip_limit){text, (int32_t)count.i64};
    }
    cfg->ip_limits = (struct ip_limit_list){items, pairs.count};
    return OK;
}

static enum err check_broker_id(const struct config *cfg, struct fault *f)
{
    int64_t id = config_i64(cfg, CFG_BROKER_ID), most = config_i64(cfg, CFG_RESERVED_BROKER_MAX_ID);
    const char *key = cfg->sources[CFG_BROKER_ID] != CONFIG_FROM_DEFAULT ? "broker.id" : "node.id";
    if (!config_bool(cfg, CFG_BROKER_ID_GENERATION_ENABLE)) {
        if (id >= 0) return OK;
        return config_fault(cfg, f, ERR_INVALID, key,
                            "broker.id must be greater than or equal to 0 when broker.id.generation.enable is false");
    }
    if (id >= -1 && id <= most) return OK;
    return config_fault(
        cfg, f, ERR_INVALID, key,
        "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id (%lld)",
        (long long)most);
}

static enum err check_log_times(const struct config *cfg, struct fault *f)
{
    if (!config_is_null(cfg, CFG_LOG_ROLL_MS) && config_i64(cfg, CFG_LOG_ROLL_MS) < 1)
        return config_fault(cfg, f, ERR_INVALID, "log.roll.ms", "log.roll.ms must be greater than or equal to 1");
    if (!config_is_null(cfg, CFG_LOG_ROLL_JITTER_MS) && config_i64(cfg, CFG_LOG_ROLL_JITTER_MS) < 0)
        return config_fault(cfg, f, ERR_INVALID, "log.roll.jitter.ms",
                            "log.roll.jitter.ms must be greater than or equal to 0");
    enum config_key keys[CONFIG_SERVER_KEYS_MAX];
    int count = config_synonyms(CFG_LOG_RETENTION_MS, keys);
    for (int i = 0; i < count; i++) {
        if (config_is_null(cfg, keys[i])) continue;
        if (config_i64(cfg, keys[i]) != 0) return OK; /* every negative value means unlimited */
        return config_fault(cfg, f, ERR_INVALID, config_broker_rows[keys[i]].name,
                            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1 (set by %s)",
                            config_broker_rows[keys[i]].name);
    }
    return OK;
}

static enum err check_log(const struct config *cfg, struct fault *f)
{
    int64_t low = config_i64(cfg, CFG_LOG_CLEANER_MIN_COMPACTION_LAG_MS);
    int64_t high = config_i64(cfg, CFG_LOG_CLEANER_MAX_COMPACTION_LAG_MS);
    if (low > high)
        return config_fault(cfg, f, ERR_INVALID, "log.cleaner.min.compaction.lag.ms",
                            "conflict topic config setting min.compaction.lag.ms (%lld) > max.compaction.lag.ms (%lld)",
                            (long long)low, (long long)high);
    int64_t threads = config_i64(cfg, CFG_LOG_CLEANER_THREADS);
    if (threads < 1)
        return config_fault(cfg, f, ERR_INVALID, "log.cleaner.threads", "log.cleaner.threads must be at least 1");
    if (config_i64(cfg, CFG_LOG_CLEANER_DEDUPE_BUFFER_SIZE) / threads <= 1024 * 1024)
        return config_fault(cfg, f, ERR_INVALID, "log.cleaner.dedupe.buffer.size",
                            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.");
    return OK;
}

static enum err check_replication(const struct config *cfg, struct fault *f)
{
    static const char key[] = "replica.fetch.wait.max.ms";
    int64_t wait_ms = config_i64(cfg, CFG_REPLICA_FETCH_WAIT_MAX_MS);
    if (wait_ms > config_i64(cfg, CFG_REPLICA_SOCKET_TIMEOUT_MS))
        return config_fault(cfg, f, ERR_INVALID, key,
                            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent "
                            "unnecessary socket timeouts");
    if (wait_ms > config_i64(cfg, CFG_REPLICA_LAG_TIME_MAX_MS))
        return config_fault(
            cfg, f, ERR_INVALID, key,
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to "
            "prevent frequent changes in ISR");
    return OK;
}

static enum err check_sockets(const struct config *cfg, struct fault *f)
{
    int64_t queued = config_i64(cfg, CFG_QUEUED_MAX_REQUEST_BYTES);
    if (queued > 0 && queued < config_i64(cfg, CFG_SOCKET_REQUEST_MAX_BYTES))
        return config_fault(cfg, f, ERR_INVALID, "queued.max.request.bytes",
                            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes");
    if (config_i64(cfg, CFG_MAX_CONNECTIONS_PER_IP) == 0 && cfg->ip_limits.count == 0)
        return config_fault(
            cfg, f, ERR_INVALID, "max.connections.per.ip",
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property "
            "is set.");
    int64_t idle_ms = config_i64(cfg, CFG_CONNECTIONS_MAX_IDLE_MS);
    if (idle_ms >= 0 && config_i64(cfg, CFG_CONNECTION_FAILED_AUTHENTICATION_DELAY_MS) >= idle_ms)
        return config_fault(
            cfg, f, ERR_INVALID, "connections.max.idle.ms",
            "connection.failed.authentication.delay.ms should always be less than connections.max.idle.ms");
    return OK;
}

static enum err check_offsets(const struct config *cfg, struct fault *f)
{
    int64_t acks = config_i64(cfg, CFG_OFFSETS_COMMIT_REQUIRED_ACKS),
            codec = config_i64(cfg, CFG_OFFSETS_TOPIC_COMPRESSION_CODEC);
    if (acks < -1 || acks > 1) /* Kafka would start, and refuse each commit */
        return config_fault(cfg, f, ERR_INVALID, "offsets.commit.required.acks",
                            "offsets.commit.required.acks must be -1 (all in-sync replicas), 1 or 0");
    if (codec < CODEC_NONE || codec >= CODEC_COUNT)
        return config_fault(
            cfg, f, ERR_INVALID, "offsets.topic.compression.codec",
            "offsets.topic.compression.codec must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)");
    return OK;
}

static enum err check_control_plane(const struct config *cfg, struct fault *f)
{
    static const char key[] = "control.plane.listener.name";
    const char *name = config_str(cfg, CFG_CONTROL_PLANE_LISTENER_NAME);
    if (!name) return OK;
    const struct listener *l = listener_find(cfg->advertised, name);
    if (!l)
        return config_fault(cfg, f, ERR_INVALID, key,
                            "%s must be a listener name defined in advertised.listeners: %.100s is not there", key,
                            name);
    if (l == cfg->inter_broker)
        return config_fault(cfg, f, ERR_INVALID, key,
                            "%s, when defined, should have a different value from the inter broker listener name", key);
    return OK;
}

/* ZooKeeper's own client tells the form by the name where the type is not set. */
static enum err check_pem(const struct config *cfg, enum config_key location_key, enum config_key type_key,
                          struct fault *f)
{
    const char *location = config_str(cfg, location_key), *type = config_str(cfg, type_key);
    if (!location || !*location) return OK;
    size_t size = strlen(location);
    bool is_pem =
        type && *type ? strcasecmp(type, "PEM") == 0 : size > 4 && strcasecmp(location + size - 4, ".pem") == 0;
    if (is_pem) return OK;
    return config_fault(
        cfg, f, ERR_UNSUPPORTED, config_broker_rows[location_key].name,
        "%s=%.200s: only PEM files can be read. Convert it, and set %s=PEM unless its name ends with .pem",
        config_broker_rows[location_key].name, location, config_broker_rows[type_key].name);
}

static enum err check_zookeeper(const struct config *cfg, struct fault *f)
{
    static const char acl[] = "zookeeper.set.acl";
    bool user = !config_is_null(cfg, CFG_ZOOKEEPER_DIGEST_USERNAME);
    bool tls = config_bool(cfg, CFG_ZOOKEEPER_SSL_CLIENT_ENABLE);
    bool certificate = tls && !config_is_null(cfg, CFG_ZOOKEEPER_SSL_KEYSTORE_LOCATION);
    if (user != !config_is_null(cfg, CFG_ZOOKEEPER_DIGEST_PASSWORD))
        return config_fault(cfg, f, ERR_INVALID, "zookeeper.digest.username",
                            "zookeeper.digest.username and zookeeper.digest.password must be set together");
    if (config_bool(cfg, CFG_ZOOKEEPER_SET_ACL) && !user && !certificate)
        return config_fault(
            cfg, f, ERR_INVALID, acl,
            "%s is true, but ZooKeeper would not know who made the nodes: set zookeeper.digest.username, "
            "or a certificate in zookeeper.ssl.keystore.location",
            acl);
    if (!tls) return OK;
    enum err e = check_pem(cfg, CFG_ZOOKEEPER_SSL_KEYSTORE_LOCATION, CFG_ZOOKEEPER_SSL_KEYSTORE_TYPE, f);
    if (e) return e;
    return check_pem(cfg, CFG_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION, CFG_ZOOKEEPER_SSL_TRUSTSTORE_TYPE, f);
}

enum err config_check(struct config *cfg, struct fault *f)
{
    enum err e = resolve_log_dirs(cfg, f);
    if (!e) e = resolve_ip_limits(cfg, f);
    if (!e) e = check_broker_id(cfg, f);
    if (!e) e = check_log_times(cfg, f);
    if (!e) e = check_log(cfg, f);
    if (!e) e = check_replication(cfg, f);
    if (!e) e = check_sockets(cfg, f);
    if (!e) e = check_control_plane(cfg, f);
    if (!e) e = check_offsets(cfg, f);
    if (!e) e = check_zookeeper(cfg, f);
    return e;
}

/* ---- Stored values, one by one ---- */

static enum err check_value(const struct config_row *row, struct str value, struct fault *f)
{
    struct arena a;
    struct config_value v;
    arena_init(&a, SIZE_MAX);
    enum err e = config_value_parse(&v, row, value, &a, f);
    arena_fini(&a);
    return e;
}

enum err config_topic_check_value(const char *name, struct str value, struct fault *f)
{
    int key = config_topic_find(name);
    return key < 0 ? OK : check_value(&config_topic_rows[key], value, f);
}

enum err config_broker_check_value(const char *name, struct str value, struct fault *f)
{
    int key = config_broker_find_prefixed(name);
    return key < 0 ? OK : check_value(&config_broker_rows[key], value, f);
}
