/* isr_changes.c: in-sync sets that brokers have changed in the store by themselves.
 *
 * So do brokers of Kafka with an inter.broker.protocol.version before 2.7, which knows no AlterPartition.  They tell by
 * nodes below /isr_change_notification; the controller reads the states that these name, and tells everybody by
 * UpdateMetadata.  Until then its tables are behind: a write of its own is refused by the partition's version, and
 * everything is read anew. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "controller/controller_internal.h"

/* A partition that a notification names. */
struct named {
    struct named *next;
    struct notifications *ns;
    struct topic *topic;
    int32_t partition;
};

static enum err read_names(struct notifications *ns, const struct coord_result *r, struct fault *f)
{
    struct znode_isr_change *changes = NULL;
    size_t count = 0;
    enum err e = znode_isr_changes_decode(&ns->arena, r->path, r->data, &changes, &count, f);
    for (size_t i = 0; !e && i < count; i++) {
        struct topic *t = topic_find(ns->c, changes[i].topic);
        if (!t || t->deleting || changes[i].partition >= t->partition_count) continue;
        struct named *nd = arena_alloc(&ns->arena, sizeof *nd);
        *nd = (struct named){ns->told, ns, t, changes[i].partition};
        ns->told = nd;
    }
    return e;
}

/* Only what is newer than the tables: a partition may be named twice. */
static void on_state(void *arg, const struct coord_result *r)
{
    struct named *nd = arg;
    struct notifications *ns = nd->ns;
    struct controller_partition *p = &nd->topic->partitions[nd->partition];
    struct change ch = {nd->topic, nd->partition, false, p->leader, "in_sync_set"};
    struct fault f = {0};
    if (!r->err && r->stat.version > p->state_version && p->replicas) {
        if (partition_load_state(p, r, &ns->arena, &f))
            LOG_WARN("notification_ignored", "reason=\"%s\"", f.text);
        else
            changes_add(&ns->changes, ch);
    }
    event_call_done(ns->c, &ns->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void read_states(struct notifications *ns)
{
    for (struct named *nd = ns->told; nd; nd = nd->next)
        coord_get(ns->c->opt.coord, znode_state_path(&ns->arena, nd->topic->name, nd->partition), COORD_NO_WATCH,
                  event_to(ns->c, &ns->ev, on_state, nd));
}

static void tell(struct notifications *ns)
{
    changes_tell_in_sync_sets(&ns->changes);
}

const struct notification_kind isr_change_notifications = {ZNODE_ISR_CHANGES, read_names, read_states, tell};
