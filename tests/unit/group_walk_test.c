/* group_walk_test.c: random walks of a few clients, some of them hostile or unlucky, through one group.
 *
 * After each step the invariants at the top of group_internal.h hold; every call is answered once, or dropped; members
 * are told what the log says; and when all behave again, the group becomes stable within its timeouts. */
#include "group_world.h"

enum { WALKS = 2000, STEPS = 60, CLIENTS = 4, SESSION_MS = 8000, REBALANCE_MS = 15000, RECORD_MEMBERS_MAX = 64 };
/* A rebalance that waits for the unlucky, a generation that waits for those who do not sync, and another rebalance,
 * each with ids that were given out and the initial delay. */
enum { SETTLE_MS = 3 * REBALANCE_MS + 2 * SESSION_MS + 3 * 3000 };

enum stage { OUT, JOINING, JOINED, SYNCING, IN };

struct client {
    const char *id; /* in the arena of a call, as all that a client knows */
    const char *instance;
    int16_t version;
    enum stage stage;
    int32_t generation;
    struct world_call *call;         /* waits */
    const struct world_call *joined; /* its last good JoinGroup */
};

/* What a group's newest safe record says. */
struct log_state {
    bool any;
    int32_t generation;
    int count;
    struct {
        char id[80], assignment[80];
    } members[RECORD_MEMBERS_MAX];
};

struct walk {
    struct group_world w;
    uint64_t seed;
    struct client clients[CLIENTS];
    struct log_state log;
    int32_t assigning_generation; /* who was asked to assign in it */
    char assigning[80];
    int reentries;
};

static uint64_t draw(struct walk *k)
{
    k->seed ^= k->seed << 13;
    k->seed ^= k->seed >> 7;
    k->seed ^= k->seed << 17;
    return k->seed * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static unsigned below(struct walk *k, unsigned bound)
{
    return (unsigned)(draw(k) % bound);
}

/* ---- The log */

static void log_take(struct walk *k, const struct group_write *gw)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct reader r = reader_of(gw->records[0].value.data, gw->records[0].value.size);
    struct group_metadata_value v;
    int16_t version;
    assert_int_equal(group_metadata_value_decode_prefixed(&v, &version, &r, &a), OK);
    assert_true(v.members_count <= RECORD_MEMBERS_MAX);
    assert_true(!k->log.any || v.generation >= k->log.generation);
    k->log = (struct log_state){.any = true, .generation = v.generation, .count = v.members_count};
    for (int32_t i = 0; i < v.members_count; i++) {
        snprintf(k->log.members[i].id, sizeof k->log.members[i].id, "%.*s", STR_ARG(v.members[i].member_id));
        snprintf(k->log.members[i].assignment, sizeof k->log.members[i].assignment, "%.*s",
                 (int)v.members[i].assignment.size, (const char *)v.members[i].assignment.data);
    }
    arena_fini(&a);
}

static void write_one(struct walk *k, enum kerr kerr)
{
    struct list_node *n = list_first(&k->w.writes);
    if (!n) return;
    if (!kerr) log_take(k, CONTAINER_OF(n, struct group_write, node));
    world_written(&k->w, kerr);
}

/* (4) */
static void check_told(struct walk *k, const struct world_call *c)
{
    assert_true(k->log.any);
    assert_int_equal(k->log.generation, c->sync_in.generation_id);
    for (int i = 0; i < k->log.count; i++) {
        if (!str_is(c->sync_in.member_id, k->log.members[i].id)) continue;
        assert_int_equal(c->sync_out.assignment.size, strlen(k->log.members[i].assignment));
        assert_memory_equal(c->sync_out.assignment.data, k->log.members[i].assignment, c->sync_out.assignment.size);
        return;
    }
    fail_msg("the log has no member %s", c->sync_in.member_id.data);
}

/* One member is asked to assign in a generation. */
static void check_asked(struct walk *k, const struct world_call *c)
{
    const struct join_group_response *out = &c->join_out;
    if (out->members_count == 0 || out->skip_assignment) return;
    assert_string_equal(out->leader.data, out->member_id.data);
    if (out->generation_id == k->assigning_generation) assert_string_equal(out->member_id.data, k->assigning);
    k->assigning_generation = out->generation_id;
    snprintf(k->assigning, sizeof k->assigning, "%s", out->member_id.data);
}

