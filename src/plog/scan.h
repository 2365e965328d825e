/* scan.h: walks the batches in a segment's .log file, headers only or whole.
 * Thread: one at a time; reads may wait for the disk unless `nowait`. */
#ifndef PLOG_SCAN_H
#define PLOG_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "os/fs.h"
#include "wire/batch.h"

enum { SCAN_WINDOW = 4096 };

struct scan {
    struct file *file; /* lent */
    int64_t pos, end;  /* of the next batch; of the bytes that count */
    bool nowait;
    size_t read_ahead; /* bytes of whole batches that are read at once; scan_init() sets it */
    uint8_t *batches;  /* whole batches read ahead, [batches_pos, + batches_size) of the file */
    size_t batches_cap, batches_size;
    int64_t batches_pos;
    int64_t window_pos; /* the same for headers, without the heap */
    size_t window_size;
    uint8_t window[SCAN_WINDOW];
};

/* Walks [pos, end) of `file`; `pos` is the start of a batch. */
void scan_init(struct scan *sc, struct file *file, int64_t pos, int64_t end, bool nowait);
void scan_fini(struct scan *sc);

/* The header of the next batch, which then lies behind.  ERR_NOT_FOUND at the end; ERR_CORRUPT when what is there is no
 * batch or reaches past the end; ERR_UNSUPPORTED: of format v0 or v1.  After an error `pos` is where it stands. */
MUST_USE enum err scan_header(struct scan *sc, struct batch_info *out);
/* The same with the batch's bytes, good until the next call.  The CRC is not checked. */
MUST_USE enum err scan_batch(struct scan *sc, struct batch_info *out, const uint8_t **data);

/* What is done with a batch on such a walk gave `e`: a file that was not there must not look like the walk's end,
 * behind which a recovery cuts and a cleaning drops. */
static inline enum err scan_work(enum err e)
{
    return e == ERR_NOT_FOUND ? ERR_IO : e;
}

#endif
