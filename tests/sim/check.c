/* check.c: whether a log is what its model says: records, offsets, times, producers, epochs, transactions. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plog/plog_internal.h"
#include "sim.h"

enum {
    READS = 6,        /* a look at a log, */
    TIME_LOOKUPS = 4, /*   besides reading it whole */
    READ_BYTES_MAX = 3000,
    DECOMPRESSED_MAX = 1 << 20,
};

/* ---- Reading */

static bool slice_bytes(struct world *w, struct plog_slice *s, uint8_t **out)
{
    size_t got = 0;
    *out = mem_alloc(s->size);
    enum err e = file_pread(s->file, *out, s->size, s->pos, &got);
    if (e || got != s->size) wrong(w, "%zu bytes at %" PRId64 " cannot be read", s->size, s->start_offset);
    plog_slice_release(s);
    return !w->failed;
}

struct walk {
    struct world *w;
    struct sim_partition *sp;
    size_t at;     /* in the model's batches: what is expected next */
    bool collects; /* all of it, in `found` */
    bool may_have_holes;
    bool in_ghosts;           /* failed appends came after that */
    struct sim_batches found; /* those */
    int64_t next;             /* offset behind what was read */
};

static bool is_same(const struct sim_batch *b, const uint8_t *bytes, size_t size)
{
    return b->size == size && memcmp(b->bytes, bytes, size) == 0;
}

/* Batches that were not lost against a promise: deleted from the log's start, of which some have come back; or, where
 * compaction may leave gaps, in one that a loss has left and that cannot be told from those. */
static bool may_be_missing(const struct walk *k, const struct sim_batch *b)
{
    const struct model *m = &k->sp->model;
    return b->gone || b->last < m->start || (k->may_have_holes && b->last >= m->durable);
}

/* The model's batches from k->at to `to` - 1 are not in the log. */
static void pass_over(struct walk *k, size_t to)
{
    struct model *m = &k->sp->model;
    for (; k->at < to && (m->batches.list[k->at].gone || m->batches.list[k->at].last < m->start); k->at++)
        m->batches.list[k->at].gone = true;
    sim_batches_take_out(&m->batches, k->at, to);
}

/* What is found is not the next batch of the model, but a later one, and those before it may be missing. */
static bool walk_over_hole(struct walk *k, const uint8_t *bytes, size_t size)
{
    struct sim_batches *bs = &k->sp->model.batches;
    for (size_t i = k->at; i < bs->count; i++) {
        if (is_same(&bs->list[i], bytes, size)) {
            pass_over(k, i);
            k->at++;
            return true;
        }
        if (!may_be_missing(k, &bs->list[i])) return false;
    }
    return false;
}

/* A batch that the recovered log holds is the next of the model's; or, behind all that survived of them, what a failed
 * append had left. */
static void walk_batch(struct walk *k, const uint8_t *bytes, const struct batch_info *b)
{
    const struct model *m = &k->sp->model;
    size_t size = (size_t)b->size;
    k->next = batch_last_offset(b) + 1;
    if (k->collects) {
        sim_batches_add(&k->found, bytes, size);
        return;
    }
    if (!k->in_ghosts && walk_over_hole(k, bytes, size)) return;
    for (size_t i = 0; i < m->ghosts.count; i++) {
        if (!is_same(&m->ghosts.list[i], bytes, size)) continue;
        k->in_ghosts = true;
        sim_batches_add(&k->found, bytes, size);
        return;
    }
    wrong(k->w, "the batch %" PRId64 " to %" PRId64 " does not belong behind batch %zu of %zu, which ends at %" PRId64,
          b->base_offset, batch_last_offset(b), k->at, m->batches.count, k->at ? m->batches.list[k->at - 1].last : -1);
}

/* Reads from `from` to the end, batch by batch. */
static void walk_log(struct walk *k, int64_t from, int64_t end)
{
    struct plog *pl = k->sp->p->pl;
    k->next = from;
    while (k->next < end && !k->w->failed) {
        struct plog_slice s;
        uint8_t *data;
        int64_t before = k->next;
        enum err e = plog_read(pl, k->next, INT64_MAX, READ_BYTES_MAX, true, false, &s);
        if (e) wrong(k->w, "cannot read at %" PRId64 ": %s", k->next, err_name(e));
        if (e || !s.file) return; /* nothing but a gap up to the end */
        bool ok = slice_bytes(k->w, &s, &data);
        for (size_t pos = 0; ok && !k->w->failed && s.size - pos >= BATCH_HEADER_SIZE;) {
            struct batch_info b;
            if (batch_parse_header(&b, data + pos, (int64_t)(s.size - pos))) break; /* cut off */
            walk_batch(k, data + pos, &b);
            pos += (size_t)b.size;
        }
        mem_free(data);
        if (k->next == before) wrong(k->w, "reading stands still at %" PRId64, before);
    }
}

