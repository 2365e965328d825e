/* plog/producers: Kafka's rules for sequences, epochs and transactions; taking back what was not written; snapshots.
 * The random test runs against a model that keeps a whole copy of its state for every queued batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plog/producers.h"
#include "plog/txnindex.h"

static const int64_t FOREVER = INT64_MAX;

/* A partition's log as producers see it: offsets given out, end published. */
struct world {
    struct producers ps;
    int64_t end, published;
    struct producers_result r;
};

static void world_start(struct world *w)
{
    *w = (struct world){0};
    producers_init(&w->ps);
}

static void world_stop(struct world *w)
{
    producers_fini(&w->ps);
}

static struct batch_info batch(int64_t offset, int64_t id, int16_t epoch, int32_t sequence, int32_t count)
{
    return (struct batch_info){
        .base_offset = offset,
        .last_offset_delta = count - 1,
        .count = count,
        .producer_id = id,
        .producer_epoch = epoch,
        .base_sequence = sequence,
        .max_timestamp = 1000 + offset,
    };
}

static enum kerr queue(struct world *w, const struct batch_info *b, const struct txn_marker *m,
                       enum append_origin origin)
{
    producers_queue(&w->ps, b, m, origin, &w->r);
    if (w->r.kerr == KERR_NONE) w->end = batch_last_offset(b) + 1;
    return w->r.kerr;
}

/* A client's batch, written at once. */
static enum kerr produce(struct world *w, int64_t id, int16_t epoch, int32_t sequence, int32_t count)
{
    struct batch_info b = batch(w->end, id, epoch, sequence, count);
    enum kerr kerr = queue(w, &b, NULL, APPEND_CLIENT);
    producers_publish(&w->ps, w->end);
    return kerr;
}

static enum kerr produce_txn(struct world *w, int64_t id, int16_t epoch, int32_t sequence, int32_t count)
{
    struct batch_info b = batch(w->end, id, epoch, sequence, count);
    b.attributes = BATCH_TRANSACTIONAL;
    enum kerr kerr = queue(w, &b, NULL, APPEND_CLIENT);
    producers_publish(&w->ps, w->end);
    return kerr;
}

static enum kerr end_txn(struct world *w, int64_t id, int16_t epoch, bool commit, int32_t coordinator_epoch)
{
    struct batch_info b = batch(w->end, id, epoch, -1, 1);
    b.attributes = BATCH_TRANSACTIONAL | BATCH_CONTROL;
    struct txn_marker m = {commit, coordinator_epoch, b.max_timestamp};
    enum kerr kerr = queue(w, &b, &m, APPEND_COORDINATOR);
    producers_publish(&w->ps, w->end);
    return kerr;
}

/* ---- Sequences */

static void batches_without_producer_id_leave_no_trace(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct batch_info b = batch(0, -1, -1, -1, 5);
    assert_int_equal(queue(&w, &b, NULL, APPEND_CLIENT), KERR_NONE);
    assert_int_equal(w.ps.count, 0);
    assert_null(w.ps.by_id);
    assert_null(w.ps.undo);
    world_stop(&w);
}

static void sequences_must_follow_each_other(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 0, 0, 10), KERR_NONE);
    assert_int_equal(produce(&w, 1, 0, 10, 5), KERR_NONE);
    assert_int_equal(produce(&w, 1, 0, 16, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 0, 14, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 0, 15, 1), KERR_NONE);
    assert_int_equal(w.end, 16);
    world_stop(&w);
}

static void an_unknown_producer_may_start_with_any_sequence(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 3, 77, 1), KERR_NONE);
    assert_int_equal(produce(&w, 1, 3, 77, 2), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 3, 78, 2), KERR_NONE);
    world_stop(&w);
}

/* What a producer wrote before it became known here may never have arrived. */
static void what_lies_before_a_producers_first_batch_is_no_duplicate(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    for (int i = 0; i < 7; i++) assert_int_equal(produce(&w, 1, 0, 100 + i, 1), KERR_NONE);
    assert_int_equal(produce(&w, 1, 0, 99, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 0, 100, 1), KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 0, 101, 1), KERR_DUPLICATE_SEQUENCE_NUMBER);
    for (int i = 0; i < 7; i++) assert_int_equal(produce(&w, 1, 1, i, 1), KERR_NONE); /* another epoch */
    assert_int_equal(produce(&w, 1, 1, 1, 1), KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 1, 100, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    world_stop(&w);
}

static void the_last_five_batches_are_answered_as_duplicates(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    for (int i = 0; i < 7; i++) assert_int_equal(produce(&w, 1, 0, i * 3, 3), KERR_NONE);
    for (int i = 2; i < 7; i++) {
        assert_int_equal(produce(&w, 1, 0, i * 3, 3), KERR_DUPLICATE_SEQUENCE_NUMBER);
        assert_int_equal(w.r.base_offset, i * 3);
        assert_int_equal(w.r.last_offset, i * 3 + 2);
        assert_int_equal(w.r.timestamp, 1000 + i * 3);
    }
    assert_int_equal(produce(&w, 1, 0, 3, 3), KERR_DUPLICATE_SEQUENCE_NUMBER); /* where it is is forgotten */
    assert_int_equal(w.r.base_offset, -1);
    assert_int_equal(w.r.last_offset, 5);
    assert_int_equal(produce(&w, 1, 0, 0, 6), KERR_DUPLICATE_SEQUENCE_NUMBER);            /* all of it is there */
    assert_int_equal(produce(&w, 1, 0, 3, 4), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);         /* reaches into those kept */
    assert_int_equal(produce(&w, 1, 0, INT32_MAX, 2), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER); /* begins before the first */
    assert_int_equal(produce(&w, 1, 0, 18, 2), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);        /* not the same batch */
    assert_int_equal(w.end, 21);
    world_stop(&w);
}

