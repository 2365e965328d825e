/* broker_offsets_api_test.c: ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers and DescribeLogDirs
 * over a log and a table of replicas that are made up here: what these handlers decide, whatever the log does.
 * Expected codes are those of Apache Kafka 3.9 (KafkaApis, Partition, UnifiedLog). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "replica/flusher.h"
#include "wire/gen/delete_records.h"
#include "wire/gen/describe_log_dirs.h"
#include "wire/gen/describe_producers.h"
#include "wire/gen/list_offsets.h"
#include "wire/gen/offset_for_leader_epoch.h"

/* ---- A log with a record at each offset, written at time 100 * offset, in epoch 1 below 50 and in epoch 2 from 50 on
 */

struct plog {
    int64_t start, end, unstable;
    enum err err;
};

enum { EPOCH_2_START = 50 };

struct uuid plog_topic_id(const struct plog *pl)
{
    (void)pl;
    return UUID_ZERO;
}

int64_t plog_start(const struct plog *pl)
{
    return pl->start;
}

int64_t plog_end(const struct plog *pl)
{
    return pl->end;
}

int64_t plog_first_unstable(struct plog *pl)
{
    return pl->unstable;
}

int64_t plog_size(struct plog *pl)
{
    return 1000 + pl->end;
}

void plog_abandon(struct plog *pl)
{
    (void)pl;
}

int64_t plog_recovery_point(const struct plog *pl)
{
    return pl->end;
}

int64_t plog_safe_end(const struct plog *pl)
{
    return pl->end;
}

void plog_reconfigure(struct plog *pl, const struct plog_config *config)
{
    (void)pl, (void)config;
}

void flusher_add(struct flusher *fl, struct partition *p)
{
    (void)fl, (void)p;
}

void plog_replicated(struct plog *pl, int64_t high_watermark)
{
    (void)pl, (void)high_watermark;
}

enum err plog_max_timestamp(struct plog *pl, int64_t *timestamp, int64_t *offset)
{
    *offset = pl->end - 1;
    *timestamp = 100 * *offset;
    return pl->err;
}

enum err plog_find_time(struct plog *pl, int64_t timestamp, int64_t below, int64_t *offset, int64_t *found_ms,
                        int32_t *leader_epoch)
{
    int64_t at = MAX((timestamp + 99) / 100, pl->start);
    *offset = at < below ? at : -1;
    *found_ms = 100 * at;
    *leader_epoch = at < EPOCH_2_START ? 1 : 2;
    return pl->err;
}

void plog_epoch_end(struct plog *pl, int32_t epoch, int32_t *found, int64_t *end)
{
    *found = epoch > 2 || epoch < 1 ? -1 : epoch;
    *end = epoch == 1 ? EPOCH_2_START : epoch == 2 ? pl->end : -1;
}

int32_t plog_last_epoch(struct plog *pl)
{
    (void)pl;
    return 2;
}

int32_t plog_epoch_of(struct plog *pl, int64_t offset)
{
    (void)pl;
    return offset < EPOCH_2_START ? 1 : 2;
}

enum err plog_set_start(struct plog *pl, int64_t offset)
{
    pl->start = MAX(pl->start, offset);
    return pl->err;
}

void plog_each_producer(struct plog *pl, void (*each)(void *arg, const struct producer_view *p), void *arg)
{
    (void)pl;
    for (int i = 0; i < 20; i++)
        each(arg, &(struct producer_view){.producer_id = i,
                                          .producer_epoch = 3,
                                          .last_sequence = 7,
                                          .last_timestamp_ms = 5,
                                          .coordinator_epoch = -1,
                                          .txn_start_offset = -1});
}

/* ---- Replicas: of topic "t" partitions 0 (led here) and 1 (followed), of "compact" and "__consumer_offsets" one each
 */

enum { T0, T1, COMPACT, OFFSETS, PARTS };

static struct {
    struct broker br;
    struct loop *loop;
    struct fs fs;
    struct request rq;
    struct plog logs[PARTS];
    struct partition *parts[PARTS];
    struct topic_replicas *topics[3];
    struct topic_settings deleting, compacting;
    enum err space_err;
} w;

