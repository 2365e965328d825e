/* world.h: one seed's world: consumer groups run by the production code of src/group, on one thread, with everything
 * around it simulated: a host that keeps its records in a log and moves, clients that join and die, a network that
 * delays and loses, people who meddle.
 *
 *   main.c     the program                               world.c    time, events, a run from its start to its end
 *   host.c     the shard's host: log, writes, moves      client.c   consumers as real ones are
 *   request.c  requests on their way                     disturb.c  what goes wrong, and who is hostile
 *   check.c    what is promised to members               check_offsets.c  what is promised of committed offsets
 *   settle.c   faults have ended: nothing may be stuck
 *
 * Everything follows from the seed: no time, no address, no thread has a say. */
#ifndef TESTS_SIM_GROUPS_WORLD_H
#define TESTS_SIM_GROUPS_WORLD_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "group/shard.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/heartbeat.h"
#include "wire/gen/join_group.h"
#include "wire/gen/leave_group.h"
#include "wire/gen/list_groups.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_delete.h"
#include "wire/gen/offset_fetch.h"
#include "wire/gen/sync_group.h"

enum {
    GROUPS_MAX = 2,
    CLIENTS_MAX = 7, /* in all groups */
    TOPICS = 2,
    TOPIC_PARTITIONS = 4,
    POSITIONS = TOPICS * TOPIC_PARTITIONS, /* partitions of all topics; a set of them is a uint32_t of bits */
    MEMBER_ID_MAX = 96,
    NAME_MAX_SIZE = 16,
};
#define POSITIONS_ALL (BIT(POSITIONS) - 1)

typedef struct offset_fetch_request_offset_fetch_request_group fetch_request;
typedef struct offset_fetch_response_offset_fetch_response_group fetch_response;
typedef struct describe_groups_response_described_group described_group;
typedef struct delete_groups_response_deletable_group_result deleted_group;

/* ---- Requests */

enum request_state {
    REQUEST_FREE,
    REQUEST_SENT,     /* on its way to the host */
    REQUEST_GIVEN,    /* in the shard's hands */
    REQUEST_ANSWERED, /* on its way back */
};

struct request {
    struct group_call call;
    struct arena arena;
    enum request_state state;
    bool refused;                                  /* by the host, which had no shard */
    bool at_once;                                  /* the answer came before group_shard_call() returned */
    bool hostile;                                  /* of nobody who behaves */
    bool kept;                                     /* who asked looks at the answer and frees it */
    uint64_t id;                                   /* of this use of the struct */
    int group;                                     /* its index, -1 none */
    int client;                                    /* whose, -1: nobody waits */
    uint32_t process, conn;                        /* of the client */
    int64_t given_ms, deadline_ms;                 /* to be answered by */
    struct member_view *member;                    /* that it speaks for, if that one is known */
    bool was_sure, was_gone, was_old, had_members; /* as the shard got it: its member, its generation, the group */
    uint32_t touched;                              /* as the shard got it: that of its member */
    uint32_t serial;                               /* GROUP_SYNC: of the assignment in it */
    uint64_t metadata_hash;                        /* GROUP_JOIN */
    /* Offsets: what is asked for or committed, and the place of each in the history of its partition. */
    uint32_t positions, surely; /* surely: of those to be removed there is one */
    int64_t places[POSITIONS];
    int64_t values[POSITIONS];
    union {
        struct join_group_request join;
        struct sync_group_request sync;
        struct heartbeat_request heartbeat;
        struct leave_group_request leave;
        struct offset_commit_request commit;
        struct offset_delete_request delete_offset;
        fetch_request fetch;
        struct str group_id;
        struct list_groups_request list;
    } in;
    union {
        struct join_group_response join;
        struct sync_group_response sync;
        struct heartbeat_response heartbeat;
        struct leave_group_response leave;
        struct offset_commit_response commit;
        struct offset_delete_response delete_offset;
        fetch_response fetch;
        described_group describe;
        struct list_groups_response list;
        deleted_group deleted;
    } out;
    struct request *next_free;
};

/* ---- Clients */

