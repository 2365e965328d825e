/* producer_ids.c: the present block, the one after it, and who waits for an id.
 *
 * One block at a time is asked for: as soon as the present one has fewer than PREFETCH_BELOW ids left and there is no
 * next one.  Waiting requests are served in order, before those that come later. */
#include "broker/producer_ids.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/mem.h"
#include "broker/broker.h"
#include "broker/request.h"
#include "broker/to_controller.h"
#include "controller/controller.h"
#include "wire/gen/allocate_producer_ids.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum {
    PREFETCH_BELOW = PRODUCER_ID_BLOCK_SIZE / 10,
    ASK_MS = 5000 /* then those who wait are told to try again */
};

struct id_block {
    int64_t next, end;
};

struct producer_ids {
    struct broker *br;
    pthread_mutex_t lock; /* guards what follows */
    struct id_block present, after;
    bool asking;
    struct list waiting;
    struct allocate_producer_ids_request in; /* these two while `asking` */
    struct controller_call call;
};

struct producer_ids *producer_ids_new(struct broker *br)
{
    struct producer_ids *ids = mem_zalloc(1, sizeof *ids);
    ids->br = br;
    pthread_mutex_init(&ids->lock, NULL);
    list_init(&ids->waiting);
    return ids;
}

void producer_ids_free(struct producer_ids *ids)
{
    if (!ids) return;
    ASSERT(list_is_empty(&ids->waiting));
    pthread_mutex_destroy(&ids->lock);
    mem_free(ids);
}

/* -1: none left.  Under the lock. */
static int64_t next_id(struct producer_ids *ids)
{
    if (ids->present.next == ids->present.end) {
        ids->present = ids->after;
        ids->after = (struct id_block){0, 0};
    }
    return ids->present.next < ids->present.end ? ids->present.next++ : -1;
}

/* Whether the caller has to ask for a block now.  Under the lock. */
static bool needs_block(struct producer_ids *ids)
{
    if (ids->asking || ids->after.next < ids->after.end) return false;
    if (ids->present.end - ids->present.next >= PREFETCH_BELOW) return false;
    ids->asking = true;
    return true;
}

/* Under the lock, so that a request that cancels its wait afterwards is not woken. */
static void settle(struct producer_id_wait *w, int64_t id)
{
    list_remove(&w->node);
    w->id = id;
    w->settled = true;
    request_wake(w->rq);
}

static void ask(struct producer_ids *ids);

static void add_block(struct producer_ids *ids, int64_t start, int32_t count)
{
    const struct id_block block = {start, start + count};
    if (ids->present.next == ids->present.end)
        ids->present = block;
    else
        ids->after = block;
}

static void serve_waiting(struct producer_ids *ids)
{
    struct list_node *n;
    while ((n = list_first(&ids->waiting))) {
        int64_t id = next_id(ids);
        if (id < 0) return;
        settle(CONTAINER_OF(n, struct producer_id_wait, node), id);
    }
}

static void fail_waiting(struct producer_ids *ids)
{
    struct list_node *n;
    while ((n = list_first(&ids->waiting))) settle(CONTAINER_OF(n, struct producer_id_wait, node), -1);
}

/* The controller's answer; home loop. */
static void on_block(struct controller_call *call)
{
    struct producer_ids *ids = CONTAINER_OF(call, struct producer_ids, call);
    const struct allocate_producer_ids_response *r = call->response;
    const char *error = call->err ? err_name(call->err) : kerr_name(r->error_code);
    bool have = !call->err && !r->error_code && r->producer_id_len > 0 && r->producer_id_start >= 0 &&
                r->producer_id_start <= INT64_MAX - r->producer_id_len;
    if (have)
        LOG_DEBUG("producer_id_block", "first=%" PRId64 " count=%d", r->producer_id_start, r->producer_id_len);
    else
        LOG_LIMITED(LOG_LEVEL_WARN, "no_producer_id_block", "error=%s; producers that wait are told to try again",
                    error);
    pthread_mutex_lock(&ids->lock);
    ids->asking = false;
    if (have) {
        add_block(ids, r->producer_id_start, r->producer_id_len);
        serve_waiting(ids);
    } else {
        fail_waiting(ids);
    }
    bool more = have && needs_block(ids);
    pthread_mutex_unlock(&ids->lock);
    if (more) ask(ids);
}

static void ask(struct producer_ids *ids)
{
    struct broker *br = ids->br;
    ids->in = (struct allocate_producer_ids_request){.broker_id = br->id, .broker_epoch = br->epoch};
    ids->call = (struct controller_call){.api = API_ALLOCATE_PRODUCER_IDS,
                                         .version_max = INT16_MAX,
                                         .request = &ids->in,
                                         .timeout_ms = ASK_MS,
                                         .loop = broker_home(br),
                                         .done = on_block};
    to_controller_send(br->to_controller, &ids->call);
}

bool producer_ids_take(struct producer_ids *ids, struct producer_id_wait *w, struct request *rq)
{
    pthread_mutex_lock(&ids->lock);
    bool must_ask = false;
    if (!w->begun) {
        w->begun = true;
        w->rq = rq;
        w->id = list_is_empty(&ids->waiting) ? next_id(ids) : -1;
        w->settled = w->id >= 0;
        if (!w->settled) list_push_back(&ids->waiting, &w->node);
        must_ask = needs_block(ids);
    }
    bool settled = w->settled;
    pthread_mutex_unlock(&ids->lock);
    if (must_ask) ask(ids);
    return settled;
}

void producer_ids_cancel(struct producer_ids *ids, struct producer_id_wait *w)
{
    pthread_mutex_lock(&ids->lock);
    list_remove(&w->node);
    pthread_mutex_unlock(&ids->lock);
}
