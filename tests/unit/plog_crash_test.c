/* plog: what the simulation of crashes (tests/sim) has found, each by itself on a disk that keeps nothing that was not
 * synced. */
#include "plog_world.h"

#include "os/fs_sim.h"
#include "plog/txnindex.h"

struct crash_world {
    struct world w;
    struct fs_sim *disk;
};

static void setup(struct crash_world *c)
{
    world_init(&c->w);
    c->disk = fs_sim_new(&(struct fs_sim_options){.seed = 1, .clock = &c->w.clock.clock});
    assert_int_equal(fs_mkdir_all(fs_sim_fs(c->disk), "/data"), OK);
    c->w.opt.fs = fs_sim_fs(c->disk);
    c->w.opt.dir = "/data/t-0";
    world_open(&c->w);
}

static void teardown(struct crash_world *c)
{
    if (c->w.pl) plog_abandon(c->w.pl);
    c->w.pl = NULL;
    fs_sim_free(c->disk);
    world_fini(&c->w);
}

/* The log is opened again as the caller has set w.opt. */
static void lose_power_so(struct crash_world *c, uint64_t seed, enum fs_sim_survival survival)
{
    if (c->w.pl) world_kill(&c->w);
    struct fs_sim *after = fs_sim_after_crash(c->disk, seed, survival);
    fs_sim_free(c->disk);
    c->disk = after;
    c->w.opt.fs = fs_sim_fs(after);
    world_open(&c->w);
}

/* With all that was not synced. */
static void lose_power(struct crash_world *c)
{
    lose_power_so(c, 1, FS_SIM_NOTHING);
}

static void count_txn(void *arg, const struct aborted_txn *txn)
{
    (void)txn;
    ++*(int *)arg;
}

static void count_producer(void *arg, const struct producer_view *p)
{
    (void)p;
    ++*(int *)arg;
}

static int producers_known(struct crash_world *c)
{
    int count = 0;
    plog_each_producer(c->w.pl, count_producer, &count);
    return count;
}

static void put_text(struct crash_world *c, const char *path, const char *text)
{
    struct file *f;
    assert_int_equal(fs_open(c->w.opt.fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f), OK);
    assert_int_equal(file_pwrite(f, text, strlen(text), 0), OK);
    file_unref(f);
}

static void a_clean_stop_keeps_producers_and_aborted_transactions(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.producer_id = 1});
    assert_int_equal(plog_flush(c.w.pl), OK); /* the directory is on the disk, before what comes now is made */
    append_ok(&c.w, (struct batch_spec){.producer_id = 7, .transactional = true});
    append_ok(&c.w, (struct batch_spec){.producer_id = 7, .marker = true, .origin = APPEND_COORDINATOR});
    world_close(&c.w);
    lose_power(&c);
    int aborted = 0;
    assert_int_equal(plog_aborted_txns(c.w.pl, 0, 3, false, count_txn, &aborted), OK);
    assert_int_equal(aborted, 1);
    assert_int_equal(producers_known(&c), 2);
    teardown(&c);
}

static void a_clean_stop_of_an_empty_log_leaves_its_topic_id(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    plog_abandon(c.w.pl);
    c.w.opt.topic_id.bytes[0] = 9;
    world_open(&c.w);
    world_close(&c.w);
    c.w.opt.topic_id = (struct uuid){.bytes = {0}};
    lose_power(&c);
    assert_int_equal(plog_topic_id(c.w.pl).bytes[0], 9);
    teardown(&c);
}

static void a_torn_topic_id_of_a_log_that_was_never_flushed_keeps_no_log_closed(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    world_kill(&c.w);
    put_text(&c, "/data/t-0/partition.metadata", "version: 0\ntop");
    world_open(&c.w);
    world_kill(&c.w);
    c.w.opt.recovery_point = 5; /* something was flushed since: the torn file must be gone */
    world_open(&c.w);
    teardown(&c);
}

static void epochs_of_flushed_batches_survive_an_epoch_that_begins(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.leader_epoch = 3});
    c.w.opt.config.segment_bytes = 100; /* the next one has a segment of its own */
    plog_reconfigure(c.w.pl, &c.w.opt.config);
    append_ok(&c.w, (struct batch_spec){.leader_epoch = 4});
    assert_int_equal(plog_flush(c.w.pl), OK);
    c.w.opt.recovery_point = plog_recovery_point(c.w.pl);
    assert_int_equal(plog_epoch_begin(c.w.pl, 8), OK);
    append_ok(&c.w, (struct batch_spec){.leader_epoch = 8});
    lose_power(&c);
    assert_int_equal(plog_end(c.w.pl), 2);
    assert_int_equal(plog_epoch_of(c.w.pl, 0), 3);
    assert_int_equal(plog_epoch_of(c.w.pl, 1), 4);
    teardown(&c);
}

