/* groups_load.c: a partition of the offsets topic, read from its start into a shard that nobody sees yet.
 *
 * A worker reads a buffer's worth (offsets.load.buffer.size) and replays it, then the loop decides whether to go on:
 * the role may have gone, and others want the pool, too.  Few are loaded at a time on each loop, since each has such a
 * buffer.  Read is up to the log's end, not only to the high watermark: this broker leads the partition, so what it
 * holds above that is not cut any more, and nobody else appends meanwhile.
 *
 * What cannot be read is tried again and again, and clients are told that the coordinator is being loaded: a shard
 * without what is in the log would have their consumers begin anew. */
#include <inttypes.h>

#include "base/mem.h"
#include "broker/groups_internal.h"
#include "wire/batch.h"

#define LOG_MODULE "groups"
#include "base/log.h"

enum {
    LOADS_AT_ONCE = 2, /* on each loop */
    RETRY_US_MIN = 1000 * 1000,
    RETRY_US_MAX = 60 * 1000 * 1000
};

struct forgotten {
    struct list_node node;
    char *topic;
};

struct group_load {
    struct hosted *h;
    struct job job;
    struct list_node in_queue; /* waits for its turn */
    bool at_work;              /* counted in group_loop.loads */
    bool cancelled;
    struct timer retry;
    int64_t retry_us;
    struct list forgotten; /* topics that were deleted meanwhile */

    /* The worker's, while the job is out. */
    struct partition *p; /* a reference */
    struct group_shard *shard;
    int64_t at, end; /* what is below `at` has been replayed */
    uint8_t *buf;
    size_t buf_size;
    int64_t began_us, bytes, records, damaged;
    enum err e;
    const char *what; /* failed */
};

/* ---- Replaying; worker */

static enum err fail(struct group_load *ld, enum err e, const char *what)
{
    ld->what = what;
    return e;
}

static void replay_marker(struct group_load *ld, const uint8_t *data, const struct batch_info *b)
{
    struct txn_marker marker;
    enum err e = batch_read_marker(&marker, data, (size_t)b->size);
    if (!e)
        group_shard_replay_marker(ld->shard, b->producer_id, marker.commit);
    else if (e != ERR_NOT_FOUND)
        ld->damaged++;
}

static void replay_record(struct group_load *ld, const struct batch_info *b, const struct record *rec)
{
    const struct group_replay at = {
        .offset = rec->offset,
        .timestamp_ms = rec->timestamp,
        .producer_id = b->producer_id,
        .transactional = b->attributes & BATCH_TRANSACTIONAL,
    };
    ld->records++;
    if (!rec->key.data || group_shard_replay(ld->shard, &at, rec->key, rec->value)) ld->damaged++;
}

