/* plog: the power fails, or the disk is full, at every single step of a cleaning; what consumers were promised is there
 * afterwards. */
#include "clean_world.h"

#include "os/fs_sim.h"

enum { SEEDS = 8, KEYS = 4, STEPS_MAX = 2000 };

struct crash {
    struct world w;
    struct fs_sim *disk;
    struct view before;     /* what was there before the cleaning, all of it flushed */
    const char *last[KEYS]; /* of it, the last committed value of each key; NULL: none */
};

static const char *const key_names[KEYS] = {"a", "b", "c", "d"};

static int key_index(const char *key)
{
    for (int i = 0; i < KEYS; i++)
        if (strcmp(key, key_names[i]) == 0) return i;
    return -1;
}

static void last_values(const struct view *v, const char *out[KEYS])
{
    for (int i = 0; i < KEYS; i++) out[i] = NULL;
    for (size_t i = 0; i < v->count; i++)
        if (!v->records[i].aborted) out[key_index(v->records[i].key)] = v->records[i].value;
}

/* Several segments; in them an aborted and a committed transaction that reach over a boundary. */
static void write_history(struct world *w)
{
    for (int i = 0; i < 6; i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", i);
        append_kv(w, key_names[i % KEYS], value);
        struct batch_spec s = {
            .producer_id = 7 + i % 2, .sequence = i / 2 * 2, .transactional = true, .codec = CODEC_LZ4};
        assert_int_equal(append_kvs(w, s, (struct kv[]){{"a", value}, {"c", value}}, 2).kerr, KERR_NONE);
        if (i % 2) roll(w);
    }
    append_marker(w, 7, false);
    append_marker(w, 8, true);
    append_kv(w, "b", "end");
    roll(w);
    append_kv(w, "d", "active");
}

static void crash_open(struct crash *c, struct fs_sim *disk)
{
    c->disk = disk;
    c->w.opt.fs = fs_sim_fs(disk);
    world_open(&c->w);
    plog_replicated(c->w.pl, plog_end(c->w.pl));
}

static void crash_begin(struct crash *c, bool journal, uint64_t seed)
{
    struct world *w = &c->w;
    world_init(w);
    w->opt.dir = "/logs/topic-0";
    w->opt.config.cleanup_compact = true;
    w->opt.config.max_compaction_lag_ms = INT64_MAX;
    w->opt.config.index_interval_bytes = 100;
    w->opt.config.file_delete_delay_ms = 0;
    struct fs_sim *disk = fs_sim_new(&(struct fs_sim_options){.seed = seed, .journal = journal, .write_back = 3});
    assert_int_equal(fs_mkdir(fs_sim_fs(disk), "/logs"), OK);
    assert_int_equal(fs_sync_dir(fs_sim_fs(disk), "/"), OK);
    crash_open(c, disk);
    write_history(w);
    plog_replicated(w->pl, plog_end(w->pl));
    assert_int_equal(plog_flush(w->pl), OK);
    w->opt.recovery_point = plog_recovery_point(w->pl);
    assert_int_equal(w->opt.recovery_point, plog_end(w->pl));
    view_read(w, 0, &c->before);
    last_values(&c->before, c->last);
}

static void crash_end(struct crash *c)
{
    plog_abandon(c->w.pl);
    c->w.pl = NULL;
    fs_sim_free(c->disk);
    view_free(&c->before);
    world_fini(&c->w);
}

static const struct seen *find_before(const struct crash *c, int64_t offset)
{
    for (size_t i = 0; i < c->before.count; i++)
        if (c->before.records[i].offset == offset) return &c->before.records[i];
    return NULL;
}

static void check_after(struct crash *c)
{
    struct view v;
    const char *last[KEYS];
    assert_int_equal(plog_end(c->w.pl), c->w.opt.recovery_point);
    view_read(&c->w, 0, &v);
    for (size_t i = 0; i < v.count; i++) {
        const struct seen *r = &v.records[i], *was = find_before(c, r->offset);
        assert_non_null(was); /* nothing is invented */
        assert_string_equal(r->value, was->value);
        assert_int_equal(r->aborted, was->aborted);
    }
    last_values(&v, last);
    for (int i = 0; i < KEYS; i++) assert_string_equal(last[i], c->last[i]);
    for (int64_t from = 0; from < plog_end(c->w.pl); from++) { /* by every index entry */
        struct view tail;
        size_t skipped = 0;
        view_read(&c->w, from, &tail);
        while (skipped < v.batch_count && v.batches[skipped].base_offset < from) skipped++;
        assert_int_equal(tail.batch_count, v.batch_count - skipped);
        view_free(&tail);
    }
    view_free(&v);
}

