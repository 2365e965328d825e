/* cli: reset plans as CSV, written and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/groups_reset.h"

struct world {
    struct arena a;
    struct reset_plan *plans;
    int32_t count;
    struct failure f;
    char path[64];
};

static bool read_csv(struct world *w, const char *text, struct str single)
{
    cluster_arena_init(&w->a);
    snprintf(w->path, sizeof w->path, "/tmp/reset-plan-XXXXXX");
    int fd = mkstemp(w->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    bool ok = reset_plans_read(w->path, single, &w->plans, &w->count, &w->a, &w->f);
    unlink(w->path);
    return ok;
}

static void lines_about_one_group_are_its_plan(void **state)
{
    (void)state;
    struct world w;
    assert_true(read_csv(&w, "t,1,5\n\"u\",0,-3\r\n\nt,0,7\nt,1,6\n", STR("g")));
    assert_int_equal(w.count, 1);
    assert_true(str_is(w.plans[0].group, "g"));
    assert_int_equal(w.plans[0].row_count, 3); /* sorted, and of two lines about t-1 the later one */
    assert_int_equal(w.plans[0].rows[0].asked, 7);
    assert_int_equal(w.plans[0].rows[1].asked, 6);
    assert_int_equal(w.plans[0].rows[2].asked, -3);
    arena_fini(&w.a);
}

static void lines_name_their_groups(void **state)
{
    (void)state;
    struct world w;
    assert_true(read_csv(&w, "\"a \"\"b\"\", c\",t,1,5\ng,t,0,1\ng,t,1,2", STR_NULL));
    assert_int_equal(w.count, 2);
    assert_true(str_is(w.plans[0].group, "a \"b\", c"));
    assert_int_equal(w.plans[1].row_count, 2);
    arena_fini(&w.a);
}

static void what_is_no_plan_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool single;
        int line;
    } rows[] = {
        {"t,1\n", true, 1},     {"t,0,1\nt,x,2\n", true, 2}, {"t,0,1\nt,1,\n", true, 2},
        {"t,-1,5\n", true, 1},  {"t,2147483648,5", true, 1}, {"t,0,9223372036854775808", true, 1},
        {"\"t,0,1\n", true, 1}, {"\"t\"x,0,1\n", true, 1},   {",0,1\n", true, 1},
        {"t,0,1\n", false, 1},  {"g,t,0,1,2\n", false, 1},   {"g,t,0,1,\n", true, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world w;
        if (read_csv(&w, rows[i].text, rows[i].single ? STR("g") : STR_NULL)) fail_msg("taken: %s", rows[i].text);
        char line[16];
        snprintf(line, sizeof line, "line %d:", rows[i].line);
        if (!strstr(w.f.text, line)) fail_msg("'%s' does not say %s", w.f.text, line);
        arena_fini(&w.a);
    }
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    struct reset_row rows[] = {{.of = {STR("a-topic-of-26-characters--"), 0}, .offset = 1},
                               {.of = {STR("t"), 2}, .offset = 3}};
    struct reset_plan plan = {.group = STR("g \"1\""), .rows = rows, .row_count = 2};
    char *text = NULL;
    size_t size = 0;
    FILE *mem = open_memstream(&text, &size);
    reset_plan_print_csv(mem, &plan, true);
    fclose(mem);
    assert_string_equal(text, "\"g \"\"1\"\"\",\"a-topic-of-26-characters--\",0,1\n\"g \"\"1\"\"\",t,2,3\n");
    struct world w;
    assert_true(read_csv(&w, text, STR_NULL));
    assert_true(str_equal(w.plans[0].group, plan.group));
    assert_int_equal(w.plans[0].rows[1].asked, 3);
    arena_fini(&w.a);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_about_one_group_are_its_plan),
        cmocka_unit_test(lines_name_their_groups),
        cmocka_unit_test(what_is_no_plan_is_refused_with_its_line),
        cmocka_unit_test(what_is_written_is_read_back),
    };
    return cmocka_run_group_tests_name("cli_reset_csv", tests, NULL, NULL);
}
