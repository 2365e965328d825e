/* sqlite_table.c: nodes as rows. */
#include "coord/sqlite_table.h"

#include <string.h>

#include "base/mem.h"

const char sqlite_table_schema[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO meta VALUES ('zxid', 0);"
    "CREATE TABLE node(parent TEXT NOT NULL, name TEXT NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL,"
    " pzxid INTEGER NOT NULL, ctime INTEGER NOT NULL, mtime INTEGER NOT NULL, owner INTEGER NOT NULL,"
    " version INTEGER NOT NULL, creates INTEGER NOT NULL, children INTEGER NOT NULL, data BLOB,"
    " PRIMARY KEY (parent, name)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX node_owner ON node(owner) WHERE owner <> 0;"
    "INSERT INTO node VALUES ('', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL);";

static const char *const sql_text[SQL_COUNT] = {
    [SQL_LOAD] = "SELECT czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, children, data FROM node"
                 " WHERE parent = ?1 AND name = ?2",
    [SQL_INSERT] =
        "INSERT INTO node(parent, name, czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, children,"
        " data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING",
    [SQL_UPDATE] = "UPDATE node SET mzxid = ?4, pzxid = ?5, mtime = ?7, version = ?9, creates = ?10, children = ?11"
                   " WHERE parent = ?1 AND name = ?2",
    [SQL_UPDATE_DATA] = "UPDATE node SET mzxid = ?4, pzxid = ?5, mtime = ?7, version = ?9, creates = ?10,"
                        " children = ?11, data = ?12 WHERE parent = ?1 AND name = ?2",
    [SQL_REMOVE] = "DELETE FROM node WHERE parent = ?1 AND name = ?2",
    [SQL_CHILDREN] = "SELECT name FROM node WHERE parent = ?1 ORDER BY name",
    [SQL_OWNED] = "SELECT parent, name FROM node WHERE owner <> 0 AND (?1 = 0 OR owner = ?1)",
    [SQL_SET_ZXID] = "UPDATE meta SET value = ?1 WHERE key = 'zxid'",
    [SQL_BEGIN] = "BEGIN",
    [SQL_COMMIT] = "COMMIT",
    [SQL_MARK] = "SAVEPOINT multi",
    [SQL_UNDO] = "ROLLBACK TO multi",
    [SQL_KEEP] = "RELEASE multi",
};

/* --- faults --- */

static enum err err_of_sqlite(sqlite3 *db, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return OK;
    case SQLITE_FULL: return ERR_FULL;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_SCHEMA:
    case SQLITE_MISMATCH:
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT: return ERR_CORRUPT; /* our statements are fixed: only a damaged file can break them */
    case SQLITE_READONLY:
    case SQLITE_PERM: return ERR_DENIED;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ERR_LOCKED;
    case SQLITE_TOOBIG: return ERR_TOO_BIG;
    default: break;
    }
    int errnum = db ? sqlite3_system_errno(db) : 0;
    return errnum ? err_of_errno(errnum) : ERR_IO;
}

enum err sqlite_fault_corrupt(struct fault *f, const char *file, const char *what)
{
    return fault_set(
        f, ERR_CORRUPT,
        "The coordination store %s is damaged: %s.  It holds topics, configurations and ids; the records of"
        " the partitions are not touched.  Restore the file from a backup, or remove it (with its -wal and"
        " -shm) to start with an empty store.",
        file, what);
}

enum err sqlite_fault(struct fault *f, sqlite3 *db, const char *file, int rc)
{
    enum err e = err_of_sqlite(db, rc);
    const char *what = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
    ASSERT((rc & 0xff) != SQLITE_NOMEM && (rc & 0xff) != SQLITE_MISUSE);
    if (e == ERR_CORRUPT) return sqlite_fault_corrupt(f, file, what);
    if (e == ERR_FULL)
        return fault_set(f, e, "The coordination store %s cannot be written: %s.  Free space on its disk.", file, what);
    return fault_set(f, e, "The coordination store %s cannot be used: %s (%s).", file, what, err_text(e));
}

