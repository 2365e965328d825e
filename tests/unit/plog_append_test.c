/* plog: appending, rolling, reading back, reopening; what happens when a write fails. */
#include "plog_world.h"

#include "base/endian.h"

#define LOG0   "00000000000000000000.log"
#define INDEX0 "00000000000000000000.index"
#define TIMES0 "00000000000000000000.timeindex"

static void a_new_log_has_the_files_that_kafka_expects(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_int_equal(uuid_parse(&w.opt.topic_id, STR("B6R7BzEgQtuLPnDmh_9qpw")), OK);
    world_open(&w);
    assert_int_equal(size_of_file(&w, LOG0), 0);
    assert_int_equal(size_of_file(&w, INDEX0), 0);
    assert_int_equal(size_of_file(&w, TIMES0), 0);
    uint8_t *data;
    size_t size;
    read_file(&w, "partition.metadata", &data, &size);
    assert_string_equal((char *)data, "version: 0\ntopic_id: B6R7BzEgQtuLPnDmh_9qpw");
    mem_free(data);
    assert_int_equal(plog_start(w.pl), 0);
    assert_int_equal(plog_end(w.pl), 0);
    assert_int_equal(w.fs.syncs, 0);
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 0, INT64_MAX, 1000, true, true, &s), OK);
    assert_null(s.file);
    assert_int_equal(plog_read(w.pl, 1, INT64_MAX, 1000, true, true, &s), ERR_RANGE);
    world_fini(&w);
}

static void offsets_are_assigned_in_order_and_read_back(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    int64_t next = 0;
    for (int i = 0; i < 500; i++) {
        struct append a = append_batch(&w, (struct batch_spec){.count = 1 + i % 7,
                                                               .value_size = (size_t)(i * 13 % 900),
                                                               .codec = (enum codec)(i % 5),
                                                               .leader_epoch = 3});
        assert_int_equal(a.kerr, KERR_NONE);
        assert_int_equal(a.base_offset, next);
        assert_int_equal(a.last_offset, next + i % 7);
        assert_int_equal(a.log_append_time_ms, -1);
        next = a.last_offset + 1;
        assert_int_equal(plog_end(w.pl), next);
        assert_int_equal(w.advanced, next);
    }
    assert_int_equal(plog_size(w.pl), size_of_file(&w, LOG0));
    assert_int_equal(plog_last_epoch(w.pl), 3);
    for (size_t bytes_max = 1; bytes_max < 300000; bytes_max = bytes_max * 3 + 1)
        assert_int_equal(read_all(&w, 0, bytes_max), next);
    for (int64_t from = 0; from < next; from += 37) read_all(&w, from, 5000);
    world_fini(&w);
}

static void segments_roll_by_size_and_are_read_across(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 20000;
    world_open(&w);
    for (int i = 0; i < 300; i++) append_ok(&w, (struct batch_spec){.count = 2, .value_size = 400});
    int64_t size = size_of_file(&w, LOG0);
    assert_true(size > 19000 && size <= 20000);
    assert_int_equal(read_all(&w, 0, 3000), 600);
    assert_int_equal(read_all(&w, 299, 100000), 301);
    /* A snapshot stands at the start of each segment but the first. */
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 0, INT64_MAX, 1 << 20, true, false, &s), OK);
    assert_int_equal(s.size, size);
    plog_slice_release(&s);
    world_close(&w);
    w.opt.clean = true;
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 600);
    assert_int_equal(read_all(&w, 0, 3000), 600);
    append_ok(&w, (struct batch_spec){.count = 1});
    assert_int_equal(read_all(&w, 590, 3000), 11);
    world_fini(&w);
}

/* The rules of LogSegment.append: an entry when more than index.interval.bytes came since the last, for the append that
 * follows; the time index along with it, and once more when the segment ends. */
