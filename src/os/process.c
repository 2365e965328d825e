/* process.c: limits and surroundings of the process. */
#include "os/process.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

enum err process_raise_file_limit(uint64_t *now)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        *now = 0;
        return err_of_errno(errno);
    }
    struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    enum err e = OK;
    if (limit.rlim_cur != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) < 0)
        e = err_of_errno(errno);
    else
        limit = raised;
    *now = limit.rlim_cur;
    return e;
}

unsigned process_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (unsigned)MAX(CPU_COUNT(&set), 1);
    /* More processors than a cpu_set_t holds. */
    return (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
}

bool process_has_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}
