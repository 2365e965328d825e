/* replica: what a partition shows and promises and whom it wakes, how logs get to the disk, and when their upkeep is
 * done. */
#include "plog_world.h"

#include <pthread.h>
#include <sched.h>

#include "replica/flusher.h"
#include "replica/replicas_internal.h"

/* One partition over a log in a directory of its own. */
struct replica {
    struct world w;
    struct partition *p;
};

/* Of so many replicas, all in sync, this one is number 0. */
static void set_role(struct partition *p, bool leads, int32_t epoch, int32_t count)
{
    static const int32_t ids[] = {0, 1, 2};
    const struct partition_role role = {.leads = leads,
                                        .leader = leads ? 0 : 1,
                                        .leader_epoch = epoch,
                                        .replicas = ids,
                                        .replica_count = count,
                                        .isr = ids,
                                        .isr_count = count};
    partition_set_role(p, &role);
}

static void start(struct replica *rep, struct partition_services *services, bool group)
{
    world_init(&rep->w);
    rep->p = partition_new("topic", 0, NULL, services);
    rep->w.opt.config.flush_group = group;
    rep->w.opt.events = partition_events(rep->p);
    world_open(&rep->w);
    partition_give_log(rep->p, rep->w.pl, 0);
    set_role(rep->p, true, 0, 1);
}

static void finish(struct replica *rep)
{
    partition_unref(rep->p);
    rep->w.pl = NULL;
    world_fini(&rep->w);
}

static void append(struct replica *rep)
{
    append_ok(&rep->w, (struct batch_spec){.value_size = 100});
}

/* ---- High watermark and waiters */

static void in_group_mode_consumers_see_only_what_is_on_the_disk(void **state)
{
    (void)state;
    struct replica rep;
    start(&rep, NULL, true);
    append(&rep);
    append(&rep);
    assert_int_equal(plog_end(rep.w.pl), 2);
    assert_int_equal(partition_high_watermark(rep.p), 0);
    assert_int_equal(partition_last_stable(rep.p), 0);
    assert_int_equal(plog_flush(rep.w.pl), OK);
    assert_int_equal(partition_high_watermark(rep.p), 2);
    append(&rep);
    rep.w.opt.config.flush_group = false;
    partition_reconfigure(rep.p, &rep.w.opt.config);
    assert_int_equal(partition_high_watermark(rep.p), 3); /* it promises no more than that now */
    rep.w.opt.config.flush_group = true;
    append(&rep);
    partition_reconfigure(rep.p, &rep.w.opt.config);
    assert_int_equal(partition_high_watermark(rep.p), 4); /* what has been shown stays */
    finish(&rep);
}

struct counting_waiter {
    struct partition_waiter waiter;
    int woken;
};

static void count_wake(struct partition_waiter *w)
{
    CONTAINER_OF(w, struct counting_waiter, waiter)->woken++;
}

static void wait_for(struct replica *rep, struct counting_waiter *w, int64_t high_watermark, int64_t durable)
{
    *w = (struct counting_waiter){.waiter = {.until_high_watermark = high_watermark, .until_durable = durable}};
    w->waiter.wake = count_wake;
    partition_wait(rep->p, &w->waiter);
}

static void waiters_are_woken_by_what_they_wait_for_alone(void **state)
{
    (void)state;
    struct replica rep;
    struct counting_waiter any, seen, durable, far;
    start(&rep, NULL, true);
    wait_for(&rep, &any, 0, 0);
    wait_for(&rep, &seen, 1, 0);
    wait_for(&rep, &durable, 0, 1);
    wait_for(&rep, &far, 3, 3);
    append(&rep);
    assert_int_equal(any.woken, 1);
    assert_int_equal(seen.woken + durable.woken + far.woken, 0);
    assert_int_equal(plog_flush(rep.w.pl), OK);
    assert_int_equal(seen.woken, 1);
    assert_int_equal(durable.woken, 1);
    assert_int_equal(far.woken, 0);
    set_role(rep.p, false, 1, 1); /* what it waits for may never come */
    assert_true(far.woken > 0);
    partition_unwait(rep.p, &any.waiter);
    partition_unwait(rep.p, &seen.waiter);
    partition_unwait(rep.p, &durable.waiter);
    partition_unwait(rep.p, &far.waiter);
    finish(&rep);
}

