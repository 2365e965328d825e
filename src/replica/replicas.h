/* replicas.h: all replicas on this broker: its log directories, the table of partitions, and their upkeep.
 *
 * State enters only by the controller's requests (LeaderAndIsr, StopReplica), as in Kafka; on one node they are
 * function calls with the same structs.  Thread: one loop, the home loop, makes all changes; any loop looks up without
 * a lock. What looks at many files runs on workers. */
#ifndef REPLICA_REPLICAS_H
#define REPLICA_REPLICAS_H

#include "os/fs.h"
#include "os/grace.h"
#include "os/loop.h"
#include "os/rng.h"
#include "os/workers.h"
#include "plog/peek.h"
#include "plog/plog.h"
#include "replica/leaders.h"
#include "replica/partition.h"
#include "wire/gen/leader_and_isr.h"
#include "wire/gen/stop_replica.h"

struct replicas;

/* What a topic's configuration means to its replicas. */
struct topic_settings {
    struct plog_config log;
    int32_t max_message_bytes;
    int32_t min_insync_replicas;
    int64_t timestamp_before_max_ms, timestamp_after_max_ms;
    bool keep_codec; /* compression.type=producer; else: */
    enum codec codec;
    int compression_level;
};

/* One topic's replicas here.  Good for one turn of a loop, as everything the lookups give. */
struct topic_replicas {
    char *name;
    struct uuid id;
    _Atomic(struct topic_settings *) settings;
    int32_t count; /* partitions that are here; home loop */
    int32_t capacity;
    _Atomic(struct partition *) parts[]; /* NULL: not here */
};

/* log.cleaner.*: of all threads together. */
struct cleaner_options {
    unsigned threads;
    int64_t dedupe_bytes;
    double load_factor;
    int64_t io_bytes;
    double io_bytes_per_second;
    int64_t backoff_ms;
};

/* Who fetches what partitions here lack that others lead: fetchers.h.  Home loop.  NULL: nobody does. */
struct following {
    void *arg;
    /* The partition follows this leader in this epoch from now on; `leader` -1: there is none. */
    void (*follow)(void *arg, struct partition *p, int32_t leader, int32_t leader_epoch);
    /* It follows nobody any more.  `left`, if not NULL, runs on the home loop, maybe before this returns, when nothing
     * is appended to its log any more and nothing is cut off it. */
    void (*leave)(void *arg, struct partition *p, void (*left)(void *left_arg, struct partition *p), void *left_arg);
    /* Others than before are throttled as followers (partition.throttled). */
    void (*throttled_changed)(void *arg);
};

/* leader.replication.throttled.replicas and its twin, as the topic has them, to be freed; NULL: it has none. */
struct topic_throttles {
    char *as_leader, *as_follower;
};

