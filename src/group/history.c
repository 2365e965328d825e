/* history.c: why each of the last rebalances was, who began it, how long it took; and a line in the log for each. */
#include "base/utf8.h"
#include "group/group_internal.h"

#define LOG_MODULE "group"
#include "base/log.h"

enum { REASON_CHARS_MAX = 255 }; /* of a client's own: what Kafka's clients send at most */

static struct group_rebalance *newest(struct group *grp)
{
    return grp->rebalance_count > 0 ? &grp->rebalances[(grp->rebalance_count - 1) % REBALANCES_KEPT] : NULL;
}

static void clear(struct group_rebalance *r)
{
    mem_free(r->reason);
    mem_free(r->member_id);
    mem_free(r->client_id);
    *r = (struct group_rebalance){0};
}

void group_history_free(struct group *grp)
{
    for (int i = 0; i < REBALANCES_KEPT; i++) clear(&grp->rebalances[i]);
}

static char *reason_of(const struct group_cause *cause)
{
    if (cause->reason.size == 0) return mem_strdup(cause->what);
    if (!str_is_utf8(cause->reason)) return mem_printf("%s: its reason is no text", cause->what);
    /* A cut must not be within a character. */
    size_t size = MIN(cause->reason.size, REASON_CHARS_MAX);
    while (size > 0 && size < cause->reason.size && ((uint8_t)cause->reason.data[size] & 0xc0) == 0x80) size--;
    return mem_printf("%s: %.*s", cause->what, (int)size, cause->reason.data);
}

void group_history_begin(struct group *grp, const struct group_cause *cause)
{
    group_history_end(grp); /* one that another overtakes ends here */
    struct group_rebalance *r = &grp->rebalances[grp->rebalance_count++ % REBALANCES_KEPT];
    clear(r);
    r->started_wall_ms = grp->shard->wall_ms;
    r->started_ms = grp->shard->mono_ms;
    r->took_ms = -1;
    r->generation = -1;
    r->reason = reason_of(cause);
    r->member_id = str_is_null(cause->member_id) ? NULL : mem_strndup(cause->member_id.data, cause->member_id.size);
    r->client_id = mem_strndup(cause->client_id.data, cause->client_id.size);
    LOG_LIMITED(LOG_LEVEL_INFO, "group_rebalance", "group=%s at=start generation=%d members=%u member=%s reason=\"%s\"",
                grp->id, grp->generation, HASH_CNT(by_id, grp->members), r->member_id ? r->member_id : "", r->reason);
}

void group_history_dropped(struct group *grp)
{
    struct group_rebalance *r = newest(grp);
    if (r && r->took_ms < 0) r->dropped++;
}

void group_history_joined(struct group *grp)
{
    struct group_rebalance *r = newest(grp);
    if (r && r->took_ms < 0) r->generation = grp->generation;
}

void group_history_end(struct group *grp)
{
    struct group_rebalance *r = newest(grp);
    if (!r || r->took_ms >= 0) return;
    r->took_ms = grp->shard->mono_ms - r->started_ms;
    LOG_LIMITED(LOG_LEVEL_INFO, "group_rebalance",
                "group=%s at=end generation=%d members=%u state=%s took_ms=%lld dropped=%d", grp->id, grp->generation,
                HASH_CNT(by_id, grp->members), group_state_name(grp->state), (long long)r->took_ms, r->dropped);
}
