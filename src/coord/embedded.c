/* embedded.c: ZooKeeper's tree in an SQLite file.
 *
 * The file is made complete under another name and renamed, so a file of our name always has our mark
 * (application id) in its header, and a file without it is somebody else's.  `PRAGMA user_version` is the schema's.
 *
 * WHAT ALWAYS HOLDS
 * (1) One thread at a time uses the connection: the opener, then the job, of which there is at most one.
 * (2) Results and events of a batch leave after its COMMIT.  If that fails, every call of the batch fails.
 *     The COMMIT waits for the disk when the batch can change what outlives this process, see batch_outlives_us().
 * (3) After damage was seen (`dead`), SQLite is not called any more but to close. */
#include "coord/embedded.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/endian.h"
#include "base/mem.h"
#include "coord/sqlite_table.h"
#include "os/workers.h"

#define LOG_MODULE "coord"
#include "base/log.h"

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

struct embedded {
    struct coord c;
    struct sqlite_table table;
    struct tree tree;
    char *path;
    bool read_only;
    bool sweep; /* the dead process's ephemeral nodes are still there */
    bool dead;  /* table.why says why, for good */
    struct workers *workers;
    struct job job;

    pthread_mutex_t lock; /* guards what follows */
    struct list queue;    /* calls */
    bool job_out;
};

/* --- batches --- */

static bool call_writes(const struct coord_call *call)
{
    return call->kind != COORD_GET && call->kind != COORD_EXISTS && call->kind != COORD_CHILDREN;
}

static void batch_call(struct embedded *s, struct coord_call *call, struct list *out)
{
    if (call->is_close) {
        /* A failure shows in table.failed; the nodes then go at the next open. */
        if (!s->read_only && tree_end_session(&s->tree, s->c.session, out)) ASSERT(s->table.failed);
        list_push_back(out, &call->delivery.link);
    } else if (call_writes(call) && s->read_only) {
        coord_call_fail(call, ERR_DENIED, "The coordination store was opened for reading only.");
        list_push_back(out, &call->delivery.link);
    } else {
        tree_apply(&s->tree, call, out);
    }
}

/* Whether a batch can change anything that is still there after this process.  Ephemeral nodes are not: the next open
 * removes them, as it removes those of a killed process, so their coming and going needs no sync.  If power fails
 * before the next sync, the store is as if they had never been made, and a change id or sequential number that only
 * they had (a broker's epoch, say) is given again: all who saw it died in the same moment, for the store has one
 * process.  What is answered as durable later brings what went before to the disk, so no id that it has seen is given
 * twice. */
static bool batch_outlives_us(const struct list *calls)
{
    LIST_EACH (calls, node) {
        const struct coord_delivery *d = CONTAINER_OF(node, struct coord_delivery, link);
        const struct coord_call *call = CONTAINER_OF(d, struct coord_call, delivery);
        if (call->is_close || !call_writes(call)) continue;
        if (call->kind != COORD_CREATE || !(call->ops[0].flags & COORD_EPHEMERAL)) return true;
    }
    return false;
}

/* Executes the calls in one transaction and appends their deliveries to `out`. */
static void batch_run(struct embedded *s, struct list *calls, struct list *out)
{
    struct sqlite_table *t = &s->table;
    int64_t zxid = s->tree.zxid;
    bool sweep = s->sweep;
    enum err e = sqlite_table_begin(t, batch_outlives_us(calls));
    if (!e && sweep) e = tree_end_session(&s->tree, 0, out);
    if (!e) s->sweep = false;
    while (!t->failed && !list_is_empty(calls))
        batch_call(s, CONTAINER_OF(list_pop_front(calls), struct coord_call, delivery.link), out);
    if (!t->failed && sqlite_table_commit(t, s->tree.zxid == zxid ? -1 : s->tree.zxid) == OK) return;
    sqlite_table_rollback(t);
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
        if (d->is_result && !call->is_close) coord_call_fail(call, s->table.why.code, s->table.why.text);
    }
    if (s->table.why.code != ERR_CORRUPT || s->dead) return;
    s->dead = true;
    struct coord_delivery *news = coord_news_new(&s->c, COORD_FAILED, &s->table.why);
    if (news) list_push_back(out, &news->link);
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
        if (s->dead || s->table.failed) batch_fail(s, &calls, &out);
        if (closes) {
            tree_fini(&s->tree);
            sqlite_table_close(&s->table);
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
    if (s->table.db) sqlite_table_close(&s->table);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->path);
    mem_free(s);
}

static const struct coord_ops embedded_ops = {.submit = embedded_submit, .free = embedded_free};

