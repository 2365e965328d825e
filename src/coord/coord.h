/* coord.h: the coordination store, ZooKeeper's data model behind one interface (DESIGN section 6).
 *
 * A tree of nodes with versions; persistent, ephemeral and sequential nodes; multi; one-shot watches; a session whose
 * end removes its ephemeral nodes.  Stores: zookeeper.h (an ensemble), embedded.h (SQLite, one node), memory.h (tests
 * and the simulator).
 *
 * A `struct coord` has one session at a time.  While the store is out of reach, calls wait for it; the session goes on
 * when it is back in time, with its watches.  When it was not, the session has expired: its ephemeral nodes and watches
 * are gone, calls fail with ERR_EXPIRED until coord_renew(), and whoever used it begins anew.
 *
 * Every call is asynchronous: its arguments are copied, and `to.done` runs exactly once on the loop `to.loop`, with
 * results that are lent until it returns.  Calls of one thread are executed in order, and their results arrive in order
 * on each loop.  A watch fires on the loop of the call that set it, before the result of any later call that could see
 * the change.
 *
 * Errors, as ZooKeeper has them:
 *   ERR_NOT_FOUND  no such node; for a create: no such parent
 *   ERR_EXISTS     create: it is there
 *   ERR_VERSION    set, delete, check: the node has another version
 *   ERR_NOT_EMPTY  delete: it has children
 *   ERR_INVALID    not a path; or a child for an ephemeral node, or the root to be deleted
 *   ERR_TOO_BIG    more bytes than COORD_BYTES_MAX in one call; nodes past COORD_NODES_MAX
 *   ERR_TOO_MANY   COORD_CALLS_MAX calls are waiting already
 *   ERR_EXPIRED    the session is over: coord_renew() begins another
 *   ERR_UNSURE     the connection to the store broke while a write was out: it may or may not have been executed. Reads
 *                  are asked again by the store and never end so
 *   ERR_CLOSED     coord_close() has been called
 *   ERR_IO, ERR_FULL, ERR_CORRUPT, ERR_DENIED, ERR_TIMEOUT  the store itself: its file, access, no ensemble to be
 * found; result.text explains
 *
 * Thread: any, unless a function says otherwise. */
#ifndef COORD_COORD_H
#define COORD_COORD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/slice.h"
#include "os/loop.h"

struct coord;

enum {
    COORD_BYTES_MAX = 1024 * 1024 - 1, /* ZooKeeper's jute.maxbuffer default: data and paths of one call */
    COORD_CALLS_MAX = 200 * 1000,      /* calls waiting in one session */
    COORD_PATH_MAX = 1024,
    COORD_CHROOT_MAX = 128 /* bytes of the path in zookeeper.connect: it stands before each path that is sent */
};

/* A node's vitals.  `czxid` is the id of the change that made it (Kafka's broker epoch, for /brokers/ids/N); `cversion`
 * counts creates and deletes of children; `ephemeral_owner` is a session id, 0 for a persistent node. */
struct coord_stat {
    int64_t czxid, mzxid, pzxid;
    int64_t ctime_ms, mtime_ms;
    int32_t version, cversion;
    int64_t ephemeral_owner;
    int32_t child_count;
};

enum coord_op_kind {
    COORD_CREATE,
    COORD_GET,
    COORD_SET,
    COORD_DELETE,
    COORD_EXISTS,
    COORD_CHILDREN,
    COORD_CHECK, /* in a multi only: the node's version must match */
    COORD_MULTI
};

enum coord_create_flags { COORD_EPHEMERAL = 1, COORD_SEQUENTIAL = 2 };
enum { COORD_ANY_VERSION = -1 };

/* One step of a multi: create, set, delete or check. */
struct coord_op {
    enum coord_op_kind kind;
    struct str path;
    struct bytes data; /* create, set; null is allowed */
    unsigned flags;    /* create */
    int32_t version;   /* set, delete, check; COORD_ANY_VERSION */
};

struct coord_op_result {
    enum err err;           /* steps before the failed one: OK, though undone; after it: ERR_AGAIN, not tried */
    struct str path;        /* create: the node's path, with its number when sequential */
    struct coord_stat stat; /* set: afterwards; of a create ZooKeeper's library tells only in a call of its own */
};

struct coord_result {
    enum err err;               /* of a multi: the failed step's */
    const char *text;           /* an explanation for people, when the store itself failed; else NULL */
    struct str path;            /* the path asked for; create: as made */
    struct coord_stat stat;     /* create, get, set, exists, children */
    struct bytes data;          /* get */
    const struct str *children; /* children: names, sorted by bytes */
    size_t child_count;
    const struct coord_op_result *results; /* multi: one a step */
    size_t result_count;
};

