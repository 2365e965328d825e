/* auto_create.h: topics that are made because a client asked for them (auto.create.topics.enable). */
#ifndef BROKER_AUTO_CREATE_H
#define BROKER_AUTO_CREATE_H

#include <stdint.h>

#include "base/slice.h"
#include "wire/kerr.h"

struct broker;

/* One asking, embedded in what waits for it.  The caller fills in the first block and leaves all alone until `done`. */
struct auto_create {
    const struct str *names; /* valid names, each once */
    int32_t count;
    void (*done)(struct auto_create *ac); /* once, any thread, perhaps before auto_create_topics() returns */
    void *arg;

    /* What a client is told of each topic that metadata does not show yet: LEADER_NOT_AVAILABLE when it is being made,
     * so that the client asks again, else why it is not made.  The caller gives the array. */
    enum kerr *kerr;
};

/* Has the controller create the topics with the broker's defaults for partitions and replicas; the internal ones with
 * theirs.  Does not wait until their leaders are known.  Any loop. */
void auto_create_topics(struct broker *br, struct auto_create *ac);

#endif
