/* config.c: snapshots of the configuration: layers settled into values, getters, and the newest one for all loops.
 *
 * A snapshot keeps the texts of its three layers (DescribeConfigs shows where a value comes from, and a dynamic change
 * builds the next snapshot from them) and, per row, the value that wins.  Its memory is one arena, freed in one stroke.
 *
 * Defaults that differ from Kafka's:
 * - log.dir is /tmp/barnabas-logs, so that a stray directory of a Kafka is never opened by accident.
 * - num.io.threads is the number of CPUs: our loops are not a pool behind network threads. */
#include "broker/config.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "broker/config_internal.h"

/* ---- Faults and notices ---- */

enum err config_fault(const struct config *cfg, struct fault *f, enum err code, const char *key, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    bool dynamic =
        (cfg->cluster && config_map_get(cfg->cluster, key)) || (cfg->broker && config_map_get(cfg->broker, key));
    for (size_t i = 0; !dynamic && i < config_map_count(cfg->fixed); i++) {
        const struct config_pair *p = config_map_at(cfg->fixed, i);
        if (strcmp(p->name, key) != 0) continue;
        if (!p->line) return fault_set(f, code, "--override %s: %s", key, text);
        return fault_set(f, code, "%s:%d: %s", cfg->file_name, p->line, text);
    }
    return fault_set(f, code, "%s", text);
}

static void notice(struct config *cfg, enum config_notice_kind kind, const char *name, const char *text)
{
    if (cfg->notice_count == cfg->notice_cap) {
        size_t cap = cfg->notice_cap ? cfg->notice_cap * 2 : 16;
        struct config_notice *more = arena_array(&cfg->arena, struct config_notice, cap);
        if (cfg->notice_count) memcpy(more, cfg->notices, cfg->notice_count * sizeof *more);
        cfg->notices = more;
        cfg->notice_cap = cap;
    }
    cfg->notices[cfg->notice_count++] = (struct config_notice){kind, arena_str(&cfg->arena, str_of(name)).data, text};
}

size_t config_notice_count(const struct config *cfg)
{
    return cfg->notice_count;
}

const struct config_notice *config_notice_at(const struct config *cfg, size_t index)
{
    ASSERT(index < cfg->notice_count);
    return &cfg->notices[index];
}

/* Says of a key that was set if it does nothing, or is not known. */
static void notice_key(struct config *cfg, const char *name)
{
    int key = config_broker_find_prefixed(name);
    if (key < 0) {
        const char *nearest = config_broker_nearest(name);
        const char *text = nearest ? arena_printf(&cfg->arena, "unknown key; did you mean %s?", nearest).data
                                   : "unknown key; it has no effect";
        notice(cfg, CONFIG_NOTICE_UNKNOWN, name, text);
        return;
    }
    const struct config_row *row = &config_broker_rows[key];
    /* No key acts on a single listener yet. */
    if (row->effect == LATER || (row->effect == ACTS && config_is_listener_key(name)))
        notice(cfg, CONFIG_NOTICE_NO_EFFECT, name, "the key is set but has no effect yet");
    else if (row->effect == NEVER)
        notice(cfg, CONFIG_NOTICE_NO_EFFECT, name,
               arena_printf(&cfg->arena, "the key is set but has no effect. %s", row->doc).data);
}

/* ---- Values ---- */

const char *config_default_text(const struct config *cfg, enum config_key key)
{
    switch (key) {
    case CFG_NUM_IO_THREADS:
        if (cfg->cpu_text) return cfg->cpu_text;
        break;
    /* Without an ensemble there is one broker, on which Kafka's 3 and 2 could never be met. */
    case CFG_OFFSETS_TOPIC_REPLICATION_FACTOR:
    case CFG_TRANSACTION_STATE_LOG_REPLICATION_FACTOR:
    case CFG_TRANSACTION_STATE_LOG_MIN_ISR:
        if (cfg->alone) return "1";
        break;
    /* Who starts a broker without a file tries something out: as in the file that Kafka comes with. */
    case CFG_GROUP_INITIAL_REBALANCE_DELAY_MS:
        if (cfg->no_file) return "0";
        break;
    default: break;
    }
    return config_broker_rows[key].default_text;
}

static bool same_as_default(const struct config_row *row, const struct config_value *v)
{
    return strcmp(v->text, row->default_text ? row->default_text : "") == 0;
}

