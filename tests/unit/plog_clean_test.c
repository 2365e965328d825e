/* plog: the rules of cleaning, one by one. */
#include "clean_world.h"

#include "plog/plog_internal.h"

enum { HOUR_MS = 3600 * 1000 };

static void begin(struct world *w, struct cleaner *cl)
{
    world_init(w);
    w->opt.config.cleanup_delete = false;
    w->opt.config.cleanup_compact = true;
    w->opt.config.max_compaction_lag_ms = INT64_MAX;
    w->opt.config.min_cleanable_dirty_ratio = 0.5;
    w->opt.config.delete_retention_ms = HOUR_MS;
    w->opt.config.index_interval_bytes = 100;
    cleaner_init(cl);
    world_open(w);
}

static void the_last_value_of_each_key_stays(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "1");
    append_kv(&w, "b", "1");
    append_kv(&w, "a", "2");
    roll(&w);
    append_kv(&w, "b", "2");
    append_kv(&w, "c", "1");
    roll(&w);
    append_kv(&w, "c", "2");
    clean_ok(&w, &cl);
    check_view(&w, "a=2@2 b=2@3 c=1@4 c=2@5");
    assert_int_equal(cl.checkpoint, 5); /* the active segment's base */
    assert_int_equal(w.pl->segment_count, 2);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log"), w.pl->segments[0]->size);
    assert_int_equal(plog_size(w.pl), w.pl->segments[0]->size + w.pl->segments[1]->size);
    world_fini(&w);
}

static void a_partly_kept_batch_keeps_its_header(void **state)
{
    (void)state;
    static const enum codec codecs[] = {CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD};
    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        struct world w;
        struct cleaner cl;
        begin(&w, &cl);
        struct kv kvs[] = {{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "1"}};
        struct batch_spec s = {.codec = codecs[i], .producer_id = 7, .producer_epoch = 3, .leader_epoch = 5};
        assert_int_equal(append_kvs(&w, s, kvs, 4).kerr, KERR_NONE);
        struct batch_spec later = {.leader_epoch = 5};
        append_ok(&w, later);
        assert_int_equal(append_kvs(&w, later, &(struct kv){"a", "2"}, 1).kerr, KERR_NONE);
        assert_int_equal(append_kvs(&w, later, &(struct kv){"d", "2"}, 1).kerr, KERR_NONE);
        roll(&w);
        struct view before, after;
        view_read(&w, 0, &before);
        clean_ok(&w, &cl);
        check_view(&w, "b=1@1 c=1@2 k=@4 a=2@5 d=2@6");
        view_read(&w, 0, &after);
        struct batch_info *b = &after.batches[0], *old = &before.batches[0];
        assert_int_equal(b->base_offset, 0);
        assert_int_equal(b->last_offset_delta, 3);
        assert_int_equal(b->count, 2);
        assert_int_equal(b->attributes, codecs[i]);
        assert_int_equal(b->producer_id, 7);
        assert_int_equal(b->producer_epoch, 3);
        assert_int_equal(b->base_sequence, 0);
        assert_int_equal(b->leader_epoch, 5);
        assert_int_equal(b->base_timestamp, old->base_timestamp);
        assert_int_equal(b->max_timestamp, old->base_timestamp + 2);
        assert_int_equal(after.records[0].timestamp, before.records[1].timestamp);
        assert_int_equal(after.records[0].headers, 1);
        view_free(&before);
        view_free(&after);
        world_fini(&w);
    }
}

static void a_batch_that_stays_is_copied_byte_by_byte(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    struct kv kvs[] = {{"a", "1"}, {"b", "1"}};
    append_kv(&w, "x", "1");
    assert_int_equal(append_kvs(&w, (struct batch_spec){.codec = CODEC_ZSTD}, kvs, 2).kerr, KERR_NONE);
    append_kv(&w, "x", "2");
    roll(&w);
    struct view before, after;
    view_read(&w, 0, &before);
    clean_ok(&w, &cl);
    view_read(&w, 0, &after);
    assert_int_equal(after.batch_count, before.batch_count - 1);
    assert_int_equal(after.batches[0].size, before.batches[1].size);
    assert_int_equal(after.batches[0].crc, before.batches[1].crc);
    assert_int_equal(after.batches[0].leader_epoch, before.batches[1].leader_epoch);
    view_free(&before);
    view_free(&after);
    world_fini(&w);
}

