/* request.c: requests: filled in, on their way, at the host. */
#include <string.h>

#include "base/mem.h"
#include "world.h"

/* How long a write may keep an answer (see host.c), and the longest timeout that a stranger asks for. */
enum { WRITE_BOUND_MS = 4000, HOSTILE_MS_MAX = 10 * 1000 };

const char *api_name(enum group_api api)
{
    static const char *const names[GROUP_API_COUNT] = {"JoinGroup",    "SyncGroup",   "Heartbeat",    "LeaveGroup",
                                                       "OffsetCommit", "OffsetFetch", "OffsetDelete", "DescribeGroups",
                                                       "ListGroups",   "DeleteGroups"};
    return names[api];
}

/* What `in` holds before it is filled in, and `out` when the shard gets it. */
static void set_defaults(struct request *rq)
{
    switch (rq->call.api) {
    case GROUP_JOIN:
        rq->in.join = join_group_request_default;
        rq->out.join = join_group_response_default;
        return;
    case GROUP_SYNC:
        rq->in.sync = sync_group_request_default;
        rq->out.sync = sync_group_response_default;
        return;
    case GROUP_HEARTBEAT:
        rq->in.heartbeat = heartbeat_request_default;
        rq->out.heartbeat = heartbeat_response_default;
        return;
    case GROUP_LEAVE:
        rq->in.leave = leave_group_request_default;
        rq->out.leave = leave_group_response_default;
        return;
    case GROUP_COMMIT:
        rq->in.commit = offset_commit_request_default;
        rq->out.commit = offset_commit_response_default;
        return;
    case GROUP_DELETE_OFFSET:
        rq->in.delete_offset = offset_delete_request_default;
        rq->out.delete_offset = offset_delete_response_default;
        return;
    case GROUP_FETCH:
        rq->in.fetch = offset_fetch_request_offset_fetch_request_group_default;
        rq->out.fetch = offset_fetch_response_offset_fetch_response_group_default;
        return;
    case GROUP_DESCRIBE: rq->out.describe = describe_groups_response_described_group_default; break;
    case GROUP_LIST:
        rq->in.list = list_groups_request_default;
        rq->out.list = list_groups_response_default;
        return;
    case GROUP_DELETE: rq->out.deleted = delete_groups_response_deletable_group_result_default; break;
    case GROUP_API_COUNT: UNREACHABLE();
    }
    rq->in.group_id = group_name(rq->group);
}

struct request *request_new(struct world *w, enum group_api api, int group)
{
    struct request *rq = w->free_requests;
    if (rq) {
        w->free_requests = rq->next_free;
    } else {
        rq = mem_zalloc(1, sizeof *rq);
        arena_init(&rq->arena, SIZE_MAX);
        w->requests = mem_grow(w->requests, &w->request_cap, w->request_count + 1, sizeof *w->requests);
        w->requests[w->request_count++] = rq;
    }
    struct arena arena = rq->arena;
    memset(rq, 0, sizeof *rq);
    rq->arena = arena;
    rq->id = w->next_id++;
    rq->state = REQUEST_SENT;
    rq->group = group;
    rq->client = -1;
    /* The newest: the shard is asked about versions where it matters, which is in JoinGroup. */
    rq->call = (struct group_call){.api = api, .version = 9, .in = &rq->in, .out = &rq->out, .arena = &rq->arena};
    rq->call.client_id = STR("consumer");
    rq->call.client_host = STR("/127.0.0.1");
    set_defaults(rq);
    return rq;
}

void request_free(struct world *w, struct request *rq)
{
    ASSERT(rq->state != REQUEST_FREE);
    rq->state = REQUEST_FREE;
    rq->id = 0;
    arena_reset(&rq->arena);
    rq->next_free = w->free_requests;
    w->free_requests = rq;
}

/* ---- Filling in */

static int count_bits(uint32_t set)
{
    return __builtin_popcount(set);
}

static uint32_t topic_part(uint32_t positions, int topic)
{
    return positions >> (topic * TOPIC_PARTITIONS) & (BIT(TOPIC_PARTITIONS) - 1);
}

