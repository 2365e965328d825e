/* producer_ids.h: ids for idempotent producers (KIP-98), handed out of blocks that the controller allocates.
 *
 * The next block is asked for before the present one is used up, so a producer rarely waits.  Ids of a block that is
 * not used up when the broker ends are lost, as in Kafka.  Thread: any loop. */
#ifndef BROKER_PRODUCER_IDS_H
#define BROKER_PRODUCER_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct broker;
struct producer_ids;
struct request;

struct producer_ids *producer_ids_new(struct broker *br);
/* Nobody may wait any more and the controller has stopped; NULL is allowed. */
void producer_ids_free(struct producer_ids *ids);

/* One id asked for; embedded in the handler's state, zeroed. */
struct producer_id_wait {
    struct list_node node;
    struct request *rq;
    bool begun, settled; /* under the lock of producer_ids */
    int64_t id;          /* once settled; -1: no block is to be had at present */
};

/* True: w->id is settled.  False: the request is woken when it is; ask again then.  On the request's loop. */
bool producer_ids_take(struct producer_ids *ids, struct producer_id_wait *w, struct request *rq);
/* The request waits no more; from then on it is not woken.  On its loop. */
void producer_ids_cancel(struct producer_ids *ids, struct producer_id_wait *w);

#endif
