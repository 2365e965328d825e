/* common.c: how the cluster looks to a client. */
#include "broker/api/common.h"

#include "broker/server.h"

struct str api_listener(const struct request *rq)
{
    return str_of(rq->conn->listener->name);
}

const struct node_endpoint *api_endpoint(const struct cluster_view *cluster, int32_t node, struct str listener)
{
    return node_endpoint(cluster_node(cluster, node), listener);
}

struct topic_list {
    struct arena *arena;
    const struct topic_view **topics;
    size_t count, capacity;
};

static bool add_topic(void *arg, const struct topic_view *t)
{
    struct topic_list *list = arg;
    if (list->count == list->capacity) {
        /* The table grew since it was counted. */
        size_t capacity = list->capacity * 2 + 16;
        const struct topic_view **topics = arena_array(list->arena, const struct topic_view *, capacity);
        if (list->count) memcpy(topics, list->topics, list->count * sizeof(const struct topic_view *));
        list->topics = topics;
        list->capacity = capacity;
    }
    list->topics[list->count++] = t;
    return true;
}

const struct topic_view **api_all_topics(struct request *rq, int32_t *count)
{
    size_t expected = metadata_topic_count(rq->broker->metadata);
    struct topic_list list = {
        .arena = &rq->arena,
        .topics = arena_array(&rq->arena, const struct topic_view *, expected),
        .capacity = expected,
    };
    metadata_each_topic(rq->broker->metadata, add_topic, &list);
    *count = (int32_t)list.count;
    return list.topics;
}
