/* plog: retention, deletion of records, truncation, epochs, look-ups by time, transactions. */
#include "plog_world.h"

#define NO_LIMIT INT64_MAX

/* Segments of two batches of one record each, a minute apart; the last one holds one. */
static void make_segments(struct world *w, int count)
{
    w->opt.config.segment_bytes = 600;
    world_open(w);
    for (int i = 0; i < 2 * count - 1; i++) {
        append_ok(w, (struct batch_spec){.value_size = 200, .timestamp = w->clock.now_ms});
        w->clock.now_ms += 60000;
    }
}

static int64_t retain(struct world *w, int64_t below)
{
    int64_t next_ms = -1;
    assert_int_equal(plog_retain(w->pl, w->clock.now_ms, below, &next_ms), OK);
    return next_ms;
}

static void old_segments_go_by_their_largest_timestamp(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 5);
    w.opt.config.retention_ms = 60000 * 4 - 1;
    plog_reconfigure(w.pl, &w.opt.config);
    w.clock.now_ms = T0_MS + 60000 * 8; /* the newest record is from now */
    /* Segments 0 and 2 end with records of minutes 1 and 3; the next, of minute 5, is young enough for 2 more. */
    int64_t next_ms = retain(&w, NO_LIMIT);
    assert_int_equal(plog_start(w.pl), 4);
    assert_int_equal(next_ms, MIN(T0_MS + 60000 * 5 + 60000 * 4, w.clock.now_ms + 60000));
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 3, NO_LIMIT, 1000, true, false, &s), ERR_RANGE);
    assert_int_equal(read_all(&w, 4, 1000), 5);
    /* The files wait under other names, snapshots too, until file.delete.delay.ms is over. */
    assert_int_equal(size_of_file(&w, "00000000000000000002.log"), -1);
    assert_true(size_of_file(&w, "00000000000000000002.log.deleted") > 0);
    assert_true(size_of_file(&w, "00000000000000000002.snapshot.deleted") > 0);
    w.clock.now_ms += 60000;
    retain(&w, NO_LIMIT);
    assert_int_equal(size_of_file(&w, "00000000000000000002.log.deleted"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000002.snapshot.deleted"), -1);
    world_fini(&w);
}

static void nothing_at_or_above_the_high_watermark_is_deleted(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 5);
    w.opt.config.retention_ms = 0;
    plog_reconfigure(w.pl, &w.opt.config);
    w.clock.now_ms += 60000;
    retain(&w, 3);
    assert_int_equal(plog_start(w.pl), 2);
    retain(&w, 0);
    assert_int_equal(plog_start(w.pl), 2);
    world_fini(&w);
}

static void an_expired_active_segment_is_rolled_and_goes(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 3);
    w.opt.config.retention_ms = 1000;
    plog_reconfigure(w.pl, &w.opt.config);
    retain(&w, NO_LIMIT);
    assert_int_equal(plog_start(w.pl), 5);
    assert_int_equal(plog_end(w.pl), 5);
    assert_int_equal(plog_size(w.pl), 0);
    assert_int_equal(size_of_file(&w, "00000000000000000005.log"), 0);
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).base_offset, 5);
    retain(&w, NO_LIMIT);
    world_close(&w);
    world_open(&w);
    assert_int_equal(plog_start(w.pl), 5);
    assert_int_equal(plog_end(w.pl), 6);
    world_fini(&w);
}

static void segments_over_the_size_limit_go_oldest_first(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 5);
    int64_t size = plog_size(w.pl), batch = size / 9;
    w.opt.config.retention_bytes = size - 4 * batch + 1; /* a byte short of two segments */
    plog_reconfigure(w.pl, &w.opt.config);
    retain(&w, NO_LIMIT);
    assert_int_equal(plog_start(w.pl), 2);
    w.opt.config.retention_bytes--;
    plog_reconfigure(w.pl, &w.opt.config);
    retain(&w, NO_LIMIT);
    assert_int_equal(plog_start(w.pl), 4);
    assert_int_equal(plog_size(w.pl), size - 4 * batch);
    world_fini(&w);
}

