/* config_alter.c: changes that clients ask for, and which broker keys may be dynamic at all.
 *
 * A change is judged on a copy: the stored overrides with all operations applied must be valid as a whole, alone and
 * together with the layers around them.  What is refused, and in which words, follows Kafka's DynamicBrokerConfig and
 * LogConfig. */
#include "broker/config_internal.h"

#include <string.h>

#include "base/mem.h"

/* ---- Which keys ---- */

/* Keys and certificates, which are dynamic per listener only. */
static bool is_listener_secret(enum config_key key)
{
    static const enum config_key keys[] = {
        CFG_SSL_KEYSTORE_TYPE,       CFG_SSL_KEYSTORE_LOCATION,
        CFG_SSL_KEYSTORE_PASSWORD,   CFG_SSL_KEY_PASSWORD,
        CFG_SSL_TRUSTSTORE_TYPE,     CFG_SSL_TRUSTSTORE_LOCATION,
        CFG_SSL_TRUSTSTORE_PASSWORD, CFG_SSL_KEYSTORE_CERTIFICATE_CHAIN,
        CFG_SSL_KEYSTORE_KEY,        CFG_SSL_TRUSTSTORE_CERTIFICATES,
    };
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        if (keys[i] == key) return true;
    return false;
}

enum config_dynamic config_dynamic_allowed(const char *name, enum config_source scope)
{
    bool for_all = scope == CONFIG_FROM_DYNAMIC_CLUSTER;
    if (config_is_listener_key(name)) {
        int base = config_broker_find_prefixed(name);
        bool cluster =
            base == CFG_MAX_CONNECTIONS || base == CFG_MAX_CONNECTION_CREATION_RATE || base == CFG_NUM_NETWORK_THREADS;
        return for_all && !cluster ? DYNAMIC_NEEDS_BROKER : DYNAMIC_OK;
    }
    int key = config_broker_find(name);
    if (key < 0) return DYNAMIC_OK; /* Kafka lets keys of plugins through */
    const struct config_row *row = &config_broker_rows[key];
    if (row->update == READ_ONLY || row->update == HIDDEN) return DYNAMIC_READ_ONLY;
    if (is_listener_secret((enum config_key)key)) return DYNAMIC_NEEDS_LISTENER;
    return for_all && row->update == PER_BROKER ? DYNAMIC_NEEDS_BROKER : DYNAMIC_OK;
}

/* ---- The operations ---- */

static enum config_verdict check_shape(const struct config_change *changes, size_t count, struct fault *f)
{
    for (size_t i = 0; i < count; i++) {
        const struct config_change *c = &changes[i];
        enum err e = OK;
        if (c->op < CONFIG_SET || c->op > CONFIG_SUBTRACT)
            e = fault_set(f, ERR_INVALID, "Unknown operations type %d", c->op);
        else if (str_is_null(c->name) || c->name.size == 0 || memchr(c->name.data, 0, c->name.size))
            e = fault_set(f, ERR_INVALID, "A config name is missing or malformed");
        else if (c->op != CONFIG_DELETE && str_is_null(c->value))
            e = fault_set(f, ERR_INVALID, "Null value not supported for : %.*s", STR_ARG(c->name));
        else if (c->value.size > 0 && memchr(c->value.data, 0, c->value.size))
            e = fault_set(f, ERR_INVALID, "The value of %.*s has a zero byte", STR_ARG(c->name));
        if (e) return CONFIG_BAD_REQUEST;
    }
    /* The names go through a map, so that a long list of them costs no quadratic comparison. */
    struct config_map *seen = config_map_new();
    for (size_t i = 0; i < count; i++) config_map_set(seen, changes[i].name, STR_EMPTY);
    bool twice = config_map_count(seen) < count;
    config_map_free(seen);
    if (twice) (void)fault_set(f, ERR_INVALID, "Error due to duplicate config keys");
    return twice ? CONFIG_BAD_REQUEST : CONFIG_ACCEPTED;
}

static bool list_has(struct config_list list, const char *item)
{
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(list.items[i], item) == 0) return true;
    return false;
}

/* The old list with the new elements behind it, or without them. */
static void change_list(struct config_map *m, const struct config_row *row, const struct config_change *c)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    const char *old = config_map_get(m, row->name);
    struct config_list had = config_split(str_of(old ? old : row->default_text), &a);
    struct config_list given = config_split(c->value, &a);
    struct str text = STR_EMPTY;
    for (size_t i = 0; i < had.count; i++)
        if (c->op == CONFIG_APPEND || !list_has(given, had.items[i]))
            text = arena_printf(&a, "%s%s%s", text.data, text.size ? "," : "", had.items[i]);
    for (size_t i = 0; c->op == CONFIG_APPEND && i < given.count; i++)
        if (!list_has(had, given.items[i]))
            text = arena_printf(&a, "%s%s%s", text.data, text.size ? "," : "", given.items[i]);
    config_map_set(m, str_of(row->name), text);
    arena_fini(&a);
}

static enum config_verdict apply(struct config_map *m, const struct config_change *changes, size_t count, bool topic,
                                 struct fault *f)
{
    for (size_t i = 0; i < count; i++) {
        const struct config_change *c = &changes[i];
        if (c->op == CONFIG_SET) {
            config_map_set(m, c->name, c->value);
            continue;
        }
        char *name = mem_strndup(c->name.data, c->name.size);
        int key = topic ? config_topic_find(name) : config_broker_find_prefixed(name);
        enum err e = OK;
        if (c->op == CONFIG_DELETE) {
            (void)config_map_remove(m, name);
        } else {
            const struct config_row *row = key < 0 ? NULL : topic ? &config_topic_rows[key] : &config_broker_rows[key];
            if (!row)
                e = fault_set(f, ERR_INVALID, topic ? "Unknown topic config name: %s" : "Unknown config name: %s",
                              name);
            else if (row->type != CONFIG_LIST)
                e = fault_set(f, ERR_INVALID, "Config value %s is not allowed for config key: %s",
                              c->op == CONFIG_APPEND ? "append" : "subtract", name);
            else
                change_list(m, row, c);
        }
        mem_free(name);
        if (e) return CONFIG_BAD_VALUE;
    }
    return CONFIG_ACCEPTED;
}

