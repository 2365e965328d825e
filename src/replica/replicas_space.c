/* replicas_space.c: a full disk is a state of a log directory, not a failure.
 *
 * Free space is looked at once a second, and sooner when much was appended.  Below log.dir.reserve.bytes, or with next
 * to no inodes left, produce to the directory is refused: what is left is for retention, deletion, compaction,
 * configuration and the coordination store, which need a little room to make more of it.  The state ends by itself when
 * log.dir.resume.bytes are free.
 *
 * Others may fill the disk all the same, or a quota may end before the disk does.  For that there is the reserve file:
 * allocated while all is well, given back when the disk is really full; and only when it can be allocated again has the
 * state ended.  Thread: workers look; any thread asks. */
#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

#define RESERVE_FILE "barnabas-reserve"

enum {
    RESERVE_DEFAULT_MAX = 256 << 20,
    RESERVE_DEFAULT_SHARE = 50, /* 2 % of the disk */
    RESERVE_FILE_MIN = 1 << 20, /* a few changes of the coordination store, which writes whole pages to its log */
    RESERVE_FILE_LEAST = 64 << 10,
    RESERVE_FILE_SHARE = 32, /* of the disk, at most */
    RESERVE_FILE_MAX = 8 << 20,
    LOOK_BYTES_MIN = 64 << 10, /* appended between two looks */
    LOOK_BYTES_MAX = 16 << 20,
    INODES_MIN = 128,
    INODES_ENOUGH = 256,
    ASK_AGAIN_US_MIN = 2 * 1000 * 1000,
    ASK_AGAIN_US_MAX = 300 * 1000 * 1000,
    RETAIN_AGAIN_US = 5 * 1000 * 1000, /* while the disk is full */
};

/* ---- Limits */

struct limits {
    int64_t reserve, resume, file, look;
};

static struct limits limits_of(const struct replicas_options *opt, int64_t disk_bytes)
{
    struct limits l;
    l.reserve = opt->reserve_bytes;
    if (l.reserve < 0) l.reserve = MIN((int64_t)RESERVE_DEFAULT_MAX, disk_bytes / RESERVE_DEFAULT_SHARE);
    l.file = MIN(MAX(l.reserve / 8, (int64_t)RESERVE_FILE_MIN), (int64_t)RESERVE_FILE_MAX);
    l.file = MAX(MIN(l.file, disk_bytes / RESERVE_FILE_SHARE), (int64_t)RESERVE_FILE_LEAST);
    l.resume = opt->resume_bytes >= 0 ? opt->resume_bytes : l.reserve + l.reserve / 4;
    /* Leaving must not be entering again: the file that is made then takes its part. */
    l.resume = MAX(l.resume, l.reserve + 2 * l.file);
    l.look = MIN(MAX(l.reserve / 16, (int64_t)LOOK_BYTES_MIN), (int64_t)LOOK_BYTES_MAX);
    return l;
}

/* ---- The reserve file */

static char *reserve_path(const struct log_dir *d)
{
    return mem_printf("%s/" RESERVE_FILE, d->path);
}

static void reserve_give_back(struct log_dir *d)
{
    if (!d->reserved) return;
    char *path = reserve_path(d);
    enum err e = fs_unlink(d->r->opt.fs, path);
    if (e && e != ERR_NOT_FOUND)
        LOG_WARN("reserve_not_given_back", "file=\"%s\" error=%s", path, err_name(e));
    else
        d->reserved = false;
    mem_free(path);
}

/* A file system without fallocate gets real zeros. */
static enum err reserve_fill(struct file *f, int64_t size)
{
    enum err e = file_allocate(f, 0, size);
    if (e != ERR_UNSUPPORTED) return e;
    static const uint8_t zeros[64 << 10];
    for (int64_t at = 0; at < size; at += (int64_t)sizeof zeros) {
        e = file_pwrite(f, zeros, (size_t)MIN(size - at, (int64_t)sizeof zeros), at);
        if (e) return e;
    }
    return OK;
}

static enum err reserve_take(struct log_dir *d, int64_t size)
{
    if (d->reserved) return OK;
    char *path = reserve_path(d);
    struct file *f;
    enum err e = fs_open(d->r->opt.fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f);
    if (!e) {
        e = reserve_fill(f, size);
        file_unref(f);
        d->reserved = true;
        if (e) reserve_give_back(d);
    }
    mem_free(path);
    return e;
}

void replicas_reserve_drop(struct log_dir *d)
{
    d->reserved = true; /* a killed process may have left one */
    reserve_give_back(d);
}

/* ---- The state */

static bool is_short(const struct fs_space *s, const struct limits *l)
{
    return s->available < l->reserve || (s->files_total > 0 && s->files_available < INODES_MIN);
}

static bool is_enough(const struct fs_space *s, const struct limits *l)
{
    return s->available >= l->resume && (s->files_total <= 0 || s->files_available >= INODES_ENOUGH);
}

