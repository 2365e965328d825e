/* broker/producer_ids and InitProducerId: with a controller that answers when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/producer_ids.h"
#include "broker/request.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "wire/gen/allocate_producer_ids.h"
#include "wire/gen/init_producer_id.h"

/* ---- What stands in for the rest of the broker */

static struct {
    int asked; /* blocks asked for and not answered yet */
    struct controller_call *call;
    int woken;
    int64_t next_start;
} fake;

void to_controller_send(struct to_controller *tc, struct controller_call *call)
{
    (void)tc;
    const struct allocate_producer_ids_request *in = call->request;
    assert_int_equal(call->api, API_ALLOCATE_PRODUCER_IDS);
    assert_int_equal(in->broker_id, 3);
    assert_int_equal(in->broker_epoch, 77);
    fake.asked++;
    fake.call = call;
}

void request_wake(struct request *rq)
{
    (void)rq;
    fake.woken++;
}

void *request_op(struct request *rq, size_t size)
{
    if (!rq->op) rq->op = arena_alloc(&rq->arena, size);
    return rq->op;
}

static void answer_with(enum err e, enum kerr kerr)
{
    assert_int_equal(fake.asked, 1);
    fake.asked = 0;
    struct allocate_producer_ids_response res = allocate_producer_ids_response_default;
    res.error_code = (int16_t)kerr;
    res.producer_id_start = kerr ? 0 : fake.next_start;
    res.producer_id_len = kerr ? 0 : PRODUCER_ID_BLOCK_SIZE;
    if (!kerr) fake.next_start += PRODUCER_ID_BLOCK_SIZE;
    fake.call->err = e;
    fake.call->response = e ? NULL : &res;
    fake.call->done(fake.call);
}

static void answer(enum kerr kerr)
{
    answer_with(OK, kerr);
}

struct bed {
    struct broker br;
    struct loop *no_loop;
    struct init_producer_id_request in;
};

static int bed_new(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.next_start = 5000;
    struct bed *b = mem_zalloc(1, sizeof *b);
    b->br.id = 3;
    b->br.epoch = 77;
    b->br.loops = &b->no_loop;
    b->br.producer_ids = producer_ids_new(&b->br);
    b->in = init_producer_id_request_default;
    b->in.transactional_id = STR_NULL;
    *state = b;
    return 0;
}

static int bed_free(void **state)
{
    struct bed *b = *state;
    producer_ids_free(b->br.producer_ids);
    mem_free(b);
    return 0;
}

struct call {
    struct request rq;
    struct init_producer_id_response out;
    enum step step;
};

static void call(struct bed *b, struct call *c)
{
    if (!c->rq.broker) {
        *c = (struct call){.rq = {.broker = &b->br, .in = &b->in}, .out = init_producer_id_response_default};
        c->rq.out = &c->out;
        arena_init(&c->rq.arena, SIZE_MAX);
    }
    c->step = init_producer_id_handle(&c->rq);
    if (c->step == DONE) arena_fini(&c->rq.arena);
}

static struct call call_once(struct bed *b)
{
    struct call c = {0};
    call(b, &c);
    assert_int_equal(c.step, DONE);
    return c;
}

/* ---- Ids */

static void ids_of_a_block_are_given_once_each_in_order(void **state)
{
    struct bed *b = *state;
    struct call first = {0};
    call(b, &first);
    assert_int_equal(first.step, WAIT);
    assert_int_equal(fake.woken, 0);
    answer(KERR_NONE);
    assert_int_equal(fake.woken, 1);
    call(b, &first);
    assert_int_equal(first.step, DONE);
    assert_int_equal(first.out.producer_id, 5000);
    assert_int_equal(first.out.producer_epoch, 0);
    for (int i = 1; i < 500; i++) assert_int_equal(call_once(b).out.producer_id, 5000 + i);
    assert_int_equal(fake.asked, 0);
}

static void the_next_block_is_there_before_this_one_is_used_up(void **state)
{
    struct bed *b = *state;
    struct call first = {0};
    call(b, &first);
    answer(KERR_NONE);
    call(b, &first);
    int asked_at = 0;
    for (int i = 1; i < PRODUCER_ID_BLOCK_SIZE; i++) {
        assert_int_equal(call_once(b).out.producer_id, 5000 + i);
        if (!fake.asked) continue;
        if (!asked_at) asked_at = i;
        if (i == asked_at + 10) {
            fake.next_start = 9000; /* another broker took a block between */
            answer(KERR_NONE);
            assert_int_equal(fake.asked, 0);
        }
    }
    assert_true(asked_at >= PRODUCER_ID_BLOCK_SIZE * 8 / 10);
    assert_int_equal(call_once(b).out.producer_id, 9000);
    assert_int_equal(call_once(b).out.producer_id, 9001);
}

