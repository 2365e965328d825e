/* main.c: the program sim_groups. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "runner.h"
#include "world.h"

static void groups_start(void *arg)
{
    (void)arg;
    struct fault f = {.code = OK};
    bool loud = getenv("SIM_LOG") != NULL;
    log_init(NULL, NULL, loud ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR);
    if (!log_open_file(loud ? "" : "/dev/null", &f)) return;
    fprintf(stderr, "sim_groups: %s\n", f.text);
    exit(1);
}

static void groups_stop(void *arg)
{
    (void)arg;
    log_close();
}

static struct runner_outcome groups_run(void *arg, uint64_t seed, bool verbose)
{
    (void)arg;
    struct world_result r = world_run(seed, verbose);
    return (struct runner_outcome){.failed = r.failed, .counts = {r.rebalances, r.moves}};
}

int main(int argc, char **argv)
{
    (void)argc;
    return runner_main(
        &(struct runner_program){
            .name = "sim_groups",
            .again = "./dev sim groups --seed",
            .flags = "",
            .about = "",
            .counted = {"generations", "moves of the coordinator"},
            .start = groups_start,
            .stop = groups_stop,
            .run = groups_run,
        },
        argv);
}