/* All that can be cleaned, in one pass, or in several with a table for two keys. */
static enum err clean_all(struct crash *c, bool in_passes)
{
    struct cleaner cl;
    enum err e;
    cleaner_init(&cl);
    if (in_passes) cl.limits.map_bytes = 3 * 24;
    do e = clean_once(&c->w, &cl);
    while (!e && cl.checkpoint < cl.plan.first_uncleanable);
    return e;
}

/* Ends a cleaning after so many changes of the disk, and opens what is left.  False: it was over before. */
static bool crash_after(struct crash *c, int64_t changes, uint64_t seed)
{
    fs_sim_power_off_after(c->disk, changes);
    enum err e = clean_all(c, seed % 2);
    bool crashed = !fs_sim_has_power(c->disk);
    if (!crashed) assert_int_equal(e, OK);
    plog_abandon(c->w.pl);
    c->w.pl = NULL;
    struct fs_sim *left = fs_sim_after_crash(c->disk, seed, FS_SIM_ANYTHING);
    fs_sim_free(c->disk);
    crash_open(c, left);
    return crashed;
}

static void a_crash_at_any_step_loses_and_invents_nothing(void **state)
{
    (void)state;
    for (int journal = 0; journal < 2; journal++) {
        bool crashed = true;
        for (int64_t changes = 0; crashed; changes++) {
            assert_true(changes < STEPS_MAX);
            crashed = false;
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                struct crash c = {0};
                crash_begin(&c, journal, seed);
                crashed |= crash_after(&c, changes, seed * 1000 + (uint64_t)changes);
                check_after(&c);
                assert_int_equal(clean_all(&c, false), OK); /* and it can be cleaned again */
                check_after(&c);
                crash_end(&c);
            }
            if (!crashed) assert_true(changes > 20);
        }
    }
}

/* ---- A full disk */

/* Cleaned once, and dirty again: the segments have the names of some that wait under .deleted names. */
static void full_begin(struct crash *c, uint64_t seed)
{
    struct world *w = &c->w;
    crash_begin(c, seed % 2, seed);
    assert_int_equal(clean_all(c, false), OK);
    for (int i = 0; i < 4; i++) {
        append_kv(w, key_names[i % KEYS], "again");
        if (i % 2) roll(w);
    }
    plog_replicated(w->pl, plog_end(w->pl));
    assert_int_equal(plog_flush(w->pl), OK);
    w->opt.recovery_point = plog_end(w->pl);
    w->opt.cleaned = plog_cleaned(w->pl);
    view_free(&c->before);
    view_read(w, 0, &c->before);
    last_values(&c->before, c->last);
}

static void set_full(struct crash *c, unsigned calls, enum err e, int64_t after)
{
    struct fs_sim_fault fault = {.calls = calls, .after = after, .times = INT64_MAX, .e = e};
    fs_sim_set_fault(c->disk, &fault);
}

static void lose_power(struct crash *c, uint64_t seed)
{
    plog_abandon(c->w.pl);
    c->w.pl = NULL;
    struct fs_sim *left = fs_sim_after_crash(c->disk, seed, FS_SIM_ANYTHING);
    fs_sim_free(c->disk);
    crash_open(c, left);
}

enum then { THEN_ROOM, THEN_RETENTION, THEN_CRASH, THEN_STOP, THEN_RETIRE, THEN_COUNT };

