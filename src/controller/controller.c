/* controller.c: the controller's life: running for office, reading the cluster's state, the queue of events, the end.
 *
 * WHAT ALWAYS HOLDS
 * (1) One event at a time is between its begin and its end.  Only it changes the tables.
 * (2) Out of office the tables are empty.
 * (3) Whenever the store refuses a write that the tables allowed, the tables are wrong: the controller leaves office
 * and runs again, which reads everything anew.  So it does when the connection to the store broke while a write was
 * out: nobody knows then what is written.
 * (4) A /controller of our own session that nobody is in office with is what such a write left: it goes, by a change
 * that checks the epoch, before anybody runs. */
#include "controller/controller.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

#define LOG_MODULE "controller"

enum { OFFICE_RETRY_US = 1000 * 1000, OFFICE_RETRY_CORRUPT_US = 30 * 1000 * 1000 };

static void office_queue(struct controller *c);

static void state_set(struct controller *c, enum controller_state state)
{
    static const char *const names[] = {"standby", "loading", "active"};
    if (c->state == state) return;
    c->state = state;
    LOG_INFO("controller_state", "broker=%d state=%s epoch=%d", c->opt.broker_id, names[state], c->epoch);
    if (c->opt.state_changed) c->opt.state_changed(c->opt.arg, state, c->epoch);
}

/* --- events --- */

static void run_later(struct controller *c, int64_t wait_us)
{
    if (!c->stopping && !c->no_session) loop_timer_set(c->opt.loop, &c->retry, loop_now_us(c->opt.loop) + wait_us);
}

static void office_released(void *arg, const struct coord_result *r)
{
    struct controller *c = arg;
    /* It is another's, or went or goes with the session. */
    if (r->err == OK || r->err == ERR_VERSION || r->err == ERR_NOT_FOUND || r->err == ERR_CLOSED ||
        r->err == ERR_EXPIRED)
        return;
    /* A full disk, say.  Nobody else can be elected as long as our session lives: see (4). */
    if (!c->office_queued) run_later(c, OFFICE_RETRY_US);
}

/* Removes /controller if it is ours. */
static void release_office(struct controller *c)
{
    const struct coord_op ops[] = {
        {.kind = COORD_CHECK, .path = ZNODE_CONTROLLER_EPOCH, .version = c->epoch_version},
        {.kind = COORD_DELETE, .path = ZNODE_CONTROLLER, .version = COORD_ANY_VERSION},
    };
    coord_multi(c->opt.coord, ops, ARRAY_COUNT(ops), (struct coord_to){c->opt.loop, office_released, c});
}

static void leave_office(struct controller *c)
{
    bool wrong = c->tables_wrong;
    int64_t back_us = c->back_us;
    if (c->state != CONTROLLER_STANDBY && !c->session_ended) release_office(c);
    c->deposed = c->tables_wrong = c->session_ended = c->fenced = false;
    c->back_us = 0;
    c->reassign_queued = c->others_queued = c->listed = false;
    balance_stop(c);
    deletion_abandon(c);
    state_clear(c);
    state_set(c, CONTROLLER_STANDBY);
    if (c->no_session) return; /* controller_session_renewed() */
    if (back_us)
        run_later(c, back_us);
    else if (wrong)
        run_later(c, OFFICE_RETRY_US); /* not at once: what went wrong may go wrong again */
    else if (!c->stopping)
        office_queue(c);
}

static void stopped_run(struct loop_msg *msg)
{
    struct controller *c = CONTAINER_OF(msg, struct controller, stop_msg);
    void (*stopped)(void *) = c->stopped;
    c->stopped = NULL;
    if (stopped) stopped(c->stopped_arg);
}

static void stop_check(struct controller *c)
{
    if (!c->stopping || c->current || !list_is_empty(&c->queue) || c->messages_out || c->stop_msg.run) return;
    c->stop_msg.run = stopped_run;
    loop_post(c->opt.loop, &c->stop_msg);
}

