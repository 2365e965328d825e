/* replica: a partition that is led here: its followers' fetches, what is proposed to the controller, and its answers.
 */
#include "replica_world.h"

#include "replica/replicas_internal.h"

enum { LAG_MS = 1000 };

static struct {
    struct world w;
    struct fs_sim *sim;
    /* The controller: what it was asked last. */
    struct alter_partition_call *call;
    int calls;
    int32_t dead;            /* a broker that is not alive */
    void (*meanwhile)(void); /* once: as another loop, while a request is put together */
    /* Whom fetchers follow. */
    int32_t followed, followed_epoch;
    int follows, leaves;
    void (*left)(void *arg, struct partition *p);
    void *left_arg;
    struct partition *leaving;
} h;

static void alter_partition(void *arg, struct alter_partition_call *call)
{
    (void)arg;
    assert_null(h.call); /* one at a time */
    h.call = call;
    h.calls++;
}

static bool is_alive(void *arg, int32_t broker_id)
{
    (void)arg;
    return broker_id != h.dead;
}

static int64_t own_epoch(void *arg)
{
    (void)arg;
    void (*meanwhile)(void) = h.meanwhile;
    h.meanwhile = NULL;
    if (meanwhile) meanwhile();
    return 77;
}

static void follow(void *arg, struct partition *p, int32_t leader, int32_t leader_epoch)
{
    (void)arg, (void)p;
    h.follows++;
    h.followed = leader;
    h.followed_epoch = leader_epoch;
}

static void leave(void *arg, struct partition *p, void (*left)(void *left_arg, struct partition *p), void *left_arg)
{
    (void)arg;
    h.leaves++;
    h.left = left;
    h.left_arg = left_arg;
    h.leaving = p;
}

static int start(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    h.dead = -1;
    world_leading = (struct leaders_options){
        .lag_max_ms = LAG_MS, .is_alive = is_alive, .broker_epoch = own_epoch, .alter_partition = alter_partition};
    world_following = (struct following){.follow = follow, .leave = leave};
    h.sim = fs_sim_new(&(struct fs_sim_options){.seed = 1});
    assert_int_equal(world_start(&h.w, h.sim), OK);
    return 0;
}

static void answer(enum err e, enum kerr top, enum kerr kerr, int32_t partition_epoch);

static int finish(void **state)
{
    (void)state;
    if (h.call) answer(ERR_CLOSED, KERR_NONE, KERR_NONE, 0);
    world_end(&h.w, true);
    fs_sim_free(h.sim);
    return 0;
}

/* ---- The controller's word */

typedef struct leader_and_isr_request_leader_and_isr_partition_state partition_state;

static const int32_t REPLICAS[] = {BROKER, 1, 2};

static partition_state state_of(int32_t leader, int32_t leader_epoch, int32_t partition_epoch, int32_t isr_count)
{
    partition_state ps = leader_and_isr_request_leader_and_isr_partition_state_default;
    ps.leader = leader;
    ps.leader_epoch = leader_epoch;
    ps.partition_epoch = partition_epoch;
    ps.replicas = ps.isr = (int32_t *)(uintptr_t)REPLICAS;
    ps.replicas_count = 3;
    ps.isr_count = isr_count;
    ps.is_new = true;
    return ps;
}

static void say(int32_t leader, int32_t leader_epoch, int32_t partition_epoch, int32_t isr_count)
{
    partition_state ps = state_of(leader, leader_epoch, partition_epoch, isr_count);
    apply_states(&h.w, &ps, 1);
}

