/* os: the simulated file system: that it behaves as the real one, what a crash leaves of it, and how it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "os/fs.h"
#include "os/fs_sim.h"

enum { SEEDS = 400 };

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % below;
}

static struct fs_sim *sim_new(bool journal)
{
    return fs_sim_new(&(struct fs_sim_options){.seed = 1, .journal = journal});
}

/* ---- As the real one: the same random calls on both */

enum { NAMES = 7, HANDLES = 3, SIZE_MAX_HERE = 9000 };
static const char *const names[NAMES] = {"a", "b", "d", "d/a", "d/b", "d/e", "nowhere/a"};

struct twin {
    struct fs *fs;
    const char *root;
    struct file *handles[HANDLES];
    char path[2][256];
    char listed[1024];
};

static const char *path_of(struct twin *t, int slot, const char *name)
{
    snprintf(t->path[slot], sizeof t->path[0], "%s/%s", t->root, name);
    return t->path[slot];
}

static void list_one(void *arg, const char *name, bool is_dir)
{
    char(*words)[16] = arg;
    int i = 0;
    while (words[i][0]) i++;
    snprintf(words[i], sizeof words[i], "%s%s", name, is_dir ? "/" : "");
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The directory's entries in order, or the error. */
static void list_sorted(struct twin *t, const char *name)
{
    char words[NAMES * 2][16];
    memset(words, 0, sizeof words);
    enum err e = fs_list(t->fs, path_of(t, 0, name), list_one, words);
    size_t count = 0;
    while (words[count][0]) count++;
    qsort(words, count, sizeof words[0], compare_words);
    int at = snprintf(t->listed, sizeof t->listed, "%s:", err_name(e));
    for (size_t i = 0; i < count; i++) at += snprintf(t->listed + at, sizeof t->listed - (size_t)at, " %s", words[i]);
}

/* What one call gives, as a number that must be the same for both. */
struct outcome {
    enum err e;
    int64_t value;
};

static int64_t sum_of(const uint8_t *bytes, size_t size)
{
    int64_t sum = (int64_t)size;
    for (size_t i = 0; i < size; i++) sum = sum * 31 % 1000000007 + bytes[i];
    return sum;
}

static struct outcome call_open(struct twin *t, uint64_t *random)
{
    unsigned flags = 1 + (unsigned)draw(random, 31);
    if (!(flags & (FS_READ | FS_WRITE))) flags |= FS_WRITE;
    if (flags & FS_TRUNCATE) flags |= FS_WRITE;                 /* else not defined */
    if (!(flags & FS_CREATE)) flags &= ~(unsigned)FS_EXCLUSIVE; /* this too */
    size_t slot = (size_t)draw(random, HANDLES);
    const char *name = names[draw(random, NAMES)];
    struct file *f = NULL;
    struct fs_stat st;
    bool dir = fs_stat(t->fs, path_of(t, 0, name), &st) == OK && st.is_dir;
    if (dir) flags |= FS_WRITE; /* a directory can be opened, but not as a file */
    enum err e = fs_open(t->fs, path_of(t, 0, name), flags, &f);
    if (!e) {
        file_unref(t->handles[slot]);
        t->handles[slot] = f;
    }
    return (struct outcome){e, 0};
}

static struct outcome call_file(struct twin *t, uint64_t *random, uint64_t kind)
{
    struct file *f = t->handles[draw(random, HANDLES)];
    int64_t pos = (int64_t)draw(random, SIZE_MAX_HERE);
    size_t size = 1 + (size_t)draw(random, 5000), got = 0;
    uint8_t *bytes = mem_zalloc(size, 1);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(i * 7 + size);
    struct outcome out = {OK, 0};
    if (!f) {
        mem_free(bytes);
        return out;
    }
    if (kind == 0) {
        struct iovec iov[2] = {{bytes, size / 2}, {bytes + size / 2, size - size / 2}};
        out.e = file_pwritev(f, iov, 2, pos);
    } else if (kind == 1) {
        out.e = file_pread(f, bytes, size, pos, &got);
        if (!out.e) out.value = sum_of(bytes, got);
    } else if (kind == 2) {
        out.e = file_truncate(f, pos);
    } else if (kind == 3) {
        out.e = file_size(f, &out.value);
    } else if (kind == 4) {
        out.e = file_sync(f);
    } else {
        out.e = file_allocate(f, pos, (int64_t)size);
    }
    mem_free(bytes);
    return out;
}

static struct outcome call_path(struct twin *t, uint64_t *random, uint64_t kind)
{
    const char *first = path_of(t, 0, names[draw(random, NAMES)]);
    const char *second = path_of(t, 1, names[draw(random, NAMES)]);
    struct outcome out = {OK, 0};
    struct fs_stat st;
    char *text;
    size_t size;
    switch (kind) {
    case 0: out.e = fs_mkdir(t->fs, first); break;
    case 1: out.e = fs_rmdir(t->fs, first); break;
    case 2: out.e = fs_unlink(t->fs, first); break;
    case 3: out.e = fs_rename(t->fs, first, second); break;
    case 4: out.e = fs_replace(t->fs, first, "some text", 9); break;
    case 5: out.e = fs_remove_all(t->fs, first); break;
    case 6:
        out.e = fs_stat(t->fs, first, &st);
        if (!out.e) out.value = st.is_dir ? -1 : st.size;
        break;
    default:
        if (fs_stat(t->fs, first, &st) == OK && st.is_dir) break;
        out.e = fs_read_whole(t->fs, first, SIZE_MAX_HERE, &text, &size);
        if (out.e) break;
        out.value = sum_of((uint8_t *)text, size);
        mem_free(text);
    }
    return out;
}

static struct outcome call_one(struct twin *t, uint64_t *random)
{
    uint64_t kind = draw(random, 20);
    if (kind < 4) return call_open(t, random);
    if (kind < 12) return call_file(t, random, (kind - 4) % 6);
    return call_path(t, random, kind - 12);
}

static void it_does_what_the_real_one_does(void **state)
{
    (void)state;
    char root[] = "/tmp/barnabas-fs-twin-XXXXXX";
    assert_non_null(mkdtemp(root));
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct fs_sim *s = sim_new(seed % 2);
        struct twin real = {.fs = fs_system(), .root = root}, sim = {.fs = fs_sim_fs(s), .root = "/x"};
        assert_int_equal(fs_mkdir_all(sim.fs, "/x"), OK);
        uint64_t random_real = seed, random_sim = seed;
        for (int i = 0; i < 600; i++) {
            struct outcome a = call_one(&real, &random_real), b = call_one(&sim, &random_sim);
            if (a.e != b.e || a.value != b.value)
                fail_msg("seed %d, call %d: %s %lld, simulated %s %lld", (int)seed, i, err_name(a.e),
                         (long long)a.value, err_name(b.e), (long long)b.value);
            list_sorted(&real, i % 2 ? "" : "d");
            list_sorted(&sim, i % 2 ? "" : "d");
            assert_string_equal(real.listed, sim.listed);
        }
        for (int i = 0; i < HANDLES; i++) {
            file_unref(real.handles[i]);
            file_unref(sim.handles[i]);
        }
        fs_sim_free(s);
        assert_int_equal(fs_remove_all(fs_system(), root), OK);
        assert_int_equal(fs_mkdir(fs_system(), root), OK);
    }
    assert_int_equal(fs_rmdir(fs_system(), root), OK);
}

