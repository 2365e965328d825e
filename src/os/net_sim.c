/* net_sim.c: see net_sim.h.
 *
 * A connection is two sockets that know each other.  Each has what is under way to it: segments with the moment of
 * their arrival, which never falls along the queue.  One event in the heap stands for each segment, connect and reset;
 * an event that meets a cut link is kept aside with others of that link, and comes back when the link is mended.
 *
 * A socket is told of what happened by one message to its loop, which carries what holds when it runs: edges that fall
 * together become one, as in the kernel. */
#include "os/net_sim.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/list.h"
#include "base/mem.h"

enum { EPHEMERAL_PORT_FIRST = 40000, ADDRESS_BASE = 0x0a000001 /* 10.0.0.1 */ };

struct segment {
    struct list_node link;
    size_t size, pos; /* pos: read up to here */
    uint8_t data[];
};

enum sock_kind { KIND_LISTENER, KIND_STREAM };

struct sim_sock {
    struct sock sock;
    struct sim_sock *next; /* of all */
    enum sock_kind kind;
    unsigned host, peer_host;
    uint16_t port, peer_port;
    bool closed; /* by its owner */

    struct loop *loop; /* NULL: not attached */
    sock_ready_fn ready;
    void *arg;
    struct loop_msg msg;
    bool told; /* the message is under way */

    /* A listener. */
    struct sim_sock *next_listener;
    struct list backlog; /* of accept_link */
    size_t backlog_count, backlog_max;

    /* A connection. */
    struct sim_sock *peer; /* NULL: there is none (yet, or any more) */
    struct list_node accept_link;
    bool connects; /* it was made by connect() */
    bool connected;
    enum err broken;         /* by a reset, or never connected: what recv() says */
    struct list received;    /* segments */
    bool peer_done;          /* it sends no more, and all of it is here */
    size_t window;           /* bytes that may still be sent */
    bool wants_room;         /* send() said ERR_AGAIN */
    int64_t last_arrival_us; /* of what was sent from here */
};

enum event_kind { EVENT_CONNECT, EVENT_CONNECTED, EVENT_DATA, EVENT_DONE, EVENT_ROOM, EVENT_RESET };

/* Something on its way over a link. */
struct event {
    int64_t at_us;
    uint64_t seq;
    enum event_kind kind;
    unsigned from, to;
    struct sim_sock *target; /* EVENT_CONNECT: who connects; else whom it reaches */
    struct segment *segment; /* EVENT_DATA */
    size_t bytes;            /* EVENT_ROOM */
};

struct host {
    struct net net;
    struct net_sim *sim;
    unsigned index;
    bool down;
};

struct net_sim {
    struct net_sim_options opt;
    uint64_t random, next_seq;
    struct host *hosts;
    enum net_sim_link *links; /* [from * hosts + to] */
    struct sim_sock *socks, *listeners;
    uint16_t next_port;
    struct event *heap;
    size_t count, cap;
    struct event *lost; /* on links that are cut, in their order */
    size_t lost_count, lost_cap;
};

static struct sim_sock *sim_of(struct sock *s)
{
    return CONTAINER_OF(s, struct sim_sock, sock);
}

static struct host *host_of(struct net *n)
{
    return CONTAINER_OF(n, struct host, net);
}

static struct net_sim *sim_of_sock(const struct sim_sock *ss)
{
    return host_of(ss->sock.net)->sim;
}