/* Parses one pair of a layer and, if it is a key of its own, puts it over the layers below. */
static enum err layer_set(struct config *cfg, const struct config_pair *p, enum config_source source, struct fault *f)
{
    int key = config_broker_find_prefixed(p->name);
    if (key < 0) return OK;
    const struct config_row *row = &config_broker_rows[key];
    struct fault why = {0};
    struct config_value v;
    enum err e = config_value_parse(&v, row, str_of(p->value), &cfg->arena, &why);
    if (e) return config_fault(cfg, f, e, p->name, "%s", why.text);
    if (row->effect == REFUSED && !same_as_default(row, &v))
        return config_fault(cfg, f, ERR_UNSUPPORTED, p->name, "%s=%.100s is not supported: %s", p->name, v.text,
                            row->doc);
    if (config_is_listener_key(p->name)) return OK;
    cfg->values[key] = v;
    cfg->sources[key] = source;
    return OK;
}

static enum err layer_apply(struct config *cfg, const struct config_map *m, enum config_source source, struct fault *f)
{
    for (size_t i = 0; i < config_map_count(m); i++) {
        enum err e = layer_set(cfg, config_map_at(m, i), source, f);
        if (e) return e;
    }
    return OK;
}

/* broker.id and node.id are one thing under two names. */
static enum err join_ids(struct config *cfg, struct fault *f)
{
    bool broker = cfg->sources[CFG_BROKER_ID] != CONFIG_FROM_DEFAULT;
    bool node = cfg->sources[CFG_NODE_ID] != CONFIG_FROM_DEFAULT;
    if (broker && !node) cfg->values[CFG_NODE_ID] = cfg->values[CFG_BROKER_ID];
    if (node && !broker) cfg->values[CFG_BROKER_ID] = cfg->values[CFG_NODE_ID];
    if (cfg->values[CFG_BROKER_ID].i64 != cfg->values[CFG_NODE_ID].i64)
        return config_fault(cfg, f, ERR_INVALID, "node.id", "You must set `node.id` to the same value as `broker.id`.");
    return OK;
}

enum err config_build(struct config **out, const struct config *like, const struct config_map *fixed,
                      const struct config_map *cluster, const struct config_map *broker, struct fault *f)
{
    struct config *cfg = mem_zalloc(1, sizeof *cfg);
    atomic_init(&cfg->refs, 1);
    arena_init(&cfg->arena, SIZE_MAX);
    cfg->cpu_count = like->cpu_count;
    if (like->cpu_count > 0) cfg->cpu_text = arena_printf(&cfg->arena, "%d", like->cpu_count).data;
    cfg->file_name = like->file_name ? arena_str(&cfg->arena, str_of(like->file_name)).data : "server.properties";
    cfg->no_file = like->no_file;
    const char *ensemble = config_map_get(fixed, "zookeeper.connect");
    cfg->alone = !ensemble || !*ensemble;
    cfg->fixed = config_map_copy(fixed);
    cfg->cluster = config_map_copy(cluster);
    cfg->broker = config_map_copy(broker);
    for (int i = 0; i < CFG_COUNT; i++) {
        struct config_row row = config_broker_rows[i];
        row.default_text = config_default_text(cfg, (enum config_key)i);
        cfg->values[i] = config_value_default(&row, &cfg->arena);
        cfg->sources[i] = CONFIG_FROM_DEFAULT;
    }
    enum err e = layer_apply(cfg, cfg->fixed, CONFIG_FROM_STATIC, f);
    if (!e) e = layer_apply(cfg, cfg->cluster, CONFIG_FROM_DYNAMIC_CLUSTER, f);
    if (!e) e = layer_apply(cfg, cfg->broker, CONFIG_FROM_DYNAMIC_BROKER, f);
    if (!e) e = join_ids(cfg, f);
    if (!e) e = config_listeners_resolve(cfg, f);
    if (!e) e = config_check(cfg, f);
    if (e) {
        config_unref(cfg);
        return e;
    }
    *out = cfg;
    return OK;
}

static enum err overrides_parse(struct config_map *m, const struct config_input *in, struct fault *f)
{
    for (size_t i = 0; i < in->override_count; i++) {
        const char *text = in->overrides[i];
        const char *equals = strchr(text, '=');
        struct str name = config_trim((struct str){text, equals ? (size_t)(equals - text) : 0});
        if (name.size == 0) return fault_set(f, ERR_INVALID, "--override %.200s: expected key=value", text);
        config_map_set(m, name, str_of(equals + 1));
    }
    return OK;
}

/* References to secrets outside the file are resolved by JVM classes; taken literally they would be wrong passwords. */
static enum err refuse_providers(const struct config *cfg, struct fault *f)
{
    const char *value = config_map_get(cfg->fixed, "config.providers");
    if (!value || !*value) return OK;
    return config_fault(cfg, f, ERR_UNSUPPORTED, "config.providers",
                        "config.providers=%.100s is not supported: configuration providers are JVM classes", value);
}

