/* plog: the power fails at every single step of a cleaning; what consumers were promised is there afterwards. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_step_loses_and_invents_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
