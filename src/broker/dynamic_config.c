/* dynamic_config.c: what is stored, look-ups, and putting a change into effect. */
#include "broker/dynamic_config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "broker/dynamic_config_internal.h"
#include "broker/stored_config.h"
#include "broker/topic_settings.h"
#include "controller/controller.h"
#include "coord/znodes.h"

#define LOG_MODULE "broker"
#include "base/log.h"

/* Topics that get new settings in one turn of the home loop. */
enum { REBUILD_TOPICS_PER_TURN = 100 };

/* ---- What is stored */

static bool maps_equal(const struct config_map *a, const struct config_map *b)
{
    if (!a || !b) return a == b;
    if (config_map_count(a) != config_map_count(b)) return false;
    for (size_t i = 0; i < config_map_count(a); i++) {
        const struct config_pair *x = config_map_at(a, i), *y = config_map_at(b, i);
        if (strcmp(x->name, y->name) != 0 || strcmp(x->value, y->value) != 0) return false;
    }
    return true;
}

static bool store_topic(struct dynamic_config *dc, struct str name, struct config_map *give)
{
    pthread_mutex_lock(&dc->lock);
    struct stored_topic *st;
    HASH_FIND(hh, dc->topics, name.data, name.size, st);
    bool changed = !maps_equal(st ? st->overrides : NULL, give);
    if (changed && !st) {
        st = mem_zalloc(1, sizeof *st + name.size + 1);
        memcpy(st->name, name.data, name.size);
        HASH_ADD_KEYPTR(hh, dc->topics, st->name, name.size, st);
    }
    if (changed) {
        struct config_map *old = st->overrides;
        st->overrides = give;
        give = old;
        if (!st->overrides) {
            HASH_DEL(dc->topics, st);
            mem_free(st);
        }
    }
    pthread_mutex_unlock(&dc->lock);
    config_map_free(give);
    return changed;
}

bool dynamic_config_store(struct dynamic_config *dc, enum config_entity kind, struct str name, struct config_map *give)
{
    if (kind == CONFIG_ENTITY_TOPIC) return store_topic(dc, name, give);
    struct config_map **slot = str_equal(name, CONFIG_DEFAULT) ? &dc->cluster : &dc->own;
    if (maps_equal(*slot, give)) {
        config_map_free(give);
        return false;
    }
    config_map_free(*slot);
    *slot = give;
    return true;
}

const struct config_map *dynamic_config_stored(const struct dynamic_config *dc, enum config_entity kind,
                                               struct str name)
{
    ASSERT_OWNER(broker_home(dc->br)); /* which alone changes it */
    if (kind == CONFIG_ENTITY_BROKER) return str_equal(name, CONFIG_DEFAULT) ? dc->cluster : dc->own;
    struct stored_topic *st;
    HASH_FIND(hh, dc->topics, name.data, name.size, st);
    return st ? st->overrides : NULL;
}

void dynamic_config_forget(struct dynamic_config *dc, struct str topic)
{
    (void)store_topic(dc, topic, NULL);
}

struct str *dynamic_config_stored_topics(struct dynamic_config *dc, struct arena *a, size_t *count)
{
    pthread_mutex_lock(&dc->lock);
    struct str *names = arena_array(a, struct str, HASH_COUNT(dc->topics));
    *count = 0;
    for (const struct stored_topic *st = dc->topics; st; st = st->hh.next)
        names[(*count)++] = arena_str(a, str_of(st->name));
    pthread_mutex_unlock(&dc->lock);
    return names;
}

struct config_map *dynamic_config_topic(struct dynamic_config *dc, struct str topic)
{
    pthread_mutex_lock(&dc->lock);
    struct stored_topic *st;
    HASH_FIND(hh, dc->topics, topic.data, topic.size, st);
    struct config_map *copy = st ? config_map_copy(st->overrides) : NULL;
    pthread_mutex_unlock(&dc->lock);
    return copy;
}

void dynamic_config_topic_settings(void *dynamic_config, struct str topic, struct topic_settings *out)
{
    struct dynamic_config *dc = dynamic_config;
    struct config *cfg = config_live_ref(dc->br->config);
    struct config_map *overrides = dynamic_config_topic(dc, topic);
    topic_settings_build(out, cfg, overrides);
    config_map_free(overrides);
    config_unref(cfg);
}

static char *override_of(const struct config_map *overrides, const char *name)
{
    const char *value = overrides ? config_map_get(overrides, name) : NULL;
    return value && *value ? mem_strdup(value) : NULL;
}

void dynamic_config_topic_throttles(void *dynamic_config, struct str topic, struct topic_throttles *out)
{
    struct config_map *overrides = dynamic_config_topic(dynamic_config, topic);
    out->as_leader = override_of(overrides, "leader.replication.throttled.replicas");
    out->as_follower = override_of(overrides, "follower.replication.throttled.replicas");
    config_map_free(overrides);
}

