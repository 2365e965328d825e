/* claim.c: look at the other brokers, try to make the node, look at who has it, replace it.
 *
 * A write of which the end is not known (ERR_UNSURE) is followed by a look, as is every one that was refused: what is
 * there decides.
 *
 * Replacing is one change that names the version of the node that was looked at.  Versions of two nodes can be equal,
 * though: should the dead process's session have ended since, and another process have taken the id, its node would go
 * instead.  So the change writes to the node before it deletes it, and the answer tells which node that was.  If it was
 * another's, ours goes again: a broker whose node has gone makes it anew (registration.c). */
#include "broker/claim.h"

#include <inttypes.h>

#include "base/mem.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { ATTEMPTS_MAX = 100 };

struct claim {
    struct claim_options opt;
    struct arena arena;
    struct znode_broker node;
    struct str path;
    struct bytes data;
    size_t others_out; /* other brokers' nodes that are being read */
    int attempts;
    int64_t czxid; /* of the node that is replaced */
    int64_t session_replaced;
    enum err err; /* while others are read: the first */
    struct fault fault;
    void (*done)(void *arg, const struct claim_result *r);
    void *arg;
};

static void end(struct claim *cl, enum err e, int64_t epoch)
{
    const struct claim_result r = {
        .err = e, .fault = &cl->fault, .epoch = epoch, .session_replaced = cl->session_replaced};
    cl->done(cl->arg, &r);
    arena_fini(&cl->arena);
    mem_free(cl);
}

static void end_with(struct claim *cl, const char *what, const struct coord_result *r)
{
    end(cl, fault_set(&cl->fault, r->err, "%s failed: %s.", what, r->text ? r->text : err_text(r->err)), -1);
}

static struct coord_to to(struct claim *cl, coord_done_fn done)
{
    return (struct coord_to){cl->opt.loop, done, cl};
}

/* "PLAINTEXT://a:9092,INTERNAL://a:9093" */
static struct str endpoints_text(struct arena *a, const struct znode_broker *node)
{
    struct str text = STR_EMPTY;
    for (size_t i = 0; i < node->endpoint_count; i++) {
        const struct znode_endpoint *ep = &node->endpoints[i];
        text = arena_printf(a, "%.*s%s%.*s://%.*s:%d", STR_ARG(text), i ? "," : "", STR_ARG(ep->listener),
                            STR_ARG(ep->host), ep->port);
    }
    return text;
}

/* An address that both have; NULL: none. */
static const struct znode_endpoint *common_endpoint(const struct znode_broker *a, const struct znode_broker *b)
{
    for (size_t i = 0; i < a->endpoint_count; i++)
        for (size_t k = 0; k < b->endpoint_count; k++)
            if (a->endpoints[i].port == b->endpoints[k].port && str_equal(a->endpoints[i].host, b->endpoints[k].host))
                return &a->endpoints[i];
    return NULL;
}

/* ---- The node */

static void create(struct claim *cl);

/* A fault has room for so much of each. */
static int text_size(struct str s)
{
    return (int)MIN(s.size, (size_t)300);
}

static void end_held(struct claim *cl, const struct coord_result *r, const struct znode_broker *other)
{
    struct str theirs = other ? endpoints_text(&cl->arena, other) : STR("an address that cannot be read");
    struct str ours = endpoints_text(&cl->arena, &cl->node);
    end(cl,
        fault_set(&cl->fault, ERR_EXISTS,
                  "Broker id %d is in use: a live broker at %.*s is registered with it (session 0x%" PRIx64
                  "), and this one is at %.*s. Give one of the two another broker.id. If that process is dead, its "
                  "registration goes with its ZooKeeper session, within zookeeper.session.timeout.ms.",
                  cl->opt.broker_id, text_size(theirs), theirs.data, r->stat.ephemeral_owner, text_size(ours),
                  ours.data),
        -1);
}

static void look(struct claim *cl);

