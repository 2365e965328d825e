/* fetchers_world.h: a follower's fetchers before a leader that the test plays: the rpc connection is the test's own,
 * what goes over it is encoded and decoded in the version agreed on, and one thread turns everything. */
#ifndef TESTS_FETCHERS_WORLD_H
#define TESTS_FETCHERS_WORLD_H

#include "replica_world.h"

#include "replica/fetchers.h"
#include "rpc/rpc.h"
#include "wire/gen/fetch.h"
#include "wire/gen/list_offsets.h"

enum { LEADER = 1, FOLLOWER = 2, LOG_MAX = 4000, OUT_MAX = 8, WAIT_MS = 500, BACKOFF_MS = 1000, BROKER_EPOCH = 77 };

/* ---- The connection */

/* A request as the leader sees it. */
struct out {
    struct rpc_call *call;
    struct arena arena;
    int16_t version;
    union {
        struct fetch_request fetch;
        struct list_offsets_request list;
    } rq;
    uint8_t *bytes;
};

struct rpc {
    struct rpc_options opt;
    char host[64];
    int32_t port;
    bool ready, closed;
    struct out outs[OUT_MAX];
    int out_count;
};

static struct buf_pool *bufs;  /* all must be back at the end */
static struct rpc *connection; /* the one that is open; NULL: none */
static int connections;        /* opened so far */
static int16_t peer_version_max = 18;
static const struct plog *watched; /* where it ended when the last request left; NULL: none is watched */
static int64_t watched_end;

struct rpc *rpc_open(const struct rpc_options *opt, struct str host, int32_t port)
{
    struct rpc *r = mem_zalloc(1, sizeof *r);
    r->opt = *opt;
    snprintf(r->host, sizeof r->host, "%.*s", STR_ARG(host));
    r->port = port;
    assert_null(connection);
    connection = r;
    connections++;
    return r;
}

static void out_end(struct rpc *r, int at)
{
    struct out *o = &r->outs[at];
    arena_fini(&o->arena);
    mem_free(o->bytes);
    memmove(o, o + 1, sizeof *o * (size_t)(r->out_count - at - 1));
    r->out_count--;
}

/* The calls that are out are told in the next turn, as the real one does it. */
struct closing {
    struct loop_msg msg;
    struct rpc_call *calls[OUT_MAX];
    int count;
};

static void run_closing(struct loop_msg *msg)
{
    struct closing *c = CONTAINER_OF(msg, struct closing, msg);
    for (int i = 0; i < c->count; i++) {
        c->calls[i]->err = ERR_CLOSED;
        c->calls[i]->done(c->calls[i]);
    }
    mem_free(c);
}

void rpc_close(struct rpc *r)
{
    if (!r) return;
    struct closing *c = mem_zalloc(1, sizeof *c);
    c->msg.run = run_closing;
    while (r->out_count > 0) {
        c->calls[c->count++] = r->outs[0].call;
        out_end(r, 0);
    }
    loop_post(r->opt.loop, &c->msg);
    if (connection == r) connection = NULL;
    mem_free(r);
}

bool rpc_is_ready(const struct rpc *r)
{
    return r->ready;
}

int16_t rpc_version(const struct rpc *r, enum api api, int16_t min, int16_t max)
{
    (void)r, (void)api, (void)min;
    return MIN(max, peer_version_max);
}

void rpc_send(struct rpc *r, struct rpc_call *call)
{
    assert_true(r->ready && r->out_count < OUT_MAX);
    if (watched) watched_end = plog_end(watched);
    struct out *o = &r->outs[r->out_count++];
    *o = (struct out){.call = call};
    o->version = call->api == API_FETCH ? MIN(call->version_max, peer_version_max) : call->version_max;
    assert_true(o->version >= call->version_min);
    call->version = o->version;
    arena_init(&o->arena, SIZE_MAX);
    const struct wire_api *api = wire_api_find((int16_t)call->api);
    struct writer w;
    writer_init(&w, bufs);
    assert_int_equal(wire_encode(api->request, call->request, o->version, &w), OK);
    o->bytes = mem_alloc(w.size);
    memcpy(o->bytes, w.buf->data, w.size);
    struct reader in = reader_of(o->bytes, w.size);
    writer_fini(&w);
    assert_int_equal(wire_decode(api->request, &o->rq, o->version, &in, &o->arena), OK);
}

