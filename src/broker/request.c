/* request.c: header -> table row -> version check -> decode -> handler -> encode. */
#include "broker/request.h"

#include "base/mem.h"
#include "broker/api_table.h"
#include "broker/broker.h"
#include "broker/conn.h"
#include "wire/apis.h"
#include "wire/gen/api_versions.h"
#include "wire/gen/request_header.h"
#include "wire/gen/response_header.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum {
    REQUEST_CACHE_MAX = 64,
    /* What decoding one request may take: arrays are in memory a few times their size on the wire. */
    REQUEST_ARENA_BYTES_MAX = 256 << 20
};

static void request_advance(struct request *rq);

static void on_wake(struct loop_msg *msg)
{
    struct request *rq = CONTAINER_OF(msg, struct request, wake_msg);
    atomic_store(&rq->wake_posted, false);
    if (rq->finished) {
        if (!rq->conn) request_release(rq);
        return;
    }
    request_enter(rq);
}

void request_enter(struct request *rq)
{
    if (!rq->offloaded) request_advance(rq);
}

void request_wake(struct request *rq)
{
    if (!atomic_exchange(&rq->wake_posted, true)) loop_post(rq->loop, &rq->wake_msg);
}

static void on_deadline(struct timer *t)
{
    struct request *rq = CONTAINER_OF(t, struct request, deadline);
    rq->expired = true;
    request_enter(rq);
}

static void offload_work(struct job *job)
{
    struct request *rq = CONTAINER_OF(job, struct request, job);
    rq->work(rq);
}

static void offload_done(struct job *job)
{
    struct request *rq = CONTAINER_OF(job, struct request, job);
    rq->offloaded = false;
    request_advance(rq);
}

void request_offload(struct request *rq, void (*work)(struct request *rq))
{
    ASSERT(!rq->offloaded && rq->running);
    rq->work = work;
    rq->offloaded = true;
    rq->job = (struct job){.loop = rq->loop, .work = offload_work, .done = offload_done};
    workers_submit(rq->broker->workers, &rq->job);
}

void request_wait_until(struct request *rq, int64_t due_us)
{
    loop_timer_set(rq->loop, &rq->deadline, due_us);
}

void request_uncount(struct request *rq)
{
    if (rq->frame_size) broker_release_request_bytes(rq->broker, rq->frame_size);
    rq->frame_size = 0;
}

void *request_op(struct request *rq, size_t size)
{
    if (!rq->op) rq->op = arena_alloc(&rq->arena, size);
    return rq->op;
}

static struct request *request_new(struct conn *c)
{
    struct list_node *n = list_pop_front(&c->set->request_cache);
    struct request *rq;
    if (n) {
        c->set->request_cache_count--;
        rq = CONTAINER_OF(n, struct request, in_cache);
    } else {
        rq = mem_zalloc(1, sizeof *rq);
        arena_init(&rq->arena, REQUEST_ARENA_BYTES_MAX);
        rq->wake_msg.run = on_wake;
        rq->deadline.fire = on_deadline;
    }
    rq->broker = c->set->broker;
    rq->loop = c->set->loop;
    rq->conn = c;
    writer_init(&rq->reply, rq->broker->bufs);
    return rq;
}

static void request_reset(struct request *rq)
{
    arena_reset(&rq->arena);
    struct arena arena = rq->arena;
    *rq = (struct request){.arena = arena, .wake_msg.run = on_wake, .deadline.fire = on_deadline};
}

void request_release(struct request *rq)
{
    loop_timer_cancel(rq->loop, &rq->deadline);
    writer_fini(&rq->reply);
    if (rq->frame) {
        request_uncount(rq);
        buf_unref(rq->frame);
        rq->frame = NULL;
    }
    struct conn_set *set = rq->conn ? rq->conn->set : &rq->broker->sets[loop_index(rq->loop)];
    rq->conn = NULL;
    /* A wake-up is on its way: on_wake() comes back here. */
    if (atomic_load(&rq->wake_posted)) return;
    if (set->request_cache_count >= REQUEST_CACHE_MAX) {
        arena_fini(&rq->arena);
        mem_free(rq);
        return;
    }
    request_reset(rq);
    list_push_front(&set->request_cache, &rq->in_cache); /* its memory is warm: it is the next one's */
    set->request_cache_count++;
}

void request_cache_free(struct list *cache)
{
    struct list_node *n;
    while ((n = list_pop_front(cache))) {
        struct request *rq = CONTAINER_OF(n, struct request, in_cache);
        arena_fini(&rq->arena);
        mem_free(rq);
    }
}

