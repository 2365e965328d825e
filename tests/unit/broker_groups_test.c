/* broker_groups_test.c: a shard's host: what is emitted becomes batches and outcomes, a role becomes a loaded shard and
 * ends in a closed one.  The shard itself is a stand-in that remembers what it is told; log and partitions are real, on
 * a simulated disk. */
#include "replica_world.h"

#include "broker/broker.h"
#include "broker/groups.h"
#include "coord/memory.h"
#include "coord/znodes.h"
#include "replica/replicas_internal.h"

enum { EVENTS_MAX = 100, KEY_BYTES = 8, COMMIT_TIMEOUT_MS = 5000 };

/* ---- The stand-in */

struct group_shard {
    struct group_shard_env env;
    bool loaded, closed;
    int writes;
};

static struct {
    struct group_shard *shard; /* the latest */
    int shards;
    char told[EVENTS_MAX]; /* the writes whose outcome came, by name, and which */
    enum kerr kerrs[EVENTS_MAX];
    int told_count;
    char replayed[EVENTS_MAX];
    int64_t replayed_at[EVENTS_MAX];
    int replayed_count;
    char forgotten[EVENTS_MAX];
    int expired;
    struct group_call *call; /* that the shard has, */
    bool answers_by_time;    /*   until it is told the time */
} s;

struct group_shard *group_shard_new(int32_t partition, const struct group_shard_env *env,
                                    const struct group_options *opt)
{
    (void)opt;
    assert_int_equal(partition, 0);
    struct group_shard *sh = mem_zalloc(1, sizeof *sh);
    sh->env = *env;
    s.shard = sh;
    s.shards++;
    s.replayed_count = 0;
    return sh;
}

void group_shard_free(struct group_shard *sh)
{
    assert_int_equal(sh->writes, 0);
    assert_true(sh->closed || !sh->loaded);
    if (s.shard == sh) s.shard = NULL;
    mem_free(sh);
}

enum err group_shard_replay(struct group_shard *sh, const struct group_replay *at, struct bytes key, struct bytes value)
{
    (void)value;
    assert_false(sh->loaded);
    s.replayed_at[s.replayed_count] = at->offset;
    s.replayed[s.replayed_count++] = (char)key.data[0];
    s.replayed[s.replayed_count] = '\0';
    return OK;
}

void group_shard_replay_marker(struct group_shard *sh, int64_t producer_id, bool commit)
{
    (void)sh, (void)producer_id, (void)commit;
}

void group_shard_loaded(struct group_shard *sh, int64_t mono_ms, int64_t wall_ms)
{
    (void)mono_ms, (void)wall_ms;
    sh->loaded = true;
}

void group_shard_tick(struct group_shard *sh, int64_t mono_ms, int64_t wall_ms)
{
    (void)mono_ms, (void)wall_ms;
    assert_true(sh->loaded && !sh->closed);
    struct group_call *call = s.call;
    if (!call || !s.answers_by_time) return;
    s.call = NULL;
    sh->env.answer(sh->env.arg, call);
}

int64_t group_shard_due_ms(const struct group_shard *sh)
{
    (void)sh;
    return INT64_MAX;
}

void group_shard_call(struct group_shard *sh, struct group_call *call)
{
    assert_true(sh->loaded && !sh->closed && !s.call);
    s.call = call;
}

void group_shard_drop(struct group_shard *sh, struct group_call *call)
{
    (void)sh;
    assert_ptr_equal(call, s.call);
    s.call = NULL;
}

void group_shard_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    s.told[s.told_count] = (char)w->records[0].key.data[0];
    s.kerrs[s.told_count++] = kerr;
    s.told[s.told_count] = '\0';
    sh->writes--;
    arena_fini(&w->arena);
    mem_free(w);
}

void group_shard_expire(struct group_shard *sh)
{
    (void)sh;
    s.expired++;
}

void group_shard_forget_topic(struct group_shard *sh, struct str topic)
{
    assert_true(sh->loaded && !sh->closed);
    snprintf(s.forgotten, sizeof s.forgotten, "%.*s", STR_ARG(topic));
}

