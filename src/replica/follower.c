/* follower.c: what a replica does at a leader's word: its high watermark follows, its log is cut or begins anew.
 *
 * A log that is cut may be on its way to another directory, and what was copied of it must go too.  `cut` in the
 * partition tells the mover the lowest offset at which the log was cut since he looked last.  It is set before the log
 * is cut and once more after it: who reads between the two copies what is about to go, and finds the mark again.
 * Nothing is appended before the second, so a mover who holds the log, and has not seen the mark, has more than the log
 * and sees that (replicas_move_copy.c). */
#include "replica/partition.h"

#include <inttypes.h>

#include "replica/partition_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

void partition_follow(struct partition *p, int64_t leader_high_watermark)
{
    int64_t reached = MIN(leader_high_watermark, plog_safe_end(p->pl));
    if (reached <= partition_high_watermark(p)) return; /* a leader that has just been elected may know of less */
    partition_raise_high_watermark(p, reached);
    partition_progressed(p);
}

static void mark_cut(struct partition *p, int64_t offset)
{
    int64_t was = atomic_load(&p->cut);
    while (offset < was && !atomic_compare_exchange_weak(&p->cut, &was, offset)) {
    }
}

static void lower_high_watermark(struct partition *p)
{
    int64_t end = plog_end(p->pl), was = partition_high_watermark(p);
    while (was > end && !atomic_compare_exchange_weak(&p->high_watermark, &was, end)) {
    }
    if (was > end)
        LOG_WARN("cut_below_high_watermark", "topic=%s partition=%d high_watermark=%" PRId64 " end=%" PRId64, p->topic,
                 p->index, was, end);
    partition_progressed(p);
}

/* At most as much as checkpoints may say of the log's end. */
static int64_t filed_end(struct partition *p)
{
    int64_t filed = MAX(plog_recovery_point(p->pl), plog_start(p->pl));
    return MAX(MAX(filed, plog_cleaned(p->pl)), partition_high_watermark(p));
}

static enum err cut(struct partition *p, int64_t offset, enum err (*how)(struct plog *pl, int64_t offset))
{
    int64_t filed = filed_end(p);
    mark_cut(p, offset);
    enum err e = how(p->pl, offset);
    struct partition *next = partition_successor(p);
    if (e == ERR_CLOSED && next) return cut(next, offset, how); /* a move was faster */
    mark_cut(p, plog_end(p->pl));
    lower_high_watermark(p);
    if (plog_end(p->pl) < filed) atomic_fetch_add(&p->cut_unfiled, 1);
    return e || !atomic_load(&p->cut_unfiled) ? e : partition_file_cut(p);
}

enum err partition_truncate(struct partition *p, int64_t offset)
{
    return cut(p, offset, plog_truncate);
}

enum err partition_start_at(struct partition *p, int64_t offset)
{
    mark_cut(p, 0); /* nothing that was copied is of the log that begins now */
    enum err e = cut(p, offset, plog_start_anew);
    if (!e) mark_cut(p, 0);
    return e;
}
