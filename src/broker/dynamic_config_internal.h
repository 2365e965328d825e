/* dynamic_config_internal.h: what dynamic_config.c (what is stored, and applying it) and dynamic_config_follow.c
 * (reading it at the start, notifications) share.  Not for other files. */
#ifndef BROKER_DYNAMIC_CONFIG_INTERNAL_H
#define BROKER_DYNAMIC_CONFIG_INTERNAL_H

#include <pthread.h>

#include "base/hash.h"
#include "broker/dynamic_config.h"
#include "coord/coord.h"

struct stored_topic {
    UT_hash_handle hh;
    struct config_map *overrides;
    char name[];
};

/* A notification that is known and not yet old enough to be removed. */
struct seen_change {
    int64_t number, ctime_ms;
};

struct config_loading;

struct dynamic_config {
    struct broker *br;
    char own_name[16];
    pthread_mutex_t lock; /* guards `topics` */
    struct stored_topic *topics;

    /* All else: home loop. */
    struct config_map *cluster, *own; /* NULL: nothing is stored */

    /* New settings for every topic here, some at each turn. */
    char **rebuild; /* names; NULL: not going on */
    size_t rebuild_count, rebuild_at;
    struct loop_msg rebuild_msg;
    struct list rebuild_waiters;

    int64_t last_change; /* the highest notification seen; -1: none */
    struct seen_change *seen;
    size_t seen_at, seen_count, seen_cap; /* from the oldest that is still there */
    struct timer retry_timer;
    struct config_loading *loading;
};

/* What is kept of an entity, lent until the next change; NULL: nothing is stored.  Home loop. */
const struct config_map *dynamic_config_stored(const struct dynamic_config *dc, enum config_entity kind,
                                               struct str name);
/* Keeps what is stored for an entity, without applying it; false: nothing has changed.  Home loop. */
bool dynamic_config_store(struct dynamic_config *dc, enum config_entity kind, struct str name, struct config_map *give);
/* What is stored for the broker becomes its configuration.  Home loop. */
void dynamic_config_apply_broker(struct dynamic_config *dc);
/* What is stored for the topic goes to its replicas.  Home loop. */
void dynamic_config_apply_topic(struct dynamic_config *dc, struct str topic);
/* Names of topics of which something is stored, copies. */
struct str *dynamic_config_stored_topics(struct dynamic_config *dc, struct arena *a, size_t *count);
/* For dynamic_config_free(): reading that waits for a session which will not come. */
void dynamic_config_loading_free(struct dynamic_config *dc);

#endif