static void indexes_are_written_as_kafka_writes_them(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    int64_t size = 0, since = 0, entries = 0;
    int64_t offsets[64], positions[64];
    for (int i = 0; i < 100; i++) {
        struct append a = append_batch(&w, (struct batch_spec){.count = 3, .value_size = 300});
        if (since > 4096) {
            offsets[entries] = a.last_offset;
            positions[entries++] = size;
            since = 0;
        }
        size += (int64_t)a.size;
        since += (int64_t)a.size;
        if (i % 33 == 0) assert_int_equal(plog_flush(w.pl), OK); /* leaves them alone */
        w.clock.now_ms += 10;
    }
    world_close(&w);
    uint8_t *data;
    size_t got;
    read_file(&w, INDEX0, &data, &got);
    assert_int_equal(got, entries * 8);
    for (int64_t i = 0; i < entries; i++) {
        assert_int_equal(get_be32(data + i * 8), offsets[i]);
        assert_int_equal(get_be32(data + i * 8 + 4), positions[i]);
    }
    mem_free(data);
    read_file(&w, TIMES0, &data, &got);
    assert_int_equal(got, (entries + 1) * 12);
    for (int64_t i = 0; i < entries; i++) {
        assert_int_equal(get_be32(data + i * 12 + 8), offsets[i]);
        assert_int_equal(get_be64(data + i * 12), (uint64_t)(T0_MS + offsets[i] / 3 * 10 + 2));
    }
    assert_int_equal(get_be32(data + entries * 12 + 8), 299);
    mem_free(data);
    world_fini(&w);
}

static void a_late_batch_leaves_the_time_index_alone(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS + 5000, .value_size = 5000});
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS, .value_size = 5000});
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS + 1, .value_size = 5000});
    world_close(&w);
    uint8_t *data;
    size_t got;
    read_file(&w, TIMES0, &data, &got);
    assert_int_equal(got, 12);
    assert_int_equal(get_be64(data), (uint64_t)(T0_MS + 5000));
    assert_int_equal(get_be32(data + 8), 0);
    mem_free(data);
    world_fini(&w);
}

static void segments_roll_by_time_of_their_records(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_ms = 1000;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS});
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS + 1000});
    assert_int_equal(size_of_file(&w, "00000000000000000002.log"), -1);
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS + 1001});
    assert_true(size_of_file(&w, "00000000000000000002.log") > 0);
    assert_true(size_of_file(&w, "00000000000000000002.snapshot") > 0);
    assert_int_equal(w.work_wanted, 1);
    assert_int_equal(plog_work(w.pl), OK);
    assert_int_equal(plog_recovery_point(w.pl), 2);
    world_fini(&w);
}

static void a_timestamp_before_all_time_rolls_nothing(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_ms = 1000;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS});
    append_ok(&w, (struct batch_spec){.timestamp = INT64_MIN + 1});
    append_ok(&w, (struct batch_spec){.timestamp = T0_MS});
    assert_int_equal(read_all(&w, 0, 100), 3);
    assert_int_equal(size_of_file(&w, "00000000000000000002.log"), -1);
    world_fini(&w);
}

static void a_full_index_rolls_the_segment(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_index_bytes = 40; /* 5 entries; of the time index 3, and one kept free */
    world_open(&w);
    for (int i = 0; i < 12; i++) {
        w.clock.now_ms++;
        append_ok(&w, (struct batch_spec){.value_size = 5000});
    }
    assert_true(size_of_file(&w, "00000000000000000003.log") > 0);
    assert_int_equal(read_all(&w, 0, 100), 12);
    world_fini(&w);
}

static void log_append_time_is_the_brokers(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.log_append_time = true;
    world_open(&w);
    w.clock.now_ms = T0_MS + 777;
    struct append a = append_batch(&w, (struct batch_spec){.timestamp = 5, .count = 3});
    assert_int_equal(a.kerr, KERR_NONE);
    assert_int_equal(a.log_append_time_ms, T0_MS + 777);
    assert_int_equal(read_all(&w, 0, 1000), 3); /* with a right CRC */
    int64_t timestamp, offset;
    assert_int_equal(plog_max_timestamp(w.pl, &timestamp, &offset), OK);
    assert_int_equal(timestamp, T0_MS + 777);
    world_fini(&w);
}

static void a_batch_larger_than_a_segment_is_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 1000;
    world_open(&w);
    assert_int_equal(append_batch(&w, (struct batch_spec){.value_size = 1000}).kerr, KERR_RECORD_LIST_TOO_LARGE);
    append_ok(&w, (struct batch_spec){.value_size = 100});
    world_fini(&w);
}

