/* embedded.h: the coordination store of a single node: an SQLite file in the first log directory.
 *
 * One worker executes the calls in order and commits what is queued in one transaction, so a burst of thousands costs
 * one fsync.  A result is delivered after its transaction is on the disk (write-ahead log, synchronous=FULL); only a
 * transaction that makes nothing but ephemeral nodes does not wait for the disk: they end with the process anyway.
 * Those that a dead process left are removed with the first transaction: the caller holds the lock of the log
 * directory, so nobody else lives.
 *
 * A file that is not ours, comes from a newer version or is damaged is refused with a fault and left as it is.  Damage
 * found later fails that call and every later one (COORD_FAILED), and nothing more is written.
 * Thread: coord_embedded_open() waits for the disk a little: at start only.  Everything else as coord.h says. */
#ifndef COORD_EMBEDDED_H
#define COORD_EMBEDDED_H

#include "coord/coord.h"
#include "os/clock.h"
#include "os/fs.h"

#define COORD_EMBEDDED_FILE "barnabas-coord.db"

struct coord_embedded_options {
    struct fs *fs; /* the real one: SQLite does its own input and output */
    struct clock *clock;
    const char *dir; /* the first log directory; must exist */
    bool read_only;  /* for looking at it (dump): nothing is made or changed, writes are ERR_DENIED, a broker may run */
    bool inline_calls; /* calls are executed in the caller's thread: for tests */
    struct coord_listener listener;
};

MUST_USE enum err coord_embedded_open(struct coord **out, const struct coord_embedded_options *opt, struct fault *f);

#endif
