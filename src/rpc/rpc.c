/* rpc.c: see rpc.h.
 *
 * A connection goes through its states in their order and never back.  Calls wait in `waiting` until the peer's
 * versions are known, are in `out` from then on until they are answered, and in `failed` when they will not be: that
 * list is emptied by the idle hook, so that no `done` runs inside a call of the user's.  The hook also tells the end,
 * and frees what was closed.
 *
 * Small answers share a buffer of RECEIVE_SIZE; one that does not fit gets a buffer of its own, into which the rest of
 * it is received where it stays.  How large that one is follows from what the peer has sent, not from what it
 * announces. The end of a buffer is not reused while somebody holds a frame of it. */
#include "rpc/rpc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "rpc/rpc_internal.h"
#include "wire/gen/request_header.h"
#include "wire/gen/response_header.h"
#include "wire/kerr.h"

enum {
    FRAME_PREFIX = 4,
    CORRELATION_ID_SIZE = 4,
    RECEIVE_SIZE = 16 << 10,
    RECEIVE_TURN_MAX = 8 << 20, /* received in one turn; then others have theirs */
    GROWTH = 4                  /* room for a frame, in what has come of it */
};

/* ---- the end */

void rpc_hang_up(struct rpc *r)
{
    if (r->sock) sock_close(r->sock);
    r->sock = NULL;
    loop_timer_cancel(r->opt.loop, &r->connect_timer);
    loop_timer_cancel(r->opt.loop, &r->silence_timer);
}

static bool is_up(const struct rpc *r)
{
    return r->state == STATE_VERSIONS || r->state == STATE_READY;
}

/* It will be told by the idle hook. */
static void call_fail(struct rpc *r, struct rpc_call *call, enum err e)
{
    call->err = e;
    call->sent = call->correlation_id >= 0 && r->stream_sent > call->stream_at;
    list_remove(&call->link);
    loop_timer_cancel(r->opt.loop, &call->deadline);
    if (call == &r->versions_call) return;
    list_push_back(&r->failed, &call->link);
    loop_idle_once(r->opt.loop, &r->idle);
}

static void fail_all(struct rpc *r, struct list *calls, enum err e)
{
    struct list_node *n;
    while ((n = list_first(calls))) call_fail(r, CONTAINER_OF(n, struct rpc_call, link), e);
}

static void over(struct rpc *r, enum rpc_end end)
{
    r->state = STATE_OVER;
    r->end = end;
    rpc_hang_up(r);
    rpc_connect_forget(r);
    fail_all(r, &r->out, ERR_CLOSED);
    fail_all(r, &r->waiting, ERR_CLOSED);
    r->call_count = 0;
    loop_idle_once(r->opt.loop, &r->idle);
}

void rpc_fail(struct rpc *r, enum rpc_end end, const char *fmt, ...)
{
    if (r->state == STATE_OVER) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
    over(r, end);
}

static void rpc_free(struct rpc *r)
{
    loop_idle_cancel(r->opt.loop, &r->idle);
    writer_fini(&r->send);
    buf_unref(r->in);
    arena_fini(&r->arena);
    mem_free(r->peer);
    mem_free(r);
}

void rpc_close(struct rpc *r)
{
    if (!r) return;
    ASSERT(!r->closed);
    r->closed = true;
    if (r->state != STATE_OVER) over(r, RPC_CLOSED);
    if (!r->in_callback && list_is_empty(&r->failed)) rpc_free(r);
}

/* ---- sending */

static int16_t highest_version(const struct rpc *r, enum api key, int16_t min, int16_t max)
{
    const struct wire_api *api = wire_api_find((int16_t)key);
    const struct version_range *theirs = &r->versions[key];
    int16_t highest = MIN(MIN(api->request_max, theirs->max), max);
    return highest >= MAX(MAX(api->request_min, theirs->min), min) ? highest : -1;
}

static bool call_encode(struct rpc *r, const struct rpc_call *call, struct writer *w)
{
    const struct wire_api *api = wire_api_find((int16_t)call->api);
    const struct request_header header = {
        .request_api_key = api->key,
        .request_api_version = call->version,
        .correlation_id = call->correlation_id,
        .client_id = r->opt.client_id,
    };
    writer_i32(w, 0); /* the frame's length, below */
    if (request_header_encode(&header, wire_request_header_version(api, call->version), w)) return false;
    if (wire_encode(api->request, call->request, call->version, w)) return false;
    ASSERT(w->splice_count == 0); /* no request of a broker carries any */
    if (w->size - FRAME_PREFIX > INT32_MAX) return false;
    put_be32(w->buf->data, (uint32_t)(w->size - FRAME_PREFIX));
    return true;
}

