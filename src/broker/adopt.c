/* adopt.c: see adopt.h.
 *
 * Adoption is written topic by topic, node by node, with creates that leave alone what is there; a marker node stands
 * in the store from before the first until after the last of them, so that an adoption that was cut off goes on at the
 * next start.  The controller begins after all of it. */
#include "broker/adopt.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "broker/auto_create.h"
#include "broker/metadata.h"
#include "controller/controller.h"
#include "coord/coord.h"
#include "coord/znodes.h"

#define LOG_MODULE "broker"
#include "base/log.h"

#define ADOPTION_MARKER STR("/barnabas/adoption")

enum {
    CALLS_WAITING_MAX = 20 * 1000, /* past it no further topic is begun; one topic can ask for 150,000 more */
    NAMED_MAX = 20,                /* directories or partitions that are named one by one */
    SETTINGS_ADOPTED_MAX = 3,
};

/* Kafka gives producer ids from 0 on, block by block, and goes on with them when it has the directories back. */
static const int64_t PRODUCER_IDS_FROM = INT64_C(1) << 40, PRODUCER_IDS_BELOW = INT64_C(1) << 52;

/* A partition that the store knows. */
struct known {
    struct str topic;
    int32_t index;
    struct znode_state state;
    int32_t version;
    bool has_state;
    struct adopt *ad;
};

struct adopt {
    struct broker *br;
    struct arena arena;
    struct job job;
    bool deep;
    struct replica_survey survey;
    struct fault fault;
    enum err err; /* the first that failed */
    adopt_done done;
    void *arg;

    bool marked; /* an adoption has begun */
    struct str *topics;
    size_t topic_count, topic_next; /* known ones: next to be read */
    size_t row_next;                /* of the survey: next to be written */
    size_t calls;                   /* waited for */
    size_t adopted_topics, adopted_partitions;
    struct known *known; /* sorted by topic and index */
    size_t known_count, known_cap, known_next;
};

struct adopt *adopt_new(struct broker *br)
{
    struct adopt *ad = mem_zalloc(1, sizeof *ad);
    ad->br = br;
    arena_init(&ad->arena, SIZE_MAX);
    return ad;
}

void adopt_free(struct adopt *ad)
{
    if (!ad) return;
    replicas_survey_free(&ad->survey);
    arena_fini(&ad->arena);
    mem_free(ad->known);
    mem_free(ad);
}

static void finish(struct adopt *ad)
{
    ad->done(ad->arg, ad->err, &ad->fault);
}

static void fail(struct adopt *ad, enum err e, const char *what, const char *text)
{
    if (ad->err) return;
    ad->err = fault_set(&ad->fault, e, "%s failed: %s.", what, text ? text : err_text(e));
}

static struct coord_to call_to(struct adopt *ad, coord_done_fn done, void *arg)
{
    ad->calls++;
    return (struct coord_to){broker_home(ad->br), done, arg};
}

/* ---- The survey */

static void survey_work(struct job *job)
{
    struct adopt *ad = CONTAINER_OF(job, struct adopt, job);
    replicas_survey_free(&ad->survey);
    ad->err = replicas_survey(ad->br->replicas, ad->deep, &ad->survey, &ad->fault);
}

static void survey(struct adopt *ad, bool deep, void (*then)(struct job *job))
{
    ad->deep = deep;
    ad->job = (struct job){.loop = broker_home(ad->br), .work = survey_work, .done = then};
    workers_submit(ad->br->workers, &ad->job);
}

/* ---- Adopting */

static void write_next(struct adopt *ad);

static void on_unmarked(void *arg, const struct coord_result *r)
{
    struct adopt *ad = arg;
    ad->calls--;
    if (r->err && r->err != ERR_NOT_FOUND) fail(ad, r->err, "Adopting the log directories", r->text);
    if (!ad->err)
        LOG_INFO("adopted",
                 "topics=%zu partitions=%zu notice=\"settings of topics are not in the directories: nothing "
                 "expires until retention.ms is set for a topic; barnabas coord import takes them from ZooKeeper\"",
                 ad->adopted_topics, ad->adopted_partitions);
    finish(ad);
}

