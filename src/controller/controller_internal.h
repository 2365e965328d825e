/* controller_internal.h: what the controller's files share.
 *
 * Events: one at a time changes the cluster.  An event is a list of stages; while calls to the store are out it waits
 * (`pending`), and the controller enters it again when the last one is answered.  Messages to brokers do not hold the
 * queue up: they are sent at an event's end, and whoever waits for their effect is told by a `struct sending`.
 *
 * Operations: what a client asked for.  An operation is an event with an arena, results and somebody to answer; it may
 * be answered (time is up) before it is over. */
#ifndef CONTROLLER_CONTROLLER_INTERNAL_H
#define CONTROLLER_CONTROLLER_INTERNAL_H

#include "base/hash.h"
#include "base/list.h"
#include "controller/assign.h"
#include "controller/controller.h"

/* --- state --- */

struct topic_names; /* topics whose unified names are equal */

/* Whether a replica that is not in sync may lead. */
enum unclean { UNCLEAN_UNKNOWN, UNCLEAN_NO, UNCLEAN_YES };

struct topic {
    UT_hash_handle by_name, by_id;
    struct list_node same_names;  /* in names->topics */
    struct list_node reassigning; /* in controller.reassigning */
    struct topic_names *names;
    struct uuid id;                          /* zero: none (made before topics had ids) */
    int32_t version;                         /* of its znode */
    bool watched;                            /* the store will tell when that changes */
    struct controller_partition *partitions; /* by number */
    int32_t partition_count;
    bool left_out; /* a state of its partitions is malformed: here it has none */
    bool deleting;
    bool deletion_queued;               /* an event that removes it from the store is in the queue */
    int32_t deletion_waits;             /* StopReplica answers still to come */
    bool deletion_refused;              /* by the answer that is being looked at */
    uint64_t deletion_sending;          /* to which sending; answers to earlier ones do not count */
    size_t contest_from, contest_count; /* in the elections that are being held, see elections.c */
    enum unclean unclean;               /* what its settings say of unclean elections */
    struct list deletion_waiters;       /* of struct op_topic */
    struct str name;
    char text[];
};

struct topic_names {
    UT_hash_handle hh;
    struct list topics;
    struct str unified;
    char text[];
};

struct broker {
    UT_hash_handle hh; /* by id */
    int32_t id;
    int64_t epoch;      /* czxid of its registration */
    int32_t version;    /* of its registration's node */
    bool seen;          /* in the listing that is being worked off */
    bool unreachable;   /* registered, but its process looks dead: controller_broker_unreachable() */
    bool placeless;     /* registered without an address at which it could be reached: as good as unreachable */
    bool restarted;     /* its registration is another than before, and the partitions have not been looked at since */
    bool shutting_down; /* has asked for a controlled shutdown: it is given no leaders any more */
    bool announced;     /* the channel knows it */
    struct arena arena; /* of `info` */
    struct znode_broker info;
};

/* --- events --- */

enum step { STEP_WAIT, STEP_DONE };

struct event {
    struct list_node link;
    /* Entered at first, and each time `pending` has come down to 0. */
    enum step (*run)(struct controller *c, struct event *ev);
    /* Instead of running it, or in its middle: the controller is out of office.  Frees or answers. */
    void (*drop)(struct controller *c, struct event *ev);
    bool any_state; /* runs out of office too */
    int stage;
    size_t pending;
    enum err err; /* the first failure of a call to the store */
};

struct controller {
    struct controller_options opt;
    _Atomic enum controller_state state; /* written by state_set() alone, read by any thread */
    int32_t epoch;                       /* of the controller's office */
    int32_t epoch_version;               /* of /controller_epoch: every write checks it */

    struct topic *topics; /* by name */
    struct topic *topics_by_id;
    struct topic_names *names;
    struct list reassigning; /* topics: no partition of any other one is being reassigned */
    struct broker *brokers;