/* The call that is out gets its answer: the set as asked for, or an error. */
static void answer(enum err e, enum kerr top, enum kerr kerr, int32_t partition_epoch)
{
    assert_non_null(h.call);
    struct alter_partition_call *call = h.call;
    const struct alter_partition_request_topic_data *in = &call->request->topics[0];
    const struct alter_partition_request_partition_data *asked = &in->partitions[0];
    struct alter_partition_response_partition_data pd = alter_partition_response_partition_data_default;
    struct alter_partition_response_topic_data td = alter_partition_response_topic_data_default;
    struct alter_partition_response out = alter_partition_response_default;
    int32_t isr[3];
    pd.partition_index = asked->partition_index;
    pd.error_code = (int16_t)kerr;
    pd.leader_id = BROKER;
    pd.leader_epoch = asked->leader_epoch;
    pd.partition_epoch = partition_epoch;
    pd.isr = isr;
    for (int32_t i = 0; i < asked->new_isr_with_epochs_count; i++)
        isr[pd.isr_count++] = asked->new_isr_with_epochs[i].broker_id;
    for (int32_t i = 0; i < asked->new_isr_count; i++) isr[pd.isr_count++] = asked->new_isr[i];
    td.topic_id = in->topic_id;
    td.partitions = &pd;
    td.partitions_count = 1;
    out.error_code = (int16_t)top;
    out.topics = &td;
    out.topics_count = top ? 0 : 1;
    h.call = NULL;
    call->done(call, e, e ? NULL : &out);
    turns(&h.w, 2);
}

/* ---- Followers */

static struct partition *p0(void)
{
    return partition_at(&h.w, 0);
}

static enum kerr fetch_as(int32_t id, int64_t broker_epoch, int64_t offset)
{
    const struct follower_fetch ff = {.broker_id = id,
                                      .broker_epoch = broker_epoch,
                                      .leader_epoch = -1,
                                      .fetch_offset = offset,
                                      .now_us = h.w.now_us};
    enum kerr kerr = partition_follower_fetched(p0(), &ff);
    turns(&h.w, 1);
    return kerr;
}

static void fetched(int32_t id, int64_t offset)
{
    assert_int_equal(fetch_as(id, -1, offset), KERR_NONE);
}

static void append(int count)
{
    for (int i = 0; i < count; i++) assert_int_equal(append_one(p0()), KERR_NONE);
}

static void assert_asked(int32_t count, const int32_t *ids)
{
    assert_non_null(h.call);
    const struct alter_partition_request *rq = h.call->request;
    assert_int_equal(rq->broker_id, BROKER);
    assert_int_equal(rq->broker_epoch, 77);
    assert_int_equal(rq->topics_count, 1);
    assert_int_equal(rq->topics[0].partitions_count, 1);
    const struct alter_partition_request_partition_data *pd = &rq->topics[0].partitions[0];
    assert_int_equal(pd->new_isr_with_epochs_count, count);
    for (int32_t i = 0; i < count; i++) assert_int_equal(pd->new_isr_with_epochs[i].broker_id, ids[i]);
}

#define ASSERT_ASKED(...) \
    assert_asked((int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (int32_t[]){__VA_ARGS__})

/* ---- Tests */

static void the_high_watermark_follows_the_slowest_member(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 3);
    append(10);
    assert_int_equal(partition_high_watermark(p0()), 0);
    fetched(1, 10);
    assert_int_equal(partition_high_watermark(p0()), 0);
    fetched(2, 4);
    assert_int_equal(partition_high_watermark(p0()), 4);
    fetched(2, 10);
    assert_int_equal(partition_high_watermark(p0()), 10);
}

static void a_member_that_has_lost_what_it_had_leaves_at_once(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 3);
    append(10);
    assert_int_equal(fetch_as(1, 50, 10), KERR_NONE);
    assert_int_equal(fetch_as(2, 60, 10), KERR_NONE);
    assert_null(h.call);
    assert_int_equal(fetch_as(2, 61, 0), KERR_NONE);
    assert_int_equal(partition_high_watermark(p0()), 10); /* what was promised stays */
    ASSERT_ASKED(BROKER, 1);
    answer(OK, KERR_NONE, KERR_NONE, 1);
    assert_int_equal(fetch_as(2, 61, 9), KERR_NONE);
    assert_null(h.call);
    assert_int_equal(fetch_as(2, 61, 10), KERR_NONE);
    ASSERT_ASKED(BROKER, 1, 2);
}

