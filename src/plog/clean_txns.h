/* clean_txns.h: what the cleaner knows of transactions as it walks a log from one end to the other: which batches were
 * aborted, and whether a marker still has batches of its transaction before it (KIP-98).  Thread: one at a time. */
#ifndef PLOG_CLEAN_TXNS_H
#define PLOG_CLEAN_TXNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plog/plog.h"
#include "wire/batch.h"

struct clean_txn;

struct clean_txns {
    struct clean_txn *open;    /* uthash by producer id: transactions begun and not ended at this place */
    struct aborted_txn *known; /* aborted ones of the range, by first offset: known[known_at ..] begin further on */
    size_t known_at, known_count, known_cap;
};

void clean_txns_init(struct clean_txns *ts);
void clean_txns_fini(struct clean_txns *ts);
/* All that were aborted and overlap [from, to), which is to be walked.  Worker. */
MUST_USE enum err clean_txns_load(struct clean_txns *ts, struct plog *pl, int64_t from, int64_t to);

/* A batch of data goes by.  True: its transaction was aborted, nobody needs its records. */
bool clean_txns_data(struct clean_txns *ts, const struct batch_info *b);
/* A control batch goes by.  True: nothing of its transaction is left before it, so that it may go too.  `aborted` is
 * set when it ends an aborted transaction of which something is left: that one stays in the transaction index. */
bool clean_txns_control(struct clean_txns *ts, const struct batch_info *b, const struct txn_marker *marker,
                        struct aborted_txn *aborted, bool *is_aborted);

#endif
