/* groups_show.c: `barnabas groups list|describe|members`. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/groups_internal.h"
#include "cli/log_out.h"
#include "cli/moment.h"
#include "cli/table_out.h"

enum { MS_PER_SECOND = 1000 };

static struct str or_dash(struct str text)
{
    return text.size > 0 ? text : STR("-");
}

static void cell_number(struct table_out *t, int64_t value, bool known)
{
    if (known)
        table_out_printf(t, "%" PRId64, value);
    else
        table_out_text(t, STR("-"));
}

static void cell_seconds(struct table_out *t, int64_t ms)
{
    if (ms == LAG_UNKNOWN)
        table_out_text(t, STR("-"));
    else
        table_out_printf(t, "%" PRId64 ".%03d", ms / MS_PER_SECOND, (int)(ms % MS_PER_SECOND));
}

/* A name in a line of text: as it is, or quoted where it has what cannot be printed. */
static void print_named(const char *label, struct str text)
{
    printf("%-12s", label);
    print_escaped(stdout, or_dash(text));
    putchar('\n');
}

/* ---- list ---- */

int groups_list(struct groups *g)
{
    const struct option_value *state = groups_value(g, GR_STATE), *type = groups_value(g, GR_TYPE);
    struct str *states = NULL, *types = NULL;
    int32_t state_count = 0, type_count = 0, count;
    if (state->given && !group_names_parse(GROUP_STATES, state->text, &states, &state_count, &g->a))
        return cli_usage_error("groups", "--state: '%s' names a state that there is not", state->text);
    if (type->given && !group_names_parse(GROUP_TYPES, type->text, &types, &type_count, &g->a))
        return cli_usage_error("groups", "--type: '%s' names a type that there is not", type->text);
    struct group_listing *groups;
    if (!admin_list_groups(g->cl, states, state_count, types, type_count, &groups, &count, &g->a, &g->f))
        return GROUPS_FAILED;
    static const char *const columns[] = {"GROUP", "STATE", "TYPE", "PROTOCOL"};
    struct table_out t;
    table_out_init(&t, columns, ARRAY_COUNT(columns));
    for (int32_t i = 0; i < count; i++) {
        const struct group_listing *l = &groups[i];
        if (g->json) {
            json_t *line = json_object();
            groups_json_set(line, "group", groups_json_text(l->id));
            groups_json_set(line, "state", l->state.size ? groups_json_text(l->state) : json_null());
            groups_json_set(line, "type", l->type.size ? groups_json_text(l->type) : json_null());
            groups_json_set(line, "protocol", groups_json_text(l->protocol_type));
            groups_json_print(line);
            continue;
        }
        table_out_text(&t, l->id);
        table_out_text(&t, or_dash(l->state));
        table_out_text(&t, or_dash(l->type));
        table_out_text(&t, or_dash(l->protocol_type));
    }
    if (!g->json) table_out_print(&t, stdout);
    return 0;
}

/* ---- what describe and members share ---- */

static bool is_absent(const struct group_description *d)
{
    return str_is(d->state, "Dead");
}

/* 0 when there is something to show. */
static int say_if_not_there(const struct group_description *d)
{
    if (d->answer.kerr) return groups_say_refused(d->id, &d->answer);
    if (is_absent(d)) return groups_say("there is no group '%.*s'", STR_ARG(d->id));
    return 0;
}

static json_t *head_json(const struct group_description *d)
{
    json_t *o = json_object();
    groups_json_set(o, "group", groups_json_text(d->id));
    groups_json_set(o, "state", groups_json_text(d->state));
    groups_json_set(o, "type", groups_json_text(d->type));
    groups_json_set(o, "protocol", groups_json_text(d->protocol_type));
    groups_json_set(o, "assignor", d->assignor.size ? groups_json_text(d->assignor) : json_null());
    json_t *c = json_object();
    groups_json_set(c, "id", json_integer(d->coordinator.id));
    groups_json_set(c, "host", groups_json_text(d->coordinator.host));
    groups_json_set(c, "port", json_integer(d->coordinator.port));
    groups_json_set(o, "coordinator", c);
    return o;
}

static json_t *assigned_json(const struct group_member *m)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < m->assigned_count; i++) {
        json_t *p = json_object();
        groups_json_set(p, "topic", groups_json_text(m->assigned[i].topic));
        groups_json_set(p, "partition", json_integer(m->assigned[i].partition));
        ASSERT(json_array_append_new(list, p) == 0);
    }
    return list;
}

static json_t *members_json(const struct group_description *d)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < d->member_count; i++) {
        const struct group_member *m = &d->members[i];
        json_t *o = json_object();
        groups_json_set(o, "member", groups_json_text(m->id));
        groups_json_set(o, "instance", m->instance_id.size ? groups_json_text(m->instance_id) : json_null());
        groups_json_set(o, "client", groups_json_text(m->client_id));
        groups_json_set(o, "host", groups_json_text(m->host));
        groups_json_set(o, "partitions", assigned_json(m));
        ASSERT(json_array_append_new(list, o) == 0);
    }
    return list;
}

