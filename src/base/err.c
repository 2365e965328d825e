/* err.c: names and texts of errors, faults, and the end of the process when an invariant breaks. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    const char *text;
} err_table[ERR_COUNT] = {
#define X(name, text) [name] = {#name, text},
    ERR_LIST(X)
#undef X
};

const char *err_name(enum err e)
{
    return (unsigned)e < ERR_COUNT ? err_table[e].name : "ERR_?";
}

const char *err_text(enum err e)
{
    return (unsigned)e < ERR_COUNT ? err_table[e].text : "unknown error";
}

enum err err_of_errno(int errnum)
{
    static const struct {
        int errnum;
        enum err e;
    } rows[] = {
        {0, OK},
        {EAGAIN, ERR_AGAIN},
        {EINPROGRESS, ERR_AGAIN},
        {ENOSPC, ERR_FULL},
        {EDQUOT, ERR_FULL},
        {ENOENT, ERR_NOT_FOUND},
        {ENOTDIR, ERR_NOT_FOUND},
        {EEXIST, ERR_EXISTS},
        {EADDRINUSE, ERR_EXISTS},
        {EACCES, ERR_DENIED},
        {EPERM, ERR_DENIED},
        {EROFS, ERR_DENIED},
        {EBUSY, ERR_LOCKED},
        {EMFILE, ERR_TOO_MANY},
        {ENFILE, ERR_TOO_MANY},
        {ENOMEM, ERR_TOO_MANY},
        {ENOBUFS, ERR_TOO_MANY},
        {EFBIG, ERR_TOO_BIG},
        {ENAMETOOLONG, ERR_TOO_BIG},
        {EINVAL, ERR_INVALID},
        {EADDRNOTAVAIL, ERR_INVALID},
        {EAFNOSUPPORT, ERR_UNSUPPORTED},
        {EOPNOTSUPP, ERR_UNSUPPORTED},
        {ENOSYS, ERR_UNSUPPORTED},
        {ENOTEMPTY, ERR_NOT_EMPTY},
        {EISDIR, ERR_NOT_FILE},
        {ELOOP, ERR_NOT_FILE},
        {ENXIO, ERR_NOT_FILE},
        {ETIMEDOUT, ERR_TIMEOUT},
        {EPIPE, ERR_CLOSED},
        {ECONNRESET, ERR_CLOSED},
        {ECONNREFUSED, ERR_CLOSED},
        {ECONNABORTED, ERR_CLOSED},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (rows[i].errnum == errnum) return rows[i].e;
    return ERR_IO;
}

enum err(fault_set)(struct fault *f, enum err code, const char *fmt, ...)
{
    if (!f) return code;
    f->code = code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    return code;
}

void assert_failed(const char *what, const char *file, int line, const char *func)
{
    fprintf(stderr, "barnabas: broken invariant: %s (%s:%d, %s)\n", what, file, line, func);
    abort();
}
