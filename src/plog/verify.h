/* verify.h: reads a partition's directory from end to end and says what is not as it should be.  Changes nothing.
 *
 * The batches are the truth; indexes, transaction index, epochs and snapshots are compared with what they say.  A log
 * that has been compacted has gaps, and what a producer once did can no longer be told from it: there only the formats
 * of transaction indexes and snapshots are checked.
 *
 * Thread: any, one call a log; waits for the disk. */
#ifndef PLOG_VERIFY_H
#define PLOG_VERIFY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "os/fs.h"

/* NOTE: as it may be, or goes by itself at the next opening.  DAMAGE: something is wrong. */
enum verify_level { VERIFY_NOTE, VERIFY_DAMAGE };

/*   name            level   id               what to do */
#define VERIFY_KINDS(X)                                                                                               \
    X(TORN_TAIL, DAMAGE, "torn_tail", "The next start of the broker cuts it off; so does `barnabas log repair`.")     \
    X(BAD_BATCH, DAMAGE, "bad_batch",                                                                                 \
      "If another replica has these records, delete this partition's directory and let it be copied; else `barnabas " \
      "log repair --allow-loss` cuts the log here.")                                                                  \
    X(OLD_FORMAT, DAMAGE, "old_format", "Let a Kafka 3.x broker rewrite or expire them first.")                       \
    X(OFFSETS, DAMAGE, "offsets",                                                                                     \
      "If another replica has these records, delete this partition's directory and let it be copied; else `barnabas " \
      "log repair --allow-loss` cuts the log here.")                                                                  \
    X(EPOCH_FALLS, DAMAGE, "epoch_falls",                                                                             \
      "Another replica may differ from here on: compare them, and delete this directory to let it be copied.")        \
    X(BAD_RECORDS, DAMAGE, "bad_records", "The producer wrote them so; consumers fail on them until they are past.")  \
    X(OFFSET_INDEX, DAMAGE, "offset_index", "`barnabas log repair` makes it anew; nothing is lost.")                  \
    X(TIME_INDEX, DAMAGE, "time_index", "`barnabas log repair` makes it anew; nothing is lost.")                      \
    X(TXN_INDEX, DAMAGE, "txn_index", "`barnabas log repair` makes it anew; nothing is lost.")                        \
    X(SNAPSHOT, DAMAGE, "snapshot", "`barnabas log repair` makes it anew; nothing is lost.")                          \
    X(EPOCHS_FILE, DAMAGE, "epochs_file", "`barnabas log repair` makes it anew; nothing is lost.")                    \
    X(METADATA, DAMAGE, "metadata",                                                                                   \
      "Put the topic's id there (`topic_id:` after `version: 0`), or delete the file if the cluster has no topic "    \
      "ids.")                                                                                                         \
    X(UNREADABLE, DAMAGE, "unreadable", "See to the disk or the file's permissions, and look again.")                 \
    X(CHECKPOINT, DAMAGE, "checkpoint", "`barnabas log repair` puts it right.")                                       \
    X(META, DAMAGE, "meta", "Correct it by hand: it says which broker and cluster the directory belongs to.")         \
    X(PREALLOCATED, NOTE, "preallocated", "Kafka was killed; the next start cuts it to its entries.")                 \
    X(LEFTOVER, NOTE, "leftover", "The next start removes it or finishes what was begun.")                            \
    X(STRAY, NOTE, "stray", "Nothing uses it.")                                                                       \
    X(NOT_CLEAN, NOTE, "not_clean", "The next start reads what lies behind the recovery points again.")               \
    X(LIVE, NOTE, "live", "Stop the broker to have everything checked.")

enum verify_kind {
#define X(name, level, id, advice) VERIFY_##name,
    VERIFY_KINDS(X)
#undef X
        VERIFY_KIND_COUNT
};

/* All static. */
enum verify_level verify_kind_level(enum verify_kind kind);
const char *verify_kind_id(enum verify_kind kind);
const char *verify_kind_advice(enum verify_kind kind);

struct verify_finding {
    enum verify_kind kind;
    const char *file; /* its whole path; lent until the call returns */
    int64_t pos;      /* in the file; -1: the whole of it */
    char text[400];   /* a sentence without its full stop */
};

struct plog_verify_options {
    struct fs *fs;
    const char *dir;
    int64_t log_start;         /* what log-start-offset-checkpoint says; -1: nothing */
    bool live;                 /* somebody may be appending: the active segment is left out, with what goes with it */
    bool deep;                 /* decompress and walk all records too */
    _Atomic int64_t *progress; /* bytes read are added; may be NULL */
    void (*found)(void *arg, const struct verify_finding *f);
    void *arg;
};

struct plog_verify_result {
    int64_t first, end; /* base offset of the first segment, first offset after the last sound batch */
    int64_t segments, batches, records, bytes;
    int64_t damages;
    /* Where recovery would cut the log: a segment and a position in it; cut_base -1: nowhere.  `cut_loses`: whole
     * batches or segments lie behind it. */
    int64_t cut_base, cut_pos, cut_end; /* cut_end: the log's end after that */
    bool cut_loses;
};

/* An error only where nothing can be looked at: the directory cannot be listed. */
MUST_USE enum err plog_verify(struct plog_verify_result *out, const struct plog_verify_options *opt);

#endif
