/* broker/fetch_sessions: what Kafka's FetchSession does, seen from a client's requests and answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/mem.h"
#include "broker/fetch_sessions.h"
#include "os/thread.h"

enum { EVICTION_MS = 120 * 1000, PARTS_MAX = 8 };

/* ---- A client's side */

/* Gives each number `repeats` times. */
struct counting_rng {
    struct rng rng;
    uint64_t draws;
    uint64_t repeats;
};

static void counting_fill(struct rng *r, void *out, size_t size)
{
    struct counting_rng *cr = CONTAINER_OF(r, struct counting_rng, rng);
    uint64_t value = ++cr->draws / cr->repeats + 1000;
    memset(out, 0, size);
    memcpy(out, &value, MIN(size, sizeof value));
}

struct world {
    struct counting_rng rng;
    struct fetch_sessions *fs;
    struct arena arena;
    bool by_id, replica;
    int64_t now_ms;
    struct fetch_plan plan;
};

static void world_start(struct world *w, size_t slots)
{
    *w = (struct world){.rng = {.rng = {counting_fill}, .repeats = 1}, .now_ms = 5};
    w->fs = fetch_sessions_new(slots, &w->rng.rng);
    arena_init(&w->arena, SIZE_MAX);
}

static void world_stop(struct world *w)
{
    fetch_plan_end(&w->plan);
    fetch_sessions_free(w->fs);
    arena_fini(&w->arena);
}

/* One partition of a request, or one expected in a plan. */
struct tp {
    const char *topic;
    int32_t partition;
    int64_t offset;
};
#define TPS(...) ((const struct tp[]){__VA_ARGS__, {NULL, 0, 0}})
#define NO_TPS   ((const struct tp[]){{NULL, 0, 0}})

static struct uuid id_of(const char *topic)
{
    struct uuid id = UUID_ZERO;
    memcpy(id.bytes, topic, MIN(strlen(topic), sizeof id.bytes));
    return id;
}

/* A plan for a request; the memory of the request is gone when this returns, its arena is not. */
static void begin_plan(struct world *w, struct fetch_plan *plan, int32_t id, int32_t epoch, const struct tp *fetch,
                       const struct tp *forget)
{
    struct fetch_request_fetch_topic topics[PARTS_MAX];
    struct fetch_request_fetch_partition parts[PARTS_MAX];
    struct fetch_request_forgotten_topic forgotten[PARTS_MAX];
    int32_t forgotten_parts[PARTS_MAX];
    struct fetch_request in = fetch_request_default;
    in.session_id = id;
    in.session_epoch = epoch;
    in.topics = topics;
    in.forgotten_topics_data = forgotten;
    for (int32_t i = 0; fetch[i].topic; i++) {
        parts[i] = fetch_request_fetch_partition_default;
        parts[i].partition = fetch[i].partition;
        parts[i].fetch_offset = fetch[i].offset;
        parts[i].partition_max_bytes = 100;
        parts[i].current_leader_epoch = 7;
        topics[i] = (struct fetch_request_fetch_topic){.partitions = &parts[i], .partitions_count = 1};
        if (w->by_id)
            topics[i].topic_id = id_of(fetch[i].topic);
        else
            topics[i].topic = str_of(fetch[i].topic);
        in.topics_count++;
    }
    for (int32_t i = 0; forget[i].topic; i++) {
        forgotten_parts[i] = forget[i].partition;
        forgotten[i] = (struct fetch_request_forgotten_topic){.partitions = &forgotten_parts[i], .partitions_count = 1};
        if (w->by_id)
            forgotten[i].topic_id = id_of(forget[i].topic);
        else
            forgotten[i].topic = str_of(forget[i].topic);
        in.forgotten_topics_data_count++;
    }
    fetch_plan_begin(plan, w->fs, &in, w->by_id, w->replica, w->now_ms, &w->arena);
}

/* Ends the plan before, begins the next. */
static void begin(struct world *w, int32_t id, int32_t epoch, const struct tp *fetch, const struct tp *forget)
{
    fetch_plan_end(&w->plan);
    begin_plan(w, &w->plan, id, epoch, fetch, forget);
}

static void assert_items(const struct world *w, const struct tp *want)
{
    int32_t n = 0;
    for (; want[n].topic; n++) {
        assert_true(n < w->plan.count);
        const struct fetch_item *item = &w->plan.items[n];
        if (w->by_id) {
            assert_null(item->topic.data);
            assert_true(uuid_equal(item->topic_id, id_of(want[n].topic)));
        } else {
            assert_true(str_is(item->topic, want[n].topic));
            assert_true(uuid_is_zero(item->topic_id));
        }
        assert_int_equal(item->partition, want[n].partition);
        assert_int_equal(item->fetch_offset, want[n].offset);
        assert_int_equal(item->max_bytes, 100);
        assert_int_equal(item->current_leader_epoch, 7);
        assert_int_equal(item->last_fetched_epoch, -1);
    }
    assert_int_equal(w->plan.count, n);
}

static const struct fetch_found quiet = {.high_watermark = 10, .log_start = 0};

static bool include(struct world *w, int32_t i, struct fetch_found found)
{
    return fetch_plan_include(&w->plan, &w->plan.items[i], &found);
}

