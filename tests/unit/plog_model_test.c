/* plog: random histories against a model, and each single call of the file system failing once. */
#include "plog_world.h"

#include "base/endian.h"

/* ---- Random histories */

enum { MODEL_MAX = 4000 };

/* What the log must hold: for each batch its offsets and CRC. */
struct model {
    struct {
        int64_t base, last;
        uint32_t crc;
    } batches[MODEL_MAX];
    int count;
    int64_t start, end, recovery_point;
    uint64_t random;
    bool with_producer; /* else the log is truncated at times: sequences that went with it would be the model's to know
                         */
    int32_t next_sequence; /* of producer 1 */
};

static uint64_t draw(struct model *m, uint64_t below)
{
    ASSERT(below > 0);
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (m->random >> 33) % below;
}

static int find_batch(const struct model *m, int64_t offset)
{
    for (int i = 0; i < m->count; i++)
        if (m->batches[i].last >= offset) return i;
    return m->count;
}

static void check_read(struct world *w, struct model *m)
{
    if (m->start == m->end) return;
    int64_t at = m->start + (int64_t)draw(m, (uint64_t)(m->end - m->start));
    int first = find_batch(m, at);
    /* Up to some batch boundary. */
    int limit = first + 1 + (int)draw(m, (uint64_t)(m->count - first));
    int64_t below = limit < m->count ? m->batches[limit].base : m->end;
    struct plog_slice s;
    size_t bytes_max = 1 + (size_t)draw(m, 3000), got, pos = 0;
    enum err e = plog_read(w->pl, at, below, bytes_max, true, draw(m, 2), &s);
    if (e == ERR_AGAIN) e = plog_read(w->pl, at, below, bytes_max, true, false, &s);
    assert_int_equal(e, OK);
    assert_non_null(s.file);
    uint8_t *data = mem_alloc(s.size);
    assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
    assert_int_equal(got, s.size);
    int i = first;
    struct batch_info b;
    while (s.size - pos >= BATCH_HEADER_SIZE && batch_parse_header(&b, data + pos, (int64_t)(s.size - pos)) == OK) {
        assert_true(i < limit);
        assert_int_equal(b.base_offset, m->batches[i].base);
        assert_int_equal(batch_last_offset(&b), m->batches[i].last);
        assert_int_equal(b.crc, m->batches[i].crc);
        pos += (size_t)b.size;
        i++;
    }
    assert_true(i > first);
    if (i == limit) assert_int_equal(pos, s.size);
    mem_free(data);
    plog_slice_release(&s);
}

static void do_append(struct world *w, struct model *m)
{
    if (m->count == MODEL_MAX) return;
    int32_t count = 1 + (int32_t)draw(m, 4);
    bool idempotent = m->with_producer && draw(m, 2);
    struct batch_spec s = {.count = count, .value_size = (size_t)draw(m, 300), .timestamp = w->clock.now_ms};
    if (idempotent) {
        s.producer_id = 1;
        s.sequence = m->next_sequence;
    }
    struct writer bytes;
    struct append a;
    batch_make(w, &s, &bytes);
    assert_int_equal(append_bytes(w, &bytes, &s, &a), KERR_NONE);
    assert_int_equal(a.base_offset, m->end);
    m->batches[m->count].base = a.base_offset;
    m->batches[m->count].last = a.last_offset;
    m->batches[m->count].crc = a.info.crc;
    m->count++;
    m->end = a.last_offset + 1;
    if (idempotent) m->next_sequence += count;
    writer_fini(&bytes);
}

static void do_truncate(struct world *w, struct model *m)
{
    int keep = m->count - (int)draw(m, (uint64_t)MIN(m->count, 12) + 1);
    int64_t to = keep < m->count ? m->batches[keep].base : m->end;
    if (to < m->start) return;
    assert_int_equal(plog_truncate(w->pl, to), OK);
    m->count = keep;
    m->end = to;
    m->recovery_point = MIN(m->recovery_point, to);
}

static void do_retain(struct world *w, struct model *m)
{
    int64_t next_ms;
    w->opt.config.retention_bytes = (int64_t)draw(m, 30000);
    plog_reconfigure(w->pl, &w->opt.config);
    assert_int_equal(plog_retain(w->pl, w->clock.now_ms, m->end, &next_ms), OK);
    w->opt.config.retention_bytes = -1;
    plog_reconfigure(w->pl, &w->opt.config);
    assert_true(plog_start(w->pl) >= m->start);
    m->start = plog_start(w->pl);
}

static void do_reopen(struct world *w, struct model *m, bool clean)
{
    if (clean) {
        world_close(w);
        m->recovery_point = m->end;
    } else {
        world_kill(w);
    }
    w->opt.recovery_point = m->recovery_point;
    w->opt.log_start = m->start;
    world_open(w);
}

static void step(struct world *w, struct model *m)
{
    w->clock.now_ms += (int64_t)draw(m, 100);
    switch (draw(m, 24)) {
    case 0: do_reopen(w, m, draw(m, 2)); break;
    case 1:
        assert_int_equal(plog_flush(w->pl), OK);
        m->recovery_point = plog_recovery_point(w->pl);
        assert_int_equal(m->recovery_point, m->end);
        break;
    case 2:
        if (draw(m, 4) == 0) do_retain(w, m);
        break;
    case 3:
        if (draw(m, 4) == 0) {
            m->start += (int64_t)draw(m, (uint64_t)(m->end - m->start) / 4 + 1);
            assert_int_equal(plog_set_start(w->pl, m->start), OK);
        }
        break;
    case 4:
        assert_int_equal(plog_work(w->pl), OK);
        assert_true(plog_recovery_point(w->pl) >= m->recovery_point);
        m->recovery_point = plog_recovery_point(w->pl);
        break;
    case 5:
        if (!m->with_producer) do_truncate(w, m);
        break;
    case 6:
    case 7:
    case 8:
    case 9: check_read(w, m); break;
    default: do_append(w, m); break;
    }
    assert_int_equal(plog_end(w->pl), m->end);
    assert_int_equal(plog_start(w->pl), m->start);
    assert_true(plog_recovery_point(w->pl) <= m->end);
}

