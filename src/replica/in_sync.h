/* in_sync.h: what the leader of a partition knows of its followers, the in-sync set, and how that set changes.
 *
 * The leader learns from each follower's fetches how far its log goes.  The high watermark is the smallest end among
 * the in-sync replicas.  The set changes only by the controller: the leader proposes (AlterPartition, KIP-497) and
 * takes over what is answered.  Until the answer it is careful both ways: a replica that it wants to let in holds the
 * high watermark back already, and one that it wants to put out holds it back still (KIP-497, "maximal ISR").
 *
 * Rules alone, without locks or I/O.  Part of struct partition, under partition.lock; for leader.c. */
#ifndef REPLICA_IN_SYNC_H
#define REPLICA_IN_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Long before everything else. */
static const int64_t FOLLOWER_NEVER_MS = INT64_MIN / 2;

enum follower_state {
    FOLLOWER_OUT,    /* not in the in-sync set */
    FOLLOWER_IN,     /* in it */
    FOLLOWER_ENTERS, /* out; the controller has been asked to let it in */
    FOLLOWER_LEAVES  /* in; the controller has been asked to put it out */
};

/* One of the other replicas of a partition that is led here. */
struct follower {
    int32_t broker_id;
    enum follower_state state;
    bool eligible;        /* its broker was alive when somebody last looked */
    bool refused;         /* the controller did not let it in (its broker is about to stop): it has no say till it asks
                             once more by fetching, after a while */
    int64_t broker_epoch; /* as of its last fetch; -1: it does not say (before KIP-903) */
    int64_t log_start, end; /* of its log; -1: it has not fetched since we lead */
    int64_t fetched_ms;     /* monotonic: when its last fetch came, */
    int64_t end_then;       /*   and where our log ended */
    int64_t caught_up_ms;   /* when it last had all that we had */
};

struct in_sync {
    int32_t self;
    struct follower *followers; /* in the order of the assignment */
    int32_t count;
    int32_t members;         /* of the in-sync set as the controller last told it, this replica included */
    int32_t partition_epoch; /* of that */
    int64_t entry_min;       /* no follower that ends below it may enter: where our log ended when this leadership
                              * began, or later (leader.c) */
    int64_t lag_max_ms;      /* replica.lag.time.max.ms */
    int64_t now_ms;          /* the latest time that somebody told */
    bool proposed;           /* some follower enters or leaves: an answer is awaited */
    uint32_t version;        /* grows when what was proposed before does not matter any more */
};

void in_sync_init(struct in_sync *s);
void in_sync_fini(struct in_sync *s);

/* What the controller says of a partition that is led here. */
struct in_sync_told {
    int32_t self;
    const int32_t *replicas, *isr;
    int32_t replica_count, isr_count;
    int32_t partition_epoch;
    bool new_epoch, new_leader; /* a new leadership; and this replica did not have the one before */
    int64_t end, now_ms;        /* the log's */
};
/* Takes it over; what was proposed is void.  What is known of followers lasts as long as the leadership. */
void in_sync_assign(struct in_sync *s, const struct in_sync_told *told);
/* Forgets the followers: this replica does not lead any more. */
void in_sync_clear(struct in_sync *s);

/* NULL: no replica. */
struct follower *in_sync_find(const struct in_sync *s, int32_t broker_id);

/* A follower has everything below `fetch_offset`, which it told at `now_ms`, when our log ended at `end`.  False: it
 * was told by an earlier life of its broker.  A member that has less than is below the high watermark has lost what it
 * had: it leaves. */
struct follower_news {
    int64_t fetch_offset, log_start, broker_epoch;
    int64_t end, high_watermark, now_ms;
};
bool in_sync_note(struct in_sync *s, struct follower *f, const struct follower_news *news);

/* The high watermark that the followers allow while the log ends at `end`: of all that are in the set or may be by the
 * controller's word, and of those about to enter it; -1 while one of them is unknown, or while the set is smaller than
 * `min_insync`. */
int64_t in_sync_high_watermark(const struct in_sync *s, int64_t end, int32_t min_insync);
/* No follower has a say in it. */
bool in_sync_is_alone(const struct in_sync *s, int64_t end);
/* Replicas that are in the set, or may be by now.  With acks=all what counts. */
int32_t in_sync_members_max(const struct in_sync *s);
/* min.insync.replicas, of which a topic with fewer replicas cannot have as many. */
int32_t in_sync_members_min(const struct in_sync *s, int32_t min_insync);

/* Marks who is to enter or to leave the set.  True: the controller is to be asked.  Nothing is marked before it has
 * answered what was marked before. */
bool in_sync_propose_entry(struct in_sync *s, int64_t high_watermark, int64_t end);
bool in_sync_propose_exit(struct in_sync *s, int64_t end);
/* Takes the marks back. */
void in_sync_withdraw(struct in_sync *s);
/* The same, because the controller does not let in who was to enter. */
void in_sync_refuse(struct in_sync *s);
/* The set as proposed, this replica first, into `ids` and `epochs` (`self_epoch` for this one), which have room for
 * count + 1; returns how many. */
int32_t in_sync_proposal(const struct in_sync *s, int64_t self_epoch, int32_t *ids, int64_t *epochs);
/* The controller's answer to a proposal. */
void in_sync_commit(struct in_sync *s, const int32_t *isr, int32_t isr_count, int32_t partition_epoch);

/* When a follower that has a say may cease to have one, or may have to leave, unless it is heard of before; INT64_MAX:
 * no time alone changes anything. */
int64_t in_sync_due_ms(const struct in_sync *s);
/* The smallest start among this log, which starts at `own`, and those of followers whose brokers are alive. */
int64_t in_sync_low_watermark(const struct in_sync *s, int64_t own);

#endif