static void duplicates_are_answered_with_the_first_offsets(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 4});
    for (int i = 0; i < 6; i++) append_ok(&w, (struct batch_spec){.producer_id = 9, .sequence = i * 2, .count = 2});
    struct append a = append_batch(&w, (struct batch_spec){.producer_id = 9, .sequence = 4, .count = 2});
    assert_int_equal(a.kerr, KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(a.base_offset, 8);
    assert_int_equal(a.last_offset, 9);
    assert_int_equal(plog_end(w.pl), 16);
    a = append_batch(&w, (struct batch_spec){.producer_id = 9, .sequence = 14, .count = 1});
    assert_int_equal(a.kerr, KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    a = append_batch(&w, (struct batch_spec){.producer_id = 9, .sequence = 12, .count = 1});
    assert_int_equal(a.kerr, KERR_NONE);
    assert_int_equal(a.base_offset, 16);
    world_fini(&w);
}

static void producer_state_survives_clean_and_unclean_reopening(void **state)
{
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct world w;
        world_init(&w);
        w.opt.config.segment_bytes = 1000;
        world_open(&w);
        for (int i = 0; i < 30; i++)
            append_ok(&w, (struct batch_spec){.producer_id = 5 + i % 2, .sequence = i / 2, .value_size = 100});
        clean ? world_close(&w) : world_kill(&w);
        world_open(&w);
        assert_int_equal(plog_end(w.pl), 30);
        struct append a = append_batch(&w, (struct batch_spec){.producer_id = 6, .sequence = 14, .value_size = 100});
        assert_int_equal(a.kerr, KERR_DUPLICATE_SEQUENCE_NUMBER);
        assert_int_equal(a.base_offset, 29);
        assert_int_equal(append_batch(&w, (struct batch_spec){.producer_id = 5, .sequence = 16}).kerr,
                         KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
        append_ok(&w, (struct batch_spec){.producer_id = 5, .sequence = 15});
        world_fini(&w);
    }
}

static void a_full_disk_refuses_and_leaves_the_log_as_it_was(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.producer_id = 3, .sequence = 0, .value_size = 100});
    int64_t size = size_of_file(&w, LOG0);
    w.fs.op = FAIL_WRITE;
    w.fs.times = 1;
    w.fs.e = ERR_FULL;
    w.fs.tear_bytes = 70;
    w.fs.only = ".log";
    struct append a = append_batch(&w, (struct batch_spec){.producer_id = 3, .sequence = 1, .value_size = 100});
    assert_int_equal(a.kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(plog_end(w.pl), 1);
    assert_int_equal(size_of_file(&w, LOG0), size);
    assert_int_equal(w.failed_count, 0);
    /* The sequence was given back: the producer's retry is the next in order, not a duplicate. */
    a = append_batch(&w, (struct batch_spec){.producer_id = 3, .sequence = 1, .value_size = 100});
    assert_int_equal(a.kerr, KERR_NONE);
    assert_int_equal(a.base_offset, 1);
    assert_int_equal(read_all(&w, 0, 1000), 2);
    world_fini(&w);
}

static void a_failing_disk_ends_the_log_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 1});
    w.fs.op = FAIL_WRITE;
    w.fs.times = 1;
    w.fs.e = ERR_IO;
    w.fs.only = ".log";
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(w.failed_count, 1);
    assert_int_equal(w.failed, ERR_IO);
    assert_int_equal(read_all(&w, 0, 1000), 1);
    world_fini(&w);
}

static void a_failing_disk_whose_tear_cannot_be_cut_ends_the_log(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 1});
    w.fs.op = FAIL_WRITE;
    w.fs.also = FAIL_TRUNCATE;
    w.fs.times = 1;
    w.fs.e = ERR_IO;
    w.fs.tear_bytes = 10;
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(w.failed_count, 1);
    world_fini(&w);
}

