/* groups.c: `barnabas groups list|describe|members|reset-offsets|delete|delete-offsets`: options, help, which of them.
 */
#include <stdarg.h>
#include <string.h>

#include "cli/admin.h"
#include "cli/cli.h"
#include "cli/groups_doc.h"
#include "cli/groups_internal.h"
#include "cli/kafka_groups.h"
#include "cli/log_out.h"

enum { TIMEOUT_MS_DEFAULT = 30000 };

/* Subcommands, as bits of option_row.of. */
enum {
    OF_LIST = BIT(0),
    OF_DESCRIBE = BIT(1),
    OF_MEMBERS = BIT(2),
    OF_RESET = BIT(3),
    OF_DELETE = BIT(4),
    OF_DELETE_OFFSETS = BIT(5),
    OF_ALL = BIT(6) - 1
};

static const struct option_row options[GR_COUNT] = {
    [GR_BOOTSTRAP_SERVER] = {"--bootstrap-server", "HOST:PORT,...", OPTION_TEXT, OF_ALL,
                             "brokers to begin with; any that answers tells of the others (default localhost:9092)"},
    [GR_COMMAND_CONFIG] = {"--command-config", "FILE", OPTION_TEXT, OF_ALL,
                           "properties of an admin client; TLS and SASL are refused, there is neither yet"},
    [GR_TIMEOUT] = {"--timeout", "MS", OPTION_NUMBER, OF_ALL,
                    "how long each step may take, retries included (default 30000)"},
    [GR_JSON] = {"--json", NULL, OPTION_FLAG, OF_ALL, "one JSON object a line"},
    [GR_STATE] = {"--state", "STATE,...", OPTION_TEXT, OF_LIST, "only groups in these states: Stable, Empty, ..."},
    [GR_TYPE] = {"--type", "TYPE,...", OPTION_TEXT, OF_LIST, "only groups of these types: classic, consumer"},
    [GR_ALL] = {"--all", NULL, OPTION_FLAG, OF_DESCRIBE | OF_MEMBERS, "all groups, in place of names"},
    [GR_TOPIC] = {"--topic", "TOPIC[:P,...]", OPTION_TEXTS, OF_RESET | OF_DELETE_OFFSETS,
                  "a topic, or some of its partitions; may be given many times"},
    [GR_ALL_TOPICS] = {"--all-topics", NULL, OPTION_FLAG, OF_RESET, "all partitions that the group has offsets of"},
    [GR_TO_OFFSET] = {"--to-offset", "OFFSET", OPTION_NUMBER, OF_RESET, "to this offset, or the nearest that there is"},
    [GR_TO_EARLIEST] = {"--to-earliest", NULL, OPTION_FLAG, OF_RESET, "to the first record that there is"},
    [GR_TO_LATEST] = {"--to-latest", NULL, OPTION_FLAG, OF_RESET, "to the end"},
    [GR_TO_CURRENT] = {"--to-current", NULL, OPTION_FLAG, OF_RESET,
                       "to what is committed, or the end where nothing is"},
    [GR_SHIFT_BY] = {"--shift-by", "N", OPTION_NUMBER, OF_RESET, "N records after what is committed, or before it"},
    [GR_TO_TIME] = {"--to-datetime", "2026-01-31T12:00:00", OPTION_TEXT, OF_RESET,
                    "to the first record from then on; UTC, or with Z or an offset like +01:00 behind it"},
    [GR_BY_DURATION] = {"--by-duration", "PnDTnHnMnS", OPTION_TEXT, OF_RESET,
                        "to the first record since that long ago"},
    [GR_FROM_FILE] = {"--from-file", "FILE", OPTION_TEXT, OF_RESET,
                      "to what a CSV file says: topic,partition,offset, or group,topic,partition,offset"},
    [GR_EXPORT] = {"--export", NULL, OPTION_FLAG, OF_RESET, "print CSV as --from-file reads it"},
    [GR_EXECUTE] = {"--execute", NULL, OPTION_FLAG, OF_RESET, "do it; without it the plan is only shown"},
};

