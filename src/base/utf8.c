#include "base/utf8.h"

size_t utf8_size(const uint8_t *s, size_t left)
{
    static const uint32_t code_mins[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (n == 0 || n > left) return 0;
    uint32_t code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code < code_mins[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

bool str_is_utf8(struct str s)
{
    const uint8_t *at = (const uint8_t *)s.data;
    for (size_t left = s.size; left > 0;) {
        size_t n = utf8_size(at, left);
        if (n == 0) return false;
        at += n;
        left -= n;
    }
    return true;
}

size_t str_utf16_units(struct str s)
{
    size_t units = 0;
    for (size_t i = 0; i < s.size; i++) {
        uint8_t byte = (uint8_t)s.data[i];
        units += (byte & 0xc0) != 0x80; /* bytes that continue a character make none */
        units += byte >= 0xf0;          /* outside the BMP: a pair */
    }
    return units;
}