void check_collect(struct world *w, struct sim_partition *sp, int64_t from, int64_t end, struct sim_batches *out)
{
    struct walk k = {.w = w, .sp = sp, .collects = true};
    walk_log(&k, from, end);
    *out = k.found;
}

/* The same for a log that is compacted. */
static void check_recovered_cleaned(struct world *w, struct sim_partition *sp, int64_t start, int64_t end,
                                    int64_t end_min)
{
    struct sim_batches after = {.count = 0};
    check_collect(w, sp, start, end, &after);
    if (!w->failed) check_cleaned(w, &sp->model, &after, end_min);
    model_replace(&sp->model, start, &after);
}

/* With the batches before it lost, a segment's snapshot may still know of them.  (They are lost, not deleted, where the
 * log starts behind what it had, or is empty from its checkpointed start on.) */
static bool has_snapshot(struct world *w, const struct sim_partition *sp, int64_t offset)
{
    struct fs_stat st;
    char *path = mem_printf("%s/%s-%d/%020" PRId64 SEGMENT_SNAPSHOT, SIM_DIR, SIM_TOPIC, sp->p->index, offset);
    enum err e = fs_stat(fs_sim_fs(w->disk), path, &st);
    mem_free(path);
    return e == OK;
}

static void check_recovered_batches(struct world *w, struct sim_partition *sp, int64_t start, int64_t end,
                                    int64_t end_min)
{
    struct plog *pl = sp->p->pl;
    struct model *m = &sp->model;
    if ((start > m->start || start == end) && pl->segments[0]->base_offset == start && !has_snapshot(w, sp, start))
        sim_batches_take_out(&m->batches, 0, model_count_below(m, start));
    struct walk k = {
        .w = w, .sp = sp, .at = model_count_below(m, start), .may_have_holes = w->config.log.cleanup_compact};
    walk_log(&k, start, end);
    for (; k.at < m->batches.count; k.at++) {
        struct sim_batch *b = &m->batches.list[k.at];
        if (!b->gone && b->last >= m->start) break;
        b->gone = true;
    }
    if (!w->failed && k.at < m->batches.count && m->batches.list[k.at].last < end_min)
        wrong(w, "the batch at %" PRId64 " is lost, everything below %" PRId64 " was promised",
              m->batches.list[k.at].base, end_min);
    int64_t behind = k.at < m->batches.count ? m->batches.list[k.at].base : MAX(m->end, start);
    if (k.may_have_holes) behind = INT64_MAX; /* a segment that was just made may start behind a gap */
    if (!w->failed && !k.in_ghosts && end > behind && end > start)
        wrong(w, "ends at %" PRId64 ", what was written from %" PRId64 " on is not there", end, behind);
    size_t below_end = model_count_below(m, end);
    sim_batches_cut(&m->batches, MIN(k.at, below_end));
    for (size_t i = 0; i < k.found.count; i++)
        sim_batches_add(&m->batches, k.found.list[i].bytes, k.found.list[i].size);
    sim_batches_cut(&k.found, 0);
    mem_free(k.found.list);
}

void check_recovered(struct world *w, struct sim_partition *sp, int64_t end_min)
{
    struct plog *pl = sp->p->pl;
    struct model *m = &sp->model;
    int64_t start = plog_start(pl), end = plog_end(pl);
    say(w, "recovered [%" PRId64 ", %" PRId64 "), was [%" PRId64 ", %" PRId64 "), promised %" PRId64, start, end,
        m->start, m->end, end_min);
    /* Without a journal the name of the first segment may be lost and a later one be there, if none was promised. */
    bool headless = !w->config.journal && end_min <= m->start;
    if (start < m->start_promised || (start > m->start && !headless))
        wrong(w, "starts at %" PRId64 ", not in [%" PRId64 ", %" PRId64 "]", start, m->start_promised, m->start);
    if (end < end_min) wrong(w, "ends at %" PRId64 ", but %" PRId64 " was promised", end, end_min);
    if (w->config.cleans)
        check_recovered_cleaned(w, sp, start, end, end_min);
    else
        check_recovered_batches(w, sp, start, end, end_min);
    sim_batches_cut(&m->ghosts, 0);
    m->end = end;
    m->cut_to = INT64_MAX;
    m->start = start;
    m->durable = MIN(m->durable, end);
}

