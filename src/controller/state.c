/* state.c: the controller's tables: topics by name, id and unified name; brokers by id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "controller/controller_internal.h"
#include "controller/topic_name.h"
#include "wire/topic_name.h"

struct topic *topic_find(const struct controller *c, struct str name)
{
    struct topic *t;
    HASH_FIND(by_name, c->topics, name.data, name.size, t);
    return t;
}

struct topic *topic_find_id(const struct controller *c, struct uuid id)
{
    struct topic *t = NULL;
    if (!uuid_is_zero(id)) HASH_FIND(by_id, c->topics_by_id, id.bytes, sizeof id.bytes, t);
    return t;
}

static struct topic_names *names_find(const struct controller *c, struct str unified)
{
    struct topic_names *n;
    HASH_FIND(hh, c->names, unified.data, unified.size, n);
    return n;
}

static struct topic_names *names_get(struct controller *c, struct str name)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct str unified = topic_name_unify(name, &a);
    struct topic_names *n = names_find(c, unified);
    if (!n) {
        n = mem_zalloc(1, sizeof *n + unified.size);
        memcpy(n->text, unified.data, unified.size);
        n->unified = (struct str){n->text, unified.size};
        list_init(&n->topics);
        HASH_ADD_KEYPTR(hh, c->names, n->unified.data, n->unified.size, n);
    }
    arena_fini(&a);
    return n;
}

struct topic *topic_find_colliding(const struct controller *c, struct str name, struct arena *a)
{
    struct topic_names *n = names_find(c, topic_name_unify(name, a));
    struct list_node *first = n ? list_first(&n->topics) : NULL;
    return first ? CONTAINER_OF(first, struct topic, same_names) : NULL;
}

struct topic *topic_add(struct controller *c, struct str name, struct uuid id)
{
    struct topic *t = mem_zalloc(1, sizeof *t + name.size);
    memcpy(t->text, name.data, name.size);
    t->name = (struct str){t->text, name.size};
    t->id = id;
    list_init(&t->deletion_waiters);
    HASH_ADD_KEYPTR(by_name, c->topics, t->name.data, t->name.size, t);
    if (!uuid_is_zero(id)) HASH_ADD(by_id, c->topics_by_id, id, sizeof t->id, t);
    t->names = names_get(c, name);
    list_push_back(&t->names->topics, &t->same_names);
    return t;
}

static void partition_load(struct controller_partition *p, const struct znode_replicas *zr)
{
    partition_set_replicas(p, zr->replicas, zr->replica_count);
    p->adding = ids_copy(zr->adding, zr->adding_count);
    p->adding_count = zr->adding_count;
    p->removing = ids_copy(zr->removing, zr->removing_count);
    p->removing_count = zr->removing_count;
}

static bool replicas_are_sound(const struct znode_replicas *zr)
{
    return ids_are_sound(zr->replicas, zr->replica_count) && ids_are_sound(zr->adding, zr->adding_count) &&
           ids_are_sound(zr->removing, zr->removing_count);
}

/* What no broker would take: with it, it would refuse everything else that the same message tells. */
static bool topic_is_sound(struct str name, const struct znode_topic *zt, struct fault *f)
{
    bool sound = topic_name_is_valid(name);
    for (size_t i = 0; i < zt->partition_count; i++) sound = sound && replicas_are_sound(&zt->partitions[i]);
    if (!sound)
        fault_set(f, ERR_CORRUPT, "The topic %.*s in the coordination store has a name or replicas that cannot be.",
                  STR_ARG(name));
    return sound;
}

enum err topic_load(struct controller *c, struct str name, const struct znode_topic *zt, int32_t version,
                    struct fault *f)
{
    int32_t count = zt->partition_count ? zt->partitions[zt->partition_count - 1].partition + 1 : 0;
    if (count > CONTROLLER_PARTITIONS_MAX)
        return fault_set(f, ERR_CORRUPT, "The topic %.*s in the coordination store has a partition %d: too many.",
                         STR_ARG(name), count - 1);
    if (!topic_is_sound(name, zt, f)) return ERR_CORRUPT;
    struct topic *t = topic_find(c, name);
    if (t && !uuid_equal(t->id, zt->topic_id))
        return fault_set(f, ERR_VERSION, "The topic %.*s in the coordination store is another one than before.",
                         STR_ARG(name));
    if (!t) t = topic_add(c, name, zt->topic_id);
    t->version = version;
    t->watched = true;
    if (count > t->partition_count) topic_resize(t, count);
    for (size_t i = 0; i < zt->partition_count; i++) {
        struct controller_partition *p = &t->partitions[zt->partitions[i].partition];
        if (!p->replicas) partition_load(p, &zt->partitions[i]);
        if (partition_is_reassigned(p)) reassign_note(c, t);
    }
    return OK;
}

void topics_name(struct writes *w)
{
    struct controller *c = w->c;
    for (struct topic *t = c->topics; t; t = t->by_name.next) {
        if (!uuid_is_zero(t->id) || t->left_out) continue;
        t->id = rng_uuid(c->opt.rng);
        HASH_ADD(by_id, c->topics_by_id, id, sizeof t->id, t);
        writes_add(w, (struct coord_op){.kind = COORD_SET,
                                        .path = znode_topic_path(w->a, t->name),
                                        .data = topic_encode(t, w->a),
                                        .version = t->version++});
    }
}

static void partition_fini(struct controller_partition *p)
{
    mem_free(p->replicas);
    mem_free(p->adding);
    mem_free(p->removing);
    mem_free(p->isr);
    mem_free(p->offline);
    *p = (struct controller_partition){.leader = -1, .state_version = -1, .state_zxid = INT64_MAX};
}

