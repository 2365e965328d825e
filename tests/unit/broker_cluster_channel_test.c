/* broker/cluster_channel: what the controller says to other brokers, with a controller that the test plays and a broker
 * on a socket that closes, dies, is silent and comes back. */
#include "broker_bed.h"

#include "broker/cluster_channel.h"
#include "broker/control.h"
#include "rpc_world.h"

enum { SELF = 1, OTHER = 2, THIRD = 3, EPOCH = 70, REPLIES_MAX = 64 };

/* The reply to one message. */
struct reply {
    int told; /* as the how many-th; 0: not yet */
    enum err err;
    int16_t code;
    int64_t offset;
};

static struct {
    struct broker_run run;
    struct controller_options opt; /* what the controller was started with */
    struct cluster_channel *ch;
    struct peer_side peer, third;
    struct reply replies[REPLIES_MAX];
    int told;
    int reached, unreached, stood_back;
    int own_calls;
} w;

/* ---- What stands in for the rest of the broker */

void run_fail(struct broker_run *run, enum err e, const struct fault *f)
{
    (void)run;
    (void)e;
    fail_msg("%s", f->text);
}

struct controller *controller_start(const struct controller_options *opt)
{
    w.opt = *opt;
    return NULL;
}

void controller_broker_unreachable(struct controller *c, int32_t broker_id, int64_t broker_epoch)
{
    (void)c;
    assert_int_equal(broker_id, OTHER);
    assert_int_equal(broker_epoch, EPOCH);
    w.unreached++;
}

void controller_broker_reachable(struct controller *c, int32_t broker_id, int64_t broker_epoch)
{
    (void)c;
    assert_int_equal(broker_id, OTHER);
    assert_int_equal(broker_epoch, EPOCH);
    w.reached++;
}

void controller_stand_back(struct controller *c, int64_t wait_ms)
{
    (void)c;
    assert_int_equal(wait_ms, 1500); /* the impatient one's session */
    w.stood_back++;
}

void control_leader_and_isr(struct control *ct, const struct leader_and_isr_request *rq, leader_and_isr_reply_fn reply,
                            void *arg)
{
    (void)ct;
    (void)rq;
    (void)reply;
    (void)arg;
    w.own_calls++;
}

void control_update_metadata(struct control *ct, const struct update_metadata_request *rq,
                             update_metadata_reply_fn reply, void *arg)
{
    (void)ct;
    (void)rq;
    (void)reply;
    (void)arg;
    w.own_calls++;
}

void control_stop_replica(struct control *ct, const struct stop_replica_request *rq, stop_replica_reply_fn reply,
                          void *arg)
{
    (void)ct;
    (void)rq;
    (void)reply;
    (void)arg;
    w.own_calls++;
}

/* ---- The world */

static int begin(bool impatient)
{
    memset(&w, 0, sizeof w);
    broker_bed_begin(&w.run.br, SELF, 1, impatient ? "zookeeper.session.timeout.ms=1500" : NULL);
    cluster_channel_open(&w.ch, &w.run);
    w.peer.loop = w.third.loop = w.run.br.loops[0];
    peer_listen(&w.peer);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return begin(false);
}

/* With a short session. */
static int setup_impatient(void **state)
{
    (void)state;
    return begin(true);
}

static int teardown(void **state)
{
    (void)state;
    cluster_channel_free(w.ch);
    peer_die(&w.peer);
    broker_bed_end(&w.run.br);
    return 0;
}

static struct loop *loop(void)
{
    return w.run.br.loops[0];
}

static void come(void)
{
    w.opt.channel.broker_came(w.ch, OTHER, EPOCH, STR("127.0.0.1"), w.peer.port);
}

static void go(void)
{
    w.opt.channel.broker_went(w.ch, OTHER);
}

static void meet_at(struct peer_side *side)
{
    struct api_versions_response_api_version rows[] = {
        {.api_key = API_LEADER_AND_ISR, .min_version = 0, .max_version = 7},
        {.api_key = API_UPDATE_METADATA, .min_version = 0, .max_version = 8},
        {.api_key = API_STOP_REPLICA, .min_version = 0, .max_version = 1}, /* too old for us */
        {.api_key = API_LIST_OFFSETS, .min_version = 0, .max_version = 9},
        {.api_key = API_API_VERSIONS, .min_version = 0, .max_version = 4},
    };
    peer_meet(side, rows, ARRAY_COUNT(rows));
}

