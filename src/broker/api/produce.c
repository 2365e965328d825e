/* Produce (key 0): append to each partition, answer when `acks` is met. */
#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/api/leader_hint.h"
#include "broker/api/locate.h"
#include "broker/api/still_leads.h"
#include "broker/broker.h"
#include "broker/conn.h"
#include "broker/refused.h"
#include "wire/batch.h"
#include "wire/gen/produce.h"

enum { ACKS_ALL = -1, ACKS_NONE = 0, ACKS_LEADER = 1 };
enum { VERSION_ZSTD = 7, VERSION_LEADER_HINTS = 10, VERSION_BY_TOPIC_ID = 13 };

typedef struct produce_request_partition_produce_data partition_data;
typedef struct produce_response_partition_produce_response partition_response;

struct produce_part {
    struct append append;
    struct partition_waiter waiter;
    struct produce *produce;
    struct partition *p;    /* a reference; NULL when refused before */
    struct partition *left; /* a reference: it has moved from there meanwhile */
    partition_response *out;
    struct refused_at at; /* as the request names it */
    struct batch_rules rules;
    bool check_later; /* it must be decompressed to be checked: on a worker */
    bool keep_codec;  /* compression.type=producer; else into this codec, on a worker, before it is appended */
    bool repack;
    enum codec codec;
    int level;
    struct buf *packed;
    bool appended;
    struct still_leads *doubt; /* the store is asked whether it is led here still; NULL: not, or not any more */
    bool counted;              /* it was looked whether enough replicas have it */
    uint32_t flushes_failed;   /* of the partition, when the append began */
};

struct produce {
    struct request *rq;
    enum { PRODUCE_CHECK, PRODUCE_PACK, PRODUCE_APPEND, PRODUCE_DOUBT, PRODUCE_SETTLE } stage;
    int16_t acks;
    struct produce_part *parts;
    int32_t count;
    _Atomic int32_t appends_pending; /* one more while they are being started */
    struct loop_msg appended_msg;    /* the last one's word, from whichever thread wrote it */
    bool appends_done;
    int32_t doubts; /* parts whose `doubt` is out */
    bool any_heavy; /* a worker checks or packs something first */
    bool waiting;
};

/* ---- Answers */

static void part_fail(struct produce_part *part, enum kerr kerr, const char *message)
{
    part->out->error_code = (int16_t)kerr;
    part->out->base_offset = -1;
    part->out->log_append_time_ms = -1;
    part->out->log_start_offset = -1;
    if (message) part->out->error_message = str_of(message);
}

static void part_fail_records(struct request *rq, struct produce_part *part, const struct batch_verdict *v)
{
    part_fail(part, v->kerr, v->message);
    part->out->record_errors =
        arena_array(&rq->arena, struct produce_response_batch_index_and_error_message, (size_t)v->error_count);
    part->out->record_errors_count = v->error_count;
    for (int32_t i = 0; i < v->error_count; i++) {
        part->out->record_errors[i].batch_index = v->errors[i].index;
        part->out->record_errors[i].batch_index_error_message = str_of(v->errors[i].message);
    }
}