static void deleted_records_are_gone_at_once_and_their_segments_with_the_next_round(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 5);
    w.opt.config.cleanup_delete = false; /* DeleteRecords works on compacted topics too */
    plog_reconfigure(w.pl, &w.opt.config);
    assert_int_equal(plog_set_start(w.pl, 100), ERR_RANGE);
    assert_int_equal(plog_set_start(w.pl, 5), OK);
    assert_int_equal(plog_start(w.pl), 5);
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 4, NO_LIMIT, 1000, true, false, &s), ERR_RANGE);
    assert_int_equal(plog_set_start(w.pl, 3), OK); /* never back */
    assert_int_equal(plog_start(w.pl), 5);
    retain(&w, NO_LIMIT);
    assert_int_equal(size_of_file(&w, "00000000000000000002.log"), -1);
    assert_true(size_of_file(&w, "00000000000000000004.log") > 0);
    assert_int_equal(read_all(&w, 5, 1000), 4);
    assert_int_equal(plog_set_start(w.pl, 9), OK); /* all of it; the active segment stays */
    retain(&w, NO_LIMIT);
    assert_true(size_of_file(&w, "00000000000000000008.log") > 0);
    world_close(&w);
    world_open(&w);
    assert_int_equal(plog_start(w.pl), 9);
    assert_int_equal(plog_end(w.pl), 9);
    world_fini(&w);
}

static void an_idle_segment_is_rolled_when_segment_ms_is_over(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_ms = 10000;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 1});
    w.clock.now_ms += 10000;
    assert_int_equal(retain(&w, NO_LIMIT), w.clock.now_ms + 1);
    assert_int_equal(size_of_file(&w, "00000000000000000001.log"), -1);
    w.clock.now_ms += 1;
    retain(&w, NO_LIMIT);
    assert_int_equal(size_of_file(&w, "00000000000000000001.log"), 0);
    assert_int_equal(plog_recovery_point(w.pl), 1); /* what was closed has been flushed */
    w.clock.now_ms += 100000;
    retain(&w, NO_LIMIT); /* an empty one stays */
    assert_int_equal(size_of_file(&w, "00000000000000000001.log"), 0);
    world_fini(&w);
}

static void a_segment_ms_without_end_rolls_nothing_and_asks_for_no_look(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_ms = INT64_MAX;
    w.opt.config.producer_expiration_ms = INT64_MAX;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 1});
    w.clock.now_ms += 10000;
    assert_int_equal(retain(&w, NO_LIMIT), INT64_MAX);
    assert_int_equal(size_of_file(&w, "00000000000000000001.log"), -1);
    world_fini(&w);
}

static void truncation_cuts_segments_state_and_epochs(void **state)
{
    (void)state;
    for (int to = 0; to <= 9; to++) {
        struct world w;
        world_init(&w);
        w.opt.config.segment_bytes = 600;
        w.opt.config.index_interval_bytes = 100;
        world_open(&w);
        for (int i = 0; i < 9; i++) {
            w.clock.now_ms += 1000;
            append_ok(&w,
                      (struct batch_spec){.value_size = 200, .producer_id = 2, .sequence = i, .leader_epoch = i / 3});
        }
        assert_int_equal(plog_flush(w.pl), OK);
        read_all(&w, 0, 300); /* fills the hints */
        assert_int_equal(plog_truncate(w.pl, to), OK);
        assert_int_equal(plog_end(w.pl), to);
        assert_true(plog_recovery_point(w.pl) <= to);
        assert_int_equal(plog_last_epoch(w.pl), to == 0 ? -1 : (to - 1) / 3);
        assert_int_equal(read_all(&w, 0, 300), to);
        int64_t timestamp, offset;
        assert_int_equal(plog_max_timestamp(w.pl, &timestamp, &offset), OK);
        assert_int_equal(offset, to - 1);
        append_ok(&w, (struct batch_spec){.producer_id = 2, .sequence = to, .leader_epoch = to / 3});
        assert_int_equal(read_all(&w, 0, 300), to + 1);
        world_kill(&w);
        world_open(&w);
        assert_int_equal(read_all(&w, 0, 300), to + 1);
        world_fini(&w);
    }
}

static void truncation_below_the_first_segment_starts_anew_there(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 5);
    assert_int_equal(plog_set_start(w.pl, 5), OK);
    retain(&w, NO_LIMIT);
    assert_int_equal(plog_truncate(w.pl, 1), OK);
    assert_int_equal(plog_start(w.pl), 1);
    assert_int_equal(plog_end(w.pl), 1);
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).base_offset, 1);
    assert_int_equal(read_all(&w, 1, 300), 1);
    world_fini(&w);
}

