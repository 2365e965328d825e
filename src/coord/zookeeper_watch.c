/* zookeeper_watch.c: who watches what.
 *
 * The library is given one and the same watcher and context for every node, and the table here knows who is to be
 * told.  Not for the table's sake: the library tells every watcher of every change of the session, comparing each with
 * all others first, which with one of its own for each of 10,000 topics would take seconds.
 *
 * With a new connection the library sets all watches again in one request, however large, and when that is more than
 * the servers take they close the connection, forever anew.  So what is too much is given up when a connection is lost,
 * and fired: its owners look again.
 *
 * An entry is made when the answer that set the watch comes and goes when its event comes, both on the library's thread
 * of callbacks and in the order of the server.  An event that nobody waits for is of a read whose answer was lost. */
#include "base/hash.h"
#include "coord/zookeeper_internal.h"

enum {
    WATCH_BYTES_MAX = 512 * 1024, /* half of what servers take; reads whose answers were lost may have left more */
    WATCH_OVERHEAD = 4            /* the length of a path */
};

enum watch_kind { WATCH_DATA = 'd', WATCH_CHILDREN = 'c' }; /* an exists watch is a data watch, as for the server */

struct watch {
    struct list_node link;
    struct loop *loop;
    struct coord_watch to;
};

struct zookeeper_watched {
    UT_hash_handle hh;
    struct list watches;
    size_t key_size;
    char key[]; /* kind and path */
};

static char *key_new(enum watch_kind kind, struct str path)
{
    return mem_printf("%c%.*s", kind, STR_ARG(path));
}

static size_t watched_bytes(const struct zookeeper *z, const struct zookeeper_watched *wd)
{
    return WATCH_OVERHEAD + z->chroot_size + wd->key_size - 1;
}

static struct zookeeper_watched *watched_get(struct zookeeper *z, enum watch_kind kind, struct str path)
{
    struct zookeeper_watched *wd;
    char *key = key_new(kind, path);
    HASH_FIND(hh, z->watches, key, path.size + 1, wd);
    if (!wd) {
        wd = mem_zalloc(1, sizeof *wd + path.size + 1);
        list_init(&wd->watches);
        wd->key_size = path.size + 1;
        memcpy(wd->key, key, wd->key_size);
        z->watch_bytes += watched_bytes(z, wd);
        HASH_ADD_KEYPTR(hh, z->watches, wd->key, wd->key_size, wd);
    }
    mem_free(key);
    return wd;
}

void zookeeper_watch_set(struct zookeeper *z, const struct coord_call *call)
{
    enum watch_kind kind = call->kind == COORD_CHILDREN ? WATCH_CHILDREN : WATCH_DATA;
    struct zookeeper_watched *wd = watched_get(z, kind, call->ops[0].path);
    LIST_EACH (&wd->watches, node) {
        const struct watch *w = CONTAINER_OF(node, struct watch, link);
        if (w->loop == call->to.loop && w->to.fired == call->watch.fired && w->to.arg == call->watch.arg) return;
    }
    struct watch *w = mem_zalloc(1, sizeof *w);
    w->loop = call->to.loop;
    w->to = call->watch;
    list_push_back(&wd->watches, &w->link);
}

static void watched_free(struct zookeeper *z, struct zookeeper_watched *wd)
{
    for (struct list_node *n; (n = list_pop_front(&wd->watches));) mem_free(CONTAINER_OF(n, struct watch, link));
    z->watch_bytes -= watched_bytes(z, wd);
    HASH_DEL(z->watches, wd);
    mem_free(wd);
}

void zookeeper_watches_drop(struct zookeeper *z)
{
    struct zookeeper_watched *wd, *next;
    HASH_ITER(hh, z->watches, wd, next)
    {
        watched_free(z, wd);
    }
}

static void watched_fire(struct zookeeper *z, struct zookeeper_watched *wd, enum coord_event event)
{
    struct str path = {wd->key + 1, wd->key_size - 1};
    LIST_EACH (&wd->watches, node) {
        const struct watch *w = CONTAINER_OF(node, struct watch, link);
        coord_deliver(coord_event_new(&z->c, w->loop, w->to, event, path));
    }
    watched_free(z, wd);
}

static void watches_fire(struct zookeeper *z, enum watch_kind kind, struct str path, enum coord_event event)
{
    struct zookeeper_watched *wd;
    char *key = key_new(kind, path);
    HASH_FIND(hh, z->watches, key, path.size + 1, wd);
    mem_free(key);
    if (wd) watched_fire(z, wd, event);
}

void zookeeper_watches_trim(struct zookeeper *z)
{
    struct zookeeper_watched *wd, *next;
    HASH_ITER(hh, z->watches, wd, next)
    {
        if (z->watch_bytes <= WATCH_BYTES_MAX) return;
        bool data = wd->key[0] == WATCH_DATA;
        struct str path = {wd->key + 1, wd->key_size - 1};
        bool is_root = z->chroot_size && path.size == 1;
        char *full = mem_printf("%s%.*s", z->chroot, is_root ? 0 : (int)path.size, path.data);
        /* "Local": from the library's own table, with no word to a server.  That it has none there is fine. */
        zoo_remove_watches(z->handle, full, data ? ZWATCHTYPE_DATA : ZWATCHTYPE_CHILD, zookeeper_watch_fired, z, 1);
        mem_free(full);
        watched_fire(z, wd, data ? COORD_NODE_CHANGED : COORD_NODE_CHILDREN);
    }
}

void zookeeper_watch_fired(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    struct zookeeper *z = context;
    (void)zh;
    (void)state;
    if (type == ZOO_SESSION_EVENT || !path || strncmp(path, z->chroot, z->chroot_size) != 0) return;
    struct str at = str_of(path + z->chroot_size);
    if (at.size == 0) at = STR("/");
    pthread_mutex_lock(&z->lock);
    if (type == ZOO_CREATED_EVENT) {
        watches_fire(z, WATCH_DATA, at, COORD_NODE_CREATED);
    } else if (type == ZOO_CHANGED_EVENT) {
        watches_fire(z, WATCH_DATA, at, COORD_NODE_CHANGED);
    } else if (type == ZOO_CHILD_EVENT) {
        watches_fire(z, WATCH_CHILDREN, at, COORD_NODE_CHILDREN);
    } else if (type == ZOO_DELETED_EVENT) {
        watches_fire(z, WATCH_DATA, at, COORD_NODE_DELETED);
        watches_fire(z, WATCH_CHILDREN, at, COORD_NODE_DELETED);
    }
    pthread_mutex_unlock(&z->lock);
}