    struct list queue; /* events not begun */
    size_t queued_ops;
    struct event *current;
    bool running;       /* inside controller_pump(): events must not be entered from within */
    bool deposed;       /* a write met another epoch, or /controller is not ours: leave office before the next event */
    bool office_queued; /* an event that runs for office is in the queue or current */
    bool no_session;    /* the store's session has expired: nobody runs until it is renewed */
    bool session_ended; /* with deposed: /controller went with the session */
    bool reassign_queued; /* an event that looks at reassignments is in the queue */
    bool others_queued;   /* an event that looks at what others have written is in the queue */
    bool listed;          /* /admin/reassign_partitions says more than is done */
    bool fenced;          /* in-sync sets have been freed of the dead since the office was taken */
    bool tables_wrong;    /* with deposed: see controller_reload() */
    int64_t back_us;      /* with deposed: how long others go before us; 0: they do not */
    int64_t purged_ms;    /* when old config notifications were last removed */
    size_t messages_out;
    uint64_t sendings; /* how many have been made */

    bool stopping;
    void (*stopped)(void *arg);
    void *stopped_arg;
    struct loop_msg stop_msg;
    struct timer retry; /* running for office again after the store failed */
    struct timer balance;
    struct timer deletion_retry;
    int64_t deletion_wait_us; /* how long it was last */
};

/* Appends the event and runs what can be run.  Owner. */
void controller_queue(struct controller *c, struct event *ev);
void controller_pump(struct controller *c);
/* For a call to the store that the event waits for; `done` ends with event_call_done(). */
struct coord_to event_to(struct controller *c, struct event *ev, coord_done_fn done, void *arg);
/* One of the event's calls was answered with `e`; enters the event when it was the last. */
void event_call_done(struct controller *c, struct event *ev, enum err e);
/* The store's content is of no use: tells the listener and leaves office. */
void controller_fail(struct controller *c, const struct fault *f);
/* Whether what is malformed is left out; then it has been said, and *f is no fault any more. */
bool controller_leaves_out(const struct controller *c, struct fault *f);
/* The office is lost: leaves it as soon as the current event returns, and runs for it again. */
void controller_depose(struct controller *c);
/* What a call to the store ended with says that the office is lost, or that nobody knows what is written. */
void controller_depose_if(struct controller *c, enum err e);
/* The store refused what the tables allowed: the same, after a while. */
void controller_reload(struct controller *c);

/* --- office.c: running for office, reading the cluster's state, leaving --- */

/* Queues an event that runs for it, and reads everything when it is won. */
void office_queue(struct controller *c);
/* The controller is deposed: between two events. */
void office_leave(struct controller *c);
void office_retry_fire(struct timer *t);

/* --- state.c --- */

struct topic *topic_find(const struct controller *c, struct str name);
struct topic *topic_find_id(const struct controller *c, struct uuid id);
struct topic *topic_add(struct controller *c, struct str name, struct uuid id);
void topic_remove(struct controller *c, struct topic *t);
/* Takes over what the topic's node says: a new topic, or partitions that a known one has not.  ERR_VERSION: it is
 * another topic than the known one of that name. */
MUST_USE enum err topic_load(struct controller *c, struct str name, const struct znode_topic *zt, int32_t version,
                             struct fault *f);
/* NULL, or another topic whose name differs from this one in '.' and '_' alone. */
struct topic *topic_find_colliding(const struct controller *c, struct str name, struct arena *a);
/* Room for `count` partitions; new ones are empty. */
void topic_resize(struct topic *t, int32_t count);
/* Lists are copied. */
void partition_set_replicas(struct controller_partition *p, const int32_t *replicas, int32_t count);
void partition_set_isr(struct controller_partition *p, const int32_t *isr, int32_t count);
/* Takes over what the state's node says, unless it cannot be: ERR_CORRUPT.  `scratch` is for decoding. */
MUST_USE enum err partition_load_state(struct controller_partition *p, const struct coord_result *r,
                                       struct arena *scratch, struct fault *f);
