/* create.c: new topics, and more partitions for topics that are there.
 *
 * Both check a request topic by topic, change the tables, write, and tell the brokers.  A topic's first multi holds its
 * settings, its assignment and its first partitions; further multis hold the rest, so that none grows past what
 * ZooKeeper takes.  A crash between two of them leaves partitions without a state, which the next controller starts
 * (brokers.c). */
#define LOG_MODULE "controller"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "controller/controller_internal.h"
#include "controller/topic_name.h"

enum create_stage { CREATE_CHECK, CREATE_WRITE, CREATE_TELL };

/* --- checks --- */

static enum kerr refuse(struct str *message, enum kerr kerr, struct str why)
{
    *message = why;
    return kerr;
}

static enum kerr refuse_replicas(struct arena *a, struct str *message)
{
    return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                  arena_printf(a, "A partition has at most %d replicas.", CONTROLLER_REPLICAS_MAX));
}

/* One partition's brokers as given by the client. */
static enum kerr check_brokers(const struct controller *c, const struct controller_assignment *as, struct arena *a,
                               struct str *message)
{
    if (as->broker_count == 0)
        return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                      STR("The manual partition assignment includes an empty replica list."));
    for (size_t i = 0; i < as->broker_count; i++) {
        if (ids_have(as->brokers, (int32_t)i, as->brokers[i]))
            return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                          arena_printf(a, "The manual partition assignment includes the broker %d more than once.",
                                       as->brokers[i]));
        if (!broker_is_assignable(c, as->brokers[i]))
            return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                          arena_printf(a,
                                       "The manual partition assignment includes broker %d, but no such broker is"
                                       " registered.",
                                       as->brokers[i]));
    }
    return KERR_NONE;
}

/* Partitions must be 0, 1, 2, ..., each once, with equally many brokers. */
static enum kerr take_assignments(const struct controller *c, struct op_topic *t, struct arena *a, struct str *message)
{
    const struct controller_new_topic *nt = &t->new_topic;
    size_t factor = nt->assignments[0].broker_count;
    if (nt->assignment_count > CONTROLLER_PARTITIONS_MAX)
        return refuse(message, KERR_INVALID_PARTITIONS,
                      arena_printf(a, "A topic has at most %d partitions.", CONTROLLER_PARTITIONS_MAX));
    if (factor > CONTROLLER_REPLICAS_MAX) return refuse_replicas(a, message);
    t->replicas = arena_array(a, int32_t, nt->assignment_count * factor);
    bool *seen = arena_array(a, bool, nt->assignment_count);
    for (size_t i = 0; i < nt->assignment_count; i++) {
        const struct controller_assignment *as = &nt->assignments[i];
        if (as->broker_count != factor)
            return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                          STR("All partitions should have the same number of replicas"));
        enum kerr kerr = check_brokers(c, as, a, message);
        if (kerr) return kerr;
        if (as->partition < 0 || (size_t)as->partition >= nt->assignment_count || seen[as->partition])
            return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                          STR("partitions should be a consecutive 0-based integer sequence"));
        seen[as->partition] = true;
        memcpy(t->replicas + (size_t)as->partition * factor, as->brokers, factor * sizeof *as->brokers);
    }
    t->partition_count = (int32_t)nt->assignment_count;
    t->replication_factor = (int16_t)factor;
    return KERR_NONE;
}

static enum kerr choose_assignments(const struct controller *c, struct op_topic *t, struct arena *a,
                                    struct str *message)
{
    const struct controller_new_topic *nt = &t->new_topic;
    struct assign_request rq = {
        .partition_count = nt->partition_count == -1 ? c->opt.partitions_default : nt->partition_count,
        .replication_factor = nt->replication_factor == -1 ? c->opt.replication_factor_default : nt->replication_factor,
        .fixed_start = -1,
        .rng = c->opt.rng};
    if (rq.partition_count > CONTROLLER_PARTITIONS_MAX)
        return refuse(message, KERR_INVALID_PARTITIONS,
                      arena_printf(a, "A topic has at most %d partitions.", CONTROLLER_PARTITIONS_MAX));
    rq.brokers = brokers_list(c, a, &rq.broker_count);
    t->partition_count = rq.partition_count;
    t->replication_factor = rq.replication_factor;
    return assign_replicas(&rq, a, &t->replicas, message);
}

static enum kerr check_name(const struct controller *c, struct str name, struct arena *a, struct str *message)
{
    if (!topic_name_check(name, a, message)) return KERR_INVALID_TOPIC_EXCEPTION;
    const struct topic *other = topic_find_colliding(c, name, a);
    if (!other) return KERR_NONE;
    return refuse(
        message, KERR_INVALID_TOPIC_EXCEPTION,
        arena_printf(a, "Topic '%.*s' collides with existing topics: %.*s", STR_ARG(name), STR_ARG(other->name)));
}

