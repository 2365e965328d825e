/* replicas_files.c: keeps the logs' open files below what the process may have.
 *
 * Nothing is done on a request's path but to note a turn in the segment that is used, and to compare two numbers when a
 * file has been opened.  When there are too many, a worker walks over the logs from where it stopped last, and has them
 * close what was not used since then: old segments first, then active ones; then what was used since.  Active segments
 * are flushed first, a few logs at a time. */
#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum {
    KEEP_NUMERATOR = 3, /* so much of what is open stays open, so that the next turn is some time off */
    KEEP_DENOMINATOR = 4,
    LOGS_A_FLUSH = 32,
    FILES_A_FLUSH = 2, /* that a log's first flush opens beside the segment's */
};

struct sweep {
    struct replicas *r;
    struct partition **list;
    size_t count, target;
};

static bool sweep_is_done(const struct sweep *s)
{
    return fs_open_count(s->r->opt.fs) <= s->target;
}

static struct partition *sweep_next(struct sweep *s)
{
    return s->list[s->r->room_at++ % s->count];
}

static void close_old(struct sweep *s, uint32_t turn)
{
    for (size_t i = 0; i < s->count && !sweep_is_done(s); i++) {
        struct partition *p = sweep_next(s);
        if (atomic_load(&p->online)) plog_close_unused(p->pl, PLOG_CLOSE_OLD, turn);
    }
}

static void close_flushed(struct partition *p, enum err e, uint32_t turn)
{
    if (e && e != ERR_CLOSED)
        LOG_LIMITED(LOG_LEVEL_ERROR, "flush_failed", "topic=%s partition=%d error=%s", p->topic, p->index, err_name(e));
    else if (!e)
        plog_close_unused(p->pl, PLOG_CLOSE_ACTIVE, turn);
}

static void close_some_active(struct partition *const *some, size_t count, uint32_t turn)
{
    struct plog_flush *rounds[LOGS_A_FLUSH];
    for (size_t i = 0; i < count; i++) rounds[i] = plog_flush_begin(some[i]->pl, count > 1);
    for (size_t i = 0; i < count; i++)
        if (rounds[i]) close_flushed(some[i], plog_flush_finish(rounds[i]), turn);
    for (size_t i = 0; i < count; i++)
        if (!rounds[i]) close_flushed(some[i], plog_flush(some[i]->pl), turn);
}

static void close_active(struct sweep *s, uint32_t turn)
{
    struct partition *some[LOGS_A_FLUSH];
    size_t count = 0;
    for (size_t i = 0; i < s->count && !sweep_is_done(s); i++) {
        struct partition *p = sweep_next(s);
        if (!atomic_load(&p->online) || !plog_is_unused(p->pl, turn)) continue;
        some[count++] = p;
        if (count < MIN(s->r->flush_logs_max, (size_t)LOGS_A_FLUSH)) continue;
        close_some_active(some, count, turn);
        count = 0;
    }
    close_some_active(some, count, turn);
}

/* With files_lock. */
static void sweep_files(struct replicas *r)
{
    size_t open = fs_open_count(r->opt.fs);
    struct sweep s = {.r = r, .target = MIN(open, r->files.max) * KEEP_NUMERATOR / KEEP_DENOMINATOR};
    s.list = replicas_list(r, &s.count);
    uint32_t turn = atomic_fetch_add(&r->files.turn, 1);
    if (s.count > 0) {
        close_old(&s, turn);
        close_active(&s, turn);
        close_old(&s, turn + 1);
        close_active(&s, turn + 1);
        r->room_at %= s.count;
    }
    replicas_list_free(s.list, s.count);
    LOG_DEBUG("files_closed", "before=%zu after=%zu wanted=%zu", open, fs_open_count(r->opt.fs), s.target);
}

static void make_room(void *arg, uint32_t turn)
{
    struct replicas *r = arg;
    pthread_mutex_lock(&r->files_lock);
    if (turn == atomic_load(&r->files.turn)) sweep_files(r);
    pthread_mutex_unlock(&r->files_lock);
}

static void room_work(struct job *job)
{
    struct replicas *r = CONTAINER_OF(job, struct replicas, room_job);
    pthread_mutex_lock(&r->files_lock);
    sweep_files(r);
    pthread_mutex_unlock(&r->files_lock);
}

static void room_done(struct job *job)
{
    atomic_store(&CONTAINER_OF(job, struct replicas, room_job)->room_wanted, false);
}

static void want_room(void *arg)
{
    struct replicas *r = arg;
    if (atomic_load(&r->services.workers_gone) || atomic_exchange(&r->room_wanted, true)) return;
    workers_submit(r->opt.workers, &r->room_job);
}

void replicas_want_room(struct replicas *r)
{
    want_room(r);
}

void replicas_files_init(struct replicas *r)
{
    pthread_mutex_init(&r->files_lock, NULL);
    r->room_job = (struct job){.work = room_work, .done = room_done};
    r->files = (struct plog_files){
        .max = r->opt.open_files_max ? r->opt.open_files_max : SIZE_MAX,
        .arg = r,
        .wants_room = want_room,
        .make_room = make_room,
    };
    atomic_init(&r->files.turn, 1); /* 0: not used yet */
    /* Those who flush for appends, and who makes room, take a twelfth each of what logs may have, from what is left. */
    r->flush_logs_max = MAX(r->files.max / 12 / FILES_A_FLUSH, (size_t)1);
}
