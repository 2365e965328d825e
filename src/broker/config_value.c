/* config_value.c: one value, from text to its type and within its bounds.
 *
 * What is accepted, and the words of a refusal, are Kafka's: operators know them, and tools print them. */
#include "broker/config_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_java_space(char c) /* \s of Java's regular expressions */
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct str config_trim(struct str s)
{
    while (s.size > 0 && (unsigned char)s.data[0] <= ' ') {
        s.data++;
        s.size--;
    }
    while (s.size > 0 && (unsigned char)s.data[s.size - 1] <= ' ') s.size--;
    return s;
}

/* Takes the part before the next comma off `rest`, without spaces around it.  False after the last. */
static bool next_element(struct str *rest, struct str *out)
{
    if (!rest->data) return false;
    const char *comma = rest->size ? memchr(rest->data, ',', rest->size) : NULL;
    *out = (struct str){rest->data, comma ? (size_t)(comma - rest->data) : rest->size};
    *rest = comma ? (struct str){comma + 1, rest->size - out->size - 1} : STR_NULL;
    while (out->size > 0 && is_java_space(out->data[0])) {
        out->data++;
        out->size--;
    }
    while (out->size > 0 && is_java_space(out->data[out->size - 1])) out->size--;
    return true;
}

static struct config_list split(struct str s, bool keep_empty, struct arena *a)
{
    size_t count = 1;
    for (size_t i = 0; i < s.size; i++) count += s.data[i] == ',';
    const char **items = arena_array(a, const char *, count);
    struct str rest = s, element;
    size_t n = 0;
    while (next_element(&rest, &element))
        if (element.size > 0 || keep_empty) items[n++] = arena_str(a, element).data;
    return (struct config_list){items, n};
}

struct config_list config_split(struct str s, struct arena *a)
{
    return split(s, false, a);
}

const char *config_join(struct config_list list, struct arena *a)
{
    size_t size = 1;
    for (size_t i = 0; i < list.count; i++) size += strlen(list.items[i]) + 1;
    char *text = arena_alloc(a, size), *at = text;
    for (size_t i = 0; i < list.count; i++) {
        if (i) *at++ = ',';
        at = stpcpy(at, list.items[i]);
    }
    *at = '\0';
    return text;
}

/* Digits with at most a sign, as Integer.parseInt takes them, between the bounds. */
static bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return false;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno || v < min || v > max) return false;
    *out = v;
    return true;
}

static bool parse_double(const char *text, double *out)
{
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text)) return false;
    char *end;
    double v = strtod(text, &end);
    if (*end || !isfinite(v)) return false;
    *out = v;
    return true;
}

/* Sets the type's part of `v`; the reason when it cannot. */
static const char *parse_type(struct config_value *v, enum config_type type, const char *text, struct arena *a)
{
    bool ok = true;
    v->text = text;
    switch (type) {
    case CONFIG_BOOLEAN:
        v->i64 = strcasecmp(text, "true") == 0;
        if (!v->i64 && strcasecmp(text, "false") != 0) return "Expected value to be either true or false";
        v->text = v->i64 ? "true" : "false";
        return NULL;
    case CONFIG_SHORT: ok = parse_int(text, INT16_MIN, INT16_MAX, &v->i64); break;
    case CONFIG_INT: ok = parse_int(text, INT32_MIN, INT32_MAX, &v->i64); break;
    case CONFIG_LONG: ok = parse_int(text, INT64_MIN, INT64_MAX, &v->i64); break;
    case CONFIG_DOUBLE: return parse_double(text, &v->f64) ? NULL : "Not a number of type DOUBLE";
    case CONFIG_LIST:
        v->list = *text ? split(str_of(text), true, a) : (struct config_list){NULL, 0};
        v->text = config_join(v->list, a);
        return NULL;
    case CONFIG_STRING:
    case CONFIG_CLASS:
    case CONFIG_PASSWORD:
    case CONFIG_UNKNOWN: return NULL;
    }
    if (!ok)
        return type == CONFIG_SHORT ? "Not a number of type SHORT"
               : type == CONFIG_INT ? "Not a number of type INT"
                                    : "Not a number of type LONG";
    v->text = arena_printf(a, "%lld", (long long)v->i64).data;
    return NULL;
}

static bool in_set(const char *set, const char *text, bool any_case)
{
    struct str rest = str_of(set), name;
    while (next_element(&rest, &name))
        if (name.size == strlen(text) &&
            (any_case ? strncasecmp(name.data, text, name.size) : memcmp(name.data, text, name.size)) == 0)
            return true;
    return false;
}

/* A release ("3.5", "3.5.1") or a version of the metadata ("3.5-IV2"). */
static bool is_kafka_version(const char *text)
{
    static const struct {
        const char *release;
        int versions; /* -IV0 up to this many; 0: none */
    } known[] = {
        {"0.8.0", 0},  {"0.8.1", 0},  {"0.8.2", 0}, {"0.9.0", 0}, {"0.10.0", 2}, {"0.10.1", 3},
        {"0.10.2", 1}, {"0.11.0", 3}, {"1.0", 1},   {"1.1", 1},   {"2.0", 2},    {"2.1", 3},
        {"2.2", 2},    {"2.3", 2},    {"2.4", 2},   {"2.5", 1},   {"2.6", 1},    {"2.7", 3},
        {"2.8", 2},    {"3.0", 2},    {"3.1", 1},   {"3.2", 1},   {"3.3", 4},    {"3.4", 1},
        {"3.5", 3},    {"3.6", 3},    {"3.7", 5},   {"3.8", 1},   {"3.9", 1},    {"4.0", 2},
    };
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        size_t size = strlen(known[i].release);
        if (strncmp(text, known[i].release, size) != 0) continue;
        const char *rest = text + size;
        if (!*rest || *rest == '.') return true;
        if (strncmp(rest, "-IV", 3) == 0 && rest[3] >= '0' && rest[3] < '0' + known[i].versions && !rest[4])
            return true;
    }
    return false;
}

