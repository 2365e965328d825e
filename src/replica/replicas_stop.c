/* replicas_stop.c: the controller's StopReplica: partitions that are no replicas here any more, or whose logs go, too.
 *
 * On the home loop they leave the table and their fetchers; a worker renames the directories that are to be deleted.  A
 * log that is being opened is waited for. */
#include <stdio.h>

#include "base/arena.h"
#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

struct stop_job {
    struct job job;
    struct replicas *r;
    struct stop_item {
        struct partition *p;
        bool delete;
        int64_t delay_ms;
        enum kerr kerr;
        struct str topic;
        int32_t index;
        char *doomed_path;
    } * items;
    size_t count;
    size_t openings; /* waited for */
    replicas_stopped done;
    void *arg;
};

/* <dir>/<topic>-<index>.<32 hex digits>-delete, the topic cut so that the name stays below 255 bytes (as Kafka does).
 */
char *replicas_doomed_path_in(struct replicas *r, const struct partition *p, const struct log_dir *d)
{
    uint64_t id[2];
    rng_fill(r->opt.rng, id, sizeof id);
    char tail[80];
    int n = snprintf(tail, sizeof tail, "-%d.%016llx%016llx-delete", p->index, (unsigned long long)id[0],
                     (unsigned long long)id[1]);
    int room = 255 - n;
    return mem_printf("%s/%.*s%s", d->path, room, p->topic, tail);
}

char *replicas_doomed_path(struct replicas *r, const struct partition *p)
{
    return replicas_doomed_path_in(r, p, p->dir);
}

/* Renames the directory, with the log in it or without one, if it could not be opened. */
static enum err stop_retire(struct replicas *r, struct stop_item *it)
{
    struct partition *p = it->p;
    it->doomed_path = replicas_doomed_path(r, p);
    enum err e;
    if (p->pl) {
        e = plog_retire(p->pl, it->doomed_path);
        struct partition *next = partition_successor(p);
        if (e == ERR_CLOSED && next) { /* a move was faster */
            mem_free(it->doomed_path);
            it->doomed_path = replicas_doomed_path(r, next);
            e = plog_retire(next->pl, it->doomed_path);
        }
    } else {
        char *path = mem_printf("%s/%s-%d", p->dir->path, p->topic, p->index);
        e = fs_rename(r->opt.fs, path, it->doomed_path);
        mem_free(path);
        if (!e && p->found && !p->dir->clean) atomic_fetch_sub(&p->dir->unrecovered, 1);
    }
    return e == ERR_NOT_FOUND ? OK : e;
}

/* Kafka renames first and removes the files a while later, so that readers in progress end in peace.  The checkpoints
 * forget the partition too: a topic that is made later under the same name would start where this one did. */
static void stop_work(struct job *job)
{
    struct stop_job *sj = CONTAINER_OF(job, struct stop_job, job);
    bool had_start = false, had_recovery_point = false, was_cleaned = false;
    for (size_t i = 0; i < sj->count; i++) {
        struct stop_item *it = &sj->items[i];
        if (!it->p || !it->delete) continue;
        enum err e = stop_retire(sj->r, it);
        if (e) {
            LOG_ERROR("log_delete_failed", "topic=%s partition=%d error=%s", it->p->topic, it->p->index, err_name(e));
            replicas_dir_check(it->p->dir, e, "delete");
            it->kerr = KERR_KAFKA_STORAGE_ERROR;
        }
        had_start |= !it->p->pl || plog_start(it->p->pl) > 0;
        had_recovery_point |= !it->p->pl || plog_recovery_point(it->p->pl) > 0;
        was_cleaned |= !it->p->pl || plog_cleaned(it->p->pl) >= 0;
    }
    /* A failure is logged; the next chore tries again. */
    if (had_start) (void)!replicas_write_checkpoints(sj->r, CHORE_STARTS);
    if (had_recovery_point) (void)!replicas_write_checkpoints(sj->r, CHORE_CHECKPOINT);
    if (was_cleaned) (void)!replicas_write_checkpoints(sj->r, CHORE_CLEANED);
}

/* Its directory is there still, under its name: it waits among the unclaimed ones for the controller to ask again. */
static void stop_again(struct replicas *r, struct partition *p)
{
    atomic_fetch_add(&p->dir->partition_count, 1);
    replicas_add(r, p);
    replicas_unclaim(r, partition_ref(p));
}

