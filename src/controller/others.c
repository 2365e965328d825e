/* others.c: what others than the controller write into the store.
 *
 * Tools of before Kafka 2.4 and 2.6 (with --zookeeper) make and delete topics there, and leave lists of replicas to be
 * moved and leaders to be preferred.  And so may a controller of Kafka's that has just been deposed: it checks its
 * epoch neither when it makes or marks a topic nor when it adds partitions.  What it has answered to a client must
 * become true.
 *
 * One event looks at all of it: when the office is taken, and when a watch fires.  Markers are listed before topics:
 * who is marked is among the topics then, or gone.  The controller's own changes fire the watches too and are found to
 * be known.  A topic whose node has gone without a marker makes the tables wrong. */
#define LOG_MODULE "controller"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum look_stage { LOOK_LIST, LOOK_READ, LOOK_WRITE, LOOK_TELL };

struct look {
    struct event ev;
    struct controller *c;
    struct arena arena;
    struct str *topics, *markers; /* names, as listed */
    size_t topic_count, marker_count;
    struct znode_partition_list reassign, preferred;
    bool has_reassign, has_preferred;
    bool grown;  /* a topic or partitions are new */
    bool marked; /* a topic is to be deleted */
    struct changes changes;
    struct sending *sending;
};

/* One topic's node that is being read. */
struct look_topic {
    struct look *lk;
    struct str name;
};

static struct look *look_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct look, ev);
}

static void look_end(struct look *lk)
{
    if (lk->sending) sending_drop(lk->sending);
    changes_fini(&lk->changes);
    arena_fini(&lk->arena);
    mem_free(lk);
}

static struct coord_to look_to(struct look *lk, coord_done_fn done)
{
    return event_to(lk->c, &lk->ev, done, lk);
}

/* --- watches --- */

static void look_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    (void)path;
    if (!c->stopping && c->state != CONTROLLER_STANDBY) others_look(c);
}

void topic_watch_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    struct str prefix = ZNODE_TOPICS;
    if (c->stopping || c->state == CONTROLLER_STANDBY || path.size <= prefix.size + 1) return;
    struct topic *t = topic_find(c, (struct str){path.data + prefix.size + 1, path.size - prefix.size - 1});
    if (!t) return; /* deleted, by whom it was to be */
    t->watched = false;
    others_look(c);
}

/* --- looking --- */

static void markers_listed(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    lk->markers = names_copy(&lk->arena, r, &lk->marker_count);
    event_call_done(lk->c, &lk->ev, r->err);
}

static void topics_listed(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    lk->topics = names_copy(&lk->arena, r, &lk->topic_count);
    event_call_done(lk->c, &lk->ev, r->err);
}

