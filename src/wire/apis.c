/* apis.c: look-ups in the table of APIs, which the build makes. */
#include "wire/apis.h"

const struct wire_api *wire_api_find(int16_t key)
{
    if (key < 0 || key >= API_COUNT || !wire_apis[key].name) return NULL;
    return &wire_apis[key];
}

static int16_t header_version(const struct wire_api *api, const char *headers, int16_t version)
{
    int16_t v = version < api->request_min ? api->request_min : version;
    if (v > api->request_max) v = api->request_max;
    return (int16_t)(headers[v - api->request_min] - '0');
}

int16_t wire_request_header_version(const struct wire_api *api, int16_t version)
{
    return header_version(api, api->request_headers, version);
}

int16_t wire_response_header_version(const struct wire_api *api, int16_t version)
{
    return header_version(api, api->response_headers, version);
}
