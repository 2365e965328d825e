/* subscription.c: which topics a consumer group's members name in the metadata of their protocol.
 *
 * Clients write it and nobody has checked it.  Kafka reads it as version 0, with which every version begins, and so do
 * we: what a later version appends is no concern of the coordinator. */
#include "group/group_internal.h"
#include "wire/gen/consumer_protocol_subscription.h"

struct group_subscribed {
    UT_hash_handle hh;
};

bool group_is_consumer(const struct group *grp)
{
    return grp->protocol_type && strcmp(grp->protocol_type, "consumer") == 0;
}

static void subscribe(struct group_subscription *s, struct str topic)
{
    struct group_subscribed *found;
    HASH_FIND(hh, s->topics, topic.data, topic.size, found);
    if (found) return;
    struct group_subscribed *new = arena_alloc(&s->arena, sizeof *new);
    HASH_ADD_KEYPTR(hh, s->topics, topic.data, topic.size, new);
}

static bool read_member(struct group_subscription *s, const struct group_member *m)
{
    struct bytes metadata = group_member_metadata(m);
    if (!metadata.data) return false;
    struct reader r = reader_of(metadata.data, metadata.size);
    reader_i16(&r); /* the version */
    struct consumer_protocol_subscription v0;
    if (consumer_protocol_subscription_decode(&v0, 0, &r, &s->arena)) return false;
    for (int32_t i = 0; i < v0.topics_count; i++) subscribe(s, v0.topics[i]);
    return true;
}

void group_subscription_read(struct group_subscription *out, const struct group *grp)
{
    *out = (struct group_subscription){.known = false};
    arena_init(&out->arena, SIZE_MAX);
    if (!group_is_consumer(grp) || !grp->protocol) return;
    struct group_member *m, *next;
    HASH_ITER(by_id, grp->members, m, next)
    if (!read_member(out, m)) return;
    out->known = true;
}

bool group_subscription_has(const struct group_subscription *s, struct str topic)
{
    struct group_subscribed *found;
    HASH_FIND(hh, s->topics, topic.data, topic.size, found);
    return found != NULL;
}

void group_subscription_fini(struct group_subscription *s)
{
    HASH_CLEAR(hh, s->topics);
    arena_fini(&s->arena);
}
