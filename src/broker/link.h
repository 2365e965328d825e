/* link.h: a connection to another broker that is kept up: whenever it ends, the next one begins.
 *
 * The controller has one to every broker, every broker has one to the controller.  Who is reached over it is asked
 * things, and by its end is known at once: a process that died resets its connections, and its port refuses.
 * Thread: the loop given.  No callback runs from within a call. */
#ifndef BROKER_LINK_H
#define BROKER_LINK_H

#include "rpc/rpc.h"

struct link;

struct link_options {
    struct rpc_options rpc; /* its `ended`, `ready` and `arg` are ours */
    void (*up)(void *arg);
    /* It is down, or could not be brought up.  Calls that were out have had their `done`, with an error.  The next try
     * comes by itself; link_close() may be called from within. */
    void (*down)(void *arg, enum rpc_end end, const char *text);
    void *arg;
};

/* Begins to connect. */
struct link *link_open(const struct link_options *opt, struct str host, int32_t port);
/* Calls that are out get their `done` afterwards, with ERR_CLOSED.  NULL is allowed. */
void link_close(struct link *ln);

bool link_is_up(const struct link *ln);
/* To one that is up.  The answer comes, or it goes down. */
void link_send(struct link *ln, struct rpc_call *call);

#endif
