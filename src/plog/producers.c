/* producers.c: sequences, epochs and transactions of the producers of one partition.
 *
 * WHAT ALWAYS HOLDS
 * (1) A producer's state is that after everything queued.  undo[undo_at .. undo_count) holds, oldest first, one record
 *     for each queued and unpublished batch that has a producer id, in offset order.
 * (2) Swapping an undo record with its producer's state, from the newest record back to one, gives the state before
 *     that one's batch; swapping forward again restores it.
 * (3) open_txns holds exactly the producers with txn_first_offset >= 0, ascending by it.
 * (4) ended holds the transactions with a queued or written marker that is not known to be replicated, ascending by the
 *     marker's offset. */
#include "plog/producers.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/writer.h"

enum { NO_EPOCH = -1, NO_SEQUENCE = -1, NO_OFFSET = -1, NO_TIMESTAMP = -1 };
enum { RUN_MAX = 1 << 30 }; /* half of all sequences: what lies farther back may as well be ahead */
enum { UNDO_KEPT = 64 };    /* records of room that an idle log may keep */

struct producer_batch {
    int32_t last_sequence, offset_delta;
    int64_t last_offset, timestamp;
};

struct producer_state {
    int64_t last_timestamp, txn_first_offset;
    int32_t coordinator_epoch;
    int16_t epoch;
    int32_t run;                      /* so many sequences up to the last are known to be in the log, without a gap */
    uint8_t batch_first, batch_count; /* batches[(batch_first + i) % KEPT], oldest first */
    bool known;                       /* false: not there yet, as of this state */
};

struct producer {
    int64_t id;
    struct producer_state state;
    struct producer_batch batches[PRODUCER_BATCHES_KEPT];
    uint32_t queued; /* undo records that point here */
    struct list_node txn_link;
    UT_hash_handle hh;
};

enum txn_change { TXN_SAME, TXN_BEGAN, TXN_ENDED };

struct producers_undo {
    struct producer *producer;
    struct producer_state state;
    struct producer_batch batch; /* of `slot` */
    uint8_t slot;
    uint8_t txn_change;
    int64_t base_offset, last_offset;
};

/* ---- Sequences: 31 bits, 0 follows 2^31-1 */

static int32_t sequence_add(int32_t sequence, int32_t delta)
{
    return (int32_t)(((uint32_t)sequence + (uint32_t)delta) & INT32_MAX);
}

/* How far it is from one to a later one. */
static int32_t sequence_distance(int32_t from, int32_t to)
{
    return (int32_t)(((uint32_t)to - (uint32_t)from) & INT32_MAX);
}

static int32_t batch_first_sequence(const struct producer_batch *b)
{
    return (int32_t)(((uint32_t)b->last_sequence - (uint32_t)b->offset_delta) & INT32_MAX);
}

/* ---- Producers */

static struct producer *find(const struct producers *ps, int64_t id)
{
    struct producer *p;
    HASH_FIND(hh, ps->by_id, &id, sizeof id, p);
    return p;
}

static struct producer *add(struct producers *ps, int64_t id)
{
    struct producer *p = mem_zalloc(1, sizeof *p);
    p->id = id;
    p->state = (struct producer_state){
        .last_timestamp = NO_TIMESTAMP, .txn_first_offset = NO_OFFSET, .coordinator_epoch = -1, .epoch = NO_EPOCH};
    HASH_ADD(hh, ps->by_id, id, sizeof p->id, p);
    ps->count++;
    return p;
}

static void drop(struct producers *ps, struct producer *p)
{
    list_remove(&p->txn_link);
    HASH_DEL(ps->by_id, p);
    mem_free(p);
    ps->count--;
}

static const struct producer_batch *last_batch(const struct producer *p)
{
    const struct producer_state *s = &p->state;
    if (s->batch_count == 0) return NULL;
    return &p->batches[(s->batch_first + s->batch_count - 1) % PRODUCER_BATCHES_KEPT];
}

static const struct producer_batch *find_duplicate(const struct producer *p, const struct batch_info *b)
{
    if (p->state.epoch != b->producer_epoch) return NULL;
    int32_t last_sequence = sequence_add(b->base_sequence, b->last_offset_delta);
    for (unsigned i = 0; i < p->state.batch_count; i++) {
        const struct producer_batch *kept = &p->batches[(p->state.batch_first + i) % PRODUCER_BATCHES_KEPT];
        if (kept->last_sequence == last_sequence && batch_first_sequence(kept) == b->base_sequence) return kept;
    }
    return NULL;
}

