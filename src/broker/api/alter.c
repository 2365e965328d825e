/* alter.c: an alteration is judged where it is made, on the controller's loop, against the settings of that moment. */
#include "broker/api/alter.h"

#include <stdio.h>

#include "broker/api/config_resource.h"
#include "broker/api/named.h"
#include "broker/broker.h"
#include "broker/config_write.h"
#include "broker/dynamic_config.h"
#include "controller/controller.h"

static void fail(struct alteration *it, enum kerr kerr, struct str message)
{
    it->kerr = kerr;
    it->message = message;
}

/* ---- Checks that need no look at what is stored */

static void check_topic(struct request *rq, struct alteration *it)
{
    if (it->name.size == 0)
        fail(it, KERR_INVALID_REQUEST, STR("Default topic resources are not allowed."));
    else if (!metadata_topic(rq->broker->metadata, it->name))
        fail(it, KERR_UNKNOWN_TOPIC_OR_PARTITION,
             arena_printf(&rq->arena, "The topic '%.*s' does not exist.", STR_ARG(it->name)));
}

static void check_broker_id(struct request *rq, struct alteration *it, const char *wrong)
{
    int32_t id;
    if (!config_resource_broker_id(it->name, &id))
        fail(it, KERR_INVALID_REQUEST,
             arena_printf(&rq->arena, "Node id must be an integer, but it is: %.*s", STR_ARG(it->name)));
    else if (id != rq->broker->id)
        fail(it, KERR_INVALID_REQUEST,
             arena_printf(&rq->arena, "%s expected %d, but received %.*s", wrong, rq->broker->id, STR_ARG(it->name)));
}

/* There are no loggers with levels of their own, so none that is named exists. */
static void check_logger(struct request *rq, struct alteration *it)
{
    check_broker_id(rq, it, "Unexpected node id,");
    if (it->kerr || it->count == 0) return;
    const struct config_change *c = &it->changes[0];
    if (c->op == CONFIG_SET || c->op == CONFIG_DELETE)
        fail(it, KERR_INVALID_CONFIG, arena_printf(&rq->arena, "Logger %.*s does not exist!", STR_ARG(c->name)));
    else
        fail(it, KERR_INVALID_REQUEST, STR("This operation is not allowed for the BROKER_LOGGER resource"));
}

static void check_item(struct request *rq, struct alteration *it)
{
    switch (it->type) {
    case RESOURCE_TOPIC: check_topic(rq, it); break;
    case RESOURCE_BROKER:
        if (it->name.size > 0) check_broker_id(rq, it, "Unexpected broker id,");
        break;
    case RESOURCE_BROKER_LOGGER:
        if (it->keep_others) {
            check_logger(rq, it);
            break;
        }
        FALLTHROUGH; /* the older request does not know it */
    default: fail(it, KERR_INVALID_REQUEST, arena_printf(&rq->arena, "Unknown resource type %d", it->type)); break;
    case RESOURCE_CLIENT_METRICS:
    case RESOURCE_GROUP:
        fail(it, KERR_INVALID_REQUEST,
             arena_printf(&rq->arena, "AlterConfigs is only supported for topics and brokers, but resource type is %s",
                          config_resource_name(it->type)));
        break;
    }
}

/* ---- The change itself */

static struct config_map *map_of(const struct znode_config *zc)
{
    struct config_map *m = config_map_new();
    for (size_t i = 0; i < zc->count; i++) config_map_set(m, zc->settings[i].name, zc->settings[i].value);
    return m;
}

static void put_settings(const struct config_map *m, struct arena *a, struct znode_config *out)
{
    out->count = config_map_count(m);
    out->settings = arena_array(a, struct znode_setting, out->count);
    for (size_t i = 0; i < out->count; i++) {
        const struct config_pair *p = config_map_at(m, i);
        out->settings[i] = (struct znode_setting){arena_str(a, str_of(p->name)), arena_str(a, str_of(p->value))};
    }
}

