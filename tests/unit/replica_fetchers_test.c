/* replica_fetchers_test.c: a follower before a leader that the test plays: sessions, epochs, cuts, errors, leaving. */
#include "fetchers_world.h"

static void a_follower_gets_what_the_leader_has(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    leader_append(0, 250);
    leader.parts[0].high_watermark = 200;
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    check_same(&fw, 0);
    check_same(&fw, 1);
    assert_int_equal(leader.full_fetches, 1);
    /* From now on only what changes is named. */
    int named = leader.named;
    leader_append(1, 1);
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(leader.named, named + 1);
    assert_int_equal(leader.parts[1].asked.fetch_offset, 1);
    leader.parts[1].high_watermark = 1;
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(leader.parts[1].asked.high_watermark, 1);
    fworld_end(&fw);
}

/* ---- Epochs */

static void epoch_of_leader(int32_t index, int32_t epoch)
{
    leader.parts[index].epoch = epoch;
}

/* The leader loses what it has from `end` on, and goes on in a later epoch: another replica has been elected. */
static void elect(int32_t index, int64_t end, int32_t epoch)
{
    leader.parts[index].end = end;
    epoch_of_leader(index, epoch);
}

static void what_the_new_leader_does_not_have_is_cut(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 30);
    leader.parts[0].high_watermark = 20;
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    check_same(&fw, 0);
    elect(0, 25, 1);
    leader_append(0, 3);
    follow(&fw, 0, 1);
    run_to_rest(&fw);
    check_same(&fw, 0);
    assert_int_equal(read_epoch(followed_at(&fw, 0), 25), 1);
    assert_int_equal(fetchers_look(fw.f).cut_records, 0);
    fworld_end(&fw);
}

/* Epoch 2 of the follower was never the leader's, whose epochs 1 and 3 the follower knows in part (KIP-279). */
static void logs_that_differ_in_several_epochs_are_made_the_same(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 10);
    epoch_of_leader(0, 2);
    leader_append(0, 10);
    epoch_of_leader(0, 4);
    leader_append(0, 10);
    follow(&fw, 0, 4);
    run_to_rest(&fw);
    check_same(&fw, 0);
    elect(0, 8, 1);
    leader_append(0, 7);
    epoch_of_leader(0, 3);
    leader_append(0, 30);
    epoch_of_leader(0, 5);
    leader_append(0, 1);
    follow(&fw, 0, 5);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void a_cut_below_the_high_watermark_is_counted(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 30);
    leader.parts[0].high_watermark = 20;
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    elect(0, 15, 1); /* uncleanly */
    leader.parts[0].high_watermark = 12;
    follow(&fw, 0, 1);
    run_to_rest(&fw);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 15);
    assert_int_equal(partition_high_watermark(followed_at(&fw, 0)), 15);
    assert_int_equal(fetchers_look(fw.f).cut_records, 5);
    fworld_end(&fw);
}

/* Leaders come and go at random, each with what some replica could have; the follower ends up with the last one's log.
 */
static void a_follower_of_any_history_ends_up_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fworld fw;
        leader_reset();
        fworld_start(&fw, 1);
        srand48((long)seed);
        leader.batches_max = 1 + (int)(lrand48() % 20);
        int32_t epoch = 0;
        for (int step = 0; step < 12; step++) {
            struct leader_part *lp = &leader.parts[0];
            int what = (int)(lrand48() % 4);
            if (what == 0) { /* another one, that has less, but what the follower knows to be replicated */
                int64_t low = partition_high_watermark(followed_at(&fw, 0));
                int64_t end = MAX(low, lp->start);
                if (lp->end > end) end += lrand48() % (lp->end - end + 1);
                elect(0, end, ++epoch);
                lp->high_watermark = MIN(lp->high_watermark, end);
            } else if (what == 1) {
                leader_append(0, (int)(lrand48() % 30));
                lp->high_watermark += lrand48() % (lp->end - lp->high_watermark + 1);
            } else if (what == 2) {
                lp->start += lrand48() % (lp->high_watermark - lp->start + 1);
            } else if (connection && lrand48() % 2) {
                hang_up();
            }
            follow(&fw, 0, epoch);
            if (lrand48() % 2) run_to_rest(&fw);
        }
        pass_ms(&fw, BACKOFF_MS);
        run_to_rest(&fw);
        leader.parts[0].high_watermark = leader.parts[0].end;
        run_to_rest(&fw);
        check_same(&fw, 0);
        assert_int_equal(plog_start(followed_at(&fw, 0)->pl), leader.parts[0].start);
        fworld_end(&fw);
    }
}

