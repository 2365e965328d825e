/* leaders.c: the heap of partitions whose followers are watched, and the queue of proposals. */
#include "replica/leaders.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { RETRY_US = 50 * 1000 }; /* after an error of the request as a whole, as in Kafka */
enum { VERSION_NAMES = 1, VERSION_IDS = 2, VERSION_EPOCHS = 3 }; /* of AlterPartition: what it newly has */

/* One proposal on its way. */
struct proposed {
    struct partition *p; /* a reference */
    struct isr_proposal proposal;
    bool answered;
};

struct leaders {
    struct leaders_options opt;
    /* Guards all up to the blank line; nothing is taken under it. */
    pthread_mutex_t lock;
    struct partition **heap; /* references; by partition.watched_ms, the first is due first; places count from 1 */
    size_t count, cap;
    struct partition **queue; /* references: those with a proposal that is not out */
    size_t queue_count, queue_cap;
    bool kicked;              /* the message is under way */
    int64_t bytes_per_second; /* of throttled partitions; */
    int64_t paid_us;          /*   what was read of them is within it at this time */

    struct loop_msg kick;
    struct timer timer, retry;
    bool out; /* a call is */
    bool stopped;
    int16_t version_max;
    struct alter_partition_call call;
    struct alter_partition_request request;
    struct arena arena; /* of the call */
    struct proposed *items;
    size_t item_count;
};

/* ---- The heap, under the lock */

static void put(struct leaders *ls, size_t at, struct partition *p)
{
    ls->heap[at - 1] = p;
    p->watch_index = at;
}

static int64_t due_at(const struct leaders *ls, size_t at)
{
    return atomic_load_explicit(&ls->heap[at - 1]->watched_ms, memory_order_relaxed);
}

static void swap(struct leaders *ls, size_t a, size_t b)
{
    struct partition *p = ls->heap[a - 1];
    put(ls, a, ls->heap[b - 1]);
    put(ls, b, p);
}

static void sift_up(struct leaders *ls, size_t at)
{
    for (; at > 1 && due_at(ls, at / 2) > due_at(ls, at); at /= 2) swap(ls, at, at / 2);
}

static void sift_down(struct leaders *ls, size_t at)
{
    for (size_t child; (child = 2 * at) <= ls->count; at = child) {
        if (child < ls->count && due_at(ls, child + 1) < due_at(ls, child)) child++;
        if (due_at(ls, child) >= due_at(ls, at)) break;
        swap(ls, at, child);
    }
}

/* The caller takes over the heap's reference. */
static void heap_remove(struct leaders *ls, struct partition *p)
{
    size_t at = p->watch_index;
    struct partition *last = ls->heap[--ls->count];
    p->watch_index = 0;
    atomic_store(&p->watched_ms, INT64_MAX);
    if (last == p) return;
    put(ls, at, last);
    sift_up(ls, at);
    sift_down(ls, last->watch_index);
}

/* ---- From any thread to the home loop */

static void kick(struct leaders *ls)
{
    bool post = !ls->kicked;
    ls->kicked = true;
    if (post) loop_post(ls->opt.home, &ls->kick);
}

void leaders_watch(struct leaders *ls, struct partition *p, int64_t due_ms)
{
    if (due_ms == INT64_MAX) return;
    pthread_mutex_lock(&ls->lock);
    if (!ls->stopped && due_ms < atomic_load(&p->watched_ms)) {
        atomic_store(&p->watched_ms, due_ms);
        if (!p->watch_index) {
            ls->heap = mem_grow(ls->heap, &ls->cap, ls->count + 1, sizeof(struct partition *));
            put(ls, ++ls->count, partition_ref(p));
        }
        sift_up(ls, p->watch_index);
        if (ls->heap[0] == p) kick(ls);
    }
    pthread_mutex_unlock(&ls->lock);
}

void leaders_forget(struct leaders *ls, struct partition *p)
{
    if (!ls) return;
    pthread_mutex_lock(&ls->lock);
    bool had = p->watch_index != 0;
    if (had) heap_remove(ls, p);
    pthread_mutex_unlock(&ls->lock);
    if (had) partition_unref(p);
}

static void enqueue(struct leaders *ls, struct partition *p)
{
    if (p->proposal_queued || ls->stopped) return;
    p->proposal_queued = true;
    ls->queue = mem_grow(ls->queue, &ls->queue_cap, ls->queue_count + 1, sizeof(struct partition *));
    ls->queue[ls->queue_count++] = partition_ref(p);
}