static void a_lock_is_held_until_it_is_closed(void **state)
{
    (void)state;
    struct fs_sim *s = sim_new(true);
    struct file *a, *b;
    assert_int_equal(fs_lock(fs_sim_fs(s), "/.lock", &a), OK);
    assert_int_equal(fs_lock(fs_sim_fs(s), "/.lock", &b), ERR_LOCKED);
    file_unref(a);
    assert_int_equal(fs_lock(fs_sim_fs(s), "/.lock", &b), OK);
    file_unref(b);
    fs_sim_free(s);
}

/* ---- What a crash leaves */

static void put(struct fs_sim *s, const char *path, char c, size_t size, int64_t pos, bool sync)
{
    struct file *f;
    assert_int_equal(fs_open(fs_sim_fs(s), path, FS_WRITE | FS_CREATE, &f), OK);
    char *bytes = mem_alloc(size);
    memset(bytes, c, size);
    assert_int_equal(file_pwrite(f, bytes, size, pos), OK);
    if (sync) assert_int_equal(file_sync(f), OK);
    mem_free(bytes);
    file_unref(f);
}

static void cut(struct fs_sim *s, const char *path, int64_t size)
{
    struct file *f;
    assert_int_equal(fs_open(fs_sim_fs(s), path, FS_WRITE, &f), OK);
    assert_int_equal(file_truncate(f, size), OK);
    file_unref(f);
}

