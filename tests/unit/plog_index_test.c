/* plog: offset and time indexes as files of their own. */
#include "plog_world.h"

#include "base/endian.h"
#include "plog/index.h"

enum { ENTRIES = 3000 };

static struct index_entry entry_of(int i)
{
    return (struct index_entry){10 + i * 7, 100 + i * 1000};
}

static void check_find(const struct index *ix, enum index_by by, int64_t target, int want)
{
    struct index_entry got;
    bool found = index_find_tail(ix, by, target, &got);
    if (!found) found = index_find(index_view(ix), by, target, false, &got) == OK;
    assert_int_equal(found, want >= 0);
    if (!found) return;
    assert_int_equal(got.key, entry_of(want).key);
    assert_int_equal(got.value, entry_of(want).value);
}

static void entries_are_found_in_the_file_and_in_memory(void **state)
{
    (void)state;
    for (enum index_kind kind = INDEX_OFFSETS; kind <= INDEX_TIMES; kind++) {
        struct world w;
        struct index ix;
        world_init(&w);
        assert_int_equal(fs_mkdir(fs_system(), w.dir), OK);
        char *path = file_path(&w, "index");
        assert_int_equal(index_open(&ix, fs_system(), path, kind), OK);
        for (int i = 0; i < ENTRIES; i++) {
            index_add(&ix, entry_of(i));
            if (i == ENTRIES - 50) assert_int_equal(index_save(&ix), OK);
        }
        index_add(&ix, entry_of(5)); /* does not ascend */
        assert_int_equal(index_count(&ix), ENTRIES);
        for (int round = 0; round < 2; round++) {
            for (int i = -1; i < ENTRIES; i++) {
                int64_t key = i < 0 ? 0 : entry_of(i).key, value = i < 0 ? 0 : entry_of(i).value;
                check_find(&ix, INDEX_BY_KEY, key, i);
                check_find(&ix, INDEX_BY_KEY, key + 6, i);
                check_find(&ix, INDEX_BY_VALUE, value, i);
            }
            assert_int_equal(index_save(&ix), OK);
            index_close(&ix);
            assert_int_equal(index_open(&ix, fs_system(), path, kind), OK);
            assert_int_equal(index_count(&ix), ENTRIES);
            assert_int_equal(ix.last.key, entry_of(ENTRIES - 1).key);
        }
        index_close(&ix);
        mem_free(path);
        world_fini(&w);
    }
}

static void truncation_drops_entries_from_an_offset_on(void **state)
{
    (void)state;
    for (enum index_kind kind = INDEX_OFFSETS; kind <= INDEX_TIMES; kind++) {
        struct world w;
        struct index ix;
        world_init(&w);
        assert_int_equal(fs_mkdir(fs_system(), w.dir), OK);
        char *path = file_path(&w, "index");
        assert_int_equal(index_open(&ix, fs_system(), path, kind), OK);
        for (int i = 0; i < 10; i++) index_add(&ix, entry_of(i));
        assert_int_equal(index_save(&ix), OK);
        int64_t offset = kind == INDEX_OFFSETS ? entry_of(6).key : entry_of(6).value;
        assert_int_equal(index_truncate(&ix, offset + 1), OK);
        assert_int_equal(index_count(&ix), 7);
        assert_int_equal(index_truncate(&ix, offset), OK);
        assert_int_equal(index_count(&ix), 6);
        assert_int_equal(ix.last.key, entry_of(5).key);
        assert_int_equal(index_truncate(&ix, 0), OK);
        assert_int_equal(index_count(&ix), 0);
        assert_int_equal(size_of_file(&w, "index"), 0);
        index_close(&ix);
        mem_free(path);
        world_fini(&w);
    }
}

static void zeros_that_a_killed_kafka_left_are_cut(void **state)
{
    (void)state;
    struct world w;
    struct index ix;
    world_init(&w);
    assert_int_equal(fs_mkdir(fs_system(), w.dir), OK);
    char *path = file_path(&w, "index");
    for (uint32_t used = 0; used < 70; used++) {
        uint8_t bytes[8 * 100] = {0};
        for (uint32_t i = 0; i < used; i++) {
            put_be32(bytes + i * 8, i + 1);
            put_be32(bytes + i * 8 + 4, i * 50 + 1);
        }
        write_file(&w, "index", bytes, sizeof bytes);
        assert_int_equal(index_open(&ix, fs_system(), path, INDEX_OFFSETS), OK);
        assert_int_equal(index_count(&ix), used);
        assert_int_equal(size_of_file(&w, "index"), used * 8);
        index_close(&ix);
    }
    mem_free(path);
    world_fini(&w);
}

struct walked {
    uint32_t next, stop_at;
};

static bool see_entry(void *arg, uint32_t at, struct index_entry entry)
{
    struct walked *seen = arg;
    assert_int_equal(at, seen->next++);
    if (at >= ENTRIES) return true; /* zeros */
    assert_int_equal(entry.key, entry_of((int)at).key);
    assert_int_equal(entry.value, entry_of((int)at).value);
    return seen->next < seen->stop_at;
}

static void a_file_is_measured_and_walked_without_being_changed(void **state)
{
    (void)state;
    for (enum index_kind kind = INDEX_OFFSETS; kind <= INDEX_TIMES; kind++) {
        struct world w;
        struct index ix;
        world_init(&w);
        assert_int_equal(fs_mkdir(fs_system(), w.dir), OK);
        char *path = file_path(&w, "index");
        assert_int_equal(index_open(&ix, fs_system(), path, kind), OK);
        for (int i = 0; i < ENTRIES; i++) index_add(&ix, entry_of(i));
        assert_int_equal(index_save(&ix), OK);
        int64_t entry = kind == INDEX_OFFSETS ? INDEX_OFFSETS_ENTRY_SIZE : INDEX_TIMES_ENTRY_SIZE, size, after;
        size = (ENTRIES + 100) * entry + 5; /* preallocated, and torn */
        assert_int_equal(file_truncate(ix.file, size), OK);

        struct index_extent extent;
        assert_int_equal(index_measure(ix.file, kind, &extent), OK);
        assert_int_equal(extent.used, ENTRIES);
        assert_int_equal(extent.zeros, 100);
        assert_int_equal(extent.torn_bytes, 5);
        struct walked all = {.stop_at = UINT32_MAX}, some = {.stop_at = 7}, past = {.stop_at = UINT32_MAX};
        assert_int_equal(index_walk(ix.file, kind, extent.used, see_entry, &all), OK);
        assert_int_equal(all.next, ENTRIES);
        assert_int_equal(index_walk(ix.file, kind, extent.used, see_entry, &some), OK);
        assert_int_equal(some.next, 7);
        assert_int_equal(index_walk(ix.file, kind, UINT32_MAX / 2, see_entry, &past), OK);
        assert_int_equal(past.next, ENTRIES + 100);
        assert_int_equal(file_size(ix.file, &after), OK);
        assert_int_equal(after, size);
        index_close(&ix);
        mem_free(path);
        world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_found_in_the_file_and_in_memory),
        cmocka_unit_test(truncation_drops_entries_from_an_offset_on),
        cmocka_unit_test(zeros_that_a_killed_kafka_left_are_cut),
        cmocka_unit_test(a_file_is_measured_and_walked_without_being_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