/* The answer's skeleton in the request's order; every partition has its place before anything is appended. */
static void produce_prepare(struct request *rq, struct produce *p)
{
    const struct produce_request *in = rq->in;
    struct produce_response *out = rq->out;
    p->rq = rq;
    p->acks = in->acks;
    out->responses =
        arena_array(&rq->arena, struct produce_response_topic_produce_response, (size_t)MAX(in->topic_data_count, 0));
    for (int32_t t = 0; t < in->topic_data_count; t++) p->count += MAX(in->topic_data[t].partition_data_count, 0);
    p->parts = arena_array(&rq->arena, struct produce_part, (size_t)p->count);
    struct produce_part *part = p->parts;
    for (int32_t t = 0; t < in->topic_data_count; t++) {
        struct produce_response_topic_produce_response *to = &out->responses[out->responses_count++];
        *to = produce_response_topic_produce_response_default;
        to->name = in->topic_data[t].name;
        to->topic_id = in->topic_data[t].topic_id;
        int32_t n = MAX(in->topic_data[t].partition_data_count, 0);
        to->partition_responses = arena_array(&rq->arena, partition_response, (size_t)n);
        to->partition_responses_count = n;
        for (int32_t i = 0; i < n; i++, part++) {
            part->produce = p;
            part->out = &to->partition_responses[i];
            *part->out = produce_response_partition_produce_response_default;
            part->out->index = in->topic_data[t].partition_data[i].index;
            part->at = (struct refused_at){to->name, to->topic_id, part->out->index};
            /* The frame is ours: the log patches offset and epoch in place. */
            part->append.buf = rq->frame;
            part->append.data = (uint8_t *)(uintptr_t)in->topic_data[t].partition_data[i].records.bytes.data;
            part->append.size = in->topic_data[t].partition_data[i].records.bytes.size;
        }
    }
}

/* ---- Checks */

static enum kerr check_partition(struct request *rq, struct produce_part *part, const struct topic_replicas **topic,
                                 struct str name, struct uuid id, int32_t index, const char **message)
{
    if (!str_is_null(name) && topic_is_internal(name)) return KERR_INVALID_TOPIC_EXCEPTION;
    struct located at;
    enum kerr kerr = locate_leader(rq->broker, name, id, index, -1, &at);
    if (kerr) return kerr;
    if (part->produce->acks == ACKS_ALL && !partition_in_sync_enough(at.partition)) return KERR_NOT_ENOUGH_REPLICAS;
    if (partition_disk_is_full(at.partition)) {
        *message = "The disk of the partition's log directory is full. Free space on it, or shorten retention.";
        return KERR_KAFKA_STORAGE_ERROR;
    }
    part->p = partition_ref(at.partition);
    *topic = at.topic;
    return KERR_NONE;
}

/* What the topic's configuration asks of the batch; it may change while a worker has the request. */
static void part_take_settings(struct request *rq, struct produce_part *part, const struct topic_settings *settings)
{
    part->rules = (struct batch_rules){
        .size_max = settings->max_message_bytes,
        .look_inside = !settings->keep_codec,
        .compacted = settings->log.cleanup_compact,
        .log_append_time = settings->log.log_append_time,
        .now_ms = clock_wall_ms(rq->broker->clock),
        .timestamp_before_max_ms = settings->timestamp_before_max_ms,
        .timestamp_after_max_ms = settings->timestamp_after_max_ms,
        .decompressed_max = BATCH_UNPACKED_SENT_MAX,
    };
    part->keep_codec = settings->keep_codec;
    part->codec = settings->codec;
    part->level = settings->compression_level;
}

/* Is it well-formed and allowed?  The request's loop, or a worker while that has it. */
static void check_batch(struct request *rq, struct produce_part *part)
{
    struct append *a = &part->append;
    struct batch_verdict v;
    batch_check(&v, &a->info, a->data, a->size, &part->rules, &rq->arena);
    if (!v.kerr && a->info.attributes & BATCH_TRANSACTIONAL)
        v = (struct batch_verdict){.kerr = KERR_INVALID_TXN_STATE,
                                   .message = "Transactions are not served by this broker."};
    /* KIP-110: consumers of that client's age could not read it. */
    if (!v.kerr && batch_codec(&a->info) == CODEC_ZSTD && rq->version < VERSION_ZSTD)
        v = (struct batch_verdict){.kerr = KERR_UNSUPPORTED_COMPRESSION_TYPE,
                                   .message = "Produce requests with zstd compression need version 7 or later."};
    if (v.kerr)
        part_fail_records(rq, part, &v);
    else
        part->repack = !part->keep_codec && part->codec != batch_codec(&a->info);
}