struct replicas_options {
    struct fs *fs;
    struct clock *clock;
    struct rng *rng;
    struct loop *home;
    struct grace *grace;
    struct workers *workers;
    size_t open_files_max;   /* of logs' segments; a third as many must be left for the rest.  0: no limit */
    unsigned flush_jobs_max; /* of the workers may be busy flushing; 0 is 1 */
    const char *const *dirs; /* log.dirs */
    size_t dir_count;
    int64_t retention_check_ms;      /* log.retention.check.interval.ms */
    int64_t flush_check_ms;          /* log.flush.scheduler.interval.ms; INT64_MAX: never */
    int64_t checkpoint_ms;           /* log.flush.offset.checkpoint.interval.ms */
    int64_t start_checkpoint_ms;     /* log.flush.start.offset.checkpoint.interval.ms */
    int64_t watermark_checkpoint_ms; /* replica.high.watermark.checkpoint.interval.ms */
    bool clean;                      /* log.cleaner.enable */
    struct cleaner_options cleaner;
    int64_t reserve_bytes; /* log.dir.reserve.bytes, log.dir.resume.bytes; -1: by the disk's size */
    int64_t resume_bytes;
    size_t moves_max; /* num.replica.alter.log.dirs.threads: moves at a time; 0: as many as directories */
    /* The settings of a topic that is about to be opened; may be called on workers. */
    void (*settings_of)(void *arg, struct str topic, struct topic_settings *out);
    /* Which of its replicas are throttled; NULL: none ever.  Home loop. */
    void (*throttles_of)(void *arg, struct str topic, struct topic_throttles *out);
    void *settings_arg; /* of both */
    /* The log directory number `dir` went offline while the broker runs, with all its partitions.  Home loop. */
    void (*dir_failed)(void *arg, size_t dir);
    /* The controller is to be asked to say again what is to be here: logs that could not be made may be now.  Home
     * loop.
     */
    void (*ask_again)(void *arg);
    void *dir_failed_arg;
    /* The controller has given a partition here a role, or has taken it away, for good where it is not online any more.
     * Also called when nothing has changed.  Home loop; NULL: nobody listens.  What happens without the controller (a
     * log fails, a move takes over) wakes the partition's waiters. */
    void (*role_changed)(void *arg, struct partition *p);
    void *role_changed_arg;
    struct following following;
    struct leaders_options leading; /* without `home` and `clock` */
};

/* Makes and locks the log directories and reads who they belong to.  A directory that cannot be read or written is left
 * out, offline; it is an error when none is left, when one is in use by another process, or when they belong to
 * different brokers.  Blocks; at start.  `f` explains. */
MUST_USE enum err replicas_open(struct replicas **out, const struct replicas_options *opt, struct fault *f);
/* From meta.properties: -1 and NULL when the directories are new.  Lent. */
int32_t replicas_stored_broker_id(const struct replicas *r);
const char *replicas_stored_cluster_id(const struct replicas *r);
/* A log directory whose meta.properties does not say which broker it belongs to, damaged or of old; NULL: none. */
const char *replicas_dir_without_id(const struct replicas *r);
/* Writes meta.properties where it is missing; ERR_INVALID when a directory belongs to another broker or cluster. */
MUST_USE enum err replicas_identify(struct replicas *r, int32_t broker_id, const char *cluster_id, struct fault *f);

/* A directory TOPIC-INDEX in one of log.dirs. */
struct replica_dir {
    char *topic;
    int32_t index;
    const char *dir;       /* lent by the replicas */
    bool was_cleaned;      /* cleaner-offset-checkpoint knows it: the topic is compacted */
    struct plog_peek peek; /* these two are only known after a deep survey */
};

/* Sorted by topic and index. */
struct replica_survey {
    struct replica_dir *rows;
    size_t count, cap;
};

/* Lists the partitions' directories, changing nothing; `deep`: looks into each.  Before replicas_load().  Worker. */
MUST_USE enum err replicas_survey(struct replicas *r, bool deep, struct replica_survey *out, struct fault *f);
void replicas_survey_free(struct replica_survey *sv);

/* Finds every partition's log and opens it, `threads` at a time, 0: on the caller's; as many close them at the end.
 * Logs of which a crash left much to be read again are left to replicas_open_rest().  One that cannot be opened is no
 * error: it stays out of service, and the log says why.  Blocks; at start. */
MUST_USE enum err replicas_load(struct replicas *r, unsigned threads, struct fault *f);
/* Opens what replicas_load() has left, while the broker serves: each partition is NOT_LEADER_OR_FOLLOWER until its log
 * is open, and then takes the role that the controller has given it meanwhile.  Home loop. */
MUST_USE enum err replicas_open_rest(struct replicas *r, struct fault *f);
/* Latest leader epoch begun in a log that was loaded and that no controller has spoken of yet; -1: none.  Home loop. */
int32_t replicas_log_epoch(const struct replicas *r, struct str topic, int32_t index);
/* Where a log ends that was loaded, or has lost its role, and of which no controller has spoken since; and the epoch of
 * its last record.  False: there is none, or it is not open yet.  Home loop. */
