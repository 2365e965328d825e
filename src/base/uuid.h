/* uuid.h: 128-bit ids as Kafka writes them: 16 bytes on the wire, 22 characters of unpadded URL-safe base64 in text. */
#ifndef BASE_UUID_H
#define BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct uuid {
    uint8_t bytes[16];
};

enum { UUID_TEXT_SIZE = 22 };

#define UUID_ZERO ((struct uuid){{0}})

static inline bool uuid_equal(struct uuid a, struct uuid b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

static inline bool uuid_is_zero(struct uuid id)
{
    return uuid_equal(id, UUID_ZERO);
}

/* Writes 22 characters and a zero. */
void uuid_format(struct uuid id, char out[UUID_TEXT_SIZE + 1]);

/* ERR_INVALID when `text` is not 22 characters of URL-safe base64. */
MUST_USE enum err uuid_parse(struct uuid *out, struct str text);

/* Makes a version 4 id of 16 random bytes that Kafka would choose too: its text never starts with '-'. The caller draws
 * again while this returns false. */
bool uuid_from_random(struct uuid *out, const uint8_t random[16]);

#endif