/* For the controller, on its loop, which is the home loop. */
static enum kerr alter_entity(void *arg, const struct znode_config *current, struct arena *a, struct znode_config *out,
                              struct str *message)
{
    const struct alteration *it = arg;
    const struct config *cfg = broker_config(it->broker, broker_home(it->broker));
    struct config_map *old = it->keep_others ? map_of(current) : NULL, *next = NULL;
    struct fault f = {0};
    enum config_verdict verdict;
    if (it->type == RESOURCE_TOPIC)
        verdict = config_alter_topic(&next, cfg, old, it->changes, it->count, &f);
    else
        verdict =
            config_alter_broker(&next, cfg, it->name.size ? CONFIG_FROM_DYNAMIC_BROKER : CONFIG_FROM_DYNAMIC_CLUSTER,
                                old, it->changes, it->count, &f);
    config_map_free(old);
    if (verdict != CONFIG_ACCEPTED) {
        *message = arena_str(a, str_of(f.text));
        return verdict == CONFIG_BAD_VALUE ? KERR_INVALID_CONFIG : KERR_INVALID_REQUEST;
    }
    put_settings(next, a, out);
    config_map_free(next);
    return KERR_NONE;
}

/* The entity's name in coordination: a broker's id has one way to be written there. */
static struct str entity_name(struct request *rq, const struct alteration *it)
{
    if (it->type == RESOURCE_TOPIC) return it->name;
    if (it->name.size == 0) return CONFIG_DEFAULT;
    return arena_printf(&rq->arena, "%d", rq->broker->id);
}

static void refresh(struct request *rq, struct alter *al, const struct alteration *it)
{
    gather_add(&al->refreshes);
    dynamic_config_refresh(rq->broker->dynamic_config,
                           it->type == RESOURCE_TOPIC ? CONFIG_ENTITY_TOPIC : CONFIG_ENTITY_BROKER, entity_name(rq, it),
                           gather_arrived, &al->refreshes);
}

static bool says_not_controller(const struct controller_results *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->results[i].kerr == KERR_NOT_CONTROLLER) return true;
    return false;
}

/* The answer; the request's loop. */
static void on_written(void *arg, const struct controller_results *r)
{
    struct request *rq = arg;
    struct alter *al = rq->op;
    ASSERT(r->count == al->sent_count);
    if (!al->by_us && says_not_controller(r)) {
        al->by_us = true;
        config_write_alter(rq->broker, al->changes, al->sent_count, al->validate_only,
                           (struct controller_to){rq->loop, on_written, rq});
        return;
    }
    gather_begin(&al->refreshes, rq);
    for (size_t i = 0; i < r->count; i++) {
        struct alteration *it = &al->items[al->sent[i]];
        fail(it, r->results[i].kerr, arena_str(&rq->arena, r->results[i].message));
        if (!it->kerr && !al->validate_only) refresh(rq, al, it);
    }
    al->written = true;
    if (gather_end(&al->refreshes)) request_wake(rq);
}

static void write_changes(struct request *rq, struct alter *al)
{
    al->changes = arena_array(&rq->arena, struct controller_config_change, al->count);
    al->sent = arena_array(&rq->arena, size_t, al->count);
    for (size_t i = 0; i < al->count; i++) {
        struct alteration *it = &al->items[i];
        if (it->kerr) continue;
        al->changes[al->sent_count] = (struct controller_config_change){
            .type = it->type == RESOURCE_TOPIC ? CONFIG_TOPICS : CONFIG_BROKERS,
            .name = entity_name(rq, it),
            .alter = alter_entity,
            .arg = it,
        };
        al->sent[al->sent_count++] = i;
    }
    if (al->sent_count)
        controller_alter_configs(rq->broker->controller, al->changes, al->sent_count, al->validate_only,
                                 (struct controller_to){rq->loop, on_written, rq});
}

static void check(struct request *rq, struct alter *al)
{
    struct named *names = arena_array(&rq->arena, struct named, al->count);
    for (size_t i = 0; i < al->count; i++)
        names[i] = (struct named){al->items[i].name, al->items[i].type, false, false};
    named_find_repeats(names, al->count, &rq->arena);
    for (size_t i = 0; i < al->count; i++) {
        al->items[i].broker = rq->broker;
        if (names[i].repeated)
            fail(&al->items[i], KERR_INVALID_REQUEST, STR("Each resource must appear at most once."));
        else
            check_item(rq, &al->items[i]);
    }
}

enum step alter_run(struct request *rq, struct alter *al)
{
    switch (al->stage) {
    case ALTER_CHECK:
        check(rq, al);
        al->stage = ALTER_WRITE;
        write_changes(rq, al);
        if (!al->sent_count) return DONE;
        FALLTHROUGH;
    case ALTER_WRITE: /* woken when it is stored and in effect here */
        if (!al->written || !al->refreshes.complete) return WAIT;
        return DONE;
    }
    UNREACHABLE();
}
