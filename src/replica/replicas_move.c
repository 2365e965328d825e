/* replicas_move.c: moves of partitions between log directories (AlterReplicaLogDirs, KIP-113): asked for, gone on with
 * after a start, throttled, cancelled, finished.
 *
 * A move copies the log into <topic>-<partition>.<id>-future in the other directory while the partition is served; when
 * little is missing it takes over (replicas_move_copy.c).  The partition in service is then another object: whoever
 * still holds the old one finds it by partition_successor().  The home loop owns the moves; workers do their turns. */
#include "replica/replicas_move.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "replica/cleaner.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum {
    PREFERRED_MAX = 100 * 1000, /* partitions that may be waited for */
    IDLE_US = 50 * 1000,        /* there was nothing to copy, yet no takeover */
    RETRY_US_MIN = 1000 * 1000,
    RETRY_FULL_US = 5 * 1000 * 1000,
    RETRY_US_MAX = 60 * 1000 * 1000,
};

static void kick(struct replicas *r);

/* ---- The list */

static void moves_add(struct replicas *r, struct move *m)
{
    pthread_mutex_lock(&r->lock);
    list_push_back(&r->moves, &m->node);
    pthread_mutex_unlock(&r->lock);
    ASSERT(!m->from->move);
    m->from->move = m;
}

static void moves_remove(struct replicas *r, struct move *m)
{
    if (!list_has(&m->node)) return;
    pthread_mutex_lock(&r->lock);
    list_remove(&m->node);
    pthread_mutex_unlock(&r->lock);
    m->from->move = NULL;
    loop_timer_cancel(r->opt.home, &m->timer);
}

static struct move *move_new(struct replicas *r, struct partition *p, struct log_dir *to)
{
    struct move *m = mem_zalloc(1, sizeof *m);
    m->r = r;
    m->from = partition_ref(p);
    m->to = to;
    m->counted = true;
    atomic_fetch_add(&to->partition_count, 1);
    return m;
}

/* A directory with a future log that was not closed properly is not clean at the end. */
static void set_unrecovered(struct move *m, bool unrecovered)
{
    if (m->unrecovered == unrecovered) return;
    m->unrecovered = unrecovered;
    if (unrecovered)
        atomic_fetch_add(&m->to->unrecovered, 1);
    else
        atomic_fetch_sub(&m->to->unrecovered, 1);
}

static void move_free(struct move *m)
{
    if (m->future) set_unrecovered(m, true);
    move_close(m);
    if (m->held && !m->r->stopping) cleaner_release(m->r->cleaner, m->from);
    if (m->counted) atomic_fetch_sub(&m->to->partition_count, 1);
    partition_unref(m->from);
    partition_unref(m->taken);
    mem_free(m->path);
    mem_free(m->doomed_path);
    mem_free(m);
}

/* ---- Cancelled */

/* First the name, so that no start goes on with it. */
static void discard_work(struct job *job)
{
    struct move *m = CONTAINER_OF(job, struct move, job);
    if (m->future) set_unrecovered(m, true);
    move_close(m);
    if (!m->path || !log_dir_is_online(m->to)) return;
    m->doomed_path = replicas_doomed_path_in(m->r, m->from, m->to);
    enum err e = fs_rename(m->r->opt.fs, m->path, m->doomed_path);
    if (!e || e == ERR_NOT_FOUND) set_unrecovered(m, false);
    if (!e) return;
    if (e != ERR_NOT_FOUND) LOG_ERROR("log_delete_failed", "dir=\"%s\" error=%s", m->path, err_name(e));
    mem_free(m->doomed_path);
    m->doomed_path = NULL;
}

static void discard_done(struct job *job)
{
    struct move *m = CONTAINER_OF(job, struct move, job);
    if (m->doomed_path && !m->r->stopping) replicas_doom(m->r, m->doomed_path, 0);
    move_free(m);
}

static void discard(struct move *m)
{
    struct replicas *r = m->r;
    /* Nothing may be submitted any more; or this may be what is left of the partition. */
    if (r->stopping || !log_dir_is_online(m->from->dir)) {
        move_free(m);
        return;
    }
    m->job = (struct job){.loop = r->opt.home, .work = discard_work, .done = discard_done};
    workers_submit(r->opt.workers, &m->job);
}

static void cancel(struct move *m, const char *reason)
{
    LOG_INFO("move_cancelled", "topic=%s partition=%d to=\"%s\" reason=\"%s\"", m->from->topic, m->from->index,
             m->to->path, reason);
    struct replicas *r = m->r;
    moves_remove(r, m);
    m->cancelled = true;
    if (!m->busy) discard(m);
    kick(r);
}

