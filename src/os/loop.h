/* loop.h: an event loop: one thread, its sockets, its timers, its mailbox.
 *
 * A loop owns the objects that were made on it; other threads reach them only by loop_post().  The mailbox is
 * intrusive: a message is embedded in what it is about, so posting allocates nothing and cannot fail.  The simulator
 * makes loops without threads and turns them itself with loop_turn(). */
#ifndef OS_LOOP_H
#define OS_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "os/clock.h"

struct loop;

/* A message in flight belongs to the loop until `run` is called; it may be posted again, or freed, from there on.
 * Messages posted by one thread run in that order.  One that is posted by a message runs in the next turn. */
struct loop_msg {
    _Atomic(struct loop_msg *) next;
    void (*run)(struct loop_msg *msg);
};

/* Zeroed: not set.  `fire` runs on the loop, once, not before `due_us` of the loop's clock; up to a millisecond late
 * when the loop was waiting.  Timers due at the same moment fire in the order in which they were set. */
struct timer {
    int64_t due_us;
    size_t heap_index; /* 1-based; 0: not set */
    void (*fire)(struct timer *t);
};

/* One file descriptor watched for a loop (edge triggered).  `ready` gets EPOLLIN | EPOLLOUT | ... bits. */
struct loop_io {
    int fd;
    void (*ready)(struct loop_io *io, uint32_t events);
};

/* Not running yet.  `index` tells loops of one process apart (0..n-1). */
MUST_USE enum err loop_new(struct loop **out, struct clock *clock, unsigned index, struct fault *f);
/* One that is only ever turned, by one thread, under a clock that stands still meanwhile: it never waits, takes nothing
 * of the system, and has no loop_io. */
struct loop *loop_new_turned(struct clock *clock, unsigned index);
/* When a turn has something to do: a moment that has passed already when there are messages, INT64_MAX when nothing is
 * left to do until somebody posts.  Owner. */
int64_t loop_due_us(const struct loop *l);
/* Its thread must have ended, and nobody may post any more; messages still queued are dropped, timers are unset. */
void loop_free(struct loop *l);
/* Runs until loop_stop(); call on the loop's own thread, which becomes its owner. */
void loop_run(struct loop *l);
/* One turn: waits up to `wait_us` (-1: until something happens), then handles all that is ready.  The calling thread
 * owns the loop from then on. */
void loop_turn(struct loop *l, int64_t wait_us);
/* Any thread.  Messages posted before it are still run.  loop_run() returns at the end of that turn, or at once when it
 * has not been called yet. */
void loop_stop(struct loop *l);

unsigned loop_index(const struct loop *l);
/* True on the thread that runs the loop.  While none does (before it starts, after it ended) each thread may set it up.
 */
bool loop_is_owner(const struct loop *l);
#define ASSERT_OWNER(l) ASSERT(loop_is_owner(l))
struct clock *loop_clock(struct loop *l);
/* The time this turn began: cheap, good for deadlines. */
int64_t loop_now_us(const struct loop *l);
static inline int64_t loop_now_ms(const struct loop *l)
{
    return loop_now_us(l) / 1000;
}

/* Any thread. */
void loop_post(struct loop *l, struct loop_msg *msg);

/* Owner.  Setting a set timer moves it. */
void loop_timer_set(struct loop *l, struct timer *t, int64_t due_us);
void loop_timer_cancel(struct loop *l, struct timer *t);
static inline bool timer_is_set(const struct timer *t)
{
    return t->heap_index != 0;
}

/* Owner.  Watches io->fd for both directions, edge triggered; a fd is removed before it is closed.  After
 * loop_io_remove() `ready` is not called any more, not even for events already fetched in this turn. */
MUST_USE enum err loop_io_add(struct loop *l, struct loop_io *io);
void loop_io_remove(struct loop *l, struct loop_io *io);

/* Runs once before the loop waits again: for work that is worth collecting over one turn.  Zeroed: not queued. */
struct loop_idle {
    struct list_node node;
    void (*run)(struct loop_idle *idle);
};
/* Owner.  A hook that is queued already stays where it is; one queued from within a hook runs in the next turn. */
void loop_idle_once(struct loop *l, struct loop_idle *idle);
/* Owner.  Before the hook's memory goes; one that is not queued is fine. */
void loop_idle_cancel(struct loop *l, struct loop_idle *idle);
static inline bool loop_idle_is_queued(const struct loop_idle *idle)
{
    return list_has(&idle->node);
}

#endif