struct topic_replicas *replicas_find(const struct replicas *r, struct str topic)
{
    (void)r;
    for (size_t i = 0; i < ARRAY_COUNT(w.topics); i++)
        if (str_is(topic, w.topics[i]->name)) return w.topics[i];
    return NULL;
}

struct topic_replicas *replicas_find_id(const struct replicas *r, struct uuid id)
{
    (void)r, (void)id;
    return NULL;
}

/* A log that no controller has spoken of: partition 0 of "unclaimed". */
bool replicas_unclaimed_end(const struct replicas *r, struct str topic, int32_t index, int64_t *end,
                            int32_t *last_epoch)
{
    (void)r;
    if (!str_is(topic, "unclaimed") || index != 0) return false;
    *end = 77;
    *last_epoch = 5;
    return true;
}

size_t replicas_dir_count(const struct replicas *r)
{
    (void)r;
    return 2;
}

const char *replicas_dir_path(const struct replicas *r, size_t dir)
{
    (void)r;
    return dir ? "/d1" : "/d0";
}

const char *partition_dir_path(const struct partition *p)
{
    return p == w.parts[T1] ? "/d1" : "/d0";
}

enum err replicas_dir_error(const struct replicas *r, size_t dir)
{
    (void)r, (void)dir;
    return OK;
}

struct future_view *replicas_futures(struct replicas *r, size_t *count)
{
    (void)r;
    *count = 0;
    return NULL;
}

void replicas_futures_free(struct future_view *list, size_t count)
{
    (void)list, (void)count;
}

void partition_failed(struct partition *p, enum err e, const char *what)
{
    (void)p, (void)e, (void)what;
}

struct partition **replicas_list(struct replicas *r, size_t *count)
{
    (void)r;
    struct partition **list = mem_alloc(sizeof(struct partition *) * PARTS);
    for (size_t i = 0; i < PARTS; i++) list[i] = partition_ref(w.parts[PARTS - 1 - i]);
    *count = PARTS;
    return list;
}

void replicas_list_free(struct partition **list, size_t count)
{
    for (size_t i = 0; i < count; i++) partition_unref(list[i]);
    mem_free(list);
}

static enum err space(struct fs *fs, const char *path, struct fs_space *out)
{
    (void)fs;
    *out = (struct fs_space){.total = 5000, .available = 3000};
    return strcmp(path, "/d1") == 0 ? w.space_err : OK;
}

/* Work is done at once; run() enters the handler again. */
void request_offload(struct request *rq, void (*work)(struct request *rq))
{
    work(rq);
}

void request_wait_until(struct request *rq, int64_t due_us)
{
    (void)due_us;
    rq->expired = true;
}

void request_wake(struct request *rq)
{
    (void)rq;
}

void *request_op(struct request *rq, size_t size)
{
    if (!rq->op) rq->op = arena_alloc(&rq->arena, size);
    return rq->op;
}

/* ---- The world */

static struct topic_replicas *topic_new(const char *name, struct topic_settings *settings, size_t count)
{
    struct topic_replicas *t = mem_zalloc(1, sizeof *t + count * sizeof t->parts[0]);
    t->name = mem_strdup(name);
    t->count = t->capacity = (int32_t)count;
    atomic_init(&t->settings, settings);
    return t;
}

static void add_part(int which, struct topic_replicas *t, int32_t index)
{
    w.logs[which] = (struct plog){.start = 10, .end = 100, .unstable = 70};
    struct partition *p = w.parts[which] = partition_new(t->name, index, NULL, NULL);
    partition_give_log(p, &w.logs[which], 90);
    atomic_store(&p->changed, 0);
    static const int32_t ids[] = {0, 1};
    const struct partition_role role = {.leads = which != T1,
                                        .leader = which != T1 ? 0 : 1,
                                        .leader_epoch = 2,
                                        .replicas = ids,
                                        .replica_count = 2,
                                        .isr = ids,
                                        .isr_count = 2};
    partition_set_role(p, &role);
    atomic_store(&p->epoch_start, EPOCH_2_START);
    const struct follower_fetch ff = {
        .broker_id = 1, .broker_epoch = -1, .leader_epoch = 2, .fetch_offset = 90, .log_start = 90};
    if (which != T1) assert_int_equal(partition_follower_fetched(p, &ff), KERR_NONE);
    atomic_store(&t->parts[index], p);
}

