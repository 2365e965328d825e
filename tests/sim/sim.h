/* sim.h: one seed's world: a simulated disk, a log directory with its partitions run by the production code of src/plog
 * and src/replica on one thread, and a model of what each partition must hold.
 *
 *   sim.c    the program: seeds, processes, progress       world.c  opening, losing power, opening again
 *   steps.c  what is done to the logs                      model.c  what was written and what is promised
 *   check.c  whether a log is what the model says          files.c  whether its files are what a closed log's must be
 *   cleaned.c  what compaction may leave out
 *
 * Everything follows from the seed: no time, no address, no thread has a say. */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "os/fs_sim.h"
#include "os/rng.h"
#include "plog/plog.h"
#include "replica/replicas.h"

enum { PARTITIONS_MAX = 2, PRODUCERS = 3 };
#define SIM_DIR   "/data"
#define SIM_TOPIC "sim"

/* ---- The model of one partition */

/* A batch as it was written, header patched. */
struct sim_batch {
    int64_t base, last;
    uint8_t *bytes;
    size_t size;
    bool gone; /* deleted from the start, when what was deleted with it came back; producers may remember it */
};

struct sim_batches {
    struct sim_batch *list;
    size_t count, cap;
};

struct model {
    bool exists;                /* its directory was made, and perhaps survives */
    struct sim_batches batches; /* all that the log has had, those deleted from its start too */
    struct sim_batches ghosts;  /* failed appends: their bytes may have come to the disk all the same */
    int64_t end, start;
    int64_t cut_to;         /* a truncation that failed may have gone down to here; INT64_MAX: none */
    int64_t durable;        /* everything below was promised to survive a loss of power */
    int64_t start_max;      /* it was up there once: what came back below has lost its epoch */
    int64_t start_promised; /* the log's start was promised not to fall below */
    int32_t epoch;          /* the latest that began */
};

void model_init(struct model *m);
void model_fini(struct model *m);
/* `to` is not initialized yet. */
void model_copy(struct model *to, const struct model *from);
void sim_batches_add(struct sim_batches *bs, const uint8_t *bytes, size_t size);
void sim_batches_cut(struct sim_batches *bs, size_t count);
/* Those from..to - 1. */
void sim_batches_take_out(struct sim_batches *bs, size_t from, size_t to);
/* How many batches lie wholly below `offset`. */
size_t model_count_below(const struct model *m, int64_t offset);
/* A batch was appended, or may have been. */
void model_append(struct model *m, const uint8_t *bytes, size_t size);
void model_ghost(struct model *m, const uint8_t *bytes, size_t size);
/* Where the log ends at least when it is opened again with all that was written: in a gap nothing holds its end. */
int64_t model_sure_end(const struct model *m);
/* The log was flushed up to `offset`, or says so. */
void model_promise(struct model *m, int64_t offset);
/* From now on the log may end at `end`, the first offset that no promise holds for. */
void model_may_end_at(struct model *m, int64_t end);
void model_truncate(struct model *m, int64_t end);
/* From its start on the log holds these; what it had below may come back.  `batches` is empty then. */
void model_replace(struct model *m, int64_t start, struct sim_batches *batches);

/* ---- The world */

struct sim_partition {
    struct model model;
    struct partition *p; /* NULL: not open; lent by the replicas */
};

struct sim_config {
    bool journal, gaps, cleans, log_append_time, flush_group;
    int partitions, isr_count;
    int64_t flush_messages; /* -1: nothing is acknowledged after a flush alone */
    int power_one_in;       /* steps in which the power goes off */
    struct plog_config log;
};

struct world {
    uint64_t seed, random;
    struct rng rng;
    struct clock clock;
    int64_t now_ms;
    struct sim_config config;
    struct fs_sim *disk;
    struct loop *loop;
    struct workers *workers;
    struct grace *grace;
    struct buf_pool *pool;
    struct replicas *r; /* NULL: the broker is down */
    struct sim_partition parts[PARTITIONS_MAX];
    bool sync_failed;          /* since the last loss of power: the page cache tells of what is not on the disk */
    struct fs_sim_fault fault; /* while faults are on; what is left of it while they are off */
    int64_t crashes, faults_seen;
    int step, part; /* being done, to what */
    bool verbose, failed;
};

uint64_t draw(struct world *w, uint64_t below);
static inline bool one_in(struct world *w, uint64_t n)
{
    return draw(w, n) == 0;
}

/* What a run is asked to do. */
struct run_options {
    uint64_t seed;
    int steps;
    bool verbose;    /* each step is told */
    unsigned single; /* bits of enum fs_sim_call: the one after `fail_after` others fails, instead of random ones */
    enum err error;
    int64_t fail_after;
    struct loop *loop; /* lent: making one costs more than a run's step */
};
struct run_result {
    bool failed; /* told on standard error */
    int64_t crashes, faults;
};
struct run_result world_run(const struct run_options *opt);

/* Tells the step, when that was asked for. */
void say(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Something is not as promised: tells, and the run ends. */
void wrong(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* world.c, used by steps.c: each leaves the broker running, unless something was wrong. */
void world_stop_cleanly(struct world *w);
void world_kill(struct world *w);
void world_lose_power(struct world *w);
void world_faults_on(struct world *w);
void world_faults_off(struct world *w);

/* steps.c: does one thing, chosen by the seed. */
void step_any(struct world *w);

/* check.c */
/* The log `pl` of a broker that came up after a stop.  It must hold the model's batches from its start up to some
 * boundary at or above `end_min`; the model is told what has survived. */
void check_recovered(struct world *w, struct sim_partition *sp, int64_t end_min);
/* The log is just what the model says. */
void check_reads(struct world *w, struct sim_partition *sp);
/* Producers, epochs, transactions. */
void check_state(struct world *w, struct sim_partition *sp);

/* What the log holds from `from` on, added to `out`. */
void check_collect(struct world *w, struct sim_partition *sp, int64_t from, int64_t end, struct sim_batches *out);

/* cleaned.c */
/* Cleans the log, if there is anything to clean, and checks what became of it. */
void clean_once(struct world *w, struct sim_partition *sp);
/* The log holds `after` where the model has its batches: of those below `end`, which are promised, only what cleaning
 * may leave out is missing. */
void check_cleaned(struct world *w, const struct model *m, const struct sim_batches *after, int64_t end);

/* files.c: the files of a partition that was closed cleanly. */
void check_files(struct world *w, struct sim_partition *sp, int index);

/* On standard error: what there is on the disk. */
void tell_files(struct world *w);

#endif