static void on_answer(struct group_world *w, struct world_call *c)
{
    struct walk *k = w->arg;
    if (c->call.api == GROUP_SYNC && c->sync_out.error_code == KERR_NONE) check_told(k, c);
    if (c->call.api == GROUP_JOIN && c->join_out.error_code == KERR_NONE) check_asked(k, c);
    /* The host goes on with the next request of the connection. */
    if (k->reentries > 0 && below(k, 4) == 0) {
        k->reentries--;
        if (below(k, 2))
            world_join(w, (struct world_join){.version = 3, .session_ms = SESSION_MS, .rebalance_ms = REBALANCE_MS});
        else
            world_heartbeat(w, (struct world_heartbeat){.member = "nobody"});
    }
}

/* ---- What always holds */

static void check_member(struct walk *k, struct group *grp, struct group_member *m)
{
    /* (2) */
    assert_ptr_equal(group_member_find(grp, str_of(m->id)), m);
    if (m->instance_id) assert_ptr_equal(group_member_find_static(grp, str_of(m->instance_id)), m);
    /* (3) */
    assert_false(m->joining && m->syncing);
    if (m->join) assert_true(m->joining && m->join->member == m);
    if (m->sync) assert_true(m->syncing && m->sync->member == m);
    if (m->joining) assert_true(grp->state == GROUP_PREPARING || (grp->state == GROUP_STABLE && m->instance_id));
    if (m->syncing) assert_true(grp->state == GROUP_COMPLETING && !m->sync_due);
    if (m->sync_due) assert_true(grp->state == GROUP_COMPLETING || grp->state == GROUP_STABLE);
    if (m->proposed.data) assert_non_null(grp->assignment_write);
    /* Somebody ends its time. */
    if (m->is_new || (!m->joining && !m->syncing)) {
        assert_true(timer_is_set(&m->session));
        assert_true(m->session_ends_ms > k->w.now_ms);
        assert_true(m->session.due_us <= m->session_ends_ms);
    }
}

static void check_votes(struct group *grp)
{
    for (const struct group_vote *v = grp->votes; v; v = v->hh.next) {
        int32_t supporters = 0;
        for (const struct group_member *m = grp->members; m; m = m->by_id.next)
            for (int32_t i = 0; i < m->protocol_count; i++) supporters += str_is(m->protocols[i].name, v->name);
        assert_int_equal(v->supporters, supporters);
        assert_true(supporters > 0);
    }
}

static void check_group(struct walk *k, struct group *grp)
{
    int32_t joining = 0, syncs_due = 0;
    unsigned instances = 0;
    for (struct group_member *m = grp->members; m; m = m->by_id.next) {
        check_member(k, grp, m);
        joining += m->joining;
        syncs_due += m->sync_due;
        instances += m->instance_id != NULL;
    }
    assert_int_equal(grp->joining, joining);
    assert_int_equal(grp->syncs_due, syncs_due);
    assert_int_equal(HASH_CNT(by_instance, grp->static_members), instances);
    check_votes(grp);
    assert_int_equal(grp->leader != NULL, grp->members != NULL);
    if (grp->leader) assert_non_null(group_member_find(grp, str_of(grp->leader)));
    /* (1): each state has what it is about. */
    assert_int_equal(timer_is_set(&grp->join_timer), grp->state == GROUP_PREPARING);
    assert_int_equal(timer_is_set(&grp->sync_timer), syncs_due > 0);
    if (grp->assignment_write) assert_int_equal(grp->state, GROUP_COMPLETING);
    if (grp->state == GROUP_EMPTY) assert_null(grp->members);
    if (grp->state == GROUP_COMPLETING || grp->state == GROUP_STABLE) {
        assert_non_null(grp->members);
        assert_non_null(grp->protocol);
    }
    /* (6) */
    if (grp->state == GROUP_EMPTY && grp->generation == 0) assert_true(grp->pending || grp->writes > 0);
}