/* What is sent makes room, once it is half of all: under a load that never lets the buffer run empty it would grow
 * without end. */
static void send_compact(struct rpc *r)
{
    size_t left = r->send.size - r->send_at;
    if (r->send_at < left) return;
    memmove(r->send.buf->data, r->send.buf->data + r->send_at, left);
    r->send.size = left;
    r->send_at = 0;
}

/* Puts the frame behind those that are not sent yet; the idle hook sends what one turn has collected. */
static void queue_frame(struct rpc *r, struct writer *frame)
{
    if (r->send.size == 0) {
        writer_fini(&r->send);
        r->send = *frame;
        writer_init(frame, r->opt.bufs);
    } else {
        send_compact(r);
        writer_bytes(&r->send, frame->buf->data, frame->size);
    }
    loop_idle_once(r->opt.loop, &r->idle);
}

/* It is not moved with every byte that comes, but looks when it fires. */
static void on_silence_timer(struct timer *t)
{
    struct rpc *r = CONTAINER_OF(t, struct rpc, silence_timer);
    if (list_is_empty(&r->out)) return;
    int64_t due_us = r->heard_us + r->opt.silence_ms * 1000;
    if (due_us > loop_now_us(r->opt.loop))
        loop_timer_set(r->opt.loop, t, due_us);
    else
        rpc_fail(r, RPC_TIMED_OUT, "%s has answered nothing for %" PRId64 " ms", r->peer, r->opt.silence_ms);
}

static void watch_silence(struct rpc *r)
{
    if (!r->opt.silence_ms || !list_is_empty(&r->out)) return;
    r->heard_us = loop_now_us(r->opt.loop);
    if (!timer_is_set(&r->silence_timer))
        loop_timer_set(r->opt.loop, &r->silence_timer, r->heard_us + r->opt.silence_ms * 1000);
}

static void call_go_out(struct rpc *r, struct rpc_call *call, int16_t version)
{
    struct writer frame;
    writer_init(&frame, r->opt.bufs);
    call->version = version;
    int32_t id = r->correlation_id;
    call->correlation_id = id;
    if (version < 0 || !call_encode(r, call, &frame)) {
        call->correlation_id = -1;
        r->call_count--;
        call_fail(r, call, ERR_UNSUPPORTED);
    } else {
        r->correlation_id = id == INT32_MAX ? 0 : id + 1;
        call->stream_at = r->stream_sent + (r->send.size - r->send_at);
        watch_silence(r);
        list_push_back(&r->out, &call->link);
        queue_frame(r, &frame);
    }
    writer_fini(&frame);
}

static void on_deadline(struct timer *t)
{
    struct rpc_call *call = CONTAINER_OF(t, struct rpc_call, deadline);
    struct rpc *r = call->rpc;
    bool is_out = call->correlation_id >= 0;
    const struct wire_api *api = wire_api_find((int16_t)call->api);
    r->call_count--;
    call_fail(r, call, ERR_TIMEOUT);
    if (is_out)
        rpc_fail(r, RPC_TIMED_OUT, "%s has not answered %s in %" PRId64 " ms", r->peer, api->name, call->timeout_ms);
}

static void call_begin(struct rpc *r, struct rpc_call *call)
{
    call->rpc = r;
    call->err = OK;
    call->sent = false;
    call->version = -1;
    call->correlation_id = -1;
    call->response = NULL;
    call->frame = NULL;
    call->memory = NULL;
    call->deadline.fire = on_deadline;
    if (call->timeout_ms > 0)
        loop_timer_set(r->opt.loop, &call->deadline, loop_now_us(r->opt.loop) + call->timeout_ms * 1000);
}

void rpc_send(struct rpc *r, struct rpc_call *call)
{
    ASSERT_OWNER(r->opt.loop);
    ASSERT(!r->closed);
    call_begin(r, call);
    if (r->state == STATE_OVER || r->call_count >= RPC_CALLS_MAX) {
        call_fail(r, call, r->state == STATE_OVER ? ERR_CLOSED : ERR_TOO_MANY);
        return;
    }
    r->call_count++;
    if (r->state == STATE_READY)
        call_go_out(r, call, highest_version(r, call->api, call->version_min, call->version_max));
    else
        list_push_back(&r->waiting, &call->link);
}

