/* flusher.h: puts logs on the disk, on the workers: who asked is queued, and a few jobs at a time serve all that is
 * queued.
 *
 * A log has one round at a time; what is appended meanwhile is served by its next one (plog_work).  A job begins
 * several logs before it waits for the first, so that with many partitions one commit of the file system's journal
 * serves many. Few jobs: the pool has other work, cold reads above all.  Thread: any. */
#ifndef REPLICA_FLUSHER_H
#define REPLICA_FLUSHER_H

#include "os/workers.h"
#include "replica/partition.h"

struct flusher;

/* At most `jobs_max` (> 0) jobs at a time, on `workers`, which are lent, each with at most `logs_max` (> 0) logs in
 * hand: a log's first flush opens a few more files. */
struct flusher *flusher_new(struct workers *workers, unsigned jobs_max, size_t logs_max);
/* After the workers have ended.  Drops what is still queued. */
void flusher_free(struct flusher *fl);

/* The partition's log wants work (plog_events.wants_work).  Takes a reference until that is done. */
void flusher_add(struct flusher *fl, struct partition *p);

#endif
