/* group/replay, group/transactions: a shard out of its log, also one that Kafka wrote, that is compacted, or that has
 * records in it which nobody knows. */
#include "group_log.h"

#include "wire/batch.h"
#include "wire/gen/offset_commit_key.h"
#include "wire/gen/offset_commit_value.h"

/* ---- Logs made by hand */

static struct bytes offset_key(struct world *w, const char *group, const char *topic, int32_t partition)
{
    struct offset_commit_key k = {str_of(group), str_of(topic), partition};
    return encoded(w, &offset_commit_key_schema, &k, 0);
}

static struct bytes offset_value(struct world *w, int64_t offset, int16_t version)
{
    struct offset_commit_value v = offset_commit_value_default;
    v.offset = offset;
    v.metadata = STR("note");
    v.commit_timestamp = START_MS;
    return encoded(w, &offset_commit_value_schema, &v, version);
}

/* An offset of "g", "t"-0; -1 for a tombstone, by a producer's transaction unless that is -1, too. */
static void log_offset(struct world *w, int64_t producer_id, int64_t offset)
{
    struct bytes value = offset < 0 ? (struct bytes){NULL, 0} : offset_value(w, offset, 3);
    log_append(w, (struct entry){ENTRY_RECORD, producer_id, offset_key(w, "g", "t", 0), value});
}

static void log_marker(struct world *w, int64_t producer_id, enum entry_kind kind)
{
    log_append(w, (struct entry){.kind = kind, .producer_id = producer_id});
}

static int64_t reloaded(struct world *w)
{
    log_reload(w);
    return committed(w, "g", "t", 0);
}

static enum err replay(struct world *w, struct bytes key, struct bytes value)
{
    struct group_replay at = {.offset = 1, .producer_id = -1};
    return group_shard_replay(w->sh, &at, key, value);
}

/* A shard that still replays. */
static void start_replaying(struct world *w)
{
    world_start(w);
    shard_end(w);
    shard_make(w);
}

/* ---- Records that Kafka wrote */

static size_t file_read(const char *path, uint8_t *out, size_t size_max)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(out, 1, size_max, f);
    fclose(f);
    return size;
}

static void test_the_group_in_kafkas_directory_is_there(void **state)
{
    (void)state;
    struct world w;
    start_replaying(&w);
    uint8_t log[1024];
    size_t size = file_read("tests/data/kafka39/__consumer_offsets-0/00000000000000000000.log", log, sizeof log);
    struct record_iter it;
    assert_int_equal(record_iter_init(&it, log, size, 0), OK);
    assert_int_equal(it.info.size, size);
    for (struct record rec; record_iter_next(&it, &rec) == OK;) {
        struct group_replay at = {rec.offset, rec.timestamp, it.info.producer_id, false};
        assert_int_equal(group_shard_replay(w.sh, &at, rec.key, rec.value), OK);
    }
    record_iter_fini(&it);
    group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
    assert_string_equal(world_dump(&w), "readers Empty \"\" \"\" generation 0 since 0\n"
                                        "readers codec-gzip-0 at 42 epoch -1 \"\"\n"
                                        "readers codec-none-0 at 7 epoch -1 \"meta-0\"\n"
                                        "readers codec-none-1 at 17 epoch -1 \"meta-1\"\n"
                                        "readers codec-none-2 at 27 epoch -1 \"meta-2\"\n");
    world_stop(&w);
}

static void test_every_version_of_an_offset_is_read(void **state)
{
    (void)state;
    for (int16_t version = 0; version <= 4; version++) {
        struct world w;
        start_replaying(&w);
        assert_int_equal(replay(&w, offset_key(&w, "g", "t", 0), offset_value(&w, 7, version)), OK);
        group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
        assert_int_equal(committed(&w, "g", "t", 0), 7);
        assert_true(str_is(fetch(&w, "g", "t", 0).metadata, "note"));
        world_stop(&w);
    }
}

static void test_an_offset_of_the_oldest_kind_is_one_like_any(void **state)
{
    (void)state;
    struct world w;
    start_replaying(&w);
    struct bytes key = offset_key(&w, "g", "t", 0);
    put_be16((uint8_t *)(uintptr_t)key.data, 0);
    assert_int_equal(replay(&w, key, offset_value(&w, 7, 0)), OK);
    group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_stop(&w);
}