static void a_fetch_of_an_earlier_leadership_says_nothing(void **state)
{
    (void)state;
    say(BROKER, 3, 0, 2);
    append(2);
    struct follower_fetch ff = {.broker_id = 1, .broker_epoch = -1, .leader_epoch = 2, .fetch_offset = 2};
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_FENCED_LEADER_EPOCH);
    ff.leader_epoch = 4;
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_UNKNOWN_LEADER_EPOCH);
    ff.leader_epoch = 3;
    ff.fetch_offset = 3;
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_OFFSET_OUT_OF_RANGE);
    assert_int_equal(partition_high_watermark(p0()), 0);
    ff.fetch_offset = 2;
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_NONE);
    assert_int_equal(partition_high_watermark(p0()), 2);
}

static void who_leads_on_in_the_next_epoch_knows_what_followers_have(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 3);
    append(10);
    fetched(1, 10);
    fetched(2, 4);
    assert_int_equal(partition_high_watermark(p0()), 4);
    say(BROKER, 1, 1, 2);
    assert_int_equal(partition_high_watermark(p0()), 10);
}

/* Another one may have led in it, with less than we have, and the followers have cut what it did not have. */
static void who_was_left_out_for_an_epoch_does_not(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 3);
    append(10);
    fetched(1, 10);
    fetched(2, 4);
    say(BROKER, 2, 2, 2);
    assert_int_equal(partition_high_watermark(p0()), 4);
    fetched(1, 4);
    assert_int_equal(partition_high_watermark(p0()), 4);
    fetched(1, 10);
    assert_int_equal(partition_high_watermark(p0()), 10);
}

static void an_exit_that_was_refused_is_proposed_later(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 3);
    append(1);
    fetched(1, 1);
    for (int i = 0; i < 3 * LAG_MS / 10 && !h.call; i++) {
        turns(&h.w, 1);
        fetched(1, 1);
    }
    ASSERT_ASKED(BROKER, 1);
    answer(OK, KERR_NONE, KERR_INELIGIBLE_REPLICA, 0);
    fetched(1, 1);
    assert_null(h.call);
    for (int i = 0; i < LAG_MS && !h.call; i++) fetched(1, 1);
    ASSERT_ASKED(BROKER, 1);
}

static void a_follower_enters_by_the_controllers_word(void **state)
{
    (void)state;
    say(BROKER, 3, 5, 2);
    append(10);
    fetched(1, 10);
    fetched(2, 4);
    assert_null(h.call);
    assert_int_equal(partition_high_watermark(p0()), 10);
    append(2);
    assert_int_equal(fetch_as(2, 88, 10), KERR_NONE); /* at the high watermark */
    ASSERT_ASKED(BROKER, 1, 2);
    const struct alter_partition_request_partition_data *pd = &h.call->request->topics[0].partitions[0];
    assert_int_equal(pd->leader_epoch, 3);
    assert_int_equal(pd->partition_epoch, 5);
    assert_int_equal(pd->new_isr_with_epochs[0].broker_epoch, 77);
    assert_int_equal(pd->new_isr_with_epochs[2].broker_epoch, 88);
    fetched(1, 12);
    assert_int_equal(partition_high_watermark(p0()), 10); /* it may be in by now */
    answer(OK, KERR_NONE, KERR_NONE, 6);
    assert_int_equal(p0()->in_sync_count, 3);
    assert_int_equal(p0()->partition_epoch, 6);
    fetched(2, 12);
    assert_int_equal(partition_high_watermark(p0()), 12);
    assert_int_equal(h.calls, 1);
}

/* A follower that is far behind names what it has received and not yet appended, below a high watermark that it was
 * told (fetcher_answer.c). */
static void what_a_follower_reads_ahead_counts_for_nothing(void **state)
{
    (void)state;
    say(BROKER, 3, 0, 2);
    append(10);
    fetched(1, 10);
    assert_int_equal(partition_high_watermark(p0()), 10);
    fetched(2, 0);
    fetched(2, 9);
    assert_null(h.call);
    assert_int_equal(p0()->in_sync_count, 2);
    say(BROKER, 4, 1, 2); /* leads on, and keeps what it knows */
    fetched(1, 10);
    assert_null(h.call);
    assert_int_equal(partition_high_watermark(p0()), 10);
    /* What was on its way says nothing to the next leadership. */
    const struct follower_fetch late = {.broker_id = 2, .broker_epoch = -1, .leader_epoch = 3, .fetch_offset = 10};
    assert_int_equal(partition_follower_fetched(p0(), &late), KERR_FENCED_LEADER_EPOCH);
    turns(&h.w, 1);
    assert_null(h.call);
    fetched(2, 10);
    ASSERT_ASKED(BROKER, 1, 2);
}

