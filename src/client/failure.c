/* failure.c: see failure.h. */
#include "client/failure.h"

#include <stdarg.h>
#include <stdio.h>

bool failure_set(struct failure *f, enum err err, const char *fmt, ...)
{
    ASSERT(err != OK);
    f->err = err;
    f->kerr = KERR_NONE;
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    return false;
}

bool failure_refused(struct failure *f, int16_t kerr, struct str message, const char *what, ...)
{
    ASSERT(kerr != KERR_NONE);
    f->err = OK;
    f->kerr = kerr;
    char said[256];
    va_list args;
    va_start(args, what);
    vsnprintf(said, sizeof said, what, args);
    va_end(args);
    if (message.size > 0)
        snprintf(f->text, sizeof f->text, "%s: %s (%.*s).", said, kerr_name(kerr), STR_ARG(message));
    else
        snprintf(f->text, sizeof f->text, "%s: %s.", said, kerr_name(kerr));
    return false;
}

bool failure_is_retriable(const struct failure *f)
{
    if (f->kerr != KERR_NONE) return kerr_is_retriable(f->kerr);
    switch (f->err) {
    case ERR_CLOSED:
    case ERR_TIMEOUT:
    case ERR_IO:
    case ERR_AGAIN: return true;
    default: return false;
    }
}
