/* DescribeProducers (key 61, KIP-664): the idempotent producers that a partition's log remembers.  Every replica knows
 * them, so it need not be the leader that answers. */
#include "broker/api/handlers.h"
#include "broker/api/locate.h"
#include "broker/api/named.h"
#include "wire/gen/describe_producers.h"
#include "wire/topic_name.h"

typedef struct describe_producers_request_topic_request asked_topic;
typedef struct describe_producers_response_topic_response answer_topic;
typedef struct describe_producers_response_partition_response answer_partition;
typedef struct describe_producers_response_producer_state producer_state;

struct producer_list {
    struct arena *arena;
    producer_state *items;
    int32_t count, capacity;
};

static void add_producer(void *arg, const struct producer_view *p)
{
    struct producer_list *list = arg;
    if (list->count == list->capacity) {
        int32_t capacity = list->capacity * 2 + 8;
        producer_state *items = arena_array(list->arena, producer_state, (size_t)capacity);
        if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = (producer_state){
        .producer_id = p->producer_id,
        .producer_epoch = p->producer_epoch,
        .last_sequence = p->last_sequence,
        .last_timestamp = p->last_timestamp_ms,
        .coordinator_epoch = p->coordinator_epoch,
        .current_txn_start_offset = p->txn_start_offset,
    };
}

static enum kerr topic_fault(struct request *rq, struct str name)
{
    if (!topic_name_is_valid(name)) return KERR_INVALID_TOPIC_EXCEPTION;
    return metadata_topic(rq->broker->metadata, name) ? KERR_NONE : KERR_UNKNOWN_TOPIC_OR_PARTITION;
}

static void describe_partition(struct request *rq, struct str topic, answer_partition *out)
{
    struct located at;
    enum kerr kerr = locate_replica(rq->broker, topic, UUID_ZERO, out->partition_index, &at);
    if (!kerr && !atomic_load(&at.partition->online)) kerr = KERR_KAFKA_STORAGE_ERROR;
    out->error_code = (int16_t)kerr;
    if (kerr) return;
    struct producer_list list = {.arena = &rq->arena};
    plog_each_producer(at.partition->pl, add_producer, &list);
    out->active_producers = list.items;
    out->active_producers_count = list.count;
}

static void describe_topic(struct request *rq, const asked_topic *asked, const struct named *named, answer_topic *out)
{
    *out = describe_producers_response_topic_response_default;
    out->name = asked->name;
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)asked->partition_indexes_count);
    out->partitions_count = asked->partition_indexes_count;
    enum kerr fault = topic_fault(rq, asked->name);
    const char *reason = topic_name_fault(asked->name);
    struct str message = reason ? arena_printf(&rq->arena, "The topic's name %s.", reason) : STR_NULL;
    for (int32_t i = 0; i < asked->partition_indexes_count; i++) {
        answer_partition *p = &out->partitions[i];
        *p = describe_producers_response_partition_response_default;
        p->partition_index = asked->partition_indexes[i];
        if (fault) {
            p->error_code = (int16_t)fault;
            p->error_message = message;
        } else if (named[i].again) {
            /* Kafka answers each; but a small request must not make an answer without bounds. */
            p->error_code = KERR_INVALID_REQUEST;
            p->error_message = STR("This partition is named more than once.");
        } else {
            describe_partition(rq, asked->name, p);
        }
    }
}

enum step describe_producers_handle(struct request *rq)
{
    const struct describe_producers_request *in = rq->in;
    struct describe_producers_response *out = rq->out;
    size_t total = 0, n = 0;
    for (int32_t i = 0; i < in->topics_count; i++) total += (size_t)in->topics[i].partition_indexes_count;
    struct named *named = arena_array(&rq->arena, struct named, total);
    for (int32_t i = 0; i < in->topics_count; i++)
        for (int32_t k = 0; k < in->topics[i].partition_indexes_count; k++)
            named[n++] = (struct named){.topic = in->topics[i].name, .partition = in->topics[i].partition_indexes[k]};
    named_find_repeats(named, total, &rq->arena);
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        describe_topic(rq, &in->topics[i], named, &out->topics[i]);
        named += in->topics[i].partition_indexes_count;
    }
    return DONE;
}