/* Older than those that are kept, and written nevertheless: where, is not known any more.  A client sends such a batch
 * again that had some under way to a leader which has stopped, and sends the next ones to another leader meanwhile. */
static bool is_old_duplicate(const struct producer *p, const struct batch_info *b)
{
    const struct producer_batch *last = last_batch(p);
    if (!last || p->state.epoch != b->producer_epoch || b->base_sequence < 0) return false;
    const struct producer_batch *oldest = &p->batches[p->state.batch_first];
    int32_t ago = sequence_distance(sequence_add(b->base_sequence, b->last_offset_delta), last->last_sequence);
    int32_t kept = sequence_distance(batch_first_sequence(oldest), last->last_sequence);
    return ago > kept && (int64_t)ago + b->last_offset_delta + 1 <= p->state.run;
}

/* Where the next batch goes: behind the last one, over the oldest when full. */
static uint8_t next_slot(const struct producer_state *s)
{
    return (uint8_t)((s->batch_first + s->batch_count) % PRODUCER_BATCHES_KEPT);
}

static void enter_epoch(struct producer *p, int16_t epoch)
{
    if (p->state.epoch == epoch) return;
    p->state.epoch = epoch;
    p->state.batch_count = 0;
}

static struct producer *producer_of_link(struct list_node *n)
{
    return CONTAINER_OF(n, struct producer, txn_link);
}

/* Into open_txns at its place; almost always the end. */
static void open_txn_insert(struct producers *ps, struct producer *p)
{
    struct list_node *after = ps->open_txns.head.prev;
    while (after != &ps->open_txns.head && producer_of_link(after)->state.txn_first_offset > p->state.txn_first_offset)
        after = after->prev;
    struct list_node *n = &p->txn_link;
    n->prev = after;
    n->next = after->next;
    after->next->prev = n;
    after->next = n;
}

/* ---- Life */

void producers_init(struct producers *ps)
{
    *ps = (struct producers){0};
    list_init(&ps->open_txns);
}

void producers_clear(struct producers *ps)
{
    struct producer *p, *next;
    HASH_ITER(hh, ps->by_id, p, next)
    {
        HASH_DEL(ps->by_id, p); /* NOLINT(clang-analyzer-core.NullDereference): a macro the analyzer cannot follow */
        mem_free(p);
    }
    mem_free(ps->ended);
    mem_free(ps->undo);
    producers_init(ps);
}

void producers_fini(struct producers *ps)
{
    producers_clear(ps);
}

/* ---- Checks */

bool producers_knows(const struct producers *ps, int64_t producer_id)
{
    const struct producer *p = find(ps, producer_id);
    return p && p->state.epoch != NO_EPOCH;
}

/* A producer that is not known may start anywhere: what it wrote may have been deleted with its records. */
static enum kerr check_sequence(const struct producer *p, const struct batch_info *b)
{
    if (!p || p->state.epoch == NO_EPOCH) return KERR_NONE;
    int32_t expected = 0;
    if (p->state.epoch == b->producer_epoch) {
        const struct producer_batch *last = last_batch(p);
        expected = last ? sequence_add(last->last_sequence, 1) : 0; /* none since a marker brought the epoch */
    }
    return b->base_sequence == expected ? KERR_NONE : KERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
}

static enum kerr check(const struct producer *p, const struct batch_info *b, const struct txn_marker *marker,
                       enum append_origin origin)
{
    if (origin == APPEND_REPLICA) return KERR_NONE;
    if (p && b->producer_epoch < p->state.epoch) return KERR_INVALID_PRODUCER_EPOCH;
    if (marker)
        return p && marker->coordinator_epoch < p->state.coordinator_epoch ? KERR_TRANSACTION_COORDINATOR_FENCED
                                                                           : KERR_NONE;
    enum kerr kerr = origin == APPEND_CLIENT ? check_sequence(p, b) : KERR_NONE;
    bool in_txn = p && p->state.txn_first_offset != NO_OFFSET;
    if (kerr == KERR_NONE && in_txn && !(b->attributes & BATCH_TRANSACTIONAL)) kerr = KERR_INVALID_TXN_STATE;
    return kerr;
}