enum err config_load(struct config **out, const struct config_input *in, struct fault *f)
{
    struct config like = {.cpu_count = in->cpu_count, .file_name = in->file_name, .no_file = !in->file_name};
    struct config_map *none = config_map_new(), *fixed = config_map_new();
    like.fixed = fixed;
    enum err e = OK;
    if (in->file_name) e = config_parse_properties(fixed, in->text, in->file_name, f);
    if (!e) e = overrides_parse(fixed, in, f);
    if (!e) e = refuse_providers(&like, f);
    if (!e) e = config_build(out, &like, fixed, none, none, f);
    if (!e)
        for (size_t i = 0; i < config_map_count(fixed); i++) notice_key(*out, config_map_at(fixed, i)->name);
    config_map_free(none);
    config_map_free(fixed);
    return e;
}

/* ---- Dynamic values ---- */

static const char *dynamic_refusal(enum config_dynamic d)
{
    switch (d) {
    case DYNAMIC_OK: return NULL;
    case DYNAMIC_READ_ONLY: return "the stored value is ignored: the key cannot be changed dynamically";
    case DYNAMIC_NEEDS_LISTENER: return "the stored value is ignored: the key needs the prefix of a listener";
    case DYNAMIC_NEEDS_BROKER: return "the stored value is ignored: the key can be set for single brokers only";
    case DYNAMIC_PASSWORD: return "the stored value is ignored: passwords are not read from dynamic configuration yet";
    }
    UNREACHABLE();
}

/* The values of a stored layer that may be used; `reasons` gets a notice's text for each other one. */
static struct config_map *dynamic_filter(const struct config_map *stored, enum config_source scope,
                                         struct config_map *reasons)
{
    struct config_map *good = config_map_new();
    struct arena scratch;
    arena_init(&scratch, SIZE_MAX);
    for (size_t i = 0; stored && i < config_map_count(stored); i++) {
        const struct config_pair *p = config_map_at(stored, i);
        const char *reason = dynamic_refusal(config_dynamic_allowed(p->name, scope));
        int key = config_broker_find_prefixed(p->name);
        struct fault why = {0};
        struct config_value v;
        if (!reason && key >= 0 &&
            config_value_parse(&v, &config_broker_rows[key], str_of(p->value), &scratch, &why) != OK)
            reason = arena_printf(&scratch, "the stored value is ignored: %s", why.text).data;
        if (reason)
            config_map_set(reasons, str_of(p->name), str_of(reason));
        else
            config_map_set(good, str_of(p->name), str_of(p->value));
    }
    arena_fini(&scratch);
    return good;
}

enum err config_with_dynamic(struct config **out, const struct config *base, const struct config_map *cluster,
                             const struct config_map *broker, struct fault *f)
{
    struct config_map *reasons = config_map_new();
    struct config_map *for_all = dynamic_filter(cluster, CONFIG_FROM_DYNAMIC_CLUSTER, reasons);
    struct config_map *for_one = dynamic_filter(broker, CONFIG_FROM_DYNAMIC_BROKER, reasons);
    enum err e = config_build(out, base, base->fixed, for_all, for_one, f);
    if (!e) {
        for (size_t i = 0; i < config_map_count(for_all); i++) notice_key(*out, config_map_at(for_all, i)->name);
        for (size_t i = 0; i < config_map_count(for_one); i++) notice_key(*out, config_map_at(for_one, i)->name);
        for (size_t i = 0; i < config_map_count(reasons); i++) {
            const struct config_pair *p = config_map_at(reasons, i);
            notice(*out, CONFIG_NOTICE_IGNORED, p->name, arena_str(&(*out)->arena, str_of(p->value)).data);
        }
    }
    config_map_free(reasons);
    config_map_free(for_all);
    config_map_free(for_one);
    return e;
}

/* ---- References ---- */

struct config *config_ref(const struct config *cfg)
{
    /* The count is the one field of a snapshot that changes. */
    struct config *shared = (struct config *)(uintptr_t)cfg;
    atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
    return shared;
}

void config_unref(const struct config *cfg)
{
    if (!cfg) return;
    struct config *shared = (struct config *)(uintptr_t)cfg;
    if (atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) != 1) return;
    config_map_free(shared->fixed);
    config_map_free(shared->cluster);
    config_map_free(shared->broker);
    arena_fini(&shared->arena);
    mem_free(shared);
}

