/* replicas_survey.c: what the log directories hold, looked at before anything is opened: for adoption, and to tell
 * which of it nobody knows. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "replica/replicas_internal.h"
#include "wire/topic_name.h"

#define LOG_MODULE "replica"
#include "base/log.h"

enum { INT32_DIGITS_MAX = 10 };

bool replicas_parse_dir_name(const char *name, char **topic, int32_t *index)
{
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name || !dash[1] || strlen(dash + 1) > INT32_DIGITS_MAX) return false;
    for (const char *p = dash + 1; *p; p++)
        if (*p < '0' || *p > '9') return false;
    long long n = strtoll(dash + 1, NULL, 10);
    if (n > INT32_MAX) return false;
    struct str topic_name = {name, (size_t)(dash - name)};
    if (str_is(topic_name, "__cluster_metadata")) return false; /* a KRaft node's own log, as Kafka skips it too */
    *topic = mem_strndup(topic_name.data, topic_name.size);
    *index = (int32_t)n;
    return true;
}

bool replicas_parse_marked_name(const char *name, char **topic, int32_t *index)
{
    const char *dot = strrchr(name, '.');
    char *head = mem_strndup(name, dot ? (size_t)(dot - name) : 0);
    bool parsed = replicas_parse_dir_name(head, topic, index);
    mem_free(head);
    return parsed;
}

static void survey_entry(void *arg, const char *name, bool is_dir)
{
    struct replica_survey *sv = arg;
    char *topic;
    int32_t index;
    if (!is_dir || !replicas_parse_dir_name(name, &topic, &index)) return;
    if (!topic_name_is_valid(str_of(topic))) {
        mem_free(topic);
        return;
    }
    sv->rows = mem_grow(sv->rows, &sv->cap, sv->count + 1, sizeof *sv->rows);
    sv->rows[sv->count++] = (struct replica_dir){.topic = topic, .index = index, .peek.last_epoch = -1};
}

static int compare_rows(const void *a, const void *b)
{
    const struct replica_dir *x = a, *y = b;
    int c = strcmp(x->topic, y->topic);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

/* Looks into the rows from `from` on, all of directory `d`. */
static enum err look_into(struct replicas *r, const struct log_dir *d, struct replica_survey *sv, size_t from,
                          struct fault *f)
{
    struct checkpoint cleaned;
    checkpoint_init(&cleaned);
    char *path = mem_printf("%s/" CHECKPOINT_CLEANER, d->path);
    enum err e = checkpoint_read(&cleaned, r->opt.fs, path, f);
    mem_free(path);
    if (e == ERR_CORRUPT || e == ERR_VERSION) { /* it only tells how far cleaning got */
        LOG_WARN("checkpoint_unreadable", "reason=\"%s\"", f->text);
        *f = (struct fault){.code = OK};
        e = OK;
    }
    for (size_t i = from; i < sv->count && !e; i++) {
        struct replica_dir *row = &sv->rows[i];
        row->was_cleaned = checkpoint_get(&cleaned, str_of(row->topic), row->index, -1) >= 0;
        path = mem_printf("%s/%s-%d", d->path, row->topic, row->index);
        e = plog_peek(&row->peek, r->opt.fs, path, 0, true);
        if (e) fault_set(f, e, "%s cannot be looked at: %s.", path, err_text(e));
        mem_free(path);
    }
    checkpoint_fini(&cleaned);
    return e;
}

enum err replicas_survey(struct replicas *r, bool deep, struct replica_survey *out, struct fault *f)
{
    struct replica_survey sv = {.count = 0};
    enum err e = OK;
    for (size_t d = 0; d < r->dir_count && !e; d++) {
        size_t from = sv.count;
        if (!log_dir_is_online(&r->dirs[d])) continue;
        e = fs_list(r->opt.fs, r->dirs[d].path, survey_entry, &sv);
        if (e) fault_set(f, e, "The log directory %s cannot be listed: %s.", r->dirs[d].path, err_text(e));
        for (size_t i = from; i < sv.count; i++) sv.rows[i].dir = r->dirs[d].path;
        if (!e && deep) e = look_into(r, &r->dirs[d], &sv, from, f);
    }
    if (e) {
        replicas_survey_free(&sv);
        return e;
    }
    if (sv.count) qsort(sv.rows, sv.count, sizeof *sv.rows, compare_rows);
    *out = sv;
    return OK;
}

void replicas_survey_free(struct replica_survey *sv)
{
    for (size_t i = 0; i < sv->count; i++) mem_free(sv->rows[i].topic);
    mem_free(sv->rows);
    *sv = (struct replica_survey){.count = 0};
}
