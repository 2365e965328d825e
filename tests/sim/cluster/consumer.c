/* consumer.c: reads a topic from its beginning, and looks whether what it is given is what it may be given. */
#include <string.h>

#include "base/endian.h"
#include "wire/batch.h"
#include "wire/gen/fetch.h"
#include "wire/kerr.h"
#include "world.h"

enum { FETCH_US = 3 * 1000 * 1000, POLL_US = 20 * 1000, WAIT_MS = 200 };

uint64_t record_id(struct bytes value)
{
    return value.size >= 8 ? get_be64(value.data) : 0;
}

/* The records from `position` on; false: they are no such. */
static bool take_batch(struct consumer *c, int part, const uint8_t *data, size_t size)
{
    struct world *w = c->client.w;
    int64_t *position = &c->parts[part].position;
    struct record_iter it;
    if (record_iter_init(&it, data, size, SIZE_MAX)) return false;
    if (it.info.base_offset > *position)
        wrong(w, "consumer %d of %s-%d is at %" PRId64 " and is given %" PRId64 ": a gap", c->client.index,
              w->topics[c->topic].name, part, *position, it.info.base_offset);
    struct record rec;
    enum err e;
    while (!(e = record_iter_next(&it, &rec))) {
        if (rec.offset < *position) continue;
        if (rec.offset != *position) break;
        char who[32];
        snprintf(who, sizeof who, "consumer %d", c->client.index);
        check_seen(w, c->topic, part, rec.offset, record_id(rec.value), who);
        (*position)++;
    }
    record_iter_fini(&it);
    return e == ERR_NOT_FOUND;
}

static void take_records(struct consumer *c, int part, struct bytes b)
{
    struct world *w = c->client.w;
    for (size_t at = 0; at + BATCH_HEADER_SIZE <= b.size && !w->failed;) {
        struct batch_info info;
        if (batch_parse_header(&info, b.data + at, INT32_MAX) ||
            !take_batch(c, part, b.data + at, MIN((size_t)info.size, b.size - at))) {
            if (at + (size_t)info.size <= b.size)
                wrong(w, "consumer %d is given a batch of %s-%d that is none", c->client.index,
                      w->topics[c->topic].name, part);
            return;
        }
        at += (size_t)info.size;
    }
}

static void on_fetched(struct call *call, const void *response)
{
    struct consumer *c = NULL;
    int part = 0;
    struct world *w = call->peer->w;
    for (int i = 0; i < w->consumer_count && !c; i++)
        for (int p = 0; p < PARTITIONS_MAX && !c; p++)
            if (&w->consumers[i].parts[p].call == call) {
                c = &w->consumers[i];
                part = p;
            }
    c->parts[part].under_way = false;
    const struct fetch_response *r = response;
    if (!r || r->error_code || r->responses_count != 1 || r->responses[0].partitions_count != 1) {
        map_ask(&c->client);
        return;
    }
    const struct fetch_response_partition_data *d = &r->responses[0].partitions[0];
    switch (d->error_code) {
    case KERR_NONE:
        take_records(c, part, d->records.bytes);
        if (d->records.bytes.size) world_timer(w, &c->poll, 0);
        return;
    case KERR_OFFSET_OUT_OF_RANGE:
        wrong(w, "consumer %d of %s-%d is at %" PRId64 ", which broker %d says is out of range: a rollback",
              c->client.index, w->topics[c->topic].name, part, c->parts[part].position, call->peer->node + 1);
        return;
    default: map_ask(&c->client);
    }
}

static void fetch(struct consumer *c, int part)
{
    struct world *w = c->client.w;
    const struct place *place = &c->client.map.places[c->topic][part];
    if (place->node < 0) {
        map_ask(&c->client);
        return;
    }
    struct fetch_request_fetch_partition p = fetch_request_fetch_partition_default;
    p.partition = part;
    p.current_leader_epoch = place->epoch;
    p.fetch_offset = c->parts[part].position;
    p.partition_max_bytes = 1 << 20;
    struct fetch_request_fetch_topic t = fetch_request_fetch_topic_default;
    t.topic = str_of(w->topics[c->topic].name);
    t.partitions = &p;
    t.partitions_count = 1;
    struct fetch_request rq = fetch_request_default;
    rq.max_wait_ms = WAIT_MS;
    rq.min_bytes = 1;
    rq.topics = &t;
    rq.topics_count = 1;
    c->parts[part].under_way = true;
    c->parts[part].call = (struct call){.api = API_FETCH, .version = 12, .done = on_fetched};
    peer_send(&c->client.peers[place->node], &c->parts[part].call, &rq, FETCH_US);
}

static void on_poll(struct timer *t)
{
    struct consumer *c = CONTAINER_OF(t, struct consumer, poll);
    struct world *w = c->client.w;
    for (int p = 0; p < w->topics[c->topic].partitions; p++)
        if (!c->parts[p].under_way) fetch(c, p);
    world_timer(w, t, POLL_US + draw_between(w, 0, POLL_US));
}

void consumer_start(struct world *w, struct consumer *c, int client, int topic)
{
    client_init(w, &c->client, client);
    c->topic = topic;
    c->poll.fire = on_poll;
    world_timer(w, &c->poll, 0);
}
