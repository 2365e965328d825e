/* client: retries, coordinators, leaders and groups, against a broker that is told what to answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/admin_groups.h"
#include "client/admin_offsets.h"
#include "client_world.h"
#include "wire/batch.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/fetch.h"
#include "wire/gen/find_coordinator.h"
#include "wire/gen/list_offsets.h"
#include "wire/gen/metadata.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_fetch.h"

struct world {
    struct fake fake;
    struct cluster *cl;
    struct arena arena;
    struct failure failure;
};

static void world_start(struct world *w, const struct step *steps, int count, int64_t timeout_ms)
{
    fake_start(&w->fake, steps, count);
    struct cluster_options opt = CLUSTER_OPTIONS_DEFAULT;
    opt.bootstrap = w->fake.bootstrap;
    opt.timeout_ms = timeout_ms;
    opt.backoff_ms = 1;
    opt.backoff_max_ms = 1;
    if (!cluster_open(&w->cl, &opt, &w->failure)) fail_msg("%s", w->failure.text);
    cluster_arena_init(&w->arena);
}

static void world_stop(struct world *w)
{
    cluster_close(w->cl);
    fake_stop(&w->fake);
    arena_fini(&w->arena);
}

static void assert_asked(const struct world *w, const int16_t *apis, int count)
{
    assert_int_equal(w->fake.asked_count, count);
    for (int i = 0; i < count; i++) assert_int_equal(w->fake.asked[i].api, apis[i]);
}

/* ---- answers; the only node is 7, which is the fake itself ---- */

#define PUT(name, res, q, w)                                                           \
    do {                                                                               \
        enum err put_ = name##_encode((res), (q)->version, (w));                       \
        if (put_) fprintf(stderr, "%s in version %d\n", err_name(put_), (q)->version); \
        ASSERT(!put_);                                                                 \
    } while (0)

static void metadata_of(struct fake *fk, const struct asked *q, struct writer *w, int32_t leader, int16_t kerr)
{
    struct metadata_response_metadata_response_broker b = metadata_response_metadata_response_broker_default;
    b.node_id = 7;
    b.host = STR("127.0.0.1");
    b.port = fk->port;
    struct metadata_response_metadata_response_partition p[2] = {metadata_response_metadata_response_partition_default,
                                                                 metadata_response_metadata_response_partition_default};
    p[0].leader_id = p[1].leader_id = leader;
    p[0].partition_index = 1; /* not in order */
    struct metadata_response_metadata_response_topic t = metadata_response_metadata_response_topic_default;
    t.name = STR("t");
    t.error_code = kerr;
    t.partitions = p;
    t.partitions_count = kerr ? 0 : 2;
    struct metadata_response res = metadata_response_default;
    res.brokers = &b;
    res.brokers_count = 1;
    res.topics = &t;
    res.topics_count = 1;
    PUT(metadata_response, &res, q, w);
}

static void metadata(struct fake *fk, const struct asked *q, struct writer *w)
{
    metadata_of(fk, q, w, 7, KERR_NONE);
}

static void metadata_without_leader(struct fake *fk, const struct asked *q, struct writer *w)
{
    metadata_of(fk, q, w, -1, KERR_NONE);
}

static void metadata_without_topic(struct fake *fk, const struct asked *q, struct writer *w)
{
    metadata_of(fk, q, w, 7, KERR_UNKNOWN_TOPIC_OR_PARTITION);
}

static void coordinator_of(struct fake *fk, const struct asked *q, struct writer *w, int16_t kerr)
{
    struct find_coordinator_response_coordinator c = find_coordinator_response_coordinator_default;
    struct find_coordinator_response res = find_coordinator_response_default;
    c.key = STR("g");
    c.node_id = res.node_id = kerr ? -1 : 7;
    c.host = res.host = STR("127.0.0.1");
    c.port = res.port = fk->port;
    c.error_code = res.error_code = kerr;
    if (q->version >= 4) {
        res.node_id = 0;
        res.host = STR_EMPTY;
        res.port = 0;
        res.error_code = 0;
        res.coordinators = &c;
        res.coordinators_count = 1;
    }
    PUT(find_coordinator_response, &res, q, w);
}

