/* thread.h: starting threads the way this process wants them: named, and deaf to signals (signals.h takes those). */
#ifndef OS_THREAD_H
#define OS_THREAD_H

#include <pthread.h>

#include "base/err.h"

/* The name is cut to the 15 characters that Linux keeps.  End with thread_join(). */
MUST_USE enum err thread_start(pthread_t *out, const char *name, void (*run)(void *arg), void *arg, struct fault *f);
void thread_join(pthread_t thread);

#endif
