/* sqlite_table.h: the tree's table as rows of an SQLite file; one row a node, (parent path, name) its key, so children
 * are a range scan and a look-up is one search.
 *
 * A burst of creates looks at and changes the same parents over and over, so the last few nodes are kept decoded and
 * their rows are written only when they make room for others, or at the commit.
 * Thread: one at a time. */
#ifndef COORD_SQLITE_TABLE_H
#define COORD_SQLITE_TABLE_H

#include <sqlite3.h>

#include "coord/tree.h"

/* The tables that a new file is made of. */
extern const char sqlite_table_schema[];

enum sql {
    SQL_LOAD,
    SQL_INSERT,
    SQL_UPDATE,
    SQL_UPDATE_DATA,
    SQL_REMOVE,
    SQL_CHILDREN,
    SQL_OWNED,
    SQL_SET_ZXID,
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_MARK,
    SQL_UNDO,
    SQL_KEEP,
    SQL_COUNT
};

enum { TABLE_CACHED = 4 };

struct cached_node {
    struct node node;
    size_t path_size; /* 0: nothing */
    bool dirty;       /* the row is older */
    uint64_t used;    /* when last; the smallest makes room */
    char path[COORD_PATH_MAX];
};

struct sqlite_table {
    struct node_table table;
    sqlite3 *db;
    const char *file; /* for faults */
    sqlite3_stmt *sql[SQL_COUNT];
    bool unsynced; /* the connection's commits do not wait for the disk */
    bool failed;   /* SQLite failed in this transaction: `why` says how */
    struct fault why;
    uint64_t now;
    struct cached_node cache[TABLE_CACHED];
};

/* Takes the connection over.  An SQLite result code. */
MUST_USE int sqlite_table_open(struct sqlite_table *s, sqlite3 *db, const char *file);
/* Closes the connection too. */
void sqlite_table_close(struct sqlite_table *s);

/* One transaction; failed is false at its begin.  `durable`: its commit waits until it is on the disk.  One that is not
 * durable is on the disk with the next one that is, in order and whole; if power fails before, it never was. */
MUST_USE enum err sqlite_table_begin(struct sqlite_table *s, bool durable);
/* `zxid` -1: nothing was changed. */
MUST_USE enum err sqlite_table_commit(struct sqlite_table *s, int64_t zxid);
void sqlite_table_rollback(struct sqlite_table *s);

/* What an SQLite result code means, with an explanation. */
enum err sqlite_fault(struct fault *f, sqlite3 *db, const char *file, int rc);
enum err sqlite_fault_corrupt(struct fault *f, const char *file, const char *what);

#endif