/* ---- Out of range */

static void a_follower_behind_the_leaders_start_begins_anew_there(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    leader_append(0, 30);
    leader.parts[0].high_watermark = 30;
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    hang_up();
    leader_append(0, 100);
    leader.parts[0].start = 90;
    leader.parts[0].high_watermark = 130;
    leader_append(1, 5);
    pass_ms(&fw, BACKOFF_MS);
    run_to_rest(&fw);
    check_same(&fw, 0);
    check_same(&fw, 1);
    assert_int_equal(plog_start(followed_at(&fw, 0)->pl), 90);
    assert_int_equal(fetchers_look(fw.f).cut_records, 0);
    fworld_end(&fw);
}

/* DeleteRecords does not care for batches: the leader's first one begins below its start. */
static void a_log_may_begin_in_the_midst_of_a_batch(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    struct partition *p = followed_at(&fw, 0);
    assert_int_equal(partition_start_at(p, 7), OK);
    follow(&fw, 0, 0);
    turns(&fw.w, 2);
    connect_now();
    turns(&fw.w, 2);
    struct fetch_response resp = fetch_response_default;
    struct fetch_response_fetchable_topic_response topic = fetch_response_fetchable_topic_response_default;
    struct fetch_response_partition_data pd = fetch_response_partition_data_default;
    assert_int_equal(connection->outs[0].rq.fetch.topics[0].partitions[0].fetch_offset, 7);
    struct batch_builder bb;
    batch_builder_init(&bb, bufs, 0, 1000);
    for (int i = 0; i < 10; i++)
        batch_builder_add(&bb, 1000, (struct bytes){NULL, 0}, (struct bytes){(const uint8_t *)"x", 1}, NULL, 0);
    struct writer w;
    writer_init(&w, bufs);
    assert_int_equal(batch_builder_finish(&bb, &w), OK);
    batch_builder_fini(&bb);
    batch_set_offset(w.buf->data, 4);
    batch_set_leader_epoch(w.buf->data, 0);
    pd.high_watermark = 14;
    pd.log_start_offset = 7;
    pd.records.bytes = (struct bytes){w.buf->data, w.size};
    topic.topic_id = followed_topic_id;
    topic.partitions = &pd;
    topic.partitions_count = 1;
    resp.session_id = 5;
    resp.responses = &topic;
    resp.responses_count = 1;
    reply(connection, 0, &resp);
    writer_fini(&w);
    turns(&fw.w, 4);
    assert_int_equal(plog_end(p->pl), 14);
    assert_int_equal(plog_start(p->pl), 7);
    assert_int_equal(partition_high_watermark(p), 14);
    struct plog_slice s;
    assert_int_equal(plog_read(p->pl, 7, 14, 1000, true, false, &s), OK);
    assert_int_equal(s.start_offset, 4);
    plog_slice_release(&s);
    fworld_end(&fw);
}

/* ---- Errors */

