/* producers.h: what one partition knows of its idempotent and transactional producers (KIP-98): Kafka 3.9's rules.
 *
 * The state runs ahead of the disk: producers_queue() checks a batch against everything queued before it and counts it
 * in at once.  producers_publish() says up to where the log has been written; producers_rollback() takes back all that
 * is queued above that.  Each queued batch leaves one undo record, a swap of what it changed, so that both cost the
 * same whatever the number of producers, and a snapshot can be taken as of an offset below the queued end.
 *
 * Nothing is allocated before the first producer.  Thread: as the log's lock says. */
#ifndef PLOG_PRODUCERS_H
#define PLOG_PRODUCERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "os/fs.h"
#include "plog/plog.h"
#include "wire/batch.h"

enum { PRODUCER_BATCHES_KEPT = 5 };

struct producer;
struct producers_undo;

/* A transaction that has ended, but whose marker may not be replicated. */
struct txn_ended {
    int64_t first_offset, last_offset;
};

struct producers {
    struct producer *by_id;  /* uthash */
    struct list open_txns;   /* producers with an open transaction, by first offset */
    struct txn_ended *ended; /* by last offset: ended[ended_at .. ended_count) */
    size_t ended_at, ended_count, ended_cap;
    struct producers_undo *undo; /* undo[undo_at .. undo_count): queued, not published; oldest first */
    size_t undo_at, undo_count, undo_cap;
    size_t count; /* producers known */
};

void producers_init(struct producers *ps);
void producers_fini(struct producers *ps);
/* Forgets everything, queued or not (truncation, before reloading). */
void producers_clear(struct producers *ps);

/* It has sent something that is queued or in the log; unless a marker alone is all that is known of it. */
bool producers_knows(const struct producers *ps, int64_t producer_id);

/* What became of a batch. */
struct producers_result {
    /* NONE: queued.  DUPLICATE_SEQUENCE_NUMBER: one of the producer's last five batches, whose offsets and timestamp
     * follow; it may itself still be queued, and the duplicate may be acknowledged only when that one is written.  Or
     * an older one: base_offset is -1, and it lies at or before last_offset. OUT_OF_ORDER_SEQUENCE_NUMBER,
     * INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED: not queued, nothing changed. */
    enum kerr kerr;
    int64_t base_offset, last_offset, timestamp;
    /* The batch was a marker that ended a transaction with records here; if `aborted`, `txn` goes into the segment's
     * transaction index. */
    bool txn_ended, aborted;
    struct aborted_txn txn;
};

/* Checks a batch whose base_offset has been assigned and counts it in.  `marker` is what batch_read_marker() found in a
 * control batch, NULL for data.  Batches without a producer id pass untouched.  APPEND_REPLICA (also recovery) checks
 * nothing and follows what the log says; APPEND_COORDINATOR checks epochs only. */
void producers_queue(struct producers *ps, const struct batch_info *b, const struct txn_marker *marker,
                     enum append_origin origin, struct producers_result *out);
/* Everything below `end` is in the log. */
void producers_publish(struct producers *ps, int64_t end);
/* Takes back everything queued and not published. */
void producers_rollback(struct producers *ps);

/* First offset of the earliest transaction that is open, or whose marker lies at or above the high watermark last told
 * by producers_replicated(); -1: none.  Last stable offset = min(this, high watermark).  A queued marker changes
 * nothing here until it is replicated. */
int64_t producers_first_unstable(const struct producers *ps);
/* Everything below `high_watermark` is replicated. */
void producers_replicated(struct producers *ps, int64_t high_watermark);

/* Forgets producers without open transaction that have been idle for `expiration_ms` (producer.id.expiration.ms) or
 * longer, by their records' timestamps, as Kafka does.  Returns when to call again, at most now_ms + expiration_ms;
 * INT64_MAX when nobody is left (`count` is 0): then the next call is due that long after a first producer has come. */
int64_t producers_expire(struct producers *ps, int64_t now_ms, int64_t expiration_ms);

void producers_each(struct producers *ps, void (*each)(void *arg, const struct producer_view *p), void *arg);

/* ---- Snapshot files: <offset>.snapshot, the state of everything below that offset */

/* The file's content as of `offset` (published end <= offset <= queued end), to be freed with mem_free(): encoded under
 * the lock, written outside of it. */
void producers_snapshot_encode(struct producers *ps, int64_t offset, uint8_t **out, size_t *size);
/* What an entry says of one producer: a batch and, -1 for none, where its open transaction began.  Of several entries
 * of one producer the last one has its last batch and all else; those before it are earlier batches, of which the first
 * may stand for many. */
struct producer_entry {
    int64_t producer_id, last_offset, timestamp, txn_first_offset;
    int32_t last_sequence, offset_delta, coordinator_epoch;
    int16_t producer_epoch;
};
/* Every entry of a snapshot as it stands there, with its position.  ERR_CORRUPT (CRC, version, length): none. */
MUST_USE enum err producers_snapshot_each(const uint8_t *data, size_t size,
                                          void (*each)(void *arg, const struct producer_entry *entry, size_t pos),
                                          void *arg);
/* The longest snapshot that is read. */
enum { PRODUCERS_SNAPSHOT_SIZE_MAX = 512 << 20 };
/* Writes it, atomically, as <dir>/<20 digits of offset>.snapshot. */
MUST_USE enum err producers_snapshot_write(struct fs *fs, const char *dir, int64_t offset, const uint8_t *data,
                                           size_t size);
/* Replaces the state with a file's, leaving out expired producers.  ERR_CORRUPT (CRC, version, length, fields): the
 * caller deletes the file and tries the one before; the state is then empty. */
MUST_USE enum err producers_snapshot_decode(struct producers *ps, const uint8_t *data, size_t size, int64_t now_ms,
                                            int64_t expiration_ms);
MUST_USE enum err producers_snapshot_read(struct producers *ps, struct fs *fs, const char *dir, int64_t offset,
                                          int64_t now_ms, int64_t expiration_ms);

#endif
