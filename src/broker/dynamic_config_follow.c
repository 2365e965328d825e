/* dynamic_config_follow.c: reading what is stored at the start, then following /config/changes; and all of it again
 * when a session has ended.
 *
 * The watch is set before anything is read, so a change is either read or notified.  A notification only says which
 * entity to look at again; it is read once, remembered, and removed when it is older than CHANGE_AGE_MS, as in Kafka
 * (whichever broker comes first removes it). */
#include "broker/dynamic_config_internal.h"
#include "broker/stored_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "coord/znodes.h"
#include "wire/topic_name.h"

#define LOG_MODULE "broker"
#include "base/log.h"

enum {
    CHANGE_AGE_MS = 15 * 60 * 1000,
    LOAD_READS_MAX = 1000, /* in flight while the start reads every entity */
    RETRY_US = 1000 * 1000
};

struct config_loading {
    void (*done)(void *arg, enum err e, const struct fault *f); /* of the start; NULL: a session has been renewed */
    void *arg;
    struct arena arena;
    struct str *topics;
    size_t topic_count, next, in_flight;
    bool broker_changed;
    bool again; /* the session was renewed since this began: what is read now counts */
    bool waits; /* to begin again: for the renewal of the session, which ended meanwhile, or for retry_timer */
    enum err err;
    struct fault fault;
};

/* ---- Notifications */

/* config_change_0000000042 is 42; -1: another kind of name. */
static int64_t change_number(struct str name)
{
    const struct str prefix = STR("config_change_");
    if (name.size <= prefix.size || name.size > prefix.size + 18) return -1;
    if (memcmp(name.data, prefix.data, prefix.size) != 0) return -1;
    int64_t n = 0;
    for (size_t i = prefix.size; i < name.size; i++) {
        if (name.data[i] < '0' || name.data[i] > '9') return -1;
        n = n * 10 + (name.data[i] - '0');
    }
    return n;
}

static struct str change_path(struct arena *a, int64_t number)
{
    return arena_printf(a, "%.*s%010" PRId64, STR_ARG(ZNODE_CONFIG_CHANGE), number);
}

static void purge_old(struct dynamic_config *dc)
{
    int64_t before_ms = clock_wall_ms(dc->br->clock) - CHANGE_AGE_MS;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    for (; dc->seen_at < dc->seen_count && dc->seen[dc->seen_at].ctime_ms < before_ms; dc->seen_at++)
        coord_delete(dc->br->coord, change_path(&a, dc->seen[dc->seen_at].number), COORD_ANY_VERSION,
                     (struct coord_to){broker_home(dc->br), NULL, NULL});
    arena_fini(&a);
    if (dc->seen_at < dc->seen_count / 2 || dc->seen_at == 0) return;
    dc->seen_count -= dc->seen_at;
    memmove(dc->seen, dc->seen + dc->seen_at, dc->seen_count * sizeof *dc->seen);
    dc->seen_at = 0;
}

static void remember_change(struct dynamic_config *dc, int64_t number, int64_t ctime_ms)
{
    dc->seen = mem_grow(dc->seen, &dc->seen_cap, dc->seen_count + 1, sizeof *dc->seen);
    dc->seen[dc->seen_count++] = (struct seen_change){number, ctime_ms};
    purge_old(dc);
}

static bool has_prefix(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.size > n && memcmp(s.data, prefix, n) == 0;
}

/* "topics/T" or "brokers/N"; what concerns others is passed over. */
static void refresh_path(struct dynamic_config *dc, struct str entity)
{
    if (has_prefix(entity, "topics/")) {
        struct str topic = {entity.data + 7, entity.size - 7};
        if (topic_name_is_valid(topic)) dynamic_config_refresh(dc, CONFIG_ENTITY_TOPIC, topic, NULL, NULL);
    } else if (has_prefix(entity, "brokers/")) {
        struct str name = {entity.data + 8, entity.size - 8};
        if (str_is(name, dc->own_name) || str_equal(name, CONFIG_DEFAULT))
            dynamic_config_refresh(dc, CONFIG_ENTITY_BROKER, name, NULL, NULL);
    }
}

static int64_t number_of_path(struct str path)
{
    size_t skip = ZNODE_CONFIG_CHANGES.size + 1;
    return path.size > skip ? change_number((struct str){path.data + skip, path.size - skip}) : -1;
}

/* One that was there before everything is read: so is what it tells of. */
static void on_old_change(void *arg, const struct coord_result *r)
{
    if (!r->err) remember_change(arg, number_of_path(r->path), r->stat.ctime_ms);
}

static void on_new_change(void *arg, const struct coord_result *r)
{
    struct dynamic_config *dc = arg;
    if (r->err) return; /* removed meanwhile, or the session is over */
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct str entity;
    struct fault f = {0};
    if (znode_config_change_decode(&a, r->path, r->data, &entity, &f) == OK)
        refresh_path(dc, entity);
    else
        LOG_WARN("config_change_unreadable", "reason=\"%s\"", f.text);
    arena_fini(&a);
    remember_change(dc, number_of_path(r->path), r->stat.ctime_ms);
}

