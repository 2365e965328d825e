/* broker.c: what a broker consists of, made before and taken apart after its loops run. */
#include "broker/broker.h"

#include <signal.h>
#include <stdio.h>

#include "base/mem.h"
#include "broker/api_table.h"
#include "broker/broker_internal.h"
#include "broker/cluster_channel.h"
#include "broker/control.h"
#include "broker/dynamic_config.h"
#include "broker/fetch_sessions.h"
#include "broker/following.h"
#include "broker/groups.h"
#include "broker/leaving.h"
#include "broker/leading.h"
#include "broker/log_dirs.h"
#include "broker/producer_ids.h"
#include "broker/registration.h"
#include "broker/server.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "os/process.h"
#include "os/thread.h"
#include "replica/fetchers.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { BUFS_IDLE_BYTES_MAX = 32 << 20 };

/* ---- Limits */

void broker_take_request_bytes(struct broker *br, size_t bytes)
{
    atomic_fetch_add_explicit(&br->request_bytes, (int64_t)bytes, memory_order_relaxed);
}

bool broker_request_bytes_full(const struct broker *br)
{
    int64_t max = atomic_load_explicit(&br->request_bytes_max, memory_order_relaxed);
    return max > 0 && atomic_load(&br->request_bytes) >= max;
}

void broker_release_request_bytes(struct broker *br, size_t bytes)
{
    int64_t max = atomic_load_explicit(&br->request_bytes_max, memory_order_relaxed);
    int64_t before = atomic_fetch_sub(&br->request_bytes, (int64_t)bytes);
    if (max <= 0 || before < max || before - (int64_t)bytes >= max) return;
    for (unsigned i = 0; i < br->loop_count; i++) conn_set_resume(&br->sets[i]);
}

void broker_connection_closed(struct broker *br, const struct listener_state *listener, const char *host)
{
    (void)br;
    server_connection_closed(listener->server, host);
}

const struct config *broker_config(struct broker *br, const struct loop *l)
{
    return config_reader_get(&br->config_readers[loop_index(l)]);
}

static void take_limits(struct broker *br, const struct config *cfg)
{
    int64_t idle_ms = config_i64(cfg, CFG_CONNECTIONS_MAX_IDLE_MS);
    atomic_store(&br->request_bytes_max, config_i64(cfg, CFG_QUEUED_MAX_REQUEST_BYTES));
    atomic_store(&br->request_size_max, (int32_t)config_i64(cfg, CFG_SOCKET_REQUEST_MAX_BYTES));
    atomic_store(&br->idle_us_max, idle_ms < 0 || idle_ms > INT64_MAX / 1000 ? -1 : idle_ms * 1000);
}

static void take_rates(struct broker *br, const struct config *cfg)
{
    replicas_set_move_rate(br->replicas, config_i64(cfg, CFG_REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND));
    replicas_set_leader_rate(br->replicas, config_i64(cfg, CFG_LEADER_REPLICATION_THROTTLED_RATE));
}

static struct cleaner_options cleaner_options_of(const struct config *cfg)
{
    return (struct cleaner_options){
        .threads = (unsigned)config_i64(cfg, CFG_LOG_CLEANER_THREADS),
        .dedupe_bytes = config_i64(cfg, CFG_LOG_CLEANER_DEDUPE_BUFFER_SIZE),
        .load_factor = config_f64(cfg, CFG_LOG_CLEANER_IO_BUFFER_LOAD_FACTOR),
        .io_bytes = config_i64(cfg, CFG_LOG_CLEANER_IO_BUFFER_SIZE),
        .io_bytes_per_second = config_f64(cfg, CFG_LOG_CLEANER_IO_MAX_BYTES_PER_SECOND),
        .backoff_ms = config_i64(cfg, CFG_LOG_CLEANER_BACKOFF_MS),
    };
}

void broker_config_changed(struct broker *br)
{
    struct config *cfg = config_live_ref(br->config);
    const struct cleaner_options cleaner = cleaner_options_of(cfg);
    take_limits(br, cfg);
    replicas_configure_cleaner(br->replicas, &cleaner);
    server_reconfigure(br->server, cfg);
    following_configure(br, cfg);
    if (br->replicas) take_rates(br, cfg);
    config_unref(cfg);
}

/* ---- Making */

static enum err make_loop(struct broker_run *run, unsigned i, struct fault *f)
{
    struct broker *br = &run->br;
    if (!run->env.turned) return loop_new(&br->loops[i], br->clock, i, f);
    br->loops[i] = loop_new_turned(br->clock, i);
    return OK;
}