static uint64_t draw(struct net_sim *s, uint64_t below)
{
    uint64_t z = (s->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static int64_t draw_delay(struct net_sim *s)
{
    int64_t us = s->opt.delay_us_min + (int64_t)draw(s, (uint64_t)(s->opt.delay_us_max - s->opt.delay_us_min) + 1);
    if (s->opt.slow_one_in && draw(s, s->opt.slow_one_in) == 0) us += s->opt.slow_us;
    return us;
}

static int64_t now_us(const struct net_sim *s)
{
    return clock_mono_us(s->opt.clock);
}

/* ---- addresses ---- */

static struct net_addr addr_of(unsigned host, uint16_t port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
    sin.sin_addr.s_addr = htonl(ADDRESS_BASE + host);
    struct net_addr a = {.sa_size = sizeof sin};
    memcpy(&a.sa, &sin, sizeof sin);
    return a;
}

/* False: it is none of this network. */
static bool host_of_addr(const struct net_sim *s, const struct net_addr *a, unsigned *host)
{
    struct sockaddr_in sin;
    if (a->sa.ss_family != AF_INET) return false;
    memcpy(&sin, &a->sa, sizeof sin);
    *host = ntohl(sin.sin_addr.s_addr) - ADDRESS_BASE;
    return *host < s->opt.hosts;
}

/* ---- events ---- */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void heap_push(struct net_sim *s, struct event ev)
{
    s->heap = mem_grow(s->heap, &s->cap, s->count + 1, sizeof *s->heap);
    size_t i = s->count++;
    for (; i > 0 && is_before(&ev, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = ev;
}

static struct event heap_pop(struct net_sim *s)
{
    struct event top = s->heap[0], last = s->heap[--s->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->count; i = child) {
        if (child + 1 < s->count && is_before(&s->heap[child + 1], &s->heap[child])) child++;
        if (!is_before(&s->heap[child], &last)) break;
        s->heap[i] = s->heap[child];
    }
    if (s->count) s->heap[i] = last;
    return top;
}

static void send_event(struct net_sim *s, struct event ev)
{
    ev.seq = s->next_seq++;
    heap_push(s, ev);
}

/* On the connection's own way: nothing overtakes anything. */
static void send_in_order(struct sim_sock *from, struct event ev)
{
    struct net_sim *s = sim_of_sock(from);
    ev.from = from->host;
    ev.to = from->peer_host;
    const int64_t soonest_us = now_us(s) + draw_delay(s);
    ev.at_us = MAX(soonest_us, from->last_arrival_us);
    from->last_arrival_us = ev.at_us;
    send_event(s, ev);
}

static enum net_sim_link *link_of(const struct net_sim *s, unsigned from, unsigned to)
{
    return &s->links[from * s->opt.hosts + to];
}

/* ---- telling sockets ---- */

static unsigned state_of(const struct sim_sock *ss)
{
    if (ss->kind == KIND_LISTENER) return ss->backlog_count ? NET_READABLE : 0;
    unsigned ready = 0;
    if (ss->broken) return NET_READABLE | NET_HANGUP;
    if (!list_is_empty(&ss->received) || ss->peer_done) ready |= NET_READABLE;
    if (ss->peer_done) ready |= NET_PEER_DONE;
    if (ss->connected && ss->window > 0) ready |= NET_WRITABLE;
    return ready;
}

static void tell(struct sim_sock *ss);

static void on_told(struct loop_msg *msg)
{
    struct sim_sock *ss = CONTAINER_OF(msg, struct sim_sock, msg);
    ss->told = false;
    if (ss->closed || !ss->loop) return;
    if (!loop_is_owner(ss->loop)) { /* it has been attached elsewhere meanwhile */
        tell(ss);
        return;
    }
    unsigned ready = state_of(ss);
    if (ready) ss->ready(&ss->sock, ss->arg, ready);
}

static void tell(struct sim_sock *ss)
{
    if (!ss->loop || ss->closed || ss->told) return;
    ss->told = true;
    ss->msg.run = on_told;
    loop_post(ss->loop, &ss->msg);
}

/* ---- sockets ---- */

static struct sim_sock *sock_new(struct host *h, enum sock_kind kind)
{
    struct sim_sock *ss = mem_zalloc(1, sizeof *ss);
    ss->sock.net = &h->net;
    ss->kind = kind;
    ss->host = h->index;
    list_init(&ss->backlog);
    list_init(&ss->received);
    ss->window = h->sim->opt.window_bytes;
    ss->next = h->sim->socks;
    h->sim->socks = ss;
    return ss;
}

static void drop_received(struct sim_sock *ss)
{
    for (struct list_node *n; (n = list_pop_front(&ss->received));) mem_free(CONTAINER_OF(n, struct segment, link));
}

static void sock_break(struct sim_sock *ss, enum err e)
{
    if (ss->broken || ss->closed) return;
    ss->broken = e;
    drop_received(ss);
    tell(ss);
}

static void send_reset(struct net_sim *s, unsigned from, struct sim_sock *to)
{
    send_event(
        s, (struct event){
               .kind = EVENT_RESET, .from = from, .to = to->host, .target = to, .at_us = now_us(s) + draw_delay(s)});
}

static struct sim_sock *find_listener(const struct net_sim *s, unsigned host, uint16_t port)
{
    for (struct sim_sock *ss = s->listeners; ss; ss = ss->next_listener)
        if (!ss->closed && ss->host == host && ss->port == port) return ss;
    return NULL;
}

static enum err sim_listen(struct net *n, struct loop *l, const struct net_addr *at, int backlog, struct sock **out)
{
    (void)l;
    struct host *h = host_of(n);
    unsigned host;
    if (!host_of_addr(h->sim, at, &host) || host != h->index) return ERR_INVALID;
    uint16_t port = net_addr_port(at);
    if (!port) port = h->sim->next_port++;
    if (find_listener(h->sim, host, port)) return ERR_EXISTS;
    struct sim_sock *ss = sock_new(h, KIND_LISTENER);
    ss->port = port;
    ss->backlog_max = (size_t)MAX(backlog, 1);
    ss->next_listener = h->sim->listeners;
    h->sim->listeners = ss;
    *out = &ss->sock;
    return OK;
}

static enum err sim_connect(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out)
{
    (void)l;
    struct host *h = host_of(n);
    unsigned host;
    if (!host_of_addr(h->sim, to, &host)) return ERR_IO;
    struct sim_sock *ss = sock_new(h, KIND_STREAM);
    ss->port = h->sim->next_port++;
    ss->connects = true;
    ss->peer_host = host;
    ss->peer_port = net_addr_port(to);
    send_in_order(ss, (struct event){.kind = EVENT_CONNECT, .target = ss});
    *out = &ss->sock;
    return OK;
}

static enum err sim_accept(struct sock *listener, struct sock **out, struct net_addr *peer)
{
    struct sim_sock *ls = sim_of(listener);
    struct list_node *first = list_pop_front(&ls->backlog);
    if (!first) return ERR_AGAIN;
    ls->backlog_count--;
    struct sim_sock *ss = CONTAINER_OF(first, struct sim_sock, accept_link);
    *peer = addr_of(ss->peer_host, ss->peer_port);
    *out = &ss->sock;
    return OK;
}

static enum err sim_recv(struct sock *s, void *out, size_t size, size_t *got)
{
    struct sim_sock *ss = sim_of(s);
    if (ss->broken) return ss->broken;
    size_t done = 0;
    while (done < size && !list_is_empty(&ss->received)) {
        struct segment *seg = CONTAINER_OF(list_first(&ss->received), struct segment, link);
        size_t part = MIN(size - done, seg->size - seg->pos);
        memcpy((uint8_t *)out + done, seg->data + seg->pos, part);
        seg->pos += part;
        done += part;
        if (seg->pos < seg->size) break;
        list_remove(&seg->link);
        mem_free(seg);
    }
    if (done == 0 && !ss->peer_done) return ERR_AGAIN;
    if (done > 0 && ss->peer) send_in_order(ss, (struct event){.kind = EVENT_ROOM, .target = ss->peer, .bytes = done});
    *got = done;
    return OK;
}

static enum err sim_send(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent)
{
    (void)more;
    struct sim_sock *ss = sim_of(s);
    if (ss->broken) return ERR_CLOSED;
    size_t size = 0;
    for (int i = 0; i < count; i++) size += iov[i].iov_len;
    if (!ss->connected || size > ss->window) ss->wants_room = true; /* also when a part goes */
    size = MIN(size, ss->window);
    if (!ss->connected || size == 0) return ERR_AGAIN;
    struct segment *seg = mem_alloc(sizeof *seg + size);
    *seg = (struct segment){.size = size};
    size_t at = 0;
    for (int i = 0; at < size; i++) {
        size_t part = MIN(iov[i].iov_len, size - at);
        memcpy(seg->data + at, iov[i].iov_base, part);
        at += part;
    }
    ss->window -= size;
    /* Whoever has closed his side, or is gone, answers with a reset when this arrives. */
    send_in_order(ss, (struct event){.kind = EVENT_DATA, .target = ss->peer, .segment = seg});
    *sent = size;
    return OK;
}

static enum err sim_send_file(struct sock *s, int fd, int64_t pos, size_t size, size_t *sent)
{
    (void)s;
    (void)fd;
    (void)pos;
    (void)size;
    (void)sent;
    UNREACHABLE(); /* simulated files have no descriptor */
}

static enum err sim_attach(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg)
{
    struct sim_sock *ss = sim_of(s);
    ASSERT(!ss->loop);
    ss->loop = l;
    ss->ready = ready;
    ss->arg = arg;
    if (state_of(ss)) tell(ss);
    return OK;
}

static void sim_detach(struct sock *s)
{
    sim_of(s)->loop = NULL;
}

static void sim_set_buffers(struct sock *s, int send_bytes, int receive_bytes)
{
    (void)s;
    (void)send_bytes;
    (void)receive_bytes;
}

static enum err sim_local_addr(struct sock *s, struct net_addr *out)
{
    const struct sim_sock *ss = sim_of(s);
    *out = addr_of(ss->host, ss->port);
    return OK;
}

static bool sim_is_local(struct net *n, const struct net_addr *a)
{
    unsigned host;
    return host_of_addr(host_of(n)->sim, a, &host) && host == host_of(n)->index;
}

static void close_stream(struct sim_sock *ss)
{
    struct sim_sock *peer = ss->peer;
    if (peer && !ss->broken) {
        bool orderly = ss->connected && list_is_empty(&ss->received);
        send_in_order(ss, (struct event){.kind = orderly ? EVENT_DONE : EVENT_RESET, .target = peer});
    }
    drop_received(ss);
    ss->closed = true;
}

static void sim_close(struct sock *s)
{
    struct sim_sock *ss = sim_of(s);
    if (ss->kind == KIND_STREAM) {
        close_stream(ss);
        return;
    }
    ss->closed = true;
    for (struct list_node *n; (n = list_pop_front(&ss->backlog));) {
        struct sim_sock *waiting = CONTAINER_OF(n, struct sim_sock, accept_link);
        if (waiting->peer) send_reset(sim_of_sock(ss), ss->host, waiting->peer);
        drop_received(waiting);
        waiting->closed = true;
    }
}

static const struct net_ops sim_ops = {
    .listen = sim_listen,
    .connect = sim_connect,
    .accept = sim_accept,
    .recv = sim_recv,
    .send = sim_send,
    .send_file = sim_send_file,
    .attach = sim_attach,
    .detach = sim_detach,
    .set_buffers = sim_set_buffers,
    .local_addr = sim_local_addr,
    .is_local = sim_is_local,
    .close = sim_close,
};

/* ---- arrivals ---- */

static void connect_arrives(struct net_sim *s, const struct event *ev)
{
    struct sim_sock *from = ev->target;
    if (from->closed || from->broken) return;
    struct sim_sock *ls = find_listener(s, ev->to, from->peer_port);
    if (!ls) {
        send_reset(s, ev->to, from);
        return;
    }
    if (ls->backlog_count >= ls->backlog_max) { /* dropped, and tried again */
        enum { RETRY_US = 1000 * 1000 };
        struct event again = *ev;
        again.at_us += RETRY_US;
        send_event(s, again);
        return;
    }
    struct sim_sock *ss = sock_new(&s->hosts[ev->to], KIND_STREAM);
    ss->port = from->peer_port;
    ss->peer_host = from->host;
    ss->peer_port = from->port;
    ss->connected = true;
    ss->peer = from;
    list_push_back(&ls->backlog, &ss->accept_link);
    ls->backlog_count++;
    from->peer = ss;
    send_in_order(ss, (struct event){.kind = EVENT_CONNECTED, .target = from});
    tell(ls);
}

static void data_arrive(struct net_sim *s, const struct event *ev, struct sim_sock *from)
{
    struct sim_sock *ss = ev->target;
    if (!ss || ss->closed || ss->broken) {
        mem_free(ev->segment);
        if (from) send_reset(s, ev->to, from);
        return;
    }
    list_push_back(&ss->received, &ev->segment->link);
    tell(ss);
}

/* The sender, as far as it still takes an interest. */
static struct sim_sock *sender_of(const struct event *ev)
{
    return ev->target ? ev->target->peer : NULL;
}

static void arrive(struct net_sim *s, const struct event *ev)
{
    struct sim_sock *ss = ev->target;
    switch (ev->kind) {
    case EVENT_CONNECT: connect_arrives(s, ev); return;
    case EVENT_CONNECTED:
        ss->connected = true;
        tell(ss);
        return;
    case EVENT_DATA: data_arrive(s, ev, sender_of(ev)); return;
    case EVENT_DONE:
        if (ss->broken || ss->closed) return;
        ss->peer_done = true;
        tell(ss);
        return;
    case EVENT_ROOM:
        ss->window += ev->bytes;
        if (ss->wants_room) {
            ss->wants_room = false;
            tell(ss);
        }
        return;
    case EVENT_RESET: sock_break(ss, ERR_CLOSED); return;
    }
    UNREACHABLE();
}

/* The far host answers with a reset, on a way back that is whole. */
static void refuse(struct net_sim *s, const struct event *ev)
{
    enum { RETRY_US = 1000 * 1000 };
    struct sim_sock *sender = ev->kind == EVENT_CONNECT ? ev->target : sender_of(ev);
    if (ev->kind == EVENT_CONNECTED) { /* who connects hears nothing, and asks again */
        struct sim_sock *asks = ev->target;
        asks->peer = NULL;
        send_event(
            s,
            (struct event){
                .kind = EVENT_CONNECT, .from = ev->to, .to = ev->from, .target = asks, .at_us = now_us(s) + RETRY_US});
    }
    if (sender) send_reset(s, ev->to, sender);
    mem_free(ev->segment);
}

int64_t net_sim_due_us(const struct net_sim *s)
{
    return s->count ? s->heap[0].at_us : INT64_MAX;
}

void net_sim_turn(struct net_sim *s)
{
    while (s->count && s->heap[0].at_us <= now_us(s)) {
        struct event ev = heap_pop(s);
        enum net_sim_link link = ev.from == ev.to ? NET_SIM_UP : *link_of(s, ev.from, ev.to);
        if (s->hosts[ev.to].down || link == NET_SIM_CUT) {
            s->lost = mem_grow(s->lost, &s->lost_cap, s->lost_count + 1, sizeof *s->lost);
            s->lost[s->lost_count++] = ev;
        } else if (link == NET_SIM_REFUSING && ev.kind != EVENT_RESET) { /* it may be the other side's refusal */
            refuse(s, &ev);
        } else {
            arrive(s, &ev);
        }
    }
}

/* ---- what happens to links and hosts ---- */

/* What is on its way between the two comes no sooner than that. */
static void hold_back(struct net_sim *s, unsigned from, unsigned to, int64_t at_us)
{
    size_t count = s->count;
    s->count = 0;
    for (size_t i = 0; i < count; i++) { /* what is pushed takes a place that was read */
        struct event ev = s->heap[i];
        if (ev.from == from && ev.to == to) ev.at_us = MAX(ev.at_us, at_us);
        heap_push(s, ev);
    }
}

/* What was lost between the two is sent again, in its order, and before what came after it. */
static void resend(struct net_sim *s, unsigned from, unsigned to, int64_t resend_us_max)
{
    int64_t at_us = now_us(s) + (int64_t)draw(s, (uint64_t)resend_us_max + 1);
    size_t kept = 0;
    hold_back(s, from, to, at_us);
    for (size_t i = 0; i < s->lost_count; i++) {
        struct event ev = s->lost[i];
        if (ev.from != from || ev.to != to) {
            s->lost[kept++] = ev;
            continue;
        }
        ev.at_us = MAX(at_us, ev.at_us);
        heap_push(s, ev);
    }
    s->lost_count = kept;
    for (struct sim_sock *ss = s->socks; ss; ss = ss->next)
        if (ss->host == from && ss->peer_host == to) ss->last_arrival_us = MAX(ss->last_arrival_us, at_us);
}

void net_sim_set_link(struct net_sim *s, unsigned from, unsigned to, enum net_sim_link link, int64_t resend_us_max)
{
    *link_of(s, from, to) = link;
    if (link != NET_SIM_CUT && !s->hosts[to].down) resend(s, from, to, resend_us_max);
}

enum net_sim_link net_sim_get_link(const struct net_sim *s, unsigned from, unsigned to)
{
    return *link_of(s, from, to);
}

void net_sim_reset(struct net_sim *s, unsigned one, unsigned other)
{
    for (struct sim_sock *ss = s->socks; ss; ss = ss->next) {
        if (ss->kind != KIND_STREAM || ss->closed || !ss->peer) continue;
        if ((ss->host == one && ss->peer_host == other) || (ss->host == other && ss->peer_host == one))
            sock_break(ss, ERR_CLOSED);
    }
}

void net_sim_host_gone(struct net_sim *s, unsigned host, bool silently)
{
    s->hosts[host].down = silently;
    for (struct sim_sock *ss = s->socks; ss; ss = ss->next) {
        if (ss->host != host || ss->closed) continue;
        if (ss->peer && !ss->broken && !silently) send_reset(s, host, ss->peer);
        drop_received(ss);
        ss->closed = true;
    }
}

/* Whoever waits for something from an old connection probes it some time, and is told. */
static void answer_probes(struct net_sim *s, unsigned host)
{
    for (struct sim_sock *ss = s->socks; ss; ss = ss->next) {
        if (!ss->connects || ss->closed || ss->broken || ss->peer_host != host || !ss->peer || !ss->peer->closed)
            continue;
        int64_t in_us = (int64_t)draw(s, NET_SILENCE_S_MAX * INT64_C(1000000));
        send_event(s, (struct event){
                          .kind = EVENT_RESET, .from = host, .to = ss->host, .target = ss, .at_us = now_us(s) + in_us});
    }
}

void net_sim_host_up(struct net_sim *s, unsigned host)
{
    enum { RESEND_US_MAX = 200 * 1000 };
    if (s->hosts[host].down) answer_probes(s, host);
    s->hosts[host].down = false;
    for (unsigned from = 0; from < s->opt.hosts; from++)
        if (*link_of(s, from, host) != NET_SIM_CUT) resend(s, from, host, RESEND_US_MAX);
}

/* ---- life ---- */

struct net_sim *net_sim_new(const struct net_sim_options *opt)
{
    struct net_sim *s = mem_zalloc(1, sizeof *s);
    s->opt = *opt;
    s->random = opt->seed;
    s->next_port = EPHEMERAL_PORT_FIRST;
    s->hosts = mem_zalloc(opt->hosts, sizeof *s->hosts);
    s->links = mem_zalloc((size_t)opt->hosts * opt->hosts, sizeof *s->links);
    for (unsigned i = 0; i < opt->hosts; i++) s->hosts[i] = (struct host){.net.ops = &sim_ops, .sim = s, .index = i};
    return s;
}

void net_sim_free(struct net_sim *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->count; i++) mem_free(s->heap[i].segment);
    for (size_t i = 0; i < s->lost_count; i++) mem_free(s->lost[i].segment);
    while (s->socks) {
        struct sim_sock *ss = s->socks;
        s->socks = ss->next;
        drop_received(ss);
        mem_free(ss);
    }
    mem_free(s->heap);
    mem_free(s->lost);
    mem_free(s->links);
    mem_free(s->hosts);
    mem_free(s);
}

struct net *net_sim_host(struct net_sim *s, unsigned host)
{
    return &s->hosts[host].net;
}
