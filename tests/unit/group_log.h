/* group_log.h: a group shard with the log that its records go to.
 * What the shard writes waits until log_safe() or log_fail(); log_reload() makes a new shard of what is safe.  For the
 * tests of offsets, records, expiry and administration; tests of members have group_world.h. */
#ifndef TESTS_GROUP_LOG_H
#define TESTS_GROUP_LOG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group_internal.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/group_metadata_key.h"
#include "wire/gen/join_group.h"
#include "wire/gen/list_groups.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_delete.h"
#include "wire/gen/offset_fetch.h"
#include "wire/gen/sync_group.h"

enum { MINUTE_MS = 60 * 1000, START_MS = 10 * 1000 * 1000, RETENTION_MS = 1000 * 1000, METADATA_MAX = 8 };

enum entry_kind { ENTRY_RECORD, ENTRY_COMMIT, ENTRY_ABORT };

struct entry {
    enum entry_kind kind;
    int64_t producer_id; /* -1: no transaction's */
    struct bytes key, value;
};

struct world {
    struct group_shard *sh;
    struct group_options opt;
    int64_t mono_ms, wall_ms;
    struct group_write *pending[4096]; /* in their order */
    size_t pending_count;
    struct entry *log; /* its place in here is an entry's offset */
    size_t log_count, log_cap;
    struct arena arena;
    struct buf_pool *bufs;
    uint64_t ids;
};

/* A request, on its way or answered. */
struct asked {
    struct group_call call;
    bool answered;
    union {
        struct offset_commit_request commit;
        struct offset_delete_request delete_offset;
        struct offset_fetch_request_offset_fetch_request_group fetch;
        struct list_groups_request list;
        struct join_group_request join;
        struct sync_group_request sync;
        struct str id;
    } in;
    union {
        struct offset_commit_response commit;
        struct offset_delete_response delete_offset;
        struct offset_fetch_response_offset_fetch_response_group fetch;
        struct list_groups_response list;
        struct join_group_response join;
        struct sync_group_response sync;
        struct describe_groups_response_described_group describe;
        struct delete_groups_response_deletable_group_result delete;
    } out;
};

/* ---- What the shard calls */

static inline void on_answer(void *arg, struct group_call *call)
{
    (void)arg;
    struct asked *a = CONTAINER_OF(call, struct asked, call);
    assert_false(a->answered);
    a->answered = true;
}

static inline void on_write(void *arg, struct group_write *gw)
{
    struct world *w = arg;
    assert_true(w->pending_count < ARRAY_COUNT(w->pending));
    w->pending[w->pending_count++] = gw;
}

static inline struct uuid on_member_id(void *arg)
{
    struct world *w = arg;
    struct uuid id = UUID_ZERO;
    w->ids++;
    memcpy(id.bytes, &w->ids, sizeof w->ids);
    return id;
}

/* ---- The log */

static inline struct bytes world_copy(struct world *w, struct bytes b)
{
    if (!b.data) return b;
    uint8_t *to = arena_alloc(&w->arena, b.size + 1);
    memcpy(to, b.data, b.size);
    return (struct bytes){to, b.size};
}

static inline void log_append(struct world *w, struct entry e)
{
    e.key = world_copy(w, e.key);
    e.value = world_copy(w, e.value);
    w->log = mem_grow(w->log, &w->log_cap, w->log_count + 1, sizeof *w->log);
    w->log[w->log_count++] = e;
}

static inline struct group_write *log_take(struct world *w)
{
    assert_true(w->pending_count > 0);
    struct group_write *gw = w->pending[0];
    memmove(w->pending, w->pending + 1, --w->pending_count * sizeof gw);
    return gw;
}

/* The oldest write's outcome. */
static inline void log_safe_one(struct world *w)
{
    struct group_write *gw = log_take(w);
    for (size_t i = 0; i < gw->count; i++)
        log_append(w, (struct entry){ENTRY_RECORD, -1, gw->records[i].key, gw->records[i].value});
    group_shard_written(w->sh, gw, KERR_NONE);
}

