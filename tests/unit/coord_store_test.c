/* coord: the suite of coord_cases.h on the stores of one process. */
#include "coord_cases.h"

static int setup_memory(void **state)
{
    *state = world_new(false);
    return 0;
}

static int setup_embedded(void **state)
{
    *state = world_new(true);
    return 0;
}

static int teardown(void **state)
{
    world_free(*state);
    return 0;
}

#define IN_MEMORY(test) {"memory: " #test, test, setup_memory, teardown, NULL},
#define EMBEDDED(test)  {"embedded: " #test, test, setup_embedded, teardown, NULL},

int main(void)
{
    const struct CMUnitTest tests[] = {COORD_CASES(IN_MEMORY) COORD_CASES(EMBEDDED)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
