/* slice.h: bytes that somebody else owns.  A slice is lent: it is good as long as its owner (a request's buffer, an
 * arena, a literal) is.  `data == NULL` is Kafka's null, which differs from empty.  Thread: any. */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"

/* Text, UTF-8, not zero-terminated. */
struct str {
    const char *data;
    size_t size;
};

/* Any bytes. */
struct bytes {
    const uint8_t *data;
    size_t size;
};

#define STR_NULL  ((struct str){NULL, 0})
#define STR_EMPTY ((struct str){"", 0})
/* A string literal as a str; and for printf: "%.*s", STR_ARG(s). */
#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
#define STR_ARG(s)   (int)(s).size, (s).data ? (s).data : ""

static inline struct str str_of(const char *zero_terminated)
{
    return (struct str){zero_terminated, zero_terminated ? strlen(zero_terminated) : 0};
}

static inline bool str_is_null(struct str s)
{
    return s.data == NULL;
}

/* Null and empty are different. */
static inline bool str_equal(struct str a, struct str b)
{
    if (!a.data || !b.data) return a.data == b.data;
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool str_is(struct str s, const char *zero_terminated)
{
    return str_equal(s, str_of(zero_terminated));
}

/* True also when that is all of it. */
static inline bool str_ends_with(struct str s, const char *tail)
{
    size_t n = strlen(tail);
    return s.size >= n && (n == 0 || memcmp(s.data + s.size - n, tail, n) == 0);
}

/* Byte order, for sorting; null sorts first. */
static inline int str_compare(struct str a, struct str b)
{
    if (!a.data || !b.data) return (a.data != NULL) - (b.data != NULL);
    size_t n = MIN(a.size, b.size);
    int c = n ? memcmp(a.data, b.data, n) : 0;
    if (c) return c;
    return a.size < b.size ? -1 : a.size > b.size;
}

#endif
