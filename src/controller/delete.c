/* delete.c: topics go in three steps: a marker below /admin/delete_topics; brokers forget the topic and remove their
 * replicas (StopReplica); then the topic's nodes go, the marker with the last of them.  After a crash the marker leads
 * the next controller through the rest.  A broker that is away holds the second step up until it is back. */
#define LOG_MODULE "controller"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

/* --- removing a topic's nodes --- */

enum removal_stage { REMOVAL_LIST, REMOVAL_LIST_PARTITIONS, REMOVAL_WRITE, REMOVAL_OVER };

struct removal {
    struct event ev;
    struct controller *c;
    struct arena arena;
    struct str name;
    bool has_partitions, has_settings;
    struct str *partitions; /* names below /partitions */
    size_t partition_count;
    struct str *nodes; /* paths: what is below each partition, then the partition */
    size_t node_count, node_cap;
};

static struct removal *removal_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct removal, ev);
}

static void removal_end(struct removal *rm)
{
    mem_free(rm->nodes);
    arena_fini(&rm->arena);
    mem_free(rm);
}

static struct coord_to removal_to(struct removal *rm, coord_done_fn done)
{
    return event_to(rm->c, &rm->ev, done, rm);
}

static void partitions_listed(void *arg, const struct coord_result *r)
{
    struct removal *rm = arg;
    rm->has_partitions = r->err == OK;
    rm->partitions = names_copy(&rm->arena, r, &rm->partition_count);
    event_call_done(rm->c, &rm->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void settings_seen(void *arg, const struct coord_result *r)
{
    struct removal *rm = arg;
    rm->has_settings = r->err == OK;
    event_call_done(rm->c, &rm->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void add_node(struct removal *rm, struct str path)
{
    rm->nodes = mem_grow(rm->nodes, &rm->node_cap, rm->node_count + 1, sizeof *rm->nodes);
    rm->nodes[rm->node_count++] = path;
}

static void nodes_listed(void *arg, const struct coord_result *r)
{
    struct removal *rm = arg;
    for (size_t i = 0; i < r->child_count; i++)
        add_node(rm, arena_printf(&rm->arena, "%.*s/%.*s", STR_ARG(r->path), STR_ARG(r->children[i])));
    if (r->err == OK) add_node(rm, arena_str(&rm->arena, r->path));
    event_call_done(rm->c, &rm->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static struct str partition_dir(struct removal *rm, size_t i)
{
    return arena_printf(&rm->arena, "/brokers/topics/%.*s/partitions/%.*s", STR_ARG(rm->name),
                        STR_ARG(rm->partitions[i]));
}

static void add_removal(struct writes *w, struct str path)
{
    writes_add(w, (struct coord_op){.kind = COORD_DELETE, .path = path, .version = COORD_ANY_VERSION});
}

static void removal_write(struct removal *rm)
{
    struct arena *a = &rm->arena;
    struct writes w;
    writes_init(&w, rm->c, &rm->ev, a);
    for (size_t i = 0; i < rm->node_count; i++) add_removal(&w, rm->nodes[i]);
    writes_flush(&w);
    /* The rest in one change: a marker never outlives its topic, nor the other way round. */
    if (rm->has_partitions) add_removal(&w, znode_partitions_path(a, rm->name));
    add_removal(&w, znode_topic_path(a, rm->name));
    if (rm->has_settings) add_removal(&w, znode_config_path(a, CONFIG_TOPICS, rm->name));
    add_removal(&w, znode_delete_topic_path(a, rm->name));
    writes_flush(&w);
    writes_fini(&w);
}

static void waiters_finish(struct topic *t, enum kerr kerr, struct str message)
{
    for (struct list_node *n; (n = list_pop_front(&t->deletion_waiters));)
        op_topic_finish(CONTAINER_OF(n, struct op_topic, waiting), kerr, message);
}

static enum step removal_run(struct controller *c, struct event *ev)
{
    struct removal *rm = removal_of(ev);
    if (ev->err) {
        LOG_WARN("deletion_failed", "topic=%.*s error=%s", STR_ARG(rm->name), err_name(ev->err));
        controller_depose_if(c, ev->err);
        if (!c->deposed) controller_reload(c);
        removal_end(rm);
        return STEP_DONE;
    }
    switch ((enum removal_stage)ev->stage) {
    case REMOVAL_LIST:
        ev->stage = REMOVAL_LIST_PARTITIONS;
        coord_children(c->opt.coord, znode_partitions_path(&rm->arena, rm->name), COORD_NO_WATCH,
                       removal_to(rm, partitions_listed));
        coord_exists(c->opt.coord, znode_config_path(&rm->arena, CONFIG_TOPICS, rm->name), COORD_NO_WATCH,
                     removal_to(rm, settings_seen));
        return STEP_WAIT;
    case REMOVAL_LIST_PARTITIONS:
        ev->stage = REMOVAL_WRITE;
        for (size_t i = 0; i < rm->partition_count; i++)
            coord_children(c->opt.coord, partition_dir(rm, i), COORD_NO_WATCH, removal_to(rm, nodes_listed));
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case REMOVAL_WRITE:
        ev->stage = REMOVAL_OVER;
        removal_write(rm);
        return STEP_WAIT;
    case REMOVAL_OVER: break;
    }
    struct topic *t = topic_find(c, rm->name);
    LOG_INFO("topic_deleted", "topic=%.*s", STR_ARG(rm->name));
    waiters_finish(t, KERR_NONE, STR_NULL);
    topic_remove(c, t);
    removal_end(rm);
    return STEP_DONE;
}

static void removal_drop(struct controller *c, struct event *ev)
{
    (void)c;
    removal_end(removal_of(ev));
}

static void removal_queue(struct controller *c, struct topic *t)
{
    struct removal *rm = mem_zalloc(1, sizeof *rm);
    t->deletion_queued = true;
    rm->ev = (struct event){.run = removal_run, .drop = removal_drop};
    rm->c = c;
    arena_init(&rm->arena, SIZE_MAX);
    rm->name = arena_str(&rm->arena, t->name);
    controller_queue(c, &rm->ev);
}

/* --- replicas --- */

static bool holders_are_alive(const struct controller *c, const struct topic *t)
{
    for (int32_t i = 0; i < t->partition_count; i++)
        for (int32_t r = 0; r < t->partitions[i].replica_count; r++)
            if (!broker_is_alive(c, t->partitions[i].replicas[r])) return false;
    return true;
}

static void remove_if_stopped(struct controller *c, struct topic *t)
{
    if (t->deletion_waits == 0 && !t->deletion_queued && holders_are_alive(c, t)) removal_queue(c, t);
}

enum { RETRY_US_MIN = 1000 * 1000, RETRY_US_MAX = 60 * 1000 * 1000 };

/* The disk may have been full, or the directory is offline: both can last. */
static void retry_later(struct controller *c)
{
    if (c->stopping || timer_is_set(&c->deletion_retry)) return;
    c->deletion_wait_us = MIN(MAX(c->deletion_wait_us * 2, RETRY_US_MIN), RETRY_US_MAX);
    loop_timer_set(c->opt.loop, &c->deletion_retry, loop_now_us(c->opt.loop) + c->deletion_wait_us);
}

void deletion_retry_fire(struct timer *t)
{
    struct controller *c = CONTAINER_OF(t, struct controller, deletion_retry);
    if (!c->stopping && c->state == CONTROLLER_ACTIVE) deletion_resume(c);
}

void deletion_stopped(struct controller *c, struct str topic, uint64_t sending, bool ok)
{
    struct topic *t = topic_find(c, topic);
    if (!t || !t->deleting || t->deletion_waits == 0 || t->deletion_sending != sending) return;
    if (!ok) {
        LOG_WARN("replica_not_deleted", "topic=%.*s", STR_ARG(topic));
        retry_later(c);
        return;
    }
    c->deletion_wait_us = 0;
    t->deletion_waits--;
    remove_if_stopped(c, t);
}

void deletion_resume(struct controller *c)
{
    struct sending *s = sending_new(c);
    bool any = false;
    for (struct topic *t = c->topics; t; t = t->by_name.next) {
        if (!t->deleting || t->deletion_queued) continue;
        sending_add_deletion(s, t);
        any = true;
    }
    if (any)
        sending_send(s, NULL, NULL);
    else
        sending_drop(s);
    for (struct topic *t = c->topics; t; t = t->by_name.next)
        if (t->deleting) remove_if_stopped(c, t);
}

void deletion_abandon(struct controller *c)
{
    for (struct topic *t = c->topics; t; t = t->by_name.next)
        waiters_finish(t, KERR_NOT_CONTROLLER, STR("This is not the correct controller for this cluster."));
}

/* --- the operation --- */

enum delete_stage { DELETE_MARK, DELETE_TELL };

static void marked(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    (void)failed_step;
    if (e) op_topic_failed(arg, e, r->text);
}

static struct topic *find_deletable(const struct controller *c, struct op_topic *t)
{
    bool by_id = str_is_null(t->ref.name);
    struct topic *topic = by_id ? topic_find_id(c, t->ref.topic_id) : topic_find(c, t->ref.name);
    if (!topic) {
        t->result.topic_id = t->ref.topic_id;
        op_topic_finish(t, by_id ? KERR_UNKNOWN_TOPIC_ID : KERR_UNKNOWN_TOPIC_OR_PARTITION, STR_NULL);
        return NULL;
    }
    t->result.name = arena_str(&t->op->arena, topic->name);
    t->result.topic_id = topic->id;
    return topic;
}

static void delete_mark(struct controller *c, struct op *op)
{
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        t->topic = find_deletable(c, t);
        if (!t->topic || t->topic->deleting) continue;
        struct writes w;
        writes_init(&w, c, &op->ev, &op->arena);
        w.done = marked;
        w.arg = t;
        writes_add(
            &w, (struct coord_op){.kind = COORD_CREATE, .path = znode_delete_topic_path(&op->arena, t->topic->name)});
        writes_flush(&w);
        writes_fini(&w);
    }
}

/* Brokers no longer know the topics: who waits for a broker that is away has waited long enough. */
static void deletion_told(void *arg)
{
    struct op *op = arg;
    for (size_t i = 0; i < op->count; i++)
        if (op->topics[i].deferred) op_topic_finish(&op->topics[i], KERR_NONE, STR_NULL);
    op_release(op);
}

static enum step delete_tell(struct controller *c, struct op *op)
{
    struct sending *s = sending_new(c);
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        struct topic *topic = t->topic;
        if (t->done) continue;
        if (t->err && t->err != ERR_EXISTS) {
            op_topic_finish_failed(t);
            continue;
        }
        list_push_back(&topic->deletion_waiters, &t->waiting);
        if (topic->deleting) {
            t->deferred = !holders_are_alive(c, topic);
            continue;
        }
        topic->deleting = true;
        t->deferred = !sending_add_deletion(s, topic);
    }
    op_hold(op); /* until deletion_told() */
    sending_send(s, deletion_told, op);
    for (size_t i = 0; i < op->count; i++)
        if (!op->topics[i].done && op->topics[i].topic) remove_if_stopped(c, op->topics[i].topic);
    return op_event_over(op);
}

static enum step delete_run(struct controller *c, struct event *ev)
{
    struct op *op = op_of(ev);
    if (ev->stage == DELETE_TELL) return delete_tell(c, op);
    ev->stage = DELETE_TELL;
    delete_mark(c, op);
    return ev->pending ? STEP_WAIT : delete_tell(c, op);
}

void controller_delete_topics(struct controller *c, const struct controller_topic_ref *topics, size_t count,
                              int32_t timeout_ms, struct controller_to to)
{
    struct op *op = op_new(c, count, to);
    op->has_timeout = true;
    op->timeout_ms = timeout_ms;
    for (size_t i = 0; i < count; i++) {
        struct controller_topic_ref *ref = &op->topics[i].ref;
        *ref = topics[i];
        ref->name = op->topics[i].result.name = arena_str(&op->arena, ref->name);
        op->topics[i].result.topic_id = ref->topic_id;
    }
    op_post(op, delete_run);
}