static enum err make_loops(struct broker_run *run, const struct config *cfg, struct fault *f)
{
    struct broker *br = &run->br;
    br->loop_count = (unsigned)config_i64(cfg, CFG_NUM_IO_THREADS);
    br->loops = mem_zalloc(br->loop_count, sizeof(struct loop *));
    br->sets = mem_zalloc(br->loop_count, sizeof *br->sets);
    br->config_readers = mem_zalloc(br->loop_count, sizeof *br->config_readers);
    for (unsigned i = 0; i < br->loop_count; i++) {
        enum err e = make_loop(run, i, f);
        if (e) return e;
        conn_set_init(&br->sets[i], br, br->loops[i]);
        config_reader_init(&br->config_readers[i], br->config);
    }
    br->grace = grace_new(br->loops, br->loop_count);
    if (!run->env.turned)
        return workers_new(&br->workers, "worker", (unsigned)config_i64(cfg, CFG_BACKGROUND_THREADS), f);
    br->workers = workers_new_given(run->env.take_job, run->env.arg);
    return OK;
}

static void broker_topic_settings(void *arg, struct str topic, struct topic_settings *out)
{
    struct broker *br = arg;
    dynamic_config_topic_settings(br->dynamic_config, topic, out);
}

static void broker_topic_throttles(void *arg, struct str topic, struct topic_throttles *out)
{
    struct broker *br = arg;
    dynamic_config_topic_throttles(br->dynamic_config, topic, out);
}

static enum err open_replicas(struct broker_run *run, const struct config *cfg, struct fault *f)
{
    struct broker *br = &run->br;
    struct config_list dirs = config_log_dirs(cfg);
    br->leading = leading_new(br);
    const struct replicas_options opt = {
        .fs = br->fs,
        .clock = br->clock,
        .rng = br->rng,
        .home = broker_home(br),
        .grace = br->grace,
        .workers = br->workers,
        /* A quarter is left for connections and what is opened for a moment. */
        .open_files_max = (size_t)(br->file_limit - br->file_limit / 4),
        /* The other half is for those who wait for a read. */
        .flush_jobs_max = (unsigned)config_i64(cfg, CFG_BACKGROUND_THREADS) / 2,
        .dirs = dirs.items,
        .dir_count = dirs.count,
        .retention_check_ms = config_i64(cfg, CFG_LOG_RETENTION_CHECK_INTERVAL_MS),
        .flush_check_ms = config_i64(cfg, CFG_LOG_FLUSH_SCHEDULER_INTERVAL_MS),
        .checkpoint_ms = config_i64(cfg, CFG_LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS),
        .start_checkpoint_ms = config_i64(cfg, CFG_LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS),
        .watermark_checkpoint_ms = config_i64(cfg, CFG_REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS),
        .clean = config_bool(cfg, CFG_LOG_CLEANER_ENABLE),
        .cleaner = cleaner_options_of(cfg),
        .reserve_bytes = config_i64(cfg, CFG_LOG_DIR_RESERVE_BYTES),
        .resume_bytes = config_i64(cfg, CFG_LOG_DIR_RESUME_BYTES),
        .moves_max = !config_is_null(cfg, CFG_NUM_REPLICA_ALTER_LOG_DIRS_THREADS)
                         ? (size_t)MAX(config_i64(cfg, CFG_NUM_REPLICA_ALTER_LOG_DIRS_THREADS), 0)
                         : 0,
        .settings_of = broker_topic_settings,
        .throttles_of = broker_topic_throttles,
        .settings_arg = br,
        .dir_failed = log_dir_failed,
        .ask_again = log_dirs_ask_again,
        .dir_failed_arg = run,
        .following = broker_following(br),
        .leading = leading_options(br->leading, cfg),
        .role_changed = groups_role_changed,
        .role_changed_arg = br->groups,
    };
    enum err e = replicas_open(&br->replicas, &opt, f);
    if (!e) take_rates(br, cfg);
    return e;
}

/* Everything that can fail without having changed anything comes first: addresses, then directories. */
static enum err make_parts(struct broker_run *run, const struct config *cfg, struct fault *f)
{
    struct broker *br = &run->br;
    br->bufs = buf_pool_new(BUFS_IDLE_BYTES_MAX);
    take_limits(br, cfg);
    enum err e = make_loops(run, cfg, f);
    if (e) return e;
    const size_t sessions = (size_t)config_i64(cfg, CFG_MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS);
    br->fetch_sessions = fetch_sessions_new(sessions, br->rng);
    br->metadata = metadata_new(br->grace, broker_home(br));
    br->groups = groups_new(br);
    const struct metadata_listener listener = {br->groups, groups_topic_changed, groups_topic_removed};
    metadata_listen(br->metadata, &listener);
    e = server_open(&br->server, br, cfg, f);
    if (e) return e;
    return open_replicas(run, cfg, f);
}

/* ---- Running */

static void loop_main(void *arg)
{
    loop_run(arg);
}

static enum err start_threads(struct broker_run *run, struct fault *f)
{
    struct broker *br = &run->br;
    run->threads = mem_zalloc(br->loop_count, sizeof *run->threads);
    for (unsigned i = 1; i < br->loop_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "loop-%u", i);
        enum err e = thread_start(&run->threads[i], name, loop_main, br->loops[i], f);
        if (e) return e;
        run->threads_started = i;
    }
    return OK;
}

