/* shard.c: the entry points: calls by API, time, outcomes of writes; and the shard's own life.
 *
 * What the group's code answers is collected in `answered` and given to the host when an entry point ends: a host that
 * reacts to an answer with the next call meets a shard with nothing half done, and no code of ours runs on a group that
 * such a call has changed under it. */
#include "group/shard.h"

#include "group/group_internal.h"

enum { IDLE_BYTES_MAX = 64 * 1024 }; /* of buffers for records */

struct group_shard *group_shard_new(int32_t partition, const struct group_shard_env *env,
                                    const struct group_options *opt)
{
    struct group_shard *sh = mem_zalloc(1, sizeof *sh);
    sh->partition = partition;
    sh->env = *env;
    sh->opt = *opt;
    sh->bufs = buf_pool_new(IDLE_BYTES_MAX);
    list_init(&sh->calls);
    list_init(&sh->answered);
    list_init(&sh->forgetting);
    return sh;
}

void group_shard_free(struct group_shard *sh)
{
    ASSERT(sh->writes == 0);
    group_shard_close(sh, KERR_NOT_COORDINATOR); /* one that failed to load has not been */
    struct group *grp, *next;
    HASH_ITER(hh, sh->groups, grp, next) group_free(grp);
    group_replay_end(sh);
    timer_heap_fini(&sh->timers);
    buf_pool_free(sh->bufs);
    mem_free(sh);
}

void shard_timer_set(struct group_shard *sh, struct timer *t, int64_t due_ms)
{
    timer_heap_set(&sh->timers, t, due_ms);
}

void shard_timer_cancel(struct group_shard *sh, struct timer *t)
{
    timer_heap_cancel(&sh->timers, t);
}

void group_answer(struct group_shard *sh, struct group_call *call)
{
    ASSERT(list_has(&call->waiting));
    list_remove(&call->waiting);
    list_remove(&call->node);
    call->member = NULL;
    call->write = NULL;
    list_push_back(&sh->answered, &call->waiting);
}

void group_answer_kerr(struct group_shard *sh, struct group_call *call, enum kerr kerr)
{
    group_refuse(call, kerr);
    group_answer(sh, call);
}

void shard_give_answers(struct group_shard *sh)
{
    if (sh->answering) return;
    sh->answering = true;
    for (struct list_node *n; (n = list_pop_front(&sh->answered));)
        sh->env.answer(sh->env.arg, CONTAINER_OF(n, struct group_call, waiting));
    sh->answering = false;
}

void group_shard_loaded(struct group_shard *sh, int64_t mono_ms, int64_t wall_ms)
{
    sh->mono_ms = mono_ms;
    sh->wall_ms = wall_ms;
    group_replay_end(sh);
    struct group *grp, *next;
    HASH_ITER(hh, sh->groups, grp, next)
    {
        group_restored(grp);
        group_drop_if_idle(grp);
    }
    shard_give_answers(sh);
}

void group_shard_tick(struct group_shard *sh, int64_t mono_ms, int64_t wall_ms)
{
    sh->mono_ms = MAX(sh->mono_ms, mono_ms); /* another thread, which loaded us, may have looked at the clock later */
    sh->wall_ms = wall_ms;
    timer_heap_fire(&sh->timers, sh->mono_ms);
    shard_give_answers(sh);
}

int64_t group_shard_due_ms(const struct group_shard *sh)
{
    return timer_heap_due_us(&sh->timers);
}

void group_shard_call(struct group_shard *sh, struct group_call *call)
{
    static void (*const handle[GROUP_API_COUNT])(struct group_shard * sh, struct group_call * call) = {
        [GROUP_JOIN] = group_join,
        [GROUP_SYNC] = group_sync,
        [GROUP_HEARTBEAT] = group_heartbeat,
        [GROUP_LEAVE] = group_leave,
        [GROUP_COMMIT] = group_commit,
        [GROUP_FETCH] = group_fetch,
        [GROUP_DELETE_OFFSET] = group_delete_offset,
        [GROUP_DESCRIBE] = group_describe,
        [GROUP_LIST] = group_list,
        [GROUP_DELETE] = group_delete,
    };
    ASSERT(!sh->closed);
    ASSERT(!list_has(&call->waiting));
    call->node = (struct list_node){0};
    call->member = NULL;
    call->write = NULL;
    call->pending = 0;
    list_push_back(&sh->calls, &call->waiting);
    if (call->api != GROUP_LIST && !group_id_is_valid(group_call_group(call), call->api))
        group_answer_kerr(sh, call, KERR_INVALID_GROUP_ID);
    else
        handle[call->api](sh, call);
    shard_give_answers(sh);
}

/* Nothing of ours points at the call any more. */
static void forget_call(struct group_call *call)
{
    list_remove(&call->node);
    if (call->member && call->member->join == call) call->member->join = NULL;
    if (call->member && call->member->sync == call) call->member->sync = NULL;
    call->member = NULL;
    call->write = NULL;
}

void group_shard_drop(struct group_shard *sh, struct group_call *call)
{
    (void)sh;
    if (!list_has(&call->waiting)) return;
    list_remove(&call->waiting);
    forget_call(call);
}

void group_shard_written(struct group_shard *sh, struct group_write *w, enum kerr kerr)
{
    ASSERT(sh->writes > 0 && w->group->writes > 0);
    sh->writes--;
    w->group->writes--;
    w->done(sh, w, kerr);
    group_write_free(w);
    group_sweep_go_on(sh);
    shard_give_answers(sh);
}

void group_shard_close(struct group_shard *sh, enum kerr kerr)
{
    if (sh->closed) return;
    sh->closed = true;
    struct group *grp, *next;
    HASH_ITER(hh, sh->groups, grp, next) group_close(grp, kerr);
    /* Those that wait for a write: its outcome will find none of them. */
    for (struct list_node *n; (n = list_first(&sh->calls));) {
        struct group_call *call = CONTAINER_OF(n, struct group_call, waiting);
        forget_call(call);
        group_answer_kerr(sh, call, kerr);
    }
    shard_give_answers(sh);
}

size_t group_shard_count(const struct group_shard *sh)
{
    return HASH_COUNT(sh->groups);
}
