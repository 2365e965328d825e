/* retention.h: which segments go, and why the others stay: the rules that deletion follows (retain.c) and that
 * `barnabas log explain` tells.  Pure: no lock, no I/O but for what `newest` does.  Thread: any. */
#ifndef PLOG_RETENTION_H
#define PLOG_RETENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct retention_rules {
    bool cleanup_delete;                   /* cleanup.policy has delete */
    int64_t retention_ms, retention_bytes; /* -1: no limit */
    int64_t now_ms;                        /* wall clock */
    int64_t below;                         /* the high watermark: nothing at or above it goes */
    int64_t log_start;
};

struct retention_segment {
    int64_t end; /* first offset after it */
    int64_t size;
    bool last; /* the active one */
};

enum retention_verdict {
    RETENTION_GO_START, /* all of it lies below the log's start (DeleteRecords) */
    RETENTION_GO_SIZE,  /* the log without it is still retention.bytes long */
    RETENTION_GO_TIME,  /* its newest record is older than retention.ms */
    RETENTION_KEEP_EMPTY,
    RETENTION_KEEP_ABOVE,  /* parts of it may not be replicated yet */
    RETENTION_KEEP_POLICY, /* cleanup.policy is compact alone */
    RETENTION_KEEP_LIMITS, /* within the limits that there are */
    RETENTION_KEEP_BEHIND  /* it could go, but the log goes from its oldest segment on, and an older one stays */
};
static inline bool retention_goes(enum retention_verdict verdict)
{
    return verdict <= RETENTION_GO_TIME;
}

/* One walk over a log's segments, oldest first. */
struct retention {
    struct retention_rules rules;
    int64_t excess; /* bytes over retention.bytes, were all before this one gone */
    bool kept;      /* an older one stays */
};
/* `size`: bytes of the whole log. */
void retention_begin(struct retention *r, const struct retention_rules *rules, int64_t size);

/* The segment's largest timestamp, or where it has none when it was last written; asked only when it decides. */
typedef enum err (*retention_newest)(void *arg, int64_t *newest_ms);

struct retention_opinion {
    enum retention_verdict verdict;
    int64_t due_ms;     /* when its time is over; INT64_MAX: never by time, or not asked */
    int64_t more_bytes; /* bytes that must be appended for it to go by size; INT64_MAX: never by size */
};
MUST_USE enum err retention_next(struct retention *r, const struct retention_segment *seg, retention_newest newest,
                                 void *arg, struct retention_opinion *out);

#endif
