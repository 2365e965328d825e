/* world.h: the simulated world of a cluster: brokers, the network between them, their disks, the coordination store,
 * clients, and who disturbs them.  One thread; a seed decides everything.
 *
 * What has a loop is turned when its loop has something to do.  Brokers have each a loop of their own, everybody else
 * (clients, who disturbs, who looks) lives on the world's loop, whose timers are the world's calendar. */
#ifndef TESTS_SIM_CLUSTER_WORLD_H
#define TESTS_SIM_CLUSTER_WORLD_H

#include <inttypes.h>
#include <stdio.h>

#include "base/list.h"
#include "base/mem.h"
#include "broker/broker.h"
#include "coord/coord_internal.h"
#include "coord/memory.h"
#include "heap.h"
#include "os/fs_sim.h"
#include "os/net_sim.h"
#include "wire/apis.h"

enum {
    NODES_MAX = 5,
    CLIENTS_MAX = 11,
    TOPICS_MAX = 3,
    GROUPS_TOPIC = 0, /* what groups commit for */
    OFFSETS_TOPIC_INDEX = 2,
    OFFSETS_PARTITIONS = 2,
    PARTITIONS_MAX = 4, /* of a topic */
    GROUPS_MAX = 2,
    MEMBERS_MAX = 4, /* of all groups */
    MEMBER_ID_MAX = 64,
    HOSTS_MAX = NODES_MAX + CLIENTS_MAX,
    PORT = 9092
};
enum { STORE_US_MAX = 3000 }; /* what a call's way to the store takes, at most, unless it is slow */
#define T0_MS (INT64_C(1700000000) * 1000)
#define MS    INT64_C(1000)
#define S     INT64_C(1000000)

struct world;

/* ---- Brokers: machine.c */

enum machine_state {
    MACHINE_DOWN,
    MACHINE_UP,      /* its process runs: it starts, serves or stops */
    MACHINE_STOPPING /* it was told to stop */
};

/* A job of its workers, which runs some time. */
struct machine_job {
    struct job *job;
    int64_t at_us;
};

struct machine {
    struct world *w;
    int index; /* its host, too; the broker's id is index + 1 */
    enum machine_state state;
    struct clock clock;
    struct rng rng;
    int64_t mono_us_base, skew_ms;
    uint64_t random;
    struct fs_sim *disk;
    struct broker_run *run;
    struct fault fault;
    int lives;
    int64_t next_turn_us, paused_until_us; /* paused: it is not turned */
    struct machine_job *jobs;
    size_t job_count, job_cap;

    bool store_cut;       /* it does not reach the store */
    int64_t store_us_max; /* what a call's way to the store takes, at most */
    int64_t store_due_us; /* when the store has some of what it asks for; INT64_MAX: it asks for nothing */
    bool disk_fails;      /* calls on its disk fail; no more when it starts the next time */

    int32_t told_epochs[TOPICS_MAX][PARTITIONS_MAX]; /* that it has told clients in this life, */
    int32_t heard_controller, heard_epoch;           /*   and of the controller that it has obeyed; -1: of none */

    struct timer start; /* it is started again */
};

/* One of the store's sessions. */
struct session {
    int64_t id, heard_us; /* heard_us: when the store last heard of it */
    int node;
    bool over;
};

/* ---- Connections of clients: peer.c */

/* One request; zeroed, embedded in what it is about.  `done` runs once: `response` NULL when the connection broke or
 * the answer did not come in time, and then nobody knows whether the broker did as told. */
struct call {
    struct list_node link;
    struct peer *peer;
    enum api api;
    int16_t version;
    int32_t correlation_id;
    int64_t deadline_us;
    bool no_answer; /* acks=0 */
    void (*done)(struct call *c, const void *response);
};

/* A client's connection to a broker, opened when it is used. */
struct peer {
    struct world *w;
    int client, node;
    struct sock *sock;
    bool connected;
    uint8_t *out, *in;
    size_t out_size, out_cap, out_at, in_size, in_cap;
    struct list calls; /* in the order of their answers */
    int32_t correlation_id;
    struct timer timer;
    struct loop_msg broken_msg;
    bool broken;
};

