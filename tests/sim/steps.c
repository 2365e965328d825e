/* steps.c: what is done to the logs, one thing a step. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"
#include "sim.h"

enum {
    RECORDS_MAX = 4,
    VALUE_MAX = 400,
    REPLICA_BATCHES_MAX = 4,
    TRUNCATED_BATCHES_MAX = 10,
    PRODUCER_FIRST = 100, /* ids */
    CHANGES_BEFORE_LOSS_MAX = 25,
};

/* ---- Batches */

struct spec {
    int64_t producer_id; /* -1: none */
    int16_t producer_epoch;
    int32_t sequence;
    bool transactional, marker, commit;
};
#define SPEC_PLAIN ((struct spec){.producer_id = -1})

/* The bytes of a batch, to be freed with writer_fini(). */
static void batch_make(struct world *w, const struct spec *s, struct writer *out)
{
    struct batch_builder bb;
    int16_t attributes = s->marker || !one_in(w, 6) ? 0 : (int16_t)(1 + draw(w, CODEC_COUNT - 1));
    if (s->transactional || s->marker) attributes |= BATCH_TRANSACTIONAL;
    if (s->marker) attributes |= BATCH_CONTROL;
    int64_t timestamp = w->now_ms - (one_in(w, 8) ? (int64_t)draw(w, 1000) : 0);
    batch_builder_init(&bb, w->pool, attributes, timestamp);
    if (s->producer_id >= 0) {
        bb.info.producer_id = s->producer_id;
        bb.info.producer_epoch = s->producer_epoch;
        bb.info.base_sequence = s->marker ? -1 : s->sequence;
    }
    uint8_t value[VALUE_MAX];
    int count = s->marker ? 0 : 1 + (int)draw(w, RECORDS_MAX);
    for (int i = 0; i < count; i++) {
        size_t size = (size_t)draw(w, one_in(w, 4) ? VALUE_MAX : 60);
        for (size_t k = 0; k < size; k++) value[k] = (uint8_t)draw(w, one_in(w, 2) ? 2 : 256);
        char key[8];
        int key_size = snprintf(key, sizeof key, "k%d", (int)draw(w, 20));
        batch_builder_add(&bb, timestamp + i, (struct bytes){(uint8_t *)key, (size_t)key_size},
                          (struct bytes){value, size}, NULL, 0);
    }
    if (s->marker) batch_builder_add_marker(&bb, &(struct txn_marker){.commit = s->commit, .timestamp = timestamp});
    writer_init(out, w->pool);
    enum err e = batch_builder_finish(&bb, out);
    ASSERT(!e);
    batch_builder_fini(&bb);
}

static void append_done(struct append *a)
{
    a->done = NULL;
}

static void append_bytes(struct world *w, struct sim_partition *sp, struct writer *bytes, enum append_origin origin,
                         struct append *a)
{
    *a = (struct append){
        .buf = bytes->buf,
        .data = bytes->buf->data,
        .size = bytes->size,
        .origin = origin,
        .leader_epoch = sp->model.epoch,
        .now_ms = w->now_ms,
        .done = append_done,
    };
    enum err e = batch_parse_header(&a->info, a->data, INT32_MAX);
    ASSERT(!e);
    plog_append(sp->p->pl, a);
    ASSERT(!a->done); /* nobody else is writing */
}

/* What an append of these bytes has done, or may have done, to the log. */
static void model_take(struct world *w, struct sim_partition *sp, struct writer *bytes, const struct append *a)
{
    struct model *m = &sp->model;
    uint8_t *data = bytes->buf->data;
    if (a->kerr != KERR_NONE && a->origin != APPEND_REPLICA) { /* as it would have been written */
        batch_set_offset(data, m->end);
        batch_set_leader_epoch(data, m->epoch);
        if (w->config.log.log_append_time) batch_set_append_time(data, bytes->size, w->now_ms);
    }
    for (size_t at = 0; at < bytes->size;) {
        struct batch_info b;
        enum err e = batch_parse_header(&b, data + at, INT32_MAX);
        ASSERT(!e);
        if (a->kerr == KERR_NONE)
            model_append(m, data + at, (size_t)b.size);
        else
            model_ghost(m, data + at, (size_t)b.size);
        at += (size_t)b.size;
    }
}

