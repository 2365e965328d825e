/* rpc: one connection to a broker that answers several at a time, lies, breaks off, is silent, or is old.
 *
 * The peer is a plain socket in the same thread: whatever waits for something turns the loop meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rpc/rpc.h"
#include "rpc_world.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/fetch.h"
#include "wire/gen/metadata.h"
#include "wire/kerr.h"

enum { CALLS_MAX = 8 };

struct call {
    struct rpc_call call;
    struct world *world;
    int told; /* as the how many-th; 0: not yet */
    enum err err;
    bool sent;
    int16_t version;
    int32_t broker_id; /* a Metadata answer's controller */
    struct buf *frame;
    struct bytes records;
};

struct world {
    struct loop *loop;
    struct workers *workers;
    struct buf_pool *bufs;
    struct rpc *rpc;
    struct peer_side peer;
    struct call calls[CALLS_MAX];
    int told;
    bool ready, ended, close_in_ended, close_in_done;
    enum rpc_end end;
    char text[256];
    int64_t connect_timeout_ms, silence_ms;
};

static const struct metadata_request any_metadata = {.allow_auto_topic_creation = true};

static void on_ready(void *arg)
{
    struct world *w = arg;
    assert_false(w->ready);
    w->ready = true;
}

static void on_ended(void *arg, enum rpc_end end, const char *text)
{
    struct world *w = arg;
    assert_false(w->ended);
    w->ended = true;
    w->end = end;
    snprintf(w->text, sizeof w->text, "%s", text);
    if (!w->close_in_ended) return;
    rpc_close(w->rpc);
    w->rpc = NULL;
}

static void world_open(struct world *w, const char *host, uint16_t port)
{
    const struct rpc_options opt = {
        .net = net_system(),
        .loop = w->loop,
        .workers = w->workers,
        .bufs = w->bufs,
        .client_id = STR("test"),
        .connect_timeout_ms = w->connect_timeout_ms ? w->connect_timeout_ms : WAIT_MS_MAX,
        .silence_ms = w->silence_ms,
        .receive_buffer_bytes = -1,
        .ended = on_ended,
        .ready = on_ready,
        .arg = w,
    };
    w->rpc = rpc_open(&opt, str_of(host), port);
    assert_non_null(w->rpc);
    assert_false(w->ended);
}

static void world_prepare(struct world *w)
{
    w->peer.listener = w->peer.fd = -1;
    w->bufs = buf_pool_new(0);
    assert_int_equal(loop_new(&w->loop, clock_system(), 0, NULL), OK);
    w->peer.loop = w->loop;
    assert_int_equal(workers_new(&w->workers, "test", 1, NULL), OK);
}

static void world_stop(struct world *w)
{
    rpc_close(w->rpc);
    peer_die(&w->peer);
    loop_turn(w->loop, 0);
    for (int i = 0; i < CALLS_MAX; i++) {
        if (w->calls[i].world) assert_true(w->calls[i].told);
        buf_unref(w->calls[i].frame);
    }
    workers_free(w->workers);
    loop_turn(w->loop, 0);
    loop_free(w->loop);
    buf_pool_free(w->bufs); /* asserts that every buffer is back */
}

/* ---- the peer */

static struct metadata_response metadata_of(int32_t controller_id)
{
    struct metadata_response res = metadata_response_default;
    res.controller_id = controller_id;
    return res;
}

static void peer_answer_metadata(struct world *w, struct asked q, int32_t controller_id)
{
    struct metadata_response res = metadata_of(controller_id);
    peer_answer(&w->peer, q, &res);
}

/* Metadata and Fetch, up to what is given; ApiVersions in `own_max`. */
static void peer_tell_versions(struct world *w, struct asked q, int16_t metadata_max, int16_t error)
{
    struct api_versions_response_api_version rows[] = {
        {.api_key = API_METADATA, .min_version = 1, .max_version = metadata_max},
        {.api_key = API_FETCH, .min_version = 4, .max_version = 17},
        {.api_key = API_API_VERSIONS, .min_version = 0, .max_version = 2},
        {.api_key = 12345, .min_version = 0, .max_version = 2},
    };
    struct api_versions_response res = api_versions_response_default;
    res.error_code = error;
    res.api_keys = rows;
    res.api_keys_count = ARRAY_COUNT(rows);
    peer_answer_as(&w->peer, q, error ? 0 : q.version, &res);
}

