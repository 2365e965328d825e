/* replica_move_test.c: moves between log directories on a simulated file system: the power fails before each of the
 * calls that a move makes, and again while the next start goes on with it.  What was flushed before is there, whole and
 * in order, in one place. */
#include "replica_world.h"

#include <assert.h>

enum { RECORDS_FLUSHED = 40, STEPS_MAX = 4000 };

/* Every offset from the start on, with the record that belongs there.  Returns a sum over all up to `at_most`. */
static uint32_t check_content(struct partition *p, int64_t at_least, int64_t at_most)
{
    uint32_t sum = 0;
    assert_true(atomic_load(&p->online));
    int64_t at = plog_start(p->pl), end = plog_end(p->pl);
    assert_int_equal(at, 0);
    assert_true(end >= at_least);
    while (at < end) {
        struct plog_slice s;
        assert_int_equal(plog_read(p->pl, at, end, 1 << 16, true, false, &s), OK);
        assert_non_null(s.file);
        uint8_t *data = mem_alloc(s.size);
        size_t got, pos = 0;
        assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
        struct batch_info b;
        for (; pos + BATCH_HEADER_SIZE <= s.size; pos += (size_t)b.size, at++) {
            assert_int_equal(batch_parse_header(&b, data + pos, INT32_MAX), OK);
            if (pos + (size_t)b.size > s.size) break;
            assert_int_equal(b.base_offset, at);
            assert_true(batch_crc_ok(data + pos, &b));
            uint8_t value[RECORD_BYTES];
            record_value(at, value);
            const uint8_t *there = data + pos + (size_t)b.size - 1 - RECORD_BYTES;
            assert_memory_equal(there + 1, value + 1, RECORD_BYTES - 1);
            if (at < at_most) sum = sum * 31 + there[0];
        }
        mem_free(data);
        plog_slice_release(&s);
    }
    return sum;
}

static bool is_there(const struct world *w, const char *dir)
{
    char path[64];
    struct fs_stat st;
    snprintf(path, sizeof path, "%s/t-0", dir);
    return fs_stat(fs_sim_fs(w->sim), path, &st) == OK;
}

static bool is_moving(const struct world *w)
{
    size_t count;
    struct future_view *list = replicas_futures(w->r, &count);
    replicas_futures_free(list, count);
    return count > 0;
}

/* ---- The move */

/* A log of some segments, stopped cleanly. */
static struct fs_sim *make_base(const char **other, bool journal)
{
    struct fs_sim *sim = fs_sim_new(&(struct fs_sim_options){.seed = 3, .journal = journal});
    struct world w;
    assert_int_equal(world_start(&w, sim), OK);
    apply(&w, 1, true);
    assert_int_equal(w.apply_errors[0], KERR_NONE);
    for (int i = 0; i < RECORDS_FLUSHED; i++) assert_int_equal(append_one(partition_at(&w, 0)), KERR_NONE);
    *other = is_there(&w, DIRS[0]) ? DIRS[1] : DIRS[0];
    world_end(&w, true);
    return sim;
}

/* Moves under appends until it is over or the power is off.  Returns whether it is over. */
static bool move_all_the_way(struct world *w, const char *to)
{
    enum kerr kerr = replicas_move(w->r, STR("t"), 0, str_of(to));
    for (int i = 0; i < STEPS_MAX && fs_sim_has_power(w->sim); i++) {
        turns(w, 1);
        struct partition *p = partition_at(w, 0);
        if (kerr == KERR_NONE && p && strcmp(partition_dir_path(p), to) == 0 && !is_moving(w)) return true;
        if (i % 3 == 0 && i < 30 && p && p->pl) append_one(p);
        if (kerr == KERR_NONE && !is_moving(w)) return false; /* it was given up */
    }
    return false;
}

