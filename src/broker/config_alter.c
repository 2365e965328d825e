/* config_alter.c: changes that clients ask for, and which broker keys may be dynamic at all.
 *
 * A change is judged on a copy: the stored overrides with all operations applied must be valid as a whole, alone and
 * together with the layers around them.  What is refused, and in which words, follows Kafka's DynamicBrokerConfig and
 * LogConfig. */
#include "broker/config_internal.h"

#include <stdio.h>
#include <stdlib.h>
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

/* A listener's limits, which may be the same on all brokers. */
static bool is_cluster_listener_key(int key)
{
    return key == CFG_MAX_CONNECTIONS || key == CFG_MAX_CONNECTION_CREATION_RATE || key == CFG_NUM_NETWORK_THREADS;
}

enum config_dynamic config_dynamic_allowed(const char *name, enum config_source scope)
{
    bool for_all = scope == CONFIG_FROM_DYNAMIC_CLUSTER, of_listener = config_is_listener_key(name);
    int key = config_broker_find_prefixed(name);
    const struct config_row *row = key < 0 ? NULL : &config_broker_rows[key];
    if (row && !of_listener) {
        if (row->update == READ_ONLY || row->update == HIDDEN) return DYNAMIC_READ_ONLY;
        if (is_listener_secret((enum config_key)key)) return DYNAMIC_NEEDS_LISTENER;
    }
    bool per_broker = of_listener ? !is_cluster_listener_key(key) : row && row->update == PER_BROKER;
    if (for_all && per_broker) return DYNAMIC_NEEDS_BROKER;
    /* Kafka stores passwords encrypted; until we can, none goes into the store, nor do we take its cipher for one. */
    if (row && row->type == CONFIG_PASSWORD) return DYNAMIC_PASSWORD;
    return DYNAMIC_OK; /* also what has no row: Kafka lets keys of plugins through */
}

/* ---- The operations ---- */

enum { CONFIG_CHANGES_MAX = 1000, CONFIG_STORED_BYTES_MAX = 512 * 1024 };

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* One change as it came. */
static enum err check_change(const struct config_change *c, struct fault *f)
{
    if (c->op < CONFIG_SET || c->op > CONFIG_SUBTRACT)
        return fault_set(f, ERR_INVALID, "Unknown operations type %d", c->op);
    if (str_is_null(c->name) || c->name.size == 0 || memchr(c->name.data, 0, c->name.size))
        return fault_set(f, ERR_INVALID, "A config name is missing or malformed");
    if (c->name.size > CONFIG_STORED_BYTES_MAX || c->value.size > CONFIG_STORED_BYTES_MAX)
        return fault_set(f, ERR_TOO_BIG, "A config name or value is longer than %d bytes", CONFIG_STORED_BYTES_MAX);
    if (c->op != CONFIG_DELETE && str_is_null(c->value))
        return fault_set(f, ERR_INVALID, "Null value not supported for : %.*s", STR_ARG(c->name));
    if (c->value.size > 0 && memchr(c->value.data, 0, c->value.size))
        return fault_set(f, ERR_INVALID, "The value of %.*s has a zero byte", STR_ARG(c->name));
    return OK;
}

static enum err check_shape(const struct config_change *changes, size_t count, struct fault *f)
{
    if (count > CONFIG_CHANGES_MAX)
        return fault_set(f, ERR_TOO_BIG, "More than %d config keys in one resource", CONFIG_CHANGES_MAX);
    for (size_t i = 0; i < count; i++) {
        enum err e = check_change(&changes[i], f);
        if (e) return e;
    }
    struct arena a;
    arena_init(&a, SIZE_MAX);
    const char **names = arena_array(&a, const char *, count);
    for (size_t i = 0; i < count; i++) names[i] = arena_str(&a, changes[i].name).data;
    if (count) qsort(names, count, sizeof *names, name_compare);
    bool twice = false;
    for (size_t i = 1; i < count; i++) twice = twice || strcmp(names[i - 1], names[i]) == 0;
    arena_fini(&a);
    return twice ? fault_set(f, ERR_INVALID, "Error due to duplicate config keys") : OK;
}

/* Whether the list, sorted by name_compare, has the item. */
static bool list_has(const char *const *sorted, size_t count, const char *item)
{
    return count && bsearch(&item, sorted, count, sizeof *sorted, name_compare);
}

static const char *const *sorted_copy(struct config_list list, struct arena *a)
{
    const char **copy = arena_array(a, const char *, list.count);
    if (!list.count) return copy;
    memcpy(copy, list.items, list.count * sizeof *copy);
    qsort(copy, list.count, sizeof *copy, name_compare);
    return copy;
}

/* The old list with the new elements behind it, or without them. */
static void change_list(struct config_map *m, const struct config_row *row, const struct config_change *c)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    bool append = c->op == CONFIG_APPEND;
    const char *old = config_map_get(m, row->name);
    struct config_list had = config_split(str_of(old ? old : row->default_text), &a);
    struct config_list given = config_split(c->value, &a);
    const char *const *had_sorted = sorted_copy(had, &a), *const *given_sorted = sorted_copy(given, &a);
    const char **items = arena_array(&a, const char *, had.count + given.count);
    size_t n = 0;
    for (size_t i = 0; i < had.count; i++)
        if (append || !list_has(given_sorted, given.count, had.items[i])) items[n++] = had.items[i];
    for (size_t i = 0; append && i < given.count; i++)
        if (!list_has(had_sorted, had.count, given.items[i])) items[n++] = given.items[i];
    config_map_set(m, str_of(row->name), str_of(config_join((struct config_list){items, n}, &a)));
    arena_fini(&a);
}

/* What is stored ends up in one node of the coordination store, which takes a megabyte. */
static enum err check_size(const struct config_map *m, struct fault *f)
{
    size_t bytes = 0;
    for (size_t i = 0; i < config_map_count(m); i++) {
        const struct config_pair *p = config_map_at(m, i);
        bytes += strlen(p->name) + strlen(p->value);
    }
    return bytes <= CONFIG_STORED_BYTES_MAX
               ? OK
               : fault_set(f, ERR_TOO_BIG, "The configuration would be larger than %d bytes", CONFIG_STORED_BYTES_MAX);
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
    if (check_shape(changes, count, f) != OK) return CONFIG_BAD_REQUEST;
    struct config_map *m = old ? config_map_copy(old) : config_map_new();
    enum config_verdict v = apply(m, changes, count, topic, f);
    if (v == CONFIG_ACCEPTED && check_size(m, f) != OK) v = CONFIG_BAD_REQUEST;
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
    if (!e) e = refuse_all(m, scope, DYNAMIC_PASSWORD, "Passwords cannot be kept in dynamic configuration yet", f);
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
