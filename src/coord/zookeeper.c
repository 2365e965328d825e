/* zookeeper.c: sessions of an ensemble, and the order of calls.
 *
 * A call waits in `waiting`, goes to the library and into `sent`, and is delivered from the head of `sent` when its
 * answer is there.  At most `out_max` are with the library.  When the connection is lost, the answers of all that are
 * out are "lost": writes end as ERR_UNSURE, reads become STAGE_WAITING where they stand.  With the next connection
 * `sent` is put before `waiting` and everything goes on from there, so both lists together always have the calls in the
 * order in which they were made.
 *
 * The keeper is a thread that does what may have to wait: it makes the library's handles, for which names are looked
 * up, closes them, and lays sessions down.  What ends a session only says so (PHASE_ENDING) and wakes it.
 *
 * WHAT ALWAYS HOLDS
 * (1) Results are delivered in the order of the calls, each after the answer that it needs, each once.
 * (2) Calls are with the library only in PHASE_CONNECTED and what follows it until the handle is closed.  When it is,
 *     answers that were missing have come, or never will: no thread of the library is left.
 * (3) In PHASE_OVER there is no handle, no call and no watch.  Only coord_renew() and the close lead out of it.
 * (4) zookeeper_close() is called without the lock, by the keeper alone: it waits for the library's threads, which take
 *     the lock in their callbacks. */
#include "coord/zookeeper.h"

#include "base/mem.h"
#include "coord/zookeeper_internal.h"
#include "os/clock.h"
#include "os/thread.h"

#define LOG_MODULE "coord"
#include "base/log.h"

enum {
    OUT_MAX = 10 * 1000,          /* the library's wake-up pipe has room for 65,536 */
    NAMES_RETRY_US = 1000 * 1000, /* between look-ups of names that nobody knows */
};

/* --- calls; with the lock held --- */

static struct coord_call *call_at(struct list_node *n)
{
    return CONTAINER_OF(n, struct coord_call, delivery.link);
}

static void deliver_done(struct zookeeper *z)
{
    for (struct list_node *n; (n = list_first(&z->sent)) && call_at(n)->stage == STAGE_DONE;) {
        list_remove(n);
        coord_deliver(&call_at(n)->delivery);
    }
}

/* Puts what was sent before what waits: reads that are to be asked again have their turn before all later calls. */
static void requeue(struct zookeeper *z)
{
    bool after_lost = false;
    struct list all;
    list_init(&all);
    for (struct list_node *n; (n = list_pop_front(&z->sent));) {
        struct coord_call *call = call_at(n);
        if (call->stage == STAGE_WAITING) after_lost = true;
        if (call->stage == STAGE_OUT && after_lost && zookeeper_call_reads(call)) call->stage = STAGE_OUT_AGAIN;
        list_push_back(&all, n);
    }
    for (struct list_node *n; (n = list_pop_front(&z->waiting));) list_push_back(&all, n);
    for (struct list_node *n; (n = list_pop_front(&all));) list_push_back(&z->waiting, n);
    z->again_count = 0;
}

static void call_send(struct zookeeper *z, struct coord_call *call)
{
    call->stage = STAGE_OUT;
    z->out++;
    int rc = zookeeper_call_send(z, call);
    if (rc == ZOK) return;
    z->out--;
    if (rc == ZINVALIDSTATE) { /* the session has just ended, and the word of it is on its way */
        z->phase = PHASE_DISCONNECTED;
        call->stage = STAGE_WAITING;
        z->again_count++;
        return;
    }
    call->stage = STAGE_DONE;
    zookeeper_call_refused(call, rc);
}

static void feed(struct zookeeper *z)
{
    while (z->phase == PHASE_CONNECTED && z->out < z->out_max && !list_is_empty(&z->waiting)) {
        struct list_node *n = list_pop_front(&z->waiting);
        struct coord_call *call = call_at(n);
        list_push_back(&z->sent, n);
        if (call->stage != STAGE_WAITING) continue; /* it was sent before a connection was lost */
        if (call->op_count == 0 || zookeeper_call_fails(call))
            call->stage = STAGE_DONE;
        else
            call_send(z, call);
    }
    deliver_done(z);
    if (z->close_call && list_is_empty(&z->sent)) pthread_cond_signal(&z->changed);
}

