/* controller.c: the controller's life: its beginning, the queue of events, the end.
 *
 * WHAT ALWAYS HOLDS
 * (1) One event at a time is between its begin and its end.  Only it changes the tables.
 * (2) Out of office the tables are empty.
 * (3) Whenever the store refuses a write that the tables allowed, the tables are wrong: the controller leaves office
 * and runs again, which reads everything anew.  So it does when the connection to the store broke while a write was
 * out: nobody knows then what is written. */
#include "controller/controller.h"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

#define LOG_MODULE "controller"

/* --- events --- */

static void stopped_run(struct loop_msg *msg)
{
    struct controller *c = CONTAINER_OF(msg, struct controller, stop_msg);
    void (*stopped)(void *) = c->stopped;
    c->stopped = NULL;
    if (stopped) stopped(c->stopped_arg);
}

static void stop_check(struct controller *c)
{
    if (!c->stopping || c->current || !list_is_empty(&c->queue) || c->messages_out || c->stop_msg.run) return;
    c->stop_msg.run = stopped_run;
    loop_post(c->opt.loop, &c->stop_msg);
}

/* Enters the current event; false when it waits. */
static bool current_run(struct controller *c)
{
    struct event *ev = c->current;
    if (ev->pending) return false;
    if (c->deposed || c->stopping || (c->state != CONTROLLER_ACTIVE && !ev->any_state)) {
        c->current = NULL;
        ev->drop(c, ev);
        return true;
    }
    if (ev->run(c, ev) == STEP_WAIT) {
        ASSERT(ev->pending || c->deposed || c->stopping);
        return ev->pending == 0;
    }
    c->current = NULL;
    return true;
}

void controller_pump(struct controller *c)
{
    if (c->running) return;
    c->running = true;
    for (;;) {
        if (c->current && !current_run(c)) break;
        if (c->current) continue;
        if (c->deposed) office_leave(c);
        struct list_node *next = list_pop_front(&c->queue);
        if (!next) break;
        c->current = CONTAINER_OF(next, struct event, link);
    }
    c->running = false;
    stop_check(c);
}

void controller_queue(struct controller *c, struct event *ev)
{
    ASSERT_OWNER(c->opt.loop);
    list_push_back(&c->queue, &ev->link);
    controller_pump(c);
}

struct coord_to event_to(struct controller *c, struct event *ev, coord_done_fn done, void *arg)
{
    ev->pending++;
    return (struct coord_to){c->opt.loop, done, arg};
}

void event_call_done(struct controller *c, struct event *ev, enum err e)
{
    ASSERT(ev == c->current && ev->pending > 0);
    if (e && !ev->err) ev->err = e;
    if (--ev->pending == 0) controller_pump(c);
}

void controller_depose(struct controller *c)
{
    c->deposed = true;
}

void controller_depose_if(struct controller *c, enum err e)
{
    if (e == ERR_CLOSED || e == ERR_EXPIRED || e == ERR_UNSURE) controller_depose(c);
}

void controller_reload(struct controller *c)
{
    c->deposed = c->tables_wrong = true;
}

void controller_fail(struct controller *c, const struct fault *f)
{
    LOG_ERROR("controller_failed", "broker=%d reason=\"%s\"", c->opt.broker_id, f->text);
    if (c->opt.failed) c->opt.failed(c->opt.arg, f);
}

bool controller_leaves_out(const struct controller *c, struct fault *f)
{
    if (f->code != ERR_CORRUPT || !c->opt.leaves_out_malformed) return false;
    LOG_ERROR("left_out", "reason=\"%s\"", f->text);
    *f = (struct fault){0};
    return true;
}

/* --- life --- */

struct controller *controller_start(const struct controller_options *opt)
{
    struct controller *c = mem_zalloc(1, sizeof *c);
    c->opt = *opt;
    struct str listener = opt->inter_broker_listener;
    if (!str_is_null(listener)) c->opt.inter_broker_listener.data = mem_strndup(listener.data, listener.size);
    list_init(&c->queue);
    list_init(&c->reassigning);
    c->retry.fire = office_retry_fire;
    c->deletion_retry.fire = deletion_retry_fire;
    c->balance.fire = balance_fire;
    office_queue(c);
    return c;
}

void controller_session_lost(struct controller *c)
{
    ASSERT_OWNER(c->opt.loop);
    c->no_session = true;
    loop_timer_cancel(c->opt.loop, &c->retry);
    if (c->stopping) return;
    c->session_ended = true;
    controller_depose(c);
    controller_pump(c);
}

void controller_session_renewed(struct controller *c)
{
    ASSERT_OWNER(c->opt.loop);
    c->no_session = false;
    if (c->stopping || c->deposed || c->state != CONTROLLER_STANDBY) return; /* office_leave() goes on */
    if (!c->office_queued) office_queue(c);
}

void controller_stand_back(struct controller *c, int64_t wait_ms)
{
    ASSERT_OWNER(c->opt.loop);
    if (!c->opt.fast_failure_detection || c->stopping || c->state == CONTROLLER_STANDBY) return;
    LOG_WARN("controller_stands_back",
             "broker=%d epoch=%d wait_ms=%lld reason=\"none of the other brokers can be reached from here\"",
             c->opt.broker_id, c->epoch, (long long)wait_ms);
    c->back_us = wait_ms * 1000;
    controller_depose(c);
    controller_pump(c);
}

void controller_stop(struct controller *c, void (*stopped)(void *arg), void *arg)
{
    ASSERT_OWNER(c->opt.loop);
    ASSERT(!c->stopping);
    c->stopping = true;
    c->stopped = stopped;
    c->stopped_arg = arg;
    loop_timer_cancel(c->opt.loop, &c->retry);
    loop_timer_cancel(c->opt.loop, &c->deletion_retry);
    if (c->state != CONTROLLER_STANDBY) controller_depose(c);
    controller_pump(c);
}

void controller_free(struct controller *c)
{
    if (!c) return;
    ASSERT(c->stopping && !c->stopped && !c->current && list_is_empty(&c->queue));
    state_clear(c);
    mem_free((void *)(uintptr_t)c->opt.inter_broker_listener.data);
    mem_free(c);
}

bool controller_is_active(const struct controller *c)
{
    return c->state == CONTROLLER_ACTIVE;
}

/* --- looking inside --- */

enum controller_state controller_state(const struct controller *c)
{
    return c->state;
}

int32_t controller_epoch(const struct controller *c)
{
    return c->epoch;
}

size_t controller_topic_count(const struct controller *c)
{
    return HASH_CNT(by_name, c->topics);
}

size_t controller_broker_count(const struct controller *c)
{
    return HASH_COUNT(c->brokers);
}

bool controller_find_topic(const struct controller *c, struct str name, struct controller_topic *out)
{
    const struct topic *t = topic_find(c, name);
    if (!t) return false;
    *out = (struct controller_topic){t->name, t->id, t->partitions, t->partition_count, t->deleting};
    return true;
}
