/* replicas_apply.c: the controller's LeaderAndIsr, and the table of topics that partitions enter and leave by its word.
 *
 * It runs in three steps: look at each partition on the home loop, and have fetchers leave those that are to
 * lead; do what touches files (open or make logs, write leader epochs) on workers, several at a time; back on the home
 * loop take the roles and answer. */
#include <stdio.h>

#include "base/arena.h"
#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

typedef struct leader_and_isr_request_leader_and_isr_partition_state partition_state;
typedef struct leader_and_isr_request_leader_and_isr_topic_state topic_state;

/* One partition of the request. */
struct apply_item {
    const partition_state *state;
    struct str topic;
    struct uuid topic_id;
    struct partition *p; /* a reference; NULL when refused */
    struct move *move;   /* to another directory, that a stop has interrupted */
    struct partition_role role;
    bool is_known; /* in the table already */
    bool new_epoch;
    bool deferred; /* the log is being opened: the role waits for it */
    enum kerr kerr;
};

enum { ITEMS_PER_JOB = 64 };

struct apply;

struct apply_job {
    struct job job;
    struct apply *apply;
    struct apply_item *items;
    size_t count;
};

struct apply {
    struct replicas *r;
    const struct leader_and_isr_request *request;
    int32_t broker_id;
    replicas_done done;
    void *arg;
    struct arena arena;
    struct apply_item *items;
    size_t count;
    size_t leaving; /* partitions that are to lead and that fetchers have not left yet; one more while they are told */
    struct apply_job *jobs;
    size_t jobs_left;
};

/* ---- Step 1, home loop */

static struct partition *find_partition(struct replicas *r, struct str topic, int32_t index)
{
    return topic_partition(replicas_find(r, topic), index);
}

enum kerr replicas_check_topic_id(const struct partition *p, struct uuid topic_id)
{
    if (uuid_is_zero(topic_id) || uuid_is_zero(p->topic_id) || uuid_equal(topic_id, p->topic_id)) return KERR_NONE;
    char stored[UUID_TEXT_SIZE + 1], here[UUID_TEXT_SIZE + 1];
    uuid_format(topic_id, stored);
    uuid_format(p->topic_id, here);
    LOG_ERROR(
        "topic_id_differs",
        "dir=%s/%s-%d id=%s expected=%s reason=\"the log belongs to another topic of the same name: move it out of "
        "log.dirs, or delete the topic\"",
        p->dir->path, p->topic, p->index, here, stored);
    return KERR_INCONSISTENT_TOPIC_ID;
}

static enum kerr check_known(const struct partition *p, const struct apply_item *it)
{
    enum kerr kerr = replicas_check_topic_id(p, it->topic_id);
    if (kerr) return kerr;
    if (it->state->leader_epoch < atomic_load(&p->leader_epoch)) return KERR_STALE_CONTROLLER_EPOCH;
    if (!atomic_load(&p->online)) return KERR_KAFKA_STORAGE_ERROR;
    return KERR_NONE;
}

/* The role is kept for when the log is open; an older word than the one it replaces is refused, as of an open one. */
static void item_defer(struct apply_item *it, const topic_state *ts)
{
    struct opening *op = it->p->opening;
    if (op->stopper) { /* on its way out */
        it->kerr = KERR_KAFKA_STORAGE_ERROR;
        return;
    }
    if (op->deferred.known && it->state->leader_epoch < op->deferred.role.leader_epoch) {
        it->kerr = KERR_STALE_CONTROLLER_EPOCH;
        return;
    }
    replicas_opening_defer(op, &it->role, ts->partition_states_count, it->topic_id);
}

/* Where a partition lies or comes to lie that is not in the table.  One that is not new and not found is likely to be
 * in a directory that is offline: made anew elsewhere it would be empty (Kafka refuses it likewise). */
static struct log_dir *dir_of_item(struct replicas *r, const struct apply_item *it)
{
    for (size_t i = 0; i < r->dir_count && !it->state->is_new; i++)
        if (!log_dir_is_online(&r->dirs[i])) return &r->dirs[i];
    struct log_dir *d = replicas_preferred_dir(r, it->topic, it->state->partition_index);
    if (!d) d = replicas_choose_dir(r);
    return d ? d : &r->dirs[0];
}

