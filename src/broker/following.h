/* following.h: what this broker's fetchers (replica/fetchers.h) need to know of it, and their settings.  Home loop. */
#ifndef BROKER_FOLLOWING_H
#define BROKER_FOLLOWING_H

#include "broker/broker.h"

/* For replicas_options: the fetchers, which are there before a controller speaks. */
struct following broker_following(struct broker *br);
/* Makes the fetchers.  We know who we are, and `br->control` is there, which tells of brokers that change. */
void following_open(struct broker *br);
/* The configuration has a new snapshot. */
void following_configure(struct broker *br, const struct config *cfg);

#endif
