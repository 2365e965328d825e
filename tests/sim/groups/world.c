/* world.c: time and events; a run from its start to its end. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { EVENTS_MAX = 200 * 1000 }; /* of one run: more is a loop that never ends */

/* ---- Chance, words */

uint64_t draw(struct world *w, uint64_t below)
{
    ASSERT(below > 0);
    uint64_t z = (w->random += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint64_t)(((unsigned __int128)(z ^ (z >> 31)) * below) >> 64);
}

void tell(struct world *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%8" PRId64 " ", w->now_ms);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

void wrong(struct world *w, const char *fmt, ...)
{
    if (w->failed) return; /* the first one counts */
    w->failed = true;
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "\nseed %" PRIu64 ", at %" PRId64 " ms: ", w->seed, w->now_ms);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

uint64_t hash_of(const void *data, size_t size)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < size; i++) h = (h ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
    return h;
}

struct str group_name(int group)
{
    static const struct str names[GROUPS_MAX] = {STR("group-a"), STR("group-b")};
    return names[group];
}

struct str topic_name(int topic)
{
    static const struct str names[TOPICS] = {STR("apples"), STR("pears")};
    return names[topic];
}

struct str instance_name(int instance)
{
    static const struct str names[CLIENTS_MAX] = {STR("i0"), STR("i1"), STR("i2"), STR("i3"),
                                                  STR("i4"), STR("i5"), STR("i6")};
    return instance < 0 ? STR_NULL : names[instance];
}

int instance_number(struct str name)
{
    return name.data && name.size == 2 && name.data[0] == 'i' ? name.data[1] - '0' : -1;
}

/* ---- Events */

static bool event_is_before(const struct event *a, const struct event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

void world_event(struct world *w, struct event ev)
{
    ASSERT(ev.at_ms >= w->now_ms);
    ev.seq = w->seq++;
    w->events = mem_grow(w->events, &w->event_cap, w->event_count + 1, sizeof(struct event));
    size_t i = w->event_count++;
    for (; i > 0 && event_is_before(&ev, &w->events[(i - 1) / 2]); i = (i - 1) / 2)
        w->events[i] = w->events[(i - 1) / 2];
    w->events[i] = ev;
}

static struct event event_pop(struct world *w)
{
    struct event first = w->events[0], last = w->events[--w->event_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->event_count) break;
        if (child + 1 < w->event_count && event_is_before(&w->events[child + 1], &w->events[child])) child++;
        if (!event_is_before(&w->events[child], &last)) break;
        w->events[i] = w->events[child];
        i = child;
    }
    w->events[i] = last;
    return first;
}

/* Of a client that is paused: later.  True when it was put off. */
static bool put_off(struct world *w, struct event ev)
{
    const struct client *c = &w->clients[ev.client];
    if (c->paused_until_ms <= w->now_ms) return false;
    ev.at_ms = c->paused_until_ms;
    world_event(w, ev);
    return true;
}

static void hang_up(struct world *w, const struct event *ev)
{
    for (size_t i = 0; i < w->request_count; i++) {
        struct request *rq = w->requests[i];
        if (rq->client != ev->client || rq->process != ev->mark || rq->conn != ev->conn) continue;
        if (rq->state != REQUEST_GIVEN) continue; /* what is answered or has not arrived finds nobody later */
        say(w, "host: nobody waits for %s of client %d any more", api_name(rq->call.api), rq->client);
        group_shard_drop(w->host.shard, &rq->call);
        request_free(w, rq);
    }
}

static void answer_arrives(struct world *w, struct request *rq)
{
    if (rq->client >= 0) {
        struct client *c = &w->clients[rq->client];
        if (c->process == rq->process && c->conn == rq->conn && c->state != CLIENT_DOWN) client_answered(w, c, rq);
    }
    request_free(w, rq);
}

static void event_run(struct world *w, struct event ev)
{
    switch (ev.kind) {
    case EVENT_REQUEST:
        if (ev.rq->id == ev.id && ev.rq->state == REQUEST_SENT) request_arrive(w, ev.rq);
        return;
    case EVENT_ANSWER:
        if (ev.rq->id == ev.id && !(ev.rq->client >= 0 && put_off(w, ev))) answer_arrives(w, ev.rq);
        return;
    case EVENT_HANGUP: hang_up(w, &ev); return;
    case EVENT_WRITTEN:
        if (ev.mark == w->host.life) host_written(w);
        return;
    case EVENT_CLIENT:
        if (w->clients[ev.client].timer_marks[ev.timer] == ev.mark && !put_off(w, ev))
            client_timer_fired(w, &w->clients[ev.client], (enum client_timer)ev.timer);
        return;
    case EVENT_DISTURB:
        if (!w->calm) disturb(w);
        return;
    case EVENT_HOST: host_next_state(w); return;
    }
}

