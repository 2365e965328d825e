/* producer.c: producers as the Java client's: idempotent ones send a batch again until it is acknowledged, in the order
 * of their sequence numbers; those with acks=1 forget what failed.
 *
 * Whoever leads knows what it may be sent again: an idempotent producer is not told that the sequence it has to send
 * next is out of order.  But by one who leads no more and does not know it, and lacks what another one has written
 * since: then the producer goes on in a new epoch, as Java's, and what it had sent may be there twice. */
#include <string.h>

#include "base/endian.h"
#include "wire/batch.h"
#include "wire/gen/init_producer_id.h"
#include "wire/gen/produce.h"
#include "wire/kerr.h"
#include "world.h"

enum {
    MAKE_US = 60 * 1000,
    BACKOFF_US = 50 * 1000,
    PRODUCE_US = 3 * 1000 * 1000,
    PRODUCE_MS = 1500,
    PADDING_MAX = 300
};

static struct world *world_of(const struct lane *l)
{
    return l->producer->client.w;
}

static const char *topic_name(const struct lane *l)
{
    return world_of(l)->topics[l->topic].name;
}

/* ---- Batches */

static void encode(struct batch *b)
{
    struct world *w = world_of(b->lane);
    const struct producer *p = b->lane->producer;
    struct batch_builder bb;
    struct writer out;
    int64_t now_ms = T0_MS + w->now_us / MS;
    writer_init(&out, w->bufs);
    batch_builder_init(&bb, w->bufs, 0, now_ms);
    for (int i = 0; i < b->count; i++) {
        uint8_t value[8 + PADDING_MAX] = {0};
        put_be64(value, b->first_id + (uint64_t)i);
        batch_builder_add(&bb, now_ms, (struct bytes){NULL, 0}, (struct bytes){value, 8 + draw(w, PADDING_MAX)}, NULL,
                          0);
    }
    bb.info.producer_id = p->idempotent ? p->producer_id : -1;
    bb.info.producer_epoch = p->idempotent ? b->lane->epoch : -1;
    bb.info.base_sequence = p->idempotent ? b->sequence : -1;
    enum err e = batch_builder_finish(&bb, &out);
    ASSERT(!e);
    b->size = out.size;
    b->bytes = mem_alloc(b->size);
    memcpy(b->bytes, out.buf->data, b->size);
    batch_builder_fini(&bb);
    writer_fini(&out);
}

static void batch_make(struct lane *l)
{
    struct batch *b = mem_zalloc(1, sizeof *b);
    b->lane = l;
    b->count = (int32_t)draw_between(world_of(l), 1, BATCH_RECORDS_MAX);
    b->first_id = l->next_id;
    b->sequence = l->next_sequence;
    l->next_id += (uint64_t)b->count;
    l->next_sequence += b->count;
    l->producer->made++;
    encode(b);
    l->batches[l->count++] = b;
}

static void batch_drop(struct batch *b)
{
    struct lane *l = b->lane;
    int at = 0;
    while (l->batches[at] != b) at++;
    l->count--;
    memmove(&l->batches[at], &l->batches[at + 1], (size_t)(l->count - at) * sizeof l->batches[0]);
    mem_free(b->bytes);
    mem_free(b);
}

/* ---- Sending */

static void lane_send(struct lane *l);

static void lane_wait(struct lane *l)
{
    l->waits = true;
    map_ask(&l->producer->client);
    world_timer(world_of(l), &l->again, draw_between(world_of(l), BACKOFF_US / 2, BACKOFF_US * 2));
}

static void on_again(struct timer *t)
{
    struct lane *l = CONTAINER_OF(t, struct lane, again);
    l->waits = false;
    lane_send(l);
}

static void acked(struct batch *b, int64_t base_offset)
{
    struct lane *l = b->lane;
    struct producer *p = l->producer;
    p->acked++;
    l->known = true;
    if (p->acks == -1) {
        world_of(l)->acked++;
        const struct acked_batch ab = {b->first_id, b->count, base_offset};
        check_acked(world_of(l), l->topic, l->partition, &ab);
    }
    batch_drop(b);
}

