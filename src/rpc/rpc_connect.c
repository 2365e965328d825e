/* rpc_connect.c: from a name to a socket that is connected: the name is looked up by a worker, its addresses are tried
 * one after the other, and each has its share of the time. */
#include "rpc/rpc.h"

#include <inttypes.h>

#include "base/mem.h"
#include "rpc/rpc_internal.h"

/* A name being looked up.  It may outlive the connection that wants it: then `rpc` is NULL. */
struct lookup {
    struct job job;
    struct rpc *rpc;
    char *host;
    uint16_t port;
    enum err err;
    struct fault fault;
    struct net_addr addrs[ADDRESSES_MAX];
    size_t count;
};

static enum err connect_to(struct rpc *r, const struct net_addr *to)
{
    enum err e = net_connect(r->opt.net, r->opt.loop, to, &r->sock);
    if (e) return e;
    sock_set_buffers(r->sock, -1, r->opt.receive_buffer_bytes);
    return sock_attach(r->sock, r->opt.loop, rpc_on_ready, r);
}

static void connect_next(struct rpc *r)
{
    r->state = STATE_CONNECT;
    int64_t now_us = loop_now_us(r->opt.loop);
    /* A silent address leaves time for those behind it. */
    int64_t share_us = (r->connect_deadline_us - now_us) / (int64_t)(r->addr_count - r->addr_next);
    enum err e = connect_to(r, &r->addrs[r->addr_next++]);
    if (e)
        rpc_connect_failed(r, e);
    else
        loop_timer_set(r->opt.loop, &r->connect_timer, now_us + share_us);
}

void rpc_connect_failed(struct rpc *r, enum err e)
{
    rpc_hang_up(r);
    if (e == ERR_CLOSED) r->refused = true;
    if (e == ERR_TIMEOUT) r->silent = true;
    if (r->addr_next < r->addr_count)
        connect_next(r);
    else if (r->refused && !r->silent) /* by all addresses that there is a way to */
        rpc_fail(r, RPC_REFUSED, "no connection to %s: nobody listens there", r->peer);
    else
        rpc_fail(r, RPC_UNREACHABLE, "no connection to %s: %s", r->peer, err_text(r->silent ? ERR_TIMEOUT : e));
}

static void on_connect_timer(struct timer *t)
{
    struct rpc *r = CONTAINER_OF(t, struct rpc, connect_timer);
    if (r->state == STATE_LOOKUP)
        rpc_fail(r, RPC_UNREACHABLE, "no connection to %s: the name service does not answer", r->peer);
    else
        rpc_connect_failed(r, ERR_TIMEOUT);
}

/* Worker. */
static void lookup_work(struct job *job)
{
    struct lookup *lk = CONTAINER_OF(job, struct lookup, job);
    lk->err = net_resolve(lk->host, lk->port, lk->addrs, ADDRESSES_MAX, &lk->count, &lk->fault);
}

static void lookup_done(struct job *job)
{
    struct lookup *lk = CONTAINER_OF(job, struct lookup, job);
    struct rpc *r = lk->rpc;
    if (r) {
        r->lookup = NULL;
        memcpy(r->addrs, lk->addrs, sizeof r->addrs);
        r->addr_count = lk->count;
        if (lk->err)
            rpc_fail(r, RPC_UNREACHABLE, "no connection to %s: %s", r->peer, lk->fault.text);
        else
            connect_next(r);
    }
    mem_free(lk->host);
    mem_free(lk);
}

static void lookup_begin(struct rpc *r, struct str host, uint16_t port)
{
    struct lookup *lk = mem_zalloc(1, sizeof *lk);
    *lk = (struct lookup){.rpc = r, .host = mem_strndup(host.data, host.size), .port = port};
    lk->job = (struct job){.loop = r->opt.loop, .work = lookup_work, .done = lookup_done};
    r->lookup = lk;
    loop_timer_set(r->opt.loop, &r->connect_timer, r->connect_deadline_us);
    workers_submit(r->opt.workers, &lk->job);
}

void rpc_connect_forget(struct rpc *r)
{
    if (r->lookup) r->lookup->rpc = NULL;
    r->lookup = NULL;
}

void rpc_connect(struct rpc *r, struct str host, int32_t port)
{
    r->connect_timer.fire = on_connect_timer;
    r->connect_deadline_us = loop_now_us(r->opt.loop) + r->opt.connect_timeout_ms * 1000;
    if (port <= 0 || port > UINT16_MAX || host.size == 0) {
        rpc_fail(r, RPC_UNREACHABLE, "no connection to %s: that is no address", r->peer);
        return;
    }
    char *text = mem_strndup(host.data, host.size);
    bool is_literal = net_addr_parse(text, (uint16_t)port, &r->addrs[0]);
    mem_free(text);
    if (is_literal) {
        r->addr_count = 1;
        connect_next(r);
    } else if (r->opt.workers) {
        lookup_begin(r, host, (uint16_t)port);
    } else {
        rpc_fail(r, RPC_UNREACHABLE, "no connection to %s: names are not looked up here", r->peer);
    }
}
