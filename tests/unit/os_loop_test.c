/* os: the event loop: timers, mailbox, sockets, idle hooks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/loop.h"
#include "os/thread.h"

/* A clock that stands still until it is told. */
struct hand_clock {
    struct clock clock;
    int64_t now_us;
};

static int64_t hand_mono_us(struct clock *c)
{
    return CONTAINER_OF(c, struct hand_clock, clock)->now_us;
}

static int64_t hand_wall_ms(struct clock *c)
{
    return hand_mono_us(c) / 1000;
}

static struct hand_clock hand = {.clock = {hand_mono_us, hand_wall_ms}, .now_us = 1000};

static struct loop *new_loop(struct clock *clock)
{
    struct loop *l;
    struct fault f;
    assert_int_equal(loop_new(&l, clock, 3, &f), OK);
    return l;
}

/* ---- timers ---- */

struct test_timer {
    struct timer t;
    int id;
    struct loop *loop;
    int64_t again_us; /* set anew when it fires; 0: not */
    struct timer *victim;
};

static int fired[4096];
static size_t fired_count;

static void test_timer_fire(struct timer *t)
{
    struct test_timer *tt = CONTAINER_OF(t, struct test_timer, t);
    assert_false(timer_is_set(t));
    fired[fired_count++] = tt->id;
    if (tt->again_us) loop_timer_set(tt->loop, t, tt->again_us);
    if (tt->victim) loop_timer_cancel(tt->loop, tt->victim);
}

static void timers_fire_in_order_of_due_time_then_of_setting(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static struct test_timer timers[COUNT];
    struct loop *l = new_loop(&hand.clock);
    fired_count = 0;
    srandom(7);
    for (int i = 0; i < COUNT; i++) {
        timers[i] = (struct test_timer){.t.fire = test_timer_fire, .id = i, .loop = l};
        loop_timer_set(l, &timers[i].t, hand.now_us + 1 + random() % 50);
    }
    /* Every third is cancelled, every third moved: a moved one counts as set when it was moved. */
    for (int i = 0; i < COUNT; i += 3) loop_timer_cancel(l, &timers[i].t);
    for (int i = 1; i < COUNT; i += 3) loop_timer_set(l, &timers[i].t, hand.now_us + 1 + random() % 50);
    loop_turn(l, 0);
    assert_int_equal(fired_count, 0);
    for (int64_t step = 0; step < 50; step++) {
        size_t before = fired_count;
        hand.now_us++;
        loop_turn(l, 0);
        int last_kept = -1, last_moved = -1;
        for (size_t i = before; i < fired_count; i++) {
            int id = fired[i];
            assert_int_equal(timers[id].t.due_us, hand.now_us);
            assert_int_not_equal(id % 3, 0);
            if (id % 3 == 1) {
                assert_true(id > last_moved);
                last_moved = id;
            } else {
                assert_int_equal(last_moved, -1); /* all the moved ones come behind */
                assert_true(id > last_kept);
                last_kept = id;
            }
        }
    }
    assert_int_equal(fired_count, COUNT - (COUNT + 2) / 3);
    loop_free(l);
}

static void a_timer_may_set_itself_and_cancel_others_that_are_due(void **state)
{
    (void)state;
    struct loop *l = new_loop(&hand.clock);
    struct test_timer second = {.t.fire = test_timer_fire, .id = 2, .loop = l};
    struct test_timer first = {.t.fire = test_timer_fire, .id = 1, .loop = l, .victim = &second.t};
    first.again_us = hand.now_us - 5; /* due at once, but in the next turn */
    fired_count = 0;
    loop_timer_set(l, &first.t, hand.now_us);
    loop_timer_set(l, &second.t, hand.now_us);
    loop_turn(l, 0);
    assert_int_equal(fired_count, 1);
    loop_turn(l, -1); /* does not wait: a timer is due */
    assert_int_equal(fired_count, 2);
    assert_int_equal(fired[1], 1);
    loop_timer_cancel(l, &first.t);
    loop_timer_cancel(l, &first.t); /* not set: nothing */
    loop_turn(l, 0);
    assert_int_equal(fired_count, 2);
    loop_timer_set(l, &first.t, INT64_MAX - 1);
    loop_free(l);
    assert_false(timer_is_set(&first.t));
}