void replicas_move_cancel(const struct partition *p)
{
    if (p->move) cancel(p->move, "the partition goes");
}

/* ---- Finished */

/* The new one takes the old one's place in the table, with the role that the old one has by now. */
static void enter_table(struct move *m, struct topic_replicas *t)
{
    struct replicas *r = m->r;
    struct partition *p = m->from, *q = m->taken;
    partition_inherit_role(q, p);
    replicas_configure_partition(q, topic_settings(t));
    replicas_add(r, q);
    m->counted = false; /* the partition's now */
    atomic_store_explicit(&t->parts[p->index], partition_ref(q), memory_order_release);
    partition_set_deleted(p);
    atomic_store(&q->throttled, atomic_load(&p->throttled));
    replicas_follow_again(r, p, q);
    replicas_drop(r, p);
    grace_release(r->opt.grace, p, (void (*)(void *))partition_unref);
}

static void finish(struct move *m)
{
    struct replicas *r = m->r;
    struct partition *p = m->from;
    struct topic_replicas *t = replicas_find(r, str_of(p->topic));
    /* It may have been deleted meanwhile, and the new one with it. */
    if (topic_partition(t, p->index) == p) {
        enter_table(m, t);
        LOG_INFO("moved", "topic=%s partition=%d from=\"%s\" to=\"%s\"", p->topic, p->index, p->dir->path, m->to->path);
    }
    if (!r->stopping) replicas_doom(r, m->doomed_path, m->settings.log.file_delete_delay_ms);
    moves_remove(r, m);
    move_free(m);
}

/* ---- Going on */

static void turn(struct move *m);

static void turn_again(struct timer *t)
{
    turn(CONTAINER_OF(t, struct move, timer));
}

static void turn_at(struct move *m, int64_t due_us)
{
    m->timer.fire = turn_again;
    loop_timer_set(m->r->opt.home, &m->timer, due_us);
}

/* What was copied is to be spread over the time that the limit asks for, by all moves together. */
static int64_t next_turn_us(struct move *m)
{
    struct replicas *r = m->r;
    int64_t now_us = loop_now_us(r->opt.home), rate = atomic_load(&r->move_bytes_per_s);
    int64_t due_us = m->copied > 0 ? now_us : now_us + IDLE_US;
    if (rate == INT64_MAX) return due_us;
    double us = (double)m->copied * 1e6 / (double)MAX(rate, 1);
    r->move_due_us = MAX(r->move_due_us, now_us) + (int64_t)us;
    return MAX(due_us, r->move_due_us);
}

static void failed(struct move *m)
{
    if (m->e == ERR_CLOSED || m->hopeless || !log_dir_is_online(m->to) || !log_dir_is_online(m->from->dir)) {
        LOG_ERROR("move_failed", "topic=%s partition=%d to=\"%s\" error=%s reason=\"%s\"", m->from->topic,
                  m->from->index, m->to->path, err_name(m->e), m->fault.text);
        cancel(m, "it failed");
        return;
    }
    if (m->retry_us == 0)
        LOG_WARN("move_delayed", "topic=%s partition=%d to=\"%s\" error=%s reason=\"%s\"", m->from->topic,
                 m->from->index, m->to->path, err_name(m->e), m->fault.text);
    int64_t most_us = m->e == ERR_FULL ? RETRY_FULL_US : RETRY_US_MAX;
    m->retry_us = MIN(MAX(m->retry_us * 2, (int64_t)RETRY_US_MIN), most_us);
    turn_at(m, loop_now_us(m->r->opt.home) + m->retry_us);
}

static void goes_elsewhere(struct replicas *r, struct partition *p, struct log_dir *d);

static void turn_done(struct job *job)
{
    struct move *m = CONTAINER_OF(job, struct move, job);
    struct replicas *r = m->r;
    m->busy = false;
    if (m->e == ERR_FULL) replicas_dir_full(m->to);
    if (m->instead && !m->cancelled && !r->stopping) {
        struct partition *p = partition_ref(m->from);
        struct log_dir *d = m->instead;
        if (m->taken)
            finish(m);
        else
            cancel(m, "another directory was asked for");
        goes_elsewhere(r, p, d);
        partition_unref(p);
        kick(r);
    } else if (m->taken) {
        finish(m);
        kick(r);
    } else if (m->cancelled) {
        discard(m);
    } else if (r->stopping) {
        return; /* replicas_moves_close() has it */
    } else if (m->e) {
        failed(m);
        kick(r); /* another one has its place meanwhile */
    } else {
        m->retry_us = 0;
        turn_at(m, next_turn_us(m));
    }
}

