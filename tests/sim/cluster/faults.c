/* faults.c: what goes wrong, and when it is mended. */
#include "world.h"

enum fault_kind { UNDO_LINK, UNDO_STORE, UNDO_DISK };

/* Something that is broken. */
struct undo {
    struct list_node link;
    struct timer timer;
    struct world *w;
    enum fault_kind kind;
    int node, to;
};

enum { RESEND_US_MAX = 300 * 1000, DISK_ROOM = 4096 };

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

static void mend(struct undo *u)
{
    struct world *w = u->w;
    list_remove(&u->link);
    loop_timer_cancel(w->loop, &u->timer);
    switch (u->kind) {
    case UNDO_LINK:
        tell(w, "the link from broker %d to broker %d is mended", u->node + 1, u->to + 1);
        net_sim_set_link(w->net, (unsigned)u->node, (unsigned)u->to, NET_SIM_UP, RESEND_US_MAX);
        break;
    case UNDO_STORE: machine_cut_store(&w->nodes[u->node], false); break;
    case UNDO_DISK:
        tell(w, "the disk of broker %d has room again", u->node + 1);
        fs_sim_set_capacity(w->nodes[u->node].disk, 0);
        break;
    }
    mem_free(u);
}

static void on_undo(struct timer *t)
{
    mend(CONTAINER_OF(t, struct undo, timer));
}

static void undo_later(struct world *w, enum fault_kind kind, int node, int to)
{
    struct undo *u = mem_zalloc(1, sizeof *u);
    u->w = w;
    u->kind = kind;
    u->node = node;
    u->to = to;
    u->timer.fire = on_undo;
    list_push_back(&w->undos, &u->link);
    world_timer(w, &u->timer, some_time(w));
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
    undo_later(w, UNDO_LINK, from->index, to->index);
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
    undo_later(w, UNDO_STORE, n->index, 0);
}

static void expire(struct world *w)
{
    machine_expire(some_node(w));
}

static void fill_disk(struct world *w)
{
    struct machine *n = some_node(w);
    struct fs_space space;
    if (fs_space(fs_sim_fs(n->disk), "/", &space)) return;
    tell(w, "the disk of broker %d fills", n->index + 1);
    fs_sim_set_capacity(n->disk, space.total - space.available + (int64_t)draw(w, DISK_ROOM));
    undo_later(w, UNDO_DISK, n->index, 0);
}

static const struct {
    void (*run)(struct world *w);
    unsigned weight_max;
} rows[] = {
    {kill_one, 10},     {power_off, 6},       {stop_one, 6},      {pause_one, 8}, {cut_one_way, 6},
    {cut_both_ways, 6}, {isolate, 4},         {refuse, 4},        {cut_store, 5}, {expire, 4},
    {fill_disk, 0},     {kill_controller, 4}, {power_off_two, 4},
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
    while (!list_is_empty(&w->undos)) mend(CONTAINER_OF(list_first(&w->undos), struct undo, link));
    for (int i = 0; i < w->setup.nodes; i++) {
        w->nodes[i].paused_until_us = 0;
        if (w->nodes[i].state == MACHINE_DOWN) machine_start_later(&w->nodes[i], 0);
    }
}
