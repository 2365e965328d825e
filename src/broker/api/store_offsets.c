/* store_offsets.c: one node a partition; its data is the offset in digits.
 *
 * Calls of one session are executed in order, so the node's parents are asked for, then the node, without waiting in
 * between.  The request waits for all of its calls, also when its peer has gone: they use its memory. */
#include "broker/api/store_offsets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "broker/broker.h"
#include "coord/coord.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/offset_fetch.h"

/* One partition's way through the store. */
struct stored {
    struct request *rq;
    struct str path, parent;
    struct bytes data;
    int16_t *error_code;
    int64_t *offset; /* fetch */
};

struct store_op {
    bool begun;
    int32_t out; /* calls that are not answered */
};

static void stored_init(struct stored *s, struct request *rq, struct str group, struct str topic, int32_t partition,
                        int16_t *error_code)
{
    s->rq = rq;
    s->parent = arena_printf(&rq->arena, "/consumers/%.*s/offsets/%.*s", STR_ARG(group), STR_ARG(topic));
    s->path = arena_printf(&rq->arena, "%.*s/%d", STR_ARG(s->parent), partition);
    s->error_code = error_code;
}

/* A path ends at a zero: the group would be another's. */
static bool has_path(struct str group)
{
    return memchr(group.data, '\0', group.size) == NULL;
}

static struct coord_to to(struct stored *s, coord_done_fn done)
{
    struct store_op *op = s->rq->op;
    op->out++;
    return (struct coord_to){.loop = s->rq->loop, .done = done, .arg = s};
}

static void is_back(struct stored *s, enum kerr kerr)
{
    struct store_op *op = s->rq->op;
    *s->error_code = (int16_t)kerr;
    if (--op->out == 0) request_wake(s->rq);
}

/* Kafka goes on by itself when its session has ended; our client asks again. */
static enum kerr kerr_of_store(enum err e)
{
    if (e == ERR_EXPIRED || e == ERR_UNSURE) return KERR_COORDINATOR_NOT_AVAILABLE;
    return e ? KERR_UNKNOWN_SERVER_ERROR : KERR_NONE;
}

/* Gone while the broker stops. */
static struct coord *store(const struct request *rq)
{
    return rq->broker->coord;
}

/* ---- Commit */

static void on_created(void *arg, const struct coord_result *r)
{
    is_back(arg, kerr_of_store(r->err));
}

/* Somebody else has made it since we looked. */
static void on_create_tried(void *arg, const struct coord_result *r)
{
    struct stored *s = arg;
    struct coord *c = store(s->rq);
    bool again = r->err == ERR_EXISTS && c;
    if (again) coord_set(c, s->path, s->data, COORD_ANY_VERSION, to(s, on_created));
    is_back(s, again ? KERR_NONE : kerr_of_store(r->err));
}

static void on_set(void *arg, const struct coord_result *r)
{
    struct stored *s = arg;
    struct coord *c = store(s->rq);
    bool is_new = r->err == ERR_NOT_FOUND && c;
    if (is_new) {
        coord_make_paths(c, &s->parent, 1, (struct coord_to){.loop = s->rq->loop});
        coord_create(c, s->path, s->data, 0, to(s, on_create_tried));
    }
    is_back(s, is_new ? KERR_NONE : kerr_of_store(r->err));
}

static void commit_partition(struct request *rq, const struct offset_commit_request_offset_commit_request_topic *topic,
                             int32_t i, int16_t *error_code)
{
    const struct offset_commit_request *in = rq->in;
    const struct offset_commit_request_offset_commit_request_partition *p = &topic->partitions[i];
    int64_t most = config_i64(broker_config(rq->broker, rq->loop), CFG_OFFSET_METADATA_MAX_BYTES);
    if (*error_code) return;
    if ((int64_t)str_utf16_units(p->committed_metadata) > most) {
        *error_code = KERR_OFFSET_METADATA_TOO_LARGE;
        return;
    }
    if (!has_path(in->group_id) || !store(rq)) {
        *error_code = KERR_UNKNOWN_SERVER_ERROR;
        return;
    }
    struct stored *s = arena_alloc(&rq->arena, sizeof *s);
    stored_init(s, rq, in->group_id, topic->name, p->partition_index, error_code);
    struct str digits = arena_printf(&rq->arena, "%lld", (long long)p->committed_offset);
    s->data = (struct bytes){(const uint8_t *)digits.data, digits.size};
    coord_set(store(rq), s->path, s->data, COORD_ANY_VERSION, to(s, on_set));
}

