/* api_table.c: the rows of api_rows.inc, bound to their schemas and indexed by key. */
#include "broker/api_table.h"

#include "broker/api/handlers.h"
#include "wire/gen/api_versions.h"

static const struct {
    int16_t key, min, max, announced;
    enum step (*handle)(struct request *rq);
} declared[] = {
#define API(key, name, min, max, announced) {key, min, max, announced, name##_handle},
#include "broker/api_rows.inc"
#undef API
};

static struct api_row rows[API_COUNT]; /* handle == NULL: not served */

void api_table_init(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(declared); i++) {
        const struct wire_api *wire = wire_api_find(declared[i].key);
        ASSERT(wire && declared[i].min >= wire->request_min && declared[i].max <= wire->request_max);
        rows[declared[i].key] =
            (struct api_row){wire, declared[i].min, declared[i].max, declared[i].announced, declared[i].handle};
    }
}

const struct api_row *api_table_find(int16_t key)
{
    if (key < 0 || key >= (int)ARRAY_COUNT(rows) || !rows[key].handle) return NULL;
    return &rows[key];
}

void api_table_list(struct request *rq, struct api_versions_response *out)
{
    out->api_keys = arena_array(&rq->arena, struct api_versions_response_api_version, ARRAY_COUNT(declared));
    for (size_t i = 0; i < ARRAY_COUNT(declared); i++) {
        struct api_versions_response_api_version *a = &out->api_keys[out->api_keys_count++];
        *a = api_versions_response_api_version_default;
        a->api_key = declared[i].key;
        a->min_version = declared[i].announced;
        a->max_version = declared[i].max;
    }
}
