/* coord.c: `barnabas coord`: dump looks at the embedded store, also while a broker runs. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "coord/embedded.h"
#include "os/clock.h"
#include "os/fs.h"

/* One loop turned by hand: the store answers on it. */
struct dump {
    bool done;
    enum err err;
};

static void on_dumped(void *arg, const struct coord_result *r)
{
    struct dump *d = arg;
    d->err = r->err;
    d->done = true;
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static enum err dump(struct loop *l, const char *dir, struct fault *f)
{
    const struct coord_embedded_options opt = {
        .fs = fs_system(), .clock = clock_system(), .dir = dir, .read_only = true};
    struct coord *c;
    enum err e = coord_embedded_open(&c, &opt, f);
    if (e) return e;
    struct dump d = {0};
    coord_dump(c, stdout, (struct coord_to){l, on_dumped, &d});
    while (!d.done) loop_turn(l, -1);
    bool closed = false;
    coord_close(c, l, on_closed, &closed);
    while (!closed) loop_turn(l, -1);
    return d.err ? fault_set(f, d.err, "The store in %s cannot be read: %s.", dir, err_text(d.err)) : OK;
}

int cli_coord(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "import") == 0) return cli_coord_import(argc - 1, argv + 1);
    if (argc < 2 || strcmp(argv[1], "dump") != 0)
        return cli_usage_error("coord", "say what to do: dump DIR, or import --zookeeper HOST:PORT DIR...");
    if (argc != 3) return cli_usage_error("coord", "dump takes one log directory");
    struct fault f = {0};
    struct loop *l;
    enum err e = loop_new(&l, clock_system(), 0, &f);
    if (!e) {
        e = dump(l, argv[2], &f);
        loop_free(l);
    }
    if (!e) return 0;
    fprintf(stderr, "barnabas: %s\n", f.text);
    return 1;
}