static bool are_throttled_replicas(struct config_list list)
{
    if (list.count == 1 && strcmp(list.items[0], "*") == 0) return true;
    for (size_t i = 0; i < list.count; i++) {
        const char *s = list.items[i];
        if (!*s) continue;
        size_t partition = strspn(s, "0123456789");
        size_t broker = s[partition] == ':' ? strspn(s + partition + 1, "0123456789") : 0;
        if (partition == 0 || broker == 0 || s[partition + 1 + broker]) return false;
    }
    return true;
}

/* The reason when the value breaks the rule, in `a`; else NULL. */
static const char *check_range(const struct config_rule *rule, double v, struct arena *a)
{
    bool bounded = rule->kind == RULE_BETWEEN || rule->kind == RULE_BETWEEN_OR;
    bool or_other = rule->kind == RULE_AT_LEAST_OR || rule->kind == RULE_BETWEEN_OR;
    bool low = v < rule->min, high = bounded && v > rule->max;
    if ((!low && !high) || (or_other && v == rule->other)) return NULL;
    if (rule->kind == RULE_BETWEEN_OR)
        return arena_printf(a, "Value must be between %.15g and %.15g or equal to %.15g", rule->min, rule->max,
                            rule->other)
            .data;
    if (rule->kind == RULE_AT_LEAST_OR)
        return arena_printf(a, "Value must be at least %.15g or equal to %.15g", rule->min, rule->other).data;
    return high ? arena_printf(a, "Value must be no more than %.15g", rule->max).data
                : arena_printf(a, "Value must be at least %.15g", rule->min).data;
}

static const char *check_rule(const struct config_row *row, const struct config_value *v, struct arena *a)
{
    const struct config_rule *rule = &row->rule;
    bool any_case = rule->kind == RULE_ONE_OF_ANY_CASE;
    switch (rule->kind) {
    case RULE_ANY: return NULL;
    case RULE_AT_LEAST:
    case RULE_BETWEEN:
    case RULE_AT_LEAST_OR:
    case RULE_BETWEEN_OR: return check_range(rule, row->type == CONFIG_DOUBLE ? v->f64 : (double)v->i64, a);
    case RULE_ONE_OF:
    case RULE_ONE_OF_ANY_CASE: {
        const char *reason =
            arena_printf(a, any_case ? "String must be one of (case insensitive): %s" : "String must be one of: %s",
                         rule->set)
                .data;
        if (row->type != CONFIG_LIST) return in_set(rule->set, v->text, any_case) ? NULL : reason;
        for (size_t i = 0; i < v->list.count; i++)
            if (!in_set(rule->set, v->list.items[i], any_case)) return reason;
        return NULL;
    }
    case RULE_NOT_EMPTY: return *v->text ? NULL : "String must be non-empty";
    case RULE_KAFKA_VERSION:
        return is_kafka_version(v->text) ? NULL : arena_printf(a, "Version %s is not a valid version", v->text).data;
    case RULE_THROTTLED_REPLICAS:
        if (are_throttled_replicas(v->list)) return NULL;
        return arena_printf(a,
                            "%s must be the literal '*' or a list of replicas in the following format: "
                            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
                            row->name)
            .data;
    }
    UNREACHABLE();
}

enum err config_value_parse(struct config_value *out, const struct config_row *row, struct str text, struct arena *a,
                            struct fault *f)
{
    struct config_value v = {0};
    const char *trimmed = arena_str(a, config_trim(text)).data;
    const char *reason = parse_type(&v, row->type, trimmed, a);
    if (!reason) reason = check_rule(row, &v, a);
    if (reason)
        return fault_set(f, ERR_INVALID, "Invalid value %.200s for configuration %s: %s",
                         row->type == CONFIG_PASSWORD ? "[hidden]" : trimmed, row->name, reason);
    *out = v;
    return OK;
}

struct config_value config_value_default(const struct config_row *row, struct arena *a)
{
    struct config_value v = {0};
    /* Not checked against the rule: Kafka has defaults that break their own, as "" for a list of names. */
    if (row->default_text) ASSERT(!parse_type(&v, row->type, row->default_text, a));
    return v;
}

struct str config_rule_text(const struct config_row *row, struct arena *a)
{
    const struct config_rule *r = &row->rule;
    switch (r->kind) {
    case RULE_ANY: return STR_EMPTY;
    case RULE_AT_LEAST: return arena_printf(a, "at least %.15g", r->min);
    case RULE_BETWEEN: return arena_printf(a, "%.15g to %.15g", r->min, r->max);
    case RULE_AT_LEAST_OR: return arena_printf(a, "at least %.15g, or %.15g", r->min, r->other);
    case RULE_BETWEEN_OR: return arena_printf(a, "%.15g to %.15g, or %.15g", r->min, r->max, r->other);
    case RULE_ONE_OF: return str_of(r->set);
    case RULE_ONE_OF_ANY_CASE: return arena_printf(a, "%s (any case)", r->set);
    case RULE_NOT_EMPTY: return STR("not empty");
    case RULE_KAFKA_VERSION: return STR("a version of Kafka, 0.8.0 to 4.0-IV1");
    case RULE_THROTTLED_REPLICAS: return STR("partition:broker pairs, or *");
    }
    UNREACHABLE();
}
