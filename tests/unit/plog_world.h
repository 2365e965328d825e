/* plog_world.h: what the tests of plog/ share: a log in a temporary directory, a clock that is set by hand, a file
 * system that can be told to fail, and batches to append. */
#ifndef TESTS_PLOG_WORLD_H
#define TESTS_PLOG_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plog/plog.h"

#define UNUSED __attribute__((unused))

/* ---- A file system that fails on demand */

enum fail_op { FAIL_NONE, FAIL_WRITE, FAIL_TRUNCATE, FAIL_SYNC, FAIL_OPEN };

struct faulty_fs {
    struct fs fs;
    struct fs_ops ops;
    struct file_ops file_ops;
    struct fs *real;
    enum fail_op op;   /* which calls fail: */
    enum fail_op also; /*   and these, as soon as one of the first has failed */
    int after;         /*   after this many that go through */
    int times;         /*   this many */
    enum err e;        /*   with this */
    bool fired;
    size_t tear_bytes; /* a failing write has written this much */
    _Atomic int syncs, opens, writes, creates, reads;
    const char *only;           /* path ends with this; NULL: any */
    void (*syncing)(void *arg); /* called while a file is being synced, once */
    void *syncing_arg;
};

struct faulty_file {
    struct file file;
    struct file *real;
    struct faulty_fs *world;
    bool counts;
};

static UNUSED bool faulty_fails(struct faulty_fs *fs, enum fail_op op)
{
    if (fs->also == op && fs->fired) return true;
    if (fs->op != op || fs->times == 0) return false;
    if (fs->after > 0) {
        fs->after--;
        return false;
    }
    fs->times--;
    fs->fired = true;
    return true;
}

static struct faulty_file *faulty_of(struct file *f)
{
    return CONTAINER_OF(f, struct faulty_file, file);
}

static enum err faulty_pread(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    faulty_of(f)->world->reads++;
    return file_pread(faulty_of(f)->real, out, size, pos, got);
}

static enum err faulty_pread_nowait(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    faulty_of(f)->world->reads++;
    return file_pread_nowait(faulty_of(f)->real, out, size, pos, got);
}

static enum err faulty_pwritev(struct file *f, const struct iovec *iov, int count, int64_t pos)
{
    struct faulty_file *ff = faulty_of(f);
    ff->world->writes++;
    if (ff->counts && faulty_fails(ff->world, FAIL_WRITE)) {
        size_t tear = MIN(ff->world->tear_bytes, iov[0].iov_len);
        if (tear) {
            enum err e = file_pwrite(ff->real, iov[0].iov_base, tear, pos);
            if (e) return e;
        }
        return ff->world->e;
    }
    return file_pwritev(ff->real, iov, count, pos);
}

static enum err faulty_size(struct file *f, int64_t *out)
{
    return file_size(faulty_of(f)->real, out);
}

static enum err faulty_truncate(struct file *f, int64_t size)
{
    struct faulty_file *ff = faulty_of(f);
    if (ff->counts && faulty_fails(ff->world, FAIL_TRUNCATE)) return ff->world->e;
    return file_truncate(ff->real, size);
}

static enum err faulty_allocate(struct file *f, int64_t pos, int64_t size)
{
    return file_allocate(faulty_of(f)->real, pos, size);
}

static enum err faulty_sync(struct file *f)
{
    struct faulty_file *ff = faulty_of(f);
    struct faulty_fs *world = ff->world;
    world->syncs++;
    void (*syncing)(void *arg) = world->syncing;
    world->syncing = NULL;
    if (syncing) syncing(world->syncing_arg);
    if (ff->counts && faulty_fails(world, FAIL_SYNC)) return world->e;
    return OK; /* counted, not done: no test pulls the plug, and a busy disk takes its time */
}

static void faulty_write_behind(struct file *f, int64_t pos, int64_t size)
{
    file_write_behind(faulty_of(f)->real, pos, size);
}

static void faulty_drop_cache(struct file *f, int64_t pos, int64_t size)
{
    file_drop_cache(faulty_of(f)->real, pos, size);
}