/* Connected, versions known. */
static void world_start(struct world *w)
{
    world_prepare(w);
    peer_listen(&w->peer);
    world_open(w, "127.0.0.1", w->peer.port);
    peer_accept(&w->peer);
    struct asked q = peer_take(&w->peer);
    assert_int_equal(q.api, API_API_VERSIONS);
    peer_tell_versions(w, q, 9, 0);
    UNTIL(w->loop, w->ready);
    assert_true(rpc_is_ready(w->rpc));
}

/* ---- calls */

static void on_done(struct rpc_call *rpc_call)
{
    struct call *c = CONTAINER_OF(rpc_call, struct call, call);
    struct world *w = c->world;
    assert_int_equal(c->told, 0);
    c->told = ++w->told;
    c->err = rpc_call->err;
    c->sent = rpc_call->sent;
    c->version = rpc_call->version;
    if (!c->err && rpc_call->api == API_METADATA)
        c->broker_id = ((const struct metadata_response *)rpc_call->response)->controller_id;
    if (!c->err && rpc_call->api == API_FETCH) {
        const struct fetch_response *res = rpc_call->response;
        c->frame = buf_ref(rpc_call->frame);
        c->records = res->responses[0].partitions[0].records.bytes;
    }
    memset(rpc_call, 0xa5, sizeof *rpc_call); /* ours again */
    if (!w->close_in_done) return;
    w->close_in_done = false;
    rpc_close(w->rpc);
    w->rpc = NULL;
}

static void send_call(struct world *w, int i, enum api api, const void *request, int64_t timeout_ms)
{
    struct call *c = &w->calls[i];
    *c = (struct call){.world = w};
    c->call = (struct rpc_call){
        .api = api, .version_max = INT16_MAX, .request = request, .timeout_ms = timeout_ms, .done = on_done};
    rpc_send(w->rpc, &c->call);
    assert_int_equal(c->told, 0);
}

static void send_metadata(struct world *w, int i)
{
    send_call(w, i, API_METADATA, &any_metadata, WAIT_MS_MAX);
}

static void check_failed(const struct call *c, enum err e, bool sent)
{
    assert_true(c->told);
    assert_int_equal(c->err, e);
    assert_int_equal(c->sent, sent);
}

/* ---- what works */

static void several_calls_are_out_at_a_time_and_are_answered_in_order(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    for (int i = 0; i < 3; i++) send_metadata(&w, i);
    struct asked q[3];
    for (int i = 0; i < 3; i++) {
        q[i] = peer_take(&w.peer); /* before any is answered */
        assert_int_equal(q[i].version, 9);
    }
    for (int i = 0; i < 3; i++) peer_answer_metadata(&w, q[i], 10 + i);
    UNTIL(w.loop, w.told == 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w.calls[i].told, i + 1);
        assert_int_equal(w.calls[i].err, OK);
        assert_int_equal(w.calls[i].version, 9);
        assert_int_equal(w.calls[i].broker_id, 10 + i);
    }
    assert_false(w.ended);
    world_stop(&w);
    assert_false(w.ended); /* not for rpc_close() */
}

static void calls_wait_for_the_connection_and_its_versions(void **state)
{
    (void)state;
    struct world w = {0};
    world_prepare(&w);
    peer_listen(&w.peer);
    world_open(&w, "127.0.0.1", w.peer.port);
    send_metadata(&w, 0);
    assert_int_equal(rpc_version(w.rpc, API_METADATA, 0, 9), -1);
    peer_accept(&w.peer);
    struct asked q = peer_take(&w.peer);
    peer_tell_versions(&w, q, 5, 0);
    q = peer_take(&w.peer);
    assert_int_equal(q.api, API_METADATA);
    assert_int_equal(q.version, 5);
    peer_answer_metadata(&w, q, 3);
    UNTIL(w.loop, w.told == 1);
    assert_int_equal(w.calls[0].broker_id, 3);
    assert_int_equal(rpc_version(w.rpc, API_METADATA, 0, 9), 5);
    assert_int_equal(rpc_version(w.rpc, API_METADATA, 0, 3), 3);
    assert_int_equal(rpc_version(w.rpc, API_METADATA, 6, 9), -1);
    assert_int_equal(rpc_version(w.rpc, API_HEARTBEAT, 0, 9), -1);
    world_stop(&w);
}