/* Tells the client all there is; returns how much that was. */
static int include_all(struct world *w)
{
    int named = 0;
    for (int32_t i = 0; i < w->plan.count; i++) named += include(w, i, quiet);
    return named;
}

/* A new session, told of all, with a look at what it answered; returns its id, or 0. */
static int32_t open_session(struct world *w, const struct tp *fetch)
{
    begin(w, 0, 0, fetch, NO_TPS);
    assert_int_equal(w->plan.kerr, KERR_NONE);
    assert_false(w->plan.incremental);
    assert_int_equal(include_all(w), w->plan.count);
    assert_int_equal(w->plan.kerr, KERR_NONE);
    return w->plan.session_id;
}

static void assert_refused(struct world *w, int32_t id, int32_t epoch, enum kerr want)
{
    begin(w, id, epoch, NO_TPS, NO_TPS);
    assert_int_equal(w->plan.kerr, want);
    assert_int_equal(w->plan.session_id, 0);
    assert_int_equal(w->plan.count, 0);
}

static bool is_alive(struct world *w, int32_t id, int32_t epoch)
{
    begin(w, id, epoch, NO_TPS, NO_TPS);
    return w->plan.kerr == KERR_NONE;
}

#define START(slots) \
    (void)state;     \
    struct world w;  \
    world_start(&w, slots)

/* ---- Opening, going on, closing */

static void a_full_fetch_reads_what_it_names_and_opens_a_session(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 1, 10}, {"bar", 0, 20}, {"foo", 0, 30}));
    assert_true(id > 0);
    assert_items(&w, TPS({"foo", 1, 10}, {"bar", 0, 20}, {"foo", 0, 30}));
    assert_int_equal(fetch_sessions_count(w.fs), 1);
    assert_ptr_equal(w.plan.items[0].topic.data, w.plan.items[2].topic.data); /* one copy a plan */
    world_stop(&w);
}

static void an_incremental_fetch_changes_adds_and_forgets_partitions(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"foo", 1, 10}, {"bar", 0, 10}));
    begin(&w, id, 1, TPS({"foo", 0, 55}, {"zap", 3, 1}), TPS({"foo", 1, 0}, {"never", 9, 0}, {"bar", 7, 0}));
    assert_true(w.plan.incremental);
    assert_int_equal(w.plan.session_id, id);
    assert_items(&w, TPS({"foo", 0, 55}, {"bar", 0, 10}, {"zap", 3, 1}));
    begin(&w, id, 2, TPS({"foo", 1, 9}), TPS({"foo", 0, 0}));
    assert_items(&w, TPS({"bar", 0, 10}, {"zap", 3, 1}, {"foo", 1, 9}));
    world_stop(&w);
}

static void a_partition_named_and_forgotten_at_once_is_forgotten(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    begin(&w, id, 1, TPS({"bar", 0, 1}), TPS({"bar", 0, 0}));
    assert_items(&w, TPS({"foo", 0, 10}));
    world_stop(&w);
}

static void a_partition_named_twice_is_in_the_session_once_with_what_came_last(void **state)
{
    START(2);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"foo", 1, 10}, {"foo", 0, 12}));
    assert_items(&w, TPS({"foo", 0, 12}, {"foo", 1, 10}));
    assert_true(is_alive(&w, id, 1));
    /* It counts as one of two partitions, not of three, when it is to be evicted. */
    int32_t three = open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1}, {"a", 2, 1}));
    begin(&w, id, -1, NO_TPS, NO_TPS);
    id = open_session(&w, TPS({"foo", 0, 10}, {"foo", 1, 10}, {"foo", 0, 12}, {"foo", 1, 12}));
    w.replica = true;
    assert_int_not_equal(open_session(&w, TPS({"foo", 0, 10})), 0);
    assert_refused(&w, id, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    w.replica = false;
    assert_true(is_alive(&w, three, 1));
    world_stop(&w);
}

static void an_epoch_other_than_the_next_is_refused_and_changes_nothing(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    assert_refused(&w, id, 2, KERR_INVALID_FETCH_SESSION_EPOCH);
    assert_refused(&w, id, -2, KERR_INVALID_FETCH_SESSION_EPOCH);
    assert_true(is_alive(&w, id, 1));
    begin(&w, id, 1, TPS({"foo", 0, 99}), NO_TPS);
    assert_int_equal(w.plan.kerr, KERR_INVALID_FETCH_SESSION_EPOCH);
    assert_true(is_alive(&w, id, 2));
    assert_items(&w, TPS({"foo", 0, 10}));
    world_stop(&w);
}

static void epochs_start_over_at_one(void **state)
{
    (void)state;
    assert_int_equal(fetch_session_epoch_after(FETCH_SESSION_EPOCH_INITIAL), 1);
    assert_int_equal(fetch_session_epoch_after(1), 2);
    assert_int_equal(fetch_session_epoch_after(INT32_MAX), 1);
}

