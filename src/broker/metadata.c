/* metadata.c: the cluster's picture, object by object in one block of memory each, replaced as a whole. */
#include "broker/metadata.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/table.h"

typedef struct update_metadata_request_update_metadata_topic_state topic_state;
typedef struct update_metadata_request_update_metadata_partition_state partition_state;

/* LeaderAndIsr.LeaderDuringDelete: the partition's topic is going away. */
enum { LEADER_DURING_DELETE = -2 };

struct topic_object {
    struct topic_view view; /* first: handed out as such */
    struct arena arena;
};

struct cluster_object {
    struct cluster_view view;
    struct arena arena;
};

struct metadata {
    struct grace *grace;
    struct loop *home;
    _Atomic(struct cluster_object *) cluster;
    struct table *by_name, *by_id;
    struct metadata_listener listener;
};

bool topic_is_internal(struct str name)
{
    return str_is(name, "__consumer_offsets") || str_is(name, "__transaction_state");
}

static struct bytes name_key(const void *value)
{
    const struct topic_view *t = value;
    return (struct bytes){(const uint8_t *)t->name.data, t->name.size};
}

static struct bytes id_key(const void *value)
{
    const struct topic_view *t = value;
    return (struct bytes){t->id.bytes, sizeof t->id.bytes};
}

static void retire(void *arg, void *p, void (*release)(void *p))
{
    struct metadata *m = arg;
    grace_release(m->grace, p, release);
}

static void topic_release(void *p)
{
    struct topic_object *t = p;
    arena_fini(&t->arena);
    mem_free(t);
}

static void cluster_release(void *p)
{
    struct cluster_object *c = p;
    arena_fini(&c->arena);
    mem_free(c);
}

static struct cluster_object *cluster_new(void)
{
    struct cluster_object *c = mem_zalloc(1, sizeof *c);
    arena_init(&c->arena, SIZE_MAX);
    c->view.controller_id = -1;
    return c;
}

struct metadata *metadata_new(struct grace *grace, struct loop *home)
{
    struct metadata *m = mem_zalloc(1, sizeof *m);
    m->grace = grace;
    m->home = home;
    atomic_init(&m->cluster, cluster_new());
    m->by_name = table_new(&(struct table_ops){name_key, retire, m});
    m->by_id = table_new(&(struct table_ops){id_key, retire, m});
    return m;
}

void metadata_listen(struct metadata *m, const struct metadata_listener *l)
{
    m->listener = *l;
}

static bool free_topic(void *arg, void *value)
{
    (void)arg;
    topic_release(value);
    return true;
}

void metadata_free(struct metadata *m)
{
    if (!m) return;
    table_each(m->by_name, free_topic, NULL);
    table_free(m->by_name);
    table_free(m->by_id);
    cluster_release(atomic_load(&m->cluster));
    mem_free(m);
}

/* ---- Reading */

const struct cluster_view *metadata_cluster(const struct metadata *m)
{
    return &atomic_load_explicit(&m->cluster, memory_order_acquire)->view;
}

