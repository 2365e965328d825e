/* log_explain.c: `barnabas log explain TOPIC`: why each segment is still there, and when it goes. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/log_internal.h"
#include "cli/log_settings.h"
#include "os/clock.h"
#include "plog/explain.h"
#include "plog/textfile.h"

enum { TIME_SIZE = 96, REASON_SIZE = 300 };

struct explain {
    struct log_out out;
    struct str topic;
    int32_t partition; /* -1: all */
    const char *properties;
    const char **dirs, **configs;
    size_t dir_count, config_count;
    struct log_dirs found;
    struct log_settings settings;
    struct topic_settings topic_settings;
    int64_t now_ms;
    int shown, failed;
};

/* ---- Words */

static const char *time_text(char out[TIME_SIZE], int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    if (ms < 0 || !gmtime_r(&seconds, &tm) || tm.tm_year > 9999 - 1900)
        snprintf(out, TIME_SIZE, "%" PRId64 " ms", ms);
    else
        snprintf(out, TIME_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                 tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ms % 1000));
    return out;
}

struct reason {
    const char *id;
    char text[REASON_SIZE];
};

/* The earlier of what time and size allow, for a segment within the limits. */
static void limits_text(const struct explain *x, const struct segment_explained *s, struct reason *r)
{
    const struct plog_config *c = &x->topic_settings.log;
    char at[TIME_SIZE], by_time[120] = "", by_size[120] = "";
    r->id = "within_limits";
    if (s->opinion.due_ms != INT64_MAX)
        snprintf(by_time, sizeof by_time, "retention.ms (%" PRId64 ") keeps it until %s", c->retention_ms,
                 time_text(at, s->opinion.due_ms));
    if (s->opinion.more_bytes != INT64_MAX)
        snprintf(by_size, sizeof by_size, "retention.bytes (%" PRId64 ") until %" PRId64 " more bytes are written",
                 c->retention_bytes, s->opinion.more_bytes);
    if (!*by_time && !*by_size)
        snprintf(r->text, sizeof r->text, "nothing limits it: retention.ms and retention.bytes are -1");
    else
        snprintf(r->text, sizeof r->text, "%s%s%s%s", by_time, *by_time && *by_size ? ", " : "", by_size,
                 *by_time && *by_size ? ", whichever comes first" : "");
}

static void policy_text(const struct partition_view *p, const struct segment_explained *s, struct reason *r)
{
    int64_t cleaned = partition_checkpoint(p, LOG_CLEANED);
    r->id = "compaction";
    if (s->active)
        snprintf(r->text, sizeof r->text, "cleanup.policy=compact: it is cleaned when it is closed");
    else if (s->end <= cleaned)
        snprintf(r->text, sizeof r->text, "cleanup.policy=compact: it has been cleaned and stays");
    else
        snprintf(r->text, sizeof r->text,
                 "cleanup.policy=compact: it waits for the cleaner, which got to offset %" PRId64, MAX(cleaned, 0));
}

static void reason_of(const struct explain *x, const struct partition_view *p, const struct log_explained *le,
                      int64_t below, const struct segment_explained *s, struct reason *r)
{
    static const char next_check[] = "it goes at the next check (log.retention.check.interval.ms)";
    char at[TIME_SIZE];
    if (s->deleted) {
        r->id = "deleted";
        snprintf(r->text, sizeof r->text,
                 "deleted: its files go file.delete.delay.ms (%" PRId64 ") after that, or at the broker's next start",
                 x->topic_settings.log.file_delete_delay_ms);
        return;
    }
    switch (s->opinion.verdict) {
    case RETENTION_GO_START:
        r->id = "log_start";
        snprintf(r->text, sizeof r->text, "all of it is below the log's start (%" PRId64 "): %s", le->start,
                 next_check);
        break;
    case RETENTION_GO_SIZE:
        r->id = "over_size";
        snprintf(r->text, sizeof r->text, "the log without it is still longer than retention.bytes: %s", next_check);
        break;
    case RETENTION_GO_TIME:
        r->id = "expired";
        snprintf(r->text, sizeof r->text, "its newest record has been older than retention.ms since %s: %s",
                 time_text(at, s->opinion.due_ms), next_check);
        break;
    case RETENTION_KEEP_EMPTY:
        r->id = "empty";
        snprintf(r->text, sizeof r->text, "it is empty, and a log has at least one segment");
        break;
    case RETENTION_KEEP_ABOVE:
        r->id = "above_high_watermark";
        snprintf(r->text, sizeof r->text, "its records are not all below the high watermark (%" PRId64 ") yet", below);
        break;
    case RETENTION_KEEP_POLICY: policy_text(p, s, r); break;
    case RETENTION_KEEP_LIMITS: limits_text(x, s, r); break;
    case RETENTION_KEEP_BEHIND:
        r->id = "behind_older";
        snprintf(r->text, sizeof r->text, "it could go, but an older segment stays, and logs go from their oldest on");
        break;
    }
}

