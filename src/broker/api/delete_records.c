/* DeleteRecords (key 21, KIP-107): raises partitions' first offsets.  Records below are gone for readers at once; their
 * segments go with the next retention check. */
#include "broker/api/handlers.h"
#include "broker/api/locate.h"
#include "broker/api/named.h"
#include "wire/gen/delete_records.h"

typedef struct delete_records_request_delete_records_topic asked_topic;
typedef struct delete_records_response_delete_records_topic_result answer_topic;
typedef struct delete_records_response_delete_records_partition_result answer_partition;

enum { UP_TO_HIGH_WATERMARK = -1, NO_LOW_WATERMARK = -1 };

struct deletion {
    struct partition *p; /* a reference */
    int64_t offset;
    answer_partition *out;
};

struct delete_records_op {
    enum { DELETE_CHECK, DELETE_ANSWER } stage;
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
        if (!kerr) op->deletions[op->count++] = (struct deletion){partition_ref(p), offset, o};
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

/* Worker. */
static void delete_all(struct request *rq)
{
    struct delete_records_op *op = rq->op;
    for (size_t i = 0; i < op->count; i++) {
        struct deletion *d = &op->deletions[i];
        enum err e = partition_raise_start(d->p, d->offset);
        const struct partition *next = partition_successor(d->p); /* it may have just moved to another log directory */
        if (e)
            d->out->error_code = (int16_t)kerr_of(e);
        else
            d->out->low_watermark = plog_start((next ? next : d->p)->pl);
        partition_unref(d->p); /* here, since the last one closes files */
    }
}

enum step delete_records_handle(struct request *rq)
{
    struct delete_records_op *op = REQUEST_OP(rq, struct delete_records_op);
    switch (op->stage) {
    case DELETE_CHECK:
        check_all(rq);
        if (op->count == 0) return DONE;
        op->stage = DELETE_ANSWER;
        request_offload(rq, delete_all);
        return WAIT;
    case DELETE_ANSWER: /* the worker is through */ return DONE;
    }
    UNREACHABLE();
}