static void on_withdrawn(void *arg, const struct coord_result *r)
{
    struct claim *cl = arg;
    (void)r;
    end(cl,
        fault_set(&cl->fault, ERR_EXISTS,
                  "Broker id %d is in use: another process has registered with it in the very moment when this one, at "
                  "%.*s, replaced what its dead predecessor had left. Give one of the two another broker.id.",
                  cl->opt.broker_id, STR_ARG(endpoints_text(&cl->arena, &cl->node))),
        -1);
}

enum { REPLACE_TOUCH, REPLACE_DELETE, REPLACE_CREATE, REPLACE_STEPS };

static void on_replaced(void *arg, const struct coord_result *r)
{
    struct claim *cl = arg;
    if (!r->err && r->results[REPLACE_TOUCH].stat.czxid != cl->czxid) {
        coord_delete(cl->opt.coord, cl->path, COORD_ANY_VERSION, to(cl, on_withdrawn));
        return;
    }
    if (!r->err || r->err == ERR_UNSURE || r->err == ERR_VERSION || r->err == ERR_NOT_FOUND)
        look(cl);
    else
        end_with(cl, "Replacing the registration of a dead process", r);
}

static void replace(struct claim *cl, const struct coord_result *r)
{
    cl->czxid = r->stat.czxid;
    cl->session_replaced = r->stat.ephemeral_owner;
    LOG_INFO("registration_replaced", "broker=%d session=0x%" PRIx64 " reason=\"our own dead process left it\"",
             cl->opt.broker_id, r->stat.ephemeral_owner);
    const struct coord_op steps[REPLACE_STEPS] = {
        [REPLACE_TOUCH] = {.kind = COORD_SET, .path = cl->path, .data = r->data, .version = r->stat.version},
        [REPLACE_DELETE] = {.kind = COORD_DELETE, .path = cl->path, .version = r->stat.version + 1},
        [REPLACE_CREATE] = {.kind = COORD_CREATE, .path = cl->path, .data = cl->data, .flags = COORD_EPHEMERAL},
    };
    coord_multi(cl->opt.coord, steps, REPLACE_STEPS, to(cl, on_replaced));
}

static bool is_of_dead_process(const struct claim *cl, const struct coord_result *r, const struct znode_broker *other)
{
    int64_t owner = r->stat.ephemeral_owner;
    if (owner == 0) return false; /* made by hand: nobody's session ends it */
    if (!cl->opt.starting) return owner == cl->opt.session_before;
    return other && common_endpoint(&cl->node, other);
}

static void on_looked(void *arg, const struct coord_result *r)
{
    struct claim *cl = arg;
    struct znode_broker other;
    struct fault why = {0};
    if (r->err == ERR_NOT_FOUND) {
        create(cl); /* it has gone since */
        return;
    }
    if (r->err) {
        end_with(cl, "Reading the registration", r);
        return;
    }
    if (r->stat.ephemeral_owner == coord_session_id(cl->opt.coord)) {
        end(cl, OK, r->stat.czxid);
        return;
    }
    bool readable = znode_broker_decode(&cl->arena, r->path, r->data, &other, &why) == OK;
    if (is_of_dead_process(cl, r, readable ? &other : NULL))
        replace(cl, r);
    else
        end_held(cl, r, readable ? &other : NULL);
}

static void look(struct claim *cl)
{
    coord_get(cl->opt.coord, cl->path, COORD_NO_WATCH, to(cl, on_looked));
}

static void on_created(void *arg, const struct coord_result *r)
{
    struct claim *cl = arg;
    if (!r->err)
        end(cl, OK, r->stat.czxid);
    else if (r->err == ERR_EXISTS || r->err == ERR_UNSURE)
        look(cl);
    else
        end_with(cl, "Registering the broker", r);
}

