/* admin_offsets.h: offsets of partitions by time, and the time of a record by its offset, asked of the leaders.
 * Thread: the cluster's. */
#ifndef CLIENT_ADMIN_OFFSETS_H
#define CLIENT_ADMIN_OFFSETS_H

#include "client/cluster.h"

enum { OFFSETS_LATEST = -1, OFFSETS_EARLIEST = -2 };

struct offset_query {
    struct topic_partition of;
    int64_t timestamp; /* the first record at or after it; or OFFSETS_* */
    /* The answer: */
    int16_t kerr;   /* of this partition; the others have their answers all the same */
    int64_t offset; /* -1: no such record */
};

/* False only when there is no answer for anybody.  A partition that there is not is told at once; one without a leader
 * keeps its error when the time is over. */
MUST_USE bool admin_list_offsets(struct cluster *cl, struct offset_query *queries, int32_t count, struct arena *a,
                                 struct failure *f);

struct record_query {
    struct topic_partition of;
    int64_t offset;
    /* The answer: */
    int16_t kerr;
    bool found;        /* false: consumers see no record there or later */
    int64_t timestamp; /* of the first record at that offset or after it; -1: it has none */
};

/* Reads those records.  Partitions are asked for together, a little of each; where that little does not hold the
 * record, a second request asks for one batch of that partition alone. */
MUST_USE bool admin_record_times(struct cluster *cl, struct record_query *queries, int32_t count, struct arena *a,
                                 struct failure *f);

#endif
