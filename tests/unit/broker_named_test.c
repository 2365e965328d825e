/* broker_named_test.c: repeats in a request's lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/api/named.h"

static void repeats_are_marked_where_they_stand(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct named n[] = {
        {.topic = STR("b"), .partition = 1}, {.topic = STR("a"), .partition = 1}, {.topic = STR("b"), .partition = 2},
        {.topic = STR("b"), .partition = 1}, {.topic = STR("b"), .partition = 1}, {.topic = STR(""), .partition = 1},
    };
    named_find_repeats(n, ARRAY_COUNT(n), &arena);
    assert_string_equal(n[0].topic.data, "b");
    assert_true(n[0].repeated);
    assert_false(n[0].again);
    assert_true(n[3].repeated && n[3].again);
    assert_true(n[4].repeated && n[4].again);
    for (size_t i = 0; i < ARRAY_COUNT(n); i++)
        if (i != 0 && i != 3 && i != 4) assert_false(n[i].repeated || n[i].again);
    arena_fini(&arena);
}

static void one_or_no_item_has_no_repeats(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct named n = {.topic = STR("a")};
    named_find_repeats(&n, 1, &arena);
    named_find_repeats(NULL, 0, &arena);
    assert_false(n.repeated || n.again);
    arena_fini(&arena);
}

static void a_null_topic_is_not_an_empty_one(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct named n[] = {{.topic = STR_NULL}, {.topic = STR("")}, {.topic = STR_NULL}};
    named_find_repeats(n, ARRAY_COUNT(n), &arena);
    assert_true(n[0].repeated && !n[0].again);
    assert_false(n[1].repeated);
    assert_true(n[2].again);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_are_marked_where_they_stand),
        cmocka_unit_test(one_or_no_item_has_no_repeats),
        cmocka_unit_test(a_null_topic_is_not_an_empty_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