static void an_unknown_session_is_refused(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    assert_refused(&w, id + 1, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_refused(&w, 0, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_refused(&w, -5, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_true(is_alive(&w, id, 1));
    world_stop(&w);
}

static void epoch_zero_with_an_id_closes_that_session_and_opens_another(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    begin(&w, id, 0, TPS({"bar", 0, 1}), TPS({"bar", 0, 0}));
    assert_items(&w, TPS({"bar", 0, 1}));
    assert_int_equal(include_all(&w), 1);
    int32_t next = w.plan.session_id;
    assert_int_not_equal(next, 0);
    assert_int_not_equal(next, id);
    assert_refused(&w, id, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_true(is_alive(&w, next, 1));
    assert_int_equal(fetch_sessions_count(w.fs), 1);
    world_stop(&w);
}

static void the_final_epoch_closes_the_session_and_opens_none(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    begin(&w, id, -1, TPS({"foo", 0, 11}), NO_TPS);
    assert_int_equal(w.plan.kerr, KERR_NONE);
    assert_int_equal(w.plan.session_id, 0);
    assert_false(w.plan.incremental);
    assert_items(&w, TPS({"foo", 0, 11}));
    assert_int_equal(include_all(&w), 1);
    assert_int_equal(fetch_sessions_count(w.fs), 0);
    begin(&w, 0, -1, TPS({"foo", 0, 12}), NO_TPS);
    assert_items(&w, TPS({"foo", 0, 12}));
    assert_int_equal(include_all(&w), 1);
    world_stop(&w);
}

static void an_empty_full_fetch_opens_no_session(void **state)
{
    START(10);
    begin(&w, 0, 0, NO_TPS, NO_TPS);
    assert_int_equal(w.plan.kerr, KERR_NONE);
    assert_int_equal(w.plan.session_id, 0);
    assert_int_equal(fetch_sessions_count(w.fs), 0);
    world_stop(&w);
}

static void forgetting_the_last_partition_closes_the_session(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"foo", 1, 10}));
    begin(&w, id, 1, NO_TPS, TPS({"foo", 0, 0}, {"foo", 1, 0}));
    assert_int_equal(w.plan.kerr, KERR_NONE);
    assert_int_equal(w.plan.session_id, 0);
    assert_false(w.plan.incremental);
    assert_int_equal(w.plan.count, 0);
    assert_int_equal(fetch_sessions_count(w.fs), 0);
    assert_refused(&w, id, 2, KERR_FETCH_SESSION_ID_NOT_FOUND);
    world_stop(&w);
}

static void a_session_that_its_client_was_not_told_of_is_closed(void **state)
{
    START(10);
    begin(&w, 0, 0, TPS({"foo", 0, 10}), NO_TPS);
    assert_int_not_equal(w.plan.session_id, 0);
    fetch_plan_end(&w.plan);
    assert_int_equal(fetch_sessions_count(w.fs), 0);
    world_stop(&w);
}

/* ---- Names and ids */

static void topics_named_by_id_keep_their_ids(void **state)
{
    START(10);
    w.by_id = true;
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"bar", 1, 20}));
    assert_items(&w, TPS({"foo", 0, 10}, {"bar", 1, 20}));
    begin(&w, id, 1, TPS({"bar", 1, 21}, {"zap", 0, 1}), TPS({"foo", 0, 0}));
    assert_items(&w, TPS({"bar", 1, 21}, {"zap", 0, 1}));
    /* The same topic created anew has another id, so it is another partition. */
    begin(&w, id, 2, TPS({"zap2", 0, 0}), NO_TPS);
    assert_items(&w, TPS({"bar", 1, 21}, {"zap", 0, 1}, {"zap2", 0, 0}));
    world_stop(&w);
}

static void a_session_does_not_change_between_names_and_ids(void **state)
{
    START(10);
    int32_t named = open_session(&w, TPS({"foo", 0, 10}));
    w.by_id = true;
    int32_t by_id = open_session(&w, TPS({"foo", 0, 10}));
    assert_refused(&w, named, 1, KERR_FETCH_SESSION_TOPIC_ID_ERROR);
    assert_refused(&w, named, 2, KERR_INVALID_FETCH_SESSION_EPOCH);
    w.by_id = false;
    assert_refused(&w, by_id, 1, KERR_FETCH_SESSION_TOPIC_ID_ERROR);
    assert_true(is_alive(&w, named, 1));
    world_stop(&w);
}

/* ---- What an answer names */

static void an_incremental_answer_names_only_what_has_news(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    struct {
        struct fetch_found found;
        bool named;
    } steps[] = {
        {{.high_watermark = 10}, false},
        {{.high_watermark = 11}, true},
        {{.high_watermark = 11}, false},
        {{.high_watermark = 11, .log_start = 3}, true},
        {{.high_watermark = 11, .log_start = 3}, false},
        {{.high_watermark = 11, .log_start = 3, .has_records = true}, true},
        {{.high_watermark = 11, .log_start = 3, .other_news = true}, true},
        {{.high_watermark = 11, .log_start = 3}, false},
        {{.high_watermark = 9, .log_start = 3}, true}, /* a new leader may know of less */
    };
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        begin(&w, id, (int32_t)i + 1, NO_TPS, NO_TPS);
        assert_int_equal(include(&w, 0, steps[i].found), steps[i].named);
        assert_int_equal(w.plan.kerr, KERR_NONE);
    }
    world_stop(&w);
}

