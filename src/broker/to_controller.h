/* to_controller.h: what this broker asks of the controller: AlterPartition, AllocateProducerIds, ControlledShutdown,
 * CreateTopics for topics that are made on demand.
 *
 * The controller is whom the last UpdateMetadata names.  Where that is this broker, the call goes to it directly, else
 * over one connection on the home loop.  A lost connection or NOT_CONTROLLER is tried again, with the controller then
 * known, until the call's time is up.  Thread: calls may be made on any loop, `done` runs there. */
#ifndef BROKER_TO_CONTROLLER_H
#define BROKER_TO_CONTROLLER_H

#include "base/arena.h"
#include "base/buf.h"
#include "os/loop.h"
#include "wire/apis.h"
#include "wire/kerr.h"

struct broker;
struct to_controller;
struct way;

/* Zeroed, then filled in by the caller, who lends it and all it points to until `done`. */
struct controller_call {
    enum api api;
    int16_t version_min, version_max;
    const void *request;
    int64_t timeout_ms;
    struct loop *loop;
    void (*done)(struct controller_call *call);

    /* When `done` is called; good until it returns.  ERR_TIMEOUT: no controller has answered in time; ERR_UNSUPPORTED:
     * it knows no version that can say what is meant; ERR_CLOSED: this broker stops. */
    enum err err;
    int16_t version;
    const void *response;

    /* to_controller.c's own */
    struct to_controller *tc;
    struct loop_msg msg;
    struct list_node link;
    struct timer deadline;
    struct way *way;    /* how it is under way; NULL: it waits */
    struct arena arena; /* and a frame: what the answer consists of */
    struct buf *frame;
};

struct to_controller *to_controller_new(struct broker *br);
/* What waits is answered with ERR_CLOSED.  Home loop. */
void to_controller_stop(struct to_controller *tc);
void to_controller_free(struct to_controller *tc);

void to_controller_send(struct to_controller *tc, struct controller_call *call);
/* Somebody else may be the controller now: what waits is sent at once.  Home loop. */
void to_controller_changed(struct to_controller *tc);

/* The connection to the controller broke and its port refuses, `controller_id` being registered still: see
 * broker/controller_watch.h.  Told with each try that is refused.  NULL: nobody listens.  Home loop. */
void to_controller_on_dead(struct to_controller *tc, void (*dead)(void *arg, int32_t controller_id), void *arg);

#endif