/* ---- Changes */

static struct producers_undo *undo_push(struct producers *ps, struct producer *p, const struct batch_info *b)
{
    if (ps->undo_at > 0 && ps->undo_count == ps->undo_cap && ps->undo_at >= ps->undo_cap / 2) {
        ps->undo_count -= ps->undo_at;
        memmove(ps->undo, ps->undo + ps->undo_at, ps->undo_count * sizeof *ps->undo);
        ps->undo_at = 0;
    }
    ps->undo = mem_grow(ps->undo, &ps->undo_cap, ps->undo_count + 1, sizeof *ps->undo);
    struct producers_undo *u = &ps->undo[ps->undo_count++];
    uint8_t slot = next_slot(&p->state);
    *u = (struct producers_undo){
        .producer = p,
        .state = p->state,
        .slot = slot,
        .batch = p->batches[slot],
        .txn_change = TXN_SAME,
        .base_offset = b->base_offset,
        .last_offset = batch_last_offset(b),
    };
    p->queued++;
    return u;
}

/* The producer's newest batch, whose sequences begin with base_sequence (-1: it has none), into next_slot(). */
static void keep_batch(struct producer *p, uint8_t slot, int32_t base_sequence, const struct producer_batch *b)
{
    struct producer_state *s = &p->state;
    const struct producer_batch *last = last_batch(p);
    bool follows = last && base_sequence >= 0 && sequence_add(last->last_sequence, 1) == base_sequence;
    int64_t run = (follows ? s->run : 0) + (int64_t)b->offset_delta + 1;
    s->run = base_sequence < 0 ? 0 : (int32_t)MIN(run, RUN_MAX);
    p->batches[slot] = *b;
    if (s->batch_count == 0)
        s->batch_first = slot;
    else if (s->batch_count == PRODUCER_BATCHES_KEPT)
        s->batch_first = (uint8_t)((s->batch_first + 1) % PRODUCER_BATCHES_KEPT);
    if (s->batch_count < PRODUCER_BATCHES_KEPT) s->batch_count++;
}

static void apply_data(struct producers *ps, struct producer *p, const struct batch_info *b, struct producers_undo *u)
{
    struct producer_state *s = &p->state;
    enter_epoch(p, b->producer_epoch);
    const struct producer_batch batch = {
        .last_sequence = b->base_sequence < 0 ? NO_SEQUENCE : sequence_add(b->base_sequence, b->last_offset_delta),
        .offset_delta = b->last_offset_delta,
        .last_offset = batch_last_offset(b),
        .timestamp = b->max_timestamp,
    };
    keep_batch(p, u->slot, b->base_sequence, &batch);
    s->last_timestamp = b->max_timestamp;
    if (s->txn_first_offset == NO_OFFSET && b->attributes & BATCH_TRANSACTIONAL) {
        s->txn_first_offset = b->base_offset;
        open_txn_insert(ps, p);
        u->txn_change = TXN_BEGAN;
    }
}

static void apply_marker(struct producers *ps, struct producer *p, const struct batch_info *b,
                         const struct txn_marker *marker, struct producers_undo *u, struct producers_result *out)
{
    struct producer_state *s = &p->state;
    enter_epoch(p, b->producer_epoch);
    s->coordinator_epoch = marker->coordinator_epoch;
    s->last_timestamp = marker->timestamp;
    if (s->txn_first_offset == NO_OFFSET) return; /* an empty transaction leaves no trace */

    list_remove(&p->txn_link);
    struct list_node *oldest = list_first(&ps->open_txns);
    out->txn_ended = true;
    out->aborted = !marker->commit;
    out->txn = (struct aborted_txn){
        .producer_id = p->id,
        .first_offset = s->txn_first_offset,
        .last_offset = b->base_offset,
        .last_stable_offset = oldest ? producer_of_link(oldest)->state.txn_first_offset : b->base_offset + 1,
    };
    ps->ended = mem_grow(ps->ended, &ps->ended_cap, ps->ended_count + 1, sizeof *ps->ended);
    ps->ended[ps->ended_count++] = (struct txn_ended){s->txn_first_offset, b->base_offset};
    s->txn_first_offset = NO_OFFSET;
    u->txn_change = TXN_ENDED;
}

