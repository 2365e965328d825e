/* removal.c: offsets and groups that go, with their tombstones: for OffsetDelete, DeleteGroups, expiry, deleted topics.
 *
 * What goes stays until its tombstones are safe; if they do not get so far, nothing has changed and somebody asks
 * again.  Outcomes come in the order of the log: what is committed when a tombstone's comes is older than it. */
#include "group/group_internal.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/offset_delete.h"

enum { REMOVAL_BYTES_MAX = 256 * 1024 }; /* of a batch's keys: far below any sane max.message.bytes */

struct removed {
    struct group_topic *topic;
    struct group_position *pos;
};

/* What a write's outcome needs of its removal. */
struct removal {
    struct removed *removed;
    size_t count;
    bool whole;
    int32_t generation; /* when it was sent */
};

static void forget_record(struct group *grp)
{
    mem_free(grp->protocol_type);
    mem_free(grp->protocol);
    mem_free(grp->leader);
    grp->protocol_type = grp->protocol = grp->leader = NULL;
    grp->generation = 0;
    grp->recorded = false;
}

/* Whoever has joined since has begun a new generation, whose record comes behind the tombstone. */
static bool is_as_sent(const struct group *grp, const struct removal *r)
{
    return grp->state == GROUP_EMPTY && grp->generation == r->generation;
}

static void apply(struct group *grp, const struct removal *r, enum kerr kerr)
{
    for (size_t i = 0; i < r->count; i++) {
        struct group_position *pos = r->removed[i].pos;
        pos->writing--;
        pos->removing--;
        if (!kerr) group_position_clear(grp, pos);
        group_position_drop_if_idle(r->removed[i].topic, pos);
    }
    if (!kerr && r->whole && is_as_sent(grp, r)) forget_record(grp);
}

static void answer(struct group_shard *sh, struct group_call *call, enum kerr kerr)
{
    if (call->api == GROUP_DELETE) {
        struct delete_groups_response_deletable_group_result *out = call->out;
        out->error_code = (int16_t)kerr;
    } else {
        ASSERT(call->api == GROUP_DELETE_OFFSET);
        struct offset_delete_response *out = call->out;
        out->error_code = (int16_t)kerr;
        if (kerr) out->topics_count = 0; /* an error of the group has no partitions beside it */
    }
    group_answer(sh, call);
}

static void removal_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    struct group *grp = w->group;
    struct removal *r = w->arg;
    apply(grp, r, kerr);
    struct list_node *node = list_pop_front(&w->calls);
    struct group_call *call = node ? CONTAINER_OF(node, struct group_call, node) : NULL;
    if (call && call->api == GROUP_DELETE && !kerr && !r->whole) {
        group_delete(sh, call); /* a large group goes in several batches */
        return;
    }
    if (kerr)
        group_drop_if_idle(grp); /* and no more tombstones for now */
    else
        group_retire(grp);
    if (call) answer(sh, call, group_commit_kerr(kerr));
}

/* ---------------------------------------------------------------- in the making */

static struct group_write *removal_write(struct group_removal *rm)
{
    if (!rm->write) rm->write = group_write_new(rm->group, removal_written);
    return rm->write;
}

void group_removal_add(struct group_removal *rm, struct group_topic *t, struct group_position *pos)
{
    struct group_write *w = removal_write(rm);
    if (rm->count == rm->cap) {
        size_t cap = MAX(rm->cap * 2, (size_t)8);
        struct removed *more = arena_array(&w->arena, struct removed, cap);
        if (rm->count) memcpy(more, rm->removed, rm->count * sizeof *more);
        rm->removed = more;
        rm->cap = cap;
    }
    rm->removed[rm->count++] = (struct removed){t, pos};
    pos->writing++;
    pos->removing++;
    group_write_offset_tombstone(w, rm->group, group_topic_name(t), pos->partition);
}

/* Groups of "simple" consumers, which only have offsets, have no record. */
static bool may_have_record(const struct group *grp)
{
    return grp->recorded || grp->generation != 0 || grp->protocol_type;
}

void group_removal_add_group(struct group_removal *rm)
{
    rm->whole = true;
    if (may_have_record(rm->group)) group_write_tombstone(removal_write(rm), rm->group);
}

bool group_removal_is_full(const struct group_removal *rm)
{
    return rm->write && writer_size(&rm->write->encoded) >= REMOVAL_BYTES_MAX;
}

bool group_removal_send(struct group_removal *rm, struct group_call *call)
{
    struct group_write *w = rm->write;
    if (!w) return false;
    struct removal *r = arena_alloc(&w->arena, sizeof *r);
    *r = (struct removal){rm->removed, rm->count, rm->whole, rm->group->generation};
    w->arg = r;
    if (call) list_push_back(&w->calls, &call->node);
    *rm = (struct group_removal){.group = rm->group};
    group_write_send(w);
    return true;
}

void group_retire(struct group *grp)
{
    struct group_shard *sh = grp->shard;
    bool held = grp->state != GROUP_EMPTY || grp->members || grp->pending || grp->topics || grp->writes > 0;
    if (held || sh->closed) return;
    struct group_removal rm = {.group = grp};
    group_removal_add_group(&rm);
    if (!group_removal_send(&rm, NULL)) group_free(grp);
}