typedef void (*coord_done_fn)(void *arg, const struct coord_result *r);

/* Where a call's result goes.  `done` NULL: nobody wants it. */
struct coord_to {
    struct loop *loop;
    coord_done_fn done;
    void *arg;
};

enum coord_event { COORD_NODE_CREATED, COORD_NODE_DELETED, COORD_NODE_CHANGED, COORD_NODE_CHILDREN };

typedef void (*coord_watch_fn)(void *arg, enum coord_event event, struct str path);

/* A one-shot watch; COORD_NO_WATCH for none.  Setting the same watch (node, kind, function, argument, loop) twice
 * before it fires is one watch.  After a failed write or a lost connection it may fire though nothing changed: look
 * again, as always. */
struct coord_watch {
    coord_watch_fn fired;
    void *arg;
};
#define COORD_NO_WATCH ((struct coord_watch){NULL, NULL})

enum coord_state {
    COORD_CONNECTED,    /* once after open; again after a lost connection, and after coord_renew() */
    COORD_DISCONNECTED, /* the store is out of reach: calls wait */
    COORD_EXPIRED, /* ephemeral nodes and watches are gone; every further call is ERR_EXPIRED until coord_renew() */
    COORD_FAILED   /* the store is unusable (corrupt file, not authorized): `f` explains; every further call fails */
};

/* Told about the session on `loop`; `changed` NULL: nobody listens. */
struct coord_listener {
    struct loop *loop;
    void (*changed)(void *arg, enum coord_state state, const struct fault *f);
    void *arg;
};

/* Whether a call failed because the session is over: closed or expired.  What it held is gone. */
static inline bool coord_session_over(enum err e)
{
    return e == ERR_CLOSED || e == ERR_EXPIRED;
}

/* Of the session that was told of last; owner of the listener's loop. */
int64_t coord_session_id(const struct coord *c);
/* After COORD_EXPIRED, once everything of the old session has been laid down: begins a new one; COORD_CONNECTED
 * follows. Calls made from now on wait for it.  The listener's loop. */
void coord_renew(struct coord *c);

/* `flags`: COORD_EPHEMERAL | COORD_SEQUENTIAL.  A sequential node's name gets ten digits appended that grow with each
 * child made below that parent. */
void coord_create(struct coord *c, struct str path, struct bytes data, unsigned flags, struct coord_to to);
/* The watch fires on the next change of the data or when the node goes; it is not set when the node is not there. */
void coord_get(struct coord *c, struct str path, struct coord_watch watch, struct coord_to to);
void coord_set(struct coord *c, struct str path, struct bytes data, int32_t version, struct coord_to to);
void coord_delete(struct coord *c, struct str path, int32_t version, struct coord_to to);
/* ERR_NOT_FOUND, but the watch is set all the same: it fires when the node is made, changed or deleted. */
void coord_exists(struct coord *c, struct str path, struct coord_watch watch, struct coord_to to);
/* The watch fires when a child is made or deleted, or the node goes; it is not set when the node is not there. */
void coord_children(struct coord *c, struct str path, struct coord_watch watch, struct coord_to to);
/* All steps or none, as one change (one zxid). */
void coord_multi(struct coord *c, const struct coord_op *ops, size_t count, struct coord_to to);
/* What a multi's step weighs against COORD_BYTES_MAX, for callers that split. */
size_t coord_op_bytes(const struct coord_op *op);

/* Ends the session: calls made before it are executed, ephemeral nodes removed, watches dropped.  While an ensemble is
 * out of reach nothing is waited for: what is not done ends with ERR_CLOSED.  `closed` runs on `loop` after every
 * result and event was delivered; `c` is gone by then.  The loops must be running until then.  Whoever is given a
 * result meanwhile may make the next call: it ends with ERR_CLOSED. */
void coord_close(struct coord *c, struct loop *loop, void (*closed)(void *arg), void *arg);

/* Makes each of the paths with its parents, without data, where they are missing.  `done` gets one result: OK or the
 * first error other than ERR_EXISTS. */
void coord_make_paths(struct coord *c, const struct str *paths, size_t count, struct coord_to to);

/* Prints the whole tree, one line a node: `PATH [vVERSION] DATA`, `[vVERSION ephemeral]` for an ephemeral node, depth
 * first, siblings sorted.  `done` gets the first error; `out` must stay open until then and is used on `to.loop`. */
void coord_dump(struct coord *c, FILE *out, struct coord_to to);

#endif