static void tombstones_stay_for_the_delete_retention_time(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "1");
    append_kv(&w, "a", NULL);
    append_kv(&w, "z", "1");
    roll(&w);
    int64_t cleaned_ms = w.clock.now_ms;
    clean_ok(&w, &cl);
    check_view(&w, "a=-@1 z=1@2");
    struct view v;
    view_read(&w, 0, &v);
    assert_true(v.batches[0].attributes & BATCH_DELETE_HORIZON);
    assert_int_equal(v.batches[0].base_timestamp, cleaned_ms + HOUR_MS);
    assert_int_equal(v.records[0].timestamp, v.batches[0].max_timestamp); /* the record's time is what it was */
    assert_true(v.records[0].timestamp < cleaned_ms);
    view_free(&v);

    append_kv(&w, "z", "2");
    roll(&w);
    w.clock.now_ms = cleaned_ms + HOUR_MS - 1;
    clean_ok(&w, &cl);
    check_view(&w, "a=-@1 z=2@3");
    append_kv(&w, "z", "3");
    roll(&w);
    w.clock.now_ms = cleaned_ms + HOUR_MS;
    clean_ok(&w, &cl);
    check_view(&w, "z=3@4");
    world_fini(&w);
}

static void a_horizon_in_a_compressed_batch_keeps_each_records_time(void **state)
{
    (void)state;
    for (int append_time = 0; append_time < 2; append_time++) {
        struct world w;
        struct cleaner cl;
        begin(&w, &cl);
        w.opt.config.log_append_time = append_time;
        plog_reconfigure(w.pl, &w.opt.config);
        struct kv kvs[] = {{"a", "1"}, {"b", NULL}, {"c", "1"}, {"a", NULL}};
        assert_int_equal(append_kvs(&w, (struct batch_spec){.codec = CODEC_LZ4}, kvs, 4).kerr, KERR_NONE);
        append_kv(&w, "z", "1");
        roll(&w);
        struct view before, after;
        view_read(&w, 0, &before);
        clean_ok(&w, &cl);
        check_view(&w, "b=-@1 c=1@2 a=-@3 z=1@4");
        view_read(&w, 0, &after);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(after.records[i].timestamp, before.records[i + 1].timestamp);
            assert_int_equal(after.records[i].headers, before.records[i + 1].headers);
        }
        view_free(&before);
        view_free(&after);
        world_fini(&w);
    }
}

static void records_without_a_key_go(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, NULL, "1");
    append_kv(&w, "", "1");
    append_kv(&w, "", "2");
    roll(&w);
    clean_ok(&w, &cl);
    check_view(&w, "=2@2"); /* an empty key is a key */
    world_fini(&w);
}

