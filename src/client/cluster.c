/* cluster.c: brokers, connections, retries; see cluster.h. */
#include "client/cluster.h"

#include <inttypes.h>

#include "base/hash.h"
#include "base/mem.h"

enum { PORT_MAX = 65535 };

struct peer {
    int32_t id; /* -1: of the bootstrap list */
    char *host, *rack;
    int32_t port;
    char *name;
    struct channel *channel; /* NULL: none yet */
    UT_hash_handle hh;       /* by id */
};

struct cluster {
    struct cluster_options opt;
    char *client_id;
    struct loop *loop;
    struct peer *nodes; /* hash */
    struct peer *bootstrap;
    size_t bootstrap_count, bootstrap_cap;
};

/* ---- peers ---- */

static bool host_has_colon(struct str host)
{
    return memchr(host.data, ':', host.size) != NULL;
}

static void peer_set(struct peer *p, int32_t id, struct str host, int32_t port, struct str rack)
{
    p->id = id;
    p->host = mem_strndup(host.data, host.size);
    p->port = port;
    p->rack = rack.data ? mem_strndup(rack.data, rack.size) : NULL;
    p->name = mem_printf(host_has_colon(host) ? "[%.*s]:%d" : "%.*s:%d", STR_ARG(host), (int)port);
}

static void peer_fini(struct peer *p)
{
    channel_close(p->channel);
    mem_free(p->host);
    mem_free(p->rack);
    mem_free(p->name);
}

const char *peer_name(const struct peer *p)
{
    return p->name;
}

static struct peer *find(const struct cluster *cl, int32_t id)
{
    struct peer *p;
    HASH_FIND_INT(cl->nodes, &id, p);
    return p;
}

struct node cluster_find_node(const struct cluster *cl, int32_t id)
{
    const struct peer *p = find(cl, id);
    if (!p) return (struct node){.id = -1};
    return (struct node){.id = p->id, .host = str_of(p->host), .rack = str_of(p->rack), .port = p->port};
}

void cluster_learn_node(struct cluster *cl, const struct node *node)
{
    if (node->id < 0 || str_is_null(node->host) || node->host.size == 0 || node->port < 1 || node->port > PORT_MAX)
        return; /* nobody that could be asked */
    struct peer *p = find(cl, node->id);
    if (p && p->port == node->port && str_is(node->host, p->host)) return;
    if (!p) {
        p = mem_zalloc(1, sizeof *p);
        peer_set(p, node->id, node->host, node->port, node->rack);
        HASH_ADD_INT(cl->nodes, id, p);
        return;
    }
    peer_fini(p); /* it moved */
    p->channel = NULL;
    peer_set(p, node->id, node->host, node->port, node->rack);
}

/* ---- open and close ---- */

/* "host:port" or "[address]:port". */
static bool parse_address(struct cluster *cl, struct str word, struct failure *f)
{
    const char *end = word.data + word.size, *colon = NULL;
    for (const char *p = word.data; p < end; p++)
        if (*p == ':') colon = p;
    struct str host = {word.data, colon ? (size_t)(colon - word.data) : 0};
    if (host.size >= 2 && host.data[0] == '[' && host.data[host.size - 1] == ']')
        host = (struct str){host.data + 1, host.size - 2};
    else if (host.size > 0 && host_has_colon(host))
        host.size = 0; /* an IPv6 address needs its brackets */
    int32_t port = 0;
    for (const char *p = colon ? colon + 1 : end; p < end && port <= PORT_MAX; p++)
        port = *p >= '0' && *p <= '9' ? port * 10 + (*p - '0') : PORT_MAX + 1;
    if (host.size == 0 || port < 1 || port > PORT_MAX)
        return failure_set(f, ERR_INVALID,
                           "'%.*s' is no address of a broker: it must be host:port, or [address]:port for IPv6.",
                           STR_ARG(word));
    cl->bootstrap = mem_grow(cl->bootstrap, &cl->bootstrap_cap, cl->bootstrap_count + 1, sizeof *cl->bootstrap);
    struct peer *p = &cl->bootstrap[cl->bootstrap_count++];
    *p = (struct peer){0};
    peer_set(p, -1, host, port, STR_NULL);
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool parse_bootstrap(struct cluster *cl, const char *list, struct failure *f)
{
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        struct str word = {at, n};
        at += n + (at[n] == ',');
        while (word.size > 0 && is_blank(word.data[0])) word = (struct str){word.data + 1, word.size - 1};
        while (word.size > 0 && is_blank(word.data[word.size - 1])) word.size--;
        if (word.size > 0 && !parse_address(cl, word, f)) return false;
    }
    if (cl->bootstrap_count == 0) return failure_set(f, ERR_INVALID, "No address of a broker is given.");
    return true;
}

bool cluster_open(struct cluster **out, const struct cluster_options *opt, struct failure *f)
{
    struct cluster *cl = mem_zalloc(1, sizeof *cl);
    cl->opt = *opt;
    cl->client_id = mem_strdup(opt->client_id);
    if (!cl->opt.net) cl->opt.net = net_system();
    if (!cl->opt.clock) cl->opt.clock = clock_system();
    if (!cl->opt.rng) cl->opt.rng = rng_system();
    struct fault fault = {0};
    enum err e = loop_new(&cl->loop, cl->opt.clock, 0, &fault);
    bool ok = e ? failure_set(f, e, "%s", fault.text) : parse_bootstrap(cl, opt->bootstrap, f);
    if (!ok) {
        cluster_close(cl);
        return false;
    }
    *out = cl;
    return true;
}

