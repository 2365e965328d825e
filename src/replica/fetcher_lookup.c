/* fetcher_lookup.c: partitions whose log ends where the leader has nothing (OFFSET_OUT_OF_RANGE).
 *
 * The leader is asked for its log's end and its start, for all such partitions of one answer together, before the next
 * fetch leaves, behind which the answers would wait.  As in Kafka: a log that is longer than the leader's is cut at the
 * leader's end (after an unclean election, with a follower that knows no epochs), one that ends below the leader's
 * start begins anew there, and else both have moved meanwhile, and the next fetch will do. */
#include <inttypes.h>

#include "base/mem.h"
#include "replica/fetchers_internal.h"

#include "base/log.h"

enum { LIST_OFFSETS_VERSION_MIN = 4, LIST_OFFSETS_VERSION_MAX = 8 }; /* from the first that names the leader's epoch */
enum { TIME_LATEST = -1, TIME_EARLIEST = -2 };
enum lookup_kind { LOOKUP_END, LOOKUP_START, LOOKUP_KINDS };

struct lookup {
    struct fetcher *fr;
    struct arena arena;
    struct looked {
        struct followed *fo; /* NULL: it has left */
        int64_t found[LOOKUP_KINDS];
        enum kerr kerr;
    } * parts;
    size_t count;
    unsigned out;
    struct lookup_call {
        struct lookup *lu;
        enum lookup_kind kind;
        struct rpc_call call;
        struct list_offsets_request request;
    } calls[LOOKUP_KINDS];
};

void lookup_forget(struct followed *fo)
{
    if (fo->lookup) fo->lookup->parts[fo->lookup_index].fo = NULL;
    fo->lookup = NULL;
}

static void settle_part(struct looked *lk)
{
    struct followed *fo = lk->fo;
    int64_t end = plog_end(fo->p->pl), leader_end = lk->found[LOOKUP_END], leader_start = lk->found[LOOKUP_START];
    fo->lookup = NULL;
    if (lk->kerr == KERR_FENCED_LEADER_EPOCH) {
        followed_enter(fo, FOLLOWED_STUCK);
        return;
    }
    if (lk->kerr || leader_start < 0 || leader_end < leader_start) {
        LOG_LIMITED(LOG_LEVEL_INFO, "lookup_failed", "topic=%s partition=%d leader=%d error=%s", fo->p->topic,
                    fo->p->index, fo->fr->leader, kerr_name((int16_t)lk->kerr));
        followed_delay(fo, lk->kerr == KERR_NOT_LEADER_OR_FOLLOWER || lk->kerr == KERR_UNKNOWN_LEADER_EPOCH);
        return;
    }
    LOG_LIMITED(LOG_LEVEL_WARN, "out_of_range",
                "topic=%s partition=%d leader=%d end=%" PRId64 " leader_start=%" PRId64 " leader_end=%" PRId64,
                fo->p->topic, fo->p->index, fo->fr->leader, end, leader_start, leader_end);
    if (leader_end < end)
        followed_cut(fo, leader_end, false);
    else if (leader_start > end)
        followed_cut(fo, leader_start, true);
    else if (fo->failures++ == 0)
        followed_begin(fo);
    else
        followed_delay(fo, false); /* a leader that says so again and again */
}

static void lookup_finish(struct lookup *lu)
{
    struct fetcher *fr = lu->fr;
    for (size_t i = 0; i < lu->count; i++)
        if (lu->parts[i].fo) settle_part(&lu->parts[i]);
    arena_fini(&lu->arena);
    mem_free(lu);
    fr->lookups--;
    fetcher_go_on(fr);
}

static void take_offsets(struct lookup *lu, enum lookup_kind kind, const struct list_offsets_response *resp)
{
    for (int32_t t = 0; t < resp->topics_count; t++) {
        const struct list_offsets_response_list_offsets_topic_response *lt = &resp->topics[t];
        for (int32_t i = 0; i < lt->partitions_count; i++) {
            const struct list_offsets_response_list_offsets_partition_response *lp = &lt->partitions[i];
            struct followed *fo = fetcher_find(lu->fr, lt->name, UUID_ZERO, lp->partition_index);
            if (!fo || fo->lookup != lu) continue;
            struct looked *lk = &lu->parts[fo->lookup_index];
            if (lp->error_code) lk->kerr = (enum kerr)lp->error_code;
            lk->found[kind] = lp->offset;
        }
    }
}

static void on_answer(struct rpc_call *call)
{
    struct lookup_call *lc = CONTAINER_OF(call, struct lookup_call, call);
    struct lookup *lu = lc->lu;
    if (!call->err) take_offsets(lu, lc->kind, call->response);
    if (--lu->out == 0) lookup_finish(lu);
}

static void send_call(struct lookup *lu, enum lookup_kind kind, int64_t time)
{
    struct lookup_call *lc = &lu->calls[kind];
    *lc = (struct lookup_call){.lu = lu, .kind = kind, .request = list_offsets_request_default};
    lc->request.replica_id = lu->fr->f->opt.broker_id;
    lc->request.topics = arena_array(&lu->arena, struct list_offsets_request_list_offsets_topic, lu->count);
    for (size_t i = 0; i < lu->count; i++) {
        const struct followed *fo = lu->parts[i].fo;
        struct list_offsets_request_list_offsets_topic *lt = &lc->request.topics[lc->request.topics_count++];
        *lt = list_offsets_request_list_offsets_topic_default;
        lt->name = arena_str(&lu->arena, str_of(fo->p->topic));
        lt->partitions = arena_alloc(&lu->arena, sizeof *lt->partitions);
        lt->partitions_count = 1;
        *lt->partitions = list_offsets_request_list_offsets_partition_default;
        lt->partitions->partition_index = fo->p->index;
        lt->partitions->current_leader_epoch = fo->leader_epoch;
        lt->partitions->timestamp = time;
    }
    lc->call = (struct rpc_call){
        .api = API_LIST_OFFSETS,
        .version_min = LIST_OFFSETS_VERSION_MIN,
        .version_max = LIST_OFFSETS_VERSION_MAX,
        .request = &lc->request,
        .timeout_ms = fetchers_config(lu->fr->f).socket_timeout_ms,
        .done = on_answer,
    };
    lu->out++;
    rpc_send(lu->fr->rpc, &lc->call);
}

void fetcher_look_up(struct fetcher *fr, struct followed **list, size_t count)
{
    struct lookup *lu = mem_zalloc(1, sizeof *lu);
    lu->fr = fr;
    arena_init(&lu->arena, SIZE_MAX);
    lu->parts = arena_array(&lu->arena, struct looked, count);
    lu->count = count;
    for (size_t i = 0; i < count; i++) {
        lu->parts[i] = (struct looked){.fo = list[i], .found = {-1, -1}, .kerr = KERR_NONE};
        list[i]->lookup = lu;
        list[i]->lookup_index = i;
    }
    fr->lookups++;
    send_call(lu, LOOKUP_END, TIME_LATEST);
    send_call(lu, LOOKUP_START, TIME_EARLIEST);
}
