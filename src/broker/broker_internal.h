/* broker_internal.h: what broker.c, start.c and stop.c share.  Not for other files. */
#ifndef BROKER_BROKER_INTERNAL_H
#define BROKER_BROKER_INTERNAL_H

#include <pthread.h>

#include "broker/broker.h"
#include "os/signals.h"

/* A run of a broker, from broker_run()'s frame. */
struct broker_run {
    struct broker br;
    pthread_t *threads; /* of loops 1.. ; loop 0 runs on the main thread */
    unsigned threads_started;
    struct signals *signals;
    struct fault *fault; /* why it could not start */
    enum err err;
    bool started, stopping;
    struct timer drain_timer;
    struct loop_msg drained_msg;
    struct loop_msg *drain_msgs;
};

/* start.c: begins the steps on the home loop; ends in run_started() or run_stop(). */
void run_start(struct broker_run *run);
/* stop.c: any time on the home loop, once; ends in loop_stop() of all loops. */
void run_stop(struct broker_run *run);
/* A start that failed: remembers why and stops. */
void run_fail(struct broker_run *run, enum err e, const struct fault *f);

#endif
