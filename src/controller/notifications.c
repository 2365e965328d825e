/* notifications.c: what brokers tell the controller by nodes of a sequence below a path of their kind.
 *
 * A watch says that there are some.  One event lists them, reads them, lets their kind ask the store for more, removes
 * them, and has their kind act: whoever has something to tell meanwhile makes another node, and is heard again.  After
 * a crash in between, the next controller reads everything anew. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

static const struct notification_kind *const kinds[] = {&isr_change_notifications, &log_dir_notifications};

enum stage { NOTIFICATIONS_LIST, NOTIFICATIONS_READ, NOTIFICATIONS_LOOK, NOTIFICATIONS_REMOVE, NOTIFICATIONS_ACT };

static void end(struct notifications *ns)
{
    changes_fini(&ns->changes);
    arena_fini(&ns->arena);
    mem_free(ns);
}

static void look(struct controller *c, const struct notification_kind *kind);

static void fired(void *arg, enum coord_event event, struct str path)
{
    struct controller *c = arg;
    (void)event;
    if (c->stopping || c->state == CONTROLLER_STANDBY) return;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        if (str_equal(kinds[i]->path, path)) look(c, kinds[i]);
}

static void on_listed(void *arg, const struct coord_result *r)
{
    struct notifications *ns = arg;
    ns->paths = arena_array(&ns->arena, struct str, r->child_count);
    ns->count = r->child_count;
    for (size_t i = 0; i < r->child_count; i++)
        ns->paths[i] = arena_printf(&ns->arena, "%.*s/%.*s", STR_ARG(ns->kind->path), STR_ARG(r->children[i]));
    event_call_done(ns->c, &ns->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void on_read(void *arg, const struct coord_result *r)
{
    struct notifications *ns = arg;
    struct fault f = {0};
    if (!r->err && ns->kind->read(ns, r, &f)) LOG_WARN("notification_ignored", "reason=\"%s\"", f.text);
    event_call_done(ns->c, &ns->ev, r->err == ERR_NOT_FOUND ? OK : r->err);
}

static void read_all(struct notifications *ns)
{
    for (size_t i = 0; i < ns->count; i++)
        coord_get(ns->c->opt.coord, ns->paths[i], COORD_NO_WATCH, event_to(ns->c, &ns->ev, on_read, ns));
}

static void remove_all(struct notifications *ns)
{
    struct writes w;
    writes_init(&w, ns->c, &ns->ev, &ns->arena);
    for (size_t i = 0; i < ns->count; i++)
        writes_add(&w, (struct coord_op){.kind = COORD_DELETE, .path = ns->paths[i], .version = COORD_ANY_VERSION});
    writes_flush(&w);
    writes_fini(&w);
}

static enum step run(struct controller *c, struct event *ev)
{
    struct notifications *ns = CONTAINER_OF(ev, struct notifications, ev);
    if (ev->err) {
        LOG_WARN("notifications_failed", "path=%.*s error=%s", STR_ARG(ns->kind->path), err_name(ev->err));
        controller_depose_if(c, ev->err);
        if (!c->deposed) controller_reload(c);
        end(ns);
        return STEP_DONE;
    }
    switch ((enum stage)ev->stage) {
    case NOTIFICATIONS_LIST:
        ev->stage = NOTIFICATIONS_READ;
        coord_children(c->opt.coord, ns->kind->path, (struct coord_watch){fired, c},
                       event_to(ns->c, &ns->ev, on_listed, ns));
        return STEP_WAIT;
    case NOTIFICATIONS_READ:
        ev->stage = NOTIFICATIONS_LOOK;
        read_all(ns);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case NOTIFICATIONS_LOOK:
        ev->stage = NOTIFICATIONS_REMOVE;
        if (ns->kind->look) ns->kind->look(ns);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case NOTIFICATIONS_REMOVE:
        ev->stage = NOTIFICATIONS_ACT;
        remove_all(ns);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case NOTIFICATIONS_ACT: ns->kind->act(ns); break;
    }
    end(ns);
    return STEP_DONE;
}

static void drop(struct controller *c, struct event *ev)
{
    (void)c;
    end(CONTAINER_OF(ev, struct notifications, ev));
}

static void look(struct controller *c, const struct notification_kind *kind)
{
    struct notifications *ns = mem_zalloc(1, sizeof *ns);
    ns->ev = (struct event){.run = run, .drop = drop, .stage = NOTIFICATIONS_LIST};
    ns->c = c;
    ns->kind = kind;
    arena_init(&ns->arena, SIZE_MAX);
    changes_init(&ns->changes, c, &ns->ev, &ns->arena);
    controller_queue(c, &ns->ev);
}

void notifications_watch(struct controller *c)
{
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) look(c, kinds[i]);
}
