/* log_decode.c: decoded records of the coordinators' logs as JSON, in the form of Kafka's tools. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/log_internal.h"
#include "wire/gen/consumer_protocol_assignment.h"
#include "wire/gen/consumer_protocol_subscription.h"
#include "wire/gen/group_metadata_value.h"

static json_t *message_json(const struct wire_schema *s, const void *message, int16_t version)
{
    struct buf_pool *pool = buf_pool_new(0);
    struct writer w;
    writer_init(&w, pool);
    wire_print(s, message, version, &w, WIRE_PRINT_FULL);
    char *text = mem_alloc(writer_size(&w));
    writer_flatten(&w, (uint8_t *)text);
    json_t *json = json_loadb(text, writer_size(&w), JSON_ALLOW_NUL, NULL);
    mem_free(text);
    writer_fini(&w);
    buf_pool_free(pool);
    return json ? json : json_null();
}

/* What a member of a group of consumers keeps in `bytes`; the field stays as it is when it is something else. */
static void open_embedded(json_t *member, const char *field, const struct wire_schema *s, struct bytes bytes)
{
    struct arena a;
    arena_init(&a, bytes.size * 64 + 4096);
    void *message = arena_alloc(&a, s->size);
    struct reader r = reader_of(bytes.data, bytes.size);
    int16_t version;
    if (bytes.data && wire_decode_prefixed(s, message, &version, &r, &a) == OK)
        ASSERT(json_object_set_new(member, field, message_json(s, message, version)) == 0);
    arena_fini(&a);
}

static void open_members(json_t *group, const struct group_metadata_value *value)
{
    json_t *members = json_object_get(group, "members");
    if (!str_is(value->protocol_type, "consumer")) return;
    for (int32_t i = 0; i < value->members_count && (size_t)i < json_array_size(members); i++) {
        json_t *member = json_array_get(members, (size_t)i);
        open_embedded(member, "subscription", &consumer_protocol_subscription_schema, value->members[i].subscription);
        open_embedded(member, "assignment", &consumer_protocol_assignment_schema, value->members[i].assignment);
    }
}

/* Versions are text there. */
static json_t *versioned(const char *name, int16_t version, json_t *data)
{
    char *text = mem_printf("%d", version);
    json_t *json = json_object();
    ASSERT(json && json_object_set_new(json, name, json_string(text)) == 0);
    ASSERT(json_object_set_new(json, "data", data) == 0);
    mem_free(text);
    return json;
}

json_t *coordinator_key_json(const struct coordinator_record *rec)
{
    return versioned("type", rec->type, message_json(rec->key_schema, rec->key, rec->key_schema->version_max));
}

json_t *coordinator_value_json(const struct coordinator_record *rec)
{
    if (!rec->value_schema) return NULL;
    json_t *data = message_json(rec->value_schema, rec->value, rec->value_version);
    if (rec->value_schema == &group_metadata_value_schema) open_members(data, rec->value);
    return versioned("version", rec->value_version, data);
}

const char *txn_state_name(int8_t status)
{
    static const char *const names[] = {"Empty",          "Ongoing",       "PrepareCommit", "PrepareAbort",
                                        "CompleteCommit", "CompleteAbort", "Dead",          "PrepareEpochFence"};
    return status >= 0 && (size_t)status < ARRAY_COUNT(names) ? names[status] : "Unknown";
}