/* Every topic is there, one without partitions too: shards must bear that. */
void request_fill_commit(struct world *w, struct request *rq, uint32_t positions, const int64_t *values)
{
    struct offset_commit_request *in = &rq->in.commit;
    struct offset_commit_response *out = &rq->out.commit;
    in->topics_count = out->topics_count = TOPICS;
    in->topics = arena_array(&rq->arena, struct offset_commit_request_offset_commit_request_topic, TOPICS);
    out->topics = arena_array(&rq->arena, struct offset_commit_response_offset_commit_response_topic, TOPICS);
    rq->positions = positions;
    for (int t = 0; t < TOPICS; t++) {
        uint32_t part = topic_part(positions, t);
        size_t n = (size_t)count_bits(part), k = 0;
        struct offset_commit_request_offset_commit_request_partition *ps =
            arena_array(&rq->arena, struct offset_commit_request_offset_commit_request_partition, n);
        struct offset_commit_response_offset_commit_response_partition *answers =
            arena_array(&rq->arena, struct offset_commit_response_offset_commit_response_partition, n);
        for (int p = 0; p < TOPIC_PARTITIONS; p++) {
            if (!(part & BIT(p))) continue;
            int at = t * TOPIC_PARTITIONS + p;
            int64_t value = rq->values[at] = values ? values[at] : ++w->next_value;
            ps[k] = (struct offset_commit_request_offset_commit_request_partition){
                .partition_index = p,
                .committed_offset = value,
                .committed_leader_epoch = (int32_t)(value % 1000),
                .commit_timestamp = -1,
                .committed_metadata = arena_printf(&rq->arena, "m%" PRId64, value)};
            answers[k++] = (struct offset_commit_response_offset_commit_response_partition){.partition_index = p};
        }
        in->topics[t] = offset_commit_request_offset_commit_request_topic_default;
        in->topics[t].name = topic_name(t);
        in->topics[t].partitions = ps;
        out->topics[t] = offset_commit_response_offset_commit_response_topic_default;
        out->topics[t].name = topic_name(t);
        out->topics[t].partitions = answers;
        in->topics[t].partitions_count = out->topics[t].partitions_count = (int32_t)n;
    }
}

void request_fill_delete(struct request *rq, uint32_t positions)
{
    struct offset_delete_request *in = &rq->in.delete_offset;
    struct offset_delete_response *out = &rq->out.delete_offset;
    in->topics_count = out->topics_count = TOPICS;
    in->topics = arena_array(&rq->arena, struct offset_delete_request_offset_delete_request_topic, TOPICS);
    out->topics = arena_array(&rq->arena, struct offset_delete_response_offset_delete_response_topic, TOPICS);
    rq->positions = positions;
    for (int t = 0; t < TOPICS; t++) {
        uint32_t part = topic_part(positions, t);
        size_t n = (size_t)count_bits(part), k = 0;
        in->topics[t].name = out->topics[t].name = topic_name(t);
        in->topics[t].partitions =
            arena_array(&rq->arena, struct offset_delete_request_offset_delete_request_partition, n);
        out->topics[t].partitions =
            arena_array(&rq->arena, struct offset_delete_response_offset_delete_response_partition, n);
        in->topics[t].partitions_count = out->topics[t].partitions_count = (int32_t)n;
        for (int p = 0; p < TOPIC_PARTITIONS; p++) {
            if (!(part & BIT(p))) continue;
            in->topics[t].partitions[k].partition_index = p;
            out->topics[t].partitions[k++].partition_index = p;
        }
    }
}

void request_fill_fetch(struct request *rq, uint32_t positions, bool all)
{
    fetch_request *in = &rq->in.fetch;
    in->group_id = group_name(rq->group);
    rq->positions = all ? POSITIONS_ALL : positions;
    if (all) {
        in->topics_count = -1;
        return;
    }
    in->topics_count = TOPICS;
    in->topics = arena_array(&rq->arena, struct offset_fetch_request_offset_fetch_request_topics, TOPICS);
    for (int t = 0; t < TOPICS; t++) {
        uint32_t part = topic_part(positions, t);
        in->topics[t].name = topic_name(t);
        in->topics[t].partition_indexes = arena_array(&rq->arena, int32_t, (size_t)count_bits(part));
        for (int p = 0; p < TOPIC_PARTITIONS; p++)
            if (part & BIT(p)) in->topics[t].partition_indexes[in->topics[t].partition_indexes_count++] = p;
    }
}

