/* zookeeper_store.c: the ZooKeeper store by itself, for test_zookeeper_store.py.
 *
 *   zookeeper_store cases HOST:PORT         runs the suite of unit/coord_cases.h, each test below a path of its own
 *   zookeeper_store drive OPTION=VALUE...   opens a session and takes commands, one a line, from standard input:
 *
 *     create PATH FLAGS DATA    set PATH VERSION DATA    delete PATH VERSION
 *     get PATH WATCH            exists PATH WATCH        children PATH WATCH
 *     multi STEP...             flood PATH COUNT         watch PATH COUNT        renew        close
 *
 * FLAGS: some of e (ephemeral), s (sequential), or -.  DATA - is none.  WATCH is w or -.  A STEP is a command with
 * commas in place of the blanks, check,PATH,VERSION is one too.  `flood` makes COUNT nodes PATH0, PATH1, ... without
 * waiting. What comes back is told as one line of JSON each: {"call": N, ...} for the N-th command, {"event": ...},
 * {"state": ...},
 * {"closed": true} at the end. */
#include <fcntl.h>
#include <sys/epoll.h>

#include "unit/coord_cases.h"

/* --- cases --- */

static const char *servers;

static int setup(void **state)
{
    static int number;
    char connect[256];
    snprintf(connect, sizeof connect, "%s/cases/%d", servers, number++);
    *state = world_new_zookeeper(connect);
    return 0;
}

static int teardown(void **state)
{
    world_free(*state);
    return 0;
}

#define ON_ENSEMBLE(test) {"zookeeper: " #test, test, setup, teardown, NULL},

static int run_cases(const char *address)
{
    const struct CMUnitTest tests[] = {COORD_CASES(ON_ENSEMBLE)};
    servers = address;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* --- drive --- */

enum { WORDS_MAX = 2000 };

struct driver {
    struct loop *loop;
    struct coord *c;
    struct loop_io in;
    char *line;
    size_t size, cap;
    int calls;
};

struct asked {
    struct driver *d;
    int number;
    int left, next, wrong; /* flood */
    enum err err, expected;
};

struct one_of_flood {
    struct asked *a;
    int index;
};

static void say_str(const char *name, struct str s)
{
    if (!str_is_null(s)) printf(", \"%s\": \"%.*s\"", name, STR_ARG(s));
}

static void said(void)
{
    printf("}\n");
    fflush(stdout);
}

static void told(void *arg, enum coord_state state, const struct fault *f)
{
    static const char *const names[] = {"connected", "disconnected", "expired", "failed"};
    const struct driver *d = arg;
    printf("{\"state\": \"%s\", \"session\": %lld", names[state], (long long)coord_session_id(d->c));
    if (f) say_str("text", str_of(f->text));
    if (f) say_str("err", str_of(err_name(f->code)));
    said();
}

static void fired(void *arg, enum coord_event event, struct str path)
{
    static const char *const names[] = {"created", "deleted", "changed", "children"};
    (void)arg;
    printf("{\"event\": \"%s\"", names[event]);
    say_str("path", path);
    said();
}

static void say_steps(const struct coord_result *r)
{
    printf(", \"steps\": [");
    for (size_t i = 0; i < r->result_count; i++) {
        const struct coord_op_result *step = &r->results[i];
        printf("%s{\"err\": \"%s\", \"version\": %d", i ? ", " : "", err_name(step->err), step->stat.version);
        say_str("path", step->path);
        printf("}");
    }
    printf("]");
}

static void answered(void *arg, const struct coord_result *r)
{
    struct asked *a = arg;
    printf("{\"call\": %d, \"err\": \"%s\"", a->number, err_name(r->err));
    if (r->text) say_str("text", str_of(r->text));
    say_str("path", r->path);
    say_str("data", (struct str){(const char *)r->data.data, r->data.size});
    printf(", \"version\": %d, \"czxid\": %lld, \"mzxid\": %lld, \"owner\": %lld", r->stat.version,
           (long long)r->stat.czxid, (long long)r->stat.mzxid, (long long)r->stat.ephemeral_owner);
    if (r->children) {
        printf(", \"children\": [");
        for (size_t i = 0; i < r->child_count; i++) printf("%s\"%.*s\"", i ? ", " : "", STR_ARG(r->children[i]));
        printf("]");
    }
    if (r->results) say_steps(r);
    said();
    mem_free(a);
}

static void flooded(void *arg, const struct coord_result *r)
{
    struct one_of_flood *of = arg;
    struct asked *a = of->a;
    if (r->err != a->expected) a->wrong++;
    if (r->err != a->expected && !a->err) a->err = r->err ? r->err : ERR_EXISTS;
    if (of->index != a->next++) a->err = ERR_CORRUPT; /* out of order */
    mem_free(of);
    if (--a->left) return;
    printf("{\"call\": %d, \"err\": \"%s\", \"wrong\": %d", a->number, err_name(a->err), a->wrong);
    said();
    mem_free(a);
}

static void gone(void *arg)
{
    struct driver *d = arg;
    d->c = NULL;
    printf("{\"closed\": true");
    said();
    loop_stop(d->loop);
}

static struct bytes data_of(const char *word)
{
    if (strcmp(word, "-") == 0) return (struct bytes){NULL, 0};
    return (struct bytes){(const uint8_t *)word, strlen(word)};
}

static struct coord_op op_of(char *const *words)
{
    struct coord_op op = {.path = str_of(words[1])};
    if (strcmp(words[0], "create") == 0) {
        op.kind = COORD_CREATE;
        op.flags = (strchr(words[2], 'e') ? COORD_EPHEMERAL : 0u) | (strchr(words[2], 's') ? COORD_SEQUENTIAL : 0u);
        op.data = data_of(words[3]);
        return op;
    }
    op.version = atoi(words[2]);
    op.kind = strcmp(words[0], "set") == 0 ? COORD_SET : strcmp(words[0], "delete") == 0 ? COORD_DELETE : COORD_CHECK;
    if (op.kind == COORD_SET) op.data = data_of(words[3]);
    return op;
}

static size_t split(char *text, const char *at, char **words)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *w = strtok_r(text, at, &rest); w; w = strtok_r(NULL, at, &rest)) {
        assert_true(count < WORDS_MAX);
        words[count++] = w;
    }
    return count;
}