static const struct {
    const char *name, *arguments, *summary;
    unsigned bit;
    int32_t groups_min, groups_max; /* names that it takes */
    int (*run)(struct groups *g);
} subcommands[] = {
    {"list", "", "all groups with their states and types", OF_LIST, 0, 0, groups_list},
    {"describe", "GROUP... | --all",
     "state, coordinator, partitions with lag in records and in seconds, and the last rebalances", OF_DESCRIBE, 1,
     INT32_MAX, groups_describe},
    {"members", "GROUP... | --all", "members and what each owns", OF_MEMBERS, 1, INT32_MAX, groups_members},
    {"reset-offsets", "GROUP", "set the offsets of a group that has no members", OF_RESET, 1, 1, groups_reset_offsets},
    {"delete", "GROUP...", "delete groups that have no members, with their offsets", OF_DELETE, 1, INT32_MAX,
     groups_delete},
    {"delete-offsets", "GROUP", "make a group forget its offsets of topics that it is not subscribed to",
     OF_DELETE_OFFSETS, 1, 1, groups_delete_offsets},
};

/* ---- telling ---- */

int groups_say(const char *fmt, ...)
{
    fflush(stdout);
    fprintf(stderr, "barnabas groups: ");
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return 1;
}

int groups_say_refused(struct str group, const struct group_answer *answer)
{
    if (answer->message.size > 0)
        return groups_say("%.*s: %s (%.*s)", STR_ARG(group), kerr_name(answer->kerr), STR_ARG(answer->message));
    return groups_say("%.*s: %s", STR_ARG(group), kerr_name(answer->kerr));
}

json_t *groups_json_text(struct str text)
{
    bool hex;
    return json_of_bytes((struct bytes){(const uint8_t *)text.data, text.size}, &hex);
}

json_t *groups_json_number(int64_t value, bool known)
{
    return known ? json_integer(value) : json_null();
}

void groups_json_set(json_t *object, const char *name, json_t *value)
{
    ASSERT(value && json_object_set_new_nocheck(object, name, value) == 0);
}

void groups_json_print(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
}

/* ---- running ---- */

static bool choose_all(struct groups *g)
{
    struct group_listing *all;
    int32_t count;
    if (!admin_list_groups(g->cl, NULL, 0, NULL, 0, &all, &count, &g->a, &g->f)) return false;
    g->ids = arena_array(&g->a, struct str, (size_t)count);
    for (int32_t i = 0; i < count; i++) g->ids[g->id_count++] = all[i].id;
    return true;
}

static void choose_named(struct groups *g)
{
    g->ids = arena_array(&g->a, struct str, g->o.word_count);
    for (size_t i = 0; i < g->o.word_count; i++) {
        struct str id = str_of(g->o.words[i]);
        int32_t at = 0;
        while (at < g->id_count && str_compare(g->ids[at], id) < 0) at++;
        if (at < g->id_count && str_equal(g->ids[at], id)) continue;
        memmove(g->ids + at + 1, g->ids + at, (size_t)(g->id_count - at) * sizeof *g->ids);
        g->ids[at] = id;
        g->id_count++;
    }
}

static int run(struct groups *g, size_t sub)
{
    const struct option_value *bootstrap = groups_value(g, GR_BOOTSTRAP_SERVER), *timeout = groups_value(g, GR_TIMEOUT);
    bool from_file = groups_value(g, GR_COMMAND_CONFIG)->given && !timeout->given; /* it may say how long */
    struct admin_settings s = {.bootstrap = bootstrap->given ? bootstrap->text : "localhost:9092",
                               .config_file = groups_value(g, GR_COMMAND_CONFIG)->text,
                               .timeout_ms = timeout->given ? timeout->number
                                             : from_file    ? -1
                                                            : TIMEOUT_MS_DEFAULT};
    if (!admin_open(&g->cl, &s, &g->f)) return groups_say("%s", g->f.text);
    cluster_arena_init(&g->a);
    g->json = groups_value(g, GR_JSON)->given;
    int status = GROUPS_FAILED;
    if (groups_value(g, GR_ALL)->given ? choose_all(g) : (choose_named(g), true)) status = subcommands[sub].run(g);
    if (status == GROUPS_FAILED) status = groups_say("%s", g->f.text);
    arena_fini(&g->a);
    cluster_close(g->cl);
    return status;
}