static void meet(void)
{
    meet_at(&w.peer);
}

static void note(void *arg, enum err e, int16_t code)
{
    struct reply *r = arg;
    assert_int_equal(r->told, 0);
    r->told = ++w.told;
    r->err = e;
    r->code = code;
}

static void on_leader_and_isr(void *arg, enum err e, const struct leader_and_isr_response *res)
{
    note(arg, e, e ? 0 : res->error_code);
}

static void on_update_metadata(void *arg, enum err e, const struct update_metadata_response *res)
{
    note(arg, e, e ? 0 : res->error_code);
}

static void on_stop_replica(void *arg, enum err e, const struct stop_replica_response *res)
{
    note(arg, e, e ? 0 : res->error_code);
}

static void on_list_offsets(void *arg, enum err e, const struct list_offsets_response *res)
{
    note(arg, e, 0);
    if (!e) ((struct reply *)arg)->offset = res->topics[0].partitions[0].offset;
}

/* Number `i` is a LeaderAndIsr when it is even, else an UpdateMetadata. */
static void send_nth(int i)
{
    if (i % 2)
        w.opt.channel.update_metadata(w.ch, OTHER, &update_metadata_request_default, on_update_metadata, &w.replies[i]);
    else
        w.opt.channel.leader_and_isr(w.ch, OTHER, &leader_and_isr_request_default, on_leader_and_isr, &w.replies[i]);
    assert_int_equal(w.replies[i].told, 0);
}

static struct asked take_nth(int i)
{
    struct asked q = peer_take(&w.peer);
    assert_int_equal(q.api, i % 2 ? API_UPDATE_METADATA : API_LEADER_AND_ISR);
    assert_int_equal(q.version, i % 2 ? 8 : 7);
    return q;
}

static void answer_nth(int i, struct asked q)
{
    struct leader_and_isr_response lr = leader_and_isr_response_default;
    struct update_metadata_response ur = update_metadata_response_default;
    lr.error_code = ur.error_code = (int16_t)(100 + i);
    peer_answer(&w.peer, q, i % 2 ? (const void *)&ur : &lr);
}

/* ---- Tests */

static void messages_arrive_in_order_several_at_a_time(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    come();
    for (int i = 0; i < COUNT / 2; i++) send_nth(i); /* before it is connected */
    meet();
    for (int i = COUNT / 2; i < COUNT; i++) send_nth(i);
    struct asked q[COUNT];
    for (int i = 0; i < COUNT; i++) {
        if (i >= 32) answer_nth(i - 32, q[i - 32]); /* no more than that are out at a time */
        q[i] = take_nth(i);
    }
    for (int i = COUNT - 32; i < COUNT; i++) answer_nth(i, q[i]);
    UNTIL(loop(), w.told == COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(w.replies[i].told, i + 1);
        assert_int_equal(w.replies[i].err, OK);
        assert_int_equal(w.replies[i].code, 100 + i);
    }
    assert_int_equal(w.unreached, 0);
    go();
}

static void what_was_not_answered_is_sent_again_in_order(void **state)
{
    (void)state;
    come();
    meet();
    for (int i = 0; i < 4; i++) send_nth(i);
    answer_nth(0, take_nth(0));
    (void)take_nth(1);
    UNTIL(loop(), w.told == 1);
    peer_close(&w.peer);
    send_nth(4);
    meet();
    for (int i = 1; i < 5; i++) answer_nth(i, take_nth(i));
    UNTIL(loop(), w.told == 5);
    for (int i = 0; i < 5; i++) assert_int_equal(w.replies[i].code, 100 + i);
    assert_int_equal(w.unreached, 0); /* it was lost, not refused */
    go();
}

