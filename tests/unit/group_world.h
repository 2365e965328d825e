/* group_world.h: a host for one shard: it keeps the answers, holds the writes until the test says how they ended, owns
 * the time, and gives out member ids that are known. */
#ifndef TESTS_GROUP_WORLD_H
#define TESTS_GROUP_WORLD_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/log.h"
#include "group/group_internal.h"
#include "wire/gen/heartbeat.h"
#include "wire/gen/join_group.h"
#include "wire/gen/leave_group.h"
#include "wire/gen/sync_group.h"

enum { WORLD_WALL_MS = 1700000000 }; /* how far the wall's clock is ahead of the other */

/* A call with room for what it asks and is answered. */
struct world_call {
    struct group_call call;
    struct list_node node;
    struct arena arena;
    int answers; /* how often it has been answered: once, or never */
    bool dropped;
    struct join_group_request join_in;
    struct join_group_response join_out;
    struct sync_group_request sync_in;
    struct sync_group_response sync_out;
    struct heartbeat_request heartbeat_in;
    struct heartbeat_response heartbeat_out;
    struct leave_group_request leave_in;
    struct leave_group_response leave_out;
};

struct group_world {
    struct group_shard *sh;
    struct group_options opt;
    int64_t now_ms;
    uint64_t ids;       /* given out */
    struct list calls;  /* all that there were */
    struct list writes; /* on their way, oldest first */
    size_t write_count; /* of all that there were */
    void (*on_answer)(struct group_world *w, struct world_call *c);
    void *arg; /* the test's */
};

static const struct group_options world_options = {
    .session_timeout_min_ms = 6000,
    .session_timeout_max_ms = 1800000,
    .size_max = INT32_MAX,
    .initial_delay_ms = 3000,
    .metadata_bytes_max = 4096,
    .offsets_retention_ms = INT64_C(7) * 24 * 3600 * 1000,
};

static inline void world_answer(void *arg, struct group_call *call)
{
    struct group_world *w = arg;
    struct world_call *c = CONTAINER_OF(call, struct world_call, call);
    c->answers++;
    assert_int_equal(c->answers, 1);
    assert_false(c->dropped);
    if (w->on_answer) w->on_answer(w, c);
}

static inline void world_write(void *arg, struct group_write *gw)
{
    struct group_world *w = arg;
    assert_true(gw->count > 0);
    list_push_back(&w->writes, &gw->node);
    w->write_count++;
}

static inline struct uuid world_member_id(void *arg)
{
    struct group_world *w = arg;
    struct uuid id = UUID_ZERO;
    uint64_t n = ++w->ids;
    for (int i = 0; i < 8; i++) id.bytes[15 - i] = (uint8_t)(n >> (8 * i));
    return id;
}

static inline int64_t world_wall_ms(const struct group_world *w)
{
    return WORLD_WALL_MS + w->now_ms;
}

/* A shard that has nothing to replay yet; world_load() lets it begin. */
static inline void world_new(struct group_world *w, const struct group_options *opt)
{
    *w = (struct group_world){.opt = *opt, .now_ms = 1000};
    log_init(NULL, NULL, LOG_LEVEL_ERROR);
    list_init(&w->calls);
    list_init(&w->writes);
    struct group_shard_env env = {.arg = w, .answer = world_answer, .write = world_write, .member_id = world_member_id};
    w->sh = group_shard_new(7, &env, &w->opt);
}

static inline void world_load(struct group_world *w)
{
    group_shard_loaded(w->sh, w->now_ms, world_wall_ms(w));
}

static inline void world_start(struct group_world *w, const struct group_options *opt)
{
    world_new(w, opt);
    world_load(w);
}

/* Tells the outcome of the oldest write. */
static inline void world_written(struct group_world *w, enum kerr kerr)
{
    struct list_node *n = list_pop_front(&w->writes);
    assert_non_null(n);
    group_shard_written(w->sh, CONTAINER_OF(n, struct group_write, node), kerr);
}

static inline void world_write_all(struct group_world *w)
{
    while (!list_is_empty(&w->writes)) world_written(w, KERR_NONE);
}

/* Ends: nothing may be left without its answer. */
static inline void world_stop(struct group_world *w)
{
    group_shard_close(w->sh, KERR_NOT_COORDINATOR);
    world_write_all(w);
    group_shard_free(w->sh);
    LIST_EACH (&w->calls, node) {
        struct world_call *c = CONTAINER_OF(node, struct world_call, node);
        assert_true(c->dropped || c->answers == 1);
        list_remove(node);
        arena_fini(&c->arena);
        mem_free(c);
    }
}

/* Lets time pass, and ticks exactly when something is due. */
static inline void world_advance(struct group_world *w, int64_t ms)
{
    int64_t end_ms = w->now_ms + ms;
    for (;;) {
        int64_t due_ms = group_shard_due_ms(w->sh);
        w->now_ms = due_ms < end_ms ? MAX(due_ms, w->now_ms) : end_ms;
        group_shard_tick(w->sh, w->now_ms, world_wall_ms(w));
        if (w->now_ms >= end_ms) return;
    }
}