static bool is_retriable(enum kerr kerr)
{
    switch (kerr) {
    case KERR_NOT_LEADER_OR_FOLLOWER:
    case KERR_UNKNOWN_TOPIC_OR_PARTITION:
    case KERR_LEADER_NOT_AVAILABLE:
    case KERR_REQUEST_TIMED_OUT:
    case KERR_NOT_ENOUGH_REPLICAS:
    case KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case KERR_KAFKA_STORAGE_ERROR:
    case KERR_FENCED_LEADER_EPOCH:
    case KERR_UNKNOWN_LEADER_EPOCH: return true;
    default: return false;
    }
}

/* All that is not acknowledged is numbered anew, in a new epoch. */
static void lane_renew(struct lane *l)
{
    struct producer *p = l->producer;
    l->renews = false;
    l->epoch = ++p->producer_epoch;
    l->next_sequence = 0;
    l->renewals = mem_grow(l->renewals, &l->renewal_cap, l->renewal_count + 1, sizeof *l->renewals);
    l->renewals[l->renewal_count++] = (struct renewal){l->batches[0]->first_id, l->next_id};
    tell(world_of(l), "client %d goes on with %" PRIx64 " of %s-%d in epoch %d", p->client.index,
         l->batches[0]->first_id, topic_name(l), l->partition, l->epoch);
    for (int i = 0; i < l->count; i++) {
        struct batch *b = l->batches[i];
        b->sequence = l->next_sequence;
        l->next_sequence += b->count;
        mem_free(b->bytes);
        encode(b);
    }
}

/* Who has answered leads in the latest epoch that there has been, and did when it was asked. */
static bool by_leader(const struct batch *b, int node)
{
    int leader;
    int32_t epoch = last_leader(world_of(b->lane), b->lane->topic, b->lane->partition, &leader);
    return leader == node && epoch == b->leader_epoch;
}

static void refused(struct batch *b, enum kerr kerr, int node)
{
    struct lane *l = b->lane;
    if (kerr == KERR_OUT_OF_ORDER_SEQUENCE_NUMBER && b == l->batches[0] && !by_leader(b, node)) {
        l->renews = true;
        return;
    }
    /* One behind others that failed is out of order; the first is not, since all before it are acknowledged. */
    bool behind = kerr == KERR_OUT_OF_ORDER_SEQUENCE_NUMBER && b != l->batches[0];
    if (!behind && !is_retriable(kerr))
        wrong(world_of(l), "broker %d refuses batch %" PRIx64 " of %s-%d, sequence %d, with %d", node + 1, b->first_id,
              topic_name(l), l->partition, b->sequence, kerr);
}

static void on_produced(struct call *call, const void *response)
{
    struct batch *b = CONTAINER_OF(call, struct batch, call);
    struct lane *l = b->lane;
    struct world *w = world_of(l);
    const struct produce_response *r = response;
    l->in_flight--;
    b->sent = false;
    enum kerr kerr = r ? (enum kerr)r->responses[0].partition_responses[0].error_code : KERR_NETWORK_EXCEPTION;
    int64_t base_offset = r ? r->responses[0].partition_responses[0].base_offset : -1;
    if (kerr)
        tell(w, "client %d batch %" PRIx64 " of %s-%d: broker %d: %d", l->producer->client.index, b->first_id,
             topic_name(l), l->partition, call->peer->node + 1, kerr);
    if (kerr == KERR_NONE || kerr == KERR_DUPLICATE_SEQUENCE_NUMBER) {
        acked(b, base_offset);
    } else if (!l->producer->idempotent) {
        l->producer->left++;
        batch_drop(b);
        map_ask(&l->producer->client);
    } else {
        if (r) refused(b, kerr, call->peer->node);
        if (!l->waits) lane_wait(l);
        return;
    }
    lane_send(l);
}

static void batch_send(struct batch *b, int node)
{
    struct lane *l = b->lane;
    struct produce_request_partition_produce_data part = produce_request_partition_produce_data_default;
    part.index = l->partition;
    part.records.bytes = (struct bytes){b->bytes, b->size};
    struct produce_request_topic_produce_data topic = produce_request_topic_produce_data_default;
    topic.name = str_of(topic_name(l));
    topic.partition_data = &part;
    topic.partition_data_count = 1;
    struct produce_request rq = produce_request_default;
    rq.acks = l->producer->acks;
    rq.timeout_ms = PRODUCE_MS;
    rq.topic_data = &topic;
    rq.topic_data_count = 1;
    b->sent = true;
    int leader;
    b->leader_epoch = last_leader(world_of(l), l->topic, l->partition, &leader);
    l->in_flight++;
    b->call = (struct call){.api = API_PRODUCE, .version = 9, .done = on_produced};
    peer_send(&l->producer->client.peers[node], &b->call, &rq, PRODUCE_US);
}

