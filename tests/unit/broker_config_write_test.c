/* broker/config_write: altering stored configuration without the controller, also when others do so at the same time.
 */
#include "coord_world.h"

#include <string.h>

#include "broker/broker.h"
#include "broker/config_write.h"

static struct {
    struct world *store;
    struct broker br;
    struct topic_view topic;
    int alterations, intruders; /* writes of another broker, each between a read and its write */
    struct controller_result results[2];
    size_t result_count;
    int answers;
    char read[256];
    size_t notified;
} w;

const struct topic_view *metadata_topic(const struct metadata *m, struct str name)
{
    (void)m;
    return str_is(name, "known") ? &w.topic : NULL;
}

static struct loop *home(void)
{
    return w.br.loops[0];
}

static int setup(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    w.store = world_new(false);
    w.br = (struct broker){.loop_count = 1, .loops = &w.store->loop, .coord = w.store->c};
    znodes_make_persistent(w.br.coord, (struct coord_to){.loop = home()});
    world_turn(w.store);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_free(w.store);
    return 0;
}

static void write_by_another(const char *value)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct znode_setting s = {STR("other"), str_of(value)};
    const struct znode_config zc = {.settings = &s, .count = 1};
    const struct bytes data = znode_config_encode(&a, &zc);
    const struct str path = STR("/config/topics/known");
    coord_create(w.br.coord, path, data, 0, (struct coord_to){.loop = home()});
    coord_set(w.br.coord, path, data, COORD_ANY_VERSION, (struct coord_to){.loop = home()});
    arena_fini(&a);
}

/* Adds one setting to those that are there. */
static enum kerr add_one(void *arg, const struct znode_config *current, struct arena *a, struct znode_config *out,
                         struct str *message)
{
    w.alterations++;
    if (arg) {
        *message = STR("No.");
        return KERR_INVALID_CONFIG;
    }
    if (w.intruders > 0) {
        w.intruders--;
        write_by_another("theirs");
    }
    out->count = current->count + 1;
    out->settings = arena_array(a, struct znode_setting, out->count);
    for (size_t i = 0; i < current->count; i++) out->settings[i] = current->settings[i];
    out->settings[current->count] = (struct znode_setting){STR("mine"), STR("1")};
    return KERR_NONE;
}

static void on_answer(void *arg, const struct controller_results *r)
{
    (void)arg;
    w.answers++;
    w.result_count = r->count;
    for (size_t i = 0; i < r->count; i++) w.results[i] = r->results[i];
}

static void alter(struct str topic, bool refuse, bool validate_only)
{
    const struct controller_config_change change = {
        .type = CONFIG_TOPICS, .name = topic, .alter = add_one, .arg = refuse ? &w : NULL};
    config_write_alter(&w.br, &change, 1, validate_only, (struct controller_to){home(), on_answer, NULL});
    assert_int_equal(w.answers, 0);
    world_turn(w.store);
    assert_int_equal(w.answers, 1);
    assert_int_equal(w.result_count, 1);
    w.answers = 0;
}

static void look(void)
{
    struct answer a = call_get(w.store, "/config/topics/known", COORD_NO_WATCH);
    snprintf(w.read, sizeof w.read, "%.*s", (int)a.r.data.size, a.r.data.data ? (const char *)a.r.data.data : "");
    w.notified = call_children(w.store, "/config/changes", COORD_NO_WATCH).r.child_count;
}

static void a_change_is_written_with_its_notification(void **state)
{
    (void)state;
    alter(STR("known"), false, false);
    assert_int_equal(w.results[0].kerr, KERR_NONE);
    look();
    assert_string_equal(w.read, "{\"version\":1,\"config\":{\"mine\":\"1\"}}");
    assert_int_equal(w.notified, 1);
}

static void what_another_writes_meanwhile_is_kept(void **state)
{
    (void)state;
    w.intruders = 3;
    alter(STR("known"), false, false);
    assert_int_equal(w.results[0].kerr, KERR_NONE);
    assert_int_equal(w.alterations, 4);
    look();
    assert_non_null(strstr(w.read, "\"other\":\"theirs\""));
    assert_non_null(strstr(w.read, "\"mine\":\"1\""));
    assert_int_equal(w.notified, 1);
}

static void what_nobody_can_read_is_written_anew(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"version\":1,\"conf", "{\"config\":{\"kept\":\"1\",\"given.up\":7}}"};
    static const char *const after[] = {"{\"version\":1,\"config\":{\"mine\":\"1\"}}",
                                        "{\"version\":1,\"config\":{\"kept\":\"1\",\"mine\":\"1\"}}"};
    write_by_another("theirs");
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        const struct bytes data = {(const uint8_t *)texts[i], strlen(texts[i])};
        coord_set(w.br.coord, STR("/config/topics/known"), data, COORD_ANY_VERSION, (struct coord_to){.loop = home()});
        alter(STR("known"), false, false);
        assert_int_equal(w.results[0].kerr, KERR_NONE);
        look();
        assert_string_equal(w.read, after[i]);
        assert_int_equal(w.notified, i + 1);
    }
}

static void who_meets_others_for_ever_gives_up(void **state)
{
    (void)state;
    w.intruders = 1000;
    alter(STR("known"), false, false);
    assert_int_equal(w.results[0].kerr, KERR_UNKNOWN_SERVER_ERROR);
    look();
    assert_int_equal(w.notified, 0);
}

static void nothing_is_written_that_is_refused_or_only_tried(void **state)
{
    (void)state;
    alter(STR("known"), true, false);
    assert_int_equal(w.results[0].kerr, KERR_INVALID_CONFIG);
    alter(STR("known"), false, true);
    assert_int_equal(w.results[0].kerr, KERR_NONE);
    alter(STR("unknown"), false, false);
    assert_int_equal(w.results[0].kerr, KERR_UNKNOWN_TOPIC_OR_PARTITION);
    look();
    assert_string_equal(w.read, "");
    assert_int_equal(w.notified, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_change_is_written_with_its_notification),
        CASE(what_another_writes_meanwhile_is_kept),
        CASE(what_nobody_can_read_is_written_anew),
        CASE(who_meets_others_for_ever_gives_up),
        CASE(nothing_is_written_that_is_refused_or_only_tried),
    };
    return cmocka_run_group_tests_name("broker_config_write", tests, NULL, NULL);
}
