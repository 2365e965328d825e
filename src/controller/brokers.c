/* brokers.c: follows /brokers/ids and makes the cluster whole after each change: states for partitions that have none,
 * leaders for those without a live one, in-sync sets without the dead.
 *
 * The leader of a partition that lost its own is the first replica in assignment order that is alive and in sync.  When
 * there is none the partition has no leader (-1) until one of them comes back. */
#define LOG_MODULE "controller"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum brokers_stage { BROKERS_LIST, BROKERS_READ, BROKERS_COMPARE, BROKERS_ELECT, BROKERS_TELL };

/* A partition whose state is being written. */
struct change {
    struct topic *topic;
    int32_t partition;
    bool is_new;
};

struct brokers_event {
    struct event ev;
    struct controller *c;
    struct arena arena;
    bool loaded;
    int32_t *ids; /* as listed */
    size_t id_count;
    int32_t *came; /* registered anew */
    size_t came_count, came_cap;
    bool went;
    struct change *changes;
    size_t change_count, change_cap;
    struct fault fault;
};

struct broker_reading {
    struct brokers_event *be;
    int32_t id;
};

bool broker_id_parse(struct str name, int32_t *id)
{
    int64_t v = 0;
    if (name.size == 0 || name.size > 10) return false;
    for (size_t i = 0; i < name.size; i++) {
        if (name.data[i] < '0' || name.data[i] > '9') return false;
        v = v * 10 + (name.data[i] - '0');
    }
    if (v > INT32_MAX) return false;
    *id = (int32_t)v;
    return true;
}

enum err broker_load(struct controller *c, int32_t id, const struct coord_result *r, struct fault *f)
{
    struct arena a;
    struct znode_broker info;
    arena_init(&a, SIZE_MAX);
    enum err e = znode_broker_decode(&a, r->path, r->data, &info, f);
    if (e) {
        arena_fini(&a);
        return e;
    }
    struct broker *b = broker_put(c, id);
    arena_fini(&b->arena);
    b->arena = a;
    b->info = info;
    b->epoch = r->stat.czxid;
    return OK;
}

/* --- states --- */

struct bytes partition_encode(const struct controller_partition *p, struct arena *a)
{
    struct znode_state zs = {p->controller_epoch,     p->leader, p->leader_epoch, p->isr, p->isr_count,
                             p->leader_recovery_state};
    return znode_state_encode(a, &zs);
}

static int32_t *live_of(const struct controller *c, const struct controller_partition *p, const int32_t *ids,
                        int32_t count, int32_t *live_count)
{
    int32_t *live = mem_alloc((size_t)count * sizeof *live);
    *live_count = 0;
    for (int32_t i = 0; i < count; i++)
        if (replica_is_alive(c, p, ids[i])) live[(*live_count)++] = ids[i];
    return live;
}

bool partition_start(const struct controller *c, struct controller_partition *p)
{
    int32_t count;
    int32_t *live = live_of(c, p, p->replicas, p->replica_count, &count);
    if (count) {
        p->leader = live[0];
        p->leader_epoch = 0;
        p->controller_epoch = c->epoch;
        partition_set_isr(p, live, count);
    }
    mem_free(live);
    return count > 0;
}

/* The first replica that is alive and in sync; -1: none. */
static int32_t leader_choose(const struct controller *c, const struct controller_partition *p)
{
    for (int32_t i = 0; i < p->replica_count; i++)
        if (ids_have(p->isr, p->isr_count, p->replicas[i]) && replica_is_alive(c, p, p->replicas[i]))
            return p->replicas[i];
    return -1;
}

bool partition_mend(const struct controller *c, struct controller_partition *p, bool fence)
{
    bool leads = p->leader >= 0 && replica_is_alive(c, p, p->leader);
    int32_t live_count;
    int32_t *live = live_of(c, p, p->isr, p->isr_count, &live_count);
    int32_t leader = leads ? p->leader : leader_choose(c, p);
    bool shrinks = (fence || !leads) && live_count > 0 && live_count < p->isr_count;
    bool changes = shrinks || (leader != p->leader && (leader >= 0 || fence));
    if (changes) {
        p->leader = leader;
        p->leader_epoch++;
        p->controller_epoch = c->epoch;
        if (shrinks) partition_set_isr(p, live, live_count);
    }
    mem_free(live);
    return changes;
}