/* Reads the notifications past the last one known; names come sorted. */
static void read_changes(struct dynamic_config *dc, const struct coord_result *r, coord_done_fn done)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    for (size_t i = 0; i < r->child_count; i++) {
        int64_t number = change_number(r->children[i]);
        if (number <= dc->last_change) continue;
        dc->last_change = number;
        coord_get(dc->br->coord, change_path(&a, number), COORD_NO_WATCH,
                  (struct coord_to){broker_home(dc->br), done, dc});
    }
    arena_fini(&a);
}

static void list_changes(struct dynamic_config *dc, coord_done_fn done);
static void load_begin(struct dynamic_config *dc);

static void on_retry(struct timer *t);

static void retry_later(struct dynamic_config *dc)
{
    struct loop *home = broker_home(dc->br);
    dc->retry_timer.fire = on_retry;
    loop_timer_set(home, &dc->retry_timer, loop_now_us(home) + RETRY_US);
}

static void on_changes(void *arg, const struct coord_result *r)
{
    struct dynamic_config *dc = arg;
    if (coord_session_over(r->err)) return; /* whoever begins the next one lists them again */
    if (r->err) {
        LOG_ERROR("config_changes_unreadable", "reason=\"%s\"; trying again", r->text ? r->text : err_text(r->err));
        retry_later(dc);
        return;
    }
    read_changes(dc, r, on_new_change);
}

static void on_retry(struct timer *t)
{
    struct dynamic_config *dc = CONTAINER_OF(t, struct dynamic_config, retry_timer);
    if (!dc->br->coord) return; /* the broker has stopped */
    if (dc->loading && dc->loading->waits)
        load_begin(dc);
    else
        list_changes(dc, on_changes);
}

static void on_changes_watch(void *arg, enum coord_event event, struct str path)
{
    (void)event, (void)path;
    list_changes(arg, on_changes);
}

/* Sets the watch anew, too. */
static void list_changes(struct dynamic_config *dc, coord_done_fn done)
{
    coord_children(dc->br->coord, ZNODE_CONFIG_CHANGES, (struct coord_watch){on_changes_watch, dc},
                   (struct coord_to){broker_home(dc->br), done, dc});
}

/* ---- Reading everything: at the start, and when a new session has begun */

void dynamic_config_loading_free(struct dynamic_config *dc)
{
    if (!dc->loading) return;
    arena_fini(&dc->loading->arena);
    mem_free(dc->loading);
    dc->loading = NULL;
}

static void load_end(struct dynamic_config *dc)
{
    struct config_loading *ld = dc->loading;
    if (ld->again) {
        load_begin(dc);
        return;
    }
    if (ld->err == ERR_EXPIRED || (ld->err && ld->err != ERR_CLOSED && !ld->done)) {
        ld->waits = true;
        if (ld->err != ERR_EXPIRED) {
            LOG_ERROR("dynamic_config_unreadable", "reason=\"%s\"; trying again", ld->fault.text);
            retry_later(dc);
        }
        return;
    }
    if (!ld->err && ld->broker_changed) dynamic_config_apply_broker(dc);
    if (ld->done) ld->done(ld->arg, ld->err, ld->err ? &ld->fault : NULL);
    dynamic_config_loading_free(dc);
}

static void load_fail(struct config_loading *ld, const struct coord_result *r)
{
    if (ld->err) return;
    ld->err = fault_set(&ld->fault, r->err, "Reading %.*s failed: %s", STR_ARG(r->path),
                        r->text ? r->text : err_text(r->err));
}

/* At the start a store that does not tell what is there ends it; later the old settings stay. */
static void load_entity_fail(struct config_loading *ld, const struct coord_result *r)
{
    if (ld->done || coord_session_over(r->err))
        load_fail(ld, r);
    else
        LOG_ERROR("dynamic_config_unread", "path=%.*s reason=\"%s\"; the old settings stay", STR_ARG(r->path),
                  r->text ? r->text : err_text(r->err));
}

static void load_more(struct dynamic_config *dc);

/* What is behind the last slash of a path. */
static struct str last_part(struct str path)
{
    size_t at = path.size;
    while (at > 0 && path.data[at - 1] != '/') at--;
    return (struct str){path.data + at, path.size - at};
}

/* At the start no topic has a replica yet. */
static void load_keep(struct dynamic_config *dc, enum config_entity kind, struct str name, struct config_map *give)
{
    if (!dynamic_config_store(dc, kind, name, give)) return;
    if (kind == CONFIG_ENTITY_BROKER)
        dc->loading->broker_changed = true;
    else if (!dc->loading->done)
        dynamic_config_apply_topic(dc, name);
}

