/* config: docs/configuration.md is what the table says.  With --write the page is made anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/config_internal.h"

static const char page[] = "docs/configuration.md"; /* from the repository's root */

static void rows_are_sorted_by_name(void **state)
{
    (void)state;
    for (int i = 1; i < CFG_COUNT; i++)
        assert_true(strcmp(config_broker_rows[i - 1].name, config_broker_rows[i].name) < 0);
    for (int i = 1; i < TCFG_COUNT; i++)
        assert_true(strcmp(config_topic_rows[i - 1].name, config_topic_rows[i].name) < 0);
    assert_int_equal(config_broker_find("num.partitions"), CFG_NUM_PARTITIONS);
    assert_int_equal(config_broker_find("num.partition"), -1);
    assert_int_equal(config_topic_find("retention.ms"), TCFG_RETENTION_MS);
}

static void defaults_obey_their_own_rules(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    for (int i = 0; i < CFG_COUNT + TCFG_COUNT; i++) {
        const struct config_row *row = i < CFG_COUNT ? &config_broker_rows[i] : &config_topic_rows[i - CFG_COUNT];
        if (!row->default_text) continue;
        struct config_value v;
        struct fault f = {0};
        if (config_value_parse(&v, row, str_of(row->default_text), &a, &f) != OK) fail_msg("%s", f.text);
        assert_string_equal(v.text, row->default_text);
    }
    arena_fini(&a);
}

static void the_page_is_what_the_table_says(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *mem = open_memstream(&text, &size);
    assert_non_null(mem);
    assert_true(config_write_markdown(mem));
    fclose(mem);
    FILE *file = fopen(page, "r");
    if (!file) fail_msg("%s is not there: run unit_config_doc_test --write in the repository's root", page);
    char *checked_in = malloc(size + 2);
    size_t got = fread(checked_in, 1, size + 1, file);
    fclose(file);
    bool same = got == size && memcmp(checked_in, text, size) == 0;
    free(checked_in);
    free(text);
    if (!same) fail_msg("%s is not what the table says: run unit_config_doc_test --write", page);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        FILE *file = fopen(page, "w");
        return file && config_write_markdown(file) && fclose(file) == 0 ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sorted_by_name),
        cmocka_unit_test(defaults_obey_their_own_rules),
        cmocka_unit_test(the_page_is_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
