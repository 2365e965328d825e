/* fetcher.c: one connection to a leader: partitions come and go, the session is told, fetches leave.
 *
 * A fetch names only partitions whose place in the session has changed (KIP-227), so its cost hangs on what was
 * appended, not on how much is followed.  A full fetch, which opens a session, is answered at once; the ones after it
 * wait at the leader for data. */
#include <stdio.h>

#include "base/mem.h"
#include "replica/fetchers_internal.h"

#include "base/log.h"

enum {
    FETCH_VERSION_MIN = 12, /* the first that tells where epochs diverge */
    FETCH_VERSION_BY_ID = 13,
    FETCH_VERSION_STATE = 15, /* tells our broker epoch */
    FETCH_VERSION_MAX = 18,
    FETCH_VERSION_WATERMARK = 18, /* tells the leader what we know */
};
enum { SESSION_EPOCH_INITIAL = 0, SESSION_EPOCH_FIRST = 1 };
static const int64_t OFFSET_UNKNOWN = -1;

/* ---- What a partition is to the session */

static bool is_fetched(enum followed_state state)
{
    return state == FOLLOWED_READY || state == FOLLOWED_APPENDING;
}

static bool is_failed(enum followed_state state)
{
    return state == FOLLOWED_DELAYED || state == FOLLOWED_STUCK;
}

static void enter(struct followed *fo, enum followed_state state)
{
    struct fetcher *fr = fo->fr;
    fr->fetched += is_fetched(state);
    fr->fetched -= is_fetched(fo->state);
    if (is_failed(state) && !is_failed(fo->state)) atomic_fetch_add(&fr->f->failed, 1);
    if (!is_failed(state) && is_failed(fo->state)) atomic_fetch_sub(&fr->f->failed, 1);
    fo->state = state;
    list_remove(&fo->waiting);
}

void followed_enter(struct followed *fo, enum followed_state state)
{
    ASSERT(state != FOLLOWED_READY);
    enter(fo, state);
    list_remove(&fo->queued);
    if (!is_fetched(state) && fo->in_session) list_push_back(&fo->fr->unwanted, &fo->queued);
}

static bool session_is_behind(const struct followed *fo)
{
    const struct fetcher *fr = fo->fr;
    return !fo->in_session || fo->session_offset != fo->offset || fo->session_last_epoch != fo->last_epoch ||
           fo->session_start != plog_start(fo->p->pl) ||
           (fr->version >= FETCH_VERSION_WATERMARK && fo->session_high_watermark != partition_high_watermark(fo->p));
}

void followed_ready(struct followed *fo)
{
    struct fetcher *fr = fo->fr;
    fr->urgent |= !is_fetched(fo->state);
    enter(fo, FOLLOWED_READY);
    list_remove(&fo->queued);
    if (session_is_behind(fo)) list_push_back(&fr->changed, &fo->queued);
}

void followed_delay(struct followed *fo, bool briefly)
{
    struct fetcher *fr = fo->fr;
    int64_t delay_ms = fetchers_config(fr->f).backoff_ms;
    int level = DELAY_LEVELS - 1;
    followed_enter(fo, FOLLOWED_DELAYED);
    if (briefly && fo->failures < level) {
        level = fo->failures;
        delay_ms = MIN(delay_ms, (int64_t)DELAY_FIRST_MS << level);
    }
    fo->failures++;
    fo->retry_us = loop_now_us(fr->loop) + delay_ms * 1000;
    list_push_back(&fr->delayed[level], &fo->waiting);
    if (timer_is_set(&fr->delayed_timer) && fr->delayed_due_us <= fo->retry_us) return;
    fr->delayed_due_us = fo->retry_us;
    loop_timer_set(fr->loop, &fr->delayed_timer, fo->retry_us);
}

/* Begins with those of one level that are due; when the next one is. */
static int64_t end_delays(struct fetcher *fr, struct list *delayed)
{
    for (struct list_node *n; (n = list_first(delayed));) {
        struct followed *fo = CONTAINER_OF(n, struct followed, waiting);
        if (fo->retry_us > loop_now_us(fr->loop)) return fo->retry_us;
        followed_begin(fo);
    }
    return INT64_MAX;
}

