/* adopt.h: what the log directories hold and the embedded coordination store does not know.
 *
 * A single node that starts for the first time on directories that Apache Kafka left takes over what is in them: topics
 * with their ids (partition.metadata), partition counts (the directories), itself as the only replica, leader epochs no
 * lower than those in the logs.  What Kafka had in ZooKeeper alone is not there to be taken; so that nothing is lost
 * for want of a topic's settings, records of adopted topics are kept until somebody says how long (retention.ms=-1),
 * and topics that were compacted go on being compacted.  `barnabas coord import` takes the settings, too.
 *
 * Any later start adopts nothing: directories that the store does not know are named and left alone.  But Kafka may
 * have had the directories in between, so leader epochs are compared each time: they never fall along a log. Thread:
 * home loop; the functions are steps of start.c. */
#ifndef BROKER_ADOPT_H
#define BROKER_ADOPT_H

#include "broker/broker.h"
#include "coord/znodes.h"

struct adopt;

/* A block of producer ids, counted as given away, for a store that takes over what ZooKeeper had: those after it are
 * drawn from far above any that Kafka gives, so that in whatever order the two have a directory no two producers get
 * one id. */
struct znode_producer_ids adopt_producer_ids(struct rng *rng, int32_t broker_id);

/* Told on the home loop, once a step; `f` explains and is lent. */
typedef void (*adopt_done)(void *arg, enum err e, const struct fault *f);

struct adopt *adopt_new(struct broker *br);
/* When no step is under way any more, or its loops have stopped. */
void adopt_free(struct adopt *ad);
/* Before the logs are opened: adopts, or reads what the store knows and warns of what it does not. */
void adopt_look(struct adopt *ad, adopt_done done, void *arg);
/* After: raises the store's leader epochs to those in the logs. */
void adopt_raise_epochs(struct adopt *ad, adopt_done done, void *arg);

#endif
