/* meta_properties.c: meta.properties, a Java properties file (java.util.Properties): comments, escapes, continued lines
 * when reading; Java's two comment lines and its order of keys when writing, so that Kafka's file comes back as it was.
 * Bytes above 127 are kept as they are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "plog/checkpoint.h"
#include "plog/textfile.h"

enum { FILE_SIZE_MAX = 65536 };

void meta_properties_init(struct meta_properties *mp)
{
    *mp = (struct meta_properties){.broker_id = -1};
}

void meta_properties_fini(struct meta_properties *mp)
{
    mem_free(mp->cluster_id);
    mem_free(mp->directory_id);
    for (size_t i = 0; i < mp->other_count; i++) {
        mem_free(mp->other[i].key);
        mem_free(mp->other[i].value);
    }
    mem_free(mp->other);
    meta_properties_init(mp);
}

/* ---- Text being built, of a size known beforehand */

struct text {
    char *data;
    size_t size, cap;
};

static void text_char(struct text *t, char c)
{
    ASSERT(t->size < t->cap);
    t->data[t->size++] = c;
}

static void text_utf8(struct text *t, uint32_t c)
{
    if (c < 0x80) {
        text_char(t, (char)c);
    } else if (c < 0x800) {
        text_char(t, (char)(0xc0 | c >> 6));
        text_char(t, (char)(0x80 | (c & 0x3f)));
    } else {
        text_char(t, (char)(0xe0 | c >> 12));
        text_char(t, (char)(0x80 | (c >> 6 & 0x3f)));
        text_char(t, (char)(0x80 | (c & 0x3f)));
    }
}

/* ---- Reading */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

static struct str trim_left(struct str s)
{
    while (s.size && is_blank(s.data[0])) {
        s.data++;
        s.size--;
    }
    return s;
}

/* An odd number of backslashes at its end continues a line. */
static bool is_continued(struct str line)
{
    size_t n = 0;
    while (n < line.size && line.data[line.size - 1 - n] == '\\') n++;
    return n % 2 == 1;
}