static void an_added_partition_is_named_the_first_time(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    begin(&w, id, 1, TPS({"bar", 0, 0}), NO_TPS);
    assert_false(include(&w, 0, quiet));
    assert_true(include(&w, 1, (struct fetch_found){.high_watermark = 0}));
    begin(&w, id, 2, NO_TPS, NO_TPS);
    assert_false(include(&w, 1, (struct fetch_found){.high_watermark = 0}));
    /* Forgotten and named again, it is new again. */
    begin(&w, id, 3, NO_TPS, TPS({"bar", 0, 0}));
    begin(&w, id, 4, TPS({"bar", 0, 0}), NO_TPS);
    assert_true(include(&w, 1, (struct fetch_found){.high_watermark = 0}));
    world_stop(&w);
}

static void an_error_is_told_until_it_is_gone_and_then_its_end_is(void **state)
{
    START(10);
    const struct fetch_found failed = {.kerr = KERR_NOT_LEADER_OR_FOLLOWER, .high_watermark = 10};
    begin(&w, 0, 0, TPS({"foo", 0, 10}, {"foo", 1, 10}), NO_TPS);
    assert_true(include(&w, 0, failed));
    assert_true(include(&w, 1, quiet));
    int32_t id = w.plan.session_id;
    begin(&w, id, 1, NO_TPS, NO_TPS);
    assert_true(include(&w, 0, failed));
    assert_true(include(&w, 1, failed));
    begin(&w, id, 2, NO_TPS, NO_TPS);
    assert_int_equal(include_all(&w), 2);
    begin(&w, id, 3, NO_TPS, NO_TPS);
    assert_int_equal(include_all(&w), 0);
    world_stop(&w);
}

static void partitions_with_records_go_to_the_end(void **state)
{
    START(10);
    const struct fetch_found records = {.high_watermark = 10, .has_records = true};
    const struct fetch_found failed = {.kerr = KERR_UNKNOWN_SERVER_ERROR};
    begin(&w, 0, 0, TPS({"a", 0, 0}, {"b", 0, 0}, {"c", 0, 0}, {"a", 1, 0}), NO_TPS);
    int32_t id = w.plan.session_id;
    for (int i = 0; i < 4; i++) assert_true(include(&w, i, i ? quiet : records));
    begin(&w, id, 1, NO_TPS, NO_TPS); /* a full fetch leaves the order alone */
    assert_items(&w, TPS({"a", 0, 0}, {"b", 0, 0}, {"c", 0, 0}, {"a", 1, 0}));
    assert_true(include(&w, 0, records));
    assert_true(include(&w, 1, failed));
    assert_true(include(&w, 2, records));
    assert_false(include(&w, 3, quiet));
    begin(&w, id, 2, NO_TPS, NO_TPS);
    assert_items(&w, TPS({"b", 0, 0}, {"a", 1, 0}, {"a", 0, 0}, {"c", 0, 0}));
    assert_true(include(&w, 3, records));
    begin(&w, id, 3, TPS({"b", 0, 5}), NO_TPS); /* new parameters leave it alone, too */
    assert_items(&w, TPS({"b", 0, 5}, {"a", 1, 0}, {"a", 0, 0}, {"c", 0, 0}));
    world_stop(&w);
}

static void a_request_that_was_overtaken_is_told_so_as_it_answers(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"bar", 0, 10}));
    struct fetch_plan first;
    begin_plan(&w, &first, id, 1, TPS({"zap", 0, 10}), NO_TPS);
    begin(&w, id, 2, NO_TPS, TPS({"zap", 0, 0}, {"foo", 0, 0})); /* what `first` still reads */
    assert_true(str_is(first.items[0].topic, "foo"));
    assert_true(str_is(first.items[2].topic, "zap"));
    assert_false(fetch_plan_include(&first, &first.items[0], &(struct fetch_found){.high_watermark = 99}));
    assert_int_equal(first.kerr, KERR_INVALID_FETCH_SESSION_EPOCH);
    assert_int_equal(first.session_id, id);
    assert_false(fetch_plan_include(&first, &first.items[1], &(struct fetch_found){.high_watermark = 99}));
    fetch_plan_end(&first);
    assert_int_equal(include_all(&w), 0); /* "bar": the client knows of 10 */
    assert_int_equal(w.plan.kerr, KERR_NONE);
    assert_true(is_alive(&w, id, 3));
    world_stop(&w);
}

static void count_overtaken(void *arg)
{
    ++*(int *)arg;
}

static void a_request_that_waits_is_woken_once_when_it_is_overtaken(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    struct fetch_plan first;
    int woken = 0, woken_late = 0, woken_ended = 0;
    begin_plan(&w, &first, id, 1, NO_TPS, NO_TPS);
    fetch_plan_watch(&first, count_overtaken, &woken);
    assert_int_equal(woken, 0);
    begin(&w, id, 2, TPS({"bar", 0, 10}), NO_TPS);
    assert_int_equal(woken, 1);
    fetch_plan_watch(&first, count_overtaken, &woken_late); /* the other one came between reading and waiting */
    assert_int_equal(woken_late, 1);
    fetch_plan_end(&first);

    fetch_plan_watch(&w.plan, count_overtaken, &woken_ended);
    begin(&w, id, 3, NO_TPS, NO_TPS); /* it has ended the one before */
    assert_int_equal(woken_ended, 0);
    assert_int_equal(woken, 1);
    world_stop(&w);
}

