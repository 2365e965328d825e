/* configs.c: settings of topics and brokers, blocks of producer ids.
 *
 * A change of settings reads them, lets the caller make new ones of them, and writes these with the version that was
 * read and a notification, as one change.  Brokers that watch /config/changes read the notification; after 15 minutes
 * (Kafka's time) every one of them has, and it is removed. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum { NOTIFICATION_KEEP_MS = 15 * 60 * 1000 };

/* --- old notifications --- */

struct purge {
    struct event ev;
    struct controller *c;
    struct arena arena;
    struct str *names;
    size_t count;
};

struct purge_read {
    struct purge *pg;
    struct str path;
    bool old;
};

static void purge_end(struct purge *pg)
{
    arena_fini(&pg->arena);
    mem_free(pg);
}

static void notification_removed(void *arg, const struct coord_result *r)
{
    (void)r; /* somebody else may have been quicker */
    struct purge *pg = arg;
    event_call_done(pg->c, &pg->ev, OK);
}

static void notification_seen(void *arg, const struct coord_result *r)
{
    struct purge_read *rd = arg;
    struct controller *c = rd->pg->c;
    int64_t now_ms = clock_wall_ms(loop_clock(c->opt.loop));
    if (r->err == OK && now_ms - r->stat.ctime_ms > NOTIFICATION_KEEP_MS) {
        rd->pg->ev.pending++;
        coord_delete(c->opt.coord, rd->path, COORD_ANY_VERSION,
                     (struct coord_to){c->opt.loop, notification_removed, rd->pg});
    }
    event_call_done(c, &rd->pg->ev, OK);
}

static void notifications_listed(void *arg, const struct coord_result *r)
{
    struct purge *pg = arg;
    struct controller *c = pg->c;
    struct purge_read *rds = arena_array(&pg->arena, struct purge_read, r->child_count);
    for (size_t i = 0; i < r->child_count; i++) {
        rds[i].pg = pg;
        rds[i].path = arena_printf(&pg->arena, "/config/changes/%.*s", STR_ARG(r->children[i]));
        pg->ev.pending++;
        coord_exists(c->opt.coord, rds[i].path, COORD_NO_WATCH,
                     (struct coord_to){c->opt.loop, notification_seen, &rds[i]});
    }
    event_call_done(c, &pg->ev, OK);
}

static enum step purge_run(struct controller *c, struct event *ev)
{
    struct purge *pg = CONTAINER_OF(ev, struct purge, ev);
    if (ev->stage++ == 0) {
        ev->pending++;
        coord_children(c->opt.coord, ZNODE_CONFIG_CHANGES, COORD_NO_WATCH,
                       (struct coord_to){c->opt.loop, notifications_listed, pg});
        return STEP_WAIT;
    }
    purge_end(pg);
    return STEP_DONE;
}

static void purge_drop(struct controller *c, struct event *ev)
{
    (void)c;
    purge_end(CONTAINER_OF(ev, struct purge, ev));
}

static void purge_if_due(struct controller *c)
{
    int64_t now_ms = clock_wall_ms(loop_clock(c->opt.loop));
    if (c->purged_ms && now_ms - c->purged_ms < NOTIFICATION_KEEP_MS) return;
    c->purged_ms = now_ms;
    struct purge *pg = mem_zalloc(1, sizeof *pg);
    pg->ev = (struct event){.run = purge_run, .drop = purge_drop};
    pg->c = c;
    arena_init(&pg->arena, SIZE_MAX);
    controller_queue(c, &pg->ev);
}

/* --- alter --- */

enum alter_stage { ALTER_READ, ALTER_WRITE, ALTER_OVER };

static void settings_read(void *arg, const struct coord_result *r)
{
    struct op_topic *t = arg;
    if (r->err == OK) {
        struct str copy = arena_str(&t->op->arena, (struct str){(const char *)r->data.data, r->data.size});
        t->config = (struct bytes){(const uint8_t *)copy.data, copy.size};
        t->config_version = r->stat.version;
    } else if (r->err != ERR_NOT_FOUND) {
        op_topic_failed(t, r->err, r->text);
    }
    event_call_done(t->op->c, &t->op->ev, OK);
}