/* As a produce with flush.messages or flush.mode=group: acknowledged when flushed. */
static void acknowledge(struct world *w, struct sim_partition *sp, const struct append *a)
{
    if (a->kerr != KERR_NONE || !a->must_flush) return;
    bool flushed = plog_recovery_point(sp->p->pl) > a->last_offset;
    say(w, "flushed for it: %s", flushed ? "yes" : "no");
    if (flushed)
        model_promise(&sp->model, a->last_offset + 1);
    else if (atomic_load(&sp->p->online) && fs_sim_fault_count(w->disk) == 0)
        wrong(w, "nobody flushed for an append that waits");
}

static void append_one(struct world *w, struct sim_partition *sp, const struct spec *s, enum append_origin origin)
{
    struct writer bytes;
    struct append a;
    int64_t end = sp->model.end;
    batch_make(w, s, &bytes);
    if (origin == APPEND_REPLICA) {
        batch_set_offset(bytes.buf->data, end);
        batch_set_leader_epoch(bytes.buf->data, sp->model.epoch);
    }
    append_bytes(w, sp, &bytes, origin, &a);
    say(w, "append %s%s producer %" PRId64 " sequence %d at %" PRId64 " to %" PRId64 ": %s",
        s->marker          ? s->commit ? "commit" : "abort"
        : s->transactional ? "transactional"
                           : "data",
        origin == APPEND_REPLICA ? " of a replica" : "", s->producer_id, s->sequence, a.base_offset, a.last_offset,
        kerr_name((int16_t)a.kerr));
    if (a.kerr == KERR_NONE && a.base_offset != end)
        wrong(w, "appended at %" PRId64 ", the log ended at %" PRId64, a.base_offset, end);
    if (a.kerr != KERR_NONE && a.kerr != KERR_KAFKA_STORAGE_ERROR && a.kerr != KERR_RECORD_LIST_TOO_LARGE)
        wrong(w, "append failed with %s", kerr_name((int16_t)a.kerr));
    model_take(w, sp, &bytes, &a);
    acknowledge(w, sp, &a);
    writer_fini(&bytes);
}

/* ---- Producers */

struct search {
    int64_t id;
    struct producer_view view;
};

static void look_at(void *arg, const struct producer_view *p)
{
    struct search *s = arg;
    if (p->producer_id == s->id) s->view = *p;
}

/* What the log knows of the producer; a client that comes back after a crash goes on from there. */
static struct producer_view producer_of(struct sim_partition *sp, int64_t id)
{
    struct search s = {.id = id,
                       .view = {.producer_id = -1, .txn_start_offset = -1, .last_sequence = -1, .producer_epoch = 0}};
    plog_each_producer(sp->p->pl, look_at, &s);
    return s.view;
}

static struct spec next_of(struct world *w, struct sim_partition *sp, struct producer_view *view)
{
    int64_t id = PRODUCER_FIRST + (int64_t)draw(w, PRODUCERS);
    *view = producer_of(sp, id);
    return (struct spec){
        .producer_id = id, .producer_epoch = view->producer_epoch, .sequence = (view->last_sequence + 1) & INT32_MAX};
}

static void step_append(struct world *w, struct sim_partition *sp)
{
    append_one(w, sp, &SPEC_PLAIN, one_in(w, 5) ? APPEND_COORDINATOR : APPEND_CLIENT);
}

static void step_append_idempotent(struct world *w, struct sim_partition *sp)
{
    struct producer_view view;
    struct spec s = next_of(w, sp, &view);
    s.transactional = view.txn_start_offset >= 0 || one_in(w, 2);
    if (!s.transactional && one_in(w, 6)) {
        s.producer_epoch++;
        s.sequence = 0;
    }
    append_one(w, sp, &s, one_in(w, 4) ? APPEND_REPLICA : APPEND_CLIENT);
}

static void step_marker(struct world *w, struct sim_partition *sp)
{
    struct producer_view view;
    struct spec s = next_of(w, sp, &view);
    if (view.producer_id < 0) return;
    s.marker = true;
    s.commit = one_in(w, 2);
    append_one(w, sp, &s, APPEND_COORDINATOR);
}

