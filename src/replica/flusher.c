/* flusher.c: see flusher.h. */
#include "replica/flusher.h"

#include "base/mem.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum {
    LOGS_A_ROUND_MAX = 32, /* that wait for each other; more gain nothing any more */
    ROUNDS_A_JOB_MAX = 16, /* then the pool's other jobs have their turn, should this be its only thread */
};

struct flusher_job {
    struct job job;
    struct flusher *fl;
    struct flusher_job *next_idle;
};

struct flusher {
    struct workers *workers;
    unsigned jobs_max;
    size_t logs_max;
    pthread_mutex_t lock; /* guards what follows; nothing else is taken while it is held */
    struct partition *first, **end;
    size_t queued;
    struct flusher_job *idle;
    struct flusher_job jobs[];
};

/* ---- The queue */

/* The next round's share: what is queued, spread over as many jobs as there may be. */
static size_t take_some(struct flusher *fl, struct partition *out[LOGS_A_ROUND_MAX])
{
    size_t count = 0, share = (fl->queued + fl->jobs_max - 1) / fl->jobs_max;
    while (fl->first && count < MIN(share, fl->logs_max)) {
        struct partition *p = fl->first;
        fl->first = p->flush_next;
        if (!fl->first) fl->end = &fl->first;
        p->flush_next = NULL;
        out[count++] = p;
    }
    fl->queued -= count;
    return count;
}

/* ---- On a worker */

static void flushed(const struct partition *p, enum err e)
{
    if (e && e != ERR_CLOSED)
        LOG_ERROR("flush_failed", "topic=%s partition=%d error=%s", p->topic, p->index, err_name(e));
}

static void flush_all(struct partition *const *parts, size_t count)
{
    struct plog_flush *rounds[LOGS_A_ROUND_MAX];
    for (size_t i = 0; i < count; i++) plog_resume(parts[i]->pl);
    for (size_t i = 0; i < count; i++) rounds[i] = plog_work_begin(parts[i]->pl, count > 1);
    for (size_t i = 0; i < count; i++)
        if (rounds[i]) flushed(parts[i], plog_flush_finish(rounds[i]));
    for (size_t i = 0; i < count; i++) {
        if (!rounds[i]) flushed(parts[i], plog_work(parts[i]->pl));
        partition_unref(parts[i]);
    }
}

/* Goes on while there is something: to wake another thread for it would cost more than the flush of a fast disk. */
static void job_work(struct job *job)
{
    struct flusher *fl = CONTAINER_OF(job, struct flusher_job, job)->fl;
    struct partition *parts[LOGS_A_ROUND_MAX];
    size_t count = 1;
    for (int round = 0; round < ROUNDS_A_JOB_MAX && count > 0; round++) {
        pthread_mutex_lock(&fl->lock);
        count = take_some(fl, parts);
        pthread_mutex_unlock(&fl->lock);
        flush_all(parts, count);
    }
}

static void job_done(struct job *job)
{
    struct flusher_job *fj = CONTAINER_OF(job, struct flusher_job, job);
    struct flusher *fl = fj->fl;
    pthread_mutex_lock(&fl->lock);
    bool more = fl->first != NULL;
    if (!more) {
        fj->next_idle = fl->idle;
        fl->idle = fj;
    }
    pthread_mutex_unlock(&fl->lock);
    if (more) workers_submit(fl->workers, &fj->job);
}

void flusher_add(struct flusher *fl, struct partition *p)
{
    partition_ref(p);
    pthread_mutex_lock(&fl->lock);
    *fl->end = p;
    fl->end = &p->flush_next;
    fl->queued++;
    struct flusher_job *fj = fl->idle;
    if (fj) fl->idle = fj->next_idle;
    pthread_mutex_unlock(&fl->lock);
    if (fj) workers_submit(fl->workers, &fj->job);
}

/* ---- Life */

struct flusher *flusher_new(struct workers *workers, unsigned jobs_max, size_t logs_max)
{
    ASSERT(jobs_max > 0 && logs_max > 0);
    struct flusher *fl = mem_zalloc(1, sizeof *fl + jobs_max * sizeof fl->jobs[0]);
    fl->workers = workers;
    fl->jobs_max = jobs_max;
    fl->logs_max = MIN(logs_max, (size_t)LOGS_A_ROUND_MAX);
    fl->end = &fl->first;
    pthread_mutex_init(&fl->lock, NULL);
    for (unsigned i = 0; i < jobs_max; i++) {
        struct flusher_job *fj = &fl->jobs[i];
        *fj = (struct flusher_job){.fl = fl, .next_idle = fl->idle};
        fj->job = (struct job){.work = job_work, .done = job_done};
        fl->idle = fj;
    }
    return fl;
}

void flusher_free(struct flusher *fl)
{
    if (!fl) return;
    while (fl->first) {
        struct partition *p = fl->first;
        fl->first = p->flush_next;
        partition_unref(p);
    }
    pthread_mutex_destroy(&fl->lock);
    mem_free(fl);
}
