/* explain.h: of each segment of a log on disk, what it holds, why it is still there and when it goes.
 *
 * Reads the files and changes nothing, so that a broker may be using the log meanwhile; what it appends or deletes just
 * then may be missing or still be there.  The verdicts are those of retention.h, by which the broker deletes.
 * Thread: any; waits for the disk. */
#ifndef PLOG_EXPLAIN_H
#define PLOG_EXPLAIN_H

#include "os/fs.h"
#include "plog/plog.h"
#include "plog/retention.h"

struct plog_explain_options {
    struct fs *fs;
    const char *dir;
    struct plog_config config;
    int64_t log_start; /* what log-start-offset-checkpoint says; -1: nothing */
    int64_t below;  /* the high watermark, as replication-offset-checkpoint has it; -1: unknown, nothing is above it */
    int64_t now_ms; /* wall clock */
};

struct segment_explained {
    int64_t base_offset, end; /* end: first offset behind it */
    int64_t size;             /* bytes of the .log file */
    int64_t first_ms;         /* of its first batch; -1: empty */
    int64_t newest_ms;        /* its largest timestamp, or where records have none when it was last written */
    int64_t roll_ms;          /* of the active one: when segment.ms closes it; INT64_MAX: never by time */
    bool active;
    bool deleted; /* only its .deleted files are left: they go file.delete.delay.ms after they were renamed */
    struct retention_opinion opinion;
};

struct log_explained {
    int64_t start, end, size;
    struct segment_explained *segments; /* by base offset, the deleted ones first; freed by log_explained_fini() */
    size_t count, cap;
};

MUST_USE enum err plog_explain(struct log_explained *out, const struct plog_explain_options *opt);
void log_explained_fini(struct log_explained *le);

#endif
