/* start.c: the steps from a bound port to an open door, in order, each begun when the one before is done.
 *
 * Ports are bound and directories locked before (broker.c); clients are let in last, when every log is open, but for
 * those of which a crash left much to be read again.
 *
 * A broker that is alone also knows the cluster by then: its own controller has told it.  In a cluster the doors open
 * as soon as the broker is registered, on all listeners: the controller may be another broker, and what it has to say
 * comes in by them.  Clients that are faster than the controller find a broker that knows of nobody, as with Kafka,
 * and what they are answered they may ask again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "broker/adopt.h"
#include "broker/broker_internal.h"
#include "broker/cluster_channel.h"
#include "broker/control.h"
#include "broker/dynamic_config.h"
#include "broker/following.h"
#include "broker/identity.h"
#include "broker/producer_ids.h"
#include "broker/registration.h"
#include "broker/server.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "os/process.h"

#define LOG_MODULE "broker"
#include "base/log.h"

struct start {
    struct broker_run *run;
    size_t step;
    struct job job;      /* opening the logs */
    struct adopt *adopt; /* NULL: in a cluster */
    struct fault job_fault;
    enum err job_err;
    int64_t began_us;
};

struct step_row {
    const char *name;
    void (*run)(struct start *st);
};
static const struct step_row steps[];

static void step_done(struct start *st);

static void start_free(struct start *st)
{
    st->run->start = NULL;
    adopt_free(st->adopt);
    mem_free(st);
}

void run_start_abandon(struct broker_run *run)
{
    if (run->start) start_free(run->start);
}

/* What fails because we were told to stop meanwhile is no failure. */
static void step_failed(struct start *st, enum err e, const struct fault *f)
{
    if (!st->run->stopping) run_fail(st->run, e, f); /* `f` may lie in `st` */
    start_free(st);
}

/* The common end of a step of another file. */
static void on_step(void *arg, enum err e, const struct fault *f)
{
    struct start *st = arg;
    if (e)
        step_failed(st, e, f);
    else
        step_done(st);
}

/* ---- The coordination store, and who we are */

static void open_coord(struct start *st)
{
    registration_open(&st->run->registration, st->run, on_step, st);
}

static void identify(struct start *st)
{
    identity_find(&st->run->br, on_step, st);
}

/* ---- Configuration */

static void load_config(struct start *st)
{
    struct broker *br = &st->run->br;
    dynamic_config_open(&br->dynamic_config, br, on_step, st);
}

/* ---- Logs */

/* In a cluster nothing is adopted: whatever the directories hold waits for a controller to speak of it, and what none
 * does speak of stays, as with Kafka. */
static void look_for_partitions(struct start *st)
{
    if (!st->run->br.alone) {
        step_done(st);
        return;
    }
    st->adopt = adopt_new(&st->run->br);
    adopt_look(st->adopt, on_step, st);
}

static void raise_epochs(struct start *st)
{
    if (st->adopt)
        adopt_raise_epochs(st->adopt, on_step, st);
    else
        step_done(st);
}

enum { RECOVERY_THREADS_MAX = 256 };

/* num.recovery.threads.per.data.dir, which the stored configuration may set; but no CPU is left idle. */
static unsigned recovery_threads(const struct broker_run *run)
{
    const struct broker *br = &run->br;
    if (run->env.turned) return 0; /* who asks does it himself */
    struct config *cfg = config_live_ref(br->config);
    int64_t wanted = config_i64(cfg, CFG_NUM_RECOVERY_THREADS_PER_DATA_DIR) * (int64_t)replicas_dir_count(br->replicas);
    config_unref(cfg);
    return MAX((unsigned)MIN(wanted, RECOVERY_THREADS_MAX), process_cpu_count());
}

static void load_logs_work(struct job *job)
{
    struct start *st = CONTAINER_OF(job, struct start, job);
    struct broker *br = &st->run->br;
    st->job_err = replicas_load(br->replicas, recovery_threads(st->run), &st->job_fault);
}

