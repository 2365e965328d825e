/* snapshot_fuzz: bytes as a producer snapshot, as a leader-epoch-checkpoint, and as batches for the producer state. The
 * snapshot's CRC is put right first, by the last byte.
 * What must hold: queueing batches and taking them back changes nothing of what was accepted. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "plog/epochs.h"
#include "plog/producers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Batches made of the bytes, queued behind the snapshot and taken back again. */
static void queue_and_take_back(struct producers *ps, const uint8_t *data, size_t size)
{
    int64_t end = (int64_t)1 << 40;
    for (size_t at = 0; at + 4 <= size && at < 400; at += 4) {
        struct batch_info b = {
            .base_offset = end,
            .last_offset_delta = data[at] % 4,
            .producer_id = data[at + 1] % 8,
            .producer_epoch = data[at + 2] % 4,
            .base_sequence = data[at + 3] % 16,
            .attributes = data[at] & BATCH_TRANSACTIONAL,
        };
        struct txn_marker marker = {data[at + 3] & 1, data[at + 3] % 4, 0};
        struct producers_result r;
        producers_queue(ps, &b, data[at] & 64 ? &marker : NULL, (enum append_origin)(data[at] % 3), &r);
        if (r.kerr == KERR_NONE) end += 4;
    }
    producers_rollback(ps);
}

static void check_snapshot(const uint8_t *data, size_t size)
{
    struct producers ps;
    producers_init(&ps);
    if (producers_snapshot_decode(&ps, data, size, 0, INT64_MAX) == OK) {
        uint8_t *before, *after;
        size_t before_size, after_size;
        producers_snapshot_encode(&ps, 0, &before, &before_size);
        int64_t unstable = producers_first_unstable(&ps);
        queue_and_take_back(&ps, data, size);
        producers_snapshot_encode(&ps, 0, &after, &after_size);
        ASSERT(before_size == after_size && memcmp(before, after, before_size) == 0);
        ASSERT(producers_first_unstable(&ps) == unstable);
        mem_free(before);
        mem_free(after);
    }
    producers_fini(&ps);
}

static void check_epochs(const uint8_t *data, size_t size)
{
    struct epochs ep, again;
    struct fault f;
    epochs_init(&ep);
    epochs_init(&again);
    if (epochs_decode(&ep, "file", (const char *)data, size, &f) == OK) {
        size_t text_size;
        char *text = epochs_encode(&ep, &text_size);
        ASSERT(epochs_decode(&again, "file", text, text_size, &f) == OK && again.count == ep.count);
        mem_free(text);
    }
    epochs_fini(&again);
    epochs_fini(&ep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    bool repaired = data[--size] & 1;
    uint8_t *copy = mem_alloc(size);
    memcpy(copy, data, size);
    if (repaired && size >= 10) {
        put_be16(copy, 1);
        put_be32(copy + 6, (uint32_t)((size - 10) / 46));
        put_be32(copy + 2, crc32c(copy + 6, size - 6));
    }
    check_snapshot(copy, size);
    check_epochs(copy, size);
    mem_free(copy);
    return 0;
}
