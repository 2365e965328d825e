/* world.c: a broker's log directory coming up, going down, and losing its power. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"
#include "sim.h"

enum {
    RECOVERY_CRASHES_MAX = 3,  /* one after the other */
    RECOVERY_CHANGES_MAX = 40, /* calls after which the power goes off during a recovery */
    COPIES_MAX = 4,            /* outcomes of one loss of power that are looked at */
    BROKER_EPOCH = 7,
};
#define T0_MS (INT64_C(1700000000) * 1000)

/* ---- Chance, time, words */

uint64_t draw(struct world *w, uint64_t below)
{
    ASSERT(below > 0);
    uint64_t z = (w->random += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint64_t)(((unsigned __int128)(z ^ (z >> 31)) * below) >> 64);
}

static void world_fill(struct rng *r, void *out, size_t size)
{
    struct world *w = CONTAINER_OF(r, struct world, rng);
    for (size_t i = 0; i < size; i++) ((uint8_t *)out)[i] = (uint8_t)draw(w, 256);
}

static int64_t world_mono_us(struct clock *c)
{
    return CONTAINER_OF(c, struct world, clock)->now_ms * 1000;
}

static int64_t world_wall_ms(struct clock *c)
{
    return CONTAINER_OF(c, struct world, clock)->now_ms;
}

void say(struct world *w, const char *fmt, ...)
{
    if (!w->verbose) return;
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, w->config.partitions > 1 ? "%4d/%d " : "%4d ", w->step, w->part);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

void wrong(struct world *w, const char *fmt, ...)
{
    if (w->failed) return; /* the first one counts */
    w->failed = true;
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "seed %" PRIu64 ", step %d: ", w->seed, w->step);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    if (w->verbose && fs_sim_has_power(w->disk)) tell_files(w);
}

/* ---- Faults */

void world_faults_on(struct world *w)
{
    fs_sim_set_fault(w->disk, &w->fault);
}

void world_faults_off(struct world *w)
{
    const struct fs_sim_fault none = {.calls = 0};
    int64_t count = fs_sim_fault_count(w->disk);
    fs_sim_get_fault(w->disk, &w->fault);
    fs_sim_set_fault(w->disk, &none);
    w->faults_seen += count;
    if (count > 0 && (w->fault.calls & FS_SIM_SYNC)) w->sync_failed = true;
}

/* ---- Up */

static void settings_of(void *arg, struct str topic, struct topic_settings *out)
{
    (void)topic;
    const struct world *w = arg;
    *out = (struct topic_settings){.log = w->config.log, .max_message_bytes = INT32_MAX, .keep_codec = true};
}

static void find_partitions(struct world *w)
{
    for (int i = 0; i < w->config.partitions; i++) w->parts[i].p = NULL;
    for (size_t i = 0; i < w->r->all_count; i++) {
        struct partition *p = w->r->all[i];
        if (!atomic_load(&p->opened)) continue; /* the broker says why, and goes on without it */
        if (strcmp(p->topic, SIM_TOPIC) == 0 && p->index < w->config.partitions) w->parts[p->index].p = p;
    }
}

static enum err broker_up(struct world *w)
{
    static const char *const dirs[] = {SIM_DIR};
    struct replicas_options opt = {
        .fs = fs_sim_fs(w->disk),
        .clock = &w->clock,
        .rng = &w->rng,
        .home = w->loop,
        .grace = w->grace,
        .workers = w->workers,
        .dirs = dirs,
        .dir_count = 1,
        .reserve_bytes = 0,
        .settings_of = settings_of,
        .settings_arg = w,
    };
    struct fault f = {.code = OK};
    enum err e = replicas_open(&w->r, &opt, &f);
    if (e) {
        w->r = NULL;
    } else {
        e = replicas_identify(w->r, 0, "simulated", &f);
        if (!e) e = replicas_load(w->r, 0, &f); /* no threads: in order, right here */
    }
    if (e) say(w, "up: %s \"%s\"", err_name(e), f.text);
    if (!e) find_partitions(w);
    for (size_t i = 0; !e && i < w->r->all_count; i++)
        if (!atomic_load(&w->r->all[i]->opened)) e = ERR_INVALID;
    return e;
}

static void broker_down(struct world *w, bool clean)
{
    loop_turn(w->loop, 0); /* messages that it has sent to itself */
    replicas_close(w->r, clean, BROKER_EPOCH);
    w->r = NULL;
    for (int i = 0; i < w->config.partitions; i++) w->parts[i].p = NULL;
}