static void epochs_tell_where_they_end(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    int32_t found;
    int64_t end;
    plog_epoch_end(w.pl, 0, &found, &end);
    assert_int_equal(found, -1);
    assert_int_equal(end, -1);
    assert_int_equal(plog_epoch_begin(w.pl, 2), OK);
    append_ok(&w, (struct batch_spec){.count = 10, .leader_epoch = 2});
    assert_int_equal(plog_epoch_begin(w.pl, 5), OK);
    append_ok(&w, (struct batch_spec){.count = 10, .leader_epoch = 5});
    plog_epoch_end(w.pl, 4, &found, &end);
    assert_int_equal(found, 2);
    assert_int_equal(end, 10);
    plog_epoch_end(w.pl, 5, &found, &end);
    assert_int_equal(found, 5);
    assert_int_equal(end, 20);
    plog_epoch_end(w.pl, 6, &found, &end);
    assert_int_equal(end, -1);
    assert_int_equal(plog_epoch_of(w.pl, 9), 2);
    assert_int_equal(plog_epoch_of(w.pl, 10), 5);
    world_close(&w);
    world_open(&w);
    assert_int_equal(plog_last_epoch(w.pl), 5);
    world_fini(&w);
}

/* A leader that is told to go on in a new epoch appends until it has heard all of it. */
static void what_is_appended_after_an_epoch_has_begun_is_of_it(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 10, .leader_epoch = 2});
    assert_int_equal(plog_epoch_begin(w.pl, 3), OK);
    append_ok(&w, (struct batch_spec){.count = 5, .leader_epoch = 2});
    struct plog_slice slice;
    uint8_t header[BATCH_HEADER_SIZE];
    struct batch_info info;
    size_t got;
    assert_int_equal(plog_read(w.pl, 10, 15, 1, true, false, &slice), OK);
    assert_int_equal(file_pread(slice.file, header, sizeof header, slice.pos, &got), OK);
    plog_slice_release(&slice);
    assert_int_equal(batch_parse_header(&info, header, INT32_MAX), OK);
    assert_int_equal(info.base_offset, 10);
    assert_int_equal(info.leader_epoch, 3);
    int32_t found;
    int64_t end;
    plog_epoch_end(w.pl, 2, &found, &end);
    assert_int_equal(end, 10);
    assert_int_equal(plog_last_epoch(w.pl), 3);
    world_fini(&w);
}

static void records_are_found_by_time(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 5000;
    w.opt.config.index_interval_bytes = 500;
    world_open(&w);
    /* Batches of 5 records, 10 ms apart; every third batch is compressed, and one comes late. */
    for (int i = 0; i < 100; i++)
        append_ok(&w, (struct batch_spec){.count = 5,
                                          .value_size = 60,
                                          .timestamp = i == 50 ? T0_MS : T0_MS + i * 10,
                                          .codec = i % 3 == 0 ? CODEC_LZ4 : CODEC_NONE,
                                          .leader_epoch = i / 10});
    int64_t offset, found_ms;
    int32_t epoch;
    for (int ms = -1; ms < 995; ms++) {
        assert_int_equal(plog_find_time(w.pl, T0_MS + ms, NO_LIMIT, &offset, &found_ms, &epoch), OK);
        /* Record j of batch i has time i * 10 + j. */
        int batch = ms < 0 ? 0 : ms / 10, record = ms < 0 ? 0 : ms % 10;
        if (record > 4) {
            batch++;
            record = 0;
        }
        if (batch == 50) {
            batch = 51;
            record = 0;
        }
        assert_int_equal(offset, batch * 5 + record);
        assert_int_equal(found_ms, T0_MS + batch * 10 + record);
        assert_int_equal(epoch, batch / 10);
    }
    assert_int_equal(plog_find_time(w.pl, T0_MS + 995, NO_LIMIT, &offset, &found_ms, &epoch), OK);
    assert_int_equal(offset, -1);
    assert_int_equal(plog_find_time(w.pl, T0_MS + 300, 150, &offset, &found_ms, &epoch), OK);
    assert_int_equal(offset, -1); /* at 150, which is not below 150 */
    assert_int_equal(plog_find_time(w.pl, T0_MS + 300, 151, &offset, &found_ms, &epoch), OK);
    assert_int_equal(offset, 150);
    assert_int_equal(plog_set_start(w.pl, 203), OK);
    assert_int_equal(plog_find_time(w.pl, 0, NO_LIMIT, &offset, &found_ms, &epoch), OK);
    assert_int_equal(offset, 203);
    assert_int_equal(plog_max_timestamp(w.pl, &found_ms, &offset), OK);
    assert_int_equal(found_ms, T0_MS + 994);
    assert_int_equal(offset, 499);
    world_fini(&w);
}

