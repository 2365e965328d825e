/* admin_offsets.c: see admin_offsets.h. */
#include "client/admin_offsets.h"

#include "client/by_leader.h"
#include "wire/batch.h"
#include "wire/gen/fetch.h"
#include "wire/gen/list_offsets.h"

enum {
    LIST_OFFSETS_ONE_MIN = 1, /* before, a list of segments came back */
    FETCH_BY_NAME_MAX = 12,   /* later versions know topics by id */
    FETCH_LITTLE_BYTES = 32 << 10,
    FETCH_ONE_BATCH_BYTES = 1, /* the first batch comes whole, whatever its size */
    FETCH_BYTES_MAX = 50 << 20,
    FETCH_PARTITIONS_MAX = 500 /* in one request */
};

static struct leader_item *make_items(const struct topic_partition *(*of)(const void *queries, int32_t index),
                                      const void *queries, int32_t count, struct arena *a)
{
    struct leader_item *items = arena_array(a, struct leader_item, (size_t)count);
    for (int32_t i = 0; i < count; i++)
        items[i] = (struct leader_item){.of = *of(queries, i), .index = i, .kerr = KERR_NETWORK_EXCEPTION};
    return items;
}

/* ---- offsets by time ---- */

static const struct topic_partition *offset_query_of(const void *queries, int32_t index)
{
    return &((const struct offset_query *)queries)[index].of;
}

static void offsets_request(struct list_offsets_request *req, struct leader_item **items, int32_t count,
                            const struct offset_query *queries, struct arena *a)
{
    *req = list_offsets_request_default;
    req->replica_id = -1;
    req->topics = arena_array(a, struct list_offsets_request_list_offsets_topic, (size_t)count);
    struct list_offsets_request_list_offsets_partition *partitions =
        arena_array(a, struct list_offsets_request_list_offsets_partition, (size_t)count);
    struct list_offsets_request_list_offsets_topic *t = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (!t || !str_equal(t->name, items[i]->of.topic)) {
            t = &req->topics[req->topics_count++];
            *t = list_offsets_request_list_offsets_topic_default;
            t->name = items[i]->of.topic;
            t->partitions = &partitions[i];
        }
        partitions[i] = list_offsets_request_list_offsets_partition_default;
        partitions[i].partition_index = items[i]->of.partition;
        partitions[i].timestamp = queries[items[i]->index].timestamp;
        t->partitions_count++;
    }
}

static bool ask_offsets(struct attempt *at, struct peer *p, struct leader_item **items, int32_t count, void *arg,
                        struct arena *a, struct failure *f)
{
    struct offset_query *queries = arg;
    struct list_offsets_request req;
    struct list_offsets_response res;
    offsets_request(&req, items, count, queries, a);
    int16_t version = peer_version(p, API_LIST_OFFSETS, LIST_OFFSETS_REQUEST_VERSION_MAX);
    if (version < LIST_OFFSETS_ONE_MIN) version = -1;
    if (!peer_ask(at, p, &(struct exchange){API_LIST_OFFSETS, version, &req, &res}, a, f)) return false;
    for (int32_t i = 0; i < count; i++) items[i]->kerr = KERR_UNKNOWN_SERVER_ERROR; /* not answered at all */
    for (int32_t i = 0; i < res.topics_count; i++) {
        for (int32_t j = 0; j < res.topics[i].partitions_count; j++) {
            const struct list_offsets_response_list_offsets_partition_response *r = &res.topics[i].partitions[j];
            struct leader_item *it = leader_item_find(items, count, res.topics[i].name, r->partition_index);
            if (!it) continue;
            it->kerr = r->error_code;
            it->done = !kerr_is_retriable(r->error_code); /* the leader moved: ask the new one */
            queries[it->index].offset = r->error_code ? -1 : r->offset;
        }
    }
    for (int32_t i = 0; i < count; i++) items[i]->done |= items[i]->kerr == KERR_UNKNOWN_SERVER_ERROR;
    return true;
}

bool admin_list_offsets(struct cluster *cl, struct offset_query *queries, int32_t count, struct arena *a,
                        struct failure *f)
{
    if (count == 0) return true;
    struct attempt at = attempt_begin(cl);
    struct leader_item *items = make_items(offset_query_of, queries, count, a);
    for (int32_t i = 0; i < count; i++) queries[i].offset = -1;
    if (!leaders_ask(&at, items, count, ask_offsets, queries, a, f)) return false;
    for (int32_t i = 0; i < count; i++) queries[i].kerr = items[i].kerr;
    return true;
}

