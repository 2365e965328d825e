/* clean_world.h: what the tests of cleaning share: batches with keys, a cleaning, and what consumers then read. */
#ifndef TESTS_CLEAN_WORLD_H
#define TESTS_CLEAN_WORLD_H

#include "plog_world.h"

#include "os/rng.h"
#include "plog/clean.h"

/* A record: the value is NULL in a tombstone, the key may be NULL. */
struct kv {
    const char *key, *value;
};

/* Appends a batch with these records; spec.count and value_size do not matter. */
static UNUSED struct append append_kvs(struct world *w, struct batch_spec s, const struct kv *kvs, int count)
{
    struct batch_builder bb;
    struct writer bytes;
    struct append a;
    int16_t attributes = (int16_t)((int)s.codec | (s.transactional ? BATCH_TRANSACTIONAL : 0));
    int64_t timestamp = s.timestamp ? s.timestamp : w->clock.now_ms;
    batch_builder_init(&bb, w->pool, attributes, timestamp);
    if (s.producer_id) {
        bb.info.producer_id = s.producer_id;
        bb.info.producer_epoch = s.producer_epoch;
        bb.info.base_sequence = s.sequence;
    }
    for (int i = 0; i < count; i++) {
        struct bytes key = {(const uint8_t *)kvs[i].key, kvs[i].key ? strlen(kvs[i].key) : 0};
        struct bytes value = {(const uint8_t *)kvs[i].value, kvs[i].value ? strlen(kvs[i].value) : 0};
        struct record_header header = {{"h", 1}, key};
        batch_builder_add(&bb, timestamp + i, key, value, &header, i % 2);
    }
    writer_init(&bytes, w->pool);
    assert_int_equal(batch_builder_finish(&bb, &bytes), OK);
    batch_builder_fini(&bb);
    append_bytes(w, &bytes, &s, &a);
    a.data = NULL;
    writer_fini(&bytes);
    return a;
}

static UNUSED int64_t append_kv(struct world *w, const char *key, const char *value)
{
    struct append a = append_kvs(w, (struct batch_spec){0}, &(struct kv){key, value}, 1);
    assert_int_equal(a.kerr, KERR_NONE);
    return a.base_offset;
}

static UNUSED void append_marker(struct world *w, int64_t producer_id, bool commit)
{
    append_ok(w, (struct batch_spec){
                     .producer_id = producer_id, .marker = true, .commit = commit, .origin = APPEND_COORDINATOR});
}

/* ---- Cleaning */

struct cleaner {
    struct clean_limits limits;
    struct rng rng;
    int64_t checkpoint;         /* plog_cleaned() after the last one */
    struct clean_plan plan;     /* of the last cleaning */
    struct clean_result result; /* of the last one that went well */
    bool (*go_on)(void *arg, size_t bytes);
    void *arg;
};

static UNUSED void same_bytes(struct rng *r, void *out, size_t size)
{
    (void)r;
    for (size_t i = 0; i < size; i++) ((uint8_t *)out)[i] = (uint8_t)(i * 37 + 11);
}

static UNUSED void cleaner_init(struct cleaner *cl)
{
    *cl = (struct cleaner){
        .limits = {.map_bytes = 1 << 20, .load_factor = 0.9, .io_bytes = 65536},
        .rng = {.fill = same_bytes},
        .checkpoint = -1,
    };
}

/* One cleaning with everything replicated. */
static UNUSED enum err clean_once(struct world *w, struct cleaner *cl)
{
    plog_replicated(w->pl, plog_end(w->pl));
    int64_t below = plog_first_unstable(w->pl), now_ms = w->clock.now_ms;
    enum err e = plog_clean_plan(w->pl, below, now_ms, &cl->plan);
    if (e) return e;
    struct clean_tools *tools = clean_tools_new(&cl->limits, &cl->rng);
    struct clean_request rq = {.plan = cl->plan, .now_ms = now_ms, .tools = tools, .go_on = cl->go_on, .arg = cl->arg};
    e = plog_clean(w->pl, &rq, &cl->result);
    clean_tools_free(tools);
    if (!e && cl->plan.dirty_bytes > 0) assert_int_equal(cl->result.first_dirty, plog_cleaned(w->pl));
    cl->checkpoint = plog_cleaned(w->pl);
    return e;
}

static UNUSED void clean_ok(struct world *w, struct cleaner *cl)
{
    assert_int_equal(clean_once(w, cl), OK);
}

/* Makes what was appended cleanable: the active segment never is. */
static UNUSED void roll(struct world *w)
{
    int64_t next_ms, segment_ms = w->opt.config.segment_ms;
    w->opt.config.segment_ms = 0;
    plog_reconfigure(w->pl, &w->opt.config);
    w->clock.now_ms += 1;
    assert_int_equal(plog_retain(w->pl, w->clock.now_ms, 0, &next_ms), OK);
    w->opt.config.segment_ms = segment_ms;
    plog_reconfigure(w->pl, &w->opt.config);
}

