/* host.c: the shard's host: keeps records in a log that may lose its end, tells outcomes of writes, gives the partition
 * up and gets it back as another broker would, or dies. */
#include <string.h>

#include "base/endian.h"
#include "base/mem.h"
#include "wire/gen/group_metadata_key.h"
#include "world.h"

enum { DOWN_MS_MAX = 2500, LOAD_MS_MAX = 800, RETELL_MS = 300 };

int64_t host_mono_ms(const struct world *w)
{
    return w->host.mono_base_ms + w->now_ms;
}

void host_tick(struct world *w)
{
    if (w->host.state == HOST_UP) group_shard_tick(w->host.shard, host_mono_ms(w), wall_ms(w));
}

/* ---- The log */

static void log_append(struct world *w, const struct group_record *r, uint32_t batch)
{
    struct host *h = &w->host;
    uint8_t *copy = mem_alloc(r->key.size + r->value.size + 1);
    memcpy(copy, r->key.data, r->key.size);
    if (r->value.data) memcpy(copy + r->key.size, r->value.data, r->value.size);
    h->log = mem_grow(h->log, &h->log_cap, h->log_count + 1, sizeof *h->log);
    h->log[h->log_count] = (struct log_record){
        .key = {copy, r->key.size},
        .value = {r->value.data ? copy + r->key.size : NULL, r->value.size},
        .key_hash = hash_of(copy, r->key.size),
        .offset = h->log_count ? h->log[h->log_count - 1].offset + 1 : 0,
        .timestamp_ms = wall_ms(w),
        .batch = batch,
    };
    h->log_count++;
}

static void log_drop(struct log_record *r)
{
    mem_free((void *)(uintptr_t)r->key.data);
}

/* The end that was not replicated is lost, from some batch on. */
static void log_lose_end(struct world *w)
{
    struct host *h = &w->host;
    size_t end = h->safe + (size_t)draw(w, h->log_count - h->safe + 1);
    while (end > h->safe && end < h->log_count && h->log[end].batch == h->log[end - 1].batch) end++;
    if (end < h->log_count) say(w, "host: %zu records are lost", h->log_count - end);
    while (h->log_count > end) log_drop(&h->log[--h->log_count]);
    h->safe = h->log_count; /* who leads now has told what there is */
}

/* Compaction, up to somewhere: of each key only the last record before that place stays; tombstones go in their time.
 */
static void log_clean(struct world *w)
{
    struct host *h = &w->host;
    size_t end = (size_t)draw(w, h->log_count + 1), kept = 0;
    bool tombstones_go = one_in(w, 2);
    for (size_t i = 0; i < h->log_count; i++) {
        bool gone = i < end && tombstones_go && !h->log[i].value.data;
        for (size_t k = i + 1; k < end && !gone; k++) gone = h->log[k].key_hash == h->log[i].key_hash;
        if (gone)
            log_drop(&h->log[i]);
        else
            h->log[kept++] = h->log[i];
    }
    say(w, "host: the log is cleaned, %zu of %zu records stay", kept, h->log_count);
    h->log_count = h->safe = kept;
}

/* ---- Writes */

/* Errors that a produce may end with; for some the records are in the log all the same. */
static enum kerr write_outcome(struct world *w, bool *in_log)
{
    static const struct {
        enum kerr kerr;
        bool may_be_there;
    } failures[] = {
        {KERR_REQUEST_TIMED_OUT, true},    {KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, true},
        {KERR_NOT_ENOUGH_REPLICAS, false}, {KERR_NOT_LEADER_OR_FOLLOWER, false},
        {KERR_KAFKA_STORAGE_ERROR, false}, {KERR_UNKNOWN_TOPIC_OR_PARTITION, false},
        {KERR_MESSAGE_TOO_LARGE, false},   {KERR_RECORD_LIST_TOO_LARGE, false},
        {KERR_UNKNOWN_SERVER_ERROR, true}, {KERR_INVALID_FETCH_SIZE, false},
    };
    *in_log = true;
    if (w->calm || !w->config.write_fails_one_in || !one_in(w, (uint64_t)w->config.write_fails_one_in))
        return KERR_NONE;
    size_t i = (size_t)draw(w, ARRAY_COUNT(failures));
    *in_log = failures[i].may_be_there && one_in(w, 2);
    return failures[i].kerr;
}

static void tell_tombstones(struct world *w, const struct group_write *gw)
{
    for (size_t i = 0; i < gw->count; i++) {
        if (gw->records[i].value.data) continue;
        struct group_metadata_key key;
        struct reader r = reader_of(gw->records[i].key.data, gw->records[i].key.size);
        struct arena none;
        arena_init(&none, SIZE_MAX);
        if (group_metadata_key_decode_prefixed(&key, &r, &none) == OK)
            for (int g = 0; g < w->config.groups; g++)
                if (str_equal(key.group, group_name(g))) check_group_ended(w, g);
        arena_fini(&none);
    }
}

static void host_write(void *arg, struct group_write *gw)
{
    struct world *w = arg;
    struct host *h = &w->host;
    bool in_log;
    enum kerr kerr = write_outcome(w, &in_log);
    if (gw->count == 0) wrong(w, "an empty write");
    if (h->state != HOST_UP) wrong(w, "a write of a shard that is closed or replays");
    tell_tombstones(w, gw);
    h->batch++;
    if (in_log)
        for (size_t i = 0; i < gw->count; i++) log_append(w, &gw->records[i], h->batch);
    int64_t due_ms = w->now_ms + 1 + (int64_t)draw(w, w->calm ? 5 : (uint64_t)w->config.write_ms);
    if (!w->calm && w->config.slow_one_in && one_in(w, (uint64_t)w->config.slow_one_in))
        due_ms += (int64_t)draw(w, 3000);
    if (h->write_count) due_ms = MAX(due_ms, h->writes[h->write_count - 1].due_ms);
    h->writes = mem_grow(h->writes, &h->write_cap, h->write_count + 1, sizeof *h->writes);
    h->writes[h->write_count++] = (struct host_write){.w = gw, .end = h->log_count, .kerr = kerr, .due_ms = due_ms};
    say(w, "host: %zu records to write, %s at %" PRId64 "%s", gw->count, kerr_name(kerr), due_ms,
        kerr && in_log ? ", in the log all the same" : "");
    world_event(w, (struct event){.kind = EVENT_WRITTEN, .at_ms = due_ms, .mark = h->life});
}