/* Enters the current event; false when it waits. */
static bool current_run(struct controller *c)
{
    struct event *ev = c->current;
    if (ev->pending) return false;
    if (c->deposed || c->stopping || (c->state != CONTROLLER_ACTIVE && !ev->any_state)) {
        c->current = NULL;
        ev->drop(c, ev);
        return true;
    }
    if (ev->run(c, ev) == STEP_WAIT) {
        ASSERT(ev->pending || c->deposed || c->stopping);
        return ev->pending == 0;
    }
    c->current = NULL;
    return true;
}

void controller_pump(struct controller *c)
{
    if (c->running) return;
    c->running = true;
    for (;;) {
        if (c->current && !current_run(c)) break;
        if (c->current) continue;
        if (c->deposed) leave_office(c);
        struct list_node *next = list_pop_front(&c->queue);
        if (!next) break;
        c->current = CONTAINER_OF(next, struct event, link);
    }
    c->running = false;
    stop_check(c);
}

void controller_queue(struct controller *c, struct event *ev)
{
    ASSERT_OWNER(c->opt.loop);
    list_push_back(&c->queue, &ev->link);
    controller_pump(c);
}

void event_call_done(struct controller *c, struct event *ev, enum err e)
{
    ASSERT(ev == c->current && ev->pending > 0);
    if (e && !ev->err) ev->err = e;
    if (--ev->pending == 0) controller_pump(c);
}

void controller_depose(struct controller *c)
{
    c->deposed = true;
}

void controller_depose_if(struct controller *c, enum err e)
{
    if (e == ERR_CLOSED || e == ERR_EXPIRED || e == ERR_UNSURE) controller_depose(c);
}

void controller_reload(struct controller *c)
{
    c->deposed = c->tables_wrong = true;
}

static void retry_fire(struct timer *t)
{
    struct controller *c = CONTAINER_OF(t, struct controller, retry);
    if (c->stopping || c->state != CONTROLLER_STANDBY) return;
    if (!c->office_queued) office_queue(c);
}

void controller_fail(struct controller *c, const struct fault *f)
{
    LOG_ERROR("controller_failed", "broker=%d reason=\"%s\"", c->opt.broker_id, f->text);
    if (c->opt.failed) c->opt.failed(c->opt.arg, f);
}

bool controller_leaves_out(const struct controller *c, struct fault *f)
{
    if (f->code != ERR_CORRUPT || !c->opt.leaves_out_malformed) return false;
    LOG_ERROR("left_out", "reason=\"%s\"", f->text);
    *f = (struct fault){0};
    return true;
}

/* --- running for office, and reading the state --- */

enum office_stage {
    OFFICE_READ,
    OFFICE_LOOK,
    OFFICE_RUN,
    OFFICE_WON_OR_LOST,
    OFFICE_LIST,
    OFFICE_READ_TOPICS,
    OFFICE_READ_STATES,
    OFFICE_LOADED
};

struct office {
    struct event ev;
    struct controller *c;
    struct arena arena;
    struct arena scratch;         /* of one answer */
    int32_t epoch, epoch_version; /* as read; a version of -1: there is none */
    bool has_features;
    size_t epoch_step; /* of the multi: the one that raises the epoch */
    bool ours;         /* a /controller of our session is there */
    bool won, lost;
    struct str *brokers, *topics, *deletions;
    size_t broker_count, topic_count, deletion_count;
    struct fault fault; /* the first one */
};

/* One read of many. */
struct read {
    struct office *o;
    struct str name;
    struct topic *topic;
    int32_t partition;
};

static struct office *office_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct office, ev);
}

static void office_end(struct office *o)
{
    o->c->office_queued = false;
    arena_fini(&o->arena);
    arena_fini(&o->scratch);
    mem_free(o);
}

static void office_fault(struct office *o, enum err e, const char *what, const char *text)
{
    if (o->fault.code) return;
    fault_set(&o->fault, e, "The controller cannot read %s from the coordination store: %s.", what,
              text ? text : err_text(e));
}

/* True: it is left out. */
static bool office_malformed(struct office *o, struct fault *f)
{
    if (controller_leaves_out(o->c, f)) return true;
    if (!o->fault.code) o->fault = *f;
    return false;
}

