/* coord.c: the front of every store: copies arguments into calls, carries results to loops, counts what is in flight.
 */
#include "coord/coord.h"

#include <string.h>

#include "base/mem.h"
#include "coord/coord_internal.h"

void coord_init(struct coord *c, const struct coord_ops *ops, int64_t session, struct coord_listener listener)
{
    *c = (struct coord){.ops = ops, .session = session, .listener = listener};
    atomic_store(&c->told_session, session);
    atomic_store(&c->in_flight, 1); /* the session's own, dropped when its close is delivered */
}

int64_t coord_session_id(const struct coord *c)
{
    return atomic_load(&c->told_session);
}

void coord_renew(struct coord *c)
{
    ASSERT(c->ops->renew && !c->close_loop);
    c->ops->renew(c);
}

/* --- what is in flight --- */

static void closed_run(struct loop_msg *msg)
{
    struct coord *c = CONTAINER_OF(msg, struct coord, close_msg);
    void (*closed)(void *) = c->closed;
    void *arg = c->closed_arg;
    c->ops->free(c);
    if (closed) closed(arg);
}

static void in_flight_drop(struct coord *c)
{
    if (atomic_fetch_sub(&c->in_flight, 1) != 1) return;
    c->close_msg.run = closed_run;
    loop_post(c->close_loop, &c->close_msg);
}

static void delivery_run(struct loop_msg *msg)
{
    struct coord_delivery *d = CONTAINER_OF(msg, struct coord_delivery, msg);
    struct coord *c = d->c;
    d->run(d);
    in_flight_drop(c);
}

void coord_deliver(struct coord_delivery *d)
{
    d->msg.run = delivery_run;
    loop_post(d->loop, &d->msg);
}

/* --- calls --- */

void *coord_call_alloc(struct coord_call *call, size_t size)
{
    struct coord_mem *m = mem_zalloc(1, sizeof *m + size);
    m->next = call->mem;
    call->mem = m;
    return m->room;
}

struct str coord_call_str(struct coord_call *call, struct str s)
{
    if (str_is_null(s)) return s;
    char *copy = coord_call_alloc(call, s.size + 1);
    if (s.size) memcpy(copy, s.data, s.size);
    return (struct str){copy, s.size};
}

void coord_call_fail(struct coord_call *call, enum err e, const char *text)
{
    struct coord_op_result *results = NULL;
    if (call->kind == COORD_MULTI && call->op_count) {
        results = coord_call_alloc(call, call->op_count * sizeof *results);
        for (size_t i = 0; i < call->op_count; i++) results[i].err = ERR_AGAIN;
    }
    call->result = (struct coord_result){.err = e,
                                         .path = call->op_count ? call->ops[0].path : STR_NULL,
                                         .results = results,
                                         .result_count = results ? call->op_count : 0};
    if (text) call->result.text = coord_call_str(call, str_of(text)).data;
}

static void call_run(struct coord_delivery *d)
{
    struct coord_call *call = CONTAINER_OF(d, struct coord_call, delivery);
    if (call->to.done) call->to.done(call->to.arg, &call->result);
    while (call->mem) {
        struct coord_mem *m = call->mem;
        call->mem = m->next;
        mem_free(m);
    }
    mem_free(call);
}

size_t coord_op_bytes(const struct coord_op *op)
{
    enum { STEP_OVERHEAD = 64 }; /* headers, lengths, access list and flags in ZooKeeper's encoding, rounded up */
    return COORD_CHROOT_MAX + op->path.size + op->data.size + STEP_OVERHEAD;
}

