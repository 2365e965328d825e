/* refuse.c: the answer that says no, for each API as Kafka's clients know it. */
#include "group/group_internal.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/heartbeat.h"
#include "wire/gen/join_group.h"
#include "wire/gen/leave_group.h"
#include "wire/gen/list_groups.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_delete.h"
#include "wire/gen/offset_fetch.h"
#include "wire/gen/sync_group.h"

enum { OFFSET_FETCH_GROUP_ERROR_SINCE = 2 }; /* before, an error is told per partition only */

struct str group_call_group(const struct group_call *call)
{
    switch (call->api) {
    case GROUP_JOIN: return ((const struct join_group_request *)call->in)->group_id;
    case GROUP_SYNC: return ((const struct sync_group_request *)call->in)->group_id;
    case GROUP_HEARTBEAT: return ((const struct heartbeat_request *)call->in)->group_id;
    case GROUP_LEAVE: return ((const struct leave_group_request *)call->in)->group_id;
    case GROUP_COMMIT: return ((const struct offset_commit_request *)call->in)->group_id;
    case GROUP_FETCH: return ((const struct offset_fetch_request_offset_fetch_request_group *)call->in)->group_id;
    case GROUP_DELETE_OFFSET: return ((const struct offset_delete_request *)call->in)->group_id;
    case GROUP_DESCRIBE:
    case GROUP_DELETE: return *(const struct str *)call->in;
    case GROUP_LIST:
    case GROUP_API_COUNT: break;
    }
    return STR_NULL;
}

static void refuse_join(struct group_call *call, int16_t code)
{
    const struct join_group_request *in = call->in;
    struct join_group_response *out = call->out;
    *out = join_group_response_default;
    out->error_code = code;
    out->protocol_name = call->version >= 7 ? STR_NULL : STR_EMPTY;
    out->leader = STR_EMPTY;
    out->member_id = arena_str(call->arena, in->member_id);
}

static void refuse_commit(struct group_call *call, int16_t code)
{
    struct offset_commit_response *out = call->out;
    for (int32_t i = 0; i < out->topics_count; i++) {
        struct offset_commit_response_offset_commit_response_topic *topic = &out->topics[i];
        for (int32_t k = 0; k < topic->partitions_count; k++) {
            if (topic->partitions[k].error_code == KERR_NONE) topic->partitions[k].error_code = code;
        }
    }
}

static void refuse_fetch(struct group_call *call, int16_t code)
{
    const struct offset_fetch_request_offset_fetch_request_group *in = call->in;
    struct offset_fetch_response_offset_fetch_response_group *out = call->out;
    *out = offset_fetch_response_offset_fetch_response_group_default;
    out->group_id = arena_str(call->arena, in->group_id);
    out->error_code = code;
    if (call->version >= OFFSET_FETCH_GROUP_ERROR_SINCE || in->topics_count <= 0) return;
    out->topics =
        arena_array(call->arena, struct offset_fetch_response_offset_fetch_response_topics, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        int32_t count = in->topics[i].partition_indexes_count;
        out->topics[i].name = arena_str(call->arena, in->topics[i].name);
        out->topics[i].partitions_count = count;
        out->topics[i].partitions =
            arena_array(call->arena, struct offset_fetch_response_offset_fetch_response_partitions, (size_t)count);
        for (int32_t k = 0; k < count; k++)
            out->topics[i].partitions[k] = (struct offset_fetch_response_offset_fetch_response_partitions){
                .partition_index = in->topics[i].partition_indexes[k],
                .committed_offset = -1,
                .committed_leader_epoch = -1,
                .metadata = STR_EMPTY,
                .error_code = code};
    }
}

void group_refuse(struct group_call *call, enum kerr kerr)
{
    bool loading = kerr == KERR_COORDINATOR_LOAD_IN_PROGRESS;
    int16_t code = (int16_t)kerr;
    switch (call->api) {
    case GROUP_JOIN: refuse_join(call, code); break;
    case GROUP_SYNC: {
        struct sync_group_response *out = call->out;
        *out = sync_group_response_default;
        out->assignment = (struct bytes){(const uint8_t *)"", 0};
        /* Older clients do not expect that a coordinator loads; the rebalance is lost anyway, and they join again. */
        out->error_code = loading ? KERR_REBALANCE_IN_PROGRESS : code;
        break;
    }
    case GROUP_HEARTBEAT:
        /* Its member may be there, once we know: no reason to worry it. */
        ((struct heartbeat_response *)call->out)->error_code = loading ? KERR_NONE : code;
        break;
    case GROUP_LEAVE: {
        struct leave_group_response *out = call->out;
        *out = leave_group_response_default;
        out->error_code = code;
        break;
    }
    case GROUP_COMMIT: refuse_commit(call, code); break;
    case GROUP_FETCH: refuse_fetch(call, code); break;
    case GROUP_DELETE_OFFSET: {
        struct offset_delete_response *out = call->out;
        *out = offset_delete_response_default; /* an error of the group has no partitions beside it */
        out->error_code = code;
        break;
    }
    case GROUP_DESCRIBE: {
        struct describe_groups_response_described_group *out = call->out;
        *out = describe_groups_response_described_group_default;
        out->group_id = arena_str(call->arena, group_call_group(call));
        out->error_code = code;
        break;
    }
    case GROUP_LIST: {
        struct list_groups_response *out = call->out;
        *out = list_groups_response_default;
        out->error_code = code;
        break;
    }
    case GROUP_DELETE: {
        struct delete_groups_response_deletable_group_result *out = call->out;
        *out = delete_groups_response_deletable_group_result_default;
        out->group_id = arena_str(call->arena, group_call_group(call));
        out->error_code = code;
        break;
    }
    case GROUP_API_COUNT: UNREACHABLE();
    }
}
