/* codec_internal.h: what codec.c and codec_print.c share. */
#ifndef WIRE_CODEC_INTERNAL_H
#define WIRE_CODEC_INTERNAL_H

#include "wire/codec.h"

/* Bytes of one value, or of one element of an array, in C. */
size_t wire_element_size(const struct wire_field *f);
/* Whether the field of `m`, a struct of schema `s`, equals its default. */
bool wire_field_is_default(const struct wire_schema *s, const struct wire_field *f, const void *m);

/* Fields whose type is known at run time only: the pointer to an array's first element, or to a nullable struct. */
static inline void *wire_pointer_get(const void *m, const struct wire_field *f)
{
    void *p;
    memcpy(&p, (const char *)m + f->at,
           sizeof p); /* by memcpy: the field is a pointer to some struct, no void pointer */
    return p;
}

static inline int32_t wire_count_get(const void *m, const struct wire_field *f)
{
    int32_t count = *(const int32_t *)(const void *)((const char *)m + f->count_at);
    ASSERT(count >= -1);
    return count;
}

#endif
