/* groups.c: which shards there are, from a role that the controller gives to the end of it, and the time they have.
 *
 * How many partitions the offsets topic has decides where a group lives, so brokers must not differ in it.  What a
 * controller tells does not say: UpdateMetadata names those partitions that have changed, or have a leader, and a
 * broker that has just started may hear of some before it hears of all.  The store says it (Kafka asks it likewise);
 * only when what is told are just the partitions that the topic is made with, nobody is asked. */
#include "broker/groups.h"

#include "base/mem.h"
#include "broker/groups_internal.h"
#include "coord/znodes.h"

#define LOG_MODULE "groups"
#include "base/log.h"

/* ---- The shard's time */

void hosted_tick(struct hosted *h)
{
    int64_t now_us = loop_now_us(h->at->loop);
    if (h->ticked_us == now_us) return;
    h->ticked_us = now_us;
    group_shard_tick(h->shard, now_us / 1000, clock_wall_ms(h->groups->br->clock));
}

void hosted_rearm(struct hosted *h)
{
    if (h->state != HOSTED_OPEN) return;
    int64_t due_ms = group_shard_due_ms(h->shard);
    if (due_ms > INT64_MAX / 1000)
        loop_timer_cancel(h->at->loop, &h->due);
    else if (!timer_is_set(&h->due) || h->due.due_us != due_ms * 1000)
        loop_timer_set(h->at->loop, &h->due, due_ms * 1000);
}

static void on_due(struct timer *t)
{
    struct hosted *h = CONTAINER_OF(t, struct hosted, due);
    hosted_tick(h);
    hosted_rearm(h);
}

static void on_retention(struct timer *t)
{
    struct hosted *h = CONTAINER_OF(t, struct hosted, retention);
    hosted_tick(h);
    group_shard_expire(h->shard);
    hosted_rearm(h);
    loop_timer_set(h->at->loop, t, loop_now_us(h->at->loop) + h->groups->retention_check_us);
}

/* ---- The end of all; see groups_stop() */

static void on_loop_stopped(struct loop_msg *msg)
{
    struct groups *g = CONTAINER_OF(msg, struct group_loop, stopped_msg)->groups;
    if (--g->loops_open == 0) g->stopped(g->stopped_arg);
}

static void check_stopped(struct group_loop *at)
{
    if (!at->stopping || at->active > 0 || at->stopped_msg.run) return;
    at->stopped_msg.run = on_loop_stopped;
    loop_post(broker_home(at->groups->br), &at->stopped_msg);
}

/* ---- One partition's way */

static void wake_by_partition(struct partition_waiter *w)
{
    hosted_wake(CONTAINER_OF(w, struct hosted, role_waiter));
}

static void leave_partition(struct hosted *h)
{
    partition_unwait(h->p, &h->role_waiter);
    partition_unref(h->p);
    h->p = NULL;
    h->state = HOSTED_IDLE;
    h->at->active--;
    check_stopped(h->at);
}

static void begin(struct hosted *h)
{
    h->p = partition_ref(h->wanted);
    h->epoch = h->wanted_epoch;
    h->state = HOSTED_LOADING;
    h->at->active++;
    h->role_waiter = (struct partition_waiter){.until_high_watermark = INT64_MAX, .wake = wake_by_partition};
    partition_wait(h->p, &h->role_waiter);
    group_load_begin(h);
}

void hosted_open(struct hosted *h, struct group_shard *shard)
{
    ASSERT(h->state == HOSTED_LOADING && !h->shard);
    struct loop *l = h->at->loop;
    h->shard = shard;
    h->state = HOSTED_OPEN;
    h->ticked_us = loop_now_us(l);
    loop_timer_set(l, &h->retention, loop_now_us(l) + h->groups->retention_check_us);
    hosted_rearm(h);
}

void hosted_load_ended(struct hosted *h)
{
    leave_partition(h);
    hosted_settle(h);
}

static void close_shard(struct hosted *h)
{
    struct loop *l = h->at->loop;
    hosted_tick(h);
    hosted_flush(h); /* what has been emitted in this turn is written if we may still write */
    h->state = HOSTED_CLOSING;
    loop_timer_cancel(l, &h->due);
    loop_timer_cancel(l, &h->retention);
    loop_timer_cancel(l, &h->write_timer);
    size_t count = group_shard_count(h->shard);
    if (count)
        LOG_INFO("coordinator_closed", "partition=%d epoch=%d groups=%zu reason=\"%s\"", h->index, h->epoch, count,
                 h->at->stopping ? "the broker stops"
                 : h->serves     ? "it is led anew"
                                 : "not led here any more");
    group_shard_close(h->shard, KERR_NOT_COORDINATOR);
    hosted_tell_written(h);
}

