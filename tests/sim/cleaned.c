/* cleaned.c: what a log that is compacted must still hold.
 *
 * Cleaning leaves batches as they were, or with fewer records; and of what was promised a record may only be missing
 * when a later one of its key is there, or when its transaction was aborted.  So whatever a loss of power has left of a
 * cleaning, the log before and the log after can be compared without knowing how far it got. */
#include <string.h>

#include "base/mem.h"
#include "plog/clean.h"
#include "replica/replicas_internal.h"
#include "sim.h"

enum { KEY_MAX = 8, DECOMPRESSED_MAX = 1 << 20, CLEAN_MAP_BYTES = 1 << 16, CLEAN_IO_BYTES = 1 << 16 };

/* ---- Batches and records */

enum fate { FATE_STAYS, FATE_OPEN, FATE_ABORTED }; /* of a batch, by its transaction's marker */

struct rec {
    int64_t offset, timestamp;
    size_t batch; /* index */
    char key[KEY_MAX];
    size_t key_size;
    uint64_t value; /* a sum of its bytes */
};

struct recs {
    struct rec *list;
    size_t count, cap;
};

static struct batch_info info_of(const struct sim_batch *b)
{
    struct batch_info info;
    enum err e = batch_parse_header(&info, b->bytes, INT32_MAX);
    ASSERT(!e);
    return info;
}

static uint64_t sum_of(struct bytes value)
{
    uint64_t sum = value.size;
    for (size_t i = 0; i < value.size; i++) sum = sum * 1099511628211U + value.data[i];
    return sum;
}

static void recs_add(struct recs *rs, const struct sim_batch *b, size_t at)
{
    struct record_iter it;
    struct record record;
    enum err e = record_iter_init(&it, b->bytes, b->size, DECOMPRESSED_MAX);
    ASSERT(!e);
    while (!(it.info.attributes & BATCH_CONTROL) && !record_iter_next(&it, &record)) {
        rs->list = mem_grow(rs->list, &rs->cap, rs->count + 1, sizeof *rs->list);
        struct rec *r = &rs->list[rs->count++];
        *r = (struct rec){.offset = record.offset, .timestamp = record.timestamp, .batch = at};
        r->key_size = MIN(record.key.size, (size_t)KEY_MAX);
        memcpy(r->key, record.key.data, r->key_size);
        r->value = sum_of(record.value);
    }
    record_iter_fini(&it);
}

static void recs_of(const struct sim_batches *bs, struct recs *out)
{
    *out = (struct recs){.count = 0};
    for (size_t i = 0; i < bs->count; i++) recs_add(out, &bs->list[i], i);
}

/* What the markers say of each batch, to be freed. */
static enum fate *fates_of(const struct sim_batches *bs)
{
    enum fate *fates = mem_zalloc(bs->count + 1, sizeof *fates);
    for (size_t i = 0; i < bs->count; i++) {
        struct batch_info b = info_of(&bs->list[i]);
        struct txn_marker marker;
        bool control = b.attributes & BATCH_CONTROL;
        if (!control && (b.attributes & BATCH_TRANSACTIONAL)) fates[i] = FATE_OPEN;
        if (!control || batch_read_marker(&marker, bs->list[i].bytes, bs->list[i].size)) continue;
        for (size_t k = 0; k < i; k++)
            if (fates[k] == FATE_OPEN && info_of(&bs->list[k]).producer_id == b.producer_id)
                fates[k] = marker.commit ? FATE_STAYS : FATE_ABORTED;
    }
    return fates;
}

static const struct rec *rec_at(const struct recs *rs, int64_t offset)
{
    for (size_t i = 0; i < rs->count; i++)
        if (rs->list[i].offset == offset) return &rs->list[i];
    return NULL;
}

static bool same_key(const struct rec *a, const struct rec *b)
{
    return a->key_size == b->key_size && memcmp(a->key, b->key, a->key_size) == 0;
}

/* ---- Before and after */

struct change {
    struct world *w;
    const struct sim_batches *before, *after;
    struct recs were, are;
    enum fate *fates; /* of `before` */
};

static const struct sim_batch *batch_of_base(const struct sim_batches *bs, int64_t base)
{
    for (size_t i = 0; i < bs->count; i++)
        if (bs->list[i].base == base) return &bs->list[i];
    return NULL;
}

