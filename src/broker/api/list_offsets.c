/* ListOffsets (key 2): first, last and by-time offsets of partitions.
 *
 * What stands in memory is answered at once; what has to look into the log (by time, largest timestamp) is collected
 * and done by one worker job.
 *
 * Whoever compares replicas (a controller that is about to elect) is answered by the home loop, which knows of logs
 * that no controller has spoken of yet, too: after a restart of several brokers it is by those that a leader is chosen.
 */
#include "broker/api/gather.h"
#include "broker/api/handlers.h"
#include "broker/api/locate.h"
#include "broker/api/named.h"
#include "wire/gen/list_offsets.h"

typedef struct list_offsets_request_list_offsets_topic asked_topic;
typedef struct list_offsets_request_list_offsets_partition asked_partition;
typedef struct list_offsets_response_list_offsets_topic_response answer_topic;
typedef struct list_offsets_response_list_offsets_partition_response answer_partition;

/* Values of `timestamp` that ask for a place instead of a time. */
enum {
    AT_LATEST = -1,
    AT_EARLIEST = -2,
    AT_MAX_TIMESTAMP = -3,           /* KIP-734 */
    AT_EARLIEST_LOCAL = -4,          /* KIP-405 */
    AT_LATEST_TIERED = -5,           /* KIP-1005 */
    AT_EARLIEST_PENDING_UPLOAD = -6, /* KIP-1023 */
};

/* Values of `replica_id` that are no follower's id. */
enum { REPLICA_CONSUMER = -1, REPLICA_DEBUGGER = -2 };

enum { READ_UNCOMMITTED = 0, READ_COMMITTED = 1 };

/* What a worker looks up. */
struct lookup {
    struct partition *p; /* a reference */
    answer_partition *out;
    int64_t timestamp;
    int64_t below;        /* the end of what the asker may see */
    enum kerr if_missing; /* KERR_NONE: "there is none" is an answer */
};

struct list_offsets_op {
    enum { LIST_CHECK, LIST_LOOK_UP, LIST_ANSWER } stage;
    struct gather gather; /* from the home loop */
    struct loop_msg msg;
    struct request *rq;
    struct lookup *lookups;
    size_t lookup_count;
};

/* First version that knows a special timestamp; older ones refuse it. */
static int16_t special_since(int64_t timestamp)
{
    switch (timestamp) {
    case AT_LATEST:
    case AT_EARLIEST: return 1;
    case AT_MAX_TIMESTAMP: return 7;
    case AT_EARLIEST_LOCAL: return 8;
    case AT_LATEST_TIERED: return 9;
    case AT_EARLIEST_PENDING_UPLOAD: return 11;
    default: return INT16_MAX;
    }
}

static void found(const struct request *rq, answer_partition *out, int64_t timestamp, int64_t offset, int32_t epoch)
{
    out->timestamp = timestamp;
    out->offset = offset;
    /* The field is not one that may be dropped from an older answer. */
    if (rq->version >= 4) out->leader_epoch = epoch;
}

/* ---- Finding the replica */

static enum kerr find_asked(struct request *rq, struct str topic, const asked_partition *asked, struct partition **out)
{
    const struct list_offsets_request *in = rq->in;
    struct located at;
    enum kerr kerr = locate_replica(rq->broker, topic, UUID_ZERO, asked->partition_index, &at);
    if (kerr) return kerr;
    *out = at.partition;
    if (in->replica_id == REPLICA_DEBUGGER) return partition_check_replica(at.partition, asked->current_leader_epoch);
    return partition_check_leader(at.partition, asked->current_leader_epoch);
}

/* Of a log that was found at the start and has no role yet only the end is of interest. */
static bool answer_unclaimed(struct request *rq, struct str topic, const asked_partition *asked, answer_partition *out)
{
    const struct list_offsets_request *in = rq->in;
    int64_t end;
    int32_t last_epoch;
    if (in->replica_id != REPLICA_DEBUGGER || asked->timestamp != AT_LATEST) return false;
    if (!replicas_unclaimed_end(rq->broker->replicas, topic, asked->partition_index, &end, &last_epoch)) return false;
    found(rq, out, -1, end, last_epoch);
    return true;
}

/* ---- Answers from memory */

