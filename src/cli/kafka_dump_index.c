/* kafka_dump_index.c: indexes as Kafka's tool prints and checks them, against the log beside them. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/kafka_dump.h"
#include "plog/index.h"
#include "plog/scan.h"
#include "plog/segment.h"

/* An index and what it is checked against. */
struct checked {
    struct kafka_dump *d;
    const char *path;
    int64_t base_offset;
    struct file *log, *index, *offsets; /* offsets: for a time index, to find places with */
    int64_t log_size;
    uint32_t offsets_count;
    int64_t before_ms; /* the timestamp of the entry before */
    struct index_entry first, last;
};

static struct file *open_sibling(const char *path, int64_t base_offset, const char *suffix, enum err *e)
{
    char *dir = path_dir(path), *sibling = segment_path(dir, base_offset, suffix);
    struct file *file = NULL;
    *e = fs_open(fs_system(), sibling, FS_READ, &file);
    mem_free(sibling);
    mem_free(dir);
    return *e ? NULL : file;
}

static bool note_ends(void *arg, uint32_t at, struct index_entry entry)
{
    struct checked *c = arg;
    if (at == 0) c->first = entry;
    c->last = entry;
    return true;
}

/* The check that Kafka makes at a start: whole entries, and an end that does not lie before the beginning. */
static void sanity_check(struct checked *c, enum index_kind kind, uint32_t count, int64_t torn_bytes)
{
    enum err e = index_walk(c->index, kind, count, note_ends, c);
    bool backwards = kind == INDEX_OFFSETS ? c->last.key < 0 : c->last.key < c->first.key || c->last.value < 0;
    if (e)
        kafka_dump_failed(c->d, c->path, "it cannot be read: %s", err_text(e));
    else if (torn_bytes > 0)
        kafka_dump_failed(c->d, c->path, "it fails the sanity check: its size is no multiple of an entry's");
    else if (count > 0 && backwards)
        kafka_dump_failed(c->d, c->path, "it fails the sanity check: its last entry lies before its first");
    else
        printf("%s passed sanity check.\n", c->path);
}

/* The batch at `pos`, of at most message_max bytes. */
static enum err batch_at(const struct checked *c, int64_t pos, struct batch_info *out)
{
    struct scan sc;
    if (pos < 0 || pos > c->log_size) return ERR_CORRUPT;
    scan_init(&sc, c->log, pos, MIN(c->log_size, pos + c->d->message_max), false);
    enum err e = scan_header(&sc, out);
    scan_fini(&sc);
    return e;
}

/* Zeros mean the rest of a file that Kafka made larger than it needed. */
static bool is_unused(uint32_t at, int64_t relative_offset)
{
    return at > 0 && relative_offset == 0;
}

static bool print_offset(void *arg, uint32_t at, struct index_entry entry)
{
    struct checked *c = arg;
    if (is_unused(at, entry.key)) return false;
    struct batch_info b;
    enum err e = batch_at(c, entry.value, &b);
    if (e == ERR_NOT_FOUND && c->log_size == 0 && entry.key == 0 && entry.value == 0) {
        printf("%s is empty.\n", c->path); /* made larger than needed, for a log without records */
        return false;
    }
    if (e) {
        kafka_dump_failed(c->d, c->path, "entry %u leads to position %" PRId64 ", where no batch can be read", at,
                          entry.value);
        return false;
    }
    if (batch_last_offset(&b) != c->base_offset + entry.key)
        mismatch_add(&c->d->offsets, c->path, c->base_offset + entry.key, batch_last_offset(&b));
    if (!c->d->verify_only)
        printf("offset: %" PRId64 " position: %" PRId64 "\n", c->base_offset + entry.key, entry.value);
    return true;
}

static bool open_both(struct checked *c, struct kafka_dump *d, const char *path, int64_t base_offset)
{
    *c = (struct checked){.d = d, .path = path, .base_offset = base_offset, .before_ms = -1};
    enum err e = fs_open(fs_system(), path, FS_READ, &c->index);
    if (e) {
        kafka_dump_failed(d, path, "it cannot be opened: %s", err_text(e));
        return false;
    }
    c->log = open_sibling(path, base_offset, SEGMENT_LOG, &e);
    if (!e) e = file_size(c->log, &c->log_size);
    if (e) kafka_dump_failed(d, path, "the .log file beside it cannot be read: %s", err_text(e));
    return e == OK;
}