static void all_written(struct adopt *ad)
{
    if (ad->err) {
        finish(ad);
        return;
    }
    coord_delete(ad->br->coord, ADOPTION_MARKER, COORD_ANY_VERSION, call_to(ad, on_unmarked, ad));
}

static void on_written(void *arg, const struct coord_result *r)
{
    struct adopt *ad = arg;
    ad->calls--;
    if (r->err && r->err != ERR_EXISTS) fail(ad, r->err, "Writing what is adopted to the coordination store", r->text);
    if (!ad->err && ad->calls < CALLS_WAITING_MAX) write_next(ad);
    if (ad->calls == 0) all_written(ad);
}

static void write_node(struct adopt *ad, struct str path, struct bytes data)
{
    coord_create(ad->br->coord, path, data, 0, call_to(ad, on_written, ad));
}

/* Directories of one topic, [first, end) of the survey; what cannot be a partition is left out. */
struct adoptee {
    struct str name;
    const struct replica_dir *first, *end;
    struct uuid id;
    int32_t partition_count;
    bool was_cleaned;
};

static bool is_partition(const struct replica_dir *d)
{
    return d->index < CONTROLLER_PARTITIONS_MAX && (d->peek.has_log || !uuid_is_zero(d->peek.topic_id));
}

/* False: nothing of it can be adopted, or it must not go on, with ad->err. */
static bool adoptee_weigh(struct adopt *ad, struct adoptee *t)
{
    const struct replica_dir *named = NULL; /* the one that gave the id */
    for (const struct replica_dir *d = t->first; d < t->end; d++) {
        if (!is_partition(d)) {
            LOG_WARN("not_a_partition", "dir=%s/%s-%d reason=\"there is no log in it, or its number is too large\"",
                     d->dir, d->topic, d->index);
            continue;
        }
        t->partition_count = MAX(t->partition_count, d->index + 1);
        t->was_cleaned |= d->was_cleaned;
        if (uuid_is_zero(d->peek.topic_id)) continue;
        if (named && !uuid_equal(d->peek.topic_id, t->id)) {
            char one[UUID_TEXT_SIZE + 1], other[UUID_TEXT_SIZE + 1];
            uuid_format(t->id, one);
            uuid_format(d->peek.topic_id, other);
            ad->err =
                fault_set(&ad->fault, ERR_INVALID,
                          "%s/%s-%d belongs to the topic with id %s, but %s/%s-%d to one with id %s. Only one of "
                          "them can be topic %s: move the other out of log.dirs.",
                          named->dir, named->topic, named->index, one, d->dir, d->topic, d->index, other, d->topic);
            return false;
        }
        named = d;
        t->id = d->peek.topic_id;
    }
    if (uuid_is_zero(t->id)) t->id = rng_uuid(ad->br->rng); /* as Kafka before 2.8 left it */
    return t->partition_count > 0;
}

static void write_settings(struct adopt *ad, struct arena *a, const struct adoptee *t)
{
    struct znode_setting own[SETTINGS_ADOPTED_MAX];
    struct znode_config settings = {.settings = own};
    struct config *cfg = config_live_ref(ad->br->config);
    struct controller_new_topic described;
    auto_create_describe(a, cfg, t->name, &described);
    if (described.setting_count > 0) {
        settings.settings = arena_array(a, struct znode_setting, described.setting_count);
        for (size_t i = 0; i < described.setting_count; i++) settings.settings[i] = described.settings[i];
        settings.count = described.setting_count;
    } else if (t->was_cleaned) {
        own[settings.count++] = (struct znode_setting){STR("cleanup.policy"), STR("compact")};
    } else {
        own[settings.count++] = (struct znode_setting){STR("retention.ms"), STR("-1")};
        own[settings.count++] = (struct znode_setting){STR("retention.bytes"), STR("-1")};
    }
    write_node(ad, znode_config_path(a, CONFIG_TOPICS, t->name), znode_config_encode(a, &settings));
    config_unref(cfg);
}

