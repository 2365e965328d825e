/* config_resource.h: what the APIs about configuration name.  Pure.  Thread: any. */
#ifndef BROKER_API_CONFIG_RESOURCE_H
#define BROKER_API_CONFIG_RESOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/* Kafka's numbers. */
enum config_resource {
    RESOURCE_TOPIC = 2,
    RESOURCE_BROKER = 4,
    RESOURCE_BROKER_LOGGER = 8,
    RESOURCE_CLIENT_METRICS = 16,
    RESOURCE_GROUP = 32
};

/* "TOPIC"; "UNKNOWN" for a number that is none of these. */
const char *config_resource_name(int8_t type);
/* A decimal 32-bit number, with a sign at will; false: it is none. */
bool config_resource_broker_id(struct str name, int32_t *out);

#endif
