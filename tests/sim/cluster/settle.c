/* settle.c: the end of a run: all that is broken is mended, and then the cluster has so long to be whole again. */
#include "broker/metadata.h"
#include "world.h"

enum { WHOLE_WITHIN_US = 30 * 1000 * 1000 };

/* What is still missing; NULL: nothing. */
static const char *partition_lacks(struct world *w, int topic, int partition)
{
    int leaders = 0, leader = -1, replicas = MIN(w->setup.nodes, 3);
    int32_t epoch = -1;
    int64_t end = -1;
    const char *name = w->topics[topic].name;
    for (int i = 0; i < w->setup.nodes; i++) {
        const struct partition *p = machine_partition(&w->nodes[i], name, partition);
        if (!p) continue;
        if (!p->online) return "a replica is not online";
        if (!p->leads) continue;
        leaders++;
        leader = i;
        epoch = p->leader_epoch;
        if (atomic_load(&p->in_sync_count) < replicas) return "a replica is not in sync";
        end = plog_end(p->pl);
        if (partition_high_watermark(p) != end) return "the high watermark is below the end";
    }
    if (leaders != 1) return leaders ? "there are two leaders" : "there is no leader";
    int found = 0;
    for (int i = 0; i < w->setup.nodes; i++) {
        const struct partition *p = machine_partition(&w->nodes[i], name, partition);
        if (!p) continue;
        found++;
        if (plog_end(p->pl) != end) return "a replica lags";
        if (partition_high_watermark(p) != end) return "a follower does not know the high watermark";
    }
    if (found < replicas) return "a replica is missing";
    for (int i = 0; i < w->setup.nodes; i++) {
        const struct topic_view *t = machine_topic(&w->nodes[i], name);
        if (!topic_has_partition(t, partition) || t->partitions[partition].leader != leader + 1 ||
            t->partitions[partition].leader_epoch != epoch)
            return "a broker tells clients of another leader";
    }
    for (int i = 0; i < w->consumer_count; i++)
        if (w->consumers[i].topic == topic && w->consumers[i].parts[partition].position < end)
            return "a consumer has not read everything";
    return NULL;
}

/* Who is in office, and all that there are: so every broker tells. */
static const char *brokers_lack(struct world *w)
{
    for (int i = 0; i < w->setup.nodes; i++) {
        if (!machine_serves(&w->nodes[i])) return "a broker does not serve";
        const struct cluster_view *v = machine_cluster(&w->nodes[i]);
        if (!v || v->count != w->setup.nodes) return "a broker does not know all others";
        if (v->controller_id < 1 || !machine_is_controller(&w->nodes[v->controller_id - 1]))
            return "a broker does not know the controller";
    }
    return NULL;
}

static const char *lacks(struct world *w, char *where, size_t where_size)
{
    *where = '\0';
    const char *missing = brokers_lack(w);
    if (!missing) missing = members_lack(w);
    if (missing) return missing;
    for (int i = 0; i < w->producer_count; i++)
        if (!producer_is_done(&w->producers[i])) return "a producer has batches that are not acknowledged";
    for (int t = 0; t < w->topic_count; t++)
        for (int p = 0; p < w->topics[t].partitions; p++) {
            const char *what = partition_lacks(w, t, p);
            if (!what) continue;
            snprintf(where, where_size, "%s-%d: ", w->topics[t].name, p);
            return what;
        }
    return NULL;
}

static bool is_whole(struct world *w)
{
    char where[64];
    return !lacks(w, where, sizeof where);
}

void settle(struct world *w)
{
    w->calm = true;
    faults_end(w);
    tell(w, "all is mended");
    world_turn_until(w, w->now_us + WHOLE_WITHIN_US, is_whole);
    char where[64];
    const char *what = lacks(w, where, sizeof where);
    if (w->failed) return;
    if (what)
        wrong(w, "the cluster is not whole after %d s: %s%s", WHOLE_WITHIN_US / (1000 * 1000), where, what);
    else
        check_end(w);
}
