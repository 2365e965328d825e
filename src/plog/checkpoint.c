/* checkpoint.c: offsets of many partitions, a partition's topic id, and the mark of a clean shutdown. */
#include "plog/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/textfile.h"

enum {
    TOPIC_SIZE_MAX = 249,
    LINE_REST_MAX = 36, /* partition and offset with their separators */
    SMALL_FILE_MAX = 4096
};
static const size_t CHECKPOINT_SIZE_MAX = (size_t)256 << 20;

void checkpoint_init(struct checkpoint *cp)
{
    *cp = (struct checkpoint){0};
    arena_init(&cp->topics, SIZE_MAX);
}

void checkpoint_fini(struct checkpoint *cp)
{
    mem_free(cp->rows);
    mem_free(cp->by_name);
    arena_fini(&cp->topics);
    *cp = (struct checkpoint){0};
}

void checkpoint_set(struct checkpoint *cp, struct str topic, int32_t partition, int64_t offset)
{
    cp->rows = mem_grow(cp->rows, &cp->cap, cp->count + 1, sizeof *cp->rows);
    cp->rows[cp->count++] = (struct checkpoint_row){arena_str(&cp->topics, topic), partition, offset};
    mem_free(cp->by_name);
    cp->by_name = NULL;
}

static int compare_name(const struct checkpoint_row *row, struct str topic, int32_t partition)
{
    int c = str_compare(row->topic, topic);
    return c ? c : (row->partition > partition) - (row->partition < partition);
}

/* By topic, partition, position. */
static int compare_rows(const void *a, const void *b, void *arg)
{
    const struct checkpoint *cp = arg;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    int c = compare_name(&cp->rows[x], cp->rows[y].topic, cp->rows[y].partition);
    return c ? c : (x > y) - (x < y);
}

static void sort(struct checkpoint *cp)
{
    cp->by_name = mem_alloc(cp->count * sizeof *cp->by_name);
    for (size_t i = 0; i < cp->count; i++) cp->by_name[i] = i;
    qsort_r(cp->by_name, cp->count, sizeof *cp->by_name, compare_rows, cp);
}

int64_t checkpoint_get(struct checkpoint *cp, struct str topic, int32_t partition, int64_t otherwise)
{
    if (!cp->by_name) sort(cp);
    size_t low = 0, high = cp->count; /* how many rows are at or before the name: the last of them is it */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_name(&cp->rows[cp->by_name[middle]], topic, partition) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct checkpoint_row *row = low ? &cp->rows[cp->by_name[low - 1]] : NULL;
    return row && compare_name(row, topic, partition) == 0 ? row->offset : otherwise;
}

static enum err parse(struct checkpoint *cp, struct textfile *t, struct fault *f)
{
    int64_t count, partition, offset;
    size_t before = cp->count;
    struct str line;
    enum err e = textfile_checkpoint_head(t, &count, f);
    if (e || count < 0) return e;
    while (textfile_line(t, &line)) {
        struct str topic = textfile_field(&line), number = textfile_field(&line);
        if (topic.size == 0 || topic.size > TOPIC_SIZE_MAX || !textfile_number(number, 0, INT32_MAX, &partition) ||
            !textfile_number(line, -1, INT64_MAX, &offset))
            return textfile_fault(t, f, "expected a topic, a partition and an offset");
        checkpoint_set(cp, topic, (int32_t)partition, offset);
    }
    return (int64_t)(cp->count - before) == count ? OK
                                                  : textfile_fault(t, f, "not as many lines as the second one says");
}

enum err checkpoint_read(struct checkpoint *cp, struct fs *fs, const char *path, struct fault *f)
{
    struct textfile t;
    enum err e = textfile_open(&t, fs, path, CHECKPOINT_SIZE_MAX, f);
    if (e) return e == ERR_NOT_FOUND ? OK : e;
    e = parse(cp, &t, f);
    textfile_close(&t);
    return e;
}

