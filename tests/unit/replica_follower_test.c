/* replica_follower_test.c: a follower's log is cut, or begins anew, while it is on its way to another directory. */
#include "fetchers_world.h"

#include <pthread.h>
#include <sched.h>

enum { BIG = 200 * 1000, COUNT = 20 };

/* A batch so large that a move copies few of them at a time. */
static void append_big(struct partition *p, int64_t offset, int32_t epoch)
{
    uint8_t *value = mem_zalloc(1, BIG);
    struct batch_builder bb;
    struct writer w;
    batch_builder_init(&bb, bufs, 0, 1000);
    batch_builder_add(&bb, 1000, (struct bytes){NULL, 0}, (struct bytes){value, BIG}, NULL, 0);
    writer_init(&w, bufs);
    assert_int_equal(batch_builder_finish(&bb, &w), OK);
    batch_builder_fini(&bb);
    batch_set_offset(w.buf->data, offset);
    batch_set_leader_epoch(w.buf->data, epoch);
    struct append a = {.buf = w.buf, .data = w.buf->data, .size = w.size, .origin = APPEND_REPLICA, .done = on_done};
    plog_append(p->pl, &a);
    assert_int_equal(a.kerr, KERR_NONE);
    writer_fini(&w);
    mem_free(value);
}

static int64_t copied_so_far(struct fworld *fw)
{
    size_t count;
    struct future_view *list = replicas_futures(fw->w.r, &count);
    int64_t copied = count ? plog_end(list[0].p->pl) - list[0].lag : -1;
    replicas_futures_free(list, count);
    return copied;
}

/* Begins a move and has a part of the log copied. */
static const char *move_a_part(struct fworld *fw)
{
    struct partition *p = followed_at(fw, 0);
    for (int64_t at = 0; at < COUNT; at++) append_big(p, at, 0);
    const char *to = strcmp(partition_dir_path(p), DIRS[0]) == 0 ? DIRS[1] : DIRS[0];
    replicas_set_move_rate(fw->w.r, 1 << 21);
    replicas_start_upkeep(fw->w.r);
    assert_int_equal(replicas_move(fw->w.r, STR("t"), 0, str_of(to)), KERR_NONE);
    for (int i = 0; i < 1000 && copied_so_far(fw) < 6; i++) turns(&fw->w, 1);
    assert_in_range(copied_so_far(fw), 6, COUNT - 1);
    return to;
}

static void finish_move(struct fworld *fw, const char *to)
{
    replicas_set_move_rate(fw->w.r, INT64_MAX);
    for (int i = 0; i < 2000 && strcmp(partition_dir_path(followed_at(fw, 0)), to) != 0; i++) turns(&fw->w, 10);
    assert_string_equal(partition_dir_path(followed_at(fw, 0)), to);
}

static int32_t epoch_at(struct partition *p, int64_t offset)
{
    struct plog_slice s;
    assert_int_equal(plog_read(p->pl, offset, plog_end(p->pl), 1, true, false, &s), OK);
    uint8_t header[BATCH_HEADER_SIZE];
    size_t got;
    struct batch_info b;
    assert_int_equal(file_pread(s.file, header, sizeof header, s.pos, &got), OK);
    assert_int_equal(batch_parse_header(&b, header, INT32_MAX), OK);
    assert_int_equal(b.base_offset, offset);
    plog_slice_release(&s);
    return b.leader_epoch;
}

static void what_was_copied_of_a_log_that_is_cut_goes_too(void **state)
{
    (void)state;
    struct fworld fw;
    fworld_start(&fw, 1);
    const char *to = move_a_part(&fw);
    struct partition *p = followed_at(&fw, 0);
    assert_int_equal(partition_truncate(p, 3), OK);
    for (int64_t at = 3; at < COUNT + 5; at++) append_big(p, at, 1);
    finish_move(&fw, to);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), COUNT + 5);
    for (int64_t at = 0; at < COUNT + 5; at++) assert_int_equal(epoch_at(followed_at(&fw, 0), at), at < 3 ? 0 : 1);
    fworld_end(&fw);
}

struct cutting {
    struct partition *p;
    enum err e;
};

