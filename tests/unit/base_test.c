/* base: arenas, buffers, writers, readers, ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/reader.h"
#include "base/slice.h"
#include "base/utf8.h"
#include "base/uuid.h"
#include "base/writer.h"

static void arena_refuses_past_its_limit_and_recovers_on_reset(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 10000);
    assert_non_null(arena_try_alloc(&a, 9000));
    assert_null(arena_try_alloc(&a, 2000));
    assert_null(arena_try_alloc(&a, SIZE_MAX));
    arena_reset(&a);
    assert_non_null(arena_try_alloc(&a, 9000));
    arena_fini(&a);
}

static void uuid_text_is_kafkas(void **state)
{
    (void)state;
    struct uuid id;
    char text[UUID_TEXT_SIZE + 1];
    assert_int_equal(uuid_parse(&id, STR("B6R7BzEgQtuLPnDmh_9qpw")), OK);
    assert_int_equal(id.bytes[0], 0x07);
    assert_int_equal(id.bytes[15], 0xa7);
    uuid_format(id, text);
    assert_string_equal(text, "B6R7BzEgQtuLPnDmh_9qpw");
    assert_int_equal(uuid_parse(&id, STR("short")), ERR_INVALID);
    assert_int_equal(uuid_parse(&id, STR("B6R7BzEgQtuLPnDmh*9qpw")), ERR_INVALID);
}

static void varints_round_trip_at_every_length(void **state)
{
    (void)state;
    struct buf_pool *pool = buf_pool_new(1 << 20);
    for (unsigned bit = 0; bit < 64; bit++) {
        int64_t values[] = {(int64_t)(UINT64_C(1) << bit), (int64_t) ~(UINT64_C(1) << bit)};
        for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
            struct writer w;
            writer_init(&w, pool);
            writer_varint(&w, values[i]);
            struct reader r = reader_of(w.buf->data, w.size);
            assert_true(reader_varlong(&r) == values[i]);
            assert_int_equal(r.err, OK);
            assert_int_equal(reader_left(&r), 0);
            writer_fini(&w);
        }
    }
    buf_pool_free(pool);
}

static void text_is_told_from_other_bytes(void **state)
{
    (void)state;
    static const struct str text[] = {STR_NULL,
                                      STR_EMPTY,
                                      STR("plain"),
                                      STR("\xc2\x80"),
                                      STR("\xdf\xbf"),
                                      STR("\xe0\xa0\x80"),
                                      STR("\xed\x9f\xbf"),
                                      STR("\xee\x80\x80"),
                                      STR("\xf0\x90\x80\x80"),
                                      STR("\xf4\x8f\xbf\xbf"),
                                      STR("a\0b")};
    for (size_t i = 0; i < ARRAY_COUNT(text); i++) assert_true(str_is_utf8(text[i]));
    static const struct str other[] = {STR("\x80"),
                                       STR("a\xff"),
                                       STR("\xc3"),
                                       STR("\xc3("),
                                       STR("\xc0\x80"),
                                       STR("\xc1\xbf"),
                                       STR("\xe0\x9f\xbf"),
                                       STR("\xed\xa0\x80"),
                                       STR("\xf0\x8f\xbf\xbf"),
                                       STR("\xf4\x90\x80\x80"),
                                       STR("\xf8\x88\x80\x80\x80"),
                                       STR("fine \xe2\x82")};
    for (size_t i = 0; i < ARRAY_COUNT(other); i++) assert_false(str_is_utf8(other[i]));
}

static void varint_too_long_is_corrupt(void **state)
{
    (void)state;
    const uint8_t six[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    struct reader r = reader_of(six, sizeof six);
    assert_int_equal(reader_uvarint(&r), 0);
    assert_int_equal(r.err, ERR_CORRUPT);
    const uint8_t wide[] = {0xff, 0xff, 0xff, 0xff, 0x1f};
    r = reader_of(wide, sizeof wide);
    assert_int_equal(reader_uvarint(&r), 0);
    assert_int_equal(r.err, ERR_CORRUPT);
    const uint8_t largest[] = {0xff, 0xff, 0xff, 0xff, 0x0f};
    r = reader_of(largest, sizeof largest);
    assert_true(reader_uvarint(&r) == UINT32_MAX);
    assert_int_equal(r.err, OK);
}

static int released;
static void count_release(void *owner)
{
    (void)owner;
    released++;
}

static void writer_keeps_splices_in_place_when_bytes_are_inserted(void **state)
{
    (void)state;
    struct buf_pool *pool = buf_pool_new(1 << 20);
    struct writer w;
    writer_init(&w, pool);
    writer_bytes(&w, "ab", 2);
    writer_splice(&w, (struct splice){.data = (const uint8_t *)"XYZ", .size = 3, .release = count_release});
    writer_bytes(&w, "cd", 2);
    memcpy(writer_insert(&w, 1, 2), "--", 2);
    uint8_t out[16] = {0};
    assert_int_equal(writer_size(&w), 9);
    writer_flatten(&w, out);
    assert_string_equal((char *)out, "a--bXYZcd");
    released = 0;
    writer_fini(&w);
    assert_int_equal(released, 1);
    buf_pool_free(pool);
}

static void pool_hands_the_last_freed_buffer_out_first(void **state)
{
    (void)state;
    struct buf_pool *pool = buf_pool_new(1 << 20);
    struct buf *a = buf_new(pool, 5000), *b = buf_new(pool, 5000);
    assert_int_equal(buf_pool_in_use(pool), 2 * 8192);
    buf_unref(a);
    buf_unref(b);
    struct buf *c = buf_new(pool, 8192);
    assert_ptr_equal(c, b);
    buf_unref(c);
    assert_int_equal(buf_pool_in_use(pool), 0);
    buf_pool_free(pool);
}

static void a_tail_is_found_at_the_end_alone(void **state)
{
    (void)state;
    assert_true(str_ends_with(STR("a.log"), ".log"));
    assert_true(str_ends_with(STR(".log"), ".log"));
    assert_true(str_ends_with(STR_EMPTY, ""));
    assert_false(str_ends_with(STR("a.log.swap"), ".log"));
    assert_false(str_ends_with(STR("og"), ".log"));
    assert_false(str_ends_with(STR_NULL, ".log"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_refuses_past_its_limit_and_recovers_on_reset),
        cmocka_unit_test(uuid_text_is_kafkas),
        cmocka_unit_test(varints_round_trip_at_every_length),
        cmocka_unit_test(text_is_told_from_other_bytes),
        cmocka_unit_test(varint_too_long_is_corrupt),
        cmocka_unit_test(writer_keeps_splices_in_place_when_bytes_are_inserted),
        cmocka_unit_test(a_tail_is_found_at_the_end_alone),
        cmocka_unit_test(pool_hands_the_last_freed_buffer_out_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
