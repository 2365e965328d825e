/* replica_world.h: a broker's replicas without the broker, on a simulated file system with two log directories, one
 * thread and a clock that the test turns. */
#ifndef TESTS_REPLICA_WORLD_H
#define TESTS_REPLICA_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/fs_sim.h"
#include "os/workers.h"
#include "replica/replicas.h"

#define UNUSED __attribute__((unused))

enum { BROKER = 0, RECORD_BYTES = 300, SEGMENT_BYTES = 4096, PARTITIONS_MAX = 8 };

/* What the next start is given, for tests that care. */
static UNUSED struct leaders_options world_leading;
static UNUSED struct following world_following;

/* The id of "t", which is another one when the topic has been made anew. */
static UNUSED struct uuid world_topic_id = {{1, 2, 3}};

static const char *const DIRS[] = {"/d0", "/d1"};

/* ---- A broker's replicas without the broker */

struct world {
    struct fs_sim *sim;
    struct clock clock;
    _Atomic int64_t now_us;
    struct rng rng;
    uint64_t random;
    struct loop *loop;
    struct workers *workers;
    struct grace *grace;
    struct replicas *r;
    bool applied;
    int16_t apply_errors[PARTITIONS_MAX];
    int dirs_failed;
    struct fault fault;
    bool hold_jobs; /* what is submitted waits for release_jobs() */
    struct job *held[64];
    int held_count;
};

/* Workers that have done a job at once, unless they are held. */
static UNUSED void take_job(void *arg, struct job *job)
{
    struct world *w = arg;
    if (!w->hold_jobs) {
        job_run(job);
        return;
    }
    assert_true(w->held_count < 64);
    w->held[w->held_count++] = job;
}

static UNUSED void release_jobs(struct world *w)
{
    w->hold_jobs = false;
    for (int i = 0; i < w->held_count; i++) job_run(w->held[i]);
    w->held_count = 0;
}

static UNUSED int64_t world_mono(struct clock *c)
{
    return CONTAINER_OF(c, struct world, clock)->now_us;
}

static UNUSED int64_t world_wall(struct clock *c)
{
    return CONTAINER_OF(c, struct world, clock)->now_us / 1000 + 1000000;
}

static UNUSED void world_random(struct rng *r, void *out, size_t size)
{
    struct world *w = CONTAINER_OF(r, struct world, rng);
    for (size_t i = 0; i < size; i++) {
        w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407U;
        ((uint8_t *)out)[i] = (uint8_t)(w->random >> 33);
    }
}

static UNUSED void settings_of(void *arg, struct str topic, struct topic_settings *out)
{
    (void)arg, (void)topic;
    *out = (struct topic_settings){
        .log = {.segment_bytes = SEGMENT_BYTES,
                .segment_ms = -1,
                .segment_index_bytes = 1 << 20,
                .index_interval_bytes = 1024,
                .retention_ms = -1,
                .retention_bytes = -1,
                .cleanup_delete = true,
                .flush_messages = -1,
                .flush_ms = -1,
                .file_delete_delay_ms = 0,
                .producer_expiration_ms = 86400000},
        .max_message_bytes = 1 << 20,
        .min_insync_replicas = 1,
        .keep_codec = true,
    };
}

static UNUSED void dir_failed(void *arg, size_t dir)
{
    struct world *w = arg;
    (void)dir;
    w->dirs_failed++;
}

static UNUSED void turns(struct world *w, int count)
{
    for (int i = 0; i < count; i++) {
        loop_turn(w->loop, 0);
        w->now_us += 10 * 1000;
    }
}

static UNUSED void world_applied(void *arg, const struct leader_and_isr_response *response)
{
    struct world *w = arg;
    w->applied = true;
    for (int32_t i = 0; i < response->topics[0].partition_errors_count; i++)
        w->apply_errors[i] = response->topics[0].partition_errors[i].error_code;
}

/* What the controller says of partitions of "t", the first `count`. */
static UNUSED void apply_states(struct world *w, struct leader_and_isr_request_leader_and_isr_partition_state *ps,
                                int32_t count)
{
    struct leader_and_isr_request_leader_and_isr_topic_state ts =
        leader_and_isr_request_leader_and_isr_topic_state_default;
    ts.topic_name = STR("t");
    ts.topic_id = world_topic_id;
    ts.partition_states = ps;
    ts.partition_states_count = count;
    struct leader_and_isr_request rq = leader_and_isr_request_default;
    rq.topic_states = &ts;
    rq.topic_states_count = 1;
    w->applied = false;
    replicas_apply(w->r, BROKER, &rq, world_applied, w);
    for (int i = 0; i < 100 && !w->applied; i++) turns(w, 1);
    assert_true(w->applied);
}