void producers_queue(struct producers *ps, const struct batch_info *b, const struct txn_marker *marker,
                     enum append_origin origin, struct producers_result *out)
{
    *out = (struct producers_result){.kerr = KERR_NONE};
    bool control_without_marker = b->attributes & BATCH_CONTROL && !marker; /* cleaned away: nothing to learn */
    if (b->producer_id < 0 || control_without_marker) return;

    struct producer *p = find(ps, b->producer_id);
    const struct producer_batch *original = p && origin == APPEND_CLIENT && !marker ? find_duplicate(p, b) : NULL;
    if (original) {
        out->kerr = KERR_DUPLICATE_SEQUENCE_NUMBER;
        out->base_offset = original->last_offset - original->offset_delta;
        out->last_offset = original->last_offset;
        out->timestamp = original->timestamp;
        return;
    }
    if (p && origin == APPEND_CLIENT && !marker && is_old_duplicate(p, b)) {
        const struct producer_batch *oldest = &p->batches[p->state.batch_first];
        out->kerr = KERR_DUPLICATE_SEQUENCE_NUMBER;
        out->base_offset = NO_OFFSET;
        out->last_offset = oldest->last_offset - oldest->offset_delta - 1; /* or before */
        out->timestamp = NO_TIMESTAMP;
        return;
    }
    out->kerr = check(p, b, marker, origin);
    if (out->kerr != KERR_NONE) return;

    if (!p) p = add(ps, b->producer_id);
    struct producers_undo *u = undo_push(ps, p, b);
    p->state.known = true;
    if (marker)
        apply_marker(ps, p, b, marker, u, out);
    else
        apply_data(ps, p, b, u);
}

/* ---- Publishing and taking back */

static void undo_trim(struct producers *ps)
{
    if (ps->undo_at < ps->undo_count) return;
    ps->undo_at = ps->undo_count = 0;
    if (ps->undo_cap <= UNDO_KEPT) return;
    mem_free(ps->undo);
    ps->undo = NULL;
    ps->undo_cap = 0;
}

void producers_publish(struct producers *ps, int64_t end)
{
    while (ps->undo_at < ps->undo_count && ps->undo[ps->undo_at].last_offset < end)
        ps->undo[ps->undo_at++].producer->queued--;
    undo_trim(ps);
}

/* Exchanges what the batch changed with what was there before; twice is nothing. */
static void undo_swap(struct producers_undo *u)
{
    struct producer *p = u->producer;
    struct producer_state state = p->state;
    struct producer_batch batch = p->batches[u->slot];
    p->state = u->state;
    p->batches[u->slot] = u->batch;
    u->state = state;
    u->batch = batch;
}

void producers_rollback(struct producers *ps)
{
    while (ps->undo_at < ps->undo_count) {
        struct producers_undo *u = &ps->undo[--ps->undo_count];
        struct producer *p = u->producer;
        undo_swap(u);
        if (u->txn_change == TXN_BEGAN) {
            list_remove(&p->txn_link);
        } else if (u->txn_change == TXN_ENDED) {
            ASSERT(ps->ended_count > ps->ended_at); /* what is not written is not replicated */
            ps->ended_count--;
            open_txn_insert(ps, p);
        }
        p->queued--;
        if (!p->state.known) {
            ASSERT(p->queued == 0);
            drop(ps, p);
        }
    }
    undo_trim(ps);
}

/* ---- Transactions */

int64_t producers_first_unstable(const struct producers *ps)
{
    struct list_node *oldest = list_first(&ps->open_txns);
    int64_t first = oldest ? producer_of_link(oldest)->state.txn_first_offset : NO_OFFSET;
    for (size_t i = ps->ended_at; i < ps->ended_count; i++)
        if (first == NO_OFFSET || ps->ended[i].first_offset < first) first = ps->ended[i].first_offset;
    return first;
}

void producers_replicated(struct producers *ps, int64_t high_watermark)
{
    while (ps->ended_at < ps->ended_count && ps->ended[ps->ended_at].last_offset < high_watermark) ps->ended_at++;
    if (ps->ended_at == ps->ended_count) {
        ps->ended_at = ps->ended_count = 0;
    } else if (ps->ended_at >= ps->ended_cap / 2) {
        ps->ended_count -= ps->ended_at;
        memmove(ps->ended, ps->ended + ps->ended_at, ps->ended_count * sizeof *ps->ended);
        ps->ended_at = 0;
    }
}