/* --- opening --- */

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
    /* No journal and no sync, so these come first: the finished file is synced as a whole, a half-made one is removed.
     */
    char *script = mem_printf("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN; PRAGMA application_id = %d;"
                              "PRAGMA user_version = %d; %s COMMIT; PRAGMA journal_mode = WAL;",
                              APPLICATION_ID, SCHEMA_VERSION, sqlite_table_schema);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, script, NULL, NULL, NULL);
    mem_free(script);
    enum err e = rc == SQLITE_OK ? OK : sqlite_fault(f, db, path, rc);
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

/* What a failed beginning leaves (a full disk, say) is not to stay; if it does, the next start removes it. */
static void remove_draft(struct fs *fs, const char *draft)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < ARRAY_COUNT(suffixes); i++) {
        enum err e = remove_file(fs, draft, suffixes[i]);
        if (e) LOG_WARN("draft_left", "file=\"%s%s\" error=%s", draft, suffixes[i], err_name(e));
    }
}

/* A new, empty store: made whole beside its place, then renamed. */
static enum err create_file(struct fs *fs, const char *path, struct fault *f)
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
    /* The directory is not synced for the new name: the first durable commit of a process is, by SQLite, which has to
     * make its log's name last.  Before that nothing was promised, and a power cut leaves a whole store or none. */
    if (!e) e = fs_rename(fs, draft, path);
    if (e) fault_set(f, e, "The coordination store %s cannot be made: %s.", path, err_text(e));
out:
    if (e) remove_draft(fs, draft);
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
    if (got == 0) return sqlite_fault_corrupt(f, path, "the file is empty");
    if (got < sizeof header || memcmp(header, "SQLite format 3", 16) != 0)
        return sqlite_fault_corrupt(f, path, "it does not begin as an SQLite file does");
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
    return version ? OK : sqlite_fault_corrupt(f, path, "it has no schema version");
}

static int set_up(struct embedded *s, sqlite3 *db)
{
    char *pragmas = mem_printf("PRAGMA busy_timeout = 2000; PRAGMA cache_size = -%d; PRAGMA synchronous = FULL;"
                               "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                               "PRAGMA journal_size_limit = 1048576;",
                               CACHE_KIB);
    int rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
    mem_free(pragmas);
    return rc == SQLITE_OK ? sqlite_table_open(&s->table, db, s->path) : rc;
}

static enum err quick_check(struct embedded *s, struct fault *f)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->table.db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    enum err e = OK;
    if (rc != SQLITE_ROW)
        e = sqlite_fault(f, s->table.db, s->path, rc);
    else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
        e = sqlite_fault_corrupt(f, s->path, (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return e;
}

static enum err read_zxid(struct embedded *s, int64_t *out, struct fault *f)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->table.db, "SELECT value FROM meta WHERE key = 'zxid'", -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    enum err e = OK;
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(st, 0);
    else
        e = rc == SQLITE_DONE ? sqlite_fault_corrupt(f, s->path, "it has no change counter")
                              : sqlite_fault(f, s->table.db, s->path, rc);
    sqlite3_finalize(st);
    return e;
}

static enum err open_file(struct embedded *s, const struct coord_embedded_options *opt, struct fault *f)
{
    struct fs_stat st;
    enum err e = fs_stat(opt->fs, s->path, &st);
    if (e == ERR_NOT_FOUND && !opt->read_only) {
        e = create_file(opt->fs, s->path, f);
        if (e) return e;
        e = fs_stat(opt->fs, s->path, &st);
    }
    if (e) return fault_set(f, e, "The coordination store %s cannot be opened: %s.", s->path, err_text(e));
    e = check_header(opt->fs, s->path, f);
    if (e) return e;

    int flags = opt->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    int rc = sqlite3_open_v2(s->path, &s->table.db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc == SQLITE_OK) rc = set_up(s, s->table.db);
    if (rc != SQLITE_OK) return sqlite_fault(f, s->table.db, s->path, rc);
    if (st.size <= QUICK_CHECK_BYTES_MAX) {
        e = quick_check(s, f);
        if (e) return e;
    }
    int64_t zxid = 0;
    e = read_zxid(s, &zxid, f);
    if (!e) tree_init(&s->tree, &s->table.table, opt->clock, zxid + 1);
    return e;
}

enum err coord_embedded_open(struct coord **out, const struct coord_embedded_options *opt, struct fault *f)
{
    struct embedded *s = mem_zalloc(1, sizeof *s);
    s->path = mem_printf("%s/" COORD_EMBEDDED_FILE, opt->dir);
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
    sqlite_table_close(&s->table);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->path);
    mem_free(s);
    return e;
}