static void on_delay_over(struct timer *t)
{
    struct fetcher *fr = CONTAINER_OF(t, struct fetcher, delayed_timer);
    int64_t due_us = INT64_MAX;
    for (int level = 0; level < DELAY_LEVELS; level++) due_us = MIN(due_us, end_delays(fr, &fr->delayed[level]));
    fr->delayed_due_us = due_us;
    if (due_us < INT64_MAX) loop_timer_set(fr->loop, t, due_us);
    fetcher_poke(fr);
}

/* ---- Throttling */

void followed_throttle(struct followed *fo, int64_t until_us)
{
    struct fetcher *fr = fo->fr;
    followed_enter(fo, FOLLOWED_THROTTLED);
    list_push_back(&fr->throttled, &fo->waiting);
    if (!timer_is_set(&fr->throttled_timer) && until_us < INT64_MAX)
        loop_timer_set(fr->loop, &fr->throttled_timer, until_us);
}

/* The rate has room again, or is another one. */
static void unthrottle(struct fetcher *fr)
{
    int64_t until = fetchers_over_rate_until(fr->f, loop_now_us(fr->loop));
    loop_timer_cancel(fr->loop, &fr->throttled_timer);
    if (until > 0 && until < INT64_MAX && !list_is_empty(&fr->throttled))
        loop_timer_set(fr->loop, &fr->throttled_timer, until);
    LIST_EACH (&fr->throttled, n) {
        struct followed *fo = CONTAINER_OF(n, struct followed, waiting);
        if (until > 0 && fo->throttle_counts) continue;
        followed_begin(fo);
    }
    fetcher_poke(fr);
}

static void on_throttle_over(struct timer *t)
{
    unthrottle(CONTAINER_OF(t, struct fetcher, throttled_timer));
}

static void on_throttle_changed(struct loop_msg *msg)
{
    struct fetcher *fr = CONTAINER_OF(msg, struct fetcher, throttle_msg);
    atomic_store(&fr->throttle_posted, false);
    struct followed *fo, *next;
    HASH_ITER(by_name, fr->by_name, fo, next)
    fo->throttle_counts = fetchers_counts(fr->f, fo->p);
    unthrottle(fr);
}

/* ---- Partitions come */

struct followed *fetcher_find(struct fetcher *fr, struct str topic, struct uuid topic_id, int32_t index)
{
    struct followed *fo = NULL;
    if (!uuid_is_zero(topic_id)) {
        struct part_id id = {topic_id, index};
        HASH_FIND(by_id, fr->by_id, &id, sizeof id, fo);
        return fo;
    }
    char key[300]; /* a topic's name is shorter than a file's, or nobody follows it */
    int n = snprintf(key, sizeof key, "%.*s-%d", STR_ARG(topic), index);
    if (n > 0 && (size_t)n < sizeof key) HASH_FIND(by_name, fr->by_name, key, (size_t)n, fo);
    return fo;
}

static void free_forgotten(struct fetcher *fr, struct forgotten *fg)
{
    HASH_DEL(fr->forgotten, fg);
    mem_free(fg->key);
    mem_free(fg);
}

/* What the session still has of a partition that was here a moment ago is not forgotten, but changed. */
static void take_over_forgotten(struct fetcher *fr, struct followed *fo)
{
    struct forgotten *fg;
    HASH_FIND(hh, fr->forgotten, fo->key, fo->key_size, fg);
    if (!fg || (fr->session_by_id && !uuid_equal(fg->id.topic_id, fo->id.topic_id))) return;
    free_forgotten(fr, fg);
    fo->in_session = true;
    fo->session_offset = OFFSET_UNKNOWN;
    fo->put_serial = UINT64_MAX;
}

void fetcher_take(struct fetcher *fr, struct followed *fo)
{
    HASH_ADD_KEYPTR(by_name, fr->by_name, fo->key, fo->key_size, fo);
    if (uuid_is_zero(fo->id.topic_id))
        fr->unnamed++;
    else
        HASH_ADD(by_id, fr->by_id, id, sizeof fo->id, fo);
    fo->throttle_counts = fetchers_counts(fr->f, fo->p);
    take_over_forgotten(fr, fo);
    followed_begin(fo);
    fetcher_poke(fr);
}

/* ---- and go */

