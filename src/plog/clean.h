/* clean.h: compaction of one log: of every key at least the last record stays (cleanup.policy=compact, KIP-58,
 * KIP-534).
 *
 * A cleaning reads the dirty part of the log, from where the last one ended up to the first segment that must not be
 * cleaned yet, and notes at which offset each key was seen last.  Then it copies the segments from the first one on,
 * leaving out what has been superseded, and puts the copies in the place of the originals, one group of neighbours
 * after the other.  Offsets never change.  When the keys do not fit into the table, it ends earlier, and the next
 * cleaning goes on from there.
 *
 * What stays, as in Kafka: records without a value (tombstones) and transaction markers for delete.retention.ms from
 * their first cleaning on, which is written into their batch (the delete horizon); the last batch of each producer that
 * is known, emptied if need be, for its sequence; the last batch of the range.  Records of aborted transactions go.
 *
 * Thread: a worker, one cleaning of a log at a time.  Appends and reads go on beside it; who cuts or moves the log
 * waits at most for one group's files to be exchanged, and the cleaning then ends with ERR_AGAIN. */
#ifndef PLOG_CLEAN_H
#define PLOG_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/rng.h"
#include "plog/plog.h"

/* What there is to clean in a log. */
struct clean_plan {
    int64_t first_dirty, first_uncleanable; /* offsets; the latter is a segment's first */
    int64_t clean_bytes, dirty_bytes;       /* of segments below first_dirty, and from there to first_uncleanable */
    double ratio;                           /* dirty of both; 0 when there are none */
    bool overdue;                           /* something dirty is older than max.compaction.lag.ms */
    bool due;                               /* overdue, or more than min.cleanable.dirty.ratio is dirty */
    bool reset;                             /* plog_cleaned() did not fit the log, which is odd: from the start */
};

/* Before the first cleaning of a log, whose holes recovery must not take for a loss even if the topic is not compacted
 * any more: from here on plog_cleaned() says that there may be some, which is to be checkpointed first.  False: it says
 * so already. */
bool plog_clean_first(struct plog *pl, const struct clean_plan *plan);
/* `below`: nothing at or above it is cleaned; the last stable offset below the high watermark.  A log that is not to be
 * compacted has an empty plan.  Worker: may look into closed segments. */
MUST_USE enum err plog_clean_plan(struct plog *pl, int64_t below, int64_t now_ms, struct clean_plan *out);

struct clean_limits {
    size_t map_bytes;   /* log.cleaner.dedupe.buffer.size, of this thread */
    double load_factor; /* log.cleaner.io.buffer.load.factor */
    size_t io_bytes;    /* of each of the two buffers: log.cleaner.io.buffer.size / threads / 2 */
};

/* What a thread cleans with, one log after the other.  Its table is there only during a cleaning. */
struct clean_tools;
struct clean_tools *clean_tools_new(const struct clean_limits *limits, struct rng *rng);
void clean_tools_free(struct clean_tools *tools);

struct clean_request {
    struct clean_plan plan;
    int64_t now_ms;
    struct clean_tools *tools; /* lent */
    /* So many bytes were read or written; may keep the caller waiting.  False: end the cleaning.  NULL: go on. */
    bool (*go_on)(void *arg, size_t bytes);
    void *arg;
};

struct clean_result {
    int64_t first_dirty; /* where the next cleaning begins: what plog_cleaned() is now */
    int64_t bytes_read, bytes_written, records_read, records_kept;
    size_t keys; /* different ones in the dirty part */
};

/* Cleans the log once.  ERR_AGAIN: ended by go_on() or because the log was cut; ERR_CLOSED: it is retired; what was
 * exchanged by then stays so.  ERR_CORRUPT and others: the log is as good as before, if need be with files that are to
 * be exchanged yet (flush.c); a failure of the disk is also told through events.failed. */
MUST_USE enum err plog_clean(struct plog *pl, const struct clean_request *rq, struct clean_result *out);

#endif
