/* by_coordinator.h: questions about groups, each put to its group's coordinator (internal).  Thread: the cluster's. */
#ifndef CLIENT_BY_COORDINATOR_H
#define CLIENT_BY_COORDINATOR_H

#include "client/admin_groups.h"

/* One group on its way. */
struct group_item {
    struct str group;
    int32_t index;           /* in the caller's array */
    struct node coordinator; /* its names in the question's arena */
    bool done;
    struct group_answer answer; /* the last one, when it is not done */
};

/* Asks one coordinator about its groups, sorted by name, and gives each its answer with group_item_answer().  False: no
 * answer. */
typedef bool (*coordinator_ask_fn)(struct attempt *at, struct peer *p, struct group_item **items, int32_t count,
                                   void *arg, struct arena *a, struct failure *f);

/* Asks all coordinators, again and again until every group has an answer that stays, or the time is over; then a group
 * keeps what was in the way.  False: there is nobody to ask, or an answer was none. */
MUST_USE bool coordinators_ask(struct cluster *cl, struct group_item *items, int32_t count, coordinator_ask_fn ask,
                               void *arg, struct arena *a, struct failure *f);

/* Done, unless the code says that the coordinator moved or is not ready. */
void group_item_answer(struct group_item *it, int16_t kerr, struct str message);
/* Finds a group among those of one question; NULL. */
struct group_item *group_item_find(struct group_item **items, int32_t count, struct str group);

#endif
