/* group_internal.h: a shard, its groups, their members and offsets; what the files of this folder share.  Not for
 * others.
 *
 * WHAT ALWAYS HOLDS
 * (1) A group's state moves along group_next[] and only group_enter() writes it, once the log has been read.
 * (2) Every member is in `members`; one with an instance id is in `static_members`, too, and no other has that id.
 * (3) A member with `join` or `sync` set owes that call an answer; a call is in at most one place.  Without them it may
 *     be joining or syncing all the same: who asked has hung up.
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

enum { REBALANCES_KEPT = 16 };               /* per group */
enum { NEW_MEMBER_JOIN_MS = 5 * 60 * 1000 }; /* session of one that has not joined a generation yet, as in Kafka */

/* Kafka's names in group.c. */
enum group_state {
    GROUP_EMPTY,
    GROUP_PREPARING,  /* members are asked to join the next generation */
    GROUP_COMPLETING, /* they have; the leader assigns */
    GROUP_STABLE,
    GROUP_DEAD, /* the shard is closed; what is still being written finds nobody */
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
    struct bytes proposed;   /* owned: the leader's, until `assignment_write` is safe */
    bool is_new;             /* it has not been answered a first JoinGroup */
    bool joining;            /* it waits for the next generation, or its static re-join to be written */
    bool syncing;            /* it waits for its assignment */
    bool sync_due;           /* it joined this generation and has not sent a SyncGroup */
    struct group_call *join, *sync;
    int64_t session_ends_ms; /* moved by all that is heard of it; `session` follows when it fires */
    struct timer session;
};

/* An id that was given out (KIP-394) and has not come back. */
struct group_pending_member {
    UT_hash_handle by_id;
    struct group *group;
    char *id;
    struct timer expiry;
};

/* How many members know an assignor. */
struct group_vote {
    UT_hash_handle hh;
    char *name;
    int32_t supporters;
    int32_t ballots; /* while votes are counted */
};

/* Why a rebalance was, for people. */
struct group_rebalance {
    int64_t started_wall_ms, started_ms;
    int64_t took_ms;                      /* -1: not over */
    int32_t generation;                   /* that it led to; -1: none yet */
    int32_t dropped;                      /* members that did not join in time */
    char *reason, *member_id, *client_id; /* of whom it began with; member_id may be NULL */
};

/* One committed offset. */
struct group_offset {
    int64_t offset, commit_ms, expire_ms; /* expire_ms -1: by offsets.retention.minutes */
    int64_t record_offset;                /* orders it among all records of the log; a later one wins */
    int32_t leader_epoch;
    struct str metadata; /* owned; data NULL for none, which is told as "" */
};

/* What the group knows of one partition of a topic. */
struct group_position {
    int32_t partition;
    bool committed;           /* `safe` is there */
    struct group_offset safe; /* what OffsetFetch tells */
    uint32_t writing;         /* records of it that are on their way, */
    uint32_t removing;        /*   these of them are tombstones */
    uint32_t in_transactions; /* open transactions that would change it */
    UT_hash_handle hh;
};

/* A topic of which some group knows something, to find them when it is deleted. */
struct shard_topic {
    UT_hash_handle hh;
    char *name;
    struct list of_groups; /* struct group_topic */
};

struct group_topic {
    const char *name; /* the shard_topic's */
    struct group *group;
    struct shard_topic *in_shard;
    struct list_node node;            /* of in_shard->of_groups */
    struct list_node forgetting;      /* of the shard's list */
    struct group_position *positions; /* uthash by partition */
    UT_hash_handle hh;
};

/* Offsets that a transaction will commit, if it does (transactions.c): by producer, of a group and of all groups. */
struct group_transaction;
struct group_producer;

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
    bool recorded; /* the log has a record of it, whatever that says */

    struct group_member *members, *static_members; /* uthash */
    struct group_pending_member *pending;          /* uthash */
    struct group_vote *votes;                      /* uthash by name: what the members know */
    int32_t joining, syncs_due;                    /* members of which that is true */

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

