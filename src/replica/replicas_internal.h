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
    bool clean;                                    /* shut down cleanly last time; read at load */
    struct checkpoint recovery_points, log_starts; /* as they were at load */
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

/* Upkeep of logs, by the time at which there may be something to do. */
struct retention {
    pthread_mutex_t lock;    /* guards the heap; nothing else is taken while it is held */
    struct partition **heap; /* references; the first is due first */
    size_t count, cap;
    int64_t check_us; /* when logs in which something changed are looked at, clock_mono_us() */
};

enum chore_kind { CHORE_RETENTION, CHORE_FLUSH, CHORE_CHECKPOINT, CHORE_STARTS, CHORE_WATERMARKS, CHORE_COUNT };

struct replicas {
    struct replicas_options opt;
    struct log_dir *dirs;
    size_t dir_count;
    unsigned threads; /* that open and close logs */
    struct partition_services services;
    struct plog_files files;    /* replicas_files.c */
    pthread_mutex_t files_lock; /* one makes room at a time; the logs' locks come after it */
    _Atomic bool room_wanted;
    struct job room_job;
    size_t room_at;                /* in the list of all, where the last one stopped */
    struct table *by_name, *by_id; /* struct topic_replicas */
    struct table *found;           /* struct found: loaded at start, not claimed by the controller yet */
    pthread_mutex_t lock;          /* guards all, all_count */
    struct partition **all;
    size_t all_count, all_cap;
    struct chore chores[CHORE_COUNT];
    struct retention retention;
    pthread_mutex_t checkpoint_lock; /* one writer of checkpoint files at a time; `lock` is taken while it is held */
    struct list doomed;              /* by due time */
    struct timer doomed_timer;
    bool stopping;
};

/* replicas.c */
void replicas_add(struct replicas *r, struct partition *p);
/* Out of the list of all; drops the list's reference. */
void replicas_drop(struct replicas *r, struct partition *p);

/* replicas_files.c */
void replicas_files_init(struct replicas *r);

/* replicas_dirs.c */
/* Makes, locks and identifies one directory; `f` explains. */
enum err replicas_dir_open(struct replicas *r, struct log_dir *d, const char *path, struct fault *f);
/* All directories must belong to one broker of one cluster. */
enum err replicas_dirs_agree(const struct replicas *r, struct fault *f);
struct log_dir *replicas_choose_dir(struct replicas *r);

/* replicas_load.c */
/* What is known of a log before it is opened; zeroed but for the id when it is new. */
struct log_origin {
    int64_t recovery_point, log_start; /* from the checkpoints */
    bool clean;
    struct uuid topic_id; /* zero: the one in its directory */
};
/* Opens `p`'s log in its directory.  Worker. */
enum err replicas_open_log(struct replicas *r, struct partition *p, const struct log_origin *origin, struct fault *f);
/* Takes a partition that was loaded at start out of the unclaimed ones, its reference with it; NULL: there is none. */
struct partition *replicas_claim(struct replicas *r, const char *topic, int32_t index);
/* Puts it there (again); takes over the reference. */
void replicas_unclaim(struct replicas *r, struct partition *p);
struct table *replicas_unclaimed_new(void);
void replicas_unclaimed_free(struct table *found);

/* replicas_retention.c */
void replicas_retention_init(struct replicas *r);
void replicas_retention_fini(struct replicas *r);
/* Takes the partition out for good. */
void replicas_retention_forget(struct replicas *r, struct partition *p);
/* Does what is due.  Worker. */
void replicas_retention_work(struct replicas *r);
/* Wall clock when the next log is due; INT64_MAX: none. */
int64_t replicas_retention_next_ms(struct replicas *r);

/* replicas_upkeep.c */
void replicas_doom(struct replicas *r, const char *path, int64_t delay_ms);
/* All directories' files of that kind.  Logs what fails.  Worker. */
enum err replicas_write_checkpoints(struct replicas *r, enum chore_kind kind);

#endif
