/* log_dump.c: `barnabas log dump FILE|DIR...`: arguments, directories, and which file is what. */
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/log_internal.h"

enum { DEPTH_MAX = 2 }; /* a log directory, its partitions */

struct dump {
    struct log_out out;
    struct dump_options opt;
    bool decode_given;
};

static enum coordinator_log decode_of_path(const char *path)
{
    char *dir = path_dir(path);
    struct partition_name name;
    enum coordinator_log log = COORDINATOR_LOG_NONE;
    if (partition_name_parse(&name, path_name(dir))) log = coordinator_log_of_topic(name.topic);
    mem_free(dir);
    return log;
}

static void dump_batches(struct dump *d, const char *path)
{
    struct dump_options opt = d->opt;
    if (!d->decode_given) opt.decode = decode_of_path(path);
    struct file *file;
    enum err e = fs_open(fs_system(), path, FS_READ, &file);
    if (e) {
        log_out_error(&d->out, -1, "it cannot be opened: %s.", err_text(e));
        return;
    }
    dump_log(&d->out, file, &opt);
    file_unref(file);
}

/* `asked`: the file was named on the command line, so that not knowing it is an error. */
static void dump_file(struct dump *d, const char *path, bool asked)
{
    int64_t base_offset;
    enum log_file_kind kind = log_file_kind(path_name(path), &base_offset);
    d->out.file = path;
    if (kind == LOG_FILE_UNKNOWN) {
        if (asked)
            log_out_error(&d->out, -1, "its name is none that a log directory has, so what it holds is not known.");
        return;
    }
    if (!d->out.json) {
        printf("Dumping ");
        print_escaped(stdout, str_of(path));
        putchar('\n');
    }
    if (kind == LOG_FILE_LOG)
        dump_batches(d, path);
    else
        dump_small_file(&d->out, fs_system(), kind, base_offset);
}

static void dump_path(struct dump *d, const char *path, int depth)
{
    struct fs_stat st;
    d->out.file = path;
    enum err e = fs_stat(fs_system(), path, &st);
    if (e) {
        log_out_error(&d->out, -1, "it cannot be looked at: %s.", err_text(e));
        return;
    }
    if (!st.is_dir) {
        dump_file(d, path, depth == 0);
        return;
    }
    struct name_list list;
    e = name_list_read(&list, fs_system(), path);
    if (e) {
        log_out_error(&d->out, -1, "it cannot be listed: %s.", err_text(e));
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        if (list.entries[i].is_dir && depth + 1 >= DEPTH_MAX) continue;
        size_t n = strlen(path);
        char *child = mem_printf("%s%s%s", path, n > 0 && path[n - 1] == '/' ? "" : "/", list.entries[i].name);
        dump_path(d, child, depth + 1);
        mem_free(child);
    }
    name_list_free(&list);
}

static bool parse_decode(struct dump *d, const char *name)
{
    d->decode_given = true;
    d->opt.records = true;
    if (strcmp(name, "offsets") == 0)
        d->opt.decode = COORDINATOR_LOG_OFFSETS;
    else if (strcmp(name, "transactions") == 0)
        d->opt.decode = COORDINATOR_LOG_TRANSACTIONS;
    else
        return strcmp(name, "none") == 0;
    return true;
}

static int parse_option(struct dump *d, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    if (strcmp(arg, "--json") == 0) {
        d->out.json = true;
    } else if (strcmp(arg, "--deep") == 0) {
        d->opt.deep = true;
    } else if (strcmp(arg, "--records") == 0) {
        d->opt.records = true;
    } else if (strcmp(arg, "--decode") == 0) {
        if (*i + 1 == argc || !parse_decode(d, argv[++*i]))
            return cli_usage_error("log", "--decode needs one of offsets, transactions, none");
    } else {
        return cli_usage_error("log", "dump has no option '%s'", arg);
    }
    return 0;
}

int log_dump(int argc, char **argv)
{
    struct dump d = {0};
    int paths = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            argv[1 + paths++] = argv[i];
            continue;
        }
        int status = parse_option(&d, argc, argv, &i);
        if (status) return status;
    }
    if (paths == 0) return cli_usage_error("log", "dump needs a file or a directory");
    d.opt.deep |= d.opt.records;
    for (int i = 1; i <= paths; i++) dump_path(&d, argv[i], 0);
    return d.out.errors > 0 ? 1 : 0;
}
