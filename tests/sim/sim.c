/* sim.c: the program sim_log: one seed of it, and the histories in which each call fails once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "os/loop.h"
#include "runner.h"
#include "sim.h"

enum { STEPS = 120, SINGLE_STEPS = 50 };

struct options {
    bool failures;
    int steps;
    struct loop *loop; /* lent to the runs: making one costs more than a run's step */
};

static int sim_flag(void *arg, const char *flag, const char *value)
{
    struct options *o = arg;
    uint64_t n;
    if (strcmp(flag, "--failures") == 0) {
        o->failures = true;
        return 1;
    }
    if (strcmp(flag, "--steps") != 0 || !runner_number(value, &n)) return 0;
    o->steps = (int)MIN(n, INT32_MAX);
    return 2;
}

static void sim_start(void *arg)
{
    struct options *o = arg;
    struct fault f = {.code = OK};
    log_init(NULL, NULL, LOG_LEVEL_INFO);
    enum err e = log_open_file(getenv("SIM_LOG") ? "" : "/dev/null", &f); /* failing disks are noisy */
    if (!e) e = loop_new(&o->loop, clock_system(), 0, &f);
    if (!e) return;
    fprintf(stderr, "sim_log: %s\n", f.text);
    exit(1);
}

static void sim_stop(void *arg)
{
    loop_free(((struct options *)arg)->loop);
    log_close();
}

/* Each kind of failure at each of the calls of a short history, one after the other. */
static struct runner_outcome run_failures(const struct options *o, uint64_t seed, bool verbose)
{
    static const struct {
        unsigned calls;
        enum err e;
    } kinds[] = {{FS_SIM_ALL, ERR_IO},
                 {FS_SIM_WRITE | FS_SIM_OPEN | FS_SIM_RENAME | FS_SIM_MKDIR, ERR_FULL},
                 {FS_SIM_OPEN | FS_SIM_LIST, ERR_TOO_MANY}};
    struct runner_outcome all = {.failed = false};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (int64_t n = 0;; n++) {
            struct run_options run = {.seed = seed,
                                      .steps = MIN(o->steps, SINGLE_STEPS),
                                      .single = kinds[k].calls,
                                      .error = kinds[k].e,
                                      .fail_after = n,
                                      .loop = o->loop};
            struct run_result r = world_run(&run);
            all.counts[0] += r.crashes;
            all.counts[1] += r.faults;
            all.failed = r.failed;
            if (r.failed && verbose) {
                fprintf(stderr, "call %" PRId64 " failed with %s; once more, in full:\n", n, err_name(kinds[k].e));
                run.verbose = true;
                world_run(&run);
            }
            if (r.failed) return all;
            if (r.faults == 0) break; /* fewer calls than n: every one has had its turn */
        }
    }
    return all;
}

static struct runner_outcome sim_run(void *arg, uint64_t seed, bool verbose)
{
    const struct options *o = arg;
    if (o->failures) return run_failures(o, seed, verbose);
    struct run_result r =
        world_run(&(struct run_options){.seed = seed, .steps = o->steps, .verbose = verbose, .loop = o->loop});
    return (struct runner_outcome){.failed = r.failed, .counts = {r.crashes, r.faults}};
}

int main(int argc, char **argv)
{
    (void)argc;
    struct options o = {.steps = STEPS};
    struct runner_program program = {
        .name = "sim_log",
        .again = "./dev sim log --seed",
        .flags = " [--steps N] [--failures]",
        .about = "--failures: every call that can fail is made to fail once, by counting.\n",
        .counted = {"crash points", "failed calls"},
        .arg = &o,
        .flag = sim_flag,
        .start = sim_start,
        .stop = sim_stop,
        .run = sim_run,
    };
    return runner_main(&program, argv);
}