static void multi(struct driver *d, char *const *steps, size_t count, struct coord_to to)
{
    struct coord_op *ops = mem_zalloc(count, sizeof *ops);
    for (size_t i = 0; i < count; i++) {
        char *words[WORDS_MAX];
        split(steps[i], ",", words);
        ops[i] = op_of(words);
    }
    coord_multi(d->c, ops, count, to);
    mem_free(ops);
}

static void flood(struct driver *d, struct asked *a, const char *path, int count, bool watch)
{
    a->left = count;
    a->expected = watch ? ERR_NOT_FOUND : OK;
    for (int i = 0; i < count; i++) {
        struct one_of_flood *of = mem_zalloc(1, sizeof *of);
        char *name = mem_printf("%s%d", path, i);
        *of = (struct one_of_flood){a, i};
        struct coord_to to = {d->loop, flooded, of};
        if (watch)
            coord_exists(d->c, str_of(name), (struct coord_watch){fired, d}, to);
        else
            coord_create(d->c, str_of(name), (struct bytes){NULL, 0}, 0, to);
        mem_free(name);
    }
}

static void command(struct driver *d, char *line)
{
    char *words[WORDS_MAX];
    size_t count = split(line, " ", words);
    assert_true(count > 0);
    const char *verb = words[0];
    if (strcmp(verb, "renew") == 0) {
        coord_renew(d->c);
        return;
    }
    if (strcmp(verb, "close") == 0) {
        coord_close(d->c, d->loop, gone, d);
        return;
    }
    struct asked *a = mem_zalloc(1, sizeof *a);
    *a = (struct asked){.d = d, .number = ++d->calls};
    struct coord_to to = {d->loop, answered, a};
    struct coord_watch watch =
        count > 2 && strcmp(words[2], "w") == 0 ? (struct coord_watch){fired, d} : COORD_NO_WATCH;
    if (strcmp(verb, "get") == 0) {
        coord_get(d->c, str_of(words[1]), watch, to);
    } else if (strcmp(verb, "exists") == 0) {
        coord_exists(d->c, str_of(words[1]), watch, to);
    } else if (strcmp(verb, "children") == 0) {
        coord_children(d->c, str_of(words[1]), watch, to);
    } else if (strcmp(verb, "multi") == 0) {
        multi(d, words + 1, count - 1, to);
    } else if (strcmp(verb, "flood") == 0 || strcmp(verb, "watch") == 0) {
        flood(d, a, words[1], atoi(words[2]), verb[0] == 'w');
    } else {
        struct coord_op op = op_of(words);
        if (op.kind == COORD_CREATE) coord_create(d->c, op.path, op.data, op.flags, to);
        if (op.kind == COORD_SET) coord_set(d->c, op.path, op.data, op.version, to);
        if (op.kind == COORD_DELETE) coord_delete(d->c, op.path, op.version, to);
    }
}

