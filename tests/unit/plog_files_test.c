/* plog: files of segments are closed while nobody needs them, and a lack of descriptors loses nothing. */
#include "plog_world.h"

#include <pthread.h>
#include <sched.h>

struct limited {
    struct world w;
    struct plog_files files;
    int room_made;
};

static void wants_room(void *arg)
{
    (void)arg;
}

static void make_room(void *arg, uint32_t turn)
{
    (void)turn;
    struct limited *l = arg;
    l->room_made++;
}

/* `count` segments of one record each. */
static void start(struct limited *l, int count)
{
    memset(l, 0, sizeof *l);
    world_init(&l->w);
    l->files =
        (struct plog_files){.max = SIZE_MAX, .turn = 1, .arg = l, .wants_room = wants_room, .make_room = make_room};
    l->w.opt.files = &l->files;
    l->w.opt.config.segment_bytes = 300;
    world_open(&l->w);
    for (int i = 0; i < count; i++) append_ok(&l->w, (struct batch_spec){.value_size = 200});
}

static size_t open_files(void)
{
    return fs_open_count(fs_system());
}

static void segments_that_are_on_the_disk_are_closed_and_read_again(void **state)
{
    (void)state;
    struct limited l;
    size_t before = open_files();
    start(&l, 10);
    assert_int_equal(open_files() - before, 30);
    l.files.turn = 2;
    plog_close_unused(l.w.pl, PLOG_CLOSE_OLD, 2);
    plog_close_unused(l.w.pl, PLOG_CLOSE_ACTIVE, 2);
    assert_int_equal(open_files() - before, 30); /* none of them is on the disk */
    assert_int_equal(plog_flush(l.w.pl), OK);
    plog_close_unused(l.w.pl, PLOG_CLOSE_OLD, 1); /* all have been used in turn 1 */
    assert_int_equal(open_files() - before, 30);
    plog_close_unused(l.w.pl, PLOG_CLOSE_OLD, 2);
    assert_int_equal(open_files() - before, 3);
    assert_true(plog_is_unused(l.w.pl, 2));
    plog_close_unused(l.w.pl, PLOG_CLOSE_ACTIVE, 2);
    assert_int_equal(open_files() - before, 0);
    assert_false(plog_is_unused(l.w.pl, 2));
    assert_int_equal(read_all(&l.w, 0, 1000), 10);
    append_ok(&l.w, (struct batch_spec){.value_size = 20});
    assert_int_equal(read_all(&l.w, 0, 1000), 11);
    world_kill(&l.w);
    world_open(&l.w);
    assert_int_equal(read_all(&l.w, 0, 1000), 11);
    world_fini(&l.w);
}

static void what_was_used_lately_stays_open(void **state)
{
    (void)state;
    struct limited l;
    size_t before = open_files();
    start(&l, 3);
    assert_int_equal(plog_flush(l.w.pl), OK);
    l.files.turn = 2;
    struct plog_slice s;
    assert_int_equal(plog_read(l.w.pl, 1, INT64_MAX, 1000, true, false, &s), OK);
    plog_close_unused(l.w.pl, PLOG_CLOSE_OLD, 2);
    assert_int_equal(open_files() - before, 6); /* of segments 1 and, active, 2 */
    l.files.turn = 3;
    plog_close_unused(l.w.pl, PLOG_CLOSE_OLD, 3);
    assert_int_equal(open_files() - before, 4); /* the slice holds one */
    uint8_t bytes[BATCH_HEADER_SIZE];
    size_t got;
    assert_int_equal(file_pread(s.file, bytes, sizeof bytes, s.pos, &got), OK);
    assert_int_equal(got, sizeof bytes);
    plog_slice_release(&s);
    assert_int_equal(open_files() - before, 3);
    world_fini(&l.w);
}

/* Kafka and we expect it there after a clean stop, and then nobody may have opened the segment again. */
static void an_active_segment_that_is_closed_has_its_last_time_index_entry(void **state)
{
    (void)state;
    struct limited l;
    start(&l, 1);
    assert_int_equal(plog_flush(l.w.pl), OK);
    assert_int_equal(size_of_file(&l.w, "00000000000000000000.timeindex"), 0);
    plog_close_unused(l.w.pl, PLOG_CLOSE_ACTIVE, 2);
    assert_int_equal(size_of_file(&l.w, "00000000000000000000.timeindex"), 12);
    world_close(&l.w);
    assert_int_equal(size_of_file(&l.w, "00000000000000000000.timeindex"), 12);
    world_open(&l.w);
    int64_t timestamp, offset;
    assert_int_equal(plog_max_timestamp(l.w.pl, &timestamp, &offset), OK);
    assert_int_equal(timestamp, T0_MS);
    world_fini(&l.w);
}

static void count_txn(void *arg, const struct aborted_txn *txn)
{
    assert_int_equal(txn->producer_id, 8);
    ++*(int *)arg;
}

