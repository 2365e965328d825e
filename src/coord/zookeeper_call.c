/* zookeeper_call.c: one call, from coord.h's terms to the library's and back.  What the library points to is copied
 * into the call's own memory. */
#include <stdio.h>
#include <stdlib.h>

#include "coord/zookeeper_internal.h"

enum { NUMBER_SIZE = 16 }; /* what a sequential node's name gets, and a zero */

bool zookeeper_call_reads(const struct coord_call *call)
{
    return call->kind == COORD_GET || call->kind == COORD_EXISTS || call->kind == COORD_CHILDREN;
}

/* --- errors --- */

static enum err err_of_rc(int rc)
{
    switch (rc) {
    case ZOK: return OK;
    case ZNONODE: return ERR_NOT_FOUND;
    case ZNODEEXISTS: return ERR_EXISTS;
    case ZBADVERSION: return ERR_VERSION;
    case ZNOTEMPTY: return ERR_NOT_EMPTY;
    case ZBADARGUMENTS:
    case ZNOCHILDRENFOREPHEMERALS: return ERR_INVALID;
    case ZNOAUTH:
    case ZINVALIDACL:
    case ZSESSIONCLOSEDREQUIRESASLAUTH: return ERR_DENIED;
    case ZSESSIONEXPIRED: return ERR_EXPIRED;
    case ZSESSIONMOVED:
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZRUNTIMEINCONSISTENCY:
    case ZAUTHFAILED:
    case ZCLOSING: return ERR_UNSURE;
    default: return ERR_IO;
    }
}

static const char *text_of_rc(int rc)
{
    enum err e = err_of_rc(rc);
    return e == ERR_DENIED || e == ERR_IO ? zerror(rc) : NULL;
}

void zookeeper_call_refused(struct coord_call *call, int rc)
{
    coord_call_fail(call, err_of_rc(rc), text_of_rc(rc));
}

/* The rules of paths that need no server; for those that the library has it would fail the whole of a multi. */
static enum err op_check(struct coord_call *call, const struct coord_op *op)
{
    struct str path = op->path;
    bool is_root = path.size == 1 && path.data[0] == '/';
    switch (op->kind) {
    case COORD_CREATE:
        if (!(op->flags & COORD_SEQUENTIAL)) return !coord_path_is_ok(path) ? ERR_INVALID : is_root ? ERR_EXISTS : OK;
        char *numbered = coord_call_alloc(call, path.size + 2);
        int n = snprintf(numbered, path.size + 2, "%.*s0", STR_ARG(path));
        return coord_path_is_ok((struct str){numbered, (size_t)n}) ? OK : ERR_INVALID;
    case COORD_DELETE: return coord_path_is_ok(path) && !is_root ? OK : ERR_INVALID;
    case COORD_SET:
    case COORD_CHECK: return coord_path_is_ok(path) ? OK : ERR_INVALID;
    case COORD_GET:
    case COORD_EXISTS:
    case COORD_CHILDREN: return call->kind == op->kind && coord_path_is_ok(path) ? OK : ERR_INVALID;
    case COORD_MULTI: break;
    }
    return ERR_INVALID;
}

bool zookeeper_call_fails(struct coord_call *call)
{
    size_t at = 0;
    enum err e = OK;
    while (at < call->op_count && !(e = op_check(call, &call->ops[at]))) at++;
    if (!e) return false;
    coord_call_fail(call, e, NULL);
    struct coord_op_result *results = (struct coord_op_result *)(uintptr_t)call->result.results;
    if (!results) return true;
    for (size_t i = 0; i < at; i++) results[i].err = OK;
    results[at].err = e;
    return true;
}

/* --- access lists --- */

static void acl_add(struct zookeeper_acl *acl, int32_t perms, struct Id id)
{
    acl->entries[acl->list.count++] = (struct ACL){.perms = perms, .id = id};
    acl->list.data = acl->entries;
}

void zookeeper_acl_init(struct zookeeper *z)
{
    acl_add(&z->open_acl, ZOO_PERM_ALL, ZOO_ANYONE_ID_UNSAFE);
    acl_add(&z->private_acl, ZOO_PERM_ALL, ZOO_AUTH_IDS);
    acl_add(&z->shared_acl, ZOO_PERM_ALL, ZOO_AUTH_IDS);
    acl_add(&z->shared_acl, ZOO_PERM_READ, ZOO_ANYONE_ID_UNSAFE);
}

