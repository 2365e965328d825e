/* log_dirs.h: what a broker does when one of its log directories fails (KIP-112).  Thread: the home loop. */
#ifndef BROKER_LOG_DIRS_H
#define BROKER_LOG_DIRS_H

#include <stddef.h>

/* replicas_options.dir_failed; `arg` is the struct broker_run.  Tells the controller, who moves leaders away; stops the
 * broker when no directory is left, or when the coordination store was in it. */
void log_dir_failed(void *arg, size_t dir);
/* replicas_options.ask_again: the same message to the controller. */
void log_dirs_ask_again(void *run);

#endif
