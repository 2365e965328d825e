/* tree.c: ZooKeeper's rules, once for all stores.
 *
 * WHAT ALWAYS HOLDS
 * (1) Every node but the root has a parent, and the parent's child_count is the number of its children.
 * (2) An ephemeral node has no children.
 * (3) zxid grows by one with each successful call that changes something; a multi is one change.
 * (4) A failed call changes nothing: single operations check everything before they write, a multi is undone. */
#include "coord/tree.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#include "base/mem.h"

/* --- paths --- */

void tree_split_path(struct str path, struct str *parent, struct str *name)
{
    size_t slash = path.size;
    while (slash > 0 && path.data[slash - 1] != '/') slash--;
    *name = (struct str){path.data + slash, path.size - slash};
    if (path.size <= 1)
        *parent = STR_EMPTY;
    else
        *parent = slash <= 1 ? STR("/") : (struct str){path.data, slash - 1};
}

/* --- watches --- */

enum watch_kind { WATCH_DATA, WATCH_CHILDREN }; /* an exists watch is a data watch, as in ZooKeeper's server */

struct watch {
    struct list_node link;
    struct coord *c;
    struct loop *loop;
    struct coord_watch to;
    enum watch_kind kind;
};

struct watched_path {
    UT_hash_handle hh;
    struct list watches;
    size_t size;
    char path[];
};

static struct watched_path *watched_find(struct tree *t, struct str path)
{
    struct watched_path *wp;
    HASH_FIND(hh, t->watches, path.data, path.size, wp);
    return wp;
}

static void watched_drop_if_empty(struct tree *t, struct watched_path *wp)
{
    if (!list_is_empty(&wp->watches)) return;
    HASH_DEL(t->watches, wp);
    mem_free(wp);
}

static void watch_set(struct tree *t, const struct coord_call *call, enum watch_kind kind)
{
    if (!call->watch.fired) return;
    struct str path = call->ops[0].path;
    struct watched_path *wp = watched_find(t, path);
    if (!wp) {
        wp = mem_alloc(sizeof *wp + path.size);
        list_init(&wp->watches);
        wp->size = path.size;
        memcpy(wp->path, path.data, path.size);
        HASH_ADD_KEYPTR(hh, t->watches, wp->path, wp->size, wp);
    }
    LIST_EACH (&wp->watches, node) {
        const struct watch *w = CONTAINER_OF(node, struct watch, link);
        if (w->c == call->delivery.c && w->loop == call->to.loop && w->kind == kind &&
            w->to.fired == call->watch.fired && w->to.arg == call->watch.arg)
            return;
    }
    struct watch *w = mem_alloc(sizeof *w);
    *w = (struct watch){.c = call->delivery.c, .loop = call->to.loop, .to = call->watch, .kind = kind};
    list_push_back(&wp->watches, &w->link);
}

static void watches_fire(struct tree *t, struct str path, enum watch_kind kind, enum coord_event event,
                         struct list *out)
{
    struct watched_path *wp = watched_find(t, path);
    if (!wp) return;
    LIST_EACH (&wp->watches, node) {
        struct watch *w = CONTAINER_OF(node, struct watch, link);
        if (w->kind != kind) continue;
        struct coord_delivery *d = coord_event_new(w->c, w->loop, w->to, event, path);
        list_push_back(out, &d->link);
        list_remove(&w->link);
        mem_free(w);
    }
    watched_drop_if_empty(t, wp);
}

static void fire_created(struct tree *t, struct str path, struct list *out)
{
    struct str parent, name;
    tree_split_path(path, &parent, &name);
    watches_fire(t, path, WATCH_DATA, COORD_NODE_CREATED, out);
    watches_fire(t, parent, WATCH_CHILDREN, COORD_NODE_CHILDREN, out);
}

static void fire_deleted(struct tree *t, struct str path, struct list *out)
{
    struct str parent, name;
    tree_split_path(path, &parent, &name);
    watches_fire(t, path, WATCH_DATA, COORD_NODE_DELETED, out);
    watches_fire(t, path, WATCH_CHILDREN, COORD_NODE_DELETED, out);
    watches_fire(t, parent, WATCH_CHILDREN, COORD_NODE_CHILDREN, out);
}