bool followed_check_gone(struct followed *fo)
{
    if (!fo->leaving || fo->append_out || fo->flush_out || fo->cut_out || fo->start_out) return false;
    fetchers_returned(fo);
    return true;
}

static void remember_forgotten(struct fetcher *fr, const struct followed *fo)
{
    struct forgotten *fg = mem_zalloc(1, sizeof *fg);
    fg->key = mem_strdup(fo->key);
    fg->topic = (struct str){fg->key, strlen(fo->p->topic)};
    fg->id = fo->id;
    HASH_ADD_KEYPTR(hh, fr->forgotten, fg->key, fo->key_size, fg);
}

void followed_leave(struct loop_msg *msg)
{
    struct followed *fo = CONTAINER_OF(msg, struct followed, leave_msg);
    struct fetcher *fr = fo->fr;
    enter(fo, FOLLOWED_AWAY);
    list_remove(&fo->queued);
    HASH_DELETE(by_name, fr->by_name, fo);
    if (uuid_is_zero(fo->id.topic_id))
        fr->unnamed--;
    else
        HASH_DELETE(by_id, fr->by_id, fo);
    if (fo->in_session) remember_forgotten(fr, fo);
    fo->leaving = true;
    lookup_forget(fo);
    followed_stop_waiting(fo);
    followed_check_gone(fo);
}

void followed_free(struct followed *fo)
{
    buf_unref(fo->frame);
    partition_unref(fo->given);
    partition_unref(fo->p);
    mem_free(fo->key);
    mem_free(fo);
}

/* ---- The connection */

/* Until replica.fetch.backoff.ms is over nothing is sent. */
void fetcher_back_off(struct fetcher *fr)
{
    fr->backing_off = true;
    int64_t due_us = loop_now_us(fr->loop) + fetchers_config(fr->f).backoff_ms * 1000;
    if (!timer_is_set(&fr->retry)) loop_timer_set(fr->loop, &fr->retry, due_us);
}

static void on_retry(struct timer *t)
{
    struct fetcher *fr = CONTAINER_OF(t, struct fetcher, retry);
    fr->backing_off = false;
    fetcher_go_on(fr);
}

/* Most failures are the connection's, which will tell of its end; the others are tried again later. */
static void fetch_failed(struct fetcher *fr, enum err e)
{
    fr->full_next = true;
    if (fr->retired || !fr->rpc) return; /* we have closed it */
    if (e == ERR_UNSUPPORTED)
        LOG_LIMITED(LOG_LEVEL_ERROR, "leader_too_old",
                    "broker=%d address=%s:%d reason=\"it knows no Fetch of version %d\"", fr->leader, fr->host,
                    fr->port, FETCH_VERSION_MIN);
    fetcher_back_off(fr);
}

static void on_ended(void *arg, enum rpc_end end, const char *text)
{
    struct fetcher *fr = arg;
    (void)end;
    LOG_LIMITED(LOG_LEVEL_WARN, "leader_lost", "broker=%d address=%s:%d reason=\"%s\"", fr->leader, fr->host, fr->port,
                text);
    rpc_close(fr->rpc);
    fr->rpc = NULL;
    fr->full_next = true;
    fetcher_back_off(fr);
}

static void on_ready(void *arg)
{
    fetcher_go_on(arg);
}

static void connect_leader(struct fetcher *fr)
{
    struct fetchers *f = fr->f;
    if (fr->backing_off || fr->no_address || fr->out_count > 0 || !fr->by_name) return;
    if (!f->opt.address_of(f->opt.arg, fr->leader, fr->host, &fr->port)) {
        fr->no_address = true; /* until fetchers_broker_changed() */
        LOG_LIMITED(LOG_LEVEL_WARN, "leader_unknown", "broker=%d reason=\"it is not registered\"", fr->leader);
        return;
    }
    const struct fetchers_config cfg = fetchers_config(f);
    const struct rpc_options opt = {
        .net = f->opt.net,
        .loop = fr->loop,
        .workers = f->opt.workers,
        .bufs = f->opt.bufs,
        .client_id = str_of(fr->client_id),
        .connect_timeout_ms = cfg.socket_timeout_ms,
        .receive_buffer_bytes = cfg.receive_buffer_bytes,
        .ended = on_ended,
        .ready = on_ready,
        .arg = fr,
    };
    fr->full_next = true;
    fr->rpc = rpc_open(&opt, str_of(fr->host), fr->port);
}

