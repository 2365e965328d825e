/* fs.h: files and directories, behind an interface: the real file system, or one that a test makes fail, tear and
 * forget.
 *
 * Paths are whole paths.  Every call is complete or an error: no short reads but at the end of a file, no short writes
 * but with an error.  After a failed file_sync() what was written before it may be lost (the kernel marks the pages
 * clean): the caller must treat the file as failed, not sync again.
 * Thread: any; two writers of one file must not overlap.  Calls may wait for the disk: on a loop only file_pwritev()
 * and the *_nowait() forms are allowed (DESIGN section 4). */
#ifndef OS_FS_H
#define OS_FS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"

struct fs;
struct file;

enum fs_open_flags {
    FS_READ = 1,
    FS_WRITE = 2,
    FS_CREATE = 4,
    FS_EXCLUSIVE = 8, /* with FS_CREATE: ERR_EXISTS when it is there */
    FS_TRUNCATE = 16
};

struct fs_stat {
    int64_t size;
    int64_t modified_ms; /* wall clock */
    bool is_dir;
    uint64_t device; /* equal for two paths on one file system */
};

struct fs_space {
    int64_t total, available;             /* bytes */
    int64_t files_total, files_available; /* inodes; 0 of 0: the file system does not count them */
};

typedef void (*fs_list_fn)(void *arg, const char *name, bool is_dir);

struct fs_ops {
    enum err (*open)(struct fs *fs, const char *path, unsigned flags, struct file **out);
    enum err (*stat)(struct fs *fs, const char *path, struct fs_stat *out);
    enum err (*list)(struct fs *fs, const char *path, fs_list_fn each, void *arg);
    enum err (*mkdir)(struct fs *fs, const char *path);
    enum err (*rename)(struct fs *fs, const char *from, const char *to);
    enum err (*unlink)(struct fs *fs, const char *path);
    enum err (*rmdir)(struct fs *fs, const char *path);
    enum err (*sync_dir)(struct fs *fs, const char *path);
    enum err (*space)(struct fs *fs, const char *path, struct fs_space *out);
    enum err (*lock)(struct fs *fs, const char *path, struct file **out);
    size_t (*open_count)(struct fs *fs); /* NULL: files cost no descriptors */
};

struct fs {
    const struct fs_ops *ops;
};

struct file_ops {
    enum err (*pread)(struct file *f, void *out, size_t size, int64_t pos, size_t *got);
    enum err (*pread_nowait)(struct file *f, void *out, size_t size, int64_t pos, size_t *got);
    enum err (*pwritev)(struct file *f, const struct iovec *iov, int count, int64_t pos);
    enum err (*size)(struct file *f, int64_t *out);
    enum err (*truncate)(struct file *f, int64_t size);
    enum err (*allocate)(struct file *f, int64_t pos, int64_t size);
    enum err (*sync)(struct file *f);
    void (*write_behind)(struct file *f, int64_t pos, int64_t size);
    void (*drop_cache)(struct file *f, int64_t pos, int64_t size);
    enum err (*map)(struct file *f, size_t size, void **out);
    void (*close)(struct file *f);
};

/* Reference counted: a response being sent holds the segment's file while retention deletes it. */
struct file {
    const struct file_ops *ops;
    _Atomic uint32_t refs;
    int fd; /* for sendfile(); -1 when simulated */
};

/* The real one; a process singleton. */
struct fs *fs_system(void);

/* ERR_NOT_FILE: a directory, a pipe, a link that leads to itself; it is never waited for. */
MUST_USE static inline enum err fs_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    return fs->ops->open(fs, path, flags, out);
}
MUST_USE static inline enum err fs_stat(struct fs *fs, const char *path, struct fs_stat *out)
{
    return fs->ops->stat(fs, path, out);
}
/* Each entry but "." and "..", in no order.  A symbolic link counts as what it points at. */
MUST_USE static inline enum err fs_list(struct fs *fs, const char *path, fs_list_fn each, void *arg)
{
    return fs->ops->list(fs, path, each, arg);
}
/* ERR_EXISTS when it is there; parents must exist. */
MUST_USE static inline enum err fs_mkdir(struct fs *fs, const char *path)
{
    return fs->ops->mkdir(fs, path);
}
/* Replaces `to`.  Durable only after fs_sync_dir() of the directory. */
MUST_USE static inline enum err fs_rename(struct fs *fs, const char *from, const char *to)
{
    return fs->ops->rename(fs, from, to);
}
MUST_USE static inline enum err fs_unlink(struct fs *fs, const char *path)
{
    return fs->ops->unlink(fs, path);
}
/* ERR_NOT_EMPTY. */
MUST_USE static inline enum err fs_rmdir(struct fs *fs, const char *path)
{
    return fs->ops->rmdir(fs, path);
}
MUST_USE static inline enum err fs_sync_dir(struct fs *fs, const char *path)
{
    return fs->ops->sync_dir(fs, path);
}
MUST_USE static inline enum err fs_space(struct fs *fs, const char *path, struct fs_space *out)
{
    return fs->ops->space(fs, path, out);
}
/* Creates the file if need be and locks it until it is closed; ERR_LOCKED when a process has it, be it this one,
 * another or a JVM (FileChannel.lock(), as Kafka locks a log directory's `.lock`). */