static void broker_drop(struct world *w)
{
    broker_down(w, false);
}

/* The leader or follower of a partition that has just come up. */
static void take_role(struct world *w, struct sim_partition *sp)
{
    static const int32_t ids[] = {0, 1};
    const struct partition_role role = {.leads = true,
                                        .leader_epoch = sp->model.epoch,
                                        .replicas = ids,
                                        .replica_count = w->config.isr_count,
                                        .isr = ids,
                                        .isr_count = w->config.isr_count};
    partition_set_role(sp->p, &role);
}

/* Makes the partition, as a LeaderAndIsr does. */
static void make_partition(struct world *w, int index)
{
    struct sim_partition *sp = &w->parts[index];
    struct fault f = {.code = OK};
    struct partition *p = partition_new(SIM_TOPIC, index, &w->r->dirs[0], &w->r->services);
    const struct log_origin fresh = {.cleaned = -1, .topic_id = {.bytes = {1, 2, 3}}};
    sp->model.exists = true;
    enum err e = replicas_open_log(w->r, p, &fresh, NULL, &f);
    say(w, "make partition %d: %s", index, err_name(e));
    if (!e) {
        replicas_add(w->r, p);
        sp->p = p;
        take_role(w, sp);
    }
    partition_unref(p);
}

/* ---- After a stop */

static bool promised_anything(const struct model *m)
{
    return m->durable > 0 || m->start_promised > 0;
}

static void check_partition(struct world *w, int index, const int64_t *end_min)
{
    struct sim_partition *sp = &w->parts[index];
    w->part = index;
    if (sp->p && !atomic_load(&sp->p->online)) {
        wrong(w, "partition %d came up offline", index);
    } else if (sp->p) {
        check_recovered(w, sp, end_min[index]);
        if (!w->failed) check_state(w, sp);
        if (!w->failed) check_reads(w, sp);
    } else if (sp->model.exists && (promised_anything(&sp->model) || end_min[index] > 0)) {
        wrong(w, "partition %d is gone, its records up to %" PRId64 " were promised", index, end_min[index]);
    }
}

/* Adopts what survived; and what must be, is. */
static void settle(struct world *w, const int64_t *end_min)
{
    for (int i = 0; i < w->config.partitions && !w->failed; i++) {
        check_partition(w, i, end_min);
        if (w->failed) return;
        struct sim_partition *sp = &w->parts[i];
        if (sp->p) {
            take_role(w, sp);
        } else {
            model_fini(&sp->model);
            make_partition(w, i);
        }
    }
}

/* Brings the broker up, with faults and losses of power on the way at first.  True: there was a loss of power. */
static bool up_at_last(struct world *w, bool may_fail)
{
    bool lost = false;
    for (int i = 0;; i++) {
        bool fragile = may_fail && i < RECOVERY_CRASHES_MAX;
        if (fragile && one_in(w, 3)) fs_sim_power_off_after(w->disk, (int64_t)draw(w, RECOVERY_CHANGES_MAX));
        if (fragile) world_faults_on(w);
        enum err e = broker_up(w);
        world_faults_off(w);
        bool power = fs_sim_has_power(w->disk);
        if (power) fs_sim_power_off_after(w->disk, INT64_MAX);
        if (!e && power) return lost;
        if (power && !fragile) {
            wrong(w, "the broker does not come up: %s", err_name(e));
            return lost;
        }
        broker_drop(w);
        if (power && !w->sync_failed) continue;
        lost = true;
        w->sync_failed = false;
        struct fs_sim *after = fs_sim_after_crash(w->disk, draw(w, UINT64_MAX), FS_SIM_ANYTHING);
        say(w, "the power goes off during recovery");
        fs_sim_free(w->disk);
        w->disk = after;
        w->crashes++;
    }
}

/* What is there when nothing but the process died: all that was published. */
static void ends_now(const struct world *w, int64_t *out)
{
    for (int i = 0; i < w->config.partitions; i++) out[i] = model_sure_end(&w->parts[i].model);
}

static void ends_promised(const struct world *w, int64_t *out)
{
    for (int i = 0; i < w->config.partitions; i++) out[i] = w->parts[i].model.durable;
}