static int check(const struct groups *g, size_t sub)
{
    for (size_t i = 0; i < GR_COUNT; i++)
        if (g->o.values[i].given && !(options[i].of & subcommands[sub].bit))
            return cli_usage_error("groups", "%s does not go with %s", options[i].name, subcommands[sub].name);
    bool all = groups_value(g, GR_ALL)->given;
    if (all && g->o.word_count > 0) return cli_usage_error("groups", "--all and names of groups exclude each other");
    int64_t count = (int64_t)g->o.word_count;
    if (!all && count < subcommands[sub].groups_min)
        return cli_usage_error("groups", "%s needs the name of a group", subcommands[sub].name);
    if (count > subcommands[sub].groups_max)
        return cli_usage_error("groups", "%s: '%s' is one word too many", subcommands[sub].name,
                               g->o.words[subcommands[sub].groups_max]);
    const struct option_value *timeout = groups_value(g, GR_TIMEOUT);
    if (timeout->given && (timeout->number < 0 || timeout->number > INT32_MAX))
        return cli_usage_error("groups", "--timeout must be from 0 to %d", INT32_MAX);
    return 0;
}

int cli_groups(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage_error("groups", "say what to do: list, describe, members, reset-offsets, delete or "
                                         "delete-offsets");
    size_t sub = 0;
    while (sub < ARRAY_COUNT(subcommands) && strcmp(argv[1], subcommands[sub].name) != 0) sub++;
    if (sub == ARRAY_COUNT(subcommands)) return cli_usage_error("groups", "there is no '%s'", argv[1]);
    struct groups g = {0};
    struct fault fault = {0};
    int status;
    if (options_parse(&g.o, options, GR_COUNT, argc, argv, 2, &fault))
        status = cli_usage_error("groups", "%s", fault.text);
    else if ((status = check(&g, sub)) == 0)
        status = run(&g, sub);
    options_fini(&g.o);
    return status;
}

/* ---- help and docs ---- */

/* The rows that belong to all subcommands come last, once. */
static size_t rows_of(struct option_row *out, unsigned bits, bool common)
{
    size_t n = 0;
    for (size_t i = 0; i < GR_COUNT; i++)
        if ((options[i].of & bits) && (options[i].of == OF_ALL) == common) out[n++] = options[i];
    return n;
}

void cli_groups_help(FILE *out)
{
    struct option_row rows[GR_COUNT];
    for (size_t s = 0; s < ARRAY_COUNT(subcommands); s++) {
        fprintf(out, "%s%s%s\n    %s\n", subcommands[s].name, *subcommands[s].arguments ? " " : "",
                subcommands[s].arguments, subcommands[s].summary);
        options_print_help(out, rows, rows_of(rows, subcommands[s].bit, false), subcommands[s].bit);
        fputc('\n', out);
    }
    fprintf(out, "All of them take:\n");
    options_print_help(out, rows, rows_of(rows, OF_ALL, true), OF_ALL);
    fprintf(out, "\nStatus 0: done, 1: something failed, 2: the command line is wrong.\n");
}

void groups_write_options(FILE *out)
{
    struct option_row rows[GR_COUNT];
    for (size_t s = 0; s < ARRAY_COUNT(subcommands); s++) {
        fprintf(out, "### `barnabas groups %s%s%s`\n\n%c%s.\n", subcommands[s].name,
                *subcommands[s].arguments ? " " : "", subcommands[s].arguments,
                (char)(subcommands[s].summary[0] - 'a' + 'A'), subcommands[s].summary + 1);
        size_t n = rows_of(rows, subcommands[s].bit, false);
        if (n > 0) {
            fputc('\n', out);
            options_print_markdown(out, rows, n, subcommands[s].bit);
        }
        fputc('\n', out);
    }
    fprintf(out, "### All of them\n\n");
    options_print_markdown(out, rows, rows_of(rows, OF_ALL, true), OF_ALL);
    fputc('\n', out);
}

void kafka_groups_write_options(FILE *out)
{
    options_print_markdown(out, kafka_groups_options, KG_COUNT, 1);
}
