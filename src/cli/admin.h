/* admin.h: opening a cluster for a command: addresses, and a file with an admin client's configuration.  Thread: main.
 */
#ifndef CLI_ADMIN_H
#define CLI_ADMIN_H

#include "client/cluster.h"

struct admin_settings {
    const char *bootstrap;
    const char *config_file; /* Kafka's --command-config; NULL: none */
    int64_t timeout_ms;      /* of each operation; -1: the file's, or the default */
};

/* Refuses what cannot be honoured (TLS, SASL: there is neither yet), and tells on standard error which keys of the file
 * have no effect. */
MUST_USE bool admin_open(struct cluster **out, const struct admin_settings *s, struct failure *f);

#endif
