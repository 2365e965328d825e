/* controller_world.h: a controller on the memory store, with a channel that writes down what brokers are told and
 * answers when the test says so. */
#ifndef TESTS_CONTROLLER_WORLD_H
#define TESTS_CONTROLLER_WORLD_H

#include "controller/controller.h"
#include "coord_world.h"

enum { TOLD_MAX = 400, TOLD_PARTITIONS_MAX = 16, BROKERS_MAX = 10, ENDS_MAX = 64, NOTES_MAX = 400 };

/* Draws the numbers 0, 1, 2, ...: the tests' assignments are known. */
struct count_rng {
    struct rng rng;
    uint64_t next;
};

static inline void count_rng_fill(struct rng *r, void *out, size_t size)
{
    struct count_rng *cr = CONTAINER_OF(r, struct count_rng, rng);
    memset(out, 0, size);
    uint64_t v = cr->next++;
    memcpy(out, &v, MIN(size, sizeof v));
}

struct cluster;

/* A message that waits for its answer. */
struct told {
    struct loop_msg msg;
    struct cluster *cl;
    int kind; /* 'L', 'U', 'S' */
    int32_t broker;
    char text[512]; /* "L 1 t/0 leader=1 epoch=0 isr=1 new; ..." */
    leader_and_isr_reply_fn leader_and_isr;
    update_metadata_reply_fn update_metadata;
    stop_replica_reply_fn stop_replica;
    void *arg;
    bool answered;
    enum err err;
    int16_t code;
    const char *refused; /* StopReplica: a topic whose partition 0 is answered with an error; NULL: none */
    struct told_partition {
        char topic[64];
        int32_t index;
    } partitions[TOLD_PARTITIONS_MAX]; /* of a LeaderAndIsr, the first few */
    int32_t partition_count;
};

struct cluster {
    struct world *w;
    struct controller *c;
    struct count_rng rng;
    struct told told[TOLD_MAX];
    int told_count;
    int states;
    bool hold; /* answers wait for cluster_answer() */
    enum err channel_err;
    int32_t disk_failed; /* LeaderAndIsr to this broker is answered with KAFKA_STORAGE_ERROR for each partition */
    struct fault fault;
    bool leaves_out_malformed;
    bool stopped;
    enum kerr settings_kerr;
    bool endless;                   /* told_count starts anew when the room is used up */
    struct controller_options with; /* what cluster_start() takes over: fast failure detection and so on */
    /* Where replicas end, as brokers answer ListOffsets; one that is not here answers with an error code. */
    struct replica_end {
        char topic[16];
        int32_t partition, broker, epoch;
        int64_t end;
    } ends[ENDS_MAX];
    int end_count;
    bool mute[BROKERS_MAX];    /* does not answer ListOffsets in time */
    char notes[NOTES_MAX][96]; /* "came 2 127.0.0.1:9094", "went 2", "asked 2 t/0;" */
    int note_count;
};

static inline void told_run(struct loop_msg *msg)
{
    struct told *t = CONTAINER_OF(msg, struct told, msg);
    struct leader_and_isr_response lr = leader_and_isr_response_default;
    struct update_metadata_response ur = update_metadata_response_default;
    struct stop_replica_response sr = stop_replica_response_default;
    lr.error_code = ur.error_code = sr.error_code = t->code;
    struct leader_and_isr_response_leader_and_isr_topic_error topics[TOLD_PARTITIONS_MAX];
    struct leader_and_isr_response_leader_and_isr_partition_error errors[TOLD_PARTITIONS_MAX];
    lr.topics = topics;
    lr.topics_count = t->partition_count;
    for (int32_t i = 0; i < t->partition_count; i++) {
        topics[i] = leader_and_isr_response_leader_and_isr_topic_error_default;
        topics[i].partition_errors = &errors[i];
        topics[i].partition_errors_count = 1;
        errors[i] = leader_and_isr_response_leader_and_isr_partition_error_default;
        errors[i].topic_name = str_of(t->partitions[i].topic);
        errors[i].partition_index = t->partitions[i].index;
        if (t->broker == t->cl->disk_failed) errors[i].error_code = KERR_KAFKA_STORAGE_ERROR;
    }
    struct stop_replica_response_stop_replica_partition_error refused = {.topic_name = str_of(t->refused),
                                                                         .error_code = KERR_KAFKA_STORAGE_ERROR};
    if (t->refused) {
        sr.partition_errors = &refused;
        sr.partition_errors_count = 1;
    }
    if (t->kind == 'L') t->leader_and_isr(t->arg, t->err, t->err ? NULL : &lr);
    if (t->kind == 'U') t->update_metadata(t->arg, t->err, t->err ? NULL : &ur);
    if (t->kind == 'S') t->stop_replica(t->arg, t->err, t->err ? NULL : &sr);
}

