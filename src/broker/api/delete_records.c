/* DeleteRecords (key 21, KIP-107): raises partitions' first offsets.  Records below are gone for readers at once; their
 * segments go with the next retention check.  Followers hear of it as they fetch, and the answer waits until all that
 * live have raised theirs, too. */
#include "broker/api/handlers.h"
#include "broker/api/locate.h"
#include "broker/api/named.h"
#include "wire/gen/delete_records.h"

typedef struct delete_records_request_delete_records_topic asked_topic;
typedef struct delete_records_response_delete_records_topic_result answer_topic;
typedef struct delete_records_response_delete_records_partition_result answer_partition;

enum { UP_TO_HIGH_WATERMARK = -1, NO_LOW_WATERMARK = -1 };

struct deletion {
    struct request *rq;
    struct partition *p; /* a reference */
    struct partition_waiter waiter;
    int64_t offset;
    answer_partition *out;
    bool over;
};

struct delete_records_op {
    enum { DELETE_CHECK, DELETE_BEGIN_WAIT, DELETE_WAIT } stage;
    struct deletion *deletions;
    size_t count;
};

/* Whether the records of a partition may be deleted up to *offset, which is settled here. */
static enum kerr check(struct request *rq, struct str topic, int32_t index, int64_t *offset, struct partition **out)
{
    struct located at;
    enum kerr kerr = locate_leader(rq->broker, topic, UUID_ZERO, index, -1, &at);
    if (topic_is_internal(topic) && kerr != KERR_UNKNOWN_TOPIC_OR_PARTITION) return KERR_INVALID_TOPIC_EXCEPTION;
    if (kerr) return kerr;
    if (!topic_settings(at.topic)->log.cleanup_delete) return KERR_POLICY_VIOLATION;
    int64_t high_watermark = partition_high_watermark(at.partition);
    if (*offset == UP_TO_HIGH_WATERMARK) *offset = high_watermark;
    if (*offset < 0 || *offset > high_watermark) return KERR_OFFSET_OUT_OF_RANGE;
    *out = at.partition;
    return KERR_NONE;
}

static void check_topic(struct request *rq, const asked_topic *asked, const struct named *named, answer_topic *out)
{
    struct delete_records_op *op = rq->op;
    *out = delete_records_response_delete_records_topic_result_default;
    out->name = asked->name;
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)asked->partitions_count);
    out->partitions_count = asked->partitions_count;
    for (int32_t i = 0; i < asked->partitions_count; i++) {
        answer_partition *o = &out->partitions[i];
        o->partition_index = asked->partitions[i].partition_index;
        o->low_watermark = NO_LOW_WATERMARK;
        /* Kafka takes the last of several offsets; we do not guess which one is meant when records are at stake. */
        if (named[i].repeated) {
            o->error_code = KERR_INVALID_REQUEST;
            continue;
        }
        int64_t offset = asked->partitions[i].offset;
        struct partition *p;
        enum kerr kerr = check(rq, asked->name, o->partition_index, &offset, &p);
        o->error_code = (int16_t)kerr;
        if (!kerr)
            op->deletions[op->count++] = (struct deletion){.rq = rq, .p = partition_ref(p), .offset = offset, .out = o};
    }
}

static void check_all(struct request *rq)
{
    const struct delete_records_request *in = rq->in;
    struct delete_records_response *out = rq->out;
    struct delete_records_op *op = rq->op;
    size_t total = 0, n = 0;
    for (int32_t i = 0; i < in->topics_count; i++) total += (size_t)in->topics[i].partitions_count;
    struct named *named = arena_array(&rq->arena, struct named, total);
    for (int32_t i = 0; i < in->topics_count; i++)
        for (int32_t k = 0; k < in->topics[i].partitions_count; k++)
            named[n++] =
                (struct named){.topic = in->topics[i].name, .partition = in->topics[i].partitions[k].partition_index};
    named_find_repeats(named, total, &rq->arena);
    op->deletions = arena_array(&rq->arena, struct deletion, total);
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        check_topic(rq, &in->topics[i], named, &out->topics[i]);
        named += in->topics[i].partitions_count;
    }
}

static void deletion_end(struct deletion *d, enum kerr kerr)
{
    d->over = true;
    d->out->error_code = (int16_t)kerr;
}

/* Worker. */
static void delete_all(struct request *rq)
{
    struct delete_records_op *op = rq->op;
    for (size_t i = 0; i < op->count; i++) {
        enum err e = partition_raise_start(op->deletions[i].p, op->deletions[i].offset);
        if (e) deletion_end(&op->deletions[i], kerr_of(e));
    }
}

/* ---- Waiting for followers */

static void waiter_wake(struct partition_waiter *w)
{
    request_wake(CONTAINER_OF(w, struct deletion, waiter)->rq);
}

/* To where the partition lives now, if it has moved to another log directory. */
static void deletion_follow(struct deletion *d)
{
    struct partition *next = partition_successor(d->p);
    if (!next) return;
    struct partition *left = d->p;
    d->p = partition_ref(next);
    if (partition_unwait(left, &d->waiter)) partition_wait(d->p, &d->waiter);
    partition_unref(left);
}

static void deletion_look(struct deletion *d)
{
    if (d->over) return;
    deletion_follow(d);
    enum kerr kerr = partition_check_leader(d->p, -1);
    int64_t low_watermark = partition_low_watermark(d->p);
    if (kerr) {
        deletion_end(d, kerr);
    } else if (low_watermark >= d->offset) {
        d->out->low_watermark = low_watermark;
        d->over = true;
    }
}

static bool all_over(struct delete_records_op *op)
{
    bool over = true;
    for (size_t i = 0; i < op->count; i++) {
        deletion_look(&op->deletions[i]);
        over &= op->deletions[i].over;
    }
    return over;
}

static void wait_for_followers(struct request *rq)
{
    const struct delete_records_request *in = rq->in;
    struct delete_records_op *op = rq->op;
    request_wait_until(rq, loop_now_us(rq->loop) + (int64_t)MAX(in->timeout_ms, 0) * 1000);
    for (size_t i = 0; i < op->count; i++) {
        struct deletion *d = &op->deletions[i];
        if (d->over) continue;
        d->waiter.wake = waiter_wake;
        partition_wait(d->p, &d->waiter);
    }
}

static enum step finish(struct delete_records_op *op)
{
    for (size_t i = 0; i < op->count; i++) {
        struct deletion *d = &op->deletions[i];
        if (!d->over) deletion_end(d, KERR_REQUEST_TIMED_OUT);
        partition_unwait(d->p, &d->waiter);
        partition_unref(d->p);
    }
    return DONE;
}

enum step delete_records_handle(struct request *rq)
{
    struct delete_records_op *op = REQUEST_OP(rq, struct delete_records_op);
    switch (op->stage) {
    case DELETE_CHECK:
        check_all(rq);
        if (op->count == 0) return DONE;
        op->stage = DELETE_BEGIN_WAIT;
        request_offload(rq, delete_all);
        return WAIT;
    case DELETE_BEGIN_WAIT: /* the worker is through */
        if (all_over(op)) return finish(op);
        wait_for_followers(rq);
        op->stage = DELETE_WAIT;
        FALLTHROUGH;
    case DELETE_WAIT: /* woken when a follower has fetched or the role changes, or at the deadline */
        if (all_over(op) || rq->expired || rq->cancelled) return finish(op);
        return WAIT;
    }
    UNREACHABLE();
}