void leaders_propose(struct leaders *ls, struct partition *p)
{
    pthread_mutex_lock(&ls->lock);
    enqueue(ls, p);
    if (!ls->out) kick(ls);
    pthread_mutex_unlock(&ls->lock);
}

bool leaders_is_alive(const struct leaders *ls, int32_t broker_id)
{
    return !ls->opt.is_alive || ls->opt.is_alive(ls->opt.arg, broker_id);
}

int64_t leaders_lag_max_ms(const struct leaders *ls)
{
    return ls->opt.lag_max_ms;
}

int64_t leaders_now_ms(const struct leaders *ls)
{
    return clock_mono_us(ls->opt.clock) / 1000;
}

bool leaders_can_propose(const struct leaders *ls)
{
    return ls->opt.alter_partition != NULL;
}

/* ---- Throttled partitions */

void leaders_set_rate(struct leaders *ls, int64_t bytes_per_second)
{
    pthread_mutex_lock(&ls->lock);
    ls->bytes_per_second = bytes_per_second;
    ls->paid_us = 0;
    pthread_mutex_unlock(&ls->lock);
}

void leaders_charge(struct leaders *ls, size_t bytes, int64_t now_us)
{
    pthread_mutex_lock(&ls->lock);
    if (ls->bytes_per_second > 0 && ls->bytes_per_second < INT64_MAX)
        ls->paid_us = MAX(ls->paid_us, now_us) + (int64_t)((double)bytes * 1e6 / (double)ls->bytes_per_second);
    pthread_mutex_unlock(&ls->lock);
}

bool leaders_over_rate(struct leaders *ls, int64_t now_us)
{
    pthread_mutex_lock(&ls->lock);
    bool over = ls->bytes_per_second <= 0 || ls->paid_us > now_us;
    pthread_mutex_unlock(&ls->lock);
    return over;
}

/* ---- Watching, home loop */

static void arm(struct leaders *ls)
{
    pthread_mutex_lock(&ls->lock);
    int64_t due_ms = ls->count ? due_at(ls, 1) : INT64_MAX;
    pthread_mutex_unlock(&ls->lock);
    if (ls->stopped || due_ms == INT64_MAX)
        loop_timer_cancel(ls->opt.home, &ls->timer);
    else
        loop_timer_set(ls->opt.home, &ls->timer, due_ms * 1000);
}

/* The first that is due by now, with the heap's reference. */
static struct partition *take_due(struct leaders *ls, int64_t now_ms)
{
    struct partition *p = NULL;
    pthread_mutex_lock(&ls->lock);
    if (ls->count && due_at(ls, 1) <= now_ms) {
        p = ls->heap[0];
        heap_remove(ls, p);
    }
    pthread_mutex_unlock(&ls->lock);
    return p;
}

static void on_due(struct timer *t)
{
    struct leaders *ls = CONTAINER_OF(t, struct leaders, timer);
    struct partition *p;
    while ((p = take_due(ls, loop_now_ms(ls->opt.home)))) {
        partition_look_at_followers(p); /* asks to be watched anew */
        partition_unref(p);
    }
    arm(ls);
}

/* ---- Proposing, home loop */

static void send_next(struct leaders *ls);

