/* machine.c: the brokers: their processes, disks, clocks and sessions. */
#include <string.h>

#include "broker/metadata.h"
#include "controller/controller.h"
#include "replica/replicas.h"
#include "world.h"

#define LOG_MODULE "sim"
#include "base/log.h"

enum {
    TURN_US_MAX = 150,        /* what a turn takes, at most, */
    JOB_US_MAX = 3000,        /*   and a job */
    SLOW_ONE_IN = 50,         /* jobs that take a hundred times as long */
    SESSION_US = 6000 * 1000, /* zookeeper.session.timeout.ms */
    SESSION_LOOK_US = 200 * 1000,
    DISK_BYTES = 8 << 20 /* and the reserve that brokers keep goes by that */
};

static int heap_of(const struct machine *n)
{
    return HEAP_WORLD + 1 + n->index;
}

/* Runs the node's own code: its memory comes from its heap, its log lines are its own. */
struct inside {
    int heap, turning;
};

static struct inside enter(struct machine *n)
{
    struct inside before = {heap_enter(heap_of(n)), n->w->turning};
    n->w->turning = n->index;
    return before;
}

static void leave(struct machine *n, struct inside before)
{
    n->w->turning = before.turning;
    heap_enter(before.heap);
}

static int64_t machine_mono_us(struct clock *c)
{
    const struct machine *n = CONTAINER_OF(c, struct machine, clock);
    return n->mono_us_base + n->w->now_us;
}

static int64_t machine_wall_ms(struct clock *c)
{
    const struct machine *n = CONTAINER_OF(c, struct machine, clock);
    return T0_MS + n->skew_ms + n->w->now_us / MS;
}

static void machine_fill(struct rng *r, void *out, size_t size)
{
    struct machine *n = CONTAINER_OF(r, struct machine, rng);
    for (size_t i = 0; i < size; i++) ((uint8_t *)out)[i] = (uint8_t)draw_from(&n->random, 256);
}

/* ---- The store */

static struct coord *coord_of(const struct machine *n)
{
    return n->run ? broker_of(n->run)->coord : NULL;
}

static int64_t session_of(const struct machine *n)
{
    const struct coord *c = coord_of(n);
    return c ? c->session : -1;
}

static struct coord *open_store(void *arg, struct coord_listener listener)
{
    struct machine *n = arg;
    struct world *w = n->w;
    int heap = heap_enter(HEAP_WORLD);
    struct coord *c = coord_memory_connect(w->store, listener);
    coord_memory_delay(w->store, c->session, true);
    if (n->store_cut) coord_memory_disconnect(w->store, c->session, 0);
    heap_enter(heap);
    return c;
}

int64_t machine_store_due_us(const struct machine *n)
{
    return n->store_cut ? INT64_MAX : n->store_due_us;
}

/* What it asks the store for gets there some time. */
static void look_at_store(struct machine *n)
{
    if (n->store_due_us != INT64_MAX || session_of(n) < 0) return;
    if (coord_memory_out(n->w->store, session_of(n)) > 0)
        n->store_due_us = n->w->now_us + draw_between(n->w, 1, n->store_us_max);
}

void machine_store_turn(struct machine *n)
{
    struct world *w = n->w;
    if (machine_store_due_us(n) > w->now_us) return;
    n->store_due_us = INT64_MAX;
    if (session_of(n) < 0) return;
    size_t out = coord_memory_out(w->store, session_of(n));
    coord_memory_run(w->store, session_of(n), out ? 1 + draw(w, out) : 0);
    check_store(w);
    look_at_store(n);
}

void machine_cut_store(struct machine *n, bool cut)
{
    struct world *w = n->w;
    tell(w, "broker %d %s", n->index + 1, cut ? "does not reach the store" : "reaches the store again");
    n->store_cut = cut;
    if (session_of(n) < 0) return;
    if (cut)
        coord_memory_disconnect(w->store, session_of(n), draw(w, coord_memory_out(w->store, session_of(n)) + 1));
    else
        coord_memory_reconnect(w->store, session_of(n));
    check_store(w);
    look_at_store(n);
}

static struct session *session_find(struct world *w, int64_t id)
{
    for (size_t i = w->session_count; i-- > 0;)
        if (w->sessions[i].id == id) return &w->sessions[i];
    return NULL;
}

/* Of a machine, each as it is seen for the first time: sessions are renewed. */
static void note_session(struct machine *n)
{
    struct world *w = n->w;
    int64_t id = session_of(n);
    if (id < 0 || session_find(w, id)) return;
    w->sessions = mem_grow(w->sessions, &w->session_cap, w->session_count + 1, sizeof *w->sessions);
    w->sessions[w->session_count++] = (struct session){.id = id, .heard_us = w->now_us, .node = n->index};
}

