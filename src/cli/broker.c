/* broker.c: `barnabas broker`: arguments, configuration, and on to broker_run(). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "broker/broker.h"
#include "cli/cli.h"
#include "os/process.h"

#define LOG_MODULE "cli"
#include "base/log.h"

struct arguments {
    const char *file;
    const char **overrides;
    size_t override_count;
};

/* Of "--override KEY=VALUE" and "--override=KEY=VALUE"; NULL when there is none. */
static const char *override_pair(int argc, char **argv, int *i)
{
    const char *pair = argv[*i] + sizeof "--override" - 1;
    if (*pair == '=')
        pair++;
    else if (*pair == '\0' && *i + 1 < argc)
        pair = argv[++*i];
    return strchr(pair, '=') ? pair : NULL;
}

static int parse_arguments(int argc, char **argv, struct arguments *out)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--override", sizeof "--override" - 1) == 0) {
            const char *pair = override_pair(argc, argv, &i);
            if (!pair) return cli_usage_error("broker", "--override needs KEY=VALUE");
            out->overrides[out->override_count++] = pair;
        } else if (argv[i][0] == '-') {
            return cli_usage_error("broker", "there is no option '%s'", argv[i]);
        } else if (out->file) {
            return cli_usage_error("broker", "one configuration file at most: '%s' is the second", argv[i]);
        } else {
            out->file = argv[i];
        }
    }
    return 0;
}

static enum err load_config(const struct arguments *args, struct config **out, struct fault *f)
{
    char *text = NULL;
    size_t size = 0;
    if (args->file) {
        enum err e = fs_read_whole(fs_system(), args->file, CONFIG_FILE_BYTES_MAX, &text, &size);
        if (e) return fault_set(f, e, "The configuration file %s cannot be read: %s.", args->file, err_text(e));
    }
    const struct config_input in = {
        .file_name = args->file,
        .text = {text, size},
        .overrides = args->overrides,
        .override_count = args->override_count,
        .cpu_count = (int)process_cpu_count(),
    };
    enum err e = config_load(out, &in, f);
    mem_free(text);
    return e;
}

static int64_t log_wall_ms(void *arg)
{
    return clock_wall_ms(arg);
}

static enum err start_log(const struct config *cfg, struct fault *f)
{
    enum log_level level;
    if (log_level_parse(config_str(cfg, CFG_LOG_LEVEL), &level)) log_init(log_wall_ms, clock_system(), level);
    return log_open_file(config_str(cfg, CFG_LOG_FILE), f);
}

static void report_notices(const struct config *cfg)
{
    for (size_t i = 0; i < config_notice_count(cfg); i++) {
        const struct config_notice *n = config_notice_at(cfg, i);
        LOG_WARN("configuration", "key=%s notice=\"%s\"", n->name, n->text);
    }
}

static int failed(const struct fault *f)
{
    fprintf(stderr, "barnabas: %s\n", f->text);
    return 1;
}

int cli_broker(int argc, char **argv)
{
    struct arguments args = {.overrides = mem_zalloc((size_t)argc, sizeof(char *))};
    int status = parse_arguments(argc, argv, &args);
    struct fault f = {0};
    struct config *cfg = NULL;
    log_init(log_wall_ms, clock_system(), LOG_LEVEL_INFO);
    if (!status && (load_config(&args, &cfg, &f) || start_log(cfg, &f))) status = failed(&f);
    if (!status) {
        report_notices(cfg);
        const struct broker_env env = {
            .fs = fs_system(), .net = net_system(), .clock = clock_system(), .rng = rng_system()};
        if (broker_run(&env, cfg, &f)) status = failed(&f);
    } else {
        config_unref(cfg);
    }
    mem_free(args.overrides);
    log_close();
    return status;
}

int cli_config_doc(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) return cli_usage_error("config-doc", "it takes no arguments");
    return config_write_markdown(stdout) ? 0 : 1;
}