int32_t *ids_copy(const int32_t *ids, int32_t count);
/* What can be the ids of replicas: none is negative, named twice or one too many. */
bool ids_are_sound(const int32_t *ids, int32_t count);
bool ids_have(const int32_t *ids, int32_t count, int32_t id);
/* "1,2,3", with `between` for the comma. */
struct str ids_text(struct arena *a, const int32_t *ids, size_t count, const char *between);
/* The children of a node, by name. */
struct str *names_copy(struct arena *a, const struct coord_result *r, size_t *count);
struct broker *broker_find(const struct controller *c, int32_t id);
struct broker *broker_put(struct controller *c, int32_t id);
void broker_remove(struct controller *c, struct broker *b);
/* Registered, and its process is not known to be dead. */
bool broker_is_alive(const struct controller *c, int32_t id);
/* New replicas may be put there: alive, and not shutting down. */
bool broker_is_assignable(const struct controller *c, int32_t id);
/* The live brokers, sorted by id, in `a`. */
struct assign_broker *brokers_list(const struct controller *c, struct arena *a, size_t *count);
void state_clear(struct controller *c);

/* --- writes.c: pipelined multis --- */

struct writes {
    struct controller *c;
    struct event *ev;
    struct arena *a; /* lives until the event's last call is answered */
    void (*done)(void *arg, enum err e, size_t failed_step, const struct coord_result *r);
    void *arg;
    struct coord_op *ops;
    size_t count, cap, bytes;
};

enum {
    WRITE_BYTES_MAX = 512 * 1024, /* half of what ZooKeeper takes at once */
    WRITE_STEPS_MAX = 4000
};

/* `done` (may be NULL) hears of each multi: results[0] is the epoch check, the steps follow. */
void writes_init(struct writes *w, struct controller *c, struct event *ev, struct arena *a);
/* Adds a step and sends the multi off when it is full.  What the step points to must live until it is sent. */
void writes_add(struct writes *w, struct coord_op op);
void writes_flush(struct writes *w);
void writes_fini(struct writes *w);

/* Gives ids to topics that have none, made before topics had them: in the tables, and into the store. */
void topics_name(struct writes *w);

/* --- messages.c --- */

/* Messages of one event, and who waits for their answers. */
struct sending;

struct sending *sending_new(struct controller *c);
/* Partitions to be told: LeaderAndIsr to their replicas, UpdateMetadata to everyone. */
void sending_add_partition(struct sending *s, struct topic *t, int32_t partition, bool is_new);
/* UpdateMetadata to everyone that the topic is being deleted, StopReplica to its replicas.  How many brokers hold
 * replicas and are alive goes to topic->deletion_waits; false: some holder is away. */
bool sending_add_deletion(struct sending *s, struct topic *t);
/* UpdateMetadata to everyone, no LeaderAndIsr: the leader knows. */
void sending_add_metadata(struct sending *s, struct topic *t, int32_t partition);
/* StopReplica to one broker, which is to follow no more, or to delete its replica. */
void sending_add_stop(struct sending *s, struct topic *t, int32_t partition, int32_t broker_id, bool deletion);
/* Only the topics' partitions that `broker_id` holds, and everything in UpdateMetadata: a broker that came. */
void sending_only_to(struct sending *s, int32_t broker_id);
/* Every partition of every topic that is not being deleted. */
void sending_add_everything(struct sending *s);
/* Sends all, always with the live brokers.  `own_done` runs when the own broker has answered all that went to it (at
 * once when nothing did). */
void sending_send(struct sending *s, void (*own_done)(void *arg), void *own_arg);
/* Instead of sending. */
void sending_drop(struct sending *s);

/* --- brokers.c: who is alive --- */

/* Queues an event that makes the cluster whole: states for partitions that have none, leaders for those without a live
 * one.  `loaded`: the state was just read: everybody is told everything.  Else the registrations are read first. */