static void turn(struct move *m)
{
    struct replicas *r = m->r;
    if (r->stopping || m->busy) return;
    if (!log_dir_is_online(m->to) || !atomic_load(&m->from->online)) {
        cancel(m, "one of the directories is offline");
        return;
    }
    if (atomic_load(&m->to->full)) {
        m->e = fault_set(&m->fault, ERR_FULL, "The disk is full.");
        failed(m);
        return;
    }
    m->busy = true;
    m->job = (struct job){.loop = r->opt.home, .work = move_work, .done = turn_done};
    workers_submit(r->opt.workers, &m->job);
}

/* num.replica.alter.log.dirs.threads: so many at a time, the first come first; but for one or two more when what was
 * delayed tries again. */
static void kick(struct replicas *r)
{
    if (!r->moves_started) return;
    size_t limit = r->opt.moves_max > 0 ? r->opt.moves_max : r->dir_count, n = 0;
    struct move *next;
    do {
        next = NULL;
        n = 0;
        LIST_EACH (&r->moves, node) {
            struct move *m = CONTAINER_OF(node, struct move, node);
            if (m->retry_us > 0 && timer_is_set(&m->timer)) continue; /* a full disk holds up nobody else */
            if (n++ >= limit) break;
            if (!m->busy && !timer_is_set(&m->timer)) {
                next = m;
                break;
            }
        }
        if (next && !r->stopping) turn(next); /* which may take it off the list */
    } while (next && !r->stopping);
}

void replicas_moves_start(struct replicas *r)
{
    r->moves_started = true;
    kick(r);
}

/* ---- Asked for */

static struct log_dir *dir_of_path(struct replicas *r, struct str path)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (str_is(path, r->dirs[i].path)) return &r->dirs[i];
    return NULL;
}

static char *preferred_key(struct str topic, int32_t index)
{
    return mem_printf("%.*s-%d", STR_ARG(topic), index);
}

static void prefer(struct replicas *r, struct str topic, int32_t index, struct log_dir *d)
{
    struct preferred *pf;
    char *key = preferred_key(topic, index);
    HASH_FIND_STR(r->preferred, key, pf);
    if (pf) {
        pf->dir = d;
        mem_free(key);
    } else if (HASH_COUNT(r->preferred) < PREFERRED_MAX) {
        pf = mem_zalloc(1, sizeof *pf);
        pf->key = key;
        pf->dir = d;
        HASH_ADD_KEYPTR(hh, r->preferred, pf->key, strlen(pf->key), pf);
    } else {
        mem_free(key);
    }
}

static void preferred_remove(struct replicas *r, struct preferred *pf)
{
    HASH_DEL(r->preferred, pf);
    mem_free(pf->key);
    mem_free(pf);
}

struct log_dir *replicas_preferred_dir(struct replicas *r, struct str topic, int32_t index)
{
    struct preferred *pf;
    char *key = preferred_key(topic, index);
    HASH_FIND_STR(r->preferred, key, pf);
    mem_free(key);
    if (!pf) return NULL;
    struct log_dir *d = pf->dir;
    preferred_remove(r, pf);
    if (!log_dir_is_online(d)) return NULL;
    atomic_fetch_add(&d->partition_count, 1);
    return d;
}

static bool any_dir_is_offline(const struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (!log_dir_is_online(&r->dirs[i])) return true;
    return false;
}

static void begin(struct replicas *r, struct partition *p, struct log_dir *d)
{
    LOG_INFO("move_begun", "topic=%s partition=%d from=\"%s\" to=\"%s\"", p->topic, p->index, p->dir->path, d->path);
    moves_add(r, move_new(r, p, d));
    kick(r);
}

/* After the turn of a move that was not wanted any more: it was given up, or has taken over before it could be.  `p` is
 * where it started from. */
static void goes_elsewhere(struct replicas *r, struct partition *p, struct log_dir *d)
{
    struct partition *now = topic_partition(replicas_find(r, str_of(p->topic)), p->index);
    bool same = now && (now == p || now == partition_successor(p));
    if (!same || now->dir == d) return;
    if (atomic_load(&now->online) && log_dir_is_online(d) && !any_dir_is_offline(r))
        begin(r, now, d);
    else
        LOG_WARN("move_not_begun", "topic=%s partition=%d to=\"%s\" reason=\"a directory is offline\"", now->topic,
                 now->index, d->path);
}