static void coordinator(struct fake *fk, const struct asked *q, struct writer *w)
{
    coordinator_of(fk, q, w, KERR_NONE);
}

static void no_coordinator(struct fake *fk, const struct asked *q, struct writer *w)
{
    coordinator_of(fk, q, w, KERR_COORDINATOR_NOT_AVAILABLE);
}

static void no_coordinator_for_you(struct fake *fk, const struct asked *q, struct writer *w)
{
    coordinator_of(fk, q, w, KERR_GROUP_AUTHORIZATION_FAILED);
}

static void offsets_of(const struct asked *q, struct writer *w, int16_t kerr)
{
    struct offset_fetch_response_offset_fetch_response_partitions p[2] = {
        {.partition_index = 1, .committed_offset = 11}, {.partition_index = 0, .committed_offset = -1}};
    struct offset_fetch_response_offset_fetch_response_topics t = {
        .name = STR("t"), .partitions = p, .partitions_count = 2};
    struct offset_fetch_response_offset_fetch_response_group g = {
        .group_id = STR("g"), .topics = &t, .topics_count = 1, .error_code = kerr};
    p[0].metadata = p[1].metadata = STR_EMPTY;
    struct offset_fetch_response res = offset_fetch_response_default;
    res.groups = &g;
    res.groups_count = 1;
    PUT(offset_fetch_response, &res, q, w);
}

static void offsets(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    offsets_of(q, w, KERR_NONE);
}

static void offsets_elsewhere(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    offsets_of(q, w, KERR_NOT_COORDINATOR);
}

/* ---- retries ---- */

static void ask_offsets(struct world *w, struct group_offsets *g)
{
    *g = (struct group_offsets){.id = STR("g")};
    if (!admin_group_offsets(w->cl, g, 1, &w->arena, &w->failure)) fail_msg("%s", w->failure.text);
}

static void a_coordinator_that_moves_is_followed(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {.answer = no_coordinator}, {.answer = coordinator}, {.answer = offsets_elsewhere},
        {.answer = coordinator},    {.answer = NULL}, /* the connection breaks */
        {.answer = coordinator},    {.answer = offsets},
    };
    struct world w = {0};
    world_start(&w, steps, ARRAY_COUNT(steps), 60000);
    struct group_offsets g;
    ask_offsets(&w, &g);
    assert_int_equal(g.answer.kerr, KERR_NONE);
    assert_int_equal(g.offset_count, 1); /* of the other partition nothing is committed */
    assert_int_equal(g.offsets[0].of.partition, 1);
    assert_int_equal(g.offsets[0].offset, 11);
    world_stop(&w);
    static const int16_t apis[] = {API_FIND_COORDINATOR, API_FIND_COORDINATOR, API_OFFSET_FETCH, API_FIND_COORDINATOR,
                                   API_OFFSET_FETCH,     API_FIND_COORDINATOR, API_OFFSET_FETCH};
    assert_asked(&w, apis, ARRAY_COUNT(apis));
}

static void an_error_that_stays_is_not_asked_about_again(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = no_coordinator_for_you}};
    struct world w = {0};
    world_start(&w, steps, 1, 60000);
    struct group_offsets g;
    ask_offsets(&w, &g);
    assert_int_equal(g.answer.kerr, KERR_GROUP_AUTHORIZATION_FAILED);
    assert_int_equal(g.offset_count, 0);
    world_stop(&w);
    assert_int_equal(w.fake.asked_count, 1);
}

static void an_old_broker_is_asked_about_coordinators_one_by_one(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = coordinator}, {.answer = no_coordinator_for_you}};
    struct world w = {.fake = {.api_versions_max = 3}};
    world_start(&w, steps, 2, 60000);
    struct coordinator c[2] = {{.group = STR("g")}, {.group = STR("h")}};
    struct attempt at = attempt_begin(w.cl);
    assert_true(cluster_find_coordinators(&at, c, 2, &w.arena, &w.failure));
    assert_int_equal(c[0].node_id, 7);
    assert_int_equal(c[1].kerr, KERR_GROUP_AUTHORIZATION_FAILED);
    world_stop(&w);
    assert_int_equal(w.fake.asked[0].version, 3);
}

