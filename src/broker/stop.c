/* stop.c: the end of a broker, step by step: in a cluster others take over what it leads; no new connections; what is
 * in progress is answered; the groups' shards are closed; the controller resigns, fetchers leave their partitions and
 * the session ends; the loops stop.  Logs are closed and marked clean after that, in broker.c. */
#include "base/mem.h"
#include "broker/broker_internal.h"
#include "broker/groups.h"
#include "broker/leaving.h"
#include "broker/server.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "coord/coord.h"
#include "replica/fetchers.h"

#define LOG_MODULE "broker"
#include "base/log.h"

/* Handlers that wait for others are cancelled and answer at once; this bounds the rest: peers that do not read their
 * answers, and what the controller has promised to finish within the client's own timeout. */
enum { DRAIN_US_MAX = 5 * 1000 * 1000 };

static void stop_loops(void *arg)
{
    struct broker_run *run = arg;
    run->br.coord = NULL;
    run->ended = true;
    for (unsigned i = 0; i < run->br.loop_count; i++) loop_stop(run->br.loops[i]);
}

static void close_coord(void *arg)
{
    struct broker_run *run = arg;
    if (run->br.coord)
        coord_close(run->br.coord, broker_home(&run->br), stop_loops, run);
    else
        stop_loops(run);
}

/* Nobody fetches for the partitions here any more. */
static void stop_following(struct broker_run *run)
{
    if (run->br.fetchers)
        fetchers_stop(run->br.fetchers, close_coord, run);
    else
        close_coord(run);
}

static void on_controller_stopped(void *arg)
{
    struct broker_run *run = arg;
    run->controller_stopped = true;
    if (run->drained) stop_following(run); /* else requests are still in progress, and may need it */
}

/* Operations that it has not finished are answered NOT_CONTROLLER. */
static void stop_controller(struct broker_run *run)
{
    if (run->controller_stopping) return;
    run->controller_stopping = true;
    to_controller_stop(run->br.to_controller);
    if (run->br.controller)
        controller_stop(run->br.controller, on_controller_stopped, run);
    else
        on_controller_stopped(run);
}

/* Their last writes are in the logs. */
static void on_groups_stopped(void *arg)
{
    struct broker_run *run = arg;
    run->drained = true;
    if (run->controller_stopped)
        stop_following(run);
    else
        stop_controller(run);
}

static void on_drained(struct loop_msg *msg)
{
    struct broker_run *run = CONTAINER_OF(msg, struct broker_run, drained_msg);
    loop_timer_cancel(broker_home(&run->br), &run->drain_timer);
    groups_stop(run->br.groups, on_groups_stopped, run);
}

void broker_set_drained(struct broker *br)
{
    struct broker_run *run = CONTAINER_OF(br, struct broker_run, br);
    if (atomic_fetch_sub(&br->sets_draining, 1) == 1) loop_post(broker_home(br), &run->drained_msg);
}

/* One message a loop, first to drain, then perhaps to close what is left. */
struct set_msg {
    struct loop_msg msg;
    struct conn_set *set;
};

static void set_close(struct loop_msg *msg)
{
    struct set_msg *sm = CONTAINER_OF(msg, struct set_msg, msg);
    conn_set_close(sm->set);
    mem_free(sm);
}

static void set_drain(struct loop_msg *msg)
{
    struct set_msg *sm = CONTAINER_OF(msg, struct set_msg, msg);
    conn_set_drain(sm->set);
    mem_free(sm);
}

static void post_sets(struct broker *br, void (*run)(struct loop_msg *msg))
{
    for (unsigned i = 0; i < br->loop_count; i++) {
        struct set_msg *sm = mem_zalloc(1, sizeof *sm);
        sm->set = &br->sets[i];
        sm->msg.run = run;
        loop_post(br->loops[i], &sm->msg);
    }
}

static void on_drain_timeout(struct timer *t)
{
    struct broker_run *run = CONTAINER_OF(t, struct broker_run, drain_timer);
    LOG_WARN("connections_cut", "reason=\"their requests did not end in time\"");
    post_sets(&run->br, set_close);
    stop_controller(run);
}

static void stop_now(void *arg)
{
    struct broker_run *run = arg;
    struct broker *br = &run->br;
    ASSERT(!run->stopping);
    run->stopping = true;
    if (br->server) server_stop(br->server);
    run->drained_msg.run = on_drained;
    run->drain_timer.fire = on_drain_timeout;
    loop_timer_set(broker_home(br), &run->drain_timer, loop_now_us(broker_home(br)) + DRAIN_US_MAX);
    atomic_store(&br->sets_draining, br->loop_count);
    post_sets(br, set_drain);
}

/* One that cannot go on hands nothing over. */
void run_stop(struct broker_run *run)
{
    ASSERT(!run->stopping);
    if (run->leaving) {
        leaving_cut(run->leaving);
        return;
    }
    if (!run->err) run->leaving = leaving_begin(run, stop_now, run);
    if (!run->leaving) stop_now(run);
}

void run_fail(struct broker_run *run, enum err e, const struct fault *f)
{
    if (run->err) return;
    run->err = e;
    if (f && f != &run->fault) run->fault = *f;
    if (!run->stopping) run_stop(run);
}
