/* rng.h: randomness, behind an interface so that a seed can decide it.  Thread: any for the system's. */
#ifndef OS_RNG_H
#define OS_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "base/uuid.h"

struct rng {
    void (*fill)(struct rng *r, void *out, size_t size);
};

static inline void rng_fill(struct rng *r, void *out, size_t size)
{
    r->fill(r, out, size);
}

/* Even over [0, bound), bound > 0. */
uint64_t rng_below(struct rng *r, uint64_t bound);
/* A new id that Kafka would choose too (uuid_from_random). */
struct uuid rng_uuid(struct rng *r);

/* The kernel's generator; a process singleton. */
struct rng *rng_system(void);

#endif