static void watches_drop(struct tree *t, int64_t session, bool all)
{
    struct watched_path *wp, *next;
    HASH_ITER(hh, t->watches, wp, next)
    {
        LIST_EACH (&wp->watches, node) {
            struct watch *w = CONTAINER_OF(node, struct watch, link);
            if (!all && w->c->session != session) continue;
            list_remove(&w->link);
            mem_free(w);
        }
        watched_drop_if_empty(t, wp);
    }
}

void tree_drop_watches(struct tree *t, int64_t session)
{
    watches_drop(t, session, false);
}

/* --- operations --- */

void tree_init(struct tree *t, struct node_table *table, struct clock *clock, int64_t zxid)
{
    *t = (struct tree){.table = table, .clock = clock, .zxid = zxid};
}

void tree_fini(struct tree *t)
{
    watches_drop(t, 0, true);
}

enum err tree_ensure_root(struct tree *t)
{
    struct node root;
    enum err e = t->table->ops->load(t->table, STR("/"), &root, NULL);
    if (e != ERR_NOT_FOUND) return e;
    root = (struct node){0};
    return t->table->ops->insert(t->table, STR("/"), &root, (struct bytes){NULL, 0});
}

static struct coord_stat stat_of(const struct node *n)
{
    return (struct coord_stat){.czxid = n->czxid,
                               .mzxid = n->mzxid,
                               .pzxid = n->pzxid,
                               .ctime_ms = n->ctime_ms,
                               .mtime_ms = n->mtime_ms,
                               .version = n->version,
                               .cversion = (int32_t)((uint32_t)n->creates * 2 - (uint32_t)n->child_count),
                               .ephemeral_owner = n->owner,
                               .child_count = n->child_count};
}

/* One change under way: its id, and whose session makes it. */
struct change {
    struct tree *t;
    struct coord_call *call;
    int64_t zxid;
};

static enum err do_create(struct change *ch, const struct coord_op *op, struct coord_op_result *r)
{
    struct node_table *table = ch->t->table;
    struct str parent_path, name, path = op->path;
    if (path.size == 0 || path.data[0] != '/') return ERR_INVALID;
    if (!(op->flags & COORD_SEQUENTIAL) && !coord_path_is_ok(path)) return ERR_INVALID;
    if (path.size == 1 && !(op->flags & COORD_SEQUENTIAL)) return ERR_EXISTS;
    tree_split_path(path, &parent_path, &name);
    if (path.size == 1) parent_path = STR("/"); /* a sequential child of the root with no name of its own */
    struct node parent, node;
    enum err e = coord_path_is_ok(parent_path) ? table->ops->load(table, parent_path, &parent, NULL) : ERR_INVALID;
    if (e) return e;
    if (op->flags & COORD_SEQUENTIAL) {
        char *numbered = coord_call_alloc(ch->call, path.size + 16);
        int n = snprintf(numbered, path.size + 16, "%.*s%010d", STR_ARG(path), (int)parent.creates);
        path = (struct str){numbered, (size_t)n};
        if (!coord_path_is_ok(path)) return ERR_INVALID;
    }
    if (parent.owner) return ERR_INVALID;
    if (parent.creates == INT32_MAX) return ERR_TOO_BIG;

    int64_t now_ms = clock_wall_ms(ch->t->clock);
    node =
        (struct node){.czxid = ch->zxid, .mzxid = ch->zxid, .pzxid = ch->zxid, .ctime_ms = now_ms, .mtime_ms = now_ms};
    if (op->flags & COORD_EPHEMERAL) node.owner = ch->call->delivery.c->session;
    parent.creates++;
    parent.child_count++;
    parent.pzxid = ch->zxid;
    e = table->ops->insert(table, path, &node, op->data);
    if (!e) e = table->ops->update(table, parent_path, &parent, NULL);
    if (e) return e;
    r->path = path;
    r->stat = stat_of(&node);
    return OK;
}