static void test_every_version_of_a_group_is_read(void **state)
{
    (void)state;
    for (int16_t version = 0; version <= 4; version++) {
        struct world w;
        world_start(&w);
        const struct member *members =
            MEMBERS({"m1", version >= 3 ? "i1" : NULL, "c1", bytes_of("sub"), bytes_of("part")});
        log_has_group_as(&w, &(struct group_spec){"g", "consumer", "range", 5, version >= 2 ? START_MS : -1, members},
                         version);
        const struct describe_groups_response_described_group *g = &describe_as(&w, "g", 5, false)->out.describe;
        assert_true(str_is(g->group_state, "Stable"));
        assert_int_equal(g->members_count, 1);
        assert_true(str_is(g->members[0].group_instance_id, version >= 3 ? "i1" : NULL));
        assert_int_equal(group_find(w.sh, STR("g"))->members->rebalance_timeout_ms, MINUTE_MS);
        world_stop(&w);
    }
}

/* ---- The order of the log */

static void test_the_later_record_wins(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, -1, 10);
    log_offset(&w, -1, 5);
    assert_int_equal(reloaded(&w), 5);
    world_stop(&w);
}

static void test_a_tombstone_removes_and_a_later_record_is_back(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, -1, 10);
    log_offset(&w, -1, -1);
    assert_int_equal(reloaded(&w), -1);
    assert_int_equal(group_shard_count(w.sh), 0);
    log_offset(&w, -1, 3);
    assert_int_equal(reloaded(&w), 3);
    world_stop(&w);
}

static void test_the_last_record_of_a_group_is_the_group(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS,
                                           MEMBERS({.id = "m1"}, {.id = "m2", .instance_id = "i"})});
    log_has_group(&w, &(struct group_spec){"g", "consumer", "sticky", 6, START_MS + 1,
                                           MEMBERS({.id = "m3", .instance_id = "i"})});
    assert_string_equal(world_dump(&w), "g Stable \"consumer\" \"sticky\" generation 6 since 10000001\n"
                                        "g member m3 instance i of client sent  got \n");
    log_has_group(&w, &(struct group_spec){"g", "consumer", NULL, 7, START_MS + 2, NULL});
    assert_string_equal(world_dump(&w), "g Empty \"consumer\" \"\" generation 7 since 10000002\n");
    world_stop(&w);
}

static void test_a_groups_tombstone_leaves_its_offsets(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, -1, 10);
    log_has_group(&w, &(struct group_spec){"g", "consumer", "range", 5, START_MS, MEMBERS({.id = "m1"})});
    struct bytes key = w.log[w.log_count - 1].key;
    log_append(&w, (struct entry){ENTRY_RECORD, -1, key, {NULL, 0}});
    log_reload(&w);
    assert_string_equal(world_dump(&w), "g Empty \"\" \"\" generation 0 since 0\n"
                                        "g t-0 at 10 epoch -1 \"note\"\n");
    log_offset(&w, -1, -1);
    log_reload(&w);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

/* ---- Transactions */

static void test_a_transaction_counts_when_it_commits(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, -1, 10);
    log_offset(&w, 77, 20);
    assert_int_equal(reloaded(&w), 10);
    log_marker(&w, 78, ENTRY_COMMIT); /* somebody else's */
    assert_int_equal(reloaded(&w), 10);
    log_marker(&w, 77, ENTRY_COMMIT);
    assert_int_equal(reloaded(&w), 20);
    world_stop(&w);
}

static void test_an_aborted_transaction_never_counts(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_marker(&w, 77, ENTRY_ABORT);
    log_marker(&w, 77, ENTRY_COMMIT); /* the producer's next one, which is empty */
    assert_int_equal(reloaded(&w), -1);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

static void test_a_later_plain_commit_beats_the_transaction_that_ends_behind_it(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_offset(&w, -1, 30);
    log_marker(&w, 77, ENTRY_COMMIT);
    assert_int_equal(reloaded(&w), 30);
    world_stop(&w);
}

static void test_of_two_transactions_the_later_record_wins_not_the_later_marker(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_offset(&w, 78, 30);
    log_marker(&w, 78, ENTRY_COMMIT);
    log_marker(&w, 77, ENTRY_COMMIT);
    assert_int_equal(reloaded(&w), 30);
    world_stop(&w);
}

static void test_a_tombstone_in_a_transaction_takes_back_what_it_was_going_to_commit(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, -1, 10);
    log_offset(&w, 77, 20);
    log_offset(&w, 77, -1);
    log_marker(&w, 77, ENTRY_COMMIT);
    assert_int_equal(reloaded(&w), 10);
    world_stop(&w);
}

