/* keyed.c: writes the segments of a partition, full of records whose keys come again and again: what a cleaner is
 * given. keyed DIR SEGMENTS SEGMENT_MB KEYS VALUE_BYTES RECORDS_PER_BATCH none|lz4
 *
 * Log files only: brokers make the indexes.  Keys are drawn evenly; a value is half of noise, half of zeros, so that a
 * codec finds something to do.  The same arguments give the same bytes.
 *
 * It is a tool of the benchmarks and no part of the product. */
#define _GNU_SOURCE
#include <lz4frame.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 61, AT_CRC = 17, AT_ATTRIBUTES = 21, KEY = 16, RECORD_MAX_EXTRA = 64 };

static uint32_t crc_table[8][256];

static void crc_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            crc_table[t][i] = crc_table[t - 1][i] >> 8 ^ crc_table[0][crc_table[t - 1][i] & 255];
}

/* CRC-32C, eight bytes at a time. */
static uint32_t crc32c(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= c;
        c = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
            crc_table[4][low >> 24] ^ crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255] ^
            crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    while (n--) c = c >> 8 ^ crc_table[0][(c ^ *p++) & 255];
    return ~c;
}

static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void put_be(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, v >>= 8) p[i] = (uint8_t)v;
}

static uint8_t *put_varint(uint8_t *p, int64_t value)
{
    uint64_t v = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; v >= 128; v >>= 7) *p++ = (uint8_t)(v | 128);
    *p++ = (uint8_t)v;
    return p;
}

static uint8_t *put_record(uint8_t *p, int index, uint64_t keys, size_t value)
{
    uint8_t body[64], *b = body;
    char key[KEY + 9];
    *b++ = 0;
    b = put_varint(b, index); /* timestamp delta */
    b = put_varint(b, index);
    b = put_varint(b, KEY);
    snprintf(key, sizeof key, "key-%012llu", (unsigned long long)(draw() % keys));
    memcpy(b, key, KEY);
    b = put_varint(b + KEY, (int64_t)value);
    p = put_varint(p, (b - body) + (int64_t)value + 1);
    memcpy(p, body, (size_t)(b - body));
    p += b - body;
    memset(p, 0, value);
    for (size_t i = 0; i + 8 <= value / 2; i += 8) {
        uint64_t noise = draw();
        memcpy(p + i, &noise, 8);
    }
    p[value] = 0; /* headers */
    return p + value + 1;
}

/* Builds the batch in `out`; returns its size. */
static size_t build(uint8_t *out, size_t cap, uint8_t *plain, int64_t base, int count, uint64_t keys, size_t value,
                    int lz4)
{
    uint8_t *end = plain;
    for (int i = 0; i < count; i++) end = put_record(end, i, keys, value);
    size_t size = (size_t)(end - plain);
    LZ4F_preferences_t how = {.frameInfo = {.blockMode = LZ4F_blockIndependent}};
    if (lz4)
        size = LZ4F_compressFrame(out + HEADER, cap - HEADER, plain, size, &how);
    else
        memcpy(out + HEADER, plain, size);
    int64_t time_ms = 1700000000000 + base / 1000;
    put_be(out, (uint64_t)base, 8);
    put_be(out + 8, HEADER + size - 12, 4);
    put_be(out + 12, 0, 4); /* leader epoch */
    out[16] = 2;
    put_be(out + AT_ATTRIBUTES, lz4 ? 3 : 0, 2);
    put_be(out + 23, (uint64_t)count - 1, 4);
    put_be(out + 27, (uint64_t)time_ms, 8);
    put_be(out + 35, (uint64_t)(time_ms + count - 1), 8);
    memset(out + 43, 255, 14); /* no producer */
    put_be(out + 57, (uint64_t)count, 4);
    put_be(out + AT_CRC, crc32c(out + AT_ATTRIBUTES, HEADER - AT_ATTRIBUTES + size), 4);
    return HEADER + size;
}

int main(int argc, char **argv)
{
    if (argc != 8) return fprintf(stderr, "usage: see the top of keyed.c\n"), 2;
    int segments = atoi(argv[2]), count = atoi(argv[6]), lz4 = strcmp(argv[7], "lz4") == 0;
    size_t segment_bytes = (size_t)atoi(argv[3]) << 20, value = (size_t)atoi(argv[5]);
    uint64_t keys = strtoull(argv[4], NULL, 10);
    size_t plain_cap = (size_t)count * (value + RECORD_MAX_EXTRA), cap = 2 * plain_cap + 4096;
    uint8_t *plain = malloc(plain_cap), *out = malloc(cap);
    if (!plain || !out || keys == 0) return 1;
    crc_init();
    int64_t offset = 0;
    for (int s = 0; s <= segments; s++) { /* the last one is small: it is the active one */
        char path[4096];
        snprintf(path, sizeof path, "%s/%020lld.log", argv[1], (long long)offset);
        FILE *f = fopen(path, "wb");
        if (!f) return perror(path), 1;
        size_t limit = s < segments ? segment_bytes : 1 << 20;
        for (size_t size = 0;;) {
            size_t n = build(out, cap, plain, offset, count, keys, value, lz4);
            if (size + n > limit) break;
            if (fwrite(out, 1, n, f) != n) return perror(path), 1;
            size += n;
            offset += count;
        }
        if (fclose(f) != 0) return perror(path), 1;
    }
    printf("%lld\n", (long long)offset);
    return 0;
}
