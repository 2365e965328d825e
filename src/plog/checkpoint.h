/* checkpoint.h: the small text files of a log directory, in Kafka 3.9's formats.
 *
 * Whole log dir: recovery-point-, log-start-, replication- and cleaner-offset-checkpoint ("topic partition offset" a
 * line), meta.properties, .kafka_cleanshutdown.  One partition: partition.metadata.  Writes are atomic (fs_replace());
 * reads are bounded, and a malformed line is told with file and line number.  Worker. */
#ifndef PLOG_CHECKPOINT_H
#define PLOG_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "os/fs.h"

#define CHECKPOINT_RECOVERY_POINT "recovery-point-offset-checkpoint"
#define CHECKPOINT_LOG_START      "log-start-offset-checkpoint"
#define CHECKPOINT_REPLICATION    "replication-offset-checkpoint"
#define CHECKPOINT_CLEANER        "cleaner-offset-checkpoint"
#define META_PROPERTIES           "meta.properties"
#define CLEAN_SHUTDOWN            ".kafka_cleanshutdown"
#define PARTITION_METADATA        "partition.metadata"

/* ---- Offsets of many partitions */

struct checkpoint_row {
    struct str topic; /* the checkpoint's own copy */
    int32_t partition;
    int64_t offset;
};

struct checkpoint {
    struct checkpoint_row *rows; /* in the order in which they were set */
    size_t count, cap;
    struct arena topics;
    size_t *by_name; /* of rows, for checkpoint_get(); made on first use */
};

void checkpoint_init(struct checkpoint *cp);
void checkpoint_fini(struct checkpoint *cp);
/* Adds a row (the topic is copied).  Of two for one partition, as a file may have them, the last one counts. */
void checkpoint_set(struct checkpoint *cp, struct str topic, int32_t partition, int64_t offset);
/* `otherwise` when there is no row.  A search of a sorted index, which is made anew after a checkpoint_set(). */
int64_t checkpoint_get(struct checkpoint *cp, struct str topic, int32_t partition, int64_t otherwise);
/* Fills an initialised checkpoint.  A missing or empty file is an empty checkpoint; ERR_CORRUPT, ERR_VERSION. */
MUST_USE enum err checkpoint_read(struct checkpoint *cp, struct fs *fs, const char *path, struct fault *f);
/* Rows in the order given. */
MUST_USE enum err checkpoint_write(const struct checkpoint *cp, struct fs *fs, const char *path, struct fault *f);

/* ---- partition.metadata */

/* ERR_NOT_FOUND (Kafka before 2.8, or without topic ids), ERR_CORRUPT. */
MUST_USE enum err partition_metadata_read(struct uuid *topic_id, struct fs *fs, const char *path, struct fault *f);
MUST_USE enum err partition_metadata_write(struct uuid topic_id, struct fs *fs, const char *path);

/* ---- meta.properties */

struct meta_property {
    char *key, *value;
};

struct meta_properties {
    int32_t version;             /* 0 with ZooKeeper, 1 with KRaft */
    int32_t broker_id;           /* broker.id, or node.id in version 1; -1: not there */
    char *cluster_id;            /* NULL: not there */
    char *directory_id;          /* directory.id; NULL: not there */
    struct meta_property *other; /* unknown keys: kept when written back */
    size_t other_count, other_cap;
};

void meta_properties_init(struct meta_properties *mp);
void meta_properties_fini(struct meta_properties *mp);
/* Fills an initialised struct.  ERR_NOT_FOUND: a new directory.  ERR_CORRUPT, ERR_VERSION with a fault. */
MUST_USE enum err meta_properties_read(struct meta_properties *mp, struct fs *fs, const char *path, struct fault *f);
/* With the comment lines and the order of keys that Java gives it; `now_ms` goes into a comment. */
MUST_USE enum err meta_properties_write(const struct meta_properties *mp, struct fs *fs, const char *path,
                                        int64_t now_ms);

/* ---- .kafka_cleanshutdown */

/* ERR_NOT_FOUND: not shut down cleanly.  *broker_epoch is -1 when the file does not tell (before 3.7). */
MUST_USE enum err clean_shutdown_read(int64_t *broker_epoch, struct fs *fs, const char *path);
MUST_USE enum err clean_shutdown_write(int64_t broker_epoch, struct fs *fs, const char *path);

#endif