/* The broker is said to have changed: if it has another address, or was away, no waiting. */
static void on_broker_changed(struct loop_msg *msg)
{
    struct fetcher *fr = CONTAINER_OF(msg, struct fetcher, changed_msg);
    struct fetchers *f = fr->f;
    char host[sizeof fr->host];
    int32_t port;
    atomic_store(&fr->changed_posted, false);
    if (fr->rpc && f->opt.address_of(f->opt.arg, fr->leader, host, &port) &&
        (port != fr->port || strcmp(host, fr->host) != 0)) {
        rpc_close(fr->rpc);
        fr->rpc = NULL;
    }
    if (!fr->rpc) {
        fr->no_address = fr->backing_off = false;
        loop_timer_cancel(fr->loop, &fr->retry);
    }
    fetcher_poke(fr);
}

/* ---- Fetches */

/* The fetch tells all: the leader has no session of ours, or one that is not worth having. */
static void begin_session(struct fetcher *fr, bool by_id)
{
    struct forgotten *fg, *fg_next;
    HASH_ITER(hh, fr->forgotten, fg, fg_next)
    free_forgotten(fr, fg);
    struct followed *fo, *next;
    HASH_ITER(by_name, fr->by_name, fo, next)
    {
        fo->in_session = false;
        list_remove(&fo->queued);
        if (fo->state == FOLLOWED_READY) list_push_back(&fr->changed, &fo->queued);
    }
    fr->session_by_id = by_id;
}

static size_t count_list(const struct list *l)
{
    size_t n = 0;
    LIST_EACH (l, node) n++;
    return n;
}

static void put_partition(struct fetch_out *out, struct followed *fo, struct fetch_request_fetch_partition *fp,
                          int32_t bytes_max)
{
    *fp = fetch_request_fetch_partition_default;
    fo->session_offset = fo->offset;
    fo->session_last_epoch = fo->last_epoch;
    fo->session_start = plog_start(fo->p->pl);
    fo->session_high_watermark = partition_high_watermark(fo->p);
    fo->in_session = true;
    fo->put_serial = out->serial;
    fp->partition = fo->id.index;
    fp->current_leader_epoch = fo->leader_epoch;
    fp->fetch_offset = fo->session_offset;
    fp->last_fetched_epoch = fo->session_last_epoch;
    fp->log_start_offset = fo->session_start;
    fp->partition_max_bytes = bytes_max;
    fp->high_watermark = fo->session_high_watermark;
}

/* Neighbours of one topic share an entry; they mostly come together. */
static void put_changed(struct fetcher *fr, struct fetch_out *out, int32_t bytes_max)
{
    struct fetch_request *rq = &out->request;
    size_t count = count_list(&fr->changed);
    rq->topics = arena_array(&out->arena, struct fetch_request_fetch_topic, count);
    struct fetch_request_fetch_partition *fp = arena_array(&out->arena, struct fetch_request_fetch_partition, count);
    const struct followed *before = NULL;
    for (struct list_node *n; (n = list_pop_front(&fr->changed)); fp++) {
        struct followed *fo = CONTAINER_OF(n, struct followed, queued);
        if (!before || !uuid_equal(before->id.topic_id, fo->id.topic_id) ||
            strcmp(before->p->topic, fo->p->topic) != 0) {
            struct fetch_request_fetch_topic *ft = &rq->topics[rq->topics_count++];
            *ft = fetch_request_fetch_topic_default;
            ft->topic = arena_str(&out->arena, str_of(fo->p->topic));
            ft->topic_id = fo->id.topic_id;
            ft->partitions = fp;
        }
        rq->topics[rq->topics_count - 1].partitions_count++;
        put_partition(out, fo, fp, bytes_max);
        before = fo;
    }
    out->named = count;
}

static void put_forgotten_one(struct fetch_out *out, struct str topic, const struct part_id *id)
{
    struct fetch_request *rq = &out->request;
    struct fetch_request_forgotten_topic *ft = &rq->forgotten_topics_data[rq->forgotten_topics_data_count++];
    *ft = fetch_request_forgotten_topic_default;
    ft->topic = arena_str(&out->arena, topic);
    ft->topic_id = id->topic_id;
    ft->partitions = arena_alloc(&out->arena, sizeof *ft->partitions);
    ft->partitions[0] = id->index;
    ft->partitions_count = 1;
}