static void enter_full(struct log_dir *d, const struct fs_space *s, const char *reason)
{
    if (atomic_exchange(&d->full, true)) return;
    LOG_WARN("log_dir_full",
             "dir=\"%s\" available=%lld inodes=%lld reason=\"%s; produce is refused until there is room again\"",
             d->path, (long long)s->available, (long long)s->files_available, reason);
}

static void leave_full(struct log_dir *d, const struct fs_space *s, const struct limits *l)
{
    enum err e = reserve_take(d, l->file);
    if (e) return; /* not so much room as it seems: a quota */
    atomic_store(&d->full, false);
    LOG_INFO("log_dir_has_room", "dir=\"%s\" available=%lld reason=\"produce is served again\"", d->path,
             (long long)s->available);
}

/* One at a time. */
static void look(struct log_dir *d)
{
    struct fs_space s;
    enum err e = fs_space(d->r->opt.fs, d->path, &s);
    if (e) {
        replicas_dir_check(d, e, "free space");
        return;
    }
    const struct limits l = limits_of(&d->r->opt, s.total);
    atomic_store(&d->look_bytes, l.look);
    if (is_short(&s, &l))
        enter_full(d, &s, s.available < l.reserve ? "less than log.dir.reserve.bytes free" : "no inodes left");
    else if (atomic_load(&d->full) && is_enough(&s, &l))
        leave_full(d, &s, &l);
    else if (!atomic_load(&d->full) && reserve_take(d, l.file) == ERR_FULL)
        enter_full(d, &s, "a quota, or others were faster");
    /* Really full: what has to be written now finds room. */
    if (atomic_load(&d->full) && (s.available < l.file || s.files_available == 0)) reserve_give_back(d);
}

static void look_locked(struct log_dir *d)
{
    if (!log_dir_is_online(d)) return;
    pthread_mutex_lock(&d->look_lock);
    look(d);
    pthread_mutex_unlock(&d->look_lock);
}

static void look_work(struct job *job)
{
    look_locked(CONTAINER_OF(job, struct log_dir, look_job));
}

static void look_done(struct job *job)
{
    struct log_dir *d = CONTAINER_OF(job, struct log_dir, look_job);
    atomic_store(&d->looking, false);
    replicas_space_looked(d->r);
}

static void look_soon(struct log_dir *d)
{
    if (d->r->stopping || atomic_exchange(&d->looking, true)) return;
    atomic_store(&d->unlooked_bytes, 0);
    d->look_job = (struct job){.loop = d->r->opt.home, .work = look_work, .done = look_done};
    workers_submit(d->r->opt.workers, &d->look_job);
}

void replicas_space_work(struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++) look_locked(&r->dirs[i]);
}

/* While a disk is full what is due is deleted soon.  When logs could not be made for lack of room (or of anything else
 * that passes), the controller is asked to say once more what is to be here. */
void replicas_space_looked(struct replicas *r)
{
    bool any_full = false;
    for (size_t i = 0; i < r->dir_count; i++) any_full |= atomic_load(&r->dirs[i].full);
    int64_t now_us = loop_now_us(r->opt.home);
    if (any_full && now_us - r->retained_us >= RETAIN_AGAIN_US) {
        r->retained_us = now_us;
        replicas_retain_now(r);
    }
    if (!r->unopened && now_us - r->asked_us >= 2 * ASK_AGAIN_US_MIN) r->ask_wait_us = 0; /* it has been of use */
    if (r->unopened && !any_full && r->opt.ask_again && now_us - r->asked_us >= r->ask_wait_us) {
        r->asked_us = now_us;
        r->ask_wait_us = MIN(MAX(r->ask_wait_us * 2, (int64_t)ASK_AGAIN_US_MIN), (int64_t)ASK_AGAIN_US_MAX);
        r->unopened = false; /* the answer says it anew */
        r->opt.ask_again(r->opt.dir_failed_arg);
    }
}

void replicas_dir_full(struct log_dir *d)
{
    if (!d->r->ready) return;
    const struct fs_space unknown = {.available = -1, .files_available = -1};
    enter_full(d, &unknown, "a write failed for lack of space");
    look_soon(d);
}

/* ---- What partitions ask */

bool partition_disk_is_full(const struct partition *p)
{
    return atomic_load_explicit(&p->dir->full, memory_order_relaxed) || atomic_load(&p->cut_unfiled);
}

void partition_wrote(struct partition *p, size_t bytes)
{
    replicas_dir_wrote(p->dir, bytes);
}

void replicas_dir_wrote(struct log_dir *d, size_t bytes)
{
    int64_t sum = atomic_fetch_add_explicit(&d->unlooked_bytes, (int64_t)bytes, memory_order_relaxed);
    if (UNLIKELY(sum >= atomic_load_explicit(&d->look_bytes, memory_order_relaxed))) look_soon(d);
}
