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

int main(void)
{
    if (!getenv("SHOW_LOG")) assert(log_open_file("/dev/null", NULL) == OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_sync_takes_one_directory_offline),
        cmocka_unit_test(a_full_disk_is_over_when_there_is_room),
        cmocka_unit_test(a_log_that_found_no_room_is_made_when_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
