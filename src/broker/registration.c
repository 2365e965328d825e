/* registration.c: what follows when the session with the store is lost, won, or when the broker's node is not there.
 *
 * One claim (claim.h) is made at a time.  What calls for another meanwhile is remembered, and its result then does not
 * count.  Calls of a session that has ended fail with ERR_EXPIRED, perhaps before COORD_EXPIRED is told: what failed so
 * is left to the new session. */
#include "broker/registration.h"

#include <inttypes.h>

#include "base/mem.h"
#include "broker/claim.h"
#include "broker/controller_watch.h"
#include "broker/coordination.h"
#include "broker/dynamic_config.h"
#include "broker/server.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "coord/coord.h"
#include "coord/znodes.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { CLAIM_AGAIN_US = 1000 * 1000 };

struct registration {
    struct broker_run *run;
    registration_done opened; /* NULL: it has been told */
    registration_done entered;
    void *opened_arg, *entered_arg;
    int64_t session, session_before; /* 0: none */
    bool wanted;                     /* registration_enter() has been called */
    bool starting;                   /* the broker has not been registered yet */
    bool claiming, claim_again;
    struct controller_watch *watch;
    bool controller_waits; /* it is to be told of the new session when the broker is registered */
    struct timer retry;
};

/* ---- The node */

/* What this broker registers. */
static struct znode_broker describe(const struct broker *br, struct arena *a)
{
    size_t count = server_listener_count(br->server);
    struct znode_endpoint *endpoints = arena_array(a, struct znode_endpoint, count);
    for (size_t i = 0; i < count; i++) {
        const struct listener_state *ls = server_listener(br->server, i);
        endpoints[i] = (struct znode_endpoint){str_of(ls->name), str_of(ls->advertised_host), ls->advertised_port,
                                               (int16_t)ls->protocol};
    }
    struct config *cfg = config_live_ref(br->config);
    struct str rack = arena_str(a, str_of(config_str(cfg, CFG_BROKER_RACK)));
    config_unref(cfg);
    return (struct znode_broker){
        .endpoints = endpoints,
        .endpoint_count = count,
        .rack = rack,
        .jmx_port = -1,
        .timestamp_ms = clock_wall_ms(br->clock),
    };
}

static void on_claimed(void *arg, const struct claim_result *r);

static void claim(struct registration *reg)
{
    struct broker *br = &reg->run->br;
    if (reg->claiming) {
        reg->claim_again = true;
        return;
    }
    reg->claiming = true;
    reg->claim_again = false;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    const struct znode_broker node = describe(br, &a);
    const struct claim_options opt = {
        .coord = br->coord,
        .loop = broker_home(br),
        .broker_id = br->id,
        .node = &node,
        .starting = reg->starting,
        .session_before = reg->session_before,
    };
    claim_begin(&opt, on_claimed, reg);
    arena_fini(&a);
}

/* The node was deleted by hand, or taken by another process. */
static void on_node_event(void *arg, enum coord_event event, struct str path)
{
    struct registration *reg = arg;
    (void)event;
    if (reg->run->stopping) return;
    LOG_WARN("registration_touched", "path=%.*s reason=\"not by us; looking at it\"", STR_ARG(path));
    claim(reg);
}

static void on_node_looked(void *arg, const struct coord_result *r)
{
    struct registration *reg = arg;
    if (reg->run->stopping) return;
    if (r->err == ERR_NOT_FOUND) claim(reg);
}

static void watch_node(struct registration *reg)
{
    struct broker *br = &reg->run->br;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    coord_exists(br->coord, znode_broker_path(&a, br->id), (struct coord_watch){on_node_event, reg},
                 (struct coord_to){broker_home(br), on_node_looked, reg});
    arena_fini(&a);
}

static void registered(struct registration *reg, const struct claim_result *r)
{
    struct broker *br = &reg->run->br;
    bool anew = !reg->starting && atomic_load(&br->epoch) != r->epoch;
    reg->starting = false;
    atomic_store(&br->epoch, r->epoch);
    watch_node(reg);
    if (r->session_replaced) controller_watch_succeed(reg->watch, r->session_replaced);
    if (anew) LOG_INFO("registered_anew", "broker=%d epoch=%" PRId64, br->id, r->epoch);
    if (reg->controller_waits && br->controller) controller_session_renewed(br->controller);
    reg->controller_waits = false;
    registration_done entered = reg->entered;
    reg->entered = NULL;
    if (entered) entered(reg->entered_arg, OK, NULL);
}

static void on_retry(struct timer *t)
{
    struct registration *reg = CONTAINER_OF(t, struct registration, retry);
    if (!reg->run->stopping) claim(reg);
}

