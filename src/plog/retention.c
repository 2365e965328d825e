/* retention.c: see retention.h. */
#include "plog/retention.h"

void retention_begin(struct retention *r, const struct retention_rules *rules, int64_t size)
{
    *r = (struct retention){.rules = *rules};
    r->excess = rules->retention_bytes < 0 ? INT64_MIN : size - rules->retention_bytes;
}

/* The first moment at which a record of `newest_ms` is older than retention.ms. */
static int64_t due(const struct retention_rules *rules, int64_t newest_ms)
{
    int64_t at;
    if (__builtin_add_overflow(newest_ms, rules->retention_ms, &at) || at == INT64_MAX) return INT64_MAX;
    return at + 1;
}

/* Where none of the rules that delete holds. */
static enum retention_verdict keep(const struct retention_rules *rules)
{
    return rules->cleanup_delete ? RETENTION_KEEP_LIMITS : RETENTION_KEEP_POLICY;
}

static enum retention_verdict judge(const struct retention *r, const struct retention_segment *seg,
                                    const struct retention_opinion *o)
{
    const struct retention_rules *rules = &r->rules;
    if (seg->last && seg->size == 0) return RETENTION_KEEP_EMPTY; /* one segment there must be */
    if (seg->end > rules->below) return RETENTION_KEEP_ABOVE;
    if (!seg->last && seg->end <= rules->log_start) return RETENTION_GO_START;
    if (o->more_bytes <= 0) return RETENTION_GO_SIZE;
    if (o->due_ms <= rules->now_ms) return RETENTION_GO_TIME;
    return keep(rules);
}

enum err retention_next(struct retention *r, const struct retention_segment *seg, retention_newest newest, void *arg,
                        struct retention_opinion *out)
{
    const struct retention_rules *rules = &r->rules;
    struct retention_opinion o = {.due_ms = INT64_MAX, .more_bytes = INT64_MAX};
    bool by_size = rules->cleanup_delete && rules->retention_bytes >= 0;
    if (by_size) o.more_bytes = seg->size - r->excess;
    o.verdict = judge(r, seg, &o);
    bool asks = !retention_goes(o.verdict) && o.verdict != RETENTION_KEEP_EMPTY;
    if (asks && rules->cleanup_delete && rules->retention_ms >= 0) {
        int64_t newest_ms;
        enum err e = newest(arg, &newest_ms);
        if (e) return e;
        o.due_ms = due(rules, newest_ms);
        o.verdict = judge(r, seg, &o);
    }
    if (r->kept && retention_goes(o.verdict)) o.verdict = RETENTION_KEEP_BEHIND;
    r->kept |= !retention_goes(o.verdict);
    if (by_size) r->excess -= seg->size;
    *out = o;
    return OK;
}
