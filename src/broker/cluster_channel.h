/* cluster_channel.h: how the controller on this broker speaks to all brokers: to its own by calls (control.h), to the
 * others over a link each.  Home loop.
 *
 * What is sent to a broker arrives in order and is sent again, from the first that was not answered on, when the link
 * was down, until the broker's registration is gone; so a broker may get a message twice, as from Kafka.  Several are
 * out at a time: a broker handles what comes over one connection in its order.
 *
 * A link that is refused means that the process is gone: see controller_broker_unreachable(). */
#ifndef BROKER_CLUSTER_CHANNEL_H
#define BROKER_CLUSTER_CHANNEL_H

#include "broker/broker_internal.h"

struct cluster_channel;

/* Starts the controller, which speaks through it. */
void cluster_channel_open(struct cluster_channel **out, struct broker_run *run);
/* After the controller has stopped. */
void cluster_channel_free(struct cluster_channel *ch);

#endif