enum step store_offsets_commit(struct request *rq)
{
    const struct offset_commit_request *in = rq->in;
    struct offset_commit_response *out = rq->out;
    struct store_op *op = REQUEST_OP(rq, struct store_op);
    if (!op->begun) {
        op->begun = true;
        for (int32_t i = 0; i < in->topics_count; i++)
            for (int32_t k = 0; k < in->topics[i].partitions_count; k++)
                commit_partition(rq, &in->topics[i], k, &out->topics[i].partitions[k].error_code);
    }
    return op->out > 0 ? WAIT : DONE;
}

/* ---- Fetch */

/* A whole number in decimal digits, as Java's Long.parseLong() takes it. */
static bool parse_offset(struct request *rq, struct bytes data, int64_t *out)
{
    const struct str text = arena_str(&rq->arena, (struct str){(const char *)data.data, data.size});
    if (!text.size || text.data[0] == ' ' || memchr(text.data, 0, text.size)) return false;
    char *end;
    errno = 0;
    long long value = strtoll(text.data, &end, 10);
    if (errno || *end || end == text.data) return false;
    *out = value;
    return true;
}

static void on_got(void *arg, const struct coord_result *r)
{
    struct stored *s = arg;
    if (r->err == ERR_NOT_FOUND || (!r->err && !r->data.data))
        is_back(s, KERR_UNKNOWN_TOPIC_OR_PARTITION); /* what Kafka answers for an offset that is not there */
    else if (r->err)
        is_back(s, kerr_of_store(r->err));
    else
        is_back(s, parse_offset(s->rq, r->data, s->offset) ? KERR_NONE : KERR_UNKNOWN_SERVER_ERROR);
}

static void fetch_topic(struct request *rq, const struct offset_fetch_request_offset_fetch_request_topic *asked,
                        struct offset_fetch_response_offset_fetch_response_topic *t)
{
    const struct offset_fetch_request *in = rq->in;
    const struct topic_view *view = metadata_topic(rq->broker->metadata, asked->name);
    *t = offset_fetch_response_offset_fetch_response_topic_default;
    t->name = asked->name;
    t->partitions_count = asked->partition_indexes_count;
    t->partitions = arena_array(&rq->arena, struct offset_fetch_response_offset_fetch_response_partition,
                                (size_t)t->partitions_count);
    for (int32_t k = 0; k < t->partitions_count; k++) {
        struct offset_fetch_response_offset_fetch_response_partition *p = &t->partitions[k];
        *p = offset_fetch_response_offset_fetch_response_partition_default;
        p->partition_index = asked->partition_indexes[k];
        p->committed_offset = -1;
        p->metadata = STR_EMPTY;
        if (!topic_has_partition(view, p->partition_index)) {
            p->error_code = KERR_UNKNOWN_TOPIC_OR_PARTITION;
            continue;
        }
        if (!has_path(in->group_id) || !store(rq)) {
            p->error_code = KERR_UNKNOWN_SERVER_ERROR;
            continue;
        }
        struct stored *s = arena_alloc(&rq->arena, sizeof *s);
        stored_init(s, rq, in->group_id, t->name, p->partition_index, &p->error_code);
        s->offset = &p->committed_offset;
        coord_get(store(rq), s->path, COORD_NO_WATCH, to(s, on_got));
    }
}

enum step store_offsets_fetch(struct request *rq)
{
    const struct offset_fetch_request *in = rq->in;
    struct offset_fetch_response *out = rq->out;
    struct store_op *op = REQUEST_OP(rq, struct store_op);
    if (!op->begun) {
        op->begun = true;
        out->topics = arena_array(&rq->arena, struct offset_fetch_response_offset_fetch_response_topic,
                                  (size_t)MAX(in->topics_count, 0));
        out->topics_count = MAX(in->topics_count, 0);
        for (int32_t i = 0; i < out->topics_count; i++) fetch_topic(rq, &in->topics[i], &out->topics[i]);
    }
    return op->out > 0 ? WAIT : DONE;
}