/* NULL: not there. */
static char *get(struct fs_sim *s, const char *path, size_t *size)
{
    char *text;
    enum err e = fs_read_whole(fs_sim_fs(s), path, 1 << 20, &text, size);
    if (e == ERR_NOT_FOUND) return NULL;
    assert_int_equal(e, OK);
    return text;
}

static bool there(struct fs_sim *s, const char *path)
{
    struct fs_stat st;
    return fs_stat(fs_sim_fs(s), path, &st) == OK;
}

static void sync_root(struct fs_sim *s)
{
    assert_int_equal(fs_sync_dir(fs_sim_fs(s), "/"), OK);
}

static void what_was_synced_survives_every_crash(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fs_sim *s = sim_new(seed % 2);
        put(s, "/f", 'a', 10000, 0, true);
        sync_root(s);
        put(s, "/f", 'b', 100, 10000, false);
        put(s, "/g", 'c', 100, 0, true);
        struct fs_sim *after = fs_sim_after_crash(s, seed, (enum fs_sim_survival)(seed % 3));
        size_t size;
        char *text = get(after, "/f", &size);
        assert_non_null(text);
        assert_in_range(size, 10000, 10100);
        for (size_t i = 0; i < 10000; i++) assert_int_equal(text[i], 'a');
        for (size_t i = 10000; i < size; i++) assert_true(text[i] == 'b' || text[i] == 0);
        mem_free(text);
        text = get(after, "/g", &size); /* its name was not synced, its content was */
        if (text) assert_true(size == 100 && text[0] == 'c' && text[99] == 'c');
        mem_free(text);
        fs_sim_free(after);
        fs_sim_free(s);
    }
}

/* Which of some outcomes a number of seeds show: each must come up, and nothing else. */
static void crash_shows(bool journal, void (*prepare)(struct fs_sim *s), int (*outcome)(struct fs_sim *after),
                        unsigned expected)
{
    unsigned seen = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct fs_sim *s = sim_new(journal);
        prepare(s);
        struct fs_sim *after = fs_sim_after_crash(s, seed, FS_SIM_ANYTHING);
        struct fs_sim *again = fs_sim_after_crash(after, seed + 1, FS_SIM_NOTHING);
        int a = outcome(after);
        assert_int_equal(a, outcome(again)); /* what survived is on the disk */
        seen |= 1U << a;
        fs_sim_free(again);
        fs_sim_free(after);
        fs_sim_free(s);
    }
    assert_int_equal(seen, expected);
}

static void prepare_pages(struct fs_sim *s)
{
    put(s, "/f", 'a', (size_t)2 * FS_SIM_PAGE, 0, true);
    sync_root(s);
    put(s, "/f", 'b', (size_t)2 * FS_SIM_PAGE, 0, false);
}

/* Bit 0: something new in the first page, bit 1: in the second, bit 2: a page is torn. */
static int outcome_pages(struct fs_sim *after)
{
    size_t size;
    char *text = get(after, "/f", &size);
    assert_non_null(text);
    assert_int_equal(size, 2 * FS_SIM_PAGE);
    int out = 0, changed = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == 'b') out |= i < FS_SIM_PAGE ? 1 : 2;
        if (i % FS_SIM_PAGE && text[i] != text[i - 1]) changed = 4;
    }
    mem_free(text);
    return out | changed;
}

static void any_subset_of_written_pages_may_survive_torn_at_times(void **state)
{
    (void)state;
    crash_shows(true, prepare_pages, outcome_pages, 0xef); /* all but "torn and nothing new" */
}

static void prepare_growth(struct fs_sim *s)
{
    put(s, "/f", 'a', 100, 0, true);
    sync_root(s);
    put(s, "/f", 'b', (size_t)3 * FS_SIM_PAGE, 100, false);
}

/* 0: as before; 1: all there; 2: shorter, all data there; 3: zeros in it. */
static int outcome_growth(struct fs_sim *after)
{
    size_t size, zeros = 0;
    char *text = get(after, "/f", &size);
    assert_non_null(text);
    for (size_t i = 100; i < size; i++) zeros += text[i] == 0;
    for (size_t i = 0; i < 100; i++) assert_int_equal(text[i], 'a');
    mem_free(text);
    return zeros ? 3 : size == 100 ? 0 : size == 100 + 3 * FS_SIM_PAGE ? 1 : 2;
}

