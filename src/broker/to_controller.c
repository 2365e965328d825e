/* to_controller.c: see to_controller.h.
 *
 * Calls come to the home loop as messages, wait there until there is a controller, and are handed to it, in their
 * order: to the one of this process as calls, to another as requests over a link that is kept up.  One that is handed
 * over is a `way`, which has the memory that the other side needs: so a call whose time is up is answered, and what is
 * still under way for it comes to nothing.  Only a call that is with our own controller cannot be taken back, since its
 * request is lent; that controller answers soon, in office or out of it.
 *
 * "I am not the controller" puts a call back among those that wait.  They are handed over again when an UpdateMetadata
 * names a controller, and otherwise after RETRY_MS: whoever said no may be on its way into office. */
#include "broker/to_controller.h"

#include "base/mem.h"
#include "broker/broker.h"
#include "broker/link.h"
#include "controller/controller.h"
#include "wire/gen/allocate_producer_ids.h"
#include "wire/gen/create_topics.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { RETRY_MS = 50, CALLS_OUT_MAX = 64, DECODE_MAX = 64 << 20 };

struct to_controller {
    struct broker *br;
    bool stopped;
    struct list waiting, out; /* calls */
    size_t remote_out;        /* of those with another broker's controller */
    struct timer retry;
    bool refused; /* the last answer was "not the controller": wait for `retry` */

    /* The way to another broker's. */
    struct link *ln;
    int32_t peer_id;
    char *peer_host;
    int32_t peer_port;
    char *client_id;
    void (*dead)(void *arg, int32_t controller_id);
    void *dead_arg;
};

/* A call that a controller has. */
struct way {
    struct to_controller *tc;
    struct controller_call *call; /* NULL: nobody waits for it any more */
    struct rpc_call rpc;          /* to another broker, or: */
    bool local;
    void *response; /* the answer that our own controller fills in */
    struct arena arena;
};

static void pump(struct to_controller *tc);

static struct loop *home(const struct to_controller *tc)
{
    return broker_home(tc->br);
}

/* ---- answering */

static void call_deliver(struct loop_msg *msg)
{
    struct controller_call *call = CONTAINER_OF(msg, struct controller_call, msg);
    struct arena arena = call->arena; /* `done` may free the call */
    struct buf *frame = call->frame;
    call->done(call);
    buf_unref(frame);
    arena_fini(&arena);
}

static void call_answer(struct to_controller *tc, struct controller_call *call, enum err e, const void *response)
{
    list_remove(&call->link);
    loop_timer_cancel(home(tc), &call->deadline);
    call->err = e;
    call->response = response;
    call->way = NULL;
    call->msg.run = call_deliver;
    loop_post(call->loop, &call->msg);
}

static void way_free(struct way *w)
{
    arena_fini(&w->arena);
    mem_free(w);
}

static int16_t topics_error(const struct create_topics_response *res)
{
    for (int32_t i = 0; i < res->topics_count; i++)
        if (res->topics[i].error_code == KERR_NOT_CONTROLLER) return KERR_NOT_CONTROLLER;
    return KERR_NONE;
}

static bool says_not_controller(enum api api, const void *response)
{
    int16_t code = KERR_NONE;
    switch ((int)api) {
    case API_ALTER_PARTITION: code = ((const struct alter_partition_response *)response)->error_code; break;
    case API_ALLOCATE_PRODUCER_IDS: code = ((const struct allocate_producer_ids_response *)response)->error_code; break;
    case API_CONTROLLED_SHUTDOWN: code = ((const struct controlled_shutdown_response *)response)->error_code; break;
    case API_CREATE_TOPICS: code = topics_error(response); break;
    default: UNREACHABLE();
    }
    return code == KERR_NOT_CONTROLLER;
}

static bool time_is_up(const struct controller_call *call)
{
    return !timer_is_set(&call->deadline);
}

/* To the end of those that wait, or to nobody. */
static void call_again(struct to_controller *tc, struct controller_call *call)
{
    call->way = NULL;
    list_remove(&call->link);
    if (tc->stopped || time_is_up(call))
        call_answer(tc, call, tc->stopped ? ERR_CLOSED : ERR_TIMEOUT, NULL);
    else
        list_push_back(&tc->waiting, &call->link);
}