static void time_that_is_over_is_told_with_what_was_in_the_way(void **state)
{
    (void)state;
    static const struct step steps[] = {{.silent = true}};
    struct world w = {0};
    world_start(&w, steps, 1, 50);
    struct group_listing *groups;
    int32_t count;
    assert_false(admin_list_groups(w.cl, NULL, 0, NULL, 0, &groups, &count, &w.arena, &w.failure));
    assert_int_equal(w.failure.err, ERR_TIMEOUT);
    assert_non_null(strstr(w.failure.text, "did not answer"));
    world_stop(&w);
}

static void check_bootstrap(const char *list, const char *says)
{
    struct cluster_options opt = CLUSTER_OPTIONS_DEFAULT;
    opt.bootstrap = list;
    struct cluster *cl;
    struct failure f;
    bool ok = cluster_open(&cl, &opt, &f);
    assert_int_equal(ok, says == NULL);
    if (says && !strstr(f.text, says)) fail_msg("'%s' does not say '%s'", f.text, says);
    if (ok) cluster_close(cl);
}

static void bootstrap_lists_are_checked(void **state)
{
    (void)state;
    check_bootstrap("a:1,[::1]:2, b.example:65535 ,", NULL);
    check_bootstrap("", "No address");
    check_bootstrap(" , ", "No address");
    check_bootstrap("a", "'a' is no address");
    check_bootstrap("a:1,b:0", "'b:0' is no address");
    check_bootstrap("a:65536", "'a:65536'");
    check_bootstrap("a:1x", "'a:1x'");
    check_bootstrap(":9092", "':9092'");
    check_bootstrap("::1:9092", "[address]:port for IPv6");
    check_bootstrap("[]:1", "'[]:1'");
}

static void the_next_address_is_tried_when_one_is_dead(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = metadata}};
    struct world w = {0}, dead = {0};
    world_start(&dead, NULL, 0, 60000);
    world_stop(&dead);
    fake_start(&w.fake, steps, 1);
    char list[80];
    snprintf(list, sizeof list, "%s,%s", dead.fake.bootstrap, w.fake.bootstrap);
    struct cluster_options opt = CLUSTER_OPTIONS_DEFAULT;
    opt.bootstrap = list;
    assert_true(cluster_open(&w.cl, &opt, &w.failure));
    cluster_arena_init(&w.arena);
    struct attempt at = attempt_begin(w.cl);
    struct topic *topics;
    int32_t count;
    struct str name = STR("t");
    assert_true(cluster_topics(&at, &name, 1, &topics, &count, &w.arena, &w.failure));
    assert_int_equal(count, 1);
    assert_int_equal(cluster_topic_leader(&topics[0], 0), 7);
    assert_int_equal(cluster_topic_leader(&topics[0], 1), 7);
    assert_int_equal(cluster_topic_leader(&topics[0], 2), -1);
    assert_int_equal(cluster_find_node(w.cl, 7).port, w.fake.port);
    world_stop(&w);
}

/* ---- leaders ---- */

static void list_offsets_of(const struct asked *q, struct writer *w, int16_t kerr)
{
    struct list_offsets_response_list_offsets_partition_response p =
        list_offsets_response_list_offsets_partition_response_default;
    p.partition_index = 1;
    p.error_code = kerr;
    p.offset = 100;
    struct list_offsets_response_list_offsets_topic_response t = {
        .name = STR("t"), .partitions = &p, .partitions_count = 1};
    struct list_offsets_response res = list_offsets_response_default;
    res.topics = &t;
    res.topics_count = 1;
    PUT(list_offsets_response, &res, q, w);
}

static void end_offset(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    list_offsets_of(q, w, KERR_NONE);
}

static void not_leader(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    list_offsets_of(q, w, KERR_NOT_LEADER_OR_FOLLOWER);
}

static void a_leader_that_moves_is_followed(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {.answer = metadata_without_leader},
        {.answer = metadata},
        {.answer = not_leader},
        {.answer = metadata},
        {.answer = end_offset},
    };
    struct world w = {0};
    world_start(&w, steps, ARRAY_COUNT(steps), 60000);
    struct offset_query q = {.of = {STR("t"), 1}, .timestamp = OFFSETS_LATEST};
    assert_true(admin_list_offsets(w.cl, &q, 1, &w.arena, &w.failure));
    assert_int_equal(q.kerr, KERR_NONE);
    assert_int_equal(q.offset, 100);
    world_stop(&w);
    assert_int_equal(w.fake.asked_count, 5);
}

