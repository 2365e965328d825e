/* kafka_groups_change.c: --delete, --reset-offsets and --delete-offsets, in the words of Kafka's tool. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/kafka_groups.h"
#include "cli/moment.h"

/* ---- --delete ---- */

static void print_deleted(const struct group_deletion *groups, int32_t count, const char *between)
{
    bool first = true;
    for (int32_t i = 0; i < count; i++) {
        if (groups[i].answer.kerr) continue;
        printf("%s%.*s", first ? "" : between, STR_ARG(groups[i].id));
        first = false;
    }
}

static void print_not_deleted(struct kafka_groups *kg, const struct group_deletion *groups, int32_t count,
                              int32_t failed)
{
    kafka_groups_error("Deletion of some consumer groups failed:");
    for (int32_t i = 0; i < count; i++)
        if (groups[i].answer.kerr)
            printf("* Group '%.*s' could not be deleted due to: java.util.concurrent.ExecutionException: %.*s\n",
                   STR_ARG(groups[i].id),
                   STR_ARG(kafka_error_text(groups[i].answer.kerr, groups[i].answer.message, &kg->a)));
    if (failed == count) return;
    printf("\nThese consumer groups were deleted successfully: '");
    print_deleted(groups, count, "'");
    printf("', '\n"); /* so in Kafka's tool */
}

enum kafka_groups_end kafka_groups_delete(struct kafka_groups *kg)
{
    struct str *ids;
    int32_t count, failed = 0;
    if (!kafka_groups_chosen(kg, &ids, &count)) return KG_FAILED;
    struct group_deletion *groups = arena_array(&kg->a, struct group_deletion, (size_t)count);
    for (int32_t i = 0; i < count; i++) groups[i].id = ids[i];
    if (!admin_delete_groups(kg->cl, groups, count, &kg->a, &kg->f)) return KG_FAILED;
    for (int32_t i = 0; i < count; i++) failed += groups[i].answer.kerr != KERR_NONE;
    if (failed) {
        print_not_deleted(kg, groups, count, failed);
        return KG_DONE;
    }
    printf("Deletion of requested consumer groups ('");
    print_deleted(groups, count, ", ");
    printf("') was successful.\n");
    return KG_DONE;
}

/* ---- --reset-offsets ---- */

static enum kafka_groups_end parse_spec(struct kafka_groups *kg, struct reset_spec *spec)
{
    static const struct {
        enum kafka_groups_option option;
        enum reset_how how;
    } rows[] = {{KG_TO_OFFSET, RESET_TO_OFFSET},   {KG_TO_EARLIEST, RESET_TO_EARLIEST}, {KG_TO_LATEST, RESET_TO_LATEST},
                {KG_TO_CURRENT, RESET_TO_CURRENT}, {KG_SHIFT_BY, RESET_SHIFT_BY},       {KG_TO_DATETIME, RESET_TO_TIME},
                {KG_BY_DURATION, RESET_TO_TIME},   {KG_FROM_FILE, RESET_TO_FILE}};
    size_t i = 0;
    while (i < ARRAY_COUNT(rows) && !kafka_groups_value(kg, rows[i].option)->given) i++;
    if (i == ARRAY_COUNT(rows))
        return kafka_groups_usage("Option '[reset-offsets]' requires one of the following scenarios: [to-offset], "
                                  "[to-earliest], [to-latest], [to-current], [shift-by], [to-datetime], [by-duration], "
                                  "[from-file]");
    const struct option_value *v = kafka_groups_value(kg, rows[i].option);
    *spec = (struct reset_spec){.how = rows[i].how, .number = v->number};
    if (rows[i].option == KG_TO_DATETIME && !moment_parse(v->text, &spec->number)) {
        (void)failure_set(&kg->f, ERR_RANGE, "'%s', which is no moment like 2026-01-31T12:00:00.000", v->text);
        return KG_FAILED;
    }
    if (rows[i].option == KG_BY_DURATION) {
        int64_t ms;
        if (!duration_parse(v->text, &ms)) {
            (void)failure_set(&kg->f, ERR_RANGE, "'%s', which is no duration like P1DT2H3M4S", v->text);
            return KG_FAILED;
        }
        if (__builtin_sub_overflow(clock_wall_ms(cluster_clock(kg->cl)), ms, &spec->number)) spec->number = INT64_MAX;
    }
    return KG_DONE;
}

