/* server.h: listening sockets, the limits on connections, and handing them out to loops.
 * Thread: the home loop accepts; server_connection_closed() is called by any. */
#ifndef BROKER_SERVER_H
#define BROKER_SERVER_H

#include "broker/broker.h"

struct server;

/* One of `listeners` with what is advertised for it. */
struct listener_state {
    struct server *server;
    char *name;
    enum security_protocol protocol;
    char *host; /* what was asked for; NULL: all interfaces */
    struct net_addr bound;
    char *advertised_host;
    int32_t advertised_port;
    struct sock *sock;
    bool accept_paused; /* max.connections is reached, no descriptor was to be had, or others have their turn */
};

/* Binds every listener, so that a port in use is known before anything else is touched.  Blocks (name look-ups). */
MUST_USE enum err server_open(struct server **out, struct broker *br, const struct config *cfg, struct fault *f);
/* Starts accepting.  Home loop. */
MUST_USE enum err server_start(struct server *s, struct fault *f);
/* Accepts no more.  Home loop. */
void server_stop(struct server *s);
void server_free(struct server *s);
/* Takes over the limits on connections; those that are there stay.  Home loop. */
void server_reconfigure(struct server *s, const struct config *cfg);

size_t server_listener_count(const struct server *s);
const struct listener_state *server_listener(const struct server *s, size_t i);
void server_connection_closed(struct server *s, const char *host);

#endif
