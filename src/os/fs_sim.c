/* fs_sim.c: the calls of the simulated file system.
 *
 * A file has its bytes twice, as they are and as they are on the disk, and a mark for each page in which the two
 * differ; a directory has its entries twice, and the changes that are only in the first copy wait in one list, in their
 * order. */
#include "os/fs_sim.h"

#include <string.h>

#include "base/mem.h"
#include "base/slice.h"
#include "os/fs_sim_internal.h"

struct sim_file {
    struct file file;
    struct fs_sim *s;
    struct sim_node *node;
    unsigned flags;
    bool lock;
    char *path;
};

uint64_t sim_draw(uint64_t *random, uint64_t bound)
{
    ASSERT(bound > 0);
    uint64_t z = (*random += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (uint64_t)(((unsigned __int128)z * bound) >> 64);
}

void sim_grow(uint8_t **bytes, size_t *cap, size_t need)
{
    size_t before = *cap;
    if (need <= before) return;
    *bytes = mem_grow(*bytes, cap, need, 1);
    memset(*bytes + before, 0, *cap - before);
}

/* ---- Entries */

struct sim_entry *sim_entries_find(const struct sim_entries *es, const char *name, size_t size)
{
    for (size_t i = 0; i < es->count; i++)
        if (strncmp(es->list[i].name, name, size) == 0 && !es->list[i].name[size]) return &es->list[i];
    return NULL;
}

void sim_entries_set(struct sim_entries *es, const char *name, struct sim_node *node)
{
    struct sim_entry *there = sim_entries_find(es, name, strlen(name));
    if (there) {
        there->node = node;
        return;
    }
    es->list = mem_grow(es->list, &es->cap, es->count + 1, sizeof *es->list);
    es->list[es->count++] = (struct sim_entry){mem_strdup(name), node};
}

void sim_entries_remove(struct sim_entries *es, const char *name)
{
    struct sim_entry *there = sim_entries_find(es, name, strlen(name));
    if (!there) return;
    mem_free(there->name);
    *there = es->list[--es->count];
}

void sim_entries_clear(struct sim_entries *es)
{
    for (size_t i = 0; i < es->count; i++) mem_free(es->list[i].name);
    mem_free(es->list);
    *es = (struct sim_entries){0};
}

static void entries_remove_node(struct sim_entries *es, const struct sim_node *node)
{
    for (size_t i = 0; i < es->count; i++) {
        if (es->list[i].node != node) continue;
        sim_entries_remove(es, es->list[i].name);
        return;
    }
}

void sim_change_apply(const struct sim_change *c, struct sim_entries *from, struct sim_entries *to)
{
    /* Under whatever name an earlier change that was lost has left it. */
    if (from) entries_remove_node(from, c->node);
    if (to) entries_remove_node(to, c->node);
    if (to) sim_entries_set(to, c->to_name, c->node);
}

void sim_change_fini(struct sim_change *c)
{
    mem_free(c->from_name);
    mem_free(c->to_name);
}

/* ---- Nodes */

struct sim_node *sim_node_new(struct fs_sim *s, bool is_dir)
{
    struct sim_node *n = mem_zalloc(1, sizeof *n);
    n->is_dir = is_dir;
    n->next = s->all;
    s->all = n;
    if (s->opt.clock) n->modified_ms = clock_wall_ms(s->opt.clock);
    return n;
}

static void node_free(struct sim_node *n)
{
    ASSERT(n->handles == 0);
    mem_free(n->data);
    mem_free(n->dirty);
    mem_free(n->disk);
    mem_free(n->sizes);
    sim_entries_clear(&n->entries);
    sim_entries_clear(&n->disk_entries);
    sim_entries_clear(&n->left);
    mem_free(n);
}

static void node_touch(struct fs_sim *s, struct sim_node *n)
{
    if (s->opt.clock) n->modified_ms = clock_wall_ms(s->opt.clock);
}

static bool node_counts(const struct sim_node *n)
{
    return !n->is_dir && (n->links > 0 || n->handles > 0);
}

/* Around a change of links, handles or size: keeps the sum of what is used. */
static void node_uncount(struct fs_sim *s, const struct sim_node *n)
{
    if (node_counts(n)) s->used -= n->size;
}

static void node_count(struct fs_sim *s, const struct sim_node *n)
{
    if (node_counts(n)) s->used += n->size;
}

static void node_set_size(struct fs_sim *s, struct sim_node *n, int64_t size)
{
    if (size == n->size) return;
    node_uncount(s, n);
    n->size = size;
    node_count(s, n);
    n->sizes = mem_grow(n->sizes, &n->size_cap, n->size_count + 1, sizeof *n->sizes);
    n->sizes[n->size_count++] = size;
}

static void node_mark_dirty(struct sim_node *n, int64_t from, int64_t to)
{
    if (from >= to) return;
    size_t first = (size_t)from / FS_SIM_PAGE, end = ((size_t)to + FS_SIM_PAGE - 1) / FS_SIM_PAGE;
    sim_grow(&n->dirty, &n->dirty_cap, end);
    memset(n->dirty + first, 1, end - first);
}

/* Whole pages, so that one can be taken to the disk as it is. */
static void node_make_room(struct sim_node *n, int64_t size)
{
    sim_grow(&n->data, &n->data_cap, ((size_t)size + FS_SIM_PAGE - 1) / FS_SIM_PAGE * FS_SIM_PAGE);
}

static void node_page_to_disk(struct sim_node *n, size_t page)
{
    size_t at = page * FS_SIM_PAGE;
    node_make_room(n, (int64_t)at + FS_SIM_PAGE);
    sim_grow(&n->disk, &n->disk_cap, at + FS_SIM_PAGE);
    memcpy(n->disk + at, n->data + at, FS_SIM_PAGE);
    n->dirty[page] = 0;
}

/* ---- Power, faults */

static bool fault_strikes(struct fs_sim *s, enum fs_sim_call call, const char *path)
{
    struct fs_sim_fault *ft = &s->fault;
    if (!(ft->calls & call) || ft->times == 0) return false;
    if (ft->suffix && !str_ends_with(str_of(path), ft->suffix)) return false;
    if (ft->after > 0) {
        ft->after--;
        return false;
    }
    if (ft->one_in > 1 && sim_draw(&s->random, ft->one_in) > 0) return false;
    ft->times--;
    s->fault_count++;
    return true;
}

static enum err enter(struct fs_sim *s, enum fs_sim_call call, const char *path)
{
    if (s->power_left == 0) return ERR_IO;
    return fault_strikes(s, call, path) ? s->fault.e : OK;
}

/* Of a call that is about to change something. */
static void spend(struct fs_sim *s)
{
    s->calls_changing++;
    if (s->power_left != INT64_MAX) s->power_left--;
}

/* ---- Paths */

/* The next name of a path; false at the end. */
static bool path_next(const char **path, const char **name, size_t *size)
{
    while (**path == '/') (*path)++;
    *name = *path;
    *size = strcspn(*path, "/");
    *path += *size;
    return *size > 0;
}

struct place {
    struct sim_node *dir; /* that the last name of the path is looked up in; NULL: the path is the root */
    const char *name;
    size_t size;
    struct sim_node *node; /* NULL: not there */
};

/* ERR_NOT_FOUND: a directory on the way is missing, or is a file. */
static enum err path_find(const struct fs_sim *s, const char *path, struct place *out)
{
    *out = (struct place){.node = s->root};
    const char *name;
    size_t size;
    while (path_next(&path, &name, &size)) {
        if (size == 1 && *name == '.') continue;
        if (!out->node || !out->node->is_dir) return ERR_NOT_FOUND;
        const struct sim_entry *entry = sim_entries_find(&out->node->entries, name, size);
        *out = (struct place){out->node, name, size, entry ? entry->node : NULL};
    }
    return OK;
}

static enum err path_find_there(const struct fs_sim *s, const char *path, struct place *out)
{
    enum err e = path_find(s, path, out);
    return e ? e : out->node ? OK : ERR_NOT_FOUND;
}

static char *place_name(const struct place *at)
{
    return mem_strndup(at->name, at->size);
}

/* Makes the change, and remembers that the disk does not know of it. */
static void change(struct fs_sim *s, struct sim_change c)
{
    sim_change_apply(&c, c.from ? &c.from->entries : NULL, c.to ? &c.to->entries : NULL);
    s->changes = mem_grow(s->changes, &s->change_cap, s->change_count + 1, sizeof *s->changes);
    s->changes[s->change_count++] = c;
}

static void link_node(struct fs_sim *s, const struct place *at, struct sim_node *n)
{
    n->links++;
    change(s, (struct sim_change){.node = n, .to = at->dir, .to_name = place_name(at)});
}

static void unlink_node(struct fs_sim *s, const struct place *at)
{
    node_uncount(s, at->node);
    at->node->links--;
    node_count(s, at->node);
    change(s, (struct sim_change){.node = at->node, .from = at->dir, .from_name = place_name(at)});
}

/* ---- Files */

static struct sim_file *sim_file_of(struct file *f)
{
    return CONTAINER_OF(f, struct sim_file, file);
}

static enum err sim_pread(struct file *f, void *out, size_t size, int64_t pos, size_t *got)
{
    struct sim_file *sf = sim_file_of(f);
    enum err e = enter(sf->s, FS_SIM_READ, sf->path);
    if (e) return e;
    if (!(sf->flags & FS_READ)) return ERR_IO;
    if (pos < 0) return ERR_INVALID;
    size_t n = pos < sf->node->size ? (size_t)MIN((int64_t)size, sf->node->size - pos) : 0;
    if (n) memcpy(out, sf->node->data + pos, n);
    *got = n;
    return OK;
}

static void write_bytes(struct fs_sim *s, struct sim_node *n, const uint8_t *bytes, size_t size, int64_t pos)
{
    if (size == 0) return;
    int64_t end = pos + (int64_t)size, before = n->size;
    node_make_room(n, end);
    if (pos > before) memset(n->data + before, 0, (size_t)(pos - before));
    memcpy(n->data + pos, bytes, size);
    node_mark_dirty(n, MIN(pos, before), end);
    if (end > before) node_set_size(s, n, end);
}

/* What the kernel writes out when nobody asks it to.  While a truncation waits, order matters: then it does not. */
static void write_back_some(struct fs_sim *s, struct sim_node *n, int64_t pos, size_t size)
{
    if (!s->opt.write_back || size == 0 || sim_draw(&s->random, s->opt.write_back) > 0) return;
    int64_t last = n->disk_size;
    for (size_t i = 0; i < n->size_count; last = n->sizes[i++])
        if (n->sizes[i] < last) return;
    size_t first = (size_t)pos / FS_SIM_PAGE, end = ((size_t)pos + size + FS_SIM_PAGE - 1) / FS_SIM_PAGE;
    size_t page = first + (size_t)sim_draw(&s->random, end - first);
    node_page_to_disk(n, page);
}

static enum err sim_pwritev(struct file *f, const struct iovec *iov, int count, int64_t pos)
{
    struct sim_file *sf = sim_file_of(f);
    struct fs_sim *s = sf->s;
    size_t size = 0;
    for (int i = 0; i < count; i++) size += iov[i].iov_len;
    if (s->power_left == 0) return ERR_IO;
    if (!(sf->flags & FS_WRITE)) return ERR_IO;
    if (pos < 0) return ERR_INVALID;
    size_t fits = size;
    enum err e = fault_strikes(s, FS_SIM_WRITE, sf->path) ? s->fault.e : OK;
    if (e) fits = (size_t)sim_draw(&s->random, size + 1);
    if (s->opt.capacity_bytes > 0) {
        int64_t free_to = MAX(sf->node->size + MAX(s->opt.capacity_bytes - s->used, 0), pos);
        if (pos + (int64_t)fits > free_to) {
            fits = (size_t)(free_to - pos);
            if (!e) e = ERR_FULL;
        }
    }
    spend(s);
    node_touch(s, sf->node);
    int64_t at = pos;
    for (int i = 0; i < count && fits > 0; i++) {
        size_t n = MIN(iov[i].iov_len, fits);
        write_bytes(s, sf->node, iov[i].iov_base, n, at);
        at += (int64_t)n;
        fits -= n;
    }
    write_back_some(s, sf->node, pos, (size_t)(at - pos));
    return e;
}

static enum err sim_size(struct file *f, int64_t *out)
{
    struct sim_file *sf = sim_file_of(f);
    enum err e = enter(sf->s, FS_SIM_STAT, sf->path);
    if (!e) *out = sf->node->size;
    return e;
}

static enum err grow_with_zeros(struct fs_sim *s, struct sim_node *n, int64_t size)
{
    if (s->opt.capacity_bytes > 0 && size - n->size > MAX(s->opt.capacity_bytes - s->used, 0)) return ERR_FULL;
    node_make_room(n, size);
    memset(n->data + n->size, 0, (size_t)(size - n->size));
    node_mark_dirty(n, n->size, size);
    node_set_size(s, n, size);
    return OK;
}

static void cut(struct fs_sim *s, struct sim_node *n, int64_t size)
{
    if (size >= n->size) return;
    memset(n->data + size, 0, (size_t)(n->size - size));
    if (size % FS_SIM_PAGE) node_mark_dirty(n, size, size + 1); /* its last page, now with zeros */
    node_set_size(s, n, size);
}

static enum err sim_truncate(struct file *f, int64_t size)
{
    struct sim_file *sf = sim_file_of(f);
    enum err e = enter(sf->s, FS_SIM_TRUNCATE, sf->path);
    if (e) return e;
    if (!(sf->flags & FS_WRITE) || size < 0) return ERR_INVALID;
    spend(sf->s);
    node_touch(sf->s, sf->node);
    if (size > sf->node->size) return grow_with_zeros(sf->s, sf->node, size);
    cut(sf->s, sf->node, size);
    return OK;
}

static enum err sim_allocate(struct file *f, int64_t pos, int64_t size)
{
    struct sim_file *sf = sim_file_of(f);
    enum err e = enter(sf->s, FS_SIM_ALLOCATE, sf->path);
    if (e) return e;
    if (!(sf->flags & FS_WRITE)) return ERR_IO;
    if (pos < 0 || size <= 0) return ERR_INVALID;
    spend(sf->s);
    return pos + size > sf->node->size ? grow_with_zeros(sf->s, sf->node, pos + size) : OK;
}

static enum err sim_sync(struct file *f)
{
    struct sim_file *sf = sim_file_of(f);
    struct fs_sim *s = sf->s;
    struct sim_node *n = sf->node;
    if (s->power_left == 0) return ERR_IO;
    bool fails = fault_strikes(s, FS_SIM_SYNC, sf->path);
    enum err e = fails ? s->fault.e : OK;
    spend(s);
    for (size_t page = 0; page < n->dirty_cap; page++) {
        if (!n->dirty[page]) continue;
        if (fails && sim_draw(&s->random, 2))
            n->dirty[page] = 0; /* lost, and nobody will try again */
        else
            node_page_to_disk(n, page);
    }
    n->disk_size = n->size;
    n->size_count = 0;
    /* What lies behind the end shows no more, however the file grows. */
    if (n->disk && n->disk_cap > (size_t)n->size) memset(n->disk + n->size, 0, n->disk_cap - (size_t)n->size);
    return e;
}

static void sim_hint(struct file *f, int64_t pos, int64_t size)
{
    (void)f;
    (void)pos;
    (void)size;
}

static enum err sim_map(struct file *f, size_t size, void **out)
{
    (void)f;
    (void)size;
    (void)out;
    return ERR_UNSUPPORTED;
}

static void sim_close(struct file *f)
{
    struct sim_file *sf = sim_file_of(f);
    node_uncount(sf->s, sf->node);
    sf->node->handles--;
    node_count(sf->s, sf->node);
    sf->s->open_files--;
    if (sf->lock) sf->node->locked = false;
    mem_free(sf->path);
    mem_free(sf);
}

static const struct file_ops sim_file_ops = {
    .pread = sim_pread,
    .pread_nowait = sim_pread,
    .pwritev = sim_pwritev,
    .size = sim_size,
    .truncate = sim_truncate,
    .allocate = sim_allocate,
    .sync = sim_sync,
    .write_behind = sim_hint,
    .drop_cache = sim_hint,
    .map = sim_map,
    .close = sim_close,
};

/* ---- Paths and what is done with them */

static struct fs_sim *sim_of(struct fs *fs)
{
    return CONTAINER_OF(fs, struct fs_sim, fs);
}

static struct sim_file *file_new(struct fs_sim *s, struct sim_node *n, unsigned flags, const char *path)
{
    struct sim_file *sf = mem_zalloc(1, sizeof *sf);
    sf->file.ops = &sim_file_ops;
    sf->file.fd = -1;
    atomic_init(&sf->file.refs, 1);
    sf->s = s;
    sf->node = n;
    sf->flags = flags;
    sf->path = mem_strdup(path);
    node_uncount(s, n);
    n->handles++;
    node_count(s, n);
    s->open_files++;
    return sf;
}

static enum err open_node(struct fs_sim *s, const char *path, unsigned flags, struct sim_node **out)
{
    struct place at;
    enum err e = path_find(s, path, &at);
    if (e) return e;
    if (at.node && (flags & FS_CREATE) && (flags & FS_EXCLUSIVE)) return ERR_EXISTS;
    if (!at.node && !(flags & FS_CREATE)) return ERR_NOT_FOUND;
    if (at.node && at.node->is_dir && (flags & (FS_WRITE | FS_CREATE))) return ERR_NOT_FILE;
    if (!at.node) {
        spend(s);
        at.node = sim_node_new(s, false);
        link_node(s, &at, at.node);
    } else if ((flags & FS_TRUNCATE) && at.node->size > 0) {
        spend(s);
        node_touch(s, at.node);
        cut(s, at.node, 0);
    }
    *out = at.node;
    return OK;
}

static enum err sim_open(struct fs *fs, const char *path, unsigned flags, struct file **out)
{
    struct fs_sim *s = sim_of(fs);
    struct sim_node *n;
    enum err e = enter(s, FS_SIM_OPEN, path);
    if (!e) e = open_node(s, path, flags, &n);
    if (!e) *out = &file_new(s, n, flags, path)->file;
    return e;
}

static enum err sim_lock(struct fs *fs, const char *path, struct file **out)
{
    struct fs_sim *s = sim_of(fs);
    struct sim_node *n;
    enum err e = enter(s, FS_SIM_OPEN, path);
    if (!e) e = open_node(s, path, FS_READ | FS_WRITE | FS_CREATE, &n);
    if (!e && n->locked) e = ERR_LOCKED;
    if (e) return e;
    struct sim_file *sf = file_new(s, n, FS_READ | FS_WRITE, path);
    n->locked = sf->lock = true;
    *out = &sf->file;
    return OK;
}

static enum err sim_stat(struct fs *fs, const char *path, struct fs_stat *out)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_STAT, path);
    if (!e) e = path_find_there(s, path, &at);
    if (e) return e;
    *out = (struct fs_stat){at.node->size, at.node->modified_ms, at.node->is_dir, 1};
    return OK;
}