static enum kerr check_settings(const struct controller *c, const struct controller_new_topic *nt, struct arena *a,
                                struct str *message)
{
    if (!c->opt.validate_topic) return KERR_NONE;
    const struct znode_config settings = {.settings = (struct znode_setting *)(uintptr_t)nt->settings,
                                          .count = nt->setting_count};
    return c->opt.validate_topic(c->opt.arg, &settings, a, message);
}

/* In Kafka's order, so that a request with two mistakes is told the same one. */
static enum kerr check_new_topic(const struct controller *c, struct op_topic *t, struct arena *a, struct str *message)
{
    const struct controller_new_topic *nt = &t->new_topic;
    const struct topic *old = str_is_null(nt->name) ? NULL : topic_find(c, nt->name);
    if (old)
        return refuse(message, KERR_TOPIC_ALREADY_EXISTS,
                      arena_printf(a, "Topic '%.*s' %s.", STR_ARG(nt->name),
                                   old->deleting ? "is marked for deletion" : "already exists"));
    for (size_t i = 0; i < nt->setting_count; i++)
        if (str_is_null(nt->settings[i].value))
            return refuse(
                message, KERR_INVALID_CONFIG,
                arena_printf(a, "Null value not supported for topic configs: %.*s", STR_ARG(nt->settings[i].name)));
    if (nt->assignment_count && (nt->partition_count != -1 || nt->replication_factor != -1))
        return refuse(
            message, KERR_INVALID_REQUEST,
            STR("Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used"
                " at the same time."));
    enum kerr kerr = nt->assignment_count ? take_assignments(c, t, a, message) : choose_assignments(c, t, a, message);
    if (!kerr) kerr = check_name(c, nt->name, a, message);
    if (!kerr) kerr = check_settings(c, nt, a, message);
    return kerr;
}

/* --- writing --- */

/* New partitions get their replicas and first leaders, in the tables. */
static void start_partitions(struct controller *c, struct op_topic *t)
{
    topic_resize(t->topic, t->first_partition + t->partition_count);
    for (int32_t i = 0; i < t->partition_count; i++) {
        struct controller_partition *p = &t->topic->partitions[t->first_partition + i];
        partition_set_replicas(p, t->replicas + (size_t)i * (size_t)t->replication_factor, t->replication_factor);
        bool live = partition_start(c, p);
        ASSERT(live); /* every broker was checked to be alive */
        p->state_version = 0;
    }
}

static void add_partition_steps(struct writes *w, const struct op_topic *t, struct arena *a)
{
    for (int32_t i = t->first_partition; i < t->first_partition + t->partition_count; i++) {
        writes_add(w, (struct coord_op){.kind = COORD_CREATE, .path = znode_partition_path(a, t->topic->name, i)});
        writes_add(w, (struct coord_op){.kind = COORD_CREATE,
                                        .path = znode_state_path(a, t->topic->name, i),
                                        .data = partition_encode(&t->topic->partitions[i], a)});
    }
}

static void topic_written(void *arg, enum err e, size_t failed_step, const struct coord_result *r)
{
    struct op_topic *t = arg;
    if (!e) {
        t->multis_done++;
        return;
    }
    op_topic_failed(t, e, r->text);
    LOG_WARN("topic_refused", "topic=%.*s error=%s step=%zu reason=\"%s\"", STR_ARG(t->result.name), err_name(e),
             failed_step, r->text ? r->text : "");
}

static void settings_seen(void *arg, const struct coord_result *r)
{
    struct op_topic *t = arg;
    if (r->err == OK)
        t->config_version = r->stat.version; /* left by a topic of that name: replaced, as in Kafka */
    else if (r->err != ERR_NOT_FOUND)
        op_topic_failed(t, r->err, r->text);
    event_call_done(t->op->c, &t->op->ev, OK);
}

