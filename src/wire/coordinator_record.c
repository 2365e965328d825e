/* coordinator_record.c: a table of kinds by the key's type. */
#include "wire/coordinator_record.h"

struct kind {
    int16_t type;
    const char *key, *value;
};

/* Offsets committed before 0.9 have a type of their own, but Kafka reads their values as those of any offset. */
static const struct kind offsets_kinds[] = {
    {0, "LegacyOffsetCommitKey", "OffsetCommitValue"},
    {1, "OffsetCommitKey", "OffsetCommitValue"},
    {2, "GroupMetadataKey", "GroupMetadataValue"},
    {3, "ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue"},
    {4, "ConsumerGroupPartitionMetadataKey", "ConsumerGroupPartitionMetadataValue"},
    {5, "ConsumerGroupMemberMetadataKey", "ConsumerGroupMemberMetadataValue"},
    {6, "ConsumerGroupTargetAssignmentMetadataKey", "ConsumerGroupTargetAssignmentMetadataValue"},
    {7, "ConsumerGroupTargetAssignmentMemberKey", "ConsumerGroupTargetAssignmentMemberValue"},
    {8, "ConsumerGroupCurrentMemberAssignmentKey", "ConsumerGroupCurrentMemberAssignmentValue"},
    {9, "ShareGroupPartitionMetadataKey", "ShareGroupPartitionMetadataValue"},
    {10, "ShareGroupMemberMetadataKey", "ShareGroupMemberMetadataValue"},
    {11, "ShareGroupMetadataKey", "ShareGroupMetadataValue"},
    {12, "ShareGroupTargetAssignmentMetadataKey", "ShareGroupTargetAssignmentMetadataValue"},
    {13, "ShareGroupTargetAssignmentMemberKey", "ShareGroupTargetAssignmentMemberValue"},
    {14, "ShareGroupCurrentMemberAssignmentKey", "ShareGroupCurrentMemberAssignmentValue"},
    {15, "ShareGroupStatePartitionMetadataKey", "ShareGroupStatePartitionMetadataValue"},
    {16, "ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue"},
    {17, "StreamsGroupMetadataKey", "StreamsGroupMetadataValue"},
    {19, "StreamsGroupMemberMetadataKey", "StreamsGroupMemberMetadataValue"},
    {20, "StreamsGroupTargetAssignmentMetadataKey", "StreamsGroupTargetAssignmentMetadataValue"},
    {21, "StreamsGroupTargetAssignmentMemberKey", "StreamsGroupTargetAssignmentMemberValue"},
    {22, "StreamsGroupCurrentMemberAssignmentKey", "StreamsGroupCurrentMemberAssignmentValue"},
    {23, "StreamsGroupTopologyKey", "StreamsGroupTopologyValue"},
};

static const struct kind transactions_kinds[] = {{0, "TransactionLogKey", "TransactionLogValue"}};

enum coordinator_log coordinator_log_of_topic(struct str topic)
{
    if (str_is(topic, "__consumer_offsets")) return COORDINATOR_LOG_OFFSETS;
    if (str_is(topic, "__transaction_state")) return COORDINATOR_LOG_TRANSACTIONS;
    return COORDINATOR_LOG_NONE;
}

static const struct kind *kind_find(enum coordinator_log log, int16_t type)
{
    bool offsets = log == COORDINATOR_LOG_OFFSETS;
    const struct kind *kinds = offsets ? offsets_kinds : transactions_kinds;
    size_t count = log == COORDINATOR_LOG_NONE ? 0
                   : offsets                   ? ARRAY_COUNT(offsets_kinds)
                                               : ARRAY_COUNT(transactions_kinds);
    for (size_t i = 0; i < count; i++)
        if (kinds[i].type == type) return &kinds[i];
    return NULL;
}

/* Bytes left behind a message mean that it is another one. */
static enum err decode(const struct wire_schema *s, const void **out, int16_t *version, struct bytes bytes,
                       struct arena *a)
{
    void *message = arena_try_alloc(a, s->size);
    if (!message) return ERR_TOO_BIG;
    struct reader r = reader_of(bytes.data, bytes.size);
    enum err e = wire_decode_prefixed(s, message, version, &r, a);
    if (!e && reader_left(&r) > 0) e = ERR_CORRUPT;
    if (!e) *out = message;
    return e;
}

enum err coordinator_record_decode(struct coordinator_record *out, enum coordinator_log log, struct bytes key,
                                   struct bytes value, struct arena *a)
{
    struct coordinator_record rec = {.value_err = OK};
    *out = (struct coordinator_record){.type = -1};
    if (!key.data || !wire_prefix_peek(key, &rec.type)) return ERR_TRUNCATED;
    out->type = rec.type;
    const struct kind *kind = kind_find(log, rec.type);
    if (!kind) return ERR_NOT_FOUND;
    rec.key_schema = wire_schema_find(kind->key);
    const struct wire_schema *value_schema = wire_schema_find(kind->value);
    ASSERT(rec.key_schema && value_schema);
    enum err e = decode(rec.key_schema, &rec.key, NULL, key, a);
    if (e) return e;
    if (value.data) {
        rec.value_err = decode(value_schema, &rec.value, &rec.value_version, value, a);
        if (!rec.value_err) rec.value_schema = value_schema;
    }
    *out = rec;
    return OK;
}
