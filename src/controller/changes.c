/* changes.c: what one event changes: written in multis, told to the brokers, and kept in the log, where a person can
 * follow each partition.
 *
 * The log has a line for each change, in a module of its own.  When thousands change at once (a broker went) the lines
 * are DEBUG, and one line sums them up. */
#define LOG_MODULE "state-change"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum { LOGGED_ONE_BY_ONE_MAX = 100 };

void changes_init(struct changes *cs, struct controller *c, struct event *ev, struct arena *a)
{
    *cs = (struct changes){.c = c, .ev = ev, .a = a};
}

void changes_fini(struct changes *cs)
{
    mem_free(cs->list);
    mem_free(cs->topics);
    *cs = (struct changes){0};
}

void changes_add(struct changes *cs, struct change ch)
{
    cs->list = mem_grow(cs->list, &cs->cap, cs->count + 1, sizeof *cs->list);
    struct controller_partition *p = &ch.topic->partitions[ch.partition];
    p->change = cs->count;
    p->state_zxid = INT64_MAX;
    cs->list[cs->count++] = ch;
}

bool changes_have(const struct changes *cs, const struct topic *t, int32_t partition)
{
    size_t at = t->partitions[partition].change; /* maybe among those of another event */
    return at < cs->count && cs->list[at].topic == t && cs->list[at].partition == partition;
}

void changes_add_topic(struct changes *cs, struct topic *t)
{
    cs->topics = mem_grow(cs->topics, &cs->topic_cap, cs->topic_count + 1, sizeof(struct topic *));
    cs->topics[cs->topic_count++] = t;
}

/* --- writing --- */

struct bytes partition_encode(const struct controller_partition *p, struct arena *a)
{
    struct znode_state zs = {p->controller_epoch,     p->leader, p->leader_epoch, p->isr, p->isr_count,
                             p->leader_recovery_state};
    return znode_state_encode(a, &zs);
}

struct bytes topic_encode(const struct topic *topic, struct arena *a)
{
    struct znode_topic zt = {topic->id, arena_array(a, struct znode_replicas, (size_t)topic->partition_count), 0};
    for (int32_t i = 0; i < topic->partition_count; i++) {
        const struct controller_partition *p = &topic->partitions[i];
        if (!p->replicas) continue;
        zt.partitions[zt.partition_count++] = (struct znode_replicas){
            i, p->replicas, p->adding, p->removing, p->replica_count, p->adding_count, p->removing_count};
    }
    return znode_topic_encode(a, &zt);
}

static void written(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    struct changes *cs = arg;
    if (!e) return;
    LOG_WARN("states_refused", "error=%s step=%zu path=%.*s", err_name(e), failed_step,
             STR_ARG(failed_step < r->result_count ? r->results[failed_step].path : STR_EMPTY));
    if (!cs->c->deposed) controller_reload(cs->c); /* see (3) in controller.c */
}

void changes_write(struct changes *cs)
{
    struct writes w;
    writes_init(&w, cs->c, cs->ev, cs->a);
    w.done = written;
    w.arg = cs;
    for (size_t i = 0; i < cs->count; i++) {
        const struct change *ch = &cs->list[i];
        struct controller_partition *p = &ch->topic->partitions[ch->partition];
        writes_add(&w, (struct coord_op){.kind = ch->is_new ? COORD_CREATE : COORD_SET,
                                         .path = znode_state_path(cs->a, ch->topic->name, ch->partition),
                                         .data = partition_encode(p, cs->a),
                                         .version = p->state_version});
        p->state_version++;
    }
    for (size_t i = 0; i < cs->topic_count; i++)
        writes_add(&w, (struct coord_op){.kind = COORD_SET,
                                         .path = znode_topic_path(cs->a, cs->topics[i]->name),
                                         .data = topic_encode(cs->topics[i], cs->a),
                                         .version = cs->topics[i]->version++});
    writes_flush(&w);
    writes_fini(&w);
}

/* --- telling --- */

static void log_one(enum log_level level, const struct change *ch)
{
    const struct controller_partition *p = &ch->topic->partitions[ch->partition];
    struct arena a;
    arena_init(&a, SIZE_MAX);
    log_line(
        level, LOG_MODULE, ch->is_new ? "partition_started" : "partition_changed",
        "topic=%.*s partition=%d leader=%d->%d leader_epoch=%d isr=%.*s replicas=%.*s partition_epoch=%d reason=%s",
        STR_ARG(ch->topic->name), ch->partition, ch->old_leader, p->leader, p->leader_epoch,
        STR_ARG(ids_text(&a, p->isr, (size_t)p->isr_count, ",")),
        STR_ARG(ids_text(&a, p->replicas, (size_t)p->replica_count, ",")), p->state_version, ch->reason);
    arena_fini(&a);
}

void changes_log(const struct changes *cs)
{
    enum log_level level = cs->count > LOGGED_ONE_BY_ONE_MAX ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    size_t moved = 0, leaderless = 0;
    for (size_t i = 0; i < cs->count; i++) {
        const struct change *ch = &cs->list[i];
        int32_t leader = ch->topic->partitions[ch->partition].leader;
        moved += leader != ch->old_leader;
        leaderless += leader < 0;
        if (log_enabled(level)) log_one(level, ch);
    }
    if (level == LOG_LEVEL_DEBUG)
        LOG_INFO("partitions_changed", "count=%zu leaders_moved=%zu leaderless=%zu reason=%s", cs->count, moved,
                 leaderless, cs->list[0].reason);
}

void changes_tell(struct changes *cs, struct sending *s)
{
    changes_log(cs);
    for (size_t i = 0; i < cs->count; i++)
        sending_add_partition(s, cs->list[i].topic, cs->list[i].partition, cs->list[i].is_new);
}

void changes_tell_in_sync_sets(struct changes *cs)
{
    bool reassigned = false;
    if (cs->count == 0) return;
    changes_log(cs);
    struct sending *s = sending_new(cs->c);
    for (size_t i = 0; i < cs->count; i++) {
        const struct change *ch = &cs->list[i];
        sending_add_metadata(s, ch->topic, ch->partition);
        reassigned = reassigned || partition_is_reassigned(&ch->topic->partitions[ch->partition]);
    }
    sending_send(s, NULL, NULL);
    if (reassigned) reassign_queue(cs->c, false);
}