/* What comes after the failure, when it lasts no longer; after it the log is cleaned. */
static void full_then(struct crash *c, enum then then, uint64_t seed)
{
    int64_t next_ms;
    switch (then) {
    case THEN_RETENTION: assert_int_equal(plog_retain(c->w.pl, c->w.clock.now_ms, 0, &next_ms), OK); break;
    case THEN_CRASH: lose_power(c, seed); break;
    case THEN_STOP:
        world_close(&c->w);
        c->w.opt.clean = true;
        world_open(&c->w);
        c->w.opt.clean = false;
        break;
    case THEN_RETIRE: /* a move into another directory, say */
        assert_int_equal(plog_retire(c->w.pl, "/logs/away"), OK);
        plog_abandon(c->w.pl);
        assert_int_equal(fs_rename(c->w.opt.fs, "/logs/away", c->w.opt.dir), OK);
        assert_int_equal(fs_sync_dir(c->w.opt.fs, "/logs"), OK);
        world_open(&c->w);
        break;
    default: break;
    }
    plog_replicated(c->w.pl, plog_end(c->w.pl));
    check_after(c);
    assert_int_equal(clean_all(c, false), OK);
    check_after(c);
    assert_int_equal(plog_cleaned(c->w.pl), plog_end(c->w.pl));
    lose_power(c, seed + 1);
    check_after(c);
}

/* False: there are fewer such calls. */
static bool full_after(unsigned calls, enum err why, int64_t after, enum then then, uint64_t seed)
{
    struct crash c = {0};
    full_begin(&c, seed);
    set_full(&c, calls, why, after);
    enum err e = clean_all(&c, false);
    bool hit = fs_sim_fault_count(c.disk) > 0;
    assert_int_equal(e, hit ? why : OK);
    assert_int_equal(c.w.failed_count, 0);
    if (hit) {
        enum err again = clean_all(&c, false); /* nothing has changed: no more comes of it than before */
        assert_true(again == why || (again == OK && calls == FS_SIM_UNLINK));
    }
    fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = 0});
    check_after(&c);
    full_then(&c, then, seed * 1000 + (uint64_t)after);
    assert_int_equal(c.w.failed_count, 0);
    crash_end(&c);
    return hit;
}

static void every_call_of_a_cleaning_may_find_the_disk_full_for_a_while(void **state)
{
    (void)state;
    static const struct {
        unsigned calls;
        enum err e;
        int64_t calls_min; /* of a cleaning that the test is of use for */
    } kinds[] = {{FS_SIM_RENAME, ERR_FULL, 20},
                 {FS_SIM_SYNC, ERR_FULL, 6},
                 {FS_SIM_RENAME | FS_SIM_OPEN | FS_SIM_SYNC | FS_SIM_WRITE, ERR_FULL, 30},
                 {FS_SIM_OPEN, ERR_TOO_MANY, 4}};
    for (size_t k = 0; k < ARRAY_COUNT(kinds); k++) {
        for (int then = 0; then < THEN_COUNT; then++) {
            int64_t after = 0;
            while (full_after(kinds[k].calls, kinds[k].e, after, (enum then)then, (uint64_t)(k * THEN_COUNT) + 1))
                after++;
            assert_true(after >= kinds[k].calls_min);
        }
    }
}

/* The names that had been changed by then are those of the exchange, whatever stood there under the same names. */
static void a_log_with_a_half_done_exchange_is_read_and_appended_to(void **state)
{
    (void)state;
    for (int64_t after = 0;; after++) {
        struct crash c = {0};
        full_begin(&c, 1);
        set_full(&c, FS_SIM_RENAME, ERR_FULL, after);
        enum err e = clean_all(&c, false);
        check_after(&c);
        int64_t next_ms, end = append_kv(&c.w, "d", "later");
        assert_int_equal(end, c.w.opt.recovery_point);
        enum err retained = plog_retain(c.w.pl, c.w.clock.now_ms + 1, 0, &next_ms); /* removes what is .deleted */
        assert_int_equal(retained, after > 0 ? e : OK);
        plog_close_unused(c.w.pl, PLOG_CLOSE_OLD, 1);
        struct view v;
        view_read(&c.w, 0, &v);
        assert_string_equal(v.records[v.count - 1].value, "later");
        view_free(&v);
        fs_sim_set_fault(c.disk, &(struct fs_sim_fault){.calls = 0});
        assert_int_equal(clean_all(&c, false), OK);
        assert_int_equal(c.w.failed_count, 0);
        crash_end(&c);
        if (!e) {
            assert_true(after > 20);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_step_loses_and_invents_nothing),
        cmocka_unit_test(every_call_of_a_cleaning_may_find_the_disk_full_for_a_while),
        cmocka_unit_test(a_log_with_a_half_done_exchange_is_read_and_appended_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
