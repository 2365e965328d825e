/* thread.c: a thread's first steps: its name, then its work.  Signals are blocked by the parent around the start, so
 * that there is no moment at which the child could get one. */
#include "os/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

enum { THREAD_NAME_SIZE = 16 };

struct thread_start {
    char name[THREAD_NAME_SIZE];
    void (*run)(void *arg);
    void *arg;
};

static void *thread_main(void *arg)
{
    struct thread_start start = *(struct thread_start *)arg;
    mem_free(arg);
    pthread_setname_np(pthread_self(), start.name);
    start.run(start.arg);
    return NULL;
}

enum err thread_start(pthread_t *out, const char *name, void (*run)(void *arg), void *arg, struct fault *f)
{
    struct thread_start *start = mem_zalloc(1, sizeof *start);
    snprintf(start->name, sizeof start->name, "%s", name);
    start->run = run;
    start->arg = arg;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(out, NULL, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failure) return OK;
    mem_free(start);
    return fault_set(f, ERR_TOO_MANY, "The thread %s cannot be started: %s.", name, strerror(failure));
}

void thread_join(pthread_t thread)
{
    ASSERT(pthread_join(thread, NULL) == 0);
}

void thread_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ASSERT(pthread_cond_init(c, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

void thread_cond_wait_for(pthread_cond_t *c, pthread_mutex_t *m, int64_t us)
{
    /* Nobody waits longer in one go, and the sum stays in range. */
    const int64_t us_max = INT64_C(24) * 3600 * 1000 * 1000;
    us = MIN(MAX(us, 0), us_max);
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += us / 1000000;
    at.tv_nsec += us % 1000000 * 1000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(c, m, &at);
}
