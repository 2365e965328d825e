/* tree.h: ZooKeeper's rules over any table of nodes: what each operation checks, changes and answers, and which watches
 * it fires.  The stores bring the table (a hash table, SQLite), the tree brings the meaning, so both mean the same.
 *
 * The tree puts watch events and results into a list `out` of deliveries in the order in which they must reach the
 * loops; the store posts them when the change is safe.
 *
 * Thread: one at a time (the store's worker or lock). */
#ifndef COORD_TREE_H
#define COORD_TREE_H

#include "base/list.h"
#include "coord/coord_internal.h"
#include "os/clock.h"

/* A node as tables keep it.  `creates` counts the children ever made; ZooKeeper's cversion (creates and deletes)
 * follows from it and child_count, and a sequential child's number is it. */
struct node {
    int64_t czxid, mzxid, pzxid;
    int64_t ctime_ms, mtime_ms;
    int64_t owner; /* session; 0: persistent */
    int32_t version, creates, child_count;
};

struct node_table;
typedef void (*node_name_fn)(void *arg, struct str name);

/* Errors: ERR_NOT_FOUND from load, ERR_EXISTS from insert (nothing is changed then); anything else means that the table
 * itself failed. */
struct node_table_ops {
    /* `data` (may be NULL) is lent until the next call on the table. */
    enum err (*load)(struct node_table *t, struct str path, struct node *out, struct bytes *data);
    enum err (*insert)(struct node_table *t, struct str path, const struct node *n, struct bytes data);
    /* `data` NULL: stays as it is. */
    enum err (*update)(struct node_table *t, struct str path, const struct node *n, const struct bytes *data);
    enum err (*remove)(struct node_table *t, struct str path);
    /* Names of the children, sorted by bytes. */
    enum err (*children)(struct node_table *t, struct str path, node_name_fn each, void *arg);
    /* Paths of the ephemeral nodes of `owner`; 0: of every session. */
    enum err (*owned)(struct node_table *t, int64_t owner, node_name_fn each, void *arg);
    /* A multi: begin, then undo or keep. */
    enum err (*mark)(struct node_table *t);
    enum err (*undo)(struct node_table *t);
    enum err (*keep)(struct node_table *t);
};

struct node_table {
    const struct node_table_ops *ops;
};

struct watched_path;

struct tree {
    struct node_table *table;
    struct clock *clock;
    int64_t zxid;                 /* of the latest change */
    struct watched_path *watches; /* by path */
};

void tree_init(struct tree *t, struct node_table *table, struct clock *clock, int64_t zxid);
/* Drops all watches. */
void tree_fini(struct tree *t);

/* Makes the root when the table is empty. */
MUST_USE enum err tree_ensure_root(struct tree *t);
/* Executes one call: fills call->result, appends events to `out` and then the call itself. */
void tree_apply(struct tree *t, struct coord_call *call, struct list *out);
/* Removes the session's ephemeral nodes (0: of all sessions), firing other sessions' watches, and its own watches. */
MUST_USE enum err tree_end_session(struct tree *t, int64_t session, struct list *out);
/* Drops the watches of a session. */
void tree_drop_watches(struct tree *t, int64_t session);

/* Splits "/a/b" into "/a" and "b"; "/a" into "/" and "a"; the root into "" and "". */
void tree_split_path(struct str path, struct str *parent, struct str *name);

#endif
