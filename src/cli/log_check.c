/* log_check.c: see log_check.h. */
#include "cli/log_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/workers.h"

enum { PROGRESS_US = 200 * 1000, LIVE_TRIES = 3 };

void finding_add(struct finding_list *list, enum verify_kind kind, const char *file, int64_t pos, const char *fmt, ...)
{
    struct fault text;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text.text, sizeof text.text, fmt, args);
    va_end(args);
    list->items = mem_grow(list->items, &list->cap, list->count + 1, sizeof *list->items);
    list->items[list->count++] = (struct kept_finding){kind, mem_strdup(file), mem_strdup(text.text), pos};
    list->damages += verify_kind_level(kind) == VERIFY_DAMAGE;
}

void finding_list_free(struct finding_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        mem_free(list->items[i].file);
        mem_free(list->items[i].text);
    }
    mem_free(list->items);
    *list = (struct finding_list){0};
}

/* ---- Many at once */

struct run {
    struct fs *fs;
    bool deep, watched;
    size_t left, count;
    _Atomic int64_t bytes;
};

struct check_job {
    struct job job;
    struct run *run;
    const struct partition_view *partition;
    struct partition_check *check;
};

static void keep(void *arg, const struct verify_finding *f)
{
    struct partition_check *c = arg;
    finding_add(&c->found, f->kind, f->file, f->pos, "%s", f->text);
}

static void check_work(struct job *job)
{
    struct check_job *cj = CONTAINER_OF(job, struct check_job, job);
    const struct plog_verify_options opt = {
        .fs = cj->run->fs,
        .dir = cj->partition->path,
        .log_start = partition_checkpoint(cj->partition, LOG_STARTS),
        .live = cj->partition->dir->live,
        .deep = cj->run->deep,
        .progress = &cj->run->bytes,
        .found = keep,
        .arg = cj->check,
    };
    /* A running broker may exchange or delete a segment while it is read: what is damaged is so again. */
    for (int tries = opt.live ? LIVE_TRIES : 1; tries > 0; tries--) {
        finding_list_free(&cj->check->found);
        cj->check->err = plog_verify(&cj->check->result, &opt);
        if (cj->check->found.damages == 0) break;
    }
}

static void check_done(struct job *job)
{
    CONTAINER_OF(job, struct check_job, job)->run->left--;
}

static void show_progress(const struct run *run, bool last)
{
    if (!run->watched) return;
    double mib = (double)atomic_load_explicit(&run->bytes, memory_order_relaxed) / (1 << 20);
    if (last)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%zu of %zu partitions, %.1f MiB read\033[K", run->count - run->left, run->count, mib);
}

static void run_jobs(struct run *run, struct check_job *jobs, struct loop *l, struct workers *w)
{
    for (size_t i = 0; i < run->count; i++) {
        jobs[i].job.loop = l;
        jobs[i].job.work = check_work;
        jobs[i].job.done = check_done;
        workers_submit(w, &jobs[i].job);
    }
    while (run->left > 0) {
        loop_turn(l, PROGRESS_US);
        show_progress(run, false);
    }
    show_progress(run, true);
}

enum err log_checks_run(struct partition_check **out, const struct log_dirs *ld, struct fs *fs, bool deep,
                        struct fault *f)
{
    struct run run = {.fs = fs,
                      .deep = deep,
                      .watched = process_has_terminal(),
                      .left = ld->partition_count,
                      .count = ld->partition_count};
    struct partition_check *checks = mem_zalloc(run.count + 1, sizeof *checks);
    struct check_job *jobs = mem_zalloc(run.count + 1, sizeof *jobs);
    for (size_t i = 0; i < run.count; i++)
        jobs[i] = (struct check_job){.run = &run, .partition = &ld->partitions[i], .check = &checks[i]};
    struct loop *l = NULL;
    struct workers *w = NULL;
    enum err e = loop_new(&l, clock_system(), 0, f);
    if (!e) e = workers_new(&w, "verify", process_cpu_count(), f);
    if (!e) run_jobs(&run, jobs, l, w);
    if (w) workers_free(w);
    if (l) loop_free(l);
    mem_free(jobs);
    if (e)
        log_checks_free(checks, run.count);
    else
        *out = checks;
    return e;
}

void log_checks_free(struct partition_check *checks, size_t count)
{
    for (size_t i = 0; i < count; i++) finding_list_free(&checks[i].found);
    mem_free(checks);
}

/* ---- Checkpoint files */

static char *meaning(enum log_checkpoint which, const struct partition_view *p, int64_t offset)
{
    static const char *const what[LOG_CHECKPOINT_COUNT] = {
        [LOG_RECOVERY] = "is on the disk",
        [LOG_STARTS] = "has been deleted",
        [LOG_WATERMARKS] = "is replicated",
        [LOG_CLEANED] = "has been cleaned",
    };
    return mem_printf("everything of %s below offset %" PRId64 " %s", p->name, offset, what[which]);
}

static void check_partition(struct finding_list *out, const struct partition_view *p,
                            const struct partition_check *check)
{
    for (enum log_checkpoint i = 0; i < LOG_CHECKPOINT_COUNT; i++) {
        int64_t offset = partition_checkpoint(p, i);
        if (check->err || offset <= check->result.end) continue;
        char *path = mem_printf("%s/%s", p->dir->path, log_checkpoint_name(i)), *said = meaning(i, p, offset);
        finding_add(out, VERIFY_CHECKPOINT, path, -1, "it says that %s, but the log ends at %" PRId64, said,
                    check->result.end);
        mem_free(said);
        mem_free(path);
    }
}

void log_checks_checkpoints(struct finding_list *out, const struct log_dirs *ld, const struct partition_check *checks)
{
    for (size_t i = 0; i < ld->dir_count; i++) {
        const struct log_dir_view *d = ld->dirs[i];
        for (enum log_checkpoint k = 0; k < LOG_CHECKPOINT_COUNT; k++) {
            if (!d->faults[k].code) continue;
            char *path = mem_printf("%s/%s", d->path, log_checkpoint_name(k));
            finding_add(out, VERIFY_CHECKPOINT, path, -1, "%s", d->faults[k].text);
            mem_free(path);
        }
    }
    for (size_t i = 0; i < ld->partition_count; i++)
        if (!ld->partitions[i].dir->live) check_partition(out, &ld->partitions[i], &checks[i]);
}