static void a_wait_ends_at_the_nearest_timer_and_not_before(void **state)
{
    (void)state;
    struct clock *clock = clock_system();
    struct loop *l = new_loop(clock);
    struct test_timer near = {.t.fire = test_timer_fire, .id = 1, .loop = l};
    struct test_timer far = {.t.fire = test_timer_fire, .id = 2, .loop = l};
    fired_count = 0;
    int64_t due_us = clock_mono_us(clock) + 5300;
    loop_timer_set(l, &far.t, due_us + INT64_C(3600) * 1000000);
    loop_timer_set(l, &near.t, due_us);
    unsigned turns = 0;
    for (; fired_count == 0; turns++) loop_turn(l, -1);
    assert_true(loop_now_us(l) >= due_us);
    assert_true(turns <= 2); /* it slept, it did not poll */
    loop_free(l);
}

/* ---- mailbox ---- */

enum { SENDERS = 4, MESSAGES_EACH = 250000 };

struct numbered_msg {
    struct loop_msg msg;
    struct sender *from;
    int number;
};

struct sender {
    struct loop *to;
    struct numbered_msg *msgs;
    int next_expected;
    int *total; /* of all senders, the loop's */
    pthread_t thread;
};

static void numbered_run(struct loop_msg *msg)
{
    struct numbered_msg *nm = CONTAINER_OF(msg, struct numbered_msg, msg);
    assert_int_equal(nm->number, nm->from->next_expected);
    nm->from->next_expected++;
    if (++*nm->from->total == SENDERS * MESSAGES_EACH) loop_stop(nm->from->to);
}

static void sender_main(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < MESSAGES_EACH; i++) {
        s->msgs[i] = (struct numbered_msg){.msg.run = numbered_run, .from = s, .number = i};
        loop_post(s->to, &s->msgs[i].msg);
    }
}

static void posts_of_several_threads_all_arrive_in_each_senders_order(void **state)
{
    (void)state;
    struct loop *l = new_loop(clock_system());
    struct sender senders[SENDERS];
    int total = 0;
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.to = l, .total = &total};
        senders[i].msgs = mem_zalloc(MESSAGES_EACH, sizeof *senders[i].msgs);
        assert_int_equal(thread_start(&senders[i].thread, "sender", sender_main, &senders[i], NULL), OK);
    }
    loop_run(l);
    for (int i = 0; i < SENDERS; i++) {
        thread_join(senders[i].thread);
        assert_int_equal(senders[i].next_expected, MESSAGES_EACH);
        mem_free(senders[i].msgs);
    }
    loop_free(l);
}

/* Two loops that send one message to and fro: both fall asleep before each arrival, so a lost wake-up hangs the test.
 */
struct ball {
    struct loop_msg msg;
    struct loop *sides[2];
    int passes_left;
};

static void ball_run(struct loop_msg *msg)
{
    struct ball *b = CONTAINER_OF(msg, struct ball, msg);
    if (b->passes_left == 0) {
        loop_stop(b->sides[0]);
        loop_stop(b->sides[1]);
        return;
    }
    b->passes_left--;
    loop_post(b->sides[b->passes_left % 2], msg);
}

static void loop_main(void *arg)
{
    loop_run(arg);
}

static void no_wake_up_is_lost_between_sleepy_loops(void **state)
{
    (void)state;
    struct ball b = {.msg.run = ball_run, .passes_left = 20000};
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        b.sides[i] = new_loop(clock_system());
        assert_int_equal(thread_start(&threads[i], "side", loop_main, b.sides[i], NULL), OK);
    }
    loop_post(b.sides[0], &b.msg);
    for (unsigned i = 0; i < 2; i++) thread_join(threads[i]);
    assert_int_equal(b.passes_left, 0);
    for (unsigned i = 0; i < 2; i++) loop_free(b.sides[i]);
}

struct counting_msg {
    struct loop_msg msg;
    struct loop *loop;
    int runs, runs_max;
};

static void counting_run(struct loop_msg *msg)
{
    struct counting_msg *cm = CONTAINER_OF(msg, struct counting_msg, msg);
    if (++cm->runs < cm->runs_max) loop_post(cm->loop, msg);
}