static int by_topic_id(const void *a, const void *b)
{
    const struct partition *x = ((const struct proposed *)a)->p, *y = ((const struct proposed *)b)->p;
    int order = memcmp(x->topic_id.bytes, y->topic_id.bytes, sizeof x->topic_id.bytes);
    return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

static int by_topic_name(const void *a, const void *b)
{
    const struct partition *x = ((const struct proposed *)a)->p, *y = ((const struct proposed *)b)->p;
    int order = strcmp(x->topic, y->topic);
    return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

/* What the queue holds, into items; those that have nothing to propose any more are let go. */
static void take_queue(struct leaders *ls)
{
    pthread_mutex_lock(&ls->lock);
    struct partition **queue = ls->queue;
    size_t count = ls->queue_count;
    ls->queue = NULL;
    ls->queue_count = ls->queue_cap = 0;
    for (size_t i = 0; i < count; i++) queue[i]->proposal_queued = false;
    ls->out = count > 0;
    pthread_mutex_unlock(&ls->lock);
    if (count == 0) return;
    int64_t epoch = ls->opt.broker_epoch ? ls->opt.broker_epoch(ls->opt.arg) : -1;
    arena_init(&ls->arena, SIZE_MAX);
    ls->items = arena_array(&ls->arena, struct proposed, count);
    ls->item_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct proposed *it = &ls->items[ls->item_count];
        *it = (struct proposed){.p = queue[i]};
        if (partition_take_proposal(queue[i], epoch, &ls->arena, &it->proposal))
            ls->item_count++;
        else
            partition_unref(queue[i]);
    }
    mem_free(queue);
}

static void fill_partition(struct leaders *ls, const struct proposed *it,
                           struct alter_partition_request_partition_data *pd)
{
    const struct isr_proposal *pr = &it->proposal;
    *pd = alter_partition_request_partition_data_default;
    pd->partition_index = it->p->index;
    pd->leader_epoch = pr->leader_epoch;
    pd->partition_epoch = pr->partition_epoch;
    if (ls->call.version < VERSION_EPOCHS) {
        pd->new_isr = pr->ids;
        pd->new_isr_count = pr->count;
        return;
    }
    pd->new_isr_with_epochs = arena_array(&ls->arena, struct alter_partition_request_broker_state, (size_t)pr->count);
    pd->new_isr_with_epochs_count = pr->count;
    for (int32_t i = 0; i < pr->count; i++)
        pd->new_isr_with_epochs[i] = (struct alter_partition_request_broker_state){pr->ids[i], pr->epochs[i]};
}

static void fill_request(struct leaders *ls)
{
    struct alter_partition_request *rq = &ls->request;
    *rq = alter_partition_request_default;
    rq->broker_id = ls->items[0].proposal.self;
    rq->broker_epoch = ls->opt.broker_epoch ? ls->opt.broker_epoch(ls->opt.arg) : -1;
    rq->topics = arena_array(&ls->arena, struct alter_partition_request_topic_data, ls->item_count);
    struct alter_partition_request_partition_data *all =
        arena_array(&ls->arena, struct alter_partition_request_partition_data, ls->item_count);
    ls->call.version = ls->version_max;
    for (size_t i = 0; i < ls->item_count; i++) /* the controller has not given ids to all of them yet */
        if (uuid_is_zero(ls->items[i].p->topic_id)) ls->call.version = VERSION_NAMES;
    bool by_id = ls->call.version >= VERSION_IDS;
    qsort(ls->items, ls->item_count, sizeof *ls->items, by_id ? by_topic_id : by_topic_name);
    const struct partition *last = NULL;
    for (size_t i = 0; i < ls->item_count; i++) {
        const struct partition *p = ls->items[i].p;
        if (!last || strcmp(last->topic, p->topic) != 0 || !uuid_equal(last->topic_id, p->topic_id)) {
            struct alter_partition_request_topic_data *td = &rq->topics[rq->topics_count++];
            *td = alter_partition_request_topic_data_default;
            if (by_id)
                td->topic_id = p->topic_id;
            else
                td->topic_name = str_of(p->topic);
            td->partitions = &all[i];
        }
        last = p;
        fill_partition(ls, &ls->items[i], &all[i]);
        rq->topics[rq->topics_count - 1].partitions_count++;
    }
}

/* How what an answer names stands to an item. */
static int answer_order(const struct leaders *ls, const struct alter_partition_response_topic_data *td, int32_t index,
                        const struct partition *p)
{
    int order = ls->call.version >= VERSION_IDS
                    ? memcmp(td->topic_id.bytes, p->topic_id.bytes, sizeof td->topic_id.bytes)
                    : str_compare(td->topic_name, str_of(p->topic));
    return order ? order : index < p->index ? -1 : index > p->index;
}

static struct proposed *find_item(struct leaders *ls, const struct alter_partition_response_topic_data *td,
                                  int32_t index)
{
    for (size_t low = 0, high = ls->item_count; low < high;) {
        size_t at = (low + high) / 2;
        int order = answer_order(ls, td, index, ls->items[at].p);
        if (!order) return &ls->items[at];
        if (order < 0)
            high = at;
        else
            low = at + 1;
    }
    return NULL;
}

/* What was asked goes back to the queue. */
static void ask_again(struct leaders *ls, struct proposed *it)
{
    pthread_mutex_lock(&ls->lock);
    enqueue(ls, it->p);
    pthread_mutex_unlock(&ls->lock);
}

/* True: something is to be asked again, and not at once. */
static bool take_answers(struct leaders *ls, const struct alter_partition_response *response)
{
    bool again = false;
    for (int32_t t = 0; t < response->topics_count; t++) {
        const struct alter_partition_response_topic_data *td = &response->topics[t];
        for (int32_t i = 0; i < td->partitions_count; i++) {
            struct proposed *it = find_item(ls, td, td->partitions[i].partition_index);
            if (!it || it->answered) continue;
            it->answered = true;
            if (!partition_take_answer(it->p, &it->proposal, &td->partitions[i])) continue;
            ask_again(ls, it);
            again = true;
        }
    }
    return again;
}

static void end_call(struct leaders *ls)
{
    for (size_t i = 0; i < ls->item_count; i++) partition_unref(ls->items[i].p);
    arena_fini(&ls->arena);
    ls->items = NULL;
    ls->item_count = 0;
    pthread_mutex_lock(&ls->lock);
    ls->out = false;
    pthread_mutex_unlock(&ls->lock);
}

static void on_retry(struct timer *t)
{
    send_next(CONTAINER_OF(t, struct leaders, retry));
}

static void on_answer(struct alter_partition_call *call, enum err e, const struct alter_partition_response *response)
{
    struct leaders *ls = CONTAINER_OF(call, struct leaders, call);
    enum kerr kerr = e ? KERR_NONE : (enum kerr)response->error_code;
    bool lower = e == ERR_UNSUPPORTED && call->version == VERSION_EPOCHS;
    if (lower)
        ls->version_max = VERSION_IDS;
    else if ((e && e != ERR_CLOSED) || kerr)
        LOG_LIMITED(LOG_LEVEL_WARN, "alter_partition_failed", "partitions=%zu error=%s", ls->item_count,
                    e ? err_name(e) : kerr_name((int16_t)kerr));
    bool later = !lower && (e || kerr || take_answers(ls, response));
    for (size_t i = 0; i < ls->item_count; i++) /* one that the answer left out is asked anew, too */
        if (!ls->items[i].answered) ask_again(ls, &ls->items[i]);
    end_call(ls);
    if (ls->stopped || e == ERR_CLOSED) return; /* the broker stops */
    if (later)
        loop_timer_set(ls->opt.home, &ls->retry, loop_now_us(ls->opt.home) + RETRY_US);
    else
        send_next(ls);
}

static void send_next(struct leaders *ls)
{
    if (ls->stopped || ls->out || timer_is_set(&ls->retry)) return;
    for (;;) {
        take_queue(ls);
        if (!ls->out) return;
        if (ls->item_count > 0) break;
        end_call(ls); /* but somebody may have proposed since, who saw that a call was out and kicked nobody */
    }
    fill_request(ls);
    ls->call.request = &ls->request;
    ls->call.done = on_answer;
    ls->opt.alter_partition(ls->opt.arg, &ls->call);
}

static void on_kick(struct loop_msg *msg)
{
    struct leaders *ls = CONTAINER_OF(msg, struct leaders, kick);
    pthread_mutex_lock(&ls->lock);
    ls->kicked = false;
    pthread_mutex_unlock(&ls->lock);
    if (ls->stopped) return;
    arm(ls);
    send_next(ls);
}

/* ---- Beginning and end */

struct leaders *leaders_new(const struct leaders_options *opt)
{
    struct leaders *ls = mem_zalloc(1, sizeof *ls);
    ls->opt = *opt;
    pthread_mutex_init(&ls->lock, NULL);
    ls->kick.run = on_kick;
    ls->timer.fire = on_due;
    ls->retry.fire = on_retry;
    ls->version_max = VERSION_EPOCHS;
    ls->bytes_per_second = INT64_MAX;
    return ls;
}

void leaders_stop(struct leaders *ls)
{
    pthread_mutex_lock(&ls->lock);
    ls->stopped = true;
    pthread_mutex_unlock(&ls->lock);
    loop_timer_cancel(ls->opt.home, &ls->timer);
    loop_timer_cancel(ls->opt.home, &ls->retry);
}

void leaders_free(struct leaders *ls)
{
    if (!ls) return;
    if (ls->out) end_call(ls); /* the process ends before it was answered */
    for (size_t i = 0; i < ls->count; i++) partition_unref(ls->heap[i]);
    for (size_t i = 0; i < ls->queue_count; i++) partition_unref(ls->queue[i]);
    mem_free(ls->heap);
    mem_free(ls->queue);
    pthread_mutex_destroy(&ls->lock);
    mem_free(ls);
}