/* From some offset up to some batch. */
static void check_read(struct world *w, struct sim_partition *sp)
{
    const struct model *m = &sp->model;
    int64_t at = m->start + (int64_t)draw(w, (uint64_t)(m->end - m->start));
    size_t first = model_count_below(m, at), left = m->batches.count - first, pos = 0;
    if (left == 0) return;
    for (size_t i = first; i < m->batches.count; i++)
        if (m->batches.list[i].gone) return; /* the whole is read besides */
    size_t limit = first + 1 + (size_t)draw(w, left), i = first;
    int64_t below = limit < m->batches.count ? m->batches.list[limit].base : m->end;
    struct plog_slice s;
    uint8_t *data;
    size_t bytes_max = 1 + (size_t)draw(w, READ_BYTES_MAX);
    enum err e = plog_read(sp->p->pl, at, below, bytes_max, true, false, &s);
    if (e || !s.file) {
        wrong(w, "nothing to read at %" PRId64 ": %s", at, err_name(e));
        return;
    }
    if (!slice_bytes(w, &s, &data)) return;
    struct batch_info b;
    while (s.size - pos >= BATCH_HEADER_SIZE && !batch_parse_header(&b, data + pos, (int64_t)(s.size - pos))) {
        if (i == limit || !is_same(&m->batches.list[i], data + pos, (size_t)b.size)) {
            wrong(w, "reading at %" PRId64 " gives the batch %" PRId64, at, b.base_offset);
            break;
        }
        pos += (size_t)b.size;
        i++;
    }
    if (i == first) wrong(w, "reading at %" PRId64 " gives no whole batch", at);
    mem_free(data);
}

/* ---- Time */

/* The first record from the start on with that timestamp or a later one; -1: none. */
static int64_t model_find_time(const struct model *m, int64_t timestamp)
{
    for (size_t i = model_count_below(m, m->start); i < m->batches.count; i++) {
        struct record_iter it;
        const struct sim_batch *b = &m->batches.list[i];
        struct record record;
        enum err e = record_iter_init(&it, b->bytes, b->size, DECOMPRESSED_MAX);
        ASSERT(!e);
        bool may_be = !b->gone && it.info.max_timestamp >= timestamp, found = false;
        while (may_be && !found && !record_iter_next(&it, &record))
            found = record.offset >= m->start && record.timestamp >= timestamp;
        record_iter_fini(&it);
        if (found) return record.offset;
    }
    return -1;
}

static void check_time(struct world *w, struct sim_partition *sp)
{
    int64_t timestamp = w->now_ms + 10 - (int64_t)draw(w, one_in(w, 2) ? 2000 : 60000), offset, found_ms;
    int32_t epoch;
    enum err e = plog_find_time(sp->p->pl, timestamp, INT64_MAX, &offset, &found_ms, &epoch);
    int64_t expected = model_find_time(&sp->model, timestamp);
    if (e)
        wrong(w, "no look-up by time: %s", err_name(e));
    else if (offset != expected)
        wrong(w, "the first record at or after %" PRId64 " is %" PRId64 ", not %" PRId64, timestamp, expected, offset);
}

void check_reads(struct world *w, struct sim_partition *sp)
{
    const struct model *m = &sp->model;
    struct walk k = {.w = w, .sp = sp, .at = model_count_below(m, m->start)};
    walk_log(&k, m->start, m->end);
    while (k.at < m->batches.count && m->batches.list[k.at].gone) k.at++;
    if (!w->failed && k.at < m->batches.count && m->batches.list[k.at].last >= m->start)
        wrong(w, "the batch at %" PRId64 " cannot be read", m->batches.list[k.at].base);
    sim_batches_cut(&k.found, 0);
    mem_free(k.found.list);
    for (int i = 0; i < READS && !w->failed && m->start < m->end; i++) check_read(w, sp);
    for (int i = 0; i < TIME_LOOKUPS && !w->failed; i++) check_time(w, sp);
}

/* ---- Producers and transactions */