static void a_message_posted_by_a_message_runs_in_the_next_turn(void **state)
{
    (void)state;
    struct loop *l = new_loop(&hand.clock);
    struct counting_msg cm = {.msg.run = counting_run, .loop = l, .runs_max = 3};
    loop_post(l, &cm.msg);
    for (int turn = 1; turn <= 3; turn++) {
        loop_turn(l, -1); /* with mail it does not wait */
        assert_int_equal(cm.runs, turn);
    }
    loop_free(l);
}

static void stop_comes_after_what_was_posted_before_and_a_loop_can_run_again(void **state)
{
    (void)state;
    struct loop *l = new_loop(clock_system());
    for (int round = 0; round < 2; round++) {
        struct counting_msg cm = {.msg.run = counting_run, .loop = l, .runs_max = 1};
        loop_post(l, &cm.msg);
        loop_stop(l);
        loop_stop(l);
        loop_run(l);
        assert_int_equal(cm.runs, 1);
    }
    assert_int_equal(loop_index(l), 3);
    loop_free(l);
}

/* ---- sockets ---- */

struct test_io {
    struct loop_io io;
    struct loop *loop;
    int calls;
    uint32_t events;
    struct test_io *victim; /* removed, closed and freed when this one is ready */
    struct test_io *newcomer;
};