/* Records below the log's start were deleted, though their batch is still there for those behind them. */
static enum err replay_records(struct group_load *ld, const uint8_t *data, const struct batch_info *b)
{
    struct record_iter it;
    struct record rec;
    enum err e = record_iter_init(&it, data, (size_t)b->size, BATCH_UNPACKED_STORED_MAX);
    if (e) return e;
    while (!(e = record_iter_next(&it, &rec)))
        if (rec.offset >= ld->at) replay_record(ld, b, &rec);
    record_iter_fini(&it);
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err replay_batches(struct group_load *ld, size_t size)
{
    for (size_t from = 0; size - from >= BATCH_HEADER_SIZE;) {
        const uint8_t *data = ld->buf + from;
        struct batch_info b;
        enum err e = batch_parse_header(&b, data, INT32_MAX);
        if (e) return fail(ld, e, "a batch's header");
        if ((size_t)b.size > size - from) return OK; /* the slice ends in its midst: the next one begins with it */
        if (!batch_crc_ok(data, &b)) return fail(ld, ERR_CORRUPT, "a batch, whose checksum is wrong");
        if (b.attributes & BATCH_CONTROL)
            replay_marker(ld, data, &b);
        else
            e = replay_records(ld, data, &b);
        if (e) return fail(ld, e, "the records of a batch");
        ld->at = batch_last_offset(&b) + 1;
        from += (size_t)b.size;
    }
    return OK;
}

static enum err read_slice(struct group_load *ld, const struct plog_slice *s)
{
    size_t got;
    if (s->size > ld->buf_size) {
        ld->buf = mem_realloc(ld->buf, s->size);
        ld->buf_size = s->size;
    }
    enum err e = file_pread(s->file, ld->buf, s->size, s->pos, &got);
    if (!e && got < s->size) e = ERR_TRUNCATED;
    return e ? fail(ld, e, "the log") : OK;
}

static enum err load_some(struct group_load *ld, size_t want, size_t *read)
{
    struct plog *pl = ld->p->pl;
    struct plog_slice s = {0};
    int64_t before = ld->at;
    ld->at = MAX(ld->at, plog_start(pl));
    *read = 0;
    if (ld->at >= ld->end) return OK;
    enum err e = plog_read(pl, ld->at, ld->end, want, true, false, &s);
    if (e == ERR_RANGE && plog_start(pl) > ld->at) return OK; /* the start has moved on: once more */
    if (e) return fail(ld, e, "the log");
    if (!s.file) { /* what is left has been compacted away */
        ld->at = ld->end;
        return OK;
    }
    e = read_slice(ld, &s);
    if (!e) e = replay_batches(ld, s.size);
    if (!e && ld->at == before && ld->at < ld->end) e = fail(ld, ERR_CORRUPT, "a batch, which has no end");
    *read = s.size;
    plog_slice_release(&s);
    return e;
}

static void load_work(struct job *job)
{
    struct group_load *ld = CONTAINER_OF(job, struct group_load, job);
    ld->e = OK;
    for (size_t done = 0, read = 0; !ld->e && ld->at < ld->end && done < ld->buf_size; done += read) {
        ld->e = load_some(ld, ld->buf_size - done, &read);
        ld->bytes += (int64_t)read;
    }
    /* That it has moved is no failure of its. */
    if ((ld->e == ERR_IO || ld->e == ERR_NOT_FILE) && !partition_successor(ld->p))
        partition_failed(ld->p, ld->e, "read");
}

/* ---- Its way; the loop */

static void submit(struct group_load *ld);

/* A load that needs no worker is over at once, and comes by here before we are through: the rest is ours. */
static void start_next(struct group_loop *at)
{
    struct list_node *n;
    if (at->starting) return;
    at->starting = true;
    while (at->loads < LOADS_AT_ONCE && (n = list_pop_front(&at->load_queue))) {
        struct group_load *ld = CONTAINER_OF(n, struct group_load, in_queue);
        ld->at_work = true;
        at->loads++;
        submit(ld);
    }
    at->starting = false;
}

static void leave_queue(struct group_load *ld)
{
    list_remove(&ld->in_queue);
    if (!ld->at_work) return;
    ld->at_work = false;
    ld->h->at->loads--;
}

/* Frees all but the buffers' owner: it may begin once more. */
static void drop_what_is_read(struct group_load *ld)
{
    if (ld->shard) group_shard_free(ld->shard);
    mem_free(ld->buf);
    partition_unref(ld->p);
    ld->shard = NULL;
    ld->buf = NULL;
    ld->p = NULL;
}

static void load_free(struct group_load *ld)
{
    struct hosted *h = ld->h;
    struct list_node *n;
    leave_queue(ld);
    loop_timer_cancel(h->at->loop, &ld->retry);
    while ((n = list_pop_front(&ld->forgotten))) {
        mem_free(CONTAINER_OF(n, struct forgotten, node)->topic);
        mem_free(CONTAINER_OF(n, struct forgotten, node));
    }
    drop_what_is_read(ld);
    mem_free(ld);
    h->load = NULL;
}

static void give_up(struct group_load *ld)
{
    struct hosted *h = ld->h;
    LOG_INFO("coordinator_load_given_up", "partition=%d epoch=%d", h->index, h->epoch);
    load_free(ld);
    start_next(h->at);
    hosted_load_ended(h);
}

static void finish(struct group_load *ld)
{
    struct hosted *h = ld->h;
    struct loop *l = h->at->loop;
    int64_t now_us = clock_mono_us(loop_clock(l));
    group_shard_loaded(ld->shard, loop_now_us(l) / 1000, clock_wall_ms(h->groups->br->clock));
    struct group_shard *shard = ld->shard;
    ld->shard = NULL;
    LIST_EACH (&ld->forgotten, n)
        group_shard_forget_topic(shard, str_of(CONTAINER_OF(n, struct forgotten, node)->topic));
    if (ld->damaged)
        LOG_WARN("group_records_skipped", "partition=%d records=%" PRId64 " reason=\"they cannot be read\"", h->index,
                 ld->damaged);
    if (ld->records)
        LOG_INFO("coordinator_loaded",
                 "partition=%d epoch=%d groups=%zu records=%" PRId64 " bytes=%" PRId64 " ms=%" PRId64, h->index,
                 h->epoch, group_shard_count(shard), ld->records, ld->bytes, (now_us - ld->began_us) / 1000);
    load_free(ld);
    hosted_open(h, shard);
    start_next(h->at);
}

static void on_retry(struct timer *t)
{
    struct group_load *ld = CONTAINER_OF(t, struct group_load, retry);
    list_push_back(&ld->h->at->load_queue, &ld->in_queue);
    start_next(ld->h->at);
}

/* From the start, with a new shard. */
static void try_again(struct group_load *ld)
{
    struct hosted *h = ld->h;
    LOG_ERROR("coordinator_load_failed",
              "partition=%d offset=%" PRId64 " error=%s reason=\"cannot read %s: %s\" retry_ms=%" PRId64
              " notice=\"its groups are told COORDINATOR_LOAD_IN_PROGRESS\"",
              h->index, ld->at, err_name(ld->e), ld->what, err_text(ld->e), ld->retry_us / 1000);
    leave_queue(ld);
    drop_what_is_read(ld);
    loop_timer_set(h->at->loop, &ld->retry, loop_now_us(h->at->loop) + ld->retry_us);
    ld->retry_us = MIN(ld->retry_us * 2, (int64_t)RETRY_US_MAX);
    start_next(h->at);
}

static void load_done(struct job *job)
{
    struct group_load *ld = CONTAINER_OF(job, struct group_load, job);
    hosted_settle(ld->h); /* to where the partition is now; or this is not wanted any more */
    if (ld->cancelled)
        give_up(ld);
    else if (ld->e && !partition_successor(ld->p))
        try_again(ld);
    else /* more of it; of one that has just moved, where it is now */
        submit(ld);
}

static void prepare(struct group_load *ld)
{
    struct hosted *h = ld->h;
    struct group_shard_env env = groups_shard_env;
    env.arg = h;
    ld->shard = group_shard_new(h->index, &env, &h->groups->options);
    ld->at = plog_start(h->p->pl);
    ld->end = plog_end(h->p->pl);
    ld->bytes = ld->records = ld->damaged = 0;
    ld->began_us = clock_mono_us(loop_clock(h->at->loop));
    ld->buf_size = (size_t)MIN(h->groups->load_bytes, MAX(plog_size(h->p->pl), 1));
    ld->buf = mem_alloc(ld->buf_size);
}

/* The next part, or the end: an empty partition never sees a worker. */
static void submit(struct group_load *ld)
{
    struct hosted *h = ld->h;
    if (!ld->shard) prepare(ld);
    if (ld->p != h->p) { /* the first time, or it has moved */
        partition_unref(ld->p);
        ld->p = partition_ref(h->p);
    }
    if (ld->at >= ld->end) {
        finish(ld);
        return;
    }
    ld->job = (struct job){.loop = h->at->loop, .work = load_work, .done = load_done};
    workers_submit(h->groups->br->workers, &ld->job);
}

void group_load_begin(struct hosted *h)
{
    struct group_load *ld = mem_zalloc(1, sizeof *ld);
    ld->h = h;
    ld->retry.fire = on_retry;
    ld->retry_us = RETRY_US_MIN;
    list_init(&ld->forgotten);
    h->load = ld;
    list_push_back(&h->at->load_queue, &ld->in_queue);
    start_next(h->at);
}

void group_load_cancel(struct hosted *h)
{
    struct group_load *ld = h->load;
    if (ld->at_work)
        ld->cancelled = true; /* the worker has it */
    else
        give_up(ld);
}

void group_load_forget(struct hosted *h, struct str topic)
{
    struct forgotten *f = mem_zalloc(1, sizeof *f);
    f->topic = mem_strndup(topic.data, topic.size);
    list_push_back(&h->load->forgotten, &f->node);
}
