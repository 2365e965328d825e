/* cleaner.c: see cleaner.h.
 *
 * `lock` guards the settings, the threads' list and what partitions say of their cleaning (partition.h); it is never
 * held across a wait for the disk. */
#include "replica/cleaner.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "os/thread.h"
#include "plog/clean.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum {
    BACKOFF_MIN_MS = 10,        /* log.cleaner.backoff.ms=0 shall not spin */
    RETRY_FIRST_MS = 15 * 1000, /* of a partition that was set aside; doubles each time, up to */
    RETRY_LAST_MS = 60 * 60 * 1000,
    RETRY_PASSING_MS = 60 * 1000, /* the same for what passes by itself: a full disk, too few descriptors */
    AGAIN_MS = 500,               /* of one whose cleaning was cut short */
    IO_BUFFER_MIN_BYTES = 4096,
    PACE_TURN_US = 300 * 1000,  /* I/O of so long may go ahead of its time */
    PACE_LOOK_US = 1000 * 1000, /* who waits for the pace looks so often whether it should go on at all */
};

struct cleaner_thread {
    struct cleaner *cl;
    unsigned index;
    pthread_t thread;
    bool started, ended; /* ended: it takes no more logs, and can be joined */
};

struct cleaner {
    struct replicas *r;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* settings, holds, an end of a cleaning */
    struct cleaner_options opt;
    uint32_t epoch; /* of the settings */
    bool stopping;
    struct cleaner_thread **threads;
    size_t thread_count, thread_cap;
    int64_t io_paid_us; /* up to when the I/O so far is paid for */
};

/* One thread's cleaning. */
struct cleaning_job {
    struct cleaner *cl;
    struct partition *p;
    uint32_t epoch;
};

/* ---- Pace */

/* Under the lock. */
static bool may_go_on(const struct cleaning_job *job)
{
    const struct cleaner *cl = job->cl;
    const struct partition *p = job->p;
    return !cl->stopping && cl->epoch == job->epoch && p->cleaning.held == 0 && atomic_load(&p->online);
}

/* Charges the bytes to log.cleaner.io.max.bytes.per.second, which all threads share, and waits until they are paid. */
static bool go_on(void *arg, size_t bytes)
{
    const struct cleaning_job *job = arg;
    struct cleaner *cl = job->cl;
    struct clock *clock = cl->r->opt.clock;
    pthread_mutex_lock(&cl->lock);
    double rate = cl->opt.io_bytes_per_second, cost_us = rate > 0 ? (double)bytes * 1e6 / rate : 0;
    int64_t now_us = clock_mono_us(clock);
    cl->io_paid_us = MAX(cl->io_paid_us, now_us) + (int64_t)MIN(cost_us, 1e15);
    int64_t due_us = cl->io_paid_us - PACE_TURN_US;
    while (may_go_on(job) && now_us < due_us) {
        thread_cond_wait_for(&cl->changed, &cl->lock, MIN(due_us - now_us, (int64_t)PACE_LOOK_US));
        now_us = clock_mono_us(clock);
    }
    bool on = may_go_on(job);
    pthread_mutex_unlock(&cl->lock);
    return on;
}

/* ---- Choosing */

/* Under the lock. */
static bool is_free(const struct cleaner *cl, const struct partition *p)
{
    const struct partition_cleaning *c = &p->cleaning;
    return !c->busy && c->held == 0 && c->retry_us <= clock_mono_us(cl->r->opt.clock);
}

/* A partition's cleaning failed: it is left alone for a while. */
static void set_aside(struct cleaner *cl, struct partition *p, enum err e)
{
    pthread_mutex_lock(&cl->lock);
    int64_t wait_ms = RETRY_FIRST_MS, most_ms = RETRY_LAST_MS;
    if (e == ERR_FULL || e == ERR_TOO_MANY) most_ms = RETRY_PASSING_MS;
    for (int i = 0; i < p->cleaning.failures && wait_ms < most_ms; i++) wait_ms *= 2;
    wait_ms = MIN(wait_ms, most_ms);
    p->cleaning.failures++;
    p->cleaning.retry_us = clock_mono_us(cl->r->opt.clock) + wait_ms * 1000;
    pthread_mutex_unlock(&cl->lock);
    LOG_ERROR("cleaning_failed", "topic=%s partition=%d error=%s retry_ms=%" PRId64, p->topic, p->index, err_name(e),
              wait_ms);
}

