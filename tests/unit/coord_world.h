/* coord_world.h: one session on a store, driven by one loop that the test turns itself. */
#ifndef TESTS_COORD_WORLD_H
#define TESTS_COORD_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/mem.h"
#include "coord/coord.h"
#include "coord/embedded.h"
#include "coord/memory.h"
#include "coord/zookeeper.h"
#include "os/clock.h"
#include "os/fs.h"
#include "os/loop.h"

enum { WORLD_EVENTS_MAX = 64 };

struct world {
    struct loop *loop;
    struct coord *c;
    struct coord_memory *memory; /* NULL: another store */
    char dir[64];
    bool threaded;
    struct arena arena;
    char events[WORLD_EVENTS_MAX][128]; /* "changed /a" in the order in which they came */
    int event_count;
    enum coord_state state;
    int state_changes;
    struct fault fault;
    bool closed;
};

/* A copy of a result that outlives its callback. */
struct answer {
    struct world *w;
    bool done;
    struct coord_result r;
    enum err steps[32];
    char step_paths[32][64];
};

static inline void world_listen(void *arg, enum coord_state state, const struct fault *f)
{
    struct world *w = arg;
    w->state = state;
    w->state_changes++;
    if (f) w->fault = *f;
}

static inline void world_watch(void *arg, enum coord_event event, struct str path)
{
    static const char *const names[] = {"created", "deleted", "changed", "children"};
    struct world *w = arg;
    assert_true(w->event_count < WORLD_EVENTS_MAX);
    snprintf(w->events[w->event_count++], sizeof w->events[0], "%s %.*s", names[event], STR_ARG(path));
}

static inline void answer_done(void *arg, const struct coord_result *r)
{
    struct answer *a = arg;
    struct arena *arena = &a->w->arena;
    assert_false(a->done);
    a->done = true;
    a->r = *r;
    a->r.path = arena_str(arena, r->path);
    if (r->text) a->r.text = arena_str(arena, str_of(r->text)).data;
    if (r->data.data)
        a->r.data.data = (const uint8_t *)arena_str(arena, (struct str){(const char *)r->data.data, r->data.size}).data;
    struct str *children = arena_array(arena, struct str, r->child_count + 1);
    for (size_t i = 0; i < r->child_count; i++) children[i] = arena_str(arena, r->children[i]);
    a->r.children = children;
    for (size_t i = 0; i < r->result_count && i < ARRAY_COUNT(a->steps); i++) {
        a->steps[i] = r->results[i].err;
        snprintf(a->step_paths[i], sizeof a->step_paths[i], "%.*s", STR_ARG(r->results[i].path));
    }
    a->r.results = NULL;
}

static inline void answer_wait(struct answer *a)
{
    while (!a->done) loop_turn(a->w->loop, 10 * 1000 * 1000);
}

static inline struct coord_watch world_watcher(struct world *w)
{
    return (struct coord_watch){world_watch, w};
}