static struct coord_to office_to(struct office *o, coord_done_fn done, void *arg)
{
    o->ev.pending++;
    return (struct coord_to){o->c->opt.loop, done, arg};
}

static void epoch_read(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    if (r->err == OK && znode_controller_epoch_decode(r->data, &o->epoch, &o->fault) == OK)
        o->epoch_version = r->stat.version;
    else if (r->err && r->err != ERR_NOT_FOUND)
        office_fault(o, r->err, "/controller_epoch", r->text);
    event_call_done(o->c, &o->ev, OK);
}

static void features_read(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    o->has_features = r->err == OK;
    if (r->err && r->err != ERR_NOT_FOUND) office_fault(o, r->err, "/feature", r->text);
    event_call_done(o->c, &o->ev, OK);
}

static void controller_seen(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    o->lost = r->err == OK;
    o->ours = r->err == OK && r->stat.ephemeral_owner == coord_session_id(o->c->opt.coord);
    if (r->err && r->err != ERR_NOT_FOUND) office_fault(o, r->err, "/controller", r->text);
    event_call_done(o->c, &o->ev, OK);
}

/* What a new store lacks is made by the same change that takes the office.  The epoch is read before /controller is
 * looked at: who has made it since then has raised the epoch, too. */
static void office_read(struct office *o)
{
    struct coord *store = o->c->opt.coord;
    o->epoch = 0;
    o->epoch_version = -1;
    o->ours = o->lost = false;
    coord_get(store, ZNODE_CONTROLLER_EPOCH, COORD_NO_WATCH, office_to(o, epoch_read, o));
    coord_exists(store, ZNODE_FEATURE, COORD_NO_WATCH, office_to(o, features_read, o));
    coord_exists(store, ZNODE_CONTROLLER, COORD_NO_WATCH, office_to(o, controller_seen, o));
}

static void leftover_removed(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    if (r->err && r->err != ERR_VERSION && r->err != ERR_NOT_FOUND && r->err != ERR_UNSURE)
        office_fault(o, r->err, "/controller", r->text);
    event_call_done(o->c, &o->ev, OK);
}

static void office_remove_leftover(struct office *o)
{
    const struct coord_op ops[] = {
        {.kind = COORD_CHECK, .path = ZNODE_CONTROLLER_EPOCH, .version = o->epoch_version},
        {.kind = COORD_DELETE, .path = ZNODE_CONTROLLER, .version = COORD_ANY_VERSION},
    };
    coord_multi(o->c->opt.coord, ops, ARRAY_COUNT(ops), office_to(o, leftover_removed, o));
}

/* The steps of the multi that takes the office. */
enum { OFFICE_STEP_CONTROLLER, OFFICE_STEPS_MAX = 4 };

static void office_run_done(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    if (r->err == OK) {
        o->won = true;
        o->c->epoch = o->epoch + 1;
        o->c->epoch_version = r->results[o->epoch_step].stat.version;
    } else if (r->err == ERR_EXISTS && r->results[OFFICE_STEP_CONTROLLER].err == ERR_EXISTS) {
        o->lost = true;
    } else if (r->err != ERR_VERSION && r->err != ERR_EXISTS && r->err != ERR_NOT_FOUND && r->err != ERR_UNSURE) {
        /* These: another controller was faster in what we read, or nobody knows.  It is read again. */
        office_fault(o, r->err, "/controller", r->text);
    }
    event_call_done(o->c, &o->ev, OK);
}

/* /controller was made, changed or deleted: whoever is in office has lost it, whoever waits may run. */
static void office_watch_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    (void)path;
    if (c->stopping || c->no_session || c->office_queued || timer_is_set(&c->retry)) return; /* that looks for itself */
    if (c->state == CONTROLLER_STANDBY) {
        office_queue(c);
        return;
    }
    controller_depose(c);
    controller_pump(c);
}

