/* check.c: what the cluster has promised, and whether it holds. */
#include <string.h>

#include "base/arena.h"
#include "broker/broker.h"
#include "broker/metadata.h"
#include "coord/znodes.h"
#include "wire/batch.h"
#include "world.h"

static struct model_part *model_of(struct world *w, int topic, int partition)
{
    return &w->topics[topic].parts[partition];
}

void check_acked(struct world *w, int topic, int partition, const struct acked_batch *b)
{
    struct model_part *m = model_of(w, topic, partition);
    tell(w, "acknowledged: %" PRIx64 "+%d of %s-%d at %" PRId64, b->first_id, b->count, w->topics[topic].name,
         partition, b->base_offset);
    m->acked = mem_grow(m->acked, &m->acked_cap, m->acked_count + 1, sizeof *m->acked);
    m->acked[m->acked_count++] = *b;
}

void check_seen(struct world *w, int topic, int partition, int64_t offset, uint64_t id, const char *who)
{
    struct model_part *m = model_of(w, topic, partition);
    size_t at = (size_t)offset;
    m->seen = mem_grow(m->seen, &m->seen_cap, at + 1, sizeof *m->seen);
    while (m->seen_count <= at) m->seen[m->seen_count++] = 0;
    if (m->seen[at] == 0) m->seen[at] = id;
    if (m->seen[at] == id) return;
    wrong(w, "%s finds %" PRIx64 " at %" PRId64 " of %s-%d, where %" PRIx64 " was seen before", who, id, offset,
          w->topics[topic].name, partition, m->seen[at]);
}

/* ---- One leader an epoch */

static void leads(struct machine *n, int topic, int partition, int32_t epoch)
{
    struct world *w = n->w;
    struct model_part *m = model_of(w, topic, partition);
    for (size_t i = m->leader_count; i-- > 0;) {
        if (m->leaders[i].epoch != epoch) continue;
        if (m->leaders[i].node != n->index)
            wrong(w, "broker %d leads %s-%d in epoch %d, in which broker %d did", n->index + 1, w->topics[topic].name,
                  partition, epoch, m->leaders[i].node + 1);
        return;
    }
    tell(w, "broker %d leads %s-%d in epoch %d", n->index + 1, w->topics[topic].name, partition, epoch);
    m->leaders = mem_grow(m->leaders, &m->leader_cap, m->leader_count + 1, sizeof *m->leaders);
    m->leaders[m->leader_count].epoch = epoch;
    m->leaders[m->leader_count++].node = n->index;
    faults_new_leader(w, topic, partition, n->index);
}

int32_t last_leader(const struct world *w, int topic, int partition, int *node)
{
    const struct model_part *m = &w->topics[topic].parts[partition];
    int32_t epoch = -1;
    *node = -1;
    for (size_t i = 0; i < m->leader_count; i++) {
        if (m->leaders[i].epoch < epoch) continue;
        epoch = m->leaders[i].epoch;
        *node = m->leaders[i].node;
    }
    return epoch;
}

/* The first epoch behind `epoch` that the broker was elected controller in; -1: none. */
static int32_t controller_epoch_of(const struct world *w, int32_t broker_id, int32_t epoch)
{
    for (size_t i = (size_t)(epoch + 1); i < w->controller_count; i++)
        if (w->controllers[i] == broker_id || w->controllers[i] < 0) return (int32_t)i;
    return -1;
}

/* Who has heard a controller does not hear one that was deposed before.  Of one that was elected twice nobody knows
 * which time it was: the earlier one that is possible. */
static void check_controller(struct machine *n)
{
    const struct cluster_view *v = machine_cluster(n);
    if (!v || v->controller_id < 0 || v->controller_id == n->heard_controller) return;
    int32_t epoch = controller_epoch_of(n->w, v->controller_id, n->heard_epoch);
    if (epoch < 0)
        wrong(n->w, "broker %d obeys broker %d, which was elected controller before epoch %d, after that of that epoch",
              n->index + 1, v->controller_id, n->heard_epoch);
    n->heard_controller = v->controller_id;
    n->heard_epoch = epoch;
}