MUST_USE static inline enum err fs_lock(struct fs *fs, const char *path, struct file **out)
{
    return fs->ops->lock(fs, path, out);
}

/* Files that are open now, of the whole process.  Cheap. */
static inline size_t fs_open_count(struct fs *fs)
{
    return fs->ops->open_count ? fs->ops->open_count(fs) : 0;
}

/* Built of the above, in fs.c. */
/* mkdir with all its parents, and durable; what is there already is fine. */
MUST_USE enum err fs_mkdir_all(struct fs *fs, const char *path);
/* Removes a directory with everything in it, or a file; ERR_NOT_FOUND when it is not there.  Of a symbolic link goes
 * the link, not what it points at. */
MUST_USE enum err fs_remove_all(struct fs *fs, const char *path);
/* The whole file, zero-terminated, to be freed with mem_free(); ERR_TOO_BIG past size_max. */
MUST_USE enum err fs_read_whole(struct fs *fs, const char *path, size_t size_max, char **out, size_t *size);
/* Writes `path`.tmp, syncs it, renames it over `path`, syncs the directory: after a crash the old content or the new.
 */
MUST_USE enum err fs_replace(struct fs *fs, const char *path, const void *data, size_t size);

struct file *file_ref(struct file *f);
/* The last one closes; NULL is allowed. */
void file_unref(struct file *f);

/* *got < size only at the end of the file. */
MUST_USE static inline enum err file_pread(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    return f->ops->pread(f, out, size, pos, got);
}
/* ERR_AGAIN: not in the page cache; then use a worker (RWF_NOWAIT). */
MUST_USE static inline enum err file_pread_nowait(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    return f->ops->pread_nowait(f, out, size, pos, got);
}
MUST_USE static inline enum err file_pwritev(struct file *f, const struct iovec *iov, int count, int64_t pos)
{
    return f->ops->pwritev(f, iov, count, pos);
}
MUST_USE enum err file_pwrite(struct file *f, const void *data, size_t size, int64_t pos);
MUST_USE static inline enum err file_size(struct file *f, int64_t *out)
{
    return f->ops->size(f, out);
}
MUST_USE static inline enum err file_truncate(struct file *f, int64_t size)
{
    return f->ops->truncate(f, size);
}
/* Gives the range blocks on the disk; the file grows to pos + size if it was shorter.  ERR_UNSUPPORTED where the file
 * system cannot. */
MUST_USE static inline enum err file_allocate(struct file *f, int64_t pos, int64_t size)
{
    return f->ops->allocate(f, pos, size);
}
/* fdatasync: content and size are on the disk. */
MUST_USE static inline enum err file_sync(struct file *f)
{
    return f->ops->sync(f);
}
/* Asks the kernel to start writing this range out (sync_file_range); a hint. */
static inline void file_write_behind(struct file *f, int64_t pos, int64_t size)
{
    f->ops->write_behind(f, pos, size);
}
/* This range will not be read again soon (POSIX_FADV_DONTNEED); a hint. */
static inline void file_drop_cache(struct file *f, int64_t pos, int64_t size)
{
    f->ops->drop_cache(f, pos, size);
}
/* Maps the first `size` bytes shared, read and write; the file must be that long.  Unmap with file_unmap().
 * ERR_RANGE: the file is shorter.  Storing into a hole while the disk is full ends the process (SIGBUS):
 * file_allocate() the range first. */
MUST_USE static inline enum err file_map(struct file *f, size_t size, void **out)
{
    return f->ops->map(f, size, out);
}
void file_unmap(void *map, size_t size);

#endif
