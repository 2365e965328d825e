/* faults.c: what goes wrong, and when it is mended.
 *
 * Some faults are aimed at moments: a controller that is replaced in the midst of its work, a leader that falls as soon
 * as it leads, a follower that restarts while the controller is asked about it. */
#include "wire/gen/elect_leaders.h"
#include "world.h"

enum later_kind { MEND_LINK, MEND_STORE, MEND_DISK, HURRY_STORE, DEPOSE, KILL, ELECT };

/* Something that will be mended, or go wrong. */
struct later {
    struct list_node link;
    struct timer timer;
    struct world *w;
    enum later_kind kind;
    int node, to;
};

enum {
    RESEND_US_MAX = 300 * 1000,
    DISK_ROOM = 4096,
    SESSION_US = 6000 * 1000,
    ELECT_US = 3 * 1000 * 1000,
    SOON_US_MAX = 60 * 1000
};

static struct machine *some_node(struct world *w)
{
    return &w->nodes[draw(w, (uint64_t)w->setup.nodes)];
}

static struct machine *other_node(struct world *w, const struct machine *n)
{
    return &w->nodes[((uint64_t)n->index + 1 + draw(w, (uint64_t)w->setup.nodes - 1)) % (uint64_t)w->setup.nodes];
}

static int64_t some_time(struct world *w)
{
    return one_in(w, 4) ? draw_between(w, 4 * S, 12 * S) : draw_between(w, 10 * MS, 3 * S);
}

static void later_free(struct later *l)
{
    list_remove(&l->link);
    loop_timer_cancel(l->w->loop, &l->timer);
    mem_free(l);
}

static void mend(const struct later *l)
{
    struct world *w = l->w;
    struct machine *n = &w->nodes[l->node];
    switch (l->kind) {
    case MEND_LINK:
        tell(w, "the link from broker %d to broker %d is mended", l->node + 1, l->to + 1);
        net_sim_set_link(w->net, (unsigned)l->node, (unsigned)l->to, NET_SIM_UP, RESEND_US_MAX);
        return;
    case MEND_STORE: machine_cut_store(n, false); return;
    case MEND_DISK:
        tell(w, "the disk of broker %d has room again", l->node + 1);
        machine_limit_disk(n, INT64_MAX);
        return;
    case HURRY_STORE: n->store_us_max = STORE_US_MAX; return;
    case DEPOSE:
    case KILL:
    case ELECT: return; /* nothing to mend */
    }
}

static void break_now(const struct later *l);

static void on_later(struct timer *t)
{
    struct later *l = CONTAINER_OF(t, struct later, timer);
    const struct later copy = *l;
    later_free(l);
    if (copy.kind >= DEPOSE)
        break_now(&copy);
    else
        mend(&copy);
}

static void later(struct world *w, enum later_kind kind, int node, int to, int64_t in_us)
{
    struct later *l = mem_zalloc(1, sizeof *l);
    *l = (struct later){.w = w, .kind = kind, .node = node, .to = to, .timer.fire = on_later};
    list_push_back(&w->laters, &l->link);
    world_timer(w, &l->timer, in_us);
}

/* ---- The faults */

static void kill_one(struct world *w)
{
    struct machine *n = some_node(w);
    machine_kill(n, false);
    machine_start_later(n, some_time(w));
}

static void power_off(struct world *w)
{
    struct machine *n = some_node(w);
    machine_kill(n, true);
    machine_start_later(n, some_time(w));
}

static struct machine *the_controller(struct world *w)
{
    for (int i = 0; i < w->setup.nodes; i++)
        if (machine_is_controller(&w->nodes[i])) return &w->nodes[i];
    return NULL;
}

static void kill_controller(struct world *w)
{
    struct machine *n = the_controller(w);
    if (!n) return;
    machine_kill(n, false);
    machine_start_later(n, some_time(w));
}

/* The controller's host and another one, which is up again before there is a new controller. */
static void power_off_two(struct world *w)
{
    struct machine *n = the_controller(w);
    if (!n || w->setup.nodes < 3) return;
    struct machine *o = other_node(w, n);
    machine_kill(n, true);
    machine_start_later(n, some_time(w));
    machine_kill(o, true);
    machine_start_later(o, draw_between(w, 1, 200 * MS));
}

