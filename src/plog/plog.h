/* plog.h: one partition's log, an ordered run of segments on disk in Kafka 3.9's format.
 *
 * Appends combine (DESIGN section 4): plog_append() queues the batch; whoever finds no write in progress takes all that
 * is queued, checks sequences and assigns offsets in that order, writes it with one call and completes it.  Nobody
 * waits: each append's `done` is called once, by whichever thread wrote it, outside the lock.  Two appends' `done` may
 * run at the same time, and in any order.
 *
 * Thread: any loop may call what is not marked otherwise; `lock` guards the fields and is never held across a wait for
 * the disk.  Calls marked "worker" may wait for the disk.  Invariants stand at the top of plog.c. */
#ifndef PLOG_PLOG_H
#define PLOG_PLOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/uuid.h"
#include "os/clock.h"
#include "os/fs.h"
#include "wire/batch.h"
#include "wire/kerr.h"

struct plog;

/* What the topic's configuration says; plog_reconfigure() swaps it while the log is used.  -1: no limit. */
struct plog_config {
    int64_t segment_bytes; /* segment.bytes */
    int64_t segment_ms;    /* segment.ms, less a random part of segment_jitter_ms a segment */
    int64_t segment_jitter_ms;
    int64_t segment_index_bytes; /* segment.index.bytes: a full index rolls the segment */
    int64_t index_interval_bytes;
    int64_t retention_ms, retention_bytes;
    bool cleanup_delete, cleanup_compact;
    double min_cleanable_dirty_ratio; /* what cleaning goes by: see clean.h */
    int64_t min_compaction_lag_ms, max_compaction_lag_ms, delete_retention_ms;
    bool log_append_time; /* message.timestamp.type */
    int64_t flush_messages, flush_ms;
    bool flush_group;             /* flush.mode=group: an append is acknowledged only when it is on the disk */
    int64_t file_delete_delay_ms; /* a deleted segment keeps its files, renamed .deleted, this long */
    int64_t producer_expiration_ms;
};

struct plog_events {
    void *arg;
    /* The published end moved to `end`; called by the thread that wrote, outside the lock, before those appends' done.
     * Calls may overtake each other: the largest counts. */
    void (*advanced)(void *arg, int64_t end);
    /* The directory failed (I/O error, read-only): nothing more is written.  Once. */
    void (*failed)(void *arg, enum err e);
    /* A write failed since the disk is full; the log goes on.  By the thread that wrote, outside the lock; may be NULL.
     */
    void (*full)(void *arg);
    /* There is something for a worker to do: call plog_work() there.  Once until that has been called; by the thread
     * that wrote, outside the lock, before those appends' done.  NULL: nobody listens; plog_retain() and plog_flush()
     * do the part that matters. */
    void (*wants_work)(void *arg);
    /* A flush of the log's end is over.  OK: the recovery point has moved.  Else nothing became durable; after an error
     * that passes (plog_flush()) another flush may be asked for.  On the worker that flushed, outside the lock. */
    void (*flushed)(void *arg, enum err e);
};

/* What all logs of a broker share to keep their open files few.  A log asks for room when it has opened files near the
 * limit; who gives it has logs close what they do not need, with plog_close_unused(). */
struct plog_files {
    size_t max;            /* fs_open_count() at which no segment is opened any more: what is left is for flushes */
    _Atomic uint32_t turn; /* raised by who makes room: a segment notes in which turn it was used last */
    void *arg;
    void (*wants_room)(void *arg); /* any thread, with no lock held; waits for nothing */
    /* Worker, holding nothing of any log: closes files now, unless that has been done since `turn` was read. */
    void (*make_room)(void *arg, uint32_t turn);
};

struct plog_options {
    struct fs *fs;
    struct clock *clock;
    uint64_t jitter_seed;
    const char *dir;        /* <log dir>/<topic>-<partition>; made when missing */
    int64_t recovery_point; /* everything below is known to be on disk (recovery-point-offset-checkpoint) */
    int64_t log_start;      /* from log-start-offset-checkpoint; 0 when not there */
    int64_t cleaned;        /* from cleaner-offset-checkpoint; -1 when not there */
    bool clean;             /* the directory was shut down cleanly: no scan */
    struct uuid topic_id;   /* written to partition.metadata when made; zero: take the file's */
    struct plog_config config;
    struct plog_events events;
    /* For recovery, which can be long; both may be NULL, and are lent until plog_open() returns.  Raised by the bytes
     * that have been read; true: give up with ERR_CLOSED, the log stays to be recovered another time. */
    _Atomic int64_t *recovered_bytes;
    const _Atomic bool *cancel;
    struct plog_files *files; /* lent; NULL: no limit */
};