enum err checkpoint_write(const struct checkpoint *cp, struct fs *fs, const char *path, struct fault *f)
{
    size_t cap = LINE_REST_MAX, at;
    for (size_t i = 0; i < cp->count; i++) cap += cp->rows[i].topic.size + LINE_REST_MAX;
    char *text = mem_alloc(cap);
    at = (size_t)snprintf(text, cap, "0\n%zu\n", cp->count);
    for (size_t i = 0; i < cp->count; i++) {
        const struct checkpoint_row *row = &cp->rows[i];
        at += (size_t)snprintf(text + at, cap - at, "%.*s %" PRId32 " %" PRId64 "\n", STR_ARG(row->topic),
                               row->partition, row->offset);
    }
    ASSERT(at < cap);
    enum err e = fs_replace(fs, path, text, at);
    mem_free(text);
    return e ? fault_set(f, e, "Cannot write %s: %s.", path, err_text(e)) : OK;
}

/* ---- partition.metadata: "version: 0", "topic_id: ..." */

/* What follows "key:" and blanks on the next line. */
static bool next_value(struct textfile *t, const char *key, struct str *value)
{
    size_t size = strlen(key);
    if (!textfile_line(t, value) || value->size <= size || memcmp(value->data, key, size) != 0) return false;
    if (value->data[size++] != ':') return false;
    while (size < value->size && value->data[size] == ' ') size++;
    value->data += size;
    value->size -= size;
    return true;
}

enum err partition_metadata_read(struct uuid *topic_id, struct fs *fs, const char *path, struct fault *f)
{
    struct textfile t;
    enum err e = textfile_open(&t, fs, path, SMALL_FILE_MAX, f);
    if (e) return e;
    struct str value;
    struct uuid id;
    int64_t version; /* later ones only add lines */
    if (!next_value(&t, "version", &value) || !textfile_number(value, 0, INT32_MAX, &version))
        e = textfile_fault(&t, f, "expected \"version: 0\"");
    else if (!next_value(&t, "topic_id", &value) || uuid_parse(&id, value) || uuid_is_zero(id))
        e = textfile_fault(&t, f, "expected \"topic_id: \" and a topic id");
    else
        *topic_id = id;
    textfile_close(&t);
    return e;
}

enum err partition_metadata_write(struct uuid topic_id, struct fs *fs, const char *path)
{
    char id[UUID_TEXT_SIZE + 1], text[64];
    uuid_format(topic_id, id);
    int size = snprintf(text, sizeof text, "version: 0\ntopic_id: %s", id);
    return fs_replace(fs, path, text, (size_t)size);
}

/* ---- .kafka_cleanshutdown: {"version":0,"brokerEpoch":N}, once an empty file */

enum err clean_shutdown_read(int64_t *broker_epoch, struct fs *fs, const char *path)
{
    static const char key[] = "\"brokerEpoch\":";
    char *text;
    size_t size;
    enum err e = fs_read_whole(fs, path, SMALL_FILE_MAX, &text, &size);
    if (e && e != ERR_TOO_BIG) return e;
    int64_t epoch = -1;
    if (!e) {
        /* That the file is there is what counts; whatever else it says leaves the epoch unknown, as in Kafka. */
        const char *at = strstr(text, key);
        if (at) at += sizeof key - 1;
        size_t digits = at ? strspn(at, "-0123456789") : 0;
        if (!textfile_number((struct str){at, digits}, -1, INT64_MAX, &epoch)) epoch = -1;
        mem_free(text);
    }
    *broker_epoch = epoch;
    return OK;
}

enum err clean_shutdown_write(int64_t broker_epoch, struct fs *fs, const char *path)
{
    char text[64];
    int size = snprintf(text, sizeof text, "{\"version\":0,\"brokerEpoch\":%" PRId64 "}", broker_epoch);
    return fs_replace(fs, path, text, (size_t)size);
}
