/* named.c: equal items become neighbours of a sorted list of pointers. */
#include "broker/api/named.h"

#include <stdlib.h>

static bool same(const struct named *a, const struct named *b)
{
    return a->partition == b->partition && str_equal(a->topic, b->topic);
}

static int compare(const void *x, const void *y)
{
    const struct named *a = *(const struct named *const *)x, *b = *(const struct named *const *)y;
    int c = str_compare(a->topic, b->topic);
    if (c) return c;
    if (a->partition != b->partition) return a->partition < b->partition ? -1 : 1;
    return a < b ? -1 : a > b; /* in order of the request */
}

void named_find_repeats(struct named *items, size_t count, struct arena *arena)
{
    if (count < 2) return;
    struct named **sorted = arena_array(arena, struct named *, count);
    for (size_t i = 0; i < count; i++) sorted[i] = &items[i];
    qsort(sorted, count, sizeof(struct named *), compare);
    for (size_t i = 1; i < count; i++)
        if (same(sorted[i - 1], sorted[i])) sorted[i - 1]->repeated = sorted[i]->repeated = sorted[i]->again = true;
}