/* One partition: exists, led here, well-formed, allowed.  Nothing is written yet. */
static void check_part(struct request *rq, struct produce_part *part, struct str name, struct uuid id,
                       const partition_data *data)
{
    const struct topic_replicas *topic;
    const char *message = NULL;
    enum kerr kerr = check_partition(rq, part, &topic, name, id, data->index, &message);
    if (kerr) {
        part_fail(part, kerr, message);
        if (rq->version < VERSION_LEADER_HINTS) return;
        struct leader_hint hint = leader_hint_of(rq, name, id, data->index, kerr);
        part->out->current_leader.leader_id = hint.leader;
        part->out->current_leader.leader_epoch = hint.leader_epoch;
        return;
    }
    part_take_settings(rq, part, topic_settings(topic));
    struct append *a = &part->append;
    a->origin = APPEND_CLIENT;
    a->now_ms = part->rules.now_ms;
    part->check_later = batch_check_decompresses(a->data, a->size, &part->rules);
    if (!part->check_later) check_batch(rq, part);
    part->produce->any_heavy |= part->check_later || part->repack;
}

/* One bad partition spoils no other. */
static void produce_check(struct request *rq, struct produce *p)
{
    const struct produce_request *in = rq->in;
    bool by_id = rq->version >= VERSION_BY_TOPIC_ID;
    bool acks_ok = in->acks >= ACKS_ALL && in->acks <= ACKS_LEADER;
    struct produce_part *part = p->parts;
    for (int32_t t = 0; t < in->topic_data_count; t++)
        for (int32_t i = 0; i < in->topic_data[t].partition_data_count; i++, part++)
            if (acks_ok)
                check_part(rq, part, by_id ? STR_NULL : in->topic_data[t].name, in->topic_data[t].topic_id,
                           &in->topic_data[t].partition_data[i]);
            else
                part_fail(part, KERR_INVALID_REQUIRED_ACKS, NULL);
}

/* ---- On a worker: what has to decompress or compress */

static void part_repack(struct request *rq, struct produce_part *part)
{
    struct append *a = &part->append;
    struct writer w;
    writer_init(&w, rq->broker->bufs);
    enum err e = batch_recompress(&w, a->data, &a->info, part->codec, part->level, BATCH_UNPACKED_SENT_MAX);
    if (!e) e = batch_parse_header(&a->info, w.buf->data, part->rules.size_max);
    if (e) {
        bool too_big = e == ERR_TOO_BIG || (e == ERR_CORRUPT && w.size > (size_t)part->rules.size_max);
        part_fail(part, too_big ? KERR_MESSAGE_TOO_LARGE : KERR_INVALID_RECORD, NULL);
    } else {
        part->packed = buf_ref(w.buf);
        a->buf = part->packed;
        a->data = part->packed->data;
        a->size = (size_t)a->info.size;
    }
    writer_fini(&w);
}

static void produce_pack(struct request *rq)
{
    struct produce *p = rq->op;
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        if (part->check_later) check_batch(rq, part);
        if (part->repack) part_repack(rq, part);
    }
}

/* ---- What a producer has under way behind a batch that was refused must not take its place */

/* It will come again.  Also of one that was refused before anybody looked into it. */
static void part_note_refused(struct request *rq, struct produce_part *part, int16_t kerr)
{
    struct batch_info info;
    const struct append *a = &part->append;
    if (!kerr_is_retriable(kerr) || a->size < BATCH_HEADER_SIZE) return;
    if (batch_parse_header(&info, a->data, INT32_MAX) == OK) refused_note(&rq->conn->refused, &part->at, &info);
}

static void produce_note_refused(struct request *rq, struct produce *p)
{
    for (int32_t i = 0; i < p->count; i++)
        if (p->parts[i].out->error_code) part_note_refused(rq, &p->parts[i], p->parts[i].out->error_code);
}

/* ---- Appending */

/* To where the partition lives now; once, which is enough for what a request lives.  The old one is let go at the end:
 * its log may be calling us. */
