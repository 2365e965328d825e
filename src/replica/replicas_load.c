/* replicas_load.c: what the log directories hold, found and opened at start. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

/* ---- Finding */

struct load {
    struct replicas *r;
    struct log_dir *dir;
    struct opening **items;
    size_t count, cap;
};

/* Of a partition that was deleted: what else has such a name was not put there by a broker, and is not ours to remove.
 */
static void load_doomed(struct load *ld, const char *name)
{
    char *topic;
    int32_t index;
    char *path = mem_printf("%s/%s", ld->dir->path, name);
    if (replicas_parse_marked_name(name, &topic, &index)) {
        mem_free(topic);
        replicas_doom(ld->r, path, 0);
    } else {
        LOG_WARN("directory_ignored", "dir=\"%s\" reason=\"not the name of a deleted partition\"", path);
    }
    mem_free(path);
}

static void load_dir_entry(void *arg, const char *name, bool is_dir)
{
    struct load *ld = arg;
    if (!is_dir) return;
    if (str_ends_with(str_of(name), "-delete")) {
        load_doomed(ld, name);
        return;
    }
    char *topic;
    int32_t index;
    if (str_ends_with(str_of(name), "-future")) {
        replicas_move_note(ld->r, ld->dir, name);
        return;
    }
    if (str_ends_with(str_of(name), "-stray") || !replicas_parse_dir_name(name, &topic, &index)) return;
    struct partition *p = partition_new(topic, index, ld->dir, &ld->r->services);
    p->found = true;
    mem_free(topic);
    ld->items = mem_grow(ld->items, &ld->cap, ld->count + 1, sizeof(struct opening *));
    ld->items[ld->count++] = replicas_opening_new(ld->r, p);
    partition_unref(p); /* the opening's reference stays */
}

/* A file whose content is damaged counts as empty, as in Kafka; `cost` says what that means.  The first look-up sorts;
 * those of the workers then only read. */
static enum err load_checkpoint(const struct log_dir *d, const char *name, const char *cost, struct checkpoint *cp,
                                struct fault *f)
{
    char *file = mem_printf("%s/%s", d->path, name);
    enum err e = checkpoint_read(cp, d->r->opt.fs, file, f);
    mem_free(file);
    if (e == ERR_CORRUPT || e == ERR_VERSION || e == ERR_TOO_BIG) {
        LOG_WARN("checkpoint_lost", "reason=\"%s\" notice=\"%s\"", f->text, cost);
        *f = (struct fault){.code = OK};
        checkpoint_fini(cp);
        checkpoint_init(cp);
        e = OK;
    }
    checkpoint_get(cp, STR_EMPTY, 0, 0);
    return e;
}

static enum err load_checkpoints(struct log_dir *d, struct fault *f)
{
    const struct {
        const char *name, *cost;
        struct checkpoint *cp;
    } rows[] = {
        {CHECKPOINT_RECOVERY_POINT, "after a crash all of each log is read again", &d->recovery_points},
        {CHECKPOINT_LOG_START, "records below a log's start can be read again as far as their segments are there",
         &d->log_starts},
        {CHECKPOINT_REPLICATION, "high watermarks begin at the logs' starts", &d->watermarks},
        {CHECKPOINT_CLEANER, "logs are compacted from their starts again", &d->cleaned},
    };
    enum err e = OK;
    for (size_t i = 0; i < ARRAY_COUNT(rows) && !e; i++)
        e = load_checkpoint(d, rows[i].name, rows[i].cost, rows[i].cp, f);
    return e;
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
    e = load_checkpoints(d, f);
    if (e) return e;
    size_t from = ld->count;
    e = fs_list(fs, d->path, load_dir_entry, ld);
    if (!d->clean)
        atomic_fetch_add(&d->unrecovered, (uint32_t)(ld->count - from)); /* future ones are counted already */
    return e ? fault_set(f, e, "The log directory %s cannot be listed: %s.", d->path, err_text(e)) : OK;
}

