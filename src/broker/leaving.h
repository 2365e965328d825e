/* leaving.h: a controlled shutdown: before a broker of a cluster stops, it asks the controller to have others lead what
 * it leads, and goes on serving meanwhile.
 *
 * Bounded by controlled.shutdown.max.retries attempts, as Kafka's: an attempt for which no controller is known, or that
 * leaves partitions behind, is followed by another after controlled.shutdown.retry.backoff.ms; but all of them together
 * wait for a controller's answers no longer than controller.socket.timeout.ms.  A broker that knows of no other live
 * one does not ask: there is nobody to lead.  Thread: the home loop. */
#ifndef BROKER_LEAVING_H
#define BROKER_LEAVING_H

#include "broker/broker_internal.h"

struct leaving;

/* NULL: there is nothing to wait for.  Else `done` is called once, perhaps before it returns. */
struct leaving *leaving_begin(struct broker_run *run, void (*done)(void *arg), void *arg);
/* Waits no longer: `done` is called before it returns, or has been. */
void leaving_cut(struct leaving *lv);
/* After the loops have ended; NULL is allowed. */
void leaving_free(struct leaving *lv);

#endif
