/* batch_fuzz: bytes as a produced batch, checked and walked.  Half of the inputs (by their last byte) get a right
 * length, offset and CRC first, so that the fuzzer gets past them. What must hold: nothing is read past the bytes; what
 * the check accepts can be walked to its end by the iterator, and carries a right CRC. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "wire/batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE_MAX_TAKEN = 1 << 16, DECOMPRESSED_MAX = 1 << 20 };

static void repair(uint8_t *batch, size_t size)
{
    batch_set_offset(batch, 0);
    put_be32(batch + BATCH_AT_LENGTH, (uint32_t)(size - BATCH_LENGTH_OVERHEAD));
    batch[BATCH_AT_MAGIC] = BATCH_MAGIC;
    put_be32(batch + BATCH_AT_CRC, batch_crc(batch, size));
}

static enum err walk(const uint8_t *batch, size_t size)
{
    struct record_iter it;
    struct record rec;
    struct record_header h;
    enum err e = record_iter_init(&it, batch, size, DECOMPRESSED_MAX);
    if (e) return e;
    while (!(e = record_iter_next(&it, &rec))) {
        while (!(e = record_next_header(&rec, &h))) continue;
        if (e != ERR_NOT_FOUND) break;
    }
    record_iter_fini(&it);
    return e == ERR_NOT_FOUND ? OK : e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > SIZE_MAX_TAKEN) return 0;
    uint8_t choice = data[--size];
    uint8_t *batch = mem_alloc(size);
    memcpy(batch, data, size);
    if (choice & 1 && size >= BATCH_HEADER_SIZE) repair(batch, size);

    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct batch_rules rules = {
        .size_max = SIZE_MAX_TAKEN,
        .compacted = choice & 2,
        .log_append_time = choice & 4,
        .now_ms = 1700000000000,
        .timestamp_before_max_ms = choice & 8 ? INT64_MAX : 1000,
        .timestamp_after_max_ms = choice & 16 ? INT64_MAX : 1000,
        .decompressed_max = DECOMPRESSED_MAX,
    };
    struct batch_verdict v;
    struct batch_info info;
    batch_check(&v, &info, batch, size, &rules, &arena);
    if (v.kerr == KERR_NONE) {
        ASSERT(batch_crc_ok(batch, &info));
        enum err e = walk(batch, size);
        ASSERT(e == OK || batch_codec(&info) != CODEC_NONE); /* compressed ones are not always looked into */
    } else {
        (void)walk(batch, size);
    }
    struct txn_marker marker;
    (void)batch_read_marker(&marker, batch, size);
    arena_fini(&arena);
    mem_free(batch);
    return 0;
}