static void settings_written(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    (void)failed_step;
    if (e) op_topic_failed(arg, e, r->text);
}

static void alter_read(struct controller *c, struct op *op)
{
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        const struct controller_config_change *ch = &t->change;
        if (str_equal(ch->type, CONFIG_TOPICS)) {
            const struct topic *topic = str_is_null(ch->name) ? NULL : topic_find(c, ch->name);
            if (!topic || topic->deleting) {
                op_topic_finish(t, KERR_UNKNOWN_TOPIC_OR_PARTITION,
                                arena_printf(&op->arena, "The topic '%.*s' does not exist.", STR_ARG(ch->name)));
                continue;
            }
        }
        op->ev.pending++;
        coord_get(c->opt.coord, znode_config_path(&op->arena, ch->type, ch->name), COORD_NO_WATCH,
                  (struct coord_to){c->opt.loop, settings_read, t});
    }
}

static void alter_write_one(struct controller *c, struct op *op, struct op_topic *t)
{
    struct arena *a = &op->arena;
    const struct controller_config_change *ch = &t->change;
    struct str path = znode_config_path(a, ch->type, ch->name), message = STR_NULL;
    struct znode_config current, altered = {0};
    struct fault f;
    if (t->err) {
        op_topic_finish_failed(t);
        return;
    }
    /* What nobody can read is given up: an alteration is how it becomes readable again. */
    if (znode_config_decode_usable(a, path, t->config, &current, &f))
        LOG_WARN("stored_config_given_up", "reason=\"%s\"", f.text);
    enum kerr kerr = ch->alter(ch->arg, &current, a, &altered, &message);
    if (kerr || op->validate_only) {
        op_topic_finish(t, kerr, message);
        return;
    }
    struct writes w;
    writes_init(&w, c, &op->ev, a);
    w.done = settings_written;
    w.arg = t;
    writes_add(&w, (struct coord_op){.kind = t->config_version < 0 ? COORD_CREATE : COORD_SET,
                                     .path = path,
                                     .data = znode_config_encode(a, &altered),
                                     .version = t->config_version});
    struct str entity = arena_printf(a, "%.*s/%.*s", STR_ARG(ch->type), STR_ARG(ch->name));
    writes_add(&w, (struct coord_op){.kind = COORD_CREATE,
                                     .path = ZNODE_CONFIG_CHANGE,
                                     .data = znode_config_change_encode(a, entity),
                                     .flags = COORD_SEQUENTIAL});
    writes_flush(&w);
    writes_fini(&w);
}

static enum step alter_run(struct controller *c, struct event *ev)
{
    struct op *op = op_of(ev);
    switch ((enum alter_stage)ev->stage) {
    case ALTER_READ:
        ev->stage = ALTER_WRITE;
        alter_read(c, op);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case ALTER_WRITE:
        ev->stage = ALTER_OVER;
        for (size_t i = 0; i < op->count; i++)
            if (!op->topics[i].done) alter_write_one(c, op, &op->topics[i]);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case ALTER_OVER: break;
    }
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        if (t->done) continue;
        if (t->err) {
            op_topic_finish_failed(t);
            continue;
        }
        LOG_INFO("config_changed", "type=%.*s name=%.*s", STR_ARG(t->change.type), STR_ARG(t->change.name));
        op_topic_finish(t, KERR_NONE, STR_NULL);
    }
    purge_if_due(c);
    return op_event_over(op);
}

void controller_alter_configs(struct controller *c, const struct controller_config_change *changes, size_t count,
                              bool validate_only, struct controller_to to)
{
    struct op *op = op_new(c, count, to);
    op->validate_only = validate_only;
    for (size_t i = 0; i < count; i++) {
        struct controller_config_change *ch = &op->topics[i].change;
        *ch = changes[i];
        ch->type = arena_str(&op->arena, ch->type);
        ch->name = op->topics[i].result.name = arena_str(&op->arena, ch->name);
    }
    op_post(op, alter_run);
}

/* --- producer ids --- */

enum block_stage { BLOCK_READ, BLOCK_WRITE, BLOCK_OVER };

