/* Fetch (key 1): read from each partition, answer when there is enough or the wait is over.
 *
 * A fetch reads once.  When that is too little it registers with every partition and reads again what a wake-up names,
 * until min bytes are there, something failed, or max wait is over.  Record bytes are not copied: large ranges go from
 * the file to the socket; small ones are read into one buffer.  What is not in the page cache is read by a worker
 * first. */
#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/api/leader_hint.h"
#include "broker/api/locate.h"
#include "broker/fetch_sessions.h"
#include "wire/gen/fetch.h"

enum {
    SMALL_READ_MAX = 32 << 10, /* up to here one read into memory is cheaper than sendfile */
    WARM_READ = 256 << 10
};

enum { VERSION_FROM_FOLLOWERS = 11, VERSION_LEADER_HINTS = 16 };

/* replica.selector.class; whatever else it may be chooses nobody. */
#define RACK_AWARE_SELECTOR "org.apache.kafka.common.replica.RackAwareReplicaSelector"

typedef struct fetch_response_partition_data partition_data;

struct fetch_part {
    const struct fetch_item *item;
    struct fetch *fetch;
    struct partition *p; /* a reference; NULL when refused */
    struct partition_waiter waiter;
    _Atomic bool woken;
    bool cold;  /* a worker must read it */
    bool named; /* the answer tells of it */
    bool noted; /* the leader knows what this follower has */
    enum kerr kerr;
    int64_t high_watermark, last_stable, log_start;
    int64_t log_end;           /* what a follower was shown */
    int32_t preferred_replica; /* to be read from instead; -1: none */
    struct plog_slice slice;
    int32_t diverging_epoch; /* -1: none */
    int64_t diverging_end;
    struct fetch_response_aborted_transaction *aborted;
    int32_t aborted_count;
    size_t aborted_cap;
};

struct fetch {
    struct request *rq;
    enum { FETCH_BEGIN, FETCH_READ } stage;
    struct fetch_plan plan;
    struct fetch_part *parts;
    size_t bytes, bytes_max;
    bool read_committed;
    int32_t replica; /* of the follower that asks; -1: a consumer */
    int64_t replica_epoch;
    struct str rack; /* a consumer's; empty: it does not say, or nobody chooses by it */
    bool failed;     /* some partition has an error, or news that are no records: answered at once */
    bool any_cold;
    bool waiting;
    _Atomic bool overtaken; /* by a later request of the session, whose answer must not wait for ours */
};

/* ---- Reading */

static void abort_add(void *arg, const struct aborted_txn *txn)
{
    struct fetch_part *part = arg;
    part->aborted = mem_grow(part->aborted, &part->aborted_cap, (size_t)part->aborted_count + 1, sizeof *part->aborted);
    part->aborted[part->aborted_count++] =
        (struct fetch_response_aborted_transaction){.producer_id = txn->producer_id, .first_offset = txn->first_offset};
}

static void part_release_read(struct fetch_part *part)
{
    part->fetch->bytes -= part->slice.size;
    plog_slice_release(&part->slice);
    part->slice = (struct plog_slice){0};
    mem_free(part->aborted);
    part->aborted = NULL;
    part->aborted_count = 0;
    part->aborted_cap = 0;
}

static void part_fail(struct fetch_part *part, enum kerr kerr)
{
    part->kerr = kerr;
    part->high_watermark = part->last_stable = part->log_start = -1;
    part->fetch->failed = true;
}

/* KIP-595: the epoch of the last record that the reader has may be one that this log never had, or ended earlier. */
static bool part_diverges(struct fetch_part *part)
{
    const struct fetch_item *it = part->item;
    if (it->last_fetched_epoch < 0) return false;
    int32_t epoch;
    int64_t end;
    plog_epoch_end(part->p->pl, it->last_fetched_epoch, &epoch, &end);
    if (epoch < 0) {
        part_fail(part, KERR_OFFSET_OUT_OF_RANGE);
        return true;
    }
    if (epoch >= it->last_fetched_epoch && end >= it->fetch_offset) return false;
    part->diverging_epoch = epoch;
    part->diverging_end = end;
    part->fetch->failed = true;
    return true;
}

/* True when both ends of the range are in the page cache; the middle is then, as good as always, too. */
static bool slice_is_warm(const struct plog_slice *s)
{
    uint8_t byte;
    size_t got;
    if (file_pread_nowait(s->file, &byte, 1, s->pos, &got) == ERR_AGAIN) return false;
    return file_pread_nowait(s->file, &byte, 1, s->pos + (int64_t)s->size - 1, &got) != ERR_AGAIN;
}

