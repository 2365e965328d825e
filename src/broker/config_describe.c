/* config_describe.c: the answer to DescribeConfigs.
 *
 * Quirks of Kafka's that tools rely on and that we keep: a value's synonyms start at the first that has the entry's own
 * name, so a topic's retention that comes from log.retention.hours has none and counts as a default; what has no row,
 * or is a password, is sensitive and shows no value; an entry of a single listener is read-only. */
#include "broker/config_internal.h"

#include <string.h>

enum { LAYERS = 4, SYNONYMS_MAX = LAYERS * CONFIG_SERVER_KEYS_MAX };

static enum config_type type_of_broker_key(const char *name)
{
    int key = config_broker_find_prefixed(name);
    return key < 0 ? CONFIG_UNKNOWN : config_broker_rows[key].type;
}

static bool is_sensitive(enum config_type type)
{
    return type == CONFIG_UNKNOWN || type == CONFIG_PASSWORD;
}

/* The names a value may go by, by precedence. */
static int names_of(const char *name, const char *out[CONFIG_SERVER_KEYS_MAX])
{
    int key = config_broker_find(name);
    if (key < 0) {
        int base = config_broker_find_prefixed(name);
        out[0] = name;
        if (base >= 0) out[1] = config_broker_rows[base].name;
        return base >= 0 ? 2 : 1;
    }
    enum config_key keys[CONFIG_SERVER_KEYS_MAX];
    int count = config_synonyms((enum config_key)key, keys);
    for (int i = 0; i < count; i++) out[i] = config_broker_rows[keys[i]].name;
    return count;
}

static const char *layer_get(const struct config *cfg, enum config_source source, const char *name)
{
    switch (source) {
    case CONFIG_FROM_DYNAMIC_BROKER: return config_map_get(cfg->broker, name);
    case CONFIG_FROM_DYNAMIC_CLUSTER: return config_map_get(cfg->cluster, name);
    case CONFIG_FROM_STATIC: return config_map_get(cfg->fixed, name);
    default: {
        int key = config_broker_find(name);
        return key < 0 ? NULL : config_default_text(cfg, (enum config_key)key);
    }
    }
}

/* Every layer's value under every name, from the first with the name itself on.  Returns how many. */
static size_t synonyms_of(const struct config *cfg, const char *name, bool sensitive,
                          struct config_synonym out[SYNONYMS_MAX])
{
    static const enum config_source layers[LAYERS] = {CONFIG_FROM_DYNAMIC_BROKER, CONFIG_FROM_DYNAMIC_CLUSTER,
                                                      CONFIG_FROM_STATIC, CONFIG_FROM_DEFAULT};
    const char *names[CONFIG_SERVER_KEYS_MAX];
    int name_count = names_of(name, names);
    size_t count = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < name_count; i++) {
            const char *value = layer_get(cfg, layers[l], names[i]);
            if (!value || (count == 0 && strcmp(names[i], name) != 0)) continue;
            out[count++] = (struct config_synonym){names[i], sensitive ? NULL : value, layers[l]};
        }
    return count;
}

static void entry_set_synonyms(struct config_entry *entry, const struct config_synonym *synonyms, size_t count,
                               struct arena *a)
{
    struct config_synonym *copy = arena_array(a, struct config_synonym, count);
    if (count) memcpy(copy, synonyms, count * sizeof *copy);
    entry->synonyms = copy;
    entry->synonym_count = count;
    entry->source = count ? copy[0].source : CONFIG_FROM_DEFAULT;
}

static struct config_entry broker_entry(const struct config *cfg, const char *name, const char *value, struct arena *a)
{
    enum config_type type = type_of_broker_key(name);
    int key = config_broker_find(name);
    struct config_entry entry = {
        .name = name,
        .value = is_sensitive(type) ? NULL : value,
        .type = type,
        .read_only = key < 0 || config_broker_rows[key].update == READ_ONLY || config_broker_rows[key].update == HIDDEN,
        .sensitive = is_sensitive(type),
        .doc = key < 0 ? NULL : config_broker_rows[key].doc,
    };
    struct config_synonym synonyms[SYNONYMS_MAX];
    entry_set_synonyms(&entry, synonyms, synonyms_of(cfg, name, entry.sensitive, synonyms), a);
    return entry;
}

