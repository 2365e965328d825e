/* conn.c: frames in, answers out.
 *
 * Input.  Bytes are received into a pooled buffer; whole frames are handled where they lie and hold a reference on it.
 * A frame that does not fit gets a buffer of its own size, of which the next frame of that size is the first user, so
 * that large batches are received in place.  A connection with nothing half received holds no buffer.
 *
 * Output.  Replies of requests that are through leave in order of arrival, as many as one call takes; ranges of files
 * go by sendfile.  One flush a turn, after all frames that arrived together are handled. */
#include "broker/conn.h"

#include "base/endian.h"
#include "base/mem.h"
#include "broker/broker.h"
#include "broker/refused.h"
#include "broker/request.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum {
    READ_SIZE = 64 << 10, /* a fresh buffer */
    GROWTH = 4,           /* see in_room_wanted() */
    FRAME_PREFIX = 4,
    SEND_IOV_MAX = 64,
    SEND_FILE_TURN_MAX = 256 << 10,
    PULLS_TO_MOVE = 8, /* whoever asks about many groups in turn stays where he is */
};

static void conn_flush(struct conn *c);
static bool conn_move(struct conn *c);

/* ---- Life and limits */

static void set_arm_idle_timer(struct conn_set *set)
{
    struct list_node *n = list_first(&set->by_activity);
    int64_t idle_us = broker_idle_us_max(set->broker);
    if (!n || idle_us < 0) {
        loop_timer_cancel(set->loop, &set->idle_timer);
        return;
    }
    loop_timer_set(set->loop, &set->idle_timer, CONTAINER_OF(n, struct conn, in_set)->active_us + idle_us);
}

static void conn_touch(struct conn *c)
{
    c->active_us = loop_now_us(c->set->loop);
    list_remove(&c->in_set);
    list_push_back(&c->set->by_activity, &c->in_set);
}

static void conn_free(struct conn *c)
{
    struct conn_set *set = c->set;
    ASSERT(c->request_count == 0);
    list_remove(&c->in_set);
    list_remove(&c->in_paused);
    loop_idle_cancel(set->loop, &c->resume);
    sock_close(c->sock);
    if (c->in_counted) broker_release_request_bytes(set->broker, c->in_counted);
    buf_unref(c->in);
    refused_free(&c->refused);
    broker_connection_closed(set->broker, c->listener, c->host);
    mem_free(c);
    set->count--;
    if (set->closing && set->count == 0) broker_set_drained(set->broker);
}

static void drop_replies(struct conn *c)
{
    struct list_node *n;
    while ((n = list_first(&c->requests)) && CONTAINER_OF(n, struct request, in_conn)->finished) {
        struct request *rq = CONTAINER_OF(n, struct request, in_conn);
        list_remove(n);
        c->request_count--;
        c->unsent_bytes -= writer_size(&rq->reply);
        request_release(rq);
    }
}

/* Cancels what waits.  The handlers answer at once or as soon as what cannot be left off is done. */
static void cancel_requests(struct conn *c)
{
    bool outer = c->in_callback;
    c->in_callback = true;
    LIST_EACH (&c->requests, n) request_cancel(CONTAINER_OF(n, struct request, in_conn));
    c->in_callback = outer;
}

/* Frees the connection when nothing holds it any more. */
static void conn_settle(struct conn *c)
{
    if (c->in_callback) return;
    if (c->failed) drop_replies(c);
    if (c->closing && c->request_count == 0) conn_free(c);
}

/* Reads no more; closes once the requests in progress are answered (or, when `failed`, dropped). */
static void conn_close(struct conn *c, bool failed)
{
    c->closing = true;
    c->failed |= failed;
    cancel_requests(c);
}

/* ---- Input */

/* Bytes to make room for.  A length field alone gets no more than a few times what has come of the frame, so that a lie
 * costs its teller as much as us; a peer that did send big frames gets the next one's room at once. */
static size_t in_room_wanted(const struct conn *c, size_t have)
{
    if (have < FRAME_PREFIX) return MAX((size_t)READ_SIZE, c->frame_size_hint);
    size_t frame = FRAME_PREFIX + (size_t)get_be32(c->in->data + c->in_at);
    size_t earned = MAX(MAX((size_t)READ_SIZE, c->frame_size_hint), have * GROWTH);
    return MIN(frame, earned);
}

