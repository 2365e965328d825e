/* named.h: what a request names more than once.
 *
 * Kafka turns the lists of a request into sets, or refuses what occurs twice.  Sorting finds repeats in n log n steps
 * whatever a client sends; a hash table could be made to degenerate by chosen names.  Thread: any. */
#ifndef BROKER_API_NAMED_H
#define BROKER_API_NAMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"

/* A topic, or one of its partitions, as a request names it. */
struct named {
    struct str topic; /* or the bytes of its id */
    int32_t partition;
    bool repeated; /* set by named_find_repeats(): it occurs more than once */
    bool again;    /* and this is not its first occurrence */
};

/* Sets the marks; the order of `items` stays. */
void named_find_repeats(struct named *items, size_t count, struct arena *arena);

#endif
