/* kafka_groups_show.c: --list and --describe, with the columns of Kafka's tool. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/groups_view.h"
#include "cli/kafka_groups.h"

enum { COLUMN_MIN = 15, INSTANCE_COLUMN_MIN = 17, COORDINATOR_COLUMN_MIN = 25, LIST_COLUMN_MORE = 10 };

/* ---- --list ---- */

static struct str known_or_unknown(enum group_names which, struct str text)
{
    struct str name = group_name_find(which, text);
    return str_is_null(name) ? STR("Unknown") : name;
}

static void print_listing(struct str id, struct str type, struct str state, int width, const struct kafka_groups *kg)
{
    kafka_groups_pad(id, width);
    if (kafka_groups_value(kg, KG_TYPE)->given) {
        putchar(' ');
        kafka_groups_pad(type, 20);
    }
    if (kafka_groups_value(kg, KG_STATE)->given) {
        putchar(' ');
        kafka_groups_pad(state, 20);
    }
    putchar('\n');
}

static void print_listings(const struct kafka_groups *kg, const struct group_listing *groups, int32_t count)
{
    int width = COLUMN_MIN;
    for (int32_t i = 0; i < count; i++) width = MAX(width, kafka_groups_width(groups[i].id));
    width += LIST_COLUMN_MORE;
    print_listing(STR("GROUP"), STR("TYPE"), STR("STATE"), width, kg);
    for (int32_t i = 0; i < count; i++)
        print_listing(groups[i].id, known_or_unknown(GROUP_TYPES_39, groups[i].type),
                      known_or_unknown(GROUP_STATES, groups[i].state), width, kg);
}

enum kafka_groups_end kafka_groups_list(struct kafka_groups *kg)
{
    const struct option_value *type = kafka_groups_value(kg, KG_TYPE), *state = kafka_groups_value(kg, KG_STATE);
    struct str *in_states = NULL, *of_types = NULL;
    int32_t state_count = 0, type_count = 0;
    if (type->text && !group_names_parse(GROUP_TYPES_39, type->text, &of_types, &type_count, &kg->a))
        return kafka_groups_usage("Invalid types list '%s'. Valid types are: Consumer, Classic", type->text);
    if (state->text && !group_names_parse(GROUP_STATES, state->text, &in_states, &state_count, &kg->a))
        return kafka_groups_usage("Invalid state list '%s'. Valid states are: PreparingRebalance, CompletingRebalance, "
                                  "Stable, Dead, Empty, Assigning, Reconciling",
                                  state->text);
    struct group_listing *groups;
    int32_t count, kept = 0;
    kg->wrapped = !type->given && !state->given;
    if (!admin_list_groups(kg->cl, in_states, state_count, of_types, type_count, &groups, &count, &kg->a, &kg->f))
        return KG_FAILED;
    for (int32_t i = 0; i < count; i++)
        if (groups[i].protocol_type.size == 0 || str_is(groups[i].protocol_type, "consumer"))
            groups[kept++] = groups[i];
    if (type->given || state->given)
        print_listings(kg, groups, kept);
    else
        for (int32_t i = 0; i < kept; i++) printf("%.*s\n", STR_ARG(groups[i].id));
    return KG_DONE;
}

/* ---- --describe ---- */

/* What Kafka's tool says of the state; true: there is something to show. */
static bool should_show(const struct group_description *d, int32_t row_count)
{
    if (str_is(d->state, "Dead")) {
        kafka_groups_error("Consumer group '%.*s' does not exist.", STR_ARG(d->id));
        return false;
    }
    fflush(stdout);
    if (str_is(d->state, "Empty"))
        fprintf(stderr, "\nConsumer group '%.*s' has no active members.\n", STR_ARG(d->id));
    else if (!str_is(d->state, "Stable"))
        fprintf(stderr, "\nWarning: Consumer group '%.*s' is rebalancing.\n", STR_ARG(d->id));
    return row_count > 0;
}

/* A group that cannot be described spoils the command, as in Kafka's tool. */
static bool all_described(struct kafka_groups *kg, const struct group_description *groups, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const struct group_description *d = &groups[i];
        if (d->answer.kerr)
            return failure_refused(&kg->f, d->answer.kerr, d->answer.message, "Group %.*s cannot be described",
                                   STR_ARG(d->id));
        if (d->protocol_type.size > 0 && !str_is(d->protocol_type, "consumer"))
            return failure_set(&kg->f, ERR_INVALID,
                               "java.lang.IllegalArgumentException: GroupId %.*s is not a consumer group (%.*s).",
                               STR_ARG(d->id), STR_ARG(d->protocol_type));
    }
    return true;
}

