/* ops.c: what all operations share: the copy of the request, results, the deadline, the answer.
 *
 * An operation lives on the controller's loop.  Its answer is a copy of the results, so that the operation can go on
 * when the client was told REQUEST_TIMED_OUT. */
#include <string.h>

#include "base/mem.h"
#include "controller/controller_internal.h"

struct answer {
    struct loop_msg msg;
    struct controller_to to;
    struct arena arena;
    struct controller_results results;
};

static void answer_run(struct loop_msg *msg)
{
    struct answer *an = CONTAINER_OF(msg, struct answer, msg);
    an->to.done(an->to.arg, &an->results);
    arena_fini(&an->arena);
    mem_free(an);
}

static void op_answer(struct op *op)
{
    if (op->answered) return;
    op->answered = true;
    loop_timer_cancel(op->c->opt.loop, &op->deadline);
    struct answer *an = mem_zalloc(1, sizeof *an);
    an->msg.run = answer_run;
    an->to = op->to;
    arena_init(&an->arena, SIZE_MAX);
    struct controller_result *results = arena_array(&an->arena, struct controller_result, op->count);
    for (size_t i = 0; i < op->count; i++) {
        results[i] = op->topics[i].result;
        results[i].name = arena_str(&an->arena, results[i].name);
        results[i].message = arena_str(&an->arena, results[i].message);
        if (op->topics[i].done) continue;
        results[i].kerr = KERR_REQUEST_TIMED_OUT;
        results[i].message = STR_NULL;
    }
    an->results = (struct controller_results){results, op->count, op->producer_id_start, op->producer_id_count};
    loop_post(op->to.loop, &an->msg);
}

static void op_check(struct op *op)
{
    if (op->open == 0 && op->event_over) op_answer(op);
    if (!op->answered || op->open || !op->event_over) return;
    arena_fini(&op->arena);
    mem_free(op);
}

static void deadline_fire(struct timer *t)
{
    op_answer(CONTAINER_OF(t, struct op, deadline));
}

struct op *op_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct op, ev);
}

void op_topic_finish(struct op_topic *t, enum kerr kerr, struct str message)
{
    struct op *op = t->op;
    if (t->done) return;
    t->done = true;
    t->topic = NULL;
    list_remove(&t->waiting);
    t->result.kerr = kerr;
    t->result.message = arena_str(&op->arena, message);
    if (kerr) {
        t->result.partition_count = -1;
        t->result.replication_factor = -1;
    }
    op->open--;
    op_check(op);
}

void op_hold(struct op *op)
{
    op->open++;
}

void op_release(struct op *op)
{
    op->open--;
    op_check(op);
}

void op_topic_failed(struct op_topic *t, enum err e, const char *text)
{
    if (!t->err) {
        t->err = e;
        t->text = arena_str(&t->op->arena, str_of(text));
    }
    controller_depose_if(t->op->c, e);
}

void op_topic_finish_failed(struct op_topic *t)
{
    switch ((int)t->err) {
    case ERR_IO:
    case ERR_FULL:
    case ERR_DENIED:
    case ERR_LOCKED: op_topic_finish(t, KERR_KAFKA_STORAGE_ERROR, t->text); return;
    default: op_topic_finish(t, KERR_UNKNOWN_SERVER_ERROR, t->text);
    }
}

enum step op_event_over(struct op *op)
{
    op->event_over = true;
    op->c->queued_ops--;
    if (op->has_timeout && op->timeout_ms <= 0) op_answer(op); /* what is open now is answered with REQUEST_TIMED_OUT */
    op_check(op);
    return STEP_DONE;
}

/* Out of office, before or in the middle of it. */
static void op_drop(struct controller *c, struct event *ev)
{
    (void)c;
    struct op *op = op_of(ev);
    for (size_t i = 0; i < op->count; i++)
        op_topic_finish(&op->topics[i], KERR_NOT_CONTROLLER,
                        STR("This is not the correct controller for this cluster."));
    op_event_over(op);
}

static void op_arrive(struct loop_msg *msg)
{
    struct op *op = CONTAINER_OF(msg, struct op, arrive);
    struct controller *c = op->c;
    if (op->has_timeout && op->timeout_ms > 0)
        loop_timer_set(c->opt.loop, &op->deadline, loop_now_us(c->opt.loop) + (int64_t)op->timeout_ms * 1000);
    if (c->queued_ops++ < CONTROLLER_OPS_MAX) {
        controller_queue(c, &op->ev);
        return;
    }
    for (size_t i = 0; i < op->count; i++)
        op_topic_finish(&op->topics[i], KERR_THROTTLING_QUOTA_EXCEEDED, STR("Too many operations are waiting."));
    op_event_over(op);
}

struct op *op_new(struct controller *c, size_t count, struct controller_to to)
{
    struct op *op = mem_zalloc(1, sizeof *op);
    op->c = c;
    op->to = to;
    op->deadline.fire = deadline_fire;
    arena_init(&op->arena, SIZE_MAX);
    op->topics = arena_array(&op->arena, struct op_topic, count);
    op->count = op->open = count;
    for (size_t i = 0; i < count; i++) {
        op->topics[i].op = op;
        op->topics[i].result.partition_count = -1;
        op->topics[i].result.replication_factor = -1;
        op->topics[i].config_version = -1;
    }
    return op;
}

void op_post(struct op *op, enum step (*run)(struct controller *c, struct event *ev))
{
    op->ev = (struct event){.run = run, .drop = op_drop};
    op->arrive.run = op_arrive;
    loop_post(op->c->opt.loop, &op->arrive);
}