static void finish_closing(struct hosted *h)
{
    loop_idle_cancel(h->at->loop, &h->flush);
    group_shard_free(h->shard);
    h->shard = NULL;
    leave_partition(h);
}

static void follow_wanted(struct hosted *h)
{
    struct partition *next;
    while (h->wanted && (next = partition_successor(h->wanted))) {
        partition_ref(next);
        partition_unref(h->wanted);
        h->wanted = next;
    }
}

/* To where the partition lives now: its groups do not notice. */
static void follow(struct hosted *h)
{
    struct partition *next;
    while (h->p && (next = partition_successor(h->p))) {
        partition_unwait(h->p, &h->role_waiter);
        partition_ref(next);
        partition_unref(h->p);
        h->p = next;
        partition_wait(next, &h->role_waiter); /* and is looked at once more */
    }
}

static bool is_as_wanted(const struct hosted *h)
{
    return h->serves && h->p == h->wanted && h->epoch == h->wanted_epoch;
}

void hosted_settle(struct hosted *h)
{
    follow_wanted(h);
    follow(h);
    h->serves = h->wanted && !h->at->stopping && partition_check_leader(h->wanted, -1) == KERR_NONE;
    switch (h->state) {
    case HOSTED_IDLE:
        if (h->serves) begin(h);
        return;
    case HOSTED_LOADING:
        if (!is_as_wanted(h)) group_load_cancel(h);
        return;
    case HOSTED_OPEN:
        if (is_as_wanted(h)) return;
        close_shard(h);
        FALLTHROUGH;
    case HOSTED_CLOSING:
        if (hosted_writes(h)) return; /* hosted_look() comes back */
        finish_closing(h);
        if (h->serves) begin(h);
        return;
    }
    UNREACHABLE();
}

void hosted_look(struct hosted *h)
{
    hosted_settle(h);
    if (h->state < HOSTED_OPEN) return;
    hosted_tell_written(h);
    if (h->state == HOSTED_CLOSING) hosted_settle(h);
}

static void on_wake(struct loop_msg *msg)
{
    struct hosted *h = CONTAINER_OF(msg, struct hosted, wake_msg);
    atomic_store(&h->wake_posted, false);
    hosted_look(h);
}

void hosted_wake(struct hosted *h)
{
    if (!atomic_exchange(&h->wake_posted, true)) loop_post(h->at->loop, &h->wake_msg);
}

/* ---- All of a loop */

static size_t slot_of(const struct group_loop *at, int32_t partition)
{
    return (size_t)partition / at->groups->br->loop_count;
}

static struct group_loop *loop_of(struct groups *g, int32_t partition)
{
    return &g->loops[(unsigned)partition % g->br->loop_count];
}

struct hosted *hosted_find(struct group_loop *at, int32_t partition)
{
    size_t slot = slot_of(at, partition);
    return slot < at->slot_count ? at->slots[slot] : NULL;
}

static struct hosted *hosted_make(struct group_loop *at, int32_t partition)
{
    struct hosted *h = hosted_find(at, partition);
    if (h) return h;
    size_t slot = slot_of(at, partition);
    at->slots = mem_grow(at->slots, &at->slot_cap, slot + 1, sizeof(struct hosted *));
    while (at->slot_count <= slot) at->slots[at->slot_count++] = NULL;
    h = mem_zalloc(1, sizeof *h);
    h->groups = at->groups;
    h->at = at;
    h->index = partition;
    h->wake_msg.run = on_wake;
    h->due.fire = on_due;
    h->retention.fire = on_retention;
    hosted_write_init(h);
    at->slots[slot] = h;
    return h;
}

/* What the home loop says of one partition. */
struct role_msg {
    struct loop_msg msg;
    struct group_loop *at;
    int32_t partition;
    struct partition *p; /* a reference; NULL: not to be led */
    int32_t epoch;
};

static void on_role(struct loop_msg *msg)
{
    struct role_msg *rm = CONTAINER_OF(msg, struct role_msg, msg);
    ASSERT_OWNER(rm->at->loop);
    struct hosted *h = rm->p ? hosted_make(rm->at, rm->partition) : hosted_find(rm->at, rm->partition);
    if (h) {
        partition_unref(h->wanted);
        h->wanted = rm->p;
        h->wanted_epoch = rm->epoch;
        hosted_settle(h);
    }
    mem_free(rm);
}