/* What a broker tells clients does not go back. */
static void check_told(struct machine *n, int topic, int partition)
{
    const struct topic_view *t = machine_topic(n, n->w->topics[topic].name);
    if (!topic_has_partition(t, partition)) return;
    int32_t epoch = t->partitions[partition].leader_epoch, *known = &n->told_epochs[topic][partition];
    if (epoch < *known)
        wrong(n->w, "broker %d tells clients of epoch %d of %s-%d, after epoch %d", n->index + 1, epoch,
              n->w->topics[topic].name, partition, *known);
    *known = epoch;
}

void check_leaders(struct machine *n)
{
    struct world *w = n->w;
    check_controller(n);
    for (int t = 0; t < w->topic_count; t++)
        for (int p = 0; p < w->topics[t].partitions; p++) {
            const struct partition *part = machine_partition(n, w->topics[t].name, p);
            if (part && part->leads && part->online) {
                leads(n, t, p, part->leader_epoch);
                if (part->in_sync.proposed) faults_in_sync_changes(w, n->index, &part->in_sync);
            }
            check_told(n, t, p);
        }
}

/* ---- The store */

static void check_state(struct world *w, struct arena *a, int topic, int partition, int32_t controller_epoch)
{
    struct model_part *m = model_of(w, topic, partition);
    const char *name = w->topics[topic].name;
    struct str path = znode_state_path(a, str_of(name), partition);
    struct bytes data;
    struct znode_state zs;
    struct fault f;
    int32_t version;
    if (!coord_memory_look(w->store, path, &version, &data) || version == m->state_version) return;
    if (znode_state_decode(a, path, data, &zs, &f)) {
        wrong(w, "the state of %s-%d cannot be read: %s", name, partition, f.text);
        return;
    }
    if (zs.controller_epoch != controller_epoch)
        wrong(w, "the controller of epoch %d changes %s-%d, and epoch %d has begun", zs.controller_epoch, name,
              partition, controller_epoch);
    if (zs.leader_epoch < m->state_epoch)
        wrong(w, "%s-%d falls back to leader epoch %d from %d", name, partition, zs.leader_epoch, m->state_epoch);
    bool leader_in = zs.leader < 0;
    for (int32_t i = 0; i < zs.isr_count; i++) leader_in |= zs.isr[i] == zs.leader;
    if (!leader_in) wrong(w, "broker %d leads %s-%d and is not in sync", zs.leader, name, partition);
    m->state_version = version;
    m->state_epoch = zs.leader_epoch;
}

/* Who it is that the epoch has begun with. */
static void note_controller(struct world *w, struct arena *a, int32_t epoch)
{
    struct bytes data;
    struct znode_controller zc;
    struct fault f;
    int32_t version;
    while (w->controller_count <= (size_t)epoch) {
        w->controllers = mem_grow(w->controllers, &w->controller_cap, w->controller_count + 1, sizeof *w->controllers);
        w->controllers[w->controller_count++] = -1;
    }
    if (w->controllers[epoch] >= 0 || !coord_memory_look(w->store, ZNODE_CONTROLLER, &version, &data)) return;
    if (!znode_controller_decode(a, data, &zc, &f)) w->controllers[epoch] = zc.broker_id;
}

void check_store(struct world *w)
{
    struct arena a;
    struct bytes data;
    struct fault f;
    int32_t version, controller_epoch;
    if (!coord_memory_look(w->store, ZNODE_CONTROLLER_EPOCH, &version, &data)) return;
    if (znode_controller_epoch_decode(data, &controller_epoch, &f)) {
        wrong(w, "the controller's epoch cannot be read: %s", f.text);
        return;
    }
    arena_init(&a, SIZE_MAX);
    note_controller(w, &a, controller_epoch);
    for (int t = 0; t < w->topic_count; t++)
        for (int p = 0; p < w->topics[t].partitions; p++) check_state(w, &a, t, p, controller_epoch);
    arena_fini(&a);
}