static void *cut_at_3(void *arg)
{
    struct cutting *c = arg;
    c->e = partition_truncate(c->p, 3);
    return NULL;
}

/* The move has seen the mark before the log was cut, and copies on from there. */
static void what_is_copied_between_the_word_of_a_cut_and_the_cut_goes_too(void **state)
{
    (void)state;
    struct fworld fw;
    fworld_start(&fw, 1);
    const char *to = move_a_part(&fw);
    struct cutting c = {.p = followed_at(&fw, 0)};
    pthread_t cutter;
    assert_int_equal(plog_hold(c.p->pl), OK); /* the cut waits */
    assert_int_equal(pthread_create(&cutter, NULL, cut_at_3, &c), 0);
    while (atomic_load(&c.p->cut) != 3) sched_yield();
    for (int i = 0; i < 1000 && (atomic_load(&c.p->cut) == 3 || copied_so_far(&fw) < 6); i++) turns(&fw.w, 1);
    assert_in_range(copied_so_far(&fw), 6, COUNT - 1);
    plog_release(c.p->pl);
    assert_int_equal(pthread_join(cutter, NULL), 0);
    assert_int_equal(c.e, OK);
    for (int64_t at = 3; at < COUNT + 5; at++) append_big(c.p, at, 1);
    finish_move(&fw, to);
    for (int64_t at = 0; at < COUNT + 5; at++) assert_int_equal(epoch_at(followed_at(&fw, 0), at), at < 3 ? 0 : 1);
    fworld_end(&fw);
}

/* The next start, on what a stop or a crash has left, goes on with the move to its end. */
static void start_and_finish_move(struct fs_sim *sim, const char *to)
{
    struct world w;
    int32_t self = BROKER;
    struct leader_and_isr_request_leader_and_isr_partition_state ps =
        leader_and_isr_request_leader_and_isr_partition_state_default;
    ps.leader = BROKER;
    ps.leader_epoch = 2;
    ps.isr = ps.replicas = &self;
    ps.isr_count = ps.replicas_count = 1;
    assert_int_equal(world_start(&w, sim), OK);
    apply_states(&w, &ps, 1);
    assert_int_equal(w.apply_errors[0], KERR_NONE);
    replicas_start_upkeep(w.r);
    for (int i = 0; i < 2000 && strcmp(partition_dir_path(partition_at(&w, 0)), to) != 0; i++) turns(&w, 10);
    struct partition *p = partition_at(&w, 0);
    assert_string_equal(partition_dir_path(p), to);
    assert_int_equal(plog_end(p->pl), COUNT + 5);
    for (int64_t at = 0; at < COUNT + 5; at++) assert_int_equal(epoch_at(p, at), at < 3 ? 0 : 1);
    world_end(&w, true);
}

/* The log was cut, has gone on in another way, and is on the disk; the move has not looked since, and what it has
 * copied is on the disk, too. */
static void stop_after_a_cut(bool clean)
{
    struct fworld fw;
    fworld_start(&fw, 1);
    const char *to = move_a_part(&fw);
    replicas_set_move_rate(fw.w.r, 1);
    turns(&fw.w, 100);
    assert_true(copied_so_far(&fw) < COUNT);
    struct partition *p = followed_at(&fw, 0);
    assert_int_equal(partition_truncate(p, 3), OK);
    for (int64_t at = 3; at < COUNT + 5; at++) append_big(p, at, 1);
    assert_int_equal(plog_flush(p->pl), OK);
    turns(&fw.w, 100); /* checkpoints are written */
    assert_int_equal(atomic_load(&p->cut), 3);
    assert_true(copied_so_far(&fw) > 3);
    struct fs_sim *sim = fw.w.sim;
    fetchers_end(&fw);
    world_end(&fw.w, clean);
    struct fs_sim *next = fs_sim_after_crash(sim, 1, FS_SIM_EVERYTHING);
    start_and_finish_move(next, to);
    fs_sim_free(next);
    fs_sim_free(sim);
    buf_pool_free(bufs);
}

static void a_move_that_a_stop_interrupts_after_a_cut_keeps_nothing_that_was_cut(void **state)
{
    (void)state;
    stop_after_a_cut(true);
}