static struct coord_call *call_new(struct coord *c, enum coord_op_kind kind, const struct coord_op *ops, size_t count,
                                   struct coord_watch watch, struct coord_to to)
{
    size_t size = sizeof(struct coord_call) + count * sizeof *ops;
    for (size_t i = 0; i < count; i++) size += ops[i].path.size + ops[i].data.size + 1;
    struct coord_call *call = mem_alloc(size);
    *call = (struct coord_call){.delivery = {.loop = to.loop, .c = c, .is_result = true, .run = call_run},
                                .kind = kind,
                                .ops = (struct coord_op *)(void *)(call + 1),
                                .op_count = count,
                                .watch = watch,
                                .to = to};
    char *at = (char *)(call->ops + count);
    for (size_t i = 0; i < count; i++) {
        struct coord_op *op = &call->ops[i];
        *op = ops[i];
        if (op->path.size) memcpy(at, op->path.data, op->path.size);
        op->path.data = at;
        at += op->path.size;
        *at++ = '\0';
        if (!op->data.data) continue;
        if (op->data.size) memcpy(at, op->data.data, op->data.size);
        op->data.data = (const uint8_t *)at;
        at += op->data.size;
    }
    return call;
}

static void call_submit(struct coord *c, enum coord_op_kind kind, const struct coord_op *ops, size_t count,
                        struct coord_watch watch, struct coord_to to)
{
    ASSERT(to.loop);
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += coord_op_bytes(&ops[i]);
    enum err e = OK;
    if (bytes > COORD_BYTES_MAX) e = ERR_TOO_BIG;
    int64_t before = atomic_fetch_add(&c->in_flight, 1);
    ASSERT(before > 0); /* else it is on its way out */
    if (c->close_loop) e = ERR_CLOSED;
    if (before >= COORD_CALLS_MAX) e = ERR_TOO_MANY;
    struct coord_call *call = call_new(c, kind, ops, e ? 0 : count, watch, to);
    if (e) {
        coord_call_fail(call, e, NULL);
        coord_deliver(&call->delivery);
        return;
    }
    c->ops->submit(c, call);
}

static void op_submit(struct coord *c, struct coord_op op, struct coord_watch watch, struct coord_to to)
{
    call_submit(c, op.kind, &op, 1, watch, to);
}

void coord_create(struct coord *c, struct str path, struct bytes data, unsigned flags, struct coord_to to)
{
    op_submit(c, (struct coord_op){.kind = COORD_CREATE, .path = path, .data = data, .flags = flags}, COORD_NO_WATCH,
              to);
}

void coord_get(struct coord *c, struct str path, struct coord_watch watch, struct coord_to to)
{
    op_submit(c, (struct coord_op){.kind = COORD_GET, .path = path}, watch, to);
}

void coord_set(struct coord *c, struct str path, struct bytes data, int32_t version, struct coord_to to)
{
    op_submit(c, (struct coord_op){.kind = COORD_SET, .path = path, .data = data, .version = version}, COORD_NO_WATCH,
              to);
}

void coord_delete(struct coord *c, struct str path, int32_t version, struct coord_to to)
{
    op_submit(c, (struct coord_op){.kind = COORD_DELETE, .path = path, .version = version}, COORD_NO_WATCH, to);
}

void coord_exists(struct coord *c, struct str path, struct coord_watch watch, struct coord_to to)
{
    op_submit(c, (struct coord_op){.kind = COORD_EXISTS, .path = path}, watch, to);
}

void coord_children(struct coord *c, struct str path, struct coord_watch watch, struct coord_to to)
{
    op_submit(c, (struct coord_op){.kind = COORD_CHILDREN, .path = path}, watch, to);
}

void coord_multi(struct coord *c, const struct coord_op *ops, size_t count, struct coord_to to)
{
    call_submit(c, COORD_MULTI, ops, count, COORD_NO_WATCH, to);
}

void coord_close(struct coord *c, struct loop *loop, void (*closed)(void *arg), void *arg)
{
    ASSERT(loop && !c->close_loop);
    struct coord_call *call = call_new(c, COORD_MULTI, NULL, 0, COORD_NO_WATCH, (struct coord_to){.loop = loop});
    call->is_close = true;
    c->closed = closed;
    c->closed_arg = arg;
    c->close_loop = loop;
    c->ops->submit(c, call);
}

/* --- news and events --- */

struct news {
    struct coord_delivery delivery;
    enum coord_state state;
    int64_t session;
    struct fault fault;
};

static void news_run(struct coord_delivery *d)
{
    struct news *n = CONTAINER_OF(d, struct news, delivery);
    atomic_store(&d->c->told_session, n->session);
    d->c->listener.changed(d->c->listener.arg, n->state, n->fault.code ? &n->fault : NULL);
    mem_free(n);
}

