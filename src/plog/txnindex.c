/* txnindex.c: entries of a version and four numbers, appended in the order in which transactions end. */
#include "plog/txnindex.h"

#include "base/endian.h"
#include "base/mem.h"

enum {
    ENTRY_AT_VERSION = 0,
    ENTRY_AT_PRODUCER_ID = 2,
    ENTRY_AT_FIRST_OFFSET = 10,
    ENTRY_AT_LAST_OFFSET = 18,
    ENTRY_AT_LAST_STABLE_OFFSET = 26,
    ENTRY_VERSION = 0,
    ENTRIES_A_READ = 128
};
_Static_assert(ENTRY_AT_LAST_STABLE_OFFSET + sizeof(int64_t) == TXNINDEX_ENTRY_SIZE, "transaction index entry");

enum err txnindex_open(struct txnindex *ti, struct fs *fs, const char *path)
{
    *ti = (struct txnindex){.fs = fs};
    struct file *file = NULL;
    int64_t size = 0;
    enum err e = fs_open(fs, path, FS_READ | FS_WRITE, &file);
    if (e && e != ERR_NOT_FOUND) return e;
    if (file) {
        e = file_size(file, &size);
        int64_t whole = size - size % TXNINDEX_ENTRY_SIZE;
        if (!e && whole != size) e = file_truncate(file, whole);
        size = whole;
        if (e) {
            file_unref(file);
            return e;
        }
    }
    *ti = (struct txnindex){.fs = fs, .path = mem_strdup(path), .file = file, .size = size};
    return OK;
}

void txnindex_close(struct txnindex *ti)
{
    file_unref(ti->file);
    mem_free(ti->path);
    *ti = (struct txnindex){0};
}

void txnindex_set_path(struct txnindex *ti, const char *path)
{
    mem_free(ti->path);
    ti->path = mem_strdup(path);
}

enum err txnindex_append(struct txnindex *ti, const struct aborted_txn *txn)
{
    if (!ti->file) {
        enum err e = fs_open(ti->fs, ti->path, FS_READ | FS_WRITE | FS_CREATE, &ti->file);
        if (e) return e;
    }
    uint8_t entry[TXNINDEX_ENTRY_SIZE];
    put_be16(entry + ENTRY_AT_VERSION, ENTRY_VERSION);
    put_be64(entry + ENTRY_AT_PRODUCER_ID, (uint64_t)txn->producer_id);
    put_be64(entry + ENTRY_AT_FIRST_OFFSET, (uint64_t)txn->first_offset);
    put_be64(entry + ENTRY_AT_LAST_OFFSET, (uint64_t)txn->last_offset);
    put_be64(entry + ENTRY_AT_LAST_STABLE_OFFSET, (uint64_t)txn->last_stable_offset);
    enum err e = file_pwrite(ti->file, entry, sizeof entry, ti->size);
    if (e) return e;
    ti->size += TXNINDEX_ENTRY_SIZE;
    return OK;
}

enum err txnindex_flush(struct txnindex *ti)
{
    return ti->file ? file_sync(ti->file) : OK;
}

/* Reads entries from the start until `each` (which is told where each lies) returns false, or to the end. */
static enum err walk(struct file *file, int64_t size, bool nowait, txnindex_each_fn each, void *arg)
{
    uint8_t data[ENTRIES_A_READ * TXNINDEX_ENTRY_SIZE];
    for (int64_t pos = 0; pos < size;) {
        size_t want = (size_t)MIN((int64_t)sizeof data, size - pos), got;
        enum err e = nowait ? file_pread_nowait(file, data, want, pos, &got) : file_pread(file, data, want, pos, &got);
        if (e) return e;
        if (got < want) return ERR_CORRUPT; /* somebody cut the file */
        for (const uint8_t *p = data; p < data + got; p += TXNINDEX_ENTRY_SIZE, pos += TXNINDEX_ENTRY_SIZE) {
            if (get_be16(p + ENTRY_AT_VERSION) != ENTRY_VERSION) return ERR_CORRUPT;
            struct aborted_txn txn = {
                .producer_id = (int64_t)get_be64(p + ENTRY_AT_PRODUCER_ID),
                .first_offset = (int64_t)get_be64(p + ENTRY_AT_FIRST_OFFSET),
                .last_offset = (int64_t)get_be64(p + ENTRY_AT_LAST_OFFSET),
                .last_stable_offset = (int64_t)get_be64(p + ENTRY_AT_LAST_STABLE_OFFSET),
            };
            if (!each(arg, &txn, pos)) return OK;
        }
    }
    return OK;
}

enum err txnindex_walk(struct file *file, int64_t size, txnindex_each_fn each, void *arg)
{
    return walk(file, size, false, each, arg);
}

struct cut {
    int64_t offset, at; /* at: the first entry that goes, -1: none */
};

static bool cut_look(void *arg, const struct aborted_txn *txn, int64_t at)
{
    struct cut *c = arg;
    if (txn->last_offset < c->offset) return true;
    c->at = at;
    return false;
}

enum err txnindex_truncate(struct txnindex *ti, int64_t offset)
{
    struct cut c = {.offset = offset, .at = -1};
    enum err e = walk(ti->file, ti->size, false, cut_look, &c);
    if (e || c.at < 0) return e;
    e = file_truncate(ti->file, c.at);
    if (e) return e;
    ti->size = c.at;
    return OK;
}

enum err txnindex_clear(struct txnindex *ti)
{
    enum err e = ti->file ? file_truncate(ti->file, 0) : OK;
    if (!e) ti->size = 0;
    return e;
}

struct check {
    int64_t last_offset;
    bool bad;
};

static bool check_look(void *arg, const struct aborted_txn *txn, int64_t at)
{
    (void)at;
    struct check *c = arg;
    c->bad = txn->last_offset <= c->last_offset || txn->first_offset > txn->last_offset;
    c->last_offset = txn->last_offset;
    return !c->bad;
}

enum err txnindex_check(struct txnindex *ti, int64_t base_offset)
{
    struct check c = {.last_offset = base_offset - 1};
    enum err e = walk(ti->file, ti->size, false, check_look, &c);
    return e ? e : c.bad ? ERR_CORRUPT : OK;
}

struct search {
    int64_t from, below;
    void (*each)(void *arg, const struct aborted_txn *txn);
    void *arg;
    bool complete;
};

static bool search_look(void *arg, const struct aborted_txn *txn, int64_t at)
{
    (void)at;
    struct search *s = arg;
    if (txn->last_offset >= s->from && txn->first_offset < s->below) s->each(s->arg, txn);
    s->complete = txn->last_stable_offset >= s->below;
    return !s->complete;
}

enum err txnindex_find(struct txnindex *ti, int64_t from, int64_t below, bool nowait,
                       void (*each)(void *arg, const struct aborted_txn *txn), void *arg, bool *complete)
{
    struct search s = {.from = from, .below = below, .each = each, .arg = arg};
    enum err e = walk(ti->file, ti->size, nowait, search_look, &s);
    if (!e) *complete = s.complete;
    return e;
}
