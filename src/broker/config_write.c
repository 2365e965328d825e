/* config_write.c: see config_write.h.  Each entity is read, altered, and written with a notification, as one change. */
#include "broker/config_write.h"

#include "base/mem.h"
#include "broker/broker.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { TRIES_MAX = 10 };

struct writing;

struct entity {
    struct writing *of;
    struct controller_config_change change;
    struct str path;
    struct controller_result *result;
    int tries;
};

/* One call; home loop. */
struct writing {
    struct loop_msg msg;
    struct broker *br;
    struct arena arena;
    bool validate_only;
    struct controller_to to;
    struct entity *entities;
    struct controller_result *results;
    size_t count, open;
};

static void answer(struct loop_msg *msg)
{
    struct writing *w = CONTAINER_OF(msg, struct writing, msg);
    const struct controller_results r = {.results = w->results, .count = w->count};
    w->to.done(w->to.arg, &r);
    arena_fini(&w->arena);
    mem_free(w);
}

static void one_is_over(struct writing *w)
{
    if (--w->open > 0) return;
    w->msg.run = answer;
    loop_post(w->to.loop, &w->msg);
}

static void finish(struct entity *en, enum kerr kerr, struct str message)
{
    en->result->kerr = kerr;
    en->result->message = arena_str(&en->of->arena, message);
    one_is_over(en->of);
}

static void finish_failed(struct entity *en, enum err e, const char *text)
{
    bool storage = e == ERR_IO || e == ERR_FULL || e == ERR_DENIED;
    finish(en, storage ? KERR_KAFKA_STORAGE_ERROR : KERR_UNKNOWN_SERVER_ERROR, str_of(text ? text : err_text(e)));
}

static void entity_read(struct entity *en);

static void on_written(void *arg, const struct coord_result *r)
{
    struct entity *en = arg;
    const struct controller_config_change *ch = &en->change;
    /* Or perhaps: who alters what is altered already changes nothing. */
    bool was_changed = r->err == ERR_VERSION || r->err == ERR_EXISTS || r->err == ERR_NOT_FOUND || r->err == ERR_UNSURE;
    if (!r->err) {
        LOG_INFO("config_changed", "type=%.*s name=%.*s", STR_ARG(ch->type), STR_ARG(ch->name));
        finish(en, KERR_NONE, STR_NULL);
    } else if (was_changed && ++en->tries < TRIES_MAX) {
        entity_read(en);
    } else {
        finish_failed(en, r->err, r->text);
    }
}

static void entity_write(struct entity *en, const struct znode_config *altered, int32_t version)
{
    struct arena *a = &en->of->arena;
    const struct controller_config_change *ch = &en->change;
    struct str notified = arena_printf(a, "%.*s/%.*s", STR_ARG(ch->type), STR_ARG(ch->name));
    const struct coord_op ops[] = {
        {.kind = version < 0 ? COORD_CREATE : COORD_SET,
         .path = en->path,
         .data = znode_config_encode(a, altered),
         .version = version},
        {.kind = COORD_CREATE,
         .path = ZNODE_CONFIG_CHANGE,
         .data = znode_config_change_encode(a, notified),
         .flags = COORD_SEQUENTIAL},
    };
    coord_multi(en->of->br->coord, ops, ARRAY_COUNT(ops), (struct coord_to){broker_home(en->of->br), on_written, en});
}

static void on_read(void *arg, const struct coord_result *r)
{
    struct entity *en = arg;
    struct writing *w = en->of;
    struct znode_config current, altered = {0};
    struct str message = STR_NULL;
    struct fault f = {0};
    if (r->err && r->err != ERR_NOT_FOUND) {
        finish_failed(en, r->err, r->text);
        return;
    }
    const struct bytes data = r->err ? (struct bytes){NULL, 0} : r->data;
    /* What nobody can read is given up: an alteration is how it becomes readable again. */
    if (znode_config_decode_usable(&w->arena, en->path, data, &current, &f))
        LOG_WARN("stored_config_given_up", "reason=\"%s\"", f.text);
    enum kerr kerr = en->change.alter(en->change.arg, &current, &w->arena, &altered, &message);
    if (kerr || w->validate_only)
        finish(en, kerr, message);
    else
        entity_write(en, &altered, r->err ? -1 : r->stat.version);
}

static void entity_read(struct entity *en)
{
    struct broker *br = en->of->br;
    const struct controller_config_change *ch = &en->change;
    if (str_equal(ch->type, CONFIG_TOPICS) && !metadata_topic(br->metadata, ch->name)) {
        finish(en, KERR_UNKNOWN_TOPIC_OR_PARTITION,
               arena_printf(&en->of->arena, "The topic '%.*s' does not exist.", STR_ARG(ch->name)));
        return;
    }
    coord_get(br->coord, en->path, COORD_NO_WATCH, (struct coord_to){broker_home(br), on_read, en});
}

static void begin(struct loop_msg *msg)
{
    struct writing *w = CONTAINER_OF(msg, struct writing, msg);
    for (size_t i = 0; i < w->count; i++) entity_read(&w->entities[i]);
    one_is_over(w);
}

void config_write_alter(struct broker *br, const struct controller_config_change *changes, size_t count,
                        bool validate_only, struct controller_to to)
{
    struct writing *w = mem_zalloc(1, sizeof *w);
    *w = (struct writing){.br = br, .validate_only = validate_only, .to = to, .count = count};
    w->open = count + 1; /* until all have been begun */
    arena_init(&w->arena, SIZE_MAX);
    w->entities = arena_array(&w->arena, struct entity, count);
    w->results = arena_array(&w->arena, struct controller_result, count);
    for (size_t i = 0; i < count; i++) {
        struct entity *en = &w->entities[i];
        *en = (struct entity){.of = w, .change = changes[i], .result = &w->results[i]};
        en->change.type = arena_str(&w->arena, changes[i].type);
        en->change.name = w->results[i].name = arena_str(&w->arena, changes[i].name);
        en->path = znode_config_path(&w->arena, en->change.type, en->change.name);
    }
    w->msg.run = begin;
    loop_post(broker_home(br), &w->msg);
}
