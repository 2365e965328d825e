/* partition.h: this broker's replica of one partition: its log, its role, its high watermark, and who waits for it.
 *
 * Thread: any loop reads and appends; `lock` guards the waiters.  Role and topic change on the loop that applies the
 * controller's requests (replicas.h).  A pointer from replicas_find() is good for one turn; partition_ref() makes it
 * last. */
#ifndef REPLICA_PARTITION_H
#define REPLICA_PARTITION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "os/workers.h"
#include "plog/plog.h"
#include "replica/in_sync.h"

struct flusher;
struct leaders;
struct log_dir;
struct move;
struct opening;

/* What partitions leave to others; lent by the table that they are in. */
struct partition_services {
    struct workers *workers; /* close the logs of those that nobody uses any more; NULL: who uses it last does */
    struct flusher *flusher; /* puts logs on the disk; NULL: nobody does unless told */
    struct leaders *leaders; /* watches followers, asks the controller; NULL: nobody does */
    _Atomic bool workers_gone;
};

/* Replication of it counts against the throttled rate of leaders here, or of followers (KIP-73). */
enum throttled { THROTTLED_AS_LEADER = 1, THROTTLED_AS_FOLLOWER = 2 };

/* What cleaner.c knows of a partition, under its lock. */
struct partition_cleaning {
    bool busy;        /* a thread cleans it */
    uint32_t held;    /* cleaner_hold() */
    int failures;     /* one after the other; */
    int64_t retry_us; /*   not before then */
    int64_t filed;    /* what cleaner-offset-checkpoint says; -1: nothing */
};

struct partition {
    _Atomic uint32_t refs;
    char *topic;
    struct uuid topic_id;
    int32_t index;
    struct log_dir *dir;
    struct partition_services *services;
    struct plog *pl;              /* NULL until it is open */
    struct opening *opening;      /* replicas_opening.c: it is being opened; home loop */
    struct move *move;            /* replicas_move.c: to another directory; home loop */
    struct partition *flush_next; /* flusher.c */
    int64_t retain_ms;            /* replicas_retention.c: when its upkeep is due; */
    size_t retain_index;          /*   its place in the heap, from 1; 0: not in there */
    bool retain_never;
    bool found; /* by replicas_load(): the checkpoints of then speak of it */
    struct job closing;
    _Atomic bool opened;                   /* `pl` is there: it may be looked at, also when not online any more */
    _Atomic bool online;                   /* false: not open yet, the log failed, or the partition is being deleted */
    _Atomic bool deleted;                  /* the latter */
    _Atomic(struct partition *) successor; /* a reference: it has moved to another directory, and lives there */
    _Atomic bool leads;
    _Atomic int32_t leader;       /* its broker; -1: there is none */
    _Atomic int32_t leader_epoch; /* -1 before the controller spoke */
    _Atomic int64_t epoch_start;  /* the log's end when this leadership began */
    _Atomic int64_t high_watermark;
    _Atomic uint32_t cut_unfiled; /* follower.c: not 0: checkpoints say more than the log has, since so many cuts:
                                     nothing may be appended, nor by producers */
    _Atomic int64_t cut; /* follower.c: the log has been cut there since a move looked last; INT64_MAX: it has not */
    _Atomic bool alone;  /* leads, and no follower has a say: see leader.c */
    _Atomic int32_t min_insync_replicas;
    /* The in-sync set as the controller last told it: how many, and whether that is enough; and whether with those it
     * would be who are about to enter. */
    _Atomic int32_t in_sync_count;
    _Atomic bool in_sync_enough, in_sync_enough_max;
    _Atomic uint8_t throttled;       /* enum throttled, as bits */
    _Atomic uint32_t flushes_failed; /* by errors that pass: who waits for one is to give up */
    pthread_mutex_t lock;            /* guards up to the waiters, and changes of the role above */
    struct in_sync in_sync;          /* while it leads */
    int32_t partition_epoch;         /* of the role */
    int64_t refused_until_ms;        /* the controller did not let a follower enter: none is proposed before */
    struct list waiters;
    _Atomic uint32_t waiter_count;
    _Atomic uint8_t changed; /* replicas_upkeep.c: what has moved since a checkpoint of its kind was written */
    struct partition_cleaning cleaning;
    _Atomic int64_t watched_ms; /* leaders.c: when somebody looks at its followers; INT64_MAX: never */
    size_t watch_index;         /*   its place in the heap, from 1; 0: not in there */
    bool proposal_queued;       /*   it waits to be told to the controller */
    size_t all_index;           /* replicas.c: its place in the list of all */
    bool listed;                /* it is in there */
};