static void seen(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    event_call_done(lk->c, &lk->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

/* A list that nobody can read is removed, as Kafka's controller does: it would stand in the way of the next one. */
static void list_read(struct look *lk, const struct coord_result *r, enum err e, const struct fault *f, bool *has)
{
    *has = r->err == OK;
    if (!r->err && e) LOG_WARN("list_ignored", "reason=\"%s\"", f->text);
    event_call_done(lk->c, &lk->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void reassign_read(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    struct fault f = {0};
    enum err e = r->err ? r->err : znode_reassign_decode(&lk->arena, r->data, &lk->reassign, &f);
    list_read(lk, r, e, &f, &lk->has_reassign);
}

static void preferred_read(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    struct fault f = {0};
    enum err e = r->err ? r->err : znode_partitions_decode(&lk->arena, r->path, r->data, &lk->preferred, &f);
    list_read(lk, r, e, &f, &lk->has_preferred);
}

static void list(struct look *lk)
{
    struct controller *c = lk->c;
    struct coord *store = c->opt.coord;
    struct coord_watch watch = {look_fired, c};
    coord_children(store, ZNODE_DELETE_TOPICS, watch, look_to(lk, markers_listed));
    coord_children(store, ZNODE_TOPICS, watch, look_to(lk, topics_listed));
    coord_exists(store, ZNODE_REASSIGN, watch, look_to(lk, seen));
    coord_exists(store, ZNODE_PREFERRED_ELECT, watch, look_to(lk, seen));
    coord_get(store, ZNODE_REASSIGN, COORD_NO_WATCH, look_to(lk, reassign_read));
    coord_get(store, ZNODE_PREFERRED_ELECT, COORD_NO_WATCH, look_to(lk, preferred_read));
}

static int32_t partitions_of(const struct controller *c, struct str name)
{
    const struct topic *t = topic_find(c, name);
    return t ? t->partition_count : -1;
}

static void topic_read(void *arg, const struct coord_result *r)
{
    struct look_topic *lt = arg;
    struct look *lk = lt->lk;
    struct znode_topic zt;
    struct fault f = {0};
    int32_t before = partitions_of(lk->c, lt->name);
    enum err e = r->err ? r->err : znode_topic_decode(&lk->arena, r->path, r->data, &zt, &f);
    if (!e) e = topic_load(lk->c, lt->name, &zt, r->stat.version, &f);
    if (e && before < 0 && controller_leaves_out(lk->c, &f)) e = OK; /* it is not in the tables, and stays so */
    if (f.code) LOG_WARN("topic_ignored", "reason=\"%s\"", f.text);
    lk->grown |= partitions_of(lk->c, lt->name) > before;
    /* One that went between the list and this is no news; one in the tables, or that cannot be understood, is. */
    event_call_done(lk->c, &lk->ev, e == ERR_NOT_FOUND && before < 0 ? OK : e);
}

/* Those that are new, and those whose watch has fired. */
static void read_topics(struct look *lk)
{
    struct controller *c = lk->c;
    for (size_t i = 0; i < lk->topic_count; i++) {
        const struct topic *t = topic_find(c, lk->topics[i]);
        if (t && t->watched) continue;
        struct look_topic *lt = arena_alloc(&lk->arena, sizeof *lt);
        *lt = (struct look_topic){lk, lk->topics[i]};
        coord_get(c->opt.coord, znode_topic_path(&lk->arena, lt->name), (struct coord_watch){topic_watch_fired, c},
                  event_to(c, &lk->ev, topic_read, lt));
    }
}

/* --- acting --- */

static void written(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    struct look *lk = arg;
    (void)r;
    bool gone = e == ERR_NOT_FOUND && failed_step > 0; /* somebody else has removed it */
    if (e && !gone && !lk->c->deposed) controller_reload(lk->c);
}

static void write_one(struct look *lk, struct coord_op op)
{
    struct writes w;
    writes_init(&w, lk->c, &lk->ev, &lk->arena);
    w.done = written;
    w.arg = lk;
    writes_add(&w, op);
    writes_flush(&w);
    writes_fini(&w);
}

static void remove_node(struct look *lk, struct str path)
{
    write_one(lk, (struct coord_op){.kind = COORD_DELETE, .path = path, .version = COORD_ANY_VERSION});
}

static void name_topics(struct look *lk)
{
    struct writes w;
    writes_init(&w, lk->c, &lk->ev, &lk->arena);
    w.done = written;
    w.arg = lk;
    topics_name(&w);
    writes_flush(&w);
    writes_fini(&w);
}

static void mark_topics(struct look *lk)
{
    for (size_t i = 0; i < lk->marker_count; i++) {
        struct topic *t = topic_find(lk->c, lk->markers[i]);
        if (!t) {
            remove_node(lk, znode_delete_topic_path(&lk->arena, lk->markers[i]));
        } else if (!t->deleting) {
            LOG_INFO("topic_marked", "topic=%.*s", STR_ARG(t->name));
            t->deleting = lk->marked = true;
        }
    }
}

static void prefer_leaders(struct look *lk)
{
    for (size_t i = 0; i < lk->preferred.count; i++) {
        const struct znode_listed *zl = &lk->preferred.partitions[i];
        struct topic *t = topic_find(lk->c, zl->topic);
        if (!t || t->deleting || zl->partition < 0 || zl->partition >= t->partition_count) continue;
        const struct controller_partition *p = &t->partitions[zl->partition];
        if (p->replicas && p->state_version >= 0) elect_preferred(&lk->changes, t, zl->partition, "preferred_leader");
    }
}

/* Only when it is begun: a crash in between must not lose it.  Of reassignments the list says what is not over yet: by
 * that the tools which wrote it see how far they are. */
static void strike_off(struct look *lk, size_t before)
{
    if (lk->has_preferred) remove_node(lk, ZNODE_PREFERRED_ELECT);
    if (lk->has_reassign && lk->reassign.count == 0)
        remove_node(lk, ZNODE_REASSIGN);
    else if (lk->reassign.count < before)
        write_one(lk, (struct coord_op){.kind = COORD_SET,
                                        .path = ZNODE_REASSIGN,
                                        .data = znode_reassign_encode(&lk->arena, &lk->reassign),
                                        .version = COORD_ANY_VERSION});
}

/* False: a topic of the tables is not in the store. */
static bool all_are_there(const struct look *lk)
{
    size_t found = 0;
    for (size_t i = 0; i < lk->topic_count; i++) found += topic_find(lk->c, lk->topics[i]) != NULL;
    return found == HASH_CNT(by_name, lk->c->topics);
}

static void act(struct look *lk)
{
    if (!all_are_there(lk)) {
        LOG_WARN("topic_vanished", "reason=\"its node has gone from the store without having been marked\"");
        controller_reload(lk->c);
        return;
    }
    lk->sending = sending_new(lk->c);
    name_topics(lk);
    mark_topics(lk);
    prefer_leaders(lk);
    size_t asked = lk->reassign.count;
    reassign_listed(lk->c, &lk->reassign, &lk->changes, lk->sending);
    lk->c->listed = lk->reassign.count > 0;
    changes_write(&lk->changes);
    strike_off(lk, asked);
}

static void tell(struct look *lk)
{
    struct controller *c = lk->c;
    if (lk->changes.count || lk->changes.topic_count) {
        changes_tell(&lk->changes, lk->sending);
        sending_send(lk->sending, NULL, NULL);
        lk->sending = NULL;
    }
    if (lk->grown) brokers_mend(c, "partitions_found");
    if (lk->marked) deletion_resume(c);
}

static enum step look_run(struct controller *c, struct event *ev)
{
    struct look *lk = look_of(ev);
    if (ev->err && ev->stage != LOOK_TELL) { /* later ones: written() */
        LOG_WARN("look_failed", "error=%s", err_name(ev->err));
        controller_depose_if(c, ev->err);
        if (!c->deposed) controller_reload(c);
        look_end(lk);
        return STEP_DONE;
    }
    switch ((enum look_stage)ev->stage) {
    case LOOK_LIST:
        ev->stage = LOOK_READ;
        c->others_queued = false; /* what changes from here on is looked at again */
        list(lk);
        return STEP_WAIT;
    case LOOK_READ:
        ev->stage = LOOK_WRITE;
        read_topics(lk);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case LOOK_WRITE:
        ev->stage = LOOK_TELL;
        act(lk);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case LOOK_TELL:
        if (!c->deposed) tell(lk);
        break;
    }
    look_end(lk);
    return STEP_DONE;
}

static void look_drop(struct controller *c, struct event *ev)
{
    (void)c;
    look_end(look_of(ev));
}

void others_look(struct controller *c)
{
    if (c->others_queued) return;
    c->others_queued = true;
    struct look *lk = mem_zalloc(1, sizeof *lk);
    lk->ev = (struct event){.run = look_run, .drop = look_drop, .stage = LOOK_LIST};
    lk->c = c;
    arena_init(&lk->arena, SIZE_MAX);
    changes_init(&lk->changes, c, &lk->ev, &lk->arena);
    controller_queue(c, &lk->ev);
}