/* --- the event --- */

static struct brokers_event *event_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct brokers_event, ev);
}

static void event_end(struct brokers_event *be)
{
    arena_fini(&be->arena);
    mem_free(be->changes);
    mem_free(be->came);
    mem_free(be);
}

void brokers_watch_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    (void)path;
    if (!c->stopping && c->state != CONTROLLER_STANDBY) brokers_queue(c, false);
}

static struct coord_to event_to(struct brokers_event *be, coord_done_fn done, void *arg)
{
    be->ev.pending++;
    return (struct coord_to){be->c->opt.loop, done, arg};
}

static void read_failed(struct brokers_event *be, const struct coord_result *r)
{
    if (be->fault.code) return;
    fault_set(&be->fault, r->err, "The controller cannot read the brokers from the coordination store: %s.",
              r->text ? r->text : err_text(r->err));
}

static void ids_listed(void *arg, const struct coord_result *r)
{
    struct brokers_event *be = arg;
    if (r->err) read_failed(be, r);
    be->ids = arena_array(&be->arena, int32_t, r->child_count);
    for (size_t i = 0; i < r->child_count; i++)
        if (broker_id_parse(r->children[i], &be->ids[be->id_count])) be->id_count++;
    event_call_done(be->c, &be->ev, OK);
}

static void registration_read(void *arg, const struct coord_result *r)
{
    struct broker_reading *rd = arg;
    struct brokers_event *be = rd->be;
    struct controller *c = be->c;
    const struct broker *known = broker_find(c, rd->id);
    if (r->err == OK && (!known || known->epoch != r->stat.czxid)) {
        if (broker_load(c, rd->id, r, &be->fault) == OK) {
            be->came = mem_grow(be->came, &be->came_cap, be->came_count + 1, sizeof *be->came);
            be->came[be->came_count++] = rd->id;
            replicas_online_again(c, rd->id);
            LOG_INFO("broker_came", "broker=%d epoch=%lld", rd->id, (long long)r->stat.czxid);
        }
    } else if (r->err && r->err != ERR_NOT_FOUND) {
        read_failed(be, r);
    }
    struct broker *b = broker_find(c, rd->id);
    if (r->err == OK && b) b->seen = true;
    event_call_done(c, &be->ev, OK);
}

static void read_registrations(struct brokers_event *be)
{
    struct broker_reading *rds = arena_array(&be->arena, struct broker_reading, be->id_count);
    for (size_t i = 0; i < be->id_count; i++) {
        rds[i] = (struct broker_reading){be, be->ids[i]};
        coord_get(be->c->opt.coord, znode_broker_path(&be->arena, be->ids[i]), COORD_NO_WATCH,
                  event_to(be, registration_read, &rds[i]));
    }
}

/* Forgets the brokers that are not registered any more. */
static void drop_unseen(struct brokers_event *be)
{
    struct broker *b, *next;
    HASH_ITER(hh, be->c->brokers, b, next)
    {
        if (b->seen) {
            b->seen = false;
            continue;
        }
        LOG_INFO("broker_went", "broker=%d epoch=%lld", b->id, (long long)b->epoch);
        be->went = true;
        broker_remove(be->c, b);
    }
}

static void written(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    struct brokers_event *be = arg;
    if (!e) return;
    LOG_WARN("states_refused", "error=%s step=%zu path=%.*s", err_name(e), failed_step,
             STR_ARG(failed_step < r->result_count ? r->results[failed_step].path : STR_EMPTY));
    if (!be->c->deposed) controller_reload(be->c); /* see (3) in controller.c */
}

static void add_change(struct brokers_event *be, struct topic *t, int32_t partition, bool is_new)
{
    be->changes = mem_grow(be->changes, &be->change_cap, be->change_count + 1, sizeof *be->changes);
    be->changes[be->change_count++] = (struct change){t, partition, is_new};
}

static void path_made(void *arg, const struct coord_result *r)
{
    struct brokers_event *be = arg;
    if (r->err) controller_reload(be->c);
    event_call_done(be->c, &be->ev, OK);
}