static void a_tear_that_a_full_disk_keeps_is_cut_before_the_next_write(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 400;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 1});
    int64_t size = size_of_file(&w, LOG0), next_ms;
    w.fs.op = FAIL_WRITE;
    w.fs.also = FAIL_TRUNCATE;
    w.fs.times = 1;
    w.fs.e = ERR_FULL;
    w.fs.tear_bytes = 10;
    w.fs.only = ".log";
    for (int i = 0; i < 3; i++)
        assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(size_of_file(&w, LOG0), size + 10);
    w.opt.config.segment_ms = 0;
    plog_reconfigure(w.pl, &w.opt.config);
    assert_int_equal(plog_retain(w.pl, w.clock.now_ms + 1, 0, &next_ms), ERR_FULL); /* no roll leaves it behind */
    w.fs.also = FAIL_NONE;
    assert_int_equal(plog_retain(w.pl, w.clock.now_ms + 1, 0, &next_ms), OK);
    assert_int_equal(size_of_file(&w, LOG0), size);
    append_ok(&w, (struct batch_spec){.count = 2});
    world_kill(&w);
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 3);
    assert_int_equal(read_all(&w, 0, 1000), 3);
    assert_int_equal(w.failed_count, 0);
    world_fini(&w);
}

static void a_roll_that_finds_no_space_is_tried_again(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 400;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.producer_id = 3, .sequence = 0, .value_size = 200});
    const char *const files[] = {"1.log", "1.index", "1.timeindex", "1.snapshot"};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        w.fs.op = FAIL_OPEN;
        w.fs.times = 1;
        w.fs.e = ERR_FULL;
        w.fs.only = files[i];
        assert_int_equal(append_batch(&w, (struct batch_spec){.producer_id = 3, .sequence = 1, .value_size = 200}).kerr,
                         KERR_KAFKA_STORAGE_ERROR);
        assert_int_equal(w.fs.times, 0);
        assert_int_equal(plog_end(w.pl), 1);
        assert_int_equal(size_of_file(&w, "00000000000000000001.log"), -1);
    }
    append_ok(&w, (struct batch_spec){.producer_id = 3, .sequence = 1, .value_size = 200});
    assert_int_equal(read_all(&w, 0, 1000), 2);
    assert_int_equal(w.failed_count, 0);
    world_fini(&w);
}

/* What the last batch says of itself. */
static int32_t last_batch_epoch(struct world *w)
{
    struct plog_slice s;
    uint8_t header[BATCH_HEADER_SIZE];
    struct batch_info b;
    size_t got;
    assert_int_equal(plog_read(w->pl, plog_end(w->pl) - 1, INT64_MAX, 100000, true, false, &s), OK);
    assert_int_equal(file_pread(s.file, header, sizeof header, s.pos, &got), OK);
    plog_slice_release(&s);
    assert_int_equal(batch_parse_header(&b, header, INT32_MAX), OK);
    return b.leader_epoch;
}

/* The controller may change the epoch of a leader that stays (its in-sync set lost a broker) while clients write. */
static void what_a_leader_had_in_hand_when_its_epoch_rose_is_of_the_new_epoch(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.leader_epoch = 4});
    assert_int_equal(plog_epoch_begin(w.pl, 5), OK);
    assert_int_equal(plog_epoch_begin(w.pl, 6), OK);
    append_ok(&w, (struct batch_spec){.leader_epoch = 4}); /* as it was read before */
    int32_t epoch;
    int64_t end;
    plog_epoch_end(w.pl, 4, &epoch, &end);
    assert_int_equal(epoch, 4);
    assert_int_equal(end, 1);
    assert_int_equal(last_batch_epoch(&w), 6);
    world_fini(&w);
}

static void what_an_earlier_leader_had_in_hand_is_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.leader_epoch = 4});
    struct batch_spec s = {.origin = APPEND_REPLICA};
    struct writer bytes;
    struct append a;
    batch_make(&w, &s, &bytes);
    batch_set_offset(bytes.buf->data, 1);
    batch_set_leader_epoch(bytes.buf->data, 7); /* somebody else leads, and this log follows */
    assert_int_equal(append_bytes(&w, &bytes, &s, &a), KERR_NONE);
    writer_fini(&bytes);
    assert_int_equal(append_batch(&w, (struct batch_spec){.leader_epoch = 4}).kerr, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(plog_end(w.pl), 2);
    assert_int_equal(plog_epoch_begin(w.pl, 8), OK);
    append_ok(&w, (struct batch_spec){.leader_epoch = 8});
    assert_int_equal(last_batch_epoch(&w), 8);
    world_fini(&w);
}

