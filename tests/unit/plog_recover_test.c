/* plog: what is opened: logs of Kafka's, torn logs, logs whose indexes are gone or wrong, half-done swaps. */
#include "plog_world.h"

#include <zlib.h>

#include "base/endian.h"

#define LOG0   "00000000000000000000.log"
#define INDEX0 "00000000000000000000.index"
#define TIMES0 "00000000000000000000.timeindex"

/* ---- Kafka's own */

struct name_list {
    char names[64][80];
    int count;
};

static void name_list_add(void *arg, const char *name, bool is_dir)
{
    struct name_list *list = arg;
    if (!is_dir) snprintf(list->names[list->count++], sizeof list->names[0], "%s", name);
}

static void copy_fixture(struct world *w, const char *partition)
{
    struct name_list list = {0};
    char *from = mem_printf("tests/data/kafka39/%s", partition);
    assert_int_equal(fs_list(fs_system(), from, name_list_add, &list), OK);
    assert_int_equal(fs_mkdir(fs_system(), w->dir), OK);
    for (int i = 0; i < list.count; i++) {
        char *path = mem_printf("%s/%s", from, list.names[i]), *data;
        size_t size;
        assert_int_equal(fs_read_whole(fs_system(), path, 1 << 20, &data, &size), OK);
        write_file(w, list.names[i], data, size);
        mem_free(data);
        mem_free(path);
    }
    mem_free(from);
}

struct expected {
    const char *partition;
    int64_t checkpoint_start, start, end, records, offset_sum, weighted; /* of data records from `start` on */
    int64_t max_timestamp, max_offset;
};

/* From kafka39-expected.jsonl; `weighted` sums timestamp % 1000003 * (offset + 1). */
static const struct expected fixtures[] = {
    {"txn-0", 0, 0, 112, 100, 5528, 2533805886, INT64_C(1795970838747), 111}, /* of the last marker */
    {"compacted-0", 0, 0, 600, 100, 54065, 24267635414, INT64_C(1795970836053), 582},
    {"trimmed-0", 123, 123, 400, 277, 72297, 13474069708, INT64_C(1700000399480), 399},
    {"codec-none-1", 0, 0, 141, 141, 9870, 2216900107, INT64_C(1700000390209), 140},
};

/* Counts the data records from `from` on. */
static void count_records(struct world *w, int64_t from, const struct expected *want)
{
    int64_t records = 0, offset_sum = 0, weighted = 0;
    for (int64_t at = from; at < plog_end(w->pl);) {
        struct plog_slice s;
        assert_int_equal(plog_read(w->pl, at, INT64_MAX, 700, true, false, &s), OK);
        if (!s.file) break;
        uint8_t *data = mem_alloc(s.size);
        size_t got, pos = 0;
        assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
        while (s.size - pos >= BATCH_HEADER_SIZE) {
            struct batch_info b;
            struct record_iter it;
            struct record r;
            if (batch_parse_header(&b, data + pos, (int64_t)(s.size - pos)) != OK) break;
            assert_int_equal(record_iter_init(&it, data + pos, (size_t)b.size, 1 << 20), OK);
            while (record_iter_next(&it, &r) == OK) {
                if (r.offset < from || (b.attributes & BATCH_CONTROL)) continue;
                records++;
                offset_sum += r.offset;
                weighted += r.timestamp % 1000003 * (r.offset + 1);
            }
            record_iter_fini(&it);
            at = batch_last_offset(&b) + 1;
            pos += (size_t)b.size;
        }
        assert_true(pos > 0);
        mem_free(data);
        plog_slice_release(&s);
    }
    assert_int_equal(records, want->records);
    assert_int_equal(offset_sum, want->offset_sum);
    assert_int_equal(weighted, want->weighted);
}

