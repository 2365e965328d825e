/* znodes.h: what Kafka 3.9 keeps in ZooKeeper: paths and the JSON in the nodes, as typed structs.
 *
 * Decoders take every version that Kafka 3.9 reads, ignore unknown fields and answer ERR_CORRUPT with a fault that
 * names the path when the content is not what it should be.  Encoders write what Kafka 3.9 writes, keys in its order.
 * What they return lives in the arena given.  Thread: any, one at a time per arena. */
#ifndef COORD_ZNODES_H
#define COORD_ZNODES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "coord/coord.h"
#include "wire/security.h"

/* --- paths --- */

#define ZNODE_BROKER_IDS        STR("/brokers/ids")
#define ZNODE_BROKER_SEQID      STR("/brokers/seqid")
#define ZNODE_TOPICS            STR("/brokers/topics")
#define ZNODE_CLUSTER_ID        STR("/cluster/id")
#define ZNODE_CONFIG            STR("/config")
#define ZNODE_CONFIG_CHANGES    STR("/config/changes")
#define ZNODE_CONFIG_CHANGE     STR("/config/changes/config_change_") /* sequential */
#define ZNODE_CONTROLLER        STR("/controller")
#define ZNODE_CONTROLLER_EPOCH  STR("/controller_epoch")
#define ZNODE_DELETE_TOPICS     STR("/admin/delete_topics")
#define ZNODE_FEATURE           STR("/feature")
#define ZNODE_ISR_CHANGES       STR("/isr_change_notification")
#define ZNODE_LOG_DIR_EVENTS    STR("/log_dir_event_notification")
#define ZNODE_LOG_DIR_EVENT     STR("/log_dir_event_notification/log_dir_event_") /* sequential */
#define ZNODE_PREFERRED_ELECT   STR("/admin/preferred_replica_election")
#define ZNODE_PRODUCER_ID_BLOCK STR("/latest_producer_id_block")
#define ZNODE_REASSIGN          STR("/admin/reassign_partitions")

/* Directories under /config. */
#define CONFIG_TOPICS  STR("topics")
#define CONFIG_BROKERS STR("brokers")
#define CONFIG_DEFAULT STR("<default>") /* the entity whose settings hold for all brokers (clients, users) */

struct str znode_broker_path(struct arena *a, int32_t broker_id);
struct str znode_topic_path(struct arena *a, struct str topic);
struct str znode_partitions_path(struct arena *a, struct str topic);
struct str znode_partition_path(struct arena *a, struct str topic, int32_t partition);
struct str znode_state_path(struct arena *a, struct str topic, int32_t partition);
struct str znode_config_path(struct arena *a, struct str type, struct str name);
struct str znode_delete_topic_path(struct arena *a, struct str topic);

/* Makes the nodes that Kafka expects to be there when a broker starts; those that exist stay as they are. */
void znodes_make_persistent(struct coord *c, struct coord_to to);

/* --- /brokers/ids/N --- */

struct znode_endpoint {
    struct str listener; /* "PLAINTEXT", "INTERNAL", ... */
    struct str host;
    int32_t port;
    int16_t security_protocol;
};

struct znode_feature {
    struct str name;
    int16_t min_version, max_version;
};

struct znode_broker {
    int32_t version; /* decoded: 1..5; encoded always as 5 */
    struct znode_endpoint *endpoints;
    size_t endpoint_count;
    struct str rack;  /* null: none */
    int32_t jmx_port; /* -1: none */
    int64_t timestamp_ms;
    struct znode_feature *features;
    size_t feature_count;
};

MUST_USE enum err znode_broker_decode(struct arena *a, struct str path, struct bytes data, struct znode_broker *out,
                                      struct fault *f);
struct bytes znode_broker_encode(struct arena *a, const struct znode_broker *b);

/* --- /brokers/topics/T --- */

struct znode_replicas {
    int32_t partition;
    int32_t *replicas, *adding, *removing;
    int32_t replica_count, adding_count, removing_count;
};

struct znode_topic {
    struct uuid topic_id;              /* zero: none (versions 1 and 2) */
    struct znode_replicas *partitions; /* sorted by partition */
    size_t partition_count;
};

MUST_USE enum err znode_topic_decode(struct arena *a, struct str path, struct bytes data, struct znode_topic *out,
                                     struct fault *f);
struct bytes znode_topic_encode(struct arena *a, const struct znode_topic *t);

/* --- /brokers/topics/T/partitions/P/state --- */

struct znode_state {
    int32_t controller_epoch, leader, leader_epoch;
    int32_t *isr;
    int32_t isr_count;
    int8_t leader_recovery_state; /* 0: recovered */
};