/* The batch that the producer wrote last, sent once more; and one that comes too early. */
static void step_duplicate(struct world *w, struct sim_partition *sp)
{
    struct producer_view view;
    struct spec s = next_of(w, sp, &view);
    struct model *m = &sp->model;
    if (view.last_sequence < 0 || w->config.cleans) return; /* what the client would send is not in the log any more */
    for (size_t i = m->batches.count; i-- > 0;) {
        struct batch_info b;
        const struct sim_batch *batch = &m->batches.list[i];
        enum err e = batch_parse_header(&b, batch->bytes, INT32_MAX);
        ASSERT(!e);
        if (b.producer_id != s.producer_id || (b.attributes & BATCH_CONTROL)) continue;
        if (b.producer_epoch != view.producer_epoch) return;
        struct writer bytes;
        struct append a;
        writer_init(&bytes, w->pool);
        writer_bytes(&bytes, batch->bytes, batch->size);
        append_bytes(w, sp, &bytes, APPEND_CLIENT, &a);
        if (a.kerr != KERR_DUPLICATE_SEQUENCE_NUMBER && a.kerr != KERR_KAFKA_STORAGE_ERROR)
            wrong(w, "a duplicate got %s", kerr_name((int16_t)a.kerr));
        else if (a.kerr == KERR_DUPLICATE_SEQUENCE_NUMBER && a.base_offset != batch->base)
            wrong(w, "a duplicate of %" PRId64 " was taken for %" PRId64, batch->base, a.base_offset);
        writer_fini(&bytes);
        return;
    }
}

/* What a follower fetches: several batches with their offsets. */
static void step_append_replica(struct world *w, struct sim_partition *sp)
{
    struct writer all;
    struct append a;
    int64_t next = sp->model.end;
    int count = 1 + (int)draw(w, REPLICA_BATCHES_MAX);
    writer_init(&all, w->pool);
    for (int i = 0; i < count; i++) {
        struct writer one;
        struct batch_info b;
        batch_make(w, &SPEC_PLAIN, &one);
        if (w->config.gaps && one_in(w, 3)) next += (int64_t)draw(w, 30);
        batch_set_offset(one.buf->data, next);
        batch_set_leader_epoch(one.buf->data, sp->model.epoch);
        enum err e = batch_parse_header(&b, one.buf->data, INT32_MAX);
        ASSERT(!e);
        next = batch_last_offset(&b) + 1;
        writer_bytes(&all, one.buf->data, one.size);
        writer_fini(&one);
    }
    append_bytes(w, sp, &all, APPEND_REPLICA, &a);
    say(w, "append %d batches of a replica at %" PRId64 " to %" PRId64 ": %s", count, a.base_offset, a.last_offset,
        kerr_name((int16_t)a.kerr));
    if (a.kerr != KERR_NONE && a.kerr != KERR_KAFKA_STORAGE_ERROR && a.kerr != KERR_RECORD_LIST_TOO_LARGE)
        wrong(w, "append failed with %s", kerr_name((int16_t)a.kerr));
    model_take(w, sp, &all, &a);
    acknowledge(w, sp, &a);
    writer_fini(&all);
}

/* ---- Upkeep */

static void step_epoch(struct world *w, struct sim_partition *sp)
{
    sp->model.epoch += 1 + (int32_t)draw(w, 3);
    enum err e = plog_epoch_begin(sp->p->pl, sp->model.epoch);
    say(w, "epoch %d begins: %s", sp->model.epoch, err_name(e));
}

static void step_flush(struct world *w, struct sim_partition *sp)
{
    enum err e = plog_flush(sp->p->pl);
    say(w, "flush to %" PRId64 ": %s", sp->model.end, err_name(e));
    if (!e) model_promise(&sp->model, sp->model.end);
}

static void step_work(struct world *w, struct sim_partition *sp)
{
    enum err e = plog_work(sp->p->pl);
    say(w, "work: %s", err_name(e));
}

