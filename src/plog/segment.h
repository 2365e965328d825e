/* segment.h: a run of a log with one base offset: its .log file, its indexes and what is known of them.
 *
 * Files are opened when first needed, so that thousands of idle logs cost little.
 * Thread: fields change only under the log's lock, by the holder of the writer role (plog_internal.h); whoever reads a
 * segment outside of the lock holds a reference. */
#ifndef PLOG_SEGMENT_H
#define PLOG_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/fs.h"
#include "plog/index.h"
#include "plog/txnindex.h"
#include "wire/batch.h"

#define SEGMENT_LOG      ".log"
#define SEGMENT_OFFSETS  ".index"
#define SEGMENT_TIMES    ".timeindex"
#define SEGMENT_TXNS     ".txnindex"
#define SEGMENT_SNAPSHOT ".snapshot"
#define SEGMENT_DELETED  ".deleted"
#define SEGMENT_CLEANED  ".cleaned"
#define SEGMENT_SWAP     ".swap"

enum { SEGMENT_TIME_NONE = -1 };

/* The largest timestamp up to some place, and the last offset of the first batch that has it, as in a time index. */
struct max_time {
    int64_t timestamp, offset;
};
#define MAX_TIME_NONE ((struct max_time){SEGMENT_TIME_NONE, SEGMENT_TIME_NONE})

struct segment {
    _Atomic uint32_t refs;
    _Atomic uint32_t used;     /* plog_files.turn when it was used last */
    _Atomic bool index_misled; /* a reader found an entry that leads nowhere; then: */
    bool indexes_bad;          /* missing, or in disagreement with the log: made anew before use */
    bool opening;              /* the writer role opens its files: a reader's are not wanted */
    bool max_time_known;
    bool txns_there;       /* has a transaction index, opened or not */
    bool unsynced;         /* log or transaction index may not be on the disk yet */
    bool indexes_unsynced; /* nor the indexes, which a flush of the active segment leaves out */
    bool snapshot_unsynced;
    int64_t base_offset;
    int64_t size;            /* bytes of whole, published batches */
    int64_t first_timestamp; /* largest of the first batch; SEGMENT_TIME_NONE: without, or empty */
    int64_t modified_ms;     /* wall clock of the last append, as far as known */
    int64_t created_ms;      /* rolls by time go by it when records carry no timestamps */
    int64_t jitter_ms;       /* this much earlier than segment.ms */
    int64_t bytes_unindexed; /* appended since the last entry of the offset index */
    struct max_time max_time;
    struct file *log; /* NULL: not open */
    struct index offsets, times;
    struct txnindex txns; /* open when txns.path is set */
};

struct segment *segment_new(int64_t base_offset);
struct segment *segment_ref(struct segment *seg);
/* The last one closes the files, without writing. */
void segment_unref(struct segment *seg);

/* "<dir>/<20 digits><suffix>", to be freed with mem_free(). */
char *segment_path(const char *dir, int64_t base_offset, const char *suffix);
/* Offsets in a segment are at most INT32_MAX above its base: no segment can have a higher one than this. */
#define SEGMENT_BASE_MAX (INT64_MAX - INT32_MAX - 1)
/* The number in a file's name and what follows it; false when it does not start with one. */
bool segment_parse_name(const char *name, int64_t *base_offset, const char **suffix);

/* Makes the files of a new, empty segment; what an earlier attempt left is emptied. */
MUST_USE enum err segment_create(struct segment *seg, struct fs *fs, const char *dir);
/* Each opens what is not open yet; by the holder of the writer role, or before the log is shared. */
MUST_USE enum err segment_open_log(struct segment *seg, struct fs *fs, const char *dir);
/* Sets `indexes_bad` when they must be made anew. */
MUST_USE enum err segment_open_indexes(struct segment *seg, struct fs *fs, const char *dir);
/* Closes log and indexes again; their entries must be in the files. */
void segment_close_files(struct segment *seg);
MUST_USE enum err segment_open_txns(struct segment *seg, struct fs *fs, const char *dir);

/* Counts a batch at `pos` in: the indexes' rules.  Under the lock. */
void segment_index_batch(struct segment *seg, const struct batch_info *b, int64_t pos, int64_t interval_bytes);
/* The time index's last entry, when no more will come. */
void segment_index_end(struct segment *seg);
/* Entries that each index may have (segment.index.bytes). */
bool segment_indexes_full(const struct segment *seg, int64_t index_bytes, int64_t more_entries);
/* Reads all headers and makes both indexes anew, durably.  Alone with the segment. */
MUST_USE enum err segment_rebuild_indexes(struct segment *seg, struct fs *fs, const char *dir, int64_t interval_bytes);
/* Writes both indexes' entries out. */
MUST_USE enum err segment_save_indexes(struct segment *seg);

/* Renames all its files from one suffix to another ("" and ".deleted", say), or removes them; those that are not there
 * are no error.  The .log goes first, so that a half-done rename leaves no segment that lacks its indexes. */
MUST_USE enum err segment_rename_files(struct fs *fs, const char *dir, int64_t base_offset, const char *from,
                                       const char *to);
MUST_USE enum err segment_remove_files(struct fs *fs, const char *dir, int64_t base_offset, const char *suffix);
/* The first of these for one of its files, for who must know which of them have been renamed; they are counted from 0,
 * the producer snapshot, which belongs to the place and not to the content, is the last one. */
MUST_USE enum err segment_rename_one(struct fs *fs, const char *dir, int64_t base_offset, size_t kind, const char *from,
                                     const char *to);
size_t segment_file_count(bool with_snapshot);
/* All but the snapshot. */
MUST_USE enum err segment_remove_data(struct fs *fs, const char *dir, int64_t base_offset, const char *suffix);

#endif