enum client_state {
    CLIENT_DOWN,
    CLIENT_UNJOINED, /* it will join when its timer says so */
    CLIENT_JOINING,
    CLIENT_SYNCING,
    CLIENT_STABLE,
};

enum client_timer { TIMER_ACT, TIMER_HEARTBEAT, TIMER_COMMIT, TIMER_REQUEST, TIMER_DISCONNECT, CLIENT_TIMERS };

struct client {
    int index, group;
    int instance; /* its instance id's number, -1: a dynamic member */
    enum client_state state;
    uint32_t process; /* counts its lives */
    uint32_t timer_marks[CLIENT_TIMERS];
    int64_t paused_until_ms;

    uint32_t conn;
    int64_t last_arrival_ms; /* what it sends on this connection arrives in order */
    int64_t last_answer_ms;
    uint64_t join, sync, heartbeat, commit, fetch, leave; /* ids of requests that it waits for, 0 none */

    int16_t join_version;
    bool two_protocols;
    int32_t session_ms, rebalance_ms, heartbeat_ms, commit_ms;
    uint32_t topics, joined_topics; /* bits: subscribed to; as it said when it joined */
    char id[MEMBER_ID_MAX];
    int32_t generation; /* -1: no member */
    uint32_t owned;     /* positions */
    int32_t owned_generation;
    uint32_t owned_serial;
    uint32_t committing; /* the last commit, to be sent again */
    int64_t committing_values[POSITIONS];
};

/* ---- What checkers know */

/* A member, by its id. */
struct member_view {
    char id[MEMBER_ID_MAX];
    uint64_t hash;
    int group, instance;
    bool meddled;                /* somebody else spoke in its name */
    uint32_t left_in, fenced_in; /* the shard's life in which it went; 0 no */
    int32_t generation;          /* whose assignment it has heard, if no later JoinGroup of its has been given; -1 */
    int64_t sure_until_ms;       /* nothing that is allowed can have removed it before */
    int32_t session_ms, rebalance_ms;
    int32_t asked;    /* the highest generation that had been told when its last JoinGroup was given; -1 */
    uint32_t touched; /* counts who removed it, or would have */
};

struct listed_member {
    uint64_t key, metadata_hash; /* by instance id, or member id */
    bool is_static;
};

struct generation_view {
    int32_t generation;
    uint32_t serial;   /* of the assignment that has been heard; 0 none */
    uint32_t life;     /* of the shard that told the rest */
    uint64_t leader;   /* a member id's hash */
    bool static_moves; /* a static member has come back meanwhile, perhaps as leader */
    struct listed_member listed[2 * CLIENTS_MAX + 8], joined[2 * CLIENTS_MAX + 8];
    int listed_count, joined_count;
    char protocol[NAME_MAX_SIZE];
};

/* A group between its making and its tombstone. */
struct group_view {
    int32_t heard;    /* the highest generation whose assignment somebody has heard */
    int32_t told;     /* the highest that JoinGroup told in this life of the shard; */
    int32_t previous; /*   before it */
    struct generation_view *generations;
    size_t count, cap;
    int64_t members_seen_ms; /* when somebody was surely a member */
};

/* What a leader, or who says so, has assigned. */
struct assignment_view {
    int group;
    int32_t generation;
    uint64_t sender;
    bool hostile;
    bool led; /* the sender led that generation when the shard got it */
    struct {
        uint64_t member;
        int instance;
        uint32_t positions;
    } parts[2 * CLIENTS_MAX + 8];
    int count;
};

enum attempt_kind { ATTEMPT_COMMIT, ATTEMPT_REMOVE };
enum attempt_state { ATTEMPT_POSSIBLE, ATTEMPT_SAFE, ATTEMPT_REFUSED };
/* Something that changes a partition's committed offset, or would. */
struct attempt {
    int64_t value; /* commits: unique */
    int64_t wall_ms;
    enum attempt_kind kind;
    enum attempt_state state;
};

/* The history of a group's partition, in the order in which the shard was given it.  The first is "nothing". */
struct history {
    struct attempt *attempts;
    size_t count, cap;
    size_t floor; /* what is older must never be read again */
};

