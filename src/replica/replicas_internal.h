/* replicas_internal.h: what the files of replicas share.  Not for other modules. */
#ifndef REPLICA_REPLICAS_INTERNAL_H
#define REPLICA_REPLICAS_INTERNAL_H

#include "base/hash.h"
#include "base/table.h"
#include "plog/checkpoint.h"
#include "replica/replicas.h"

/* One of log.dirs.  Once offline it stays so until the next start: what an error has left there is for recovery to look
 * at, and nothing is written there any more. */
struct log_dir {
    struct replicas *r;
    char *path;
    struct file *lock; /* NULL: it could not be opened */
    _Atomic bool offline;
    _Atomic int why; /* enum err; what it went offline for */
    struct loop_msg offline_msg;
    bool unclean;          /* at the end: something of it could not be written; checkpoint_lock */
    _Atomic uint64_t cuts; /* of logs, for partition_file_cut(); */
    uint64_t cuts_filed;   /*   which checkpoints know; checkpoint_lock */
    /* replicas_space.c */
    _Atomic bool full;              /* produce is refused */
    _Atomic int64_t unlooked_bytes; /* appended since free space was looked at, and how many are allowed to be */
    _Atomic int64_t look_bytes;
    _Atomic bool looking; /* look_job is out */
    struct job look_job;
    pthread_mutex_t look_lock;
    bool reserved; /* the reserve file is there; look_lock */
    struct meta_properties meta;
    bool has_meta;
    bool clean;                                                         /* shut down cleanly last time; read at load */
    struct checkpoint recovery_points, log_starts, watermarks, cleaned; /* as they were at load */
    _Atomic uint32_t partition_count;
    _Atomic uint32_t unrecovered; /* logs that a crash left, not open yet: without them no shutdown is clean */
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

/* One log on its way from a directory to service. */
struct opening {
    struct job job;
    struct replicas *r;
    struct partition *p;        /* a reference */
    int64_t bytes;              /* that recovery will read */
    _Atomic int64_t bytes_read; /* so far */
    int32_t last_epoch;         /* as its checkpoint says; -1: not looked at */
    _Atomic bool cancel;
    bool over; /* the log is open, or cannot be opened: home loop */
    enum err e;
    struct fault fault;
    /* What the controller has said meanwhile; home loop. */
    struct deferred_role {
        bool known;
        struct partition_role role;
        int32_t *ids; /* its arrays */
        int32_t topic_partitions;
        struct uuid topic_id;
    } deferred;
    int32_t epoch_to_begin; /* the worker's, while the role may become another; -1: none */
    struct uuid name;       /* the same: the topic's id; zero: none to be taken */
    bool named_in_sync;     /*   and whether it is in the in-sync set */
    struct move *move;      /* to another directory, that a stop has interrupted */
    bool move_tried;
    struct stop_job *stopper; /* waits for the end, to delete the partition */
};

/* Those that are opened while the broker serves. */
struct openings {
    struct workers *workers;
    struct opening **items; /* the biggest first; one that is over is NULL */
    size_t count, left, failed;
    int64_t bytes, bytes_over; /* of all; of those that are over */
    int64_t began_us;
    struct timer timer;
};

/* Upkeep of logs, by the time at which there may be something to do. */
struct retention {
    pthread_mutex_t lock;    /* guards the heap; nothing else is taken while it is held */
    struct partition **heap; /* references; the first is due first */
    size_t count, cap;
    int64_t check_us; /* when logs in which something changed are looked at, clock_mono_us() */
};

/* A future directory that a stop has left; until its partition is there. */
struct found_move {
    struct list_node node;
    char *topic, *path;
    int32_t index;
    struct log_dir *dir; /* counted in dir->unrecovered, unless that was shut down cleanly */
};

/* Where a partition is to be made that is not here yet. */
struct preferred {
    UT_hash_handle hh;
    char *key; /* "topic-7" */
    struct log_dir *dir;
};

struct move;

enum chore_kind {
    CHORE_RETENTION,
    CHORE_FLUSH,
    CHORE_CHECKPOINT,
    CHORE_STARTS,
    CHORE_WATERMARKS,
    CHORE_CLEANED, /* cleaner-offset-checkpoint: written by the cleaner, when it has cleaned */
    CHORE_SPACE,
    CHORE_COUNT
};

struct replicas {
    struct replicas_options opt;
    struct log_dir *dirs;
    size_t dir_count;
    int32_t broker_id; /* replicas_identify() */
    unsigned threads;  /* that open and close logs */
    struct partition_services services;
    struct plog_files files;    /* replicas_files.c */
    pthread_mutex_t files_lock; /* one makes room at a time; the logs' locks come after it */
    size_t flush_logs_max;      /* logs that may be flushed at once, for the files that it opens */
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
    struct cleaner *cleaner;         /* NULL: not running */
    pthread_mutex_t checkpoint_lock; /* one writer of checkpoint files at a time; `lock` is taken while it is held */
    struct openings openings;
    struct list doomed; /* by due time */
    struct timer doomed_timer;
    struct list moves; /* replicas_move.c; changed by the home loop, under `lock`, which any thread takes to read it */
    struct list found_moves;
    bool moves_started;
    struct preferred *preferred;
    _Atomic int64_t move_bytes_per_s;
    int64_t move_due_us; /* what has been copied used the limit up until then; home loop */
    int64_t retained_us; /* replicas_space.c: when retention was last called for room; home loop */
    int64_t asked_us;    /* when the controller was last asked again, and whether a log could not be opened since */
    int64_t ask_wait_us;
    bool unopened;
    bool ready; /* open: messages to the home loop find it alive */
    bool stopping;
    _Atomic bool closing; /* nothing is appended any more */
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
/* For a new partition: NULL when all are offline.  The choice counts at once. */
struct log_dir *replicas_choose_dir(struct replicas *r);
static inline bool log_dir_is_online(const struct log_dir *d)
{
    return !atomic_load(&d->offline);
}
/* Takes the directory offline with all its partitions, tells replicas_options.dir_failed on the home loop, and leaves
 * the process alone.  `what` names what failed, for the log.  Any thread, without the locks of replicas or logs. */
void replicas_dir_failed(struct replicas *r, struct log_dir *d, enum err e, const char *what);
/* The same when `e` speaks of the directory: not of a limit of the process, a name that is in use (a mount point), or a
 * single log's content; a full disk is a state of its own.  Returns `e`. */
enum err replicas_dir_check(struct log_dir *d, enum err e, const char *what);

/* replicas_survey.c */
/* "topic-7" apart: the index is behind the last dash.  `topic` is to be freed.  False for other directories. */
bool replicas_parse_dir_name(const char *name, char **topic, int32_t *index);
/* The same for "topic-7.<id>-delete" and its like. */
bool replicas_parse_marked_name(const char *name, char **topic, int32_t *index);

/* replicas_load.c */
/* What is known of a log before it is opened; zeroed but for the id when it is new. */
struct log_origin {
    /* From the checkpoints; `cleaned` -1 when not there. */
    int64_t recovery_point, log_start, high_watermark, cleaned;
    bool clean;
    struct uuid topic_id; /* zero: the one in its directory */
};
/* Opens `p`'s log in its directory.  `op`: lets recovery be watched and cancelled; or NULL.  Worker. */
enum err replicas_open_log(struct replicas *r, struct partition *p, const struct log_origin *origin, struct opening *op,
                           struct fault *f);
/* The one of that name that is unclaimed still, lent; NULL: there is none. */
struct partition *replicas_unclaimed(const struct replicas *r, const char *topic, int32_t index);
/* Takes a partition that was loaded at start out of the unclaimed ones, its reference with it; NULL: there is none. */
struct partition *replicas_claim(struct replicas *r, const char *topic, int32_t index);
/* Puts it there (again); takes over the reference. */
void replicas_unclaim(struct replicas *r, struct partition *p);
struct table *replicas_unclaimed_new(void);
void replicas_unclaimed_free(struct table *found);

/* replicas_opening.c */
struct opening *replicas_opening_new(struct replicas *r, struct partition *p);
void replicas_opening_free(struct opening *op);
/* What the checkpoints said at load of a partition that was found then. */
struct log_origin replicas_loaded_origin(const struct partition *p);
/* Opens the log by what the checkpoints say; the outcome is in `op`.  Worker. */
void replicas_opening_work(struct job *job);
/* Says why a log could not be opened, and takes the directory offline when that is to blame. */
void replicas_opening_failed(const struct opening *op);
/* Home loop: the controller spoke of a partition that is not open yet: it takes the role as soon as it is. */
void replicas_opening_defer(struct opening *op, const struct partition_role *role, int32_t topic_partitions,
                            struct uuid topic_id);
/* Home loop, or all loops have stopped: gives up what is not open yet, and waits for those that are at it. */
void replicas_stop_opening(struct replicas *r);

/* replicas_apply.c */
/* Takes a partition into the table of topics, and over the caller's reference.  Also one whose log could not be opened:
 * clients are told why.  Home loop. */
void replicas_enter(struct replicas *r, struct partition *p, struct str topic, struct uuid topic_id,
                    int32_t topic_partitions);
/* Takes it out of the topic's entry, and the entry away with its last partition.  Home loop. */
void replicas_unlink(struct replicas *r, struct topic_replicas *t, struct partition *p);
/* The partition, which is open, takes the role; fetchers and replicas_options.role_changed are told.  Home loop. */
void replicas_take_role(struct replicas *r, struct partition *p, const struct partition_role *role);
/* Tells replicas_options.role_changed.  Home loop. */
void replicas_tell_role(struct replicas *r, struct partition *p);
/* It follows nobody any more. */
void replicas_leave(struct replicas *r, struct partition *p);
/* `q` has taken the place of `p`: what the one followed, the other follows. */
void replicas_follow_again(struct replicas *r, struct partition *p, struct partition *q);
/* replicas_throttles.c: marks what of the topic is throttled here, one partition or all (NULL).  Home loop. */
void replicas_mark_throttled(struct replicas *r, struct topic_replicas *t, struct partition *p);
/* The topic's configuration, as far as it is the partition's. */
void replicas_configure_partition(struct partition *p, const struct topic_settings *settings);
/* A leader's epoch begins in its log.  Worker. */
enum kerr replicas_begin_epoch(struct partition *p, int32_t leader_epoch);
/* On a worker too: a log that has no topic id takes the one that the controller names.  One that may be of another
 * topic begins anew before that, unless it is in sync: then it has what it is in sync with, and any other has nothing
 * that it could not fetch again.  The partition hears of it on the home loop, by replicas_named(). */
enum kerr replicas_name(struct partition *p, struct uuid topic_id, bool in_sync);
bool role_in_sync(const struct partition_role *role);
void replicas_named(struct partition *p);
/* INCONSISTENT_TOPIC_ID, said so, when the log belongs to another topic of the same name. */
enum kerr replicas_check_topic_id(const struct partition *p, struct uuid topic_id);

/* replicas_stop.c */
/* An opening that it has waited for is over. */
void replicas_stop_go_on(struct stop_job *sj);
/* A fresh name for a directory that is to be deleted, beside the partition's own or in another log directory.  To be
 * freed. */
char *replicas_doomed_path(struct replicas *r, const struct partition *p);
char *replicas_doomed_path_in(struct replicas *r, const struct partition *p, const struct log_dir *d);

/* replicas_move.c */
/* The directory that was asked for before the partition is made, once, counted there; NULL: none. */
struct log_dir *replicas_preferred_dir(struct replicas *r, struct str topic, int32_t index);
/* At load: a directory NAME-future in `d`. */
void replicas_move_note(struct replicas *r, struct log_dir *d, const char *name);
/* The move that such a directory is the beginning of; NULL: none.  Before anybody appends to `p`: replicas_move_open()
 * on a worker, then replicas_move_resume().  Home loop. */
struct move *replicas_move_found(struct replicas *r, struct partition *p);
enum err replicas_move_open(struct move *m);
/* Goes on with it; not `wanted`: leaves it to the next start. */
void replicas_move_resume(struct move *m, bool wanted);
/* The partition is deleted before anybody has gone on with its move. */
void replicas_move_discard_found(struct replicas *r, struct partition *p);
/* The partition is about to be deleted.  Home loop. */
void replicas_move_cancel(const struct partition *p);
/* Lines for moves that are about to take over in `d`. */
void replicas_moves_checkpoint(struct replicas *r, const struct log_dir *d, enum chore_kind kind,
                               struct checkpoint *cp);
void replicas_moves_stop(struct replicas *r);
/* A crash in the midst of a takeover left this directory beside the one that it has moved to: it is dropped.  Or it may
 * have moved to a directory that is offline: it stays closed, since what is appended to the one is not in the other. At
 * load, before it is opened. */
bool replicas_moved_away(struct replicas *r, const struct partition *p);
/* Moves begin; when the cleaner is there that they hold. */
void replicas_moves_start(struct replicas *r);
/* All loops and workers have stopped. */
void replicas_moves_close(struct replicas *r, bool clean);

/* replicas_space.c */
/* A write failed for lack of space.  Any thread, without locks. */
void replicas_dir_full(struct log_dir *d);
/* So much is about to be written, see partition_wrote(). */
void replicas_dir_wrote(struct log_dir *d, size_t bytes);
/* Looks at the free space of every directory.  Worker; then, on the home loop, replicas_space_looked(). */
void replicas_space_work(struct replicas *r);
void replicas_space_looked(struct replicas *r);
/* Removes the reserve file: at start, when what follows may need the room, and at the end.  Nobody else looks. */
void replicas_reserve_drop(struct log_dir *d);
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
/* Retention need not wait for its time.  Home loop. */
void replicas_retain_now(struct replicas *r);
void replicas_doom(struct replicas *r, const char *path, int64_t delay_ms);
/* All directories' files of that kind.  Logs what fails.  Worker. */
enum err replicas_write_checkpoints(struct replicas *r, enum chore_kind kind);

#endif