const struct ACL_vector *zookeeper_acl(const struct zookeeper *z, struct str path)
{
    /* Where passwords may be.  Kafka compares beginnings, and so do we. */
    static const char *const secrets[] = {"/config/users", "/config/brokers", "/delegation_token/tokens"};
    /* Below /consumers consumers of before 0.9 write, who are nobody in particular. */
    if (!z->set_acl || str_is(path, "/consumers")) return &z->open_acl.list;
    for (size_t i = 0; i < ARRAY_COUNT(secrets); i++) {
        size_t size = strlen(secrets[i]);
        if (path.size >= size && memcmp(path.data, secrets[i], size) == 0) return &z->private_acl.list;
    }
    return &z->shared_acl.list;
}

/* --- there --- */

/* A call's paths end with a zero (coord.c). */
static const char *full_path(struct zookeeper *z, struct coord_call *call, struct str path)
{
    if (!z->chroot_size) return path.data;
    if (path.size == 1 && path.data[0] == '/') return z->chroot;
    char *full = coord_call_alloc(call, z->chroot_size + path.size + 1);
    memcpy(full, z->chroot, z->chroot_size);
    memcpy(full + z->chroot_size, path.data, path.size);
    return full;
}

static int data_size(struct bytes data)
{
    return data.data ? (int)data.size : -1;
}

static int create_mode(unsigned flags)
{
    static const int *const modes[] = {
        [0] = &ZOO_PERSISTENT,
        [COORD_EPHEMERAL] = &ZOO_EPHEMERAL,
        [COORD_SEQUENTIAL] = &ZOO_PERSISTENT_SEQUENTIAL,
        [COORD_EPHEMERAL | COORD_SEQUENTIAL] = &ZOO_EPHEMERAL_SEQUENTIAL,
    };
    return *modes[flags & (COORD_EPHEMERAL | COORD_SEQUENTIAL)];
}

struct multi {
    zoo_op_t *ops;
    zoo_op_result_t *results;
};

static void multi_step(struct zookeeper *z, struct coord_call *call, const struct coord_op *op, zoo_op_t *zop)
{
    const char *path = full_path(z, call, op->path), *data = (const char *)op->data.data;
    if (op->kind == COORD_CREATE) {
        size_t size = z->chroot_size + op->path.size + NUMBER_SIZE;
        zoo_create_op_init(zop, path, data, data_size(op->data), zookeeper_acl(z, op->path), create_mode(op->flags),
                           coord_call_alloc(call, size), (int)size);
    } else if (op->kind == COORD_SET) {
        zoo_set_op_init(zop, path, data, data_size(op->data), op->version, coord_call_alloc(call, sizeof(struct Stat)));
    } else if (op->kind == COORD_DELETE) {
        zoo_delete_op_init(zop, path, op->version);
    } else {
        zoo_check_op_init(zop, path, op->version);
    }
}

static void on_multi(int rc, const void *data);

static int multi_send(struct zookeeper *z, struct coord_call *call)
{
    struct multi *m = coord_call_alloc(call, sizeof *m);
    m->ops = coord_call_alloc(call, call->op_count * sizeof *m->ops);
    m->results = coord_call_alloc(call, call->op_count * sizeof *m->results);
    for (size_t i = 0; i < call->op_count; i++) multi_step(z, call, &call->ops[i], &m->ops[i]);
    call->store_part = m;
    return zoo_amulti(z->handle, (int)call->op_count, m->ops, m->results, on_multi, call);
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data);
static void on_data(int rc, const char *value, int size, const struct Stat *stat, const void *data);
static void on_stat(int rc, const struct Stat *stat, const void *data);
static void on_children(int rc, const struct String_vector *names, const struct Stat *stat, const void *data);
static void on_deleted(int rc, const void *data);

int zookeeper_call_send(struct zookeeper *z, struct coord_call *call)
{
    const struct coord_op *op = &call->ops[0];
    zhandle_t *zh = z->handle;
    watcher_fn watcher = call->watch.fired ? zookeeper_watch_fired : NULL;
    call->result = (struct coord_result){.path = call->op_count ? op->path : STR_NULL};
    if (call->kind == COORD_MULTI) return multi_send(z, call);
    const char *path = full_path(z, call, op->path), *data = (const char *)op->data.data;
    switch (call->kind) {
    case COORD_CREATE:
        return zoo_acreate2(zh, path, data, data_size(op->data), zookeeper_acl(z, op->path), create_mode(op->flags),
                            on_created, call);
    case COORD_GET: return zoo_awget(zh, path, watcher, z, on_data, call);
    case COORD_SET: return zoo_aset(zh, path, data, data_size(op->data), op->version, on_stat, call);
    case COORD_DELETE: return zoo_adelete(zh, path, op->version, on_deleted, call);
    case COORD_EXISTS: return zoo_awexists(zh, path, watcher, z, on_stat, call);
    case COORD_CHILDREN: return zoo_awget_children2(zh, path, watcher, z, on_children, call);
    case COORD_CHECK:
    case COORD_MULTI: break;
    }
    UNREACHABLE();
}