static void no_slice_goes_past_its_limit(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 3000;
    w.opt.config.index_interval_bytes = 400;
    world_open(&w);
    int64_t boundaries[101], count = 0;
    for (int i = 0; i < 60; i++) {
        boundaries[count++] = plog_end(w.pl);
        append_ok(&w, (struct batch_spec){.count = 1 + i % 3, .value_size = (size_t)(i * 17 % 200)});
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            for (size_t bytes_max = 10; bytes_max < 4000; bytes_max *= 4) {
                struct plog_slice s;
                assert_int_equal(plog_read(w.pl, boundaries[j], boundaries[i], bytes_max, true, (i + j) % 2, &s), OK);
                assert_non_null(s.file);
                uint8_t *data = mem_alloc(s.size);
                size_t got, pos = 0;
                struct batch_info b;
                assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
                while (s.size - pos >= BATCH_HEADER_SIZE &&
                       batch_parse_header(&b, data + pos, (int64_t)(s.size - pos)) == OK) {
                    assert_true(batch_last_offset(&b) < boundaries[i]);
                    pos += (size_t)b.size;
                }
                assert_true(pos > 0);
                mem_free(data);
                plog_slice_release(&s);
            }
        }
    }
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 0, NO_LIMIT, 10, false, false, &s), OK);
    assert_null(s.file); /* the first batch does not fit and was not asked for at any price */
    assert_int_equal(plog_read(w.pl, 7, 7, 1000, true, false, &s), OK);
    assert_null(s.file);
    world_fini(&w);
}

static void a_tail_reader_reads_no_header_and_no_index(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.value_size = 3000});
    assert_int_equal(read_all(&w, 0, 100000), 1);
    for (int i = 0; i < 50; i++) {
        int64_t at = plog_end(w.pl);
        append_ok(&w, (struct batch_spec){.value_size = 3000});
        w.fs.reads = 0;
        struct plog_slice s;
        assert_int_equal(plog_read(w.pl, at, NO_LIMIT, 1 << 20, true, true, &s), OK);
        assert_int_equal(s.start_offset, at);
        assert_int_equal(w.fs.reads, 0);
        plog_slice_release(&s);
    }
    world_fini(&w);
}

static void count_txn(void *arg, const struct aborted_txn *txn)
{
    int64_t *got = arg;
    got[0]++;
    got[1] = txn->first_offset;
    got[2] = txn->last_offset;
}

static void transactions_hold_the_stable_offset_back(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 3});
    assert_int_equal(plog_first_unstable(w.pl), 3);
    append_ok(&w, (struct batch_spec){.count = 2, .producer_id = 8, .transactional = true});
    append_ok(&w, (struct batch_spec){.count = 5});
    assert_int_equal(plog_first_unstable(w.pl), 3);
    world_kill(&w);
    world_open(&w); /* an open transaction is found again */
    assert_int_equal(plog_first_unstable(w.pl), 3);
    append_ok(&w, (struct batch_spec){.marker = true, .producer_id = 8, .origin = APPEND_COORDINATOR});
    assert_int_equal(plog_first_unstable(w.pl), 3); /* until the marker is replicated */
    plog_replicated(w.pl, 11);
    assert_int_equal(plog_first_unstable(w.pl), 11);
    for (int round = 0; round < 3; round++) {
        int64_t got[3] = {0};
        assert_int_equal(plog_aborted_txns(w.pl, 0, 11, false, count_txn, got), OK);
        assert_int_equal(got[0], 1);
        assert_int_equal(got[1], 3);
        assert_int_equal(got[2], 10);
        round == 1 ? world_kill(&w) : world_close(&w);
        world_open(&w);
    }
    assert_int_equal(plog_truncate(w.pl, 10), OK);
    int64_t got[3] = {0};
    assert_int_equal(plog_aborted_txns(w.pl, 0, 11, false, count_txn, got), OK);
    assert_int_equal(got[0], 0);
    assert_int_equal(plog_first_unstable(w.pl), 3);
    world_fini(&w);
}