static inline void log_fail_one(struct world *w, enum kerr kerr)
{
    group_shard_written(w->sh, log_take(w), kerr);
}

static inline void log_safe(struct world *w)
{
    while (w->pending_count > 0) log_safe_one(w);
}

static inline bool same_bytes(struct bytes a, struct bytes b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* A record that compaction may remove: a later one has its key. */
static inline bool log_is_superseded(const struct world *w, size_t at)
{
    for (size_t i = at + 1; i < w->log_count; i++)
        if (w->log[i].kind == ENTRY_RECORD && same_bytes(w->log[i].key, w->log[at].key)) return true;
    return false;
}

static inline void log_replay(struct world *w, bool compacted)
{
    for (size_t i = 0; i < w->log_count; i++) {
        const struct entry *e = &w->log[i];
        if (e->kind != ENTRY_RECORD) {
            group_shard_replay_marker(w->sh, e->producer_id, e->kind == ENTRY_COMMIT);
            continue;
        }
        if (compacted && log_is_superseded(w, i)) continue;
        struct group_replay at = {(int64_t)i, w->wall_ms, e->producer_id, e->producer_id >= 0};
        assert_int_equal(group_shard_replay(w->sh, &at, e->key, e->value), OK);
    }
}

static inline void shard_make(struct world *w)
{
    struct group_shard_env env = {w, on_answer, on_write, on_member_id};
    w->sh = group_shard_new(0, &env, &w->opt);
}

static inline void shard_end(struct world *w)
{
    group_shard_close(w->sh, KERR_NOT_COORDINATOR);
    while (w->pending_count > 0) log_fail_one(w, KERR_NOT_LEADER_OR_FOLLOWER);
    group_shard_free(w->sh);
}

static inline void log_reload_as(struct world *w, bool compacted)
{
    shard_end(w);
    shard_make(w);
    log_replay(w, compacted);
    group_shard_loaded(w->sh, w->mono_ms, w->wall_ms);
}

/* Another coordinator of the same log. */
static inline void log_reload(struct world *w)
{
    log_reload_as(w, false);
}

static inline void world_start(struct world *w)
{
    *w = (struct world){.mono_ms = 1, .wall_ms = START_MS};
    w->opt = (struct group_options){.session_timeout_min_ms = 10,
                                    .session_timeout_max_ms = 30 * MINUTE_MS,
                                    .size_max = INT32_MAX,
                                    .metadata_bytes_max = METADATA_MAX,
                                    .offsets_retention_ms = RETENTION_MS};
    arena_init(&w->arena, SIZE_MAX);
    w->bufs = buf_pool_new(0);
    shard_make(w);
    group_shard_loaded(w->sh, w->mono_ms, w->wall_ms);
}

static inline void world_stop(struct world *w)
{
    shard_end(w);
    mem_free(w->log);
    arena_fini(&w->arena);
    buf_pool_free(w->bufs);
}

/* Time goes by; members say nothing. */
static inline void world_wait(struct world *w, int64_t ms)
{
    w->mono_ms += ms;
    w->wall_ms += ms;
    group_shard_tick(w->sh, w->mono_ms, w->wall_ms);
}

/* Time goes by for the offsets alone: nobody's session ends. */
static inline void world_age(struct world *w, int64_t ms)
{
    w->wall_ms += ms;
    group_shard_tick(w->sh, w->mono_ms, w->wall_ms);
}

/* ---- Groups that the log begins with */

struct member {
    const char *id, *instance_id, *client_id;
    struct bytes subscription, assignment;
};
#define MEMBERS(...) ((const struct member[]){__VA_ARGS__, {.id = NULL}})

static inline struct bytes bytes_of(const char *s)
{
    return (struct bytes){(const uint8_t *)s, strlen(s)};
}

/* A consumer's subscription, version `version` and no more behind the topics than that has. */
static inline struct bytes subscription(struct world *w, int16_t version, const char *topic)
{
    struct writer out;
    writer_init(&out, w->bufs);
    writer_i16(&out, version);
    writer_i32(&out, 1);
    writer_i16(&out, (int16_t)strlen(topic));
    writer_bytes(&out, topic, strlen(topic));
    writer_i32(&out, -1);
    if (version >= 1) writer_i32(&out, 0);
    if (version >= 2) writer_i32(&out, -1);
    if (version >= 3) writer_i16(&out, -1);
    struct bytes b = world_copy(w, (struct bytes){out.buf->data, out.size});
    writer_fini(&out);
    return b;
}

struct group_spec {
    const char *id, *type, *protocol;
    int32_t generation;
    int64_t since_ms;
    const struct member *members; /* NULL: none; the first leads */
};

static inline struct bytes encoded(struct world *w, const struct wire_schema *schema, const void *m, int16_t version)
{
    struct writer out;
    writer_init(&out, w->bufs);
    assert_int_equal(wire_encode_prefixed(schema, m, version, &out), OK);
    struct bytes b = world_copy(w, (struct bytes){out.buf->data, out.size});
    writer_fini(&out);
    return b;
}

/* Its record is in the log and has been read. */
static inline void log_has_group_as(struct world *w, const struct group_spec *spec, int16_t version)
{
    struct group_metadata_value_member_metadata members[16];
    struct group_metadata_value v = group_metadata_value_default;
    v.protocol_type = str_of(spec->type);
    v.protocol = str_of(spec->protocol);
    v.leader = STR_NULL;
    v.generation = spec->generation;
    v.current_state_timestamp = spec->since_ms;
    v.members = members;
    for (const struct member *m = spec->members; m && m->id; m++) {
        members[v.members_count++] = (struct group_metadata_value_member_metadata){
            .member_id = str_of(m->id),
            .group_instance_id = str_of(m->instance_id),
            .client_id = str_of(m->client_id ? m->client_id : "client"),
            .client_host = STR("/127.0.0.1"),
            .rebalance_timeout = MINUTE_MS,
            .session_timeout = MINUTE_MS,
            .subscription = m->subscription.data ? m->subscription : bytes_of(""),
            .assignment = m->assignment.data ? m->assignment : bytes_of(""),
        };
        if (str_is_null(v.leader)) v.leader = str_of(m->id);
    }
    struct group_metadata_key k = {str_of(spec->id)};
    log_append(w, (struct entry){ENTRY_RECORD, -1, encoded(w, &group_metadata_key_schema, &k, 0),
                                 encoded(w, &group_metadata_value_schema, &v, version)});
    log_reload(w);
}

static inline void log_has_group(struct world *w, const struct group_spec *spec)
{
    log_has_group_as(w, spec, 3);
}

/* ---- Requests */

static inline struct asked *ask_begin(struct world *w, enum group_api api)
{
    struct asked *a = arena_alloc(&w->arena, sizeof *a);
    a->call = (struct group_call){.api = api,
                                  .client_id = STR("client"),
                                  .client_host = STR("/127.0.0.1"),
                                  .in = &a->in,
                                  .out = &a->out,
                                  .arena = &w->arena};
    return a;
}

static inline struct asked *ask(struct world *w, struct asked *a)
{
    group_shard_call(w->sh, &a->call);
    return a;
}

/* What a test says nothing of is 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* A partition of a commit; `preset` is an error that the broker knows of already. */
struct part {
    const char *topic;
    int32_t partition;
    int64_t offset;
    const char *metadata;
    int32_t epoch;
    int64_t commit_ms; /* 0: none is given */
    enum kerr preset;
};
#define PARTS(...) ((const struct part[]){__VA_ARGS__, {.topic = NULL}})

struct commit_spec {
    const char *group;
    int32_t generation;
    const char *member, *instance;
    int64_t retention_ms; /* 0: none is given */
    const struct part *parts;
};

/* Parts of one topic that follow each other are one topic of the request. */
static inline void commit_fill(struct world *w, struct asked *a, const struct commit_spec *spec)
{
    size_t count = 0;
    while (spec->parts[count].topic) count++;
    struct offset_commit_request *in = &a->in.commit;
    struct offset_commit_response *out = &a->out.commit;
    *in = offset_commit_request_default;
    *out = offset_commit_response_default;
    in->topics = arena_array(&w->arena, struct offset_commit_request_offset_commit_request_topic, count);
    out->topics = arena_array(&w->arena, struct offset_commit_response_offset_commit_response_topic, count);
    for (size_t i = 0; i < count; i++) {
        const struct part *p = &spec->parts[i];
        if (i == 0 || strcmp(p->topic, p[-1].topic) != 0) {
            int32_t t = in->topics_count++;
            out->topics_count++;
            in->topics[t].name = out->topics[t].name = str_of(p->topic);
            in->topics[t].partitions =
                arena_array(&w->arena, struct offset_commit_request_offset_commit_request_partition, count);
            out->topics[t].partitions =
                arena_array(&w->arena, struct offset_commit_response_offset_commit_response_partition, count);
        }
        int32_t t = in->topics_count - 1, at = in->topics[t].partitions_count++;
        out->topics[t].partitions_count++;
        in->topics[t].partitions[at] = (struct offset_commit_request_offset_commit_request_partition){
            p->partition, p->offset, p->epoch, p->commit_ms ? p->commit_ms : -1, str_of(p->metadata)};
        out->topics[t].partitions[at].partition_index = p->partition;
        out->topics[t].partitions[at].error_code = (int16_t)p->preset;
    }
}

static inline struct asked *commit_as(struct world *w, const struct commit_spec *spec)
{
    struct asked *a = ask_begin(w, GROUP_COMMIT);
    commit_fill(w, a, spec);
    a->in.commit.group_id = str_of(spec->group);
    a->in.commit.generation_id_or_member_epoch = spec->generation;
    a->in.commit.member_id = str_of(spec->member ? spec->member : "");
    a->in.commit.group_instance_id = str_of(spec->instance);
    if (spec->retention_ms) a->in.commit.retention_time_ms = spec->retention_ms;
    return ask(w, a);
}

/* By nobody in particular. */
static inline struct asked *commit(struct world *w, const char *group, const struct part *parts)
{
    return commit_as(w, &(struct commit_spec){.group = group, .generation = -1, .parts = parts});
}

/* The error of the n-th partition of the request. */
static inline enum kerr commit_error(const struct asked *a, int n)
{
    assert_true(a->answered);
    for (int32_t t = 0; t < a->out.commit.topics_count; t++) {
        if (n < a->out.commit.topics[t].partitions_count)
            return (enum kerr)a->out.commit.topics[t].partitions[n].error_code;
        n -= a->out.commit.topics[t].partitions_count;
    }
    fail_msg("no such partition");
    return KERR_NONE;
}

typedef struct offset_fetch_response_offset_fetch_response_partitions fetched;

static inline struct asked *fetch_all_as(struct world *w, const char *group, bool stable)
{
    struct asked *a = ask_begin(w, GROUP_FETCH);
    a->call.require_stable = stable;
    a->in.fetch = offset_fetch_request_offset_fetch_request_group_default;
    a->out.fetch = offset_fetch_response_offset_fetch_response_group_default;
    a->in.fetch.group_id = str_of(group);
    a->in.fetch.topics_count = -1;
    ask(w, a);
    assert_true(a->answered);
    assert_int_equal(a->out.fetch.error_code, KERR_NONE);
    return a;
}

static inline fetched fetch_as(struct world *w, const char *group, const char *topic, int32_t partition, bool stable)
{
    struct asked *a = ask_begin(w, GROUP_FETCH);
    struct offset_fetch_request_offset_fetch_request_topics t = {
        .name = str_of(topic), .partition_indexes = &partition, .partition_indexes_count = 1};
    a->call.require_stable = stable;
    a->in.fetch = offset_fetch_request_offset_fetch_request_group_default;
    a->out.fetch = offset_fetch_response_offset_fetch_response_group_default;
    a->in.fetch.group_id = str_of(group);
    a->in.fetch.topics = &t;
    a->in.fetch.topics_count = 1;
    ask(w, a);
    assert_true(a->answered);
    assert_int_equal(a->out.fetch.error_code, KERR_NONE);
    assert_true(str_is(a->out.fetch.group_id, group));
    assert_int_equal(a->out.fetch.topics_count, 1);
    assert_int_equal(a->out.fetch.topics[0].partitions_count, 1);
    assert_int_equal(a->out.fetch.topics[0].partitions[0].partition_index, partition);
    return a->out.fetch.topics[0].partitions[0];
}

static inline fetched fetch(struct world *w, const char *group, const char *topic, int32_t partition)
{
    return fetch_as(w, group, topic, partition, false);
}

/* -1: none */
static inline int64_t committed(struct world *w, const char *group, const char *topic, int32_t partition)
{
    return fetch(w, group, topic, partition).committed_offset;
}

static inline struct asked *describe_as(struct world *w, const char *group, int16_t version, bool history)
{
    struct asked *a = ask_begin(w, GROUP_DESCRIBE);
    a->call.version = version;
    a->call.want_history = history;
    a->in.id = str_of(group);
    a->out.describe = describe_groups_response_described_group_default;
    ask(w, a);
    assert_true(a->answered);
    return a;
}

/* As DescribeGroups shows it. */
static inline const char *state_of(struct world *w, const char *group)
{
    return describe_as(w, group, 5, false)->out.describe.group_state.data;
}

static inline struct asked *delete_group(struct world *w, const char *group)
{
    struct asked *a = ask_begin(w, GROUP_DELETE);
    a->in.id = str_of(group);
    a->out.delete = delete_groups_response_deletable_group_result_default;
    return ask(w, a);
}

static inline struct asked *delete_offsets(struct world *w, const char *group, const struct part *parts)
{
    struct asked *a = ask_begin(w, GROUP_DELETE_OFFSET);
    a->in.delete_offset = offset_delete_request_default;
    a->out.delete_offset = offset_delete_response_default;
    a->in.delete_offset.group_id = str_of(group);
    size_t count = 0;
    while (parts[count].topic) count++;
    struct offset_delete_response *out = &a->out.delete_offset;
    out->topics = arena_array(&w->arena, struct offset_delete_response_offset_delete_response_topic, count);
    out->topics_count = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        out->topics[i].name = str_of(parts[i].topic);
        out->topics[i].partitions_count = 1;
        out->topics[i].partitions =
            arena_array(&w->arena, struct offset_delete_response_offset_delete_response_partition, 1);
        out->topics[i].partitions[0].partition_index = parts[i].partition;
        out->topics[i].partitions[0].error_code = (int16_t)parts[i].preset;
    }
    return ask(w, a);
}