/* The cluster knows a third partition of "t", which is elsewhere. */
static void publish(void)
{
    struct update_metadata_request_update_metadata_partition_state parts[3];
    for (int32_t i = 0; i < 3; i++) {
        parts[i] = update_metadata_request_update_metadata_partition_state_default;
        parts[i].partition_index = i;
    }
    struct update_metadata_request_update_metadata_topic_state topics[] = {
        {.topic_name = STR("t"), .partition_states = parts, .partition_states_count = 3}};
    struct update_metadata_request u = update_metadata_request_default;
    u.topic_states = topics;
    u.topic_states_count = 1;
    metadata_update(w.br.metadata, &u);
}

static int setup(void **state)
{
    (void)state;
    static const struct fs_ops ops = {.space = space};
    memset(&w, 0, sizeof w);
    w.fs.ops = &ops;
    w.deleting.log.cleanup_delete = w.compacting.log.cleanup_compact = true;
    w.topics[0] = topic_new("t", &w.deleting, 2);
    w.topics[1] = topic_new("compact", &w.compacting, 1);
    w.topics[2] = topic_new("__consumer_offsets", &w.deleting, 1);
    add_part(T0, w.topics[0], 0);
    add_part(T1, w.topics[0], 1);
    add_part(COMPACT, w.topics[1], 0);
    add_part(OFFSETS, w.topics[2], 0);
    assert_int_equal(loop_new(&w.loop, clock_system(), 0, NULL), OK);
    w.br.grace = grace_new(&w.loop, 1);
    w.br.metadata = metadata_new(w.br.grace, w.loop);
    w.br.fs = &w.fs;
    w.br.loops = &w.loop;
    w.br.loop_count = 1;
    w.rq = (struct request){.broker = &w.br, .loop = w.loop};
    arena_init(&w.rq.arena, SIZE_MAX);
    publish();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(atomic_load(&w.parts[i]->refs), 1); /* what a handler takes it gives back */
        partition_unref(w.parts[i]);
    }
    for (size_t i = 0; i < ARRAY_COUNT(w.topics); i++) {
        mem_free(w.topics[i]->name);
        mem_free(w.topics[i]);
    }
    arena_fini(&w.rq.arena);
    grace_free(w.br.grace);
    metadata_free(w.br.metadata);
    loop_free(w.loop);
    return 0;
}

/* Runs a handler to its end and proves that its answer can be sent in this version. */
static void run(enum step (*handle)(struct request *), const struct wire_schema *schema, const void *in, void *out,
                int16_t version)
{
    w.rq.in = in;
    w.rq.out = out;
    w.rq.op = NULL;
    w.rq.version = version;
    enum step step = handle(&w.rq);
    for (int i = 0; i < 10 && step == WAIT; i++) {
        loop_turn(w.loop, 0); /* what it has asked of the home loop */
        step = handle(&w.rq);
    }
    assert_int_equal(step, DONE);
    struct buf_pool *pool = buf_pool_new(0);
    struct writer writer;
    writer_init(&writer, pool);
    assert_int_equal(wire_encode(schema, out, version, &writer), OK);
    writer_fini(&writer);
    buf_pool_free(pool);
}

/* ---- ListOffsets */

typedef struct list_offsets_request_list_offsets_partition asked_offset;
typedef struct list_offsets_response_list_offsets_partition_response told_offset;

static struct list_offsets_request list_request(struct list_offsets_request_list_offsets_topic *t, const char *name,
                                                asked_offset *p, int32_t count)
{
    *t = (struct list_offsets_request_list_offsets_topic){
        .name = str_of(name), .partitions = p, .partitions_count = count};
    struct list_offsets_request in = list_offsets_request_default;
    in.replica_id = -1;
    in.topics = t;
    in.topics_count = 1;
    return in;
}

struct list_ask {
    const char *topic;
    int32_t partition;
    int64_t timestamp;
    int32_t epoch_plus_1; /* 0: none given */
    int32_t replica_plus_1;
    int8_t isolation;
    int16_t version;
};