static void aborted_records_go_and_their_marker_follows_later(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "0");
    for (int i = 0; i < 2; i++) /* the second one's last batch is its producer's last: an empty one stays */
        append_kvs(&w, (struct batch_spec){.producer_id = 9, .transactional = true, .sequence = i},
                   &(struct kv){"a", "aborted"}, 1);
    append_marker(&w, 9, false);
    append_kvs(&w, (struct batch_spec){.producer_id = 8, .transactional = true}, &(struct kv){"b", "1"}, 1);
    append_marker(&w, 8, true);
    append_kv(&w, "z", "1");
    roll(&w);
    clean_ok(&w, &cl);
    check_view(&w, "a=0@0 b=1@4 z=1@6");
    struct view v;
    view_read(&w, 0, &v);
    assert_int_equal(v.batch_count, 6); /* a, the empty one, its marker, b, its marker, z */
    assert_int_equal(v.batches[1].count, 0);
    assert_int_equal(v.batches[1].base_offset, 2);
    assert_int_equal(v.batches[1].base_sequence, 1);
    assert_true(v.batches[1].attributes & BATCH_TRANSACTIONAL);
    assert_int_equal(v.batches[2].base_offset, 3);
    view_free(&v);
    assert_int_equal(size_of_file(&w, "00000000000000000000.txnindex"), 34);

    /* Producer 9 goes on: the empty batch is of no use any more; the next cleaning finds nothing before the marker,
     * which goes an hour later. */
    append_kvs(&w, (struct batch_spec){.producer_id = 9, .transactional = true, .sequence = 2}, &(struct kv){"c", "1"},
               1);
    append_marker(&w, 9, true);
    for (int i = 0; i < 2; i++) {
        append_kv(&w, "z", "2");
        roll(&w);
        clean_ok(&w, &cl);
        assert_int_equal(size_of_file(&w, "00000000000000000000.txnindex"), i ? -1 : 34);
    }
    view_read(&w, 0, &v);
    assert_int_equal(v.batches[1].base_offset, 3); /* the marker */
    assert_true(v.batches[1].attributes & BATCH_DELETE_HORIZON);
    assert_int_equal(v.batches[1].count, 1);
    view_free(&v);
    w.clock.now_ms += HOUR_MS;
    append_kv(&w, "z", "3");
    roll(&w);
    clean_ok(&w, &cl);
    view_read(&w, 0, &v);
    assert_int_equal(v.batches[1].base_offset, 4); /* b: the marker is gone */
    view_free(&v);
    check_view(&w, "a=0@0 b=1@4 c=1@7 z=3@11");
    world_fini(&w);
}

static void an_open_transaction_is_not_cleaned(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "1");
    append_kv(&w, "a", "2");
    roll(&w);
    append_kvs(&w, (struct batch_spec){.producer_id = 9, .transactional = true}, &(struct kv){"a", "3"}, 1);
    roll(&w);
    append_kv(&w, "a", "4");
    roll(&w);
    clean_ok(&w, &cl);
    assert_int_equal(cl.checkpoint, 2);
    check_view(&w, "a=2@1 a=3@2 a=4@3");
    world_fini(&w);
}

static void the_last_batch_of_a_producer_and_of_the_range_stay_empty(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    for (int i = 0; i < 3; i++)
        append_kvs(&w, (struct batch_spec){.producer_id = 5, .sequence = i, .codec = CODEC_GZIP},
                   &(struct kv){"a", "1"}, 1);
    append_kv(&w, "a", "2");
    append_kv(&w, NULL, "last of the range");
    roll(&w);
    clean_ok(&w, &cl);
    check_view(&w, "a=2@3");
    struct view v;
    view_read(&w, 0, &v);
    assert_int_equal(v.batch_count, 3);
    assert_int_equal(v.batches[0].base_offset, 2);
    assert_int_equal(v.batches[0].base_sequence, 2);
    assert_int_equal(v.batches[0].attributes, 0);
    assert_int_equal(v.batches[0].size, BATCH_HEADER_SIZE);
    assert_int_equal(v.batches[2].base_offset, 4);
    assert_int_equal(v.batches[2].count, 0);
    view_free(&v);
    /* The sequence is found again by reading the log. */
    world_kill(&w);
    w.opt.recovery_point = 0;
    world_open(&w);
    struct append a = append_kvs(&w, (struct batch_spec){.producer_id = 5, .sequence = 4}, &(struct kv){"a", "3"}, 1);
    assert_int_equal(a.kerr, KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    a = append_kvs(&w, (struct batch_spec){.producer_id = 5, .sequence = 3}, &(struct kv){"a", "3"}, 1);
    assert_int_equal(a.kerr, KERR_NONE);
    world_fini(&w);
}

static void a_full_table_ends_the_pass_and_the_next_goes_on(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    cl.limits.map_bytes = 4 * 24;
    cl.limits.load_factor = 0.75; /* three keys */
    char keys[12][16];
    struct kv kvs[12];
    for (int i = 0; i < 12; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i % 6);
        kvs[i] = (struct kv){keys[i], i < 6 ? "1" : "2"};
    }
    assert_int_equal(append_kvs(&w, (struct batch_spec){.codec = CODEC_LZ4}, kvs, 12).kerr, KERR_NONE);
    roll(&w);
    int passes = 0;
    for (int64_t before = -1; cl.checkpoint < 12; passes++) {
        clean_ok(&w, &cl);
        assert_true(cl.checkpoint > before); /* each one makes progress */
        before = cl.checkpoint;
    }
    assert_int_equal(passes, 4);
    check_view(&w, "k0=2@6 k1=2@7 k2=2@8 k3=2@9 k4=2@10 k5=2@11");
    world_fini(&w);
}