static inline void told_answer(struct told *t)
{
    t->answered = true;
    t->msg.run = told_run;
    loop_post(t->cl->w->loop, &t->msg);
}

static inline struct told *told_add(struct cluster *cl, int kind, int32_t broker, void *arg)
{
    if (cl->endless && cl->told_count == TOLD_MAX) cl->told_count = 0; /* what is that old is answered */
    assert_true(cl->told_count < TOLD_MAX);
    struct told *t = &cl->told[cl->told_count++];
    *t = (struct told){.cl = cl, .kind = kind, .broker = broker, .arg = arg, .err = cl->channel_err};
    snprintf(t->text, sizeof t->text, "%c %d", kind, broker);
    return t;
}

static inline void told_print(struct told *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
static inline void told_print(struct told *t, const char *fmt, ...)
{
    size_t n = strlen(t->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->text + n, sizeof t->text - n, fmt, args);
    va_end(args);
}

static inline void told_ids(struct told *t, const char *name, const int32_t *ids, int32_t count)
{
    told_print(t, " %s=", name);
    for (int32_t i = 0; i < count; i++) told_print(t, "%s%d", i ? "," : "", ids[i]);
}

static inline void tell_leader_and_isr(void *arg, int32_t broker, const struct leader_and_isr_request *rq,
                                       leader_and_isr_reply_fn reply, void *reply_arg)
{
    struct cluster *cl = arg;
    struct told *t = told_add(cl, 'L', broker, reply_arg);
    t->leader_and_isr = reply;
    assert_int_equal(rq->controller_epoch, controller_epoch(cl->c));
    assert_true(rq->broker_epoch > 0);
    for (int32_t i = 0; i < rq->topic_states_count; i++) {
        assert_false(uuid_is_zero(rq->topic_states[i].topic_id));
        for (int32_t k = 0; k < rq->topic_states[i].partition_states_count; k++) {
            const struct leader_and_isr_request_leader_and_isr_partition_state *ps =
                &rq->topic_states[i].partition_states[k];
            if (t->partition_count < TOLD_PARTITIONS_MAX) {
                struct told_partition *tp = &t->partitions[t->partition_count++];
                snprintf(tp->topic, sizeof tp->topic, "%.*s", STR_ARG(rq->topic_states[i].topic_name));
                tp->index = ps->partition_index;
            }
            told_print(t, " %.*s/%d leader=%d/%d", STR_ARG(rq->topic_states[i].topic_name), ps->partition_index,
                       ps->leader, ps->leader_epoch);
            told_ids(t, "isr", ps->isr, ps->isr_count);
            told_ids(t, "replicas", ps->replicas, ps->replicas_count);
            told_print(t, " v%d%s;", ps->partition_epoch, ps->is_new ? " new" : "");
        }
    }
    if (!cl->hold) told_answer(t);
}

static inline void tell_update_metadata(void *arg, int32_t broker, const struct update_metadata_request *rq,
                                        update_metadata_reply_fn reply, void *reply_arg)
{
    struct cluster *cl = arg;
    struct told *t = told_add(cl, 'U', broker, reply_arg);
    t->update_metadata = reply;
    told_print(t, " live=%d", rq->live_brokers_count);
    for (int32_t i = 0; i < rq->topic_states_count; i++) {
        for (int32_t k = 0; k < rq->topic_states[i].partition_states_count; k++) {
            const struct update_metadata_request_update_metadata_partition_state *ps =
                &rq->topic_states[i].partition_states[k];
            told_print(t, " %.*s/%d leader=%d/%d", STR_ARG(rq->topic_states[i].topic_name), ps->partition_index,
                       ps->leader, ps->leader_epoch);
            if (ps->offline_replicas_count) told_ids(t, "offline", ps->offline_replicas, ps->offline_replicas_count);
            told_print(t, ";");
        }
    }
    if (!cl->hold) told_answer(t);
}

static inline void tell_stop_replica(void *arg, int32_t broker, const struct stop_replica_request *rq,
                                     stop_replica_reply_fn reply, void *reply_arg)
{
    struct cluster *cl = arg;
    struct told *t = told_add(cl, 'S', broker, reply_arg);
    t->stop_replica = reply;
    for (int32_t i = 0; i < rq->topic_states_count; i++)
        for (int32_t k = 0; k < rq->topic_states[i].partition_states_count; k++)
            told_print(t, " %.*s/%d epoch=%d%s;", STR_ARG(rq->topic_states[i].topic_name),
                       rq->topic_states[i].partition_states[k].partition_index,
                       rq->topic_states[i].partition_states[k].leader_epoch,
                       rq->topic_states[i].partition_states[k].delete_partition ? " delete" : "");
    if (!cl->hold) told_answer(t);
}

/* --- who is there, and where replicas end --- */

static inline char *note_add(struct cluster *cl)
{
    if (cl->endless && cl->note_count == NOTES_MAX) cl->note_count = 0;
    assert_true(cl->note_count < NOTES_MAX);
    return cl->notes[cl->note_count++];
}

static inline bool was_noted(struct cluster *cl, const char *text)
{
    for (int i = 0; i < cl->note_count; i++)
        if (strcmp(cl->notes[i], text) == 0) return true;
    for (int i = 0; i < cl->note_count; i++) print_message("noted: %s\n", cl->notes[i]);
    print_message("not noted: %s\n", text);
    return false;
}

static inline void tell_came(void *arg, int32_t broker, int64_t epoch, struct str host, int32_t port)
{
    assert_true(epoch > 0);
    snprintf(note_add(arg), sizeof((struct cluster *)arg)->notes[0], "came %d %.*s:%d", broker, STR_ARG(host), port);
}

static inline void tell_went(void *arg, int32_t broker)
{
    snprintf(note_add(arg), sizeof((struct cluster *)arg)->notes[0], "went %d", broker);
}

struct ends_call {
    struct loop_msg msg;
    struct cluster *cl;
    int32_t broker;
    list_offsets_reply_fn reply;
    void *arg;
    const struct list_offsets_request *rq;
};

static inline void ends_set(struct cluster *cl, const char *topic, int32_t partition, int32_t broker, int32_t epoch,
                            int64_t end)
{
    assert_true(cl->end_count < ENDS_MAX);
    struct replica_end *re = &cl->ends[cl->end_count++];
    *re = (struct replica_end){.partition = partition, .broker = broker, .epoch = epoch, .end = end};
    snprintf(re->topic, sizeof re->topic, "%s", topic);
}

static inline void ends_answer(struct cluster *cl, int32_t broker, struct str topic,
                               struct list_offsets_response_list_offsets_partition_response *pr)
{
    pr->error_code = KERR_UNKNOWN_TOPIC_OR_PARTITION;
    for (int i = 0; i < cl->end_count; i++) {
        const struct replica_end *re = &cl->ends[i];
        if (re->broker != broker || re->partition != pr->partition_index || !str_is(topic, re->topic)) continue;
        pr->error_code = KERR_NONE;
        pr->leader_epoch = re->epoch;
        pr->offset = re->end;
    }
}

/* Topics in the opposite order of the request: their order says nothing. */
static inline void ends_run(struct loop_msg *msg)
{
    struct ends_call *call = CONTAINER_OF(msg, struct ends_call, msg);
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct list_offsets_response r = list_offsets_response_default;
    r.topics_count = call->rq->topics_count;
    r.topics = arena_array(&a, struct list_offsets_response_list_offsets_topic_response, (size_t)r.topics_count);
    for (int32_t i = 0; i < r.topics_count; i++) {
        const struct list_offsets_request_list_offsets_topic *ot = &call->rq->topics[r.topics_count - 1 - i];
        r.topics[i].name = ot->name;
        r.topics[i].partitions_count = ot->partitions_count;
        r.topics[i].partitions =
            arena_array(&a, struct list_offsets_response_list_offsets_partition_response, (size_t)ot->partitions_count);
        for (int32_t k = 0; k < ot->partitions_count; k++) {
            r.topics[i].partitions[k] = list_offsets_response_list_offsets_partition_response_default;
            r.topics[i].partitions[k].partition_index = ot->partitions[k].partition_index;
            ends_answer(call->cl, call->broker, ot->name, &r.topics[i].partitions[k]);
        }
    }
    if (call->broker < BROKERS_MAX && call->cl->mute[call->broker])
        call->reply(call->arg, ERR_TIMEOUT, NULL);
    else
        call->reply(call->arg, OK, &r);
    arena_fini(&a);
    mem_free(call);
}

static inline void tell_list_offsets(void *arg, int32_t broker, const struct list_offsets_request *rq,
                                     int64_t timeout_ms, list_offsets_reply_fn reply, void *reply_arg)
{
    struct cluster *cl = arg;
    assert_int_equal(timeout_ms, 50);
    assert_int_equal(rq->replica_id, -2);
    char *note = note_add(cl);
    size_t at = (size_t)snprintf(note, sizeof cl->notes[0], "asked %d", broker);
    for (int32_t i = 0; i < rq->topics_count; i++)
        for (int32_t k = 0; k < rq->topics[i].partitions_count; k++) {
            assert_int_equal(rq->topics[i].partitions[k].timestamp, -1);
            if (at < sizeof cl->notes[0])
                at += (size_t)snprintf(note + at, sizeof cl->notes[0] - at, " %.*s/%d", STR_ARG(rq->topics[i].name),
                                       rq->topics[i].partitions[k].partition_index);
        }
    struct ends_call *call = mem_zalloc(1, sizeof *call);
    *call = (struct ends_call){
        .msg = {.run = ends_run}, .cl = cl, .broker = broker, .reply = reply, .arg = reply_arg, .rq = rq};
    loop_post(cl->w->loop, &call->msg);
}

static inline void cluster_answer(struct cluster *cl)
{
    cl->hold = false;
    for (int i = 0; i < cl->told_count; i++)
        if (!cl->told[i].answered) told_answer(&cl->told[i]);
}

static inline void cluster_state(void *arg, enum controller_state state, int32_t epoch)
{
    (void)state;
    (void)epoch;
    ((struct cluster *)arg)->states++;
}

static inline void cluster_failed(void *arg, const struct fault *f)
{
    ((struct cluster *)arg)->fault = *f;
}

static inline enum kerr cluster_settings(void *arg, const struct znode_config *settings, struct arena *a,
                                         struct str *message)
{
    (void)a;
    struct cluster *cl = arg;
    if (cl->settings_kerr && settings->count) *message = STR("Unknown topic config name: x");
    return settings->count ? cl->settings_kerr : KERR_NONE;
}

/* Turns the loop until nothing happens any more. */
static inline void settle(struct world *w)
{
    for (int quiet = 0; quiet < 3;) {
        struct answer a = {.w = w};
        coord_exists(w->c, STR("/"), COORD_NO_WATCH, (struct coord_to){w->loop, answer_done, &a});
        answer_wait(&a);
        quiet++;
        for (int i = 0; i < 20; i++) loop_turn(w->loop, 0);
    }
}

static inline void register_broker(struct world *w, int32_t id, const char *rack)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct znode_endpoint ep = {STR("PLAINTEXT"), STR("127.0.0.1"), 9092 + id, SECURITY_PLAINTEXT};
    struct znode_broker b = {.endpoints = &ep, .endpoint_count = 1, .rack = str_of(rack), .jmx_port = -1};
    struct answer an = {.w = w};
    coord_create(w->c, znode_broker_path(&a, id), znode_broker_encode(&a, &b), COORD_EPHEMERAL,
                 (struct coord_to){w->loop, answer_done, &an});
    answer_wait(&an);
    assert_int_equal(an.r.err, OK);
    arena_fini(&a);
}

