/* replica_fetchers_test.c: a follower before a leader that the test plays: sessions, epochs, cuts, errors, leaving. */
#include "fetchers_world.h"

static void a_follower_gets_what_the_leader_has(void **state)
{
    (void)state;
    struct fworld fw;
    leader_reset();
    fworld_start(&fw, 2);
    leader_append(0, 250);
    leader.parts[0].high_watermark = 200;
    follow(&fw, 0, 0);
    follow(&fw, 1, 0);
    run_to_rest(&fw);
    check_same(&fw, 0);
    check_same(&fw, 1);
    assert_int_equal(leader.full_fetches, 1);
    /* From now on only what changes is named. */
    int named = leader.named;
    leader_append(1, 1);
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(leader.named, named + 1);
    assert_int_equal(leader.parts[1].asked.fetch_offset, 1);
    leader.parts[1].high_watermark = 1;
    run_to_rest(&fw);
    check_same(&fw, 1);
    assert_int_equal(leader.parts[1].asked.high_watermark, 1);
    fworld_end(&fw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_follower_gets_what_the_leader_has),
    };
    if (!getenv("SHOW_LOG")) assert_int_equal(log_open_file("/dev/null", NULL), OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
