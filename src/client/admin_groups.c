/* admin_groups.c: listing, describing and deleting groups; see admin_groups.h. */
#include "client/admin_groups.h"

#include <stdlib.h>

#include "client/by_coordinator.h"
#include "wire/gen/consumer_group_describe.h"
#include "wire/gen/consumer_protocol_assignment.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/list_groups.h"

enum { LIST_STATES_MIN = 4, LIST_TYPES_MIN = 5 };

/* ---- list ---- */

struct listing_list {
    struct group_listing *at; /* in the arena, doubling */
    int32_t count, cap;
};

static void add_listings(struct listing_list *list, const struct list_groups_response *res, struct arena *a)
{
    int32_t more = MAX(res->groups_count, 0);
    if (list->count + more > list->cap) {
        int32_t cap = MAX(list->count + more, list->cap * 2);
        struct group_listing *at = arena_array(a, struct group_listing, (size_t)cap);
        if (list->count) memcpy(at, list->at, (size_t)list->count * sizeof *at);
        list->at = at;
        list->cap = cap;
    }
    for (int32_t i = 0; i < more; i++) {
        const struct list_groups_response_listed_group *g = &res->groups[i];
        list->at[list->count++] = (struct group_listing){
            .id = g->group_id, .protocol_type = g->protocol_type, .state = g->group_state, .type = g->group_type};
    }
}

static int compare_listings(const void *a, const void *b)
{
    return str_compare(((const struct group_listing *)a)->id, ((const struct group_listing *)b)->id);
}

/* One that moved while we asked may be told of twice. */
static void sort_listings(struct listing_list *list)
{
    if (list->count == 0) return;
    qsort(list->at, (size_t)list->count, sizeof *list->at, compare_listings);
    int32_t kept = 1;
    for (int32_t i = 1; i < list->count; i++)
        if (!str_equal(list->at[i].id, list->at[kept - 1].id)) list->at[kept++] = list->at[i];
    list->count = kept;
}

static bool list_of_node(struct attempt *at, int32_t node_id, const struct list_groups_request *req,
                         struct listing_list *list, struct arena *a, struct failure *f)
{
    struct peer *p;
    if (!cluster_connect_node(at, node_id, &p, f)) return false;
    int16_t version = peer_version(p, API_LIST_GROUPS, LIST_GROUPS_REQUEST_VERSION_MAX);
    if ((req->states_filter_count && version < LIST_STATES_MIN) ||
        (req->types_filter_count && version < LIST_TYPES_MIN))
        return failure_set(f, ERR_UNSUPPORTED, "%s cannot list groups by %s: it knows ListGroups up to version %d.",
                           peer_name(p), req->types_filter_count ? "type" : "state", version);
    struct list_groups_response res;
    if (!peer_ask(at, p, &(struct exchange){API_LIST_GROUPS, version, req, &res}, a, f)) return false;
    if (res.error_code)
        return failure_refused(f, res.error_code, STR_NULL, "%s does not list its groups", peer_name(p));
    add_listings(list, &res, a);
    return true;
}

/* Asks the nodes from *next on; the caller comes back for those that are left. */
static bool list_of_nodes(struct attempt *at, const int32_t *ids, int32_t count, int32_t *next,
                          const struct list_groups_request *req, struct listing_list *list, struct arena *a,
                          struct failure *f)
{
    while (*next < count) {
        if (!list_of_node(at, ids[*next], req, list, a, f)) return false;
        (*next)++;
    }
    return true;
}

bool admin_list_groups(struct cluster *cl, const struct str *states, int32_t state_count, const struct str *types,
                       int32_t type_count, struct group_listing **out, int32_t *out_count, struct arena *a,
                       struct failure *f)
{
    struct attempt at = attempt_begin(cl);
    struct list_groups_request req = list_groups_request_default;
    req.states_filter = (struct str *)(uintptr_t)states; /* only read */
    req.states_filter_count = state_count;
    req.types_filter = (struct str *)(uintptr_t)types;
    req.types_filter_count = type_count;
    struct listing_list list = {0};
    int32_t *ids, count, next = 0;
    while (!cluster_nodes(&at, &ids, &count, a, f))
        if (!attempt_again(&at, f)) return false;
    while (!list_of_nodes(&at, ids, count, &next, &req, &list, a, f))
        if (!attempt_again(&at, f)) return false;
    sort_listings(&list);
    *out = list.at;
    *out_count = list.count;
    return true;
}

/* ---- describe ---- */

static int compare_assigned(const void *a, const void *b)
{
    return topic_partition_compare(a, b);
}