static void check_fixture(struct world *w, const struct expected *want)
{
    assert_int_equal(plog_start(w->pl), want->start);
    assert_int_equal(plog_end(w->pl), want->end);
    count_records(w, want->start, want);
    int64_t timestamp, offset;
    assert_int_equal(plog_max_timestamp(w->pl, &timestamp, &offset), OK);
    assert_int_equal(timestamp, want->max_timestamp);
    assert_int_equal(offset, want->max_offset);
}

static void what_kafka_wrote_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(fixtures); i++) {
        for (int clean = 0; clean < 2; clean++) {
            struct world w;
            world_init(&w);
            copy_fixture(&w, fixtures[i].partition);
            w.opt.clean = clean;
            w.opt.log_start = fixtures[i].checkpoint_start;
            w.clock.now_ms = fixtures[i].max_timestamp;
            world_open(&w);
            check_fixture(&w, &fixtures[i]);
            /* And again after it was written to. */
            struct append a = append_batch(&w, (struct batch_spec){.count = 1, .timestamp = 1});
            assert_int_equal(a.kerr, KERR_NONE);
            assert_int_equal(a.base_offset, fixtures[i].end);
            assert_int_equal(plog_truncate(w.pl, fixtures[i].end), OK);
            check_fixture(&w, &fixtures[i]);
            world_close(&w);
            world_open(&w);
            check_fixture(&w, &fixtures[i]);
            world_fini(&w);
        }
    }
}

/* An unclean open makes indexes anew: byte for byte what Kafka wrote, but for the segments that its cleaner rewrote in
 * larger appends, and whose appends held one batch each. */
static void indexes_made_anew_are_kafkas(void **state)
{
    (void)state;
    static const char *const partitions[] = {"codec-none-1", "txn-0", "trimmed-0"};
    for (size_t i = 0; i < ARRAY_COUNT(partitions); i++) {
        struct world w;
        world_init(&w);
        w.opt.config.index_interval_bytes = 4096;
        copy_fixture(&w, partitions[i]);
        struct name_list list = {0};
        assert_int_equal(fs_list(fs_system(), w.dir, name_list_add, &list), OK);
        world_open(&w);
        world_close(&w);
        for (int j = 0; j < list.count; j++) {
            size_t n = strlen(list.names[j]);
            if (n < 5 || strcmp(list.names[j] + n - 5, "index") != 0) continue;
            uint8_t *ours;
            char *path = mem_printf("tests/data/kafka39/%s/%s", partitions[i], list.names[j]), *theirs;
            size_t our_size, their_size;
            read_file(&w, list.names[j], &ours, &our_size);
            assert_int_equal(fs_read_whole(fs_system(), path, 1 << 20, &theirs, &their_size), OK);
            assert_int_equal(our_size, their_size);
            assert_memory_equal(ours, theirs, our_size);
            mem_free(ours);
            mem_free(theirs);
            mem_free(path);
        }
        world_fini(&w);
    }
}

static void add_aborted(void *arg, const struct aborted_txn *txn)
{
    int64_t *sum = arg;
    assert_true(txn->first_offset >= sum[1]);
    sum[1] = txn->first_offset;
    sum[0] = sum[0] * 1000 + txn->first_offset;
}

static void aborted_transactions_of_kafkas_are_found(void **state)
{
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct world w;
        world_init(&w);
        copy_fixture(&w, "txn-0");
        w.opt.clean = clean; /* an unclean open makes .txnindex anew */
        w.clock.now_ms = INT64_C(1795970832714);
        world_open(&w);
        int64_t sum[2] = {0};
        assert_int_equal(plog_aborted_txns(w.pl, 0, 112, false, add_aborted, sum), OK);
        assert_int_equal(sum[0], INT64_C(36052082092));
        int64_t some[2] = {0};
        assert_int_equal(plog_aborted_txns(w.pl, 50, 60, false, add_aborted, some), OK);
        assert_int_equal(some[0], 52);
        world_fini(&w);
    }
}

