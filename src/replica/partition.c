/* partition.c: high watermark and waiters of one replica.
 *
 * A waiter registers, then looks again; the log publishes its end, then looks for waiters.  Both steps are sequentially
 * consistent, so one of the two sees the other: no wake-up is lost, and an append with nobody waiting takes no lock.
 *
 * What waits for a flush (flush.messages, flush.mode) is below the high watermark only after it: a consumer that has
 * seen a record may have acted on it, and while this replica is the only one, a power cut would take the record back
 * and give its offset to another. */
#include "replica/partition.h"

#include "base/mem.h"
#include "replica/flusher.h"
#include "replica/partition_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

struct partition *partition_new(const char *topic, int32_t index, struct log_dir *dir,
                                struct partition_services *services)
{
    struct partition *p = mem_zalloc(1, sizeof *p);
    atomic_init(&p->refs, 1);
    p->topic = mem_strdup(topic);
    p->index = index;
    p->dir = dir;
    p->services = services;
    atomic_init(&p->leader_epoch, -1);
    atomic_init(&p->cut, INT64_MAX);
    atomic_init(&p->leader, -1);
    atomic_init(&p->min_insync_replicas, 1);
    atomic_init(&p->watched_ms, INT64_MAX);
    in_sync_init(&p->in_sync);
    p->partition_epoch = -1;
    p->refused_until_ms = FOLLOWER_NEVER_MS;
    pthread_mutex_init(&p->lock, NULL);
    list_init(&p->waiters);
    return p;
}

struct partition *partition_ref(struct partition *p)
{
    uint32_t before = atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    ASSERT(before > 0);
    return p;
}

static void partition_free(struct job *job)
{
    struct partition *p = CONTAINER_OF(job, struct partition, closing);
    if (p->pl) plog_abandon(p->pl);
    partition_unref(atomic_load(&p->successor));
    in_sync_fini(&p->in_sync);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->topic);
    mem_free(p);
}

/* A big log has thousands of files to close: no loop waits for that, whoever was the last to use it. */
void partition_unref(struct partition *p)
{
    if (!p) return;
    uint32_t before = atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1) return;
    ASSERT(list_is_empty(&p->waiters));
    const struct partition_services *s = p->services;
    p->closing = (struct job){.work = partition_free};
    if (p->pl && s && s->workers && !atomic_load(&s->workers_gone))
        workers_submit(s->workers, &p->closing);
    else
        partition_free(&p->closing);
}

static bool waiter_is_met(const struct partition *p, const struct partition_waiter *w)
{
    return partition_high_watermark(p) >= w->until_high_watermark &&
           (w->until_durable == 0 || partition_durable_end(p) >= w->until_durable);
}

static void wake(struct partition *p, bool by_progress)
{
    if (atomic_load(&p->waiter_count) == 0) return;
    pthread_mutex_lock(&p->lock);
    LIST_EACH (&p->waiters, n) {
        struct partition_waiter *w = CONTAINER_OF(n, struct partition_waiter, node);
        if (!by_progress || waiter_is_met(p, w)) w->wake(w);
    }
    pthread_mutex_unlock(&p->lock);
}

void partition_wake_all(struct partition *p)
{
    wake(p, false);
}

void partition_raise_high_watermark(struct partition *p, int64_t high_watermark)
{
    int64_t was = atomic_load_explicit(&p->high_watermark, memory_order_relaxed);
    while (was < high_watermark && !atomic_compare_exchange_weak(&p->high_watermark, &was, high_watermark)) {
    }
}

void partition_progressed(struct partition *p)
{
    plog_replicated(p->pl, partition_high_watermark(p));
    if (atomic_load_explicit(&p->changed, memory_order_relaxed) != UINT8_MAX) atomic_store(&p->changed, UINT8_MAX);
    atomic_thread_fence(memory_order_seq_cst); /* the recovery point moved without being that */
    wake(p, true);
}

/* Another thread has taken the role away while this one raised the high watermark, and the log's end may have been cut
 * before that was done. */
static void undo_late_raise(struct partition *p)
{
    pthread_mutex_lock(&p->lock);
    int64_t end = plog_end(p->pl);
    if (!atomic_load(&p->leads) && partition_high_watermark(p) > end) atomic_store(&p->high_watermark, end);
    pthread_mutex_unlock(&p->lock);
}

/* The log's end or what of it is on the disk moved.  While no follower has a say, everything this replica holds is
 * replicated; the end is read before that is asked (leader.c). */
