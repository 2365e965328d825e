/* client: one connection, against a broker that lies, breaks off, is silent, or is old. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client_world.h"
#include "wire/gen/metadata.h"

struct world {
    struct fake fake;
    struct loop *loop;
    struct channel *channel;
    struct arena arena;
    struct failure failure;
};

static int64_t in_ms(int64_t ms)
{
    return clock_mono_us(clock_system()) + ms * 1000;
}

/* True when the channel is open. */
static bool world_start(struct world *w, const struct step *steps, int count)
{
    fake_start(&w->fake, steps, count);
    assert_int_equal(loop_new(&w->loop, clock_system(), 0, NULL), OK);
    arena_init(&w->arena, CHANNEL_DECODE_MAX);
    struct channel_options opt = {.net = net_system(), .loop = w->loop, .client_id = "test"};
    return channel_open(&w->channel, &opt, "127.0.0.1", w->fake.port, in_ms(60000), &w->failure);
}

static void world_stop(struct world *w)
{
    channel_close(w->channel);
    fake_stop(&w->fake);
    arena_fini(&w->arena);
    loop_free(w->loop);
}

static bool ask_metadata(struct world *w, struct metadata_response *res, int64_t within_ms)
{
    struct metadata_request req = metadata_request_default;
    int16_t version = channel_version(w->channel, API_METADATA, 12);
    return channel_call(w->channel, &(struct exchange){API_METADATA, version, &req, res}, &w->arena, in_ms(within_ms),
                        &w->failure);
}

/* ---- answers ---- */

static void metadata(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    struct metadata_response_metadata_response_broker b = metadata_response_metadata_response_broker_default;
    b.node_id = 7;
    b.host = STR("host-of-seven");
    b.port = 9092;
    struct metadata_response res = metadata_response_default;
    res.brokers = &b;
    res.brokers_count = 1;
    assert_int_equal(metadata_response_encode(&res, q->version, w), OK);
}

static void metadata_and_more(struct fake *fk, const struct asked *q, struct writer *w)
{
    metadata(fk, q, w);
    writer_bytes(w, "more", 4);
}

static void garbage(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    (void)q;
    for (int i = 0; i < 200; i++) writer_i8(w, (int8_t)(i * 37 + 11));
}

/* An array of 2^31 - 2 brokers. */
static void endless_array(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    (void)q;
    writer_i32(w, 0);
    writer_uvarint(w, INT32_MAX);
}

static void nothing(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    (void)q;
    (void)w;
}

static void refuse_version_with_range(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    (void)q;
    struct api_versions_response_api_version v = {.api_key = API_API_VERSIONS, .min_version = 0, .max_version = 2};
    struct api_versions_response res = api_versions_response_default;
    res.error_code = KERR_UNSUPPORTED_VERSION;
    res.api_keys = &v;
    res.api_keys_count = 1;
    assert_int_equal(api_versions_response_encode(&res, 0, w), OK);
}

static void refuse_version(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    (void)q;
    struct api_versions_response res = api_versions_response_default;
    res.error_code = KERR_UNSUPPORTED_VERSION;
    assert_int_equal(api_versions_response_encode(&res, 0, w), OK);
}

static void refuse_everything(struct fake *fk, const struct asked *q, struct writer *w)
{
    (void)fk;
    struct api_versions_response res = api_versions_response_default;
    res.error_code = KERR_CLUSTER_AUTHORIZATION_FAILED;
    assert_int_equal(api_versions_response_encode(&res, q->version, w), OK);
}

/* ---- what works ---- */

static void the_highest_version_that_both_know_is_taken(void **state)
{
    (void)state;
    struct world w = {.fake = {.api_versions_max = 5}};
    assert_true(world_start(&w, NULL, 0));
    assert_int_equal(channel_version(w.channel, API_METADATA, 32), 5);
    assert_int_equal(channel_version(w.channel, API_METADATA, 3), 3);
    assert_int_equal(channel_version(w.channel, API_DELETE_GROUPS, 32), 2);
    world_stop(&w);
}

