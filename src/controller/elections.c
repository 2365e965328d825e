/* elections.c: who leads a partition that has lost its leader.
 *
 * Of the replicas that are alive and in sync the one with the most records: the highest leader epoch, then the highest
 * log end offset.  All of them have every record that was acknowledged with acks=all; the rule saves those of acks=1
 * that only some have.  Every broker concerned is asked once, for all partitions, and has `log_ends_wait_ms` to answer;
 * whoever does not is passed over for one who does, and when nobody does the first in assignment order leads.
 *
 * Unclean elections follow the same rule among the live replicas, where the topic's settings allow it.  They are not
 * held while a replica in sync is still registered and merely out of reach: it may live, and waiting for its
 * registration to go costs a while, not records.
 *
 * Replicas that have restarted stand back behind those that have not: a process that died took nothing along, but a
 * host that lost its power took what was not synced.  Such a one leads only when there is no other in sync, and always
 * in a new epoch: in the old one it could give offsets away a second time that followers have records at. */
#define LOG_MODULE "controller"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"

struct contest {
    struct topic *topic;
    int32_t partition;
    bool unclean;   /* replicas that are not in sync may stand */
    bool restarted; /* replicas that have restarted may stand: nobody else in sync is left */
    int32_t ahead;  /* who has the most records of those who have answered; -1: nobody has */
    int32_t ahead_epoch;
    int64_t ahead_end;
};

void elections_init(struct elections *el, struct controller *c, struct event *ev, struct arena *a)
{
    *el = (struct elections){.c = c, .ev = ev, .a = a};
}

void elections_fini(struct elections *el)
{
    mem_free(el->contests);
    *el = (struct elections){0};
}

/* --- rules --- */

bool replica_is_electable(const struct controller *c, const struct controller_partition *p, int32_t id)
{
    return replica_is_alive(c, p, id) && !broker_find(c, id)->shutting_down;
}

int32_t replica_choose(const struct controller *c, const struct controller_partition *p, const int32_t *ids,
                       int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (ids_have(p->isr, p->isr_count, ids[i]) && replica_is_electable(c, p, ids[i])) return ids[i];
    return -1;
}

/* Registered, with a directory that works; it may be out of reach, or be starting anew. */
static bool replica_may_return(const struct controller *c, const struct controller_partition *p, int32_t id)
{
    return broker_find(c, id) && !ids_have(p->offline, p->offline_count, id);
}

bool replica_has_restarted(const struct controller *c, const struct controller_partition *p, int32_t id)
{
    const struct broker *b = broker_find(c, id);
    return b && (b->restarted || (p->replica_count > 1 && b->epoch > p->state_zxid));
}

/* Whoever in sync is there, or may return, has restarted. */
static bool only_restarted_left(const struct controller *c, const struct controller_partition *p)
{
    for (int32_t i = 0; i < p->isr_count; i++)
        if (replica_may_return(c, p, p->isr[i]) && !replica_has_restarted(c, p, p->isr[i])) return false;
    return true;
}

static struct controller_partition *partition_of(const struct contest *ct)
{
    return &ct->topic->partitions[ct->partition];
}

static bool has_clean_candidate(const struct controller *c, const struct controller_partition *p)
{
    return replica_choose(c, p, p->replicas, p->replica_count) >= 0;
}

static bool needs_unclean(const struct controller *c, const struct controller_partition *p)
{
    for (int32_t i = 0; i < p->isr_count; i++)
        if (replica_may_return(c, p, p->isr[i])) return false;
    return true;
}

static bool is_candidate(const struct controller *c, const struct contest *ct, int32_t id)
{
    const struct controller_partition *p = partition_of(ct);
    if (!replica_is_electable(c, p, id)) return false;
    if (ct->unclean) return true;
    return ids_have(p->isr, p->isr_count, id) && (ct->restarted || !replica_has_restarted(c, p, id));
}

static size_t candidate_count(const struct controller *c, const struct contest *ct)
{
    const struct controller_partition *p = partition_of(ct);
    size_t n = 0;
    for (int32_t i = 0; i < p->replica_count; i++) n += is_candidate(c, ct, p->replicas[i]);
    return n;
}

