/* kafka_groups.c: `barnabas kafka-consumer-groups`: the options of Kafka 3.9's kafka-consumer-groups.sh, what goes with
 * what, and its exit statuses, since people have scripts that know them: 1 when the command line is wrong, 0 also when
 * what was asked for failed, which "Error: ..." on standard output tells.
 *
 * What differs: groups and partitions come sorted, where Kafka's tool has the order of its hash tables; a word that is
 * no option is refused, where it is ignored; no stack traces. */
#include "cli/kafka_groups.h"

#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/admin.h"
#include "cli/cli.h"

enum { TIMEOUT_MS_DEFAULT = 5000 };

const struct option_row kafka_groups_options[KG_COUNT] = {
    [KG_BOOTSTRAP_SERVER] = {"--bootstrap-server", "HOST:PORT,...", OPTION_TEXT, 1,
                             "brokers to begin with; any that answers tells of the others"},
    [KG_COMMAND_CONFIG] = {"--command-config", "FILE", OPTION_TEXT, 1,
                           "properties of an admin client; TLS and SASL are refused, there is neither yet"},
    [KG_TIMEOUT] = {"--timeout", "MS", OPTION_NUMBER, 1,
                    "how long each step may take, retries included (default 5000)"},
    [KG_LIST] = {"--list", NULL, OPTION_FLAG, 1, "list all groups"},
    [KG_DESCRIBE] = {"--describe", NULL, OPTION_FLAG, 1,
                     "show groups: committed offsets and lag, or with --members or --state those"},
    [KG_DELETE] = {"--delete", NULL, OPTION_FLAG, 1, "delete groups that have no members, with their offsets"},
    [KG_RESET_OFFSETS] =
        {"--reset-offsets", NULL, OPTION_FLAG, 1,
         "set the offsets of groups that have no members; only shows what it would do without --execute"},
    [KG_DELETE_OFFSETS] = {"--delete-offsets", NULL, OPTION_FLAG, 1, "make one group forget its offsets of topics"},
    [KG_GROUP] = {"--group", "GROUP", OPTION_TEXTS, 1, "a group; may be given many times"},
    [KG_ALL_GROUPS] = {"--all-groups", NULL, OPTION_FLAG, 1, "all groups (--describe, --delete, --reset-offsets)"},
    [KG_STATE] = {"--state", "STATE,...", OPTION_MAYBE_TEXT, 1,
                  "with --list, show states, of groups in these states only if some are given; with --describe, show "
                  "coordinator, strategy and state"},
    [KG_TYPE] = {"--type", "TYPE,...", OPTION_MAYBE_TEXT, 1,
                 "with --list, show types, of groups of these types only if some are given: classic, consumer"},
    [KG_OFFSETS] = {"--offsets", NULL, OPTION_FLAG, 1, "with --describe, partitions and their lag (the default)"},
    [KG_MEMBERS] = {"--members", NULL, OPTION_FLAG, 1, "with --describe, members"},
    [KG_VERBOSE] = {"--verbose", NULL, OPTION_FLAG, 1, "with --describe --members, also what each member owns"},
    [KG_TOPIC] = {"--topic", "TOPIC[:P,...]", OPTION_TEXTS, 1,
                  "a topic, or some of its partitions (--reset-offsets, --delete-offsets); may be given many times"},
    [KG_ALL_TOPICS] = {"--all-topics", NULL, OPTION_FLAG, 1,
                       "all partitions that the group has offsets of (--reset-offsets)"},
    [KG_TO_OFFSET] = {"--to-offset", "OFFSET", OPTION_NUMBER, 1, "reset to this offset, or the nearest that there is"},
    [KG_TO_EARLIEST] = {"--to-earliest", NULL, OPTION_FLAG, 1, "reset to the first record that there is"},
    [KG_TO_LATEST] = {"--to-latest", NULL, OPTION_FLAG, 1, "reset to the end"},
    [KG_TO_CURRENT] = {"--to-current", NULL, OPTION_FLAG, 1, "reset to what is committed, or the end where nothing is"},
    [KG_SHIFT_BY] = {"--shift-by", "N", OPTION_NUMBER, 1, "reset to N records after what is committed, or before it"},
    [KG_TO_DATETIME] = {"--to-datetime", "YYYY-MM-DDTHH:mm:SS.sss", OPTION_TEXT, 1,
                        "reset to the first record from then on; UTC, or with Z or an offset like +01:00 behind it"},
    [KG_BY_DURATION] = {"--by-duration", "PnDTnHnMnS", OPTION_TEXT, 1, "reset to the first record since that long ago"},
    [KG_FROM_FILE] = {"--from-file", "FILE", OPTION_TEXT, 1,
                      "reset to what a CSV file says: topic,partition,offset for one --group, else "
                      "group,topic,partition,offset"},
    [KG_DRY_RUN] = {"--dry-run", NULL, OPTION_FLAG, 1, "with --reset-offsets, only show what would be done"},
    [KG_EXECUTE] = {"--execute", NULL, OPTION_FLAG, 1, "with --reset-offsets, do it"},
    [KG_EXPORT] = {"--export", NULL, OPTION_FLAG, 1, "with --reset-offsets, print CSV as --from-file reads it"},
    [KG_VALIDATE_REGEX] = {"--validate-regex", "REGEX", OPTION_TEXT, 1,
                           "refused: it asks for the RE2 library of Kafka 4"},
    [KG_VERSION] = {"--version", NULL, OPTION_FLAG, 1, "print the version"},
};

