/* replica: the rules by which followers are in sync, and what they allow the high watermark. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "replica/in_sync.h"

enum { SELF = 1, LAG_MS = 1000, T0_MS = 5000 };

static struct in_sync s;

/* This broker leads a partition of brokers 1, 2 and 3, and its log ends at 100. */
static void lead(const int32_t *isr, int32_t isr_count, int32_t partition_epoch, bool new_epoch, bool new_leader)
{
    static const int32_t replicas[] = {2, SELF, 3};
    in_sync_assign(&s, &(struct in_sync_told){.self = SELF,
                                              .replicas = replicas,
                                              .replica_count = 3,
                                              .isr = isr,
                                              .isr_count = isr_count,
                                              .partition_epoch = partition_epoch,
                                              .new_epoch = new_epoch,
                                              .new_leader = new_leader,
                                              .end = 100,
                                              .now_ms = T0_MS});
}

#define LEAD(...) \
    lead((int32_t[]){__VA_ARGS__}, (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), 0, true, true)

static int start(void **state)
{
    (void)state;
    in_sync_init(&s);
    s.lag_max_ms = LAG_MS;
    return 0;
}

static int finish(void **state)
{
    (void)state;
    in_sync_fini(&s);
    return 0;
}

/* The follower has all below `offset`, while our log ends at `end`. */
static void fetched(int32_t id, int64_t offset, int64_t end, int64_t now_ms)
{
    const struct follower_news news = {
        .fetch_offset = offset, .log_start = 0, .broker_epoch = -1, .end = end, .now_ms = now_ms};
    assert_true(in_sync_note(&s, in_sync_find(&s, id), &news));
}

static void assert_proposal(const int32_t *ids, int32_t count)
{
    int32_t got[3];
    int64_t epochs[3];
    assert_int_equal(in_sync_proposal(&s, 70, got, epochs), count);
    for (int32_t i = 0; i < count; i++) assert_int_equal(got[i], ids[i]);
    assert_int_equal(epochs[0], 70);
}

/* ---- High watermark */

static void a_member_that_nobody_has_heard_of_holds_the_high_watermark(void **state)
{
    (void)state;
    LEAD(1, 2, 3);
    assert_int_equal(in_sync_high_watermark(&s, 100, 1), -1);
    fetched(2, 100, 100, T0_MS);
    assert_int_equal(in_sync_high_watermark(&s, 100, 1), -1);
    fetched(3, 90, 100, T0_MS);
    assert_int_equal(in_sync_high_watermark(&s, 100, 1), 90);
    fetched(3, 100, 100, T0_MS);
    assert_int_equal(in_sync_high_watermark(&s, 104, 1), 100);
}

static void a_leader_alone_in_the_set_goes_by_its_own_end(void **state)
{
    (void)state;
    LEAD(1);
    assert_true(in_sync_is_alone(&s, 100));
    assert_int_equal(in_sync_high_watermark(&s, 123, 1), 123);
    assert_int_equal(in_sync_due_ms(&s), INT64_MAX);
}

static void one_that_is_out_but_has_caught_up_holds_it_too(void **state)
{
    (void)state;
    LEAD(1);
    fetched(2, 80, 100, T0_MS); /* it has a way to go */
    assert_int_equal(in_sync_high_watermark(&s, 100, 1), 100);
    fetched(2, 100, 110, T0_MS + 10); /* all that there was at its last fetch */
    assert_false(in_sync_is_alone(&s, 120));
    assert_int_equal(in_sync_high_watermark(&s, 120, 1), 100);
    in_sync_find(&s, 2)->eligible = false; /* its broker is gone: it is not about to enter */
    assert_int_equal(in_sync_high_watermark(&s, 120, 1), 120);
    in_sync_find(&s, 2)->eligible = true;
    s.now_ms = T0_MS + LAG_MS; /* when it fetched first it had caught up then */
    assert_int_equal(in_sync_high_watermark(&s, 120, 1), 100);
    s.now_ms++;
    assert_int_equal(in_sync_high_watermark(&s, 120, 1), 120);
}

static void it_stands_still_while_the_set_is_smaller_than_it_must_be(void **state)
{
    (void)state;
    LEAD(1, 2);
    fetched(2, 100, 100, T0_MS);
    assert_int_equal(in_sync_high_watermark(&s, 100, 2), 100);
    assert_int_equal(in_sync_high_watermark(&s, 100, 3), -1);
    assert_int_equal(in_sync_high_watermark(&s, 100, 9), -1);
    LEAD(1, 2, 3);
    fetched(2, 100, 100, T0_MS);
    fetched(3, 100, 100, T0_MS);
    assert_int_equal(in_sync_high_watermark(&s, 100, 9), 100); /* there are no more replicas than that */
}

/* ---- Who enters */