static void stop_one(struct world *w)
{
    struct machine *n = some_node(w);
    if (machine_serves(n)) machine_stop(n);
}

static void pause_one(struct world *w)
{
    struct machine *n = some_node(w);
    if (n->state != MACHINE_DOWN && !machine_is_paused(n)) machine_pause(n, some_time(w));
}

static void break_link(struct world *w, const struct machine *from, const struct machine *to, enum net_sim_link link)
{
    if (net_sim_get_link(w->net, (unsigned)from->index, (unsigned)to->index) != NET_SIM_UP) return;
    tell(w, "the link from broker %d to broker %d %s", from->index + 1, to->index + 1,
         link == NET_SIM_CUT ? "is cut" : "refuses");
    net_sim_set_link(w->net, (unsigned)from->index, (unsigned)to->index, link, 0);
    later(w, MEND_LINK, from->index, to->index, some_time(w));
}

static void cut_one_way(struct world *w)
{
    if (w->setup.nodes < 2) return;
    struct machine *n = some_node(w);
    break_link(w, n, other_node(w, n), NET_SIM_CUT);
}

static void cut_both_ways(struct world *w)
{
    if (w->setup.nodes < 2) return;
    struct machine *n = some_node(w), *o = other_node(w, n);
    break_link(w, n, o, NET_SIM_CUT);
    break_link(w, o, n, NET_SIM_CUT);
    if (!one_in(w, 2)) return;
    tell(w, "and their connections are reset");
    net_sim_reset(w->net, (unsigned)n->index, (unsigned)o->index);
}

/* From all other brokers; clients and the store still reach it. */
static void isolate(struct world *w)
{
    struct machine *n = some_node(w);
    for (int i = 0; i < w->setup.nodes; i++) {
        if (i == n->index) continue;
        break_link(w, n, &w->nodes[i], NET_SIM_CUT);
        break_link(w, &w->nodes[i], n, NET_SIM_CUT);
    }
}

/* One that lives looks dead to another: a packet filter. */
static void refuse(struct world *w)
{
    if (w->setup.nodes < 2) return;
    struct machine *n = some_node(w), *o = other_node(w, n);
    break_link(w, o, n, NET_SIM_REFUSING);
    net_sim_reset(w->net, (unsigned)n->index, (unsigned)o->index);
}

static void cut_store(struct world *w)
{
    struct machine *n = some_node(w);
    if (n->store_cut) return;
    machine_cut_store(n, true);
    later(w, MEND_STORE, n->index, 0, some_time(w));
}

static void expire(struct world *w)
{
    machine_expire(some_node(w));
}

/* Full to the last byte or nearly so; or the broker's own reserve has begun. */
static void fill_disk(struct world *w)
{
    struct machine *n = some_node(w);
    tell(w, "the disk of broker %d fills", n->index + 1);
    machine_limit_disk(n, (int64_t)draw(w, one_in(w, 2) ? DISK_ROOM : 16 * DISK_ROOM));
    later(w, MEND_DISK, n->index, 0, some_time(w));
}

static void break_disk(struct world *w)
{
    struct machine *n = some_node(w);
    if (!machine_serves(n) || n->disk_fails) return;
    tell(w, "the disk of broker %d fails", n->index + 1);
    machine_break_disk(n);
}

/* ---- Aimed ones */

static void slow_store(struct world *w)
{
    struct machine *n = the_controller(w);
    if (!n || one_in(w, 2)) n = some_node(w);
    n->store_us_max = draw_between(w, 20 * MS, 800 * MS);
    tell(w, "broker %d waits for the store up to %" PRId64 " ms", n->index + 1, n->store_us_max / MS);
    later(w, HURRY_STORE, n->index, 0, some_time(w));
}

static void on_elected(struct call *call, const void *response)
{
    call->peer->w->electing = false;
    (void)response; /* who cannot be elected is not */
}