static void a_file_may_have_grown_without_its_data(void **state)
{
    (void)state;
    crash_shows(true, prepare_growth, outcome_growth, 0xf);
}

static void prepare_cut(struct fs_sim *s)
{
    put(s, "/f", 'a', 300, 0, true);
    sync_root(s);
    cut(s, "/f", 100);
    put(s, "/f", 'b', 100, 200, false);
}

/* 0: nothing happened; 1: cut; 2: cut, and grown; 3: grown, without the data; 4: not cut, but written to. */
static int outcome_cut(struct fs_sim *after)
{
    size_t size;
    char *text = get(after, "/f", &size);
    assert_non_null(text);
    bool old = size == 300 && text[150] == 'a', new = size > 200 && text[200] == 'b';
    if (!old)
        for (size_t i = 100; i < size; i++) assert_true(text[i] != 'a'); /* a cut that survived hides it */
    mem_free(text);
    if (size == 100) return 1;
    if (old) return new ? 4 : 0;
    return new ? 2 : 3;
}

static void a_truncation_may_be_undone_but_what_it_cut_does_not_show_behind_it(void **state)
{
    (void)state;
    /* The page in which the cut lies is one with what is written behind it: 4 does not come up in one page. */
    crash_shows(true, prepare_cut, outcome_cut, 0xf);
}

static void prepare_replace(struct fs_sim *s)
{
    put(s, "/f", 'a', 10, 0, true);
    sync_root(s);
    put(s, "/tmp", 'b', 10, 0, true);
    assert_int_equal(fs_rename(fs_sim_fs(s), "/tmp", "/f"), OK);
}

/* 0: the old one; 1: the old one and the new one's; 2: replaced. */
static int outcome_replace(struct fs_sim *after)
{
    size_t size;
    char *text = get(after, "/f", &size);
    assert_non_null(text);
    assert_int_equal(size, 10);
    int out = text[0] == 'b' ? 2 : there(after, "/tmp") ? 1 : 0;
    if (out == 2) assert_false(there(after, "/tmp"));
    mem_free(text);
    return out;
}

static void a_rename_happens_or_does_not(void **state)
{
    (void)state;
    crash_shows(true, prepare_replace, outcome_replace, 7);
    crash_shows(false, prepare_replace, outcome_replace, 7);
}

static void prepare_unsynced_replace(struct fs_sim *s)
{
    put(s, "/f", 'a', 10, 0, true);
    sync_root(s);
    put(s, "/tmp", 'b', 10, 0, false);
    assert_int_equal(fs_rename(fs_sim_fs(s), "/tmp", "/f"), OK);
}

/* 0: the old content; 1: the new; 2: empty or zeros. */
static int outcome_unsynced_replace(struct fs_sim *after)
{
    size_t size;
    char *text = get(after, "/f", &size);
    assert_non_null(text);
    int out = size == 10 && text[0] == 'a' ? 0 : size == 10 && text[0] == 'b' && text[9] == 'b' ? 1 : 2;
    mem_free(text);
    return out;
}

static void a_rename_without_a_sync_may_leave_an_empty_file(void **state)
{
    (void)state;
    crash_shows(true, prepare_unsynced_replace, outcome_unsynced_replace, 7);
}

static void prepare_two(struct fs_sim *s)
{
    put(s, "/a", 'a', 1, 0, true);
    put(s, "/b", 'b', 1, 0, true);
}

static int outcome_two(struct fs_sim *after)
{
    return there(after, "/a") + 2 * there(after, "/b");
}

static void a_journal_keeps_the_order_of_names_and_without_one_any_may_be_missing(void **state)
{
    (void)state;
    crash_shows(true, prepare_two, outcome_two, 0xb); /* never b alone */
    crash_shows(false, prepare_two, outcome_two, 0xf);
}

static void prepare_other_dir(struct fs_sim *s)
{
    assert_int_equal(fs_mkdir(fs_sim_fs(s), "/d"), OK);
    put(s, "/d/a", 'a', 1, 0, true);
    assert_int_equal(fs_sync_dir(fs_sim_fs(s), "/d"), OK);
}

static int outcome_other_dir(struct fs_sim *after)
{
    return there(after, "/d") + 2 * there(after, "/d/a");
}

static void without_a_journal_a_directory_is_sure_only_when_its_parent_was_synced(void **state)
{
    (void)state;
    crash_shows(false, prepare_other_dir, outcome_other_dir, 0x9); /* gone as a whole, or there as a whole */
    crash_shows(true, prepare_other_dir, outcome_other_dir, 0x8);
}