static enum err load_version(struct change *ch, const struct coord_op *op, struct node *out)
{
    if (!coord_path_is_ok(op->path)) return ERR_INVALID;
    enum err e = ch->t->table->ops->load(ch->t->table, op->path, out, NULL);
    if (!e && op->version != COORD_ANY_VERSION && op->version != out->version) e = ERR_VERSION;
    return e;
}

static enum err do_set(struct change *ch, const struct coord_op *op, struct coord_op_result *r)
{
    struct node node;
    enum err e = load_version(ch, op, &node);
    if (e) return e;
    node.version = node.version == INT32_MAX ? 0 : node.version + 1; /* -1 would mean "any" */
    node.mzxid = ch->zxid;
    node.mtime_ms = clock_wall_ms(ch->t->clock);
    e = ch->t->table->ops->update(ch->t->table, op->path, &node, &op->data);
    if (e) return e;
    r->stat = stat_of(&node);
    return OK;
}

static enum err do_delete(struct change *ch, const struct coord_op *op)
{
    struct node_table *table = ch->t->table;
    struct str parent_path, name;
    struct node parent, node;
    if (str_is(op->path, "/")) return ERR_INVALID;
    enum err e = load_version(ch, op, &node);
    if (e) return e;
    if (node.child_count > 0) return ERR_NOT_EMPTY;
    tree_split_path(op->path, &parent_path, &name);
    e = table->ops->load(table, parent_path, &parent, NULL);
    if (e) return e == ERR_NOT_FOUND ? ERR_CORRUPT : e;
    parent.child_count--;
    parent.pzxid = ch->zxid;
    e = table->ops->remove(table, op->path);
    if (!e) e = table->ops->update(table, parent_path, &parent, NULL);
    return e;
}

static enum err do_step(struct change *ch, const struct coord_op *op, struct coord_op_result *r)
{
    struct node node;
    r->path = op->path;
    switch (op->kind) {
    case COORD_CREATE: return do_create(ch, op, r);
    case COORD_SET: return do_set(ch, op, r);
    case COORD_DELETE: return do_delete(ch, op);
    case COORD_CHECK: return load_version(ch, op, &node);
    case COORD_GET:
    case COORD_EXISTS:
    case COORD_CHILDREN:
    case COORD_MULTI: break;
    }
    return ERR_INVALID;
}

static void step_fire(struct tree *t, enum coord_op_kind kind, struct str path, struct list *out)
{
    if (kind == COORD_CREATE) fire_created(t, path, out);
    if (kind == COORD_SET) watches_fire(t, path, WATCH_DATA, COORD_NODE_CHANGED, out);
    if (kind == COORD_DELETE) fire_deleted(t, path, out);
}

static void apply_change(struct tree *t, struct coord_call *call, struct list *out)
{
    struct change ch = {.t = t, .call = call, .zxid = t->zxid + 1};
    struct coord_op_result r = {0};
    enum err e = do_step(&ch, &call->ops[0], &r);
    call->result = (struct coord_result){.err = e, .path = r.path, .stat = r.stat};
    if (e) return;
    t->zxid = ch.zxid;
    step_fire(t, call->kind, r.path, out);
}

static void apply_multi(struct tree *t, struct coord_call *call, struct list *out)
{
    struct node_table *table = t->table;
    if (call->op_count == 0) return;
    struct change ch = {.t = t, .call = call, .zxid = t->zxid + 1};
    struct coord_op_result *results = coord_call_alloc(call, call->op_count * sizeof *results);
    call->result.results = results;
    call->result.result_count = call->op_count;
    enum err e = table->ops->mark(table);
    if (e) {
        coord_call_fail(call, e, NULL);
        return;
    }
    size_t failed = 0;
    for (; failed < call->op_count && !e; failed++) e = do_step(&ch, &call->ops[failed], &results[failed]);
    for (size_t i = 0; i < failed; i++)
        if (call->ops[i].kind == COORD_CREATE) results[i].stat = (struct coord_stat){0}; /* coord.h promises none */
    if (e) {
        results[failed - 1].err = e;
        for (size_t i = failed; i < call->op_count; i++) results[i].err = ERR_AGAIN;
        enum err undone = table->ops->undo(table);
        call->result.err = undone ? undone : e;
        return;
    }
    call->result.err = table->ops->keep(table);
    if (call->result.err) return;
    t->zxid = ch.zxid;
    for (size_t i = 0; i < call->op_count; i++) step_fire(t, call->ops[i].kind, results[i].path, out);
}