static bool is_more_urgent(const struct clean_plan *a, const struct clean_plan *b)
{
    return a->overdue != b->overdue ? a->overdue : a->ratio > b->ratio;
}

/* Whether the partition is due, with its plan.  *moved: its checkpoint is not what was written last. */
static bool look_at(struct cleaner *cl, struct partition *p, struct clean_plan *plan, bool *moved)
{
    /* What no controller has spoken of is not ours to change. */
    if (!atomic_load(&p->online) || atomic_load(&p->leader_epoch) < 0) return false;
    pthread_mutex_lock(&cl->lock);
    bool open = is_free(cl, p);
    *moved |= plog_cleaned(p->pl) != p->cleaning.filed;
    pthread_mutex_unlock(&cl->lock);
    if (!open) return false;
    enum err e = plog_clean_plan(p->pl, partition_last_stable(p), clock_wall_ms(cl->r->opt.clock), plan);
    if (e && e != ERR_CLOSED && e != ERR_NOT_FOUND) set_aside(cl, p, e); /* not found: deleted meanwhile */
    return !e && plan->due;
}

/* A truncation has taken a checkpoint back: the file follows. */
static void file_checkpoints(struct cleaner *cl, struct partition **list, size_t count)
{
    int64_t *cleaned = mem_zalloc(count, sizeof *cleaned);
    for (size_t i = 0; i < count; i++) {
        struct partition *p = list[i];
        cleaned[i] = atomic_load(&p->online) ? plog_cleaned(p->pl) : -1;
    }
    if (replicas_write_checkpoints(cl->r, CHORE_CLEANED) == OK) {
        pthread_mutex_lock(&cl->lock);
        for (size_t i = 0; i < count; i++)
            if (atomic_load(&list[i]->online)) list[i]->cleaning.filed = cleaned[i];
        pthread_mutex_unlock(&cl->lock);
    }
    mem_free(cleaned);
}

/* The log to be cleaned next, which counts as busy, with a reference; NULL: none is due. */
static struct partition *choose(struct cleaner *cl, struct clean_plan *plan)
{
    size_t count;
    struct partition **list = replicas_list(cl->r, &count), *best = NULL;
    bool moved = false, found = false;
    for (size_t i = 0; i < count; i++) {
        struct clean_plan candidate;
        if (!look_at(cl, list[i], &candidate, &moved)) continue;
        if (found && !is_more_urgent(&candidate, plan)) continue;
        found = true;
        best = list[i];
        *plan = candidate;
    }
    if (moved) file_checkpoints(cl, list, count);
    pthread_mutex_lock(&cl->lock);
    found = found && is_free(cl, best); /* another thread may have it by now */
    if (found) best->cleaning.busy = true;
    pthread_mutex_unlock(&cl->lock);
    if (found) partition_ref(best);
    replicas_list_free(list, count);
    return found ? best : NULL;
}

/* ---- Cleaning */

static void tell(const struct partition *p, const struct clean_plan *plan, const struct clean_result *result,
                 int64_t took_us)
{
    if (plan->reset)
        LOG_WARN("cleaner_checkpoint_reset", "topic=%s partition=%d to=%" PRId64 " reason=\"outside of the log\"",
                 p->topic, p->index, plan->first_dirty);
    LOG_INFO("log_cleaned",
             "topic=%s partition=%d from=%" PRId64 " to=%" PRId64 " read_bytes=%" PRId64 " written_bytes=%" PRId64
             " records=%" PRId64 " kept=%" PRId64 " keys=%zu ms=%" PRId64,
             p->topic, p->index, plan->first_dirty, result->first_dirty, result->bytes_read, result->bytes_written,
             result->records_read, result->records_kept, result->keys, took_us / 1000);
}

