/* config_table.c: the rows of all keys, and looking them up by name. */
#include "broker/config_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

/* Words of the rows: types and rules. */
#define BOOLEAN  CONFIG_BOOLEAN
#define STRING   CONFIG_STRING
#define INT      CONFIG_INT
#define SHORT    CONFIG_SHORT
#define LONG     CONFIG_LONG
#define DOUBLE   CONFIG_DOUBLE
#define LIST     CONFIG_LIST
#define CLASS    CONFIG_CLASS
#define PASSWORD CONFIG_PASSWORD

#define ANY              \
    {                    \
        .kind = RULE_ANY \
    }
#define AT_LEAST(low)                       \
    {                                       \
        .kind = RULE_AT_LEAST, .min = (low) \
    }
#define BETWEEN(low, high)                                \
    {                                                     \
        .kind = RULE_BETWEEN, .min = (low), .max = (high) \
    }
#define AT_LEAST_OR(low, else_)                                  \
    {                                                            \
        .kind = RULE_AT_LEAST_OR, .min = (low), .other = (else_) \
    }
#define BETWEEN_OR(low, high, else_)                                           \
    {                                                                          \
        .kind = RULE_BETWEEN_OR, .min = (low), .max = (high), .other = (else_) \
    }
#define ONE_OF(names)                       \
    {                                       \
        .kind = RULE_ONE_OF, .set = (names) \
    }
#define ONE_OF_ANY_CASE(names)                       \
    {                                                \
        .kind = RULE_ONE_OF_ANY_CASE, .set = (names) \
    }
#define NOT_EMPTY              \
    {                          \
        .kind = RULE_NOT_EMPTY \
    }
#define KAFKA_VERSION              \
    {                              \
        .kind = RULE_KAFKA_VERSION \
    }
#define THROTTLED_REPLICAS              \
    {                                   \
        .kind = RULE_THROTTLED_REPLICAS \
    }

#define NO_SERVER \
    {             \
        {         \
            -1, 0 \
        }         \
    }
