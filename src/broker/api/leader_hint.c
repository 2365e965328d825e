/* leader_hint.c: looks leaders up in the metadata. */
#include "broker/api/leader_hint.h"

#include "broker/broker.h"
#include "broker/server.h"

struct leader_hint leader_hint_of(struct request *rq, struct str topic, struct uuid id, int32_t partition,
                                  enum kerr kerr)
{
    struct leader_hint none = {-1, -1};
    if (kerr != KERR_NOT_LEADER_OR_FOLLOWER && kerr != KERR_FENCED_LEADER_EPOCH) return none;
    const struct topic_view *t = str_is_null(topic) ? metadata_topic_by_id(rq->broker->metadata, id)
                                                    : metadata_topic(rq->broker->metadata, topic);
    if (!t || partition < 0 || partition >= t->partition_count) return none;
    return (struct leader_hint){t->partitions[partition].leader, t->partitions[partition].leader_epoch};
}

struct hint_endpoint *leader_hint_endpoints(struct request *rq, const struct leader_hint *hints, int32_t count,
                                            int32_t *out_count)
{
    const struct cluster_view *c = metadata_cluster(rq->broker->metadata);
    struct hint_endpoint *list = arena_array(&rq->arena, struct hint_endpoint, (size_t)c->count);
    bool *seen = arena_array(&rq->arena, bool, (size_t)c->count);
    *out_count = 0;
    for (int32_t i = 0; i < count; i++) {
        const struct node *n = cluster_node(c, hints[i].leader);
        const struct node_endpoint *e = node_endpoint(n, str_of(rq->conn->listener->name));
        if (!e || seen[n - c->nodes]) continue;
        seen[n - c->nodes] = true;
        list[(*out_count)++] =
            (struct hint_endpoint){n->id, e->port, arena_str(&rq->arena, e->host), arena_str(&rq->arena, n->rack)};
    }
    return list;
}