static void sequences_wrap_from_2_31_minus_1_to_0(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 0, INT32_MAX - 2, 2), KERR_NONE);
    assert_int_equal(produce(&w, 1, 0, INT32_MAX, 4), KERR_NONE); /* 2^31-1, 0, 1, 2 */
    assert_int_equal(produce(&w, 1, 0, INT32_MAX, 4), KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(w.r.base_offset, 2);
    assert_int_equal(produce(&w, 1, 0, 3, 1), KERR_NONE);
    struct world v;
    world_start(&v);
    assert_int_equal(produce(&v, 1, 0, INT32_MAX, 1), KERR_NONE);
    assert_int_equal(produce(&v, 1, 0, 1, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&v, 1, 0, 0, 1), KERR_NONE);
    world_stop(&v);
    world_stop(&w);
}

static void a_new_epoch_starts_at_sequence_0_and_fences_the_old_one(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 4, 0, 3), KERR_NONE);
    assert_int_equal(produce(&w, 1, 5, 3, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 5, 0, 3), KERR_NONE);
    assert_int_equal(produce(&w, 1, 4, 3, 1), KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(produce(&w, 1, 4, 0, 3), KERR_INVALID_PRODUCER_EPOCH); /* no duplicate of another epoch */
    assert_int_equal(produce(&w, 1, 5, 0, 3), KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(w.r.base_offset, 3);
    world_stop(&w);
}

static void replicas_follow_whatever_the_log_says(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 4, 0, 3), KERR_NONE);
    struct batch_info gap = batch(10, 1, 4, 9, 2);
    assert_int_equal(queue(&w, &gap, NULL, APPEND_REPLICA), KERR_NONE);
    struct batch_info older = batch(12, 1, 3, 0, 1);
    assert_int_equal(queue(&w, &older, NULL, APPEND_REPLICA), KERR_NONE);
    assert_int_equal(produce(&w, 1, 3, 1, 1), KERR_NONE);
    world_stop(&w);
}

static void coordinators_are_checked_for_epochs_only(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    for (int i = 0; i < 2; i++) {
        struct batch_info b = batch(w.end, 1, 4, -1, 2);
        b.attributes = BATCH_TRANSACTIONAL;
        assert_int_equal(queue(&w, &b, NULL, APPEND_COORDINATOR), KERR_NONE);
    }
    struct batch_info old = batch(w.end, 1, 3, -1, 1);
    assert_int_equal(queue(&w, &old, NULL, APPEND_COORDINATOR), KERR_INVALID_PRODUCER_EPOCH);
    world_stop(&w);
}

/* ---- Transactions */

static void the_first_unstable_offset_is_the_oldest_undecided_or_unreplicated(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(producers_first_unstable(&w.ps), -1);
    assert_int_equal(produce_txn(&w, 1, 0, 0, 5), KERR_NONE); /* 0..4 */
    assert_int_equal(produce_txn(&w, 2, 0, 0, 5), KERR_NONE); /* 5..9 */
    assert_int_equal(produce_txn(&w, 1, 0, 5, 5), KERR_NONE); /* 10..14 */
    assert_int_equal(producers_first_unstable(&w.ps), 0);
    assert_int_equal(end_txn(&w, 1, 0, true, 0), KERR_NONE); /* 15 */
    assert_true(w.r.txn_ended);
    assert_false(w.r.aborted);
    assert_int_equal(producers_first_unstable(&w.ps), 0);
    producers_replicated(&w.ps, 15);
    assert_int_equal(producers_first_unstable(&w.ps), 0);
    producers_replicated(&w.ps, 16);
    assert_int_equal(producers_first_unstable(&w.ps), 5);
    assert_int_equal(end_txn(&w, 2, 0, false, 0), KERR_NONE); /* 16 */
    producers_replicated(&w.ps, 17);
    assert_int_equal(producers_first_unstable(&w.ps), -1);
    world_stop(&w);
}

static void an_aborted_transaction_goes_to_the_index_with_the_stable_offset_of_that_moment(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce_txn(&w, 1, 0, 0, 5), KERR_NONE);
    assert_int_equal(produce_txn(&w, 2, 0, 0, 5), KERR_NONE);
    assert_int_equal(end_txn(&w, 1, 0, false, 0), KERR_NONE);
    assert_true(w.r.txn_ended && w.r.aborted);
    assert_int_equal(w.r.txn.producer_id, 1);
    assert_int_equal(w.r.txn.first_offset, 0);
    assert_int_equal(w.r.txn.last_offset, 10);
    assert_int_equal(w.r.txn.last_stable_offset, 5); /* producer 2 is still undecided */
    assert_int_equal(end_txn(&w, 2, 0, false, 0), KERR_NONE);
    assert_int_equal(w.r.txn.last_stable_offset, 12);
    assert_int_equal(end_txn(&w, 2, 0, false, 0), KERR_NONE); /* nothing written meanwhile */
    assert_false(w.r.txn_ended);
    world_stop(&w);
}

static void non_transactional_writes_inside_a_transaction_are_refused(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce_txn(&w, 1, 0, 0, 1), KERR_NONE);
    assert_int_equal(produce(&w, 1, 0, 1, 1), KERR_INVALID_TXN_STATE);
    assert_int_equal(end_txn(&w, 1, 0, true, 0), KERR_NONE);
    assert_int_equal(produce(&w, 1, 0, 1, 1), KERR_NONE);
    world_stop(&w);
}

static void markers_of_a_deposed_coordinator_or_producer_are_fenced(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce_txn(&w, 1, 2, 0, 1), KERR_NONE);
    assert_int_equal(end_txn(&w, 1, 2, true, 7), KERR_NONE);
    assert_int_equal(produce_txn(&w, 1, 2, 1, 1), KERR_NONE);
    assert_int_equal(end_txn(&w, 1, 2, true, 6), KERR_TRANSACTION_COORDINATOR_FENCED);
    assert_int_equal(end_txn(&w, 1, 1, true, 7), KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(producers_first_unstable(&w.ps), 0);
    assert_int_equal(end_txn(&w, 1, 2, true, 7), KERR_NONE);
    world_stop(&w);
}

static void a_marker_may_bring_a_new_epoch_which_starts_at_sequence_0(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce_txn(&w, 1, 2, 0, 4), KERR_NONE);
    assert_int_equal(end_txn(&w, 1, 3, false, 0), KERR_NONE); /* the coordinator fenced it */
    assert_true(w.r.aborted);
    assert_int_equal(produce_txn(&w, 1, 2, 4, 1), KERR_INVALID_PRODUCER_EPOCH);
    assert_int_equal(produce_txn(&w, 1, 3, 4, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce_txn(&w, 1, 3, 0, 1), KERR_NONE);
    world_stop(&w);
}

