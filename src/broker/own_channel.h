/* own_channel.h: how the controller on this broker speaks to this broker: the same messages that others get over the
 * network, as calls.  LeaderAndIsr and StopReplica go to the replicas, UpdateMetadata to the metadata.  Home loop. */
#ifndef BROKER_OWN_CHANNEL_H
#define BROKER_OWN_CHANNEL_H

#include "broker/broker_internal.h"

struct own_channel;

/* Starts the controller, with this broker as the one it speaks to.  `first_metadata` is called once, when the
 * controller is in office and its first UpdateMetadata and LeaderAndIsr are applied. */
void own_channel_open(struct own_channel **out, struct broker_run *run, void (*first_metadata)(void *arg), void *arg);
void own_channel_free(struct own_channel *ch);

#endif
