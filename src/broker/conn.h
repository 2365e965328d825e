/* conn.h: a client's connection: bytes to frames, answers to bytes.
 *
 * A connection lives on one loop, until it turns out that its work is another's: consumers keep a connection for their
 * group's coordinator, whose loop it moves to (conn_worked_on()).  Several of its requests are in progress at once;
 * answers leave in request order. Reading stops, and the peer is held back by TCP, while too many of its requests or
 * too many unsent bytes are pending or while the broker as a whole holds more than queued.max.request.bytes. */
#ifndef BROKER_CONN_H
#define BROKER_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "os/net.h"

struct broker;
struct listener_state;
struct refused;
struct request;

enum {
    CONN_REQUESTS_MAX = 256,          /* of one connection in progress */
    CONN_UNSENT_BYTES_MAX = 64 << 20, /* of its answers in memory */
    CONN_HOST_MAX = NET_ADDR_TEXT_MAX
};

/* The connections of one loop.  Thread: the loop, but for conn_set_resume(). */
struct conn_set {
    struct broker *broker;
    struct loop *loop;
    struct list by_activity; /* least recently active first */
    uint32_t count;
    struct timer idle_timer; /* connections.max.idle.ms of the first in by_activity */
    struct list paused;      /* waiting for queued.max.request.bytes */
    struct loop_msg resume_msg;
    _Atomic bool resume_posted, has_paused;
    struct list request_cache;
    uint32_t request_cache_count;
    bool closing;
};

struct conn {
    struct conn_set *set;
    struct sock *sock;
    const struct listener_state *listener; /* whose advertised addresses its Metadata answers give */
    char host[CONN_HOST_MAX];              /* the peer's, for max.connections.per.ip and logs */
    struct list_node in_set, in_paused;
    int64_t active_us;

    struct buf *in;         /* NULL while nothing is half received */
    size_t in_at, in_size;  /* first byte not parsed; bytes received */
    size_t in_counted;      /* of a big frame's received part against queued.max.request.bytes */
    size_t frame_size_hint; /* size of the last big frame: what to allocate for the next */
    bool readable;          /* there may be bytes in the socket that we have not read */
    bool peer_done;         /* the socket has told that its end is near: read on to it */
    bool half_closed;       /* the peer sends no more */
    bool closing;           /* nothing more is read; freed once no request is in progress */
    bool failed;            /* answers cannot be sent any more */

    struct list requests; /* in order of arrival */
    uint32_t request_count;
    size_t unsent_bytes;
    size_t sent;      /* bytes of the first request's reply that are out */
    bool in_callback; /* conn_free() is put off */
    bool held;        /* conn_hold() */
    struct loop_idle resume;
    struct refused *refused; /* what its producers are still to send again */

    struct conn_set *pull; /* whose loop has had the last requests' work; NULL: ours */
    unsigned pulls;        /* how many in a row */
    struct loop_msg move;
    struct conn_set *from; /* while it moves */
};

void conn_set_init(struct conn_set *set, struct broker *broker, struct loop *loop);
/* Stops reading on every connection, cancels what waits and closes each as its last answer is out. */
void conn_set_drain(struct conn_set *set);
/* Closes what is left at once. */
void conn_set_close(struct conn_set *set);
/* Any thread: there is room again under queued.max.request.bytes. */
void conn_set_resume(struct conn_set *set);

/* Takes over an accepted socket.  On the set's loop. */
void conn_open(struct conn_set *set, struct sock *sock, const struct listener_state *listener,
               const struct net_addr *peer);
/* No further request is begun until conn_resume(): for a request whose work must come before that of those behind it,
 * and goes to a worker first.  Nests not. */
void conn_hold(struct conn *c);
void conn_resume(struct conn *c);
/* A request of this connection has its work on that loop.  After some in a row that all have theirs on the same other
 * loop, the connection moves there, when nothing of it is in progress: each would cost two messages and, where the
 * loops are not busy, two threads that wake up.  From then on the connection is that loop's. */
void conn_worked_on(struct conn *c, const struct loop *loop);
/* request.c: a request of this connection has its answer (or none). */
void conn_request_finished(struct conn *c, struct request *rq);

#endif
