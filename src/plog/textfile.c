/* textfile.c: lines, fields and numbers. */
#include "plog/textfile.h"

#include <string.h>

#include "base/mem.h"

enum { NUMBER_DIGITS_MAX = 19 };

enum err textfile_open(struct textfile *t, struct fs *fs, const char *path, size_t size_max, struct fault *f)
{
    char *data;
    size_t size;
    enum err e = fs_read_whole(fs, path, size_max, &data, &size);
    if (e == ERR_NOT_FOUND) return e;
    if (e == ERR_TOO_BIG) return fault_set(f, ERR_CORRUPT, "%s is larger than %zu bytes.", path, size_max);
    if (e) return fault_set(f, e, "Cannot read %s: %s.", path, err_text(e));
    textfile_of(t, path, data, size);
    t->data = data;
    return OK;
}

void textfile_of(struct textfile *t, const char *path, const char *text, size_t size)
{
    *t = (struct textfile){.path = path, .at = text, .end = text + size};
}

void textfile_close(struct textfile *t)
{
    mem_free(t->data);
    *t = (struct textfile){0};
}

bool textfile_line(struct textfile *t, struct str *line)
{
    if (t->at == t->end) return false;
    const char *newline = memchr(t->at, '\n', (size_t)(t->end - t->at)), *end = newline ? newline : t->end;
    *line = (struct str){t->at, (size_t)(end - t->at)};
    if (line->size && line->data[line->size - 1] == '\r') line->size--;
    t->at = newline ? newline + 1 : t->end;
    t->line++;
    return true;
}

struct str textfile_field(struct str *line)
{
    const char *space = memchr(line->data, ' ', line->size);
    size_t size = space ? (size_t)(space - line->data) : line->size, taken = space ? size + 1 : size;
    struct str field = {line->data, size};
    line->data += taken;
    line->size -= taken;
    return field;
}

bool textfile_number(struct str text, int64_t min, int64_t max, int64_t *out)
{
    bool negative = text.size && text.data[0] == '-';
    size_t digits = text.size - negative;
    if (digits == 0 || digits > NUMBER_DIGITS_MAX) return false;
    uint64_t v = 0; /* 19 digits fit */
    for (size_t i = negative; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        v = v * 10 + (uint64_t)(text.data[i] - '0');
    }
    if (v > INT64_MAX) return false;
    int64_t n = negative ? -(int64_t)v : (int64_t)v;
    if (n < min || n > max) return false;
    *out = n;
    return true;
}

enum err textfile_fault(const struct textfile *t, struct fault *f, const char *reason)
{
    return fault_set(f, ERR_CORRUPT, "%s, line %d: %s.", t->path, t->line, reason);
}

enum err textfile_checkpoint_head(struct textfile *t, int64_t *count, struct fault *f)
{
    struct str line;
    int64_t version;
    *count = -1;
    if (!textfile_line(t, &line)) return OK;
    if (!textfile_number(line, 0, INT32_MAX, &version)) return textfile_fault(t, f, "expected a version");
    if (version != 0) return fault_set(f, ERR_VERSION, "%s has version %d, known is 0.", t->path, (int)version);
    if (!textfile_line(t, &line)) return OK; /* Kafka takes this for empty too */
    if (!textfile_number(line, 0, INT32_MAX, count)) return textfile_fault(t, f, "expected the number of lines");
    return OK;
}