static void a_file_that_cannot_be_made_ends_the_recovery_and_cuts_nothing(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    copy_fixture(&w, "txn-0");
    w.clock.now_ms = INT64_C(1795970832714);
    const int64_t size = size_of_file(&w, "00000000000000000062.log");
    w.fs.op = FAIL_OPEN;
    w.fs.times = INT_MAX;
    w.fs.only = ".txnindex";
    w.fs.e = ERR_NOT_FOUND; /* what a directory that has vanished says */
    struct plog *pl;
    struct fault f;
    assert_int_equal(plog_open(&pl, &w.opt, &f), ERR_NOT_FILE);
    assert_int_equal(size_of_file(&w, "00000000000000000062.log"), size);
    w.fs.op = FAIL_NONE;
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 112);
    world_fini(&w);
}

/* ---- Torn ends */

enum { BATCHES = 6 };

/* A log of a few batches, killed; returns its bytes and where the last batch starts. */
static void make_log(struct world *w, uint8_t **data, size_t *size, size_t *last_at)
{
    world_open(w);
    for (int i = 0; i < BATCHES; i++) {
        *last_at = (size_t)plog_size(w->pl);
        append_ok(w, (struct batch_spec){.count = 2, .value_size = 40, .producer_id = 4, .sequence = 2 * i});
    }
    world_kill(w);
    read_file(w, LOG0, data, size);
}

static void a_log_cut_at_any_byte_of_its_last_batch_is_whole_again(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    uint8_t *data;
    size_t size, last_at;
    make_log(&w, &data, &size, &last_at);
    for (size_t cut = last_at; cut <= size; cut++) {
        write_file(&w, LOG0, data, cut);
        int64_t end = cut == size ? 2 * BATCHES : 2 * (BATCHES - 1);
        world_open(&w);
        assert_int_equal(plog_end(w.pl), end);
        assert_int_equal(read_all(&w, 0, 1000), end);
        assert_int_equal(size_of_file(&w, LOG0), cut == size ? size : last_at);
        struct append a = append_batch(&w, (struct batch_spec){.count = 2, .producer_id = 4, .sequence = (int32_t)end});
        assert_int_equal(a.kerr, KERR_NONE);
        assert_int_equal(a.base_offset, end);
        world_kill(&w);
    }
    mem_free(data);
    world_fini(&w);
}

static void garbage_behind_the_end_is_cut(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    uint8_t *data;
    size_t size, last_at;
    make_log(&w, &data, &size, &last_at);
    enum { EXTRA = 300 };
    data = mem_realloc(data, size + EXTRA);
    for (int kind = 0; kind < 6; kind++) {
        uint8_t *tail = data + size;
        size_t extra = EXTRA;
        for (size_t i = 0; i < EXTRA; i++) tail[i] = kind == 1 ? 0xff : kind == 2 ? (uint8_t)(i * 37 + 11) : 0;
        if (kind >= 3) { /* a batch that was there before, out of place, changed, or too long by its own account */
            extra = size - last_at;
            memcpy(tail, data + last_at, extra);
            if (kind == 4) {
                batch_set_offset(tail, 2 * BATCHES);
                tail[extra - 1] ^= 1;
            }
            if (kind == 5) {
                batch_set_offset(tail, 2 * BATCHES);
                put_be32(tail + BATCH_AT_LENGTH, get_be32(tail + BATCH_AT_LENGTH) + 1);
            }
        }
        write_file(&w, LOG0, data, size + extra);
        world_open(&w);
        assert_int_equal(plog_end(w.pl), 2 * BATCHES);
        assert_int_equal(read_all(&w, 0, 1000), 2 * BATCHES);
        assert_int_equal(size_of_file(&w, LOG0), size);
        world_kill(&w);
    }
    mem_free(data);
    world_fini(&w);
}