static void come_back(struct world *w, const int64_t *end_min)
{
    int64_t end[PARTITIONS_MAX] = {0};
    memcpy(end, end_min, sizeof end);
    if (up_at_last(w, true)) ends_promised(w, end); /* what the process left is no longer sure */
    if (!w->failed) settle(w, end);
}

/* The process ends and starts again; the page cache stays.  After a sync that failed that would be no test: what the
 * cache tells is not on the disk, and no program can know. */
void world_kill(struct world *w)
{
    if (w->sync_failed) {
        world_lose_power(w);
        return;
    }
    say(w, "kill");
    broker_drop(w);
    int64_t end[PARTITIONS_MAX] = {0};
    ends_now(w, end);
    come_back(w, end);
}

/* One outcome of the loss, on a disk of its own. */
static void try_outcome(struct world *w, struct fs_sim *disk, bool keep)
{
    struct fs_sim *before = w->disk;
    int64_t end[PARTITIONS_MAX] = {0};
    ends_promised(w, end);
    w->disk = disk;
    w->crashes++;
    if (keep) {
        fs_sim_free(before);
        come_back(w, end);
        return;
    }
    enum err e = broker_up(w);
    if (e) wrong(w, "the broker does not come up: %s", err_name(e));
    for (int i = 0; i < w->config.partitions && !w->failed; i++) {
        struct model kept = w->parts[i].model;
        /* What is checked tells its model what has survived; the true one waits for the outcome that stays. */
        model_copy(&w->parts[i].model, &kept);
        check_partition(w, i, end);
        model_fini(&w->parts[i].model);
        w->parts[i].model = kept;
    }
    broker_drop(w);
    fs_sim_free(disk);
    w->disk = before;
}

void world_lose_power(struct world *w)
{
    broker_drop(w);
    w->sync_failed = false;
    int copies = 1 + (int)draw(w, COPIES_MAX);
    say(w, "the power goes off, %d outcomes", copies);
    for (int i = 0; i < copies && !w->failed; i++) {
        uint64_t how = draw(w, 10);
        enum fs_sim_survival survival = how == 0 ? FS_SIM_NOTHING : how == 1 ? FS_SIM_EVERYTHING : FS_SIM_ANYTHING;
        try_outcome(w, fs_sim_after_crash(w->disk, draw(w, UINT64_MAX), survival), i + 1 == copies);
    }
}

static bool has_clean_mark(struct world *w)
{
    struct fs_stat st;
    return fs_stat(fs_sim_fs(w->disk), SIM_DIR "/" CLEAN_SHUTDOWN, &st) == OK;
}

/* A clean stop promises everything; after it the power may go off as well. */
void world_stop_cleanly(struct world *w)
{
    if (w->config.power_one_in && one_in(w, 4)) fs_sim_power_off_after(w->disk, (int64_t)draw(w, RECOVERY_CHANGES_MAX));
    world_faults_on(w);
    broker_down(w, true);
    world_faults_off(w);
    bool power = fs_sim_has_power(w->disk), clean = power && has_clean_mark(w);
    say(w, "stop: %s", !power ? "the power goes off" : clean ? "clean" : "not clean");
    fs_sim_power_off_after(w->disk, power ? INT64_MAX : 0);
    for (int i = 0; i < w->config.partitions && clean; i++) {
        struct model *m = &w->parts[i].model;
        model_promise(m, m->end);
        m->start_promised = m->start;
        check_files(w, &w->parts[i], i);
    }
    int64_t end[PARTITIONS_MAX] = {0};
    if (!power || w->sync_failed || (clean && one_in(w, 2))) {
        world_lose_power(w);
    } else {
        ends_now(w, end);
        come_back(w, end);
    }
}

/* ---- A run */

static void choose_faults(struct world *w, const struct run_options *opt)
{
    static const struct {
        unsigned calls;
        enum err e;
    } kinds[] = {
        {FS_SIM_ALL, ERR_IO},
        {FS_SIM_SYNC, ERR_IO},
        {FS_SIM_WRITE | FS_SIM_OPEN | FS_SIM_MKDIR | FS_SIM_RENAME | FS_SIM_TRUNCATE, ERR_FULL},
        {FS_SIM_OPEN | FS_SIM_LIST, ERR_TOO_MANY},
    };
    uint64_t kind = draw(w, 2 * ARRAY_COUNT(kinds));
    unsigned often = 20 + (unsigned)draw(w, 400);
    if (opt->single)
        w->fault = (struct fs_sim_fault){.calls = opt->single, .after = opt->fail_after, .times = 1, .e = opt->error};
    else if (kind < ARRAY_COUNT(kinds))
        w->fault =
            (struct fs_sim_fault){.calls = kinds[kind].calls, .times = INT64_MAX, .one_in = often, .e = kinds[kind].e};
}