void group_shard_close(struct group_shard *sh, enum kerr kerr)
{
    assert_int_equal(kerr, KERR_NOT_COORDINATOR);
    sh->closed = true;
}

size_t group_shard_count(const struct group_shard *sh)
{
    (void)sh;
    return 1;
}

void group_refuse(struct group_call *call, enum kerr kerr)
{
    (void)call, (void)kerr;
    fail();
}

int32_t group_partition_of(struct str group_id, int32_t partition_count)
{
    (void)group_id, (void)partition_count;
    return 0;
}

bool group_id_is_valid(struct str group_id, enum group_api api)
{
    (void)group_id, (void)api;
    return true;
}

/* ---- The broker around it */

static struct {
    struct world w;
    struct fs_sim *sim;
    struct broker br;
    struct topic_settings settings;
    bool stopped;
} h;

static void applied(void *arg, const struct leader_and_isr_response *response)
{
    (void)response;
    *(bool *)arg = true;
}

/* The controller's word about the one partition of the offsets topic. */
static void role(bool leads, int32_t epoch, int32_t isr_count)
{
    int32_t ids[] = {BROKER, BROKER + 1};
    struct leader_and_isr_request_leader_and_isr_partition_state ps =
        leader_and_isr_request_leader_and_isr_partition_state_default;
    ps.leader = leads ? BROKER : BROKER + 1;
    ps.leader_epoch = epoch;
    ps.isr = ps.replicas = ids;
    ps.isr_count = isr_count;
    ps.replicas_count = 2;
    ps.is_new = epoch == 0;
    struct leader_and_isr_request_leader_and_isr_topic_state ts =
        leader_and_isr_request_leader_and_isr_topic_state_default;
    ts.topic_name = STR(OFFSETS_TOPIC);
    ts.topic_id = (struct uuid){{1, 2, 3}};
    ts.partition_states = &ps;
    ts.partition_states_count = 1;
    struct leader_and_isr_request rq = leader_and_isr_request_default;
    rq.topic_states = &ts;
    rq.topic_states_count = 1;
    bool done = false;
    replicas_apply(h.w.r, BROKER, &rq, applied, &done);
    for (int i = 0; i < 100 && !done; i++) turns(&h.w, 1);
    assert_true(done);
    turns(&h.w, 5);
}

static struct partition *offsets_partition(void)
{
    return topic_partition(replicas_find(h.w.r, STR(OFFSETS_TOPIC)), 0);
}

static int setup(void **state)
{
    (void)state;
    memset(&h, 0, sizeof h);
    memset(&s, 0, sizeof s);
    h.sim = fs_sim_new(&(struct fs_sim_options){.seed = 1});
    assert_int_equal(world_start(&h.w, h.sim), OK);
    static const char *const overrides[] = {
        "offsets.commit.timeout.ms=5000", "offsets.retention.check.interval.ms=60000", "offsets.load.buffer.size=300"};
    struct config *cfg;
    struct fault f;
    const struct config_input in = {.overrides = overrides, .override_count = ARRAY_COUNT(overrides)};
    assert_int_equal(config_load(&cfg, &in, &f), OK);
    h.br = (struct broker){.clock = &h.w.clock,
                           .rng = &h.w.rng,
                           .config = config_live_new(cfg),
                           .loop_count = 1,
                           .loops = &h.w.loop,
                           .workers = h.w.workers,
                           .bufs = buf_pool_new(0),
                           .replicas = h.w.r};
    h.br.groups = groups_new(&h.br);
    h.w.r->opt.role_changed = groups_role_changed;
    h.w.r->opt.role_changed_arg = h.br.groups;
    settings_of(NULL, STR_EMPTY, &h.settings);
    role(true, 0, 1);
    assert_true(s.shard && s.shard->loaded);
    return 0;
}

static void on_stopped(void *arg)
{
    *(bool *)arg = true;
}

