/* memory.c: nodes in a hash table, each with the list of its children; a multi keeps a log of what to undo. */
#include "coord/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#include "base/mem.h"
#include "coord/tree.h"

struct mem_node {
    UT_hash_handle hh;
    struct list_node sibling;
    struct list children;
    struct node n;
    struct bytes data; /* from the heap; null stays null */
    size_t path_size;
    char path[];
};

/* What brings one node back: as it was, or (was_there false) away. */
struct undo {
    struct undo *next;
    bool was_there;
    bool has_data; /* `data` is the old data; else the data did not change */
    struct node n;
    struct bytes data;
    size_t path_size;
    char path[];
};

struct coord_memory {
    struct node_table table;
    struct tree tree;
    pthread_mutex_t lock;
    struct mem_node *nodes;
    bool marked;
    struct undo *undo; /* newest first */
    struct list sessions;
    int64_t next_session;
    bool hold_events, hold_results;
    struct list held;
};

struct session {
    struct coord c;
    struct coord_memory *m;
    struct list_node link;
    bool over;          /* the store has ended it; its user hears of it unless it is cut off */
    bool cut;           /* out of reach: calls and events wait */
    bool abandoned;     /* nobody is there to hear of anything */
    bool delayed;       /* calls wait for coord_memory_run() */
    struct list calls;  /* out: not executed, or (CALL_UNSURE) ended and behind such a one */
    struct list events; /* what its watches saw while it was cut off */
    int changes_left;   /* before it expires; -1: no end */
};

enum call_stage { CALL_OUT, CALL_UNSURE };

/* --- the table --- */

static struct bytes bytes_copy(struct bytes b)
{
    if (!b.data) return b;
    uint8_t *copy = mem_alloc(b.size);
    if (b.size) memcpy(copy, b.data, b.size);
    return (struct bytes){copy, b.size};
}

static void bytes_free(struct bytes b)
{
    mem_free((void *)(uintptr_t)b.data);
}

static struct coord_memory *memory_of(struct node_table *t)
{
    return CONTAINER_OF(t, struct coord_memory, table);
}

static struct mem_node *find(struct coord_memory *m, struct str path)
{
    struct mem_node *n;
    HASH_FIND(hh, m->nodes, path.data, path.size, n);
    return n;
}

static void undo_push(struct coord_memory *m, struct str path, const struct mem_node *old, bool with_data)
{
    if (!m->marked) return;
    struct undo *u = mem_zalloc(1, sizeof *u + path.size);
    u->path_size = path.size;
    memcpy(u->path, path.data, path.size);
    if (old) {
        u->was_there = true;
        u->n = old->n;
        u->has_data = with_data;
        if (with_data) u->data = bytes_copy(old->data);
    }
    u->next = m->undo;
    m->undo = u;
}

static void undo_drop(struct coord_memory *m)
{
    m->marked = false;
    while (m->undo) {
        struct undo *u = m->undo;
        m->undo = u->next;
        bytes_free(u->data);
        mem_free(u);
    }
}

static enum err memory_load(struct node_table *t, struct str path, struct node *out, struct bytes *data)
{
    const struct mem_node *n = find(memory_of(t), path);
    if (!n) return ERR_NOT_FOUND;
    *out = n->n;
    if (data) *data = n->data;
    return OK;
}

static enum err memory_insert(struct node_table *t, struct str path, const struct node *node, struct bytes data)
{
    struct coord_memory *m = memory_of(t);
    if (find(m, path)) return ERR_EXISTS;
    undo_push(m, path, NULL, false);
    struct mem_node *n = mem_zalloc(1, sizeof *n + path.size);
    list_init(&n->children);
    n->n = *node;
    n->data = bytes_copy(data);
    n->path_size = path.size;
    memcpy(n->path, path.data, path.size);
    HASH_ADD_KEYPTR(hh, m->nodes, n->path, n->path_size, n);
    struct str parent_path, name;
    tree_split_path(path, &parent_path, &name);
    struct mem_node *parent = find(m, parent_path);
    if (parent) list_push_back(&parent->children, &n->sibling);
    return OK;
}

static enum err memory_update(struct node_table *t, struct str path, const struct node *node, const struct bytes *data)
{
    struct coord_memory *m = memory_of(t);
    struct mem_node *n = find(m, path);
    ASSERT(n);
    undo_push(m, path, n, data != NULL);
    n->n = *node;
    if (data) {
        bytes_free(n->data);
        n->data = bytes_copy(*data);
    }
    return OK;
}

static enum err memory_remove(struct node_table *t, struct str path)
{
    struct coord_memory *m = memory_of(t);
    struct mem_node *n = find(m, path);
    ASSERT(n && list_is_empty(&n->children));
    undo_push(m, path, n, true);
    list_remove(&n->sibling);
    HASH_DEL(m->nodes, n);
    bytes_free(n->data);
    mem_free(n);
    return OK;
}