static int64_t visible_end(const struct list_offsets_request *in, struct partition *p)
{
    if (in->replica_id != REPLICA_CONSUMER) return plog_end(p->pl);
    return in->isolation_level == READ_COMMITTED ? partition_last_stable(p) : partition_high_watermark(p);
}

/* Right after an election the high watermark may lie before the new leader's first offset; the end that a consumer saw
 * under the old leader could then be ahead of ours (KIP-207).  A follower asks for the log's end, which is certain. */
static enum kerr end_fault(const struct request *rq, struct partition *p)
{
    const struct list_offsets_request *in = rq->in;
    int64_t high_watermark = partition_high_watermark(p);
    if (in->replica_id != REPLICA_CONSUMER || high_watermark >= plog_end(p->pl)) return KERR_NONE;
    if (partition_epoch_start(p) <= high_watermark) return KERR_NONE;
    return rq->version >= 5 ? KERR_OFFSET_NOT_AVAILABLE : KERR_LEADER_NOT_AVAILABLE;
}

/* The leader's.  Whoever compares replicas, to choose the next leader say, is told what the log itself has. */
static int32_t latest_epoch(const struct list_offsets_request *in, struct partition *p)
{
    return in->replica_id == REPLICA_DEBUGGER ? plog_last_epoch(p->pl) : atomic_load(&p->leader_epoch);
}

static void answer_latest(struct request *rq, struct partition *p, answer_partition *out)
{
    enum kerr fault = end_fault(rq, p);
    if (fault)
        out->error_code = (int16_t)fault;
    else
        found(rq, out, -1, visible_end(rq->in, p), latest_epoch(rq->in, p));
}

static void answer_earliest(struct request *rq, struct partition *p, answer_partition *out)
{
    int64_t start = plog_start(p->pl);
    found(rq, out, -1, start, plog_epoch_of(p->pl, start));
}

/* Keeps a lookup for the worker. */
static void look_up_later(struct request *rq, struct partition *p, int64_t timestamp, answer_partition *out)
{
    struct list_offsets_op *op = rq->op;
    op->lookups[op->lookup_count++] = (struct lookup){
        .p = partition_ref(p),
        .out = out,
        .timestamp = timestamp,
        .below = visible_end(rq->in, p),
        .if_missing = end_fault(rq, p),
    };
}

static void answer_partition_of(struct request *rq, struct str topic, const asked_partition *asked,
                                answer_partition *out)
{
    const struct list_offsets_request *in = rq->in;
    if (asked->timestamp < 0 && rq->version < special_since(asked->timestamp)) {
        out->error_code = KERR_UNSUPPORTED_VERSION;
        return;
    }
    if (in->isolation_level != READ_UNCOMMITTED && in->isolation_level != READ_COMMITTED) {
        out->error_code = KERR_INVALID_REQUEST;
        return;
    }
    struct partition *p;
    enum kerr kerr = find_asked(rq, topic, asked, &p);
    if (kerr && answer_unclaimed(rq, topic, asked, out)) return;
    out->error_code = (int16_t)kerr;
    if (kerr) return;
    switch (asked->timestamp) {
    case AT_LATEST: answer_latest(rq, p, out); return;
    case AT_EARLIEST:
    case AT_EARLIEST_LOCAL: /* nothing is tiered: all there is is local */ answer_earliest(rq, p, out); return;
    case AT_LATEST_TIERED: /* and there is nothing anywhere else: offset -1, no error */
    case AT_EARLIEST_PENDING_UPLOAD: return;
    default: look_up_later(rq, p, asked->timestamp, out);
    }
}

/* ---- Answers from the log; worker */

static enum err look_up(const struct lookup *l, int64_t *offset, int64_t *timestamp, int32_t *epoch)
{
    if (l->timestamp >= 0) return plog_find_time(l->p->pl, l->timestamp, l->below, offset, timestamp, epoch);
    enum err e = plog_max_timestamp(l->p->pl, timestamp, offset);
    if (e) return e;
    if (*offset >= l->below) *offset = -1;
    if (*offset >= 0) *epoch = plog_epoch_of(l->p->pl, *offset);
    return OK;
}

