/* rng.c: the kernel's random numbers, and what is built of random bytes whoever made them. */
#include "os/rng.h"

#include <errno.h>
#include <sys/random.h>

#include "base/macros.h"

static void system_fill(struct rng *r, void *out, size_t size)
{
    (void)r;
    uint8_t *at = out;
    while (size > 0) {
        ssize_t n = getrandom(at, size, 0);
        if (n < 0 && errno == EINTR) continue;
        ASSERT(n > 0); /* without flags it fails for nothing but a bad pointer */
        at += n;
        size -= (size_t)n;
    }
}

struct rng *rng_system(void)
{
    static struct rng system = {.fill = system_fill};
    return &system;
}

uint64_t rng_below(struct rng *r, uint64_t bound)
{
    ASSERT(bound > 0);
    /* 2^64 is no multiple of most bounds: the draws below the remainder are thrown away, else small results would be
     * likelier. */
    uint64_t unfair_below = (0 - bound) % bound;
    uint64_t x;
    do {
        rng_fill(r, &x, sizeof x);
    } while (x < unfair_below);
    return x % bound;
}

struct uuid rng_uuid(struct rng *r)
{
    struct uuid id;
    uint8_t random[16];
    do {
        rng_fill(r, random, sizeof random);
    } while (!uuid_from_random(&id, random));
    return id;
}
