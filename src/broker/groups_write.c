/* groups_write.c: what the shards emit, into the log and back as outcomes.
 *
 * All that is emitted in one turn of the loop goes into as few batches as possible, at the turn's end: a hundred
 * members that heartbeat and commit together cost one write.  A batch is settled when the log has it and
 * offsets.commit.required .acks is met, or when it never will be; outcomes are told in the order of the writes, so what
 * is settled waits for what stands before it.  Only the batch at the front waits for the high watermark or a flush:
 * those behind it can only come later. */
#include "base/mem.h"
#include "broker/groups_internal.h"
#include "wire/batch.h"

#define LOG_MODULE "groups"
#include "base/log.h"

enum { ACKS_ALL = -1, ACKS_NONE = 0 };

/* What a record takes besides its key and value, at most: its attributes and five varints. */
enum { RECORD_OVERHEAD_MAX = 1 + 5 * 5 + 1 };

/* A place that a batch has moved from; let go at the batch's end, since its log may be calling us. */
struct left {
    struct partition *p; /* a reference */
    struct left *before;
};

struct group_batch {
    struct list_node node;
    struct hosted *h;
    struct append append;
    struct buf *buf;
    struct list writes;      /* struct group_write */
    struct partition *p;     /* a reference */
    struct left *left;       /* where it has moved from while this was being appended */
    uint32_t flushes_failed; /* of the partition, when the append began */
    int64_t due_us;
    struct loop_msg msg;
    struct partition_waiter waiter;
    bool waiting;
    bool over; /* appended, or `kerr` says why not */
    enum kerr kerr;
};

/* ---- Making a batch */

static size_t bytes_at_most(const struct group_write *w)
{
    return w->bytes + w->count * RECORD_OVERHEAD_MAX;
}

static void add_records(struct batch_builder *bb, const struct group_write *w, int64_t now_ms)
{
    for (size_t i = 0; i < w->count; i++)
        batch_builder_add(bb, now_ms, w->records[i].key, w->records[i].value, NULL, 0);
}

/* Takes writes from the front as long as they fit; compressed ones might grow by a little. */
static void collect(struct hosted *h, struct group_batch *b, struct batch_builder *bb, size_t limit, int64_t now_ms)
{
    size_t room = limit - limit / 16;
    struct list_node *n;
    while ((n = list_first(&h->unsent))) {
        struct group_write *w = CONTAINER_OF(n, struct group_write, node);
        bool fits = BATCH_HEADER_SIZE + bb->records.size + bytes_at_most(w) <= room;
        if (!fits && !list_is_empty(&b->writes)) return;
        list_remove(n);
        list_push_back(&b->writes, n);
        add_records(bb, w, now_ms);
        if (!fits) return; /* alone: by its real size */
    }
}

static struct group_batch *batch_new(struct hosted *h)
{
    struct group_batch *b = mem_zalloc(1, sizeof *b);
    b->h = h;
    list_init(&b->writes);
    list_push_back(&h->batches, &b->node);
    return b;
}

static enum kerr pack(struct group_batch *b, struct batch_builder *bb, size_t limit)
{
    struct writer w;
    writer_init(&w, b->h->groups->br->bufs);
    enum err e = batch_builder_finish(bb, &w);
    if (!e && w.size > limit) e = ERR_TOO_BIG;
    if (!e) e = batch_parse_header(&b->append.info, w.buf->data, (int64_t)w.size);
    if (!e) {
        b->buf = buf_ref(w.buf);
        b->append.buf = b->buf;
        b->append.data = b->buf->data;
        b->append.size = w.size;
    }
    writer_fini(&w);
    return e == ERR_TOO_BIG ? KERR_MESSAGE_TOO_LARGE : kerr_of(e);
}

/* ---- Appending */

static struct group_batch *batch_of(struct append *a)
{
    return CONTAINER_OF(a, struct group_batch, append);
}

/* One move further, if it has moved. */
static bool batch_follow(struct group_batch *b)
{
    struct partition *next = partition_successor(b->p);
    if (!next) return false;
    struct left *left = mem_zalloc(1, sizeof *left);
    *left = (struct left){b->p, b->left};
    b->left = left;
    b->p = partition_ref(next);
    b->flushes_failed = atomic_load(&next->flushes_failed);
    return true;
}

static void batch_over(struct group_batch *b)
{
    b->over = true;
    b->kerr = b->append.kerr;
}