enum err replicas_open_log(struct replicas *r, struct partition *p, const struct log_origin *origin, struct opening *op,
                           struct fault *f)
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
        .cleaned = origin->cleaned,
        .clean = origin->clean,
        .topic_id = origin->topic_id,
        .config = settings.log,
        .events = partition_events(p),
        .files = &r->files,
        .recovered_bytes = op ? &op->bytes_read : NULL,
        .cancel = op ? &op->cancel : NULL,
    };
    struct plog *pl;
    enum err e = plog_open(&pl, &opt, f);
    if (!e) p->cleaning.filed = origin->cleaned;
    if (!e) partition_give_log(p, pl, origin->high_watermark);
    mem_free(path);
    return e;
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

struct partition *replicas_unclaimed(const struct replicas *r, const char *topic, int32_t index)
{
    struct found *fd = found_find(r, topic, index);
    return fd ? fd->p : NULL;
}

static struct partition *unclaimed_of(const struct replicas *r, struct str topic, int32_t index)
{
    char *name = mem_strndup(topic.data, topic.size);
    struct partition *p = replicas_unclaimed(r, name, index);
    mem_free(name);
    return p;
}

bool replicas_unclaimed_end(const struct replicas *r, struct str topic, int32_t index, int64_t *end,
                            int32_t *last_epoch)
{
    ASSERT_OWNER(r->opt.home);
    const struct partition *p = unclaimed_of(r, topic, index);
    if (!p || p->opening || !p->pl || !atomic_load(&p->online)) return false;
    *end = plog_end(p->pl);
    *last_epoch = plog_last_epoch(p->pl);
    return true;
}

