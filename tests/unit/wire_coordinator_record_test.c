/* wire/coordinator_record: every kind of record of the coordinators' logs, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/coordinator_record.h"
#include "wire/gen/offset_commit_key.h"
#include "wire/gen/offset_commit_value.h"
#include "wire/gen/transaction_log_value.h"

struct bed {
    struct arena arena;
    struct buf_pool *pool;
    struct writer key, value;
};

static int setup(void **state)
{
    struct bed *b = test_calloc(1, sizeof *b);
    arena_init(&b->arena, 1 << 20);
    b->pool = buf_pool_new(0);
    writer_init(&b->key, b->pool);
    writer_init(&b->value, b->pool);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    writer_fini(&b->key);
    writer_fini(&b->value);
    buf_pool_free(b->pool);
    arena_fini(&b->arena);
    test_free(b);
    return 0;
}

static struct bytes written(const struct writer *w)
{
    return (struct bytes){w->buf ? w->buf->data : NULL, w->size};
}

static void write_commit(struct bed *b, int16_t version)
{
    const struct offset_commit_key key = {.group = STR("g"), .topic = STR("t"), .partition = 7};
    struct offset_commit_value value = offset_commit_value_default;
    value.offset = 42;
    value.metadata = STR("m");
    assert_int_equal(offset_commit_key_encode_prefixed(&key, &b->key), OK);
    assert_int_equal(offset_commit_value_encode_prefixed(&value, version, &b->value), OK);
}

static void test_an_offset_of_each_version_is_read(void **state)
{
    for (int16_t version = 0; version <= 3; version++) {
        struct bed *b = *state;
        struct coordinator_record rec;
        write_commit(b, version);
        assert_int_equal(
            coordinator_record_decode(&rec, COORDINATOR_LOG_OFFSETS, written(&b->key), written(&b->value), &b->arena),
            OK);
        assert_ptr_equal(rec.key_schema, &offset_commit_key_schema);
        assert_ptr_equal(rec.value_schema, &offset_commit_value_schema);
        assert_int_equal(rec.type, 1);
        assert_int_equal(rec.value_version, version);
        assert_int_equal(((const struct offset_commit_value *)rec.value)->offset, 42);
        assert_int_equal(((const struct offset_commit_key *)rec.key)->partition, 7);
        teardown(state);
        setup(state);
    }
}

static void test_a_tombstone_has_no_value(void **state)
{
    struct bed *b = *state;
    struct coordinator_record rec;
    write_commit(b, 3);
    assert_int_equal(
        coordinator_record_decode(&rec, COORDINATOR_LOG_OFFSETS, written(&b->key), (struct bytes){NULL, 0}, &b->arena),
        OK);
    assert_int_equal(rec.value_err, OK);
    assert_null(rec.value_schema);
    assert_null(rec.value);
}

static void test_a_bad_value_leaves_the_key(void **state)
{
    struct bed *b = *state;
    struct coordinator_record rec;
    write_commit(b, 3);
    struct bytes value = written(&b->value);
    value.size--;
    assert_int_equal(coordinator_record_decode(&rec, COORDINATOR_LOG_OFFSETS, written(&b->key), value, &b->arena), OK);
    assert_int_equal(rec.value_err, ERR_TRUNCATED);
    assert_non_null(rec.key);
    assert_null(rec.value_schema);
    b->value.buf->data[1] = 99; /* a version of the future */
    assert_int_equal(
        coordinator_record_decode(&rec, COORDINATOR_LOG_OFFSETS, written(&b->key), written(&b->value), &b->arena), OK);
    assert_int_equal(rec.value_err, ERR_VERSION);
}

static void test_what_is_no_key_is_told_apart(void **state)
{
    struct bed *b = *state;
    struct coordinator_record rec;
    const uint8_t unknown[] = {3, 231, 0}, shorter[] = {0}, cut[] = {0, 1, 0, 9, 'g'},
                  longer[] = {0, 2, 0, 1, 'g', 'x'};
    const struct bytes none = {NULL, 0};
    enum coordinator_log log = COORDINATOR_LOG_OFFSETS;
    assert_int_equal(coordinator_record_decode(&rec, log, (struct bytes){unknown, 3}, none, &b->arena), ERR_NOT_FOUND);
    assert_int_equal(rec.type, 999);
    assert_int_equal(coordinator_record_decode(&rec, log, (struct bytes){shorter, 1}, none, &b->arena), ERR_TRUNCATED);
    assert_int_equal(rec.type, -1);
    assert_int_equal(coordinator_record_decode(&rec, log, none, none, &b->arena), ERR_TRUNCATED);
    assert_int_equal(coordinator_record_decode(&rec, log, (struct bytes){cut, 5}, none, &b->arena), ERR_TRUNCATED);
    assert_int_equal(coordinator_record_decode(&rec, log, (struct bytes){longer, 6}, none, &b->arena), ERR_CORRUPT);
    assert_int_equal(coordinator_record_decode(&rec, COORDINATOR_LOG_NONE, (struct bytes){cut, 5}, none, &b->arena),
                     ERR_NOT_FOUND);
}

static void test_every_kind_has_schemas(void **state)
{
    struct bed *b = *state;
    int known = 0;
    for (int16_t type = 0; type < 64; type++) {
        struct coordinator_record rec;
        uint8_t key[64] = {(uint8_t)(type >> 8), (uint8_t)type}; /* empty strings and zeros */
        for (size_t size = 2; size <= sizeof key; size++) {
            enum err e = coordinator_record_decode(&rec, COORDINATOR_LOG_OFFSETS, (struct bytes){key, size},
                                                   (struct bytes){NULL, 0}, &b->arena);
            if (e) continue;
            known++;
            assert_int_equal(rec.key_schema->record_id, type);
            break;
        }
    }
    assert_int_equal(known, 23);
}

static void test_transactions_have_a_log_of_their_own(void **state)
{
    struct bed *b = *state;
    struct coordinator_record rec;
    const uint8_t key[] = {0, 0, 0, 1, 'x'};
    struct transaction_log_value value = transaction_log_value_default;
    value.producer_id = 9;
    assert_int_equal(transaction_log_value_encode_prefixed(&value, 0, &b->value), OK);
    assert_int_equal(coordinator_record_decode(&rec, COORDINATOR_LOG_TRANSACTIONS, (struct bytes){key, sizeof key},
                                               written(&b->value), &b->arena),
                     OK);
    assert_ptr_equal(rec.value_schema, &transaction_log_value_schema);
    assert_int_equal(((const struct transaction_log_value *)rec.value)->producer_id, 9);
}

static void test_the_topic_tells_the_log(void **state)
{
    (void)state;
    assert_int_equal(coordinator_log_of_topic(STR("__consumer_offsets")), COORDINATOR_LOG_OFFSETS);
    assert_int_equal(coordinator_log_of_topic(STR("__transaction_state")), COORDINATOR_LOG_TRANSACTIONS);
    assert_int_equal(coordinator_log_of_topic(STR("__consumer_offsets2")), COORDINATOR_LOG_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_offset_of_each_version_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_tombstone_has_no_value, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_bad_value_leaves_the_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_key_is_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_kind_has_schemas, setup, teardown),
        cmocka_unit_test_setup_teardown(test_transactions_have_a_log_of_their_own, setup, teardown),
        cmocka_unit_test(test_the_topic_tells_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
