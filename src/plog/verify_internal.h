/* verify_internal.h: what the files of verify share. */
#ifndef PLOG_VERIFY_INTERNAL_H
#define PLOG_VERIFY_INTERNAL_H

#include "plog/epochs.h"
#include "plog/index.h"
#include "plog/producers.h"
#include "plog/verify.h"
#include "wire/batch.h"

/* One index of the segment that is being read, all in memory, and how far the batches have come along it. */
struct verify_index {
    struct index_entry *entries;
    size_t count, cap, at;
    char *path;
    bool there, wrong; /* wrong: told already */
};

struct offset_list {
    int64_t *offsets;
    size_t count, cap;
};
struct txn_list {
    struct aborted_txn *txns;
    size_t count, cap;
};

struct verify {
    const struct plog_verify_options *opt;
    struct plog_verify_result *res;

    int64_t next;    /* the least offset that may come */
    int32_t epoch;   /* of the last batch, -1 */
    bool broken;     /* unreadable bytes have been passed: what is derived from all batches is not to be compared */
    bool incomplete; /* the log's start is gone and no snapshot tells what was before it */
    bool gaps;       /* offsets are missing: compacted */

    struct epochs epochs;
    bool epochs_known, epochs_missing, epochs_told;
    char *epochs_path;
    struct producers producers;
    struct offset_list snapshots; /* ascending; those below snapshot_at have had their turn */
    size_t snapshot_at;

    /* The segment that is being read. */
    int64_t base;
    bool last;
    int64_t max_time;
    struct verify_index offsets, times;
    struct txn_list aborted; /* what its transaction index should say */
};

void verify_found(struct verify *v, enum verify_kind kind, const char *file, int64_t pos, const char *fmt, ...)
    PRINTF_LIKE(5, 6);

/* verify_index.c */
void verify_indexes_open(struct verify *v);
void verify_indexes_batch(struct verify *v, const struct batch_info *b, int64_t pos);
void verify_indexes_end(struct verify *v, int64_t size);

/* verify_state.c: epochs, producers, snapshots, transaction indexes */
void verify_state_open(struct verify *v);
void verify_state_batch(struct verify *v, const struct batch_info *b, const uint8_t *data, const char *file,
                        int64_t pos);
void verify_txns_end(struct verify *v);
void verify_state_end(struct verify *v);

#endif
