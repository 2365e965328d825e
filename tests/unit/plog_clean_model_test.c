/* plog: random histories, cleaned again and again, against a model of what consumers were promised.
 *
 * Whatever was cleaned, when, in how many passes and with what crashes in between: a consumer that reads from the start
 * ends up with the last committed value of each key; nobody sees a record that was never written, or a record of an
 * aborted transaction as committed; what lies above the cleaned part is complete; below it no key comes twice. */
#include "clean_world.h"

#include "plog/plog_internal.h"

enum { KEYS = 12, TXN_PRODUCERS = 3, PRODUCERS = 5, RECORDS_MAX = 6000, RETENTION_MS = 40000 };

enum outcome { OPEN, COMMITTED, ABORTED };

struct written {
    int key; /* -1: none */
    char value[12];
    bool tombstone, exists;
    int64_t timestamp;
    enum outcome outcome;
    int producer; /* -1: none */
};

struct producer_model {
    int32_t next_sequence;
    bool open; /* a transaction */
    bool known;
};

struct model {
    struct written records[RECORDS_MAX]; /* by offset; control records do not exist */
    int64_t end, start;
    struct producer_model producers[PRODUCERS]; /* the first TXN_PRODUCERS with transactions */
    uint64_t random;
    bool log_append_time;
};

static uint64_t draw(struct model *m, uint64_t below)
{
    m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (m->random >> 33) % below;
}

static const char *key_name(int key)
{
    static const char *const names[KEYS] = {"",  "a", "bb", "ccc", "d", "e",
                                            "f", "g", "h",  "i",   "j", "key of some length"};
    return names[key];
}

/* ---- Steps */

static void do_append(struct world *w, struct model *m)
{
    struct kv kvs[5];
    int count = 1 + (int)draw(m, 5);
    if (m->end + count + 1 >= RECORDS_MAX) return;
    int producer = draw(m, 3) ? (int)draw(m, PRODUCERS) : -1;
    struct batch_spec s = {.codec = (enum codec)draw(m, CODEC_COUNT), .timestamp = w->clock.now_ms};
    if (producer >= 0) {
        struct producer_model *p = &m->producers[producer];
        s.producer_id = 100 + producer;
        s.sequence = p->next_sequence;
        s.transactional = producer < TXN_PRODUCERS;
        p->next_sequence += count;
        p->open = s.transactional;
        p->known = true;
    }
    for (int i = 0; i < count; i++) {
        struct written *r = &m->records[m->end + i];
        *r = (struct written){
            .key = draw(m, 30) ? (int)draw(m, KEYS) : -1,
            .tombstone = draw(m, 4) == 0,
            .exists = true,
            .timestamp = m->log_append_time ? w->clock.now_ms : s.timestamp + i,
            .outcome = s.transactional ? OPEN : COMMITTED,
            .producer = producer,
        };
        snprintf(r->value, sizeof r->value, "%d", (int)draw(m, 100000));
        kvs[i] = (struct kv){r->key < 0 ? NULL : key_name(r->key), r->tombstone ? NULL : r->value};
    }
    struct append a = append_kvs(w, s, kvs, count);
    assert_int_equal(a.kerr, KERR_NONE);
    assert_int_equal(a.base_offset, m->end);
    m->end += count;
}

static void end_txn(struct world *w, struct model *m, int producer)
{
    struct producer_model *p = &m->producers[producer];
    if (!p->open || m->end + 1 >= RECORDS_MAX) return;
    bool commit = draw(m, 2);
    append_marker(w, 100 + producer, commit);
    for (int64_t i = 0; i < m->end; i++)
        if (m->records[i].producer == producer && m->records[i].outcome == OPEN)
            m->records[i].outcome = commit ? COMMITTED : ABORTED;
    m->records[m->end++].exists = false;
    p->open = false;
}

/* With files of snapshots gone, the producers' state must come out of what the cleaner left. */
static void remove_snapshot(void *arg, const char *name, bool is_dir)
{
    struct world *w = arg;
    (void)is_dir;
    if (strstr(name, ".snapshot")) remove_file(w, name);
}

