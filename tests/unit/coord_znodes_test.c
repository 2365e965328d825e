/* coord/znodes: every node of a real Kafka 3.9 cluster is read and written back as the same JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "coord/znodes.h"

static struct arena arena;

static struct bytes text(const char *s)
{
    return (struct bytes){(const uint8_t *)s, strlen(s)};
}

/* Decodes the data by its path and encodes it again; null: a path whose data is not ours to read. */
static struct bytes recode(struct str path, struct bytes data)
{
    struct fault f = {OK, ""};
    enum err e = OK;
    struct bytes out = {NULL, 0};
    size_t size = path.size;
    if (size > 13 && memcmp(path.data, "/brokers/ids/", 13) == 0) {
        struct znode_broker b;
        e = znode_broker_decode(&arena, path, data, &b, &f);
        if (!e) out = znode_broker_encode(&arena, &b);
    } else if (size > 6 && memcmp(path.data + size - 6, "/state", 6) == 0) {
        struct znode_state s;
        e = znode_state_decode(&arena, path, data, &s, &f);
        if (!e) out = znode_state_encode(&arena, &s);
    } else if (size > 16 && memcmp(path.data, "/brokers/topics/", 16) == 0) {
        struct znode_topic t;
        e = znode_topic_decode(&arena, path, data, &t, &f);
        if (!e) out = znode_topic_encode(&arena, &t);
    } else if (size > 8 && memcmp(path.data, "/config/", 8) == 0) {
        struct znode_config c;
        e = znode_config_decode(&arena, path, data, &c, &f);
        if (!e) out = znode_config_encode(&arena, &c);
    } else if (str_equal(path, ZNODE_CLUSTER_ID)) {
        struct str id;
        e = znode_cluster_id_decode(&arena, data, &id, &f);
        if (!e) out = znode_cluster_id_encode(&arena, id);
    } else if (str_equal(path, ZNODE_CONTROLLER)) {
        struct znode_controller c;
        e = znode_controller_decode(&arena, data, &c, &f);
        if (!e) out = znode_controller_encode(&arena, &c);
    } else if (str_equal(path, ZNODE_CONTROLLER_EPOCH)) {
        int32_t epoch;
        e = znode_controller_epoch_decode(data, &epoch, &f);
        if (!e) out = znode_controller_epoch_encode(&arena, epoch);
    } else if (str_equal(path, ZNODE_PRODUCER_ID_BLOCK)) {
        struct znode_producer_ids p;
        e = znode_producer_ids_decode(&arena, data, &p, &f);
        if (!e) out = znode_producer_ids_encode(&arena, &p);
    } else if (str_equal(path, ZNODE_FEATURE)) {
        struct znode_features fs;
        e = znode_features_decode(&arena, data, &fs, &f);
        if (!e) out = znode_features_encode(&arena, &fs);
    }
    assert_string_equal(f.text, "");
    assert_int_equal(e, OK);
    return out;
}

/* The fixture's bytes come back but for the order of keys in objects whose order Kafka's hash tables decide. */
static void every_node_of_the_fixture_comes_back_as_the_same_bytes(void **state)
{
    (void)state;
    FILE *in = fopen("tests/data/kafka39-znodes.txt", "r");
    assert_non_null(in);
    char *line = NULL;
    size_t cap = 0;
    int with_data = 0;
    while (getline(&line, &cap, in) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *path_end = strstr(line, " [v"), *data = path_end ? strstr(path_end, "] ") : NULL;
        if (!data) {
            fail_msg("no data in \"%s\"", line);
            break;
        }
        data += 2;
        if (!*data) continue;
        struct bytes out = recode((struct str){line, (size_t)(path_end - line)}, text(data));
        assert_non_null(out.data);
        assert_int_equal(out.size, strlen(data));
        assert_memory_equal(out.data, data, out.size);
        with_data++;
    }
    assert_int_equal(with_data, 53);
    free(line);
    fclose(in);
}