static void a_flipped_bit_cuts_the_log_before_its_batch_and_what_follows(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 600;
    world_open(&w);
    for (int i = 0; i < 20; i++) append_ok(&w, (struct batch_spec){.value_size = 200});
    world_kill(&w);
    uint8_t *data;
    size_t size;
    read_file(&w, "00000000000000000004.log", &data, &size);
    data[size - 5] ^= 0x10; /* in the second batch of the third segment */
    write_file(&w, "00000000000000000004.log", data, size);
    mem_free(data);
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 5);
    assert_int_equal(read_all(&w, 0, 100), 5);
    assert_int_equal(size_of_file(&w, "00000000000000000006.log"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000006.index"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000018.snapshot"), -1);
    append_ok(&w, (struct batch_spec){.value_size = 200});
    assert_int_equal(read_all(&w, 0, 100), 6);
    world_fini(&w);
}

static void below_the_recovery_point_nothing_is_scanned(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 600;
    world_open(&w);
    for (int i = 0; i < 20; i++) append_ok(&w, (struct batch_spec){.value_size = 200});
    assert_int_equal(plog_flush(w.pl), OK);
    world_kill(&w);
    uint8_t *data;
    size_t size;
    read_file(&w, "00000000000000000004.log", &data, &size);
    data[size - 5] ^= 0x10;
    write_file(&w, "00000000000000000004.log", data, size);
    mem_free(data);
    w.opt.recovery_point = 20;
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 20);
    assert_int_equal(plog_recovery_point(w.pl), 20);
    world_fini(&w);
}

static void a_clean_mark_on_a_torn_log_is_not_believed(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    uint8_t *data;
    size_t size, last_at;
    make_log(&w, &data, &size, &last_at);
    write_file(&w, LOG0, data, size - 3);
    mem_free(data);
    w.opt.clean = true;
    world_open(&w);
    assert_int_equal(plog_end(w.pl), 2 * (BATCHES - 1));
    assert_int_equal(size_of_file(&w, LOG0), last_at);
    world_fini(&w);
}

static void epochs_are_found_again_and_cut_at_the_new_end(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    for (int i = 0; i < 4; i++) append_ok(&w, (struct batch_spec){.leader_epoch = i + 1});
    int64_t before_last = plog_size(w.pl);
    append_ok(&w, (struct batch_spec){.leader_epoch = 9});
    world_kill(&w);
    uint8_t *data;
    size_t size;
    read_file(&w, LOG0, &data, &size);
    write_file(&w, LOG0, data, (size_t)before_last + 5);
    mem_free(data);
    world_open(&w);
    assert_int_equal(plog_last_epoch(w.pl), 4);
    world_kill(&w);
    remove_file(&w, "leader-epoch-checkpoint");
    world_open(&w);
    assert_int_equal(plog_last_epoch(w.pl), 4);
    assert_int_equal(plog_epoch_of(w.pl, 2), 3);
    world_close(&w);
    write_file(&w, "leader-epoch-checkpoint", "0\n7\nrubbish", 11);
    world_open(&w);
    assert_int_equal(plog_last_epoch(w.pl), 4);
    assert_int_equal(plog_epoch_of(w.pl, 2), 3);
    world_fini(&w);
}

static void a_leader_that_goes_on_after_a_restart_writes_no_epochs(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    assert_int_equal(plog_epoch_begin(w.pl, 3), OK);
    world_close(&w);
    int creates = w.fs.creates, writes = w.fs.writes;
    for (int i = 0; i < 3; i++) {
        world_open(&w);
        assert_int_equal(plog_last_epoch(w.pl), -1); /* Kafka too drops one that begins at the end */
        assert_int_equal(plog_epoch_begin(w.pl, 3), OK);
        assert_int_equal(plog_last_epoch(w.pl), 3);
        world_close(&w);
    }
    assert_int_equal(w.fs.creates, creates);
    assert_int_equal(w.fs.writes, writes);
    world_fini(&w);
}