static inline void cluster_start(struct cluster *cl)
{
    cl->stopped = false;
    cl->rng.rng.fill = count_rng_fill;
    struct controller_options opt = {.coord = cl->w->c,
                                     .loop = cl->w->loop,
                                     .rng = &cl->rng.rng,
                                     .broker_id = 1,
                                     .inter_broker_listener = STR("PLAINTEXT"),
                                     .partitions_default = 1,
                                     .replication_factor_default = 1,
                                     .channel = {cl, tell_leader_and_isr, tell_update_metadata, tell_stop_replica,
                                                 tell_list_offsets, tell_came, tell_went},
                                     .fast_failure_detection = cl->with.fast_failure_detection,
                                     .log_ends_wait_ms = 50,
                                     .unclean_election = cl->with.unclean_election,
                                     .leader_rebalance = cl->with.leader_rebalance,
                                     .imbalance_check_ms = cl->with.imbalance_check_ms,
                                     .imbalance_percent = cl->with.imbalance_percent,
                                     .validate_topic = cluster_settings,
                                     .state_changed = cluster_state,
                                     .leaves_out_malformed = cl->leaves_out_malformed,
                                     .failed = cluster_failed,
                                     .arg = cl};
    cl->c = controller_start(&opt);
    settle(cl->w);
}

