/* by_leader.c: see by_leader.h. */
#include "client/by_leader.h"

#include <inttypes.h>
#include <stdlib.h>

static int compare_partitions(const void *a, const void *b)
{
    return topic_partition_compare(&(*(struct leader_item *const *)a)->of, &(*(struct leader_item *const *)b)->of);
}

static int compare_nodes(const void *a, const void *b)
{
    int32_t x = (*(struct leader_item *const *)a)->node_id, y = (*(struct leader_item *const *)b)->node_id;
    return x != y ? (x > y) - (x < y) : compare_partitions(a, b);
}

struct leader_item *leader_item_find(struct leader_item **items, int32_t count, struct str topic, int32_t partition)
{
    struct leader_item key = {.of = {topic, partition}}, *key_at = &key;
    struct leader_item **found =
        bsearch(&key_at, items, (size_t)count, sizeof(struct leader_item *), compare_partitions);
    return found ? *found : NULL;
}

/* Final for a partition: waiting does not make a topic. */
static bool is_final(int16_t kerr)
{
    return kerr == KERR_UNKNOWN_TOPIC_OR_PARTITION || !kerr_is_retriable(kerr);
}

static void set_error(struct leader_item *it, int16_t kerr)
{
    it->kerr = kerr;
    it->done = is_final(kerr);
}

static void find_leader(struct leader_item *it, const struct topic *topics, int32_t count)
{
    const struct topic *t = cluster_topic_find(topics, count, it->of.topic);
    it->node_id = -1;
    if (!t || (t->kerr == KERR_NONE && (it->of.partition < 0 || t->leader_count <= it->of.partition)))
        set_error(it, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    else if (t->kerr)
        set_error(it, t->kerr);
    else if ((it->node_id = cluster_topic_leader(t, it->of.partition)) < 0)
        set_error(it, KERR_LEADER_NOT_AVAILABLE);
}

/* The items that are still to be asked about, sorted by leader. */
static bool find_leaders(struct attempt *at, struct leader_item *items, int32_t count, struct leader_item **pending,
                         int32_t *pending_count, struct arena *a, struct failure *f)
{
    struct str *names = arena_array(a, struct str, (size_t)count);
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++)
        if (!items[i].done) names[n++] = items[i].of.topic;
    struct topic *topics;
    int32_t topic_count;
    if (!cluster_topics(at, names, n, &topics, &topic_count, a, f)) return false;
    *pending_count = 0;
    for (int32_t i = 0; i < count; i++) {
        if (items[i].done) continue;
        find_leader(&items[i], topics, topic_count);
        if (items[i].node_id >= 0) pending[(*pending_count)++] = &items[i];
    }
    qsort(pending, (size_t)*pending_count, sizeof(struct leader_item *), compare_nodes);
    return true;
}

/* A leader that cannot be reached now may be no leader soon; a broken answer is final for the whole operation. */
static bool ask_one_leader(struct attempt *at, struct leader_item **items, int32_t count, leader_ask_fn ask, void *arg,
                           struct arena *a, struct failure *f)
{
    struct peer *p;
    bool ok = cluster_connect_node(at, items[0]->node_id, &p, f) && ask(at, p, items, count, arg, a, f);
    for (int32_t i = 0; i < count && !ok; i++)
        if (!items[i]->done) items[i]->kerr = KERR_NETWORK_EXCEPTION;
    return ok || failure_is_retriable(f) || f->err == ERR_NOT_FOUND;
}

static const struct leader_item *first_pending(const struct leader_item *items, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (!items[i].done) return &items[i];
    return NULL;
}

bool leaders_ask(struct attempt *at, struct leader_item *items, int32_t count, leader_ask_fn ask, void *arg,
                 struct arena *a, struct failure *f)
{
    struct leader_item **pending = arena_array(a, struct leader_item *, (size_t)count);
    for (;;) {
        int32_t pending_count = 0;
        const struct leader_item *left = first_pending(items, count);
        if (!left) return true;
        if (!find_leaders(at, items, count, pending, &pending_count, a, f)) {
            if (!attempt_again(at, f)) return false;
            continue;
        }
        for (int32_t from = 0, to; from < pending_count; from = to) {
            for (to = from + 1; to < pending_count && pending[to]->node_id == pending[from]->node_id;) to++;
            if (!ask_one_leader(at, pending + from, to - from, ask, arg, a, f)) return false;
        }
        left = first_pending(items, count);
        if (!left) return true;
        failure_refused(f, left->kerr, STR_NULL, "Partition %.*s-%" PRId32, STR_ARG(left->of.topic),
                        left->of.partition);
        if (!attempt_again(at, f)) return true; /* each that is left has its code */
    }
}