/* The first write's outcome is told. */
void host_written(struct world *w)
{
    struct host *h = &w->host;
    struct host_write first = h->writes[0];
    h->write_count--;
    memmove(h->writes, h->writes + 1, h->write_count * sizeof *h->writes);
    if (!first.kerr) h->safe = MAX(h->safe, first.end);
    group_shard_written(h->shard, first.w, first.kerr);
}

/* ---- Coming and going */

static void host_answer(void *arg, struct group_call *call)
{
    request_answered(arg, CONTAINER_OF(call, struct request, call));
}

static struct uuid host_member_id(void *arg)
{
    struct uuid id;
    for (size_t i = 0; i < sizeof id.bytes; i += 8) put_be64(id.bytes + i, draw(arg, UINT64_MAX));
    return id;
}

static void shard_open(struct world *w)
{
    struct group_shard_env env = {.arg = w, .answer = host_answer, .write = host_write, .member_id = host_member_id};
    w->host.shard = group_shard_new(7, &env, &w->config.opt);
}

static void shard_replay(struct world *w, size_t count)
{
    struct host *h = &w->host;
    for (size_t i = 0; i < count; i++) {
        const struct log_record *r = &h->log[i];
        struct group_replay at = {.offset = r->offset, .timestamp_ms = r->timestamp_ms, .producer_id = -1};
        enum err e = group_shard_replay(h->shard, &at, r->key, r->value);
        if (e) wrong(w, "the shard cannot read what it wrote at offset %" PRId64 ": %s", r->offset, err_name(e));
    }
}

static void shard_close(struct world *w, enum kerr kerr)
{
    struct host *h = &w->host;
    group_shard_close(h->shard, kerr);
    size_t told = h->write_count && one_in(w, 2) ? (size_t)draw(w, h->write_count + 1) : 0;
    while (h->write_count > 0) {
        if (told > 0)
            told--;
        else
            h->writes[0].kerr = KERR_NOT_LEADER_OR_FOLLOWER;
        host_written(w);
    }
    group_shard_free(h->shard);
    h->shard = NULL;
}

static void host_load(struct world *w)
{
    struct host *h = &w->host;
    if (!w->calm && one_in(w, 8)) { /* it moves on before it is loaded */
        say(w, "host: the partition moves on while it is loaded");
        shard_open(w);
        shard_replay(w, (size_t)draw(w, h->log_count + 1));
        shard_close(w, KERR_NOT_COORDINATOR);
        world_event(w, (struct event){.kind = EVENT_HOST, .at_ms = w->now_ms + 1 + (int64_t)draw(w, LOAD_MS_MAX)});
        return;
    }
    if (one_in(w, 2)) log_clean(w);
    shard_open(w);
    shard_replay(w, h->log_count);
    h->mono_base_ms = (int64_t)draw(w, 1000 * 1000);
    h->state = HOST_UP;
    check_new_life(w);
    group_shard_loaded(h->shard, host_mono_ms(w), wall_ms(w));
    say(w, "host: loaded %zu records, %zu groups", h->log_count, group_shard_count(h->shard));
}

void host_next_state(struct world *w)
{
    if (w->host.state == HOST_DOWN) {
        w->host.state = HOST_LOADING;
        world_event(w, (struct event){.kind = EVENT_HOST, .at_ms = w->now_ms + (int64_t)draw(w, LOAD_MS_MAX)});
    } else {
        ASSERT(w->host.state == HOST_LOADING);
        host_load(w);
    }
}

void host_start(struct world *w)
{
    w->host.state = HOST_LOADING;
    w->host.life = 1;
    host_load(w);
    while (w->host.state != HOST_UP) world_turn(w, INT64_MAX);
}

void host_move(struct world *w, bool dies)
{
    struct host *h = &w->host;
    if (h->state != HOST_UP) return;
    say(w, "host: %s, %zu writes on their way", dies ? "dies" : "gives the partition up", h->write_count);
    w->moves++;
    h->mute = dies;
    h->state = HOST_DOWN;
    h->life++;
    shard_close(w, KERR_NOT_COORDINATOR);
    h->mute = false;
    for (size_t i = 0; i < w->request_count && !dies; i++)
        if (w->requests[i]->state == REQUEST_GIVEN)
            wrong(w, "a %s is left without an answer by a shard that is closed", api_name(w->requests[i]->call.api));
    log_lose_end(w);
    for (int i = 0; i < w->config.clients && dies; i++)
        client_set_timer(w, &w->clients[i], TIMER_DISCONNECT, 1 + (int64_t)draw(w, RETELL_MS));
    world_event(w, (struct event){.kind = EVENT_HOST, .at_ms = w->now_ms + (int64_t)draw(w, DOWN_MS_MAX)});
}

void host_stop(struct world *w)
{
    struct host *h = &w->host;
    h->mute = true;
    if (h->state == HOST_UP) {
        h->state = HOST_DOWN;
        shard_close(w, KERR_NOT_COORDINATOR);
    }
    while (h->log_count) log_drop(&h->log[--h->log_count]);
    mem_free(h->log);
    mem_free(h->writes);
}