static void a_port_that_refuses_is_told_once_and_its_return_too(void **state)
{
    (void)state;
    come();
    meet();
    send_nth(0);
    (void)take_nth(0);
    peer_die(&w.peer);
    UNTIL(loop(), w.unreached == 1);
    int64_t later_us = clock_mono_us(clock_system()) + 350 * 1000; /* some more tries */
    UNTIL(loop(), clock_mono_us(clock_system()) > later_us);
    assert_int_equal(w.unreached, 1);
    assert_int_equal(w.reached, 0);
    peer_listen(&w.peer);
    meet();
    answer_nth(0, take_nth(0));
    UNTIL(loop(), w.told == 1);
    assert_int_equal(w.reached, 1);
    assert_int_equal(w.replies[0].code, 100);
    peer_die(&w.peer);
    UNTIL(loop(), w.unreached == 2);
    go();
}

static void a_broker_that_has_gone_answers_nothing(void **state)
{
    (void)state;
    come();
    meet();
    for (int i = 0; i < 3; i++) send_nth(i);
    (void)take_nth(0);
    (void)take_nth(1);
    (void)take_nth(2);
    peer_die(&w.peer);
    UNTIL(loop(), w.unreached == 1);
    send_nth(3);
    int before = w.told;
    go();
    assert_int_equal(w.told, before); /* in a turn of its own */
    UNTIL(loop(), w.told == 4);
    for (int i = 0; i < 4; i++) assert_int_equal(w.replies[i].err, ERR_CLOSED);
    send_nth(4); /* to one that is not registered */
    UNTIL(loop(), w.told == 5);
    assert_int_equal(w.replies[4].err, ERR_CLOSED);
}

static void messages_to_an_earlier_life_are_not_for_the_next(void **state)
{
    (void)state;
    come();
    meet();
    send_nth(0);
    (void)take_nth(0);
    peer_close(&w.peer);
    come();
    UNTIL(loop(), w.told == 1);
    assert_int_equal(w.replies[0].err, ERR_CLOSED);
    send_nth(1);
    meet();
    answer_nth(1, take_nth(1));
    UNTIL(loop(), w.told == 2);
    assert_int_equal(w.replies[1].code, 101);
    go();
}

static void what_the_broker_cannot_understand_holds_up_nobody(void **state)
{
    (void)state;
    struct stop_replica_request_stop_replica_topic_state topic = {.topic_name = STR("t")};
    struct stop_replica_request rq = stop_replica_request_default;
    rq.topic_states = &topic;
    rq.topic_states_count = 1;
    come();
    meet();
    send_nth(0);
    w.opt.channel.stop_replica(w.ch, OTHER, &rq, on_stop_replica, &w.replies[1]);
    send_nth(2);
    answer_nth(0, take_nth(0));
    answer_nth(2, take_nth(2));
    UNTIL(loop(), w.told == 3);
    assert_int_equal(w.replies[1].err, ERR_UNSUPPORTED);
    assert_int_equal(w.replies[2].code, 102);
    go();
}

/* ---- Questions */

static void ask_end(int i, int64_t timeout_ms)
{
    w.opt.channel.list_offsets(w.ch, OTHER, &list_offsets_request_default, timeout_ms, on_list_offsets, &w.replies[i]);
    assert_int_equal(w.replies[i].told, 0);
}

static void answer_end(struct asked q, int64_t offset)
{
    struct list_offsets_response_list_offsets_partition_response p =
        list_offsets_response_list_offsets_partition_response_default;
    p.offset = offset;
    struct list_offsets_response_list_offsets_topic_response t = {
        .name = STR("t"), .partitions = &p, .partitions_count = 1};
    struct list_offsets_response res = list_offsets_response_default;
    res.topics = &t;
    res.topics_count = 1;
    peer_answer(&w.peer, q, &res);
}

static void a_question_is_answered_or_its_time_is_up(void **state)
{
    (void)state;
    come();
    ask_end(0, WAIT_MS_MAX); /* not connected yet, as when the office has just been taken */
    meet();
    answer_end(peer_take(&w.peer), 4321);
    UNTIL(loop(), w.told == 1);
    assert_int_equal(w.replies[0].err, OK);
    assert_int_equal(w.replies[0].offset, 4321);
    send_nth(1); /* its being answered shows that the link is up */
    answer_nth(1, take_nth(1));
    UNTIL(loop(), w.told == 2);
    ask_end(2, WAIT_MS_MAX);
    struct asked q = peer_take(&w.peer);
    assert_int_equal(q.api, API_LIST_OFFSETS);
    answer_end(q, 1234);
    UNTIL(loop(), w.told == 3);
    assert_int_equal(w.replies[2].offset, 1234);
    ask_end(3, 20);
    send_nth(4);
    q = peer_take(&w.peer);
    UNTIL(loop(), w.told == 4);
    assert_int_equal(w.replies[3].err, ERR_TIMEOUT);
    answer_end(q, 5); /* too late; the link is none the worse */
    answer_nth(4, take_nth(4));
    UNTIL(loop(), w.told == 5);
    assert_int_equal(w.replies[4].code, 104);
    ask_end(5, WAIT_MS_MAX);
    (void)peer_take(&w.peer);
    peer_close(&w.peer);
    UNTIL(loop(), w.told == 6);
    assert_int_equal(w.replies[5].err, ERR_CLOSED); /* and is not asked again */
    meet();
    send_nth(6);
    answer_nth(6, take_nth(6));
    UNTIL(loop(), w.told == 7);
    go();
}