/* A group's name, in a set of them. */
struct group_name {
    UT_hash_handle hh;
    char *name;
};

struct group_shard {
    int32_t partition;
    struct group_shard_env env;
    struct group_options opt;
    struct group *groups;       /* uthash by id */
    struct shard_topic *topics; /* uthash by name */
    struct timer_heap timers;
    int64_t mono_ms, wall_ms;
    bool closed;
    size_t writes;        /* on their way */
    struct list calls;    /* that wait, by group_call.waiting */
    struct list answered; /* given to the host at the end of the entry point */
    bool answering;       /* an entry point below us is at that */

    struct buf_pool *bufs; /* for the records of writes */
    /* What the last record of an offset counted as: a record's place in the log while replaying, afterwards one more
     * for every record that is safe.  Only their order means something. */
    int64_t record_offset;
    struct group_producer *producers; /* uthash: those with open transactions */
    struct timer expiry;              /* goes on with a sweep that has done enough for one turn: */
    struct list forgetting;           /*   topics of groups (group_topic) that are gone, first; */
    struct group *expiry_next;        /*   then from here, NULL when none goes on */
    struct group_name *skipped;       /* uthash: groups whose records replay.c does not know */
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

/* A new member's id, as Kafka makes them: `prefix`, "-" and a random UUID in hex. */
char *group_make_member_id(struct group_shard *sh, struct str prefix);
/* A string with a zero in it, which nothing of ours could find again; or that is no UTF-8: Kafka never sends such to
 * anybody, and clients whose strings are text could read no answer that has it. */
bool group_str_is_odd(struct str s);
/* For an answer, which may outlive what it tells of; null becomes empty. */
struct bytes group_copy_bytes(struct arena *a, struct bytes b);

static inline struct str group_id(const struct group *grp)
{
    return (struct str){grp->id, grp->hh.keylen};
}

/* ---- member.c */

struct group_member *group_member_find(struct group *grp, struct str id);
struct group_member *group_member_find_static(struct group *grp, struct str instance_id);
/* The member that the request speaks for, or why not: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. */
enum kerr group_member_check(struct group *grp, struct str member_id, struct str instance_id,
                             struct group_member **out);

/* What a new member is made of; copied. */
struct group_member_spec {
    struct str id, instance_id, client_id, client_host;
    int32_t session_timeout_ms, rebalance_timeout_ms;
    const struct group_protocol *protocols; /* no name twice */
    int32_t protocol_count;
};
/* Neither id is there yet.  The first member leads. */
struct group_member *group_member_add(struct group *grp, const struct group_member_spec *spec);
/* Out of the group, and freed.  Who waits for it is told UNKNOWN_MEMBER_ID; another member leads, if it did. */
void group_member_remove(struct group_member *m);
/* It goes by another id from now on, and what waits for the old one is fenced.  Takes `id`. */
void group_member_rename(struct group_member *m, char *id);
void group_member_set_protocols(struct group_member *m, const struct group_protocol *protocols, int32_t count);
/* One allocation with all strings in it. */
struct group_protocol *group_protocols_copy(const struct group_protocol *protocols, int32_t count);
bool group_member_has_protocols(const struct group_member *m, const struct group_protocol *protocols, int32_t count);
/* What it says of itself under the group's protocol; null: it does not know that one. */
struct bytes group_member_metadata(const struct group_member *m);
void group_member_set_joining(struct group_member *m, bool joining);
void group_member_set_sync_due(struct group_member *m, bool due);
/* The call waits for the next generation, or for the assignment, in the place of one that did. */
void group_member_wait_join(struct group_member *m, struct group_call *call);
void group_member_wait_sync(struct group_member *m, struct group_call *call);

/* One of these members may join: all know a protocol of it (or there is no other member). */
bool group_supports(const struct group *grp, struct str protocol_type, const struct group_protocol *protocols,
                    int32_t count);
/* The protocol that all know and most prefer.  There is a member, and a protocol that all know. */
const char *group_elect_protocol(struct group *grp);
void group_set_leader(struct group *grp, const struct group_member *m);
/* The longest of the members' rebalance timeouts. */
int32_t group_rebalance_timeout_ms(const struct group *grp);

bool group_is_pending(const struct group *grp, struct str id);
/* Takes `id`. */
void group_pending_add(struct group *grp, char *id, int32_t timeout_ms);
/* False: there was none. */
bool group_pending_remove(struct group *grp, struct str id);

/* ---- session.c: who is alive, who leaves */

/* It is alive: its session begins anew. */
void group_member_heard(struct group_member *m);
/* The same with a session of its own length. */
void group_member_live_for(struct group_member *m, int32_t timeout_ms);
void group_member_session_fire(struct timer *t);
void group_pending_fire(struct timer *t);
void group_heartbeat(struct group_shard *sh, struct group_call *call);
void group_leave(struct group_shard *sh, struct group_call *call);

/* ---- rebalance.c: from one generation to the next */

/* Why a rebalance begins, and with whom; for people. */
struct group_cause {
    const char *what;  /* "a member left" */
    struct str reason; /* the client's own; may be null */
    struct str member_id, client_id;
};
/* A group that is stable, empty or completing prepares for the next generation; another is let be.  Members that have
 * not joined may be freed by it: group_complete_if_joined(). */
void group_rebalance(struct group *grp, const struct group_cause *cause);
/* Ends the preparing if there is nobody to wait for.  Removes nobody. */
void group_complete_if_joined(struct group *grp);
/* The member is removed, and the group goes on without it. */
void group_member_lose(struct group_member *m, const struct group_cause *cause);

/* ---- join.c, sync.c */

void group_join(struct group_shard *sh, struct group_call *call);
/* It is joining no more: its `join` is answered with the group's generation. */
void group_answer_join(struct group_member *m);
void group_sync(struct group_shard *sh, struct group_call *call);
/* The assignment that was proposed comes to nothing: who waits for it is told so, and lives on. */
void group_sync_fail(struct group *grp, enum kerr kerr);

/* ---- restore.c */

/* Members and state from a record; the group has been made for it.  A later record of it replaces an earlier one. */
void group_restore(struct group *grp, const struct group_metadata_value *v);
/* After the last record. */
void group_restored(struct group *grp);
/* Answers all who wait, forgets members: the shard is closed. */
void group_close(struct group *grp, enum kerr kerr);

/* ---- history.c: the last rebalances, and a line in the log for each */

void group_history_begin(struct group *grp, const struct group_cause *cause);
/* A member had its time to join and did not. */
void group_history_dropped(struct group *grp);
/* All have joined (or nobody has): this is the generation. */
void group_history_joined(struct group *grp);
/* The group is stable or empty; nothing to end is no mistake. */
void group_history_end(struct group *grp);
void group_history_free(struct group *grp);

/* ---- positions.c: what a group knows of its partitions */

/* NULL: nothing.  `out` gets the topic when there is one. */
struct group_position *group_position_find(struct group *grp, struct str topic, int32_t partition,
                                           struct group_topic **out);
struct group_position *group_position_make(struct group *grp, struct str topic, int32_t partition,
                                           struct group_topic **out);
/* Makes a copy of it the committed one. */
void group_position_put(struct group *grp, struct group_position *pos, const struct group_offset *offset);
/* Nothing is committed any more, and nothing that is older will be by a transaction. */
void group_position_clear(struct group *grp, struct group_position *pos);
/* Frees it, and then the topic, if nothing holds it. */
void group_position_drop_if_idle(struct group_topic *t, struct group_position *pos);
static inline struct str group_topic_name(const struct group_topic *t)
{
    return (struct str){t->name, t->hh.keylen};
}
/* All offsets of the group, those in transactions too. */
void group_offsets_free(struct group *grp);

/* ---- offsets.c, offset_fetch.c */

void group_commit(struct group_shard *sh, struct group_call *call);
void group_fetch(struct group_shard *sh, struct group_call *call);
void group_delete_offset(struct group_shard *sh, struct group_call *call);

/* ---- removal.c: offsets and groups that go, with their tombstones */

/* A write of tombstones in the making; {.group = grp} is an empty one. */
struct group_removal {
    struct group *group;
    struct group_write *write; /* NULL: nothing has been added */
    struct removed *removed;   /* in the write's arena */
    size_t count, cap;
    bool whole; /* with this one all goes that the group had; its own record, too */
};
void group_removal_add(struct group_removal *rm, struct group_topic *t, struct group_position *pos);
/* The group itself: all its positions have been added. */
void group_removal_add_group(struct group_removal *rm);
/* No more should go into one batch; send it and begin another. */
bool group_removal_is_full(const struct group_removal *rm);
/* What has been added goes once it is safe, and with it a group that is left empty.  `call` (or NULL), which must be a
 * GROUP_DELETE or a GROUP_DELETE_OFFSET, is answered then.  False: there was nothing to be sent, nobody waits. */
bool group_removal_send(struct group_removal *rm, struct group_call *call);
/* The group goes if nothing is left in it, with a tombstone if the log may have a record of it. */
void group_retire(struct group *grp);

/* ---- expire.c */

/* A write is over: a sweep that waits for that goes on. */
void group_sweep_go_on(struct group_shard *sh);
/* Something new comes to a topic: what was committed before it was gone goes now. */
void group_topic_forget(struct group_topic *t);

/* ---- transactions.c: offsets of open transactions */

/* The transaction of that producer is going to commit this. */
void group_transaction_put(struct group *grp, int64_t producer_id, struct str topic, int32_t partition,
                           const struct group_offset *offset);
/* It is not going to, after all: a tombstone in the transaction. */
void group_transaction_remove(struct group *grp, int64_t producer_id, struct str topic, int32_t partition);
/* No transaction of the group is going to commit anything for this partition. */
void group_transactions_forget(struct group *grp, struct group_position *pos);
/* Its marker is there, in all of the producer's groups. */
void group_transactions_end(struct group_shard *sh, int64_t producer_id, bool commit);
void group_transactions_free(struct group *grp);

/* ---- replay.c */

/* Nothing more is replayed; twice is once. */
void group_replay_end(struct group_shard *sh);

/* ---- subscription.c: what a consumer group consumes */

/* Topics that members name; slices of what they sent, good as long as no member changes. */
struct group_subscription {
    bool known;                      /* false: no consumer group, no generation yet, or something cannot be read */
    struct group_subscribed *topics; /* uthash */
    struct arena arena;
};
void group_subscription_read(struct group_subscription *out, const struct group *grp);
bool group_subscription_has(const struct group_subscription *s, struct str topic);
void group_subscription_fini(struct group_subscription *s);
/* "consumer": the members' metadata is what Kafka's consumers write. */
bool group_is_consumer(const struct group *grp);

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
/* Hands it to the host and counts it in `writes` of group and shard; group_shard_written() takes it off, calls `done`,
 * frees it.  The calls that wait for it are in w->calls: one whose connection goes, or that a close answers, leaves. */
void group_write_send(struct group_write *w);
void group_write_free(struct group_write *w);
/* The errors that a failed write means to who waits: of a commit, of an assignment. */
enum kerr group_commit_kerr(enum kerr write_kerr);
enum kerr group_assignment_kerr(enum kerr write_kerr);

/* ---- shard.c */

/* The answer is in call->out.  The host has it at the end of the entry point; the call waits for nothing any more. */
void group_answer(struct group_shard *sh, struct group_call *call);
/* Refuses and answers. */
void group_answer_kerr(struct group_shard *sh, struct group_call *call, enum kerr kerr);
/* The last thing that an entry point does. */
void shard_give_answers(struct group_shard *sh);
/* Timers of the shard's heap count milliseconds of mono_ms as timer_heap's microseconds. */
void shard_timer_set(struct group_shard *sh, struct timer *t, int64_t due_ms);
void shard_timer_cancel(struct group_shard *sh, struct timer *t);

/* ---- refuse.c */

/* The group that a call is for; null: of all. */
struct str group_call_group(const struct group_call *call);

#endif
