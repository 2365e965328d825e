/* replicas_upkeep.c: what is done again and again: retention, checkpoints, the removal of deleted directories. */
#include <inttypes.h>

#include "base/mem.h"
#include "replica/cleaner.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { RETAIN_GAP_MS = 100 }; /* logs that are due one after the other are done together */

static void doomed_arm(struct replicas *r);

/* ---- Chores */

static void chore_arm(struct chore *c)
{
    struct loop *home = c->r->opt.home;
    if (c->r->stopping || c->interval_ms >= INT64_MAX / 2000) return;
    loop_timer_set(home, &c->timer, loop_now_us(home) + c->interval_ms * 1000);
}

static void chore_fire(struct timer *t)
{
    struct chore *c = CONTAINER_OF(t, struct chore, timer);
    c->running = true;
    workers_submit(c->r->opt.workers, &c->job);
}

static void chore_done(struct job *job)
{
    struct chore *c = CONTAINER_OF(job, struct chore, job);
    c->running = false;
    chore_arm(c);
}

void replicas_retain_now(struct replicas *r)
{
    struct chore *c = &r->chores[CHORE_RETENTION];
    if (r->stopping || c->running || !c->r) return;
    r->retention.check_us = 0; /* a worker's, while it runs */
    loop_timer_set(r->opt.home, &c->timer, loop_now_us(r->opt.home));
}

static enum chore_kind kind_of(const struct chore *c)
{
    return (enum chore_kind)(c - c->r->chores);
}

static void retain_work(struct job *job)
{
    replicas_retention_work(CONTAINER_OF(job, struct chore, job)->r);
}

/* At the next check, or before that when a log is due by itself. */
static void retain_arm(struct chore *c)
{
    struct replicas *r = c->r;
    if (r->stopping) return;
    int64_t now_us = loop_now_us(r->opt.home), at_us = MAX(r->retention.check_us, now_us);
    int64_t wait_ms = replicas_retention_next_ms(r) - clock_wall_ms(r->opt.clock);
    if (wait_ms < (at_us - now_us) / 1000) at_us = now_us + MAX(wait_ms, RETAIN_GAP_MS) * 1000;
    loop_timer_set(r->opt.home, &c->timer, at_us);
}

static void retain_done(struct job *job)
{
    struct chore *c = CONTAINER_OF(job, struct chore, job);
    c->running = false;
    retain_arm(c);
}

/* log.flush.interval.ms: what has lain unflushed for that long goes to the disk; the flusher does several at a time. */
static void flush_work(struct job *job)
{
    struct chore *c = CONTAINER_OF(job, struct chore, job);
    size_t count;
    struct partition **list = replicas_list(c->r, &count);
    int64_t now_ms = clock_wall_ms(c->r->opt.clock);
    for (size_t i = 0; i < count; i++) {
        struct partition *p = list[i];
        if (atomic_load(&p->online) && plog_flush_due(p->pl, now_ms)) plog_request_flush(p->pl);
    }
    replicas_list_free(list, count);
}

/* With nothing to come any more it is the log's end, as Kafka leaves it. */
static int64_t value_recovery_point(struct replicas *r, struct partition *p)
{
    return atomic_load(&r->closing) && atomic_load(&p->online) ? plog_recovery_point(p->pl)
                                                               : plog_recovery_start(p->pl);
}

static int64_t value_log_start(struct replicas *r, struct partition *p)
{
    (void)r;
    return plog_start(p->pl);
}

static int64_t value_high_watermark(struct replicas *r, struct partition *p)
{
    (void)r;
    return partition_high_watermark(p);
}

static struct checkpoint *loaded_recovery_points(struct log_dir *d)
{
    return &d->recovery_points;
}

static struct checkpoint *loaded_log_starts(struct log_dir *d)
{
    return &d->log_starts;
}

static struct checkpoint *loaded_watermarks(struct log_dir *d)
{
    return &d->watermarks;
}

static int64_t value_cleaned(struct replicas *r, struct partition *p)
{
    (void)r;
    return plog_cleaned(p->pl);
}

