/* leader_hint.h: who leads instead (KIP-951): an answer of NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH carries the
 * new leader, its epoch and its address, so that the client need not ask for metadata first.  Thread: the request's
 * loop. */
#ifndef BROKER_API_LEADER_HINT_H
#define BROKER_API_LEADER_HINT_H

#include "base/uuid.h"
#include "broker/request.h"

struct leader_hint {
    int32_t leader, leader_epoch; /* -1: not known */
};

/* Only for the two errors above; else -1, -1. */
struct leader_hint leader_hint_of(struct request *rq, struct str topic, struct uuid id, int32_t partition,
                                  enum kerr kerr);

struct hint_endpoint {
    int32_t id, port;
    struct str host, rack;
};
/* The addresses of the hinted leaders on the connection's listener, each once; strings are in the request's arena. */
struct hint_endpoint *leader_hint_endpoints(struct request *rq, const struct leader_hint *hints, int32_t count,
                                            int32_t *out_count);

#endif
