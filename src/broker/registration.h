/* registration.h: this broker's place in the cluster: its session with the coordination store, and its node below
 * /brokers/ids, by which the controller and the others know that it is there.
 *
 * While the store is out of reach nothing changes here: the broker goes on serving what it leads.  When the session has
 * expired the broker is out of the cluster.  It begins another session, registers anew, with a new broker epoch, and
 * reads the stored configuration again, as it may have missed changes; the controller on it leaves office and runs
 * again.  Until then it serves what it led, as Kafka does: others lead by now, and what replicates to it tells it so.
 *
 * Thread: the home loop. */
#ifndef BROKER_REGISTRATION_H
#define BROKER_REGISTRATION_H

#include "broker/broker_internal.h"

struct registration;

typedef void (*registration_done)(void *arg, enum err e, const struct fault *f);

/* Opens the store that the configuration asks for, as br->coord.  `done` when it can be used, or when it cannot be
 * reached in time. */
void registration_open(struct registration **out, struct broker_run *run, registration_done done, void *arg);
/* Registers the broker: br->epoch is its epoch from then on.  Once, after registration_open() and when br->id is known.
 * ERR_EXISTS: another broker has the id, or one of the addresses. */
void registration_enter(struct registration *reg, registration_done done, void *arg);
/* br->to_controller is there: from now on a dead controller is removed, see controller_watch.h. */
void registration_watch_controller(struct registration *reg);
/* After the store is closed; NULL is allowed. */
void registration_free(struct registration *reg);

#endif