static void load_logs_done(struct job *job)
{
    struct start *st = CONTAINER_OF(job, struct start, job);
    if (!st->job_err) st->job_err = replicas_open_rest(st->run->br.replicas, &st->job_fault);
    if (st->job_err)
        step_failed(st, st->job_err, &st->job_fault);
    else
        step_done(st);
}

static void load_logs(struct start *st)
{
    struct broker *br = &st->run->br;
    st->job = (struct job){.loop = broker_home(br), .work = load_logs_work, .done = load_logs_done};
    workers_submit(br->workers, &st->job);
}

/* ---- Registration */

static void register_broker(struct start *st)
{
    registration_enter(st->run->registration, on_step, st);
}

/* ---- The controller */

static void on_first_metadata(void *arg)
{
    step_done(arg);
}

/* When we are alone it is done when the controller is in office, has told us of the cluster, and we have taken our
 * roles. */
static void start_controller(struct start *st)
{
    struct broker *br = &st->run->br;
    br->producer_ids = producer_ids_new(br);
    br->to_controller = to_controller_new(br);
    registration_watch_controller(st->run->registration);
    br->control = control_new(br);
    following_open(br);
    if (br->alone) control_on_first(br->control, on_first_metadata, st);
    cluster_channel_open(&br->cluster_channel, st->run);
    if (!br->alone) step_done(st);
}

/* ---- Doors open */

static void open_doors(struct start *st)
{
    struct broker *br = &st->run->br;
    struct fault f = {0};
    enum err e = server_start(br->server, &f);
    if (e) {
        step_failed(st, e, &f);
        return;
    }
    replicas_start_upkeep(br->replicas);
    step_done(st);
}

static const struct step_row steps[] = {
    {"open the coordination store", open_coord},
    {"identify broker and cluster", identify},
    {"read the stored configuration", load_config},
    {"look for partitions that are not known", look_for_partitions},
    {"open the logs", load_logs},
    {"compare leader epochs", raise_epochs},
    {"register the broker", register_broker},
    {"start the controller", start_controller},
    {"accept connections", open_doors},
};

static void announce(const struct start *st)
{
    struct broker *br = &st->run->br;
    int64_t took_us = clock_mono_us(br->clock) - st->began_us;
    for (size_t i = 0; i < server_listener_count(br->server); i++) {
        const struct listener_state *ls = server_listener(br->server, i);
        char at[NET_ADDR_TEXT_MAX];
        net_addr_format(&ls->bound, at);
        LOG_INFO("listening", "listener=%s address=%s advertised=%s:%d", ls->name, at, ls->advertised_host,
                 ls->advertised_port);
    }
    LOG_INFO("started", "broker=%d cluster=%s epoch=%" PRId64 " ms=%" PRId64, br->id, br->cluster_id,
             atomic_load(&br->epoch), took_us / 1000);
}

static void step_done(struct start *st)
{
    struct broker_run *run = st->run;
    if (run->stopping) {
        start_free(st);
        return;
    }
    st->step++;
    if (st->step == ARRAY_COUNT(steps)) {
        run->started = true;
        announce(st);
        start_free(st);
        return;
    }
    LOG_DEBUG("starting", "step=\"%s\"", steps[st->step].name);
    steps[st->step].run(st);
}

static void start_first(struct loop_msg *msg)
{
    struct broker_run *run = CONTAINER_OF(msg, struct broker_run, start_msg);
    struct start *st = mem_zalloc(1, sizeof *st);
    st->run = run;
    run->start = st;
    st->began_us = clock_mono_us(run->br.clock);
    struct config *cfg = config_live_ref(run->br.config);
    run->br.alone = config_is_alone(cfg) && !run->env.open_coord;
    config_unref(cfg);
    steps[0].run(st);
}

void run_start(struct broker_run *run)
{
    run->start_msg.run = start_first;
    loop_post(broker_home(&run->br), &run->start_msg);
}
