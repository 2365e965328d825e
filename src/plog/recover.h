/* recover.h: what a log does at open to be sound: after an unclean stop it reads again what may be torn.  Worker. */
#ifndef PLOG_RECOVER_H
#define PLOG_RECOVER_H

#include "plog/plog_internal.h"

/* Reads every batch from the segment on that holds `recovery_point`, cuts the log at the first that is not whole, and
 * makes indexes, epochs and producer state anew on the way.  Sets the log's end. */
MUST_USE enum err recover_log(struct plog *pl, int64_t recovery_point, int64_t log_start, struct fault *f);
/* Producer state of a log that was closed cleanly: the snapshot at its end, or Kafka's fall-backs. */
MUST_USE enum err recover_producers_clean(struct plog *pl);
/* Makes the epochs anew from all batches' headers, when leader-epoch-checkpoint cannot be read. */
MUST_USE enum err recover_epochs(struct plog *pl);
/* Says what could not be read at `pos` of a segment.  Returns `e`. */
enum err recover_fault(const struct plog *pl, const struct segment *seg, int64_t pos, enum err e, struct fault *f);

#endif
