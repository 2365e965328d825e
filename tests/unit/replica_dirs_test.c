/* replica_dirs_test.c: log directories that fail or fill up, on a simulated file system. */
#include "replica_world.h"

#include <assert.h>

static bool is_in(const struct partition *p, const char *dir)
{
    return strcmp(partition_dir_path(p), dir) == 0;
}

/* Partition 0 and 1 in one directory each. */
static struct fs_sim *start_two(struct world *w, struct partition **first, struct partition **second)
{
    struct fs_sim *sim = fs_sim_new(&(struct fs_sim_options){.seed = 3, .journal = true});
    assert_int_equal(world_start(w, sim), OK);
    replicas_start_upkeep(w->r);
    apply(w, 2, true);
    assert_int_equal(w->apply_errors[0] | w->apply_errors[1], KERR_NONE);
    struct partition *p = partition_at(w, 0), *q = partition_at(w, 1);
    assert(p && q);
    *first = is_in(p, DIRS[0]) ? p : q;
    *second = is_in(p, DIRS[0]) ? q : p;
    assert_true(is_in(*second, DIRS[1]));
    assert_int_equal(append_one(*first), KERR_NONE);
    assert_int_equal(append_one(*second), KERR_NONE);
    return sim;
}

static void end(struct world *w, struct fs_sim *sim)
{
    world_end(w, true);
    fs_sim_free(sim);
}

