/* groups_change.c: `barnabas groups reset-offsets|delete|delete-offsets`. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/groups_internal.h"
#include "cli/moment.h"
#include "cli/table_out.h"

/* ---- reset-offsets ---- */

static const struct {
    enum groups_option option;
    enum reset_how how;
} ways[] = {{GR_TO_OFFSET, RESET_TO_OFFSET},   {GR_TO_EARLIEST, RESET_TO_EARLIEST}, {GR_TO_LATEST, RESET_TO_LATEST},
            {GR_TO_CURRENT, RESET_TO_CURRENT}, {GR_SHIFT_BY, RESET_SHIFT_BY},       {GR_TO_TIME, RESET_TO_TIME},
            {GR_BY_DURATION, RESET_TO_TIME},   {GR_FROM_FILE, RESET_TO_FILE}};

/* 0, or EXIT_USAGE. */
static int parse_spec(const struct groups *g, struct reset_spec *spec)
{
    size_t given = 0, at = 0;
    for (size_t i = 0; i < ARRAY_COUNT(ways); i++) {
        if (!groups_value(g, ways[i].option)->given) continue;
        given++;
        at = i;
    }
    if (given != 1)
        return cli_usage_error("groups", "reset-offsets needs one place to go to: --to-earliest, --to-latest, "
                                         "--to-offset, --to-current, --shift-by, --to-datetime, --by-duration or "
                                         "--from-file");
    const struct option_value *v = groups_value(g, ways[at].option);
    *spec = (struct reset_spec){.how = ways[at].how, .number = v->number};
    if (ways[at].option == GR_TO_TIME && !moment_parse(v->text, &spec->number))
        return cli_usage_error("groups", "--to-datetime: '%s' is no moment like 2026-01-31T12:00:00", v->text);
    if (ways[at].option == GR_BY_DURATION) {
        int64_t ms;
        if (!duration_parse(v->text, &ms))
            return cli_usage_error("groups", "--by-duration: '%s' is no duration like P1DT2H3M4S", v->text);
        if (__builtin_sub_overflow(clock_wall_ms(cluster_clock(g->cl)), ms, &spec->number)) spec->number = INT64_MAX;
    }
    bool topics = groups_value(g, GR_TOPIC)->given, all = groups_value(g, GR_ALL_TOPICS)->given;
    if (spec->how == RESET_TO_FILE ? topics || all : topics + all != 1)
        return cli_usage_error("groups", "reset-offsets takes either --topic or --all-topics, and neither with "
                                         "--from-file");
    return 0;
}

/* Fills in the rows of a plan from a file, or what the others are to be about. */
static bool find_scope(struct groups *g, const struct reset_spec *spec, struct reset_plan *plan,
                       struct topic_partition **scope, int32_t *count)
{
    const struct option_value *topics = groups_value(g, GR_TOPIC);
    if (spec->how != RESET_TO_FILE) {
        if (groups_value(g, GR_ALL_TOPICS)->given)
            return reset_scope_committed(g->cl, plan->group, scope, count, &g->a, &g->f);
        return reset_scope_topics(g->cl, topics->texts, topics->count, scope, count, &g->a, &g->f);
    }
    struct reset_plan *plans;
    int32_t plan_count;
    const char *path = groups_value(g, GR_FROM_FILE)->text;
    if (!reset_plans_read(path, plan->group, &plans, &plan_count, &g->a, &g->f)) return false;
    for (int32_t i = 0; i < plan_count; i++) {
        if (!str_equal(plans[i].group, plan->group)) continue;
        *plan = plans[i];
        return true;
    }
    return failure_set(&g->f, ERR_NOT_FOUND, "%s says nothing about group %.*s.", path, STR_ARG(plan->group));
}

static bool check_state(struct groups *g, struct str group)
{
    struct group_description d = {.id = group};
    if (!admin_describe_groups(g->cl, &d, 1, &g->a, &g->f)) return false;
    if (d.answer.kerr)
        return failure_refused(&g->f, d.answer.kerr, d.answer.message, "Group %.*s cannot be described",
                               STR_ARG(group));
    if (str_is(d.state, "Empty") || str_is(d.state, "Dead")) return true;
    return failure_set(&g->f, ERR_NOT_EMPTY,
                       "Group %.*s is %.*s with %" PRId32 " members: stop them first, else they would commit over it.",
                       STR_ARG(group), STR_ARG(d.state), d.member_count);
}

static const char *note_text(const struct reset_row *r)
{
    static const char *const texts[] = {
        [RESET_AS_ASKED] = "",
        [RESET_CUT_TO_END] = "the log ends here",
        [RESET_CUT_TO_START] = "the log starts here",
        [RESET_NO_SUCH_RECORD] = "no record that late: its end",
    };
    return texts[r->note];
}