MUST_USE enum err znode_state_decode(struct arena *a, struct str path, struct bytes data, struct znode_state *out,
                                     struct fault *f);
struct bytes znode_state_encode(struct arena *a, const struct znode_state *s);

/* --- lists of partitions --- */

/* /isr_change_notification/isr_change_N (what brokers of before Kafka 2.7 leave for the controller),
 * /admin/preferred_replica_election, and with replicas /admin/reassign_partitions (what tools of before Kafka 2.4 and
 * 2.6 leave there): the controller does what they say and removes them. */
struct znode_listed {
    struct str topic;
    int32_t partition;
    int32_t *replicas; /* of a reassignment; else NULL */
    int32_t replica_count;
};

struct znode_partition_list {
    struct znode_listed *partitions;
    size_t count;
};

MUST_USE enum err znode_partitions_decode(struct arena *a, struct str path, struct bytes data,
                                          struct znode_partition_list *out, struct fault *f);
MUST_USE enum err znode_reassign_decode(struct arena *a, struct bytes data, struct znode_partition_list *out,
                                        struct fault *f);
/* What is still to be done of a reassignment goes back into its node. */
struct bytes znode_reassign_encode(struct arena *a, const struct znode_partition_list *l);

/* --- /config/TYPE/NAME and /config/changes/... --- */

struct znode_setting {
    struct str name, value;
};

struct znode_config {
    struct znode_setting *settings;
    size_t count;
    struct str *textless; /* see znode_config_decode_usable() */
    size_t textless_count;
};

/* Null data is no settings, as for Kafka. */
MUST_USE enum err znode_config_decode(struct arena *a, struct str path, struct bytes data, struct znode_config *out,
                                      struct fault *f);
/* The same, but settings whose value is no text are passed over, and stand in `textless`.  ERR_CORRUPT: nothing of it
 * can be read, and *out is empty. */
MUST_USE enum err znode_config_decode_usable(struct arena *a, struct str path, struct bytes data,
                                             struct znode_config *out, struct fault *f);
struct bytes znode_config_encode(struct arena *a, const struct znode_config *c);

/* `entity_path` is "topics/T", "brokers/N", "users/U/clients/C".  Version 1 nodes are read into that form too. */
MUST_USE enum err znode_config_change_decode(struct arena *a, struct str path, struct bytes data,
                                             struct str *entity_path, struct fault *f);
struct bytes znode_config_change_encode(struct arena *a, struct str entity_path);

/* --- the cluster's --- */

MUST_USE enum err znode_cluster_id_decode(struct arena *a, struct bytes data, struct str *id, struct fault *f);
struct bytes znode_cluster_id_encode(struct arena *a, struct str id);

struct znode_controller {
    int32_t broker_id;
    int64_t timestamp_ms;
    int32_t kraft_controller_epoch; /* -1: not one of KRaft's */
};

MUST_USE enum err znode_controller_decode(struct arena *a, struct bytes data, struct znode_controller *out,
                                          struct fault *f);
struct bytes znode_controller_encode(struct arena *a, const struct znode_controller *c);

/* A broker's word that one of its log directories has failed (KIP-112). */
MUST_USE enum err znode_log_dir_event_decode(struct arena *a, struct str path, struct bytes data, int32_t *broker_id,
                                             struct fault *f);
struct bytes znode_log_dir_event_encode(struct arena *a, int32_t broker_id);

/* A broker's word that it has changed in-sync sets in the store by itself, as before AlterPartition. */
struct znode_isr_change {
    struct str topic;
    int32_t partition;
};

MUST_USE enum err znode_isr_changes_decode(struct arena *a, struct str path, struct bytes data,
                                           struct znode_isr_change **out, size_t *count, struct fault *f);

MUST_USE enum err znode_controller_epoch_decode(struct bytes data, int32_t *out, struct fault *f);
struct bytes znode_controller_epoch_encode(struct arena *a, int32_t epoch);

/* Producer ids `start` to `end`, both included, were given to `broker_id`. */
struct znode_producer_ids {
    int32_t broker_id;
    int64_t start, end;
};

MUST_USE enum err znode_producer_ids_decode(struct arena *a, struct bytes data, struct znode_producer_ids *out,
                                            struct fault *f);
struct bytes znode_producer_ids_encode(struct arena *a, const struct znode_producer_ids *p);

/* Finalized features: `max_version` of each counts.  `enabled`: status 1. */
struct znode_features {
    bool enabled;
    struct znode_feature *features;
    size_t count;
};

MUST_USE enum err znode_features_decode(struct arena *a, struct bytes data, struct znode_features *out,
                                        struct fault *f);
struct bytes znode_features_encode(struct arena *a, const struct znode_features *fs);

#endif