static void groups_stay_within_a_segments_size(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    for (int i = 0; i < 6; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        append_kv(&w, key, "1");
        append_kv(&w, "same", "1");
        roll(&w);
    }
    int64_t segment = w.pl->segments[0]->size;
    w.opt.config.segment_bytes = 2 * segment;
    plog_reconfigure(w.pl, &w.opt.config);
    clean_ok(&w, &cl);
    assert_int_equal(w.pl->segment_count, 4);
    assert_int_equal(w.pl->segments[1]->base_offset, 4);
    assert_int_equal(size_of_file(&w, "00000000000000000002.log"), -1);
    assert_true(size_of_file(&w, "00000000000000000002.log.deleted") > 0);
    check_view(&w, "k0=1@0 k1=1@2 k2=1@4 k3=1@6 k4=1@8 k5=1@10 same=1@11");
    /* What is old goes when file.delete.delay.ms is over. */
    int64_t next_ms;
    w.clock.now_ms += w.opt.config.file_delete_delay_ms;
    assert_int_equal(plog_retain(w.pl, w.clock.now_ms, 0, &next_ms), OK);
    assert_int_equal(size_of_file(&w, "00000000000000000002.log.deleted"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log.deleted"), -1);
    world_fini(&w);
}

static void a_segment_of_which_all_stays_is_left_alone(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "1");
    append_kv(&w, "b", "1");
    roll(&w);
    struct segment *seg = w.pl->segments[0];
    clean_ok(&w, &cl);
    assert_ptr_equal(w.pl->segments[0], seg);
    assert_int_equal(cl.result.bytes_written, 0);
    assert_int_equal(cl.checkpoint, 2);
    world_fini(&w);
}

static void compaction_lags_bound_what_is_cleaned(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "1");
    append_kv(&w, "a", "2");
    roll(&w);
    w.clock.now_ms += HOUR_MS;
    append_kv(&w, "a", "3");
    roll(&w);
    w.opt.config.min_compaction_lag_ms = HOUR_MS;
    plog_reconfigure(w.pl, &w.opt.config);
    clean_ok(&w, &cl);
    assert_int_equal(cl.plan.first_uncleanable, 2);
    check_view(&w, "a=2@1 a=3@2");

    w.opt.config.max_compaction_lag_ms = 2 * HOUR_MS;
    plog_reconfigure(w.pl, &w.opt.config);
    struct clean_plan plan;
    assert_int_equal(plog_clean_plan(w.pl, plog_end(w.pl), w.clock.now_ms + HOUR_MS, &plan), OK);
    assert_false(plan.overdue);
    assert_int_equal(plan.first_uncleanable, 3);
    assert_int_equal(plog_clean_plan(w.pl, plog_end(w.pl), w.clock.now_ms + 3 * HOUR_MS, &plan), OK);
    assert_true(plan.overdue);
    world_fini(&w);
}

