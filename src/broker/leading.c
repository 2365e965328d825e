/* leading.c: the broker's side of its leaders. */
#include "broker/leading.h"

#include "base/mem.h"
#include "broker/to_controller.h"

enum { ASK_MS_MAX = 30 * 1000 }; /* then whoever is the controller is asked anew, with what there is to propose then */

struct leading {
    struct broker *br;
    struct controller_call call;
    struct alter_partition_call *asked;
};

static bool is_alive(void *arg, int32_t broker_id)
{
    const struct leading *ld = arg;
    return cluster_node(metadata_cluster(ld->br->metadata), broker_id) != NULL;
}

static int64_t broker_epoch(void *arg)
{
    return ((const struct leading *)arg)->br->epoch;
}

static void on_answer(struct controller_call *call)
{
    struct leading *ld = CONTAINER_OF(call, struct leading, call);
    struct alter_partition_call *asked = ld->asked;
    ld->asked = NULL;
    asked->done(asked, call->err, call->err ? NULL : call->response);
}

static void alter_partition(void *arg, struct alter_partition_call *asked)
{
    struct leading *ld = arg;
    ASSERT(!ld->asked);
    ld->asked = asked;
    ld->call = (struct controller_call){
        .api = API_ALTER_PARTITION,
        .version_min = asked->version,
        .version_max = asked->version,
        .request = asked->request,
        .timeout_ms = ASK_MS_MAX,
        .loop = broker_home(ld->br),
        .done = on_answer,
    };
    to_controller_send(ld->br->to_controller, &ld->call);
}

struct leading *leading_new(struct broker *br)
{
    struct leading *ld = mem_zalloc(1, sizeof *ld);
    ld->br = br;
    return ld;
}

void leading_free(struct leading *ld)
{
    mem_free(ld);
}

struct leaders_options leading_options(struct leading *ld, const struct config *cfg)
{
    return (struct leaders_options){
        .lag_max_ms = config_i64(cfg, CFG_REPLICA_LAG_TIME_MAX_MS),
        .is_alive = is_alive,
        .broker_epoch = broker_epoch,
        .alter_partition = alter_partition,
        .arg = ld,
    };
}