static void test_a_tombstone_beats_older_records_of_open_transactions(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_offset(&w, -1, 10);
    log_offset(&w, -1, -1);
    log_marker(&w, 77, ENTRY_COMMIT);
    assert_int_equal(reloaded(&w), -1);
    log_reload_as(&w, true); /* and so it is when compaction has left the tombstone alone */
    assert_int_equal(committed(&w, "g", "t", 0), -1);
    world_stop(&w);
}

static void test_an_open_transaction_makes_an_offset_unstable_after_loading(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, -1, 10);
    log_offset(&w, 77, 20);
    log_reload(&w);
    assert_int_equal(fetch_as(&w, "g", "t", 0, true).error_code, KERR_UNSTABLE_OFFSET_COMMIT);
    assert_int_equal(fetch_as(&w, "g", "t", 1, true).error_code, KERR_NONE);
    assert_int_equal(committed(&w, "g", "t", 0), 10);
    group_shard_replay_marker(w.sh, 77, true); /* as its end will come later */
    assert_int_equal(fetch_as(&w, "g", "t", 0, true).committed_offset, 20);
    world_stop(&w);
}

static void test_a_commit_after_loading_is_newer_than_any_open_transaction(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_reload(&w);
    commit(&w, "g", PARTS({"t", 0, 30}));
    log_safe(&w);
    group_shard_replay_marker(w.sh, 77, true);
    assert_int_equal(committed(&w, "g", "t", 0), 30);
    world_stop(&w);
}

static void test_a_producers_transaction_may_span_groups(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_append(&w, (struct entry){ENTRY_RECORD, 77, offset_key(&w, "h", "u", 3), offset_value(&w, 5, 3)});
    log_marker(&w, 77, ENTRY_COMMIT);
    log_offset(&w, 77, 21); /* its next */
    assert_int_equal(reloaded(&w), 20);
    assert_int_equal(committed(&w, "h", "u", 3), 5);
    world_stop(&w);
}

static void test_deleting_a_group_deletes_what_its_transactions_would_commit(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    log_offset(&w, 77, 20);
    log_reload(&w);
    struct asked *a = delete_group(&w, "g");
    log_safe(&w);
    assert_int_equal(a->out.delete.error_code, KERR_NONE);
    assert_int_equal(group_shard_count(w.sh), 0);
    log_marker(&w, 77, ENTRY_COMMIT);
    assert_int_equal(reloaded(&w), -1);
    world_stop(&w);
}

/* ---- Records that cannot be taken in */

static struct bytes bytes_of_hex(struct world *w, const char *hex)
{
    size_t size = strlen(hex) / 2;
    uint8_t *b = arena_alloc(&w->arena, size + 1);
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        b[i] = (uint8_t)byte;
    }
    return (struct bytes){b, size};
}

static void test_records_of_the_newer_protocols_are_skipped_and_their_offsets_are_not(void **state)
{
    (void)state;
    struct world w;
    start_replaying(&w);
    struct bytes value = bytes_of_hex(&w, "0000000000");
    for (int type = 3; type < 30; type++) {
        char hex[32];
        snprintf(hex, sizeof hex, "%04x000167", type);
        assert_int_equal(replay(&w, bytes_of_hex(&w, hex), value), OK);
        assert_int_equal(replay(&w, bytes_of_hex(&w, hex), (struct bytes){NULL, 0}), OK);
    }
    assert_int_equal(HASH_COUNT(w.sh->skipped), 1); /* warned of once */
    assert_int_equal(replay(&w, bytes_of_hex(&w, "0003"), value), OK);
    assert_int_equal(replay(&w, bytes_of_hex(&w, "ffff"), value), OK);
    assert_int_equal(replay(&w, offset_key(&w, "g", "t", 0), offset_value(&w, 7, 3)), OK);
    group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
    assert_int_equal(group_shard_count(w.sh), 1);
    assert_int_equal(committed(&w, "g", "t", 0), 7);
    world_stop(&w);
}

static void test_a_value_of_an_unknown_version_changes_nothing(void **state)
{
    (void)state;
    struct world w;
    start_replaying(&w);
    assert_int_equal(replay(&w, offset_key(&w, "g", "t", 0), offset_value(&w, 7, 3)), OK);
    assert_int_equal(replay(&w, offset_key(&w, "g", "t", 0), bytes_of_hex(&w, "00050000")), OK);
    assert_int_equal(replay(&w, offset_key(&w, "g", "t", 0), bytes_of_hex(&w, "ffff0000")), OK);
    assert_int_equal(replay(&w, bytes_of_hex(&w, "0002000167"), bytes_of_hex(&w, "00050000")), OK);
    group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
    assert_string_equal(world_dump(&w), "g Empty \"\" \"\" generation 0 since 0\n"
                                        "g t-0 at 7 epoch -1 \"note\"\n");
    world_stop(&w);
}