void machine_expire(struct machine *n)
{
    note_session(n);
    struct session *s = session_of(n) < 0 ? NULL : session_find(n->w, session_of(n));
    if (!s || s->over) return;
    tell(n->w, "the session of broker %d is expired", n->index + 1);
    s->over = true;
    coord_memory_expire(n->w->store, s->id);
}

static bool is_heard(const struct machine *n, const struct session *s)
{
    return session_of(n) == s->id && !n->store_cut && !machine_is_paused(n);
}

static void on_sessions(struct timer *t)
{
    struct world *w = CONTAINER_OF(t, struct world, session_timer);
    for (int i = 0; i < w->setup.nodes; i++) note_session(&w->nodes[i]);
    for (size_t i = 0; i < w->session_count; i++) {
        struct session *s = &w->sessions[i];
        if (s->over) continue;
        if (is_heard(&w->nodes[s->node], s)) s->heard_us = w->now_us;
        if (w->now_us - s->heard_us < SESSION_US) continue;
        tell(w, "the session %" PRIx64 " of broker %d expires", s->id, s->node + 1);
        s->over = true;
        coord_memory_expire(w->store, s->id);
    }
    world_timer(w, t, SESSION_LOOK_US);
}

void sessions_start(struct world *w)
{
    w->session_timer.fire = on_sessions;
    world_timer(w, &w->session_timer, SESSION_LOOK_US);
}

/* ---- Life */

static void take_job(void *arg, struct job *job)
{
    struct machine *n = arg;
    struct world *w = n->w;
    int heap = heap_enter(HEAP_WORLD);
    int64_t us = draw_between(w, 1, JOB_US_MAX);
    if (one_in(w, SLOW_ONE_IN)) us *= 100;
    n->jobs = mem_grow(n->jobs, &n->job_cap, n->job_count + 1, sizeof *n->jobs);
    n->jobs[n->job_count++] = (struct machine_job){job, w->now_us + us};
    heap_enter(heap);
}

static char *config_text(const struct machine *n)
{
    return mem_printf("broker.id=%d\n"
                      "zookeeper.connect=simulated:1\n"
                      "listeners=PLAINTEXT://10.0.0.%d:%d\n"
                      "log.dirs=/data\n"
                      "num.io.threads=1\n"
                      "log.cleaner.enable=false\n"
                      "auto.create.topics.enable=false\n"
                      "default.replication.factor=%d\n"
                      "offsets.topic.replication.factor=%d\n"
                      "offsets.topic.num.partitions=%d\n"
                      "min.insync.replicas=%d\n"
                      "log.segment.bytes=20000\n"
                      "log.flush.interval.messages=%s\n"
                      "replica.lag.time.max.ms=2000\n"
                      "replica.fetch.wait.max.ms=100\n"
                      "replica.fetch.backoff.ms=100\n"
                      "replica.high.watermark.checkpoint.interval.ms=1000\n"
                      "leader.imbalance.check.interval.seconds=5\n"
                      "group.initial.rebalance.delay.ms=100\n"
                      "group.min.session.timeout.ms=500\n"
                      "controller.fast.failure.detection=%s\n"
                      "%s",
                      n->index + 1, n->index + 1, PORT, MIN(n->w->setup.nodes, 3), MIN(n->w->setup.nodes, 3),
                      OFFSETS_PARTITIONS, n->w->setup.nodes > 1 ? 2 : 1,
                      n->w->setup.power ? "1" : "9223372036854775807", n->w->setup.slow_detection ? "false" : "true",
                      n->w->setup.nodes > 1 ? "zookeeper.connect=store:2181\nzookeeper.session.timeout.ms=6000\n" : "");
}

static enum err load_config(const struct machine *n, struct config **out, struct fault *f)
{
    char *text = config_text(n);
    const struct config_input in = {.file_name = "sim", .text = {text, strlen(text)}, .cpu_count = 1};
    enum err e = config_load(out, &in, f);
    mem_free(text);
    return e;
}

