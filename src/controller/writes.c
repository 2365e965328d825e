/* writes.c: changes of the store, gathered into multis of bounded size that all check the controller's epoch.
 * Multis are pipelined: the store executes them in order, so a later one sees what an earlier one made. */
#include <string.h>

#include "base/mem.h"
#include "controller/controller_internal.h"

/* One multi on its way. */
struct flight {
    struct controller *c;
    struct event *ev;
    void (*done)(void *arg, enum err e, size_t failed_step, const struct coord_result *r);
    void *arg;
};

void writes_init(struct writes *w, struct controller *c, struct event *ev, struct arena *a)
{
    *w = (struct writes){.c = c, .ev = ev, .a = a};
}

static void flight_done(void *arg, const struct coord_result *r)
{
    struct flight *f = arg;
    struct controller *c = f->c;
    size_t failed = 0;
    while (failed < r->result_count && r->results[failed].err == OK) failed++;
    if (r->err && failed == 0 && (r->err == ERR_VERSION || r->err == ERR_NOT_FOUND)) controller_depose(c);
    controller_depose_if(c, r->err);
    if (f->done) f->done(f->arg, r->err, failed, r);
    event_call_done(c, f->ev, r->err);
}

void writes_flush(struct writes *w)
{
    if (w->count == 0) return;
    struct flight *f = arena_alloc(w->a, sizeof *f);
    *f = (struct flight){.c = w->c, .ev = w->ev, .done = w->done, .arg = w->arg};
    w->ev->pending++;
    coord_multi(w->c->opt.coord, w->ops, w->count, (struct coord_to){w->c->opt.loop, flight_done, f});
    w->count = w->bytes = 0;
}

static void push(struct writes *w, struct coord_op op)
{
    w->ops = mem_grow(w->ops, &w->cap, w->count + 1, sizeof *w->ops);
    w->ops[w->count++] = op;
    w->bytes += coord_op_bytes(&op);
}

void writes_add(struct writes *w, struct coord_op op)
{
    if (w->count && (w->bytes + coord_op_bytes(&op) > WRITE_BYTES_MAX || w->count >= WRITE_STEPS_MAX)) writes_flush(w);
    if (w->count == 0)
        push(w, (struct coord_op){.kind = COORD_CHECK, .path = ZNODE_CONTROLLER_EPOCH, .version = w->c->epoch_version});
    push(w, op);
}

void writes_fini(struct writes *w)
{
    ASSERT(w->count == 0);
    mem_free(w->ops);
}