static void plans_follow_the_checkpoint(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    for (int i = 0; i < 4; i++) {
        append_kv(&w, "a", "1");
        roll(&w);
    }
    struct clean_plan plan;
    int64_t now_ms = w.clock.now_ms, segment = w.pl->segments[0]->size;
    w.pl->cleaned = -1;
    assert_int_equal(plog_clean_plan(w.pl, 4, now_ms, &plan), OK);
    assert_int_equal(plan.first_dirty, 0);
    assert_int_equal(plan.first_uncleanable, 4);
    assert_int_equal(plan.dirty_bytes, 4 * segment);
    assert_true(plan.ratio == 1.0);
    assert_true(plan.due);
    w.pl->cleaned = 3;
    assert_int_equal(plog_clean_plan(w.pl, 4, now_ms, &plan), OK);
    assert_int_equal(plan.clean_bytes, 3 * segment);
    assert_true(plan.ratio == 0.25);
    assert_false(plan.due); /* min.cleanable.dirty.ratio is 0.5 */
    w.pl->cleaned = 1;
    assert_int_equal(plog_clean_plan(w.pl, 3, now_ms, &plan), OK); /* the high watermark is at 3 */
    assert_int_equal(plan.first_uncleanable, 3);
    assert_int_equal(plan.dirty_bytes, 2 * segment);
    w.pl->cleaned = 9;
    assert_int_equal(plog_clean_plan(w.pl, 4, now_ms, &plan), OK);
    assert_true(plan.reset);
    assert_int_equal(plan.first_dirty, 0);
    assert_int_equal(plog_set_start(w.pl, 2), OK);
    w.pl->cleaned = 1;
    assert_int_equal(plog_clean_plan(w.pl, 4, now_ms, &plan), OK);
    assert_true(plan.reset);
    assert_int_equal(plan.first_dirty, 2);
    w.pl->config.cleanup_delete = true; /* then it is nothing odd */
    assert_int_equal(plog_clean_plan(w.pl, 4, now_ms, &plan), OK);
    assert_false(plan.reset);
    assert_int_equal(plan.first_dirty, 2);
    world_fini(&w);
}

static void a_corrupt_batch_ends_the_cleaning_and_changes_nothing(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    append_kv(&w, "a", "1");
    append_kv(&w, "a", "2");
    roll(&w);
    world_close(&w);
    uint8_t *data;
    size_t size;
    read_file(&w, "00000000000000000000.log", &data, &size);
    data[size - 3] ^= 1;
    write_file(&w, "00000000000000000000.log", data, size);
    mem_free(data);
    world_open(&w);
    assert_int_equal(clean_once(&w, &cl), ERR_CORRUPT);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log"), (int64_t)size);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log.cleaned"), -1);
    assert_int_equal(w.failed_count, 0);
    world_fini(&w);
}

static bool stop_at_once(void *arg, size_t bytes)
{
    int *left = arg;
    (void)bytes;
    return (*left)-- > 0;
}

static void a_cleaning_can_be_ended_at_any_time(void **state)
{
    (void)state;
    for (int turns = 0;; turns++) {
        struct world w;
        struct cleaner cl;
        int left = turns;
        begin(&w, &cl);
        cl.limits.io_bytes = 64;
        cl.go_on = stop_at_once;
        cl.arg = &left;
        for (int i = 0; i < 4; i++) append_kv(&w, "a", i == 3 ? "last" : "1");
        roll(&w);
        enum err e = clean_once(&w, &cl);
        if (e) {
            assert_int_equal(e, ERR_AGAIN);
            check_view(&w, "a=1@0 a=1@1 a=1@2 a=last@3");
            assert_int_equal(size_of_file(&w, "00000000000000000000.log.cleaned"), -1);
            cl.go_on = NULL;
            clean_ok(&w, &cl);
        }
        check_view(&w, "a=last@3");
        world_fini(&w);
        if (!e) break;
        assert_true(turns < 100);
    }
}

struct cutter {
    struct world *w;
    int64_t at;
    bool retire;
};