/* Closed with epoch 7 beginning at the end, 5; opened again as a follower whose leader still writes in epoch 2. */
static void open_with_an_epoch_cut_off(struct world *w)
{
    world_init(w);
    world_open(w);
    append_ok(w, (struct batch_spec){.leader_epoch = 2, .count = 5});
    assert_int_equal(plog_epoch_begin(w->pl, 7), OK);
    world_close(w);
    world_open(w);
    assert_int_equal(plog_last_epoch(w->pl), 2);
}

static void an_epoch_cut_off_at_opening_does_not_come_back_over_batches(void **state)
{
    (void)state;
    struct world w;
    open_with_an_epoch_cut_off(&w);
    append_ok(&w, (struct batch_spec){.leader_epoch = 2});
    world_close(&w);
    world_open(&w);
    assert_int_equal(plog_last_epoch(w.pl), 2);
    assert_int_equal(plog_epoch_of(w.pl, 5), 2);
    world_fini(&w);
}

static void recovery_believes_the_batches_more_than_the_epochs_of_the_file(void **state)
{
    (void)state;
    struct world w;
    open_with_an_epoch_cut_off(&w);
    append_ok(&w, (struct batch_spec){.leader_epoch = 2});
    world_kill(&w); /* before a flush, which writes the file anew */
    uint8_t *data;
    size_t size;
    read_file(&w, "leader-epoch-checkpoint", &data, &size);
    assert_int_equal(size, strlen("0\n2\n2 0\n7 5\n"));
    assert_memory_equal(data, "0\n2\n2 0\n7 5\n", size);
    mem_free(data);
    world_open(&w);
    assert_int_equal(plog_last_epoch(w.pl), 2);
    assert_int_equal(plog_epoch_of(w.pl, 5), 2);
    world_fini(&w);
}

static void a_first_epochs_file_that_was_torn_costs_no_epoch(void **state)
{
    (void)state;
    static const char *const torn[] = {"", "0", "0\n1", "0\n1\n", "0\n1\n3", "\0\0\0\0"};
    struct world w;
    world_init(&w);
    world_open(&w);
    assert_int_equal(plog_epoch_begin(w.pl, 3), OK);
    append_ok(&w, (struct batch_spec){.leader_epoch = 3});
    world_kill(&w);
    for (size_t i = 0; i < ARRAY_COUNT(torn); i++) {
        write_file(&w, "leader-epoch-checkpoint", torn[i], i == 5 ? 4 : strlen(torn[i]));
        world_open(&w);
        assert_int_equal(plog_last_epoch(w.pl), 3);
        assert_int_equal(plog_epoch_of(w.pl, 0), 3);
        world_kill(&w);
        size_t size;
        uint8_t *data;
        read_file(&w, "leader-epoch-checkpoint", &data, &size);
        assert_int_equal(size, strlen("0\n1\n3 0\n"));
        assert_memory_equal(data, "0\n1\n3 0\n", size);
        mem_free(data);
    }
    world_fini(&w);
}

/* ---- Indexes */

static void make_indexed_log(struct world *w)
{
    w->opt.config.segment_bytes = 160000; /* a batch has about 890 bytes: segments at 0 and 362 */
    world_open(w);
    for (int i = 0; i < 300; i++) {
        w->clock.now_ms += 100;
        append_ok(w, (struct batch_spec){.count = 2, .value_size = 400});
    }
    world_close(w);
}

static void check_indexed_log(struct world *w)
{
    assert_int_equal(plog_end(w->pl), 600);
    for (int64_t from = 0; from < 600; from += 41) assert_int_equal(read_all(w, from, 2000), 600 - from);
    int64_t offset, found_ms;
    int32_t epoch;
    for (int i = 0; i < 300; i += 17) {
        int64_t at = T0_MS + (i + 1) * 100;
        assert_int_equal(plog_find_time(w->pl, at, INT64_MAX, &offset, &found_ms, &epoch), OK);
        assert_int_equal(offset, i * 2);
        assert_int_equal(found_ms, at);
    }
}

