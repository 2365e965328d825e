/* fs_sim_internal.h: what fs_sim.c (the calls) and fs_sim_crash.c (what is left) share. */
#ifndef OS_FS_SIM_INTERNAL_H
#define OS_FS_SIM_INTERNAL_H

#include "os/fs_sim.h"

struct sim_node;

struct sim_entry {
    char *name;
    struct sim_node *node;
};

struct sim_entries {
    struct sim_entry *list;
    size_t count, cap;
};

/* A file or a directory; lives as long as the file system, since a crash may bring it back. */
struct sim_node {
    struct sim_node *next; /* of all */
    bool is_dir, locked;
    int links, handles;
    int64_t modified_ms;

    /* A file, as it is.  `dirty` has a byte for each page of `data`: differs from the disk. */
    uint8_t *data, *dirty;
    size_t data_cap, dirty_cap;
    int64_t size;
    /* And on the disk; zero behind disk_cap. */
    uint8_t *disk;
    size_t disk_cap;
    int64_t disk_size;
    /* Sizes it has had since the disk's, in order; the last one is `size`. */
    int64_t *sizes;
    size_t size_count, size_cap;

    /* A directory, as it is, and on the disk. */
    struct sim_entries entries, disk_entries;

    struct sim_node *copy;   /* while a crash is worked out */
    struct sim_entries left; /*   with these entries */
};

/* A change of directories that is not on the disk yet. */
struct sim_change {
    struct sim_node *node;      /* that appears, goes or moves */
    struct sim_node *from, *to; /* directories: NULL from: it appears; NULL to: it goes */
    char *from_name, *to_name;
};

struct fs_sim {
    struct fs fs;
    struct fs_sim_options opt;
    uint64_t random;
    struct sim_node *root, *all;
    struct sim_change *changes;
    size_t change_count, change_cap;
    struct fs_sim_fault fault;
    int64_t fault_count, calls_changing, power_left;
    int64_t used; /* bytes of files that have a name or are open */
    int open_files;
};

/* Even over [0, bound). */
uint64_t sim_draw(uint64_t *random, uint64_t bound);

struct sim_node *sim_node_new(struct fs_sim *s, bool is_dir);
struct sim_entry *sim_entries_find(const struct sim_entries *es, const char *name, size_t size);
void sim_entries_set(struct sim_entries *es, const char *name, struct sim_node *node);
void sim_entries_remove(struct sim_entries *es, const char *name);
void sim_entries_clear(struct sim_entries *es);
/* Makes the change in `from` and `to`, which are those of its directories on the disk, or what a crash leaves of them.
 * It may meet what earlier changes that were lost should have made. */
void sim_change_apply(const struct sim_change *c, struct sim_entries *from, struct sim_entries *to);
void sim_change_fini(struct sim_change *c);
/* Grows a zero-filled array of bytes. */
void sim_grow(uint8_t **bytes, size_t *cap, size_t need);

#endif
