/* leader.c: one partition as its leader sees it: what followers fetch moves the high watermark and the in-sync set.
 *
 * The rules stand in in_sync.c; here they meet the log, the partition's lock and the controller.
 *
 * While no follower has a say (`alone`), an append moves the high watermark by itself, without the lock.  Such an
 * append may be slow, and store what it has read of the log's end when a follower has meanwhile got a say.  It looks at
 * `alone` after it has read that end; and whoever clears `alone` reads the log's end after that, and lets no follower
 * enter the in-sync set that has not got so far (entry_min).  So the high watermark is below the end of every member
 * all the same.
 */
#include "replica/leaders.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/mem.h"
#include "replica/partition_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { REFUSED_MS = 500 }; /* after the controller's no nothing is proposed for so long */

static struct leaders *leaders_of(const struct partition *p)
{
    return p->services ? p->services->leaders : NULL;
}

static int64_t now_ms_of(const struct partition *p)
{
    const struct leaders *ls = leaders_of(p);
    return ls ? leaders_now_ms(ls) : 0;
}

/* ---- Under the lock */

static void look_who_lives(struct partition *p)
{
    const struct leaders *ls = leaders_of(p);
    for (int32_t i = 0; i < p->in_sync.count; i++)
        p->in_sync.followers[i].eligible = !ls || leaders_is_alive(ls, p->in_sync.followers[i].broker_id);
}

/* What others read without the lock, after a change. */
static void publish(struct partition *p)
{
    struct in_sync *s = &p->in_sync;
    int32_t min = in_sync_members_min(s, atomic_load(&p->min_insync_replicas));
    atomic_store(&p->in_sync_count, s->members);
    atomic_store(&p->in_sync_enough, s->members >= min);
    atomic_store(&p->in_sync_enough_max, in_sync_members_max(s) >= min);
    bool alone = atomic_load(&p->leads) && s->members >= min && in_sync_is_alone(s, plog_end(p->pl));
    bool was_alone = atomic_exchange(&p->alone, alone);
    if (was_alone && !alone) s->entry_min = MAX(s->entry_min, plog_end(p->pl));
}

static void raise_high_watermark(struct partition *p)
{
    if (!atomic_load(&p->leads)) return;
    int64_t end = plog_end(p->pl), safe = plog_safe_end(p->pl);
    int64_t allowed = in_sync_high_watermark(&p->in_sync, end, atomic_load(&p->min_insync_replicas));
    partition_raise_high_watermark(p, MIN(allowed, safe));
}

/* After any news of followers: who is to enter or leave, and how far the high watermark goes.  True: there is something
 * to propose. */
static bool settle(struct partition *p)
{
    struct in_sync *s = &p->in_sync;
    struct leaders *ls = leaders_of(p);
    publish(p);
    raise_high_watermark(p);
    if (!ls) return false;
    bool may_propose = leaders_can_propose(ls) && s->now_ms >= p->refused_until_ms;
    bool proposes = may_propose && in_sync_propose_exit(s, plog_end(p->pl));
    if (may_propose && !atomic_load(&p->alone))
        proposes |= in_sync_propose_entry(s, partition_high_watermark(p), plog_end(p->pl));
    if (proposes) publish(p);
    int64_t due_ms = in_sync_due_ms(s);
    if (due_ms < atomic_load_explicit(&p->watched_ms, memory_order_relaxed)) leaders_watch(ls, p, due_ms);
    return proposes;
}

/* ---- Roles */

/* Whoever leads on in the next epoch led all the time.  When one was left out, another replica may have led in it, and
 * followers have cut their logs to its. */
static bool leads_on(const struct partition *p, const struct partition_role *role)
{
    int32_t epoch = atomic_load(&p->leader_epoch);
    return atomic_load(&p->leads) && role->leader_epoch - epoch <= 1;
}

static void take_lead(struct partition *p, const struct partition_role *role, bool new_epoch)
{
    struct in_sync *s = &p->in_sync;
    const struct in_sync_told told = {
        .self = role->self,
        .replicas = role->replicas,
        .replica_count = role->replica_count,
        .isr = role->isr,
        .isr_count = role->isr_count,
        .partition_epoch = role->partition_epoch,
        .new_epoch = new_epoch,
        .new_leader = !leads_on(p, role),
        .end = plog_end(p->pl),
        .now_ms = now_ms_of(p),
    };
    if (leaders_of(p)) s->lag_max_ms = leaders_lag_max_ms(leaders_of(p));
    in_sync_assign(s, &told);
    look_who_lives(p);
    if (new_epoch || told.new_leader) atomic_store(&p->epoch_start, told.end);
    p->refused_until_ms = FOLLOWER_NEVER_MS;
}

