/* grace.h: when may something that was unlinked be freed?  After every loop has finished the turn it was in.
 *
 * Loops read shared tables without a lock and keep such pointers only within one turn (what must last longer takes a
 * reference).  So a message through every loop's mailbox proves that no loop still looks at what was unlinked before it
 * was posted: readers pay nothing. */
#ifndef OS_GRACE_H
#define OS_GRACE_H

#include "os/loop.h"

struct grace;

/* `loops` must outlive the grace object. */
struct grace *grace_new(struct loop *const *loops, unsigned count);
/* Runs what is still pending at once; no loop may be running any more. */
void grace_free(struct grace *g);
/* Calls release(object) once every loop has passed; on the loop that was last.  Any thread. */
void grace_release(struct grace *g, void *object, void (*release)(void *object));

#endif
