/* log_repair.c: `barnabas log repair DIR...`: what recovery does, for logs of a broker that does not run.
 *
 * A log that verify finds damaged is opened as after a crash, with everything read again: recovery makes indexes,
 * snapshots and epochs anew and cuts the log where it can no longer be read.  What is cut off is first copied into a
 * file beside it, and where whole batches would go with it, nothing is done without --allow-loss. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/log_check.h"
#include "cli/log_internal.h"
#include "os/clock.h"
#include "plog/epochs.h"
#include "plog/plog.h"
#include "plog/segment.h"

#define LOG_MODULE "cli"

enum { EXIT_REPAIRED, EXIT_REMAINS, EXIT_REFUSED };
enum { INDEX_INTERVAL_BYTES = 4096, COPY_BYTES = 1 << 20 };     /* index.interval.bytes' default */
static const int64_t PRODUCER_EXPIRATION_MS = 24 * 3600 * 1000; /* producer.id.expiration.ms' default */

struct repair {
    struct fs *fs;
    bool dry_run, allow_loss;
    struct log_dirs dirs;
    struct file **locks; /* of dirs.dirs */
    struct partition_check *checks;
    int done, remaining;
};

static void say(const struct partition_view *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(const struct partition_view *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_escaped(stdout, str_of(p->path));
    printf(": ");
    vprintf(fmt, args);
    printf(".\n");
    va_end(args);
}

/* ---- Locks */

static enum err lock_dirs(struct repair *r, struct fault *f)
{
    r->locks = mem_zalloc(r->dirs.dir_count + 1, sizeof(struct file *));
    for (size_t i = 0; i < r->dirs.dir_count; i++) {
        const char *dir = r->dirs.dirs[i]->path;
        enum err e = r->dirs.dirs[i]->live ? ERR_LOCKED : OK;
        if (!e && !r->dry_run) {
            char *path = mem_printf("%s/.lock", dir);
            e = fs_lock(r->fs, path, &r->locks[i]);
            mem_free(path);
        }
        if (e == ERR_LOCKED)
            return fault_set(f, e, "A broker is running in %s (it holds %s/.lock). Stop it first.", dir, dir);
        if (e) return fault_set(f, e, "The lock %s/.lock cannot be taken: %s.", dir, err_text(e));
    }
    return OK;
}

/* ---- What is cut off */

static bool is_zero(const uint8_t *data, size_t size)
{
    return size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0);
}

static enum err copy_bytes(struct file *from, int64_t pos, struct file *to, bool *zeros)
{
    uint8_t *data = mem_alloc(COPY_BYTES);
    enum err e = OK;
    size_t got = 1;
    *zeros = true;
    for (int64_t at = 0; !e && got > 0; at += (int64_t)got) {
        e = file_pread(from, data, COPY_BYTES, pos + at, &got);
        if (!e && got > 0) e = file_pwrite(to, data, got, at);
        if (!e) *zeros &= is_zero(data, got);
    }
    mem_free(data);
    return e ? e : file_sync(to);
}

/* Zeros need no keeping: that is what a file system leaves where nothing was written. */
static enum err put_aside(struct repair *r, const struct partition_view *p, int64_t base_offset, int64_t pos)
{
    char *path = segment_path(p->path, base_offset, SEGMENT_LOG), *copy = mem_printf("%s.cut-%" PRId64, path, pos);
    struct file *from = NULL, *to = NULL;
    int64_t size = 0;
    bool zeros = true;
    enum err e = fs_open(r->fs, path, FS_READ, &from);
    if (!e) e = file_size(from, &size);
    if (!e && size > pos) {
        e = fs_open(r->fs, copy, FS_READ | FS_WRITE | FS_CREATE | FS_TRUNCATE, &to);
        if (!e) e = copy_bytes(from, pos, to, &zeros);
        if (!e && zeros) e = fs_unlink(r->fs, copy);
        if (!e) e = fs_sync_dir(r->fs, p->path);
    }
    file_unref(from);
    file_unref(to);
    if (!e && size > pos) {
        if (zeros)
            say(p, "%" PRId64 " zeros are cut off %s", size - pos, path_name(path));
        else
            say(p, "%" PRId64 " bytes are cut off %s at position %" PRId64 "; they are kept in %s", size - pos,
                path_name(path), pos, copy);
    }
    mem_free(copy);
    mem_free(path);
    return e;
}