void topic_remove(struct controller *c, struct topic *t)
{
    HASH_DELETE(by_name, c->topics, t);
    if (!uuid_is_zero(t->id)) {
        ASSERT(c->topics_by_id);
        HASH_DELETE(by_id, c->topics_by_id, t);
    }
    list_remove(&t->reassigning);
    list_remove(&t->same_names);
    if (list_is_empty(&t->names->topics)) {
        HASH_DEL(c->names, t->names);
        mem_free(t->names);
    }
    topic_resize(t, 0);
    mem_free(t->partitions);
    mem_free(t);
}

void topic_resize(struct topic *t, int32_t count)
{
    for (int32_t i = count; i < t->partition_count; i++) partition_fini(&t->partitions[i]);
    t->partitions = mem_realloc(t->partitions, (size_t)count * sizeof *t->partitions);
    for (int32_t i = t->partition_count; i < count; i++)
        t->partitions[i] = (struct controller_partition){.leader = -1, .state_version = -1, .state_zxid = INT64_MAX};
    t->partition_count = count;
}

int32_t *ids_copy(const int32_t *ids, int32_t count)
{
    if (count == 0) return NULL;
    int32_t *copy = mem_alloc((size_t)count * sizeof *copy);
    memcpy(copy, ids, (size_t)count * sizeof *copy);
    return copy;
}

bool ids_have(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

struct str ids_text(struct arena *a, const int32_t *ids, size_t count, const char *between)
{
    enum { DIGITS_MAX = 11 }; /* and the sign */
    size_t room = count * (DIGITS_MAX + strlen(between)) + 1, size = 0;
    char *text = arena_alloc(a, room);
    for (size_t i = 0; i < count; i++)
        size += (size_t)snprintf(text + size, room - size, "%s%d", i ? between : "", ids[i]);
    return (struct str){text, size};
}

struct str *names_copy(struct arena *a, const struct coord_result *r, size_t *count)
{
    struct str *names = arena_array(a, struct str, r->child_count);
    for (size_t i = 0; i < r->child_count; i++) names[i] = arena_str(a, r->children[i]);
    *count = r->child_count;
    return names;
}

bool ids_are_sound(const int32_t *ids, int32_t count)
{
    if (count > CONTROLLER_REPLICAS_MAX) return false;
    for (int32_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids_have(ids, i, ids[i])) return false;
    return true;
}

void partition_set_replicas(struct controller_partition *p, const int32_t *replicas, int32_t count)
{
    mem_free(p->replicas);
    p->replicas = ids_copy(replicas, count);
    p->replica_count = count;
}

void partition_set_isr(struct controller_partition *p, const int32_t *isr, int32_t count)
{
    int32_t *copy = ids_copy(isr, count); /* first: it may be a part of the old list */
    mem_free(p->isr);
    p->isr = copy;
    p->isr_count = count;
}

enum err partition_load_state(struct controller_partition *p, const struct coord_result *r, struct arena *scratch,
                              struct fault *f)
{
    struct znode_state zs;
    enum err e = znode_state_decode(scratch, r->path, r->data, &zs, f);
    if (e) return e;
    if (zs.leader_epoch < 0 || !ids_are_sound(zs.isr, zs.isr_count))
        return fault_set(f, ERR_CORRUPT,
                         "%.*s in the coordination store has an epoch or an in-sync set that cannot be.",
                         STR_ARG(r->path));
    p->leader = zs.leader;
    p->leader_epoch = zs.leader_epoch;
    p->controller_epoch = zs.controller_epoch;
    p->leader_recovery_state = zs.leader_recovery_state;
    p->state_version = r->stat.version;
    p->state_zxid = r->stat.mzxid;
    partition_set_isr(p, zs.isr, zs.isr_count);
    return OK;
}

struct broker *broker_find(const struct controller *c, int32_t id)
{
    struct broker *b;
    HASH_FIND(hh, c->brokers, &id, sizeof id, b);
    return b;
}

bool broker_is_alive(const struct controller *c, int32_t id)
{
    const struct broker *b = broker_find(c, id);
    return b && !b->unreachable && !b->placeless;
}

bool broker_is_assignable(const struct controller *c, int32_t id)
{
    return broker_is_alive(c, id) && !broker_find(c, id)->shutting_down;
}

struct broker *broker_put(struct controller *c, int32_t id)
{
    struct broker *b = broker_find(c, id);
    if (b) {
        arena_reset(&b->arena);
        return b;
    }
    b = mem_zalloc(1, sizeof *b);
    b->id = id;
    arena_init(&b->arena, SIZE_MAX);
    HASH_ADD(hh, c->brokers, id, sizeof b->id, b);
    return b;
}

void broker_remove(struct controller *c, struct broker *b)
{
    HASH_DEL(c->brokers, b);
    arena_fini(&b->arena);
    mem_free(b);
}

static int compare_brokers(const void *a, const void *b)
{
    int32_t x = ((const struct assign_broker *)a)->id, y = ((const struct assign_broker *)b)->id;
    return (x > y) - (x < y);
}

struct assign_broker *brokers_list(const struct controller *c, struct arena *a, size_t *count)
{
    struct assign_broker *list = arena_array(a, struct assign_broker, HASH_COUNT(c->brokers));
    size_t n = 0;
    for (const struct broker *b = c->brokers; b; b = b->hh.next)
        if (broker_is_assignable(c, b->id)) list[n++] = (struct assign_broker){b->id, b->info.rack};
    if (n) qsort(list, n, sizeof *list, compare_brokers);
    *count = n;
    return list;
}

void state_clear(struct controller *c)
{
    while (c->topics) topic_remove(c, c->topics);
    while (c->brokers) {
        broker_renounce(c, c->brokers);
        broker_remove(c, c->brokers);
    }
}
