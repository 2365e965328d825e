/* admin.c: see admin.h. */
#include "cli/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "broker/config.h"
#include "os/fs.h"

/* The keys that act, where they go, and the least that makes sense. */
static const struct {
    const char *key;
    size_t at; /* of an int64_t in struct cluster_options */
    int64_t min;
} numbers[] = {
    {"default.api.timeout.ms", offsetof(struct cluster_options, timeout_ms), 0},
    {"request.timeout.ms", offsetof(struct cluster_options, request_timeout_ms), 0},
    {"socket.connection.setup.timeout.ms", offsetof(struct cluster_options, connect_timeout_ms), 1},
    {"retry.backoff.ms", offsetof(struct cluster_options, backoff_ms), 0},
    {"retry.backoff.max.ms", offsetof(struct cluster_options, backoff_max_ms), 0},
};

static bool parse_number(const char *text, int64_t min, int64_t *out)
{
    int64_t n = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > INT32_MAX) return false;
        n = n * 10 + (*text - '0');
    }
    *out = n;
    return n >= min && n <= INT32_MAX;
}

/* Takes one key; false: it must be refused. */
static bool take_key(struct cluster_options *opt, const struct config_pair *pair, const char *file, struct failure *f)
{
    if (strcmp(pair->name, "client.id") == 0) {
        opt->client_id = pair->value;
        return true;
    }
    if (strcmp(pair->name, "bootstrap.servers") == 0) return true; /* the option is for that, and wins */
    if (strcmp(pair->name, "security.protocol") == 0) {
        if (strcasecmp(pair->value, "PLAINTEXT") == 0) return true;
        return failure_set(f, ERR_UNSUPPORTED,
                           "%s, line %d: security.protocol=%s cannot be honoured: this build speaks PLAINTEXT only.",
                           file, pair->line, pair->value);
    }
    if (strncmp(pair->name, "ssl.", 4) == 0 || strncmp(pair->name, "sasl.", 5) == 0)
        return failure_set(f, ERR_UNSUPPORTED,
                           "%s, line %d: %s cannot be honoured: this build has neither TLS nor SASL.", file, pair->line,
                           pair->name);
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        if (strcmp(pair->name, numbers[i].key) != 0) continue;
        if (parse_number(pair->value, numbers[i].min, (int64_t *)(void *)((char *)opt + numbers[i].at))) return true;
        return failure_set(f, ERR_INVALID, "%s, line %d: %s=%s must be a number of milliseconds from %" PRId64 " on.",
                           file, pair->line, pair->name, pair->value, numbers[i].min);
    }
    fprintf(stderr, "barnabas: %s, line %d: %s has no effect here.\n", file, pair->line, pair->name);
    return true;
}

static bool take_file(struct cluster_options *opt, struct config_map *map, const char *path, struct failure *f)
{
    char *text;
    size_t size;
    struct fault fault = {0};
    enum err e = fs_read_whole(fs_system(), path, CONFIG_FILE_BYTES_MAX, &text, &size);
    if (e) return failure_set(f, ERR_INVALID, "The file %s cannot be read: %s.", path, err_text(e));
    e = config_parse_properties(map, (struct str){text, size}, path, &fault);
    mem_free(text);
    if (e) return failure_set(f, ERR_INVALID, "%s", fault.text);
    for (size_t i = 0; i < config_map_count(map); i++)
        if (!take_key(opt, config_map_at(map, i), path, f)) return false;
    return true;
}

bool admin_open(struct cluster **out, const struct admin_settings *s, struct failure *f)
{
    struct cluster_options opt = CLUSTER_OPTIONS_DEFAULT;
    struct config_map *map = config_map_new();
    bool ok = !s->config_file || take_file(&opt, map, s->config_file, f);
    opt.bootstrap = s->bootstrap;
    if (s->timeout_ms >= 0) opt.timeout_ms = s->timeout_ms;
    ok = ok && cluster_open(out, &opt, f);
    config_map_free(map);
    return ok;
}
