/* groups_csv.c: reset plans as CSV, which Kafka's tool reads and whose own files we read; see groups_reset.h.
 *
 * Kafka's tool writes with Jackson, which quotes a text of more than 24 characters, or with one below '-': so do we. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/groups_reset.h"
#include "os/fs.h"

enum { PLAIN_MAX = 24, FILE_BYTES_MAX = 256 << 20, FIELDS_MAX = 4 };

/* ---- writing ---- */

static bool needs_quotes(struct str text)
{
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] < '-') return true;
    return text.size > PLAIN_MAX;
}

static void print_field(FILE *out, struct str text)
{
    if (!needs_quotes(text)) {
        fprintf(out, "%.*s", STR_ARG(text));
        return;
    }
    fputc('"', out);
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '"') fputc('"', out);
        fputc(text.data[i], out);
    }
    fputc('"', out);
}

void reset_plan_print_csv(FILE *out, const struct reset_plan *plan, bool with_group)
{
    for (int32_t i = 0; i < plan->row_count; i++) {
        if (with_group) {
            print_field(out, plan->group);
            fputc(',', out);
        }
        print_field(out, plan->rows[i].of.topic);
        fprintf(out, ",%" PRId32 ",%" PRId64 "\n", plan->rows[i].of.partition, plan->rows[i].offset);
    }
}

/* ---- reading ---- */

struct csv_line {
    struct str fields[FIELDS_MAX];
    int count;
};

/* Takes one field and the comma behind it, if there is one: *more.  False: a quote has no end. */
static bool take_field(const char **at, const char *end, struct str *out, bool *more, struct arena *a)
{
    const char *p = *at;
    if (p < end && *p == '"') {
        char *text = arena_alloc(a, (size_t)(end - p));
        size_t n = 0;
        for (p++;; p++) {
            if (p == end) return false;
            if (*p == '"' && (p + 1 == end || p[1] != '"')) break;
            text[n++] = *p;
            p += *p == '"';
        }
        *out = (struct str){text, n};
        p++;
    } else {
        while (p < end && *p != ',') p++;
        *out = (struct str){*at, (size_t)(p - *at)};
    }
    *more = p < end;
    *at = p + *more;
    return p == end || *p == ',';
}

static bool split_line(struct str line, struct csv_line *out, struct arena *a)
{
    const char *at = line.data, *end = line.data + line.size;
    bool more = true;
    for (out->count = 0; more; out->count++)
        if (out->count == FIELDS_MAX || !take_field(&at, end, &out->fields[out->count], &more, a)) return false;
    return true;
}

static bool parse_number(struct str text, int64_t max, int64_t *out)
{
    while (text.size > 0 && text.data[0] == ' ') text = (struct str){text.data + 1, text.size - 1};
    while (text.size > 0 && text.data[text.size - 1] == ' ') text.size--;
    bool negative = text.size > 0 && text.data[0] == '-';
    if (negative) text = (struct str){text.data + 1, text.size - 1};
    int64_t n = 0;
    for (size_t i = 0; i < text.size; i++) {
        int digit = text.data[i] - '0';
        if (digit < 0 || digit > 9 || n > (max - digit) / 10) return false;
        n = n * 10 + digit;
    }
    *out = negative ? -n : n;
    return text.size > 0;
}

struct csv_row {
    struct str group;
    struct reset_row row;
};

/* Groups apart, partitions sorted; of two lines about one partition the later one holds. */
static int compare_rows(const void *a, const void *b)
{
    const struct csv_row *x = *(const struct csv_row *const *)a, *y = *(const struct csv_row *const *)b;
    int c = str_compare(x->group, y->group);
    if (!c) c = topic_partition_compare(&x->row.of, &y->row.of);
    return c ? c : (x > y) - (x < y);
}

static void make_plans(const struct csv_row *rows, size_t count, struct reset_plan **out, int32_t *out_count,
                       struct arena *a)
{
    const struct csv_row **sorted = arena_array(a, const struct csv_row *, count);
    for (size_t i = 0; i < count; i++) sorted[i] = &rows[i];
    qsort(sorted, count, sizeof(struct csv_row *), compare_rows);
    struct reset_plan *plans = arena_array(a, struct reset_plan, count), *plan = NULL;
    struct reset_row *places = arena_array(a, struct reset_row, count);
    *out_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!plan || !str_equal(plan->group, sorted[i]->group)) {
            plan = &plans[(*out_count)++];
            plan->group = sorted[i]->group;
            plan->rows = &places[i];
        }
        struct reset_row *last = plan->row_count ? &plan->rows[plan->row_count - 1] : NULL;
        if (last && topic_partition_compare(&last->of, &sorted[i]->row.of) == 0)
            *last = sorted[i]->row;
        else
            plan->rows[plan->row_count++] = sorted[i]->row;
    }
    *out = plans;
}

static bool take_line(const char *path, int number, struct str line, struct str single, struct csv_row *out,
                      struct arena *a, struct failure *f)
{
    struct csv_line csv;
    int64_t partition, offset;
    bool ok = split_line(line, &csv, a);
    int extra = csv.count - 3;
    ok = ok && (extra == 1 || (extra == 0 && !str_is_null(single))) && csv.fields[extra].size > 0;
    ok = ok && parse_number(csv.fields[extra + 1], INT32_MAX, &partition) && partition >= 0;
    ok = ok && parse_number(csv.fields[extra + 2], INT64_MAX, &offset);
    if (!ok)
        return failure_set(f, ERR_INVALID, "%s, line %d: not %stopic,partition,offset.", path, number,
                           str_is_null(single) ? "group," : "");
    *out = (struct csv_row){.group = extra ? csv.fields[0] : single,
                            .row = {.of = {csv.fields[extra], (int32_t)partition}, .asked = offset}};
    return true;
}

bool reset_plans_read(const char *path, struct str single, struct reset_plan **out, int32_t *out_count, struct arena *a,
                      struct failure *f)
{
    char *data;
    struct str text;
    enum err e = fs_read_whole(fs_system(), path, FILE_BYTES_MAX, &data, &text.size);
    if (e) return failure_set(f, ERR_INVALID, "The file %s cannot be read: %s.", path, err_text(e));
    text.data = data;
    text = arena_str(a, text);
    mem_free(data);
    size_t line_count = 1;
    for (size_t i = 0; i < text.size; i++) line_count += text.data[i] == '\n';
    struct csv_row *rows = arena_array(a, struct csv_row, line_count);
    size_t count = 0;
    int number = 0;
    for (const char *at = text.data, *end = text.data + text.size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        struct str line = {at, (size_t)((newline ? newline : end) - at)};
        at += line.size + 1;
        number++;
        if (line.size > 0 && line.data[line.size - 1] == '\r') line.size--;
        if (line.size == 0) continue;
        if (!take_line(path, number, line, single, &rows[count++], a, f)) return false;
    }
    make_plans(rows, count, out, out_count, a);
    return true;
}