/* After a failure nothing is sent before all that is under way has come back: then all of it again, in order. */
static bool must_settle(const struct lane *l)
{
    for (int i = 0; i < l->in_flight; i++)
        if (!l->batches[i]->sent) return true;
    return l->renews;
}

/* Brokers let a producer begin anywhere that they do not know, as Apache Kafka's do: of several batches of a new one,
 * the first might be refused by a leader that is about to be told so, and the second not.  Until that is mended the
 * first goes alone. */
static int in_flight_max(const struct lane *l)
{
    return l->known || !l->producer->idempotent ? l->producer->in_flight_max : 1;
}

static void lane_send(struct lane *l)
{
    const struct producer *p = l->producer;
    if (l->waits || (p->idempotent && p->producer_id < 0)) return;
    if (l->renews && l->in_flight == 0) lane_renew(l);
    while (l->in_flight < MIN(in_flight_max(l), l->count) && !must_settle(l)) {
        int node = p->client.map.places[l->topic][l->partition].node;
        if (node < 0) {
            if (l->in_flight == 0) lane_wait(l);
            return;
        }
        batch_send(l->batches[l->in_flight], node);
    }
}

void producer_map_came(struct producer *p)
{
    for (int i = 0; i < p->lane_count; i++) lane_send(&p->lanes[i]);
}

/* ---- The producer */

static void ask_id(struct producer *p);

static void on_id(struct call *call, const void *response)
{
    struct producer *p = CONTAINER_OF(call, struct producer, init);
    const struct init_producer_id_response *r = response;
    if (!r || r->error_code) {
        world_timer(p->client.w, &p->again, BACKOFF_US);
        return;
    }
    p->producer_id = r->producer_id;
    p->producer_epoch = r->producer_epoch;
    world_timer(p->client.w, &p->make, 0);
}

static void on_ask_id(struct timer *t)
{
    ask_id(CONTAINER_OF(t, struct producer, again));
}

static void ask_id(struct producer *p)
{
    struct init_producer_id_request rq = init_producer_id_request_default;
    rq.transactional_id = STR_NULL;
    p->init = (struct call){.api = API_INIT_PRODUCER_ID, .version = 4, .done = on_id};
    peer_send(&p->client.peers[client_some_node(&p->client)], &p->init, &rq, PRODUCE_US);
}

static void on_make(struct timer *t)
{
    struct producer *p = CONTAINER_OF(t, struct producer, make);
    struct world *w = p->client.w;
    if (w->calm) return;
    struct lane *l = &p->lanes[draw(w, (uint64_t)p->lane_count)];
    if (l->count < BATCHES_MAX) batch_make(l);
    lane_send(l);
    world_timer(w, t, draw_between(w, 1, 2 * MAKE_US));
}

bool producer_is_done(const struct producer *p)
{
    for (int i = 0; i < p->lane_count; i++)
        if (p->lanes[i].count) return false;
    return true;
}

void producer_start(struct world *w, struct producer *p, int client, int topic, bool all)
{
    client_init(w, &p->client, client);
    p->acks = all ? -1 : 1;
    p->idempotent = all;
    p->producer_id = -1;
    p->in_flight_max = (int)draw_between(w, 1, 5);
    p->make.fire = on_make;
    p->again.fire = on_ask_id;
    p->lane_count = w->topics[topic].partitions;
    for (int i = 0; i < p->lane_count; i++) {
        struct lane *l = &p->lanes[i];
        *l = (struct lane){.producer = p, .topic = topic, .partition = i};
        l->next_id = ((uint64_t)(client + 1) << 32) | ((uint64_t)(i + 1) << 24) | 1;
        l->again.fire = on_again;
    }
    if (all)
        world_timer(w, &p->again, 0);
    else
        world_timer(w, &p->make, 0);
}