struct views {
    struct producer_view *list;
    size_t count, cap;
};

static void views_add(void *arg, const struct producer_view *p)
{
    struct views *vs = arg;
    vs->list = mem_grow(vs->list, &vs->cap, vs->count + 1, sizeof *vs->list);
    vs->list[vs->count++] = *p;
}

static const struct producer_view *views_find(const struct views *vs, int64_t id)
{
    for (size_t i = 0; i < vs->count; i++)
        if (vs->list[i].producer_id == id) return &vs->list[i];
    return NULL;
}

struct aborted {
    struct aborted_txn *list;
    size_t count, cap;
};

static void aborted_add(void *arg, const struct aborted_txn *txn)
{
    struct aborted *as = arg;
    as->list = mem_grow(as->list, &as->cap, as->count + 1, sizeof *as->list);
    as->list[as->count++] = *txn;
}

static bool aborted_has(const struct aborted *as, const struct aborted_txn *txn)
{
    for (size_t i = 0; i < as->count; i++) {
        const struct aborted_txn *a = &as->list[i];
        if (a->producer_id == txn->producer_id && a->first_offset == txn->first_offset &&
            a->last_offset == txn->last_offset)
            return true;
    }
    return false;
}

/* What the batches from one on say, read anew; of those that are gone, only what was below some offset. */
struct replay {
    struct views views;
    struct aborted aborted;
};

static void replay_init(struct replay *rp, const struct model *m, size_t from, int64_t gone_below)
{
    struct producers ps;
    *rp = (struct replay){.views.count = 0};
    producers_init(&ps);
    for (size_t i = from; i < m->batches.count; i++) {
        struct batch_info b;
        struct txn_marker marker;
        const struct sim_batch *batch = &m->batches.list[i];
        enum err e = batch_parse_header(&b, batch->bytes, INT32_MAX);
        ASSERT(!e);
        if (b.producer_id < 0 || (batch->gone && batch->base >= gone_below)) continue;
        bool control = b.attributes & BATCH_CONTROL;
        if (control) e = batch_read_marker(&marker, batch->bytes, batch->size);
        struct producers_result r;
        producers_queue(&ps, &b, control && !e ? &marker : NULL, APPEND_REPLICA, &r);
        producers_publish(&ps, batch->last + 1);
        if (r.txn_ended && r.aborted) aborted_add(&rp->aborted, &r.txn);
    }
    producers_each(&ps, views_add, &rp->views);
    producers_fini(&ps);
}

static void replay_fini(struct replay *rp)
{
    mem_free(rp->views.list);
    mem_free(rp->aborted.list);
}

static bool view_is(const struct producer_view *a, const struct producer_view *b)
{
    return b && a->producer_id == b->producer_id && a->producer_epoch == b->producer_epoch &&
           a->last_sequence == b->last_sequence && a->txn_start_offset == b->txn_start_offset &&
           a->coordinator_epoch == b->coordinator_epoch && a->last_timestamp_ms == b->last_timestamp_ms;
}

enum { VIEW_TEXT_SIZE = 160 };

static const char *view_text(const struct producer_view *v, char *out)
{
    snprintf(out, VIEW_TEXT_SIZE, "none");
    if (v)
        snprintf(out, VIEW_TEXT_SIZE,
                 "%" PRId64 " epoch %d sequence %d transaction from %" PRId64 " coordinator %d time %" PRId64,
                 v->producer_id, v->producer_epoch, v->last_sequence, v->txn_start_offset, v->coordinator_epoch,
                 v->last_timestamp_ms);
    return out;
}

/* What the log may know.  `strict`: only of all that was ever written. */
struct replays {
    struct replay whole, here, mixed;
    bool strict;
};

static bool view_may_be(const struct replays *rs, const struct producer_view *v)
{
    if (view_is(v, views_find(&rs->whole.views, v->producer_id))) return true;
    if (rs->strict) return false;
    return view_is(v, views_find(&rs->here.views, v->producer_id)) ||
           view_is(v, views_find(&rs->mixed.views, v->producer_id));
}

static bool aborted_may_be(const struct replays *rs, const struct aborted_txn *txn)
{
    if (aborted_has(&rs->whole.aborted, txn)) return true;
    return !rs->strict && (aborted_has(&rs->here.aborted, txn) || aborted_has(&rs->mixed.aborted, txn));
}