static const struct {
    enum kafka_groups_option option;
    enum kafka_groups_end (*run)(struct kafka_groups *kg);
} actions[] = {
    {KG_LIST, kafka_groups_list},
    {KG_DESCRIBE, kafka_groups_describe},
    {KG_DELETE, kafka_groups_delete},
    {KG_RESET_OFFSETS, kafka_groups_reset_offsets},
    {KG_DELETE_OFFSETS, kafka_groups_delete_offsets},
};

/* ---- telling ---- */

enum kafka_groups_end kafka_groups_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nSee: barnabas kafka-consumer-groups --help\n");
    return KG_USAGE;
}

void kafka_groups_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("\nError: ");
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
}

int kafka_groups_width(struct str text)
{
    return (int)str_utf16_units(text);
}

void kafka_groups_pad(struct str text, int width)
{
    printf("%.*s%*s", STR_ARG(text), MAX(width - kafka_groups_width(text), 0), "");
}

/* ---- what goes with what ---- */

static bool has(const struct kafka_groups *kg, enum kafka_groups_option o)
{
    return kg->o.values[o].given;
}

/* A name as Kafka's tool shows it: "[group]". */
#define SPEC        "[%s]"
#define SPEC_ARG(o) (kafka_groups_options[o].name + 2)

static enum kafka_groups_end check_unavailable(const struct kafka_groups *kg)
{
    static const struct {
        enum kafka_groups_option option, with, or_with;
    } rows[] = {
        {KG_MEMBERS, KG_DESCRIBE, KG_DESCRIBE},
        {KG_VERBOSE, KG_DESCRIBE, KG_DESCRIBE},
        {KG_OFFSETS, KG_DESCRIBE, KG_DESCRIBE},
        {KG_STATE, KG_DESCRIBE, KG_LIST},
        {KG_TYPE, KG_LIST, KG_LIST},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (has(kg, rows[i].option) && !has(kg, rows[i].with) && !has(kg, rows[i].or_with))
            return kafka_groups_usage("Option(s) " SPEC " are unavailable given other options on the command line",
                                      SPEC_ARG(rows[i].option));
    return KG_DONE;
}

static enum kafka_groups_end check_groups(const struct kafka_groups *kg)
{
    static const enum kafka_groups_option of_groups[] = {KG_DESCRIBE, KG_DELETE, KG_RESET_OFFSETS};
    for (size_t i = 0; i < ARRAY_COUNT(of_groups); i++)
        if (has(kg, of_groups[i]) && !has(kg, KG_GROUP) && !has(kg, KG_ALL_GROUPS))
            return kafka_groups_usage("Option " SPEC " takes one of these options: [group], [all-groups]",
                                      SPEC_ARG(of_groups[i]));
    if (has(kg, KG_DELETE_OFFSETS) && (!has(kg, KG_GROUP) || !has(kg, KG_TOPIC)))
        return kafka_groups_usage("Option [delete-offsets] takes the following options: [topic], [group]");
    if (has(kg, KG_DELETE_OFFSETS) && kafka_groups_value(kg, KG_GROUP)->count > 1)
        return kafka_groups_usage("Option [delete-offsets] takes one group");
    return KG_DONE;
}

static enum kafka_groups_end check_describe(const struct kafka_groups *kg)
{
    if (!has(kg, KG_DESCRIBE)) return KG_DONE;
    if (has(kg, KG_MEMBERS) + has(kg, KG_OFFSETS) + has(kg, KG_STATE) > 1)
        return kafka_groups_usage(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]");
    if (kafka_groups_value(kg, KG_STATE)->text)
        return kafka_groups_usage("Option [describe] does not take a value for [state]");
    return KG_DONE;
}

static enum kafka_groups_end check_reset(const struct kafka_groups *kg)
{
    if (!has(kg, KG_RESET_OFFSETS)) return KG_DONE;
    if (has(kg, KG_DRY_RUN) && has(kg, KG_EXECUTE))
        return kafka_groups_usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]");
    if (!has(kg, KG_DRY_RUN) && !has(kg, KG_EXECUTE))
        fprintf(stderr, "WARN: Nothing is changed without --execute. Give --dry-run to say that you know.\n");
    int first = -1;
    for (int o = KG_TO_OFFSET; o <= KG_FROM_FILE; o++) {
        if (!has(kg, (enum kafka_groups_option)o)) continue;
        if (first >= 0)
            return kafka_groups_usage("Option \"" SPEC "\" can't be used with option \"" SPEC "\"", SPEC_ARG(first),
                                      SPEC_ARG(o));
        first = o;
    }
    return KG_DONE;
}