static void an_error_delays_its_partition_alone(void **state)
{
    (void)state;
    static const enum kerr errors[] = {
        KERR_KAFKA_STORAGE_ERROR,
        KERR_OFFSET_MOVED_TO_TIERED_STORAGE,
        KERR_CORRUPT_MESSAGE,
    };
    for (size_t i = 0; i < ARRAY_COUNT(errors); i++) {
        struct fworld fw;
        leader_reset();
        fworld_start(&fw, 2);
        follow(&fw, 0, 0);
        follow(&fw, 1, 0);
        run_to_rest(&fw);
        leader_append(0, 2);
        leader.parts[0].kerr = errors[i];
        leader_append(1, 2);
        run_to_rest(&fw);
        check_same(&fw, 1);
        assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 0);
        assert_int_equal(fetchers_look(fw.f).failed, 1);
        leader.parts[0].kerr = KERR_NONE;
        leader_append(1, 2);
        run_to_rest(&fw);
        check_same(&fw, 1);
        assert_false(leader.parts[0].in_session);
        assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 0);
        pass_ms(&fw, BACKOFF_MS);
        run_to_rest(&fw);
        check_same(&fw, 0);
        assert_int_equal(fetchers_look(fw.f).failed, 0);
        assert_int_equal(leader.full_fetches, 1);
        fworld_end(&fw);
    }
}

/* The controller tells brokers one after the other. */
static void a_leader_that_has_not_been_told_yet_is_asked_again_soon_and_then_seldom(void **state)
{
    (void)state;
    static const enum kerr errors[] = {KERR_NOT_LEADER_OR_FOLLOWER, KERR_UNKNOWN_TOPIC_OR_PARTITION,
                                       KERR_UNKNOWN_TOPIC_ID, KERR_UNKNOWN_LEADER_EPOCH};
    for (size_t i = 0; i < ARRAY_COUNT(errors); i++) {
        struct fworld fw;
        leader_reset();
        fworld_start(&fw, 2);
        leader_append(0, 2);
        leader_append(1, 2);
        leader.parts[0].kerr = errors[i];
        leader.parts[1].kerr = KERR_KAFKA_STORAGE_ERROR; /* this one waits for all of the back-off */
        follow(&fw, 0, 0);
        follow(&fw, 1, 0);
        int64_t began_us = fw.w.now_us;
        run_to_rest(&fw);
        assert_int_equal(fetchers_look(fw.f).failed, 2);
        leader.parts[0].kerr = leader.parts[1].kerr = KERR_NONE;
        pass_ms(&fw, 40);
        run_to_rest(&fw);
        check_same(&fw, 0);
        assert_int_equal(fetchers_look(fw.f).failed, 1);

        leader.parts[0].kerr = errors[i];
        leader_append(0, 2);
        int fetches = leader.fetches;
        int64_t again_us = fw.w.now_us;
        while (fw.w.now_us < began_us + (BACKOFF_MS - 100) * 1000) {
            pass_ms(&fw, 1);
            run_to_rest(&fw);
        }
        assert_true(fw.w.now_us - again_us > 500 * 1000);
        assert_in_range(leader.fetches - fetches, 4, 9); /* 5 ms, and each time twice as long */
        fworld_end(&fw);
    }
}

static void a_corrupt_batch_is_fetched_again(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 5);
    leader.parts[0].corrupt = true;
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    assert_true(plog_end(followed_at(&fw, 0)->pl) < 5);
    assert_int_equal(fetchers_look(fw.f).failed, 1);
    pass_ms(&fw, BACKOFF_MS);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void a_fenced_follower_waits_for_the_controller(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    epoch_of_leader(0, 1);
    leader_append(0, 2);
    run_to_rest(&fw);
    pass_ms(&fw, 5 * BACKOFF_MS);
    leader_append(1, 1);
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 0);
    follow(&fw, 0, 1);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

