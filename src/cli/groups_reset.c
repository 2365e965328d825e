/* groups_reset.c: scopes and plans; see groups_reset.h. */
#include "cli/groups_reset.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/admin_offsets.h"

/* ---- scopes ---- */

struct scope {
    struct topic_partition *at; /* in the arena, doubling */
    int32_t count, cap;
};

static void scope_add(struct scope *s, struct str topic, int32_t partition, struct arena *a)
{
    if (s->count == s->cap) {
        s->cap = MAX(s->cap * 2, 16);
        struct topic_partition *at = arena_array(a, struct topic_partition, (size_t)s->cap);
        if (s->count) memcpy(at, s->at, (size_t)s->count * sizeof *at);
        s->at = at;
    }
    s->at[s->count++] = (struct topic_partition){topic, partition};
}

static int compare_scope(const void *a, const void *b)
{
    return topic_partition_compare(a, b);
}

/* Sorted, each partition once. */
static void scope_sort(struct scope *s)
{
    if (s->count == 0) return;
    qsort(s->at, (size_t)s->count, sizeof *s->at, compare_scope);
    int32_t kept = 1;
    for (int32_t i = 1; i < s->count; i++)
        if (topic_partition_compare(&s->at[i], &s->at[kept - 1]) != 0) s->at[kept++] = s->at[i];
    s->count = kept;
}

static bool parse_int32(struct str text, int32_t *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        n = n * 10 + (text.data[i] - '0');
        if (n > INT32_MAX) return false;
    }
    *out = (int32_t)n;
    return text.size > 0;
}

static bool add_partitions(struct scope *s, const char *word, const char *colon, struct arena *a, struct failure *f)
{
    struct str topic = {word, (size_t)(colon - word)};
    if (topic.size == 0 || colon[1] == '\0' || strchr(colon + 1, ':'))
        return failure_set(f, ERR_INVALID, "Invalid topic arg '%s', expected topic name and partitions", word);
    for (const char *at = colon + 1;; at++) {
        struct str number = {at, strcspn(at, ",")};
        int32_t partition;
        if (!parse_int32(number, &partition))
            return failure_set(f, ERR_INVALID, "Invalid partition '%.*s' specified in topic arg '%s''", STR_ARG(number),
                               word);
        scope_add(s, topic, partition, a);
        at += number.size;
        if (!*at) return true;
    }
}

static bool ask_topics(struct cluster *cl, const struct str *names, int32_t count, struct topic **topics,
                       int32_t *topic_count, struct arena *a, struct failure *f)
{
    struct attempt at = attempt_begin(cl);
    while (!cluster_topics(&at, names, count, topics, topic_count, a, f))
        if (!attempt_again(&at, f)) return false;
    for (int32_t i = 0; i < *topic_count; i++) {
        const struct topic *t = &(*topics)[i];
        if (t->kerr) return failure_refused(f, t->kerr, STR_NULL, "Topic %.*s", STR_ARG(t->name));
    }
    return true;
}

bool reset_scope_topics(struct cluster *cl, const char *const *words, size_t word_count, struct topic_partition **out,
                        int32_t *out_count, struct arena *a, struct failure *f)
{
    struct scope s = {0};
    struct str *names = arena_array(a, struct str, word_count);
    int32_t name_count = 0;
    for (size_t i = 0; i < word_count; i++) {
        const char *colon = strchr(words[i], ':');
        if (!colon)
            names[name_count++] = str_of(words[i]);
        else if (!add_partitions(&s, words[i], colon, a, f))
            return false;
    }
    struct topic *topics;
    int32_t topic_count = 0;
    if (name_count > 0 && !ask_topics(cl, names, name_count, &topics, &topic_count, a, f)) return false;
    for (int32_t i = 0; i < topic_count; i++)
        for (int32_t j = 0; j < topics[i].leader_count; j++)
            scope_add(&s, topics[i].name, topics[i].leaders[j].partition, a);
    scope_sort(&s);
    *out = s.at;
    *out_count = s.count;
    return true;
}