/* ---- times by offset ---- */

static const struct topic_partition *record_query_of(const void *queries, int32_t index)
{
    return &((const struct record_query *)queries)[index].of;
}

enum look { LOOK_FOUND, LOOK_NOT_THERE, LOOK_CUT_SHORT, LOOK_BROKEN };

/* In one whole batch.  A control batch has nothing for consumers. */
static enum look look_in_batch(struct record_query *q, const uint8_t *data, const struct batch_info *info)
{
    if (batch_last_offset(info) < q->offset || (info->attributes & BATCH_CONTROL)) return LOOK_NOT_THERE;
    if (!batch_crc_ok(data, info)) return LOOK_BROKEN;
    struct record_iter it;
    if (record_iter_init(&it, data, (size_t)info->size, BATCH_UNPACKED_STORED_MAX)) return LOOK_BROKEN;
    struct record rec;
    enum err e;
    do {
        e = record_iter_next(&it, &rec);
    } while (!e && rec.offset < q->offset);
    record_iter_fini(&it);
    if (e == ERR_NOT_FOUND) return LOOK_NOT_THERE;
    if (e) return LOOK_BROKEN;
    q->timestamp = info->attributes & BATCH_LOG_APPEND_TIME ? info->max_timestamp : rec.timestamp;
    return LOOK_FOUND;
}

static bool has_sane_offsets(const struct batch_info *info)
{
    return info->base_offset >= 0 && info->base_offset < INT64_MAX - INT32_MAX && info->last_offset_delta >= 0;
}

/* In what a fetch brought; *next: where to read on when it is not there. */
static enum look look(struct record_query *q, struct bytes data, int64_t *next)
{
    size_t at = 0;
    while (data.size - at >= BATCH_HEADER_SIZE) {
        struct batch_info info;
        if (batch_parse_header(&info, data.data + at, INT32_MAX) || !has_sane_offsets(&info)) return LOOK_BROKEN;
        if ((size_t)info.size > data.size - at) return LOOK_CUT_SHORT;
        enum look l = look_in_batch(q, data.data + at, &info);
        if (l != LOOK_NOT_THERE) return l;
        *next = MAX(*next, batch_last_offset(&info) + 1);
        at += (size_t)info.size;
    }
    return at < data.size ? LOOK_CUT_SHORT : LOOK_NOT_THERE;
}

/* `from`: by item, where to read from. */
static void fetch_request_fill(struct fetch_request *req, struct leader_item **items, int32_t count,
                               const int64_t *from, int32_t partition_bytes, struct arena *a)
{
    *req = fetch_request_default;
    req->max_bytes = FETCH_BYTES_MAX;
    req->topics = arena_array(a, struct fetch_request_fetch_topic, (size_t)count);
    struct fetch_request_fetch_partition *partitions =
        arena_array(a, struct fetch_request_fetch_partition, (size_t)count);
    struct fetch_request_fetch_topic *t = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (!t || !str_equal(t->topic, items[i]->of.topic)) {
            t = &req->topics[req->topics_count++];
            *t = fetch_request_fetch_topic_default;
            t->topic = items[i]->of.topic;
            t->partitions = &partitions[i];
        }
        partitions[i] = fetch_request_fetch_partition_default;
        partitions[i].partition = items[i]->of.partition;
        partitions[i].fetch_offset = from[i];
        partitions[i].partition_max_bytes = partition_bytes;
        t->partitions_count++;
    }
}

static bool fetch(struct attempt *at, struct peer *p, struct leader_item **items, int32_t count, const int64_t *from,
                  int32_t partition_bytes, struct fetch_response *res, struct arena *a, struct failure *f)
{
    struct fetch_request req;
    fetch_request_fill(&req, items, count, from, partition_bytes, a);
    int16_t version = peer_version(p, API_FETCH, FETCH_BY_NAME_MAX);
    if (!peer_ask(at, p, &(struct exchange){API_FETCH, version, &req, res}, a, f)) return false;
    if (!res->error_code) return true;
    return failure_refused(f, res->error_code, STR_NULL, "%s refuses to be read from", peer_name(p));
}