/* ---- Calls */

static inline struct world_call *world_call_new(struct group_world *w, enum group_api api, int16_t version)
{
    struct world_call *c = mem_zalloc(1, sizeof *c);
    arena_init(&c->arena, SIZE_MAX);
    c->call = (struct group_call){.api = api,
                                  .version = version,
                                  .client_id = STR("client"),
                                  .client_host = STR("/127.0.0.1"),
                                  .arena = &c->arena};
    list_push_back(&w->calls, &c->node);
    return c;
}

static inline void world_call(struct group_world *w, struct world_call *c, const void *in, void *out)
{
    c->call.in = in;
    c->call.out = out;
    group_shard_call(w->sh, &c->call);
}

/* The connection goes. */
static inline void world_drop(struct group_world *w, struct world_call *c)
{
    if (c->answers == 0) c->dropped = true;
    group_shard_drop(w->sh, &c->call);
}

static inline struct str world_str(struct world_call *c, const char *s)
{
    return arena_str(&c->arena, str_of(s));
}

/* What is not named: group "g", version 9, no member id, a session of 10 s, a rebalance timeout of 60 s, "consumer",
 * protocols "range=r". */
struct world_join {
    const char *group, *member, *instance, *type, *protocols, *reason, *client_id;
    int32_t session_ms, rebalance_ms;
    int16_t version;
    bool version_0;
};

/* "range=abc,sticky=x" */
static inline void world_set_protocols(struct world_call *c, const char *text)
{
    size_t count = text[0] != '\0';
    for (const char *p = text; *p; p++) count += *p == ',';
    c->join_in.protocols = arena_array(&c->arena, struct join_group_request_join_group_request_protocol, count);
    c->join_in.protocols_count = (int32_t)count;
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        size_t name = strcspn(at, "=,");
        c->join_in.protocols[i].name = arena_str(&c->arena, (struct str){at, name});
        at += name + (at[name] == '=');
        size_t size = strcspn(at, ",");
        struct str copy = arena_str(&c->arena, (struct str){at, size});
        c->join_in.protocols[i].metadata = (struct bytes){(const uint8_t *)copy.data, copy.size};
        at += size + (at[size] == ',');
    }
}

static inline struct world_call *world_join(struct group_world *w, struct world_join j)
{
    struct world_call *c = world_call_new(w, GROUP_JOIN, j.version_0 ? 0 : j.version ? j.version : 9);
    if (j.client_id) c->call.client_id = world_str(c, j.client_id);
    c->join_out = join_group_response_default;
    c->join_in = (struct join_group_request){
        .group_id = world_str(c, j.group ? j.group : "g"),
        .session_timeout_ms = j.session_ms ? j.session_ms : 10000,
        .rebalance_timeout_ms = j.rebalance_ms ? j.rebalance_ms : 60000,
        .member_id = world_str(c, j.member ? j.member : ""),
        .group_instance_id = world_str(c, j.instance),
        .protocol_type = world_str(c, j.type ? j.type : "consumer"),
        .reason = world_str(c, j.reason),
    };
    world_set_protocols(c, j.protocols ? j.protocols : "range=r");
    world_call(w, c, &c->join_in, &c->join_out);
    return c;
}

struct world_sync {
    const char *group, *member, *instance, *type, *protocol;
    const char *assignments; /* "member=a,member=b" */
    int32_t generation;
    int16_t version; /* 5, unless named; below, type and protocol are not told */
};

static inline struct world_call *world_sync(struct group_world *w, struct world_sync s)
{
    int16_t version = s.version ? s.version : 5;
    struct world_call *c = world_call_new(w, GROUP_SYNC, version);
    c->sync_out = sync_group_response_default;
    c->sync_in = (struct sync_group_request){
        .group_id = world_str(c, s.group ? s.group : "g"),
        .generation_id = s.generation,
        .member_id = world_str(c, s.member ? s.member : ""),
        .group_instance_id = world_str(c, s.instance),
        .protocol_type = version >= 5 ? world_str(c, s.type ? s.type : "consumer") : STR_NULL,
        .protocol_name = version >= 5 ? world_str(c, s.protocol ? s.protocol : "range") : STR_NULL,
    };
    /* The same form as a JoinGroup's protocols. */
    world_set_protocols(c, s.assignments ? s.assignments : "");
    size_t count = (size_t)c->join_in.protocols_count;
    c->sync_in.assignments = arena_array(&c->arena, struct sync_group_request_sync_group_request_assignment, count);
    c->sync_in.assignments_count = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        c->sync_in.assignments[i].member_id = c->join_in.protocols[i].name;
        c->sync_in.assignments[i].assignment = c->join_in.protocols[i].metadata;
    }
    world_call(w, c, &c->sync_in, &c->sync_out);
    return c;
}