/* ---- describe ---- */

static void print_head(const struct group_view *v)
{
    const struct group_description *d = &v->description;
    print_named("group", d->id);
    printf("%-12s", "state");
    print_escaped(stdout, d->state);
    printf(" (%.*s)\n%-12s", STR_ARG(d->type), "coordinator");
    print_escaped(stdout, d->coordinator.host);
    printf(":%" PRId32 " (id %" PRId32 ")\n", d->coordinator.port, d->coordinator.id);
    if (d->protocol_type.size > 0 && !str_is(d->protocol_type, "consumer")) print_named("protocol", d->protocol_type);
    print_named("assignor", d->assignor);
    printf("%-12s%" PRId32 "\n", "members", d->member_count);
    int64_t lag = 0, ms_max = 0;
    int32_t known = 0;
    for (int32_t i = 0; i < v->row_count; i++) {
        if (v->rows[i].lag == LAG_UNKNOWN) continue;
        known++;
        if (__builtin_add_overflow(lag, MAX(v->rows[i].lag, 0), &lag)) lag = INT64_MAX;
        ms_max = MAX(ms_max, v->rows[i].lag_ms);
    }
    printf("%-12s%" PRId64 " records in %" PRId32 " partitions", "lag", lag, known);
    if (lag > 0) printf(", the oldest %" PRId64 ".%03d s old", ms_max / MS_PER_SECOND, (int)(ms_max % MS_PER_SECOND));
    putchar('\n');
}

static void print_rows(const struct group_view *v)
{
    static const char *const columns[] = {"TOPIC",        ">PARTITION", ">COMMITTED", ">END",  ">LAG",
                                          ">LAG-SECONDS", "MEMBER",     "HOST",       "CLIENT"};
    struct table_out t;
    table_out_init(&t, columns, ARRAY_COUNT(columns));
    for (int32_t i = 0; i < v->row_count; i++) {
        const struct group_row *r = &v->rows[i];
        const struct group_member *m = r->member;
        table_out_text(&t, r->of.topic);
        cell_number(&t, r->of.partition, true);
        cell_number(&t, r->committed, r->committed >= 0);
        cell_number(&t, r->end, r->end >= 0);
        cell_number(&t, r->lag, r->lag != LAG_UNKNOWN);
        cell_seconds(&t, r->lag_ms);
        table_out_text(&t, m ? m->id : STR("-"));
        table_out_text(&t, m ? m->host : STR("-"));
        table_out_text(&t, m ? m->client_id : STR("-"));
    }
    if (v->row_count > 0) {
        putchar('\n');
        table_out_print(&t, stdout);
    }
    for (int32_t i = 0; i < v->row_count; i++)
        if (v->rows[i].end_kerr)
            groups_say("the end of %.*s-%" PRId32 " cannot be known: %s", STR_ARG(v->rows[i].of.topic),
                       v->rows[i].of.partition, kerr_name(v->rows[i].end_kerr));
}

static void print_rebalances(const struct group_description *d)
{
    if (d->rebalance_count == 0) {
        printf("\nThe coordinator tells of no rebalances: Apache Kafka never does, and Barnabas keeps them in memory "
               "only.\n");
        return;
    }
    static const char *const columns[] = {"REBALANCED-AT", ">GENERATION", ">SECONDS", "MEMBER", "CLIENT", "REASON"};
    struct table_out t;
    table_out_init(&t, columns, ARRAY_COUNT(columns));
    for (int32_t i = 0; i < d->rebalance_count; i++) {
        const struct group_rebalance *r = &d->rebalances[i];
        char when[MOMENT_TEXT_MAX];
        moment_format(r->started_ms, when);
        table_out_text(&t, str_of(when));
        cell_number(&t, r->generation, r->generation >= 0);
        cell_seconds(&t, r->took_ms < 0 ? LAG_UNKNOWN : r->took_ms); /* below 0: it goes on */
        table_out_text(&t, or_dash(r->member_id));
        table_out_text(&t, or_dash(r->client_id));
        table_out_text(&t, or_dash(r->reason));
    }
    putchar('\n');
    table_out_print(&t, stdout);
}

static json_t *rows_json(const struct group_view *v)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < v->row_count; i++) {
        const struct group_row *r = &v->rows[i];
        json_t *o = json_object();
        groups_json_set(o, "topic", groups_json_text(r->of.topic));
        groups_json_set(o, "partition", json_integer(r->of.partition));
        groups_json_set(o, "committed", groups_json_number(r->committed, r->committed >= 0));
        groups_json_set(o, "end", groups_json_number(r->end, r->end >= 0));
        groups_json_set(o, "lag", groups_json_number(r->lag, r->lag != LAG_UNKNOWN));
        groups_json_set(o, "lagMs", groups_json_number(r->lag_ms, r->lag_ms != LAG_UNKNOWN));
        groups_json_set(o, "member", r->member ? groups_json_text(r->member->id) : json_null());
        if (r->end_kerr) groups_json_set(o, "error", json_string(kerr_name(r->end_kerr)));
        ASSERT(json_array_append_new(list, o) == 0);
    }
    return list;
}