static told_offset list_one(struct list_ask ask)
{
    asked_offset p = {
        .partition_index = ask.partition, .current_leader_epoch = ask.epoch_plus_1 - 1, .timestamp = ask.timestamp};
    struct list_offsets_request_list_offsets_topic t;
    struct list_offsets_request in = list_request(&t, ask.topic ? ask.topic : "t", &p, 1);
    in.replica_id = ask.replica_plus_1 - 1;
    in.isolation_level = ask.isolation;
    struct list_offsets_response out = list_offsets_response_default;
    run(list_offsets_handle, &list_offsets_response_schema, &in, &out, ask.version ? ask.version : 11);
    return out.topics[0].partitions[0];
}
#define LIST_ONE(...) list_one((struct list_ask){__VA_ARGS__})

static void the_latest_offset_is_what_the_asker_may_see(void **state)
{
    (void)state;
    told_offset o = LIST_ONE(.timestamp = -1);
    assert_int_equal(o.error_code, KERR_NONE);
    assert_int_equal(o.offset, 90);
    assert_int_equal(o.timestamp, -1);
    assert_int_equal(o.leader_epoch, 2);
    assert_int_equal(LIST_ONE(.timestamp = -1, .isolation = 1).offset, 70);
    assert_int_equal(LIST_ONE(.timestamp = -1, .replica_plus_1 = 4).offset, 100);
    assert_int_equal(LIST_ONE(.timestamp = -1, .isolation = 2).error_code, KERR_INVALID_REQUEST);
}

enum { REPLICA_DEBUGGING = -2 };

