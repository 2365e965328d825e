/* clock.h: time, behind an interface so that the simulator can own it.
 * `mono` never steps back and measures waits and deadlines; `wall` is what goes into records.  Thread: any. */
#ifndef OS_CLOCK_H
#define OS_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*mono_us)(struct clock *c); /* microseconds since some fixed moment */
    int64_t (*wall_ms)(struct clock *c); /* milliseconds since 1970, as Kafka's timestamps */
};

static inline int64_t clock_mono_us(struct clock *c)
{
    return c->mono_us(c);
}

static inline int64_t clock_mono_ms(struct clock *c)
{
    return c->mono_us(c) / 1000;
}

static inline int64_t clock_wall_ms(struct clock *c)
{
    return c->wall_ms(c);
}

/* The system's clock; a process singleton. */
struct clock *clock_system(void);

#endif
