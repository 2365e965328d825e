/* brokers.c: follows /brokers/ids and makes the cluster whole after each change: states for partitions that have none,
 * leaders for those without a live one (elections.c), in-sync sets without the dead.
 *
 * A broker is lost when its registration goes, or when its process looks dead (controller_broker_unreachable()).  The
 * second may be wrong: then the old leader still lives, and finds its in-sync sets closed to it, in the store and at
 * its followers.  So nothing is given up for it that cannot be taken back: a partition which nobody else can lead keeps
 * its leader until the registration goes.
 *
 * A registration with another epoch is another process: a loss and an arrival in one (Kafka's bounced brokers).  So is
 * one that is newer than a partition's state, which a new controller finds when a broker restarted while there was
 * none: see replica_has_restarted(). */
#define LOG_MODULE "controller"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

enum brokers_stage {
    BROKERS_LIST,
    BROKERS_READ,
    BROKERS_COMPARE,
    BROKERS_ELECT,
    BROKERS_ASK,
    BROKERS_WRITE,
    BROKERS_TELL
};

struct brokers_event {
    struct event ev;
    struct controller *c;
    struct arena arena;
    bool loaded;
    int32_t reached_id; /* -1; or the broker that became unreachable, or reachable again */
    int64_t reached_epoch;
    bool reachable;
    int32_t *ids; /* as listed */
    size_t id_count;
    int32_t *came; /* registered anew, or reached elsewhere or again: to be told everything */
    size_t came_count, came_cap;
    int32_t *restarted; /* those of them that had been there with another epoch */
    size_t restarted_count, restarted_cap;
    bool went;        /* somebody has gone */
    const char *mend; /* nobody came or went, but this is a reason to look whether all have leaders; else NULL */
    struct elections elections;
    struct changes changes;
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

/* --- the channel to a broker --- */

/* "PLAINTEXT://:-1" is well-formed, but nowhere. */
static bool is_place(const struct znode_endpoint *ep)
{
    return ep->host.size > 0 && ep->port > 0;
}

/* Where brokers reach each other; NULL: it has no such listener, or one that is nowhere.  (The node's own `host` and
 * `port` are for clients of before listeners: without a plaintext listener they are null and -1.) */
const struct znode_endpoint *broker_endpoint(const struct controller *c, const struct broker *b)
{
    for (size_t i = 0; i < b->info.endpoint_count; i++)
        if (str_is_null(c->opt.inter_broker_listener) || c->opt.inter_broker_listener.size == 0 ||
            str_equal(b->info.endpoints[i].listener, c->opt.inter_broker_listener))
            return is_place(&b->info.endpoints[i]) ? &b->info.endpoints[i] : NULL;
    return NULL;
}

void broker_announce(struct controller *c, struct broker *b)
{
    const struct znode_endpoint *ep = broker_endpoint(c, b);
    if (b->id == c->opt.broker_id) return;
    b->placeless = !ep;
    if (!ep) {
        LOG_ERROR(
            "broker_without_address",
            "broker=%d listener=%.*s reason=\"its registration has no host and port for that listener, so it can be "
            "told nothing, and leads nothing: set its listeners, or inter.broker.listener.name\"",
            b->id, STR_ARG(c->opt.inter_broker_listener));
        broker_renounce(c, b);
    } else if (c->opt.channel.broker_came) {
        b->announced = true;
        c->opt.channel.broker_came(c->opt.channel.arg, b->id, b->epoch, ep->host, ep->port);
    }
}

void broker_renounce(struct controller *c, struct broker *b)
{
    if (!b->announced) return;
    b->announced = false;
    c->opt.channel.broker_went(c->opt.channel.arg, b->id);
}

/* --- registrations --- */

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
    b->version = r->stat.version;
    broker_announce(c, b);
    return OK;
}

static struct brokers_event *event_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct brokers_event, ev);
}

static void event_end(struct brokers_event *be)
{
    elections_fini(&be->elections);
    changes_fini(&be->changes);
    arena_fini(&be->arena);
    mem_free(be->came);
    mem_free(be->restarted);
    mem_free(be);
}