static void step_retain(struct world *w, struct sim_partition *sp)
{
    struct plog_config config = w->config.log;
    if (one_in(w, 2))
        config.retention_bytes = (int64_t)draw(w, 20000);
    else if (one_in(w, 2))
        config.retention_ms = (int64_t)draw(w, 5000);
    int64_t next_ms;
    plog_reconfigure(sp->p->pl, &config);
    enum err e = plog_retain(sp->p->pl, w->now_ms, partition_high_watermark(sp->p), &next_ms);
    plog_reconfigure(sp->p->pl, &w->config.log);
    say(w, "retention, start %" PRId64 ": %s", plog_start(sp->p->pl), err_name(e));
}

static void step_raise_start(struct world *w, struct sim_partition *sp)
{
    const struct model *m = &sp->model;
    int64_t to = m->start + (int64_t)draw(w, (uint64_t)(m->end - m->start) / 3 + 1);
    enum err e = partition_raise_start(sp->p, to);
    say(w, "start raised to %" PRId64 ": %s", to, err_name(e));
}

static void step_checkpoint(struct world *w, struct sim_partition *sp)
{
    (void)sp;
    enum chore_kind kind = (enum chore_kind)(CHORE_CHECKPOINT + draw(w, CHORE_CLEANED + 1 - CHORE_CHECKPOINT));
    enum err e = replicas_write_checkpoints(w->r, kind);
    say(w, "checkpoint %d: %s", (int)kind, err_name(e));
    for (int i = 0; i < w->config.partitions && !e && kind == CHORE_STARTS; i++)
        if (w->parts[i].p && atomic_load(&w->parts[i].p->online))
            w->parts[i].model.start_promised = plog_start(w->parts[i].p->pl);
}

/* A truncation for which there was no room: nothing is appended before it is over; or it never is. */
static enum err end_truncation(struct world *w, struct sim_partition *sp, enum err why)
{
    struct writer bytes;
    struct append a;
    if (!plog_error_passes(why)) {
        wrong(w, "half a truncation, and it goes on");
        return why;
    }
    batch_make(w, &SPEC_PLAIN, &bytes);
    append_bytes(w, sp, &bytes, APPEND_CLIENT, &a);
    if (a.kerr != KERR_KAFKA_STORAGE_ERROR)
        wrong(w, "half a truncation, and an append got %s", kerr_name((int16_t)a.kerr));
    writer_fini(&bytes);
    if (one_in(w, 2)) {
        partition_set_offline(sp->p);
        return why;
    }
    world_faults_off(w);
    enum err e = plog_truncate(sp->p->pl, plog_end(sp->p->pl));
    world_faults_on(w);
    say(w, "the rest of it: %s", err_name(e));
    if (e && fs_sim_has_power(w->disk)) wrong(w, "the rest of a truncation failed: %s", err_name(e));
    return e;
}

/* As a follower does whose leader knows better. */
static void step_truncate(struct world *w, struct sim_partition *sp)
{
    struct model *m = &sp->model;
    size_t first = model_count_below(m, m->start), count = m->batches.count - first;
    if (count == 0 || !one_in(w, 2)) return;
    size_t at = m->batches.count - 1 - (size_t)draw(w, MIN(count, TRUNCATED_BATCHES_MAX));
    const struct sim_batch *b = &m->batches.list[at];
    int64_t to = b->base + (one_in(w, 3) ? (int64_t)draw(w, (uint64_t)(b->last - b->base) + 1) : 0);
    /* Where the batch before ends a gap begins, which may stay with the log. */
    int64_t end = b->base, start = m->start;
    model_may_end_at(m, at > 0 ? m->batches.list[at - 1].last + 1 : 0);
    /* In the midst of the first batch: the start may go down with it. */
    m->start_promised = MIN(m->start_promised, end);
    enum err e = plog_truncate(sp->p->pl, to);
    say(w, "truncate to %" PRId64 " (batch %" PRId64 "): %s", to, end, err_name(e));
    if (e && plog_end(sp->p->pl) != m->end && atomic_load(&sp->p->online)) e = end_truncation(w, sp, e);
    if (e) return;
    model_truncate(m, plog_end(sp->p->pl));
    if (m->end > MIN(to, end)) wrong(w, "truncated to %" PRId64 ", ends at %" PRId64, to, m->end);
    atomic_store(&sp->p->high_watermark, MIN(partition_high_watermark(sp->p), m->end));
    e = replicas_write_checkpoints(w->r, CHORE_CHECKPOINT); /* before anything is appended: plog.h */
    if (!e) e = replicas_write_checkpoints(w->r, CHORE_STARTS);
    if (!e) return;
    m->start = MAX(m->start, start); /* the checkpoint may say so still */
    partition_set_offline(sp->p);
}