static inline void cluster_stopped(void *arg)
{
    ((struct cluster *)arg)->stopped = true;
}

static inline void cluster_stop(struct cluster *cl)
{
    controller_stop(cl->c, cluster_stopped, cl);
    cluster_answer(cl);
    while (!cl->stopped) loop_turn(cl->w->loop, 10 * 1000 * 1000);
    world_close(cl->w);
    controller_free(cl->c);
    cl->c = NULL;
}

/* Broker 1, registered, its controller in office. */
static inline struct cluster *cluster_new(bool embedded)
{
    struct cluster *cl = mem_zalloc(1, sizeof *cl);
    cl->w = world_new(embedded);
    struct answer a = {.w = cl->w};
    znodes_make_persistent(cl->w->c, (struct coord_to){cl->w->loop, answer_done, &a});
    answer_wait(&a);
    assert_int_equal(a.r.err, OK);
    register_broker(cl->w, 1, NULL);
    cluster_start(cl);
    return cl;
}

static inline void cluster_free(struct cluster *cl)
{
    if (cl->c) cluster_stop(cl);
    cl->w->closed = true;
    world_free(cl->w);
    mem_free(cl);
}

/* --- operations, made and waited for --- */

struct outcome {
    struct world *w;
    bool done;
    size_t count;
    struct controller_result results[16];
    int64_t producer_id_start;
    int32_t producer_id_count;
};