/* Room to receive into: in the present buffer, or in a new one that takes over what is half received. */
static void in_take_buffer(struct conn *c, size_t have, size_t want)
{
    if (c->in) {
        bool sole = atomic_load_explicit(&c->in->refs, memory_order_acquire) == 1;
        if (!have && sole && c->in->cap >= want) {
            c->in_at = c->in_size = 0;
            return;
        }
        if (c->in_size < c->in->cap && c->in_at + want <= c->in->cap) return;
    }
    struct buf *next = buf_new(c->set->broker->bufs, MAX(want, (size_t)READ_SIZE));
    if (have) memcpy(next->data, c->in->data + c->in_at, have);
    buf_unref(c->in);
    c->in = next;
    c->in_at = 0;
    c->in_size = have;
}

/* Returns how many bytes to receive.  Of a big frame no more than its rest: what came of the next one would have to be
 * copied into a buffer of its own. */
static size_t in_make_room(struct conn *c)
{
    size_t have = c->in ? c->in_size - c->in_at : 0;
    size_t want = in_room_wanted(c, have);
    in_take_buffer(c, have, want);
    size_t room = c->in->cap - c->in_size;
    return want > READ_SIZE ? MIN(room, want - have) : room;
}

/* Handles the whole frames that are there.  False: the connection must be closed. */
static bool in_parse(struct conn *c)
{
    struct broker *br = c->set->broker;
    while (c->in_size - c->in_at >= FRAME_PREFIX) {
        const uint8_t *at = c->in->data + c->in_at;
        int32_t size = (int32_t)get_be32(at);
        if (size < 0 || size > broker_request_size_max(br)) {
            LOG_LIMITED(LOG_LEVEL_WARN, "frame_refused",
                        "peer=%s size=%d limit=%d reason=\"socket.request.max.bytes\"; connection closed", c->host,
                        size, broker_request_size_max(br));
            return false;
        }
        if (c->in_size - c->in_at - FRAME_PREFIX < (size_t)size) break;
        if (c->held || c->request_count >= CONN_REQUESTS_MAX || c->unsent_bytes > CONN_UNSENT_BYTES_MAX) break;
        c->in_at += FRAME_PREFIX + (size_t)size;
        c->frame_size_hint = size > READ_SIZE / 2 ? FRAME_PREFIX + (size_t)size : 0;
        if (!request_dispatch(c, c->in, at + FRAME_PREFIX, (size_t)size)) return false;
        if (c->closing) return true;
    }
    return true;
}

static bool conn_may_read(const struct conn *c)
{
    return !c->closing && !c->half_closed && !c->held && c->request_count < CONN_REQUESTS_MAX &&
           c->unsent_bytes <= CONN_UNSENT_BYTES_MAX && !list_has(&c->in_paused);
}

/* What has come of a big frame counts before the request does; little ones need no more than the buffer that each
 * connection may have anyway. */
static void conn_count_half_received(struct conn *c)
{
    size_t have = c->in ? c->in_size - c->in_at : 0, before = c->in_counted;
    c->in_counted = have > READ_SIZE ? have : 0;
    if (c->in_counted > before) broker_take_request_bytes(c->set->broker, c->in_counted - before);
    if (c->in_counted < before) broker_release_request_bytes(c->set->broker, before - c->in_counted);
}

/* The broker holds too many request bytes: wait in the set's list.  Who is in the midst of what counts goes on, or what
 * is half received could hold up its own end. */
static bool conn_pause_if_full(struct conn *c)
{
    if (c->in_counted > 0) return false;
    if (!broker_request_bytes_full(c->set->broker)) return false;
    list_push_back(&c->set->paused, &c->in_paused);
    atomic_store(&c->set->has_paused, true);
    /* What was released between the look and the mark has not seen the mark. */
    if (!broker_request_bytes_full(c->set->broker)) conn_set_resume(c->set);
    return true;
}

/* One receive; false when there is no more to read now. */
static bool conn_receive(struct conn *c)
{
    size_t got = 0;
    size_t room = in_make_room(c);
    enum err e = sock_recv(c->sock, c->in->data + c->in_size, room, &got);
    if (e == ERR_AGAIN) {
        c->readable = false;
        return false;
    }
    if (e) {
        conn_close(c, true);
        return false;
    }
    if (got == 0) {
        c->half_closed = true;
        conn_close(c, false);
        return false;
    }
    c->in_size += got;
    /* A short read emptied the socket; the next bytes come with a new event, but the end of the stream may have come
     * with this one. */
    if (got < room && !c->peer_done) c->readable = false;
    return true;
}

