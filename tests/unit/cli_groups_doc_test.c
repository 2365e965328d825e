/* cli: docs/groups-tool.md has the options that the tables have.  With --write its tables are made anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cli/groups_doc.h"

static const char page[] = "docs/groups-tool.md"; /* from the repository's root */

static const struct {
    const char *begin, *end;
    void (*write)(FILE *out);
} parts[] = {
    {"<!-- begin groups: made from the table in src/cli/groups.c -->\n", "<!-- end groups -->\n", groups_write_options},
    {"<!-- begin kafka-consumer-groups: made from the table in src/cli/kafka_groups.c -->\n",
     "<!-- end kafka-consumer-groups -->\n", kafka_groups_write_options},
};

static char *read_page(void)
{
    FILE *file = fopen(page, "r");
    if (!file) return NULL;
    char *text = NULL;
    size_t size = 0;
    ssize_t n = getdelim(&text, &size, '\0', file);
    fclose(file);
    return n < 0 ? NULL : text;
}

/* The page with its parts made from the tables; NULL: a mark is missing. */
static char *made_anew(const char *text)
{
    char *out = NULL;
    size_t size = 0;
    FILE *mem = open_memstream(&out, &size);
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++) {
        const char *begin = strstr(text, parts[i].begin), *end = begin ? strstr(begin, parts[i].end) : NULL;
        if (!end) {
            fclose(mem);
            free(out);
            return NULL;
        }
        size_t lead = (size_t)(begin - text) + strlen(parts[i].begin);
        fwrite(text, 1, lead, mem);
        fputc('\n', mem);
        parts[i].write(mem);
        fputc('\n', mem);
        text = end;
    }
    fputs(text, mem);
    fclose(mem);
    return out;
}

static void the_page_is_what_the_tables_say(void **state)
{
    (void)state;
    char *text = read_page();
    assert_non_null(text);
    char *made = made_anew(text);
    if (!made) fail_msg("%s lacks a mark", page);
    if (strcmp(text, made) != 0)
        fail_msg("%s is not what the tables say: run unit_cli_groups_doc_test --write in the repository's root", page);
    free(text);
    free(made);
}

static int write_page(void)
{
    char *text = read_page();
    char *made = text ? made_anew(text) : NULL;
    FILE *file = made ? fopen(page, "w") : NULL;
    bool ok = file && fputs(made, file) >= 0;
    if (file) ok = fclose(file) == 0 && ok;
    free(text);
    free(made);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--write") == 0) return write_page();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_is_what_the_tables_say),
    };
    return cmocka_run_group_tests_name("cli_groups_doc", tests, NULL, NULL);
}
