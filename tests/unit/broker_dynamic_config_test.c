/* broker/dynamic_config: over a store in memory, with replicas that only note what they are given. */
#include "coord_world.h"

#include "broker/dynamic_config.h"
#include "broker/topic_settings.h"
#include "coord/znodes.h"

/* ---- What stands in for the rest of the broker */

enum { TOPICS_MAX = 300 };

static struct {
    const char *here[TOPICS_MAX]; /* topics with replicas */
    size_t here_count;
    char last[64]; /* the topic reconfigured last, and to what */
    struct topic_settings settings;
    int reconfigured, broker_changes;
} fake;

struct topic_replicas *replicas_find(const struct replicas *r, struct str topic)
{
    (void)r;
    for (size_t i = 0; i < fake.here_count; i++)
        if (str_is(topic, fake.here[i])) return (struct topic_replicas *)&fake;
    return NULL;
}

struct partition **replicas_list(struct replicas *r, size_t *count)
{
    (void)r;
    struct partition **list = mem_zalloc(fake.here_count * 2 + 1, sizeof(struct partition *));
    for (size_t i = 0; i < fake.here_count * 2; i++) { /* two partitions each */
        list[i] = mem_zalloc(1, sizeof **list);
        list[i]->topic = mem_strdup(fake.here[i % fake.here_count]);
    }
    *count = fake.here_count * 2;
    return list;
}

void replicas_list_free(struct partition **list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mem_free(list[i]->topic);
        mem_free(list[i]);
    }
    mem_free(list);
}

void replicas_reconfigure(struct replicas *r, struct str topic, const struct topic_settings *settings)
{
    (void)r;
    snprintf(fake.last, sizeof fake.last, "%.*s", STR_ARG(topic));
    fake.settings = *settings;
    fake.reconfigured++;
}

void broker_config_changed(struct broker *br)
{
    (void)br;
    fake.broker_changes++;
}

/* ---- The world */

static int64_t ahead_ms; /* of the broker's wall clock, before the store's */

static int64_t wall_ahead(struct clock *c)
{
    (void)c;
    return clock_wall_ms(clock_system()) + ahead_ms;
}

static int64_t mono(struct clock *c)
{
    (void)c;
    return clock_mono_us(clock_system());
}

struct bed {
    struct world *w;
    struct broker br;
    struct clock clock;
    struct dynamic_config *dc;
    bool opened;
    enum err err;
    struct fault fault;
    int done;
};

static void on_open(void *arg, enum err e, const struct fault *f)
{
    struct bed *b = arg;
    b->opened = true;
    b->err = e;
    if (f) b->fault = *f;
}

static void bed_open(struct bed *b)
{
    dynamic_config_open(&b->dc, &b->br, on_open, b);
    while (!b->opened) loop_turn(b->w->loop, 0);
}

static int bed_new(void **state)
{
    memset(&fake, 0, sizeof fake);
    ahead_ms = 0;
    struct bed *b = mem_zalloc(1, sizeof *b);
    b->w = world_new(false);
    b->clock = (struct clock){mono, wall_ahead};
    b->br = (struct broker){.clock = &b->clock, .id = 7, .loop_count = 1, .loops = &b->w->loop, .coord = b->w->c};
    struct config *cfg;
    assert_int_equal(config_load(&cfg, &(struct config_input){0}, NULL), OK);
    b->br.config = config_live_new(cfg);
    static const char *const paths[] = {"/config", "/config/topics", "/config/brokers", "/config/changes"};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) assert_int_equal(call_create(b->w, paths[i], NULL, 0).r.err, OK);
    *state = b;
    return 0;
}

static int bed_free(void **state)
{
    struct bed *b = *state;
    world_close(b->w);
    dynamic_config_free(b->dc);
    config_live_free(b->br.config);
    world_free(b->w);
    mem_free(b);
    return 0;
}