static void on_appended(struct loop_msg *msg)
{
    struct group_batch *b = CONTAINER_OF(msg, struct group_batch, msg);
    batch_over(b);
    hosted_look(b->h);
}

/* Any thread.  Mostly it is our own, within append_batch(): hosted_flush()'s caller looks at it. */
static void append_done(struct append *a)
{
    struct group_batch *b = batch_of(a);
    if (a->kerr == KERR_NOT_LEADER_OR_FOLLOWER && batch_follow(b)) {
        plog_append(b->p->pl, a);
        return;
    }
    if (loop_is_owner(b->h->at->loop)) {
        batch_over(b);
        return;
    }
    b->msg.run = on_appended;
    loop_post(b->h->at->loop, &b->msg);
}

static enum kerr check_leader(const struct hosted *h)
{
    if (h->state != HOSTED_OPEN || !h->p) return KERR_NOT_LEADER_OR_FOLLOWER;
    enum kerr kerr = partition_check_leader(h->p, -1);
    if (!kerr && atomic_load(&h->p->leader_epoch) != h->epoch) kerr = KERR_NOT_LEADER_OR_FOLLOWER;
    return kerr;
}

static enum kerr check_writable(const struct hosted *h)
{
    enum kerr kerr = check_leader(h);
    if (kerr) return kerr;
    if (h->groups->acks == ACKS_ALL && !partition_in_sync_enough(h->p)) return KERR_NOT_ENOUGH_REPLICAS;
    return partition_disk_is_full(h->p) ? KERR_KAFKA_STORAGE_ERROR : KERR_NONE;
}

static void append_batch(struct hosted *h, struct group_batch *b, int64_t now_ms)
{
    b->p = partition_ref(h->p);
    b->flushes_failed = atomic_load(&b->p->flushes_failed);
    b->append.origin = APPEND_COORDINATOR;
    b->append.leader_epoch = h->epoch;
    b->append.now_ms = now_ms;
    b->append.done = append_done;
    partition_wrote(b->p, b->append.size);
    plog_append(b->p->pl, &b->append);
}

static void write_one_batch(struct hosted *h, const struct topic_settings *settings)
{
    struct groups *g = h->groups;
    size_t limit = (size_t)MIN((int64_t)settings->max_message_bytes, settings->log.segment_bytes);
    int64_t now_ms = clock_wall_ms(g->br->clock);
    struct group_batch *b = batch_new(h);
    b->due_us = loop_now_us(h->at->loop) + g->commit_timeout_us;
    struct batch_builder bb;
    batch_builder_init(&bb, g->br->bufs, (int16_t)(settings->keep_codec ? g->codec : settings->codec), now_ms);
    collect(h, b, &bb, limit, now_ms);
    b->kerr = pack(b, &bb, limit);
    b->over = b->kerr != KERR_NONE;
    batch_builder_fini(&bb);
    if (!b->over) append_batch(h, b, now_ms);
}

/* All of it, with one outcome. */
static void refuse_unsent(struct hosted *h, enum kerr kerr)
{
    struct group_batch *b = batch_new(h);
    b->over = true;
    b->kerr = kerr;
    struct list_node *n;
    while ((n = list_pop_front(&h->unsent))) list_push_back(&b->writes, n);
}

void hosted_flush(struct hosted *h)
{
    struct topic_replicas *t = replicas_find(h->groups->br->replicas, STR(OFFSETS_TOPIC));
    while (!list_is_empty(&h->unsent)) {
        enum kerr kerr = t ? check_writable(h) : KERR_NOT_LEADER_OR_FOLLOWER;
        if (kerr)
            refuse_unsent(h, kerr);
        else
            write_one_batch(h, topic_settings(t));
    }
}

static void on_flush(struct loop_idle *idle)
{
    struct hosted *h = CONTAINER_OF(idle, struct hosted, flush);
    hosted_flush(h);
    hosted_look(h);
}

void hosted_write(void *arg, struct group_write *w)
{
    struct hosted *h = arg;
    list_push_back(&h->unsent, &w->node);
    loop_idle_once(h->at->loop, &h->flush);
}

/* ---- Settling */

static bool is_durable(const struct group_batch *b)
{
    return !b->append.must_flush || partition_durable_end(b->p) > b->append.last_offset;
}