/* Answers the call number `at` that is out. */
static UNUSED void reply(struct rpc *r, int at, const void *response)
{
    struct rpc_call *call = r->outs[at].call;
    const struct wire_api *api = wire_api_find((int16_t)call->api);
    struct writer w;
    writer_init(&w, bufs);
    assert_int_equal(wire_encode(api->response, response, r->outs[at].version, &w), OK);
    struct buf *frame = buf_new(bufs, w.size);
    writer_flatten(&w, frame->data);
    struct reader in = reader_of(frame->data, w.size);
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    union {
        struct fetch_response fetch;
        struct list_offsets_response list;
    } decoded;
    assert_int_equal(wire_decode(api->response, &decoded, r->outs[at].version, &in, &arena), OK);
    out_end(r, at);
    call->err = OK;
    call->response = &decoded;
    call->frame = frame;
    call->done(call);
    arena_fini(&arena);
    buf_unref(frame);
    writer_fini(&w);
}

/* The peer is gone. */
static UNUSED void hang_up(void)
{
    struct rpc *r = connection;
    while (r->out_count > 0) {
        struct rpc_call *call = r->outs[0].call;
        out_end(r, 0);
        call->err = ERR_CLOSED;
        call->done(call);
    }
    r->opt.ended(r->opt.arg, RPC_LOST, "the test hung up");
}

static UNUSED void connect_now(void)
{
    assert_non_null(connection);
    connection->ready = true;
    connection->opt.ready(connection->opt.arg);
}

/* ---- The follower */

struct fworld {
    struct world w;
    struct fetchers *f;
    struct fetchers_config config;
    bool address_known;
    bool stopped;
    int left; /* fetchers_leave() that were over */
};

static bool world_address(void *arg, int32_t broker_id, char host[256], int32_t *port)
{
    const struct fworld *fw = arg;
    (void)broker_id;
    snprintf(host, 256, "leader");
    *port = 9092;
    return fw->address_known;
}

static int64_t world_broker_epoch(void *arg)
{
    (void)arg;
    return BROKER_EPOCH;
}

static UNUSED struct partition *followed_at(struct fworld *fw, int32_t index)
{
    return partition_at(&fw->w, index);
}

static UNUSED void set_follower(struct partition *p, int32_t epoch)
{
    static const int32_t both[] = {LEADER, FOLLOWER};
    partition_set_role(p, &(struct partition_role){.leader = LEADER,
                                                   .leader_epoch = epoch,
                                                   .isr = both,
                                                   .isr_count = 2,
                                                   .replicas = both,
                                                   .replica_count = 2});
}

static UNUSED void fetchers_begin(struct fworld *fw)
{
    connection = NULL;
    connections = 0;
    watched = NULL;
    bufs = buf_pool_new(0);
    peer_version_max = 18;
    fw->address_known = true;
    fw->config = (struct fetchers_config){
        .per_leader = 1,
        .fetch_max_bytes = 1 << 20,
        .response_max_bytes = 10 << 20,
        .min_bytes = 1,
        .wait_max_ms = WAIT_MS,
        .backoff_ms = BACKOFF_MS,
        .socket_timeout_ms = 30000,
        .receive_buffer_bytes = -1,
    };
    const struct fetchers_options opt = {
        .home = fw->w.loop,
        .loops = &fw->w.loop,
        .loop_count = 1,
        .workers = fw->w.workers,
        .broker_id = FOLLOWER,
        .config = fw->config,
        .address_of = world_address,
        .broker_epoch = world_broker_epoch,
        .arg = fw,
    };
    fw->f = fetchers_new(&opt);
}

/* Replicas of `count` partitions of "t", none of which follows anybody yet. */
static UNUSED void fworld_start(struct fworld *fw, int32_t count)
{
    *fw = (struct fworld){0};
    struct fs_sim *sim = fs_sim_new(&(struct fs_sim_options){.seed = 5, .journal = true});
    assert_int_equal(world_start(&fw->w, sim), OK);
    apply(&fw->w, count, true);
    for (int32_t i = 0; i < count; i++) set_follower(followed_at(fw, i), 0);
    fetchers_begin(fw);
}

static UNUSED void on_stopped(void *arg)
{
    ((struct fworld *)arg)->stopped = true;
}

static UNUSED void fetchers_end(struct fworld *fw)
{
    fetchers_stop(fw->f, on_stopped, fw);
    for (int i = 0; i < 100 && !fw->stopped; i++) turns(&fw->w, 1);
    assert_true(fw->stopped);
    assert_null(connection);
    fetchers_free(fw->f);
}

static UNUSED void fworld_end(struct fworld *fw)
{
    struct fs_sim *sim = fw->w.sim;
    fetchers_end(fw);
    world_end(&fw->w, true);
    fs_sim_free(sim);
    buf_pool_free(bufs);
}