static void block_read(void *arg, const struct coord_result *r)
{
    struct op *op = arg;
    op->block_version = -1;
    op->block = (struct bytes){NULL, 0};
    if (r->err == OK) {
        struct str copy = arena_str(&op->arena, (struct str){(const char *)r->data.data, r->data.size});
        op->block = (struct bytes){(const uint8_t *)copy.data, copy.size};
        op->block_version = r->stat.version;
    } else if (r->err != ERR_NOT_FOUND) {
        op_topic_failed(&op->topics[0], r->err, r->text);
    }
    event_call_done(op->c, &op->ev, OK);
}

static void block_written(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    (void)failed_step;
    if (e) op_topic_failed(arg, e, r->text);
}

/* The next block after the one in the store; false: there is none, or the node cannot be read. */
static bool block_next(struct op *op, struct znode_producer_ids *next)
{
    struct znode_producer_ids last = {.end = -1};
    struct fault f;
    if (op->block.size && znode_producer_ids_decode(&op->arena, op->block, &last, &f)) {
        LOG_ERROR("producer_ids_unreadable", "reason=\"%s\"", f.text);
        return false;
    }
    if (last.end > INT64_MAX - PRODUCER_ID_BLOCK_SIZE) {
        LOG_ERROR("producer_ids_exhausted", "end=%lld", (long long)last.end);
        return false;
    }
    *next = (struct znode_producer_ids){op->broker_id, last.end + 1, last.end + PRODUCER_ID_BLOCK_SIZE};
    return true;
}

static void block_write(struct controller *c, struct op *op, const struct znode_producer_ids *next)
{
    struct writes w;
    writes_init(&w, c, &op->ev, &op->arena);
    w.done = block_written;
    w.arg = &op->topics[0];
    writes_add(&w, (struct coord_op){.kind = op->block_version < 0 ? COORD_CREATE : COORD_SET,
                                     .path = ZNODE_PRODUCER_ID_BLOCK,
                                     .data = znode_producer_ids_encode(&op->arena, next),
                                     .version = op->block_version});
    writes_flush(&w);
    writes_fini(&w);
    op->producer_id_start = next->start;
}

static enum kerr block_asker(const struct controller *c, const struct op *op)
{
    const struct broker *b = broker_find(c, op->broker_id);
    if (!b) return KERR_BROKER_ID_NOT_REGISTERED;
    return b->epoch == op->broker_epoch ? KERR_NONE : KERR_STALE_BROKER_EPOCH;
}

static enum step block_run(struct controller *c, struct event *ev)
{
    struct op *op = op_of(ev);
    struct op_topic *t = &op->topics[0];
    struct znode_producer_ids next;
    enum kerr kerr;
    switch ((enum block_stage)ev->stage) {
    case BLOCK_READ:
        kerr = block_asker(c, op);
        if (kerr) {
            op_topic_finish(t, kerr, STR_NULL);
            return op_event_over(op);
        }
        ev->stage = BLOCK_WRITE;
        t->err = OK;
        ev->pending++;
        coord_get(c->opt.coord, ZNODE_PRODUCER_ID_BLOCK, COORD_NO_WATCH,
                  (struct coord_to){c->opt.loop, block_read, op});
        return STEP_WAIT;
    case BLOCK_WRITE:
        ev->stage = BLOCK_OVER;
        if (t->err) break;
        if (!block_next(op, &next)) {
            op_topic_finish(t, KERR_UNKNOWN_SERVER_ERROR, STR_NULL);
            return op_event_over(op);
        }
        block_write(c, op, &next);
        return STEP_WAIT;
    case BLOCK_OVER: break;
    }
    if (t->err) {
        op_topic_finish_failed(t);
    } else {
        op->producer_id_count = PRODUCER_ID_BLOCK_SIZE;
        op_topic_finish(t, KERR_NONE, STR_NULL);
    }
    return op_event_over(op);
}

void controller_allocate_producer_ids(struct controller *c, int32_t broker_id, int64_t broker_epoch,
                                      struct controller_to to)
{
    struct op *op = op_new(c, 1, to);
    op->broker_id = broker_id;
    op->broker_epoch = broker_epoch;
    op_post(op, block_run);
}