static void what_recovery_would_cut_nothing_deletes_before_what_was_flushed(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    int64_t next_ms;
    append_ok(&c.w, (struct batch_spec){.producer_id = 5}); /* never flushed, and deleted */
    c.w.opt.config.retention_bytes = 0;
    plog_reconfigure(c.w.pl, &c.w.opt.config);
    assert_int_equal(plog_retain(c.w.pl, c.w.clock.now_ms, 1, &next_ms), OK);
    c.w.opt.config.retention_bytes = -1;
    plog_reconfigure(c.w.pl, &c.w.opt.config);
    append_ok(&c.w, (struct batch_spec){.count = 2});
    assert_int_equal(plog_flush(c.w.pl), OK);
    lose_power(&c); /* with recovery from the log's beginning: no checkpoint was written */
    assert_int_equal(plog_start(c.w.pl), 1);
    assert_int_equal(plog_end(c.w.pl), 3);
    assert_int_equal(producers_known(&c), 1);
    teardown(&c);
}

static void a_truncation_is_on_the_disk_before_anything_takes_its_place(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.count = 3});
    append_ok(&c.w, (struct batch_spec){.count = 3});
    assert_int_equal(plog_flush(c.w.pl), OK);
    assert_int_equal(plog_truncate(c.w.pl, 3), OK);
    lose_power(&c);
    assert_int_equal(plog_end(c.w.pl), 3);
    teardown(&c);
}

static void a_truncation_that_cannot_begin_changes_nothing(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.producer_id = 1});
    append_ok(&c.w, (struct batch_spec){.producer_id = 1, .sequence = 1});
    fs_sim_set_fault(c.disk,
                     &(struct fs_sim_fault){.calls = FS_SIM_LIST, .times = 1, .e = ERR_TOO_MANY}); /* of snapshots */
    assert_int_equal(plog_truncate(c.w.pl, 1), ERR_TOO_MANY);
    assert_int_equal(c.w.failed_count, 0);
    assert_int_equal(plog_end(c.w.pl), 2);
    append_ok(&c.w, (struct batch_spec){.producer_id = 1, .sequence = 2});
    assert_int_equal(plog_truncate(c.w.pl, 1), OK);
    append_ok(&c.w, (struct batch_spec){.producer_id = 1, .sequence = 1});
    teardown(&c);
}

enum { CUT_FIRST = 10, CUT_SEGMENTS = 4, CUT_END = CUT_FIRST + 2 * CUT_SEGMENTS };

/* Four segments of one batch each. */
static void cut_begin(struct crash_world *c)
{
    setup(c);
    world_kill(&c->w);
    c->w.opt.log_start = CUT_FIRST;
    world_open(&c->w);
    c->w.opt.log_start = 0;
    c->w.opt.config.segment_bytes = 100;
    plog_reconfigure(c->w.pl, &c->w.opt.config);
    for (int i = 0; i < CUT_SEGMENTS; i++) append_ok(&c->w, (struct batch_spec){.count = 2});
    assert_int_equal(plog_flush(c->w.pl), OK);
    assert_int_equal(plog_end(c->w.pl), CUT_END);
}

/* What a cut could not do for want of room is done before anything is written in the place of what was cut.  False:
 * there are fewer such calls. */
static bool cut_after(unsigned calls, enum err why, int64_t after, int64_t to, bool crash)
{
    struct crash_world c;
    cut_begin(&c);
    fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = calls, .after = after, .times = INT64_MAX, .e = why});
    enum err e = plog_truncate(c.w.pl, to);
    bool hit = fs_sim_fault_count(c.disk) > 0, begun = plog_end(c.w.pl) == to;
    assert_true(e == OK || (hit && e == why)); /* OK: of a small file that may be behind */
    assert_true(begun || plog_end(c.w.pl) == CUT_END);
    if (e && begun) {
        assert_int_equal(append_batch(&c.w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
        assert_int_equal(plog_flush(c.w.pl), why);
    }
    fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = 0});
    assert_int_equal(c.w.failed_count, 0);
    if (crash) {
        c.w.opt.recovery_point = plog_recovery_start(c.w.pl);
        lose_power_so(&c, (uint64_t)after, FS_SIM_ANYTHING);
        assert_in_range(plog_end(c.w.pl), to, CUT_END);
    }
    assert_int_equal(plog_truncate(c.w.pl, to), OK);
    assert_int_equal(plog_end(c.w.pl), to);
    append_ok(&c.w, (struct batch_spec){.count = 1});
    assert_int_equal(plog_flush(c.w.pl), OK);
    c.w.opt.recovery_point = plog_recovery_start(c.w.pl);
    lose_power(&c);
    assert_int_equal(plog_end(c.w.pl), to + 1);
    assert_int_equal(c.w.failed_count, 0);
    teardown(&c);
    return hit;
}