/* ---- The host */

struct log_record {
    struct bytes key, value; /* one allocation */
    uint64_t key_hash;
    int64_t offset, timestamp_ms;
    uint32_t batch; /* it goes, or stays, with the others of it */
};

enum host_state { HOST_UP, HOST_DOWN, HOST_LOADING };

/* The outcome that awaits a write. */
struct host_write {
    struct group_write *w;
    size_t end; /* of the log, with its records */
    enum kerr kerr;
    int64_t due_ms;
};

struct host {
    enum host_state state;
    struct group_shard *shard;
    uint32_t life; /* counts shards, from 1 on */
    bool mute;     /* it dies: answers get lost */
    int64_t mono_base_ms;
    struct log_record *log;
    size_t log_count, log_cap;
    size_t safe; /* records that no move can lose */
    uint32_t batch;
    struct host_write *writes; /* a ring would do; few are there at a time */
    size_t write_count, write_cap;
};

/* ---- The world */

enum event_kind {
    EVENT_REQUEST, /* arrives */
    EVENT_ANSWER,
    EVENT_HANGUP, /* the host sees that a client's connection is closed */
    EVENT_WRITTEN,
    EVENT_CLIENT,
    EVENT_DISTURB,
    EVENT_HOST, /* its next state */
};

struct event {
    int64_t at_ms;
    uint64_t seq;
    enum event_kind kind;
    int client, timer;
    uint32_t mark, conn; /* mark: of a timer, a client's process or the shard's life */
    struct request *rq;
    uint64_t id;
};

struct config {
    int groups, clients;
    bool cooperative[GROUPS_MAX];
    struct group_options opt;
    int latency_ms, write_ms; /* usual ones */
    int slow_one_in;          /* of messages, that take much longer */
    int write_fails_one_in;
    int rebalance_max_ms; /* of clients that behave */
    int disturb_ms;       /* between one disturbance and the next */
    int weights[20];      /* of the disturbances, see disturb.c */
    bool hostile;
    int64_t faults_until_ms;
};

struct world {
    uint64_t seed, random;
    bool verbose, failed, calm; /* calm: faults have ended */
    struct config config;
    int64_t now_ms;
    uint64_t seq, next_id, events_run;
    struct event *events; /* a heap */
    size_t event_count, event_cap;
    struct host host;
    struct client clients[CLIENTS_MAX];
    struct request **requests;
    size_t request_count, request_cap;
    struct request *free_requests;
    struct request *giving; /* to the shard, in this very moment */

    struct member_view **members;
    size_t member_count, member_cap;
    struct group_view groups[GROUPS_MAX];
    struct assignment_view *assignments; /* by serial - 1 */
    size_t assignment_count, assignment_cap;
    struct history histories[GROUPS_MAX][POSITIONS];
    int64_t next_value;
    int64_t moves, rebalances;
};

#define T0_MS (INT64_C(1700000000) * 1000)
static inline int64_t wall_ms(const struct world *w)
{
    return T0_MS + w->now_ms;
}

uint64_t draw(struct world *w, uint64_t below);
static inline bool one_in(struct world *w, uint64_t n)
{
    return draw(w, n) == 0;
}
/* From `low` to `high`, both included. */
static inline int draw_between(struct world *w, int low, int high)
{
    return low + (int)draw(w, (uint64_t)(high - low + 1));
}

struct world_result {
    bool failed; /* told on standard error */
    int64_t moves, rebalances;
};
struct world_result world_run(uint64_t seed, bool verbose);