static struct str number_or_dash(bool known, int64_t number, char *text, size_t size)
{
    if (!known) return STR("-");
    int n = snprintf(text, size, "%" PRId64, number);
    return (struct str){text, (size_t)n};
}

struct offset_columns {
    int group, topic, member, host;
};

static void print_offset_cells(const struct offset_columns *w, const struct str cells[9])
{
    const int widths[8] = {w->group, w->topic, 10, 15, 15, 15, w->member, w->host};
    putchar('\n');
    for (int i = 0; i < 8; i++) {
        kafka_groups_pad(cells[i], widths[i]);
        putchar(' ');
    }
    printf("%.*s", STR_ARG(cells[8]));
}

static void print_offset_row(const struct offset_columns *w, struct str group, const struct group_row *row)
{
    char partition[16], committed[24], end[24], lag[24];
    const struct group_member *m = row->member;
    print_offset_cells(
        w, (struct str[9]){group, row->of.topic, number_or_dash(true, row->of.partition, partition, sizeof partition),
                           number_or_dash(row->committed >= 0, row->committed, committed, sizeof committed),
                           number_or_dash(row->end >= 0, row->end, end, sizeof end),
                           number_or_dash(row->lag != LAG_UNKNOWN, row->lag, lag, sizeof lag), m ? m->id : STR("-"),
                           m ? m->host : STR("-"), m ? m->client_id : STR("-")});
}

static void print_offsets(const struct group_view *v)
{
    struct str id = v->description.id;
    struct offset_columns w = {MAX(COLUMN_MIN, kafka_groups_width(id)), COLUMN_MIN, COLUMN_MIN, COLUMN_MIN};
    for (int32_t i = 0; i < v->row_count; i++) {
        const struct group_member *m = v->rows[i].member;
        w.topic = MAX(w.topic, kafka_groups_width(v->rows[i].of.topic));
        w.member = m ? MAX(w.member, kafka_groups_width(m->id)) : w.member;
        w.host = m ? MAX(w.host, kafka_groups_width(m->host)) : w.host;
    }
    print_offset_cells(&w, (struct str[9]){STR("GROUP"), STR("TOPIC"), STR("PARTITION"), STR("CURRENT-OFFSET"),
                                           STR("LOG-END-OFFSET"), STR("LAG"), STR("CONSUMER-ID"), STR("HOST"),
                                           STR("CLIENT-ID")});
    for (int32_t i = 0; i < v->row_count; i++) print_offset_row(&w, id, &v->rows[i]);
}

static enum kafka_groups_end describe_offsets(struct kafka_groups *kg, const struct str *ids, int32_t count)
{
    struct group_view *views;
    struct group_view_options opt = {.times = false};
    if (!group_views(kg->cl, ids, count, &opt, &views, &kg->a, &kg->f)) return KG_FAILED;
    for (int32_t i = 0; i < count; i++) {
        if (!all_described(kg, &views[i].description, 1)) return KG_FAILED;
        const struct group_answer *said = &views[i].offsets.answer;
        if (!said->kerr) continue;
        kg->wrapped = true;
        (void)failure_refused(&kg->f, said->kerr, said->message, "Group %.*s does not tell its offsets",
                              STR_ARG(ids[i]));
        return KG_FAILED;
    }
    bool open = false; /* each line begins with its newline, so that one is missing at the end */
    for (int32_t i = 0; i < count; i++)
        if ((open = should_show(&views[i].description, views[i].row_count))) print_offsets(&views[i]);
    if (open) putchar('\n');
    return KG_DONE;
}

/* ---- --describe --members ---- */

struct member_columns {
    int group, member, instance, host, client;
    bool with_instance;
};

static void print_member_cells(const struct member_columns *w, const struct str cells[6])
{
    const int widths[6] = {w->group, w->member, w->instance, w->host, w->client, 15};
    for (int i = 0; i < 6; i++) {
        if (i == 2 && !w->with_instance) continue;
        kafka_groups_pad(cells[i], widths[i]);
        putchar(' ');
    }
}

static int compare_as_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "(0,1,10)": the numbers as text, in the order of text, as Kafka's tool has them. */
static char *partitions_of_topic(const struct topic_partition *at, int32_t count, struct arena *a)
{
    char **numbers = arena_array(a, char *, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        numbers[i] = arena_alloc(a, 16);
        snprintf(numbers[i], 16, "%" PRId32, at[i].partition);
    }
    qsort(numbers, (size_t)count, sizeof(char *), compare_as_text);
    char *out = arena_alloc(a, (size_t)count * 16 + 3), *end = out;
    for (int32_t i = 0; i < count; i++) end += sprintf(end, "%c%s", i ? ',' : '(', numbers[i]);
    *end = ')';
    return out;
}

