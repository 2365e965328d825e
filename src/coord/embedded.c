/* embedded.c: ZooKeeper's tree in an SQLite file.
 *
 * The table has one row a node with (parent path, name) as its key, so children are a range scan and a look-up is one
 * search.  The file is made complete under another name and renamed, so a file of our name always has our mark
 * (application id) in its header, and a file without it is somebody else's.  `PRAGMA user_version` is the schema's.
 *
 * WHAT ALWAYS HOLDS
 * (1) One thread at a time uses the connection: the opener, then the job, of which there is at most one.
 * (2) Results and events of a batch leave after its COMMIT.  If that fails, every call of the batch fails.
 * (3) After damage was seen (`dead`), SQLite is not called any more but to close. */
#include "coord/embedded.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include "base/endian.h"
#include "base/mem.h"
#include "coord/tree.h"
#include "os/workers.h"

enum {
    APPLICATION_ID = 0x4261726e, /* "Barn" */
    SCHEMA_VERSION = 1,
    HEADER_SIZE = 100, /* SQLite's file header */
    HEADER_AT_USER_VERSION = 60,
    HEADER_AT_APPLICATION_ID = 68,
    QUICK_CHECK_BYTES_MAX = 2 * 1024 * 1024, /* bigger files are checked as they are read: start must stay fast */
    CACHE_KIB = 1024,
    BATCH_CALLS_MAX = 8192
};

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