/* ---- Expiry and views */

static bool expired(const struct producer_state *s, int64_t now_ms, int64_t expiration_ms)
{
    int64_t idle_ms;
    if (s->txn_first_offset != NO_OFFSET) return false;
    if (__builtin_sub_overflow(now_ms, s->last_timestamp, &idle_ms)) return s->last_timestamp < 0;
    return idle_ms >= expiration_ms;
}

int64_t producers_expire(struct producers *ps, int64_t now_ms, int64_t expiration_ms)
{
    int64_t next_ms = INT64_MAX, latest_ms;
    if (__builtin_add_overflow(now_ms, expiration_ms, &latest_ms)) latest_ms = INT64_MAX;
    struct producer *p, *following;
    HASH_ITER(hh, ps->by_id, p, following)
    {
        if (p->queued == 0 && expired(&p->state, now_ms, expiration_ms)) {
            drop(ps, p);
            continue;
        }
        int64_t at_ms;
        if (__builtin_add_overflow(p->state.last_timestamp, expiration_ms, &at_ms) || at_ms <= now_ms)
            at_ms = latest_ms;
        next_ms = MIN(next_ms, MIN(at_ms, latest_ms));
    }
    return next_ms;
}

void producers_each(struct producers *ps, void (*each)(void *arg, const struct producer_view *p), void *arg)
{
    struct producer *p, *next;
    HASH_ITER(hh, ps->by_id, p, next)
    {
        const struct producer_batch *last = last_batch(p);
        each(arg, &(struct producer_view){
                      .producer_id = p->id,
                      .last_timestamp_ms = p->state.last_timestamp,
                      .txn_start_offset = p->state.txn_first_offset,
                      .last_offset = last ? last->last_offset : NO_OFFSET,
                      .last_sequence = last ? last->last_sequence : NO_SEQUENCE,
                      .coordinator_epoch = p->state.coordinator_epoch,
                      .producer_epoch = p->state.epoch,
                  });
    }
}

/* ---- Snapshots: version int16, CRC32C of what follows uint32, count int32, entries
 *
 * Kafka writes one entry a producer, and so forgets at each start all of its batches but the last: who then sends
 * several again that were under way, because another leader had stopped, is told that they are out of order, and gives
 * up.  We write the earlier ones as entries before it.  Kafka's reader lets a later entry of a producer replace an
 * earlier one, and so takes from our file what its own would say. */

enum { SNAPSHOT_VERSION = 1, SNAPSHOT_AT_CRC = 2, SNAPSHOT_AT_COUNT = 6, SNAPSHOT_AT_ENTRIES = 10 };
enum {
    ENTRY_AT_ID = 0,
    ENTRY_AT_EPOCH = 8,
    ENTRY_AT_LAST_SEQUENCE = 10,
    ENTRY_AT_LAST_OFFSET = 14,
    ENTRY_AT_OFFSET_DELTA = 22,
    ENTRY_AT_TIMESTAMP = 26,
    ENTRY_AT_COORDINATOR_EPOCH = 34,
    ENTRY_AT_TXN_FIRST_OFFSET = 38,
    ENTRY_SIZE = 46
};
/* Of each producer up to so many: a run of earlier sequences, the batches kept, the last one last. */
enum { PRODUCER_ENTRIES_MAX = 1 + PRODUCER_BATCHES_KEPT };

static void entry_encode(uint8_t *to, const struct producer_entry *e)
{
    put_be64(to + ENTRY_AT_ID, (uint64_t)e->producer_id);
    put_be16(to + ENTRY_AT_EPOCH, (uint16_t)e->producer_epoch);
    put_be32(to + ENTRY_AT_LAST_SEQUENCE, (uint32_t)e->last_sequence);
    put_be64(to + ENTRY_AT_LAST_OFFSET, (uint64_t)e->last_offset);
    put_be32(to + ENTRY_AT_OFFSET_DELTA, (uint32_t)e->offset_delta);
    put_be64(to + ENTRY_AT_TIMESTAMP, (uint64_t)e->timestamp);
    put_be32(to + ENTRY_AT_COORDINATOR_EPOCH, (uint32_t)e->coordinator_epoch);
    put_be64(to + ENTRY_AT_TXN_FIRST_OFFSET, (uint64_t)e->txn_first_offset);
}