/* --- the table --- */

static struct sqlite_table *table_of(struct node_table *t)
{
    return CONTAINER_OF(t, struct sqlite_table, table);
}

static enum err table_failed(struct sqlite_table *s, int rc)
{
    if (!s->failed) sqlite_fault(&s->why, s->db, s->file, rc);
    s->failed = true;
    return s->why.code;
}

/* Runs a statement that gives no rows. */
static enum err run(struct sqlite_table *s, enum sql which)
{
    int rc = sqlite3_step(s->sql[which]);
    enum err e = rc == SQLITE_DONE ? OK : table_failed(s, rc);
    sqlite3_reset(s->sql[which]);
    return e;
}

static void bind_str(sqlite3_stmt *st, int at, struct str s)
{
    /* Lent, not copied: the statement is reset before its arguments go. */
    sqlite3_bind_text(st, at, s.data ? s.data : "", (int)s.size, SQLITE_STATIC);
}

static void bind_path(sqlite3_stmt *st, struct str path)
{
    struct str parent, name;
    tree_split_path(path, &parent, &name);
    bind_str(st, 1, parent);
    bind_str(st, 2, name);
}

static void bind_node(sqlite3_stmt *st, const struct node *n)
{
    const int64_t values[] = {n->czxid, n->mzxid,   n->pzxid,   n->ctime_ms,   n->mtime_ms,
                              n->owner, n->version, n->creates, n->child_count};
    for (int i = 0; i < (int)ARRAY_COUNT(values); i++)
        if (i + 3 <= sqlite3_bind_parameter_count(st)) sqlite3_bind_int64(st, i + 3, values[i]);
}

static void bind_data(sqlite3_stmt *st, struct bytes data)
{
    if (!data.data)
        sqlite3_bind_null(st, 12);
    else
        sqlite3_bind_blob(st, 12, data.data, (int)data.size, SQLITE_STATIC);
}

/* --- the cache --- */

static struct cached_node *cache_find(struct sqlite_table *s, struct str path)
{
    for (size_t i = 0; i < TABLE_CACHED; i++) {
        struct cached_node *cn = &s->cache[i];
        if (cn->path_size != path.size || memcmp(cn->path, path.data, path.size) != 0) continue;
        cn->used = ++s->now;
        return cn;
    }
    return NULL;
}

/* Brings the row up to date. */
static enum err cache_flush(struct sqlite_table *s, struct cached_node *cn)
{
    if (!cn->dirty) return OK;
    cn->dirty = false;
    bind_path(s->sql[SQL_UPDATE], (struct str){cn->path, cn->path_size});
    bind_node(s->sql[SQL_UPDATE], &cn->node);
    return run(s, SQL_UPDATE);
}

static enum err cache_flush_all(struct sqlite_table *s)
{
    enum err e = OK;
    for (size_t i = 0; i < TABLE_CACHED && !e; i++) e = cache_flush(s, &s->cache[i]);
    return e;
}

static void cache_drop_all(struct sqlite_table *s)
{
    for (size_t i = 0; i < TABLE_CACHED; i++) s->cache[i].path_size = s->cache[i].dirty = 0;
}

static enum err cache_put(struct sqlite_table *s, struct str path, const struct node *n, bool dirty)
{
    struct cached_node *cn = cache_find(s, path);
    if (!cn) {
        cn = &s->cache[0];
        for (size_t i = 1; i < TABLE_CACHED; i++)
            if (s->cache[i].used < cn->used) cn = &s->cache[i];
        enum err e = cache_flush(s, cn);
        if (e) return e;
        ASSERT(path.size <= sizeof cn->path);
        memcpy(cn->path, path.data, path.size);
        cn->path_size = path.size;
        cn->used = ++s->now;
    }
    cn->node = *n;
    cn->dirty = dirty;
    return OK;
}

