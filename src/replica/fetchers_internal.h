/* fetchers_internal.h: what the files of the fetchers share.  Not for other modules.
 *
 * The home loop knows who is to be followed (struct follow); for each partition that a fetcher has in hand there is a
 * `struct followed`, which the fetcher's loop owns from the message that brings it to the one that brings it back.  It
 * is made for one leader in one epoch: when either changes, the old one comes back, and has nothing out any more,
 * before a new one is made.  So an answer to an old leader's fetch is never taken for one of the new leader's.
 *
 * WHAT ALWAYS HOLDS, on a fetcher's loop
 * (1) A followed partition is in `by_name`, by its topic and number, and if its topic has an id, in `by_id`.
 * (2) `queued` is in the list `changed` if the partition is to be fetched, and the leader's session does not have it as
 *     it is now; in `unwanted` if the session has it, but it is not to be fetched.
 * (3) An answer is only taken if the session had the partition as it is now when the fetch was sent (`put_serial`,
 *     `session_offset`): so nothing is appended twice, nor at a wrong place.
 * (4) A fetch names as `fetch_offset` what is appended, and on the disk where a flush is due: while `holding` counts
 *     partitions of which an append is out, no fetch leaves.  The one that reads ahead names what has been received; it
 *     leaves only where that lies below the leader's high watermark, so that it promises nothing. */
#ifndef REPLICA_FETCHERS_INTERNAL_H
#define REPLICA_FETCHERS_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/hash.h"
#include "replica/fetchers.h"
#include "rpc/rpc.h"
#include "wire/gen/fetch.h"
#include "wire/gen/list_offsets.h"

enum followed_state {
    FOLLOWED_AWAY,      /* not with the fetcher yet, or not any more */
    FOLLOWED_READY,     /* is fetched */
    FOLLOWED_APPENDING, /* a run of its batches is with the log, or waits for the disk */
    FOLLOWED_CUTTING,   /* a worker cuts its log, or begins it anew */
    FOLLOWED_LOOKING,   /* the leader is asked where its log begins and ends */
    FOLLOWED_DELAYED,   /* failed: again at `retry_us` */
    FOLLOWED_THROTTLED, /* until the rate allows it */
    FOLLOWED_STUCK,     /* fenced, or its log is out of service: until the controller speaks */
};

/* An append's way: whether who called plog_append() is told by its return, or by a message. */
enum append_at { APPEND_CALLED, APPEND_LEFT, APPEND_OVER };

/* How long a partition is left alone after a failure: the last level is replica.fetch.backoff.ms; a leader that only
 * has not been told yet that it leads is asked again after 5 ms, then after twice that, and so on up to the last. */
enum { DELAY_LEVELS = 9, DELAY_FIRST_MS = 5 };

struct fetcher;
struct lookup;

/* One partition in a fetcher's hands. */
struct followed {
    struct fetcher *fr;
    struct follow *follow;   /* home loop */
    struct partition *given; /* as the home loop knows it: a reference */
    struct partition *p;     /* it, or its successor: a reference */
    int32_t leader_epoch;
    struct loop_msg msg; /* brings it to the fetcher, and back */
    struct loop_msg leave_msg;

    UT_hash_handle by_name, by_id;
    char *key; /* "topic-7" */
    struct part_id {
        struct uuid topic_id;
        int32_t index;
    } id;
    size_t key_size;

    enum followed_state state;
    bool leaving;             /* comes back when nothing is out */
    struct list_node queued;  /* fr->changed or fr->unwanted */
    struct list_node waiting; /* one of fr->delayed, or fr->throttled */
    int64_t retry_us;
    int failures; /* one after the other */
    bool throttle_counts;

    /* What it has, and what the session says of it. */
    int64_t offset;
    int32_t last_epoch;
    bool in_session;
    uint64_t put_serial; /* of the fetch that told the session last */
    int64_t session_offset, session_start, session_high_watermark;
    int32_t session_last_epoch;
    _Atomic int64_t lag;
    bool read_ahead; /* the fetch after the answer that is being taken has left already */

    /* Of an answer: what is left to append, and what applies afterwards. */
    struct buf *frame;
    uint8_t *data;
    size_t size;
    int64_t leader_high_watermark, leader_start;
    int32_t run_epoch; /* of the last batch of the run that is being appended */
    struct append append;
    _Atomic int append_at; /* enum append_at */
    bool append_out;
    struct loop_msg appended_msg;
    struct partition_waiter flush_waiter; /* for the disk */
    bool flush_out;
    _Atomic bool flush_woken;
    uint32_t flushes_failed; /* the partition's count, as it was */
    struct loop_msg flush_msg;

    struct job cut_job;
    bool cut_out;
    bool cut_anew;    /* begins anew at cut_at */
    bool cut_unfiled; /* partition.cut_unfiled before it */
    int64_t cut_at, cut_end;
    int32_t cut_epoch; /* as they were before it */
    enum err cut_err;
    struct job start_job; /* the leader's log start */
    struct partition *start_p;
    bool start_out;
    int64_t start_at;
    enum err start_err;
    struct lookup *lookup;
    size_t lookup_index;
};

/* A partition that the leader's session still has, though it is not here any more. */
struct forgotten {
    UT_hash_handle hh;
    char *key;        /* "topic-7" */
    struct str topic; /* in the key */
    struct part_id id;
};

/* A fetch on its way. */
struct fetch_out {
    struct rpc_call call;
    struct fetcher *fr;
    struct arena arena;
    struct fetch_request request;
    uint64_t serial;
    bool out, full;
    size_t named; /* partitions in a full one */
};

/* The second one is sent when something is to be fetched at once while the leader waits for data to answer the first
 * one with: a new leader's followers cannot wait for replica.fetch.wait.max.ms. */
