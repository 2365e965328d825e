/* controller.h: the one broker that decides for the cluster: which topics there are, who holds and who leads their
 * partitions, what they are configured to.  One node is a cluster of one (DESIGN sections 6 and 7).
 *
 * It is elected on /controller, keeps all state in memory, writes every change to the coordination store as a multi
 * that checks its own epoch (so a deposed controller changes nothing), and tells brokers by LeaderAndIsr,
 * UpdateMetadata and StopReplica only, its own broker too.
 *
 * Thread: the controller lives on the loop given to it.  The operations may be called on any thread: arguments are
 * copied, and `to.done` runs once on `to.loop` with results that are lent until it returns.  What is marked "owner" is
 * for the controller's loop. */
#ifndef CONTROLLER_CONTROLLER_H
#define CONTROLLER_CONTROLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "coord/coord.h"
#include "coord/znodes.h"
#include "os/loop.h"
#include "os/rng.h"
#include "wire/gen/alter_partition.h"
#include "wire/gen/alter_partition_reassignments.h"
#include "wire/gen/controlled_shutdown.h"
#include "wire/gen/elect_leaders.h"
#include "wire/gen/leader_and_isr.h"
#include "wire/gen/list_offsets.h"
#include "wire/gen/list_partition_reassignments.h"
#include "wire/gen/stop_replica.h"
#include "wire/gen/update_metadata.h"
#include "wire/kerr.h"

struct controller;

enum {
    CONTROLLER_PARTITIONS_MAX = 50 * 1000, /* of one topic: its assignment must fit into one znode */
    CONTROLLER_REPLICAS_MAX = 1 << 10,     /* of one partition: each is compared with each */
    CONTROLLER_OPS_MAX = 10 * 1000,        /* operations waiting; past it: THROTTLING_QUOTA_EXCEEDED */
    PRODUCER_ID_BLOCK_SIZE = 1000
};

/* --- the way to the brokers --- */

/* `e` is OK and `r` the answer, or the message could not be delivered and `r` is NULL.  Call on the controller's loop,
 * once a message, not from within the send. */
typedef void (*leader_and_isr_reply_fn)(void *arg, enum err e, const struct leader_and_isr_response *r);
typedef void (*update_metadata_reply_fn)(void *arg, enum err e, const struct update_metadata_response *r);
typedef void (*stop_replica_reply_fn)(void *arg, enum err e, const struct stop_replica_response *r);
typedef void (*list_offsets_reply_fn)(void *arg, enum err e, const struct list_offsets_response *r);

/* Messages to one broker arrive in the order in which they are sent.  A request is lent until its reply: for the own
 * broker a call with the structs, for others the network, which retries until the broker's registration is gone.
 * Called on the controller's loop. */
struct controller_channel {
    void *arg;
    void (*leader_and_isr)(void *arg, int32_t broker_id, const struct leader_and_isr_request *rq,
                           leader_and_isr_reply_fn reply, void *reply_arg);
    void (*update_metadata)(void *arg, int32_t broker_id, const struct update_metadata_request *rq,
                            update_metadata_reply_fn reply, void *reply_arg);
    void (*stop_replica)(void *arg, int32_t broker_id, const struct stop_replica_request *rq,
                         stop_replica_reply_fn reply, void *reply_arg);
    /* Where replicas end, for elections: replica_id -2, timestamp -1.  Not retried; ERR_TIMEOUT after `timeout_ms`. */
    void (*list_offsets)(void *arg, int32_t broker_id, const struct list_offsets_request *rq, int64_t timeout_ms,
                         list_offsets_reply_fn reply, void *reply_arg);
    /* A broker is registered, with another epoch or address than before: from now on messages can be sent to it, and
     * its connection is watched, see controller_broker_unreachable().  Not called for the own broker. */
    void (*broker_came)(void *arg, int32_t broker_id, int64_t broker_epoch, struct str host, int32_t port);
    /* Its registration is gone, or the office lost: what is out to it is replied to with ERR_CLOSED. */
    void (*broker_went)(void *arg, int32_t broker_id);
};

/* --- life --- */

enum controller_state {
    CONTROLLER_STANDBY, /* another broker is the controller, or nobody yet */
    CONTROLLER_LOADING, /* elected; reads the cluster's state */
    CONTROLLER_ACTIVE
};

/* Checks a topic's settings for a create: KERR_NONE, or a code (INVALID_CONFIG) and *message, which lives in `a`.  Runs
 * on the controller's loop. */
typedef enum kerr (*controller_validate_fn)(void *arg, const struct znode_config *settings, struct arena *a,
                                            struct str *message);

