/* api_table.h: which APIs this broker serves, in which versions, and by which handler.  ApiVersions answers from it. */
#ifndef BROKER_API_TABLE_H
#define BROKER_API_TABLE_H

#include <stdint.h>

#include "broker/request.h"
#include "wire/apis.h"

struct api_versions_response;

struct api_row {
    const struct wire_api *wire;      /* name, schemas, header versions */
    int16_t version_min, version_max; /* what is decoded and handled */
    int16_t announced_min;            /* what ApiVersions says; below version_min only for Produce */
    enum step (*handle)(struct request *rq);
};

/* Binds the rows to their schemas; once, before any loop runs. */
void api_table_init(void);
/* NULL: no such API here. */
const struct api_row *api_table_find(int16_t key);
/* Fills the list of keys and versions; its array comes from the request's arena. */
void api_table_list(struct request *rq, struct api_versions_response *out);

#endif