static int teardown(void **state)
{
    (void)state;
    groups_stop(h.br.groups, on_stopped, &h.stopped);
    turns(&h.w, 5);
    assert_true(h.stopped);
    assert_null(s.shard);
    groups_free(h.br.groups);
    world_end(&h.w, false);
    config_live_free(h.br.config);
    buf_pool_free(h.br.bufs);
    fs_sim_free(h.sim);
    return 0;
}

static void reconfigure(void)
{
    replicas_reconfigure(h.w.r, STR(OFFSETS_TOPIC), &h.settings);
}

/* A write of that name: so many records with values of that size. */
static void emit(char name, size_t count, size_t size)
{
    struct group_write *w = mem_zalloc(1, sizeof *w);
    arena_init(&w->arena, SIZE_MAX);
    w->records = arena_array(&w->arena, struct group_record, count);
    w->count = count;
    for (size_t i = 0; i < count; i++) {
        uint8_t *key = arena_alloc(&w->arena, KEY_BYTES), *value = arena_alloc(&w->arena, size);
        key[0] = (uint8_t)name;
        w->records[i] = (struct group_record){.key = {key, KEY_BYTES}, .value = {value, size}};
        w->bytes += KEY_BYTES + size;
    }
    s.shard->writes++;
    s.shard->env.write(s.shard->env.arg, w);
}

/* Names of the log's records; batches are set apart by a bar. */
static const char *log_content(void)
{
    static char text[EVENTS_MAX * 2];
    static uint8_t data[1 << 16];
    struct plog *pl = offsets_partition()->pl;
    size_t n = 0;
    for (int64_t at = plog_start(pl); at < plog_end(pl);) {
        struct plog_slice slice;
        struct record_iter it;
        struct record rec;
        size_t got;
        assert_int_equal(plog_read(pl, at, plog_end(pl), 1, true, false, &slice), OK);
        assert_int_equal(file_pread(slice.file, data, slice.size, slice.pos, &got), OK);
        struct batch_info b;
        assert_int_equal(batch_parse_header(&b, data, sizeof data), OK);
        assert_int_equal(record_iter_init(&it, data, (size_t)b.size, sizeof data), OK);
        if (n) text[n++] = '|';
        while (record_iter_next(&it, &rec) == OK) text[n++] = (char)rec.key.data[0];
        record_iter_fini(&it);
        plog_slice_release(&slice);
        at = batch_last_offset(&b) + 1;
    }
    text[n] = '\0';
    return text;
}

static void check_told(const char *names, const enum kerr *kerrs)
{
    assert_string_equal(s.told, names);
    for (int i = 0; i < s.told_count; i++) assert_int_equal(s.kerrs[i], kerrs[i]);
}

/* ---- Writing */

static void what_a_turn_emits_is_one_batch(void **state)
{
    (void)state;
    emit('a', 2, 20);
    emit('b', 1, 20);
    emit('c', 1, 20);
    assert_string_equal(s.told, "");
    turns(&h.w, 2);
    assert_string_equal(log_content(), "aabc");
    check_told("abc", (enum kerr[]){KERR_NONE, KERR_NONE, KERR_NONE});
    emit('d', 1, 20);
    turns(&h.w, 2);
    assert_string_equal(log_content(), "aabc|d");
}

static void no_write_is_split_over_batches(void **state)
{
    (void)state;
    h.settings.max_message_bytes = 1000;
    reconfigure();
    for (char name = 'a'; name <= 'e'; name++) emit(name, 2, 150);
    turns(&h.w, 2);
    assert_string_equal(log_content(), "aabb|ccdd|ee");
    check_told("abcde", (enum kerr[]){KERR_NONE, KERR_NONE, KERR_NONE, KERR_NONE, KERR_NONE});
}

static void a_write_that_is_too_large_is_refused_alone(void **state)
{
    (void)state;
    h.settings.max_message_bytes = 1000;
    reconfigure();
    emit('a', 1, 20);
    emit('b', 1, 950);
    emit('c', 1, 20);
    turns(&h.w, 2);
    assert_string_equal(log_content(), "a|c");
    check_told("abc", (enum kerr[]){KERR_NONE, KERR_MESSAGE_TOO_LARGE, KERR_NONE});
}

