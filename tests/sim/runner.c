/* runner.c: see runner.h. */
#include "runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"

enum { JOBS_MAX = 64, SEEDS = 1000, PROGRESS_US = 200 * 1000 };

struct options {
    uint64_t first, count;
    bool one;
    int jobs;
};

/* Shared by the processes. */
struct runner {
    _Atomic uint64_t seed, done;
    _Atomic int64_t counts[RUNNER_COUNTS];
    _Atomic bool failed;
    pid_t pid;
};

static void usage(const struct runner_program *p)
{
    fprintf(stderr,
            "usage: %s [--seeds N] [--first SEED] [--seed SEED] [--jobs N]%s\n"
            "Runs N seeds (default %d) from SEED on (default 1); --seed runs one and tells what it does.\n%s",
            p->name, p->flags, SEEDS, p->about);
    exit(2);
}

bool runner_number(const char *text, uint64_t *out)
{
    char *end;
    if (!text || !*text || *text == '-') return false;
    *out = strtoull(text, &end, 10);
    return *end == 0;
}

/* The number behind a flag of the runner's; false: it is none of those. */
static bool parse_one(struct options *o, const char *flag, uint64_t n)
{
    if (strcmp(flag, "--seeds") == 0)
        o->count = n;
    else if (strcmp(flag, "--first") == 0)
        o->first = n;
    else if (strcmp(flag, "--jobs") == 0)
        o->jobs = (int)MIN(MAX(n, 1), JOBS_MAX);
    else if (strcmp(flag, "--seed") == 0) {
        o->one = true;
        o->first = n;
    } else
        return false;
    return true;
}

static struct options parse(const struct runner_program *p, char **argv)
{
    struct options o = {.first = 1, .count = SEEDS, .jobs = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    for (char **a = argv + 1; *a;) {
        uint64_t n;
        int words = p->flag ? p->flag(p->arg, a[0], a[1]) : 0;
        if (words == 0) {
            if (!runner_number(a[1], &n) || !parse_one(&o, a[0], n)) usage(p);
            words = 2;
        }
        a += words;
    }
    return o;
}

static void run_share(const struct runner_program *p, const struct options *o, struct runner *rn, int index)
{
    p->start(p->arg);
    for (uint64_t i = (uint64_t)index; i < o->count && !rn->failed; i += (uint64_t)o->jobs) {
        rn->seed = o->first + i;
        struct runner_outcome outcome = p->run(p->arg, rn->seed, false);
        for (int k = 0; k < RUNNER_COUNTS; k++) rn->counts[k] += outcome.counts[k];
        if (outcome.failed) rn->failed = true;
        rn->done++;
    }
    p->stop(p->arg);
    exit(rn->failed ? 1 : 0);
}

static void show(const struct runner_program *p, const struct options *o, const struct runner *runners, bool last)
{
    uint64_t done = 0;
    int64_t counts[RUNNER_COUNTS] = {0};
    for (int i = 0; i < o->jobs; i++) {
        done += runners[i].done;
        for (int k = 0; k < RUNNER_COUNTS; k++) counts[k] += runners[i].counts[k];
    }
    if (!last && !isatty(STDOUT_FILENO)) return;
    printf("%s%" PRIu64 " of %" PRIu64 " seeds", isatty(STDOUT_FILENO) ? "\r" : "", done, o->count);
    for (int k = 0; k < RUNNER_COUNTS; k++) printf(", %" PRId64 " %s", counts[k], p->counted[k]);
    fputs(last ? "\n" : "", stdout);
    fflush(stdout);
}

/* The seed's history, told by a process of its own, which may die of it. */
static void tell(const struct runner_program *p, uint64_t seed)
{
    fprintf(stderr, "\nseed %" PRIu64 " failed; again: %s %" PRIu64 "\n", seed, p->again, seed);
    pid_t pid = fork();
    if (pid != 0) {
        waitpid(pid, NULL, 0);
        return;
    }
    p->start(p->arg);
    p->run(p->arg, seed, true);
    _exit(1);
}

static int run_all(const struct runner_program *p, const struct options *o)
{
    struct runner *runners =
        mmap(NULL, sizeof(struct runner) * JOBS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (runners == MAP_FAILED) return 1;
    fflush(NULL);
    for (int i = 0; i < o->jobs; i++) {
        pid_t pid = fork();
        if (pid == 0) run_share(p, o, &runners[i], i);
        if (pid < 0) return 1;
        runners[i].pid = pid; /* by the parent alone: the child's is 0 */
    }
    int running = o->jobs, status, failed = 0;
    while (running > 0) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0) {
            show(p, o, runners, false);
            usleep(PROGRESS_US);
            continue;
        }
        running--;
        if (status == 0) continue;
        for (int i = 0; i < o->jobs; i++)
            if (runners[i].pid == pid && failed++ == 0) tell(p, runners[i].seed);
        for (int i = 0; i < o->jobs; i++) runners[i].failed = true; /* the others stop at their next seed */
    }
    show(p, o, runners, true);
    munmap(runners, sizeof(struct runner) * JOBS_MAX);
    return failed ? 1 : 0;
}

int runner_main(const struct runner_program *p, char **argv)
{
    struct options o = parse(p, argv);
    if (!o.one) return run_all(p, &o);
    p->start(p->arg);
    struct runner_outcome outcome = p->run(p->arg, o.first, true);
    p->stop(p->arg);
    printf("seed %" PRIu64 ": %s", o.first, outcome.failed ? "failed" : "passed");
    for (int k = 0; k < RUNNER_COUNTS; k++) printf(", %" PRId64 " %s", outcome.counts[k], p->counted[k]);
    fputs("\n", stdout);
    return outcome.failed ? 1 : 0;
}
