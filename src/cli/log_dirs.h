/* log_dirs.h: log directories and partitions that were named on the command line, for verify, repair and explain.
 * Thread: main; what is read at opening may be looked at by any. */
#ifndef CLI_LOG_DIRS_H
#define CLI_LOG_DIRS_H

#include "cli/log_files.h"
#include "plog/checkpoint.h"

enum log_checkpoint { LOG_RECOVERY, LOG_STARTS, LOG_WATERMARKS, LOG_CLEANED, LOG_CHECKPOINT_COUNT };

struct log_dir_view {
    char *path;
    bool live;  /* a broker holds the lock */
    bool clean; /* the mark of a clean stop is there */
    struct checkpoint checkpoints[LOG_CHECKPOINT_COUNT];
    struct fault faults[LOG_CHECKPOINT_COUNT]; /* of those that cannot be read */
};

struct partition_view {
    struct log_dir_view *dir;
    char *path, *name; /* name: what `id` lends from */
    struct partition_name id;
};

struct log_dirs {
    struct log_dir_view **dirs;
    size_t dir_count, dir_cap;
    struct partition_view *partitions;
    size_t partition_count, partition_cap;
    char **others; /* directories in a log directory that are no partition's, or are on their way out */
    size_t other_count, other_cap;
};

/* Adds what `path` is: a partition's directory, or a log directory with all its partitions.  The fault explains. */
MUST_USE enum err log_dirs_add(struct log_dirs *ld, struct fs *fs, const char *path, struct fault *f);
void log_dirs_free(struct log_dirs *ld);

/* The files' names, by enum log_checkpoint. */
const char *log_checkpoint_name(enum log_checkpoint which);
/* What a checkpoint says of a partition; -1: nothing. */
int64_t partition_checkpoint(const struct partition_view *p, enum log_checkpoint which);

/* Whether a broker holds the directory's lock.  Makes nothing.  *known: false where it could not be told. */
bool log_dir_is_live(struct fs *fs, const char *dir, bool *known);

#endif