static void a_write_that_compression_makes_small_enough_is_taken(void **state)
{
    (void)state;
    h.settings.max_message_bytes = 1000;
    h.settings.keep_codec = false;
    h.settings.codec = CODEC_ZSTD;
    reconfigure();
    emit('a', 1, 3000);
    turns(&h.w, 2);
    check_told("a", (enum kerr[]){KERR_NONE});
}

/* The in-sync set as the controller has changed it. */
static void in_sync(int32_t count)
{
    static int32_t partition_epoch;
    static const int32_t ids[] = {BROKER, BROKER + 1};
    const struct partition_role role = {.leads = true,
                                        .self = BROKER,
                                        .leader = BROKER,
                                        .partition_epoch = ++partition_epoch,
                                        .replicas = ids,
                                        .replica_count = 2,
                                        .isr = ids,
                                        .isr_count = count};
    partition_set_role(offsets_partition(), &role);
}

static void outcomes_wait_for_the_high_watermark(void **state)
{
    (void)state;
    in_sync(2);
    emit('a', 1, 20);
    turns(&h.w, 2);
    emit('b', 1, 20);
    turns(&h.w, 5);
    assert_string_equal(log_content(), "a|b");
    assert_string_equal(s.told, "");
    in_sync(1); /* the follower is out: what is here is replicated */
    turns(&h.w, 5);
    check_told("ab", (enum kerr[]){KERR_NONE, KERR_NONE});
}

static void what_is_not_replicated_in_time_has_timed_out(void **state)
{
    (void)state;
    in_sync(2);
    emit('a', 1, 20);
    turns(&h.w, 5);
    h.w.now_us += (COMMIT_TIMEOUT_MS - 1000) * 1000;
    turns(&h.w, 5);
    assert_string_equal(s.told, "");
    h.w.now_us += 1000 * 1000;
    turns(&h.w, 5);
    check_told("a", (enum kerr[]){KERR_REQUEST_TIMED_OUT});
}

static void too_few_replicas_refuse_a_write(void **state)
{
    (void)state;
    h.settings.min_insync_replicas = 2;
    reconfigure();
    emit('a', 1, 20);
    turns(&h.w, 2);
    assert_string_equal(log_content(), "");
    check_told("a", (enum kerr[]){KERR_NOT_ENOUGH_REPLICAS});
}

static void a_lost_leadership_fails_what_is_not_replicated(void **state)
{
    (void)state;
    in_sync(2);
    emit('a', 1, 20);
    turns(&h.w, 3);
    emit('b', 1, 20);
    role(false, 1, 2);
    assert_null(s.shard);
    assert_string_equal(s.told, "ab");
    assert_int_not_equal(s.kerrs[0], KERR_NONE);
    assert_int_not_equal(s.kerrs[1], KERR_NONE);
}

/* ---- Loading */

static void all_that_the_log_has_is_replayed_in_order(void **state)
{
    (void)state;
    for (char name = 'a'; name <= 'h'; name++) { /* of more than one buffer */
        emit(name, 2, 100);
        turns(&h.w, 2);
    }
    role(false, 1, 1);
    assert_null(s.shard);
    role(true, 2, 1);
    turns(&h.w, 20);
    assert_true(s.shard && s.shard->loaded);
    assert_int_equal(s.shards, 2);
    assert_string_equal(s.replayed, "aabbccddeeffgghh");
    for (int i = 0; i < s.replayed_count; i++) assert_int_equal(s.replayed_at[i], i);
}

static void a_new_epoch_loads_anew(void **state)
{
    (void)state;
    emit('a', 1, 20);
    turns(&h.w, 2);
    role(true, 3, 1); /* another leader may have been between */
    assert_int_equal(s.shards, 2);
    assert_true(s.shard && s.shard->loaded);
    assert_string_equal(s.replayed, "a");
    role(true, 3, 1); /* the same once more changes nothing */
    assert_int_equal(s.shards, 2);
}