/* Pairs that Kafka's tool refuses, too. */
static enum kafka_groups_end check_pairs(const struct kafka_groups *kg)
{
    static const struct {
        enum kafka_groups_option one, other;
    } pairs[] = {{KG_GROUP, KG_ALL_GROUPS}, {KG_GROUP, KG_LIST}, {KG_TOPIC, KG_LIST}, {KG_TOPIC, KG_DESCRIBE}};
    if (has(kg, KG_DELETE) && has(kg, KG_TOPIC))
        return kafka_groups_usage(
            "The consumer does not support topic-specific offset deletion from a consumer group.");
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++)
        if (has(kg, pairs[i].one) && has(kg, pairs[i].other))
            return kafka_groups_usage("Option \"" SPEC "\" can't be used with option \"" SPEC "\"",
                                      SPEC_ARG(pairs[i].one), SPEC_ARG(pairs[i].other));
    return KG_DONE;
}

static enum kafka_groups_end check(const struct kafka_groups *kg)
{
    static enum kafka_groups_end (*const checks[])(const struct kafka_groups *) = {
        check_unavailable, check_groups, check_describe, check_reset, check_pairs};
    if (kg->o.word_count > 0) return kafka_groups_usage("'%s' is no option", kg->o.words[0]);
    if (has(kg, KG_VALIDATE_REGEX))
        return kafka_groups_usage("--validate-regex cannot be honoured: it asks for the RE2 library of Kafka 4");
    if (!has(kg, KG_BOOTSTRAP_SERVER)) return kafka_groups_usage("Missing required argument \"[bootstrap-server]\"");
    for (size_t i = 0; i < ARRAY_COUNT(checks); i++)
        if (checks[i](kg) != KG_DONE) return KG_USAGE;
    int64_t timeout_ms = kafka_groups_value(kg, KG_TIMEOUT)->number;
    if (timeout_ms < 0 || timeout_ms > INT32_MAX)
        return kafka_groups_usage("--timeout must be from 0 to %d", INT32_MAX);
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(actions); i++) count += has(kg, actions[i].option);
    if (count != 1)
        return kafka_groups_usage("Command must include exactly one action: --list, --describe, --delete, "
                                  "--reset-offsets, --delete-offsets");
    return KG_DONE;
}

