/* InitProducerId (key 22, KIP-98, KIP-360): an id and epoch for an idempotent producer. */
#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "broker/producer_ids.h"
#include "wire/gen/init_producer_id.h"

enum { NO_PRODUCER_ID = -1, NO_PRODUCER_EPOCH = -1 };

static enum step fail(struct init_producer_id_response *out, enum kerr kerr)
{
    out->error_code = (int16_t)kerr;
    out->producer_id = NO_PRODUCER_ID;
    out->producer_epoch = NO_PRODUCER_EPOCH;
    return DONE;
}

/* What is wrong with the request itself. */
static enum kerr check(const struct init_producer_id_request *in)
{
    if ((in->producer_id == NO_PRODUCER_ID) != (in->producer_epoch == NO_PRODUCER_EPOCH)) return KERR_INVALID_REQUEST;
    if (str_is_null(in->transactional_id)) return KERR_NONE;
    if (in->transactional_id.size == 0) return KERR_INVALID_REQUEST;
    /* There is no transaction coordinator here.  COORDINATOR_NOT_AVAILABLE would have clients try for ever; this code
     * ends the producer in the Java client as in librdkafka, and says that transactions are not for it here. */
    return KERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
}

/* A producer without transactions that gives its id and epoch wants to go on with a fresh sequence (KIP-360): like
 * Kafka, we give it a new id with epoch 0, whatever it had. */
enum step init_producer_id_handle(struct request *rq)
{
    struct init_producer_id_response *out = rq->out;
    enum kerr kerr = check(rq->in);
    if (kerr) return fail(out, kerr);
    struct producer_id_wait *w = REQUEST_OP(rq, struct producer_id_wait);
    if (!producer_ids_take(rq->broker->producer_ids, w, rq)) {
        if (!rq->cancelled) return WAIT; /* woken with an id, or when no block is to be had */
        producer_ids_cancel(rq->broker->producer_ids, w);
        return fail(out, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    }
    /* What Kafka's broker says while it waits for a block; clients try again. */
    if (w->id < 0) return fail(out, KERR_COORDINATOR_LOAD_IN_PROGRESS);
    out->producer_id = w->id;
    out->producer_epoch = 0;
    return DONE;
}
