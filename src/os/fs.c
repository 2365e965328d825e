/* fs.c: what can be built of a file system's few operations, whichever it is; and the counting of open files. */
#include "os/fs.h"

#include <string.h>

#include "base/mem.h"

/* The directory that `path` is in, "." for a bare name.  To be freed. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_strndup(path, (size_t)(slash - path));
}

/* A new directory is sure to be there when the one that it is in was synced. */
static enum err mkdir_durably(struct fs *fs, const char *path)
{
    enum err e = fs_mkdir(fs, path);
    if (e) return e;
    char *parent = parent_of(path);
    e = fs_sync_dir(fs, parent);
    mem_free(parent);
    return e;
}

enum err fs_mkdir_all(struct fs *fs, const char *path)
{
    char *part = mem_strdup(path);
    enum err e = OK;
    /* Each prefix that ends before a slash, then the whole. */
    for (char *at = part; *at && !e; at++) {
        if (at == part || *at != '/') continue;
        *at = '\0';
        e = mkdir_durably(fs, part);
        if (e == ERR_EXISTS) e = OK; /* if it is no directory then the next one fails */
        *at = '/';
    }
    mem_free(part);
    if (e) return e;
    e = mkdir_durably(fs, path);
    if (e != ERR_EXISTS) return e;
    struct fs_stat st;
    e = fs_stat(fs, path, &st);
    if (e) return e;
    return st.is_dir ? OK : ERR_EXISTS;
}

struct names {
    char **list;
    size_t count, cap;
};

static void names_add(void *arg, const char *name, bool is_dir)
{
    (void)is_dir;
    struct names *names = arg;
    names->list = mem_grow(names->list, &names->cap, names->count + 1, sizeof *names->list);
    names->list[names->count++] = mem_strdup(name);
}

static enum err remove_children(struct fs *fs, const char *path)
{
    /* Listed in full first: what a half-read listing gives while entries vanish is not defined. */
    struct names names = {0};
    enum err e = fs_list(fs, path, names_add, &names);
    for (size_t i = 0; i < names.count; i++) {
        if (!e) {
            char *child = mem_printf("%s/%s", path, names.list[i]);
            e = fs_remove_all(fs, child);
            if (e == ERR_NOT_FOUND) e = OK; /* somebody else was faster */
            mem_free(child);
        }
        mem_free(names.list[i]);
    }
    mem_free(names.list);
    return e;
}

enum err fs_remove_all(struct fs *fs, const char *path)
{
    /* unlink() first: a symbolic link goes itself, whatever it points at stays.  Only a directory refuses. */
    enum err e = fs_unlink(fs, path);
    if (e == OK || e == ERR_NOT_FOUND) return e;
    struct fs_stat st;
    if (fs_stat(fs, path, &st) != OK || !st.is_dir) return e;
    e = remove_children(fs, path);
    return e ? e : fs_rmdir(fs, path);
}

enum err fs_read_whole(struct fs *fs, const char *path, size_t size_max, char **out, size_t *size)
{
    struct file *f;
    enum err e = fs_open(fs, path, FS_READ, &f);
    if (e) return e;
    char *data = NULL;
    int64_t length;
    e = file_size(f, &length);
    if (e) goto out;
    if ((uint64_t)length > size_max) {
        e = ERR_TOO_BIG;
        goto out;
    }
    data = mem_alloc((size_t)length + 1);
    size_t got;
    e = file_pread(f, data, (size_t)length, 0, &got);
    if (e) goto out;
    data[got] = '\0';
    *out = data;
    *size = got;
    data = NULL;
out:
    mem_free(data);
    file_unref(f);
    return e;
}

static enum err write_new(struct fs *fs, const char *path, const void *data, size_t size)
{
    struct file *f;
    enum err e = fs_open(fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f);
    if (e) return e;
    e = file_pwrite(f, data, size, 0);
    if (!e) e = file_sync(f);
    file_unref(f);
    return e;
}

enum err fs_replace(struct fs *fs, const char *path, const void *data, size_t size)
{
    char *tmp = mem_printf("%s.tmp", path);
    char *dir = parent_of(path);
    enum err e = write_new(fs, tmp, data, size);
    if (!e) e = fs_rename(fs, tmp, path);
    if (e) {
        enum err ignored = fs_unlink(fs, tmp); /* tidiness only: the next attempt truncates it */
        (void)ignored;
    } else {
        e = fs_sync_dir(fs, dir);
    }
    mem_free(dir);
    mem_free(tmp);
    return e;
}

struct file *file_ref(struct file *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void file_unref(struct file *f)
{
    if (!f) return;
    uint32_t before = atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before == 1) f->ops->close(f);
}

enum err file_pwrite(struct file *f, const void *data, size_t size, int64_t pos)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size}; /* read only, but iovec has no const */
    return file_pwritev(f, &iov, 1, pos);
}
