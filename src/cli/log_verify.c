/* log_verify.c: `barnabas log verify DIR...`: what is wrong with logs, and what to do about it. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/log_check.h"
#include "cli/log_internal.h"

enum { EXIT_SOUND, EXIT_DAMAGED, EXIT_BLIND };

struct verify_run {
    struct log_out out;
    bool deep, notes;
    struct log_dirs dirs;
    struct finding_list general; /* about log directories */
    struct partition_check *checks;
    int64_t partitions, segments, batches, records, bytes, damages, hidden_notes;
    bool blind; /* something could not be looked at */
};

static void print_finding(struct verify_run *r, const struct kept_finding *f)
{
    bool damage = verify_kind_level(f->kind) == VERIFY_DAMAGE;
    r->damages += damage;
    if (!damage && !r->notes && !r->out.json) {
        r->hidden_notes++;
        return;
    }
    if (r->out.json) {
        r->out.file = f->file;
        struct row row = row_begin(&r->out, "finding");
        row_text(&row, "level", damage ? "damage" : "note");
        row_text(&row, "id", verify_kind_id(f->kind));
        if (f->pos >= 0) row_int(&row, "position", f->pos);
        row_text(&row, "text", f->text);
        row_text(&row, "advice", verify_kind_advice(f->kind));
        row_end(&row, "");
        return;
    }
    print_escaped(stdout, str_of(f->file));
    if (f->pos >= 0) printf(", position %" PRId64, f->pos);
    size_t n = strlen(f->text);
    printf(": %s%s%s\n    %s\n", damage ? "" : "note: ", f->text, n && f->text[n - 1] == '.' ? "" : ".",
           verify_kind_advice(f->kind));
}

static void print_list(struct verify_run *r, const struct finding_list *list)
{
    for (size_t i = 0; i < list->count; i++) print_finding(r, &list->items[i]);
}

/* ---- Log directories */

static void check_meta(struct verify_run *r, const struct log_dir_view *d)
{
    struct meta_properties mp;
    struct fault f = {.code = OK};
    char *path = mem_printf("%s/" META_PROPERTIES, d->path);
    meta_properties_init(&mp);
    enum err e = meta_properties_read(&mp, fs_system(), path, &f);
    if (e && e != ERR_NOT_FOUND) finding_add(&r->general, VERIFY_META, path, -1, "%s", f.code ? f.text : err_text(e));
    meta_properties_fini(&mp);
    mem_free(path);
}

static void check_dir(struct verify_run *r, const struct log_dir_view *d)
{
    if (d->live)
        finding_add(&r->general, VERIFY_LIVE, d->path, -1,
                    "a broker is running here: active segments and checkpoints change and are left out");
    else if (!d->clean)
        finding_add(&r->general, VERIFY_NOT_CLEAN, d->path, -1, "the broker was not stopped cleanly");
    check_meta(r, d);
}

/* Whether a broker came or went while we looked: then what was found may mean nothing. */
static bool changed_hands(const struct verify_run *r)
{
    for (size_t i = 0; i < r->dirs.dir_count; i++) {
        bool known;
        if (log_dir_is_live(fs_system(), r->dirs.dirs[i]->path, &known) != r->dirs.dirs[i]->live) return true;
    }
    return false;
}

/* ---- The whole */

static void blind(struct verify_run *r, const char *text)
{
    fprintf(stderr, "barnabas: %s\n", text);
    r->blind = true;
}

static void print_partition(struct verify_run *r, const struct partition_view *p, const struct partition_check *c)
{
    if (c->err) {
        char *text = mem_printf("The directory %s cannot be read: %s.", p->path, err_text(c->err));
        blind(r, text);
        mem_free(text);
        return;
    }
    const struct plog_verify_result *res = &c->result;
    print_list(r, &c->found);
    r->partitions++;
    r->segments += res->segments;
    r->batches += res->batches;
    r->records += res->records;
    r->bytes += res->bytes;
    if (!r->out.json) return;
    r->out.file = p->path;
    struct row row = row_begin(&r->out, "partition");
    row_int(&row, "firstOffset", res->first);
    row_int(&row, "endOffset", res->end);
    row_int(&row, "segments", res->segments);
    row_int(&row, "batches", res->batches);
    row_int(&row, "records", res->records);
    row_int(&row, "bytes", res->bytes);
    row_int(&row, "damages", (int64_t)c->found.damages);
    row_end(&row, "");
}

static void print_summary(struct verify_run *r)
{
    if (r->out.json) return;
    printf("%" PRId64 " partitions, %" PRId64 " segments, %" PRId64 " batches, %" PRId64 " records, %.1f MiB: ",
           r->partitions, r->segments, r->batches, r->records, (double)r->bytes / (1 << 20));
    if (r->damages)
        printf("%" PRId64 " damaged.\n", r->damages);
    else
        printf("sound.\n");
    if (r->hidden_notes) printf("Besides, %" PRId64 " notes; --notes shows them.\n", r->hidden_notes);
}

static int verify_all(struct verify_run *r)
{
    struct fault f = {.code = OK};
    for (size_t i = 0; i < r->dirs.dir_count; i++) check_dir(r, r->dirs.dirs[i]);
    for (size_t i = 0; i < r->dirs.other_count; i++)
        finding_add(&r->general, VERIFY_STRAY, r->dirs.others[i], -1,
                    "no directory of a live partition has such a name");
    if (log_checks_run(&r->checks, &r->dirs, fs_system(), r->deep, &f)) {
        blind(r, f.text);
        return EXIT_BLIND;
    }
    if (changed_hands(r)) {
        blind(r, "A broker was started or stopped meanwhile, so what was found may be wrong. Run this again.");
    } else {
        log_checks_checkpoints(&r->general, &r->dirs, r->checks);
        print_list(r, &r->general);
        for (size_t i = 0; i < r->dirs.partition_count; i++) print_partition(r, &r->dirs.partitions[i], &r->checks[i]);
        print_summary(r);
    }
    log_checks_free(r->checks, r->dirs.partition_count);
    return r->blind ? EXIT_BLIND : r->damages ? EXIT_DAMAGED : EXIT_SOUND;
}

int log_verify(int argc, char **argv)
{
    struct verify_run r = {0};
    struct fault f = {.code = OK};
    int status = 0, paths = 0;
    for (int i = 1; i < argc && !status; i++) {
        if (strcmp(argv[i], "--json") == 0)
            r.out.json = true;
        else if (strcmp(argv[i], "--deep") == 0)
            r.deep = true;
        else if (strcmp(argv[i], "--notes") == 0)
            r.notes = true;
        else if (argv[i][0] == '-')
            status = cli_usage_error("log", "verify has no option '%s'", argv[i]);
        else if (++paths && log_dirs_add(&r.dirs, fs_system(), argv[i], &f))
            blind(&r, f.text);
    }
    if (!status && paths == 0) status = cli_usage_error("log", "verify needs a directory");
    if (!status) status = verify_all(&r);
    finding_list_free(&r.general);
    log_dirs_free(&r.dirs);
    return status;
}