/* ---- What consumers read */

struct seen {
    int64_t offset, timestamp;
    char *key, *value; /* NULL as in the log */
    int32_t headers;
    bool aborted;
};

struct view {
    struct seen *records; /* of data, in order */
    size_t count, cap;
    struct batch_info *batches; /* all, in order */
    size_t batch_count, batch_cap;
};

static UNUSED void view_free(struct view *v)
{
    for (size_t i = 0; i < v->count; i++) {
        mem_free(v->records[i].key);
        mem_free(v->records[i].value);
    }
    mem_free(v->records);
    mem_free(v->batches);
    *v = (struct view){0};
}

struct aborts {
    struct aborted_txn txns[256];
    int count;
};

static UNUSED void add_abort(void *arg, const struct aborted_txn *txn)
{
    struct aborts *a = arg;
    assert_true(a->count < 256);
    a->txns[a->count++] = *txn;
}

static UNUSED char *text_of(struct bytes b)
{
    return b.data ? mem_strndup((const char *)b.data, b.size) : NULL;
}

static UNUSED void view_batch(struct view *v, const uint8_t *data, const struct batch_info *b, bool aborted)
{
    struct record_iter it;
    struct record r;
    enum err e;
    v->batches = mem_grow(v->batches, &v->batch_cap, v->batch_count + 1, sizeof *v->batches);
    v->batches[v->batch_count++] = *b;
    assert_int_equal(record_iter_init(&it, data, (size_t)b->size, 1 << 20), OK);
    while (!(e = record_iter_next(&it, &r))) {
        if (b->attributes & BATCH_CONTROL) continue;
        v->records = mem_grow(v->records, &v->cap, v->count + 1, sizeof *v->records);
        v->records[v->count++] =
            (struct seen){r.offset, r.timestamp, text_of(r.key), text_of(r.value), r.header_count, aborted};
    }
    assert_int_equal(e, ERR_NOT_FOUND);
    record_iter_fini(&it);
}

/* Whether a consumer with read_committed leaves the batch out: as clients do it, with the list that a fetch brings. */
static UNUSED bool is_aborted(const struct aborts *a, const struct batch_info *b)
{
    if (!(b->attributes & BATCH_TRANSACTIONAL) || b->attributes & BATCH_CONTROL) return false;
    for (int i = 0; i < a->count; i++) {
        const struct aborted_txn *t = &a->txns[i];
        if (t->producer_id == b->producer_id && b->base_offset >= t->first_offset && b->base_offset < t->last_offset)
            return true;
    }
    return false;
}

/* Reads everything from `from` on, fetch by fetch. */
static UNUSED void view_read(struct world *w, int64_t from, struct view *v)
{
    struct aborts *aborts = mem_zalloc(1, sizeof *aborts);
    int64_t end = plog_end(w->pl);
    *v = (struct view){0};
    assert_int_equal(plog_aborted_txns(w->pl, from, end, false, add_abort, aborts), OK);
    for (int64_t at = from; at < end;) {
        struct plog_slice s;
        assert_int_equal(plog_read(w->pl, at, end, 4096, true, false, &s), OK);
        if (!s.file) break;
        uint8_t *data = mem_alloc(s.size);
        size_t got, pos = 0;
        assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
        assert_int_equal(got, s.size);
        while (s.size - pos >= BATCH_HEADER_SIZE) {
            struct batch_info b;
            if (batch_parse_header(&b, data + pos, (int64_t)(s.size - pos)) != OK) break; /* a partial one */
            assert_true(batch_crc_ok(data + pos, &b));
            assert_true(batch_last_offset(&b) >= at);
            if (b.base_offset >= at) view_batch(v, data + pos, &b, is_aborted(aborts, &b));
            at = batch_last_offset(&b) + 1;
            pos += (size_t)b.size;
        }
        assert_true(pos > 0);
        mem_free(data);
        plog_slice_release(&s);
    }
    mem_free(aborts);
}

/* "key=value@offset ..." of what read_uncommitted sees, or read_committed; a tombstone is "key=-@offset". */
static UNUSED char *view_text(struct world *w, bool committed)
{
    struct view v;
    view_read(w, plog_start(w->pl), &v);
    char *text = mem_strdup("");
    for (size_t i = 0; i < v.count; i++) {
        const struct seen *r = &v.records[i];
        if (committed && r->aborted) continue;
        char *longer = mem_printf("%s%s%s=%s@%lld", text, *text ? " " : "", r->key ? r->key : "?",
                                  r->value ? r->value : "-", (long long)r->offset);
        mem_free(text);
        text = longer;
    }
    view_free(&v);
    return text;
}

static UNUSED void check_view(struct world *w, const char *expected)
{
    char *text = view_text(w, false);
    assert_string_equal(text, expected);
    mem_free(text);
}

#endif