/* Everything that is on its way arrives. */
static void settle(struct bed *b)
{
    for (int i = 0; i < 50; i++) loop_turn(b->w->loop, 0);
}

static void count_done(void *arg)
{
    ((struct bed *)arg)->done++;
}

static void store(struct bed *b, const char *path, const char *config)
{
    char data[256];
    snprintf(data, sizeof data, "{\"version\":1,\"config\":{%s}}", config);
    if (call_create(b->w, path, data, 0).r.err == ERR_EXISTS) call_set(b->w, path, data, COORD_ANY_VERSION);
}

static void notify(struct bed *b, const char *entity_path)
{
    char data[128];
    snprintf(data, sizeof data, "{\"version\":2,\"entity_path\":\"%s\"}", entity_path);
    call_create(b->w, "/config/changes/config_change_", data, COORD_SEQUENTIAL);
    settle(b);
}

static void assert_override(struct bed *b, const char *topic, const char *name, const char *value)
{
    struct config_map *m = dynamic_config_topic(b->dc, str_of(topic));
    assert_non_null(m);
    assert_string_equal(config_map_get(m, name), value);
    config_map_free(m);
}

static int64_t live_i64(struct bed *b, enum config_key key)
{
    struct config *cfg = config_live_ref(b->br.config);
    int64_t v = config_i64(cfg, key);
    config_unref(cfg);
    return v;
}

/* ---- The start */

static void what_is_stored_is_in_effect_after_the_start(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/a", "\"retention.ms\":\"1000\"");
    store(b, "/config/topics/b", "");
    store(b, "/config/brokers/<default>", "\"message.max.bytes\":\"2000\",\"log.retention.ms\":\"5\"");
    store(b, "/config/brokers/7", "\"message.max.bytes\":\"3000\"");
    store(b, "/config/brokers/8", "\"log.retention.ms\":\"6\"");
    bed_open(b);
    assert_int_equal(b->err, OK);
    assert_override(b, "a", "retention.ms", "1000");
    assert_null(dynamic_config_topic(b->dc, STR("b")));
    assert_null(dynamic_config_topic(b->dc, STR("c")));
    assert_int_equal(live_i64(b, CFG_MESSAGE_MAX_BYTES), 3000);
    assert_int_equal(live_i64(b, CFG_LOG_RETENTION_MS), 5);
    struct topic_settings s;
    dynamic_config_topic_settings(b->dc, STR("a"), &s);
    assert_int_equal(s.log.retention_ms, 1000);
    assert_int_equal(s.max_message_bytes, 3000);
    settle(b);
}

static void many_topics_are_all_read(void **state)
{
    struct bed *b = *state;
    enum { MANY = 2500 }; /* more than are read at a time */
    for (int i = 0; i < MANY; i++) {
        char path[64];
        snprintf(path, sizeof path, "/config/topics/t%d", i);
        store(b, path, "\"retention.ms\":\"9\"");
    }
    bed_open(b);
    assert_int_equal(b->err, OK);
    for (int i = 0; i < MANY; i++) {
        char topic[16];
        snprintf(topic, sizeof topic, "t%d", i);
        assert_override(b, topic, "retention.ms", "9");
    }
}

static struct topic_settings settings_of(struct bed *b, const char *topic)
{
    struct topic_settings s;
    dynamic_config_topic_settings(b->dc, str_of(topic), &s);
    return s;
}

/* Nothing is removed from its logs, by age, size or compaction. */
static void assert_keeps_all(struct bed *b, const char *topic)
{
    struct topic_settings s = settings_of(b, topic);
    assert_int_equal(s.log.retention_ms, -1);
    assert_int_equal(s.log.retention_bytes, -1);
    assert_int_equal(s.log.min_compaction_lag_ms, INT64_MAX);
}

static const int64_t WEEK_MS = 7 * 24 * 3600 * 1000LL; /* the default retention */

