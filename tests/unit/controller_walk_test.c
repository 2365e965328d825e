/* controller: random things happen to a cluster of four, one after the other or at once.  After each the store is
 * looked at: what a partition's state promises must hold, whatever happened.
 *
 *   1. A leader is in sync, who is in sync holds a replica, somebody is always in sync.
 *   2. Leader epochs and partition epochs only grow; one leader an epoch.
 *   3. A new leader was in sync before, but where it is allowed that it was not.
 *   4. Nobody leads whose registration is gone; nobody who was there and in sync is left without a leader.
 *   5. The controller's tables are what the store has.
 *   6. An in-sync change that is answered with success is what it asked for; one with an old epoch is refused. */
#include "base/log.h"
#include "controller_trio.h"

/* xorshift */
struct walk_rng {
    struct rng rng;
    uint64_t state;
};

static void walk_rng_fill(struct rng *r, void *out, size_t size)
{
    struct walk_rng *wr = CONTAINER_OF(r, struct walk_rng, rng);
    for (size_t i = 0; i < size; i++) {
        wr->state ^= wr->state << 13;
        wr->state ^= wr->state >> 7;
        wr->state ^= wr->state << 17;
        ((uint8_t *)out)[i] = (uint8_t)(wr->state >> 32);
    }
}

static bool ids_are_in(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

enum { SEEDS = 60, STEPS = 120, TOPICS = 3, PARTITIONS = 3, FIRST = 2, LAST = 4 };

struct seen {
    struct znode_state state;
    int32_t isr[BROKERS_MAX];
    int32_t version; /* -1: not seen yet */
};

struct walk {
    struct trio *tr;
    struct rng *rng;
    struct world *eye; /* a session that nothing happens to */
    struct seen seen[TOPICS][PARTITIONS];
    bool unreachable[BROKERS_MAX];
    bool shut_down[BROKERS_MAX];
    bool away;  /* the controller's session is over */
    bool voted; /* an unclean election was asked for since the last look */
    int events; /* since the last look */
    char log[STEPS * 80];
};

static const char *const topic_names[TOPICS] = {"a", "b", "c"};

static void say(struct walk *wk, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(struct walk *wk, const char *fmt, ...)
{
    size_t n = strlen(wk->log);
    va_list args;
    va_start(args, fmt);
    vsnprintf(wk->log + n, sizeof wk->log - n, fmt, args);
    va_end(args);
}

static int32_t below(struct walk *wk, int32_t n)
{
    return (int32_t)rng_below(wk->rng, (uint64_t)n);
}

static void turn(struct walk *wk, int turns)
{
    for (int i = 0; i < turns; i++) loop_turn(wk->tr->cl->w->loop, 0);
}

static void walk_settle(struct walk *wk)
{
    settle(wk->eye);
    settle(wk->eye);
}

static void walk_fail(struct walk *wk, int t, int32_t p, const char *cond)
{
    fputs(wk->log, stderr); /* cmocka would cut it */
    fail_msg("%s/%d: %s", topic_names[t], p, cond);
}

#define HOLDS(cond)                              \
    do {                                         \
        if (!(cond)) walk_fail(wk, t, p, #cond); \
    } while (0)

/* --- what is checked --- */

static bool is_registered(struct walk *wk, int32_t id)
{
    char path[32];
    snprintf(path, sizeof path, "/brokers/ids/%d", id);
    return call_exists(wk->eye, path, COORD_NO_WATCH).r.err == OK;
}

static void look_at_tables(struct walk *wk, int t, int32_t p, const struct znode_state *zs, int32_t version)
{
    struct controller_topic ct;
    HOLDS(controller_find_topic(wk->tr->cl->c, str_of(topic_names[t]), &ct));
    const struct controller_partition *cp = &ct.partitions[p];
    HOLDS(cp->leader == zs->leader && cp->leader_epoch == zs->leader_epoch && cp->state_version == version);
    HOLDS(cp->isr_count == zs->isr_count);
    for (int32_t i = 0; i < zs->isr_count; i++) {
        HOLDS(ids_are_in(cp->isr, cp->isr_count, zs->isr[i]));
        HOLDS(ids_are_in(cp->replicas, cp->replica_count, zs->isr[i]));
    }
    if (zs->leader >= 0) HOLDS(is_registered(wk, zs->leader));
    for (int32_t i = 0; i < zs->isr_count && zs->leader < 0; i++) {
        int32_t id = zs->isr[i];
        HOLDS(!is_registered(wk, id) || wk->unreachable[id] || wk->shut_down[id]);
    }
}

/* Topic b is set so, or an operator wanted it. */
static bool may_be_unclean(const struct walk *wk, int t)
{
    return t == 1 || wk->voted;
}

static void look_at_partition(struct walk *wk, int t, int32_t p)
{
    struct seen *sn = &wk->seen[t][p];
    struct arena a;
    struct znode_state zs;
    struct fault f = {0};
    char path[64];
    snprintf(path, sizeof path, "/brokers/topics/%s/partitions/%d/state", topic_names[t], p);
    struct answer an = call_get(wk->eye, path, COORD_NO_WATCH);
    HOLDS(an.r.err == OK);
    arena_init(&a, SIZE_MAX);
    HOLDS(znode_state_decode(&a, str_of(path), an.r.data, &zs, &f) == OK);
    HOLDS(zs.isr_count > 0 && zs.isr_count < BROKERS_MAX);
    HOLDS(zs.leader == -1 || ids_are_in(zs.isr, zs.isr_count, zs.leader));
    if (sn->version >= 0) {
        HOLDS(an.r.stat.version >= sn->version);
        HOLDS(zs.leader_epoch >= sn->state.leader_epoch);
        HOLDS(zs.controller_epoch >= sn->state.controller_epoch);
        HOLDS(zs.leader_epoch > sn->state.leader_epoch || zs.leader == sn->state.leader);
        if (wk->events == 1 && zs.leader >= 0 && zs.leader != sn->state.leader)
            HOLDS(may_be_unclean(wk, t) || ids_are_in(sn->isr, sn->state.isr_count, zs.leader));
    }
    if (!wk->away) look_at_tables(wk, t, p, &zs, an.r.stat.version);
    sn->state = zs;
    sn->version = an.r.stat.version;
    memcpy(sn->isr, zs.isr, (size_t)zs.isr_count * sizeof *zs.isr);
    arena_fini(&a);
}

static void look(struct walk *wk)
{
    walk_settle(wk);
    if (!wk->away && controller_state(wk->tr->cl->c) != CONTROLLER_ACTIVE) walk_fail(wk, 0, 0, "in office");
    for (int t = 0; t < TOPICS; t++)
        for (int32_t p = 0; p < PARTITIONS; p++) look_at_partition(wk, t, p);
    wk->events = 0;
    wk->voted = false;
}

/* --- what happens --- */

static void lose(struct walk *wk, int32_t id)
{
    if (!wk->tr->sessions[id]) return;
    say(wk, "lose %d\n", id);
    coord_memory_expire(wk->tr->cl->w->memory, coord_session_id(wk->tr->sessions[id]->c));
    session_free(wk->tr->sessions[id]);
    wk->tr->sessions[id] = NULL;
    wk->unreachable[id] = wk->shut_down[id] = false;
    wk->events++;
}

static void join(struct walk *wk, int32_t id)
{
    if (wk->tr->sessions[id]) return;
    say(wk, "join %d\n", id);
    wk->tr->sessions[id] = session_new(wk->tr->cl->w);
    register_broker(wk->tr->sessions[id], id, NULL);
    wk->events++;
}

static void restart(struct walk *wk, int32_t id)
{
    if (!wk->tr->sessions[id]) return;
    say(wk, "restart %d\n", id);
    char path[32];
    snprintf(path, sizeof path, "/brokers/ids/%d", id);
    coord_memory_hold(wk->tr->cl->w->memory, true, false);
    call_delete(wk->eye, path, COORD_ANY_VERSION);
    register_broker(wk->tr->sessions[id], id, NULL);
    coord_memory_release(wk->tr->cl->w->memory);
    wk->unreachable[id] = wk->shut_down[id] = false;
    wk->events++;
}

static int64_t walk_epoch(struct walk *wk, int32_t id)
{
    char path[32];
    snprintf(path, sizeof path, "/brokers/ids/%d", id);
    return call_exists(wk->eye, path, COORD_NO_WATCH).r.stat.czxid;
}

static void reach(struct walk *wk, int32_t id)
{
    struct controller *c = wk->tr->cl->c;
    if (!wk->tr->sessions[id] || wk->away) return;
    walk_settle(wk); /* it must know the process */
    wk->unreachable[id] = !wk->unreachable[id];
    say(wk, "%s %d\n", wk->unreachable[id] ? "unreachable" : "reachable", id);
    if (wk->unreachable[id])
        controller_broker_unreachable(c, id, walk_epoch(wk, id));
    else
        controller_broker_reachable(c, id, walk_epoch(wk, id));
    wk->events++;
}

/* A random set of brokers, one that is there at least. */
static int32_t some_brokers(struct walk *wk, int32_t *ids)
{
    int32_t n = 0, start = below(wk, LAST);
    for (int32_t i = 0; i < LAST; i++)
        if (n == 0 || below(wk, 2)) ids[n++] = (start + i) % LAST + 1;
    return n;
}

static void alter_isr(struct walk *wk)
{
    int t = below(wk, TOPICS);
    int32_t p = below(wk, PARTITIONS);
    look(wk);
    const struct seen *sn = &wk->seen[t][p];
    struct alter_partition_request_partition_data ap = alter_partition_request_partition_data_default;
    struct alter_partition_request_topic_data at = alter_partition_request_topic_data_default;
    struct alter_partition_response out = alter_partition_response_default;
    int32_t isr[LAST], count = some_brokers(wk, isr), broker = sn->state.leader;
    bool old_leader = below(wk, 5) == 0, old_partition = below(wk, 5) == 0;
    if (below(wk, 5) == 0) broker = 1 + below(wk, LAST);
    if (broker < 0) return;
    ap.partition_index = p;
    ap.leader_epoch = sn->state.leader_epoch - old_leader;
    ap.partition_epoch = sn->version - old_partition;
    ap.new_isr = isr;
    ap.new_isr_count = count;
    at.topic_name = str_of(topic_names[t]);
    at.partitions = &ap;
    at.partitions_count = 1;
    struct alter_partition_request in = {broker, walk_epoch(wk, broker), &at, 1};
    struct asked as = {.w = wk->eye};
    say(wk, "alter %s/%d by %d epoch %d/%d isr %d of %d...\n", topic_names[t], p, broker, ap.leader_epoch,
        ap.partition_epoch, isr[0], count);
    controller_alter_partition(wk->tr->cl->c, &in, 1, &out, asked_rq(&as));
    asked_wait(&as);
    wk->events += 2; /* it may finish a reassignment */
    if (out.error_code) {
        HOLDS(wk->away || !is_registered(wk, broker));
        return;
    }
    int16_t code = out.topics[0].partitions[0].error_code;
    if (old_leader) HOLDS(code == KERR_FENCED_LEADER_EPOCH);
    if (broker != sn->state.leader) HOLDS(code != KERR_NONE);
    /* Of an old partition epoch only what is so already is granted. */
    if (old_partition && !code) HOLDS(out.topics[0].partitions[0].partition_epoch == sn->version);
    int32_t before = sn->version;
    if (code) return;
    look(wk);
    if (sn->version > before + 1) return; /* it has finished a reassignment */
    HOLDS(sn->state.isr_count == count && sn->state.leader == broker);
    for (int32_t i = 0; i < count; i++) HOLDS(ids_are_in(sn->isr, count, isr[i]));
}

static void stop(struct walk *wk, int32_t id)
{
    struct controlled_shutdown_request in = {id, -1};
    struct controlled_shutdown_response out = controlled_shutdown_response_default;
    struct asked as = {.w = wk->eye};
    say(wk, "stop %d\n", id);
    controller_controlled_shutdown(wk->tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    if (!out.error_code) wk->shut_down[id] = true;
    wk->events++;
}

static void move(struct walk *wk)
{
    int t = below(wk, TOPICS);
    int32_t ids[LAST], count = below(wk, 4) ? some_brokers(wk, ids) : -1;
    struct alter_partition_reassignments_request_reassignable_partition rp = {below(wk, PARTITIONS), ids, count};
    struct alter_partition_reassignments_request_reassignable_topic rt = {str_of(topic_names[t]), &rp, 1};
    struct alter_partition_reassignments_request in = alter_partition_reassignments_request_default;
    struct alter_partition_reassignments_response out = alter_partition_reassignments_response_default;
    struct asked as = {.w = wk->eye};
    in.topics = &rt;
    in.topics_count = 1;
    say(wk, "reassign %s/%d to %d of %d...\n", topic_names[t], rp.partition_index, count > 0 ? ids[0] : -1, count);
    controller_alter_reassignments(wk->tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    wk->events++;
}

static void vote(struct walk *wk)
{
    int t = below(wk, TOPICS);
    int32_t p = below(wk, PARTITIONS);
    struct elect_leaders_request_topic_partitions tp = {str_of(topic_names[t]), &p, 1};
    struct elect_leaders_request in = elect_leaders_request_default;
    struct elect_leaders_response out = elect_leaders_response_default;
    struct asked as = {.w = wk->eye};
    in.election_type = (int8_t)below(wk, 2);
    in.topic_partitions = &tp;
    in.topic_partitions_count = 1;
    wk->voted = wk->voted || in.election_type;
    say(wk, "elect %s/%d %s\n", topic_names[t], p, in.election_type ? "unclean" : "preferred");
    controller_elect_leaders(wk->tr->cl->c, &in, &out, asked_rq(&as));
    asked_wait(&as);
    wk->events++;
}

/* Who is reachable, and who is about to stop, is what one office knows: the next one finds out anew. */
static void office_taken(struct walk *wk)
{
    memset(wk->unreachable, 0, sizeof wk->unreachable);
    memset(wk->shut_down, 0, sizeof wk->shut_down);
}

static void depose(struct walk *wk)
{
    say(wk, "depose\n");
    call_delete(wk->eye, "/controller", COORD_ANY_VERSION);
    walk_settle(wk);
    office_taken(wk);
    wk->events += 2;
}

static void blink(struct walk *wk)
{
    struct cluster *cl = wk->tr->cl;
    int64_t session = coord_session_id(cl->w->c);
    int32_t epoch = controller_epoch(cl->c);
    if (wk->away) return;
    say(wk, "blink\n");
    coord_memory_delay(cl->w->memory, session, true);
    if (below(wk, 2)) lose(wk, FIRST + below(wk, LAST - FIRST + 1));
    for (int i = below(wk, 12); i > 0; i--) {
        turn(wk, 5);
        coord_memory_run(cl->w->memory, session, 1);
    }
    turn(wk, 5);
    coord_memory_disconnect(cl->w->memory, session, (size_t)below(wk, 3));
    coord_memory_delay(cl->w->memory, session, false);
    turn(wk, 5);
    coord_memory_reconnect(cl->w->memory, session);
    walk_settle(wk);
    if (controller_epoch(cl->c) != epoch) office_taken(wk);
    wk->events += 2;
}

static void expire(struct walk *wk)
{
    struct cluster *cl = wk->tr->cl;
    if (wk->away) return;
    say(wk, "expire\n");
    coord_memory_expire(cl->w->memory, coord_session_id(cl->w->c));
    turn(wk, below(wk, 10));
    controller_session_lost(cl->c);
    wk->away = true;
    wk->events += 2;
}

static void renew(struct walk *wk)
{
    struct cluster *cl = wk->tr->cl;
    if (!wk->away) return;
    say(wk, "renew\n");
    coord_renew(cl->w->c);
    register_broker(cl->w, 1, NULL);
    controller_session_renewed(cl->c);
    wk->away = false;
    office_taken(wk);
    wk->events += 2;
}

static void step(struct walk *wk)
{
    int32_t id = FIRST + below(wk, LAST - FIRST + 1);
    switch (below(wk, 14)) {
    case 0:
    case 1: lose(wk, id); break;
    case 2:
    case 3: join(wk, id); break;
    case 4: restart(wk, id); break;
    case 5: reach(wk, id); break;
    case 6:
    case 7:
    case 8: alter_isr(wk); break;
    case 9: stop(wk, id); break;
    case 10: move(wk); break;
    case 11: vote(wk); break;
    case 12:
        if (below(wk, 2))
            depose(wk);
        else
            blink(wk);
        break;
    default: expire(wk); break;
    }
    if (wk->away && below(wk, 3) == 0) renew(wk);
    turn(wk, below(wk, 4));
    if (below(wk, 4)) look(wk);
}

static void make_topics(struct walk *wk)
{
    for (int t = 0; t < TOPICS; t++) {
        assert_int_equal(create_topic(wk->tr->cl, topic_names[t], PARTITIONS, (int16_t)(2 + t % 2)).kerr, KERR_NONE);
        for (int32_t p = 0; p < PARTITIONS; p++) wk->seen[t][p].version = -1;
    }
    call_set(wk->eye, "/config/topics/b", "{\"version\":1,\"config\":{\"unclean.leader.election.enable\":\"true\"}}",
             COORD_ANY_VERSION);
}

static void walk_once(uint64_t seed)
{
    void *state;
    trio_setup(&state);
    struct walk *wk = mem_zalloc(1, sizeof *wk);
    struct walk_rng rng = {{walk_rng_fill}, seed * 0x9E3779B97F4A7C15u + 1};
    *wk = (struct walk){.tr = state, .rng = &rng.rng, .eye = session_new(((struct trio *)state)->cl->w)};
    wk->tr->cl->endless = true;
    say(wk, "seed %llu\n", (unsigned long long)seed);
    trio_join(wk->tr, 4);
    make_topics(wk);
    look(wk);
    for (int i = 0; i < STEPS; i++) step(wk);
    renew(wk);
    for (int32_t id = FIRST; id <= LAST; id++) join(wk, id);
    look(wk);
    session_free(wk->eye);
    mem_free(wk);
    trio_teardown(&state);
}

static void what_a_state_promises_holds_whatever_happens(void **state)
{
    (void)state;
    const char *one = getenv("WALK_SEED");
    if (one)
        walk_once(strtoull(one, NULL, 10));
    else
        for (uint64_t seed = 1; seed <= SEEDS; seed++) walk_once(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_state_promises_holds_whatever_happens)};
    log_init(NULL, NULL, getenv("WALK_SEED") ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
