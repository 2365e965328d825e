/* start.c: the steps from a bound port to an open door, in order, each begun when the one before is done.
 *
 * Ports are bound and directories locked before (broker.c); clients are let in last, when the broker knows the cluster
 * and every log is open, but for those of which a crash left much to be read again. */
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
#include "broker/producer_ids.h"
#include "broker/server.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "coord/coord.h"
#include "coord/embedded.h"
#include "coord/znodes.h"
#include "os/process.h"

#define LOG_MODULE "broker"
#include "base/log.h"

struct start {
    struct broker_run *run;
    size_t step;
    struct arena arena;
    struct job job; /* opening the logs */
    struct adopt *adopt;
    enum err prepare_err; /* the first of the calls that prepare the store; the last call looks at it */
    const char *prepare_text;
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
    arena_fini(&st->arena);
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

/* The common end of a coordination call. */
static void step_ended(struct start *st, enum err e, const char *what, const struct coord_result *r)
{
    if (!e) {
        step_done(st);
        return;
    }
    struct fault f;
    fault_set(&f, e, "%s failed: %s%s%s.", what, err_text(e), r && r->text ? ": " : "", r && r->text ? r->text : "");
    step_failed(st, e, &f);
}

/* ---- The coordination store */

static void on_session(void *arg, enum coord_state state, const struct fault *f)
{
    struct broker_run *run = arg;
    if (state == COORD_CONNECTED || run->stopping) return;
    struct fault why;
    if (f)
        why = *f;
    else
        fault_set(&why, ERR_CLOSED, "The coordination session expired.");
    LOG_ERROR("coordination_lost", "reason=\"%s\"", why.text);
    run_fail(run, why.code, &why);
}

static void open_coord(struct start *st)
{
    struct broker *br = &st->run->br;
    if (st->run->env.open_coord) {
        br->coord =
            st->run->env.open_coord(st->run->env.arg, (struct coord_listener){broker_home(br), on_session, st->run});
        step_done(st);
        return;
    }
    const struct coord_embedded_options opt = {
        .fs = br->fs,
        .clock = br->clock,
        .dir = replicas_dir_path(br->replicas, 0),
        .listener = {broker_home(br), on_session, st->run},
    };
    struct fault f = {0};
    enum err e = replicas_dir_error(br->replicas, 0);
    if (e)
        fault_set(
            &f, e,
            "The log directory %s cannot be used: %s. It is the first of log.dirs and holds the coordination store, "
            "without which the broker cannot start.",
            opt.dir, err_text(e));
    else
        e = coord_embedded_open(&br->coord, &opt, &f);
    if (e)
        step_failed(st, e, &f);
    else
        step_done(st);
}

/* ---- Who we are */

static void take_cluster_id(struct start *st, struct str id)
{
    struct broker *br = &st->run->br;
    snprintf(br->cluster_id, sizeof br->cluster_id, "%.*s", STR_ARG(id));
    struct config *cfg = config_live_ref(br->config);
    bool given = config_i64(cfg, CFG_BROKER_ID) >= 0;
    br->id = config_broker_id(cfg, replicas_stored_broker_id(br->replicas));
    config_unref(cfg);
    struct fault f = {0};
    const char *nameless = given ? NULL : replicas_dir_without_id(br->replicas);
    if (nameless) {
        /* As any other broker we would lead none of its partitions. */
        enum err e =
            fault_set(&f, ERR_INVALID,
                      "%s/meta.properties does not say which broker it belongs to. Set broker.id to the number "
                      "that this broker has had.",
                      nameless);
        step_failed(st, e, &f);
        return;
    }
    enum err e = replicas_identify(br->replicas, br->id, br->cluster_id, &f);
    if (e)
        step_failed(st, e, &f);
    else
        step_done(st);
}

static void on_path_made(void *arg, const struct coord_result *r)
{
    struct start *st = arg;
    if (st->prepare_err || !r->err || r->err == ERR_EXISTS) return;
    st->prepare_err = r->err;
    st->prepare_text = r->text ? arena_str(&st->arena, str_of(r->text)).data : NULL;
}

static void on_cluster_id(void *arg, const struct coord_result *r)
{
    struct start *st = arg;
    if (st->prepare_err) {
        const struct coord_result why = {.err = st->prepare_err, .text = st->prepare_text};
        step_ended(st, why.err, "Preparing the coordination store", &why);
        return;
    }
    if (r->err) {
        step_ended(st, r->err, "Reading /cluster/id", r);
        return;
    }
    struct str id;
    struct fault f = {0};
    enum err e = znode_cluster_id_decode(&st->arena, r->data, &id, &f);
    if (e)
        step_failed(st, e, &f);
    else
        take_cluster_id(st, id);
}

/* Prepares the store and reads the cluster's id from it.  One after the other, but not waited for one by one: then a
 * new store takes a single commit, and one that has everything none.  A store without an id is new: it takes the id
 * that the directories have, or a fresh one. */
static void identify(struct start *st)
{
    struct broker *br = &st->run->br;
    char fresh[UUID_TEXT_SIZE + 1];
    uuid_format(rng_uuid(br->rng), fresh);
    const char *stored = replicas_stored_cluster_id(br->replicas);
    struct bytes id = znode_cluster_id_encode(&st->arena, str_of(stored ? stored : fresh));
    const struct str parent = STR("/cluster");
    const struct coord_to made = {broker_home(br), on_path_made, st};
    znodes_make_persistent(br->coord, made);
    coord_make_paths(br->coord, &parent, 1, made);
    coord_create(br->coord, ZNODE_CLUSTER_ID, id, 0, made);
    coord_get(br->coord, ZNODE_CLUSTER_ID, COORD_NO_WATCH, (struct coord_to){broker_home(br), on_cluster_id, st});
}

/* ---- Configuration */

static void on_dynamic_config(void *arg, enum err e, const struct fault *f)
{
    struct start *st = arg;
    if (e)
        step_failed(st, e, f);
    else
        step_done(st);
}

static void load_config(struct start *st)
{
    struct broker *br = &st->run->br;
    dynamic_config_open(&br->dynamic_config, br, on_dynamic_config, st);
}

/* ---- Logs */

static void on_adopt(void *arg, enum err e, const struct fault *f)
{
    struct start *st = arg;
    if (e)
        step_failed(st, e, f);
    else
        step_done(st);
}

static void look_for_partitions(struct start *st)
{
    st->adopt = adopt_new(&st->run->br);
    adopt_look(st->adopt, on_adopt, st);
}

static void raise_epochs(struct start *st)
{
    adopt_raise_epochs(st->adopt, on_adopt, st);
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

static void on_registered(void *arg, const struct coord_result *r)
{
    struct start *st = arg;
    struct broker *br = &st->run->br;
    if (r->err == ERR_EXISTS) {
        struct fault f;
        fault_set(&f, r->err, "Broker id %d is registered already, by another live process.", br->id);
        step_failed(st, r->err, &f);
        return;
    }
    br->epoch = r->stat.czxid;
    step_ended(st, r->err, "Registering the broker", r);
}

static void register_broker(struct start *st)
{
    struct broker *br = &st->run->br;
    size_t count = server_listener_count(br->server);
    struct znode_endpoint *endpoints = arena_array(&st->arena, struct znode_endpoint, count);
    for (size_t i = 0; i < count; i++) {
        const struct listener_state *ls = server_listener(br->server, i);
        endpoints[i] = (struct znode_endpoint){str_of(ls->name), str_of(ls->advertised_host), ls->advertised_port,
                                               (int16_t)ls->protocol};
    }
    struct config *cfg = config_live_ref(br->config);
    const struct znode_broker node = {
        .endpoints = endpoints,
        .endpoint_count = count,
        .rack = arena_str(&st->arena, str_of(config_str(cfg, CFG_BROKER_RACK))),
        .jmx_port = -1,
        .timestamp_ms = clock_wall_ms(br->clock),
    };
    config_unref(cfg);
    coord_create(br->coord, znode_broker_path(&st->arena, br->id), znode_broker_encode(&st->arena, &node),
                 COORD_EPHEMERAL, (struct coord_to){broker_home(br), on_registered, st});
}

/* ---- The controller */

static void on_first_metadata(void *arg)
{
    step_done(arg);
}

/* Done when it is in office, has told us of the cluster, and we have taken our roles. */
static void start_controller(struct start *st)
{
    struct broker *br = &st->run->br;
    br->producer_ids = producer_ids_new(br);
    br->to_controller = to_controller_new(br);
    br->control = control_new(br);
    following_open(br);
    control_on_first(br->control, on_first_metadata, st);
    cluster_channel_open(&br->cluster_channel, st->run);
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
    LOG_INFO("started", "broker=%d cluster=%s epoch=%" PRId64 " ms=%" PRId64, br->id, br->cluster_id, br->epoch,
             took_us / 1000);
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
    arena_init(&st->arena, SIZE_MAX);
    steps[0].run(st);
}

void run_start(struct broker_run *run)
{
    run->start_msg.run = start_first;
    loop_post(broker_home(&run->br), &run->start_msg);
}