/* Leaders are to be where they are preferred to be: a change without a loss. */
static void elect(struct world *w)
{
    struct elect_leaders_request_topic_partitions topics[TOPICS_MAX];
    int32_t numbers[PARTITIONS_MAX];
    if (w->electing) return;
    for (int p = 0; p < PARTITIONS_MAX; p++) numbers[p] = p;
    for (int t = 0; t < w->topic_count; t++)
        topics[t] = (struct elect_leaders_request_topic_partitions){str_of(w->topics[t].name), numbers,
                                                                    w->topics[t].partitions};
    struct elect_leaders_request rq = elect_leaders_request_default;
    rq.topic_partitions = topics;
    rq.topic_partitions_count = w->topic_count;
    rq.timeout_ms = ELECT_US / 1000;
    w->electing = true;
    tell(w, "leaders are to be elected");
    w->elect_call = (struct call){.api = API_ELECT_LEADERS, .version = 2, .done = on_elected};
    peer_send(&w->admin.peers[client_some_node(&w->admin)], &w->elect_call, &rq, ELECT_US);
}

/* One broker does not hear the controller, who goes on without it. */
static void deafen(struct world *w)
{
    struct machine *n = the_controller(w);
    if (!n || w->setup.nodes < 2) return;
    break_link(w, n, other_node(w, n), NET_SIM_CUT);
    later(w, ELECT, 0, 0, draw_between(w, 1, 500 * MS));
}

/* A controller is replaced in the midst of its work, with something to tell to one broker on its way, and goes on. */
static void depose(struct world *w)
{
    struct machine *n = the_controller(w);
    if (!n || w->setup.nodes < 3 || machine_is_paused(n)) return;
    struct machine *deaf = other_node(w, n), *lost = other_node(w, n);
    if (one_in(w, 2)) break_link(w, n, deaf, NET_SIM_CUT);
    if (lost == deaf) {
        elect(w);
    } else {
        machine_kill(lost, false);
        machine_start_later(lost, some_time(w));
    }
    later(w, DEPOSE, n->index, deaf->index, draw_between(w, 1, one_in(w, 2) ? 10 * MS : 300 * MS));
}

/* Its session ends while it is paused; or others take it for dead, and it goes on in the same session. */
static void depose_now(struct world *w, struct machine *n, struct machine *other)
{
    if (n->state == MACHINE_DOWN || machine_is_paused(n)) return;
    if (one_in(w, 2)) {
        machine_pause(n, SESSION_US + draw_between(w, 200 * MS, 3 * S));
        return;
    }
    machine_pause(n, draw_between(w, 10 * MS, 2 * S));
    break_link(w, other, n, NET_SIM_REFUSING);
    net_sim_reset(w->net, (unsigned)n->index, (unsigned)other->index);
}

/* A leader, and the next one or two as soon as they lead. */
static void kill_in_a_row(struct world *w)
{
    int t = (int)draw(w, (uint64_t)w->topic_count), p = (int)draw(w, (uint64_t)w->topics[t].partitions), leader;
    last_leader(w, t, p, &leader);
    if (leader < 0) return;
    w->row = (struct row){.topic = t, .partition = p, .left = (int)draw_between(w, 1, 2)};
    machine_kill(&w->nodes[leader], false);
    machine_start_later(&w->nodes[leader], some_time(w));
}

void faults_new_leader(struct world *w, int topic, int partition, int node)
{
    struct row *r = &w->row;
    if (w->calm || r->left == 0 || topic != r->topic || partition != r->partition) return;
    r->left--;
    later(w, KILL, node, 0, draw_between(w, 1, SOON_US_MAX));
}

/* Of the next in-sync set that changes: who enters or leaves restarts, or who leads. */
static void kill_at_a_change(struct world *w)
{
    w->at_change = KILL_AT_CHANGE;
}

/* Or the controller who is asked is replaced, and what it does in the store comes there after that. */
static void depose_at_a_change(struct world *w)
{
    w->at_change = DEPOSE_AT_CHANGE;
}