/* ---- Queued, not written */

static void a_duplicate_of_a_queued_batch_is_known(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct batch_info b = batch(0, 1, 0, 0, 3), again = batch(3, 1, 0, 0, 3);
    assert_int_equal(queue(&w, &b, NULL, APPEND_CLIENT), KERR_NONE);
    assert_int_equal(queue(&w, &again, NULL, APPEND_CLIENT), KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(w.r.last_offset, 2);
    producers_rollback(&w.ps);
    assert_int_equal(w.ps.count, 0);
    b.base_offset = 0;
    assert_int_equal(queue(&w, &b, NULL, APPEND_CLIENT), KERR_NONE);
    world_stop(&w);
}

static void a_failed_write_takes_back_only_what_was_not_published(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    struct batch_info b[3] = {batch(0, 1, 0, 0, 2), batch(2, 1, 0, 2, 2), batch(4, 2, 0, 0, 1)};
    for (int i = 0; i < 3; i++) assert_int_equal(queue(&w, &b[i], NULL, APPEND_CLIENT), KERR_NONE);
    producers_publish(&w.ps, 2);
    producers_rollback(&w.ps);
    assert_int_equal(w.ps.count, 1);
    w.end = 2;
    assert_int_equal(produce(&w, 1, 0, 0, 2), KERR_DUPLICATE_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 0, 4, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&w, 1, 0, 2, 2), KERR_NONE);
    world_stop(&w);
}

static void a_marker_that_was_not_written_leaves_its_transaction_open(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce_txn(&w, 1, 0, 0, 2), KERR_NONE);
    assert_int_equal(produce_txn(&w, 2, 0, 0, 2), KERR_NONE);
    struct batch_info b = batch(4, 1, 0, -1, 1);
    b.attributes = BATCH_TRANSACTIONAL | BATCH_CONTROL;
    struct txn_marker m = {true, 0, 5};
    assert_int_equal(queue(&w, &b, &m, APPEND_COORDINATOR), KERR_NONE);
    assert_int_equal(producers_first_unstable(&w.ps), 0);
    producers_rollback(&w.ps);
    w.end = 4;
    producers_replicated(&w.ps, 4);
    assert_int_equal(producers_first_unstable(&w.ps), 0);
    assert_int_equal(end_txn(&w, 1, 0, false, 0), KERR_NONE);
    assert_int_equal(w.r.txn.last_stable_offset, 2);
    world_stop(&w);
}

/* ---- Expiry */

static void idle_producers_expire_but_for_open_transactions_and_queued_batches(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 0, 0, 1), KERR_NONE);     /* at 1000 */
    assert_int_equal(produce_txn(&w, 2, 0, 0, 1), KERR_NONE); /* at 1001 */
    struct batch_info b = batch(2, 3, 0, 0, 1);               /* at 1002 */
    assert_int_equal(queue(&w, &b, NULL, APPEND_CLIENT), KERR_NONE);
    assert_int_equal(producers_expire(&w.ps, 1499, 500), 1500);
    assert_int_equal(w.ps.count, 3);
    assert_int_equal(producers_expire(&w.ps, 1500, 500), 1501);
    assert_int_equal(w.ps.count, 2);
    assert_int_equal(producers_expire(&w.ps, 9000, 500), 9500);
    assert_int_equal(w.ps.count, 2);
    producers_publish(&w.ps, 3);
    assert_int_equal(producers_expire(&w.ps, 9000, 500), 9500);
    assert_int_equal(w.ps.count, 1);
    assert_int_equal(end_txn(&w, 2, 0, true, 0), KERR_NONE);
    assert_int_equal(producers_expire(&w.ps, 9000, 500), INT64_MAX);
    assert_int_equal(w.ps.count, 0);
    world_stop(&w);
}

/* ---- Snapshots */

static uint8_t *read_file(const char *path, size_t *size)
{
    char *data;
    assert_int_equal(fs_read_whole(fs_system(), path, 1 << 20, &data, size), OK);
    return (uint8_t *)data;
}

static void snapshots_of_kafka_are_read_and_written_back_byte_for_byte(void **state)
{
    (void)state;
    static const char *const paths[] = {"tests/data/log-dir/txn-0-00000000000000000062.snapshot",
                                        "tests/data/log-dir/txn-0-00000000000000000112.snapshot"};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        size_t size, again_size;
        uint8_t *data = read_file(paths[i], &size), *again;
        struct producers ps;
        producers_init(&ps);
        assert_int_equal(producers_snapshot_decode(&ps, data, size, 0, FOREVER), OK);
        assert_int_equal(ps.count, i + 2);
        producers_snapshot_encode(&ps, 0, &again, &again_size);
        assert_int_equal(again_size, size);
        assert_memory_equal(again, data, size);
        producers_fini(&ps);
        mem_free(again);
        mem_free(data);
    }
}

struct views {
    struct producer_view list[64];
    size_t count;
};

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const struct producer_view *)a)->producer_id, y = ((const struct producer_view *)b)->producer_id;
    return (x > y) - (x < y);
}

static void collect(void *arg, const struct producer_view *p)
{
    struct views *v = arg;
    assert_true(v->count < ARRAY_COUNT(v->list));
    memset(&v->list[v->count], 0, sizeof *v->list); /* padding, for memcmp */
    v->list[v->count].producer_id = p->producer_id;
    v->list[v->count].last_timestamp_ms = p->last_timestamp_ms;
    v->list[v->count].txn_start_offset = p->txn_start_offset;
    v->list[v->count].last_sequence = p->last_sequence;
    v->list[v->count].coordinator_epoch = p->coordinator_epoch;
    v->list[v->count].producer_epoch = p->producer_epoch;
    v->count++;
}

static struct views views_of(struct producers *ps)
{
    struct views v = {.count = 0};
    producers_each(ps, collect, &v);
    qsort(v.list, v.count, sizeof *v.list, by_id);
    return v;
}

