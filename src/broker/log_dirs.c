/* log_dirs.c: a failed log directory: the controller is told, or the broker stops. */
#include "broker/log_dirs.h"

#include "broker/broker_internal.h"
#include "coord/coord.h"
#include "coord/znodes.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum { TELL_AGAIN_US = 1000 * 1000 };

static void tell(struct broker_run *run);

static void tell_again(struct timer *t)
{
    tell(CONTAINER_OF(t, struct broker_run, dir_timer));
}

static void told(void *arg, const struct coord_result *r)
{
    struct broker_run *run = arg;
    struct loop *home = broker_home(&run->br);
    if (!r->err || coord_session_over(r->err) || run->stopping) return;
    LOG_WARN("log_dir_failure_not_told", "error=%s reason=\"tried again\"", err_name(r->err));
    run->dir_timer.fire = tell_again;
    loop_timer_set(home, &run->dir_timer, loop_now_us(home) + TELL_AGAIN_US);
}

/* It does not say which directory: the controller asks for everything. */
static void tell(struct broker_run *run)
{
    struct broker *br = &run->br;
    if (run->stopping || !br->coord) return;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    coord_create(br->coord, ZNODE_LOG_DIR_EVENT, znode_log_dir_event_encode(&a, br->id), COORD_SEQUENTIAL,
                 (struct coord_to){broker_home(br), told, run});
    arena_fini(&a);
}

void log_dir_failed(void *arg, size_t dir)
{
    struct broker_run *run = arg;
    struct broker *br = &run->br;
    struct fault f;
    const char *path = replicas_dir_path(br->replicas, dir);
    enum err e = replicas_dir_error(br->replicas, dir);
    if (run->stopping) return;
    if (replicas_all_dirs_offline(br->replicas)) {
        fault_set(&f, e,
                  "Every log directory has failed, the last one is %s: %s. Nothing can be served. Repair the disks, or "
                  "take what is lost out of log.dirs, and start again.",
                  path, err_text(e));
        run_fail(run, e, &f);
        return;
    }
    if (dir == 0 && br->alone) { /* the embedded store's, see coordination.c */
        fault_set(&f, e,
                  "The log directory %s has failed: %s. It is the first of log.dirs and holds the coordination store, "
                  "without which the broker cannot go on. Repair its disk and start again.",
                  path, err_text(e));
        run_fail(run, e, &f);
        return;
    }
    tell(run);
}

void log_dirs_ask_again(void *run)
{
    tell(run);
}