static bool find_scope(struct kafka_groups *kg, struct str group, struct topic_partition **scope, int32_t *count)
{
    const struct option_value *topics = kafka_groups_value(kg, KG_TOPIC);
    if (kafka_groups_value(kg, KG_ALL_TOPICS)->given)
        return reset_scope_committed(kg->cl, group, scope, count, &kg->a, &kg->f);
    return reset_scope_topics(kg->cl, topics->texts, topics->count, scope, count, &kg->a, &kg->f);
}

static void print_notes(const struct reset_plan *plan)
{
    for (int32_t i = 0; i < plan->row_count; i++) {
        const struct reset_row *r = &plan->rows[i];
        bool high = r->note == RESET_CUT_TO_END;
        if (high || r->note == RESET_CUT_TO_START)
            fprintf(stderr,
                    "WARN New offset (%" PRId64 ") is %s offset for topic partition %.*s-%" PRId32
                    ". Value will be set to %" PRId64 "\n",
                    r->asked, high ? "higher than latest" : "lower than earliest", STR_ARG(r->of.topic),
                    r->of.partition, r->offset);
        if (r->note == RESET_NO_SUCH_RECORD)
            printf("\nWarn: Partition %" PRId32 " from topic %.*s is empty. Falling back to latest known offset.\n",
                   r->of.partition, STR_ARG(r->of.topic));
    }
}