void brokers_queue(struct controller *c, bool loaded);
/* Queues an event that only makes the cluster whole: what is wanting has been learnt from elsewhere. */
void brokers_mend(struct controller *c, const char *reason);
/* Reads a registration into the table. */
MUST_USE enum err broker_load(struct controller *c, int32_t id, const struct coord_result *r, struct fault *f);
/* The broker id of a node below /brokers/ids; false: no number. */
bool broker_id_parse(struct str name, int32_t *id);
void brokers_watch_fired(void *arg, enum coord_event event, struct str path);
/* Where brokers reach it; NULL: it has no such listener. */
const struct znode_endpoint *broker_endpoint(const struct controller *c, const struct broker *b);
/* Lets the channel know a broker, or that it is gone. */
void broker_announce(struct controller *c, struct broker *b);
void broker_renounce(struct controller *c, struct broker *b);

/* --- elections.c: who leads --- */

/* A partition that has lost its leader. */
struct contest;

/* Elections of one event.  First every partition is looked at, then settings are read where they decide, then replicas
 * are asked where they end; each of the two may make the event wait. */
struct elections {
    struct controller *c;
    struct event *ev;
    struct arena *a; /* lives as long as the event */
    struct contest *contests;
    size_t count, cap;
};

void elections_init(struct elections *el, struct controller *c, struct event *ev, struct arena *a);
void elections_fini(struct elections *el);
/* Enters the partition if it has no leader that lives.
 * `unclean`: a replica that is not in sync may lead, whatever the settings say. */
void elections_add(struct elections *el, struct topic *t, int32_t partition, bool unclean);
void elections_read_settings(struct elections *el);
void elections_ask(struct elections *el);
/* The partition gets its new leader, in memory; false: there is none to be had, or it was not entered. */
bool elections_give(struct elections *el, struct topic *t, int32_t partition);

/* The first leader of a new partition, in memory: false when no replica is alive. */
bool partition_start(const struct controller *c, struct controller_partition *p);
/* May be given the lead: alive, and not about to go. */
bool replica_is_electable(const struct controller *c, const struct controller_partition *p, int32_t id);
/* The broker is another process than the one that was there when the partition's state was written: what the old one
 * had not synced may be lost.  Where there is no other replica nobody is ahead of it, and it makes no difference. */
bool replica_has_restarted(const struct controller *c, const struct controller_partition *p, int32_t id);
/* The first of `ids` that is in sync and electable; -1: none. */
int32_t replica_choose(const struct controller *c, const struct controller_partition *p, const int32_t *ids,
                       int32_t count);
/* Replicas are known to have gone or restarted: takes them out of the in-sync set, in memory, but for the last ones; a
 * leader that is gone for good or has restarted is deposed.  False: nothing to change. */
bool partition_fence(const struct controller *c, struct controller_partition *p);
/* Gives the lead, in memory.  The dead leave the in-sync set, and with a leader that has not restarted those that have;
 * a leader that was not in sync is alone in it. */
void partition_lead(const struct controller *c, struct controller_partition *p, int32_t leader);

/* --- changes.c: states of partitions on their way into the store, to the brokers and into the log --- */

struct change {
    struct topic *topic;
    int32_t partition;
    bool is_new;        /* it has had no state before */
    int32_t old_leader; /* for the log */
    const char *reason; /* likewise: "broker_gone" */
};

struct changes {
    struct controller *c;
    struct event *ev;
    struct arena *a; /* lives as long as the event */
    struct change *list;
    size_t count, cap;
    struct topic **topics; /* whose assignments are to be written too */
    size_t topic_count, topic_cap;
};