static void office_watched(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    if (r->err == ERR_NOT_FOUND)
        o->lost = false; /* gone meanwhile: run again */
    else if (r->err)
        office_fault(o, r->err, "/controller", r->text);
    event_call_done(o->c, &o->ev, OK);
}

static void office_watch(struct office *o)
{
    coord_exists(o->c->opt.coord, ZNODE_CONTROLLER, (struct coord_watch){office_watch_fired, o->c},
                 office_to(o, office_watched, o));
}

static void office_run_for(struct office *o)
{
    struct controller *c = o->c;
    struct znode_controller me = {c->opt.broker_id, clock_wall_ms(loop_clock(c->opt.loop)), -1};
    bool has_epoch = o->epoch_version >= 0;
    struct coord_op ops[OFFICE_STEPS_MAX];
    size_t count = 0;
    ops[count++] = (struct coord_op){.kind = COORD_CREATE,
                                     .path = ZNODE_CONTROLLER,
                                     .data = znode_controller_encode(&o->arena, &me),
                                     .flags = COORD_EPHEMERAL};
    if (!has_epoch)
        ops[count++] = (struct coord_op){
            .kind = COORD_CREATE, .path = ZNODE_CONTROLLER_EPOCH, .data = znode_controller_epoch_encode(&o->arena, 0)};
    o->epoch_step = count;
    ops[count++] = (struct coord_op){.kind = COORD_SET,
                                     .path = ZNODE_CONTROLLER_EPOCH,
                                     .data = znode_controller_epoch_encode(&o->arena, o->epoch + 1),
                                     .version = has_epoch ? o->epoch_version : 0};
    if (!o->has_features) {
        const struct znode_features none = {.enabled = true};
        ops[count++] = (struct coord_op){
            .kind = COORD_CREATE, .path = ZNODE_FEATURE, .data = znode_features_encode(&o->arena, &none)};
    }
    ASSERT(count <= ARRAY_COUNT(ops));
    coord_multi(c->opt.coord, ops, count, office_to(o, office_run_done, o));
}

static void list_copy(struct office *o, const struct coord_result *r, struct str **out, size_t *count)
{
    *out = arena_array(&o->arena, struct str, r->child_count);
    *count = r->child_count;
    for (size_t i = 0; i < r->child_count; i++) (*out)[i] = arena_str(&o->arena, r->children[i]);
}

static void listed(struct office *o, const struct coord_result *r, struct str **out, size_t *count)
{
    if (r->err == OK)
        list_copy(o, r, out, count);
    else
        office_fault(o, r->err, "its lists", r->text);
    event_call_done(o->c, &o->ev, OK);
}

static void brokers_listed(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    listed(o, r, &o->brokers, &o->broker_count);
}

static void topics_listed(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    listed(o, r, &o->topics, &o->topic_count);
}

static void deletions_listed(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    listed(o, r, &o->deletions, &o->deletion_count);
}

static void office_list(struct office *o)
{
    struct controller *c = o->c;
    struct coord *store = c->opt.coord;
    coord_children(store, ZNODE_BROKER_IDS, (struct coord_watch){brokers_watch_fired, c},
                   office_to(o, brokers_listed, o));
    coord_children(store, ZNODE_TOPICS, COORD_NO_WATCH, office_to(o, topics_listed, o));
    coord_children(store, ZNODE_DELETE_TOPICS, COORD_NO_WATCH, office_to(o, deletions_listed, o));
}

static void broker_read(void *arg, const struct coord_result *r)
{
    struct read *rd = arg;
    struct office *o = rd->o;
    if (r->err == OK) {
        struct fault f = {0};
        if (broker_load(o->c, rd->partition, r, &f)) office_malformed(o, &f);
    } else if (r->err != ERR_NOT_FOUND) {
        office_fault(o, r->err, "a broker", r->text);
    }
    event_call_done(o->c, &o->ev, OK);
}