static int compare_names(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static enum err memory_children(struct node_table *t, struct str path, node_name_fn each, void *arg)
{
    const struct mem_node *n = find(memory_of(t), path);
    ASSERT(n);
    size_t count = 0, at = 0;
    LIST_EACH (&n->children, node) count++;
    struct str *names = mem_zalloc(count + 1, sizeof *names);
    LIST_EACH (&n->children, node) {
        const struct mem_node *child = CONTAINER_OF(node, struct mem_node, sibling);
        struct str parent;
        tree_split_path((struct str){child->path, child->path_size}, &parent, &names[at++]);
    }
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++) each(arg, names[i]);
    mem_free(names);
    return OK;
}

static enum err memory_owned(struct node_table *t, int64_t owner, node_name_fn each, void *arg)
{
    struct mem_node *n, *next;
    HASH_ITER(hh, memory_of(t)->nodes, n, next)
    if (n->n.owner && (owner == 0 || n->n.owner == owner)) each(arg, (struct str){n->path, n->path_size});
    return OK;
}

static enum err memory_mark(struct node_table *t)
{
    memory_of(t)->marked = true;
    return OK;
}

static enum err memory_undo(struct node_table *t)
{
    struct coord_memory *m = memory_of(t);
    m->marked = false;
    for (const struct undo *u = m->undo; u; u = u->next) {
        struct str path = {u->path, u->path_size};
        enum err e;
        if (!u->was_there)
            e = memory_remove(t, path);
        else if (find(m, path))
            e = memory_update(t, path, &u->n, u->has_data ? &u->data : NULL);
        else
            e = memory_insert(t, path, &u->n, u->data);
        ASSERT(e == OK);
    }
    undo_drop(m);
    return OK;
}

static enum err memory_keep(struct node_table *t)
{
    undo_drop(memory_of(t));
    return OK;
}

static const struct node_table_ops table_ops = {memory_load,   memory_insert,   memory_update,
                                                memory_remove, memory_children, memory_owned,
                                                memory_mark,   memory_undo,     memory_keep};

/* --- sessions; with the lock held --- */

static struct session *session_of(struct coord *c)
{
    return CONTAINER_OF(c, struct session, c);
}

static struct coord_call *call_at(struct list_node *n)
{
    return CONTAINER_OF(n, struct coord_call, delivery.link);
}

static bool call_writes(const struct coord_call *call)
{
    return call->kind != COORD_GET && call->kind != COORD_EXISTS && call->kind != COORD_CHILDREN;
}

/* Posts what is in `out`, or keeps it back.  Once something is held, all that follows on the same road waits behind
 * it. */
static void post(struct coord_memory *m, struct list *out)
{
    for (struct list_node *n; (n = list_pop_front(out));) {
        struct coord_delivery *d = CONTAINER_OF(n, struct coord_delivery, link);
        struct session *s = session_of(d->c);
        if (s->abandoned) continue;
        if (d->is_event && s->cut)
            list_push_back(&s->events, &d->link);
        else if (d->is_result ? m->hold_results : m->hold_events)
            list_push_back(&m->held, &d->link);
        else
            coord_deliver(d);
    }
}

static void tell(struct session *s, enum coord_state state, struct list *out)
{
    struct coord_delivery *news = coord_news_new(&s->c, state, NULL);
    if (news) list_push_back(out, &news->link);
}

static void session_end(struct session *s, struct list *out)
{
    if (s->over) return;
    s->over = true;
    enum err e = tree_end_session(&s->m->tree, s->c.session, out);
    ASSERT(e == OK);
}

static void calls_fail(struct session *s, enum err e, struct list *out)
{
    for (struct list_node *n; (n = list_pop_front(&s->calls));) {
        if (call_at(n)->stage == CALL_OUT) coord_call_fail(call_at(n), e, NULL);
        list_push_back(out, n);
    }
}

static void events_drop(struct session *s)
{
    for (struct list_node *n; (n = list_pop_front(&s->events));)
        coord_event_drop(CONTAINER_OF(n, struct coord_delivery, link));
}

/* Its user learns that the session is over. */
static void session_hear_end(struct session *s, struct list *out)
{
    events_drop(s);
    calls_fail(s, ERR_EXPIRED, out);
    tell(s, COORD_EXPIRED, out);
}

static void call_execute(struct session *s, struct coord_call *call, struct list *out)
{
    struct tree *tree = &s->m->tree;
    int64_t zxid = tree->zxid;
    bool runs_out = !s->over && s->changes_left == 0 && call_writes(call);
    if (runs_out) session_end(s, out);
    if (s->over) {
        coord_call_fail(call, ERR_EXPIRED, NULL);
        list_push_back(out, &call->delivery.link);
    } else {
        tree_apply(tree, call, out);
        if (s->changes_left > 0 && tree->zxid != zxid) s->changes_left--;
    }
    if (runs_out) session_hear_end(s, out);
}