static void rpc_receive(struct rpc *r);

static void rpc_lost(struct rpc *r, enum err e)
{
    if (e == ERR_CLOSED)
        rpc_fail(r, RPC_LOST, "%s has closed the connection", r->peer);
    else
        rpc_fail(r, RPC_LOST, "the connection to %s is lost: %s", r->peer, err_text(e));
}

static void rpc_flush(struct rpc *r)
{
    while (is_up(r) && r->send_at < r->send.size) {
        struct iovec iov = {r->send.buf->data + r->send_at, r->send.size - r->send_at};
        size_t sent;
        enum err e = sock_send(r->sock, &iov, 1, false, &sent);
        if (e == ERR_AGAIN) return; /* edge triggered: the next NET_WRITABLE comes back here */
        if (e) {
            r->readable = r->peer_done = true; /* answers may have come before the end */
            rpc_receive(r);
            rpc_lost(r, e);
            return;
        }
        r->send_at += sent;
        r->stream_sent += sent;
    }
    if (r->send_at < r->send.size) return;
    writer_fini(&r->send);
    writer_init(&r->send, r->opt.bufs);
    r->send_at = 0;
}

/* ---- answers */

/* A broker that does not know the version of an ApiVersions request answers in version 0, which begins with the code.
 */
static int16_t answered_version(const struct rpc_call *call, const struct reader *reader)
{
    struct reader peek = *reader;
    bool refused = call->api == API_API_VERSIONS && reader_i16(&peek) == KERR_UNSUPPORTED_VERSION;
    return refused ? 0 : call->version;
}

/* False: the connection is over. */
static bool answer_decode(struct rpc *r, struct rpc_call *call, struct bytes frame)
{
    const struct wire_api *api = wire_api_find((int16_t)call->api);
    struct reader reader = reader_of(frame.data, frame.size);
    struct response_header header;
    enum err e = response_header_decode(&header, wire_response_header_version(api, call->version), &reader, &r->arena);
    if (!e && header.correlation_id != call->correlation_id) {
        rpc_fail(r, RPC_MALFORMED, "%s answers request %" PRId32 " where %" PRId32 " (%s) is the next", r->peer,
                 header.correlation_id, call->correlation_id, api->name);
        return false;
    }
    void *response = arena_alloc(&r->arena, api->response->size);
    call->version = answered_version(call, &reader);
    if (!e) e = wire_decode(api->response, response, call->version, &reader, &r->arena);
    if (!e && reader_left(&reader) > 0) e = ERR_CORRUPT;
    if (e)
        rpc_fail(r, RPC_MALFORMED, "%s sent what is no %s answer of version %d: %s", r->peer, api->name, call->version,
                 err_text(e));
    call->response = e ? NULL : response; /* of half an answer nothing stays */
    return !e;
}

static void answer_take(struct rpc *r, struct bytes frame)
{
    struct list_node *n = list_first(&r->out);
    if (!n) {
        rpc_fail(r, RPC_MALFORMED, "%s sent an answer that nobody had asked for", r->peer);
        return;
    }
    struct rpc_call *call = CONTAINER_OF(n, struct rpc_call, link);
    list_remove(n);
    r->call_count--;
    if (answer_decode(r, call, frame)) {
        loop_timer_cancel(r->opt.loop, &call->deadline);
        call->sent = true;
        call->frame = r->in;
        call->memory = &r->arena;
        call->done(call); /* may free the call, send others, close us */
    } else {
        /* It stood before those that failed with it. */
        call_fail(r, call, ERR_CORRUPT);
        list_remove(&call->link);
        if (call != &r->versions_call) list_push_front(&r->failed, &call->link);
    }
    arena_reset(&r->arena);
}

/* ---- receiving */

static size_t in_have(const struct rpc *r)
{
    return r->in ? r->in_size - r->in_at : 0;
}

/* Room from in_at on: for a small frame that of any buffer, for a large one what the peer has earned. */
static size_t in_room_wanted(const struct rpc *r, size_t have)
{
    if (have < FRAME_PREFIX) return RECEIVE_SIZE;
    size_t frame = FRAME_PREFIX + (size_t)get_be32(r->in->data + r->in_at);
    return MIN(frame, MAX(MAX((size_t)RECEIVE_SIZE, r->large_hint), have * GROWTH));
}