static void a_partition_that_there_is_not_is_told_at_once(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = metadata}, {.answer = metadata_without_topic}};
    struct world w = {0};
    world_start(&w, steps, 2, 60000);
    struct offset_query q[2] = {{.of = {STR("t"), 2}}, {.of = {STR("u"), 0}}};
    assert_true(admin_list_offsets(w.cl, q, 2, &w.arena, &w.failure));
    assert_int_equal(q[0].kerr, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(q[1].kerr, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_true(admin_list_offsets(w.cl, (struct offset_query[]){{.of = {STR("t"), 0}}}, 1, &w.arena, &w.failure));
    world_stop(&w);
    assert_int_equal(w.fake.asked_count, 2);
}

static void an_answer_about_something_else_is_an_error(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = metadata}, {.answer = end_offset}};
    struct world w = {0};
    world_start(&w, steps, 2, 60000);
    struct offset_query q = {.of = {STR("t"), 0}, .timestamp = OFFSETS_LATEST}; /* of partition 1 it will be told */
    assert_true(admin_list_offsets(w.cl, &q, 1, &w.arena, &w.failure));
    assert_int_equal(q.kerr, KERR_UNKNOWN_SERVER_ERROR);
    assert_int_equal(q.offset, -1);
    world_stop(&w);
}

/* ---- times of records ---- */

enum { RECORDS_BASE = 1000 };

/* Three records at offsets 10, 11 and 13 in one batch; `cut`: bytes that are missing at its end. */
static void records(struct fake *fk, const struct asked *q, struct writer *w, size_t cut, bool spoil, int64_t base)
{
    struct batch_builder bb;
    struct writer batch;
    writer_init(&batch, fk->pool);
    batch_builder_init(&bb, fk->pool, 0, RECORDS_BASE);
    for (int i = 0; i < 3; i++)
        batch_builder_add(&bb, RECORDS_BASE + i, (struct bytes){NULL, 0}, (struct bytes){(const uint8_t *)"v", 1}, NULL,
                          0);
    bb.info.base_offset = base;
    ASSERT(batch_builder_finish(&bb, &batch) == OK);
    if (spoil) batch.buf->data[BATCH_HEADER_SIZE] ^= 1;
    struct fetch_response_partition_data p = fetch_response_partition_data_default;
    p.partition_index = 1;
    p.high_watermark = 13;
    p.aborted_transactions_count = -1;
    p.records = (struct records){.bytes = {batch.buf->data, batch.size - cut}};
    struct fetch_response_fetchable_topic_response t = {.topic = STR("t"), .partitions = &p, .partitions_count = 1};
    struct fetch_response res = fetch_response_default;
    res.responses = &t;
    res.responses_count = 1;
    PUT(fetch_response, &res, q, w);
    batch_builder_fini(&bb);
    writer_fini(&batch);
}

static void whole_records(struct fake *fk, const struct asked *q, struct writer *w)
{
    records(fk, q, w, 0, false, 10);
}

static void torn_records(struct fake *fk, const struct asked *q, struct writer *w)
{
    records(fk, q, w, 3, false, 10);
}

static void spoilt_records(struct fake *fk, const struct asked *q, struct writer *w)
{
    records(fk, q, w, 0, true, 10);
}

static void records_beyond_all_offsets(struct fake *fk, const struct asked *q, struct writer *w)
{
    records(fk, q, w, 0, false, INT64_MAX);
}

static void check_time(const struct step *steps, int count, int64_t offset, bool found, int64_t timestamp, int16_t kerr)
{
    struct world w = {0};
    world_start(&w, steps, count, 60000);
    struct record_query q = {.of = {STR("t"), 1}, .offset = offset};
    if (!admin_record_times(w.cl, &q, 1, &w.arena, &w.failure)) fail_msg("%s", w.failure.text);
    assert_int_equal(q.kerr, kerr);
    assert_int_equal(q.found, found);
    assert_int_equal(q.timestamp, timestamp);
    world_stop(&w);
    assert_int_equal(w.fake.asked_count, count);
}

