/* refused.h: batches of idempotent producers that a connection has brought and that were refused for a reason that may
 * go away: no leader here yet, too few replicas.
 *
 * A producer has several batches under way.  When its first one to a partition is refused, and the partition becomes
 * able to take the next one meanwhile, that one comes from a producer that the log does not know, which may begin with
 * any sequence: its state may have expired (KIP-360).  Taken, it would cost the first one its place; and librdkafka
 * concludes from its success that the first one is written, too, and acknowledges it: a record lost.  So it is noted
 * here, and what comes behind is out of order until the refused one has come again.
 * Thread: the connection's loop. */
#ifndef BROKER_REFUSED_H
#define BROKER_REFUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/uuid.h"
#include "wire/batch.h"

enum { REFUSED_MAX = 1000 }; /* noted of one connection; the oldest one goes for the next */

/* Those of one connection; NULL: none, which costs nothing. */
struct refused;

/* A partition as the request names it: by its name, or, where that is null, by the topic's id. */
struct refused_at {
    struct str topic;
    struct uuid topic_id;
    int32_t partition;
};

/* The batch was not appended.  One without a producer id is passed over. */
void refused_note(struct refused **set, const struct refused_at *at, const struct batch_info *b);
/* One that comes before this batch was refused, and has not come again. */
bool refused_before(struct refused *set, const struct refused_at *at, const struct batch_info *b);
/* The batch is in the log. */
void refused_forget(struct refused **set, const struct refused_at *at, const struct batch_info *b);
void refused_free(struct refused **set);

#endif