static void a_replica_keeps_the_leaders_offsets_and_epochs(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.index_interval_bytes = 200;
    world_open(&w);
    struct writer all, one;
    writer_init(&all, w.pool);
    int64_t base = 7; /* a cleaned leader's first batch */
    for (int i = 0; i < 10; i++) {
        batch_make(&w, &(struct batch_spec){.count = 2, .value_size = 100}, &one);
        batch_set_offset(one.buf->data, base);
        batch_set_leader_epoch(one.buf->data, i / 5);
        writer_bytes(&all, one.buf->data, one.size);
        writer_fini(&one);
        base += i == 4 ? 10 : 2; /* compaction left a gap */
    }
    struct append a;
    struct batch_spec s = {.origin = APPEND_REPLICA, .leader_epoch = 99};
    assert_int_equal(append_bytes(&w, &all, &s, &a), KERR_NONE);
    assert_int_equal(a.base_offset, 7);
    assert_int_equal(plog_end(w.pl), base);
    int32_t epoch;
    int64_t end;
    plog_epoch_end(w.pl, 0, &epoch, &end);
    assert_int_equal(epoch, 0);
    assert_int_equal(end, 25);
    assert_int_equal(plog_last_epoch(w.pl), 1);
    /* The same again is behind the end. */
    assert_int_equal(append_bytes(&w, &all, &s, &a), KERR_OFFSET_OUT_OF_RANGE);
    struct plog_slice slice;
    assert_int_equal(plog_read(w.pl, 18, INT64_MAX, 100000, true, false, &slice), OK);
    assert_int_equal(slice.start_offset, 25);
    plog_slice_release(&slice);
    writer_fini(&all);
    world_fini(&w);
}

static void flushing_moves_the_recovery_point_after_the_syncs(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 3});
    assert_int_equal(plog_recovery_point(w.pl), 0);
    assert_int_equal(plog_flush(w.pl), OK);
    assert_true(w.fs.syncs > 0);
    assert_int_equal(plog_recovery_point(w.pl), 3);
    int syncs = w.fs.syncs;
    assert_int_equal(plog_flush(w.pl), OK);
    assert_int_equal(w.fs.syncs, syncs); /* nothing new, nothing to do */

    w.opt.config.flush_ms = 100;
    plog_reconfigure(w.pl, &w.opt.config);
    assert_false(plog_flush_due(w.pl, w.clock.now_ms + 100)); /* nothing to flush */
    append_ok(&w, (struct batch_spec){.count = 1});
    assert_false(plog_flush_due(w.pl, w.clock.now_ms + 99));
    assert_true(plog_flush_due(w.pl, w.clock.now_ms + 100));
    w.fs.op = FAIL_SYNC;
    w.fs.times = 1;
    w.fs.e = ERR_IO;
    assert_int_equal(plog_flush(w.pl), ERR_IO);
    assert_int_equal(plog_recovery_point(w.pl), 3);
    assert_int_equal(w.failed_count, 1);
    world_fini(&w);
}

static struct world *inline_world;

static void work_at_once(void *arg)
{
    struct world *w = arg;
    w->work_wanted++;
    assert_int_equal(plog_work(w->pl), OK);
}

static void flush_and_append_more(struct append *a)
{
    a->done = NULL;
    assert_int_equal(plog_flush(inline_world->pl), OK);
    assert_int_equal(plog_recovery_point(inline_world->pl), a->last_offset + 1);
    if (plog_end(inline_world->pl) < 10) append_ok(inline_world, (struct batch_spec){.value_size = 200});
}

/* As with workers that do their jobs where they are submitted: in the simulator. */
static void callbacks_may_call_back(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    inline_world = &w;
    w.opt.config.segment_bytes = 700;
    w.opt.events.wants_work = work_at_once;
    world_open(&w);
    for (int i = 0; i < 8; i++) append_ok(&w, (struct batch_spec){.value_size = 200});
    assert_int_equal(w.work_wanted, 3); /* once a roll */
    assert_int_equal(plog_recovery_point(w.pl), 6);
    struct writer bytes;
    struct append a = {.now_ms = T0_MS, .done = flush_and_append_more};
    batch_make(&w, &(struct batch_spec){.value_size = 200}, &bytes);
    a.data = bytes.buf->data;
    a.size = bytes.size;
    assert_int_equal(batch_parse_header(&a.info, a.data, INT32_MAX), OK);
    plog_append(w.pl, &a);
    assert_null(a.done);
    assert_int_equal(plog_end(w.pl), 10);
    writer_fini(&bytes);
    world_fini(&w);
}

