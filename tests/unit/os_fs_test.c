/* os: the real file system; the clock and the random numbers besides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/clock.h"
#include "os/fs.h"
#include "os/rng.h"

static char dir[] = "/tmp/barnabas-os-fs-XXXXXX";
static struct fs *fs;

/* A path in the test's directory; good until the fourth call from now. */
static const char *in_dir(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    fs = fs_system();
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return (int)fs_remove_all(fs, dir);
}

static struct file *open_file(const char *name, unsigned flags)
{
    struct file *f;
    assert_int_equal(fs_open(fs, in_dir(name), flags, &f), OK);
    return f;
}

static bool exists(const char *name)
{
    struct fs_stat st;
    enum err e = fs_stat(fs, in_dir(name), &st);
    assert_true(e == OK || e == ERR_NOT_FOUND);
    return e == OK;
}

static void open_flags_mean_what_they_say(void **state)
{
    (void)state;
    struct file *f;
    assert_int_equal(fs_open(fs, in_dir("flags"), FS_READ, &f), ERR_NOT_FOUND);
    f = open_file("flags", FS_WRITE | FS_CREATE | FS_EXCLUSIVE);
    assert_int_equal(file_pwrite(f, "abc", 3, 0), OK);
    size_t got;
    char c;
    assert_int_not_equal(file_pread(f, &c, 1, 0, &got), OK); /* not for reading */
    file_unref(f);
    assert_int_equal(fs_open(fs, in_dir("flags"), FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &f), ERR_EXISTS);
    f = open_file("flags", FS_READ | FS_WRITE | FS_CREATE);
    int64_t size;
    assert_int_equal(file_size(f, &size), OK);
    assert_int_equal(size, 3);
    assert_true(fcntl(f->fd, F_GETFD) & FD_CLOEXEC);
    file_unref(f);
    f = open_file("flags", FS_WRITE | FS_TRUNCATE);
    assert_int_equal(file_size(f, &size), OK);
    assert_int_equal(size, 0);
    file_unref(f);
}

static void what_is_no_file_is_refused_and_never_waited_for(void **state)
{
    (void)state;
    struct file *f;
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    assert_int_equal(fs_mkdir(fs, in_dir("directory")), OK);
    assert_int_equal(symlink("loop", in_dir("loop")), 0);
    static const char *const names[] = {"pipe", "directory", "loop"};
    static const unsigned ways[] = {FS_READ, FS_WRITE, FS_READ | FS_WRITE, FS_READ | FS_WRITE | FS_CREATE};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        for (size_t k = 0; k < ARRAY_COUNT(ways); k++)
            assert_int_equal(fs_open(fs, in_dir(names[i]), ways[k], &f), ERR_NOT_FILE);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) assert_int_equal(fs_remove_all(fs, in_dir(names[i])), OK);
}

static void a_write_of_more_pieces_than_the_kernel_takes_is_complete(void **state)
{
    (void)state;
    enum { PIECES = 3 * IOV_MAX + 5, PIECE_MAX = 7 };
    struct iovec *iov = mem_zalloc(PIECES, sizeof *iov);
    char *all = mem_alloc(PIECES * PIECE_MAX);
    size_t size = 0;
    for (int i = 0; i < PIECES; i++) {
        iov[i].iov_base = all + size;
        iov[i].iov_len = (size_t)(i % (PIECE_MAX + 1)); /* empty ones too */
        for (size_t k = 0; k < iov[i].iov_len; k++) all[size++] = (char)i;
    }
    struct file *f = open_file("pieces", FS_READ | FS_WRITE | FS_CREATE);
    assert_int_equal(file_pwritev(f, iov, PIECES, 1000), OK);
    char *back = mem_alloc(size + 10);
    size_t got;
    assert_int_equal(file_pread(f, back, size + 10, 1000, &got), OK);
    assert_int_equal(got, size);
    assert_memory_equal(back, all, size);
    assert_int_equal(file_pwritev(f, NULL, 0, 0), OK);
    file_unref(f);
    mem_free(back);
    mem_free(all);
    mem_free(iov);
}

static void a_write_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    struct file *f;
    assert_int_equal(fs_open(fs, "/dev/full", FS_WRITE, &f), OK);
    assert_int_equal(file_pwrite(f, "x", 1, 0), ERR_FULL);
    file_unref(f);
}

static void a_read_ends_at_the_end_of_the_file(void **state)
{
    (void)state;
    struct file *f = open_file("short", FS_READ | FS_WRITE | FS_CREATE);
    assert_int_equal(file_pwrite(f, "0123456789", 10, 0), OK);
    char out[100];
    size_t got;
    assert_int_equal(file_pread(f, out, sizeof out, 4, &got), OK);
    assert_int_equal(got, 6);
    assert_memory_equal(out, "456789", 6);
    assert_int_equal(file_pread(f, out, sizeof out, 10, &got), OK);
    assert_int_equal(got, 0);
    assert_int_equal(file_truncate(f, 5), OK);
    assert_int_equal(file_pread(f, out, sizeof out, 4, &got), OK);
    assert_int_equal(got, 1);
    file_unref(f);
}

