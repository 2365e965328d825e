/* compress.c: one growing output for all codecs, and one pair of functions each.
 *
 * Decompression: the output starts at a small multiple of the input and grows in steps up to one byte above the limit;
 * filling that byte is how "too big" shows.  No codec gets to allocate by what the data claim: snappy's stated length
 * is checked against what its format can reach, zstd is decoded straight into the output, so that no window is
 * allocated. */
#include "wire/compress.h"

#include <limits.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/endian.h"
#include "base/mem.h"

enum {
    OUTPUT_FIRST_MIN = 4096,
    OUTPUT_FIRST_RATIO = 4, /* what records compress to, roughly */
    OUTPUT_GROWTH = 4,
    GZIP_WINDOW_BITS = 15 + 16, /* +16: gzip wrapper only */
    GZIP_MEM_LEVEL = 8,
    SNAPPY_RATIO_MAX = 64, /* a copy of 64 bytes takes at least 2 bytes of input */
    LZ4_DEFAULT_LEVEL = 0, /* Kafka's default "9" means lz4's fast mode */
    LZ4_DEFAULT_LEVEL_NAME = 9,
    ZSTD_DEFAULT_LEVEL = 3,
};

/* Xerial's snappy framing: this, then blocks of a length and raw snappy data. */
static const uint8_t xerial_magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
enum { XERIAL_HEADER_SIZE = 16, XERIAL_VERSION = 1, XERIAL_BLOCK = 32 * 1024 };

struct output {
    uint8_t *data;
    size_t size, cap, size_max;
};

/* Room for more; ERR_TOO_BIG once more than size_max bytes are there. */
static enum err output_grow(struct output *o, size_t first)
{
    if (o->size > o->size_max || o->cap == o->size_max + 1) return ERR_TOO_BIG;
    size_t want = o->cap ? o->cap * OUTPUT_GROWTH : MAX(first, (size_t)OUTPUT_FIRST_MIN);
    o->cap = MIN(want, o->size_max + 1);
    o->data = mem_realloc(o->data, o->cap);
    return OK;
}

const char *codec_name(enum codec codec)
{
    static const char *const names[CODEC_COUNT] = {"none", "gzip", "snappy", "lz4", "zstd"};
    return codec < CODEC_COUNT ? names[codec] : "unknown";
}

bool codec_level_ok(enum codec codec, int level)
{
    if (level == COMPRESS_LEVEL_DEFAULT) return true;
    switch (codec) {
    case CODEC_GZIP: return level == Z_DEFAULT_COMPRESSION || (level >= Z_BEST_SPEED && level <= Z_BEST_COMPRESSION);
    case CODEC_LZ4: return level >= 1 && level <= 17;
    case CODEC_ZSTD: return level >= -131072 && level <= 22;
    default: return false;
    }
}

/* ---- gzip */

/* One inflate() into the room there is. */
static int gzip_step(z_stream *z, struct output *o)
{
    size_t room = MIN(o->cap - o->size, (size_t)UINT_MAX);
    z->next_out = o->data + o->size;
    z->avail_out = (uInt)room;
    int rc = inflate(z, Z_NO_FLUSH);
    o->size += room - z->avail_out;
    return rc;
}

static enum err gzip_decompress(const uint8_t *data, size_t size, struct output *o)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)size};
    ASSERT(inflateInit2(&z, GZIP_WINDOW_BITS) == Z_OK);
    enum err e = OK;
    while (!e) {
        if (o->size == o->cap) e = output_grow(o, size * OUTPUT_FIRST_RATIO);
        if (e) break;
        int rc = gzip_step(&z, o);
        if (rc == Z_STREAM_END && z.avail_in == 0) break;
        if (rc == Z_STREAM_END) /* several members in a row are one text */
            rc = inflateReset(&z);
        else if (rc == Z_OK && z.avail_in == 0 && z.avail_out > 0)
            rc = Z_BUF_ERROR; /* the input ends early */
        if (rc != Z_OK) e = ERR_CORRUPT;
    }
    inflateEnd(&z);
    return e;
}