static bool is_lost(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZRUNTIMEINCONSISTENCY || rc == ZAUTHFAILED ||
           rc == ZCLOSING || rc == ZSESSIONMOVED;
}

void zookeeper_answered(struct zookeeper *z, struct coord_call *call, int rc)
{
    bool reads = zookeeper_call_reads(call);
    bool watchable = rc == ZOK || (rc == ZNONODE && call->kind == COORD_EXISTS);
    pthread_mutex_lock(&z->lock);
    z->out--;
    if (rc == ZSESSIONEXPIRED || (reads && (is_lost(rc) || call->stage == STAGE_OUT_AGAIN || z->again_count))) {
        call->stage = STAGE_WAITING;
        z->again_count++;
        if (z->phase == PHASE_CONNECTED) requeue(z);
    } else {
        call->stage = STAGE_DONE;
        if (is_lost(rc)) coord_call_fail(call, ERR_UNSURE, NULL);
        if (watchable && call->watch.fired) zookeeper_watch_set(z, call);
    }
    feed(z);
    pthread_mutex_unlock(&z->lock);
}

static void zookeeper_submit(struct coord *c, struct coord_call *call)
{
    struct zookeeper *z = CONTAINER_OF(c, struct zookeeper, c);
    pthread_mutex_lock(&z->lock);
    if (call->is_close) {
        z->close_call = call;
        pthread_cond_signal(&z->changed);
    } else if (z->phase == PHASE_OVER) {
        coord_call_fail(call, z->over, z->fault.text[0] ? z->fault.text : NULL);
        coord_deliver(&call->delivery);
    } else {
        list_push_back(&z->waiting, &call->delivery.link);
        feed(z);
    }
    pthread_mutex_unlock(&z->lock);
}

/* --- the session; with the lock held --- */

static void tell(struct zookeeper *z, enum coord_state state, const struct fault *f)
{
    struct coord_delivery *news = coord_news_new(&z->c, state, f);
    if (news) coord_deliver(news);
}

static void session_over(struct zookeeper *z, enum err why)
{
    if (z->phase == PHASE_ENDING || z->phase == PHASE_OVER) return;
    z->phase = PHASE_ENDING;
    z->over = why;
    pthread_cond_signal(&z->changed);
}

static void session_failed(struct zookeeper *z, const struct fault *f)
{
    if (z->phase == PHASE_ENDING || z->phase == PHASE_OVER) return;
    z->fault = *f;
    session_over(z, f->code);
}

static void session_ready(struct zookeeper *z)
{
    if (z->phase != PHASE_OPENING && z->phase != PHASE_DISCONNECTED) return;
    z->phase = PHASE_CONNECTED;
    z->give_up_us = 0;
    z->c.session = zoo_client_id(z->handle)->client_id;
    LOG_INFO("zookeeper_connected", "servers=%s chroot=\"%s\" session=0x%llx timeout_ms=%d", z->hosts, z->chroot,
             (unsigned long long)z->c.session, zoo_recv_timeout(z->handle));
    tell(z, COORD_CONNECTED, NULL);
    requeue(z);
    feed(z);
}

/* --- the chroot --- */

static void on_chroot(struct zookeeper *z, int rc, const char *verb)
{
    struct fault f;
    if (is_lost(rc) || rc == ZSESSIONEXPIRED) return; /* the next connection asks again */
    if (rc == ZOK || rc == ZNODEEXISTS) {
        z->chroot_ready = true;
        session_ready(z);
        return;
    }
    enum err e = rc == ZNOAUTH || rc == ZINVALIDACL ? ERR_DENIED : ERR_IO;
    fault_set(&f, e, "The path %s of zookeeper.connect cannot be %s at %s: %s.", z->chroot, verb, z->hosts, zerror(rc));
    session_failed(z, &f);
}