/* What a failed append has left is as it was sent. */
static bool is_ghost(const struct sim_batches *ghosts, const struct sim_batch *b)
{
    for (size_t i = 0; i < ghosts->count; i++)
        if (ghosts->list[i].size == b->size && memcmp(ghosts->list[i].bytes, b->bytes, b->size) == 0) return true;
    return false;
}

/* Each batch was there, between the same offsets, of the same producer; and each record, as it is. */
static void check_nothing_new(const struct change *c, const struct sim_batches *ghosts)
{
    int64_t next = 0;
    for (size_t i = 0; i < c->after->count; i++) {
        const struct sim_batch *b = &c->after->list[i], *was = batch_of_base(c->before, b->base);
        if (!was && is_ghost(ghosts, b)) was = b;
        struct batch_info now = info_of(b), then = was ? info_of(was) : now;
        if (!was || was->last != b->last || now.producer_id != then.producer_id || b->base < next)
            wrong(c->w, "a batch at %" PRId64 " that nobody wrote", b->base);
        next = b->last + 1;
    }
    for (size_t i = 0; i < c->are.count; i++) {
        const struct rec *r = &c->are.list[i], *was = rec_at(&c->were, r->offset);
        if (!was && is_ghost(ghosts, &c->after->list[r->batch])) continue;
        if (!was || !same_key(r, was) || r->value != was->value || r->timestamp != was->timestamp)
            wrong(c->w, "a record at %" PRId64 " that nobody wrote", r->offset);
    }
}

static bool is_superseded(const struct change *c, const struct rec *r)
{
    for (size_t i = c->are.count; i-- > 0 && c->are.list[i].offset > r->offset;) {
        const struct rec *later = &c->are.list[i], *was = rec_at(&c->were, later->offset);
        if (same_key(r, later) && (!was || c->fates[was->batch] == FATE_STAYS)) return true;
    }
    return false;
}

static void check_nothing_lost(const struct change *c, int64_t start, int64_t end)
{
    for (size_t i = 0; i < c->were.count && !c->w->failed; i++) {
        const struct rec *r = &c->were.list[i];
        if (r->offset < start || c->before->list[r->batch].last >= end || c->fates[r->batch] == FATE_ABORTED) continue;
        if (!rec_at(&c->are, r->offset) && !is_superseded(c, r))
            wrong(c->w, "the record at %" PRId64 " is lost, and no later one has its key", r->offset);
    }
}

void check_cleaned(struct world *w, const struct model *m, const struct sim_batches *after, int64_t end)
{
    struct change c = {.w = w, .before = &m->batches, .after = after, .fates = fates_of(&m->batches)};
    recs_of(c.before, &c.were);
    recs_of(c.after, &c.are);
    check_nothing_new(&c, &m->ghosts);
    check_nothing_lost(&c, m->start, end);
    mem_free(c.were.list);
    mem_free(c.are.list);
    mem_free(c.fates);
}

/* ---- Cleaning */

void clean_once(struct world *w, struct sim_partition *sp)
{
    struct clean_plan plan;
    struct clean_result result = {.first_dirty = -1};
    int64_t below = partition_last_stable(sp->p);
    enum err e = plog_clean_plan(sp->p->pl, below, w->now_ms, &plan);
    if (!e && plan.first_dirty < plan.first_uncleanable) {
        const struct clean_limits limits = {CLEAN_MAP_BYTES, 0.9, CLEAN_IO_BYTES};
        struct clean_tools *tools = clean_tools_new(&limits, &w->rng);
        const struct clean_request rq = {.plan = plan, .now_ms = w->now_ms, .tools = tools};
        e = plog_clean(sp->p->pl, &rq, &result);
        clean_tools_free(tools);
    }
    if (!e) e = replicas_write_checkpoints(w->r, CHORE_CLEANED);
    say(w, "clean from %" PRId64 " to %" PRId64 ", %" PRId64 " of %" PRId64 " records stay: %s", plan.first_dirty,
        result.first_dirty, result.records_kept, result.records_read, err_name(e));
    if (!fs_sim_has_power(w->disk) || !atomic_load(&sp->p->online)) return;
    world_faults_off(w);
    struct sim_batches after = {.count = 0};
    check_collect(w, sp, plog_start(sp->p->pl), plog_end(sp->p->pl), &after);
    if (!w->failed) check_cleaned(w, &sp->model, &after, sp->model.end);
    model_replace(&sp->model, plog_start(sp->p->pl), &after);
    world_faults_on(w);
}