static void a_peer_that_answers_in_version_0_is_asked_again_in_one_that_it_knows(void **state)
{
    (void)state;
    struct world w = {0};
    world_prepare(&w);
    peer_listen(&w.peer);
    world_open(&w, "127.0.0.1", w.peer.port);
    peer_accept(&w.peer);
    struct asked q = peer_take(&w.peer);
    assert_int_equal(q.version, wire_api_find(API_API_VERSIONS)->request_max);
    peer_tell_versions(&w, q, 5, KERR_UNSUPPORTED_VERSION);
    q = peer_take(&w.peer);
    assert_int_equal(q.version, 2);
    peer_tell_versions(&w, q, 5, 0);
    UNTIL(w.loop, w.ready);
    assert_int_equal(rpc_version(w.rpc, API_METADATA, 0, 9), 5);
    world_stop(&w);
}

static void names_are_looked_up_and_all_their_addresses_tried(void **state)
{
    (void)state;
    struct world w = {0};
    world_prepare(&w);
    peer_listen(&w.peer);
    world_open(&w, "localhost", w.peer.port); /* perhaps ::1 too, where nobody listens */
    peer_accept(&w.peer);
    peer_tell_versions(&w, peer_take(&w.peer), 5, 0);
    UNTIL(w.loop, w.ready);
    world_stop(&w);
}

static void a_connection_closed_in_its_lookup_is_forgotten(void **state)
{
    (void)state;
    struct world w = {0};
    world_prepare(&w);
    world_open(&w, "localhost", 1);
    send_metadata(&w, 0);
    rpc_close(w.rpc);
    w.rpc = NULL;
    assert_int_equal(w.calls[0].told, 0);
    UNTIL(w.loop, w.told == 1);
    check_failed(&w.calls[0], ERR_CLOSED, false);
    world_stop(&w);
    assert_false(w.ended);
}

/* ---- large answers */

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 131 + i / 251);
}

static void encode_fetch(struct writer *to, struct asked q, size_t size, size_t seed)
{
    uint8_t *data = mem_alloc(size);
    for (size_t i = 0; i < size; i++) data[i] = pattern(i + seed);
    struct fetch_response_partition_data p = fetch_response_partition_data_default;
    p.records.bytes = (struct bytes){data, size};
    struct fetch_response_fetchable_topic_response t = fetch_response_fetchable_topic_response_default;
    t.partitions = &p;
    t.partitions_count = 1;
    struct fetch_response res = fetch_response_default;
    res.responses = &t;
    res.responses_count = 1;
    answer_encode(to, q, q.version, &res);
    mem_free(data);
}

static void peer_answer_fetch(struct world *w, struct asked q, size_t size)
{
    struct writer to;
    writer_init(&to, NULL);
    encode_fetch(&to, q, size, 0);
    peer_write(&w->peer, to.buf->data, to.size);
    writer_fini(&to);
}

static void fetch(struct world *w, int i, size_t size)
{
    static const struct fetch_request *any_fetch = &fetch_request_default;
    send_call(w, i, API_FETCH, any_fetch, WAIT_MS_MAX);
    peer_answer_fetch(w, peer_take(&w->peer), size);
    UNTIL(w->loop, w->calls[i].told);
    assert_int_equal(w->calls[i].err, OK);
    const struct bytes got = w->calls[i].records;
    assert_int_equal(got.size, size);
    for (size_t k = 0; k < size; k++)
        if (got.data[k] != pattern(k)) fail_msg("byte %zu of %zu", k, size);
}

static void records_stay_where_they_were_received(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    static const size_t sizes[] = {100, 20 << 10, 9 << 20, 16 << 10, 9 << 20, 300, 64 << 10};
    for (int i = 0; i < (int)ARRAY_COUNT(sizes); i++) fetch(&w, i, sizes[i]);
    /* Frames that are held are not touched by those that come behind. */
    for (int i = 0; i < (int)ARRAY_COUNT(sizes); i++) {
        const struct call *c = &w.calls[i];
        for (size_t k = 0; k < sizes[i]; k++)
            if (c->records.data[k] != pattern(k)) fail_msg("byte %zu of answer %d", k, i);
        assert_true(c->records.data >= c->frame->data);
        assert_true(c->records.data + sizes[i] <= c->frame->data + c->frame->cap);
    }
    world_stop(&w);
}