static void a_failed_sync_takes_one_directory_offline(void **state)
{
    (void)state;
    struct world w;
    struct partition *first, *second;
    struct fs_sim *sim = start_two(&w, &first, &second);
    fs_sim_set_fault(sim, &(struct fs_sim_fault){.calls = FS_SIM_SYNC, .times = 1, .e = ERR_IO});
    assert_int_equal(plog_flush(second->pl), ERR_IO);
    turns(&w, 2);
    assert_int_equal(w.dirs_failed, 1);
    assert_int_equal(replicas_dir_error(w.r, 1), ERR_IO);
    assert_int_equal(replicas_dir_error(w.r, 0), OK);
    assert_int_equal(partition_check_leader(second, -1), KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(append_one(second), KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(append_one(first), KERR_NONE);
    assert_int_equal(plog_flush(first->pl), OK);
    /* The controller hears it; what is new goes elsewhere, what is not new is not made anew there. */
    apply(&w, 2, false);
    assert_int_equal(w.apply_errors[first->index], KERR_NONE);
    assert_int_equal(w.apply_errors[second->index], KERR_KAFKA_STORAGE_ERROR);
    apply(&w, 4, true);
    assert_true(is_in(partition_at(&w, 2), DIRS[0]) && is_in(partition_at(&w, 3), DIRS[0]));
    apply(&w, 5, false);
    assert_int_equal(w.apply_errors[4], KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(replicas_move(w.r, STR("t"), first->index, str_of(DIRS[1])), KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(replicas_move(w.r, STR("t"), first->index, STR("/elsewhere")), KERR_LOG_DIR_NOT_FOUND);
    world_end(&w, true);
    struct fs_stat st;
    assert_int_equal(fs_stat(fs_sim_fs(sim), "/d0/.kafka_cleanshutdown", &st), OK);
    assert_int_equal(fs_stat(fs_sim_fs(sim), "/d1/.kafka_cleanshutdown", &st), ERR_NOT_FOUND);
    fs_sim_free(sim);
}

static void a_full_disk_is_over_when_there_is_room(void **state)
{
    (void)state;
    struct world w;
    struct partition *first, *second;
    struct fs_sim *sim = start_two(&w, &first, &second);
    turns(&w, 200);
    fs_sim_set_capacity(sim, 1);
    enum kerr kerr = KERR_NONE;
    for (int i = 0; i < 1000 && !kerr; i++) kerr = append_one(first);
    assert_int_equal(kerr, KERR_KAFKA_STORAGE_ERROR);
    assert_true(partition_disk_is_full(first));
    assert_true(atomic_load(&first->online));
    int64_t log_end = plog_end(first->pl);
    turns(&w, 300);
    assert_true(partition_disk_is_full(first));
    fs_sim_set_capacity(sim, INT64_C(1) << 40);
    turns(&w, 300);
    assert_false(partition_disk_is_full(first));
    assert_int_equal(w.dirs_failed, 0);
    assert_int_equal(plog_end(first->pl), log_end);
    assert_int_equal(append_one(first), KERR_NONE);
    assert_int_equal(plog_end(first->pl), log_end + 1);
    end(&w, sim);
}

static void a_log_that_found_no_room_is_made_when_asked_again(void **state)
{
    (void)state;
    struct world w;
    struct partition *first, *second;
    struct fs_sim *sim = start_two(&w, &first, &second);
    fs_sim_set_fault(sim, &(struct fs_sim_fault){.calls = FS_SIM_MKDIR, .times = 1, .e = ERR_FULL});
    apply(&w, 3, true);
    assert_int_equal(w.apply_errors[2], KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(partition_check_leader(partition_at(&w, 2), -1), KERR_KAFKA_STORAGE_ERROR);
    apply(&w, 3, true);
    assert_int_equal(w.apply_errors[2], KERR_NONE);
    assert_int_equal(append_one(partition_at(&w, 2)), KERR_NONE);
    end(&w, sim);
}

/* ---- What a loss of power leaves of a log that was never flushed */

/* Broker 1 leads. */
static void apply_follower(struct world *w, bool in_sync)
{
    int32_t replicas[] = {1, BROKER};
    struct leader_and_isr_request_leader_and_isr_partition_state ps =
        leader_and_isr_request_leader_and_isr_partition_state_default;
    ps.leader = 1;
    ps.isr = ps.replicas = replicas;
    ps.replicas_count = 2;
    ps.isr_count = in_sync ? 2 : 1;
    ps.leader_epoch = 3;
    apply_states(w, &ps, 1);
}

enum { LOST_NOTHING, LOST_ID, LOST_RECORDS, OUTCOMES };

/* The power goes with records of a topic that is deleted meanwhile, and made again; or is still the same. */
static int lose_power_and_follow(const struct fs_sim *sim, uint64_t seed, bool same_topic, bool in_sync)
{
    struct world w;
    struct fs_sim *after = fs_sim_after_crash(sim, seed, FS_SIM_ANYTHING);
    const struct uuid old = world_topic_id, new = {{9, 9, 9}};
    int64_t there = 0;
    int32_t epoch;
    assert_int_equal(world_start(&w, after), OK);
    (void)replicas_unclaimed_end(w.r, STR("t"), 0, &there, &epoch);
    if (!same_topic) world_topic_id = new;
    apply_follower(&w, in_sync);
    bool refused = w.apply_errors[0] == KERR_INCONSISTENT_TOPIC_ID;
    int64_t end = refused ? -1 : plog_end(partition_at(&w, 0)->pl);
    if (!refused) {
        assert_int_equal(w.apply_errors[0], KERR_NONE);
        assert_true(uuid_equal(plog_topic_id(partition_at(&w, 0)->pl), world_topic_id));
    }
    world_topic_id = old;
    world_end(&w, false);
    fs_sim_free(after);
    if (there == 0) return LOST_RECORDS;
    if (same_topic && in_sync) assert_int_equal(end, there);
    if (!same_topic) assert_true(refused || end == 0); /* never a record of the old one in the new one */
    return end == 0 ? LOST_ID : LOST_NOTHING;
}

static void a_log_that_lost_its_topic_id_with_the_power_is_not_taken_for_a_new_topic_s(void **state)
{
    (void)state;
    struct world w;
    struct fs_sim *sim = fs_sim_new(&(struct fs_sim_options){.seed = 3});
    assert_int_equal(world_start(&w, sim), OK);
    /* The directories are older, and on the disk. */
    for (size_t i = 0; i < ARRAY_COUNT(DIRS); i++) assert_int_equal(fs_sync_dir(fs_sim_fs(sim), DIRS[i]), OK);
    assert_int_equal(fs_sync_dir(fs_sim_fs(sim), "/"), OK);
    apply(&w, 1, true);
    for (int i = 0; i < 3; i++) assert_int_equal(append_one(partition_at(&w, 0)), KERR_NONE);
    int seen[OUTCOMES] = {0}, kept[OUTCOMES] = {0};
    for (uint64_t seed = 1; seed <= 150; seed++) {
        seen[lose_power_and_follow(sim, seed, false, false)]++;
        (void)lose_power_and_follow(sim, seed, true, false);
        kept[lose_power_and_follow(sim, seed, true, true)]++;
    }
    /* What the test is about has happened. */
    assert_true(seen[LOST_ID] > 0 && seen[LOST_NOTHING] > 0 && seen[LOST_RECORDS] > 0);
    assert_int_equal(kept[LOST_ID], 0);
    world_end(&w, false);
    fs_sim_free(sim);
}

int main(void)
{
    if (!getenv("SHOW_LOG")) assert(log_open_file("/dev/null", NULL) == OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_sync_takes_one_directory_offline),
        cmocka_unit_test(a_full_disk_is_over_when_there_is_room),
        cmocka_unit_test(a_log_that_found_no_room_is_made_when_asked_again),
        cmocka_unit_test(a_log_that_lost_its_topic_id_with_the_power_is_not_taken_for_a_new_topic_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
