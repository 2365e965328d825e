/* index.h: a segment's offset index (which batch stands where) or time index (how late a timestamp had come by when).
 *
 * The files are Kafka's: big-endian entries, both fields ascending, offsets relative to the segment's base.
 *   .index      8 bytes: last offset of a batch, position where the batch starts
 *   .timeindex 12 bytes: largest timestamp so far, last offset of the batch that had it
 * New entries gather in memory and are written many at once, so that an append pays no system call for them; a store
 * into a mapped file would be as cheap but kills the process when the disk is full.  Losing entries costs time, no
 * data.
 *
 * Thread: one writer at a time (the log's writer role).  The fields change under the log's lock only; a reader copies a
 * `struct index_view` under the lock and searches the file outside of it. */
#ifndef PLOG_INDEX_H
#define PLOG_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "os/fs.h"

enum index_kind { INDEX_OFFSETS, INDEX_TIMES };

enum {
    INDEX_OFFSETS_ENTRY_SIZE = 8,
    INDEX_TIMES_ENTRY_SIZE = 12,
    INDEX_TAIL_FIRST = 8,       /* room for so many entries to begin with */
    INDEX_TAIL_WRITE_AT = 128,  /* so many are worth a write */
    INDEX_TAIL_MAX = 64 * 1024, /* while the file cannot be written; past it entries are dropped */
};

/* Offset index: relative offset and position.  Time index: timestamp and relative offset. */
struct index_entry {
    int64_t key, value;
};

struct index {
    struct file *file; /* NULL: not open */
    uint8_t *tail;     /* entries that are not in the file yet, encoded */
    uint32_t tail_count, tail_cap;
    uint32_t written; /* entries in the file */
    enum index_kind kind;
    struct index_entry last; /* while index_count() > 0 */
};

static inline uint32_t index_count(const struct index *ix)
{
    return ix->written + ix->tail_count;
}
static inline bool index_is_open(const struct index *ix)
{
    return ix->file != NULL;
}

/* Opens or makes the file.  Zeros at its end, as a killed Kafka leaves them, are cut off.  ERR_CORRUPT: no whole number
 * of entries, or not ascending; index_reset() then makes it usable and the caller fills it anew. */
MUST_USE enum err index_open(struct index *ix, struct fs *fs, const char *path, enum index_kind kind);
/* Closes without writing; safe on a zeroed struct. */
void index_close(struct index *ix);
/* Empties it. */
MUST_USE enum err index_reset(struct index *ix);
/* The same for who fills it at once: the old entries stay in the file until index_cut() cuts what is left of them.  (A
 * file that was cut to nothing makes ext4 write it out when it is closed.) */
void index_restart(struct index *ix);
MUST_USE enum err index_cut(struct index *ix);

/* Adds an entry in memory; one that does not ascend, or is past INDEX_TAIL_MAX, is left out. */
void index_add(struct index *ix, struct index_entry entry);
static inline bool index_wants_write(const struct index *ix)
{
    return ix->tail_count >= INDEX_TAIL_WRITE_AT;
}
/* Writes what is in memory to the file; index_wrote() then forgets it (under the lock). */
MUST_USE enum err index_write(struct index *ix);
void index_wrote(struct index *ix);
/* Both in one, and the memory is given back: for those who hold both the writer role and the lock, or are alone. */
MUST_USE enum err index_save(struct index *ix);

/* Drops entries from relative offset `offset` on (truncation).  index_save() must come first. */
MUST_USE enum err index_truncate(struct index *ix, int64_t offset);

/* ---- Looking at a file without changing it; any thread */

/* How a file is filled: entries in use, zeros behind them (as a killed Kafka leaves them), bytes behind the last whole
 * entry. */
struct index_extent {
    uint32_t used, zeros;
    int64_t torn_bytes;
};
MUST_USE enum err index_measure(struct file *file, enum index_kind kind, struct index_extent *out);
/* The first `count` entries (all that are there, if fewer), each with its number, until `each` returns false. */
typedef bool (*index_each_fn)(void *arg, uint32_t at, struct index_entry entry);
MUST_USE enum err index_walk(struct file *file, enum index_kind kind, uint32_t count, index_each_fn each, void *arg);

/* ---- Searching */

struct index_view {
    struct file *file;
    uint32_t written;
    enum index_kind kind;
};

enum index_by { INDEX_BY_KEY, INDEX_BY_VALUE };

static inline struct index_view index_view(const struct index *ix)
{
    return (struct index_view){ix->file, ix->written, ix->kind};
}
/* The last entry with key (or value) <= target among those in memory; under the lock.  False: ask the file. */
bool index_find_tail(const struct index *ix, enum index_by by, int64_t target, struct index_entry *out);
/* The same among those in the file.  ERR_NOT_FOUND; ERR_AGAIN with `nowait`; ERR_CORRUPT when it has been cut. */
MUST_USE enum err index_find(struct index_view view, enum index_by by, int64_t target, bool nowait,
                             struct index_entry *out);

#endif