static void forgetting_all_overtakes_what_is_still_read(void **state)
{
    START(10);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"bar", 0, 10}));
    struct fetch_plan first;
    int woken = 0;
    begin_plan(&w, &first, id, 1, NO_TPS, NO_TPS);
    fetch_plan_watch(&first, count_overtaken, &woken);
    begin(&w, id, 2, NO_TPS, TPS({"foo", 0, 0}, {"bar", 0, 0}));
    assert_int_equal(w.plan.session_id, 0);
    assert_int_equal(woken, 1);
    assert_false(fetch_plan_include(&first, &first.items[0], &quiet)); /* whose partition is gone */
    assert_int_equal(first.kerr, KERR_INVALID_FETCH_SESSION_EPOCH);
    fetch_plan_end(&first);
    world_stop(&w);
}

/* ---- The cache */

static void session_ids_are_never_those_in_use(void **state)
{
    START(10);
    w.rng.repeats = 3;
    int32_t ids[10];
    for (int i = 0; i < 10; i++) {
        ids[i] = open_session(&w, TPS({"foo", 0, 10}));
        assert_true(ids[i] > 0);
        for (int k = 0; k < i; k++) assert_int_not_equal(ids[i], ids[k]);
    }
    assert_int_equal(fetch_sessions_count(w.fs), 10);
    world_stop(&w);
}

static void a_cache_without_slots_has_no_sessions(void **state)
{
    START(0);
    assert_int_equal(open_session(&w, TPS({"foo", 0, 10})), 0);
    assert_items(&w, TPS({"foo", 0, 10}));
    world_stop(&w);
}

static void a_full_cache_keeps_its_young_sessions(void **state)
{
    START(2);
    int32_t a = open_session(&w, TPS({"foo", 0, 1}));
    int32_t b = open_session(&w, TPS({"foo", 0, 1}));
    assert_int_equal(open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}, {"foo", 2, 1})), 0);
    assert_items(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}, {"foo", 2, 1}));
    /* A closed one makes room. */
    begin(&w, a, -1, NO_TPS, NO_TPS);
    assert_int_not_equal(open_session(&w, TPS({"foo", 0, 1})), 0);
    assert_true(is_alive(&w, b, 1));
    world_stop(&w);
}

static void the_session_unused_for_longest_goes_after_two_minutes(void **state)
{
    START(2);
    int32_t a = open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}));
    w.now_ms += 10;
    int32_t b = open_session(&w, TPS({"foo", 0, 1}));
    w.now_ms += 10;
    assert_true(is_alive(&w, a, 1)); /* used again: now `b` is the older */
    w.now_ms += EVICTION_MS - 10;
    assert_int_equal(open_session(&w, TPS({"foo", 0, 1})), 0); /* `b` was unused for exactly two minutes */
    w.now_ms += 1;
    assert_int_not_equal(open_session(&w, TPS({"foo", 0, 1})), 0);
    assert_true(is_alive(&w, a, 2));
    assert_refused(&w, b, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    world_stop(&w);
}

static void a_bigger_session_evicts_the_smallest_that_is_old_enough(void **state)
{
    START(3);
    int32_t two = open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}));
    int32_t one = open_session(&w, TPS({"foo", 0, 1}));
    w.now_ms += EVICTION_MS;
    assert_true(is_alive(&w, two, 1) && is_alive(&w, one, 1));
    int32_t young = open_session(&w, TPS({"foo", 0, 1}));
    assert_int_equal(open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1}, {"a", 2, 1})), 0); /* exactly two minutes old */
    w.now_ms += 1;
    assert_int_equal(open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1}, {"a", 2, 1})), 0); /* and not used since */
    assert_true(is_alive(&w, two, 2) && is_alive(&w, one, 2) && is_alive(&w, young, 1));
    assert_int_equal(open_session(&w, TPS({"foo", 0, 1})), 0); /* no bigger than the smallest */
    assert_int_not_equal(open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1})), 0);
    assert_refused(&w, one, 3, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_int_equal(open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1})), 0);
    assert_int_not_equal(open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1}, {"a", 2, 1})), 0);
    assert_refused(&w, two, 3, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_true(is_alive(&w, young, 2));
    world_stop(&w);
}

static void a_session_that_grew_counts_as_big(void **state)
{
    START(2);
    int32_t grows = open_session(&w, TPS({"foo", 0, 1}));
    int32_t stays = open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}));
    w.now_ms += EVICTION_MS;
    assert_true(is_alive(&w, grows, 1) && is_alive(&w, stays, 1));
    w.now_ms += 1;
    begin(&w, grows, 2, TPS({"foo", 1, 1}, {"foo", 2, 1}), NO_TPS);
    assert_true(is_alive(&w, stays, 2));
    assert_int_not_equal(open_session(&w, TPS({"a", 0, 1}, {"a", 1, 1}, {"a", 2, 1}, {"a", 3, 1})), 0);
    assert_refused(&w, stays, 3, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_true(is_alive(&w, grows, 3));
    world_stop(&w);
}