static void on_chroot_parent(int rc, const char *path, const void *data)
{
    (void)rc; /* what matters is whether its child can be made */
    (void)path;
    (void)data;
}

static void on_chroot_made(int rc, const char *path, const void *data)
{
    struct zookeeper *z = (struct zookeeper *)(uintptr_t)data;
    (void)path;
    pthread_mutex_lock(&z->lock);
    on_chroot(z, rc, "made");
    pthread_mutex_unlock(&z->lock);
}

static void chroot_make(struct zookeeper *z)
{
    for (size_t n = 1; n <= z->chroot_size; n++) {
        if (n < z->chroot_size && z->chroot[n] != '/') continue;
        char *path = mem_strndup(z->chroot, n);
        int rc = zoo_acreate(z->handle, path, NULL, -1, zookeeper_acl(z, str_of(path)), ZOO_PERSISTENT,
                             n == z->chroot_size ? on_chroot_made : on_chroot_parent, z);
        mem_free(path);
        if (rc != ZOK) return; /* the session has just ended, and the word of it is on its way */
    }
}

static void on_chroot_exists(int rc, const struct Stat *stat, const void *data)
{
    struct zookeeper *z = (struct zookeeper *)(uintptr_t)data;
    (void)stat;
    pthread_mutex_lock(&z->lock);
    if (rc == ZNONODE)
        chroot_make(z);
    else
        on_chroot(z, rc, "looked for");
    pthread_mutex_unlock(&z->lock);
}

/* --- the library's word of the session; its thread --- */

static void on_connected(struct zookeeper *z)
{
    if (z->auth && !z->auth_given) {
        /* Not before: a handle whose first try has just failed would not take it.  From now on the library sends it
         * with each connection, before all else.  If this one is lost already, the next one comes here again. */
        if (zoo_add_auth(z->handle, "digest", z->auth, (int)strlen(z->auth), NULL, NULL) != ZOK) return;
        z->auth_given = true;
    }
    if (!z->chroot_ready)
        zoo_aexists(z->handle, z->chroot, 0, on_chroot_exists, z);
    else
        session_ready(z);
}

static void on_disconnected(struct zookeeper *z)
{
    zookeeper_watches_trim(z);
    if (z->phase != PHASE_CONNECTED) return;
    z->phase = PHASE_DISCONNECTED;
    LOG_WARN("zookeeper_disconnected", "servers=%s session=0x%llx action=reconnect", z->hosts,
             (unsigned long long)z->c.session);
    tell(z, COORD_DISCONNECTED, NULL);
    if (z->close_call) pthread_cond_signal(&z->changed);
}

static void on_auth_failed(struct zookeeper *z)
{
    struct fault f;
    fault_set(&f, ERR_DENIED, "ZooKeeper at %s refuses the user '%s' or the way it authenticates (digest).", z->hosts,
              z->user ? z->user : "");
    session_failed(z, &f);
}

static void on_session(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    struct zookeeper *z = context;
    (void)path;
    if (type != ZOO_SESSION_EVENT) return;
    pthread_mutex_lock(&z->lock);
    if (!z->handle) z->handle = zh; /* sooner than zookeeper_init2() returned */
    if (state == ZOO_CONNECTED_STATE) {
        on_connected(z);
    } else if (state == ZOO_EXPIRED_SESSION_STATE) {
        LOG_WARN("zookeeper_expired", "servers=%s session=0x%llx", z->hosts, (unsigned long long)z->c.session);
        session_over(z, ERR_EXPIRED);
    } else if (state == ZOO_AUTH_FAILED_STATE) {
        on_auth_failed(z);
    } else {
        on_disconnected(z);
    }
    pthread_mutex_unlock(&z->lock);
}

/* What the library says: "2024-12-24 12:00:00,000:1(0x2):ZOO_ERROR@function@line: message".  Nothing of ours is in
 * there that must not be told: of passwords it says nothing. */
