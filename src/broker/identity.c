/* identity.c: one call to the store after the other.
 *
 * A store that is the broker's own is prepared and asked in one go: then a new one takes a single commit, and one that
 * has everything none.  It takes the id that the directories have, or a fresh one.  An ensemble is asked first: one
 * that has no id is given a fresh one, but not by a broker whose directories belong to a cluster already, which has
 * been pointed at the wrong ensemble or chroot.  If two brokers give one at the same time, the first one's holds.
 *
 * Everything may be done twice, so a session that ended, or a write of which the end is unknown, begins it anew. */
#include "broker/identity.h"

#include <stdio.h>

#include "base/mem.h"
#include "coord/coord.h"
#include "coord/znodes.h"
#include "replica/replicas.h"

#define LOG_MODULE "broker"
#include "base/log.h"

struct identity {
    struct broker *br;
    struct arena arena;
    enum err prepare_err; /* the first of the calls that prepare the store; the last call looks at it */
    const char *prepare_text;
    identity_done done;
    void *arg;
};

static void end(struct identity *id, enum err e, const struct fault *f)
{
    id->done(id->arg, e, f);
    arena_fini(&id->arena);
    mem_free(id);
}

static void ask(struct identity *id);

/* The common end of a call that failed. */
static void call_failed(struct identity *id, enum err e, const char *what, const char *text)
{
    if (e == ERR_EXPIRED || e == ERR_UNSURE) {
        arena_reset(&id->arena);
        id->prepare_err = OK;
        ask(id);
        return;
    }
    struct fault f;
    fault_set(&f, e, "%s failed: %s%s%s.", what, err_text(e), text ? ": " : "", text ? text : "");
    end(id, e, &f);
}

static struct coord_to to(struct identity *id, coord_done_fn done)
{
    return (struct coord_to){broker_home(id->br), done, id};
}

/* ---- The broker's id */

static void take_id(struct identity *id, int32_t broker_id)
{
    struct broker *br = id->br;
    struct fault f = {0};
    br->id = broker_id;
    end(id, replicas_identify(br->replicas, br->id, br->cluster_id, &f), &f);
}

/* As Kafka does it: the node has no content, and the number is how often it was written. */
static void on_number(void *arg, const struct coord_result *r)
{
    struct identity *id = arg;
    if (r->err) {
        call_failed(id, r->err, "Asking for a broker id at /brokers/seqid", r->text);
        return;
    }
    struct config *cfg = config_live_ref(id->br->config);
    int64_t number = r->stat.version + config_i64(cfg, CFG_RESERVED_BROKER_MAX_ID);
    config_unref(cfg);
    if (number > INT32_MAX) {
        struct fault f;
        fault_set(&f, ERR_INVALID, "The ids above reserved.broker.max.id are used up. Set broker.id.");
        end(id, ERR_INVALID, &f);
        return;
    }
    LOG_INFO("broker_id_generated", "broker=%lld", (long long)number);
    take_id(id, (int32_t)number);
}

static void find_id(struct identity *id)
{
    struct broker *br = id->br;
    struct config *cfg = config_live_ref(br->config);
    bool given = config_i64(cfg, CFG_BROKER_ID) >= 0;
    int32_t broker_id = config_broker_id(cfg, replicas_stored_broker_id(br->replicas));
    config_unref(cfg);
    const char *nameless = given ? NULL : replicas_dir_without_id(br->replicas);
    if (nameless) {
        /* As any other broker we would lead none of its partitions. */
        struct fault f;
        enum err e =
            fault_set(&f, ERR_INVALID,
                      "%s/meta.properties does not say which broker it belongs to. Set broker.id to the number "
                      "that this broker has had.",
                      nameless);
        end(id, e, &f);
    } else if (broker_id >= 0) {
        take_id(id, broker_id);
    } else {
        coord_set(br->coord, ZNODE_BROKER_SEQID, (struct bytes){(const uint8_t *)"", 0}, COORD_ANY_VERSION,
                  to(id, on_number));
    }
}

/* ---- The cluster's id */

static void take_cluster_id(struct identity *id, struct bytes data)
{
    struct broker *br = id->br;
    struct str text;
    struct fault f = {0};
    enum err e = znode_cluster_id_decode(&id->arena, data, &text, &f);
    if (!e && text.size >= sizeof br->cluster_id)
        e = fault_set(&f, ERR_CORRUPT, "/cluster/id has %zu characters; the longest can be %zu.", text.size,
                      sizeof br->cluster_id - 1);
    if (e) {
        end(id, e, &f);
        return;
    }
    snprintf(br->cluster_id, sizeof br->cluster_id, "%.*s", STR_ARG(text));
    find_id(id);
}

static void on_path_made(void *arg, const struct coord_result *r)
{
    struct identity *id = arg;
    if (id->prepare_err || !r->err || r->err == ERR_EXISTS) return;
    id->prepare_err = r->err;
    id->prepare_text = r->text ? arena_str(&id->arena, str_of(r->text)).data : NULL;
}

static void on_prepared(void *arg, const struct coord_result *r)
{
    struct identity *id = arg;
    if (id->prepare_err)
        call_failed(id, id->prepare_err, "Preparing the coordination store", id->prepare_text);
    else if (r->err)
        call_failed(id, r->err, "Reading /cluster/id", r->text);
    else
        take_cluster_id(id, r->data);
}

/* One after the other, but not waited for one by one. */
static void prepare(struct identity *id)
{
    struct broker *br = id->br;
    char fresh[UUID_TEXT_SIZE + 1];
    uuid_format(rng_uuid(br->rng), fresh);
    const char *stored = replicas_stored_cluster_id(br->replicas);
    struct bytes data = znode_cluster_id_encode(&id->arena, str_of(stored ? stored : fresh));
    const struct str parent = STR("/cluster");
    const struct coord_to made = to(id, on_path_made);
    znodes_make_persistent(br->coord, made);
    coord_make_paths(br->coord, &parent, 1, made);
    coord_create(br->coord, ZNODE_CLUSTER_ID, data, 0, made);
    coord_get(br->coord, ZNODE_CLUSTER_ID, COORD_NO_WATCH, to(id, on_prepared));
}

/* An ensemble has been asked for its id, and nothing has been written to it yet. */
static void on_cluster_id(void *arg, const struct coord_result *r)
{
    struct identity *id = arg;
    const char *stored = replicas_stored_cluster_id(id->br->replicas);
    if (r->err && r->err != ERR_NOT_FOUND) {
        call_failed(id, r->err, "Reading /cluster/id", r->text);
    } else if (r->err && stored) {
        struct fault f;
        enum err e =
            fault_set(&f, ERR_INVALID,
                      "InconsistentClusterId: no cluster has begun at zookeeper.connect, but the log directories "
                      "belong to cluster %s (meta.properties). Correct zookeeper.connect (its chroot, too), or "
                      "give this broker another log.dirs.",
                      stored);
        end(id, e, &f);
    } else {
        prepare(id);
    }
}

static void ask(struct identity *id)
{
    if (id->br->alone)
        prepare(id);
    else
        coord_get(id->br->coord, ZNODE_CLUSTER_ID, COORD_NO_WATCH, to(id, on_cluster_id));
}

void identity_find(struct broker *br, identity_done done, void *arg)
{
    struct identity *id = mem_zalloc(1, sizeof *id);
    *id = (struct identity){.br = br, .done = done, .arg = arg};
    arena_init(&id->arena, SIZE_MAX);
    ask(id);
}