static void a_question_to_who_is_not_reached_is_given_up_soon(void **state)
{
    (void)state;
    come();
    ask_end(0, 20); /* accepted by nobody */
    UNTIL(loop(), w.told == 1);
    assert_int_equal(w.replies[0].err, ERR_TIMEOUT);
    ask_end(1, WAIT_MS_MAX);
    meet();
    (void)peer_take(&w.peer);
    peer_die(&w.peer);
    UNTIL(loop(), w.told == 2);
    assert_int_equal(w.replies[1].err, ERR_CLOSED);
    UNTIL(loop(), w.unreached == 1); /* its port refuses */
    ask_end(2, WAIT_MS_MAX);
    UNTIL(loop(), w.told == 3);
    assert_int_equal(w.replies[2].err, ERR_CLOSED);
    go();
    come();
    ask_end(3, WAIT_MS_MAX);
    UNTIL(loop(), w.told == 4); /* with the first try, and not with the last */
    assert_int_equal(w.replies[3].err, ERR_CLOSED);
    ask_end(4, WAIT_MS_MAX);
    go();
    UNTIL(loop(), w.told == 5);
    assert_int_equal(w.replies[4].err, ERR_CLOSED);
}

/* ---- Silence */

static void answer_probe_of(struct peer_side *side)
{
    struct asked q = peer_take(side);
    assert_int_equal(q.api, API_API_VERSIONS);
    struct api_versions_response res = api_versions_response_default;
    peer_answer(side, q, &res);
}

static void answer_probe(void)
{
    answer_probe_of(&w.peer);
}

/* Their links are up when they fall silent, one of them a little before the other. */
static void nobody_is_given_up_when_all_others_fall_silent(void **state)
{
    (void)state;
    peer_listen(&w.third);
    come();
    meet();
    w.opt.channel.broker_came(w.ch, THIRD, EPOCH, STR("127.0.0.1"), w.third.port);
    meet_at(&w.third);
    for (int i = 0; i < 3; i++) { /* for longer than a session */
        answer_probe();
        answer_probe_of(&w.third);
    }
    UNTIL(loop(), w.stood_back > 0);
    assert_int_equal(w.unreached, 0);
    w.opt.channel.broker_went(w.ch, THIRD);
    go();
    peer_die(&w.third);
}

static void who_is_silent_is_told_and_its_return_too(void **state)
{
    (void)state;
    come();
    meet();
    for (int i = 0; i < 3; i++) answer_probe(); /* for longer than a session */
    assert_int_equal(w.unreached, 0);
    UNTIL(loop(), w.unreached == 1);
    peer_close(&w.peer);
    meet();
    UNTIL(loop(), w.reached == 1);
    send_nth(0);
    struct asked q = peer_take(&w.peer);
    if (q.api == API_API_VERSIONS) q = peer_take(&w.peer); /* a probe was due */
    assert_int_equal(q.api, API_LEADER_AND_ISR);
    go();
}

/* To apply a message may take long.  Who does not even answer on the next connection is silent. */
static void who_is_silent_with_messages_out_is_told_by_the_next_connection(void **state)
{
    (void)state;
    come();
    meet();
    send_nth(0);
    (void)take_nth(0);
    UNTIL(loop(), is_readable(w.peer.listener)); /* it is tried anew */
    assert_int_equal(w.unreached, 0);
    UNTIL(loop(), w.unreached == 1);
    go();
}

