/* compress.h: the four codecs of record batches, byte for byte as Kafka's clients write and read them.
 *
 * gzip: RFC 1952.  snappy: Java's framing (xerial: magic, then blocks of at most 32 KiB), on reading also one raw
 * snappy block, as some clients write it.  lz4: the LZ4 frame format, blocks of 64 KiB, independent.  zstd: RFC 8878.
 * Nothing is kept between calls: a compressor's state lives as long as the call.  Thread: any. */
#ifndef WIRE_COMPRESS_H
#define WIRE_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/writer.h"

enum codec { CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD, CODEC_COUNT };

/* Kafka's names: "none", "gzip", "snappy", "lz4", "zstd". */
const char *codec_name(enum codec codec);

/* The codec's own default level (compression.gzip.level, .lz4.level, .zstd.level). */
enum { COMPRESS_LEVEL_DEFAULT = INT32_MIN };

/* Decompresses `size` bytes into *out (of *out_size bytes, to be freed with mem_free()).  Grows as data comes, so that
 * a bomb costs no more than `size_max`: ERR_TOO_BIG past it.  ERR_CORRUPT: not whole or not valid.  ERR_UNSUPPORTED: a
 * codec that does not exist (5 to 7). */
MUST_USE enum err codec_decompress(enum codec codec, const uint8_t *data, size_t size, size_t size_max, uint8_t **out,
                                   size_t *out_size);

/* Appends the compressed form of `data` to `out`; level COMPRESS_LEVEL_DEFAULT or one that codec_level_ok() allows. */
MUST_USE enum err codec_compress(enum codec codec, int level, const uint8_t *data, size_t size, struct writer *out);

/* gzip 1 to 9 (or -1, the default), lz4 1 to 17, zstd -131072 to 22; others have no levels. */
bool codec_level_ok(enum codec codec, int level);

#endif