/* The old overrides with the changes in them, not yet checked. */
static enum config_verdict changed(struct config_map **out, const struct config_map *old,
                                   const struct config_change *changes, size_t count, bool topic, struct fault *f)
{
    enum config_verdict v = check_shape(changes, count, f);
    if (v != CONFIG_ACCEPTED) return v;
    struct config_map *m = old ? config_map_copy(old) : config_map_new();
    v = apply(m, changes, count, topic, f);
    if (v == CONFIG_ACCEPTED)
        *out = m;
    else
        config_map_free(m);
    return v;
}

enum config_verdict config_alter_topic(struct config_map **out, const struct config *cfg, const struct config_map *old,
                                       const struct config_change *changes, size_t count, struct fault *f)
{
    struct config_map *m;
    enum config_verdict v = changed(&m, old, changes, count, true, f);
    if (v != CONFIG_ACCEPTED) return v;
    if (topic_config_check(cfg, m, f) != OK) {
        config_map_free(m);
        return CONFIG_BAD_VALUE;
    }
    *out = m;
    return CONFIG_ACCEPTED;
}

/* ---- Broker values ---- */

/* Refuses the keys that are not allowed for this reason, all of them in one sentence. */
static enum err refuse_all(const struct config_map *m, enum config_source scope, enum config_dynamic reason,
                           const char *sentence, struct fault *f)
{
    char names[512];
    size_t used = 0;
    for (size_t i = 0; i < config_map_count(m); i++) {
        const char *name = config_map_at(m, i)->name;
        if (config_dynamic_allowed(name, scope) != reason) continue;
        int n = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
        used = MIN(used + (size_t)MAX(n, 0), sizeof names - 1);
    }
    return used ? fault_set(f, ERR_INVALID, "%s: Set(%s)", sentence, names) : OK;
}

/* Thread counts move by at most a factor of two at a time. */
static enum err check_threads(const struct config *cfg, const struct config *next, struct fault *f)
{
    static const enum config_key keys[] = {CFG_NUM_IO_THREADS, CFG_NUM_REPLICA_FETCHERS,
                                           CFG_NUM_RECOVERY_THREADS_PER_DATA_DIR, CFG_BACKGROUND_THREADS,
                                           CFG_LOG_CLEANER_THREADS};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        long long was = (long long)config_i64(cfg, keys[i]), now = (long long)config_i64(next, keys[i]);
        if (now == was || (now >= 1 && now >= was / 2 && now <= was * 2)) continue;
        const char *limit = now < 1         ? "value should be at least 1"
                            : now < was / 2 ? "value should be at least half the current value"
                                            : "value should not be greater than double the current value";
        return fault_set(f, ERR_INVALID, "Dynamic thread count update validation failed for %s=%lld, %s %lld",
                         config_broker_rows[keys[i]].name, now, limit, was);
    }
    return OK;
}

/* Sockets are opened once, at the start. */
static enum err check_listeners_stay(const struct config *cfg, const struct config *next, struct fault *f)
{
    static const enum config_key keys[] = {CFG_LISTENERS, CFG_ADVERTISED_LISTENERS, CFG_LISTENER_SECURITY_PROTOCOL_MAP};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        struct str was = str_of(config_str(cfg, keys[i])), now = str_of(config_str(next, keys[i]));
        if (!str_equal(was, now))
            return fault_set(
                f, ERR_UNSUPPORTED,
                "%s cannot be changed while the broker runs yet; change it in the broker's file and restart",
                config_broker_rows[keys[i]].name);
    }
    return OK;
}

static enum err check_names(const struct config_map *m, enum config_source scope, struct fault *f)
{
    enum err e = refuse_all(m, scope, DYNAMIC_READ_ONLY, "Cannot update these configs dynamically", f);
    if (!e)
        e = refuse_all(m, scope, DYNAMIC_NEEDS_LISTENER,
                       "These security configs can be dynamically updated only per-listener using the listener prefix",
                       f);
    if (!e)
        e = refuse_all(m, scope, DYNAMIC_NEEDS_BROKER,
                       "Cannot update these configs at default cluster level, broker id must be specified", f);
    return e;
}

enum config_verdict config_alter_broker(struct config_map **out, const struct config *cfg, enum config_source scope,
                                        const struct config_map *old, const struct config_change *changes, size_t count,
                                        struct fault *f)
{
    ASSERT(scope == CONFIG_FROM_DYNAMIC_BROKER || scope == CONFIG_FROM_DYNAMIC_CLUSTER);
    struct config_map *m;
    enum config_verdict v = changed(&m, old, changes, count, false, f);
    if (v != CONFIG_ACCEPTED) return v;
    struct config *next = NULL;
    enum err e = check_names(m, scope, f);
    bool for_all = scope == CONFIG_FROM_DYNAMIC_CLUSTER;
    if (!e) e = config_build(&next, cfg, cfg->fixed, for_all ? m : cfg->cluster, for_all ? cfg->broker : m, f);
    if (!e) e = check_threads(cfg, next, f);
    if (!e) e = check_listeners_stay(cfg, next, f);
    config_unref(next);
    if (e) {
        config_map_free(m);
        return CONFIG_BAD_REQUEST;
    }
    *out = m;
    return CONFIG_ACCEPTED;
}
