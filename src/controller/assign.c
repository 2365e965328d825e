/* assign.c: round robin with a growing shift. */
#include "controller/assign.h"

#include <stdbool.h>
#include <stdlib.h>

/* Where the next replica of a partition stands, `n` steps after its first one; never on the first one itself. */
static size_t step_from(size_t first, uint64_t shift, uint64_t n, size_t broker_count)
{
    ASSERT(broker_count > 1);
    return (first + 1 + (size_t)((shift + n) % (broker_count - 1))) % broker_count;
}

struct placing {
    const struct assign_broker **order; /* the brokers as they are gone round */
    size_t count, rack_count;           /* rack_count 0: racks do not matter */
};

static bool rack_is_used(const struct placing *p, const int32_t *replicas, size_t placed, struct str rack)
{
    for (size_t r = 0; r < placed; r++)
        for (size_t i = 0; i < p->count; i++)
            if (p->order[i]->id == replicas[r] && str_equal(p->order[i]->rack, rack)) return true;
    return false;
}

static size_t racks_used(const struct placing *p, const int32_t *replicas, size_t placed)
{
    size_t used = 0;
    for (size_t r = 0; r < placed; r++) {
        for (size_t i = 0; i < p->count; i++) {
            if (p->order[i]->id != replicas[r]) continue;
            if (!rack_is_used(p, replicas, r, p->order[i]->rack)) used++;
        }
    }
    return used;
}

static bool broker_is_used(const int32_t *replicas, size_t placed, int32_t id)
{
    for (size_t r = 0; r < placed; r++)
        if (replicas[r] == id) return true;
    return false;
}

static void place_one(const struct placing *p, size_t first, uint64_t shift, int16_t replication_factor, int32_t *out)
{
    size_t placed = 0;
    out[placed++] = p->order[first]->id;
    for (uint64_t n = 0; placed < (size_t)replication_factor; n++) {
        const struct assign_broker *b =
            p->order[step_from(first, p->rack_count ? shift * p->rack_count : shift, n, p->count)];
        if (p->rack_count) {
            /* A rack gets its second replica when every rack has one; a broker never does. */
            if (broker_is_used(out, placed, b->id)) continue;
            if (rack_is_used(p, out, placed, b->rack) && racks_used(p, out, placed) < p->rack_count) continue;
        }
        out[placed++] = b->id;
    }
}

static int compare_racks(const void *a, const void *b)
{
    const struct assign_broker *x = a, *y = b;
    int c = str_compare(x->rack, y->rack);
    return c ? c : (x->id > y->id) - (x->id < y->id);
}

/* Puts brokers of different racks next to each other: first of each rack, second of each rack, ... */
static size_t alternate_racks(const struct assign_broker **order, size_t count, struct arena *a)
{
    struct assign_broker *sorted = arena_array(a, struct assign_broker, count);
    for (size_t i = 0; i < count; i++) sorted[i] = *order[i];
    qsort(sorted, count, sizeof *sorted, compare_racks);
    size_t racks = 0, at = 0;
    for (size_t i = 0; i < count; i++) racks += i == 0 || !str_equal(sorted[i].rack, sorted[i - 1].rack);
    for (size_t round = 0; at < count; round++) {
        size_t in_rack = 0;
        for (size_t i = 0; i < count; i++) {
            in_rack = i > 0 && str_equal(sorted[i].rack, sorted[i - 1].rack) ? in_rack + 1 : 0;
            if (in_rack == round) order[at++] = &sorted[i];
        }
    }
    return racks;
}

enum kerr assign_replicas(const struct assign_request *rq, struct arena *a, int32_t **out, struct str *message)
{
    if (rq->partition_count <= 0) {
        *message = STR("Number of partitions must be larger than 0.");
        return KERR_INVALID_PARTITIONS;
    }
    if (rq->replication_factor <= 0) {
        *message = STR("Replication factor must be larger than 0.");
        return KERR_INVALID_REPLICATION_FACTOR;
    }
    if ((size_t)rq->replication_factor > rq->broker_count) {
        *message = arena_printf(a, "Replication factor: %d larger than available brokers: %zu.", rq->replication_factor,
                                rq->broker_count);
        return KERR_INVALID_REPLICATION_FACTOR;
    }
    struct placing p = {.count = rq->broker_count};
    bool racks = true;
    p.order = arena_array(a, const struct assign_broker *, p.count);
    for (size_t i = 0; i < p.count; i++) {
        p.order[i] = &rq->brokers[i];
        racks = racks && !str_is_null(rq->brokers[i].rack);
    }
    if (racks) p.rack_count = alternate_racks(p.order, p.count, a);

    uint64_t start = rq->fixed_start >= 0 ? (uint64_t)rq->fixed_start : rng_below(rq->rng, p.count);
    uint64_t shift = rq->fixed_start >= 0 ? (uint64_t)rq->fixed_start : rng_below(rq->rng, p.count);
    size_t factor = (size_t)rq->replication_factor;
    int32_t *all = arena_array(a, int32_t, (size_t)rq->partition_count * factor);
    for (size_t i = 0; i < (size_t)rq->partition_count; i++) {
        uint64_t partition = (uint64_t)rq->first_partition + i;
        if (partition > 0 && partition % p.count == 0) shift++;
        place_one(&p, (size_t)((partition + start) % p.count), shift, rq->replication_factor, all + i * factor);
    }
    *out = all;
    return KERR_NONE;
}
