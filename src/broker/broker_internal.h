/* broker_internal.h: what broker.c, start.c and stop.c share.  Not for other files. */
#ifndef BROKER_BROKER_INTERNAL_H
#define BROKER_BROKER_INTERNAL_H

#include <pthread.h>

#include "broker/broker.h"
#include "os/signals.h"

struct leaving;
struct registration;
struct start;

/* A run of a broker. */
struct broker_run {
    struct broker br;
    struct broker_env env;
    pthread_t *threads; /* of loops 1.. ; loop 0 runs on the main thread */
    unsigned threads_started;
    struct signals *signals;
    struct start *start; /* while it starts */
    struct registration *registration;
    struct leaving *leaving; /* a controlled shutdown has begun */
    struct fault fault;      /* why it could not start */
    enum err err;
    bool started, stopping, ended;
    bool drained, controller_stopping, controller_stopped; /* stop.c: how far it is */
    struct timer drain_timer;
    struct timer dir_timer; /* log_dirs.c */
    struct loop_msg start_msg, drained_msg;
};

/* start.c: begins the steps on the home loop; ends in run_started() or run_stop(). */
void run_start(struct broker_run *run);
/* What is left of a start that was cut off; the loops have stopped. */
void run_start_abandon(struct broker_run *run);
/* stop.c: any time on the home loop, until `stopping`; ends in loop_stop() of all loops.  A second time it does not
 * wait for others to take over any more. */
void run_stop(struct broker_run *run);
/* A start that failed: remembers why and stops. */
void run_fail(struct broker_run *run, enum err e, const struct fault *f);

#endif
