/* recover_fuzz: bytes as the files of a partition that an unclean stop left behind: a log (with right CRCs when the
 * first byte says so), an index, a time index, a snapshot, epochs.  What must hold: the log opens, or says that it
 * holds an old format; then every offset up to its end can be asked for, it takes an append, and it opens again with
 * the same end, cleanly and not. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/plog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE_MAX_TAKEN = 1 << 15, PARTS = 5 };

static const char *const names[PARTS] = {"00000000000000000000.log", "00000000000000000000.index",
                                         "00000000000000000000.timeindex", "00000000000000000000.snapshot",
                                         "leader-epoch-checkpoint"};

static char dir[64];

static void write_part(const char *name, const uint8_t *data, size_t size)
{
    char *path = mem_printf("%s/%s", dir, name);
    struct file *f;
    ASSERT(fs_open(fs_system(), path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f) == OK);
    if (size > 0) ASSERT(file_pwrite(f, data, size, 0) == OK);
    file_unref(f);
    mem_free(path);
}

/* Gives each batch that its length allows a right CRC. */
static void repair(uint8_t *log, size_t size)
{
    while (size >= BATCH_HEADER_SIZE) {
        struct batch_info b;
        log[BATCH_AT_MAGIC] = BATCH_MAGIC;
        if (batch_parse_header(&b, log, (int64_t)size) != OK) return;
        put_be32(log + BATCH_AT_CRC, batch_crc(log, (size_t)b.size));
        log += b.size;
        size -= (size_t)b.size;
    }
}

static void was_done(struct append *a)
{
    a->done = NULL;
}

static void append_one(struct plog *pl)
{
    struct buf_pool *pool = buf_pool_new(1 << 16);
    struct batch_builder bb;
    struct writer w;
    batch_builder_init(&bb, pool, 0, 1700000000000);
    batch_builder_add(&bb, 1700000000000, (struct bytes){NULL, 0}, (struct bytes){(const uint8_t *)"v", 1}, NULL, 0);
    writer_init(&w, pool);
    ASSERT(batch_builder_finish(&bb, &w) == OK);
    batch_builder_fini(&bb);
    struct append a = {
        .data = w.buf->data,
        .size = w.size,
        .leader_epoch = plog_last_epoch_begun(pl), /* they only grow */
        .now_ms = 1700000000000,
        .done = was_done,
    };
    ASSERT(batch_parse_header(&a.info, a.data, INT32_MAX) == OK);
    plog_append(pl, &a);
    ASSERT(a.kerr == KERR_NONE && a.base_offset + 1 == plog_end(pl));
    writer_fini(&w);
    buf_pool_free(pool);
}

/* A log with a clean mark is believed: what is wrong inside shows only to who reads it, and may be any error. */
static void read_through(struct plog *pl, bool believed)
{
    int64_t at = plog_start(pl), end = plog_end(pl);
    for (int i = 0; at < end && i < 2000; i++) {
        struct plog_slice s;
        enum err e = plog_read(pl, at, INT64_MAX, 100, true, false, &s);
        ASSERT(e == OK || believed);
        if (e || !s.file) break; /* a gap up to the end */
        uint8_t header[BATCH_HEADER_SIZE];
        struct batch_info b;
        size_t got;
        ASSERT(file_pread(s.file, header, sizeof header, s.pos, &got) == OK && got == sizeof header);
        ASSERT(batch_parse_header(&b, header, (int64_t)s.size) == OK);
        plog_slice_release(&s);
        if (believed && (batch_last_offset(&b) < at || batch_last_offset(&b) >= end)) break;
        ASSERT(batch_last_offset(&b) >= at && batch_last_offset(&b) < end);
        at = batch_last_offset(&b) + 1;
    }
    int64_t offset, time_ms;
    int32_t epoch;
    enum err e = plog_find_time(pl, 1700000000000, INT64_MAX, &offset, &time_ms, &epoch);
    ASSERT(e == OK || believed || e == ERR_CORRUPT || e == ERR_TOO_BIG || e == ERR_UNSUPPORTED || e == ERR_TRUNCATED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < PARTS || size > SIZE_MAX_TAKEN) return 0;
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/dev/shm/recover-fuzz-XXXXXX");
        ASSERT(mkdtemp(dir));
    }
    ASSERT(fs_remove_all(fs_system(), dir) == OK && fs_mkdir(fs_system(), dir) == OK);
    /* The first bytes tell how the rest is divided; most of it is the log. */
    const uint8_t *shares = data;
    data += PARTS;
    size -= PARTS;
    for (int i = PARTS - 1; i > 0; i--) {
        size_t part = MIN(size, (size_t)shares[i]);
        write_part(names[i], data + size - part, part);
        size -= part;
    }
    uint8_t *log = mem_alloc(size + 1);
    memcpy(log, data, size);
    if (shares[0] & 1) repair(log, size);
    write_part(names[0], log, size);
    mem_free(log);

    struct plog_options opt = {.fs = fs_system(),
                               .clock = clock_system(),
                               .dir = dir,
                               .clean = shares[0] & 2,
                               .config = {.segment_bytes = 1 << 20,
                                          .segment_ms = -1,
                                          .segment_index_bytes = 1 << 20,
                                          .index_interval_bytes = 64,
                                          .retention_ms = -1,
                                          .retention_bytes = -1,
                                          .flush_messages = -1,
                                          .flush_ms = -1,
                                          .producer_expiration_ms = INT64_MAX}};
    struct fault f;
    struct plog *pl;
    enum err e = plog_open(&pl, &opt, &f);
    if (e && e != ERR_UNSUPPORTED) fprintf(stderr, "%s\n", f.text);
    ASSERT(e == OK || e == ERR_UNSUPPORTED);
    if (e) return 0;
    read_through(pl, opt.clean);
    if (plog_end(pl) < INT32_MAX) append_one(pl);
    int64_t end = plog_end(pl);
    bool unclean = shares[0] & 4;
    if (unclean)
        plog_abandon(pl);
    else
        ASSERT(plog_close(pl) == OK);
    bool believed = opt.clean;
    opt.clean = !unclean;
    ASSERT(plog_open(&pl, &opt, &f) == OK);
    ASSERT(plog_end(pl) == end || (believed && unclean)); /* a scan finds what was believed */
    read_through(pl, believed);
    plog_abandon(pl);
    return 0;
}
