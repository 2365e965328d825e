/* admin_group_offsets.c: reading, committing and forgetting a group's offsets; see admin_groups.h. */
#include <stdlib.h>

#include "client/admin_groups.h"
#include "client/by_coordinator.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_delete.h"
#include "wire/gen/offset_fetch.h"

enum {
    OFFSET_FETCH_BATCHED_MIN = 8,
    OFFSET_FETCH_ALL_MIN = 2,  /* before, topics had to be named */
    OFFSET_FETCH_NAME_MAX = 9, /* later versions know topics by id */
    OFFSET_COMMIT_NAME_MAX = 9,
    OFFSET_COMMIT_KAFKA_MIN = 1 /* version 0 keeps offsets in ZooKeeper */
};

/* ---- reading ---- */

static int compare_offsets(const void *a, const void *b)
{
    return topic_partition_compare(&((const struct group_offset *)a)->of, &((const struct group_offset *)b)->of);
}

static void sort_offsets(struct group_offsets *g)
{
    if (g->offset_count > 0) qsort(g->offsets, (size_t)g->offset_count, sizeof *g->offsets, compare_offsets);
}

/* The two forms of the response hold the same structs under two names. */
#define TAKE_OFFSETS(out, topics_at, topics_n, a)                                                               \
    do {                                                                                                        \
        size_t count_ = 0;                                                                                      \
        for (int32_t i_ = 0; i_ < (topics_n); i_++) count_ += (size_t)MAX((topics_at)[i_].partitions_count, 0); \
        (out)->offsets = arena_array((a), struct group_offset, count_);                                         \
        (out)->offset_count = 0;                                                                                \
        for (int32_t i_ = 0; i_ < (topics_n); i_++)                                                             \
            for (int32_t j_ = 0; j_ < (topics_at)[i_].partitions_count; j_++)                                   \
                if ((topics_at)[i_].partitions[j_].committed_offset >= 0)                                       \
                    (out)->offsets[(out)->offset_count++] = (struct group_offset){                              \
                        .of = {(topics_at)[i_].name, (topics_at)[i_].partitions[j_].partition_index},           \
                        .offset = (topics_at)[i_].partitions[j_].committed_offset,                              \
                        .leader_epoch = (topics_at)[i_].partitions[j_].committed_leader_epoch,                  \
                        .metadata = (topics_at)[i_].partitions[j_].metadata,                                    \
                        .kerr = (topics_at)[i_].partitions[j_].error_code};                                     \
        sort_offsets(out);                                                                                      \
    } while (0)

static bool fetch_batched(struct attempt *at, struct peer *p, int16_t version, struct group_item **items, int32_t count,
                          struct group_offsets *out, struct arena *a, struct failure *f)
{
    struct offset_fetch_request req = offset_fetch_request_default;
    req.groups = arena_array(a, struct offset_fetch_request_offset_fetch_request_group, (size_t)count);
    req.groups_count = count;
    for (int32_t i = 0; i < count; i++) {
        req.groups[i] = offset_fetch_request_offset_fetch_request_group_default;
        req.groups[i].group_id = items[i]->group;
        req.groups[i].topics_count = -1; /* all */
    }
    struct offset_fetch_response res;
    if (!peer_ask(at, p, &(struct exchange){API_OFFSET_FETCH, version, &req, &res}, a, f)) return false;
    for (int32_t i = 0; i < res.groups_count; i++) {
        const struct offset_fetch_response_offset_fetch_response_group *g = &res.groups[i];
        struct group_item *it = group_item_find(items, count, g->group_id);
        if (!it) continue;
        group_item_answer(it, g->error_code, STR_NULL);
        TAKE_OFFSETS(&out[it->index], g->topics, g->topics_count, a);
    }
    return true;
}