static void random_histories_match_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct world w;
        struct model *m = mem_zalloc(1, sizeof *m);
        world_init(&w);
        w.opt.config.segment_bytes = 1000 + (int64_t)(seed * 777 % 5000);
        w.opt.config.index_interval_bytes = (int64_t)(seed * 131 % 900);
        w.opt.config.segment_index_bytes = seed % 3 ? 10000 : 120;
        w.opt.config.file_delete_delay_ms = 0;
        m->random = seed;
        m->with_producer = seed / 2 % 2;
        world_open(&w);
        for (int i = 0; i < 700; i++) step(&w, m);
        do_reopen(&w, m, seed % 2);
        for (int i = 0; i < 100; i++) check_read(&w, m);
        mem_free(m);
        world_fini(&w);
    }
}

/* ---- Each call fails once */

enum { ROUND_APPENDS = 14 };

/* Appends and keeps up a log over several segments, through whatever fails.  Returns the end that was acknowledged. */
static int64_t live_through(struct world *w)
{
    int64_t acknowledged = 0, next_ms;
    enum err ignored;
    if (plog_open(&w->pl, &w->opt, &w->fault) != OK) {
        w->pl = NULL;
        return 0;
    }
    for (int i = 0; i < ROUND_APPENDS; i++) {
        struct append a = append_batch(
            w, (struct batch_spec){
                   .value_size = 150, .producer_id = 3, .sequence = (int32_t)acknowledged, .leader_epoch = i / 4});
        if (a.kerr == KERR_NONE) {
            assert_int_equal(a.base_offset, acknowledged);
            acknowledged = a.last_offset + 1;
        } else {
            assert_int_equal(a.kerr, KERR_KAFKA_STORAGE_ERROR);
        }
        assert_int_equal(plog_end(w->pl), acknowledged);
        w->clock.now_ms += 10;
        if (i % 3 == 1) ignored = plog_work(w->pl);
        if (i % 4 == 2) ignored = plog_flush(w->pl);
        if (i % 5 == 3) ignored = plog_retain(w->pl, w->clock.now_ms, 0, &next_ms);
        (void)ignored;
    }
    return acknowledged;
}

static void no_acknowledged_record_is_lost_when(enum fail_op op, enum err e)
{
    for (int n = 0;; n++) {
        struct world w;
        world_init(&w);
        w.opt.config.segment_bytes = 700;
        w.opt.config.index_interval_bytes = 100;
        w.fs.op = op;
        w.fs.after = n;
        w.fs.times = 1;
        w.fs.e = e;
        w.fs.tear_bytes = 37;
        int64_t acknowledged = live_through(&w);
        bool fired = w.fs.fired;
        w.fs.op = FAIL_NONE;
        int64_t known = w.pl ? plog_recovery_point(w.pl) : 0;
        assert_true(known <= acknowledged);
        if (e == ERR_FULL) assert_int_equal(w.failed_count, 0);
        if (w.pl && n % 2 && !w.failed) {
            world_close(&w);
        } else if (w.pl) {
            world_kill(&w);
            w.opt.recovery_point = known;
        }
        world_open(&w);
        assert_int_equal(plog_end(w.pl), acknowledged);
        assert_int_equal(read_all(&w, 0, 400), acknowledged);
        if (acknowledged > 0)
            assert_int_equal(append_batch(&w, (struct batch_spec){.value_size = 150,
                                                                  .producer_id = 3,
                                                                  .sequence = (int32_t)acknowledged - 1,
                                                                  .leader_epoch = 3})
                                 .kerr,
                             KERR_DUPLICATE_SEQUENCE_NUMBER);
        world_fini(&w);
        if (!fired) break; /* fewer calls than n: every one has had its turn */
        assert_true(n < 1000);
    }
}

static void no_acknowledged_record_is_lost_when_any_one_write_fails(void **state)
{
    (void)state;
    no_acknowledged_record_is_lost_when(FAIL_WRITE, ERR_IO);
    no_acknowledged_record_is_lost_when(FAIL_WRITE, ERR_FULL);
}

static void no_acknowledged_record_is_lost_when_any_one_open_fails(void **state)
{
    (void)state;
    no_acknowledged_record_is_lost_when(FAIL_OPEN, ERR_IO);
    no_acknowledged_record_is_lost_when(FAIL_OPEN, ERR_FULL);
    no_acknowledged_record_is_lost_when(FAIL_OPEN, ERR_TOO_MANY);
}

static void no_acknowledged_record_is_lost_when_any_one_sync_fails(void **state)
{
    (void)state;
    no_acknowledged_record_is_lost_when(FAIL_SYNC, ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_match_the_model),
        cmocka_unit_test(no_acknowledged_record_is_lost_when_any_one_write_fails),
        cmocka_unit_test(no_acknowledged_record_is_lost_when_any_one_open_fails),
        cmocka_unit_test(no_acknowledged_record_is_lost_when_any_one_sync_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
