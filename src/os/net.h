/* net.h: stream sockets, behind an interface, so that the simulator can lose, delay and cut.
 * All calls are non-blocking: ERR_AGAIN means wait for the next `ready`.  Thread: the loop that the socket is on. */
#ifndef OS_NET_H
#define OS_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/err.h"
#include "os/loop.h"

struct net;
struct sock;

/* An address as text and as the system has it. */
struct net_addr {
    struct sockaddr_storage sa;
    socklen_t sa_size;
};
enum { NET_ADDR_TEXT_MAX = 64 };

/* Bits given to `ready`. */
enum net_ready { NET_READABLE = 1, NET_WRITABLE = 2, NET_HANGUP = 4 };

typedef void (*sock_ready_fn)(struct sock *s, void *arg, unsigned ready);

struct net_ops {
    enum err (*listen)(struct net *n, struct loop *l, const struct net_addr *at, int backlog, struct sock **out);
    enum err (*connect)(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out);
    enum err (*accept)(struct sock *listener, struct sock **out, struct net_addr *peer);
    enum err (*recv)(struct sock *s, void *out, size_t size, size_t *got);
    enum err (*send)(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent);
    enum err (*send_file)(struct sock *s, int fd, int64_t pos, size_t size, size_t *sent);
    enum err (*attach)(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg);
    void (*set_buffers)(struct sock *s, int send_bytes, int receive_bytes);
    enum err (*local_addr)(struct sock *s, struct net_addr *out);
    void (*close)(struct sock *s);
};

struct net {
    const struct net_ops *ops;
};

struct sock {
    struct net *net;
};

/* The kernel's TCP; a process singleton. */
struct net *net_system(void);

/* A listening socket, not attached yet; SO_REUSEADDR, IPV6_V6ONLY off for "::".  ERR_EXISTS: the port is in use. */
MUST_USE static inline enum err net_listen(struct net *n, struct loop *l, const struct net_addr *at, int backlog,
                                           struct sock **out)
{
    return n->ops->listen(n, l, at, backlog, out);
}
/* Starts connecting; the first NET_WRITABLE or NET_HANGUP tells how it ended. */
MUST_USE static inline enum err net_connect(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out)
{
    return n->ops->connect(n, l, to, out);
}
/* The new socket is attached to no loop yet and may be handed to another thread. */
MUST_USE static inline enum err sock_accept(struct sock *listener, struct sock **out, struct net_addr *peer)
{
    return listener->net->ops->accept(listener, out, peer);
}
/* OK with *got == 0: the peer has closed its side. */
MUST_USE static inline enum err sock_recv(struct sock *s, void *out, size_t size, size_t *got)
{
    return s->net->ops->recv(s, out, size, got);
}
/* Sends a part at least; `more`: bytes follow at once (MSG_MORE). */
MUST_USE static inline enum err sock_send(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent)
{
    return s->net->ops->send(s, iov, count, more, sent);
}
/* sendfile(); ERR_TRUNCATED: the file is shorter. */
MUST_USE static inline enum err sock_send_file(struct sock *s, int fd, int64_t pos, size_t size, size_t *sent)
{
    return s->net->ops->send_file(s, fd, pos, size, sent);
}
/* From now on `ready` is called on loop `l` (edge triggered: read and write until ERR_AGAIN). */
MUST_USE static inline enum err sock_attach(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg)
{
    return s->net->ops->attach(s, l, ready, arg);
}
/* SO_SNDBUF and SO_RCVBUF; -1 leaves the system's own tuning. */
static inline void sock_set_buffers(struct sock *s, int send_bytes, int receive_bytes)
{
    s->net->ops->set_buffers(s, send_bytes, receive_bytes);
}
MUST_USE static inline enum err sock_local_addr(struct sock *s, struct net_addr *out)
{
    return s->net->ops->local_addr(s, out);
}
/* Detaches and closes. */
static inline void sock_close(struct sock *s)
{
    s->net->ops->close(s);
}

/* "127.0.0.1:9092", "[::1]:9092". */
void net_addr_format(const struct net_addr *a, char out[NET_ADDR_TEXT_MAX]);
/* The host part alone, for limits by address. */
void net_addr_host(const struct net_addr *a, char out[NET_ADDR_TEXT_MAX]);
uint16_t net_addr_port(const struct net_addr *a);
/* Resolves host (name, IPv4, IPv6 with or without brackets; "" or NULL: all interfaces) and port.  May wait for the
 * name service: on a worker or at start only.  At most `max` addresses; *count tells how many. */
MUST_USE enum err net_resolve(const char *host, uint16_t port, struct net_addr *out, size_t max, size_t *count,
                              struct fault *f);
/* True when the address belongs to an interface of this machine (loopback included). */
bool net_addr_is_local(const struct net_addr *a);
/* This machine's canonical host name, as Kafka takes it for an empty advertised host.  To be freed with mem_free(). */
char *net_host_name(void);

#endif
