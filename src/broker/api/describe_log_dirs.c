/* DescribeLogDirs (key 35, KIP-113, KIP-827): sizes of this broker's replicas by log directory, and the directories'
 * space.  The loop finds the partitions that are named, a worker asks the file system and makes the answer. */
#include <stdlib.h>

#include "broker/api/handlers.h"
#include "broker/broker.h"
#include "wire/gen/describe_log_dirs.h"

#define LOG_MODULE "broker"
#include "base/log.h"

typedef struct describe_log_dirs_response_describe_log_dirs_result answer_dir;
typedef struct describe_log_dirs_response_describe_log_dirs_topic answer_topic;
typedef struct describe_log_dirs_response_describe_log_dirs_partition answer_partition;

struct describe_log_dirs_op {
    enum { DIRS_CHECK, DIRS_ANSWER } stage;
    struct partition **named; /* a reference each */
    size_t named_count;
};

/* Sorted by directory, topic and number, what is in one directory or topic is a run of neighbours. */
static int compare(const void *x, const void *y)
{
    const struct partition *a = *(struct partition *const *)x, *b = *(struct partition *const *)y;
    int c = strcmp(partition_dir_path(a), partition_dir_path(b));
    if (!c) c = strcmp(a->topic, b->topic);
    if (!c) c = a->index < b->index ? -1 : a->index > b->index;
    return c;
}

/* The run of one topic at the head of `list`, each partition once.  Returns its length. */
static size_t describe_topic(struct request *rq, struct partition **list, size_t count, answer_topic *out)
{
    size_t run = 1;
    while (run < count && strcmp(list[run]->topic, list[0]->topic) == 0) run++;
    *out = describe_log_dirs_response_describe_log_dirs_topic_default;
    out->name = arena_str(&rq->arena, str_of(list[0]->topic)); /* the partition may go before the answer does */
    out->partitions = arena_array(&rq->arena, answer_partition, run);
    for (size_t i = 0; i < run; i++) {
        struct partition *p = list[i];
        if (i > 0 && p == list[i - 1]) continue;
        if (!atomic_load(&p->online)) continue;
        answer_partition *a = &out->partitions[out->partitions_count++];
        *a = describe_log_dirs_response_describe_log_dirs_partition_default;
        a->partition_index = p->index;
        a->partition_size = plog_size(p->pl);
        /* What a follower still has to copy of what is committed. */
        int64_t lag = partition_high_watermark(p) - plog_end(p->pl);
        a->offset_lag = MAX(lag, 0);
    }
    return run;
}

/* One that is offline is told as an error alone, as in Kafka: what lies there nobody can say. */
static void describe_dir(struct request *rq, size_t dir, struct partition **list, size_t count, answer_dir *out)
{
    const char *path = replicas_dir_path(rq->broker->replicas, dir);
    *out = describe_log_dirs_response_describe_log_dirs_result_default;
    out->log_dir = str_of(path); /* lives as long as the broker */
    struct fs_space space;
    enum err e = replicas_dir_error(rq->broker->replicas, dir);
    if (!e) e = fs_space(rq->broker->fs, path, &space);
    if (e) {
        LOG_LIMITED(LOG_LEVEL_WARN, "log_dir_not_described", "dir=%s error=%s", path, err_name(e));
        out->error_code = KERR_KAFKA_STORAGE_ERROR;
        return;
    }
    out->total_bytes = space.total;
    out->usable_bytes = space.available;
    out->topics = arena_array(&rq->arena, answer_topic, count);
    for (size_t at = 0; at < count;) {
        answer_topic *t = &out->topics[out->topics_count];
        at += describe_topic(rq, list + at, count - at, t);
        if (t->partitions_count > 0) out->topics_count++;
    }
}

static void describe_dirs(struct request *rq, struct partition **list, size_t count)
{
    struct describe_log_dirs_response *out = rq->out;
    struct replicas *r = rq->broker->replicas;
    size_t dirs = replicas_dir_count(r);
    if (count > 1) qsort(list, count, sizeof(struct partition *), compare);
    out->results = arena_array(&rq->arena, answer_dir, dirs);
    for (size_t d = 0; d < dirs; d++) {
        const char *path = replicas_dir_path(r, d);
        size_t from = 0;
        while (from < count && strcmp(partition_dir_path(list[from]), path) != 0) from++;
        size_t run = 0;
        while (from + run < count && strcmp(partition_dir_path(list[from + run]), path) == 0) run++;
        describe_dir(rq, d, list + from, run, &out->results[out->results_count++]);
    }
}

/* Worker. */
static void describe(struct request *rq)
{
    const struct describe_log_dirs_request *in = rq->in;
    struct describe_log_dirs_op *op = rq->op;
    if (in->topics_count < 0) { /* null: everything */
        size_t count;
        struct partition **all = replicas_list(rq->broker->replicas, &count);
        describe_dirs(rq, all, count);
        replicas_list_free(all, count);
        return;
    }
    describe_dirs(rq, op->named, op->named_count);
    for (size_t i = 0; i < op->named_count; i++) partition_unref(op->named[i]);
}

/* Replicas that are not here are left out, as in Kafka. */
static void find_named(struct request *rq)
{
    const struct describe_log_dirs_request *in = rq->in;
    struct describe_log_dirs_op *op = rq->op;
    size_t total = 0;
    for (int32_t i = 0; i < in->topics_count; i++) total += (size_t)in->topics[i].partitions_count;
    op->named = arena_array(&rq->arena, struct partition *, total);
    for (int32_t i = 0; i < in->topics_count; i++) {
        const struct topic_replicas *t = replicas_find(rq->broker->replicas, in->topics[i].topic);
        for (int32_t k = 0; t && k < in->topics[i].partitions_count; k++) {
            struct partition *p = topic_partition(t, in->topics[i].partitions[k]);
            if (p) op->named[op->named_count++] = partition_ref(p);
        }
    }
}

enum step describe_log_dirs_handle(struct request *rq)
{
    struct describe_log_dirs_op *op = REQUEST_OP(rq, struct describe_log_dirs_op);
    switch (op->stage) {
    case DIRS_CHECK:
        find_named(rq);
        op->stage = DIRS_ANSWER;
        request_offload(rq, describe);
        return WAIT;
    case DIRS_ANSWER: return DONE;
    }
    UNREACHABLE();
}
