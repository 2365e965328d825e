/* zookeeper.h: a ZooKeeper ensemble as coordination store, by ZooKeeper's own C library (libzookeeper-mt).
 *
 * The library has two threads of its own a session, one for the sockets, one for callbacks; nothing of ours runs on
 * them but the posting of results.  Calls are pipelined, at most `in_flight_max` at a time; what is more waits in
 * order.  A lost connection is mended by the library with the same session: reads that were out are asked again, writes
 * end as ERR_UNSURE (coord.h).  Names are looked up, and sessions opened and closed, on a thread of the store.
 *
 * The chroot of `connect` stands before every path here and nowhere else: users of coord.h do not see it. */
#ifndef COORD_ZOOKEEPER_H
#define COORD_ZOOKEEPER_H

#include "coord/coord.h"

struct coord_zookeeper_options {
    struct str connect;             /* zookeeper.connect: HOST:PORT,HOST:PORT/chroot; the chroot is made when missing */
    int32_t session_timeout_ms;     /* zookeeper.session.timeout.ms; the ensemble may make it another */
    int32_t connection_timeout_ms;  /* zookeeper.connection.timeout.ms: for the first connection */
    int32_t in_flight_max;          /* zookeeper.max.in.flight.requests */
    struct coord_listener listener; /* COORD_CONNECTED, or COORD_FAILED with the reason, is the first it hears */
    /* Digest authentication, as the Client section of a JAAS file has it; null: none. */
    struct str user, password;
    bool set_acl; /* zookeeper.set.acl: nodes are made for their creator, and for others to read what Kafka lets them */
    /* zookeeper.ssl.*; `tls` false: plain.  Files in PEM.  Debian's library has no TLS: ERR_UNSUPPORTED. */
    bool tls;
    struct str tls_truststore, tls_certificate, tls_key, tls_key_password;
    bool tls_verify_host;
};

/* Returns at once; the connection is made in the background.  ERR_INVALID, ERR_UNSUPPORTED (the library has no TLS):
 * `f` explains.  Everything in `opt` is copied. */
MUST_USE enum err coord_zookeeper_open(struct coord **out, const struct coord_zookeeper_options *opt, struct fault *f);

#endif