/* All come in one turn, and each ends where a receive does: nothing is left over when the next one begins. */
static void a_frame_that_is_held_is_not_received_over(void **state)
{
    (void)state;
    enum { COUNT = 5, RECEIVED_AT_ONCE = 16 << 10 };
    struct world w = {0};
    world_start(&w);
    struct writer to;
    writer_init(&to, NULL);
    size_t size = 0;
    for (int i = 0; i < COUNT; i++) {
        send_call(&w, i, API_FETCH, &fetch_request_default, WAIT_MS_MAX);
        struct asked q = peer_take(&w.peer);
        if (i == 0) {
            encode_fetch(&to, q, RECEIVED_AT_ONCE / 2, 0);
            size = RECEIVED_AT_ONCE / 2 + RECEIVED_AT_ONCE - to.size;
            to.size = 0;
        }
        encode_fetch(&to, q, size, (size_t)i);
        assert_int_equal(to.size, (size_t)(i + 1) * RECEIVED_AT_ONCE);
    }
    peer_write(&w.peer, to.buf->data, to.size);
    writer_fini(&to);
    UNTIL(w.loop, w.told == COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(w.calls[i].records.size, size);
        for (size_t k = 0; k < size; k++)
            if (w.calls[i].records.data[k] != pattern(k + (size_t)i)) fail_msg("byte %zu of answer %d", k, i);
    }
    world_stop(&w);
}

static void an_announcement_alone_gets_no_memory(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    send_metadata(&w, 0);
    (void)peer_take(&w.peer);
    uint8_t head[8] = {0};
    put_be32(head, RPC_RESPONSE_MAX);
    peer_write(&w.peer, head, sizeof head);
    UNTIL(w.loop, buf_pool_in_use(w.bufs) > 0);
    for (int i = 0; i < 100; i++) { /* now it is known, and more comes */
        peer_write(&w.peer, head, 1);
        loop_turn(w.loop, 1000);
    }
    assert_true(buf_pool_in_use(w.bufs) <= 64 << 10);
    peer_close(&w.peer);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_LOST);
    check_failed(&w.calls[0], ERR_CLOSED, true);
    world_stop(&w);
}

static void half_frames_and_many_in_one_are_the_same(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    for (int i = 0; i < 3; i++) send_metadata(&w, i);
    struct writer to;
    writer_init(&to, NULL);
    for (int i = 0; i < 3; i++) {
        struct metadata_response res = metadata_of(20 + i);
        struct asked q = peer_take(&w.peer);
        answer_encode(&to, q, q.version, &res);
    }
    for (size_t at = 0; at < to.size; at++) {
        if (at == to.size / 2) UNTIL(w.loop, w.told == 1);
        peer_write(&w.peer, to.buf->data + at, 1);
        loop_turn(w.loop, 1000);
    }
    UNTIL(w.loop, w.told == 3);
    for (int i = 3; i < 6; i++) send_metadata(&w, i);
    writer_fini(&to);
    writer_init(&to, NULL);
    for (int i = 0; i < 3; i++) {
        struct metadata_response res = metadata_of(30 + i);
        struct asked q = peer_take(&w.peer);
        answer_encode(&to, q, q.version, &res);
    }
    peer_write(&w.peer, to.buf->data, to.size);
    UNTIL(w.loop, w.told == 6);
    writer_fini(&to);
    for (int i = 0; i < 6; i++) assert_int_equal(w.calls[i].broker_id, i < 3 ? 20 + i : 27 + i);
    world_stop(&w);
}

/* ---- what does not */

static void nobody_there_is_told_as_refused(void **state)
{
    (void)state;
    struct world w = {.close_in_ended = true};
    world_prepare(&w);
    peer_listen(&w.peer);
    peer_die(&w.peer);
    world_open(&w, "127.0.0.1", w.peer.port);
    send_metadata(&w, 0);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_REFUSED);
    assert_non_null(strstr(w.text, "nobody listens there"));
    check_failed(&w.calls[0], ERR_CLOSED, false);
    assert_null(w.rpc);
    world_stop(&w);
}

