/* runner.h: what a simulation's program has in common with the other's: runs seeds in several processes, shows how far
 * it is, and tells the history of one that failed.
 *
 * Each process runs every n-th seed; what one of them does not survive (a broken invariant, a sanitizer) is found by
 * the others' parent and run once more, telling each step. */
#ifndef TESTS_SIM_RUNNER_H
#define TESTS_SIM_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

enum { RUNNER_COUNTS = 2 };

struct runner_outcome {
    bool failed; /* told on standard error */
    int64_t counts[RUNNER_COUNTS];
};

struct runner_program {
    const char *name;                   /* "sim_log" */
    const char *again;                  /* what the seed's number is behind, to see one: "./dev sim log --seed" */
    const char *flags;                  /* its own, for the usage, " [--steps N]"; and */
    const char *about;                  /*   lines that say more about them */
    const char *counted[RUNNER_COUNTS]; /* "crash points": what outcomes count */
    void *arg;
    /* One of its own flags, with the word behind it, which may be NULL: how many words it takes, 0 for one that it does
     * not know.  NULL: it has none. */
    int (*flag)(void *arg, const char *flag, const char *value);
    /* Before the first seed of a process, and after the last. */
    void (*start)(void *arg);
    void (*stop)(void *arg);
    /* Runs one; `verbose`: tells each step on standard error. */
    struct runner_outcome (*run)(void *arg, uint64_t seed, bool verbose);
};

/* The program's exit status. */
int runner_main(const struct runner_program *program, char **argv);
/* The number, or false. */
bool runner_number(const char *text, uint64_t *out);

#endif
