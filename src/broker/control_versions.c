/* control_versions.c: see control_versions.h. */
#include "broker/control_versions.h"

#include <stdlib.h>

#include "wire/security.h"

enum {
    LEADER_AND_ISR_BY_TOPIC_SINCE = 2,
    LEADER_AND_ISR_ANSWER_BY_ID_SINCE = 5,
    UPDATE_METADATA_ENDPOINTS_SINCE = 1,
    UPDATE_METADATA_RACKS_SINCE = 2,
    UPDATE_METADATA_LISTENERS_SINCE = 3,
    UPDATE_METADATA_BY_TOPIC_SINCE = 5,
    STOP_REPLICA_BY_TOPIC_SINCE = 1,
    STOP_REPLICA_STATES_SINCE = 3
};

/* ---- LeaderAndIsr */

typedef struct leader_and_isr_request_leader_and_isr_partition_state isr_state;
typedef struct leader_and_isr_request_leader_and_isr_topic_state isr_topic;

static int isr_state_compare(const void *a, const void *b)
{
    return str_compare(((const isr_state *)a)->topic_name, ((const isr_state *)b)->topic_name);
}

const struct leader_and_isr_request *leader_and_isr_modern(const struct leader_and_isr_request *in, int16_t version,
                                                           struct arena *a)
{
    if (version >= LEADER_AND_ISR_BY_TOPIC_SINCE) return in;
    struct leader_and_isr_request *out = arena_array(a, struct leader_and_isr_request, 1);
    *out = *in;
    int32_t count = in->ungrouped_partition_states_count;
    isr_state *states = arena_array(a, isr_state, (size_t)count);
    if (count) memcpy(states, in->ungrouped_partition_states, (size_t)count * sizeof *states);
    qsort(states, (size_t)count, sizeof *states, isr_state_compare);
    out->topic_states = arena_array(a, isr_topic, (size_t)count); /* each may be of another topic */
    out->topic_states_count = 0;
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || isr_state_compare(&states[i - 1], &states[i]) != 0) {
            isr_topic *t = &out->topic_states[out->topic_states_count++];
            *t = (isr_topic){.topic_name = states[i].topic_name, .partition_states = &states[i]};
        }
        out->topic_states[out->topic_states_count - 1].partition_states_count++;
    }
    return out;
}

typedef struct leader_and_isr_response_leader_and_isr_topic_error isr_topic_error;
typedef struct leader_and_isr_response_leader_and_isr_partition_error isr_error;

void leader_and_isr_answer(struct leader_and_isr_response *out, const struct leader_and_isr_response *res,
                           int16_t version, struct arena *a)
{
    out->error_code = res->error_code;
    size_t count = 0;
    for (int32_t t = 0; t < res->topics_count; t++) count += (size_t)res->topics[t].partition_errors_count;
    isr_error *errors = arena_array(a, isr_error, count);
    int32_t at = 0;
    isr_topic_error *topics = arena_array(a, isr_topic_error, (size_t)res->topics_count);
    for (int32_t t = 0; t < res->topics_count; t++) {
        topics[t] = res->topics[t];
        topics[t].partition_errors = &errors[at];
        for (int32_t i = 0; i < res->topics[t].partition_errors_count; i++)
            errors[at++] = res->topics[t].partition_errors[i];
    }
    if (version < LEADER_AND_ISR_ANSWER_BY_ID_SINCE) {
        out->partition_errors = errors;
        out->partition_errors_count = at;
    } else {
        out->topics = topics;
        out->topics_count = res->topics_count;
    }
}

/* ---- UpdateMetadata */

typedef struct update_metadata_request_update_metadata_partition_state metadata_state;
typedef struct update_metadata_request_update_metadata_topic_state metadata_topic_state;
typedef struct update_metadata_request_update_metadata_broker metadata_broker;
typedef struct update_metadata_request_update_metadata_endpoint metadata_endpoint;

static int metadata_state_compare(const void *a, const void *b)
{
    return str_compare(((const metadata_state *)a)->topic_name, ((const metadata_state *)b)->topic_name);
}

static void group_metadata(struct update_metadata_request *m, struct arena *a)
{
    int32_t count = m->ungrouped_partition_states_count;
    metadata_state *states = arena_array(a, metadata_state, (size_t)count);
    if (count) memcpy(states, m->ungrouped_partition_states, (size_t)count * sizeof *states);
    qsort(states, (size_t)count, sizeof *states, metadata_state_compare);
    m->topic_states = arena_array(a, metadata_topic_state, (size_t)count);
    m->topic_states_count = 0;
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || metadata_state_compare(&states[i - 1], &states[i]) != 0) {
            metadata_topic_state *t = &m->topic_states[m->topic_states_count++];
            *t = (metadata_topic_state){.topic_name = states[i].topic_name, .partition_states = &states[i]};
        }
        m->topic_states[m->topic_states_count - 1].partition_states_count++;
    }
}