static void stop_done(struct job *job)
{
    struct stop_job *sj = CONTAINER_OF(job, struct stop_job, job);
    struct arena arena;
    arena_init(&arena, SIZE_MAX);
    struct stop_replica_response out = stop_replica_response_default;
    out.partition_errors = arena_array(&arena, struct stop_replica_response_stop_replica_partition_error, sj->count);
    for (size_t i = 0; i < sj->count; i++) {
        struct stop_item *it = &sj->items[i];
        struct stop_replica_response_stop_replica_partition_error *pe =
            &out.partition_errors[out.partition_errors_count++];
        *pe = stop_replica_response_stop_replica_partition_error_default;
        pe->topic_name = it->topic;
        pe->partition_index = it->index;
        pe->error_code = (int16_t)it->kerr;
        if (it->p && it->delete &&it->kerr) stop_again(sj->r, it->p);
        if (it->p && it->delete &&!it->kerr) replicas_doom(sj->r, it->doomed_path, it->delay_ms);
        mem_free(it->doomed_path);
        partition_unref(it->p);
    }
    sj->done(sj->arg, &out);
    arena_fini(&arena);
    mem_free(sj->items);
    mem_free(sj);
}

/* A deletion that a crash interrupted goes on before anybody spoke of the topic: its logs are there, unclaimed. */
static void delete_unclaimed(struct replicas *r, struct stop_job *sj, struct stop_item *it)
{
    char *name = mem_strndup(it->topic.data, it->topic.size);
    it->p = replicas_claim(r, name, it->index);
    mem_free(name);
    if (!it->p) return;
    struct topic_settings settings;
    r->opt.settings_of(r->opt.settings_arg, it->topic, &settings);
    it->delete = true;
    it->delay_ms = settings.log.file_delete_delay_ms;
    partition_set_deleted(it->p);
    replicas_move_discard_found(r, it->p);
    replicas_drop(r, it->p);
    struct opening *op = it->p->opening;
    if (!op) return;
    atomic_store(&op->cancel, true);
    op->stopper = sj;
    sj->openings++;
}

void replicas_stop_go_on(struct stop_job *sj)
{
    if (--sj->openings == 0) workers_submit(sj->r->opt.workers, &sj->job);
}

static void stop_deferred(struct replicas *r, const struct stop_item *it)
{
    char *name = mem_strndup(it->topic.data, it->topic.size);
    struct partition *p = replicas_unclaimed(r, name, it->index);
    mem_free(name);
    if (!p || !p->opening) return;
    p->opening->deferred.role.leads = false;
    p->opening->deferred.role.leader = -1;
}

static void stop_one(struct replicas *r, struct stop_job *sj, struct stop_item *it,
                     const struct stop_replica_request_stop_replica_partition_state *ps)
{
    struct topic_replicas *t = replicas_find(r, it->topic);
    struct partition *p = topic_partition(t, ps->partition_index);
    if (!p) {
        if (ps->delete_partition)
            delete_unclaimed(r, sj, it);
        else
            stop_deferred(r, it);
        return;
    }
    /* -2 is "the topic is being deleted", -1 "whatever the epoch" (KIP-570's LeaderAndIsr.EpochDuringDelete, NoEpoch).
     */
    if (ps->leader_epoch >= 0 && ps->leader_epoch < atomic_load(&p->leader_epoch)) {
        it->kerr = KERR_FENCED_LEADER_EPOCH;
        return;
    }
    if (ps->delete_partition && !log_dir_is_online(p->dir)) {
        it->kerr = KERR_KAFKA_STORAGE_ERROR; /* its files are out of reach: the topic goes when they are back */
        return;
    }
    it->p = partition_ref(p);
    it->delete = ps->delete_partition;
    it->delay_ms = topic_settings(t)->log.file_delete_delay_ms;
    if (it->delete) {
        replicas_move_cancel(p);
        partition_set_deleted(p);
        replicas_unlink(r, t, p);
    } else {
        partition_resign(p);
    }
    replicas_leave(r, p);
    replicas_tell_role(r, p);
}

void replicas_stop(struct replicas *r, const struct stop_replica_request *request, replicas_stopped done, void *arg)
{
    ASSERT_OWNER(r->opt.home);
    struct stop_job *sj = mem_zalloc(1, sizeof *sj);
    *sj = (struct stop_job){.job = {.loop = r->opt.home, .work = stop_work, .done = stop_done}, .r = r};
    sj->done = done;
    sj->arg = arg;
    for (int32_t t = 0; t < request->topic_states_count; t++)
        sj->count += (size_t)request->topic_states[t].partition_states_count;
    sj->items = mem_zalloc(sj->count, sizeof *sj->items);
    size_t at = 0;
    for (int32_t t = 0; t < request->topic_states_count; t++) {
        const struct stop_replica_request_stop_replica_topic_state *ts = &request->topic_states[t];
        for (int32_t i = 0; i < ts->partition_states_count; i++) {
            struct stop_item *it = &sj->items[at++];
            it->topic = ts->topic_name;
            it->index = ts->partition_states[i].partition_index;
            stop_one(r, sj, it, &ts->partition_states[i]);
        }
    }
    if (sj->openings == 0) workers_submit(r->opt.workers, &sj->job);
}