static void a_follower_enters_at_the_high_watermark_and_not_before(void **state)
{
    (void)state;
    LEAD(1, 2);
    fetched(2, 100, 110, T0_MS);
    fetched(3, 104, 104, T0_MS);
    fetched(3, 104, 110, T0_MS);
    assert_false(in_sync_propose_entry(&s, 105, 110));
    assert_true(in_sync_propose_entry(&s, 104, 110));
    assert_proposal((int32_t[]){1, 2, 3}, 3);
    assert_int_equal(s.members, 2);
    assert_int_equal(in_sync_members_max(&s), 3);
}

/* Else one that is silent comes and goes as fast as the controller answers while the high watermark stands still. */
static void who_lags_does_not_enter(void **state)
{
    (void)state;
    LEAD(1);
    fetched(2, 100, 100, T0_MS);
    s.now_ms = T0_MS + LAG_MS + 1;
    assert_false(in_sync_propose_entry(&s, 100, 101));
    fetched(2, 101, 101, s.now_ms);
    assert_true(in_sync_propose_entry(&s, 100, 101));
}

static void it_must_have_reached_where_this_leadership_begins(void **state)
{
    (void)state;
    LEAD(1);
    fetched(2, 99, 100, T0_MS);
    assert_false(in_sync_propose_entry(&s, 50, 100)); /* the high watermark is old */
    fetched(2, 100, 100, T0_MS);
    assert_true(in_sync_propose_entry(&s, 50, 100));
}

static void who_is_proposed_holds_the_high_watermark_already(void **state)
{
    (void)state;
    LEAD(1);
    fetched(2, 100, 100, T0_MS);
    assert_true(in_sync_propose_entry(&s, 100, 100));
    s.now_ms = T0_MS + 100 * LAG_MS; /* it lags for long, but the controller may have let it in */
    assert_int_equal(in_sync_high_watermark(&s, 130, 1), 100);
    in_sync_withdraw(&s);
    assert_int_equal(in_sync_high_watermark(&s, 130, 1), 130);
}

static void nothing_is_proposed_while_an_answer_is_awaited(void **state)
{
    (void)state;
    LEAD(1);
    fetched(2, 100, 100, T0_MS);
    assert_true(in_sync_propose_entry(&s, 100, 100));
    uint32_t version = s.version;
    fetched(3, 100, 100, T0_MS);
    assert_false(in_sync_propose_entry(&s, 100, 100));
    assert_int_equal(s.version, version);
    in_sync_commit(&s, (int32_t[]){1, 2}, 2, 7);
    assert_int_not_equal(s.version, version);
    assert_int_equal(s.partition_epoch, 7);
    assert_int_equal(s.members, 2);
    assert_true(in_sync_propose_entry(&s, 100, 100));
    assert_proposal((int32_t[]){1, 2, 3}, 3);
}

static void a_dead_brokers_follower_is_not_proposed(void **state)
{
    (void)state;
    LEAD(1);
    fetched(2, 100, 100, T0_MS);
    in_sync_find(&s, 2)->eligible = false;
    assert_false(in_sync_propose_entry(&s, 100, 100));
}

static void a_fetch_of_an_earlier_life_is_refused(void **state)
{
    (void)state;
    LEAD(1, 2);
    struct follower *f = in_sync_find(&s, 2);
    struct follower_news news = {.fetch_offset = 50, .broker_epoch = 9, .end = 100, .now_ms = T0_MS};
    assert_true(in_sync_note(&s, f, &news));
    news.broker_epoch = 8;
    news.fetch_offset = 100;
    assert_false(in_sync_note(&s, f, &news));
    assert_int_equal(f->end, 50);
    int32_t ids[3];
    int64_t epochs[3];
    assert_int_equal(in_sync_proposal(&s, 1, ids, epochs), 2);
    assert_int_equal(epochs[1], 9);
}

/* ---- Who leaves */

static void a_follower_leaves_when_it_has_lagged_for_too_long(void **state)
{
    (void)state;
    LEAD(1, 2, 3);
    fetched(2, 100, 100, T0_MS);
    fetched(3, 100, 100, T0_MS);
    fetched(3, 110, 110, T0_MS + LAG_MS);
    assert_int_equal(in_sync_due_ms(&s), T0_MS + LAG_MS + 1);
    assert_false(in_sync_propose_exit(&s, 110));
    s.now_ms = T0_MS + LAG_MS + 1;
    assert_true(in_sync_propose_exit(&s, 110));
    assert_proposal((int32_t[]){1, 3}, 2);
    assert_int_equal(in_sync_high_watermark(&s, 110, 1), 100); /* until the controller has agreed */
    in_sync_commit(&s, (int32_t[]){1, 3}, 2, 1);
    assert_int_equal(in_sync_high_watermark(&s, 110, 1), 110);
}