static void retry_later(struct to_controller *tc)
{
    if (tc->stopped) return; /* our own controller says no as it stops, too */
    tc->refused = true;
    if (!timer_is_set(&tc->retry)) loop_timer_set(home(tc), &tc->retry, loop_now_us(home(tc)) + RETRY_MS * 1000);
}

/* ---- our own controller */

static void local_over(struct way *w)
{
    struct to_controller *tc = w->tc;
    struct controller_call *call = w->call;
    if (says_not_controller(call->api, w->response)) {
        call_again(tc, call);
        retry_later(tc);
    } else {
        arena_absorb(&call->arena, &w->arena);
        call->version = call->version_max;
        call_answer(tc, call, OK, w->response);
    }
    way_free(w);
}

static void on_local_answer(void *arg)
{
    local_over(arg);
}

static void on_local_block(void *arg, const struct controller_results *r)
{
    struct way *w = arg;
    struct allocate_producer_ids_response *out = w->response;
    out->error_code = (int16_t)r->results[0].kerr;
    out->producer_id_start = r->producer_id_start;
    out->producer_id_len = r->producer_id_count;
    local_over(w);
}

static void on_local_topics(void *arg, const struct controller_results *r)
{
    struct way *w = arg;
    struct create_topics_response *out = w->response;
    out->topics = arena_array(&w->arena, struct create_topics_response_creatable_topic_result, r->count);
    for (size_t i = 0; i < r->count; i++) {
        struct create_topics_response_creatable_topic_result *t = &out->topics[out->topics_count++];
        *t = create_topics_response_creatable_topic_result_default;
        t->name = arena_str(&w->arena, r->results[i].name);
        t->topic_id = r->results[i].topic_id;
        t->error_code = (int16_t)r->results[i].kerr;
        t->error_message = arena_str(&w->arena, r->results[i].message);
    }
    local_over(w);
}

static void allocate_locally(struct way *w, const struct allocate_producer_ids_request *in)
{
    controller_allocate_producer_ids(w->tc->br->controller, in->broker_id, in->broker_epoch,
                                     (struct controller_to){home(w->tc), on_local_block, w});
}

/* Without assignments: nobody here gives any. */
static void create_topics_locally(struct way *w, const struct create_topics_request *in)
{
    struct arena *a = &w->arena;
    size_t count = (size_t)in->topics_count;
    struct controller_new_topic *topics = arena_array(a, struct controller_new_topic, count);
    for (size_t i = 0; i < count; i++) {
        const struct create_topics_request_creatable_topic *t = &in->topics[i];
        struct znode_setting *settings = arena_array(a, struct znode_setting, (size_t)t->configs_count);
        for (int32_t k = 0; k < t->configs_count; k++)
            settings[k] = (struct znode_setting){t->configs[k].name, t->configs[k].value};
        ASSERT(t->assignments_count == 0);
        topics[i] = (struct controller_new_topic){.name = t->name,
                                                  .partition_count = t->num_partitions,
                                                  .replication_factor = t->replication_factor,
                                                  .settings = settings,
                                                  .setting_count = (size_t)t->configs_count};
    }
    controller_create_topics(w->tc->br->controller, topics, count, in->validate_only, in->timeout_ms,
                             (struct controller_to){home(w->tc), on_local_topics, w});
}

static void send_locally(struct to_controller *tc, struct way *w)
{
    struct controller *c = tc->br->controller;
    const struct controller_call *call = w->call;
    const struct wire_schema *schema = wire_api_find((int16_t)call->api)->response;
    w->local = true;
    w->response = arena_alloc(&w->arena, schema->size);
    memcpy(w->response, schema->default_value, schema->size);
    const struct controller_request rq = {.a = &w->arena, .loop = home(tc), .done = on_local_answer, .arg = w};
    switch ((int)call->api) {
    case API_ALTER_PARTITION: controller_alter_partition(c, call->request, call->version_max, w->response, rq); break;
    case API_CONTROLLED_SHUTDOWN: controller_controlled_shutdown(c, call->request, w->response, rq); break;
    case API_ALLOCATE_PRODUCER_IDS: allocate_locally(w, call->request); break;
    case API_CREATE_TOPICS: create_topics_locally(w, call->request); break;
    default: UNREACHABLE();
    }
}

