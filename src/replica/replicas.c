/* replicas.c: log directories and the table of partitions. */
#include "replica/replicas.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { INT32_DIGITS_MAX = 10 };

/* ---- Tables */

static struct bytes name_key(const void *value)
{
    const struct topic_replicas *t = value;
    return (struct bytes){(const uint8_t *)t->name, strlen(t->name)};
}

static struct bytes id_key(const void *value)
{
    const struct topic_replicas *t = value;
    return (struct bytes){t->id.bytes, sizeof t->id.bytes};
}

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

static void retire(void *arg, void *p, void (*release)(void *p))
{
    struct replicas *r = arg;
    grace_release(r->opt.grace, p, release);
}

struct topic_replicas *replicas_find(const struct replicas *r, struct str topic)
{
    return table_find(r->by_name, (struct bytes){(const uint8_t *)topic.data, topic.size});
}

struct topic_replicas *replicas_find_id(const struct replicas *r, struct uuid id)
{
    return table_find(r->by_id, (struct bytes){id.bytes, sizeof id.bytes});
}

/* ---- The list of all */

void replicas_add(struct replicas *r, struct partition *p)
{
    pthread_mutex_lock(&r->lock);
    r->all = mem_grow(r->all, &r->all_cap, r->all_count + 1, sizeof(struct partition *));
    p->all_index = r->all_count;
    p->listed = true;
    r->all[r->all_count++] = partition_ref(p);
    pthread_mutex_unlock(&r->lock);
}

void replicas_drop(struct replicas *r, struct partition *p)
{
    pthread_mutex_lock(&r->lock);
    ASSERT(r->all[p->all_index] == p);
    struct partition *last = r->all[--r->all_count];
    r->all[p->all_index] = last;
    last->all_index = p->all_index;
    p->listed = false;
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_sub(&p->dir->partition_count, 1);
    partition_unref(p);
}

struct partition **replicas_list(struct replicas *r, size_t *count)
{
    pthread_mutex_lock(&r->lock);
    struct partition **list = mem_alloc(r->all_count * sizeof(struct partition *));
    for (size_t i = 0; i < r->all_count; i++) list[i] = partition_ref(r->all[i]);
    *count = r->all_count;
    pthread_mutex_unlock(&r->lock);
    return list;
}

void replicas_list_free(struct partition **list, size_t count)
{
    for (size_t i = 0; i < count; i++) partition_unref(list[i]);
    mem_free(list);
}

/* ---- Directories */

size_t replicas_dir_count(const struct replicas *r)
{
    return r->dir_count;
}

const char *replicas_dir_path(const struct replicas *r, size_t dir)
{
    return r->dirs[dir].path;
}

const char *partition_dir_path(const struct partition *p)
{
    return p->dir->path;
}

/* The one with the fewest partitions, as in Kafka; the choice counts at once, so that the next one sees it. */
struct log_dir *replicas_choose_dir(struct replicas *r)
{
    struct log_dir *best = &r->dirs[0];
    for (size_t i = 1; i < r->dir_count; i++)
        if (atomic_load(&r->dirs[i].partition_count) < atomic_load(&best->partition_count)) best = &r->dirs[i];
    atomic_fetch_add(&best->partition_count, 1);
    return best;
}

static enum err dir_open(struct replicas *r, struct log_dir *d, const char *path, struct fault *f)
{
    struct fs *fs = r->opt.fs;
    d->path = mem_strdup(path);
    meta_properties_init(&d->meta);
    checkpoint_init(&d->recovery_points);
    checkpoint_init(&d->log_starts);
    enum err e = fs_mkdir_all(fs, path);
    if (e)
        return fault_set(f, e,
                         "The log directory %s cannot be made: %s. Check log.dirs and the permissions of its parent.",
                         path, err_text(e));
    char *file = mem_printf("%s/.lock", path);
    e = fs_lock(fs, file, &d->lock);
    mem_free(file);
    if (e == ERR_LOCKED)
        return fault_set(f, e,
                         "The log directory %s is in use by another process (it holds %s/.lock). Stop that broker, or "
                         "give this one another log.dirs.",
                         path, path);
    if (e)
        return fault_set(f, e, "The log directory %s cannot be written: %s. Check its permissions and free space.",
                         path, err_text(e));
    file = mem_printf("%s/" META_PROPERTIES, path);
    e = meta_properties_read(&d->meta, fs, file, f);
    mem_free(file);
    d->has_meta = e == OK;
    return e == ERR_NOT_FOUND ? OK : e;
}