static void those_who_wait_are_served_in_order_and_by_one_block(void **state)
{
    struct bed *b = *state;
    struct call calls[3] = {0};
    for (int i = 0; i < 3; i++) call(b, &calls[i]);
    assert_int_equal(fake.asked, 1);
    answer(KERR_NONE);
    assert_int_equal(fake.woken, 3);
    for (int i = 2; i >= 0; i--) {
        call(b, &calls[i]);
        assert_int_equal(calls[i].step, DONE);
        assert_int_equal(calls[i].out.producer_id, 5000 + i);
    }
}

static void without_a_block_clients_are_told_to_try_again_and_may(void **state)
{
    struct bed *b = *state;
    struct call c = {0};
    call(b, &c);
    answer(KERR_NOT_CONTROLLER);
    call(b, &c);
    assert_int_equal(c.step, DONE);
    assert_int_equal(c.out.error_code, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(c.out.producer_id, -1);
    struct call again = {0};
    call(b, &again);
    assert_int_equal(again.step, WAIT);
    answer(KERR_NONE);
    call(b, &again);
    assert_int_equal(again.out.error_code, KERR_NONE);
    assert_int_equal(again.out.producer_id, 5000);
}

static void who_has_gone_is_not_woken_and_takes_no_id(void **state)
{
    struct bed *b = *state;
    struct call gone = {0}, stays = {0};
    call(b, &gone);
    call(b, &stays);
    gone.rq.cancelled = true;
    call(b, &gone);
    assert_int_equal(gone.step, DONE);
    answer(KERR_NONE);
    assert_int_equal(fake.woken, 1);
    call(b, &stays);
    assert_int_equal(stays.out.producer_id, 5000);
}

static void entering_again_before_the_block_came_waits_on(void **state)
{
    struct bed *b = *state;
    struct call c = {0};
    call(b, &c);
    call(b, &c);
    assert_int_equal(c.step, WAIT);
    assert_int_equal(fake.asked, 1);
    answer(KERR_NONE);
    call(b, &c);
    assert_int_equal(c.out.producer_id, 5000);
}

/* ---- The request */

static void an_id_and_an_epoch_come_together_or_not_at_all(void **state)
{
    struct bed *b = *state;
    b->in.producer_id = 5;
    struct call c = call_once(b);
    assert_int_equal(c.out.error_code, KERR_INVALID_REQUEST);
    assert_int_equal(c.out.producer_id, -1);
    assert_int_equal(c.out.producer_epoch, -1);
    b->in.producer_id = -1;
    b->in.producer_epoch = 0;
    assert_int_equal(call_once(b).out.error_code, KERR_INVALID_REQUEST);
}

static void a_producer_that_bumps_its_epoch_gets_a_new_id(void **state)
{
    struct bed *b = *state;
    b->in.producer_id = 77;
    b->in.producer_epoch = 4;
    struct call c = {0};
    call(b, &c);
    answer(KERR_NONE);
    call(b, &c);
    assert_int_equal(c.out.error_code, KERR_NONE);
    assert_int_equal(c.out.producer_id, 5000);
    assert_int_equal(c.out.producer_epoch, 0);
}

static void a_transactional_id_is_refused_for_good(void **state)
{
    struct bed *b = *state;
    b->in.transactional_id = STR("tx");
    struct call c = call_once(b);
    assert_int_equal(c.out.error_code, KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    assert_false(kerr_is_retriable(c.out.error_code));
    b->in.transactional_id = STR_EMPTY;
    assert_int_equal(call_once(b).out.error_code, KERR_INVALID_REQUEST);
    assert_int_equal(fake.asked, 0);
}

#define WITH_BED(name) cmocka_unit_test_setup_teardown(name, bed_new, bed_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BED(ids_of_a_block_are_given_once_each_in_order),
        WITH_BED(the_next_block_is_there_before_this_one_is_used_up),
        WITH_BED(those_who_wait_are_served_in_order_and_by_one_block),
        WITH_BED(without_a_block_clients_are_told_to_try_again_and_may),
        WITH_BED(who_has_gone_is_not_woken_and_takes_no_id),
        WITH_BED(entering_again_before_the_block_came_waits_on),
        WITH_BED(an_id_and_an_epoch_come_together_or_not_at_all),
        WITH_BED(a_producer_that_bumps_its_epoch_gets_a_new_id),
        WITH_BED(a_transactional_id_is_refused_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
