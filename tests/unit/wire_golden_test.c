/* wire_golden_test.c: every row of protocol/golden.tsv, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "wire_golden.h"

struct tally {
    struct buf_pool *pool;
    int defaults, filled, nulls, failed;
};

static json_t *json_of(const char *text, size_t size, int line)
{
    json_error_t error;
    json_t *v = json_loadb(text, size, JSON_ALLOW_NUL, &error);
    if (!v) print_error("line %d: %s in %.*s\n", line, error.text, (int)size, text);
    return v;
}

static bool prints_alike(const struct golden *g, const void *m, struct buf_pool *pool)
{
    struct writer w;
    writer_init(&w, pool);
    wire_print(g->schema, m, g->version, &w, WIRE_PRINT_FULL);
    json_t *want = json_of(g->json, strlen(g->json), g->line);
    json_t *got = json_of((const char *)w.buf->data, w.size, g->line);
    bool alike = want && got && json_equal(want, got);
    if (!alike)
        print_error("line %d: want %s\n   got %.*s\n", g->line, g->json, (int)w.size, (const char *)w.buf->data);
    json_decref(want);
    json_decref(got);
    writer_fini(&w);
    return alike;
}

static bool encodes_alike(const struct golden *g, const void *m, struct buf_pool *pool)
{
    struct writer w;
    writer_init(&w, pool);
    enum err e = wire_encode(g->schema, m, g->version, &w);
    bool alike = !e && w.size == g->size && (g->size == 0 || memcmp(w.buf->data, g->data, g->size) == 0);
    if (!alike)
        print_error("line %d: %s %s %d: encodes with %s to %zu bytes instead of %zu\n", g->line, g->name, g->kind,
                    g->version, err_name(e), w.size, g->size);
    writer_fini(&w);
    return alike;
}

static void check_row(const struct golden *g, void *arg)
{
    struct tally *t = arg;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    void *m = arena_alloc(&a, g->schema->size);
    struct reader r = reader_of(g->data, g->size);
    enum err e = wire_decode(g->schema, m, g->version, &r, &a);
    bool good = !e && reader_left(&r) == 0;
    if (!good) print_error("line %d: %s with %zu bytes left\n", g->line, err_name(e), reader_left(&r));
    good = good && prints_alike(g, m, t->pool) && encodes_alike(g, m, t->pool);
    if (good && !strcmp(g->fill, "defaults")) {
        /* The other way round: a fresh struct is what Kafka's fresh message is. */
        good =
            prints_alike(g, g->schema->default_value, t->pool) && encodes_alike(g, g->schema->default_value, t->pool);
    }
    if (!strcmp(g->fill, "defaults"))
        t->defaults++;
    else if (!strcmp(g->fill, "filled"))
        t->filled++;
    else
        t->nulls++;
    t->failed += !good;
    arena_fini(&a);
}

static void every_vector_decodes_prints_and_encodes_as_kafka_does(void **state)
{
    (void)state;
    struct tally t = {.pool = buf_pool_new(1 << 20)};
    int rows = golden_each(check_row, &t);
    print_message("%d rows: %d with defaults, %d filled, %d with nulls; %d wrong\n", rows, t.defaults, t.filled,
                  t.nulls, t.failed);
    buf_pool_free(t.pool);
    assert_int_equal(t.failed, 0);
    assert_int_equal(rows, 2073);
    assert_int_equal(t.defaults + t.filled + t.nulls, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vector_decodes_prints_and_encodes_as_kafka_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
