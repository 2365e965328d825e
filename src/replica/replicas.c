/* replicas.c: the table of partitions, from opening to closing. */
#include "replica/replicas.h"

#include <string.h>

#include "base/mem.h"
#include "replica/cleaner.h"
#include "replica/flusher.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

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
    atomic_fetch_or(&p->changed, (uint8_t)BIT(CHORE_RETENTION)); /* nobody has looked at it yet */
    r->all[r->all_count++] = partition_ref(p);
    pthread_mutex_unlock(&r->lock);
    if (!log_dir_is_online(p->dir)) partition_set_offline(p);
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
    replicas_retention_forget(r, p);
    leaders_forget(r->services.leaders, p);
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

/* ---- Opening */

/* What the disk says, not what is configured wrongly: the others can go on without that directory, as in Kafka. */
static bool dir_can_be_spared(enum err e)
{
    return e == ERR_IO || e == ERR_DENIED || e == ERR_FULL || e == ERR_NOT_FOUND || e == ERR_NOT_FILE ||
           e == ERR_UNSUPPORTED;
}

static enum err open_dirs(struct replicas *r, struct fault *f)
{
    for (size_t i = 0; i < r->opt.dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        struct fault why = {0};
        r->dir_count = i + 1;
        enum err e = replicas_dir_open(r, d, r->opt.dirs[i], &why);
        if (!e) continue;
        if (!f->code || !dir_can_be_spared(e)) *f = why;
        if (!dir_can_be_spared(e)) return e;
        LOG_ERROR("log_dir_unusable", "reason=\"%s\"", why.text);
        replicas_dir_failed(r, d, e, "open");
    }
    if (replicas_all_dirs_offline(r)) return f->code;
    f->code = OK;
    f->text[0] = '\0';
    return OK;
}

enum err replicas_open(struct replicas **out, const struct replicas_options *opt, struct fault *f)
{
    struct replicas *r = mem_zalloc(1, sizeof *r);
    r->opt = *opt;
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->checkpoint_lock, NULL);
    list_init(&r->doomed);
    list_init(&r->moves);
    list_init(&r->found_moves);
    atomic_init(&r->move_bytes_per_s, INT64_MAX);
    replicas_files_init(r);
    replicas_retention_init(r);
    r->opt.leading.home = opt->home;
    r->opt.leading.clock = opt->clock;
    r->services.leaders = leaders_new(&r->opt.leading);
    r->services.workers = opt->workers;
    unsigned jobs_max = MAX(opt->flush_jobs_max, 1U);
    r->services.flusher = flusher_new(opt->workers, jobs_max, MAX(r->flush_logs_max / jobs_max, 1U));
    r->by_name = table_new(&(struct table_ops){name_key, retire, r});
    r->by_id = table_new(&(struct table_ops){id_key, retire, r});
    r->found = replicas_unclaimed_new();
    r->dirs = mem_zalloc(opt->dir_count, sizeof *r->dirs);
    enum err e = open_dirs(r, f);
    if (!e) e = replicas_dirs_agree(r, f);
    if (e) {
        replicas_close(r, false, -1);
        return e;
    }
    r->ready = true;
    *out = r;
    return OK;
}

/* ---- Configuration */

void replicas_set_leader_rate(struct replicas *r, int64_t bytes_per_s)
{
    leaders_set_rate(r->services.leaders, bytes_per_s);
}

void replicas_configure_partition(struct partition *p, const struct topic_settings *settings)
{
    partition_set_min_insync(p, settings->min_insync_replicas);
    partition_reconfigure(p, &settings->log);
}

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
        if (p && p->pl) replicas_configure_partition(p, settings);
    }
    replicas_mark_throttled(r, t, NULL);
}

/* ---- The end */

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

enum { FLUSH_TRIES_MAX = 8 };

/* Something done to every log that is online, several at a time, since much of it waits for the disk. */
struct log_item {
    struct job job;
    struct partition *p;
    enum err e;
};

static void flush_one(struct job *job)
{
    struct log_item *it = CONTAINER_OF(job, struct log_item, job);
    const struct plog_files *files = &it->p->dir->r->files;
    if (!atomic_load(&it->p->online)) return;
    /* Of what was recovered and not used since, the files are opened for this; others may take what room is made. */
    for (int tries = 0; tries < FLUSH_TRIES_MAX; tries++) {
        uint32_t turn = atomic_load(&files->turn);
        it->e = plog_flush(it->p->pl);
        if (it->e != ERR_TOO_MANY) return;
        files->make_room(files->arg, turn);
    }
}

static void close_one(struct job *job)
{
    struct log_item *it = CONTAINER_OF(job, struct log_item, job);
    if (!it->p->pl || !atomic_load(&it->p->online)) return;
    it->e = plog_close(it->p->pl);
    it->p->pl = NULL;
    atomic_store(&it->p->online, false);
}

