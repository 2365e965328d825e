/* utf8.h: is it text?  What came over the wire may be any bytes.  Thread: any. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/slice.h"

/* The size of the UTF-8 character at `s`, of which `left` > 0 bytes are there; 0 if there is none: overlong forms,
 * surrogates and what lies above U+10FFFF are none. */
size_t utf8_size(const uint8_t *s, size_t left);

/* Nothing but UTF-8 characters; true of null and empty, too. */
bool str_is_utf8(struct str s);

/* As Java counts a string's length: in UTF-16 units, of which a character outside the BMP takes two. */
size_t str_utf16_units(struct str s);

#endif