/* Only with log.level=debug: the whole message, bytes by their size alone. */
static void log_message(struct request *rq, const char *event, const struct wire_schema *schema, const void *message,
                        int16_t version)
{
    struct writer text;
    writer_init(&text, rq->broker->bufs);
    wire_print(schema, message, version, &text, WIRE_PRINT_LOG);
    LOG_DEBUG(event, "peer=%s client=%.*s api=%s version=%d id=%d message=%.*s", rq->conn->host, STR_ARG(rq->client_id),
              rq->row->wire->name, version, rq->correlation_id, (int)text.size, (const char *)text.buf->data);
    writer_fini(&text);
}

/* The answer's bytes: size, header, body. */
static void request_encode(struct request *rq, int16_t body_version)
{
    struct writer *w = &rq->reply;
    if (log_enabled(LOG_LEVEL_DEBUG)) log_message(rq, "answer", rq->row->wire->response, rq->out, body_version);
    int16_t header_version = wire_response_header_version(rq->row->wire, body_version);
    writer_i32(w, 0);
    struct response_header header = {.correlation_id = rq->correlation_id};
    enum err e = response_header_encode(&header, header_version, w);
    if (!e) e = wire_encode(rq->row->wire->response, rq->out, body_version, w);
    if (e) {
        /* A handler filled in what its own version cannot carry: our bug, but not worth the broker's life. */
        LOG_ERROR("response_not_encodable", "api=%s version=%d error=%s", rq->row->wire->name, body_version,
                  err_name(e));
        writer_fini(w);
        rq->close_after = rq->no_reply = true;
        return;
    }
    put_be32(w->buf->data, (uint32_t)(writer_size(w) - 4));
}

/* Ends the request: encode, queue on the connection. */
static void request_finish(struct request *rq, enum step step)
{
    loop_timer_cancel(rq->loop, &rq->deadline);
    rq->finished = true;
    rq->no_reply = step != DONE;
    rq->close_after = step == DONE_CLOSE;
    if (step == DONE) request_encode(rq, rq->version);
    conn_request_finished(rq->conn, rq);
}

/* Enters the handler until it waits or is through. */
static void request_advance(struct request *rq)
{
    ASSERT(!rq->running && !rq->finished);
    rq->running = true;
    enum step step = rq->row->handle(rq);
    rq->running = false;
    if (step != WAIT) request_finish(rq, step);
}

void request_cancel(struct request *rq)
{
    if (rq->finished || rq->cancelled) return;
    rq->cancelled = true;
    if (!rq->running) request_enter(rq);
}

/* KIP-35: a version that we do not speak is answered in version 0, with the list, so that the client can choose. */
static void answer_unsupported_api_versions(struct request *rq)
{
    struct api_versions_response *out = arena_alloc(&rq->arena, sizeof *out);
    *out = api_versions_response_default;
    api_table_list(rq, out);
    out->error_code = KERR_UNSUPPORTED_VERSION;
    rq->out = out;
    rq->version = 0;
    request_finish(rq, DONE);
}

static bool refuse(const struct conn *c, const char *reason, int key, int version)
{
    LOG_LIMITED(LOG_LEVEL_WARN, "request_refused", "peer=%s api=%d version=%d reason=\"%s\"; connection closed",
                c->host, key, version, reason);
    return false;
}

bool request_dispatch(struct conn *c, struct buf *frame, const uint8_t *data, size_t size)
{
    struct reader r = reader_of(data, size);
    struct reader peek = r;
    int16_t key = reader_i16(&peek), version = reader_i16(&peek);
    int32_t correlation_id = reader_i32(&peek);
    if (peek.err) return refuse(c, "frame too short for a header", key, version);
    const struct api_row *row = api_table_find(key);
    if (!row) return refuse(c, "unknown API key", key, version);
    bool supported = version >= row->version_min && version <= row->version_max;
    if (!supported && key != API_API_VERSIONS) return refuse(c, "unsupported version", key, version);

    struct request *rq = request_new(c);
    rq->row = row;
    rq->version = version;
    rq->correlation_id = correlation_id;
    rq->frame = buf_ref(frame);
    rq->frame_size = size;
    broker_take_request_bytes(rq->broker, size);
    list_push_back(&c->requests, &rq->in_conn);
    c->request_count++;
    if (!supported) {
        answer_unsupported_api_versions(rq);
        return true;
    }

    struct request_header header;
    void *in = arena_alloc(&rq->arena, row->wire->request->size);
    enum err e = request_header_decode(&header, wire_request_header_version(row->wire, version), &r, &rq->arena);
    if (!e) e = wire_decode(row->wire->request, in, version, &r, &rq->arena);
    if (e) {
        refuse(c, err_text(e), key, version);
        request_finish(rq, DONE_CLOSE);
        return true;
    }
    rq->client_id = header.client_id;
    if (log_enabled(LOG_LEVEL_DEBUG)) log_message(rq, "request", row->wire->request, in, version);
    rq->in = in;
    rq->out = arena_alloc(&rq->arena, row->wire->response->size);
    memcpy(rq->out, row->wire->response->default_value, row->wire->response->size);
    request_advance(rq);
    return true;
}
