/* coord/embedded: what survives, what is refused, and what it costs. */
#include "coord_world.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <sqlite3.h>

static const char *store_path(struct world *w, const char *suffix)
{
    return arena_printf(&w->arena, "%s/" COORD_EMBEDDED_FILE "%s", w->dir, suffix).data;
}

static char *read_store(struct world *w, const char *suffix, size_t *size)
{
    char *data = NULL;
    assert_int_equal(fs_read_whole(fs_system(), store_path(w, suffix), 64 << 20, &data, size), OK);
    return data;
}

static void write_store(struct world *w, const char *suffix, const void *data, size_t size)
{
    FILE *out = fopen(store_path(w, suffix), "w");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, size, out), size);
    fclose(out);
}

/* Syncs of this process, SQLite's too: it finds this function before the C library's.  Of a store's log it is
 * remembered how much of it is safe. */
static _Atomic int sync_count;
static _Atomic long log_synced;

int fdatasync(int fd) /* NOLINT(readability-inconsistent-declaration-parameter-name) */
{
    char entry[32], target[128];
    snprintf(entry, sizeof entry, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(entry, target, sizeof target - 1);
    target[size < 0 ? 0 : size] = '\0';
    struct stat st;
    if (strstr(target, COORD_EMBEDDED_FILE "-wal") && fstat(fd, &st) == 0) log_synced = (long)st.st_size;
    sync_count++;
    return (int)syscall(SYS_fdatasync, fd);
}

/* Another world on what a crash would have left of this one: the files as they are now; of the log `log_size_max`
 * bytes. */
static struct world *world_after_crash_with(struct world *w, size_t log_size_max)
{
    struct world *after = mem_zalloc(1, sizeof *after);
    after->threaded = true;
    arena_init(&after->arena, SIZE_MAX);
    assert_int_equal(loop_new(&after->loop, clock_system(), 0, NULL), OK);
    snprintf(after->dir, sizeof after->dir, "/tmp/barnabas-coord-XXXXXX");
    assert_non_null(mkdtemp(after->dir));
    static const char *const suffixes[] = {"", "-wal"};
    for (size_t i = 0; i < ARRAY_COUNT(suffixes); i++) {
        size_t size;
        char *data = read_store(w, suffixes[i], &size);
        write_store(after, suffixes[i], data, i == 1 ? MIN(size, log_size_max) : size);
        mem_free(data);
    }
    return after;
}

static struct world *world_after_crash(struct world *w)
{
    return world_after_crash_with(w, SIZE_MAX);
}

static void everything_but_ephemeral_nodes_survives_a_close(void **state)
{
    struct world *w = *state;
    call_create(w, "/a", "one", 0);
    call_set(w, "/a", "two", 0);
    struct answer before = call_create(w, "/a/n_", "", COORD_SEQUENTIAL);
    call_create(w, "/e", "", COORD_EPHEMERAL);
    int64_t session = coord_session_id(w->c);
    world_close(w);
    world_open(w);
    assert_true(coord_session_id(w->c) > session);
    struct answer a = call_get(w, "/a", COORD_NO_WATCH);
    assert_int_equal(a.r.stat.version, 1);
    assert_memory_equal(a.r.data.data, "two", 3);
    assert_int_equal(call_exists(w, "/e", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    a = call_create(w, "/a/n_", "", COORD_SEQUENTIAL);
    assert_true(str_is(a.r.path, "/a/n_0000000001"));
    assert_true(a.r.stat.czxid > before.r.stat.czxid);
}

static void after_a_crash_answered_writes_are_there_and_ephemeral_nodes_are_not(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/controller", "1", COORD_EPHEMERAL).r.err, OK);
    assert_int_equal(call_create(w, "/topic", "x", 0).r.err, OK);
    struct answer a = call_create(w, "/last", "x", 0);
    struct world *after = world_after_crash(w);
    world_open(after);
    assert_int_equal(call_exists(after, "/topic", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(call_exists(after, "/last", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(call_exists(after, "/controller", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    struct answer again = call_create(after, "/controller", "2", COORD_EPHEMERAL);
    assert_int_equal(again.r.err, OK);
    assert_true(again.r.stat.czxid > a.r.stat.czxid); /* broker epochs only grow */
    world_free(after);
}

static void ephemeral_nodes_are_made_without_a_sync(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/ids", "", 0).r.err, OK);
    int before = sync_count;
    assert_int_equal(call_create(w, "/ids/1", "x", COORD_EPHEMERAL).r.err, OK);
    assert_int_equal(call_get(w, "/ids/1", COORD_NO_WATCH).r.err, OK);
    assert_int_equal(sync_count, before);
    assert_int_equal(call_create(w, "/ids/1", "x", COORD_EPHEMERAL).r.err, ERR_EXISTS);
    assert_int_equal(sync_count, before);
}

/* Ephemeral changes between durable ones do not take these along when power fails, wherever the disk stopped writing.
 */
static void a_power_cut_costs_nothing_but_ephemeral_nodes(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/ids", "", 0).r.err, OK);
    assert_int_equal(call_create(w, "/ids/1", "x", COORD_EPHEMERAL).r.err, OK);
    struct answer kept = call_create(w, "/kept", "x", 0);
    assert_int_equal(kept.r.err, OK);
    long safe = log_synced;
    assert_int_equal(call_create(w, "/ids/2", "x", COORD_EPHEMERAL).r.err, OK);
    assert_int_equal(log_synced, safe);
    size_t written;
    mem_free(read_store(w, "-wal", &written));
    assert_true(written > (size_t)safe);
    for (size_t cut = (size_t)safe; cut <= written; cut += 2060) { /* within frames and at their ends */
        struct world *after = world_after_crash_with(w, cut);
        world_open(after);
        assert_int_equal(call_exists(after, "/kept", COORD_NO_WATCH).r.err, OK);
        assert_int_equal(call_children(after, "/ids", COORD_NO_WATCH).r.child_count, 0);
        struct answer again = call_create(after, "/ids/2", "y", COORD_EPHEMERAL);
        assert_int_equal(again.r.err, OK);
        assert_true(again.r.stat.czxid > kept.r.stat.czxid);
        world_free(after);
    }
}

static void a_durable_change_brings_what_went_before_to_the_disk(void **state)
{
    struct world *w = *state;
    struct answer last;
    assert_int_equal(call_create(w, "/parent", "", 0).r.err, OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(call_create(w, "/parent/e_", "", COORD_EPHEMERAL | COORD_SEQUENTIAL).r.err, OK);
    last = call_set(w, "/parent", "x", COORD_ANY_VERSION);
    assert_int_equal(last.r.err, OK);
    struct world *after = world_after_crash_with(w, (size_t)log_synced);
    world_open(after);
    struct answer a = call_create(after, "/parent/n_", "", COORD_SEQUENTIAL);
    assert_true(str_is(a.r.path, "/parent/n_0000000003"));
    assert_true(a.r.stat.czxid > last.r.stat.mzxid);
    world_free(after);
}

/* The new file's bytes; then the log's header, the directory with both names, and the log. */
static void a_new_store_and_its_first_change_take_four_syncs(void **state)
{
    struct world *w = *state;
    world_close(w);
    assert_int_equal(fs_unlink(fs_system(), store_path(w, "")), OK);
    int before = sync_count;
    world_open(w);
    assert_int_equal(call_create(w, "/a", "", 0).r.err, OK);
    assert_int_equal(sync_count - before, 4);
    assert_true(log_synced > 0);
}

static void expect_refused(struct world *w, enum err expected, const char *words)
{
    size_t before, now;
    char *was = read_store(w, "", &before);
    struct fault f = {OK, ""};
    assert_int_equal(world_try_open(w, false, &f), expected);
    assert_int_equal(f.code, expected);
    assert_non_null(strstr(f.text, w->dir));
    if (!strstr(f.text, words)) fail_msg("\"%s\" does not say \"%s\"", f.text, words);
    char *is = read_store(w, "", &now);
    assert_int_equal(now, before);
    assert_memory_equal(is, was, now);
    mem_free(was);
    mem_free(is);
}

static void what_is_no_store_is_refused_and_left_alone(void **state)
{
    struct world *w = *state;
    world_close(w);
    char noise[8192];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 131 + 7);
    write_store(w, "", noise, sizeof noise);
    expect_refused(w, ERR_CORRUPT, "is damaged");
    write_store(w, "", "short", 5);
    expect_refused(w, ERR_CORRUPT, "is damaged");
    write_store(w, "", "", 0);
    expect_refused(w, ERR_CORRUPT, "empty");
}

static void another_programs_database_is_refused_and_left_alone(void **state)
{
    struct world *w = *state;
    world_close(w);
    assert_int_equal(fs_unlink(fs_system(), store_path(w, "")), OK);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(store_path(w, ""), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES (1)", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    expect_refused(w, ERR_INVALID, "another program");
}

static void a_newer_schema_is_refused(void **state)
{
    struct world *w = *state;
    world_close(w);
    size_t size;
    char *data = read_store(w, "", &size);
    data[63] = 2; /* user_version, big endian, at 60 */
    write_store(w, "", data, size);
    mem_free(data);
    expect_refused(w, ERR_UNSUPPORTED, "newer version");
}

static void fill(struct world *w, int count)
{
    struct answer a = {.w = w};
    char data[200];
    memset(data, 'd', sizeof data);
    for (int i = 0; i < count; i++) {
        char path[32];
        snprintf(path, sizeof path, "/node-%06d", i);
        coord_create(w->c, str_of(path), (struct bytes){(uint8_t *)data, sizeof data}, 0,
                     (struct coord_to){w->loop, NULL, NULL});
    }
    coord_exists(w->c, STR("/"), COORD_NO_WATCH, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
}

static void damage_is_found_at_the_open(void **state)
{
    struct world *w = *state;
    fill(w, 1000);
    world_close(w);
    size_t size;
    char *data = read_store(w, "", &size);
    assert_true(size > 40 * 4096);
    /* Truncated. */
    write_store(w, "", data, size / 2);
    expect_refused(w, ERR_CORRUPT, "is damaged");
    /* One page overwritten. */
    memset(data + 20 * 4096, 0xff, 4096);
    write_store(w, "", data, size);
    expect_refused(w, ERR_CORRUPT, "is damaged");
    mem_free(data);
}

static void damage_that_appears_while_it_is_open_fails_calls_for_good(void **state)
{
    struct world *w = *state;
    fill(w, 20000); /* more than the cache holds */
    world_close(w);
    world_open(w);
    assert_int_equal(call_exists(w, "/", COORD_NO_WATCH).r.err, OK);
    FILE *file = fopen(store_path(w, ""), "r+");
    char page[4096];
    memset(page, 0xff, sizeof page);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long pages = ftell(file) / 4096;
    for (long i = 30; i < pages; i++) {
        assert_int_equal(fseek(file, i * 4096, SEEK_SET), 0);
        assert_int_equal(fwrite(page, 1, sizeof page, file), sizeof page);
    }
    fclose(file);
    struct answer a = call_children(w, "/", COORD_NO_WATCH);
    assert_int_equal(a.r.err, ERR_CORRUPT);
    assert_non_null(strstr(a.r.text, "is damaged"));
    assert_int_equal(call_create(w, "/new", "", 0).r.err, ERR_CORRUPT);
    assert_int_equal(w->state, COORD_FAILED);
    assert_int_equal(w->fault.code, ERR_CORRUPT);
}

static void a_write_that_fails_changes_nothing_and_the_next_one_may_work(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/a", "one", 0).r.err, OK);
    struct rlimit was, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    tight = was;
    tight.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    struct answer a = call_set(w, "/a", "two", COORD_ANY_VERSION);
    struct answer read = call_get(w, "/a", COORD_NO_WATCH);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_not_equal(a.r.err, OK);
    assert_non_null(a.r.text);
    assert_int_equal(read.r.err, OK);
    assert_memory_equal(read.r.data.data, "one", 3);
    a = call_set(w, "/a", "three", 0);
    assert_int_equal(a.r.err, OK);
    assert_int_equal(a.r.stat.version, 1);
}

static void it_can_be_read_while_a_broker_runs_and_after_one_was_killed(void **state)
{
    struct world *w = *state;
    assert_int_equal(call_create(w, "/a", "one", 0).r.err, OK);
    struct world *reader = world_after_crash(w);
    for (int round = 0; round < 2; round++) {
        struct fault f = {OK, ""};
        if (round == 1) { /* beside the open one */
            assert_int_equal(fs_remove_all(fs_system(), reader->dir), OK);
            snprintf(reader->dir, sizeof reader->dir, "%s", w->dir);
        }
        assert_int_equal(world_try_open(reader, true, &f), OK);
        struct answer a = call_get(reader, "/a", COORD_NO_WATCH);
        assert_int_equal(a.r.err, OK);
        assert_int_equal(call_create(reader, "/b", "", 0).r.err, ERR_DENIED);
        world_close(reader);
    }
    reader->dir[0] = '\0';
    world_free(reader);
    assert_int_equal(call_create(w, "/c", "", 0).r.err, OK);
}

static void reading_what_is_not_there_makes_nothing(void **state)
{
    struct world *w = *state;
    world_close(w);
    assert_int_equal(fs_unlink(fs_system(), store_path(w, "")), OK);
    struct fault f = {OK, ""};
    assert_int_equal(world_try_open(w, true, &f), ERR_NOT_FOUND);
    struct fs_stat st;
    assert_int_equal(fs_stat(fs_system(), store_path(w, ""), &st), ERR_NOT_FOUND);
}

static void the_log_of_a_removed_store_does_not_come_back(void **state)
{
    struct world *w = *state;
    call_create(w, "/old", "", 0);
    struct world *after = world_after_crash(w);
    assert_int_equal(fs_unlink(fs_system(), store_path(after, "")), OK);
    world_open(after);
    assert_int_equal(call_exists(after, "/old", COORD_NO_WATCH).r.err, ERR_NOT_FOUND);
    world_free(after);
}

/* 5,000 partitions: a node and a state each, pipelined.  The goal is 0.3 s in a release build; ten times that here
 * still shows a fsync a call. */
static void a_burst_shares_transactions(void **state)
{
    struct world *w = *state;
    call_create(w, "/partitions", "", 0);
    int64_t start_us = clock_mono_us(clock_system());
    struct answer a = {.w = w};
    const char *data = "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1,2]}";
    for (int i = 0; i < 5000; i++) {
        char path[32], state_path[40];
        snprintf(path, sizeof path, "/partitions/%d", i);
        snprintf(state_path, sizeof state_path, "%s/state", path);
        coord_create(w->c, str_of(path), (struct bytes){NULL, 0}, 0, (struct coord_to){w->loop, NULL, NULL});
        coord_create(w->c, str_of(state_path), (struct bytes){(const uint8_t *)data, strlen(data)}, 0,
                     (struct coord_to){w->loop, NULL, NULL});
    }
    coord_children(w->c, STR("/partitions"), COORD_NO_WATCH, (struct coord_to){w->loop, answer_done, &a});
    answer_wait(&a);
    int64_t took_ms = (clock_mono_us(clock_system()) - start_us) / 1000;
    assert_int_equal(a.r.child_count, 5000);
    print_message("10,000 nodes in %lld ms\n", (long long)took_ms);
    assert_true(took_ms < 3000);
    world_close(w);
    start_us = clock_mono_us(clock_system());
    world_open(w);
    print_message("open: %lld us\n", (long long)(clock_mono_us(clock_system()) - start_us));
}

static int setup(void **state)
{
    *state = world_new(true);
    return 0;
}

static int teardown(void **state)
{
    world_free(*state);
    return 0;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everything_but_ephemeral_nodes_survives_a_close),
        TEST(after_a_crash_answered_writes_are_there_and_ephemeral_nodes_are_not),
        TEST(ephemeral_nodes_are_made_without_a_sync),
        TEST(a_power_cut_costs_nothing_but_ephemeral_nodes),
        TEST(a_durable_change_brings_what_went_before_to_the_disk),
        TEST(a_new_store_and_its_first_change_take_four_syncs),
        TEST(what_is_no_store_is_refused_and_left_alone),
        TEST(another_programs_database_is_refused_and_left_alone),
        TEST(a_newer_schema_is_refused),
        TEST(damage_is_found_at_the_open),
        TEST(damage_that_appears_while_it_is_open_fails_calls_for_good),
        TEST(a_write_that_fails_changes_nothing_and_the_next_one_may_work),
        TEST(it_can_be_read_while_a_broker_runs_and_after_one_was_killed),
        TEST(reading_what_is_not_there_makes_nothing),
        TEST(the_log_of_a_removed_store_does_not_come_back),
        TEST(a_burst_shares_transactions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