enum kerr request_kerr(const struct request *rq)
{
    switch (rq->call.api) {
    case GROUP_JOIN: return (enum kerr)rq->out.join.error_code;
    case GROUP_SYNC: return (enum kerr)rq->out.sync.error_code;
    case GROUP_HEARTBEAT: return (enum kerr)rq->out.heartbeat.error_code;
    case GROUP_LEAVE: return (enum kerr)rq->out.leave.error_code;
    case GROUP_COMMIT: /* its first one that there is; they are alike but for the metadata's size */
        for (int t = 0; t < rq->out.commit.topics_count; t++)
            if (rq->out.commit.topics[t].partitions_count > 0)
                return (enum kerr)rq->out.commit.topics[t].partitions[0].error_code;
        return KERR_NONE;
    case GROUP_FETCH: return (enum kerr)rq->out.fetch.error_code;
    case GROUP_DELETE_OFFSET: return (enum kerr)rq->out.delete_offset.error_code;
    case GROUP_DESCRIBE: return (enum kerr)rq->out.describe.error_code;
    case GROUP_LIST: return (enum kerr)rq->out.list.error_code;
    case GROUP_DELETE: return (enum kerr)rq->out.deleted.error_code;
    case GROUP_API_COUNT: break;
    }
    UNREACHABLE();
}

/* ---- On their way */

void request_send(struct world *w, struct request *rq, int64_t arrives_ms)
{
    world_event(w, (struct event){.kind = EVENT_REQUEST, .at_ms = arrives_ms, .rq = rq, .id = rq->id});
}

/* By when the shard has to answer: a JoinGroup waits for the other members, a SyncGroup for the leader, both no longer
 * than the longest rebalance timeout; and what is written for a write. */
static int64_t bound_ms(const struct world *w, const struct request *rq)
{
    int64_t rebalance_ms = w->config.hostile ? HOSTILE_MS_MAX : w->config.rebalance_max_ms;
    if (rq->call.api != GROUP_JOIN && rq->call.api != GROUP_SYNC) return WRITE_BOUND_MS;
    return rebalance_ms + w->config.opt.initial_delay_ms + WRITE_BOUND_MS;
}

static void request_give(struct world *w, struct request *rq)
{
    rq->state = REQUEST_GIVEN;
    rq->given_ms = w->now_ms;
    rq->deadline_ms = w->now_ms + bound_ms(w, rq);
    check_given(w, rq);
    w->giving = rq;
    group_shard_call(w->host.shard, &rq->call);
    w->giving = NULL;
}

void request_arrive(struct world *w, struct request *rq)
{
    if (w->host.state == HOST_UP) {
        request_give(w, rq);
        return;
    }
    rq->refused = true;
    group_refuse(&rq->call, w->host.state == HOST_DOWN ? KERR_NOT_COORDINATOR : KERR_COORDINATOR_LOAD_IN_PROGRESS);
    rq->state = REQUEST_GIVEN;
    request_answered(w, rq);
}

void request_answered(struct world *w, struct request *rq)
{
    if (rq->state != REQUEST_GIVEN) {
        wrong(w, "a %s is answered that %s", api_name(rq->call.api),
              rq->state == REQUEST_ANSWERED ? "has been answered" : "the shard does not have");
        return;
    }
    if (w->host.mute) { /* nothing leaves a host that dies */
        request_free(w, rq);
        return;
    }
    rq->state = REQUEST_ANSWERED;
    rq->at_once = w->giving == rq;
    if (!rq->refused) check_answered(w, rq);
    if (rq->kept) return;
    if (rq->client < 0) {
        request_free(w, rq);
        return;
    }
    struct client *c = &w->clients[rq->client];
    int64_t at_ms = w->now_ms + world_latency(w);
    if (c->process == rq->process && c->conn == rq->conn) at_ms = c->last_answer_ms = MAX(at_ms, c->last_answer_ms);
    world_event(w, (struct event){.kind = EVENT_ANSWER, .at_ms = at_ms, .rq = rq, .id = rq->id, .client = rq->client});
}

void request_ask(struct world *w, struct request *rq)
{
    rq->kept = true;
    request_give(w, rq);
    if (rq->state != REQUEST_ANSWERED) wrong(w, "a %s is not answered at once", api_name(rq->call.api));
}