static void a_topic_with_an_unreadable_node_loses_nothing_until_it_is_mended(void **state)
{
    struct bed *b = *state;
    static const char *const torn[] = {"{\"version\":1,\"conf", "[]", "{\"config\":7}"};
    for (size_t i = 0; i < ARRAY_COUNT(torn); i++) {
        char path[32];
        snprintf(path, sizeof path, "/config/topics/torn%zu", i);
        call_create(b->w, path, torn[i], 0);
    }
    store(b, "/config/topics/good", "\"retention.ms\":\"1000\"");
    bed_open(b);
    assert_int_equal(b->err, OK);
    assert_override(b, "good", "retention.ms", "1000");
    assert_keeps_all(b, "torn0");
    assert_keeps_all(b, "torn1");
    assert_keeps_all(b, "torn2");
    assert_int_equal(settings_of(b, "untouched").log.retention_ms, WEEK_MS);
    store(b, "/config/topics/torn0", "\"max.message.bytes\":\"77\"");
    notify(b, "topics/torn0");
    assert_int_equal(settings_of(b, "torn0").log.retention_ms, WEEK_MS);
    assert_int_equal(settings_of(b, "torn0").log.min_compaction_lag_ms, 0);
    assert_int_equal(settings_of(b, "torn0").max_message_bytes, 77);
}

static void topic_settings_that_cannot_be_used_leave_the_others_in_effect(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/a", "\"max.message.bytes\":\"many\",\"retention.ms\":\"1000\",\"segment.ms\":7");
    store(b, "/config/topics/b", "\"max.message.bytes\":\"77\",\"retention.ms\":1000");
    store(b, "/config/topics/c", "\"cleanup.policy\":\"compcat\",\"retention.ms\":\"1000\"");
    store(b, "/config/topics/d", "\"of.another.program\":\"x\",\"retention.ms\":\"1000\"");
    bed_open(b);
    assert_int_equal(b->err, OK);
    assert_int_equal(settings_of(b, "a").log.retention_ms, 1000);
    assert_int_equal(settings_of(b, "a").max_message_bytes, settings_of(b, "untouched").max_message_bytes);
    assert_int_equal(settings_of(b, "a").log.segment_ms, settings_of(b, "untouched").log.segment_ms);
    /* What decides on removal cannot be known, so nothing is removed. */
    assert_int_equal(settings_of(b, "b").max_message_bytes, 77);
    assert_keeps_all(b, "b");
    assert_keeps_all(b, "c");
    assert_int_equal(settings_of(b, "d").log.retention_ms, 1000);
}

static void a_broker_starts_with_an_unreadable_node_of_its_own_and_removes_nothing(void **state)
{
    struct bed *b = *state;
    call_create(b->w, "/config/brokers/<default>", "{", 0);
    store(b, "/config/brokers/7", "\"message.max.bytes\":\"3000\",\"log.segment.bytes\":1048576");
    store(b, "/config/topics/t", "\"retention.ms\":\"1000\"");
    bed_open(b);
    assert_int_equal(b->err, OK);
    assert_int_equal(live_i64(b, CFG_MESSAGE_MAX_BYTES), 3000);
    assert_int_equal(live_i64(b, CFG_LOG_SEGMENT_BYTES), 1 << 30);
    assert_keeps_all(b, "untouched");
    assert_int_equal(settings_of(b, "t").log.retention_ms, 1000); /* what it says itself is known */
    store(b, "/config/brokers/<default>", "");
    notify(b, "brokers/<default>");
    assert_int_equal(settings_of(b, "untouched").log.retention_ms, WEEK_MS);
    call_set(b->w, "/config/brokers/7", "torn", COORD_ANY_VERSION);
    notify(b, "brokers/7");
    assert_int_equal(live_i64(b, CFG_MESSAGE_MAX_BYTES), 3000); /* what was in effect stays */
    assert_int_equal(settings_of(b, "untouched").log.retention_ms, WEEK_MS);
}

/* ---- Changes */

