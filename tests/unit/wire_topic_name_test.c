/* wire_topic_name_test.c: Kafka's rules for topic names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/topic_name.h"

static void names_that_kafka_takes_are_valid(void **state)
{
    (void)state;
    char longest[TOPIC_NAME_MAX];
    memset(longest, 'x', sizeof longest);
    assert_true(topic_name_is_valid((struct str){longest, sizeof longest}));
    assert_true(topic_name_is_valid(STR("a")));
    assert_true(topic_name_is_valid(STR("...")));
    assert_true(topic_name_is_valid(STR("__consumer_offsets")));
    assert_true(topic_name_is_valid(STR("A-z_0.9")));
}

static void names_that_kafka_refuses_are_not(void **state)
{
    (void)state;
    char longer[TOPIC_NAME_MAX + 1];
    memset(longer, 'x', sizeof longer);
    assert_false(topic_name_is_valid((struct str){longer, sizeof longer}));
    const struct str bad[] = {STR_NULL,   STR(""),     STR("."),   STR(".."),         STR("a b"),
                              STR("a/b"), STR("a\0b"), STR("a\n"), STR("gr\xc3\xbc"), STR("a:b")};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) assert_non_null(topic_name_fault(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_kafka_takes_are_valid),
        cmocka_unit_test(names_that_kafka_refuses_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
