/* cli.c: the table of commands. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

struct command {
    const char *name, *arguments, *summary, *help;
    int (*run)(int argc, char **argv);
    void (*print_help)(FILE *out); /* made from a table of options, in place of `help` */
};

static const struct command commands[] = {
    {"broker", "[server.properties] [--override KEY=VALUE]...", "run a broker",
     "Runs a broker in the foreground until SIGTERM or SIGINT ends it; SIGHUP reopens its log file.\n"
     "\n"
     "  server.properties       configuration with Kafka's keys; without it the defaults hold: one node,\n"
     "                          port 9092 on all addresses, data in /tmp/barnabas-logs\n"
     "  --override KEY=VALUE    sets one key, over the file; may be given many times\n"
     "\n"
     "For example, a broker for this machine alone, with its data in ./data:\n"
     "\n"
     "  barnabas broker --override listeners=PLAINTEXT://127.0.0.1:9092 --override log.dirs=data\n"
     "\n"
     "`barnabas config-doc` prints all keys, their defaults and what they do.\n",
     cli_broker, NULL},
    {"coord", "dump DIR | import --zookeeper HOST:PORT[/CHROOT] DIR...", "show or make the coordination store",
     "  dump DIR                prints every node of the embedded store in log directory DIR: path, version,\n"
     "                          whether it is ephemeral, data.  Reads only; the broker may run meanwhile.\n"
     "  import --zookeeper HOST:PORT[,HOST:PORT]...[/CHROOT] DIR...\n"
     "                          makes the embedded store of a broker from the ZooKeeper of an Apache Kafka cluster:\n"
     "                          topics with their ids, settings of topics, brokers, clients and users, ACLs.  DIR... "
     "are\n"
     "                          all of that broker's log.dirs, and the broker must be stopped.  It becomes the only\n"
     "                          replica of what lies in them; partitions that lie on other brokers alone are named.\n"
     "                          ZooKeeper is only read.\n",
     cli_coord, NULL},
    {"log", "dump|verify|repair|explain ...", "look into log directories, check and mend them",
     "  dump [--records] [--deep] [--decode WHAT] [--json] FILE|DIR...\n"
     "                          prints what files hold, or all files of a directory: batches, indexes, producer\n"
     "                          snapshots, checkpoints, and the other small files\n"
     "      --records           also each record with its key, value and headers\n"
     "      --deep              also each record, but not what is in it\n"
     "      --decode WHAT       what the records are: offsets (as in __consumer_offsets), transactions (as in\n"
     "                          __transaction_state) or none; by default the directory's name tells\n"
     "      --json              one JSON object a line\n"
     "\n"
     "  verify [--deep] [--notes] [--json] DIR...\n"
     "                          reads partitions, or all partitions of a log directory, from end to end and says what\n"
     "                          is wrong and what to do.  Changes nothing; of a running broker's directory it looks "
     "at\n"
     "                          what does not change.  Status 0: sound, 1: not, 2: could not look\n"
     "      --deep              also decompresses and walks every record\n"
     "      --notes             also tells of leftovers that the next start removes\n"
     "\n"
     "  repair [--dry-run] [--allow-loss] DIR...\n"
     "                          mends what verify finds: makes indexes, snapshots and checkpoints anew, cuts torn "
     "ends\n"
     "                          off and keeps the cut bytes in a file beside them.  Only while no broker runs there.\n"
     "                          Status 0: sound now, 1: something remains, 2: refused\n"
     "      --dry-run           only says what would be done\n"
     "      --allow-loss        cuts the log also where whole records stand behind the damage\n"
     "\n"
     "  explain [--partition N] [--dir DIR]... [--properties FILE] [--config KEY=VALUE]... [--json] TOPIC\n"
     "                          says of each segment why it is still there and when it goes.  Changes nothing; a\n"
     "                          broker may run meanwhile\n"
     "      --dir DIR           a log directory; by default those of the configuration\n"
     "      --properties FILE   the broker's configuration file\n"
     "      --config KEY=VALUE  a setting of the topic, over what the embedded store says\n",
     cli_log, NULL},
    {"groups", "list|describe|members|reset-offsets|delete|delete-offsets ...",
     "consumer groups: lag, members, offsets", NULL, cli_groups, cli_groups_help},
    {"kafka-dump-log", "--files FILE[,FILE]... [OPTION]...", "`log dump` with the flags and lines of Kafka's tool",
     "Prints .log, .index, .timeindex, .txnindex and .snapshot files as kafka-dump-log.sh of Kafka 3.9 does.\n"
     "\n"
     "  --files FILE[,FILE]...  the files\n"
     "  --deep-iteration        also each record\n"
     "  --print-data-log        also keys and values, as text\n"
     "  --skip-record-metadata  of each record the key and value only\n"
     "  --offsets-decoder       the records are those of __consumer_offsets\n"
     "  --transaction-log-decoder\n"
     "                          the records are those of __transaction_state\n"
     "  --key-decoder-class, --value-decoder-class [org.apache.kafka.tools.api.StringDecoder]\n"
     "                          as --print-data-log; other classes cannot be loaded\n"
     "  --index-sanity-check    of indexes: only the check that is made at a start\n"
     "  --verify-index-only     of indexes: only what does not agree with the log\n"
     "  --max-bytes BYTES       reads no more of each .log file\n"
     "  --max-message-size BYTES\n"
     "                          the largest batch that an index may lead to (default 5242880)\n",
     cli_kafka_dump_log, NULL},
    {"kafka-consumer-groups", "--bootstrap-server HOST:PORT[,HOST:PORT]... ACTION [OPTION]...",
     "`groups` with the flags and lines of Kafka's tool", NULL, cli_kafka_consumer_groups,
     cli_kafka_consumer_groups_help},
    {"config-doc", "", "print the table of configuration keys as Markdown",
     "Prints every configuration key with its type, default, bounds and meaning: the page docs/configuration.md.\n",
     cli_config_doc, NULL},
};

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_overview(FILE *out)
{
    fprintf(out, "usage: barnabas COMMAND ...\n\n");
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        fprintf(out, "  %-22s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "  %-22s %s\n  %-22s %s\n", "help", "show a command's arguments: barnabas help COMMAND", "version",
            "print the version");
}

static void print_help(const struct command *c)
{
    printf("usage: barnabas %s%s%s\n\n", c->name, *c->arguments ? " " : "", c->arguments);
    if (c->print_help)
        c->print_help(stdout);
    else
        fputs(c->help, stdout);
}

int cli_usage_error(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "barnabas %s: ", command);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nSee: barnabas %s --help\n", command);
    va_end(args);
    return EXIT_USAGE;
}

static int unknown_command(const char *name)
{
    fprintf(stderr, "barnabas: there is no command '%s'\n\n", name);
    print_overview(stderr);
    return EXIT_USAGE;
}

static bool is_help_flag(const char *s)
{
    return strcmp(s, "--help") == 0 || strcmp(s, "-h") == 0;
}

int cli_main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("barnabas %s\n", BARNABAS_VERSION);
        return 0;
    }
    bool help = strcmp(name, "help") == 0 || is_help_flag(name);
    if (help && argc < 3) {
        print_overview(stdout);
        return 0;
    }
    const struct command *c = command_find(help ? argv[2] : name);
    if (!c) return unknown_command(help ? argv[2] : name);
    for (int i = 2; i < argc && !help; i++) help = is_help_flag(argv[i]);
    if (help) {
        print_help(c);
        return 0;
    }
    return c->run(argc - 1, argv + 1);
}