static bool fetch_single(struct attempt *at, struct peer *p, int16_t version, struct group_item *it,
                         struct group_offsets *out, struct arena *a, struct failure *f)
{
    struct offset_fetch_request req = offset_fetch_request_default;
    req.group_id = it->group;
    req.topics_count = -1; /* all */
    struct offset_fetch_response res;
    if (!peer_ask(at, p, &(struct exchange){API_OFFSET_FETCH, version, &req, &res}, a, f)) return false;
    group_item_answer(it, res.error_code, STR_NULL);
    TAKE_OFFSETS(out, res.topics, res.topics_count, a);
    return true;
}

static bool ask_offsets(struct attempt *at, struct peer *p, struct group_item **items, int32_t count, void *arg,
                        struct arena *a, struct failure *f)
{
    struct group_offsets *out = arg;
    int16_t version = peer_version(p, API_OFFSET_FETCH, OFFSET_FETCH_NAME_MAX);
    if (version >= OFFSET_FETCH_BATCHED_MIN) return fetch_batched(at, p, version, items, count, out, a, f);
    if (version < OFFSET_FETCH_ALL_MIN) version = -1;
    for (int32_t i = 0; i < count; i++)
        if (!fetch_single(at, p, version, items[i], &out[items[i]->index], a, f)) return false;
    return true;
}

bool admin_group_offsets(struct cluster *cl, struct group_offsets *groups, int32_t count, struct arena *a,
                         struct failure *f)
{
    struct group_item *items = arena_array(a, struct group_item, (size_t)count);
    for (int32_t i = 0; i < count; i++) items[i] = (struct group_item){.group = groups[i].id, .index = i};
    if (!coordinators_ask(cl, items, count, ask_offsets, groups, a, f)) return false;
    for (int32_t i = 0; i < count; i++) groups[i].answer = items[i].answer;
    return true;
}

/* ---- committing ---- */

/* Gives one partition what the broker said of it, and the group the trouble that all of them share. */
static void take_partition(struct group_offsets *g, struct group_item *it, struct str topic, int32_t partition,
                           int16_t kerr)
{
    struct group_offset key = {.of = {topic, partition}};
    struct group_offset *found =
        g->offset_count > 0 ? bsearch(&key, g->offsets, (size_t)g->offset_count, sizeof key, compare_offsets) : NULL;
    if (found) found->kerr = kerr;
    group_item_answer(it, kerr, STR_NULL);
    if (it->done) it->answer.kerr = KERR_NONE; /* of this partition alone */
}

static void commit_request_fill(struct offset_commit_request *req, const struct group_offsets *g, struct arena *a)
{
    *req = offset_commit_request_default;
    req->group_id = g->id;
    size_t n = (size_t)g->offset_count;
    req->topics = arena_array(a, struct offset_commit_request_offset_commit_request_topic, n);
    struct offset_commit_request_offset_commit_request_partition *partitions =
        arena_array(a, struct offset_commit_request_offset_commit_request_partition, n);
    struct offset_commit_request_offset_commit_request_topic *t = NULL;
    for (int32_t i = 0; i < g->offset_count; i++) {
        const struct group_offset *o = &g->offsets[i];
        if (!t || !str_equal(t->name, o->of.topic)) {
            t = &req->topics[req->topics_count++];
            *t = offset_commit_request_offset_commit_request_topic_default;
            t->name = o->of.topic;
            t->partitions = &partitions[i];
        }
        partitions[i] = offset_commit_request_offset_commit_request_partition_default;
        partitions[i].partition_index = o->of.partition;
        partitions[i].committed_offset = o->offset;
        partitions[i].committed_leader_epoch = o->leader_epoch;
        partitions[i].committed_metadata = str_is_null(o->metadata) ? STR_EMPTY : o->metadata;
        t->partitions_count++;
    }
}

static void forget_answers(struct group_offsets *g)
{
    for (int32_t i = 0; i < g->offset_count; i++) g->offsets[i].kerr = KERR_UNKNOWN_SERVER_ERROR; /* until answered */
}

