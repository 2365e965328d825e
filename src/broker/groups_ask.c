/* groups_ask.c: a request's calls, to the loops of their shards and back.
 *
 * A call that is of the request's own loop is made at once.  Another travels as a message; the shard's owner marks that
 * the shard has it (`held`), and when it is answered the same message comes back.  A call that is taken back sends a
 * message of its own after it, which comes to the owner later than the first, since mailboxes keep their senders'
 * order; it returns in any case, so that the request's memory stays as long as anything of it is under way. */
#include "base/mem.h"
#include "broker/groups_internal.h"
#include "os/net.h"
#include "wire/gen/list_groups.h"
#include "wire/gen/offset_commit.h"

/* Of the memory of a request's answers, when there are several: a client may ask for the same large group again and
 * again.  What is being answered when it is reached comes whole. */
enum { ANSWERS_BYTES_MAX = 256 << 20 };
enum { GROUPS_ASKED_MAX = 1000 * 1000 }; /* by one request */

#define LOG_MODULE "groups"
#include "base/log.h"

/* ---- On the shard's loop */

static struct uuid member_id(void *arg)
{
    const struct hosted *h = arg;
    return rng_uuid(h->groups->br->rng);
}

const struct group_shard_env groups_shard_env = {
    .answer = groups_ask_answered,
    .write = hosted_write,
    .member_id = member_id,
};

void groups_ask_answered(void *arg, struct group_call *call)
{
    struct groups_ask *a = CONTAINER_OF(call, struct groups_ask, call);
    ASSERT(a->held == arg);
    a->held = NULL;
    a->answered(a);
}

static void refuse(struct groups_ask *a, enum kerr kerr)
{
    group_refuse(&a->call, kerr);
    a->answered(a);
}

static void hand_to_shard(struct groups_ask *a, struct hosted *h)
{
    a->held = h;
    hosted_tick(h);
    group_shard_call(h->shard, &a->call);
    hosted_rearm(h);
}

/* What the answers of this loop may take. */
static bool has_room(const struct groups_ask *a)
{
    return !a->of->arenas || a->call.arena->used < a->call.arena->bytes_max;
}

/* A topic may have been deleted on the way here.  Its offsets have been forgotten by then, or will be when this has
 * been committed: metadata knows before any loop is told. */
static void refuse_gone_topics(struct groups_ask *a)
{
    struct offset_commit_response *out = a->call.out;
    const struct metadata *m = a->of->rq->broker->metadata;
    for (int32_t i = 0; i < out->topics_count; i++) {
        struct offset_commit_response_offset_commit_response_topic *t = &out->topics[i];
        bool by_id = !uuid_is_zero(t->topic_id); /* of the same name there may be another by now */
        if (by_id ? metadata_topic_by_id(m, t->topic_id) : metadata_topic(m, t->name)) continue;
        enum kerr kerr = by_id ? KERR_UNKNOWN_TOPIC_ID : KERR_UNKNOWN_TOPIC_OR_PARTITION;
        for (int32_t k = 0; k < t->partitions_count; k++)
            if (!t->partitions[k].error_code) t->partitions[k].error_code = (int16_t)kerr;
    }
}

