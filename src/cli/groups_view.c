/* groups_view.c: see groups_view.h. */
#include "cli/groups_view.h"

#include <stdlib.h>
#include <strings.h>

#include "client/admin_offsets.h"

/* ---- one group's rows ---- */

static const struct group_offset *committed_of(const struct group_offsets *g, const struct topic_partition *tp)
{
    int32_t low = 0, high = g->offset_count;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        int c = topic_partition_compare(&g->offsets[mid].of, tp);
        if (c == 0) return &g->offsets[mid];
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static int compare_members(const void *a, const void *b)
{
    const struct group_member *x = *(const struct group_member *const *)a, *y = *(const struct group_member *const *)b;
    if (x->assigned_count != y->assigned_count) return x->assigned_count > y->assigned_count ? -1 : 1;
    return (x > y) - (x < y); /* as the broker tells of them */
}

static int compare_assigned(const void *a, const void *b)
{
    return topic_partition_compare(a, b);
}

/* All that members own, sorted, to find what nobody owns. */
static struct topic_partition *all_assigned(const struct group_description *d, size_t *count, struct arena *a)
{
    *count = 0;
    for (int32_t i = 0; i < d->member_count; i++) *count += (size_t)d->members[i].assigned_count;
    struct topic_partition *all = arena_array(a, struct topic_partition, *count);
    size_t at = 0;
    for (int32_t i = 0; i < d->member_count; i++)
        for (int32_t j = 0; j < d->members[i].assigned_count; j++) all[at++] = d->members[i].assigned[j];
    qsort(all, *count, sizeof *all, compare_assigned);
    return all;
}

static void add_row(struct group_view *v, const struct topic_partition *tp, const struct group_member *member,
                    const struct group_offset *committed)
{
    v->rows[v->row_count++] = (struct group_row){.of = *tp,
                                                 .member = member,
                                                 .committed = committed ? committed->offset : -1,
                                                 .end = -1,
                                                 .lag = LAG_UNKNOWN,
                                                 .lag_ms = LAG_UNKNOWN};
}

static void make_rows(struct group_view *v, struct arena *a)
{
    const struct group_description *d = &v->description;
    size_t assigned_count;
    const struct topic_partition *assigned = all_assigned(d, &assigned_count, a);
    v->rows = arena_array(a, struct group_row, assigned_count + (size_t)v->offsets.offset_count);
    const struct group_member **members = arena_array(a, const struct group_member *, (size_t)d->member_count);
    for (int32_t i = 0; i < d->member_count; i++) members[i] = &d->members[i];
    qsort(members, (size_t)d->member_count, sizeof(struct group_member *), compare_members);
    for (int32_t i = 0; i < d->member_count; i++)
        for (int32_t j = 0; j < members[i]->assigned_count; j++)
            add_row(v, &members[i]->assigned[j], members[i], committed_of(&v->offsets, &members[i]->assigned[j]));
    for (int32_t i = 0; i < v->offsets.offset_count; i++) {
        const struct topic_partition *tp = &v->offsets.offsets[i].of;
        if (!assigned_count || !bsearch(tp, assigned, assigned_count, sizeof *tp, compare_assigned))
            add_row(v, tp, NULL, &v->offsets.offsets[i]);
    }
}

/* ---- ends and times, of all groups at once ---- */

static struct group_row **all_rows(struct group_view *views, int32_t count, int32_t *row_count, struct arena *a)
{
    *row_count = 0;
    for (int32_t i = 0; i < count; i++) *row_count += views[i].row_count;
    struct group_row **rows = arena_array(a, struct group_row *, (size_t)*row_count);
    int32_t at = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < views[i].row_count; j++) rows[at++] = &views[i].rows[j];
    return rows;
}

static int compare_rows(const void *a, const void *b)
{
    return topic_partition_compare(&(*(struct group_row *const *)a)->of, &(*(struct group_row *const *)b)->of);
}

/* Groups share topics: each partition is asked about once. */
static bool find_ends(struct cluster *cl, struct group_row **rows, int32_t count, struct arena *a, struct failure *f)
{
    qsort(rows, (size_t)count, sizeof(struct group_row *), compare_rows);
    struct offset_query *queries = arena_array(a, struct offset_query, (size_t)count);
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++)
        if (i == 0 || compare_rows(&rows[i - 1], &rows[i]) != 0)
            queries[n++] = (struct offset_query){.of = rows[i]->of, .timestamp = OFFSETS_LATEST};
    if (!admin_list_offsets(cl, queries, n, a, f)) return false;
    int32_t at = -1;
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || compare_rows(&rows[i - 1], &rows[i]) != 0) at++;
        rows[i]->end_kerr = queries[at].kerr;
        rows[i]->end = queries[at].kerr ? -1 : queries[at].offset;
        if (rows[i]->end >= 0 && rows[i]->committed >= 0) rows[i]->lag = rows[i]->end - rows[i]->committed;
    }
    return true;
}