static bool part_follow(struct produce_part *part)
{
    struct partition *next = partition_successor(part->p);
    if (!next || part->left) return false;
    part->left = part->p;
    part->p = partition_ref(next);
    part->flushes_failed = atomic_load(&next->flushes_failed);
    part->append.leader_epoch = atomic_load(&next->leader_epoch);
    return true;
}

static void on_appended(struct loop_msg *msg)
{
    struct produce *p = CONTAINER_OF(msg, struct produce, appended_msg);
    p->appends_done = true;
    request_enter(p->rq);
}

/* Any thread.  The request ends only after the message: a count alone would let a cancelled one end while we still look
 * at it. */
static void append_done(struct append *a)
{
    struct produce_part *part = CONTAINER_OF(a, struct produce_part, append);
    struct produce *p = part->produce;
    /* The log has moved to another directory while this waited.  Handed on from here, it keeps its place before what
     * the same client sent later. */
    if (a->kerr == KERR_NOT_LEADER_OR_FOLLOWER && part_follow(part)) {
        plog_append(part->p->pl, a);
        return;
    }
    if (atomic_fetch_sub(&p->appends_pending, 1) == 1) loop_post(p->rq->loop, &p->appended_msg);
}

static void produce_start_appends(struct request *rq, struct produce *p)
{
    atomic_init(&p->appends_pending, 1);
    p->appended_msg.run = on_appended;
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        if (!part->p || part->out->error_code) continue;
        part_follow(part);
        /* Once more: a worker may have had it for a while. */
        part->append.leader_epoch = atomic_load(&part->p->leader_epoch);
        enum kerr kerr = partition_check_leader(part->p, -1);
        if (kerr) {
            part_fail(part, kerr, NULL);
            continue;
        }
        part->append.done = append_done;
        part->append.not_first = refused_before(rq->conn->refused, &part->at, &part->append.info);
        part->flushes_failed = atomic_load(&part->p->flushes_failed);
        atomic_fetch_add(&p->appends_pending, 1);
        partition_wrote(part->p, part->append.size);
        plog_append(part->p->pl, &part->append);
    }
    produce_note_refused(rq, p);
    if (atomic_fetch_sub(&p->appends_pending, 1) == 1) p->appends_done = true;
}

static void produce_collect_appends(struct request *rq, struct produce *p)
{
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        if (!part->p || part->out->error_code) continue;
        const struct append *a = &part->append;
        /* A duplicate was written before: the client learns where, or in the end that nobody knows. */
        if (a->kerr && a->kerr != KERR_DUPLICATE_SEQUENCE_NUMBER) {
            part_note_refused(rq, part, (int16_t)a->kerr);
            part_fail(part, a->kerr, NULL);
            continue;
        }
        refused_forget(&rq->conn->refused, &part->at, &a->info);
        part->appended = true;
        part->out->base_offset = a->base_offset;
        part->out->log_append_time_ms = a->log_append_time_ms;
        part->out->log_start_offset = a->log_start;
    }
}

/* ---- Sequences out of order: idempotent producers give up for them.  A leader that does not know that it was deposed
 * has not seen what its successor was sent. */

static void on_still_leads(void *arg, bool leads)
{
    struct produce_part *part = arg;
    struct produce *p = part->produce;
    part->doubt = NULL;
    if (!leads) part_fail(part, KERR_NOT_LEADER_OR_FOLLOWER, NULL);
    if (--p->doubts == 0) request_enter(p->rq);
}

static void produce_doubt(struct request *rq, struct produce *p)
{
    const struct produce_request *in = rq->in;
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        if (part->out->error_code != KERR_OUT_OF_ORDER_SEQUENCE_NUMBER || rq->broker->alone) continue;
        part->doubt = still_leads_ask(rq->broker, rq->loop, part->p, part->append.leader_epoch, on_still_leads, part);
        p->doubts++;
    }
    if (p->doubts) request_wait_until(rq, loop_now_us(rq->loop) + (int64_t)in->timeout_ms * 1000);
}