/* Opens the log, cutting what an unclean stop left torn.  Worker.  Close with plog_close(). */
MUST_USE enum err plog_open(struct plog **out, const struct plog_options *opt, struct fault *f);
/* Flushes everything and writes the producer snapshot; frees the log, also when it fails.  No append may be in
 * progress. Worker. */
MUST_USE enum err plog_close(struct plog *pl);
/* Closes without flushing (after a failure, or before the directory is removed).  Worker. */
void plog_abandon(struct plog *pl);

/* Renames the directory to `to`, from where it will be removed.  A topic of the same name may be made at once; so from
 * now on nothing is done by the log's own paths: appends get NOT_LEADER_OR_FOLLOWER, upkeep ERR_CLOSED, and reads go on
 * in files that are open.  Whatever was in progress is over when this returns.  When it fails nothing has changed, but
 * for ERR_NOT_FOUND: the directory was gone already.  Worker. */
MUST_USE enum err plog_retire(struct plog *pl, const char *to);

/* Whether the log can go on after a failure of this kind, a full disk say; else the directory has failed. */
static inline bool plog_error_passes(enum err e)
{
    return e == ERR_FULL || e == ERR_TOO_MANY || e == ERR_TOO_BIG;
}

/* ---- Handing a log over to a copy of itself in another directory (KIP-113).  Worker. */

/* From now on nobody appends or changes the segments: what is appended waits.  Reads with `nowait` go on, also by the
 * holder.  ERR_CLOSED, without effect: the log is retired. */
MUST_USE enum err plog_hold(struct plog *pl);
/* Ends it, and writes what has waited. */
void plog_release(struct plog *pl);
/* Writes the producers' state of a held log as the snapshot of its end into `dir`, durably: a copy that is opened there
 * goes on with producers of whom it holds no batch any more. */
MUST_USE enum err plog_hand_producers(struct plog *pl, const char *dir);
/* plog_retire() of a held log, which it is from now on whether or not the directory could be renamed: what has waited
 * gets NOT_LEADER_OR_FOLLOWER at plog_release(). */
MUST_USE enum err plog_retire_held(struct plog *pl, const char *to);

void plog_reconfigure(struct plog *pl, const struct plog_config *config);

/* Zero: its topic was made before topics had ids.  Until it is given one, and the log its file. */
struct uuid plog_topic_id(const struct plog *pl);
MUST_USE enum err plog_take_topic_id(struct plog *pl, struct uuid topic_id);
/* First offset that readers may ask for; the published end (next offset to be read by others).  No lock. */
int64_t plog_start(const struct plog *pl);
int64_t plog_end(const struct plog *pl);
/* First offset not known to be on disk.  No lock. */
int64_t plog_recovery_point(const struct plog *pl);
/* What recovery-point-offset-checkpoint is to say while the log is in use: at most the recovery point, and lower where
 * the batches are on the disk but their indexes are not.  Worker. */
int64_t plog_recovery_start(struct plog *pl);
/* Up to where this replica may promise what it holds: the end, or what is on the disk while flush.messages or
 * flush.mode=group ask for a flush of what lies above.  No lock. */
int64_t plog_safe_end(const struct plog *pl);
/* Where the last cleaning ended (clean.h): cleaner-offset-checkpoint; -1: it was never cleaned.  No lock. */
int64_t plog_cleaned(const struct plog *pl);
/* First offset of the earliest transaction still open (or whose marker is not replicated), or the end.  Last stable
 * offset = min(this, high watermark). */
int64_t plog_first_unstable(struct plog *pl);
/* Everything below `high_watermark` is replicated: ended transactions below it no longer count as unstable.  Cheap. */
void plog_replicated(struct plog *pl, int64_t high_watermark);
/* Bytes of all segments. */
int64_t plog_size(struct plog *pl);
/* segment.bytes: what an APPEND_REPLICA of more than one batch is to fit into. */
int64_t plog_segment_bytes(struct plog *pl);
/* Largest timestamp and its offset over the log; -1, -1 when empty.  May scan one segment's tail.  Worker. */
MUST_USE enum err plog_max_timestamp(struct plog *pl, int64_t *timestamp, int64_t *offset);

/* ---- Appending */

