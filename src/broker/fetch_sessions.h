/* fetch_sessions.h: incremental fetch sessions (KIP-227): a consumer names its partitions once and is then told only of
 * those that have something new.
 *
 * A fetch begins a plan, which says what to read; whether a session stands behind it is no concern of the reader.  When
 * it answers it asks about each item, once, whether the answer names it, then looks at plan.kerr, then ends the plan.
 * The cache holds at most max.incremental.fetch.session.cache.slots sessions; a new one evicts another by Kafka's rules
 * (unused for two minutes; or smaller and old enough; or unprivileged and the new one is a replica's).
 * Thread: any.  A plan belongs to one request.  A session may have several plans open, when a client does not wait for
 * its answers: the newest is the one that counts, the others are told INVALID_FETCH_SESSION_EPOCH as they answer.  They
 * should do so at once, since answers leave in the order of their requests: see fetch_plan_watch(). */
#ifndef BROKER_FETCH_SESSIONS_H
#define BROKER_FETCH_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "os/rng.h"
#include "wire/gen/fetch.h"
#include "wire/kerr.h"

/* What one session may hold; a fetch of more partitions works, without a session. */
enum { FETCH_SESSION_PARTITIONS_MAX = 100 * 1000 };
/* What all sessions may hold, names included: so much a slot, and at least so much in all.  Past it new fetches get no
 * session, and a session that grows is closed. */
enum { FETCH_SESSIONS_BYTES_A_SLOT = 256 * 1024, FETCH_SESSIONS_BYTES_MIN = 16 * 1024 * 1024 };

/* Session epochs of a request that are no number in a sequence: for a full fetch that opens a session, and for one that
 * opens none; both close the session they name. */
enum { FETCH_SESSION_EPOCH_INITIAL = 0, FETCH_SESSION_EPOCH_FINAL = -1 };

/* The epoch of the request that follows one with `epoch`, which is not FETCH_SESSION_EPOCH_FINAL. */
static inline int32_t fetch_session_epoch_after(int32_t epoch)
{
    return epoch == INT32_MAX ? 1 : epoch + 1;
}

struct fetch_sessions;
struct fetch_session;
struct fetch_session_part;

/* One partition to read. */
struct fetch_item {
    struct str topic;     /* null when the client named it by id (version 13 on) */
    struct uuid topic_id; /* zero when it named it by name */
    int32_t partition;
    int32_t current_leader_epoch, last_fetched_epoch;
    int64_t fetch_offset, log_start_offset;
    int32_t max_bytes;
    int64_t known_high_watermark;    /* what the asker was told last; -1: nothing; INT64_MAX: nobody can tell */
    struct fetch_session_part *part; /* NULL without a session; for fetch_plan_include() only */
};

struct fetch_plan {
    enum kerr kerr;           /* FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR:
                                 answer with it and session_id alone; fetch_plan_include() may set it, too */
    int32_t session_id;       /* for the answer; 0: no session */
    bool incremental;         /* the answer leaves out what has nothing new */
    struct fetch_item *items; /* in the order to read them; they and the names live in the arena, or the request */
    int32_t count;
    struct fetch_session *session; /* from here on: this module's own */
    uint64_t use;
    bool told;
    void (*overtaken)(void *arg); /* under the session's lock; NULL: nobody waits */
    void *arg;
};

/* `rng`, lent, chooses session ids; it is asked by one thread at a time. */
struct fetch_sessions *fetch_sessions_new(size_t slots, struct rng *rng);
/* No plan may be open.  NULL is fine. */
void fetch_sessions_free(struct fetch_sessions *fs);
size_t fetch_sessions_count(struct fetch_sessions *fs);

/* Makes the plan for a request, which stays good as long as the plan.  `by_id`: the request's version names topics by
 * id.  `replica`: a follower's (privileged).  `now_ms`: monotonic.  End it with fetch_plan_end(), after an error too.
 */
void fetch_plan_begin(struct fetch_plan *out, struct fetch_sessions *fs, const struct fetch_request *in, bool by_id,
                      bool replica, int64_t now_ms, struct arena *arena);

/* What was found for an item; with an error the offsets do not matter. */
struct fetch_found {
    enum kerr kerr;
    int64_t high_watermark, log_start;
    bool has_records, other_news; /* diverging epoch, preferred replica */
};

/* Returns whether the answer must name the item, and remembers what the client will then know: to be called once an
 * item, by an answer that will be sent.  Partitions with records go to the end of an incremental session's order, so
 * that all get their turn.  Sets plan->kerr when a later request of the session has overtaken this one. */
bool fetch_plan_include(struct fetch_plan *plan, const struct fetch_item *item, const struct fetch_found *found);

/* The request waits: calls `overtaken`, once and on any thread, when a later one of the session takes its place; at
 * once if one has.  Not after fetch_plan_end(). */
void fetch_plan_watch(struct fetch_plan *plan, void (*overtaken)(void *arg), void *arg);

/* Lets go of the session.  A new session for whose plan nothing was included is closed: its client has not heard of it
 * (the connection is gone, or a throttled answer went out, with session id 0). */
void fetch_plan_end(struct fetch_plan *plan);

#endif