static void flip_byte(int64_t pos)
{
    struct file *f;
    uint8_t byte;
    size_t got;
    char *path = mem_printf("%s/" OFFSETS_TOPIC "-0/00000000000000000000.log", partition_dir_path(offsets_partition()));
    assert_int_equal(fs_open(fs_sim_fs(h.sim), path, FS_READ | FS_WRITE, &f), OK);
    assert_int_equal(file_pread(f, &byte, 1, pos, &got), OK);
    byte ^= 0xff;
    assert_int_equal(file_pwrite(f, &byte, 1, pos), OK);
    file_unref(f);
    mem_free(path);
}

static void a_log_that_cannot_be_read_is_no_empty_coordinator(void **state)
{
    (void)state;
    emit('a', 1, 20);
    turns(&h.w, 2);
    role(false, 1, 1);
    flip_byte(70);
    role(true, 2, 1);
    for (int tries = 0; tries < 4; tries++) {
        assert_true(!s.shard || !s.shard->loaded);
        h.w.now_us += 60 * 1000 * 1000;
        turns(&h.w, 5);
    }
    assert_int_equal(s.replayed_count, 0);
    flip_byte(70);
    h.w.now_us += 60 * 1000 * 1000;
    turns(&h.w, 5);
    assert_true(s.shard && s.shard->loaded);
    assert_string_equal(s.replayed, "a");
}

static void a_stop_gives_up_a_load_that_is_tried_again(void **state)
{
    (void)state;
    emit('a', 1, 20);
    turns(&h.w, 2);
    role(false, 1, 1);
    flip_byte(70);
    role(true, 2, 1);
    assert_true(!s.shard || !s.shard->loaded); /* teardown stops */
}

/* ---- The rest of a life */

static void a_topic_that_is_gone_is_forgotten(void **state)
{
    (void)state;
    groups_topic_removed(h.br.groups, STR("orders"));
    turns(&h.w, 2);
    assert_string_equal(s.forgotten, "orders");
}

static void expired_offsets_are_looked_for_from_time_to_time(void **state)
{
    (void)state;
    h.w.now_us += 59 * 1000 * 1000;
    turns(&h.w, 2);
    assert_int_equal(s.expired, 0);
    h.w.now_us += 2 * 1000 * 1000;
    turns(&h.w, 2);
    assert_int_equal(s.expired, 1);
    h.w.now_us += 60 * 1000 * 1000;
    turns(&h.w, 2);
    assert_int_equal(s.expired, 2);
}

static void a_partition_that_goes_offline_is_closed(void **state)
{
    (void)state;
    partition_set_offline(offsets_partition());
    turns(&h.w, 3);
    assert_null(s.shard);
}

/* A topic of which the first `known` of `count` partitions have been told. */
static struct topic_view told_of(struct partition_view *partitions, int32_t count, int32_t known)
{
    for (int32_t i = 0; i < count; i++) partitions[i] = (struct partition_view){.known = i < known};
    return (struct topic_view){.name = STR(OFFSETS_TOPIC), .partition_count = known, .partitions = partitions};
}

static void the_number_of_partitions_stays_while_the_topic_does(void **state)
{
    (void)state;
    struct partition_view partitions[60];
    struct topic_view t = told_of(partitions, 60, 50);
    assert_int_equal(groups_partition_count(h.br.groups), 50); /* what it is going to have */
    groups_topic_changed(h.br.groups, &t);
    assert_int_equal(groups_partition_count(h.br.groups), 50);
    t = told_of(partitions, 60, 60);
    groups_topic_changed(h.br.groups, &t);
    assert_int_equal(groups_partition_count(h.br.groups), 50);
    turns(&h.w, 2);
}

