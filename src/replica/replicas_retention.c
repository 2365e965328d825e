/* replicas_retention.c: when which log is looked at: idle segments roll, old ones go, deleted files are removed.
 *
 * plog_retain() says when time alone may make something due again; the partitions wait in a heap for that.  What else
 * may make something due (appends, a high watermark, a configuration) marks the partition, and the marked ones are
 * looked at every log.retention.check.interval.ms, as Kafka looks at all.  So a broker with many partitions at rest
 * does nothing.
 */
#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { RETRY_MS = 1000 }; /* for one that failed, unless it is looked at with all others before */

/* ---- The heap, under its lock; places count from 1 */

static struct partition **place(struct retention *rt, size_t at)
{
    return &rt->heap[at - 1];
}

static void put(struct retention *rt, size_t at, struct partition *p)
{
    *place(rt, at) = p;
    p->retain_index = at;
}

static void sift_up(struct retention *rt, size_t at)
{
    struct partition *p = *place(rt, at);
    for (; at > 1 && (*place(rt, at / 2))->retain_ms > p->retain_ms; at /= 2) put(rt, at, *place(rt, at / 2));
    put(rt, at, p);
}

static void sift_down(struct retention *rt, size_t at)
{
    struct partition *p = *place(rt, at);
    for (size_t child; (child = 2 * at) <= rt->count; at = child) {
        if (child < rt->count && (*place(rt, child + 1))->retain_ms < (*place(rt, child))->retain_ms) child++;
        if ((*place(rt, child))->retain_ms >= p->retain_ms) break;
        put(rt, at, *place(rt, child));
    }
    put(rt, at, p);
}

/* The caller takes over the heap's reference. */
static void heap_remove(struct retention *rt, struct partition *p)
{
    size_t at = p->retain_index;
    struct partition *last = *place(rt, rt->count--);
    p->retain_index = 0;
    if (last == p) return;
    put(rt, at, last);
    sift_up(rt, at);
    sift_down(rt, last->retain_index);
}

static void heap_set(struct retention *rt, struct partition *p, int64_t due_ms)
{
    p->retain_ms = due_ms;
    if (!p->retain_index) {
        rt->heap = mem_grow(rt->heap, &rt->cap, rt->count + 1, sizeof(struct partition *));
        put(rt, ++rt->count, partition_ref(p));
    }
    sift_up(rt, p->retain_index);
    sift_down(rt, p->retain_index);
}

/* ---- Partitions come and go */

static void schedule(struct replicas *r, struct partition *p, int64_t due_ms)
{
    struct retention *rt = &r->retention;
    bool drop = false;
    pthread_mutex_lock(&rt->lock);
    if (!p->retain_never && due_ms < INT64_MAX) {
        heap_set(rt, p, due_ms);
    } else if (p->retain_index) {
        heap_remove(rt, p);
        drop = true;
    }
    pthread_mutex_unlock(&rt->lock);
    if (drop) partition_unref(p);
}

void replicas_retention_forget(struct replicas *r, struct partition *p)
{
    pthread_mutex_lock(&r->retention.lock);
    p->retain_never = true;
    pthread_mutex_unlock(&r->retention.lock);
    schedule(r, p, INT64_MAX);
}

/* The first that is due by now, with a reference; NULL: none. */
static struct partition *take_due(struct replicas *r, int64_t now_ms)
{
    struct retention *rt = &r->retention;
    struct partition *p = NULL;
    pthread_mutex_lock(&rt->lock);
    if (rt->count > 0 && (*place(rt, 1))->retain_ms <= now_ms) {
        p = *place(rt, 1);
        heap_remove(rt, p);
    }
    pthread_mutex_unlock(&rt->lock);
    return p;
}

int64_t replicas_retention_next_ms(struct replicas *r)
{
    struct retention *rt = &r->retention;
    pthread_mutex_lock(&rt->lock);
    int64_t next_ms = rt->count > 0 ? (*place(rt, 1))->retain_ms : INT64_MAX;
    pthread_mutex_unlock(&rt->lock);
    return next_ms;
}

/* ---- On a worker */

static void retain_one(struct replicas *r, struct partition *p, int64_t now_ms)
{
    /* What no controller has spoken of is not ours to delete. */
    if (!atomic_load(&p->online) || atomic_load(&p->leader_epoch) < 0) return;
    int64_t next_ms;
    enum err e = plog_retain(p->pl, now_ms, partition_high_watermark(p), &next_ms);
    if (e && e != ERR_CLOSED) {
        LOG_LIMITED(LOG_LEVEL_ERROR, "retention_failed", "topic=%s partition=%d error=%s", p->topic, p->index,
                    err_name(e));
        if (e == ERR_TOO_MANY) replicas_want_room(r);
        next_ms = MAX(next_ms, now_ms + RETRY_MS);                   /* what is due and cannot be done stays due */
        atomic_fetch_or(&p->changed, (uint8_t)BIT(CHORE_RETENTION)); /* once more at the next check */
    }
    replicas_dir_check(p->dir, e, "retention");
    schedule(r, p, MAX(next_ms, now_ms + 1));
}

static void check_changed(struct replicas *r, int64_t now_ms)
{
    size_t count;
    struct partition **list = replicas_list(r, &count);
    for (size_t i = 0; i < count; i++)
        if (atomic_fetch_and(&list[i]->changed, (uint8_t)~BIT(CHORE_RETENTION)) & BIT(CHORE_RETENTION))
            retain_one(r, list[i], now_ms);
    replicas_list_free(list, count);
}

void replicas_retention_work(struct replicas *r)
{
    int64_t now_ms = clock_wall_ms(r->opt.clock), now_us = clock_mono_us(r->opt.clock);
    if (now_us >= r->retention.check_us) {
        check_changed(r, now_ms);
        int64_t interval_ms = MIN(r->opt.retention_check_ms, INT64_MAX / 2000);
        r->retention.check_us = clock_mono_us(r->opt.clock) + interval_ms * 1000;
    }
    struct partition *p;
    while ((p = take_due(r, now_ms)) != NULL) {
        retain_one(r, p, now_ms);
        partition_unref(p);
    }
}

/* ---- Life */

void replicas_retention_init(struct replicas *r)
{
    pthread_mutex_init(&r->retention.lock, NULL);
    int64_t interval_ms = MIN(r->opt.retention_check_ms, INT64_MAX / 2000);
    r->retention.check_us = clock_mono_us(r->opt.clock) + interval_ms * 1000;
}

void replicas_retention_fini(struct replicas *r)
{
    for (size_t i = 0; i < r->retention.count; i++) partition_unref(r->retention.heap[i]);
    mem_free(r->retention.heap);
    r->retention.heap = NULL;
    r->retention.count = 0;
    pthread_mutex_destroy(&r->retention.lock);
}