static struct partition *partition_of_item(struct apply *ap, struct apply_item *it)
{
    struct replicas *r = ap->r;
    const char *name = arena_str(&ap->arena, it->topic).data;
    struct partition *p = replicas_unclaimed(r, name, it->state->partition_index);
    if (p && p->opening) return partition_ref(p);
    p = replicas_claim(r, name, it->state->partition_index);
    if (p) {
        it->move = replicas_move_found(r, p);
        return p;
    }
    p = partition_new(name, it->state->partition_index, dir_of_item(r, it), &r->services);
    p->topic_id = it->topic_id;
    return p;
}

static struct partition_role role_of(const struct apply *ap, const partition_state *ps)
{
    return (struct partition_role){
        .leads = ps->leader == ap->broker_id,
        .self = ap->broker_id,
        .leader = ps->leader,
        .leader_epoch = ps->leader_epoch,
        .partition_epoch = ps->partition_epoch,
        .replicas = ps->replicas,
        .replica_count = ps->replicas_count,
        .isr = ps->isr,
        .isr_count = ps->isr_count,
    };
}

bool role_in_sync(const struct partition_role *role)
{
    for (int32_t i = 0; i < role->isr_count; i++)
        if (role->isr[i] == role->self) return true;
    return role->leads;
}

static bool is_replica(const struct apply *ap, const partition_state *ps)
{
    for (int32_t i = 0; i < ps->replicas_count; i++)
        if (ps->replicas[i] == ap->broker_id) return true;
    return false;
}

static void item_prepare(struct apply *ap, struct apply_item *it, const topic_state *ts, const partition_state *ps)
{
    struct replicas *r = ap->r;
    *it = (struct apply_item){.state = ps, .topic = ts->topic_name, .topic_id = ts->topic_id};
    it->role = role_of(ap, ps);
    if (!is_replica(ap, ps)) { /* whoever sent it does not mean us */
        it->kerr = KERR_UNKNOWN_TOPIC_OR_PARTITION;
        return;
    }
    struct partition *p = find_partition(r, it->topic, ps->partition_index);
    it->is_known = p != NULL;
    it->p = p ? partition_ref(p) : partition_of_item(ap, it);
    it->deferred = it->p->opening;
    if (it->deferred)
        item_defer(it, ts);
    else if (it->p->pl)
        it->kerr = check_known(it->p, it);
    else if ((it->p->found && !it->is_known) || !log_dir_is_online(it->p->dir)) /* it has just been tried */
        it->kerr = KERR_KAFKA_STORAGE_ERROR;
    it->new_epoch = ps->leader_epoch != atomic_load(&it->p->leader_epoch);
}

static void collect_items(struct apply *ap)
{
    const struct leader_and_isr_request *q = ap->request;
    for (int32_t t = 0; t < q->topic_states_count; t++) ap->count += (size_t)q->topic_states[t].partition_states_count;
    ap->items = arena_array(&ap->arena, struct apply_item, ap->count);
    size_t at = 0;
    for (int32_t t = 0; t < q->topic_states_count; t++) {
        const topic_state *ts = &q->topic_states[t];
        for (int32_t i = 0; i < ts->partition_states_count; i++)
            item_prepare(ap, &ap->items[at++], ts, &ts->partition_states[i]);
    }
}

/* ---- Step 2, workers */

enum kerr replicas_begin_epoch(struct partition *p, int32_t leader_epoch)
{
    if (plog_last_epoch(p->pl) >= leader_epoch) return KERR_NONE;
    enum err e = plog_epoch_begin(p->pl, leader_epoch);
    struct partition *next = partition_successor(p);
    if (e == ERR_CLOSED && next) e = plog_epoch_begin(next->pl, leader_epoch);
    if (!e) return KERR_NONE;
    LOG_ERROR("leader_epoch_write_failed", "topic=%s partition=%d error=%s", p->topic, p->index, err_name(e));
    replicas_dir_check(p->dir, e, "leader-epoch-checkpoint");
    return KERR_KAFKA_STORAGE_ERROR;
}

/* A loss of power may have taken the id of a log that was never flushed, and left some of its records. */
static bool is_of_unknown_topic(const struct partition *p)
{
    if (!p->found || p->dir->clean || plog_end(p->pl) == plog_start(p->pl)) return false;
    return replicas_loaded_origin(p).recovery_point == 0;
}

