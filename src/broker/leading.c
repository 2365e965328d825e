/* leading.c: AlterPartition goes the way of all that is asked of the controller. */
#include "broker/leading.h"

#include "base/mem.h"
#include "broker/to_controller.h"

enum { ANSWER_MS = 30 * 1000 }; /* then it is said anew, in the name of the epochs as they are now */

struct leading {
    struct broker *br;
    struct controller_call call;
    struct alter_partition_call *asked; /* one at a time */
};

/* Any loop. */
static bool is_alive(void *arg, int32_t broker_id)
{
    const struct leading *lg = arg;
    return cluster_node(metadata_cluster(lg->br->metadata), broker_id) != NULL;
}

static int64_t broker_epoch(void *arg)
{
    return ((const struct leading *)arg)->br->epoch;
}

static void on_answer(struct controller_call *call)
{
    struct leading *lg = CONTAINER_OF(call, struct leading, call);
    struct alter_partition_call *asked = lg->asked;
    lg->asked = NULL;
    asked->done(asked, call->err, call->response);
}

static void alter_partition(void *arg, struct alter_partition_call *asked)
{
    struct leading *lg = arg;
    ASSERT(!lg->asked);
    lg->asked = asked;
    lg->call = (struct controller_call){
        .api = API_ALTER_PARTITION,
        .version_min = asked->version,
        .version_max = asked->version,
        .request = asked->request,
        .timeout_ms = ANSWER_MS,
        .loop = broker_home(lg->br),
        .done = on_answer,
    };
    to_controller_send(lg->br->to_controller, &lg->call);
}

struct leading *leading_new(struct broker *br)
{
    struct leading *lg = mem_zalloc(1, sizeof *lg);
    lg->br = br;
    return lg;
}

void leading_free(struct leading *lg)
{
    mem_free(lg);
}

struct leaders_options leading_options(struct leading *lg, const struct config *cfg)
{
    return (struct leaders_options){
        .lag_max_ms = config_i64(cfg, CFG_REPLICA_LAG_TIME_MAX_MS),
        .is_alive = is_alive,
        .broker_epoch = broker_epoch,
        .alter_partition = alter_partition,
        .arg = lg,
    };
}
