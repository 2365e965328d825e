/* controller/assign: who holds what, against Kafka's documented examples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "controller/assign.h"
#include "controller/topic_name.h"

static struct arena arena;

static enum kerr assign(const struct assign_broker *brokers, size_t count, int32_t partitions, int16_t factor,
                        int32_t first, int32_t **out, struct str *message)
{
    struct assign_request rq = {.brokers = brokers,
                                .broker_count = count,
                                .partition_count = partitions,
                                .replication_factor = factor,
                                .first_partition = first,
                                .fixed_start = 0};
    return assign_replicas(&rq, &arena, out, message);
}

/* Kafka's table for five brokers: from round to round the followers shift by one more. */
static void replicas_go_round_with_a_growing_shift(void **state)
{
    (void)state;
    const struct assign_broker brokers[] = {{0, STR_NULL}, {1, STR_NULL}, {2, STR_NULL}, {3, STR_NULL}, {4, STR_NULL}};
    static const int32_t expected[][3] = {{0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 0}, {4, 0, 1},
                                          {0, 2, 3}, {1, 3, 4}, {2, 4, 0}, {3, 0, 1}, {4, 1, 2}};
    int32_t *out;
    struct str message;
    assert_int_equal(assign(brokers, 5, 10, 3, 0, &out, &message), KERR_NONE);
    assert_memory_equal(out, expected, sizeof expected);
}

/* The example in Kafka's documentation of rack aware assignment. */
static void replicas_go_to_different_racks(void **state)
{
    (void)state;
    const struct assign_broker brokers[] = {{0, STR("rack1")}, {1, STR("rack3")}, {2, STR("rack3")},
                                            {3, STR("rack2")}, {4, STR("rack2")}, {5, STR("rack1")}};
    static const int32_t expected[][3] = {{0, 3, 1}, {3, 1, 5}, {1, 5, 4}, {5, 4, 2}, {4, 2, 0}, {2, 0, 3}, {0, 4, 2}};
    int32_t *out;
    struct str message;
    assert_int_equal(assign(brokers, 6, 7, 3, 0, &out, &message), KERR_NONE);
    assert_memory_equal(out, expected, sizeof expected);
}

static void more_partitions_go_on_where_the_others_ended(void **state)
{
    (void)state;
    const struct assign_broker brokers[] = {{1, STR_NULL}, {2, STR_NULL}, {3, STR_NULL}};
    int32_t *all, *more;
    struct str message;
    assert_int_equal(assign(brokers, 3, 2, 1, 0, &all, &message), KERR_NONE);
    assert_int_equal(assign(brokers, 3, 2, 1, 2, &more, &message), KERR_NONE);
    assert_int_equal(all[0], 1);
    assert_int_equal(all[1], 2);
    assert_int_equal(more[0], 3);
    assert_int_equal(more[1], 1);
}

static void impossible_numbers_are_refused_in_kafkas_words(void **state)
{
    (void)state;
    const struct assign_broker brokers[] = {{1, STR_NULL}};
    int32_t *out;
    struct str message;
    assert_int_equal(assign(brokers, 1, 0, 1, 0, &out, &message), KERR_INVALID_PARTITIONS);
    assert_true(str_is(message, "Number of partitions must be larger than 0."));
    assert_int_equal(assign(brokers, 1, 1, 0, 0, &out, &message), KERR_INVALID_REPLICATION_FACTOR);
    assert_true(str_is(message, "Replication factor must be larger than 0."));
    assert_int_equal(assign(brokers, 1, 1, 3, 0, &out, &message), KERR_INVALID_REPLICATION_FACTOR);
    assert_true(str_is(message, "Replication factor: 3 larger than available brokers: 1."));
}

static void topic_names_are_checked_by_kafkas_rules(void **state)
{
    (void)state;
    struct str message;
    char name[251];
    memset(name, 'a', sizeof name);
    assert_true(topic_name_check((struct str){name, 249}, &arena, &message));
    assert_false(topic_name_check((struct str){name, 250}, &arena, &message));
    assert_true(topic_name_check(STR("A-z_0.9"), &arena, &message));
    assert_true(topic_name_check(STR("..."), &arena, &message));
    assert_false(topic_name_check(STR(""), &arena, &message));
    assert_false(topic_name_check(STR("."), &arena, &message));
    assert_false(topic_name_check(STR(".."), &arena, &message));
    assert_true(str_is(message, "Topic name is invalid: '..' is not allowed"));
    assert_false(topic_name_check(STR("a/b"), &arena, &message));
    assert_false(topic_name_check(STR("a b"), &arena, &message));
    assert_false(topic_name_check(STR("\xc3\xa4"), &arena, &message));
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, SIZE_MAX);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_go_round_with_a_growing_shift),
        cmocka_unit_test(replicas_go_to_different_racks),
        cmocka_unit_test(more_partitions_go_on_where_the_others_ended),
        cmocka_unit_test(impossible_numbers_are_refused_in_kafkas_words),
        cmocka_unit_test(topic_names_are_checked_by_kafkas_rules),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
