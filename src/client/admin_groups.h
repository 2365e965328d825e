/* admin_groups.h: consumer groups, asked of their coordinators: list, describe, offsets, and what changes them.
 *
 * Each call may be about many groups, which go to their coordinators in as few requests as the brokers' versions allow.
 * What a broker says of one group stands in that group's entry; a call is false only when there is no answer at all.
 * Text and arrays of answers lie in the arena given.  Thread: the cluster's. */
#ifndef CLIENT_ADMIN_GROUPS_H
#define CLIENT_ADMIN_GROUPS_H

#include "client/cluster.h"

/* A broker's word on one group. */
struct group_answer {
    int16_t kerr;
    struct str message; /* may be null */
};

/* ---- List */

struct group_listing {
    struct str id, protocol_type;
    struct str state, type; /* empty: the broker is too old to tell */
};

/* All groups of all brokers, sorted by id.  Filters as in the protocol ("Stable", "classic"); count 0: no filter.  With
 * a filter that a broker does not know, ERR_UNSUPPORTED. */
MUST_USE bool admin_list_groups(struct cluster *cl, const struct str *states, int32_t state_count,
                                const struct str *types, int32_t type_count, struct group_listing **out,
                                int32_t *out_count, struct arena *a, struct failure *f);

/* ---- Describe */

struct group_member {
    struct str id, instance_id, client_id, host; /* instance_id null: a dynamic member */
    struct topic_partition *assigned;            /* sorted */
    int32_t assigned_count;
};

struct group_rebalance {
    int64_t started_ms;
    int64_t took_ms;    /* -1: it goes on */
    int32_t generation; /* that it led to; -1: none yet */
    struct str reason, member_id, client_id;
};

struct group_description {
    struct str id;
    struct group_answer answer;
    struct str state;         /* "Dead": there is no such group */
    struct str type;          /* "Classic", "Consumer" */
    struct str protocol_type; /* "consumer", "connect"; empty: offsets only */
    struct str assignor;
    struct node coordinator;
    struct group_member *members; /* in the broker's order */
    int32_t member_count;
    struct group_rebalance *rebalances; /* the newest first; only Barnabas tells of them */
    int32_t rebalance_count;
};

/* `groups[i].id` is what to describe. */
MUST_USE bool admin_describe_groups(struct cluster *cl, struct group_description *groups, int32_t count,
                                    struct arena *a, struct failure *f);

/* ---- Offsets */

struct group_offset {
    struct topic_partition of;
    int64_t offset;
    int32_t leader_epoch; /* -1: not known */
    struct str metadata;
    int16_t kerr;
};

struct group_offsets {
    struct str id;
    struct group_answer answer;
    struct group_offset *offsets; /* sorted */
    int32_t offset_count;
};

/* All committed offsets of each group. */
MUST_USE bool admin_group_offsets(struct cluster *cl, struct group_offsets *groups, int32_t count, struct arena *a,
                                  struct failure *f);
/* Commits these offsets, as only an empty group takes them; each gets its `kerr`. */
MUST_USE bool admin_alter_group_offsets(struct cluster *cl, struct group_offsets *group, struct arena *a,
                                        struct failure *f);
/* Forgets the offsets of these partitions; each gets its `kerr`. */
MUST_USE bool admin_delete_group_offsets(struct cluster *cl, struct group_offsets *group, struct arena *a,
                                         struct failure *f);

/* ---- Delete */

struct group_deletion {
    struct str id;
    struct group_answer answer;
};
MUST_USE bool admin_delete_groups(struct cluster *cl, struct group_deletion *groups, int32_t count, struct arena *a,
                                  struct failure *f);

#endif