/* --- operations --- */

static enum err load_row(struct sqlite_table *s, struct str path, struct node *out, struct bytes *data)
{
    sqlite3_stmt *st = s->sql[SQL_LOAD];
    bind_path(st, path);
    int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW) {
        sqlite3_reset(st);
        return rc == SQLITE_DONE ? ERR_NOT_FOUND : table_failed(s, rc);
    }
    *out = (struct node){.czxid = sqlite3_column_int64(st, 0),
                         .mzxid = sqlite3_column_int64(st, 1),
                         .pzxid = sqlite3_column_int64(st, 2),
                         .ctime_ms = sqlite3_column_int64(st, 3),
                         .mtime_ms = sqlite3_column_int64(st, 4),
                         .owner = sqlite3_column_int64(st, 5),
                         .version = sqlite3_column_int(st, 6),
                         .creates = sqlite3_column_int(st, 7),
                         .child_count = sqlite3_column_int(st, 8)};
    if (!data) {
        sqlite3_reset(st);
        return OK;
    }
    if (sqlite3_column_type(st, 9) == SQLITE_NULL) {
        *data = (struct bytes){NULL, 0};
    } else {
        const void *blob = sqlite3_column_blob(st, 9);
        *data = (struct bytes){blob ? blob : (const uint8_t *)"", (size_t)sqlite3_column_bytes(st, 9)};
    }
    return OK;
}

static enum err table_load(struct node_table *t, struct str path, struct node *out, struct bytes *data)
{
    struct sqlite_table *s = table_of(t);
    sqlite3_reset(s->sql[SQL_LOAD]); /* the last load's data was lent until now */
    struct cached_node *cn = cache_find(s, path);
    if (cn && !data) {
        *out = cn->node;
        return OK;
    }
    enum err e = cn ? cache_flush(s, cn) : OK;
    if (!e) e = load_row(s, path, out, data);
    if (!e && !data) e = cache_put(s, path, out, false); /* with data it is a client's read: no parent to be */
    return e;
}

static enum err table_insert(struct node_table *t, struct str path, const struct node *n, struct bytes data)
{
    struct sqlite_table *s = table_of(t);
    sqlite3_stmt *st = s->sql[SQL_INSERT];
    bind_path(st, path);
    bind_node(st, n);
    bind_data(st, data);
    enum err e = run(s, SQL_INSERT);
    if (!e && sqlite3_changes(s->db) == 0) e = ERR_EXISTS;
    return e ? e : cache_put(s, path, n, false);
}

static enum err table_update(struct node_table *t, struct str path, const struct node *n, const struct bytes *data)
{
    struct sqlite_table *s = table_of(t);
    if (!data) return cache_put(s, path, n, true);
    bind_path(s->sql[SQL_UPDATE_DATA], path);
    bind_node(s->sql[SQL_UPDATE_DATA], n);
    bind_data(s->sql[SQL_UPDATE_DATA], *data);
    enum err e = run(s, SQL_UPDATE_DATA);
    return e ? e : cache_put(s, path, n, false);
}

static enum err table_remove(struct node_table *t, struct str path)
{
    struct sqlite_table *s = table_of(t);
    struct cached_node *cn = cache_find(s, path);
    if (cn) cn->path_size = cn->dirty = 0;
    bind_path(s->sql[SQL_REMOVE], path);
    return run(s, SQL_REMOVE);
}

static struct str column_str(sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return (struct str){text ? text : "", (size_t)sqlite3_column_bytes(st, column)};
}

static enum err table_children(struct node_table *t, struct str path, node_name_fn each, void *arg)
{
    struct sqlite_table *s = table_of(t);
    sqlite3_stmt *st = s->sql[SQL_CHILDREN];
    bind_str(st, 1, path);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) each(arg, column_str(st, 0));
    enum err e = rc == SQLITE_DONE ? OK : table_failed(s, rc);
    sqlite3_reset(st);
    return e;
}

