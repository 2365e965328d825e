/* replicas_move.h: a partition on its way from one log directory to another: what the files about moves share. */
#ifndef REPLICA_REPLICAS_MOVE_H
#define REPLICA_REPLICAS_MOVE_H

#include "replica/replicas_internal.h"

#define MOVED_MARK  "barnabas-moved"
#define COPIED_FILE "barnabas-copied"

/* The home loop owns it, but for what is the worker's while `busy`. */
struct move {
    struct list_node node; /* in r->moves; off the list once it is cancelled or over */
    struct replicas *r;
    struct partition *from; /* a reference; in service until the end */
    struct log_dir *to;
    struct log_dir *instead; /* asked for while `busy`: where the partition goes when this turn is over */
    bool busy, cancelled;
    bool counted;     /* in to->partition_count */
    bool unrecovered; /* in to->unrecovered: what is in its directory may be torn */
    struct job job;
    struct timer timer;
    int64_t retry_us; /* how long the last failure was waited for */

    /* The worker's. */
    bool held;  /* the cleaner leaves the partition alone */
    char *path; /* of the future directory; NULL: not made yet */
    struct plog *future;
    struct topic_settings settings;
    int64_t copied;   /* bytes, in the last turn */
    int64_t unsynced; /* bytes, since the future log was flushed */
    uint8_t *buf;
    enum err e;
    struct fault fault;
    bool hopeless;           /* trying again is of no use */
    struct partition *taken; /* who has taken over; a reference */
    char *doomed_path;       /* of what it has taken over from */

    /* For DescribeLogDirs and the checkpoints; any thread. */
    _Atomic int64_t size, end, start, recovery;
    _Atomic bool settled; /* complete up to `end` and on the disk: it gets lines in the checkpoints */
};

/* One turn: opens the future log, copies some of what is missing, or takes over.  Worker. */
void move_work(struct job *job);
/* Opens a future log that a stop has left and cuts off what may not be in `from`, which nobody has appended to since.
 */
MUST_USE enum err move_open_found(struct move *m);
void move_close(struct move *m);

#endif
