/* identity.h: who this broker is: the cluster's id, from the store, and its own, from the configuration, the log
 * directories or, in a cluster, a counter in the store.
 *
 * Both stand in each log directory's meta.properties, and a directory of another cluster or broker ends the start:
 * its logs would be taken for those of partitions that have only the name in common.  Thread: home loop. */
#ifndef BROKER_IDENTITY_H
#define BROKER_IDENTITY_H

#include "broker/broker.h"

struct identity;

typedef void (*identity_done)(void *arg, enum err e, const struct fault *f);

/* Makes the nodes that are expected in a store, sets br->cluster_id and br->id, writes meta.properties where it is
 * missing.  `done` is called once; `f` is lent. */
void identity_find(struct broker *br, identity_done done, void *arg);

#endif