static void assert_same_views(const struct views *a, const struct views *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->list, b->list, a->count * sizeof *a->list);
}

/* What recovery does; `aborted` gets what belongs into the segment's transaction index. */
static void replay(struct producers *ps, const char *path, struct aborted_txn *aborted, size_t *aborted_count)
{
    size_t size;
    uint8_t *data = read_file(path, &size);
    *aborted_count = 0;
    for (size_t at = 0; at < size;) {
        struct batch_info b;
        struct producers_result r;
        struct txn_marker m;
        assert_int_equal(batch_parse_header(&b, data + at, INT32_MAX), OK);
        bool marker = b.attributes & BATCH_CONTROL;
        if (marker) assert_int_equal(batch_read_marker(&m, data + at, size - at), OK);
        producers_queue(ps, &b, marker ? &m : NULL, APPEND_REPLICA, &r);
        assert_int_equal(r.kerr, KERR_NONE);
        if (r.aborted) aborted[(*aborted_count)++] = r.txn;
        producers_publish(ps, batch_last_offset(&b) + 1);
        at += (size_t)b.size;
    }
    mem_free(data);
}

static void see_producer(void *arg, const struct producer_entry *e, size_t pos)
{
    static const struct producer_entry want[] = {
        {.producer_id = 3, .last_offset = 71, .timestamp = 1795970837863, .last_sequence = 32, .offset_delta = 9},
        {.producer_id = 1002, .last_offset = 34, .timestamp = 1795970837359, .last_sequence = 31, .offset_delta = 11},
        {.producer_id = 1003, .last_offset = 110, .timestamp = 1795970838747, .last_sequence = 34, .offset_delta = 8},
    };
    size_t *count = arg;
    const struct producer_entry *w = &want[*count];
    assert_int_equal(pos, 10 + 46 * *count);
    assert_int_equal(e->producer_id, w->producer_id);
    assert_int_equal(e->last_offset, w->last_offset);
    assert_int_equal(e->timestamp, w->timestamp);
    assert_int_equal(e->last_sequence, w->last_sequence);
    assert_int_equal(e->offset_delta, w->offset_delta);
    assert_int_equal(e->txn_first_offset, -1);
    ++*count;
}

static void entries_of_kafkas_snapshot_are_seen_one_by_one(void **state)
{
    (void)state;
    size_t size, count = 0;
    uint8_t *data = read_file("tests/data/log-dir/txn-0-00000000000000000112.snapshot", &size);
    assert_int_equal(producers_snapshot_each(data, size, see_producer, &count), OK);
    assert_int_equal(count, 3);
    data[size - 1] ^= 1;
    assert_int_equal(producers_snapshot_each(data, size, see_producer, &count), ERR_CORRUPT);
    assert_int_equal(count, 3);
    mem_free(data);
}

static void assert_state_is_snapshot(struct producers *ps, const char *path)
{
    size_t size;
    uint8_t *data = read_file(path, &size);
    struct producers loaded;
    producers_init(&loaded);
    assert_int_equal(producers_snapshot_decode(&loaded, data, size, 0, FOREVER), OK);
    struct views a = views_of(ps), b = views_of(&loaded);
    assert_same_views(&a, &b);
    producers_fini(&loaded);
    mem_free(data);
}

static void replaying_kafkas_log_gives_kafkas_snapshots_and_transaction_index(void **state)
{
    (void)state;
    struct producers ps;
    producers_init(&ps);
    struct aborted_txn aborted[8];
    size_t count;
    replay(&ps, "tests/data/log-dir/txn-0-00000000000000000000.log", aborted, &count);
    assert_state_is_snapshot(&ps, "tests/data/log-dir/txn-0-00000000000000000062.snapshot");
    assert_int_equal(count, 2);
    const struct aborted_txn expected[2] = {{3, 36, 43, 44}, {3, 52, 61, 62}};
    assert_memory_equal(aborted, expected, sizeof expected);
    replay(&ps, "tests/data/log-dir/txn-0-00000000000000000062.log", aborted, &count);
    assert_state_is_snapshot(&ps, "tests/data/log-dir/txn-0-00000000000000000112.snapshot");
    assert_int_equal(count, 2);
    const struct aborted_txn more[2] = {{1003, 82, 91, 92}, {1003, 92, 101, 102}};
    assert_memory_equal(aborted, more, sizeof more);
    producers_replicated(&ps, 112);
    assert_int_equal(producers_first_unstable(&ps), -1);
    producers_fini(&ps);
}