/* ---- another broker's */

/* What the answer consists of outlives the link's next one. */
static void keep_answer(struct controller_call *call, const struct rpc_call *from)
{
    arena_absorb(&call->arena, from->memory);
    call->frame = buf_ref(from->frame);
    call->version = from->version;
}

static void on_remote_answer(struct rpc_call *rpc)
{
    struct way *w = CONTAINER_OF(rpc, struct way, rpc);
    struct to_controller *tc = w->tc;
    struct controller_call *call = w->call;
    tc->remote_out--;
    if (!call) {
        /* it was answered when its time was up */
    } else if (rpc->err == ERR_UNSUPPORTED) {
        call_answer(tc, call, rpc->err, NULL);
    } else if (rpc->err) {
        call_again(tc, call);
    } else if (says_not_controller(call->api, rpc->response)) {
        call_again(tc, call);
        retry_later(tc);
    } else {
        tc->refused = false;
        keep_answer(call, rpc);
        call_answer(tc, call, OK, rpc->response);
    }
    way_free(w);
    pump(tc);
}

static void send_over_link(struct to_controller *tc, struct way *w)
{
    const struct controller_call *call = w->call;
    w->rpc = (struct rpc_call){.api = call->api,
                               .version_min = call->version_min,
                               .version_max = call->version_max,
                               .request = call->request,
                               .done = on_remote_answer};
    tc->remote_out++;
    link_send(tc->ln, &w->rpc); /* written out before it returns: the request is not looked at again */
}

static void on_up(void *arg)
{
    struct to_controller *tc = arg;
    LOG_DEBUG("controller_reached", "controller=%d", tc->peer_id);
    tc->refused = false;
    pump(tc);
}

static void on_down(void *arg, enum rpc_end end, const char *text)
{
    struct to_controller *tc = arg;
    LOG_LIMITED(LOG_LEVEL_WARN, "controller_not_reached", "controller=%d reason=\"%s\"", tc->peer_id, text);
    if (end == RPC_REFUSED && tc->dead) tc->dead(tc->dead_arg, tc->peer_id);
}

static void disconnect(struct to_controller *tc)
{
    link_close(tc->ln);
    mem_free(tc->peer_host);
    tc->ln = NULL;
    tc->peer_host = NULL;
    tc->peer_id = -1;
}

static bool is_linked_to(const struct to_controller *tc, int32_t id, const struct node_endpoint *at)
{
    return tc->ln && tc->peer_id == id && tc->peer_port == at->port && str_is(at->host, tc->peer_host);
}

static void connect_to(struct to_controller *tc, int32_t id, const struct node_endpoint *at)
{
    struct broker *br = tc->br;
    const struct config *cfg = broker_config(br, home(tc));
    tc->peer_id = id;
    tc->peer_host = mem_strndup(at->host.data, at->host.size);
    tc->peer_port = at->port;
    const struct link_options opt = {
        .rpc = {.net = br->net,
                .loop = home(tc),
                .workers = br->workers,
                .bufs = br->bufs,
                .client_id = str_of(tc->client_id),
                .connect_timeout_ms = config_i64(cfg, CFG_SOCKET_CONNECTION_SETUP_TIMEOUT_MS),
                .silence_ms = config_i64(cfg, CFG_REQUEST_TIMEOUT_MS),
                .receive_buffer_bytes = -1},
        .up = on_up,
        .down = on_down,
        .arg = tc,
    };
    tc->ln = link_open(&opt, at->host, at->port);
}

/* ---- handing over */

static void hand_over(struct to_controller *tc, struct controller_call *call, bool local)
{
    struct way *w = mem_zalloc(1, sizeof *w);
    *w = (struct way){.tc = tc, .call = call};
    arena_init(&w->arena, DECODE_MAX);
    call->way = w;
    list_remove(&call->link);
    list_push_back(&tc->out, &call->link);
    if (local)
        send_locally(tc, w);
    else
        send_over_link(tc, w);
}