static bool is_acknowledged(const struct group_batch *b)
{
    int16_t acks = b->h->groups->acks;
    if (acks == ACKS_NONE) return true;
    if (acks == ACKS_ALL && partition_high_watermark(b->p) <= b->append.last_offset) return false;
    return is_durable(b);
}

/* It is in our log, but it may never be acknowledged. */
static enum kerr check_hope(const struct group_batch *b)
{
    const struct hosted *h = b->h;
    enum kerr kerr = partition_check_leader(b->p, -1);
    if (!kerr && atomic_load(&b->p->leader_epoch) != h->epoch) kerr = KERR_NOT_LEADER_OR_FOLLOWER;
    if (!kerr && !is_durable(b) && atomic_load(&b->p->flushes_failed) != b->flushes_failed)
        kerr = KERR_KAFKA_STORAGE_ERROR;
    if (!kerr && loop_now_us(h->at->loop) >= b->due_us) kerr = KERR_REQUEST_TIMED_OUT;
    return kerr;
}

/* Looked at once more after a doubt: what failed may have been another flush, after the one that served us. */
static bool is_settled(struct group_batch *b)
{
    if (!b->over) return false;
    if (!b->kerr && is_acknowledged(b) && b->h->groups->acks == ACKS_ALL && !partition_in_sync_enough_after(b->p))
        b->kerr = KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
    if (b->kerr || is_acknowledged(b)) return true;
    /* Whoever waited has been answered: it does not matter any more. */
    enum kerr kerr = b->h->state == HOSTED_OPEN ? check_hope(b) : KERR_NOT_LEADER_OR_FOLLOWER;
    if (kerr && !is_acknowledged(b)) b->kerr = kerr;
    return kerr != KERR_NONE;
}

static void wake_by_batch(struct partition_waiter *w)
{
    hosted_wake(CONTAINER_OF(w, struct group_batch, waiter)->h);
}

/* False: it is settled meanwhile. */
static bool wait_for(struct hosted *h, struct group_batch *b)
{
    if (!b->over) return true; /* it sends a message */
    while (batch_follow(b))
        if (b->waiting) {
            partition_unwait(b->left->p, &b->waiter);
            partition_wait(b->p, &b->waiter);
        }
    if (!b->waiting) {
        int64_t until = b->append.last_offset + 1;
        b->waiter.until_durable = b->append.must_flush ? until : 0;
        b->waiter.until_high_watermark = h->groups->acks == ACKS_ALL ? until : 0;
        b->waiter.wake = wake_by_batch;
        b->waiting = true;
        partition_wait(b->p, &b->waiter);
        loop_timer_set(h->at->loop, &h->write_timer, b->due_us);
    }
    return !is_settled(b);
}

static void batch_free(struct group_batch *b)
{
    if (b->waiting) partition_unwait(b->p, &b->waiter);
    partition_unref(b->p);
    for (struct left *left; (left = b->left);) {
        b->left = left->before;
        partition_unref(left->p);
        mem_free(left);
    }
    buf_unref(b->buf);
    list_remove(&b->node);
    mem_free(b);
}

static void tell_batch(struct hosted *h, struct group_batch *b)
{
    if (b->kerr)
        LOG_LIMITED(LOG_LEVEL_WARN, "group_write_failed", "partition=%d error=%s", h->index,
                    kerr_name((int16_t)b->kerr));
    struct list_node *n;
    while ((n = list_pop_front(&b->writes)))
        group_shard_written(h->shard, CONTAINER_OF(n, struct group_write, node), b->kerr);
}

void hosted_tell_written(struct hosted *h)
{
    struct list_node *n;
    if (h->state == HOSTED_OPEN) hosted_tick(h);
    while ((n = list_first(&h->batches))) {
        struct group_batch *b = CONTAINER_OF(n, struct group_batch, node);
        if (!is_settled(b) && wait_for(h, b)) break;
        tell_batch(h, b);
        batch_free(b);
    }
    if (list_is_empty(&h->batches)) loop_timer_cancel(h->at->loop, &h->write_timer);
    hosted_rearm(h);
}

static void on_write_timer(struct timer *t)
{
    hosted_look(CONTAINER_OF(t, struct hosted, write_timer));
}

void hosted_write_init(struct hosted *h)
{
    list_init(&h->unsent);
    list_init(&h->batches);
    h->flush.run = on_flush;
    h->write_timer.fire = on_write_timer;
}