static void a_closed_transaction_index_is_found_again(void **state)
{
    (void)state;
    struct limited l;
    start(&l, 0);
    append_ok(&l.w, (struct batch_spec){.producer_id = 8, .transactional = true});
    append_ok(&l.w, (struct batch_spec){.marker = true, .producer_id = 8, .origin = APPEND_COORDINATOR});
    append_ok(&l.w, (struct batch_spec){.value_size = 200});
    plog_replicated(l.w.pl, 3);
    assert_int_equal(plog_flush(l.w.pl), OK);
    plog_close_unused(l.w.pl, PLOG_CLOSE_OLD, 2);
    int count = 0;
    assert_int_equal(plog_aborted_txns(l.w.pl, 0, 3, true, count_txn, &count), ERR_AGAIN); /* no loop opens it */
    assert_int_equal(count, 0);
    assert_int_equal(plog_aborted_txns(l.w.pl, 0, 3, false, count_txn, &count), OK);
    assert_int_equal(count, 1);
    assert_int_equal(plog_aborted_txns(l.w.pl, 0, 3, true, count_txn, &count), OK);
    assert_int_equal(count, 2);
    world_fini(&l.w);
}

/* ---- No descriptor is left */

struct waiting {
    struct append a;
    struct writer bytes;
    int done;
};

static void waiting_done(struct append *a)
{
    CONTAINER_OF(a, struct waiting, a)->done++;
}

static void append_waiting(struct limited *l, struct waiting *wa, int32_t sequence)
{
    batch_make(&l->w, &(struct batch_spec){.value_size = 200, .producer_id = 7, .sequence = sequence}, &wa->bytes);
    wa->done = 0;
    wa->a = (struct append){.data = wa->bytes.buf->data, .size = wa->bytes.size, .now_ms = T0_MS, .done = waiting_done};
    assert_int_equal(batch_parse_header(&wa->a.info, wa->a.data, INT32_MAX), OK);
    plog_append(l->w.pl, &wa->a);
}

static void no_descriptors(struct limited *l, int times)
{
    l->w.fs.op = FAIL_OPEN;
    l->w.fs.times = times;
    l->w.fs.e = ERR_TOO_MANY;
}

static void an_append_without_a_descriptor_waits_for_a_worker_with_all_behind_it(void **state)
{
    (void)state;
    struct limited l;
    struct waiting wa[3];
    start(&l, 2); /* the next append rolls */
    no_descriptors(&l, 1);
    int wanted = l.w.work_wanted;
    for (int i = 0; i < 3; i++) append_waiting(&l, &wa[i], i);
    for (int i = 0; i < 3; i++) assert_int_equal(wa[i].done, 0);
    assert_true(l.w.fs.fired);
    assert_int_equal(plog_end(l.w.pl), 2);
    assert_true(l.w.work_wanted > wanted || wanted > 0);
    assert_int_equal(plog_work(l.w.pl), OK);
    assert_int_equal(l.room_made, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wa[i].done, 1);
        assert_int_equal(wa[i].a.kerr, KERR_NONE);
        assert_int_equal(wa[i].a.base_offset, 2 + i);
        writer_fini(&wa[i].bytes);
    }
    assert_int_equal(l.w.failed_count, 0);
    assert_int_equal(read_all(&l.w, 0, 1000), 5);
    world_fini(&l.w);
}

static void when_no_room_can_be_made_the_append_fails_and_the_log_does_not(void **state)
{
    (void)state;
    struct limited l;
    struct waiting wa;
    start(&l, 2);
    no_descriptors(&l, INT32_MAX);
    append_waiting(&l, &wa, 0);
    assert_int_equal(wa.done, 0);
    enum err ignored = plog_work(l.w.pl); /* it needs descriptors, too */
    (void)ignored;
    assert_int_equal(wa.done, 1);
    assert_int_equal(wa.a.kerr, KERR_KAFKA_STORAGE_ERROR);
    writer_fini(&wa.bytes);
    l.w.fs.times = 0;
    append_waiting(&l, &wa, 0); /* the producer's second attempt */
    assert_int_equal(wa.done, 1);
    assert_int_equal(wa.a.kerr, KERR_NONE);
    assert_int_equal(wa.a.base_offset, 2);
    writer_fini(&wa.bytes);
    no_descriptors(&l, 1); /* and the next lack is waited for again */
    append_waiting(&l, &wa, 1);
    assert_int_equal(wa.done, 0);
    assert_int_equal(plog_work(l.w.pl), OK);
    assert_int_equal(wa.a.kerr, KERR_NONE);
    writer_fini(&wa.bytes);
    assert_int_equal(l.w.failed_count, 0);
    world_fini(&l.w);
}

