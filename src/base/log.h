/* log.h: the process's own log, lines of `time level module event key=value ...` on standard error or in a file.
 * A process singleton.  Thread: any.  Never on a request's hot path; what a peer can trigger uses the limited form. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* Milliseconds since 1970 for the time column; os/ gives the real or the simulated one. */
typedef int64_t (*log_clock)(void *arg);

void log_init(log_clock clock, void *clock_arg, enum log_level lowest);
/* Writes to this file from now on, appending; NULL or "" for standard error. */
MUST_USE enum err log_open_file(const char *path, struct fault *f);
/* Opens the same path anew (after log rotation); a no-op on standard error. */
MUST_USE enum err log_reopen(struct fault *f);
bool log_enabled(enum log_level level);
/* "info" and so on; false when it names no level. */
bool log_level_parse(const char *name, enum log_level *out);
void log_close(void);
/* Lines go to `line` instead, each with its line break and without the time; NULL: no more.  For a simulator, which has
 * one thread and its own time. */
void log_capture(void (*line)(void *arg, const char *line, size_t size), void *arg);

/* `event` is a lower_snake_case constant, `fmt` makes the `key=value` rest.  Quote free text: reason="...". */
void log_line(enum log_level level, const char *module, const char *event, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* At most `per_second` lines a second a call site; the next line tells how many were dropped. */
struct log_limit {
    _Atomic int64_t window_s;
    _Atomic uint32_t used;
    _Atomic uint32_t dropped;
};
bool log_limit_take(struct log_limit *limit, uint32_t per_second, uint32_t *dropped);

/* LOG_MODULE is defined by each file that logs: #define LOG_MODULE "plog" */
#define LOG_DEBUG(event, ...)                                                                        \
    do {                                                                                             \
        if (log_enabled(LOG_LEVEL_DEBUG)) log_line(LOG_LEVEL_DEBUG, LOG_MODULE, event, __VA_ARGS__); \
    } while (0)
#define LOG_INFO(event, ...)  log_line(LOG_LEVEL_INFO, LOG_MODULE, event, __VA_ARGS__)
#define LOG_WARN(event, ...)  log_line(LOG_LEVEL_WARN, LOG_MODULE, event, __VA_ARGS__)
#define LOG_ERROR(event, ...) log_line(LOG_LEVEL_ERROR, LOG_MODULE, event, __VA_ARGS__)

/* For what a peer can make happen at will. */
#define LOG_LIMITED(level, event, fmt, ...)                                               \
    do {                                                                                  \
        static struct log_limit limit_;                                                   \
        uint32_t dropped_;                                                                \
        if (log_enabled(level) && log_limit_take(&limit_, 5, &dropped_))                  \
            log_line(level, LOG_MODULE, event, fmt " dropped=%u", __VA_ARGS__, dropped_); \
    } while (0)

#endif