void brokers_watch_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    (void)path;
    if (!c->stopping && c->state != CONTROLLER_STANDBY) brokers_queue(c, false);
}

static void read_failed(struct brokers_event *be, const struct coord_result *r)
{
    controller_depose_if(be->c, r->err);
    if (be->fault.code || be->c->deposed) return;
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

static void add_came(struct brokers_event *be, int32_t id)
{
    be->came = mem_grow(be->came, &be->came_cap, be->came_count + 1, sizeof *be->came);
    be->came[be->came_count++] = id;
}

/* The process is another one: what was known of the old one is void. */
static void process_came(struct brokers_event *be, int32_t id, bool restarted)
{
    struct broker *b = broker_find(be->c, id);
    b->unreachable = b->shutting_down = false;
    replicas_online_again(be->c, id);
    add_came(be, id);
    LOG_INFO("broker_came", "broker=%d epoch=%lld restarted=%s", id, (long long)b->epoch, restarted ? "true" : "false");
    if (!restarted) return;
    be->restarted = mem_grow(be->restarted, &be->restarted_cap, be->restarted_count + 1, sizeof *be->restarted);
    be->restarted[be->restarted_count++] = id;
}

/* The channel begins anew with it, and what was on its way may be lost. */
static void address_changed(struct brokers_event *be, int32_t id)
{
    broker_find(be->c, id)->unreachable = false;
    add_came(be, id);
}

static void registration_seen(struct brokers_event *be, int32_t id, const struct coord_result *r)
{
    struct controller *c = be->c;
    struct broker *b = broker_find(c, id);
    bool known = b, restarted = b && b->epoch != r->stat.czxid, was_placeless = b && b->placeless;
    if (known && !restarted && b->version == r->stat.version) {
        b->seen = true;
        return;
    }
    struct fault f = {0};
    if (broker_load(c, id, r, &f)) {
        if (!controller_leaves_out(c, &f) && !be->fault.code) be->fault = f;
        return;
    }
    b = broker_find(c, id);
    b->seen = true;
    if (!known || restarted)
        process_came(be, id, restarted);
    else
        address_changed(be, id);
    be->went |= known && b->placeless && !was_placeless;
}

static void registration_read(void *arg, const struct coord_result *r)
{
    struct broker_reading *rd = arg;
    struct brokers_event *be = rd->be;
    if (r->err == OK)
        registration_seen(be, rd->id, r);
    else if (r->err != ERR_NOT_FOUND)
        read_failed(be, r);
    event_call_done(be->c, &be->ev, OK);
}

/* Watched too: a broker's listeners may change while it runs. */
static void read_registrations(struct brokers_event *be)
{
    struct broker_reading *rds = arena_array(&be->arena, struct broker_reading, be->id_count);
    for (size_t i = 0; i < be->id_count; i++) {
        rds[i] = (struct broker_reading){be, be->ids[i]};
        coord_get(be->c->opt.coord, znode_broker_path(&be->arena, be->ids[i]),
                  (struct coord_watch){brokers_watch_fired, be->c},
                  event_to(be->c, &be->ev, registration_read, &rds[i]));
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
        broker_renounce(be->c, b);
        broker_remove(be->c, b);
    }
}

/* The connection to a broker broke, or is there again; false: that is no news. */
static bool reach_changed(struct brokers_event *be)
{
    struct broker *b = broker_find(be->c, be->reached_id);
    if (!b || b->epoch != be->reached_epoch || b->unreachable == !be->reachable) return false;
    b->unreachable = !be->reachable;
    if (be->reachable) {
        LOG_INFO("broker_reachable", "broker=%d epoch=%lld", b->id, (long long)b->epoch);
        add_came(be, b->id);
    } else {
        LOG_WARN("broker_unreachable", "broker=%d epoch=%lld", b->id, (long long)b->epoch);
        be->went = true;
    }
    return true;
}

/* --- states --- */

static void set_restarted(struct brokers_event *be, bool restarted)
{
    for (size_t i = 0; i < be->restarted_count; i++) broker_find(be->c, be->restarted[i])->restarted = restarted;
}

/* The dead are known of now.  Without its own broker the controller is about to start, and will hear of it. */
static bool fences(struct brokers_event *be)
{
    struct controller *c = be->c;
    bool fence = be->went || be->restarted_count || !c->fenced;
    if (!broker_find(c, c->opt.broker_id) && !c->fenced) return false;
    c->fenced = true;
    return fence;
}

static void find_contests(struct brokers_event *be)
{
    for (struct topic *t = be->c->topics; t; t = t->by_name.next)
        for (int32_t i = 0; i < t->partition_count && !t->deleting; i++) elections_add(&be->elections, t, i, false);
}

static void path_made(void *arg, const struct coord_result *r)
{
    struct brokers_event *be = arg;
    controller_depose_if(be->c, r->err);
    if (r->err && !be->c->deposed) controller_reload(be->c);
    event_call_done(be->c, &be->ev, OK);
}

static const char *reason_of(const struct brokers_event *be)
{
    if (be->loaded) return "new_controller";
    if (be->mend) return be->mend;
    if (be->reached_id >= 0) return be->reachable ? "broker_reachable" : "broker_unreachable";
    return be->went ? "broker_gone" : "broker_came";
}

/* A partition that has a state; false: nothing to change. */
static bool mend(struct brokers_event *be, struct topic *t, int32_t partition, bool fence)
{
    return elections_give(&be->elections, t, partition) || (fence && partition_fence(be->c, &t->partitions[partition]));
}

static void find_changes(struct brokers_event *be)
{
    struct controller *c = be->c;
    bool fence = fences(be);
    for (struct topic *t = c->topics; t; t = t->by_name.next) {
        if (t->deleting) continue;
        for (int32_t i = 0; i < t->partition_count; i++) {
            struct controller_partition *p = &t->partitions[i];
            struct change ch = {t, i, p->state_version < 0, p->leader, reason_of(be)};
            if (!p->replicas) continue;
            if (!ch.is_new) {
                if (mend(be, t, i, fence)) changes_add(&be->changes, ch);
            } else if (partition_start(c, p)) {
                changes_add(&be->changes, ch);
                const struct str path = znode_partition_path(&be->arena, t->name, i);
                coord_make_paths(c->opt.coord, &path, 1, event_to(be->c, &be->ev, path_made, be));
            }
        }
    }
    set_restarted(be, false);
}

/* --- telling --- */

/* Of what was just read everybody is told everything; only what is new to all needs to be said to be so. */
static void tell_loaded(struct brokers_event *be)
{
    struct sending *s = sending_new(be->c);
    bool any_new = false;
    changes_log(&be->changes);
    for (size_t i = 0; i < be->changes.count; i++) {
        const struct change *ch = &be->changes.list[i];
        if (ch->is_new) sending_add_partition(s, ch->topic, ch->partition, true);
        any_new = any_new || ch->is_new;
    }
    if (any_new)
        sending_send(s, NULL, NULL);
    else
        sending_drop(s);
    s = sending_new(be->c);
    sending_add_everything(s);
    sending_send(s, NULL, NULL);
}

static void tell_changes(struct brokers_event *be)
{
    struct sending *s = sending_new(be->c);
    changes_tell(&be->changes, s);
    if (be->changes.count)
        sending_send(s, NULL, NULL);
    else
        sending_drop(s);
    for (size_t i = 0; i < be->came_count; i++) {
        s = sending_new(be->c);
        sending_only_to(s, be->came[i]);
        sending_add_everything(s);
        sending_send(s, NULL, NULL);
    }
}

static void tell(struct brokers_event *be)
{
    struct controller *c = be->c;
    if (be->mend) {
        tell_changes(be);
        return;
    }
    /* First who is alive: a LeaderAndIsr may name brokers that its receiver has never heard of.  A cluster of one is
     * spared it: its first UpdateMetadata is the whole truth. */
    if (!be->loaded || HASH_COUNT(c->brokers) > 1) sending_send(sending_new(c), NULL, NULL);
    if (be->loaded)
        tell_loaded(be);
    else
        tell_changes(be);
    deletion_resume(c);
    if (be->loaded || be->came_count) reassign_queue(c, be->loaded);
}

/* --- the event --- */

static bool is_news(struct brokers_event *be)
{
    return be->loaded || be->mend || be->went || be->came_count;
}

static enum step brokers_failed(struct brokers_event *be)
{
    controller_fail(be->c, &be->fault);
    controller_reload(be->c);
    event_end(be);
    return STEP_DONE;
}

static enum step brokers_run(struct controller *c, struct event *ev)
{
    struct brokers_event *be = event_of(ev);
    if (be->fault.code) return brokers_failed(be);
    switch ((enum brokers_stage)ev->stage) {
    case BROKERS_LIST:
        ev->stage = BROKERS_READ;
        coord_children(c->opt.coord, ZNODE_BROKER_IDS, (struct coord_watch){brokers_watch_fired, c},
                       event_to(be->c, &be->ev, ids_listed, be));
        return STEP_WAIT;
    case BROKERS_READ:
        ev->stage = BROKERS_COMPARE;
        read_registrations(be);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case BROKERS_COMPARE:
        if (be->reached_id < 0)
            drop_unseen(be);
        else
            reach_changed(be);
        FALLTHROUGH;
    case BROKERS_ELECT:
        if (!is_news(be)) break;
        ev->stage = BROKERS_ASK;
        set_restarted(be, true);
        find_contests(be);
        elections_read_settings(&be->elections);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case BROKERS_ASK:
        ev->stage = BROKERS_WRITE;
        elections_ask(&be->elections);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case BROKERS_WRITE:
        ev->stage = BROKERS_TELL;
        find_changes(be);
        changes_write(&be->changes);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case BROKERS_TELL: tell(be); break;
    }
    event_end(be);
    return STEP_DONE;
}

static void brokers_drop(struct controller *c, struct event *ev)
{
    (void)c;
    event_end(event_of(ev));
}

static struct brokers_event *event_new(struct controller *c, enum brokers_stage stage)
{
    struct brokers_event *be = mem_zalloc(1, sizeof *be);
    be->ev = (struct event){.run = brokers_run, .drop = brokers_drop, .stage = (int)stage};
    be->c = c;
    be->reached_id = -1;
    arena_init(&be->arena, SIZE_MAX);
    elections_init(&be->elections, c, &be->ev, &be->arena);
    changes_init(&be->changes, c, &be->ev, &be->arena);
    return be;
}

void brokers_queue(struct controller *c, bool loaded)
{
    struct brokers_event *be = event_new(c, loaded ? BROKERS_ELECT : BROKERS_LIST);
    be->loaded = loaded;
    controller_queue(c, &be->ev);
}

void brokers_mend(struct controller *c, const char *reason)
{
    struct brokers_event *be = event_new(c, BROKERS_ELECT);
    be->mend = reason;
    controller_queue(c, &be->ev);
}

void controller_unclean_changed(struct controller *c, bool by_default)
{
    ASSERT_OWNER(c->opt.loop);
    c->opt.unclean_election = by_default;
    if (c->stopping || c->state != CONTROLLER_ACTIVE) return;
    brokers_mend(c, "settings");
}

static void reach_queue(struct controller *c, int32_t broker_id, int64_t broker_epoch, bool reachable)
{
    ASSERT_OWNER(c->opt.loop);
    if (!c->opt.fast_failure_detection || broker_id == c->opt.broker_id || c->stopping) return;
    struct brokers_event *be = event_new(c, BROKERS_COMPARE);
    be->reached_id = broker_id;
    be->reached_epoch = broker_epoch;
    be->reachable = reachable;
    controller_queue(c, &be->ev);
}

void controller_broker_unreachable(struct controller *c, int32_t broker_id, int64_t broker_epoch)
{
    reach_queue(c, broker_id, broker_epoch, false);
}

void controller_broker_reachable(struct controller *c, int32_t broker_id, int64_t broker_epoch)
{
    reach_queue(c, broker_id, broker_epoch, true);
}
