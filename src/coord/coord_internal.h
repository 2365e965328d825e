/* coord_internal.h: what the stores share: the session's base, a call in flight, deliveries to loops.
 *
 * A call is one allocation that carries copies of its arguments; what its result points to hangs on `mem`.  The front
 * (coord.c) makes it, the store's `submit` executes it some time and hands it back with coord_deliver(). */
#ifndef COORD_COORD_INTERNAL_H
#define COORD_COORD_INTERNAL_H

#include <stdatomic.h>

#include "base/list.h"
#include "coord/coord.h"

/* Something on its way to a loop: a call's result, a watch's event, news of the session. */
struct coord_delivery {
    struct loop_msg msg;
    struct list_node link; /* in a store's list until it is posted */
    struct loop *loop;
    struct coord *c;
    bool is_result, is_event;              /* of a call; of a watch; else news of the session */
    void (*run)(struct coord_delivery *d); /* on `loop`: tells the caller and frees the delivery */
};

struct coord_mem {
    struct coord_mem *next;
    _Alignas(16) char room[];
};

struct coord_call {
    struct coord_delivery delivery;
    enum coord_op_kind kind;
    bool is_close;
    struct coord_op *ops; /* one; a multi's steps */
    size_t op_count;
    struct coord_watch watch;
    struct coord_to to;
    struct coord_result result;
    struct coord_mem *mem;
    int stage;        /* the store's own */
    void *store_part; /* the store's own, on `mem` */
};

struct coord_ops {
    /* Takes the call over; any thread.  A close call ends the session and is delivered last. */
    void (*submit)(struct coord *c, struct coord_call *call);
    /* Frees the store's part and `c`, on the loop of the close; nothing is in flight any more. */
    void (*free)(struct coord *c);
    /* Begins a new session in place of the expired one; NULL: sessions of this store do not expire. */
    void (*renew)(struct coord *c);
};

/* First member of each store's session struct. */
struct coord {
    const struct coord_ops *ops;
    int64_t session;              /* the store's, under its lock */
    _Atomic int64_t told_session; /* the one that the listener was told of last */
    struct coord_listener listener;
    _Atomic int64_t in_flight; /* calls, events and news whose delivery has not run, and one for the open session */
    struct loop *close_loop;   /* set by coord_close() */
    void (*closed)(void *arg);
    void *closed_arg;
    struct loop_msg close_msg;
};

void coord_init(struct coord *c, const struct coord_ops *ops, int64_t session, struct coord_listener listener);

/* Zeroed memory that lives as long as the call. */
void *coord_call_alloc(struct coord_call *call, size_t size);
struct str coord_call_str(struct coord_call *call, struct str s);
/* Turns the call into a failure: no data, no children, steps not tried. */
void coord_call_fail(struct coord_call *call, enum err e, const char *text);

/* Posts to the delivery's loop.  Counted already when it is a call; watches and news count themselves when made. */
void coord_deliver(struct coord_delivery *d);
/* News for the listener of the session `c->session`, to be delivered; NULL when nobody listens. */
struct coord_delivery *coord_news_new(struct coord *c, enum coord_state state, const struct fault *f);
/* The event of a watch of session `c`, to be delivered. */
struct coord_delivery *coord_event_new(struct coord *c, struct loop *loop, struct coord_watch watch,
                                       enum coord_event event, struct str path);
/* Instead of its delivery. */
void coord_event_drop(struct coord_delivery *d);

/* --- paths --- */

/* A path as coord.h takes it: absolute, no empty part, no "." and "..", no control characters. */
bool coord_path_is_ok(struct str path);

#endif