/* Who reads ahead was told more than the leader knows after a crash, also when nobody has given it another epoch. */
static void what_was_read_ahead_counts_for_nothing_when_the_leader_forgets_its_high_watermark(void **state)
{
    (void)state;
    say(BROKER, 3, 0, 2);
    append(5);
    fetched(1, 3);
    turns(&h.w, 50); /* this is in the checkpoint, and what 2 was told after it is not */
    world_end(&h.w, true);
    assert_int_equal(world_start(&h.w, h.sim), OK);
    say(BROKER, 3, 0, 2);
    assert_int_equal(plog_end(p0()->pl), 5);
    assert_int_equal(partition_high_watermark(p0()), 3);
    fetched(2, 4);
    assert_null(h.call);
    assert_int_equal(partition_high_watermark(p0()), 3);
    fetched(1, 5);
    assert_null(h.call);
    assert_int_equal(partition_high_watermark(p0()), 5);
    fetched(2, 5);
    ASSERT_ASKED(BROKER, 1, 2);
}

static void silent_followers_leave_by_their_timer(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 3);
    append(1);
    fetched(1, 1);
    fetched(2, 1);
    append(1);
    for (int i = 0; i < 3 * LAG_MS / 10 && !h.call; i++) turns(&h.w, 1); /* nobody fetches, and so nobody looks */
    ASSERT_ASKED(BROKER, 2);                                             /* a moment earlier than the other */
    assert_int_equal(partition_high_watermark(p0()), 1);
    answer(OK, KERR_NONE, KERR_NONE, 1);
    for (int i = 0; i < LAG_MS / 10 && !h.call; i++) turns(&h.w, 1);
    ASSERT_ASKED(BROKER);
    assert_int_equal(partition_high_watermark(p0()), 1);
    answer(OK, KERR_NONE, KERR_NONE, 2);
    assert_int_equal(partition_high_watermark(p0()), 2);
    assert_int_equal(p0()->in_sync_count, 1);
}

static void a_refused_proposal_is_taken_back_and_made_again_later(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    fetched(1, 1);
    ASSERT_ASKED(BROKER, 1);
    answer(OK, KERR_NONE, KERR_INELIGIBLE_REPLICA, 0);
    assert_false(p0()->in_sync.proposed);
    fetched(1, 1);
    assert_null(h.call);
    h.w.now_us += 1000 * 1000;
    turns(&h.w, 1);
    fetched(1, 1);
    ASSERT_ASKED(BROKER, 1);
}

/* It has been put out of the set because it is about to stop, and fetches until it is gone. */
static void who_was_refused_does_not_hold_up_the_high_watermark(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    fetched(1, 1);
    append(1);
    assert_int_equal(partition_high_watermark(p0()), 1); /* it may have been let in */
    answer(OK, KERR_NONE, KERR_INELIGIBLE_REPLICA, 0);
    assert_int_equal(partition_high_watermark(p0()), 2);
    fetched(1, 2);
    append(1);
    assert_int_equal(partition_high_watermark(p0()), 3);
    h.w.now_us += 1000 * 1000;
    turns(&h.w, 1);
    partition_look_at_followers(p0());
    append(1);
    assert_int_equal(partition_high_watermark(p0()), 4); /* it is gone: only its own word brings it back */
    assert_null(h.call);
    fetched(1, 4);
    ASSERT_ASKED(BROKER, 1);
}

static void what_the_controller_knows_better_waits_for_its_word(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    fetched(1, 1);
    answer(OK, KERR_NONE, KERR_INVALID_UPDATE_VERSION, 0);
    assert_true(p0()->in_sync.proposed);
    h.w.now_us += 3000 * 1000;
    turns(&h.w, 3);
    fetched(1, 1);
    assert_null(h.call);
    append(1);
    assert_int_equal(partition_high_watermark(p0()), 1); /* it may have been let in */
    say(BROKER, 1, 4, 1);
    fetched(1, 2);
    ASSERT_ASKED(BROKER, 1);
    assert_int_equal(h.call->request->topics[0].partitions[0].partition_epoch, 4);
}