/* The names of all layers and of all rows that are not hidden, in order, each once. */
static struct config_map *broker_names(const struct config *cfg)
{
    struct config_map *names = config_map_copy(cfg->fixed);
    const struct config_map *dynamic[] = {cfg->cluster, cfg->broker};
    for (size_t d = 0; d < ARRAY_COUNT(dynamic); d++)
        for (size_t i = 0; i < config_map_count(dynamic[d]); i++)
            config_map_set(names, str_of(config_map_at(dynamic[d], i)->name), STR_EMPTY);
    for (int i = 0; i < CFG_COUNT; i++)
        if (config_broker_rows[i].update != HIDDEN)
            config_map_set(names, str_of(config_broker_rows[i].name), STR_EMPTY);
    return names;
}

struct config_entries config_describe_broker(const struct config *cfg, struct arena *a)
{
    struct config_map *names = broker_names(cfg);
    size_t count = config_map_count(names);
    struct config_entry *entries = arena_array(a, struct config_entry, count);
    for (size_t i = 0; i < count; i++) {
        int key = config_broker_find(config_map_at(names, i)->name);
        const char *name =
            key < 0 ? arena_str(a, str_of(config_map_at(names, i)->name)).data : config_broker_rows[key].name;
        const char *value = key < 0 ? layer_get(cfg, CONFIG_FROM_DYNAMIC_BROKER, name) : cfg->values[key].text;
        if (key < 0 && !value) value = layer_get(cfg, CONFIG_FROM_DYNAMIC_CLUSTER, name);
        if (key < 0 && !value) value = layer_get(cfg, CONFIG_FROM_STATIC, name);
        entries[i] = broker_entry(cfg, name, value, a);
    }
    config_map_free(names);
    return (struct config_entries){entries, count};
}

struct config_entries config_describe_cluster(const struct config *cfg, struct arena *a)
{
    size_t count = config_map_count(cfg->cluster);
    struct config_entry *entries = arena_array(a, struct config_entry, count);
    for (size_t i = 0; i < count; i++) {
        const struct config_pair *p = config_map_at(cfg->cluster, i);
        entries[i] = broker_entry(cfg, p->name, p->value, a);
        struct config_synonym synonyms[SYNONYMS_MAX];
        size_t kept = 0;
        for (size_t s = 0; s < entries[i].synonym_count; s++)
            if (entries[i].synonyms[s].source == CONFIG_FROM_DYNAMIC_CLUSTER) synonyms[kept++] = entries[i].synonyms[s];
        entry_set_synonyms(&entries[i], synonyms, kept, a);
    }
    return (struct config_entries){entries, count};
}

static struct config_entry topic_entry(const struct config *cfg, const struct config_row *row, const char *value,
                                       bool overridden, struct arena *a)
{
    struct config_entry entry = {.name = row->name, .value = value, .type = row->type, .doc = row->doc};
    struct config_synonym synonyms[1 + SYNONYMS_MAX];
    size_t count = 0;
    if (overridden) synonyms[count++] = (struct config_synonym){row->name, value, CONFIG_FROM_TOPIC};
    if (row->server[0].factor > 0)
        count += synonyms_of(cfg, config_broker_rows[row->server[0].key].name, false, synonyms + count);
    entry_set_synonyms(&entry, synonyms, count, a);
    return entry;
}

struct config_entries config_describe_topic(const struct config *cfg, const struct config_map *overrides,
                                            struct arena *a)
{
    struct config_value *values = arena_array(a, struct config_value, TCFG_COUNT);
    config_topic_values(values, cfg, overrides, a, NULL);
    size_t count = 0, stored = overrides ? config_map_count(overrides) : 0;
    struct config_entry *entries = arena_array(a, struct config_entry, TCFG_COUNT + stored);
    for (int i = 0; i < TCFG_COUNT; i++) {
        const struct config_row *row = &config_topic_rows[i];
        bool overridden = overrides && config_map_get(overrides, row->name);
        entries[count++] = topic_entry(cfg, row, values[i].text, overridden, a);
    }
    for (size_t i = 0; i < stored; i++) {
        const char *name = config_map_at(overrides, i)->name;
        if (config_topic_find(name) < 0)
            entries[count++] = (struct config_entry){.name = name, .source = CONFIG_FROM_TOPIC, .sensitive = true};
    }
    return (struct config_entries){entries, count};
}
