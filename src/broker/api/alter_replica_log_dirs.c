/* AlterReplicaLogDirs (key 34, KIP-113): moves replicas of this broker to other log directories.  It is answered when
 * the moves have begun; DescribeLogDirs tells how far they are.  The home loop decides, since it owns the moves. */
#include "broker/api/gather.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "wire/gen/alter_replica_log_dirs.h"

typedef struct alter_replica_log_dirs_request_alter_replica_log_dir_topic asked_topic;
typedef struct alter_replica_log_dirs_response_alter_replica_log_dir_topic_result answer_topic;
typedef struct alter_replica_log_dirs_response_alter_replica_log_dir_partition_result answer_partition;

struct alter_replica_log_dirs_op {
    struct gather gather;
    struct loop_msg msg;
    struct request *rq;
    bool sent;
};

/* A partition that is nowhere is told apart from one that is elsewhere. */
static enum kerr move(struct request *rq, struct str topic, int32_t index, struct str dir)
{
    enum kerr kerr = replicas_move(rq->broker->replicas, topic, index, dir);
    if (kerr != KERR_REPLICA_NOT_AVAILABLE) return kerr;
    const struct topic_view *t = metadata_topic(rq->broker->metadata, topic);
    bool exists = t && index >= 0 && index < t->partition_count;
    return exists ? KERR_REPLICA_NOT_AVAILABLE : KERR_UNKNOWN_TOPIC_OR_PARTITION;
}

static void alter_topic(struct request *rq, struct str dir, const asked_topic *asked, answer_topic *out)
{
    out->topic_name = asked->name;
    out->partitions = arena_array(&rq->arena, answer_partition, (size_t)asked->partitions_count);
    out->partitions_count = asked->partitions_count;
    for (int32_t i = 0; i < asked->partitions_count; i++)
        out->partitions[i] = (answer_partition){
            .partition_index = asked->partitions[i],
            .error_code = (int16_t)move(rq, asked->name, asked->partitions[i], dir),
        };
}

/* Home loop.  The answer has a row for each row of the request; clients put them together by name. */
static void alter_all(struct loop_msg *msg)
{
    struct alter_replica_log_dirs_op *op = CONTAINER_OF(msg, struct alter_replica_log_dirs_op, msg);
    struct request *rq = op->rq;
    const struct alter_replica_log_dirs_request *in = rq->in;
    struct alter_replica_log_dirs_response *out = rq->out;
    size_t total = 0;
    for (int32_t d = 0; d < in->dirs_count; d++) total += (size_t)in->dirs[d].topics_count;
    out->results = arena_array(&rq->arena, answer_topic, total);
    for (int32_t d = 0; d < in->dirs_count; d++)
        for (int32_t t = 0; t < in->dirs[d].topics_count; t++)
            alter_topic(rq, in->dirs[d].path, &in->dirs[d].topics[t], &out->results[out->results_count++]);
    gather_arrived(&op->gather);
}

enum step alter_replica_log_dirs_handle(struct request *rq)
{
    struct alter_replica_log_dirs_op *op = REQUEST_OP(rq, struct alter_replica_log_dirs_op);
    if (op->sent) return op->gather.complete ? DONE : WAIT;
    op->sent = true;
    op->rq = rq;
    op->msg.run = alter_all;
    gather_begin(&op->gather, rq);
    gather_add(&op->gather);
    loop_post(broker_home(rq->broker), &op->msg);
    return gather_end(&op->gather) ? DONE : WAIT;
}