/* The high watermark is what of the leader's is here. */
static void the_high_watermark_never_passes_the_end(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 10);
    leader.parts[0].high_watermark = 10;
    leader.batches_max = 3;
    follow(&fw, 0, 0);
    turns(&fw.w, 2);
    connect_now();
    for (int64_t end = 3; end <= 9; end += 3) {
        turns(&fw.w, 2);
        assert_int_equal(leader_look(&connection->outs[0]), KERR_NONE);
        assert_true(leader_answer(0, false));
        assert_int_equal(plog_end(followed_at(&fw, 0)->pl), end);
        assert_int_equal(partition_high_watermark(followed_at(&fw, 0)), end);
    }
    fworld_end(&fw);
}

/* A follower that is far behind, and so not in sync, has the leader read while it appends. */
static void who_is_far_behind_reads_ahead(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    watched = followed_at(&fw, 0)->pl;
    leader_append(0, 10);
    leader.parts[0].high_watermark = 10;
    leader.batches_max = 3;
    follow(&fw, 0, 0);
    turns(&fw.w, 2);
    connect_now();
    turns(&fw.w, 2);
    assert_int_equal(leader_look(&connection->outs[0]), KERR_NONE);
    for (int64_t end = 3; end <= 9; end += 3) {
        assert_true(leader_answer(0, false));
        assert_int_equal(connection->out_count, 1);
        assert_int_equal(watched_end, end - 3); /* the next fetch has left before these were appended */
        assert_int_equal(plog_end(watched), end);
        assert_int_equal(leader_look(&connection->outs[0]), KERR_NONE);
        assert_int_equal(leader.parts[0].asked.fetch_offset, end);
        assert_int_equal(leader.parts[0].asked.last_fetched_epoch, 0);
    }
    assert_true(leader_answer(0, false));
    assert_int_equal(watched_end, 10); /* what may bring it into the in-sync set says only what is appended */
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void what_was_read_ahead_of_a_failure_is_not_appended(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    leader_append(0, 10);
    leader.parts[0].high_watermark = 10;
    leader.batches_max = 3;
    leader.parts[0].corrupt = true; /* the first batch */
    follow(&fw, 0, 0);
    turns(&fw.w, 2);
    connect_now();
    turns(&fw.w, 2);
    assert_int_equal(leader_look(&connection->outs[0]), KERR_NONE);
    assert_true(leader_answer(0, false));
    assert_int_equal(leader_look(&connection->outs[0]), KERR_NONE);
    assert_int_equal(leader.parts[0].asked.fetch_offset, 3);
    assert_true(leader_answer(0, false));
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 0);
    assert_int_equal(fetchers_look(fw.f).failed, 1);
    pass_ms(&fw, BACKOFF_MS);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

/* ---- Sessions */

static void a_session_that_the_leader_forgot_begins_anew(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    assert_true(leader_answer(0, true));
    leader.session_id = 999;
    leader_append(0, 3);
    run_to_rest(&fw);
    check_same(&fw, 0);
    assert_int_equal(leader.full_fetches, 2);
    assert_true(leader_answer(0, true));
    leader.session_epoch += 5;
    leader_append(1, 3);
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(leader.full_fetches, 3);
    fworld_end(&fw);
}

static void without_a_session_every_fetch_is_a_full_one_that_waits(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    leader.gives_session = false;
    fworld_start(&fw, 2);
    leader_append(0, 3);
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    turns(&fw.w, 2);
    connect_now();
    for (int i = 0; i < 5; i++) {
        turns(&fw.w, 2);
        assert_int_equal(connection->out_count, 1);
        assert_int_equal(connection->outs[0].rq.fetch.max_wait_ms, i == 0 ? 0 : WAIT_MS);
        assert_int_equal(leader_look(&connection->outs[0]), KERR_NONE);
        assert_true(leader_answer(0, true));
    }
    assert_int_equal(leader.full_fetches, 5);
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void an_old_leader_is_spoken_to_in_its_version(void **state)
{
    (void)state;
    static const int16_t versions[] = {12, 14, 17};
    for (size_t i = 0; i < ARRAY_COUNT(versions); i++) {
        struct fworld fw;
        leader_reset();
        fworld_start(&fw, 2);
        peer_version_max = versions[i];
        leader_append(0, 3);
        follow(&fw, 0, 0);
        follow(&fw, 1, 0);
        run_to_rest(&fw);
        leader_append(1, 3);
        run_to_rest(&fw);
        check_same(&fw, 0);
        check_same(&fw, 1);
        assert_int_equal(leader.full_fetches, 1);
        fworld_end(&fw);
    }
}

static void a_leader_that_is_back_is_reached_at_once(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    fw.address_known = false;
    follow(&fw, 0, 0);
    pass_ms(&fw, 3 * BACKOFF_MS);
    assert_int_equal(connections, 0);
    fw.address_known = true;
    fetchers_broker_changed(fw.f, LEADER + 1);
    turns(&fw.w, 3);
    assert_int_equal(connections, 0);
    fetchers_broker_changed(fw.f, LEADER);
    run_to_rest(&fw);
    assert_int_equal(connections, 1);
    hang_up();
    turns(&fw.w, 3);
    assert_int_equal(connections, 1); /* it backs off */
    fetchers_broker_changed(fw.f, LEADER);
    leader_append(0, 1);
    run_to_rest(&fw);
    assert_int_equal(connections, 2);
    check_same(&fw, 0);
    hang_up();
    pass_ms(&fw, BACKOFF_MS); /* or by itself */
    run_to_rest(&fw);
    assert_int_equal(connections, 3);
    fworld_end(&fw);
}

/* A fetch is out and waits: another that brings the new one into the session does not wait for its answer. */
static void who_is_to_be_fetched_now_does_not_wait_for_the_fetch_that_is_out(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    assert_int_equal(connection->out_count, 1);
    leader_append(1, 4);
    follow(&fw, 1, 0);
    turns(&fw.w, 2);
    assert_int_equal(connection->out_count, 2);
    const struct fetch_request *rq = &connection->outs[1].rq.fetch;
    assert_int_equal(rq->topics_count, 1);
    assert_int_equal(rq->topics[0].partitions_count, 1);
    assert_int_equal(rq->topics[0].partitions[0].partition, 1);
    /* The leader may say that the first one has been overtaken, or just answer it. */
    struct fetch_response overtaken = fetch_response_default;
    overtaken.error_code = KERR_INVALID_FETCH_SESSION_EPOCH;
    reply(connection, 0, &overtaken);
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(leader.full_fetches, 1);
    fworld_end(&fw);
}

/* Of an answer that came when the second was out already, the second knows nothing: what comes twice is left out. */
static void what_an_overtaking_fetch_brings_twice_is_appended_once(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    follow(&fw, 1, 0);
    turns(&fw.w, 2);
    assert_int_equal(connection->out_count, 2);
    leader_append(0, 4);
    leader.parts[0].high_watermark = 4;
    assert_true(leader_answer(0, false)); /* had been looked at */
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 4);
    assert_int_equal(leader.parts[0].asked.fetch_offset, 0);
    run_to_rest(&fw);
    check_same(&fw, 0);
    assert_int_equal(fetchers_look(fw.f).failed, 0);
    fworld_end(&fw);
}

/* ---- Leaving */

static void an_answer_to_who_has_left_is_not_appended(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    leader_append(0, 3);
    leader_append(1, 3);
    fetchers_leave(fw.f, followed_at(&fw, 0), on_left, &fw);
    turns(&fw.w, 4);
    assert_int_equal(fw.left, 1);
    run_to_rest(&fw);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 0);
    check_same(&fw, 1);
    assert_false(leader.parts[0].in_session);
    /* Nor one of a former epoch, when it follows again: the fetch was sent before. */
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void an_answer_of_a_former_epoch_is_not_appended(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    leader_append(0, 3);
    set_follower(followed_at(&fw, 0), 1); /* the home loop knows, the fetcher does not yet */
    assert_true(leader_answer(0, false));
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 0);
    follow(&fw, 0, 1);
    turns(&fw.w, 1); /* on its way */
    epoch_of_leader(0, 1);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void who_leaves_without_following_is_told_too(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    fetchers_leave(fw.f, followed_at(&fw, 0), on_left, &fw);
    assert_int_equal(fw.left, 0);
    turns(&fw.w, 2);
    assert_int_equal(fw.left, 1);
    follow(&fw, 0, 0);
    fetchers_leave(fw.f, followed_at(&fw, 0), NULL, NULL);
    fetchers_leave(fw.f, followed_at(&fw, 0), on_left, &fw);
    fetchers_follow(fw.f, followed_at(&fw, 0), -1, 1);
    turns(&fw.w, 6);
    assert_int_equal(fw.left, 2);
    assert_int_equal(fetchers_look(fw.f).partitions, 0);
    assert_int_equal(fetchers_look(fw.f).fetchers, 0);
    fworld_end(&fw);
}

/* ---- Disks */

static void a_full_disk_delays_until_there_is_room(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    follow(&fw, 0, 0);
    leader_append(0, 2);
    run_to_rest(&fw);
    check_same(&fw, 0);
    fs_sim_set_capacity(fw.w.sim, 1);
    leader_append(0, 20);
    run_to_rest(&fw);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 2);
    pass_ms(&fw, BACKOFF_MS);
    run_to_rest(&fw);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 2);
    fs_sim_set_capacity(fw.w.sim, 0);
    replicas_start_upkeep(fw.w.r); /* looks at the space */
    for (int i = 0; i < 20 && plog_end(followed_at(&fw, 0)->pl) == 2; i++) {
        pass_ms(&fw, BACKOFF_MS);
        run_to_rest(&fw);
    }
    check_same(&fw, 0);
    fworld_end(&fw);
}

