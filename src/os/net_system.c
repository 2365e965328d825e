/* net_system.c: the kernel's TCP sockets.
 *
 * Every connection has TCP_NODELAY (answers leave at once; what belongs together is sent together, with MSG_MORE) and
 * SO_KEEPALIVE, as Kafka's have.  Sockets are non-blocking and closed on exec from their first moment.
 *
 * Whoever connects also asks for probes long before the kernel would send them (after two hours): who waits for an
 * answer from a host that has lost its power hears nothing else.  A follower would wait for replica.socket.timeout.ms
 * for a leader that has long been up again. */
#include "os/net.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/mem.h"

enum { PROBE_IDLE_S = 5, PROBE_INTERVAL_S = 1, PROBE_COUNT = 5 };
static_assert(PROBE_IDLE_S + PROBE_INTERVAL_S * PROBE_COUNT <= NET_SILENCE_S_MAX, "as net.h promises");

struct system_sock {
    struct sock sock;
    struct loop_io io;
    struct loop *loop; /* NULL: not attached */
    sock_ready_fn ready;
    void *arg;
};

static struct system_sock *system_of(struct sock *s)
{
    return CONTAINER_OF(s, struct system_sock, sock);
}

/* What the call that has just failed left in errno; never OK. */
static enum err last_error(void)
{
    enum err e = err_of_errno(errno);
    return e ? e : ERR_IO;
}

static struct sock *sock_of_fd(struct net *n, int fd)
{
    struct system_sock *ss = mem_zalloc(1, sizeof *ss);
    ss->sock.net = n;
    ss->io.fd = fd;
    return &ss->sock;
}

static bool set_option(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

static bool set_connection_options(int fd)
{
    return set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) && set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

static bool set_probes(int fd)
{
    return set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE_S) &&
           set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_INTERVAL_S) &&
           set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBE_COUNT);
}

