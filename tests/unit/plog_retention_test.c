/* plog/retention: which segments go, by which rule, and when the others do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plog/retention.h"

enum { NOW_MS = 100000 };

static const struct retention_rules no_limits = {
    .cleanup_delete = true, .retention_ms = -1, .retention_bytes = -1, .now_ms = NOW_MS, .below = INT64_MAX};

struct newest {
    int64_t ms;
    int asked;
};

static enum err newest(void *arg, int64_t *newest_ms)
{
    struct newest *n = arg;
    n->asked++;
    *newest_ms = n->ms;
    return OK;
}

static enum err unreadable(void *arg, int64_t *newest_ms)
{
    (void)arg;
    *newest_ms = NOW_MS;
    return ERR_IO;
}

/* A log of three segments of 100 bytes and 10 offsets; the first three values are their newest timestamps. */
static void judge(const struct retention_rules *rules, const int64_t times[3], struct retention_opinion out[3])
{
    struct retention r;
    retention_begin(&r, rules, 300);
    for (int i = 0; i < 3; i++) {
        struct newest n = {.ms = times[i]};
        const struct retention_segment seg = {.end = 10 * (i + 1), .size = 100, .last = i == 2};
        assert_int_equal(retention_next(&r, &seg, newest, &n, &out[i]), OK);
    }
}

static void assert_verdicts(const struct retention_opinion o[3], enum retention_verdict a, enum retention_verdict b,
                            enum retention_verdict c)
{
    assert_int_equal(o[0].verdict, a);
    assert_int_equal(o[1].verdict, b);
    assert_int_equal(o[2].verdict, c);
}

static const int64_t times[] = {10000, 20000, 30000};

static void test_without_limits_all_stay(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    judge(&no_limits, times, o);
    assert_verdicts(o, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS);
    assert_true(o[0].due_ms == INT64_MAX && o[0].more_bytes == INT64_MAX);
}

static void test_what_is_older_than_retention_ms_goes_one_millisecond_later(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    struct retention_rules rules = no_limits;
    rules.retention_ms = NOW_MS - 20000;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_TIME, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS);
    assert_int_equal(o[1].due_ms, NOW_MS + 1);
    rules.now_ms++;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_TIME, RETENTION_GO_TIME, RETENTION_KEEP_LIMITS);
    rules.retention_ms = 0;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_TIME, RETENTION_GO_TIME,
                    RETENTION_GO_TIME); /* the active one too, if it has data */
}

static void test_a_young_segment_keeps_the_old_ones_behind_it(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    struct retention_rules rules = no_limits;
    rules.retention_ms = 1000;
    judge(&rules, (const int64_t[]){NOW_MS, 0, 0}, o);
    assert_verdicts(o, RETENTION_KEEP_LIMITS, RETENTION_KEEP_BEHIND, RETENTION_KEEP_BEHIND);
}

static void test_the_log_stays_as_long_as_retention_bytes(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    struct retention_rules rules = no_limits;
    rules.retention_bytes = 200;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_SIZE, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS);
    assert_int_equal(o[1].more_bytes, 100);
    rules.retention_bytes = 201;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS);
    assert_int_equal(o[0].more_bytes, 1);
    rules.retention_bytes = 0;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_SIZE, RETENTION_GO_SIZE, RETENTION_GO_SIZE);
}

static void test_what_lies_below_the_start_goes_whatever_the_policy(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    struct retention_rules rules = no_limits;
    rules.cleanup_delete = false;
    rules.retention_ms = rules.retention_bytes = 0;
    rules.log_start = 20;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_START, RETENTION_GO_START, RETENTION_KEEP_POLICY);
    rules.log_start = 19;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_START, RETENTION_KEEP_POLICY, RETENTION_KEEP_POLICY);
    assert_true(o[1].due_ms == INT64_MAX && o[1].more_bytes == INT64_MAX);
    rules.log_start = 30; /* the active one is there to be written to */
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_START, RETENTION_GO_START, RETENTION_KEEP_POLICY);
}

static void test_nothing_above_the_high_watermark_goes(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    struct retention_rules rules = no_limits;
    rules.retention_ms = rules.retention_bytes = 0;
    rules.log_start = 30;
    rules.below = 19;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_GO_START, RETENTION_KEEP_ABOVE, RETENTION_KEEP_ABOVE);
}

static void test_an_empty_active_segment_stays_and_is_not_looked_into(void **state)
{
    (void)state;
    struct retention r;
    struct retention_opinion o;
    struct newest n = {.ms = 0};
    struct retention_rules rules = no_limits;
    rules.retention_ms = rules.retention_bytes = 0;
    retention_begin(&r, &rules, 0);
    const struct retention_segment seg = {.end = 0, .size = 0, .last = true};
    assert_int_equal(retention_next(&r, &seg, newest, &n, &o), OK);
    assert_int_equal(o.verdict, RETENTION_KEEP_EMPTY);
    assert_int_equal(n.asked, 0);
}

static void test_a_timestamp_that_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    struct retention r;
    struct retention_opinion o;
    struct retention_rules rules = no_limits;
    rules.retention_ms = 1;
    retention_begin(&r, &rules, 100);
    const struct retention_segment seg = {.end = 10, .size = 100};
    assert_int_equal(retention_next(&r, &seg, unreadable, NULL, &o), ERR_IO);
}

static void test_sums_that_overflow_mean_never(void **state)
{
    (void)state;
    struct retention_opinion o[3];
    struct retention_rules rules = no_limits;
    rules.retention_ms = INT64_MAX;
    judge(&rules, times, o);
    assert_verdicts(o, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS, RETENTION_KEEP_LIMITS);
    assert_true(o[0].due_ms == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_limits_all_stay),
        cmocka_unit_test(test_what_is_older_than_retention_ms_goes_one_millisecond_later),
        cmocka_unit_test(test_a_young_segment_keeps_the_old_ones_behind_it),
        cmocka_unit_test(test_the_log_stays_as_long_as_retention_bytes),
        cmocka_unit_test(test_what_lies_below_the_start_goes_whatever_the_policy),
        cmocka_unit_test(test_nothing_above_the_high_watermark_goes),
        cmocka_unit_test(test_an_empty_active_segment_stays_and_is_not_looked_into),
        cmocka_unit_test(test_a_timestamp_that_cannot_be_read_is_an_error),
        cmocka_unit_test(test_sums_that_overflow_mean_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