/* ---- Clients */

/* What a client knows of where partitions are led. */
struct place {
    int node; /* -1: nobody knows */
    int32_t epoch;
};

struct map {
    struct place places[TOPICS_MAX][PARTITIONS_MAX];
    struct call call; /* Metadata, under way while `asking` */
    bool asking;
};

enum { BATCHES_MAX = 12, BATCH_RECORDS_MAX = 4 };

/* One batch of a producer, from its making to its acknowledgement. */
struct batch {
    struct call call;
    struct lane *lane;
    uint64_t first_id; /* its records have this id and those that follow */
    int32_t count, sequence;
    bool sent;
    int32_t leader_epoch; /* the latest that there had been when it was sent */
    size_t size;
    uint8_t *bytes;
};

/* Ids of batches that were numbered anew: they may be there twice, and those of them that were acknowledged in between
 * are not among those that follow. */
struct renewal {
    uint64_t first, end;
};

/* A producer's batches for one partition, oldest first; those before `next` are under way. */
struct lane {
    struct producer *producer;
    int topic, partition;
    struct batch *batches[BATCHES_MAX];
    int count, in_flight;
    bool known;    /* one of them is acknowledged */
    int16_t epoch; /* the producer's for this partition */
    bool renews;   /* it begins a new epoch as soon as nothing is under way */
    int32_t next_sequence;
    uint64_t next_id;
    struct renewal *renewals;
    size_t renewal_count, renewal_cap;
    bool waits; /* for new metadata, or a pause */
    struct timer again;
};

struct client {
    struct world *w;
    int index;
    struct peer peers[NODES_MAX];
    struct map map;
};

struct producer {
    struct client client;
    int16_t acks;
    bool idempotent;
    int64_t producer_id;
    int16_t producer_epoch;
    struct call init;
    struct timer make, again;
    int lane_count, in_flight_max;
    struct lane lanes[PARTITIONS_MAX];
    int64_t made, acked, left;
};

struct consumer {
    struct client client;
    int topic;
    struct timer poll;
    struct {
        int64_t position;
        struct call call;
        bool under_way;
    } parts[PARTITIONS_MAX];
};

/* What was so when a request of a member was made. */
struct asked {
    int node;
    int32_t generation;   /* the member's */
    int32_t lasting;      /* the group's latest that is not lost any more */
    int32_t leader_epoch; /* the latest of the group's partition of __consumer_offsets */
    bool open;            /* in that epoch the coordinator had read what the partition has */
    int64_t floor;        /* what was acknowledged as committed */
};

enum member_state { MEMBER_OUT, MEMBER_SYNCS, MEMBER_IN };

struct member;

/* A partition as a member has it; the call is an OffsetFetch or an OffsetCommit. */
struct ownership {
    struct call call;
    struct member *member;
    int partition;
    bool under_way;
    bool known; /* the member has read what is committed */
    int64_t value;
    struct asked asked;
    bool committed, read; /* since faults have ended, in this order */
};

struct member {
    struct client client;
    int group, coordinator; /* coordinator: -1: it does not know */
    enum member_state state;
    char id[MEMBER_ID_MAX];
    int32_t generation, before; /* before: the one that it was in before; -1: in none */
    bool leads;
    char others[MEMBERS_MAX][MEMBER_ID_MAX]; /* all members of the generation, known to who leads */
    int other_count;
    uint32_t owned; /* partitions, a bit each */
    bool busy;      /* `call` is under way */
    struct call call;
    struct asked asked;
    struct ownership parts[PARTITIONS_MAX];
    struct timer step, work, trouble;
    int64_t asleep_until_us;
};

/* ---- What must be: check.c, commits.c */

/* Offsets of a group for one partition. */
struct commit_model {
    int64_t sent, acked;      /* the latest; acked: what must be found at least */
    int32_t acked_generation; /* in which that was committed, */
    int acked_client;         /*   and by whom */
    struct {
        int64_t value;
        int32_t generation;
    } * doubts; /* sent in generations that may last, and not known to be refused */
    size_t doubt_count, doubt_cap;
};

