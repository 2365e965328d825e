/* control_versions.h: LeaderAndIsr, UpdateMetadata and StopReplica of old versions, made like those of new ones:
 * partitions by topic, endpoints by listener.  And the answers the other way.  Thread: any. */
#ifndef BROKER_CONTROL_VERSIONS_H
#define BROKER_CONTROL_VERSIONS_H

#include "base/arena.h"
#include "wire/gen/leader_and_isr.h"
#include "wire/gen/stop_replica.h"
#include "wire/gen/update_metadata.h"

/* The request, or one in `a` that lends from it. */
const struct leader_and_isr_request *leader_and_isr_modern(const struct leader_and_isr_request *in, int16_t version,
                                                           struct arena *a);
const struct update_metadata_request *update_metadata_modern(const struct update_metadata_request *in, int16_t version,
                                                             struct arena *a);
const struct stop_replica_request *stop_replica_modern(const struct stop_replica_request *in, int16_t version,
                                                       struct arena *a);

/* Copies an answer, as that version has it, into `a`; names stay lent from the request. */
void leader_and_isr_answer(struct leader_and_isr_response *out, const struct leader_and_isr_response *res,
                           int16_t version, struct arena *a);
void stop_replica_answer(struct stop_replica_response *out, const struct stop_replica_response *res, struct arena *a);

#endif