/* The next line that is neither blank nor a comment, with those that continue it; `joined` has room for the file. */
static bool logical_line(struct textfile *t, struct text *joined, struct str *out)
{
    struct str line;
    joined->size = 0;
    while (textfile_line(t, &line)) {
        line = trim_left(line);
        if (joined->size == 0 && (line.size == 0 || line.data[0] == '#' || line.data[0] == '!')) continue;
        bool more = is_continued(line);
        for (size_t i = 0; i < line.size - more; i++) text_char(joined, line.data[i]);
        if (!more) break;
    }
    *out = (struct str){joined->data, joined->size};
    return joined->size > 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Four hexadecimal digits at `p`; -1. */
static int32_t hex4(const char *p, size_t left)
{
    int32_t v = 0;
    if (left < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* A new string with its escapes resolved; NULL for a malformed \uXXXX. */
static char *unescape(struct str s)
{
    struct text t = {mem_alloc(s.size + 1), 0, s.size + 1};
    for (size_t i = 0; i < s.size; i++) {
        if (s.data[i] != '\\' || i + 1 == s.size) {
            text_char(&t, s.data[i]);
            continue;
        }
        char c = s.data[++i];
        int32_t code = c == 'u' ? hex4(s.data + i + 1, s.size - i - 1) : 0;
        if (code < 0 || (c == 'u' && code == 0)) {
            mem_free(t.data);
            return NULL;
        }
        switch (c) {
        case 'u':
            text_utf8(&t, (uint32_t)code);
            i += 4;
            break;
        case 't': text_char(&t, '\t'); break;
        case 'n': text_char(&t, '\n'); break;
        case 'r': text_char(&t, '\r'); break;
        case 'f': text_char(&t, '\f'); break;
        default: text_char(&t, c); break;
        }
    }
    text_char(&t, '\0');
    return t.data;
}

/* Key and value are separated by '=', ':' or blanks, none of them escaped. */
static void split(struct str line, struct str *key, struct str *value)
{
    size_t i = 0;
    while (i < line.size && line.data[i] != '=' && line.data[i] != ':' && !is_blank(line.data[i]))
        i += line.data[i] == '\\' ? 2 : 1;
    i = MIN(i, line.size);
    *key = (struct str){line.data, i};
    *value = trim_left((struct str){line.data + i, line.size - i});
    if (value->size && (value->data[0] == '=' || value->data[0] == ':'))
        *value = trim_left((struct str){value->data + 1, value->size - 1});
}

/* Takes over key and value; the last of two equal keys counts. */
static void set_property(struct meta_properties *mp, char *key, char *value)
{
    for (size_t i = 0; i < mp->other_count; i++) {
        if (strcmp(mp->other[i].key, key) != 0) continue;
        mem_free(mp->other[i].value);
        mp->other[i].value = value;
        mem_free(key);
        return;
    }
    mp->other = mem_grow(mp->other, &mp->other_cap, mp->other_count + 1, sizeof *mp->other);
    mp->other[mp->other_count++] = (struct meta_property){key, value};
}

/* Removes a property and gives its value to the caller; NULL when it is not there. */
static char *take_property(struct meta_properties *mp, const char *key)
{
    for (size_t i = 0; i < mp->other_count; i++) {
        if (strcmp(mp->other[i].key, key) != 0) continue;
        char *value = mp->other[i].value;
        mem_free(mp->other[i].key);
        memmove(mp->other + i, mp->other + i + 1, (mp->other_count - i - 1) * sizeof *mp->other);
        mp->other_count--;
        return value;
    }
    return NULL;
}

/* The same as a number; `otherwise` when it is not there. */
static bool take_number(struct meta_properties *mp, const char *key, int32_t otherwise, int32_t *out)
{
    char *value = take_property(mp, key);
    int64_t n = otherwise;
    bool ok = !value || textfile_number(str_of(value), INT32_MIN, INT32_MAX, &n);
    mem_free(value);
    *out = (int32_t)n;
    return ok;
}

static enum err interpret(struct meta_properties *mp, const char *path, struct fault *f)
{
    if (!take_number(mp, "version", 0, &mp->version))
        return fault_set(f, ERR_CORRUPT, "%s: version is no number.", path);
    if (mp->version != 0 && mp->version != 1)
        return fault_set(f, ERR_VERSION, "%s has version %d, known are 0 and 1.", path, mp->version);
    const char *id_key = mp->version == 0 ? "broker.id" : "node.id";
    if (!take_number(mp, id_key, -1, &mp->broker_id) || mp->broker_id < -1)
        return fault_set(f, ERR_CORRUPT, "%s: %s is not a broker's number.", path, id_key);
    mp->cluster_id = take_property(mp, "cluster.id");
    mp->directory_id = take_property(mp, "directory.id");
    struct uuid id;
    if (mp->directory_id && uuid_parse(&id, str_of(mp->directory_id)))
        return fault_set(f, ERR_CORRUPT, "%s: directory.id \"%s\" is not an id.", path, mp->directory_id);
    if (mp->version == 1 && (mp->broker_id < 0 || !mp->cluster_id))
        return fault_set(f, ERR_CORRUPT, "%s: version 1 needs node.id and cluster.id.", path);
    return OK;
}

enum err meta_properties_read(struct meta_properties *mp, struct fs *fs, const char *path, struct fault *f)
{
    struct textfile t;
    enum err e = textfile_open(&t, fs, path, FILE_SIZE_MAX, f);
    if (e) return e;
    struct text joined = {mem_alloc((size_t)(t.end - t.at)), 0, (size_t)(t.end - t.at)};
    struct str line;
    while (!e && logical_line(&t, &joined, &line)) {
        struct str key, value;
        split(line, &key, &value);
        char *k = unescape(key), *v = unescape(value);
        if (k && v) {
            set_property(mp, k, v);
        } else {
            mem_free(k);
            mem_free(v);
            e = textfile_fault(&t, f, "malformed \\u escape");
        }
    }
    if (!e) e = interpret(mp, path, f);
    mem_free(joined.data);
    textfile_close(&t);
    if (e) meta_properties_fini(mp);
    return e;
}

/* ---- Writing */

static void text_escaped(struct text *t, const char *s, bool is_key)
{
    static const char special[] = "=:#!\\";
    for (size_t i = 0; s[i]; i++) {
        static const char controls[] = "\t\n\r\f", names[] = "tnrf";
        const char *control = strchr(controls, s[i]);
        if (control || strchr(special, s[i]) || (s[i] == ' ' && (is_key || i == 0))) text_char(t, '\\');
        text_char(t, control ? names[control - controls] : s[i]);
    }
}

static void text_property(struct text *t, const char *key, const char *value)
{
    text_escaped(t, key, true);
    text_char(t, '=');
    text_escaped(t, value, false);
    text_char(t, '\n');
}

/* As Java's Date prints it, in UTC. */
static void text_date(struct text *t, int64_t now_ms)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    int n = snprintf(t->data + t->size, t->cap - t->size, "#\n#%s %s %02d %02d:%02d:%02d UTC %d\n", days[tm.tm_wday],
                     months[tm.tm_mon], tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_year + 1900);
    t->size += (size_t)n;
}

enum err meta_properties_write(const struct meta_properties *mp, struct fs *fs, const char *path, int64_t now_ms)
{
    char version[16], id[16];
    snprintf(version, sizeof version, "%" PRId32, mp->version);
    snprintf(id, sizeof id, "%" PRId32, mp->broker_id);
    /* The order in which Java's hash table gives them. */
    const struct {
        const char *key, *value;
    } known[] = {
        {"node.id", mp->version == 1 ? id : NULL},
        {"broker.id", mp->version == 0 && mp->broker_id >= 0 ? id : NULL},
        {"directory.id", mp->directory_id},
        {"version", version},
        {"cluster.id", mp->cluster_id},
    };
    size_t cap = 128; /* comments */
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (known[i].value) cap += 2 * (strlen(known[i].key) + strlen(known[i].value)) + 2;
    for (size_t i = 0; i < mp->other_count; i++) cap += 2 * (strlen(mp->other[i].key) + strlen(mp->other[i].value)) + 2;

    struct text t = {mem_alloc(cap), 0, cap};
    text_date(&t, now_ms);
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        if (known[i].value) text_property(&t, known[i].key, known[i].value);
    for (size_t i = 0; i < mp->other_count; i++) text_property(&t, mp->other[i].key, mp->other[i].value);
    enum err e = fs_replace(fs, path, t.data, t.size);
    mem_free(t.data);
    return e;
}