struct config_live {
    pthread_mutex_t lock;
    struct config *cfg; /* under the lock */
    _Atomic uint64_t version;
};

struct config_live *config_live_new(struct config *give)
{
    struct config_live *live = mem_zalloc(1, sizeof *live);
    ASSERT(pthread_mutex_init(&live->lock, NULL) == 0);
    live->cfg = give;
    atomic_init(&live->version, 1);
    return live;
}

void config_live_free(struct config_live *live)
{
    if (!live) return;
    config_unref(live->cfg);
    pthread_mutex_destroy(&live->lock);
    mem_free(live);
}

void config_live_give(struct config_live *live, struct config *give)
{
    pthread_mutex_lock(&live->lock);
    struct config *old = live->cfg;
    live->cfg = give;
    atomic_fetch_add_explicit(&live->version, 1, memory_order_release);
    pthread_mutex_unlock(&live->lock);
    config_unref(old);
}

struct config *config_live_ref(struct config_live *live)
{
    pthread_mutex_lock(&live->lock);
    struct config *cfg = config_ref(live->cfg);
    pthread_mutex_unlock(&live->lock);
    return cfg;
}

void config_reader_init(struct config_reader *r, struct config_live *live)
{
    *r = (struct config_reader){.live = live};
}

void config_reader_fini(struct config_reader *r)
{
    config_unref(r->cfg);
    r->cfg = NULL;
}

const struct config *config_reader_get(struct config_reader *r)
{
    /* A version read before the snapshot is at worst older than it, which costs one more look. */
    uint64_t version = atomic_load_explicit(&r->live->version, memory_order_acquire);
    if (UNLIKELY(version != r->version)) {
        config_unref(r->cfg);
        r->cfg = config_live_ref(r->live);
        r->version = version;
    }
    return r->cfg;
}

/* ---- Getters ---- */

static const struct config_value *value_of(const struct config *cfg, enum config_key key, unsigned types)
{
    ASSERT(BIT(config_broker_rows[key].type) & types);
    return &cfg->values[key];
}

bool config_is_null(const struct config *cfg, enum config_key key)
{
    return cfg->values[key].text == NULL;
}

int64_t config_i64(const struct config *cfg, enum config_key key)
{
    const struct config_value *v = value_of(cfg, key, BIT(CONFIG_INT) | BIT(CONFIG_SHORT) | BIT(CONFIG_LONG));
    ASSERT(v->text);
    return v->i64;
}

bool config_bool(const struct config *cfg, enum config_key key)
{
    const struct config_value *v = value_of(cfg, key, BIT(CONFIG_BOOLEAN));
    ASSERT(v->text);
    return v->i64 != 0;
}

double config_f64(const struct config *cfg, enum config_key key)
{
    const struct config_value *v = value_of(cfg, key, BIT(CONFIG_DOUBLE));
    ASSERT(v->text);
    return v->f64;
}

const char *config_str(const struct config *cfg, enum config_key key)
{
    return value_of(cfg, key, BIT(CONFIG_STRING) | BIT(CONFIG_CLASS) | BIT(CONFIG_PASSWORD))->text;
}

struct config_list config_list(const struct config *cfg, enum config_key key)
{
    return value_of(cfg, key, BIT(CONFIG_LIST))->list;
}

enum config_source config_source_of(const struct config *cfg, enum config_key key)
{
    return cfg->sources[key];
}

int config_receive_buffer(const struct config *cfg, enum config_key key)
{
    return cfg->sources[key] == CONFIG_FROM_DEFAULT ? -1 : (int)config_i64(cfg, key);
}

int32_t config_broker_id(const struct config *cfg, int32_t stored)
{
    int64_t id = config_i64(cfg, CFG_BROKER_ID);
    if (id >= 0) return (int32_t)id;
    return cfg->alone ? MAX(stored, 0) : stored;
}

bool config_is_alone(const struct config *cfg)
{
    return cfg->alone;
}

struct config_list config_log_dirs(const struct config *cfg)
{
    return cfg->log_dirs;
}

struct listener_list config_listeners(const struct config *cfg)
{
    return cfg->listeners;
}

struct listener_list config_advertised(const struct config *cfg)
{
    return cfg->advertised;
}

const struct listener *config_inter_broker(const struct config *cfg)
{
    return cfg->inter_broker;
}

const struct listener *listener_find(struct listener_list list, const char *name)
{
    for (size_t i = 0; i < list.count; i++)
        if (strcasecmp(list.items[i].name, name) == 0) return &list.items[i];
    return NULL;
}

struct ip_limit_list config_ip_limits(const struct config *cfg)
{
    return cfg->ip_limits;
}
