/* by_controller.h: requests that go to this broker's controller as they are.  Thread: the connection's loop. */
#ifndef BROKER_API_BY_CONTROLLER_H
#define BROKER_API_BY_CONTROLLER_H

#include "broker/broker.h"
#include "broker/request.h"
#include "controller/controller.h"

/* A handler's state.  A cancelled request waits, too: its memory is lent, and the controller answers soon. */
struct by_controller {
    struct request *rq;
    bool sent, over;
};

/* Marks it sent; for the controller's function, which enters the handler again when it has answered. */
struct controller_request by_controller(struct request *rq, struct by_controller *bc);

#endif
