/* gather.h: a request that waits for several answers which arrive on other loops.
 *
 * The last answer sends a message to the request's loop, and only that message marks the gathering complete: whatever
 * enters the handler meanwhile (its peer has gone, say) finds it incomplete and must return WAIT, so the request
 * outlives everybody who still holds it. */
#ifndef BROKER_API_GATHER_H
#define BROKER_API_GATHER_H

#include "broker/request.h"

struct gather {
    struct request *rq;
    _Atomic int32_t pending; /* one more until gather_end() */
    bool complete;           /* on the request's loop: every answer is here */
    struct loop_msg msg;
};

/* On the request's loop: begin, add for each answer to come, end. */
void gather_begin(struct gather *g, struct request *rq);
void gather_add(struct gather *g);
/* True: every answer is here already. False: return WAIT; the handler is entered again when g->complete is set. */
bool gather_end(struct gather *g);
/* One answer has arrived.  Any loop; `gather` is the struct gather. */
void gather_arrived(void *gather);

#endif