bool replicas_unclaimed_end(const struct replicas *r, struct str topic, int32_t index, int64_t *end,
                            int32_t *last_epoch);
/* Starts retention, checkpoints and the rest of the upkeep.  Home loop. */
void replicas_start_upkeep(struct replicas *r);
/* Begins nothing more; what workers have goes on.  Home loop, or nobody runs it any more. */
void replicas_stop_upkeep(struct replicas *r);
/* Ends upkeep, closes every log, writes checkpoints and the clean mark.  Blocks; the loops have stopped.
 * `clean` false: leaves the directories as after a crash, for recovery to look at. */
void replicas_close(struct replicas *r, bool clean, int64_t broker_epoch);

/* NULL when no replica of it is here. */
struct topic_replicas *replicas_find(const struct replicas *r, struct str topic);
struct topic_replicas *replicas_find_id(const struct replicas *r, struct uuid id);
static inline struct partition *topic_partition(const struct topic_replicas *t, int32_t index)
{
    if (!t || index < 0 || index >= t->capacity) return NULL;
    return atomic_load_explicit(&t->parts[index], memory_order_acquire);
}
static inline const struct topic_settings *topic_settings(const struct topic_replicas *t)
{
    return atomic_load_explicit(&t->settings, memory_order_acquire);
}
/* The process has run out of descriptors: has some files of logs closed.  Any thread; waits for nothing. */
void replicas_want_room(struct replicas *r);
size_t replicas_dir_count(const struct replicas *r);
const char *replicas_dir_path(const struct replicas *r, size_t dir);
/* OK while it is in use, else why it is offline.  Any thread. */
enum err replicas_dir_error(const struct replicas *r, size_t dir);
bool replicas_all_dirs_offline(const struct replicas *r);
const char *partition_dir_path(const struct partition *p);
/* Every partition at this moment, with a reference each, to be released with replicas_list_free().  Any thread. */
struct partition **replicas_list(struct replicas *r, size_t *count);
void replicas_list_free(struct partition **list, size_t count);

/* Moves a partition to another of log.dirs while it is served (KIP-113); to where it is: cancels a move.
 * LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR; REPLICA_NOT_AVAILABLE: it is not here, and will be made there when it comes.
 * Home loop. */
enum kerr replicas_move(struct replicas *r, struct str topic, int32_t index, struct str dir);
/* leader.replication.throttled.rate; INT64_MAX: no limit.  Any thread. */
void replicas_set_leader_rate(struct replicas *r, int64_t bytes_per_s);
/* replica.alter.log.dirs.io.max.bytes.per.second, of all moves together.  Any thread. */
void replicas_set_move_rate(struct replicas *r, int64_t bytes_per_s);
/* What moves have copied so far.  Any thread. */
struct future_view {
    struct partition *p; /* a reference */
    const char *dir;
    int64_t size, lag; /* bytes; records that are missing */
};
struct future_view *replicas_futures(struct replicas *r, size_t *count);
void replicas_futures_free(struct future_view *list, size_t count);

typedef void (*replicas_done)(void *arg, const struct leader_and_isr_response *response);
typedef void (*replicas_stopped)(void *arg, const struct stop_replica_response *response);

/* LeaderAndIsr: creates what is new, takes roles and epochs.  The request is lent until `done` is called (home loop).
 */
void replicas_apply(struct replicas *r, int32_t broker_id, const struct leader_and_isr_request *request,
                    replicas_done done, void *arg);
/* StopReplica: takes replicas out of service; with delete_partition their directories go. */
void replicas_stop(struct replicas *r, const struct stop_replica_request *request, replicas_stopped done, void *arg);
/* New settings of the cleaner.  Home loop. */
void replicas_configure_cleaner(struct replicas *r, const struct cleaner_options *opt);
/* The topic's configuration changed.  Home loop. */
void replicas_reconfigure(struct replicas *r, struct str topic, const struct topic_settings *settings);

#endif
