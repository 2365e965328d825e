/* replicas_load.c: what the log directories hold, found and opened at start. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { INT32_DIGITS_MAX = 10 };

/* ---- Finding */

/* "topic-7" apart: the index is behind the last dash.  False for other directories. */
bool replicas_parse_dir_name(const char *name, char **topic, int32_t *index)
{
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name || !dash[1] || strlen(dash + 1) > INT32_DIGITS_MAX) return false;
    for (const char *p = dash + 1; *p; p++)
        if (*p < '0' || *p > '9') return false;
    long long n = strtoll(dash + 1, NULL, 10);
    if (n > INT32_MAX) return false;
    *topic = mem_strndup(name, (size_t)(dash - name));
    *index = (int32_t)n;
    return true;
}

struct load {
    struct replicas *r;
    struct log_dir *dir;
    struct load_item {
        struct job job;
        struct replicas *r;
        struct partition *p;
        enum err e;
        struct fault fault;
    } * *items;
    size_t count, cap;
};

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

static void load_dir_entry(void *arg, const char *name, bool is_dir)
{
    struct load *ld = arg;
    if (!is_dir) return;
    if (ends_with(name, "-delete")) {
        char *path = mem_printf("%s/%s", ld->dir->path, name);
        replicas_doom(ld->r, path, 0);
        mem_free(path);
        return;
    }
    char *topic;
    int32_t index;
    if (ends_with(name, "-future")) {
        replicas_move_note(ld->r, ld->dir, name);
        return;
    }
    if (ends_with(name, "-stray") || !replicas_parse_dir_name(name, &topic, &index)) return;
    struct load_item *it = mem_zalloc(1, sizeof *it);
    it->r = ld->r;
    it->p = partition_new(topic, index, ld->dir, &ld->r->services);
    mem_free(topic);
    ld->items = mem_grow(ld->items, &ld->cap, ld->count + 1, sizeof(struct load_item *));
    ld->items[ld->count++] = it;
}

static enum err load_list_dir(struct load *ld, struct log_dir *d, struct fault *f)
{
    struct fs *fs = ld->r->opt.fs;
    ld->dir = d;
    int64_t broker_epoch;
    char *file = mem_printf("%s/" CLEAN_SHUTDOWN, d->path);
    enum err e = clean_shutdown_read(&broker_epoch, fs, file);
    mem_free(file);
    if (e && e != ERR_NOT_FOUND)
        return fault_set(f, e, "%s/" CLEAN_SHUTDOWN " cannot be read: %s.", d->path, err_text(e));
    d->clean = e == OK;
    file = mem_printf("%s/" CHECKPOINT_RECOVERY_POINT, d->path);
    e = checkpoint_read(&d->recovery_points, fs, file, f);
    mem_free(file);
    if (e) return e;
    file = mem_printf("%s/" CHECKPOINT_LOG_START, d->path);
    e = checkpoint_read(&d->log_starts, fs, file, f);
    mem_free(file);
    if (e) return e;
    /* The first look-up sorts; those of the workers then only read. */
    checkpoint_get(&d->recovery_points, STR_EMPTY, 0, 0);
    checkpoint_get(&d->log_starts, STR_EMPTY, 0, 0);
    e = fs_list(fs, d->path, load_dir_entry, ld);
    return e ? fault_set(f, e, "The log directory %s cannot be listed: %s.", d->path, err_text(e)) : OK;
}

enum err replicas_open_log(struct replicas *r, struct partition *p, const struct log_origin *origin, struct fault *f)
{
    char *path = mem_printf("%s/%s-%d", p->dir->path, p->topic, p->index);
    struct topic_settings settings;
    r->opt.settings_of(r->opt.settings_arg, str_of(p->topic), &settings);
    struct plog_options opt = {
        .fs = r->opt.fs,
        .clock = r->opt.clock,
        .jitter_seed = rng_below(r->opt.rng, UINT64_MAX),
        .dir = path,
        .recovery_point = origin->recovery_point,
        .log_start = origin->log_start,
        .clean = origin->clean,
        .topic_id = origin->topic_id,
        .config = settings.log,
        .events = partition_events(p),
        .files = &r->files,
    };
    struct plog *pl;
    enum err e = plog_open(&pl, &opt, f);
    if (!e) partition_give_log(p, pl);
    mem_free(path);
    return e;
}

static void load_one(struct job *job)
{
    struct load_item *it = CONTAINER_OF(job, struct load_item, job);
    struct partition *p = it->p;
    const struct log_origin origin = {
        .recovery_point = checkpoint_get(&p->dir->recovery_points, str_of(p->topic), p->index, 0),
        .log_start = checkpoint_get(&p->dir->log_starts, str_of(p->topic), p->index, 0),
        .clean = p->dir->clean,
    };
    it->e = replicas_open_log(it->r, p, &origin, &it->fault);
}

/* ---- The unclaimed ones */

/* A partition loaded at start, until the controller names it.  The key is its directory's name: a topic's name alone
 * would need a list by index, and a directory may have any number behind its dash. */
struct found {
    char *name; /* "topic-7" */
    struct partition *p;
};

