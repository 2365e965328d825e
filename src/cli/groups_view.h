/* groups_view.h: what is to be shown of groups: partitions with their lag, gathered from coordinators and leaders.
 * Thread: main. */
#ifndef CLI_GROUPS_VIEW_H
#define CLI_GROUPS_VIEW_H

#include "client/admin_groups.h"

enum { LAG_UNKNOWN = INT64_MIN };

/* One partition that a member owns or that an offset was committed for. */
struct group_row {
    struct topic_partition of;
    const struct group_member *member; /* NULL: nobody owns it */
    int64_t committed;                 /* -1: nothing */
    int64_t end;                       /* -1: not known, `end_kerr` says why */
    int16_t end_kerr;
    int64_t lag;    /* in records; LAG_UNKNOWN */
    int64_t lag_ms; /* the age of the first record that was not consumed; 0: no lag; LAG_UNKNOWN */
};

struct group_view {
    struct group_description description;
    struct group_offsets offsets;
    struct group_row *rows; /* by owner, those with most partitions first, then by topic and partition; unowned last */
    int32_t row_count;
};

struct group_view_options {
    bool times; /* fill in lag_ms too, which reads a record of each partition that lags */
};

/* A group that a broker refuses to describe, or that does not exist, has no rows. */
MUST_USE bool group_views(struct cluster *cl, const struct str *ids, int32_t count,
                          const struct group_view_options *opt, struct group_view **out, struct arena *a,
                          struct failure *f);

/* ---- Names of states and types, in whatever case people and brokers write them */

enum group_names { GROUP_STATES, GROUP_TYPES, GROUP_TYPES_39 /* those that Kafka 3.9 knows */ };
/* Kafka's spelling; null: there is no such name. */
struct str group_name_find(enum group_names which, struct str text);
/* "stable, empty"; false: one of them is no name. */
bool group_names_parse(enum group_names which, const char *text, struct str **out, int32_t *count, struct arena *a);

#endif