static enum err faulty_map(struct file *f, size_t size, void **out)
{
    return file_map(faulty_of(f)->real, size, out);
}

static void faulty_close(struct file *f)
{
    struct faulty_file *ff = faulty_of(f);
    file_unref(ff->real);
    mem_free(ff);
}

static enum err faulty_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    struct faulty_fs *world = CONTAINER_OF(fs, struct faulty_fs, fs);
    size_t n = strlen(path), m = world->only ? strlen(world->only) : 0;
    bool counts = n >= m && strcmp(path + n - m, world->only ? world->only : "") == 0;
    world->opens++;
    if (flags & FS_CREATE) world->creates++;
    if (counts && faulty_fails(world, FAIL_OPEN)) return world->e;
    struct file *real;
    enum err e = fs_open(world->real, path, flags, &real);
    if (e) return e;
    struct faulty_file *ff = mem_zalloc(1, sizeof *ff);
    *ff = (struct faulty_file){.file = {.ops = &world->file_ops, .fd = real->fd}, .real = real, .world = world};
    ff->counts = counts;
    atomic_init(&ff->file.refs, 1);
    *out = &ff->file;
    return OK;
}

static enum err faulty_sync_dir(struct fs *fs, const char *path)
{
    (void)path;
    struct faulty_fs *world = CONTAINER_OF(fs, struct faulty_fs, fs);
    world->syncs++;
    return faulty_fails(world, FAIL_SYNC) ? world->e : OK;
}

static UNUSED void faulty_fs_init(struct faulty_fs *world)
{
    *world = (struct faulty_fs){.real = fs_system()};
    world->ops = *world->real->ops;
    world->ops.open = faulty_open;
    world->ops.sync_dir = faulty_sync_dir;
    world->fs.ops = &world->ops;
    world->file_ops = (struct file_ops){
        .pread = faulty_pread,
        .pread_nowait = faulty_pread_nowait,
        .pwritev = faulty_pwritev,
        .size = faulty_size,
        .truncate = faulty_truncate,
        .allocate = faulty_allocate,
        .sync = faulty_sync,
        .write_behind = faulty_write_behind,
        .drop_cache = faulty_drop_cache,
        .map = faulty_map,
        .close = faulty_close,
    };
}

/* ---- A clock set by hand */

struct hand_clock {
    struct clock clock;
    _Atomic int64_t now_ms;
};

static UNUSED int64_t hand_mono_us(struct clock *c)
{
    return CONTAINER_OF(c, struct hand_clock, clock)->now_ms * 1000;
}

static UNUSED int64_t hand_wall_ms(struct clock *c)
{
    return CONTAINER_OF(c, struct hand_clock, clock)->now_ms;
}

/* ---- The world */

enum { T0 = 1700000000 }; /* seconds; T0 * 1000 ms is when the tests' clock starts */
#define T0_MS (INT64_C(1000) * T0)

struct world {
    char root[64];
    char dir[96];
    struct faulty_fs fs;
    struct hand_clock clock;
    struct buf_pool *pool;
    struct plog_options opt;
    struct plog *pl;
    struct fault fault;
    int64_t advanced; /* the last `end` told */
    enum err failed;
    int failed_count, work_wanted, flushed;
    enum err flush_failed; /* of the last flush that failed */
};

static UNUSED void world_advanced(void *arg, int64_t end)
{
    struct world *w = arg;
    w->advanced = end;
}

static UNUSED void world_failed(void *arg, enum err e)
{
    struct world *w = arg;
    w->failed = e;
    w->failed_count++;
}

static UNUSED void world_wants_work(void *arg)
{
    struct world *w = arg;
    w->work_wanted++;
}

static UNUSED void world_flushed(void *arg, enum err e)
{
    struct world *w = arg;
    w->flushed++;
    if (e) w->flush_failed = e;
}

