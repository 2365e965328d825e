/* plog/checkpoint: the text files of a log directory, read as Kafka 3.9.1 left them and written back the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plog/checkpoint.h"

#define DATA "tests/data/log-dir/"

static char dir[32];
static char *path; /* a file of the test's own */

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/barnabas-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(dir));
    path = mem_printf("%s/file", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mem_free(path);
    return fs_remove_all(fs_system(), dir) ? 1 : 0;
}

static void assert_same_file(const char *a, const char *b)
{
    char *x, *y;
    size_t x_size, y_size;
    assert_int_equal(fs_read_whole(fs_system(), a, 1 << 20, &x, &x_size), OK);
    assert_int_equal(fs_read_whole(fs_system(), b, 1 << 20, &y, &y_size), OK);
    assert_string_equal(x, y);
    assert_int_equal(x_size, y_size);
    mem_free(x);
    mem_free(y);
}

static void write_text(const char *text)
{
    assert_int_equal(fs_replace(fs_system(), path, text, strlen(text)), OK);
}

/* ---- Offsets */

static void checkpoints_of_kafka_come_back_byte_for_byte(void **state)
{
    (void)state;
    static const char *const names[] = {DATA CHECKPOINT_RECOVERY_POINT, DATA CHECKPOINT_LOG_START,
                                        DATA CHECKPOINT_REPLICATION, DATA CHECKPOINT_CLEANER};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct checkpoint cp;
        checkpoint_init(&cp);
        assert_int_equal(checkpoint_read(&cp, fs_system(), names[i], NULL), OK);
        assert_int_equal(checkpoint_write(&cp, fs_system(), path, NULL), OK);
        assert_same_file(names[i], path);
        checkpoint_fini(&cp);
    }
}

static void offsets_are_found_by_topic_and_partition(void **state)
{
    (void)state;
    struct checkpoint cp;
    checkpoint_init(&cp);
    assert_int_equal(checkpoint_get(&cp, STR("txn"), 0, -1), -1);
    assert_int_equal(checkpoint_read(&cp, fs_system(), DATA CHECKPOINT_RECOVERY_POINT, NULL), OK);
    assert_int_equal(cp.count, 24);
    assert_int_equal(checkpoint_get(&cp, STR("txn"), 0, -1), 112);
    assert_int_equal(checkpoint_get(&cp, STR("txn"), 1, -1), 92);
    assert_int_equal(checkpoint_get(&cp, STR("txn"), 2, -1), -1);
    assert_int_equal(checkpoint_get(&cp, STR("tx"), 0, -1), -1);
    assert_int_equal(checkpoint_get(&cp, STR("__consumer_offsets"), 0, -1), 4);
    assert_int_equal(checkpoint_get(&cp, STR("zzz"), 0, 7), 7);
    checkpoint_set(&cp, STR("txn"), 0, 500);
    assert_int_equal(checkpoint_get(&cp, STR("txn"), 0, -1), 500); /* the last one counts */
    checkpoint_fini(&cp);
}

static void a_missing_or_empty_checkpoint_has_no_rows(void **state)
{
    (void)state;
    struct checkpoint cp;
    checkpoint_init(&cp);
    assert_int_equal(checkpoint_read(&cp, fs_system(), path, NULL), OK);
    write_text("");
    assert_int_equal(checkpoint_read(&cp, fs_system(), path, NULL), OK);
    write_text("0\n0\n");
    assert_int_equal(checkpoint_read(&cp, fs_system(), path, NULL), OK);
    assert_int_equal(cp.count, 0);
    assert_int_equal(checkpoint_write(&cp, fs_system(), path, NULL), OK);
    checkpoint_fini(&cp);
}