static const char *const sql_text[SQL_COUNT] = {
    [SQL_LOAD] = "SELECT czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, children, data FROM node"
                 " WHERE parent = ?1 AND name = ?2",
    [SQL_INSERT] =
        "INSERT INTO node(parent, name, czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, children,"
        " data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
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

struct embedded {
    struct coord c;
    struct node_table table;
    struct tree tree;
    sqlite3 *db;
    sqlite3_stmt *sql[SQL_COUNT];
    char *path;
    bool read_only;
    bool sweep;         /* the dead process's ephemeral nodes are still there */
    bool tables_failed; /* SQLite failed in this batch: `why` says how */
    struct fault why;
    bool dead; /* for good */
    struct workers *workers;
    struct job job;

    pthread_mutex_t lock; /* guards what follows */
    struct list queue;    /* calls */
    bool job_out;
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

static enum err fault_corrupt(struct fault *f, const char *path, const char *what)
{
    return fault_set(
        f, ERR_CORRUPT,
        "The coordination store %s is damaged: %s.  It holds topics, configurations and ids; the records of"
        " the partitions are not touched.  Restore the file from a backup, or remove it (with its -wal and"
        " -shm) to start with an empty store.",
        path, what);
}

static enum err fault_sqlite(struct fault *f, sqlite3 *db, const char *path, int rc)
{
    enum err e = err_of_sqlite(db, rc);
    const char *what = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
    ASSERT((rc & 0xff) != SQLITE_NOMEM && (rc & 0xff) != SQLITE_MISUSE);
    if (e == ERR_CORRUPT) return fault_corrupt(f, path, what);
    if (e == ERR_FULL)
        return fault_set(f, e, "The coordination store %s cannot be written: %s.  Free space on its disk.", path, what);
    return fault_set(f, e, "The coordination store %s cannot be used: %s (%s).", path, what, err_text(e));
}

/* --- the table --- */

static struct embedded *embedded_of(struct node_table *t)
{
    return CONTAINER_OF(t, struct embedded, table);
}

static enum err table_failed(struct embedded *s, int rc)
{
    if (!s->tables_failed) fault_sqlite(&s->why, s->db, s->path, rc);
    s->tables_failed = true;
    return s->why.code;
}

/* Runs a statement that gives no rows. */
static enum err run(struct embedded *s, enum sql which)
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

static enum err embedded_load(struct node_table *t, struct str path, struct node *out, struct bytes *data)
{
    struct embedded *s = embedded_of(t);
    sqlite3_stmt *st = s->sql[SQL_LOAD];
    sqlite3_reset(st); /* the last load's data was lent until now */
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

static enum err embedded_insert(struct node_table *t, struct str path, const struct node *n, struct bytes data)
{
    struct embedded *s = embedded_of(t);
    sqlite3_stmt *st = s->sql[SQL_INSERT];
    bind_path(st, path);
    bind_node(st, n);
    bind_data(st, data);
    return run(s, SQL_INSERT);
}

static enum err embedded_update(struct node_table *t, struct str path, const struct node *n, const struct bytes *data)
{
    struct embedded *s = embedded_of(t);
    enum sql which = data ? SQL_UPDATE_DATA : SQL_UPDATE;
    bind_path(s->sql[which], path);
    bind_node(s->sql[which], n);
    if (data) bind_data(s->sql[which], *data);
    return run(s, which);
}

static enum err embedded_remove(struct node_table *t, struct str path)
{
    struct embedded *s = embedded_of(t);
    bind_path(s->sql[SQL_REMOVE], path);
    return run(s, SQL_REMOVE);
}

static struct str column_str(sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return (struct str){text ? text : "", (size_t)sqlite3_column_bytes(st, column)};
}

static enum err embedded_children(struct node_table *t, struct str path, node_name_fn each, void *arg)
{
    struct embedded *s = embedded_of(t);
    sqlite3_stmt *st = s->sql[SQL_CHILDREN];
    bind_str(st, 1, path);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) each(arg, column_str(st, 0));
    enum err e = rc == SQLITE_DONE ? OK : table_failed(s, rc);
    sqlite3_reset(st);
    return e;
}

static enum err embedded_owned(struct node_table *t, int64_t owner, node_name_fn each, void *arg)
{
    struct embedded *s = embedded_of(t);
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

static enum err embedded_mark(struct node_table *t)
{
    return run(embedded_of(t), SQL_MARK);
}

static enum err embedded_undo(struct node_table *t)
{
    struct embedded *s = embedded_of(t);
    sqlite3_reset(s->sql[SQL_LOAD]);
    enum err e = run(s, SQL_UNDO);
    return e ? e : run(s, SQL_KEEP);
}

static enum err embedded_keep(struct node_table *t)
{
    return run(embedded_of(t), SQL_KEEP);
}

static const struct node_table_ops table_ops = {embedded_load,   embedded_insert,   embedded_update,
                                                embedded_remove, embedded_children, embedded_owned,
                                                embedded_mark,   embedded_undo,     embedded_keep};

/* --- batches --- */

static void statements_reset(struct embedded *s)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_reset(s->sql[i]);
        sqlite3_clear_bindings(s->sql[i]); /* they point at arguments that are about to go */
    }
}

static void batch_call(struct embedded *s, struct coord_call *call, struct list *out)
{
    bool writes = call->kind != COORD_GET && call->kind != COORD_EXISTS && call->kind != COORD_CHILDREN;
    if (call->is_close) {
        /* A failure shows in tables_failed; the nodes then go at the next open. */
        if (!s->read_only && tree_end_session(&s->tree, s->c.session, out)) ASSERT(s->tables_failed);
        list_push_back(out, &call->delivery.link);
    } else if (writes && s->read_only) {
        coord_call_fail(call, ERR_DENIED, "The coordination store was opened for reading only.");
        list_push_back(out, &call->delivery.link);
    } else {
        tree_apply(&s->tree, call, out);
    }
}

/* Executes the calls in one transaction and appends their deliveries to `out`. */
static void batch_run(struct embedded *s, struct list *calls, struct list *out)
{
    int64_t zxid = s->tree.zxid;
    bool sweep = s->sweep;
    s->tables_failed = false;
    enum err e = run(s, SQL_BEGIN);
    if (!e && sweep) e = tree_end_session(&s->tree, 0, out);
    if (!e) s->sweep = false;
    while (!s->tables_failed && !list_is_empty(calls))
        batch_call(s, CONTAINER_OF(list_pop_front(calls), struct coord_call, delivery.link), out);
    if (!s->tables_failed && s->tree.zxid != zxid) {
        sqlite3_bind_int64(s->sql[SQL_SET_ZXID], 1, s->tree.zxid);
        e = run(s, SQL_SET_ZXID);
    }
    statements_reset(s);
    if (!s->tables_failed) e = run(s, SQL_COMMIT);
    if (!s->tables_failed) return;

    /* Some errors have rolled back by themselves. */
    if (!sqlite3_get_autocommit(s->db)) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    s->tree.zxid = zxid;
    s->sweep = sweep;
}

/* The batch failed: so did every call in it. */
static void batch_fail(struct embedded *s, struct list *calls, struct list *out)
{
    for (struct list_node *n; (n = list_pop_front(calls));) list_push_back(out, n);
    LIST_EACH (out, node) {
        struct coord_delivery *d = CONTAINER_OF(node, struct coord_delivery, link);
        struct coord_call *call = CONTAINER_OF(d, struct coord_call, delivery);
        if (d->is_result && !call->is_close) coord_call_fail(call, s->why.code, s->why.text);
    }
    if (s->why.code != ERR_CORRUPT || s->dead) return;
    s->dead = true;
    struct coord_delivery *news = coord_news_new(&s->c, COORD_FAILED, &s->why);
    if (news) list_push_back(out, &news->link);
}

static void db_close(struct embedded *s)
{
    for (int i = 0; i < SQL_COUNT; i++) sqlite3_finalize(s->sql[i]);
    memset(s->sql, 0, sizeof s->sql);
    sqlite3_close(s->db);
    s->db = NULL;
}

static bool take_calls(struct embedded *s, struct list *calls)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < BATCH_CALLS_MAX && !list_is_empty(&s->queue); i++)
        list_push_back(calls, list_pop_front(&s->queue));
    pthread_mutex_unlock(&s->lock);
    return !list_is_empty(calls);
}

