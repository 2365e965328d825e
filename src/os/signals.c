/* signals.c: a signalfd on the loop. */
#include "os/signals.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/mem.h"

static const int ignored[] = {SIGPIPE, SIGXFSZ};

struct signals {
    struct loop *loop;
    struct loop_io io; /* fd -1: not open yet */
    bool added;
    const struct signal_handler *table;
    size_t count;
    sigset_t mask_before;
    struct sigaction action_before[ARRAY_COUNT(ignored)];
};

static void signals_dispatch(struct signals *s, int number)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->table[i].signal == number) s->table[i].run(s->table[i].arg);
}

static void signals_ready(struct loop_io *io, uint32_t events)
{
    (void)events;
    struct signals *s = CONTAINER_OF(io, struct signals, io);
    struct signalfd_siginfo info;
    for (;;) {
        ssize_t n = read(io->fd, &info, sizeof info);
        if (n < 0 && errno == EINTR) continue;
        if (n != sizeof info) return; /* EAGAIN: no more */
        signals_dispatch(s, (int)info.ssi_signo);
    }
}

enum err signals_open(struct signals **out, struct loop *l, const struct signal_handler *table, size_t count,
                      struct fault *f)
{
    struct signals *s = mem_zalloc(1, sizeof *s);
    s->loop = l;
    s->table = table;
    s->count = count;
    s->io.ready = signals_ready;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < count; i++) sigaddset(&set, table[i].signal);
    pthread_sigmask(SIG_BLOCK, &set, &s->mask_before);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < ARRAY_COUNT(ignored); i++) sigaction(ignored[i], &ignore, &s->action_before[i]);

    s->io.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    enum err e = s->io.fd < 0 ? err_of_errno(errno) : loop_io_add(l, &s->io);
    if (e) {
        signals_close(s);
        return fault_set(f, e, "Signals cannot be received: %s.", err_text(e));
    }
    s->added = true;
    *out = s;
    return OK;
}

void signals_close(struct signals *s)
{
    if (!s) return;
    if (s->added) loop_io_remove(s->loop, &s->io);
    if (s->io.fd >= 0) close(s->io.fd);
    for (size_t i = 0; i < ARRAY_COUNT(ignored); i++) sigaction(ignored[i], &s->action_before[i], NULL);
    pthread_sigmask(SIG_SETMASK, &s->mask_before, NULL);
    mem_free(s);
}