/* ---- Putting a topic's settings into effect */

void dynamic_config_apply_topic(struct dynamic_config *dc, struct str topic)
{
    struct topic_settings settings;
    dynamic_config_topic_settings(dc, topic, &settings);
    replicas_reconfigure(dc->br->replicas, topic, &settings);
}

/* The controller, when it is on this broker, elects by what a topic's settings say. */
static void tell_controller(struct dynamic_config *dc)
{
    if (!dc->br->controller) return;
    struct config *cfg = config_live_ref(dc->br->config);
    controller_unclean_changed(dc->br->controller, config_bool(cfg, CFG_UNCLEAN_LEADER_ELECTION_ENABLE));
    config_unref(cfg);
}

/* ---- Putting the broker's into effect */

struct rebuild_waiter {
    struct list_node node;
    void (*done)(void *arg);
    void *arg;
};

static void rebuild_drop_names(struct dynamic_config *dc)
{
    for (size_t i = 0; i < dc->rebuild_count; i++) mem_free(dc->rebuild[i]);
    mem_free(dc->rebuild);
    dc->rebuild = NULL;
    dc->rebuild_count = 0;
}

static void rebuild_end(struct dynamic_config *dc)
{
    rebuild_drop_names(dc);
    struct list_node *n;
    while ((n = list_pop_front(&dc->rebuild_waiters))) {
        struct rebuild_waiter w = *CONTAINER_OF(n, struct rebuild_waiter, node);
        mem_free(CONTAINER_OF(n, struct rebuild_waiter, node));
        w.done(w.arg);
    }
}

static void rebuild_some(struct loop_msg *msg)
{
    struct dynamic_config *dc = CONTAINER_OF(msg, struct dynamic_config, rebuild_msg);
    for (int n = 0; n < REBUILD_TOPICS_PER_TURN && dc->rebuild_at < dc->rebuild_count; n++)
        dynamic_config_apply_topic(dc, str_of(dc->rebuild[dc->rebuild_at++]));
    if (dc->rebuild_at < dc->rebuild_count)
        loop_post(broker_home(dc->br), &dc->rebuild_msg);
    else
        rebuild_end(dc);
}

static int topic_compare(const void *a, const void *b)
{
    return strcmp((*(struct partition *const *)a)->topic, (*(struct partition *const *)b)->topic);
}

/* Begins anew when one is going on: what it has done so far is out of date. */
static void rebuild_all(struct dynamic_config *dc)
{
    bool posted = dc->rebuild != NULL;
    rebuild_drop_names(dc);
    size_t count;
    struct partition **parts = replicas_list(dc->br->replicas, &count);
    qsort(parts, count, sizeof(struct partition *), topic_compare);
    dc->rebuild = mem_zalloc(count, sizeof(char *));
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(parts[i - 1]->topic, parts[i]->topic) != 0)
            dc->rebuild[dc->rebuild_count++] = mem_strdup(parts[i]->topic);
    replicas_list_free(parts, count);
    dc->rebuild_at = 0;
    dc->rebuild_msg.run = rebuild_some;
    if (!posted) loop_post(broker_home(dc->br), &dc->rebuild_msg);
}

static void log_ignored(const struct config *cfg)
{
    for (size_t i = 0; i < config_notice_count(cfg); i++) {
        const struct config_notice *n = config_notice_at(cfg, i);
        if (n->kind == CONFIG_NOTICE_IGNORED)
            LOG_WARN("dynamic_config_ignored", "key=%s reason=\"%s\"", n->name, n->text);
    }
}

void dynamic_config_apply_broker(struct dynamic_config *dc)
{
    struct broker *br = dc->br;
    struct config *base = config_live_ref(br->config), *next;
    struct fault f = {0};
    enum err e = config_with_dynamic(&next, base, dc->cluster, dc->own, &f);
    config_unref(base);
    if (e) {
        LOG_ERROR("dynamic_config_refused", "reason=\"%s\"; the configuration stays as it was", f.text);
        return;
    }
    log_ignored(next);
    config_live_give(br->config, next);
    LOG_INFO("dynamic_config_applied", "broker=%s cluster_keys=%zu broker_keys=%zu", dc->own_name,
             dc->cluster ? config_map_count(dc->cluster) : 0, dc->own ? config_map_count(dc->own) : 0);
    broker_config_changed(br);
    tell_controller(dc);
    rebuild_all(dc);
}

/* ---- Reading an entity again */

struct entity_read {
    struct dynamic_config *dc;
    enum config_entity kind;
    void (*done)(void *arg);
    void *arg;
    struct str name; /* lies in name_text */
    char name_text[];
};

