/* epochs.h: which leader epoch wrote which part of a partition's log (KIP-101, KIP-320), and its file
 * `leader-epoch-checkpoint`.  Entries ascend in epoch and in start offset.  Most logs have a handful.
 *
 * The entries also remember what the file says, so that it is written only when it would change: at a start with many
 * partitions each log cuts off an epoch that began at its end, and a moment later its leader begins the same one again.
 *
 * Thread: as the log's lock says; encode under it, write outside of it. */
#ifndef PLOG_EPOCHS_H
#define PLOG_EPOCHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "os/fs.h"

enum { EPOCH_NONE = -1, EPOCH_OFFSET_NONE = -1 };
enum { EPOCHS_FILE_SIZE_MAX = 64 << 20 }; /* a longer one counts as damaged */
#define EPOCHS_NOT_FILED SIZE_MAX
#define LEADER_EPOCHS    "leader-epoch-checkpoint"

struct epoch_entry {
    int32_t epoch;
    int64_t start_offset;
};

struct epochs {
    struct epoch_entry *entries;
    size_t count, cap;
    /* The file holds so many of `entries`, those behind `count` included; EPOCHS_NOT_FILED: something else. */
    size_t filed;
};

void epochs_init(struct epochs *ep);
void epochs_fini(struct epochs *ep);
void epochs_clear(struct epochs *ep);

/* Batches of `epoch` start at `start_offset`: entries that contradict this (as late or later in epoch or in offset) go.
 * Nothing changes when `epoch` is the latest already and starts no later.  True when changed: write the file. */
bool epochs_assign(struct epochs *ep, int32_t epoch, int64_t start_offset);

/* EPOCH_NONE when empty. */
int32_t epochs_latest(const struct epochs *ep);
int32_t epochs_earliest(const struct epochs *ep);
/* The epoch that holds `offset`; EPOCH_NONE when it lies before the first entry. */
int32_t epochs_of_offset(const struct epochs *ep, int64_t offset);
/* Where `epoch` ends in this log: *found is the largest known epoch <= it and *end the first offset after it.  The
 * latest ends at `log_end`.  An epoch before the first known: *found = epoch, *end = the first entry's start.  Unknown
 * (EPOCH_NONE, or newer than the latest): -1 and -1. */
void epochs_end_offset(const struct epochs *ep, int32_t epoch, int64_t log_end, int32_t *found, int64_t *end);

/* Drops entries that start at or after `end`.  True when changed. */
bool epochs_truncate_end(struct epochs *ep, int64_t end);
/* Drops entries wholly below `start`; the one that holds it starts there now.  True when changed. */
bool epochs_truncate_start(struct epochs *ep, int64_t start);

/* Whether the file has exactly these entries. */
bool epochs_are_filed(const struct epochs *ep);
/* Whether it has at least these: what more it has was cut off at the end, and is cut off again at the next opening,
 * unless something has been appended there. */
bool epochs_lead_file(const struct epochs *ep);
/* The latest of the entries and of those that the file has behind them: a leader that wrote nothing began it. */
int32_t epochs_latest_known(const struct epochs *ep);
/* The file has been written with these entries. */
void epochs_set_filed(struct epochs *ep);

/* The file's content, zero-terminated, to be freed with mem_free(). */
char *epochs_encode(const struct epochs *ep, size_t *size);
/* Replaces the entries.  ERR_CORRUPT with file and line in the fault. */
MUST_USE enum err epochs_decode(struct epochs *ep, const char *path, const char *text, size_t size, struct fault *f);
/* A missing file is an empty one.  After an error there are no entries, and they count as not filed. */
MUST_USE enum err epochs_read(struct epochs *ep, struct fs *fs, const char *path, struct fault *f);
MUST_USE enum err epochs_write(const struct epochs *ep, struct fs *fs, const char *path);

#endif