struct group_model {
    const char *name;
    int partition;      /* of __consumer_offsets */
    int32_t lasting;    /* the latest generation in which a commit was acknowledged */
    int32_t open_epoch; /* the latest leader epoch of the partition in which something was read or committed */
    struct commit_model parts[PARTITIONS_MAX];
};

struct acked_batch {
    uint64_t first_id;
    int32_t count;
    int64_t base_offset; /* -1: it was said to be a duplicate, nobody said where */
};

struct model_part {
    uint64_t *seen; /* by offset: the id that a consumer saw there, 0 none */
    size_t seen_count, seen_cap;
    struct acked_batch *acked;
    size_t acked_count, acked_cap;
    struct {
        int32_t epoch;
        int node;
    } * leaders; /* who led in which epoch */
    size_t leader_count, leader_cap;
    int32_t state_version, state_epoch; /* in the store, when somebody last looked; -1: not there yet */
};

struct topic {
    const char *name;
    int partitions;
    bool is_offsets; /* __consumer_offsets: brokers make and write it */
    struct model_part parts[PARTITIONS_MAX];
};

/* ---- The world */

/* What happens when a leader asks for another in-sync set the next time. */
enum at_change { NOTHING_AT_CHANGE, KILL_AT_CHANGE, DEPOSE_AT_CHANGE };

/* Leaders of a partition that fall as soon as they lead. */
struct row {
    int topic, partition, left;
};

struct setup {
    int nodes, clients;
    int64_t faults_until_us;
    int64_t fault_every_us;
    unsigned weights[24]; /* of the faults, see faults.c */
    bool power;           /* logs are flushed before they count, and power goes off */
    bool slow_detection;  /* the dead are gone when their sessions are */
};

struct world_options {
    int nodes;    /* 0: the seed decides */
    bool verbose; /* tells the history, and what the brokers log */
    bool debug;   /* and all that they have to say */
    bool quiet;   /* nothing goes wrong */
    bool logs;    /* what the brokers log is part of the history's hash */
};

struct world_result {
    bool failed;
    uint64_t hash; /* of the history */
    int64_t acked, faults;
};

struct world {
    uint64_t seed, random, hash;
    bool failed, calm; /* calm: faults have ended */
    struct world_options opt;
    struct setup setup;
    struct clock clock;
    int64_t now_us;
    struct loop *loop;
    struct net_sim *net;
    struct coord_memory *store;
    struct buf_pool *bufs; /* of what clients write */
    struct machine nodes[NODES_MAX];
    struct session *sessions;
    size_t session_count, session_cap;
    struct timer session_timer;
    int32_t *controllers; /* by epoch; -1: nobody knows */
    size_t controller_count, controller_cap;
    int turning; /* whose code runs; -1 nobody's */
    int topic_count;
    struct topic topics[TOPICS_MAX];
    struct client admin;
    struct call admin_call;
    struct timer admin_timer;
    bool topics_made;
    int producer_count, consumer_count, group_count, member_count;
    struct producer producers[4];
    struct consumer consumers[4];
    struct group_model groups[GROUPS_MAX];
    struct member members[MEMBERS_MAX];
    struct timer fault_timer;
    struct list laters; /* faults.c */
    struct row row;
    enum at_change at_change;
    bool electing; /* `elect_call` is under way */
    struct call elect_call;
    int64_t acked, faults;
};

/* The one that runs. */
extern struct world *the_world;

struct world_result world_run(uint64_t seed, const struct world_options *opt);

uint64_t draw_from(uint64_t *random, uint64_t below);
static inline uint64_t draw(struct world *w, uint64_t below)
{
    return draw_from(&w->random, below);
}
static inline bool one_in(struct world *w, uint64_t n)
{
    return draw(w, n) == 0;
}
/* From `low` to `high`, both included. */
static inline int64_t draw_between(struct world *w, int64_t low, int64_t high)
{
    return low + (int64_t)draw(w, (uint64_t)(high - low + 1));
}

