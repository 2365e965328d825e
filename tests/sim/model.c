/* model.c: what was written to a partition, and what was promised of it. */
#include <string.h>

#include "base/mem.h"
#include "sim.h"

void sim_batches_add(struct sim_batches *bs, const uint8_t *bytes, size_t size)
{
    struct batch_info b;
    enum err e = batch_parse_header(&b, bytes, (int64_t)size);
    ASSERT(!e && (size_t)b.size == size);
    bs->list = mem_grow(bs->list, &bs->cap, bs->count + 1, sizeof *bs->list);
    uint8_t *copy = mem_alloc(size);
    memcpy(copy, bytes, size);
    bs->list[bs->count++] = (struct sim_batch){b.base_offset, batch_last_offset(&b), copy, size, false};
}

void sim_batches_cut(struct sim_batches *bs, size_t count)
{
    while (bs->count > count) mem_free(bs->list[--bs->count].bytes);
}

void sim_batches_take_out(struct sim_batches *bs, size_t from, size_t to)
{
    if (from >= to) return;
    for (size_t i = from; i < to; i++) mem_free(bs->list[i].bytes);
    memmove(bs->list + from, bs->list + to, (bs->count - to) * sizeof *bs->list);
    bs->count -= to - from;
}

void model_init(struct model *m)
{
    *m = (struct model){.cut_to = INT64_MAX};
}

void model_fini(struct model *m)
{
    sim_batches_cut(&m->batches, 0);
    sim_batches_cut(&m->ghosts, 0);
    mem_free(m->batches.list);
    mem_free(m->ghosts.list);
    model_init(m);
}

void model_copy(struct model *to, const struct model *from)
{
    *to = *from;
    to->batches = to->ghosts = (struct sim_batches){.count = 0};
    for (size_t i = 0; i < from->batches.count; i++) {
        sim_batches_add(&to->batches, from->batches.list[i].bytes, from->batches.list[i].size);
        to->batches.list[i].gone = from->batches.list[i].gone;
    }
    for (size_t i = 0; i < from->ghosts.count; i++)
        sim_batches_add(&to->ghosts, from->ghosts.list[i].bytes, from->ghosts.list[i].size);
}

size_t model_count_below(const struct model *m, int64_t offset)
{
    size_t low = 0, high = m->batches.count; /* batches below `low` end below the offset */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->batches.list[middle].last < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void model_append(struct model *m, const uint8_t *bytes, size_t size)
{
    sim_batches_add(&m->batches, bytes, size);
    m->end = m->batches.list[m->batches.count - 1].last + 1;
}

void model_ghost(struct model *m, const uint8_t *bytes, size_t size)
{
    sim_batches_add(&m->ghosts, bytes, size);
}

/* The end of the last batch below `offset`. */
static int64_t end_below(const struct model *m, int64_t offset)
{
    size_t count = model_count_below(m, offset);
    while (count > 0 && m->batches.list[count - 1].gone) count--;
    return count ? m->batches.list[count - 1].last + 1 : 0;
}

int64_t model_sure_end(const struct model *m)
{
    int64_t end = end_below(m, m->end);
    return MIN(end, m->cut_to);
}

void model_promise(struct model *m, int64_t offset)
{
    int64_t end = end_below(m, offset);
    m->durable = MAX(m->durable, end);
}

void model_may_end_at(struct model *m, int64_t end)
{
    m->durable = MIN(m->durable, end);
    m->cut_to = MIN(m->cut_to, end);
}

void model_truncate(struct model *m, int64_t end)
{
    sim_batches_cut(&m->batches, model_count_below(m, end));
    m->end = end;
    m->cut_to = INT64_MAX;
    m->durable = MIN(m->durable, end);
    m->start = MIN(m->start, end);
    m->start_max = MIN(m->start_max, end);
    m->start_promised = MIN(m->start_promised, end);
}

void model_replace(struct model *m, int64_t start, struct sim_batches *batches)
{
    sim_batches_cut(&m->batches, model_count_below(m, start));
    for (size_t i = 0; i < batches->count; i++)
        sim_batches_add(&m->batches, batches->list[i].bytes, batches->list[i].size);
    sim_batches_cut(batches, 0);
    mem_free(batches->list);
    *batches = (struct sim_batches){.count = 0};
}
