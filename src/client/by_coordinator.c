/* by_coordinator.c: see by_coordinator.h. */
#include "client/by_coordinator.h"

#include <stdlib.h>

static int compare_groups(const void *a, const void *b)
{
    return str_compare((*(struct group_item *const *)a)->group, (*(struct group_item *const *)b)->group);
}

static int compare_nodes(const void *a, const void *b)
{
    int32_t x = (*(struct group_item *const *)a)->coordinator.id, y = (*(struct group_item *const *)b)->coordinator.id;
    return x != y ? (x > y) - (x < y) : compare_groups(a, b);
}

struct group_item *group_item_find(struct group_item **items, int32_t count, struct str group)
{
    struct group_item key = {.group = group}, *key_at = &key;
    struct group_item **found = bsearch(&key_at, items, (size_t)count, sizeof(struct group_item *), compare_groups);
    return found ? *found : NULL;
}

static bool is_coordinator_trouble(int16_t kerr)
{
    return kerr == KERR_COORDINATOR_LOAD_IN_PROGRESS || kerr == KERR_COORDINATOR_NOT_AVAILABLE ||
           kerr == KERR_NOT_COORDINATOR;
}

void group_item_answer(struct group_item *it, int16_t kerr, struct str message)
{
    it->answer = (struct group_answer){kerr, message};
    it->done = !is_coordinator_trouble(kerr);
}

static const struct group_item *first_pending(const struct group_item *items, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (!items[i].done) return &items[i];
    return NULL;
}

/* The groups that are still to be asked about and have a coordinator, sorted by it. */
static bool find_coordinators(struct attempt *at, struct group_item *items, int32_t count, struct group_item **pending,
                              int32_t *pending_count, struct arena *a, struct failure *f)
{
    struct coordinator *wanted = arena_array(a, struct coordinator, (size_t)count);
    struct group_item **of = arena_array(a, struct group_item *, (size_t)count);
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++) {
        if (items[i].done) continue;
        of[n] = &items[i];
        wanted[n++].group = items[i].group;
    }
    if (!cluster_find_coordinators(at, wanted, n, a, f)) return false;
    *pending_count = 0;
    for (int32_t i = 0; i < n; i++) {
        of[i]->coordinator = cluster_find_node(at->cl, wanted[i].node_id);
        /* What a later answer says of that node must not take the names away. */
        of[i]->coordinator.host = arena_str(a, of[i]->coordinator.host);
        of[i]->coordinator.rack = arena_str(a, of[i]->coordinator.rack);
        if (wanted[i].kerr)
            group_item_answer(of[i], wanted[i].kerr, wanted[i].message);
        else if (of[i]->coordinator.id < 0)
            group_item_answer(of[i], KERR_COORDINATOR_NOT_AVAILABLE, STR_NULL);
        else
            pending[(*pending_count)++] = of[i];
    }
    qsort(pending, (size_t)*pending_count, sizeof(struct group_item *), compare_nodes);
    return true;
}

static bool ask_one(struct attempt *at, struct group_item **items, int32_t count, coordinator_ask_fn ask, void *arg,
                    struct arena *a, struct failure *f)
{
    struct peer *p;
    for (int32_t i = 0; i < count; i++) group_item_answer(items[i], KERR_COORDINATOR_NOT_AVAILABLE, STR_NULL);
    if (cluster_connect_node(at, items[0]->coordinator.id, &p, f) && ask(at, p, items, count, arg, a, f)) return true;
    return failure_is_retriable(f) || f->err == ERR_NOT_FOUND; /* it may have moved when we come back */
}

bool coordinators_ask(struct cluster *cl, struct group_item *items, int32_t count, coordinator_ask_fn ask, void *arg,
                      struct arena *a, struct failure *f)
{
    struct attempt at = attempt_begin(cl);
    struct group_item **pending = arena_array(a, struct group_item *, (size_t)count);
    const struct group_item *left;
    while ((left = first_pending(items, count))) {
        int32_t pending_count = 0;
        if (!find_coordinators(&at, items, count, pending, &pending_count, a, f)) {
            if (!attempt_again(&at, f)) return false;
            continue;
        }
        for (int32_t from = 0, to; from < pending_count; from = to) {
            for (to = from + 1; to < pending_count && pending[to]->coordinator.id == pending[from]->coordinator.id;)
                to++;
            if (!ask_one(&at, pending + from, to - from, ask, arg, a, f)) return false;
        }
        if (!(left = first_pending(items, count))) return true;
        failure_refused(f, left->answer.kerr, left->answer.message, "Group %.*s", STR_ARG(left->group));
        if (!attempt_again(&at, f)) return true; /* each that is left has its code */
    }
    return true;
}