static void write_new_topic(struct controller *c, struct op *op, struct op_topic *t)
{
    struct arena *a = &op->arena;
    const struct controller_new_topic *nt = &t->new_topic;
    const struct znode_config settings = {.settings = (struct znode_setting *)(uintptr_t)nt->settings,
                                          .count = nt->setting_count};
    struct writes w;
    writes_init(&w, c, &op->ev, a);
    w.done = topic_written;
    w.arg = t;
    writes_add(&w, (struct coord_op){.kind = t->config_version < 0 ? COORD_CREATE : COORD_SET,
                                     .path = znode_config_path(a, CONFIG_TOPICS, t->topic->name),
                                     .data = znode_config_encode(a, &settings),
                                     .version = t->config_version});
    writes_add(&w, (struct coord_op){.kind = COORD_CREATE,
                                     .path = znode_topic_path(a, t->topic->name),
                                     .data = topic_encode(t->topic, a)});
    writes_add(&w, (struct coord_op){.kind = COORD_CREATE, .path = znode_partitions_path(a, t->topic->name)});
    add_partition_steps(&w, t, a);
    writes_flush(&w);
    writes_fini(&w);
}

static void refuse_write(struct op_topic *t)
{
    if (t->err == ERR_EXISTS)
        op_topic_finish(t, KERR_TOPIC_ALREADY_EXISTS, STR_NULL);
    else if (t->err == ERR_TOO_BIG)
        op_topic_finish(t, KERR_INVALID_PARTITIONS,
                        STR("The topic's assignment is larger than the coordination store takes."));
    else
        op_topic_finish_failed(t);
}

/* --- telling --- */

void op_told(void *arg)
{
    struct op *op = arg;
    op_hold(op);
    for (size_t i = 0; i < op->count; i++) op_topic_finish(&op->topics[i], KERR_NONE, STR_NULL);
    op_release(op);
}

/* What was written is told, what was not is taken back: a topic of which nothing was written just goes; anything else
 * makes the tables wrong, see (3) in controller.c. */
static enum step create_tell(struct controller *c, struct op *op, bool new_topics)
{
    struct sending *s = sending_new(c);
    bool any = false;
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        if (t->done) continue;
        struct topic *topic = t->topic;
        if (t->err) {
            bool clean = new_topics && t->multis_done == 0;
            refuse_write(t);
            if (clean)
                topic_remove(c, topic);
            else
                controller_reload(c);
            continue;
        }
        LOG_INFO(new_topics ? "topic_created" : "partitions_created", "topic=%.*s partitions=%d replication=%d",
                 STR_ARG(topic->name), topic->partition_count, t->replication_factor);
        for (int32_t p = t->first_partition; p < t->first_partition + t->partition_count; p++)
            sending_add_partition(s, topic, p, true);
        t->topic = NULL;
        any = true;
    }
    if (!any || c->deposed) {
        sending_drop(s);
        if (any) /* written, but by a controller that is none any more: the next one tells */
            op_told(op);
        return op_event_over(op);
    }
    sending_send(s, op_told, op);
    return op_event_over(op);
}

/* --- create topics --- */

static void create_check(struct controller *c, struct op *op)
{
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        struct str message = STR_NULL;
        enum kerr kerr = check_new_topic(c, t, &op->arena, &message);
        if (kerr) {
            op_topic_finish(t, kerr, message);
            continue;
        }
        t->result.partition_count = t->partition_count;
        t->result.replication_factor = t->replication_factor;
        if (op->validate_only) {
            op_topic_finish(t, KERR_NONE, STR_NULL);
            continue;
        }
        /* In the table at once: a later topic of the same request may collide with it. */
        t->topic = topic_add(c, t->new_topic.name, rng_uuid(c->opt.rng));
        t->result.topic_id = t->topic->id;
        start_partitions(c, t);
        op->ev.pending++;
        coord_exists(c->opt.coord, znode_config_path(&op->arena, CONFIG_TOPICS, t->topic->name), COORD_NO_WATCH,
                     (struct coord_to){c->opt.loop, settings_seen, t});
    }
}

static enum step create_run(struct controller *c, struct event *ev)
{
    struct op *op = op_of(ev);
    switch ((enum create_stage)ev->stage) {
    case CREATE_CHECK:
        ev->stage = CREATE_WRITE;
        create_check(c, op);
        if (ev->pending) return STEP_WAIT;
        return op_event_over(op);
    case CREATE_WRITE:
        ev->stage = CREATE_TELL;
        for (size_t i = 0; i < op->count; i++)
            if (!op->topics[i].done && !op->topics[i].err) write_new_topic(c, op, &op->topics[i]);
        if (ev->pending) return STEP_WAIT;
        FALLTHROUGH;
    case CREATE_TELL: break;
    }
    return create_tell(c, op, true);
}

static const struct controller_assignment *assignments_copy(struct arena *a, const struct controller_assignment *from,
                                                            size_t count)
{
    struct controller_assignment *copy = arena_array(a, struct controller_assignment, count);
    for (size_t i = 0; i < count; i++) {
        int32_t *brokers = arena_array(a, int32_t, from[i].broker_count);
        if (from[i].broker_count) memcpy(brokers, from[i].brokers, from[i].broker_count * sizeof *brokers);
        copy[i] = (struct controller_assignment){from[i].partition, brokers, from[i].broker_count};
    }
    return copy;
}