/* To where the partition lives now, if it has moved to another directory. */
static void part_follow(struct fetch_part *part)
{
    struct partition *next = partition_successor(part->p);
    if (!next) return;
    struct partition *left = part->p;
    bool waited = partition_unwait(left, &part->waiter);
    part->p = partition_ref(next);
    if (waited) partition_wait(part->p, &part->waiter);
    partition_unref(left);
}

/* A consumer of KIP-392's age may read from a follower. */
static enum kerr part_check(const struct fetch_part *part)
{
    const struct fetch *f = part->fetch;
    int32_t epoch = part->item->current_leader_epoch;
    if (f->replica < 0 && f->rq->version >= VERSION_FROM_FOLLOWERS) return partition_check_replica(part->p, epoch);
    enum kerr kerr = partition_check_leader(part->p, epoch);
    if (kerr || f->replica < 0) return kerr;
    return partition_check_follower(part->p, f->replica, epoch >= 0);
}

static bool is_near(void *arg, int32_t broker_id)
{
    const struct fetch *f = arg;
    const struct node *n = cluster_node(metadata_cluster(f->rq->broker->metadata), broker_id);
    return n && str_equal(n->rack, f->rack);
}

/* The leader sends a consumer to an in-sync replica in its rack, unless it stands there itself. */
static bool part_is_elsewhere(struct fetch_part *part)
{
    struct fetch *f = part->fetch;
    if (f->rack.size == 0 || !atomic_load(&part->p->leads) || is_near(f, f->rq->broker->id)) return false;
    part->preferred_replica = partition_choose_replica(part->p, part->item->fetch_offset, is_near, f);
    if (part->preferred_replica < 0) return false;
    f->failed = true;
    return true;
}

/* The follower has everything below what it asks for.  Once a request: later it says nothing new. */
static enum kerr part_note(struct fetch_part *part)
{
    const struct fetch *f = part->fetch;
    const struct fetch_item *it = part->item;
    if (part->noted) return KERR_NONE;
    part->noted = true;
    const struct follower_fetch ff = {
        .broker_id = f->replica,
        .broker_epoch = f->replica_epoch,
        .leader_epoch = it->current_leader_epoch,
        .fetch_offset = it->fetch_offset,
        .log_start = it->log_start_offset,
        .now_us = loop_now_us(f->rq->loop),
    };
    return partition_follower_fetched(part->p, &ff);
}

static int64_t part_now_us(const struct fetch_part *part)
{
    return loop_now_us(part->fetch->rq->loop);
}

/* A follower reads up to the log's end, and learns at once of a high watermark that it was not told. */
static bool part_tell_follower(struct fetch_part *part)
{
    struct fetch *f = part->fetch;
    enum kerr kerr = part_note(part);
    if (kerr) {
        part_fail(part, kerr);
        return false;
    }
    part->high_watermark = partition_high_watermark(part->p);
    if (part->high_watermark > part->item->known_high_watermark) f->failed = true;
    return true;
}

/* One partition of a fetch.  No data yet is no error: the slice is empty and the handler waits.  A worker goes on
 * where a loop has been told to come back later: the picture of the cluster and the time are the loop's, and what hangs
 * on them is settled. */
static void part_read(struct fetch_part *part, bool on_loop)
{
    struct fetch *f = part->fetch;
    bool nowait = on_loop;
    const struct fetch_item *it = part->item;
    part_release_read(part);
    part_follow(part);
    struct plog *pl = part->p->pl;
    part->cold = false;
    enum kerr kerr = part_check(part);
    if (kerr) {
        part_fail(part, kerr);
        return;
    }
    part->high_watermark = partition_high_watermark(part->p);
    part->last_stable = partition_last_stable(part->p);
    part->log_start = plog_start(pl);
    part->log_end = plog_end(pl);
    if (it->fetch_offset < part->log_start || it->fetch_offset > part->log_end) {
        part_fail(part, KERR_OFFSET_OUT_OF_RANGE);
        return;
    }
    if (part_diverges(part) || (on_loop && part_is_elsewhere(part))) return;
    if (f->replica >= 0 && !part_tell_follower(part)) return;
    if (f->replica >= 0 && on_loop && partition_holds_back(part->p, f->replica, part_now_us(part))) return;
    int64_t below = f->replica >= 0 ? part->log_end : f->read_committed ? part->last_stable : part->high_watermark;
    size_t left = f->bytes < f->bytes_max ? f->bytes_max - f->bytes : 0;
    size_t part_max = MIN(left, (size_t)MAX(it->max_bytes, 0));
    bool whole_first = f->bytes == 0; /* progress whatever the limits say (KIP-74) */
    if (it->fetch_offset >= below || (part_max == 0 && !whole_first)) return;
    enum err e = plog_read(pl, it->fetch_offset, below, part_max, whole_first, nowait, &part->slice);
    if (!e && nowait && part->slice.size && !slice_is_warm(&part->slice)) e = ERR_AGAIN;
    if (!e && f->read_committed) e = plog_aborted_txns(pl, it->fetch_offset, below, nowait, abort_add, part);
    if (e) {
        plog_slice_release(&part->slice);
        part->slice = (struct plog_slice){0};
    }
    if (e == ERR_AGAIN) {
        part->cold = f->any_cold = true;
        return;
    }
    if (e) {
        if (e == ERR_IO || e == ERR_NOT_FILE) partition_failed(part->p, e, "read");
        part_fail(part, kerr_of(e));
        return;
    }
    f->bytes += part->slice.size;
}

