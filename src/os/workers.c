/* workers.c: a queue of jobs and the threads that take from it. */
#include "os/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/mem.h"
#include "os/thread.h"

struct workers {
    unsigned count;
    pthread_t *threads;
    void (*take)(void *arg, struct job *job); /* who has the jobs run instead of threads; NULL: nobody */
    void *take_arg;
    pthread_mutex_t lock; /* guards what follows; nothing else is taken while it is held */
    pthread_cond_t more;
    struct job *first, **end;
    bool closing;
};

/* Back on the loop that asked. */
static void job_return(struct loop_msg *msg)
{
    struct job *job = CONTAINER_OF(msg, struct job, msg);
    job->done(job);
}

void job_run(struct job *job)
{
    /* A job without `done` may free itself in `work`. */
    struct loop *loop = job->loop;
    void (*done)(struct job *) = job->done;
    job->work(job);
    if (!done) return;
    if (!loop) {
        done(job);
        return;
    }
    job->msg.run = job_return;
    loop_post(loop, &job->msg);
}

static struct job *workers_take(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->closing) pthread_cond_wait(&w->more, &w->lock);
    struct job *job = w->first;
    if (job) {
        w->first = job->next;
        if (!w->first) w->end = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

static void worker_main(void *arg)
{
    struct workers *w = arg;
    for (struct job *job; (job = workers_take(w)) != NULL;) job_run(job);
}

struct workers *workers_new_given(void (*take)(void *arg, struct job *job), void *arg)
{
    struct workers *w = mem_zalloc(1, sizeof *w);
    w->take = take;
    w->take_arg = arg;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    return w;
}

enum err workers_new(struct workers **out, const char *name, unsigned count, struct fault *f)
{
    struct workers *w = workers_new_given(NULL, NULL);
    w->threads = mem_zalloc(count, sizeof *w->threads);
    for (unsigned i = 0; i < count; i++) {
        char *thread_name = mem_printf("%s-%u", name, i);
        enum err e = thread_start(&w->threads[i], thread_name, worker_main, w, f);
        mem_free(thread_name);
        if (e) {
            workers_free(w);
            return e;
        }
        w->count++;
    }
    *out = w;
    return OK;
}

void workers_free(struct workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->count; i++) thread_join(w->threads[i]);
    ASSERT(!w->first);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    mem_free(w->threads);
    mem_free(w);
}

void workers_submit(struct workers *w, struct job *job)
{
    if (w->take) {
        w->take(w->take_arg, job);
        return;
    }
    if (w->count == 0) {
        job_run(job);
        return;
    }
    job->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->end = job;
    w->end = &job->next;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}