static void every_call_of_a_truncation_may_find_the_disk_full_for_a_while(void **state)
{
    (void)state;
    static const struct {
        unsigned calls;
        enum err e;
    } kinds[] = {{FS_SIM_UNLINK, ERR_FULL},
                 {FS_SIM_TRUNCATE, ERR_FULL},
                 {FS_SIM_OPEN | FS_SIM_WRITE | FS_SIM_RENAME | FS_SIM_UNLINK, ERR_FULL},
                 {FS_SIM_OPEN | FS_SIM_LIST, ERR_TOO_MANY}};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (int crash = 0; crash < 2; crash++) {
            for (int all = 0; all < 2; all++) {
                int64_t after = 0, to = all ? CUT_FIRST - 5 : CUT_FIRST + 2;
                while (cut_after(kinds[k].calls, kinds[k].e, after, to, crash)) after++;
                assert_true(after > 0);
            }
        }
    }
}

/* Behind, before and in the midst of what was there.  False: the power went off after the last call. */
static bool anew_after(int64_t changes, int64_t at, enum fs_sim_survival survival)
{
    struct crash_world c;
    cut_begin(&c);
    append_ok(&c.w, (struct batch_spec){.producer_id = 7, .count = 1});
    assert_int_equal(plog_epoch_begin(c.w.pl, 3), OK);
    assert_int_equal(plog_flush(c.w.pl), OK);
    c.w.opt.recovery_point = plog_recovery_start(c.w.pl);
    fs_sim_power_off_after(c.disk, changes);
    enum err e = plog_start_anew(c.w.pl, at);
    bool over = fs_sim_has_power(c.disk);
    assert_true(over ? e == OK : true);
    if (over) {
        assert_int_equal(plog_start(c.w.pl), at);
        assert_int_equal(plog_end(c.w.pl), at);
        assert_int_equal(plog_recovery_point(c.w.pl), at);
        assert_int_equal(plog_size(c.w.pl), 0);
        assert_int_equal(plog_last_epoch(c.w.pl), -1);
        assert_int_equal(producers_known(&c), 0);
    }
    lose_power_so(&c, (uint64_t)changes, survival);
    /* A beginning of what there was, or nothing, or the new log. */
    int64_t start = plog_start(c.w.pl), end = plog_end(c.w.pl);
    bool is_new = start == at && end == at, was = start == CUT_FIRST && end <= CUT_END + 1,
         none = start == 0 && end == 0;
    assert_true(over ? is_new : is_new || was || none);
    if (is_new) assert_int_equal(producers_known(&c), 0);
    assert_int_equal(plog_start_anew(c.w.pl, at), OK);
    append_ok(&c.w, (struct batch_spec){.count = 2});
    assert_int_equal(plog_flush(c.w.pl), OK);
    c.w.opt.recovery_point = plog_recovery_start(c.w.pl);
    lose_power(&c);
    assert_int_equal(plog_start(c.w.pl), at);
    assert_int_equal(plog_end(c.w.pl), at + 2);
    teardown(&c);
    return !over;
}

