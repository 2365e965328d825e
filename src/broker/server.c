/* server.c: accepts on the home loop, counts connections in all and by address, deals them out to the loops in turn. */
#include "broker/server.h"

#include <pthread.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/mem.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { ADDRESSES_MAX = 16, ACCEPTS_A_TURN_MAX = 64, ACCEPT_RETRY_US = 100 * 1000 };

/* Connections of one address. */
struct host_count {
    UT_hash_handle hh;
    int32_t count;
    char host[CONN_HOST_MAX];
};

struct host_limit {
    UT_hash_handle hh;
    int32_t connections_max;
    char host[CONN_HOST_MAX];
};

struct server {
    struct broker *br;
    struct listener_state *listeners;
    size_t count;
    unsigned next_loop;
    bool stopped;
    struct timer retry;       /* after descriptors ran out */
    struct loop_msg room_msg; /* a connection closed while accepting was paused, or there are more to accept */
    _Atomic bool room_posted;
    pthread_mutex_t lock; /* guards what follows */
    int32_t connections;
    int32_t connections_max, per_host_max;
    struct host_count *by_host;
    struct host_limit *limits; /* max.connections.per.ip.overrides */
    bool waiting_for_room;
};

/* An accepted socket on its way to its loop. */
struct handover {
    struct loop_msg msg;
    struct conn_set *set;
    struct sock *sock;
    const struct listener_state *listener;
    struct net_addr peer;
};

/* ---- Limits */

static int32_t host_limit(const struct server *s, const char *host)
{
    struct host_limit *hl;
    HASH_FIND_STR(s->limits, host, hl);
    return hl ? hl->connections_max : s->per_host_max;
}

enum admission { ADMITTED, REFUSED_BY_HOST, FULL };

static enum admission admit(struct server *s, const char *host)
{
    enum admission a = ADMITTED;
    pthread_mutex_lock(&s->lock);
    struct host_count *hc;
    HASH_FIND_STR(s->by_host, host, hc);
    if (s->connections >= s->connections_max) {
        s->waiting_for_room = true;
        a = FULL;
    } else if ((hc ? hc->count : 0) >= host_limit(s, host)) {
        a = REFUSED_BY_HOST;
    } else {
        if (!hc) {
            hc = mem_zalloc(1, sizeof *hc);
            snprintf(hc->host, sizeof hc->host, "%s", host);
            HASH_ADD_STR(s->by_host, host, hc);
        }
        hc->count++;
        s->connections++;
    }
    pthread_mutex_unlock(&s->lock);
    return a;
}

static bool has_room(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    bool room = s->connections < s->connections_max;
    s->waiting_for_room = !room;
    pthread_mutex_unlock(&s->lock);
    return room;
}

/* Under the lock: whether those who wait for room must be told of it. */
static bool room_came(const struct server *s)
{
    return s->waiting_for_room && s->connections < s->connections_max;
}

static void tell_room(struct server *s)
{
    if (!atomic_exchange(&s->room_posted, true)) loop_post(broker_home(s->br), &s->room_msg);
}

void server_connection_closed(struct server *s, const char *host)
{
    pthread_mutex_lock(&s->lock);
    struct host_count *hc;
    HASH_FIND_STR(s->by_host, host, hc);
    ASSERT(hc && hc->count > 0 && s->connections > 0);
    if (--hc->count == 0) {
        HASH_DEL(s->by_host, hc);
        mem_free(hc);
    }
    s->connections--;
    bool tell = room_came(s);
    pthread_mutex_unlock(&s->lock);
    if (tell) tell_room(s);
}

static void limits_clear(struct server *s)
{
    struct host_limit *hl, *next;
    HASH_ITER(hh, s->limits, hl, next)
    {
        HASH_DEL(s->limits, hl);
        mem_free(hl);
    }
}

void server_reconfigure(struct server *s, const struct config *cfg)
{
    struct ip_limit_list list = config_ip_limits(cfg);
    pthread_mutex_lock(&s->lock);
    s->connections_max = (int32_t)config_i64(cfg, CFG_MAX_CONNECTIONS);
    s->per_host_max = (int32_t)config_i64(cfg, CFG_MAX_CONNECTIONS_PER_IP);
    limits_clear(s);
    for (size_t i = 0; i < list.count; i++) {
        struct host_limit *hl = mem_zalloc(1, sizeof *hl);
        snprintf(hl->host, sizeof hl->host, "%s", list.items[i].host);
        hl->connections_max = list.items[i].connections_max;
        HASH_ADD_STR(s->limits, host, hl);
    }
    bool tell = room_came(s);
    pthread_mutex_unlock(&s->lock);
    if (tell) tell_room(s);
}

/* ---- Accepting */

static void on_handover(struct loop_msg *msg)
{
    struct handover *h = CONTAINER_OF(msg, struct handover, msg);
    conn_open(h->set, h->sock, h->listener, &h->peer);
    mem_free(h);
}

