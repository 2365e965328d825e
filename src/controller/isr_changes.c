/* isr_changes.c: in-sync sets that brokers have changed in the store by themselves.
 *
 * So do brokers of Kafka with an inter.broker.protocol.version before 2.7, which knows no AlterPartition.  They tell by
 * nodes below /isr_change_notification; the controller reads the states that these name, tells everybody by
 * UpdateMetadata, and removes the nodes.  Until then its tables are behind: a write of its own is refused by the
 * partition's version, and everything is read anew. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum notes_stage { NOTES_LIST, NOTES_READ, NOTES_LOOK, NOTES_REMOVE, NOTES_TELL };

struct named {
    struct notes_event *ne;
    struct topic *topic;
    int32_t partition;
    bool changed;
};

struct notes_event {
    struct event ev;
    struct controller *c;
    struct arena arena;
    struct str *paths;
    size_t path_count;
    struct named *named;
    size_t named_count, named_cap;
};

static struct notes_event *notes_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct notes_event, ev);
}

static void notes_end(struct notes_event *ne)
{
    mem_free(ne->named);
    arena_fini(&ne->arena);
    mem_free(ne);
}

static struct coord_to notes_to(struct notes_event *ne, coord_done_fn done, void *arg)
{
    ne->ev.pending++;
    return (struct coord_to){ne->c->opt.loop, done, arg};
}

static void notes_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    (void)path;
    if (!c->stopping && c->state != CONTROLLER_STANDBY) isr_changes_watch(c);
}

static void notes_listed(void *arg, const struct coord_result *r)
{
    struct notes_event *ne = arg;
    ne->paths = arena_array(&ne->arena, struct str, r->child_count);
    ne->path_count = r->child_count;
    for (size_t i = 0; i < r->child_count; i++)
        ne->paths[i] = arena_printf(&ne->arena, "%.*s/%.*s", STR_ARG(ZNODE_ISR_CHANGES), STR_ARG(r->children[i]));
    event_call_done(ne->c, &ne->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void note_read(void *arg, const struct coord_result *r)
{
    struct notes_event *ne = arg;
    struct znode_isr_change *changes = NULL;
    size_t count = 0;
    struct fault f = {0};
    if (!r->err && znode_isr_changes_decode(&ne->arena, r->path, r->data, &changes, &count, &f))
        LOG_WARN("notification_ignored", "reason=\"%s\"", f.text);
    for (size_t i = 0; i < count; i++) {
        struct topic *t = topic_find(ne->c, changes[i].topic);
        if (!t || t->deleting || changes[i].partition >= t->partition_count) continue;
        ne->named = mem_grow(ne->named, &ne->named_cap, ne->named_count + 1, sizeof *ne->named);
        ne->named[ne->named_count++] = (struct named){ne, t, changes[i].partition, false};
    }
    event_call_done(ne->c, &ne->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

/* Only what is newer than the tables: a partition may be named twice. */
static void state_read(void *arg, const struct coord_result *r)
{
    struct named *nd = arg;
    struct notes_event *ne = nd->ne;
    struct controller_partition *p = &nd->topic->partitions[nd->partition];
    struct znode_state zs;
    struct fault f = {0};
    if (!r->err && r->stat.version > p->state_version && p->replicas) {
        if (znode_state_decode(&ne->arena, r->path, r->data, &zs, &f)) {
            LOG_WARN("notification_ignored", "reason=\"%s\"", f.text);
        } else {
            p->leader = zs.leader;
            p->leader_epoch = zs.leader_epoch;
            p->controller_epoch = zs.controller_epoch;
            p->leader_recovery_state = zs.leader_recovery_state;
            p->state_version = r->stat.version;
            if (p->state_zxid != INT64_MAX) p->state_zxid = r->stat.mzxid;
            partition_set_isr(p, zs.isr, zs.isr_count);
            nd->changed = true;
        }
    }
    event_call_done(ne->c, &ne->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void read_states(struct notes_event *ne)
{
    for (size_t i = 0; i < ne->named_count; i++)
        coord_get(ne->c->opt.coord, znode_state_path(&ne->arena, ne->named[i].topic->name, ne->named[i].partition),
                  COORD_NO_WATCH, notes_to(ne, state_read, &ne->named[i]));
}

static void remove_notes(struct notes_event *ne)
{
    struct writes w;
    writes_init(&w, ne->c, &ne->ev, &ne->arena);
    for (size_t i = 0; i < ne->path_count; i++)
        writes_add(&w, (struct coord_op){.kind = COORD_DELETE, .path = ne->paths[i], .version = COORD_ANY_VERSION});
    writes_flush(&w);
    writes_fini(&w);
}

static void tell(struct notes_event *ne)
{
    struct sending *s = sending_new(ne->c);
    bool any = false, reassigned = false;
    for (size_t i = 0; i < ne->named_count; i++) {
        const struct named *nd = &ne->named[i];
        if (!nd->changed) continue;
        sending_add_metadata(s, nd->topic, nd->partition);
        any = true;
        reassigned = reassigned || partition_is_reassigned(&nd->topic->partitions[nd->partition]);
    }
    if (any)
        sending_send(s, NULL, NULL);
    else
        sending_drop(s);
    if (reassigned) reassign_queue(ne->c, false);
}

static enum step notes_run(struct controller *c, struct event *ev)
{
    struct notes_event *ne = notes_of(ev);
    if (ev->err) {
        LOG_WARN("notifications_failed", "error=%s", err_name(ev->err));
        controller_depose_if(c, ev->err);
        if (!c->deposed) controller_reload(c);
        notes_end(ne);
        return STEP_DONE;
    }
    switch ((enum notes_stage)ev->stage) {
    case NOTES_LIST:
        ev->stage = NOTES_READ;
        coord_children(c->opt.coord, ZNODE_ISR_CHANGES, (struct coord_watch){notes_fired, c},
                       notes_to(ne, notes_listed, ne));
        return STEP_WAIT;
    case NOTES_READ:
        ev->stage = NOTES_LOOK;
        for (size_t i = 0; i < ne->path_count; i++)
            coord_get(c->opt.coord, ne->paths[i], COORD_NO_WATCH, notes_to(ne, note_read, ne));
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case NOTES_LOOK:
        ev->stage = NOTES_REMOVE;
        read_states(ne);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case NOTES_REMOVE:
        ev->stage = NOTES_TELL;
        remove_notes(ne);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case NOTES_TELL: tell(ne); break;
    }
    notes_end(ne);
    return STEP_DONE;
}

static void notes_drop(struct controller *c, struct event *ev)
{
    (void)c;
    notes_end(notes_of(ev));
}

void isr_changes_watch(struct controller *c)
{
    struct notes_event *ne = mem_zalloc(1, sizeof *ne);
    ne->ev = (struct event){.run = notes_run, .drop = notes_drop, .stage = NOTES_LIST};
    ne->c = c;
    arena_init(&ne->arena, SIZE_MAX);
    controller_queue(c, &ne->ev);
}
