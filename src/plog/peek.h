/* peek.h: what a partition's directory tells about its log before that is opened.  Nothing is changed.  Worker. */
#ifndef PLOG_PEEK_H
#define PLOG_PEEK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/uuid.h"
#include "os/fs.h"

struct plog_peek {
    bool has_log;          /* there is a segment */
    struct uuid topic_id;  /* zero: the directory does not say, or cannot be understood */
    int32_t last_epoch;    /* latest leader epoch; -1: none */
    int64_t unclean_bytes; /* what recovery would read: the segment that holds the recovery point, and all behind */
};

/* `clean`: nothing is to be recovered.  Epochs come from leader-epoch-checkpoint, which is ahead of the batches; only
 * where that cannot be read from the batches themselves. */
MUST_USE enum err plog_peek(struct plog_peek *out, struct fs *fs, const char *dir, int64_t recovery_point, bool clean);
/* unclean_bytes alone, which costs a listing and a few stats.  0 when the directory cannot be looked at. */
int64_t plog_unclean_bytes(struct fs *fs, const char *dir, int64_t recovery_point);

#endif
