/* plog_internal.h: the inside of a log, for the module's own files.
 *
 * THE WRITER ROLE: `writing` is set while one thread writes the log's end or changes its segments: the appender that
 * found it free, or a worker between exclusive_begin() and exclusive_end().  Its holder alone touches the active
 * segment's files and reads the fields of segments without the lock; it changes them under the lock, for the readers.
 * Whoever gives the role up writes what has been queued meanwhile, or leaves that to the next holder.  Callbacks run
 * without it. */
#ifndef PLOG_PLOG_INTERNAL_H
#define PLOG_PLOG_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "plog/epochs.h"
#include "plog/plog.h"
#include "plog/producers.h"
#include "plog/segment.h"

enum {
    HINTS_APPENDED = 8, /* the last published ends */
    HINTS_READ = 8,     /* where the last slices ended */
    HINT_COUNT = HINTS_APPENDED + HINTS_READ,
};

/* "The batch that starts with `offset` stands at `pos` of the segment", and its size where known, else 0. */
struct hint {
    int64_t offset, base_offset;
    int32_t pos, size;
};

/* A deleted segment whose files wait under their .deleted names. */
struct doomed {
    int64_t base_offset, due_ms;
};

struct plog {
    pthread_mutex_t lock;
    pthread_cond_t role_free;
    bool writing;         /* the writer role is taken */
    unsigned role_wanted; /* workers that wait for it */
    unsigned callers;     /* threads that run callbacks of what they wrote */
    bool work_wanted;     /* events.wants_work was called, plog_work() is not over */
    bool stalled;         /* the queue waits for plog_resume() */
    uint32_t stall_turn;  /* plog_files.turn after the failure */
    unsigned stalls;      /* of one group, one after the other */
    bool flush_wanted;    /* somebody waits for what has been published since the last flush began */
    bool rolled;          /* segments closed since the last flush of closed segments */
    bool parent_unsynced; /* the directory itself is new */
    bool closing;         /* the last flush: the active segment counts as closed, the snapshot at the end goes too */
    bool retired;         /* plog_retire(): another log may have the directory's name */
    bool claimed;         /* files_claim(): segments' files are being made or changed without the role */
    enum err failed;      /* the directory failed: nothing is written any more */
    enum err uncut;       /* what a cut has left undone, passing, for this reason: nothing is written before the rest */
    bool anew; /* with uncut: it is plog_start_anew() that goes on; the files of these segments are still there: */
    struct segment **leaving;
    size_t leaving_count;
    bool torn;                 /* the same of a failed write, in the active segment behind its size */
    struct exchange *exchange; /* clean_swap.c; of who has the claim, or the role without one */

    /* Also read without the lock; written under it. */
    _Atomic int64_t start, end, recovery_point, cleaned;
    _Atomic int64_t last_flush_ms, flush_messages,
        flush_ms;            /* the latter two INT64_MAX: never; 1 is flush.mode=group */
    _Atomic bool txns_ended; /* producers_replicated() has something to do */

    /* One flush at a time, on workers: of two syncs of one file at once the kernel tells only one that it failed. Comes
     * before the writer role and `lock`. */
    pthread_mutex_t flush_lock;

    struct append *queue, **queue_tail;
    struct segment **segments; /* by base offset; the last one is active; never empty */
    size_t segment_count, segment_cap;
    int64_t size;                /* bytes of all segments */
    struct producers *producers; /* its own object: truncation makes a new one aside */
    struct epochs epochs;
    int32_t led_epoch;       /* the latest of plog_epoch_begin() */
    int64_t snapshot_offset; /* the newest snapshot file; -1: none */
    struct doomed *doomed;
    size_t doomed_count, doomed_cap;
    uint64_t jitter_state;

    bool epochs_file; /* leader-epoch-checkpoint is there; Kafka makes it where it is not */
    uint32_t epochs_written, epochs_synced;
    uint32_t files_made, files_synced; /* the directory needs a sync while they differ */
    uint32_t generation;               /* grows when the end is cut: what was looked up before is void */
    uint32_t undone;                   /* grows when a failed write was cut off: a flush before that may miss it */
    uint32_t layout;                   /* grows when positions change, also by cleaning: no hint outlives it */
    uint32_t hint_next;
    struct hint hints[HINT_COUNT];