static UNUSED void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    const char *tmp = getenv("TMPDIR");
    snprintf(w->root, sizeof w->root, "%.40s/plog-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(w->root));
    snprintf(w->dir, sizeof w->dir, "%s/topic-0", w->root);
    faulty_fs_init(&w->fs);
    w->clock.clock = (struct clock){.mono_us = hand_mono_us, .wall_ms = hand_wall_ms};
    w->clock.now_ms = T0_MS;
    w->pool = buf_pool_new(1 << 20);
    w->opt = (struct plog_options){
        .fs = &w->fs.fs,
        .clock = &w->clock.clock,
        .dir = w->dir,
        .cleaned = -1,
        .jitter_seed = 1,
        .config = {.segment_bytes = 1 << 30,
                   .segment_ms = INT64_C(7) * 24 * 3600 * 1000,
                   .segment_index_bytes = 10 << 20,
                   .index_interval_bytes = 4096,
                   .retention_ms = -1,
                   .retention_bytes = -1,
                   .cleanup_delete = true,
                   .flush_messages = -1,
                   .flush_ms = -1,
                   .file_delete_delay_ms = 60000,
                   .producer_expiration_ms = 86400000},
        .events = {.arg = w,
                   .advanced = world_advanced,
                   .failed = world_failed,
                   .wants_work = world_wants_work,
                   .flushed = world_flushed},
    };
}

static UNUSED void world_open(struct world *w)
{
    enum err e = plog_open(&w->pl, &w->opt, &w->fault);
    if (e) fail_msg("%s: %s", err_name(e), w->fault.text);
}

/* As after a crash of the process: nothing is flushed or told. */
static UNUSED void world_kill(struct world *w)
{
    plog_abandon(w->pl);
    w->pl = NULL;
    w->opt.clean = false;
}

static UNUSED void world_close(struct world *w)
{
    w->opt.recovery_point = plog_end(w->pl);
    w->opt.log_start = plog_start(w->pl);
    w->opt.cleaned = plog_cleaned(w->pl);
    assert_int_equal(plog_close(w->pl), OK);
    w->pl = NULL;
    w->opt.clean = true;
}

static UNUSED void world_fini(struct world *w)
{
    if (w->pl) plog_abandon(w->pl);
    assert_int_equal(fs_remove_all(fs_system(), w->root), OK);
    buf_pool_free(w->pool);
}

/* ---- Batches */

struct batch_spec {
    int count; /* records; 0 is 1 */
    size_t value_size;
    int64_t timestamp;   /* of the first record, each one later by 1; 0 is the clock's */
    int64_t producer_id; /* 0 is none */
    int16_t producer_epoch;
    int32_t sequence;
    bool transactional, marker, commit;
    enum codec codec;
    enum append_origin origin;
    int32_t leader_epoch;
};

/* The bytes of a batch, to be freed with writer_fini(). */
static UNUSED void batch_make(struct world *w, const struct batch_spec *s, struct writer *out)
{
    struct batch_builder bb;
    int16_t attributes = (int16_t)s->codec;
    if (s->transactional || s->marker) attributes |= BATCH_TRANSACTIONAL;
    if (s->marker) attributes |= BATCH_CONTROL;
    int64_t timestamp = s->timestamp ? s->timestamp : w->clock.now_ms;
    batch_builder_init(&bb, w->pool, attributes, timestamp);
    if (s->producer_id) {
        bb.info.producer_id = s->producer_id;
        bb.info.producer_epoch = s->producer_epoch;
        bb.info.base_sequence = s->marker ? -1 : s->sequence;
    }
    uint8_t *value = mem_zalloc(1, s->value_size + 1);
    for (size_t i = 0; i < s->value_size; i++) value[i] = (uint8_t)(i * 31 + (size_t)timestamp);
    for (int i = 0; i < MAX(s->count, 1) && !s->marker; i++)
        batch_builder_add(&bb, timestamp + i, (struct bytes){(const uint8_t *)"k", 1},
                          (struct bytes){value, s->value_size}, NULL, 0);
    if (s->marker) batch_builder_add_marker(&bb, &(struct txn_marker){.commit = s->commit, .timestamp = timestamp});
    writer_init(out, w->pool);
    assert_int_equal(batch_builder_finish(&bb, out), OK);
    batch_builder_fini(&bb);
    mem_free(value);
}