static void a_response_is_decoded_and_outlives_the_next(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = metadata}, {.answer = metadata, .byte_by_byte = true}};
    struct world w = {0};
    assert_true(world_start(&w, steps, 2));
    struct metadata_response first, second;
    assert_true(ask_metadata(&w, &first, 60000));
    assert_true(ask_metadata(&w, &second, 60000));
    assert_int_equal(first.brokers[0].node_id, 7);
    assert_true(str_is(first.brokers[0].host, "host-of-seven"));
    assert_true(str_is(second.brokers[0].host, "host-of-seven"));
    assert_true(channel_is_usable(w.channel));
    world_stop(&w);
    assert_int_equal(w.fake.asked[1].correlation_id, w.fake.asked[0].correlation_id + 1);
}

static void an_older_broker_is_asked_again_in_its_version(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = refuse_version_with_range}, {.answer = fake_versions}};
    struct world w = {.fake = {.scripted_versions = true}};
    assert_true(world_start(&w, steps, 2));
    world_stop(&w);
    assert_int_equal(w.fake.asked[0].version, 4);
    assert_int_equal(w.fake.asked[1].version, 2);
}

static void a_broker_that_names_no_range_is_asked_in_version_0(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = refuse_version}, {.answer = fake_versions}};
    struct world w = {.fake = {.scripted_versions = true}};
    assert_true(world_start(&w, steps, 2));
    world_stop(&w);
    assert_int_equal(w.fake.asked[1].version, 0);
}

/* ---- what does not ---- */

static void check_open_fails(const struct step *step, enum err err, int16_t kerr, const char *says)
{
    struct world w = {.fake = {.scripted_versions = true}};
    assert_false(world_start(&w, step, 1));
    assert_int_equal(w.failure.err, err);
    assert_int_equal(w.failure.kerr, kerr);
    if (!strstr(w.failure.text, says)) fail_msg("'%s' does not say '%s'", w.failure.text, says);
    world_stop(&w);
}

static void a_broken_negotiation_is_no_connection(void **state)
{
    (void)state;
    check_open_fails(&(struct step){.answer = NULL}, ERR_CLOSED, 0, "closed the connection");
    check_open_fails(&(struct step){.answer = garbage}, ERR_CORRUPT, 0, "no ApiVersions response");
    check_open_fails(&(struct step){.answer = nothing}, ERR_CORRUPT, 0, "no ApiVersions response");
    check_open_fails(&(struct step){.answer = fake_versions, .lie_length = 1213486160}, ERR_CORRUPT, 0, "without TLS?");
    check_open_fails(&(struct step){.answer = refuse_everything}, OK, KERR_CLUSTER_AUTHORIZATION_FAILED,
                     "CLUSTER_AUTHORIZATION_FAILED");
}

static void check_call_fails(const struct step *step, int64_t within_ms, enum err err, const char *says)
{
    struct world w = {0};
    assert_true(world_start(&w, step, 1));
    struct metadata_response res;
    assert_false(ask_metadata(&w, &res, within_ms));
    assert_int_equal(w.failure.err, err);
    if (!strstr(w.failure.text, says)) fail_msg("'%s' does not say '%s'", w.failure.text, says);
    assert_false(channel_is_usable(w.channel));
    world_stop(&w);
}

