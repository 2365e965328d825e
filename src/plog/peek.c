/* peek.c: see peek.h. */
#include "plog/peek.h"

#include <string.h>

#include "base/mem.h"
#include "plog/checkpoint.h"
#include "plog/epochs.h"
#include "plog/scan.h"
#include "plog/segment.h"

struct bases {
    int64_t *offsets;
    size_t count, cap;
};

static void bases_add(void *arg, const char *name, bool is_dir)
{
    struct bases *bs = arg;
    int64_t base_offset;
    const char *suffix;
    if (is_dir || !segment_parse_name(name, &base_offset, &suffix) || strcmp(suffix, SEGMENT_LOG) != 0) return;
    bs->offsets = mem_grow(bs->offsets, &bs->cap, bs->count + 1, sizeof *bs->offsets);
    bs->offsets[bs->count++] = base_offset;
}

/* Base offset of the segment that holds `offset`; the lowest offset there is when none does. */
static int64_t floor_of(const struct bases *bs, int64_t offset)
{
    int64_t floor = INT64_MIN;
    for (size_t i = 0; i < bs->count; i++)
        if (bs->offsets[i] <= offset && bs->offsets[i] > floor) floor = bs->offsets[i];
    return floor;
}

static int64_t bytes_from(const struct bases *bs, struct fs *fs, const char *dir, int64_t offset)
{
    int64_t from = floor_of(bs, offset), bytes = 0;
    for (size_t i = 0; i < bs->count; i++) {
        if (bs->offsets[i] < from) continue;
        char *path = segment_path(dir, bs->offsets[i], SEGMENT_LOG);
        struct fs_stat st;
        if (!fs_stat(fs, path, &st)) bytes += st.size;
        mem_free(path);
    }
    return bytes;
}

int64_t plog_unclean_bytes(struct fs *fs, const char *dir, int64_t recovery_point)
{
    struct bases bs = {.count = 0};
    int64_t bytes = fs_list(fs, dir, bases_add, &bs) ? 0 : bytes_from(&bs, fs, dir, recovery_point);
    mem_free(bs.offsets);
    return bytes;
}

/* Raises *epoch to the largest of a segment's batches, up to the first that is not sound. */
static enum err scan_epochs(struct fs *fs, const char *dir, int64_t base_offset, int32_t *epoch)
{
    struct file *f;
    int64_t size;
    char *path = segment_path(dir, base_offset, SEGMENT_LOG);
    enum err e = fs_open(fs, path, FS_READ, &f);
    mem_free(path);
    if (e) return e;
    e = file_size(f, &size);
    if (!e) {
        struct scan sc;
        struct batch_info b;
        const uint8_t *data;
        scan_init(&sc, f, 0, size, false);
        while (!(e = scan_batch(&sc, &b, &data)) && batch_crc_ok(data, &b)) *epoch = MAX(*epoch, b.leader_epoch);
        scan_fini(&sc);
        if (e == ERR_NOT_FOUND || e == ERR_CORRUPT || e == ERR_UNSUPPORTED) e = OK; /* whoever opens it is told */
    }
    file_unref(f);
    return e;
}

static enum err peek_epoch(const struct bases *bs, struct fs *fs, const char *dir, int32_t *epoch)
{
    struct epochs ep;
    struct fault ignored;
    epochs_init(&ep);
    char *path = mem_printf("%s/" LEADER_EPOCHS, dir);
    enum err e = epochs_read(&ep, fs, path, &ignored);
    mem_free(path);
    bool lost = e == ERR_CORRUPT || e == ERR_VERSION || e == ERR_TOO_BIG;
    if (lost) e = OK;
    *epoch = epochs_latest(&ep);
    lost |= !e && ep.count == 0;
    epochs_fini(&ep);
    for (size_t i = 0; i < bs->count && lost && !e; i++) e = scan_epochs(fs, dir, bs->offsets[i], epoch);
    return e;
}

enum err plog_peek(struct plog_peek *out, struct fs *fs, const char *dir, int64_t recovery_point, bool clean)
{
    struct bases bs = {.count = 0};
    struct plog_peek pk = {.last_epoch = -1};
    struct fault ignored;
    enum err e = fs_list(fs, dir, bases_add, &bs);
    pk.has_log = bs.count > 0;
    if (!e) {
        char *path = mem_printf("%s/" PARTITION_METADATA, dir);
        if (partition_metadata_read(&pk.topic_id, fs, path, &ignored)) pk.topic_id = UUID_ZERO;
        mem_free(path);
        e = peek_epoch(&bs, fs, dir, &pk.last_epoch);
    }
    if (!e && !clean) pk.unclean_bytes = bytes_from(&bs, fs, dir, recovery_point);
    mem_free(bs.offsets);
    if (!e) *out = pk;
    return e;
}
