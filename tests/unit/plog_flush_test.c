/* plog: which appends wait for the disk, and that what they wait for has been synced. */
#include "plog_world.h"

static void start(struct world *w, bool group, int64_t messages)
{
    world_init(w);
    w->opt.config.flush_group = group;
    w->opt.config.flush_messages = messages;
    world_open(w);
}

static struct append append_one(struct world *w)
{
    struct append a = append_batch(w, (struct batch_spec){.count = 1, .value_size = 100});
    assert_int_equal(a.kerr, KERR_NONE);
    return a;
}

static void without_a_rule_no_append_waits_and_no_flush_is_asked_for(void **state)
{
    (void)state;
    struct world w;
    start(&w, false, -1);
    for (int i = 0; i < 100; i++) assert_false(append_one(&w).must_flush);
    assert_int_equal(w.work_wanted, 0);
    assert_int_equal(plog_safe_end(w.pl), 100);
    assert_int_equal(plog_recovery_point(w.pl), 0);
    world_fini(&w);
}

static void with_flush_messages_the_append_that_reaches_the_number_waits(void **state)
{
    (void)state;
    struct world w;
    start(&w, false, 3);
    assert_false(append_one(&w).must_flush);
    assert_false(append_one(&w).must_flush);
    assert_int_equal(plog_safe_end(w.pl), 2);
    assert_int_equal(w.work_wanted, 0);
    assert_true(append_one(&w).must_flush);
    assert_int_equal(w.work_wanted, 1);
    assert_int_equal(plog_safe_end(w.pl), 0); /* nor does a consumer see it before, as in Kafka */
    assert_int_equal(plog_recovery_point(w.pl), 0);
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(plog_recovery_point(w.pl), 3);
    assert_int_equal(w.flushed, 1);
    assert_false(append_one(&w).must_flush); /* it counts anew */
    world_fini(&w);
}

static void in_group_mode_every_append_waits_and_one_sync_serves_all(void **state)
{
    (void)state;
    struct world w;
    start(&w, true, -1);
    append_one(&w);
    assert_int_equal(plog_work(w.pl), OK); /* the first one also syncs the directory and the epochs */
    int syncs = w.fs.syncs;
    for (int i = 0; i < 20; i++) assert_true(append_one(&w).must_flush);
    assert_int_equal(w.work_wanted, 2); /* once until it is done */
    assert_int_equal(plog_safe_end(w.pl), 1);
    assert_int_equal(w.fs.syncs, syncs);
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(w.fs.syncs, syncs + 1);
    assert_int_equal(plog_safe_end(w.pl), 21);
    assert_int_equal(plog_recovery_point(w.pl), 21);
    assert_int_equal(w.work_wanted, 2);
    world_fini(&w);
}

static void append_meanwhile(void *arg)
{
    struct world *w = arg;
    assert_true(append_one(w).must_flush);
}

static void what_is_appended_while_a_sync_runs_is_left_to_the_next_round(void **state)
{
    (void)state;
    struct world w;
    start(&w, true, -1);
    append_one(&w);
    w.fs.syncing = append_meanwhile;
    w.fs.syncing_arg = &w;
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(plog_end(w.pl), 2);
    assert_int_equal(plog_recovery_point(w.pl), 1); /* the sync may have come too early for it */
    assert_int_equal(plog_safe_end(w.pl), 1);
    assert_int_equal(w.work_wanted, 2); /* nobody else needs to append for that */
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(plog_recovery_point(w.pl), 2);
    assert_int_equal(w.work_wanted, 2);
    world_fini(&w);
}

static void fail_an_append_meanwhile(void *arg)
{
    struct world *w = arg;
    w->fs.op = FAIL_WRITE;
    w->fs.times = 1;
    w->fs.tear_bytes = 10;
    w->fs.e = ERR_FULL;
    struct append a = append_batch(w, (struct batch_spec){.count = 1, .value_size = 100});
    assert_int_equal(a.kerr, KERR_KAFKA_STORAGE_ERROR);
}

/* Nothing was appended, but the file was written to and cut: if a loss of power brought that back in a segment that is
 * closed by then, nobody would look for it below the recovery point. */
static void a_write_that_fails_while_a_sync_runs_has_the_next_flush_sync_again(void **state)
{
    (void)state;
    struct world w;
    start(&w, false, -1);
    append_one(&w);
    w.fs.syncing = fail_an_append_meanwhile;
    w.fs.syncing_arg = &w;
    assert_int_equal(plog_flush(w.pl), OK);
    assert_int_equal(plog_recovery_point(w.pl), 1);
    int syncs = w.fs.syncs;
    assert_int_equal(plog_flush(w.pl), OK);
    assert_int_equal(w.fs.syncs, syncs + 1);
    assert_int_equal(plog_flush(w.pl), OK);
    assert_int_equal(w.fs.syncs, syncs + 1);
    world_fini(&w);
}

