/* AlterConfigs (key 33, KIP-133): an entity's settings are replaced by those given. */
#include "broker/api/alter.h"
#include "broker/api/handlers.h"
#include "wire/gen/alter_configs.h"

static void take_request(struct request *rq, struct alter *al)
{
    const struct alter_configs_request *in = rq->in;
    al->validate_only = in->validate_only;
    al->count = (size_t)in->resources_count;
    al->items = arena_array(&rq->arena, struct alteration, al->count);
    for (size_t i = 0; i < al->count; i++) {
        const struct alter_configs_request_alter_configs_resource *r = &in->resources[i];
        size_t n = (size_t)r->configs_count;
        struct config_change *changes = arena_array(&rq->arena, struct config_change, n);
        for (size_t c = 0; c < n; c++)
            changes[c] = (struct config_change){r->configs[c].name, CONFIG_SET, r->configs[c].value};
        al->items[i] =
            (struct alteration){.type = r->resource_type, .name = r->resource_name, .changes = changes, .count = n};
    }
}

enum step alter_configs_handle(struct request *rq)
{
    struct alter *al = REQUEST_OP(rq, struct alter);
    if (!al->items) take_request(rq, al);
    if (alter_run(rq, al) == WAIT) return WAIT;
    struct alter_configs_response *out = rq->out;
    out->responses = arena_array(&rq->arena, struct alter_configs_response_alter_configs_resource_response, al->count);
    for (size_t i = 0; i < al->count; i++)
        out->responses[out->responses_count++] = (struct alter_configs_response_alter_configs_resource_response){
            .error_code = (int16_t)al->items[i].kerr,
            .error_message = al->items[i].message,
            .resource_type = al->items[i].type,
            .resource_name = al->items[i].name,
        };
    return DONE;
}
