/* timer_heap.h: a loop's timers, a binary heap by due time; the order of setting breaks ties, so that a simulated run
 * repeats.  Setting and cancelling cost O(log n), because each timer knows its place.  Thread: as its owner. */
#ifndef OS_TIMER_HEAP_H
#define OS_TIMER_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include "os/loop.h"

/* The keys are kept beside the pointers: comparing touches no timer. */
struct timer_slot {
    int64_t due_us;
    uint64_t seq;
    struct timer *t;
};

/* Zeroed: empty. */
struct timer_heap {
    struct timer_slot *slots; /* slots[i] is timer i + 1's */
    size_t count, cap;
    uint64_t next_seq;
};

/* Unsets all timers and frees the heap. */
void timer_heap_fini(struct timer_heap *h);
void timer_heap_set(struct timer_heap *h, struct timer *t, int64_t due_us);
void timer_heap_cancel(struct timer_heap *h, struct timer *t);
/* INT64_MAX when there is none. */
int64_t timer_heap_due_us(const struct timer_heap *h);
/* Fires what is due by `now_us`; what is set meanwhile has to wait for the next call. */
void timer_heap_fire(struct timer_heap *h, int64_t now_us);

#endif
