/* groups.h: where the group coordinator's shards live: one for each partition of __consumer_offsets that is led here.
 *
 * A shard (group/shard.h) has no I/O.  This gives it its loop (partition number modulo the number of loops), reads the
 * partition into it when this broker becomes its leader, writes what it emits and tells it the outcome, gives it the
 * time, and closes it when the leadership goes.  Requests reach a shard with a `struct groups_asking` in their memory,
 * which is all of the way that they need: to the shard's loop and back.
 *
 * Thread: the home loop tells what changes; requests ask on their own loops; each shard is touched by its loop alone.
 */
#ifndef BROKER_GROUPS_H
#define BROKER_GROUPS_H

#include "broker/metadata.h"
#include "broker/request.h"
#include "group/shard.h"

struct groups;
struct groups_asking;
struct hosted;
struct partition;

#define OFFSETS_TOPIC "__consumer_offsets"

struct groups *groups_new(struct broker *br);
/* After `stopped`, or when the loops never ran. */
void groups_free(struct groups *g);
/* Closes all shards: who waits is answered NOT_COORDINATOR, what is being written is finished, what is being loaded is
 * given up.  `stopped` runs on the home loop; nothing may ask any more.  Home loop. */
void groups_stop(struct groups *g, void (*stopped)(void *arg), void *arg);

/* ---- What changes; home loop */

/* replicas_options.role_changed; `arg` is the struct groups. */
void groups_role_changed(void *arg, struct partition *p);
/* metadata_listener: of the offsets topic its number of partitions counts, of a topic that is gone its offsets go. */
void groups_topic_changed(void *arg, const struct topic_view *t);
void groups_topic_removed(void *arg, struct str name);

/* Partitions of the offsets topic, or how many it is going to have; 0: there is one, and how many it has is not known
 * yet.  Where it is made bigger while the broker runs, the number stays as it was until the next start, as in Kafka:
 * groups would lose their offsets at once.  Any thread. */
int32_t groups_partition_count(const struct groups *g);

/* ---- Asking */

/* One call to a shard, and the way there and back. */
struct groups_ask {
    struct group_call call;
    struct groups_asking *of;
    int32_t partition; /* -1: of none, `refusal` says why */
    enum kerr refusal;
    struct loop *owner;
    struct loop_msg msg, drop_msg;
    void (*answered)(struct groups_ask *a); /* on the owner */
    struct hosted *held;                    /* the shard has the call; the owner's */
    bool over, drop_sent;                   /* on the request's loop */
};

/* All that one request asks.  In its op, zeroed; arrays come from its arena. */
struct groups_asking {
    struct request *rq;
    struct groups *groups;
    struct groups_ask *asks;
    struct arena *arenas; /* where the answers go, by the loop that makes them; NULL: there is one, in the request's */
    size_t count, cap;
    size_t out; /* answers and messages that are not back yet: the request may not end before */
};

/* Groups that one request may ask about: the way to a shard takes memory, many times what a name takes of the request,
 * and these APIs have no place for an error of the whole.  True: too many, and the connection is to be closed; the log
 * says so.
 */
bool groups_too_many(const struct request *rq, int32_t count);
/* Room for so many calls. */
void groups_asking_begin(struct groups_asking *as, struct request *rq, size_t cap);
/* The next one, about this group.  `in` and `out` as struct group_call has them.  Returns it for what else is to be set
 * in the call, then groups_ask_send().  */
struct groups_ask *groups_ask(struct groups_asking *as, enum group_api api, struct str group_id, const void *in,
                              void *out);
void groups_ask_send(struct groups_ask *a);
/* WAIT until every answer is there, then DONE.  A cancelled request's joins and syncs are taken back from the shards
 * and refused with NOT_COORDINATOR, since they wait for others; the rest only waits for the disk. */
enum step groups_asking_wait(struct groups_asking *as);
/* For the API that is a single call: asks at the first entry, waits at the others.  `uncounted`: it may take long. */
enum step groups_ask_one(struct request *rq, enum group_api api, struct str group_id, bool uncounted);

/* ListGroups: one part for each loop, asked of all its shards. */
struct groups_listing {
    struct request *rq;
    struct groups_list_part *parts;
    size_t out;
};
/* WAIT until all have answered, then DONE; rq->out is the answer. */
enum step groups_list_all(struct request *rq);

#endif