/* The third broker answers whatever comes, also anew when it was too slow. */
static void third_lives(void)
{
    char byte;
    if (is_readable(w.third.listener)) {
        peer_close(&w.third);
        meet_at(&w.third);
    } else if (w.third.fd >= 0 && is_readable(w.third.fd)) {
        if (recv(w.third.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) {
            peer_close(&w.third);
            return;
        }
        struct asked q = peer_take(&w.third);
        assert_int_equal(q.api, API_API_VERSIONS);
        struct api_versions_response res = api_versions_response_default;
        peer_answer(&w.third, q, &res);
    }
}

static void nobody_is_given_up_when_all_others_are_silent(void **state)
{
    (void)state;
    peer_listen(&w.third);
    w.opt.channel.broker_came(w.ch, THIRD, EPOCH, STR("127.0.0.1"), w.third.port);
    come();                                /* nor does this one */
    for (int lost = 0; lost < 3; lost++) { /* each time the one before has ended in silence */
        UNTIL(loop(), is_readable(w.peer.listener));
        peer_close(&w.peer);
        peer_accept(&w.peer);
    }
    assert_int_equal(w.unreached, 0);
    assert_true(w.stood_back > 0);          /* the office is left to one of them */
    while (is_readable(w.third.listener)) { /* those that have been given up */
        peer_close(&w.third);
        peer_accept(&w.third);
    }
    peer_close(&w.third);
    UNTIL((third_lives(), loop()), w.unreached == 1); /* one of them is there */
    w.opt.channel.broker_went(w.ch, THIRD);
    go();
    peer_die(&w.third);
}

/* It is dead, and the other one silent: who of the living could do better is that one. */
static void who_refuses_does_not_count_among_those_that_are_out_of_reach(void **state)
{
    (void)state;
    peer_listen(&w.third);
    int32_t silent = w.third.port;
    peer_die(&w.peer);
    come();
    UNTIL(loop(), w.unreached == 1);
    assert_int_equal(w.stood_back, 0); /* nobody else is registered */
    w.opt.channel.broker_came(w.ch, THIRD, EPOCH, STR("127.0.0.1"), silent);
    UNTIL(loop(), w.stood_back > 0);
    assert_int_equal(w.unreached, 1);
    w.opt.channel.broker_went(w.ch, THIRD);
    go();
    peer_die(&w.third);
}

static void the_own_broker_is_called(void **state)
{
    (void)state;
    const struct controller_channel *c = &w.opt.channel;
    c->leader_and_isr(c->arg, SELF, &leader_and_isr_request_default, on_leader_and_isr, &w.replies[0]);
    c->update_metadata(c->arg, SELF, &update_metadata_request_default, on_update_metadata, &w.replies[1]);
    c->stop_replica(c->arg, SELF, &stop_replica_request_default, on_stop_replica, &w.replies[2]);
    assert_int_equal(w.own_calls, 3);
}

int main(void)
{
#define CASE(name)      cmocka_unit_test_setup_teardown(name, setup, teardown)
#define IMPATIENT(name) cmocka_unit_test_setup_teardown(name, setup_impatient, teardown)
    const struct CMUnitTest tests[] = {
        CASE(messages_arrive_in_order_several_at_a_time),
        CASE(what_was_not_answered_is_sent_again_in_order),
        CASE(a_port_that_refuses_is_told_once_and_its_return_too),
        CASE(a_broker_that_has_gone_answers_nothing),
        CASE(messages_to_an_earlier_life_are_not_for_the_next),
        CASE(what_the_broker_cannot_understand_holds_up_nobody),
        CASE(a_question_is_answered_or_its_time_is_up),
        CASE(a_question_to_who_is_not_reached_is_given_up_soon),
        IMPATIENT(who_is_silent_is_told_and_its_return_too),
        IMPATIENT(who_is_silent_with_messages_out_is_told_by_the_next_connection),
        IMPATIENT(nobody_is_given_up_when_all_others_are_silent),
        IMPATIENT(nobody_is_given_up_when_all_others_fall_silent),
        IMPATIENT(who_refuses_does_not_count_among_those_that_are_out_of_reach),
        CASE(the_own_broker_is_called),
    };
    return cmocka_run_group_tests_name("broker_cluster_channel", tests, NULL, NULL);
}