/* As a controller asks before it elects: also what is here and has no role yet. */
static void who_compares_replicas_is_told_where_each_log_ends(void **state)
{
    (void)state;
    told_offset o = LIST_ONE(.timestamp = -1, .replica_plus_1 = REPLICA_DEBUGGING + 1);
    assert_int_equal(o.error_code, KERR_NONE);
    assert_int_equal(o.offset, 100);
    o = LIST_ONE(.topic = "unclaimed", .timestamp = -1, .replica_plus_1 = REPLICA_DEBUGGING + 1);
    assert_int_equal(o.error_code, KERR_NONE);
    assert_int_equal(o.offset, 77);
    assert_int_equal(o.leader_epoch, 5);
    o = LIST_ONE(.topic = "unclaimed", .partition = 1, .timestamp = -1, .replica_plus_1 = REPLICA_DEBUGGING + 1);
    assert_int_equal(o.error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    o = LIST_ONE(.topic = "unclaimed", .timestamp = -2, .replica_plus_1 = REPLICA_DEBUGGING + 1);
    assert_int_equal(o.error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(LIST_ONE(.topic = "unclaimed", .timestamp = -1).error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    o = LIST_ONE(.timestamp = 5950, .replica_plus_1 = REPLICA_DEBUGGING + 1); /* a worker's, after that */
    assert_int_equal(o.offset, 60);
}

static void the_earliest_offset_is_the_logs_start(void **state)
{
    (void)state;
    for (int64_t special = -4; special <= -2; special += 2) {
        told_offset o = LIST_ONE(.timestamp = special);
        assert_int_equal(o.error_code, KERR_NONE);
        assert_int_equal(o.offset, 10);
        assert_int_equal(o.timestamp, -1);
        assert_int_equal(o.leader_epoch, 1);
    }
}

static void specials_are_refused_in_versions_older_than_they_are(void **state)
{
    (void)state;
    static const struct {
        int64_t timestamp;
        int16_t since;
    } specials[] = {{-1, 1}, {-2, 1}, {-3, 7}, {-4, 8}, {-5, 9}, {-6, 11}, {-7, 12}, {INT64_MIN, 12}};
    for (size_t i = 0; i < ARRAY_COUNT(specials); i++)
        for (int16_t v = 1; v <= 11; v++)
            assert_int_equal(LIST_ONE(.timestamp = specials[i].timestamp, .version = v).error_code,
                             v < specials[i].since ? KERR_UNSUPPORTED_VERSION : KERR_NONE);
}

static void nothing_is_tiered(void **state)
{
    (void)state;
    for (int64_t special = -6; special <= -5; special++) {
        told_offset o = LIST_ONE(.timestamp = special);
        assert_int_equal(o.error_code, KERR_NONE);
        assert_int_equal(o.offset, -1);
        assert_int_equal(o.timestamp, -1);
        assert_int_equal(o.leader_epoch, -1);
    }
}

static void a_time_is_looked_up_below_the_visible_end(void **state)
{
    (void)state;
    told_offset o = LIST_ONE(.timestamp = 5950);
    assert_int_equal(o.offset, 60);
    assert_int_equal(o.timestamp, 6000);
    assert_int_equal(o.leader_epoch, 2);
    assert_int_equal(LIST_ONE(.timestamp = 0).offset, 10);
    o = LIST_ONE(.timestamp = 9000);
    assert_int_equal(o.error_code, KERR_NONE);
    assert_int_equal(o.offset, -1);
    assert_int_equal(o.timestamp, -1);
    assert_int_equal(LIST_ONE(.timestamp = 9000, .replica_plus_1 = 4).offset, 90);
    assert_int_equal(LIST_ONE(.timestamp = 7500, .isolation = 1).offset, -1);
    for (int16_t v = 1; v <= 11; v++) assert_int_equal(LIST_ONE(.timestamp = 5950, .version = v).offset, 60);
    w.logs[T0].err = ERR_IO;
    assert_int_equal(LIST_ONE(.timestamp = 5950).error_code, KERR_KAFKA_STORAGE_ERROR);
}

static void the_largest_timestamp_counts_only_if_it_is_visible(void **state)
{
    (void)state;
    assert_int_equal(LIST_ONE(.timestamp = -3).offset, -1);
    atomic_store(&w.parts[T0]->high_watermark, 100);
    told_offset o = LIST_ONE(.timestamp = -3);
    assert_int_equal(o.offset, 99);
    assert_int_equal(o.timestamp, 9900);
    assert_int_equal(o.leader_epoch, 2);
}

static void only_the_leader_in_the_clients_epoch_answers(void **state)
{
    (void)state;
    assert_int_equal(LIST_ONE(.timestamp = -1, .epoch_plus_1 = 3).error_code, KERR_NONE);
    assert_int_equal(LIST_ONE(.timestamp = -1, .epoch_plus_1 = 2).error_code, KERR_FENCED_LEADER_EPOCH);
    assert_int_equal(LIST_ONE(.timestamp = -1, .epoch_plus_1 = 4).error_code, KERR_UNKNOWN_LEADER_EPOCH);
    assert_int_equal(LIST_ONE(.partition = 1, .timestamp = -1).error_code, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(LIST_ONE(.partition = 2, .timestamp = -1).error_code, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(LIST_ONE(.partition = 3, .timestamp = -1).error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(LIST_ONE(.partition = -1, .timestamp = -1).error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(LIST_ONE(.topic = "none", .timestamp = -1).error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    partition_set_offline(w.parts[T0]);
    assert_int_equal(LIST_ONE(.timestamp = -1).error_code, KERR_KAFKA_STORAGE_ERROR);
}

static void a_debugging_consumer_may_ask_a_follower(void **state)
{
    (void)state;
    enum { DEBUGGER_PLUS_1 = -1 };
    assert_int_equal(LIST_ONE(.partition = 1, .timestamp = -1, .replica_plus_1 = DEBUGGER_PLUS_1).offset, 100);
    told_offset o = LIST_ONE(.partition = 1, .timestamp = -1, .replica_plus_1 = DEBUGGER_PLUS_1, .epoch_plus_1 = 2);
    assert_int_equal(o.error_code, KERR_FENCED_LEADER_EPOCH);
}

static void a_new_leaders_end_is_not_told_before_the_high_watermark_reaches_its_epoch(void **state)
{
    (void)state;
    atomic_store(&w.parts[T0]->high_watermark, 49);
    assert_int_equal(LIST_ONE(.timestamp = -1).error_code, KERR_OFFSET_NOT_AVAILABLE);
    assert_int_equal(LIST_ONE(.timestamp = -1, .version = 5).error_code, KERR_OFFSET_NOT_AVAILABLE);
    assert_int_equal(LIST_ONE(.timestamp = -1, .version = 4).error_code, KERR_LEADER_NOT_AVAILABLE);
    assert_int_equal(LIST_ONE(.timestamp = 4900).error_code, KERR_OFFSET_NOT_AVAILABLE);
    assert_int_equal(LIST_ONE(.timestamp = 4800).offset, 48);
    assert_int_equal(LIST_ONE(.timestamp = -2).offset, 10);
    assert_int_equal(LIST_ONE(.timestamp = -1, .replica_plus_1 = 4).offset, 100);
    atomic_store(&w.parts[T0]->high_watermark, 50);
    assert_int_equal(LIST_ONE(.timestamp = -1).offset, 50);
}

static void a_partition_that_is_asked_twice_is_refused_both_times(void **state)
{
    (void)state;
    asked_offset p[] = {{.partition_index = 0, .current_leader_epoch = -1, .timestamp = -1},
                        {.partition_index = 1, .current_leader_epoch = -1, .timestamp = -1},
                        {.partition_index = 0, .current_leader_epoch = -1, .timestamp = 5}};
    struct list_offsets_request_list_offsets_topic t;
    struct list_offsets_request in = list_request(&t, "t", p, 3);
    struct list_offsets_response out = list_offsets_response_default;
    run(list_offsets_handle, &list_offsets_response_schema, &in, &out, 7);
    assert_int_equal(out.topics[0].partitions[0].error_code, KERR_INVALID_REQUEST);
    assert_int_equal(out.topics[0].partitions[1].error_code, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(out.topics[0].partitions[2].error_code, KERR_INVALID_REQUEST);
    assert_int_equal(out.topics[0].partitions[2].offset, -1);
}

/* ---- OffsetForLeaderEpoch */

static void an_epochs_end_is_told_by_the_leader(void **state)
{
    (void)state;
    struct offset_for_leader_epoch_request_offset_for_leader_partition p[] = {
        {.partition = 0, .current_leader_epoch = 2, .leader_epoch = 1},
        {.partition = 0, .current_leader_epoch = -1, .leader_epoch = 9},
        {.partition = 0, .current_leader_epoch = 1, .leader_epoch = 1},
        {.partition = 1, .current_leader_epoch = -1, .leader_epoch = 1}};
    struct offset_for_leader_epoch_request_offset_for_leader_topic t = {
        .topic = STR("t"), .partitions = p, .partitions_count = 4};
    struct offset_for_leader_epoch_request in = offset_for_leader_epoch_request_default;
    in.topics = &t;
    in.topics_count = 1;
    for (int16_t v = 2; v <= 4; v++) {
        struct offset_for_leader_epoch_response out = offset_for_leader_epoch_response_default;
        run(offset_for_leader_epoch_handle, &offset_for_leader_epoch_response_schema, &in, &out, v);
        const struct offset_for_leader_epoch_response_epoch_end_offset *o = out.topics[0].partitions;
        assert_int_equal(o[0].error_code, KERR_NONE);
        assert_int_equal(o[0].leader_epoch, 1);
        assert_int_equal(o[0].end_offset, 50);
        assert_int_equal(o[1].error_code, KERR_NONE);
        assert_int_equal(o[1].leader_epoch, -1);
        assert_int_equal(o[1].end_offset, -1);
        assert_int_equal(o[2].error_code, KERR_FENCED_LEADER_EPOCH);
        assert_int_equal(o[2].end_offset, -1);
        assert_int_equal(o[3].error_code, KERR_NOT_LEADER_OR_FOLLOWER);
    }
}

/* ---- DeleteRecords */

static struct delete_records_response_delete_records_partition_result delete_to(const char *topic, int32_t partition,
                                                                                int64_t offset)
{
    struct delete_records_request_delete_records_partition p = {.partition_index = partition, .offset = offset};
    struct delete_records_request_delete_records_topic t = {
        .name = str_of(topic), .partitions = &p, .partitions_count = 1};
    struct delete_records_request in = delete_records_request_default;
    in.topics = &t;
    in.topics_count = 1;
    struct delete_records_response out = delete_records_response_default;
    run(delete_records_handle, &delete_records_response_schema, &in, &out, 2);
    return out.topics[0].partitions[0];
}

static void records_are_deleted_up_to_the_high_watermark_and_no_further(void **state)
{
    (void)state;
    assert_int_equal(delete_to("t", 0, 30).low_watermark, 30);
    assert_int_equal(w.logs[T0].start, 30);
    assert_true(atomic_load(&w.parts[T0]->changed) != 0); /* or the checkpoint would miss it */
    assert_int_equal(delete_to("t", 0, 20).low_watermark, 30);
    assert_int_equal(delete_to("t", 0, 91).error_code, KERR_OFFSET_OUT_OF_RANGE);
    assert_int_equal(delete_to("t", 0, -2).error_code, KERR_OFFSET_OUT_OF_RANGE);
    assert_int_equal(delete_to("t", 0, -2).low_watermark, -1);
    assert_int_equal(w.logs[T0].start, 30);
    assert_int_equal(delete_to("t", 0, -1).low_watermark, 90);
    w.logs[T0].err = ERR_IO;
    assert_int_equal(delete_to("t", 0, -1).error_code, KERR_KAFKA_STORAGE_ERROR);
}

static void records_of_others_and_of_compacted_or_internal_topics_stay(void **state)
{
    (void)state;
    assert_int_equal(delete_to("t", 1, 30).error_code, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(delete_to("t", 3, 30).error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(delete_to("compact", 0, 30).error_code, KERR_POLICY_VIOLATION);
    assert_int_equal(delete_to("__consumer_offsets", 0, 30).error_code, KERR_INVALID_TOPIC_EXCEPTION);
    for (int i = 0; i < PARTS; i++) assert_int_equal(w.logs[i].start, 10);
}

static void two_offsets_for_one_partition_delete_nothing(void **state)
{
    (void)state;
    struct delete_records_request_delete_records_partition p[] = {{0, 20}, {0, 30}};
    struct delete_records_request_delete_records_topic t = {.name = STR("t"), .partitions = p, .partitions_count = 2};
    struct delete_records_request in = delete_records_request_default;
    in.topics = &t;
    in.topics_count = 1;
    for (int16_t v = 0; v <= 2; v++) {
        struct delete_records_response out = delete_records_response_default;
        run(delete_records_handle, &delete_records_response_schema, &in, &out, v);
        assert_int_equal(out.topics[0].partitions[0].error_code, KERR_INVALID_REQUEST);
        assert_int_equal(out.topics[0].partitions[1].error_code, KERR_INVALID_REQUEST);
    }
    assert_int_equal(w.logs[T0].start, 10);
}

/* ---- DescribeProducers */

static void any_replica_tells_its_producers_once(void **state)
{
    (void)state;
    int32_t indexes[] = {1, 1, 2}, zero = 0;
    struct describe_producers_request_topic_request t[] = {
        {.name = STR("t"), .partition_indexes = indexes, .partition_indexes_count = 3},
        {.name = STR("none"), .partition_indexes = &zero, .partition_indexes_count = 1},
        {.name = STR("no/name"), .partition_indexes = &zero, .partition_indexes_count = 1}};
    struct describe_producers_request in = {.topics = t, .topics_count = 3};
    struct describe_producers_response out = describe_producers_response_default;
    run(describe_producers_handle, &describe_producers_response_schema, &in, &out, 0);
    const struct describe_producers_response_partition_response *p = out.topics[0].partitions;
    assert_int_equal(p[0].error_code, KERR_NONE);
    assert_int_equal(p[0].active_producers_count, 20);
    assert_int_equal(p[0].active_producers[19].producer_id, 19);
    assert_int_equal(p[0].active_producers[19].last_sequence, 7);
    assert_int_equal(p[0].active_producers[19].current_txn_start_offset, -1);
    assert_int_equal(p[1].error_code, KERR_INVALID_REQUEST);
    assert_int_equal(p[1].active_producers_count, 0);
    assert_int_equal(p[2].error_code, KERR_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(out.topics[1].partitions[0].error_code, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(out.topics[2].partitions[0].error_code, KERR_INVALID_TOPIC_EXCEPTION);
    assert_non_null(out.topics[2].partitions[0].error_message.data);
}

/* ---- DescribeLogDirs */

static struct describe_log_dirs_response ask_dirs(struct describe_log_dirs_request in, int16_t version)
{
    struct describe_log_dirs_response out = describe_log_dirs_response_default;
    run(describe_log_dirs_handle, &describe_log_dirs_response_schema, &in, &out, version);
    return out;
}

static void every_replica_is_listed_in_its_directory(void **state)
{
    (void)state;
    for (int16_t v = 0; v <= 5; v++) {
        struct describe_log_dirs_response r = ask_dirs((struct describe_log_dirs_request){.topics_count = -1}, v);
        assert_int_equal(r.results_count, 2);
        assert_true(str_is(r.results[0].log_dir, "/d0"));
        assert_int_equal(r.results[0].topics_count, 3);
        assert_int_equal(r.results[0].total_bytes, 5000);
        assert_int_equal(r.results[0].usable_bytes, 3000);
        assert_int_equal(r.results[1].topics_count, 1);
        assert_true(str_is(r.results[1].topics[0].name, "t"));
        assert_int_equal(r.results[1].topics[0].partitions_count, 1);
        assert_int_equal(r.results[1].topics[0].partitions[0].partition_index, 1);
        assert_int_equal(r.results[1].topics[0].partitions[0].partition_size, 1100);
        assert_int_equal(r.results[1].topics[0].partitions[0].offset_lag, 0);
    }
}

static void named_replicas_are_listed_once_and_missing_ones_left_out(void **state)
{
    (void)state;
    int32_t indexes[] = {0, 5, 0, -1}, zero = 0;
    struct describe_log_dirs_request_describable_log_dir_topic t[] = {
        {.topic = STR("t"), .partitions = indexes, .partitions_count = 4},
        {.topic = STR("none"), .partitions = &zero, .partitions_count = 1}};
    struct describe_log_dirs_request in = {.topics = t, .topics_count = 2};
    w.logs[T0].end = 80; /* a follower that is behind its high watermark */
    struct describe_log_dirs_response r = ask_dirs(in, 4);
    assert_int_equal(r.results[0].topics_count, 1);
    assert_int_equal(r.results[0].topics[0].partitions_count, 1);
    assert_int_equal(r.results[0].topics[0].partitions[0].partition_index, 0);
    assert_int_equal(r.results[0].topics[0].partitions[0].offset_lag, 10);
    assert_int_equal(r.results[1].topics_count, 0);
    assert_int_equal(ask_dirs((struct describe_log_dirs_request){.topics_count = 0}, 4).results[0].topics_count, 0);
}

static void a_directory_that_fails_tells_so_and_no_more(void **state)
{
    (void)state;
    w.space_err = ERR_IO;
    partition_set_offline(w.parts[COMPACT]);
    struct describe_log_dirs_response r = ask_dirs((struct describe_log_dirs_request){.topics_count = -1}, 4);
    assert_int_equal(r.results[0].error_code, KERR_NONE);
    assert_int_equal(r.results[0].topics_count, 2);
    assert_int_equal(r.results[1].error_code, KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(r.results[1].topics_count, 0);
    assert_int_equal(r.results[1].total_bytes, -1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_latest_offset_is_what_the_asker_may_see),
        CASE(who_compares_replicas_is_told_where_each_log_ends),
        CASE(the_earliest_offset_is_the_logs_start),
        CASE(specials_are_refused_in_versions_older_than_they_are),
        CASE(nothing_is_tiered),
        CASE(a_time_is_looked_up_below_the_visible_end),
        CASE(the_largest_timestamp_counts_only_if_it_is_visible),
        CASE(only_the_leader_in_the_clients_epoch_answers),
        CASE(a_debugging_consumer_may_ask_a_follower),
        CASE(a_new_leaders_end_is_not_told_before_the_high_watermark_reaches_its_epoch),
        CASE(a_partition_that_is_asked_twice_is_refused_both_times),
        CASE(an_epochs_end_is_told_by_the_leader),
        CASE(records_are_deleted_up_to_the_high_watermark_and_no_further),
        CASE(records_of_others_and_of_compacted_or_internal_topics_stay),
        CASE(two_offsets_for_one_partition_delete_nothing),
        CASE(any_replica_tells_its_producers_once),
        CASE(every_replica_is_listed_in_its_directory),
        CASE(named_replicas_are_listed_once_and_missing_ones_left_out),
        CASE(a_directory_that_fails_tells_so_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