static enum err gzip_compress(int level, const uint8_t *data, size_t size, struct writer *out)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)size};
    if (level == COMPRESS_LEVEL_DEFAULT) level = Z_DEFAULT_COMPRESSION;
    ASSERT(deflateInit2(&z, level, Z_DEFLATED, GZIP_WINDOW_BITS, GZIP_MEM_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t at = out->size, bound = deflateBound(&z, (uLong)size);
    z.next_out = writer_extend(out, bound);
    z.avail_out = (uInt)bound;
    ASSERT(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->size = at + bound - z.avail_out;
    deflateEnd(&z);
    return OK;
}

/* ---- snappy */

static enum err snappy_block(const uint8_t *data, size_t size, struct output *o)
{
    size_t length;
    if (snappy_uncompressed_length((const char *)data, size, &length) != SNAPPY_OK) return ERR_CORRUPT;
    if (length / SNAPPY_RATIO_MAX > size) return ERR_CORRUPT;
    if (length > o->size_max - o->size) return ERR_TOO_BIG;
    if (length > o->cap - o->size) {
        o->cap = MIN(o->size_max, MAX(o->size + length, o->cap * 2));
        o->data = mem_realloc(o->data, o->cap);
    }
    if (length == 0) return OK;
    if (snappy_uncompress((const char *)data, size, (char *)o->data + o->size, &length) != SNAPPY_OK)
        return ERR_CORRUPT;
    o->size += length;
    return OK;
}

static enum err snappy_decompress(const uint8_t *data, size_t size, struct output *o)
{
    if (size < XERIAL_HEADER_SIZE || memcmp(data, xerial_magic, sizeof xerial_magic) != 0)
        return snappy_block(data, size, o);
    const uint8_t *p = data + XERIAL_HEADER_SIZE, *end = data + size;
    while (p < end) {
        /* Streams may be joined: a header between blocks. */
        if (end - p >= XERIAL_HEADER_SIZE && memcmp(p, xerial_magic, sizeof xerial_magic) == 0) {
            p += XERIAL_HEADER_SIZE;
            continue;
        }
        if (end - p < 4) return ERR_CORRUPT;
        size_t block = get_be32(p);
        p += 4;
        if (block > (size_t)(end - p)) return ERR_CORRUPT;
        enum err e = snappy_block(p, block, o);
        if (e) return e;
        p += block;
    }
    return OK;
}

static enum err snappy_compress_xerial(const uint8_t *data, size_t size, struct writer *out)
{
    writer_bytes(out, xerial_magic, sizeof xerial_magic);
    writer_i32(out, XERIAL_VERSION);
    writer_i32(out, XERIAL_VERSION); /* lowest version that can read it */
    for (size_t at = 0; at < size; at += XERIAL_BLOCK) {
        size_t part = MIN(size - at, (size_t)XERIAL_BLOCK), length = snappy_max_compressed_length(part);
        size_t length_at = out->size;
        uint8_t *p = writer_extend(out, 4 + length);
        ASSERT(snappy_compress((const char *)data + at, part, (char *)p + 4, &length) == SNAPPY_OK);
        put_be32(p, (uint32_t)length);
        out->size = length_at + 4 + length;
    }
    return OK;
}

/* ---- lz4 */

static enum err lz4_decompress(const uint8_t *data, size_t size, struct output *o)
{
    LZ4F_dctx *ctx;
    ASSERT(!LZ4F_isError(LZ4F_createDecompressionContext(&ctx, LZ4F_VERSION)));
    enum err e = OK;
    size_t at = 0;
    for (;;) {
        if (o->size == o->cap) e = output_grow(o, size * OUTPUT_FIRST_RATIO);
        if (e) break;
        size_t room = o->cap - o->size, taken = size - at;
        size_t hint = LZ4F_decompress(ctx, o->data + o->size, &room, data + at, &taken, NULL);
        if (LZ4F_isError(hint)) {
            e = ERR_CORRUPT;
            break;
        }
        o->size += room;
        at += taken;
        if (hint == 0) { /* the frame's end; nothing may follow */
            if (at < size) e = ERR_CORRUPT;
            break;
        }
        if (taken == 0 && room == 0 && o->size < o->cap) { /* it wants more than there is */
            e = ERR_CORRUPT;
            break;
        }
    }
    LZ4F_freeDecompressionContext(ctx);
    return e;
}

static enum err lz4_compress(int level, const uint8_t *data, size_t size, struct writer *out)
{
    if (level == COMPRESS_LEVEL_DEFAULT || level == LZ4_DEFAULT_LEVEL_NAME) level = LZ4_DEFAULT_LEVEL;
    LZ4F_preferences_t preferences = {
        .frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockIndependent},
        .compressionLevel = level,
    };
    size_t at = out->size, bound = LZ4F_compressFrameBound(size, &preferences);
    uint8_t *p = writer_extend(out, bound);
    size_t length = LZ4F_compressFrame(p, bound, data, size, &preferences);
    ASSERT(!LZ4F_isError(length));
    out->size = at + length;
    return OK;
}

/* ---- zstd */

/* Decodes in one go into a guess, again into four times as much when it was too small: at most a third is done twice,
 * and the window, which the data may state as they like, is the output itself. */
static enum err zstd_decompress(const uint8_t *data, size_t size, struct output *o)
{
    ZSTD_DCtx *ctx = ZSTD_createDCtx();
    ASSERT(ctx);
    unsigned long long stated = ZSTD_getFrameContentSize(data, size);
    size_t first = size * OUTPUT_FIRST_RATIO;
    if (stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != ZSTD_CONTENTSIZE_ERROR && stated / OUTPUT_FIRST_RATIO <= first)
        first = (size_t)stated + 1;
    enum err e;
    while (!(e = output_grow(o, first))) {
        size_t length = ZSTD_decompressDCtx(ctx, o->data, o->cap, data, size);
        if (!ZSTD_isError(length)) {
            o->size = length;
            break;
        }
        if (ZSTD_getErrorCode(length) != ZSTD_error_dstSize_tooSmall) {
            e = ERR_CORRUPT;
            break;
        }
    }
    ZSTD_freeDCtx(ctx);
    return e;
}

static enum err zstd_compress(int level, const uint8_t *data, size_t size, struct writer *out)
{
    if (level == COMPRESS_LEVEL_DEFAULT) level = ZSTD_DEFAULT_LEVEL;
    size_t at = out->size, bound = ZSTD_compressBound(size);
    uint8_t *p = writer_extend(out, bound);
    size_t length = ZSTD_compress(p, bound, data, size, level);
    ASSERT(!ZSTD_isError(length));
    out->size = at + length;
    return OK;
}

/* ---- */

enum err codec_decompress(enum codec codec, const uint8_t *data, size_t size, size_t size_max, uint8_t **out,
                          size_t *out_size)
{
    ASSERT(size <= INT32_MAX && size_max <= INT32_MAX);
    struct output o = {.size_max = size_max};
    enum err e;
    switch (codec) {
    case CODEC_GZIP: e = gzip_decompress(data, size, &o); break;
    case CODEC_SNAPPY: e = snappy_decompress(data, size, &o); break;
    case CODEC_LZ4: e = lz4_decompress(data, size, &o); break;
    case CODEC_ZSTD: e = zstd_decompress(data, size, &o); break;
    default: e = ERR_UNSUPPORTED; break;
    }
    if (!e && o.size > size_max) e = ERR_TOO_BIG;
    if (e) {
        mem_free(o.data);
        return e;
    }
    *out = o.data ? o.data : mem_alloc(0);
    *out_size = o.size;
    return OK;
}

enum err codec_compress(enum codec codec, int level, const uint8_t *data, size_t size, struct writer *out)
{
    ASSERT(size <= INT32_MAX);
    ASSERT(level == COMPRESS_LEVEL_DEFAULT || codec_level_ok(codec, level));
    switch (codec) {
    case CODEC_NONE: writer_bytes(out, data, size); return OK;
    case CODEC_GZIP: return gzip_compress(level, data, size, out);
    case CODEC_SNAPPY: return snappy_compress_xerial(data, size, out);
    case CODEC_LZ4: return lz4_compress(level, data, size, out);
    case CODEC_ZSTD: return zstd_compress(level, data, size, out);
    default: return ERR_UNSUPPORTED;
    }
}