static void what_is_no_address_is_unreachable(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        uint16_t port;
    } bad[] = {{"no-such-host.invalid", 9092}, {"127.0.0.1", 0}, {"", 9092}};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct world w = {0};
        world_prepare(&w);
        world_open(&w, bad[i].host, bad[i].port);
        UNTIL(w.loop, w.ended);
        assert_int_equal(w.end, RPC_UNREACHABLE);
        world_stop(&w);
    }
}

static void a_peer_that_closes_loses_all_that_is_out(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    send_metadata(&w, 0);
    send_metadata(&w, 1);
    peer_answer_metadata(&w, peer_take(&w.peer), 5);
    (void)peer_take(&w.peer);
    peer_close(&w.peer);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_LOST);
    assert_int_equal(w.calls[0].err, OK); /* what was answered before counts */
    check_failed(&w.calls[1], ERR_CLOSED, true);
    send_metadata(&w, 2); /* to one that is over */
    UNTIL(w.loop, w.told == 3);
    check_failed(&w.calls[2], ERR_CLOSED, false);
    world_stop(&w);
}

static void silence_ends_the_connection_at_the_deadline(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    send_call(&w, 0, API_METADATA, &any_metadata, 20);
    send_metadata(&w, 1);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_TIMED_OUT);
    assert_non_null(strstr(w.text, "has not answered Metadata"));
    check_failed(&w.calls[0], ERR_TIMEOUT, true);
    check_failed(&w.calls[1], ERR_CLOSED, true);
    assert_true(w.calls[0].told < w.calls[1].told);
    world_stop(&w);
}

static void silence_is_no_matter_while_nothing_is_asked(void **state)
{
    (void)state;
    struct world w = {.silence_ms = 30};
    world_start(&w);
    send_metadata(&w, 0);
    peer_answer_metadata(&w, peer_take(&w.peer), 5);
    UNTIL(w.loop, w.told == 1);
    int64_t later_us = clock_mono_us(clock_system()) + 100 * 1000;
    UNTIL(w.loop, clock_mono_us(clock_system()) > later_us);
    assert_false(w.ended);
    send_call(&w, 1, API_METADATA, &any_metadata, 0);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_TIMED_OUT);
    check_failed(&w.calls[1], ERR_CLOSED, true);
    world_stop(&w);
}

static void a_call_that_has_not_left_times_out_alone(void **state)
{
    (void)state;
    struct world w = {0};
    world_prepare(&w);
    peer_listen(&w.peer);
    world_open(&w, "127.0.0.1", w.peer.port);
    send_call(&w, 0, API_METADATA, &any_metadata, 20);
    send_metadata(&w, 1);
    peer_accept(&w.peer);
    struct asked q = peer_take(&w.peer);
    UNTIL(w.loop, w.told == 1);
    check_failed(&w.calls[0], ERR_TIMEOUT, false);
    assert_false(w.ended);
    peer_tell_versions(&w, q, 5, 0);
    peer_answer_metadata(&w, peer_take(&w.peer), 5);
    UNTIL(w.loop, w.told == 2);
    assert_int_equal(w.calls[1].err, OK);
    world_stop(&w);
}

static void a_peer_that_does_not_tell_its_versions_is_given_up(void **state)
{
    (void)state;
    struct world w = {.connect_timeout_ms = 50};
    world_prepare(&w);
    peer_listen(&w.peer);
    world_open(&w, "127.0.0.1", w.peer.port);
    send_metadata(&w, 0);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_TIMED_OUT);
    check_failed(&w.calls[0], ERR_CLOSED, false);
    world_stop(&w);
}

static void what_the_peer_cannot_understand_is_not_sent(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    static const struct describe_groups_request any_groups = {0};
    struct metadata_request no_creation = metadata_request_default;
    no_creation.allow_auto_topic_creation = false;
    send_call(&w, 0, API_DESCRIBE_GROUPS, &any_groups, 0);
    send_call(&w, 1, API_METADATA, &no_creation, 0);
    send_metadata(&w, 2);
    peer_answer_metadata(&w, peer_take(&w.peer), 1);
    peer_answer_metadata(&w, peer_take(&w.peer), 2);
    UNTIL(w.loop, w.told == 3);
    check_failed(&w.calls[0], ERR_UNSUPPORTED, false);
    assert_int_equal(w.calls[1].err, OK);
    assert_int_equal(w.calls[2].broker_id, 2);
    struct call *c = &w.calls[3]; /* no version of it can say so */
    *c = (struct call){.world = &w};
    c->call = (struct rpc_call){
        .api = API_METADATA, .version_min = 1, .version_max = 3, .request = &no_creation, .done = on_done};
    rpc_send(w.rpc, &c->call);
    UNTIL(w.loop, w.told == 4);
    check_failed(c, ERR_UNSUPPORTED, false);
    assert_false(w.ended);
    world_stop(&w);
}