static void test_a_record_that_cannot_be_read_is_told_of_and_the_next_one_counts(void **state)
{
    (void)state;
    struct world w;
    start_replaying(&w);
    struct bytes good = offset_value(&w, 7, 3), null = {NULL, 0};
    static const char *const bad_keys[] = {"", "00", "0001", "0001000567", "000100016700017400", "0002", "0002ffff"};
    for (size_t i = 0; i < ARRAY_COUNT(bad_keys); i++)
        assert_int_equal(replay(&w, bytes_of_hex(&w, bad_keys[i]), good), ERR_CORRUPT);
    assert_int_equal(replay(&w, null, good), ERR_CORRUPT);
    struct bytes key = offset_key(&w, "g", "t", 0);
    for (size_t size = 0; size < good.size; size++)
        assert_int_equal(replay(&w, key, (struct bytes){good.data, size}), ERR_CORRUPT);
    assert_int_equal(replay(&w, bytes_of_hex(&w, "0002000167"), bytes_of_hex(&w, "0003000a")), ERR_CORRUPT);
    assert_int_equal(replay(&w, offset_key(&w, "g", "t", 1), good), OK);
    group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
    assert_string_equal(world_dump(&w), "g Empty \"\" \"\" generation 0 since 0\n"
                                        "g t-1 at 7 epoch -1 \"note\"\n");
    world_stop(&w);
}

/* Nothing could find them again, and answers that have them could not be read. */
static void test_names_that_no_request_could_have_are_told_of_and_skipped(void **state)
{
    (void)state;
    static const char *const bad_groups[] = {"00020003610062", "00020001ff"};
    struct world w;
    start_replaying(&w);
    struct bytes good = offset_value(&w, 7, 3);
    for (size_t i = 0; i < ARRAY_COUNT(bad_groups); i++)
        assert_int_equal(replay(&w, bytes_of_hex(&w, bad_groups[i]), (struct bytes){NULL, 0}), ERR_CORRUPT);
    assert_int_equal(replay(&w, offset_key(&w, "\xff", "t", 0), good), ERR_CORRUPT);
    assert_int_equal(replay(&w, offset_key(&w, "g", "\xff", 0), good), ERR_CORRUPT);
    world_stop(&w);
}

/* A member without an id would be found by whoever says none, and by a record that names no leader. */
static void test_a_group_with_a_member_that_has_no_id_or_no_text_is_skipped(void **state)
{
    (void)state;
    static const struct str bad[] = {{"", 0}, {"m\0", 2}, {"\xff", 1}};
    struct world w;
    start_replaying(&w);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct group_metadata_value_member_metadata m = group_metadata_value_member_metadata_default;
        m.member_id = bad[i];
        struct group_metadata_value v = group_metadata_value_default;
        v.protocol = v.leader = STR_NULL;
        v.members = &m;
        v.members_count = 1;
        struct bytes value = encoded(&w, &group_metadata_value_schema, &v, 3);
        assert_int_equal(replay(&w, bytes_of_hex(&w, "0002000167"), value), ERR_CORRUPT);
    }
    group_shard_loaded(w.sh, w.mono_ms, w.wall_ms);
    assert_int_equal(group_shard_count(w.sh), 0);
    world_stop(&w);
}

/* ---- Whatever happens, what is safe is what is read back */

static uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

static const char *random_of(uint64_t *seed, const char *const *names, uint32_t count)
{
    return names[random_below(seed, count)];
}

static const char *const groups[] = {"a", "b", "c", "d"};
static const char *const topics[] = {"t", "u", "v"};
static const char *const notes[] = {NULL, "", "note", "12345678"};

/* No version of the protocol has a retention time and a leader epoch, and no version of the record. */
static void random_commit(struct world *w, uint64_t *seed)
{
    struct part parts[4] = {{.topic = NULL}};
    uint32_t count = 1 + random_below(seed, 3);
    int64_t retention_ms = random_below(seed, 4) ? 0 : random_below(seed, 3000);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = (struct part){random_of(seed, topics, 3), (int32_t)random_below(seed, 3), random_below(seed, 1000),
                                 random_of(seed, notes, 4), retention_ms ? -1 : (int32_t)random_below(seed, 4) - 1};
    commit_as(w,
              &(struct commit_spec){
                  .group = random_of(seed, groups, 4), .generation = -1, .retention_ms = retention_ms, .parts = parts});
}

