/* plog: a log is cleaned while threads append to it, read it and keep it up. */
#include "clean_world.h"

#include <pthread.h>
#include <sched.h>

enum { APPENDERS = 2, READERS = 2, APPENDS = 2000, KEYS = 20 };

struct shared {
    struct world w;
    _Atomic int appending; /* appenders that are not through */
    _Atomic bool over;     /* everybody may go */
    _Atomic int64_t cleanings;
};

struct appender {
    struct shared *sh;
    int index;
    _Atomic int in_flight;
};

struct request {
    struct append a;
    struct appender *owner;
    struct writer bytes;
};

static void request_done(struct append *a)
{
    struct request *rq = CONTAINER_OF(a, struct request, a);
    struct appender *ap = rq->owner;
    assert_int_equal(a->kerr, KERR_NONE);
    writer_fini(&rq->bytes);
    mem_free(rq);
    ap->in_flight--;
}

static void append_one(struct appender *ap, struct buf_pool *pool, int number)
{
    struct request *rq = mem_zalloc(1, sizeof *rq);
    struct batch_builder bb;
    char key[32], value[32];
    int k = (number * 7 + ap->index) % KEYS;
    snprintf(key, sizeof key, "key-%d-%d", ap->index, k);
    snprintf(value, sizeof value, "%d", number);
    batch_builder_init(&bb, pool, number % 3 ? CODEC_NONE : CODEC_LZ4, T0_MS + number);
    batch_builder_add(&bb, T0_MS + number, (struct bytes){(uint8_t *)key, strlen(key)},
                      (struct bytes){(uint8_t *)value, strlen(value)}, NULL, 0);
    writer_init(&rq->bytes, pool);
    assert_int_equal(batch_builder_finish(&bb, &rq->bytes), OK);
    batch_builder_fini(&bb);
    rq->owner = ap;
    rq->a = (struct append){.buf = rq->bytes.buf,
                            .data = rq->bytes.buf->data,
                            .size = rq->bytes.size,
                            .now_ms = T0_MS,
                            .done = request_done};
    assert_int_equal(batch_parse_header(&rq->a.info, rq->a.data, INT32_MAX), OK);
    ap->in_flight++;
    plog_append(ap->sh->w.pl, &rq->a);
}

static void *appender_run(void *arg)
{
    struct appender *ap = arg;
    struct buf_pool *pool = buf_pool_new(1 << 20);
    for (int i = 0; i < APPENDS; i++) {
        append_one(ap, pool, i);
        while (ap->in_flight > 4) sched_yield();
    }
    while (ap->in_flight > 0) sched_yield();
    ap->sh->appending--;
    while (!ap->sh->over) sched_yield(); /* another appender may hold a buffer of the pool */
    buf_pool_free(pool);
    return NULL;
}

static void *reader_run(void *arg)
{
    struct shared *sh = arg;
    while (!sh->over) {
        struct view v;
        view_read(&sh->w, 0, &v);
        for (size_t i = 1; i < v.count; i++) assert_true(v.records[i].offset > v.records[i - 1].offset);
        view_free(&v);
        int64_t offset, found_ms;
        int32_t epoch;
        assert_int_equal(plog_find_time(sh->w.pl, T0_MS + APPENDS / 2, INT64_MAX, &offset, &found_ms, &epoch), OK);
        assert_int_equal(plog_max_timestamp(sh->w.pl, &found_ms, &offset), OK);
    }
    return NULL;
}

static void *upkeep_run(void *arg)
{
    struct shared *sh = arg;
    while (!sh->over) {
        int64_t next_ms;
        assert_int_equal(plog_retain(sh->w.pl, T0_MS, plog_end(sh->w.pl), &next_ms), OK);
        assert_int_equal(plog_flush(sh->w.pl), OK);
        sched_yield();
    }
    return NULL;
}

static void *cleaner_run(void *arg)
{
    struct shared *sh = arg;
    struct cleaner cl;
    cleaner_init(&cl);
    cl.limits.io_bytes = 512;
    for (bool last = false; !last;) {
        last = sh->appending == 0; /* once more, with all of it */
        assert_int_equal(clean_once(&sh->w, &cl), OK);
        sh->cleanings++;
    }
    sh->over = true;
    return NULL;
}

static void check_last_values(struct world *w)
{
    int last[APPENDERS][KEYS];
    struct view v;
    memset(last, -1, sizeof last);
    view_read(w, 0, &v);
    for (size_t i = 0; i < v.count; i++) {
        char *end;
        long appender = strtol(v.records[i].key + strlen("key-"), &end, 10), key = strtol(end + 1, NULL, 10);
        assert_in_range(appender, 0, APPENDERS - 1);
        assert_in_range(key, 0, KEYS - 1);
        last[appender][key] = (int)strtol(v.records[i].value, NULL, 10);
    }
    assert_true(v.count < APPENDERS * APPENDS / 2);
    for (int number = APPENDS - KEYS; number < APPENDS; number++)
        for (int i = 0; i < APPENDERS; i++) assert_int_equal(last[i][(number * 7 + i) % KEYS], number);
    view_free(&v);
}

static void readers_and_writers_go_on_while_the_log_is_cleaned(void **state)
{
    (void)state;
    struct shared *sh = mem_zalloc(1, sizeof *sh);
    pthread_t threads[APPENDERS + READERS + 2];
    struct appender appenders[APPENDERS];
    int n = 0;
    world_init(&sh->w);
    sh->w.opt.fs = fs_system();       /* the one that fails on demand is for one thread */
    sh->w.opt.events.advanced = NULL; /* it would be called by many threads */
    sh->w.opt.config.segment_bytes = 2000;
    sh->w.opt.config.index_interval_bytes = 200;
    sh->w.opt.config.cleanup_delete = false;
    sh->w.opt.config.cleanup_compact = true;
    sh->w.opt.config.file_delete_delay_ms = 0;
    sh->w.opt.config.max_compaction_lag_ms = INT64_MAX;
    sh->appending = APPENDERS;
    world_open(&sh->w);
    for (int i = 0; i < APPENDERS; i++) {
        appenders[i] = (struct appender){.sh = sh, .index = i};
        assert_int_equal(pthread_create(&threads[n++], NULL, appender_run, &appenders[i]), 0);
    }
    for (int i = 0; i < READERS; i++) assert_int_equal(pthread_create(&threads[n++], NULL, reader_run, sh), 0);
    assert_int_equal(pthread_create(&threads[n++], NULL, upkeep_run, sh), 0);
    assert_int_equal(pthread_create(&threads[n++], NULL, cleaner_run, sh), 0);
    for (int i = 0; i < n; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(sh->w.failed_count, 0);
    assert_true(sh->cleanings > 1);
    check_last_values(&sh->w);
    world_close(&sh->w);
    world_open(&sh->w);
    check_last_values(&sh->w);
    world_fini(&sh->w);
    mem_free(sh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_and_writers_go_on_while_the_log_is_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