static void print_assignment(const struct group_member *m, struct arena *a)
{
    char **topics = arena_array(a, char *, (size_t)m->assigned_count);
    size_t count = 0;
    for (int32_t from = 0, to; from < m->assigned_count; from = to) {
        for (to = from + 1; to < m->assigned_count && str_equal(m->assigned[to].topic, m->assigned[from].topic);) to++;
        topics[count++] = partitions_of_topic(m->assigned + from, to - from, a);
    }
    if (count == 0) putchar('-');
    qsort(topics, count, sizeof(char *), compare_as_text);
    for (size_t i = 0; i < count; i++) printf("%s%s", i ? ", " : "", topics[i]);
}

static void print_members(const struct group_description *d, bool verbose, struct arena *a)
{
    struct member_columns w = {COLUMN_MIN, COLUMN_MIN, INSTANCE_COLUMN_MIN, COLUMN_MIN, COLUMN_MIN, false};
    bool shown = should_show(d, d->member_count);
    for (int32_t i = 0; i < d->member_count && shown; i++) {
        const struct group_member *m = &d->members[i];
        w.group = MAX(w.group, kafka_groups_width(d->id));
        w.member = MAX(w.member, kafka_groups_width(m->id));
        w.instance = MAX(w.instance, kafka_groups_width(m->instance_id));
        w.host = MAX(w.host, kafka_groups_width(m->host));
        w.client = MAX(w.client, kafka_groups_width(m->client_id));
        w.with_instance |= m->instance_id.size > 0;
    }
    putchar('\n');
    print_member_cells(&w, (struct str[6]){STR("GROUP"), STR("CONSUMER-ID"), STR("GROUP-INSTANCE-ID"), STR("HOST"),
                                           STR("CLIENT-ID"), STR("#PARTITIONS")});
    printf("%s\n", verbose ? "ASSIGNMENT" : "");
    for (int32_t i = 0; i < d->member_count; i++) {
        const struct group_member *m = &d->members[i];
        char number[16];
        print_member_cells(&w, (struct str[6]){d->id, m->id, m->instance_id, m->host, m->client_id,
                                               number_or_dash(true, m->assigned_count, number, sizeof number)});
        if (verbose) print_assignment(m, a);
        putchar('\n');
    }
}

/* ---- --describe --state ---- */

static void print_state_cells(int width, const struct str cells[5])
{
    const int widths[5] = {width, 25, 20, 15, 0};
    putchar('\n');
    for (int i = 0; i < 5; i++) {
        kafka_groups_pad(cells[i], widths[i]);
        if (i < 4) putchar(' ');
    }
}

static void print_state(const struct group_description *d, struct arena *a)
{
    if (!should_show(d, 1)) return;
    char members[16];
    struct str coordinator = arena_printf(a, "%.*s:%" PRId32 "  (%" PRId32 ")", STR_ARG(d->coordinator.host),
                                          d->coordinator.port, d->coordinator.id);
    int width = MAX(COORDINATOR_COLUMN_MIN, kafka_groups_width(coordinator));
    print_state_cells(width, (struct str[5]){STR("GROUP"), STR("COORDINATOR (ID)"), STR("ASSIGNMENT-STRATEGY"),
                                             STR("STATE"), STR("#MEMBERS")});
    print_state_cells(width, (struct str[5]){d->id, coordinator, d->assignor, d->state,
                                             number_or_dash(true, d->member_count, members, sizeof members)});
    putchar('\n');
}

static enum kafka_groups_end describe_others(struct kafka_groups *kg, const struct str *ids, int32_t count)
{
    struct group_description *groups = arena_array(&kg->a, struct group_description, (size_t)count);
    for (int32_t i = 0; i < count; i++) groups[i].id = ids[i];
    if (!admin_describe_groups(kg->cl, groups, count, &kg->a, &kg->f)) return KG_FAILED;
    if (!all_described(kg, groups, count)) return KG_FAILED;
    for (int32_t i = 0; i < count; i++) {
        if (kafka_groups_value(kg, KG_STATE)->given)
            print_state(&groups[i], &kg->a);
        else
            print_members(&groups[i], kafka_groups_value(kg, KG_VERBOSE)->given, &kg->a);
    }
    return KG_DONE;
}

enum kafka_groups_end kafka_groups_describe(struct kafka_groups *kg)
{
    struct str *ids;
    int32_t count;
    if (!kafka_groups_chosen(kg, &ids, &count)) return KG_FAILED;
    bool others = kafka_groups_value(kg, KG_MEMBERS)->given || kafka_groups_value(kg, KG_STATE)->given;
    return others ? describe_others(kg, ids, count) : describe_offsets(kg, ids, count);
}