static void step_clean(struct world *w, struct sim_partition *sp)
{
    if (w->config.cleans) clean_once(w, sp);
}

static void step_time(struct world *w, struct sim_partition *sp)
{
    (void)sp;
    w->now_ms += (int64_t)draw(w, 3000);
}

static void step_read(struct world *w, struct sim_partition *sp)
{
    world_faults_off(w);
    fs_sim_power_off_after(w->disk, INT64_MAX); /* not now */
    check_reads(w, sp);
    if (one_in(w, 3)) check_state(w, sp);
    world_faults_on(w);
}

/* ---- The next step */

static const struct {
    int weight;
    void (*run)(struct world *w, struct sim_partition *sp);
} steps[] = {
    {20, step_append},        {20, step_append_idempotent},
    {7, step_marker},         {3, step_duplicate},
    {8, step_append_replica}, {3, step_epoch},
    {5, step_flush},          {3, step_work},
    {4, step_retain},         {2, step_raise_start},
    {4, step_checkpoint},     {3, step_truncate},
    {4, step_time},           {2, step_read},
    {8, step_clean},
};

static void run_one(struct world *w, struct sim_partition *sp)
{
    int sum = 0;
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) sum += steps[i].weight;
    int at = (int)draw(w, (uint64_t)sum);
    size_t i = 0;
    for (; at >= steps[i].weight; i++) at -= steps[i].weight;
    steps[i].run(w, sp);
}

/* What the log says of itself after a step, also one that failed: what it promises, and that it is as it should be.  Of
 * one that lost its power only how far its start may have come. */
static void listen(struct world *w, struct sim_partition *sp)
{
    struct plog *pl = sp->p->pl;
    struct model *m = &sp->model;
    bool works = atomic_load(&sp->p->online) && fs_sim_has_power(w->disk);
    if (works && plog_start(pl) < m->start)
        wrong(w, "the start fell from %" PRId64 " to %" PRId64, m->start, plog_start(pl));
    m->start = MAX(m->start, plog_start(pl));
    m->start_max = MAX(m->start_max, m->start);
    if (!works) return;
    if (plog_end(pl) != m->end) wrong(w, "ends at %" PRId64 " instead of %" PRId64, plog_end(pl), m->end);
    if (plog_recovery_point(pl) > m->end) wrong(w, "the recovery point is behind the end");
    model_promise(m, plog_recovery_point(pl));
    for (size_t i = m->ghosts.count; i-- > 0;) /* something else is on the disk in their place */
        if (m->ghosts.list[i].base < m->durable) sim_batches_take_out(&m->ghosts, i, i + 1);
}

void step_any(struct world *w)
{
    w->now_ms += (int64_t)draw(w, 50);
    if (one_in(w, 60)) {
        world_stop_cleanly(w);
        return;
    }
    if (one_in(w, 60)) {
        world_kill(w);
        return;
    }
    bool power = !one_in(w, (uint64_t)w->config.power_one_in);
    if (!power) fs_sim_power_off_after(w->disk, (int64_t)draw(w, CHANGES_BEFORE_LOSS_MAX));
    struct sim_partition *sp = &w->parts[draw(w, (uint64_t)w->config.partitions)];
    world_faults_on(w);
    w->part = (int)(sp - w->parts);
    if (sp->p) run_one(w, sp);
    world_faults_off(w);
    bool online = true;
    for (int i = 0; i < w->config.partitions; i++) {
        if (w->parts[i].p && !w->failed) listen(w, &w->parts[i]);
        online &= w->parts[i].p && atomic_load(&w->parts[i].p->online);
    }
    if (w->failed) return;
    if (!power)
        world_lose_power(w);
    else if (!online && one_in(w, 3))
        world_stop_cleanly(w);
    else if (!online)
        world_kill(w);
}
