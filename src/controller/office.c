/* office.c: the office of the controller: running for it, reading the cluster's state when it is won, leaving it.
 *
 * Who makes /controller is in office, by one change that raises /controller_epoch, too.  Everybody watches that node:
 * when it goes, who was in office has lost it, and the others run.
 *
 * A /controller of our own session that nobody is in office with is what a write left of which nobody knew the end: it
 * goes, by a change that checks the epoch, before anybody runs. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

#define LOG_MODULE "controller"

enum { OFFICE_RETRY_US = 1000 * 1000, OFFICE_RETRY_CORRUPT_US = 30 * 1000 * 1000 };

static void state_set(struct controller *c, enum controller_state state)
{
    static const char *const names[] = {"standby", "loading", "active"};
    if (c->state == state) return;
    c->state = state;
    LOG_INFO("controller_state", "broker=%d state=%s epoch=%d", c->opt.broker_id, names[state], c->epoch);
    if (c->opt.state_changed) c->opt.state_changed(c->opt.arg, state, c->epoch);
}

/* --- leaving --- */

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
    /* A full disk, say.  Nobody else can be elected as long as our session lives. */
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

/* With what was to be done by them: events that are queued for it are dropped. */
static void drop_tables(struct controller *c)
{
    c->reassign_queued = c->others_queued = c->listed = c->fenced = false;
    balance_stop(c);
    deletion_abandon(c);
    state_clear(c);
    state_set(c, CONTROLLER_STANDBY);
}

void office_leave(struct controller *c)
{
    bool wrong = c->tables_wrong;
    int64_t back_us = c->back_us;
    if (c->state != CONTROLLER_STANDBY && !c->session_ended) release_office(c);
    c->deposed = c->tables_wrong = c->session_ended = false;
    c->back_us = 0;
    drop_tables(c);
    if (c->no_session) return; /* controller_session_renewed() */
    if (back_us)
        run_later(c, back_us);
    else if (wrong)
        run_later(c, OFFICE_RETRY_US); /* not at once: what went wrong may go wrong again */
    else if (!c->stopping)
        office_queue(c);
}

void office_retry_fire(struct timer *t)
{
    struct controller *c = CONTAINER_OF(t, struct controller, retry);
    if (c->stopping || c->state != CONTROLLER_STANDBY) return;
    if (!c->office_queued) office_queue(c);
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

/* /controller, as it was read. */
static bool is_ours(const struct controller *c, const struct coord_result *r)
{
    return r->err == OK && r->stat.ephemeral_owner == coord_session_id(c->opt.coord);
}

/* It names us, too: what somebody else has written into it would leave nobody in office, as far as others can read. */
static bool names_us(const struct controller *c, const struct coord_result *r)
{
    struct znode_controller zc;
    struct fault unreadable = {0};
    struct arena a;
    if (!is_ours(c, r)) return false;
    arena_init(&a, SIZE_MAX);
    bool us = znode_controller_decode(&a, r->data, &zc, &unreadable) == OK && zc.broker_id == c->opt.broker_id;
    arena_fini(&a);
    return us;
}

static void controller_seen(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    o->lost = r->err == OK;
    o->ours = is_ours(o->c, r);
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
    coord_get(store, ZNODE_CONTROLLER_EPOCH, COORD_NO_WATCH, event_to(o->c, &o->ev, epoch_read, o));
    coord_exists(store, ZNODE_FEATURE, COORD_NO_WATCH, event_to(o->c, &o->ev, features_read, o));
    coord_exists(store, ZNODE_CONTROLLER, COORD_NO_WATCH, event_to(o->c, &o->ev, controller_seen, o));
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
    coord_multi(o->c->opt.coord, ops, ARRAY_COUNT(ops), event_to(o->c, &o->ev, leftover_removed, o));
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

static void office_taken_away(struct controller *c)
{
    controller_depose(c);
    controller_pump(c);
}

static void office_looked_at(void *arg, const struct coord_result *r)
{
    struct controller *c = arg;
    if (names_us(c, r) || c->stopping || c->state == CONTROLLER_STANDBY || coord_session_over(r->err)) return;
    office_taken_away(c);
}

/* /controller was made, changed or deleted.  Who waits may run, unless that is under way.  Who is in office, or reads
 * what it has taken over, has lost it if the node has gone; a change may be none (coord.h). */
static void office_watch_fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)path;
    if (c->stopping || c->no_session) return;
    if (c->state == CONTROLLER_STANDBY) {
        if (!c->office_queued && !timer_is_set(&c->retry)) office_queue(c);
    } else if (event == COORD_NODE_CHANGED) {
        coord_get(c->opt.coord, ZNODE_CONTROLLER, (struct coord_watch){office_watch_fired, c},
                  (struct coord_to){c->opt.loop, office_looked_at, c});
    } else {
        office_taken_away(c);
    }
}