static UNUSED void on_left(void *arg, struct partition *p)
{
    (void)p;
    ((struct fworld *)arg)->left++;
}

/* As LeaderAndIsr has it. */
static UNUSED void follow(struct fworld *fw, int32_t index, int32_t epoch)
{
    struct partition *p = followed_at(fw, index);
    set_follower(p, epoch);
    fetchers_follow(fw->f, p, LEADER, epoch);
}

/* Time goes on. */
static UNUSED void pass_ms(struct fworld *fw, int64_t ms)
{
    fw->w.now_us += ms * 1000;
    turns(&fw->w, 3);
}

/* ---- Batches of one record, which say by whom they were written */

struct bytes_out {
    uint8_t data[1 << 16];
    size_t size;
};

static UNUSED void put_batch(struct bytes_out *out, int64_t offset, int32_t epoch, int16_t attributes,
                             int64_t producer_id)
{
    char value[64];
    int n = snprintf(value, sizeof value, "record %lld of epoch %d", (long long)offset, epoch);
    struct batch_builder bb;
    batch_builder_init(&bb, bufs, attributes, 1000 + offset);
    bb.info.producer_id = producer_id;
    bb.info.producer_epoch = producer_id < 0 ? -1 : 0;
    bb.info.base_sequence = producer_id < 0 ? -1 : 0;
    if (attributes & BATCH_CONTROL)
        batch_builder_add_marker(&bb, &(struct txn_marker){.commit = false, .timestamp = 1000 + offset});
    else
        batch_builder_add(&bb, 1000 + offset, (struct bytes){NULL, 0}, (struct bytes){(uint8_t *)value, (size_t)n},
                          NULL, 0);
    struct writer w;
    writer_init(&w, bufs);
    assert_int_equal(batch_builder_finish(&bb, &w), OK);
    batch_builder_fini(&bb);
    batch_set_offset(w.buf->data, offset);
    batch_set_leader_epoch(w.buf->data, epoch);
    assert_true(out->size + w.size <= sizeof out->data);
    memcpy(out->data + out->size, w.buf->data, w.size);
    out->size += w.size;
    writer_fini(&w);
}

/* The epoch of the record at `offset` in the follower's log; what stands there must be that epoch's record. */
static UNUSED int32_t read_epoch(struct partition *p, int64_t offset)
{
    struct plog_slice s;
    assert_int_equal(plog_read(p->pl, offset, plog_end(p->pl), 1, true, false, &s), OK);
    assert_non_null(s.file);
    uint8_t *data = mem_alloc(s.size);
    size_t got;
    assert_int_equal(file_pread(s.file, data, s.size, s.pos, &got), OK);
    struct batch_info b;
    assert_int_equal(batch_parse_header(&b, data, INT32_MAX), OK);
    assert_int_equal(b.base_offset, offset);
    assert_true(batch_crc_ok(data, &b));
    struct bytes_out expected = {.size = 0};
    put_batch(&expected, offset, b.leader_epoch, b.attributes, b.producer_id);
    assert_int_equal(expected.size, b.size);
    assert_memory_equal(expected.data, data, expected.size);
    mem_free(data);
    plog_slice_release(&s);
    return b.leader_epoch;
}

/* ---- A leader that keeps the rules */

struct leader_part {
    int32_t epochs[LOG_MAX]; /* of the record at each offset */
    int64_t start, end, high_watermark;
    int32_t epoch;  /* the leader's own */
    enum kerr kerr; /* to be answered, whatever is asked */
    bool corrupt;   /* the next batch is */
    bool in_session;
    struct fetch_request_fetch_partition asked;
    int64_t told_high_watermark, told_start;
};

struct leader {
    struct leader_part parts[PARTITIONS_MAX];
    int32_t session_id, session_epoch; /* 0: none */
    bool gives_session;
    int batches_max;                  /* of an answer and partition */
    int fetches, full_fetches, named; /* partitions named by fetches */
    struct fetch_request last;        /* without arrays */
};

static struct leader leader; /* large */

static UNUSED void leader_reset(void)
{
    leader = (struct leader){.gives_session = true, .batches_max = 100};
}

static UNUSED void leader_append(int32_t index, int count)
{
    struct leader_part *lp = &leader.parts[index];
    for (int i = 0; i < count; i++) lp->epochs[lp->end++] = lp->epoch;
}

/* Where `epoch` ends in the leader's log, as KIP-101 has it. */
static void leader_epoch_end(const struct leader_part *lp, int32_t epoch, int32_t *found, int64_t *end)
{
    *found = -1;
    *end = -1;
    for (int64_t at = lp->start; at < lp->end; at++)
        if (lp->epochs[at] <= epoch) {
            *found = lp->epochs[at];
            *end = at + 1;
        }
    if (epoch == lp->epoch) {
        *found = epoch;
        *end = lp->end;
    } else if (*found < 0 && epoch < lp->epoch) { /* before all that it knows */
        *found = epoch;
        *end = lp->start;
    }
}

