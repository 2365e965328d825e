/* groups_internal.h: what the files of groups share.  Not for others.
 *
 * WHAT ALWAYS HOLDS
 * (1) A hosted partition is touched by its loop alone, but for what is atomic; it lives as long as the groups do.
 * (2) There is a shard exactly while it is open or closing; nobody asks one that is closing.
 * (3) What a shard has emitted stands in `unsent` or in a batch of `batches`; outcomes are told from the front.
 * (4) While it is loading, open or closing, `role_waiter` waits on `p` for what happens without the controller.
 * (5) A partition is loaded only when nothing is being written to it by the shard before. */
#ifndef BROKER_GROUPS_INTERNAL_H
#define BROKER_GROUPS_INTERNAL_H

#include "broker/broker.h"
#include "broker/groups.h"

enum hosted_state {
    HOSTED_IDLE, /* no shard: not led here, or not begun */
    HOSTED_LOADING,
    HOSTED_OPEN,
    HOSTED_CLOSING /* its last appends are on their way */
};

/* One partition of the offsets topic that this broker leads, or has led. */
struct hosted {
    struct groups *groups;
    struct group_loop *at;
    int32_t index;

    struct partition *wanted; /* a reference: what the controller has given us to lead last; NULL: not ours */
    int32_t wanted_epoch;
    bool serves; /* it is to be served, perhaps not yet */

    enum hosted_state state;
    struct partition *p; /* a reference: of which the shard is */
    int32_t epoch;       /* that it is led in */
    struct group_shard *shard;
    int64_t ticked_us;           /* the turn of the loop in which the shard was told the time last */
    struct timer due, retention; /* the shard's own time; offsets.retention.check.interval.ms */

    struct partition_waiter role_waiter;
    struct loop_msg wake_msg;
    _Atomic bool wake_posted;

    /* groups_write.c */
    struct list unsent; /* struct group_write */
    struct list batches;
    struct loop_idle flush;
    struct timer write_timer; /* offsets.commit.timeout.ms of the first batch */

    struct group_load *load; /* groups_load.c */
};

/* The partitions that live on one loop. */
struct group_loop {
    struct groups *groups;
    struct loop *loop;
    struct hosted **slots; /* by partition / number of loops */
    size_t slot_count, slot_cap;
    struct list load_queue; /* struct group_load */
    size_t loads;           /* at work */
    bool starting;          /* more of them, at the moment */
    size_t active;          /* partitions that are not idle */
    struct loop_msg stop_msg, stopped_msg;
    bool stopping;
};

enum { SIZE_UNKNOWN = -1 };

struct groups {
    struct broker *br;
    struct group_options options;
    int16_t acks; /* offsets.commit.required.acks */
    int64_t commit_timeout_us, retention_check_us;
    int64_t load_bytes;
    enum codec codec;
    int32_t partitions_default;
    _Atomic int32_t partition_count; /* 0: there is no topic; SIZE_UNKNOWN: nobody knows yet */
    struct uuid topic_id;            /* of the topic as it was told of last; the home loop's, like what follows */
    bool size_asked;                 /* of the store */
    bool growth_told;

    struct group_loop *loops;
    unsigned loops_open; /* groups_stop() */
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* ---- groups.c */

/* NULL: never led here.  Owner. */
struct hosted *hosted_find(struct group_loop *at, int32_t partition);
/* Goes on to where it is to be, as far as it can now. */
void hosted_settle(struct hosted *h);
/* The same, and outcomes of writes.  Not from within the shard. */
void hosted_look(struct hosted *h);
/* Tells the shard the time, once a turn: before each event. */
void hosted_tick(struct hosted *h);
/* Sets the timer for when the shard is due: after each event. */
void hosted_rearm(struct hosted *h);
/* A message of `wake_msg`, from any thread; one on its way stands for several. */
void hosted_wake(struct hosted *h);
/* The load is over: the shard is opened. */
void hosted_open(struct hosted *h, struct group_shard *shard);
/* The load was given up. */
void hosted_load_ended(struct hosted *h);

/* ---- groups_ask.c */

extern const struct group_shard_env groups_shard_env; /* .arg is to be the struct hosted */
void groups_ask_answered(void *arg, struct group_call *call);

/* ---- groups_load.c */

void group_load_begin(struct hosted *h);
/* It ends in hosted_load_ended(), at once or when the worker is through. */
void group_load_cancel(struct hosted *h);
/* What the topic leaves behind goes when the load is over. */
void group_load_forget(struct hosted *h, struct str topic);

/* ---- groups_write.c */

void hosted_write(void *arg, struct group_write *w);
/* Appends what has been emitted; who calls it looks at the outcomes. */
void hosted_flush(struct hosted *h);
/* Looks at what is being written, and tells outcomes, in order.  Open or closing. */
void hosted_tell_written(struct hosted *h);
static inline bool hosted_writes(const struct hosted *h)
{
    return !list_is_empty(&h->unsent) || !list_is_empty(&h->batches);
}
void hosted_write_init(struct hosted *h);

#endif