static inline enum kerr delete_offset_error(const struct asked *a, int n)
{
    assert_true(a->answered);
    assert_int_equal(a->out.delete_offset.error_code, KERR_NONE);
    assert_true(n < a->out.delete_offset.topics_count);
    return (enum kerr)a->out.delete_offset.topics[n].partitions[0].error_code;
}

/* A JoinGroup of a member that is there already, or of a new one (""): the group prepares for the next generation. */
static inline struct asked *rejoin(struct world *w, const char *group, const char *member, const char *protocol)
{
    struct asked *a = ask_begin(w, GROUP_JOIN);
    a->call.version = *member ? 5 : 3; /* a new member is in at once */
    a->in.join = join_group_request_default;
    a->out.join = join_group_response_default;
    a->in.join.group_id = str_of(group);
    a->in.join.member_id = str_of(member);
    a->in.join.session_timeout_ms = a->in.join.rebalance_timeout_ms = MINUTE_MS;
    a->in.join.protocol_type = STR("consumer");
    struct join_group_request_join_group_request_protocol *p =
        arena_array(&w->arena, struct join_group_request_join_group_request_protocol, 1);
    *p = (struct join_group_request_join_group_request_protocol){str_of(protocol), bytes_of("new")};
    a->in.join.protocols = p;
    a->in.join.protocols_count = 1;
    return ask(w, a);
}