static void on_log(const char *message)
{
    const char *at = strchr(message, '@');
    at = at ? strstr(at, ": ") : NULL;
    struct str text = str_of(at ? at + 2 : message);
    while (text.size && text.data[text.size - 1] == '\n') text.size--;
    LOG_LIMITED(LOG_LEVEL_WARN, "zookeeper_library", "message=\"%.*s\"", STR_ARG(text));
}

/* --- the keeper; with the lock held, but where it says otherwise --- */

static void handle_open(struct zookeeper *z)
{
    pthread_mutex_unlock(&z->lock); /* names are looked up */
    zhandle_t *zh = zookeeper_init2(z->hosts, on_session, z->session_timeout_ms, NULL, z, ZOO_NO_LOG_CLIENTENV, on_log);
    pthread_mutex_lock(&z->lock);
    z->names_unknown = !zh;
    if (zh)
        z->handle = zh;
    else if (!z->close_call)
        thread_cond_wait_for(&z->changed, &z->lock, NAMES_RETRY_US);
}

/* The library's thread that tells answers ends as soon as a close is asked for, also with some in its hand, and what is
 * queued for it after that is freed with the handle.  With the lock held, everything in `waiting`. */
static void give_up_answers(struct zookeeper *z)
{
    LIST_EACH (&z->waiting, n) {
        struct coord_call *call = call_at(n);
        if (call->stage != STAGE_OUT && call->stage != STAGE_OUT_AGAIN) continue;
        z->out--;
        call->stage = zookeeper_call_reads(call) ? STAGE_WAITING : STAGE_DONE;
        if (call->stage == STAGE_DONE) coord_call_fail(call, ERR_UNSURE, NULL);
    }
    ASSERT(z->out == 0);
}

/* Everything that the session had ends with it. */
static void session_end(struct zookeeper *z)
{
    zhandle_t *zh = z->handle;
    if (zh) {
        pthread_mutex_unlock(&z->lock);
        zookeeper_close(zh); /* it says of no failure that would change a thing */
        pthread_mutex_lock(&z->lock);
        z->handle = NULL;
    }
    requeue(z);
    give_up_answers(z);
    for (struct list_node *n; (n = list_pop_front(&z->waiting));) {
        struct coord_call *call = call_at(n);
        if (call->stage != STAGE_DONE) coord_call_fail(call, z->over, z->fault.text[0] ? z->fault.text : NULL);
        coord_deliver(&call->delivery);
    }
    zookeeper_watches_drop(z);
    z->auth_given = false;
    z->give_up_us = 0;
    z->phase = PHASE_OVER;
    if (z->over == ERR_EXPIRED) tell(z, COORD_EXPIRED, NULL);
    if (z->fault.code) tell(z, COORD_FAILED, &z->fault);
}

static void give_up(struct zookeeper *z)
{
    struct fault f;
    if (z->names_unknown)
        fault_set(&f, ERR_TIMEOUT, "None of the names in %s (zookeeper.connect) could be looked up within %d ms.",
                  z->hosts, z->connection_timeout_ms);
    else
        fault_set(&f, ERR_TIMEOUT,
                  "No ZooKeeper answers at %s within %d ms (zookeeper.connect, zookeeper.connection.timeout.ms).",
                  z->hosts, z->connection_timeout_ms);
    session_failed(z, &f);
}

/* Calls made before the close are executed while there is a connection; without one they are not waited for. */
static bool may_close(const struct zookeeper *z)
{
    return z->close_call && (z->phase != PHASE_CONNECTED || (list_is_empty(&z->sent) && list_is_empty(&z->waiting)));
}

static void keeper_wait(struct zookeeper *z)
{
    int64_t left_us = z->give_up_us - clock_mono_us(clock_system());
    if (!z->give_up_us)
        pthread_cond_wait(&z->changed, &z->lock);
    else if (left_us > 0)
        thread_cond_wait_for(&z->changed, &z->lock, left_us);
    else
        give_up(z);
}

