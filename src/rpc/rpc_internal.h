/* rpc_internal.h: what rpc.c and rpc_connect.c share.  Not for other modules. */
#ifndef RPC_RPC_INTERNAL_H
#define RPC_RPC_INTERNAL_H

#include "base/macros.h"
#include "base/writer.h"
#include "rpc/rpc.h"
#include "wire/gen/api_versions.h"

enum { ADDRESSES_MAX = 16, TEXT_SIZE = 512 };

enum rpc_state {
    STATE_LOOKUP,   /* of the name */
    STATE_CONNECT,  /* to one address after the other */
    STATE_VERSIONS, /* ApiVersions is out */
    STATE_READY,
    STATE_OVER
};

struct version_range {
    int16_t min, max; /* min > max: the peer does not have the API */
};

struct rpc {
    struct rpc_options opt;
    enum rpc_state state;
    bool closed;      /* by rpc_close(): free it when the last call is told */
    bool in_callback; /* somewhere below the user may be closing it */
    bool end_told;
    enum rpc_end end;
    char text[TEXT_SIZE]; /* how it ended */
    struct loop_idle idle;

    /* Connecting. */
    char *peer; /* "host:port" */
    struct lookup *lookup;
    struct net_addr addrs[ADDRESSES_MAX];
    size_t addr_count, addr_next;
    bool refused, silent; /* of the addresses tried so far at least one */
    int64_t connect_deadline_us;
    struct timer connect_timer;

    struct sock *sock;
    bool readable, peer_done;
    struct rpc_call versions_call;
    struct api_versions_request versions_request;
    struct version_range versions[API_COUNT];

    struct timer silence_timer;
    int64_t heard_us; /* when bytes came last, or the first call went out */

    struct list waiting, out, failed;
    size_t call_count; /* in the first two */
    int32_t correlation_id;

    struct writer send;   /* frames, one behind the other */
    size_t send_at;       /* of them already sent */
    uint64_t stream_sent; /* by the connection in all */

    struct buf *in; /* what lies between in_at and in_size is not parsed yet */
    size_t in_at, in_size;
    size_t large_hint;  /* what a large answer of this peer takes, from those that came */
    struct arena arena; /* of the answer that is being told */
};

/* ---- rpc_connect.c */

/* Ends in rpc_connected(), or in rpc_fail(). */
void rpc_connect(struct rpc *r, struct str host, int32_t port);
/* An address was no good, for this reason (ERR_CLOSED: nobody listens): the next one is tried. */
void rpc_connect_failed(struct rpc *r, enum err e);
/* The connection is over: the answer of a look-up concerns nobody any more. */
void rpc_connect_forget(struct rpc *r);

/* ---- rpc.c */

/* What the socket has to say, from its first connect on. */
void rpc_on_ready(struct sock *s, void *arg, unsigned ready);
/* Closes the socket, and stops the timers that go with it. */
void rpc_hang_up(struct rpc *r);
/* It is over, unless it is so already. */
PRINTF_LIKE(3, 4) void rpc_fail(struct rpc *r, enum rpc_end end, const char *fmt, ...);

#endif
