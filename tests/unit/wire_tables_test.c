/* wire_tables_test.c: the tables of APIs and of error codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "wire/apis.h"
#include "wire/kerr.h"

static void apis_are_found_by_key(void **state)
{
    (void)state;
    const struct wire_api *fetch = wire_api_find(API_FETCH);
    assert_string_equal(fetch->name, "Fetch");
    assert_int_equal(fetch->key, 1);
    assert_int_equal(fetch->v391_max, 17);
    assert_int_equal(fetch->v431_min, 4);
    assert_int_equal(fetch->request_max, 18);
    assert_int_equal(fetch->flexible_min, 12);
    assert_string_equal(fetch->request->name, "FetchRequest");
    assert_null(wire_api_find(-1));
    assert_null(wire_api_find(API_COUNT));
    assert_null(wire_api_find(INT16_MAX));
    int known = 0;
    for (int16_t key = 0; key < API_COUNT; key++) known += wire_api_find(key) != NULL;
    assert_int_equal(known, 93);
}

static void ranges_without_a_version_hold_none(void **state)
{
    (void)state;
    const struct wire_api *api = wire_api_find(API_LEADER_AND_ISR); /* gone in 4.3.1 */
    assert_true(api->v431_min > api->v431_max);
    assert_int_equal(api->v391_max, 7);
}

static void headers_follow_the_version_of_the_body(void **state)
{
    (void)state;
    const struct wire_api *fetch = wire_api_find(API_FETCH);
    assert_int_equal(wire_request_header_version(fetch, 11), 1);
    assert_int_equal(wire_request_header_version(fetch, 12), 2);
    assert_int_equal(wire_response_header_version(fetch, 11), 0);
    assert_int_equal(wire_response_header_version(fetch, 12), 1);
}

static void api_versions_responses_always_have_header_0(void **state)
{
    (void)state;
    const struct wire_api *api = wire_api_find(API_API_VERSIONS);
    for (int16_t v = 0; v <= 4; v++) assert_int_equal(wire_response_header_version(api, v), 0);
    assert_int_equal(wire_request_header_version(api, 2), 1);
    assert_int_equal(wire_request_header_version(api, 3), 2);
    assert_int_equal(wire_request_header_version(api, 99), 2); /* of a client from the future */
    assert_int_equal(wire_request_header_version(api, -5), 1);
}

static void controlled_shutdown_0_has_request_header_0(void **state)
{
    (void)state;
    const struct wire_api *api = wire_api_find(API_CONTROLLED_SHUTDOWN);
    assert_int_equal(wire_request_header_version(api, 0), 0);
    assert_int_equal(wire_request_header_version(api, 1), 1);
    assert_int_equal(wire_request_header_version(api, 3), 2);
}

static void every_version_of_every_api_has_a_header(void **state)
{
    (void)state;
    for (int16_t key = 0; key < API_COUNT; key++) {
        const struct wire_api *api = wire_api_find(key);
        if (!api) continue;
        int versions = api->request_max - api->request_min + 1;
        assert_int_equal(strlen(api->request_headers), versions);
        assert_int_equal(strlen(api->response_headers), versions);
        assert_int_equal(api->request_max, api->request->version_max);
        assert_int_equal(api->request_max, api->response->version_max);
    }
}

static void schemas_are_found_by_name(void **state)
{
    (void)state;
    for (int i = 0; i < wire_schema_count; i++)
        assert_ptr_equal(wire_schema_find(wire_schemas[i]->name), wire_schemas[i]);
    assert_int_equal(wire_schema_count, 2 * 93 + 94 + 2);
    assert_null(wire_schema_find("Fetch"));
    assert_null(wire_schema_find(""));
}

static void check_ratio(const struct wire_schema *s, int version)
{
    for (int i = 0; i < s->field_count; i++) {
        const struct wire_field *f = &s->fields[i];
        if (!f->schema || !((f->in_line | f->tagged) & BIT(version))) continue;
        if (f->flags & WIRE_ARRAY && f->schema->size > 24 * f->schema->size_mins[version])
            fail_msg("%s version %d: %u bytes in C for %u", f->schema->name, version, f->schema->size,
                     f->schema->size_mins[version]);
        check_ratio(f->schema, version);
    }
}

static void an_element_takes_at_most_24_times_its_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < wire_schema_count; i++)
        for (int v = wire_schemas[i]->version_min; v <= wire_schemas[i]->version_max; v++)
            check_ratio(wire_schemas[i], v);
}

static void error_codes_are_kafkas(void **state)
{
    (void)state;
    assert_int_equal(KERR_NOT_LEADER_OR_FOLLOWER, 6);
    assert_int_equal(KERR_SHARE_SESSION_LIMIT_REACHED, 133);
    assert_string_equal(kerr_name(6), "NOT_LEADER_OR_FOLLOWER");
    assert_string_equal(kerr_name(0), "NONE");
    assert_string_equal(kerr_name(-1), "UNKNOWN_SERVER_ERROR");
    assert_string_equal(kerr_name(-2), "UNKNOWN_SERVER_ERROR");
    assert_string_equal(kerr_name(4242), "UNKNOWN_SERVER_ERROR");
    assert_true(kerr_is_retriable(KERR_NOT_LEADER_OR_FOLLOWER));
    assert_true(kerr_refreshes_metadata(KERR_NOT_LEADER_OR_FOLLOWER));
    assert_true(kerr_is_retriable(KERR_REQUEST_TIMED_OUT));
    assert_false(kerr_refreshes_metadata(KERR_REQUEST_TIMED_OUT));
    assert_false(kerr_is_retriable(KERR_MESSAGE_TOO_LARGE));
    for (int16_t code = KERR_MIN; code <= KERR_MAX; code++)
        assert_true(kerr_is_retriable(code) || !kerr_refreshes_metadata(code));
}

static void our_errors_become_kafkas(void **state)
{
    (void)state;
    assert_int_equal(kerr_of(OK), KERR_NONE);
    assert_int_equal(kerr_of(ERR_FULL), KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(kerr_of(ERR_IO), KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(kerr_of(ERR_CORRUPT), KERR_CORRUPT_MESSAGE);
    assert_int_equal(kerr_of(ERR_TIMEOUT), KERR_REQUEST_TIMED_OUT);
    assert_int_equal(kerr_of(ERR_RANGE), KERR_OFFSET_OUT_OF_RANGE);
    for (int e = 1; e < ERR_COUNT; e++) assert_int_not_equal(kerr_of((enum err)e), KERR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apis_are_found_by_key),
        cmocka_unit_test(ranges_without_a_version_hold_none),
        cmocka_unit_test(headers_follow_the_version_of_the_body),
        cmocka_unit_test(api_versions_responses_always_have_header_0),
        cmocka_unit_test(controlled_shutdown_0_has_request_header_0),
        cmocka_unit_test(every_version_of_every_api_has_a_header),
        cmocka_unit_test(schemas_are_found_by_name),
        cmocka_unit_test(an_element_takes_at_most_24_times_its_bytes),
        cmocka_unit_test(error_codes_are_kafkas),
        cmocka_unit_test(our_errors_become_kafkas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