    _Atomic int64_t *recovered_bytes; /* these two while it is opened */
    const _Atomic bool *cancel;
    struct plog_config config;
    struct plog_events events;
    struct plog_files *files;
    struct fs *fs;
    struct clock *clock;
    char *dir;
    struct uuid topic_id;
};

static inline struct segment *active_segment(const struct plog *pl)
{
    return pl->segments[pl->segment_count - 1];
}

/* So much lies above the recovery point that the last of it may be promised only when it is on the disk. */
static inline bool flush_is_due(const struct plog *pl, int64_t end)
{
    int64_t durable = atomic_load_explicit(&pl->recovery_point, memory_order_acquire);
    return end > durable && end - durable >= atomic_load_explicit(&pl->flush_messages, memory_order_relaxed);
}

/* A closed segment waits to be flushed.  With the writer role. */
static inline bool has_closed_unsynced(const struct plog *pl)
{
    return pl->segment_count > 1 && pl->segments[pl->segment_count - 2]->unsynced;
}

/* Index of the segment with the largest base offset <= offset; 0 when there is none.  Under the lock. */
size_t segment_floor(const struct plog *pl, int64_t offset);
/* The segment that holds offset *next, with a reference, and where the one after it begins; NULL behind the last.
 * Segments that are merged between two steps are not passed over, but part of them may come twice.  Under the lock. */
#define SEGMENT_WALK_END INT64_MAX
struct segment *segment_walk(const struct plog *pl, int64_t *next);
/* First offset after the segment.  Under the lock. */
int64_t segment_end(const struct plog *pl, size_t at);

/* Worker.  Takes the writer role, waiting for who has it; gives it up again.  ERR_CLOSED, without the role: the log is
 * retired, and its paths are not to be used any more. */
MUST_USE enum err exclusive_begin(struct plog *pl);
void exclusive_end(struct plog *pl);
/* The same for who cuts, drops or moves files: waits for files_release() too. */
MUST_USE enum err exclusive_begin_alone(struct plog *pl);
/* The same for who relies on files and segments being what they are to be: first does what had to be left half done,
 * for want of room or descriptors.  An error that passes: it is still so; else the log has failed. */
MUST_USE enum err exclusive_begin_settled(struct plog *pl);
/* Worker, without the role.  Until files_release() the caller alone makes, renames and removes segments' files;
 * appends, reads and flushes go on.  ERR_CLOSED: the log is retired.  Else as exclusive_begin_settled(). */
MUST_USE enum err files_claim(struct plog *pl);
void files_release(struct plog *pl);
/* Goes on with an exchange of files that stopped, and with a cut.  With the role, and no claim.  An error that passes:
 * once more later. */
MUST_USE enum err plog_exchange_go_on(struct plog *pl);
MUST_USE enum err plog_cut_go_on(struct plog *pl);
/* Forgets it, as the log is closed: the next opening finishes it. */
void plog_exchange_drop(struct plog *pl);
/* Waits for the last appender to be out of the log: it can be freed. */
void exclusive_last(struct plog *pl);

/* The segment is being used. */
static inline void segment_note_use(const struct plog *pl, struct segment *seg)
{
    if (!pl->files) return;
    uint32_t turn = atomic_load_explicit(&pl->files->turn, memory_order_relaxed);
    if (atomic_load_explicit(&seg->used, memory_order_relaxed) != turn)
        atomic_store_explicit(&seg->used, turn, memory_order_relaxed);
}
/* A segment's files may be opened; else ERR_TOO_MANY is to be returned, as if the system had. */
bool plog_may_open(const struct plog *pl);
/* Files were opened: asks for room if they are too many now. */
void plog_note_opened(struct plog *pl);

/* Remembers that the directory failed and tells, once.  Returns `e`. */
enum err plog_fail(struct plog *pl, enum err e);
/* The same in two steps, for the holder of the writer role: nothing more is written from the first on, and the second,
 * if the first said true, follows without the role. */
bool plog_set_failed(struct plog *pl, enum err e);
void plog_tell_failed(struct plog *pl, enum err e);