static void one_that_has_all_there_is_stays_however_long_it_is_silent(void **state)
{
    (void)state;
    LEAD(1, 2);
    fetched(2, 100, 100, T0_MS);
    s.now_ms = T0_MS + 50 * LAG_MS;
    assert_false(in_sync_propose_exit(&s, 100));
    assert_true(in_sync_due_ms(&s) > s.now_ms);
    assert_true(in_sync_due_ms(&s) <= s.now_ms + LAG_MS); /* from the next append on it lags */
    assert_true(in_sync_propose_exit(&s, 101));
}

static void one_that_keeps_a_distance_under_load_has_not_lagged(void **state)
{
    (void)state;
    LEAD(1, 2);
    int64_t end = 100;
    for (int64_t now_ms = T0_MS; now_ms < T0_MS + 10 * LAG_MS; now_ms += 100, end += 10) {
        fetched(2, end - 10, end, now_ms); /* what there was at the fetch before */
        assert_false(in_sync_propose_exit(&s, end));
    }
}

static void one_that_falls_behind_while_it_fetches_leaves(void **state)
{
    (void)state;
    LEAD(1, 2);
    bool leaves = false;
    int64_t end = 100, has = 100, now_ms = T0_MS;
    for (; now_ms <= T0_MS + 2 * LAG_MS && !leaves; now_ms += 100, end += 10, has += 5) {
        fetched(2, has, end, now_ms);
        leaves = in_sync_propose_exit(&s, end);
    }
    assert_true(leaves);
    assert_true(now_ms > T0_MS + LAG_MS);
}

static void a_new_leader_gives_members_their_full_time(void **state)
{
    (void)state;
    LEAD(1, 2);
    s.now_ms = T0_MS + LAG_MS;
    assert_false(in_sync_propose_exit(&s, 100));
    s.now_ms++;
    assert_true(in_sync_propose_exit(&s, 100));
}

/* ---- Roles */

static void a_leader_that_goes_on_remembers_its_followers(void **state)
{
    (void)state;
    LEAD(1, 2, 3);
    fetched(2, 100, 100, T0_MS);
    fetched(3, 100, 100, T0_MS);
    lead((int32_t[]){1, 2, 3}, 3, 1, true, false); /* the next epoch, the same leader */
    assert_int_equal(in_sync_high_watermark(&s, 100, 1), 100);
    lead((int32_t[]){1, 2, 3}, 3, 2, true, true); /* another had led in between */
    assert_int_equal(in_sync_high_watermark(&s, 100, 1), -1);
}

static void the_controllers_word_ends_a_proposal(void **state)
{
    (void)state;
    LEAD(1, 2);
    fetched(3, 100, 100, T0_MS);
    assert_true(in_sync_propose_entry(&s, 50, 100));
    uint32_t version = s.version;
    lead((int32_t[]){1, 2}, 2, 5, false, false);
    assert_false(s.proposed);
    assert_int_not_equal(s.version, version);
    assert_int_equal(in_sync_find(&s, 3)->state, FOLLOWER_OUT);
    assert_int_equal(in_sync_find(&s, 3)->end, 100);
}

static void the_low_watermark_is_the_least_start_of_the_living(void **state)
{
    (void)state;
    LEAD(1, 2, 3);
    assert_int_equal(in_sync_low_watermark(&s, 40), -1);
    fetched(2, 100, 100, T0_MS);
    fetched(3, 100, 100, T0_MS);
    in_sync_find(&s, 2)->log_start = 30;
    in_sync_find(&s, 3)->log_start = 20;
    assert_int_equal(in_sync_low_watermark(&s, 40), 20);
    in_sync_find(&s, 3)->eligible = false;
    assert_int_equal(in_sync_low_watermark(&s, 40), 30);
    assert_int_equal(in_sync_low_watermark(&s, 25), 25);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_member_that_nobody_has_heard_of_holds_the_high_watermark),
        TEST(a_leader_alone_in_the_set_goes_by_its_own_end),
        TEST(one_that_is_out_but_has_caught_up_holds_it_too),
        TEST(it_stands_still_while_the_set_is_smaller_than_it_must_be),
        TEST(a_follower_enters_at_the_high_watermark_and_not_before),
        TEST(who_lags_does_not_enter),
        TEST(it_must_have_reached_where_this_leadership_begins),
        TEST(who_is_proposed_holds_the_high_watermark_already),
        TEST(nothing_is_proposed_while_an_answer_is_awaited),
        TEST(a_dead_brokers_follower_is_not_proposed),
        TEST(a_fetch_of_an_earlier_life_is_refused),
        TEST(a_follower_leaves_when_it_has_lagged_for_too_long),
        TEST(one_that_has_all_there_is_stays_however_long_it_is_silent),
        TEST(one_that_keeps_a_distance_under_load_has_not_lagged),
        TEST(one_that_falls_behind_while_it_fetches_leaves),
        TEST(a_new_leader_gives_members_their_full_time),
        TEST(a_leader_that_goes_on_remembers_its_followers),
        TEST(the_controllers_word_ends_a_proposal),
        TEST(the_low_watermark_is_the_least_start_of_the_living),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