static void pump(struct to_controller *tc)
{
    if (tc->stopped || tc->refused) return;
    bool local = metadata_cluster(tc->br->metadata)->controller_id == tc->br->id && tc->br->controller;
    if (!local && (!tc->ln || !link_is_up(tc->ln))) return;
    LIST_EACH (&tc->waiting, n) {
        if (!local && tc->remote_out >= CALLS_OUT_MAX) return;
        hand_over(tc, CONTAINER_OF(n, struct controller_call, link), local);
    }
}

static void on_retry(struct timer *t)
{
    struct to_controller *tc = CONTAINER_OF(t, struct to_controller, retry);
    tc->refused = false;
    pump(tc);
}

void to_controller_changed(struct to_controller *tc)
{
    if (tc->stopped) return;
    const struct cluster_view *cluster = metadata_cluster(tc->br->metadata);
    int32_t id = cluster->controller_id;
    const struct listener *listener = config_inter_broker(broker_config(tc->br, home(tc)));
    const struct node_endpoint *at =
        id == tc->br->id ? NULL : node_endpoint(cluster_node(cluster, id), str_of(listener->name));
    if (!at) {
        disconnect(tc); /* ours, or none that can be reached */
    } else if (!is_linked_to(tc, id, at)) {
        disconnect(tc);
        connect_to(tc, id, at);
    }
    tc->refused = false;
    pump(tc);
}

static void on_deadline(struct timer *t)
{
    struct controller_call *call = CONTAINER_OF(t, struct controller_call, deadline);
    struct to_controller *tc = call->tc;
    struct way *w = call->way;
    if (w && w->local) return; /* answered as soon as that controller has */
    if (w) w->call = NULL;
    call_answer(tc, call, ERR_TIMEOUT, NULL);
}

static void on_call(struct loop_msg *msg)
{
    struct controller_call *call = CONTAINER_OF(msg, struct controller_call, msg);
    struct to_controller *tc = call->tc;
    call->deadline.fire = on_deadline;
    loop_timer_set(home(tc), &call->deadline, loop_now_us(home(tc)) + MAX(call->timeout_ms, 0) * 1000);
    list_push_back(&tc->waiting, &call->link);
    if (tc->stopped)
        call_answer(tc, call, ERR_CLOSED, NULL);
    else
        pump(tc);
}

/* ---- the face */

struct to_controller *to_controller_new(struct broker *br)
{
    struct to_controller *tc = mem_zalloc(1, sizeof *tc);
    tc->br = br;
    tc->peer_id = -1;
    tc->client_id = mem_printf("%d", br->id); /* Kafka's brokers call themselves so */
    tc->retry.fire = on_retry;
    list_init(&tc->waiting);
    list_init(&tc->out);
    return tc;
}

void to_controller_stop(struct to_controller *tc)
{
    if (!tc || tc->stopped) return;
    tc->stopped = true;
    loop_timer_cancel(home(tc), &tc->retry);
    disconnect(tc); /* what is out there comes back */
    LIST_EACH (&tc->waiting, n) call_answer(tc, CONTAINER_OF(n, struct controller_call, link), ERR_CLOSED, NULL);
}

void to_controller_free(struct to_controller *tc)
{
    if (!tc) return;
    ASSERT(list_is_empty(&tc->waiting) && list_is_empty(&tc->out));
    disconnect(tc);
    mem_free(tc->client_id);
    mem_free(tc);
}

void to_controller_on_dead(struct to_controller *tc, void (*dead)(void *arg, int32_t controller_id), void *arg)
{
    tc->dead = dead;
    tc->dead_arg = arg;
}

void to_controller_send(struct to_controller *tc, struct controller_call *call)
{
    call->tc = tc;
    call->err = OK;
    call->response = NULL;
    call->frame = NULL;
    call->way = NULL;
    arena_init(&call->arena, DECODE_MAX);
    call->msg.run = on_call;
    loop_post(home(tc), &call->msg);
}
