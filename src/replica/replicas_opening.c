/* replicas_opening.c: logs that are opened while the broker serves already.
 *
 * After a crash a log's last segments are read again, which can take minutes over all.  So the doors open first: what
 * the controller says of a partition whose log is not open yet is kept (`role`) and takes effect when it is; until then
 * the partition is in nobody's table, and clients are told NOT_LEADER_OR_FOLLOWER, upon which they ask again.  Only the
 * home loop touches an opening, but for `work`, which a thread of the pool runs, and for what is atomic. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { PROGRESS_US = 3 * 1000 * 1000, SECOND_US = 1000 * 1000 };

/* ---- One log */

struct opening *replicas_opening_new(struct replicas *r, struct partition *p)
{
    struct opening *op = mem_zalloc(1, sizeof *op);
    op->r = r;
    op->p = partition_ref(p);
    op->last_epoch = -1;
    p->opening = op;
    return op;
}

void replicas_opening_free(struct opening *op)
{
    if (op->move) replicas_move_resume(op->move, false);
    if (op->p->opening == op) op->p->opening = NULL;
    partition_unref(op->p);
    mem_free(op->deferred.ids);
    mem_free(op);
}

struct log_origin replicas_loaded_origin(const struct partition *p)
{
    return (struct log_origin){
        .recovery_point = checkpoint_get(&p->dir->recovery_points, str_of(p->topic), p->index, 0),
        .log_start = checkpoint_get(&p->dir->log_starts, str_of(p->topic), p->index, 0),
        .high_watermark = checkpoint_get(&p->dir->watermarks, str_of(p->topic), p->index, 0),
        .cleaned = checkpoint_get(&p->dir->cleaned, str_of(p->topic), p->index, -1),
        .clean = p->dir->clean,
    };
}

void replicas_opening_work(struct job *job)
{
    struct opening *op = CONTAINER_OF(job, struct opening, job);
    struct partition *p = op->p;
    if (atomic_load(&op->cancel)) {
        op->e = ERR_CLOSED;
        return;
    }
    const struct log_origin origin = replicas_loaded_origin(p);
    op->e = replicas_open_log(op->r, p, &origin, op, &op->fault);
    /* A truncation that was interrupted: what is appended now is not on the disk because the checkpoint says so. */
    if (!op->e && plog_end(p->pl) < origin.recovery_point) op->e = replicas_write_checkpoints(op->r, CHORE_CHECKPOINT);
    if (!op->e && !p->dir->clean) atomic_fetch_sub(&p->dir->unrecovered, 1);
}

void replicas_opening_failed(const struct opening *op)
{
    LOG_ERROR(
        "log_open_failed",
        "topic=%s partition=%d dir=%s error=%s reason=\"%s\" notice=\"the partition stays out of service until the "
        "next start\"",
        op->p->topic, op->p->index, op->p->dir->path, err_name(op->e), op->fault.text);
    replicas_dir_check(op->p->dir, op->e, "open");
}

/* ---- Into service */

static void settle(struct opening *op);

static void epoch_work(struct job *job)
{
    struct opening *op = CONTAINER_OF(job, struct opening, job);
    if (replicas_name(op->p, op->name, op->named_in_sync)) op->e = ERR_IO; /* logged */
    if (!op->e && op->epoch_to_begin >= 0 && replicas_begin_epoch(op->p, op->epoch_to_begin))
        op->e = ERR_IO;                                                             /* logged */
    if (!op->e && op->move && !op->move_tried) (void)!replicas_move_open(op->move); /* the same */
    op->move_tried = true;
}

static void epoch_done(struct job *job)
{
    struct opening *op = CONTAINER_OF(job, struct opening, job);
    replicas_named(op->p);
    settle(op);
}

/* The role that the controller gave meanwhile. */
static void take_role(struct opening *op)
{
    struct replicas *r = op->r;
    struct partition *p = op->p;
    struct partition *claimed = replicas_claim(r, p->topic, p->index);
    ASSERT(claimed == p);
    p->opening = NULL;
    replicas_enter(r, p, str_of(p->topic), op->deferred.topic_id, op->deferred.topic_partitions);
    replicas_take_role(r, p, &op->deferred.role);
    if (op->move) replicas_move_resume(op->move, true);
    op->move = NULL;
}

/* The log is open, or not to be had: what waits for it goes on.  Until a role has been taken the opening stays, so that
 * the next LeaderAndIsr finds it. */
static void settle(struct opening *op)
{
    struct replicas *r = op->r;
    struct stop_job *stopper = op->stopper;
    op->over = true;
    if (stopper || op->e || r->stopping) {
        replicas_opening_free(op);
        if (stopper) replicas_stop_go_on(stopper);
        return;
    }
    if (!op->deferred.known) { /* nobody has spoken of it: it waits among the unclaimed, as those opened before */
        replicas_opening_free(op);
        return;
    }
    if (replicas_check_topic_id(op->p, op->deferred.topic_id)) {
        replicas_opening_free(op);
        return;
    }
    if (!op->move) op->move = replicas_move_found(r, op->p);
    const struct partition_role *role = &op->deferred.role;
    bool begins = role->leads && plog_last_epoch(op->p->pl) < role->leader_epoch;
    bool nameless = uuid_is_zero(op->p->topic_id) && !uuid_is_zero(op->deferred.topic_id);
    if (begins || nameless || (op->move && !op->move_tried)) {
        op->name = op->deferred.topic_id;
        op->named_in_sync = role_in_sync(role);
        op->epoch_to_begin = begins ? role->leader_epoch : -1;
        op->job = (struct job){.loop = r->opt.home, .work = epoch_work, .done = epoch_done};
        workers_submit(r->opt.workers, &op->job);
        return;
    }
    take_role(op);
    replicas_opening_free(op);
}