static void topic_read(void *arg, const struct coord_result *r)
{
    struct read *rd = arg;
    struct office *o = rd->o;
    struct znode_topic zt;
    if (r->err == OK) {
        struct fault f = {OK, ""};
        enum err e = znode_topic_decode(&o->scratch, r->path, r->data, &zt, &f);
        if (!e) e = topic_load(o->c, rd->name, &zt, r->stat.version, &f);
        if (e) office_malformed(o, &f);
    } else if (r->err != ERR_NOT_FOUND) {
        office_fault(o, r->err, "a topic", r->text);
    }
    arena_reset(&o->scratch);
    event_call_done(o->c, &o->ev, OK);
}

static void office_read_topics(struct office *o)
{
    struct controller *c = o->c;
    struct read *reads = arena_array(&o->arena, struct read, o->broker_count + o->topic_count);
    for (size_t i = 0; i < o->broker_count; i++) {
        struct read *rd = reads++;
        rd->o = o;
        if (!broker_id_parse(o->brokers[i], &rd->partition)) continue;
        coord_get(c->opt.coord, znode_broker_path(&o->arena, rd->partition),
                  (struct coord_watch){brokers_watch_fired, c}, office_to(o, broker_read, rd));
    }
    for (size_t i = 0; i < o->topic_count; i++) {
        struct read *rd = reads++;
        *rd = (struct read){.o = o, .name = o->topics[i]};
        coord_get(c->opt.coord, znode_topic_path(&o->arena, rd->name), (struct coord_watch){topic_watch_fired, c},
                  office_to(o, topic_read, rd));
    }
}

static bool state_is_sound(const struct read *rd, const struct znode_state *zs, struct fault *f)
{
    bool sound = zs->leader_epoch >= 0 && ids_are_sound(zs->isr, zs->isr_count);
    if (!sound)
        fault_set(f, ERR_CORRUPT,
                  "The state of %.*s-%d in the coordination store has an epoch or an in-sync set that cannot be.",
                  STR_ARG(rd->topic->name), rd->partition);
    return sound;
}

static void state_read(void *arg, const struct coord_result *r)
{
    struct read *rd = arg;
    struct office *o = rd->o;
    struct controller_partition *p = &rd->topic->partitions[rd->partition];
    struct znode_state zs;
    if (r->err == OK) {
        struct fault f = {OK, ""};
        if (znode_state_decode(&o->scratch, r->path, r->data, &zs, &f) == OK && state_is_sound(rd, &zs, &f)) {
            p->leader = zs.leader;
            p->leader_epoch = zs.leader_epoch;
            p->controller_epoch = zs.controller_epoch;
            p->leader_recovery_state = zs.leader_recovery_state;
            p->state_version = r->stat.version;
            p->state_zxid = r->stat.mzxid;
            partition_set_isr(p, zs.isr, zs.isr_count);
        } else {
            rd->topic->left_out = office_malformed(o, &f);
        }
    } else if (r->err != ERR_NOT_FOUND) {
        office_fault(o, r->err, "a partition's state", r->text);
    }
    arena_reset(&o->scratch);
    event_call_done(o->c, &o->ev, OK);
}

static void office_read_states(struct office *o)
{
    struct controller *c = o->c;
    struct arena paths; /* the store copies them: thousands need not be kept */
    arena_init(&paths, SIZE_MAX);
    for (struct topic *t = c->topics; t; t = t->by_name.next) {
        struct read *reads = arena_array(&o->arena, struct read, (size_t)t->partition_count);
        for (int32_t i = 0; i < t->partition_count; i++) {
            if (!t->partitions[i].replicas) continue;
            reads[i] = (struct read){.o = o, .topic = t, .partition = i};
            coord_get(c->opt.coord, znode_state_path(&paths, t->name, i), COORD_NO_WATCH,
                      office_to(o, state_read, &reads[i]));
        }
        arena_reset(&paths);
    }
    arena_fini(&paths);
}

/* They stay in the tables without a partition, so that nobody takes them for new. */
static void office_leave_out(struct controller *c)
{
    for (struct topic *t = c->topics; t; t = t->by_name.next)
        if (t->left_out) topic_resize(t, 0);
}

static void ignored(void *arg, const struct coord_result *r)
{
    (void)r;
    struct office *o = arg;
    event_call_done(o->c, &o->ev, OK);
}