static void office_watched(void *arg, const struct coord_result *r)
{
    struct office *o = arg;
    if (r->err && r->err != ERR_NOT_FOUND)
        office_fault(o, r->err, "/controller", r->text);
    else if (o->won && (!is_ours(o->c, r) || r->stat.version > 0))
        controller_depose(o->c); /* taken away before it was watched */
    else if (r->err)
        o->lost = false; /* gone meanwhile: run again */
    event_call_done(o->c, &o->ev, OK);
}

static void office_watch(struct office *o)
{
    coord_exists(o->c->opt.coord, ZNODE_CONTROLLER, (struct coord_watch){office_watch_fired, o->c},
                 event_to(o->c, &o->ev, office_watched, o));
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
    coord_multi(c->opt.coord, ops, count, event_to(o->c, &o->ev, office_run_done, o));
}

static void listed(struct office *o, const struct coord_result *r, struct str **out, size_t *count)
{
    if (r->err == OK)
        *out = names_copy(&o->arena, r, count);
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
                   event_to(o->c, &o->ev, brokers_listed, o));
    coord_children(store, ZNODE_TOPICS, COORD_NO_WATCH, event_to(o->c, &o->ev, topics_listed, o));
    coord_children(store, ZNODE_DELETE_TOPICS, COORD_NO_WATCH, event_to(o->c, &o->ev, deletions_listed, o));
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
                  (struct coord_watch){brokers_watch_fired, c}, event_to(o->c, &o->ev, broker_read, rd));
    }
    for (size_t i = 0; i < o->topic_count; i++) {
        struct read *rd = reads++;
        *rd = (struct read){.o = o, .name = o->topics[i]};
        coord_get(c->opt.coord, znode_topic_path(&o->arena, rd->name), (struct coord_watch){topic_watch_fired, c},
                  event_to(o->c, &o->ev, topic_read, rd));
    }
}

static void state_read(void *arg, const struct coord_result *r)
{
    struct read *rd = arg;
    struct office *o = rd->o;
    struct controller_partition *p = &rd->topic->partitions[rd->partition];
    if (r->err == OK) {
        struct fault f = {OK, ""};
        if (partition_load_state(p, r, &o->scratch, &f)) rd->topic->left_out = office_malformed(o, &f);
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
                      event_to(o->c, &o->ev, state_read, &reads[i]));
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
        coord_multi(c->opt.coord, ops, ARRAY_COUNT(ops), event_to(o->c, &o->ev, ignored, o));
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
    drop_tables(c);
    office_end(o);
    /* A closed session does not come back; anything else may. */
    if (e != ERR_CLOSED && !c->no_session) run_later(c, e == ERR_CORRUPT ? OFFICE_RETRY_CORRUPT_US : OFFICE_RETRY_US);
    return STEP_DONE;
}

/* It is won and all is read, or it is lost, or neither: then it is run for again. */
static enum step office_over(struct controller *c, struct office *o)
{
    bool won = o->won, lost = o->lost;
    office_leave_out(c);
    office_end(o);
    if (won) {
        state_set(c, CONTROLLER_ACTIVE);
        brokers_queue(c, true);
        notifications_watch(c);
        others_look(c);
        balance_start(c);
    } else if (!lost) {
        office_queue(c);
    }
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
    return office_over(c, o);
}

static void office_drop(struct controller *c, struct event *ev)
{
    (void)c;
    office_end(office_of(ev));
}

void office_queue(struct controller *c)
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
