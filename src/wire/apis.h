/* apis.h: one row an API: its versions, its headers, its schemas.  From protocol/, made by the build.
 * A range of versions in which nothing lies has min > max.  Thread: any. */
#ifndef WIRE_APIS_H
#define WIRE_APIS_H

#include "wire/codec.h"
#include "wire/gen/api_keys.h" /* enum api: API_PRODUCE = 0 ... */

enum { WIRE_ON_ZK_BROKER = BIT(0), WIRE_ON_BROKER = BIT(1), WIRE_ON_CONTROLLER = BIT(2) };

struct wire_api {
    int16_t key;
    const char *name;                 /* "Produce" */
    int16_t v391_min, v391_max;       /* what Apache Kafka 3.9.1 has */
    int16_t v431_min, v431_max;       /* what 4.3.1 has */
    int16_t request_min, request_max; /* what we can decode and encode, requests and responses alike */
    int16_t flexible_min;             /* above request_max: none is */
    uint32_t unstable;                /* versions that no release declared stable, a bit each */
    uint8_t listeners;                /* WIRE_ON_*: who serves it */
    bool cluster_action;              /* only brokers may ask */
    bool forwardable;                 /* a broker may pass it on to the controller */
    const char *request_headers;      /* a digit a version from request_min on */
    const char *response_headers;
    const struct wire_schema *request, *response;
};

extern const struct wire_api wire_apis[API_COUNT];

/* The API's row, NULL for a key that there is not. */
const struct wire_api *wire_api_find(int16_t key);

/* The version of RequestHeader or ResponseHeader that goes with a version of the body.  Outside the known versions it
 * is the nearest one's: Kafka reads the header of an ApiVersions request of an unknown version so. */
int16_t wire_request_header_version(const struct wire_api *api, int16_t version);
int16_t wire_response_header_version(const struct wire_api *api, int16_t version);

#endif