static bool cut_meanwhile(void *arg, size_t bytes)
{
    struct cutter *c = arg;
    (void)bytes;
    if (c->at >= 0) {
        int64_t at = c->at;
        c->at = -1;
        char *to = mem_printf("%s-gone", c->w->dir);
        enum err e = c->retire ? plog_retire(c->w->pl, to) : plog_truncate(c->w->pl, at);
        mem_free(to);
        assert_int_equal(e, OK);
    }
    return true;
}

static void a_log_that_is_cut_or_retired_meanwhile_is_not_cleaned(void **state)
{
    (void)state;
    for (int retire = 0; retire < 2; retire++) {
        struct world w;
        struct cleaner cl;
        begin(&w, &cl);
        for (int i = 0; i < 4; i++) append_kv(&w, "a", "1");
        roll(&w);
        struct cutter c = {&w, 2, retire};
        cl.go_on = cut_meanwhile;
        cl.arg = &c;
        assert_int_equal(clean_once(&w, &cl), retire ? ERR_CLOSED : ERR_AGAIN);
        if (!retire) check_view(&w, "a=1@0 a=1@1");
        assert_int_equal(size_of_file(&w, "00000000000000000000.log.cleaned"), -1);
        assert_int_equal(w.failed_count, 0);
        world_fini(&w);
    }
}

static void readers_keep_what_they_began_with(void **state)
{
    (void)state;
    struct world w;
    struct cleaner cl;
    begin(&w, &cl);
    for (int i = 0; i < 40; i++) append_kv(&w, i % 2 ? "a" : "b", "a value of some length");
    roll(&w);
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 0, 40, 1 << 20, true, false, &s), OK);
    /* Hints of the old file must not lead into the new one. */
    struct plog_slice part;
    assert_int_equal(plog_read(w.pl, 0, 40, 300, true, false, &part), OK);
    plog_slice_release(&part);
    clean_ok(&w, &cl);
    uint8_t *data = mem_alloc(s.size);
    size_t got;
    assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
    assert_int_equal(got, s.size);
    struct batch_info b;
    assert_int_equal(batch_parse_header(&b, data, INT32_MAX), OK);
    assert_true(batch_crc_ok(data, &b));
    mem_free(data);
    plog_slice_release(&s);
    for (int64_t from = 0; from < 40; from++) {
        assert_int_equal(plog_read(w.pl, from, 40, 300, true, false, &s), OK);
        assert_int_equal(s.start_offset, from <= 38 ? 38 : 39);
        plog_slice_release(&s);
    }
    int64_t offset, found_ms;
    int32_t epoch;
    assert_int_equal(plog_find_time(w.pl, 0, 41, &offset, &found_ms, &epoch), OK);
    assert_int_equal(offset, 38);
    world_fini(&w);
}

static void a_cleaned_log_opens_as_it_was(void **state)
{
    (void)state;
    for (int unclean = 0; unclean < 2; unclean++) {
        struct world w;
        struct cleaner cl;
        begin(&w, &cl);
        for (int i = 0; i < 200; i++) {
            w.clock.now_ms++;
            append_kv(&w, i % 3 ? "a" : i % 2 ? "b" : "c", "a value of some length");
        }
        int64_t last_ms = w.clock.now_ms, offset, found_ms;
        int32_t epoch;
        roll(&w);
        append_kv(&w, "c", "1");
        w.opt.config.index_interval_bytes = 4096;
        plog_reconfigure(w.pl, &w.opt.config);
        clean_ok(&w, &cl);
        assert_int_equal(size_of_file(&w, "00000000000000000000.timeindex"), 12); /* it ends with the last batch */
        char *before = view_text(&w, false), *after;
        if (unclean) {
            w.opt.recovery_point = 0;
            world_kill(&w);
        } else {
            world_close(&w);
        }
        world_open(&w);
        after = view_text(&w, false);
        assert_string_equal(before, after);
        assert_int_equal(plog_end(w.pl), 201);
        assert_int_equal(plog_find_time(w.pl, last_ms, 201, &offset, &found_ms, &epoch), OK);
        assert_int_equal(offset, 199);
        mem_free(before);
        mem_free(after);
        world_fini(&w);
    }
}

