/* sim.c: the program: runs seeds in several processes, shows how far it is, and tells the history of one that failed.
 *
 * Each process runs every n-th seed; what one of them does not survive (a broken invariant, a sanitizer) is found by
 * the others' parent and run once more, telling each step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/loop.h"
#include "sim.h"

enum { JOBS_MAX = 64, STEPS = 120, PROGRESS_US = 200 * 1000, SINGLE_STEPS = 50 };

struct options {
    uint64_t first, count;
    bool one, quiet, failures;
    int jobs, steps;
};

/* Shared by the processes. */
struct runner {
    _Atomic uint64_t seed, done;
    _Atomic int64_t crashes, faults;
    _Atomic bool failed;
    pid_t pid;
};

static void usage(void)
{
    fputs("usage: sim_log [--seeds N] [--first SEED] [--seed SEED] [--steps N] [--jobs N] [--failures]\n"
          "Runs N seeds (default 1000) from SEED on (default 1); --seed runs one and tells what it does.\n"
          "--failures: every call that can fail is made to fail once, by counting.\n",
          stderr);
    exit(2);
}

static uint64_t number_of(const char *text)
{
    char *end;
    if (!text) usage();
    unsigned long long n = strtoull(text, &end, 10);
    if (!*text || *end || *text == '-') usage();
    return n;
}

static struct options parse(char **argv)
{
    struct options o = {.first = 1, .count = 1000, .steps = STEPS, .jobs = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    for (char **a = argv + 1; *a; a++) {
        if (strcmp(*a, "--failures") == 0) {
            o.failures = true;
            continue;
        }
        uint64_t n = number_of(a[1]);
        if (strcmp(*a, "--seeds") == 0)
            o.count = n;
        else if (strcmp(*a, "--first") == 0)
            o.first = n;
        else if (strcmp(*a, "--steps") == 0)
            o.steps = (int)MIN(n, INT32_MAX);
        else if (strcmp(*a, "--jobs") == 0)
            o.jobs = (int)MIN(MAX(n, 1), JOBS_MAX);
        else if (strcmp(*a, "--seed") == 0) {
            o.one = true;
            o.first = n;
        } else
            usage();
        a++;
    }
    return o;
}

static struct loop *quiet_loop(void)
{
    struct loop *loop;
    struct fault f = {.code = OK};
    log_init(NULL, NULL, LOG_LEVEL_INFO);
    enum err e = log_open_file(getenv("SIM_LOG") ? "" : "/dev/null", &f); /* failing disks are noisy */
    if (!e) e = loop_new(&loop, clock_system(), 0, &f);
    if (!e) return loop;
    fprintf(stderr, "sim_log: %s\n", f.text);
    exit(1);
}

/* ---- One process */

/* Each kind of failure at each of the calls of a short history, one after the other. */
static bool run_failures(const struct options *o, struct runner *rn, uint64_t seed, struct loop *loop)
{
    static const struct {
        unsigned calls;
        enum err e;
    } kinds[] = {{FS_SIM_ALL, ERR_IO},
                 {FS_SIM_WRITE | FS_SIM_OPEN | FS_SIM_RENAME | FS_SIM_MKDIR, ERR_FULL},
                 {FS_SIM_OPEN | FS_SIM_LIST, ERR_TOO_MANY}};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (int64_t n = 0;; n++) {
            struct run_options run = {.seed = seed,
                                      .steps = MIN(o->steps, SINGLE_STEPS),
                                      .single = kinds[k].calls,
                                      .error = kinds[k].e,
                                      .fail_after = n,
                                      .loop = loop};
            struct run_result r = world_run(&run);
            rn->crashes += r.crashes;
            rn->faults += r.faults;
            if (r.failed) {
                fprintf(stderr, "call %" PRId64 " failed with %s; once more, in full:\n", n, err_name(kinds[k].e));
                run.verbose = true;
                world_run(&run);
                return false;
            }
            if (r.faults == 0) break; /* fewer calls than n: every one has had its turn */
        }
    }
    return true;
}

static void runner_main(const struct options *o, struct runner *rn, int index)
{
    struct loop *loop = quiet_loop();
    for (uint64_t i = (uint64_t)index; i < o->count && !rn->failed; i += (uint64_t)o->jobs) {
        rn->seed = o->first + i;
        if (o->failures) {
            if (!run_failures(o, rn, rn->seed, loop)) rn->failed = true;
        } else {
            struct run_result r = world_run(&(struct run_options){.seed = rn->seed, .steps = o->steps, .loop = loop});
            rn->crashes += r.crashes;
            rn->faults += r.faults;
            if (r.failed) rn->failed = true;
        }
        rn->done++;
    }
    loop_free(loop);
    log_close();
    exit(rn->failed ? 1 : 0);
}

/* ---- All of them */

static void show(const struct options *o, const struct runner *runners, bool last)
{
    uint64_t done = 0;
    int64_t crashes = 0, faults = 0;
    for (int i = 0; i < o->jobs; i++) {
        done += runners[i].done;
        crashes += runners[i].crashes;
        faults += runners[i].faults;
    }
    if (!last && !isatty(STDOUT_FILENO)) return;
    printf("%s%" PRIu64 " of %" PRIu64 " seeds, %" PRId64 " crash points, %" PRId64 " failed calls%s",
           isatty(STDOUT_FILENO) ? "\r" : "", done, o->count, crashes, faults, last ? "\n" : "");
    fflush(stdout);
}

/* The seed's history, told by a process of its own, which may die of it. */
static void tell(const struct options *o, uint64_t seed)
{
    fprintf(stderr, "\nseed %" PRIu64 " failed; again: ./dev sim --seed %" PRIu64 "\n", seed, seed);
    if (o->failures) return; /* the process has told */
    pid_t pid = fork();
    if (pid != 0) {
        waitpid(pid, NULL, 0);
        return;
    }
    world_run(&(struct run_options){.seed = seed, .steps = o->steps, .verbose = true, .loop = quiet_loop()});
    _exit(1);
}

static int run_all(const struct options *o)
{
    struct runner *runners =
        mmap(NULL, sizeof(struct runner) * JOBS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (runners == MAP_FAILED) return 1;
    fflush(NULL);
    for (int i = 0; i < o->jobs; i++) {
        pid_t pid = fork();
        if (pid == 0) runner_main(o, &runners[i], i);
        if (pid < 0) return 1;
        runners[i].pid = pid; /* by the parent alone: the child's is 0 */
    }
    int running = o->jobs, status, failed = 0;
    while (running > 0) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0) {
            show(o, runners, false);
            usleep(PROGRESS_US);
            continue;
        }
        running--;
        if (status == 0) continue;
        for (int i = 0; i < o->jobs; i++)
            if (runners[i].pid == pid && failed++ == 0) tell(o, runners[i].seed);
        for (int i = 0; i < o->jobs; i++) runners[i].failed = true; /* the others stop at their next seed */
    }
    show(o, runners, true);
    munmap(runners, sizeof(struct runner) * JOBS_MAX);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    struct options o = parse(argv);
    if (!o.one) return run_all(&o);
    struct loop *loop = quiet_loop();
    struct run_result r =
        world_run(&(struct run_options){.seed = o.first, .steps = o.steps, .verbose = true, .loop = loop});
    loop_free(loop);
    log_close();
    printf("seed %" PRIu64 ": %s, %" PRId64 " crash points\n", o.first, r.failed ? "failed" : "passed", r.crashes);
    return r.failed ? 1 : 0;
}
