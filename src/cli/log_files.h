/* log_files.h: names and kinds of the files of a log directory, for the log commands.  Thread: main, or any. */
#ifndef CLI_LOG_FILES_H
#define CLI_LOG_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "os/fs.h"

/* A directory's entries, sorted by name. */
struct name_entry {
    char *name;
    bool is_dir;
};
struct name_list {
    struct name_entry *entries;
    size_t count, cap;
};
MUST_USE enum err name_list_read(struct name_list *list, struct fs *fs, const char *dir);
void name_list_free(struct name_list *list);

enum log_file_kind {
    LOG_FILE_UNKNOWN,
    LOG_FILE_LOG,
    LOG_FILE_OFFSETS,
    LOG_FILE_TIMES,
    LOG_FILE_TXNS,
    LOG_FILE_SNAPSHOT,
    LOG_FILE_EPOCHS,
    LOG_FILE_CHECKPOINT,
    LOG_FILE_PARTITION,
    LOG_FILE_META,
    LOG_FILE_CLEAN
};

/* By the name, with or without .deleted, .cleaned or .swap behind it; *base_offset of those that have one. */
enum log_file_kind log_file_kind(const char *name, int64_t *base_offset);

/* The last part of a path, and a copy of what stands before it ("." if nothing does; to be freed). */
const char *path_name(const char *path);
char *path_dir(const char *path);

/* A partition's directory: "topic-7", or "topic.<32 digits>-delete" and its like. */
struct partition_name {
    struct str topic; /* lent from the name */
    int32_t index;
    enum { PARTITION_LIVE, PARTITION_DELETE, PARTITION_FUTURE, PARTITION_STRAY } state;
};
bool partition_name_parse(struct partition_name *out, const char *name);

#endif