static void join_threads(struct broker_run *run)
{
    for (unsigned i = 1; i <= run->threads_started; i++) {
        loop_stop(run->br.loops[i]);
        thread_join(run->threads[i]);
    }
    mem_free(run->threads);
}

void broker_stop(struct broker_run *run)
{
    if (run->stopping) return;
    LOG_INFO("stopping", "reason=\"signal\"");
    run_stop(run);
}

static void on_stop_signal(void *arg)
{
    broker_stop(arg);
}

static void on_hangup(void *arg)
{
    (void)arg;
    struct fault f = {0};
    if (log_reopen(&f)) LOG_ERROR("log_reopen_failed", "reason=\"%s\"", f.text);
}

/* ---- Taking apart */

/* What is still in a mailbox after the loops have ended (a job's last word) is let run. */
static void drain_mailboxes(struct broker *br)
{
    enum { ROUNDS = 8 };
    for (int round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < br->loop_count; i++)
            if (br->loops[i]) loop_turn(br->loops[i], 0);
}

static void free_parts(struct broker_run *run)
{
    struct broker *br = &run->br;
    join_threads(run);
    if (br->workers) workers_free(br->workers);
    /* After the workers, of whom one may have been loading, and before anything turns a loop once more: from here on
     * nothing may be submitted. */
    if (br->replicas) replicas_stop_upkeep(br->replicas);
    drain_mailboxes(br);
    run_start_abandon(run);
    fetchers_free(br->fetchers);
    groups_free(br->groups); /* they hold partitions */
    replicas_close(br->replicas, run->started, atomic_load(&br->epoch));
    if (br->controller) controller_free(br->controller);
    cluster_channel_free(br->cluster_channel);
    control_free(br->control);
    producer_ids_free(br->producer_ids);
    to_controller_free(br->to_controller);
    leading_free(br->leading);
    dynamic_config_free(br->dynamic_config);
    registration_free(run->registration);
    leaving_free(run->leaving);
    server_free(br->server);
    fetch_sessions_free(br->fetch_sessions);
    grace_free(br->grace);
    metadata_free(br->metadata);
    for (unsigned i = 0; i < br->loop_count; i++) {
        if (!br->loops[i]) continue;
        request_cache_free(&br->sets[i].request_cache);
        config_reader_fini(&br->config_readers[i]);
        if (i == 0) signals_close(run->signals);
        loop_free(br->loops[i]);
    }
    mem_free(br->loops);
    mem_free(br->sets);
    mem_free(br->config_readers);
    buf_pool_free(br->bufs);
    config_live_free(br->config);
}

/* ---- Life */

enum err broker_new(struct broker_run **out, const struct broker_env *env, struct config *config, struct fault *f)
{
    struct broker_run *run = mem_zalloc(1, sizeof *run);
    struct broker *br = &run->br;
    run->env = *env;
    br->fs = env->fs;
    br->net = env->net;
    br->clock = env->clock;
    br->rng = env->rng;
    br->file_limit = env->file_limit;
    br->config = config_live_new(config);
    api_table_init();

    struct config *cfg = config_live_ref(br->config);
    enum err e = make_parts(run, cfg, f);
    config_unref(cfg);
    if (e) {
        free_parts(run);
        mem_free(run);
        return e;
    }
    *out = run;
    return OK;
}

struct broker *broker_of(struct broker_run *run)
{
    return &run->br;
}

void broker_start(struct broker_run *run)
{
    run_start(run);
}

bool broker_is_started(const struct broker_run *run)
{
    return run->started;
}

bool broker_has_ended(const struct broker_run *run)
{
    return run->ended;
}

enum err broker_free(struct broker_run *run, struct fault *f)
{
    enum err e = run->err;
    bool started = run->started;
    if (e && f) *f = run->fault;
    free_parts(run);
    if (started) LOG_INFO("stopped", "error=%s", err_name(e));
    mem_free(run);
    return e;
}

enum err broker_run(const struct broker_env *env, struct config *config, struct fault *f)
{
    struct broker_run *run;
    struct broker_env own = *env;
    if (process_raise_file_limit(&own.file_limit)) LOG_WARN("file_limit", "reason=\"cannot be raised\"");
    enum err e = broker_new(&run, &own, config, f);
    if (e) return e;
    const struct signal_handler handlers[] = {
        {SIGTERM, on_stop_signal, run},
        {SIGINT, on_stop_signal, run},
        {SIGHUP, on_hangup, run},
    };
    run->err = signals_open(&run->signals, broker_home(&run->br), handlers, ARRAY_COUNT(handlers), &run->fault);
    if (!run->err) run->err = start_threads(run, &run->fault);
    if (!run->err) {
        broker_start(run);
        loop_run(broker_home(&run->br));
    }
    return broker_free(run, f);
}