/* A line of the history: part of its hash, shown when that was asked for. */
void tell(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Something is not as promised: tells, and the run ends. */
void wrong(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Lets the world go on until `until_us`, or until something is wrong, or `enough`. */
void world_turn_until(struct world *w, int64_t until_us, bool (*enough)(struct world *w));
void world_timer(struct world *w, struct timer *t, int64_t in_us);

/* ---- machine.c */

void machine_init(struct world *w, int index);
void machine_start(struct machine *n);
/* Its process dies at once; with `power`, what its disk does not have is lost. */
void machine_kill(struct machine *n, bool power);
void machine_stop(struct machine *n);
void machine_pause(struct machine *n, int64_t for_us);
void machine_start_later(struct machine *n, int64_t in_us);
static inline bool machine_is_paused(const struct machine *n)
{
    return n->w->now_us < n->paused_until_us;
}
/* When it has something to do. */
int64_t machine_due_us(const struct machine *n);
void machine_turn(struct machine *n);
/* The same of what it has sent to the store. */
int64_t machine_store_due_us(const struct machine *n);
void machine_store_turn(struct machine *n);
void machine_cut_store(struct machine *n, bool cut);
/* From now on so many bytes can be written; INT64_MAX: as many as ever. */
void machine_limit_disk(struct machine *n, int64_t room);
/* From now on some calls on its disk fail. */
void machine_break_disk(struct machine *n);
void machine_expire(struct machine *n);
/* Sessions that were not heard of for too long expire. */
void sessions_start(struct world *w);
bool machine_serves(const struct machine *n);
/* As it believes. */
bool machine_is_controller(const struct machine *n);
/* What it knows of the cluster, and of a topic; NULL: nothing. */
const struct cluster_view *machine_cluster(const struct machine *n);
const struct topic_view *machine_topic(const struct machine *n, const char *topic);
/* Its replica, NULL: it has none now. */
struct partition *machine_partition(const struct machine *n, const char *topic, int partition);

/* ---- peer.c */

void client_init(struct world *w, struct client *c, int index);
void peer_send(struct peer *p, struct call *c, const void *request, int64_t timeout_us);
void peer_break(struct peer *p);
/* Asks some broker where the partitions are led; `known` is called when there is an answer. */
void map_ask(struct client *c);
int client_some_node(struct client *c);

/* ---- producer.c, consumer.c */

void producer_start(struct world *w, struct producer *p, int client, int topic, bool all);
bool producer_is_done(const struct producer *p);
void producer_map_came(struct producer *p);
void consumer_start(struct world *w, struct consumer *c, int client, int topic);

/* ---- member.c, commits.c */

void groups_start(struct world *w);
/* What is still missing now that all is mended; NULL: nothing. */
const char *members_lack(struct world *w);
/* A member's commit was acknowledged; or nobody knows. */
void check_committed(struct world *w, const struct ownership *o);
void check_in_doubt(struct world *w, const struct ownership *o);
/* The coordinator has told what is committed; -1: nothing. */
void check_read(struct world *w, const struct ownership *o, int64_t offset);

/* ---- faults.c, settle.c, check.c */

void faults_start(struct world *w);
/* All that is broken is mended. */
void faults_end(struct world *w);
/* Somebody leads in an epoch in which nobody did; a leader has asked for another in-sync set. */
void faults_new_leader(struct world *w, int topic, int partition, int node);
void faults_in_sync_changes(struct world *w, int leader, const struct in_sync *s);
void settle(struct world *w);
void check_acked(struct world *w, int topic, int partition, const struct acked_batch *b);
/* A consumer has been given this record. */
void check_seen(struct world *w, int topic, int partition, int64_t offset, uint64_t id, const char *who);
/* After a turn of the node: one leader an epoch. */
void check_leaders(struct machine *n);
/* The latest epoch that somebody led in, and who (-1: nobody has). */
int32_t last_leader(const struct world *w, int topic, int partition, int *node);
/* Of the store, after something was done there: who is deposed changes nothing. */
void check_store(struct world *w);
/* What consumers must have seen by now; the world is whole. */
void check_end(struct world *w);
/* The id of a record of ours. */
uint64_t record_id(struct bytes value);

#endif
