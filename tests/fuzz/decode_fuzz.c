/* decode_fuzz.c: every decoder of the wire codec, for libFuzzer.
 *
 * Input: the message as a big-endian number in wire_schemas[], modulo their count; a byte for the version, modulo the
 * number of its versions; the body.  What decodes must print, must encode, and must then decode to a message that
 * encodes to the same bytes.  golden_corpus.py makes seeds. */
#include <stdlib.h>

#include "base/mem.h"
#include "wire/codec.h"

enum { ARENA_BYTES_MAX = 16 << 20 };

/* The code is the same for every message, so coverage of code alone would keep seeds of a few and drop the rest.  Here
 * a message and version that decodes, or that fails, counts as covered ground. */
enum { COUNTERS_PER_MESSAGE = 64, COUNTERS = 512 * COUNTERS_PER_MESSAGE };
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[COUNTERS];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct wire_schema *s, const void *m, int16_t version, struct buf_pool *pool)
{
    struct writer first, second;
    writer_init(&first, pool);
    writer_init(&second, pool);
    struct arena a;
    arena_init(&a, SIZE_MAX);
    void *again = mem_alloc(s->size);

    enum err e = wire_encode(s, m, version, &first);
    ASSERT(e == OK);
    struct reader r = reader_of(first.buf ? first.buf->data : (const uint8_t *)"", first.size);
    e = wire_decode(s, again, version, &r, &a);
    ASSERT(e == OK);
    ASSERT(reader_left(&r) == 0);
    e = wire_encode(s, again, version, &second);
    ASSERT(e == OK);
    ASSERT(first.size == second.size);
    ASSERT(first.size == 0 || memcmp(first.buf->data, second.buf->data, first.size) == 0);

    mem_free(again);
    arena_fini(&a);
    writer_fini(&first);
    writer_fini(&second);
}

static void print_both_ways(const struct wire_schema *s, const void *m, int16_t version, struct buf_pool *pool)
{
    struct writer w;
    writer_init(&w, pool);
    wire_print(s, m, version, &w, WIRE_PRINT_FULL);
    wire_print(s, m, version, &w, WIRE_PRINT_LOG);
    writer_fini(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    unsigned index = get_be16(data) % (unsigned)wire_schema_count;
    const struct wire_schema *s = wire_schemas[index];
    int16_t version = (int16_t)(s->version_min + data[2] % (s->version_max - s->version_min + 1));
    struct buf_pool *pool = buf_pool_new(0);
    struct arena a;
    arena_init(&a, ARENA_BYTES_MAX);
    void *m = mem_alloc(s->size);
    struct reader r = reader_of(data + 3, size - 3);
    enum err e = wire_decode(s, m, version, &r, &a);
    size_t counter = index * COUNTERS_PER_MESSAGE + (unsigned)version * 2 + (e == OK);
    ASSERT(counter < COUNTERS);
    counters[counter] = 1;
    if (!e) {
        print_both_ways(s, m, version, pool);
        round_trip(s, m, version, pool);
    }
    ASSERT(a.used <= ARENA_BYTES_MAX);
    mem_free(m);
    arena_fini(&a);
    buf_pool_free(pool);
    return 0;
}
