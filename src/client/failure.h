/* failure.h: why a request of ours came to nothing, told apart by what the caller can do.
 *
 * Either the world failed (`err`: no connection, no answer, an answer that is none), or a broker refused (`kerr`).
 * `text` is a whole sentence for a person.  Thread: any. */
#ifndef CLIENT_FAILURE_H
#define CLIENT_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "wire/kerr.h"

struct failure {
    enum err err; /* OK: a broker refused, or all is well */
    int16_t kerr; /* KERR_NONE: the world failed, or all is well */
    char text[1024];
};

/* Both fill `f` and give false, so that `return failure_set(...)` reads well. */
bool failure_set(struct failure *f, enum err err, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "WHAT: NAME (the broker's message, where it sent one)." */
bool failure_refused(struct failure *f, int16_t kerr, struct str message, const char *what, ...) PRINTF_LIKE(4, 5);

/* The same request may succeed later: another broker, a new connection, a new leader. */
bool failure_is_retriable(const struct failure *f);

#endif