static void a_reader_that_must_not_wait_is_sent_to_a_worker(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 700;
    world_open(&w);
    for (int i = 0; i < 9; i++) append_ok(&w, (struct batch_spec){.value_size = 200});
    world_close(&w);
    world_open(&w);
    for (int64_t at = 0; at < 9; at += 3) {
        struct plog_slice s;
        assert_int_equal(plog_read(w.pl, at, INT64_MAX, 1000, true, true, &s), ERR_AGAIN); /* nothing is open yet */
        assert_null(s.file);
        assert_int_equal(plog_read(w.pl, at, INT64_MAX, 1000, true, false, &s), OK);
        plog_slice_release(&s);
        assert_int_equal(plog_read(w.pl, at, INT64_MAX, 1000, true, true, &s), OK);
        assert_int_equal(s.start_offset, at);
        plog_slice_release(&s);
    }
    world_fini(&w);
}

static void a_slice_outlives_the_deletion_of_its_segment(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 700;
    w.opt.config.file_delete_delay_ms = 0;
    world_open(&w);
    for (int i = 0; i < 9; i++) append_ok(&w, (struct batch_spec){.value_size = 200});
    struct plog_slice s;
    int64_t next_ms;
    assert_int_equal(plog_read(w.pl, 0, INT64_MAX, 10000, true, false, &s), OK);
    assert_int_equal(plog_set_start(w.pl, 8), OK);
    assert_int_equal(plog_retain(w.pl, w.clock.now_ms, INT64_MAX, &next_ms), OK);
    assert_int_equal(size_of_file(&w, LOG0 ".deleted"), -1);
    uint8_t header[BATCH_HEADER_SIZE];
    struct batch_info b;
    size_t got;
    assert_int_equal(file_pread(s.file, header, sizeof header, s.pos, &got), OK);
    assert_int_equal(batch_parse_header(&b, header, INT32_MAX), OK);
    assert_int_equal(b.base_offset, 0);
    plog_slice_release(&s);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_log_has_the_files_that_kafka_expects),
        cmocka_unit_test(offsets_are_assigned_in_order_and_read_back),
        cmocka_unit_test(segments_roll_by_size_and_are_read_across),
        cmocka_unit_test(indexes_are_written_as_kafka_writes_them),
        cmocka_unit_test(a_late_batch_leaves_the_time_index_alone),
        cmocka_unit_test(segments_roll_by_time_of_their_records),
        cmocka_unit_test(a_timestamp_before_all_time_rolls_nothing),
        cmocka_unit_test(a_full_index_rolls_the_segment),
        cmocka_unit_test(log_append_time_is_the_brokers),
        cmocka_unit_test(a_batch_larger_than_a_segment_is_refused),
        cmocka_unit_test(duplicates_are_answered_with_the_first_offsets),
        cmocka_unit_test(producer_state_survives_clean_and_unclean_reopening),
        cmocka_unit_test(a_full_disk_refuses_and_leaves_the_log_as_it_was),
        cmocka_unit_test(a_failing_disk_ends_the_log_once),
        cmocka_unit_test(a_failing_disk_whose_tear_cannot_be_cut_ends_the_log),
        cmocka_unit_test(a_tear_that_a_full_disk_keeps_is_cut_before_the_next_write),
        cmocka_unit_test(a_roll_that_finds_no_space_is_tried_again),
        cmocka_unit_test(what_a_leader_had_in_hand_when_its_epoch_rose_is_of_the_new_epoch),
        cmocka_unit_test(what_an_earlier_leader_had_in_hand_is_refused),
        cmocka_unit_test(a_replica_keeps_the_leaders_offsets_and_epochs),
        cmocka_unit_test(callbacks_may_call_back),
        cmocka_unit_test(a_reader_that_must_not_wait_is_sent_to_a_worker),
        cmocka_unit_test(a_slice_outlives_the_deletion_of_its_segment),
        cmocka_unit_test(flushing_moves_the_recovery_point_after_the_syncs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