/* The sequences of the run that lie before all batches kept, as if they had been one batch; false: there are none. */
static bool run_before(const struct producer *p, struct producer_batch *out)
{
    const struct producer_state *s = &p->state;
    if (s->batch_count == 0) return false;
    int64_t left = s->run;
    for (unsigned i = 0; i < s->batch_count; i++)
        left -= (int64_t)p->batches[(s->batch_first + i) % PRODUCER_BATCHES_KEPT].offset_delta + 1;
    const struct producer_batch *oldest = &p->batches[s->batch_first];
    int64_t end = oldest->last_offset - oldest->offset_delta;
    if (left <= 0 || end <= 0) return false;
    *out = (struct producer_batch){
        .last_sequence = (int32_t)(((uint32_t)batch_first_sequence(oldest) - 1) & INT32_MAX),
        .offset_delta = (int32_t)(left - 1),
        .last_offset = end - 1,
        .timestamp = oldest->timestamp,
    };
    return true;
}

/* Kafka's reader leaves out idle producers entry by entry: no earlier one may outlive the last.  Hence the timestamps.
 */
static uint8_t *entries_encode(uint8_t *at, const struct producer *p)
{
    const struct producer_state *s = &p->state;
    struct producer_batch list[PRODUCER_ENTRIES_MAX] = {{.last_sequence = NO_SEQUENCE, .last_offset = NO_OFFSET}};
    size_t count = run_before(p, &list[0]);
    for (unsigned i = 0; i < s->batch_count; i++)
        list[count++] = p->batches[(s->batch_first + i) % PRODUCER_BATCHES_KEPT];
    if (count == 0) count = 1; /* only its epoch is known */
    for (size_t i = 0; i < count; i++, at += ENTRY_SIZE) {
        bool last = i == count - 1;
        const struct producer_entry e = {
            .producer_id = p->id,
            .producer_epoch = s->epoch,
            .last_sequence = list[i].last_sequence,
            .last_offset = list[i].last_offset,
            .offset_delta = list[i].offset_delta,
            .timestamp = last ? s->last_timestamp : MIN(list[i].timestamp, s->last_timestamp),
            .coordinator_epoch = s->coordinator_epoch,
            .txn_first_offset = last ? s->txn_first_offset : NO_OFFSET,
        };
        entry_encode(at, &e);
    }
    return at;
}

void producers_snapshot_encode(struct producers *ps, int64_t offset, uint8_t **out, size_t *size)
{
    size_t from = ps->undo_count;
    while (from > ps->undo_at && ps->undo[from - 1].base_offset >= offset) undo_swap(&ps->undo[--from]);

    uint8_t *data = mem_alloc(SNAPSHOT_AT_ENTRIES + ps->count * PRODUCER_ENTRIES_MAX * ENTRY_SIZE);
    uint8_t *at = data + SNAPSHOT_AT_ENTRIES;
    for (struct producer *p = ps->by_id; p; p = p->hh.next)
        if (p->state.known) at = entries_encode(at, p);
    for (size_t i = from; i < ps->undo_count; i++) undo_swap(&ps->undo[i]);

    *size = (size_t)(at - data);
    put_be16(data, SNAPSHOT_VERSION);
    put_be32(data + SNAPSHOT_AT_COUNT, (uint32_t)((*size - SNAPSHOT_AT_ENTRIES) / ENTRY_SIZE));
    put_be32(data + SNAPSHOT_AT_CRC, crc32c(data + SNAPSHOT_AT_COUNT, *size - SNAPSHOT_AT_COUNT));
    *out = data;
}

static char *snapshot_path(const char *dir, int64_t offset)
{
    return mem_printf("%s/%020lld.snapshot", dir, (long long)offset);
}

enum err producers_snapshot_write(struct fs *fs, const char *dir, int64_t offset, const uint8_t *data, size_t size)
{
    char *path = snapshot_path(dir, offset);
    enum err e = fs_replace(fs, path, data, size);
    mem_free(path);
    return e;
}

