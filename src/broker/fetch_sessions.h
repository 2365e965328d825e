/* fetch_sessions.h: incremental fetch sessions (KIP-227): a consumer names its partitions once and is then told only of
 * those that have something new.
 *
 * A fetch begins a plan, which says what to read; whether a session stands behind it is no concern of the reader.  The
 * cache holds at most max.incremental.fetch.session.cache.slots sessions; a new one evicts another by Kafka's rules
 * (unused for two minutes; or smaller, or unprivileged and the new one is a replica's).
 * Thread: any.  A plan belongs to one request; two plans of one session exclude each other by the epoch. */
#ifndef BROKER_FETCH_SESSIONS_H
#define BROKER_FETCH_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "wire/gen/fetch.h"
#include "wire/kerr.h"

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
    struct fetch_session_part *part; /* NULL without a session */
};

struct fetch_plan {
    enum kerr kerr;      /* FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR: answer
                            with it alone */
    int32_t session_id;  /* for the answer; 0: no session */
    bool incremental;    /* the answer leaves out what has nothing new */
    struct fetch_item *items; /* in the order to read them; lent until fetch_plan_end() */
    int32_t count;
    struct fetch_session *session;
};

struct fetch_sessions *fetch_sessions_new(size_t slots);
/* No plan may be open. */
void fetch_sessions_free(struct fetch_sessions *fs);
size_t fetch_sessions_count(struct fetch_sessions *fs);

/* Makes the plan for a request; items without a session come from the arena.  `by_id`: the request's version names topics
 * by id.  `replica`: a follower's (privileged).  `now_ms`: monotonic. */
void fetch_plan_begin(struct fetch_plan *out, struct fetch_sessions *fs, const struct fetch_request *in, bool by_id,
                      bool replica, int64_t now_ms, struct arena *arena);
/* What was found for an item.  Returns whether the answer must name it, and remembers what the client will then know. */
struct fetch_found {
    enum kerr kerr;
    int64_t high_watermark, log_start;
    bool has_records, other_news; /* diverging epoch, preferred replica */
};
bool fetch_plan_include(struct fetch_plan *plan, const struct fetch_item *item, const struct fetch_found *found);
/* Lets go of the session; partitions that had records go to the end of its order, so that all get their turn. */
void fetch_plan_end(struct fetch_plan *plan);

#endif