bool world_turn(struct world *w, int64_t until_ms)
{
    int64_t event_ms = w->event_count ? w->events[0].at_ms : INT64_MAX, due_ms = INT64_MAX;
    if (w->host.state == HOST_UP) {
        due_ms = group_shard_due_ms(w->host.shard);
        if (due_ms != INT64_MAX) due_ms = MAX(due_ms - w->host.mono_base_ms, w->now_ms);
    }
    int64_t next_ms = MIN(event_ms, due_ms);
    if (next_ms >= until_ms) {
        w->now_ms = until_ms;
        return false;
    }
    w->now_ms = next_ms;
    if (++w->events_run > EVENTS_MAX) wrong(w, "the run does not come to its end");
    host_tick(w);
    if (event_ms <= due_ms && !w->failed) event_run(w, event_pop(w));
    return !w->failed;
}

int64_t world_latency(struct world *w)
{
    const struct config *cf = &w->config;
    if (w->calm) return 1 + (int64_t)draw(w, 10);
    if (cf->slow_one_in && one_in(w, (uint64_t)cf->slow_one_in))
        return (int64_t)draw(w, (uint64_t)cf->latency_ms * 20 + 1);
    return 1 + (int64_t)draw(w, (uint64_t)cf->latency_ms);
}

/* ---- A run */

static void config_draw(struct world *w)
{
    static const int latencies[] = {3, 20, 20, 100, 300}, writes[] = {2, 10, 50, 400},
                     disturbs[] = {80, 200, 500, 1500};
    struct config *cf = &w->config;
    cf->groups = 1 + one_in(w, 3);
    cf->clients = draw_between(w, 2, cf->groups == 1 ? 5 : CLIENTS_MAX);
    for (int g = 0; g < cf->groups; g++) cf->cooperative[g] = one_in(w, 2);
    cf->latency_ms = latencies[draw(w, ARRAY_COUNT(latencies))];
    cf->write_ms = writes[draw(w, ARRAY_COUNT(writes))];
    cf->slow_one_in = one_in(w, 2) ? 0 : draw_between(w, 10, 60);
    cf->write_fails_one_in = one_in(w, 2) ? 0 : draw_between(w, 3, 40);
    cf->disturb_ms = disturbs[draw(w, ARRAY_COUNT(disturbs))];
    cf->hostile = one_in(w, 4);
    cf->rebalance_max_ms = one_in(w, 2) ? 2000 : 5000;
    cf->faults_until_ms = draw_between(w, 4000, 12000);
    cf->opt = (struct group_options){
        .session_timeout_min_ms = 500,
        .session_timeout_max_ms = 10 * 1000,
        .size_max = one_in(w, 12) ? 2 : INT32_MAX,
        .initial_delay_ms = one_in(w, 2) ? 0 : draw_between(w, 1, 1500),
        .metadata_bytes_max = 64,
        .offsets_retention_ms = one_in(w, 3) ? draw_between(w, 1000, 10 * 1000) : INT64_C(7) * 86400 * 1000,
    };
    disturb_init(w);
    say(w,
        "%d groups, %d clients, latency %d ms, writes %d ms, 1 in %d fails, initial delay %d ms, at most %d members, "
        "retention %" PRId64 " ms%s",
        cf->groups, cf->clients, cf->latency_ms, cf->write_ms, cf->write_fails_one_in, cf->opt.initial_delay_ms,
        cf->opt.size_max, cf->opt.offsets_retention_ms, cf->hostile ? ", hostile members" : "");
}

static void world_fini(struct world *w)
{
    for (size_t i = 0; i < w->request_count; i++) {
        arena_fini(&w->requests[i]->arena);
        mem_free(w->requests[i]);
    }
    for (size_t i = 0; i < w->member_count; i++) mem_free(w->members[i]);
    for (int g = 0; g < GROUPS_MAX; g++) {
        mem_free(w->groups[g].generations);
        for (int p = 0; p < POSITIONS; p++) mem_free(w->histories[g][p].attempts);
    }
    mem_free(w->requests);
    mem_free(w->members);
    mem_free(w->assignments);
    mem_free(w->events);
}

struct world_result world_run(uint64_t seed, bool verbose)
{
    struct world w = {
        .seed = seed, .random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1, .verbose = verbose, .next_id = 1};
    config_draw(&w);
    offsets_init(&w);
    host_start(&w);
    for (int i = 0; i < w.config.clients; i++) {
        client_init(&w, &w.clients[i], i);
        if (!one_in(&w, 5)) client_start(&w, &w.clients[i]);
    }
    world_event(&w, (struct event){.kind = EVENT_DISTURB,
                                   .at_ms = w.now_ms + (int64_t)draw(&w, (uint64_t)w.config.disturb_ms * 2)});
    while (world_turn(&w, w.config.faults_until_ms)) {
    }
    if (!w.failed) settle(&w);
    host_stop(&w);
    struct world_result r = {.failed = w.failed, .moves = w.moves, .rebalances = w.rebalances};
    world_fini(&w);
    return r;
}
