/* log_files.c: see log_files.h. */
#include "cli/log_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/checkpoint.h"
#include "plog/epochs.h"
#include "plog/segment.h"
#include "plog/textfile.h"

static void add(void *arg, const char *name, bool is_dir)
{
    struct name_list *list = arg;
    list->entries = mem_grow(list->entries, &list->cap, list->count + 1, sizeof *list->entries);
    list->entries[list->count++] = (struct name_entry){mem_strdup(name), is_dir};
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct name_entry *)a)->name, ((const struct name_entry *)b)->name);
}

enum err name_list_read(struct name_list *list, struct fs *fs, const char *dir)
{
    *list = (struct name_list){0};
    enum err e = fs_list(fs, dir, add, list);
    if (e)
        name_list_free(list);
    else if (list->count > 1)
        qsort(list->entries, list->count, sizeof *list->entries, compare);
    return e;
}

void name_list_free(struct name_list *list)
{
    for (size_t i = 0; i < list->count; i++) mem_free(list->entries[i].name);
    mem_free(list->entries);
    *list = (struct name_list){0};
}

static const struct {
    const char *name;
    enum log_file_kind kind;
} by_name[] = {
    {CHECKPOINT_RECOVERY_POINT, LOG_FILE_CHECKPOINT},
    {CHECKPOINT_LOG_START, LOG_FILE_CHECKPOINT},
    {CHECKPOINT_REPLICATION, LOG_FILE_CHECKPOINT},
    {CHECKPOINT_CLEANER, LOG_FILE_CHECKPOINT},
    {META_PROPERTIES, LOG_FILE_META},
    {CLEAN_SHUTDOWN, LOG_FILE_CLEAN},
    {PARTITION_METADATA, LOG_FILE_PARTITION},
    {LEADER_EPOCHS, LOG_FILE_EPOCHS},
};

static const struct {
    const char *suffix;
    enum log_file_kind kind;
} by_suffix[] = {
    {SEGMENT_LOG, LOG_FILE_LOG},   {SEGMENT_OFFSETS, LOG_FILE_OFFSETS},   {SEGMENT_TIMES, LOG_FILE_TIMES},
    {SEGMENT_TXNS, LOG_FILE_TXNS}, {SEGMENT_SNAPSHOT, LOG_FILE_SNAPSHOT},
};

static const char *const states[] = {SEGMENT_DELETED, SEGMENT_CLEANED, SEGMENT_SWAP};

static struct str without_state(struct str suffix)
{
    for (size_t i = 0; i < ARRAY_COUNT(states); i++) {
        size_t n = strlen(states[i]);
        if (suffix.size > n && memcmp(suffix.data + suffix.size - n, states[i], n) == 0)
            return (struct str){suffix.data, suffix.size - n};
    }
    return suffix;
}

enum log_file_kind log_file_kind(const char *name, int64_t *base_offset)
{
    const char *suffix;
    *base_offset = -1;
    for (size_t i = 0; i < ARRAY_COUNT(by_name); i++)
        if (strcmp(name, by_name[i].name) == 0) return by_name[i].kind;
    int64_t offset;
    if (!segment_parse_name(name, &offset, &suffix) || offset > SEGMENT_BASE_MAX) return LOG_FILE_UNKNOWN;
    struct str bare = without_state(str_of(suffix));
    for (size_t i = 0; i < ARRAY_COUNT(by_suffix); i++) {
        if (!str_is(bare, by_suffix[i].suffix)) continue;
        *base_offset = offset;
        return by_suffix[i].kind;
    }
    return LOG_FILE_UNKNOWN;
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *path_dir(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_strndup(path, (size_t)(slash - path));
}

static bool cut_tail(struct str *s, const char *tail)
{
    size_t n = strlen(tail);
    if (s->size <= n || memcmp(s->data + s->size - n, tail, n) != 0) return false;
    s->size -= n;
    return true;
}

/* "topic-7.<32 digits>" is what stands before -delete, -future and -stray. */
static bool cut_unique_id(struct str *s)
{
    enum { ID_SIZE = 33 };
    if (s->size <= ID_SIZE || s->data[s->size - ID_SIZE] != '.') return false;
    s->size -= ID_SIZE;
    return true;
}

bool partition_name_parse(struct partition_name *out, const char *name)
{
    struct str s = str_of(name);
    out->state = cut_tail(&s, "-delete")   ? PARTITION_DELETE
                 : cut_tail(&s, "-future") ? PARTITION_FUTURE
                 : cut_tail(&s, "-stray")  ? PARTITION_STRAY
                                           : PARTITION_LIVE;
    if (out->state != PARTITION_LIVE && !cut_unique_id(&s)) return false;
    size_t dash = s.size;
    while (dash > 0 && s.data[dash - 1] != '-') dash--;
    int64_t index;
    if (dash < 2 || s.data[dash - 1] != '-') return false;
    if (!textfile_number((struct str){s.data + dash, s.size - dash}, 0, INT32_MAX, &index)) return false;
    out->topic = (struct str){s.data, dash - 1};
    out->index = (int32_t)index;
    return true;
}