static struct bytes found_key(const void *value)
{
    const struct found *fd = value;
    return (struct bytes){(const uint8_t *)fd->name, strlen(fd->name)};
}

struct table *replicas_unclaimed_new(void)
{
    return table_new(&(struct table_ops){found_key, table_retire_now, NULL});
}

void replicas_unclaim(struct replicas *r, struct partition *p)
{
    struct found *fd = mem_zalloc(1, sizeof *fd);
    fd->name = mem_printf("%s-%d", p->topic, p->index);
    fd->p = p;
    table_put(r->found, fd);
}

static struct found *found_find(const struct replicas *r, const char *topic, int32_t index)
{
    char *name = mem_printf("%s-%d", topic, index);
    struct found *fd = table_find(r->found, (struct bytes){(const uint8_t *)name, strlen(name)});
    mem_free(name);
    return fd;
}

static void found_free(struct found *fd)
{
    mem_free(fd->name);
    mem_free(fd);
}

struct partition *replicas_claim(struct replicas *r, const char *topic, int32_t index)
{
    struct found *fd = found_find(r, topic, index);
    if (!fd) return NULL;
    struct partition *p = fd->p;
    table_remove(r->found, found_key(fd));
    found_free(fd);
    return p;
}

static bool free_found(void *arg, void *value)
{
    (void)arg;
    struct found *fd = value;
    partition_unref(fd->p);
    found_free(fd);
    return true;
}

void replicas_unclaimed_free(struct table *found)
{
    table_each(found, free_found, NULL);
    table_free(found);
}

/* ---- The whole */

/* Takes what was loaded into the list of all; the load's reference goes to the unclaimed ones.  A partition that lies
 * in two directories is an error, as in Kafka: which of them is the log only a person can tell. */
static enum err load_keep(struct replicas *r, struct partition *p, struct fault *f)
{
    struct found *other = found_find(r, p->topic, p->index);
    if (other && replicas_settle_moved(r, &other->p, &p)) return OK;
    if (other) {
        enum err e = fault_set(f, ERR_INVALID,
                               "There are two logs of one partition: %s/%s-%d and %s/%s-%d. Move the one that is not "
                               "wanted out of log.dirs.",
                               other->p->dir->path, p->topic, p->index, p->dir->path, p->topic, p->index);
        partition_unref(p);
        return e;
    }
    atomic_fetch_add(&p->dir->partition_count, 1);
    replicas_add(r, p);
    replicas_unclaim(r, p);
    return OK;
}

/* What a crash between the clean mark and the next one leaves must be scanned: the mark goes before the first write. */
static enum err remove_clean_marks(struct replicas *r, struct fault *f)
{
    for (size_t i = 0; i < r->dir_count; i++) {
        if (!r->dirs[i].clean || !log_dir_is_online(&r->dirs[i])) continue;
        char *file = mem_printf("%s/" CLEAN_SHUTDOWN, r->dirs[i].path);
        enum err e = fs_unlink(r->opt.fs, file);
        if (!e) e = fs_sync_dir(r->opt.fs, r->dirs[i].path);
        if (e) fault_set(f, e, "%s cannot be removed: %s.", file, err_text(e));
        mem_free(file);
        if (e) return e;
    }
    return OK;
}

enum err replicas_load(struct replicas *r, unsigned threads, struct fault *f)
{
    r->threads = threads;
    struct load ld = {.r = r};
    enum err e = OK;
    for (size_t i = 0; i < r->dir_count && !e; i++) {
        if (!log_dir_is_online(&r->dirs[i])) continue;
        e = load_list_dir(&ld, &r->dirs[i], f);
        if (e) replicas_dir_check(&r->dirs[i], e, "list");
        if (e && !log_dir_is_online(&r->dirs[i]) && !replicas_all_dirs_offline(r)) e = OK;
    }
    if (!e) e = remove_clean_marks(r, f);
    struct workers *w = NULL;
    if (!e) e = workers_new(&w, "recovery", threads, f);
    for (size_t i = 0; i < ld.count && !e; i++) {
        ld.items[i]->job.work = load_one;
        workers_submit(w, &ld.items[i]->job);
    }
    if (w) workers_free(w); /* waits for all of them */
    for (size_t i = 0; i < ld.count; i++) {
        struct load_item *it = ld.items[i];
        if (!e && it->e && log_dir_is_online(it->p->dir)) {
            LOG_ERROR("log_open_failed", "topic=%s partition=%d reason=\"%s\"", it->p->topic, it->p->index,
                      it->fault.text);
            replicas_dir_check(it->p->dir, it->e, "open");
        }
        if (!e && it->e && (log_dir_is_online(it->p->dir) || replicas_all_dirs_offline(r))) {
            e = it->e;
            *f = it->fault;
        }
        if (!e)
            e = load_keep(r, it->p, f);
        else
            partition_unref(it->p);
        mem_free(it);
    }
    mem_free(ld.items);
    if (!e) LOG_INFO("logs_loaded", "partitions=%zu dirs=%zu", r->all_count, r->dir_count);
    return e;
}