/* ---- Printing */

static void print_json(struct explain *x, const struct segment_explained *s, const struct reason *r)
{
    struct row row = row_begin(&x->out, "segment");
    row_int(&row, "baseOffset", s->base_offset);
    if (!s->deleted) row_int(&row, "endOffset", s->end);
    row_int(&row, "size", s->size);
    if (s->first_ms >= 0) row_int(&row, "firstTimestamp", s->first_ms);
    if (!s->deleted) row_int(&row, "newestTimestamp", s->newest_ms);
    row_bool(&row, "active", s->active);
    row_text(&row, "reason", r->id);
    row_bool(&row, "goes", s->deleted || retention_goes(s->opinion.verdict));
    if (!s->deleted && s->opinion.due_ms != INT64_MAX) row_int(&row, "expiresMs", s->opinion.due_ms);
    if (!s->deleted && s->opinion.more_bytes != INT64_MAX) row_int(&row, "bytesUntilOverSize", s->opinion.more_bytes);
    if (s->active && s->roll_ms != INT64_MAX) row_int(&row, "rollsMs", s->roll_ms);
    row_text(&row, "text", r->text);
    row_end(&row, "");
}

static void print_text(const struct segment_explained *s, const struct reason *r)
{
    char from[TIME_SIZE], to[TIME_SIZE], roll[TIME_SIZE];
    printf("  %020" PRId64 "%s: ", s->base_offset, s->active ? " (active)" : "");
    if (s->deleted)
        printf("%" PRId64 " bytes\n", s->size);
    else if (s->size == 0)
        printf("empty\n");
    else
        printf("offsets %" PRId64 " to %" PRId64 ", %" PRId64 " bytes, %s to %s\n", s->base_offset, s->end - 1, s->size,
               time_text(from, s->first_ms), time_text(to, s->newest_ms));
    printf("    %s.\n", r->text);
    if (s->active && s->roll_ms != INT64_MAX)
        printf("    segment.ms closes it at about %s, segment.bytes before that if it gets that long.\n",
               time_text(roll, s->roll_ms));
}

static void print_head(struct explain *x, const struct partition_view *p, const struct log_explained *le, int64_t below)
{
    const struct plog_config *c = &x->topic_settings.log;
    const char *policy = c->cleanup_compact ? c->cleanup_delete ? "compact,delete" : "compact" : "delete";
    char *watermark = below < 0 ? mem_strdup("unknown") : mem_printf("%" PRId64, below);
    if (x->out.json) {
        struct row row = row_begin(&x->out, "log");
        row_int(&row, "startOffset", le->start);
        row_int(&row, "endOffset", le->end);
        row_int(&row, "highWatermark", below);
        row_int(&row, "size", le->size);
        row_text(&row, "cleanup.policy", policy);
        row_int(&row, "retention.ms", c->retention_ms);
        row_int(&row, "retention.bytes", c->retention_bytes);
        row_text(&row, "settingsFrom", x->settings.source);
        row_end(&row, "");
    } else {
        printf("%s in %s: start %" PRId64 ", high watermark %s, end %" PRId64 ", %" PRId64 " bytes\n", p->name,
               p->dir->path, le->start, watermark, le->end, le->size);
        printf("  cleanup.policy=%s retention.ms=%" PRId64 " retention.bytes=%" PRId64 ", from %s\n", policy,
               c->retention_ms, c->retention_bytes, x->settings.source);
    }
    mem_free(watermark);
}