/* The store has not answered in time. */
static void produce_end_doubts(struct produce *p)
{
    for (int32_t i = 0; i < p->count && p->doubts; i++) {
        struct produce_part *part = &p->parts[i];
        if (!part->doubt) continue;
        still_leads_forget(part->doubt);
        part->doubt = NULL;
        part_fail(part, KERR_NOT_LEADER_OR_FOLLOWER, NULL);
        p->doubts--;
    }
}

/* ---- Settling: on the disk where flush.messages or flush.mode ask for that; with acks=all, replicated */

static void waiter_wake(struct partition_waiter *w)
{
    request_wake(CONTAINER_OF(w, struct produce_part, waiter)->produce->rq);
}

static bool part_is_durable(const struct produce_part *part)
{
    return !part->append.must_flush || partition_durable_end(part->p) > part->append.last_offset;
}

static bool part_is_settled(const struct produce_part *part)
{
    if (!part->appended || part->out->error_code) return true;
    if (!part_is_durable(part)) return false;
    return part->produce->acks != ACKS_ALL || partition_high_watermark(part->p) > part->append.last_offset;
}

/* It is in our log, but it may never be what the client was promised. */
static enum kerr part_check_hope(const struct produce_part *part)
{
    /* Who leads now decides what becomes of it. */
    enum kerr kerr = partition_check_leader(part->p, -1);
    if (!kerr && !part_is_durable(part) && atomic_load(&part->p->flushes_failed) != part->flushes_failed)
        kerr = KERR_KAFKA_STORAGE_ERROR;
    return kerr;
}

/* What waits goes on waiting at the new place. */
static void part_follow_waiting(struct produce_part *part)
{
    if (part_follow(part) && partition_unwait(part->left, &part->waiter)) partition_wait(part->p, &part->waiter);
}

/* It is replicated, but the set has shrunk since it was appended: so few have it that it may be lost all the same. */
static void part_check_replicas(struct produce_part *part)
{
    if (!part->appended || part->counted || part->out->error_code || part->produce->acks != ACKS_ALL) return;
    part->counted = true;
    if (!partition_in_sync_enough_after(part->p)) part_fail(part, KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, NULL);
}

static bool produce_all_settled(struct produce *p)
{
    bool all = true;
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        if (part->appended) part_follow_waiting(part);
        if (part_is_settled(part)) {
            part_check_replicas(part);
            continue;
        }
        enum kerr kerr = part_check_hope(part);
        /* Looked at once more: what failed may have been another flush, after the one that served us. */
        if (!kerr)
            all = false;
        else if (!part_is_settled(part))
            part_fail(part, kerr, NULL);
    }
    return all;
}

static void produce_wait(struct request *rq, struct produce *p)
{
    const struct produce_request *in = rq->in;
    p->waiting = true;
    if (p->acks == ACKS_ALL) {
        request_uncount(rq); /* followers fetch */
        request_wait_until(rq, loop_now_us(rq->loop) + (int64_t)in->timeout_ms * 1000);
    }
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        if (part_is_settled(part)) continue;
        int64_t until = part->append.last_offset + 1;
        part->waiter.until_durable = part->append.must_flush ? until : 0;
        part->waiter.until_high_watermark = p->acks == ACKS_ALL ? until : 0;
        part->waiter.wake = waiter_wake;
        partition_wait(part->p, &part->waiter);
    }
}

static void produce_fail_unsettled(struct produce *p, enum kerr kerr)
{
    for (int32_t i = 0; i < p->count; i++)
        if (!part_is_settled(&p->parts[i])) part_fail(&p->parts[i], kerr, NULL);
}

/* ---- The end */