static void load_entity(struct dynamic_config *dc, enum config_entity kind, const struct coord_result *r)
{
    struct config_loading *ld = dc->loading;
    ld->in_flight--;
    struct str name = last_part(r->path);
    struct config_map *m = NULL;
    if (!r->err) m = stored_config_read(kind, r->path, r->data, dynamic_config_stored(dc, kind, name));
    if (r->err && r->err != ERR_NOT_FOUND)
        load_entity_fail(ld, r);
    else
        load_keep(dc, kind, name, m);
    load_more(dc);
}

static void on_topic(void *arg, const struct coord_result *r)
{
    load_entity(arg, CONFIG_ENTITY_TOPIC, r);
}

static void on_broker(void *arg, const struct coord_result *r)
{
    load_entity(arg, CONFIG_ENTITY_BROKER, r);
}

static void load_get(struct dynamic_config *dc, struct str type, struct str name, coord_done_fn done)
{
    dc->loading->in_flight++;
    coord_get(dc->br->coord, znode_config_path(&dc->loading->arena, type, name), COORD_NO_WATCH,
              (struct coord_to){broker_home(dc->br), done, dc});
}

static void load_more(struct dynamic_config *dc)
{
    struct config_loading *ld = dc->loading;
    while (!ld->err && ld->next < ld->topic_count && ld->in_flight < LOAD_READS_MAX)
        load_get(dc, CONFIG_TOPICS, ld->topics[ld->next++], on_topic);
    if (ld->in_flight == 0) load_end(dc);
}

static int name_compare(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static bool is_child(const struct coord_result *r, struct str name)
{
    return r->child_count && bsearch(&name, r->children, r->child_count, sizeof name, name_compare);
}

static void on_topic_names(void *arg, const struct coord_result *r)
{
    struct dynamic_config *dc = arg;
    struct config_loading *ld = dc->loading;
    ld->in_flight--;
    if (r->err && r->err != ERR_NOT_FOUND) load_fail(ld, r);
    size_t stored_count;
    /* Those of which the settings went while nobody listened are not among the children any more. */
    struct str *stored = dynamic_config_stored_topics(dc, &ld->arena, &stored_count);
    ld->topics = arena_array(&ld->arena, struct str, r->child_count + stored_count);
    for (size_t i = 0; i < r->child_count; i++) ld->topics[ld->topic_count++] = arena_str(&ld->arena, r->children[i]);
    for (size_t i = 0; i < stored_count; i++)
        if (!is_child(r, stored[i])) ld->topics[ld->topic_count++] = stored[i];
    load_get(dc, CONFIG_BROKERS, CONFIG_DEFAULT, on_broker);
    load_get(dc, CONFIG_BROKERS, str_of(dc->own_name), on_broker);
    load_more(dc);
}

static void on_first_changes(void *arg, const struct coord_result *r)
{
    struct dynamic_config *dc = arg;
    struct config_loading *ld = dc->loading;
    ld->in_flight--;
    if (r->err) {
        load_fail(ld, r);
        load_end(dc);
        return;
    }
    read_changes(dc, r, on_old_change);
    ld->in_flight++;
    coord_children(dc->br->coord, arena_printf(&ld->arena, "%.*s/%.*s", STR_ARG(ZNODE_CONFIG), STR_ARG(CONFIG_TOPICS)),
                   COORD_NO_WATCH, (struct coord_to){broker_home(dc->br), on_topic_names, dc});
}

static void load_begin(struct dynamic_config *dc)
{
    struct config_loading *ld = dc->loading;
    arena_reset(&ld->arena);
    ld->topics = NULL;
    ld->topic_count = ld->next = 0;
    ld->in_flight = 1;
    ld->again = ld->waits = false;
    ld->err = OK;
    list_changes(dc, on_first_changes);
}

static void loading_new(struct dynamic_config *dc, void (*done)(void *arg, enum err e, const struct fault *f),
                        void *arg)
{
    dc->loading = mem_zalloc(1, sizeof *dc->loading);
    dc->loading->done = done;
    dc->loading->arg = arg;
    arena_init(&dc->loading->arena, SIZE_MAX);
    load_begin(dc);
}

void dynamic_config_open(struct dynamic_config **out, struct broker *br,
                         void (*done)(void *arg, enum err e, const struct fault *f), void *arg)
{
    struct dynamic_config *dc = mem_zalloc(1, sizeof *dc);
    dc->br = br;
    dc->last_change = -1;
    snprintf(dc->own_name, sizeof dc->own_name, "%d", br->id);
    pthread_mutex_init(&dc->lock, NULL);
    list_init(&dc->rebuild_waiters);
    *out = dc;
    loading_new(dc, done, arg);
}

void dynamic_config_renew(struct dynamic_config *dc)
{
    ASSERT_OWNER(broker_home(dc->br));
    if (!dc->loading)
        loading_new(dc, NULL, NULL);
    else if (dc->loading->waits)
        load_begin(dc);
    else
        dc->loading->again = true;
}