static void a_loaded_snapshot_continues_sequences_and_transactions(void **state)
{
    (void)state;
    struct world w, v;
    world_start(&w);
    world_start(&v);
    assert_int_equal(produce(&w, 1, 2, 0, 3), KERR_NONE);
    assert_int_equal(produce(&w, 1, 2, 3, 4), KERR_NONE);
    assert_int_equal(produce_txn(&w, 2, 0, 0, 1), KERR_NONE);
    assert_int_equal(produce_txn(&w, 3, 0, 0, 1), KERR_NONE);
    uint8_t *data;
    size_t size;
    producers_snapshot_encode(&w.ps, w.end, &data, &size);
    assert_int_equal(producers_snapshot_decode(&v.ps, data, size, 1500, 500), OK);
    mem_free(data);
    v.end = w.end;
    assert_int_equal(v.ps.count, 3);
    assert_int_equal(producers_first_unstable(&v.ps), 7);
    assert_int_equal(produce(&v, 1, 2, 3, 4), KERR_DUPLICATE_SEQUENCE_NUMBER); /* of the last one */
    assert_int_equal(v.r.base_offset, 3);
    assert_int_equal(produce(&v, 1, 2, 0, 3), KERR_DUPLICATE_SEQUENCE_NUMBER); /* and of the one before */
    assert_int_equal(v.r.base_offset, 0);
    assert_int_equal(produce(&v, 1, 2, 8, 1), KERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(produce(&v, 1, 2, 7, 1), KERR_NONE);
    assert_int_equal(end_txn(&v, 2, 0, true, 0), KERR_NONE);
    producers_replicated(&v.ps, v.end);
    assert_int_equal(producers_first_unstable(&v.ps), 8);
    world_stop(&v);
    world_stop(&w);
}

/* A client has up to five batches under way, and more than that when some went to a leader that stopped. */
static void a_loaded_snapshot_knows_what_was_written_long_before(void **state)
{
    (void)state;
    struct world w, v;
    world_start(&w);
    world_start(&v);
    assert_int_equal(produce(&w, 9, 0, 0, 1), KERR_NONE);
    for (int i = 0; i < 9; i++) assert_int_equal(produce(&w, 1, 2, 2 * i, 2), KERR_NONE);
    uint8_t *data;
    size_t size;
    for (int turn = 0; turn < 2; turn++) { /* also what has been loaded is written again */
        producers_snapshot_encode(turn ? &v.ps : &w.ps, w.end, &data, &size);
        assert_int_equal(producers_snapshot_decode(&v.ps, data, size, 0, FOREVER), OK);
        v.end = w.end;
        assert_int_equal(v.ps.count, 2);
        for (int i = 0; i < 9; i++) {
            assert_int_equal(produce(&v, 1, 2, 2 * i, 2), KERR_DUPLICATE_SEQUENCE_NUMBER);
            assert_int_equal(v.r.base_offset, i < 4 ? -1 : 1 + 2 * i);
            assert_int_equal(v.r.last_offset, i < 4 ? 8 : 2 + 2 * i);
        }
        mem_free(data);
    }
    assert_int_equal(produce(&v, 1, 2, 18, 1), KERR_NONE);
    world_stop(&v);
    world_stop(&w);
}

/* Kafka puts each entry in the place of the one before of the same producer: it must find there what its own file says,
 * and no earlier entry may stay where the last one has expired. */
static void the_last_entry_of_a_producer_is_kafkas(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    for (int i = 0; i < 7; i++) {
        struct batch_info b = batch(w.end, 1, 2, i, 1);
        b.attributes = BATCH_TRANSACTIONAL;
        b.max_timestamp = 5000 - i; /* the last one is the oldest */
        assert_int_equal(queue(&w, &b, NULL, APPEND_CLIENT), KERR_NONE);
    }
    producers_publish(&w.ps, w.end);
    uint8_t *data;
    size_t size;
    producers_snapshot_encode(&w.ps, w.end, &data, &size);
    assert_int_equal(size, 10 + 6 * 46);
    for (size_t i = 0; i < 6; i++) {
        const uint8_t *e = data + 10 + i * 46;
        assert_int_equal(get_be64(e), 1);
        assert_int_equal(get_be16(e + 8), 2);
        assert_int_equal(get_be32(e + 10), 1 + i);
        assert_int_equal(get_be64(e + 14), 1 + i);
        assert_int_equal(get_be32(e + 22), i == 0 ? 1 : 0); /* two sequences as one entry */
        assert_int_equal(get_be64(e + 26), 5000 - 6);
        assert_int_equal(get_be64(e + 38), i == 5 ? 0 : UINT64_MAX);
    }
    mem_free(data);
    world_stop(&w);
}

static void expired_producers_are_left_out_of_a_loaded_snapshot(void **state)
{
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 0, 0, 1), KERR_NONE);
    assert_int_equal(produce_txn(&w, 2, 0, 0, 1), KERR_NONE);
    uint8_t *data;
    size_t size;
    producers_snapshot_encode(&w.ps, w.end, &data, &size);
    assert_int_equal(producers_snapshot_decode(&w.ps, data, size, 5000, 500), OK);
    assert_int_equal(w.ps.count, 1);
    assert_int_equal(producers_first_unstable(&w.ps), 1);
    mem_free(data);
    world_stop(&w);
}

static void every_damaged_snapshot_is_corrupt_and_leaves_nothing(void **state)
{
    (void)state;
    size_t size;
    uint8_t *good = read_file("tests/data/log-dir/txn-0-00000000000000000112.snapshot", &size);
    struct producers ps;
    producers_init(&ps);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *data = mem_alloc(cut);
        memcpy(data, good, cut);
        assert_int_equal(producers_snapshot_decode(&ps, data, cut, 0, FOREVER), ERR_CORRUPT);
        assert_int_equal(ps.count, 0);
        mem_free(data);
    }
    for (size_t at = 0; at < size; at++) {
        good[at] ^= 0x40;
        assert_int_equal(producers_snapshot_decode(&ps, good, size, 0, FOREVER), ERR_CORRUPT);
        assert_int_equal(ps.count, 0);
        good[at] ^= 0x40;
    }
    put_be32(good + 10 + 22, UINT32_MAX); /* a batch of no records, under a right CRC */
    put_be32(good + 2, crc32c(good + 6, size - 6));
    assert_int_equal(producers_snapshot_decode(&ps, good, size, 0, FOREVER), ERR_CORRUPT);
    producers_fini(&ps);
    mem_free(good);
}

static void a_snapshot_file_is_written_and_read_by_offset(void **state)
{
    (void)state;
    char dir[] = "/tmp/barnabas-producers-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct world w;
    world_start(&w);
    assert_int_equal(produce(&w, 1, 0, 0, 5), KERR_NONE);
    uint8_t *data;
    size_t size;
    producers_snapshot_encode(&w.ps, 5, &data, &size);
    assert_int_equal(producers_snapshot_write(fs_system(), dir, 5, data, size), OK);
    mem_free(data);
    char *path = mem_printf("%s/00000000000000000005.snapshot", dir);
    struct fs_stat st;
    assert_int_equal(fs_stat(fs_system(), path, &st), OK);
    assert_int_equal(st.size, 56);
    struct views before = views_of(&w.ps);
    assert_int_equal(producers_snapshot_read(&w.ps, fs_system(), dir, 5, 0, FOREVER), OK);
    struct views after = views_of(&w.ps);
    assert_same_views(&before, &after);
    assert_int_equal(producers_snapshot_read(&w.ps, fs_system(), dir, 6, 0, FOREVER), ERR_NOT_FOUND);
    mem_free(path);
    assert_int_equal(fs_remove_all(fs_system(), dir), OK);
    world_stop(&w);
}

/* ---- The transaction index */

struct found {
    struct aborted_txn list[16];
    size_t count;
};

