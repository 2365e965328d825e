/* offsets.c: OffsetCommit and OffsetDelete.
 *
 * A commit is one write: its partitions' records are read back together or not at all.  What it commits stands in the
 * write until the host says that it is safe, and only then in the positions; outcomes come in the order of the log, so
 * that of several commits of a partition the later record wins. */
#include "base/utf8.h"
#include "group/group_internal.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_delete.h"

typedef struct offset_commit_request_offset_commit_request_topic rq_topic;
typedef struct offset_commit_request_offset_commit_request_partition rq_part;
typedef struct offset_commit_response_offset_commit_response_topic out_topic;
typedef struct offset_commit_response_offset_commit_response_partition out_part;

/* ---------------------------------------------------------------- may it commit? */

/* As Kafka asks, in its order.  `member` is set when a member commits. */
static enum kerr commit_check(struct group *grp, const struct offset_commit_request *rq, struct group_member **member)
{
    int32_t generation = rq->generation_id_or_member_epoch;
    *member = NULL;
    if (!grp) return generation < 0 ? KERR_NONE : KERR_ILLEGAL_GENERATION; /* it belongs to nobody: anybody may */
    if (generation < 0 && grp->state == GROUP_EMPTY) return KERR_NONE;
    bool names_member = generation >= 0 || rq->member_id.size > 0 || !str_is_null(rq->group_instance_id);
    if (!names_member) return KERR_UNKNOWN_MEMBER_ID;

    enum kerr kerr = group_member_check(grp, rq->member_id, rq->group_instance_id, member);
    if (kerr) return kerr;
    if (generation != grp->generation) return KERR_ILLEGAL_GENERATION;
    /* It has its JoinGroup answer and is to sync first; in any other rebalance its offsets are still welcome. */
    if (grp->state == GROUP_COMPLETING) return KERR_REBALANCE_IN_PROGRESS;
    return KERR_NONE;
}

/* Kafka's limit counts UTF-16 units, whatever the option's name says. */
static bool metadata_fits(const struct group_shard *sh, struct str metadata)
{
    size_t limit = (size_t)sh->opt.metadata_bytes_max;
    return metadata.size <= limit || str_utf16_units(metadata) <= limit;
}

/* ---------------------------------------------------------------- answers */

/* Of the partitions that nothing is said of yet. */
static void set_errors(struct offset_commit_response *out, enum kerr kerr)
{
    for (int32_t i = 0; i < out->topics_count; i++) {
        out_topic *t = &out->topics[i];
        for (int32_t j = 0; j < t->partitions_count; j++)
            if (!t->partitions[j].error_code) t->partitions[j].error_code = (int16_t)kerr;
    }
}

/* Refuses partitions whose metadata is too long; the number of those that are left. */
static size_t check_metadata(const struct group_shard *sh, const struct offset_commit_request *rq,
                             struct offset_commit_response *out)
{
    size_t left = 0;
    for (int32_t i = 0; i < out->topics_count; i++) {
        for (int32_t j = 0; j < out->topics[i].partitions_count; j++) {
            out_part *part = &out->topics[i].partitions[j];
            if (part->error_code) continue;
            if (metadata_fits(sh, rq->topics[i].partitions[j].committed_metadata))
                left++;
            else
                part->error_code = KERR_OFFSET_METADATA_TOO_LARGE;
        }
    }
    return left;
}

/* ---------------------------------------------------------------- the write */

struct commit {
    struct group_topic *topic;
    struct group_position *pos;
    struct group_offset offset; /* its metadata lies in the write's arena */
};

struct commits {
    size_t count;
    struct commit list[];
};

static void commit_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    struct group *grp = w->group;
    struct commits *cs = w->arg;
    for (size_t i = 0; i < cs->count; i++) {
        struct commit *c = &cs->list[i];
        c->pos->writing--;
        if (!kerr) {
            c->offset.record_offset = ++sh->record_offset;
            group_position_put(grp, c->pos, &c->offset);
        }
        group_position_drop_if_idle(c->topic, c->pos);
    }
    group_drop_if_idle(grp);

    struct list_node *node;
    while ((node = list_pop_front(&w->calls))) {
        struct group_call *call = CONTAINER_OF(node, struct group_call, node);
        if (kerr) set_errors(call->out, group_commit_kerr(kerr));
        group_answer(sh, call);
    }
}

/* Java's sums wrap, and so the hours that a client may ask for do no harm. */
static int64_t later_ms(int64_t ms, int64_t by_ms)
{
    return (int64_t)((uint64_t)ms + (uint64_t)by_ms);
}

