/* memory.h: a coordination store in memory, for tests and the simulator: many sessions on one store, which can be cut
 * off and expired, and whose calls, events and results can be held back at will.
 * Calls are executed at once, in the caller's thread, under one lock, unless the session's calls are delayed.  Nothing
 * survives coord_memory_free(). */
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

/* --- what becomes of a session; unknown ids are ignored --- */

/* Expires the session as an ensemble would: its ephemeral nodes go, others' watches fire, its listener is told, at once
 * or when it is connected again.  Also one that was closed while it was cut off, whose nodes are still there. */
void coord_memory_expire(struct coord_memory *m, int64_t session);

/* Expires the session in the moment when it asks for one more change after `changes` that succeeded: that call and all
 * later ones are ERR_EXPIRED.  What a process that dies there leaves. */
void coord_memory_expire_after(struct coord_memory *m, int64_t session, int changes);

/* Cuts the session off: it hears COORD_DISCONNECTED, its calls wait, and so do its watches' events.  Of the calls that
 * are out (see coord_memory_delay) the store still executes the first `executed`; the writes among them all end as
 * ERR_UNSURE, whether executed or not, the reads are asked again. */
void coord_memory_disconnect(struct coord_memory *m, int64_t session, size_t executed);
/* The session goes on: COORD_CONNECTED, what its watches saw meanwhile, and the calls that waited.  Or it hears
 * COORD_EXPIRED, if it was expired meanwhile. */
void coord_memory_reconnect(struct coord_memory *m, int64_t session);

/* The process of the session is gone: nothing is delivered to it any more, what is on its way to it is forgotten, and
 * the session's memory with it.  The session itself lives on until coord_memory_expire(). */
void coord_memory_abandon(struct coord_memory *m, int64_t session);

/* --- when things happen --- */

/* On: the session's calls are no more executed as they are made, but stay out until coord_memory_run() lets the first
 * `count` of them happen.  Off: all that are out are executed. */
void coord_memory_delay(struct coord_memory *m, int64_t session, bool on);
void coord_memory_run(struct coord_memory *m, int64_t session, size_t count);
size_t coord_memory_out(struct coord_memory *m, int64_t session);

/* What is at `path` now; false: nothing is.  `data` is lent until the next change. */
bool coord_memory_look(struct coord_memory *m, struct str path, int32_t *version, struct bytes *data);

/* Holds back watch events (and, with `results`, results too; order is kept) until the release.  Idempotent. */
void coord_memory_hold(struct coord_memory *m, bool events, bool results);
void coord_memory_release(struct coord_memory *m);

#endif
