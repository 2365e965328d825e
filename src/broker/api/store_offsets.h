/* store_offsets.h: offsets as they were kept before Kafka 0.9, in the coordination store below
 * /consumers/GROUP/offsets/TOPIC/PARTITION: OffsetCommit and OffsetFetch version 0.  Thread: the connection's loop. */
#ifndef BROKER_API_STORE_OFFSETS_H
#define BROKER_API_STORE_OFFSETS_H

#include "broker/request.h"

/* Stages of offset_commit_handle(): rq->out has the request's topics and partitions, and errors of some. */
enum step store_offsets_commit(struct request *rq);
/* offset_fetch_handle() itself. */
enum step store_offsets_fetch(struct request *rq);

#endif
