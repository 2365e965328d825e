/* config_internal.h: what the files of the configuration share: rows, parsed values, the inside of a snapshot. */
#ifndef BROKER_CONFIG_INTERNAL_H
#define BROKER_CONFIG_INTERNAL_H

#include <stdatomic.h>

#include "broker/config.h"

/* ---- Rows (config_table.c) ---- */

enum config_rule_kind {
    RULE_ANY,
    RULE_AT_LEAST,        /* min */
    RULE_BETWEEN,         /* min, max */
    RULE_AT_LEAST_OR,     /* min, or `other` */
    RULE_BETWEEN_OR,      /* min, max, or `other` */
    RULE_ONE_OF,          /* `set`, for a LIST each element */
    RULE_ONE_OF_ANY_CASE, /* the same, in any case */
    RULE_NOT_EMPTY,
    RULE_KAFKA_VERSION,     /* a release or version of Kafka's metadata, 0.8.0 to 4.0-IV1 */
    RULE_THROTTLED_REPLICAS /* * or partition:broker pairs */
};

struct config_rule {
    enum config_rule_kind kind;
    double min, max, other;
    const char *set; /* separated by ", " */
};

enum config_importance { HIGH, MEDIUM, LOW };
enum config_update { READ_ONLY, HIDDEN, PER_BROKER, CLUSTER_WIDE };
enum config_effect { ACTS, LATER, NEVER, REFUSED };

/* A broker key that gives a topic key its value, `factor` of whose unit make one of the broker key's. */
struct config_server_key {
    int key; /* enum config_key; -1 ends the list */
    int64_t factor;
};
enum { CONFIG_SERVER_KEYS_MAX = 3 };

struct config_row {
    const char *name;
    enum config_type type;
    const char *default_text; /* NULL: none */
    struct config_rule rule;
    enum config_importance importance;
    enum config_update update;                               /* broker rows */
    struct config_server_key server[CONFIG_SERVER_KEYS_MAX]; /* topic rows */
    enum config_effect effect;
    const char *doc;
};

extern const struct config_row config_broker_rows[CFG_COUNT];
extern const struct config_row config_topic_rows[TCFG_COUNT];

/* The row's index, -1 when there is none. */
int config_broker_find(const char *name);
int config_topic_find(const char *name);
/* The row that rules a broker key, also one with the prefix listener.name.NAME. or listener.name.NAME.MECHANISM.; -1.
 */
int config_broker_find_prefixed(const char *name);
/* Whether the name has that prefix. */
bool config_is_listener_key(const char *name);
/* The broker key most like `name`; NULL when none is. */
const char *config_broker_nearest(const char *name);
/* Broker keys that stand in for each other, by precedence; at least `key` itself.  Returns how many. */
int config_synonyms(enum config_key key, enum config_key out[CONFIG_SERVER_KEYS_MAX]);

/* ---- Values (config_value.c) ---- */

struct config_value {
    const char *text; /* as Kafka prints it; NULL: null */
    union {
        int64_t i64; /* BOOLEAN, SHORT, INT, LONG */
        double f64;
        struct config_list list;
    };
};

/* Parses and checks `text`; what it needs is made in `a`.  ERR_INVALID: `f` says it as Kafka does. */
MUST_USE enum err config_value_parse(struct config_value *out, const struct config_row *row, struct str text,
                                     struct arena *a, struct fault *f);
/* The row's own default. */
struct config_value config_value_default(const struct config_row *row, struct arena *a);
/* Without spaces and control characters at both ends, as Java trims. */
struct str config_trim(struct str s);
/* Splits at commas, trims, drops what is empty. */
struct config_list config_split(struct str s, struct arena *a);
/* The elements with commas between them. */
const char *config_join(struct config_list list, struct arena *a);
/* What the rule allows, for the documentation; empty for anything. */
struct str config_rule_text(const struct config_row *row, struct arena *a);

/* ---- Maps (config_map.c) ---- */

/* config_map_set() with the line it came from. */
void config_map_set_at(struct config_map *m, struct str name, struct str value, int line);

/* ---- The snapshot (config.c) ---- */

struct config {
    _Atomic uint32_t refs;
    struct arena arena; /* everything below that is lent */
    int cpu_count;
    const char *cpu_text; /* the same as text; NULL: not known */
    bool no_file;         /* it was started without one */
    bool alone;           /* without an ensemble: there is no other broker */
    const char *file_name;
    struct config_map *fixed;   /* file and --override */
    struct config_map *cluster; /* dynamic values, those that were accepted */
    struct config_map *broker;
    struct config_value values[CFG_COUNT];
    enum config_source sources[CFG_COUNT];
    struct config_list log_dirs;
    struct listener_list listeners, advertised;
    const struct listener *inter_broker;
    struct ip_limit_list ip_limits;
    struct config_notice *notices;
    size_t notice_count, notice_cap;
};

/* The default of a broker key in this process; NULL for none. */
const char *config_default_text(const struct config *cfg, enum config_key key);
/* A snapshot of these layers, copied; `input` has the file's name and the CPUs.  Dynamic values must have been checked.
 */
MUST_USE enum err config_build(struct config **out, const struct config *like, const struct config_map *fixed,
                               const struct config_map *cluster, const struct config_map *broker, struct fault *f);
/* Fills `f` with where `key` was set (if it was), then the text. */
enum err config_fault(const struct config *cfg, struct fault *f, enum err code, const char *key, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* ---- Checks (config_check.c, config_listener.c) ---- */

/* Fills listeners, advertised, inter_broker. */
MUST_USE enum err config_listeners_resolve(struct config *cfg, struct fault *f);
/* Fills log_dirs and ip_limits, then checks what must go together. */
MUST_USE enum err config_check(struct config *cfg, struct fault *f);

/* ---- Dynamic values (config_alter.c) ---- */

enum config_dynamic { DYNAMIC_OK, DYNAMIC_READ_ONLY, DYNAMIC_NEEDS_LISTENER, DYNAMIC_NEEDS_BROKER, DYNAMIC_PASSWORD };
/* Whether this broker key may be set in this dynamic layer. */
enum config_dynamic config_dynamic_allowed(const char *name, enum config_source scope);

/* ---- Topics (config_topic.c) ---- */

/* All values of a topic as Kafka shows them, in `a`; bad overrides are passed over, `f` tells of the first. */
void config_topic_values(struct config_value out[TCFG_COUNT], const struct config *cfg,
                         const struct config_map *overrides, struct arena *a, struct fault *f);

#endif
