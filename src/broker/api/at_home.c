/* at_home.c: see at_home.h.  Mailboxes keep their senders' order, so requests of one connection come to the home loop
 * in theirs. */
#include "broker/api/at_home.h"

#include "broker/broker.h"

static void on_back(struct loop_msg *msg)
{
    struct at_home *h = CONTAINER_OF(msg, struct at_home, msg);
    h->over = true;
    request_enter(h->rq);
}

static void on_ask(struct loop_msg *msg)
{
    struct at_home *h = CONTAINER_OF(msg, struct at_home, msg);
    h->ask(h);
}

void at_home_answered(struct at_home *h)
{
    h->msg.run = on_back;
    loop_post(h->rq->loop, &h->msg);
}

enum step at_home(struct request *rq, struct at_home *h, void (*ask)(struct at_home *h))
{
    if (!h->sent) {
        *h = (struct at_home){.rq = rq, .ask = ask, .sent = true};
        h->msg.run = on_ask;
        loop_post(broker_home(rq->broker), &h->msg);
    }
    return h->over ? DONE : WAIT;
}