static void check(struct walk *k)
{
    for (struct group *grp = k->w.sh->groups; grp; grp = grp->hh.next) check_group(k, grp);
    assert_true(list_is_empty(&k->w.sh->answered));
    LIST_EACH (&k->w.calls, node) {
        const struct world_call *c = CONTAINER_OF(node, struct world_call, node);
        bool waits = list_has(&c->call.waiting);
        assert_int_equal(waits, c->answers == 0 && !c->dropped);
        if (!waits) continue;
        const struct group_member *m = c->call.member;
        assert_true(m && (m->join == &c->call || m->sync == &c->call));
    }
}

/* ---- Clients */

static void client_join(struct walk *k, struct client *c, const char *protocols)
{
    c->stage = JOINING;
    c->call = world_join(&k->w, (struct world_join){.member = c->id,
                                                    .instance = c->instance,
                                                    .version = c->version,
                                                    .protocols = protocols,
                                                    .session_ms = SESSION_MS,
                                                    .rebalance_ms = REBALANCE_MS});
}

static void client_sync(struct walk *k, struct client *c)
{
    char assignments[4096] = "";
    const struct join_group_response *out = &c->joined->join_out;
    for (int32_t i = 0; i < out->members_count && !out->skip_assignment; i++) {
        size_t used = strlen(assignments);
        snprintf(assignments + used, sizeof assignments - used, "%s%s=%d.%u", used ? "," : "",
                 out->members[i].member_id.data, out->generation_id, below(k, 100));
    }
    c->stage = SYNCING;
    c->call = world_sync(&k->w, (struct world_sync){.member = c->id,
                                                    .instance = c->instance,
                                                    .generation = c->generation,
                                                    .type = out->protocol_type.data,
                                                    .protocol = out->protocol_name.data,
                                                    .assignments = assignments[0] ? assignments : NULL});
}

static void client_lost(struct client *c, int16_t code)
{
    bool forgotten =
        code == KERR_UNKNOWN_MEMBER_ID || code == KERR_FENCED_INSTANCE_ID || code == KERR_GROUP_MAX_SIZE_REACHED;
    if (forgotten) c->id = NULL;
    c->stage = OUT;
}

static void client_joined(struct client *c)
{
    const struct join_group_response *out = &c->call->join_out;
    if (out->error_code == KERR_MEMBER_ID_REQUIRED) {
        c->id = out->member_id.data;
        c->stage = OUT;
    } else if (out->error_code) {
        client_lost(c, out->error_code);
    } else {
        c->id = out->member_id.data;
        c->generation = out->generation_id;
        c->joined = c->call;
        c->stage = JOINED;
    }
}

/* Takes note of its answer, if it has come. */
static void client_look(struct client *c)
{
    if (!c->call || c->call->answers == 0) return;
    if (c->stage == JOINING)
        client_joined(c);
    else if (c->call->sync_out.error_code)
        client_lost(c, c->call->sync_out.error_code);
    else
        c->stage = IN;
    c->call = NULL;
}

static void client_beat(struct walk *k, struct client *c)
{
    struct world_call *beat = world_heartbeat(
        &k->w, (struct world_heartbeat){.member = c->id, .instance = c->instance, .generation = c->generation});
    assert_int_equal(beat->answers, 1);
    if (beat->heartbeat_out.error_code) client_lost(c, beat->heartbeat_out.error_code);
}

/* What a good client does next. */
static void client_go_on(struct walk *k, struct client *c, const char *protocols)
{
    client_look(c);
    switch (c->stage) {
    case OUT: client_join(k, c, protocols); break;
    case JOINED: client_sync(k, c); break;
    case IN: client_beat(k, c); break;
    case JOINING:
    case SYNCING: break;
    }
    client_look(c);
}

static void client_hang_up(struct walk *k, struct client *c)
{
    client_look(c);
    if (!c->call) return;
    world_drop(&k->w, c->call);
    c->call = NULL;
    c->stage = OUT;
}

/* Another process in its place, which knows nothing. */
static void client_restart(struct walk *k, struct client *c)
{
    client_hang_up(k, c);
    c->id = NULL;
    c->stage = OUT;
}

static void client_leave(struct walk *k, struct client *c)
{
    client_hang_up(k, c);
    if (!c->id) return;
    world_leave(&k->w, (struct world_leave){.who = {{.member = c->id, .instance = c->instance}}});
    c->id = NULL;
    c->stage = OUT;
}

/* ---- The walk */

static const char *const protocols_of[] = {"range=r", "sticky=s,range=r", "range=new,sticky=s"};

