/* positions.c: what a group knows of its partitions: by topic, then by partition.
 *
 * A position is there while something is committed for it, is being written, or waits in a transaction; a topic while
 * it has positions. */
#include "group/group_internal.h"

static struct group_topic *topic_find(struct group *grp, struct str name)
{
    struct group_topic *t;
    HASH_FIND(hh, grp->topics, name.data, name.size, t);
    return t;
}

static struct group_position *partition_find(struct group_topic *t, int32_t partition)
{
    struct group_position *pos;
    HASH_FIND(hh, t->positions, &partition, sizeof partition, pos);
    return pos;
}

struct group_position *group_position_find(struct group *grp, struct str topic, int32_t partition,
                                           struct group_topic **out)
{
    struct group_topic *t = topic_find(grp, topic);
    if (!t) return NULL;
    if (out) *out = t;
    return partition_find(t, partition);
}

static struct group_topic *topic_make(struct group *grp, struct str name)
{
    struct group_shard *sh = grp->shard;
    struct shard_topic *st;
    HASH_FIND(hh, sh->topics, name.data, name.size, st);
    if (!st) {
        st = mem_zalloc(1, sizeof *st);
        st->name = mem_strndup(name.data, name.size);
        list_init(&st->of_groups);
        HASH_ADD_KEYPTR(hh, sh->topics, st->name, name.size, st);
    }
    struct group_topic *t = mem_zalloc(1, sizeof *t);
    t->name = st->name;
    t->group = grp;
    t->in_shard = st;
    list_push_back(&st->of_groups, &t->node);
    HASH_ADD_KEYPTR(hh, grp->topics, t->name, name.size, t);
    return t;
}

struct group_position *group_position_make(struct group *grp, struct str topic, int32_t partition,
                                           struct group_topic **out)
{
    struct group_topic *t = topic_find(grp, topic);
    if (t)
        group_topic_forget(t);
    else
        t = topic_make(grp, topic);
    struct group_position *pos = partition_find(t, partition);
    if (!pos) {
        pos = mem_zalloc(1, sizeof *pos);
        pos->partition = partition;
        HASH_ADD(hh, t->positions, partition, sizeof pos->partition, pos);
    }
    *out = t;
    return pos;
}

static void metadata_free(struct group_offset *offset)
{
    mem_free((char *)(uintptr_t)offset->metadata.data);
    offset->metadata = STR_NULL;
}

void group_position_put(struct group *grp, struct group_position *pos, const struct group_offset *offset)
{
    if (!pos->committed) grp->offset_count++;
    metadata_free(&pos->safe);
    pos->committed = true;
    pos->safe = *offset;
    if (offset->metadata.size)
        pos->safe.metadata.data = mem_strndup(offset->metadata.data, offset->metadata.size);
    else
        pos->safe.metadata = STR_NULL;
}

void group_position_clear(struct group *grp, struct group_position *pos)
{
    if (pos->committed) {
        grp->offset_count--;
        metadata_free(&pos->safe);
        pos->committed = false;
    }
    if (pos->in_transactions) group_transactions_forget(grp, pos);
}

static void position_free(struct group_topic *t, struct group_position *pos)
{
    metadata_free(&pos->safe);
    HASH_DEL(t->positions, pos);
    mem_free(pos);
}

static void topic_free(struct group_topic *t)
{
    struct group_shard *sh = t->group->shard;
    struct shard_topic *st = t->in_shard;
    HASH_DEL(t->group->topics, t);
    list_remove(&t->node);
    list_remove(&t->forgetting);
    mem_free(t);
    if (!list_is_empty(&st->of_groups)) return;
    HASH_DEL(sh->topics, st);
    mem_free(st->name);
    mem_free(st);
}

void group_position_drop_if_idle(struct group_topic *t, struct group_position *pos)
{
    if (pos->committed || pos->writing || pos->in_transactions) return;
    position_free(t, pos);
    if (!t->positions) topic_free(t);
}

void group_offsets_free(struct group *grp)
{
    group_transactions_free(grp);
    struct group_topic *t, *t_next;
    HASH_ITER(hh, grp->topics, t, t_next)
    {
        struct group_position *pos, *pos_next;
        HASH_ITER(hh, t->positions, pos, pos_next) position_free(t, pos);
        topic_free(t);
    }
    grp->offset_count = 0;
}