static void a_failing_disk_takes_its_partition_out_and_the_others_go_on(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2); /* one in each directory */
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    assert_string_not_equal(partition_dir_path(followed_at(&fw, 0)), partition_dir_path(followed_at(&fw, 1)));
    struct fs_sim_fault fault = {.calls = FS_SIM_WRITE, .suffix = ".log", .times = 1, .e = ERR_IO};
    fs_sim_set_fault(fw.w.sim, &fault);
    leader_append(0, 1);
    run_to_rest(&fw);
    leader_append(1, 1);
    run_to_rest(&fw);
    assert_false(atomic_load(&followed_at(&fw, 0)->online));
    check_same(&fw, 1);
    assert_int_equal(fetchers_look(fw.f).failed, 1);
    fworld_end(&fw);
}

/* With flush.messages=1 the leader is told of an offset only when it is on the disk. */
static void the_leader_is_told_what_is_on_the_disk(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    struct topic_settings settings;
    settings_of(NULL, STR("t"), &settings);
    settings.log.flush_messages = 1;
    replicas_reconfigure(fw.w.r, STR("t"), &settings);
    follow(&fw, 0, 0);
    run_to_rest(&fw);
    leader_append(0, 3);
    for (int i = 0; i < 20 && plog_end(followed_at(&fw, 0)->pl) < 3; i++) run_to_rest(&fw);
    check_same(&fw, 0);
    assert_int_equal(leader.parts[0].asked.fetch_offset, 3);
    assert_int_equal(plog_recovery_point(followed_at(&fw, 0)->pl), 3);
    fworld_end(&fw);
}

