/* zookeeper_read.h: reads a live ZooKeeper ensemble, node by node, for whoever may wait: tools.
 * Thread: one at a time; every call waits for the network. */
#ifndef COORD_ZOOKEEPER_READ_H
#define COORD_ZOOKEEPER_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

struct zookeeper_reader;

/* `hosts` as in Kafka's zookeeper.connect: HOST:PORT,HOST:PORT/chroot.  ERR_TIMEOUT when no server answers within
 * `timeout_ms`; `f` explains. */
MUST_USE enum err zookeeper_reader_open(struct zookeeper_reader **out, const char *hosts, int timeout_ms,
                                        struct fault *f);
void zookeeper_reader_close(struct zookeeper_reader *zr);

struct zookeeper_node {
    struct bytes data; /* null: none */
    bool ephemeral;
    struct str *children; /* names, as the server lists them */
    size_t child_count;
};

/* Data and children, in `a`.  ERR_NOT_FOUND, ERR_TIMEOUT, ERR_DENIED, ERR_IO; `f` explains. */
MUST_USE enum err zookeeper_read(struct zookeeper_reader *zr, struct str path, struct arena *a,
                                 struct zookeeper_node *out, struct fault *f);

#endif
