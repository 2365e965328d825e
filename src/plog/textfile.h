/* textfile.h: reading the small text files of a log directory line by line, with faults that name file and line.
 * Thread: any. */
#ifndef PLOG_TEXTFILE_H
#define PLOG_TEXTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "os/fs.h"

struct textfile {
    const char *path; /* lent */
    const char *at, *end;
    int line; /* number of the line last taken, from 1 */
    char *data;
};

/* Reads the whole file, of at most size_max bytes (ERR_CORRUPT past it).  ERR_NOT_FOUND leaves `f` alone. */
MUST_USE enum err textfile_open(struct textfile *t, struct fs *fs, const char *path, size_t size_max, struct fault *f);
/* The same over text that the caller holds. */
void textfile_of(struct textfile *t, const char *path, const char *text, size_t size);
void textfile_close(struct textfile *t);

/* The next line without its end; false when there is none. */
bool textfile_line(struct textfile *t, struct str *line);
/* Cuts the next field off `line`: what stands before the next space (or the rest). */
struct str textfile_field(struct str *line);
/* A decimal number, all of `text`, within [min, max]. */
bool textfile_number(struct str text, int64_t min, int64_t max, int64_t *out);
/* ERR_CORRUPT with file, line number and reason. */
enum err textfile_fault(const struct textfile *t, struct fault *f, const char *reason);

/* "0", then the number of lines that follow: the head of Kafka's checkpoint files.  A file without any line is empty,
 * *count = -1.  ERR_VERSION: another version. */
MUST_USE enum err textfile_checkpoint_head(struct textfile *t, int64_t *count, struct fault *f);

#endif