void controller_create_topics(struct controller *c, const struct controller_new_topic *topics, size_t count,
                              bool validate_only, int32_t timeout_ms, struct controller_to to)
{
    struct op *op = op_new(c, count, to);
    struct arena *a = &op->arena;
    op->validate_only = validate_only;
    op->has_timeout = !validate_only;
    op->timeout_ms = timeout_ms;
    for (size_t i = 0; i < count; i++) {
        struct controller_new_topic *nt = &op->topics[i].new_topic;
        *nt = topics[i];
        nt->name = op->topics[i].result.name = arena_str(a, nt->name);
        nt->assignments = assignments_copy(a, nt->assignments, nt->assignment_count);
        struct znode_setting *settings = arena_array(a, struct znode_setting, nt->setting_count);
        for (size_t k = 0; k < nt->setting_count; k++)
            settings[k] = (struct znode_setting){arena_str(a, topics[i].settings[k].name),
                                                 arena_str(a, topics[i].settings[k].value)};
        nt->settings = settings;
    }
    op_post(op, create_run);
}

/* --- create partitions --- */

/* The new partitions' brokers as given by the client: in the order of Kafka's checks. */
static enum kerr take_more(const struct controller *c, struct op_topic *t, const struct topic *topic, struct arena *a,
                           struct str *message)
{
    const struct controller_more_partitions *more = &t->more;
    enum { UNKNOWN_NAMED_MAX = 100 };
    int32_t *unknown = arena_array(a, int32_t, UNKNOWN_NAMED_MAX);
    size_t unknown_count = 0;
    for (size_t i = 0; i < more->assignment_count; i++)
        for (size_t k = 0; k < more->assignments[i].broker_count && unknown_count < UNKNOWN_NAMED_MAX; k++) {
            int32_t id = more->assignments[i].brokers[k];
            if (!broker_is_assignable(c, id) && !ids_have(unknown, (int32_t)unknown_count, id))
                unknown[unknown_count++] = id;
        }
    if (unknown_count)
        return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                      arena_printf(a, "Unknown broker(s) in replica assignment: %.*s.",
                                   STR_ARG(ids_text(a, unknown, unknown_count, ", "))));
    if (more->assignment_count != (size_t)t->partition_count)
        return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                      arena_printf(a, "Increasing the number of partitions by %d but %zu assignments provided.",
                                   t->partition_count, more->assignment_count));
    for (size_t i = 0; i < more->assignment_count; i++) {
        const struct controller_assignment *as = &more->assignments[i];
        int32_t partition = topic->partition_count + (int32_t)i;
        if (as->broker_count == 0)
            return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                          arena_printf(a, "Cannot have replication factor of 0 for partition id %d.", partition));
        if (as->broker_count > CONTROLLER_REPLICAS_MAX) return refuse_replicas(a, message);
        for (size_t k = 0; k < as->broker_count; k++)
            if (ids_have(as->brokers, (int32_t)k, as->brokers[k]))
                return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                              arena_printf(a,
                                           "Duplicate brokers not allowed in replica assignment: %.*s for partition id"
                                           " %d.",
                                           STR_ARG(ids_text(a, as->brokers, as->broker_count, ", ")), partition));
        if (as->broker_count != (size_t)t->replication_factor)
            return refuse(message, KERR_INVALID_REPLICA_ASSIGNMENT,
                          arena_printf(a,
                                       "Inconsistent replication factor between partitions, partition 0 has %d while"
                                       " partitions [%d] have replication factors [%zu], respectively.",
                                       t->replication_factor, partition, as->broker_count));
        memcpy(t->replicas + i * (size_t)t->replication_factor, as->brokers, as->broker_count * sizeof *as->brokers);
    }
    return KERR_NONE;
}

/* Goes on round the brokers from the one that leads partition 0. */
static enum kerr choose_more(const struct controller *c, struct op_topic *t, const struct topic *topic, struct arena *a,
                             struct str *message)
{
    struct assign_request rq = {.partition_count = t->partition_count,
                                .replication_factor = t->replication_factor,
                                .first_partition = topic->partition_count,
                                .rng = c->opt.rng};
    rq.brokers = brokers_list(c, a, &rq.broker_count);
    for (size_t i = rq.broker_count; i-- > 0;)
        if (rq.brokers[i].id >= topic->partitions[0].replicas[0]) rq.fixed_start = (int64_t)i;
    return assign_replicas(&rq, a, &t->replicas, message);
}