struct controller_options {
    struct coord *coord; /* must outlive the controller; one session, one controller */
    struct loop *loop;
    struct rng *rng;
    int32_t broker_id;
    struct str inter_broker_listener;   /* inter.broker.listener.name; null: each broker's first; copied */
    int32_t partitions_default;         /* num.partitions */
    int16_t replication_factor_default; /* default.replication.factor */
    struct controller_channel channel;
    controller_validate_fn validate_topic; /* NULL: everything goes */
    bool fast_failure_detection;           /* controller.fast.failure.detection: see controller_broker_unreachable() */
    int64_t log_ends_wait_ms;   /* controller.election.log.end.wait.ms: how long an election waits for replicas' ends */
    bool unclean_election;      /* unclean.leader.election.enable; topics may have their own */
    bool leader_rebalance;      /* auto.leader.rebalance.enable, */
    int64_t imbalance_check_ms; /*   leader.imbalance.check.interval.seconds, */
    int32_t imbalance_percent;  /*   leader.imbalance.per.broker.percentage */
    /* Each change of state, on the controller's loop; NULL: nobody listens.  `epoch` is the controller epoch while
     * loading and active. */
    void (*state_changed)(void *arg, enum controller_state state, int32_t epoch);
    /* A broker or a topic whose node in the store is malformed is left out, with an ERROR: nothing is changed for it.
     * Otherwise it keeps the controller out of office. */
    bool leaves_out_malformed;
    /* The store's content cannot be used (malformed node, failed store): the controller stays out of office. */
    void (*failed)(void *arg, const struct fault *f);
    void *arg; /* of validate_topic, state_changed and failed */
};

/* The store's session is over (COORD_EXPIRED): leaves office at once, without touching the store, and runs for it again
 * after controller_session_renewed().  Owner. */
void controller_session_lost(struct controller *c);
void controller_session_renewed(struct controller *c);

/* From the channel, owner.  The connection to a registered broker broke and its port refuses, or it has been silent for
 * long while others were not: the process is dead, or looks so.  With fast_failure_detection it counts as gone: others
 * lead, and it leaves the in-sync sets, as if its registration had gone; which is safe when it is wrong (DESIGN section
 * 7).  Reachable again, with the registration as it was, it counts as come. */
void controller_broker_unreachable(struct controller *c, int32_t broker_id, int64_t broker_epoch);
void controller_broker_reachable(struct controller *c, int32_t broker_id, int64_t broker_epoch);
/* From the channel, owner.  None of the others can be reached, for longer than their sessions would outlast their
 * deaths: it is this broker that is cut off, and in-sync sets could not be changed as long as that lasts.  With
 * fast_failure_detection it leaves office, and does not run for it within the next `wait_ms`, so that another does. */
void controller_stand_back(struct controller *c, int64_t wait_ms);
/* What topics have for unclean.leader.election.enable, or what holds without that, may have changed: partitions without
 * a leader are looked at again.  Owner. */
void controller_unclean_changed(struct controller *c, bool by_default);

/* Starts to run for office at once.  The end has three steps: controller_stop(), coord_close(), controller_free(). */
struct controller *controller_start(const struct controller_options *opt);
/* Answers what is waiting with NOT_CONTROLLER and leaves office; `stopped` runs on the controller's loop when no
 * message to a broker is out any more.  Operations are refused from now on.  Owner. */
void controller_stop(struct controller *c, void (*stopped)(void *arg), void *arg);
/* After `stopped`, and after the store's session was closed: its watches point here until then. */
void controller_free(struct controller *c);

/* Whether it is in office.  Any thread; true while nobody has noticed yet that the office is lost. */
bool controller_is_active(const struct controller *c);

/* --- operations --- */

struct controller_result {
    struct str name;      /* topic or entity; null: the id is unknown */
    struct uuid topic_id; /* topics */
    enum kerr kerr;
    struct str message;      /* Kafka's words; null: none */
    int32_t partition_count; /* create topics and partitions: afterwards; -1 when it failed */
    int16_t replication_factor;
};

struct controller_results {
    const struct controller_result *results; /* in the order of the request */
    size_t count;
    int64_t producer_id_start; /* allocate producer ids */
    int32_t producer_id_count;
};

typedef void (*controller_done_fn)(void *arg, const struct controller_results *r);

struct controller_to {
    struct loop *loop;
    controller_done_fn done;
    void *arg;
};

struct controller_assignment {
    int32_t partition;
    const int32_t *brokers;
    size_t broker_count;
};

struct controller_new_topic {
    struct str name;
    int32_t partition_count;    /* -1: the default, or given by assignments */
    int16_t replication_factor; /* the same */
    const struct controller_assignment *assignments;
    size_t assignment_count;              /* 0: chosen by the controller */
    const struct znode_setting *settings; /* a null value is an error */
    size_t setting_count;
};

/* Done when this broker has applied LeaderAndIsr and UpdateMetadata for the new topics.  After `timeout_ms` what is not
 * done yet is answered with REQUEST_TIMED_OUT and goes on.  Names in one request must differ. */
void controller_create_topics(struct controller *c, const struct controller_new_topic *topics, size_t count,
                              bool validate_only, int32_t timeout_ms, struct controller_to to);

struct controller_topic_ref {
    struct str name; /* null: by id */
    struct uuid topic_id;
};