/* Records below the log's start are gone: the first that was not consumed is the one at the start. */
static bool start_where_log_starts(struct cluster *cl, struct record_query *queries, int32_t count, struct arena *a,
                                   struct failure *f)
{
    struct offset_query *starts = arena_array(a, struct offset_query, (size_t)count);
    int32_t *of = arena_array(a, int32_t, (size_t)count), n = 0;
    for (int32_t i = 0; i < count; i++) {
        if (queries[i].kerr != KERR_OFFSET_OUT_OF_RANGE) continue;
        of[n] = i;
        starts[n++] = (struct offset_query){.of = queries[i].of, .timestamp = OFFSETS_EARLIEST};
    }
    if (n == 0) return true;
    if (!admin_list_offsets(cl, starts, n, a, f)) return false;
    struct record_query *again = arena_array(a, struct record_query, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        again[i] = (struct record_query){.of = starts[i].of, .offset = MAX(starts[i].offset, 0)};
    if (!admin_record_times(cl, again, n, a, f)) return false;
    for (int32_t i = 0; i < n; i++) queries[of[i]] = again[i];
    return true;
}

static bool find_times(struct cluster *cl, struct group_row **rows, int32_t count, struct arena *a, struct failure *f)
{
    struct record_query *queries = arena_array(a, struct record_query, (size_t)count);
    struct group_row **of = arena_array(a, struct group_row *, (size_t)count);
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++) {
        if (rows[i]->lag == LAG_UNKNOWN) continue;
        rows[i]->lag_ms = 0;
        if (rows[i]->lag <= 0) continue;
        of[n] = rows[i];
        queries[n++] = (struct record_query){.of = rows[i]->of, .offset = rows[i]->committed};
    }
    if (!admin_record_times(cl, queries, n, a, f) || !start_where_log_starts(cl, queries, n, a, f)) return false;
    int64_t now_ms = clock_wall_ms(cluster_clock(cl));
    for (int32_t i = 0; i < n; i++) {
        bool known = queries[i].found && queries[i].timestamp >= 0;
        of[i]->lag_ms = known ? MAX(now_ms - queries[i].timestamp, 0) : LAG_UNKNOWN;
    }
    return true;
}

bool group_views(struct cluster *cl, const struct str *ids, int32_t count, const struct group_view_options *opt,
                 struct group_view **out, struct arena *a, struct failure *f)
{
    struct group_view *views = arena_array(a, struct group_view, (size_t)count);
    struct group_description *descriptions = arena_array(a, struct group_description, (size_t)count);
    struct group_offsets *offsets = arena_array(a, struct group_offsets, (size_t)count);
    for (int32_t i = 0; i < count; i++) descriptions[i].id = offsets[i].id = ids[i];
    if (!admin_describe_groups(cl, descriptions, count, a, f)) return false;
    if (!admin_group_offsets(cl, offsets, count, a, f)) return false;
    for (int32_t i = 0; i < count; i++) {
        views[i].description = descriptions[i];
        views[i].offsets = offsets[i];
        if (!descriptions[i].answer.kerr) make_rows(&views[i], a);
    }
    int32_t row_count;
    struct group_row **rows = all_rows(views, count, &row_count, a);
    if (!find_ends(cl, rows, row_count, a, f)) return false;
    if (opt->times && !find_times(cl, rows, row_count, a, f)) return false;
    *out = views;
    return true;
}

/* ---- names ---- */

static const char *const names[][8] = {
    [GROUP_STATES] = {"PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning",
                      "Reconciling"},
    [GROUP_TYPES] = {"Consumer", "Classic", "Share", "Streams"},
    [GROUP_TYPES_39] = {"Consumer", "Classic"},
};

struct str group_name_find(enum group_names which, struct str text)
{
    for (const char *const *at = names[which]; *at; at++)
        if (strlen(*at) == text.size && strncasecmp(*at, text.data, text.size) == 0) return str_of(*at);
    return STR_NULL;
}

bool group_names_parse(enum group_names which, const char *text, struct str **out, int32_t *count, struct arena *a)
{
    *out = arena_array(a, struct str, strlen(text) + 1);
    *count = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        struct str word = {at, n};
        while (word.size > 0 && word.data[0] == ' ') word = (struct str){word.data + 1, word.size - 1};
        while (word.size > 0 && word.data[word.size - 1] == ' ') word.size--;
        struct str name = group_name_find(which, word);
        if (str_is_null(name)) return false;
        (*out)[(*count)++] = name;
        at += n + (at[n] == ',');
    }
    return true;
}