/* ---- running ---- */

bool kafka_groups_chosen(struct kafka_groups *kg, struct str **ids, int32_t *count)
{
    if (has(kg, KG_ALL_GROUPS)) {
        struct group_listing *all;
        int32_t all_count;
        if (!admin_list_groups(kg->cl, NULL, 0, NULL, 0, &all, &all_count, &kg->a, &kg->f)) return false;
        *ids = arena_array(&kg->a, struct str, (size_t)all_count);
        *count = 0;
        for (int32_t i = 0; i < all_count; i++)
            if (all[i].protocol_type.size == 0 || str_is(all[i].protocol_type, "consumer"))
                (*ids)[(*count)++] = all[i].id;
        return true;
    }
    const struct option_value *given = kafka_groups_value(kg, KG_GROUP);
    *ids = arena_array(&kg->a, struct str, given->count);
    *count = 0;
    for (size_t i = 0; i < given->count; i++) {
        struct str id = str_of(given->texts[i]);
        int32_t at = 0; /* sorted, each once */
        while (at < *count && str_compare((*ids)[at], id) < 0) at++;
        if (at < *count && str_equal((*ids)[at], id)) continue;
        memmove(*ids + at + 1, *ids + at, (size_t)(*count - at) * sizeof **ids);
        (*ids)[at] = id;
        (*count)++;
    }
    return true;
}

static enum kafka_groups_end run_action(struct kafka_groups *kg)
{
    int64_t timeout_ms = has(kg, KG_TIMEOUT) ? kafka_groups_value(kg, KG_TIMEOUT)->number : TIMEOUT_MS_DEFAULT;
    struct admin_settings s = {.bootstrap = kafka_groups_value(kg, KG_BOOTSTRAP_SERVER)->text,
                               .config_file = kafka_groups_value(kg, KG_COMMAND_CONFIG)->text,
                               .timeout_ms = timeout_ms};
    if (!admin_open(&kg->cl, &s, &kg->f)) return kafka_groups_usage("%s", kg->f.text);
    cluster_arena_init(&kg->a);
    enum kafka_groups_end end = KG_USAGE;
    for (size_t i = 0; i < ARRAY_COUNT(actions); i++)
        if (has(kg, actions[i].option)) end = actions[i].run(kg);
    if (end == KG_FAILED) {
        const char *wrap = kg->wrapped ? "java.util.concurrent.ExecutionException: " : "";
        struct str text = kg->f.kerr ? kafka_error_text(kg->f.kerr, STR_NULL, &kg->a) : str_of(kg->f.text);
        kafka_groups_error("Executing consumer group command failed due to %s%.*s", kg->f.kerr ? wrap : "",
                           STR_ARG(text));
        if (kg->f.kerr) fprintf(stderr, "%s\n", kg->f.text);
    }
    arena_fini(&kg->a);
    cluster_close(kg->cl);
    return end;
}

int cli_kafka_consumer_groups(int argc, char **argv)
{
    struct kafka_groups kg = {0};
    struct fault fault = {0};
    enum kafka_groups_end end;
    if (options_parse(&kg.o, kafka_groups_options, KG_COUNT, argc, argv, 1, &fault))
        end = kafka_groups_usage("%s", fault.text);
    else if (has(&kg, KG_VERSION))
        end = printf("%s\n", BARNABAS_VERSION) < 0 ? KG_USAGE : KG_DONE;
    else if ((end = check(&kg)) == KG_DONE)
        end = run_action(&kg);
    options_fini(&kg.o);
    return end == KG_USAGE ? 1 : 0;
}

void cli_kafka_consumer_groups_help(FILE *out)
{
    fprintf(out, "Lists, describes, changes and deletes consumer groups, with the flags and the lines of Kafka 3.9's "
                 "kafka-consumer-groups.sh.\n`barnabas groups` does the same with more to read and --json.\n\n");
    options_print_help(out, kafka_groups_options, KG_COUNT, 1);
}