static void a_notified_topic_is_read_again_and_reconfigured(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/t", "\"retention.ms\":\"1000\"");
    bed_open(b);
    for (int round = 1; round <= 3; round++) { /* the watch is set anew each time */
        char config[64];
        snprintf(config, sizeof config, "\"retention.ms\":\"%d\"", round);
        store(b, "/config/topics/t", config);
        notify(b, "topics/t");
        assert_int_equal(fake.reconfigured, round);
        assert_string_equal(fake.last, "t");
        assert_int_equal(fake.settings.log.retention_ms, round);
    }
}

static void a_change_that_changes_nothing_disturbs_nobody(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/t", "\"retention.ms\":\"1000\"");
    bed_open(b);
    notify(b, "topics/t");
    assert_int_equal(fake.reconfigured, 0);
}

static void what_is_malformed_or_concerns_others_is_passed_over(void **state)
{
    struct bed *b = *state;
    bed_open(b);
    call_create(b->w, "/config/changes/config_change_", "not json", COORD_SEQUENTIAL);
    notify(b, "brokers/8");
    notify(b, "users/u");
    notify(b, "topics/../../x");
    notify(b, "topics");
    assert_int_equal(fake.reconfigured + fake.broker_changes, 0);
    store(b, "/config/topics/t", "\"retention.ms\":\"1\"");
    notify(b, "topics/t");
    assert_int_equal(fake.reconfigured, 1);
}

static void a_broker_value_gives_every_topic_new_settings_before_the_answer(void **state)
{
    struct bed *b = *state;
    static char names[TOPICS_MAX][8];
    for (size_t i = 0; i < TOPICS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        fake.here[fake.here_count++] = names[i];
    }
    bed_open(b);
    store(b, "/config/brokers/<default>", "\"message.max.bytes\":\"2000\"");
    dynamic_config_refresh(b->dc, CONFIG_ENTITY_BROKER, CONFIG_DEFAULT, count_done, b);
    while (!b->done) {
        assert_true(fake.reconfigured <= TOPICS_MAX);
        loop_turn(b->w->loop, 0);
    }
    assert_int_equal(fake.reconfigured, TOPICS_MAX);
    assert_int_equal(fake.settings.max_message_bytes, 2000);
    assert_int_equal(fake.broker_changes, 1);
}

static void a_broker_value_that_cannot_be_is_left_out(void **state)
{
    struct bed *b = *state;
    bed_open(b);
    int64_t before = live_i64(b, CFG_MESSAGE_MAX_BYTES);
    store(b, "/config/brokers/7", "\"message.max.bytes\":\"many\",\"log.retention.ms\":\"77\"");
    notify(b, "brokers/7");
    assert_int_equal(live_i64(b, CFG_MESSAGE_MAX_BYTES), before);
    assert_int_equal(live_i64(b, CFG_LOG_RETENTION_MS), 77);
    store(b, "/config/brokers/7", "\"message.max.bytes\":\"3000\",\"log.retention.ms\":\"soon\"");
    notify(b, "brokers/7");
    assert_int_equal(live_i64(b, CFG_MESSAGE_MAX_BYTES), 3000);
    assert_int_equal(live_i64(b, CFG_LOG_RETENTION_MS), 77); /* as it was */
    store(b, "/config/brokers/<default>", "\"log.cleanup.policy\":\"compcat\"");
    notify(b, "brokers/<default>");
    assert_int_equal(live_i64(b, CFG_LOG_RETENTION_MS), 77); /* the broker's own goes before it, */
    assert_int_equal(live_i64(b, CFG_LOG_RETENTION_BYTES), -1);
    store(b, "/config/brokers/7", "");
    notify(b, "brokers/7");
    assert_int_equal(live_i64(b, CFG_LOG_RETENTION_MS), -1); /* and where it says nothing all is kept */
}

