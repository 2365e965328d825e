/* settle.c: faults have ended.  Every group becomes stable with exactly the clients that run, which own all that they
 * subscribe to, and stays so; committed offsets are there, also for the next shard; and when nobody is left, the group
 * is empty, expires and is gone. */
#include "base/mem.h"
#include "world.h"

/* A member that died is noticed after its session, or when it does not join; who joined with it starts over; and what
 * was on its way, a move among it, has its own time. */
enum { LOOK_MS = 200, SLACK_MS = 8000, LONGEST_MS = 10 * 1000 };

static uint32_t subscribed(const struct client *c)
{
    uint32_t set = 0;
    for (int t = 0; t < TOPICS; t++)
        if (c->topics & BIT(t)) set |= (BIT(TOPIC_PARTITIONS) - 1) << (t * TOPIC_PARTITIONS);
    return set;
}

/* What the clients of a group know of it. */
struct settled {
    int running;
    bool good;
    int32_t generation;
    uint32_t owned, wanted;
};

static struct settled clients_settled(const struct world *w, int group)
{
    struct settled s = {.good = true, .generation = -1};
    for (int i = 0; i < w->config.clients; i++) {
        const struct client *c = &w->clients[i];
        if (c->group != group || c->state == CLIENT_DOWN) continue;
        if (s.running++ == 0) s.generation = c->generation;
        s.good &= c->state == CLIENT_STABLE && c->generation == s.generation && !(s.owned & c->owned);
        s.owned |= c->owned;
        s.wanted |= subscribed(c);
    }
    s.good &= s.owned == s.wanted;
    return s;
}

static bool is_described(const described_group *out, const char *id)
{
    for (int i = 0; i < out->members_count; i++)
        if (str_is(out->members[i].member_id, id)) return true;
    return false;
}

/* The shard agrees: these members, no other, and the state that goes with them. */
static bool shard_settled(struct world *w, int group, struct settled s)
{
    struct request *rq = request_new(w, GROUP_DESCRIBE, group);
    request_ask(w, rq);
    if (w->failed) return false;
    const described_group *out = &rq->out.describe;
    struct str want = s.running ? STR("Stable") : STR("Empty");
    say(w, "%.*s is %.*s and has %d members, %d clients run", STR_ARG(group_name(group)), STR_ARG(out->group_state),
        out->members_count, s.running);
    bool good = out->members_count == s.running && (out->error_code || str_equal(out->group_state, want));
    if (out->error_code) good &= s.running == 0;
    for (int i = 0; i < w->config.clients && good; i++) {
        const struct client *c = &w->clients[i];
        if (c->group == group && c->state != CLIENT_DOWN) good = is_described(out, c->id);
    }
    request_free(w, rq);
    return good;
}

static bool is_settled(struct world *w)
{
    if (w->host.state != HOST_UP) return false;
    for (int g = 0; g < w->config.groups; g++) {
        struct settled s = clients_settled(w, g);
        if (!s.good || !shard_settled(w, g, s)) return false;
    }
    return true;
}

static void run_for(struct world *w, int64_t ms)
{
    int64_t until_ms = w->now_ms + ms;
    while (world_turn(w, until_ms)) {
    }
}

static void run_until_settled(struct world *w, const char *what)
{
    int64_t until_ms = w->now_ms + 2 * LONGEST_MS + w->config.opt.initial_delay_ms + SLACK_MS;
    while (!w->failed && !is_settled(w)) {
        if (w->now_ms >= until_ms) {
            for (int g = 0; g < w->config.groups; g++) {
                struct settled s = clients_settled(w, g);
                if (!s.good || !shard_settled(w, g, s))
                    wrong(w, "%.*s is stuck %s: %d clients run, own %x and want %x", STR_ARG(group_name(g)), what,
                          s.running, s.owned, s.wanted);
            }
        }
        run_for(w, LOOK_MS);
    }
    check_deadlines(w);
    say(w, "all is settled %s", what);
}

/* For longer than any timer that could still be running; but who was held up by slow answers, and sends its heartbeat
 * too late for that, may be lost before. */
static void stay_settled(struct world *w)
{
    int32_t before[GROUPS_MAX];
    run_for(w, LONGEST_MS / 2);
    run_until_settled(w, "again");
    for (int g = 0; g < w->config.groups; g++) before[g] = clients_settled(w, g).generation;
    run_for(w, LONGEST_MS + LOOK_MS);
    for (int g = 0; g < w->config.groups && !w->failed; g++) {
        struct settled s = clients_settled(w, g);
        if (s.generation != before[g] || !s.good || !shard_settled(w, g, s))
            wrong(w, "%.*s was settled and has not stayed so", STR_ARG(group_name(g)));
    }
}