void machine_start(struct machine *n)
{
    struct world *w = n->w;
    ASSERT(n->state == MACHINE_DOWN);
    n->lives++;
    tell(w, "broker %d starts, life %d", n->index + 1, n->lives);
    n->mono_us_base = draw_between(w, 0, 1000 * S);
    n->job_count = 0;
    n->paused_until_us = 0;
    n->store_due_us = INT64_MAX;
    n->store_us_max = STORE_US_MAX;
    memset(n->told_epochs, -1, sizeof n->told_epochs);
    n->heard_controller = n->heard_epoch = -1;
    net_sim_host_up(w->net, (unsigned)n->index);
    const struct broker_env env = {
        .fs = fs_sim_fs(n->disk),
        .net = net_sim_host(w->net, (unsigned)n->index),
        .clock = &n->clock,
        .rng = &n->rng,
        .turned = true,
        .take_job = take_job,
        .open_coord = open_store,
        .arg = n,
    };
    struct inside before = enter(n);
    struct config *cfg;
    enum err e = load_config(n, &cfg, &n->fault);
    if (!e) e = broker_new(&n->run, &env, cfg, &n->fault);
    if (!e) broker_start(n->run);
    leave(n, before);
    n->state = MACHINE_UP;
    n->next_turn_us = w->now_us;
    if (!e) return;
    tell(w, "broker %d cannot start: %s", n->index + 1, n->fault.text);
    heap_drop(heap_of(n));
    n->run = NULL;
    n->state = MACHINE_DOWN;
    machine_start_later(n, S);
}

static void on_start(struct timer *t)
{
    struct machine *n = CONTAINER_OF(t, struct machine, start);
    if (n->state == MACHINE_DOWN) machine_start(n);
}

void machine_start_later(struct machine *n, int64_t in_us)
{
    world_timer(n->w, &n->start, in_us);
}

/* What it had asked of the store may have been done, the first of it. */
static void leave_store(struct machine *n)
{
    struct world *w = n->w;
    int64_t id = session_of(n);
    if (id < 0) return;
    note_session(n);
    if (!n->store_cut) coord_memory_run(w->store, id, draw(w, coord_memory_out(w->store, id) + 1));
    check_store(w);
    coord_memory_abandon(w->store, id);
}

/* The page cache goes with the power, and nothing fails any more. */
static void disk_crash(struct machine *n, bool power)
{
    n->disk = fs_sim_after_crash(n->disk, draw(n->w, UINT64_MAX), power ? FS_SIM_ANYTHING : FS_SIM_EVERYTHING);
    n->disk_fails = false;
}

void machine_kill(struct machine *n, bool power)
{
    struct world *w = n->w;
    if (n->state == MACHINE_DOWN) return;
    tell(w, "broker %d %s", n->index + 1, power ? "loses its power" : "is killed");
    leave_store(n);
    net_sim_host_gone(w->net, (unsigned)n->index, power);
    disk_crash(n, power || (n->disk_fails && w->setup.power));
    heap_drop(heap_of(n));
    n->run = NULL;
    n->state = MACHINE_DOWN;
}

void machine_stop(struct machine *n)
{
    if (n->state != MACHINE_UP) return;
    tell(n->w, "broker %d is told to stop", n->index + 1);
    n->state = MACHINE_STOPPING;
    struct inside before = enter(n);
    broker_stop(n->run);
    leave(n, before);
}

void machine_pause(struct machine *n, int64_t for_us)
{
    tell(n->w, "broker %d is paused for %" PRId64 " ms", n->index + 1, for_us / MS);
    n->paused_until_us = n->w->now_us + for_us;
}

bool machine_serves(const struct machine *n)
{
    return n->state == MACHINE_UP && broker_is_started(n->run);
}

bool machine_is_controller(const struct machine *n)
{
    if (n->state == MACHINE_DOWN) return false;
    const struct broker *br = broker_of(n->run);
    return br->controller && controller_state(br->controller) == CONTROLLER_ACTIVE;
}

/* ---- Disks */

void machine_limit_disk(struct machine *n, int64_t room)
{
    struct fs_space space;
    int64_t capacity = DISK_BYTES;
    if (room < INT64_MAX && !fs_space(fs_sim_fs(n->disk), "/", &space)) capacity = space.total - space.available + room;
    fs_sim_set_capacity(n->disk, capacity);
}

/* A sync that failed has lost what it should have written, as a loss of power does: that is for logs that are flushed
 * before they count.  What is lost shows in the page cache still, and no program can know that it is not on the disk,
 * so there the broker comes back by a loss of power (see ../README.md). */
