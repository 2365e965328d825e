/* log_dirs.c: replicas whose log directory has failed, while their broker lives on (KIP-112).
 *
 * A broker that loses a directory makes a node below /log_dir_event_notification.  The controller answers by sending it
 * LeaderAndIsr for all that it holds; the partitions that come back with KAFKA_STORAGE_ERROR have an offline replica:
 * another one leads, or nobody.  One that is answered without an error later on counts again. */
#define LOG_MODULE "controller"

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

bool replica_is_alive(const struct controller *c, const struct controller_partition *p, int32_t id)
{
    return broker_is_alive(c, id) && !ids_have(p->offline, p->offline_count, id);
}

static void set_offline(struct controller_partition *p, int32_t id, bool offline)
{
    int32_t kept = 0;
    int32_t *ids = mem_alloc(((size_t)p->offline_count + 1) * sizeof *ids);
    for (int32_t i = 0; i < p->offline_count; i++)
        if (p->offline[i] != id) ids[kept++] = p->offline[i];
    if (offline) ids[kept++] = id;
    mem_free(p->offline);
    p->offline = ids;
    p->offline_count = kept;
}

void replicas_online_again(struct controller *c, int32_t broker_id)
{
    for (struct topic *t = c->topics; t; t = t->by_name.next)
        for (int32_t i = 0; i < t->partition_count; i++)
            if (ids_have(t->partitions[i].offline, t->partitions[i].offline_count, broker_id))
                set_offline(&t->partitions[i], broker_id, false);
}

/* --- what LeaderAndIsr was answered with --- */

enum answers_stage { ANSWERS_LEARN, ANSWERS_ASK, ANSWERS_WRITE, ANSWERS_TELL };

struct replica_answer {
    struct str topic;
    int32_t partition;
    bool offline;
};

struct answers_event {
    struct event ev;
    struct controller *c;
    struct arena arena;
    int32_t broker_id;
    struct replica_answer *answers;
    size_t count, cap;
    struct elections elections;
    struct changes changes;
};

static struct answers_event *answers_of(struct event *ev)
{
    return CONTAINER_OF(ev, struct answers_event, ev);
}

static void answers_end(struct answers_event *ae)
{
    elections_fini(&ae->elections);
    changes_fini(&ae->changes);
    arena_fini(&ae->arena);
    mem_free(ae->answers);
    mem_free(ae);
}

static struct controller_partition *answered_partition(struct answers_event *ae, size_t at, struct topic **topic)
{
    struct topic *t = topic_find(ae->c, ae->answers[at].topic);
    *topic = t;
    if (!t || t->deleting || ae->answers[at].partition >= t->partition_count) return NULL;
    return &t->partitions[ae->answers[at].partition];
}

static void answers_learn(struct answers_event *ae)
{
    for (size_t i = 0; i < ae->count; i++) {
        struct topic *t;
        struct controller_partition *p = answered_partition(ae, i, &t);
        if (!p) continue;
        set_offline(p, ae->broker_id, ae->answers[i].offline);
        elections_add(&ae->elections, t, ae->answers[i].partition, false);
    }
    elections_read_settings(&ae->elections);
}

static void answers_write(struct answers_event *ae)
{
    for (size_t i = 0; i < ae->count; i++) {
        struct topic *t;
        int32_t partition = ae->answers[i].partition;
        struct controller_partition *p = answered_partition(ae, i, &t);
        if (!p || p->state_version < 0) continue;
        struct change ch = {t, partition, false, p->leader, "log_directory"};
        if (elections_give(&ae->elections, t, partition) || partition_fence(ae->c, p)) changes_add(&ae->changes, ch);
    }
    changes_write(&ae->changes);
}

/* Those too of which nothing changes but that a replica is offline: UpdateMetadata says so. */
static void answers_tell(struct answers_event *ae)
{
    changes_log(&ae->changes);
    struct sending *s = sending_new(ae->c);
    for (size_t i = 0; i < ae->count; i++) {
        struct topic *t;
        if (answered_partition(ae, i, &t)) sending_add_partition(s, t, ae->answers[i].partition, false);
    }
    sending_send(s, NULL, NULL);
}