static int ready_fd(void)
{
    int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void test_io_ready(struct loop_io *io, uint32_t events)
{
    struct test_io *ti = CONTAINER_OF(io, struct test_io, io);
    ti->calls++;
    ti->events |= events;
    if (ti->victim) {
        loop_io_remove(ti->loop, &ti->victim->io);
        close(ti->victim->io.fd);
        mem_free(ti->victim); /* a call to it would now be seen by the sanitizers */
        ti->victim = NULL;
    }
    if (ti->newcomer) {
        assert_int_equal(loop_io_add(ti->loop, &ti->newcomer->io), OK);
        ti->newcomer = NULL;
    }
}

static struct test_io *test_io_new(struct loop *l)
{
    struct test_io *ti = mem_zalloc(1, sizeof *ti);
    ti->io = (struct loop_io){.fd = ready_fd(), .ready = test_io_ready};
    ti->loop = l;
    return ti;
}

static void test_io_free(struct test_io *ti)
{
    loop_io_remove(ti->loop, &ti->io);
    close(ti->io.fd);
    mem_free(ti);
}

static void a_socket_removed_within_a_turn_is_not_called_in_it(void **state)
{
    (void)state;
    struct loop *l = new_loop(&hand.clock);
    /* Two that are ready at the same time, each of which removes the other: one call in all. */
    struct test_io *a = test_io_new(l), *b = test_io_new(l), *fresh = test_io_new(l);
    assert_int_equal(loop_io_add(l, &a->io), OK);
    assert_int_equal(loop_io_add(l, &b->io), OK);
    a->victim = b; /* epoll reports in the order in which they became ready */
    a->newcomer = fresh;
    loop_turn(l, 0);
    assert_int_equal(a->calls, 1);
    assert_true(a->events & EPOLLIN);
    assert_int_equal(fresh->calls, 0);
    loop_turn(l, 0); /* edge triggered: `a` again only after a change */
    assert_int_equal(a->calls, 1);
    assert_int_equal(fresh->calls, 1);
    uint64_t one = 1;
    assert_int_equal(write(a->io.fd, &one, sizeof one), sizeof one);
    loop_turn(l, -1);
    assert_int_equal(a->calls, 2);
    test_io_free(a);
    test_io_free(fresh);
    loop_free(l);
}

struct restless {
    struct loop_msg msg;
    struct loop *loop;
    int runs;
};

static void restless_run(struct loop_msg *msg)
{
    struct restless *r = CONTAINER_OF(msg, struct restless, msg);
    r->runs++;
    loop_post(r->loop, msg);
}

/* Mail may come before sockets for a turn, but not for two. */
static void sockets_are_served_while_there_is_always_mail(void **state)
{
    (void)state;
    struct loop *l = new_loop(&hand.clock);
    struct restless r = {.msg.run = restless_run, .loop = l};
    struct test_io *io = test_io_new(l);
    assert_int_equal(loop_io_add(l, &io->io), OK);
    loop_post(l, &r.msg);
    for (int i = 0; i < 3; i++) loop_turn(l, -1);
    assert_int_equal(io->calls, 1);
    assert_int_equal(r.runs, 3);
    uint64_t one = 1;
    assert_int_equal(write(io->io.fd, &one, sizeof one), sizeof one);
    for (int i = 0; i < 2; i++) loop_turn(l, -1);
    assert_int_equal(io->calls, 2);
    assert_int_equal(r.runs, 5);
    test_io_free(io);
    loop_free(l);
}

static void more_ready_sockets_than_one_turn_fetches_are_all_called_once(void **state)
{
    (void)state;
    enum { COUNT = 900 };
    struct loop *l = new_loop(&hand.clock);
    struct test_io *ios[COUNT];
    for (int i = 0; i < COUNT; i++) {
        ios[i] = test_io_new(l);
        assert_int_equal(loop_io_add(l, &ios[i]->io), OK);
    }
    for (int turn = 0; turn < 8; turn++) loop_turn(l, 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(ios[i]->calls, 1);
        test_io_free(ios[i]);
    }
    loop_free(l);
}

/* ---- idle hooks, idleness ---- */

struct test_idle {
    struct loop_idle idle;
    struct loop *loop;
    int runs, runs_max;
    struct test_idle *victim;
};

static void test_idle_run(struct loop_idle *idle)
{
    struct test_idle *ti = CONTAINER_OF(idle, struct test_idle, idle);
    assert_false(loop_idle_is_queued(idle));
    if (++ti->runs < ti->runs_max) loop_idle_once(ti->loop, idle);
    if (ti->victim) loop_idle_cancel(ti->loop, &ti->victim->idle);
}

static void idle_hooks_run_once_at_the_end_of_a_turn(void **state)
{
    (void)state;
    struct loop *l = new_loop(&hand.clock);
    struct test_idle again = {.idle.run = test_idle_run, .loop = l, .runs_max = 2};
    struct test_idle gone = {.idle.run = test_idle_run, .loop = l, .runs_max = 1};
    struct test_idle killer = {.idle.run = test_idle_run, .loop = l, .runs_max = 1, .victim = &gone};
    loop_idle_once(l, &again.idle);
    loop_idle_once(l, &again.idle);
    loop_idle_once(l, &killer.idle);
    loop_idle_once(l, &gone.idle);
    loop_turn(l, -1); /* hooks queued before the turn and again by a hook: it does not wait */
    assert_int_equal(again.runs, 2);
    assert_int_equal(killer.runs, 1);
    assert_int_equal(gone.runs, 0);
    loop_turn(l, 0);
    assert_int_equal(again.runs, 2);
    loop_idle_once(l, &gone.idle);
    loop_free(l);
    assert_false(loop_idle_is_queued(&gone.idle));
}

struct cpu_probe {
    struct timer t;
    struct loop *loop;
    int fires;
};

static void probe_fire(struct timer *t)
{
    CONTAINER_OF(t, struct cpu_probe, t)->fires++;
}

static void a_loop_with_nothing_to_do_takes_no_turns(void **state)
{
    (void)state;
    struct loop *l = new_loop(clock_system());
    struct cpu_probe probe = {.t.fire = probe_fire, .loop = l};
    loop_timer_set(l, &probe.t, clock_mono_us(clock_system()) + 50000);
    int turns = 0;
    for (; probe.fires == 0; turns++) loop_turn(l, -1);
    assert_true(turns <= 2);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_in_order_of_due_time_then_of_setting),
        cmocka_unit_test(a_timer_may_set_itself_and_cancel_others_that_are_due),
        cmocka_unit_test(a_wait_ends_at_the_nearest_timer_and_not_before),
        cmocka_unit_test(posts_of_several_threads_all_arrive_in_each_senders_order),
        cmocka_unit_test(no_wake_up_is_lost_between_sleepy_loops),
        cmocka_unit_test(a_message_posted_by_a_message_runs_in_the_next_turn),
        cmocka_unit_test(stop_comes_after_what_was_posted_before_and_a_loop_can_run_again),
        cmocka_unit_test(a_socket_removed_within_a_turn_is_not_called_in_it),
        cmocka_unit_test(sockets_are_served_while_there_is_always_mail),
        cmocka_unit_test(more_ready_sockets_than_one_turn_fetches_are_all_called_once),
        cmocka_unit_test(idle_hooks_run_once_at_the_end_of_a_turn),
        cmocka_unit_test(a_loop_with_nothing_to_do_takes_no_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
