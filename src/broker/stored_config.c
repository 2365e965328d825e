/* stored_config.c: see stored_config.h. */
#include "broker/stored_config.h"

#include <string.h>

#include "coord/znodes.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { KEEPS = 3, REMOVES = 6 };

/* What a kind of entity says of what logs lose. */
static const struct kind {
    struct {
        const char *name, *value;
    } keeps[KEEPS]; /* with these they lose nothing */
    const char *removes[REMOVES];
    enum err (*check)(const char *name, struct str value, struct fault *f);
} kinds[] = {
    [CONFIG_ENTITY_TOPIC] = {{{"retention.ms", "-1"},
                              {"retention.bytes", "-1"},
                              {"min.compaction.lag.ms", "9223372036854775807"}},
                             {"cleanup.policy", "delete.retention.ms", "max.compaction.lag.ms", "min.compaction.lag.ms",
                              "retention.bytes", "retention.ms"},
                             config_topic_check_value},
    [CONFIG_ENTITY_BROKER] = {{{"log.retention.ms", "-1"},
                               {"log.retention.bytes", "-1"},
                               {"log.cleaner.min.compaction.lag.ms", "9223372036854775807"}},
                              {"log.cleanup.policy", "log.cleaner.delete.retention.ms",
                               "log.cleaner.max.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms",
                               "log.retention.bytes", "log.retention.ms"},
                              config_broker_check_value},
};

static bool removes(enum config_entity kind, const char *name)
{
    for (size_t i = 0; i < REMOVES; i++)
        if (strcmp(kinds[kind].removes[i], name) == 0) return true;
    return false;
}

static void keep_all(struct config_map *m, enum config_entity kind)
{
    for (size_t i = 0; i < KEEPS; i++)
        config_map_set(m, str_of(kinds[kind].keeps[i].name), str_of(kinds[kind].keeps[i].value));
}

static struct config_map *unreadable(enum config_entity kind, struct str path, const struct config_map *before,
                                     const struct fault *why)
{
    LOG_ERROR("stored_config_unreadable",
              "path=%.*s reason=\"%s\" notice=\"%s; alter a setting of it, which writes it "
              "anew, or delete it\"",
              STR_ARG(path), why->text,
              before ? "the settings from before stay" : "defaults are in effect, and no record is removed meanwhile");
    if (before) return config_map_copy(before);
    struct config_map *m = config_map_new();
    keep_all(m, kind);
    return m;
}

/* The value is not to be used. */
static void pass_over(struct config_map *m, enum config_entity kind, struct str path, const char *name, const char *why,
                      const struct config_map *before)
{
    const char *old = before ? config_map_get(before, name) : NULL;
    bool keeps = !old && removes(kind, name);
    LOG_ERROR("stored_setting_unusable", "path=%.*s key=%s reason=\"%s\" notice=\"%s; alter or delete the setting\"",
              STR_ARG(path), name, why,
              old     ? "the value from before stays"
              : keeps ? "no record is removed meanwhile"
                      : "its default is in effect");
    if (old) config_map_set(m, str_of(name), str_of(old));
    if (keeps) keep_all(m, kind);
}

static void take(struct config_map *m, enum config_entity kind, struct str path, const struct znode_setting *s,
                 const struct config_map *before)
{
    struct fault why = {0};
    if (kinds[kind].check(s->name.data, s->value, &why))
        pass_over(m, kind, path, s->name.data, why.text, before);
    else if (!config_map_get(m, s->name.data)) /* kept meanwhile for another one that cannot be used */
        config_map_set(m, s->name, s->value);
}

struct config_map *stored_config_read(enum config_entity kind, struct str path, struct bytes data,
                                      const struct config_map *before)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct znode_config zc;
    struct fault f = {0};
    struct config_map *m = NULL;
    if (znode_config_decode_usable(&a, path, data, &zc, &f))
        m = unreadable(kind, path, before, &f);
    else if (zc.count + zc.textless_count)
        m = config_map_new();
    for (size_t i = 0; i < zc.count; i++) take(m, kind, path, &zc.settings[i], before);
    for (size_t i = 0; i < zc.textless_count; i++)
        pass_over(m, kind, path, zc.textless[i].data, "its value is not a string", before);
    if (m && !config_map_count(m)) {
        config_map_free(m);
        m = NULL;
    }
    arena_fini(&a);
    return m;
}