static void advance(struct partition *p)
{
    if (!atomic_load_explicit(&p->opened, memory_order_acquire)) return; /* the log flushes while it is opened */
    int64_t end = plog_safe_end(p->pl);
    if (atomic_load(&p->alone)) {
        partition_raise_high_watermark(p, end);
        if (!atomic_load(&p->leads)) undo_late_raise(p);
    } else if (atomic_load_explicit(&p->leads, memory_order_relaxed)) {
        partition_advance_led(p);
    }
    partition_progressed(p);
}

static void on_advanced(void *arg, int64_t end)
{
    (void)end; /* calls overtake each other */
    advance(arg);
}

static void on_flushed(void *arg, enum err e)
{
    struct partition *p = arg;
    if (!e) {
        advance(p);
        return;
    }
    atomic_fetch_add(&p->flushes_failed, 1);
    partition_wake_all(p);
}

/* Nothing is written any more, also when the directory as a whole goes on: a sync may have failed for want of space. */
static void on_failed(void *arg, enum err e)
{
    struct partition *p = arg;
    partition_failed(p, e, "write");
    if (atomic_load(&p->online)) partition_set_offline(p);
}

static void on_full(void *arg)
{
    partition_failed(arg, ERR_FULL, "write");
}

static void on_wants_work(void *arg)
{
    struct partition *p = arg;
    if (p->services && p->services->flusher) flusher_add(p->services->flusher, p);
}

struct plog_events partition_events(struct partition *p)
{
    return (struct plog_events){
        .arg = p,
        .advanced = on_advanced,
        .failed = on_failed,
        .full = on_full,
        .wants_work = on_wants_work,
        .flushed = on_flushed,
    };
}

void partition_give_log(struct partition *p, struct plog *pl, int64_t high_watermark)
{
    ASSERT(!p->pl);
    p->pl = pl;
    p->topic_id = plog_topic_id(pl);
    atomic_store(&p->high_watermark, MAX(plog_start(pl), MIN(high_watermark, plog_end(pl))));
    atomic_store(&p->opened, true);
    atomic_store(&p->online, true);
}

void partition_reconfigure(struct partition *p, const struct plog_config *config)
{
    plog_reconfigure(p->pl, config);
    advance(p); /* what counts as safe may be more now, and segments may be due */
}

void partition_set_offline(struct partition *p)
{
    atomic_store(&p->online, false);
    partition_wake_all(p);
}

void partition_set_deleted(struct partition *p)
{
    atomic_store(&p->deleted, true);
    partition_set_offline(p);
}

void partition_set_successor(struct partition *p, struct partition *q)
{
    atomic_store(&p->successor, partition_ref(q));
    partition_wake_all(p);
}

int64_t partition_last_stable(struct partition *p)
{
    int64_t unstable = plog_first_unstable(p->pl);
    int64_t high_watermark = partition_high_watermark(p);
    return MIN(unstable, high_watermark);
}

enum kerr partition_check_replica(const struct partition *p, int32_t client_epoch)
{
    if (!atomic_load(&p->online))
        return atomic_load(&p->deleted) ? KERR_NOT_LEADER_OR_FOLLOWER : KERR_KAFKA_STORAGE_ERROR;
    int32_t epoch = atomic_load(&p->leader_epoch);
    if (client_epoch >= 0 && client_epoch < epoch) return KERR_FENCED_LEADER_EPOCH;
    return client_epoch > epoch ? KERR_UNKNOWN_LEADER_EPOCH : KERR_NONE;
}

enum kerr partition_check_leader(const struct partition *p, int32_t client_epoch)
{
    enum kerr kerr = partition_check_replica(p, client_epoch);
    if (kerr) return kerr;
    return atomic_load(&p->leads) ? KERR_NONE : KERR_NOT_LEADER_OR_FOLLOWER;
}

enum err partition_raise_start(struct partition *p, int64_t offset)
{
    enum err e = plog_set_start(p->pl, offset);
    struct partition *next = partition_successor(p);
    if (e == ERR_CLOSED && next) return partition_raise_start(next, offset);
    if (!e) atomic_store(&p->changed, UINT8_MAX);
    return e;
}

void partition_wait(struct partition *p, struct partition_waiter *w)
{
    pthread_mutex_lock(&p->lock);
    list_push_back(&p->waiters, &w->node);
    atomic_fetch_add(&p->waiter_count, 1);
    atomic_thread_fence(memory_order_seq_cst);
    pthread_mutex_unlock(&p->lock);
}

bool partition_unwait(struct partition *p, struct partition_waiter *w)
{
    pthread_mutex_lock(&p->lock);
    bool waited = list_has(&w->node); /* the node is the list's: its neighbours write to it */
    if (waited) {
        list_remove(&w->node);
        atomic_fetch_sub(&p->waiter_count, 1);
    }
    pthread_mutex_unlock(&p->lock);
    return waited;
}