static void a_read_that_may_not_wait_gives_what_is_cached_or_says_again(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    char *data = mem_alloc(SIZE), *back = mem_alloc(SIZE);
    for (int i = 0; i < SIZE; i++) data[i] = (char)(i * 31);
    struct file *f = open_file("nowait", FS_READ | FS_WRITE | FS_CREATE);
    assert_int_equal(file_pwrite(f, data, SIZE, 0), OK);
    size_t got;
    assert_int_equal(file_pread_nowait(f, back, SIZE, 0, &got), OK); /* just written: in the cache */
    assert_int_equal(got, SIZE);
    assert_memory_equal(back, data, SIZE);
    assert_int_equal(file_pread_nowait(f, back, SIZE, SIZE - 3, &got), OK);
    assert_int_equal(got, 3);
    file_write_behind(f, 0, SIZE);
    assert_int_equal(file_sync(f), OK);
    file_drop_cache(f, 0, SIZE);
    /* Whether pages really went is the kernel's choice (none go on tmpfs): either answer is allowed, wrong data is not.
     */
    enum err e = file_pread_nowait(f, back, SIZE, 0, &got);
    assert_true(e == OK || e == ERR_AGAIN);
    memset(back, 0, SIZE);
    assert_int_equal(file_pread(f, back, SIZE, 0, &got), OK);
    assert_int_equal(got, SIZE);
    assert_memory_equal(back, data, SIZE);
    file_unref(f);
    mem_free(data);
    mem_free(back);
}

static void a_file_system_without_nowait_is_read_the_plain_way(void **state)
{
    (void)state;
    struct file *f;
    assert_int_equal(fs_open(fs, "/proc/self/cmdline", FS_READ, &f), OK); /* procfs has no RWF_NOWAIT */
    char out[4096];
    for (int i = 0; i < 2; i++) {
        size_t got = 0;
        assert_int_equal(file_pread_nowait(f, out, sizeof out, 0, &got), OK);
        assert_true(got > 0);
    }
    file_unref(f);
}

static void allocation_gives_blocks_and_length(void **state)
{
    (void)state;
    struct file *f = open_file("allocated", FS_READ | FS_WRITE | FS_CREATE);
    enum err e = file_allocate(f, 0, 1 << 20);
    file_unref(f);
    if (e == ERR_UNSUPPORTED) skip();
    assert_int_equal(e, OK);
    struct stat st;
    assert_int_equal(stat(in_dir("allocated"), &st), 0);
    assert_int_equal(st.st_size, 1 << 20);
    assert_true(st.st_blocks * 512 >= 1 << 20);
}

static void a_map_shows_and_changes_the_file(void **state)
{
    (void)state;
    struct file *f = open_file("map", FS_READ | FS_WRITE | FS_CREATE);
    assert_int_equal(file_pwrite(f, "hello", 5, 0), OK);
    void *map;
    assert_int_equal(file_map(f, 4096, &map), ERR_RANGE);
    assert_int_equal(file_truncate(f, 4096), OK);
    assert_int_equal(file_map(f, 4096, &map), OK);
    assert_memory_equal(map, "hello", 5);
    memcpy(map, "HELLO", 5);
    file_unref(f); /* the map stays */
    memcpy((char *)map + 100, "x", 1);
    file_unmap(map, 4096);
    char *data;
    size_t size;
    assert_int_equal(fs_read_whole(fs, in_dir("map"), 4096, &data, &size), OK);
    assert_int_equal(size, 4096);
    assert_memory_equal(data, "HELLO", 5);
    assert_int_equal(data[100], 'x');
    assert_int_equal(data[4096], '\0');
    mem_free(data);
}

static void replace_leaves_the_new_content_and_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(fs_replace(fs, in_dir("checkpoint"), "old and long", 12), OK);
    assert_int_equal(fs_replace(fs, in_dir("checkpoint"), "new", 3), OK);
    char *data;
    size_t size;
    assert_int_equal(fs_read_whole(fs, in_dir("checkpoint"), 3, &data, &size), OK);
    assert_string_equal(data, "new");
    assert_int_equal(size, 3);
    mem_free(data);
    assert_int_equal(fs_read_whole(fs, in_dir("checkpoint"), 2, &data, &size), ERR_TOO_BIG);
    assert_false(exists("checkpoint.tmp"));
    assert_int_equal(fs_replace(fs, in_dir("nowhere/checkpoint"), "x", 1), ERR_NOT_FOUND);
    /* A directory in the way: the old thing stays, the temporary file goes. */
    assert_int_equal(fs_mkdir(fs, in_dir("occupied")), OK);
    assert_int_not_equal(fs_replace(fs, in_dir("occupied"), "x", 1), OK);
    assert_false(exists("occupied.tmp"));
    assert_true(exists("occupied"));
}