static void check_malformed(const void *bytes, size_t size, const char *says)
{
    struct world w = {0};
    world_start(&w);
    send_metadata(&w, 0);
    send_metadata(&w, 1);
    (void)peer_take(&w.peer);
    peer_write(&w.peer, bytes, size);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_MALFORMED);
    if (!strstr(w.text, says)) fail_msg("'%s' does not say '%s'", w.text, says);
    check_failed(&w.calls[0], w.calls[0].err, true);
    assert_true(w.calls[0].err == ERR_CORRUPT || w.calls[0].err == ERR_CLOSED);
    check_failed(&w.calls[1], ERR_CLOSED, true);
    assert_true(w.calls[0].told < w.calls[1].told);
    world_stop(&w);
}

static void what_is_no_answer_ends_the_connection(void **state)
{
    (void)state;
    check_malformed("\xff\xff\xff\xff", 4, "announces an answer of -1 bytes");
    check_malformed("\0\0\0\3abc", 7, "of 3 bytes");
    check_malformed("\x20\0\0\1", 4, "of 536870913 bytes");
    check_malformed("HTTP/1.1 400 Bad Request", 24, "announces");
    check_malformed("\0\0\0\5\0\0\0\1\0", 9, "no Metadata answer of version 9");
    check_malformed("\0\0\0\4\0\0\0\1", 8, "no Metadata answer");
    check_malformed("\0\0\0\5\0\0\0\2\0", 9, "answers request 2 where 1 (Metadata) is the next");
}

static void an_answer_in_excess_ends_the_connection(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    peer_write(&w.peer, "\0\0\0\4\0\0\0\1", 8);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_MALFORMED);
    assert_non_null(strstr(w.text, "nobody had asked"));
    world_stop(&w);
}

static void bytes_behind_an_answer_are_no_answer(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    send_metadata(&w, 0);
    struct asked q = peer_take(&w.peer);
    struct metadata_response res = metadata_of(1);
    struct writer to;
    writer_init(&to, NULL);
    answer_encode(&to, q, q.version, &res);
    writer_i8(&to, 0);
    put_be32(to.buf->data, get_be32(to.buf->data) + 1);
    peer_write(&w.peer, to.buf->data, to.size);
    writer_fini(&to);
    UNTIL(w.loop, w.ended);
    assert_int_equal(w.end, RPC_MALFORMED);
    check_failed(&w.calls[0], ERR_CORRUPT, true);
    world_stop(&w);
}

/* ---- closing */

static void closing_answers_what_is_out_in_a_turn_of_its_own(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    send_metadata(&w, 0);
    send_metadata(&w, 1);
    (void)peer_take(&w.peer);
    rpc_close(w.rpc);
    w.rpc = NULL;
    assert_int_equal(w.told, 0);
    UNTIL(w.loop, w.told == 2);
    check_failed(&w.calls[0], ERR_CLOSED, true);
    check_failed(&w.calls[1], ERR_CLOSED, true);
    assert_int_equal(w.calls[0].told, 1);
    world_stop(&w);
    assert_false(w.ended);
}

static void it_can_be_closed_from_within_an_answer(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    for (int i = 0; i < 3; i++) send_metadata(&w, i);
    struct asked q[2] = {peer_take(&w.peer), peer_take(&w.peer)};
    w.close_in_done = true;
    peer_answer_metadata(&w, q[0], 7);
    peer_answer_metadata(&w, q[1], 8);
    UNTIL(w.loop, w.told == 3);
    assert_int_equal(w.calls[0].err, OK);
    check_failed(&w.calls[1], ERR_CLOSED, true);
    check_failed(&w.calls[2], ERR_CLOSED, true);
    world_stop(&w);
}