static void older_broker_registrations_are_read(void **state)
{
    (void)state;
    struct znode_broker b;
    struct fault f;
    assert_int_equal(znode_broker_decode(&arena, STR("/brokers/ids/1"),
                                         text("{\"version\":1,\"host\":\"h\",\"port\":9092,\"jmx_port\":9999,"
                                              "\"timestamp\":\"2233345666\"}"),
                                         &b, &f),
                     OK);
    assert_int_equal(b.endpoint_count, 1);
    assert_true(str_is(b.endpoints[0].host, "h"));
    assert_int_equal(b.endpoints[0].security_protocol, SECURITY_PLAINTEXT);
    assert_true(str_is_null(b.rack));

    assert_int_equal(znode_broker_decode(&arena, STR("/brokers/ids/1"),
                                         text("{\"version\":3,\"host\":\"h\",\"port\":9092,\"jmx_port\":9999,"
                                              "\"timestamp\":\"2233345666\",\"rack\":\"dc1\",\"endpoints\":"
                                              "[\"PLAINTEXT://h:9092\",\"SSL://[::1]:9093\"]}"),
                                         &b, &f),
                     OK);
    assert_int_equal(b.endpoint_count, 2);
    assert_int_equal(b.endpoints[1].security_protocol, SECURITY_SSL);
    assert_true(str_is(b.endpoints[1].host, "::1"));
    assert_int_equal(b.endpoints[1].port, 9093);
    assert_true(str_is(b.rack, "dc1"));
}

static void named_listeners_and_features_round_trip(void **state)
{
    (void)state;
    struct znode_endpoint eps[] = {{STR("INTERNAL"), STR("::1"), 9093, SECURITY_SASL_SSL},
                                   {STR("PUBLIC"), STR("k.example"), 9092, SECURITY_PLAINTEXT}};
    struct znode_feature ft = {STR("x.version"), 1, 3};
    struct znode_broker b = {.endpoints = eps,
                             .endpoint_count = 2,
                             .rack = STR("r\"1"),
                             .jmx_port = -1,
                             .timestamp_ms = 5,
                             .features = &ft,
                             .feature_count = 1};
    struct bytes json = znode_broker_encode(&arena, &b);
    struct znode_broker r;
    struct fault f;
    assert_int_equal(znode_broker_decode(&arena, STR("/brokers/ids/1"), json, &r, &f), OK);
    assert_int_equal(r.version, 5);
    assert_true(str_is(r.endpoints[0].listener, "INTERNAL"));
    assert_true(str_is(r.endpoints[0].host, "::1"));
    assert_int_equal(r.endpoints[0].security_protocol, SECURITY_SASL_SSL);
    assert_true(str_is(r.rack, "r\"1"));
    assert_int_equal(r.features[0].max_version, 3);
    json_t *j = json_loadb((const char *)json.data, json.size, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "host")), "k.example");
    assert_int_equal(json_integer_value(json_object_get(j, "port")), 9092);
    json_decref(j);

    b.endpoint_count = 1; /* none in plain text: Kafka writes null and -1 */
    json = znode_broker_encode(&arena, &b);
    j = json_loadb((const char *)json.data, json.size, 0, NULL);
    assert_true(json_is_null(json_object_get(j, "host")));
    assert_int_equal(json_integer_value(json_object_get(j, "port")), -1);
    json_decref(j);
}

static void topics_of_all_versions_are_read_and_sorted(void **state)
{
    (void)state;
    struct znode_topic t;
    struct fault f;
    assert_int_equal(znode_topic_decode(&arena, STR("/brokers/topics/t"),
                                        text("{\"version\":1,\"partitions\":{\"10\":[1],\"9\":[2,1],\"0\":[3]}}"), &t,
                                        &f),
                     OK);
    assert_true(uuid_is_zero(t.topic_id));
    assert_int_equal(t.partition_count, 3);
    assert_int_equal(t.partitions[0].partition, 0);
    assert_int_equal(t.partitions[1].partition, 9);
    assert_int_equal(t.partitions[2].partition, 10);
    assert_int_equal(t.partitions[1].replicas[1], 1);

    assert_int_equal(znode_topic_decode(&arena, STR("/brokers/topics/t"),
                                        text("{\"version\":3,\"partitions\":{\"0\":[1,2,3]},\"topic_id\":"
                                             "\"QfZXoag3TKC6uWkacT6AUA\",\"adding_replicas\":{\"0\":[3]},"
                                             "\"removing_replicas\":{\"0\":[1]},\"new\":{}}"),
                                        &t, &f),
                     OK);
    assert_false(uuid_is_zero(t.topic_id));
    assert_int_equal(t.partitions[0].adding[0], 3);
    assert_int_equal(t.partitions[0].removing[0], 1);
    assert_int_equal(t.partitions[0].adding_count, 1);
}