static void print_plan(const struct groups *g, const struct reset_plan *plan, bool done)
{
    static const char *const columns[] = {"TOPIC", ">PARTITION", ">NEW-OFFSET", "NOTE"};
    struct table_out t;
    table_out_init(&t, columns, ARRAY_COUNT(columns));
    for (int32_t i = 0; i < plan->row_count; i++) {
        const struct reset_row *r = &plan->rows[i];
        if (g->json) {
            json_t *o = json_object();
            groups_json_set(o, "group", groups_json_text(plan->group));
            groups_json_set(o, "topic", groups_json_text(r->of.topic));
            groups_json_set(o, "partition", json_integer(r->of.partition));
            groups_json_set(o, "offset", json_integer(r->offset));
            groups_json_set(o, "done", json_boolean(done));
            if (r->note) groups_json_set(o, "note", json_string(note_text(r)));
            groups_json_print(o);
            continue;
        }
        table_out_text(&t, r->of.topic);
        table_out_printf(&t, "%" PRId32, r->of.partition);
        table_out_printf(&t, "%" PRId64, r->offset);
        table_out_printf(&t, "%s", note_text(r));
    }
    if (!g->json) table_out_print(&t, stdout);
}

int groups_reset_offsets(struct groups *g)
{
    struct reset_spec spec;
    struct reset_plan plan = {.group = g->ids[0]};
    struct topic_partition *scope = NULL;
    int32_t count = 0;
    int status = parse_spec(g, &spec);
    if (status) return status;
    if (!find_scope(g, &spec, &plan, &scope, &count) || !check_state(g, plan.group) ||
        !reset_plan_make(g->cl, &plan, &spec, scope, count, &g->a, &g->f))
        return GROUPS_FAILED;
    bool execute = groups_value(g, GR_EXECUTE)->given;
    if (execute && !reset_plan_execute(g->cl, &plan, &g->a, &g->f)) return GROUPS_FAILED;
    if (groups_value(g, GR_EXPORT)->given)
        reset_plan_print_csv(stdout, &plan, false);
    else
        print_plan(g, &plan, execute);
    fflush(stdout);
    if (!execute) fprintf(stderr, "Nothing is changed yet: that takes --execute.\n");
    return 0;
}

/* ---- delete ---- */

int groups_delete(struct groups *g)
{
    struct group_deletion *groups = arena_array(&g->a, struct group_deletion, (size_t)g->id_count);
    for (int32_t i = 0; i < g->id_count; i++) groups[i].id = g->ids[i];
    if (!admin_delete_groups(g->cl, groups, g->id_count, &g->a, &g->f)) return GROUPS_FAILED;
    int status = 0;
    for (int32_t i = 0; i < g->id_count; i++) {
        if (g->json) {
            json_t *o = json_object();
            groups_json_set(o, "group", groups_json_text(groups[i].id));
            groups_json_set(o, "deleted", json_boolean(!groups[i].answer.kerr));
            if (groups[i].answer.kerr) groups_json_set(o, "error", json_string(kerr_name(groups[i].answer.kerr)));
            groups_json_print(o);
            status |= groups[i].answer.kerr != KERR_NONE;
        } else if (groups[i].answer.kerr) {
            status = groups_say_refused(groups[i].id, &groups[i].answer);
        } else {
            printf("deleted %.*s\n", STR_ARG(groups[i].id));
        }
    }
    return status;
}

/* ---- delete-offsets ---- */

int groups_delete_offsets(struct groups *g)
{
    const struct option_value *topics = groups_value(g, GR_TOPIC);
    if (!topics->given) return cli_usage_error("groups", "delete-offsets needs --topic");
    struct group_offsets group = {.id = g->ids[0]};
    struct topic_partition *scope;
    if (!reset_scope_topics(g->cl, topics->texts, topics->count, &scope, &group.offset_count, &g->a, &g->f))
        return GROUPS_FAILED;
    group.offsets = arena_array(&g->a, struct group_offset, (size_t)group.offset_count);
    for (int32_t i = 0; i < group.offset_count; i++) group.offsets[i] = (struct group_offset){.of = scope[i]};
    if (!admin_delete_group_offsets(g->cl, &group, &g->a, &g->f)) return GROUPS_FAILED;
    if (group.answer.kerr) return groups_say_refused(group.id, &group.answer);
    int status = 0;
    for (int32_t i = 0; i < group.offset_count; i++) {
        const struct group_offset *o = &group.offsets[i];
        status |= o->kerr != KERR_NONE;
        if (g->json) {
            json_t *line = json_object();
            groups_json_set(line, "group", groups_json_text(group.id));
            groups_json_set(line, "topic", groups_json_text(o->of.topic));
            groups_json_set(line, "partition", json_integer(o->of.partition));
            groups_json_set(line, "deleted", json_boolean(!o->kerr));
            if (o->kerr) groups_json_set(line, "error", json_string(kerr_name(o->kerr)));
            groups_json_print(line);
        } else if (o->kerr) {
            groups_say("%.*s-%" PRId32 ": %s", STR_ARG(o->of.topic), o->of.partition, kerr_name(o->kerr));
        } else {
            printf("deleted the offset of %.*s-%" PRId32 "\n", STR_ARG(o->of.topic), o->of.partition);
        }
    }
    return status;
}