static void damaged_indexes_are_made_anew(void **state)
{
    (void)state;
    /* Of the first, a closed segment, and of the last, which is appended to. */
    const char *last[2] = {"00000000000000000362.index", "00000000000000000362.timeindex"};
    const char *first[2] = {INDEX0, TIMES0};
    for (int kind = 0; kind < 6; kind++) {
        struct world w;
        world_init(&w);
        make_indexed_log(&w);
        assert_true(size_of_file(&w, last[0]) > 16);
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 2; j++) {
                const char *name = i ? last[j] : first[j];
                uint8_t *data;
                size_t size;
                read_file(&w, name, &data, &size);
                data = mem_realloc(data, size + 48000);
                memset(data + size, 0, 48000);
                if (kind == 0) remove_file(&w, name);
                if (kind == 1) write_file(&w, name, data, size - 3);
                if (kind == 2) write_file(&w, name, data, size + 48000); /* as a killed Kafka leaves it */
                if (kind == 3) write_file(&w, name, data, 0);
                if (kind == 4) memset(data, 0x77, size);
                if (kind == 5 && j == 0) put_be32(data + 4, get_be32(data + 4) + 13); /* leads into a batch */
                if (kind >= 4) write_file(&w, name, data, size);
                mem_free(data);
            }
        }
        world_open(&w);
        if (kind == 3) {
            /* Empty indexes are sound, if useless; look-ups scan. */
            for (int64_t from = 0; from < 600; from += 41) assert_int_equal(read_all(&w, from, 2000), 600 - from);
        } else {
            check_indexed_log(&w);
        }
        append_ok(&w, (struct batch_spec){.count = 2, .value_size = 400});
        world_close(&w);
        if (kind == 2) assert_true(size_of_file(&w, last[0]) < 1000);
        world_fini(&w);
    }
}

/* ---- Old formats, leftovers, wrong ids */

static void messages_of_old_formats_are_named(void **state)
{
    (void)state;
    for (uint8_t magic = 0; magic < 2; magic++) {
        struct world w;
        world_init(&w);
        assert_int_equal(fs_mkdir(fs_system(), w.dir), OK);
        uint8_t message[64] = {0};
        size_t size = magic == 0 ? 12 + 14 + 5 : 12 + 22 + 5;
        put_be64(message, 0);
        put_be32(message + 8, (uint32_t)(size - 12));
        message[16] = magic;
        put_be32(message + size - 9, UINT32_MAX); /* no key */
        put_be32(message + size - 5, 1);
        put_be32(message + 12, (uint32_t)crc32(0, message + 16, (uInt)(size - 16)));
        write_file(&w, LOG0, message, size);
        for (int clean = 0; clean < 2; clean++) {
            w.opt.clean = clean;
            assert_int_equal(plog_open(&w.pl, &w.opt, &w.fault), ERR_UNSUPPORTED);
            w.pl = NULL;
            assert_non_null(strstr(w.fault.text, "topic-0/00000000000000000000.log"));
            assert_non_null(strstr(w.fault.text, "position 0"));
            assert_non_null(strstr(w.fault.text, magic ? "v1" : "v0"));
        }
        assert_int_equal(size_of_file(&w, LOG0), size); /* untouched */
        world_fini(&w);
    }
}

/* Segments 0, 2, 4 and 6, closed cleanly. */
static void make_segments(struct world *w)
{
    world_init(w);
    w->opt.config.segment_bytes = 600;
    world_open(w);
    for (int i = 0; i < 8; i++) append_ok(w, (struct batch_spec){.value_size = 200});
    world_close(w);
}

static void copy_file(struct world *w, const char *from, const char *to)
{
    uint8_t *data;
    size_t size;
    read_file(w, from, &data, &size);
    write_file(w, to, data, size);
    mem_free(data);
}

