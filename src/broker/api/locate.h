/* locate.h: from what a request names to the replica here.  Thread: the request's loop; results are good for one turn.
 */
#ifndef BROKER_API_LOCATE_H
#define BROKER_API_LOCATE_H

#include "broker/broker.h"

struct located {
    struct topic_replicas *topic;
    struct partition *partition;
};

/* The replica of a partition named by topic name or, where that is null, by id.
 * KERR_UNKNOWN_TOPIC_OR_PARTITION, KERR_UNKNOWN_TOPIC_ID: nobody has it.  KERR_NOT_LEADER_OR_FOLLOWER: others have. */
enum kerr locate_replica(struct broker *br, struct str name, struct uuid id, int32_t index, struct located *out);
/* The same, and this broker must lead it in the epoch the client knows (-1: it does not say), see
 * partition_check_leader(). */
enum kerr locate_leader(struct broker *br, struct str name, struct uuid id, int32_t index, int32_t client_epoch,
                        struct located *out);

#endif