void cluster_close(struct cluster *cl)
{
    if (!cl) return;
    struct peer *p, *next;
    HASH_ITER(hh, cl->nodes, p, next)
    {
        HASH_DEL(cl->nodes, p);
        peer_fini(p);
        mem_free(p);
    }
    for (size_t i = 0; i < cl->bootstrap_count; i++) peer_fini(&cl->bootstrap[i]);
    mem_free(cl->bootstrap);
    mem_free(cl->client_id);
    if (cl->loop) loop_free(cl->loop);
    mem_free(cl);
}

struct clock *cluster_clock(const struct cluster *cl)
{
    return cl->opt.clock;
}

void cluster_arena_init(struct arena *a)
{
    arena_init(a, CHANNEL_DECODE_MAX);
}

/* ---- time ---- */

static int64_t now_us(const struct cluster *cl)
{
    return clock_mono_us(cl->opt.clock);
}

struct attempt attempt_begin(struct cluster *cl)
{
    return (struct attempt){
        .cl = cl, .deadline_us = now_us(cl) + cl->opt.timeout_ms * 1000, .backoff_ms = cl->opt.backoff_ms};
}

static bool time_is_over(const struct cluster *cl, struct failure *f)
{
    struct failure last = *f;
    return failure_set(f, ERR_TIMEOUT, "Not done within %" PRId64 " ms. The last thing in the way: %s",
                       cl->opt.timeout_ms, last.text);
}

bool attempt_again(struct attempt *at, struct failure *f)
{
    struct cluster *cl = at->cl;
    if (!failure_is_retriable(f)) return false;
    /* A fifth more or less, so that clients that failed together do not come back together. */
    int64_t wait_us = at->backoff_ms * (800 + (int64_t)rng_below(cl->opt.rng, 401));
    int64_t until_us = now_us(cl) + wait_us;
    if (until_us >= at->deadline_us) return time_is_over(cl, f);
    while (now_us(cl) < until_us) loop_turn(cl->loop, until_us - now_us(cl));
    at->backoff_ms = MIN(at->backoff_ms * 2, MAX(cl->opt.backoff_max_ms, cl->opt.backoff_ms));
    return true;
}

/* ---- connections ---- */

static bool peer_connect(struct attempt *at, struct peer *p, int64_t deadline_us, struct failure *f)
{
    struct cluster *cl = at->cl;
    if (p->channel && channel_is_usable(p->channel)) return true;
    channel_close(p->channel);
    p->channel = NULL;
    struct channel_options opt = {.net = cl->opt.net, .loop = cl->loop, .client_id = cl->client_id};
    deadline_us = MIN(deadline_us, now_us(cl) + cl->opt.connect_timeout_ms * 1000);
    return channel_open(&p->channel, &opt, p->host, (uint16_t)p->port, deadline_us, f);
}

bool cluster_connect_node(struct attempt *at, int32_t id, struct peer **out, struct failure *f)
{
    struct peer *p = find(at->cl, id);
    if (!p) return failure_set(f, ERR_NOT_FOUND, "The cluster has told of no broker %" PRId32 ".", id);
    if (!peer_connect(at, p, at->deadline_us, f)) return false;
    *out = p;
    return true;
}

bool cluster_connect_any(struct attempt *at, struct peer **out, struct failure *f)
{
    struct cluster *cl = at->cl;
    struct peer *p, *next;
    HASH_ITER(hh, cl->nodes, p, next)
    if (p->channel && channel_is_usable(p->channel)) {
        *out = p;
        return true;
    }
    size_t left = HASH_COUNT(cl->nodes) + cl->bootstrap_count; /* a silent one must not take the time of all */
    HASH_ITER(hh, cl->nodes, p, next)
    {
        int64_t share_us = (at->deadline_us - now_us(cl)) / (int64_t)left--;
        *out = p;
        if (peer_connect(at, p, now_us(cl) + share_us, f)) return true;
    }
    for (size_t i = 0; i < cl->bootstrap_count; i++) {
        int64_t share_us = (at->deadline_us - now_us(cl)) / (int64_t)left--;
        *out = &cl->bootstrap[i];
        if (peer_connect(at, *out, now_us(cl) + share_us, f)) return true;
    }
    return false;
}

int16_t peer_version(const struct peer *p, enum api api, int16_t version_max)
{
    return channel_version(p->channel, api, version_max);
}

bool peer_ask(struct attempt *at, struct peer *p, const struct exchange *x, struct arena *a, struct failure *f)
{
    if (x->version < 0)
        return failure_set(f, ERR_UNSUPPORTED, "%s does not know %s requests as we can make them.", p->name,
                           wire_api_find((int16_t)x->api)->name);
    if (!p->channel)
        return failure_set(f, ERR_CLOSED, "The connection to a broker that moved, now %s, is closed.", p->name);
    int64_t deadline_us = MIN(at->deadline_us, now_us(at->cl) + at->cl->opt.request_timeout_ms * 1000);
    return channel_call(p->channel, x, a, deadline_us, f);
}
