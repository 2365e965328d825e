/* os: the worker pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "os/workers.h"

enum { JOBS = 10000 };

struct test_job {
    struct job job;
    int number;
    pthread_t worked_on;
};

struct test_world {
    struct loop *loop;
    _Atomic int worked;
    int done;
};

static struct test_world world;

static void test_work(struct job *job)
{
    struct test_job *tj = CONTAINER_OF(job, struct test_job, job);
    tj->worked_on = pthread_self();
    atomic_fetch_add(&world.worked, 1);
}

static void test_done(struct job *job)
{
    struct test_job *tj = CONTAINER_OF(job, struct test_job, job);
    assert_true(loop_is_owner(world.loop));
    assert_false(pthread_equal(tj->worked_on, pthread_self()));
    if (++world.done == JOBS) loop_stop(world.loop);
}

static int setup(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    return (int)loop_new(&world.loop, clock_system(), 0, NULL);
}

static int teardown(void **state)
{
    (void)state;
    loop_free(world.loop);
    return 0;
}

static void every_job_works_on_a_worker_and_is_done_on_its_loop(void **state)
{
    (void)state;
    static struct test_job jobs[JOBS];
    struct workers *w;
    assert_int_equal(workers_new(&w, "test", 3, NULL), OK);
    for (int i = 0; i < JOBS; i++) {
        jobs[i].job = (struct job){.loop = world.loop, .work = test_work, .done = test_done};
        workers_submit(w, &jobs[i].job);
    }
    loop_run(world.loop);
    workers_free(w);
    assert_int_equal(world.worked, JOBS);
    assert_int_equal(world.done, JOBS);
}

static int order[JOBS];
static int order_count;

static void ordered_work(struct job *job)
{
    order[order_count++] = CONTAINER_OF(job, struct test_job, job)->number;
}

static void jobs_of_one_thread_keep_their_order_and_are_finished_before_the_pool_goes(void **state)
{
    (void)state;
    static struct test_job jobs[JOBS];
    struct workers *w;
    assert_int_equal(workers_new(&w, "test", 1, NULL), OK);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct test_job){.job.work = ordered_work, .number = i};
        workers_submit(w, &jobs[i].job);
    }
    workers_free(w);
    assert_int_equal(order_count, JOBS);
    for (int i = 0; i < JOBS; i++) assert_int_equal(order[i], i);
}

static void inline_done(struct job *job)
{
    (void)job;
    world.done++;
}

static void a_pool_without_threads_works_at_once_and_still_posts(void **state)
{
    (void)state;
    struct workers *w;
    assert_int_equal(workers_new(&w, "test", 0, NULL), OK);
    struct test_job here = {.job = {.work = test_work, .done = inline_done}};
    workers_submit(w, &here.job);
    assert_int_equal(world.worked, 1);
    assert_int_equal(world.done, 1);
    struct test_job there = {.job = {.loop = world.loop, .work = test_work, .done = inline_done}};
    workers_submit(w, &there.job);
    assert_int_equal(world.worked, 2);
    assert_int_equal(world.done, 1);
    loop_turn(world.loop, 0);
    assert_int_equal(world.done, 2);
    workers_free(w);
}

static char seen_name[16];
static sigset_t seen_mask;

static void look_work(struct job *job)
{
    (void)job;
    pthread_getname_np(pthread_self(), seen_name, sizeof seen_name);
    pthread_sigmask(SIG_SETMASK, NULL, &seen_mask);
}

static void workers_are_named_and_get_no_signals(void **state)
{
    (void)state;
    struct workers *w;
    struct job look = {.work = look_work};
    assert_int_equal(workers_new(&w, "a-long-name-of-a-pool", 1, NULL), OK);
    workers_submit(w, &look);
    workers_free(w);
    assert_string_equal(seen_name, "a-long-name-of-");
    assert_true(sigismember(&seen_mask, SIGTERM));
    assert_true(sigismember(&seen_mask, SIGPIPE));
    pthread_sigmask(SIG_SETMASK, NULL, &seen_mask);
    assert_false(sigismember(&seen_mask, SIGTERM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_job_works_on_a_worker_and_is_done_on_its_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(jobs_of_one_thread_keep_their_order_and_are_finished_before_the_pool_goes,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_pool_without_threads_works_at_once_and_still_posts, setup, teardown),
        cmocka_unit_test_setup_teardown(workers_are_named_and_get_no_signals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