static int open_socket(const struct net_addr *a)
{
    return socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static const struct sockaddr *sockaddr_of(const struct net_addr *a)
{
    return (const struct sockaddr *)&a->sa;
}

/* ---- making connections ---- */

static enum err system_listen(struct net *n, struct loop *l, const struct net_addr *at, int backlog, struct sock **out)
{
    (void)l;
    int fd = open_socket(at);
    if (fd < 0) return last_error();
    bool ok = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    /* Whatever the machine's default is: "::" takes IPv4 as well. */
    if (ok && at->sa.ss_family == AF_INET6) ok = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (!ok || bind(fd, sockaddr_of(at), at->sa_size) < 0 || listen(fd, backlog) < 0) {
        enum err e = last_error();
        close(fd);
        return e;
    }
    *out = sock_of_fd(n, fd);
    return OK;
}

static enum err system_connect(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out)
{
    (void)l;
    int fd = open_socket(to);
    if (fd < 0) return last_error();
    /* An interrupted connect() goes on in the background, like every other of ours. */
    if (!set_connection_options(fd) || !set_probes(fd) ||
        (connect(fd, sockaddr_of(to), to->sa_size) < 0 && errno != EINPROGRESS && errno != EINTR)) {
        enum err e = last_error();
        close(fd);
        return e;
    }
    *out = sock_of_fd(n, fd);
    return OK;
}

/* Linux hands an error that the new connection already has to accept(): the peer is gone, the next one counts. */
static bool is_of_the_peer(int errnum)
{
    switch (errnum) {
    case EINTR:
    case ECONNABORTED:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH: return true;
    default: return false;
    }
}

static enum err system_accept(struct sock *listener, struct sock **out, struct net_addr *peer)
{
    struct net_addr from;
    int fd;
    do {
        from.sa_size = sizeof from.sa;
        fd = accept4(system_of(listener)->io.fd, (struct sockaddr *)&from.sa, &from.sa_size,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && is_of_the_peer(errno));
    if (fd < 0) return last_error();
    /* Fails on a connection that is reset already; the first recv() tells. */
    (void)set_connection_options(fd);
    *out = sock_of_fd(listener->net, fd);
    *peer = from;
    return OK;
}

/* ---- moving bytes ---- */

static enum err system_recv(struct sock *s, void *out, size_t size, size_t *got)
{
    ssize_t n;
    do {
        n = recv(system_of(s)->io.fd, out, size, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return last_error();
    *got = (size_t)n;
    return OK;
}

static enum err system_send(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent)
{
    struct msghdr msg = {
        .msg_iov = (struct iovec *)(uintptr_t)iov, /* sendmsg() only reads it */
        .msg_iovlen = (size_t)MIN(count, IOV_MAX),
    };
    int flags = MSG_NOSIGNAL | (more || count > IOV_MAX ? MSG_MORE : 0);
    ssize_t n;
    do {
        n = sendmsg(system_of(s)->io.fd, &msg, flags);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return last_error();
    *sent = (size_t)n;
    return OK;
}

static enum err system_send_file(struct sock *s, int fd, int64_t pos, size_t size, size_t *sent)
{
    off_t at = pos;
    ssize_t n;
    do {
        n = sendfile(system_of(s)->io.fd, fd, &at, size);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return last_error();
    if (n == 0 && size > 0) return ERR_TRUNCATED;
    *sent = (size_t)n;
    return OK;
}

/* ---- the rest ---- */

static void io_ready(struct loop_io *io, uint32_t events)
{
    struct system_sock *ss = CONTAINER_OF(io, struct system_sock, io);
    unsigned ready = 0;
    if (events & (EPOLLIN | EPOLLRDHUP)) ready |= NET_READABLE; /* RDHUP: recv() will say that the peer has finished */
    if (events & EPOLLOUT) ready |= NET_WRITABLE;
    if (events & EPOLLRDHUP) ready |= NET_PEER_DONE;
    if (events & (EPOLLERR | EPOLLHUP)) ready |= NET_HANGUP;
    ss->ready(&ss->sock, ss->arg, ready); /* may close the socket */
}

static enum err system_attach(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg)
{
    struct system_sock *ss = system_of(s);
    ASSERT(!ss->loop);
    ss->ready = ready;
    ss->arg = arg;
    ss->io.ready = io_ready;
    enum err e = loop_io_add(l, &ss->io);
    if (!e) ss->loop = l;
    return e;
}

static void system_detach(struct sock *s)
{
    struct system_sock *ss = system_of(s);
    loop_io_remove(ss->loop, &ss->io);
    ss->loop = NULL;
}

static void system_set_buffers(struct sock *s, int send_bytes, int receive_bytes)
{
    int fd = system_of(s)->io.fd;
    if (send_bytes >= 0) (void)set_option(fd, SOL_SOCKET, SO_SNDBUF, send_bytes);
    if (receive_bytes >= 0) (void)set_option(fd, SOL_SOCKET, SO_RCVBUF, receive_bytes);
}

static enum err system_local_addr(struct sock *s, struct net_addr *out)
{
    struct net_addr a = {.sa_size = sizeof a.sa};
    if (getsockname(system_of(s)->io.fd, (struct sockaddr *)&a.sa, &a.sa_size) < 0) return last_error();
    *out = a;
    return OK;
}

static bool system_is_local(struct net *n, const struct net_addr *a)
{
    (void)n;
    return net_addr_is_local(a);
}

static void system_close(struct sock *s)
{
    struct system_sock *ss = system_of(s);
    if (ss->loop) loop_io_remove(ss->loop, &ss->io);
    close(ss->io.fd);
    mem_free(ss);
}

struct net *net_system(void)
{
    static const struct net_ops ops = {
        .listen = system_listen,
        .connect = system_connect,
        .accept = system_accept,
        .recv = system_recv,
        .send = system_send,
        .send_file = system_send_file,
        .attach = system_attach,
        .detach = system_detach,
        .set_buffers = system_set_buffers,
        .local_addr = system_local_addr,
        .is_local = system_is_local,
        .close = system_close,
    };
    static struct net system = {.ops = &ops};
    return &system;
}