static void change_notifications_of_both_versions_are_read(void **state)
{
    (void)state;
    struct str entity;
    struct fault f;
    struct str path = STR("/config/changes/config_change_0000000001");
    struct bytes json = znode_config_change_encode(&arena, STR("topics/t"));
    const char *expected = "{\"version\":2,\"entity_path\":\"topics/t\"}";
    assert_int_equal(json.size, strlen(expected));
    assert_memory_equal(json.data, expected, json.size);
    assert_int_equal(znode_config_change_decode(&arena, path, json, &entity, &f), OK);
    assert_true(str_is(entity, "topics/t"));
    assert_int_equal(
        znode_config_change_decode(
            &arena, path, text("{\"version\":1,\"entity_type\":\"topics\",\"entity_name\":\"u\"}"), &entity, &f),
        OK);
    assert_true(str_is(entity, "topics/u"));
}

static void malformed_content_names_its_path(void **state)
{
    (void)state;
    static const char *const states[] = {
        "",
        "{",
        "[]",
        "7",
        "{\"leader\":1}",
        "{\"controller_epoch\":1,\"leader\":1,\"leader_epoch\":0,\"isr\":{}}",
        "{\"controller_epoch\":1,\"leader\":\"1\",\"leader_epoch\":0,\"isr\":[1]}",
        "{\"controller_epoch\":1,\"leader\":1,\"leader_epoch\":3000000000,\"isr\":[1]}",
        "{\"controller_epoch\":1,\"leader\":1,\"leader_epoch\":0,\"isr\":[1.5]}",
    };
    struct str path = STR("/brokers/topics/t/partitions/3/state");
    for (size_t i = 0; i < ARRAY_COUNT(states); i++) {
        struct znode_state s;
        struct fault f = {OK, ""};
        assert_int_equal(znode_state_decode(&arena, path, text(states[i]), &s, &f), ERR_CORRUPT);
        assert_non_null(strstr(f.text, "/brokers/topics/t/partitions/3/state"));
    }
    static const char *const topics[] = {"{\"partitions\":[]}", "{\"partitions\":{\"x\":[1]}}",
                                         "{\"partitions\":{\"-1\":[1]}}", "{\"partitions\":{\"0\":7}}",
                                         "{\"partitions\":{\"0\":[1]},\"topic_id\":\"short\"}"};
    for (size_t i = 0; i < ARRAY_COUNT(topics); i++) {
        struct znode_topic t;
        struct fault f = {OK, ""};
        assert_int_equal(znode_topic_decode(&arena, STR("/brokers/topics/t"), text(topics[i]), &t, &f), ERR_CORRUPT);
        assert_non_null(strstr(f.text, "/brokers/topics/t"));
    }
    struct znode_broker b;
    struct znode_producer_ids p;
    int32_t epoch;
    struct fault f;
    assert_int_equal(
        znode_broker_decode(&arena, STR("/brokers/ids/1"), text("{\"version\":5,\"endpoints\":[\"nothing\"]}"), &b, &f),
        ERR_CORRUPT);
    assert_int_equal(znode_broker_decode(&arena, STR("/brokers/ids/1"),
                                         text("{\"version\":5,\"endpoints\":[\"X://h:1\"],"
                                              "\"listener_security_protocol_map\":{}}"),
                                         &b, &f),
                     ERR_CORRUPT);
    assert_int_equal(
        znode_producer_ids_decode(&arena, text("{\"broker\":1,\"block_start\":\"9\",\"block_end\":\"8\"}"), &p, &f),
        ERR_CORRUPT);
    assert_int_equal(znode_controller_epoch_decode(text("x1"), &epoch, &f), ERR_CORRUPT);
}