void machine_break_disk(struct machine *n)
{
    static const unsigned kinds[] = {FS_SIM_WRITE, FS_SIM_READ, FS_SIM_ALL & ~FS_SIM_SYNC, FS_SIM_SYNC, FS_SIM_ALL};
    enum { WITHOUT_SYNC = 3 };
    struct world *w = n->w;
    const struct fs_sim_fault fault = {.calls = kinds[draw(w, w->setup.power ? ARRAY_COUNT(kinds) : WITHOUT_SYNC)],
                                       .after = (int64_t)draw(w, 20),
                                       .times = one_in(w, 2) ? 1 : INT64_MAX,
                                       .one_in = one_in(w, 2) ? 3 : 1,
                                       .e = ERR_IO};
    fs_sim_set_fault(n->disk, &fault);
    n->disk_fails = true;
}

/* ---- Turns */

static int64_t jobs_due_us(const struct machine *n)
{
    int64_t due_us = INT64_MAX;
    for (size_t i = 0; i < n->job_count; i++) due_us = MIN(due_us, n->jobs[i].at_us);
    return due_us;
}

int64_t machine_due_us(const struct machine *n)
{
    if (n->state == MACHINE_DOWN) return INT64_MAX;
    int64_t due_us = loop_due_us(broker_home(broker_of(n->run)));
    if (due_us != INT64_MAX) due_us = MAX(due_us - n->mono_us_base, n->next_turn_us);
    return MAX(MIN(due_us, jobs_due_us(n)), n->paused_until_us);
}

/* One that is due; false: none is. */
static bool run_job(struct machine *n, int64_t by_us)
{
    for (size_t i = 0; i < n->job_count; i++) {
        if (n->jobs[i].at_us > by_us) continue;
        struct job *job = n->jobs[i].job;
        n->job_count--;
        memmove(&n->jobs[i], &n->jobs[i + 1], (n->job_count - i) * sizeof n->jobs[0]);
        job_run(job);
        return true;
    }
    return false;
}

static void machine_ended(struct machine *n)
{
    struct world *w = n->w;
    struct inside before = enter(n);
    while (run_job(n, INT64_MAX)) {
    }
    enum err e = broker_free(n->run, &n->fault);
    leave(n, before);
    if (e)
        tell(w, "broker %d has given up: %s", n->index + 1, n->fault.text);
    else
        tell(w, "broker %d has stopped", n->index + 1);
    heap_drop(heap_of(n));
    n->run = NULL;
    n->state = MACHINE_DOWN;
    if (n->disk_fails) disk_crash(n, w->setup.power);
    machine_start_later(n, draw_between(w, 1, 3 * S));
}

void machine_turn(struct machine *n)
{
    struct world *w = n->w;
    struct inside before = enter(n);
    while (run_job(n, w->now_us)) {
    }
    if (w->now_us >= n->next_turn_us) {
        loop_turn(broker_home(broker_of(n->run)), 0);
        n->next_turn_us = w->now_us + draw_between(w, 1, TURN_US_MAX);
    }
    bool ended = broker_has_ended(n->run);
    leave(n, before);
    if (ended) {
        machine_ended(n);
        return;
    }
    look_at_store(n);
    check_leaders(n);
}

const struct cluster_view *machine_cluster(const struct machine *n)
{
    if (n->state == MACHINE_DOWN) return NULL;
    const struct broker *br = broker_of(n->run);
    return br->metadata ? metadata_cluster(br->metadata) : NULL;
}

const struct topic_view *machine_topic(const struct machine *n, const char *topic)
{
    if (n->state == MACHINE_DOWN) return NULL;
    const struct broker *br = broker_of(n->run);
    return br->metadata ? metadata_topic(br->metadata, str_of(topic)) : NULL;
}

struct partition *machine_partition(const struct machine *n, const char *topic, int partition)
{
    if (n->state == MACHINE_DOWN) return NULL;
    const struct broker *br = broker_of(n->run);
    return br->replicas ? topic_partition(replicas_find(br->replicas, str_of(topic)), partition) : NULL;
}

void machine_init(struct world *w, int index)
{
    struct machine *n = &w->nodes[index];
    n->w = w;
    n->index = index;
    n->clock = (struct clock){machine_mono_us, machine_wall_ms};
    n->rng.fill = machine_fill;
    n->random = draw(w, UINT64_MAX);
    n->skew_ms = draw_between(w, -200, 200);
    n->start.fire = on_start;
    n->store_due_us = INT64_MAX;
    n->store_us_max = STORE_US_MAX;
    n->disk = fs_sim_new(&(struct fs_sim_options){.seed = draw(w, UINT64_MAX),
                                                  .capacity_bytes = DISK_BYTES,
                                                  .clock = &n->clock,
                                                  .journal = one_in(w, 2),
                                                  .write_back = w->setup.power ? 4 : 0});
}