void elections_add(struct elections *el, struct topic *t, int32_t partition, bool unclean)
{
    struct controller *c = el->c;
    const struct controller_partition *p = &t->partitions[partition];
    if (!p->replicas || p->state_version < 0) return;
    if (p->leader >= 0 && replica_is_alive(c, p, p->leader) && !replica_has_restarted(c, p, p->leader)) return;
    el->contests = mem_grow(el->contests, &el->cap, el->count + 1, sizeof *el->contests);
    el->contests[el->count++] = (struct contest){.topic = t,
                                                 .partition = partition,
                                                 .unclean = unclean && !has_clean_candidate(c, p),
                                                 .restarted = only_restarted_left(c, p),
                                                 .ahead = -1};
}

/* --- settings --- */

struct settings_read {
    struct elections *el;
    struct topic *topic;
};

/* In any case, as Kafka's tools and brokers take it. */
static bool is_true(struct str value)
{
    return value.size == 4 && strncasecmp(value.data, "true", 4) == 0;
}

static void settings_done(void *arg, const struct coord_result *r)
{
    static const char name[] = "unclean.leader.election.enable";
    struct settings_read *sr = arg;
    struct elections *el = sr->el;
    struct znode_config cfg = {0};
    struct fault f = {0};
    bool enabled = el->c->opt.unclean_election;
    if (r->err == OK && znode_config_decode(el->a, r->path, r->data, &cfg, &f))
        LOG_WARN("settings_ignored", "reason=\"%s\"", f.text);
    for (size_t i = 0; i < cfg.count; i++)
        if (str_is(cfg.settings[i].name, name)) enabled = is_true(cfg.settings[i].value);
    /* Without its settings nobody may lead who could cost records. */
    bool known = !f.code && (r->err == OK || r->err == ERR_NOT_FOUND);
    sr->topic->unclean = known && enabled ? UNCLEAN_YES : UNCLEAN_NO;
    controller_depose_if(el->c, r->err);
    event_call_done(el->c, el->ev, OK);
}

static int compare_contests(const void *a, const void *b)
{
    const struct contest *x = a, *y = b;
    if (x->topic != y->topic) return str_compare(x->topic->name, y->topic->name);
    return (x->partition > y->partition) - (x->partition < y->partition);
}

/* Each topic learns which contests are its own, for the answers, which name topics. */
static void sort_contests(struct elections *el)
{
    if (el->count) qsort(el->contests, el->count, sizeof *el->contests, compare_contests);
    for (size_t i = 0; i < el->count; i++) {
        struct topic *t = el->contests[i].topic;
        if (i == 0 || el->contests[i - 1].topic != t) {
            t->contest_from = i;
            t->contest_count = 0;
        }
        t->contest_count++;
    }
}

void elections_read_settings(struct elections *el)
{
    const struct topic *asked = NULL;
    sort_contests(el);
    for (size_t i = 0; i < el->count; i++) {
        struct topic *t = el->contests[i].topic;
        const struct controller_partition *p = partition_of(&el->contests[i]);
        if (t == asked || el->contests[i].unclean || has_clean_candidate(el->c, p) || !needs_unclean(el->c, p))
            continue;
        asked = t;
        struct settings_read *sr = arena_alloc(el->a, sizeof *sr);
        *sr = (struct settings_read){el, t};
        t->unclean = UNCLEAN_UNKNOWN;
        el->ev->pending++;
        coord_get(el->c->opt.coord, znode_config_path(el->a, CONFIG_TOPICS, t->name), COORD_NO_WATCH,
                  (struct coord_to){el->c->opt.loop, settings_done, sr});
    }
}

/* --- asking --- */

/* What one broker is asked. */
struct question {
    struct elections *el;
    int32_t broker_id;
    struct list_offsets_request rq;
};

