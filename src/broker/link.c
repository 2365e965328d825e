/* link.c: see link.h.
 *
 * A try begins BACKOFF_MS after the one before it at the earliest.  So what has been up for longer is tried again at
 * once, when it goes down, and a peer that hangs up as soon as it is spoken to costs little. */
#include "broker/link.h"

#include "base/mem.h"

enum { BACKOFF_MS = 100 };

struct link {
    struct link_options opt;
    char *host;
    int32_t port;
    struct rpc *rpc; /* NULL between two tries */
    struct timer retry;
    int64_t tried_us; /* when the last try began */
};

static void ended(void *arg, enum rpc_end end, const char *text)
{
    struct link *ln = arg;
    struct loop *loop = ln->opt.rpc.loop;
    struct rpc *over = ln->rpc;
    ln->rpc = NULL;
    loop_timer_set(loop, &ln->retry, MAX(loop_now_us(loop), ln->tried_us + BACKOFF_MS * 1000));
    ln->opt.down(ln->opt.arg, end, text); /* may close us */
    rpc_close(over);
}

static void ready(void *arg)
{
    struct link *ln = arg;
    ln->opt.up(ln->opt.arg);
}

static void try_now(struct link *ln)
{
    ln->tried_us = loop_now_us(ln->opt.rpc.loop);
    ln->rpc = rpc_open(&ln->opt.rpc, str_of(ln->host), ln->port);
}

static void on_retry(struct timer *t)
{
    try_now(CONTAINER_OF(t, struct link, retry));
}

struct link *link_open(const struct link_options *opt, struct str host, int32_t port)
{
    struct link *ln = mem_zalloc(1, sizeof *ln);
    ln->opt = *opt;
    ln->opt.rpc.ended = ended;
    ln->opt.rpc.ready = ready;
    ln->opt.rpc.arg = ln;
    ln->host = mem_strndup(host.data ? host.data : "", host.size);
    ln->port = port;
    ln->retry.fire = on_retry;
    try_now(ln);
    return ln;
}

void link_close(struct link *ln)
{
    if (!ln) return;
    loop_timer_cancel(ln->opt.rpc.loop, &ln->retry);
    rpc_close(ln->rpc);
    mem_free(ln->host);
    mem_free(ln);
}

bool link_is_up(const struct link *ln)
{
    return ln->rpc && rpc_is_ready(ln->rpc);
}

void link_send(struct link *ln, struct rpc_call *call)
{
    ASSERT(link_is_up(ln));
    rpc_send(ln->rpc, call);
}