static void make_topic(struct coord *c, int32_t partitions)
{
    const struct str topics = ZNODE_TOPICS;
    struct arena a;
    int32_t id = BROKER;
    arena_init(&a, SIZE_MAX);
    struct znode_topic node = {.partitions = arena_array(&a, struct znode_replicas, (size_t)partitions),
                               .partition_count = (size_t)partitions};
    for (int32_t i = 0; i < partitions; i++)
        node.partitions[i] = (struct znode_replicas){.partition = i, .replicas = &id, .replica_count = 1};
    coord_make_paths(c, &topics, 1, (struct coord_to){.loop = h.w.loop});
    coord_create(c, znode_topic_path(&a, STR(OFFSETS_TOPIC)), znode_topic_encode(&a, &node), 0,
                 (struct coord_to){.loop = h.w.loop});
    arena_fini(&a);
}

static void close_store(struct coord_memory *m, struct coord *c)
{
    bool closed = false;
    coord_close(c, h.w.loop, on_stopped, &closed);
    turns(&h.w, 5);
    assert_true(closed);
    coord_memory_free(m);
}

/* A broker that has just started may be told of one partition before it is told of all. */
static void partitions_that_were_not_told_of_yet_are_counted(void **state)
{
    (void)state;
    struct coord_memory *m = coord_memory_new(&h.w.clock);
    struct coord *c = h.br.coord = coord_memory_connect(m, (struct coord_listener){.loop = h.w.loop});
    struct partition_view partitions[8];
    make_topic(c, 8);
    struct topic_view t = told_of(partitions, 8, 3);
    groups_topic_changed(h.br.groups, &t);
    assert_int_equal(groups_partition_count(h.br.groups), 0); /* nobody is sent anywhere */
    turns(&h.w, 5);
    assert_int_equal(groups_partition_count(h.br.groups), 8);
    groups_topic_removed(h.br.groups, t.name);
    assert_int_equal(groups_partition_count(h.br.groups), 50);
    turns(&h.w, 5);
    close_store(m, c);
}

/* Who waits and hangs up is answered once, also when the time that the shard is told then brings the answer. */
static void a_call_that_is_answered_as_it_is_taken_back_is_over_once(void **state)
{
    (void)state;
    struct request rq = {.broker = &h.br, .loop = h.w.loop, .running = true};
    struct groups_asking as;
    arena_init(&rq.arena, SIZE_MAX);
    groups_asking_begin(&as, &rq, 1);
    groups_ask_send(groups_ask(&as, GROUP_SYNC, STR("g"), NULL, NULL));
    assert_non_null(s.call);
    assert_int_equal(groups_asking_wait(&as), WAIT);
    turns(&h.w, 1);
    s.answers_by_time = true;
    rq.cancelled = true;
    assert_int_equal(groups_asking_wait(&as), DONE);
    assert_int_equal(as.out, 0);
    arena_fini(&rq.arena);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    if (!getenv("SHOW_LOG")) assert_int_equal(log_open_file("/dev/null", NULL), OK);
    const struct CMUnitTest tests[] = {
        TEST(what_a_turn_emits_is_one_batch),
        TEST(no_write_is_split_over_batches),
        TEST(a_write_that_is_too_large_is_refused_alone),
        TEST(a_write_that_compression_makes_small_enough_is_taken),
        TEST(outcomes_wait_for_the_high_watermark),
        TEST(what_is_not_replicated_in_time_has_timed_out),
        TEST(too_few_replicas_refuse_a_write),
        TEST(a_lost_leadership_fails_what_is_not_replicated),
        TEST(all_that_the_log_has_is_replayed_in_order),
        TEST(a_new_epoch_loads_anew),
        TEST(a_log_that_cannot_be_read_is_no_empty_coordinator),
        TEST(a_stop_gives_up_a_load_that_is_tried_again),
        TEST(a_topic_that_is_gone_is_forgotten),
        TEST(expired_offsets_are_looked_for_from_time_to_time),
        TEST(a_partition_that_goes_offline_is_closed),
        TEST(the_number_of_partitions_stays_while_the_topic_does),
        TEST(partitions_that_were_not_told_of_yet_are_counted),
        TEST(a_call_that_is_answered_as_it_is_taken_back_is_over_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
