/* kafka_dump_log.c: `barnabas kafka-dump-log`: the flags and the lines of Kafka 3.9's kafka-dump-log.sh, since people
 * have scripts that search them.
 *
 * What differs: a file that cannot be read further is told in a sentence, where Kafka's tool ends with a stack trace,
 * and the next file has its turn; an index that fails its check is told so; partitions of a transaction stand in the
 * order of the record. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/kafka_dump.h"
#include "plog/textfile.h"

enum { MESSAGE_SIZE_MAX = 5 * 1024 * 1024 };

/* A flag that must be refused, and why. */
static const struct {
    const char *flag, *why;
} refused[] = {
    {"--cluster-metadata-decoder",
     "there is no cluster metadata log: Barnabas keeps it in ZooKeeper or in its own store"},
    {"--remote-log-metadata-decoder", "there is no tiered storage here"},
};

static const struct {
    const char *flag;
    size_t at; /* of a bool in struct kafka_dump */
} switches[] = {
    {"--print-data-log", offsetof(struct kafka_dump, print_data)},
    {"--deep-iteration", offsetof(struct kafka_dump, deep)},
    {"--index-sanity-check", offsetof(struct kafka_dump, sanity_only)},
    {"--verify-index-only", offsetof(struct kafka_dump, verify_only)},
    {"--skip-record-metadata", offsetof(struct kafka_dump, skip_metadata)},
};

/* The value of "--flag VALUE" or "--flag=VALUE"; NULL when the word is another flag or has none. */
static const char *flag_value(const char *flag, int argc, char **argv, int *i)
{
    size_t n = strlen(flag);
    if (strncmp(argv[*i], flag, n) != 0) return NULL;
    if (argv[*i][n] == '=') return argv[*i] + n + 1;
    return argv[*i][n] == '\0' && *i + 1 < argc ? argv[++*i] : NULL;
}

static bool is_flag(const char *word, const char *flag)
{
    size_t n = strlen(flag);
    return strncmp(word, flag, n) == 0 && (word[n] == '\0' || word[n] == '=');
}

static int bad(const char *fmt, const char *what)
{
    return cli_usage_error("kafka-dump-log", fmt, what);
}

static int parse_number(const char *flag, const char *value, int32_t *out)
{
    int64_t n;
    if (!value || !textfile_number(str_of(value), 0, INT32_MAX, &n)) return bad("%s needs a number of bytes", flag);
    *out = (int32_t)n;
    return 0;
}

/* Only what turns bytes into text the way Kafka's own class does. */
static int parse_decoder(const char *flag, int argc, char **argv, int *i)
{
    const char *name = strchr(argv[*i], '=');
    if (name)
        name++;
    else if (*i + 1 < argc && argv[*i + 1][0] != '-')
        name = argv[++*i];
    if (!name || strcmp(name, "org.apache.kafka.tools.api.StringDecoder") == 0 ||
        strcmp(name, "kafka.serializer.StringDecoder") == 0)
        return 0;
    fprintf(stderr,
            "barnabas kafka-dump-log: %s %s is a Java class, which cannot be loaded here; only "
            "org.apache.kafka.tools.api.StringDecoder is there.\n",
            flag, name);
    return EXIT_USAGE;
}

static int parse_valued(struct kafka_dump *d, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    if (is_flag(word, "--files")) {
        d->files = flag_value("--files", argc, argv, i);
        return d->files ? 0 : bad("%s needs a list of files", "--files");
    }
    if (is_flag(word, "--max-bytes"))
        return parse_number("--max-bytes", flag_value("--max-bytes", argc, argv, i), &d->bytes_max);
    if (is_flag(word, "--max-message-size"))
        return parse_number("--max-message-size", flag_value("--max-message-size", argc, argv, i), &d->message_max);
    if (is_flag(word, "--value-decoder-class") || is_flag(word, "--key-decoder-class")) {
        d->print_data = true;
        return parse_decoder(is_flag(word, "--value-decoder-class") ? "--value-decoder-class" : "--key-decoder-class",
                             argc, argv, i);
    }
    return bad("there is no option '%s'", word);
}

static int parse_word(struct kafka_dump *d, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    for (size_t k = 0; k < ARRAY_COUNT(refused); k++) {
        if (strcmp(word, refused[k].flag) != 0) continue;
        fprintf(stderr, "barnabas kafka-dump-log: %s cannot be honoured: %s.\n", word, refused[k].why);
        return EXIT_USAGE;
    }
    for (size_t k = 0; k < ARRAY_COUNT(switches); k++) {
        if (strcmp(word, switches[k].flag) != 0) continue;
        *(bool *)((char *)d + switches[k].at) = true;
        return 0;
    }
    if (strcmp(word, "--offsets-decoder") == 0 || strcmp(word, "--transaction-log-decoder") == 0) {
        if (d->decode != COORDINATOR_LOG_OFFSETS) /* Kafka asks for this one first */
            d->decode = word[2] == 'o' ? COORDINATOR_LOG_OFFSETS : COORDINATOR_LOG_TRANSACTIONS;
        d->print_data = true;
        return 0;
    }
    return parse_valued(d, argc, argv, i);
}

/* Each of "file1,file2". */
static void dump_files(struct kafka_dump *d)
{
    struct str rest = str_of(d->files);
    while (rest.size > 0) {
        const char *comma = memchr(rest.data, ',', rest.size);
        size_t n = comma ? (size_t)(comma - rest.data) : rest.size;
        char *path = mem_strndup(rest.data, n);
        if (n > 0) kafka_dump_file(d, path);
        mem_free(path);
        n += comma != NULL;
        rest = (struct str){rest.data + n, rest.size - n};
    }
}

int cli_kafka_dump_log(int argc, char **argv)
{
    struct kafka_dump d = {.bytes_max = INT32_MAX, .message_max = MESSAGE_SIZE_MAX};
    for (int i = 1; i < argc; i++) {
        int status = parse_word(&d, argc, argv, &i);
        if (status) return status;
    }
    if (!d.files) return bad("%s is required: the files to dump, separated by commas", "--files");
    d.deep |= d.print_data;
    arena_init(&d.arena, KAFKA_DUMP_DECODE_MAX);
    dump_files(&d);
    kafka_dump_print_errors(&d);
    arena_fini(&d.arena);
    return d.failed ? 1 : 0;
}