static void only_so_many_calls_are_out_at_a_time(void **state)
{
    (void)state;
    struct world w = {0};
    world_start(&w);
    static struct call many[RPC_CALLS_MAX];
    for (int i = 0; i < RPC_CALLS_MAX; i++) {
        many[i] = (struct call){.world = &w};
        many[i].call =
            (struct rpc_call){.api = API_METADATA, .version_max = INT16_MAX, .request = &any_metadata, .done = on_done};
        rpc_send(w.rpc, &many[i].call);
    }
    send_metadata(&w, 0);
    UNTIL(w.loop, w.told == 1);
    check_failed(&w.calls[0], ERR_TOO_MANY, false);
    peer_answer_metadata(&w, peer_take(&w.peer), 1);
    UNTIL(w.loop, w.told == 2);
    send_metadata(&w, 1);
    for (int i = 1; i < RPC_CALLS_MAX; i++) peer_answer_metadata(&w, peer_take(&w.peer), 1);
    peer_answer_metadata(&w, peer_take(&w.peer), 4);
    UNTIL(w.loop, w.calls[1].told);
    assert_int_equal(w.calls[1].broker_id, 4);
    world_stop(&w);
}

/* Requests come faster than the peer takes them, and there is always one behind. */
static void what_is_sent_gives_its_memory_back_though_there_is_always_more(void **state)
{
    (void)state;
    enum { NAMES = 100, ROUNDS = 40 };
    static char name[20 * 1000];
    struct metadata_request_metadata_request_topic topics[NAMES];
    struct metadata_request large = any_metadata;
    memset(name, 'x', sizeof name);
    for (int i = 0; i < NAMES; i++)
        topics[i] = (struct metadata_request_metadata_request_topic){.name = {name, sizeof name}};
    large.topics = topics;
    large.topics_count = NAMES;
    struct world w = {0};
    world_start(&w);
    for (int i = 0; i < CALLS_MAX; i++) send_call(&w, i, API_METADATA, &large, 0);
    loop_turn(w.loop, 0);
    size_t in_use = buf_pool_in_use(w.bufs);
    for (int i = 0; i < ROUNDS; i++) {
        peer_answer_metadata(&w, peer_take(&w.peer), i);
        UNTIL(w.loop, w.told == i + 1);
        send_call(&w, i % CALLS_MAX, API_METADATA, &large, 0);
    }
    assert_true(buf_pool_in_use(w.bufs) <= 3 * in_use);
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_calls_are_out_at_a_time_and_are_answered_in_order),
        cmocka_unit_test(calls_wait_for_the_connection_and_its_versions),
        cmocka_unit_test(a_peer_that_answers_in_version_0_is_asked_again_in_one_that_it_knows),
        cmocka_unit_test(names_are_looked_up_and_all_their_addresses_tried),
        cmocka_unit_test(a_connection_closed_in_its_lookup_is_forgotten),
        cmocka_unit_test(records_stay_where_they_were_received),
        cmocka_unit_test(a_frame_that_is_held_is_not_received_over),
        cmocka_unit_test(an_announcement_alone_gets_no_memory),
        cmocka_unit_test(half_frames_and_many_in_one_are_the_same),
        cmocka_unit_test(nobody_there_is_told_as_refused),
        cmocka_unit_test(what_is_no_address_is_unreachable),
        cmocka_unit_test(a_peer_that_closes_loses_all_that_is_out),
        cmocka_unit_test(silence_ends_the_connection_at_the_deadline),
        cmocka_unit_test(silence_is_no_matter_while_nothing_is_asked),
        cmocka_unit_test(a_call_that_has_not_left_times_out_alone),
        cmocka_unit_test(a_peer_that_does_not_tell_its_versions_is_given_up),
        cmocka_unit_test(what_the_peer_cannot_understand_is_not_sent),
        cmocka_unit_test(what_is_no_answer_ends_the_connection),
        cmocka_unit_test(an_answer_in_excess_ends_the_connection),
        cmocka_unit_test(bytes_behind_an_answer_are_no_answer),
        cmocka_unit_test(closing_answers_what_is_out_in_a_turn_of_its_own),
        cmocka_unit_test(it_can_be_closed_from_within_an_answer),
        cmocka_unit_test(only_so_many_calls_are_out_at_a_time),
        cmocka_unit_test(what_is_sent_gives_its_memory_back_though_there_is_always_more),
    };
    return cmocka_run_group_tests_name("rpc", tests, NULL, NULL);
}