/* On a worker: reads what was cold, so that sending it will not wait for the disk. */
static void fetch_warm(struct request *rq)
{
    struct fetch *f = rq->op;
    uint8_t *scratch = mem_alloc(WARM_READ);
    for (int32_t i = 0; i < f->plan.count; i++) {
        struct fetch_part *part = &f->parts[i];
        if (!part->cold) continue;
        part_read(part, false);
        int64_t end = part->slice.pos + (int64_t)part->slice.size;
        size_t got = 1;
        for (int64_t at = part->slice.pos; at < end && got; at += WARM_READ)
            if (file_pread(part->slice.file, scratch, (size_t)MIN((int64_t)WARM_READ, end - at), at, &got)) break;
    }
    mem_free(scratch);
    f->any_cold = false;
}

static void fetch_locate(struct request *rq, struct fetch *f)
{
    f->parts = arena_array(&rq->arena, struct fetch_part, (size_t)f->plan.count);
    for (int32_t i = 0; i < f->plan.count; i++) {
        struct fetch_part *part = &f->parts[i];
        part->item = &f->plan.items[i];
        part->fetch = f;
        part->diverging_epoch = -1;
        part->preferred_replica = -1;
        struct located at;
        enum kerr kerr =
            locate_replica(rq->broker, part->item->topic, part->item->topic_id, part->item->partition, &at);
        if (kerr)
            part_fail(part, kerr);
        else
            part->p = partition_ref(at.partition);
    }
}

static void fetch_read_all(struct fetch *f)
{
    for (int32_t i = 0; i < f->plan.count; i++)
        if (f->parts[i].p) part_read(&f->parts[i], true);
}

/* ---- Waiting */

static void waiter_wake(struct partition_waiter *w)
{
    struct fetch_part *part = CONTAINER_OF(w, struct fetch_part, waiter);
    atomic_store(&part->woken, true);
    request_wake(part->fetch->rq);
}

static void on_overtaken(void *arg)
{
    struct fetch *f = arg;
    atomic_store(&f->overtaken, true);
    request_wake(f->rq);
}

static bool fetch_is_satisfied(const struct request *rq, const struct fetch *f)
{
    const struct fetch_request *in = rq->in;
    return f->failed || (int64_t)f->bytes >= in->min_bytes || in->max_wait_ms <= 0 || rq->expired || rq->cancelled ||
           f->plan.count == 0 || atomic_load(&f->overtaken);
}

/* Registers everywhere, then marks for a second look what moved before that. */
static void fetch_wait(struct request *rq, struct fetch *f)
{
    const struct fetch_request *in = rq->in;
    f->waiting = true;
    request_uncount(rq);
    request_wait_until(rq, loop_now_us(rq->loop) + (int64_t)in->max_wait_ms * 1000);
    fetch_plan_watch(&f->plan, on_overtaken, f);
    for (int32_t i = 0; i < f->plan.count; i++) {
        struct fetch_part *part = &f->parts[i];
        if (!part->p) continue;
        part->waiter.wake = waiter_wake;
        /* An append alone shows a consumer nothing new, and a follower everything. */
        part->waiter.until_high_watermark = f->replica >= 0 ? 0 : part->high_watermark + 1;
        partition_wait(part->p, &part->waiter);
        if (partition_high_watermark(part->p) != part->high_watermark ||
            (f->replica >= 0 && plog_end(part->p->pl) != part->log_end) || part_check(part))
            atomic_store(&part->woken, true);
    }
}