static void the_first_record_at_or_after_an_offset_is_found(void **state)
{
    (void)state;
    static const struct step whole[] = {{.answer = metadata}, {.answer = whole_records}};
    static const struct step torn[] = {{.answer = metadata}, {.answer = torn_records}, {.answer = whole_records}};
    static const struct step spoilt[] = {{.answer = metadata}, {.answer = spoilt_records}};
    static const struct step beyond[] = {{.answer = metadata}, {.answer = records_beyond_all_offsets}};
    check_time(beyond, 2, 11, false, -1, KERR_CORRUPT_MESSAGE);
    check_time(whole, 2, 10, true, RECORDS_BASE, KERR_NONE);
    check_time(whole, 2, 12, true, RECORDS_BASE + 2, KERR_NONE);
    check_time(whole, 2, 5, true, RECORDS_BASE, KERR_NONE); /* what was there is compacted away */
    check_time(torn, 3, 11, true, RECORDS_BASE + 1, KERR_NONE);
    check_time(spoilt, 2, 11, false, -1, KERR_CORRUPT_MESSAGE);
}

/* ---- groups ---- */

static void description_of(struct str group, const struct asked *q, struct writer *w)
{
    static const uint8_t torn_assignment[] = {0, 1, 0, 0, 0, 9, 0};
    struct describe_groups_response_described_group_member m = describe_groups_response_described_group_member_default;
    m.member_id = STR("m");
    m.member_assignment = (struct bytes){torn_assignment, sizeof torn_assignment};
    struct describe_groups_response_group_rebalance r[2] = {
        {.started_ms = 1, .took_ms = 2, .generation = 3, .reason = STR("member left"), .client_id = STR("c")},
        {.started_ms = 5,
         .took_ms = -1,
         .generation = -1,
         .reason = STR("new member"),
         .member_id = STR("m"),
         .client_id = STR("c")},
    };
    struct describe_groups_response_described_group g = describe_groups_response_described_group_default;
    g.group_id = group;
    g.group_state = STR("Stable");
    g.protocol_type = STR("consumer");
    g.members = &m;
    g.members_count = 1;
    g.rebalances = r;
    g.rebalances_count = 2;
    struct describe_groups_response res = describe_groups_response_default;
    res.groups = &g;
    res.groups_count = 1;
    PUT(describe_groups_response, &res, q, w);
}

static void description(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    description_of(STR("g"), q, w);
}

static void description_of_h(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    description_of(STR("h"), q, w);
}

static void coordinators_at(struct fake *fk, const struct asked *q, struct writer *w, struct str host)
{
    struct find_coordinator_response_coordinator c[2] = {find_coordinator_response_coordinator_default,
                                                         find_coordinator_response_coordinator_default};
    c[0].key = STR("g");
    c[1].key = STR("h");
    for (int i = 0; i < 2; i++) {
        c[i].node_id = 7;
        c[i].host = host;
        c[i].port = fk->port;
    }
    struct find_coordinator_response res = find_coordinator_response_default;
    res.coordinators = c;
    res.coordinators_count = 2;
    PUT(find_coordinator_response, &res, q, w);
}

static void coordinators(struct fake *fk, const struct asked *q, struct writer *w)
{
    coordinators_at(fk, q, w, STR("127.0.0.1"));
}

static void coordinators_by_another_name(struct fake *fk, const struct asked *q, struct writer *w)
{
    coordinators_at(fk, q, w, STR("localhost"));
}

static void a_coordinator_that_is_renamed_keeps_its_name_in_what_was_told_before(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = coordinators},
                                        {.answer = description}, /* and nothing of "h" */
                                        {.answer = coordinators_by_another_name},
                                        {.answer = description_of_h}};
    struct world w = {.fake = {.without_consumer_groups = true}};
    world_start(&w, steps, ARRAY_COUNT(steps), 60000);
    struct group_description g[2] = {{.id = STR("g")}, {.id = STR("h")}};
    if (!admin_describe_groups(w.cl, g, 2, &w.arena, &w.failure)) fail_msg("%s", w.failure.text);
    assert_int_equal(g[0].answer.kerr, KERR_NONE);
    assert_int_equal(g[1].answer.kerr, KERR_NONE);
    assert_true(str_is(g[0].coordinator.host, "127.0.0.1"));
    assert_true(str_is(g[1].coordinator.host, "localhost"));
    world_stop(&w);
}

