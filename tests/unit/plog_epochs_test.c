/* plog/epochs: which epoch wrote what, by the rules of KIP-101 and KIP-320, and its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plog/epochs.h"

static void assert_entries(const struct epochs *ep, const struct epoch_entry *want, size_t count)
{
    assert_int_equal(ep->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ep->entries[i].epoch, want[i].epoch);
        assert_int_equal(ep->entries[i].start_offset, want[i].start_offset);
    }
}
#define ASSERT_ENTRIES(ep, ...)                                   \
    assert_entries(ep, (const struct epoch_entry[]){__VA_ARGS__}, \
                   sizeof((const struct epoch_entry[]){__VA_ARGS__}) / sizeof(struct epoch_entry))

static struct epochs make(void)
{
    struct epochs ep;
    epochs_init(&ep);
    assert_true(epochs_assign(&ep, 2, 6));
    assert_true(epochs_assign(&ep, 3, 10));
    assert_true(epochs_assign(&ep, 7, 20));
    return ep;
}

static void assert_end(const struct epochs *ep, int32_t epoch, int32_t found_want, int64_t end_want)
{
    int32_t found;
    int64_t end;
    epochs_end_offset(ep, epoch, 100, &found, &end);
    assert_int_equal(found, found_want);
    assert_int_equal(end, end_want);
}

static void an_empty_log_knows_no_epoch(void **state)
{
    (void)state;
    struct epochs ep;
    epochs_init(&ep);
    assert_int_equal(epochs_latest(&ep), -1);
    assert_int_equal(epochs_earliest(&ep), -1);
    assert_int_equal(epochs_of_offset(&ep, 5), -1);
    assert_end(&ep, 0, -1, -1);
    assert_end(&ep, -1, -1, -1);
    assert_false(epochs_truncate_end(&ep, 0));
    assert_false(epochs_truncate_start(&ep, 10));
    epochs_fini(&ep);
}

static void an_epochs_end_is_where_the_next_one_starts(void **state)
{
    (void)state;
    struct epochs ep = make();
    assert_end(&ep, 7, 7, 100);  /* still being written */
    assert_end(&ep, 8, -1, -1);  /* not known yet */
    assert_end(&ep, -1, -1, -1); /* asked for by followers that know none */
    assert_end(&ep, 3, 3, 20);
    assert_end(&ep, 2, 2, 10);
    assert_end(&ep, 5, 3, 20); /* missing: the one before it */
    assert_end(&ep, 1, 1, 6);  /* older than all: where the log begins */
    assert_end(&ep, 0, 0, 6);
    epochs_fini(&ep);
}