static void a_duplicate_of_what_is_not_on_the_disk_waits_too(void **state)
{
    (void)state;
    struct world w;
    const struct batch_spec spec = {.count = 1, .producer_id = 7};
    start(&w, true, -1);
    assert_true(append_batch(&w, spec).must_flush);
    struct append again = append_batch(&w, spec);
    assert_int_equal(again.kerr, KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_true(again.must_flush);
    assert_int_equal(plog_work(w.pl), OK);
    again = append_batch(&w, spec);
    assert_int_equal(again.kerr, KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_false(again.must_flush);
    world_fini(&w);
}

static void a_duplicate_alone_brings_the_flush_that_failed_before(void **state)
{
    (void)state;
    struct world w;
    const struct batch_spec spec = {.count = 1, .producer_id = 7};
    start(&w, true, -1);
    append_batch(&w, spec);
    w.fs.only = "leader-epoch-checkpoint"; /* its descriptor is wanted before anything is synced */
    w.fs.op = FAIL_OPEN;
    w.fs.times = 1;
    w.fs.e = ERR_TOO_MANY;
    assert_int_equal(plog_work(w.pl), ERR_TOO_MANY);
    assert_true(w.fs.fired);
    assert_int_equal(w.flush_failed, ERR_TOO_MANY); /* who waits is told */
    assert_int_equal(w.failed_count, 0);
    assert_int_equal(plog_recovery_point(w.pl), 0);
    assert_int_equal(w.work_wanted, 1);
    assert_true(append_batch(&w, spec).must_flush);
    assert_int_equal(w.work_wanted, 2);
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(plog_recovery_point(w.pl), 1);
    world_fini(&w);
}

/* The kernel forgets what it could not write and tells only once: a second sync would say that all is well. */
static void check_a_failed_sync_is_final(enum err e)
{
    struct world w;
    start(&w, true, -1);
    append_one(&w);
    w.fs.op = FAIL_SYNC;
    w.fs.times = 1;
    w.fs.e = e;
    assert_int_equal(plog_work(w.pl), e);
    assert_true(w.fs.fired);
    int syncs = w.fs.syncs;
    assert_int_equal(plog_work(w.pl), e);
    assert_int_equal(plog_flush(w.pl), e);
    assert_int_equal(w.fs.syncs, syncs);
    assert_int_equal(plog_recovery_point(w.pl), 0);
    assert_int_equal(plog_safe_end(w.pl), 0);
    assert_int_equal(w.failed_count, 1);
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(w.work_wanted, 1);
    world_fini(&w);
}

static void a_failed_sync_is_final(void **state)
{
    (void)state;
    check_a_failed_sync_is_final(ERR_IO);
    check_a_failed_sync_is_final(ERR_FULL); /* the disk had no room for what was written already */
}

static void a_switch_to_group_mode_flushes_what_is_there(void **state)
{
    (void)state;
    struct world w;
    start(&w, false, -1);
    append_one(&w);
    assert_int_equal(plog_safe_end(w.pl), 1);
    w.opt.config.flush_group = true;
    plog_reconfigure(w.pl, &w.opt.config);
    assert_int_equal(w.work_wanted, 1);
    assert_int_equal(plog_safe_end(w.pl), 0);
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(plog_safe_end(w.pl), 1);
    w.opt.config.flush_group = false;
    plog_reconfigure(w.pl, &w.opt.config);
    assert_false(append_one(&w).must_flush);
    assert_int_equal(plog_safe_end(w.pl), 2);
    world_fini(&w);
}

static void what_recovery_finds_is_synced_before_it_is_promised(void **state)
{
    (void)state;
    struct world w;
    start(&w, true, -1);
    append_one(&w);
    world_kill(&w);
    int syncs = w.fs.syncs;
    world_open(&w);
    assert_true(w.fs.syncs > syncs);
    assert_int_equal(plog_recovery_point(w.pl), 1);
    world_kill(&w);
    w.fs.op = FAIL_SYNC;
    w.fs.times = 1;
    w.fs.e = ERR_IO;
    assert_int_equal(plog_open(&w.pl, &w.opt, &w.fault), ERR_IO);
    w.pl = NULL;
    world_fini(&w);
}

static void two_logs_are_begun_before_either_is_finished(void **state)
{
    (void)state;
    struct world one, two;
    start(&one, true, -1);
    start(&two, true, -1);
    append_one(&one);
    append_one(&two);
    struct plog_flush *first = plog_work_begin(one.pl, true), *second = plog_work_begin(two.pl, true);
    append_one(&one); /* begun is no promise for what comes now */
    assert_int_equal(plog_flush_finish(first), OK);
    assert_int_equal(plog_flush_finish(second), OK);
    assert_int_equal(plog_recovery_point(one.pl), 1);
    assert_int_equal(plog_recovery_point(two.pl), 1);
    assert_int_equal(one.work_wanted, 2);
    world_fini(&one);
    world_fini(&two);
}

/* Who has begun several would wait for who has begun the same ones in another order. */
static void a_log_that_is_being_flushed_is_not_waited_for(void **state)
{
    (void)state;
    struct world w;
    start(&w, true, -1);
    append_one(&w);
    struct plog_flush *first = plog_flush_begin(w.pl, true);
    assert_non_null(first);
    assert_null(plog_flush_begin(w.pl, true));
    assert_null(plog_work_begin(w.pl, true));
    assert_int_equal(plog_flush_finish(first), OK);
    struct plog_flush *work = plog_work_begin(w.pl, true);
    assert_non_null(work);
    assert_null(plog_work_begin(w.pl, true));
    assert_int_equal(plog_flush_finish(work), OK);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_rule_no_append_waits_and_no_flush_is_asked_for),
        cmocka_unit_test(with_flush_messages_the_append_that_reaches_the_number_waits),
        cmocka_unit_test(in_group_mode_every_append_waits_and_one_sync_serves_all),
        cmocka_unit_test(what_is_appended_while_a_sync_runs_is_left_to_the_next_round),
        cmocka_unit_test(a_write_that_fails_while_a_sync_runs_has_the_next_flush_sync_again),
        cmocka_unit_test(a_duplicate_of_what_is_not_on_the_disk_waits_too),
        cmocka_unit_test(a_duplicate_alone_brings_the_flush_that_failed_before),
        cmocka_unit_test(a_failed_sync_is_final),
        cmocka_unit_test(a_switch_to_group_mode_flushes_what_is_there),
        cmocka_unit_test(what_recovery_finds_is_synced_before_it_is_promised),
        cmocka_unit_test(two_logs_are_begun_before_either_is_finished),
        cmocka_unit_test(a_log_that_is_being_flushed_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