/* Cleans a log that choose() has given, and gives it back. */
static void clean_one(struct cleaner *cl, struct partition *p, const struct clean_plan *plan, struct clean_tools *tools,
                      uint32_t epoch)
{
    struct cleaning_job job = {cl, p, epoch};
    struct clock *clock = cl->r->opt.clock;
    const struct clean_request rq = {
        .plan = *plan, .now_ms = clock_wall_ms(clock), .tools = tools, .go_on = go_on, .arg = &job};
    struct clean_result result;
    int64_t began_us = clock_mono_us(clock);
    enum err e = plog_clean_first(p->pl, plan) ? replicas_write_checkpoints(cl->r, CHORE_CLEANED) : OK;
    if (!e) e = plog_clean(p->pl, &rq, &result);
    bool filed = !e && replicas_write_checkpoints(cl->r, CHORE_CLEANED) == OK;
    if (!e) {
        tell(p, plan, &result, clock_mono_us(clock) - began_us);
    } else if (e != ERR_AGAIN && e != ERR_CLOSED) {
        set_aside(cl, p, e);
    }
    pthread_mutex_lock(&cl->lock);
    p->cleaning.busy = false;
    if (!e) p->cleaning.failures = 0;
    if (e == ERR_AGAIN) p->cleaning.retry_us = clock_mono_us(clock) + AGAIN_MS * 1000;
    if (filed) p->cleaning.filed = result.first_dirty;
    pthread_cond_broadcast(&cl->changed);
    pthread_mutex_unlock(&cl->lock);
    partition_unref(p);
}

/* ---- Threads */

static struct clean_tools *tools_of(struct cleaner *cl, const struct cleaner_options *opt)
{
    struct clean_limits limits = {
        .map_bytes = (size_t)opt->dedupe_bytes / opt->threads,
        .load_factor = opt->load_factor,
        .io_bytes = MAX((size_t)opt->io_bytes / opt->threads / 2, (size_t)IO_BUFFER_MIN_BYTES),
    };
    return clean_tools_new(&limits, cl->r->opt.rng);
}

/* Whether the thread is still wanted, and with which settings.  A thread that is not has ended. */
static bool thread_wanted(struct cleaner_thread *t, struct cleaner_options *opt, uint32_t *epoch)
{
    struct cleaner *cl = t->cl;
    pthread_mutex_lock(&cl->lock);
    t->ended = cl->stopping || t->index >= cl->opt.threads;
    *opt = cl->opt;
    *epoch = cl->epoch;
    pthread_mutex_unlock(&cl->lock);
    return !t->ended;
}

/* Until it may look again, or something has changed. */
static void rest(struct cleaner *cl, uint32_t epoch)
{
    pthread_mutex_lock(&cl->lock);
    int64_t wait_us = MAX(cl->opt.backoff_ms, (int64_t)BACKOFF_MIN_MS);
    wait_us = wait_us > INT64_MAX / 2000 ? INT64_MAX / 2 : wait_us * 1000;
    int64_t until_us = clock_mono_us(cl->r->opt.clock) + wait_us, now_us;
    while (!cl->stopping && cl->epoch == epoch && (now_us = clock_mono_us(cl->r->opt.clock)) < until_us)
        thread_cond_wait_for(&cl->changed, &cl->lock, until_us - now_us);
    pthread_mutex_unlock(&cl->lock);
}

static void thread_main(void *arg)
{
    struct cleaner_thread *t = arg;
    struct clean_tools *tools = NULL;
    struct cleaner_options opt;
    uint32_t epoch, tools_epoch = 0;
    while (thread_wanted(t, &opt, &epoch)) {
        if (!tools || tools_epoch != epoch) {
            clean_tools_free(tools);
            tools = tools_of(t->cl, &opt);
            tools_epoch = epoch;
        }
        struct clean_plan plan = {0};
        struct partition *p = choose(t->cl, &plan);
        if (p)
            clean_one(t->cl, p, &plan, tools, epoch);
        else
            rest(t->cl, epoch);
    }
    clean_tools_free(tools);
}