static void check_producer(void *arg, const struct producer_view *p)
{
    struct model *m = arg;
    struct producer_model *known = &m->producers[p->producer_id - 100];
    assert_true(known->known);
    assert_int_equal(p->last_sequence, known->next_sequence - 1);
    assert_int_equal(p->txn_start_offset >= 0, known->open);
}

static int count_producers;
static void count_producer(void *arg, const struct producer_view *p)
{
    (void)arg;
    (void)p;
    count_producers++;
}

static void do_reopen(struct world *w, struct model *m)
{
    bool clean = draw(m, 2);
    int64_t recovery_point = draw(m, 2) ? plog_recovery_point(w->pl) : 0;
    w->opt.log_start = plog_start(w->pl);
    w->opt.cleaned = plog_cleaned(w->pl);
    if (clean) {
        world_close(w);
    } else {
        world_kill(w);
        w->opt.recovery_point = recovery_point;
        if (recovery_point == 0) assert_int_equal(fs_list(fs_system(), w->dir, remove_snapshot, w), OK);
    }
    world_open(w);
    plog_each_producer(w->pl, check_producer, m);
    count_producers = 0;
    plog_each_producer(w->pl, count_producer, NULL);
    int known = 0;
    for (int i = 0; i < PRODUCERS; i++) known += m->producers[i].known;
    assert_int_equal(count_producers, known);
}

/* ---- What was promised */

/* The last committed record of a key at or above the log's start, below the first open transaction; -1: none. */
static int64_t last_of_key(const struct model *m, int key, int64_t below)
{
    for (int64_t i = below - 1; i >= m->start; i--)
        if (m->records[i].exists && m->records[i].key == key && m->records[i].outcome == COMMITTED) return i;
    return -1;
}

static void check_record(const struct model *m, const struct seen *r)
{
    assert_in_range(r->offset, 0, m->end - 1);
    const struct written *wrote = &m->records[r->offset];
    assert_true(wrote->exists);
    assert_int_equal(r->timestamp, wrote->timestamp);
    assert_int_equal(r->aborted, wrote->outcome == ABORTED);
    assert_int_equal(r->value == NULL, wrote->tombstone);
    if (r->value) assert_string_equal(r->value, wrote->value);
    assert_int_equal(r->key == NULL, wrote->key < 0);
    if (r->key) assert_string_equal(r->key, key_name(wrote->key));
}

static void check_keys(const struct model *m, const struct view *v, int64_t stable, int64_t now_ms)
{
    for (int key = 0; key < KEYS; key++) {
        int64_t found = -1, expected = last_of_key(m, key, stable);
        for (size_t i = 0; i < v->count; i++) {
            const struct seen *r = &v->records[i];
            if (r->aborted || r->offset >= stable || !r->key || strcmp(r->key, key_name(key)) != 0) continue;
            found = r->offset;
        }
        if (found == expected) continue;
        /* Only an old tombstone may be missing, and then everything before it is. */
        assert_true(expected >= 0 && found < 0);
        assert_true(m->records[expected].tombstone);
        assert_true(now_ms - m->records[expected].timestamp >= RETENTION_MS);
    }
}

static void check_cleaned(const struct model *m, const struct view *v, const struct cleaner *cl)
{
    int seen[KEYS] = {0};
    for (size_t i = 0; i < v->count; i++) {
        const struct seen *r = &v->records[i];
        if (r->offset >= cl->checkpoint) continue;
        assert_false(r->aborted);
        int key = m->records[r->offset].key;
        assert_true(key >= 0);
        assert_int_equal(seen[key]++, 0);
    }
}

/* Whether a record that is not there should be: above what has been cleaned only aborted ones may have gone. */
static bool is_missed(const struct model *m, const struct cleaner *cl, int64_t offset)
{
    const struct written *r = &m->records[offset];
    return r->exists && (r->outcome != ABORTED || offset >= cl->plan.first_uncleanable);
}