static void found_add(void *arg, const struct aborted_txn *txn)
{
    struct found *f = arg;
    f->list[f->count++] = *txn;
}

static struct found find_aborted(struct txnindex *ti, int64_t from, int64_t below, bool *complete)
{
    struct found f = {.count = 0};
    assert_int_equal(txnindex_find(ti, from, below, false, found_add, &f, complete), OK);
    return f;
}

static void the_transaction_index_of_kafka_is_read(void **state)
{
    (void)state;
    struct txnindex ti;
    bool complete;
    assert_int_equal(txnindex_open(&ti, fs_system(), "tests/data/log-dir/txn-0-00000000000000000000.txnindex"), OK);
    assert_int_equal(txnindex_check(&ti, 0), OK);
    assert_int_equal(txnindex_check(&ti, 44), ERR_CORRUPT); /* ends below the segment's first offset */
    assert_int_equal(find_aborted(&ti, 0, 100, &complete).count, 2);
    assert_false(complete);
    struct found f = find_aborted(&ti, 0, 44, &complete);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.list[0].producer_id, 3);
    assert_int_equal(f.list[0].first_offset, 36);
    assert_int_equal(f.list[0].last_offset, 43);
    assert_int_equal(f.list[0].last_stable_offset, 44);
    assert_true(complete);
    assert_int_equal(find_aborted(&ti, 44, 52, &complete).count, 0);
    assert_int_equal(find_aborted(&ti, 61, 62, &complete).count, 1);
    txnindex_close(&ti);
}

static void the_transaction_index_appends_truncates_and_survives_reopening(void **state)
{
    (void)state;
    char dir[] = "/tmp/barnabas-txnindex-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = mem_printf("%s/00000000000000000000.txnindex", dir);
    struct txnindex ti;
    struct fs_stat st;
    bool complete;
    assert_int_equal(txnindex_open(&ti, fs_system(), path), OK);
    assert_int_equal(find_aborted(&ti, 0, 100, &complete).count, 0);
    assert_int_equal(txnindex_flush(&ti), OK);
    assert_int_equal(fs_stat(fs_system(), path, &st), ERR_NOT_FOUND); /* not before the first entry */
    for (int64_t i = 0; i < 300; i++) {
        struct aborted_txn txn = {i, i * 10, i * 10 + 9, i * 10 + 10};
        assert_int_equal(txnindex_append(&ti, &txn), OK);
    }
    assert_int_equal(txnindex_flush(&ti), OK);
    txnindex_close(&ti);

    struct file *f; /* a torn entry */
    assert_int_equal(fs_open(fs_system(), path, FS_READ | FS_WRITE, &f), OK);
    assert_int_equal(file_pwrite(f, "torn", 4, 300 * 34), OK);
    file_unref(f);
    assert_int_equal(txnindex_open(&ti, fs_system(), path), OK);
    assert_int_equal(ti.size, 300 * 34);
    struct found found = find_aborted(&ti, 2985, 2991, &complete);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.list[0].first_offset, 2980);
    assert_int_equal(found.list[1].first_offset, 2990);
    assert_int_equal(txnindex_truncate(&ti, 2989), OK); /* the entry that ends there goes */
    assert_int_equal(ti.size, 298 * 34);
    assert_int_equal(txnindex_truncate(&ti, 100000), OK);
    assert_int_equal(ti.size, 298 * 34);
    txnindex_close(&ti);
    mem_free(path);
    assert_int_equal(fs_remove_all(fs_system(), dir), OK);
}

/* ---- Against a model */

enum { MODEL_PRODUCERS = 6, MODEL_QUEUE = 40 };

struct model_batch {
    int32_t first_sequence, last_sequence;
    int64_t first_offset, last_offset, timestamp;
};

struct model_producer {
    bool known;
    int epoch, coordinator_epoch;
    int64_t txn_first, last_timestamp;
    struct model_batch batches[5]; /* oldest first */
    int count;
    int64_t run; /* records of this epoch, without a gap */
};

struct model_txn {
    int64_t first, last;
};

struct model {
    struct model_producer p[MODEL_PRODUCERS];
    struct model_txn ended[MODEL_QUEUE * 4];
    size_t ended_count;
};

static int32_t model_last_sequence(int32_t first, int32_t count)
{
    int64_t last = (int64_t)first + count - 1;
    return (int32_t)(last > INT32_MAX ? last - INT32_MAX - 1 : last);
}

static struct producers_result model_data(struct model *m, const struct batch_info *b)
{
    struct producers_result r = {.kerr = KERR_NONE};
    struct model_producer *p = &m->p[b->producer_id];
    int32_t last_sequence = model_last_sequence(b->base_sequence, b->count);
    if (p->known && p->epoch == b->producer_epoch) {
        for (int i = 0; i < p->count; i++) {
            if (p->batches[i].first_sequence != b->base_sequence || p->batches[i].last_sequence != last_sequence)
                continue;
            r.kerr = KERR_DUPLICATE_SEQUENCE_NUMBER;
            r.base_offset = p->batches[i].first_offset;
            r.last_offset = p->batches[i].last_offset;
            r.timestamp = p->batches[i].timestamp;
            return r;
        }
        int64_t sequences = (int64_t)INT32_MAX + 1;
        int64_t ago = p->count ? (p->batches[p->count - 1].last_sequence - last_sequence + sequences) % sequences : 0;
        int64_t kept = 0;
        for (int i = 0; i < p->count; i++) kept += p->batches[i].last_offset - p->batches[i].first_offset + 1;
        if (p->count && ago >= kept && ago + b->count <= p->run) {
            r.kerr = KERR_DUPLICATE_SEQUENCE_NUMBER;
            r.base_offset = r.timestamp = -1;
            r.last_offset = p->batches[0].first_offset - 1;
            return r;
        }
    }
    if (p->known) {
        int64_t expected = 0;
        if (p->epoch == b->producer_epoch && p->count > 0)
            expected = ((int64_t)p->batches[p->count - 1].last_sequence + 1) % ((int64_t)INT32_MAX + 1);
        if (b->producer_epoch < p->epoch)
            r.kerr = KERR_INVALID_PRODUCER_EPOCH;
        else if (b->base_sequence != expected)
            r.kerr = KERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        else if (p->txn_first >= 0 && !(b->attributes & BATCH_TRANSACTIONAL))
            r.kerr = KERR_INVALID_TXN_STATE;
        if (r.kerr != KERR_NONE) return r;
    } else {
        *p = (struct model_producer){
            .known = true, .epoch = b->producer_epoch, .coordinator_epoch = -1, .txn_first = -1};
    }
    if (p->epoch != b->producer_epoch) p->count = 0;
    p->run = (p->count ? p->run : 0) + b->count;
    p->epoch = b->producer_epoch;
    if (p->count == 5) {
        memmove(p->batches, p->batches + 1, 4 * sizeof *p->batches);
        p->count--;
    }
    p->batches[p->count++] =
        (struct model_batch){b->base_sequence, last_sequence, b->base_offset, batch_last_offset(b), b->max_timestamp};
    p->last_timestamp = b->max_timestamp;
    if (p->txn_first < 0 && b->attributes & BATCH_TRANSACTIONAL) p->txn_first = b->base_offset;
    return r;
}

