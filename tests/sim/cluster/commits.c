/* commits.c: what consumer groups were promised: offsets that were acknowledged are found again, and whoever has been
 * fenced is not heard.
 *
 * A generation lasts when a commit in it was acknowledged: what it is stands before that in the log.  One that a
 * coordinator has read from the end of its log, and told its members of, may be lost with it (Apache Kafka reads as
 * far).
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
    struct group_model *g = group_of(w, o->member);
    int client = o->member->client.index;
    int32_t generation = o->asked.generation;
    tell(w, "client %d has committed %" PRId64 " of partition %d in generation %d of %s", client, o->value,
         o->partition, generation, g->name);
    if (generation < o->asked.lasting)
        wrong(w, "broker %d lets client %d commit in generation %d of %s, which is in generation %d", o->asked.node + 1,
              client, generation, g->name, o->asked.lasting);
    if (c->acked && generation == c->acked_generation && client != c->acked_client)
        wrong(w, "clients %d and %d both have partition %d in generation %d of %s", c->acked_client, client,
              o->partition, generation, g->name);
    g->lasting = MAX(g->lasting, generation);
    if (o->value < c->acked) return; /* the answer came late */
    c->acked = o->value;
    c->acked_generation = generation;
    c->acked_client = client;
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
