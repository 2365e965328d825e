/* coord_import.c: `barnabas coord import`: makes the embedded store of one broker from a cluster's ZooKeeper.
 *
 * The nodes are copied as they are, but for what says who holds a partition: the broker is the only one in the new
 * store.  The store is written aside and takes its place with a rename, so that one that was cut off is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "broker/adopt.h"
#include "cli/cli.h"
#include "coord/embedded.h"
#include "coord/zookeeper_read.h"
#include "coord/znodes.h"
#include "os/clock.h"
#include "os/fs.h"
#include "os/rng.h"
#include "replica/replicas.h"

enum {
    CONNECT_MS = 15 * 1000,
    CALLS_WAITING_MAX = 1000,
};

#define ASIDE "barnabas-coord-import"

struct import {
    const char *hosts;
    const char **dirs;
    size_t dir_count;

    struct loop *loop;
    struct workers *workers;
    struct replicas *replicas; /* holds the directories' locks */
    struct replica_survey survey;
    int32_t broker_id;
    struct zookeeper_reader *zookeeper;
    struct coord *store; /* the new one */
    size_t calls;        /* of it, waited for */
    struct fault fault;  /* the first that failed */
    size_t topics, partitions, empty, left_out, nodes;
};

static enum err failed(struct import *im, enum err e, const char *what, const char *text)
{
    return im->fault.code ? im->fault.code : fault_set(&im->fault, e, "%s: %s.", what, text ? text : err_text(e));
}

/* ---- Writing */

static void on_written(void *arg, const struct coord_result *r)
{
    struct import *im = arg;
    im->calls--;
    if (r->err && r->err != ERR_EXISTS) failed(im, r->err, "The new coordination store cannot be written", r->text);
}

static enum err drain(struct import *im, size_t down_to)
{
    while (im->calls > down_to) loop_turn(im->loop, -1);
    return im->fault.code;
}

static struct coord_to written_to(struct import *im)
{
    im->calls++;
    return (struct coord_to){im->loop, on_written, im};
}

static enum err write_node(struct import *im, struct str path, struct bytes data)
{
    im->nodes++;
    coord_create(im->store, path, data, 0, written_to(im));
    return im->calls < CALLS_WAITING_MAX ? im->fault.code : drain(im, CALLS_WAITING_MAX / 2);
}

static enum err read_node(struct import *im, struct str path, struct arena *a, struct zookeeper_node *out)
{
    return zookeeper_read(im->zookeeper, path, a, out, &im->fault);
}

/* ---- Copying */

static bool copy_all(const struct import *im, struct str name)
{
    (void)im;
    (void)name;
    return true;
}

static bool copy_none(const struct import *im, struct str name)
{
    (void)im;
    (void)name;
    return false;
}

/* The settings of the broker itself and the cluster's. */
static bool copy_own_broker(const struct import *im, struct str name)
{
    char own[16];
    snprintf(own, sizeof own, "%d", im->broker_id);
    return str_is(name, own) || str_equal(name, CONFIG_DEFAULT);
}

/* Copies a node and what lies below it, as far as `wants` says so of its children; one that is not there is no error.
 */
static enum err copy(struct import *im, struct str path, bool (*wants)(const struct import *im, struct str name))
{
    struct arena a;
    struct zookeeper_node node;
    arena_init(&a, SIZE_MAX);
    enum err e = read_node(im, path, &a, &node);
    if (!e && !node.ephemeral) {
        e = write_node(im, path, node.data);
        for (size_t i = 0; i < node.child_count && !e; i++)
            if (wants(im, node.children[i]))
                e = copy(im, arena_printf(&a, "%.*s/%.*s", STR_ARG(path), STR_ARG(node.children[i])), copy_all);
    } else if (e == ERR_NOT_FOUND) {
        im->fault = (struct fault){.code = OK};
        e = OK;
    }
    arena_fini(&a);
    return e;
}

/* What else Kafka keeps in ZooKeeper belongs to brokers that run (registrations, elections, notifications). */
static enum err copy_rest(struct import *im)
{
    static const struct {
        struct str path;
        bool (*wants)(const struct import *im, struct str name);
    } rows[] = {
        {{"/cluster", 8}, copy_all},
        {{"/controller_epoch", 17}, copy_none},
        {{"/config", 7}, copy_none},
        {{"/config/topics", 14}, copy_all},
        {{"/config/clients", 15}, copy_all},
        {{"/config/users", 13}, copy_all},
        {{"/config/ips", 11}, copy_all},
        {{"/config/brokers", 15}, copy_own_broker},
        {{"/admin", 6}, copy_none},
        {{"/admin/delete_topics", 20}, copy_all},
        {{"/consumers", 10}, copy_all},
        {{"/kafka-acl", 10}, copy_all},
        {{"/kafka-acl-extended", 19}, copy_all},
    };
    enum err e = OK;
    for (size_t i = 0; i < ARRAY_COUNT(rows) && !e; i++) e = copy(im, rows[i].path, rows[i].wants);
    return e;
}

/* ---- Topics */