static void hand_over(struct listener_state *ls, struct sock *sock, const struct net_addr *peer)
{
    struct server *s = ls->server;
    struct conn_set *set = &s->br->sets[s->next_loop++ % s->br->loop_count];
    if (set->loop == broker_home(s->br)) {
        conn_open(set, sock, ls, peer);
        return;
    }
    struct handover *h = mem_zalloc(1, sizeof *h);
    *h = (struct handover){.set = set, .sock = sock, .listener = ls, .peer = *peer};
    h->msg.run = on_handover;
    loop_post(set->loop, &h->msg);
}

/* False: no more to accept now. */
static bool accept_one(struct listener_state *ls)
{
    struct server *s = ls->server;
    /* Kafka, too, leaves connections past max.connections in the backlog until there is room. */
    if (!has_room(s)) {
        ls->accept_paused = true;
        return false;
    }
    struct sock *sock;
    struct net_addr peer;
    enum err e = sock_accept(ls->sock, &sock, &peer);
    if (e == ERR_AGAIN) return false;
    if (e == ERR_CLOSED) return true; /* gone before we took it */
    if (e) {
        LOG_LIMITED(LOG_LEVEL_ERROR, "accept_failed", "listener=%s error=%s reason=\"trying again in 100 ms\"",
                    ls->name, err_name(e));
        if (e == ERR_TOO_MANY) replicas_want_room(s->br->replicas);
        ls->accept_paused = true;
        loop_timer_set(broker_home(s->br), &s->retry, loop_now_us(broker_home(s->br)) + ACCEPT_RETRY_US);
        return false;
    }
    char host[CONN_HOST_MAX];
    net_addr_host(&peer, host);
    enum admission a = admit(s, host);
    if (a != ADMITTED) {
        LOG_LIMITED(LOG_LEVEL_WARN, "connection_refused", "peer=%s listener=%s reason=\"%s\"", host, ls->name,
                    a == FULL ? "max.connections" : "max.connections.per.ip");
        sock_close(sock);
        return true;
    }
    hand_over(ls, sock, &peer);
    return true;
}

/* A flood of connections does not keep the loop from its other work: the rest of them come next turn. */
static void accept_pump(struct listener_state *ls)
{
    if (ls->server->stopped) return;
    ls->accept_paused = false;
    for (int i = 0; i < ACCEPTS_A_TURN_MAX; i++)
        if (!accept_one(ls)) return;
    ls->accept_paused = true;
    tell_room(ls->server);
}

static void on_listener_ready(struct sock *sock, void *arg, unsigned ready)
{
    (void)sock;
    (void)ready;
    struct listener_state *ls = arg;
    if (!ls->accept_paused) accept_pump(ls);
}

static void resume_accepting(struct server *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->listeners[i].accept_paused) accept_pump(&s->listeners[i]);
}

static void on_retry(struct timer *t)
{
    resume_accepting(CONTAINER_OF(t, struct server, retry));
}

static void on_room(struct loop_msg *msg)
{
    struct server *s = CONTAINER_OF(msg, struct server, room_msg);
    atomic_store(&s->room_posted, false);
    resume_accepting(s);
}

/* ---- Opening */

static enum err bind_listener(struct listener_state *ls, const struct listener *l, int backlog, struct fault *f)
{
    struct broker *br = ls->server->br;
    struct net_addr addrs[ADDRESSES_MAX];
    size_t count;
    enum err e = net_resolve(l->host, l->port, addrs, ADDRESSES_MAX, &count, f);
    if (e) return e;
    e = net_listen(br->net, broker_home(br), &addrs[0], backlog, &ls->sock);
    char at[NET_ADDR_TEXT_MAX];
    net_addr_format(&addrs[0], at);
    if (e == ERR_EXISTS)
        return fault_set(f, e,
                         "Port %u is in use: the listener %s cannot bind %s. Stop the process that holds it, or choose "
                         "another port in listeners.",
                         l->port, ls->name, at);
    if (e == ERR_INVALID)
        return fault_set(f, e, "The listener %s cannot bind %s: this machine has no such address. Correct listeners.",
                         ls->name, at);
    if (e) return fault_set(f, e, "The listener %s cannot bind %s: %s.", ls->name, at, err_text(e));
    e = sock_local_addr(ls->sock, &ls->bound);
    return e ? fault_set(f, e, "The listener %s has no address: %s.", ls->name, err_text(e)) : OK;
}

/* What clients are told.  With no host given it is this machine's name, as in Kafka; where nobody could resolve that
 * name (a container, a laptop without DNS), localhost is the only answer that works at all. */
