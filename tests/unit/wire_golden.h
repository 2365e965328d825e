/* wire_golden.h: the rows of protocol/golden.tsv, bytes that Apache Kafka's own classes wrote.
 * For the tests of the codec, which run in the repository's root. */
#ifndef TESTS_WIRE_GOLDEN_H
#define TESTS_WIRE_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/codec.h"

struct golden {
    int line;
    const struct wire_schema *schema;
    int16_t version;
    const char *name, *kind, *fill, *json;
    uint8_t *data; /* as large as `size` says and no larger, so that ASan sees every read past it */
    size_t size;
};

typedef void (*golden_visit)(const struct golden *g, void *arg);

static inline uint8_t golden_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static inline void golden_row(char *text, int line, golden_visit visit, void *arg)
{
    char *columns[7];
    for (int i = 0; i < 7; i++) columns[i] = strsep(&text, "\t\n");
    ASSERT(columns[6]);
    struct golden g = {.line = line, .name = columns[1], .kind = columns[2], .fill = columns[4], .json = columns[5]};
    char schema[128];
    const char *suffix = !strcmp(g.kind, "request") ? "Request" : !strcmp(g.kind, "response") ? "Response" : "";
    snprintf(schema, sizeof schema, "%s%s", g.name, suffix);
    g.schema = wire_schema_find(schema);
    ASSERT(g.schema);
    g.version = (int16_t)strtol(columns[3], NULL, 10);
    g.size = strlen(columns[6]) / 2;
    g.data = mem_alloc(g.size);
    for (size_t i = 0; i < g.size; i++)
        g.data[i] = (uint8_t)(golden_digit(columns[6][2 * i]) << 4 | golden_digit(columns[6][2 * i + 1]));
    visit(&g, arg);
    mem_free(g.data);
}

/* Calls `visit` for every row and returns their number. */
static inline int golden_each(golden_visit visit, void *arg)
{
    FILE *file = fopen("protocol/golden.tsv", "r");
    ASSERT(file);
    char *text = NULL;
    size_t cap = 0;
    int rows = 0;
    for (int line = 1; getline(&text, &cap, file) > 0; line++) {
        if (line == 1) continue; /* the names of the columns */
        golden_row(text, line, visit, arg);
        rows++;
    }
    free(text); /* getline's */
    fclose(file);
    return rows;
}

#endif