static bool committed_offsets(struct cluster *cl, struct str group, struct group_offsets *out, struct arena *a,
                              struct failure *f)
{
    *out = (struct group_offsets){.id = group};
    if (!admin_group_offsets(cl, out, 1, a, f)) return false;
    if (!out->answer.kerr) return true;
    return failure_refused(f, out->answer.kerr, out->answer.message, "Group %.*s does not tell its offsets",
                           STR_ARG(group));
}

bool reset_scope_committed(struct cluster *cl, struct str group, struct topic_partition **out, int32_t *out_count,
                           struct arena *a, struct failure *f)
{
    struct group_offsets g;
    if (!committed_offsets(cl, group, &g, a, f)) return false;
    *out = arena_array(a, struct topic_partition, (size_t)g.offset_count);
    *out_count = g.offset_count;
    for (int32_t i = 0; i < g.offset_count; i++) (*out)[i] = g.offsets[i].of;
    return true;
}

/* ---- plans ---- */

/* One offset a row, at this time; fails if one has none for another reason than that there is no such record. */
static bool ask_offsets(struct cluster *cl, const struct reset_plan *plan, int64_t timestamp, struct offset_query **out,
                        struct arena *a, struct failure *f)
{
    struct offset_query *queries = arena_array(a, struct offset_query, (size_t)plan->row_count);
    for (int32_t i = 0; i < plan->row_count; i++)
        queries[i] = (struct offset_query){.of = plan->rows[i].of, .timestamp = timestamp};
    if (!admin_list_offsets(cl, queries, plan->row_count, a, f)) return false;
    for (int32_t i = 0; i < plan->row_count; i++)
        if (queries[i].kerr)
            return failure_refused(f, queries[i].kerr, STR_NULL, "Partition %.*s-%" PRId32,
                                   STR_ARG(queries[i].of.topic), queries[i].of.partition);
    *out = queries;
    return true;
}

static bool plan_log_offsets(struct cluster *cl, struct reset_plan *plan, int64_t timestamp, struct arena *a,
                             struct failure *f)
{
    struct offset_query *found, *ends;
    if (!ask_offsets(cl, plan, timestamp, &found, a, f)) return false;
    bool all = true;
    for (int32_t i = 0; i < plan->row_count; i++) {
        plan->rows[i].offset = found[i].offset;
        all &= found[i].offset >= 0;
    }
    if (all) return true;
    if (!ask_offsets(cl, plan, OFFSETS_LATEST, &ends, a, f)) return false;
    for (int32_t i = 0; i < plan->row_count; i++) {
        if (plan->rows[i].offset >= 0) continue;
        plan->rows[i].offset = ends[i].offset;
        plan->rows[i].note = RESET_NO_SUCH_RECORD;
    }
    return true;
}

/* Every row goes where it asks, or to the nearest offset that the log has. */
static bool plan_within_log(struct cluster *cl, struct reset_plan *plan, struct arena *a, struct failure *f)
{
    struct offset_query *starts, *ends;
    if (!ask_offsets(cl, plan, OFFSETS_EARLIEST, &starts, a, f) || !ask_offsets(cl, plan, OFFSETS_LATEST, &ends, a, f))
        return false;
    for (int32_t i = 0; i < plan->row_count; i++) {
        struct reset_row *row = &plan->rows[i];
        row->offset = row->asked;
        if (row->asked > ends[i].offset) {
            row->offset = ends[i].offset;
            row->note = RESET_CUT_TO_END;
        } else if (row->asked < starts[i].offset) {
            row->offset = starts[i].offset;
            row->note = RESET_CUT_TO_START;
        }
    }
    return true;
}

static const struct group_offset *committed_at(const struct group_offsets *g, const struct topic_partition *tp)
{
    struct group_offset key = {.of = *tp};
    return g->offset_count > 0
               ? bsearch(&key, g->offsets, (size_t)g->offset_count, sizeof key, compare_scope) /* `of` comes first */
               : NULL;
}
_Static_assert(offsetof(struct group_offset, of) == 0, "compared as a struct topic_partition");

