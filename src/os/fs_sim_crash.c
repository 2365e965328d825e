/* fs_sim_crash.c: what a loss of power leaves of a simulated file system.
 *
 * First the tree: the directories on the disk and those of the waiting changes that the seed lets live.  Then, from the
 * root down, a copy of what can be reached, each file with the pages and the size that the seed lets live. */
#include <string.h>

#include "base/mem.h"
#include "os/fs_sim.h"
#include "os/fs_sim_internal.h"

struct crash {
    const struct fs_sim *before;
    struct fs_sim *after;
    uint64_t random;
    enum fs_sim_survival survival;
};

/* ---- Directories */

static bool may_go(const struct sim_change *c)
{
    return c->to || !c->node->is_dir || c->node->left.count == 0;
}

/* A directory that lives on under another node's name would take that one's content with it. */
static bool may_come(const struct sim_change *c)
{
    if (!c->to) return true;
    const struct sim_entry *there = sim_entries_find(&c->to->left, c->to_name, strlen(c->to_name));
    return !there || there->node == c->node || !there->node->is_dir || there->node->left.count == 0;
}

static void directories_left(struct crash *c)
{
    const struct fs_sim *s = c->before;
    for (struct sim_node *n = s->all; n; n = n->next) {
        n->copy = NULL;
        sim_entries_clear(&n->left);
        for (size_t i = 0; i < n->disk_entries.count; i++)
            sim_entries_set(&n->left, n->disk_entries.list[i].name, n->disk_entries.list[i].node);
    }
    size_t end = s->change_count;
    unsigned one_in = 1; /* of so many is lost, of those below the end */
    if (c->survival == FS_SIM_NOTHING) end = 0;
    if (c->survival == FS_SIM_ANYTHING) {
        if (sim_draw(&c->random, 3)) end = (size_t)sim_draw(&c->random, end + 1);
        if (!s->opt.journal) one_in = 2 + (unsigned)sim_draw(&c->random, 6);
    }
    for (size_t i = 0; i < end; i++) {
        const struct sim_change *ch = &s->changes[i];
        if (one_in > 1 && sim_draw(&c->random, one_in) == 0) continue;
        if (!may_go(ch) || !may_come(ch)) continue;
        sim_change_apply(ch, ch->from ? &ch->from->left : NULL, ch->to ? &ch->to->left : NULL);
    }
}

/* ---- Files */

/* How far the changes of size got.  *size: what it is then; *cut: no byte of the disk from there on is seen. */
static void size_left(struct crash *c, const struct sim_node *n, int64_t *size, int64_t *cut)
{
    size_t got = 0;
    if (c->survival == FS_SIM_EVERYTHING) got = n->size_count;
    if (c->survival == FS_SIM_ANYTHING && n->size_count > 0) {
        uint64_t how = sim_draw(&c->random, 4);
        got = how == 0 ? 0 : how == 1 ? n->size_count : (size_t)sim_draw(&c->random, n->size_count + 1);
    }
    *size = n->disk_size;
    *cut = INT64_MAX;
    for (size_t i = 0; i < got; i++) {
        if (n->sizes[i] < *size) *cut = MIN(*cut, n->sizes[i]);
        *size = n->sizes[i];
    }
    /* A write that grew the file can be there in part. */
    if (got == n->size_count || n->sizes[got] <= *size || c->survival != FS_SIM_ANYTHING) return;
    int64_t more = n->sizes[got] - *size;
    if (sim_draw(&c->random, 4) == 0) *size += (int64_t)sim_draw(&c->random, (uint64_t)more);
}

enum pages_style { PAGES_NONE, PAGES_ALL, PAGES_SOME, PAGES_FIRST, PAGES_SECTORS, PAGES_BYTES, PAGES_STYLES };

/* A dirty page whose newer content is to survive in part: `piece` bytes at a time, or up to some byte. */
static void page_left(struct crash *c, uint8_t *out, const uint8_t *newer, enum pages_style style)
{
    if (style == PAGES_BYTES) {
        memcpy(out, newer, (size_t)sim_draw(&c->random, FS_SIM_PAGE + 1));
        return;
    }
    for (size_t at = 0; at < FS_SIM_PAGE; at += FS_SIM_SECTOR)
        if (sim_draw(&c->random, 2)) memcpy(out + at, newer + at, FS_SIM_SECTOR);
}

static void pages_left(struct crash *c, const struct sim_node *n, struct sim_node *copy)
{
    size_t dirty = 0, seen = 0;
    for (size_t page = 0; page < n->dirty_cap; page++) dirty += n->dirty[page];
    if (dirty == 0) return;
    enum pages_style style = PAGES_ALL;
    if (c->survival == FS_SIM_NOTHING) style = PAGES_NONE;
    if (c->survival == FS_SIM_ANYTHING) style = (enum pages_style)sim_draw(&c->random, PAGES_STYLES);
    size_t first = (size_t)sim_draw(&c->random, dirty + 1);
    for (size_t page = 0; page < n->dirty_cap; page++) {
        if (!n->dirty[page]) continue;
        size_t at = page * FS_SIM_PAGE, nth = seen++;
        if (style == PAGES_NONE || (style == PAGES_SOME && sim_draw(&c->random, 2))) continue;
        if (style == PAGES_FIRST && nth >= first) break;
        if (at + FS_SIM_PAGE > n->data_cap) continue; /* all of it lies behind the end */
        if (style == PAGES_SECTORS || (style == PAGES_BYTES && nth == first))
            page_left(c, copy->data + at, n->data + at, style);
        else
            memcpy(copy->data + at, n->data + at, FS_SIM_PAGE);
    }
}

static void file_left(struct crash *c, const struct sim_node *n, struct sim_node *copy)
{
    int64_t size, cut;
    size_left(c, n, &size, &cut);
    sim_grow(&copy->data, &copy->data_cap, MAX(n->data_cap, n->disk_cap) + FS_SIM_PAGE);
    size_t from_disk = (size_t)MIN(cut, (int64_t)n->disk_cap);
    if (from_disk) memcpy(copy->data, n->disk, from_disk);
    pages_left(c, n, copy);
    memset(copy->data + size, 0, copy->data_cap - (size_t)size);
    copy->size = copy->disk_size = size;
    copy->modified_ms = n->modified_ms;
    sim_grow(&copy->disk, &copy->disk_cap, (size_t)size);
    if (size) memcpy(copy->disk, copy->data, (size_t)size);
    c->after->used += size;
}

/* ---- The whole */

static void copy_tree(struct crash *c, const struct sim_node *dir, struct sim_node *copy)
{
    for (size_t i = 0; i < dir->left.count; i++) {
        struct sim_node *n = dir->left.list[i].node;
        if (n->copy) continue; /* moved to two places; one of the moves was lost */
        n->copy = sim_node_new(c->after, n->is_dir);
        n->copy->links = 1;
        if (n->is_dir)
            copy_tree(c, n, n->copy);
        else
            file_left(c, n, n->copy);
        sim_entries_set(&copy->entries, dir->left.list[i].name, n->copy);
        sim_entries_set(&copy->disk_entries, dir->left.list[i].name, n->copy);
    }
}

struct fs_sim *fs_sim_after_crash(const struct fs_sim *s, uint64_t seed, enum fs_sim_survival survival)
{
    struct fs_sim_options opt = s->opt;
    opt.seed = seed ^ UINT64_C(0x5851f42d4c957f2d);
    struct crash c = {.before = s, .after = fs_sim_new(&opt), .random = seed, .survival = survival};
    directories_left(&c);
    s->root->copy = c.after->root;
    copy_tree(&c, s->root, c.after->root);
    return c.after;
}
