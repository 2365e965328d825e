/* log_dirs.c: see log_dirs.h. */
#include "cli/log_dirs.h"

#include <string.h>

#include "base/mem.h"

static const char *const names[LOG_CHECKPOINT_COUNT] = {
    [LOG_RECOVERY] = CHECKPOINT_RECOVERY_POINT,
    [LOG_STARTS] = CHECKPOINT_LOG_START,
    [LOG_WATERMARKS] = CHECKPOINT_REPLICATION,
    [LOG_CLEANED] = CHECKPOINT_CLEANER,
};

const char *log_checkpoint_name(enum log_checkpoint which)
{
    return names[which];
}

bool log_dir_is_live(struct fs *fs, const char *dir, bool *known)
{
    char *path = mem_printf("%s/.lock", dir);
    struct fs_stat st;
    struct file *lock = NULL;
    enum err e = fs_stat(fs, path, &st);
    if (!e) e = fs_lock(fs, path, &lock); /* taking it where it is not there would make it */
    file_unref(lock);
    mem_free(path);
    *known = e == OK || e == ERR_NOT_FOUND || e == ERR_LOCKED;
    return e == ERR_LOCKED;
}

static void read_view(struct log_dir_view *d, struct fs *fs)
{
    bool known;
    struct fs_stat st;
    d->live = log_dir_is_live(fs, d->path, &known);
    char *path = mem_printf("%s/" CLEAN_SHUTDOWN, d->path);
    d->clean = fs_stat(fs, path, &st) == OK;
    mem_free(path);
    for (enum log_checkpoint i = 0; i < LOG_CHECKPOINT_COUNT; i++) {
        path = mem_printf("%s/%s", d->path, names[i]);
        checkpoint_init(&d->checkpoints[i]);
        enum err e = checkpoint_read(&d->checkpoints[i], fs, path, &d->faults[i]);
        d->faults[i].code = e;
        if (!e) checkpoint_get(&d->checkpoints[i], STR_EMPTY, 0, 0); /* sorts, so that threads only read */
        mem_free(path);
    }
}

static struct log_dir_view *view_of(struct log_dirs *ld, struct fs *fs, const char *path)
{
    for (size_t i = 0; i < ld->dir_count; i++)
        if (strcmp(ld->dirs[i]->path, path) == 0) return ld->dirs[i];
    struct log_dir_view *d = mem_zalloc(1, sizeof *d);
    d->path = mem_strdup(path);
    read_view(d, fs);
    ld->dirs = mem_grow(ld->dirs, &ld->dir_cap, ld->dir_count + 1, sizeof(struct log_dir_view *));
    return ld->dirs[ld->dir_count++] = d;
}

static bool add_partition(struct log_dirs *ld, struct log_dir_view *d, const char *name)
{
    struct partition_view p = {.dir = d, .name = mem_strdup(name)};
    if (!partition_name_parse(&p.id, p.name) || p.id.state == PARTITION_DELETE) {
        mem_free(p.name);
        return false;
    }
    p.path = mem_printf("%s/%s", d->path, name);
    ld->partitions = mem_grow(ld->partitions, &ld->partition_cap, ld->partition_count + 1, sizeof *ld->partitions);
    ld->partitions[ld->partition_count++] = p;
    return true;
}

static bool holds_a_log(const struct name_list *list)
{
    int64_t base_offset;
    for (size_t i = 0; i < list->count; i++) {
        enum log_file_kind kind = log_file_kind(list->entries[i].name, &base_offset);
        if (!list->entries[i].is_dir && (kind == LOG_FILE_LOG || kind == LOG_FILE_PARTITION)) return true;
    }
    return false;
}

static bool is_log_dir(const struct name_list *list)
{
    struct partition_name id;
    for (size_t i = 0; i < list->count; i++) {
        const struct name_entry *entry = &list->entries[i];
        if (entry->is_dir ? partition_name_parse(&id, entry->name) : strcmp(entry->name, META_PROPERTIES) == 0)
            return true;
    }
    return false;
}

static void add_all(struct log_dirs *ld, struct log_dir_view *d, const struct name_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (!list->entries[i].is_dir || add_partition(ld, d, list->entries[i].name)) continue;
        ld->others = mem_grow(ld->others, &ld->other_cap, ld->other_count + 1, sizeof(char *));
        ld->others[ld->other_count++] = mem_printf("%s/%s", d->path, list->entries[i].name);
    }
}

enum err log_dirs_add(struct log_dirs *ld, struct fs *fs, const char *given, struct fault *f)
{
    size_t n = strlen(given);
    while (n > 1 && given[n - 1] == '/') n--;
    char *path = mem_strndup(given, n);
    struct name_list list;
    struct partition_name id;
    enum err e = name_list_read(&list, fs, path);
    bool named = partition_name_parse(&id, path_name(path)) && id.state != PARTITION_DELETE;
    if (e) {
        fault_set(f, e, "The directory %s cannot be read: %s.", path, err_text(e));
    } else if (named && holds_a_log(&list)) {
        char *parent = path_dir(path);
        add_partition(ld, view_of(ld, fs, parent), path_name(path));
        mem_free(parent);
    } else if (is_log_dir(&list)) {
        add_all(ld, view_of(ld, fs, path), &list);
    } else if (holds_a_log(&list)) {
        e = fault_set(f, ERR_INVALID, "%s holds a log: give its path with its name (TOPIC-PARTITION) at the end.",
                      path);
    } else {
        e = fault_set(f, ERR_INVALID, "%s is no log directory: it has neither partitions nor " META_PROPERTIES ".",
                      path);
    }
    name_list_free(&list);
    mem_free(path);
    return e;
}

void log_dirs_free(struct log_dirs *ld)
{
    for (size_t i = 0; i < ld->dir_count; i++) {
        for (enum log_checkpoint k = 0; k < LOG_CHECKPOINT_COUNT; k++) checkpoint_fini(&ld->dirs[i]->checkpoints[k]);
        mem_free(ld->dirs[i]->path);
        mem_free(ld->dirs[i]);
    }
    for (size_t i = 0; i < ld->partition_count; i++) {
        mem_free(ld->partitions[i].path);
        mem_free(ld->partitions[i].name);
    }
    for (size_t i = 0; i < ld->other_count; i++) mem_free(ld->others[i]);
    mem_free(ld->dirs);
    mem_free(ld->partitions);
    mem_free(ld->others);
    *ld = (struct log_dirs){0};
}

int64_t partition_checkpoint(const struct partition_view *p, enum log_checkpoint which)
{
    struct log_dir_view *d = p->dir;
    if (d->faults[which].code || p->id.state != PARTITION_LIVE) return -1;
    return checkpoint_get(&d->checkpoints[which], p->id.topic, p->id.index, -1);
}