static struct checkpoint *loaded_cleaned(struct log_dir *d)
{
    return &d->cleaned;
}

/* A negative value is left out. */
static const struct {
    const char *file;
    int64_t (*value)(struct replicas *r, struct partition *p);
    struct checkpoint *(*loaded)(struct log_dir *d);
} checkpoint_kinds[CHORE_COUNT] = {
    [CHORE_CHECKPOINT] = {CHECKPOINT_RECOVERY_POINT, value_recovery_point, loaded_recovery_points},
    [CHORE_STARTS] = {CHECKPOINT_LOG_START, value_log_start, loaded_log_starts},
    [CHORE_WATERMARKS] = {CHECKPOINT_REPLICATION, value_high_watermark, loaded_watermarks},
    [CHORE_CLEANED] = {CHECKPOINT_CLEANER, value_cleaned, loaded_cleaned},
};

static bool segment_starts_at(const struct partition *p, int64_t offset)
{
    struct fs_stat st;
    char *path = mem_printf("%s/%s-%d/%020" PRId64 ".log", p->dir->path, p->topic, p->index, offset);
    enum err e = fs_stat(p->dir->r->opt.fs, path, &st);
    mem_free(path);
    return e == OK;
}

/* What the file had for a log that is not open (yet).  Recovery will make indexes anew without a sync.  If everything
 * was flushed, so that the recovery point is the log's end, and the segment is closed before the next checkpoint, that
 * point would lie behind a segment whose indexes may be lost: so it goes down to the last record, as
 * plog_recovery_start() would have it.  Not where a segment starts at the point: recovery touches none below it, and
 * each further crash would have it read one more that was sound long ago. */
static int64_t value_loaded(enum chore_kind kind, struct partition *p)
{
    int64_t value = checkpoint_get(checkpoint_kinds[kind].loaded(p->dir), str_of(p->topic), p->index, -1);
    bool lowers = kind == CHORE_CHECKPOINT && !p->dir->clean && value > 0 && !segment_starts_at(p, value);
    return lowers ? value - 1 : value;
}

/* One that went offline has its own values: recovery goes by them. */
static void checkpoint_partition(struct checkpoint *cp, enum chore_kind kind, struct partition *p)
{
    if (atomic_load(&p->deleted)) return;
    int64_t value = atomic_load(&p->opened) ? checkpoint_kinds[kind].value(p->dir->r, p) : value_loaded(kind, p);
    if (value >= 0) checkpoint_set(cp, str_of(p->topic), p->index, value);
}

/* One directory's file. */
static enum err write_checkpoint(struct log_dir *d, enum chore_kind kind, struct partition **list, size_t count)
{
    struct checkpoint cp;
    checkpoint_init(&cp);
    for (size_t i = 0; i < count; i++)
        if (list[i]->dir == d) checkpoint_partition(&cp, kind, list[i]);
    replicas_moves_checkpoint(d->r, d, kind, &cp);
    char *path = mem_printf("%s/%s", d->path, checkpoint_kinds[kind].file);
    struct fault f = {0};
    enum err e = checkpoint_write(&cp, d->r->opt.fs, path, &f);
    if (e) {
        LOG_ERROR("checkpoint_failed", "file=\"%s\" error=%s reason=\"%s\"", path, err_name(e), f.text);
        d->unclean = true;
    }
    mem_free(path);
    checkpoint_fini(&cp);
    return replicas_dir_check(d, e, checkpoint_kinds[kind].file);
}

enum err replicas_write_checkpoints(struct replicas *r, enum chore_kind kind)
{
    pthread_mutex_lock(&r->checkpoint_lock);
    size_t count;
    struct partition **list = replicas_list(r, &count);
    enum err result = OK;
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        if (!log_dir_is_online(d)) continue;
        enum err e = write_checkpoint(d, kind, list, count);
        if (e) result = e;
    }
    replicas_list_free(list, count);
    pthread_mutex_unlock(&r->checkpoint_lock);
    return result;
}

