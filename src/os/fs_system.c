/* fs_system.c: the real file system. */
#include "os/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"

/* As Java makes them: the umask decides, so that a directory shared by a group stays so. */
enum { FILE_MODE = 0666, DIR_MODE = 0777 };

static _Atomic size_t open_files; /* of this process, through here */

struct system_file {
    struct file file;
    /* The file system knows no RWF_NOWAIT: reads go the plain way, as they did before kernels had it. */
    _Atomic bool nowait_missing;
};

/* What the call that has just failed left in errno; never OK. */
static enum err last_error(void)
{
    enum err e = err_of_errno(errno);
    return e ? e : ERR_IO;
}

/* ---- files ---- */

static enum err system_pread(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    char *at = out;
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(f->fd, at + done, size - done, pos + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return last_error();
        if (n == 0) break;
        done += (size_t)n;
    }
    *got = done;
    return OK;
}

static enum err system_pread_nowait(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    struct system_file *sf = CONTAINER_OF(f, struct system_file, file);
    char *at = out;
    size_t done = 0;
    while (done < size) {
        if (atomic_load_explicit(&sf->nowait_missing, memory_order_relaxed))
            return system_pread(f, out, size, pos, got);
        struct iovec iov = {.iov_base = at + done, .iov_len = size - done};
        ssize_t n = preadv2(f->fd, &iov, 1, pos + (int64_t)done, RWF_NOWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
            atomic_store_explicit(&sf->nowait_missing, true, memory_order_relaxed);
            continue;
        }
        if (n < 0) return last_error(); /* EAGAIN, also when a first part was in the cache */
        if (n == 0) break;
        done += (size_t)n;
    }
    *got = done;
    return OK;
}

static enum err write_all(int fd, const char *data, size_t size, int64_t pos)
{
    while (size > 0) {
        ssize_t n = pwrite(fd, data, size, pos);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return last_error();
        if (n == 0) return ERR_IO; /* not for a regular file; better an error than an endless loop */
        data += n;
        size -= (size_t)n;
        pos += n;
    }
    return OK;
}

/* One call for up to IOV_MAX pieces.  A short write may end within a piece: its rest is written by itself, then the
 * following pieces together again. */
static enum err system_pwritev(struct file *f, const struct iovec *iov, int count, int64_t pos)
{
    while (count > 0) {
        if (iov->iov_len == 0) { /* so that a return of 0 means that nothing can be written */
            iov++;
            count--;
            continue;
        }
        ssize_t n = pwritev(f->fd, iov, MIN(count, IOV_MAX), pos);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return last_error();
        if (n == 0) return ERR_IO;
        pos += n;
        size_t written = (size_t)n;
        for (; count > 0 && written >= iov->iov_len; iov++, count--) written -= iov->iov_len;
        if (written > 0) {
            size_t rest = iov->iov_len - written;
            enum err e = write_all(f->fd, (const char *)iov->iov_base + written, rest, pos);
            if (e) return e;
            pos += (int64_t)rest;
            iov++;
            count--;
        }
    }
    return OK;
}

static enum err system_size(struct file *f, int64_t *out)
{
    struct stat st;
    if (fstat(f->fd, &st) < 0) return last_error();
    *out = st.st_size;
    return OK;
}

static enum err system_truncate(struct file *f, int64_t size)
{
    while (ftruncate(f->fd, size) < 0)
        if (errno != EINTR) return last_error();
    return OK;
}

static enum err system_allocate(struct file *f, int64_t pos, int64_t size)
{
    while (fallocate(f->fd, 0, pos, size) < 0)
        if (errno != EINTR) return last_error();
    return OK;
}

static enum err system_sync(struct file *f)
{
    /* Whatever the reason, what was written may be lost: no room, which passes elsewhere, is as bad here.  Never tried
     * again, see fs.h. */
    return fdatasync(f->fd) < 0 ? ERR_IO : OK;
}

static void system_write_behind(struct file *f, int64_t pos, int64_t size)
{
    (void)sync_file_range(f->fd, pos, size, SYNC_FILE_RANGE_WRITE);
}

static void system_drop_cache(struct file *f, int64_t pos, int64_t size)
{
    (void)posix_fadvise(f->fd, pos, size, POSIX_FADV_DONTNEED);
}

static enum err system_map(struct file *f, size_t size, void **out)
{
    int64_t length;
    enum err e = system_size(f, &length);
    if (e) return e;
    if (size > (uint64_t)length) return ERR_RANGE; /* touching what lies behind would be a SIGBUS */
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED) return last_error();
    *out = map;
    return OK;
}

void file_unmap(void *map, size_t size)
{
    if (map) ASSERT(munmap(map, size) == 0);
}

static void system_close(struct file *f)
{
    atomic_fetch_sub_explicit(&open_files, 1, memory_order_relaxed);
    close(f->fd); /* Linux releases the descriptor whatever it returns; what matters was synced before */
    mem_free(CONTAINER_OF(f, struct system_file, file));
}

static const struct file_ops system_file_ops = {
    .pread = system_pread,
    .pread_nowait = system_pread_nowait,
    .pwritev = system_pwritev,
    .size = system_size,
    .truncate = system_truncate,
    .allocate = system_allocate,
    .sync = system_sync,
    .write_behind = system_write_behind,
    .drop_cache = system_drop_cache,
    .map = system_map,
    .close = system_close,
};