enum { FETCHES_OUT_MAX = 2 };

struct fetcher {
    struct fetchers *f;
    int32_t leader, number;
    struct loop *loop;
    char *client_id;
    /* Home loop: */
    struct list_node node;
    size_t partitions;
    bool retiring;
    struct loop_msg retire_msg, retired_msg;
    /* Any thread: */
    _Atomic bool changed_posted, throttle_posted;
    struct loop_msg changed_msg, throttle_msg;

    /* Its own loop: */
    struct rpc *rpc;
    char host[256];
    int32_t port;
    bool no_address;
    struct timer retry;
    bool backing_off; /* until `retry`, though connected */
    struct loop_idle idle;

    struct followed *by_name, *by_id;
    size_t unnamed; /* partitions whose topic has no id */
    struct list changed, unwanted, throttled;
    struct list delayed[DELAY_LEVELS]; /* each in the order of `retry_us` */
    struct timer delayed_timer, throttled_timer;
    int64_t delayed_due_us; /* while the timer is set */
    struct forgotten *forgotten;
    size_t holding;
    size_t fetched; /* partitions that are to be in the session */
    size_t lookups; /* out */
    bool retired;

    int32_t session_id, session_epoch; /* of the next fetch, unless it is a full one */
    bool session_by_id, full_next;
    bool no_session;    /* the leader gives none */
    bool urgent;        /* somebody is to be fetched who was not: no waiting for the fetch that is out */
    bool failed_before; /* the last answer was an error as a whole */
    int16_t version;    /* of the last answer */
    uint64_t serial;
    struct fetch_out outs[FETCHES_OUT_MAX];
    unsigned out_count;
};

struct throttle {
    pthread_mutex_t lock;     /* the last to be taken */
    int64_t bytes_per_second; /* -1: no limit */
    bool (*counts)(void *arg, const struct partition *p);
    void *arg;
    int64_t paid_us; /* what was received is within the rate at this time */
};

struct fetchers {
    struct fetchers_options opt;
    struct clock *clock;
    pthread_mutex_t lock; /* guards opt.config where it is read by other loops */
    struct throttle throttle;
    /* Home loop: */
    struct follow *follows;
    struct list fetchers;
    size_t fetcher_count;
    bool stopping;
    bool stop_told;
    void (*stopped)(void *arg);
    void *stopped_arg;
    struct loop_msg stopped_msg;
    _Atomic size_t failed;
    _Atomic int64_t cut_records; /* that were below a high watermark */
};

struct fetchers_config fetchers_config(struct fetchers *f);
/* `bytes` of a partition that counts have come. */
void fetchers_charge(struct fetchers *f, size_t bytes, int64_t now_us);
/* When what has come is within the rate; 0: it is. */
int64_t fetchers_over_rate_until(struct fetchers *f, int64_t now_us);
bool fetchers_counts(struct fetchers *f, const struct partition *p);

/* Nothing of it is out any more: the home loop has it again.  The fetcher's loop. */
void fetchers_returned(struct followed *fo);

/* ---- fetcher.c; the fetcher's loop */

struct fetcher *fetcher_new(struct fetchers *f, int32_t leader, int32_t number);
/* Also from the home loop, when no loop runs any more. */
void fetcher_free(struct fetcher *fr);
/* Takes over a partition that has just come. */
void fetcher_take(struct fetcher *fr, struct followed *fo);
/* The fetcher is to send what it has to tell, or to connect, at the end of this turn. */
void fetcher_poke(struct fetcher *fr);
/* The same at once. */
void fetcher_go_on(struct fetcher *fr);
struct followed *fetcher_find(struct fetcher *fr, struct str topic, struct uuid topic_id, int32_t index);

/* Sends nothing until replica.fetch.backoff.ms is over. */
void fetcher_back_off(struct fetcher *fr);

/* Where a partition will be when the answer is appended that has come for it. */
struct ahead {
    struct followed *fo;
    int64_t offset;
    int32_t epoch;
};
/* Whether a fetch could leave now.  The turn in which an answer is taken. */
bool fetcher_may_read_ahead(const struct fetcher *fr);
/* Has the next fetch leave before these are appended, from where they will be then. */
void fetcher_read_ahead(struct fetcher *fr, const struct ahead *list, size_t count);

/* A partition enters another state than READY, and leaves the session if it is not fetched then. */
void followed_enter(struct followed *fo, enum followed_state state);
/* It is fetched, from where it is now. */
void followed_ready(struct followed *fo);
/* Is left alone for a while; `briefly`: the leader has not been told yet, or will be told to go. */
void followed_delay(struct followed *fo, bool briefly);
void followed_throttle(struct followed *fo, int64_t until_us);
/* The home loop calls it back. */
void followed_leave(struct loop_msg *msg);
/* Goes back to the home loop, if it is leaving and nothing of it is out.  It is gone when this says true. */
bool followed_check_gone(struct followed *fo);
void followed_free(struct followed *fo);

/* ---- fetcher_answer.c */

void fetcher_take_answer(struct fetcher *fr, struct fetch_out *out);
/* Begins with a partition: where its log ends, or what must be cut of it first. */
void followed_begin(struct followed *fo);
/* It leaves: what it waits for does not matter any more. */
void followed_stop_waiting(struct followed *fo);
/* Has a worker cut its log at `offset`, or begin it `anew` there. */
void followed_cut(struct followed *fo, int64_t offset, bool anew);

/* ---- fetcher_lookup.c */

/* Asks the leader where the logs of those begin and end that are out of its range, which are in state LOOKING. */
void fetcher_look_up(struct fetcher *fr, struct followed **list, size_t count);
/* A partition leaves: the answer does not concern it any more. */
void lookup_forget(struct followed *fo);

#define LOG_MODULE "replica"

#endif