#define FROM(a)       \
    {                 \
        {CFG_##a, 1}, \
        {             \
            -1, 0     \
        }             \
    }
#define FROM2(a, fa, b, fb)           \
    {                                 \
        {CFG_##a, fa}, {CFG_##b, fb}, \
        {                             \
            -1, 0                     \
        }                             \
    }
#define FROM3(a, fa, b, fb, c, fc)    \
    {                                 \
        {CFG_##a, fa}, {CFG_##b, fb}, \
        {                             \
            CFG_##c, fc               \
        }                             \
    }

#define BROKER(id, name_, type_, default_, rule_, importance_, update_, effect_, doc_) \
    [CFG_##id] = {.name = (name_),                                                     \
                  .type = (type_),                                                     \
                  .default_text = (default_),                                          \
                  .rule = rule_,                                                       \
                  .importance = (importance_),                                         \
                  .update = (update_),                                                 \
                  .server = NO_SERVER,                                                 \
                  .effect = (effect_),                                                 \
                  .doc = (doc_)},
const struct config_row config_broker_rows[CFG_COUNT] = {
#include "broker/config_broker.inc"
};
#undef BROKER

#define TOPIC(id, name_, type_, default_, rule_, importance_, server_, effect_, doc_) \
    [TCFG_##id] = {.name = (name_),                                                   \
                   .type = (type_),                                                   \
                   .default_text = (default_),                                        \
                   .rule = rule_,                                                     \
                   .importance = (importance_),                                       \
                   .update = CLUSTER_WIDE,                                            \
                   .server = server_,                                                 \
                   .effect = (effect_),                                               \
                   .doc = (doc_)},
const struct config_row config_topic_rows[TCFG_COUNT] = {
#include "broker/config_topic.inc"
};
#undef TOPIC

static int row_compare(const void *name, const void *row)
{
    return strcmp(name, ((const struct config_row *)row)->name);
}

static int find(const struct config_row *rows, size_t count, const char *name)
{
    const struct config_row *row = bsearch(name, rows, count, sizeof *rows, row_compare);
    return row ? (int)(row - rows) : -1;
}

int config_broker_find(const char *name)
{
    return find(config_broker_rows, CFG_COUNT, name);
}

int config_topic_find(const char *name)
{
    return find(config_topic_rows, TCFG_COUNT, name);
}

static const char listener_prefix[] = "listener.name.";

bool config_is_listener_key(const char *name)
{
    if (strncmp(name, listener_prefix, sizeof listener_prefix - 1) != 0) return false;
    const char *dot = strchr(name + sizeof listener_prefix - 1, '.');
    return dot && dot[1];
}

int config_broker_find_prefixed(const char *name)
{
    if (!config_is_listener_key(name)) return config_broker_find(name);
    /* Keys that differ by SASL mechanism have its name before them: listener.name.NAME.MECHANISM.sasl.jaas.config. */
    static const enum config_key by_mechanism[] = {
        CFG_SASL_JAAS_CONFIG,          CFG_SASL_LOGIN_CALLBACK_HANDLER_CLASS,
        CFG_SASL_LOGIN_CLASS,          CFG_SASL_SERVER_CALLBACK_HANDLER_CLASS,
        CFG_CONNECTIONS_MAX_REAUTH_MS,
    };
    const char *base = strchr(name + sizeof listener_prefix - 1, '.') + 1;
    size_t size = strlen(base);
    for (size_t i = 0; i < ARRAY_COUNT(by_mechanism); i++) {
        const char *key = config_broker_rows[by_mechanism[i]].name;
        size_t key_size = strlen(key);
        if (size > key_size && base[size - key_size - 1] == '.' && strcmp(base + size - key_size, key) == 0)
            return (int)by_mechanism[i];
    }
    return config_broker_find(base);
}

/* Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`, counted up to `limit`. */
static size_t edit_distance(const char *a, const char *b, size_t limit)
{
    enum { SIZE_MAX_ = 96 };
    size_t m = strlen(a), n = strlen(b);
    if (m >= SIZE_MAX_ || n >= SIZE_MAX_ || (m > n ? m - n : n - m) > limit) return limit + 1;
    size_t rows[3][SIZE_MAX_]; /* the row before the last, the last, this one */
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++) last[j] = j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t d = last[j - 1] + (a[i - 1] != b[j - 1]);
            d = MIN(d, MIN(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d = MIN(d, before[j - 2] + 1);
            now[j] = d;
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[n];
}

const char *config_broker_nearest(const char *name)
{
    size_t best = MAX(strlen(name) / 4, 2) + 1;
    const char *nearest = NULL;
    for (int i = 0; i < CFG_COUNT; i++) {
        size_t d = edit_distance(name, config_broker_rows[i].name, best);
        if (d < best) {
            best = d;
            nearest = config_broker_rows[i].name;
        }
    }
    return nearest;
}

int config_synonyms(enum config_key key, enum config_key out[CONFIG_SERVER_KEYS_MAX])
{
    static const struct {
        enum config_key keys[CONFIG_SERVER_KEYS_MAX];
        int count, members; /* the first `members` have the group; the rest is only named in it */
    } groups[] = {
        {{CFG_LOG_ROLL_MS, CFG_LOG_ROLL_HOURS}, 2, 2},
        {{CFG_LOG_ROLL_JITTER_MS, CFG_LOG_ROLL_JITTER_HOURS}, 2, 2},
        {{CFG_LOG_FLUSH_INTERVAL_MS, CFG_LOG_FLUSH_SCHEDULER_INTERVAL_MS}, 2, 1},
        {{CFG_LOG_RETENTION_MS, CFG_LOG_RETENTION_MINUTES, CFG_LOG_RETENTION_HOURS}, 3, 3},
    };
    for (size_t g = 0; g < ARRAY_COUNT(groups); g++)
        for (int i = 0; i < groups[g].members; i++)
            if (groups[g].keys[i] == key) {
                memcpy(out, groups[g].keys, sizeof groups[g].keys);
                return groups[g].count;
            }
    out[0] = key;
    return 1;
}