static void who_waits_for_a_flush_that_fails_is_told(void **state)
{
    (void)state;
    struct replica rep;
    struct counting_waiter w;
    start(&rep, NULL, true);
    append(&rep);
    wait_for(&rep, &w, 0, 1);
    rep.w.fs.op = FAIL_OPEN; /* of leader-epoch-checkpoint, before anything is synced */
    rep.w.fs.times = 1;
    rep.w.fs.e = ERR_TOO_MANY;
    assert_int_equal(plog_flush(rep.w.pl), ERR_TOO_MANY);
    assert_int_equal(w.woken, 1);
    assert_int_equal(atomic_load(&rep.p->flushes_failed), 1);
    assert_true(atomic_load(&rep.p->online));
    rep.w.fs.op = FAIL_SYNC;
    rep.w.fs.times = 1;
    rep.w.fs.e = ERR_IO;
    assert_int_equal(plog_flush(rep.w.pl), ERR_IO);
    assert_true(w.woken > 1);
    assert_false(atomic_load(&rep.p->online));
    partition_unwait(rep.p, &w.waiter);
    finish(&rep);
}

/* ---- The flusher */

enum { LOGS = 40, ROUNDS = 10 };

struct own_append {
    struct append a;
    struct writer bytes;
};

static void own_append_done(struct append *a)
{
    struct own_append *own = CONTAINER_OF(a, struct own_append, a);
    assert_int_equal(a->kerr, KERR_NONE);
    assert_true(a->must_flush);
    writer_fini(&own->bytes);
    mem_free(own);
}

/* Queued, if a flush has the writer role just now. */
static void append_some_time(struct replica *rep)
{
    struct own_append *own = mem_zalloc(1, sizeof *own);
    batch_make(&rep->w, &(struct batch_spec){.value_size = 100}, &own->bytes);
    own->a = (struct append){
        .data = own->bytes.buf->data, .size = own->bytes.size, .now_ms = T0_MS, .done = own_append_done};
    assert_int_equal(batch_parse_header(&own->a.info, own->a.data, INT32_MAX), OK);
    plog_append(rep->w.pl, &own->a);
}

static void many_logs_get_to_the_disk_by_a_few_jobs(void **state)
{
    (void)state;
    struct workers *workers;
    assert_int_equal(workers_new(&workers, "test", 3, NULL), OK);
    struct partition_services services = {.workers = workers, .flusher = flusher_new(workers, 2, 8)};
    struct replica *reps = mem_zalloc(LOGS, sizeof *reps);
    for (int i = 0; i < LOGS; i++) start(&reps[i], &services, true);
    for (int n = 0; n < ROUNDS; n++)
        for (int i = 0; i < LOGS; i++) append_some_time(&reps[i]);
    /* Nobody asks again: what was appended while a round ran is flushed all the same. */
    for (int i = 0; i < LOGS; i++)
        while (partition_high_watermark(reps[i].p) < ROUNDS) sched_yield();
    workers_free(workers);
    atomic_store(&services.workers_gone, true);
    for (int i = 0; i < LOGS; i++) {
        assert_int_equal(plog_recovery_point(reps[i].w.pl), ROUNDS);
        finish(&reps[i]);
    }
    flusher_free(services.flusher);
    mem_free(reps);
}

struct flushing_thread {
    pthread_t thread;
    struct partition *list[2];
    pthread_barrier_t *start;
};