static void a_full_disk_ends_the_cleaning_and_leaves_no_trace(void **state)
{
    (void)state;
    for (int after = 0;; after++) {
        struct world w;
        struct cleaner cl;
        begin(&w, &cl);
        for (int i = 0; i < 10; i++) append_kv(&w, "a", i == 9 ? "last" : "1");
        roll(&w);
        assert_int_equal(plog_flush(w.pl), OK);
        w.fs.op = FAIL_WRITE;
        w.fs.times = 1;
        w.fs.after = after;
        w.fs.e = ERR_FULL;
        enum err e = clean_once(&w, &cl);
        if (e) {
            assert_int_equal(e, ERR_FULL);
            assert_int_equal(w.failed_count, 0);
            assert_int_equal(size_of_file(&w, "00000000000000000000.log.cleaned"), -1);
            assert_int_equal(size_of_file(&w, "00000000000000000000.log.swap"), -1);
            clean_ok(&w, &cl);
        }
        check_view(&w, "a=last@9");
        world_fini(&w);
        if (!e) {
            assert_true(after > 0);
            break;
        }
    }
}

static void files_that_vanish_meanwhile_end_the_cleaning_and_cost_no_record(void **state)
{
    (void)state;
    for (int after = 0, failed = 0;; after++) {
        struct world w;
        struct cleaner cl;
        begin(&w, &cl);
        for (int i = 0; i < 10; i++) {
            append_kv(&w, "a", i == 9 ? "last" : "1");
            append_kv(&w, i & 1 ? "b" : "c", "1");
        }
        roll(&w);
        assert_int_equal(plog_flush(w.pl), OK);
        w.fs.op = FAIL_OPEN;
        w.fs.times = 1000;
        w.fs.after = after;
        w.fs.e = ERR_NOT_FOUND;
        enum err e = clean_once(&w, &cl);
        failed += e != OK;
        w.fs.op = FAIL_NONE;
        if (w.failed_count > 0) { /* in the midst of the exchange */
            world_kill(&w);
            world_open(&w);
        }
        if (e) clean_ok(&w, &cl);
        check_view(&w, "c=1@17 a=last@18 b=1@19");
        world_fini(&w);
        if (!w.fs.fired) {
            assert_true(failed > 1 && !e);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_value_of_each_key_stays),
        cmocka_unit_test(a_partly_kept_batch_keeps_its_header),
        cmocka_unit_test(a_batch_that_stays_is_copied_byte_by_byte),
        cmocka_unit_test(tombstones_stay_for_the_delete_retention_time),
        cmocka_unit_test(a_horizon_in_a_compressed_batch_keeps_each_records_time),
        cmocka_unit_test(records_without_a_key_go),
        cmocka_unit_test(aborted_records_go_and_their_marker_follows_later),
        cmocka_unit_test(an_open_transaction_is_not_cleaned),
        cmocka_unit_test(the_last_batch_of_a_producer_and_of_the_range_stay_empty),
        cmocka_unit_test(a_full_table_ends_the_pass_and_the_next_goes_on),
        cmocka_unit_test(groups_stay_within_a_segments_size),
        cmocka_unit_test(a_segment_of_which_all_stays_is_left_alone),
        cmocka_unit_test(compaction_lags_bound_what_is_cleaned),
        cmocka_unit_test(plans_follow_the_checkpoint),
        cmocka_unit_test(a_corrupt_batch_ends_the_cleaning_and_changes_nothing),
        cmocka_unit_test(a_cleaning_can_be_ended_at_any_time),
        cmocka_unit_test(a_log_that_is_cut_or_retired_meanwhile_is_not_cleaned),
        cmocka_unit_test(readers_keep_what_they_began_with),
        cmocka_unit_test(a_cleaned_log_opens_as_it_was),
        cmocka_unit_test(a_full_disk_ends_the_cleaning_and_leaves_no_trace),
        cmocka_unit_test(files_that_vanish_meanwhile_end_the_cleaning_and_cost_no_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
