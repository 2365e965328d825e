/* metadata.c: what a cluster tells of itself: brokers, leaders, coordinators; see cluster.h. */
#include "client/cluster.h"

#include <inttypes.h>
#include <stdlib.h>

#include "wire/gen/find_coordinator.h"
#include "wire/gen/metadata.h"

enum {
    METADATA_NO_CREATION_MIN = 4, /* before, asking for a topic could create it */
    FIND_COORDINATOR_BATCHED_MIN = 4,
    COORDINATOR_OF_GROUP = 0
};

/* ---- topics ---- */

int topic_partition_compare(const struct topic_partition *a, const struct topic_partition *b)
{
    int c = str_compare(a->topic, b->topic);
    return c ? c : (a->partition > b->partition) - (a->partition < b->partition);
}

static int compare_names(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static int compare_topics(const void *a, const void *b)
{
    return str_compare(((const struct topic *)a)->name, ((const struct topic *)b)->name);
}

static int compare_leaders(const void *a, const void *b)
{
    int32_t x = ((const struct leader *)a)->partition, y = ((const struct leader *)b)->partition;
    return (x > y) - (x < y);
}

const struct topic *cluster_topic_find(const struct topic *topics, int32_t count, struct str name)
{
    struct topic key = {.name = name};
    return count > 0 ? bsearch(&key, topics, (size_t)count, sizeof *topics, compare_topics) : NULL;
}

int32_t cluster_topic_leader(const struct topic *t, int32_t partition)
{
    struct leader key = {.partition = partition};
    const struct leader *found =
        t->leader_count > 0 ? bsearch(&key, t->leaders, (size_t)t->leader_count, sizeof key, compare_leaders) : NULL;
    return found ? found->node_id : -1;
}

static void take_topic(struct topic *out, const struct metadata_response_metadata_response_topic *t, struct arena *a)
{
    *out = (struct topic){.name = t->name, .kerr = t->error_code, .is_internal = t->is_internal};
    if (t->partitions_count <= 0) return;
    out->leader_count = t->partitions_count;
    out->leaders = arena_array(a, struct leader, (size_t)t->partitions_count);
    for (int32_t i = 0; i < t->partitions_count; i++)
        out->leaders[i] = (struct leader){t->partitions[i].partition_index, t->partitions[i].leader_id};
    qsort(out->leaders, (size_t)out->leader_count, sizeof *out->leaders, compare_leaders);
}

/* ---- one request ---- */

static void set_names(struct metadata_request *req, const struct str *names, int32_t count, struct arena *a)
{
    struct str *sorted = arena_array(a, struct str, (size_t)count);
    if (count > 0) memcpy(sorted, names, (size_t)count * sizeof *names);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    req->topics = arena_array(a, struct metadata_request_metadata_request_topic, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        if (i > 0 && str_equal(sorted[i], sorted[i - 1])) continue;
        req->topics[req->topics_count] = metadata_request_metadata_request_topic_default;
        req->topics[req->topics_count++].name = sorted[i];
    }
}

static bool ask(struct attempt *at, const struct str *names, int32_t count, struct metadata_response *res,
                struct arena *a, struct failure *f)
{
    struct peer *p;
    if (!cluster_connect_any(at, &p, f)) return false;
    struct metadata_request req = metadata_request_default;
    req.allow_auto_topic_creation = false;
    set_names(&req, names, count, a);
    int16_t version = peer_version(p, API_METADATA, METADATA_REQUEST_VERSION_MAX);
    if (version >= 0 && version < METADATA_NO_CREATION_MIN) version = -1;
    if (!peer_ask(at, p, &(struct exchange){API_METADATA, version, &req, res}, a, f)) return false;
    if (res->error_code) return failure_refused(f, res->error_code, STR_NULL, "%s gives no metadata", peer_name(p));
    for (int32_t i = 0; i < res->brokers_count; i++) {
        const struct metadata_response_metadata_response_broker *b = &res->brokers[i];
        cluster_learn_node(at->cl, &(struct node){.id = b->node_id, .host = b->host, .rack = b->rack, .port = b->port});
    }
    return true;
}

bool cluster_topics(struct attempt *at, const struct str *names, int32_t count, struct topic **topics,
                    int32_t *topic_count, struct arena *a, struct failure *f)
{
    struct metadata_response res;
    if (!ask(at, names, count, &res, a, f)) return false;
    int32_t n = MAX(res.topics_count, 0), taken = 0;
    struct topic *out = arena_array(a, struct topic, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        if (!str_is_null(res.topics[i].name)) take_topic(&out[taken++], &res.topics[i], a);
    qsort(out, (size_t)taken, sizeof *out, compare_topics);
    *topics = out;
    *topic_count = taken;
    return true;
}

bool cluster_nodes(struct attempt *at, int32_t **ids, int32_t *count, struct arena *a, struct failure *f)
{
    struct metadata_response res;
    if (!ask(at, NULL, 0, &res, a, f)) return false;
    if (res.brokers_count <= 0)
        return failure_refused(f, KERR_BROKER_NOT_AVAILABLE, STR_NULL, "The cluster tells of no broker");
    *ids = arena_array(a, int32_t, (size_t)res.brokers_count);
    for (int32_t i = 0; i < res.brokers_count; i++) (*ids)[i] = res.brokers[i].node_id;
    *count = res.brokers_count;
    return true;
}

/* ---- coordinators ---- */

static void take_coordinator(struct cluster *cl, struct coordinator *out, int16_t kerr, struct str message,
                             const struct node *node)
{
    out->kerr = kerr;
    out->message = message;
    out->node_id = kerr ? -1 : node->id;
    if (!kerr) cluster_learn_node(cl, node);
}

static int compare_coordinators(const void *a, const void *b)
{
    return str_compare((*(struct coordinator *const *)a)->group, (*(struct coordinator *const *)b)->group);
}

/* All at once; answers are matched by name, in whatever order they come. */
static bool ask_batched(struct attempt *at, struct peer *p, int16_t version, struct coordinator *groups, int32_t count,
                        struct arena *a, struct failure *f)
{
    struct find_coordinator_request req = find_coordinator_request_default;
    req.key_type = COORDINATOR_OF_GROUP;
    req.coordinator_keys = arena_array(a, struct str, (size_t)count);
    req.coordinator_keys_count = count;
    struct coordinator **by_name = arena_array(a, struct coordinator *, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        req.coordinator_keys[i] = groups[i].group;
        groups[i].kerr = KERR_COORDINATOR_NOT_AVAILABLE; /* unless the answer says otherwise */
        groups[i].node_id = -1;
        groups[i].message = STR_NULL;
        by_name[i] = &groups[i];
    }
    qsort(by_name, (size_t)count, sizeof(struct coordinator *), compare_coordinators);
    struct find_coordinator_response res;
    if (!peer_ask(at, p, &(struct exchange){API_FIND_COORDINATOR, version, &req, &res}, a, f)) return false;
    for (int32_t i = 0; i < res.coordinators_count; i++) {
        const struct find_coordinator_response_coordinator *c = &res.coordinators[i];
        struct coordinator key = {.group = c->key}, *key_at = &key;
        struct coordinator **found =
            bsearch(&key_at, by_name, (size_t)count, sizeof(struct coordinator *), compare_coordinators);
        if (!found) continue;
        struct node node = {.id = c->node_id, .host = c->host, .port = c->port};
        take_coordinator(at->cl, *found, c->error_code, c->error_message, &node);
    }
    return true;
}

static bool ask_single(struct attempt *at, struct peer *p, int16_t version, struct coordinator *group, struct arena *a,
                       struct failure *f)
{
    struct find_coordinator_request req = find_coordinator_request_default;
    req.key = group->group;
    struct find_coordinator_response res;
    if (!peer_ask(at, p, &(struct exchange){API_FIND_COORDINATOR, version, &req, &res}, a, f)) return false;
    struct node node = {.id = res.node_id, .host = res.host, .port = res.port};
    take_coordinator(at->cl, group, res.error_code, res.error_message, &node);
    return true;
}

bool cluster_find_coordinators(struct attempt *at, struct coordinator *groups, int32_t count, struct arena *a,
                               struct failure *f)
{
    struct peer *p;
    if (!cluster_connect_any(at, &p, f)) return false;
    int16_t version = peer_version(p, API_FIND_COORDINATOR, FIND_COORDINATOR_REQUEST_VERSION_MAX);
    if (version >= FIND_COORDINATOR_BATCHED_MIN) return ask_batched(at, p, version, groups, count, a, f);
    for (int32_t i = 0; i < count; i++)
        if (!ask_single(at, p, version, &groups[i], a, f)) return false;
    return true;
}