/* As Kafka's tools and brokers of their day wrote them. */
static void lists_of_partitions_are_read(void **state)
{
    (void)state;
    struct znode_partition_list l;
    struct fault f = {OK, ""};
    struct str path = STR("/isr_change_notification/isr_change_0000000007");
    struct bytes list = text("{\"version\":1,\"partitions\":[{\"topic\":\"a\",\"partition\":3},"
                             "{\"topic\":\"b\",\"partition\":0}]}");
    assert_int_equal(znode_partitions_decode(&arena, path, list, &l, &f), OK);
    assert_int_equal(l.count, 2);
    assert_true(str_is(l.partitions[0].topic, "a"));
    assert_int_equal(l.partitions[0].partition, 3);
    assert_null(l.partitions[0].replicas);
    assert_int_equal(znode_reassign_decode(&arena, list, &l, &f), ERR_CORRUPT); /* no replicas */
    assert_non_null(strstr(f.text, "/admin/reassign_partitions"));

    struct bytes reassign = text("{\"version\":1,\"partitions\":[{\"topic\":\"a\",\"partition\":3,"
                                 "\"replicas\":[2,1]}]}");
    assert_int_equal(znode_reassign_decode(&arena, reassign, &l, &f), OK);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.partitions[0].replica_count, 2);
    assert_int_equal(l.partitions[0].replicas[0], 2);
    struct bytes again = znode_reassign_encode(&arena, &l);
    assert_int_equal(again.size, reassign.size);
    assert_memory_equal(again.data, reassign.data, again.size);

    static const char *const bad[] = {"{}", "{\"partitions\":{}}", "{\"partitions\":[7]}",
                                      "{\"partitions\":[{\"topic\":1,\"partition\":0}]}",
                                      "{\"partitions\":[{\"topic\":\"a\",\"partition\":-1}]}"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_int_equal(znode_partitions_decode(&arena, path, text(bad[i]), &l, &f), ERR_CORRUPT);
}

static void no_data_is_no_settings(void **state)
{
    (void)state;
    struct znode_config c;
    assert_int_equal(znode_config_decode(&arena, STR("/config/topics/t"), (struct bytes){NULL, 0}, &c, NULL), OK);
    assert_int_equal(c.count, 0);
}

static void settings_without_text_are_told_apart(void **state)
{
    (void)state;
    struct fault f = {0};
    struct znode_config c;
    const struct str path = STR("/config/topics/t");
    struct bytes data = text("{\"version\":1,\"config\":{\"a\":\"1\",\"b\":2,\"c\":null,\"d\":\"\"}}");
    assert_int_equal(znode_config_decode_usable(&arena, path, data, &c, &f), OK);
    assert_int_equal(c.count, 2);
    assert_true(str_is(c.settings[0].value, "1"));
    assert_true(str_is(c.settings[1].name, "d"));
    assert_int_equal(c.textless_count, 2);
    assert_true(str_is(c.textless[0], "b"));
    assert_true(str_is(c.textless[1], "c"));
    assert_int_equal(znode_config_decode(&arena, path, data, &c, &f), ERR_CORRUPT);
    assert_non_null(strstr(f.text, "/config/topics/t"));
    assert_int_equal(znode_config_decode_usable(&arena, path, text("{"), &c, &f), ERR_CORRUPT);
    assert_int_equal(c.count + c.textless_count, 0);
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, SIZE_MAX);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_of_the_fixture_comes_back_as_the_same_bytes),
        cmocka_unit_test(older_broker_registrations_are_read),
        cmocka_unit_test(named_listeners_and_features_round_trip),
        cmocka_unit_test(topics_of_all_versions_are_read_and_sorted),
        cmocka_unit_test(change_notifications_of_both_versions_are_read),
        cmocka_unit_test(malformed_content_names_its_path),
        cmocka_unit_test(no_data_is_no_settings),
        cmocka_unit_test(settings_without_text_are_told_apart),
        cmocka_unit_test(lists_of_partitions_are_read),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
