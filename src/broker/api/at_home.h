/* at_home.h: what a handler has to have done on the home loop, which owns replicas, metadata and the controller.
 *
 * The handler enters at_home() each time and returns WAIT until it is over; a cancelled request waits, too, as its
 * memory is lent.  `ask` runs on the home loop and sees to it that at_home_answered() is called there, once; meanwhile
 * the request's arena and answer are its own.  Thread: as said. */
#ifndef BROKER_API_AT_HOME_H
#define BROKER_API_AT_HOME_H

#include "broker/request.h"

struct at_home {
    struct loop_msg msg;
    struct request *rq;
    void (*ask)(struct at_home *h);
    bool sent, over;
};

/* The request's loop. */
enum step at_home(struct request *rq, struct at_home *h, void (*ask)(struct at_home *h));
/* The home loop, not from within `ask`. */
void at_home_answered(struct at_home *h);

#endif