static void readable(struct loop_io *io, uint32_t events)
{
    struct driver *d = CONTAINER_OF(io, struct driver, in);
    (void)events;
    for (;;) {
        d->line = mem_grow(d->line, &d->cap, d->size + 65536, 1);
        ssize_t got = read(io->fd, d->line + d->size, 65536);
        if (got <= 0) return;
        d->size += (size_t)got;
        for (char *end; d->size && (end = memchr(d->line, '\n', d->size));) {
            *end = '\0';
            command(d, d->line);
            size_t used = (size_t)(end - d->line) + 1;
            memmove(d->line, d->line + used, d->size - used);
            d->size -= used;
        }
    }
}

static struct coord_zookeeper_options options(char **words, int count)
{
    struct coord_zookeeper_options opt = {
        .session_timeout_ms = 4000, .connection_timeout_ms = 30000, .in_flight_max = 10};
    for (int i = 0; i < count; i++) {
        char *value = strchr(words[i], '=');
        assert_non_null(value);
        *value++ = '\0';
        if (strcmp(words[i], "connect") == 0) opt.connect = str_of(value);
        if (strcmp(words[i], "session") == 0) opt.session_timeout_ms = atoi(value);
        if (strcmp(words[i], "connection") == 0) opt.connection_timeout_ms = atoi(value);
        if (strcmp(words[i], "in_flight") == 0) opt.in_flight_max = atoi(value);
        if (strcmp(words[i], "user") == 0) opt.user = str_of(value);
        if (strcmp(words[i], "password") == 0) opt.password = str_of(value);
        if (strcmp(words[i], "set_acl") == 0) opt.set_acl = true;
        if (strcmp(words[i], "tls") == 0) opt.tls = true;
    }
    return opt;
}

static int drive(char **words, int count)
{
    struct driver d = {.in = {.fd = STDIN_FILENO, .ready = readable}};
    struct fault f = {OK, ""};
    assert_int_equal(loop_new(&d.loop, clock_system(), 0, NULL), OK);
    struct coord_zookeeper_options opt = options(words, count);
    opt.listener = (struct coord_listener){d.loop, told, &d};
    if (coord_zookeeper_open(&d.c, &opt, &f)) {
        printf("{\"refused\": \"%s\"", err_name(f.code));
        say_str("text", str_of(f.text));
        said();
        loop_free(d.loop);
        return 0;
    }
    assert_int_equal(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(loop_io_add(d.loop, &d.in), OK);
    loop_run(d.loop);
    loop_io_remove(d.loop, &d.in);
    loop_free(d.loop);
    mem_free(d.line);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "cases") == 0) return run_cases(argv[2]);
    if (argc > 2 && strcmp(argv[1], "drive") == 0) return drive(argv + 2, argc - 2);
    fprintf(stderr, "usage: zookeeper_store cases HOST:PORT | drive OPTION=VALUE...\n");
    return 2;
}