static void not_registered(struct registration *reg, const struct claim_result *r)
{
    struct loop *home = broker_home(&reg->run->br);
    registration_done entered = reg->entered;
    reg->entered = NULL;
    if (entered) {
        entered(reg->entered_arg, r->err, r->fault);
    } else if (r->err == ERR_EXISTS) {
        /* It came while we were out of the cluster: it is the one with that id now. */
        LOG_ERROR("broker_id_lost", "reason=\"%s\"", r->fault->text);
        run_fail(reg->run, r->err, r->fault);
    } else {
        LOG_WARN("not_registered", "reason=\"%s\"; trying again", r->fault->text);
        reg->retry.fire = on_retry;
        loop_timer_set(home, &reg->retry, loop_now_us(home) + CLAIM_AGAIN_US);
    }
}

static void on_claimed(void *arg, const struct claim_result *r)
{
    struct registration *reg = arg;
    reg->claiming = false;
    if (reg->run->stopping || r->err == ERR_CLOSED) return;
    if (reg->claim_again)
        claim(reg);
    else if (!r->err)
        registered(reg, r);
    else if (r->err != ERR_EXPIRED) /* else the new session claims it */
        not_registered(reg, r);
}

void registration_enter(struct registration *reg, registration_done done, void *arg)
{
    reg->entered = done;
    reg->entered_arg = arg;
    reg->wanted = reg->starting = true;
    claim(reg);
}

/* ---- The session */

static void on_connected(struct registration *reg)
{
    struct broker *br = &reg->run->br;
    int64_t session = coord_session_id(br->coord);
    if (session == reg->session) {
        LOG_INFO("coordination_back", "session=0x%" PRIx64, session);
        return;
    }
    bool first = reg->session == 0;
    reg->session_before = reg->session;
    reg->session = session;
    LOG_INFO("session_began", "session=0x%" PRIx64, session);
    if (first) {
        registration_done opened = reg->opened;
        reg->opened = NULL;
        opened(reg->opened_arg, OK, NULL);
        return;
    }
    if (br->dynamic_config) dynamic_config_renew(br->dynamic_config);
    if (reg->wanted) claim(reg);
}

static void on_expired(struct registration *reg)
{
    struct broker *br = &reg->run->br;
    LOG_WARN("session_expired", "session=0x%" PRIx64 " reason=\"the store has not heard of this broker in time\"",
             reg->session);
    loop_timer_cancel(broker_home(br), &reg->retry);
    if (br->controller) controller_session_lost(br->controller);
    reg->controller_waits = true;
    coord_renew(br->coord);
}

static void on_failed(struct registration *reg, const struct fault *f)
{
    registration_done opened = reg->opened;
    reg->opened = NULL;
    if (opened) {
        opened(reg->opened_arg, f->code, f);
        return;
    }
    LOG_ERROR("coordination_lost", "reason=\"%s\"", f->text);
    run_fail(reg->run, f->code, f);
}

static void on_session(void *arg, enum coord_state state, const struct fault *f)
{
    struct registration *reg = arg;
    if (reg->run->stopping) return;
    switch (state) {
    case COORD_CONNECTED: on_connected(reg); break;
    case COORD_DISCONNECTED:
        LOG_WARN("coordination_away", "session=0x%" PRIx64 " reason=\"the store is out of reach; serving goes on\"",
                 reg->session);
        break;
    case COORD_EXPIRED: on_expired(reg); break;
    case COORD_FAILED: on_failed(reg, f); break;
    }
}

void registration_open(struct registration **out, struct broker_run *run, registration_done done, void *arg)
{
    struct registration *reg = mem_zalloc(1, sizeof *reg);
    *reg =
        (struct registration){.run = run, .opened = done, .opened_arg = arg, .watch = controller_watch_new(&run->br)};
    *out = reg;
    struct fault f = {0};
    enum err e = coordination_open(run, (struct coord_listener){broker_home(&run->br), on_session, reg}, &f);
    if (!e) return;
    reg->opened = NULL;
    done(arg, e, &f);
}

void registration_watch_controller(struct registration *reg)
{
    struct broker *br = &reg->run->br;
    if (config_bool(broker_config(br, broker_home(br)), CFG_CONTROLLER_FAST_FAILURE_DETECTION))
        to_controller_on_dead(br->to_controller, controller_watch_dead, reg->watch);
}

void registration_free(struct registration *reg)
{
    if (!reg) return;
    loop_timer_cancel(broker_home(&reg->run->br), &reg->retry);
    controller_watch_free(reg->watch);
    mem_free(reg);
}
