/* plog: many threads append to one log, read it and keep it up. */
#include "plog_world.h"

#include <pthread.h>
#include <sched.h>

enum { APPENDERS = 4, APPENDS = 400, RECORDS = 3 };

struct shared {
    struct world w;
    struct plog_files files;
    _Atomic int appended; /* done was called */
    _Atomic bool over;
    uint8_t seen[APPENDERS * APPENDS * RECORDS]; /* by offset; only the appender that got it writes */
};

struct appender {
    struct shared *sh;
    int index;
    int64_t base_offsets[APPENDS];
    _Atomic int in_flight, done;
};

struct request {
    struct append a;
    struct appender *owner;
    int index;
    struct writer bytes;
};

static void request_done(struct append *a)
{
    struct request *rq = CONTAINER_OF(a, struct request, a);
    struct appender *ap = rq->owner;
    assert_int_equal(a->kerr, KERR_NONE);
    assert_int_equal(a->last_offset - a->base_offset, RECORDS - 1);
    for (int64_t o = a->base_offset; o <= a->last_offset; o++) {
        assert_int_equal(ap->sh->seen[o], 0);
        ap->sh->seen[o] = 1;
    }
    ap->base_offsets[rq->index] = a->base_offset;
    assert_true(plog_end(ap->sh->w.pl) > a->last_offset);
    writer_fini(&rq->bytes);
    mem_free(rq);
    atomic_fetch_add(&ap->done, 1);
    atomic_fetch_sub(&ap->in_flight, 1);
    atomic_fetch_add(&ap->sh->appended, 1);
}

static void *append_many(void *arg)
{
    struct appender *ap = arg;
    for (int i = 0; i < APPENDS; i++) {
        struct request *rq = mem_zalloc(1, sizeof *rq);
        rq->owner = ap;
        rq->index = i;
        batch_make(&ap->sh->w,
                   &(struct batch_spec){.count = RECORDS,
                                        .value_size = 50 + (size_t)(i * 7 % 300),
                                        .producer_id = ap->index + 1,
                                        .sequence = i * RECORDS},
                   &rq->bytes);
        rq->a = (struct append){.buf = rq->bytes.buf,
                                .data = rq->bytes.buf->data,
                                .size = rq->bytes.size,
                                .now_ms = T0_MS,
                                .done = request_done};
        assert_int_equal(batch_parse_header(&rq->a.info, rq->a.data, INT32_MAX), OK);
        atomic_fetch_add(&ap->in_flight, 1);
        plog_append(ap->sh->w.pl, &rq->a);
        while (atomic_load(&ap->in_flight) >= 5) sched_yield(); /* as an idempotent producer */
    }
    while (atomic_load(&ap->in_flight) > 0) sched_yield();
    /* One producer's batches keep their order, whoever wrote them. */
    for (int i = 1; i < APPENDS; i++) assert_true(ap->base_offsets[i] > ap->base_offsets[i - 1]);
    return NULL;
}

static void *read_along(void *arg)
{
    struct shared *sh = arg;
    int64_t at = 0;
    for (bool last = false; !last;) {
        last = atomic_load(&sh->over);
        int64_t end = plog_end(sh->w.pl);
        while (at < end) {
            struct plog_slice s;
            enum err e = plog_read(sh->w.pl, at, end, 4000, true, true, &s);
            if (e == ERR_AGAIN) e = plog_read(sh->w.pl, at, end, 4000, true, false, &s);
            assert_int_equal(e, OK);
            assert_non_null(s.file);
            uint8_t *data = mem_alloc(s.size);
            size_t got, pos = 0;
            assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
            assert_int_equal(got, s.size);
            struct batch_info b;
            while (s.size - pos >= BATCH_HEADER_SIZE &&
                   batch_parse_header(&b, data + pos, (int64_t)(s.size - pos)) == OK) {
                assert_true(batch_crc_ok(data + pos, &b));
                assert_int_equal(b.base_offset, at);
                at = batch_last_offset(&b) + 1;
                assert_true(at <= end);
                pos += (size_t)b.size;
            }
            assert_true(pos > 0);
            mem_free(data);
            plog_slice_release(&s);
        }
        sched_yield();
    }
    assert_int_equal(at, plog_end(sh->w.pl));
    return NULL;
}