static void choose_config(struct world *w, const struct run_options *opt)
{
    struct sim_config *c = &w->config;
    c->journal = one_in(w, 2);
    c->gaps = one_in(w, 4);
    c->cleans = c->gaps && one_in(w, 2);
    c->partitions = one_in(w, 4) ? 2 : 1;
    c->isr_count = one_in(w, 4) ? 2 : 1;
    c->flush_messages = one_in(w, 3) ? 1 + (int64_t)draw(w, 20) : -1;
    c->flush_group = one_in(w, 5);
    c->power_one_in = 6 + (int)draw(w, 20);
    c->log = (struct plog_config){
        .segment_bytes = 700 + (int64_t)draw(w, c->cleans ? 1500 : 8000), /* only closed segments are cleaned */
        .segment_ms = one_in(w, 4) ? 2000 : INT64_C(7) * 24 * 3600 * 1000,
        .segment_index_bytes = one_in(w, 3) ? 120 : 10000,
        .index_interval_bytes = (int64_t)draw(w, 900),
        .retention_ms = -1,
        .retention_bytes = -1,
        .cleanup_delete = true,
        .cleanup_compact = c->gaps,
        .min_cleanable_dirty_ratio = 0,
        .max_compaction_lag_ms = INT64_MAX,
        .delete_retention_ms = one_in(w, 2) ? 1000 : INT64_C(24) * 3600 * 1000,
        .log_append_time = one_in(w, 4),
        .flush_messages = c->flush_messages,
        .flush_group = c->flush_group,
        .flush_ms = -1,
        .file_delete_delay_ms = one_in(w, 2) ? 0 : 500,
        .producer_expiration_ms = INT64_C(30) * 24 * 3600 * 1000,
    };
    choose_faults(w, opt);
}

static void world_init(struct world *w, const struct run_options *opt)
{
    *w = (struct world){.seed = opt->seed, .random = opt->seed, .verbose = opt->verbose, .loop = opt->loop};
    w->rng.fill = world_fill;
    w->clock = (struct clock){.mono_us = world_mono_us, .wall_ms = world_wall_ms};
    w->now_ms = T0_MS;
    choose_config(w, opt);
    for (int i = 0; i < PARTITIONS_MAX; i++) model_init(&w->parts[i].model);
    w->pool = buf_pool_new(1 << 20);
    w->grace = grace_new(NULL, 0);
    enum err e = workers_new(&w->workers, "sim", 0, NULL);
    ASSERT(!e);
    w->disk = fs_sim_new(&(struct fs_sim_options){.seed = draw(w, UINT64_MAX),
                                                  .clock = &w->clock,
                                                  .journal = w->config.journal,
                                                  .write_back = 1 + (unsigned)draw(w, 30)});
}

static void world_fini(struct world *w)
{
    if (w->r) broker_drop(w);
    for (int i = 0; i < PARTITIONS_MAX; i++) model_fini(&w->parts[i].model);
    fs_sim_free(w->disk);
    grace_free(w->grace);
    workers_free(w->workers);
    buf_pool_free(w->pool);
}

struct run_result world_run(const struct run_options *opt)
{
    struct world w;
    world_init(&w, opt);
    const struct sim_config *c = &w.config;
    say(&w, "%s, segments of %" PRId64 " bytes, flush.messages %" PRId64 ", %d partitions, faults %u %s",
        c->journal ? "journal" : "no journal", c->log.segment_bytes, c->flush_messages, c->partitions, w.fault.calls,
        err_name(w.fault.e));
    enum err e = broker_up(&w);
    if (e) wrong(&w, "an empty directory does not come up: %s", err_name(e));
    for (int i = 0; i < c->partitions && !e; i++) make_partition(&w, i);
    for (w.step = 1; w.step <= opt->steps && !w.failed; w.step++) step_any(&w);
    if (!w.failed) world_lose_power(&w);
    if (!w.failed) world_stop_cleanly(&w);
    struct run_result result = {w.failed, w.crashes, w.faults_seen};
    world_fini(&w);
    return result;
}