/* Waits for the high watermark or the log's end to move, or for the role to change.  Embedded in what waits. */
struct partition_waiter {
    struct list_node node;
    /* Progress wakes it only when both the high watermark and the recovery point have come that far; 0: any does. */
    int64_t until_high_watermark, until_durable;
    void (*wake)(struct partition_waiter *w); /* any thread, under the partition's lock: only post a message */
};

/* `topic` is copied; the log is opened by the caller (partition_events) and handed over with partition_give_log(). */
struct partition *partition_new(const char *topic, int32_t index, struct log_dir *dir,
                                struct partition_services *services);
struct partition *partition_ref(struct partition *p);
/* The last one has a worker abandon the log if it is still open. */
void partition_unref(struct partition *p);

/* What the log is to call: keeps high watermark and waiters up to date. */
struct plog_events partition_events(struct partition *p);
/* `high_watermark`: as far as anybody remembers; it is put within the log. */
void partition_give_log(struct partition *p, struct plog *pl, int64_t high_watermark);

/* The topic's configuration for the log has changed. */
void partition_reconfigure(struct partition *p, const struct plog_config *config);
/* The disk with its log is as good as full, or a cut of the log has found it so: clients may not write to it.  Any
 * thread, cheap.  In replicas_space.c, as: */
bool partition_disk_is_full(const struct partition *p);
/* So much is about to be appended: its disk is looked at in good time.  Any thread, cheap. */
void partition_wrote(struct partition *p, size_t bytes);

/* The controller's word (LeaderAndIsr).  The arrays are lent. */
struct partition_role {
    bool leads;
    int32_t self;                          /* this broker's id; */
    int32_t leader;                        /*   and the leader's, -1: there is none */
    int32_t leader_epoch, partition_epoch; /* the latter counts changes of replicas and of the in-sync set */
    const int32_t *replicas, *isr;
    int32_t replica_count, isr_count;
};
/* Takes it over, unless it is older than what is known: within a leader's epoch the partition's epoch never falls.  A
 * leader's new epoch has begun in the log.  Waiters wake, since what they wait for may never come now.  Home loop. */
void partition_set_role(struct partition *p, const struct partition_role *role);
/* No replica that is led or follows any more, until the next role. */
void partition_resign(struct partition *p);
/* `q` holds the same log in another directory: it takes the role of `p`, with what is known of its followers, unless it
 * has a later one. */
void partition_inherit_role(struct partition *q, struct partition *p);
/* The topic's min.insync.replicas, 1 until then. */
void partition_set_min_insync(struct partition *p, int32_t min_insync_replicas);

/* ---- Following, for fetchers.c; in follower.c */

/* The leader's high watermark, as an answer told: ours becomes what of it we hold.  Any loop. */
void partition_follow(struct partition *p, int64_t leader_high_watermark);
/* Cuts the log at `offset`, and the high watermark with it, though not in silence; a copy that is on its way to another
 * directory is cut likewise.  Of a partition that has moved, the new log is cut.  Worker. */
MUST_USE enum err partition_truncate(struct partition *p, int64_t offset);
/* Drops everything and begins anew at `offset`: the leader has nothing below it.  Worker. */
MUST_USE enum err partition_start_at(struct partition *p, int64_t offset);
/* The log was cut below what its directory's checkpoints say, which are written before anything takes the place of what
 * was cut: recovery would believe it to be on the disk.  Worker.  In replicas_upkeep.c. */
MUST_USE enum err partition_file_cut(struct partition *p);

/* ---- Leading, for the Fetch handler; in leader.c */

/* What a follower's fetch tells of it (KIP-903: with its broker's epoch). */
struct follower_fetch {
    int32_t broker_id;
    int64_t broker_epoch; /* -1: it does not say */
    int32_t leader_epoch; /* that the fetch has named; -1: none */
    int64_t fetch_offset; /* its log's end */
    int64_t log_start;
    int64_t now_us; /* monotonic */
};
/* After the leader checks and the read: the follower has all below `fetch_offset`.  Moves the high watermark, proposes
 * to let it into the in-sync set, wakes who waits.  KERR_NOT_LEADER_OR_FOLLOWER: also when its broker has started anew
 * since; KERR_UNKNOWN_LEADER_EPOCH or that one when it is no replica; what the checks say, if the role or the log has
 * changed since them.  Any loop. */