static struct contest *contest_find(struct elections *el, struct str topic, int32_t partition)
{
    const struct topic *t = topic_find(el->c, topic);
    if (!t || t->contest_from + t->contest_count > el->count) return NULL;
    size_t low = t->contest_from, high = low + t->contest_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct contest *ct = &el->contests[mid];
        if (ct->topic != t) return NULL; /* numbers from another event's elections */
        if (ct->partition == partition) return ct;
        if (ct->partition < partition)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static bool stands_before(const struct controller_partition *p, int32_t id, int32_t other)
{
    for (int32_t i = 0; i < p->replica_count; i++)
        if (p->replicas[i] == id || p->replicas[i] == other) return p->replicas[i] == id;
    return false;
}

static void hear(struct elections *el, int32_t broker_id, struct contest *ct, int32_t epoch, int64_t end)
{
    bool more = ct->ahead < 0 || epoch > ct->ahead_epoch || (epoch == ct->ahead_epoch && end > ct->ahead_end);
    bool same = ct->ahead >= 0 && epoch == ct->ahead_epoch && end == ct->ahead_end;
    if (!is_candidate(el->c, ct, broker_id)) return;
    if (!more && !(same && stands_before(partition_of(ct), broker_id, ct->ahead))) return;
    ct->ahead = broker_id;
    ct->ahead_epoch = epoch;
    ct->ahead_end = end;
}

static void answered(void *arg, enum err e, const struct list_offsets_response *r)
{
    struct question *q = arg;
    struct elections *el = q->el;
    if (e) LOG_WARN("log_ends_unknown", "broker=%d error=%s", q->broker_id, err_name(e));
    for (int32_t i = 0; !e && i < r->topics_count; i++) {
        for (int32_t k = 0; k < r->topics[i].partitions_count; k++) {
            const struct list_offsets_response_list_offsets_partition_response *pr = &r->topics[i].partitions[k];
            struct contest *ct = contest_find(el, r->topics[i].name, pr->partition_index);
            if (ct && pr->error_code == KERR_NONE && pr->offset >= 0)
                hear(el, q->broker_id, ct, pr->leader_epoch, pr->offset);
        }
    }
    event_call_done(el->c, el->ev, OK);
}

/* Of those contests in which the broker is one of several candidates. */
static void fill_question(struct question *q)
{
    struct elections *el = q->el;
    struct list_offsets_request *rq = &q->rq;
    enum { REPLICA_FOR_DEBUGGING = -2, TIMESTAMP_LATEST = -1 }; /* followers answer too, with their log's end */
    *rq = list_offsets_request_default;
    rq->replica_id = REPLICA_FOR_DEBUGGING;
    rq->timeout_ms = (int32_t)MIN(el->c->opt.log_ends_wait_ms, INT32_MAX);
    size_t topics = 0;
    for (size_t i = 0; i < el->count; i++) topics += i == 0 || el->contests[i].topic != el->contests[i - 1].topic;
    rq->topics = arena_array(el->a, struct list_offsets_request_list_offsets_topic, topics);
    for (size_t i = 0; i < el->count; i++) {
        const struct contest *ct = &el->contests[i];
        if (!is_candidate(el->c, ct, q->broker_id) || candidate_count(el->c, ct) < 2) continue;
        struct list_offsets_request_list_offsets_topic *ot =
            rq->topics_count ? &rq->topics[rq->topics_count - 1] : NULL;
        if (!ot || !str_equal(ot->name, ct->topic->name)) {
            ot = &rq->topics[rq->topics_count++];
            ot->name = ct->topic->name;
            ot->partitions =
                arena_array(el->a, struct list_offsets_request_list_offsets_partition, ct->topic->contest_count);
        }
        struct list_offsets_request_list_offsets_partition *op = &ot->partitions[ot->partitions_count++];
        *op = list_offsets_request_list_offsets_partition_default;
        op->partition_index = ct->partition;
        op->current_leader_epoch = -1;
        op->timestamp = TIMESTAMP_LATEST;
    }
}

void elections_ask(struct elections *el)
{
    struct controller *c = el->c;
    for (size_t i = 0; i < el->count; i++) {
        struct contest *ct = &el->contests[i];
        const struct controller_partition *p = partition_of(ct);
        if (!ct->unclean && !has_clean_candidate(c, p))
            ct->unclean = ct->topic->unclean == UNCLEAN_YES && needs_unclean(c, p);
    }
    if (!c->opt.channel.list_offsets || c->opt.log_ends_wait_ms <= 0) return;
    for (const struct broker *b = el->count ? c->brokers : NULL; b; b = b->hh.next) {
        if (!broker_is_alive(c, b->id)) continue;
        struct question *q = arena_alloc(el->a, sizeof *q);
        *q = (struct question){.el = el, .broker_id = b->id};
        fill_question(q);
        if (!q->rq.topics_count) continue;
        el->ev->pending++;
        c->opt.channel.list_offsets(c->opt.channel.arg, b->id, &q->rq, c->opt.log_ends_wait_ms, answered, q);
    }
}

/* --- the outcome --- */

static int32_t winner_of(const struct controller *c, const struct contest *ct)
{
    const struct controller_partition *p = partition_of(ct);
    if (ct->ahead >= 0 && is_candidate(c, ct, ct->ahead)) return ct->ahead;
    for (int32_t i = 0; i < p->replica_count; i++)
        if (is_candidate(c, ct, p->replicas[i])) return p->replicas[i];
    return -1;
}

bool elections_give(struct elections *el, struct topic *t, int32_t partition)
{
    struct contest *ct = contest_find(el, t->name, partition);
    int32_t winner = ct ? winner_of(el->c, ct) : -1;
    if (winner < 0) return false;
    if (ct->unclean)
        LOG_WARN("unclean_election", "topic=%.*s partition=%d leader=%d", STR_ARG(t->name), partition, winner);
    partition_lead(el->c, &t->partitions[partition], winner);
    return true;
}

/* --- changing a partition, in memory --- */

/* Stays in the in-sync set with `keep`, which stays in any case; -1: nobody does. */
static bool stays(const struct controller *c, const struct controller_partition *p, int32_t id, int32_t keep)
{
    if (id == keep) return true;
    if (!replica_is_alive(c, p, id)) return false;
    return !replica_has_restarted(c, p, id) || (keep >= 0 && replica_has_restarted(c, p, keep));
}

static int32_t *in_sync_alive(const struct controller *c, const struct controller_partition *p, int32_t keep,
                              int32_t *count)
{
    int32_t *alive = mem_alloc(((size_t)p->isr_count + 1) * sizeof *alive);
    *count = 0;
    for (int32_t i = 0; i < p->isr_count; i++)
        if (stays(c, p, p->isr[i], keep)) alive[(*count)++] = p->isr[i];
    return alive;
}

bool partition_start(const struct controller *c, struct controller_partition *p)
{
    int32_t *alive = mem_alloc((size_t)p->replica_count * sizeof *alive), count = 0;
    for (int32_t i = 0; i < p->replica_count; i++)
        if (replica_is_electable(c, p, p->replicas[i])) alive[count++] = p->replicas[i];
    if (count) {
        p->leader = alive[0];
        p->leader_epoch = 0;
        p->controller_epoch = c->epoch;
        partition_set_isr(p, alive, count);
    }
    mem_free(alive);
    return count > 0;
}

void partition_lead(const struct controller *c, struct controller_partition *p, int32_t leader)
{
    enum { RECOVERED, RECOVERING };
    int32_t count;
    if (ids_have(p->isr, p->isr_count, leader)) {
        int32_t *alive = in_sync_alive(c, p, leader, &count);
        partition_set_isr(p, alive, count);
        mem_free(alive);
    } else {
        partition_set_isr(p, &leader, 1);
        p->leader_recovery_state = RECOVERING;
    }
    p->leader = leader;
    p->leader_epoch++;
    p->controller_epoch = c->epoch;
}

bool partition_fence(const struct controller *c, struct controller_partition *p)
{
    bool gone = p->leader >= 0 && (replica_has_restarted(c, p, p->leader) || !replica_may_return(c, p, p->leader));
    int32_t count;
    int32_t *alive = in_sync_alive(c, p, gone ? -1 : p->leader, &count);
    /* When all of them are dead each may be the one that comes back. */
    bool shrinks = count > 0 && count < p->isr_count;
    if (shrinks) partition_set_isr(p, alive, count);
    mem_free(alive);
    if (!shrinks && !gone) return false;
    if (gone) p->leader = -1;
    p->leader_epoch++;
    p->controller_epoch = c->epoch;
    return true;
}