static void a_replica_evicts_young_consumers_but_no_young_replica(void **state)
{
    START(2);
    int32_t big = open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}, {"foo", 2, 1}));
    int32_t small = open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1}));
    w.replica = true;
    int32_t first = open_session(&w, TPS({"foo", 0, 1}));
    assert_int_not_equal(first, 0);
    assert_refused(&w, small, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    int32_t second = open_session(&w, TPS({"foo", 0, 1}));
    assert_int_not_equal(second, 0);
    assert_refused(&w, big, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_int_equal(open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1})), 0);
    /* Old replicas: consumers evict none that is in use, bigger replicas do. */
    w.now_ms += EVICTION_MS;
    assert_true(is_alive(&w, first, 1) && is_alive(&w, second, 1));
    w.now_ms += 1;
    assert_true(is_alive(&w, first, 2) && is_alive(&w, second, 2));
    w.replica = false;
    assert_int_equal(open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1})), 0);
    w.replica = true;
    assert_int_equal(open_session(&w, TPS({"foo", 0, 1})), 0);
    assert_int_not_equal(open_session(&w, TPS({"foo", 0, 1}, {"foo", 1, 1})), 0);
    assert_int_equal(is_alive(&w, first, 3) + is_alive(&w, second, 3), 1);
    /* Unused for long enough, anybody's goes. */
    w.replica = false;
    w.now_ms += EVICTION_MS + 1;
    assert_int_not_equal(open_session(&w, TPS({"foo", 0, 1})), 0);
    world_stop(&w);
}

static void many_sessions_are_evicted_smallest_first(void **state)
{
    enum { COUNT = 50 };
    START(COUNT);
    const struct tp all[] = {{"t", 0, 1}, {"t", 1, 1}, {"t", 2, 1}, {"t", 3, 1}, {"t", 4, 1}, {NULL, 0, 0}};
    int32_t ids[COUNT], sizes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sizes[i] = 1 + i * 7 % 5;
        ids[i] = open_session(&w, all + 5 - sizes[i]);
    }
    w.replica = true;
    for (int smallest = 1; smallest <= 5; smallest++)
        for (int n = 0; n < COUNT / 5; n++) {
            int gone = 0;
            assert_int_not_equal(open_session(&w, all), 0);
            for (int i = 0; i < COUNT; i++) {
                /* A wrong epoch tells one that is there from one that is not, and does not use it. */
                begin(&w, ids[i], 77, NO_TPS, NO_TPS);
                if (w.plan.kerr != KERR_FETCH_SESSION_ID_NOT_FOUND) continue;
                gone++;
                assert_true(sizes[i] <= smallest);
            }
            assert_int_equal(gone, (smallest - 1) * COUNT / 5 + n + 1);
        }
    assert_int_equal(fetch_sessions_count(w.fs), COUNT);
    world_stop(&w);
}

static void a_plan_outlives_the_eviction_of_its_session(void **state)
{
    START(1);
    int32_t id = open_session(&w, TPS({"foo", 0, 10}, {"bar", 0, 10}));
    struct fetch_plan pinned;
    begin_plan(&w, &pinned, id, 1, NO_TPS, NO_TPS);
    w.replica = true;
    int32_t next = open_session(&w, TPS({"foo", 0, 10}));
    assert_int_not_equal(next, 0);
    assert_refused(&w, id, 2, KERR_FETCH_SESSION_ID_NOT_FOUND);
    assert_true(str_is(pinned.items[1].topic, "bar"));
    assert_true(fetch_plan_include(&pinned, &pinned.items[0], &(struct fetch_found){.high_watermark = 11}));
    assert_false(fetch_plan_include(&pinned, &pinned.items[1], &quiet));
    assert_int_equal(pinned.kerr, KERR_NONE);
    fetch_plan_end(&pinned);
    assert_true(is_alive(&w, next, 1));
    world_stop(&w);
}

/* ---- Limits */

/* `count` partitions from `first` on, of topics with names of `name_size` bytes. */
static void begin_big(struct world *w, int32_t id, int32_t epoch, int32_t first, int32_t count, size_t name_size)
{
    fetch_plan_end(&w->plan);
    arena_reset(&w->arena);
    bool many_topics = name_size > 0;
    int32_t topics_count = many_topics ? count : 1;
    struct fetch_request in = fetch_request_default;
    in.session_id = id;
    in.session_epoch = epoch;
    in.topics_count = topics_count;
    in.topics = arena_array(&w->arena, struct fetch_request_fetch_topic, (size_t)topics_count);
    struct fetch_request_fetch_partition *parts =
        arena_array(&w->arena, struct fetch_request_fetch_partition, (size_t)count);
    for (int32_t i = 0; i < count; i++) parts[i].partition = first + i;
    in.topics[0] =
        (struct fetch_request_fetch_topic){.topic = STR("t"), .partitions = parts, .partitions_count = count};
    for (int32_t i = 0; many_topics && i < count; i++) {
        char *name = arena_alloc(&w->arena, name_size + 16);
        memset(name, 'x', name_size);
        snprintf(name, 16, "%015d", first + i);
        in.topics[i] = (struct fetch_request_fetch_topic){.topic = {name, name_size}, .partitions = &parts[i]};
        in.topics[i].partitions_count = 1;
    }
    fetch_plan_begin(&w->plan, w->fs, &in, w->by_id, w->replica, w->now_ms, &w->arena);
}

