/* cli: moments and durations as Java's tools read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "cli/moment.h"

static void moments_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"1970-01-01T00:00:00.000", 0},
        {"2026-01-31T12:00:00.000", 1769860800000},
        {"2026-01-31T12:00:00.25Z", 1769860800250},
        {"2026-01-31T12:00", 1769860800000},
        {"2026-01-31T12:00:00+01:00", 1769857200000},
        {"2026-01-31T12:00:00.000-0230", 1769869800000},
        {"2026-01-31T12:00:00.000+01", 1769857200000},
        {"2024-02-29T23:59:59.999Z", 1709251199999},
        {"1969-12-31T23:59:59.999Z", -1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        int64_t ms;
        if (!moment_parse(rows[i].text, &ms)) fail_msg("%s", rows[i].text);
        assert_int_equal(ms, rows[i].ms);
    }
}

static void what_is_no_moment_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "soon",
                                        "2026-01-31",
                                        "2026-01-31 12:00:00",
                                        "2026-02-30T00:00:00",
                                        "2026-13-01T00:00:00",
                                        "2026-01-01T24:00:00",
                                        "2026-01-01T00:60:00",
                                        "2026-01-01T00:00:00.",
                                        "2026-01-01T00:00:00+1",
                                        "2026-01-01T00:00:00+24:00",
                                        "2026-01-01T00:00:00Zulu",
                                        "26-01-01T00:00:00"};
    int64_t ms;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (moment_parse(texts[i], &ms)) fail_msg("'%s' is a moment?", texts[i]);
}

static void moments_are_written(void **state)
{
    (void)state;
    char text[MOMENT_TEXT_MAX];
    moment_format(1769860800250, text);
    assert_string_equal(text, "2026-01-31T12:00:00.250Z");
    moment_format(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    moment_format(INT64_MAX, text); /* fits nowhere, and harms nobody */
    moment_format(INT64_MIN, text);
}

static void durations_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"PT1H", 3600000}, {"P1D", 86400000},    {"P1DT2H3M4.5S", 93784500}, {"pt0.001s", 1},         {"-PT1M", -60000},
        {"PT-1M", -60000}, {"P-1DT24H", 0},      {"PT1H-30M", 1800000},      {"-P1DT-1H", -82800000}, {"+PT+5S", 5000},
        {"PT-0.5S", -500}, {"PT36H", 129600000},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        int64_t ms;
        if (!duration_parse(rows[i].text, &ms)) fail_msg("%s", rows[i].text);
        if (ms != rows[i].ms) fail_msg("%s is %lld", rows[i].text, (long long)ms);
    }
}

static void what_is_no_duration_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "P",
                                        "PT",
                                        "1H",
                                        "P1H",
                                        "PT1D",
                                        "PT1M1H",
                                        "PT1H1H",
                                        "P1DT",
                                        "PT1",
                                        "P1.5D",
                                        "PT1.5H",
                                        "PTS",
                                        "P1W",
                                        "PT1S ",
                                        "PT99999999999999999999S",
                                        "P9223372036854775807D",
                                        "-PT-153722867280912M-55.808S"};
    int64_t ms;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (duration_parse(texts[i], &ms)) fail_msg("'%s' is a duration?", texts[i]);
}

static void a_moment_before_another_never_wraps(void **state)
{
    (void)state;
    assert_int_equal(moment_before(1000, 1), 999);
    assert_int_equal(moment_before(1000, -1), 1001);
    assert_true(moment_before(-2, INT64_MAX) == INT64_MIN);
    assert_true(moment_before(0, INT64_MIN) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_read),
        cmocka_unit_test(what_is_no_moment_is_refused),
        cmocka_unit_test(moments_are_written),
        cmocka_unit_test(durations_are_read),
        cmocka_unit_test(what_is_no_duration_is_refused),
        cmocka_unit_test(a_moment_before_another_never_wraps),
    };
    return cmocka_run_group_tests_name("cli_moment", tests, NULL, NULL);
}
