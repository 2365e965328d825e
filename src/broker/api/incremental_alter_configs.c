/* IncrementalAlterConfigs (key 44, KIP-339): settings are set, deleted, appended to or subtracted from. */
#include "broker/api/alter.h"
#include "broker/api/handlers.h"
#include "wire/gen/incremental_alter_configs.h"

static void take_request(struct request *rq, struct alter *al)
{
    const struct incremental_alter_configs_request *in = rq->in;
    al->validate_only = in->validate_only;
    al->count = (size_t)in->resources_count;
    al->items = arena_array(&rq->arena, struct alteration, al->count);
    for (size_t i = 0; i < al->count; i++) {
        const struct incremental_alter_configs_request_alter_configs_resource *r = &in->resources[i];
        size_t n = (size_t)r->configs_count;
        struct config_change *changes = arena_array(&rq->arena, struct config_change, n);
        for (size_t c = 0; c < n; c++)
            changes[c] =
                (struct config_change){r->configs[c].name, r->configs[c].config_operation, r->configs[c].value};
        al->items[i] = (struct alteration){
            .type = r->resource_type, .name = r->resource_name, .changes = changes, .count = n, .keep_others = true};
    }
}

enum step incremental_alter_configs_handle(struct request *rq)
{
    struct alter *al = REQUEST_OP(rq, struct alter);
    if (!al->items) take_request(rq, al);
    if (alter_run(rq, al) == WAIT) return WAIT;
    struct incremental_alter_configs_response *out = rq->out;
    out->responses =
        arena_array(&rq->arena, struct incremental_alter_configs_response_alter_configs_resource_response, al->count);
    for (size_t i = 0; i < al->count; i++)
        out->responses[out->responses_count++] =
            (struct incremental_alter_configs_response_alter_configs_resource_response){
                .error_code = (int16_t)al->items[i].kerr,
                .error_message = al->items[i].message,
                .resource_type = al->items[i].type,
                .resource_name = al->items[i].name,
            };
    return DONE;
}