static inline void outcome_done(void *arg, const struct controller_results *r)
{
    struct outcome *o = arg;
    assert_false(o->done);
    o->done = true;
    o->count = r->count;
    o->producer_id_start = r->producer_id_start;
    o->producer_id_count = r->producer_id_count;
    for (size_t i = 0; i < r->count && i < ARRAY_COUNT(o->results); i++) {
        o->results[i] = r->results[i];
        o->results[i].name = arena_str(&o->w->arena, r->results[i].name);
        o->results[i].message = arena_str(&o->w->arena, r->results[i].message);
    }
}

static inline void outcome_wait(struct outcome *o)
{
    while (!o->done) loop_turn(o->w->loop, 10 * 1000 * 1000);
}

static inline struct controller_to outcome_to(struct outcome *o)
{
    return (struct controller_to){o->w->loop, outcome_done, o};
}

static inline struct outcome create_topics(struct cluster *cl, const struct controller_new_topic *topics, size_t count,
                                           bool validate_only)
{
    struct outcome o = {.w = cl->w};
    controller_create_topics(cl->c, topics, count, validate_only, 60000, outcome_to(&o));
    outcome_wait(&o);
    assert_int_equal(o.count, count);
    return o;
}

static inline struct controller_result create_topic(struct cluster *cl, const char *name, int32_t partitions,
                                                    int16_t replication)
{
    struct controller_new_topic t = {
        .name = str_of(name), .partition_count = partitions, .replication_factor = replication};
    return create_topics(cl, &t, 1, false).results[0];
}

static inline struct controller_result delete_topic(struct cluster *cl, const char *name)
{
    struct outcome o = {.w = cl->w};
    struct controller_topic_ref ref = {.name = str_of(name)};
    controller_delete_topics(cl->c, &ref, 1, 60000, outcome_to(&o));
    outcome_wait(&o);
    return o.results[0];
}

/* A request that comes as it is on the wire, and the wait for its answer. */
struct asked {
    struct world *w;
    bool done;
};

static inline void asked_done(void *arg)
{
    struct asked *as = arg;
    assert_false(as->done);
    as->done = true;
}

static inline struct controller_request asked_rq(struct asked *as)
{
    return (struct controller_request){&as->w->arena, as->w->loop, asked_done, as};
}

static inline void asked_wait(struct asked *as)
{
    while (!as->done) loop_turn(as->w->loop, 10 * 1000 * 1000);
}

static inline bool was_told(struct cluster *cl, const char *text)
{
    for (int i = 0; i < cl->told_count; i++)
        if (strcmp(cl->told[i].text, text) == 0) return true;
    for (int i = 0; i < cl->told_count; i++) print_message("told: %s\n", cl->told[i].text);
    print_message("not told: %s\n", text);
    return false;
}

static inline struct str node_text(struct world *w, const char *path)
{
    struct answer a = call_get(w, path, COORD_NO_WATCH);
    if (a.r.err) return str_of(err_name(a.r.err));
    return (struct str){(const char *)a.r.data.data, a.r.data.size};
}

#define assert_str(actual, expected)                                                                        \
    do {                                                                                                    \
        struct str actual_ = (actual);                                                                      \
        if (!str_is(actual_, (expected))) fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(actual_), (expected)); \
    } while (0)

#endif