/* Starts on what a crash has left; it may crash again after `changes` calls.  Checks what is there. */
static void start_and_check(struct fs_sim *sim, int64_t changes)
{
    struct world w;
    incarnation++;
    fs_sim_power_off_after(sim, changes);
    enum err e = world_start(&w, sim);
    if (!e) apply(&w, 1, false);
    int64_t end = 0;
    uint32_t sum = 0;
    if (fs_sim_has_power(sim)) {
        fs_sim_power_off_after(sim, INT64_MAX); /* not while we look */
        if (e) fail_msg("start: %s", w.fault.text);
        assert_int_equal(w.apply_errors[0], KERR_NONE);
        assert_true(is_there(&w, DIRS[0]) != is_there(&w, DIRS[1]));
        /* What is appended before the move goes on may take the offsets of what it has copied. */
        for (int i = 0; i < 4; i++) assert_int_equal(append_one(partition_at(&w, 0)), KERR_NONE);
        end = plog_end(partition_at(&w, 0)->pl);
        sum = check_content(partition_at(&w, 0), RECORDS_FLUSHED, end);
        if (changes != INT64_MAX) fs_sim_power_off_after(sim, changes);
        replicas_start_upkeep(w.r);
        for (int i = 0; i < STEPS_MAX && is_moving(&w) && fs_sim_has_power(sim); i++) turns(&w, 1);
    }
    if (fs_sim_has_power(sim)) {
        fs_sim_power_off_after(sim, INT64_MAX);
        assert_int_equal(check_content(partition_at(&w, 0), end, end), sum);
        assert_false(is_moving(&w));
        assert_int_equal(append_one(partition_at(&w, 0)), KERR_NONE);
        check_content(partition_at(&w, 0), end + 1, 0);
    }
    world_end(&w, fs_sim_has_power(sim));
}

static void crash_everywhere(bool journal)
{
    const char *other;
    struct fs_sim *base = make_base(&other, journal);
    bool over = false;
    int crashes = 0;
    for (int64_t n = 0; !over; n++, crashes++) {
        struct fs_sim *sim = fs_sim_after_crash(base, (uint64_t)n, FS_SIM_EVERYTHING);
        struct world w;
        assert_int_equal(world_start(&w, sim), OK);
        apply(&w, 1, false);
        replicas_start_upkeep(w.r);
        turns(&w, 2);
        fs_sim_power_off_after(sim, n);
        over = move_all_the_way(&w, other);
        if (over) fs_sim_power_off_after(sim, INT64_MAX);
        if (over) check_content(partition_at(&w, 0), RECORDS_FLUSHED, 0);
        world_end(&w, false);
        /* The next start crashes too, somewhere, and the one after that does not. */
        struct fs_sim *first = fs_sim_after_crash(sim, (uint64_t)n * 3 + 1, FS_SIM_ANYTHING);
        start_and_check(first, (n * 13) % 97);
        struct fs_sim *second = fs_sim_after_crash(first, (uint64_t)n * 3 + 2, FS_SIM_ANYTHING);
        start_and_check(second, INT64_MAX);
        fs_sim_free(second);
        fs_sim_free(first);
        fs_sim_free(sim);
    }
    assert_true(crashes > 50); /* there is something to interrupt */
    fs_sim_free(base);
}

static void no_crash_of_a_move_loses_what_was_flushed(void **state)
{
    (void)state;
    crash_everywhere(true);
}

static void nor_on_a_file_system_that_reorders_names(void **state)
{
    (void)state;
    crash_everywhere(false);
}

/* The n-th call of a kind fails once while it moves.  Returns false when there are fewer; `*over`: it has moved. */
static bool move_with_fault(struct fs_sim *base, const char *to, const struct fs_sim_fault *fault, bool *over)
{
    struct fs_sim *sim = fs_sim_after_crash(base, (uint64_t)fault->after, FS_SIM_EVERYTHING);
    struct world w;
    assert_int_equal(world_start(&w, sim), OK);
    apply(&w, 1, false);
    replicas_start_upkeep(w.r);
    turns(&w, 2);
    fs_sim_set_fault(sim, fault);
    *over = move_all_the_way(&w, to);
    bool fired = fs_sim_fault_count(sim) > 0;
    fs_sim_set_fault(sim, &(struct fs_sim_fault){0});
    if (*over) check_content(partition_at(&w, 0), RECORDS_FLUSHED, 0);
    turns(&w, 50);
    world_end(&w, true);
    struct fs_sim *next = fs_sim_after_crash(sim, (uint64_t)fault->after, FS_SIM_NOTHING);
    start_and_check(next, INT64_MAX);
    fs_sim_free(next);
    fs_sim_free(sim);
    return fired;
}