static void unreadable_settings_leave_the_old_ones_in_effect(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/t", "\"retention.ms\":\"-1\"");
    bed_open(b);
    call_set(b->w, "/config/topics/t", "{", COORD_ANY_VERSION);
    dynamic_config_refresh(b->dc, CONFIG_ENTITY_TOPIC, STR("t"), count_done, b);
    settle(b);
    assert_int_equal(b->done, 1);
    assert_override(b, "t", "retention.ms", "-1");
}

static void a_setting_that_becomes_unusable_keeps_its_value_and_the_others_change(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/t", "\"retention.ms\":\"1000\",\"min.insync.replicas\":\"2\"");
    bed_open(b);
    store(b, "/config/topics/t", "\"retention.ms\":\"soon\",\"min.insync.replicas\":2,\"max.message.bytes\":\"77\"");
    notify(b, "topics/t");
    assert_int_equal(fake.reconfigured, 1);
    assert_int_equal(fake.settings.log.retention_ms, 1000);
    assert_int_equal(fake.settings.min_insync_replicas, 2);
    assert_int_equal(fake.settings.max_message_bytes, 77);
}

static void settings_that_are_removed_give_the_defaults_back(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/t", "\"retention.ms\":\"1000\"");
    bed_open(b);
    call_delete(b->w, "/config/topics/t", COORD_ANY_VERSION);
    dynamic_config_refresh(b->dc, CONFIG_ENTITY_TOPIC, STR("t"), count_done, b);
    settle(b);
    assert_int_equal(b->done, 1);
    assert_null(dynamic_config_topic(b->dc, STR("t")));
    assert_int_equal(fake.settings.log.retention_ms, 7 * 24 * 3600 * 1000LL);
}

/* ---- New topics */

static void a_new_topic_gets_its_settings_although_nobody_notified(void **state)
{
    struct bed *b = *state;
    bed_open(b);
    fake.here[fake.here_count++] = "old";
    store(b, "/config/topics/inherited", "\"retention.ms\":\"2000\"");
    store(b, "/config/topics/new", "\"retention.ms\":\"1000\"");
    store(b, "/config/topics/old", "\"retention.ms\":\"1000\"");
    struct leader_and_isr_request_leader_and_isr_partition_state old = {.is_new = false}, new = {.is_new = true};
    struct leader_and_isr_request_leader_and_isr_topic_state topics[] = {
        {.topic_name = STR("old"), .partition_states = &old, .partition_states_count = 1},
        {.topic_name = STR("new"), .partition_states = &new, .partition_states_count = 1},
        {.topic_name = STR("inherited"), .partition_states = &old, .partition_states_count = 1}};
    struct leader_and_isr_request rq = {.topic_states = topics, .topic_states_count = 3};
    dynamic_config_prepare(b->dc, &rq, count_done, b);
    assert_int_equal(b->done, 0);
    settle(b);
    assert_int_equal(b->done, 1);
    assert_override(b, "new", "retention.ms", "1000");
    assert_override(b, "inherited", "retention.ms", "2000"); /* not called new, but no replica is here yet */
    assert_null(dynamic_config_topic(b->dc, STR("old")));    /* it is followed, not read */
    dynamic_config_forget(b->dc, STR("new"));
    assert_null(dynamic_config_topic(b->dc, STR("new")));
    rq.topic_states_count = 1;
    dynamic_config_prepare(b->dc, &rq, count_done, b);
    assert_int_equal(b->done, 2); /* nothing to read: at once */
}

/* ---- Old notifications */

/* What another client of the store does while the broker's session is over. */
static void unseen(struct bed *b, void (*change)(struct bed *b))
{
    struct coord *own = b->w->c;
    coord_memory_expire(b->w->memory, coord_session_id(own));
    b->w->c = coord_memory_connect(b->w->memory, (struct coord_listener){b->w->loop, NULL, NULL});
    change(b);
    world_close(b->w);
    b->w->c = own;
    settle(b);
}

