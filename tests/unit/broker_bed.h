/* broker_bed.h: as much of a broker as its connections to other brokers need: the real network, loops that the test
 * turns, a worker, a configuration. */
#ifndef TESTS_BROKER_BED_H
#define TESTS_BROKER_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "broker/broker.h"

const struct config *broker_config(struct broker *br, const struct loop *l)
{
    return config_reader_get(&br->config_readers[loop_index(l)]);
}

/* `override`: KEY=VALUE; NULL: none. */
static inline void broker_bed_begin(struct broker *br, int32_t id, unsigned loop_count, const char *override)
{
    struct config *cfg;
    const struct config_input in = {.overrides = &override, .override_count = override != NULL};
    br->id = id;
    br->net = net_system();
    br->bufs = buf_pool_new(0);
    br->loop_count = loop_count;
    br->loops = mem_zalloc(loop_count, sizeof(struct loop *));
    br->config_readers = mem_zalloc(loop_count, sizeof *br->config_readers);
    assert_int_equal(config_load(&cfg, &in, NULL), OK);
    br->config = config_live_new(cfg);
    for (unsigned i = 0; i < loop_count; i++) {
        assert_int_equal(loop_new(&br->loops[i], clock_system(), i, NULL), OK);
        config_reader_init(&br->config_readers[i], br->config);
    }
    assert_int_equal(workers_new(&br->workers, "test", 1, NULL), OK);
}

static inline void broker_bed_turn(struct broker *br)
{
    for (int i = 0; i < 4; i++)
        for (unsigned l = 0; l < br->loop_count; l++) loop_turn(br->loops[l], 0);
}

/* What the test has made with it must be gone; what is left to be told by the loops is told. */
static inline void broker_bed_end(struct broker *br)
{
    workers_free(br->workers);
    broker_bed_turn(br);
    for (unsigned i = 0; i < br->loop_count; i++) config_reader_fini(&br->config_readers[i]);
    config_live_free(br->config);
    for (unsigned i = 0; i < br->loop_count; i++) loop_free(br->loops[i]);
    mem_free(br->config_readers);
    mem_free(br->loops);
    buf_pool_free(br->bufs);
}

#endif