static enum err table_owned(struct node_table *t, int64_t owner, node_name_fn each, void *arg)
{
    struct sqlite_table *s = table_of(t);
    sqlite3_stmt *st = s->sql[SQL_OWNED];
    sqlite3_bind_int64(st, 1, owner);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct str parent = column_str(st, 0), name = column_str(st, 1);
        char *path = mem_printf("%.*s/%.*s", parent.size > 1 ? (int)parent.size : 0, parent.data, STR_ARG(name));
        each(arg, str_of(path));
        mem_free(path);
    }
    enum err e = rc == SQLITE_DONE ? OK : table_failed(s, rc);
    sqlite3_reset(st);
    return e;
}

/* What a multi may have to undo is in the rows, not in the cache. */
static enum err table_mark(struct node_table *t)
{
    struct sqlite_table *s = table_of(t);
    enum err e = cache_flush_all(s);
    return e ? e : run(s, SQL_MARK);
}

static enum err table_undo(struct node_table *t)
{
    struct sqlite_table *s = table_of(t);
    sqlite3_reset(s->sql[SQL_LOAD]);
    cache_drop_all(s);
    enum err e = run(s, SQL_UNDO);
    return e ? e : run(s, SQL_KEEP);
}

static enum err table_keep(struct node_table *t)
{
    return run(table_of(t), SQL_KEEP);
}

static const struct node_table_ops table_ops = {table_load,  table_insert, table_update, table_remove, table_children,
                                                table_owned, table_mark,   table_undo,   table_keep};

/* --- transactions --- */

int sqlite_table_open(struct sqlite_table *s, sqlite3 *db, const char *file)
{
    s->table.ops = &table_ops;
    s->db = db;
    s->file = file;
    int rc = SQLITE_OK;
    for (int i = 0; i < SQL_COUNT && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(db, sql_text[i], -1, SQLITE_PREPARE_PERSISTENT, &s->sql[i], NULL);
    return rc;
}

void sqlite_table_close(struct sqlite_table *s)
{
    for (int i = 0; i < SQL_COUNT; i++) sqlite3_finalize(s->sql[i]);
    memset(s->sql, 0, sizeof s->sql);
    sqlite3_close(s->db);
    s->db = NULL;
}

/* Bindings point at arguments that are about to go. */
static void statements_reset(struct sqlite_table *s)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_reset(s->sql[i]);
        sqlite3_clear_bindings(s->sql[i]);
    }
}

/* In a write-ahead log NORMAL appends a transaction without a sync.  FULL syncs the whole log, so what was appended
 * before is on the disk no later; a checkpoint syncs it too before it touches the file.  Frames are chained by
 * checksums: what a power cut leaves is a run of whole transactions. */
static enum err set_durable(struct sqlite_table *s, bool durable)
{
    if (s->unsynced == !durable) return OK;
    /* Not a prepared statement: SQLite obeys this one when it compiles it. */
    int rc =
        sqlite3_exec(s->db, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return table_failed(s, rc);
    s->unsynced = !durable;
    return OK;
}

enum err sqlite_table_begin(struct sqlite_table *s, bool durable)
{
    s->failed = false;
    enum err e = set_durable(s, durable);
    return e ? e : run(s, SQL_BEGIN);
}

enum err sqlite_table_commit(struct sqlite_table *s, int64_t zxid)
{
    enum err e = cache_flush_all(s);
    if (!e && zxid >= 0) {
        sqlite3_bind_int64(s->sql[SQL_SET_ZXID], 1, zxid);
        e = run(s, SQL_SET_ZXID);
    }
    statements_reset(s);
    return e ? e : run(s, SQL_COMMIT);
}

void sqlite_table_rollback(struct sqlite_table *s)
{
    statements_reset(s);
    cache_drop_all(s);
    /* Some errors have rolled back by themselves. */
    if (!sqlite3_get_autocommit(s->db)) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}