/* What is left is for the flushes without which nothing could be closed. */
static void no_segment_is_opened_past_the_limit(void **state)
{
    (void)state;
    struct limited l;
    struct waiting wa;
    start(&l, 2);
    l.files.max = open_files() + 3;
    append_waiting(&l, &wa, 0);
    assert_int_equal(wa.done, 0);
    assert_int_equal(open_files(), l.files.max - 3);
    l.files.max++;
    assert_int_equal(plog_work(l.w.pl), OK);
    assert_int_equal(wa.done, 1);
    assert_int_equal(wa.a.kerr, KERR_NONE);
    writer_fini(&wa.bytes);
    world_fini(&l.w);
}

static void a_retired_log_leaves_no_append_waiting(void **state)
{
    (void)state;
    struct limited l;
    struct waiting wa;
    start(&l, 2);
    no_descriptors(&l, 1);
    append_waiting(&l, &wa, 0);
    assert_int_equal(wa.done, 0);
    char *to = mem_printf("%s-delete", l.w.dir);
    assert_int_equal(plog_retire(l.w.pl, to), OK);
    mem_free(to);
    assert_int_equal(wa.done, 1);
    assert_int_equal(wa.a.kerr, KERR_NOT_LEADER_OR_FOLLOWER);
    writer_fini(&wa.bytes);
    world_fini(&l.w);
}

static void a_read_without_a_descriptor_makes_room_itself(void **state)
{
    (void)state;
    struct limited l;
    start(&l, 3);
    world_close(&l.w);
    world_open(&l.w);
    no_descriptors(&l, 1);
    assert_int_equal(read_all(&l.w, 0, 1000), 3);
    assert_true(l.w.fs.fired);
    assert_int_equal(l.room_made, 1);
    assert_int_equal(l.w.failed_count, 0);
    world_fini(&l.w);
}

/* ---- A reader opens a segment's files at the same time as a flush */

static struct meeting {
    _Atomic bool reader_opens, flush_opens, reader_opened, reader_over;
    size_t files_before;
} meeting;
static _Thread_local bool is_reader;

static bool ends_with(const char *path, const char *end)
{
    size_t size = strlen(path), end_size = strlen(end);
    return size >= end_size && strcmp(path + size - end_size, end) == 0;
}

/* The reader begins to open before the flush, and is through with it before the flush is. */
static enum err open_at_the_meeting(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    (void)fs;
    bool is_log = ends_with(path, "/00000000000000000000.log");
    if (is_log && is_reader) {
        atomic_store(&meeting.reader_opens, true);
        while (!atomic_load(&meeting.flush_opens)) sched_yield();
    }
    if (is_log && !is_reader) {
        atomic_store(&meeting.flush_opens, true);
        while (!atomic_load(&meeting.reader_opened)) sched_yield();
        while (!atomic_load(&meeting.reader_over) && open_files() > meeting.files_before) sched_yield();
    }
    enum err e = fs_open(fs_system(), path, flags, out);
    if (is_reader && ends_with(path, "/00000000000000000000.timeindex")) atomic_store(&meeting.reader_opened, true);
    return e;
}

static void *read_first(void *arg)
{
    struct world *w = arg;
    struct plog_slice s;
    is_reader = true;
    assert_int_equal(plog_read(w->pl, 0, INT64_MAX, 1000, true, false, &s), OK);
    plog_slice_release(&s);
    atomic_store(&meeting.reader_over, true);
    return NULL;
}

static void of_two_that_open_a_segment_at_once_one_closes_its_files_again(void **state)
{
    (void)state;
    struct limited l;
    size_t before = open_files();
    start(&l, 3);
    world_kill(&l.w); /* so that its segments are to be flushed, though their files are closed */
    struct fs_ops ops = *fs_system()->ops;
    struct fs fs = {.ops = &ops};
    l.w.opt.fs = &fs;
    world_open(&l.w);
    assert_int_equal(open_files(), before);
    meeting.files_before = before;
    ops.open = open_at_the_meeting;
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_first, &l.w), 0);
    while (!atomic_load(&meeting.reader_opens)) sched_yield();
    assert_int_equal(plog_flush(l.w.pl), OK);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_true(atomic_load(&meeting.reader_over));
    assert_int_equal(open_files() - before, 9);
    ops.open = fs_system()->ops->open;
    world_fini(&l.w);
    assert_int_equal(open_files(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_that_open_a_segment_at_once_one_closes_its_files_again),
        cmocka_unit_test(segments_that_are_on_the_disk_are_closed_and_read_again),
        cmocka_unit_test(what_was_used_lately_stays_open),
        cmocka_unit_test(an_active_segment_that_is_closed_has_its_last_time_index_entry),
        cmocka_unit_test(a_closed_transaction_index_is_found_again),
        cmocka_unit_test(an_append_without_a_descriptor_waits_for_a_worker_with_all_behind_it),
        cmocka_unit_test(when_no_room_can_be_made_the_append_fails_and_the_log_does_not),
        cmocka_unit_test(no_segment_is_opened_past_the_limit),
        cmocka_unit_test(a_retired_log_leaves_no_append_waiting),
        cmocka_unit_test(a_read_without_a_descriptor_makes_room_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
