/* by_leader.h: questions about partitions, each put to its partition's leader (internal).  Thread: the cluster's. */
#ifndef CLIENT_BY_LEADER_H
#define CLIENT_BY_LEADER_H

#include "client/cluster.h"

/* One partition on its way. */
struct leader_item {
    struct topic_partition of;
    int32_t index; /* in the caller's array */
    int32_t node_id;
    bool done;
    int16_t kerr; /* the last one, when it is not done */
};

/* Asks one leader about partitions that it leads, sorted by topic and partition, and marks them done or gives them a
 * code that may go away.  False: no answer. */
typedef bool (*leader_ask_fn)(struct attempt *at, struct peer *p, struct leader_item **items, int32_t count, void *arg,
                              struct arena *a, struct failure *f);

/* Asks all leaders, again and again until every item is done, has an error that stays, or the time is over; an item
 * that is not done then keeps its code.  False: there is nobody to ask, or an answer was none. */
MUST_USE bool leaders_ask(struct attempt *at, struct leader_item *items, int32_t count, leader_ask_fn ask, void *arg,
                          struct arena *a, struct failure *f);

/* Finds a partition among those of one question; NULL. */
struct leader_item *leader_item_find(struct leader_item **items, int32_t count, struct str topic, int32_t partition);

#endif
