/* config_resource.c: names and numbers of configuration resources. */
#include "broker/api/config_resource.h"

const char *config_resource_name(int8_t type)
{
    switch (type) {
    case RESOURCE_TOPIC: return "TOPIC";
    case RESOURCE_BROKER: return "BROKER";
    case RESOURCE_BROKER_LOGGER: return "BROKER_LOGGER";
    case RESOURCE_CLIENT_METRICS: return "CLIENT_METRICS";
    case RESOURCE_GROUP: return "GROUP";
    default: return "UNKNOWN";
    }
}

bool config_resource_broker_id(struct str name, int32_t *out)
{
    size_t i = 0;
    bool negative = name.size > 0 && name.data[0] == '-';
    if (name.size > 0 && (negative || name.data[0] == '+')) i++;
    if (i == name.size) return false;
    int64_t v = 0;
    for (; i < name.size; i++) {
        if (name.data[i] < '0' || name.data[i] > '9') return false;
        v = v * 10 + (name.data[i] - '0');
        if (v > (int64_t)INT32_MAX + (negative ? 1 : 0)) return false;
    }
    *out = (int32_t)(negative ? -v : v);
    return true;
}