static UNUSED void append_was_done(struct append *a)
{
    a->done = NULL;
}

static UNUSED enum kerr append_bytes(struct world *w, struct writer *bytes, const struct batch_spec *s,
                                     struct append *a)
{
    *a = (struct append){
        .buf = bytes->buf,
        .data = bytes->buf->data,
        .size = bytes->size,
        .origin = s->origin,
        .leader_epoch = s->leader_epoch,
        .now_ms = w->clock.now_ms,
        .done = append_was_done,
    };
    assert_int_equal(batch_parse_header(&a->info, a->data, INT32_MAX), OK);
    plog_append(w->pl, a);
    assert_null(a->done);
    return a->kerr;
}

/* Appends one batch and returns how that went. */
static UNUSED struct append append_batch(struct world *w, struct batch_spec s)
{
    struct writer bytes;
    struct append a;
    batch_make(w, &s, &bytes);
    append_bytes(w, &bytes, &s, &a);
    a.data = NULL;
    writer_fini(&bytes);
    return a;
}

static UNUSED void append_ok(struct world *w, struct batch_spec s)
{
    struct append a = append_batch(w, s);
    assert_int_equal(a.kerr, KERR_NONE);
}

/* ---- Reading back */

/* Reads batch by batch from `from` to the end and checks that offsets have no gap; returns how many records. */
static UNUSED int64_t read_all(struct world *w, int64_t from, size_t bytes_max)
{
    int64_t at = from;
    for (;;) {
        struct plog_slice s;
        enum err e = plog_read(w->pl, at, INT64_MAX, bytes_max, true, false, &s);
        assert_int_equal(e, OK);
        if (!s.file) break;
        uint8_t *data = mem_alloc(s.size);
        size_t got;
        assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
        assert_int_equal(got, s.size);
        assert_true(s.start_offset <= at);
        size_t pos = 0;
        while (s.size - pos >= BATCH_HEADER_SIZE) {
            struct batch_info b;
            if (batch_parse_header(&b, data + pos, (int64_t)(s.size - pos)) != OK) break; /* a partial one */
            assert_true(batch_crc_ok(data + pos, &b));
            if (pos == 0) {
                assert_int_equal(b.base_offset, s.start_offset);
                assert_true(batch_last_offset(&b) >= at);
            } else {
                assert_int_equal(b.base_offset, at);
            }
            at = batch_last_offset(&b) + 1;
            pos += (size_t)b.size;
        }
        assert_true(pos > 0);
        mem_free(data);
        plog_slice_release(&s);
    }
    assert_int_equal(at, plog_end(w->pl));
    return at - from;
}

/* ---- Files */

static UNUSED char *file_path(struct world *w, const char *name)
{
    return mem_printf("%s/%s", w->dir, name);
}

static UNUSED int64_t size_of_file(struct world *w, const char *name)
{
    struct fs_stat st;
    char *path = file_path(w, name);
    enum err e = fs_stat(fs_system(), path, &st);
    mem_free(path);
    return e ? -1 : st.size;
}

static UNUSED void read_file(struct world *w, const char *name, uint8_t **data, size_t *size)
{
    char *path = file_path(w, name), *text;
    assert_int_equal(fs_read_whole(fs_system(), path, 1 << 30, &text, size), OK);
    *data = (uint8_t *)text;
    mem_free(path);
}

static UNUSED void write_file(struct world *w, const char *name, const void *data, size_t size)
{
    char *path = file_path(w, name);
    struct file *f;
    assert_int_equal(fs_open(fs_system(), path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f), OK);
    if (size) assert_int_equal(file_pwrite(f, data, size, 0), OK);
    file_unref(f);
    mem_free(path);
}

static UNUSED void remove_file(struct world *w, const char *name)
{
    char *path = file_path(w, name);
    assert_int_equal(fs_unlink(fs_system(), path), OK);
    mem_free(path);
}

#endif
