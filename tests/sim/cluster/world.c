/* world.c: time, what is due next, and a run from its setup to its end. */
#include "world.h"

#include <stdarg.h>
#include <string.h>

#include "wire/gen/create_topics.h"
#include "wire/kerr.h"

#define LOG_MODULE "sim"
#include "base/log.h"

enum { NOTHING_US = 60 * 1000 * 1000, CREATE_US = 5 * 1000 * 1000 };

struct world *the_world;

uint64_t draw_from(uint64_t *random, uint64_t below)
{
    uint64_t z = (*random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* ---- The history */

static void hash_in(struct world *w, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) w->hash = (w->hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    w->hash = (w->hash ^ (uint64_t)w->now_us) * UINT64_C(0x100000001b3);
}

static void tell_args(struct world *w, const char *mark, const char *fmt, va_list args)
{
    char line[512];
    int n = vsnprintf(line, sizeof line, fmt, args);
    hash_in(w, line, MIN((size_t)n, sizeof line - 1));
    if (!w->opt.verbose && !*mark) return;
    fprintf(stderr, "%3" PRId64 ".%06" PRId64 " %s%s\n", w->now_us / S, w->now_us % S, mark, line);
}

void tell(struct world *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tell_args(w, "", fmt, args);
    va_end(args);
}

void wrong(struct world *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!w->failed) tell_args(w, "WRONG: ", fmt, args);
    va_end(args);
    w->failed = true;
}

/* A line of a broker's log. */
static void on_log_line(void *arg, const char *line, size_t size)
{
    struct world *w = the_world;
    (void)arg;
    if (!w) return;
    if (w->opt.logs) hash_in(w, line, size);
    if (w->opt.verbose)
        fprintf(stderr, "%3" PRId64 ".%06" PRId64 "   [%d] %.*s", w->now_us / S, w->now_us % S, w->turning + 1,
                (int)size, line);
}

/* ---- Time */

static int64_t log_wall_ms(void *arg)
{
    return T0_MS + ((const struct world *)arg)->now_us / MS;
}

static int64_t world_mono_us(struct clock *c)
{
    return CONTAINER_OF(c, struct world, clock)->now_us;
}

static int64_t world_wall_ms(struct clock *c)
{
    return T0_MS + CONTAINER_OF(c, struct world, clock)->now_us / MS;
}

void world_timer(struct world *w, struct timer *t, int64_t in_us)
{
    loop_timer_set(w->loop, t, w->now_us + in_us);
}

static int64_t due_us(const struct world *w)
{
    int64_t due = MIN(net_sim_due_us(w->net), loop_due_us(w->loop));
    for (int i = 0; i < w->setup.nodes; i++)
        due = MIN(due, MIN(machine_due_us(&w->nodes[i]), machine_store_due_us(&w->nodes[i])));
    return due;
}

static void turn(struct world *w)
{
    net_sim_turn(w->net);
    int first = (int)draw(w, (uint64_t)w->setup.nodes);
    for (int k = 0; k < w->setup.nodes && !w->failed; k++) {
        struct machine *n = &w->nodes[(first + k) % w->setup.nodes];
        machine_store_turn(n);
        if (machine_due_us(n) <= w->now_us) machine_turn(n);
    }
    if (loop_due_us(w->loop) <= w->now_us) loop_turn(w->loop, 0);
}

void world_turn_until(struct world *w, int64_t until_us, bool (*enough)(struct world *w))
{
    while (!w->failed && !(enough && enough(w))) {
        int64_t due = due_us(w);
        if (due > until_us) {
            w->now_us = until_us;
            return;
        }
        w->now_us = MAX(w->now_us, due);
        turn(w);
    }
}

/* ---- Topics */

static void ask_topics(struct world *w);

static void on_topics(struct call *call, const void *response)
{
    struct world *w = call->peer->w;
    const struct create_topics_response *r = response;
    bool all = r != NULL;
    for (int32_t i = 0; r && i < r->topics_count; i++)
        if (r->topics[i].error_code && r->topics[i].error_code != KERR_TOPIC_ALREADY_EXISTS) all = false;
    w->topics_made = all;
    if (!all) world_timer(w, &w->admin_timer, 100 * MS);
}

static void on_ask_topics(struct timer *t)
{
    ask_topics(CONTAINER_OF(t, struct world, admin_timer));
}

static void ask_topics(struct world *w)
{
    struct create_topics_request_creatable_topic topics[TOPICS_MAX];
    struct create_topics_request rq = create_topics_request_default;
    for (int t = 0; t < w->topic_count; t++) {
        if (w->topics[t].is_offsets) continue; /* made when somebody asks for a coordinator */
        rq.topics_count++;
        topics[t] = create_topics_request_creatable_topic_default;
        topics[t].name = str_of(w->topics[t].name);
        topics[t].num_partitions = w->topics[t].partitions;
        topics[t].replication_factor = (int16_t)MIN(w->setup.nodes, 3);
    }
    rq.topics = topics;
    rq.timeout_ms = CREATE_US / 1000;
    w->admin_call = (struct call){.api = API_CREATE_TOPICS, .version = 7, .done = on_topics};
    peer_send(&w->admin.peers[client_some_node(&w->admin)], &w->admin_call, &rq, CREATE_US);
}

static bool has_topics(struct world *w)
{
    return w->topics_made;
}

static bool all_serve(struct world *w)
{
    for (int i = 0; i < w->setup.nodes; i++)
        if (!machine_serves(&w->nodes[i])) return false;
    return true;
}

/* ---- A run */

static void choose_setup(struct world *w)
{
    struct setup *s = &w->setup;
    s->nodes = w->opt.nodes ? w->opt.nodes : (int)draw_between(w, 3, NODES_MAX);
    s->clients = CLIENTS_MAX;
    s->power = one_in(w, 4);
    s->slow_detection = one_in(w, 8);
    s->fault_every_us = draw_between(w, 200 * MS, 3 * S);
    s->faults_until_us = draw_between(w, 3 * S, 20 * S);
    w->topic_count = TOPICS_MAX;
    w->topics[0] = (struct topic){.name = "orders", .partitions = (int)draw_between(w, 1, 3)};
    w->topics[1] = (struct topic){.name = "clicks", .partitions = 1};
    w->topics[OFFSETS_TOPIC_INDEX] =
        (struct topic){.name = "__consumer_offsets", .partitions = OFFSETS_PARTITIONS, .is_offsets = true};
    for (int t = 0; t < TOPICS_MAX; t++)
        for (int p = 0; p < PARTITIONS_MAX; p++) w->topics[t].parts[p].state_version = -1;
}

static void make_world(struct world *w)
{
    w->loop = loop_new_turned(&w->clock, 0);
    w->store = coord_memory_new(&w->clock);
    w->bufs = buf_pool_new(SIZE_MAX);
    list_init(&w->laters);
    w->net = net_sim_new(&(struct net_sim_options){
        .seed = draw(w, UINT64_MAX),
        .clock = &w->clock,
        .hosts = (unsigned)(w->setup.nodes + w->setup.clients),
        .delay_us_min = draw_between(w, 20, 200),
        .delay_us_max = draw_between(w, 200, 3000),
        .slow_one_in = one_in(w, 2) ? 100 : 0,
        .slow_us = 40 * MS,
        .window_bytes = (size_t)draw_between(w, 4096, 128 << 10),
    });
    for (int i = 0; i < w->setup.nodes; i++) machine_init(w, i);
    sessions_start(w);
}

static void begin(struct world *w)
{
    for (int i = 0; i < w->setup.nodes; i++) machine_start(&w->nodes[i]);
    world_turn_until(w, w->now_us + NOTHING_US, all_serve);
    if (!w->failed && !all_serve(w)) wrong(w, "the brokers do not start");
    client_init(w, &w->admin, 0);
    w->admin_timer.fire = on_ask_topics;
    ask_topics(w);
    world_turn_until(w, w->now_us + NOTHING_US, has_topics);
    if (!w->failed && !has_topics(w)) wrong(w, "the topics are not made");
    if (w->failed) return;
    w->producer_count = 3;
    w->consumer_count = 3;
    producer_start(w, &w->producers[0], 1, 0, true);
    producer_start(w, &w->producers[1], 2, 0, true);
    producer_start(w, &w->producers[2], 3, 1, false);
    consumer_start(w, &w->consumers[0], 4, 0);
    consumer_start(w, &w->consumers[1], 5, 0);
    consumer_start(w, &w->consumers[2], 6, 1);
    groups_start(w);
    if (!w->opt.quiet) faults_start(w);
}

static void run(struct world *w)
{
    choose_setup(w);
    make_world(w);
    begin(w);
    if (!w->failed) world_turn_until(w, w->now_us + w->setup.faults_until_us, NULL);
    if (!w->failed) settle(w);
    tell(w, "the end: %" PRId64 " batches acknowledged, %" PRId64 " faults", w->acked, w->faults);
}

struct world_result world_run(uint64_t seed, const struct world_options *opt)
{
    heap_enter(HEAP_WORLD);
    struct world *w = mem_zalloc(1, sizeof *w);
    *w = (struct world){.seed = seed, .random = seed, .opt = *opt, .turning = -1};
    w->clock = (struct clock){world_mono_us, world_wall_ms};
    the_world = w;
    enum log_level lowest = opt->logs || opt->verbose ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR;
    log_init(log_wall_ms, w, opt->debug ? LOG_LEVEL_DEBUG : lowest);
    log_capture(on_log_line, NULL);
    run(w);
    struct world_result result = {.failed = w->failed, .hash = w->hash, .acked = w->acked, .faults = w->faults};
    log_capture(NULL, NULL);
    the_world = NULL;
    for (int i = 0; i < HEAPS_MAX; i++) heap_drop(i);
    heap_enter(HEAP_NONE);
    return result;
}