static void other_errors_are_asked_again(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    fetched(1, 1);
    answer(OK, KERR_NONE, KERR_UNKNOWN_SERVER_ERROR, 0);
    for (int i = 0; i < 100 && !h.call; i++) turns(&h.w, 1);
    ASSERT_ASKED(BROKER, 1);
    answer(OK, KERR_STALE_BROKER_EPOCH, KERR_NONE, 0);
    assert_null(h.call); /* not at once */
    for (int i = 0; i < 100 && !h.call; i++) turns(&h.w, 1);
    ASSERT_ASKED(BROKER, 1);
    answer(ERR_TIMEOUT, KERR_NONE, KERR_NONE, 0);
    for (int i = 0; i < 100 && !h.call; i++) turns(&h.w, 1);
    ASSERT_ASKED(BROKER, 1);
}

static void a_controller_without_broker_epochs_is_asked_without(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    fetched(1, 1);
    assert_int_equal(h.call->version, 3);
    answer(ERR_UNSUPPORTED, KERR_NONE, KERR_NONE, 0);
    assert_non_null(h.call);
    assert_int_equal(h.call->version, 2);
    const struct alter_partition_request_partition_data *pd = &h.call->request->topics[0].partitions[0];
    assert_int_equal(pd->new_isr_with_epochs_count, 0);
    assert_int_equal(pd->new_isr_count, 2);
    answer(OK, KERR_NONE, KERR_NONE, 1);
    assert_int_equal(p0()->in_sync_count, 2);
}

static void an_answer_to_what_was_asked_before_the_last_role_is_ignored(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    fetched(1, 1);
    say(BROKER, 0, 9, 1); /* the controller had changed it meanwhile */
    answer(OK, KERR_NONE, KERR_NONE, 1);
    assert_int_equal(p0()->in_sync_count, 1);
    assert_int_equal(p0()->partition_epoch, 9);
    fetched(1, 1);
    ASSERT_ASKED(BROKER, 1);
}

static void proposals_that_come_up_meanwhile_go_together(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    partition_state ps[COUNT];
    for (int32_t i = 0; i < COUNT; i++) {
        ps[i] = state_of(BROKER, 0, 0, 1);
        ps[i].partition_index = i;
    }
    apply_states(&h.w, ps, COUNT);
    const struct follower_fetch ff = {.broker_id = 1, .broker_epoch = -1, .now_us = h.w.now_us};
    for (int32_t i = 0; i < COUNT; i++) {
        assert_int_equal(partition_follower_fetched(partition_at(&h.w, i), &ff), KERR_NONE);
        turns(&h.w, 1);
    }
    assert_int_equal(h.calls, 1);
    answer(OK, KERR_NONE, KERR_NONE, 1);
    assert_int_equal(h.calls, 2);
    assert_int_equal(h.call->request->topics_count, 1);
    assert_int_equal(h.call->request->topics[0].partitions_count, 2);
    /* The answer names one of the two: the other is asked again. */
    int32_t named = h.call->request->topics[0].partitions[0].partition_index;
    answer(OK, KERR_NONE, KERR_NONE, 1);
    for (int i = 0; i < 100 && !h.call; i++) turns(&h.w, 1);
    assert_int_equal(h.call->request->topics[0].partitions_count, 1);
    assert_int_not_equal(h.call->request->topics[0].partitions[0].partition_index, named);
}

static void partition_1_is_fetched(void)
{
    const struct follower_fetch ff = {.broker_id = 1, .broker_epoch = -1, .leader_epoch = -1, .now_us = h.w.now_us};
    assert_int_equal(partition_follower_fetched(partition_at(&h.w, 1), &ff), KERR_NONE);
}