static void write_partition(struct adopt *ad, struct arena *a, const struct adoptee *t, int32_t index, int32_t epoch)
{
    const struct znode_state state = {.leader = ad->br->id, .leader_epoch = epoch, .isr = &ad->br->id, .isr_count = 1};
    write_node(ad, znode_partition_path(a, t->name, index), (struct bytes){NULL, 0});
    write_node(ad, znode_state_path(a, t->name, index), znode_state_encode(a, &state));
}

/* The leader epoch is the log's latest, as when a single Kafka broker starts anew, and not one above it: ZooKeeper
 * would know nothing of that, and Kafka, given the directory back, would find its own epoch fallen behind. */
static void write_topic(struct adopt *ad, const struct adoptee *t)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct znode_topic node = {.topic_id = t->id, .partition_count = (size_t)t->partition_count};
    node.partitions = arena_array(&a, struct znode_replicas, node.partition_count);
    for (int32_t i = 0; i < t->partition_count; i++)
        node.partitions[i] = (struct znode_replicas){.partition = i, .replicas = &ad->br->id, .replica_count = 1};
    write_settings(ad, &a, t);
    write_node(ad, znode_topic_path(&a, t->name), znode_topic_encode(&a, &node));
    write_node(ad, znode_partitions_path(&a, t->name), (struct bytes){NULL, 0});
    int32_t found = 0;
    const struct replica_dir *d = t->first;
    for (int32_t i = 0; i < t->partition_count; i++) {
        while (d < t->end && d->index < i) d++;
        bool here = d < t->end && d->index == i && is_partition(d);
        write_partition(ad, &a, t, i, here ? MAX(d->peek.last_epoch, 0) : 0);
        found += here;
        if (!here && i - found < NAMED_MAX)
            LOG_WARN("partition_missing", "topic=%.*s partition=%d reason=\"it has no directory here: made empty\"",
                     STR_ARG(t->name), i);
    }
    char id[UUID_TEXT_SIZE + 1];
    uuid_format(t->id, id);
    LOG_INFO("topic_adopted", "topic=%.*s id=%s partitions=%d missing=%d compacted=%d", STR_ARG(t->name), id,
             t->partition_count, t->partition_count - found, t->was_cleaned || topic_is_internal(t->name));
    ad->adopted_topics++;
    ad->adopted_partitions += (size_t)t->partition_count;
    arena_fini(&a);
}

static void write_next(struct adopt *ad)
{
    const struct replica_survey *sv = &ad->survey;
    while (!ad->err && ad->row_next < sv->count && ad->calls < CALLS_WAITING_MAX) {
        struct adoptee t = {.name = str_of(sv->rows[ad->row_next].topic), .first = &sv->rows[ad->row_next]};
        while (ad->row_next < sv->count && str_is(t.name, sv->rows[ad->row_next].topic)) ad->row_next++;
        t.end = sv->rows + ad->row_next;
        if (adoptee_weigh(ad, &t)) write_topic(ad, &t);
    }
}

struct znode_producer_ids adopt_producer_ids(struct rng *rng, int32_t broker_id)
{
    int64_t blocks = (PRODUCER_IDS_BELOW - PRODUCER_IDS_FROM) / PRODUCER_ID_BLOCK_SIZE;
    int64_t start = PRODUCER_IDS_FROM + (int64_t)rng_below(rng, (uint64_t)blocks) * PRODUCER_ID_BLOCK_SIZE;
    return (struct znode_producer_ids){broker_id, start, start + PRODUCER_ID_BLOCK_SIZE - 1};
}

static void write_producer_ids(struct adopt *ad)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    const struct znode_producer_ids block = adopt_producer_ids(ad->br->rng, ad->br->id);
    coord_set(ad->br->coord, ZNODE_PRODUCER_ID_BLOCK, znode_producer_ids_encode(&a, &block), COORD_ANY_VERSION,
              call_to(ad, on_written, ad));
    arena_fini(&a);
}