/* A whole frame lies unparsed, because too much was in progress when it came. */
static bool in_has_frame(const struct conn *c)
{
    size_t have = c->in_size - c->in_at;
    return have >= FRAME_PREFIX && have - FRAME_PREFIX >= (size_t)get_be32(c->in->data + c->in_at);
}

static void conn_read(struct conn *c)
{
    for (;;) {
        if (c->in_size > c->in_at && !c->closing && !in_parse(c)) conn_close(c, false);
        conn_count_half_received(c);
        if (!c->readable || !conn_may_read(c) || conn_pause_if_full(c)) break;
        if (!conn_receive(c)) break;
    }
    if (c->in && c->in_size == c->in_at) {
        buf_unref(c->in);
        c->in = NULL;
        c->in_at = c->in_size = 0;
    }
}

static void conn_pump(struct conn *c)
{
    ASSERT(!c->in_callback);
    c->in_callback = true;
    do {
        conn_read(c);
        conn_flush(c); /* may make room for what was left unparsed */
    } while (conn_may_read(c) && in_has_frame(c));
    c->in_callback = false;
    if (!conn_move(c)) conn_settle(c);
}

/* ---- Output */

struct iov_run {
    struct iovec iov[SEND_IOV_MAX];
    int count;
    size_t size;
    const struct splice *file; /* comes after the memory */
    size_t file_skip;
    bool more;
};

static bool run_add(struct iov_run *run, const uint8_t *data, size_t size, size_t *skip)
{
    if (*skip >= size) {
        *skip -= size;
        return true;
    }
    if (run->count == SEND_IOV_MAX) {
        run->more = true;
        return false;
    }
    run->iov[run->count++] = (struct iovec){(void *)(uintptr_t)(data + *skip), size - *skip};
    run->size += size - *skip;
    *skip = 0;
    return true;
}

/* Adds a reply's pieces from `skip` on; false when the run is full or a file comes next. */
static bool run_add_reply(struct iov_run *run, const struct writer *w, size_t skip)
{
    size_t from = 0;
    for (size_t i = 0; i < w->splice_count; i++) {
        const struct splice *s = &w->splices[i];
        if (!run_add(run, w->buf->data + from, s->at - from, &skip)) return false;
        from = s->at;
        if (s->data) {
            if (!run_add(run, s->data, s->size, &skip)) return false;
        } else if (skip >= s->size) {
            skip -= s->size;
        } else {
            run->file = s;
            run->file_skip = skip;
            run->more = true;
            return false;
        }
    }
    return run_add(run, w->buf->data + from, w->size - from, &skip);
}

/* Counts `sent` bytes off the replies at the head and releases those that are out. */
static void conn_account_sent(struct conn *c, size_t sent)
{
    c->sent += sent;
    struct list_node *n;
    while ((n = list_first(&c->requests))) {
        struct request *rq = CONTAINER_OF(n, struct request, in_conn);
        if (!rq->finished) return;
        size_t size = writer_size(&rq->reply);
        if (c->sent < size) return;
        c->sent -= size;
        c->unsent_bytes -= size;
        list_remove(n);
        c->request_count--;
        bool close_after = rq->close_after;
        request_release(rq);
        if (close_after) {
            /* Nothing behind it is answered. */
            conn_close(c, true);
            return;
        }
    }
}

/* Collects what can leave now. */
static void conn_collect(struct conn *c, struct iov_run *run)
{
    size_t skip = c->sent;
    LIST_EACH (&c->requests, n) {
        struct request *rq = CONTAINER_OF(n, struct request, in_conn);
        if (!rq->finished) return;
        if (!rq->no_reply && !run_add_reply(run, &rq->reply, skip)) return;
        skip = 0;
        if (rq->close_after) return;
    }
}

/* Sends the memory and at most `file_max` bytes of the file. */
static enum err run_send(struct conn *c, const struct iov_run *run, size_t file_max, size_t *sent)
{
    *sent = 0;
    if (run->count) {
        enum err e = sock_send(c->sock, run->iov, run->count, run->more, sent);
        if (e || *sent < run->size) return e ? e : ERR_AGAIN;
    }
    if (run->file) {
        const struct splice *s = run->file;
        size_t more = 0;
        size_t size = MIN(s->size - run->file_skip, file_max);
        enum err e = sock_send_file(c->sock, s->fd, s->pos + (int64_t)run->file_skip, size, &more);
        *sent += more;
        return e;
    }
    return OK;
}