static void check_promises(struct world *w, const struct model *m, const struct cleaner *cl)
{
    struct view v;
    plog_replicated(w->pl, m->end);
    int64_t stable = plog_first_unstable(w->pl), next = MAX(cl->checkpoint, m->start);
    assert_int_equal(plog_end(w->pl), m->end);
    view_read(w, m->start, &v);
    for (size_t i = 0; i < v.count; i++) {
        check_record(m, &v.records[i]);
        if (i > 0) assert_true(v.records[i].offset > v.records[i - 1].offset);
        if (v.records[i].offset < next) continue;
        for (; next < v.records[i].offset; next++) assert_false(is_missed(m, cl, next));
        next++;
    }
    for (; next < m->end; next++) assert_false(is_missed(m, cl, next));
    check_keys(m, &v, stable, w->clock.now_ms);
    check_cleaned(m, &v, cl);
    view_free(&v);
}

static void step(struct world *w, struct model *m, struct cleaner *cl)
{
    w->clock.now_ms += (int64_t)draw(m, 2000);
    switch (draw(m, 20)) {
    case 0: roll(w); break;
    case 1:
    case 2: {
        clean_ok(w, cl);
        check_promises(w, m, cl);
        break;
    }
    case 3:
        if (draw(m, 3) == 0) do_reopen(w, m);
        break;
    case 4:
    case 5:
    case 6:
    case 7: end_txn(w, m, (int)draw(m, TXN_PRODUCERS)); break;
    case 8:
        if (draw(m, 30) == 0 && cl->checkpoint > m->start) { /* DeleteRecords */
            m->start += (int64_t)draw(m, (uint64_t)(cl->checkpoint - m->start));
            assert_int_equal(plog_set_start(w->pl, m->start), OK);
        }
        break;
    default: do_append(w, m); break;
    }
}

static void cleaned_histories_keep_what_was_promised(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 15; seed++) {
        struct world w;
        struct cleaner cl;
        struct model *m = mem_zalloc(1, sizeof *m);
        world_init(&w);
        cleaner_init(&cl);
        m->random = seed;
        m->log_append_time = seed % 5 == 0;
        w.opt.config.segment_bytes = 700 + (int64_t)draw(m, 4000);
        w.opt.config.index_interval_bytes = (int64_t)draw(m, 600);
        w.opt.config.cleanup_delete = false;
        w.opt.config.cleanup_compact = true;
        w.opt.config.delete_retention_ms = RETENTION_MS;
        w.opt.config.max_compaction_lag_ms = INT64_MAX;
        w.opt.config.file_delete_delay_ms = 0;
        w.opt.config.log_append_time = m->log_append_time;
        w.opt.config.producer_expiration_ms = INT64_MAX;
        cl.limits.map_bytes = seed % 3 ? 1 << 20 : 24 * (2 + draw(m, 12)); /* tiny ones need several passes */
        cl.limits.io_bytes = seed % 2 ? 64 : 65536;
        world_open(&w);
        for (int i = 0; i < 900; i++) step(&w, m, &cl);
        for (int i = 0; i < TXN_PRODUCERS; i++) end_txn(&w, m, i);
        w.clock.now_ms += 2 * RETENTION_MS;
        roll(&w);
        for (int i = 0; i < 4; i++) {
            for (int n = 0; n < 5; n++) do_append(&w, m);
            for (int n = 0; n < TXN_PRODUCERS; n++) end_txn(&w, m, n);
            roll(&w);
            do clean_ok(&w, &cl);
            while (cl.plan.dirty_bytes > 0 && cl.checkpoint < cl.plan.first_uncleanable);
            check_promises(&w, m, &cl);
            do_reopen(&w, m);
            check_promises(&w, m, &cl);
            w.clock.now_ms += 2 * RETENTION_MS;
        }
        mem_free(m);
        world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleaned_histories_keep_what_was_promised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
