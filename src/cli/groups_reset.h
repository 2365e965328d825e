/* groups_reset.h: where a group's offsets are to go, planned before anything is changed.  Thread: main. */
#ifndef CLI_GROUPS_RESET_H
#define CLI_GROUPS_RESET_H

#include <stdio.h>

#include "client/admin_groups.h"

enum reset_how {
    RESET_TO_OFFSET,
    RESET_TO_EARLIEST,
    RESET_TO_LATEST,
    RESET_TO_CURRENT, /* what is committed; where nothing is, the end */
    RESET_SHIFT_BY,
    RESET_TO_TIME, /* the first record at or after it; where there is none, the end */
    RESET_TO_FILE
};

struct reset_spec {
    enum reset_how how;
    int64_t number; /* an offset, a distance, milliseconds since 1970 */
};

enum reset_note { RESET_AS_ASKED, RESET_CUT_TO_END, RESET_CUT_TO_START, RESET_NO_SUCH_RECORD };

struct reset_row {
    struct topic_partition of;
    int64_t asked;  /* RESET_CUT_*: what was asked for; in a plan from a file: what stands there */
    int64_t offset; /* where it goes */
    enum reset_note note;
};

struct reset_plan {
    struct str group;
    struct reset_row *rows; /* sorted */
    int32_t row_count;
};

/* ---- Which partitions */

/* Each word is "topic", all its partitions, or "topic:0,1,2".  ERR_INVALID: a word is neither. */
MUST_USE bool reset_scope_topics(struct cluster *cl, const char *const *words, size_t word_count,
                                 struct topic_partition **out, int32_t *out_count, struct arena *a, struct failure *f);
/* What the group has committed. */
MUST_USE bool reset_scope_committed(struct cluster *cl, struct str group, struct topic_partition **out,
                                    int32_t *out_count, struct arena *a, struct failure *f);

/* ---- The plan */

/* Fills in `plan` for these partitions (with RESET_TO_FILE its rows are there already, and `scope` is not looked at).
 * Fails when one of them cannot be planned: nothing is to be changed then. */
MUST_USE bool reset_plan_make(struct cluster *cl, struct reset_plan *plan, const struct reset_spec *spec,
                              const struct topic_partition *scope, int32_t scope_count, struct arena *a,
                              struct failure *f);
/* Commits the plan. */
MUST_USE bool reset_plan_execute(struct cluster *cl, const struct reset_plan *plan, struct arena *a, struct failure *f);

/* ---- CSV, as Kafka's tool writes and reads it: [group,]topic,partition,offset */

void reset_plan_print_csv(FILE *out, const struct reset_plan *plan, bool with_group);
/* Reads a file into one plan a group, sorted by group.  `single`: the group that lines without one are about; null:
 * every line must have its own. */
MUST_USE bool reset_plans_read(const char *path, struct str single, struct reset_plan **out, int32_t *out_count,
                               struct arena *a, struct failure *f);

#endif