static void a_broken_response_is_told_as_what_it_is(void **state)
{
    (void)state;
    check_call_fails(&(struct step){.answer = NULL}, 60000, ERR_CLOSED, "closed the connection");
    check_call_fails(&(struct step){.answer = metadata, .lie_length = 4000, .close_after = true}, 60000, ERR_CLOSED,
                     "closed the connection");
    check_call_fails(&(struct step){.answer = metadata, .lie_length = 20}, 60000, ERR_CORRUPT,
                     "no Metadata response of version 12");
    check_call_fails(&(struct step){.answer = metadata, .lie_length = -5}, 60000, ERR_CORRUPT, "of -5 bytes");
    check_call_fails(&(struct step){.answer = metadata, .lie_length = 3}, 60000, ERR_CORRUPT, "of 3 bytes");
    check_call_fails(&(struct step){.answer = metadata, .lie_length = INT32_MAX}, 60000, ERR_CORRUPT,
                     "of 2147483647 bytes");
    check_call_fails(&(struct step){.answer = metadata_and_more}, 60000, ERR_CORRUPT, "4 bytes too many");
    check_call_fails(&(struct step){.answer = metadata, .lie_correlation = 1}, 60000, ERR_CORRUPT,
                     "answered request 3");
    check_call_fails(&(struct step){.answer = garbage}, 60000, ERR_CORRUPT, "no Metadata response");
    check_call_fails(&(struct step){.answer = endless_array}, 60000, ERR_CORRUPT, "no Metadata response");
    check_call_fails(&(struct step){.answer = nothing}, 60000, ERR_CORRUPT, "Metadata");
}

static void silence_ends_at_the_deadline(void **state)
{
    (void)state;
    check_call_fails(&(struct step){.silent = true}, 20, ERR_TIMEOUT, "did not answer");
}

static void bytes_behind_a_response_spoil_the_next(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = metadata, .trailer = "words that nobody asked for"}};
    struct world w = {0};
    assert_true(world_start(&w, steps, 1));
    struct metadata_response res;
    assert_true(ask_metadata(&w, &res, 60000));
    assert_false(ask_metadata(&w, &res, 60000));
    assert_int_equal(w.failure.err, ERR_CORRUPT);
    world_stop(&w);
}

static void a_request_that_the_version_cannot_carry_leaves_the_channel_usable(void **state)
{
    (void)state;
    static const struct step steps[] = {{.answer = metadata}};
    struct world w = {.fake = {.api_versions_max = 3}};
    assert_true(world_start(&w, steps, 1));
    struct metadata_request req = metadata_request_default;
    req.allow_auto_topic_creation = false;
    struct metadata_response res;
    struct exchange x = {API_METADATA, 3, &req, &res};
    assert_false(channel_call(w.channel, &x, &w.arena, in_ms(60000), &w.failure));
    assert_int_equal(w.failure.err, ERR_UNSUPPORTED);
    assert_true(channel_is_usable(w.channel));
    assert_true(ask_metadata(&w, &res, 60000));
    world_stop(&w);
}

static void nobody_there_is_told(void **state)
{
    (void)state;
    struct world w = {0};
    assert_true(world_start(&w, NULL, 0));
    uint16_t port = w.fake.port;
    world_stop(&w);
    struct loop *loop;
    assert_int_equal(loop_new(&loop, clock_system(), 0, NULL), OK);
    struct channel_options opt = {.net = net_system(), .loop = loop, .client_id = "test"};
    struct channel *c;
    assert_false(channel_open(&c, &opt, "127.0.0.1", port, in_ms(60000), &w.failure));
    assert_int_equal(w.failure.err, ERR_CLOSED);
    assert_non_null(strstr(w.failure.text, "nothing listens there"));
    assert_false(channel_open(&c, &opt, "no-such-host.invalid", port, in_ms(60000), &w.failure));
    assert_non_null(strstr(w.failure.text, "no-such-host.invalid"));
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_version_that_both_know_is_taken),
        cmocka_unit_test(a_response_is_decoded_and_outlives_the_next),
        cmocka_unit_test(an_older_broker_is_asked_again_in_its_version),
        cmocka_unit_test(a_broker_that_names_no_range_is_asked_in_version_0),
        cmocka_unit_test(a_broken_negotiation_is_no_connection),
        cmocka_unit_test(a_broken_response_is_told_as_what_it_is),
        cmocka_unit_test(silence_ends_at_the_deadline),
        cmocka_unit_test(bytes_behind_a_response_spoil_the_next),
        cmocka_unit_test(a_request_that_the_version_cannot_carry_leaves_the_channel_usable),
        cmocka_unit_test(nobody_there_is_told),
    };
    return cmocka_run_group_tests_name("client_channel", tests, NULL, NULL);
}