/* ---- paths ---- */

static enum err open_fd(const char *path, int flags, int *out)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, FILE_MODE);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return last_error();
    *out = fd;
    return OK;
}

static struct file *file_of_fd(int fd)
{
    struct system_file *sf = mem_zalloc(1, sizeof *sf);
    atomic_fetch_add_explicit(&open_files, 1, memory_order_relaxed);
    sf->file.ops = &system_file_ops;
    sf->file.fd = fd;
    atomic_init(&sf->file.refs, 1);
    return &sf->file;
}

/* A pipe would be waited for; devices (/dev/null, /dev/full) are as good as files. */
static enum err check_is_file(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return last_error();
    return S_ISREG(st.st_mode) || S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ? OK : ERR_NOT_FILE;
}

static enum err system_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    (void)fs;
    int how = (flags & FS_WRITE) ? ((flags & FS_READ) ? O_RDWR : O_WRONLY) : O_RDONLY;
    if (flags & FS_CREATE) how |= O_CREAT;
    if (flags & FS_EXCLUSIVE) how |= O_EXCL;
    if (flags & FS_TRUNCATE) how |= O_TRUNC;
    int fd;
    enum err e = open_fd(path, how | O_NONBLOCK, &fd); /* which means nothing for files; opening a pipe would wait */
    if (e) return e;
    e = check_is_file(fd);
    if (e) {
        close(fd);
        return e;
    }
    *out = file_of_fd(fd);
    return OK;
}

static enum err system_stat(struct fs *fs, const char *path, struct fs_stat *out)
{
    (void)fs;
    struct stat st;
    if (stat(path, &st) < 0) return last_error();
    out->size = st.st_size;
    out->modified_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    out->is_dir = S_ISDIR(st.st_mode);
    out->device = st.st_dev;
    return OK;
}

/* Links are followed, as Kafka follows them: a partition's directory may live elsewhere. */
static bool entry_is_dir(DIR *dir, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) return entry->d_type == DT_DIR;
    struct stat st;
    return fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static enum err system_list(struct fs *fs, const char *path, fs_list_fn each, void *arg)
{
    (void)fs;
    DIR *dir = opendir(path); /* with O_CLOEXEC */
    if (!dir) return last_error();
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        each(arg, entry->d_name, entry_is_dir(dir, entry));
    }
    enum err e = errno ? last_error() : OK; /* at the end of the directory */
    closedir(dir);
    return e;
}

static enum err system_mkdir(struct fs *fs, const char *path)
{
    (void)fs;
    return mkdir(path, DIR_MODE) < 0 ? last_error() : OK;
}

static enum err system_rename(struct fs *fs, const char *from, const char *to)
{
    (void)fs;
    return rename(from, to) < 0 ? last_error() : OK;
}

static enum err system_unlink(struct fs *fs, const char *path)
{
    (void)fs;
    return unlink(path) < 0 ? last_error() : OK;
}

static enum err system_rmdir(struct fs *fs, const char *path)
{
    (void)fs;
    return rmdir(path) < 0 ? last_error() : OK;
}

static enum err system_sync_dir(struct fs *fs, const char *path)
{
    (void)fs;
    int fd;
    enum err e = open_fd(path, O_RDONLY | O_DIRECTORY, &fd);
    if (e) return e;
    if (fsync(fd) < 0) e = last_error();
    close(fd);
    return e;
}

static enum err system_space(struct fs *fs, const char *path, struct fs_space *out)
{
    (void)fs;
    struct statvfs st;
    while (statvfs(path, &st) < 0)
        if (errno != EINTR) return last_error();
    out->total = (int64_t)(st.f_blocks * st.f_frsize);
    out->available = (int64_t)(st.f_bavail * st.f_frsize);
    out->files_total = (int64_t)st.f_files;
    out->files_available = (int64_t)st.f_favail;
    return OK;
}

/* The whole file, exclusively, as Java's FileChannel.lock() does: a JVM's lock (fcntl, of the process) and ours (of the
 * open file description) exclude each other.  Ours also excludes a second one of this process, and is not lost when the
 * process closes another descriptor of the same file. */
static enum err system_lock(struct fs *fs, const char *path, struct file **out)
{
    (void)fs;
    int fd;
    enum err e = open_fd(path, O_RDWR | O_CREAT, &fd);
    if (e) return e;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        e = errno == EAGAIN || errno == EACCES ? ERR_LOCKED : last_error();
        close(fd);
        return e;
    }
    *out = file_of_fd(fd);
    return OK;
}

static size_t system_open_count(struct fs *fs)
{
    (void)fs;
    return atomic_load_explicit(&open_files, memory_order_relaxed);
}

struct fs *fs_system(void)
{
    static const struct fs_ops ops = {
        .open = system_open,
        .stat = system_stat,
        .list = system_list,
        .mkdir = system_mkdir,
        .rename = system_rename,
        .unlink = system_unlink,
        .rmdir = system_rmdir,
        .sync_dir = system_sync_dir,
        .space = system_space,
        .lock = system_lock,
        .open_count = system_open_count,
    };
    static struct fs system = {.ops = &ops};
    return &system;
}