/* Done when the topic is gone from the store, or this broker no longer knows it and a broker that holds replicas is
 * away (their deletion waits for it). */
void controller_delete_topics(struct controller *c, const struct controller_topic_ref *topics, size_t count,
                              int32_t timeout_ms, struct controller_to to);

struct controller_more_partitions {
    struct str name;
    int32_t partition_count;                         /* in all, afterwards */
    const struct controller_assignment *assignments; /* of the new ones, in order; `partition` does not count */
    size_t assignment_count;
    bool has_assignments; /* false: chosen by the controller */
};

void controller_create_partitions(struct controller *c, const struct controller_more_partitions *topics, size_t count,
                                  bool validate_only, int32_t timeout_ms, struct controller_to to);

/* Makes an entity's new settings of its current ones, in `a`; KERR_NONE, or a code and *message.  Runs on the
 * controller's loop; nobody else changes the settings meanwhile. */
typedef enum kerr (*controller_alter_fn)(void *arg, const struct znode_config *current, struct arena *a,
                                         struct znode_config *out, struct str *message);

struct controller_config_change {
    struct str type; /* CONFIG_TOPICS, CONFIG_BROKERS, ... */
    struct str name; /* CONFIG_DEFAULT for the default entity */
    controller_alter_fn alter;
    void *arg; /* must live until the result */
};

/* Writes /config/TYPE/NAME and a notification below /config/changes, by which brokers learn of it. */
void controller_alter_configs(struct controller *c, const struct controller_config_change *changes, size_t count,
                              bool validate_only, struct controller_to to);

/* A block of PRODUCER_ID_BLOCK_SIZE ids that nobody else gets, for `broker_id` to hand out: BROKER_ID_NOT_REGISTERED,
 * or STALE_BROKER_EPOCH when it is an earlier life of the broker that asks, or one that is not known of yet. */
void controller_allocate_producer_ids(struct controller *c, int32_t broker_id, int64_t broker_epoch,
                                      struct controller_to to);

/* --- requests that come as they are on the wire --- */

/* `in`, `out` and `a` are the caller's and live until `done` has run on `loop`; meanwhile `out`, set to its defaults,
 * and `a` are the controller's.  Any thread. */
struct controller_request {
    struct arena *a;
    struct loop *loop;
    void (*done)(void *arg);
    void *arg;
};

/* A leader's new in-sync sets (KIP-497): checked by broker epoch, leader epoch and partition epoch.  Answered when they
 * are written.  `version` is the request's: since 2 topics are told by id, since 3 with broker epochs (KIP-903). */
void controller_alter_partition(struct controller *c, const struct alter_partition_request *in, int16_t version,
                                struct alter_partition_response *out, struct controller_request rq);
/* Answered when nothing is led by the broker any more that another could lead; names what is. */
void controller_controlled_shutdown(struct controller *c, const struct controlled_shutdown_request *in,
                                    struct controlled_shutdown_response *out, struct controller_request rq);
void controller_elect_leaders(struct controller *c, const struct elect_leaders_request *in,
                              struct elect_leaders_response *out, struct controller_request rq);
/* KIP-455.  Answered when the reassignments have begun; they go on until the new replicas are in sync. */
void controller_alter_reassignments(struct controller *c, const struct alter_partition_reassignments_request *in,
                                    struct alter_partition_reassignments_response *out, struct controller_request rq);
void controller_list_reassignments(struct controller *c, const struct list_partition_reassignments_request *in,
                                   struct list_partition_reassignments_response *out, struct controller_request rq);

/* --- looking inside, for tests.  Owner; good until the loop's next turn --- */

struct controller_partition {
    int32_t *replicas, *adding, *removing, *isr; /* replicas NULL: there is no such partition */
    int32_t replica_count, adding_count, removing_count, isr_count;
    int32_t *offline; /* replicas whose log directory has failed while their broker lives */
    int32_t offline_count;
    int32_t leader, leader_epoch; /* leader -1: none */
    int32_t controller_epoch;     /* of the controller that decided */
    int32_t state_version;        /* of the state's znode, Kafka's partition epoch; -1: not written yet */
    int64_t state_zxid;           /* when the state was last written; INT64_MAX: since this controller is in office */
    int8_t leader_recovery_state;
    bool listed;   /* /admin/reassign_partitions names it, and the reassignment has begun */
    size_t change; /* its place among the changes of the event that changed it last, see changes_have() */
};

struct controller_topic {
    struct str name;
    struct uuid topic_id;
    const struct controller_partition *partitions;
    int32_t partition_count;
    bool deleting;
};

/* Looks now whether leaders are where they should be, as it does from time to time by itself. */
void controller_balance(struct controller *c);
enum controller_state controller_state(const struct controller *c);
int32_t controller_epoch(const struct controller *c);
size_t controller_topic_count(const struct controller *c);
size_t controller_broker_count(const struct controller *c);
bool controller_find_topic(const struct controller *c, struct str name, struct controller_topic *out);

#endif
