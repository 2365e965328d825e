/* controller_trio.h: a controller on broker 1 of three, whose brokers can be lost and come back. */
#ifndef TESTS_CONTROLLER_TRIO_H
#define TESTS_CONTROLLER_TRIO_H

#include "controller_world.h"

/* Broker 1 has the controller; 2 and 3 have sessions of their own, by id. */
struct trio {
    struct cluster *cl;
    struct world *sessions[BROKERS_MAX];
};

static inline void trio_join(struct trio *tr, int32_t id)
{
    tr->sessions[id] = session_new(tr->cl->w);
    register_broker(tr->sessions[id], id, NULL);
    settle(tr->cl->w);
}

static inline void trio_lose(struct trio *tr, int32_t id)
{
    coord_memory_expire(tr->cl->w->memory, coord_session_id(tr->sessions[id]->c));
    session_free(tr->sessions[id]);
    tr->sessions[id] = NULL;
    settle(tr->cl->w);
}

static inline int64_t epoch_of(struct trio *tr, int32_t id)
{
    char path[32];
    snprintf(path, sizeof path, "/brokers/ids/%d", id);
    return call_exists(tr->cl->w, path, COORD_NO_WATCH).r.stat.czxid;
}

/* A topic of one partition. */
static inline void make_topic(struct trio *tr, const char *name, const int32_t *brokers, size_t count)
{
    struct controller_assignment as = {0, brokers, count};
    struct controller_new_topic t = {.name = str_of(name),
                                     .partition_count = -1,
                                     .replication_factor = -1,
                                     .assignments = &as,
                                     .assignment_count = 1};
    assert_int_equal(create_topics(tr->cl, &t, 1, false).results[0].kerr, KERR_NONE);
}

static const int32_t one_two[] = {1, 2}, two_three_one[] = {2, 3, 1};

static inline void assert_state(struct trio *tr, const char *topic, const char *expected)
{
    char path[64];
    snprintf(path, sizeof path, "/brokers/topics/%s/partitions/0/state", topic);
    assert_str(node_text(tr->cl->w, path), expected);
}

/* --- AlterPartition --- */

struct alter {
    int32_t broker;
    int64_t broker_epoch; /* 0: the right one */
    const char *topic;
    struct uuid id;
    int32_t partition, leader_epoch, partition_epoch;
    int32_t isr[4];
    int32_t isr_count;
    int64_t epochs[4]; /* 0: the right ones */
    int8_t recovery;
    int16_t version;
};

static inline struct alter_partition_response alter(struct trio *tr, const struct alter *al)
{
    struct alter_partition_request_partition_data ap = alter_partition_request_partition_data_default;
    struct alter_partition_request_topic_data at = alter_partition_request_topic_data_default;
    struct alter_partition_request_broker_state epochs[4];
    int32_t isr[4];
    memcpy(isr, al->isr, sizeof isr);
    for (int i = 0; i < al->isr_count; i++)
        epochs[i] =
            (struct alter_partition_request_broker_state){isr[i], al->epochs[i] ? al->epochs[i] : epoch_of(tr, isr[i])};
    ap.partition_index = al->partition;
    ap.leader_epoch = al->leader_epoch;
    ap.partition_epoch = al->partition_epoch;
    ap.leader_recovery_state = al->recovery;
    if (al->version >= 3) {
        ap.new_isr_with_epochs = epochs;
        ap.new_isr_with_epochs_count = al->isr_count;
    } else {
        ap.new_isr = isr;
        ap.new_isr_count = al->isr_count;
    }
    if (al->version < 2) at.topic_name = str_of(al->topic);
    at.topic_id = al->id;
    struct controller_topic t;
    if (al->version >= 2 && al->topic && controller_find_topic(tr->cl->c, str_of(al->topic), &t))
        at.topic_id = t.topic_id;
    at.partitions = &ap;
    at.partitions_count = 1;
    struct alter_partition_request in = {al->broker, al->broker_epoch ? al->broker_epoch : epoch_of(tr, al->broker),
                                         &at, 1};
    struct alter_partition_response out = alter_partition_response_default;
    struct asked as = {.w = tr->cl->w};
    controller_alter_partition(tr->cl->c, &in, al->version, &out, asked_rq(&as));
    asked_wait(&as);
    return out;
}

static inline int trio_setup(void **state)
{
    struct trio *tr = mem_zalloc(1, sizeof *tr);
    tr->cl = cluster_new(false);
    cluster_stop(tr->cl);
    tr->cl->w->c =
        coord_memory_connect(tr->cl->w->memory, (struct coord_listener){tr->cl->w->loop, world_listen, tr->cl->w});
    call_set(tr->cl->w, "/controller_epoch", "0", COORD_ANY_VERSION);
    register_broker(tr->cl->w, 1, NULL);
    tr->cl->with.fast_failure_detection = true;
    cluster_start(tr->cl);
    trio_join(tr, 2);
    trio_join(tr, 3);
    *state = tr;
    return 0;
}

static inline int trio_teardown(void **state)
{
    struct trio *tr = *state;
    for (int i = 0; i < BROKERS_MAX; i++)
        if (tr->sessions[i]) session_free(tr->sessions[i]);
    settle(tr->cl->w);
    cluster_free(tr->cl);
    mem_free(tr);
    return 0;
}

#endif
