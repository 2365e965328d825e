/* txnindex.h: a segment's aborted transactions, file <base offset>.txnindex: entries of 34 bytes, by last offset.
 * The file is made with the first entry; most segments never have one.  Thread: as the segment; reads may go on while
 * one thread appends, each up to the size it saw. */
#ifndef PLOG_TXNINDEX_H
#define PLOG_TXNINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "os/fs.h"
#include "plog/plog.h"

enum { TXNINDEX_ENTRY_SIZE = 34 };

struct txnindex {
    struct fs *fs;
    char *path;
    struct file *file; /* NULL: no entry yet */
    int64_t size;
};

/* Opens what is there (a missing file is an empty index).  A size that is no multiple of an entry is cut down. */
MUST_USE enum err txnindex_open(struct txnindex *ti, struct fs *fs, const char *path);
/* Closes the file; safe on a zeroed struct. */
void txnindex_close(struct txnindex *ti);
/* Follows the file after the caller renamed it. */
void txnindex_set_path(struct txnindex *ti, const char *path);

MUST_USE enum err txnindex_append(struct txnindex *ti, const struct aborted_txn *txn);
MUST_USE enum err txnindex_flush(struct txnindex *ti);
/* Drops entries that end at or above `offset`. */
MUST_USE enum err txnindex_truncate(struct txnindex *ti, int64_t offset);
/* Drops all, whatever they are. */
MUST_USE enum err txnindex_clear(struct txnindex *ti);
/* ERR_CORRUPT when an entry has an unknown version, ends below the segment's base offset or not after the one before.
 */
MUST_USE enum err txnindex_check(struct txnindex *ti, int64_t base_offset);

/* Every entry of a file of `size` bytes with its position, from the start until `each` returns false; changes nothing,
 * any thread.  ERR_CORRUPT: an entry of an unknown version, or fewer bytes than `size`. */
typedef bool (*txnindex_each_fn)(void *arg, const struct aborted_txn *txn, int64_t pos);
MUST_USE enum err txnindex_walk(struct file *file, int64_t size, txnindex_each_fn each, void *arg);

/* Calls `each` for the transactions that overlap [from, below).  *complete: an entry's last stable offset reaches
 * `below`, so the next segments' indexes need not be asked.  ERR_AGAIN with `nowait`: not in the page cache. */
MUST_USE enum err txnindex_find(struct txnindex *ti, int64_t from, int64_t below, bool nowait,
                                void (*each)(void *arg, const struct aborted_txn *txn), void *arg, bool *complete);

#endif