void partition_set_role(struct partition *p, const struct partition_role *role)
{
    bool proposes = false;
    pthread_mutex_lock(&p->lock);
    int32_t epoch = atomic_load(&p->leader_epoch);
    bool stale = role->leader_epoch == epoch && role->partition_epoch < p->partition_epoch;
    if (stale) {
        pthread_mutex_unlock(&p->lock);
        return;
    }
    if (role->leads) {
        take_lead(p, role, role->leader_epoch != epoch);
    } else {
        atomic_store(&p->alone, false);
        atomic_store(&p->leads, false);
        in_sync_clear(&p->in_sync);
    }
    p->partition_epoch = role->partition_epoch;
    atomic_store(&p->leader, role->leader);
    atomic_store(&p->leader_epoch, role->leader_epoch);
    atomic_store(&p->leads, role->leads);
    if (role->leads && atomic_load(&p->online)) proposes = settle(p);
    pthread_mutex_unlock(&p->lock);
    if (proposes) leaders_propose(leaders_of(p), p);
    partition_progressed(p);
    partition_wake_all(p);
}

void partition_resign(struct partition *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->alone, false);
    atomic_store(&p->leads, false);
    atomic_store(&p->leader, -1);
    in_sync_clear(&p->in_sync);
    pthread_mutex_unlock(&p->lock);
    partition_wake_all(p);
}

/* The same log in another directory: what is known of followers holds for it, too.  What `p` has proposed is answered
 * to `p`, which hands it on. */
void partition_inherit_role(struct partition *q, struct partition *p)
{
    struct in_sync copy;
    pthread_mutex_lock(&p->lock);
    copy = p->in_sync;
    copy.followers = mem_zalloc((size_t)copy.count, sizeof *copy.followers);
    if (copy.count) memcpy(copy.followers, p->in_sync.followers, (size_t)copy.count * sizeof *copy.followers);
    int32_t leader = atomic_load(&p->leader), epoch = atomic_load(&p->leader_epoch),
            partition_epoch = p->partition_epoch;
    bool leads = atomic_load(&p->leads);
    int64_t epoch_start = atomic_load(&p->epoch_start), high_watermark = partition_high_watermark(p);
    int32_t min_insync = atomic_load(&p->min_insync_replicas);
    pthread_mutex_unlock(&p->lock);

    bool proposes = false;
    pthread_mutex_lock(&q->lock);
    int32_t had = atomic_load(&q->leader_epoch);
    if (epoch > had || (epoch == had && partition_epoch > q->partition_epoch)) {
        in_sync_withdraw(&copy);
        in_sync_fini(&q->in_sync);
        q->in_sync = copy;
        copy.followers = NULL;
        q->partition_epoch = partition_epoch;
        q->refused_until_ms = FOLLOWER_NEVER_MS;
        atomic_store(&q->min_insync_replicas, min_insync);
        atomic_store(&q->epoch_start, epoch_start);
        atomic_store(&q->leader, leader);
        atomic_store(&q->leader_epoch, epoch);
        atomic_store(&q->leads, leads);
        partition_raise_high_watermark(q, MIN(high_watermark, plog_end(q->pl)));
        if (leads) proposes = settle(q);
    }
    pthread_mutex_unlock(&q->lock);
    mem_free(copy.followers);
    if (proposes) leaders_propose(leaders_of(q), q);
    partition_progressed(q);
    partition_wake_all(q);
}

void partition_set_min_insync(struct partition *p, int32_t min_insync_replicas)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->min_insync_replicas, min_insync_replicas);
    publish(p);
    pthread_mutex_unlock(&p->lock);
}

void partition_advance_led(struct partition *p)
{
    pthread_mutex_lock(&p->lock);
    raise_high_watermark(p);
    pthread_mutex_unlock(&p->lock);
}

/* ---- A follower's fetch */

static enum kerr check_follower(const struct partition *p, const struct follower *f, bool knows_epoch)
{
    if (!atomic_load(&p->leads)) return KERR_NOT_LEADER_OR_FOLLOWER;
    if (f) return KERR_NONE;
    /* The controller may have made it a replica and we do not know yet: one that told the epoch is to try again. */
    return knows_epoch ? KERR_UNKNOWN_LEADER_EPOCH : KERR_NOT_LEADER_OR_FOLLOWER;
}

enum kerr partition_check_follower(struct partition *p, int32_t broker_id, bool knows_epoch)
{
    pthread_mutex_lock(&p->lock);
    enum kerr kerr = check_follower(p, in_sync_find(&p->in_sync, broker_id), knows_epoch);
    pthread_mutex_unlock(&p->lock);
    return kerr;
}

