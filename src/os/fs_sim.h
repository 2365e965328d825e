/* fs_sim.h: a file system in memory that knows what is on its disk and what is only written, loses what was not synced
 * when the power fails, and fails calls when it is told to.  For tests and the simulator.
 *
 * WHAT A CRASH LEAVES of what was not synced is decided by a seed:
 * - of a file's pages any subset, torn at sectors or at a byte at times, each as it was at some moment since the last
 *   sync; its size as it was at some moment since then, so that a tail can be there without its data (zeros), data be
 *   lost with its size, and a truncation be undone.  A truncation that survived shows no byte of what it had cut.
 * - of changes of directories either the first so many (a journal, as of ext4 and XFS), or, without a journal, any
 *   subset that leaves a tree: then only fs_sync_dir() of the very directory makes an entry sure.
 * A sync of a file makes its content and size sure, not its name.  A sync that fails drops what it should have written,
 * as Linux does: reads still see it, a later sync does not write it, and a crash loses it.
 *
 * Not simulated: permissions, links, mapping (ERR_UNSUPPORTED), holes (zeros take space).
 * Thread: one at a time. */
#ifndef OS_FS_SIM_H
#define OS_FS_SIM_H

#include "os/clock.h"
#include "os/fs.h"

enum { FS_SIM_PAGE = 4096, FS_SIM_SECTOR = 512 };

struct fs_sim;

struct fs_sim_options {
    uint64_t seed;
    struct clock *clock;    /* times of modification; NULL: always 0 */
    bool journal;           /* changes of directories reach the disk in their order */
    int64_t capacity_bytes; /* of all files; 0: no limit */
    unsigned write_back;    /* one in so many writes reaches the disk by itself, a page of it; 0: never */
};

/* An empty file system, its root there. */
struct fs_sim *fs_sim_new(const struct fs_sim_options *opt);
/* All files must be closed. */
void fs_sim_free(struct fs_sim *s);
struct fs *fs_sim_fs(struct fs_sim *s);

/* ---- Losing power */

enum fs_sim_survival { FS_SIM_NOTHING, FS_SIM_ANYTHING, FS_SIM_EVERYTHING }; /* of what was not synced */

/* A new file system with what a crash at this moment leaves of `s`, all of it on the disk.  `s` stays as it was.  No
 * faults are set, and there is power. */
struct fs_sim *fs_sim_after_crash(const struct fs_sim *s, uint64_t seed, enum fs_sim_survival survival);

/* Calls that change something, or make it sure, since the beginning. */
int64_t fs_sim_changes(const struct fs_sim *s);
/* After so many more of those the power is off: every call is an ERR_IO without effect.  INT64_MAX: never. */
void fs_sim_power_off_after(struct fs_sim *s, int64_t changes);
bool fs_sim_has_power(const struct fs_sim *s);

/* ---- Failing calls */

enum fs_sim_call {
    FS_SIM_OPEN = 1,
    FS_SIM_READ = 2,
    FS_SIM_WRITE = 4, /* a part of it may have been written */
    FS_SIM_TRUNCATE = 8,
    FS_SIM_SYNC = 16, /* of files and of directories */
    FS_SIM_RENAME = 32,
    FS_SIM_UNLINK = 64, /* of directories too */
    FS_SIM_MKDIR = 128,
    FS_SIM_LIST = 256,
    FS_SIM_STAT = 512, /* also the size of an open file, and the space */
    FS_SIM_ALLOCATE = 1024,
    FS_SIM_ALL = 2047
};

struct fs_sim_fault {
    unsigned calls;     /* bits of enum fs_sim_call; 0: no fault */
    const char *suffix; /* only of paths that end with this; NULL: of any.  Lent while the fault is set */
    int64_t after;      /* so many such calls go through first, */
    int64_t times;      /*   then so many fail, */
    unsigned one_in;    /*   each with this probability; 0 and 1: every one */
    enum err e;         /*   with this */
};
/* Replaces what was set before; copied.  The count below starts anew. */
void fs_sim_set_fault(struct fs_sim *s, const struct fs_sim_fault *fault);
/* What is left of it: `after` and `times` have gone down. */
void fs_sim_get_fault(const struct fs_sim *s, struct fs_sim_fault *out);
/* How many calls failed by it. */
int64_t fs_sim_fault_count(const struct fs_sim *s);

/* Changes the disk's size; below what is used nothing more can be written. */
void fs_sim_set_capacity(struct fs_sim *s, int64_t bytes);

#endif