/* Starts those that are wanted and do not run.  Under the lock. */
static void start_threads(struct cleaner *cl)
{
    for (unsigned i = 0; i < cl->opt.threads && !cl->stopping; i++) {
        if (i == cl->thread_count) {
            cl->threads = mem_grow(cl->threads, &cl->thread_cap, i + 1, sizeof(struct cleaner_thread *));
            cl->threads[i] = mem_zalloc(1, sizeof *cl->threads[i]);
            *cl->threads[i] = (struct cleaner_thread){.cl = cl, .index = i};
            cl->thread_count++;
        }
        struct cleaner_thread *t = cl->threads[i];
        if (t->started && !t->ended) continue;
        if (t->started) thread_join(t->thread); /* it holds no lock any more and is about to be over */
        char name[32];
        snprintf(name, sizeof name, "cleaner-%u", i);
        struct fault f = {0};
        t->ended = false;
        t->started = thread_start(&t->thread, name, thread_main, t, &f) == OK;
        if (!t->started) LOG_ERROR("cleaner_not_started", "reason=\"%s\"", f.text);
    }
}

struct cleaner *cleaner_new(struct replicas *r, const struct cleaner_options *opt)
{
    struct cleaner *cl = mem_zalloc(1, sizeof *cl);
    cl->r = r;
    cl->opt = *opt;
    cl->epoch = 1;
    pthread_mutex_init(&cl->lock, NULL);
    thread_cond_init(&cl->changed);
    pthread_mutex_lock(&cl->lock);
    start_threads(cl);
    pthread_mutex_unlock(&cl->lock);
    return cl;
}

static bool options_equal(const struct cleaner_options *a, const struct cleaner_options *b)
{
    return a->threads == b->threads && a->dedupe_bytes == b->dedupe_bytes && a->load_factor == b->load_factor &&
           a->io_bytes == b->io_bytes && a->io_bytes_per_second == b->io_bytes_per_second &&
           a->backoff_ms == b->backoff_ms;
}

void cleaner_reconfigure(struct cleaner *cl, const struct cleaner_options *opt)
{
    if (!cl) return;
    pthread_mutex_lock(&cl->lock);
    if (!options_equal(&cl->opt, opt)) {
        cl->opt = *opt;
        cl->epoch++;
        cl->io_paid_us = 0;
        start_threads(cl);
        pthread_cond_broadcast(&cl->changed);
    }
    pthread_mutex_unlock(&cl->lock);
}

void cleaner_stop(struct cleaner *cl)
{
    if (!cl) return;
    pthread_mutex_lock(&cl->lock);
    cl->stopping = true;
    pthread_cond_broadcast(&cl->changed);
    pthread_mutex_unlock(&cl->lock);
}

void cleaner_free(struct cleaner *cl)
{
    if (!cl) return;
    cleaner_stop(cl);
    for (size_t i = 0; i < cl->thread_count; i++) {
        if (cl->threads[i]->started) thread_join(cl->threads[i]->thread);
        mem_free(cl->threads[i]);
    }
    mem_free(cl->threads);
    pthread_cond_destroy(&cl->changed);
    pthread_mutex_destroy(&cl->lock);
    mem_free(cl);
}

/* ---- Holds */

void cleaner_hold(struct cleaner *cl, struct partition *p)
{
    if (!cl) return;
    pthread_mutex_lock(&cl->lock);
    p->cleaning.held++;
    pthread_cond_broadcast(&cl->changed);
    while (p->cleaning.busy) pthread_cond_wait(&cl->changed, &cl->lock);
    pthread_mutex_unlock(&cl->lock);
}

void cleaner_release(struct cleaner *cl, struct partition *p)
{
    if (!cl) return;
    pthread_mutex_lock(&cl->lock);
    ASSERT(p->cleaning.held > 0);
    p->cleaning.held--;
    pthread_mutex_unlock(&cl->lock);
}
