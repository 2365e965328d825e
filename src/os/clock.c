/* clock.c: the system's clock. */
#include "os/clock.h"

#include <time.h>

#include "base/macros.h"

static struct timespec now_of(clockid_t id)
{
    struct timespec ts;
    ASSERT(clock_gettime(id, &ts) == 0);
    return ts;
}

static int64_t system_mono_us(struct clock *c)
{
    (void)c;
    struct timespec ts = now_of(CLOCK_MONOTONIC);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int64_t system_wall_ms(struct clock *c)
{
    (void)c;
    struct timespec ts = now_of(CLOCK_REALTIME);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct clock *clock_system(void)
{
    static struct clock system = {.mono_us = system_mono_us, .wall_ms = system_wall_ms};
    return &system;
}
