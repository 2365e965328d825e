/* request.h: one request from its frame to its answer.
 *
 * A handler is a function of stages (STYLE section 2): it returns WAIT and is entered again when woken.  It lives on
 * its connection's loop; only request_wake() may be called from elsewhere.  All memory of a request comes from its
 * arena and goes in one stroke; decoded strings are slices of its frame. */
#ifndef BROKER_REQUEST_H
#define BROKER_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/writer.h"
#include "os/loop.h"
#include "os/workers.h"
#include "wire/kerr.h"

struct api_row;
struct broker;
struct conn;
struct conn_set;

enum step {
    DONE,          /* rq->out is the answer */
    DONE_NO_REPLY, /* acks=0 */
    DONE_CLOSE,    /* no answer: the connection is closed once those before it are answered */
    WAIT           /* enter me again when woken, expired or cancelled */
};

struct request {
    struct broker *broker;
    struct conn *conn;
    struct loop *loop;
    const struct api_row *row;
    int16_t version;
    int32_t correlation_id;
    struct str client_id;
    const void *in; /* the decoded request: struct x_request of the API */
    void *out;      /* the answer, set to its defaults: struct x_response */
    void *op;       /* the handler's own state, zeroed, in the arena; NULL until the handler makes it */
    bool expired;   /* the deadline has passed */
    bool cancelled; /* the peer has gone or the broker stops: answer with what there is, wait for nothing more that
                       can be left off */
    struct arena arena;

    /* request.c's and conn.c's own */
    struct buf *frame;
    size_t frame_size;
    struct writer reply; /* size, header, body; splices of file ranges */
    struct timer deadline;
    struct loop_msg wake_msg;
    _Atomic bool wake_posted;
    struct job job;
    void (*work)(struct request *rq);
    bool offloaded; /* a worker has it: the handler is entered again only when that is done */
    bool finished;  /* the handler is through; the reply may still have to wait for its turn */
    bool running;
    bool no_reply, close_after;
    struct list_node in_conn;
    struct list_node in_cache;
};

/* Parses the header and the body of one whole frame (without its size) that lies in `frame` and runs its handler.
 * `frame` is referenced, not taken.  False: the frame is malformed or not for us; the caller closes the connection. */
bool request_dispatch(struct conn *conn, struct buf *frame, const uint8_t *data, size_t size);

/* Any thread: has the handler entered again on its loop.  Several calls before that count as one. */
void request_wake(struct request *rq);
/* Enters the handler again, now; on its loop, for a message of the handler's own. */
void request_enter(struct request *rq);
/* Has the handler entered again at this time with rq->expired set.  Loop time. */
void request_wait_until(struct request *rq, int64_t due_us);
/* The request waits for what other requests bring: it no longer counts against queued.max.request.bytes, or those might
 * never be read. */
void request_uncount(struct request *rq);
/* Runs `work` on a worker, for what may wait for the disk, and enters the handler again afterwards (return WAIT).
 * Nothing else enters it meanwhile. */
void request_offload(struct request *rq, void (*work)(struct request *rq));
/* Marks it cancelled and enters the handler again if it waits. */
void request_cancel(struct request *rq);
/* Frees it once it is answered or dropped; conn.c calls it. */
void request_release(struct request *rq);
/* Frees the requests kept for reuse. */
void request_cache_free(struct list *cache);

/* Room for the handler's state: zeroed, in the arena, the same at each entry. */
#define REQUEST_OP(rq, type) ((type *)request_op((rq), sizeof(type)))
void *request_op(struct request *rq, size_t size);

#endif
