/* control.h: what a controller tells this broker: LeaderAndIsr and StopReplica go to the replicas, UpdateMetadata to
 * the metadata.  The controller may be the one of this process (cluster_channel.h) or one that speaks over the network
 * (broker/api/leader_and_isr.c and its neighbours); both come in here, and wait for each other.
 *
 * A request is refused that comes from a controller which has been replaced (STALE_CONTROLLER_EPOCH: its epoch is below
 * the highest that has been seen), or that was meant for an earlier life of this broker (STALE_BROKER_EPOCH).
 * Thread: the home loop. */
#ifndef BROKER_CONTROL_H
#define BROKER_CONTROL_H

#include "controller/controller.h"

struct broker;
struct control;

struct control *control_new(struct broker *br);
/* What was asked must have been answered. */
void control_free(struct control *ct);

/* The request is lent until `reply`, which comes in a later turn of the loop and never brings an error: a refusal is an
 * answer.  Requests of old versions must have been made like new ones (control_versions.h).  They are checked, since
 * anybody may send them: INVALID_REQUEST. */
void control_leader_and_isr(struct control *ct, const struct leader_and_isr_request *rq, leader_and_isr_reply_fn reply,
                            void *arg);
void control_update_metadata(struct control *ct, const struct update_metadata_request *rq,
                             update_metadata_reply_fn reply, void *arg);
void control_stop_replica(struct control *ct, const struct stop_replica_request *rq, stop_replica_reply_fn reply,
                          void *arg);

/* Called once, when the first UpdateMetadata has come and no LeaderAndIsr is left to be applied: now the broker knows
 * the cluster and has its roles. */
void control_on_first(struct control *ct, void (*first)(void *arg), void *arg);
/* Told of each broker that has come, has gone, or is reached elsewhere than before, after an UpdateMetadata. */
void control_on_broker_changed(struct control *ct, void (*changed)(void *arg, int32_t broker_id), void *arg);

#endif