enum kerr replicas_name(struct partition *p, struct uuid topic_id, bool in_sync)
{
    struct partition *next = partition_successor(p);
    if (next) p = next;
    if (uuid_is_zero(topic_id) || !uuid_is_zero(plog_topic_id(p->pl))) return KERR_NONE;
    enum err e = OK;
    if (!in_sync && is_of_unknown_topic(p)) {
        LOG_WARN("log_of_unknown_topic",
                 "topic=%s partition=%d notice=\"it lost its topic id with the power: its records may be of a deleted "
                 "topic of the same name, and are fetched anew\"",
                 p->topic, p->index);
        e = partition_start_at(p, 0);
    }
    if (!e) e = plog_take_topic_id(p->pl, topic_id);
    if (!e) return KERR_NONE;
    LOG_ERROR("topic_id_write_failed", "topic=%s partition=%d error=%s", p->topic, p->index, err_name(e));
    replicas_dir_check(p->dir, e, "partition.metadata");
    return KERR_KAFKA_STORAGE_ERROR;
}

void replicas_named(struct partition *p)
{
    struct partition *next = partition_successor(p);
    if (next) next->topic_id = plog_topic_id(next->pl);
    if (p->pl && uuid_is_zero(p->topic_id)) p->topic_id = plog_topic_id(next ? next->pl : p->pl);
}

static void item_open(struct apply *ap, struct apply_item *it)
{
    struct fault f = {0};
    if (!it->p->pl) {
        /* Of a new one the checkpoints do not tell, but maybe of a deleted topic of the same name. */
        struct log_origin origin = {.cleaned = -1};
        if (it->p->found) origin = replicas_loaded_origin(it->p);
        origin.topic_id = it->topic_id;
        enum err e = replicas_open_log(ap->r, it->p, &origin, NULL, &f);
        if (e) {
            LOG_ERROR("log_open_failed", "topic=%s partition=%d reason=\"%s\"", it->p->topic, it->p->index, f.text);
            replicas_dir_check(it->p->dir, e, "open");
            it->kerr = KERR_KAFKA_STORAGE_ERROR;
            return;
        }
        if (it->p->found && !it->p->dir->clean) atomic_fetch_sub(&it->p->dir->unrecovered, 1);
    }
    it->kerr = replicas_name(it->p, it->topic_id, role_in_sync(&it->role));
    if (!it->kerr && it->role.leads && it->new_epoch) it->kerr = replicas_begin_epoch(it->p, it->state->leader_epoch);
}

static void job_work(struct job *job)
{
    struct apply_job *aj = CONTAINER_OF(job, struct apply_job, job);
    for (size_t i = 0; i < aj->count; i++)
        if (!aj->items[i].kerr && !aj->items[i].deferred) {
            item_open(aj->apply, &aj->items[i]);
            if (!aj->items[i].kerr && aj->items[i].move)
                (void)!replicas_move_open(aj->items[i].move); /* it says why not */
        }
}

/* ---- Step 3, home loop */

static void release_topic(void *p)
{
    struct topic_replicas *t = p;
    mem_free(t->name);
    mem_free(t);
}

static void release_topic_and_settings(void *p)
{
    struct topic_replicas *t = p;
    mem_free(atomic_load(&t->settings));
    release_topic(p);
}

/* The topic's entry with room for `index`; a bigger copy takes the place of one that is too small, and one with an id
 * that of one that has had none. */
static struct topic_replicas *topic_with_room(struct replicas *r, struct str topic, struct uuid id, int32_t index)
{
    struct topic_replicas *old = replicas_find(r, topic);
    bool names = old && uuid_is_zero(old->id) && !uuid_is_zero(id);
    if (old && index < old->capacity && !names) return old;
    int32_t capacity = old && index < old->capacity ? old->capacity : MAX(index + 1, old ? old->capacity * 2 : 1);
    struct topic_replicas *t = mem_zalloc(1, sizeof *t + (size_t)capacity * sizeof t->parts[0]);
    t->name = mem_strndup(topic.data, topic.size);
    t->id = old && uuid_is_zero(id) ? old->id : id;
    t->capacity = capacity;
    if (old) {
        atomic_init(&t->settings, atomic_load(&old->settings));
        for (int32_t i = 0; i < old->capacity; i++) atomic_init(&t->parts[i], topic_partition(old, i));
        t->count = old->count;
    } else {
        struct topic_settings *settings = mem_alloc(sizeof *settings);
        r->opt.settings_of(r->opt.settings_arg, topic, settings);
        atomic_init(&t->settings, settings);
    }
    table_put(r->by_name, t);
    if (!uuid_is_zero(t->id)) table_put(r->by_id, t);
    if (old) grace_release(r->opt.grace, old, release_topic);
    return t;
}

