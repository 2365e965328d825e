/* zookeeper_internal.h: what the ZooKeeper store's files share.
 *
 * zookeeper.c has the session and the queue of calls, zookeeper_call.c translates one call for the library and back,
 * zookeeper_watch.c has the watches, zookeeper_hosts.c reads zookeeper.connect. */
#ifndef COORD_ZOOKEEPER_INTERNAL_H
#define COORD_ZOOKEEPER_INTERNAL_H

#include <pthread.h>

#define THREADED    /* also declares calls that wait; of them only one that does not is made, see \
                       zookeeper_watches_trim() */
#include <zookeeper/zookeeper.h>

#include "base/list.h"
#include "coord/coord_internal.h"
#include "coord/zookeeper.h"

enum zookeeper_phase {
    PHASE_OPENING,      /* the session has not been told of: calls wait */
    PHASE_CONNECTED,    /* calls go out */
    PHASE_DISCONNECTED, /* the library mends the connection: calls wait */
    PHASE_ENDING,       /* the keeper is about to lay the session down, for the reason `over` */
    PHASE_OVER          /* there is no session: calls fail with `over` */
};

/* Where a call is, in coord_call.stage. */
enum zookeeper_stage {
    STAGE_WAITING,   /* for its turn; in `sent`: to be asked again */
    STAGE_OUT,       /* the library has it */
    STAGE_OUT_AGAIN, /* the same, and a read before it is to be asked again: so is this one, or it would tell of an
                        earlier state than its predecessor */
    STAGE_DONE       /* delivered when those before it are */
};

/* An access control list as the library takes it. */
struct zookeeper_acl {
    struct ACL entries[2];
    struct ACL_vector list;
};

struct zookeeper {
    struct coord c;
    /* Set by the open and never changed. */
    char *hosts;        /* as the library takes them */
    char *chroot;       /* "" or "/a/b" */
    size_t chroot_size; /* of its text */
    char *auth;         /* USER:PASSWORD, not for any log; NULL: none */
    char *user;
    int32_t session_timeout_ms, connection_timeout_ms, out_max;
    bool set_acl;
    struct zookeeper_acl open_acl, shared_acl, private_acl;

    pthread_t keeper;
    pthread_mutex_t lock; /* guards what follows; the library is called with it held, never the other way round */
    pthread_cond_t changed;
    enum zookeeper_phase phase;
    enum err over;      /* why the session is, or is about to be, over */
    struct fault fault; /* COORD_FAILED's */
    zhandle_t *handle;  /* the library's session; NULL: none */
    bool auth_given, chroot_ready, names_unknown;
    int64_t give_up_us; /* when the first connection is given up; 0: never */
    struct list sent, waiting;
    int out, again_count;          /* in `sent`: calls that the library has, and those to be asked again */
    struct coord_call *close_call; /* the close has been asked for */
    bool ended;
    struct zookeeper_watched *watches;
    size_t watch_bytes; /* what the library sends to set them again */
};

/* --- zookeeper_hosts.c --- */

/* Splits HOST:PORT,[HOST6]:PORT/CHROOT into what the library takes as addresses and the chroot, "" when there is none.
 * Both are the caller's.  ERR_INVALID: `f` explains. */
MUST_USE enum err zookeeper_hosts_parse(struct str connect, char **hosts, char **chroot, struct fault *f);

/* --- zookeeper_call.c --- */

bool zookeeper_call_reads(const struct coord_call *call);
/* Gives the call to the library.  Its answer comes to zookeeper_answered(), on another thread, when ZOK is returned. */
int zookeeper_call_send(struct zookeeper *z, struct coord_call *call);
/* What fails by itself, as the servers would have it: fills the result.  False: the call is fine. */
bool zookeeper_call_fails(struct coord_call *call);
/* Turns the call into a failure with the library's word. */
void zookeeper_call_refused(struct coord_call *call, int rc);
/* The access list of a new node, as Kafka has it. */
const struct ACL_vector *zookeeper_acl(const struct zookeeper *z, struct str path);
void zookeeper_acl_init(struct zookeeper *z);

/* --- zookeeper_watch.c; with the lock held --- */

void zookeeper_watch_set(struct zookeeper *z, const struct coord_call *call);
void zookeeper_watches_drop(struct zookeeper *z);
/* The connection is lost: lets go of the watches that would not fit into the request that sets them again, and fires
 * them. */
void zookeeper_watches_trim(struct zookeeper *z);
/* The library's watcher of every node; its own thread. */
void zookeeper_watch_fired(zhandle_t *zh, int type, int state, const char *path, void *context);

/* --- zookeeper.c --- */

/* The call's result is filled for `rc`, which may be that the connection was lost.  The library's thread. */
void zookeeper_answered(struct zookeeper *z, struct coord_call *call, int rc);

static inline struct zookeeper *zookeeper_of(const struct coord_call *call)
{
    return CONTAINER_OF(call->delivery.c, struct zookeeper, c);
}

#endif