/* A consumer that is far behind may be sent megabytes at once: after SEND_FILE_TURN_MAX the loop's other connections
 * have their turn, and this one goes on at the end of it. */
static void conn_flush(struct conn *c)
{
    size_t file_left = SEND_FILE_TURN_MAX;
    while (!c->failed && c->request_count > 0) {
        conn_account_sent(c, 0); /* replies without bytes */
        if (c->failed) return;   /* one of them closed the connection */
        struct iov_run run;
        run.count = 0;
        run.size = 0;
        run.file = NULL;
        run.more = false;
        conn_collect(c, &run);
        if (!run.count && !run.file) return;
        if (run.file && !file_left) {
            loop_idle_once(c->set->loop, &c->resume);
            return;
        }
        size_t sent;
        enum err e = run_send(c, &run, file_left, &sent);
        if (run.file) file_left -= MIN(file_left, sent);
        if (sent) {
            conn_touch(c);
            conn_account_sent(c, sent);
        }
        if (e == ERR_AGAIN) return; /* edge triggered: the next NET_WRITABLE comes back here */
        if (e) {
            conn_close(c, true);
            return;
        }
    }
}

/* ---- Events */

static void on_ready(struct sock *s, void *arg, unsigned ready)
{
    (void)s;
    struct conn *c = arg;
    if (ready & (NET_READABLE | NET_HANGUP)) {
        c->readable = true;
        conn_touch(c);
    }
    if (ready & (NET_PEER_DONE | NET_HANGUP)) c->peer_done = true;
    conn_pump(c);
}

void conn_request_finished(struct conn *c, struct request *rq)
{
    c->unsent_bytes += writer_size(&rq->reply);
    if (c->in_callback) return; /* conn_pump() flushes once for all */
    conn_pump(c);
}

static void on_conn_resume(struct loop_idle *idle)
{
    conn_pump(CONTAINER_OF(idle, struct conn, resume));
}

void conn_hold(struct conn *c)
{
    ASSERT(!c->held);
    c->held = true;
}

/* What waited is begun at the end of the turn, not inside the handler that lets it go. */
void conn_resume(struct conn *c)
{
    ASSERT(c->held);
    c->held = false;
    loop_idle_once(c->set->loop, &c->resume);
}

static void on_resume(struct loop_msg *msg)
{
    struct conn_set *set = CONTAINER_OF(msg, struct conn_set, resume_msg);
    atomic_store(&set->resume_posted, false);
    atomic_store(&set->has_paused, false);
    struct list waiting;
    list_init(&waiting);
    struct list_node *n;
    while ((n = list_pop_front(&set->paused))) list_push_back(&waiting, n);
    while ((n = list_pop_front(&waiting))) conn_pump(CONTAINER_OF(n, struct conn, in_paused));
}

void conn_set_resume(struct conn_set *set)
{
    if (atomic_load(&set->has_paused) && !atomic_exchange(&set->resume_posted, true))
        loop_post(set->loop, &set->resume_msg);
}

/* ---- To another loop */

void conn_worked_on(struct conn *c, const struct loop *loop)
{
    struct conn_set *set = &c->set->broker->sets[loop_index(loop)];
    if (set == c->set) set = NULL;
    if (set != c->pull) c->pulls = 0;
    c->pull = set;
    c->pulls++;
}

static bool conn_may_move(const struct conn *c)
{
    if (!c->pull || c->pulls < PULLS_TO_MOVE) return false;
    bool busy = c->request_count > 0 || c->in || c->held || list_has(&c->in_paused) || list_has(&c->resume.node);
    return !busy && !c->closing && !c->failed && !c->set->closing;
}

/* Sends it to the loop of `to`. */
static void move_post(struct conn *c, struct conn_set *to, void (*arrive)(struct loop_msg *msg))
{
    c->from = c->set;
    c->set = to;
    c->move.run = arrive;
    loop_post(to->loop, &c->move);
}

static void set_add(struct conn_set *set, struct conn *c)
{
    list_push_back(&set->by_activity, &c->in_set);
    if (!timer_is_set(&set->idle_timer)) set_arm_idle_timer(set);
}

/* The loop that it comes from counts it until it has arrived, so that none is overlooked when the broker stops. */
struct departure {
    struct loop_msg msg;
    struct conn_set *set;
};