/* The controller's word that the first partitions of "t" are led here. */
static UNUSED void apply(struct world *w, int32_t count, bool is_new)
{
    int32_t self = BROKER;
    struct leader_and_isr_request_leader_and_isr_partition_state ps[PARTITIONS_MAX];
    for (int32_t i = 0; i < count; i++) {
        ps[i] = leader_and_isr_request_leader_and_isr_partition_state_default;
        ps[i].partition_index = i;
        ps[i].leader = BROKER;
        ps[i].isr = ps[i].replicas = &self;
        ps[i].isr_count = ps[i].replicas_count = 1;
        ps[i].is_new = is_new;
    }
    apply_states(w, ps, count);
}

/* On two directories of a file system.  Returns what the start says. */
static UNUSED enum err world_start_in(struct world *w, struct fs *fs, const char *const dirs[2])
{
    *w = (struct world){.clock = {world_mono, world_wall}, .rng = {world_random}, .random = 7};
    assert_int_equal(loop_new(&w->loop, &w->clock, 0, NULL), OK);
    w->workers = workers_new_given(take_job, w);
    w->grace = grace_new(&w->loop, 1);
    turns(w, 1);
    const struct replicas_options opt = {
        .fs = fs,
        .clock = &w->clock,
        .rng = &w->rng,
        .home = w->loop,
        .grace = w->grace,
        .workers = w->workers,
        .flush_jobs_max = 1,
        .dirs = dirs,
        .dir_count = ARRAY_COUNT(DIRS),
        .retention_check_ms = 100,
        .flush_check_ms = INT64_MAX,
        .checkpoint_ms = 100,
        .start_checkpoint_ms = 100,
        .watermark_checkpoint_ms = 100,
        .reserve_bytes = 0,
        .resume_bytes = -1,
        .settings_of = settings_of,
        .dir_failed = dir_failed,
        .dir_failed_arg = w,
        .leading = world_leading,
        .following = world_following,
    };
    enum err e = replicas_open(&w->r, &opt, &w->fault);
    if (!e) e = replicas_identify(w->r, BROKER, "cluster", &w->fault);
    if (!e) e = replicas_load(w->r, 1, &w->fault);
    if (!e) e = replicas_open_rest(w->r, &w->fault);
    turns(w, 3);
    return e;
}

/* Takes over the file system. */
static UNUSED enum err world_start(struct world *w, struct fs_sim *sim)
{
    enum err e = world_start_in(w, fs_sim_fs(sim), DIRS);
    w->sim = sim;
    return e;
}

/* As a process that is killed, or one that stops. */
static UNUSED void world_end(struct world *w, bool clean)
{
    if (w->r) replicas_stop_upkeep(w->r);
    turns(w, 5);
    if (w->r) replicas_close(w->r, clean, 1);
    workers_free(w->workers);
    grace_free(w->grace);
    loop_free(w->loop);
}

static UNUSED struct partition *partition_at(const struct world *w, int32_t index)
{
    return topic_partition(replicas_find(w->r, STR("t")), index);
}

/* ---- Records that say what their offset should be, and which process wrote them */

static int64_t incarnation;

static UNUSED void record_value(int64_t offset, uint8_t out[RECORD_BYTES])
{
    for (int i = 0; i < RECORD_BYTES; i++) out[i] = (uint8_t)(offset * 31 + i);
    out[0] = (uint8_t)incarnation;
}

static UNUSED void on_done(struct append *a)
{
    (void)a;
}

static UNUSED enum kerr append_one(struct partition *p)
{
    uint8_t value[RECORD_BYTES];
    record_value(plog_end(p->pl), value);
    struct buf_pool *bufs = buf_pool_new(0);
    struct batch_builder bb;
    struct writer w;
    batch_builder_init(&bb, bufs, 0, 1000);
    batch_builder_add(&bb, 1000, (struct bytes){NULL, 0}, (struct bytes){value, sizeof value}, NULL, 0);
    writer_init(&w, bufs);
    assert_int_equal(batch_builder_finish(&bb, &w), OK);
    batch_builder_fini(&bb);
    struct append a = {.buf = w.buf,
                       .data = w.buf->data,
                       .size = w.size,
                       .leader_epoch = atomic_load(&p->leader_epoch),
                       .now_ms = 1000,
                       .done = on_done};
    assert_int_equal(batch_parse_header(&a.info, a.data, INT32_MAX), OK);
    plog_append(p->pl, &a);
    writer_fini(&w);
    buf_pool_free(bufs);
    return a.kerr;
}

#endif