/* Marks topics that are to be deleted; a marker without a topic is what is left of a deletion, and goes. */
static void office_mark_deletions(struct office *o)
{
    struct controller *c = o->c;
    for (size_t i = 0; i < o->deletion_count; i++) {
        struct topic *t = topic_find(c, o->deletions[i]);
        if (t) {
            t->deleting = true;
            continue;
        }
        const struct coord_op ops[] = {
            {.kind = COORD_CHECK, .path = ZNODE_CONTROLLER_EPOCH, .version = c->epoch_version},
            {.kind = COORD_DELETE,
             .path = znode_delete_topic_path(&o->arena, o->deletions[i]),
             .version = COORD_ANY_VERSION},
        };
        coord_multi(c->opt.coord, ops, ARRAY_COUNT(ops), office_to(o, ignored, o));
    }
}

static void topics_named(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    struct office *o = arg;
    (void)failed_step;
    (void)r;
    if (e && !o->c->deposed) controller_reload(o->c); /* somebody else has changed one of them */
}

static void office_name_topics(struct office *o)
{
    struct writes w;
    writes_init(&w, o->c, &o->ev, &o->arena);
    w.done = topics_named;
    w.arg = o;
    topics_name(&w);
    writes_flush(&w);
    writes_fini(&w);
}

static enum step office_failed(struct controller *c, struct office *o)
{
    enum err e = o->fault.code;
    if (e != ERR_EXPIRED) controller_fail(c, &o->fault); /* a session may expire */
    if (c->state != CONTROLLER_STANDBY) release_office(c);
    state_clear(c);
    state_set(c, CONTROLLER_STANDBY);
    office_end(o);
    /* A closed session does not come back; anything else may. */
    if (e != ERR_CLOSED && !c->no_session) run_later(c, e == ERR_CORRUPT ? OFFICE_RETRY_CORRUPT_US : OFFICE_RETRY_US);
    return STEP_DONE;
}

static enum step office_run(struct controller *c, struct event *ev)
{
    struct office *o = office_of(ev);
    if (o->fault.code) return office_failed(c, o);
    switch ((enum office_stage)ev->stage) {
    case OFFICE_READ:
        ev->stage = OFFICE_LOOK;
        office_read(o);
        return STEP_WAIT;
    case OFFICE_LOOK:
        if (o->ours) {
            ev->stage = OFFICE_READ;
            office_remove_leftover(o);
            return STEP_WAIT;
        }
        if (o->lost) {
            ev->stage = OFFICE_LOADED; /* the watch decides what then */
            office_watch(o);
            return STEP_WAIT;
        }
        FALLTHROUGH;
    case OFFICE_RUN:
        ev->stage = OFFICE_WON_OR_LOST;
        office_run_for(o);
        return STEP_WAIT;
    case OFFICE_WON_OR_LOST:
        ev->stage = o->won ? OFFICE_LIST : OFFICE_READ;
        if (!o->won && !o->lost) return office_run(c, ev); /* not as it was read: read again */
        office_watch(o);
        if (o->won) return STEP_WAIT;
        ev->stage = OFFICE_LOADED; /* the watch decides what then */
        return STEP_WAIT;
    case OFFICE_LIST:
        ev->stage = OFFICE_READ_TOPICS;
        state_set(c, CONTROLLER_LOADING);
        office_list(o);
        return STEP_WAIT;
    case OFFICE_READ_TOPICS:
        ev->stage = OFFICE_READ_STATES;
        office_read_topics(o);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case OFFICE_READ_STATES:
        ev->stage = OFFICE_LOADED;
        office_mark_deletions(o);
        office_name_topics(o);
        office_read_states(o);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case OFFICE_LOADED: break;
    }
    bool won = o->won, lost = o->lost;
    office_leave_out(c);
    office_end(o);
    if (won) {
        state_set(c, CONTROLLER_ACTIVE);
        brokers_queue(c, true);
        log_dirs_watch(c);
        isr_changes_watch(c);
        others_look(c);
        balance_start(c);
    } else if (!lost) {
        office_queue(c);
    }
    return STEP_DONE;
}

