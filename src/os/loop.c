/* loop.c: the event loop over epoll.
 *
 * A turn: idle hooks left over, wait, take the time, sockets, messages, timers, idle hooks.
 *
 * The mailbox is a stack of messages that senders push on with compare-and-swap and that the loop takes whole and
 * reverses: per sender (indeed over all of them) messages come out in the order they went in.  A loop about to wait
 * swaps the empty stack for the address of `asleep`.  The sender whose push replaces that, and no other, writes to the
 * eventfd: a loop that is awake costs its senders no system call, and no wake-up is lost, because going to sleep and
 * posting are decided by one word.  The eventfd is edge triggered and never read: each write is an edge, and 2^64 of
 * them do not come.
 *
 * A turn that has mail does not ask for sockets when the one before it did: what a handler sends to its own loop costs
 * no system call.
 *
 * There is no tick: a loop with nothing to do waits until its nearest timer, or for ever.
 *
 * A loop that is only turned has no epoll and no eventfd: its turn is the same without the wait. */
#include "os/loop.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/timer_heap.h"

enum { EVENTS_PER_TURN = 256, CACHE_LINE = 64 };

struct loop {
    struct clock *clock;
    unsigned index;
    int epoll_fd; /* -1: it is only turned */
    int wake_fd;
    int64_t now_us;
    bool stopping;
    bool looked; /* at the sockets, in the last turn */
    struct timer_heap timers;
    struct list idle;
    struct loop_msg stop_msg;
    struct loop_msg asleep; /* never sent: an address that no message has */
    /* Fetched events; those from event_next to event_count are still to be handled. */
    struct epoll_event events[EVENTS_PER_TURN];
    int event_next, event_count;

    /* Read and written by other threads: kept off the owner's cache lines. */
    char pad_before[CACHE_LINE];
    _Atomic(struct loop_msg *) mailbox; /* newest first; NULL: empty; &asleep: empty, and the loop waits */
    _Atomic uintptr_t owner;            /* pthread_self() of the thread that runs it; 0: nobody */
    _Atomic bool stop_posted;
    char pad_after[CACHE_LINE];
};

static void stop_run(struct loop_msg *msg)
{
    CONTAINER_OF(msg, struct loop, stop_msg)->stopping = true;
}

struct loop *loop_new_turned(struct clock *clock, unsigned index)
{
    struct loop *l = mem_zalloc(1, sizeof *l);
    l->clock = clock;
    l->index = index;
    l->now_us = clock_mono_us(clock);
    l->stop_msg.run = stop_run;
    list_init(&l->idle);
    l->epoll_fd = l->wake_fd = -1;
    return l;
}

enum err loop_new(struct loop **out, struct clock *clock, unsigned index, struct fault *f)
{
    struct loop *l = loop_new_turned(clock, index);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event wake = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (l->epoll_fd < 0 || l->wake_fd < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->wake_fd, &wake) < 0) {
        enum err e = fault_set(f, err_of_errno(errno), "An event loop cannot be set up: %s.", strerror(errno));
        loop_free(l);
        return e;
    }
    *out = l;
    return OK;
}

void loop_free(struct loop *l)
{
    if (!l) return;
    ASSERT(loop_is_owner(l));
    timer_heap_fini(&l->timers);
    while (list_pop_front(&l->idle)) {
    } /* so that none thinks it is still queued */
    if (l->wake_fd >= 0) close(l->wake_fd);
    if (l->epoll_fd >= 0) close(l->epoll_fd);
    mem_free(l);
}

/* ---- ownership and time ---- */

static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

unsigned loop_index(const struct loop *l)
{
    return l->index;
}

bool loop_is_owner(const struct loop *l)
{
    uintptr_t owner = atomic_load_explicit(&l->owner, memory_order_relaxed);
    return owner == 0 || owner == self();
}

struct clock *loop_clock(struct loop *l)
{
    return l->clock;
}

int64_t loop_now_us(const struct loop *l)
{
    return l->now_us;
}

/* ---- mailbox ---- */

