/* partition.c: high watermark and waiters of one replica.
 *
 * A waiter registers, then looks again; the log publishes its end, then looks for waiters.  Both steps are sequentially
 * consistent, so one of the two sees the other: no wake-up is lost, and an append with nobody waiting takes no lock. */
#include "replica/partition.h"

#include "base/mem.h"

struct partition *partition_new(const char *topic, int32_t index, struct log_dir *dir)
{
    struct partition *p = mem_zalloc(1, sizeof *p);
    atomic_init(&p->refs, 1);
    p->topic = mem_strdup(topic);
    p->index = index;
    p->dir = dir;
    atomic_init(&p->leader_epoch, -1);
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

void partition_unref(struct partition *p)
{
    if (!p) return;
    uint32_t before = atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1) return;
    ASSERT(list_is_empty(&p->waiters));
    if (p->pl) plog_abandon(p->pl);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->topic);
    mem_free(p);
}

static void wake_all(struct partition *p)
{
    if (atomic_load(&p->waiter_count) == 0) return;
    pthread_mutex_lock(&p->lock);
    LIST_EACH (&p->waiters, n) {
        struct partition_waiter *w = CONTAINER_OF(n, struct partition_waiter, node);
        w->wake(w);
    }
    pthread_mutex_unlock(&p->lock);
}

/* The log's end moved.  While this replica is alone in the in-sync set, everything it holds is replicated. */
static void on_advanced(void *arg, int64_t end)
{
    struct partition *p = arg;
    if (atomic_load_explicit(&p->isr_count, memory_order_relaxed) == 1) {
        int64_t was = atomic_load_explicit(&p->high_watermark, memory_order_relaxed);
        while (was < end && !atomic_compare_exchange_weak(&p->high_watermark, &was, end)) {
        }
    }
    if (atomic_load_explicit(&p->changed, memory_order_relaxed) != UINT8_MAX) atomic_store(&p->changed, UINT8_MAX);
    wake_all(p);
}

static void on_failed(void *arg, enum err e)
{
    (void)e;
    partition_set_offline(arg);
}

struct plog_events partition_events(struct partition *p)
{
    return (struct plog_events){.arg = p, .advanced = on_advanced, .failed = on_failed};
}

void partition_give_log(struct partition *p, struct plog *pl)
{
    ASSERT(!p->pl);
    p->pl = pl;
    p->topic_id = plog_topic_id(pl);
    atomic_store(&p->high_watermark, plog_end(pl));
    atomic_store(&p->online, true);
}

void partition_set_role(struct partition *p, bool leads, int32_t leader_epoch, int32_t isr_count)
{
    atomic_store(&p->isr_count, isr_count);
    atomic_store(&p->leader_epoch, leader_epoch);
    atomic_store(&p->leads, leads);
    if (leads && isr_count == 1 && atomic_load(&p->online)) on_advanced(p, plog_end(p->pl));
    wake_all(p);
}

void partition_set_offline(struct partition *p)
{
    atomic_store(&p->online, false);
    wake_all(p);
}

int64_t partition_last_stable(struct partition *p)
{
    int64_t unstable = plog_first_unstable(p->pl);
    int64_t high_watermark = partition_high_watermark(p);
    return MIN(unstable, high_watermark);
}

enum kerr partition_check_leader(const struct partition *p, int32_t client_epoch)
{
    if (!atomic_load(&p->online)) return KERR_KAFKA_STORAGE_ERROR;
    if (!atomic_load(&p->leads)) return KERR_NOT_LEADER_OR_FOLLOWER;
    int32_t epoch = atomic_load(&p->leader_epoch);
    if (client_epoch >= 0 && client_epoch < epoch) return KERR_FENCED_LEADER_EPOCH;
    if (client_epoch > epoch) return KERR_UNKNOWN_LEADER_EPOCH;
    return KERR_NONE;
}

enum err partition_raise_start(struct partition *p, int64_t offset)
{
    enum err e = plog_set_start(p->pl, offset);
    if (!e) atomic_store(&p->changed, UINT8_MAX);
    return e;
}

void partition_wait(struct partition *p, struct partition_waiter *w)
{
    pthread_mutex_lock(&p->lock);
    list_push_back(&p->waiters, &w->node);
    atomic_fetch_add(&p->waiter_count, 1);
    pthread_mutex_unlock(&p->lock);
}

void partition_unwait(struct partition *p, struct partition_waiter *w)
{
    pthread_mutex_lock(&p->lock);
    if (list_has(&w->node)) {
        list_remove(&w->node);
        atomic_fetch_sub(&p->waiter_count, 1);
    }
    pthread_mutex_unlock(&p->lock);
}
