/* rpc.h: one connection to another broker: requests go out, several at a time, answers come back in their order.
 *
 * It is for what brokers say to each other: a follower to its leader, the controller to the brokers, a broker to the
 * controller.  (client/channel.h is the form for tools, which wait.)  A connection lives once: when it ends, for
 * whatever reason, every call out is answered with an error, `ended` tells why, and whoever wants another one opens it,
 * after whatever back-off suits him.  A peer is believed nothing: what is no answer ends the connection.
 * Thread: the loop given; nothing here waits.  `done` and `ended` run in a turn of their own, never from within
 * rpc_open(), rpc_send() or rpc_close(). */
#ifndef RPC_RPC_H
#define RPC_RPC_H

#include "base/arena.h"
#include "base/buf.h"
#include "os/loop.h"
#include "os/net.h"
#include "os/workers.h"
#include "wire/apis.h"

struct rpc;

enum {
    RPC_RESPONSE_MAX = 512 << 20, /* the longest answer that is taken */
    RPC_DECODE_MAX = 1 << 30,     /* what decoding one may take, beside its bytes */
    RPC_CALLS_MAX = 1000          /* out at a time on one connection; past it: ERR_TOO_MANY */
};

/* How a connection ended. */
enum rpc_end {
    RPC_REFUSED,     /* nobody listens at that address: the process is gone (or a packet filter says so) */
    RPC_UNREACHABLE, /* no way there, no such name, or no answer to the connect in time */
    RPC_LOST,        /* it was up, and the peer has closed or reset it */
    RPC_TIMED_OUT,   /* a call that was out was not answered in time: the answers behind it cannot come either; or
                        nothing has come for `silence_ms` */
    RPC_MALFORMED,   /* the peer sent what is no answer */
    RPC_CLOSED       /* rpc_close() */
};

struct rpc_options {
    struct net *net;
    struct loop *loop;
    struct workers *workers;      /* look names up; literal addresses need none.  NULL: literal addresses only */
    struct buf_pool *bufs;        /* answers are received into its buffers; NULL: the heap */
    struct str client_id;         /* lent for the connection's life */
    int64_t connect_timeout_ms;   /* to be connected, and once more for the answer to ApiVersions */
    int64_t silence_ms;           /* calls are out, and nothing comes for so long: RPC_TIMED_OUT; 0: no limit */
    int32_t receive_buffer_bytes; /* replica.socket.receive.buffer.bytes; -1: the system's own tuning */
    /* The connection is over; `text` says how for a log line, lent.  Every call out has had its `done` before.  The
     * rpc is still to be freed with rpc_close(), which may be called from within.  Not called after rpc_close(). */
    void (*ended)(void *arg, enum rpc_end end, const char *text);
    /* The peer's versions are known and calls flow; may be NULL. */
    void (*ready)(void *arg);
    void *arg;
};

/* One request and its answer.  Zeroed, then filled in by the caller, who lends it and all it points to until `done`. */
struct rpc_call {
    /* in */
    enum api api;
    int16_t version_min, version_max; /* of those that say what is meant; the highest that both know is taken */
    const void *request;
    int64_t timeout_ms; /* from rpc_send() on; 0: none.  One that is not out yet fails alone */
    void (*done)(struct rpc_call *call);

    /* out, when `done` is called; good until it returns */
    enum err err; /* OK; ERR_UNSUPPORTED: no common version; ERR_TIMEOUT, ERR_CLOSED, ERR_CORRUPT; ERR_TOO_MANY */
    bool sent;    /* with an error: bytes of it have left, so the peer may have executed it */
    int16_t version;
    const void *response; /* decoded; its arrays lie in `memory`, its slices in `frame` */
    struct buf *frame;    /* to keep record bytes longer: buf_ref() */
    struct arena *memory; /* to keep the arrays longer, too: arena_absorb() */

    /* rpc.c's own */
    struct list_node link;
    struct rpc *rpc;
    struct timer deadline;
    uint64_t stream_at; /* where its bytes begin in all that the connection sends */
    int32_t correlation_id;
};

/* Starts to connect to `host` (a name, IPv4, IPv6).  Never NULL: failure comes as `ended`. */
struct rpc *rpc_open(const struct rpc_options *opt, struct str host, int32_t port);
/* Ends and frees it; calls still out get their `done` with ERR_CLOSED in the loop's next turn.  NULL is allowed. */
void rpc_close(struct rpc *r);

/* Calls made before the connection is up wait for it. */
void rpc_send(struct rpc *r, struct rpc_call *call);
/* The connection is up and the peer's versions are known. */
bool rpc_is_ready(const struct rpc *r);
/* The highest version of an API that both know, within the bounds; -1: none, or not known yet. */
int16_t rpc_version(const struct rpc *r, enum api api, int16_t min, int16_t max);

#endif
