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
    bool over;
    bool abandoned;
    int changes_left; /* before it expires; -1: no end */
};

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

/* --- sessions --- */

/* Posts what is in `out`, or keeps it back.  Once something is held, all that follows on the same road waits behind it.
 * With the lock held. */
static void post(struct coord_memory *m, struct list *out)
{
    for (struct list_node *n; (n = list_pop_front(out));) {
        struct coord_delivery *d = CONTAINER_OF(n, struct coord_delivery, link);
        if (CONTAINER_OF(d->c, struct session, c)->abandoned) continue;
        if (d->is_result ? m->hold_results : m->hold_events)
            list_push_back(&m->held, &d->link);
        else
            coord_deliver(d);
    }
}

static void session_end(struct session *s, struct list *out)
{
    if (s->over) return;
    s->over = true;
    enum err e = tree_end_session(&s->m->tree, s->c.session, out);
    ASSERT(e == OK);
}

static void session_expire(struct session *s, struct list *out)
{
    session_end(s, out);
    struct coord_delivery *news = coord_news_new(&s->c, COORD_EXPIRED, NULL);
    if (news) list_push_back(out, &news->link);
}

static bool changes_run_out(struct session *s, const struct coord_call *call)
{
    bool writes = call->kind != COORD_GET && call->kind != COORD_EXISTS && call->kind != COORD_CHILDREN;
    return !s->over && !call->is_close && writes && s->changes_left == 0;
}

static void memory_submit(struct coord *c, struct coord_call *call)
{
    struct session *s = CONTAINER_OF(c, struct session, c);
    struct coord_memory *m = s->m;
    struct list out;
    list_init(&out);
    pthread_mutex_lock(&m->lock);
    int64_t zxid = m->tree.zxid;
    if (changes_run_out(s, call)) session_expire(s, &out);
    if (call->is_close) {
        session_end(s, &out);
        list_push_back(&out, &call->delivery.link);
    } else if (s->over) {
        coord_call_fail(call, ERR_CLOSED, NULL);
        list_push_back(&out, &call->delivery.link);
    } else {
        tree_apply(&m->tree, call, &out);
        if (s->changes_left > 0 && m->tree.zxid != zxid) s->changes_left--;
    }
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
}

static void memory_session_free(struct coord *c)
{
    struct session *s = CONTAINER_OF(c, struct session, c);
    pthread_mutex_lock(&s->m->lock);
    list_remove(&s->link);
    pthread_mutex_unlock(&s->m->lock);
    mem_free(s);
}

static const struct coord_ops session_ops = {.submit = memory_submit, .free = memory_session_free};

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
    s->m = m;
    s->changes_left = -1;
    pthread_mutex_lock(&m->lock);
    coord_init(&s->c, &session_ops, m->next_session++, listener);
    list_push_back(&m->sessions, &s->link);
    struct coord_delivery *news = coord_news_new(&s->c, COORD_CONNECTED, NULL);
    if (news) list_push_back(&out, &news->link);
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
    return &s->c;
}

void coord_memory_expire(struct coord_memory *m, int64_t session)
{
    struct list out;
    list_init(&out);
    pthread_mutex_lock(&m->lock);
    LIST_EACH (&m->sessions, node) {
        struct session *s = CONTAINER_OF(node, struct session, link);
        if (s->c.session != session || s->over) continue;
        session_expire(s, &out);
    }
    post(m, &out);
    pthread_mutex_unlock(&m->lock);
}

void coord_memory_abandon(struct coord_memory *m, int64_t session)
{
    pthread_mutex_lock(&m->lock);
    LIST_EACH (&m->sessions, node) {
        struct session *s = CONTAINER_OF(node, struct session, link);
        if (s->c.session == session) s->abandoned = true;
    }
    pthread_mutex_unlock(&m->lock);
}

void coord_memory_expire_after(struct coord_memory *m, int64_t session, int changes)
{
    pthread_mutex_lock(&m->lock);
    LIST_EACH (&m->sessions, node) {
        struct session *s = CONTAINER_OF(node, struct session, link);
        if (s->c.session == session) s->changes_left = changes;
    }
    pthread_mutex_unlock(&m->lock);
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
