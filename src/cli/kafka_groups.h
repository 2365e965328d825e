/* kafka_groups.h: what the files of `barnabas kafka-consumer-groups` share.  Thread: main. */
#ifndef CLI_KAFKA_GROUPS_H
#define CLI_KAFKA_GROUPS_H

#include "cli/groups_reset.h"
#include "cli/options.h"
#include "client/admin_groups.h"

/* Rows of its table of options. */
enum kafka_groups_option {
    KG_BOOTSTRAP_SERVER,
    KG_COMMAND_CONFIG,
    KG_TIMEOUT,
    KG_LIST,
    KG_DESCRIBE,
    KG_DELETE,
    KG_RESET_OFFSETS,
    KG_DELETE_OFFSETS,
    KG_GROUP,
    KG_ALL_GROUPS,
    KG_STATE,
    KG_TYPE,
    KG_OFFSETS,
    KG_MEMBERS,
    KG_VERBOSE,
    KG_TOPIC,
    KG_ALL_TOPICS,
    KG_TO_OFFSET,
    KG_TO_EARLIEST,
    KG_TO_LATEST,
    KG_TO_CURRENT,
    KG_SHIFT_BY,
    KG_TO_DATETIME,
    KG_BY_DURATION,
    KG_FROM_FILE,
    KG_DRY_RUN,
    KG_EXECUTE,
    KG_EXPORT,
    KG_VALIDATE_REGEX,
    KG_VERSION,
    KG_COUNT
};
extern const struct option_row kafka_groups_options[KG_COUNT];

struct kafka_groups {
    struct options o;
    struct cluster *cl;
    struct arena a;
    struct failure f; /* why an action came to nothing; told as Kafka's tool does */
    bool wrapped;     /* Kafka's tool would have wrapped that in one exception more */
};

static inline const struct option_value *kafka_groups_value(const struct kafka_groups *kg, enum kafka_groups_option o)
{
    return &kg->o.values[o];
}

/* Each is one action.  KG_FAILED: `f` says why; KG_USAGE: told already, with status 1. */
enum kafka_groups_end { KG_DONE, KG_FAILED, KG_USAGE };
enum kafka_groups_end kafka_groups_list(struct kafka_groups *kg);
enum kafka_groups_end kafka_groups_describe(struct kafka_groups *kg);
enum kafka_groups_end kafka_groups_delete(struct kafka_groups *kg);
enum kafka_groups_end kafka_groups_reset_offsets(struct kafka_groups *kg);
enum kafka_groups_end kafka_groups_delete_offsets(struct kafka_groups *kg);

/* The groups that --group names, each once, or with --all-groups all that are there. */
MUST_USE bool kafka_groups_chosen(struct kafka_groups *kg, struct str **ids, int32_t *count);

/* A sentence on standard error and a hint at --help; gives KG_USAGE. */
enum kafka_groups_end kafka_groups_usage(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* "\nError: ..." on standard output, as Kafka's tool tells what went wrong. */
void kafka_groups_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty.": how Java's tools show a code;
 * `said` is the broker's own message, if there is one. */
struct str kafka_error_text(int16_t kerr, struct str said, struct arena *a);
/* The text, and blanks up to `width` characters. */
void kafka_groups_pad(struct str text, int width);
/* Characters as Java counts them. */
int kafka_groups_width(struct str text);

#endif
