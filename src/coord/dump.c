/* dump.c: prints the tree depth first, one node at a time: a stack of names still to be visited. */
#include <string.h>

#include "base/mem.h"
#include "coord/coord.h"

struct dump {
    struct coord *c;
    FILE *out;
    struct coord_to to;
    char **paths; /* the next one last */
    size_t count, cap;
    char *path; /* being printed */
};

static void dump_next(struct dump *d);

static void dump_end(struct dump *d, enum err e, const char *text)
{
    struct coord_result r = {.err = e, .text = text};
    struct coord_to to = d->to;
    for (size_t i = 0; i < d->count; i++) mem_free(d->paths[i]);
    mem_free(d->paths);
    mem_free(d->path);
    mem_free(d);
    if (to.done) to.done(to.arg, &r);
}

static void dump_got(void *arg, const struct coord_result *r)
{
    struct dump *d = arg;
    if (r->err) return; /* dump_children() learns it too, and decides */
    fprintf(d->out, "%s [v%d%s] ", d->path, r->stat.version, r->stat.ephemeral_owner ? " ephemeral" : "");
    if (r->data.size) fwrite(r->data.data, 1, r->data.size, d->out);
    fputc('\n', d->out);
}

static void dump_children(void *arg, const struct coord_result *r)
{
    struct dump *d = arg;
    if (r->err && r->err != ERR_NOT_FOUND) {
        dump_end(d, r->err, r->text);
        return;
    }
    for (size_t i = r->child_count; i-- > 0;) {
        d->paths = mem_grow(d->paths, &d->cap, d->count + 1, sizeof *d->paths);
        d->paths[d->count++] = mem_printf("%s/%.*s", strcmp(d->path, "/") == 0 ? "" : d->path, STR_ARG(r->children[i]));
    }
    mem_free(d->path);
    d->path = NULL;
    dump_next(d);
}

static void dump_next(struct dump *d)
{
    if (d->count == 0) {
        dump_end(d, ferror(d->out) ? ERR_IO : OK, NULL);
        return;
    }
    d->path = d->paths[--d->count];
    coord_get(d->c, str_of(d->path), COORD_NO_WATCH, (struct coord_to){d->to.loop, dump_got, d});
    coord_children(d->c, str_of(d->path), COORD_NO_WATCH, (struct coord_to){d->to.loop, dump_children, d});
}

void coord_dump(struct coord *c, FILE *out, struct coord_to to)
{
    struct dump *d = mem_zalloc(1, sizeof *d);
    *d = (struct dump){.c = c, .out = out, .to = to};
    d->paths = mem_grow(d->paths, &d->cap, 1, sizeof *d->paths);
    d->paths[d->count++] = mem_strdup("/");
    dump_next(d);
}
