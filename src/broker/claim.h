/* claim.h: takes a broker's id in the cluster: makes its ephemeral node /brokers/ids/N, with all that can be in the
 * way.
 *
 * The id may be held already:
 * - by this very session: an earlier attempt whose end we did not learn.  It is ours.
 * - by a process of ours that is dead: a start finds a node with an address that this process has bound (and it holds
 *   the locks of the log directories); after an expiry it is the node of our session before.  It is replaced at once,
 *   so that nobody waits for a session to time out.
 * - by anybody else: ERR_EXISTS, and the fault names both.
 *
 * Thread: the loop given, all of it. */
#ifndef BROKER_CLAIM_H
#define BROKER_CLAIM_H

#include "coord/coord.h"
#include "coord/znodes.h"

struct claim_options {
    struct coord *coord;
    struct loop *loop;
    int32_t broker_id;
    const struct znode_broker *node; /* lent until claim_begin() returns */
    /* The process has begun: a node with one of our addresses is a dead process's, and no other broker may be
     * registered with one of them. */
    bool starting;
    int64_t session_before; /* not starting: whose node is replaced; 0: none */
};

struct claim_result {
    enum err err; /* `fault` explains all but ERR_CLOSED and ERR_EXPIRED */
    const struct fault *fault;
    int64_t epoch;            /* the broker's from now on: the czxid of the node */
    int64_t session_replaced; /* 0: nobody's */
};

/* ERR_EXISTS: another has the id, or one of the addresses.  ERR_EXPIRED: the session ended meanwhile.  ERR_AGAIN: the
 * node came and went all the time.  `done` is called once, in a later turn. */
void claim_begin(const struct claim_options *opt, void (*done)(void *arg, const struct claim_result *r), void *arg);

#endif
