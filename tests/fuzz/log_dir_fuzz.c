/* log_dir_fuzz: bytes as the files of a partition's directory, each read by who reads it: indexes, transaction index,
 * snapshot, epochs, checkpoints, metadata, the mark of a clean stop; and verify and explain over all of them at once.
 * The input is cut into files by the 16-bit sizes that it begins with.
 * What must hold: nothing is read past a file's end, and what verify gives for a cut lies inside the segment. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/endian.h"
#include "base/mem.h"
#include "plog/checkpoint.h"
#include "plog/epochs.h"
#include "plog/explain.h"
#include "plog/index.h"
#include "plog/producers.h"
#include "plog/txnindex.h"
#include "plog/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- A directory in memory, read only */

static const char *const names[] = {
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000004.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "00000000000000000004.log",
    "recovery-point-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
};
enum { NAME_COUNT = sizeof names / sizeof names[0], LISTED = 8 };

static struct memory_file {
    struct file file;
    const uint8_t *data;
    size_t size;
} files[NAME_COUNT];

static enum err memory_pread(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    const struct memory_file *m = CONTAINER_OF(f, struct memory_file, file);
    ASSERT(pos >= 0);
    *got = pos < (int64_t)m->size ? MIN(size, m->size - (size_t)pos) : 0;
    if (*got) memcpy(out, m->data + pos, *got);
    return OK;
}

static enum err memory_size(struct file *f, int64_t *out)
{
    *out = (int64_t)CONTAINER_OF(f, struct memory_file, file)->size;
    return OK;
}

static void memory_close(struct file *f)
{
    (void)f;
}

static const struct file_ops file_ops = {.pread = memory_pread, .size = memory_size, .close = memory_close};

static struct memory_file *find(const char *path)
{
    const char *slash = strrchr(path, '/');
    for (int i = 0; i < NAME_COUNT; i++)
        if (strcmp(slash + 1, names[i]) == 0) return &files[i];
    return NULL;
}

static enum err memory_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    (void)fs;
    ASSERT(flags == FS_READ); /* whoever looks changes nothing */
    struct memory_file *m = find(path);
    if (!m) return ERR_NOT_FOUND;
    atomic_store(&m->file.refs, 1);
    *out = &m->file;
    return OK;
}

static enum err memory_stat(struct fs *fs, const char *path, struct fs_stat *out)
{
    (void)fs;
    struct memory_file *m = find(path);
    if (!m) return ERR_NOT_FOUND;
    *out = (struct fs_stat){.size = (int64_t)m->size};
    return OK;
}

static enum err memory_list(struct fs *fs, const char *path, fs_list_fn each, void *arg)
{
    (void)fs;
    (void)path;
    for (int i = 0; i < LISTED; i++)
        if (i != 7 || files[i].size > 0) each(arg, names[i], false);
    return OK;
}

static const struct fs_ops fs_ops = {.open = memory_open, .stat = memory_stat, .list = memory_list};
static struct fs fs = {&fs_ops};

/* ---- The readers */

static void found(void *arg, const struct verify_finding *f)
{
    (void)arg;
    ASSERT(f->file && f->text[0] && verify_kind_id(f->kind) && verify_kind_advice(f->kind));
}

static void check_all(bool live)
{
    struct plog_verify_result res;
    const struct plog_verify_options opt = {
        .fs = &fs, .dir = "d", .log_start = -1, .deep = false, .live = live, .found = found};
    ASSERT(plog_verify(&res, &opt) == OK);
    ASSERT(res.end >= res.first);
    if (res.cut_base >= 0) ASSERT(res.cut_pos >= 0 && res.cut_pos <= (int64_t)files[res.cut_base ? 7 : 0].size);
    struct log_explained le;
    const struct plog_explain_options explain = {
        .fs = &fs,
        .dir = "d",
        .log_start = -1,
        .below = -1,
        .now_ms = 1,
        .config = {.cleanup_delete = true, .retention_ms = 1, .segment_ms = 1}};
    ASSERT(plog_explain(&le, &explain) == OK);
    log_explained_fini(&le);
}

static bool see_entry(void *arg, uint32_t at, struct index_entry entry)
{
    (void)entry;
    ASSERT(at == (*(uint32_t *)arg)++);
    return true;
}

static bool see_txn(void *arg, const struct aborted_txn *txn, int64_t pos)
{
    (void)txn;
    ASSERT(pos == *(int64_t *)arg);
    *(int64_t *)arg += TXNINDEX_ENTRY_SIZE;
    return true;
}

static void see_producer(void *arg, const struct producer_entry *entry, size_t pos)
{
    (void)entry;
    (void)pos;
    ++*(size_t *)arg;
}

static void check_index(int which, enum index_kind kind)
{
    struct index_extent extent;
    uint32_t seen = 0;
    if (index_measure(&files[which].file, kind, &extent)) return;
    ASSERT(index_walk(&files[which].file, kind, extent.used + extent.zeros, see_entry, &seen) == OK);
    ASSERT(seen == extent.used + extent.zeros);
}

static void check_one_by_one(void)
{
    struct fault f;
    int64_t pos = 0;
    size_t count = 0;
    atomic_store(&files[1].file.refs, 1);
    check_index(1, INDEX_OFFSETS);
    check_index(2, INDEX_TIMES);
    enum err e =
        txnindex_walk(&files[3].file, (int64_t)(files[3].size - files[3].size % TXNINDEX_ENTRY_SIZE), see_txn, &pos);
    ASSERT(e || pos == (int64_t)(files[3].size - files[3].size % TXNINDEX_ENTRY_SIZE));
    e = producers_snapshot_each(files[4].data, files[4].size, see_producer, &count);
    ASSERT(!e || count == 0);
    struct checkpoint cp;
    checkpoint_init(&cp);
    e = checkpoint_read(&cp, &fs, "d/recovery-point-offset-checkpoint", &f);
    ASSERT(e || checkpoint_get(&cp, STR("t"), 0, -1) >= -1);
    checkpoint_fini(&cp);
    struct meta_properties mp;
    meta_properties_init(&mp);
    e = meta_properties_read(&mp, &fs, "d/meta.properties", &f);
    ASSERT(e || mp.version == 0 || mp.version == 1);
    meta_properties_fini(&mp);
    int64_t epoch;
    ASSERT(clean_shutdown_read(&epoch, &fs, "d/.kafka_cleanshutdown") == OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 * NAME_COUNT) return 0;
    const uint8_t *at = data + 2 * NAME_COUNT, *end = data + size;
    for (int i = 0; i < NAME_COUNT; i++) {
        size_t n = MIN((size_t)get_be16(data + 2 * i), (size_t)(end - at));
        files[i] = (struct memory_file){.file = {.ops = &file_ops, .fd = -1}, .data = at, .size = n};
        at += n;
    }
    check_one_by_one();
    check_all(false);
    check_all(true);
    return 0;
}