/* Executes the first `count` calls that are out, in order. */
static void calls_run(struct session *s, size_t count, struct list *out)
{
    for (struct list_node *n; !s->cut && (n = list_first(&s->calls));) {
        if (call_at(n)->stage == CALL_OUT && count == 0) break;
        list_remove(n);
        if (call_at(n)->stage == CALL_UNSURE) {
            list_push_back(out, n);
        } else {
            count--;
            call_execute(s, call_at(n), out);
        }
    }
}

static void session_close(struct session *s, struct coord_call *call, struct list *out)
{
    if (s->cut) { /* the store does not hear of it: the nodes stay until the session expires */
        events_drop(s);
        calls_fail(s, ERR_CLOSED, out);
        tree_drop_watches(&s->m->tree, s->c.session);
    } else {
        calls_run(s, SIZE_MAX, out);
        session_end(s, out);
    }
    list_push_back(out, &call->delivery.link);
}

static void memory_submit(struct coord *c, struct coord_call *call)
{
    struct session *s = session_of(c);
    struct coord_memory *m = s->m;
    struct list out;
    list_init(&out);
    pthread_mutex_lock(&m->lock);
    if (call->is_close) {
        session_close(s, call, &out);
    } else {
        call->stage = CALL_OUT;
        list_push_back(&s->calls, &call->delivery.link);
        if (!s->delayed || s->over) calls_run(s, SIZE_MAX, &out);
    }
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
}

static void memory_renew(struct coord *c)
{
    struct session *s = session_of(c);
    struct list out;
    list_init(&out);
    pthread_mutex_lock(&s->m->lock);
    ASSERT(s->over);
    s->over = false;
    s->changes_left = -1;
    s->c.session = s->m->next_session++;
    if (!s->cut) tell(s, COORD_CONNECTED, &out); /* else with the connection */
    post(s->m, &out);
    pthread_mutex_unlock(&s->m->lock);
}

static void memory_session_free(struct coord *c)
{
    struct session *s = session_of(c);
    pthread_mutex_lock(&s->m->lock);
    list_remove(&s->link);
    pthread_mutex_unlock(&s->m->lock);
    mem_free(s);
}

static const struct coord_ops session_ops = {
    .submit = memory_submit, .renew = memory_renew, .free = memory_session_free};

/* --- the store --- */

struct coord_memory *coord_memory_new(struct clock *clock)
{
    struct coord_memory *m = mem_zalloc(1, sizeof *m);
    m->table.ops = &table_ops;
    tree_init(&m->tree, &m->table, clock, 0);
    pthread_mutex_init(&m->lock, NULL);
    list_init(&m->sessions);
    list_init(&m->held);
    m->next_session = 0x1000;
    enum err e = tree_ensure_root(&m->tree);
    ASSERT(e == OK);
    return m;
}