/* `event` names those that fail in the log; their directories are not clean. */
static void with_all_logs(struct replicas *r, void (*work)(struct job *job), const char *event)
{
    size_t count;
    struct partition **list = replicas_list(r, &count);
    struct log_item *items = mem_zalloc(count, sizeof *items);
    struct workers *w = NULL;
    enum err e = workers_new(&w, "closing", r->threads, NULL);
    for (size_t i = 0; i < count; i++) {
        items[i].p = list[i];
        items[i].job.work = work;
        items[i].e = e;
        if (!e) workers_submit(w, &items[i].job);
    }
    if (w) workers_free(w); /* waits for all of them */
    for (size_t i = 0; i < count; i++) {
        if (!items[i].e) continue;
        LOG_ERROR(event, "topic=%s partition=%d error=%s", list[i]->topic, list[i]->index, err_name(items[i].e));
        list[i]->dir->unclean = true;
    }
    mem_free(items);
    replicas_list_free(list, count);
}

/* One directory's failure leaves the others clean: each has a mark of its own. */
static void mark_clean(struct replicas *r, struct log_dir *d, int64_t broker_epoch)
{
    enum err e = (enum err)atomic_load(&d->why);
    uint32_t unrecovered = atomic_load(&d->unrecovered);
    if (unrecovered) {
        LOG_WARN(
            "shutdown_unclean",
            "dir=\"%s\" logs=%u reason=\"a crash left them and they are not open yet; the next start will recover\"",
            d->path, unrecovered);
        return;
    }
    if (log_dir_is_online(d) && !d->unclean) {
        char *file = mem_printf("%s/" CLEAN_SHUTDOWN, d->path);
        e = clean_shutdown_write(broker_epoch, r->opt.fs, file);
        mem_free(file);
        if (!e) return;
    }
    LOG_ERROR("shutdown_unclean", "dir=\"%s\" error=%s reason=\"see above; the next start will recover\"", d->path,
              err_name(e));
}

/* A log that failed has to be recovered: its directory was not shut down cleanly. */
static bool any_failed(struct replicas *r, const struct log_dir *d)
{
    bool failed = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->all_count; i++) {
        struct partition *p = r->all[i];
        failed |= p->dir == d && atomic_load(&p->opened) && !atomic_load(&p->online);
    }
    pthread_mutex_unlock(&r->lock);
    return failed;
}

/* Recovery points and the like are of open logs whose ends are on the disk: so these are flushed first. */
static void close_cleanly(struct replicas *r, int64_t broker_epoch)
{
    atomic_store(&r->closing, true);
    for (size_t i = 0; i < r->dir_count; i++) r->dirs[i].unclean = false;
    with_all_logs(r, flush_one, "flush_failed");
    for (size_t i = 0; i < r->dir_count; i++) r->dirs[i].unclean |= any_failed(r, &r->dirs[i]);
    for (int kind = CHORE_CHECKPOINT; kind <= CHORE_CLEANED; kind++)
        (void)!replicas_write_checkpoints(r, (enum chore_kind)kind); /* marks the directory */
    with_all_logs(r, close_one, "log_close_failed");
    replicas_moves_close(r, true);
    for (size_t i = 0; i < r->dir_count; i++) mark_clean(r, &r->dirs[i], broker_epoch);
}

void replicas_close(struct replicas *r, bool clean, int64_t broker_epoch)
{
    if (!r) return;
    replicas_stop_upkeep(r);
    cleaner_free(r->cleaner); /* before the logs go */
    r->cleaner = NULL;
    if (clean) close_cleanly(r, broker_epoch);
    replicas_moves_close(r, false);
    table_each(r->by_name, free_topic, NULL);
    table_free(r->by_name);
    table_free(r->by_id);
    replicas_unclaimed_free(r->found);
    replicas_retention_fini(r);
    leaders_free(r->services.leaders);
    mem_free(r->openings.items);
    for (size_t i = 0; i < r->all_count; i++) partition_unref(r->all[i]);
    mem_free(r->all);
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        if (d->lock && log_dir_is_online(d)) replicas_reserve_drop(d);
        pthread_mutex_destroy(&d->look_lock);
        file_unref(d->lock);
        meta_properties_fini(&d->meta);
        checkpoint_fini(&d->recovery_points);
        checkpoint_fini(&d->log_starts);
        checkpoint_fini(&d->watermarks);
        checkpoint_fini(&d->cleaned);
        mem_free(d->path);
    }
    mem_free(r->dirs);
    flusher_free(r->services.flusher);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->checkpoint_lock);
    pthread_mutex_destroy(&r->files_lock);
    mem_free(r);
}
