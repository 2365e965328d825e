/* log.c: formats a line in one buffer and writes it with one call, so that lines of threads never mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { LINE_SIZE_MAX = 4096 };

static struct {
    log_clock clock;
    void *clock_arg;
    _Atomic int lowest;
    _Atomic int fd;
    pthread_mutex_t lock; /* guards path and the change of fd */
    char *path;
    void (*capture)(void *arg, const char *line, size_t size); /* NULL: nobody takes the lines */
    void *capture_arg;
} logger = {.lowest = LOG_LEVEL_INFO, .fd = STDERR_FILENO, .lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const level_names[] = {"DEBUG", "INFO", "WARN", "ERROR"};

void log_init(log_clock clock, void *clock_arg, enum log_level lowest)
{
    logger.clock = clock;
    logger.clock_arg = clock_arg;
    atomic_store(&logger.lowest, (int)lowest);
}

/* Puts `next` in the place of the file that is written to.  The old descriptor is replaced in place (dup2), so a
 * thread that is just writing never meets a closed one. */
static void log_switch(int next)
{
    int old = atomic_load(&logger.fd);
    if (old == STDERR_FILENO) {
        atomic_store(&logger.fd, next);
        return;
    }
    dup2(next, old);
    close(next);
}

static enum err log_open_locked(struct fault *f)
{
    int fd = open(logger.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return fault_set(f, err_of_errno(errno), "The log file %s cannot be opened: %s.", logger.path, strerror(errno));
    log_switch(fd);
    return OK;
}

enum err log_open_file(const char *path, struct fault *f)
{
    if (!path || !*path) return OK;
    pthread_mutex_lock(&logger.lock);
    mem_free(logger.path);
    logger.path = mem_strdup(path);
    enum err e = log_open_locked(f);
    pthread_mutex_unlock(&logger.lock);
    return e;
}

enum err log_reopen(struct fault *f)
{
    pthread_mutex_lock(&logger.lock);
    enum err e = logger.path ? log_open_locked(f) : OK;
    pthread_mutex_unlock(&logger.lock);
    return e;
}

void log_close(void)
{
    pthread_mutex_lock(&logger.lock);
    int old = atomic_exchange(&logger.fd, STDERR_FILENO);
    if (old != STDERR_FILENO) close(old);
    mem_free(logger.path);
    logger.path = NULL;
    pthread_mutex_unlock(&logger.lock);
}

void log_capture(void (*line)(void *arg, const char *line, size_t size), void *arg)
{
    logger.capture = line;
    logger.capture_arg = arg;
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&logger.lowest, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *out)
{
    for (size_t i = 0; i < ARRAY_COUNT(level_names); i++) {
        if (strcasecmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

static size_t log_time(char *out, size_t size)
{
    int64_t ms = logger.clock ? logger.clock(logger.clock_arg) : 0;
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    gmtime_r(&s, &tm);
    size_t n = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(out + n, size - n, ".%03dZ", (int)(ms % 1000));
}

void log_line(enum log_level level, const char *module, const char *event, const char *fmt, ...)
{
    if (!log_enabled(level)) return;
    char line[LINE_SIZE_MAX];
    size_t n = logger.capture ? 0 : log_time(line, sizeof line);
    n += (size_t)snprintf(line + n, sizeof line - n, logger.capture ? "%-5s %s %s " : " %-5s %s %s ",
                          level_names[level], module, event);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - n, fmt, args);
    va_end(args);
    if (more > 0) n += (size_t)more;
    if (n > sizeof line - 1) n = sizeof line - 1; /* a longer line is cut */
    /* Text from a peer may hold a line break; a log line is one line. */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ') line[i] = '?';
    line[n++] = '\n';
    if (logger.capture) {
        logger.capture(logger.capture_arg, line, n);
        return;
    }
    /* A full disk under the log must not stop the broker. */
    ssize_t ignored = write(atomic_load_explicit(&logger.fd, memory_order_relaxed), line, n);
    (void)ignored;
}

bool log_limit_take(struct log_limit *limit, uint32_t per_second, uint32_t *dropped)
{
    int64_t now_s = logger.clock ? logger.clock(logger.clock_arg) / 1000 : 0;
    int64_t window_s = atomic_load(&limit->window_s);
    if (window_s != now_s && atomic_compare_exchange_strong(&limit->window_s, &window_s, now_s))
        atomic_store(&limit->used, 0);
    if (atomic_fetch_add(&limit->used, 1) >= per_second) {
        atomic_fetch_add(&limit->dropped, 1);
        return false;
    }
    *dropped = atomic_exchange(&limit->dropped, 0);
    return true;
}