static bool is_being_reassigned(const struct topic *topic)
{
    for (int32_t i = 0; i < topic->partition_count; i++)
        if (topic->partitions[i].adding_count || topic->partitions[i].removing_count) return true;
    return false;
}

static enum kerr check_more(const struct controller *c, struct op_topic *t, struct arena *a, struct str *message)
{
    const struct controller_more_partitions *more = &t->more;
    const struct topic *topic = str_is_null(more->name) ? NULL : topic_find(c, more->name);
    if (topic && topic->deleting)
        return refuse(message, KERR_INVALID_TOPIC_EXCEPTION, STR("The topic is queued for deletion."));
    if (!topic || topic->partition_count == 0 || !topic->partitions[0].replicas)
        return refuse(message, KERR_UNKNOWN_TOPIC_OR_PARTITION,
                      arena_printf(a, "The topic '%.*s' does not exist.", STR_ARG(more->name)));
    if (is_being_reassigned(topic))
        return refuse(
            message, KERR_REASSIGNMENT_IN_PROGRESS,
            arena_printf(a, "A partition reassignment is in progress for the topic '%.*s'.", STR_ARG(more->name)));
    if (more->partition_count < topic->partition_count)
        return refuse(message, KERR_INVALID_PARTITIONS,
                      arena_printf(a, "Topic currently has %d partitions, which is higher than the requested %d.",
                                   topic->partition_count, more->partition_count));
    if (more->partition_count == topic->partition_count)
        return refuse(message, KERR_INVALID_PARTITIONS,
                      arena_printf(a, "Topic already has %d partitions.", topic->partition_count));
    if (more->partition_count > CONTROLLER_PARTITIONS_MAX)
        return refuse(message, KERR_INVALID_PARTITIONS,
                      arena_printf(a, "A topic has at most %d partitions.", CONTROLLER_PARTITIONS_MAX));
    t->first_partition = topic->partition_count;
    t->partition_count = more->partition_count - topic->partition_count;
    t->replication_factor = (int16_t)topic->partitions[0].replica_count;
    if (!more->has_assignments) return choose_more(c, t, topic, a, message);
    t->replicas = arena_array(a, int32_t, (size_t)t->partition_count * (size_t)t->replication_factor);
    return take_more(c, t, topic, a, message);
}

static void write_more(struct controller *c, struct op *op, struct op_topic *t)
{
    struct arena *a = &op->arena;
    struct writes w;
    writes_init(&w, c, &op->ev, a);
    w.done = topic_written;
    w.arg = t;
    writes_add(&w, (struct coord_op){.kind = COORD_SET,
                                     .path = znode_topic_path(a, t->topic->name),
                                     .data = topic_encode(t->topic, a),
                                     .version = t->topic->version++});
    add_partition_steps(&w, t, a);
    writes_flush(&w);
    writes_fini(&w);
}

static enum step more_run(struct controller *c, struct event *ev)
{
    struct op *op = op_of(ev);
    if (ev->stage == CREATE_TELL) return create_tell(c, op, false);
    ev->stage = CREATE_TELL;
    for (size_t i = 0; i < op->count; i++) {
        struct op_topic *t = &op->topics[i];
        struct str message = STR_NULL;
        enum kerr kerr = check_more(c, t, &op->arena, &message);
        if (kerr || op->validate_only) {
            if (!kerr) t->result.partition_count = t->more.partition_count;
            op_topic_finish(t, kerr, message);
            continue;
        }
        t->topic = topic_find(c, t->more.name);
        t->result.topic_id = t->topic->id;
        t->result.partition_count = t->more.partition_count;
        t->result.replication_factor = t->replication_factor;
        start_partitions(c, t);
        write_more(c, op, t);
    }
    if (ev->pending) return STEP_WAIT;
    return op_event_over(op);
}

void controller_create_partitions(struct controller *c, const struct controller_more_partitions *topics, size_t count,
                                  bool validate_only, int32_t timeout_ms, struct controller_to to)
{
    struct op *op = op_new(c, count, to);
    op->validate_only = validate_only;
    op->has_timeout = !validate_only;
    op->timeout_ms = timeout_ms;
    for (size_t i = 0; i < count; i++) {
        struct controller_more_partitions *more = &op->topics[i].more;
        *more = topics[i];
        more->name = op->topics[i].result.name = arena_str(&op->arena, more->name);
        more->assignments = assignments_copy(&op->arena, more->assignments, more->assignment_count);
    }
    op_post(op, more_run);
}
