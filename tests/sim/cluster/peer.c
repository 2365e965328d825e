/* peer.c: a client's connections, and what it knows of the cluster. */
#include <string.h>

#include "base/endian.h"
#include "wire/gen/metadata.h"
#include "wire/gen/request_header.h"
#include "wire/gen/response_header.h"
#include "world.h"

enum { REQUEST_US = 3 * 1000 * 1000, DECODE_MAX = 64 << 20 };

/* ---- Sending and receiving */

static void out_flush(struct peer *p)
{
    while (p->connected && !p->broken && p->out_at < p->out_size) {
        struct iovec iov = {p->out + p->out_at, p->out_size - p->out_at};
        size_t sent;
        enum err e = sock_send(p->sock, &iov, 1, false, &sent);
        if (e == ERR_AGAIN) return;
        if (e) {
            peer_break(p);
            return;
        }
        p->out_at += sent;
    }
    if (p->out_at == p->out_size) p->out_at = p->out_size = 0;
}

static void call_end(struct call *c, const void *response)
{
    list_remove(&c->link);
    c->done(c, response);
}

static void on_timer(struct timer *t)
{
    struct peer *p = CONTAINER_OF(t, struct peer, timer);
    struct list_node *first = list_first(&p->calls);
    if (!first) return;
    struct call *c = CONTAINER_OF(first, struct call, link);
    if (c->deadline_us <= p->w->now_us)
        peer_break(p);
    else
        loop_timer_set(p->w->loop, t, c->deadline_us);
}

static void answer_came(struct peer *p, const uint8_t *frame, size_t size)
{
    struct list_node *first = list_first(&p->calls);
    ASSERT(first);
    struct call *c = CONTAINER_OF(first, struct call, link);
    const struct wire_api *api = wire_api_find((int16_t)c->api);
    struct arena a;
    arena_init(&a, DECODE_MAX);
    struct reader r = reader_of(frame, size);
    struct response_header header;
    enum err e = response_header_decode(&header, wire_response_header_version(api, c->version), &r, &a);
    void *response = arena_alloc(&a, api->response->size);
    if (!e) e = wire_decode(api->response, response, c->version, &r, &a);
    if (e || header.correlation_id != c->correlation_id)
        wrong(p->w, "broker %d sends client %d no sound answer to %s, %d instead of %d: %s", p->node + 1, p->client,
              api->name, header.correlation_id, c->correlation_id, err_text(e));
    else
        call_end(c, response);
    arena_fini(&a);
}

static void in_parse(struct peer *p)
{
    size_t at = 0;
    while (!p->broken && p->in_size - at >= 4) {
        size_t size = get_be32(p->in + at);
        if (p->in_size - at - 4 < size) break;
        answer_came(p, p->in + at + 4, size);
        at += 4 + size;
    }
    memmove(p->in, p->in + at, p->in_size - at);
    p->in_size -= at;
}

static void on_ready(struct sock *s, void *arg, unsigned ready)
{
    enum { STEP = 16 << 10 };
    struct peer *p = arg;
    (void)s;
    if (p->broken) return;
    if (ready & NET_HANGUP) {
        peer_break(p);
        return;
    }
    p->connected = true;
    for (;;) {
        size_t got;
        p->in = mem_grow(p->in, &p->in_cap, p->in_size + STEP, 1);
        enum err e = sock_recv(p->sock, p->in + p->in_size, STEP, &got);
        if (e == ERR_AGAIN) break;
        if (e || got == 0) {
            in_parse(p);
            if (!p->broken) peer_break(p);
            return;
        }
        p->in_size += got;
    }
    in_parse(p);
    out_flush(p);
}

/* In a turn of its own: nobody is called from within his own call. */
static void on_broken(struct loop_msg *msg)
{
    struct peer *p = CONTAINER_OF(msg, struct peer, broken_msg);
    struct list calls;
    list_init(&calls);
    for (struct list_node *n; (n = list_pop_front(&p->calls));) list_push_back(&calls, n);
    loop_timer_cancel(p->w->loop, &p->timer);
    p->broken = false;
    p->out_at = p->out_size = p->in_size = 0;
    for (struct list_node *n; (n = list_first(&calls));) call_end(CONTAINER_OF(n, struct call, link), NULL);
}

void peer_break(struct peer *p)
{
    if (p->broken) return;
    if (p->sock) sock_close(p->sock);
    p->sock = NULL;
    p->connected = false;
    p->broken = true;
    p->broken_msg.run = on_broken;
    loop_post(p->w->loop, &p->broken_msg);
}

