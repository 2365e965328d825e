/* records.c: keys and values of __consumer_offsets as Kafka 3.9 writes them, and writes made of them.
 *
 * Values stay below the flexible versions, so that brokers as old as 2.3 can take the partition over; an offset that
 * carries its own end of life has the one version that can say so.  The record timestamps are the host's. */
#include "group/group_internal.h"
#include "wire/gen/group_metadata_key.h"
#include "wire/gen/offset_commit_key.h"
#include "wire/gen/offset_commit_value.h"

enum { OFFSET_VERSION = 3, OFFSET_VERSION_WITH_EXPIRY = 1, METADATA_VERSION = 3 };

/* ---------------------------------------------------------------- writes */

struct group_write *group_write_new(struct group *grp,
                                    void (*done)(struct group_shard *sh, struct group_write *w, enum kerr kerr))
{
    struct group_write *w = mem_zalloc(1, sizeof *w);
    writer_init(&w->encoded, grp->shard->bufs);
    arena_init(&w->arena, SIZE_MAX);
    list_init(&w->calls);
    w->group = grp;
    w->done = done;
    return w;
}

void group_write_free(struct group_write *w)
{
    writer_fini(&w->encoded);
    arena_fini(&w->arena);
    mem_free(w);
}

/* Where keys and values are is known only now: `encoded` moved while it grew. */
static void write_point(struct group_write *w)
{
    const uint8_t *at = w->encoded.buf->data;
    for (size_t i = 0; i < w->count; i++) {
        struct group_record *r = &w->records[i];
        r->key.data = at;
        at += r->key.size;
        if (r->value.data) r->value.data = at;
        at += r->value.size;
    }
    w->bytes = writer_size(&w->encoded);
}

void group_write_send(struct group_write *w)
{
    struct group_shard *sh = w->group->shard;
    ASSERT(w->count > 0 && !sh->closed);
    write_point(w);
    w->group->writes++;
    sh->writes++;
    sh->env.write(sh->env.arg, w);
}

/* ---------------------------------------------------------------- records */

struct message {
    const struct wire_schema *schema;
    const void *m;
    int16_t version;
};

/* Every string has come through a field of no more than 32767 bytes, as the ones here are. */
static size_t encode(struct group_write *w, struct message message)
{
    size_t before = writer_size(&w->encoded);
    enum err e = wire_encode_prefixed(message.schema, message.m, message.version, &w->encoded);
    ASSERT(e == OK);
    return writer_size(&w->encoded) - before;
}

static struct group_record *room_for_one(struct group_write *w)
{
    bool full = w->count == 0 || (w->count >= 4 && (w->count & (w->count - 1)) == 0);
    if (full) {
        struct group_record *more = arena_array(&w->arena, struct group_record, MAX(w->count * 2, (size_t)4));
        if (w->count) memcpy(more, w->records, w->count * sizeof *more);
        w->records = more;
    }
    return &w->records[w->count++];
}

/* A value without a schema is null. */
static void add(struct group_write *w, struct message key, struct message value)
{
    struct group_record *r = room_for_one(w);
    r->key.size = encode(w, key);
    if (!value.schema) return;
    r->value.data = (const uint8_t *)""; /* not null; write_point() knows where */
    r->value.size = encode(w, value);
}

static const struct message null_value;

/* ---------------------------------------------------------------- offsets */

static void add_offset(struct group_write *w, const struct group *grp, struct str topic, int32_t partition,
                       struct message value)
{
    struct offset_commit_key key = {.group = group_id(grp), .topic = topic, .partition = partition};
    add(w, (struct message){&offset_commit_key_schema, &key, OFFSET_COMMIT_KEY_VERSION_MAX}, value);
}

void group_write_offset(struct group_write *w, const struct group *grp, struct str topic, int32_t partition,
                        const struct group_offset *offset)
{
    struct offset_commit_value value = offset_commit_value_default;
    value.offset = offset->offset;
    value.leader_epoch = offset->leader_epoch;
    value.metadata = offset->metadata.data ? offset->metadata : STR_EMPTY;
    value.commit_timestamp = offset->commit_ms;
    value.expire_timestamp = offset->expire_ms;
    int16_t version = offset->expire_ms == -1 ? OFFSET_VERSION : OFFSET_VERSION_WITH_EXPIRY;
    add_offset(w, grp, topic, partition, (struct message){&offset_commit_value_schema, &value, version});
}