static struct producers_result model_marker(struct model *m, const struct batch_info *b,
                                            const struct txn_marker *marker)
{
    struct producers_result r = {.kerr = KERR_NONE};
    struct model_producer *p = &m->p[b->producer_id];
    if (p->known && b->producer_epoch < p->epoch)
        r.kerr = KERR_INVALID_PRODUCER_EPOCH;
    else if (p->known && marker->coordinator_epoch < p->coordinator_epoch)
        r.kerr = KERR_TRANSACTION_COORDINATOR_FENCED;
    if (r.kerr != KERR_NONE) return r;
    if (!p->known) *p = (struct model_producer){.known = true, .epoch = b->producer_epoch, .txn_first = -1};
    if (p->epoch != b->producer_epoch) p->count = 0;
    p->epoch = b->producer_epoch;
    p->coordinator_epoch = marker->coordinator_epoch;
    p->last_timestamp = marker->timestamp;
    if (p->txn_first < 0) return r;
    r.txn_ended = true;
    r.aborted = !marker->commit;
    r.txn = (struct aborted_txn){b->producer_id, p->txn_first, b->base_offset, b->base_offset + 1};
    for (int i = 0; i < MODEL_PRODUCERS; i++) {
        if (i == b->producer_id || !m->p[i].known || m->p[i].txn_first < 0) continue;
        r.txn.last_stable_offset = MIN(r.txn.last_stable_offset, m->p[i].txn_first);
    }
    m->ended[m->ended_count++] = (struct model_txn){p->txn_first, b->base_offset};
    p->txn_first = -1;
    return r;
}

static struct views model_views(const struct model *m)
{
    struct views v = {.count = 0};
    for (int i = 0; i < MODEL_PRODUCERS; i++) {
        const struct model_producer *p = &m->p[i];
        if (!p->known) continue;
        collect(&v, &(struct producer_view){
                        .producer_id = i,
                        .last_timestamp_ms = p->last_timestamp,
                        .txn_start_offset = p->txn_first,
                        .last_sequence = p->count ? p->batches[p->count - 1].last_sequence : -1,
                        .coordinator_epoch = p->coordinator_epoch,
                        .producer_epoch = (int16_t)p->epoch,
                    });
    }
    return v;
}

static int64_t model_first_unstable(const struct model *m)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < MODEL_PRODUCERS; i++)
        if (m->p[i].known && m->p[i].txn_first >= 0) first = MIN(first, m->p[i].txn_first);
    for (size_t i = 0; i < m->ended_count; i++) first = MIN(first, m->ended[i].first);
    return first == INT64_MAX ? -1 : first;
}

static void model_replicated(struct model *m, int64_t high_watermark)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->ended_count; i++)
        if (m->ended[i].last >= high_watermark) m->ended[kept++] = m->ended[i];
    m->ended_count = kept;
}

/* The queue: the state before and the offset of every batch that is not published. */
struct run {
    struct producers ps;
    struct model now, before[MODEL_QUEUE];
    int64_t start[MODEL_QUEUE], end;
    size_t queued;
    uint64_t seed;
};

static uint32_t draw(struct run *r, uint32_t below)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->seed >> 33) % below;
}

static void run_batch(struct run *r)
{
    int64_t id = draw(r, MODEL_PRODUCERS);
    const struct model_producer *p = &r->now.p[id];
    int16_t epoch = (int16_t)(p->known ? p->epoch : 0);
    if (draw(r, 10) == 0) epoch = (int16_t)(epoch + (int)draw(r, 3) - 1);
    if (epoch < 0) epoch = 0;
    int32_t sequence = 0, count = 1 + (int32_t)draw(r, 5);
    if (p->count && epoch == p->epoch) {
        const struct model_batch *last = &p->batches[p->count - 1], *old = &p->batches[draw(r, (uint32_t)p->count)];
        sequence = last->last_sequence == INT32_MAX ? 0 : last->last_sequence + 1;
        if (draw(r, 5) == 0) {
            sequence = old->first_sequence;
            count = (int32_t)(old->last_offset - old->first_offset) + 1;
        } else if (draw(r, 10) == 0) {
            sequence = sequence == INT32_MAX ? 0 : sequence + 1;
        }
    } else if (!p->known && draw(r, 2)) {
        sequence = INT32_MAX - (int32_t)draw(r, 10);
    }
    struct batch_info b = batch(r->end, id, epoch, sequence, count);
    bool in_txn = p->known && p->txn_first >= 0;
    if (in_txn ? draw(r, 10) != 0 : draw(r, 2) == 0) b.attributes = BATCH_TRANSACTIONAL;
    struct txn_marker marker = {draw(r, 2) == 0, p->known ? p->coordinator_epoch + (int32_t)draw(r, 4) - 1 : 0,
                                b.max_timestamp};
    bool is_marker = draw(r, 4) == 0;
    if (is_marker) {
        b.attributes = BATCH_TRANSACTIONAL | BATCH_CONTROL;
        b.last_offset_delta = 0;
        b.count = 1;
        b.base_sequence = -1;
    }

    struct model before = r->now;
    struct producers_result want = is_marker ? model_marker(&r->now, &b, &marker) : model_data(&r->now, &b), got;
    producers_queue(&r->ps, &b, is_marker ? &marker : NULL, is_marker ? APPEND_COORDINATOR : APPEND_CLIENT, &got);
    assert_int_equal(got.kerr, want.kerr);
    assert_int_equal(got.base_offset, want.base_offset);
    assert_int_equal(got.last_offset, want.last_offset);
    assert_int_equal(got.timestamp, want.timestamp);
    assert_int_equal(got.txn_ended, want.txn_ended);
    assert_int_equal(got.aborted, want.aborted);
    assert_memory_equal(&got.txn, &want.txn, sizeof got.txn);
    if (got.kerr != KERR_NONE) return;
    r->before[r->queued] = before;
    r->start[r->queued++] = r->end;
    r->end = batch_last_offset(&b) + 1;
}