enum kerr replicas_move(struct replicas *r, struct str topic, int32_t index, struct str dir)
{
    ASSERT_OWNER(r->opt.home);
    struct log_dir *d = dir_of_path(r, dir);
    if (!d) return KERR_LOG_DIR_NOT_FOUND;
    if (!log_dir_is_online(d)) return KERR_KAFKA_STORAGE_ERROR;
    struct partition *p = topic_partition(replicas_find(r, topic), index);
    if (!p) {
        prefer(r, topic, index, d);
        return KERR_REPLICA_NOT_AVAILABLE;
    }
    if (!atomic_load(&p->online)) return KERR_KAFKA_STORAGE_ERROR;
    struct move *m = p->move;
    if (m && m->busy) { /* it may be taking over: what is wanted then is told by its end */
        m->instead = m->to == d ? NULL : d;
        return KERR_NONE;
    }
    if (m && m->to == d) return KERR_NONE;
    if (m) cancel(m, "another directory was asked for");
    if (p->dir == d) return KERR_NONE;
    /* As Kafka: what is out of reach may hold the beginning of a move. */
    if (any_dir_is_offline(r)) return KERR_KAFKA_STORAGE_ERROR;
    begin(r, p, d);
    return KERR_NONE;
}

void replicas_set_move_rate(struct replicas *r, int64_t bytes_per_s)
{
    atomic_store(&r->move_bytes_per_s, bytes_per_s);
}

/* ---- Found at start */

void replicas_move_note(struct replicas *r, struct log_dir *d, const char *name)
{
    struct found_move *fm = mem_zalloc(1, sizeof *fm);
    if (replicas_parse_marked_name(name, &fm->topic, &fm->index)) {
        fm->dir = d;
        fm->path = mem_printf("%s/%s", d->path, name);
        list_push_back(&r->found_moves, &fm->node);
        if (!d->clean) atomic_fetch_add(&d->unrecovered, 1);
    } else {
        LOG_WARN("directory_ignored", "dir=\"%s/%s\" reason=\"not the name of a future replica\"", d->path, name);
        mem_free(fm);
    }
}

static void found_move_free(struct found_move *fm)
{
    list_remove(&fm->node);
    mem_free(fm->topic);
    mem_free(fm->path);
    mem_free(fm);
}

struct move *replicas_move_found(struct replicas *r, struct partition *p)
{
    struct move *m = NULL;
    struct list_node *next;
    for (struct list_node *n = list_first(&r->found_moves); n; n = next) {
        struct found_move *fm = CONTAINER_OF(n, struct found_move, node);
        next = n->next == &r->found_moves.head ? NULL : n->next;
        if (fm->index != p->index || strcmp(fm->topic, p->topic) != 0) continue;
        struct move *mine = move_new(r, p, fm->dir);
        mine->path = fm->path;
        mine->unrecovered = !fm->dir->clean;
        fm->path = NULL;
        if (!m && fm->dir != p->dir)
            m = mine;
        else
            discard(mine); /* there can be only one */
        found_move_free(fm);
    }
    return m;
}

enum err replicas_move_open(struct move *m)
{
    m->e = move_open_found(m);
    if (m->e)
        LOG_ERROR("move_not_resumed", "dir=\"%s\" error=%s reason=\"%s\"", m->path, err_name(m->e), m->fault.text);
    else
        set_unrecovered(m, false);
    return m->e;
}

void replicas_move_resume(struct move *m, bool wanted)
{
    struct replicas *r = m->r;
    if (m->e == ERR_VERSION) { /* of a topic that had the same name */
        discard(m);
        return;
    }
    if (!wanted || m->e) { /* left alone: if the log cannot be opened, this may be what is left of it */
        move_free(m);
        return;
    }
    LOG_INFO("move_resumed", "topic=%s partition=%d from=\"%s\" to=\"%s\" end=%lld", m->from->topic, m->from->index,
             m->from->dir->path, m->to->path, (long long)plog_end(m->future));
    moves_add(r, m);
    kick(r);
}

void replicas_move_discard_found(struct replicas *r, struct partition *p)
{
    struct move *m = replicas_move_found(r, p);
    if (m) discard(m);
}

static bool has_twin(const struct replicas *r, const struct partition *p)
{
    bool has = false;
    for (size_t i = 0; i < r->dir_count && !has; i++) {
        const struct log_dir *d = &r->dirs[i];
        if (d == p->dir || !log_dir_is_online(d)) continue;
        struct fs_stat st;
        char *path = mem_printf("%s/%s-%d", d->path, p->topic, p->index);
        has = fs_stat(r->opt.fs, path, &st) == OK && st.is_dir;
        mem_free(path);
    }
    return has;
}