/* Finds what is to be changed, and makes the directories of partitions that have none. */
static void find_changes(struct brokers_event *be)
{
    struct controller *c = be->c;
    for (struct topic *t = c->topics; t; t = t->by_name.next) {
        if (t->deleting) continue;
        for (int32_t i = 0; i < t->partition_count; i++) {
            struct controller_partition *p = &t->partitions[i];
            if (!p->replicas) continue;
            if (p->state_version >= 0) {
                if (partition_mend(c, p, be->went)) add_change(be, t, i, false);
            } else if (partition_start(c, p)) {
                add_change(be, t, i, true);
                const struct str path = znode_partition_path(&be->arena, t->name, i);
                coord_make_paths(c->opt.coord, &path, 1, event_to(be, path_made, be));
            }
        }
    }
}

static void write_changes(struct brokers_event *be)
{
    struct writes w;
    writes_init(&w, be->c, &be->ev, &be->arena);
    w.done = written;
    w.arg = be;
    for (size_t i = 0; i < be->change_count; i++) {
        const struct change *ch = &be->changes[i];
        struct controller_partition *p = &ch->topic->partitions[ch->partition];
        writes_add(&w, (struct coord_op){.kind = ch->is_new ? COORD_CREATE : COORD_SET,
                                         .path = znode_state_path(&be->arena, ch->topic->name, ch->partition),
                                         .data = partition_encode(p, &be->arena),
                                         .version = p->state_version});
        p->state_version++;
    }
    writes_flush(&w);
    writes_fini(&w);
}

static void tell(struct brokers_event *be)
{
    struct controller *c = be->c;
    /* First who is alive: a LeaderAndIsr may name brokers that its receiver has never heard of.  A cluster of one is
     * spared it: its first UpdateMetadata is the whole truth. */
    if (!be->loaded || HASH_COUNT(c->brokers) > 1) sending_send(sending_new(c), NULL, NULL);
    struct sending *s = sending_new(c);
    for (size_t i = 0; i < be->change_count; i++)
        sending_add_partition(s, be->changes[i].topic, be->changes[i].partition, be->changes[i].is_new);
    if (be->change_count)
        sending_send(s, NULL, NULL);
    else
        sending_drop(s);
    for (size_t i = 0; i < (be->loaded ? 1 : be->came_count); i++) {
        s = sending_new(c);
        if (!be->loaded) sending_only_to(s, be->came[i]);
        sending_add_everything(s);
        sending_send(s, NULL, NULL);
    }
    deletion_resume(c);
}

static enum step brokers_run(struct controller *c, struct event *ev)
{
    struct brokers_event *be = event_of(ev);
    if (be->fault.code) {
        controller_fail(c, &be->fault);
        controller_reload(c);
        event_end(be);
        return STEP_DONE;
    }
    switch ((enum brokers_stage)ev->stage) {
    case BROKERS_LIST:
        ev->stage = BROKERS_READ;
        coord_children(c->opt.coord, ZNODE_BROKER_IDS, (struct coord_watch){brokers_watch_fired, c},
                       event_to(be, ids_listed, be));
        return STEP_WAIT;
    case BROKERS_READ:
        ev->stage = BROKERS_COMPARE;
        read_registrations(be);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case BROKERS_COMPARE: drop_unseen(be); FALLTHROUGH;
    case BROKERS_ELECT:
        ev->stage = BROKERS_TELL;
        find_changes(be);
        write_changes(be);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case BROKERS_TELL: break;
    }
    if (be->loaded || be->went || be->came_count) tell(be);
    event_end(be);
    return STEP_DONE;
}

static void brokers_drop(struct controller *c, struct event *ev)
{
    (void)c;
    event_end(event_of(ev));
}

void brokers_queue(struct controller *c, bool loaded)
{
    struct brokers_event *be = mem_zalloc(1, sizeof *be);
    be->ev = (struct event){.run = brokers_run, .drop = brokers_drop, .stage = loaded ? BROKERS_ELECT : BROKERS_LIST};
    be->c = c;
    be->loaded = loaded;
    arena_init(&be->arena, SIZE_MAX);
    controller_queue(c, &be->ev);
}
