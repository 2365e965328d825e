/* log_settings.c: see log_settings.h. */
#include "cli/log_settings.h"

#include <string.h>

#include "base/mem.h"
#include "coord/embedded.h"
#include "coord/znodes.h"
#include "os/clock.h"
#include "os/process.h"

enum err log_settings_load(struct log_settings *ls, const char *file, struct fault *f)
{
    *ls = (struct log_settings){.overrides = config_map_new(), .source = "the defaults"};
    char *text = NULL;
    size_t size = 0;
    if (file) {
        enum err e = fs_read_whole(fs_system(), file, CONFIG_FILE_BYTES_MAX, &text, &size);
        if (e) return fault_set(f, e, "The configuration file %s cannot be read: %s.", file, err_text(e));
        ls->source = file;
    }
    const struct config_input in = {.file_name = file, .text = {text, size}, .cpu_count = (int)process_cpu_count()};
    enum err e = config_load(&ls->config, &in, f);
    mem_free(text);
    return e;
}

/* ---- The embedded store */

struct asked {
    struct arena arena;
    struct config_map *into;
    bool done;
    enum err e;
    struct fault *f;
};

static void on_config(void *arg, const struct coord_result *r)
{
    struct asked *a = arg;
    struct znode_config zc;
    a->done = true;
    a->e = r->err == ERR_NOT_FOUND ? OK : r->err;
    if (r->err) {
        if (a->e) fault_set(a->f, a->e, "The store cannot be read: %s.", r->text ? r->text : err_text(a->e));
        return;
    }
    a->e = znode_config_decode(&a->arena, r->path, r->data, &zc, a->f);
    for (size_t i = 0; !a->e && i < zc.count; i++) config_map_set(a->into, zc.settings[i].name, zc.settings[i].value);
}

static enum err ask(struct coord *c, struct loop *l, struct str type, struct str name, struct config_map *into,
                    struct fault *f)
{
    struct asked a = {.into = into, .f = f};
    arena_init(&a.arena, SIZE_MAX);
    coord_get(c, znode_config_path(&a.arena, type, name), COORD_NO_WATCH, (struct coord_to){l, on_config, &a});
    while (!a.done) loop_turn(l, -1);
    arena_fini(&a.arena);
    return a.e;
}

static enum err ask_all(struct log_settings *ls, struct coord *c, struct loop *l, struct str topic, int32_t broker_id,
                        struct fault *f)
{
    char id[16];
    snprintf(id, sizeof id, "%d", broker_id);
    struct config_map *cluster = config_map_new(), *broker = config_map_new();
    enum err e = ask(c, l, CONFIG_TOPICS, topic, ls->overrides, f);
    if (!e) e = ask(c, l, CONFIG_BROKERS, CONFIG_DEFAULT, cluster, f);
    if (!e) e = ask(c, l, CONFIG_BROKERS, str_of(id), broker, f);
    struct config *with = NULL;
    if (!e) e = config_with_dynamic(&with, ls->config, cluster, broker, f);
    if (!e) {
        config_unref(ls->config);
        ls->config = with;
    }
    config_map_free(cluster);
    config_map_free(broker);
    return e;
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static int32_t broker_of(const char *dir)
{
    struct meta_properties mp;
    char *path = mem_printf("%s/" META_PROPERTIES, dir);
    meta_properties_init(&mp);
    enum err e = meta_properties_read(&mp, fs_system(), path, NULL);
    int32_t id = e ? -1 : mp.broker_id; /* without it no broker has values of its own */
    meta_properties_fini(&mp);
    mem_free(path);
    return id;
}

enum err log_settings_store(struct log_settings *ls, const char *dir, struct str topic, struct fault *f)
{
    char *path = mem_printf("%s/" COORD_EMBEDDED_FILE, dir);
    struct fs_stat st;
    bool there = fs_stat(fs_system(), path, &st) == OK;
    mem_free(path);
    if (!there) return OK;
    struct loop *l;
    struct coord *c;
    const struct coord_embedded_options opt = {
        .fs = fs_system(), .clock = clock_system(), .dir = dir, .read_only = true};
    enum err e = loop_new(&l, clock_system(), 0, f);
    if (e) return e;
    e = coord_embedded_open(&c, &opt, f);
    if (!e) {
        e = ask_all(ls, c, l, topic, broker_of(dir), f);
        bool closed = false;
        coord_close(c, l, on_closed, &closed);
        while (!closed) loop_turn(l, -1);
        ls->source = "the embedded store";
    }
    loop_free(l);
    return e;
}

/* ---- The rest */

enum err log_settings_set(struct log_settings *ls, const char *pair, struct fault *f)
{
    const char *equals = strchr(pair, '=');
    if (!equals) return fault_set(f, ERR_INVALID, "--config needs KEY=VALUE, not '%s'.", pair);
    config_map_set(ls->overrides, (struct str){pair, (size_t)(equals - pair)}, str_of(equals + 1));
    ls->source = "the command line";
    return topic_config_check(ls->config, ls->overrides, f);
}

void log_settings_free(struct log_settings *ls)
{
    config_unref(ls->config);
    config_map_free(ls->overrides);
    *ls = (struct log_settings){0};
}