/* The controller's word takes back all that waits; what another loop proposes in that moment is not left behind. */
static void a_proposal_that_comes_up_while_there_is_nothing_else_to_say_goes_out(void **state)
{
    (void)state;
    partition_state ps[2] = {state_of(BROKER, 0, 0, 1), state_of(BROKER, 0, 0, 1)};
    ps[1].partition_index = 1;
    apply_states(&h.w, ps, 2);
    const struct follower_fetch ff = {.broker_id = 1, .broker_epoch = -1, .leader_epoch = -1, .now_us = h.w.now_us};
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_NONE);
    partition_set_role(p0(), &(struct partition_role){.leads = true,
                                                      .self = BROKER,
                                                      .leader = BROKER,
                                                      .partition_epoch = 1,
                                                      .replicas = REPLICAS,
                                                      .replica_count = 2,
                                                      .isr = REPLICAS,
                                                      .isr_count = 2});
    h.meanwhile = partition_1_is_fetched;
    turns(&h.w, 5);
    assert_null(h.meanwhile);
    ASSERT_ASKED(BROKER, 1);
    assert_int_equal(h.call->request->topics[0].partitions[0].partition_index, 1);
}

static void strangers_and_the_dead_have_no_say(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 1);
    append(1);
    struct follower_fetch ff = {.broker_id = 9, .broker_epoch = -1, .leader_epoch = 0, .fetch_offset = 1};
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_UNKNOWN_LEADER_EPOCH);
    assert_int_equal(partition_check_follower(p0(), 9, true), KERR_UNKNOWN_LEADER_EPOCH);
    ff.leader_epoch = -1;
    assert_int_equal(partition_follower_fetched(p0(), &ff), KERR_NOT_LEADER_OR_FOLLOWER);
    h.dead = 1;
    fetched(1, 1);
    assert_null(h.call);
    append(1);
    assert_int_equal(partition_high_watermark(p0()), 2);
    assert_int_equal(fetch_as(2, 50, 0), KERR_NONE);
    assert_int_equal(fetch_as(2, 49, 2), KERR_NOT_LEADER_OR_FOLLOWER);
    say(1, 1, 1, 3);
    assert_int_equal(fetch_as(2, 50, 2), KERR_NOT_LEADER_OR_FOLLOWER);
}

static void older_words_of_the_controller_change_nothing(void **state)
{
    (void)state;
    say(BROKER, 5, 7, 2);
    assert_int_equal(h.w.apply_errors[0], KERR_NONE);
    say(1, 4, 9, 3);
    assert_int_equal(h.w.apply_errors[0], KERR_STALE_CONTROLLER_EPOCH);
    assert_true(atomic_load(&p0()->leads));
    say(BROKER, 5, 6, 3);
    assert_int_equal(p0()->in_sync_count, 2);
    assert_int_equal(p0()->partition_epoch, 7);
    say(BROKER, 5, 8, 3);
    assert_int_equal(p0()->in_sync_count, 3);
}

