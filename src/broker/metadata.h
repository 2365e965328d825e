/* metadata.h: what this broker knows of the cluster: brokers, topics, leaders.  The controller's UpdateMetadata fills
 * it.
 *
 * Everything in it is immutable once published; an update puts a new object in the old one's place.  Thread: the home
 * loop updates, any loop reads without a lock, for one turn (os/grace.h). */
#ifndef BROKER_METADATA_H
#define BROKER_METADATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/uuid.h"
#include "os/grace.h"
#include "wire/gen/update_metadata.h"

struct metadata;

struct node_endpoint {
    struct str listener, host;
    int32_t port;
};

struct node {
    int32_t id;
    struct str rack; /* may be null */
    struct node_endpoint *endpoints;
    int32_t endpoint_count;
};

/* The live brokers, by rising id. */
struct cluster_view {
    int32_t controller_id; /* -1: none known */
    int32_t count;
    struct node *nodes;
};

struct partition_view {
    int32_t leader, leader_epoch; /* -1: no leader */
    const int32_t *replicas, *isr, *offline;
    int32_t replica_count, isr_count, offline_count;
    bool known;
};

struct topic_view {
    struct str name;
    struct uuid id;
    bool internal;
    int32_t partition_count;
    struct partition_view *partitions;
};

/* The controller has spoken of that partition; `t` may be NULL. */
static inline bool topic_has_partition(const struct topic_view *t, int32_t index)
{
    return t && index >= 0 && index < t->partition_count && t->partitions[index].known;
}

struct metadata *metadata_new(struct grace *grace, struct loop *home);
/* No reader may be left. */
void metadata_free(struct metadata *m);

/* Who wants to know; all on the home loop. */
struct metadata_listener {
    void *arg;
    void (*topic_changed)(void *arg, const struct topic_view *t); /* it is new, or its partitions have news */
    void (*topic_removed)(void *arg, struct str name);            /* also when another of that name follows */
};
void metadata_listen(struct metadata *m, const struct metadata_listener *l);

/* Applies an UpdateMetadata.  Home loop. */
void metadata_update(struct metadata *m, const struct update_metadata_request *u);

const struct cluster_view *metadata_cluster(const struct metadata *m);
/* NULL: no such broker alive. */
const struct node *cluster_node(const struct cluster_view *c, int32_t id);
/* The broker's address on a listener; NULL when it has none of that name. */
const struct node_endpoint *node_endpoint(const struct node *n, struct str listener);
/* NULL: unknown. */
const struct topic_view *metadata_topic(const struct metadata *m, struct str name);
const struct topic_view *metadata_topic_by_id(const struct metadata *m, struct uuid id);
size_t metadata_topic_count(const struct metadata *m);
/* Every topic, in no order; stops when `each` returns false. */
void metadata_each_topic(const struct metadata *m, bool (*each)(void *arg, const struct topic_view *t), void *arg);

/* __consumer_offsets and __transaction_state: clients may not write to or create them. */
bool topic_is_internal(struct str name);

#endif