static void *keep_up(void *arg)
{
    struct shared *sh = arg;
    int64_t next_ms, offset, found_ms;
    int32_t epoch;
    struct plog_config config = sh->w.opt.config;
    for (int i = 0; !atomic_load(&sh->over); i++) {
        assert_int_equal(plog_flush(sh->w.pl), OK);
        assert_int_equal(plog_work(sh->w.pl), OK);
        assert_int_equal(plog_retain(sh->w.pl, T0_MS, 0, &next_ms), OK);
        assert_int_equal(plog_find_time(sh->w.pl, T0_MS + 1, INT64_MAX, &offset, &found_ms, &epoch), OK);
        assert_int_equal(plog_max_timestamp(sh->w.pl, &found_ms, &offset), OK);
        uint32_t turn = atomic_fetch_add(&sh->files.turn, 1) + 1; /* also what was used just now */
        plog_close_unused(sh->w.pl, PLOG_CLOSE_OLD, turn);
        plog_close_unused(sh->w.pl, PLOG_CLOSE_ACTIVE, turn);
        config.index_interval_bytes = 2000 + i % 2;
        config.flush_group = i % 3 == 0;
        plog_reconfigure(sh->w.pl, &config);
        plog_replicated(sh->w.pl, plog_end(sh->w.pl));
        assert_true(plog_recovery_point(sh->w.pl) <= plog_end(sh->w.pl));
        assert_true(plog_first_unstable(sh->w.pl) <= plog_end(sh->w.pl));
        sched_yield();
    }
    return NULL;
}

static void appends_readers_and_upkeep_run_side_by_side(void **state)
{
    (void)state;
    struct shared *sh = mem_zalloc(1, sizeof *sh);
    world_init(&sh->w);
    sh->files = (struct plog_files){.max = SIZE_MAX, .turn = 1};
    sh->w.opt.files = &sh->files;
    sh->w.opt.config.segment_bytes = 60000;
    sh->w.opt.events = (struct plog_events){.arg = NULL};
    world_open(&sh->w);
    struct appender appenders[APPENDERS];
    pthread_t threads[APPENDERS], readers[2], keeper;
    for (int i = 0; i < APPENDERS; i++) {
        appenders[i] = (struct appender){.sh = sh, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, append_many, &appenders[i]), 0);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&readers[i], NULL, read_along, sh), 0);
    assert_int_equal(pthread_create(&keeper, NULL, keep_up, sh), 0);
    for (int i = 0; i < APPENDERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&sh->over, true);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_int_equal(pthread_join(keeper, NULL), 0);

    int64_t total = APPENDERS * APPENDS * RECORDS;
    assert_int_equal(atomic_load(&sh->appended), APPENDERS * APPENDS);
    assert_int_equal(plog_end(sh->w.pl), total);
    for (int64_t i = 0; i < total; i++) assert_int_equal(sh->seen[i], 1);
    assert_int_equal(read_all(&sh->w, 0, 10000), total);
    world_kill(&sh->w);
    world_open(&sh->w);
    assert_int_equal(plog_end(sh->w.pl), total);
    struct append a = append_batch(
        &sh->w, (struct batch_spec){.count = RECORDS, .producer_id = 2, .sequence = (APPENDS - 1) * RECORDS});
    assert_int_equal(a.kerr, KERR_DUPLICATE_SEQUENCE_NUMBER);
    world_fini(&sh->w);
    mem_free(sh);
}

/* ---- A write fails while others wait behind it */