static struct producer_entry entry_decode(const uint8_t *e)
{
    struct producer_entry entry = {
        .producer_id = (int64_t)get_be64(e + ENTRY_AT_ID),
        .producer_epoch = (int16_t)get_be16(e + ENTRY_AT_EPOCH),
        .last_sequence = (int32_t)get_be32(e + ENTRY_AT_LAST_SEQUENCE),
        .last_offset = (int64_t)get_be64(e + ENTRY_AT_LAST_OFFSET),
        .offset_delta = (int32_t)get_be32(e + ENTRY_AT_OFFSET_DELTA),
        .timestamp = (int64_t)get_be64(e + ENTRY_AT_TIMESTAMP),
        .coordinator_epoch = (int32_t)get_be32(e + ENTRY_AT_COORDINATOR_EPOCH),
        .txn_first_offset = (int64_t)get_be64(e + ENTRY_AT_TXN_FIRST_OFFSET),
    };
    if (entry.txn_first_offset < 0) entry.txn_first_offset = NO_OFFSET;
    return entry;
}

static enum err entry_take(struct producers *ps, const struct producer_entry *e)
{
    if (e->producer_id < 0 || e->offset_delta < 0 || e->last_sequence < NO_SEQUENCE) return ERR_CORRUPT;
    struct producer *p = find(ps, e->producer_id);
    if (!p) p = add(ps, e->producer_id);
    enter_epoch(p, e->producer_epoch);
    if (e->last_offset >= 0) {
        const struct producer_batch b = {e->last_sequence, e->offset_delta, e->last_offset, e->timestamp};
        keep_batch(p, next_slot(&p->state), e->last_sequence < 0 ? NO_SEQUENCE : batch_first_sequence(&b), &b);
    }
    p->state.last_timestamp = e->timestamp;
    p->state.coordinator_epoch = e->coordinator_epoch;
    p->state.known = true;
    if (p->state.txn_first_offset != NO_OFFSET) list_remove(&p->txn_link);
    p->state.txn_first_offset = e->txn_first_offset;
    if (e->txn_first_offset != NO_OFFSET) open_txn_insert(ps, p);
    return OK;
}

static enum err snapshot_check(const uint8_t *data, size_t size)
{
    if (size < SNAPSHOT_AT_ENTRIES || size > PRODUCERS_SNAPSHOT_SIZE_MAX) return ERR_CORRUPT;
    if (get_be16(data) != SNAPSHOT_VERSION) return ERR_CORRUPT;
    if (get_be32(data + SNAPSHOT_AT_CRC) != crc32c(data + SNAPSHOT_AT_COUNT, size - SNAPSHOT_AT_COUNT))
        return ERR_CORRUPT;
    if ((uint64_t)get_be32(data + SNAPSHOT_AT_COUNT) * ENTRY_SIZE != size - SNAPSHOT_AT_ENTRIES) return ERR_CORRUPT;
    return OK;
}

enum err producers_snapshot_each(const uint8_t *data, size_t size,
                                 void (*each)(void *arg, const struct producer_entry *entry, size_t pos), void *arg)
{
    enum err e = snapshot_check(data, size);
    for (size_t at = SNAPSHOT_AT_ENTRIES; at < size && !e; at += ENTRY_SIZE) {
        struct producer_entry entry = entry_decode(data + at);
        each(arg, &entry, at);
    }
    return e;
}

enum err producers_snapshot_decode(struct producers *ps, const uint8_t *data, size_t size, int64_t now_ms,
                                   int64_t expiration_ms)
{
    producers_clear(ps);
    enum err e = snapshot_check(data, size);
    for (size_t at = SNAPSHOT_AT_ENTRIES; at < size && !e; at += ENTRY_SIZE) {
        struct producer_entry entry = entry_decode(data + at);
        e = entry_take(ps, &entry);
    }
    if (!e) producers_expire(ps, now_ms, expiration_ms);
    if (e) producers_clear(ps);
    return e;
}

enum err producers_snapshot_read(struct producers *ps, struct fs *fs, const char *dir, int64_t offset, int64_t now_ms,
                                 int64_t expiration_ms)
{
    char *path = snapshot_path(dir, offset), *data = NULL;
    size_t size;
    producers_clear(ps);
    enum err e = fs_read_whole(fs, path, PRODUCERS_SNAPSHOT_SIZE_MAX, &data, &size);
    if (!e) e = producers_snapshot_decode(ps, (const uint8_t *)data, size, now_ms, expiration_ms);
    if (e == ERR_TOO_BIG) e = ERR_CORRUPT;
    mem_free(data);
    mem_free(path);
    return e;
}