static void loop_wake(struct loop *l)
{
    uint64_t one = 1;
    ssize_t n;
    do {
        n = write(l->wake_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    ASSERT(n == sizeof one);
}

void loop_post(struct loop *l, struct loop_msg *msg)
{
    struct loop_msg *top = atomic_load_explicit(&l->mailbox, memory_order_relaxed);
    do {
        atomic_store_explicit(&msg->next, top == &l->asleep ? NULL : top, memory_order_relaxed);
    } while (
        !atomic_compare_exchange_weak_explicit(&l->mailbox, &top, msg, memory_order_release, memory_order_relaxed));
    if (top == &l->asleep) loop_wake(l);
}

/* False when there is mail. */
static bool mailbox_sleep(struct loop *l)
{
    struct loop_msg *empty = NULL;
    return atomic_compare_exchange_strong_explicit(&l->mailbox, &empty, &l->asleep, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* Takes all mail, oldest first, and with it the word that we sleep if it is still there. */
static struct loop_msg *mailbox_take(struct loop *l)
{
    if (!atomic_load_explicit(&l->mailbox, memory_order_relaxed)) return NULL;
    struct loop_msg *newest = atomic_exchange_explicit(&l->mailbox, NULL, memory_order_acquire);
    if (newest == &l->asleep) return NULL;
    struct loop_msg *oldest = NULL;
    while (newest) {
        struct loop_msg *next = atomic_load_explicit(&newest->next, memory_order_relaxed);
        atomic_store_explicit(&newest->next, oldest, memory_order_relaxed);
        oldest = newest;
        newest = next;
    }
    return oldest;
}

static void run_messages(struct loop_msg *msg)
{
    while (msg) {
        struct loop_msg *next = atomic_load_explicit(&msg->next, memory_order_relaxed);
        msg->run(msg); /* may free or post it again */
        msg = next;
    }
}

/* ---- timers and idle hooks ---- */

void loop_timer_set(struct loop *l, struct timer *t, int64_t due_us)
{
    ASSERT_OWNER(l);
    timer_heap_set(&l->timers, t, due_us);
}

void loop_timer_cancel(struct loop *l, struct timer *t)
{
    ASSERT_OWNER(l);
    timer_heap_cancel(&l->timers, t);
}

void loop_idle_once(struct loop *l, struct loop_idle *idle)
{
    ASSERT_OWNER(l);
    if (!list_has(&idle->node)) list_push_back(&l->idle, &idle->node);
}

void loop_idle_cancel(struct loop *l, struct loop_idle *idle)
{
    ASSERT_OWNER(l);
    list_remove(&idle->node);
}

/* The hooks queued so far: the mark behind the last of them keeps those that they queue for the next turn. */
static void run_idle(struct loop *l)
{
    if (list_is_empty(&l->idle)) return;
    struct list_node mark = {0};
    list_push_back(&l->idle, &mark);
    for (struct list_node *node; (node = list_pop_front(&l->idle)) != &mark;) {
        struct loop_idle *idle = CONTAINER_OF(node, struct loop_idle, node);
        idle->run(idle);
    }
}

/* ---- sockets ---- */

enum err loop_io_add(struct loop *l, struct loop_io *io)
{
    ASSERT_OWNER(l);
    ASSERT(l->epoll_fd >= 0);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = io};
    return epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, io->fd, &ev) < 0 ? err_of_errno(errno) : OK;
}

void loop_io_remove(struct loop *l, struct loop_io *io)
{
    ASSERT_OWNER(l);
    ASSERT(epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL) == 0);
    for (int i = l->event_next; i < l->event_count; i++)
        if (l->events[i].data.ptr == io) l->events[i].data.ptr = NULL;
}

static void run_ready(struct loop *l)
{
    while (l->event_next < l->event_count) {
        const struct epoll_event *ev = &l->events[l->event_next++];
        struct loop_io *io = ev->data.ptr;
        if (io) io->ready(io, ev->events); /* NULL: the eventfd, or removed meanwhile */
    }
    l->event_next = l->event_count = 0;
}

/* ---- turns ---- */

/* How long to wait, in epoll's milliseconds; rounded up, so that a timer is due when the wait is over. */
static int wait_ms(const struct loop *l, int64_t wait_us)
{
    int64_t due_us = timer_heap_due_us(&l->timers);
    if (due_us != INT64_MAX) {
        int64_t left_us = MAX(due_us - clock_mono_us(l->clock), 0);
        if (wait_us < 0 || left_us < wait_us) wait_us = left_us;
    }
    return wait_us < 0 ? -1 : (int)MIN(wait_us / 1000 + (wait_us % 1000 != 0), INT_MAX);
}

static void loop_wait(struct loop *l, int64_t wait_us)
{
    if (l->epoll_fd < 0) return;
    int ms = list_is_empty(&l->idle) ? wait_ms(l, wait_us) : 0;
    bool mail = ms != 0 && !mailbox_sleep(l);
    if (mail && l->looked) { /* a handler has posted to its own loop, mostly: the sockets can wait for that */
        l->looked = false;
        return;
    }
    l->looked = true;
    if (mail) ms = 0;
    int n = epoll_wait(l->epoll_fd, l->events, EVENTS_PER_TURN, ms);
    ASSERT(n >= 0 || errno == EINTR);
    l->event_next = 0;
    l->event_count = MAX(n, 0);
}

static void take_turn(struct loop *l, int64_t wait_us)
{
    run_idle(l);
    loop_wait(l, wait_us);
    /* Before the sockets: what a handler posts to its own loop is for the next turn, and senders need not wake us. */
    struct loop_msg *mail = mailbox_take(l);
    l->now_us = clock_mono_us(l->clock);
    run_ready(l);
    run_messages(mail);
    timer_heap_fire(&l->timers, l->now_us);
    run_idle(l);
}

int64_t loop_due_us(const struct loop *l)
{
    ASSERT_OWNER(l);
    if (!list_is_empty(&l->idle) || atomic_load_explicit(&l->mailbox, memory_order_relaxed)) return l->now_us;
    return timer_heap_due_us(&l->timers);
}

void loop_turn(struct loop *l, int64_t wait_us)
{
    ASSERT(loop_is_owner(l));
    atomic_store_explicit(&l->owner, self(), memory_order_relaxed);
    take_turn(l, wait_us);
}

void loop_run(struct loop *l)
{
    ASSERT(loop_is_owner(l));
    atomic_store_explicit(&l->owner, self(), memory_order_relaxed);
    while (!l->stopping) take_turn(l, -1);
    l->stopping = false;
    atomic_store(&l->stop_posted, false);
    atomic_store_explicit(&l->owner, 0, memory_order_relaxed);
}

void loop_stop(struct loop *l)
{
    if (!atomic_exchange(&l->stop_posted, true)) loop_post(l, &l->stop_msg);
}