static enum err sim_list(struct fs *fs, const char *path, fs_list_fn each, void *arg)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_LIST, path);
    if (!e) e = path_find_there(s, path, &at);
    if (!e && !at.node->is_dir) e = ERR_NOT_FOUND;
    for (size_t i = 0; !e && i < at.node->entries.count; i++)
        each(arg, at.node->entries.list[i].name, at.node->entries.list[i].node->is_dir);
    return e;
}

static enum err sim_mkdir(struct fs *fs, const char *path)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_MKDIR, path);
    if (!e) e = path_find(s, path, &at);
    if (!e && at.node) e = ERR_EXISTS;
    if (e) return e;
    spend(s);
    link_node(s, &at, sim_node_new(s, true));
    return OK;
}

/* Whether `dir` lies in the tree below `top`, or is it. */
static bool is_below(const struct sim_node *top, const struct sim_node *dir)
{
    if (top == dir) return true;
    for (size_t i = 0; i < top->entries.count; i++)
        if (top->entries.list[i].node->is_dir && is_below(top->entries.list[i].node, dir)) return true;
    return false;
}

static enum err rename_check(const struct place *from, const struct place *to)
{
    if (!from->dir || !to->dir) return ERR_INVALID;
    if (from->node->is_dir && is_below(from->node, to->dir)) return ERR_INVALID;
    if (!to->node) return OK;
    if (to->node->is_dir && is_below(to->node, from->dir)) return ERR_NOT_EMPTY;
    if (to->node->is_dir != from->node->is_dir) return to->node->is_dir ? ERR_NOT_FILE : ERR_NOT_FOUND;
    return to->node->is_dir && to->node->entries.count > 0 ? ERR_NOT_EMPTY : OK;
}