/* Somebody asks with what it overheard, or made up. */
static void be_hostile(struct walk *k)
{
    const struct client *c = &k->clients[below(k, CLIENTS)];
    int32_t generation = (int32_t)below(k, 6) - 1;
    const char *instance = below(k, 2) ? c->instance : "stolen";
    switch (below(k, 4)) {
    case 0:
        world_sync(&k->w, (struct world_sync){.member = c->id, .instance = instance, .generation = generation});
        break;
    case 1:
        world_heartbeat(&k->w,
                        (struct world_heartbeat){.member = c->id, .instance = instance, .generation = generation});
        break;
    case 2: world_join(&k->w, (struct world_join){.member = c->id, .instance = instance, .type = "connect"}); break;
    case 3: world_join(&k->w, (struct world_join){.session_ms = SESSION_MS, .rebalance_ms = REBALANCE_MS}); break;
    }
}

static enum kerr outcome(struct walk *k)
{
    static const enum kerr failures[] = {KERR_NOT_ENOUGH_REPLICAS, KERR_REQUEST_TIMED_OUT, KERR_MESSAGE_TOO_LARGE,
                                         KERR_KAFKA_STORAGE_ERROR};
    return below(k, 4) ? KERR_NONE : failures[below(k, ARRAY_COUNT(failures))];
}

static void step(struct walk *k)
{
    struct client *c = &k->clients[below(k, CLIENTS)];
    switch (below(k, 16)) {
    case 0: client_hang_up(k, c); break;
    case 1: client_restart(k, c); break;
    case 2: client_leave(k, c); break;
    case 3: be_hostile(k); break;
    case 4: k->reentries += 2; break;
    case 5: world_advance(&k->w, below(k, 12000)); break;
    case 6:
    case 7: world_advance(&k->w, below(k, 3000)); break;
    case 8:
    case 9: write_one(k, outcome(k)); break;
    default: client_go_on(k, c, protocols_of[below(k, ARRAY_COUNT(protocols_of))]); break;
    }
}

static bool is_settled(struct walk *k)
{
    if (world_state(&k->w, "g") != GROUP_STABLE || !list_is_empty(&k->w.writes)) return false;
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &k->clients[i];
        if (c->stage != IN || c->generation != world_group(&k->w)->generation) return false;
    }
    return HASH_CNT(by_id, world_group(&k->w)->members) == CLIENTS;
}

static void settle(struct walk *k, uint64_t seed)
{
    int64_t until_ms = k->w.now_ms + SETTLE_MS;
    k->reentries = 0;
    for (int i = 0; i < CLIENTS; i++) client_hang_up(k, &k->clients[i]);
    while (!is_settled(k)) {
        if (k->w.now_ms > until_ms) fail_msg("the group of walk %llu is stuck", (unsigned long long)seed);
        for (int i = 0; i < CLIENTS; i++) client_go_on(k, &k->clients[i], "range=r,sticky=s");
        while (!list_is_empty(&k->w.writes)) write_one(k, KERR_NONE);
        world_advance(&k->w, 500);
        check(k);
    }
}

static void walk(uint64_t seed)
{
    static struct walk k;
    k = (struct walk){.seed = seed * UINT64_C(0x9e3779b97f4a7c15)};
    struct group_options opt = world_options;
    opt.initial_delay_ms = (int32_t)below(&k, 2) * 3000;
    opt.size_max = below(&k, 4) ? INT32_MAX : CLIENTS + 1;
    world_start(&k.w, &opt);
    k.w.arg = &k;
    k.w.on_answer = on_answer;
    for (int i = 0; i < CLIENTS; i++) {
        static const char *const instances[CLIENTS] = {"one", "two"};
        k.clients[i].instance = below(&k, 2) ? instances[i] : NULL;
        k.clients[i].version = k.clients[i].instance ? (below(&k, 2) ? 9 : 5) : (int16_t)(3 + below(&k, 2) * 6);
    }
    for (int i = 0; i < STEPS; i++) {
        step(&k);
        check(&k);
    }
    settle(&k, seed);
    world_stop(&k.w);
}

static void walks_keep_what_always_holds_and_no_group_is_stuck(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= WALKS; seed++) walk(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_keep_what_always_holds_and_no_group_is_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