static void *flush_both_again_and_again(void *arg)
{
    struct flushing_thread *t = arg;
    pthread_barrier_wait(t->start);
    for (int n = 0; n < 2000; n++) {
        struct partition *list[2] = {t->list[0], t->list[1]};
        struct plog_flush *rounds[2];
        for (int i = 0; i < 2; i++) {
            rounds[i] = plog_flush_begin(list[i]->pl, true);
            sched_yield();
        }
        for (int i = 0; i < 2; i++)
            if (rounds[i]) assert_int_equal(plog_flush_finish(rounds[i]), OK);
        for (int i = 0; i < 2; i++)
            if (!rounds[i]) assert_int_equal(plog_flush(list[i]->pl), OK); /* the other thread had it */
    }
    return NULL;
}

/* As who flushes for appends and who makes room for files do, each in an order of its own. */
static void two_threads_that_flush_the_same_logs_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct replica reps[2];
    pthread_barrier_t begin;
    for (int i = 0; i < 2; i++) start(&reps[i], NULL, false);
    pthread_barrier_init(&begin, NULL, 2);
    struct flushing_thread threads[2] = {
        {.list = {reps[0].p, reps[1].p}, .start = &begin},
        {.list = {reps[1].p, reps[0].p}, .start = &begin},
    };
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i].thread, NULL, flush_both_again_and_again, &threads[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i].thread, NULL);
    pthread_barrier_destroy(&begin);
    for (int i = 0; i < 2; i++) finish(&reps[i]);
}

static pthread_t closed_by;

static void noting_close(struct file *f)
{
    closed_by = pthread_self();
    faulty_close(f);
}

static void the_last_reference_has_a_worker_close_the_log(void **state)
{
    (void)state;
    struct workers *workers;
    assert_int_equal(workers_new(&workers, "test", 1, NULL), OK);
    struct partition_services services = {.workers = workers};
    struct replica rep;
    start(&rep, &services, false);
    append(&rep);
    rep.w.fs.file_ops.close = noting_close;
    closed_by = pthread_self();
    partition_unref(rep.p);
    workers_free(workers);
    assert_false(pthread_equal(closed_by, pthread_self()));
    rep.w.pl = NULL;
    world_fini(&rep.w);
}

/* ---- Upkeep */

enum { KEPT = 4, CHECK_MS = 1000 };

struct house {
    struct replicas r;
    struct log_dir dir;
    struct replica reps[KEPT];
};

/* Logs of two segments, the first of which is to go at the first look; its files go i minutes later. */
static void house_init(struct house *h)
{
    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->r.lock, NULL);
    for (int i = 0; i < KEPT; i++) {
        struct replica *rep = &h->reps[i];
        start(rep, NULL, false);
        rep->p->dir = &h->dir;
        rep->w.opt.config.segment_bytes = 300;
        rep->w.opt.config.segment_ms = -1;
        rep->w.opt.config.retention_bytes = 1;
        rep->w.opt.config.file_delete_delay_ms = INT64_C(60000) * (i + 1);
        partition_reconfigure(rep->p, &rep->w.opt.config);
        append(rep);
        append(rep);
    }
    h->r.opt = (struct replicas_options){.clock = &h->reps[0].w.clock.clock, .retention_check_ms = CHECK_MS};
    replicas_retention_init(&h->r);
    for (int i = 0; i < KEPT; i++) replicas_add(&h->r, h->reps[i].p);
}

static void house_fini(struct house *h)
{
    replicas_retention_fini(&h->r);
    for (size_t i = 0; i < h->r.all_count; i++) partition_unref(h->r.all[i]);
    mem_free(h->r.all);
    for (int i = 0; i < KEPT; i++) finish(&h->reps[i]);
    pthread_mutex_destroy(&h->r.lock);
}

static void pass(struct house *h, int64_t ms)
{
    for (int i = 0; i < KEPT; i++) h->reps[i].w.clock.now_ms += ms;
    replicas_retention_work(&h->r);
}

static bool is_marked_deleted(struct house *h, int i)
{
    return size_of_file(&h->reps[i].w, "00000000000000000000.log.deleted") > 0;
}

