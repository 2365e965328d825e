/* wire/compress: round trips, what other clients write, damaged data, and bombs that must not cost memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <zstd.h>

#include "base/endian.h"
#include "base/mem.h"
#include "wire/compress.h"

static struct buf_pool *pool;

static int setup(void **state)
{
    (void)state;
    pool = buf_pool_new(1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_pool_free(pool);
    return 0;
}

enum { TEXT, NOISE, ZEROS, KIND_COUNT };

/* Bytes that compress like records, not at all, or very well. */
static uint8_t *sample(int kind, size_t size)
{
    uint8_t *data = mem_zalloc(1, size + 1);
    uint64_t seed = 42;
    for (size_t i = 0; i < size && kind != ZEROS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = kind == NOISE ? (uint8_t)(seed >> 56)
                                : (uint8_t)("{\"user\":\"\",\"id\":1234567}"[i % 24] + (int)(seed >> 63));
    }
    return data;
}

/* Compressed bytes of exactly their size on the heap. */
static uint8_t *pack(enum codec codec, int level, const uint8_t *data, size_t size, size_t *packed_size)
{
    struct writer w;
    writer_init(&w, pool);
    writer_bytes(&w, "before", 6);
    assert_int_equal(codec_compress(codec, level, data, size, &w), OK);
    *packed_size = w.size - 6;
    uint8_t *packed = mem_alloc(*packed_size);
    memcpy(packed, w.buf->data + 6, *packed_size);
    writer_fini(&w);
    return packed;
}

static void assert_unpacks_to(enum codec codec, const uint8_t *packed, size_t packed_size, const uint8_t *data,
                              size_t size)
{
    uint8_t *out;
    size_t out_size;
    const size_t size_max = size;
    assert_int_equal(codec_decompress(codec, packed, packed_size, size_max, &out, &out_size), OK);
    assert_int_equal(out_size, size);
    assert_memory_equal(out, data, size);
    mem_free(out);
    if (size == 0) return;
    assert_int_equal(codec_decompress(codec, packed, packed_size, size - 1, &out, &out_size), ERR_TOO_BIG);
}

static void every_codec_gives_back_what_it_took(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 100, 4095, 4096, 4097, 32768, 32769, 65536, 65537, 1000000};
    for (enum codec codec = CODEC_GZIP; codec < CODEC_COUNT; codec++) {
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
                size_t packed_size;
                uint8_t *data = sample(kind, sizes[i]);
                uint8_t *packed = pack(codec, COMPRESS_LEVEL_DEFAULT, data, sizes[i], &packed_size);
                assert_unpacks_to(codec, packed, packed_size, data, sizes[i]);
                mem_free(packed);
                mem_free(data);
            }
        }
    }
}

static void each_level_that_is_allowed_works_and_the_others_are_not(void **state)
{
    (void)state;
    static const struct {
        enum codec codec;
        int level;
        bool ok;
    } rows[] = {
        {CODEC_GZIP, -1, true},   {CODEC_GZIP, 0, false}, {CODEC_GZIP, 1, true},   {CODEC_GZIP, 9, true},
        {CODEC_GZIP, 10, false},  {CODEC_LZ4, 0, false},  {CODEC_LZ4, 1, true},    {CODEC_LZ4, 9, true},
        {CODEC_LZ4, 12, true},    {CODEC_LZ4, 17, true},  {CODEC_LZ4, 18, false},  {CODEC_ZSTD, -131072, true},
        {CODEC_ZSTD, 0, true},    {CODEC_ZSTD, 22, true}, {CODEC_ZSTD, 23, false}, {CODEC_ZSTD, -131073, false},
        {CODEC_SNAPPY, 1, false}, {CODEC_NONE, 1, false},
    };
    uint8_t *data = sample(TEXT, 20000);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        assert_int_equal(codec_level_ok(rows[i].codec, rows[i].level), rows[i].ok);
        if (!rows[i].ok) continue;
        size_t packed_size;
        uint8_t *packed = pack(rows[i].codec, rows[i].level, data, 20000, &packed_size);
        assert_unpacks_to(rows[i].codec, packed, packed_size, data, 20000);
        mem_free(packed);
    }
    mem_free(data);
}