void group_write_offset_tombstone(struct group_write *w, const struct group *grp, struct str topic, int32_t partition)
{
    add_offset(w, grp, topic, partition, null_value);
}

/* ---------------------------------------------------------------- the group itself */

static void add_group(struct group_write *w, const struct group *grp, struct message value)
{
    struct group_metadata_key key = {.group = group_id(grp)};
    add(w, (struct message){&group_metadata_key_schema, &key, GROUP_METADATA_KEY_VERSION_MAX}, value);
}

static struct bytes not_null(struct bytes b)
{
    return b.data ? b : (struct bytes){(const uint8_t *)"", 0};
}

static struct group_metadata_value_member_metadata member_value(const struct group_member *m, struct bytes assignment)
{
    return (struct group_metadata_value_member_metadata){
        .member_id = str_of(m->id),
        .group_instance_id = str_of(m->instance_id),
        .client_id = str_of(m->client_id),
        .client_host = str_of(m->client_host),
        .rebalance_timeout = m->rebalance_timeout_ms,
        .session_timeout = m->session_timeout_ms,
        .subscription = not_null(group_member_metadata(m)),
        .assignment = not_null(assignment),
    };
}

void group_write_metadata(struct group_write *w, const struct group *grp,
                          struct bytes (*assignment_of)(const struct group_member *m, void *arg), void *arg)
{
    struct group_metadata_value value = group_metadata_value_default;
    if (grp->protocol_type) value.protocol_type = str_of(grp->protocol_type);
    value.generation = grp->generation;
    value.protocol = str_of(grp->protocol);
    value.leader = str_of(grp->leader);
    value.current_state_timestamp = grp->state_since_ms;

    size_t count = HASH_CNT(by_id, grp->members);
    value.members = arena_array(&w->arena, struct group_metadata_value_member_metadata, count);
    struct group_member *m, *next;
    HASH_ITER(by_id, grp->members, m, next)
    value.members[value.members_count++] = member_value(m, assignment_of(m, arg));
    add_group(w, grp, (struct message){&group_metadata_value_schema, &value, METADATA_VERSION});
}

void group_write_tombstone(struct group_write *w, const struct group *grp)
{
    add_group(w, grp, null_value);
}

/* ---------------------------------------------------------------- what a failed write means */

enum kerr group_commit_kerr(enum kerr write_kerr)
{
    switch (write_kerr) {
    /* Older clients retry this one where they are, and would take the other for fatal. */
    case KERR_NETWORK_EXCEPTION: return KERR_COORDINATOR_LOAD_IN_PROGRESS;
    case KERR_UNKNOWN_TOPIC_OR_PARTITION:
    case KERR_NOT_ENOUGH_REPLICAS:
    case KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND: return KERR_COORDINATOR_NOT_AVAILABLE;
    case KERR_NOT_LEADER_OR_FOLLOWER:
    case KERR_KAFKA_STORAGE_ERROR: return KERR_NOT_COORDINATOR;
    case KERR_MESSAGE_TOO_LARGE:
    case KERR_RECORD_LIST_TOO_LARGE:
    case KERR_INVALID_FETCH_SIZE: return KERR_INVALID_COMMIT_OFFSET_SIZE;
    default: return write_kerr;
    }
}

enum kerr group_assignment_kerr(enum kerr write_kerr)
{
    switch (write_kerr) {
    case KERR_UNKNOWN_TOPIC_OR_PARTITION:
    case KERR_NOT_ENOUGH_REPLICAS:
    case KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND: return KERR_COORDINATOR_NOT_AVAILABLE;
    case KERR_NOT_LEADER_OR_FOLLOWER:
    case KERR_KAFKA_STORAGE_ERROR: return KERR_NOT_COORDINATOR;
    case KERR_REQUEST_TIMED_OUT: return KERR_REBALANCE_IN_PROGRESS;
    case KERR_MESSAGE_TOO_LARGE:
    case KERR_RECORD_LIST_TOO_LARGE:
    case KERR_INVALID_FETCH_SIZE: return KERR_UNKNOWN_SERVER_ERROR;
    default: return write_kerr;
    }
}
