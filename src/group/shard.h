/* shard.h: the groups of one partition of __consumer_offsets: requests and time go in, answers and records come out.
 *
 * No I/O, no clock and no thread of its own: who hosts a shard (broker/groups.c, the simulator, a unit test) writes the
 * records that it emits, tells it when they are safe, and gives it the time.  Kafka's classic group protocol
 * (GroupCoordinator and GroupMetadataManager of 3.9) is all in here.  Groups of the newer protocol (KIP-848) would be
 * another kind of the same group objects with the same offsets.
 *
 * Thread: its host's loop; only replaying may be done on another thread, before anybody else knows the shard.
 * Every entry point may call env->answer() before it returns, for its own call and for others.  Answers are given last,
 * when the shard has nothing half done, so that answer() may call group_shard_call() and group_shard_drop(). */
#ifndef GROUP_SHARD_H
#define GROUP_SHARD_H

#include "base/arena.h"
#include "base/err.h"
#include "base/list.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "base/writer.h"
#include "wire/kerr.h"

struct group;
struct group_member;
struct group_shard;

/* Which request a call is; what `in` and `out` point at. */
enum group_api {
    GROUP_JOIN,      /* struct join_group_request, _response */
    GROUP_SYNC,      /* struct sync_group_request, _response */
    GROUP_HEARTBEAT, /* struct heartbeat_request, _response */
    GROUP_LEAVE,     /* struct leave_group_request, _response: its members[] form in every version; before 3 the one
                      * member's error is the answer's, too */
    GROUP_COMMIT,    /* struct offset_commit_request, _response; see group_shard_call() */
    GROUP_FETCH,     /* struct offset_fetch_request_offset_fetch_request_group, _response_..._group: one group of it */
    GROUP_DELETE_OFFSET, /* struct offset_delete_request, _response */
    GROUP_DESCRIBE,      /* struct str (the group's id), struct describe_groups_response_described_group */
    GROUP_LIST,          /* struct list_groups_request, _response: this shard's part of it */
    GROUP_DELETE,        /* struct str (the group's id), struct delete_groups_response_deletable_group_result */
    GROUP_API_COUNT
};

/* One request in the shard's hands, embedded in what asked.  Zeroed, then the caller fills in the first block; all of
 * it, with the memory of `in`, stays alone with the shard until env->answer() has it or group_shard_drop() returns.
 * `in` is not kept after the call is answered: what a group remembers it copies. */
struct group_call {
    enum group_api api;
    int16_t version;     /* of the request */
    bool require_stable; /* GROUP_FETCH: UNSTABLE_OFFSET_COMMIT rather than an offset that a transaction may change */
    bool want_history;   /* GROUP_DESCRIBE: the group's last rebalances, too */
    struct str client_id, client_host; /* as Kafka shows them: "consumer-1", "/127.0.0.1" */
    const void *in;
    void *out; /* set to its defaults by the caller, but for GROUP_COMMIT and GROUP_DELETE_OFFSET, see below */
    struct arena *arena; /* where the answer's arrays and strings go; nothing in `out` points into the shard */

    /* the shard's own */
    struct list_node waiting; /* in the shard's list of calls; in none: not the shard's */
    struct list_node node;    /* of group_write.calls */
    struct group_member *member;
    struct group_write *write;
    size_t pending; /* what it still waits for */
};

/* A record to be written; a null value is a tombstone.  Key and value start with their prefixes. */
struct group_record {
    struct bytes key, value;
};

/* Records that belong in one batch, so that all or none of them are read back.  Made by the shard, freed by it when it
 * is told the outcome; the host may use `host` and `node`. */
struct group_write {
    struct group_record *records;
    size_t count;
    size_t bytes; /* of all keys and values */
    struct list_node node;
    void *host;

    /* the shard's own */
    struct writer encoded; /* what keys and values point into, one behind the other */
    struct arena arena;
    void (*done)(struct group_shard *sh, struct group_write *w, enum kerr kerr);
    struct group *group;
    void *arg;
    struct list calls; /* answered by `done` */
};

struct group_shard_env {
    void *arg;
    /* The answer is in call->out; the call is the host's again. */
    void (*answer)(void *arg, struct group_call *call);
    /* Write this; group_shard_written() tells the outcome, once, in the order of the writes, and not before this has
     * returned. */
    void (*write)(void *arg, struct group_write *w);
    /* A random 128-bit id for a member. */
    struct uuid (*member_id)(void *arg);
};