static void codecs_have_kafkas_names(void **state)
{
    (void)state;
    static const char *const names[CODEC_COUNT] = {"none", "gzip", "snappy", "lz4", "zstd"};
    for (enum codec codec = CODEC_NONE; codec < CODEC_COUNT; codec++)
        assert_string_equal(codec_name(codec), names[codec]);
}

static void unknown_codecs_are_unsupported(void **state)
{
    (void)state;
    uint8_t *out;
    size_t out_size;
    for (int codec = 5; codec <= 7; codec++)
        assert_int_equal(codec_decompress((enum codec)codec, (const uint8_t *)"x", 1, 10, &out, &out_size),
                         ERR_UNSUPPORTED);
}

static void snappy_is_written_in_javas_framing_and_read_with_and_without_it(void **state)
{
    (void)state;
    static const uint8_t head[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    uint8_t *data = sample(TEXT, 100000);
    size_t size, raw_size = snappy_max_compressed_length(100000);
    uint8_t *packed = pack(CODEC_SNAPPY, COMPRESS_LEVEL_DEFAULT, data, 100000, &size);
    assert_memory_equal(packed, head, sizeof head);
    int blocks = 0;
    for (size_t at = sizeof head; at < size; at += 4 + get_be32(packed + at)) blocks++;
    assert_int_equal(blocks, 4); /* of 32 KiB */

    uint8_t *raw = mem_alloc(raw_size); /* as librdkafka writes it */
    assert_int_equal(snappy_compress((const char *)data, 100000, (char *)raw, &raw_size), SNAPPY_OK);
    assert_unpacks_to(CODEC_SNAPPY, raw, raw_size, data, 100000);

    uint8_t *joined = mem_alloc(2 * size), *twice = mem_alloc(200000);
    memcpy(joined, packed, size);
    memcpy(joined + size, packed, size);
    memcpy(twice, data, 100000);
    memcpy(twice + 100000, data, 100000);
    assert_unpacks_to(CODEC_SNAPPY, joined, 2 * size, twice, 200000);
    mem_free(twice);
    mem_free(joined);
    mem_free(raw);
    mem_free(packed);
    mem_free(data);
}

static void lz4_frames_are_written_as_javas_and_read_with_any_block_size(void **state)
{
    (void)state;
    uint8_t *data = sample(TEXT, 300000);
    size_t size;
    uint8_t *packed = pack(CODEC_LZ4, COMPRESS_LEVEL_DEFAULT, data, 300000, &size);
    static const uint8_t head[] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}; /* version 1, independent, 64 KiB */
    assert_memory_equal(packed, head, sizeof head);
    mem_free(packed);

    for (unsigned block = LZ4F_max64KB; block <= LZ4F_max4MB; block++) {
        LZ4F_preferences_t p = {.frameInfo = {.blockSizeID = (LZ4F_blockSizeID_t)block,
                                              .blockMode = LZ4F_blockLinked,
                                              .contentChecksumFlag = LZ4F_contentChecksumEnabled,
                                              .contentSize = 300000}};
        size_t cap = LZ4F_compressFrameBound(300000, &p);
        packed = mem_alloc(cap);
        size = LZ4F_compressFrame(packed, cap, data, 300000, &p);
        assert_unpacks_to(CODEC_LZ4, packed, size, data, 300000);
        mem_free(packed);
    }
    mem_free(data);
}

static void zstd_frames_without_content_size_are_read(void **state)
{
    (void)state;
    uint8_t *data = sample(TEXT, 300000);
    size_t cap = ZSTD_compressBound(300000);
    uint8_t *packed = mem_alloc(cap);
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1);
    size_t size = ZSTD_compress2(ctx, packed, cap, data, 300000);
    assert_false(ZSTD_isError(size));
    assert_unpacks_to(CODEC_ZSTD, packed, size, data, 300000);
    ZSTD_freeCCtx(ctx);
    mem_free(packed);
    mem_free(data);
}