static void adopt_write(struct job *job)
{
    struct adopt *ad = CONTAINER_OF(job, struct adopt, job);
    if (ad->err) {
        finish(ad);
        return;
    }
    LOG_INFO("adopting", "directories=%zu reason=\"%s\"", ad->survey.count,
             ad->marked ? "an adoption was cut off" : "the coordination store is new, the log directories are not");
    const struct str marker = ADOPTION_MARKER;
    ad->calls++; /* nothing is over before all of this is said */
    coord_make_paths(ad->br->coord, &marker, 1, call_to(ad, on_written, ad));
    write_producer_ids(ad);
    write_next(ad);
    ad->calls--;
}

/* ---- What the store knows already */

static int known_compare(const void *a, const void *b)
{
    const struct known *x = a, *y = b;
    int c = str_compare(x->topic, y->topic);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

static void warn_of_strays(struct adopt *ad)
{
    size_t strays = 0;
    for (size_t i = 0; i < ad->survey.count; i++) {
        const struct replica_dir *d = &ad->survey.rows[i];
        const struct known key = {.topic = str_of(d->topic), .index = d->index};
        if (ad->known && bsearch(&key, ad->known, ad->known_count, sizeof key, known_compare)) continue;
        if (strays++ < NAMED_MAX)
            LOG_WARN("partition_unknown",
                     "dir=%s/%s-%d reason=\"the coordination store knows no such partition: it is "
                     "left alone\"",
                     d->dir, d->topic, d->index);
    }
    if (strays)
        LOG_WARN("partitions_unknown",
                 "count=%zu notice=\"to serve them, stop the broker and either import the topics "
                 "(barnabas coord import) or move %s/barnabas-coord.db away, so that the next start adopts all that is "
                 "here; what is not wanted can be removed by hand\"",
                 strays, replicas_dir_path(ad->br->replicas, 0));
}

static void read_next(struct adopt *ad);

static void all_read(struct adopt *ad)
{
    if (!ad->err) warn_of_strays(ad);
    replicas_survey_free(&ad->survey);
    finish(ad);
}

static void call_ended(struct adopt *ad)
{
    ad->calls--;
    if (!ad->err && ad->calls < CALLS_WAITING_MAX) read_next(ad);
    if (ad->calls == 0) all_read(ad);
}

static void on_state(void *arg, const struct coord_result *r)
{
    struct known *k = arg;
    struct adopt *ad = k->ad;
    struct arena a; /* of the in-sync set a copy is kept, and nothing else */
    arena_init(&a, SIZE_MAX);
    enum err e = r->err;
    if (e && e != ERR_NOT_FOUND) fail(ad, e, "Reading partitions from the coordination store", r->text);
    if (!e) {
        e = znode_state_decode(&a, r->path, r->data, &k->state, &ad->fault);
        if (e && !ad->err) ad->err = e;
    }
    if (!e) {
        int32_t *isr = arena_array(&ad->arena, int32_t, (size_t)k->state.isr_count);
        for (int32_t i = 0; i < k->state.isr_count; i++) isr[i] = k->state.isr[i];
        k->state.isr = isr;
        k->version = r->stat.version;
        k->has_state = true;
    }
    arena_fini(&a);
    call_ended(ad);
}

static void on_topic(void *arg, const struct coord_result *r)
{
    struct adopt *ad = arg;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct znode_topic node;
    enum err e = r->err;
    if (e && e != ERR_NOT_FOUND) fail(ad, e, "Reading topics from the coordination store", r->text);
    if (!e) {
        e = znode_topic_decode(&a, r->path, r->data, &node, &ad->fault);
        if (e && !ad->err) ad->err = e;
    }
    if (!e) {
        size_t prefix = ZNODE_TOPICS.size + 1;
        struct str name = arena_str(&ad->arena, (struct str){r->path.data + prefix, r->path.size - prefix});
        ad->known = mem_grow(ad->known, &ad->known_cap, ad->known_count + node.partition_count, sizeof *ad->known);
        for (size_t i = 0; i < node.partition_count; i++)
            ad->known[ad->known_count++] =
                (struct known){.topic = name, .index = node.partitions[i].partition, .ad = ad};
    }
    arena_fini(&a);
    call_ended(ad);
}

/* First every topic, then every partition's state: only then `known` does not move any more. */
static void read_next(struct adopt *ad)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct coord *c = ad->br->coord;
    while (ad->topic_next < ad->topic_count && ad->calls < CALLS_WAITING_MAX)
        coord_get(c, znode_topic_path(&a, ad->topics[ad->topic_next++]), COORD_NO_WATCH, call_to(ad, on_topic, ad));
    if (ad->topic_next == ad->topic_count && ad->calls == 0 && ad->known_next == 0 && ad->known_count)
        qsort(ad->known, ad->known_count, sizeof *ad->known, known_compare);
    bool sorted = ad->known_next > 0 || (ad->topic_next == ad->topic_count && ad->calls == 0);
    while (sorted && ad->known_next < ad->known_count && ad->calls < CALLS_WAITING_MAX) {
        struct known *k = &ad->known[ad->known_next++];
        coord_get(c, znode_state_path(&a, k->topic, k->index), COORD_NO_WATCH, call_to(ad, on_state, k));
    }
    arena_fini(&a);
}