/* The same on a disk that is full for a while.  False: there are fewer such calls. */
static bool anew_when_full(unsigned calls, enum err why, int64_t after, int64_t at, bool crash)
{
    struct crash_world c;
    cut_begin(&c);
    append_ok(&c.w, (struct batch_spec){.producer_id = 7, .count = 1});
    assert_int_equal(plog_epoch_begin(c.w.pl, 3), OK);
    assert_int_equal(plog_flush(c.w.pl), OK);
    fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = calls, .after = after, .times = INT64_MAX, .e = why});
    enum err e = plog_start_anew(c.w.pl, at);
    bool hit = fs_sim_fault_count(c.disk) > 0;
    assert_int_equal(e, hit ? why : OK);
    assert_int_equal(plog_start(c.w.pl), at);
    assert_int_equal(plog_end(c.w.pl), at);
    assert_int_equal(plog_size(c.w.pl), 0);
    if (e) {
        assert_int_equal(append_batch(&c.w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
        assert_int_equal(plog_flush(c.w.pl), why);
        assert_int_equal(plog_start_anew(c.w.pl, at), why);
    }
    fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = 0});
    if (crash) {
        c.w.opt.recovery_point = 0; /* what was checkpointed before */
        lose_power_so(&c, (uint64_t)after, FS_SIM_ANYTHING);
        assert_int_equal(plog_start_anew(c.w.pl, at), OK);
    }
    /* Any upkeep goes on with it. */
    int64_t next_ms;
    assert_int_equal(plog_retain(c.w.pl, c.w.clock.now_ms, at, &next_ms), OK);
    append_ok(&c.w, (struct batch_spec){.count = 2});
    assert_int_equal(plog_flush(c.w.pl), OK);
    assert_int_equal(producers_known(&c), 0);
    assert_int_equal(plog_last_epoch(c.w.pl), 0); /* of what was appended; nothing of the old log's */
    c.w.opt.recovery_point = plog_recovery_start(c.w.pl);
    lose_power(&c);
    assert_int_equal(plog_start(c.w.pl), at);
    assert_int_equal(plog_end(c.w.pl), at + 2);
    assert_int_equal(c.w.failed_count, 0);
    teardown(&c);
    return hit;
}

static void every_call_of_a_beginning_anew_may_find_the_disk_full_for_a_while(void **state)
{
    (void)state;
    static const struct {
        unsigned calls;
        enum err e;
    } kinds[] = {{FS_SIM_UNLINK, ERR_FULL},
                 {FS_SIM_OPEN | FS_SIM_WRITE | FS_SIM_RENAME | FS_SIM_UNLINK, ERR_FULL},
                 {FS_SIM_OPEN | FS_SIM_LIST, ERR_TOO_MANY}};
    static const int64_t places[] = {CUT_END + 100, CUT_FIRST + 2, CUT_FIRST - 4};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
            for (int crash = 0; crash < 2; crash++) {
                int64_t after = 0;
                while (anew_when_full(kinds[k].calls, kinds[k].e, after, places[i], crash)) after++;
                assert_true(after > 0);
            }
        }
    }
}

static void a_log_that_begins_anew_is_the_old_one_or_the_new_one_after_a_crash(void **state)
{
    (void)state;
    static const int64_t places[] = {CUT_END + 100, CUT_END + 1, CUT_FIRST + 2,
                                     CUT_FIRST + 3, CUT_FIRST,   CUT_FIRST - 4};
    static const enum fs_sim_survival survivals[] = {FS_SIM_NOTHING, FS_SIM_ANYTHING, FS_SIM_EVERYTHING};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++)
        for (size_t k = 0; k < ARRAY_COUNT(survivals); k++)
            for (int64_t n = 0; anew_after(n, places[i], survivals[k]); n++) {
            }
}

/* A follower's batches behind a gap that could not be written, and then others that fit into it. */
static void a_roll_for_a_write_that_fails_leaves_no_segment_that_starts_behind_the_end(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.count = 1});
    c.w.opt.config.segment_bytes = 100;
    plog_reconfigure(c.w.pl, &c.w.opt.config);
    for (int64_t base = 10; base > 0; base -= 9) {
        struct batch_spec s = {.origin = APPEND_REPLICA};
        struct writer bytes;
        struct append a;
        batch_make(&c.w, &s, &bytes);
        batch_set_offset(bytes.buf->data, base);
        fs_sim_set_fault(c.disk, &(struct fs_sim_fault){
                                     .calls = FS_SIM_WRITE, .suffix = ".log", .times = base == 10, .e = ERR_FULL});
        assert_int_equal(append_bytes(&c.w, &bytes, &s, &a), base == 10 ? KERR_KAFKA_STORAGE_ERROR : KERR_NONE);
        writer_fini(&bytes);
    }
    world_kill(&c.w);
    world_open(&c.w);
    assert_int_equal(plog_end(c.w.pl), 2);
    teardown(&c);
}