/* All directories must belong to one broker of one cluster. */
static enum err dirs_agree(const struct replicas *r, struct fault *f)
{
    const struct log_dir *first = NULL;
    for (size_t i = 0; i < r->dir_count; i++) {
        const struct log_dir *d = &r->dirs[i];
        if (!d->has_meta) continue;
        if (!first) {
            first = d;
            continue;
        }
        bool same_cluster =
            !first->meta.cluster_id || !d->meta.cluster_id || strcmp(first->meta.cluster_id, d->meta.cluster_id) == 0;
        if (first->meta.broker_id != d->meta.broker_id || !same_cluster)
            return fault_set(f, ERR_INVALID,
                             "%s/meta.properties says broker.id=%d cluster.id=%s, but %s/meta.properties says "
                             "broker.id=%d cluster.id=%s. All of log.dirs must belong to one broker: correct log.dirs.",
                             first->path, first->meta.broker_id, first->meta.cluster_id ? first->meta.cluster_id : "?",
                             d->path, d->meta.broker_id, d->meta.cluster_id ? d->meta.cluster_id : "?");
    }
    return OK;
}

static const struct log_dir *dir_with_meta(const struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (r->dirs[i].has_meta) return &r->dirs[i];
    return NULL;
}

int32_t replicas_stored_broker_id(const struct replicas *r)
{
    const struct log_dir *d = dir_with_meta(r);
    return d ? d->meta.broker_id : -1;
}

const char *replicas_stored_cluster_id(const struct replicas *r)
{
    const struct log_dir *d = dir_with_meta(r);
    return d ? d->meta.cluster_id : NULL;
}

enum err replicas_identify(struct replicas *r, int32_t broker_id, const char *cluster_id, struct fault *f)
{
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        if (d->has_meta) {
            if (d->meta.broker_id >= 0 && d->meta.broker_id != broker_id)
                return fault_set(f, ERR_INVALID,
                                 "broker.id is %d, but %s/meta.properties belongs to broker %d. Set broker.id=%d, or "
                                 "give this broker another log.dirs.",
                                 broker_id, d->path, d->meta.broker_id, d->meta.broker_id);
            if (d->meta.cluster_id && strcmp(d->meta.cluster_id, cluster_id) != 0)
                return fault_set(
                    f, ERR_INVALID,
                    "The cluster's id is %s, but %s/meta.properties belongs to cluster %s. Point the broker "
                    "at its own cluster, or give it another log.dirs.",
                    cluster_id, d->path, d->meta.cluster_id);
            if (d->meta.cluster_id && d->meta.broker_id >= 0) continue;
        }
        d->meta.broker_id = broker_id;
        mem_free(d->meta.cluster_id);
        d->meta.cluster_id = mem_strdup(cluster_id);
        char *file = mem_printf("%s/" META_PROPERTIES, d->path);
        enum err e = meta_properties_write(&d->meta, r->opt.fs, file, clock_wall_ms(r->opt.clock));
        if (e) fault_set(f, e, "%s cannot be written: %s.", file, err_text(e));
        mem_free(file);
        if (e) return e;
        d->has_meta = true;
    }
    return OK;
}

enum err replicas_open(struct replicas **out, const struct replicas_options *opt, struct fault *f)
{
    struct replicas *r = mem_zalloc(1, sizeof *r);
    r->opt = *opt;
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->checkpoint_lock, NULL);
    list_init(&r->doomed);
    r->by_name = table_new(&(struct table_ops){name_key, retire, r});
    r->by_id = table_new(&(struct table_ops){id_key, retire, r});
    r->found = table_new(&(struct table_ops){found_key, table_retire_now, NULL});
    r->dirs = mem_zalloc(opt->dir_count, sizeof *r->dirs);
    enum err e = OK;
    for (size_t i = 0; i < opt->dir_count && !e; i++) {
        r->dir_count = i + 1;
        e = dir_open(r, &r->dirs[i], opt->dirs[i], f);
    }
    if (!e) e = dirs_agree(r, f);
    if (e) {
        replicas_close(r, false, -1);
        return e;
    }
    *out = r;
    return OK;
}

/* ---- Loading */

/* "topic-7" apart: the index is behind the last dash.  False for other directories. */
static bool parse_dir_name(const char *name, char **topic, int32_t *index)
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
    if (ends_with(name, "-future") || ends_with(name, "-stray") || !parse_dir_name(name, &topic, &index)) return;
    struct load_item *it = mem_zalloc(1, sizeof *it);
    it->r = ld->r;
    it->p = partition_new(topic, index, ld->dir, ld->r->opt.workers);
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

/* Takes what was loaded into the list of all; the load's reference goes to the unclaimed ones.  A partition that lies
 * in two directories is an error, as in Kafka: which of them is the log only a person can tell. */