/* Worker, without the writer role.  Opens log and indexes of a segment on which the caller holds a reference. */
MUST_USE enum err plog_open_for_reading(struct plog *pl, struct segment *seg, uint32_t generation);
enum flush_what {
    FLUSH_CLOSED, /* all segments but the active one */
    FLUSH_ALL,
    FLUSH_WANTED /* ALL when somebody waits for it, else CLOSED */
};
/* Flushes segments; the recovery point follows.  Worker, without the role. */
MUST_USE enum err plog_flush_segments(struct plog *pl, enum flush_what what);
/* Learns a closed segment's largest timestamp, without keeping its files open.  Worker, with or without the role.
 * ERR_CORRUPT: its indexes must be made anew. */
MUST_USE enum err plog_load_max_time(struct plog *pl, struct segment *seg);

/* All of the following by the holder of the writer role. */

/* Opens the segment's log and indexes, making the indexes anew when they are bad. */
MUST_USE enum err segment_ensure_open(struct plog *pl, struct segment *seg);
/* Under the role: they are made anew at the next segment_ensure_open(). */
void mark_indexes_bad(struct plog *pl, struct segment *seg);
/* Makes the next active segment at `base_offset` (no disk is waited for).  `snapshot` is the producers' state there. */
MUST_USE enum err plog_roll(struct plog *pl, int64_t base_offset, const uint8_t *snapshot, size_t snapshot_size);
/* The same at the log's end, where nothing is in flight. */
MUST_USE enum err plog_roll_at_end(struct plog *pl);
void plog_add_segment(struct plog *pl, struct segment *seg);
/* Remembers to remove the segment's files, which have the suffix .deleted, after file.delete.delay.ms.  Under the lock.
 */
void plog_doom_segment(struct plog *pl, int64_t base_offset, int64_t now_ms);
/* Opens the segment's transaction index, if it has one. */
MUST_USE enum err segment_ensure_txns(struct plog *pl, struct segment *seg);
/* Renames the files of the oldest segments, durably, takes them out of the array and remembers to remove them. */
MUST_USE enum err plog_drop_segments(struct plog *pl, size_t count, int64_t now_ms);
/* The epochs have changed: makes leader-epoch-checkpoint if it is not there, without a sync; else the next flush will.
 */
MUST_USE enum err plog_begin_epochs(struct plog *pl);
/* Writes them now, durably if that replaces what is there; unless the file has them already.  Worker. */
MUST_USE enum err plog_save_epochs(struct plog *pl);
/* Writes the whole file without a sync: for what recovery can rebuild. */
MUST_USE enum err plog_write_plain(struct plog *pl, const char *path, const void *data, size_t size);
char *plog_path(const struct plog *pl, const char *name);
MUST_USE enum err plog_write_snapshot(struct plog *pl, int64_t offset);
/* Opens the transaction index when needed and adds an aborted transaction. */
MUST_USE enum err plog_add_aborted(struct plog *pl, struct segment *seg, const struct aborted_txn *txn);
int64_t plog_next_jitter(struct plog *pl);

/* Where the batch that holds `offset` (or the first after it) stands.  The log's holder or a reader with references;
 * indexes must be open.  ERR_NOT_FOUND: behind the last batch below `size`. */
struct located {
    int64_t pos;
    struct batch_info info;
    bool misled; /* `from` was no good */
};
MUST_USE enum err locate_from(struct file *log, int64_t from, int64_t size, int64_t offset, bool nowait,
                              struct located *out);
MUST_USE enum err segment_locate(struct segment *seg, int64_t offset, struct located *out);

/* Fills `ps`, which is empty, with the producers' state as of `end`: the newest usable snapshot at or below it and the
 * batches from there on. */
MUST_USE enum err plog_load_producers(struct plog *pl, struct producers *ps, int64_t end);
struct producers *producers_new(void);
void producers_free(struct producers *ps);

/* The end was cut, or the log retired: what was looked up before is void. */
void hints_clear(struct plog *pl);
/* Positions have changed, but not what stands in the log. */
void hints_forget(struct plog *pl);

#define LOG_MODULE "plog"

#endif