/* What a member of a classic group was given, if it speaks the consumer protocol and can be read. */
static void take_classic_assignment(struct group_member *out, struct bytes assignment, struct arena *a)
{
    struct reader r = reader_of(assignment.data, assignment.size);
    struct consumer_protocol_assignment decoded;
    if (assignment.size == 0 || consumer_protocol_assignment_decode_prefixed(&decoded, NULL, &r, a)) return;
    size_t count = 0;
    for (int32_t i = 0; i < decoded.assigned_partitions_count; i++)
        count += (size_t)MAX(decoded.assigned_partitions[i].partitions_count, 0);
    out->assigned = arena_array(a, struct topic_partition, count);
    for (int32_t i = 0; i < decoded.assigned_partitions_count; i++) {
        const struct consumer_protocol_assignment_topic_partition *t = &decoded.assigned_partitions[i];
        for (int32_t j = 0; j < t->partitions_count; j++)
            out->assigned[out->assigned_count++] = (struct topic_partition){t->topic, t->partitions[j]};
    }
    qsort(out->assigned, count, sizeof *out->assigned, compare_assigned);
}

static void take_classic_members(struct group_description *out,
                                 const struct describe_groups_response_described_group *g, struct arena *a)
{
    int32_t count = MAX(g->members_count, 0);
    out->members = arena_array(a, struct group_member, (size_t)count);
    out->member_count = count;
    for (int32_t i = 0; i < count; i++) {
        const struct describe_groups_response_described_group_member *m = &g->members[i];
        out->members[i] = (struct group_member){
            .id = m->member_id, .instance_id = m->group_instance_id, .client_id = m->client_id, .host = m->client_host};
        if (str_is(g->protocol_type, "consumer")) take_classic_assignment(&out->members[i], m->member_assignment, a);
    }
}

static void take_rebalances(struct group_description *out, const struct describe_groups_response_described_group *g,
                            struct arena *a)
{
    int32_t count = MAX(g->rebalances_count, 0);
    out->rebalances = arena_array(a, struct group_rebalance, (size_t)count);
    out->rebalance_count = count;
    for (int32_t i = 0; i < count; i++) {
        const struct describe_groups_response_group_rebalance *r = &g->rebalances[count - 1 - i]; /* oldest first */
        out->rebalances[i] = (struct group_rebalance){.started_ms = r->started_ms,
                                                      .took_ms = r->took_ms,
                                                      .generation = r->generation,
                                                      .reason = r->reason,
                                                      .member_id = r->member_id,
                                                      .client_id = r->client_id};
    }
}

static void take_classic(struct group_description *out, const struct describe_groups_response_described_group *g,
                         struct arena *a)
{
    out->type = STR("Classic");
    out->state = g->group_state;
    out->protocol_type = g->protocol_type;
    out->assignor = g->protocol_data;
    take_classic_members(out, g, a);
    take_rebalances(out, g, a);
}

static bool describe_classic(struct attempt *at, struct peer *p, struct group_item **items, int32_t count,
                             struct group_description *out, struct arena *a, struct failure *f)
{
    struct describe_groups_request req = describe_groups_request_default;
    req.groups = arena_array(a, struct str, (size_t)count);
    req.groups_count = count;
    req.include_rebalances = true; /* a tagged field: who does not know it skips it */
    for (int32_t i = 0; i < count; i++) req.groups[i] = items[i]->group;
    struct describe_groups_response res;
    int16_t version = peer_version(p, API_DESCRIBE_GROUPS, DESCRIBE_GROUPS_REQUEST_VERSION_MAX);
    if (version >= 0 && version < 5) req.include_rebalances = false;
    if (!peer_ask(at, p, &(struct exchange){API_DESCRIBE_GROUPS, version, &req, &res}, a, f)) return false;
    for (int32_t i = 0; i < res.groups_count; i++) {
        const struct describe_groups_response_described_group *g = &res.groups[i];
        struct group_item *it = group_item_find(items, count, g->group_id);
        if (!it) continue;
        bool is_absent = g->error_code == KERR_GROUP_ID_NOT_FOUND; /* from version 6 on; before, it was a dead group */
        group_item_answer(it, is_absent ? KERR_NONE : g->error_code, g->error_message);
        if (!it->answer.kerr) take_classic(&out[it->index], g, a);
        if (is_absent) out[it->index].state = STR("Dead");
    }
    return true;
}

static void take_new_member(struct group_member *out, const struct consumer_group_describe_response_member *m,
                            struct arena *a)
{
    *out = (struct group_member){
        .id = m->member_id, .instance_id = m->instance_id, .client_id = m->client_id, .host = m->client_host};
    size_t count = 0;
    for (int32_t i = 0; i < m->assignment.topic_partitions_count; i++)
        count += (size_t)MAX(m->assignment.topic_partitions[i].partitions_count, 0);
    out->assigned = arena_array(a, struct topic_partition, count);
    for (int32_t i = 0; i < m->assignment.topic_partitions_count; i++) {
        const struct consumer_group_describe_response_topic_partitions *t = &m->assignment.topic_partitions[i];
        for (int32_t j = 0; j < t->partitions_count; j++)
            out->assigned[out->assigned_count++] = (struct topic_partition){t->topic_name, t->partitions[j]};
    }
    qsort(out->assigned, count, sizeof *out->assigned, compare_assigned);
}