static void an_offset_belongs_to_the_last_epoch_that_starts_at_or_before_it(void **state)
{
    (void)state;
    struct epochs ep = make();
    static const struct {
        int64_t offset;
        int32_t epoch;
    } rows[] = {{0, -1}, {5, -1}, {6, 2}, {9, 2}, {10, 3}, {19, 3}, {20, 7}, {1000, 7}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        assert_int_equal(epochs_of_offset(&ep, rows[i].offset), rows[i].epoch);
    assert_int_equal(epochs_earliest(&ep), 2);
    assert_int_equal(epochs_latest(&ep), 7);
    epochs_fini(&ep);
}

static void assigning_the_latest_epoch_again_changes_nothing(void **state)
{
    (void)state;
    struct epochs ep = make();
    assert_false(epochs_assign(&ep, 7, 20));
    assert_false(epochs_assign(&ep, 7, 30));
    ASSERT_ENTRIES(&ep, {2, 6}, {3, 10}, {7, 20});
    epochs_fini(&ep);
}

static void assigning_what_contradicts_drops_the_later_entries(void **state)
{
    (void)state;
    struct epochs ep = make();
    assert_true(epochs_assign(&ep, 8, 20)); /* epoch 7 wrote nothing */
    ASSERT_ENTRIES(&ep, {2, 6}, {3, 10}, {8, 20});
    assert_true(epochs_assign(&ep, 8, 15)); /* the same, earlier */
    ASSERT_ENTRIES(&ep, {2, 6}, {3, 10}, {8, 15});
    assert_true(epochs_assign(&ep, 9, 10));
    ASSERT_ENTRIES(&ep, {2, 6}, {9, 10});
    assert_true(epochs_assign(&ep, 3, 50)); /* back in epochs */
    ASSERT_ENTRIES(&ep, {2, 6}, {3, 50});
    assert_true(epochs_assign(&ep, 1, 0));
    ASSERT_ENTRIES(&ep, {1, 0});
    epochs_fini(&ep);
}

static void truncating_the_end_drops_what_starts_there_or_later(void **state)
{
    (void)state;
    struct epochs ep = make();
    assert_false(epochs_truncate_end(&ep, 21));
    assert_true(epochs_truncate_end(&ep, 20));
    ASSERT_ENTRIES(&ep, {2, 6}, {3, 10});
    assert_true(epochs_truncate_end(&ep, 7));
    ASSERT_ENTRIES(&ep, {2, 6});
    assert_true(epochs_truncate_end(&ep, 0));
    assert_int_equal(ep.count, 0);
    epochs_fini(&ep);
}

static void truncating_the_start_moves_the_entry_that_holds_it(void **state)
{
    (void)state;
    struct epochs ep = make();
    assert_false(epochs_truncate_start(&ep, 5));
    assert_false(epochs_truncate_start(&ep, 6));
    assert_true(epochs_truncate_start(&ep, 8));
    ASSERT_ENTRIES(&ep, {2, 8}, {3, 10}, {7, 20});
    assert_true(epochs_truncate_start(&ep, 10));
    ASSERT_ENTRIES(&ep, {3, 10}, {7, 20});
    assert_true(epochs_truncate_start(&ep, 500));
    ASSERT_ENTRIES(&ep, {7, 500});
    epochs_fini(&ep);
}

static void the_file_of_kafka_is_read_and_written_back_byte_for_byte(void **state)
{
    (void)state;
    struct epochs ep;
    epochs_init(&ep);
    assert_int_equal(epochs_read(&ep, fs_system(), "tests/data/log-dir/leader-epoch-checkpoint", NULL), OK);
    ASSERT_ENTRIES(&ep, {0, 0});
    size_t size;
    char *text = epochs_encode(&ep, &size);
    assert_string_equal(text, "0\n1\n0 0\n");
    assert_int_equal(size, 8);
    mem_free(text);
    epochs_fini(&ep);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    char dir[] = "/tmp/barnabas-epochs-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = mem_printf("%s/leader-epoch-checkpoint", dir);
    struct epochs ep, again;
    epochs_init(&ep);
    epochs_init(&again);
    for (int32_t i = 0; i < 1000; i++) epochs_assign(&ep, INT32_MAX - 1000 + i, INT64_MAX - 1000 + i);
    assert_int_equal(epochs_write(&ep, fs_system(), path), OK);
    assert_int_equal(epochs_read(&again, fs_system(), path, NULL), OK);
    assert_entries(&again, ep.entries, 1000);
    assert_int_equal(fs_unlink(fs_system(), path), OK);
    assert_int_equal(epochs_read(&again, fs_system(), path, NULL), OK); /* not there: empty */
    assert_int_equal(again.count, 0);
    epochs_fini(&again);
    epochs_fini(&ep);
    mem_free(path);
    assert_int_equal(fs_remove_all(fs_system(), dir), OK);
}

static enum err decode(const char *text, struct fault *f)
{
    struct epochs ep;
    epochs_init(&ep);
    enum err e = epochs_decode(&ep, "dir/leader-epoch-checkpoint", text, strlen(text), f);
    if (e) assert_int_equal(ep.count, 0);
    epochs_fini(&ep);
    return e;
}

static void malformed_files_are_told_with_their_line(void **state)
{
    (void)state;
    struct fault f;
    assert_int_equal(decode("0\n0\n", &f), OK);
    assert_int_equal(decode("", &f), OK); /* as Kafka makes it */
    /* What a loss of power may leave: numbers that were cut off can look like others. */
    assert_int_equal(decode("0\n", &f), ERR_CORRUPT);
    assert_int_equal(decode("0\n2\n0 0\n4 17", &f), ERR_CORRUPT);
    assert_int_equal(decode("0\n2\n0 0\nx 17\n", &f), ERR_CORRUPT);
    assert_string_equal(f.text, "dir/leader-epoch-checkpoint, line 4: expected an epoch and a start offset.");
    static const char *const bad[] = {"x\n",
                                      "0\nx\n",
                                      "0\n1\n",
                                      "0\n1\n0 0\n1 5\n",
                                      "0\n1\n0\n",
                                      "0\n1\n0 \n",
                                      "0\n1\n 0\n",
                                      "0\n1\n-1 0\n",
                                      "0\n1\n0 -1\n",
                                      "0\n1\n0 0 0\n",
                                      "0\n1\n0 9223372036854775808\n",
                                      "0\n1\n2147483648 0\n",
                                      "0\n1\n0  0\n"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) assert_int_equal(decode(bad[i], &f), ERR_CORRUPT);
    assert_int_equal(decode("1\n0\n", &f), ERR_VERSION);
}

static struct epochs read_from(const char *text)
{
    struct epochs ep;
    epochs_init(&ep);
    assert_int_equal(epochs_decode(&ep, "file", text, strlen(text), NULL), OK);
    assert_true(epochs_are_filed(&ep));
    return ep;
}

static void an_epoch_that_begins_again_where_it_was_cut_off_is_in_the_file_already(void **state)
{
    (void)state;
    struct epochs ep = read_from("0\n2\n1 0\n5 100\n");
    assert_true(epochs_truncate_end(&ep, 100));
    assert_false(epochs_are_filed(&ep));
    assert_true(epochs_lead_file(&ep));
    assert_true(epochs_assign(&ep, 5, 100));
    assert_true(epochs_are_filed(&ep));
    assert_true(epochs_assign(&ep, 8, 120));
    assert_false(epochs_are_filed(&ep));
    assert_false(epochs_lead_file(&ep));
    epochs_set_filed(&ep);
    assert_true(epochs_are_filed(&ep));
    epochs_fini(&ep);
}

static void other_entries_than_the_files_are_to_be_written(void **state)
{
    (void)state;
    struct epochs ep = read_from("0\n2\n1 0\n5 100\n");
    assert_true(epochs_truncate_end(&ep, 100));
    assert_true(epochs_assign(&ep, 6, 100));
    assert_false(epochs_lead_file(&ep));
    epochs_truncate_end(&ep, 100);
    assert_false(epochs_lead_file(&ep));
    epochs_fini(&ep);
    ep = read_from("0\n2\n1 0\n5 100\n");
    assert_true(epochs_truncate_start(&ep, 50));
    assert_false(epochs_lead_file(&ep));
    epochs_clear(&ep);
    assert_false(epochs_are_filed(&ep)); /* no entries either, but the file has some */
    epochs_fini(&ep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_log_knows_no_epoch),
        cmocka_unit_test(an_epochs_end_is_where_the_next_one_starts),
        cmocka_unit_test(an_offset_belongs_to_the_last_epoch_that_starts_at_or_before_it),
        cmocka_unit_test(assigning_the_latest_epoch_again_changes_nothing),
        cmocka_unit_test(assigning_what_contradicts_drops_the_later_entries),
        cmocka_unit_test(truncating_the_end_drops_what_starts_there_or_later),
        cmocka_unit_test(truncating_the_start_moves_the_entry_that_holds_it),
        cmocka_unit_test(the_file_of_kafka_is_read_and_written_back_byte_for_byte),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(an_epoch_that_begins_again_where_it_was_cut_off_is_in_the_file_already),
        cmocka_unit_test(other_entries_than_the_files_are_to_be_written),
        cmocka_unit_test(malformed_files_are_told_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