static void choose_advertised(struct listener_state *ls, const struct listener *adv)
{
    struct net_addr addr;
    size_t count;
    if (adv->host) {
        ls->advertised_host = mem_strdup(adv->host);
    } else if (ls->host) {
        ls->advertised_host = mem_strdup(ls->host);
    } else {
        ls->advertised_host = net_host_name();
        if (net_resolve(ls->advertised_host, 0, &addr, 1, &count, NULL)) {
            LOG_WARN("advertised_host_fallback",
                     "listener=%s name=%s using=localhost reason=\"this machine's name cannot be resolved; set "
                     "advertised.listeners for clients on other machines\"",
                     ls->name, ls->advertised_host);
            mem_free(ls->advertised_host);
            ls->advertised_host = mem_strdup("localhost");
        }
    }
    ls->advertised_port = adv->port ? adv->port : net_addr_port(&ls->bound);
}

/* A wrong advertised address lets clients bootstrap and then fail in strange ways: say so at the start. */
static void check_advertised(const struct listener_state *ls)
{
    struct net_addr addr;
    size_t count;
    struct fault f = {0};
    if (net_resolve(ls->advertised_host, (uint16_t)ls->advertised_port, &addr, 1, &count, &f)) {
        LOG_WARN(
            "advertised_unresolvable",
            "listener=%s host=%s reason=\"clients are sent to this name, but it cannot be resolved here: %s Correct "
            "advertised.listeners unless only clients can resolve it\"",
            ls->name, ls->advertised_host, f.text);
        return;
    }
    uint16_t bound_port = net_addr_port(&ls->bound);
    if (!net_is_local(ls->server->br->net, &addr))
        LOG_WARN(
            "advertised_not_local",
            "listener=%s host=%s reason=\"no interface of this machine has that address; clients reach this broker "
            "only if something forwards it\"",
            ls->name, ls->advertised_host);
    else if (ls->advertised_port != bound_port)
        LOG_WARN("advertised_port_differs", "listener=%s advertised=%d bound=%u", ls->name, ls->advertised_port,
                 bound_port);
}

enum err server_open(struct server **out, struct broker *br, const struct config *cfg, struct fault *f)
{
    struct listener_list list = config_listeners(cfg), advertised = config_advertised(cfg);
    struct server *s = mem_zalloc(1, sizeof *s);
    s->br = br;
    pthread_mutex_init(&s->lock, NULL);
    s->retry.fire = on_retry;
    s->room_msg.run = on_room;
    server_reconfigure(s, cfg);
    s->listeners = mem_zalloc(list.count, sizeof *s->listeners);
    enum err e = OK;
    for (size_t i = 0; i < list.count && !e; i++) {
        struct listener_state *ls = &s->listeners[s->count++];
        ls->server = s;
        ls->name = mem_strdup(list.items[i].name);
        ls->protocol = list.items[i].protocol;
        ls->host = list.items[i].host ? mem_strdup(list.items[i].host) : NULL;
        e = bind_listener(ls, &list.items[i], (int)config_i64(cfg, CFG_SOCKET_LISTEN_BACKLOG_SIZE), f);
        const struct listener *adv = listener_find(advertised, ls->name);
        if (e) break;
        /* A listener that is not advertised is told to nobody but its own clients. */
        choose_advertised(ls, adv ? adv : &list.items[i]);
        check_advertised(ls);
        sock_set_buffers(ls->sock, (int)config_i64(cfg, CFG_SOCKET_SEND_BUFFER_BYTES),
                         config_receive_buffer(cfg, CFG_SOCKET_RECEIVE_BUFFER_BYTES));
    }
    if (e) {
        server_free(s);
        return e;
    }
    *out = s;
    return OK;
}

enum err server_start(struct server *s, struct fault *f)
{
    for (size_t i = 0; i < s->count; i++) {
        struct listener_state *ls = &s->listeners[i];
        enum err e = sock_attach(ls->sock, broker_home(s->br), on_listener_ready, ls);
        if (e) return fault_set(f, e, "The listener %s cannot be watched: %s.", ls->name, err_text(e));
        accept_pump(ls);
    }
    return OK;
}

void server_stop(struct server *s)
{
    s->stopped = true;
    loop_timer_cancel(broker_home(s->br), &s->retry);
    for (size_t i = 0; i < s->count; i++) {
        if (s->listeners[i].sock) sock_close(s->listeners[i].sock);
        s->listeners[i].sock = NULL;
    }
}

void server_free(struct server *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->count; i++) {
        struct listener_state *ls = &s->listeners[i];
        if (ls->sock) sock_close(ls->sock);
        mem_free(ls->name);
        mem_free(ls->host);
        mem_free(ls->advertised_host);
    }
    limits_clear(s);
    struct host_count *hc, *next;
    HASH_ITER(hh, s->by_host, hc, next)
    {
        HASH_DEL(s->by_host, hc);
        mem_free(hc);
    }
    mem_free(s->listeners);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

size_t server_listener_count(const struct server *s)
{
    return s->count;
}

const struct listener_state *server_listener(const struct server *s, size_t i)
{
    return &s->listeners[i];
}