static enum err load_keep(struct replicas *r, struct partition *p, struct fault *f)
{
    const struct found *other = found_find(r, p->topic, p->index);
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
        if (!r->dirs[i].clean) continue;
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
    for (size_t i = 0; i < r->dir_count && !e; i++) e = load_list_dir(&ld, &r->dirs[i], f);
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
        if (!e && it->e) {
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

struct partition *replicas_claim(struct replicas *r, const char *topic, int32_t index)
{
    struct found *fd = found_find(r, topic, index);
    if (!fd) return NULL;
    struct partition *p = fd->p;
    table_remove(r->found, found_key(fd));
    found_free(fd);
    return p;
}

/* ---- Configuration */

void replicas_reconfigure(struct replicas *r, struct str topic, const struct topic_settings *settings)
{
    ASSERT_OWNER(r->opt.home);
    struct topic_replicas *t = replicas_find(r, topic);
    if (!t) return;
    struct topic_settings *next = mem_alloc(sizeof *next);
    *next = *settings;
    struct topic_settings *old = atomic_exchange(&t->settings, next);
    grace_release(r->opt.grace, old, mem_free);
    for (int32_t i = 0; i < t->capacity; i++) {
        struct partition *p = topic_partition(t, i);
        if (p && p->pl) plog_reconfigure(p->pl, &settings->log);
    }
}

/* ---- The end */

static bool free_found(void *arg, void *value)
{
    (void)arg;
    struct found *fd = value;
    partition_unref(fd->p);
    found_free(fd);
    return true;
}

static bool free_topic(void *arg, void *value)
{
    (void)arg;
    struct topic_replicas *t = value;
    for (int32_t i = 0; i < t->capacity; i++) partition_unref(topic_partition(t, i));
    mem_free(atomic_load(&t->settings));
    mem_free(t->name);
    mem_free(t);
    return true;
}

/* Something done to every log that is online, several at a time, since much of it waits for the disk. */
struct log_item {
    struct job job;
    struct partition *p;
    enum err e;
};

static void flush_one(struct job *job)
{
    struct log_item *it = CONTAINER_OF(job, struct log_item, job);
    if (atomic_load(&it->p->online)) it->e = plog_flush(it->p->pl);
}

static void close_one(struct job *job)
{
    struct log_item *it = CONTAINER_OF(job, struct log_item, job);
    if (!it->p->pl || !atomic_load(&it->p->online)) return;
    it->e = plog_close(it->p->pl);
    it->p->pl = NULL;
    atomic_store(&it->p->online, false);
}

/* Returns an error of one of them; `event` names all of them in the log. */
static enum err with_all_logs(struct replicas *r, void (*work)(struct job *job), const char *event)
{
    size_t count;
    struct partition **list = replicas_list(r, &count);
    struct log_item *items = mem_zalloc(count, sizeof *items);
    struct workers *w = NULL;
    enum err e = workers_new(&w, "closing", r->threads, NULL);
    for (size_t i = 0; i < count && !e; i++) {
        items[i].p = list[i];
        items[i].job.work = work;
        workers_submit(w, &items[i].job);
    }
    if (w) workers_free(w); /* waits for all of them */
    for (size_t i = 0; i < count; i++) {
        if (!items[i].e) continue;
        LOG_ERROR(event, "topic=%s partition=%d error=%s", list[i]->topic, list[i]->index, err_name(items[i].e));
        e = items[i].e;
    }
    mem_free(items);
    replicas_list_free(list, count);
    return e;
}

/* Recovery points and the like are of open logs whose ends are on the disk: so these are flushed first. */
static void close_cleanly(struct replicas *r, int64_t broker_epoch)
{
    enum err e = with_all_logs(r, flush_one, "flush_failed");
    for (int kind = CHORE_CHECKPOINT; kind <= CHORE_WATERMARKS && !e; kind++)
        e = replicas_write_checkpoints(r, (enum chore_kind)kind);
    enum err ce = with_all_logs(r, close_one, "log_close_failed");
    if (!e) e = ce;
    for (size_t i = 0; i < r->dir_count && !e; i++) {
        char *file = mem_printf("%s/" CLEAN_SHUTDOWN, r->dirs[i].path);
        e = clean_shutdown_write(broker_epoch, r->opt.fs, file);
        mem_free(file);
    }
    if (e) LOG_ERROR("shutdown_unclean", "error=%s reason=\"see above; the next start will recover\"", err_name(e));
}

void replicas_close(struct replicas *r, bool clean, int64_t broker_epoch)
{
    if (!r) return;
    replicas_stop_upkeep(r);
    if (clean) close_cleanly(r, broker_epoch);
    table_each(r->by_name, free_topic, NULL);
    table_each(r->found, free_found, NULL);
    table_free(r->by_name);
    table_free(r->by_id);
    table_free(r->found);
    for (size_t i = 0; i < r->all_count; i++) partition_unref(r->all[i]);
    mem_free(r->all);
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        file_unref(d->lock);
        meta_properties_fini(&d->meta);
        checkpoint_fini(&d->recovery_points);
        checkpoint_fini(&d->log_starts);
        mem_free(d->path);
    }
    mem_free(r->dirs);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->checkpoint_lock);
    mem_free(r);
}
