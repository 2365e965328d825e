/* net.h: stream sockets, behind an interface, so that the simulator can lose, delay and cut.
 * All calls are non-blocking: ERR_AGAIN means wait for the next `ready`.  A peer that is gone is ERR_CLOSED, also when
 * sending (signals.h keeps SIGPIPE away).  Thread: the loop that the socket is on. */
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

/* A connection that connect() made breaks when the far host has been silent for so long, though nothing is sent, or
 * has forgotten it: its power was off. */
enum { NET_SILENCE_S_MAX = 10 };

/* Bits given to `ready`. */
enum net_ready {
    NET_READABLE = 1,
    NET_WRITABLE = 2,
    NET_HANGUP = 4,
    NET_PEER_DONE = 8 /* the peer sends no more; what it sent before is still to be read */
};

typedef void (*sock_ready_fn)(struct sock *s, void *arg, unsigned ready);

struct net_ops {
    enum err (*listen)(struct net *n, struct loop *l, const struct net_addr *at, int backlog, struct sock **out);
    enum err (*connect)(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out);
    enum err (*accept)(struct sock *listener, struct sock **out, struct net_addr *peer);
    enum err (*recv)(struct sock *s, void *out, size_t size, size_t *got);
    enum err (*send)(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent);
    enum err (*send_file)(struct sock *s, int fd, int64_t pos, size_t size, size_t *sent);
    enum err (*attach)(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg);
    void (*detach)(struct sock *s);
    void (*set_buffers)(struct sock *s, int send_bytes, int receive_bytes);
    enum err (*local_addr)(struct sock *s, struct net_addr *out);
    bool (*is_local)(struct net *n, const struct net_addr *a);
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

/* A listening socket, not attached yet; SO_REUSEADDR; "::" takes IPv4 too, "0.0.0.0" IPv4 only.  ERR_EXISTS: the port
 * is in use. */
MUST_USE static inline enum err net_listen(struct net *n, struct loop *l, const struct net_addr *at, int backlog,
                                           struct sock **out)
{
    return n->ops->listen(n, l, at, backlog, out);
}
/* Starts connecting; the first NET_WRITABLE or NET_HANGUP tells how it ended (HANGUP wins if both are set).  After a
 * HANGUP sock_recv() says why: ERR_CLOSED (refused), ERR_TIMEOUT, ERR_IO (no way there). */
MUST_USE static inline enum err net_connect(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out)
{
    return n->ops->connect(n, l, to, out);
}
/* The new socket is attached to no loop yet and may be handed to another thread.  ERR_TOO_MANY: no descriptor or memory
 * left; the connection stays queued and no new `ready` tells of it, so try again later (a timer).  The loop calls this
 * until ERR_AGAIN. */
MUST_USE static inline enum err sock_accept(struct sock *listener, struct sock **out, struct net_addr *peer)
{
    return listener->net->ops->accept(listener, out, peer);
}
/* OK with *got == 0: the peer has closed its side. */
MUST_USE static inline enum err sock_recv(struct sock *s, void *out, size_t size, size_t *got)
{
    return s->net->ops->recv(s, out, size, got);
}
/* Sends a part at least; `more`: bytes follow at once (MSG_MORE), the last packet may wait for them. */
MUST_USE static inline enum err sock_send(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent)
{
    return s->net->ops->send(s, iov, count, more, sent);
}
/* sendfile(), a part at least; ERR_TRUNCATED: the file ends at or before `pos`.  Waits for the disk where the range is
 * not in the page cache. */
MUST_USE static inline enum err sock_send_file(struct sock *s, int fd, int64_t pos, size_t size, size_t *sent)
{
    return s->net->ops->send_file(s, fd, pos, size, sent);
}
/* From now on `ready` is called on loop `l` (edge triggered: read and write until ERR_AGAIN). */
MUST_USE static inline enum err sock_attach(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg)
{
    return s->net->ops->attach(s, l, ready, arg);
}
/* Owner of the loop: `ready` is not called any more.  The socket may be handed to another thread, to be attached there:
 * what came meanwhile is told then. */
static inline void sock_detach(struct sock *s)
{
    s->net->ops->detach(s);
}
/* SO_SNDBUF and SO_RCVBUF; -1 leaves the system's own tuning.  What a listener has its connections inherit. */
static inline void sock_set_buffers(struct sock *s, int send_bytes, int receive_bytes)
{
    s->net->ops->set_buffers(s, send_bytes, receive_bytes);
}
MUST_USE static inline enum err sock_local_addr(struct sock *s, struct net_addr *out)
{
    return s->net->ops->local_addr(s, out);
}
/* Detaches and closes; allowed within its own `ready`.  What was sent still goes out, unless received bytes were left
 * unread: then the kernel resets the connection. */
static inline void sock_close(struct sock *s)
{
    s->net->ops->close(s);
}

/* "127.0.0.1:9092", "[::1]:9092"; IPv4 mapped into IPv6 is shown as IPv4. */
void net_addr_format(const struct net_addr *a, char out[NET_ADDR_TEXT_MAX]);
/* The host part alone, for limits by address. */
void net_addr_host(const struct net_addr *a, char out[NET_ADDR_TEXT_MAX]);
/* That text as Java shows such an address: IPv6 in full ("0:0:0:0:0:0:0:1"). */
void net_host_format_java(const char *host, char out[NET_ADDR_TEXT_MAX]);
uint16_t net_addr_port(const struct net_addr *a);
/* Resolves host (name, IPv4, IPv6 with or without brackets; "" or NULL: all interfaces) and port.  May wait for the
 * name service: on a worker or at start only.  At most `max` (> 0) addresses, IPv4 first as in Java; *count tells how
 * many, at least 1.  ERR_NOT_FOUND, ERR_TIMEOUT (the name service did not answer). */
MUST_USE enum err net_resolve(const char *host, uint16_t port, struct net_addr *out, size_t max, size_t *count,
                              struct fault *f);
/* An address written out (IPv4, IPv6 with or without brackets), without the name service.  False: `host` is a name. */
bool net_addr_parse(const char *host, uint16_t port, struct net_addr *out);
/* True when the address belongs to an interface of this machine (loopback included). */
static inline bool net_is_local(struct net *n, const struct net_addr *a)
{
    return n->ops->is_local(n, a);
}
/* The same of the machine that this process runs on. */
bool net_addr_is_local(const struct net_addr *a);
/* This machine's canonical host name, as Kafka takes it for an empty advertised host.  May wait for the name service.
 * To be freed with mem_free(). */
char *net_host_name(void);

#endif