static void check_offsets(struct world *w)
{
    for (int g = 0; g < w->config.groups && !w->failed; g++) {
        struct request *rq = request_new(w, GROUP_FETCH, g);
        request_fill_fetch(rq, POSITIONS_ALL, one_in(w, 2));
        request_ask(w, rq);
        if (!w->failed) request_free(w, rq);
    }
}

/* Of topics that members subscribe to nothing expires. */
static void expire_while_stable(struct world *w)
{
    for (int g = 0; g < w->config.groups; g++) {
        uint32_t kept = clients_settled(w, g).wanted;
        offsets_may_go(w, g, POSITIONS_ALL & ~kept);
    }
    group_shard_expire(w->host.shard);
    run_for(w, LOOK_MS);
    check_offsets(w);
}

/* Another coordinator, and everybody stays where it was. */
static void move_while_stable(struct world *w)
{
    host_move(w, one_in(w, 2));
    run_until_settled(w, "after a move");
    if (!w->failed) check_offsets(w);
}

/* Everybody dies; in the end nothing is left. */
static void all_end(struct world *w)
{
    for (int i = 0; i < w->config.clients; i++) client_crash(w, &w->clients[i], false);
    run_until_settled(w, "without clients");
    if (w->failed) return;
    check_offsets(w);
    for (int g = 0; g < w->config.groups; g++) offsets_may_go(w, g, POSITIONS_ALL);
    w->now_ms += w->config.opt.offsets_retention_ms + 1000;
    for (size_t i = 0; i < w->event_count; i++) w->events[i].at_ms = MAX(w->events[i].at_ms, w->now_ms);
    host_tick(w);
    group_shard_expire(w->host.shard);
    run_for(w, LOOK_MS);
    group_shard_expire(w->host.shard);
    run_for(w, LOOK_MS);
    if (w->failed) return;
    if (group_shard_count(w->host.shard)) {
        wrong(w, "%zu groups stay when all has expired", group_shard_count(w->host.shard));
        return;
    }
    if (w->config.write_fails_one_in) return; /* a write that failed and is in the log may bring something back */
    host_move(w, false);
    while (!w->failed && w->host.state != HOST_UP) run_for(w, LOOK_MS);
    if (!w->failed && group_shard_count(w->host.shard)) wrong(w, "expired groups come back");
}

/* For an assignment that a stranger made nobody is to blame.  And a static member that is to give partitions up to
 * others, as cooperative ones do step by step, and is started again meanwhile, does not know: in Kafka too they stay
 * without an owner until the group assigns anew. */
static void start_over(struct world *w)
{
    for (int g = 0; g < w->config.groups; g++)
        if (w->config.hostile || w->config.cooperative[g]) disturb_static_members(w, g, true);
    for (int i = 0; i < w->config.clients && w->config.hostile; i++) {
        struct client *c = &w->clients[i];
        if (c->instance < 0) client_subscribe(w, c, c->topics ^ 3 ? c->topics ^ 3 : 1);
    }
}

void settle(struct world *w)
{
    say(w, "---- faults have ended");
    w->calm = true;
    /* What sleeps sleeps on, what is slow on its way arrives. */
    int64_t awake_ms = w->now_ms;
    for (int i = 0; i < w->config.clients; i++) awake_ms = MAX(awake_ms, w->clients[i].paused_until_ms + 1);
    for (size_t i = 0; i < w->event_count; i++) {
        const struct event *ev = &w->events[i];
        if (ev->kind != EVENT_CLIENT || ev->timer == TIMER_ACT) awake_ms = MAX(awake_ms, ev->at_ms + 1);
    }
    run_for(w, awake_ms - w->now_ms);
    while (!w->failed && w->host.state != HOST_UP) run_for(w, LOOK_MS);
    start_over(w);
    run_for(w, LOOK_MS);
    run_until_settled(w, "after the faults");
    if (w->failed) return;
    check_offsets(w);
    switch (draw(w, 6)) {
    case 0: stay_settled(w); break;
    case 1: expire_while_stable(w); break;
    case 2: move_while_stable(w); break;
    default: break;
    }
    if (!w->failed && one_in(w, 2)) all_end(w);
}
