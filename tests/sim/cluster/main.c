/* main.c: the program sim_cluster. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner.h"
#include "world.h"

struct program {
    struct world_options opt;
    bool twice; /* each seed is run twice, and must give the same history */
};

static int cluster_flag(void *arg, const char *flag, const char *value)
{
    struct program *p = arg;
    uint64_t n;
    if (strcmp(flag, "--twice") == 0) {
        p->twice = true;
        return 1;
    }
    if (strcmp(flag, "--quiet") == 0) {
        p->opt.quiet = true;
        return 1;
    }
    if (strcmp(flag, "--brokers") != 0 || !runner_number(value, &n) || n < 1 || n > NODES_MAX) return 0;
    p->opt.nodes = (int)n;
    return 2;
}

static void cluster_start(void *arg)
{
    (void)arg;
}

/* In a process of its own, since the limits of log lines live as long as a process. */
static struct world_result run_apart(uint64_t seed, const struct world_options *opt)
{
    struct world_result r = {.failed = true};
    int ends[2];
    if (pipe(ends) < 0) return r;
    pid_t pid = fork();
    if (pid == 0) {
        r = world_run(seed, opt);
        _exit(write(ends[1], &r, sizeof r) == sizeof r ? 0 : 1);
    }
    close(ends[1]);
    if (pid < 0 || read(ends[0], &r, sizeof r) != sizeof r) r.failed = true;
    close(ends[0]);
    if (pid > 0) waitpid(pid, NULL, 0);
    return r;
}

static struct runner_outcome cluster_run(void *arg, uint64_t seed, bool verbose)
{
    const struct program *p = arg;
    struct world_options opt = p->opt;
    opt.verbose = verbose;
    opt.debug = verbose && getenv("SIM_LOG");
    opt.logs = p->twice;
    struct world_result r = p->twice ? run_apart(seed, &opt) : world_run(seed, &opt);
    if (p->twice && !verbose) {
        struct world_result again = run_apart(seed, &opt);
        if (again.hash != r.hash) fprintf(stderr, "seed %" PRIu64 " does not replay\n", seed);
        r.failed |= again.hash != r.hash;
    }
    return (struct runner_outcome){.failed = r.failed, .counts = {r.acked, r.faults}};
}

int main(int argc, char **argv)
{
    (void)argc;
    struct program p = {0};
    return runner_main(
        &(struct runner_program){
            .name = "sim_cluster",
            .again = "./dev sim cluster --seed",
            .flags = " [--brokers N] [--quiet] [--twice]",
            .about = "--brokers: of as many brokers; without it the seed decides.  --quiet: nothing goes wrong.\n"
                     "--twice runs each seed twice and compares the histories, with all that brokers log.\n",
            .counted = {"batches acknowledged", "faults"},
            .arg = &p,
            .flag = cluster_flag,
            .start = cluster_start,
            .stop = cluster_start,
            .run = cluster_run,
        },
        argv);
}
