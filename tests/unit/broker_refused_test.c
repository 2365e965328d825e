/* broker_refused_test.c: which batches come behind one that was refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "broker/refused.h"

static struct refused *set;

static struct batch_info batch(int64_t producer_id, int16_t epoch, int32_t sequence)
{
    return (struct batch_info){.producer_id = producer_id, .producer_epoch = epoch, .base_sequence = sequence};
}

static struct refused_at at(const char *topic, int32_t partition)
{
    return (struct refused_at){.topic = str_of(topic), .partition = partition};
}

static void note(struct refused_at where, struct batch_info b)
{
    refused_note(&set, &where, &b);
}

static bool before(struct refused_at where, struct batch_info b)
{
    return refused_before(set, &where, &b);
}

static void forget(struct refused_at where, struct batch_info b)
{
    refused_forget(&set, &where, &b);
}

static int teardown(void **state)
{
    (void)state;
    refused_free(&set);
    assert_null(set);
    return 0;
}

static void what_comes_later_is_behind_it_until_it_has_come_again(void **state)
{
    (void)state;
    assert_false(before(at("t", 0), batch(1, 0, 5)));
    note(at("t", 0), batch(1, 0, 5));
    assert_true(before(at("t", 0), batch(1, 0, 6)));
    assert_false(before(at("t", 0), batch(1, 0, 5)));
    assert_false(before(at("t", 0), batch(1, 0, 0)));
    forget(at("t", 0), batch(1, 0, 6)); /* not the one */
    assert_true(before(at("t", 0), batch(1, 0, 6)));
    forget(at("t", 0), batch(1, 0, 5));
    assert_false(before(at("t", 0), batch(1, 0, 6)));
}

static void the_first_of_several_counts(void **state)
{
    (void)state;
    note(at("t", 0), batch(1, 0, 5));
    note(at("t", 0), batch(1, 0, 7));
    assert_true(before(at("t", 0), batch(1, 0, 6)));
    note(at("t", 0), batch(1, 0, 3));
    assert_true(before(at("t", 0), batch(1, 0, 4)));
    forget(at("t", 0), batch(1, 0, 2)); /* an earlier one: all is behind it, too */
    assert_null(set);
}

static void another_producer_epoch_or_partition_is_not_concerned(void **state)
{
    (void)state;
    const struct refused_at by_id = {.topic_id = {{1}}}, other_id = {.topic_id = {{2}}};
    note(at("t", 0), batch(1, 0, 0));
    note(by_id, batch(1, 0, 0));
    assert_false(before(at("t", 0), batch(2, 0, 1)));
    assert_false(before(at("t", 0), batch(1, 1, 1)));
    assert_false(before(at("t", 1), batch(1, 0, 1)));
    assert_false(before(at("tt", 0), batch(1, 0, 1)));
    assert_false(before(other_id, batch(1, 0, 1)));
    assert_true(before(by_id, batch(1, 0, 1)));
    assert_true(before(at("t", 0), batch(1, 0, 1)));
}

static void sequences_go_round(void **state)
{
    (void)state;
    note(at("t", 0), batch(1, 0, INT32_MAX));
    assert_true(before(at("t", 0), batch(1, 0, 0)));
    assert_false(before(at("t", 0), batch(1, 0, INT32_MAX - 1)));
}

static void who_has_no_producer_id_has_no_order(void **state)
{
    (void)state;
    note(at("t", 0), batch(-1, -1, -1));
    note(at("t", 0), batch(1, 0, -1));
    assert_null(set);
}

static void a_name_that_no_topic_has_is_passed_over(void **state)
{
    (void)state;
    char name[300] = {0};
    memset(name, 'a', sizeof name - 1);
    note(at(name, 0), batch(1, 0, 0));
    assert_null(set);
    name[249] = '\0';
    note(at(name, 0), batch(1, 0, 0));
    assert_true(before(at(name, 0), batch(1, 0, 1)));
}

static void the_oldest_go_when_they_are_too_many(void **state)
{
    (void)state;
    for (int32_t i = 0; i <= REFUSED_MAX; i++) note(at("t", i), batch(1, 0, 0));
    assert_false(before(at("t", 0), batch(1, 0, 1)));
    assert_true(before(at("t", 1), batch(1, 0, 1)));
    assert_true(before(at("t", REFUSED_MAX), batch(1, 0, 1)));
}

#define TEST(f) cmocka_unit_test_teardown(f, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_comes_later_is_behind_it_until_it_has_come_again),
        TEST(the_first_of_several_counts),
        TEST(another_producer_epoch_or_partition_is_not_concerned),
        TEST(sequences_go_round),
        TEST(who_has_no_producer_id_has_no_order),
        TEST(a_name_that_no_topic_has_is_passed_over),
        TEST(the_oldest_go_when_they_are_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