static void nor_does_one_that_a_crash_interrupts(void **state)
{
    (void)state;
    stop_after_a_cut(false);
}

static void what_was_copied_of_a_log_that_begins_anew_goes_too(void **state)
{
    (void)state;
    static const int64_t places[] = {COUNT + 100, COUNT, 2};
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        struct fworld fw;
        fworld_start(&fw, 1);
        const char *to = move_a_part(&fw);
        struct partition *p = followed_at(&fw, 0);
        assert_int_equal(partition_start_at(p, places[i]), OK);
        for (int64_t at = 0; at < 10; at++) append_big(p, places[i] + at, 1);
        finish_move(&fw, to);
        p = followed_at(&fw, 0);
        assert_int_equal(plog_start(p->pl), places[i]);
        assert_int_equal(plog_end(p->pl), places[i] + 10);
        for (int64_t at = 0; at < 10; at++) assert_int_equal(epoch_at(p, places[i] + at), 1);
        fworld_end(&fw);
    }
}

/* A fetcher that has a partition which moved goes on with the new log. */
static void a_follower_goes_on_in_the_directory_that_its_log_moved_to(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 10);
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    struct partition *before = partition_ref(followed_at(&fw, 0));
    const char *to = strcmp(partition_dir_path(before), DIRS[0]) == 0 ? DIRS[1] : DIRS[0];
    replicas_start_upkeep(fw.w.r);
    assert_int_equal(replicas_move(fw.w.r, STR("t"), 0, str_of(to)), KERR_NONE);
    finish_move(&fw, to);
    assert_ptr_not_equal(before, followed_at(&fw, 0));
    leader_append(0, 10);
    leader.parts[0].high_watermark = 20;
    run_to_rest(&fw);
    check_same(&fw, 0);
    assert_int_equal(fetchers_look(fw.f).failed, 0);
    partition_unref(before);
    fworld_end(&fw);
}

/* What a crash finds in checkpoints is trusted: so nothing may be written where they speak of what was cut. */
static void who_leads_after_a_cut_that_is_in_no_checkpoint_takes_no_records_until_it_is(void **state)
{
    (void)state;
    struct fworld fw;
    fworld_start(&fw, 1);
    struct partition *p = followed_at(&fw, 0);
    for (int64_t at = 0; at < 5; at++) append_big(p, at, 0);
    assert_int_equal(plog_flush(p->pl), OK);
    fs_sim_set_fault(fw.w.sim, &(struct fs_sim_fault){.calls = FS_SIM_OPEN,
                                                      .suffix = "recovery-point-offset-checkpoint.tmp",
                                                      .times = INT64_MAX,
                                                      .e = ERR_TOO_MANY});
    assert_int_equal(partition_truncate(p, 3), ERR_TOO_MANY);
    assert_int_equal(plog_end(p->pl), 3);
    apply(&fw.w, 1, false);
    assert_true(atomic_load(&p->leads));
    assert_true(partition_disk_is_full(p));
    replicas_start_upkeep(fw.w.r);
    pass_ms(&fw, 3000);
    assert_true(partition_disk_is_full(p));
    fs_sim_set_fault(fw.w.sim, &(struct fs_sim_fault){.calls = 0});
    for (int i = 0; i < 100 && partition_disk_is_full(p); i++) pass_ms(&fw, 1000);
    assert_false(partition_disk_is_full(p));
    fworld_end(&fw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_copied_of_a_log_that_is_cut_goes_too),
        cmocka_unit_test(what_is_copied_between_the_word_of_a_cut_and_the_cut_goes_too),
        cmocka_unit_test(a_move_that_a_stop_interrupts_after_a_cut_keeps_nothing_that_was_cut),
        cmocka_unit_test(nor_does_one_that_a_crash_interrupts),
        cmocka_unit_test(what_was_copied_of_a_log_that_begins_anew_goes_too),
        cmocka_unit_test(who_leads_after_a_cut_that_is_in_no_checkpoint_takes_no_records_until_it_is),
        cmocka_unit_test(a_follower_goes_on_in_the_directory_that_its_log_moved_to),
    };
    if (!getenv("SHOW_LOG")) assert_int_equal(log_open_file("/dev/null", NULL), OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
