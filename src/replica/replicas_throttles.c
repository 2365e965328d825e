/* replicas_throttles.c: which partitions are throttled here while they are replicated (KIP-73).
 *
 * A topic lists them as PARTITION:BROKER, or * for all; what names this broker counts. */
#include "base/mem.h"
#include "replica/replicas_internal.h"

/* The next number at *at, which is moved behind it and one character more; -1: there is none. */
static int32_t take_number(const char **at)
{
    int64_t n = -1;
    const char *c = *at;
    for (; *c >= '0' && *c <= '9' && n <= INT32_MAX; c++) n = MAX(n, 0) * 10 + (*c - '0');
    *at = *c ? c + 1 : c;
    return n <= INT32_MAX ? (int32_t)n : -1;
}

static void mark(struct partition *p, uint8_t bit, uint8_t *marks)
{
    if (p) marks[p->index] |= bit;
}

static void mark_listed(const struct replicas *r, const struct topic_replicas *t, const char *list, uint8_t bit,
                        uint8_t *marks)
{
    if (!list) return;
    while (*list == ' ') list++;
    for (int32_t i = 0; *list == '*' && i < t->capacity; i++) mark(topic_partition(t, i), bit, marks);
    while (*list && *list != '*') {
        while (*list == ' ') list++;
        int32_t partition = take_number(&list), broker = take_number(&list);
        if (broker == r->broker_id) mark(topic_partition(t, partition), bit, marks);
    }
}

void replicas_mark_throttled(struct replicas *r, struct topic_replicas *t, struct partition *only)
{
    if (!r->opt.throttles_of) return;
    struct topic_throttles lists = {0};
    r->opt.throttles_of(r->opt.settings_arg, str_of(t->name), &lists);
    uint8_t *marks = mem_zalloc((size_t)t->capacity, 1);
    mark_listed(r, t, lists.as_leader, THROTTLED_AS_LEADER, marks);
    mark_listed(r, t, lists.as_follower, THROTTLED_AS_FOLLOWER, marks);
    bool changed = false;
    for (int32_t i = 0; i < t->capacity; i++) {
        struct partition *p = topic_partition(t, i);
        if (!p || (only && p != only)) continue;
        changed |= (atomic_exchange(&p->throttled, marks[i]) ^ marks[i]) & THROTTLED_AS_FOLLOWER;
    }
    mem_free(marks);
    mem_free(lists.as_leader);
    mem_free(lists.as_follower);
    const struct following *fw = &r->opt.following;
    if (changed && !only && fw->throttled_changed) fw->throttled_changed(fw->arg);
}