static void apply_get(struct tree *t, struct coord_call *call)
{
    struct node node;
    struct bytes data = {NULL, 0};
    bool wants_data = call->kind == COORD_GET;
    enum err e = t->table->ops->load(t->table, call->ops[0].path, &node, wants_data ? &data : NULL);
    call->result.err = e;
    if (e == OK || (e == ERR_NOT_FOUND && call->kind == COORD_EXISTS)) watch_set(t, call, WATCH_DATA);
    if (e) return;
    call->result.stat = stat_of(&node);
    struct str copy = coord_call_str(call, (struct str){(const char *)data.data, data.size});
    call->result.data = (struct bytes){(const uint8_t *)copy.data, copy.size};
}

struct names {
    struct coord_call *call;
    struct str *names;
    size_t count, cap, bytes;
};

static void names_add(void *arg, struct str name)
{
    struct names *ns = arg;
    ns->names = mem_grow(ns->names, &ns->cap, ns->count + 1, sizeof *ns->names);
    ns->names[ns->count++] = coord_call_str(ns->call, name);
}

static void apply_children(struct tree *t, struct coord_call *call)
{
    struct node node;
    struct names ns = {.call = call};
    enum err e = t->table->ops->load(t->table, call->ops[0].path, &node, NULL);
    if (!e) e = t->table->ops->children(t->table, call->ops[0].path, names_add, &ns);
    if (!e) {
        struct str *names = coord_call_alloc(call, (ns.count + 1) * sizeof *names);
        for (size_t i = 0; i < ns.count; i++) names[i] = ns.names[i];
        call->result.children = names;
        call->result.child_count = ns.count;
        call->result.stat = stat_of(&node);
        watch_set(t, call, WATCH_CHILDREN);
    }
    mem_free(ns.names);
    call->result.err = e;
}

void tree_apply(struct tree *t, struct coord_call *call, struct list *out)
{
    call->result = (struct coord_result){.path = call->op_count ? call->ops[0].path : STR_NULL};
    switch (call->kind) {
    case COORD_CREATE:
    case COORD_SET:
    case COORD_DELETE: apply_change(t, call, out); break;
    case COORD_MULTI: apply_multi(t, call, out); break;
    case COORD_GET:
    case COORD_EXISTS:
    case COORD_CHILDREN:
        if (!coord_path_is_ok(call->ops[0].path))
            call->result.err = ERR_INVALID;
        else if (call->kind == COORD_CHILDREN)
            apply_children(t, call);
        else
            apply_get(t, call);
        break;
    case COORD_CHECK: UNREACHABLE();
    }
    list_push_back(out, &call->delivery.link);
}

/* --- sessions --- */

struct paths {
    char **paths;
    size_t count, cap;
};

static void paths_add(void *arg, struct str path)
{
    struct paths *ps = arg;
    ps->paths = mem_grow(ps->paths, &ps->cap, ps->count + 1, sizeof *ps->paths);
    ps->paths[ps->count++] = mem_strndup(path.data, path.size);
}

enum err tree_end_session(struct tree *t, int64_t session, struct list *out)
{
    struct paths ps = {0};
    tree_drop_watches(t, session);
    enum err e = t->table->ops->owned(t->table, session, paths_add, &ps);
    struct change ch = {.t = t, .zxid = t->zxid + 1};
    for (size_t i = 0; i < ps.count && !e; i++) {
        struct coord_op op = {.kind = COORD_DELETE, .path = str_of(ps.paths[i]), .version = COORD_ANY_VERSION};
        e = do_delete(&ch, &op);
        if (e) break;
        t->zxid = ch.zxid;
        fire_deleted(t, op.path, out);
    }
    for (size_t i = 0; i < ps.count; i++) mem_free(ps.paths[i]);
    mem_free(ps.paths);
    return e;
}