static bool is_there(struct house *h, int i)
{
    return size_of_file(&h->reps[i].w, "00000000000000000000.log") > 0;
}

static void files_go_when_their_delay_is_over_and_not_before(void **state)
{
    (void)state;
    struct house h;
    house_init(&h);
    pass(&h, 0);
    for (int i = 0; i < KEPT; i++) assert_true(is_there(&h, i)); /* the first check is not due */
    assert_int_equal(replicas_retention_next_ms(&h.r), INT64_MAX);
    pass(&h, CHECK_MS);
    int64_t deleted_ms = h.reps[0].w.clock.now_ms;
    for (int i = 0; i < KEPT; i++) assert_true(is_marked_deleted(&h, i));
    for (int i = 0; i < KEPT; i++) {
        assert_int_equal(replicas_retention_next_ms(&h.r), deleted_ms + 60000 * (i + 1));
        pass(&h, 59999);
        assert_true(is_marked_deleted(&h, i));
        pass(&h, 1);
        for (int other = 0; other < KEPT; other++) assert_int_equal(is_marked_deleted(&h, other), other > i);
    }
    assert_int_equal(replicas_retention_next_ms(&h.r), INT64_MAX);
    house_fini(&h);
}

static void a_check_looks_at_what_has_changed_alone(void **state)
{
    (void)state;
    struct house h;
    house_init(&h);
    for (int i = 0; i < KEPT; i++) {
        h.reps[i].w.opt.config.retention_bytes = -1;
        partition_reconfigure(h.reps[i].p, &h.reps[i].w.opt.config);
    }
    pass(&h, CHECK_MS);
    for (int i = 0; i < KEPT; i++) {
        assert_true(is_there(&h, i));
        h.reps[i].w.opt.config.retention_bytes = 1;
    }
    plog_reconfigure(h.reps[1].w.pl, &h.reps[1].w.opt.config); /* behind the partition's back */
    partition_reconfigure(h.reps[2].p, &h.reps[2].w.opt.config);
    pass(&h, CHECK_MS - 1);
    assert_true(is_there(&h, 2)); /* nothing is due by itself, and it is no time for a check */
    pass(&h, 1);
    assert_true(is_there(&h, 1));
    assert_true(is_marked_deleted(&h, 2));
    house_fini(&h);
}

static void what_is_deleted_or_offline_is_left_alone(void **state)
{
    (void)state;
    struct house h;
    house_init(&h);
    pass(&h, CHECK_MS);
    atomic_store(&h.dir.partition_count, KEPT);
    replicas_drop(&h.r, h.reps[0].p);
    partition_set_offline(h.reps[1].p);
    assert_int_equal(replicas_retention_next_ms(&h.r), h.reps[0].w.clock.now_ms + 120000);
    pass(&h, 300000);
    assert_true(is_marked_deleted(&h, 0));
    assert_true(is_marked_deleted(&h, 1));
    assert_false(is_marked_deleted(&h, 2));
    assert_int_equal(replicas_retention_next_ms(&h.r), INT64_MAX);
    assert_int_equal(atomic_load(&h.reps[0].p->refs), 1); /* nobody waits for a time with it */
    house_fini(&h);
}

/* ---- A follower enters and leaves while another thread appends */

static struct {
    struct replica rep;
    struct alter_partition_call *call;
    int entered;
    _Atomic bool appended;
} race;

static void keep_call(void *arg, struct alter_partition_call *call)
{
    (void)arg;
    race.call = call;
}

static void *append_many(void *arg)
{
    (void)arg;
    enum { APPENDS = 3000 };
    for (int i = 0; i < APPENDS; i++) append(&race.rep);
    atomic_store(&race.appended, true);
    return NULL;
}

/* While the follower is in the set, or may be, it has all that is below the high watermark. */
static void check_promise(struct partition *p)
{
    enum { LOOKS = 50 };
    for (int i = 0; i < LOOKS; i++) {
        pthread_mutex_lock(&p->lock);
        const struct follower *f = in_sync_find(&p->in_sync, 1);
        if (f->state != FOLLOWER_OUT) assert_true(partition_high_watermark(p) <= f->end);
        pthread_mutex_unlock(&p->lock);
        sched_yield();
    }
}