static enum err sim_rename(struct fs *fs, const char *old, const char *new)
{
    struct fs_sim *s = sim_of(fs);
    struct place from, to;
    enum err e = enter(s, FS_SIM_RENAME, old);
    if (!e) e = path_find_there(s, old, &from);
    if (!e) e = path_find(s, new, &to);
    if (!e && from.node == to.node) return OK;
    if (!e) e = rename_check(&from, &to);
    if (e) return e;
    spend(s);
    if (to.node) { /* one change with the move: the old one goes when the new one comes */
        node_uncount(s, to.node);
        to.node->links--;
        node_count(s, to.node);
    }
    change(s, (struct sim_change){from.node, from.dir, to.dir, place_name(&from), place_name(&to)});
    return OK;
}

static enum err sim_unlink(struct fs *fs, const char *path)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_UNLINK, path);
    if (!e) e = path_find_there(s, path, &at);
    if (!e && at.node->is_dir) e = ERR_NOT_FILE;
    if (e) return e;
    spend(s);
    unlink_node(s, &at);
    return OK;
}

static enum err sim_rmdir(struct fs *fs, const char *path)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_UNLINK, path);
    if (!e) e = path_find_there(s, path, &at);
    if (!e && !at.dir) e = ERR_INVALID;
    if (!e && !at.node->is_dir) e = ERR_NOT_FOUND;
    if (!e && at.node->entries.count > 0) e = ERR_NOT_EMPTY;
    if (e) return e;
    spend(s);
    unlink_node(s, &at);
    return OK;
}

