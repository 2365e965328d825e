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

/* The one with the fewest partitions, as in Kafka; the choice counts at once, so that the next one sees it. */
struct log_dir *replicas_choose_dir(struct replicas *r)
{
    struct log_dir *best = &r->dirs[0];
    for (size_t i = 1; i < r->dir_count; i++)
        if (atomic_load(&r->dirs[i].partition_count) < atomic_load(&best->partition_count)) best = &r->dirs[i];
    atomic_fetch_add(&best->partition_count, 1);
    return best;
}

enum err replicas_dir_open(struct replicas *r, struct log_dir *d, const char *path, struct fault *f)
{
    struct fs *fs = r->opt.fs;
    d->path = mem_strdup(path);
    meta_properties_init(&d->meta);
    checkpoint_init(&d->recovery_points);
    checkpoint_init(&d->log_starts);
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

enum err replicas_identify(struct replicas *r, int32_t broker_id, const char *cluster_id, struct fault *f)
{
    for (size_t i = 0; i < r->dir_count; i++) {
        struct log_dir *d = &r->dirs[i];
        if (d->has_meta) {
            if (d->meta.broker_id >= 0 && d->meta.broker_id != broker_id)
                return fault_set(f, ERR_INVALID,
                                 "broker.id is %d, but %s/meta.properties belongs to broker %d. Set broker.id=%d, or "
                                 "give this broker another log.dirs.",
                                 broker_id, d->path, d->meta.broker_id, d->meta.broker_id);
            if (d->meta.cluster_id && strcmp(d->meta.cluster_id, cluster_id) != 0)
                return fault_set(
                    f, ERR_INVALID,
                    "The cluster's id is %s, but %s/meta.properties belongs to cluster %s. Point the broker "
                    "at its own cluster, or give it another log.dirs.",
                    cluster_id, d->path, d->meta.cluster_id);
            if (d->meta.cluster_id && d->meta.broker_id >= 0) continue;
        }
        d->meta.broker_id = broker_id;
        mem_free(d->meta.cluster_id);
        d->meta.cluster_id = mem_strdup(cluster_id);
        char *file = mem_printf("%s/" META_PROPERTIES, d->path);
        enum err e = meta_properties_write(&d->meta, r->opt.fs, file, clock_wall_ms(r->opt.clock));
        if (e) fault_set(f, e, "%s cannot be written: %s.", file, err_text(e));
        mem_free(file);
        if (e) return e;
        d->has_meta = true;
    }
    return OK;
}
