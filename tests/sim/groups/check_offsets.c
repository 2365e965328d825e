/* check_offsets.c: what is promised of committed offsets.
 *
 * The history of a partition has every attempt to change its offset, in the order in which the shard got them; their
 * records are in the log in this order.  What was answered well is safe: from then on only this attempt or a later one
 * is ever read, by whichever shard.  What was read once is as good as answered.  What was refused is never read. */
#include "base/mem.h"
#include "world.h"

static int64_t history_add(struct world *w, int group, int position, enum attempt_kind kind, int64_t value)
{
    struct history *h = &w->histories[group][position];
    h->attempts = mem_grow(h->attempts, &h->cap, h->count + 1, sizeof *h->attempts);
    h->attempts[h->count] = (struct attempt){.value = value, .wall_ms = wall_ms(w), .kind = kind};
    return (int64_t)h->count++;
}

void offsets_init(struct world *w)
{
    for (int g = 0; g < w->config.groups; g++) {
        for (int p = 0; p < POSITIONS; p++) {
            history_add(w, g, p, ATTEMPT_REMOVE, -1);
            w->histories[g][p].attempts[0].state = ATTEMPT_SAFE;
        }
    }
}

void offsets_may_go(struct world *w, int group, uint32_t positions)
{
    for (int p = 0; p < POSITIONS; p++)
        if (positions & BIT(p)) history_add(w, group, p, ATTEMPT_REMOVE, -1);
}

/* By Kafka's rules an offset expires after its retention since it was committed, or since the group was left. */
void offsets_may_expire(struct world *w)
{
    int64_t before_ms = wall_ms(w) - w->config.opt.offsets_retention_ms;
    for (int g = 0; g < w->config.groups; g++) {
        bool left = T0_MS + w->groups[g].members_seen_ms <= before_ms;
        for (int p = 0; p < POSITIONS; p++) {
            const struct history *h = &w->histories[g][p];
            bool old = left;
            for (size_t i = h->floor; i < h->count && !old; i++) old = h->attempts[i].wall_ms <= before_ms;
            if (old) offsets_may_go(w, g, BIT(p));
        }
    }
}

/* A removal of nothing writes nothing: records that are in the log and count for nothing yet are not removed by it. */
static bool has_surely(const struct history *h)
{
    if (h->attempts[h->floor].kind != ATTEMPT_COMMIT) return false;
    for (size_t i = h->floor + 1; i < h->count; i++)
        if (h->attempts[i].kind == ATTEMPT_REMOVE && h->attempts[i].state != ATTEMPT_REFUSED) return false;
    return true;
}

void offsets_given(struct world *w, struct request *rq)
{
    enum group_api api = rq->call.api;
    if (api == GROUP_DELETE) rq->positions = POSITIONS_ALL;
    for (int p = 0; p < POSITIONS; p++) {
        if (!(rq->positions & BIT(p))) continue;
        if (api == GROUP_FETCH) {
            rq->places[p] = (int64_t)w->histories[rq->group][p].floor;
        } else if (api == GROUP_COMMIT) {
            rq->places[p] = history_add(w, rq->group, p, ATTEMPT_COMMIT, rq->values[p]);
        } else {
            if (has_surely(&w->histories[rq->group][p])) rq->surely |= BIT(p);
            rq->places[p] = history_add(w, rq->group, p, ATTEMPT_REMOVE, -1);
        }
    }
}

static void attempt_ended(struct world *w, const struct request *rq, int position, enum kerr kerr)
{
    struct history *h = &w->histories[rq->group][position];
    size_t place = (size_t)rq->places[position];
    struct attempt *a = &h->attempts[place];
    if (kerr) {
        if (rq->at_once) a->state = ATTEMPT_REFUSED;
        return;
    }
    if (a->kind == ATTEMPT_REMOVE && (place <= h->floor || !(rq->surely & BIT(position)))) return;
    a->state = ATTEMPT_SAFE;
    h->floor = MAX(h->floor, place);
}

/* It goes on until it finds nothing any more, and takes what is committed meanwhile with it. */
static bool is_being_deleted(const struct world *w, int group)
{
    for (size_t i = 0; i < w->request_count; i++) {
        const struct request *rq = w->requests[i];
        if (rq->state == REQUEST_GIVEN && rq->call.api == GROUP_DELETE && rq->group == group) return true;
    }
    return false;
}

