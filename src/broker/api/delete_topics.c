/* DeleteTopics (key 20, KIP-4, KIP-516): by name or by id. */
#include "broker/api/handlers.h"
#include "broker/api/named.h"
#include "broker/broker.h"
#include "controller/controller.h"
#include "wire/gen/delete_topics.h"

typedef struct delete_topics_response_deletable_topic_result result_out;

struct delete_topics {
    bool sent, done;
    result_out **answers; /* of those that went to the controller */
    size_t count;
};

/* What is to be deleted: version 6 has names and ids in one list, those before it a list of names. */
static struct controller_topic_ref *topic_refs(struct request *rq, size_t *count)
{
    const struct delete_topics_request *in = rq->in;
    size_t states = (size_t)MAX(in->topics_count, 0), names = (size_t)MAX(in->topic_names_count, 0);
    struct controller_topic_ref *refs = arena_array(&rq->arena, struct controller_topic_ref, states + names);
    for (size_t i = 0; i < states; i++)
        refs[i] = (struct controller_topic_ref){in->topics[i].name, in->topics[i].topic_id};
    for (size_t i = 0; i < names; i++) refs[states + i] = (struct controller_topic_ref){.name = in->topic_names[i]};
    *count = states + names;
    return refs;
}

static bool by_id(const struct controller_topic_ref *ref)
{
    return !uuid_is_zero(ref->topic_id);
}

static void answer_all(result_out *out, size_t count, enum kerr kerr, struct str message)
{
    for (size_t i = 0; i < count; i++) {
        out[i].error_code = (int16_t)kerr;
        out[i].error_message = message;
    }
}

/* Whether the whole request is refused. */
static bool refused(struct request *rq, const struct controller_topic_ref *refs, size_t count, result_out *out)
{
    if (!controller_is_active(rq->broker->controller)) {
        answer_all(out, count, KERR_NOT_CONTROLLER, STR_NULL);
        return true;
    }
    if (!config_bool(broker_config(rq->broker, rq->loop), CFG_DELETE_TOPIC_ENABLE)) {
        /* Clients before KIP-322 do not know the code. */
        answer_all(out, count, rq->version < 3 ? KERR_INVALID_REQUEST : KERR_TOPIC_DELETION_DISABLED,
                   STR("Topic deletion is disabled."));
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (!by_id(&refs[i]) || str_is_null(refs[i].name)) continue;
        answer_all(out, count, KERR_INVALID_REQUEST, STR("Topic name and topic ID can not both be specified."));
        return true;
    }
    return false;
}

/* Finds what is named twice, be it once by name and once by id. */
static struct named *find_repeats(struct request *rq, const struct controller_topic_ref *refs, size_t count)
{
    struct named *names = arena_array(&rq->arena, struct named, count);
    for (size_t i = 0; i < count; i++) {
        names[i].topic = refs[i].name;
        if (!by_id(&refs[i])) continue;
        const struct topic_view *t = metadata_topic_by_id(rq->broker->metadata, refs[i].topic_id);
        if (t) {
            names[i].topic = t->name;
        } else {
            names[i].topic = (struct str){(const char *)refs[i].topic_id.bytes, sizeof refs[i].topic_id.bytes};
            names[i].partition = -1; /* no topic's name */
        }
    }
    named_find_repeats(names, count, &rq->arena);
    return names;
}

/* The controller's answer; the request's loop. */
static void on_deleted(void *arg, const struct controller_results *r)
{
    struct request *rq = arg;
    struct delete_topics *dt = rq->op;
    ASSERT(r->count == dt->count);
    for (size_t i = 0; i < r->count; i++) {
        result_out *out = dt->answers[i];
        if (str_is_null(out->name)) out->name = arena_str(&rq->arena, r->results[i].name);
        out->error_code = (int16_t)r->results[i].kerr;
        out->error_message = arena_str(&rq->arena, r->results[i].message);
    }
    dt->done = true;
    request_wake(rq);
}

static void delete_all(struct request *rq, struct delete_topics *dt)
{
    const struct delete_topics_request *in = rq->in;
    struct delete_topics_response *out = rq->out;
    size_t count;
    struct controller_topic_ref *refs = topic_refs(rq, &count);
    out->responses = arena_array(&rq->arena, result_out, count);
    out->responses_count = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        out->responses[i] = delete_topics_response_deletable_topic_result_default;
        out->responses[i].name = refs[i].name;
        out->responses[i].topic_id = refs[i].topic_id;
    }
    dt->done = refused(rq, refs, count, out->responses);
    if (dt->done) return;
    const struct named *names = find_repeats(rq, refs, count);
    struct controller_topic_ref *wanted = arena_array(&rq->arena, struct controller_topic_ref, count);
    dt->answers = arena_array(&rq->arena, result_out *, count);
    for (size_t i = 0; i < count; i++) {
        if (names[i].repeated) {
            answer_all(&out->responses[i], 1, KERR_INVALID_REQUEST,
                       by_id(&refs[i]) ? STR("Duplicate topic id.") : STR("Duplicate topic name."));
            continue;
        }
        wanted[dt->count] = refs[i];
        dt->answers[dt->count++] = &out->responses[i];
    }
    dt->done = dt->count == 0;
    if (!dt->done)
        controller_delete_topics(rq->broker->controller, wanted, dt->count, in->timeout_ms,
                                 (struct controller_to){rq->loop, on_deleted, rq});
}

enum step delete_topics_handle(struct request *rq)
{
    struct delete_topics *dt = REQUEST_OP(rq, struct delete_topics);
    if (!dt->sent) {
        dt->sent = true;
        delete_all(rq, dt);
    }
    return dt->done ? DONE : WAIT; /* also when cancelled: the controller answers by its own deadline */
}