static void job_work(struct job *job)
{
    struct embedded *s = CONTAINER_OF(job, struct embedded, job);
    struct list calls, out;
    list_init(&calls);
    list_init(&out);
    while (take_calls(s, &calls)) {
        /* The close is the last call of a session. */
        struct coord_delivery *last = CONTAINER_OF(calls.head.prev, struct coord_delivery, link);
        bool closes = CONTAINER_OF(last, struct coord_call, delivery)->is_close;
        if (!s->dead) batch_run(s, &calls, &out);
        if (s->dead || s->tables_failed) batch_fail(s, &calls, &out);
        if (closes) {
            tree_fini(&s->tree);
            db_close(s);
        }
        for (struct list_node *n; (n = list_pop_front(&out));)
            coord_deliver(CONTAINER_OF(n, struct coord_delivery, link));
    }
}

static void job_done(struct job *job)
{
    struct embedded *s = CONTAINER_OF(job, struct embedded, job);
    pthread_mutex_lock(&s->lock);
    bool more = !list_is_empty(&s->queue);
    s->job_out = more;
    pthread_mutex_unlock(&s->lock);
    if (more) workers_submit(s->workers, &s->job);
}

static void embedded_submit(struct coord *c, struct coord_call *call)
{
    struct embedded *s = CONTAINER_OF(c, struct embedded, c);
    pthread_mutex_lock(&s->lock);
    list_push_back(&s->queue, &call->delivery.link);
    bool start = !s->job_out;
    s->job_out = true;
    pthread_mutex_unlock(&s->lock);
    if (start) workers_submit(s->workers, &s->job);
}

static void embedded_free(struct coord *c)
{
    struct embedded *s = CONTAINER_OF(c, struct embedded, c);
    workers_free(s->workers);
    if (s->db) db_close(s);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->path);
    mem_free(s);
}

static const struct coord_ops embedded_ops = {embedded_submit, embedded_free};

/* --- opening --- */

