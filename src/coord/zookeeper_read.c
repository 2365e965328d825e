/* zookeeper_read.c: see zookeeper_read.h.  ZooKeeper's C client in its multi-threaded form: its own threads talk to the
 * server, a call waits for the answer. */
#include "coord/zookeeper_read.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADED /* the calls that wait */
#include <zookeeper/zookeeper.h>

#include "base/mem.h"
#include "os/clock.h"

enum { NODE_BYTES_MAX = 8 * 1024 * 1024 }; /* far above jute.maxbuffer's default of 1 MiB */

struct zookeeper_reader {
    zhandle_t *handle;
    pthread_mutex_t lock; /* guards connected */
    pthread_cond_t changed;
    bool connected;
    char *buffer;
};

/* Its thread. */
static void on_session(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct zookeeper_reader *zr = context;
    (void)handle;
    (void)path;
    if (type != ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&zr->lock);
    zr->connected = state == ZOO_CONNECTED_STATE;
    pthread_cond_broadcast(&zr->changed);
    pthread_mutex_unlock(&zr->lock);
}

static bool wait_connected(struct zookeeper_reader *zr, int timeout_ms)
{
    int64_t until_ms = clock_wall_ms(clock_system()) + timeout_ms;
    const struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000 * 1000};
    int rc = 0;
    pthread_mutex_lock(&zr->lock);
    while (!zr->connected && rc == 0) rc = pthread_cond_timedwait(&zr->changed, &zr->lock, &until);
    bool connected = zr->connected;
    pthread_mutex_unlock(&zr->lock);
    return connected;
}

enum err zookeeper_reader_open(struct zookeeper_reader **out, const char *hosts, int timeout_ms, struct fault *f)
{
    struct zookeeper_reader *zr = mem_zalloc(1, sizeof *zr);
    pthread_mutex_init(&zr->lock, NULL);
    pthread_cond_init(&zr->changed, NULL);
    zr->buffer = mem_alloc(NODE_BYTES_MAX);
    zoo_set_debug_level((ZooLogLevel)0); /* what goes wrong is told by whoever calls */
    zr->handle = zookeeper_init(hosts, on_session, timeout_ms, NULL, zr, 0);
    enum err e = OK;
    if (!zr->handle)
        e = fault_set(f, ERR_INVALID, "'%s' is no address of a ZooKeeper: HOST:PORT[,HOST:PORT]...[/chroot].", hosts);
    else if (!wait_connected(zr, timeout_ms))
        e = fault_set(f, ERR_TIMEOUT, "No ZooKeeper answers at %s within %d s.", hosts, timeout_ms / 1000);
    if (e) {
        zookeeper_reader_close(zr);
        return e;
    }
    *out = zr;
    return OK;
}

void zookeeper_reader_close(struct zookeeper_reader *zr)
{
    if (!zr) return;
    if (zr->handle) zookeeper_close(zr->handle);
    pthread_cond_destroy(&zr->changed);
    pthread_mutex_destroy(&zr->lock);
    mem_free(zr->buffer);
    mem_free(zr);
}

static enum err err_of_zoo(int rc)
{
    switch (rc) {
    case ZOK: return OK;
    case ZNONODE: return ERR_NOT_FOUND;
    case ZNOAUTH: return ERR_DENIED;
    case ZOPERATIONTIMEOUT:
    case ZCONNECTIONLOSS: return ERR_TIMEOUT;
    case ZSESSIONEXPIRED: return ERR_CLOSED;
    default: return ERR_IO;
    }
}

static void take_children(struct arena *a, const struct String_vector *names, struct zookeeper_node *out)
{
    out->child_count = (size_t)names->count;
    out->children = arena_array(a, struct str, out->child_count);
    for (size_t i = 0; i < out->child_count; i++) out->children[i] = arena_str(a, str_of(names->data[i]));
}

enum err zookeeper_read(struct zookeeper_reader *zr, struct str path, struct arena *a, struct zookeeper_node *out,
                        struct fault *f)
{
    struct zookeeper_node node = {.child_count = 0};
    struct Stat stat = {.version = 0};
    struct String_vector names = {.count = 0};
    const char *name = arena_str(a, path).data;
    int size = NODE_BYTES_MAX;
    int rc = zoo_get(zr->handle, name, 0, zr->buffer, &size, &stat);
    if (rc == ZOK) rc = zoo_get_children(zr->handle, name, 0, &names);
    if (rc != ZOK) return fault_set(f, err_of_zoo(rc), "%s cannot be read from ZooKeeper: %s.", name, zerror(rc));
    take_children(a, &names, &node);
    deallocate_String_vector(&names);
    if (stat.dataLength > NODE_BYTES_MAX)
        return fault_set(f, ERR_TOO_BIG, "%s holds %d bytes, more than can be.", name, stat.dataLength);
    node.ephemeral = stat.ephemeralOwner != 0;
    if (size >= 0) {
        struct str data = arena_str(a, (struct str){zr->buffer, (size_t)size});
        node.data = (struct bytes){(const uint8_t *)data.data, data.size};
    }
    *out = node;
    return OK;
}