static void a_session_has_a_limit_of_partitions(void **state)
{
    START(10);
    begin_big(&w, 0, 0, 0, FETCH_SESSION_PARTITIONS_MAX + 1, 0);
    assert_int_equal(w.plan.session_id, 0);
    assert_int_equal(w.plan.count, FETCH_SESSION_PARTITIONS_MAX + 1);
    begin_big(&w, 0, 0, 0, FETCH_SESSION_PARTITIONS_MAX, 0);
    int32_t id = w.plan.session_id;
    assert_int_not_equal(id, 0);
    assert_int_equal(include_all(&w), FETCH_SESSION_PARTITIONS_MAX);
    begin_big(&w, id, 1, FETCH_SESSION_PARTITIONS_MAX, 1, 0); /* answered; its client hears with the next */
    assert_int_equal(w.plan.kerr, KERR_NONE);
    assert_int_equal(w.plan.count, FETCH_SESSION_PARTITIONS_MAX + 1);
    assert_int_equal(include_all(&w), 1);
    assert_refused(&w, id, 2, KERR_FETCH_SESSION_ID_NOT_FOUND);
    world_stop(&w);
}

static void all_sessions_together_have_a_limit_of_memory(void **state)
{
    enum { NAME_SIZE = 32000, HALF = FETCH_SESSIONS_BYTES_MIN / NAME_SIZE / 2 };
    START(10);
    begin_big(&w, 0, 0, 0, HALF, NAME_SIZE);
    int32_t a = w.plan.session_id;
    assert_int_not_equal(a, 0);
    include_all(&w);
    w.now_ms += 1;
    begin_big(&w, 0, 0, 0, HALF - 10, NAME_SIZE);
    int32_t b = w.plan.session_id;
    assert_int_not_equal(b, 0);
    include_all(&w);
    begin_big(&w, 0, 0, 0, 20, NAME_SIZE);
    assert_int_equal(w.plan.session_id, 0);
    assert_int_equal(w.plan.count, 20);
    /* Who grows past it is closed; the others stay. */
    begin_big(&w, b, 1, HALF, 20, NAME_SIZE);
    assert_int_equal(w.plan.kerr, KERR_NONE);
    assert_int_equal(w.plan.count, HALF + 10);
    assert_refused(&w, b, 2, KERR_FETCH_SESSION_ID_NOT_FOUND);
    /* Sessions that nobody uses give way. */
    w.now_ms += EVICTION_MS;
    begin_big(&w, 0, 0, 0, HALF + 20, NAME_SIZE);
    assert_int_not_equal(w.plan.session_id, 0);
    assert_refused(&w, a, 1, KERR_FETCH_SESSION_ID_NOT_FOUND);
    world_stop(&w);
}

static void a_topic_that_comes_and_goes_takes_no_memory(void **state)
{
    START(1);
    enum { NAME_SIZE = 32000 };
    int32_t id = open_session(&w, TPS({"foo", 0, 10}));
    for (int32_t i = 0; i < 2 * FETCH_SESSIONS_BYTES_MIN / NAME_SIZE; i++) {
        begin_big(&w, id, 2 * i + 1, i, 1, NAME_SIZE);
        assert_int_equal(w.plan.count, 2);
        struct fetch_request in = fetch_request_default;
        struct fetch_request_forgotten_topic forgotten = {
            .topic = w.plan.items[1].topic, .partitions = &w.plan.items[1].partition, .partitions_count = 1};
        in.session_id = id;
        in.session_epoch = 2 * i + 2;
        in.forgotten_topics_data = &forgotten;
        in.forgotten_topics_data_count = 1;
        fetch_plan_end(&w.plan);
        fetch_plan_begin(&w.plan, w.fs, &in, false, false, w.now_ms, &w.arena);
        assert_int_equal(w.plan.kerr, KERR_NONE);
        assert_int_equal(w.plan.count, 1);
    }
    world_stop(&w);
}

/* ---- Threads */

struct client {
    pthread_t thread;
    struct fetch_sessions *fs;
    _Atomic int32_t *shared_id; /* a session that all clients use */
    _Atomic int answered;
    int seed;
};

static void client_fetch(struct client *c, struct fetch_plan *plan, int32_t id, int32_t epoch, struct arena *arena)
{
    struct fetch_request_fetch_partition parts[3] = {{.partition = 0}, {.partition = 1}, {.partition = 2 + c->seed}};
    struct fetch_request_fetch_topic topic = {.topic = STR("foo"), .partitions = parts, .partitions_count = 3};
    int32_t gone = 2 + c->seed;
    struct fetch_request_forgotten_topic forgotten = {
        .topic = STR("foo"), .partitions = &gone, .partitions_count = epoch % 2};
    struct fetch_request in = fetch_request_default;
    in.session_id = id;
    in.session_epoch = epoch;
    in.topics = &topic;
    in.topics_count = 1;
    in.forgotten_topics_data = &forgotten;
    in.forgotten_topics_data_count = 1;
    fetch_plan_begin(plan, c->fs, &in, false, c->seed == 0, epoch, arena);
    for (int32_t i = 0; i < plan->count; i++) {
        assert_true(str_is(plan->items[i].topic, "foo"));
        fetch_plan_include(plan, &plan->items[i],
                           &(struct fetch_found){.high_watermark = epoch, .has_records = i == 0});
    }
}

