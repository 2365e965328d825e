/* commits.c: what consumer groups were promised: offsets that were acknowledged are found again, and whoever has been
 * fenced is not heard.
 *
 * A commit that nobody answered may be written later than the one that its sender made next, over another connection,
 * as long as the generation lasts: such a one alone may stand where a newer one has been acknowledged. */
#include "world.h"

static struct group_model *group_of(struct world *w, const struct member *m)
{
    return &w->groups[m->group];
}

static struct commit_model *commits_of(struct world *w, const struct ownership *o)
{
    return &group_of(w, o->member)->parts[o->partition];
}

/* A group without members and offsets is forgotten, and begins anew with its first generation. */
static bool lasts(const struct group_model *g)
{
    for (int p = 0; p < PARTITIONS_MAX; p++)
        if (g->parts[p].acked) return true;
    return false;
}

void check_synced(struct world *w, struct member *m, bool by_coordinator)
{
    struct group_model *g = group_of(w, m);
    tell(w, "client %d has partitions %x of generation %d of %s", m->client.index, m->owned, m->generation, g->name);
    if (lasts(g) && m->generation < m->asked.synced && by_coordinator)
        wrong(w, "client %d is in generation %d of %s, which was in generation %d", m->client.index, m->generation,
              g->name, m->asked.synced);
    for (int i = 0; i < w->member_count; i++) {
        const struct member *o = &w->members[i];
        if (o == m || o->group != m->group || o->generation != m->generation || !(o->owned & m->owned)) continue;
        wrong(w, "clients %d and %d both have partitions %x in generation %d of %s", o->client.index, m->client.index,
              o->owned & m->owned, m->generation, g->name);
    }
    g->synced = lasts(g) ? MAX(g->synced, m->generation) : m->generation;
}

/* Those of earlier generations cannot be written any more. */
static void forget_doubts(struct commit_model *c)
{
    size_t left = 0;
    for (size_t i = 0; i < c->doubt_count; i++)
        if (c->doubts[i].generation >= c->acked_generation) c->doubts[left++] = c->doubts[i];
    c->doubt_count = left;
}

void check_committed(struct world *w, const struct ownership *o)
{
    struct commit_model *c = commits_of(w, o);
    const struct group_model *g = group_of(w, o->member);
    tell(w, "client %d has committed %" PRId64 " of partition %d in generation %d of %s", o->member->client.index,
         o->value, o->partition, o->asked.generation, g->name);
    if (o->asked.generation < o->asked.synced)
        wrong(w, "broker %d lets client %d commit in generation %d of %s, which is in generation %d", o->asked.node + 1,
              o->member->client.index, o->asked.generation, g->name, o->asked.synced);
    if (o->value < c->acked) return; /* the answer came late */
    c->acked = o->value;
    c->acked_generation = o->asked.generation;
    forget_doubts(c);
}

void check_in_doubt(struct world *w, const struct ownership *o)
{
    struct commit_model *c = commits_of(w, o);
    if (o->asked.generation < c->acked_generation) return;
    c->doubts = mem_grow(c->doubts, &c->doubt_cap, c->doubt_count + 1, sizeof *c->doubts);
    c->doubts[c->doubt_count].value = o->value;
    c->doubts[c->doubt_count++].generation = o->asked.generation;
}

static bool is_in_doubt(const struct commit_model *c, int64_t value)
{
    for (size_t i = 0; i < c->doubt_count; i++)
        if (c->doubts[i].value == value) return true;
    return false;
}

void check_read(struct world *w, const struct ownership *o, int64_t offset)
{
    struct commit_model *c = commits_of(w, o);
    const struct group_model *g = group_of(w, o->member);
    int64_t value = MAX(offset, 0);
    if (value > c->sent)
        wrong(w, "broker %d tells that %s has committed %" PRId64 " of partition %d, which nobody has",
              o->asked.node + 1, g->name, value, o->partition);
    if (value >= o->asked.floor) return;
    if (is_in_doubt(c, value)) {
        tell(w, "%" PRId64 " of partition %d was committed late in %s", value, o->partition, g->name);
        c->acked = MIN(c->acked, value);
        return;
    }
    wrong(w, "broker %d tells that %s has committed %" PRId64 " of partition %d, after %" PRId64 " was acknowledged",
          o->asked.node + 1, g->name, value, o->partition, o->asked.floor);
}