static bool leader_part_answer(struct leader_part *lp, struct fetch_response_partition_data *out,
                               struct bytes_out *bytes)
{
    const struct fetch_request_fetch_partition *fp = &lp->asked;
    out->high_watermark = lp->high_watermark;
    out->log_start_offset = lp->start;
    out->records.bytes = (struct bytes){bytes->data, 0};
    enum kerr kerr = lp->kerr;
    int32_t found = -1;
    int64_t end = -1;
    if (!kerr && fp->current_leader_epoch < lp->epoch) kerr = KERR_FENCED_LEADER_EPOCH;
    if (!kerr && fp->current_leader_epoch > lp->epoch) kerr = KERR_UNKNOWN_LEADER_EPOCH;
    if (!kerr && fp->fetch_offset < lp->start) kerr = KERR_OFFSET_OUT_OF_RANGE;
    if (!kerr && fp->last_fetched_epoch >= 0) {
        leader_epoch_end(lp, fp->last_fetched_epoch, &found, &end);
        if (found < 0) kerr = KERR_OFFSET_OUT_OF_RANGE;
    }
    bool diverges = found >= 0 && (found < fp->last_fetched_epoch || end < fp->fetch_offset);
    if (!kerr && !diverges && fp->fetch_offset > lp->end) kerr = KERR_OFFSET_OUT_OF_RANGE;
    out->error_code = (int16_t)kerr;
    if (!kerr && diverges) out->diverging_epoch = (struct fetch_response_epoch_end_offset){found, end};
    if (kerr || diverges) return true;
    for (int64_t at = fp->fetch_offset; at < lp->end && at < fp->fetch_offset + leader.batches_max; at++)
        put_batch(bytes, at, lp->epochs[at], 0, -1);
    if (lp->corrupt && bytes->size > 0) {
        bytes->data[bytes->size - 1] ^= 1;
        lp->corrupt = false;
    }
    out->records.bytes.size = bytes->size;
    bool news = bytes->size > 0 || lp->told_high_watermark != lp->high_watermark || lp->told_start != lp->start;
    lp->told_high_watermark = lp->high_watermark;
    lp->told_start = lp->start;
    return news;
}

static void leader_merge(const struct fetch_request *rq)
{
    for (int32_t t = 0; t < rq->topics_count; t++)
        for (int32_t i = 0; i < rq->topics[t].partitions_count; i++) {
            struct leader_part *lp = &leader.parts[rq->topics[t].partitions[i].partition];
            if (!lp->in_session) lp->told_high_watermark = lp->told_start = -1;
            lp->asked = rq->topics[t].partitions[i];
            lp->in_session = true;
            leader.named++;
        }
    for (int32_t t = 0; t < rq->forgotten_topics_data_count; t++)
        for (int32_t i = 0; i < rq->forgotten_topics_data[t].partitions_count; i++)
            leader.parts[rq->forgotten_topics_data[t].partitions[i]].in_session = false;
}

static enum kerr leader_session(const struct fetch_request *rq)
{
    leader.fetches++;
    if (rq->session_epoch == 0) {
        leader.full_fetches++;
        for (int i = 0; i < PARTITIONS_MAX; i++) leader.parts[i].in_session = false;
        leader.session_id = leader.gives_session ? 100 + leader.full_fetches : 0;
        leader.session_epoch = 1;
        return KERR_NONE;
    }
    if (rq->session_id != leader.session_id || leader.session_id == 0) return KERR_FETCH_SESSION_ID_NOT_FOUND;
    if (rq->session_epoch != leader.session_epoch) return KERR_INVALID_FETCH_SESSION_EPOCH;
    leader.session_epoch++;
    return KERR_NONE;
}

/* Takes the request into the session; once for each. */
static enum kerr leader_look(struct out *o)
{
    leader.last = o->rq.fetch;
    assert_int_equal(o->rq.fetch.replica_state.replica_epoch, o->version >= 15 ? BROKER_EPOCH : -1);
    assert_int_equal(o->version >= 15 ? o->rq.fetch.replica_state.replica_id : o->rq.fetch.replica_id, FOLLOWER);
    enum kerr kerr = leader_session(&o->rq.fetch);
    if (!kerr) leader_merge(&o->rq.fetch);
    return kerr;
}

