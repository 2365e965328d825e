/* recompress.c: a produced batch in the codec that its topic wants (compression.type).
 *
 * The records' bytes stay as they are: only their wrapping changes, and with it the header's size, attributes and CRC.
 */
#include "base/mem.h"
#include "wire/batch.h"

static enum err repack(const uint8_t *records, size_t size, const struct batch_info *info, enum codec codec, int level,
                       const uint8_t *header, struct writer *out)
{
    writer_bytes(out, header, BATCH_HEADER_SIZE);
    enum err e = codec_compress(codec, level, records, size, out);
    if (!e && out->size > INT32_MAX) e = ERR_TOO_BIG;
    if (e) return e;
    uint8_t *p = out->buf->data;
    put_be32(p + BATCH_AT_LENGTH, (uint32_t)(out->size - BATCH_LENGTH_OVERHEAD));
    put_be16(p + BATCH_AT_ATTRIBUTES, (uint16_t)((info->attributes & ~BATCH_CODEC_MASK) | (int)codec));
    put_be32(p + BATCH_AT_CRC, batch_crc(p, out->size));
    return OK;
}

enum err batch_recompress(struct writer *out, const uint8_t *data, const struct batch_info *info, enum codec codec,
                          int level, size_t decompressed_max)
{
    ASSERT(out->size == 0);
    const uint8_t *packed = data + BATCH_HEADER_SIZE;
    size_t packed_size = (size_t)info->size - BATCH_HEADER_SIZE;
    if (batch_codec(info) == CODEC_NONE) return repack(packed, packed_size, info, codec, level, data, out);
    uint8_t *records;
    size_t size;
    enum err e = codec_decompress(batch_codec(info), packed, packed_size, decompressed_max, &records, &size);
    if (e) return e;
    e = repack(records, size, info, codec, level, data, out);
    mem_free(records);
    return e;
}
