/* err.h: what can go wrong in the world around us, and how it is told.
 *
 * `enum err` says what a caller can do about a failure; it never crosses the wire (wire/kerr.h has Kafka's codes).
 * `struct fault` is a failure explained to a person: what, where, why, and what to do.  Thread: any. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/macros.h"

/*   name          text */
#define ERR_LIST(X)                                           \
    X(OK, "no error")                                         \
    X(ERR_AGAIN, "would have to wait")                        \
    X(ERR_IO, "input/output error")                           \
    X(ERR_FULL, "no space left on the device")                \
    X(ERR_NOT_FOUND, "not found")                             \
    X(ERR_EXISTS, "exists already")                           \
    X(ERR_DENIED, "permission denied")                        \
    X(ERR_LOCKED, "in use by another process")                \
    X(ERR_TOO_MANY, "too many open files or other resources") \
    X(ERR_TOO_BIG, "larger than the limit allows")            \
    X(ERR_TRUNCATED, "ends too early")                        \
    X(ERR_CORRUPT, "malformed or corrupt")                    \
    X(ERR_INVALID, "invalid argument or value")               \
    X(ERR_UNSUPPORTED, "not supported")                       \
    X(ERR_RANGE, "out of range")                              \
    X(ERR_VERSION, "version does not match")                  \
    X(ERR_NOT_EMPTY, "not empty")                             \
    X(ERR_NOT_FILE, "missing, or not a regular file")         \
    X(ERR_TIMEOUT, "timed out")                               \
    X(ERR_EXPIRED, "the session has expired")                 \
    X(ERR_UNSURE, "connection lost, outcome unknown")         \
    X(ERR_CLOSED, "closed")

enum err {
#define X(name, text) name,
    ERR_LIST(X)
#undef X
        ERR_COUNT
};

/* The constant's name ("ERR_FULL") and its text; both static strings. */
const char *err_name(enum err e);
const char *err_text(enum err e);

/* Maps errno of a failed system call; an errno without a row of its own is ERR_IO. */
enum err err_of_errno(int errnum);

/* A failure with its explanation.  `text` is a whole sentence, empty while code is OK. */
struct fault {
    enum err code;
    char text[1024];
};

/* Fills `f` (which may be NULL) and returns `code`, so that `return fault_set(f, ERR_INVALID, ...)` reads well. */
enum err fault_set(struct fault *f, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);

#ifdef __clang_analyzer__
/* It does not look into variadic functions, and would follow paths on which a failure came back as OK. */
#define fault_set(f, code, ...) ((void)fault_set(f, code, __VA_ARGS__), (code))
#endif

#endif
