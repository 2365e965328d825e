/* common.h: what several handlers do.  Thread: the connection's loop. */
#ifndef BROKER_API_COMMON_H
#define BROKER_API_COMMON_H

#include <stdint.h>

#include "broker/broker.h"
#include "broker/request.h"

/* Bits of AclOperation.  Without an authorizer everybody may do all that a resource knows of, and Kafka says so. */
enum {
    ACL_READ = BIT(3),
    ACL_WRITE = BIT(4),
    ACL_CREATE = BIT(5),
    ACL_DELETE = BIT(6),
    ACL_ALTER = BIT(7),
    ACL_DESCRIBE = BIT(8),
    ACL_CLUSTER_ACTION = BIT(9),
    ACL_DESCRIBE_CONFIGS = BIT(10),
    ACL_ALTER_CONFIGS = BIT(11),
    ACL_IDEMPOTENT_WRITE = BIT(12),
    ACL_ALL_OF_TOPIC = ACL_READ | ACL_WRITE | ACL_CREATE | ACL_DELETE | ACL_ALTER | ACL_DESCRIBE |
                       ACL_DESCRIBE_CONFIGS | ACL_ALTER_CONFIGS,
    ACL_ALL_OF_GROUP = ACL_READ | ACL_DELETE | ACL_DESCRIBE,
    ACL_ALL_OF_CLUSTER = ACL_CREATE | ACL_ALTER | ACL_DESCRIBE | ACL_CLUSTER_ACTION | ACL_DESCRIBE_CONFIGS |
                         ACL_ALTER_CONFIGS | ACL_IDEMPOTENT_WRITE
};

/* The listener the client came by, whose addresses it is told. */
struct str api_listener(const struct request *rq);
/* The node's address there; NULL when it is not alive or has none on that listener. */
const struct node_endpoint *api_endpoint(const struct cluster_view *cluster, int32_t node, struct str listener);
/* Every topic; the list comes from the arena, the topics are lent for this turn. */
const struct topic_view **api_all_topics(struct request *rq, int32_t *count);
/* Lends an immutable array to an answer that is encoded in this turn; the codec only reads it. */
static inline int32_t *api_lend_ids(const int32_t *ids)
{
    return (int32_t *)(uintptr_t)ids;
}

#endif
