/* signals.h: signals as events of a loop.
 *
 * From signals_open() on, the signals of the table are blocked and come out of a descriptor that the loop watches:
 * their handlers are ordinary code.  SIGPIPE and SIGXFSZ are ignored (a peer that is gone and a file that is too big
 * are errors of the call, not the end of the process).  Open it before any other thread starts: threads inherit the
 * blocking. */
#ifndef OS_SIGNALS_H
#define OS_SIGNALS_H

#include <signal.h>
#include <stddef.h>

#include "base/err.h"
#include "os/loop.h"

struct signals;

struct signal_handler {
    int signal; /* SIGTERM, SIGINT, SIGHUP ... */
    void (*run)(void *arg);
    void *arg;
};

/* The table is lent until signals_close().  Thread: the one that starts the others; handlers run on the loop. */
MUST_USE enum err signals_open(struct signals **out, struct loop *l, const struct signal_handler *table, size_t count,
                               struct fault *f);
/* Puts blocking and ignoring back as they were on this thread.  Owner of the loop; NULL is allowed. */
void signals_close(struct signals *s);

#endif