/* One call, made and waited for. */
static inline struct answer call_create(struct world *w, const char *path, const char *data, unsigned flags)
{
    struct answer a = {.w = w};
    struct bytes b = {(const uint8_t *)data, data ? strlen(data) : 0};
    coord_create(w->c, str_of(path), b, flags, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline struct answer call_get(struct world *w, const char *path, struct coord_watch watch)
{
    struct answer a = {.w = w};
    coord_get(w->c, str_of(path), watch, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline struct answer call_set(struct world *w, const char *path, const char *data, int32_t version)
{
    struct answer a = {.w = w};
    struct bytes b = {(const uint8_t *)data, data ? strlen(data) : 0};
    coord_set(w->c, str_of(path), b, version, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline struct answer call_delete(struct world *w, const char *path, int32_t version)
{
    struct answer a = {.w = w};
    coord_delete(w->c, str_of(path), version, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline struct answer call_exists(struct world *w, const char *path, struct coord_watch watch)
{
    struct answer a = {.w = w};
    coord_exists(w->c, str_of(path), watch, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline struct answer call_children(struct world *w, const char *path, struct coord_watch watch)
{
    struct answer a = {.w = w};
    coord_children(w->c, str_of(path), watch, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline struct answer call_multi(struct world *w, const struct coord_op *ops, size_t count)
{
    struct answer a = {.w = w};
    coord_multi(w->c, ops, count, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    return a;
}

static inline void world_closed(void *arg)
{
    ((struct world *)arg)->closed = true;
}

static inline void world_close(struct world *w)
{
    w->closed = false;
    coord_close(w->c, w->loop, world_closed, w);
    while (!w->closed) loop_turn(w->loop, 10 * 1000 * 1000);
    w->c = NULL;
}

static inline enum err world_try_open(struct world *w, bool read_only, struct fault *f)
{
    struct coord_embedded_options opt = {.fs = fs_system(),
                                         .clock = clock_system(),
                                         .dir = w->dir,
                                         .read_only = read_only,
                                         .inline_calls = !w->threaded,
                                         .listener = {w->loop, world_listen, w}};
    return coord_embedded_open(&w->c, &opt, f);
}

static inline void world_open(struct world *w)
{
    struct fault f = {OK, ""};
    enum err e = world_try_open(w, false, &f);
    assert_string_equal(f.text, "");
    assert_int_equal(e, OK);
}

static inline struct world *world_new(bool embedded)
{
    struct world *w = mem_zalloc(1, sizeof *w);
    w->threaded = true;
    arena_init(&w->arena, SIZE_MAX);
    assert_int_equal(loop_new(&w->loop, clock_system(), 0, NULL), OK);
    if (embedded) {
        snprintf(w->dir, sizeof w->dir, "/tmp/barnabas-coord-XXXXXX");
        assert_non_null(mkdtemp(w->dir));
        world_open(w);
    } else {
        w->memory = coord_memory_new(clock_system());
        w->c = coord_memory_connect(w->memory, (struct coord_listener){w->loop, world_listen, w});
    }
    return w;
}

/* A session of an ensemble; `connect` with a path of its own. */
static inline struct world *world_new_zookeeper(const char *connect)
{
    struct world *w = mem_zalloc(1, sizeof *w);
    struct fault f = {OK, ""};
    arena_init(&w->arena, SIZE_MAX);
    assert_int_equal(loop_new(&w->loop, clock_system(), 0, NULL), OK);
    const struct coord_zookeeper_options opt = {.connect = str_of(connect),
                                                .session_timeout_ms = 6000,
                                                .connection_timeout_ms = 30000,
                                                .in_flight_max = 10,
                                                .listener = {w->loop, world_listen, w}};
    enum err e = coord_zookeeper_open(&w->c, &opt, &f);
    assert_string_equal(f.text, "");
    assert_int_equal(e, OK);
    return w;
}

static inline void world_free(struct world *w)
{
    if (w->c) world_close(w);
    coord_memory_free(w->memory);
    loop_free(w->loop);
    if (w->dir[0]) assert_int_equal(fs_remove_all(fs_system(), w->dir), OK);
    arena_fini(&w->arena);
    mem_free(w);
}

/* A session on the same store, for what others do there. */
static inline struct world *session_new(struct world *w)
{
    struct world *s = mem_zalloc(1, sizeof *s);
    *s = (struct world){.loop = w->loop, .memory = w->memory};
    arena_init(&s->arena, SIZE_MAX);
    s->c = coord_memory_connect(w->memory, (struct coord_listener){w->loop, world_listen, s});
    return s;
}

static inline void session_free(struct world *s)
{
    if (s->c) world_close(s);
    arena_fini(&s->arena);
    mem_free(s);
}

/* Everything that is on its way arrives; nothing is asked of the store, which may be out of reach. */
static inline void world_turn(struct world *w)
{
    for (int i = 0; i < 50; i++) loop_turn(w->loop, 0);
}

#endif