/* ---- The first step */

static void decide(struct adopt *ad)
{
    if (ad->err || (ad->survey.count == 0 && ad->topic_count == 0)) {
        finish(ad);
    } else if (ad->marked || ad->topic_count == 0) {
        survey(ad, true, adopt_write);
    } else {
        read_next(ad);
    }
}

static void on_marker(void *arg, const struct coord_result *r)
{
    struct adopt *ad = arg;
    ad->calls--;
    ad->marked = !r->err;
    if (r->err && r->err != ERR_NOT_FOUND) fail(ad, r->err, "Reading the coordination store", r->text);
    decide(ad);
}

static void on_topics(void *arg, const struct coord_result *r)
{
    struct adopt *ad = arg;
    ad->calls--;
    if (r->err) {
        fail(ad, r->err, "Reading topics from the coordination store", r->text);
        return;
    }
    ad->topics = arena_array(&ad->arena, struct str, r->child_count);
    ad->topic_count = r->child_count;
    for (size_t i = 0; i < r->child_count; i++) ad->topics[i] = arena_str(&ad->arena, r->children[i]);
}

static void on_surveyed(struct job *job)
{
    struct adopt *ad = CONTAINER_OF(job, struct adopt, job);
    if (!ad->err && !ad->br->coord) fail(ad, ERR_CLOSED, "Reading the coordination store", NULL); /* told to stop */
    if (ad->err) {
        finish(ad);
        return;
    }
    coord_children(ad->br->coord, ZNODE_TOPICS, COORD_NO_WATCH, call_to(ad, on_topics, ad));
    coord_exists(ad->br->coord, ADOPTION_MARKER, COORD_NO_WATCH, call_to(ad, on_marker, ad));
}

void adopt_look(struct adopt *ad, adopt_done done, void *arg)
{
    ASSERT_OWNER(broker_home(ad->br));
    ad->done = done;
    ad->arg = arg;
    survey(ad, false, on_surveyed);
}

/* ---- Leader epochs */

static void on_raised(void *arg, const struct coord_result *r)
{
    struct adopt *ad = arg;
    if (r->err) fail(ad, r->err, "Raising leader epochs in the coordination store", r->text);
    if (--ad->calls == 0) finish(ad);
}

void adopt_raise_epochs(struct adopt *ad, adopt_done done, void *arg)
{
    ASSERT_OWNER(broker_home(ad->br));
    ASSERT(ad->calls == 0);
    ad->done = done;
    ad->arg = arg;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    for (size_t i = 0; i < ad->known_count; i++) {
        struct known *k = &ad->known[i];
        int32_t epoch = k->has_state ? replicas_log_epoch(ad->br->replicas, k->topic, k->index) : -1;
        if (epoch <= k->state.leader_epoch) continue;
        k->state.leader_epoch = epoch;
        coord_set(ad->br->coord, znode_state_path(&a, k->topic, k->index), znode_state_encode(&a, &k->state),
                  k->version, call_to(ad, on_raised, ad));
        arena_reset(&a);
    }
    arena_fini(&a);
    if (ad->calls)
        LOG_INFO("leader_epochs_raised", "partitions=%zu reason=\"another broker has written the logs\"", ad->calls);
    else
        finish(ad);
}