static bool plan_shift(struct cluster *cl, struct reset_plan *plan, int64_t by, struct arena *a, struct failure *f)
{
    struct group_offsets g;
    if (!committed_offsets(cl, plan->group, &g, a, f)) return false;
    for (int32_t i = 0; i < plan->row_count; i++) {
        struct reset_row *row = &plan->rows[i];
        const struct group_offset *o = committed_at(&g, &row->of);
        if (!o)
            return failure_set(f, ERR_INVALID,
                               "Cannot shift offset for partition %.*s-%" PRId32
                               " since there is no current committed offset",
                               STR_ARG(row->of.topic), row->of.partition);
        if (__builtin_add_overflow(o->offset, by, &row->asked)) row->asked = by < 0 ? INT64_MIN : INT64_MAX;
    }
    return plan_within_log(cl, plan, a, f);
}

static bool plan_current(struct cluster *cl, struct reset_plan *plan, struct arena *a, struct failure *f)
{
    struct group_offsets g;
    struct offset_query *ends;
    if (!committed_offsets(cl, plan->group, &g, a, f)) return false;
    bool all = true;
    for (int32_t i = 0; i < plan->row_count; i++) {
        const struct group_offset *o = committed_at(&g, &plan->rows[i].of);
        plan->rows[i].offset = o ? o->offset : -1;
        all &= o != NULL;
    }
    if (all) return true;
    if (!ask_offsets(cl, plan, OFFSETS_LATEST, &ends, a, f)) return false;
    for (int32_t i = 0; i < plan->row_count; i++)
        if (plan->rows[i].offset < 0) plan->rows[i].offset = ends[i].offset;
    return true;
}

bool reset_plan_make(struct cluster *cl, struct reset_plan *plan, const struct reset_spec *spec,
                     const struct topic_partition *scope, int32_t scope_count, struct arena *a, struct failure *f)
{
    if (spec->how != RESET_TO_FILE) {
        plan->rows = arena_array(a, struct reset_row, (size_t)scope_count);
        plan->row_count = scope_count;
        for (int32_t i = 0; i < scope_count; i++)
            plan->rows[i] = (struct reset_row){.of = scope[i], .asked = spec->number};
    }
    switch (spec->how) {
    case RESET_TO_OFFSET:
    case RESET_TO_FILE: return plan_within_log(cl, plan, a, f);
    case RESET_TO_EARLIEST: return plan_log_offsets(cl, plan, OFFSETS_EARLIEST, a, f);
    case RESET_TO_LATEST: return plan_log_offsets(cl, plan, OFFSETS_LATEST, a, f);
    /* Brokers take times before 1970 for questions of another kind: -1 is the end. */
    case RESET_TO_TIME: return plan_log_offsets(cl, plan, MAX(spec->number, 0), a, f);
    case RESET_SHIFT_BY: return plan_shift(cl, plan, spec->number, a, f);
    case RESET_TO_CURRENT: return plan_current(cl, plan, a, f);
    }
    UNREACHABLE();
}

bool reset_plan_execute(struct cluster *cl, const struct reset_plan *plan, struct arena *a, struct failure *f)
{
    struct group_offsets g = {.id = plan->group, .offset_count = plan->row_count};
    g.offsets = arena_array(a, struct group_offset, (size_t)plan->row_count);
    for (int32_t i = 0; i < plan->row_count; i++)
        g.offsets[i] = (struct group_offset){
            .of = plan->rows[i].of, .offset = plan->rows[i].offset, .leader_epoch = -1, .metadata = STR_EMPTY};
    if (!admin_alter_group_offsets(cl, &g, a, f)) return false;
    if (g.answer.kerr)
        return failure_refused(f, g.answer.kerr, g.answer.message, "Group %.*s does not take the offsets",
                               STR_ARG(plan->group));
    for (int32_t i = 0; i < g.offset_count; i++)
        if (g.offsets[i].kerr)
            return failure_refused(f, g.offsets[i].kerr, STR_NULL,
                                   "Group %.*s does not take the offset of partition %.*s-%" PRId32,
                                   STR_ARG(plan->group), STR_ARG(g.offsets[i].of.topic), g.offsets[i].of.partition);
    return true;
}
