/* controller_watch.h: removes the /controller node of a controller that is dead, so that another is elected at once and
 * not when the session has timed out (DESIGN section 7).
 *
 * Only that very node goes: the change checks /controller_epoch, which every election raises in the change that takes
 * the office.  If the controller lives after all, it sees the loss and resigns; its epoch is fenced.  One that was
 * removed and is elected again with the same registration lives, and cannot be reached from here alone: this broker
 * leaves it in office from then on.  Thread: the home loop. */
#ifndef BROKER_CONTROLLER_WATCH_H
#define BROKER_CONTROLLER_WATCH_H

#include "broker/broker.h"

struct controller_watch;

struct controller_watch *controller_watch_new(struct broker *br);
/* After the store is closed; NULL is allowed. */
void controller_watch_free(struct controller_watch *cw);
/* For to_controller_on_dead(): the connection to the controller broke, and its port refuses.  Told with each try to
 * reach it, so that what fails for a passing reason is done when it has passed; one look is out at a time. */
void controller_watch_dead(void *controller_watch, int32_t controller_id);
/* The process that had this session is dead, as this one is its successor: if it was in office, the office is free. */
void controller_watch_succeed(struct controller_watch *cw, int64_t session);

#endif