void groups_role_changed(void *arg, struct partition *p)
{
    struct groups *g = arg;
    ASSERT_OWNER(broker_home(g->br));
    if (!str_is(STR(OFFSETS_TOPIC), p->topic)) return;
    struct role_msg *rm = mem_zalloc(1, sizeof *rm);
    rm->msg.run = on_role;
    rm->at = loop_of(g, p->index);
    rm->partition = p->index;
    rm->epoch = atomic_load(&p->leader_epoch);
    if (partition_check_leader(p, -1) == KERR_NONE) rm->p = partition_ref(p);
    loop_post(rm->at->loop, &rm->msg);
}

/* ---- Topics */

static void topic_grew(struct groups *g, int32_t was, int32_t is)
{
    if (g->growth_told) return;
    g->growth_told = true;
    LOG_WARN("offsets_topic_grew",
             "partitions=%d of=%d reason=\"" OFFSETS_TOPIC
             " was made bigger: from the next start on most groups will look for their offsets in other partitions and "
             "not find them\"",
             was, is);
}

static bool is_whole(const struct topic_view *t, int32_t partitions)
{
    for (int32_t i = 0; i < t->partition_count; i++)
        if (!t->partitions[i].known) return false;
    return t->partition_count == partitions;
}

static void ask_size(struct groups *g);

static void on_size(void *arg, const struct coord_result *r)
{
    struct groups *g = arg;
    struct arena a;
    struct znode_topic node;
    struct fault f = {0};
    g->size_asked = false;
    if (atomic_load(&g->partition_count) != SIZE_UNKNOWN) return; /* it is gone */
    arena_init(&a, SIZE_MAX);
    enum err e = r->err ? r->err : znode_topic_decode(&a, r->path, r->data, &node, &f);
    if (e)
        LOG_WARN("offsets_topic_unknown", "error=%s reason=\"%s\"", err_name(e), f.code ? f.text : err_text(e));
    else if (!uuid_is_zero(g->topic_id) && !uuid_is_zero(node.topic_id) && !uuid_equal(g->topic_id, node.topic_id))
        ask_size(g); /* it has been made anew meanwhile */
    else if (node.partition_count > 0)
        atomic_store(&g->partition_count, (int32_t)node.partition_count);
    arena_fini(&a);
}

/* A failure is the session's: the next one brings the topic once more. */
static void ask_size(struct groups *g)
{
    struct broker *br = g->br;
    struct arena a;
    if (g->size_asked || !br->coord) return;
    g->size_asked = true;
    arena_init(&a, SIZE_MAX);
    coord_get(br->coord, znode_topic_path(&a, STR(OFFSETS_TOPIC)), COORD_NO_WATCH,
              (struct coord_to){broker_home(br), on_size, g});
    arena_fini(&a);
}

void groups_topic_changed(void *arg, const struct topic_view *t)
{
    struct groups *g = arg;
    if (!str_is(t->name, OFFSETS_TOPIC)) return;
    g->topic_id = t->id;
    int32_t known = atomic_load(&g->partition_count);
    if (known > 0) {
        if (t->partition_count > known) topic_grew(g, known, t->partition_count);
    } else if (is_whole(t, g->partitions_default)) {
        atomic_store(&g->partition_count, t->partition_count);
    } else {
        atomic_store(&g->partition_count, SIZE_UNKNOWN);
        ask_size(g);
    }
}

struct forget_msg {
    struct loop_msg msg;
    struct group_loop *at;
    char *topic;
};

static void on_forget(struct loop_msg *msg)
{
    struct forget_msg *fm = CONTAINER_OF(msg, struct forget_msg, msg);
    struct group_loop *at = fm->at;
    for (size_t i = 0; i < at->slot_count; i++) {
        struct hosted *h = at->slots[i];
        if (h && h->state == HOSTED_LOADING) group_load_forget(h, str_of(fm->topic));
        if (!h || h->state != HOSTED_OPEN) continue;
        hosted_tick(h);
        group_shard_forget_topic(h->shard, str_of(fm->topic));
        hosted_rearm(h);
    }
    mem_free(fm->topic);
    mem_free(fm);
}

