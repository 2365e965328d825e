/* coordination.h: opens the coordination store that the configuration asks for: the ensemble of zookeeper.connect, or,
 * for a broker that is alone, an own one in the first of log.dirs. */
#ifndef BROKER_COORDINATION_H
#define BROKER_COORDINATION_H

#include "broker/broker_internal.h"
#include "coord/coord.h"

/* Sets br->coord.  The listener hears COORD_CONNECTED when it can be used.  Home loop. */
MUST_USE enum err coordination_open(struct broker_run *run, struct coord_listener listener, struct fault *f);

#endif