static void rebalances_are_told_and_a_torn_assignment_is_none(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = coordinator}, {.answer = description}};
    struct world w = {.fake = {.without_consumer_groups = true}};
    world_start(&w, steps, 2, 60000);
    struct group_description g = {.id = STR("g")};
    if (!admin_describe_groups(w.cl, &g, 1, &w.arena, &w.failure)) fail_msg("%s", w.failure.text);
    assert_true(str_is(g.state, "Stable") && str_is(g.type, "Classic"));
    assert_int_equal(g.member_count, 1);
    assert_int_equal(g.members[0].assigned_count, 0);
    assert_int_equal(g.rebalance_count, 2); /* the newest first now */
    assert_int_equal(g.rebalances[0].took_ms, -1);
    assert_true(str_is(g.rebalances[0].reason, "new member"));
    assert_int_equal(g.rebalances[1].took_ms, 2);
    assert_true(str_is_null(g.rebalances[1].member_id));
    assert_true(str_is(g.rebalances[1].reason, "member left"));
    assert_int_equal(g.coordinator.id, 7);
    assert_true(str_is(g.coordinator.host, "127.0.0.1"));
    world_stop(&w);
}

static void committed(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    struct offset_commit_response_offset_commit_response_partition p[2] = {
        {.partition_index = 0, .error_code = KERR_NONE},
        {.partition_index = 1, .error_code = KERR_OFFSET_METADATA_TOO_LARGE}};
    struct offset_commit_response_offset_commit_response_topic t = {
        .name = STR("t"), .partitions = p, .partitions_count = 2};
    struct offset_commit_response res = offset_commit_response_default;
    res.topics = &t;
    res.topics_count = 1;
    PUT(offset_commit_response, &res, q, w);
}

static void each_partition_of_a_commit_has_its_own_answer(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = coordinator}, {.answer = committed}};
    struct world w = {0};
    world_start(&w, steps, 2, 60000);
    struct group_offset o[3] = {{.of = {STR("u"), 0}}, {.of = {STR("t"), 1}}, {.of = {STR("t"), 0}}};
    struct group_offsets g = {.id = STR("g"), .offsets = o, .offset_count = 3};
    assert_true(admin_alter_group_offsets(w.cl, &g, &w.arena, &w.failure));
    assert_int_equal(g.answer.kerr, KERR_NONE);
    assert_int_equal(o[0].kerr, KERR_NONE); /* sorted by now: t-0, t-1, u-0 */
    assert_int_equal(o[1].kerr, KERR_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(o[2].kerr, KERR_UNKNOWN_SERVER_ERROR); /* the broker said nothing of it */
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_coordinator_that_moves_is_followed),
        cmocka_unit_test(an_error_that_stays_is_not_asked_about_again),
        cmocka_unit_test(an_old_broker_is_asked_about_coordinators_one_by_one),
        cmocka_unit_test(time_that_is_over_is_told_with_what_was_in_the_way),
        cmocka_unit_test(bootstrap_lists_are_checked),
        cmocka_unit_test(the_next_address_is_tried_when_one_is_dead),
        cmocka_unit_test(a_leader_that_moves_is_followed),
        cmocka_unit_test(a_partition_that_there_is_not_is_told_at_once),
        cmocka_unit_test(an_answer_about_something_else_is_an_error),
        cmocka_unit_test(the_first_record_at_or_after_an_offset_is_found),
        cmocka_unit_test(a_coordinator_that_is_renamed_keeps_its_name_in_what_was_told_before),
        cmocka_unit_test(rebalances_are_told_and_a_torn_assignment_is_none),
        cmocka_unit_test(each_partition_of_a_commit_has_its_own_answer),
    };
    return cmocka_run_group_tests_name("client_admin", tests, NULL, NULL);
}