static void mkdir_all_makes_what_is_missing(void **state)
{
    (void)state;
    assert_int_equal(fs_mkdir(fs, in_dir("a/b/c")), ERR_NOT_FOUND);
    assert_int_equal(fs_mkdir_all(fs, in_dir("a/b/c")), OK);
    assert_int_equal(fs_mkdir_all(fs, in_dir("a/b/c")), OK);
    assert_int_equal(fs_mkdir_all(fs, in_dir("a/b/d/")), OK);
    assert_int_equal(fs_mkdir(fs, in_dir("a/b")), ERR_EXISTS);
    struct fs_stat st;
    assert_int_equal(fs_stat(fs, in_dir("a/b/d"), &st), OK);
    assert_true(st.is_dir);
    file_unref(open_file("a/file", FS_WRITE | FS_CREATE));
    assert_int_equal(fs_mkdir_all(fs, in_dir("a/file")), ERR_EXISTS);
    assert_int_equal(fs_mkdir_all(fs, in_dir("a/file/x")), ERR_NOT_FOUND);
    assert_int_equal(fs_rmdir(fs, in_dir("a")), ERR_NOT_EMPTY);
}

struct seen {
    int files, dirs;
};

static void count_entry(void *arg, const char *name, bool is_dir)
{
    struct seen *seen = arg;
    assert_string_not_equal(name, ".");
    assert_string_not_equal(name, "..");
    if (is_dir)
        seen->dirs++;
    else
        seen->files++;
}

static void remove_all_takes_the_tree_but_follows_no_link(void **state)
{
    (void)state;
    assert_int_equal(fs_mkdir_all(fs, in_dir("tree/deep/er")), OK);
    assert_int_equal(fs_mkdir(fs, in_dir("outside")), OK);
    file_unref(open_file("outside/precious", FS_WRITE | FS_CREATE));
    file_unref(open_file("tree/deep/file", FS_WRITE | FS_CREATE));
    assert_int_equal(symlink(in_dir("outside"), in_dir("tree/link")), 0);
    assert_int_equal(symlink("nowhere", in_dir("tree/dangling")), 0);
    struct seen seen = {0};
    assert_int_equal(fs_list(fs, in_dir("tree"), count_entry, &seen), OK);
    assert_int_equal(seen.dirs, 2); /* a link to a directory counts as one, as for Kafka */
    assert_int_equal(seen.files, 1);
    assert_int_equal(fs_remove_all(fs, in_dir("tree")), OK);
    assert_false(exists("tree"));
    assert_true(exists("outside/precious"));
    assert_int_equal(fs_remove_all(fs, in_dir("tree")), ERR_NOT_FOUND);
    assert_int_equal(fs_list(fs, in_dir("tree"), count_entry, &seen), ERR_NOT_FOUND);
}

static void rename_replaces_and_an_open_file_outlives_its_name(void **state)
{
    (void)state;
    struct file *f = open_file("segment", FS_READ | FS_WRITE | FS_CREATE);
    assert_int_equal(file_pwrite(f, "data", 4, 0), OK);
    file_unref(open_file("segment.deleted", FS_WRITE | FS_CREATE));
    assert_int_equal(fs_rename(fs, in_dir("segment"), in_dir("segment.deleted")), OK);
    assert_int_equal(fs_sync_dir(fs, dir), OK);
    assert_int_equal(fs_unlink(fs, in_dir("segment.deleted")), OK);
    assert_int_equal(fs_unlink(fs, in_dir("segment.deleted")), ERR_NOT_FOUND);
    struct file *second = file_ref(f);
    file_unref(f);
    char out[4];
    size_t got;
    assert_int_equal(file_pread(second, out, 4, 0, &got), OK);
    assert_memory_equal(out, "data", 4);
    file_unref(second);
    file_unref(NULL);
}

static void stat_and_space_are_plausible(void **state)
{
    (void)state;
    struct file *f = open_file("stat", FS_WRITE | FS_CREATE);
    assert_int_equal(file_pwrite(f, "12345", 5, 0), OK);
    file_unref(f);
    struct fs_stat st, st_dir;
    assert_int_equal(fs_stat(fs, in_dir("stat"), &st), OK);
    assert_int_equal(fs_stat(fs, dir, &st_dir), OK);
    assert_int_equal(st.size, 5);
    assert_false(st.is_dir);
    assert_true(st_dir.is_dir);
    assert_true(st.device == st_dir.device);
    int64_t age_ms = clock_wall_ms(clock_system()) - st.modified_ms;
    assert_true(age_ms > -1000 && age_ms < 60000);
    struct fs_space space;
    assert_int_equal(fs_space(fs, dir, &space), OK);
    assert_true(space.total >= space.available && space.available > 0);
}