void groups_topic_removed(void *arg, struct str name)
{
    struct groups *g = arg;
    if (str_is(name, OFFSETS_TOPIC)) {
        atomic_store(&g->partition_count, 0);
        g->growth_told = false;
    }
    for (unsigned i = 0; i < g->br->loop_count; i++) {
        struct forget_msg *fm = mem_zalloc(1, sizeof *fm);
        fm->msg.run = on_forget;
        fm->at = &g->loops[i];
        fm->topic = mem_strndup(name.data, name.size);
        loop_post(g->loops[i].loop, &fm->msg);
    }
}

int32_t groups_partition_count(const struct groups *g)
{
    int32_t count = atomic_load_explicit(&g->partition_count, memory_order_acquire);
    if (count == SIZE_UNKNOWN) return 0;
    return count ? count : g->partitions_default;
}

/* ---- Making and ending */

static void take_config(struct groups *g, const struct config *cfg)
{
    g->options = (struct group_options){
        .session_timeout_min_ms = (int32_t)config_i64(cfg, CFG_GROUP_MIN_SESSION_TIMEOUT_MS),
        .session_timeout_max_ms = (int32_t)config_i64(cfg, CFG_GROUP_MAX_SESSION_TIMEOUT_MS),
        .size_max = (int32_t)config_i64(cfg, CFG_GROUP_MAX_SIZE),
        .initial_delay_ms = (int32_t)config_i64(cfg, CFG_GROUP_INITIAL_REBALANCE_DELAY_MS),
        .metadata_bytes_max = (int32_t)config_i64(cfg, CFG_OFFSET_METADATA_MAX_BYTES),
        .offsets_retention_ms = config_i64(cfg, CFG_OFFSETS_RETENTION_MINUTES) * 60 * 1000,
    };
    g->acks = (int16_t)config_i64(cfg, CFG_OFFSETS_COMMIT_REQUIRED_ACKS);
    g->commit_timeout_us = config_i64(cfg, CFG_OFFSETS_COMMIT_TIMEOUT_MS) * 1000;
    g->retention_check_us = MIN(config_i64(cfg, CFG_OFFSETS_RETENTION_CHECK_INTERVAL_MS), INT64_MAX / 4000) * 1000;
    g->load_bytes = config_i64(cfg, CFG_OFFSETS_LOAD_BUFFER_SIZE);
    g->codec = (enum codec)config_i64(cfg, CFG_OFFSETS_TOPIC_COMPRESSION_CODEC);
    g->partitions_default = (int32_t)config_i64(cfg, CFG_OFFSETS_TOPIC_NUM_PARTITIONS);
}

struct groups *groups_new(struct broker *br)
{
    struct groups *g = mem_zalloc(1, sizeof *g);
    g->br = br;
    struct config *cfg = config_live_ref(br->config);
    take_config(g, cfg);
    config_unref(cfg);
    g->loops = mem_zalloc(br->loop_count, sizeof *g->loops);
    for (unsigned i = 0; i < br->loop_count; i++) {
        g->loops[i].groups = g;
        g->loops[i].loop = br->loops[i];
        list_init(&g->loops[i].load_queue);
    }
    return g;
}

static void hosted_free(struct hosted *h)
{
    if (!h) return;
    ASSERT(h->state == HOSTED_IDLE && !h->load && !hosted_writes(h));
    partition_unref(h->wanted);
    mem_free(h);
}

void groups_free(struct groups *g)
{
    if (!g) return;
    for (unsigned i = 0; i < g->br->loop_count; i++) {
        for (size_t k = 0; k < g->loops[i].slot_count; k++) hosted_free(g->loops[i].slots[k]);
        mem_free(g->loops[i].slots);
    }
    mem_free(g->loops);
    mem_free(g);
}

static void stop_loop(struct loop_msg *msg)
{
    struct group_loop *at = CONTAINER_OF(msg, struct group_loop, stop_msg);
    at->stopping = true;
    for (size_t i = 0; i < at->slot_count; i++)
        if (at->slots[i]) hosted_settle(at->slots[i]);
    check_stopped(at);
}

void groups_stop(struct groups *g, void (*stopped)(void *arg), void *arg)
{
    ASSERT_OWNER(broker_home(g->br));
    g->stopped = stopped;
    g->stopped_arg = arg;
    g->loops_open = g->br->loop_count;
    for (unsigned i = 0; i < g->br->loop_count; i++) {
        g->loops[i].stop_msg.run = stop_loop;
        loop_post(g->loops[i].loop, &g->loops[i].stop_msg);
    }
}
