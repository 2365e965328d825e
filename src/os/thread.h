/* thread.h: starting threads the way this process wants them: named, and deaf to signals (signals.h takes those). */
#ifndef OS_THREAD_H
#define OS_THREAD_H

#include <pthread.h>

#include "base/err.h"

/* The name is cut to the 15 characters that Linux keeps.  End with thread_join(). */
MUST_USE enum err thread_start(pthread_t *out, const char *name, void (*run)(void *arg), void *arg, struct fault *f);
void thread_join(pthread_t thread);

/* A condition for waits with a limit.  End with pthread_cond_destroy(). */
void thread_cond_init(pthread_cond_t *c);
/* pthread_cond_wait() for `us` microseconds at most; it may return sooner. */
void thread_cond_wait_for(pthread_cond_t *c, pthread_mutex_t *m, int64_t us);

#endif