struct world_heartbeat {
    const char *group, *member, *instance;
    int32_t generation;
};

static inline struct world_call *world_heartbeat(struct group_world *w, struct world_heartbeat h)
{
    struct world_call *c = world_call_new(w, GROUP_HEARTBEAT, 4);
    c->heartbeat_out = heartbeat_response_default;
    c->heartbeat_in = (struct heartbeat_request){.group_id = world_str(c, h.group ? h.group : "g"),
                                                 .generation_id = h.generation,
                                                 .member_id = world_str(c, h.member ? h.member : ""),
                                                 .group_instance_id = world_str(c, h.instance)};
    world_call(w, c, &c->heartbeat_in, &c->heartbeat_out);
    return c;
}

struct world_leaver {
    const char *member, *instance, *reason;
};

/* Up to four that leave together; the first without an id of either kind ends the list. */
struct world_leave {
    const char *group;
    int16_t version; /* 5, unless named */
    struct world_leaver who[4];
};

static inline struct world_call *world_leave(struct group_world *w, struct world_leave l)
{
    struct world_call *c = world_call_new(w, GROUP_LEAVE, l.version ? l.version : 5);
    c->leave_out = leave_group_response_default;
    c->leave_in = (struct leave_group_request){.group_id = world_str(c, l.group ? l.group : "g")};
    c->leave_in.members = arena_array(&c->arena, struct leave_group_request_member_identity, ARRAY_COUNT(l.who));
    for (size_t i = 0; i < ARRAY_COUNT(l.who) && (l.who[i].member || l.who[i].instance); i++) {
        c->leave_in.members[i].member_id = world_str(c, l.who[i].member ? l.who[i].member : "");
        c->leave_in.members[i].group_instance_id = world_str(c, l.who[i].instance);
        c->leave_in.members[i].reason = world_str(c, l.who[i].reason);
        c->leave_in.members_count++;
    }
    world_call(w, c, &c->leave_in, &c->leave_out);
    return c;
}

/* ---- What tests say of answers */

static inline const char *world_error(const struct world_call *c)
{
    if (c->answers == 0) return "waits";
    switch (c->call.api) {
    case GROUP_JOIN: return kerr_name(c->join_out.error_code);
    case GROUP_SYNC: return kerr_name(c->sync_out.error_code);
    case GROUP_HEARTBEAT: return kerr_name(c->heartbeat_out.error_code);
    case GROUP_LEAVE: return kerr_name(c->leave_out.error_code);
    default: return "?";
    }
}

/* "NONE", an error's name, or "waits". */
#define assert_error(c, name) assert_string_equal(world_error(c), (name))

static inline const char *world_member(const struct world_call *joined)
{
    return joined->join_out.member_id.data;
}

/* A new member, through MEMBER_ID_REQUIRED if that is asked of it; it waits, if the group lets it in. */
static inline struct world_call *world_join_new(struct group_world *w, struct world_join j)
{
    struct world_call *c = world_join(w, j);
    if (c->answers == 0 || c->join_out.error_code != KERR_MEMBER_ID_REQUIRED) return c;
    j.member = world_member(c);
    return world_join(w, j);
}

/* All of these have been answered their JoinGroup: each syncs, and the leader gives "a0" to the first, and so on. */
static inline void world_sync_all(struct group_world *w, struct world_call *const *joined, int count)
{
    char assignments[1024] = "";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(assignments);
        snprintf(assignments + used, sizeof assignments - used, "%s%s=a%d", i ? "," : "", world_member(joined[i]), i);
    }
    for (int i = 0; i < count; i++) {
        const struct join_group_response *out = &joined[i]->join_out;
        assert_error(joined[i], "NONE");
        world_sync(w, (struct world_sync){.group = joined[i]->join_in.group_id.data,
                                          .member = out->member_id.data,
                                          .type = out->protocol_type.data,
                                          .protocol = out->protocol_name.data,
                                          .generation = out->generation_id,
                                          .assignments = out->members_count > 0 ? assignments : NULL});
    }
}

/* A stable group of so many like this; the first leads.  Their ids, which the world keeps. */
static inline void world_make_stable(struct group_world *w, struct world_join j, int count, const char **ids)
{
    struct world_call *joined[16];
    for (int i = 0; i < count; i++) joined[i] = world_join_new(w, j);
    world_advance(w, count > 1 ? 2 * w->opt.initial_delay_ms : w->opt.initial_delay_ms);
    world_sync_all(w, joined, count);
    world_written(w, KERR_NONE);
    for (int i = 0; i < count; i++) ids[i] = world_member(joined[i]);
}

static inline struct group *world_group(struct group_world *w)
{
    struct group *grp = group_find(w->sh, STR("g"));
    assert_non_null(grp);
    return grp;
}

static inline enum group_state world_state(const struct group_world *w, const char *group)
{
    const struct group *grp = group_find(w->sh, str_of(group));
    return grp ? grp->state : GROUP_DEAD;
}

#endif