/* Tells what happens, when that was asked for. */
void tell(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define say(w, ...)                               \
    do {                                          \
        if ((w)->verbose) tell((w), __VA_ARGS__); \
    } while (0)
/* Something is not as promised: tells, and the run ends. */
void wrong(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

void world_event(struct world *w, struct event ev);
/* Runs what is due next, if that is before `until_ms`; false: nothing is, and it is `until_ms` now. */
bool world_turn(struct world *w, int64_t until_ms);
/* How long a message takes. */
int64_t world_latency(struct world *w);
uint64_t hash_of(const void *data, size_t size);
static inline uint64_t hash_str(struct str s)
{
    return hash_of(s.data, s.size);
}
struct str group_name(int group);
struct str topic_name(int topic);
struct str instance_name(int instance);
int instance_number(struct str name); /* -1 */

/* ---- request.c */

struct request *request_new(struct world *w, enum group_api api, int group);
void request_free(struct world *w, struct request *rq);
/* `values` by position; NULL: new ones. */
void request_fill_commit(struct world *w, struct request *rq, uint32_t positions, const int64_t *values);
void request_fill_delete(struct request *rq, uint32_t positions);
void request_fill_fetch(struct request *rq, uint32_t positions, bool all);
/* On its way to the host. */
void request_send(struct world *w, struct request *rq, int64_t arrives_ms);
/* At the host; and back from the shard. */
void request_arrive(struct world *w, struct request *rq);
void request_answered(struct world *w, struct request *rq);
/* Straight to the shard, whose answer must come at once; to be freed. */
void request_ask(struct world *w, struct request *rq);
enum kerr request_kerr(const struct request *rq);
const char *api_name(enum group_api api);

/* ---- host.c */

void host_start(struct world *w);
void host_written(struct world *w);
void host_next_state(struct world *w);
/* It gives the partition up, or dies. */
void host_move(struct world *w, bool dies);
/* The end: what is left goes. */
void host_stop(struct world *w);
/* The clock of this host. */
int64_t host_mono_ms(const struct world *w);
void host_tick(struct world *w);

/* ---- client.c */

void client_init(struct world *w, struct client *c, int index);
void client_start(struct world *w, struct client *c);
/* Gone without a word.  `silent`: nor does its connection close soon. */
void client_crash(struct world *w, struct client *c, bool silent);
void client_leave(struct world *w, struct client *c);
void client_disconnect(struct world *w, struct client *c);
void client_timer_fired(struct world *w, struct client *c, enum client_timer timer);
void client_answered(struct world *w, struct client *c, struct request *rq);
void client_set_timer(struct world *w, struct client *c, enum client_timer timer, int64_t in_ms);
/* A JoinGroup as this client sends it. */
void client_fill_join(struct world *w, struct client *c, struct request *rq);
/* It subscribes to others. */
void client_subscribe(struct world *w, struct client *c, uint32_t topics);
/* The members' bytes of an assignment, with its serial. */
struct bytes assignment_bytes(struct arena *a, uint32_t serial, uint32_t positions);
bool assignment_read(struct bytes b, uint32_t *serial, uint32_t *positions);

/* ---- disturb.c */

void disturb_init(struct world *w);
void disturb(struct world *w);
/* All groups are described, listed and their offsets fetched. */
void disturb_look(struct world *w);
/* Somebody removes static members by their names: all, or some. */
void disturb_static_members(struct world *w, int group, bool all);

/* ---- check.c */

struct member_view *member_view_find(struct world *w, int group, struct str id);
/* Before and after the shard is given a request; when it answers. */
void check_given(struct world *w, struct request *rq);
void check_answered(struct world *w, struct request *rq);
/* The shard has written the group's tombstone. */
void check_group_ended(struct world *w, int group);
/* A shard has been loaded, a new life begins. */
void check_new_life(struct world *w);
/* Every request has been answered in time. */
void check_deadlines(struct world *w);
/* Somebody is a member, whatever was allowed to happen. */
bool group_has_members_surely(struct world *w, int group);
uint32_t assignment_new(struct world *w, int group, int32_t generation, struct str sender);
void assignment_add(struct world *w, uint32_t serial, struct str member, int instance, uint32_t positions);

/* ---- check_offsets.c */

void offsets_init(struct world *w);
void offsets_given(struct world *w, struct request *rq);
void offsets_answered(struct world *w, struct request *rq);
/* The offsets of these positions may be removed from now on: the topic is gone, they have expired. */
void offsets_may_go(struct world *w, int group, uint32_t positions);
void offsets_may_expire(struct world *w);

/* ---- settle.c */

void settle(struct world *w);

#endif