/* With a journal everything up to the directory's last change, without one its own changes alone. */
static void changes_to_disk(struct fs_sim *s, const struct sim_node *dir)
{
    size_t end = 0, kept = 0;
    for (size_t i = 0; i < s->change_count; i++)
        if (s->changes[i].from == dir || s->changes[i].to == dir) end = i + 1;
    for (size_t i = 0; i < s->change_count; i++) {
        struct sim_change *c = &s->changes[i];
        if (i < end && (s->opt.journal || c->from == dir || c->to == dir)) {
            sim_change_apply(c, c->from ? &c->from->disk_entries : NULL, c->to ? &c->to->disk_entries : NULL);
            sim_change_fini(c);
        } else {
            s->changes[kept++] = *c;
        }
    }
    s->change_count = kept;
}

static enum err sim_sync_dir(struct fs *fs, const char *path)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_SYNC, path);
    if (!e) e = path_find_there(s, path, &at);
    if (!e && !at.node->is_dir) e = ERR_NOT_FOUND;
    if (e) return e;
    spend(s);
    changes_to_disk(s, at.node);
    return OK;
}

static enum err sim_space(struct fs *fs, const char *path, struct fs_space *out)
{
    struct fs_sim *s = sim_of(fs);
    struct place at;
    enum err e = enter(s, FS_SIM_STAT, path);
    if (!e) e = path_find_there(s, path, &at);
    if (e) return e;
    int64_t total = s->opt.capacity_bytes > 0 ? s->opt.capacity_bytes : INT64_MAX;
    *out = (struct fs_space){.total = total, .available = MAX(total - s->used, 0)};
    return OK;
}