static void nor_does_a_fetch_leave_before(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    struct topic_settings settings;
    settings_of(NULL, STR("t"), &settings);
    settings.log.flush_messages = 1;
    replicas_reconfigure(fw.w.r, STR("t"), &settings);
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    leader_append(0, 3);
    leader.parts[0].high_watermark = 3;
    fw.w.hold_jobs = true;
    assert_true(leader_answer(0, false));
    turns(&fw.w, 5);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 3);
    assert_int_equal(connection->out_count, 0);
    assert_int_equal(partition_high_watermark(followed_at(&fw, 0)), 0);
    release_jobs(&fw.w);
    turns(&fw.w, 5);
    assert_int_equal(connection->out_count, 1);
    run_to_rest(&fw);
    check_same(&fw, 0);
    /* One that leaves meanwhile does not hold up the others. */
    fw.w.hold_jobs = true;
    leader_append(0, 3);
    assert_true(leader_answer(0, false));
    turns(&fw.w, 2);
    assert_int_equal(connection->out_count, 0);
    fetchers_leave(fw.f, followed_at(&fw, 0), on_left, &fw);
    turns(&fw.w, 5);
    assert_int_equal(fw.left, 1);
    assert_int_equal(connection->out_count, 1);
    release_jobs(&fw.w);
    fworld_end(&fw);
}