struct coord_delivery *coord_news_new(struct coord *c, enum coord_state state, const struct fault *f)
{
    if (!c->listener.changed) {
        atomic_store(&c->told_session, c->session);
        return NULL;
    }
    struct news *n = mem_zalloc(1, sizeof *n);
    n->delivery = (struct coord_delivery){.loop = c->listener.loop, .c = c, .run = news_run};
    n->state = state;
    n->session = c->session;
    if (f) n->fault = *f;
    atomic_fetch_add(&c->in_flight, 1);
    return &n->delivery;
}

struct event {
    struct coord_delivery delivery;
    struct coord_watch watch;
    enum coord_event event;
    size_t path_size;
    char path[];
};

static void event_run(struct coord_delivery *d)
{
    struct event *ev = CONTAINER_OF(d, struct event, delivery);
    ev->watch.fired(ev->watch.arg, ev->event, (struct str){ev->path, ev->path_size});
    mem_free(ev);
}

struct coord_delivery *coord_event_new(struct coord *c, struct loop *loop, struct coord_watch watch,
                                       enum coord_event event, struct str path)
{
    struct event *ev = mem_alloc(sizeof *ev + path.size);
    ev->delivery = (struct coord_delivery){.loop = loop, .c = c, .is_event = true, .run = event_run};
    ev->watch = watch;
    ev->event = event;
    ev->path_size = path.size;
    memcpy(ev->path, path.data, path.size);
    atomic_fetch_add(&c->in_flight, 1);
    return &ev->delivery;
}

void coord_event_drop(struct coord_delivery *d)
{
    struct event *ev = CONTAINER_OF(d, struct event, delivery);
    struct coord *c = d->c;
    mem_free(ev);
    in_flight_drop(c);
}

/* --- paths --- */

static bool part_is_ok(struct str part)
{
    if (part.size == 0 || str_is(part, ".") || str_is(part, "..")) return false;
    for (size_t i = 0; i < part.size; i++) {
        unsigned char ch = (unsigned char)part.data[i];
        if (ch < 0x20 || ch == 0x7f) return false;
    }
    return true;
}

bool coord_path_is_ok(struct str path)
{
    if (path.size == 0 || path.size > COORD_PATH_MAX || path.data[0] != '/') return false;
    if (path.size == 1) return true;
    size_t from = 1;
    for (size_t i = 1; i <= path.size; i++) {
        if (i < path.size && path.data[i] != '/') continue;
        if (!part_is_ok((struct str){path.data + from, i - from})) return false;
        from = i + 1;
    }
    return true;
}

/* One coord_make_paths() under way: creates are pipelined, the last answer tells. */
struct make_paths {
    struct coord_to to;
    size_t pending;
    enum err err;
};

static void make_paths_done(void *arg, const struct coord_result *r)
{
    struct make_paths *mp = arg;
    if (r->err && r->err != ERR_EXISTS && !mp->err) mp->err = r->err;
    if (--mp->pending) return;
    struct coord_result all = {.err = mp->err, .text = mp->err ? r->text : NULL};
    if (mp->to.done) mp->to.done(mp->to.arg, &all);
    mem_free(mp);
}

void coord_make_paths(struct coord *c, const struct str *paths, size_t count, struct coord_to to)
{
    struct make_paths *mp = mem_zalloc(1, sizeof *mp);
    mp->to = to;
    for (size_t i = 0; i < count; i++)
        for (size_t n = 1; n <= paths[i].size; n++)
            if (n == paths[i].size || paths[i].data[n] == '/') mp->pending++;
    ASSERT(mp->pending > 0);
    struct coord_to each = {to.loop, make_paths_done, mp};
    for (size_t i = 0; i < count; i++)
        for (size_t n = 1; n <= paths[i].size; n++)
            if (n == paths[i].size || paths[i].data[n] == '/')
                coord_create(c, (struct str){paths[i].data, n}, (struct bytes){NULL, 0}, 0, each);
}