/* The leader may be another one by now, or lead anew with another log, and what the follower has told is of the old. */
static enum kerr check_fetch(const struct partition *p, const struct follower *f, const struct follower_fetch *ff)
{
    enum kerr kerr = check_follower(p, f, ff->leader_epoch >= 0);
    if (kerr) return kerr;
    int32_t epoch = atomic_load(&p->leader_epoch);
    if (ff->leader_epoch >= 0 && ff->leader_epoch != epoch)
        return ff->leader_epoch < epoch ? KERR_FENCED_LEADER_EPOCH : KERR_UNKNOWN_LEADER_EPOCH;
    return ff->fetch_offset <= plog_end(p->pl) ? KERR_NONE : KERR_OFFSET_OUT_OF_RANGE;
}

enum kerr partition_follower_fetched(struct partition *p, const struct follower_fetch *ff)
{
    bool proposes = false, moved = false;
    int64_t was = partition_high_watermark(p);
    pthread_mutex_lock(&p->lock);
    struct in_sync *s = &p->in_sync;
    struct follower *f = in_sync_find(s, ff->broker_id);
    enum kerr kerr = check_fetch(p, f, ff);
    if (!kerr) {
        const struct follower_news news = {
            .fetch_offset = ff->fetch_offset,
            .log_start = ff->log_start,
            .broker_epoch = ff->broker_epoch,
            .end = plog_end(p->pl),
            .high_watermark = was,
            .now_ms = ff->now_us / 1000,
        };
        int64_t log_start = f->log_start;
        if (!in_sync_note(s, f, &news)) kerr = KERR_NOT_LEADER_OR_FOLLOWER;
        if (!kerr) {
            if (s->now_ms >= p->refused_until_ms) f->refused = false;
            if (f->state == FOLLOWER_OUT) f->eligible = !leaders_of(p) || leaders_is_alive(leaders_of(p), f->broker_id);
            proposes = settle(p);
            moved = partition_high_watermark(p) != was || f->log_start != log_start;
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (proposes) leaders_propose(leaders_of(p), p);
    if (moved) partition_progressed(p);
    return kerr;
}

/* ---- For leaders.c */

void partition_look_at_followers(struct partition *p)
{
    bool proposes = false;
    pthread_mutex_lock(&p->lock);
    if (atomic_load(&p->leads) && atomic_load(&p->online)) {
        p->in_sync.now_ms = MAX(p->in_sync.now_ms, now_ms_of(p));
        look_who_lives(p);
        proposes = settle(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (proposes) leaders_propose(leaders_of(p), p);
    partition_progressed(p);
}

bool partition_take_proposal(struct partition *p, int64_t self_epoch, struct arena *arena, struct isr_proposal *out)
{
    pthread_mutex_lock(&p->lock);
    const struct in_sync *s = &p->in_sync;
    bool any = atomic_load(&p->leads) && atomic_load(&p->online) && s->proposed;
    if (any) {
        *out = (struct isr_proposal){
            .ids = arena_array(arena, int32_t, (size_t)s->count + 1),
            .epochs = arena_array(arena, int64_t, (size_t)s->count + 1),
            .self = s->self,
            .leader_epoch = atomic_load(&p->leader_epoch),
            .partition_epoch = p->partition_epoch,
            .version = s->version,
        };
        out->count = in_sync_proposal(s, self_epoch, out->ids, out->epochs);
    }
    pthread_mutex_unlock(&p->lock);
    return any;
}

static void log_isr(const struct partition *p, const struct alter_partition_response_partition_data *answer)
{
    char ids[128] = "";
    size_t at = 0;
    for (int32_t i = 0; i < answer->isr_count && at + 16 < sizeof ids; i++)
        at += (size_t)snprintf(ids + at, sizeof ids - at, "%s%d", i ? "," : "", answer->isr[i]);
    LOG_INFO("isr_changed", "topic=%s partition=%d isr=%s leader_epoch=%d partition_epoch=%d", p->topic, p->index, ids,
             answer->leader_epoch, answer->partition_epoch);
}

/* Under the lock.  True: it was taken over. */
static bool commit(struct partition *p, const struct alter_partition_response_partition_data *answer)
{
    /* Of a later epoch LeaderAndIsr tells, of what is older we know more. */
    if (answer->leader_epoch != atomic_load(&p->leader_epoch) || answer->partition_epoch < p->partition_epoch)
        return false;
    p->partition_epoch = answer->partition_epoch;
    in_sync_commit(&p->in_sync, answer->isr, answer->isr_count, answer->partition_epoch);
    return true;
}

/* A partition that has moved to another directory meanwhile has its in-sync set there. */
static void hand_on(struct partition *next, const struct alter_partition_response_partition_data *answer)
{
    bool proposes = false;
    pthread_mutex_lock(&next->lock);
    if (atomic_load(&next->leads) && answer->partition_epoch > next->partition_epoch && commit(next, answer))
        proposes = settle(next);
    pthread_mutex_unlock(&next->lock);
    if (proposes) leaders_propose(leaders_of(next), next);
    partition_progressed(next);
}

bool partition_take_answer(struct partition *p, const struct isr_proposal *asked,
                           const struct alter_partition_response_partition_data *answer)
{
    enum kerr kerr = (enum kerr)answer->error_code;
    struct partition *next = partition_successor(p);
    bool proposes = false, again = false;
    pthread_mutex_lock(&p->lock);
    struct in_sync *s = &p->in_sync;
    bool current = atomic_load(&p->leads) && atomic_load(&p->online) && s->proposed && s->version == asked->version;
    if (current) {
        switch (kerr) {
        case KERR_NONE:
            if (commit(p, answer)) log_isr(p, answer);
            break;
        case KERR_OPERATION_NOT_ATTEMPTED:
        case KERR_INELIGIBLE_REPLICA: /* it is shutting down, or its broker has started anew since */
            in_sync_refuse(s);
            p->refused_until_ms = now_ms_of(p) + REFUSED_MS;
            break;
        case KERR_UNKNOWN_TOPIC_OR_PARTITION: /* the controller knows better, and will tell: LeaderAndIsr, StopReplica
                                               */
        case KERR_UNKNOWN_TOPIC_ID:
        case KERR_FENCED_LEADER_EPOCH:
        case KERR_INVALID_UPDATE_VERSION:
        case KERR_INVALID_REQUEST:
        case KERR_NEW_LEADER_ELECTED: break;
        default: again = true;
        }
        if (!s->proposed) proposes = settle(p);
    } else if (!kerr && atomic_load(&p->leads) && answer->partition_epoch > p->partition_epoch && commit(p, answer)) {
        /* What was asked has been overtaken by LeaderAndIsr; done is done, and what is proposed now builds upon what
         * was before. */
        log_isr(p, answer);
        if (atomic_load(&p->online)) proposes = settle(p);
        current = true;
    }
    pthread_mutex_unlock(&p->lock);
    if (kerr)
        LOG_LIMITED(LOG_LEVEL_WARN, "isr_change_refused", "topic=%s partition=%d error=%s again=%d", p->topic, p->index,
                    kerr_name((int16_t)kerr), again);
    if (next && !kerr) hand_on(next, answer);
    if (proposes) leaders_propose(leaders_of(p), p);
    if (current) partition_progressed(p);
    return again;
}

/* ---- Questions */

int64_t partition_low_watermark(struct partition *p)
{
    pthread_mutex_lock(&p->lock);
    look_who_lives(p);
    int64_t lowest = in_sync_low_watermark(&p->in_sync, plog_start(p->pl));
    pthread_mutex_unlock(&p->lock);
    return lowest;
}

int32_t partition_choose_replica(struct partition *p, int64_t offset, bool (*suits)(void *arg, int32_t broker_id),
                                 void *arg)
{
    const struct follower *best = NULL;
    pthread_mutex_lock(&p->lock);
    for (int32_t i = 0; i < p->in_sync.count; i++) {
        const struct follower *f = &p->in_sync.followers[i];
        bool member = f->state == FOLLOWER_IN || f->state == FOLLOWER_LEAVES;
        if (!member || f->end < offset || f->log_start > offset || !suits(arg, f->broker_id)) continue;
        if (!best || f->end > best->end || (f->end == best->end && f->caught_up_ms > best->caught_up_ms)) best = f;
    }
    int32_t id = best ? best->broker_id : -1;
    pthread_mutex_unlock(&p->lock);
    return id;
}

/* ---- Throttles */

static bool is_throttled(const struct partition *p)
{
    return leaders_of(p) && atomic_load_explicit(&p->throttled, memory_order_relaxed) & THROTTLED_AS_LEADER;
}

bool partition_holds_back(struct partition *p, int32_t broker_id, int64_t now_us)
{
    if (!is_throttled(p) || !leaders_over_rate(leaders_of(p), now_us)) return false;
    pthread_mutex_lock(&p->lock);
    const struct follower *f = in_sync_find(&p->in_sync, broker_id);
    bool in = f && (f->state == FOLLOWER_IN || f->state == FOLLOWER_LEAVES);
    pthread_mutex_unlock(&p->lock);
    return !in;
}

void partition_charge(struct partition *p, size_t bytes, int64_t now_us)
{
    if (is_throttled(p)) leaders_charge(leaders_of(p), bytes, now_us);
}
