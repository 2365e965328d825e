/* replicas_internal.h: what the files of replicas share.  Not for other modules. */
#ifndef REPLICA_REPLICAS_INTERNAL_H
#define REPLICA_REPLICAS_INTERNAL_H

#include "base/table.h"
#include "plog/checkpoint.h"
#include "replica/replicas.h"

/* One of log.dirs. */
struct log_dir {
    char *path;
    struct file *lock;
    struct meta_properties meta;
    bool has_meta;
    bool clean; /* shut down cleanly last time; read at load */
    struct checkpoint recovery_points, log_starts;
    _Atomic uint32_t partition_count;
};

/* Something done again and again on a worker, never twice at a time. */
struct chore {
    struct replicas *r;
    struct timer timer;
    struct job job;
    int64_t interval_ms;
    bool running;
};

/* A directory on its way out: renamed, to be removed when file.delete.delay.ms is over. */
struct doomed {
    struct list_node node;
    struct replicas *r;
    struct job job;
    char *path;
    int64_t due_us;
};

enum chore_kind { CHORE_RETENTION, CHORE_FLUSH, CHORE_CHECKPOINT, CHORE_STARTS, CHORE_WATERMARKS, CHORE_COUNT };

struct replicas {
    struct replicas_options opt;
    struct log_dir *dirs;
    size_t dir_count;
    struct table *by_name, *by_id; /* struct topic_replicas */
    struct table *found;           /* struct partition: loaded at start, not claimed by the controller yet */
    pthread_mutex_t lock;          /* guards all, all_count */
    struct partition **all;
    size_t all_count, all_cap;
    struct chore chores[CHORE_COUNT];
    struct list doomed; /* by due time */
    struct timer doomed_timer;
    bool stopping;
};

/* replicas.c */
void replicas_add(struct replicas *r, struct partition *p);
/* Out of the list of all; drops the list's reference. */
void replicas_drop(struct replicas *r, struct partition *p);
/* Opens `p`'s log in its directory with what the checkpoints say.  Worker. */
enum err replicas_open_log(struct replicas *r, struct partition *p, struct uuid topic_id, struct fault *f);
struct log_dir *replicas_choose_dir(struct replicas *r);
struct partition *replicas_claim(struct replicas *r, const char *topic, int32_t index);

/* replicas_upkeep.c */
void replicas_doom(struct replicas *r, const char *path, int64_t delay_ms);
enum err replicas_write_checkpoints(struct replicas *r, enum chore_kind kind);

#endif
