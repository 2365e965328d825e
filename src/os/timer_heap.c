/* timer_heap.c: the heap's two moves, up and down, and what is made of them.
 *
 * Always: no slot is before its parent, and slots[t->heap_index - 1].t == t for each timer that is set. */
#include "os/timer_heap.h"

#include "base/mem.h"

static bool is_before(const struct timer_slot *a, const struct timer_slot *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->seq < b->seq;
}

static void put(struct timer_heap *h, size_t at, struct timer_slot slot)
{
    h->slots[at] = slot;
    slot.t->heap_index = at + 1;
}

/* Finds the place for `slot`, from the hole `at` towards the root. */
static void move_up(struct timer_heap *h, size_t at, struct timer_slot slot)
{
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!is_before(&slot, &h->slots[parent])) break;
        put(h, at, h->slots[parent]);
        at = parent;
    }
    put(h, at, slot);
}

/* The same towards the leaves. */
static void move_down(struct timer_heap *h, size_t at, struct timer_slot slot)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && is_before(&h->slots[child + 1], &h->slots[child])) child++;
        if (!is_before(&h->slots[child], &slot)) break;
        put(h, at, h->slots[child]);
        at = child;
    }
    put(h, at, slot);
}

static void place(struct timer_heap *h, size_t at, struct timer_slot slot)
{
    if (at > 0 && is_before(&slot, &h->slots[(at - 1) / 2]))
        move_up(h, at, slot);
    else
        move_down(h, at, slot);
}

void timer_heap_fini(struct timer_heap *h)
{
    for (size_t i = 0; i < h->count; i++) h->slots[i].t->heap_index = 0;
    mem_free(h->slots);
    *h = (struct timer_heap){0};
}

void timer_heap_set(struct timer_heap *h, struct timer *t, int64_t due_us)
{
    t->due_us = due_us;
    struct timer_slot slot = {.due_us = due_us, .seq = h->next_seq++, .t = t};
    if (timer_is_set(t)) {
        place(h, t->heap_index - 1, slot);
        return;
    }
    h->slots = mem_grow(h->slots, &h->cap, h->count + 1, sizeof *h->slots);
    move_up(h, h->count++, slot);
}

void timer_heap_cancel(struct timer_heap *h, struct timer *t)
{
    if (!timer_is_set(t)) return;
    size_t at = t->heap_index - 1;
    ASSERT(at < h->count && h->slots[at].t == t);
    t->heap_index = 0;
    struct timer_slot last = h->slots[--h->count];
    if (last.t != t) place(h, at, last);
}

int64_t timer_heap_due_us(const struct timer_heap *h)
{
    return h->count > 0 ? h->slots[0].due_us : INT64_MAX;
}

void timer_heap_fire(struct timer_heap *h, int64_t now_us)
{
    uint64_t seq_end = h->next_seq;
    /* A new timer at the top hides at most what is due no earlier than itself: that fires in the next turn. */
    while (h->count > 0 && h->slots[0].due_us <= now_us && h->slots[0].seq < seq_end) {
        struct timer *t = h->slots[0].t;
        timer_heap_cancel(h, t);
        t->fire(t);
    }
}