static void malformed_checkpoints_are_told_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err err;
        const char *where;
    } rows[] = {
        {"zero\n", ERR_CORRUPT, ", line 1: expected a version."},
        {"0\n-1\n", ERR_CORRUPT, ", line 2: expected the number of lines."},
        {"0\n1\nt 0\n", ERR_CORRUPT, ", line 3: expected a topic, a partition and an offset."},
        {"0\n1\nt 0 1 2\n", ERR_CORRUPT, ", line 3: "},
        {"0\n1\nt x 1\n", ERR_CORRUPT, ", line 3: "},
        {"0\n1\nt -1 1\n", ERR_CORRUPT, ", line 3: "},
        {"0\n1\n 0 1\n", ERR_CORRUPT, ", line 3: "},
        {"0\n1\nt 0 99999999999999999999\n", ERR_CORRUPT, ", line 3: "},
        {"0\n2\nt 0 1\n", ERR_CORRUPT, ", line 3: not as many lines as the second one says."},
        {"0\n1\nt 0 1\nt 1 1\n", ERR_CORRUPT, ", line 4: not as many"},
        {"0\n2147483647\nt 0 1\n", ERR_CORRUPT, ", line 3: not as many"},
        {"1\n0\n", ERR_VERSION, " has version 1, known is 0."},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct checkpoint cp;
        struct fault f;
        checkpoint_init(&cp);
        write_text(rows[i].text);
        assert_int_equal(checkpoint_read(&cp, fs_system(), path, &f), rows[i].err);
        assert_memory_equal(f.text, path, strlen(path));
        assert_non_null(strstr(f.text, rows[i].where));
        checkpoint_fini(&cp);
    }
}

/* ---- partition.metadata */

static void partition_metadata_of_kafka_comes_back_byte_for_byte(void **state)
{
    (void)state;
    struct uuid id;
    assert_int_equal(partition_metadata_read(&id, fs_system(), DATA PARTITION_METADATA, NULL), OK);
    char text[UUID_TEXT_SIZE + 1];
    uuid_format(id, text);
    assert_string_equal(text, "aOdsxNmuQd23ttSasBitQA");
    assert_int_equal(partition_metadata_write(id, fs_system(), path), OK);
    assert_same_file(DATA PARTITION_METADATA, path);
}

static void malformed_partition_metadata_is_corrupt(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "version: 0",
                                      "version: 0\n",
                                      "version: x\ntopic_id: aOdsxNmuQd23ttSasBitQA",
                                      "version 0\ntopic_id: aOdsxNmuQd23ttSasBitQA",
                                      "topic_id: aOdsxNmuQd23ttSasBitQA",
                                      "version: 0\ntopic_id: aOdsxNmuQd23ttSasBitQ",
                                      "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
                                      "version: 0\ntopic_id:"};
    struct uuid id;
    struct fault f;
    assert_int_equal(partition_metadata_read(&id, fs_system(), path, &f), ERR_NOT_FOUND);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        write_text(bad[i]);
        assert_int_equal(partition_metadata_read(&id, fs_system(), path, &f), ERR_CORRUPT);
        assert_memory_equal(f.text, path, strlen(path));
    }
}

/* ---- meta.properties */

static void meta_properties_of_kafka_come_back_byte_for_byte(void **state)
{
    (void)state;
    struct meta_properties mp;
    meta_properties_init(&mp);
    assert_int_equal(meta_properties_read(&mp, fs_system(), DATA META_PROPERTIES, NULL), OK);
    assert_int_equal(mp.version, 0);
    assert_int_equal(mp.broker_id, 1);
    assert_string_equal(mp.cluster_id, "CUF5uH7BSf2lfYu0LxD3wQ");
    assert_null(mp.directory_id);
    assert_int_equal(mp.other_count, 0);
    assert_int_equal(meta_properties_write(&mp, fs_system(), path, 1795970814000), OK); /* 29 Nov 2026 16:46:54 UTC */
    assert_same_file(DATA META_PROPERTIES, path);
    meta_properties_fini(&mp);
}