static void who_leaves_while_its_log_is_cut_has_left_after_that(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    leader_append(0, 10);
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    elect(0, 5, 1);
    fw.w.hold_jobs = true;
    follow(&fw, 0, 1);
    run_to_rest(&fw);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 10);
    assert_int_equal(fw.w.held_count, 1);
    leader_append(1, 1); /* the other one goes on */
    run_to_rest(&fw);
    check_same(&fw, 1);
    fetchers_leave(fw.f, followed_at(&fw, 0), on_left, &fw);
    turns(&fw.w, 5);
    assert_int_equal(fw.left, 0);
    release_jobs(&fw.w);
    turns(&fw.w, 5);
    assert_int_equal(fw.left, 1);
    assert_int_equal(plog_end(followed_at(&fw, 0)->pl), 5);
    fworld_end(&fw);
}

/* What had been flushed was cut, and what took its place was not: recovery must not believe it. */
static void what_takes_the_place_of_a_cut_is_looked_at_by_recovery(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++) {
        struct fworld fw;
        leader_reset();
        fworld_start(&fw, 1);
        leader_append(0, 30);
        leader.parts[0].high_watermark = 10;
        follow(&fw, 0, 0);
        run_to_rest(&fw);
        assert_int_equal(plog_flush(followed_at(&fw, 0)->pl), OK);
        replicas_start_upkeep(fw.w.r);
        pass_ms(&fw, 500); /* checkpoints say 30 */
        elect(0, 12, 1);
        leader_append(0, 30);
        follow(&fw, 0, 1);
        run_to_rest(&fw);
        check_same(&fw, 0);
        struct fs_sim *after = fs_sim_after_crash(fw.w.sim, seed, FS_SIM_ANYTHING), *before = fw.w.sim;
        fetchers_end(&fw);
        world_end(&fw.w, false);
        fs_sim_free(before);

        assert_int_equal(world_start(&fw.w, after), OK);
        apply(&fw.w, 1, false);
        struct partition *p = followed_at(&fw, 0);
        assert_true(plog_end(p->pl) >= 12 && plog_end(p->pl) <= 42);
        for (int64_t at = 0; at < plog_end(p->pl); at++) assert_int_equal(read_epoch(p, at), at < 12 ? 0 : 1);
        world_end(&fw.w, true);
        fs_sim_free(after);
        buf_pool_free(bufs);
    }
}

/* ---- Throttling */

static bool counts_first(void *arg, const struct partition *p)
{
    (void)arg;
    return p->index == 0;
}

static void a_throttled_partition_keeps_to_the_rate(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    leader.batches_max = 5;
    fworld_start(&fw, 2);
    fetchers_throttle(fw.f, 100, counts_first, NULL); /* a batch has about as much */
    leader_append(0, 50);
    leader_append(1, 50);
    leader.parts[0].high_watermark = leader.parts[1].high_watermark = 50;
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    check_same(&fw, 1);
    int64_t end = plog_end(followed_at(&fw, 0)->pl);
    assert_int_equal(end, 5);
    assert_false(leader.parts[0].in_session);
    int64_t began_us = fw.w.now_us;
    for (int i = 0; i < 1000 && plog_end(followed_at(&fw, 0)->pl) < 50; i++) {
        pass_ms(&fw, 100);
        run_to_rest(&fw);
    }
    check_same(&fw, 0);
    int64_t bytes = plog_size(followed_at(&fw, 0)->pl), took_s = (fw.w.now_us - began_us) / 1000000;
    assert_true(took_s >= bytes * 8 / 10 / 100 && took_s <= bytes * 12 / 10 / 100);
    fworld_end(&fw);
}

