/* leaving.c: see leaving.h.
 *
 * The call to the controller is lent this file's memory until it is answered, which may be after `done`: hence the
 * struct lives as long as the broker. */
#include "broker/leaving.h"

#include "base/mem.h"
#include "broker/to_controller.h"
#include "wire/gen/controlled_shutdown.h"

#define LOG_MODULE "broker"
#include "base/log.h"

/* Since version 3 with the broker's epoch: an earlier life's request moves nothing. */
enum { VERSION = 3 };

struct leaving {
    struct broker_run *run;
    void (*done)(void *arg); /* NULL: it has been called */
    void *arg;
    int64_t attempts_left, backoff_ms, timeout_ms;
    int64_t until_us; /* however the attempts end */
    struct controlled_shutdown_request request;
    struct controller_call call;
    struct timer again;
};

static void end(struct leaving *lv)
{
    void (*done)(void *arg) = lv->done;
    lv->done = NULL;
    loop_timer_cancel(broker_home(&lv->run->br), &lv->again);
    if (done) done(lv->arg);
}

/* Who else could lead. */
static bool others_live(const struct broker *br)
{
    const struct cluster_view *cluster = metadata_cluster(br->metadata);
    for (int32_t i = 0; i < cluster->count; i++)
        if (cluster->nodes[i].id != br->id) return true;
    return false;
}

static void ask(struct leaving *lv);

static void on_again(struct timer *t)
{
    ask(CONTAINER_OF(t, struct leaving, again));
}

static void try_again(struct leaving *lv, const char *reason)
{
    struct loop *home = broker_home(&lv->run->br);
    if (--lv->attempts_left <= 0 || loop_now_us(home) + lv->backoff_ms * 1000 >= lv->until_us ||
        !others_live(&lv->run->br)) {
        LOG_WARN("controlled_shutdown_failed", "reason=\"%s\"; stopping all the same", reason);
        end(lv);
        return;
    }
    LOG_INFO("controlled_shutdown_again", "reason=\"%s\" attempts_left=%lld", reason, (long long)lv->attempts_left);
    lv->again.fire = on_again;
    loop_timer_set(home, &lv->again, loop_now_us(home) + lv->backoff_ms * 1000);
}

static void on_answer(struct controller_call *call)
{
    struct leaving *lv = CONTAINER_OF(call, struct leaving, call);
    const struct controlled_shutdown_response *res = call->response;
    if (!lv->done) return; /* cut */
    if (call->err == ERR_CLOSED) {
        end(lv);
    } else if (call->err) {
        try_again(lv, err_text(call->err));
    } else if (res->error_code) {
        try_again(lv, kerr_name(res->error_code));
    } else if (res->remaining_partitions_count > 0) {
        try_again(lv, "partitions are left that nobody else can lead");
    } else {
        LOG_INFO("controlled_shutdown", "broker=%d notice=\"others lead what this broker led\"", lv->run->br.id);
        end(lv);
    }
}

static void ask(struct leaving *lv)
{
    struct broker *br = &lv->run->br;
    int64_t now_us = loop_now_us(broker_home(br));
    if (metadata_cluster(br->metadata)->controller_id < 0) {
        try_again(lv, "no controller is known");
        return;
    }
    lv->request = (struct controlled_shutdown_request){.broker_id = br->id, .broker_epoch = atomic_load(&br->epoch)};
    lv->call = (struct controller_call){.api = API_CONTROLLED_SHUTDOWN,
                                        .version_min = VERSION,
                                        .version_max = VERSION,
                                        .request = &lv->request,
                                        .timeout_ms = MIN(lv->timeout_ms, (lv->until_us - now_us) / 1000),
                                        .loop = broker_home(br),
                                        .done = on_answer};
    to_controller_send(br->to_controller, &lv->call);
}

struct leaving *leaving_begin(struct broker_run *run, void (*done)(void *arg), void *arg)
{
    struct broker *br = &run->br;
    const struct config *cfg = broker_config(br, broker_home(br));
    if (!run->started || br->alone || !config_bool(cfg, CFG_CONTROLLED_SHUTDOWN_ENABLE) || !others_live(br))
        return NULL;
    struct leaving *lv = mem_zalloc(1, sizeof *lv);
    *lv = (struct leaving){
        .run = run,
        .done = done,
        .arg = arg,
        .attempts_left = config_i64(cfg, CFG_CONTROLLED_SHUTDOWN_MAX_RETRIES),
        .backoff_ms = config_i64(cfg, CFG_CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS),
        .timeout_ms = config_i64(cfg, CFG_CONTROLLER_SOCKET_TIMEOUT_MS),
    };
    if (lv->attempts_left <= 0) {
        mem_free(lv);
        return NULL;
    }
    int64_t all_ms = lv->timeout_ms + (lv->attempts_left - 1) * lv->backoff_ms;
    lv->until_us = loop_now_us(broker_home(br)) + all_ms * 1000;
    ask(lv);
    return lv;
}

void leaving_cut(struct leaving *lv)
{
    if (!lv->done) return;
    LOG_WARN("controlled_shutdown_cut", "reason=\"told to stop once more\"");
    end(lv);
}

void leaving_free(struct leaving *lv)
{
    mem_free(lv);
}