/* group.*, offset.*, offsets.* of the broker's configuration. */
struct group_options {
    int32_t session_timeout_min_ms, session_timeout_max_ms; /* group.min.session.timeout.ms, group.max. */
    int32_t size_max;                                       /* group.max.size */
    int32_t initial_delay_ms;                               /* group.initial.rebalance.delay.ms */
    int32_t metadata_bytes_max;                             /* offset.metadata.max.bytes */
    int64_t offsets_retention_ms;                           /* offsets.retention.minutes */
};

/* `partition` is for messages.  env and options are copied.  The shard is empty, at time 0, and replays. */
struct group_shard *group_shard_new(int32_t partition, const struct group_shard_env *env,
                                    const struct group_options *opt);
/* Nothing may be in its hands any more: close it, and tell the outcome of every write, before. */
void group_shard_free(struct group_shard *sh);

/* ---- What the partition holds, in the order of the log, before the first call */

/* Where a record comes from: the batch's header. */
struct group_replay {
    int64_t offset, timestamp_ms;
    int64_t producer_id; /* -1: none */
    bool transactional;  /* counts only when a marker commits it (KIP-98) */
};
/* A record of a kind or version that is not known is skipped, with a warning; ERR_CORRUPT: it is one we know and cannot
 * be read, and is skipped as well.  */
enum err group_shard_replay(struct group_shard *sh, const struct group_replay *at, struct bytes key,
                            struct bytes value);
/* A transaction's marker: what its producer has written since its last one counts, or does not. */
void group_shard_replay_marker(struct group_shard *sh, int64_t producer_id, bool commit);
/* The end.  Members of stable groups get a session timeout's time to be heard of; groups that were on their way into a
 * generation start empty of waiting members, as in Kafka. */
void group_shard_loaded(struct group_shard *sh, int64_t mono_ms, int64_t wall_ms);

/* ---- Life */

/* It is now so late, of a clock that never goes back and of the wall's: to be called before every other event of a
 * turn. Fires what is due. */
void group_shard_tick(struct group_shard *sh, int64_t mono_ms, int64_t wall_ms);
/* When to tick next, by the first clock; INT64_MAX: not by time alone. */
int64_t group_shard_due_ms(const struct group_shard *sh);

/* A request.  Refused ones are answered by the protocol; none is left without an answer but by group_shard_drop().
 * GROUP_COMMIT and GROUP_DELETE_OFFSET: `out` has the request's topics and partitions, in its order; a partition whose
 * error code is set already (a topic that does not exist, say) is left alone. */
void group_shard_call(struct group_shard *sh, struct group_call *call);
/* Nobody waits for the answer any more (the connection is gone).  The member stays until its session ends, as in Kafka.
 * A call that has been answered, or was never given, is left alone. */
void group_shard_drop(struct group_shard *sh, struct group_call *call);
/* The records are safe (as offsets.commit.required.acks says), or why they are not: a produce's error code. */
void group_shard_written(struct group_shard *sh, struct group_write *w, enum kerr kerr);

/* Removes what has expired: offsets (KIP-211), empty groups.  Every offsets.retention.check.interval.ms. */
void group_shard_expire(struct group_shard *sh);
/* The topic is gone, and with it what was committed of it up to now; where that is much it takes several turns. */
void group_shard_forget_topic(struct group_shard *sh, struct str topic);

/* The partition has moved, or the broker stops: every call that waits is answered with `kerr` (NOT_COORDINATOR), and no
 * other may come. */
void group_shard_close(struct group_shard *sh, enum kerr kerr);

size_t group_shard_count(const struct group_shard *sh); /* groups */

/* ---- For hosts that have no shard to ask */

/* Fills in the answer that refuses the call, whichever API it is. */
void group_refuse(struct group_call *call, enum kerr kerr);
/* The partition of __consumer_offsets that a group lives in: |java.lang.String.hashCode()| modulo the count. */
int32_t group_partition_of(struct str group_id, int32_t partition_count);
/* Invalid ids are refused before anything else: empty, and only OffsetCommit and its like may use that one (Kafka). */
bool group_id_is_valid(struct str group_id, enum group_api api);

#endif