static bool any_dir_offline(const struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (!log_dir_is_online(&r->dirs[i])) return true;
    return false;
}

bool replicas_moved_away(struct replicas *r, const struct partition *p)
{
    char *path = mem_printf("%s/%s-%d", p->dir->path, p->topic, p->index), *mark = mem_printf("%s/" MOVED_MARK, path);
    char *to = replicas_doomed_path(r, p);
    struct fs_stat st;
    bool marked = fs_stat(r->opt.fs, mark, &st) == OK, twin = marked && has_twin(r, p), dropped = false;
    bool undecided = marked && !twin && any_dir_offline(r); /* where the log may have gone, and gone on */
    enum err e = OK;
    if (undecided) {
        LOG_WARN(
            "move_undecided",
            "topic=%s partition=%d left=\"%s\" reason=\"where it may have moved is offline; it is out of service\"",
            p->topic, p->index, p->dir->path);
    } else if (twin) {
        e = fs_rename(r->opt.fs, path, to);
        dropped = !e;
        if (dropped) replicas_doom(r, to, 0);
        if (dropped && !p->dir->clean) atomic_fetch_sub(&p->dir->unrecovered, 1);
    } else if (marked) { /* it came to nothing, and what is appended from now on counts */
        e = fs_unlink(r->opt.fs, mark);
        if (!e) e = fs_sync_dir(r->opt.fs, path);
    }
    if (marked && !undecided)
        LOG_INFO(dropped ? "move_finished" : "move_undone", "topic=%s partition=%d left=\"%s\" error=%s", p->topic,
                 p->index, p->dir->path, err_name(e));
    if (e) replicas_dir_check(p->dir, e, MOVED_MARK);
    mem_free(path);
    mem_free(mark);
    mem_free(to);
    return dropped || undecided;
}

/* ---- Told */

struct future_view *replicas_futures(struct replicas *r, size_t *count)
{
    size_t n = 0;
    pthread_mutex_lock(&r->lock);
    LIST_EACH (&r->moves, node) n++;
    struct future_view *list = mem_zalloc(n, sizeof *list);
    *count = 0;
    LIST_EACH (&r->moves, node) {
        const struct move *m = CONTAINER_OF(node, struct move, node);
        list[(*count)++] = (struct future_view){
            .p = partition_ref(m->from),
            .dir = m->to->path,
            .size = atomic_load(&m->size),
            .lag = plog_end(m->from->pl) - atomic_load(&m->end),
        };
    }
    pthread_mutex_unlock(&r->lock);
    return list;
}

void replicas_futures_free(struct future_view *list, size_t count)
{
    for (size_t i = 0; i < count; i++) partition_unref(list[i].p);
    mem_free(list);
}

void replicas_moves_checkpoint(struct replicas *r, const struct log_dir *d, enum chore_kind kind, struct checkpoint *cp)
{
    pthread_mutex_lock(&r->lock);
    LIST_EACH (&r->moves, node) {
        const struct move *m = CONTAINER_OF(node, struct move, node);
        if (m->to != d || !atomic_load(&m->settled)) continue;
        int64_t end = atomic_load(&m->end), value = atomic_load(&m->recovery);
        if (kind == CHORE_CLEANED) value = plog_cleaned(m->from->pl);
        if (kind == CHORE_STARTS) value = atomic_load(&m->start);
        if (kind == CHORE_WATERMARKS) value = MIN(end, partition_high_watermark(m->from));
        if (value >= 0) checkpoint_set(cp, str_of(m->from->topic), m->from->index, value);
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- The end */

void replicas_moves_stop(struct replicas *r)
{
    LIST_EACH (&r->moves, node) loop_timer_cancel(r->opt.home, &CONTAINER_OF(node, struct move, node)->timer);
}

void replicas_moves_close(struct replicas *r, bool clean)
{
    struct list_node *n;
    while ((n = list_first(&r->moves))) {
        struct move *m = CONTAINER_OF(n, struct move, node);
        list_remove(n);
        if (m->future && clean && log_dir_is_online(m->to)) {
            enum err e = plog_close(m->future);
            m->future = NULL;
            if (e) {
                LOG_ERROR("log_close_failed", "dir=\"%s\" error=%s", m->path, err_name(e));
                m->to->unclean = true;
            }
        } else if (m->path && !m->future)
            m->to->unclean = true; /* a takeover failed halfway: nobody knows what is in there */
        move_free(m);
    }
    while ((n = list_first(&r->found_moves))) found_move_free(CONTAINER_OF(n, struct found_move, node));
    while (r->preferred) preferred_remove(r, r->preferred);
}