void replicas_enter(struct replicas *r, struct partition *p, struct str topic, struct uuid topic_id,
                    int32_t topic_partitions)
{
    struct topic_replicas *t = topic_with_room(r, topic, topic_id, MAX(p->index, topic_partitions - 1));
    if (!p->listed) replicas_add(r, p);
    t->count++;
    atomic_store_explicit(&t->parts[p->index], p, memory_order_release);
    replicas_mark_throttled(r, t, p);
    if (p->pl) replicas_configure_partition(p, topic_settings(t)); /* they may have changed while it was opened */
}

void replicas_unlink(struct replicas *r, struct topic_replicas *t, struct partition *p)
{
    atomic_store_explicit(&t->parts[p->index], NULL, memory_order_release);
    replicas_drop(r, p);
    grace_release(r->opt.grace, p, (void (*)(void *))partition_unref);
    if (--t->count > 0) return;
    table_remove(r->by_name, (struct bytes){(const uint8_t *)t->name, strlen(t->name)});
    if (replicas_find_id(r, t->id) == t) table_remove(r->by_id, (struct bytes){t->id.bytes, sizeof t->id.bytes});
    grace_release(r->opt.grace, t, release_topic_and_settings);
}

void replicas_tell_role(struct replicas *r, struct partition *p)
{
    if (r->opt.role_changed) r->opt.role_changed(r->opt.role_changed_arg, p);
}

void replicas_leave(struct replicas *r, struct partition *p)
{
    const struct following *fw = &r->opt.following;
    if (fw->leave) fw->leave(fw->arg, p, NULL, NULL);
}

void replicas_follow_again(struct replicas *r, struct partition *p, struct partition *q)
{
    const struct following *fw = &r->opt.following;
    if (!fw->follow || atomic_load(&q->leads) || atomic_load(&q->leader_epoch) < 0) return;
    replicas_leave(r, p);
    fw->follow(fw->arg, q, atomic_load(&q->leader), atomic_load(&q->leader_epoch));
}

void replicas_take_role(struct replicas *r, struct partition *p, const struct partition_role *role)
{
    const struct following *fw = &r->opt.following;
    /* A change of the in-sync set alone is no matter for a follower. */
    bool news = role->leader_epoch != atomic_load(&p->leader_epoch) || role->leader != atomic_load(&p->leader);
    partition_set_role(p, role);
    if (r->stopping) return;
    if (!role->leads && news && fw->follow) fw->follow(fw->arg, p, role->leader, role->leader_epoch);
    replicas_tell_role(r, p);
}

static void item_finish(struct apply *ap, struct apply_item *it, int32_t topic_partitions)
{
    struct replicas *r = ap->r;
    if (!it->p) {
        LOG_WARN("leader_and_isr_refused", "topic=%.*s partition=%d error=%s", STR_ARG(it->topic),
                 it->state->partition_index, kerr_name((int16_t)it->kerr));
        return;
    }
    struct partition *p = partition_ref(it->p);
    bool keep = !it->kerr || it->kerr == KERR_KAFKA_STORAGE_ERROR;
    if (it->kerr)
        LOG_WARN("leader_and_isr_refused", "topic=%s partition=%d error=%s", p->topic, p->index,
                 kerr_name((int16_t)it->kerr));
    r->unopened |= it->kerr == KERR_KAFKA_STORAGE_ERROR && log_dir_is_online(p->dir) && !p->pl && !it->deferred;
    if (it->deferred) {
        partition_unref(it->p);
    } else if (!it->is_known && keep && !r->stopping) {
        replicas_enter(r, it->p, it->topic, it->topic_id, topic_partitions);
    } else if (!it->is_known && p->listed) {
        replicas_unclaim(r, it->p); /* the directory is there still: nobody may open it a second time */
    } else {
        if (!it->is_known) atomic_fetch_sub(&p->dir->partition_count, 1);
        partition_unref(it->p);
    }
    if (!it->kerr && !it->deferred) {
        replicas_named(p);
        if (it->is_known) (void)topic_with_room(r, it->topic, it->topic_id, p->index);
    }
    struct partition *next = partition_successor(p);
    if (!it->kerr && !it->deferred && next) partition_set_role(p, &it->role);
    if (!it->kerr && !it->deferred) replicas_take_role(r, next ? next : p, &it->role);
    if (it->move) replicas_move_resume(it->move, !it->kerr && !r->stopping);
    partition_unref(p);
}

