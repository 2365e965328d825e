/* transactions.c: offsets that open transactions will commit (KIP-98), kept by group and producer until the marker.
 *
 * When a transaction commits, each of its offsets competes by the place of its own record, not of the marker: one that
 * was committed behind it in the log stays, as it would if compaction had left nothing but the last record of the key.
 * A tombstone drops older offsets of open transactions, for the same reason; Kafka does so until its next failover. */
#include "group/group_internal.h"

struct pending_offset {
    struct group_position *pos; /* the key */
    struct group_topic *topic;
    struct group_offset offset; /* with metadata of its own */
    UT_hash_handle hh;
};

struct group_transaction {
    int64_t producer_id;
    struct group *group;
    struct pending_offset *offsets; /* uthash by position; never empty between two calls */
    struct list_node of_producer;
    UT_hash_handle hh; /* of group.transactions */
};

struct group_producer {
    int64_t id;
    struct list transactions; /* one a group */
    UT_hash_handle hh;
};

/* ---------------------------------------------------------------- a producer's transactions */

static struct group_producer *producer_find(struct group_shard *sh, int64_t id)
{
    struct group_producer *p;
    HASH_FIND(hh, sh->producers, &id, sizeof id, p);
    return p;
}

static void producer_add(struct group_shard *sh, struct group_transaction *tx)
{
    struct group_producer *p = producer_find(sh, tx->producer_id);
    if (!p) {
        p = mem_zalloc(1, sizeof *p);
        p->id = tx->producer_id;
        list_init(&p->transactions);
        HASH_ADD(hh, sh->producers, id, sizeof p->id, p);
    }
    list_push_back(&p->transactions, &tx->of_producer);
}

static void producer_remove(struct group_shard *sh, struct group_transaction *tx)
{
    struct group_producer *p = producer_find(sh, tx->producer_id);
    list_remove(&tx->of_producer);
    if (!list_is_empty(&p->transactions)) return;
    HASH_DEL(sh->producers, p);
    mem_free(p);
}

/* ---------------------------------------------------------------- a group's transaction */

static struct group_transaction *transaction_find(const struct group *grp, int64_t producer_id)
{
    struct group_transaction *tx;
    HASH_FIND(hh, grp->transactions, &producer_id, sizeof producer_id, tx);
    return tx;
}

static struct group_transaction *transaction_make(struct group *grp, int64_t producer_id)
{
    struct group_transaction *tx = transaction_find(grp, producer_id);
    if (tx) return tx;
    tx = mem_zalloc(1, sizeof *tx);
    tx->producer_id = producer_id;
    tx->group = grp;
    HASH_ADD(hh, grp->transactions, producer_id, sizeof tx->producer_id, tx);
    producer_add(grp->shard, tx);
    return tx;
}

static void transaction_free_if_empty(struct group_transaction *tx)
{
    if (tx->offsets) return;
    producer_remove(tx->group->shard, tx);
    HASH_DEL(tx->group->transactions, tx);
    mem_free(tx);
}

static struct pending_offset *pending_find(const struct group_transaction *tx, const struct group_position *pos)
{
    struct pending_offset *po;
    HASH_FIND_PTR(tx->offsets, &pos, po);
    return po;
}

static void pending_free(struct group_transaction *tx, struct pending_offset *po)
{
    po->pos->in_transactions--;
    HASH_DEL(tx->offsets, po);
    mem_free((char *)(uintptr_t)po->offset.metadata.data);
    mem_free(po);
}

/* ---------------------------------------------------------------- what others call */

void group_transaction_put(struct group *grp, int64_t producer_id, struct str topic, int32_t partition,
                           const struct group_offset *offset)
{
    struct group_transaction *tx = transaction_make(grp, producer_id);
    struct group_topic *t;
    struct group_position *pos = group_position_make(grp, topic, partition, &t);
    struct pending_offset *po = pending_find(tx, pos);
    if (!po) {
        po = mem_zalloc(1, sizeof *po);
        po->pos = pos;
        po->topic = t;
        HASH_ADD_PTR(tx->offsets, pos, po);
        pos->in_transactions++;
    }
    mem_free((char *)(uintptr_t)po->offset.metadata.data);
    po->offset = *offset;
    if (offset->metadata.size)
        po->offset.metadata.data = mem_strndup(offset->metadata.data, offset->metadata.size);
    else
        po->offset.metadata = STR_NULL;
}

void group_transaction_remove(struct group *grp, int64_t producer_id, struct str topic, int32_t partition)
{
    struct group_transaction *tx = transaction_find(grp, producer_id);
    struct group_topic *t;
    struct group_position *pos = tx ? group_position_find(grp, topic, partition, &t) : NULL;
    struct pending_offset *po = pos ? pending_find(tx, pos) : NULL;
    if (!po) return;
    pending_free(tx, po);
    group_position_drop_if_idle(t, pos);
    transaction_free_if_empty(tx);
}

void group_transactions_forget(struct group *grp, struct group_position *pos)
{
    struct group_transaction *tx, *next;
    HASH_ITER(hh, grp->transactions, tx, next)
    {
        struct pending_offset *po = pending_find(tx, pos);
        if (!po) continue;
        pending_free(tx, po);
        transaction_free_if_empty(tx);
    }
}

static void transaction_end(struct group_transaction *tx, bool commit)
{
    struct group *grp = tx->group;
    struct pending_offset *po, *next;
    HASH_ITER(hh, tx->offsets, po, next)
    {
        struct group_position *pos = po->pos;
        struct group_topic *t = po->topic;
        bool newer = !pos->committed || pos->safe.record_offset < po->offset.record_offset;
        if (commit && newer) group_position_put(grp, pos, &po->offset);
        pending_free(tx, po);
        group_position_drop_if_idle(t, pos);
    }
    transaction_free_if_empty(tx);
}

void group_transactions_end(struct group_shard *sh, int64_t producer_id, bool commit)
{
    struct group_producer *p;
    while ((p = producer_find(sh, producer_id))) {
        struct list_node *first = list_first(&p->transactions);
        struct group_transaction *tx = CONTAINER_OF(first, struct group_transaction, of_producer);
        struct group *grp = tx->group;
        transaction_end(tx, commit);
        group_drop_if_idle(grp);
    }
}

void group_transactions_free(struct group *grp)
{
    struct group_transaction *tx, *tx_next;
    HASH_ITER(hh, grp->transactions, tx, tx_next)
    {
        struct pending_offset *po, *po_next;
        HASH_ITER(hh, tx->offsets, po, po_next) pending_free(tx, po);
        transaction_free_if_empty(tx);
    }
}