static void client_run(void *arg)
{
    struct client *c = arg;
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct fetch_plan plan;
    int32_t own = 0, own_epoch = 0, shared = 0, shared_epoch = 0;
    for (int i = 0; i < 3000; i++) {
        arena_reset(&arena);
        client_fetch(c, &plan, own, own_epoch, &arena);
        own_epoch = plan.kerr || !plan.session_id ? 0 : own_epoch + 1;
        own = plan.session_id;
        fetch_plan_end(&plan);

        int32_t id = atomic_load(c->shared_id);
        if (id != shared) shared_epoch = 1;
        shared = id;
        client_fetch(c, &plan, shared, shared_epoch, &arena);
        if (plan.kerr == KERR_FETCH_SESSION_ID_NOT_FOUND) {
            fetch_plan_end(&plan);
            client_fetch(c, &plan, 0, 0, &arena);
            if (plan.session_id) atomic_store(c->shared_id, plan.session_id);
        } else {
            c->answered += plan.kerr == KERR_NONE;
            shared_epoch++;
        }
        fetch_plan_end(&plan);
    }
    arena_fini(&arena);
}

static void sessions_may_be_used_and_evicted_by_many_threads(void **state)
{
    START(3);
    enum { CLIENTS = 4 };
    struct client clients[CLIENTS] = {0};
    _Atomic int32_t shared_id = open_session(&w, TPS({"foo", 0, 0}));
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].fs = w.fs;
        clients[i].shared_id = &shared_id;
        clients[i].seed = i;
        assert_int_equal(thread_start(&clients[i].thread, "client", client_run, &clients[i], NULL), OK);
    }
    int answered = 0;
    for (int i = 0; i < CLIENTS; i++) {
        thread_join(clients[i].thread);
        answered += clients[i].answered;
    }
    assert_true(answered > 0);
    assert_true(fetch_sessions_count(w.fs) <= 3);
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_fetch_reads_what_it_names_and_opens_a_session),
        cmocka_unit_test(an_incremental_fetch_changes_adds_and_forgets_partitions),
        cmocka_unit_test(a_partition_named_and_forgotten_at_once_is_forgotten),
        cmocka_unit_test(a_partition_named_twice_is_in_the_session_once_with_what_came_last),
        cmocka_unit_test(an_epoch_other_than_the_next_is_refused_and_changes_nothing),
        cmocka_unit_test(epochs_start_over_at_one),
        cmocka_unit_test(an_unknown_session_is_refused),
        cmocka_unit_test(epoch_zero_with_an_id_closes_that_session_and_opens_another),
        cmocka_unit_test(the_final_epoch_closes_the_session_and_opens_none),
        cmocka_unit_test(an_empty_full_fetch_opens_no_session),
        cmocka_unit_test(forgetting_the_last_partition_closes_the_session),
        cmocka_unit_test(a_session_that_its_client_was_not_told_of_is_closed),
        cmocka_unit_test(topics_named_by_id_keep_their_ids),
        cmocka_unit_test(a_session_does_not_change_between_names_and_ids),
        cmocka_unit_test(an_incremental_answer_names_only_what_has_news),
        cmocka_unit_test(an_added_partition_is_named_the_first_time),
        cmocka_unit_test(an_error_is_told_until_it_is_gone_and_then_its_end_is),
        cmocka_unit_test(partitions_with_records_go_to_the_end),
        cmocka_unit_test(a_request_that_was_overtaken_is_told_so_as_it_answers),
        cmocka_unit_test(a_request_that_waits_is_woken_once_when_it_is_overtaken),
        cmocka_unit_test(forgetting_all_overtakes_what_is_still_read),
        cmocka_unit_test(session_ids_are_never_those_in_use),
        cmocka_unit_test(a_cache_without_slots_has_no_sessions),
        cmocka_unit_test(a_full_cache_keeps_its_young_sessions),
        cmocka_unit_test(the_session_unused_for_longest_goes_after_two_minutes),
        cmocka_unit_test(a_bigger_session_evicts_the_smallest_that_is_old_enough),
        cmocka_unit_test(a_session_that_grew_counts_as_big),
        cmocka_unit_test(a_replica_evicts_young_consumers_but_no_young_replica),
        cmocka_unit_test(many_sessions_are_evicted_smallest_first),
        cmocka_unit_test(a_plan_outlives_the_eviction_of_its_session),
        cmocka_unit_test(a_session_has_a_limit_of_partitions),
        cmocka_unit_test(all_sessions_together_have_a_limit_of_memory),
        cmocka_unit_test(a_topic_that_comes_and_goes_takes_no_memory),
        cmocka_unit_test(sessions_may_be_used_and_evicted_by_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