/* ---- The logs at the end */

/* A replica's log, up to an offset. */
struct log_bytes {
    uint8_t *bytes;
    size_t size, cap;
};

static bool read_log(struct machine *n, struct partition *part, int64_t below, struct log_bytes *out)
{
    enum { PIECE = 1 << 20 };
    int64_t offset = plog_start(part->pl);
    while (offset < below) {
        struct plog_slice slice;
        size_t got;
        if (plog_read(part->pl, offset, below, PIECE, true, false, &slice) || !slice.file) return false;
        out->bytes = mem_grow(out->bytes, &out->cap, out->size + slice.size, 1);
        enum err e = file_pread(slice.file, out->bytes + out->size, slice.size, slice.pos, &got);
        plog_slice_release(&slice);
        if (e || got != slice.size) return false;
        for (size_t at = 0; at < got;) {
            struct batch_info info;
            if (batch_parse_header(&info, out->bytes + out->size + at, INT32_MAX)) return false;
            offset = batch_last_offset(&info) + 1;
            at += (size_t)info.size;
        }
        out->size += got;
    }
    (void)n;
    return true;
}

struct walk {
    struct world *w;
    int topic, partition;
    uint64_t *ids; /* by offset */
    size_t count, cap;
};

/* Ids by offset; what consumers saw is what is there. */
static void walk_log(struct walk *wk, const struct log_bytes *log)
{
    for (size_t at = 0; at < log->size;) {
        struct record_iter it;
        struct record rec;
        struct batch_info info;
        enum err e = batch_parse_header(&info, log->bytes + at, INT32_MAX);
        if (!e) e = record_iter_init(&it, log->bytes + at, (size_t)info.size, SIZE_MAX);
        if (e) {
            wrong(wk->w, "%s-%d has a batch that is none", wk->w->topics[wk->topic].name, wk->partition);
            return;
        }
        while (!record_iter_next(&it, &rec)) {
            uint64_t id = record_id(rec.value);
            if (rec.offset != (int64_t)wk->count)
                wrong(wk->w, "%s-%d has %" PRId64 " where %zu is to be", wk->w->topics[wk->topic].name, wk->partition,
                      rec.offset, wk->count);
            wk->ids = mem_grow(wk->ids, &wk->cap, wk->count + 1, sizeof *wk->ids);
            wk->ids[wk->count++] = id;
            check_seen(wk->w, wk->topic, wk->partition, rec.offset, id, "the log");
            if (wk->w->failed) break;
        }
        record_iter_fini(&it);
        if (wk->w->failed) return;
        at += (size_t)info.size;
    }
}

static void check_batch(struct walk *wk, const struct acked_batch *b)
{
    for (int32_t i = 0; i < b->count && !wk->w->failed; i++) {
        size_t at = 0;
        if (b->base_offset >= 0)
            at = (size_t)b->base_offset + (size_t)i;
        else
            while (at < wk->count && wk->ids[at] != b->first_id + (uint64_t)i) at++;
        if (at >= wk->count || wk->ids[at] != b->first_id + (uint64_t)i)
            wrong(wk->w, "%" PRIx64 " of %s-%d was acknowledged at %" PRId64 " and is not there",
                  b->first_id + (uint64_t)i, wk->w->topics[wk->topic].name, wk->partition, b->base_offset + i);
    }
}

/* A record of that lane stands next behind `last`. */
static bool may_follow(const struct lane *l, uint64_t last, uint64_t id)
{
    if (id == last + 1) return true;
    for (size_t i = 0; i < l->renewal_count; i++) {
        const struct renewal *rn = &l->renewals[i];
        if (id <= last ? id == rn->first : last + 1 >= rn->first && id <= rn->end) return true;
    }
    return false;
}

