/* still_leads.h: asks the store whether this broker leads a partition.
 *
 * A broker that was stopped for a while, or cut off, may have been deposed and not know it.  What a client has sent to
 * the new leader meanwhile is then missing here.  Where the answer to that is nothing that a client can recover from,
 * the store is asked first: "look for the leader" is what a deposed one has to say.
 * Thread: the loop given. */
#ifndef BROKER_API_STILL_LEADS_H
#define BROKER_API_STILL_LEADS_H

#include <stdbool.h>

#include "broker/broker.h"

struct still_leads;

/* `done` once, in a turn of its own: whether the store says that this broker leads the partition in that epoch.  While
 * the store is out of reach it says nothing; when the session is over, no. */
struct still_leads *still_leads_ask(struct broker *br, struct loop *loop, const struct partition *p,
                                    int32_t leader_epoch, void (*done)(void *arg, bool leads), void *arg);
/* Instead of `done`. */
void still_leads_forget(struct still_leads *sl);

#endif
