/* in_sync.c: who is in sync, and what that means for the high watermark.
 *
 * WHAT ALWAYS HOLDS
 * (1) A follower that is in the set by the controller's word, or may become a member by a proposal that is out, is
 *     counted: nothing above its log's end is below the high watermark.
 * (2) One follower at least enters or leaves while `proposed`, and none does otherwise.
 * (3) The set of a proposal is the controller's last word, with those that enter and without those that leave. */
#include "replica/in_sync.h"

#include "base/macros.h"
#include "base/mem.h"

void in_sync_init(struct in_sync *s)
{
    *s = (struct in_sync){.self = -1, .members = 0, .partition_epoch = -1, .now_ms = FOLLOWER_NEVER_MS};
}

void in_sync_fini(struct in_sync *s)
{
    mem_free(s->followers);
    s->followers = NULL;
    s->count = 0;
}

static bool ids_have(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

struct follower *in_sync_find(const struct in_sync *s, int32_t broker_id)
{
    for (int32_t i = 0; i < s->count; i++)
        if (s->followers[i].broker_id == broker_id) return &s->followers[i];
    return NULL;
}

static bool is_member(const struct follower *f)
{
    return f->state == FOLLOWER_IN || f->state == FOLLOWER_LEAVES;
}

/* ---- The controller's word */

static void take_set(struct in_sync *s, const int32_t *isr, int32_t isr_count, int32_t partition_epoch)
{
    s->members = 1;
    for (int32_t i = 0; i < s->count; i++) {
        bool in = ids_have(isr, isr_count, s->followers[i].broker_id);
        s->followers[i].state = in ? FOLLOWER_IN : FOLLOWER_OUT;
        s->members += in;
    }
    s->partition_epoch = partition_epoch;
    s->proposed = false;
    s->version++;
}

/* A new leadership begins with everybody unknown; who is in the set gets the full time to be heard of.  A leader that
 * goes on in the next epoch keeps what it knows: its log has not changed. */
static void follower_begin(struct follower *f, const struct in_sync_told *told)
{
    bool in = ids_have(told->isr, told->isr_count, f->broker_id);
    if (told->new_leader) f->log_start = f->end = f->broker_epoch = -1;
    f->refused = false;
    f->end_then = told->end;
    f->fetched_ms = in && !told->new_leader ? told->now_ms : FOLLOWER_NEVER_MS;
    f->caught_up_ms = in ? told->now_ms : FOLLOWER_NEVER_MS;
}

void in_sync_assign(struct in_sync *s, const struct in_sync_told *told)
{
    struct follower *old = s->followers;
    struct in_sync was = *s;
    s->self = told->self;
    s->now_ms = MAX(s->now_ms, told->now_ms);
    if (told->new_epoch) s->entry_min = told->end;
    s->followers = mem_zalloc((size_t)told->replica_count, sizeof *s->followers);
    s->count = 0;
    for (int32_t i = 0; i < told->replica_count; i++) {
        int32_t id = told->replicas[i];
        if (id == told->self || in_sync_find(s, id)) continue;
        struct follower *f = &s->followers[s->count++];
        const struct follower *known = in_sync_find(&was, id);
        *f = (struct follower){.broker_id = id, .broker_epoch = -1, .log_start = -1, .end = -1, .eligible = true};
        f->fetched_ms = f->caught_up_ms = FOLLOWER_NEVER_MS;
        f->end_then = told->end;
        if (known) *f = *known;
        if (told->new_epoch || !known) follower_begin(f, told);
    }
    mem_free(old);
    take_set(s, told->isr, told->isr_count, told->partition_epoch);
}

void in_sync_clear(struct in_sync *s)
{
    in_sync_fini(s);
    s->members = 0;
    s->proposed = false;
    s->version++;
}

void in_sync_commit(struct in_sync *s, const int32_t *isr, int32_t isr_count, int32_t partition_epoch)
{
    take_set(s, isr, isr_count, partition_epoch);
}

void in_sync_withdraw(struct in_sync *s)
{
    for (int32_t i = 0; i < s->count; i++) {
        struct follower *f = &s->followers[i];
        f->state = is_member(f) ? FOLLOWER_IN : FOLLOWER_OUT;
    }
    s->proposed = false;
    s->version++;
}

void in_sync_refuse(struct in_sync *s)
{
    for (int32_t i = 0; i < s->count; i++) s->followers[i].refused |= s->followers[i].state == FOLLOWER_ENTERS;
    in_sync_withdraw(s);
}

/* ---- A follower's word */

/* It had all that we have, or at least all that we had when it fetched before: so then it was caught up. */
bool in_sync_note(struct in_sync *s, struct follower *f, const struct follower_news *news)
{
    if (news->broker_epoch >= 0 && news->broker_epoch < f->broker_epoch) return false;
    if (news->fetch_offset >= news->end)
        f->caught_up_ms = MAX(f->caught_up_ms, news->now_ms);
    else if (news->fetch_offset >= f->end_then)
        f->caught_up_ms = MAX(f->caught_up_ms, f->fetched_ms);
    /* Also -1: one that does not say it may live again, and what an earlier life said would keep it out for ever. */
    f->broker_epoch = news->broker_epoch;
    f->end = news->fetch_offset;
    f->log_start = news->log_start;
    f->fetched_ms = news->now_ms;
    f->end_then = news->end;
    s->now_ms = MAX(s->now_ms, news->now_ms);
    /* Kafka gives it the whole replica.lag.time.max.ms, as one that lags; but a new disk must not be elected. */
    if (is_member(f) && news->fetch_offset < news->high_watermark) f->caught_up_ms = FOLLOWER_NEVER_MS;
    return true;
}

static bool is_caught_up(const struct in_sync *s, const struct follower *f, int64_t end)
{
    return f->end == end || s->now_ms - f->caught_up_ms <= s->lag_max_ms;
}

/* One that is out but has caught up is about to enter: if the high watermark ran ahead of it under load, it might never
 * reach it. */
static bool has_a_say(const struct in_sync *s, const struct follower *f, int64_t end)
{
    return f->state != FOLLOWER_OUT || (f->eligible && !f->refused && is_caught_up(s, f, end));
}

int32_t in_sync_members_min(const struct in_sync *s, int32_t min_insync)
{
    return MIN(min_insync, s->count + 1);
}

int32_t in_sync_members_max(const struct in_sync *s)
{
    int32_t n = s->members;
    for (int32_t i = 0; i < s->count; i++) n += s->followers[i].state == FOLLOWER_ENTERS;
    return n;
}

int64_t in_sync_high_watermark(const struct in_sync *s, int64_t end, int32_t min_insync)
{
    if (s->members < in_sync_members_min(s, min_insync)) return -1;
    int64_t lowest = end;
    for (int32_t i = 0; i < s->count; i++) {
        const struct follower *f = &s->followers[i];
        if (f->end < lowest && has_a_say(s, f, end)) lowest = f->end;
    }
    return lowest;
}

bool in_sync_is_alone(const struct in_sync *s, int64_t end)
{
    for (int32_t i = 0; i < s->count; i++)
        if (has_a_say(s, &s->followers[i], end)) return false;
    return true;
}

/* ---- Proposals */

/* Whoever would have to leave at once does not enter: with a high watermark that stands still, since too few are in,
 * one that is not heard of any more would come and go as fast as the controller answers. */
static bool may_enter(const struct in_sync *s, const struct follower *f, int64_t high_watermark, int64_t end)
{
    return f->eligible && !f->refused && f->end >= high_watermark && f->end >= s->entry_min && is_caught_up(s, f, end);
}

bool in_sync_propose_entry(struct in_sync *s, int64_t high_watermark, int64_t end)
{
    if (s->proposed) return false;
    for (int32_t i = 0; i < s->count; i++) {
        struct follower *f = &s->followers[i];
        if (f->state != FOLLOWER_OUT || !may_enter(s, f, high_watermark, end)) continue;
        f->state = FOLLOWER_ENTERS;
        s->proposed = true;
    }
    if (s->proposed) s->version++;
    return s->proposed;
}

bool in_sync_propose_exit(struct in_sync *s, int64_t end)
{
    if (s->proposed) return false;
    for (int32_t i = 0; i < s->count; i++) {
        struct follower *f = &s->followers[i];
        if (f->state != FOLLOWER_IN || is_caught_up(s, f, end)) continue;
        f->state = FOLLOWER_LEAVES;
        s->proposed = true;
    }
    if (s->proposed) s->version++;
    return s->proposed;
}

int32_t in_sync_proposal(const struct in_sync *s, int64_t self_epoch, int32_t *ids, int64_t *epochs)
{
    int32_t n = 1;
    ids[0] = s->self;
    epochs[0] = self_epoch;
    for (int32_t i = 0; i < s->count; i++) {
        const struct follower *f = &s->followers[i];
        if (f->state != FOLLOWER_IN && f->state != FOLLOWER_ENTERS) continue;
        ids[n] = f->broker_id;
        epochs[n++] = f->broker_epoch;
    }
    return n;
}

/* ---- Time */

int64_t in_sync_due_ms(const struct in_sync *s)
{
    int64_t due_ms = INT64_MAX;
    for (int32_t i = 0; i < s->count; i++) {
        const struct follower *f = &s->followers[i];
        if (f->caught_up_ms == FOLLOWER_NEVER_MS && f->state == FOLLOWER_OUT) continue;
        int64_t at_ms = f->caught_up_ms + s->lag_max_ms + 1;
        /* Over already: one that is out has lost its say; a member has all there is, and may lag from the next append
         * on without having been heard of. */
        if (at_ms <= s->now_ms) {
            if (f->state == FOLLOWER_OUT) continue;
            at_ms = s->now_ms + s->lag_max_ms / 2 + 1;
        }
        due_ms = MIN(due_ms, at_ms);
    }
    return due_ms;
}

int64_t in_sync_low_watermark(const struct in_sync *s, int64_t own)
{
    int64_t lowest = own;
    for (int32_t i = 0; i < s->count; i++)
        if (s->followers[i].eligible) lowest = MIN(lowest, s->followers[i].log_start);
    return lowest;
}