static void add_endpoints(struct request *rq, struct produce *p)
{
    struct produce_response *out = rq->out;
    struct leader_hint *hints = NULL;
    int32_t count = 0;
    for (int32_t i = 0; i < p->count; i++) {
        const partition_response *pr = p->parts[i].out;
        if (pr->current_leader.leader_id < 0) continue;
        if (!hints) hints = arena_array(&rq->arena, struct leader_hint, (size_t)p->count);
        hints[count++] = (struct leader_hint){pr->current_leader.leader_id, pr->current_leader.leader_epoch};
    }
    if (!count) return;
    int32_t n;
    struct hint_endpoint *list = leader_hint_endpoints(rq, hints, count, &n);
    out->node_endpoints = arena_array(&rq->arena, struct produce_response_node_endpoint, (size_t)n);
    out->node_endpoints_count = n;
    for (int32_t i = 0; i < n; i++)
        out->node_endpoints[i] = (struct produce_response_node_endpoint){
            .node_id = list[i].id, .host = list[i].host, .port = list[i].port, .rack = list[i].rack};
}

/* Clients take this for a success without an offset.  (Kafka's brokers say OUT_OF_ORDER_SEQUENCE_NUMBER, after which
 * the Java client repeats the batch until its delivery.timeout.ms is over.) */
static void part_name_old_duplicate(struct produce_part *part)
{
    if (part->appended && !part->out->error_code && part->append.base_offset < 0)
        part->out->error_code = KERR_DUPLICATE_SEQUENCE_NUMBER;
}

static enum step produce_finish(struct request *rq, struct produce *p)
{
    bool failed = false;
    for (int32_t i = 0; i < p->count; i++) {
        struct produce_part *part = &p->parts[i];
        failed |= part->out->error_code != KERR_NONE;
        part_name_old_duplicate(part);
        buf_unref(part->packed);
        if (!part->p) continue;
        if (p->waiting) partition_unwait(part->p, &part->waiter);
        partition_unref(part->p);
        partition_unref(part->left);
    }
    /* With acks=0 there is no answer to put an error in: closing tells the client to look again (as Kafka does). */
    if (p->acks == ACKS_NONE) return failed ? DONE_CLOSE : DONE_NO_REPLY;
    if (failed) add_endpoints(rq, p);
    return DONE;
}

enum step produce_handle(struct request *rq)
{
    struct produce *p = REQUEST_OP(rq, struct produce);
    switch (p->stage) {
    case PRODUCE_CHECK: /* per partition: exists, led here, well-formed, allowed */
        produce_prepare(rq, p);
        produce_check(rq, p);
        p->stage = PRODUCE_PACK;
        if (p->any_heavy) {
            conn_hold(rq->conn); /* what this producer sent behind it must not overtake it */
            request_offload(rq, produce_pack);
            return WAIT;
        }
        FALLTHROUGH;
    case PRODUCE_PACK: /* woken when compressed batches are checked and in the codecs that their topics want */
        p->stage = PRODUCE_APPEND;
        produce_start_appends(rq, p); /* queued at each partition; uncontended ones are written when this returns */
        if (p->any_heavy) conn_resume(rq->conn);
        FALLTHROUGH;
    case PRODUCE_APPEND: /* woken when the last append is complete */
        if (!p->appends_done) return WAIT;
        produce_collect_appends(rq, p);
        if (p->acks == ACKS_NONE) return produce_finish(rq, p);
        p->stage = PRODUCE_DOUBT;
        produce_doubt(rq, p);
        FALLTHROUGH;
    case PRODUCE_DOUBT: /* woken when the store has said who leads, or at the deadline */
        if (p->doubts > 0 && !rq->expired && !rq->cancelled) return WAIT;
        produce_end_doubts(p);
        p->stage = PRODUCE_SETTLE;
        FALLTHROUGH;
    case PRODUCE_SETTLE: /* woken when a flush is over or a high watermark moves, or at the deadline */
        if (produce_all_settled(p)) return produce_finish(rq, p);
        if (!p->waiting) {
            produce_wait(rq, p);
            if (produce_all_settled(p)) return produce_finish(rq, p);
        }
        if (!rq->expired && !rq->cancelled) return WAIT;
        produce_fail_unsettled(p, KERR_REQUEST_TIMED_OUT);
        return produce_finish(rq, p);
    }
    UNREACHABLE();
}
