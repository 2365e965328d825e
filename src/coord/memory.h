/* memory.h: a coordination store in memory, for tests and the simulator: many sessions on one store, which can be
 * expired, and whose events and results can be held back at will.
 * Calls are executed at once, in the caller's thread, under one lock.  Nothing survives coord_memory_free(). */
#ifndef COORD_MEMORY_H
#define COORD_MEMORY_H

#include "coord/coord.h"
#include "os/clock.h"

struct coord_memory;

struct coord_memory *coord_memory_new(struct clock *clock);
/* Every session must be closed. */
void coord_memory_free(struct coord_memory *m);

/* A new session; close it with coord_close(). */
struct coord *coord_memory_connect(struct coord_memory *m, struct coord_listener listener);

/* Expires the session as an ensemble would: its ephemeral nodes go, others' watches fire, its listener is told. */
void coord_memory_expire(struct coord_memory *m, int64_t session);

/* Expires the session in the moment when it asks for one more change after `changes` that succeeded: that call and all
 * later ones are ERR_CLOSED.  What a process that dies there leaves. */
void coord_memory_expire_after(struct coord_memory *m, int64_t session, int changes);

/* The process of the session is gone: nothing is delivered to it any more, what is on its way to it is forgotten, and
 * the session's memory with it.  The session itself lives on until coord_memory_expire(). */
void coord_memory_abandon(struct coord_memory *m, int64_t session);

/* Holds back watch events (and, with `results`, results too; order is kept) until the release.  Idempotent. */
void coord_memory_hold(struct coord_memory *m, bool events, bool results);
void coord_memory_release(struct coord_memory *m);

#endif