static void explain_partition(struct explain *x, const struct partition_view *p)
{
    int64_t below = partition_checkpoint(p, LOG_WATERMARKS);
    const struct plog_explain_options opt = {
        .fs = fs_system(),
        .dir = p->path,
        .config = x->topic_settings.log,
        .log_start = partition_checkpoint(p, LOG_STARTS),
        .below = below,
        .now_ms = x->now_ms,
    };
    struct log_explained le;
    enum err e = plog_explain(&le, &opt);
    if (e) {
        fprintf(stderr, "barnabas: The log in %s cannot be read: %s.\n", p->path, err_text(e));
        x->failed++;
        return;
    }
    x->out.file = p->path;
    print_head(x, p, &le, below);
    for (size_t i = 0; i < le.count; i++) {
        struct reason r;
        reason_of(x, p, &le, below, &le.segments[i], &r);
        if (x->out.json)
            print_json(x, &le.segments[i], &r);
        else
            print_text(&le.segments[i], &r);
    }
    log_explained_fini(&le);
}

/* ---- The whole */

static enum err find_logs(struct explain *x, struct fault *f)
{
    enum err e = log_settings_load(&x->settings, x->properties, f);
    struct config_list dirs = {0};
    if (!e && x->dir_count == 0) dirs = config_log_dirs(x->settings.config);
    for (size_t i = 0; i < x->dir_count && !e; i++) e = log_dirs_add(&x->found, fs_system(), x->dirs[i], f);
    for (size_t i = 0; i < dirs.count && !e; i++) e = log_dirs_add(&x->found, fs_system(), dirs.items[i], f);
    for (size_t i = 0; i < x->found.dir_count && !e; i++)
        e = log_settings_store(&x->settings, x->found.dirs[i]->path, x->topic, f);
    for (size_t i = 0; i < x->config_count && !e; i++) e = log_settings_set(&x->settings, x->configs[i], f);
    if (!e) topic_settings_build(&x->topic_settings, x->settings.config, x->settings.overrides);
    return e;
}

static int explain_all(struct explain *x)
{
    struct fault f = {.code = OK};
    x->now_ms = clock_wall_ms(clock_system());
    if (find_logs(x, &f)) {
        fprintf(stderr, "barnabas: %s\n", f.text);
        return 1;
    }
    for (size_t i = 0; i < x->found.partition_count; i++) {
        const struct partition_view *p = &x->found.partitions[i];
        if (!str_equal(p->id.topic, x->topic) || (x->partition >= 0 && p->id.index != x->partition)) continue;
        x->shown++;
        explain_partition(x, p);
    }
    if (x->shown == 0) {
        fprintf(stderr, "barnabas: There is no log of topic %.*s here. Say with --dir where the log directory is.\n",
                STR_ARG(x->topic));
        return 1;
    }
    return x->failed > 0 ? 1 : 0;
}

static int parse_valued(struct explain *x, const char *option, const char *value)
{
    int64_t partition;
    if (!value) return cli_usage_error("log", "%s needs a value", option);
    if (strcmp(option, "--dir") == 0) {
        x->dirs[x->dir_count++] = value;
    } else if (strcmp(option, "--config") == 0) {
        x->configs[x->config_count++] = value;
    } else if (strcmp(option, "--properties") == 0) {
        x->properties = value;
    } else {
        if (!textfile_number(str_of(value), 0, INT32_MAX, &partition))
            return cli_usage_error("log", "--partition needs a number");
        x->partition = (int32_t)partition;
    }
    return 0;
}

static int parse(struct explain *x, int argc, char **argv)
{
    static const char *const valued[] = {"--dir", "--config", "--properties", "--partition"};
    int status = 0;
    for (int i = 1; i < argc && !status; i++) {
        bool takes_value = false;
        for (size_t k = 0; k < ARRAY_COUNT(valued); k++) takes_value |= strcmp(argv[i], valued[k]) == 0;
        if (takes_value) {
            status = parse_valued(x, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        } else if (strcmp(argv[i], "--json") == 0) {
            x->out.json = true;
        } else if (argv[i][0] == '-') {
            status = cli_usage_error("log", "explain has no option '%s'", argv[i]);
        } else if (x->topic.data) {
            status = cli_usage_error("log", "explain takes one topic: '%s' is the second", argv[i]);
        } else {
            x->topic = str_of(argv[i]);
        }
    }
    if (!status && !x->topic.data) status = cli_usage_error("log", "explain needs a topic");
    return status;
}

int log_explain(int argc, char **argv)
{
    struct explain x = {.partition = -1};
    x.dirs = mem_zalloc((size_t)argc, sizeof(char *));
    x.configs = mem_zalloc((size_t)argc, sizeof(char *));
    int status = parse(&x, argc, argv);
    if (!status) status = explain_all(&x);
    log_settings_free(&x.settings);
    log_dirs_free(&x.found);
    mem_free(x.dirs);
    mem_free(x.configs);
    return status;
}