/* Returns how many bytes to receive: of a large frame no more than its rest, since what came of the next one would have
 * to be copied. */
static size_t in_make_room(struct rpc *r)
{
    size_t have = in_have(r), want = in_room_wanted(r, have);
    bool sole = r->in && atomic_load_explicit(&r->in->refs, memory_order_acquire) == 1;
    if (sole && !have && r->in->cap >= want) r->in_at = r->in_size = 0;
    if (!r->in || r->in_size == r->in->cap || r->in_at + want > r->in->cap) {
        struct buf *next = buf_new(r->opt.bufs, want);
        if (have) memcpy(next->data, r->in->data + r->in_at, have);
        buf_unref(r->in);
        r->in = next;
        r->in_at = 0;
        r->in_size = have;
    }
    size_t room = r->in->cap - r->in_size;
    return want > RECEIVE_SIZE ? MIN(room, want - have) : MIN(room, (size_t)RECEIVE_SIZE);
}

/* Rises to the largest at once and falls slowly. */
static void note_frame_size(struct rpc *r, size_t size)
{
    enum { FALL = 8 };
    r->large_hint = MAX(size, r->large_hint - r->large_hint / FALL);
}

static void in_parse(struct rpc *r)
{
    while (is_up(r) && in_have(r) >= FRAME_PREFIX) {
        const uint8_t *at = r->in->data + r->in_at;
        int32_t size = (int32_t)get_be32(at);
        if (size < CORRELATION_ID_SIZE || size > RPC_RESPONSE_MAX) {
            rpc_fail(r, RPC_MALFORMED, "%s announces an answer of %" PRId32 " bytes, where %d to %d can be", r->peer,
                     size, CORRELATION_ID_SIZE, RPC_RESPONSE_MAX);
            return;
        }
        if (in_have(r) - FRAME_PREFIX < (size_t)size) return;
        r->in_at += FRAME_PREFIX + (size_t)size;
        note_frame_size(r, FRAME_PREFIX + (size_t)size);
        answer_take(r, (struct bytes){at + FRAME_PREFIX, (size_t)size});
    }
}

static void rpc_receive(struct rpc *r)
{
    size_t received = 0;
    while (r->readable && is_up(r)) {
        if (received >= RECEIVE_TURN_MAX) {
            loop_idle_once(r->opt.loop, &r->idle);
            return;
        }
        size_t room = in_make_room(r), got = 0;
        enum err e = sock_recv(r->sock, r->in->data + r->in_size, room, &got);
        if (e == ERR_AGAIN) {
            r->readable = false;
        } else if (e || got == 0) {
            rpc_lost(r, e ? e : ERR_CLOSED);
        } else {
            r->in_size += got;
            received += got;
            r->heard_us = loop_now_us(r->opt.loop);
            /* A short read emptied the socket; but the end may have come with what was read. */
            if (got < room && !r->peer_done) r->readable = false;
            in_parse(r);
        }
    }
    if (in_have(r) > 0) return;
    buf_unref(r->in); /* one that has nothing to read needs no memory */
    r->in = NULL;
    r->in_at = r->in_size = 0;
}

/* ---- versions */

static void learn_versions(struct rpc *r, const struct api_versions_response *res)
{
    for (int32_t i = 0; i < res->api_keys_count; i++) {
        const struct api_versions_response_api_version *v = &res->api_keys[i];
        const struct wire_api *api = wire_api_find(v->api_key);
        if (api) r->versions[api->key] = (struct version_range){v->min_version, v->max_version};
    }
}

static void ask_versions(struct rpc *r, int16_t version)
{
    r->call_count++;
    call_begin(r, &r->versions_call);
    call_go_out(r, &r->versions_call, version);
}

static void become_ready(struct rpc *r)
{
    r->state = STATE_READY;
    struct list_node *n;
    while ((n = list_pop_front(&r->waiting))) {
        struct rpc_call *call = CONTAINER_OF(n, struct rpc_call, link);
        call_go_out(r, call, highest_version(r, call->api, call->version_min, call->version_max));
    }
    if (r->opt.ready) r->opt.ready(r->opt.arg);
}