static void read_done(struct entity_read *er)
{
    struct dynamic_config *dc = er->dc;
    if (er->done && dc->rebuild && er->kind == CONFIG_ENTITY_BROKER) {
        struct rebuild_waiter *w = mem_zalloc(1, sizeof *w);
        *w = (struct rebuild_waiter){.done = er->done, .arg = er->arg};
        list_push_back(&dc->rebuild_waiters, &w->node);
    } else if (er->done) {
        er->done(er->arg);
    }
    mem_free(er);
}

static void entity_changed(struct entity_read *er)
{
    struct dynamic_config *dc = er->dc;
    if (er->kind == CONFIG_ENTITY_BROKER) {
        dynamic_config_apply_broker(dc);
        return;
    }
    LOG_INFO("topic_config_changed", "topic=%.*s", STR_ARG(er->name));
    dynamic_config_apply_topic(dc, er->name);
    tell_controller(dc);
}

static void on_entity(void *arg, const struct coord_result *r)
{
    struct entity_read *er = arg;
    struct dynamic_config *dc = er->dc;
    if (r->err && r->err != ERR_NOT_FOUND) {
        if (!coord_session_over(r->err))
            LOG_ERROR("dynamic_config_unread", "path=%.*s reason=\"%s\"; the old settings stay", STR_ARG(r->path),
                      r->text ? r->text : err_text(r->err));
        read_done(er);
        return;
    }
    struct config_map *m = NULL;
    if (!r->err) m = stored_config_read(er->kind, r->path, r->data, dynamic_config_stored(dc, er->kind, er->name));
    if (dynamic_config_store(dc, er->kind, er->name, m)) entity_changed(er);
    read_done(er);
}

void dynamic_config_refresh(struct dynamic_config *dc, enum config_entity kind, struct str name,
                            void (*done)(void *arg), void *arg)
{
    struct entity_read *er = mem_zalloc(1, sizeof *er + name.size + 1);
    *er = (struct entity_read){.dc = dc, .kind = kind, .done = done, .arg = arg};
    memcpy(er->name_text, name.data, name.size);
    er->name = (struct str){er->name_text, name.size};
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct str path = znode_config_path(&a, kind == CONFIG_ENTITY_TOPIC ? CONFIG_TOPICS : CONFIG_BROKERS, name);
    /* Whichever loop asks, results reach the home loop in the order of the reads, so the newest is stored last. */
    coord_get(dc->br->coord, path, COORD_NO_WATCH, (struct coord_to){broker_home(dc->br), on_entity, er});
    arena_fini(&a);
}

/* ---- New topics */

struct prepare {
    size_t pending;
    void (*done)(void *arg);
    void *arg;
};

static void prepare_one_done(void *arg)
{
    struct prepare *p = arg;
    if (--p->pending) return;
    p->done(p->arg);
    mem_free(p);
}

static bool topic_is_new(const struct leader_and_isr_request_leader_and_isr_topic_state *ts)
{
    for (int32_t i = 0; i < ts->partition_states_count; i++)
        if (ts->partition_states[i].is_new) return true;
    return false;
}

void dynamic_config_prepare(struct dynamic_config *dc, const struct leader_and_isr_request *request,
                            void (*done)(void *arg), void *arg)
{
    ASSERT_OWNER(broker_home(dc->br));
    struct prepare *p = mem_alloc(sizeof *p);
    *p = (struct prepare){1, done, arg};
    for (int32_t i = 0; i < request->topic_states_count; i++) {
        struct str topic = request->topic_states[i].topic_name;
        /* What is older was read at the start, or notified; but a controller that came into office between the creation
         * and its first LeaderAndIsr does not say that the partitions are new. */
        if (!topic_is_new(&request->topic_states[i]) && replicas_find(dc->br->replicas, topic)) continue;
        p->pending++;
        dynamic_config_refresh(dc, CONFIG_ENTITY_TOPIC, topic, prepare_one_done, p);
    }
    prepare_one_done(p);
}

/* ---- The end */

void dynamic_config_free(struct dynamic_config *dc)
{
    if (!dc) return;
    loop_timer_cancel(broker_home(dc->br), &dc->retry_timer);
    struct stored_topic *st, *next;
    HASH_ITER(hh, dc->topics, st, next)
    {
        HASH_DEL(dc->topics, st);
        config_map_free(st->overrides);
        mem_free(st);
    }
    config_map_free(dc->cluster);
    config_map_free(dc->own);
    dynamic_config_loading_free(dc);
    rebuild_drop_names(dc);
    struct list_node *n;
    while ((n = list_pop_front(&dc->rebuild_waiters))) mem_free(CONTAINER_OF(n, struct rebuild_waiter, node));
    mem_free(dc->seen);
    pthread_mutex_destroy(&dc->lock);
    mem_free(dc);
}