/* The segment that is cut, and those behind it, which go with it. */
static enum err put_all_aside(struct repair *r, const struct partition_view *p, const struct plog_verify_result *res)
{
    struct name_list list;
    enum err e = name_list_read(&list, r->fs, p->path);
    for (size_t i = 0; i < list.count && !e; i++) {
        int64_t base_offset;
        const char *suffix;
        if (!segment_parse_name(list.entries[i].name, &base_offset, &suffix) || strcmp(suffix, SEGMENT_LOG) != 0)
            continue;
        if (base_offset >= res->cut_base)
            e = put_aside(r, p, base_offset, base_offset == res->cut_base ? res->cut_pos : 0);
    }
    name_list_free(&list);
    return e;
}

/* ---- One log */

static void told(void *arg, int64_t end)
{
    (void)arg;
    (void)end;
}

static void told_of_failure(void *arg, enum err e)
{
    (void)arg;
    (void)e; /* plog_close() returns it too */
}

/* Opening passes over what contradicts the rest of leader-epoch-checkpoint; without the file it asks the batches. */
static enum err remove_bad_epochs(struct repair *r, const struct partition_view *p, const struct finding_list *found)
{
    bool bad = false;
    for (size_t i = 0; i < found->count; i++) bad |= found->items[i].kind == VERIFY_EPOCHS_FILE;
    if (!bad) return OK;
    char *path = mem_printf("%s/" LEADER_EPOCHS, p->path);
    enum err e = fs_unlink(r->fs, path);
    mem_free(path);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* Where readers may begin.  Opening a log whose start lies behind its end would empty it: never here. */
static int64_t start_of(const struct partition_view *p, const struct plog_verify_result *res)
{
    int64_t end = res->cut_base >= 0 ? res->cut_end : res->end;
    return MAX(MIN(partition_checkpoint(p, LOG_STARTS), end), 0);
}

static enum err recover(struct repair *r, const struct partition_view *p, const struct plog_verify_result *res,
                        struct fault *f)
{
    const struct plog_options opt = {
        .fs = r->fs,
        .clock = clock_system(),
        .dir = p->path,
        .log_start = start_of(p, res),
        .cleaned = partition_checkpoint(p, LOG_CLEANED),
        .config = {.segment_bytes = INT32_MAX,
                   .segment_ms = -1,
                   .segment_index_bytes = INT32_MAX,
                   .index_interval_bytes = INDEX_INTERVAL_BYTES,
                   .retention_ms = -1,
                   .retention_bytes = -1,
                   /* Or a gap between segments would count as a loss, and what stands behind it would go; verify, which
                    * has said what is cut, takes it for compaction's. */
                   .cleanup_compact = true,
                   .flush_messages = INT64_MAX,
                   .flush_ms = INT64_MAX,
                   .producer_expiration_ms = PRODUCER_EXPIRATION_MS},
        .events = {.advanced = told, .failed = told_of_failure},
    };
    struct plog *pl;
    enum err e = plog_open(&pl, &opt, f);
    if (e) return e;
    e = plog_close(pl);
    return e ? fault_set(f, e, "The log in %s cannot be written: %s.", p->path, err_text(e)) : OK;
}

static void keep(void *arg, const struct verify_finding *f)
{
    finding_add(arg, f->kind, f->file, f->pos, "%s", f->text);
}

/* Looks again; what is still damaged is told. */
static void look_again(struct repair *r, const struct partition_view *p, struct partition_check *check)
{
    finding_list_free(&check->found);
    const struct plog_verify_options opt = {.fs = r->fs,
                                            .dir = p->path,
                                            .log_start = partition_checkpoint(p, LOG_STARTS),
                                            .found = keep,
                                            .arg = &check->found};
    check->err = plog_verify(&check->result, &opt);
    for (size_t i = 0; i < check->found.count; i++)
        if (verify_kind_level(check->found.items[i].kind) == VERIFY_DAMAGE)
            say(p, "%s is still damaged: %s", path_name(check->found.items[i].file), check->found.items[i].text);
    if (check->found.damages == 0) say(p, "it is sound now and ends at offset %" PRId64, check->result.end);
}

/* What no recovery mends; NULL: nothing of that kind. */
static const struct kept_finding *beyond_repair(const struct partition_check *check)
{
    for (size_t i = 0; i < check->found.count; i++) {
        enum verify_kind kind = check->found.items[i].kind;
        if (kind == VERIFY_OLD_FORMAT || kind == VERIFY_UNREADABLE || kind == VERIFY_METADATA ||
            kind == VERIFY_EPOCH_FALLS)
            return &check->found.items[i];
    }
    return NULL;
}

static bool only_recovery_helps(const struct partition_check *check)
{
    for (size_t i = 0; i < check->found.count; i++) {
        enum verify_kind kind = check->found.items[i].kind;
        if (verify_kind_level(kind) == VERIFY_DAMAGE && kind != VERIFY_BAD_RECORDS) return true;
    }
    return false;
}

static void print_damages(const struct partition_view *p, const struct partition_check *check)
{
    for (size_t i = 0; i < check->found.count; i++) {
        const struct kept_finding *f = &check->found.items[i];
        if (verify_kind_level(f->kind) != VERIFY_DAMAGE) continue;
        if (f->pos >= 0)
            say(p, "%s, position %" PRId64 ": %s", path_name(f->file), f->pos, f->text);
        else
            say(p, "%s: %s", path_name(f->file), f->text);
    }
}

/* True when the log may be opened for repair. */
static bool may_repair(struct repair *r, const struct partition_view *p, const struct partition_check *check)
{
    const struct kept_finding *f = beyond_repair(check);
    const struct plog_verify_result *res = &check->result;
    if (f) {
        say(p, "this cannot be repaired. %s Nothing is done", verify_kind_advice(f->kind));
        return false;
    }
    if (!only_recovery_helps(check)) {
        say(p, "what is wrong is in the records themselves, and repair does not change records. Nothing is done");
        return false;
    }
    if (res->cut_base >= 0 && res->cut_loses && !r->allow_loss) {
        say(p,
            "records behind position %" PRId64 " of segment %020" PRId64
            " would be cut off. Nothing is done without --allow-loss",
            res->cut_pos, res->cut_base);
        return false;
    }
    return true;
}

static void repair_one(struct repair *r, const struct partition_view *p, struct partition_check *check)
{
    struct fault f = {.code = OK};
    print_damages(p, check);
    if (!may_repair(r, p, check)) {
        r->remaining++;
        return;
    }
    r->done++;
    if (r->dry_run) {
        if (check->result.cut_base >= 0)
            say(p, "would be cut at position %" PRId64 " of segment %020" PRId64 ", the rest kept beside it",
                check->result.cut_pos, check->result.cut_base);
        say(p, "would be read again, and its indexes, snapshots and epochs made anew");
        return;
    }
    enum err e = check->result.cut_base >= 0 ? put_all_aside(r, p, &check->result) : OK;
    if (e) fault_set(&f, e, "What would be cut off cannot be put aside: %s.", err_text(e));
    if (!e) {
        e = remove_bad_epochs(r, p, &check->found);
        if (e) fault_set(&f, e, "%s/" LEADER_EPOCHS " cannot be removed: %s.", p->path, err_text(e));
    }
    if (!e) e = recover(r, p, &check->result, &f);
    if (e) {
        fprintf(stderr, "barnabas: %s\n", f.text);
        r->remaining++;
        return;
    }
    look_again(r, p, check);
    r->remaining += check->found.damages > 0;
}

/* ---- Checkpoints */

/* Whether the row of a partition must go down to the log's end. */
static const struct partition_check *check_of(const struct repair *r, const struct log_dir_view *d,
                                              const struct checkpoint_row *row)
{
    for (size_t i = 0; i < r->dirs.partition_count; i++) {
        const struct partition_view *p = &r->dirs.partitions[i];
        if (p->dir == d && p->id.state == PARTITION_LIVE && p->id.index == row->partition &&
            str_equal(p->id.topic, row->topic))
            return &r->checks[i];
    }
    return NULL;
}

static void write_rows(struct repair *r, const struct log_dir_view *d, enum log_checkpoint which)
{
    struct checkpoint cp;
    struct fault f = {.code = OK};
    char *path = mem_printf("%s/%s", d->path, log_checkpoint_name(which));
    checkpoint_init(&cp);
    for (size_t i = 0; i < d->checkpoints[which].count && !d->faults[which].code; i++) {
        const struct checkpoint_row *row = &d->checkpoints[which].rows[i];
        const struct partition_check *c = check_of(r, d, row);
        checkpoint_set(&cp, row->topic, row->partition, c && !c->err ? MIN(row->offset, c->result.end) : row->offset);
    }
    if (r->dry_run)
        printf("%s: would be written anew.\n", path);
    else if (checkpoint_write(&cp, r->fs, path, &f))
        fprintf(stderr, "barnabas: %s\n", f.text);
    else
        printf("%s: is written anew.\n", path);
    r->remaining += f.code != OK;
    r->done++;
    checkpoint_fini(&cp);
    mem_free(path);
}

static bool is_wrong(const struct repair *r, const struct log_dir_view *d, enum log_checkpoint which)
{
    if (d->faults[which].code) return true;
    for (size_t i = 0; i < r->dirs.partition_count; i++)
        if (r->dirs.partitions[i].dir == d && !r->checks[i].err &&
            partition_checkpoint(&r->dirs.partitions[i], which) > r->checks[i].result.end)
            return true;
    return false;
}

/* Without its rows a file costs a longer start, or (log-start-offset-checkpoint) shows again what was deleted. */
static void repair_checkpoints(struct repair *r)
{
    for (size_t i = 0; i < r->dirs.dir_count; i++)
        for (enum log_checkpoint k = 0; k < LOG_CHECKPOINT_COUNT; k++) {
            if (!is_wrong(r, r->dirs.dirs[i], k)) continue;
            if (r->dirs.dirs[i]->faults[k].code) printf("%s\n", r->dirs.dirs[i]->faults[k].text);
            write_rows(r, r->dirs.dirs[i], k);
        }
}

/* ---- The whole */

static int repair_all(struct repair *r)
{
    struct fault f = {.code = OK};
    enum err e = lock_dirs(r, &f);
    if (!e) e = log_checks_run(&r->checks, &r->dirs, r->fs, false, &f);
    if (e) {
        fprintf(stderr, "barnabas: %s\n", f.text);
        return EXIT_REFUSED;
    }
    for (size_t i = 0; i < r->dirs.partition_count; i++) {
        if (r->checks[i].err) {
            say(&r->dirs.partitions[i], "it cannot be read: %s", err_text(r->checks[i].err));
            r->remaining++;
        } else if (r->checks[i].found.damages > 0) {
            repair_one(r, &r->dirs.partitions[i], &r->checks[i]);
        }
    }
    repair_checkpoints(r);
    log_checks_free(r->checks, r->dirs.partition_count);
    if (r->done + r->remaining == 0) printf("%zu partitions, all sound: nothing to repair.\n", r->dirs.partition_count);
    return r->remaining > 0 || (r->dry_run && r->done > 0) ? EXIT_REMAINS : EXIT_REPAIRED;
}

static void repair_fini(struct repair *r)
{
    for (size_t i = 0; r->locks && i < r->dirs.dir_count; i++) file_unref(r->locks[i]);
    mem_free(r->locks);
    log_dirs_free(&r->dirs);
}

static int64_t wall_ms(void *arg)
{
    return clock_wall_ms(arg);
}

int log_repair(int argc, char **argv)
{
    struct repair r = {.fs = fs_system()};
    struct fault f = {.code = OK};
    int status = 0, paths = 0;
    log_init(wall_ms, clock_system(), LOG_LEVEL_ERROR); /* what recovery would log is said here */
    for (int i = 1; i < argc && !status; i++) {
        if (strcmp(argv[i], "--dry-run") == 0)
            r.dry_run = true;
        else if (strcmp(argv[i], "--allow-loss") == 0)
            r.allow_loss = true;
        else if (argv[i][0] == '-')
            status = cli_usage_error("log", "repair has no option '%s'", argv[i]);
        else if (++paths && log_dirs_add(&r.dirs, r.fs, argv[i], &f)) {
            fprintf(stderr, "barnabas: %s\n", f.text);
            status = EXIT_REFUSED;
        }
    }
    if (!status && paths == 0) status = cli_usage_error("log", "repair needs a directory");
    if (!status) status = repair_all(&r);
    repair_fini(&r);
    return status;
}