static const struct uuid followed_topic_id = {{1, 2, 3}};
static struct bytes_out leader_bytes[PARTITIONS_MAX];

/* Answers the fetch at `at` with what there is.  False when there is nothing: it waits, unless `now`. */
static bool leader_answer(int at, bool now)
{
    struct out *o = &connection->outs[at];
    struct fetch_response resp = fetch_response_default;
    struct fetch_response_fetchable_topic_response topic = fetch_response_fetchable_topic_response_default;
    struct fetch_response_partition_data parts[PARTITIONS_MAX];
    bool full = o->rq.fetch.session_epoch == 0;
    resp.session_id = leader.session_id;
    topic.topic = STR("t");
    topic.topic_id = followed_topic_id;
    topic.partitions = parts;
    for (int i = 0; i < PARTITIONS_MAX; i++) {
        struct leader_part *lp = &leader.parts[i];
        if (!lp->in_session) continue;
        struct fetch_response_partition_data *pd = &parts[topic.partitions_count];
        *pd = fetch_response_partition_data_default;
        pd->partition_index = i;
        leader_bytes[i].size = 0;
        if (leader_part_answer(lp, pd, &leader_bytes[i]) || full) topic.partitions_count++;
    }
    if (topic.partitions_count > 0) {
        resp.responses = &topic;
        resp.responses_count = 1;
    }
    if (topic.partitions_count == 0 && !full && !now) return false;
    reply(connection, at, &resp);
    return true;
}

static void leader_list(int at)
{
    const struct list_offsets_request *rq = &connection->outs[at].rq.list;
    struct list_offsets_response resp = list_offsets_response_default;
    struct list_offsets_response_list_offsets_topic_response topic =
        list_offsets_response_list_offsets_topic_response_default;
    struct list_offsets_response_list_offsets_partition_response parts[PARTITIONS_MAX];
    topic.name = STR("t");
    topic.partitions = parts;
    assert_int_equal(rq->replica_id, FOLLOWER);
    for (int32_t t = 0; t < rq->topics_count; t++) {
        const struct list_offsets_request_list_offsets_partition *p = &rq->topics[t].partitions[0];
        const struct leader_part *lp = &leader.parts[p->partition_index];
        struct list_offsets_response_list_offsets_partition_response *out = &parts[topic.partitions_count++];
        *out = list_offsets_response_list_offsets_partition_response_default;
        out->partition_index = p->partition_index;
        assert_true(p->timestamp == -1 || p->timestamp == -2);
        out->offset = p->timestamp == -1 ? lp->end : lp->start;
        if (p->current_leader_epoch < lp->epoch) out->error_code = KERR_FENCED_LEADER_EPOCH;
        if (p->current_leader_epoch > lp->epoch) out->error_code = KERR_UNKNOWN_LEADER_EPOCH;
    }
    resp.topics = &topic;
    resp.topics_count = 1;
    reply(connection, at, &resp);
}

/* Both sides do what they can, until only waiting is left: the last fetch then waits at the leader. */
static UNUSED void run_to_rest(struct fworld *fw)
{
    turns(&fw->w, 6); /* a partition leaves a fetcher and comes to another */
    for (int i = 0; i < 2000; i++) {
        turns(&fw->w, 1);
        if (!connection) return;
        if (!connection->ready) {
            connect_now();
            continue;
        }
        if (connection->out_count == 0) {
            turns(&fw->w, 2);
            if (!connection || connection->out_count == 0) return;
        }
        struct out *o = &connection->outs[0];
        if (o->call->api == API_LIST_OFFSETS) {
            leader_list(0);
            continue;
        }
        if (!o->call->sent) { /* `sent` is ours while the call is out: it has been taken into the session */
            o->call->sent = true;
            enum kerr kerr = leader_look(o);
            if (kerr) {
                struct fetch_response resp = fetch_response_default;
                resp.error_code = (int16_t)kerr;
                reply(connection, 0, &resp);
                continue;
            }
        }
        if (leader_answer(0, connection->out_count > 1)) continue;
        turns(&fw->w, 1);
        if (connection && connection->out_count == 1) return;
    }
    fail_msg("they do not come to rest");
}

/* The follower has what the leader has. */
static UNUSED void check_same(struct fworld *fw, int32_t index)
{
    struct partition *p = followed_at(fw, index);
    const struct leader_part *lp = &leader.parts[index];
    assert_int_equal(plog_end(p->pl), lp->end);
    for (int64_t at = plog_start(p->pl); at < lp->end; at++) assert_int_equal(read_epoch(p, at), lp->epochs[at]);
    assert_int_equal(partition_high_watermark(p), lp->high_watermark);
}

#endif
