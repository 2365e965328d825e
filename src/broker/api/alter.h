/* alter.h: what AlterConfigs and IncrementalAlterConfigs share: checks, the write, and waiting until this
 * broker acts on it, so that whoever asks after the answer sees it. */
#ifndef BROKER_API_ALTER_H
#define BROKER_API_ALTER_H

#include "broker/api/gather.h"
#include "broker/config.h"
#include "wire/kerr.h"

struct controller_config_change;

/* One resource of the request and what becomes of it. */
struct alteration {
    struct broker *broker;
    int8_t type; /* an enum config_resource from a peer: any number may come */
    struct str name;
    const struct config_change *changes;
    size_t count;
    bool keep_others; /* settings that are not named stay (IncrementalAlterConfigs) */

    enum kerr kerr;
    struct str message;
};

struct alter {
    enum { ALTER_CHECK, ALTER_WRITE } stage;
    bool validate_only, written;
    struct alteration *items; /* filled in by the handler at its first entry, in the request's order */
    size_t count;
    size_t *sent; /* which of them are written */
    struct controller_config_change *changes;
    size_t sent_count;
    bool by_us; /* another broker is the controller */
    struct gather refreshes;
};

/* DONE: every item has its outcome.  WAIT: call again when entered again. */
enum step alter_run(struct request *rq, struct alter *al);

#endif