static void fill_response(struct apply *ap, struct leader_and_isr_response *out)
{
    const struct leader_and_isr_request *q = ap->request;
    *out = leader_and_isr_response_default;
    out->topics = arena_array(&ap->arena, struct leader_and_isr_response_leader_and_isr_topic_error,
                              (size_t)q->topic_states_count);
    size_t at = 0;
    for (int32_t t = 0; t < q->topic_states_count; t++) {
        const topic_state *ts = &q->topic_states[t];
        struct leader_and_isr_response_leader_and_isr_topic_error *to = &out->topics[out->topics_count++];
        *to = leader_and_isr_response_leader_and_isr_topic_error_default;
        to->topic_id = ts->topic_id;
        to->partition_errors = arena_array(&ap->arena, struct leader_and_isr_response_leader_and_isr_partition_error,
                                           (size_t)ts->partition_states_count);
        for (int32_t i = 0; i < ts->partition_states_count; i++) {
            struct leader_and_isr_response_leader_and_isr_partition_error *pe =
                &to->partition_errors[to->partition_errors_count++];
            *pe = leader_and_isr_response_leader_and_isr_partition_error_default;
            pe->topic_name = ts->topic_name;
            pe->partition_index = ts->partition_states[i].partition_index;
            pe->error_code = (int16_t)ap->items[at++].kerr;
        }
    }
}

static void apply_finish(struct apply *ap)
{
    const struct leader_and_isr_request *q = ap->request;
    size_t at = 0;
    for (int32_t t = 0; t < q->topic_states_count; t++)
        for (int32_t i = 0; i < q->topic_states[t].partition_states_count; i++)
            item_finish(ap, &ap->items[at++], q->topic_states[t].partition_states_count);
    struct leader_and_isr_response out;
    fill_response(ap, &out);
    ap->done(ap->arg, &out);
    mem_free(ap->jobs);
    arena_fini(&ap->arena);
    mem_free(ap);
}

static void job_done(struct job *job)
{
    struct apply *ap = CONTAINER_OF(job, struct apply_job, job)->apply;
    if (--ap->jobs_left == 0) apply_finish(ap);
}

static void submit_jobs(struct apply *ap)
{
    struct replicas *r = ap->r;
    size_t jobs = (ap->count + ITEMS_PER_JOB - 1) / ITEMS_PER_JOB;
    if (jobs == 0 || r->stopping) {
        for (size_t i = 0; i < ap->count; i++)
            if (!ap->items[i].kerr) ap->items[i].kerr = KERR_KAFKA_STORAGE_ERROR;
        apply_finish(ap);
        return;
    }
    ap->jobs = mem_zalloc(jobs, sizeof *ap->jobs);
    ap->jobs_left = jobs;
    struct apply_job *list = ap->jobs;
    for (size_t i = 0; i < jobs; i++) {
        size_t from = i * ITEMS_PER_JOB;
        list[i] = (struct apply_job){
            .job = {.loop = r->opt.home, .work = job_work, .done = job_done},
            .apply = ap,
            .items = &ap->items[from],
            .count = MIN((size_t)ITEMS_PER_JOB, ap->count - from),
        };
    }
    for (size_t i = 0; i < jobs; i++) workers_submit(r->opt.workers, &list[i].job);
}

static void on_left(void *arg, struct partition *p)
{
    struct apply *ap = arg;
    (void)p;
    if (--ap->leaving == 0) submit_jobs(ap);
}

/* A leader's epoch begins where the log ends when nothing of the leader before is appended any more. */
static void leave_those_that_lead(struct apply *ap)
{
    const struct following *fw = &ap->r->opt.following;
    ap->leaving = 1;
    for (size_t i = 0; i < ap->count && fw->leave; i++) {
        const struct apply_item *it = &ap->items[i];
        if (it->kerr || it->deferred || !it->role.leads || !it->is_known || atomic_load(&it->p->leads)) continue;
        ap->leaving++;
        fw->leave(fw->arg, it->p, on_left, ap);
    }
    on_left(ap, NULL);
}

void replicas_apply(struct replicas *r, int32_t broker_id, const struct leader_and_isr_request *request,
                    replicas_done done, void *arg)
{
    ASSERT_OWNER(r->opt.home);
    struct apply *ap = mem_zalloc(1, sizeof *ap);
    *ap = (struct apply){.r = r, .request = request, .broker_id = broker_id, .done = done, .arg = arg};
    arena_init(&ap->arena, SIZE_MAX);
    collect_items(ap);
    leave_those_that_lead(ap);
}
