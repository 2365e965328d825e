/* topic_name.h: which names a topic may have.  Thread: any. */
#ifndef WIRE_TOPIC_NAME_H
#define WIRE_TOPIC_NAME_H

#include <stdbool.h>

#include "base/slice.h"

enum { TOPIC_NAME_MAX = 249 };

/* Why a name cannot be a topic's, for a person ("is empty"); NULL when it can.  A static string. */
const char *topic_name_fault(struct str name);

static inline bool topic_name_is_valid(struct str name)
{
    return topic_name_fault(name) == NULL;
}

#endif
