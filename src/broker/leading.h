/* leading.h: what the partitions that this broker leads (replica/leaders.h) need to know of it: who is alive, and how
 * the controller is asked for another in-sync set. */
#ifndef BROKER_LEADING_H
#define BROKER_LEADING_H

#include "broker/broker.h"

struct leading;

/* For replicas_options.  br->to_controller is there before a controller speaks. */
struct leading *leading_new(struct broker *br);
void leading_free(struct leading *ld);
struct leaders_options leading_options(struct leading *ld, const struct config *cfg);

#endif
