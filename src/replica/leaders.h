/* leaders.h: what the partitions that this broker leads have in common: when somebody looks whether their followers
 * lag, and how changes of their in-sync sets get to the controller.
 *
 * A partition with followers waits in a heap for the time when one of them may have lagged for too long; nobody looks
 * at the others.  Proposals of all partitions go out in one AlterPartition at a time; those that come up meanwhile wait
 * for its answer and go together.  Thread: the home loop, unless marked. */
#ifndef REPLICA_LEADERS_H
#define REPLICA_LEADERS_H

#include "base/arena.h"
#include "os/loop.h"
#include "replica/partition.h"
#include "wire/gen/alter_partition.h"

struct leaders;

/* One AlterPartition on its way to the controller, whoever that is; tried again by the callee while nobody answers. */
struct alter_partition_call {
    const struct alter_partition_request *request; /* lent until `done` */
    int16_t version; /* 3: with broker epochs, or 2.  Of this version alone is the request. */
    /* Home loop, once, in a turn of its own.  ERR_UNSUPPORTED: the controller does not know the version.  The response,
     * NULL with an error, is good until this returns. */
    void (*done)(struct alter_partition_call *call, enum err e, const struct alter_partition_response *response);
};

struct leaders_options {
    struct loop *home;
    struct clock *clock;
    int64_t lag_max_ms; /* replica.lag.time.max.ms */
    /* The broker is registered.  Any loop.  NULL: all are. */
    bool (*is_alive)(void *arg, int32_t broker_id);
    /* This broker's own epoch, for the request. */
    int64_t (*broker_epoch)(void *arg);
    /* NULL: there is no controller to ask; in-sync sets stay as they are. */
    void (*alter_partition)(void *arg, struct alter_partition_call *call);
    void *arg;
};

struct leaders *leaders_new(const struct leaders_options *opt);
/* Proposes nothing any more.  A call that is out must be answered before leaders_free(). */
void leaders_stop(struct leaders *ls);
/* No loop runs any more. */
void leaders_free(struct leaders *ls);

/* Any thread. */
bool leaders_is_alive(const struct leaders *ls, int32_t broker_id);
int64_t leaders_lag_max_ms(const struct leaders *ls);
int64_t leaders_now_ms(const struct leaders *ls);
bool leaders_can_propose(const struct leaders *ls);

/* The partition has a proposal.  Any loop, also under the partition's lock. */
void leaders_propose(struct leaders *ls, struct partition *p);
/* Somebody is to look at it at this time, monotonic; INT64_MAX: never.  Later than before has no effect: who looks asks
 * anew.  Any loop, also under the partition's lock. */
void leaders_watch(struct leaders *ls, struct partition *p, int64_t due_ms);
/* It goes: nobody looks any more.  `ls` may be NULL. */
void leaders_forget(struct leaders *ls, struct partition *p);

/* leader.replication.throttled.rate: what followers that are not in sync may read of throttled partitions; INT64_MAX:
 * no limit.  Any thread, as the two that follow. */
void leaders_set_rate(struct leaders *ls, int64_t bytes_per_second);
void leaders_charge(struct leaders *ls, size_t bytes, int64_t now_us);
bool leaders_over_rate(struct leaders *ls, int64_t now_us);

/* ---- leader.c, for leaders.c */

/* Time has passed: who lags is to leave, who has lost his say lets the high watermark go. */
void partition_look_at_followers(struct partition *p);
/* What is proposed, into ids and epochs, which come from the arena; false: nothing any more. */
struct isr_proposal {
    int32_t *ids;
    int64_t *epochs;
    int32_t count, self, leader_epoch, partition_epoch;
    uint32_t version; /* of the in-sync set */
};
bool partition_take_proposal(struct partition *p, int64_t self_epoch, struct arena *arena, struct isr_proposal *out);
/* The controller's answer.  True: it is to be asked again. */
bool partition_take_answer(struct partition *p, const struct isr_proposal *asked,
                           const struct alter_partition_response_partition_data *answer);

#endif
