/* group_internal.h: a shard, its groups, their members and offsets; what the files of this folder share.  Not for others.
 *
 * WHAT ALWAYS HOLDS
 * (1) A group's state moves along group_next[] and only group_enter() writes it.
 * (2) Every member is in `members`; one with an instance id is in `static_members`, too, and no other has that id.
 * (3) A member with `join` or `sync` set owes that call an answer; a call is in at most one place.
 * (4) A generation's assignment is told to members only when its record is safe, and then it is what the record says.
 * (5) `offsets` holds what is safe; what is being written stands beside it until then.
 * (6) A group without members, offsets and anything in progress does not stay.
 */
#ifndef GROUP_GROUP_INTERNAL_H
#define GROUP_GROUP_INTERNAL_H

#include "base/hash.h"
#include "base/mem.h"
#include "group/shard.h"
#include "os/timer_heap.h"
#include "wire/gen/group_metadata_value.h"

enum { REBALANCES_KEPT = 16 };             /* per group */
enum { NEW_MEMBER_JOIN_MS = 5 * 60 * 1000 }; /* session of one that has not joined a generation yet, as in Kafka */

/* Kafka's names in group.c. */
enum group_state {
    GROUP_EMPTY,
    GROUP_PREPARING,  /* members are asked to join the next generation */
    GROUP_COMPLETING, /* they have; the leader assigns */
    GROUP_STABLE,
    GROUP_DEAD, /* removed; what still holds a pointer finds nobody */
    GROUP_STATE_COUNT
};

struct group_protocol {
    struct str name;       /* of an assignor, "range" */
    struct bytes metadata; /* the subscription, opaque but for expire.c and describing */
};

struct group_member {
    UT_hash_handle by_id;
    UT_hash_handle by_instance;
    struct group *group;
    char *id, *instance_id, *client_id, *client_host; /* instance_id NULL: a dynamic member */
    int32_t session_timeout_ms, rebalance_timeout_ms;
    struct group_protocol *protocols; /* one allocation with their strings; by preference */
    int32_t protocol_count;
    struct bytes assignment; /* owned */
    bool is_new;             /* it has not been answered a first JoinGroup */
    bool heard;              /* since its session timer was set */
    struct group_call *join, *sync;
    struct timer session;
};

/* An id that was given out (KIP-394) and has not come back. */
struct group_pending_member {
    UT_hash_handle by_id;
    struct group *group;
    char *id;
    struct timer expiry;
};

/* Why a rebalance was, for people. */
struct group_rebalance {
    int64_t started_wall_ms, started_ms;
    int64_t took_ms;    /* -1: not over */
    int32_t generation; /* that it led to; -1: none yet */
    char *reason, *member_id, *client_id; /* of whom it began with; member_id may be NULL */
};

/* One committed offset. */
struct group_offset {
    int64_t offset, commit_ms, expire_ms; /* expire_ms -1: by offsets.retention.minutes */
    int64_t record_offset;                /* where its record is in the log; a later one wins */
    int32_t leader_epoch;
    char *metadata; /* owned, "" for none */
};

/* What the group knows of one partition of a topic. */
struct group_position {
    int32_t partition;
    bool committed;           /* `safe` is there */
    struct group_offset safe; /* what OffsetFetch tells */
    uint32_t writing;         /* commits that are on their way */
    uint32_t in_transactions; /* open transactions that would change it */
    UT_hash_handle hh;
};

struct group_topic {
    char *name;
    struct group_position *positions; /* uthash by partition */
    UT_hash_handle hh;
};

/* Offsets that a transaction will commit, if it does: by producer. */
struct group_transaction;

struct group {
    UT_hash_handle hh;
    struct group_shard *shard;
    char *id;
    enum group_state state;
    int64_t state_since_ms; /* wall clock; goes into the record; -1 unknown */
    char *protocol_type;    /* "consumer"; NULL: only offsets have been committed */
    char *protocol;         /* the assignor chosen for this generation */
    char *leader;           /* a member's id; NULL */
    int32_t generation;

    struct group_member *members, *static_members; /* uthash */
    struct group_pending_member *pending;          /* uthash */
    int32_t joining;                               /* members whose `join` is set */

    struct timer join_timer; /* the rebalance timeout, or the initial delay */
    bool initial_delay;      /* it is the latter; */
    int64_t initial_left_ms; /*   what may be added to it */
    bool joined_meanwhile;
    struct timer sync_timer; /* who joined and did not sync is removed */
    struct group_write *assignment_write;