static void idle_producers_are_forgotten(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.producer_expiration_ms = 1000;
    w.opt.config.segment_ms = -1;
    world_open(&w);
    append_ok(&w, (struct batch_spec){.producer_id = 8});
    int64_t next_ms = retain(&w, NO_LIMIT);
    assert_int_equal(next_ms, T0_MS + 1000);
    w.clock.now_ms = next_ms;
    assert_int_equal(retain(&w, NO_LIMIT), INT64_MAX);
    /* Unknown now: any sequence is a beginning. */
    append_ok(&w, (struct batch_spec){.producer_id = 8, .sequence = 77});
    world_fini(&w);
}

/* ---- The directory is renamed to be removed, and a log of the same name made */

static void a_retired_log_keeps_its_hands_off_its_successor(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.file_delete_delay_ms = 0;
    make_segments(&w, 5);
    struct plog *old = w.pl;
    char *to = mem_printf("%s-delete", w.dir);
    assert_int_equal(plog_retire(old, to), OK);
    mem_free(to);
    make_segments(&w, 3); /* the successor: its segments' names are among the old one's */
    struct plog *successor = w.pl;
    append_ok(&w, (struct batch_spec){.leader_epoch = 3});

    /* All that has to do with paths. */
    w.pl = old;
    assert_int_equal(append_batch(&w, (struct batch_spec){.value_size = 500}).kerr, KERR_NOT_LEADER_OR_FOLLOWER);
    w.opt.config.retention_ms = 0;
    plog_reconfigure(old, &w.opt.config);
    int64_t next_ms;
    assert_int_equal(plog_retain(old, w.clock.now_ms + 1000, NO_LIMIT, &next_ms), ERR_CLOSED);
    assert_int_equal(plog_flush(old), ERR_CLOSED);
    assert_int_equal(plog_work(old), ERR_CLOSED);
    assert_int_equal(plog_set_start(old, 4), ERR_CLOSED);
    assert_int_equal(plog_epoch_begin(old, 9), ERR_CLOSED);
    assert_int_equal(plog_truncate(old, 2), ERR_CLOSED);
    assert_int_equal(plog_retire(old, "elsewhere"), ERR_CLOSED);
    assert_int_equal(w.failed_count, 0);
    plog_abandon(old);

    w.pl = successor;
    assert_int_equal(read_all(&w, 0, 1000), 6);
    world_kill(&w);
    w.opt.config.retention_ms = -1;
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 6);
    assert_int_equal(plog_last_epoch(w.pl), 3);
    assert_int_equal(read_all(&w, 0, 1000), 6);
    world_fini(&w);
}

/* A log that was opened long ago and not read since has no files open. */
static void a_retired_log_does_not_read_its_successors_files(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_segments(&w, 3);
    world_close(&w);
    world_open(&w);
    struct plog *old = w.pl;
    char *to = mem_printf("%s-delete", w.dir);
    assert_int_equal(plog_retire(old, to), OK);
    mem_free(to);
    w.opt.clean = false;
    w.opt.recovery_point = 0;
    make_segments(&w, 3);
    struct plog_slice s;
    assert_int_equal(plog_read(old, 0, NO_LIMIT, 1000, true, false, &s), ERR_CLOSED);
    plog_abandon(old);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_segments_go_by_their_largest_timestamp),
        cmocka_unit_test(nothing_at_or_above_the_high_watermark_is_deleted),
        cmocka_unit_test(an_expired_active_segment_is_rolled_and_goes),
        cmocka_unit_test(segments_over_the_size_limit_go_oldest_first),
        cmocka_unit_test(deleted_records_are_gone_at_once_and_their_segments_with_the_next_round),
        cmocka_unit_test(an_idle_segment_is_rolled_when_segment_ms_is_over),
        cmocka_unit_test(a_segment_ms_without_end_rolls_nothing_and_asks_for_no_look),
        cmocka_unit_test(truncation_cuts_segments_state_and_epochs),
        cmocka_unit_test(truncation_below_the_first_segment_starts_anew_there),
        cmocka_unit_test(epochs_tell_where_they_end),
        cmocka_unit_test(what_is_appended_after_an_epoch_has_begun_is_of_it),
        cmocka_unit_test(records_are_found_by_time),
        cmocka_unit_test(no_slice_goes_past_its_limit),
        cmocka_unit_test(a_tail_reader_reads_no_header_and_no_index),
        cmocka_unit_test(transactions_hold_the_stable_offset_back),
        cmocka_unit_test(idle_producers_are_forgotten),
        cmocka_unit_test(a_retired_log_keeps_its_hands_off_its_successor),
        cmocka_unit_test(a_retired_log_does_not_read_its_successors_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
