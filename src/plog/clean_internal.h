/* clean_internal.h: one cleaning on its way, for the files that make it up. */
#ifndef PLOG_CLEAN_INTERNAL_H
#define PLOG_CLEAN_INTERNAL_H

#include "plog/clean.h"
#include "plog/clean_map.h"
#include "plog/clean_txns.h"
#include "plog/plog_internal.h"

struct clean_tools {
    struct clean_limits limits;
    struct clean_map map;
    struct buf_pool *pool;
    uint8_t *out; /* batches on their way into the new segment */
    size_t out_size, out_cap;
    uint8_t *plain; /* records of a batch that is to be compressed again */
    size_t plain_cap;
    uint8_t *kept; /* a bit a record of the batch at hand */
    size_t kept_cap;
};

/* The last batch of a producer with state here, which must not go. */
struct clean_last {
    int64_t producer_id, last_offset; /* -1: a marker was the last of it */
    int16_t epoch;
};

/* The new segment of a group, in files with the suffix .cleaned. */
struct clean_target {
    struct segment *seg; /* NULL: nothing differs from the one original so far */
    struct aborted_txn *aborted;
    size_t aborted_count, aborted_cap;
};

struct cleaning {
    struct plog *pl;
    const struct clean_request *rq;
    struct clean_tools *tools;
    struct clean_result *result;
    struct plog_config config;
    struct segment **segments; /* all below plan.first_uncleanable, with references; NULL: done */
    size_t segment_count;
    uint32_t generation;
    int64_t first_base;      /* of the log, at the beginning: retention raises it */
    struct clean_last *last; /* by producer id */
    size_t last_count, last_cap;
    int64_t map_end; /* first offset that the table knows nothing of */
    struct clean_txns txns;
    struct clean_target target;
};

/* Neighbours that become one segment. */
struct clean_group {
    struct segment **segments; /* of the cleaning */
    size_t count;
};

/* Tells go_on().  ERR_AGAIN: stop. */
MUST_USE enum err clean_pace(struct cleaning *c, size_t bytes);
/* The segment's log, a reference, opened for the cleaning alone if nobody has it open. */
MUST_USE enum err clean_open_log(struct cleaning *c, struct segment *seg, struct file **out);
/* First offset behind segment `at` of the cleaning. */
int64_t clean_segment_end(const struct cleaning *c, size_t at);

/* ---- clean_batch.c: one batch */

/* Notes the keys of a batch from plan.first_dirty on.  *full: the table could not take all; map_end says how far it
 * got. */
MUST_USE enum err clean_batch_keys(struct cleaning *c, const struct batch_info *b, const uint8_t *data, bool *full);

enum clean_fate { CLEAN_DROP, CLEAN_KEEP, CLEAN_REWRITE, CLEAN_EMPTY };

/* What becomes of a batch. */
struct clean_verdict {
    enum clean_fate fate;
    int32_t kept;          /* records; of a batch that is written anew their bits are in tools->kept */
    int64_t max_timestamp; /* of those */
    bool set_horizon;      /* gets a delete horizon, at: */
    int64_t horizon_ms;
    uint8_t *decompressed; /* the records, to be freed with mem_free(); NULL: they lie in the batch */
    size_t decompressed_size;
};
MUST_USE enum err clean_batch_judge(struct cleaning *c, const struct batch_info *b, const uint8_t *data,
                                    struct clean_verdict *out);
/* Writes the batch anew, as the verdict says, behind tools->out, and counts it there; *info is its header. */
MUST_USE enum err clean_batch_rewrite(struct cleaning *c, const struct batch_info *b, const uint8_t *data,
                                      const struct clean_verdict *v, struct batch_info *info);
/* The same for an empty one that keeps the place of the batch. */
void clean_batch_empty(struct cleaning *c, const struct batch_info *b, struct batch_info *info);
/* Room for `size` more bytes in tools->out. */
uint8_t *clean_out_reserve(struct clean_tools *t, size_t size);

/* ---- clean_copy.c, clean_swap.c: one group */

/* Copies what stays of the group into a new segment.  c->target.seg is NULL after it when all of one segment stays. */
MUST_USE enum err clean_group_copy(struct cleaning *c, const struct clean_group *g);
/* Puts the new segment in the place of the group. */
MUST_USE enum err clean_group_swap(struct cleaning *c, const struct clean_group *g);
/* Removes what there is of the new segment. */
void clean_target_discard(struct cleaning *c);
void clean_target_close(struct cleaning *c);

#endif