const struct node *cluster_node(const struct cluster_view *c, int32_t id)
{
    int32_t lo = 0, hi = c->count;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (c->nodes[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->count && c->nodes[lo].id == id ? &c->nodes[lo] : NULL;
}

const struct node_endpoint *node_endpoint(const struct node *n, struct str listener)
{
    for (int32_t i = 0; n && i < n->endpoint_count; i++)
        if (str_equal(n->endpoints[i].listener, listener)) return &n->endpoints[i];
    return NULL;
}

const struct topic_view *metadata_topic(const struct metadata *m, struct str name)
{
    return table_find(m->by_name, (struct bytes){(const uint8_t *)name.data, name.size});
}

const struct topic_view *metadata_topic_by_id(const struct metadata *m, struct uuid id)
{
    return table_find(m->by_id, (struct bytes){id.bytes, sizeof id.bytes});
}

size_t metadata_topic_count(const struct metadata *m)
{
    return table_count(m->by_name);
}

struct each_topic {
    bool (*each)(void *arg, const struct topic_view *t);
    void *arg;
};

static bool each_topic_value(void *arg, void *value)
{
    struct each_topic *et = arg;
    return et->each(et->arg, value);
}

void metadata_each_topic(const struct metadata *m, bool (*each)(void *arg, const struct topic_view *t), void *arg)
{
    struct each_topic et = {each, arg};
    table_each(m->by_name, each_topic_value, &et);
}

/* ---- Updating */

static int node_compare(const void *a, const void *b)
{
    const struct node *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void update_cluster(struct metadata *m, const struct update_metadata_request *u)
{
    struct cluster_object *c = cluster_new();
    c->view.controller_id = u->controller_id;
    c->view.count = u->live_brokers_count;
    c->view.nodes = arena_array(&c->arena, struct node, (size_t)u->live_brokers_count);
    for (int32_t i = 0; i < u->live_brokers_count; i++) {
        const struct update_metadata_request_update_metadata_broker *b = &u->live_brokers[i];
        struct node *n = &c->view.nodes[i];
        n->id = b->id;
        n->rack = arena_str(&c->arena, b->rack);
        n->endpoint_count = b->endpoints_count;
        n->endpoints = arena_array(&c->arena, struct node_endpoint, (size_t)b->endpoints_count);
        for (int32_t k = 0; k < b->endpoints_count; k++)
            n->endpoints[k] = (struct node_endpoint){arena_str(&c->arena, b->endpoints[k].listener),
                                                     arena_str(&c->arena, b->endpoints[k].host), b->endpoints[k].port};
    }
    qsort(c->view.nodes, (size_t)c->view.count, sizeof *c->view.nodes, node_compare);
    struct cluster_object *old = atomic_exchange(&m->cluster, c);
    grace_release(m->grace, old, cluster_release);
}

static const int32_t *copy_ids(struct arena *a, const int32_t *ids, int32_t count)
{
    int32_t *copy = arena_array(a, int32_t, (size_t)count);
    if (count) memcpy(copy, ids, (size_t)count * sizeof *ids);
    return copy;
}

static void copy_partition(struct arena *a, struct partition_view *to, const struct partition_view *from)
{
    *to = *from;
    to->replicas = copy_ids(a, from->replicas, from->replica_count);
    to->isr = copy_ids(a, from->isr, from->isr_count);
    to->offline = copy_ids(a, from->offline, from->offline_count);
}

static void remove_topic(struct metadata *m, const struct topic_view *t)
{
    struct topic_view *old = table_remove(m->by_name, name_key(t));
    if (metadata_topic_by_id(m, t->id) == t) table_remove(m->by_id, id_key(t));
    if (m->listener.topic_removed) m->listener.topic_removed(m->listener.arg, t->name);
    grace_release(m->grace, old, topic_release);
}

/* One of before topics had ids may be given one, and is not told it by a controller of an old version. */
static bool is_same_topic(const struct topic_view *old, const topic_state *ts)
{
    return uuid_is_zero(old->id) || uuid_is_zero(ts->topic_id) || uuid_equal(old->id, ts->topic_id);
}

/* It comes late, by a connection that the controller has given up meanwhile. */
static bool is_outdated(const struct topic_view *old, const partition_state *ps)
{
    return topic_has_partition(old, ps->partition_index) &&
           ps->leader_epoch < old->partitions[ps->partition_index].leader_epoch;
}

/* The topic with the changed partitions in it. */
static struct topic_object *topic_merge(const struct topic_view *old, const topic_state *ts)
{
    struct topic_object *t = mem_zalloc(1, sizeof *t);
    arena_init(&t->arena, SIZE_MAX);
    struct topic_view *v = &t->view;
    v->name = arena_str(&t->arena, ts->topic_name);
    v->id = old && uuid_is_zero(ts->topic_id) ? old->id : ts->topic_id;
    v->internal = topic_is_internal(v->name);
    v->partition_count = old ? old->partition_count : 0;
    for (int32_t i = 0; i < ts->partition_states_count; i++)
        v->partition_count = MAX(v->partition_count, ts->partition_states[i].partition_index + 1);
    v->partitions = arena_array(&t->arena, struct partition_view, (size_t)v->partition_count);
    for (int32_t i = 0; i < ts->partition_states_count; i++) {
        const partition_state *ps = &ts->partition_states[i];
        if (is_outdated(old, ps)) continue;
        const struct partition_view from = {
            .leader = ps->leader,
            .leader_epoch = ps->leader_epoch,
            .replicas = ps->replicas,
            .replica_count = ps->replicas_count,
            .isr = ps->isr,
            .isr_count = ps->isr_count,
            .offline = ps->offline_replicas,
            .offline_count = MAX(ps->offline_replicas_count, 0),
            .known = true,
        };
        copy_partition(&t->arena, &v->partitions[ps->partition_index], &from);
    }
    for (int32_t i = 0; old && i < old->partition_count; i++)
        if (!v->partitions[i].known) copy_partition(&t->arena, &v->partitions[i], &old->partitions[i]);
    return t;
}

static void update_topic(struct metadata *m, const topic_state *ts)
{
    if (ts->partition_states_count <= 0) return;
    const struct topic_view *old = metadata_topic(m, ts->topic_name);
    if (ts->partition_states[0].leader == LEADER_DURING_DELETE) {
        if (old) remove_topic(m, old);
        return;
    }
    if (old && !is_same_topic(old, ts)) {
        remove_topic(m, old); /* deleted and made again under the same name */
        old = NULL;
    }
    struct topic_object *t = topic_merge(old, ts);
    struct topic_view *replaced = table_put(m->by_name, &t->view);
    if (!uuid_is_zero(t->view.id)) table_put(m->by_id, &t->view);
    if (replaced) grace_release(m->grace, replaced, topic_release);
    if (m->listener.topic_changed) m->listener.topic_changed(m->listener.arg, &t->view);
}

void metadata_update(struct metadata *m, const struct update_metadata_request *u)
{
    ASSERT_OWNER(m->home);
    update_cluster(m, u);
    for (int32_t i = 0; i < u->topic_states_count; i++) update_topic(m, &u->topic_states[i]);
}