static const struct reset_plan *plan_of(const struct reset_plan *plans, int32_t count, struct str group)
{
    for (int32_t low = 0, high = count; low < high;) {
        int32_t mid = low + (high - low) / 2;
        int c = str_compare(plans[mid].group, group);
        if (c == 0) return &plans[mid];
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

struct reset {
    struct reset_spec spec;
    struct reset_plan *from_file;
    int32_t from_file_count;
};

/* One group, whose state allows it. */
static bool reset_group(struct kafka_groups *kg, const struct reset *r, struct reset_plan *plan)
{
    struct topic_partition *scope = NULL;
    int32_t scope_count = 0;
    if (r->spec.how == RESET_TO_FILE) {
        const struct reset_plan *found = plan_of(r->from_file, r->from_file_count, plan->group);
        if (!found) {
            kafka_groups_error("No reset plan for group %.*s found", STR_ARG(plan->group));
            return true;
        }
        *plan = *found;
    } else if (!find_scope(kg, plan->group, &scope, &scope_count)) {
        return false;
    }
    if (!reset_plan_make(kg->cl, plan, &r->spec, scope, scope_count, &kg->a, &kg->f)) return false;
    print_notes(plan);
    return !kafka_groups_value(kg, KG_EXECUTE)->given || reset_plan_execute(kg->cl, plan, &kg->a, &kg->f);
}

static enum kafka_groups_end reset_groups(struct kafka_groups *kg, const struct reset *r,
                                          struct group_description *groups, struct reset_plan *plans, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const struct group_description *d = &groups[i];
        plans[i].group = d->id;
        if (d->answer.kerr) {
            (void)failure_refused(&kg->f, d->answer.kerr, d->answer.message, "Group %.*s cannot be described",
                                  STR_ARG(d->id));
            return KG_FAILED;
        }
        if (!str_is(d->state, "Empty") && !str_is(d->state, "Dead")) {
            kafka_groups_error(
                "Assignments can only be reset if the group '%.*s' is inactive, but the current state is "
                "%.*s.",
                STR_ARG(d->id), STR_ARG(d->state));
            continue;
        }
        if (reset_group(kg, r, &plans[i])) continue;
        return kg->f.err == ERR_INVALID ? kafka_groups_usage("%s", kg->f.text) : KG_FAILED;
    }
    return KG_DONE;
}

static void print_plans(const struct reset_plan *plans, int32_t count)
{
    if (count > 0) printf("\n%-30s %-30s %-10s %-15s", "GROUP", "TOPIC", "PARTITION", "NEW-OFFSET");
    for (int32_t i = 0; i < count; i++) {
        for (int32_t j = 0; j < plans[i].row_count; j++) {
            const struct reset_row *r = &plans[i].rows[j];
            putchar('\n');
            kafka_groups_pad(plans[i].group, 30);
            putchar(' ');
            kafka_groups_pad(r->of.topic, 30);
            printf(" %-10" PRId32 " %-15" PRId64, r->of.partition, r->offset);
        }
    }
    putchar('\n');
}

enum kafka_groups_end kafka_groups_reset_offsets(struct kafka_groups *kg)
{
    struct reset r = {0};
    kg->wrapped = true;
    enum kafka_groups_end end = parse_spec(kg, &r.spec);
    if (end != KG_DONE) return end;
    bool scoped = kafka_groups_value(kg, KG_ALL_TOPICS)->given || kafka_groups_value(kg, KG_TOPIC)->given;
    if (!scoped && r.spec.how != RESET_TO_FILE)
        return kafka_groups_usage("One of the reset scopes should be defined: --all-topics, --topic.");
    struct str *ids;
    int32_t count;
    const struct option_value *given = kafka_groups_value(kg, KG_GROUP);
    struct str single = given->count == 1 ? str_of(given->text) : STR_NULL;
    if (r.spec.how == RESET_TO_FILE && !reset_plans_read(kafka_groups_value(kg, KG_FROM_FILE)->text, single,
                                                         &r.from_file, &r.from_file_count, &kg->a, &kg->f)) {
        kg->f.err = ERR_IO; /* no matter of the command line */
        return KG_FAILED;
    }
    if (!kafka_groups_chosen(kg, &ids, &count)) return KG_FAILED;
    struct group_description *groups = arena_array(&kg->a, struct group_description, (size_t)count);
    struct reset_plan *plans = arena_array(&kg->a, struct reset_plan, (size_t)count);
    for (int32_t i = 0; i < count; i++) groups[i].id = ids[i];
    if (!admin_describe_groups(kg->cl, groups, count, &kg->a, &kg->f)) return KG_FAILED;
    end = reset_groups(kg, &r, groups, plans, count);
    if (end != KG_DONE) return end;
    if (!kafka_groups_value(kg, KG_EXPORT)->given) {
        print_plans(plans, count);
        return KG_DONE;
    }
    for (int32_t i = 0; i < count; i++) reset_plan_print_csv(stdout, &plans[i], str_is_null(single));
    putchar('\n');
    return KG_DONE;
}

/* ---- --delete-offsets ---- */

/* A line of the result: a partition, or a topic that could not be looked up. */
struct forgotten {
    struct str topic, sort_key;
    int32_t partition; /* -1: the topic */
    int16_t kerr;
};

static int compare_forgotten(const void *a, const void *b)
{
    return str_compare(((const struct forgotten *)a)->sort_key, ((const struct forgotten *)b)->sort_key);
}

/* Topics one by one, so that one that is unknown does not spoil the others. */
static bool find_partitions(struct kafka_groups *kg, struct group_offsets *g, struct forgotten **unknown,
                            int32_t *unknown_count)
{
    const struct option_value *topics = kafka_groups_value(kg, KG_TOPIC);
    const char **known = arena_array(&kg->a, const char *, topics->count);
    size_t known_count = 0;
    *unknown = arena_array(&kg->a, struct forgotten, topics->count);
    *unknown_count = 0;
    for (size_t i = 0; i < topics->count; i++) {
        struct topic_partition *scope;
        int32_t count;
        known[known_count] = topics->texts[i];
        if (reset_scope_topics(kg->cl, &known[known_count], 1, &scope, &count, &kg->a, &kg->f)) {
            known_count++;
            continue;
        }
        if (!kg->f.kerr) return false;
        (*unknown)[(*unknown_count)++] =
            (struct forgotten){.topic = str_of(topics->texts[i]), .partition = -1, .kerr = kg->f.kerr};
    }
    struct topic_partition *scope;
    if (!reset_scope_topics(kg->cl, known, known_count, &scope, &g->offset_count, &kg->a, &kg->f)) return false;
    g->offsets = arena_array(&kg->a, struct group_offset, (size_t)g->offset_count);
    for (int32_t i = 0; i < g->offset_count; i++) g->offsets[i] = (struct group_offset){.of = scope[i]};
    return true;
}

/* The group's error, else the first of a partition. */
static int16_t overall(const struct group_offsets *g)
{
    int16_t kerr = g->answer.kerr;
    for (int32_t i = 0; i < g->offset_count && !kerr; i++) kerr = g->offsets[i].kerr;
    return kerr;
}

static void print_overall(const struct kafka_groups *kg, const struct group_offsets *g)
{
    const struct option_value *topics = kafka_groups_value(kg, KG_TOPIC);
    int16_t kerr = overall(g);
    switch (kerr) {
    case KERR_NONE:
        printf("Request succeed for deleting offsets with topic ");
        for (size_t i = 0; i < topics->count; i++) printf("%s%s", i ? ", " : "", topics->texts[i]);
        printf(" group %.*s\n", STR_ARG(g->id));
        break;
    case KERR_INVALID_GROUP_ID: kafka_groups_error("'%.*s' is not valid.", STR_ARG(g->id)); break;
    case KERR_GROUP_ID_NOT_FOUND: kafka_groups_error("'%.*s' does not exist.", STR_ARG(g->id)); break;
    case KERR_GROUP_AUTHORIZATION_FAILED:
        kafka_groups_error("Access to '%.*s' is not authorized.", STR_ARG(g->id));
        break;
    case KERR_NON_EMPTY_GROUP:
        kafka_groups_error("Deleting offsets of a consumer group '%.*s' is forbidden if the group is not empty.",
                           STR_ARG(g->id));
        break;
    case KERR_GROUP_SUBSCRIBED_TO_TOPIC:
    case KERR_TOPIC_AUTHORIZATION_FAILED:
    case KERR_UNKNOWN_TOPIC_OR_PARTITION:
        kafka_groups_error("Encounter some partition level error, see the follow-up details:");
        break;
    default: kafka_groups_error("Encounter some unknown error: %s", kerr_name(kerr)); break;
    }
}

static void print_forgotten(struct kafka_groups *kg, const struct group_offsets *g, struct forgotten *unknown,
                            int32_t unknown_count)
{
    int32_t count = g->offset_count + unknown_count;
    struct forgotten *lines = arena_array(&kg->a, struct forgotten, (size_t)count);
    for (int32_t i = 0; i < g->offset_count; i++)
        lines[i] = (struct forgotten){.topic = g->offsets[i].of.topic,
                                      .partition = g->offsets[i].of.partition,
                                      .kerr = g->answer.kerr ? g->answer.kerr : g->offsets[i].kerr};
    for (int32_t i = 0; i < unknown_count; i++) lines[g->offset_count + i] = unknown[i];
    for (int32_t i = 0; i < count; i++)
        lines[i].sort_key = arena_printf(&kg->a, "%.*s%" PRId32, STR_ARG(lines[i].topic), lines[i].partition);
    qsort(lines, (size_t)count, sizeof *lines, compare_forgotten);
    printf("\n%-30s %-15s %-15s", "TOPIC", "PARTITION", "STATUS");
    for (int32_t i = 0; i < count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%" PRId32, lines[i].partition);
        putchar('\n');
        kafka_groups_pad(lines[i].topic, 30);
        printf(" %-15s ", lines[i].partition < 0 ? "Not Provided" : number);
        struct str status = STR("Successful");
        if (lines[i].kerr)
            status = arena_printf(&kg->a, "Error: :%.*s", STR_ARG(kafka_error_text(lines[i].kerr, STR_NULL, &kg->a)));
        kafka_groups_pad(status, 15);
    }
    putchar('\n');
}

enum kafka_groups_end kafka_groups_delete_offsets(struct kafka_groups *kg)
{
    struct group_offsets g = {.id = str_of(kafka_groups_value(kg, KG_GROUP)->text)};
    struct forgotten *unknown;
    int32_t unknown_count;
    if (!find_partitions(kg, &g, &unknown, &unknown_count))
        return kg->f.err == ERR_INVALID ? kafka_groups_usage("%s", kg->f.text) : KG_FAILED;
    if (!admin_delete_group_offsets(kg->cl, &g, &kg->a, &kg->f)) return KG_FAILED;
    print_overall(kg, &g);
    print_forgotten(kg, &g, unknown, unknown_count);
    return KG_DONE;
}