static bool ask_commit(struct attempt *at, struct peer *p, struct group_item **items, int32_t count, void *arg,
                       struct arena *a, struct failure *f)
{
    ASSERT(count == 1);
    struct group_offsets *g = arg;
    forget_answers(g);
    struct offset_commit_request req;
    commit_request_fill(&req, g, a);
    struct offset_commit_response res;
    int16_t version = peer_version(p, API_OFFSET_COMMIT, OFFSET_COMMIT_NAME_MAX);
    if (version < OFFSET_COMMIT_KAFKA_MIN) version = -1;
    if (!peer_ask(at, p, &(struct exchange){API_OFFSET_COMMIT, version, &req, &res}, a, f)) return false;
    group_item_answer(items[0], KERR_NONE, STR_NULL);
    for (int32_t i = 0; i < res.topics_count; i++)
        for (int32_t j = 0; j < res.topics[i].partitions_count && items[0]->done; j++)
            take_partition(g, items[0], res.topics[i].name, res.topics[i].partitions[j].partition_index,
                           res.topics[i].partitions[j].error_code);
    return true;
}

static bool ask_about_one(struct cluster *cl, struct group_offsets *g, coordinator_ask_fn ask, struct arena *a,
                          struct failure *f)
{
    struct group_item item = {.group = g->id};
    sort_offsets(g);
    if (!coordinators_ask(cl, &item, 1, ask, g, a, f)) return false;
    g->answer = item.answer;
    return true;
}

bool admin_alter_group_offsets(struct cluster *cl, struct group_offsets *group, struct arena *a, struct failure *f)
{
    if (group->offset_count == 0) return true;
    return ask_about_one(cl, group, ask_commit, a, f);
}

/* ---- forgetting ---- */

static void delete_request_fill(struct offset_delete_request *req, const struct group_offsets *g, struct arena *a)
{
    *req = offset_delete_request_default;
    req->group_id = g->id;
    size_t n = (size_t)g->offset_count;
    req->topics = arena_array(a, struct offset_delete_request_offset_delete_request_topic, n);
    struct offset_delete_request_offset_delete_request_partition *partitions =
        arena_array(a, struct offset_delete_request_offset_delete_request_partition, n);
    struct offset_delete_request_offset_delete_request_topic *t = NULL;
    for (int32_t i = 0; i < g->offset_count; i++) {
        if (!t || !str_equal(t->name, g->offsets[i].of.topic)) {
            t = &req->topics[req->topics_count++];
            *t = offset_delete_request_offset_delete_request_topic_default;
            t->name = g->offsets[i].of.topic;
            t->partitions = &partitions[i];
        }
        partitions[i].partition_index = g->offsets[i].of.partition;
        t->partitions_count++;
    }
}

static bool ask_forget(struct attempt *at, struct peer *p, struct group_item **items, int32_t count, void *arg,
                       struct arena *a, struct failure *f)
{
    ASSERT(count == 1);
    struct group_offsets *g = arg;
    forget_answers(g);
    struct offset_delete_request req;
    delete_request_fill(&req, g, a);
    struct offset_delete_response res;
    int16_t version = peer_version(p, API_OFFSET_DELETE, OFFSET_DELETE_REQUEST_VERSION_MAX);
    if (!peer_ask(at, p, &(struct exchange){API_OFFSET_DELETE, version, &req, &res}, a, f)) return false;
    group_item_answer(items[0], res.error_code, STR_NULL);
    for (int32_t i = 0; i < res.topics_count && !res.error_code; i++)
        for (int32_t j = 0; j < res.topics[i].partitions_count && items[0]->done; j++)
            take_partition(g, items[0], res.topics[i].name, res.topics[i].partitions[j].partition_index,
                           res.topics[i].partitions[j].error_code);
    return true;
}

bool admin_delete_group_offsets(struct cluster *cl, struct group_offsets *group, struct arena *a, struct failure *f)
{
    return ask_about_one(cl, group, ask_forget, a, f);
}