static void put_forgotten(struct fetcher *fr, struct fetch_out *out)
{
    size_t count = HASH_COUNT(fr->forgotten) + count_list(&fr->unwanted);
    out->request.forgotten_topics_data = arena_array(&out->arena, struct fetch_request_forgotten_topic, count);
    struct forgotten *fg, *next;
    HASH_ITER(hh, fr->forgotten, fg, next)
    {
        put_forgotten_one(out, fg->topic, &fg->id);
        free_forgotten(fr, fg);
    }
    for (struct list_node *n; (n = list_pop_front(&fr->unwanted));) {
        struct followed *fo = CONTAINER_OF(n, struct followed, queued);
        put_forgotten_one(out, str_of(fo->p->topic), &fo->id);
        fo->in_session = false;
    }
}

static void on_answer(struct rpc_call *call)
{
    struct fetch_out *out = CONTAINER_OF(call, struct fetch_out, call);
    struct fetcher *fr = out->fr;
    fr->out_count--;
    if (call->err)
        fetch_failed(fr, call->err);
    else if (!fr->retired)
        fetcher_take_answer(fr, out);
    out->out = false; /* not before: a fetch may have left meanwhile, in the other's place */
    fetcher_go_on(fr);
}

static void send_fetch(struct fetcher *fr)
{
    const struct fetchers_options *opt = &fr->f->opt;
    const struct fetchers_config cfg = fetchers_config(fr->f);
    struct fetch_out *out = &fr->outs[0];
    while (out->out) out++;
    bool by_id = fr->unnamed == 0;
    int16_t version =
        rpc_version(fr->rpc, API_FETCH, FETCH_VERSION_MIN, by_id ? FETCH_VERSION_MAX : FETCH_VERSION_BY_ID - 1);
    if (version < 0) {
        fetch_failed(fr, ERR_UNSUPPORTED);
        return;
    }
    by_id = version >= FETCH_VERSION_BY_ID;
    fr->full_next |= by_id != fr->session_by_id;
    arena_reset(&out->arena);
    out->request = fetch_request_default;
    out->serial = ++fr->serial;
    out->full = fr->full_next;
    out->out = true;
    fr->out_count++;
    fr->urgent = false;
    if (out->full) begin_session(fr, by_id);
    put_changed(fr, out, cfg.fetch_max_bytes);
    if (!out->full) put_forgotten(fr, out);

    struct fetch_request *rq = &out->request;
    if (version >= FETCH_VERSION_STATE)
        rq->replica_state = (struct fetch_request_replica_state){opt->broker_id, opt->broker_epoch(opt->arg)};
    else
        rq->replica_id = opt->broker_id;
    rq->max_wait_ms = out->full && !fr->no_session ? 0 : cfg.wait_max_ms;
    rq->min_bytes = cfg.min_bytes;
    rq->max_bytes = cfg.response_max_bytes;
    rq->session_id = fr->session_id;
    rq->session_epoch = out->full ? SESSION_EPOCH_INITIAL : fr->session_epoch;
    if (!out->full) fr->session_epoch = fr->session_epoch == INT32_MAX ? SESSION_EPOCH_FIRST : fr->session_epoch + 1;
    out->call = (struct rpc_call){
        .api = API_FETCH,
        .version_min = version,
        .version_max = version,
        .request = rq,
        .timeout_ms = cfg.socket_timeout_ms,
        .done = on_answer,
    };
    rpc_send(fr->rpc, &out->call);
}

/* A fetch that is out and waits at the leader does not keep waiting who is to be fetched from now on: a second one,
 * which brings them into the session, takes its place. */
static bool may_overtake(const struct fetcher *fr)
{
    if (fr->out_count >= FETCHES_OUT_MAX || !fr->urgent || fr->full_next || fr->session_id == 0) return false;
    for (unsigned i = 0; i < FETCHES_OUT_MAX; i++)
        if (fr->outs[i].out && fr->outs[i].full) return false;
    return fr->unnamed == 0 || !fr->session_by_id;
}

