/* replicas_dirs.c: the log directories: made, locked, identified, chosen among. */
#include <string.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"

#define LOG_MODULE "replica"
#include "base/log.h"

size_t replicas_dir_count(const struct replicas *r)
{
    return r->dir_count;
}

const char *replicas_dir_path(const struct replicas *r, size_t dir)
{
    return r->dirs[dir].path;
}

const char *partition_dir_path(const struct partition *p)
{
    return p->dir->path;
}

enum err replicas_dir_error(const struct replicas *r, size_t dir)
{
    const struct log_dir *d = &r->dirs[dir];
    return log_dir_is_online(d) ? OK : (enum err)atomic_load(&d->why);
}

bool replicas_all_dirs_offline(const struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (log_dir_is_online(&r->dirs[i])) return false;
    return true;
}

/* ---- Failing */

static void offline_tell(struct loop_msg *msg)
{
    struct log_dir *d = CONTAINER_OF(msg, struct log_dir, offline_msg);
    const struct replicas_options *opt = &d->r->opt;
    opt->dir_failed(opt->dir_failed_arg, (size_t)(d - d->r->dirs));
}

/* Who opens a log meanwhile looks at the directory again once the log is in the list (replicas_add()): one of the two
 * sees the other. */
static void partitions_offline(struct replicas *r, const struct log_dir *d)
{
    size_t count, went = 0;
    struct partition **list = replicas_list(r, &count);
    for (size_t i = 0; i < count; i++) {
        if (list[i]->dir != d) continue;
        partition_set_offline(list[i]);
        went++;
    }
    replicas_list_free(list, count);
    LOG_WARN("partitions_offline", "dir=\"%s\" partitions=%zu", d->path, went);
}

void replicas_dir_failed(struct replicas *r, struct log_dir *d, enum err e, const char *what)
{
    if (atomic_exchange(&d->offline, true)) return;
    atomic_store(&d->why, (int)e);
    LOG_ERROR("log_dir_offline",
              "dir=\"%s\" failed=\"%s\" error=%s reason=\"%s; the directory is left alone until the next start\"",
              d->path, what, err_name(e), err_text(e));
    partitions_offline(r, d);
    if (!r->opt.dir_failed || !r->ready || r->stopping) return;
    d->offline_msg.run = offline_tell;
    loop_post(r->opt.home, &d->offline_msg);
}

/* A log's files can be removed by hand, a whole directory by its disk's going away: then the file that we hold locked
 * is not to be found either. */
static bool dir_is_gone(const struct log_dir *d)
{
    struct fs_stat st;
    char *path = mem_printf("%s/.lock", d->path);
    enum err e = fs_stat(d->r->opt.fs, path, &st);
    mem_free(path);
    return e != OK;
}

/* Others are of a single log (damaged, of another topic, in an old format), or pass. */
static bool is_of_dir(const struct log_dir *d, enum err e)
{
    if (e == ERR_NOT_FOUND || e == ERR_NOT_FILE) return dir_is_gone(d);
    return e == ERR_IO || e == ERR_DENIED;
}

enum err replicas_dir_check(struct log_dir *d, enum err e, const char *what)
{
    if (is_of_dir(d, e)) replicas_dir_failed(d->r, d, e, what);
    if (e == ERR_FULL) replicas_dir_full(d);
    return e;
}

void partition_failed(struct partition *p, enum err e, const char *what)
{
    bool of_dir = p->dir && is_of_dir(p->dir, e); /* a partition of its own, as in tests, has none */
    if (p->dir) replicas_dir_check(p->dir, e, what);
    if (!of_dir && e != ERR_CLOSED && !plog_error_passes(e)) partition_set_offline(p);
}

/* ---- Choosing */

/* The one with the fewest partitions, as in Kafka, of those that are not full; it counts at once, so that the next one
 * sees it. */
struct log_dir *replicas_choose_dir(struct replicas *r)
{
    struct log_dir *best = NULL;
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        if (!log_dir_is_online(d)) continue;
        bool fuller = best && atomic_load(&d->full) && !atomic_load(&best->full);
        bool roomier = best && !atomic_load(&d->full) && atomic_load(&best->full);
        bool fewer = best && atomic_load(&d->partition_count) < atomic_load(&best->partition_count);
        if (!best || roomier || (fewer && !fuller)) best = d;
    }
    if (best) atomic_fetch_add(&best->partition_count, 1);
    return best;
}

/* ---- Opening */