static void keeper_step(struct zookeeper *z)
{
    if (z->phase == PHASE_ENDING) {
        session_end(z);
    } else if (z->phase == PHASE_OVER && z->close_call) {
        coord_deliver(&z->close_call->delivery);
        z->ended = true;
    } else if (may_close(z)) {
        session_over(z, ERR_CLOSED);
    } else if (z->phase == PHASE_OPENING && !z->handle &&
               (!z->give_up_us || clock_mono_us(clock_system()) < z->give_up_us)) {
        handle_open(z);
    } else {
        keeper_wait(z);
    }
}

static void keeper_run(void *arg)
{
    struct zookeeper *z = arg;
    pthread_mutex_lock(&z->lock);
    while (!z->ended) keeper_step(z);
    pthread_mutex_unlock(&z->lock);
}

/* --- the store --- */

static void zookeeper_renew(struct coord *c)
{
    struct zookeeper *z = CONTAINER_OF(c, struct zookeeper, c);
    pthread_mutex_lock(&z->lock);
    ASSERT(z->phase == PHASE_OVER && z->over == ERR_EXPIRED);
    z->phase = PHASE_OPENING;
    pthread_cond_signal(&z->changed);
    pthread_mutex_unlock(&z->lock);
}

static void parts_free(struct zookeeper *z)
{
    pthread_cond_destroy(&z->changed);
    pthread_mutex_destroy(&z->lock);
    mem_free(z->hosts);
    mem_free(z->chroot);
    if (z->auth) explicit_bzero(z->auth, strlen(z->auth));
    mem_free(z->auth);
    mem_free(z->user);
    mem_free(z);
}

static void zookeeper_free(struct coord *c)
{
    struct zookeeper *z = CONTAINER_OF(c, struct zookeeper, c);
    thread_join(z->keeper);
    parts_free(z);
}

static const struct coord_ops zookeeper_ops = {
    .submit = zookeeper_submit, .renew = zookeeper_renew, .free = zookeeper_free};

static enum err options_check(const struct coord_zookeeper_options *opt, struct fault *f)
{
    if (opt->tls)
        return fault_set(
            f, ERR_UNSUPPORTED,
            "TLS to ZooKeeper (zookeeper.ssl.client.enable) is not supported: the ZooKeeper library of this"
            " system was built without it.");
    if (opt->set_acl && str_is_null(opt->user))
        return fault_set(f, ERR_INVALID,
                         "zookeeper.set.acl=true needs a user and a password for ZooKeeper: nodes that nobody in"
                         " particular made could be changed by nobody.");
    return OK;
}

enum err coord_zookeeper_open(struct coord **out, const struct coord_zookeeper_options *opt, struct fault *f)
{
    enum err e = options_check(opt, f);
    if (e) return e;
    struct zookeeper *z = mem_zalloc(1, sizeof *z);
    pthread_mutex_init(&z->lock, NULL);
    thread_cond_init(&z->changed);
    list_init(&z->sent);
    list_init(&z->waiting);
    e = zookeeper_hosts_parse(opt->connect, &z->hosts, &z->chroot, f);
    if (e) goto fail;
    z->chroot_size = strlen(z->chroot);
    z->chroot_ready = z->chroot_size == 0;
    if (!str_is_null(opt->user)) {
        z->user = mem_strndup(opt->user.data, opt->user.size);
        z->auth = mem_printf("%.*s:%.*s", STR_ARG(opt->user), STR_ARG(opt->password));
    }
    z->session_timeout_ms = opt->session_timeout_ms;
    z->connection_timeout_ms = opt->connection_timeout_ms;
    z->out_max = MIN(opt->in_flight_max, OUT_MAX);
    z->set_acl = opt->set_acl;
    zookeeper_acl_init(z);
    z->give_up_us = clock_mono_us(clock_system()) + (int64_t)opt->connection_timeout_ms * 1000;
    coord_init(&z->c, &zookeeper_ops, 0, opt->listener);
    zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
    e = thread_start(&z->keeper, "zookeeper", keeper_run, z, f);
    if (e) goto fail;
    *out = &z->c;
    return OK;
fail:
    parts_free(z);
    return e;
}