static const struct replica_dir *dir_of(const struct import *im, struct str topic, int32_t index)
{
    for (size_t low = 0, high = im->survey.count; low < high;) {
        size_t middle = low + (high - low) / 2;
        const struct replica_dir *d = &im->survey.rows[middle];
        int c = str_compare(str_of(d->topic), topic);
        if (c == 0) c = (d->index > index) - (d->index < index);
        if (c == 0) return d;
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static enum err import_state(struct import *im, struct arena *a, struct str topic, int32_t index)
{
    const struct replica_dir *d = dir_of(im, topic, index);
    struct str path = znode_state_path(a, topic, index);
    struct zookeeper_node node;
    struct znode_state state = {.leader_epoch = 0};
    enum err e = write_node(im, znode_partition_path(a, topic, index), (struct bytes){NULL, 0});
    if (!e) e = read_node(im, path, a, &node);
    if (!e) e = znode_state_decode(a, path, node.data, &state, &im->fault);
    if (e == ERR_NOT_FOUND) { /* made, but never begun */
        im->fault = (struct fault){.code = OK};
        e = OK;
    }
    if (e) return e;
    state.leader = im->broker_id;
    state.isr = &im->broker_id;
    state.isr_count = 1;
    if (d) state.leader_epoch = MAX(state.leader_epoch, d->peek.last_epoch);
    return write_node(im, path, znode_state_encode(a, &state));
}

/* Names the partitions that are not here, with the brokers that hold them. */
static void tell_topic(const struct import *im, struct str name, const struct znode_topic *t, size_t here)
{
    printf("topic %.*s: %zu partitions, %zu of them here\n", STR_ARG(name), t->partition_count, here);
    for (size_t i = 0; i < t->partition_count; i++) {
        const struct znode_replicas *p = &t->partitions[i];
        if (dir_of(im, name, p->partition)) continue;
        printf("  partition %d lies on other brokers (", p->partition);
        for (int32_t k = 0; k < p->replica_count; k++) printf("%s%d", k ? ", " : "", p->replicas[k]);
        printf("): it will be empty here\n");
    }
}

static void tell_left_out(struct str name, const struct znode_topic *t)
{
    printf("topic %.*s: none of its %zu partitions is here: left out\n", STR_ARG(name), t->partition_count);
}

static enum err import_partitions(struct import *im, struct arena *a, struct str name, struct znode_topic *t,
                                  size_t here)
{
    tell_topic(im, name, t, here);
    for (size_t i = 0; i < t->partition_count; i++) {
        struct znode_replicas *p = &t->partitions[i];
        *p = (struct znode_replicas){.partition = p->partition, .replicas = &im->broker_id, .replica_count = 1};
    }
    im->topics++;
    im->partitions += here;
    im->empty += t->partition_count - here;
    enum err e = write_node(im, znode_topic_path(a, name), znode_topic_encode(a, t));
    if (!e) e = write_node(im, znode_partitions_path(a, name), (struct bytes){NULL, 0});
    for (size_t i = 0; i < t->partition_count && !e; i++) e = import_state(im, a, name, t->partitions[i].partition);
    return e;
}

static enum err import_topic(struct import *im, struct str name)
{
    struct arena a;
    struct zookeeper_node node;
    struct znode_topic t = {.partition_count = 0};
    arena_init(&a, SIZE_MAX);
    struct str path = znode_topic_path(&a, name);
    enum err e = read_node(im, path, &a, &node);
    if (!e) e = znode_topic_decode(&a, path, node.data, &t, &im->fault);
    size_t here = 0;
    for (size_t i = 0; i < t.partition_count; i++) here += dir_of(im, name, t.partitions[i].partition) != NULL;
    if (!e && here > 0) {
        e = import_partitions(im, &a, name, &t, here);
    } else if (!e) {
        tell_left_out(name, &t);
        im->left_out++;
    }
    arena_fini(&a);
    return e;
}

static enum err import_topics(struct import *im)
{
    struct arena a;
    struct zookeeper_node node = {.child_count = 0};
    arena_init(&a, SIZE_MAX);
    enum err e = read_node(im, ZNODE_TOPICS, &a, &node);
    for (size_t i = 0; i < node.child_count && !e; i++) e = import_topic(im, node.children[i]);
    arena_fini(&a);
    return e;
}

static enum err import_all(struct import *im)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    znodes_make_persistent(im->store, written_to(im));
    const struct znode_producer_ids ids = adopt_producer_ids(rng_system(), im->broker_id);
    coord_set(im->store, ZNODE_PRODUCER_ID_BLOCK, znode_producer_ids_encode(&a, &ids), COORD_ANY_VERSION,
              written_to(im));
    enum err e = copy_rest(im);
    if (!e) e = import_topics(im);
    if (!e) e = drain(im, 0);
    arena_fini(&a);
    return e;
}

/* ---- From the command line to a store in its place */

static enum err open_dirs(struct import *im)
{
    const struct replicas_options opt = {
        .fs = fs_system(),
        .clock = clock_system(),
        .rng = rng_system(),
        .home = im->loop,
        .workers = im->workers,
        .dirs = im->dirs,
        .dir_count = im->dir_count,
    };
    enum err e = replicas_open(&im->replicas, &opt, &im->fault);
    if (e) return e;
    im->broker_id = replicas_stored_broker_id(im->replicas);
    if (im->broker_id < 0)
        return fault_set(&im->fault, ERR_NOT_FOUND,
                         "%s has no meta.properties that names a broker: it is no log directory of one.", im->dirs[0]);
    return replicas_survey(im->replicas, true, &im->survey, &im->fault);
}

static enum err check_cluster(struct import *im)
{
    struct arena a;
    struct zookeeper_node node;
    struct str id;
    arena_init(&a, SIZE_MAX);
    enum err e = read_node(im, ZNODE_CLUSTER_ID, &a, &node);
    if (!e) e = znode_cluster_id_decode(&a, node.data, &id, &im->fault);
    const char *here = replicas_stored_cluster_id(im->replicas);
    if (!e && here && !str_is(id, here))
        e = fault_set(&im->fault, ERR_INVALID, "The ZooKeeper at %s is of cluster %.*s, but %s belongs to cluster %s.",
                      im->hosts, STR_ARG(id), im->dirs[0], here);
    arena_fini(&a);
    return e;
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static enum err write_store(struct import *im, const char *aside)
{
    enum err e = fs_mkdir_all(fs_system(), aside);
    if (e) return failed(im, e, aside, NULL);
    const struct coord_embedded_options opt = {.fs = fs_system(), .clock = clock_system(), .dir = aside};
    e = coord_embedded_open(&im->store, &opt, &im->fault);
    if (e) return e;
    e = import_all(im);
    bool closed = false;
    coord_close(im->store, im->loop, on_closed, &closed);
    while (!closed) loop_turn(im->loop, -1);
    return e;
}

static enum err import_into_place(struct import *im, const char *place)
{
    struct fs *fs = fs_system();
    char *aside = mem_printf("%s/" ASIDE, im->dirs[0]), *file = mem_printf("%s/" COORD_EMBEDDED_FILE, aside);
    enum err e = fs_remove_all(fs, aside); /* of an import that was cut off */
    e = e && e != ERR_NOT_FOUND ? failed(im, e, aside, NULL) : write_store(im, aside);
    if (!e && ((e = fs_rename(fs, file, place)) || (e = fs_sync_dir(fs, im->dirs[0])))) failed(im, e, place, NULL);
    enum err removed = fs_remove_all(fs, aside);
    if (!e && removed) e = failed(im, removed, aside, NULL);
    mem_free(file);
    mem_free(aside);
    return e;
}

static enum err run(struct import *im)
{
    struct fs_stat st;
    char *place = mem_printf("%s/" COORD_EMBEDDED_FILE, im->dirs[0]);
    enum err e = open_dirs(im);
    if (!e && fs_stat(fs_system(), place, &st) == OK)
        e = fault_set(&im->fault, ERR_EXISTS,
                      "There is a coordination store already: %s. Move it away first if it is to be replaced.", place);
    if (!e) e = zookeeper_reader_open(&im->zookeeper, im->hosts, CONNECT_MS, &im->fault);
    if (!e) e = check_cluster(im);
    if (!e) e = import_into_place(im, place);
    mem_free(place);
    return e;
}

/* Directories that the store does not know: the topic was deleted, or has fewer partitions than its directories. */
static void tell_summary(const struct import *im)
{
    printf("imported for broker %d: %zu topics with %zu partitions that are here", im->broker_id, im->topics,
           im->partitions);
    if (im->empty) printf(", %zu that are empty", im->empty);
    if (im->left_out) printf("; %zu topics left out", im->left_out);
    printf("; %zu nodes in all\n", im->nodes);
}

static void import_fini(struct import *im)
{
    zookeeper_reader_close(im->zookeeper);
    replicas_survey_free(&im->survey);
    if (im->workers) workers_free(im->workers);
    replicas_close(im->replicas, false, -1);
    if (im->loop) loop_free(im->loop);
    mem_free(im->dirs);
}

int cli_coord_import(int argc, char **argv)
{
    static const char flag[] = "--zookeeper";
    struct import im = {.dirs = mem_zalloc((size_t)argc, sizeof(char *))};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], flag) == 0 && i + 1 < argc)
            im.hosts = argv[++i];
        else if (strncmp(argv[i], "--zookeeper=", sizeof flag) == 0)
            im.hosts = argv[i] + sizeof flag;
        else if (argv[i][0] != '-')
            im.dirs[im.dir_count++] = argv[i];
        else
            im.dir_count = 0, im.hosts = NULL, i = argc;
    }
    if (!im.hosts || im.dir_count == 0) {
        mem_free(im.dirs);
        return cli_usage_error("coord", "import takes --zookeeper HOST:PORT[/CHROOT] and all of the broker's log.dirs");
    }
    enum err e = loop_new(&im.loop, clock_system(), 0, &im.fault);
    if (!e) e = workers_new(&im.workers, "import", 1, &im.fault);
    if (!e) e = run(&im);
    if (e)
        fprintf(stderr, "barnabas: %s\n", im.fault.text);
    else
        tell_summary(&im);
    import_fini(&im);
    return e ? 1 : 0;
}
