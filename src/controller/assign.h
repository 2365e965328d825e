/* assign.h: which brokers hold a new topic's partitions, as Kafka chooses them.  Pure.  Thread: any. */
#ifndef CONTROLLER_ASSIGN_H
#define CONTROLLER_ASSIGN_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "os/rng.h"
#include "wire/kerr.h"

struct assign_broker {
    int32_t id;
    struct str rack; /* null: unknown; racks count only when every broker has one */
};

struct assign_request {
    const struct assign_broker *brokers; /* sorted by id */
    size_t broker_count;
    int32_t partition_count; /* how many to place */
    int16_t replication_factor;
    int32_t first_partition; /* number of the first one; 0 for a new topic */
    int64_t fixed_start;     /* index of the broker that leads partition 0; -1: drawn from `rng` */
    struct rng *rng;
};

/* The first replicas go round the brokers from the start on, the others follow with a shift that grows each time round,
 * so that no two brokers share all their partitions.  With racks, replicas go to as many different ones as there are.
 * *out: partition_count * replication_factor broker ids in `a`.  INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR with
 * *message in `a`. */
enum kerr assign_replicas(const struct assign_request *rq, struct arena *a, int32_t **out, struct str *message);

#endif