void replicas_opening_defer(struct opening *op, const struct partition_role *role, int32_t topic_partitions,
                            struct uuid topic_id)
{
    mem_free(op->deferred.ids);
    int32_t *ids = mem_alloc((size_t)(role->replica_count + role->isr_count + 1) * sizeof *ids);
    for (int32_t i = 0; i < role->replica_count; i++) ids[i] = role->replicas[i];
    for (int32_t i = 0; i < role->isr_count; i++) ids[role->replica_count + i] = role->isr[i];
    op->deferred = (struct deferred_role){
        .known = true, .role = *role, .ids = ids, .topic_partitions = topic_partitions, .topic_id = topic_id};
    op->deferred.role.replicas = ids;
    op->deferred.role.isr = ids + role->replica_count;
}

/* ---- All of them */

static int64_t bytes_done(const struct openings *os)
{
    int64_t bytes = os->bytes_over;
    for (size_t i = 0; i < os->count; i++)
        if (os->items[i]) bytes += MIN(atomic_load(&os->items[i]->bytes_read), os->items[i]->bytes);
    return bytes;
}

static void tell_progress(struct timer *t)
{
    struct openings *os = CONTAINER_OF(t, struct openings, timer);
    struct replicas *r = CONTAINER_OF(os, struct replicas, openings);
    int64_t done = bytes_done(os), took_us = loop_now_us(r->opt.home) - os->began_us;
    int64_t left_s = done > 0 ? (int64_t)((double)took_us * (double)(os->bytes - done) / (double)done / SECOND_US) : -1;
    LOG_INFO("recovering", "logs_left=%zu of=%zu mbytes_done=%" PRId64 " of=%" PRId64 " seconds_left=%" PRId64,
             os->left, os->count, done >> 20, os->bytes >> 20, left_s);
    loop_timer_set(r->opt.home, &os->timer, loop_now_us(r->opt.home) + PROGRESS_US);
}

/* The threads have nothing to do any more, so that waiting for their end is none. */
static void all_over(struct replicas *r)
{
    struct openings *os = &r->openings;
    loop_timer_cancel(r->opt.home, &os->timer);
    int64_t took_us = loop_now_us(r->opt.home) - os->began_us;
    LOG_INFO("recovered", "logs=%zu failed=%zu mbytes=%" PRId64 " ms=%" PRId64, os->count, os->failed, os->bytes >> 20,
             took_us / 1000);
    workers_free(os->workers);
    mem_free(os->items);
    os->workers = NULL;
    os->items = NULL;
    os->count = 0;
}

static void opening_done(struct job *job)
{
    struct opening *op = CONTAINER_OF(job, struct opening, job);
    struct replicas *r = op->r;
    struct openings *os = &r->openings;
    for (size_t i = 0; i < os->count; i++)
        if (os->items[i] == op) os->items[i] = NULL;
    os->bytes_over += op->bytes;
    os->left--;
    if (op->e && op->e != ERR_CLOSED) {
        os->failed++;
        replicas_opening_failed(op);
    }
    settle(op);
    if (os->left == 0 && os->workers && !r->stopping) all_over(r);
}

static int bigger_first(const void *a, const void *b)
{
    const struct opening *x = *(struct opening *const *)a, *y = *(struct opening *const *)b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

enum err replicas_open_rest(struct replicas *r, struct fault *f)
{
    ASSERT_OWNER(r->opt.home);
    struct openings *os = &r->openings;
    if (os->count == 0) return OK;
    enum err e = workers_new(&os->workers, "recovery", r->threads, f);
    if (e) return e;
    qsort(os->items, os->count, sizeof(struct opening *), bigger_first);
    os->left = os->count;
    os->began_us = loop_now_us(r->opt.home);
    for (size_t i = 0; i < os->count; i++) os->bytes += os->items[i]->bytes;
    LOG_INFO("recovery_began", "logs=%zu mbytes=%" PRId64 " threads=%u reason=\"not shut down cleanly\"", os->count,
             os->bytes >> 20, r->threads);
    for (size_t i = 0; i < os->count; i++) {
        os->items[i]->job = (struct job){.loop = r->opt.home, .work = replicas_opening_work, .done = opening_done};
        workers_submit(os->workers, &os->items[i]->job);
    }
    os->timer.fire = tell_progress;
    loop_timer_set(r->opt.home, &os->timer, os->began_us + PROGRESS_US);
    return OK;
}

void replicas_stop_opening(struct replicas *r)
{
    struct openings *os = &r->openings;
    loop_timer_cancel(r->opt.home, &os->timer);
    for (size_t i = 0; i < os->count; i++)
        if (os->items[i]) atomic_store(&os->items[i]->cancel, true);
    if (os->workers) {
        workers_free(os->workers); /* what it has done still comes by the loop's mailbox */
        os->workers = NULL;
        return;
    }
    for (size_t i = 0; i < os->count; i++) /* never begun */
        if (os->items[i]) replicas_opening_free(os->items[i]);
    mem_free(os->items);
    os->items = NULL;
    os->count = 0;
}
