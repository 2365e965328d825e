/* scan.c: headers come out of a window of one page on the stack, whole batches out of a read-ahead buffer. */
#include "plog/scan.h"

#include <isa-l/crc.h>

#include "base/mem.h"

enum { READ_AHEAD = 256 * 1024 }; /* stays in a core's cache from reading to checking */

/* Formats v0 and v1: offset, size of what follows, CRC-32 of what follows it, magic; CRC, magic, attributes, and the
 * sizes of key and value at least. */
enum { OLD_AT_CRC = 12, OLD_SIZE_MIN = 14 };

void scan_init(struct scan *sc, struct file *file, int64_t pos, int64_t end, bool nowait)
{
    sc->file = file;
    sc->pos = pos;
    sc->end = end;
    sc->nowait = nowait;
    sc->read_ahead = READ_AHEAD;
    sc->batches = NULL;
    sc->batches_cap = sc->batches_size = sc->window_size = 0;
    sc->batches_pos = sc->window_pos = 0;
}

void scan_fini(struct scan *sc)
{
    mem_free(sc->batches);
    sc->batches = NULL;
}

static enum err scan_read(struct scan *sc, uint8_t *out, size_t size, size_t *got)
{
    return sc->nowait ? file_pread_nowait(sc->file, out, size, sc->pos, got)
                      : file_pread(sc->file, out, size, sc->pos, got);
}

/* Bytes at `pos` that the buffer [from, from + size) holds. */
static size_t held(int64_t pos, int64_t from, size_t size)
{
    if (pos < from || pos - from >= (int64_t)size) return 0;
    return size - (size_t)(pos - from);
}

/* At least `size` bytes at `pos`, which are inside the file as the caller knows it. */
static enum err scan_fill(struct scan *sc, size_t size)
{
    if (held(sc->pos, sc->batches_pos, sc->batches_size) >= size) return OK;
    size_t want = (size_t)MIN(sc->end - sc->pos, (int64_t)MAX(size, sc->read_ahead)), got;
    if (sc->batches_cap < want) {
        mem_free(sc->batches);
        sc->batches = mem_alloc(want);
        sc->batches_cap = want;
    }
    sc->batches_size = 0;
    enum err e = scan_read(sc, sc->batches, want, &got);
    if (e) return e;
    sc->batches_pos = sc->pos;
    sc->batches_size = got;
    return got < size ? ERR_CORRUPT : OK;
}

/* The header at `pos` has the magic of an old format, as zeros and garbage often do: only a matching CRC proves it. */
static enum err scan_old_format(struct scan *sc, const uint8_t *header)
{
    int64_t size = (int32_t)get_be32(header + BATCH_AT_LENGTH);
    if (size < OLD_SIZE_MIN || size + BATCH_LENGTH_OVERHEAD > sc->end - sc->pos) return ERR_CORRUPT;
    enum err e = scan_fill(sc, (size_t)size + BATCH_LENGTH_OVERHEAD);
    if (e) return e;
    const uint8_t *data = sc->batches + (sc->pos - sc->batches_pos);
    uint32_t crc = crc32_gzip_refl(0, data + BATCH_AT_MAGIC, (uint64_t)(size - (BATCH_AT_MAGIC - OLD_AT_CRC)));
    return crc == get_be32(data + OLD_AT_CRC) ? ERR_UNSUPPORTED : ERR_CORRUPT;
}

/* Too few bytes are left for a header; an old message can be that short. */
static enum err scan_short(struct scan *sc)
{
    if (sc->end <= sc->pos) return ERR_NOT_FOUND;
    size_t left = (size_t)(sc->end - sc->pos);
    if (left < BATCH_LENGTH_OVERHEAD + OLD_SIZE_MIN) return ERR_CORRUPT;
    enum err e = scan_fill(sc, left);
    if (e) return e;
    const uint8_t *header = sc->batches + (sc->pos - sc->batches_pos);
    return header[BATCH_AT_MAGIC] < BATCH_MAGIC ? scan_old_format(sc, header) : ERR_CORRUPT;
}

/* At least a header's bytes at `pos`. */
static enum err scan_peek(struct scan *sc, const uint8_t **out)
{
    if (sc->end - sc->pos < BATCH_HEADER_SIZE) return scan_short(sc);
    if (held(sc->pos, sc->window_pos, sc->window_size) < BATCH_HEADER_SIZE) {
        size_t want = (size_t)MIN(sc->end - sc->pos, SCAN_WINDOW), got;
        sc->window_size = 0;
        enum err e = scan_read(sc, sc->window, want, &got);
        if (e) return e;
        sc->window_pos = sc->pos;
        sc->window_size = got;
        if (got < BATCH_HEADER_SIZE) return ERR_CORRUPT;
    }
    *out = sc->window + (sc->pos - sc->window_pos);
    return OK;
}

/* A header carries no proof, and the base offset lies outside the CRC: offsets that nobody can have given must go no
 * further. */
static bool offsets_possible(const struct batch_info *b)
{
    return b->base_offset >= 0 && b->last_offset_delta >= 0 && b->base_offset <= INT64_MAX - b->last_offset_delta - 1;
}

enum err scan_header(struct scan *sc, struct batch_info *out)
{
    const uint8_t *data = NULL;
    enum err e = scan_peek(sc, &data);
    if (e) return e;
    e = batch_parse_header(out, data, sc->end - sc->pos);
    if (e == ERR_UNSUPPORTED) return scan_old_format(sc, data);
    if (!e && !offsets_possible(out)) e = ERR_CORRUPT;
    if (e) return e;
    sc->pos += out->size;
    return OK;
}

enum err scan_batch(struct scan *sc, struct batch_info *out, const uint8_t **data)
{
    if (sc->end - sc->pos < BATCH_HEADER_SIZE) return scan_short(sc);
    enum err e = scan_fill(sc, BATCH_HEADER_SIZE);
    if (e) return e;
    const uint8_t *header = sc->batches + (sc->pos - sc->batches_pos);
    e = batch_parse_header(out, header, sc->end - sc->pos);
    if (e == ERR_UNSUPPORTED) return scan_old_format(sc, header);
    if (!e && !offsets_possible(out)) e = ERR_CORRUPT;
    if (e) return e;
    e = scan_fill(sc, (size_t)out->size);
    if (e) return e;
    *data = sc->batches + (sc->pos - sc->batches_pos);
    sc->pos += out->size;
    return OK;
}