static void create(struct claim *cl)
{
    if (cl->attempts++ == ATTEMPTS_MAX) {
        end(cl,
            fault_set(&cl->fault, ERR_AGAIN, "Registering the broker failed: %.*s comes and goes all the time.",
                      STR_ARG(cl->path)),
            -1);
        return;
    }
    coord_create(cl->opt.coord, cl->path, cl->data, COORD_EPHEMERAL, to(cl, on_created));
}

/* ---- The other brokers, whose addresses must be others */

struct other {
    struct claim *cl;
    struct str name; /* its id */
};

static void other_done(struct claim *cl)
{
    if (--cl->others_out > 0) return;
    if (cl->err)
        end(cl, cl->err, -1);
    else
        create(cl);
}

static void on_other(void *arg, const struct coord_result *r)
{
    struct other *o = arg;
    struct claim *cl = o->cl;
    struct znode_broker node;
    struct fault unreadable = {0}; /* the controller tells of it */
    const struct znode_endpoint *common = NULL;
    if (!r->err && znode_broker_decode(&cl->arena, r->path, r->data, &node, &unreadable) == OK)
        common = common_endpoint(&cl->node, &node);
    if (r->err && r->err != ERR_NOT_FOUND && !cl->err)
        cl->err = fault_set(&cl->fault, r->err, "Reading %.*s failed: %s.", STR_ARG(r->path),
                            r->text ? r->text : err_text(r->err));
    if (common && !cl->err)
        cl->err = fault_set(&cl->fault, ERR_EXISTS,
                            "The advertised address %.*s:%d of this broker (id %d) is that of broker %.*s, which is "
                            "registered already. Correct advertised.listeners or listeners.",
                            STR_ARG(common->host), common->port, cl->opt.broker_id, STR_ARG(o->name));
    other_done(cl);
}

static void on_ids(void *arg, const struct coord_result *r)
{
    struct claim *cl = arg;
    if (r->err) {
        end_with(cl, "Listing the registered brokers", r);
        return;
    }
    struct str own = arena_printf(&cl->arena, "%d", cl->opt.broker_id);
    cl->others_out = 1;
    for (size_t i = 0; i < r->child_count; i++) {
        if (str_equal(r->children[i], own)) continue;
        struct other *o = arena_alloc(&cl->arena, sizeof *o);
        *o = (struct other){cl, arena_str(&cl->arena, r->children[i])};
        cl->others_out++;
        coord_get(cl->opt.coord, arena_printf(&cl->arena, "%.*s/%.*s", STR_ARG(ZNODE_BROKER_IDS), STR_ARG(o->name)),
                  COORD_NO_WATCH, (struct coord_to){cl->opt.loop, on_other, o});
    }
    other_done(cl);
}

/* ---- The beginning */

static struct znode_broker node_copy(struct arena *a, const struct znode_broker *node)
{
    struct znode_broker copy = *node;
    copy.endpoints = arena_array(a, struct znode_endpoint, node->endpoint_count);
    for (size_t i = 0; i < node->endpoint_count; i++) {
        copy.endpoints[i] = node->endpoints[i];
        copy.endpoints[i].listener = arena_str(a, node->endpoints[i].listener);
        copy.endpoints[i].host = arena_str(a, node->endpoints[i].host);
    }
    return copy;
}

void claim_begin(const struct claim_options *opt, void (*done)(void *arg, const struct claim_result *r), void *arg)
{
    ASSERT_OWNER(opt->loop);
    struct claim *cl = mem_zalloc(1, sizeof *cl);
    *cl = (struct claim){.opt = *opt, .done = done, .arg = arg};
    arena_init(&cl->arena, SIZE_MAX);
    cl->node = node_copy(&cl->arena, opt->node);
    cl->data = znode_broker_encode(&cl->arena, opt->node);
    cl->path = znode_broker_path(&cl->arena, opt->broker_id);
    if (opt->starting)
        coord_children(opt->coord, ZNODE_BROKER_IDS, COORD_NO_WATCH, to(cl, on_ids));
    else
        create(cl);
}