bool fetcher_may_read_ahead(const struct fetcher *fr)
{
    return fr->rpc && rpc_is_ready(fr->rpc) && !fr->backing_off && fr->holding == 0 && fr->out_count == 0 &&
           !fr->full_next && fr->session_id != 0;
}

void fetcher_read_ahead(struct fetcher *fr, const struct ahead *list, size_t count)
{
    struct place {
        int64_t offset;
        int32_t epoch;
    } *before = mem_alloc(count * sizeof *before);
    for (size_t i = 0; i < count; i++) {
        struct followed *fo = list[i].fo;
        before[i] = (struct place){fo->offset, fo->last_epoch};
        fo->offset = list[i].offset;
        fo->last_epoch = list[i].epoch;
        followed_ready(fo);
    }
    send_fetch(fr);
    for (size_t i = 0; i < count; i++) {
        struct followed *fo = list[i].fo;
        fo->offset = before[i].offset;
        fo->last_epoch = before[i].epoch;
        fo->read_ahead = fo->put_serial == fr->serial;
    }
    mem_free(before);
}

static void check_retired(struct fetcher *fr)
{
    if (fr->out_count == 0 && fr->lookups == 0) loop_post(fr->f->opt.home, &fr->retired_msg);
}

void fetcher_go_on(struct fetcher *fr)
{
    if (fr->retired) {
        check_retired(fr);
        return;
    }
    if (!fr->rpc) {
        connect_leader(fr);
        return;
    }
    if (!rpc_is_ready(fr->rpc) || fr->backing_off || fr->holding > 0 || fr->fetched == 0) return;
    if (fr->out_count == 0 || may_overtake(fr)) send_fetch(fr);
}

static void on_idle(struct loop_idle *idle)
{
    fetcher_go_on(CONTAINER_OF(idle, struct fetcher, idle));
}

void fetcher_poke(struct fetcher *fr)
{
    if (!fr->retired) loop_idle_once(fr->loop, &fr->idle);
}

/* ---- Life */

static void on_retire(struct loop_msg *msg)
{
    struct fetcher *fr = CONTAINER_OF(msg, struct fetcher, retire_msg);
    ASSERT(!fr->by_name);
    fr->retired = true;
    loop_timer_cancel(fr->loop, &fr->retry);
    loop_timer_cancel(fr->loop, &fr->delayed_timer);
    loop_timer_cancel(fr->loop, &fr->throttled_timer);
    loop_idle_cancel(fr->loop, &fr->idle);
    rpc_close(fr->rpc);
    fr->rpc = NULL;
    check_retired(fr);
}

struct fetcher *fetcher_new(struct fetchers *f, int32_t leader, int32_t number)
{
    struct fetcher *fr = mem_zalloc(1, sizeof *fr);
    fr->f = f;
    fr->leader = leader;
    fr->number = number;
    fr->loop = f->opt.loops[((uint32_t)leader + (uint32_t)number) % f->opt.loop_count];
    fr->client_id = mem_printf("broker-%d-fetcher-%d", f->opt.broker_id, number); /* as Kafka's */
    fr->retire_msg.run = on_retire;
    fr->changed_msg.run = on_broker_changed;
    fr->throttle_msg.run = on_throttle_changed;
    fr->retry.fire = on_retry;
    fr->delayed_timer.fire = on_delay_over;
    fr->throttled_timer.fire = on_throttle_over;
    fr->idle.run = on_idle;
    fr->session_by_id = true;
    fr->full_next = true;
    list_init(&fr->changed);
    list_init(&fr->unwanted);
    for (int level = 0; level < DELAY_LEVELS; level++) list_init(&fr->delayed[level]);
    list_init(&fr->throttled);
    for (unsigned i = 0; i < FETCHES_OUT_MAX; i++) {
        fr->outs[i].fr = fr;
        arena_init(&fr->outs[i].arena, SIZE_MAX);
    }
    return fr;
}

void fetcher_free(struct fetcher *fr)
{
    rpc_close(fr->rpc);
    struct forgotten *fg, *next;
    HASH_ITER(hh, fr->forgotten, fg, next)
    free_forgotten(fr, fg);
    for (unsigned i = 0; i < FETCHES_OUT_MAX; i++) arena_fini(&fr->outs[i].arena);
    mem_free(fr->client_id);
    mem_free(fr);
}
