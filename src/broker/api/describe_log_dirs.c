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

/* A replica in its directory, or what a move has copied of it into another one. */
struct row {
    const char *dir;
    const struct partition *p;
    int64_t size, lag;
    bool future;
};

/* Sorted by directory, topic and number, what is in one directory or topic is a run of neighbours. */
static int compare(const void *x, const void *y)
{
    const struct row *a = x, *b = y;
    int c = strcmp(a->dir, b->dir);
    if (!c) c = strcmp(a->p->topic, b->p->topic);
    if (!c) c = a->p->index < b->p->index ? -1 : a->p->index > b->p->index;
    return c;
}

/* The run of one topic at the head of `rows`, each partition once.  Returns its length. */
static size_t describe_topic(struct request *rq, const struct row *rows, size_t count, answer_topic *out)
{
    size_t run = 1;
    while (run < count && strcmp(rows[run].p->topic, rows[0].p->topic) == 0) run++;
    *out = describe_log_dirs_response_describe_log_dirs_topic_default;
    out->name = arena_str(&rq->arena, str_of(rows[0].p->topic)); /* the partition may go before the answer does */
    out->partitions = arena_array(&rq->arena, answer_partition, run);
    for (size_t i = 0; i < run; i++) {
        if (i > 0 && rows[i].p == rows[i - 1].p) continue;
        out->partitions[out->partitions_count++] = (answer_partition){
            .partition_index = rows[i].p->index,
            .partition_size = rows[i].size,
            .offset_lag = rows[i].lag,
            .is_future_key = rows[i].future,
        };
    }
    return run;
}

/* A directory that is offline is told as an error alone, as in Kafka: what lies there nobody can say. */
static void describe_dir(struct request *rq, size_t dir, const struct row *rows, size_t count, answer_dir *out)
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
    for (size_t at = 0; at < count;) at += describe_topic(rq, rows + at, count - at, &out->topics[out->topics_count++]);
}

static void describe_dirs(struct request *rq, const struct row *rows, size_t count)
{
    struct describe_log_dirs_response *out = rq->out;
    struct replicas *r = rq->broker->replicas;
    size_t dirs = replicas_dir_count(r);
    out->results = arena_array(&rq->arena, answer_dir, dirs);
    for (size_t d = 0; d < dirs; d++) {
        const char *path = replicas_dir_path(r, d);
        size_t from = 0;
        while (from < count && strcmp(rows[from].dir, path) != 0) from++;
        size_t run = 0;
        while (from + run < count && strcmp(rows[from + run].dir, path) == 0) run++;
        describe_dir(rq, d, rows + from, run, &out->results[out->results_count++]);
    }
}

static bool has(struct partition *const *list, size_t count, const struct partition *p)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == p) return true;
    return false;
}

/* `all`: the list is of everything, so that nobody needs to look whether a move is of it. */
static void describe_list(struct request *rq, struct partition **list, size_t count, bool all)
{
    size_t futures_count, n = 0;
    struct future_view *futures = replicas_futures(rq->broker->replicas, &futures_count);
    struct row *rows = arena_array(&rq->arena, struct row, count + futures_count);
    for (size_t i = 0; i < count; i++) {
        struct partition *p = list[i];
        if (!atomic_load(&p->online)) continue;
        /* What a follower still has to copy of what is committed. */
        int64_t lag = partition_high_watermark(p) - plog_end(p->pl);
        rows[n++] = (struct row){.dir = partition_dir_path(p), .p = p, .size = plog_size(p->pl), .lag = MAX(lag, 0)};
    }
    for (size_t i = 0; i < futures_count; i++) {
        const struct future_view *f = &futures[i];
        if (all || has(list, count, f->p))
            rows[n++] = (struct row){.dir = f->dir, .p = f->p, .size = f->size, .lag = MAX(f->lag, 0), .future = true};
    }
    if (n > 1) qsort(rows, n, sizeof *rows, compare);
    describe_dirs(rq, rows, n);
    replicas_futures_free(futures, futures_count);
}

/* Worker. */
static void describe(struct request *rq)
{
    const struct describe_log_dirs_request *in = rq->in;
    struct describe_log_dirs_op *op = rq->op;
    if (in->topics_count < 0) { /* null: everything */
        size_t count;
        struct partition **all = replicas_list(rq->broker->replicas, &count);
        describe_list(rq, all, count, true);
        replicas_list_free(all, count);
        return;
    }
    describe_list(rq, op->named, op->named_count, false);
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