static void close_all(struct checked *c)
{
    file_unref(c->log);
    file_unref(c->index);
    file_unref(c->offsets);
}

/* All entries that a file has room for: Kafka looks at the zeros too. */
static enum err entries_in(struct file *file, enum index_kind kind, uint32_t *count, int64_t *torn_bytes)
{
    struct index_extent extent;
    enum err e = index_measure(file, kind, &extent);
    if (e) return e;
    *count = extent.used + extent.zeros;
    *torn_bytes = extent.torn_bytes;
    return OK;
}

void kafka_dump_index(struct kafka_dump *d, const char *path, int64_t base_offset)
{
    struct checked c;
    uint32_t count;
    int64_t torn;
    if (open_both(&c, d, path, base_offset)) {
        enum err e = entries_in(c.index, INDEX_OFFSETS, &count, &torn);
        if (!e && count == 0)
            printf("%s is empty.\n", path);
        else if (!e && d->sanity_only)
            sanity_check(&c, INDEX_OFFSETS, count, torn);
        else if (!e)
            e = index_walk(c.index, INDEX_OFFSETS, count, print_offset, &c);
        if (e) kafka_dump_failed(d, path, "it cannot be read: %s", err_text(e));
    }
    close_all(&c);
}

/* The batch that holds the entry's offset is to be the one that ends there, and to have its timestamp.  The offset
 * index, if there is one, says where to begin. */
static enum err find_batch(const struct checked *c, int64_t relative, struct batch_info *out)
{
    struct index_entry entry = {0};
    struct index_view view = {c->offsets, c->offsets_count, INDEX_OFFSETS};
    enum err e = c->offsets_count > 0 ? index_find(view, INDEX_BY_KEY, relative, false, &entry) : OK;
    if (e && e != ERR_NOT_FOUND) return e;
    struct scan sc;
    scan_init(&sc, c->log, e || entry.value < 0 ? 0 : entry.value, c->log_size, false);
    while (!(e = scan_header(&sc, out)) && batch_last_offset(out) < c->base_offset + relative) {
    }
    scan_fini(&sc);
    return e;
}

static bool print_time(void *arg, uint32_t at, struct index_entry entry)
{
    struct checked *c = arg;
    if (is_unused(at, entry.value)) return false;
    int64_t offset = c->base_offset + entry.value;
    struct batch_info b;
    enum err e = find_batch(c, entry.value, &b);
    if (e || batch_last_offset(&b) != offset) {
        mismatch_add(&c->d->nowhere, c->path, offset, e ? -1 : batch_last_offset(&b));
    } else {
        if (b.max_timestamp != entry.key) mismatch_add(&c->d->times, c->path, entry.key, b.max_timestamp);
        if (c->before_ms >= entry.key) mismatch_add(&c->d->unordered, c->path, entry.key, c->before_ms);
    }
    if (!c->d->verify_only) printf("timestamp: %" PRId64 " offset: %" PRId64 "\n", entry.key, offset);
    c->before_ms = entry.key;
    return true;
}

void kafka_dump_time_index(struct kafka_dump *d, const char *path, int64_t base_offset)
{
    struct checked c;
    uint32_t count;
    int64_t torn;
    if (open_both(&c, d, path, base_offset)) {
        enum err e, none;
        struct index_extent extent;
        c.offsets = open_sibling(path, base_offset, SEGMENT_OFFSETS, &none);
        if (c.offsets && index_measure(c.offsets, INDEX_OFFSETS, &extent) == OK) c.offsets_count = extent.used;
        e = entries_in(c.index, INDEX_TIMES, &count, &torn);
        if (!e && d->sanity_only)
            sanity_check(&c, INDEX_TIMES, count, torn);
        else if (!e)
            e = index_walk(c.index, INDEX_TIMES, count, print_time, &c);
        if (e) kafka_dump_failed(d, path, "it cannot be read: %s", err_text(e));
    }
    close_all(&c);
}