int32_t replicas_log_epoch(const struct replicas *r, struct str topic, int32_t index)
{
    const struct partition *p = unclaimed_of(r, topic, index);
    if (!p) return -1;
    if (p->opening) return p->opening->last_epoch; /* a thread may be giving it its log */
    return p->pl ? plog_last_epoch_begun(p->pl) : -1;
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

/* Takes a partition into the list of all and among the unclaimed ones.  One that lies in two directories is an error,
 * as in Kafka: which of them is the log only a person can tell. */
static enum err load_keep(struct replicas *r, struct partition *p, struct fault *f)
{
    const struct found *other = found_find(r, p->topic, p->index);
    if (other)
        return fault_set(f, ERR_INVALID,
                         "There are two logs of one partition: %s/%s-%d and %s/%s-%d. Move the one that is not wanted "
                         "out of log.dirs.",
                         other->p->dir->path, p->topic, p->index, p->dir->path, p->topic, p->index);
    atomic_fetch_add(&p->dir->partition_count, 1);
    replicas_add(r, p);
    replicas_unclaim(r, partition_ref(p));
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

/* ---- Opening what does not take long */

/* So much is read again before the doors open: less than a blink.  What is more is left to replicas_open_rest(). */
static const int64_t BYTES_AT_ONCE = 64 << 20;

/* How much recovery would read, and the latest epoch, while the log is not open yet. */
static void measure(struct job *job)
{
    struct opening *op = CONTAINER_OF(job, struct opening, job);
    struct partition *p = op->p;
    char *path = mem_printf("%s/%s-%d", p->dir->path, p->topic, p->index);
    int64_t recovery_point = checkpoint_get(&p->dir->recovery_points, str_of(p->topic), p->index, 0);
    struct plog_peek pk;
    if (plog_peek(&pk, op->r->opt.fs, path, recovery_point, p->dir->clean) == OK) { /* else: opening will tell */
        op->bytes = pk.unclean_bytes;
        op->last_epoch = pk.last_epoch;
    }
    mem_free(path);
}

static enum err on_all(struct replicas *r, struct opening **items, size_t count, void (*work)(struct job *job),
                       struct fault *f)
{
    struct workers *w = NULL;
    enum err e = count ? workers_new(&w, "recovery", r->threads, f) : OK;
    for (size_t i = 0; i < count && !e; i++) {
        items[i]->job = (struct job){.work = work};
        workers_submit(w, &items[i]->job);
    }
    if (w) workers_free(w); /* waits for all of them */
    return e;
}

static int smaller_first(const void *a, const void *b)
{
    const struct opening *x = *(struct opening *const *)a, *y = *(struct opening *const *)b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Measures what lies in directories that were not shut down cleanly; *now: so many of the items, which are reordered,
 * are to be opened at once. */
static enum err load_measure(struct load *ld, size_t *now, struct fault *f)
{
    struct opening **unclean = mem_zalloc(ld->count, sizeof(struct opening *));
    size_t count = 0, at = 0;
    for (size_t i = 0; i < ld->count; i++)
        if (!ld->items[i]->p->dir->clean) unclean[count++] = ld->items[i];
    enum err e = on_all(ld->r, unclean, count, measure, f);
    mem_free(unclean);
    if (e) return e;
    if (count) qsort(ld->items, ld->count, sizeof(struct opening *), smaller_first);
    for (int64_t bytes = 0; at < ld->count && (bytes += ld->items[at]->bytes) <= BYTES_AT_ONCE; at++) {
    }
    *now = at;
    return OK;
}

/* Recovery points go down a little before recovery (replicas_upkeep.c); and what the files say of logs that are not
 * there any more must not be taken for that of new ones of the same names. */
static enum err checkpoint_before_recovery(struct replicas *r)
{
    bool unclean = false;
    for (size_t i = 0; i < r->dir_count; i++) unclean |= log_dir_is_online(&r->dirs[i]) && !r->dirs[i].clean;
    if (!unclean) return OK;
    enum err e = replicas_write_checkpoints(r, CHORE_CHECKPOINT);
    if (!e) e = replicas_write_checkpoints(r, CHORE_STARTS);
    return e && !replicas_all_dirs_offline(r) ? OK : e;
}

static enum err load_open(struct load *ld, struct fault *f)
{
    struct replicas *r = ld->r;
    size_t now = 0, failed = 0;
    enum err e = load_measure(ld, &now, f);
    for (size_t i = 0; i < ld->count && !e; i++) e = load_keep(r, ld->items[i]->p, f);
    if (!e) e = checkpoint_before_recovery(r);
    if (!e) e = on_all(r, ld->items, now, replicas_opening_work, f);
    if (e) now = ld->count;
    for (size_t i = 0; i < now; i++) {
        if (!e && ld->items[i]->e) {
            replicas_opening_failed(ld->items[i]);
            failed++;
            if (replicas_all_dirs_offline(r)) {
                e = ld->items[i]->e;
                *f = ld->items[i]->fault;
                now = ld->count;
            }
        }
        replicas_opening_free(ld->items[i]);
    }
    if (e) return e;
    struct openings *os = &r->openings;
    os->count = ld->count - now;
    os->items = mem_zalloc(os->count, sizeof(struct opening *));
    for (size_t i = 0; i < os->count; i++) os->items[i] = ld->items[now + i];
    LOG_INFO("logs_loaded", "partitions=%zu dirs=%zu failed=%zu to_recover=%zu", r->all_count, r->dir_count, failed,
             os->count);
    return OK;
}

/* Only where there is another directory to move to. */
static void load_drop_moved(struct load *ld)
{
    size_t kept = 0;
    for (size_t i = 0; i < ld->count; i++) {
        const struct partition *p = ld->items[i]->p;
        if (ld->r->dir_count > 1 && replicas_moved_away(ld->r, p)) {
            replicas_opening_free(ld->items[i]);
        } else {
            ld->items[kept++] = ld->items[i];
        }
    }
    ld->count = kept;
}

enum err replicas_load(struct replicas *r, unsigned threads, struct fault *f)
{
    r->threads = threads;
    struct load ld = {.r = r};
    enum err e = OK;
    for (size_t i = 0; i < r->dir_count && !e; i++) {
        if (!log_dir_is_online(&r->dirs[i])) continue;
        e = load_list_dir(&ld, &r->dirs[i], f);
        if (e == ERR_NOT_FILE && r->dir_count > 1) { /* in the place of a file that is about all of its logs */
            LOG_ERROR("log_dir_unreadable", "dir=\"%s\" reason=\"%s\"", r->dirs[i].path, f->text);
            replicas_dir_failed(r, &r->dirs[i], e, "list");
        } else if (e) {
            replicas_dir_check(&r->dirs[i], e, "list");
        }
        if (e && !log_dir_is_online(&r->dirs[i]) && !replicas_all_dirs_offline(r)) e = OK;
    }
    if (!e) e = remove_clean_marks(r, f);
    if (!e) load_drop_moved(&ld);
    if (!e)
        e = load_open(&ld, f);
    else
        for (size_t i = 0; i < ld.count; i++) replicas_opening_free(ld.items[i]);
    mem_free(ld.items);
    return e;
}