enum append_origin {
    APPEND_CLIENT,      /* one batch; producer sequences are checked */
    APPEND_COORDINATOR, /* written by this broker itself (offsets, transaction markers) */
    /* Batches that carry their offsets and epochs already; several in a row, if they fit into a segment: a single one
     * may be larger than segment.bytes, which may have been larger for the leader.  OFFSET_OUT_OF_RANGE: one starts
     * below the log's end, or below the one before it. */
    APPEND_REPLICA
};

/* One append, embedded in what asked for it; zeroed, then filled in by the caller. */
struct append {
    /* in */
    struct buf *buf; /* where the bytes lie; the log takes its own reference until done */
    uint8_t *data;   /* checked batches (wire/batch.h); headers are patched in place */
    size_t size;
    struct batch_info info; /* of the first batch, from batch_check() */
    enum append_origin origin;
    bool not_first; /* its producer is known to have sent others before: of one that the log does not know, it is out of
                     * order.  (Without this, such a one may begin anywhere: its state may have expired.) */
    int32_t leader_epoch; /* raised to the one that plog_epoch_begin() has begun meanwhile; below that of the log's last
                           * batch: NOT_LEADER_OR_FOLLOWER; a replica's is in `data` */
    int64_t now_ms;       /* wall clock; LogAppendTime and producer expiry go by it */
    void (*done)(struct append *a);

    /* out, when done is called */
    enum kerr kerr; /* also DUPLICATE: answered as success with the first write's offset */
    int64_t base_offset, last_offset;
    int64_t log_append_time_ms; /* -1 with CreateTime */
    int64_t log_start;
    bool must_flush; /* to be acknowledged only when plog_recovery_point() has passed last_offset: a flush has been
                      * asked for (flush.messages, flush.mode) */

    /* the log's own */
    struct append *next;
    int64_t max_timestamp;
};

/* Queues, and writes unless another thread is writing.  `done` may be called before this returns. */
void plog_append(struct plog *pl, struct append *a);

/* ---- Reading */

/* A run of bytes in one segment.  Holds the file until plog_slice_release(). */
struct plog_slice {
    struct file *file; /* NULL: nothing there yet */
    int64_t pos;
    size_t size;
    int64_t start_offset; /* base offset of the first batch in it, <= the offset asked for */
};

/* Batches from the one that holds `offset` on, up to `below` (exclusive; a batch boundary), about `bytes_max` bytes: it
 * ends at a batch boundary where one is known, and holds at least the whole first batch when `whole_first` or when the
 * first batch fits.  ERR_RANGE: outside [start, end].  offset == end or == below: OK with nothing.
 * ERR_AGAIN when `nowait` and the needed index or header is not in the page cache: ask again on a worker. */
MUST_USE enum err plog_read(struct plog *pl, int64_t offset, int64_t below, size_t bytes_max, bool whole_first,
                            bool nowait, struct plog_slice *out);
void plog_slice_release(struct plog_slice *s);

/* Aborted transactions that overlap [from, to), for read_committed (KIP-98). `each` is called in order of first offset.
 * Reads files only of segments in which a transaction was aborted; ERR_AGAIN when `nowait` and that may wait: ask again
 * on a worker.  `each` is not called when it fails. */
struct aborted_txn {
    int64_t producer_id, first_offset, last_offset, last_stable_offset;
};
MUST_USE enum err plog_aborted_txns(struct plog *pl, int64_t from, int64_t to, bool nowait,
                                    void (*each)(void *arg, const struct aborted_txn *txn), void *arg);

/* The first record at or after `timestamp` below `below`: its offset, timestamp and leader epoch; *offset = -1 when
 * there is none.  Worker. */
MUST_USE enum err plog_find_time(struct plog *pl, int64_t timestamp, int64_t below, int64_t *offset, int64_t *found_ms,
                                 int32_t *leader_epoch);

/* KIP-101: the largest epoch <= `epoch` in the log and where it ends; *found = -1 and *end = -1 when there is none. */
void plog_epoch_end(struct plog *pl, int32_t epoch, int32_t *found, int64_t *end);
/* Epoch of the batch at the log's end; -1 when the log is empty. */
int32_t plog_last_epoch(struct plog *pl);
/* The latest that any leader of this log has had, also one that wrote nothing, as far as the directory tells. */
int32_t plog_last_epoch_begun(struct plog *pl);
/* The epoch that holds `offset`; -1 when unknown. */
int32_t plog_epoch_of(struct plog *pl, int64_t offset);
/* A new leader's epoch starts at the log's end (leader-epoch-checkpoint); what is appended from then on is of it.
 * Worker. */
MUST_USE enum err plog_epoch_begin(struct plog *pl, int32_t epoch);