static void office_drop(struct controller *c, struct event *ev)
{
    (void)c;
    office_end(office_of(ev));
}

static void office_queue(struct controller *c)
{
    struct office *o = mem_zalloc(1, sizeof *o);
    c->office_queued = true;
    o->ev = (struct event){.run = office_run, .drop = office_drop, .any_state = true};
    o->c = c;
    arena_init(&o->arena, SIZE_MAX);
    arena_init(&o->scratch, SIZE_MAX);
    ASSERT(!c->no_session);
    controller_queue(c, &o->ev);
}

/* --- life --- */

struct controller *controller_start(const struct controller_options *opt)
{
    struct controller *c = mem_zalloc(1, sizeof *c);
    c->opt = *opt;
    struct str listener = opt->inter_broker_listener;
    if (!str_is_null(listener)) c->opt.inter_broker_listener.data = mem_strndup(listener.data, listener.size);
    list_init(&c->queue);
    c->retry.fire = retry_fire;
    c->deletion_retry.fire = deletion_retry_fire;
    c->balance.fire = balance_fire;
    office_queue(c);
    return c;
}

void controller_session_lost(struct controller *c)
{
    ASSERT_OWNER(c->opt.loop);
    c->no_session = true;
    loop_timer_cancel(c->opt.loop, &c->retry);
    if (c->stopping) return;
    c->session_ended = true;
    controller_depose(c);
    controller_pump(c);
}

void controller_session_renewed(struct controller *c)
{
    ASSERT_OWNER(c->opt.loop);
    c->no_session = false;
    if (c->stopping || c->deposed || c->state != CONTROLLER_STANDBY) return; /* leave_office() goes on */
    if (!c->office_queued) office_queue(c);
}

void controller_stand_back(struct controller *c, int64_t wait_ms)
{
    ASSERT_OWNER(c->opt.loop);
    if (!c->opt.fast_failure_detection || c->stopping || c->state == CONTROLLER_STANDBY) return;
    LOG_WARN("controller_stands_back",
             "broker=%d epoch=%d wait_ms=%lld reason=\"none of the other brokers can be reached from here\"",
             c->opt.broker_id, c->epoch, (long long)wait_ms);
    c->back_us = wait_ms * 1000;
    controller_depose(c);
    controller_pump(c);
}

void controller_stop(struct controller *c, void (*stopped)(void *arg), void *arg)
{
    ASSERT_OWNER(c->opt.loop);
    ASSERT(!c->stopping);
    c->stopping = true;
    c->stopped = stopped;
    c->stopped_arg = arg;
    loop_timer_cancel(c->opt.loop, &c->retry);
    loop_timer_cancel(c->opt.loop, &c->deletion_retry);
    if (c->state != CONTROLLER_STANDBY) controller_depose(c);
    controller_pump(c);
}

void controller_free(struct controller *c)
{
    if (!c) return;
    ASSERT(c->stopping && !c->stopped && !c->current && list_is_empty(&c->queue));
    state_clear(c);
    mem_free((void *)(uintptr_t)c->opt.inter_broker_listener.data);
    mem_free(c);
}

bool controller_is_active(const struct controller *c)
{
    return c->state == CONTROLLER_ACTIVE;
}

/* --- looking inside --- */

enum controller_state controller_state(const struct controller *c)
{
    return c->state;
}

int32_t controller_epoch(const struct controller *c)
{
    return c->epoch;
}

size_t controller_topic_count(const struct controller *c)
{
    return HASH_CNT(by_name, c->topics);
}

size_t controller_broker_count(const struct controller *c)
{
    return HASH_COUNT(c->brokers);
}

bool controller_find_topic(const struct controller *c, struct str name, struct controller_topic *out)
{
    const struct topic *t = topic_find(c, name);
    if (!t) return false;
    *out = (struct controller_topic){t->name, t->id, t->partitions, t->partition_count, t->deleting};
    return true;
}