static void fetch_read_woken(struct fetch *f)
{
    for (int32_t i = 0; i < f->plan.count; i++)
        if (f->parts[i].p && atomic_exchange(&f->parts[i].woken, false)) part_read(&f->parts[i], true);
}

/* ---- Answering */

static void release_file(void *owner)
{
    file_unref(owner);
}

static void release_buf(void *owner)
{
    buf_unref(owner);
}

/* The slice as a splice; it takes over the slice's file. */
static enum err slice_to_splice(struct request *rq, struct plog_slice *s, struct splice *out)
{
    if (s->size > SMALL_READ_MAX && s->file->fd >= 0) {
        *out = (struct splice){
            .fd = s->file->fd, .pos = s->pos, .size = s->size, .owner = s->file, .release = release_file};
        s->file = NULL;
        return OK;
    }
    struct buf *b = buf_new(rq->broker->bufs, s->size);
    size_t got;
    enum err e = file_pread(s->file, b->data, s->size, s->pos, &got);
    if (!e && got < s->size) e = ERR_TRUNCATED;
    if (e) {
        buf_unref(b);
        return e;
    }
    *out = (struct splice){.data = b->data, .size = s->size, .owner = b, .release = release_buf};
    return OK;
}

static void fill_records(struct request *rq, struct fetch_part *part, partition_data *pd)
{
    static const uint8_t none;
    pd->records.bytes = (struct bytes){&none, 0};
    if (!part->slice.size) return;
    struct splice *s = arena_alloc(&rq->arena, sizeof *s);
    enum err e = slice_to_splice(rq, &part->slice, s);
    if (e) {
        if (e == ERR_IO || e == ERR_NOT_FILE) partition_failed(part->p, e, "read");
        part_fail(part, kerr_of(e));
        pd->error_code = (int16_t)part->kerr;
        return;
    }
    pd->records = (struct records){.splices = s, .splice_count = 1};
    if (part->fetch->replica >= 0) partition_charge(part->p, part->slice.size, part_now_us(part));
}

static void fill_partition(struct request *rq, struct fetch_part *part, partition_data *pd)
{
    *pd = fetch_response_partition_data_default;
    pd->partition_index = part->item->partition;
    pd->error_code = (int16_t)part->kerr;
    pd->high_watermark = part->high_watermark;
    pd->last_stable_offset = part->last_stable;
    pd->log_start_offset = part->log_start;
    if (part->diverging_epoch >= 0) {
        pd->diverging_epoch.epoch = part->diverging_epoch;
        pd->diverging_epoch.end_offset = part->diverging_end;
    }
    pd->preferred_read_replica = part->preferred_replica;
    pd->aborted_transactions_count = -1;
    if (part->fetch->read_committed && !part->kerr) {
        pd->aborted_transactions_count = part->aborted_count;
        pd->aborted_transactions =
            arena_array(&rq->arena, struct fetch_response_aborted_transaction, (size_t)part->aborted_count);
        if (part->aborted_count)
            memcpy(pd->aborted_transactions, part->aborted, (size_t)part->aborted_count * sizeof *part->aborted);
    }
    fill_records(rq, part, pd);
    if (rq->version < VERSION_LEADER_HINTS) return;
    struct leader_hint hint =
        leader_hint_of(rq, part->item->topic, part->item->topic_id, part->item->partition, part->kerr);
    pd->current_leader.leader_id = hint.leader;
    pd->current_leader.leader_epoch = hint.leader_epoch;
}

static bool same_topic(const struct fetch_response_fetchable_topic_response *to, const struct fetch_item *it)
{
    return str_is_null(it->topic) ? uuid_equal(to->topic_id, it->topic_id) : str_equal(to->topic, it->topic);
}

/* Which partitions the answer must tell of.  The plan may fail here: a later request of the session overtook us. */
static void fetch_choose(struct fetch *f)
{
    for (int32_t i = 0; i < f->plan.count && !f->plan.kerr; i++) {
        struct fetch_part *part = &f->parts[i];
        const struct fetch_found found = {
            .kerr = part->kerr,
            .high_watermark = part->high_watermark,
            .log_start = part->log_start,
            .has_records = part->slice.size > 0,
            .other_news = part->diverging_epoch >= 0 || part->preferred_replica >= 0,
        };
        part->named = fetch_plan_include(&f->plan, part->item, &found);
    }
}