static void a_crash_is_the_same_for_the_same_seed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct fs_sim *s = sim_new(false);
        prepare_growth(s);
        prepare_two(s);
        struct fs_sim *x = fs_sim_after_crash(s, seed, FS_SIM_ANYTHING);
        struct fs_sim *y = fs_sim_after_crash(s, seed, FS_SIM_ANYTHING);
        size_t size_x, size_y;
        char *text_x = get(x, "/f", &size_x), *text_y = get(y, "/f", &size_y);
        assert_int_equal(size_x, size_y);
        assert_memory_equal(text_x, text_y, size_x);
        assert_int_equal(outcome_two(x), outcome_two(y));
        mem_free(text_x);
        mem_free(text_y);
        fs_sim_free(x);
        fs_sim_free(y);
        fs_sim_free(s);
    }
}

/* ---- Power and faults */

static void nothing_happens_once_the_power_is_off(void **state)
{
    (void)state;
    struct fs_sim *s = sim_new(true);
    put(s, "/f", 'a', 10, 0, true); /* creates, writes, syncs */
    assert_int_equal(fs_sim_changes(s), 3);
    fs_sim_power_off_after(s, 1);
    struct file *f;
    assert_int_equal(fs_open(fs_sim_fs(s), "/f", FS_READ | FS_WRITE, &f), OK); /* changes nothing */
    assert_int_equal(file_pwrite(f, "b", 1, 0), OK);
    assert_false(fs_sim_has_power(s));
    assert_int_equal(file_pwrite(f, "c", 1, 0), ERR_IO);
    assert_int_equal(file_sync(f), ERR_IO);
    assert_int_equal(fs_unlink(fs_sim_fs(s), "/f"), ERR_IO);
    assert_int_equal(fs_sync_dir(fs_sim_fs(s), "/"), ERR_IO);
    file_unref(f);
    struct fs_sim *after = fs_sim_after_crash(s, 1, FS_SIM_EVERYTHING);
    size_t size;
    char *text = get(after, "/f", &size);
    assert_int_equal(text[0], 'b');
    mem_free(text);
    fs_sim_free(after);
    fs_sim_free(s);
}

static void the_nth_call_fails_and_those_around_it_do_not(void **state)
{
    (void)state;
    struct fs_sim *s = sim_new(true);
    put(s, "/x.log", 'a', 10, 0, true);
    put(s, "/x.index", 'a', 10, 0, true);
    fs_sim_set_fault(
        s, &(struct fs_sim_fault){.calls = FS_SIM_SYNC, .suffix = ".log", .after = 1, .times = 2, .e = ERR_TOO_MANY});
    struct file *log, *index;
    assert_int_equal(fs_open(fs_sim_fs(s), "/x.log", FS_WRITE, &log), OK);
    assert_int_equal(fs_open(fs_sim_fs(s), "/x.index", FS_WRITE, &index), OK);
    assert_int_equal(file_sync(index), OK);
    assert_int_equal(file_sync(log), OK);
    assert_int_equal(file_sync(log), ERR_TOO_MANY);
    assert_int_equal(file_sync(index), OK);
    assert_int_equal(file_sync(log), ERR_TOO_MANY);
    assert_int_equal(file_sync(log), OK);
    assert_int_equal(fs_sim_fault_count(s), 2);
    file_unref(log);
    file_unref(index);
    fs_sim_free(s);
}

static void a_failed_write_may_have_written_a_part(void **state)
{
    (void)state;
    unsigned seen = 0;
    struct fs_sim *s = sim_new(true);
    fs_sim_set_fault(s, &(struct fs_sim_fault){.calls = FS_SIM_WRITE, .times = INT64_MAX, .e = ERR_FULL});
    for (int i = 0; i < SEEDS; i++) {
        struct file *f;
        int64_t size;
        assert_int_equal(fs_open(fs_sim_fs(s), "/f", FS_WRITE | FS_CREATE | FS_TRUNCATE, &f), OK);
        assert_int_equal(file_pwrite(f, "xy", 2, 0), ERR_FULL);
        assert_int_equal(file_size(f, &size), OK);
        seen |= 1U << size;
        file_unref(f);
    }
    assert_int_equal(seen, 7);
    fs_sim_free(s);
}

