/* fetchers.h: this broker's followers: fetches from leaders what the partitions that it follows lack.
 *
 * One fetcher per leader and number (num.replica.fetchers) has one connection, one incremental fetch session and one
 * fetch out at a time; a partition belongs to one of them, by its topic and number.  Fetchers are spread over the
 * loops, and each is owned by its loop; what a leader sends is checked (CRCs too) and appended there from the buffer
 * that it was received in.
 *
 * A new follower cuts its log where the leader's history differs: the leader tells in the answer to a fetch that
 * carries the epoch of the follower's last record (KIP-595's diverging epoch, in Kafka's brokers since 2.7).  A
 * partition that fails is delayed alone (replica.fetch.backoff.ms at most), its neighbours go on.
 *
 * Thread: the home loop, unless marked. */
#ifndef REPLICA_FETCHERS_H
#define REPLICA_FETCHERS_H

#include "base/slice.h"
#include "os/loop.h"
#include "os/net.h"
#include "replica/partition.h"

struct fetchers;

struct fetchers_config {
    int32_t per_leader;           /* num.replica.fetchers; may change while they run */
    int32_t fetch_max_bytes;      /* replica.fetch.max.bytes: of one partition */
    int32_t response_max_bytes;   /* replica.fetch.response.max.bytes */
    int32_t min_bytes;            /* replica.fetch.min.bytes */
    int32_t wait_max_ms;          /* replica.fetch.wait.max.ms */
    int64_t backoff_ms;           /* replica.fetch.backoff.ms */
    int64_t socket_timeout_ms;    /* replica.socket.timeout.ms */
    int32_t receive_buffer_bytes; /* replica.socket.receive.buffer.bytes; -1: the system's */
};

struct fetchers_options {
    struct net *net;
    struct loop *home;
    struct loop *const *loops; /* lent */
    unsigned loop_count;
    struct workers *workers; /* cut logs, look names up */
    struct buf_pool *bufs;
    int32_t broker_id;
    struct fetchers_config config;
    /* Where the broker is reached by other brokers, copied into `host`; false: nobody knows it (yet).  Any loop. */
    bool (*address_of)(void *arg, int32_t broker_id, char host[256], int32_t *port);
    /* This broker's present epoch: leaders refuse a fetch of an older one (KIP-903).  Any loop. */
    int64_t (*broker_epoch)(void *arg);
    void *arg;
};

struct fetchers *fetchers_new(const struct fetchers_options *opt);
/* Nothing is fetched any more when `stopped` runs, on the home loop. */
void fetchers_stop(struct fetchers *f, void (*stopped)(void *arg), void *arg);
/* After that, or when no loop runs any more. */
void fetchers_free(struct fetchers *f);

/* The partition, which must be online, follows this leader in this epoch from now on, instead of whom it followed.
 * Takes a reference on `p`.  `leader` -1: there is none, nothing is fetched. */
void fetchers_follow(struct fetchers *f, struct partition *p, int32_t leader, int32_t leader_epoch);
/* It follows nobody any more.  When `left` runs, on the home loop, nothing is appended to its log by a fetcher any
 * more, and no truncation is under way: so a leader's epoch begins only then.  `left` may be NULL. */
void fetchers_leave(struct fetchers *f, struct partition *p, void (*left)(void *arg, struct partition *p), void *arg);
/* A broker's address may have changed, or it is known now: those who wait for it try at once. */
void fetchers_broker_changed(struct fetchers *f, int32_t broker_id);
void fetchers_configure(struct fetchers *f, const struct fetchers_config *config);

/* follower.replication.throttled.replicas and the rate: whether the partition counts, and bytes a second in all; -1: no
 * limit.  Any thread may read. */
void fetchers_throttle(struct fetchers *f, int64_t bytes_per_second,
                       bool (*counts)(void *arg, const struct partition *p), void *arg);

/* For metrics and tests: partitions followed, those that are delayed after a failure or wait for the controller, the
 * largest distance to a leader's high watermark, in records, and how many records below a high watermark had to be cut
 * so far: after an unclean election, else there is a bug.  Home loop; approximate. */
struct fetchers_view {
    size_t fetchers, partitions, failed;
    int64_t max_lag;
    int64_t cut_records;
};
struct fetchers_view fetchers_look(const struct fetchers *f);

#endif