static void look_up_all(struct request *rq)
{
    struct list_offsets_op *op = rq->op;
    for (size_t i = 0; i < op->lookup_count; i++) {
        struct lookup *l = &op->lookups[i];
        int64_t offset = -1, timestamp = -1;
        int32_t epoch = -1;
        enum err e = look_up(l, &offset, &timestamp, &epoch);
        struct partition *next = partition_successor(l->p);
        if (e == ERR_CLOSED && next) { /* it has just moved to another log directory */
            partition_ref(next);
            partition_unref(l->p);
            l->p = next;
            e = look_up(l, &offset, &timestamp, &epoch);
        }
        if (e == ERR_IO || e == ERR_NOT_FILE) partition_failed(l->p, e, "read");
        if (e)
            l->out->error_code = (int16_t)kerr_of(e);
        else if (offset >= 0)
            found(rq, l->out, timestamp, offset, epoch);
        else
            l->out->error_code = (int16_t)l->if_missing;
        partition_unref(l->p); /* here, since the last one closes files */
    }
}

/* ---- The request */

static size_t count_partitions(const struct list_offsets_request *in)
{
    size_t n = 0;
    for (int32_t i = 0; i < in->topics_count; i++) n += (size_t)in->topics[i].partitions_count;
    return n;
}

static struct named *name_all(struct request *rq, size_t total)
{
    const struct list_offsets_request *in = rq->in;
    struct named *named = arena_array(&rq->arena, struct named, total);
    size_t n = 0;
    for (int32_t i = 0; i < in->topics_count; i++)
        for (int32_t k = 0; k < in->topics[i].partitions_count; k++)
            named[n++] =
                (struct named){.topic = in->topics[i].name, .partition = in->topics[i].partitions[k].partition_index};
    named_find_repeats(named, total, &rq->arena);
    return named;
}

static void answer_topic_of(struct request *rq, const asked_topic *asked, const struct named *named, answer_topic *out)
{
    *out = list_offsets_response_list_offsets_topic_response_default;
    out->name = asked->name;
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)asked->partitions_count);
    out->partitions_count = asked->partitions_count;
    for (int32_t i = 0; i < asked->partitions_count; i++) {
        answer_partition *p = &out->partitions[i];
        *p = list_offsets_response_list_offsets_partition_response_default;
        p->partition_index = asked->partitions[i].partition_index;
        if (named[i].repeated)
            p->error_code = KERR_INVALID_REQUEST;
        else
            answer_partition_of(rq, asked->name, &asked->partitions[i], p);
    }
}

static void answer_from_memory(struct request *rq)
{
    const struct list_offsets_request *in = rq->in;
    struct list_offsets_response *out = rq->out;
    struct list_offsets_op *op = rq->op;
    size_t total = count_partitions(in);
    const struct named *named = name_all(rq, total);
    op->lookups = arena_array(&rq->arena, struct lookup, total);
    out->topics = arena_array(&rq->arena, answer_topic, (size_t)in->topics_count);
    out->topics_count = in->topics_count;
    for (int32_t i = 0; i < in->topics_count; i++) {
        answer_topic_of(rq, &in->topics[i], named, &out->topics[i]);
        named += in->topics[i].partitions_count;
    }
}

/* Home loop. */
static void answer_comparer(struct loop_msg *msg)
{
    struct list_offsets_op *op = CONTAINER_OF(msg, struct list_offsets_op, msg);
    answer_from_memory(op->rq);
    gather_arrived(&op->gather);
}

static void ask_home(struct request *rq)
{
    struct list_offsets_op *op = rq->op;
    op->rq = rq;
    op->msg.run = answer_comparer;
    gather_add(&op->gather);
    loop_post(broker_home(rq->broker), &op->msg);
}

enum step list_offsets_handle(struct request *rq)
{
    struct list_offsets_op *op = REQUEST_OP(rq, struct list_offsets_op);
    const struct list_offsets_request *in = rq->in;
    switch (op->stage) {
    case LIST_CHECK:
        op->stage = LIST_LOOK_UP;
        gather_begin(&op->gather, rq);
        if (in->replica_id == REPLICA_DEBUGGER)
            ask_home(rq);
        else
            answer_from_memory(rq);
        if (!gather_end(&op->gather)) return WAIT;
        FALLTHROUGH;
    case LIST_LOOK_UP:
        if (!op->gather.complete) return WAIT;
        op->stage = LIST_ANSWER;
        if (op->lookup_count == 0) return DONE;
        request_offload(rq, look_up_all);
        return WAIT;
    case LIST_ANSWER: /* the worker is through */ return DONE;
    }
    UNREACHABLE();
}
