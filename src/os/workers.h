/* workers.h: threads for what would keep a loop waiting: fsync, cold reads, recovery, SQLite, name look-ups. */
#ifndef OS_WORKERS_H
#define OS_WORKERS_H

#include "base/err.h"
#include "os/loop.h"

struct workers;

/* Embedded in what it is about; belongs to the pool from workers_submit() until `done` runs. */
struct job {
    struct loop_msg msg; /* carries it back */
    struct job *next;
    struct loop *loop; /* where `done` runs; NULL: `done` runs on the worker */
    void (*work)(struct job *job);
    void (*done)(struct job *job); /* may be NULL */
};

/* `count` threads, named `name`-N; 0: jobs run at once inside workers_submit() (simulator, tests). */
MUST_USE enum err workers_new(struct workers **out, const char *name, unsigned count, struct fault *f);
/* No threads: each job is given to `take`, which has job_run() run it some time, on the thread of the job's loop.  For
 * an embedder that decides when things happen. */
struct workers *workers_new_given(void (*take)(void *arg, struct job *job), void *arg);
void job_run(struct job *job);
/* Finishes what was submitted, then ends the threads. */
void workers_free(struct workers *w);
/* Any thread.  Jobs start in the order they are submitted. */
void workers_submit(struct workers *w, struct job *job);

#endif
