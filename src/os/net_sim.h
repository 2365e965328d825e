/* net_sim.h: a network in memory: hosts, links between them that delay, cut and refuse, and stream sockets that behave
 * as TCP's do.  For tests and the simulator.
 *
 * Host `h` has the address 10.0.0.(h + 1).  WHAT A LINK DOES, each direction by itself:
 * - It delays.  What is sent on one connection arrives in its order, once.
 * - Cut, it loses everything without a word.  What was sent, and what was on its way, is sent again after the link is
 *   whole, as TCP does; who waits for room or for an answer to connect() goes on waiting.  Of a connection whose other
 *   direction alone is cut, data arrive until the sender's window is full, since no acknowledgement gets through.
 * - Refusing, it has the far host answer every packet with a reset: connects are refused, connections break when they
 *   are used.  A packet filter does that; so does a host whose process has ended.
 * A host that is down answers nothing, and after it is up again answers what was sent to old connections with resets;
 * also the probes that whoever made the connection sends from time to time (net.h).
 *
 * Buffers are bounded: send() takes what the window has room for, and ERR_AGAIN past it.
 *
 * Sockets tell their loops what happened by messages; who embeds the network asks net_sim_due_us() when something is to
 * happen next, and has net_sim_turn() make it happen.  The memory of closed sockets goes with net_sim_free().
 * Thread: one. */
#ifndef OS_NET_SIM_H
#define OS_NET_SIM_H

#include "os/clock.h"
#include "os/net.h"

struct net_sim;

struct net_sim_options {
    uint64_t seed;
    struct clock *clock; /* of the network; hosts may have others */
    unsigned hosts;
    int64_t delay_us_min, delay_us_max; /* of a packet, one way */
    unsigned slow_one_in;               /* one in so many packets takes slow_us longer; 0: none */
    int64_t slow_us;
    size_t window_bytes; /* under way and not read by the receiver, of one direction of a connection */
};

struct net_sim *net_sim_new(const struct net_sim_options *opt);
/* No loop that sockets are attached to may be turned any more. */
void net_sim_free(struct net_sim *s);
/* The network as this host sees it. */
struct net *net_sim_host(struct net_sim *s, unsigned host);

/* INT64_MAX: nothing is under way. */
int64_t net_sim_due_us(const struct net_sim *s);
/* All that is due by now. */
void net_sim_turn(struct net_sim *s);

enum net_sim_link { NET_SIM_UP, NET_SIM_CUT, NET_SIM_REFUSING };
/* What `from` sends to `to`.  Mended, it brings what was lost within `resend_us_max`. */
void net_sim_set_link(struct net_sim *s, unsigned from, unsigned to, enum net_sim_link link, int64_t resend_us_max);
enum net_sim_link net_sim_get_link(const struct net_sim *s, unsigned from, unsigned to);
/* Connections between the two break now, with a reset on both sides. */
void net_sim_reset(struct net_sim *s, unsigned one, unsigned other);

/* The host's process is gone, and its sockets with it: it will not be told of anything again.  Peers get resets, but
 * when the power of the host went, too (`silently`): it is down until net_sim_host_up(). */
void net_sim_host_gone(struct net_sim *s, unsigned host, bool silently);
void net_sim_host_up(struct net_sim *s, unsigned host);

#endif