/* Many logs are cut when a leader changes: one round of files serves all that wait for it. */
static enum err file_cuts(struct log_dir *d)
{
    static const enum chore_kind kinds[] = {CHORE_CHECKPOINT, CHORE_STARTS, CHORE_CLEANED, CHORE_WATERMARKS};
    uint64_t upto = atomic_load(&d->cuts);
    size_t count;
    struct partition **list = replicas_list(d->r, &count);
    enum err e = OK;
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && !e; i++) e = write_checkpoint(d, kinds[i], list, count);
    replicas_list_free(list, count);
    if (!e) d->cuts_filed = upto;
    return e;
}

enum err partition_file_cut(struct partition *p)
{
    struct log_dir *d = p->dir;
    uint32_t unfiled = atomic_load(&p->cut_unfiled);
    uint64_t mine = atomic_fetch_add(&d->cuts, 1) + 1;
    enum err e = OK;
    pthread_mutex_lock(&d->r->checkpoint_lock);
    if (!log_dir_is_online(d))
        e = ERR_CLOSED;
    else if (d->cuts_filed < mine)
        e = file_cuts(d);
    pthread_mutex_unlock(&d->r->checkpoint_lock);
    if (!e) atomic_compare_exchange_strong(&p->cut_unfiled, &unfiled, 0);
    return e;
}

/* A follower tries again by itself; who leads by now is held back from appending until this has gone well. */
static void file_cuts_of_leaders(struct replicas *r)
{
    bool any = false;
    pthread_mutex_lock(&r->checkpoint_lock);
    for (size_t i = 0; i < r->dir_count; i++)
        any |= log_dir_is_online(&r->dirs[i]) && r->dirs[i].cuts_filed < atomic_load(&r->dirs[i].cuts);
    pthread_mutex_unlock(&r->checkpoint_lock);
    if (!any) return;
    size_t count;
    struct partition **list = replicas_list(r, &count);
    for (size_t i = 0; i < count; i++) {
        if (!atomic_load(&list[i]->leads) || !atomic_load(&list[i]->cut_unfiled)) continue;
        enum err tried_again_soon = partition_file_cut(list[i]);
        (void)tried_again_soon;
    }
    replicas_list_free(list, count);
}

/* An idle broker writes nothing. */
static bool any_changed(struct replicas *r, enum chore_kind kind)
{
    bool changed = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->all_count; i++)
        if (atomic_fetch_and(&r->all[i]->changed, (uint8_t)~BIT(kind)) & BIT(kind)) changed = true;
    pthread_mutex_unlock(&r->lock);
    return changed;
}

static void checkpoint_work(struct job *job)
{
    struct chore *c = CONTAINER_OF(job, struct chore, job);
    if (!any_changed(c->r, kind_of(c))) return;
    enum err logged = replicas_write_checkpoints(c->r, kind_of(c));
    (void)logged;
}

enum { SPACE_CHECK_MS = 1000 };

static void space_work(struct job *job)
{
    struct replicas *r = CONTAINER_OF(job, struct chore, job)->r;
    replicas_space_work(r);
    file_cuts_of_leaders(r);
}

static void space_done(struct job *job)
{
    replicas_space_looked(CONTAINER_OF(job, struct chore, job)->r);
    chore_done(job);
}

void replicas_start_upkeep(struct replicas *r)
{
    ASSERT_OWNER(r->opt.home);
    const struct {
        int64_t interval_ms;
        void (*work)(struct job *job);
        void (*done)(struct job *job);
    } rows[CHORE_COUNT] = {
        [CHORE_RETENTION] = {r->opt.retention_check_ms, retain_work, retain_done},
        [CHORE_FLUSH] = {r->opt.flush_check_ms, flush_work, chore_done},
        [CHORE_CHECKPOINT] = {r->opt.checkpoint_ms, checkpoint_work, chore_done},
        [CHORE_STARTS] = {r->opt.start_checkpoint_ms, checkpoint_work, chore_done},
        [CHORE_WATERMARKS] = {r->opt.watermark_checkpoint_ms, checkpoint_work, chore_done},
        [CHORE_CLEANED] = {INT64_MAX, NULL, chore_done}, /* the cleaner writes it */
        [CHORE_SPACE] = {SPACE_CHECK_MS, space_work, space_done},
    };
    for (int i = 0; i < CHORE_COUNT; i++) {
        struct chore *c = &r->chores[i];
        *c = (struct chore){.r = r, .interval_ms = rows[i].interval_ms};
        c->timer.fire = chore_fire;
        c->job = (struct job){.loop = r->opt.home, .work = rows[i].work, .done = rows[i].done};
        if (i == CHORE_SPACE)
            loop_timer_set(r->opt.home, &c->timer, loop_now_us(r->opt.home));
        else
            chore_arm(c);
    }
    if (r->opt.clean) r->cleaner = cleaner_new(r, &r->opt.cleaner);
    replicas_moves_start(r);
    doomed_arm(r);
}

