/* group_states_test.c: every request in every state, in one table: what it is answered, and where the group is then. */
#include "group_world.h"

/* Beside a group's states: there is no such group. */
#define NO_GROUP GROUP_DEAD

/* Two members, "leader" and "follower"; in PREPARING the leader has joined again, in COMPLETING nobody has synced. */
struct pair {
    const char *ids[2];
};

static void bring_to(struct group_world *w, enum group_state state, struct pair *p)
{
    p->ids[0] = p->ids[1] = "client-00000000-0000-0000-0000-00000000ffff";
    if (state == NO_GROUP) return;
    struct world_call *joined[2];
    for (int i = 0; i < 2; i++) joined[i] = world_join_new(w, (struct world_join){0});
    world_advance(w, 6000);
    for (int i = 0; i < 2; i++) p->ids[i] = world_member(joined[i]);
    if (state == GROUP_COMPLETING) return;
    world_sync_all(w, joined, 2);
    world_written(w, KERR_NONE);
    if (state == GROUP_STABLE) return;
    if (state == GROUP_PREPARING) {
        world_join(w, (struct world_join){.member = p->ids[0]});
        return;
    }
    world_leave(w, (struct world_leave){.who = {{.member = p->ids[0]}, {.member = p->ids[1]}}});
    world_written(w, KERR_NONE);
}

static int32_t generation(struct group_world *w)
{
    const struct group *grp = group_find(w->sh, STR("g"));
    return grp ? grp->generation : 1;
}

static struct world_call *join_new(struct group_world *w, const struct pair *p)
{
    (void)p;
    return world_join(w, (struct world_join){.version = 3});
}

static struct world_call *join_first(struct group_world *w, const struct pair *p)
{
    (void)p;
    return world_join(w, (struct world_join){.version = 4});
}

static struct world_call *join_static(struct group_world *w, const struct pair *p)
{
    (void)p;
    return world_join(w, (struct world_join){.instance = "one"});
}

static struct world_call *join_leader(struct group_world *w, const struct pair *p)
{
    return world_join(w, (struct world_join){.member = p->ids[0]});
}

static struct world_call *join_follower(struct group_world *w, const struct pair *p)
{
    return world_join(w, (struct world_join){.member = p->ids[1]});
}

static struct world_call *join_changed(struct group_world *w, const struct pair *p)
{
    return world_join(w, (struct world_join){.member = p->ids[1], .protocols = "range=new"});
}

static struct world_call *sync_leader(struct group_world *w, const struct pair *p)
{
    return world_sync(w, (struct world_sync){.version = 4, .member = p->ids[0], .generation = generation(w)});
}

static struct world_call *sync_follower(struct group_world *w, const struct pair *p)
{
    return world_sync(w, (struct world_sync){.version = 4, .member = p->ids[1], .generation = generation(w)});
}

static struct world_call *beat(struct group_world *w, const struct pair *p)
{
    return world_heartbeat(w, (struct world_heartbeat){.member = p->ids[1], .generation = generation(w)});
}

static struct world_call *leave(struct group_world *w, const struct pair *p)
{
    return world_leave(w, (struct world_leave){.version = 2, .who = {{.member = p->ids[1]}}});
}

struct row {
    const char *request;
    struct world_call *(*ask)(struct group_world *w, const struct pair *p);
    struct {
        const char *answer;
        enum group_state then;
    } in[GROUP_STATE_COUNT];
};

/* clang-format off */
static const struct row rows[] = {
    {"a new member joins", join_new, {
        [NO_GROUP]         = {"waits", GROUP_PREPARING},
        [GROUP_EMPTY]      = {"waits", GROUP_PREPARING},
        [GROUP_PREPARING]  = {"waits", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"waits", GROUP_PREPARING},
        [GROUP_STABLE]     = {"waits", GROUP_PREPARING}}},
    {"a new member asks for an id", join_first, {
        [NO_GROUP]         = {"MEMBER_ID_REQUIRED", GROUP_EMPTY},
        [GROUP_EMPTY]      = {"MEMBER_ID_REQUIRED", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"MEMBER_ID_REQUIRED", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"MEMBER_ID_REQUIRED", GROUP_COMPLETING},
        [GROUP_STABLE]     = {"MEMBER_ID_REQUIRED", GROUP_STABLE}}},
    {"a static member joins", join_static, {
        [NO_GROUP]         = {"waits", GROUP_PREPARING},
        [GROUP_EMPTY]      = {"waits", GROUP_PREPARING},
        [GROUP_PREPARING]  = {"waits", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"waits", GROUP_PREPARING},
        [GROUP_STABLE]     = {"waits", GROUP_PREPARING}}},
    {"the leader joins again", join_leader, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"waits", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"NONE", GROUP_COMPLETING},
        [GROUP_STABLE]     = {"waits", GROUP_PREPARING}}},
    {"a follower joins again", join_follower, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"NONE", GROUP_COMPLETING}, /* the last one that was waited for */
        [GROUP_COMPLETING] = {"NONE", GROUP_COMPLETING},
        [GROUP_STABLE]     = {"NONE", GROUP_STABLE}}},
    {"a follower joins again with something new", join_changed, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"NONE", GROUP_COMPLETING},
        [GROUP_COMPLETING] = {"waits", GROUP_PREPARING},
        [GROUP_STABLE]     = {"waits", GROUP_PREPARING}}},
    {"the leader syncs", sync_leader, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"REBALANCE_IN_PROGRESS", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"waits", GROUP_COMPLETING}, /* for the record */
        [GROUP_STABLE]     = {"NONE", GROUP_STABLE}}},
    {"a follower syncs", sync_follower, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"REBALANCE_IN_PROGRESS", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"waits", GROUP_COMPLETING}, /* for the leader */
        [GROUP_STABLE]     = {"NONE", GROUP_STABLE}}},
    {"a heartbeat", beat, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"REBALANCE_IN_PROGRESS", GROUP_PREPARING},
        [GROUP_COMPLETING] = {"NONE", GROUP_COMPLETING},
        [GROUP_STABLE]     = {"NONE", GROUP_STABLE}}},
    {"a follower leaves", leave, {
        [NO_GROUP]         = {"UNKNOWN_MEMBER_ID", NO_GROUP},
        [GROUP_EMPTY]      = {"UNKNOWN_MEMBER_ID", GROUP_EMPTY},
        [GROUP_PREPARING]  = {"NONE", GROUP_COMPLETING}, /* nobody is waited for any more */
        [GROUP_COMPLETING] = {"NONE", GROUP_PREPARING},
        [GROUP_STABLE]     = {"NONE", GROUP_PREPARING}}},
};
/* clang-format on */

static void every_request_is_answered_by_the_groups_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        for (int s = 0; s < GROUP_STATE_COUNT; s++) {
            struct group_world w;
            world_start(&w, &world_options);
            struct pair p;
            bring_to(&w, (enum group_state)s, &p);
            assert_int_equal(world_state(&w, "g"), s);
            struct world_call *c = rows[i].ask(&w, &p);
            if (strcmp(world_error(c), rows[i].in[s].answer) != 0)
                fail_msg("%s in %s: %s", rows[i].request, group_state_name((enum group_state)s), world_error(c));
            if (world_state(&w, "g") != rows[i].in[s].then)
                fail_msg("%s in %s leads to %s", rows[i].request, group_state_name((enum group_state)s),
                         group_state_name(world_state(&w, "g")));
            world_stop(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_answered_by_the_groups_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