enum kerr partition_follower_fetched(struct partition *p, const struct follower_fetch *ff);
/* The same answers before anything is read for it. */
enum kerr partition_check_follower(struct partition *p, int32_t broker_id, bool knows_epoch);
/* Nothing is read for this follower now: it is not in sync, and what is throttled has used up its rate. */
bool partition_holds_back(struct partition *p, int32_t broker_id, int64_t now_us);
/* So much was read for a follower. */
void partition_charge(struct partition *p, size_t bytes, int64_t now_us);
/* Whether the in-sync set is as large as min.insync.replicas, or as the whole assignment where that is smaller: before
 * an append with acks=all, and after it, when those count that are about to enter.  Any thread, no lock. */
static inline bool partition_in_sync_enough(const struct partition *p)
{
    return atomic_load_explicit(&p->in_sync_enough, memory_order_acquire);
}
static inline bool partition_in_sync_enough_after(const struct partition *p)
{
    return atomic_load_explicit(&p->in_sync_enough_max, memory_order_acquire);
}
/* Where the records of this leadership begin: consumers who saw more under the last leader wait for the high watermark
 * to get there (KIP-207). */
static inline int64_t partition_epoch_start(const struct partition *p)
{
    return atomic_load_explicit(&p->epoch_start, memory_order_acquire);
}
/* The smallest log start of all replicas whose brokers are alive (DeleteRecords waits for it).  A loop. */
int64_t partition_low_watermark(struct partition *p);
/* The in-sync follower that suits and has `offset`, the one with the most records (KIP-392); -1: none.  `suits` runs
 * under the partition's lock. */
int32_t partition_choose_replica(struct partition *p, int64_t offset, bool (*suits)(void *arg, int32_t broker_id),
                                 void *arg);

/* Reading or writing its log failed.  When the directory is to blame it goes offline with all its partitions.  Any
 * thread, without locks.  In replicas_dirs.c. */
void partition_failed(struct partition *p, enum err e, const char *what);
/* Takes it out of service: produce and fetch answer with an error from now on. */
void partition_set_offline(struct partition *p);
/* The same, since it is no replica any more: clients are told to look for the leader anew. */
void partition_set_deleted(struct partition *p);

/* Who serves it now, lent as long as `p` is; NULL while that is `p` itself. */
static inline struct partition *partition_successor(const struct partition *p)
{
    return atomic_load_explicit(&p->successor, memory_order_acquire);
}
/* Takes a reference on `q`, and wakes waiters. */
void partition_set_successor(struct partition *p, struct partition *q);

/* Consumers see what lies below it. */
static inline int64_t partition_high_watermark(const struct partition *p)
{
    return atomic_load_explicit(&p->high_watermark, memory_order_acquire);
}
/* First offset that a power cut might take. */
static inline int64_t partition_durable_end(const struct partition *p)
{
    return plog_recovery_point(p->pl);
}
/* min(high watermark, first open transaction): what read_committed consumers see (KIP-98). */
int64_t partition_last_stable(struct partition *p);

/* Checks that this broker leads it and that the client knows the current epoch (KIP-320; `client_epoch` -1: it does not
 * say).  KERR_NOT_LEADER_OR_FOLLOWER, KERR_FENCED_LEADER_EPOCH, KERR_UNKNOWN_LEADER_EPOCH, KERR_KAFKA_STORAGE_ERROR. */
enum kerr partition_check_leader(const struct partition *p, int32_t client_epoch);

/* The same for what a follower may answer, too. */
enum kerr partition_check_replica(const struct partition *p, int32_t client_epoch);

/* DeleteRecords: nothing below `offset` is read any more, and the next checkpoint remembers it.  Worker. */
MUST_USE enum err partition_raise_start(struct partition *p, int64_t offset);

/* After partition_wait() the caller looks once more at what it waits for; a change from then on wakes it. */
void partition_wait(struct partition *p, struct partition_waiter *w);
/* No wake is called any more once this has returned; harmless when it does not wait.  Says whether it did. */
bool partition_unwait(struct partition *p, struct partition_waiter *w);

#endif
