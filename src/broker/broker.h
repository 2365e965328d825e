/* broker.h: one broker: its loops, listeners, logs, coordination and what it knows of the cluster.
 * Made and ended on the main thread; what handlers use is marked with its thread. */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "broker/config.h"
#include "broker/conn.h"
#include "broker/metadata.h"
#include "coord/coord.h"
#include "os/fs.h"
#include "os/grace.h"
#include "os/net.h"
#include "os/rng.h"
#include "os/workers.h"
#include "replica/replicas.h"

struct broker_run;
struct cluster_channel;
struct control;
struct controller;
struct coord;
struct fetch_sessions;
struct fetchers;
struct groups;
struct leading;
struct producer_ids;
struct server;
struct to_controller;
struct dynamic_config;

struct broker {
    struct fs *fs;
    struct net *net;
    struct clock *clock;
    struct rng *rng;

    int32_t id;
    char cluster_id[64];
    _Atomic int64_t epoch; /* czxid of /brokers/ids/ID; another with each registration */
    bool alone;            /* config_is_alone(): no other broker */
    uint64_t file_limit;   /* descriptors of the process; 0: unknown */
    struct config_live *config;

    unsigned loop_count;
    struct loop **loops;
    struct conn_set *sets;                /* one a loop */
    struct config_reader *config_readers; /* one a loop */
    struct workers *workers;
    struct grace *grace;
    struct buf_pool *bufs;

    struct server *server;
    struct coord *coord;
    struct controller *controller;
    struct control *control;                 /* what a controller tells us, */
    struct cluster_channel *cluster_channel; /*   ours tells others, */
    struct to_controller *to_controller;     /*   and we ask */
    struct replicas *replicas;
    struct metadata *metadata;
    struct dynamic_config *dynamic_config;
    struct producer_ids *producer_ids;
    struct fetch_sessions *fetch_sessions;
    struct fetchers *fetchers;
    struct leading *leading;
    struct groups *groups;

    _Atomic int64_t request_bytes;     /* of requests in progress */
    _Atomic int64_t request_bytes_max; /* queued.max.request.bytes; -1: no limit */
    _Atomic int32_t request_size_max;  /* socket.request.max.bytes */
    _Atomic int64_t idle_us_max;       /* connections.max.idle.ms; -1: never */
    _Atomic unsigned sets_draining;
};

/* What the embedder gives; the simulator has its own. */
struct broker_env {
    struct fs *fs;
    struct net *net;
    struct clock *clock;
    struct rng *rng;
    uint64_t file_limit; /* descriptors that the process may have; 0: unknown */
    /* The rest is for who turns the loops himself, all in one thread.  Then nothing is started that runs by itself, but
     * the cleaner, which the configuration has to switch off. */
    bool turned;
    void (*take_job)(void *arg, struct job *job);                           /* see workers_new_given() */
    struct coord *(*open_coord)(void *arg, struct coord_listener listener); /* instead of the configured store */
    void *arg;                                                              /* of both */
};

/* Runs a broker until `stop` signals (SIGTERM, SIGINT) end it.  Takes over the configuration's reference.  Main thread.
 * ERR: it did not start, and `f` says why. */
MUST_USE enum err broker_run(const struct broker_env *env, struct config *config, struct fault *f);

/* ---- The same in steps, for who turns the loops himself */

/* Makes the parts: ports are bound, directories locked.  Takes over the configuration's reference, also when it fails.
 */
MUST_USE enum err broker_new(struct broker_run **out, const struct broker_env *env, struct config *config,
                             struct fault *f);
struct broker *broker_of(struct broker_run *run);
/* The first step is made in the next turn of the home loop. */
void broker_start(struct broker_run *run);
/* Clients are let in. */
bool broker_is_started(const struct broker_run *run);
/* What a signal does.  Home loop; a second time nobody is waited for who is to take over leadership. */
void broker_stop(struct broker_run *run);
/* Stopped, or given up: the loops need not be turned any more. */
bool broker_has_ended(const struct broker_run *run);
/* Closes the logs and frees everything.  ERR: it gave up, and `f` says why. */
enum err broker_free(struct broker_run *run, struct fault *f);

/* This loop's configuration, for one turn.  Its loop only. */
const struct config *broker_config(struct broker *br, const struct loop *l);
static inline struct loop *broker_home(struct broker *br)
{
    return br->loops[0];
}

/* ---- Limits; any thread */

void broker_take_request_bytes(struct broker *br, size_t bytes);
void broker_release_request_bytes(struct broker *br, size_t bytes);
bool broker_request_bytes_full(const struct broker *br);
static inline int32_t broker_request_size_max(const struct broker *br)
{
    return atomic_load_explicit(&br->request_size_max, memory_order_relaxed);
}
static inline int64_t broker_idle_us_max(const struct broker *br)
{
    return atomic_load_explicit(&br->idle_us_max, memory_order_relaxed);
}
/* A connection has ended; its place is free. */
void broker_connection_closed(struct broker *br, const struct listener_state *listener, const char *host);
/* The configuration has a new snapshot: takes over the limits above.  Home loop. */
void broker_config_changed(struct broker *br);
/* The last connection of one loop has gone while the broker stops. */
void broker_set_drained(struct broker *br);

#endif