/* ---- The whole */

struct fs_sim *fs_sim_new(const struct fs_sim_options *opt)
{
    static const struct fs_ops ops = {
        .open = sim_open,
        .stat = sim_stat,
        .list = sim_list,
        .mkdir = sim_mkdir,
        .rename = sim_rename,
        .unlink = sim_unlink,
        .rmdir = sim_rmdir,
        .sync_dir = sim_sync_dir,
        .space = sim_space,
        .lock = sim_lock,
    };
    struct fs_sim *s = mem_zalloc(1, sizeof *s);
    s->fs.ops = &ops;
    s->opt = *opt;
    s->random = opt->seed;
    s->power_left = INT64_MAX;
    s->root = sim_node_new(s, true);
    s->root->links = 1;
    return s;
}

void fs_sim_free(struct fs_sim *s)
{
    if (!s) return;
    ASSERT(s->open_files == 0);
    for (struct sim_node *n = s->all, *next; n; n = next) {
        next = n->next;
        node_free(n);
    }
    for (size_t i = 0; i < s->change_count; i++) sim_change_fini(&s->changes[i]);
    mem_free(s->changes);
    mem_free(s);
}

struct fs *fs_sim_fs(struct fs_sim *s)
{
    return &s->fs;
}

int64_t fs_sim_changes(const struct fs_sim *s)
{
    return s->calls_changing;
}

void fs_sim_power_off_after(struct fs_sim *s, int64_t changes)
{
    s->power_left = changes;
}

bool fs_sim_has_power(const struct fs_sim *s)
{
    return s->power_left > 0;
}

void fs_sim_set_fault(struct fs_sim *s, const struct fs_sim_fault *fault)
{
    s->fault = *fault;
    s->fault_count = 0;
}

void fs_sim_get_fault(const struct fs_sim *s, struct fs_sim_fault *out)
{
    *out = s->fault;
}

int64_t fs_sim_fault_count(const struct fs_sim *s)
{
    return s->fault_count;
}

void fs_sim_set_capacity(struct fs_sim *s, int64_t bytes)
{
    s->opt.capacity_bytes = bytes;
}