/* Of each idempotent producer every record is there once, in its order, or again from where it began a new epoch. */
static void check_producers(struct walk *wk)
{
    struct world *w = wk->w;
    for (int i = 0; i < w->producer_count; i++) {
        const struct producer *p = &w->producers[i];
        const struct lane *l = &p->lanes[wk->partition];
        if (!p->idempotent || wk->partition >= p->lane_count || l->topic != wk->topic) continue;
        uint64_t last = 0;
        for (size_t at = 0; at < wk->count; at++) {
            uint64_t id = wk->ids[at];
            if (id >> 24 != (l->next_id - 1) >> 24) continue;
            if (last && !may_follow(l, last, id))
                wrong(w, "%s-%d has %" PRIx64 " at %zu behind %" PRIx64 ": %s", w->topics[wk->topic].name,
                      wk->partition, id, at, last, id <= last ? "doubled, or out of order" : "a loss");
            last = id;
        }
    }
}

static void compare(struct world *w, int topic, int partition, const struct log_bytes *a, const struct log_bytes *b,
                    int node)
{
    if (a->size == b->size && (a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0)) return;
    size_t at = 0;
    while (at < MIN(a->size, b->size) && a->bytes[at] == b->bytes[at]) at++;
    wrong(w, "the replica of %s-%d on broker %d differs from its leader's at byte %zu, of %zu and %zu bytes",
          w->topics[topic].name, partition, node + 1, at, b->size, a->size);
}

static struct machine *leader_of(struct world *w, int topic, int partition)
{
    struct machine *best = NULL;
    int32_t epoch = -1;
    for (int i = 0; i < w->setup.nodes; i++) {
        const struct partition *p = machine_partition(&w->nodes[i], w->topics[topic].name, partition);
        if (!p || !p->leads || p->leader_epoch <= epoch) continue;
        epoch = p->leader_epoch;
        best = &w->nodes[i];
    }
    return best;
}

static void check_partition(struct world *w, int topic, int partition)
{
    const char *name = w->topics[topic].name;
    struct machine *leader = leader_of(w, topic, partition);
    ASSERT(leader);
    struct partition *lp = machine_partition(leader, name, partition);
    int64_t below = partition_high_watermark(lp);
    struct log_bytes first = {0};
    if (!read_log(leader, lp, below, &first))
        wrong(w, "%s-%d of broker %d cannot be read", name, partition, leader->index + 1);
    for (int i = 0; i < w->setup.nodes && !w->failed; i++) {
        struct machine *n = &w->nodes[i];
        struct partition *p = machine_partition(n, name, partition);
        struct log_bytes other = {0};
        if (!p || n == leader) continue;
        if (!read_log(n, p, below, &other)) wrong(w, "%s-%d of broker %d cannot be read", name, partition, i + 1);
        compare(w, topic, partition, &first, &other, i);
        mem_free(other.bytes);
    }
    struct walk wk = {.w = w, .topic = topic, .partition = partition};
    if (!w->failed && !w->topics[topic].is_offsets) walk_log(&wk, &first);
    const struct model_part *m = model_of(w, topic, partition);
    if (m->seen_count > wk.count && !w->failed)
        wrong(w, "%s-%d ends at %zu, and consumers have seen %zu records", name, partition, wk.count, m->seen_count);
    for (size_t i = 0; i < m->acked_count && !w->failed; i++) check_batch(&wk, &m->acked[i]);
    if (!w->failed) check_producers(&wk);
    mem_free(first.bytes);
    mem_free(wk.ids);
}

void check_end(struct world *w)
{
    for (int t = 0; t < w->topic_count; t++)
        for (int p = 0; p < w->topics[t].partitions && !w->failed; p++) check_partition(w, t, p);
}