/* 0: the old byte, 1: the new one. */
static int after_failed_sync(bool second_sync, uint64_t seed)
{
    struct fs_sim *s = fs_sim_new(&(struct fs_sim_options){.seed = seed});
    put(s, "/f", 'a', 1, 0, true);
    sync_root(s);
    fs_sim_set_fault(s, &(struct fs_sim_fault){.calls = FS_SIM_SYNC, .times = 1, .e = ERR_IO});
    struct file *f;
    char c;
    size_t got;
    assert_int_equal(fs_open(fs_sim_fs(s), "/f", FS_READ | FS_WRITE, &f), OK);
    assert_int_equal(file_pwrite(f, "b", 1, 0), OK);
    assert_int_equal(file_sync(f), ERR_IO);
    if (second_sync) assert_int_equal(file_sync(f), OK);
    assert_int_equal(file_pread(f, &c, 1, 0, &got), OK);
    assert_int_equal(c, 'b');
    file_unref(f);
    struct fs_sim *after = fs_sim_after_crash(s, seed, FS_SIM_EVERYTHING);
    size_t size;
    char *text = get(after, "/f", &size);
    int out = text[0] == 'b';
    mem_free(text);
    fs_sim_free(after);
    fs_sim_free(s);
    return out;
}

static void a_failed_sync_loses_pages_that_no_later_one_writes(void **state)
{
    (void)state;
    unsigned seen = 0;
    for (uint64_t seed = 0; seed < 64; seed++) seen |= 1U << after_failed_sync(true, seed);
    assert_int_equal(seen, 3);
}

static void a_full_disk_takes_what_fits_and_more_when_something_goes(void **state)
{
    (void)state;
    struct fs_sim *s = fs_sim_new(&(struct fs_sim_options){.capacity_bytes = 10000});
    put(s, "/a", 'a', 6000, 0, false);
    struct fs_space space;
    assert_int_equal(fs_space(fs_sim_fs(s), "/", &space), OK);
    assert_int_equal(space.total, 10000);
    assert_int_equal(space.available, 4000);
    struct file *f, *open_one;
    char bytes[5000] = {0};
    int64_t size;
    assert_int_equal(fs_open(fs_sim_fs(s), "/b", FS_WRITE | FS_CREATE, &f), OK);
    assert_int_equal(file_pwrite(f, bytes, sizeof bytes, 0), ERR_FULL);
    assert_int_equal(file_size(f, &size), OK);
    assert_int_equal(size, 4000);
    assert_int_equal(file_pwrite(f, bytes, 4000, 0), OK); /* over what is there */
    assert_int_equal(fs_open(fs_sim_fs(s), "/a", FS_READ, &open_one), OK);
    assert_int_equal(fs_unlink(fs_sim_fs(s), "/a"), OK);
    assert_int_equal(file_pwrite(f, bytes, sizeof bytes, 0), ERR_FULL); /* open, so still there */
    file_unref(open_one);
    assert_int_equal(file_pwrite(f, bytes, sizeof bytes, 0), OK);
    assert_int_equal(file_allocate(f, 0, 10001), ERR_FULL);
    assert_int_equal(file_allocate(f, 0, 10000), OK);
    file_unref(f);
    fs_sim_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_does_what_the_real_one_does),
        cmocka_unit_test(a_lock_is_held_until_it_is_closed),
        cmocka_unit_test(what_was_synced_survives_every_crash),
        cmocka_unit_test(any_subset_of_written_pages_may_survive_torn_at_times),
        cmocka_unit_test(a_file_may_have_grown_without_its_data),
        cmocka_unit_test(a_truncation_may_be_undone_but_what_it_cut_does_not_show_behind_it),
        cmocka_unit_test(a_rename_happens_or_does_not),
        cmocka_unit_test(a_rename_without_a_sync_may_leave_an_empty_file),
        cmocka_unit_test(a_journal_keeps_the_order_of_names_and_without_one_any_may_be_missing),
        cmocka_unit_test(without_a_journal_a_directory_is_sure_only_when_its_parent_was_synced),
        cmocka_unit_test(a_crash_is_the_same_for_the_same_seed),
        cmocka_unit_test(nothing_happens_once_the_power_is_off),
        cmocka_unit_test(the_nth_call_fails_and_those_around_it_do_not),
        cmocka_unit_test(a_failed_write_may_have_written_a_part),
        cmocka_unit_test(a_failed_sync_loses_pages_that_no_later_one_writes),
        cmocka_unit_test(a_full_disk_takes_what_fits_and_more_when_something_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