/* ---- Several fetchers */

static void partitions_are_spread_anew_when_there_are_more_fetchers(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 1);
    follow(&fw, 0, 0);
    leader_append(0, 2);
    run_to_rest(&fw);
    for (int32_t n = 2; n <= 5; n++) {
        fw.config.per_leader = n;
        fetchers_configure(fw.f, &fw.config);
        leader_append(0, 1);
        turns(&fw.w, 5); /* to another one, perhaps */
        run_to_rest(&fw);
        run_to_rest(&fw);
        check_same(&fw, 0);
        assert_int_equal(fetchers_look(fw.f).fetchers, 1);
    }
    fworld_end(&fw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_follower_gets_what_the_leader_has),
        cmocka_unit_test(what_the_new_leader_does_not_have_is_cut),
        cmocka_unit_test(logs_that_differ_in_several_epochs_are_made_the_same),
        cmocka_unit_test(a_cut_below_the_high_watermark_is_counted),
        cmocka_unit_test(a_follower_of_any_history_ends_up_the_same),
        cmocka_unit_test(a_follower_behind_the_leaders_start_begins_anew_there),
        cmocka_unit_test(a_log_may_begin_in_the_midst_of_a_batch),
        cmocka_unit_test(an_error_delays_its_partition_alone),
        cmocka_unit_test(a_leader_that_has_not_been_told_yet_is_asked_again_soon_and_then_seldom),
        cmocka_unit_test(a_corrupt_batch_is_fetched_again),
        cmocka_unit_test(a_fenced_follower_waits_for_the_controller),
        cmocka_unit_test(the_high_watermark_never_passes_the_end),
        cmocka_unit_test(who_is_far_behind_reads_ahead),
        cmocka_unit_test(what_was_read_ahead_of_a_failure_is_not_appended),
        cmocka_unit_test(a_session_that_the_leader_forgot_begins_anew),
        cmocka_unit_test(without_a_session_every_fetch_is_a_full_one_that_waits),
        cmocka_unit_test(an_old_leader_is_spoken_to_in_its_version),
        cmocka_unit_test(a_leader_that_is_back_is_reached_at_once),
        cmocka_unit_test(who_is_to_be_fetched_now_does_not_wait_for_the_fetch_that_is_out),
        cmocka_unit_test(what_an_overtaking_fetch_brings_twice_is_appended_once),
        cmocka_unit_test(an_answer_to_who_has_left_is_not_appended),
        cmocka_unit_test(an_answer_of_a_former_epoch_is_not_appended),
        cmocka_unit_test(who_leaves_without_following_is_told_too),
        cmocka_unit_test(a_full_disk_delays_until_there_is_room),
        cmocka_unit_test(a_failing_disk_takes_its_partition_out_and_the_others_go_on),
        cmocka_unit_test(the_leader_is_told_what_is_on_the_disk),
        cmocka_unit_test(nor_does_a_fetch_leave_before),
        cmocka_unit_test(who_leaves_while_its_log_is_cut_has_left_after_that),
        cmocka_unit_test(what_takes_the_place_of_a_cut_is_looked_at_by_recovery),
        cmocka_unit_test(a_throttled_partition_keeps_to_the_rate),
        cmocka_unit_test(partitions_are_spread_anew_when_there_are_more_fetchers),
    };
    if (!getenv("SHOW_LOG")) assert_int_equal(log_open_file("/dev/null", NULL), OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