static void a_partition_of_other_brokers_is_not_taken(void **state)
{
    (void)state;
    partition_state ps = state_of(1, 0, 0, 1);
    int32_t others[] = {1, 2};
    ps.replicas = others;
    ps.replicas_count = 2;
    apply_states(&h.w, &ps, 1);
    assert_int_equal(h.w.apply_errors[0], KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_null(p0());
}

static void a_leaders_epoch_begins_when_nothing_is_appended_by_a_fetcher_any_more(void **state)
{
    (void)state;
    say(1, 4, 0, 3);
    assert_int_equal(h.follows, 1);
    assert_int_equal(h.followed, 1);
    assert_int_equal(h.followed_epoch, 4);
    say(1, 4, 1, 3); /* the in-sync set is no matter for a follower */
    assert_int_equal(h.follows, 1);
    say(2, 5, 2, 3);
    assert_int_equal(h.followed, 2);

    partition_state ps = state_of(BROKER, 6, 3, 3);
    struct leader_and_isr_request_leader_and_isr_topic_state ts =
        leader_and_isr_request_leader_and_isr_topic_state_default;
    ts.topic_name = STR("t");
    ts.topic_id = (struct uuid){{1, 2, 3}};
    ts.partition_states = &ps;
    ts.partition_states_count = 1;
    struct leader_and_isr_request rq = leader_and_isr_request_default;
    rq.topic_states = &ts;
    rq.topic_states_count = 1;
    h.w.applied = false;
    replicas_apply(h.w.r, BROKER, &rq, world_applied, &h.w);
    turns(&h.w, 20);
    assert_int_equal(h.leaves, 1);
    assert_ptr_equal(h.leaving, p0());
    assert_false(h.w.applied);
    assert_int_equal(plog_last_epoch_begun(p0()->pl), -1);
    h.left(h.left_arg, p0());
    turns(&h.w, 20);
    assert_true(h.w.applied);
    assert_int_equal(plog_last_epoch_begun(p0()->pl), 6);
    assert_true(atomic_load(&p0()->leads));
}

static void the_high_watermark_outlives_a_crash_and_no_more_than_that(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 2);
    append(5);
    fetched(1, 3);
    assert_int_equal(partition_high_watermark(p0()), 3);
    turns(&h.w, 50); /* checkpoints are written */
    world_end(&h.w, true);
    assert_int_equal(world_start(&h.w, h.sim), OK);
    say(BROKER, 1, 0, 2);
    assert_int_equal(plog_end(p0()->pl), 5);
    assert_int_equal(partition_high_watermark(p0()), 3);
    fetched(1, 5);
    assert_int_equal(partition_high_watermark(p0()), 5);
}

struct counted_wake {
    struct partition_waiter waiter;
    int woken;
};

static void on_wake(struct partition_waiter *w)
{
    CONTAINER_OF(w, struct counted_wake, waiter)->woken++;
}

static void who_waits_for_replication_is_woken_by_the_fetch(void **state)
{
    (void)state;
    say(BROKER, 0, 0, 2);
    append(2);
    struct counted_wake w = {.waiter = {.until_high_watermark = 2, .wake = on_wake}};
    partition_wait(p0(), &w.waiter);
    fetched(1, 1);
    assert_int_equal(w.woken, 0);
    fetched(1, 2);
    assert_int_equal(w.woken, 1);
    partition_unwait(p0(), &w.waiter);
    assert_true(partition_in_sync_enough(p0()));
    partition_set_min_insync(p0(), 3);
    assert_false(partition_in_sync_enough(p0()));
    append(1);
    fetched(1, 3);
    assert_int_equal(partition_high_watermark(p0()), 2); /* too few to promise anything */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_high_watermark_follows_the_slowest_member),
        TEST(a_member_that_has_lost_what_it_had_leaves_at_once),
        TEST(a_fetch_of_an_earlier_leadership_says_nothing),
        TEST(who_leads_on_in_the_next_epoch_knows_what_followers_have),
        TEST(who_was_left_out_for_an_epoch_does_not),
        TEST(an_exit_that_was_refused_is_proposed_later),
        TEST(a_follower_enters_by_the_controllers_word),
        TEST(what_a_follower_reads_ahead_counts_for_nothing),
        TEST(what_was_read_ahead_counts_for_nothing_when_the_leader_forgets_its_high_watermark),
        TEST(silent_followers_leave_by_their_timer),
        TEST(a_refused_proposal_is_taken_back_and_made_again_later),
        TEST(who_was_refused_does_not_hold_up_the_high_watermark),
        TEST(what_the_controller_knows_better_waits_for_its_word),
        TEST(other_errors_are_asked_again),
        TEST(a_controller_without_broker_epochs_is_asked_without),
        TEST(an_answer_to_what_was_asked_before_the_last_role_is_ignored),
        TEST(proposals_that_come_up_meanwhile_go_together),
        TEST(a_proposal_that_comes_up_while_there_is_nothing_else_to_say_goes_out),
        TEST(strangers_and_the_dead_have_no_say),
        TEST(older_words_of_the_controller_change_nothing),
        TEST(a_partition_of_other_brokers_is_not_taken),
        TEST(a_leaders_epoch_begins_when_nothing_is_appended_by_a_fetcher_any_more),
        TEST(the_high_watermark_outlives_a_crash_and_no_more_than_that),
        TEST(who_waits_for_replication_is_woken_by_the_fetch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