/* A peer that does not know our highest version says so, with its own range if it is not very old. */
static void on_versions(struct rpc_call *call)
{
    struct rpc *r = call->rpc;
    const struct api_versions_response *res = call->response;
    int16_t asked = r->versions_call.version_max;
    if (res->error_code == KERR_UNSUPPORTED_VERSION && asked > 0) {
        learn_versions(r, res);
        int16_t next = highest_version(r, API_API_VERSIONS, 0, (int16_t)(asked - 1));
        call->version_max = MAX(next, 0);
        ask_versions(r, call->version_max);
    } else if (res->error_code) {
        rpc_fail(r, RPC_MALFORMED, "%s does not tell its versions: %s", r->peer, kerr_name(res->error_code));
    } else {
        learn_versions(r, res);
        become_ready(r);
    }
}

/* ---- the socket */

static void rpc_unlock(struct rpc *r)
{
    r->in_callback = false;
    if (r->closed && list_is_empty(&r->failed)) rpc_free(r);
}

static void connected(struct rpc *r)
{
    loop_timer_cancel(r->opt.loop, &r->connect_timer);
    r->state = STATE_VERSIONS;
    ask_versions(r, r->versions_call.version_max);
}

void rpc_on_ready(struct sock *s, void *arg, unsigned ready)
{
    struct rpc *r = arg;
    if (ready & (NET_READABLE | NET_PEER_DONE | NET_HANGUP)) r->readable = true;
    if (ready & (NET_PEER_DONE | NET_HANGUP)) r->peer_done = true;
    if (r->state == STATE_CONNECT && ready & NET_HANGUP) {
        uint8_t byte;
        size_t got = 0;
        enum err e = sock_recv(s, &byte, sizeof byte, &got); /* says why */
        r->readable = r->peer_done = false;
        rpc_connect_failed(r, e ? e : ERR_CLOSED);
        return;
    }
    if (r->state == STATE_CONNECT && ready & NET_WRITABLE) connected(r);
    r->in_callback = true;
    rpc_receive(r);
    rpc_flush(r);
    rpc_unlock(r);
}

/* ---- the face */

/* Those of this moment: one that is sent again by its `done`, to fail again, has its turn later. */
static void tell_failed(struct rpc *r)
{
    struct list now;
    struct list_node *n;
    list_init(&now);
    while ((n = list_pop_front(&r->failed))) list_push_back(&now, n);
    while ((n = list_pop_front(&now))) {
        struct rpc_call *call = CONTAINER_OF(n, struct rpc_call, link);
        call->done(call);
    }
}

static void on_idle(struct loop_idle *idle)
{
    struct rpc *r = CONTAINER_OF(idle, struct rpc, idle);
    r->in_callback = true;
    rpc_receive(r); /* where a turn's end has cut it off */
    rpc_flush(r);
    tell_failed(r);
    if (r->state == STATE_OVER && !r->closed && !r->end_told) {
        r->end_told = true;
        r->opt.ended(r->opt.arg, r->end, r->text);
    }
    rpc_unlock(r);
}

struct rpc *rpc_open(const struct rpc_options *opt, struct str host, int32_t port)
{
    ASSERT_OWNER(opt->loop);
    struct rpc *r = mem_zalloc(1, sizeof *r);
    r->opt = *opt;
    r->idle.run = on_idle;
    r->silence_timer.fire = on_silence_timer;
    r->peer = mem_printf("%.*s:%" PRId32, STR_ARG(host), port);
    list_init(&r->waiting);
    list_init(&r->out);
    list_init(&r->failed);
    writer_init(&r->send, opt->bufs);
    arena_init(&r->arena, RPC_DECODE_MAX);
    for (int i = 0; i < API_COUNT; i++) r->versions[i] = (struct version_range){0, -1};
    r->versions_request = api_versions_request_default;
    r->versions_request.client_software_name = STR("barnabas");
    r->versions_request.client_software_version = STR(BARNABAS_VERSION);
    r->versions_call = (struct rpc_call){
        .api = API_API_VERSIONS,
        .version_max = wire_api_find(API_API_VERSIONS)->request_max,
        .request = &r->versions_request,
        .timeout_ms = opt->connect_timeout_ms,
        .done = on_versions,
    };
    rpc_connect(r, host, port);
    return r;
}

bool rpc_is_ready(const struct rpc *r)
{
    return r->state == STATE_READY;
}

int16_t rpc_version(const struct rpc *r, enum api api, int16_t min, int16_t max)
{
    return r->state == STATE_READY ? highest_version(r, api, min, max) : -1;
}
