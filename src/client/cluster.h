/* cluster.h: the brokers of a cluster as a client sees them: whom to ask, connections, retries.
 *
 * A cluster is opened with a list of addresses and learns its brokers from the first that answers.  Connections are
 * made when somebody is asked, kept, and made anew when they broke.  Operations (admin_*.h) take the cluster's timeout
 * for all they do, and within it they retry whatever may succeed later, with a back-off that doubles.
 * Thread: one at a time; a cluster has its own loop and turns it while it waits. */
#ifndef CLIENT_CLUSTER_H
#define CLIENT_CLUSTER_H

#include "base/arena.h"
#include "client/channel.h"
#include "client/failure.h"
#include "os/clock.h"
#include "os/net.h"
#include "os/rng.h"

/* What an admin client of Kafka has by default. */
#define CLUSTER_OPTIONS_DEFAULT                              \
    ((struct cluster_options){.client_id = "barnabas-admin", \
                              .timeout_ms = 60000,           \
                              .request_timeout_ms = 30000,   \
                              .connect_timeout_ms = 10000,   \
                              .backoff_ms = 100,             \
                              .backoff_max_ms = 1000})

struct cluster_options {
    const char *bootstrap;      /* "host:port,[::1]:9092" */
    const char *client_id;      /* copied */
    int64_t timeout_ms;         /* default.api.timeout.ms: of one operation, retries included */
    int64_t request_timeout_ms; /* request.timeout.ms: of one request */
    int64_t connect_timeout_ms; /* socket.connection.setup.timeout.ms */
    int64_t backoff_ms, backoff_max_ms;
    struct net *net; /* NULL: the system's, as with the next two */
    struct clock *clock;
    struct rng *rng;
};

struct cluster;
struct peer; /* a broker, or an address of the bootstrap list whose broker is not known yet */

/* Checks the options and connects to nobody yet.  ERR_INVALID: the list is malformed. */
MUST_USE bool cluster_open(struct cluster **out, const struct cluster_options *opt, struct failure *f);
/* NULL is allowed. */
void cluster_close(struct cluster *cl);
struct clock *cluster_clock(const struct cluster *cl);
/* For the responses of one operation: bounded, to be ended with arena_fini(). */
void cluster_arena_init(struct arena *a);

/* ---- One operation's time */

struct attempt {
    struct cluster *cl;
    int64_t deadline_us;
    int64_t backoff_ms; /* before the next one */
};
struct attempt attempt_begin(struct cluster *cl);
/* After a failure.  True: the back-off has passed, try again.  False: it is final, or the time is over, and `f` says
 * so. */
MUST_USE bool attempt_again(struct attempt *at, struct failure *f);

/* ---- Whom to ask */

struct node {
    int32_t id; /* -1: nobody */
    struct str host, rack;
    int32_t port;
};

/* A peer with a connection.  Any: one that answers, those with a connection first, then brokers, then the bootstrap
 * list.  A node: ERR_NOT_FOUND when the cluster has not told of it. */
MUST_USE bool cluster_connect_any(struct attempt *at, struct peer **out, struct failure *f);
MUST_USE bool cluster_connect_node(struct attempt *at, int32_t id, struct peer **out, struct failure *f);
/* What the cluster told of a node, lent until it tells again; id -1 when it told nothing. */
struct node cluster_find_node(const struct cluster *cl, int32_t id);
/* Tells of a node, as a coordinator's response does. */
void cluster_learn_node(struct cluster *cl, const struct node *node);

/* See channel_version(). */
int16_t peer_version(const struct peer *p, enum api api, int16_t version_max);
/* "host:port", for messages. */
const char *peer_name(const struct peer *p);
/* One request, within the request's timeout and the operation's. */
MUST_USE bool peer_ask(struct attempt *at, struct peer *p, const struct exchange *x, struct arena *a,
                       struct failure *f);

/* ---- Topics and their leaders */

struct topic_partition {
    struct str topic;
    int32_t partition;
};
/* By topic, then by partition: for qsort() and bsearch(). */
int topic_partition_compare(const struct topic_partition *a, const struct topic_partition *b);

struct leader {
    int32_t partition;
    int32_t node_id; /* -1: none at the moment */
};
struct topic {
    struct str name;
    int16_t kerr; /* UNKNOWN_TOPIC_OR_PARTITION ... */
    bool is_internal;
    struct leader *leaders; /* by partition */
    int32_t leader_count;
};

/* One request for metadata: teaches the cluster its brokers and gives the topics asked for, sorted by name (NULL and
 * count 0: none; doubles are asked for once).  Creates no topic. */
MUST_USE bool cluster_topics(struct attempt *at, const struct str *names, int32_t count, struct topic **topics,
                             int32_t *topic_count, struct arena *a, struct failure *f);
/* Every broker's id, from metadata asked for now. */
MUST_USE bool cluster_nodes(struct attempt *at, int32_t **ids, int32_t *count, struct arena *a, struct failure *f);
/* NULL: it is not among them. */
const struct topic *cluster_topic_find(const struct topic *topics, int32_t count, struct str name);
/* The leader's node; -1: none, or no such partition. */
int32_t cluster_topic_leader(const struct topic *t, int32_t partition);

/* ---- Coordinators of groups */

struct coordinator {
    struct str group;
    int32_t node_id;
    int16_t kerr;
    struct str message; /* may be null */
};
/* Asks for the coordinators of the groups given, in one request where the broker can. */
MUST_USE bool cluster_find_coordinators(struct attempt *at, struct coordinator *groups, int32_t count, struct arena *a,
                                        struct failure *f);

#endif