static const char schema[] =
    "PRAGMA synchronous = OFF;" /* the finished file is synced as a whole */
    "PRAGMA journal_mode = WAL;"
    "BEGIN;"
    "CREATE TABLE meta(key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO meta VALUES ('zxid', 0);"
    "CREATE TABLE node(parent TEXT NOT NULL, name TEXT NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL,"
    " pzxid INTEGER NOT NULL, ctime INTEGER NOT NULL, mtime INTEGER NOT NULL, owner INTEGER NOT NULL,"
    " version INTEGER NOT NULL, creates INTEGER NOT NULL, children INTEGER NOT NULL, data BLOB,"
    " PRIMARY KEY (parent, name)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX node_owner ON node(owner) WHERE owner <> 0;"
    "INSERT INTO node VALUES ('', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL);"
    "COMMIT;";

static enum err remove_file(struct fs *fs, const char *path, const char *suffix)
{
    char *name = mem_printf("%s%s", path, suffix);
    enum err e = fs_unlink(fs, name);
    mem_free(name);
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err build_file(const char *path, struct fault *f)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    char *marks = mem_printf("PRAGMA application_id = %d; PRAGMA user_version = %d;", APPLICATION_ID, SCHEMA_VERSION);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, marks, NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, schema, NULL, NULL, NULL);
    mem_free(marks);
    enum err e = rc == SQLITE_OK ? OK : fault_sqlite(f, db, path, rc);
    sqlite3_close(db);
    return e;
}

static enum err sync_file(struct fs *fs, const char *path)
{
    struct file *file;
    enum err e = fs_open(fs, path, FS_READ | FS_WRITE, &file);
    if (e) return e;
    e = file_sync(file);
    file_unref(file);
    return e;
}

/* A new, empty store: made whole beside its place, then renamed. */
static enum err create_file(struct fs *fs, const char *dir, const char *path, struct fault *f)
{
    char *draft = mem_printf("%s.new", path);
    enum err e = remove_file(fs, draft, "");
    if (!e) e = remove_file(fs, draft, "-wal");
    if (!e) e = remove_file(fs, draft, "-shm");
    /* What a removed store may have left would be taken for changes to the new one. */
    if (!e) e = remove_file(fs, path, "-wal");
    if (!e) e = remove_file(fs, path, "-shm");
    if (!e) {
        e = build_file(draft, f);
        if (e) goto out;
    }
    if (!e) e = sync_file(fs, draft);
    if (!e) e = fs_rename(fs, draft, path);
    if (!e) e = fs_sync_dir(fs, dir);
    if (e) fault_set(f, e, "The coordination store %s cannot be made: %s.", path, err_text(e));
out:
    mem_free(draft);
    return e;
}

/* Looks at the header before SQLite touches the file: what is not ours is not even opened. */
static enum err check_header(struct fs *fs, const char *path, struct fault *f)
{
    uint8_t header[HEADER_SIZE];
    size_t got = 0;
    struct file *file;
    enum err e = fs_open(fs, path, FS_READ, &file);
    if (!e) {
        e = file_pread(file, header, sizeof header, 0, &got);
        file_unref(file);
    }
    if (e) return fault_set(f, e, "The coordination store %s cannot be read: %s.", path, err_text(e));
    if (got == 0) return fault_corrupt(f, path, "the file is empty");
    if (got < sizeof header || memcmp(header, "SQLite format 3", 16) != 0)
        return fault_corrupt(f, path, "it does not begin as an SQLite file does");
    if (get_be32(header + HEADER_AT_APPLICATION_ID) != APPLICATION_ID)
        return fault_set(f, ERR_INVALID,
                         "%s is an SQLite file of another program, not a coordination store.  Move it away; it was not"
                         " changed.",
                         path);
    uint32_t version = get_be32(header + HEADER_AT_USER_VERSION);
    if (version > SCHEMA_VERSION)
        return fault_set(
            f, ERR_UNSUPPORTED,
            "The coordination store %s was written by a newer version (its schema is %u, this version reads"
            " %d).  Start that version instead; the file was not changed.",
            path, version, SCHEMA_VERSION);
    return version ? OK : fault_corrupt(f, path, "it has no schema version");
}

