/* leading.h: what the partitions that this broker leads (replica/leaders.h) need to know of it: who is alive, and the
 * way to the controller.  Home loop. */
#ifndef BROKER_LEADING_H
#define BROKER_LEADING_H

#include "broker/broker.h"

struct leading;

/* Before the replicas are opened; frees nothing that is out. */
struct leading *leading_new(struct broker *br);
void leading_free(struct leading *lg);
/* For replicas_options. */
struct leaders_options leading_options(struct leading *lg, const struct config *cfg);

#endif
