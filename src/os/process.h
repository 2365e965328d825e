/* process.h: what the process may use of the machine.  Thread: any. */
#ifndef OS_PROCESS_H
#define OS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Raises the limit of open files to the highest that the system allows without privilege; *now is what holds after it,
 * also when raising failed. */
MUST_USE enum err process_raise_file_limit(uint64_t *now);

/* Processors that this process may run on (its affinity, which containers and taskset restrict); at least 1. */
unsigned process_cpu_count(void);

/* Whether a person may be watching standard error. */
bool process_has_terminal(void);

#endif
