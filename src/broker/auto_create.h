/* auto_create.h: topics that are made because a client asked for them (auto.create.topics.enable). */
#ifndef BROKER_AUTO_CREATE_H
#define BROKER_AUTO_CREATE_H

#include <stdint.h>

#include "base/slice.h"
#include "broker/request.h"
#include "broker/to_controller.h"
#include "wire/gen/create_topics.h"
#include "wire/kerr.h"

/* One asking, in the memory of the request that waits for it.  The caller sets the first block and leaves all alone
 * until `done`; the request must not end before. */
struct auto_create {
    const struct str *names; /* valid names, each once */
    int32_t count;
    int32_t wait_ms;                      /* what is given to their leaders to be known; 0: a short while */
    void (*done)(struct auto_create *ac); /* once, on the request's loop */
    struct request *rq;

    /* By name, what a client is told as long as metadata does not show the topic: LEADER_NOT_AVAILABLE when it is being
     * made and UNKNOWN_TOPIC_OR_PARTITION when it could not be just now, for both of which clients ask again; else why
     * it is not made. */
    enum kerr *kerr;

    /* auto_create.c's own */
    struct create_topics_request in;
    struct controller_call call;
};

struct config;
struct controller_new_topic;

/* What a topic of that name is made like: the internal ones with settings of their own.  `name` is lent. */
void auto_create_describe(struct arena *a, const struct config *cfg, struct str name, struct controller_new_topic *t);

/* Has the controller make the topics with the broker's defaults for partitions and replicas, the internal ones with
 * theirs.  On the request's loop. */
void auto_create_topics(struct auto_create *ac);

#endif