/* Takes what one partition's answer says; an item that is not done afterwards, and has no code, needs another look. */
static void take_records(struct leader_item *it, struct record_query *q, const struct fetch_response_partition_data *r,
                         int64_t *next)
{
    it->kerr = r->error_code;
    it->done = r->error_code && !kerr_is_retriable(r->error_code);
    if (r->error_code) return;
    enum look l = look(q, r->records.bytes, next);
    q->found = l == LOOK_FOUND;
    if (l == LOOK_BROKEN) it->kerr = KERR_CORRUPT_MESSAGE;
    it->done = l == LOOK_FOUND || l == LOOK_BROKEN || *next >= r->high_watermark;
}

/* One partition alone: whole batches, one a request, until there is a record or the log ends. */
static bool read_on(struct attempt *at, struct peer *p, struct leader_item *it, struct record_query *q,
                    struct arena *scratch, struct failure *f)
{
    int64_t next = q->offset;
    for (int64_t from = next; !it->done && !it->kerr; from = next) {
        struct fetch_response res;
        arena_reset(scratch);
        if (!fetch(at, p, &it, 1, &from, FETCH_ONE_BATCH_BYTES, &res, scratch, f)) return false;
        if (res.responses_count != 1 || res.responses[0].partitions_count != 1)
            return failure_set(f, ERR_CORRUPT, "%s answered a fetch of one partition with another.", peer_name(p));
        take_records(it, q, &res.responses[0].partitions[0], &next);
        if (next == from) it->done = true; /* nothing there, though the log goes on */
    }
    return true;
}

/* A little of each. */
static bool read_first(struct attempt *at, struct peer *p, struct leader_item **items, int32_t count,
                       struct record_query *queries, struct arena *scratch, struct failure *f)
{
    int64_t *from = arena_array(scratch, int64_t, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        from[i] = queries[items[i]->index].offset;
        items[i]->kerr = KERR_NONE;
    }
    struct fetch_response res;
    if (!fetch(at, p, items, count, from, FETCH_LITTLE_BYTES, &res, scratch, f)) return false;
    for (int32_t i = 0; i < res.responses_count; i++) {
        for (int32_t j = 0; j < res.responses[i].partitions_count; j++) {
            const struct fetch_response_partition_data *r = &res.responses[i].partitions[j];
            struct leader_item *it = leader_item_find(items, count, res.responses[i].topic, r->partition_index);
            if (!it) continue;
            int64_t next = queries[it->index].offset;
            take_records(it, &queries[it->index], r, &next);
        }
    }
    return true;
}

/* What is read is looked at and given back at once: the records of many partitions take no more memory than those of
 * one request. */
static bool ask_some_records(struct attempt *at, struct peer *p, struct leader_item **items, int32_t count,
                             struct record_query *queries, struct failure *f)
{
    struct arena scratch;
    cluster_arena_init(&scratch);
    bool ok = read_first(at, p, items, count, queries, &scratch, f);
    for (int32_t i = 0; i < count && ok; i++)
        if (!items[i]->done && !items[i]->kerr) ok = read_on(at, p, items[i], &queries[items[i]->index], &scratch, f);
    arena_fini(&scratch);
    return ok;
}

static bool ask_records(struct attempt *at, struct peer *p, struct leader_item **items, int32_t count, void *arg,
                        struct arena *a, struct failure *f)
{
    (void)a;
    for (int32_t i = 0; i < count; i += FETCH_PARTITIONS_MAX)
        if (!ask_some_records(at, p, items + i, MIN(count - i, FETCH_PARTITIONS_MAX), arg, f)) return false;
    return true;
}

bool admin_record_times(struct cluster *cl, struct record_query *queries, int32_t count, struct arena *a,
                        struct failure *f)
{
    if (count == 0) return true;
    struct attempt at = attempt_begin(cl);
    struct leader_item *items = make_items(record_query_of, queries, count, a);
    for (int32_t i = 0; i < count; i++) {
        queries[i].found = false;
        queries[i].timestamp = -1;
    }
    if (!leaders_ask(&at, items, count, ask_records, queries, a, f)) return false;
    for (int32_t i = 0; i < count; i++) queries[i].kerr = items[i].kerr;
    return true;
}