static void java_properties_syntax_is_understood(void **state)
{
    (void)state;
    write_text("! comment\n\n  # another\n"
               "version : 1\n"
               "node.id=\\\n    17\n"
               "cluster.id   a\\tb\\u0041\\:\\ c \n"
               "directory.id=aOdsxNmuQd23ttSasBitQA\n"
               "some\\ key\\=x=v=1:2\n"
               "empty\n"
               "node.id = 18");
    struct meta_properties mp;
    meta_properties_init(&mp);
    assert_int_equal(meta_properties_read(&mp, fs_system(), path, NULL), OK);
    assert_int_equal(mp.version, 1);
    assert_int_equal(mp.broker_id, 18);
    assert_string_equal(mp.cluster_id, "a\tbA: c ");
    assert_string_equal(mp.directory_id, "aOdsxNmuQd23ttSasBitQA");
    assert_int_equal(mp.other_count, 2);
    assert_string_equal(mp.other[0].key, "some key=x");
    assert_string_equal(mp.other[0].value, "v=1:2");
    assert_string_equal(mp.other[1].key, "empty");
    assert_string_equal(mp.other[1].value, "");

    struct meta_properties again;
    meta_properties_init(&again);
    assert_int_equal(meta_properties_write(&mp, fs_system(), path, 0), OK);
    assert_int_equal(meta_properties_read(&again, fs_system(), path, NULL), OK);
    assert_int_equal(again.broker_id, 18);
    assert_string_equal(again.cluster_id, mp.cluster_id);
    assert_int_equal(again.other_count, 2);
    assert_string_equal(again.other[0].key, "some key=x");
    assert_string_equal(again.other[0].value, "v=1:2");
    char *text;
    size_t size;
    assert_int_equal(fs_read_whole(fs_system(), path, 4096, &text, &size), OK);
    assert_string_equal(text, "#\n#Thu Jan 01 00:00:00 UTC 1970\nnode.id=18\ndirectory.id=aOdsxNmuQd23ttSasBitQA\n"
                              "version=1\ncluster.id=a\\tbA\\: c \nsome\\ key\\=x=v\\=1\\:2\nempty=\n");
    mem_free(text);
    meta_properties_fini(&again);
    meta_properties_fini(&mp);
}

static void wrong_meta_properties_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err err;
    } rows[] = {
        {"version=2\n", ERR_VERSION},
        {"version=x\n", ERR_CORRUPT},
        {"version=0\nbroker.id=one\n", ERR_CORRUPT},
        {"version=0\nbroker.id=-5\n", ERR_CORRUPT},
        {"version=1\ncluster.id=x\n", ERR_CORRUPT},
        {"version=1\nnode.id=1\n", ERR_CORRUPT},
        {"directory.id=short\n", ERR_CORRUPT},
        {"cluster.id=\\u12g4\n", ERR_CORRUPT},
    };
    struct meta_properties mp;
    struct fault f;
    meta_properties_init(&mp);
    assert_int_equal(meta_properties_read(&mp, fs_system(), path, &f), ERR_NOT_FOUND);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        write_text(rows[i].text);
        assert_int_equal(meta_properties_read(&mp, fs_system(), path, &f), rows[i].err);
        assert_memory_equal(f.text, path, strlen(path));
    }
    write_text("");
    assert_int_equal(meta_properties_read(&mp, fs_system(), path, &f), OK);
    assert_int_equal(mp.version, 0);
    assert_int_equal(mp.broker_id, -1);
    assert_null(mp.cluster_id);
    meta_properties_fini(&mp);
}

/* ---- .kafka_cleanshutdown */

static void the_clean_shutdown_mark_of_every_version_is_understood(void **state)
{
    (void)state;
    int64_t epoch;
    assert_int_equal(clean_shutdown_read(&epoch, fs_system(), path), ERR_NOT_FOUND);
    assert_int_equal(clean_shutdown_read(&epoch, fs_system(), DATA "kafka_cleanshutdown"), OK);
    assert_int_equal(epoch, -1);
    assert_int_equal(clean_shutdown_write(-1, fs_system(), path), OK);
    assert_same_file(DATA "kafka_cleanshutdown", path);
    assert_int_equal(clean_shutdown_write(INT64_MAX, fs_system(), path), OK);
    assert_int_equal(clean_shutdown_read(&epoch, fs_system(), path), OK);
    assert_int_equal(epoch, INT64_MAX);
    static const char *const unknown[] = {"", "{}", "\"brokerEpoch\":", "{\"brokerEpoch\":x}", "\"brokerEpoch\":--1"};
    for (size_t i = 0; i < ARRAY_COUNT(unknown); i++) {
        write_text(unknown[i]);
        assert_int_equal(clean_shutdown_read(&epoch, fs_system(), path), OK);
        assert_int_equal(epoch, -1);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(checkpoints_of_kafka_come_back_byte_for_byte),
        TEST(offsets_are_found_by_topic_and_partition),
        TEST(a_missing_or_empty_checkpoint_has_no_rows),
        TEST(malformed_checkpoints_are_told_with_file_and_line),
        TEST(partition_metadata_of_kafka_comes_back_byte_for_byte),
        TEST(malformed_partition_metadata_is_corrupt),
        TEST(meta_properties_of_kafka_come_back_byte_for_byte),
        TEST(java_properties_syntax_is_understood),
        TEST(wrong_meta_properties_are_told),
        TEST(the_clean_shutdown_mark_of_every_version_is_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