/* --- and back --- */

static struct coord_call *call_of(const void *data)
{
    return (struct coord_call *)(uintptr_t)data;
}

static struct coord_stat stat_of(const struct Stat *s)
{
    return (struct coord_stat){.czxid = s->czxid,
                               .mzxid = s->mzxid,
                               .pzxid = s->pzxid,
                               .ctime_ms = s->ctime,
                               .mtime_ms = s->mtime,
                               .version = s->version,
                               .cversion = s->cversion,
                               .ephemeral_owner = s->ephemeralOwner,
                               .child_count = s->numChildren};
}

static struct str path_of(struct coord_call *call, const char *full)
{
    return coord_call_str(call, str_of(full + zookeeper_of(call)->chroot_size));
}

static void answer(struct coord_call *call, int rc)
{
    call->result.err = err_of_rc(rc);
    if (text_of_rc(rc)) call->result.text = coord_call_str(call, str_of(text_of_rc(rc))).data;
    zookeeper_answered(zookeeper_of(call), call, rc);
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    struct coord_call *call = call_of(data);
    if (rc == ZOK) {
        call->result.path = path_of(call, path);
        call->result.stat = stat_of(stat);
    }
    answer(call, rc);
}

static void on_data(int rc, const char *value, int size, const struct Stat *stat, const void *data)
{
    struct coord_call *call = call_of(data);
    if (rc == ZOK) {
        call->result.stat = stat_of(stat);
        if (size >= 0) { /* a node without data has -1 */
            struct str copy = coord_call_str(call, (struct str){value ? value : "", (size_t)size});
            call->result.data = (struct bytes){(const uint8_t *)copy.data, copy.size};
        }
    }
    answer(call, rc);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    struct coord_call *call = call_of(data);
    if (rc == ZOK) call->result.stat = stat_of(stat);
    answer(call, rc);
}

static int compare_names(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static void on_children(int rc, const struct String_vector *names, const struct Stat *stat, const void *data)
{
    struct coord_call *call = call_of(data);
    if (rc == ZOK) {
        size_t count = (size_t)names->count, bytes = 0;
        for (size_t i = 0; i < count; i++) bytes += strlen(names->data[i]);
        /* One piece of memory, for there may be ten thousands. */
        struct str *list = coord_call_alloc(call, count * sizeof *list + bytes);
        char *at = (char *)(list + count);
        for (size_t i = 0; i < count; i++) {
            list[i] = (struct str){at, strlen(names->data[i])};
            memcpy(at, names->data[i], list[i].size);
            at += list[i].size;
        }
        qsort(list, count, sizeof *list, compare_names);
        call->result.children = list;
        call->result.child_count = count;
        call->result.stat = stat_of(stat);
    }
    answer(call, rc);
}

static void on_deleted(int rc, const void *data)
{
    answer(call_of(data), rc);
}

/* Steps before the failed one have ZOK, those after it ZRUNTIMEINCONSISTENCY. */
static void on_multi(int rc, const void *data)
{
    struct coord_call *call = call_of(data);
    const struct multi *m = call->store_part;
    struct coord_op_result *results = coord_call_alloc(call, call->op_count * sizeof *results);
    bool failed = false;
    for (size_t i = 0; i < call->op_count; i++) {
        const zoo_op_result_t *from = &m->results[i];
        results[i].path = call->ops[i].path;
        results[i].err = failed ? ERR_AGAIN : err_of_rc(from->err);
        failed = failed || results[i].err != OK;
        if (rc != ZOK) continue;
        if (call->ops[i].kind == COORD_CREATE) results[i].path = path_of(call, from->value);
        if (call->ops[i].kind == COORD_SET) results[i].stat = stat_of(from->stat);
    }
    call->result.results = results;
    call->result.result_count = call->op_count;
    answer(call, rc);
}
