/* config_parse.c: the syntax of server.properties, which is that of Java's Properties.load.
 *
 * A logical line is one or more lines of the file, continued by an odd number of backslashes at the end; spaces at the
 * start of each are dropped.  Empty lines and those that start with # or ! are none.  The key ends at the first =, : or
 * space that has no backslash before it.  A backslash before another character stands for that character, but for \t,
 * \n, \r, \f and \uXXXX. */
#include "broker/config_internal.h"

#include <string.h>

#include "base/mem.h"

struct text {
    char *data;
    size_t size, cap;
};

static void text_add(struct text *t, const char *bytes, size_t size)
{
    if (!size) return;
    t->data = mem_grow(t->data, &t->cap, t->size + size, 1);
    memcpy(t->data + t->size, bytes, size);
    t->size += size;
}

static void text_add_utf8(struct text *t, uint32_t c)
{
    char b[4];
    size_t n = 0;
    if (c < 0x80) {
        b[n++] = (char)c;
    } else if (c < 0x800) {
        b[n++] = (char)(0xc0 | c >> 6);
        b[n++] = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        b[n++] = (char)(0xe0 | c >> 12);
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        b[n++] = (char)(0x80 | (c & 0x3f));
    } else {
        b[n++] = (char)(0xf0 | c >> 18);
        b[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        b[n++] = (char)(0x80 | (c & 0x3f));
    }
    text_add(t, b, n);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

/* Takes one line of the file off `rest`; its end is \n, \r or both. */
static struct str take_line(struct str *rest)
{
    size_t n = 0;
    while (n < rest->size && rest->data[n] != '\n' && rest->data[n] != '\r') n++;
    struct str line = {rest->data, n};
    if (n < rest->size) n += rest->data[n] == '\r' && n + 1 < rest->size && rest->data[n + 1] == '\n' ? 2 : 1;
    rest->data += n;
    rest->size -= n;
    return line;
}

/* Joins the next logical line into `out`; *line counts lines of the file taken, *first is its first.  False at the end.
 */
static bool take_logical(struct str *rest, struct text *out, int *line, int *first)
{
    out->size = 0;
    bool continued = false;
    while (rest->size > 0) {
        struct str s = take_line(rest);
        ++*line;
        while (s.size > 0 && is_space(s.data[0])) {
            s.data++;
            s.size--;
        }
        if (out->size == 0) { /* also behind a line that was only a backslash */
            if (s.size == 0 || s.data[0] == '#' || s.data[0] == '!') continue;
            *first = *line;
        }
        size_t slashes = 0;
        while (slashes < s.size && s.data[s.size - 1 - slashes] == '\\') slashes++;
        continued = slashes % 2 == 1;
        text_add(out, s.data, s.size - continued);
        if (!continued) return true;
    }
    return out->size > 0; /* the file ends in a backslash */
}

static int hex4(const char *s, size_t size)
{
    if (size < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        char c = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] - 'A' + 'a') : s[i];
        const char *at = c ? strchr(digits, c) : NULL;
        if (!at) return -1;
        v = v * 16 + (int)(at - digits);
    }
    return v;
}

/* The character of \uXXXX at `s` (behind the u), with a second \uXXXX where the first is half of a pair.  Returns how
 * many bytes it took, 0 when it is malformed. */
static size_t unescape_unicode(const char *s, size_t size, uint32_t *out)
{
    int high = hex4(s, size);
    if (high < 0) return 0;
    *out = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff) return 4;
    if (high < 0xdc00 && size >= 10 && s[4] == '\\' && s[5] == 'u') {
        int low = hex4(s + 6, size - 6);
        if (low >= 0xdc00 && low <= 0xdfff) {
            *out = 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
            return 10;
        }
    }
    *out = 0xfffd; /* half a pair: not a character */
    return 4;
}

/* False when an escape is malformed. */
static bool unescape(struct text *out, struct str s)
{
    out->size = 0;
    for (size_t i = 0; i < s.size; i++) {
        if (s.data[i] != '\\' || i + 1 == s.size) {
            text_add(out, s.data + i, 1);
            continue;
        }
        uint32_t c = (unsigned char)s.data[++i];
        switch (c) {
        case 't': text_add(out, "\t", 1); break;
        case 'n': text_add(out, "\n", 1); break;
        case 'r': text_add(out, "\r", 1); break;
        case 'f': text_add(out, "\f", 1); break;
        case 'u': {
            size_t took = unescape_unicode(s.data + i + 1, s.size - i - 1, &c);
            if (!took) return false;
            text_add_utf8(out, c);
            i += took;
            break;
        }
        default: text_add(out, s.data + i, 1); break;
        }
    }
    return true;
}

/* Where the key ends and where the value starts. */
static void split_pair(struct str s, struct str *key, struct str *value)
{
    size_t end = 0;
    while (end < s.size && s.data[end] != '=' && s.data[end] != ':' && !is_space(s.data[end]))
        end += s.data[end] == '\\' && end + 1 < s.size ? 2 : 1;
    size_t at = end;
    while (at < s.size && is_space(s.data[at])) at++;
    if (at < s.size && (s.data[at] == '=' || s.data[at] == ':')) {
        at++;
        while (at < s.size && is_space(s.data[at])) at++;
    }
    *key = (struct str){s.data, end};
    *value = (struct str){s.data + at, s.size - at};
}

enum err config_parse_properties(struct config_map *m, struct str text, const char *file_name, struct fault *f)
{
    if (text.size > CONFIG_FILE_BYTES_MAX)
        return fault_set(f, ERR_TOO_BIG, "%s: %zu bytes are too many for a configuration file, the most is %d",
                         file_name, text.size, CONFIG_FILE_BYTES_MAX);
    struct text logical = {0}, key = {0}, value = {0};
    int line = 0, first = 0;
    enum err e = OK;
    while (!e && take_logical(&text, &logical, &line, &first)) {
        struct str raw_key, raw_value;
        split_pair((struct str){logical.data ? logical.data : "", logical.size}, &raw_key, &raw_value);
        if (!unescape(&key, raw_key) || !unescape(&value, raw_value))
            e = fault_set(f, ERR_INVALID, "%s:%d: Malformed \\uxxxx encoding", file_name, first);
        else if (memchr(logical.data ? logical.data : "", 0, logical.size) ||
                 (key.size && memchr(key.data, 0, key.size)) || (value.size && memchr(value.data, 0, value.size)))
            e = fault_set(f, ERR_INVALID, "%s:%d: a zero byte cannot be part of a key or a value", file_name, first);
        else if (key.size == 0)
            e = fault_set(f, ERR_INVALID, "%s:%d: there is no key before the value", file_name, first);
        else
            config_map_set_at(m, (struct str){key.data, key.size},
                              (struct str){value.size ? value.data : "", value.size}, first);
    }
    mem_free(logical.data);
    mem_free(key.data);
    mem_free(value.data);
    return e;
}