void replicas_configure_cleaner(struct replicas *r, const struct cleaner_options *opt)
{
    ASSERT_OWNER(r->opt.home);
    r->opt.cleaner = *opt;
    cleaner_reconfigure(r->cleaner, opt);
}

/* ---- Directories on their way out */

static void doomed_work(struct job *job)
{
    struct doomed *d = CONTAINER_OF(job, struct doomed, job);
    enum err e = fs_remove_all(d->r->opt.fs, d->path);
    if (e && e != ERR_NOT_FOUND)
        LOG_ERROR("log_delete_failed", "dir=\"%s\" error=%s reason=\"removed at the next start\"", d->path,
                  err_name(e));
}

static void doomed_done(struct job *job)
{
    struct doomed *d = CONTAINER_OF(job, struct doomed, job);
    mem_free(d->path);
    mem_free(d);
}

static void doomed_fire(struct timer *t)
{
    struct replicas *r = CONTAINER_OF(t, struct replicas, doomed_timer);
    struct list_node *n;
    while ((n = list_first(&r->doomed))) {
        struct doomed *d = CONTAINER_OF(n, struct doomed, node);
        if (d->due_us > loop_now_us(r->opt.home)) break;
        list_remove(n);
        workers_submit(r->opt.workers, &d->job);
    }
    doomed_arm(r);
}

static void doomed_arm(struct replicas *r)
{
    struct list_node *n = list_first(&r->doomed);
    if (!n || r->stopping) return;
    r->doomed_timer.fire = doomed_fire;
    loop_timer_set(r->opt.home, &r->doomed_timer, CONTAINER_OF(n, struct doomed, node)->due_us);
}

void replicas_doom(struct replicas *r, const char *path, int64_t delay_ms)
{
    struct doomed *d = mem_zalloc(1, sizeof *d);
    d->r = r;
    d->path = mem_strdup(path);
    d->due_us = clock_mono_us(r->opt.clock) + delay_ms * 1000;
    d->job = (struct job){.loop = r->opt.home, .work = doomed_work, .done = doomed_done};
    /* By due time; delays differ by topic, but nearly all are the default. */
    struct list_node *after = r->doomed.head.prev;
    while (after != &r->doomed.head && CONTAINER_OF(after, struct doomed, node)->due_us > d->due_us)
        after = after->prev;
    list_insert_after(after, &d->node);
    if (list_first(&r->doomed) == &d->node && loop_is_owner(r->opt.home)) doomed_arm(r);
}

void replicas_stop_upkeep(struct replicas *r)
{
    r->stopping = true;
    cleaner_stop(r->cleaner);
    leaders_stop(r->services.leaders);
    replicas_stop_opening(r);
    atomic_store(&r->services.workers_gone, true); /* or will be, with nothing submitted any more */
    for (int i = 0; i < CHORE_COUNT; i++) loop_timer_cancel(r->opt.home, &r->chores[i].timer);
    loop_timer_cancel(r->opt.home, &r->doomed_timer);
    replicas_moves_stop(r);
    struct list_node *n;
    while ((n = list_pop_front(&r->doomed))) {
        struct doomed *d = CONTAINER_OF(n, struct doomed, node);
        doomed_done(&d->job);
    }
}