struct blocked {
    struct append a;
    struct writer bytes;
};

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool entered, open;
};

static struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static const struct file_ops *gated_ops;
static _Atomic int done_count;

static enum err gated_pwritev(struct file *f, const struct iovec *iov, int count, int64_t pos)
{
    pthread_mutex_lock(&gate.lock);
    gate.entered = true;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    return gated_ops->pwritev(f, iov, count, pos);
}

static void blocked_done(struct append *a)
{
    (void)a;
    atomic_fetch_add(&done_count, 1);
}

static void blocked_init(struct blocked *b, struct world *w, int32_t sequence)
{
    batch_make(w, &(struct batch_spec){.producer_id = 7, .sequence = sequence, .value_size = 100}, &b->bytes);
    b->a = (struct append){.data = b->bytes.buf->data, .size = b->bytes.size, .now_ms = T0_MS, .done = blocked_done};
    assert_int_equal(batch_parse_header(&b->a.info, b->a.data, INT32_MAX), OK);
}

struct write_arg {
    struct world *w;
    struct blocked *b;
};

static void *append_blocked(void *arg)
{
    struct write_arg *wa = arg;
    plog_append(wa->w->pl, &wa->b->a);
    return NULL;
}

/* One thread writes the first batch; meanwhile `count` more are queued behind it. */
static void queue_behind_a_write(struct world *w, struct blocked *b, int count)
{
    gate.entered = gate.open = false;
    atomic_store(&done_count, 0);
    const struct file_ops real = w->fs.file_ops;
    gated_ops = &real;
    for (int i = 0; i <= count; i++) blocked_init(&b[i], w, i);
    w->fs.file_ops.pwritev = gated_pwritev;
    pthread_t thread;
    struct write_arg wa = {w, &b[0]};
    assert_int_equal(pthread_create(&thread, NULL, append_blocked, &wa), 0);
    pthread_mutex_lock(&gate.lock);
    while (!gate.entered) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    for (int i = 1; i <= count; i++) plog_append(w->pl, &b[i].a); /* come back at once */
    assert_int_equal(atomic_load(&done_count), 0);
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&done_count), count + 1);
    w->fs.file_ops = real;
}

static void appends_that_wait_go_into_one_write(void **state)
{
    (void)state;
    struct world w;
    struct blocked b[21];
    world_init(&w);
    world_open(&w);
    assert_int_equal(plog_epoch_begin(w.pl, 0), OK);
    w.fs.writes = 0;
    queue_behind_a_write(&w, b, 20);
    assert_int_equal(w.fs.writes, 2); /* the first; the rest */
    for (int i = 0; i < 21; i++) {
        assert_int_equal(b[i].a.kerr, KERR_NONE);
        assert_int_equal(b[i].a.base_offset, i);
        writer_fini(&b[i].bytes);
    }
    assert_int_equal(read_all(&w, 0, 10000), 21);
    world_fini(&w);
}

static void what_waits_behind_a_failed_write_fails_too(void **state)
{
    (void)state;
    struct world w;
    struct blocked b[4];
    world_init(&w);
    world_open(&w);
    w.fs.op = FAIL_WRITE;
    w.fs.times = 1;
    w.fs.e = ERR_FULL;
    w.fs.tear_bytes = 33;
    w.fs.only = ".log";
    queue_behind_a_write(&w, b, 3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(b[i].a.kerr, KERR_KAFKA_STORAGE_ERROR);
        writer_fini(&b[i].bytes);
    }
    assert_int_equal(plog_end(w.pl), 0);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log"), 0);
    for (int i = 0; i < 4; i++) append_ok(&w, (struct batch_spec){.producer_id = 7, .sequence = i});
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_readers_and_upkeep_run_side_by_side),
        cmocka_unit_test(appends_that_wait_go_into_one_write),
        cmocka_unit_test(what_waits_behind_a_failed_write_fails_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