static void what_is_cut_short_or_followed_by_garbage_is_corrupt(void **state)
{
    (void)state;
    uint8_t *data = sample(TEXT, 5000), *out;
    size_t size, out_size;
    for (enum codec codec = CODEC_GZIP; codec < CODEC_COUNT; codec++) {
        uint8_t *packed = pack(codec, COMPRESS_LEVEL_DEFAULT, data, 5000, &size);
        for (size_t cut = 0; cut < size; cut++) {
            if (codec == CODEC_SNAPPY && cut == 16) continue; /* Java's framing without a block: an empty text */
            if (codec == CODEC_ZSTD && cut == 0) continue;    /* no frame at all: an empty text too */
            uint8_t *part = mem_alloc(cut);
            memcpy(part, packed, cut);
            assert_int_equal(codec_decompress(codec, part, cut, 100000, &out, &out_size), ERR_CORRUPT);
            mem_free(part);
        }
        uint8_t *more = mem_zalloc(1, size + 3);
        memcpy(more, packed, size);
        more[size] = 'x';
        assert_int_equal(codec_decompress(codec, more, size + 3, 100000, &out, &out_size), ERR_CORRUPT);
        mem_free(more);
        mem_free(packed);
    }
    mem_free(data);
}

static void flipped_bits_never_crash(void **state)
{
    (void)state;
    uint8_t *data = sample(TEXT, 2000), *out;
    size_t size, out_size;
    for (enum codec codec = CODEC_GZIP; codec < CODEC_COUNT; codec++) {
        uint8_t *packed = pack(codec, COMPRESS_LEVEL_DEFAULT, data, 2000, &size);
        for (size_t bit = 0; bit < size * 8; bit++) {
            packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (!codec_decompress(codec, packed, size, 10000, &out, &out_size)) {
                assert_true(out_size <= 10000);
                mem_free(out);
            }
            packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        mem_free(packed);
    }
    mem_free(data);
}

static void a_bomb_stops_at_the_limit(void **state)
{
    (void)state;
    enum { BOMB = 64 << 20, LIMIT = 100000 };
    uint8_t *zeros = mem_zalloc(1, BOMB), *out;
    for (enum codec codec = CODEC_GZIP; codec < CODEC_COUNT; codec++) {
        size_t size, out_size;
        uint8_t *packed = pack(codec, COMPRESS_LEVEL_DEFAULT, zeros, BOMB, &size);
        assert_int_equal(codec_decompress(codec, packed, size, LIMIT, &out, &out_size), ERR_TOO_BIG);
        assert_int_equal(codec_decompress(codec, packed, size, BOMB, &out, &out_size), OK);
        assert_int_equal(out_size, BOMB);
        mem_free(out);
        mem_free(packed);
    }
    mem_free(zeros);
}

static void a_length_that_the_bytes_cannot_reach_allocates_nothing(void **state)
{
    (void)state;
    /* Raw snappy that claims 2^31-1 bytes; then the same in a frame; a frame of blocks of 2^32-1 bytes. */
    static const uint8_t raw[] = {0xff, 0xff, 0xff, 0xff, 0x07, 0};
    static const uint8_t framed[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,    0,    0,    0,    1, 0,
                                     0,    0,   1,   0,   0,   0,   6,   0xff, 0xff, 0xff, 0xff, 7, 0};
    static const uint8_t long_block[] = {0x82, 'S', 'N', 'A', 'P', 'P',  'Y',  0,    0,    0, 0,
                                         1,    0,   0,   0,   1,   0xff, 0xff, 0xff, 0xff, 0};
    uint8_t *out;
    size_t out_size;
    assert_int_equal(codec_decompress(CODEC_SNAPPY, raw, sizeof raw, INT32_MAX, &out, &out_size), ERR_CORRUPT);
    assert_int_equal(codec_decompress(CODEC_SNAPPY, framed, sizeof framed, INT32_MAX, &out, &out_size), ERR_CORRUPT);
    assert_int_equal(codec_decompress(CODEC_SNAPPY, long_block, sizeof long_block, INT32_MAX, &out, &out_size),
                     ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_gives_back_what_it_took),
        cmocka_unit_test(each_level_that_is_allowed_works_and_the_others_are_not),
        cmocka_unit_test(codecs_have_kafkas_names),
        cmocka_unit_test(unknown_codecs_are_unsupported),
        cmocka_unit_test(snappy_is_written_in_javas_framing_and_read_with_and_without_it),
        cmocka_unit_test(lz4_frames_are_written_as_javas_and_read_with_any_block_size),
        cmocka_unit_test(zstd_frames_without_content_size_are_read),
        cmocka_unit_test(what_is_cut_short_or_followed_by_garbage_is_corrupt),
        cmocka_unit_test(flipped_bits_never_crash),
        cmocka_unit_test(a_bomb_stops_at_the_limit),
        cmocka_unit_test(a_length_that_the_bytes_cannot_reach_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
