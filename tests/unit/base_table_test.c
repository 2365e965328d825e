/* base/table: one writer, any number of readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/table.h"

struct item {
    char name[16];
    int value;
};

static struct bytes item_key(const void *value)
{
    const struct item *it = value;
    return (struct bytes){(const uint8_t *)it->name, strlen(it->name)};
}

static struct bytes key_of(int i, char buf[16])
{
    int n = snprintf(buf, 16, "topic-%d", i);
    return (struct bytes){(const uint8_t *)buf, (size_t)n};
}

static struct item *item_new(int i, int value)
{
    struct item *it = mem_zalloc(1, sizeof *it);
    snprintf(it->name, sizeof it->name, "topic-%d", i);
    it->value = value;
    return it;
}

static void table_finds_replaces_and_removes_while_it_grows(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct table *t = table_new(&(struct table_ops){item_key, table_retire_now, NULL});
    char buf[16];
    for (int i = 0; i < COUNT; i++) assert_null(table_put(t, item_new(i, i)));
    assert_int_equal(table_count(t), COUNT);
    for (int i = 0; i < COUNT; i += 2) {
        struct item *old = table_put(t, item_new(i, -i));
        assert_int_equal(old->value, i);
        mem_free(old);
    }
    for (int i = 0; i < COUNT; i++) {
        struct item *it = table_find(t, key_of(i, buf));
        assert_int_equal(it->value, i % 2 ? i : -i);
    }
    for (int i = 0; i < COUNT; i++) {
        mem_free(table_remove(t, key_of(i, buf)));
        assert_null(table_find(t, key_of(i, buf)));
        assert_null(table_remove(t, key_of(i, buf)));
    }
    assert_int_equal(table_count(t), 0);
    table_free(t);
}

/* What the writer retires is kept until the readers are gone. */
struct graveyard {
    void *objects[200000];
    void (*release[200000])(void *);
    size_t count;
};

static void bury(void *arg, void *p, void (*release)(void *))
{
    struct graveyard *g = arg;
    assert_true(g->count < ARRAY_COUNT(g->objects));
    g->objects[g->count] = p;
    g->release[g->count++] = release;
}

struct race {
    struct table *t;
    _Atomic bool stop;
    _Atomic bool missed;
};

/* Even names are never removed, only replaced: a reader must find them at every moment. */
static void *reader_main(void *arg)
{
    struct race *r = arg;
    char buf[16];
    while (!atomic_load(&r->stop))
        for (int i = 0; i < 64; i += 2)
            if (!table_find(r->t, key_of(i, buf))) atomic_store(&r->missed, true);
    return NULL;
}

static void readers_always_find_what_is_there_throughout(void **state)
{
    (void)state;
    struct graveyard *g = mem_zalloc(1, sizeof *g);
    struct race r = {.t = table_new(&(struct table_ops){item_key, bury, g})};
    char buf[16];
    for (int i = 0; i < 64; i++) table_put(r.t, item_new(i, 0));
    pthread_t readers[2];
    for (size_t i = 0; i < 2; i++) pthread_create(&readers[i], NULL, reader_main, &r);
    for (int round = 1; round <= 300; round++) {
        for (int i = 0; i < 64; i++) bury(g, table_put(r.t, item_new(i, round)), mem_free);
        for (int i = 1; i < 64; i += 2) bury(g, table_remove(r.t, key_of(i, buf)), mem_free);
        for (int i = 1; i < 64; i += 2) table_put(r.t, item_new(i, round));
    }
    for (int i = 64; i < 4000; i++) table_put(r.t, item_new(i, 0));
    atomic_store(&r.stop, true);
    for (size_t i = 0; i < 2; i++) pthread_join(readers[i], NULL);
    assert_false(atomic_load(&r.missed));
    for (int i = 0; i < 4000; i++) mem_free(table_remove(r.t, key_of(i, buf)));
    for (size_t i = 0; i < g->count; i++) g->release[i](g->objects[i]);
    table_free(r.t);
    mem_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_finds_replaces_and_removes_while_it_grows),
        cmocka_unit_test(readers_always_find_what_is_there_throughout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
