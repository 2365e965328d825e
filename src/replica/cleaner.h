/* cleaner.h: threads that compact logs with cleanup.policy=compact (Kafka's LogCleaner).
 *
 * Each thread takes, of the logs that are due (plog/clean.h), one past max.compaction.lag.ms, else the dirtiest, cleans
 * it once and looks again; when none is due it waits for log.cleaner.backoff.ms.  After a cleaning
 * cleaner-offset-checkpoint is written.  A partition whose cleaning fails is set aside, told of as an error, and tried
 * again later and later; a thread never ends for it.  A log that is deleted, taken offline or held ends its cleaning.
 *
 * Thread: calls from any thread, without locks of replicas or logs. */
#ifndef REPLICA_CLEANER_H
#define REPLICA_CLEANER_H

#include "replica/replicas.h"

struct cleaner;

/* Starts opt->threads threads; a start that fails is logged, and tried again with the next configuration. */
struct cleaner *cleaner_new(struct replicas *r, const struct cleaner_options *opt);
/* New settings: cleanings in progress end, and begin again with them. */
void cleaner_reconfigure(struct cleaner *cl, const struct cleaner_options *opt);
/* Begins nothing more; does not wait.  NULL is allowed. */
void cleaner_stop(struct cleaner *cl);
/* Stops and waits for the threads.  NULL is allowed. */
void cleaner_free(struct cleaner *cl);

/* Ends a cleaning of the partition, waits for that, and lets none begin until cleaner_release(): its log or its place
 * is about to change.  Holds count.  NULL is allowed.  Worker. */
void cleaner_hold(struct cleaner *cl, struct partition *p);
void cleaner_release(struct cleaner *cl, struct partition *p);

#endif
