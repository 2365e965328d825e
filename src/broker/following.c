/* following.c: the broker's side of its fetchers: where leaders are reached, who we are, what is configured. */
#include "broker/following.h"

#include <stdio.h>

#include "broker/control.h"
#include "replica/fetchers.h"

static struct fetchers_config config_of(const struct config *cfg)
{
    return (struct fetchers_config){
        .per_leader = (int32_t)config_i64(cfg, CFG_NUM_REPLICA_FETCHERS),
        .fetch_max_bytes = (int32_t)config_i64(cfg, CFG_REPLICA_FETCH_MAX_BYTES),
        .response_max_bytes = (int32_t)config_i64(cfg, CFG_REPLICA_FETCH_RESPONSE_MAX_BYTES),
        .min_bytes = (int32_t)config_i64(cfg, CFG_REPLICA_FETCH_MIN_BYTES),
        .wait_max_ms = (int32_t)config_i64(cfg, CFG_REPLICA_FETCH_WAIT_MAX_MS),
        .backoff_ms = config_i64(cfg, CFG_REPLICA_FETCH_BACKOFF_MS),
        .socket_timeout_ms = config_i64(cfg, CFG_REPLICA_SOCKET_TIMEOUT_MS),
        .receive_buffer_bytes = config_receive_buffer(cfg, CFG_REPLICA_SOCKET_RECEIVE_BUFFER_BYTES),
    };
}

/* Any loop. */
static bool address_of(void *arg, int32_t broker_id, char host[256], int32_t *port)
{
    struct broker *br = arg;
    struct config *cfg = config_live_ref(br->config);
    const struct node *node = cluster_node(metadata_cluster(br->metadata), broker_id);
    const struct node_endpoint *at = node ? node_endpoint(node, str_of(config_inter_broker(cfg)->name)) : NULL;
    bool known = at && at->host.size < 256;
    if (known) {
        snprintf(host, 256, "%.*s", STR_ARG(at->host));
        *port = at->port;
    }
    config_unref(cfg);
    return known;
}

static int64_t epoch_of(void *arg)
{
    return ((const struct broker *)arg)->epoch;
}

static void on_broker_changed(void *arg, int32_t broker_id)
{
    fetchers_broker_changed(((struct broker *)arg)->fetchers, broker_id);
}

/* follower.replication.throttled.rate */

static bool is_throttled(void *arg, const struct partition *p)
{
    (void)arg;
    return atomic_load(&p->throttled) & THROTTLED_AS_FOLLOWER;
}

static void take_rate(struct broker *br)
{
    struct config *cfg = config_live_ref(br->config);
    int64_t rate = config_i64(cfg, CFG_FOLLOWER_REPLICATION_THROTTLED_RATE);
    config_unref(cfg);
    fetchers_throttle(br->fetchers, rate == INT64_MAX ? -1 : rate, is_throttled, NULL);
}

static void throttled_changed(void *arg)
{
    struct broker *br = arg;
    if (br->fetchers) take_rate(br);
}

void following_open(struct broker *br)
{
    struct config *cfg = config_live_ref(br->config);
    const struct fetchers_options opt = {
        .net = br->net,
        .home = broker_home(br),
        .loops = br->loops,
        .loop_count = br->loop_count,
        .workers = br->workers,
        .bufs = br->bufs,
        .broker_id = br->id,
        .config = config_of(cfg),
        .address_of = address_of,
        .broker_epoch = epoch_of,
        .arg = br,
    };
    config_unref(cfg);
    br->fetchers = fetchers_new(&opt);
    take_rate(br);
    control_on_broker_changed(br->control, on_broker_changed, br);
}

static void follow(void *arg, struct partition *p, int32_t leader, int32_t leader_epoch)
{
    const struct broker *br = arg;
    fetchers_follow(br->fetchers, p, leader, leader_epoch);
}

static void leave(void *arg, struct partition *p, void (*left)(void *left_arg, struct partition *p), void *left_arg)
{
    const struct broker *br = arg;
    fetchers_leave(br->fetchers, p, left, left_arg);
}

struct following broker_following(struct broker *br)
{
    return (struct following){.arg = br, .follow = follow, .leave = leave, .throttled_changed = throttled_changed};
}

void following_configure(struct broker *br, const struct config *cfg)
{
    if (!br->fetchers) return; /* it starts */
    const struct fetchers_config config = config_of(cfg);
    fetchers_configure(br->fetchers, &config);
    take_rate(br);
}