static void refused_with(struct world *w, enum err wanted, const char *text)
{
    struct plog *pl;
    struct fault f;
    assert_int_equal(plog_open(&pl, &w->opt, &f), wanted);
    if (!strstr(f.text, text)) fail_msg("%s", f.text);
}

static void a_segment_under_another_ones_name_is_named_and_nothing_goes_on_behind_it(void **state)
{
    (void)state;
    struct world w;
    make_segments(&w);
    copy_file(&w, "00000000000000000002.log", "00000000000000000044.log");
    refused_with(&w, ERR_INVALID, "00000000000000000044.log begins with offset 2,");
    remove_file(&w, "00000000000000000044.log");
    copy_file(&w, "00000000000000000002.log", "09223372036854775807.log");
    refused_with(&w, ERR_INVALID, "09223372036854775807.log is named after an offset");
    remove_file(&w, "09223372036854775807.log");
    world_open(&w);
    assert_int_equal(read_all(&w, 0, 1 << 20), 8);
    world_fini(&w);
}

static void a_segment_with_offsets_of_the_next_one_is_an_error_to_read(void **state)
{
    (void)state;
    struct world w;
    make_segments(&w);
    copy_file(&w, "00000000000000000006.log", "00000000000000000002.log");
    world_open(&w);
    struct plog_slice slice;
    assert_int_equal(plog_read(w.pl, 2, 4, 1 << 20, true, false, &slice), ERR_CORRUPT);
    assert_int_equal(plog_read(w.pl, 2, 8, 1 << 20, true, false, &slice), ERR_CORRUPT);
    assert_int_equal(read_all(&w, 4, 1 << 20), 4);
    world_fini(&w);
}

static void leftovers_of_deletion_and_cleaning_are_cleared_away(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.opt.config.segment_bytes = 600;
    world_open(&w);
    for (int i = 0; i < 8; i++) append_ok(&w, (struct batch_spec){.value_size = 200});
    world_close(&w);
    write_file(&w, "00000000000000000000.log.deleted", "x", 1);
    write_file(&w, "00000000000000000000.index.deleted", "x", 1);
    write_file(&w, "00000000000000000004.log.cleaned", "x", 1);
    write_file(&w, "00000000000000000004.timeindex.cleaned", "x", 1);
    write_file(&w, "00000000000000000044.index", "x", 1); /* of no log */
    /* Segments 0 and 2 were cleaned into one that was about to take their places. */
    uint8_t *data;
    size_t size;
    read_file(&w, "00000000000000000000.log", &data, &size);
    struct batch_info b;
    assert_int_equal(batch_parse_header(&b, data, INT32_MAX), OK);
    batch_set_offset(data, 3);
    write_file(&w, "00000000000000000000.log.swap", data, (size_t)b.size);
    write_file(&w, "00000000000000000000.index.swap", data, 0);
    write_file(&w, "00000000000000000000.timeindex.swap", data, 0);
    mem_free(data);
    world_open(&w);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log.deleted"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000004.timeindex.cleaned"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000044.index"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log.swap"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000002.log"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000000.log"), b.size);
    struct plog_slice s;
    assert_int_equal(plog_read(w.pl, 0, INT64_MAX, 1000, true, false, &s), OK);
    assert_int_equal(s.start_offset, 3);
    plog_slice_release(&s);
    assert_int_equal(read_all(&w, 4, 1000), 4);
    world_fini(&w);
}

static void swap_files_of_an_unfinished_split_go(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 3});
    world_close(&w);
    write_file(&w, "00000000000000000000.log.cleaned", "x", 1);
    write_file(&w, "00000000000000000001.log.swap", "x", 1);
    world_open(&w);
    assert_int_equal(size_of_file(&w, "00000000000000000001.log.swap"), -1);
    assert_int_equal(size_of_file(&w, "00000000000000000001.log"), -1);
    assert_int_equal(read_all(&w, 0, 1000), 3);
    world_fini(&w);
}