static int set_up(struct embedded *s)
{
    char *pragmas = mem_printf("PRAGMA busy_timeout = 2000; PRAGMA cache_size = -%d; PRAGMA synchronous = FULL;"
                               "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                               "PRAGMA journal_size_limit = 1048576;",
                               CACHE_KIB);
    int rc = sqlite3_exec(s->db, pragmas, NULL, NULL, NULL);
    mem_free(pragmas);
    for (int i = 0; i < SQL_COUNT && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(s->db, sql_text[i], -1, SQLITE_PREPARE_PERSISTENT, &s->sql[i], NULL);
    return rc;
}

static enum err quick_check(struct embedded *s, struct fault *f)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    enum err e = OK;
    if (rc != SQLITE_ROW)
        e = fault_sqlite(f, s->db, s->path, rc);
    else if (!str_is(column_str(st, 0), "ok"))
        e = fault_corrupt(f, s->path, (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return e;
}

static enum err read_zxid(struct embedded *s, int64_t *out, struct fault *f)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, "SELECT value FROM meta WHERE key = 'zxid'", -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    enum err e = OK;
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(st, 0);
    else
        e = rc == SQLITE_DONE ? fault_corrupt(f, s->path, "it has no change counter")
                              : fault_sqlite(f, s->db, s->path, rc);
    sqlite3_finalize(st);
    return e;
}

static enum err open_file(struct embedded *s, const struct coord_embedded_options *opt, struct fault *f)
{
    struct fs_stat st;
    enum err e = fs_stat(opt->fs, s->path, &st);
    if (e == ERR_NOT_FOUND && !opt->read_only) {
        e = create_file(opt->fs, opt->dir, s->path, f);
        if (e) return e;
        e = fs_stat(opt->fs, s->path, &st);
    }
    if (e) return fault_set(f, e, "The coordination store %s cannot be opened: %s.", s->path, err_text(e));
    e = check_header(opt->fs, s->path, f);
    if (e) return e;

    int flags = opt->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    int rc = sqlite3_open_v2(s->path, &s->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc == SQLITE_OK) rc = set_up(s);
    if (rc != SQLITE_OK) return fault_sqlite(f, s->db, s->path, rc);
    if (st.size <= QUICK_CHECK_BYTES_MAX) {
        e = quick_check(s, f);
        if (e) return e;
    }
    int64_t zxid = 0;
    e = read_zxid(s, &zxid, f);
    if (!e) tree_init(&s->tree, &s->table, opt->clock, zxid + 1);
    return e;
}

enum err coord_embedded_open(struct coord **out, const struct coord_embedded_options *opt, struct fault *f)
{
    struct embedded *s = mem_zalloc(1, sizeof *s);
    s->path = mem_printf("%s/" COORD_EMBEDDED_FILE, opt->dir);
    s->table.ops = &table_ops;
    s->read_only = opt->read_only;
    s->sweep = !opt->read_only;
    s->job = (struct job){.work = job_work, .done = job_done};
    pthread_mutex_init(&s->lock, NULL);
    list_init(&s->queue);
    enum err e = open_file(s, opt, f);
    if (!e) e = workers_new(&s->workers, "coord", opt->inline_calls ? 0 : 1, f);
    if (e) goto fail;
    /* Any session that made an ephemeral node has a smaller id: ids are zxids of the moment of the open. */
    coord_init(&s->c, &embedded_ops, s->tree.zxid, opt->listener);
    struct coord_delivery *news = coord_news_new(&s->c, COORD_CONNECTED, NULL);
    if (news) coord_deliver(news);
    *out = &s->c;
    return OK;
fail:
    db_close(s);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->path);
    mem_free(s);
    return e;
}