    struct group_rebalance rebalances[REBALANCES_KEPT]; /* a ring */
    uint32_t rebalance_count;                           /* ever; the newest is (count - 1) % KEPT */

    struct group_topic *topics; /* uthash: offsets */
    size_t offset_count;
    struct group_transaction *transactions;
    uint32_t writes; /* of records of this group that are on their way */
};

struct group_shard {
    int32_t partition;
    struct group_shard_env env;
    struct group_options opt;
    struct group *groups; /* uthash by id */
    struct timer_heap timers;
    int64_t mono_ms, wall_ms;
    bool closed;
    size_t writes;
};

/* ---- group.c: the group itself */

struct group *group_find(struct group_shard *sh, struct str id);
struct group *group_make(struct group_shard *sh, struct str id);
/* Frees it; it must be dead or unknown to the log, with no member, and no write in progress. */
void group_free(struct group *grp);
void group_enter(struct group *grp, enum group_state next);
const char *group_state_name(enum group_state state); /* "PreparingRebalance" */
/* (6): frees the group if nothing holds it. */
void group_drop_if_idle(struct group *grp);

/* ---- member.c */

struct group_member *group_member_find(struct group *grp, struct str id);
struct group_member *group_member_find_static(struct group *grp, struct str instance_id);
/* The member that the request speaks for, or why not: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. */
enum kerr group_member_check(struct group *grp, struct str member_id, struct str instance_id,
                             struct group_member **out);
/* It is alive: its session begins anew. */
void group_member_heard(struct group_member *m);
/* Every member's protocols, decoded as a consumer's subscription, name these topics; false: the protocol is none of a
 * consumer, or something cannot be read, and nobody knows what is subscribed to. */
bool group_is_subscribed(struct group *grp, struct str topic, bool *known);

/* ---- rebalance.c, join.c, sync.c, session.c: join to leave */

void group_join(struct group_shard *sh, struct group_call *call);
void group_sync(struct group_shard *sh, struct group_call *call);
void group_heartbeat(struct group_shard *sh, struct group_call *call);
void group_leave(struct group_shard *sh, struct group_call *call);
/* Members and state from a record; the group has been made for it. */
void group_restore(struct group *grp, const struct group_metadata_value *v);
/* After the last record. */
void group_restored(struct group *grp);
/* Answers all who wait, forgets members: the shard is closed. */
void group_close(struct group *grp, enum kerr kerr);

/* ---- offsets.c, offset_fetch.c, transactions.c, expire.c */

void group_commit(struct group_shard *sh, struct group_call *call);
void group_fetch(struct group_shard *sh, struct group_call *call);
void group_delete_offset(struct group_shard *sh, struct group_call *call);
void group_offsets_free(struct group *grp);

/* ---- admin.c */

void group_describe(struct group_shard *sh, struct group_call *call);
void group_list(struct group_shard *sh, struct group_call *call);
void group_delete(struct group_shard *sh, struct group_call *call);

/* ---- records.c: keys and values of __consumer_offsets, as Kafka 3.9 writes them */

/* A write in the making: records are encoded into its arena. */
struct group_write *group_write_new(struct group *grp,
                                    void (*done)(struct group_shard *sh, struct group_write *w, enum kerr kerr));
/* The group's metadata as it is now, with `assignment_of`(member) as each member's assignment. */
void group_write_metadata(struct group_write *w, const struct group *grp,
                          struct bytes (*assignment_of)(const struct group_member *m, void *arg), void *arg);
void group_write_tombstone(struct group_write *w, const struct group *grp);
void group_write_offset(struct group_write *w, const struct group *grp, struct str topic, int32_t partition,
                        const struct group_offset *offset);
void group_write_offset_tombstone(struct group_write *w, const struct group *grp, struct str topic, int32_t partition);
/* Hands it to the host; freed after `done`. */
void group_write_send(struct group_write *w);
/* The errors that a failed write means to who waits: of a commit, of an assignment. */
enum kerr group_commit_kerr(enum kerr write_kerr);
enum kerr group_assignment_kerr(enum kerr write_kerr);

/* ---- shard.c */

static inline void group_answer(struct group_shard *sh, struct group_call *call)
{
    sh->env.answer(sh->env.arg, call);
}
/* Timers of the shard's heap count milliseconds of mono_ms as timer_heap's microseconds. */
void shard_timer_set(struct group_shard *sh, struct timer *t, int64_t due_ms);
void shard_timer_cancel(struct group_shard *sh, struct timer *t);

#endif