static void ask_shard(struct groups_ask *a)
{
    struct group_loop *at = &a->of->groups->loops[loop_index(a->owner)];
    struct hosted *h = hosted_find(at, a->partition);
    if (!has_room(a))
        refuse(a, KERR_INVALID_REQUEST);
    else if (!h || !h->serves)
        refuse(a, KERR_NOT_COORDINATOR);
    else if (h->state != HOSTED_OPEN)
        refuse(a, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    else
        hand_to_shard(a, h);
}

/* The member stays until its session ends.  The time that the shard is told first may bring the answer. */
static void take_back(struct groups_ask *a)
{
    struct hosted *h = a->held;
    if (!h) return; /* the answer is on its way */
    hosted_tick(h);
    if (a->held) group_shard_drop(h->shard, &a->call);
    hosted_rearm(h);
    if (!a->held) return;
    a->held = NULL;
    refuse(a, KERR_NOT_COORDINATOR);
}

/* ---- The way */

static void one_is_back(struct groups_asking *as)
{
    if (--as->out == 0 && !as->rq->running) request_enter(as->rq);
}

static void on_back(struct loop_msg *msg)
{
    struct groups_ask *a = CONTAINER_OF(msg, struct groups_ask, msg);
    a->over = true;
    one_is_back(a->of);
}

static void send_back(struct groups_ask *a)
{
    a->msg.run = on_back;
    loop_post(a->of->rq->loop, &a->msg);
}

/* The shard may be in the midst of something: the handler is entered in a turn of its own. */
static void answered_here(struct groups_ask *a)
{
    a->over = true;
    if (--a->of->out == 0 && !a->of->rq->running) request_wake(a->of->rq);
}

static void on_ask(struct loop_msg *msg)
{
    struct groups_ask *a = CONTAINER_OF(msg, struct groups_ask, msg);
    if (a->call.api == GROUP_COMMIT) refuse_gone_topics(a);
    ask_shard(a);
}

static void on_drop_back(struct loop_msg *msg)
{
    one_is_back(CONTAINER_OF(msg, struct groups_ask, drop_msg)->of);
}

static void on_drop(struct loop_msg *msg)
{
    struct groups_ask *a = CONTAINER_OF(msg, struct groups_ask, drop_msg);
    take_back(a);
    a->drop_msg.run = on_drop_back;
    loop_post(a->of->rq->loop, &a->drop_msg);
}

/* ---- On the request's loop */

bool groups_too_many(const struct request *rq, int32_t count)
{
    if (count <= GROUPS_ASKED_MAX) return false;
    LOG_LIMITED(LOG_LEVEL_WARN, "request_refused",
                "peer=%s groups=%d most=%d reason=\"too many groups in one request\"", rq->conn->host, count,
                GROUPS_ASKED_MAX);
    return true;
}

void groups_asking_begin(struct groups_asking *as, struct request *rq, size_t cap)
{
    *as = (struct groups_asking){.rq = rq, .groups = rq->broker->groups, .cap = cap};
    as->asks = arena_array(&rq->arena, struct groups_ask, cap);
    if (cap <= 1) return;
    unsigned loop_count = rq->broker->loop_count;
    as->arenas = arena_array(&rq->arena, struct arena, loop_count);
    for (unsigned i = 0; i < loop_count; i++) arena_init(&as->arenas[i], ANSWERS_BYTES_MAX / loop_count);
}

/* Each loop that makes answers has an arena of its own, as they may do so at the same time. */
static struct arena *arena_of(const struct groups_asking *as, const struct loop *owner)
{
    return as->arenas ? &as->arenas[loop_index(owner)] : &as->rq->arena;
}

/* "/127.0.0.1", "/0:0:0:0:0:0:0:1": Java's way of showing an address. */
static struct str client_host(struct request *rq)
{
    char text[NET_ADDR_TEXT_MAX];
    net_host_format_java(rq->conn->host, text);
    return arena_printf(&rq->arena, "/%s", text);
}

struct groups_ask *groups_ask(struct groups_asking *as, enum group_api api, struct str group_id, const void *in,
                              void *out)
{
    ASSERT(as->count < as->cap);
    struct request *rq = as->rq;
    struct broker *br = rq->broker;
    struct groups_ask *a = &as->asks[as->count++];
    a->of = as;
    int32_t partitions = groups_partition_count(as->groups);
    a->refusal = group_id_is_valid(group_id, api) ? KERR_COORDINATOR_LOAD_IN_PROGRESS : KERR_INVALID_GROUP_ID;
    a->partition = group_id_is_valid(group_id, api) && partitions ? group_partition_of(group_id, partitions) : -1;
    a->owner = a->partition < 0 ? rq->loop : br->loops[(unsigned)a->partition % br->loop_count];
    a->call = (struct group_call){
        .api = api,
        .version = rq->version,
        .client_id = str_is_null(rq->client_id) ? STR_EMPTY : rq->client_id,
        .client_host = api == GROUP_JOIN ? client_host(rq) : STR_EMPTY, /* nobody else looks at it */
        .in = in,
        .out = out,
        .arena = arena_of(as, a->owner),
    };
    return a;
}

void groups_ask_send(struct groups_ask *a)
{
    struct groups_asking *as = a->of;
    if (a->partition < 0) {
        group_refuse(&a->call, a->refusal);
        a->over = true;
        return;
    }
    as->out++;
    if (as->rq->conn) conn_worked_on(as->rq->conn, a->owner);
    if (a->owner == as->rq->loop) {
        a->answered = answered_here;
        ask_shard(a);
    } else {
        a->answered = send_back;
        a->msg.run = on_ask;
        loop_post(a->owner, &a->msg);
    }
}

static bool waits_for_others(const struct groups_ask *a)
{
    return a->call.api == GROUP_JOIN || a->call.api == GROUP_SYNC;
}

static void take_back_all(struct groups_asking *as)
{
    for (size_t i = 0; i < as->count; i++) {
        struct groups_ask *a = &as->asks[i];
        if (a->over || a->drop_sent || !waits_for_others(a)) continue;
        if (a->owner == as->rq->loop) {
            take_back(a);
            continue;
        }
        a->drop_sent = true;
        as->out++;
        a->drop_msg.run = on_drop;
        loop_post(a->owner, &a->drop_msg);
    }
}

enum step groups_asking_wait(struct groups_asking *as)
{
    if (as->rq->cancelled) take_back_all(as);
    if (as->out > 0) return WAIT;
    for (unsigned i = 0; as->arenas && i < as->rq->broker->loop_count; i++)
        arena_absorb(&as->rq->arena, &as->arenas[i]);
    return DONE;
}

enum step groups_ask_one(struct request *rq, enum group_api api, struct str group_id, bool uncounted)
{
    struct groups_asking *as = REQUEST_OP(rq, struct groups_asking);
    if (!as->rq) {
        groups_asking_begin(as, rq, 1);
        groups_ask_send(groups_ask(as, api, group_id, rq->in, rq->out));
        if (uncounted && as->out > 0) request_uncount(rq);
    }
    return groups_asking_wait(as);
}

/* ---- ListGroups */

/* What one loop has to say. */
struct groups_list_part {
    struct groups_listing *of;
    struct group_loop *at;
    struct groups_asking asking;          /* of no request: it only counts */
    struct list_groups_response *answers; /* one a shard */
    struct arena arena;
    bool loading;
    struct loop_msg msg;
};

static void on_part_back(struct loop_msg *msg)
{
    struct groups_listing *l = CONTAINER_OF(msg, struct groups_list_part, msg)->of;
    if (--l->out == 0) request_enter(l->rq);
}

static void list_answered(struct groups_ask *a)
{
    struct groups_list_part *part = CONTAINER_OF(a->of, struct groups_list_part, asking);
    if (--part->asking.out > 0) return;
    part->msg.run = on_part_back;
    loop_post(part->of->rq->loop, &part->msg);
}

static void list_shard(struct groups_list_part *part, struct hosted *h)
{
    struct groups_asking *as = &part->asking;
    struct list_groups_response *out = &part->answers[as->count];
    *out = list_groups_response_default;
    struct groups_ask *a = &as->asks[as->count++];
    a->of = as;
    a->answered = list_answered;
    a->call = (struct group_call){
        .api = GROUP_LIST, .version = part->of->rq->version, .in = part->of->rq->in, .out = out, .arena = &part->arena};
    as->out++;
    hand_to_shard(a, h);
}

static void on_list(struct loop_msg *msg)
{
    struct groups_list_part *part = CONTAINER_OF(msg, struct groups_list_part, msg);
    struct group_loop *at = part->at;
    struct groups_asking *as = &part->asking;
    struct groups_ask last = {.of = as};
    as->cap = at->slot_count;
    as->asks = arena_array(&part->arena, struct groups_ask, as->cap);
    part->answers = arena_array(&part->arena, struct list_groups_response, as->cap);
    as->out = 1; /* until all have been asked */
    for (size_t i = 0; i < at->slot_count; i++) {
        struct hosted *h = at->slots[i];
        if (!h || !h->serves) continue;
        if (h->state == HOSTED_OPEN)
            list_shard(part, h);
        else
            part->loading = true;
    }
    list_answered(&last);
}

static void list_begin(struct groups_listing *l, struct request *rq)
{
    struct broker *br = rq->broker;
    l->rq = rq;
    l->parts = arena_array(&rq->arena, struct groups_list_part, br->loop_count);
    l->out = br->loop_count;
    for (unsigned i = 0; i < br->loop_count; i++) {
        struct groups_list_part *part = &l->parts[i];
        part->of = l;
        part->at = &br->groups->loops[i];
        arena_init(&part->arena, SIZE_MAX); /* as many as there are groups */
        part->msg.run = on_list;
        loop_post(part->at->loop, &part->msg);
    }
}

/* The groups of those that are loaded are told all the same (Kafka). */
static void list_finish(struct groups_listing *l)
{
    struct request *rq = l->rq;
    struct list_groups_response *out = rq->out;
    size_t total = 0;
    for (unsigned i = 0; i < rq->broker->loop_count; i++)
        for (size_t k = 0; k < l->parts[i].asking.count; k++) total += (size_t)l->parts[i].answers[k].groups_count;
    out->groups = arena_array(&rq->arena, struct list_groups_response_listed_group, total);
    for (unsigned i = 0; i < rq->broker->loop_count; i++) {
        struct groups_list_part *part = &l->parts[i];
        if (part->loading) out->error_code = KERR_COORDINATOR_LOAD_IN_PROGRESS;
        for (size_t k = 0; k < part->asking.count; k++) {
            const struct list_groups_response *one = &part->answers[k];
            if (one->error_code) out->error_code = one->error_code;
            for (int32_t j = 0; j < one->groups_count; j++) out->groups[out->groups_count++] = one->groups[j];
        }
        arena_absorb(&rq->arena, &part->arena);
    }
}

enum step groups_list_all(struct request *rq)
{
    struct groups_listing *l = REQUEST_OP(rq, struct groups_listing);
    if (!l->rq) list_begin(l, rq);
    if (l->out > 0) return WAIT;
    list_finish(l);
    return DONE;
}
