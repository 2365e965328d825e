/* config: the syntax of server.properties is Java's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "broker/config.h"

static struct config_map *parse(const char *text)
{
    struct config_map *m = config_map_new();
    struct fault f = {0};
    assert_int_equal(config_parse_properties(m, str_of(text), "f", &f), OK);
    return m;
}

static void keys_end_at_equals_colon_or_space(void **state)
{
    (void)state;
    struct config_map *m = parse("a=1\nb:2\nc 3\nd = 4\ne\t:\t5\nf  =  = 6\ng==7\n  h=8\ni\nj =\n");
    assert_string_equal(config_map_get(m, "a"), "1");
    assert_string_equal(config_map_get(m, "b"), "2");
    assert_string_equal(config_map_get(m, "c"), "3");
    assert_string_equal(config_map_get(m, "d"), "4");
    assert_string_equal(config_map_get(m, "e"), "5");
    assert_string_equal(config_map_get(m, "f"), "= 6");
    assert_string_equal(config_map_get(m, "g"), "=7");
    assert_string_equal(config_map_get(m, "h"), "8");
    assert_string_equal(config_map_get(m, "i"), "");
    assert_string_equal(config_map_get(m, "j"), "");
    assert_int_equal(config_map_count(m), 10);
    config_map_free(m);
}

static void comments_and_empty_lines_are_no_pairs(void **state)
{
    (void)state;
    struct config_map *m = parse("# a=1\n! b=2\n\n   \t\f\n  # c=3 \\\nd=4 # kept\n\\\n# e=5\n\\");
    assert_int_equal(config_map_count(m), 1);
    assert_string_equal(config_map_get(m, "d"), "4 # kept");
    config_map_free(m);
}

static void backslashes_continue_lines_and_drop_leading_spaces(void **state)
{
    (void)state;
    struct config_map *m = parse("a=1,\\\n    2,\\\r\n\t3\nb=x\\\\\nc=y\\\\\\\n z\nd=1\\\n# 2\ne=end\\");
    assert_string_equal(config_map_get(m, "a"), "1,2,3");
    assert_string_equal(config_map_get(m, "b"), "x\\");
    assert_string_equal(config_map_get(m, "c"), "y\\z");
    assert_string_equal(config_map_get(m, "d"), "1# 2");
    assert_string_equal(config_map_get(m, "e"), "end");
    config_map_free(m);
}

static void escapes_are_javas(void **state)
{
    (void)state;
    struct config_map *m =
        parse("a\\ b\\=c\\:d = \\ x\\ty\\nz\\q\\\"\nu=\\u0041\\u00e4\\u20AC\\ud83d\\ude00\\ud83d!\n");
    assert_string_equal(config_map_get(m, "a b=c:d"), " x\ty\nzq\"");
    assert_string_equal(config_map_get(m, "u"), "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd!");
    config_map_free(m);
}

static void the_last_of_equal_keys_wins_and_lines_are_known(void **state)
{
    (void)state;
    struct config_map *m = parse("# one\nk=1\r\rx=y\\\n z\nk=2");
    assert_string_equal(config_map_get(m, "k"), "2");
    assert_string_equal(config_map_at(m, 0)->name, "k");
    assert_int_equal(config_map_at(m, 0)->line, 6);
    assert_int_equal(config_map_at(m, 1)->line, 4);
    config_map_free(m);
}

static void malformed_text_is_told_with_its_line(void **state)
{
    (void)state;
    struct config_map *m = config_map_new();
    struct fault f = {0};
    assert_int_equal(config_parse_properties(m, STR("a=1\nb=\\u00g1\n"), "s.properties", &f), ERR_INVALID);
    assert_string_equal(f.text, "s.properties:2: Malformed \\uxxxx encoding");
    assert_int_equal(config_parse_properties(m, STR("a=1\n\nb=\\u12"), "s.properties", &f), ERR_INVALID);
    assert_string_equal(f.text, "s.properties:3: Malformed \\uxxxx encoding");
    assert_int_equal(config_parse_properties(m, STR("a=\\u0000"), "s.properties", &f), ERR_INVALID);
    assert_int_equal(config_parse_properties(m, STR("a=x\0y"), "s.properties", &f), ERR_INVALID);
    assert_int_equal(config_parse_properties(m, STR("\n=x"), "s.properties", &f), ERR_INVALID);
    assert_string_equal(f.text, "s.properties:2: there is no key before the value");
    char *big = mem_zalloc(CONFIG_FILE_BYTES_MAX + 1, 1);
    assert_int_equal(config_parse_properties(m, (struct str){big, CONFIG_FILE_BYTES_MAX + 1}, "s.properties", &f),
                     ERR_TOO_BIG);
    mem_free(big);
    config_map_free(m);
}

static void maps_keep_their_order_and_copies_their_own_text(void **state)
{
    (void)state;
    struct config_map *m = config_map_new();
    config_map_set(m, STR("b"), STR("2"));
    config_map_set(m, STR("c"), STR("3"));
    config_map_set(m, STR("a"), STR("1"));
    struct config_map *copy = config_map_copy(m);
    config_map_set(m, STR("b"), STR("new"));
    assert_true(config_map_remove(m, "a"));
    assert_false(config_map_remove(m, "a"));
    assert_int_equal(config_map_count(m), 2);
    assert_string_equal(config_map_at(m, 0)->value, "new");
    assert_int_equal(config_map_count(copy), 3);
    assert_string_equal(config_map_at(copy, 0)->name, "a");
    assert_string_equal(config_map_get(copy, "b"), "2");
    assert_null(config_map_get(copy, "d"));
    config_map_free(m);
    config_map_free(copy);
    config_map_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_end_at_equals_colon_or_space),
        cmocka_unit_test(comments_and_empty_lines_are_no_pairs),
        cmocka_unit_test(backslashes_continue_lines_and_drop_leading_spaces),
        cmocka_unit_test(escapes_are_javas),
        cmocka_unit_test(the_last_of_equal_keys_wins_and_lines_are_known),
        cmocka_unit_test(malformed_text_is_told_with_its_line),
        cmocka_unit_test(maps_keep_their_order_and_copies_their_own_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