static void check_producers(struct world *w, struct sim_partition *sp, const struct replays *rs)
{
    struct views vs = {.count = 0};
    plog_each_producer(sp->p->pl, views_add, &vs);
    for (size_t i = 0; i < vs.count; i++) {
        char is[VIEW_TEXT_SIZE], should[VIEW_TEXT_SIZE];
        if (view_may_be(rs, &vs.list[i])) continue;
        wrong(w, "producer %s; a replay says %s", view_text(&vs.list[i], is),
              view_text(views_find(&rs->whole.views, vs.list[i].producer_id), should));
    }
    const struct views *needed = rs->strict ? &rs->whole.views : &rs->here.views;
    for (size_t i = 0; i < needed->count; i++)
        if (!views_find(&vs, needed->list[i].producer_id))
            wrong(w, "producer %" PRId64 " is forgotten", needed->list[i].producer_id);
    mem_free(vs.list);
}

static void check_aborted(struct world *w, struct sim_partition *sp, const struct replays *rs)
{
    const struct model *m = &sp->model;
    struct aborted as = {.count = 0};
    enum err e = plog_aborted_txns(sp->p->pl, m->start, m->end, false, aborted_add, &as);
    if (e) wrong(w, "no aborted transactions: %s", err_name(e));
    for (size_t i = 0; i < as.count; i++)
        if (!aborted_may_be(rs, &as.list[i]))
            wrong(w, "a transaction of producer %" PRId64 " that nobody aborted at %" PRId64, as.list[i].producer_id,
                  as.list[i].last_offset);
    const struct aborted *needed = rs->strict ? &rs->whole.aborted : &rs->here.aborted;
    for (size_t i = 0; i < needed->count; i++) {
        const struct aborted_txn *a = &needed->list[i];
        /* What was deleted comes back in part, perhaps without its transaction index. */
        if (a->last_offset < MAX(m->start, m->start_max) || aborted_has(&as, a)) continue;
        if (!rs->strict && !aborted_has(&rs->whole.aborted, a)) continue; /* known by its true beginning */
        wrong(w, "the abort at %" PRId64 " of producer %" PRId64 " is forgotten", a->last_offset, a->producer_id);
    }
    mem_free(as.list);
}

/* ---- Epochs */

static void check_epochs(struct world *w, struct sim_partition *sp)
{
    const struct model *m = &sp->model;
    struct plog *pl = sp->p->pl;
    int32_t last = -1, latest = plog_last_epoch(pl);
    for (size_t i = model_count_below(m, m->start); i < m->batches.count && !w->failed; i++) {
        struct batch_info b;
        enum err e = batch_parse_header(&b, m->batches.list[i].bytes, INT32_MAX);
        ASSERT(!e);
        if (m->batches.list[i].gone) continue;
        int64_t offset = MAX(b.base_offset, m->start);
        last = b.leader_epoch;
        if (offset < m->start_max && plog_epoch_of(pl, offset) == -1) continue;
        if (plog_epoch_of(pl, offset) != last)
            wrong(w, "offset %" PRId64 " is of epoch %d, not %d", offset, last, plog_epoch_of(pl, offset));
    }
    if (latest < last || latest > m->epoch) wrong(w, "the latest epoch is %d, not in [%d, %d]", latest, last, m->epoch);
}

void check_state(struct world *w, struct sim_partition *sp)
{
    const struct model *m = &sp->model;
    const struct plog *pl = sp->p->pl;
    int64_t first = pl->segments[0]->base_offset;
    /* With everything up to behind the first segment's start flushed, the snapshot there is on the disk, and with it
     * what deleted batches said.  Else, and where a deletion was half undone, what the batches of the log say is all
     * that can be asked for. */
    bool half_deleted = m->start < m->start_max || (pl->segment_count > 1 && pl->segments[1]->base_offset <= m->start);
    struct replays rs = {.strict = m->durable > first && !half_deleted};
    replay_init(&rs.whole, m, 0, INT64_MAX);
    replay_init(&rs.here, m, model_count_below(m, first), 0);
    replay_init(&rs.mixed, m, 0, first);
    if (!w->config.cleans) { /* cleaning leaves out what a replay would go by */
        check_producers(w, sp, &rs);
        check_aborted(w, sp, &rs);
    }
    check_epochs(w, sp);
    replay_fini(&rs.whole);
    replay_fini(&rs.here);
    replay_fini(&rs.mixed);
}