static void on_moved_away(struct loop_msg *msg)
{
    struct departure *d = CONTAINER_OF(msg, struct departure, msg);
    struct conn_set *set = d->set;
    mem_free(d);
    set->count--;
    if (set->closing && set->count == 0) broker_set_drained(set->broker);
}

/* The other loop takes no more: the broker stops. */
static void on_sent_back(struct loop_msg *msg)
{
    struct conn *c = CONTAINER_OF(msg, struct conn, move);
    set_add(c->set, c);
    conn_close(c, false);
    conn_settle(c);
}

static void on_arrived(struct loop_msg *msg)
{
    struct conn *c = CONTAINER_OF(msg, struct conn, move);
    struct conn_set *set = c->set;
    if (set->closing) {
        move_post(c, c->from, on_sent_back);
        return;
    }
    struct departure *d = mem_zalloc(1, sizeof *d);
    *d = (struct departure){.msg.run = on_moved_away, .set = c->from};
    loop_post(c->from->loop, &d->msg);
    c->from = NULL;
    set->count++;
    c->active_us = loop_now_us(set->loop);
    set_add(set, c);
    if (sock_attach(c->sock, set->loop, on_ready, c)) {
        conn_close(c, true);
        conn_settle(c);
    }
}

/* True: it is another loop's now. */
static bool conn_move(struct conn *c)
{
    if (!conn_may_move(c)) return false;
    struct conn_set *to = c->pull;
    c->pull = NULL;
    c->pulls = 0;
    c->readable = false; /* what there is to read is told where it is attached next */
    sock_detach(c->sock);
    list_remove(&c->in_set);
    move_post(c, to, on_arrived);
    return true;
}

static void on_idle_timer(struct timer *t)
{
    struct conn_set *set = CONTAINER_OF(t, struct conn_set, idle_timer);
    int64_t idle_us = broker_idle_us_max(set->broker);
    int64_t now_us = loop_now_us(set->loop);
    struct list_node *n;
    while ((n = list_first(&set->by_activity))) {
        struct conn *c = CONTAINER_OF(n, struct conn, in_set);
        if (idle_us < 0 || c->active_us + idle_us > now_us) break;
        struct list_node *first = list_first(&c->requests);
        if (first && !CONTAINER_OF(first, struct request, in_conn)->finished) {
            conn_touch(c); /* it waits for us, not we for it */
            continue;
        }
        conn_close(c, true);
        conn_settle(c);
    }
    set_arm_idle_timer(set);
}

void conn_set_init(struct conn_set *set, struct broker *broker, struct loop *loop)
{
    *set = (struct conn_set){.broker = broker, .loop = loop};
    list_init(&set->by_activity);
    list_init(&set->paused);
    list_init(&set->request_cache);
    set->idle_timer.fire = on_idle_timer;
    set->resume_msg.run = on_resume;
}

void conn_open(struct conn_set *set, struct sock *sock, const struct listener_state *listener,
               const struct net_addr *peer)
{
    struct conn *c = mem_zalloc(1, sizeof *c);
    c->set = set;
    c->sock = sock;
    c->listener = listener;
    net_addr_host(peer, c->host);
    c->resume.run = on_conn_resume;
    list_init(&c->requests);
    set->count++;
    c->active_us = loop_now_us(set->loop);
    list_push_back(&set->by_activity, &c->in_set);
    if (!timer_is_set(&set->idle_timer)) set_arm_idle_timer(set);
    if (set->closing || sock_attach(sock, set->loop, on_ready, c)) {
        c->closing = true;
        conn_settle(c);
    }
}

void conn_set_drain(struct conn_set *set)
{
    set->closing = true;
    loop_timer_cancel(set->loop, &set->idle_timer);
    if (set->count == 0) {
        broker_set_drained(set->broker);
        return;
    }
    LIST_EACH (&set->by_activity, n) {
        struct conn *c = CONTAINER_OF(n, struct conn, in_set);
        c->in_callback = true;
        conn_close(c, false);
        conn_flush(c);
        c->in_callback = false;
        conn_settle(c);
    }
}

void conn_set_close(struct conn_set *set)
{
    LIST_EACH (&set->by_activity, n) {
        struct conn *c = CONTAINER_OF(n, struct conn, in_set);
        conn_close(c, true);
        conn_settle(c);
    }
}