/* A snapshot as of any queued batch's start holds the state before it, and taking it changes nothing. */
static void run_check_snapshot(struct run *r)
{
    size_t at = draw(r, (uint32_t)r->queued + 1);
    int64_t offset = at < r->queued ? r->start[at] : r->end;
    uint8_t *data;
    size_t size;
    producers_snapshot_encode(&r->ps, offset, &data, &size);
    struct producers loaded;
    producers_init(&loaded);
    assert_int_equal(producers_snapshot_decode(&loaded, data, size, 0, FOREVER), OK);
    struct views got = views_of(&loaded), want = model_views(at < r->queued ? &r->before[at] : &r->now);
    assert_same_views(&got, &want);
    producers_fini(&loaded);
    mem_free(data);
}

static void run_check(struct run *r)
{
    struct views got = views_of(&r->ps), want = model_views(&r->now);
    assert_same_views(&got, &want);
    assert_int_equal(producers_first_unstable(&r->ps), model_first_unstable(&r->now));
}

static void run_publish(struct run *r)
{
    size_t n = draw(r, (uint32_t)r->queued + 1);
    int64_t end = n < r->queued ? r->start[n] : r->end;
    producers_publish(&r->ps, end);
    memmove(r->before, r->before + n, (r->queued - n) * sizeof *r->before);
    memmove(r->start, r->start + n, (r->queued - n) * sizeof *r->start);
    r->queued -= n;
    int64_t high_watermark = MAX(end - (int64_t)draw(r, 8), 0);
    producers_replicated(&r->ps, high_watermark);
    model_replicated(&r->now, high_watermark);
    for (size_t i = 0; i < r->queued; i++) model_replicated(&r->before[i], high_watermark);
}

static void run_rollback(struct run *r)
{
    producers_rollback(&r->ps);
    if (r->queued == 0) return;
    r->now = r->before[0];
    r->end = r->start[0];
    r->queued = 0;
}

static void random_histories_agree_with_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct run *r = mem_zalloc(1, sizeof *r);
        r->seed = seed;
        producers_init(&r->ps);
        for (int step = 0; step < 300; step++) {
            if (r->queued < MODEL_QUEUE) run_batch(r);
            uint32_t what = draw(r, 30);
            if (what == 0)
                run_rollback(r);
            else if (what < 4 || r->queued == MODEL_QUEUE)
                run_publish(r);
            else if (what == 4)
                run_check_snapshot(r);
            run_check(r);
        }
        run_rollback(r);
        run_check(r);
        assert_null(r->ps.undo_count ? r : NULL);
        producers_fini(&r->ps);
        mem_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_without_producer_id_leave_no_trace),
        cmocka_unit_test(sequences_must_follow_each_other),
        cmocka_unit_test(an_unknown_producer_may_start_with_any_sequence),
        cmocka_unit_test(what_lies_before_a_producers_first_batch_is_no_duplicate),
        cmocka_unit_test(the_last_five_batches_are_answered_as_duplicates),
        cmocka_unit_test(sequences_wrap_from_2_31_minus_1_to_0),
        cmocka_unit_test(a_new_epoch_starts_at_sequence_0_and_fences_the_old_one),
        cmocka_unit_test(replicas_follow_whatever_the_log_says),
        cmocka_unit_test(coordinators_are_checked_for_epochs_only),
        cmocka_unit_test(the_first_unstable_offset_is_the_oldest_undecided_or_unreplicated),
        cmocka_unit_test(an_aborted_transaction_goes_to_the_index_with_the_stable_offset_of_that_moment),
        cmocka_unit_test(non_transactional_writes_inside_a_transaction_are_refused),
        cmocka_unit_test(markers_of_a_deposed_coordinator_or_producer_are_fenced),
        cmocka_unit_test(a_marker_may_bring_a_new_epoch_which_starts_at_sequence_0),
        cmocka_unit_test(a_duplicate_of_a_queued_batch_is_known),
        cmocka_unit_test(a_failed_write_takes_back_only_what_was_not_published),
        cmocka_unit_test(a_marker_that_was_not_written_leaves_its_transaction_open),
        cmocka_unit_test(idle_producers_expire_but_for_open_transactions_and_queued_batches),
        cmocka_unit_test(snapshots_of_kafka_are_read_and_written_back_byte_for_byte),
        cmocka_unit_test(entries_of_kafkas_snapshot_are_seen_one_by_one),
        cmocka_unit_test(replaying_kafkas_log_gives_kafkas_snapshots_and_transaction_index),
        cmocka_unit_test(a_loaded_snapshot_continues_sequences_and_transactions),
        cmocka_unit_test(a_loaded_snapshot_knows_what_was_written_long_before),
        cmocka_unit_test(the_last_entry_of_a_producer_is_kafkas),
        cmocka_unit_test(expired_producers_are_left_out_of_a_loaded_snapshot),
        cmocka_unit_test(every_damaged_snapshot_is_corrupt_and_leaves_nothing),
        cmocka_unit_test(a_snapshot_file_is_written_and_read_by_offset),
        cmocka_unit_test(the_transaction_index_of_kafka_is_read),
        cmocka_unit_test(the_transaction_index_appends_truncates_and_survives_reopening),
        cmocka_unit_test(random_histories_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
