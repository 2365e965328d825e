/* handover.c: a log gives way to a copy of itself in another directory.  The writer role is what holds it meanwhile:
 * appends queue up behind it, and are told at its end that the log has retired. */
#include "plog/plog_internal.h"

#include "base/mem.h"

enum err plog_hold(struct plog *pl)
{
    return exclusive_begin_alone(pl);
}

void plog_release(struct plog *pl)
{
    exclusive_end(pl);
}

enum err plog_hand_producers(struct plog *pl, const char *dir)
{
    uint8_t *data;
    size_t size;
    int64_t end = plog_end(pl);
    if (end == 0) return OK; /* nothing was ever here */
    pthread_mutex_lock(&pl->lock);
    producers_snapshot_encode(pl->producers, end, &data, &size);
    pthread_mutex_unlock(&pl->lock);
    char *path = segment_path(dir, end, SEGMENT_SNAPSHOT);
    enum err e = fs_replace(pl->fs, path, data, size);
    mem_free(path);
    mem_free(data);
    return e;
}

enum err plog_retire_held(struct plog *pl, const char *to)
{
    enum err e = fs_rename(pl->fs, pl->dir, to);
    pthread_mutex_lock(&pl->lock);
    pl->retired = true;
    hints_clear(pl);
    pthread_mutex_unlock(&pl->lock);
    return e == ERR_NOT_FOUND ? OK : e;
}