/* Neighbours of one topic share an entry. */
static void fetch_fill(struct request *rq, struct fetch *f)
{
    struct fetch_response *out = rq->out;
    size_t n = (size_t)f->plan.count;
    out->responses = arena_array(&rq->arena, struct fetch_response_fetchable_topic_response, n);
    partition_data *all = arena_array(&rq->arena, partition_data, n);
    struct leader_hint *hints = arena_array(&rq->arena, struct leader_hint, n);
    struct fetch_response_fetchable_topic_response *to = NULL;
    int32_t hint_count = 0;
    for (int32_t i = 0; i < f->plan.count; i++) {
        struct fetch_part *part = &f->parts[i];
        if (!part->named) continue;
        if (!to || !same_topic(to, part->item)) {
            to = &out->responses[out->responses_count++];
            *to = fetch_response_fetchable_topic_response_default;
            if (!str_is_null(part->item->topic)) to->topic = part->item->topic;
            to->topic_id = part->item->topic_id;
            to->partitions = all;
        }
        fill_partition(rq, part, all++);
        to->partitions_count++;
        const partition_data *pd = &to->partitions[to->partitions_count - 1];
        if (pd->current_leader.leader_id >= 0)
            hints[hint_count++] = (struct leader_hint){pd->current_leader.leader_id, pd->current_leader.leader_epoch};
    }
    if (!hint_count) return;
    int32_t count;
    struct hint_endpoint *list = leader_hint_endpoints(rq, hints, hint_count, &count);
    out->node_endpoints = arena_array(&rq->arena, struct fetch_response_node_endpoint, (size_t)count);
    out->node_endpoints_count = count;
    for (int32_t i = 0; i < count; i++)
        out->node_endpoints[i] = (struct fetch_response_node_endpoint){
            .node_id = list[i].id, .host = list[i].host, .port = list[i].port, .rack = list[i].rack};
}

static enum step fetch_finish(struct request *rq, struct fetch *f)
{
    struct fetch_response *out = rq->out;
    for (int32_t i = 0; f->waiting && i < f->plan.count; i++)
        if (f->parts[i].p) partition_unwait(f->parts[i].p, &f->parts[i].waiter);
    if (!f->plan.kerr) fetch_choose(f);
    if (!f->plan.kerr) fetch_fill(rq, f);
    out->error_code = (int16_t)f->plan.kerr;
    out->session_id = f->plan.session_id;
    for (int32_t i = 0; f->parts && i < f->plan.count; i++) {
        part_release_read(&f->parts[i]);
        partition_unref(f->parts[i].p);
    }
    fetch_plan_end(&f->plan);
    return DONE;
}

static void fetch_begin(struct request *rq, struct fetch *f)
{
    const struct fetch_request *in = rq->in;
    const struct config *cfg = broker_config(rq->broker, rq->loop);
    f->rq = rq;
    f->read_committed = in->isolation_level == 1;
    f->bytes_max = (size_t)MIN((int64_t)MAX(in->max_bytes, 0), config_i64(cfg, CFG_FETCH_MAX_BYTES));
    f->replica = in->replica_id >= 0 ? in->replica_id : in->replica_state.replica_id;
    f->replica_epoch = in->replica_id >= 0 ? -1 : in->replica_state.replica_epoch;
    if (f->replica < 0 && in->rack_id.size > 0 &&
        str_is(str_of(config_str(cfg, CFG_REPLICA_SELECTOR_CLASS)), RACK_AWARE_SELECTOR))
        f->rack = in->rack_id;
    fetch_plan_begin(&f->plan, rq->broker->fetch_sessions, in, rq->version >= 13, f->replica >= 0,
                     loop_now_ms(rq->loop), &rq->arena);
}

enum step fetch_handle(struct request *rq)
{
    struct fetch *f = REQUEST_OP(rq, struct fetch);
    switch (f->stage) {
    case FETCH_BEGIN: /* the session says what to read */
        fetch_begin(rq, f);
        if (f->plan.kerr) return fetch_finish(rq, f);
        fetch_locate(rq, f);
        fetch_read_all(f);
        f->stage = FETCH_READ;
        FALLTHROUGH;
    case FETCH_READ: /* woken when a partition moves, when a worker has read, or at the deadline */
        for (;;) {
            if (f->waiting) fetch_read_woken(f);
            if (f->any_cold && !rq->cancelled) {
                request_offload(rq, fetch_warm);
                return WAIT;
            }
            if (fetch_is_satisfied(rq, f)) return fetch_finish(rq, f);
            if (f->waiting) return WAIT;
            fetch_wait(rq, f);
        }
    }
    UNREACHABLE();
}