static struct group_offset offset_of(const struct group_shard *sh, const struct offset_commit_request *rq,
                                     const rq_part *part, struct arena *a)
{
    return (struct group_offset){
        .offset = part->committed_offset,
        .commit_ms = part->commit_timestamp == -1 ? sh->wall_ms : part->commit_timestamp,
        .expire_ms = rq->retention_time_ms == -1 ? -1 : later_ms(sh->wall_ms, rq->retention_time_ms),
        .leader_epoch = part->committed_leader_epoch,
        .metadata = part->committed_metadata.size ? arena_str(a, part->committed_metadata) : STR_NULL,
    };
}

static void commit_send(struct group_shard *sh, struct group *grp, struct group_call *call, size_t count)
{
    const struct offset_commit_request *rq = call->in;
    const struct offset_commit_response *out = call->out;
    struct group_write *w = group_write_new(grp, commit_written);
    struct commits *cs = arena_alloc(&w->arena, sizeof *cs + count * sizeof cs->list[0]);
    for (int32_t i = 0; i < out->topics_count; i++) {
        const rq_topic *t = &rq->topics[i];
        for (int32_t j = 0; j < t->partitions_count; j++) {
            if (out->topics[i].partitions[j].error_code) continue;
            struct commit *c = &cs->list[cs->count++];
            c->offset = offset_of(sh, rq, &t->partitions[j], &w->arena);
            c->pos = group_position_make(grp, t->name, t->partitions[j].partition_index, &c->topic);
            c->pos->writing++;
            group_write_offset(w, grp, t->name, c->pos->partition, &c->offset);
        }
    }
    ASSERT(cs->count == count);
    w->arg = cs;
    list_push_back(&w->calls, &call->node);
    group_write_send(w);
}

void group_commit(struct group_shard *sh, struct group_call *call)
{
    const struct offset_commit_request *rq = call->in;
    struct offset_commit_response *out = call->out;
    struct group *grp = group_find(sh, rq->group_id);
    struct group_member *member;
    enum kerr kerr = commit_check(grp, rq, &member);
    size_t count = 0;
    if (kerr) {
        set_errors(out, kerr);
    } else {
        if (member) group_member_heard(member);
        count = check_metadata(sh, rq, out);
    }
    if (count == 0) {
        group_answer(sh, call);
        return;
    }
    commit_send(sh, grp ? grp : group_make(sh, rq->group_id), call, count);
}

/* ---------------------------------------------------------------- OffsetDelete (KIP-496) */

static enum kerr delete_check(const struct group *grp)
{
    if (!grp) return KERR_GROUP_ID_NOT_FOUND;
    if (grp->state != GROUP_EMPTY && !group_is_consumer(grp)) return KERR_NON_EMPTY_GROUP;
    return KERR_NONE;
}

/* In a group with members, topics that they consume stay; when nobody knows which those are, all do. */
static bool may_delete(const struct group *grp, const struct group_subscription *subscribed, struct str topic)
{
    if (grp->state == GROUP_EMPTY) return true;
    return subscribed->known && !group_subscription_has(subscribed, topic);
}

static void delete_topic(struct group_removal *rm, struct offset_delete_response_offset_delete_response_topic *out,
                         bool allowed)
{
    for (int32_t j = 0; j < out->partitions_count; j++) {
        struct offset_delete_response_offset_delete_response_partition *part = &out->partitions[j];
        if (part->error_code) continue;
        if (!allowed) {
            part->error_code = KERR_GROUP_SUBSCRIBED_TO_TOPIC;
            continue;
        }
        struct group_topic *t;
        struct group_position *pos = group_position_find(rm->group, out->name, part->partition_index, &t);
        if (pos) group_removal_add(rm, t, pos);
    }
}

/* One batch, however long: the partitions of one request go together. */
void group_delete_offset(struct group_shard *sh, struct group_call *call)
{
    const struct offset_delete_request *rq = call->in;
    struct offset_delete_response *out = call->out;
    struct group *grp = group_find(sh, rq->group_id);
    enum kerr kerr = delete_check(grp);
    if (kerr) {
        out->error_code = (int16_t)kerr;
        out->topics_count = 0;
        group_answer(sh, call);
        return;
    }
    struct group_removal rm = {.group = grp};
    struct group_subscription subscribed;
    group_subscription_read(&subscribed, grp);
    for (int32_t i = 0; i < out->topics_count; i++)
        delete_topic(&rm, &out->topics[i], may_delete(grp, &subscribed, out->topics[i].name));
    group_subscription_fini(&subscribed);
    if (!group_removal_send(&rm, call)) group_answer(sh, call);
}