/* Before there were names a listener was known by its protocol, and before that there was one, without any. */
static void name_endpoints(metadata_broker *b, int16_t version, struct arena *a)
{
    metadata_endpoint *endpoints = arena_array(a, metadata_endpoint, (size_t)MAX(b->endpoints_count, 1));
    if (version < UPDATE_METADATA_ENDPOINTS_SINCE) {
        endpoints[0] = (metadata_endpoint){.host = b->v0_host, .port = b->v0_port};
        b->endpoints_count = 1;
    } else if (b->endpoints_count > 0) {
        memcpy(endpoints, b->endpoints, (size_t)b->endpoints_count * sizeof *endpoints);
    }
    for (int32_t i = 0; i < b->endpoints_count; i++) {
        const char *name = security_protocol_name(endpoints[i].security_protocol);
        endpoints[i].listener = name ? str_of(name) : STR_EMPTY;
    }
    b->endpoints = endpoints;
}

const struct update_metadata_request *update_metadata_modern(const struct update_metadata_request *in, int16_t version,
                                                             struct arena *a)
{
    if (version >= UPDATE_METADATA_BY_TOPIC_SINCE) return in;
    struct update_metadata_request *out = arena_array(a, struct update_metadata_request, 1);
    *out = *in;
    group_metadata(out, a);
    if (version >= UPDATE_METADATA_LISTENERS_SINCE) return out;
    out->live_brokers = arena_array(a, metadata_broker, (size_t)in->live_brokers_count);
    for (int32_t i = 0; i < in->live_brokers_count; i++) {
        out->live_brokers[i] = in->live_brokers[i];
        name_endpoints(&out->live_brokers[i], version, a);
        if (version < UPDATE_METADATA_RACKS_SINCE) out->live_brokers[i].rack = STR_NULL;
    }
    return out;
}

/* ---- StopReplica */

typedef struct stop_replica_request_stop_replica_topic_state stop_topic;
typedef struct stop_replica_request_stop_replica_partition_state stop_state;

/* "Whatever the epoch": these versions do not tell it. */
static stop_topic one_topic(struct str name, const int32_t *indexes, int32_t count, bool delete, struct arena *a)
{
    stop_topic t = {.topic_name = name, .partition_states = arena_array(a, stop_state, (size_t)count)};
    for (int32_t i = 0; i < count; i++) {
        stop_state *s = &t.partition_states[t.partition_states_count++];
        *s = stop_replica_request_stop_replica_partition_state_default;
        s->partition_index = indexes[i];
        s->delete_partition = delete;
    }
    return t;
}

const struct stop_replica_request *stop_replica_modern(const struct stop_replica_request *in, int16_t version,
                                                       struct arena *a)
{
    if (version >= STOP_REPLICA_STATES_SINCE) return in;
    struct stop_replica_request *out = arena_array(a, struct stop_replica_request, 1);
    *out = *in;
    bool by_topic = version >= STOP_REPLICA_BY_TOPIC_SINCE;
    out->topic_states_count = by_topic ? in->topics_count : in->ungrouped_partitions_count;
    out->topic_states = arena_array(a, stop_topic, (size_t)out->topic_states_count);
    for (int32_t i = 0; i < out->topic_states_count; i++) {
        const struct stop_replica_request_stop_replica_topic_v1 *t = &in->topics[i];
        const struct stop_replica_request_stop_replica_partition_v0 *p = &in->ungrouped_partitions[i];
        out->topic_states[i] =
            by_topic ? one_topic(t->name, t->partition_indexes, t->partition_indexes_count, in->delete_partitions, a)
                     : one_topic(p->topic_name, &p->partition_index, 1, in->delete_partitions, a);
    }
    return out;
}

void stop_replica_answer(struct stop_replica_response *out, const struct stop_replica_response *res, struct arena *a)
{
    *out = *res;
    size_t count = (size_t)res->partition_errors_count;
    out->partition_errors = arena_array(a, struct stop_replica_response_stop_replica_partition_error, count);
    if (count) memcpy(out->partition_errors, res->partition_errors, count * sizeof *out->partition_errors);
}
