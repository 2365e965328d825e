/* producer_ids.h: ids for idempotent producers (KIP-98), handed out of blocks that the controller allocates.
 * Thread: any loop; the next block is asked for on the home loop before the present one is used up. */
#ifndef BROKER_PRODUCER_IDS_H
#define BROKER_PRODUCER_IDS_H

#include "broker/broker.h"

struct producer_ids;

struct producer_ids *producer_ids_new(struct broker *br);
void producer_ids_free(struct producer_ids *ids);

/* A new id, or -1: none is left just now; the request is woken when there is one or when it is known that there will be
 * none (*failed is set then). */
int64_t producer_ids_next(struct producer_ids *ids, struct request *rq, bool *failed);
/* The request gives up waiting.  On its loop. */
void producer_ids_cancel(struct producer_ids *ids, struct request *rq);

#endif