static json_t *rebalances_json(const struct group_description *d)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < d->rebalance_count; i++) {
        const struct group_rebalance *r = &d->rebalances[i];
        json_t *o = json_object();
        groups_json_set(o, "startedMs", json_integer(r->started_ms));
        groups_json_set(o, "tookMs", groups_json_number(r->took_ms, r->took_ms >= 0));
        groups_json_set(o, "generation", groups_json_number(r->generation, r->generation >= 0));
        groups_json_set(o, "reason", groups_json_text(r->reason));
        groups_json_set(o, "member", r->member_id.size ? groups_json_text(r->member_id) : json_null());
        groups_json_set(o, "client", groups_json_text(r->client_id));
        ASSERT(json_array_append_new(list, o) == 0);
    }
    return list;
}

static void print_view_json(const struct group_view *v)
{
    json_t *o = head_json(&v->description);
    groups_json_set(o, "partitions", rows_json(v));
    groups_json_set(o, "members", members_json(&v->description));
    groups_json_set(o, "rebalances", rebalances_json(&v->description));
    groups_json_print(o);
}

int groups_describe(struct groups *g)
{
    struct group_view *views;
    struct group_view_options opt = {.times = true};
    if (!group_views(g->cl, g->ids, g->id_count, &opt, &views, &g->a, &g->f)) return GROUPS_FAILED;
    int status = 0;
    bool first = true;
    for (int32_t i = 0; i < g->id_count; i++) {
        int refused = say_if_not_there(&views[i].description);
        if (!refused && views[i].offsets.answer.kerr)
            refused = groups_say_refused(views[i].offsets.id, &views[i].offsets.answer);
        status |= refused;
        if (refused) continue;
        if (g->json) {
            print_view_json(&views[i]);
            continue;
        }
        if (!first) putchar('\n');
        first = false;
        print_head(&views[i]);
        print_rows(&views[i]);
        print_rebalances(&views[i].description);
    }
    return status;
}

/* ---- members ---- */

/* "orders:0-3,7 clicks:1", escaped: topics are what members say. */
static struct str assigned_text(const struct group_member *m, struct arena *a)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ASSERT(out);
    for (int32_t i = 0, last; i < m->assigned_count; i = last + 1) {
        const struct topic_partition *p = &m->assigned[i];
        bool same = i > 0 && str_equal(p->topic, m->assigned[i - 1].topic);
        for (last = i; last + 1 < m->assigned_count && str_equal(m->assigned[last + 1].topic, p->topic) &&
                       m->assigned[last + 1].partition == (int64_t)m->assigned[last].partition + 1;)
            last++;
        if (same) {
            fputc(',', out);
        } else {
            if (i > 0) fputc(' ', out);
            print_escaped(out, p->topic);
            fputc(':', out);
        }
        fprintf(out, "%" PRId32, p->partition);
        if (last > i) fprintf(out, "-%" PRId32, m->assigned[last].partition);
    }
    fclose(out);
    struct str copy = arena_str(a, (struct str){text, size});
    free(text); /* the C library's own */
    return copy;
}

static void member_cells(struct table_out *t, struct str group, const struct group_member *m, struct arena *a)
{
    table_out_text(t, group);
    table_out_text(t, m->id);
    table_out_text(t, or_dash(m->instance_id));
    table_out_text(t, or_dash(m->client_id));
    table_out_text(t, or_dash(m->host));
    cell_number(t, m->assigned_count, true);
    table_out_plain(t, assigned_text(m, a));
}

int groups_members(struct groups *g)
{
    struct group_description *groups = arena_array(&g->a, struct group_description, (size_t)g->id_count);
    for (int32_t i = 0; i < g->id_count; i++) groups[i].id = g->ids[i];
    if (!admin_describe_groups(g->cl, groups, g->id_count, &g->a, &g->f)) return GROUPS_FAILED;
    static const char *const columns[] = {"GROUP", "MEMBER", "INSTANCE", "CLIENT", "HOST", ">PARTITIONS", "ASSIGNED"};
    struct table_out t;
    table_out_init(&t, columns, ARRAY_COUNT(columns));
    int status = 0;
    for (int32_t i = 0; i < g->id_count; i++) {
        int refused = say_if_not_there(&groups[i]);
        status |= refused;
        if (refused) continue;
        if (g->json) {
            json_t *o = head_json(&groups[i]);
            groups_json_set(o, "members", members_json(&groups[i]));
            groups_json_print(o);
            continue;
        }
        for (int32_t j = 0; j < groups[i].member_count; j++)
            member_cells(&t, groups[i].id, &groups[i].members[j], &g->a);
    }
    if (!g->json) table_out_print(&t, stdout);
    return status;
}