static void change_everything(struct bed *b)
{
    store(b, "/config/topics/changed", "\"retention.ms\":\"2\"");
    store(b, "/config/topics/came", "\"retention.ms\":\"3\"");
    assert_int_equal(call_delete(b->w, "/config/topics/went", COORD_ANY_VERSION).r.err, OK);
    assert_int_equal(call_delete(b->w, "/config/brokers/7", COORD_ANY_VERSION).r.err, OK);
}

static void what_changed_while_a_session_was_over_is_found(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/changed", "\"retention.ms\":\"1\"");
    store(b, "/config/topics/same", "\"retention.ms\":\"1\"");
    store(b, "/config/topics/went", "\"retention.ms\":\"1\"");
    store(b, "/config/brokers/7", "\"message.max.bytes\":\"3000\"");
    bed_open(b);
    settle(b);
    fake.reconfigured = fake.broker_changes = 0;
    unseen(b, change_everything);
    assert_override(b, "changed", "retention.ms", "1"); /* nobody has told */
    coord_renew(b->w->c);
    dynamic_config_renew(b->dc);
    settle(b);
    assert_override(b, "changed", "retention.ms", "2");
    assert_override(b, "came", "retention.ms", "3");
    assert_override(b, "same", "retention.ms", "1");
    assert_null(dynamic_config_topic(b->dc, STR("went")));
    assert_int_equal(fake.reconfigured, 3); /* all but "same" */
    assert_int_equal(fake.broker_changes, 1);
    assert_int_equal(live_i64(b, CFG_MESSAGE_MAX_BYTES), 1048588);
    store(b, "/config/topics/same", "\"retention.ms\":\"4\""); /* the watch is set again */
    notify(b, "topics/same");
    settle(b);
    assert_override(b, "same", "retention.ms", "4");
}

static void a_session_that_ends_once_more_meanwhile_is_waited_for(void **state)
{
    struct bed *b = *state;
    store(b, "/config/topics/changed", "\"retention.ms\":\"1\"");
    store(b, "/config/topics/went", "\"retention.ms\":\"1\"");
    store(b, "/config/brokers/7", "\"message.max.bytes\":\"3000\"");
    bed_open(b);
    settle(b);
    unseen(b, change_everything);
    dynamic_config_renew(b->dc); /* too early: the calls fail with the session */
    settle(b);
    assert_override(b, "changed", "retention.ms", "1");
    coord_renew(b->w->c);
    dynamic_config_renew(b->dc);
    settle(b);
    assert_override(b, "changed", "retention.ms", "2");
    assert_null(dynamic_config_topic(b->dc, STR("went")));
}

static void notifications_older_than_a_quarter_of_an_hour_are_removed(void **state)
{
    struct bed *b = *state;
    for (int i = 0; i < 3; i++) notify(b, "topics/t");
    bed_open(b);
    settle(b);
    assert_int_equal(call_children(b->w, "/config/changes", COORD_NO_WATCH).r.child_count, 3);
    ahead_ms = 14 * 60 * 1000;
    notify(b, "topics/t");
    assert_int_equal(call_children(b->w, "/config/changes", COORD_NO_WATCH).r.child_count, 4);
    ahead_ms = 16 * 60 * 1000;
    notify(b, "topics/t");
    assert_int_equal(call_children(b->w, "/config/changes", COORD_NO_WATCH).r.child_count, 0);
}

/* ---- Settings */

