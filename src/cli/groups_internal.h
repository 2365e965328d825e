/* groups_internal.h: what the files of `barnabas groups` share.  Thread: main. */
#ifndef CLI_GROUPS_INTERNAL_H
#define CLI_GROUPS_INTERNAL_H

#include <jansson.h>

#include "cli/groups_reset.h"
#include "cli/groups_view.h"
#include "cli/options.h"

/* Rows of its table of options. */
enum groups_option {
    GR_BOOTSTRAP_SERVER,
    GR_COMMAND_CONFIG,
    GR_TIMEOUT,
    GR_JSON,
    GR_STATE,
    GR_TYPE,
    GR_ALL,
    GR_TOPIC,
    GR_ALL_TOPICS,
    GR_TO_OFFSET,
    GR_TO_EARLIEST,
    GR_TO_LATEST,
    GR_TO_CURRENT,
    GR_SHIFT_BY,
    GR_TO_TIME,
    GR_BY_DURATION,
    GR_FROM_FILE,
    GR_EXPORT,
    GR_EXECUTE,
    GR_COUNT
};

struct groups {
    struct options o;
    struct cluster *cl;
    struct arena a;
    struct failure f;
    bool json;
    struct str *ids; /* the groups named, or with --all all of them; each once, sorted */
    int32_t id_count;
};

static inline const struct option_value *groups_value(const struct groups *g, enum groups_option o)
{
    return &g->o.values[o];
}

/* Each is one subcommand and gives an exit status; what failed as a whole is in `f` (GROUPS_FAILED). */
enum { GROUPS_FAILED = -1 };
int groups_list(struct groups *g);
int groups_describe(struct groups *g);
int groups_members(struct groups *g);
int groups_reset_offsets(struct groups *g);
int groups_delete(struct groups *g);
int groups_delete_offsets(struct groups *g);

/* "barnabas groups: TEXT" on standard error; gives exit status 1. */
int groups_say(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* What a broker said of one group. */
int groups_say_refused(struct str group, const struct group_answer *answer);

/* JSON: text that is no UTF-8 comes out in hexadecimal; numbers that are not known as null. */
json_t *groups_json_text(struct str text);
json_t *groups_json_number(int64_t value, bool known);
void groups_json_set(json_t *object, const char *name, json_t *value);
/* One line on standard output; frees it. */
void groups_json_print(json_t *line);

#endif