static void another_topics_directory_is_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_int_equal(uuid_parse(&w.opt.topic_id, STR("B6R7BzEgQtuLPnDmh_9qpw")), OK);
    world_open(&w);
    world_close(&w);
    assert_int_equal(uuid_parse(&w.opt.topic_id, STR("A6R7BzEgQtuLPnDmh_9qpw")), OK);
    assert_int_equal(plog_open(&w.pl, &w.opt, &w.fault), ERR_VERSION);
    w.pl = NULL;
    assert_non_null(strstr(w.fault.text, "B6R7BzEgQtuLPnDmh_9qpw"));
    w.opt.topic_id = UUID_ZERO;
    world_open(&w);
    assert_int_equal(plog_topic_id(w.pl).bytes[0], 0x07);
    world_fini(&w);
}

static void a_log_that_ends_before_its_start_begins_anew(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    world_open(&w);
    append_ok(&w, (struct batch_spec){.count = 3});
    world_close(&w);
    w.opt.log_start = 10;
    world_open(&w);
    assert_int_equal(plog_start(w.pl), 10);
    assert_int_equal(plog_end(w.pl), 10);
    assert_int_equal(size_of_file(&w, LOG0), -1);
    assert_int_equal(append_batch(&w, (struct batch_spec){.count = 1}).base_offset, 10);
    world_fini(&w);
}

static void opening_and_closing_a_clean_log_syncs_nothing(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    make_indexed_log(&w);
    int syncs = w.fs.syncs;
    for (int i = 0; i < 2; i++) {
        w.fs.opens = w.fs.writes = 0;
        world_open(&w);
        assert_in_range(w.fs.opens, 1, 6);
        world_close(&w);
        assert_int_equal(w.fs.writes, 0);
    }
    assert_int_equal(w.fs.syncs, syncs);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_kafka_wrote_is_read),
        cmocka_unit_test(indexes_made_anew_are_kafkas),
        cmocka_unit_test(aborted_transactions_of_kafkas_are_found),
        cmocka_unit_test(a_file_that_cannot_be_made_ends_the_recovery_and_cuts_nothing),
        cmocka_unit_test(a_log_cut_at_any_byte_of_its_last_batch_is_whole_again),
        cmocka_unit_test(garbage_behind_the_end_is_cut),
        cmocka_unit_test(a_flipped_bit_cuts_the_log_before_its_batch_and_what_follows),
        cmocka_unit_test(below_the_recovery_point_nothing_is_scanned),
        cmocka_unit_test(a_clean_mark_on_a_torn_log_is_not_believed),
        cmocka_unit_test(epochs_are_found_again_and_cut_at_the_new_end),
        cmocka_unit_test(a_leader_that_goes_on_after_a_restart_writes_no_epochs),
        cmocka_unit_test(an_epoch_cut_off_at_opening_does_not_come_back_over_batches),
        cmocka_unit_test(recovery_believes_the_batches_more_than_the_epochs_of_the_file),
        cmocka_unit_test(a_first_epochs_file_that_was_torn_costs_no_epoch),
        cmocka_unit_test(damaged_indexes_are_made_anew),
        cmocka_unit_test(messages_of_old_formats_are_named),
        cmocka_unit_test(a_segment_under_another_ones_name_is_named_and_nothing_goes_on_behind_it),
        cmocka_unit_test(a_segment_with_offsets_of_the_next_one_is_an_error_to_read),
        cmocka_unit_test(leftovers_of_deletion_and_cleaning_are_cleared_away),
        cmocka_unit_test(swap_files_of_an_unfinished_split_go),
        cmocka_unit_test(another_topics_directory_is_refused),
        cmocka_unit_test(a_log_that_ends_before_its_start_begins_anew),
        cmocka_unit_test(opening_and_closing_a_clean_log_syncs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
