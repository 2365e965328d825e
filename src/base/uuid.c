/* uuid.c: text form and making of 128-bit ids. */
#include "base/uuid.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void uuid_format(struct uuid id, char out[UUID_TEXT_SIZE + 1])
{
    uint32_t bits = 0;
    int have = 0, at = 0;
    for (size_t i = 0; i < sizeof id.bytes; i++) {
        bits = bits << 8 | id.bytes[i];
        have += 8;
        while (have >= 6) {
            have -= 6;
            out[at++] = alphabet[bits >> have & 63];
        }
    }
    out[at++] = alphabet[bits << (6 - have) & 63];
    out[at] = '\0';
    ASSERT(at == UUID_TEXT_SIZE);
}

enum err uuid_parse(struct uuid *out, struct str text)
{
    if (text.size != UUID_TEXT_SIZE) return ERR_INVALID;
    struct uuid id = UUID_ZERO;
    uint32_t bits = 0;
    int have = 0;
    size_t at = 0;
    for (size_t i = 0; i < text.size; i++) {
        const char *p = memchr(alphabet, text.data[i], 64);
        if (!p) return ERR_INVALID;
        bits = bits << 6 | (uint32_t)(p - alphabet);
        have += 6;
        if (have >= 8 && at < sizeof id.bytes) {
            have -= 8;
            id.bytes[at++] = (uint8_t)(bits >> have & 0xff);
        }
    }
    *out = id;
    return OK;
}

bool uuid_from_random(struct uuid *out, const uint8_t random[16])
{
    memcpy(out->bytes, random, sizeof out->bytes);
    out->bytes[6] = (uint8_t)((out->bytes[6] & 0x0f) | 0x40);
    out->bytes[8] = (uint8_t)((out->bytes[8] & 0x3f) | 0x80);
    /* Kafka reserves ids 0..99 and turns down a leading dash, which command lines take for an option. */
    return out->bytes[0] >> 2 != 62;
}