/* Its segment was cut off, and the last snapshot stands at the same offset. */
static void a_transaction_index_without_its_segment_is_not_the_next_ones(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.count = 3});
    world_close(&c.w);
    struct txnindex ti;
    assert_int_equal(txnindex_open(&ti, c.w.opt.fs, "/data/t-0/00000000000000000003.txnindex"), OK);
    assert_int_equal(txnindex_append(&ti, &(struct aborted_txn){7, 3, 3, 3}), OK);
    txnindex_close(&ti);
    c.w.opt.config.segment_bytes = 100;
    world_open(&c.w);
    append_ok(&c.w, (struct batch_spec){.count = 1}); /* in a segment of its own */
    world_close(&c.w);
    world_open(&c.w);
    int aborted = 0;
    assert_int_equal(plog_aborted_txns(c.w.pl, 0, 4, false, count_txn, &aborted), OK);
    assert_int_equal(aborted, 0);
    teardown(&c);
}

/* In a closed segment, before what was flushed. */
static void what_a_failed_write_left_does_not_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct crash_world c;
        setup(&c);
        append_ok(&c.w, (struct batch_spec){.count = 1});
        world_close(&c.w);
        world_open(&c.w); /* of which nothing is to be synced */
        fs_sim_set_fault(c.disk,
                         &(struct fs_sim_fault){.calls = FS_SIM_WRITE, .suffix = ".log", .times = 1, .e = ERR_FULL});
        assert_int_equal(append_batch(&c.w, (struct batch_spec){.count = 1}).kerr, KERR_KAFKA_STORAGE_ERROR);
        c.w.opt.config.segment_bytes = 100;
        plog_reconfigure(c.w.pl, &c.w.opt.config);
        append_ok(&c.w, (struct batch_spec){.count = 2});
        assert_int_equal(plog_flush(c.w.pl), OK);
        c.w.opt.recovery_point = 0;
        lose_power_so(&c, seed, FS_SIM_ANYTHING);
        assert_int_equal(plog_end(c.w.pl), 3);
        teardown(&c);
    }
}

static void no_flush_is_believed_after_one_that_failed(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.count = 1});
    fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = FS_SIM_SYNC, .times = 1, .e = ERR_IO});
    assert_int_equal(plog_flush(c.w.pl), ERR_IO);
    assert_int_equal(plog_flush(c.w.pl), ERR_IO);
    assert_int_equal(plog_recovery_point(c.w.pl), 0);
    teardown(&c);
}

static void the_checkpointed_recovery_point_stays_before_unsynced_indexes(void **state)
{
    (void)state;
    struct crash_world c;
    setup(&c);
    append_ok(&c.w, (struct batch_spec){.count = 4});
    assert_int_equal(plog_flush(c.w.pl), OK);
    assert_int_equal(plog_recovery_point(c.w.pl), 4);
    assert_int_equal(plog_recovery_start(c.w.pl), 3);
    c.w.opt.config.segment_bytes = 100;
    plog_reconfigure(c.w.pl, &c.w.opt.config);
    append_ok(&c.w, (struct batch_spec){.count = 1});
    assert_int_equal(plog_recovery_start(c.w.pl), 3);
    assert_int_equal(plog_work(c.w.pl), OK); /* flushes what was closed, with its indexes */
    assert_int_equal(plog_recovery_start(c.w.pl), 4);
    teardown(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_stop_keeps_producers_and_aborted_transactions),
        cmocka_unit_test(a_clean_stop_of_an_empty_log_leaves_its_topic_id),
        cmocka_unit_test(a_torn_topic_id_of_a_log_that_was_never_flushed_keeps_no_log_closed),
        cmocka_unit_test(epochs_of_flushed_batches_survive_an_epoch_that_begins),
        cmocka_unit_test(what_recovery_would_cut_nothing_deletes_before_what_was_flushed),
        cmocka_unit_test(a_truncation_is_on_the_disk_before_anything_takes_its_place),
        cmocka_unit_test(a_truncation_that_cannot_begin_changes_nothing),
        cmocka_unit_test(every_call_of_a_truncation_may_find_the_disk_full_for_a_while),
        cmocka_unit_test(every_call_of_a_beginning_anew_may_find_the_disk_full_for_a_while),
        cmocka_unit_test(a_log_that_begins_anew_is_the_old_one_or_the_new_one_after_a_crash),
        cmocka_unit_test(a_roll_for_a_write_that_fails_leaves_no_segment_that_starts_behind_the_end),
        cmocka_unit_test(a_transaction_index_without_its_segment_is_not_the_next_ones),
        cmocka_unit_test(what_a_failed_write_left_does_not_come_back),
        cmocka_unit_test(no_flush_is_believed_after_one_that_failed),
        cmocka_unit_test(the_checkpointed_recovery_point_stays_before_unsynced_indexes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