static void check_fetched(struct world *w, const struct request *rq, int position,
                          const struct offset_fetch_response_offset_fetch_response_partitions *part)
{
    struct history *h = &w->histories[rq->group][position];
    int64_t value = part ? part->committed_offset : -1;
    for (size_t i = (size_t)rq->places[position]; i < h->count; i++) {
        const struct attempt *a = &h->attempts[i];
        if (a->state == ATTEMPT_REFUSED || a->value != value) continue;
        if (value < 0) return;
        struct str metadata = arena_printf(rq->call.arena, "m%" PRId64, value);
        if (part->committed_leader_epoch != value % 1000 || !str_equal(part->metadata, metadata))
            wrong(w, "offset %" PRId64 " comes with the epoch %d and the metadata '%.*s'", value,
                  part->committed_leader_epoch, STR_ARG(part->metadata));
        h->floor = MAX(h->floor, i);
        return;
    }
    if (value < 0 && is_being_deleted(w, rq->group)) return;
    wrong(w, "%.*s has the offset %" PRId64 " in partition %d, but %" PRId64 " was safe",
          STR_ARG(group_name(rq->group)), value, position, h->attempts[rq->places[position]].value);
}

static void answered_fetch(struct world *w, struct request *rq)
{
    const fetch_response *out = &rq->out.fetch;
    const struct offset_fetch_response_offset_fetch_response_partitions *found[POSITIONS] = {NULL};
    if (out->error_code) return;
    for (int i = 0; i < out->topics_count; i++) {
        int t = str_equal(out->topics[i].name, topic_name(0)) ? 0 : 1;
        if (!str_equal(out->topics[i].name, topic_name(t))) wrong(w, "an offset of a topic that there is not");
        for (int k = 0; k < out->topics[i].partitions_count; k++) {
            int p = out->topics[i].partitions[k].partition_index;
            if (p < 0 || p >= TOPIC_PARTITIONS || found[t * TOPIC_PARTITIONS + p])
                wrong(w, "an offset of partition %d, unasked or twice", p);
            else
                found[t * TOPIC_PARTITIONS + p] = &out->topics[i].partitions[k];
        }
    }
    for (int p = 0; p < POSITIONS; p++) {
        if (!(rq->positions & BIT(p))) {
            if (found[p]) wrong(w, "an offset of a partition that was not asked for");
        } else if (!found[p] && rq->in.fetch.topics_count >= 0) {
            wrong(w, "a partition is left out of the answer");
        } else if (!found[p] || !found[p]->error_code) {
            check_fetched(w, rq, p, found[p]);
        }
    }
}

static void answered_commit(struct world *w, const struct request *rq)
{
    const struct offset_commit_response *out = &rq->out.commit;
    for (int t = 0; t < out->topics_count; t++)
        for (int k = 0; k < out->topics[t].partitions_count; k++)
            attempt_ended(w, rq, t * TOPIC_PARTITIONS + out->topics[t].partitions[k].partition_index,
                          (enum kerr)out->topics[t].partitions[k].error_code);
}

static void answered_delete_offset(struct world *w, const struct request *rq)
{
    const struct offset_delete_response *out = &rq->out.delete_offset;
    for (int p = 0; p < POSITIONS && out->error_code; p++)
        if (rq->positions & BIT(p)) attempt_ended(w, rq, p, (enum kerr)out->error_code);
    for (int t = 0; t < out->topics_count && !out->error_code; t++)
        for (int k = 0; k < out->topics[t].partitions_count; k++)
            attempt_ended(w, rq, t * TOPIC_PARTITIONS + out->topics[t].partitions[k].partition_index,
                          (enum kerr)out->topics[t].partitions[k].error_code);
}

void offsets_answered(struct world *w, struct request *rq)
{
    switch (rq->call.api) {
    case GROUP_FETCH: answered_fetch(w, rq); return;
    case GROUP_COMMIT: answered_commit(w, rq); return;
    case GROUP_DELETE_OFFSET: answered_delete_offset(w, rq); return;
    case GROUP_DELETE:
        for (int p = 0; p < POSITIONS; p++) attempt_ended(w, rq, p, (enum kerr)rq->out.deleted.error_code);
        if (!rq->at_once) offsets_may_go(w, rq->group, POSITIONS_ALL);
        return;
    default: return;
    }
}
