/* topic_name.h: which names topics may have.  Pure.  Thread: any. */
#ifndef CONTROLLER_TOPIC_NAME_H
#define CONTROLLER_TOPIC_NAME_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/slice.h"
#include "wire/topic_name.h"

/* True for a name that Kafka allows; else *message (in `a`) says why not, in Kafka's words. */
bool topic_name_check(struct str name, struct arena *a, struct str *message);

/* "." and "_" are one character in metric names: topics whose names differ only there collide.  The name with every '.'
 * made '_', in `a`. */
struct str topic_name_unify(struct str name, struct arena *a);

#endif