static void a_topic_without_overrides_acts_as_kafka_does_by_default(void **state)
{
    (void)state;
    struct config *cfg;
    assert_int_equal(config_load(&cfg, &(struct config_input){0}, NULL), OK);
    struct topic_settings s;
    topic_settings_build(&s, cfg, NULL);
    assert_int_equal(s.log.segment_bytes, 1 << 30);
    assert_int_equal(s.log.segment_ms, 7 * 24 * 3600 * 1000LL);
    assert_int_equal(s.log.segment_jitter_ms, 0);
    assert_int_equal(s.log.segment_index_bytes, 10 << 20);
    assert_int_equal(s.log.index_interval_bytes, 4096);
    assert_int_equal(s.log.retention_ms, 7 * 24 * 3600 * 1000LL);
    assert_int_equal(s.log.retention_bytes, -1);
    assert_true(s.log.cleanup_delete);
    assert_false(s.log.cleanup_compact);
    assert_false(s.log.log_append_time);
    assert_true(s.log.flush_messages == INT64_MAX && s.log.flush_ms == INT64_MAX);
    assert_int_equal(s.log.file_delete_delay_ms, 60 * 1000);
    assert_int_equal(s.log.producer_expiration_ms, 24 * 3600 * 1000);
    assert_int_equal(s.max_message_bytes, 1024 * 1024 + 12);
    assert_int_equal(s.min_insync_replicas, 1);
    assert_true(s.timestamp_before_max_ms == INT64_MAX && s.timestamp_after_max_ms == INT64_MAX);
    config_unref(cfg);
}

static void a_topics_own_settings_win_over_the_brokers(void **state)
{
    (void)state;
    static const char *const overrides[] = {"log.retention.hours=2", "message.max.bytes=500",
                                            "log.cleanup.policy=compact"};
    const struct config_input in = {.overrides = overrides, .override_count = ARRAY_COUNT(overrides)};
    struct config *cfg;
    assert_int_equal(config_load(&cfg, &in, NULL), OK);
    struct config_map *own = config_map_new();
    config_map_set(own, STR("max.message.bytes"), STR("700"));
    config_map_set(own, STR("message.timestamp.type"), STR("LogAppendTime"));
    config_map_set(own, STR("segment.bytes"), STR("a lot"));
    struct topic_settings s;
    topic_settings_build(&s, cfg, own);
    assert_int_equal(s.log.retention_ms, 2 * 3600 * 1000);
    assert_int_equal(s.max_message_bytes, 700);
    assert_true(s.log.cleanup_compact);
    assert_false(s.log.cleanup_delete);
    assert_true(s.log.log_append_time);
    assert_int_equal(s.log.segment_bytes, 1 << 30); /* what does not parse is passed over */
    config_map_free(own);
    config_unref(cfg);
}

#define WITH_BED(name) cmocka_unit_test_setup_teardown(name, bed_new, bed_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BED(what_is_stored_is_in_effect_after_the_start),
        WITH_BED(many_topics_are_all_read),
        WITH_BED(a_topic_with_an_unreadable_node_loses_nothing_until_it_is_mended),
        WITH_BED(topic_settings_that_cannot_be_used_leave_the_others_in_effect),
        WITH_BED(a_broker_starts_with_an_unreadable_node_of_its_own_and_removes_nothing),
        WITH_BED(a_notified_topic_is_read_again_and_reconfigured),
        WITH_BED(a_change_that_changes_nothing_disturbs_nobody),
        WITH_BED(what_is_malformed_or_concerns_others_is_passed_over),
        WITH_BED(a_broker_value_gives_every_topic_new_settings_before_the_answer),
        WITH_BED(a_broker_value_that_cannot_be_is_left_out),
        WITH_BED(unreadable_settings_leave_the_old_ones_in_effect),
        WITH_BED(a_setting_that_becomes_unusable_keeps_its_value_and_the_others_change),
        WITH_BED(settings_that_are_removed_give_the_defaults_back),
        WITH_BED(a_new_topic_gets_its_settings_although_nobody_notified),
        WITH_BED(what_changed_while_a_session_was_over_is_found),
        WITH_BED(a_session_that_ends_once_more_meanwhile_is_waited_for),
        WITH_BED(notifications_older_than_a_quarter_of_an_hour_are_removed),
        cmocka_unit_test(a_topic_without_overrides_acts_as_kafka_does_by_default),
        cmocka_unit_test(a_topics_own_settings_win_over_the_brokers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