enum err replicas_dir_open(struct replicas *r, struct log_dir *d, const char *path, struct fault *f)
{
    struct fs *fs = r->opt.fs;
    d->r = r;
    d->path = mem_strdup(path);
    ASSERT(pthread_mutex_init(&d->look_lock, NULL) == 0);
    atomic_init(&d->look_bytes, INT64_MAX);
    meta_properties_init(&d->meta);
    checkpoint_init(&d->recovery_points);
    checkpoint_init(&d->log_starts);
    checkpoint_init(&d->watermarks);
    checkpoint_init(&d->cleaned);
    enum err e = fs_mkdir_all(fs, path);
    if (e)
        return fault_set(f, e,
                         "The log directory %s cannot be made: %s. Check log.dirs and the permissions of its parent.",
                         path, err_text(e));
    char *file = mem_printf("%s/.lock", path);
    e = fs_lock(fs, file, &d->lock);
    mem_free(file);
    if (e == ERR_LOCKED)
        return fault_set(f, e,
                         "The log directory %s is in use by another process (it holds %s/.lock). Stop that broker, or "
                         "give this one another log.dirs.",
                         path, path);
    if (e)
        return fault_set(f, e, "The log directory %s cannot be written: %s. Check its permissions and free space.",
                         path, err_text(e));
    replicas_reserve_drop(d); /* what starts may need the room */
    file = mem_printf("%s/" META_PROPERTIES, path);
    e = meta_properties_read(&d->meta, fs, file, f);
    mem_free(file);
    d->has_meta = e == OK;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err replicas_dirs_agree(const struct replicas *r, struct fault *f)
{
    const struct log_dir *first = NULL;
    for (size_t i = 0; i < r->dir_count; i++) {
        const struct log_dir *d = &r->dirs[i];
        if (!d->has_meta) continue;
        if (!first) {
            first = d;
            continue;
        }
        bool same_cluster =
            !first->meta.cluster_id || !d->meta.cluster_id || strcmp(first->meta.cluster_id, d->meta.cluster_id) == 0;
        if (first->meta.broker_id != d->meta.broker_id || !same_cluster)
            return fault_set(f, ERR_INVALID,
                             "%s/meta.properties says broker.id=%d cluster.id=%s, but %s/meta.properties says "
                             "broker.id=%d cluster.id=%s. All of log.dirs must belong to one broker: correct log.dirs.",
                             first->path, first->meta.broker_id, first->meta.cluster_id ? first->meta.cluster_id : "?",
                             d->path, d->meta.broker_id, d->meta.cluster_id ? d->meta.cluster_id : "?");
    }
    return OK;
}

static const struct log_dir *dir_with_meta(const struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (r->dirs[i].has_meta) return &r->dirs[i];
    return NULL;
}

int32_t replicas_stored_broker_id(const struct replicas *r)
{
    const struct log_dir *d = dir_with_meta(r);
    return d ? d->meta.broker_id : -1;
}

const char *replicas_stored_cluster_id(const struct replicas *r)
{
    const struct log_dir *d = dir_with_meta(r);
    return d ? d->meta.cluster_id : NULL;
}

const char *replicas_dir_without_id(const struct replicas *r)
{
    for (size_t i = 0; i < r->dir_count; i++)
        if (r->dirs[i].has_meta && r->dirs[i].meta.broker_id < 0) return r->dirs[i].path;
    return NULL;
}

static enum err write_meta(struct replicas *r, struct log_dir *d, struct fault *f)
{
    char *file = mem_printf("%s/" META_PROPERTIES, d->path);
    enum err e = meta_properties_write(&d->meta, r->opt.fs, file, clock_wall_ms(r->opt.clock));
    if (e) fault_set(f, e, "%s cannot be written: %s.", file, err_text(e));
    mem_free(file);
    d->has_meta = !e;
    if (!e) return OK;
    replicas_dir_failed(r, d, e, META_PROPERTIES);
    return replicas_all_dirs_offline(r) ? e : OK;
}

enum err replicas_identify(struct replicas *r, int32_t broker_id, const char *cluster_id, struct fault *f)
{
    r->broker_id = broker_id;
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        if (!log_dir_is_online(d)) continue;
        if (d->has_meta) {
            if (d->meta.broker_id >= 0 && d->meta.broker_id != broker_id)
                return fault_set(f, ERR_INVALID,
                                 "broker.id is %d, but %s/meta.properties belongs to broker %d. Set broker.id=%d, or "
                                 "give this broker another log.dirs.",
                                 broker_id, d->path, d->meta.broker_id, d->meta.broker_id);
            if (d->meta.cluster_id && strcmp(d->meta.cluster_id, cluster_id) != 0)
                return fault_set(f, ERR_INVALID,
                                 "InconsistentClusterId: the cluster's id is %s, but %s/meta.properties belongs to "
                                 "cluster %s. Point "
                                 "the broker at its own cluster (zookeeper.connect), or give it another log.dirs.",
                                 cluster_id, d->path, d->meta.cluster_id);
            if (d->meta.cluster_id && d->meta.broker_id >= 0) continue;
        }
        d->meta.broker_id = broker_id;
        mem_free(d->meta.cluster_id);
        d->meta.cluster_id = mem_strdup(cluster_id);
        enum err e = write_meta(r, d, f);
        if (e) return e;
    }
    return OK;
}