static void kill_now(struct world *w, int leader, const struct in_sync *s)
{
    int node = leader;
    for (int32_t i = 0; i < s->count && !one_in(w, 3); i++)
        if (s->followers[i].state >= FOLLOWER_ENTERS) node = s->followers[i].broker_id - 1;
    later(w, KILL, node, 0, draw_between(w, 1, 5 * MS));
}

static void depose_unheard(struct world *w, struct machine *n)
{
    struct machine *other = other_node(w, n);
    machine_cut_store(n, true);
    later(w, MEND_STORE, n->index, 0, draw_between(w, 1, 80 * MS));
    break_link(w, other, n, NET_SIM_REFUSING);
    net_sim_reset(w->net, (unsigned)n->index, (unsigned)other->index);
}

void faults_in_sync_changes(struct world *w, int leader, const struct in_sync *s)
{
    enum at_change what = w->at_change;
    struct machine *n = the_controller(w);
    if (w->calm || what == NOTHING_AT_CHANGE) return;
    if (what == DEPOSE_AT_CHANGE && (!n || n->store_cut || n->index == leader)) return;
    w->at_change = NOTHING_AT_CHANGE;
    if (what == KILL_AT_CHANGE)
        kill_now(w, leader, s);
    else
        depose_unheard(w, n);
}

static void break_now(const struct later *l)
{
    struct world *w = l->w;
    struct machine *n = &w->nodes[l->node];
    if (w->calm) return;
    switch (l->kind) {
    case DEPOSE: depose_now(w, n, &w->nodes[l->to]); return;
    case KILL:
        machine_kill(n, w->setup.power && one_in(w, 2));
        machine_start_later(n, one_in(w, 2) ? draw_between(w, 1, SOON_US_MAX) : some_time(w));
        return;
    case ELECT: elect(w); return;
    default: UNREACHABLE();
    }
}

static const struct {
    void (*run)(struct world *w);
    unsigned weight_max;
} rows[] = {
    {kill_one, 10},     {power_off, 6},        {stop_one, 6},
    {pause_one, 8},     {cut_one_way, 6},      {cut_both_ways, 6},
    {isolate, 4},       {refuse, 4},           {cut_store, 5},
    {expire, 4},        {fill_disk, 4},        {kill_controller, 4},
    {power_off_two, 4}, {break_disk, 3},       {slow_store, 4},
    {elect, 4},         {deafen, 4},           {depose, 6},
    {kill_in_a_row, 6}, {kill_at_a_change, 6}, {depose_at_a_change, 6},
};

static void on_fault(struct timer *t)
{
    struct world *w = CONTAINER_OF(t, struct world, fault_timer);
    unsigned all = 0;
    if (w->calm) return;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) all += w->setup.weights[i];
    uint64_t at = draw(w, all);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (at >= w->setup.weights[i]) {
            at -= w->setup.weights[i];
            continue;
        }
        w->faults++;
        rows[i].run(w);
        break;
    }
    world_timer(w, t, draw_between(w, 1, 2 * w->setup.fault_every_us));
}

void faults_start(struct world *w)
{
    _Static_assert(ARRAY_COUNT(rows) <= ARRAY_COUNT(w->setup.weights), "a weight each");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        bool off =
            rows[i].weight_max == 0 || ((rows[i].run == power_off || rows[i].run == power_off_two) && !w->setup.power);
        w->setup.weights[i] = off ? 0 : (unsigned)draw(w, rows[i].weight_max + 1);
    }
    w->setup.weights[0]++; /* never all of them none */
    w->fault_timer.fire = on_fault;
    world_timer(w, &w->fault_timer, draw_between(w, 1, 2 * w->setup.fault_every_us));
}

void faults_end(struct world *w)
{
    while (!list_is_empty(&w->laters)) {
        struct later *l = CONTAINER_OF(list_first(&w->laters), struct later, link);
        mend(l);
        later_free(l);
    }
    for (int i = 0; i < w->setup.nodes; i++) {
        struct machine *n = &w->nodes[i];
        n->paused_until_us = 0;
        if (n->disk_fails) machine_kill(n, false); /* somebody exchanges the disk's cable */
        if (n->state == MACHINE_DOWN) machine_start_later(n, 0);
    }
}
