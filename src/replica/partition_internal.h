/* partition_internal.h: what partition.c, leader.c and follower.c share of one partition. */
#ifndef REPLICA_PARTITION_INTERNAL_H
#define REPLICA_PARTITION_INTERNAL_H

#include "replica/partition.h"

/* Raises it, never lowers it.  With or without the lock. */
void partition_raise_high_watermark(struct partition *p, int64_t high_watermark);
/* Something moved: the checkpoints are out of date, ended transactions may be stable, and waiters that it meets wake.
 * Without the lock. */
void partition_progressed(struct partition *p);
void partition_wake_all(struct partition *p);
/* The log's end moved and followers have a say.  In leader.c. */
void partition_advance_led(struct partition *p);

#endif