/* ---- All that can be seen, as text */

static inline int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct dump {
    struct arena *arena;
    const char *lines[4096];
    size_t count;
};

static inline void dump_line(struct dump *d, struct str line)
{
    assert_true(d->count < ARRAY_COUNT(d->lines));
    d->lines[d->count++] = line.data;
}

static inline void dump_offsets(struct world *w, struct dump *d, struct str id)
{
    struct asked *a = fetch_all_as(w, arena_str(&w->arena, id).data, false);
    for (int32_t i = 0; i < a->out.fetch.topics_count; i++) {
        for (int32_t j = 0; j < a->out.fetch.topics[i].partitions_count; j++) {
            fetched f = a->out.fetch.topics[i].partitions[j];
            dump_line(d, arena_printf(d->arena, "%.*s %.*s-%d at %lld epoch %d \"%.*s\"", STR_ARG(id),
                                      STR_ARG(a->out.fetch.topics[i].name), f.partition_index,
                                      (long long)f.committed_offset, f.committed_leader_epoch, STR_ARG(f.metadata)));
        }
    }
}

static inline void dump_group(struct world *w, struct dump *d, struct str id)
{
    const struct describe_groups_response_described_group *g =
        &describe_as(w, arena_str(&w->arena, id).data, 5, false)->out.describe;
    const struct group *grp = group_find(w->sh, id);
    dump_line(d, arena_printf(d->arena, "%.*s %.*s \"%.*s\" \"%.*s\" generation %d since %lld", STR_ARG(id),
                              STR_ARG(g->group_state), STR_ARG(g->protocol_type), STR_ARG(g->protocol_data),
                              grp->generation, grp->generation ? (long long)grp->state_since_ms : 0));
    for (int32_t i = 0; i < g->members_count; i++) {
        struct bytes s = g->members[i].member_metadata, as = g->members[i].member_assignment;
        dump_line(d, arena_printf(d->arena, "%.*s member %.*s instance %.*s of %.*s sent %.*s got %.*s", STR_ARG(id),
                                  STR_ARG(g->members[i].member_id), STR_ARG(g->members[i].group_instance_id),
                                  STR_ARG(g->members[i].client_id), (int)s.size, (const char *)s.data, (int)as.size,
                                  (const char *)as.data));
    }
}

/* What DescribeGroups and OffsetFetch tell of every group, in an order of its own. */
static inline const char *world_dump(struct world *w)
{
    struct dump *d = arena_alloc(&w->arena, sizeof *d);
    d->arena = &w->arena;
    struct asked *a = ask_begin(w, GROUP_LIST);
    a->in.list = list_groups_request_default;
    a->out.list = list_groups_response_default;
    ask(w, a);
    for (int32_t i = 0; i < a->out.list.groups_count; i++) {
        dump_group(w, d, a->out.list.groups[i].group_id);
        dump_offsets(w, d, a->out.list.groups[i].group_id);
    }
    qsort(d->lines, d->count, sizeof d->lines[0], by_text);
    size_t size = 1;
    for (size_t i = 0; i < d->count; i++) size += strlen(d->lines[i]) + 1;
    char *text = arena_alloc(&w->arena, size), *at = text;
    for (size_t i = 0; i < d->count; i++) at += sprintf(at, "%s\n", d->lines[i]);
    return text;
}

#endif