/* A group that members have been in, or are; empty ones can be deleted. */
static void random_group(struct world *w, uint64_t *seed)
{
    static const struct member members[] = {
        {"m1", "i1", "c1", {(const uint8_t *)"sub", 3}, {(const uint8_t *)"part", 4}}, {.id = "m2"}, {.id = NULL}};
    if (w->pending_count > 0) return; /* a reload would lose it */
    bool empty = random_below(seed, 2) == 0;
    log_has_group(w, &(struct group_spec){random_of(seed, groups, 4), "consumer", empty ? NULL : "range",
                                          1 + (int32_t)random_below(seed, 9), w->wall_ms, empty ? NULL : members});
}

static void random_step(struct world *w, uint64_t *seed)
{
    switch (random_below(seed, 12)) {
    case 0: random_group(w, seed); break;
    case 1: delete_group(w, random_of(seed, groups, 4)); break;
    case 2:
        delete_offsets(w, random_of(seed, groups, 4), PARTS({random_of(seed, topics, 3), 0}, {topics[0], 1}));
        break;
    case 3: group_shard_forget_topic(w->sh, str_of(random_of(seed, topics, 3))); break;
    case 4: group_shard_expire(w->sh); break;
    case 5: world_age(w, random_below(seed, 1000)); break;
    case 6:
    case 7:
        if (w->pending_count > 0) log_safe_one(w);
        break;
    case 8:
        if (w->pending_count > 0) log_fail_one(w, KERR_NOT_ENOUGH_REPLICAS);
        break;
    default: random_commit(w, seed); break;
    }
}

static void check_reads_back(struct world *w, uint64_t seed)
{
    static const bool compacted[] = {false, true};
    log_safe(w);
    const char *before = world_dump(w);
    for (int i = 0; i < 2; i++) {
        log_reload_as(w, compacted[i]);
        const char *after = world_dump(w);
        if (strcmp(before, after) != 0)
            fail_msg("seed %llu, %s:\n%sis read back as\n%s", (unsigned long long)seed,
                     compacted[i] ? "compacted" : "whole", before, after);
    }
}

static void test_what_is_safe_is_read_back_whole_and_compacted(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++) {
        struct world w;
        uint64_t seed = n;
        world_start(&w);
        w.opt.offsets_retention_ms = 2000;
        log_reload(&w);
        for (int step = 0; step < 60; step++) {
            random_step(&w, &seed);
            if (step % 20 == 19) check_reads_back(&w, n);
        }
        world_stop(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_group_in_kafkas_directory_is_there),
        cmocka_unit_test(test_every_version_of_an_offset_is_read),
        cmocka_unit_test(test_an_offset_of_the_oldest_kind_is_one_like_any),
        cmocka_unit_test(test_every_version_of_a_group_is_read),
        cmocka_unit_test(test_the_later_record_wins),
        cmocka_unit_test(test_a_tombstone_removes_and_a_later_record_is_back),
        cmocka_unit_test(test_the_last_record_of_a_group_is_the_group),
        cmocka_unit_test(test_a_groups_tombstone_leaves_its_offsets),
        cmocka_unit_test(test_a_transaction_counts_when_it_commits),
        cmocka_unit_test(test_an_aborted_transaction_never_counts),
        cmocka_unit_test(test_a_later_plain_commit_beats_the_transaction_that_ends_behind_it),
        cmocka_unit_test(test_of_two_transactions_the_later_record_wins_not_the_later_marker),
        cmocka_unit_test(test_a_tombstone_in_a_transaction_takes_back_what_it_was_going_to_commit),
        cmocka_unit_test(test_a_tombstone_beats_older_records_of_open_transactions),
        cmocka_unit_test(test_an_open_transaction_makes_an_offset_unstable_after_loading),
        cmocka_unit_test(test_a_commit_after_loading_is_newer_than_any_open_transaction),
        cmocka_unit_test(test_a_producers_transaction_may_span_groups),
        cmocka_unit_test(test_deleting_a_group_deletes_what_its_transactions_would_commit),
        cmocka_unit_test(test_records_of_the_newer_protocols_are_skipped_and_their_offsets_are_not),
        cmocka_unit_test(test_a_value_of_an_unknown_version_changes_nothing),
        cmocka_unit_test(test_a_record_that_cannot_be_read_is_told_of_and_the_next_one_counts),
        cmocka_unit_test(test_names_that_no_request_could_have_are_told_of_and_skipped),
        cmocka_unit_test(test_a_group_with_a_member_that_has_no_id_or_no_text_is_skipped),
        cmocka_unit_test(test_what_is_safe_is_read_back_whole_and_compacted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