void changes_init(struct changes *cs, struct controller *c, struct event *ev, struct arena *a);
void changes_fini(struct changes *cs);
/* `ch` has been made in the tables.  One of each partition: a message that names one twice is refused. */
void changes_add(struct changes *cs, struct change ch);
/* The partition is among them. */
bool changes_have(const struct changes *cs, const struct topic *t, int32_t partition);
/* The topic's assignment has been changed in the tables. */
void changes_add_topic(struct changes *cs, struct topic *t);
/* Writes all, states before assignments.  What the store refuses makes the tables wrong: the event is dropped then. */
void changes_write(struct changes *cs);
/* Once they are written: into the log, and LeaderAndIsr for each. */
void changes_tell(struct changes *cs, struct sending *s);
/* Of in-sync sets that leaders have changed: into the log, and UpdateMetadata alone, since the leader knows.  One may
 * be what a reassignment has waited for. */
void changes_tell_in_sync_sets(struct changes *cs);
/* Into the log alone. */
void changes_log(const struct changes *cs);
struct bytes partition_encode(const struct controller_partition *p, struct arena *a);
struct bytes topic_encode(const struct topic *topic, struct arena *a);

/* --- requests.c: requests that come as they are on the wire --- */

struct wire_op;

/* One for each API: how its event runs, and how a code for the whole request is put into its answer. */
struct wire_api {
    enum step (*run)(struct wire_op *wo);
    void (*refuse)(void *out, enum kerr kerr);
};

struct wire_op {
    struct event ev;
    struct controller *c;
    const struct wire_api *api;
    struct controller_request rq;
    const void *in;
    void *out;
    int16_t version;
    struct loop_msg msg; /* to the controller's loop and back */
    struct arena arena;  /* the event's own */
    struct changes changes;
    struct elections elections;
    struct sending *sending; /* what is to be sent once all is written; NULL: nothing yet */
};

/* Sends the request to the controller's loop. */
void wire_op_post(struct controller *c, const struct wire_api *api, const void *in, int16_t version, void *out,
                  struct controller_request rq);
/* To be returned at the end of the event: answers. */
enum step wire_op_over(struct wire_op *wo);

/* --- reassign.c --- */

/* Queues an event that finishes the reassignments whose new replicas are in sync.  `resume`: the office was just taken,
 * replicas are told of theirs anew. */
void reassign_queue(struct controller *c, bool resume);
/* A partition of it is being reassigned. */
void reassign_note(struct controller *c, struct topic *t);
bool partition_is_reassigned(const struct controller_partition *p);

/* Begins what /admin/reassign_partitions asks for, in the tables; what is done, or cannot be, leaves the list. */
void reassign_listed(struct controller *c, struct znode_partition_list *l, struct changes *cs, struct sending *s);

/* --- elect.c: leaders where they should be --- */

/* Moves the lead to the preferred replica, in memory; false: it has it, or cannot have it. */
bool elect_preferred(struct changes *cs, struct topic *t, int32_t partition, const char *reason);

/* Looks from time to time whether leaders are where they should be.  When the office is taken; stopped when it is left.
 */
void balance_start(struct controller *c);
void balance_stop(struct controller *c);
void balance_fire(struct timer *t);

/* --- log_dirs.c: replicas in failed log directories --- */

/* The broker is there and, as far as it told, the directory with its replica too. */
bool replica_is_alive(const struct controller *c, const struct controller_partition *p, int32_t id);
/* The broker came anew: what was known of its directories is old. */
void replicas_online_again(struct controller *c, int32_t broker_id);
/* Learns from a LeaderAndIsr's answer which replicas are offline, and moves their leaders. */
void log_dirs_answered(struct controller *c, int32_t broker_id, const struct leader_and_isr_response *r);

/* --- notifications.c: what brokers tell by nodes of a sequence --- */

/* Those below one path that are there at a time. */
struct notifications {
    struct event ev;
    struct controller *c;
    const struct notification_kind *kind;
    struct arena arena; /* lives as long as the event */
    struct str *paths;
    size_t count;
    void *told; /* the kind's own: what they say */
    struct changes changes;
};