static const unsigned fault_calls[] = {FS_SIM_OPEN,   FS_SIM_WRITE, FS_SIM_MKDIR,  FS_SIM_ALLOCATE, FS_SIM_SYNC,
                                       FS_SIM_RENAME, FS_SIM_READ,  FS_SIM_UNLINK, FS_SIM_LIST,     FS_SIM_TRUNCATE};
enum { CALLS_THAT_NEED_ROOM = 4 };

static void a_move_that_finds_no_room_is_tried_again(void **state)
{
    (void)state;
    const char *other;
    struct fs_sim *base = make_base(&other, true);
    for (size_t c = 0; c < CALLS_THAT_NEED_ROOM; c++) {
        struct fs_sim_fault fault = {.calls = fault_calls[c], .times = 1, .e = ERR_FULL};
        for (bool fired = true; fired; fault.after++) {
            bool over;
            fired = move_with_fault(base, other, &fault, &over);
            if (!over) fail_msg("call %u, number %lld", fault.calls, (long long)fault.after);
        }
    }
    fs_sim_free(base);
}

/* The move or even a directory may be given up; the next start has everything. */
static void no_failing_call_of_a_move_loses_what_was_flushed(void **state)
{
    (void)state;
    const char *other;
    struct fs_sim *base = make_base(&other, true);
    for (size_t c = 0; c < ARRAY_COUNT(fault_calls); c++) {
        struct fs_sim_fault fault = {.calls = fault_calls[c], .times = 1, .e = ERR_IO};
        bool over;
        while (move_with_fault(base, other, &fault, &over)) fault.after++;
        assert_true(over);
    }
    fs_sim_free(base);
}

/* With workers that run at once, a small log's move has taken over when replicas_move() returns, but the home loop does
 * not know it yet. */
static void a_move_that_takes_over_while_another_directory_is_asked_for_is_followed_by_one_there(void **state)
{
    (void)state;
    const char *other;
    struct fs_sim *sim = make_base(&other, true);
    const char *first = other == DIRS[0] ? DIRS[1] : DIRS[0];
    struct world w;
    assert_int_equal(world_start(&w, sim), OK);
    apply(&w, 1, false);
    replicas_start_upkeep(w.r);
    turns(&w, 2);
    assert_int_equal(replicas_move(w.r, STR("t"), 0, str_of(other)), KERR_NONE);
    assert_true(is_moving(&w));
    assert_true(is_there(&w, other));
    assert_int_equal(replicas_move(w.r, STR("t"), 0, str_of(first)), KERR_NONE);
    for (int i = 0; i < STEPS_MAX && (is_moving(&w) || i < 3); i++) turns(&w, 1);
    assert_string_equal(partition_dir_path(partition_at(&w, 0)), first);
    assert_true(is_there(&w, first) && !is_there(&w, other));
    check_content(partition_at(&w, 0), RECORDS_FLUSHED, 0);

    /* Asked for once more, the first one is wanted again. */
    assert_int_equal(replicas_move(w.r, STR("t"), 0, str_of(other)), KERR_NONE);
    assert_int_equal(replicas_move(w.r, STR("t"), 0, str_of(first)), KERR_NONE);
    assert_int_equal(replicas_move(w.r, STR("t"), 0, str_of(other)), KERR_NONE);
    for (int i = 0; i < STEPS_MAX && (is_moving(&w) || i < 3); i++) turns(&w, 1);
    assert_string_equal(partition_dir_path(partition_at(&w, 0)), other);
    check_content(partition_at(&w, 0), RECORDS_FLUSHED, 0);
    world_end(&w, true);
    fs_sim_free(sim);
}

int main(void)
{
    /* Thousands of failures are told of. */
    if (!getenv("SHOW_LOG")) assert(log_open_file("/dev/null", NULL) == OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_crash_of_a_move_loses_what_was_flushed),
        cmocka_unit_test(nor_on_a_file_system_that_reorders_names),
        cmocka_unit_test(a_move_that_finds_no_room_is_tried_again),
        cmocka_unit_test(a_move_that_takes_over_while_another_directory_is_asked_for_is_followed_by_one_there),
        cmocka_unit_test(no_failing_call_of_a_move_loses_what_was_flushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