static void connect_peer(struct peer *p)
{
    char host[32];
    struct net_addr addr;
    size_t count;
    snprintf(host, sizeof host, "10.0.0.%d", p->node + 1);
    enum err e = net_resolve(host, PORT, &addr, 1, &count, NULL);
    if (!e) e = net_connect(net_sim_host(p->w->net, (unsigned)p->client), p->w->loop, &addr, &p->sock);
    if (!e) e = sock_attach(p->sock, p->w->loop, on_ready, p);
    ASSERT(!e);
}

static void encode(struct peer *p, const struct call *c, const void *request)
{
    const struct wire_api *api = wire_api_find((int16_t)c->api);
    struct request_header header = {
        .request_api_key = api->key,
        .request_api_version = c->version,
        .correlation_id = c->correlation_id,
        .client_id = STR("sim"),
    };
    struct writer w;
    writer_init(&w, p->w->bufs);
    writer_i32(&w, 0);
    enum err e = request_header_encode(&header, wire_request_header_version(api, c->version), &w);
    if (!e) e = wire_encode(api->request, request, c->version, &w);
    ASSERT(!e);
    put_be32(w.buf->data, (uint32_t)(w.size - 4));
    p->out = mem_grow(p->out, &p->out_cap, p->out_size + w.size, 1);
    memcpy(p->out + p->out_size, w.buf->data, w.size);
    p->out_size += w.size;
    writer_fini(&w);
}

void peer_send(struct peer *p, struct call *c, const void *request, int64_t timeout_us)
{
    c->peer = p;
    c->correlation_id = ++p->correlation_id;
    c->deadline_us = p->w->now_us + timeout_us;
    list_push_back(&p->calls, &c->link);
    if (p->broken) return; /* it ends with the others */
    if (!p->sock) connect_peer(p);
    encode(p, c, request);
    if (!timer_is_set(&p->timer)) loop_timer_set(p->w->loop, &p->timer, c->deadline_us);
    out_flush(p);
}

/* ---- Where things are */

int client_some_node(struct client *c)
{
    return (int)draw(c->w, (uint64_t)c->w->setup.nodes);
}

static int topic_of(const struct world *w, struct str name)
{
    for (int t = 0; t < w->topic_count; t++)
        if (str_equal(name, str_of(w->topics[t].name))) return t;
    return -1;
}

static void take_partition(struct map *m, int t, const struct metadata_response_metadata_response_partition *p)
{
    struct place *place = &m->places[t][p->partition_index];
    /* As the Java client: what is older than what we know is not believed. */
    if (p->leader_epoch >= 0 && p->leader_epoch < place->epoch) return;
    place->node = p->leader_id > 0 ? p->leader_id - 1 : -1;
    if (p->leader_epoch >= 0) place->epoch = p->leader_epoch;
}

static void on_map(struct call *call, const void *response)
{
    struct client *c = CONTAINER_OF(call, struct client, map.call);
    const struct metadata_response *r = response;
    c->map.asking = false;
    for (int32_t i = 0; r && i < r->topics_count; i++) {
        int t = topic_of(c->w, r->topics[i].name);
        if (t < 0 || r->topics[i].error_code) continue;
        for (int32_t k = 0; k < r->topics[i].partitions_count; k++)
            take_partition(&c->map, t, &r->topics[i].partitions[k]);
    }
    for (int i = 0; i < c->w->producer_count; i++)
        if (&c->w->producers[i].client == c) producer_map_came(&c->w->producers[i]);
}

void map_ask(struct client *c)
{
    struct map *m = &c->map;
    if (m->asking) return;
    m->asking = true;
    struct metadata_request rq = metadata_request_default;
    struct metadata_request_metadata_request_topic topics[TOPICS_MAX];
    for (int t = 0; t < c->w->topic_count; t++) {
        topics[t] = metadata_request_metadata_request_topic_default;
        topics[t].name = str_of(c->w->topics[t].name);
    }
    rq.topics = topics;
    rq.topics_count = c->w->topic_count;
    rq.allow_auto_topic_creation = false;
    m->call = (struct call){.api = API_METADATA, .version = 9, .done = on_map};
    peer_send(&c->peers[client_some_node(c)], &m->call, &rq, REQUEST_US);
}

void client_init(struct world *w, struct client *c, int index)
{
    c->w = w;
    c->index = index;
    for (int t = 0; t < TOPICS_MAX; t++)
        for (int p = 0; p < PARTITIONS_MAX; p++) c->map.places[t][p] = (struct place){-1, -1};
    for (int i = 0; i < NODES_MAX; i++) {
        struct peer *p = &c->peers[i];
        p->w = w;
        p->client = w->setup.nodes + index;
        p->node = i;
        p->timer.fire = on_timer;
        list_init(&p->calls);
    }
}