/* What a JVM does in FileChannel.tryLock(): a lock of the process on the whole file. */
static int posix_lock_errno(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 0};
    return fcntl(fd, F_SETLK, &whole) < 0 ? errno : 0;
}

static void a_lock_excludes_this_process_and_a_jvm(void **state)
{
    (void)state;
    struct file *lock, *second;
    assert_int_equal(fs_lock(fs, in_dir(".lock"), &lock), OK);
    assert_int_equal(fs_lock(fs, in_dir(".lock"), &second), ERR_LOCKED);
    /* Another look at the file and its end must not free the lock, as it would with the lock of a process. */
    char *data;
    size_t size;
    assert_int_equal(fs_read_whole(fs, in_dir(".lock"), 100, &data, &size), OK);
    mem_free(data);
    pid_t child = fork();
    if (child == 0) {
        int e = posix_lock_errno(in_dir(".lock"));
        _exit(e == EAGAIN || e == EACCES ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    file_unref(lock);

    /* The other way round: the child takes it as a JVM, tells, and holds it until it is told. */
    int up[2], down[2];
    char byte = 0;
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    child = fork();
    if (child == 0) {
        bool ok = posix_lock_errno(in_dir(".lock")) == 0 && write(up[1], &byte, 1) == 1 && read(down[0], &byte, 1) == 1;
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(read(up[0], &byte, 1), 1);
    assert_int_equal(fs_lock(fs, in_dir(".lock"), &lock), ERR_LOCKED);
    assert_int_equal(write(down[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fs_lock(fs, in_dir(".lock"), &lock), OK);
    file_unref(lock);
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
    assert_int_equal(fs_lock(fs, in_dir("nowhere/.lock"), &lock), ERR_NOT_FOUND);
}

static void time_does_not_step_back(void **state)
{
    (void)state;
    struct clock *c = clock_system();
    int64_t before = clock_mono_us(c);
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_us(c);
        assert_true(now >= before);
        before = now;
    }
    assert_true(clock_wall_ms(c) > INT64_C(1700000000000));
}

/* Gives its words in turn. */
struct script_rng {
    struct rng rng;
    uint64_t words[4];
    unsigned next;
};

static void script_fill(struct rng *r, void *out, size_t size)
{
    struct script_rng *sr = CONTAINER_OF(r, struct script_rng, rng);
    memcpy(out, &sr->words[sr->next++], size);
}

static void random_numbers_below_a_bound_are_even(void **state)
{
    (void)state;
    /* 2^64 = 6 mod 10: the draws 0 to 5 would favour the small results and are drawn again. */
    struct script_rng script = {.rng.fill = script_fill, .words = {5, 0, 6, UINT64_MAX}};
    assert_int_equal(rng_below(&script.rng, 10), 6);
    assert_int_equal(script.next, 3);
    assert_int_equal(rng_below(&script.rng, 10), 5);
    unsigned seen = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = rng_below(rng_system(), 5);
        assert_true(x < 5);
        seen |= BIT(x);
    }
    assert_int_equal(seen, 0x1f);
    assert_int_equal(rng_below(rng_system(), 1), 0);
    struct uuid a = rng_uuid(rng_system()), b = rng_uuid(rng_system());
    assert_false(uuid_equal(a, b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_flags_mean_what_they_say),
        cmocka_unit_test(what_is_no_file_is_refused_and_never_waited_for),
        cmocka_unit_test(a_write_of_more_pieces_than_the_kernel_takes_is_complete),
        cmocka_unit_test(a_write_that_does_not_fit_is_an_error),
        cmocka_unit_test(a_read_ends_at_the_end_of_the_file),
        cmocka_unit_test(a_read_that_may_not_wait_gives_what_is_cached_or_says_again),
        cmocka_unit_test(a_file_system_without_nowait_is_read_the_plain_way),
        cmocka_unit_test(allocation_gives_blocks_and_length),
        cmocka_unit_test(a_map_shows_and_changes_the_file),
        cmocka_unit_test(replace_leaves_the_new_content_and_nothing_else),
        cmocka_unit_test(mkdir_all_makes_what_is_missing),
        cmocka_unit_test(remove_all_takes_the_tree_but_follows_no_link),
        cmocka_unit_test(rename_replaces_and_an_open_file_outlives_its_name),
        cmocka_unit_test(stat_and_space_are_plausible),
        cmocka_unit_test(a_lock_excludes_this_process_and_a_jvm),
        cmocka_unit_test(time_does_not_step_back),
        cmocka_unit_test(random_numbers_below_a_bound_are_even),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