/* ---- Upkeep, all worker */

/* Writes everything published to the disk; then the recovery point is the end that was.  An error of the sync itself
 * fails the log for good, whatever it is: the kernel has dropped what it could not write.  ERR_TOO_MANY and ERR_FULL
 * before that pass: nothing is lost, and another flush may go well. */
MUST_USE enum err plog_flush(struct plog *pl);
/* True when flush.ms asks for a flush now.  Any thread, no lock, cheap. */
bool plog_flush_due(const struct plog *pl, int64_t now_ms);
/* How many closed segments are not on the disk, and so keep their files open.  Any thread. */
size_t plog_unflushed_segments(struct plog *pl);
/* Has events.wants_work called for a flush of everything that is published now.  Any thread, waits for nothing. */
void plog_request_flush(struct plog *pl);
/* What events.wants_work asks for: a flush, if one was requested or an append needs it, or of segments that were
 * closed. What comes up meanwhile is asked for anew, so that one round at a time serves all that waited for it. */
MUST_USE enum err plog_work(struct plog *pl);
/* plog_work() and plog_flush() in two halves, for who serves several logs: the first starts write-back (if there are
 * `others`, else the second does both), the second waits for it.  With several logs begun, one commit of the file
 * system's journal serves them all.  Every begin is finished by the same thread, which flushes no log that it has begun
 * already.  NULL: another thread flushes the log just now.  To wait for that, with other logs begun, could be to wait
 * for each other: finish those first, then plog_work() or plog_flush(). */
struct plog_flush;
MUST_USE struct plog_flush *plog_work_begin(struct plog *pl, bool others);
MUST_USE struct plog_flush *plog_flush_begin(struct plog *pl, bool others);
MUST_USE enum err plog_flush_finish(struct plog_flush *fl);
/* Writes appends that could not be written for want of a descriptor; to be called before plog_work(), by who holds
 * nothing of any log. */
void plog_resume(struct plog *pl);

/* The active segment has not been used in or after `turn`, and has files open.  Any thread. */
bool plog_is_unused(struct plog *pl, uint32_t turn);
enum plog_close_what { PLOG_CLOSE_OLD, PLOG_CLOSE_ACTIVE };
/* Closes the files of segments that nobody uses now or used in or after `turn` (plog_files): of closed segments, or of
 * the active one.  Segments that are not on the disk keep theirs: with the last descriptor goes the kernel's word that
 * it could not write.  They are opened again when needed. */
void plog_close_unused(struct plog *pl, enum plog_close_what what, uint32_t turn);
/* Raises the first offset (DeleteRecords, replication); segments wholly below it are deleted by plog_retain(). */
MUST_USE enum err plog_set_start(struct plog *pl, int64_t offset);
/* Cuts the log's end down to `offset` (follower truncation); in the midst of a batch, the whole batch goes.  The
 * recovery point, the log's start and plog_cleaned() may go down with it: checkpoint them before anything is appended.
 * After an error that passes the end may be down already, with files still to be cut: then appends are refused until
 * this, or any other upkeep, has been called again and has gone well. */
MUST_USE enum err plog_truncate(struct plog *pl, int64_t offset);
/* Drops everything: the log is empty and goes on at `offset`, above or below where it was (a follower whose leader has
 * nothing left of what it lacks).  A crash in the midst of it leaves a beginning of the old log, or the new one. Start,
 * recovery point and plog_cleaned() change, and after an error that passes the log is empty at `offset` already: as
 * above.  ERR_RANGE: no log begins there; nothing has changed. */
MUST_USE enum err plog_start_anew(struct plog *pl, int64_t offset);
/* Rolls an idle active segment that is older than segment.ms, deletes segments by time, size and start that lie wholly
 * below `below` (the high watermark), removes files past file.delete.delay.ms, forgets expired producers.
 * *next_ms: wall clock when there may be something to do again; INT64_MAX for "not by time alone". */
MUST_USE enum err plog_retain(struct plog *pl, int64_t now_ms, int64_t below, int64_t *next_ms);

/* Producers with state here, for DescribeProducers. */
struct producer_view {
    int64_t producer_id, last_timestamp_ms, txn_start_offset; /* -1: no open transaction */
    int64_t last_offset;                                      /* of its last batch; -1: none in its epoch */
    int32_t last_sequence, coordinator_epoch;
    int16_t producer_epoch;
};
void plog_each_producer(struct plog *pl, void (*each)(void *arg, const struct producer_view *p), void *arg);

#endif