struct notification_kind {
    struct str path;
    /* Takes over what one node says.  It goes like the others when that is malformed, and `f` explains. */
    enum err (*read)(struct notifications *ns, const struct coord_result *r, struct fault *f);
    /* All are read: asks the store for more.  NULL: needs nothing. */
    void (*look)(struct notifications *ns);
    void (*act)(struct notifications *ns);
};

/* From now on looks at all kinds.  When the office is taken. */
void notifications_watch(struct controller *c);

extern const struct notification_kind isr_change_notifications; /* isr_changes.c */
extern const struct notification_kind log_dir_notifications;    /* log_dirs.c */

/* --- others.c: what others write into the store --- */

/* Queues an event that looks at it, and from then on watches it. */
void others_look(struct controller *c);
void topic_watch_fired(void *arg, enum coord_event event, struct str path);

/* --- ops.c: what clients asked for --- */

struct op;

struct op_topic {
    struct op *op;
    struct controller_result result;
    bool done;                /* the result stands */
    struct list_node waiting; /* in topic->deletion_waiters */
    struct topic *topic;      /* being made or grown, while the event runs; NULL else */
    union {
        struct controller_new_topic new_topic;
        struct controller_topic_ref ref;
        struct controller_more_partitions more;
        struct controller_config_change change;
    };
    int32_t *replicas; /* of the new partitions, replication_factor each */
    int32_t first_partition, partition_count;
    int16_t replication_factor;
    bool deferred;          /* deletion: a broker that holds replicas is away */
    int32_t config_version; /* of its settings' node; -1: not there */
    struct bytes config;    /* its settings' data */
    enum err err;           /* of its calls to the store, and */
    struct str text;        /*   the store's explanation */
    int multis_done;        /* how many of its multis succeeded before */
};

struct op {
    struct event ev;
    struct controller *c;
    struct arena arena;
    struct loop_msg arrive; /* to the controller's loop */
    struct controller_to to;
    struct timer deadline;
    bool has_timeout;
    int32_t timeout_ms;
    bool validate_only;
    bool answered;
    bool event_over;
    size_t open; /* topics whose result does not stand yet */
    struct op_topic *topics;
    size_t count;
    /* Producer ids: */
    int32_t broker_id;
    int64_t broker_epoch;
    struct bytes block;
    int32_t block_version; /* -1: there is no node */
    int64_t producer_id_start;
    int32_t producer_id_count;
};

/* `count` topics with results that say nothing yet. */
struct op *op_new(struct controller *c, size_t count, struct controller_to to);
/* Sends the operation to the controller's loop. */
void op_post(struct op *op, enum step (*run)(struct controller *c, struct event *ev));
struct op *op_of(struct event *ev);
/* The topic's result stands: answers the operation when it was the last one.  The operation may be gone afterwards,
 * unless its event still runs. */
void op_topic_finish(struct op_topic *t, enum kerr kerr, struct str message);
/* Keeps the operation alive over a loop that finishes its topics. */
void op_hold(struct op *op);
void op_release(struct op *op);
/* Finishes every topic that was told to the brokers and has no result yet. */
void op_told(void *arg);
/* To be returned at the end of the operation's event. */
enum step op_event_over(struct op *op);
/* A call to the store for one of its topics failed; `text` may be NULL. */
void op_topic_failed(struct op_topic *t, enum err e, const char *text);
/* The result of such a topic. */
void op_topic_finish_failed(struct op_topic *t);

/* --- delete.c --- */

/* Sends what is needed to delete topics that are marked: after a load, or when brokers came or went. */
void deletion_resume(struct controller *c);
/* Out of office: nobody is told any more when topics are gone. */
void deletion_abandon(struct controller *c);
/* Tries again what a broker could not delete. */
void deletion_retry_fire(struct timer *t);
/* One broker answered StopReplica. */
void deletion_stopped(struct controller *c, struct str topic, uint64_t sending, bool ok);

#endif