static void take_new(struct group_description *out, const struct consumer_group_describe_response_described_group *g,
                     struct arena *a)
{
    out->type = STR("Consumer");
    out->state = g->group_state;
    out->protocol_type = STR("consumer");
    out->assignor = g->assignor_name;
    out->member_count = MAX(g->members_count, 0);
    out->members = arena_array(a, struct group_member, (size_t)out->member_count);
    for (int32_t i = 0; i < out->member_count; i++) take_new_member(&out->members[i], &g->members[i], a);
}

/* Those that are groups of the newer protocol (KIP-848); *left: those that are not, in their order. */
static bool describe_new(struct attempt *at, struct peer *p, struct group_item **items, int32_t count,
                         struct group_description *out, struct group_item **left, int32_t *left_count, struct arena *a,
                         struct failure *f)
{
    struct consumer_group_describe_request req = consumer_group_describe_request_default;
    req.group_ids = arena_array(a, struct str, (size_t)count);
    req.group_ids_count = count;
    for (int32_t i = 0; i < count; i++) req.group_ids[i] = items[i]->group;
    struct consumer_group_describe_response res;
    int16_t version = peer_version(p, API_CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_DESCRIBE_REQUEST_VERSION_MAX);
    if (!peer_ask(at, p, &(struct exchange){API_CONSUMER_GROUP_DESCRIBE, version, &req, &res}, a, f)) return false;
    for (int32_t i = 0; i < res.groups_count; i++) {
        const struct consumer_group_describe_response_described_group *g = &res.groups[i];
        struct group_item *it = group_item_find(items, count, g->group_id);
        if (!it) continue;
        group_item_answer(it, g->error_code, g->error_message);
        if (!it->answer.kerr) take_new(&out[it->index], g, a);
    }
    *left_count = 0;
    for (int32_t i = 0; i < count; i++) {
        int16_t kerr = items[i]->answer.kerr;
        if (kerr == KERR_GROUP_ID_NOT_FOUND || kerr == KERR_UNSUPPORTED_VERSION) left[(*left_count)++] = items[i];
    }
    return true;
}

static bool ask_description(struct attempt *at, struct peer *p, struct group_item **items, int32_t count, void *arg,
                            struct arena *a, struct failure *f)
{
    struct group_description *out = arg;
    if (peer_version(p, API_CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_DESCRIBE_REQUEST_VERSION_MAX) < 0)
        return describe_classic(at, p, items, count, out, a, f);
    struct group_item **left = arena_array(a, struct group_item *, (size_t)count);
    int32_t left_count;
    if (!describe_new(at, p, items, count, out, left, &left_count, a, f)) return false;
    for (int32_t i = 0; i < left_count; i++)
        group_item_answer(left[i], KERR_COORDINATOR_NOT_AVAILABLE, STR_NULL); /* until it is described */
    return left_count == 0 || describe_classic(at, p, left, left_count, out, a, f);
}

bool admin_describe_groups(struct cluster *cl, struct group_description *groups, int32_t count, struct arena *a,
                           struct failure *f)
{
    struct group_item *items = arena_array(a, struct group_item, (size_t)count);
    for (int32_t i = 0; i < count; i++) items[i] = (struct group_item){.group = groups[i].id, .index = i};
    if (!coordinators_ask(cl, items, count, ask_description, groups, a, f)) return false;
    for (int32_t i = 0; i < count; i++) {
        groups[i].answer = items[i].answer;
        groups[i].coordinator = items[i].coordinator;
    }
    return true;
}

/* ---- delete ---- */

static bool ask_deletion(struct attempt *at, struct peer *p, struct group_item **items, int32_t count, void *arg,
                         struct arena *a, struct failure *f)
{
    (void)arg;
    struct delete_groups_request req = delete_groups_request_default;
    req.groups_names = arena_array(a, struct str, (size_t)count);
    req.groups_names_count = count;
    for (int32_t i = 0; i < count; i++) req.groups_names[i] = items[i]->group;
    struct delete_groups_response res;
    int16_t version = peer_version(p, API_DELETE_GROUPS, DELETE_GROUPS_REQUEST_VERSION_MAX);
    if (!peer_ask(at, p, &(struct exchange){API_DELETE_GROUPS, version, &req, &res}, a, f)) return false;
    for (int32_t i = 0; i < res.results_count; i++) {
        struct group_item *it = group_item_find(items, count, res.results[i].group_id);
        if (it) group_item_answer(it, res.results[i].error_code, STR_NULL);
    }
    return true;
}

bool admin_delete_groups(struct cluster *cl, struct group_deletion *groups, int32_t count, struct arena *a,
                         struct failure *f)
{
    struct group_item *items = arena_array(a, struct group_item, (size_t)count);
    for (int32_t i = 0; i < count; i++) items[i] = (struct group_item){.group = groups[i].id, .index = i};
    if (!coordinators_ask(cl, items, count, ask_deletion, groups, a, f)) return false;
    for (int32_t i = 0; i < count; i++) groups[i].answer = items[i].answer;
    return true;
}