static void lead_alone(struct partition *p, int32_t partition_epoch)
{
    static const int32_t ids[] = {0, 1};
    const struct partition_role role = {.leads = true,
                                        .replicas = ids,
                                        .replica_count = 2,
                                        .isr = ids,
                                        .isr_count = 1,
                                        .partition_epoch = partition_epoch};
    partition_set_role(p, &role);
}

/* What is out is answered, as the controller that lets everybody in would. */
static void let_in(struct partition *p, int32_t partition_epoch)
{
    const struct alter_partition_request_topic_data *in = &race.call->request->topics[0];
    int32_t isr[] = {0, 1};
    struct alter_partition_response_partition_data pd = alter_partition_response_partition_data_default;
    struct alter_partition_response_topic_data td = alter_partition_response_topic_data_default;
    struct alter_partition_response out = alter_partition_response_default;
    pd.isr = isr;
    pd.isr_count = 2;
    pd.partition_epoch = partition_epoch;
    td.topic_id = in->topic_id;
    td.topic_name = in->topic_name;
    td.partitions = &pd;
    td.partitions_count = out.topics_count = 1;
    out.topics = &td;
    struct alter_partition_call *call = race.call;
    race.call = NULL;
    call->done(call, OK, &out);
    race.entered += atomic_load(&p->in_sync_count) == 2;
}

static void appends_never_promise_what_a_member_does_not_have(void **state)
{
    (void)state;
    struct loop *loop;
    memset(&race, 0, sizeof race);
    struct partition_services services = {0};
    start(&race.rep, &services, false);
    struct clock *clock = &race.rep.w.clock.clock;
    assert_int_equal(loop_new(&loop, clock, 0, NULL), OK);
    services.leaders = leaders_new(
        &(struct leaders_options){.home = loop, .clock = clock, .lag_max_ms = 1000, .alter_partition = keep_call});
    struct partition *p = race.rep.p;
    int32_t partition_epoch = 1;
    lead_alone(p, partition_epoch);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, append_many, NULL), 0);
    while (!atomic_load(&race.appended)) {
        const struct follower_fetch ff = {.broker_id = 1,
                                          .broker_epoch = -1,
                                          .leader_epoch = -1,
                                          .fetch_offset = plog_end(p->pl),
                                          .now_us = clock_mono_us(clock)};
        assert_int_equal(partition_follower_fetched(p, &ff), KERR_NONE);
        check_promise(p);
        loop_turn(loop, 0);
        if (!race.call) continue;
        let_in(p, ++partition_epoch);
        check_promise(p);
        lead_alone(p, ++partition_epoch); /* out again */
        check_promise(p);
    }
    pthread_join(thread, NULL);
    assert_true(race.entered > 0);
    if (race.call) let_in(p, ++partition_epoch);
    leaders_stop(services.leaders);
    leaders_free(services.leaders);
    services.leaders = NULL;
    loop_free(loop);
    finish(&race.rep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_group_mode_consumers_see_only_what_is_on_the_disk),
        cmocka_unit_test(waiters_are_woken_by_what_they_wait_for_alone),
        cmocka_unit_test(who_waits_for_a_flush_that_fails_is_told),
        cmocka_unit_test(many_logs_get_to_the_disk_by_a_few_jobs),
        cmocka_unit_test(two_threads_that_flush_the_same_logs_do_not_wait_for_each_other),
        cmocka_unit_test(the_last_reference_has_a_worker_close_the_log),
        cmocka_unit_test(files_go_when_their_delay_is_over_and_not_before),
        cmocka_unit_test(a_check_looks_at_what_has_changed_alone),
        cmocka_unit_test(what_is_deleted_or_offline_is_left_alone),
        cmocka_unit_test(appends_never_promise_what_a_member_does_not_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