static enum step answers_run(struct controller *c, struct event *ev)
{
    struct answers_event *ae = answers_of(ev);
    (void)c;
    switch ((enum answers_stage)ev->stage) {
    case ANSWERS_LEARN:
        ev->stage = ANSWERS_ASK;
        answers_learn(ae);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case ANSWERS_ASK:
        ev->stage = ANSWERS_WRITE;
        elections_ask(&ae->elections);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case ANSWERS_WRITE:
        ev->stage = ANSWERS_TELL;
        answers_write(ae);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case ANSWERS_TELL: answers_tell(ae); break;
    }
    answers_end(ae);
    return STEP_DONE;
}

static void answers_drop(struct controller *c, struct event *ev)
{
    (void)c;
    answers_end(answers_of(ev));
}

static void answer_add(struct answers_event **out, struct controller *c, int32_t broker_id, struct replica_answer a)
{
    struct answers_event *ae = *out;
    if (!ae) {
        ae = *out = mem_zalloc(1, sizeof *ae);
        ae->ev = (struct event){.run = answers_run, .drop = answers_drop};
        ae->c = c;
        ae->broker_id = broker_id;
        arena_init(&ae->arena, SIZE_MAX);
        elections_init(&ae->elections, c, &ae->ev, &ae->arena);
        changes_init(&ae->changes, c, &ae->ev, &ae->arena);
    }
    a.topic = arena_str(&ae->arena, a.topic);
    ae->answers = mem_grow(ae->answers, &ae->cap, ae->count + 1, sizeof *ae->answers);
    ae->answers[ae->count++] = a;
}

typedef struct leader_and_isr_response_leader_and_isr_partition_error partition_error;

static void look_at_answer(struct answers_event **out, struct controller *c, int32_t broker_id, const struct topic *t,
                           const partition_error *pe)
{
    if (pe->partition_index < 0 || pe->partition_index >= t->partition_count) return;
    const struct controller_partition *p = &t->partitions[pe->partition_index];
    bool known = ids_have(p->offline, p->offline_count, broker_id);
    bool offline = pe->error_code == KERR_KAFKA_STORAGE_ERROR;
    if (known == offline || (pe->error_code && !offline)) return;
    LOG_INFO(offline ? "replica_offline" : "replica_online", "topic=%.*s partition=%d broker=%d", STR_ARG(t->name),
             pe->partition_index, broker_id);
    answer_add(out, c, broker_id, (struct replica_answer){t->name, pe->partition_index, offline});
}

void log_dirs_answered(struct controller *c, int32_t broker_id, const struct leader_and_isr_response *r)
{
    if (c->stopping || c->state != CONTROLLER_ACTIVE) return;
    struct answers_event *ae = NULL;
    for (int32_t i = 0; i < r->topics_count; i++) {
        for (int32_t k = 0; k < r->topics[i].partition_errors_count; k++) {
            const partition_error *pe = &r->topics[i].partition_errors[k];
            const struct topic *t = topic_find_id(c, r->topics[i].topic_id);
            if (!t) t = topic_find(c, pe->topic_name); /* one from before topics had ids */
            if (t) look_at_answer(&ae, c, broker_id, t, pe);
        }
    }
    if (ae) controller_queue(c, &ae->ev);
}

/* --- brokers that tell of a failed directory --- */

/* A broker that has lost one. */
struct teller {
    struct teller *next;
    int32_t broker_id;
};

static enum err read_teller(struct notifications *ns, const struct coord_result *r, struct fault *f)
{
    int32_t id;
    enum err e = znode_log_dir_event_decode(&ns->arena, r->path, r->data, &id, f);
    for (const struct teller *tl = ns->told; !e && tl; tl = tl->next)
        if (tl->broker_id == id) return OK;
    if (e) return e;
    struct teller *tl = arena_alloc(&ns->arena, sizeof *tl);
    *tl = (struct teller){ns->told, id};
    ns->told = tl;
    return OK;
}

/* Whoever is told everything answers which of it has failed. */
static void ask(struct notifications *ns)
{
    for (const struct teller *tl = ns->told; tl; tl = tl->next) {
        if (!broker_find(ns->c, tl->broker_id)) continue;
        struct sending *s = sending_new(ns->c);
        sending_only_to(s, tl->broker_id);
        sending_add_everything(s);
        sending_send(s, NULL, NULL);
    }
}

const struct notification_kind log_dir_notifications = {ZNODE_LOG_DIR_EVENTS, read_teller, NULL, ask};