void coord_memory_free(struct coord_memory *m)
{
    if (!m) return;
    ASSERT(list_is_empty(&m->sessions) && list_is_empty(&m->held));
    tree_fini(&m->tree);
    struct mem_node *n, *next;
    HASH_ITER(hh, m->nodes, n, next)
    {
        HASH_DEL(m->nodes, n);
        bytes_free(n->data);
        mem_free(n);
    }
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

struct coord *coord_memory_connect(struct coord_memory *m, struct coord_listener listener)
{
    struct session *s = mem_zalloc(1, sizeof *s);
    struct list out;
    list_init(&out);
    list_init(&s->calls);
    list_init(&s->events);
    s->m = m;
    s->changes_left = -1;
    pthread_mutex_lock(&m->lock);
    coord_init(&s->c, &session_ops, m->next_session++, listener);
    list_push_back(&m->sessions, &s->link);
    tell(s, COORD_CONNECTED, &out);
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
    return &s->c;
}

static struct session *session_find(struct coord_memory *m, int64_t session)
{
    LIST_EACH (&m->sessions, node) {
        struct session *s = CONTAINER_OF(node, struct session, link);
        if (s->c.session == session) return s;
    }
    return NULL;
}

/* The same; or by an id that the store has given up while its user has not heard of another. */
static struct session *session_find_told(struct coord_memory *m, int64_t session)
{
    LIST_EACH (&m->sessions, node) {
        struct session *s = CONTAINER_OF(node, struct session, link);
        if (coord_session_id(&s->c) == session) return s;
    }
    return session_find(m, session);
}

/* What the simulator does to one session: `change` with the lock held. */
static void session_change(struct coord_memory *m, int64_t session,
                           void (*change)(struct session *s, size_t arg, struct list *out), size_t arg)
{
    struct list out;
    list_init(&out);
    pthread_mutex_lock(&m->lock);
    struct session *s = session_find_told(m, session);
    if (s) change(s, arg, &out);
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
}

void coord_memory_expire(struct coord_memory *m, int64_t session)
{
    struct list out;
    list_init(&out);
    pthread_mutex_lock(&m->lock);
    struct session *s = session_find(m, session);
    if (!s || s->c.close_loop) { /* closed while it was cut off: nothing but its nodes is left */
        enum err e = tree_end_session(&m->tree, session, &out);
        ASSERT(e == OK);
    } else if (!s->over) {
        session_end(s, &out);
        if (!s->cut) session_hear_end(s, &out);
    }
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
}

static void expire_after(struct session *s, size_t changes, struct list *out)
{
    (void)out;
    s->changes_left = (int)changes;
}

void coord_memory_expire_after(struct coord_memory *m, int64_t session, int changes)
{
    session_change(m, session, expire_after, (size_t)changes);
}

static void abandon(struct session *s, size_t arg, struct list *out)
{
    (void)arg;
    (void)out;
    s->abandoned = true;
}

void coord_memory_abandon(struct coord_memory *m, int64_t session)
{
    session_change(m, session, abandon, 0);
}

/* The store executes the call; what it answers does not arrive. */
static void call_execute_unheard(struct session *s, struct coord_call *call, struct list *out)
{
    struct list_node *before = call->delivery.link.prev;
    struct list unheard;
    list_init(&unheard);
    list_remove(&call->delivery.link);
    call_execute(s, call, &unheard);
    list_remove(&call->delivery.link);
    list_insert_after(before, &call->delivery.link);
    for (struct list_node *n; (n = list_pop_front(&unheard));) list_push_back(out, n);
}

static void disconnect(struct session *s, size_t executed, struct list *out)
{
    if (s->cut || s->over) return;
    s->cut = true;
    LIST_EACH (&s->calls, node) {
        struct coord_call *call = call_at(node);
        bool heard = executed > 0;
        if (executed > 0) executed--;
        if (!call_writes(call)) continue;
        if (heard) call_execute_unheard(s, call, out);
        coord_call_fail(call, ERR_UNSURE, NULL);
        call->stage = CALL_UNSURE;
    }
    for (struct list_node *n; (n = list_first(&s->calls)) && call_at(n)->stage == CALL_UNSURE;) {
        list_remove(n);
        list_push_back(out, n);
    }
    tell(s, COORD_DISCONNECTED, out);
}

void coord_memory_disconnect(struct coord_memory *m, int64_t session, size_t executed)
{
    session_change(m, session, disconnect, executed);
}

static void reconnect(struct session *s, size_t arg, struct list *out)
{
    (void)arg;
    if (!s->cut) return;
    s->cut = false;
    if (s->over) {
        session_hear_end(s, out);
        return;
    }
    tell(s, COORD_CONNECTED, out);
    for (struct list_node *n; (n = list_pop_front(&s->events));) list_push_back(out, n);
    calls_run(s, s->delayed ? 0 : SIZE_MAX, out);
}

void coord_memory_reconnect(struct coord_memory *m, int64_t session)
{
    session_change(m, session, reconnect, 0);
}

static void delay(struct session *s, size_t on, struct list *out)
{
    s->delayed = on != 0;
    if (!s->delayed) calls_run(s, SIZE_MAX, out);
}

void coord_memory_delay(struct coord_memory *m, int64_t session, bool on)
{
    session_change(m, session, delay, on);
}

void coord_memory_run(struct coord_memory *m, int64_t session, size_t count)
{
    session_change(m, session, calls_run, count);
}

size_t coord_memory_out(struct coord_memory *m, int64_t session)
{
    size_t count = 0;
    pthread_mutex_lock(&m->lock);
    struct session *s = session_find_told(m, session);
    if (s)
        LIST_EACH (&s->calls, node) count += call_at(node)->stage == CALL_OUT;
    pthread_mutex_unlock(&m->lock);
    return count;
}

bool coord_memory_look(struct coord_memory *m, struct str path, int32_t *version, struct bytes *data)
{
    pthread_mutex_lock(&m->lock);
    const struct mem_node *n = find(m, path);
    if (n) {
        *version = n->n.version;
        *data = n->data;
    }
    pthread_mutex_unlock(&m->lock);
    return n != NULL;
}

void coord_memory_hold(struct coord_memory *m, bool events, bool results)
{
    pthread_mutex_lock(&m->lock);
    m->hold_events = events;
    m->hold_results = results;
    pthread_mutex_unlock(&m->lock);
}

void coord_memory_release(struct coord_memory *m)
{
    pthread_mutex_lock(&m->lock);
    m->hold_events = m->hold_results = false;
    struct list out;
    list_init(&out);
    for (struct list_node *n; (n = list_pop_front(&m->held));) list_push_back(&out, n);
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
}
