/* in_sync.h: what the leader of a partition knows of its followers, the in-sync set, and how that set changes.
 *
 * The leader learns from each follower's fetches how far its log goes.  The high watermark is the smallest end among the
 * in-sync replicas.  The set changes only by the controller: the leader proposes (AlterPartition, KIP-497) and takes
 * over what is answered.  Until the answer it is careful both ways: a replica that it wants to let in holds the high
 * watermark back already, and one that it wants to put out holds it back still (KIP-497, "maximal ISR").
 *
 * Part of struct partition, under partition.lock; not for files outside replica/. */
#ifndef REPLICA_IN_SYNC_H
#define REPLICA_IN_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/kerr.h"

struct partition;

/* One of the other replicas of a partition that is led here. */
struct follower {
    int32_t broker_id;
    int64_t broker_epoch;   /* as of its last fetch; -1: it does not say (before KIP-903) */
    int64_t log_start, end; /* of its log; -1: it has not fetched since we lead */
    int64_t fetched_ms;     /* monotonic: when its last fetch came, */
    int64_t end_then;       /*   and where our log ended */
    int64_t caught_up_ms;   /* when it last had all that we had */
};

/* A set that the controller has not answered yet. */
struct isr_proposal {
    int32_t *ids;
    int64_t *broker_epochs;
    int32_t count;
    int32_t leader_epoch, partition_epoch; /* what it builds upon */
};

#endif
