/* epochs.c: a sorted array; epochs and start offsets both ascend, so one search serves both. */
#include "plog/epochs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plog/textfile.h"

enum { LINE_SIZE_MAX = 32 }; /* two numbers of at most 10 and 19 digits, a space, a newline */

void epochs_init(struct epochs *ep)
{
    *ep = (struct epochs){0};
}

void epochs_fini(struct epochs *ep)
{
    mem_free(ep->entries);
    epochs_init(ep);
}

void epochs_clear(struct epochs *ep)
{
    ep->count = 0;
}

/* What the file has at this place may be the same: then it is as good as before. */
static void put_last(struct epochs *ep, struct epoch_entry entry)
{
    if (epochs_lead_file(ep) && ep->filed > ep->count) {
        const struct epoch_entry *there = &ep->entries[ep->count];
        if (there->epoch != entry.epoch || there->start_offset != entry.start_offset) ep->filed = EPOCHS_NOT_FILED;
    }
    ep->entries = mem_grow(ep->entries, &ep->cap, ep->count + 1, sizeof *ep->entries);
    ep->entries[ep->count++] = entry;
}

bool epochs_assign(struct epochs *ep, int32_t epoch, int64_t start_offset)
{
    ASSERT(epoch >= 0 && start_offset >= 0);
    const struct epoch_entry *last = ep->count ? &ep->entries[ep->count - 1] : NULL;
    if (last && last->epoch == epoch && start_offset >= last->start_offset) return false;
    while (ep->count > 0 &&
           (ep->entries[ep->count - 1].epoch >= epoch || ep->entries[ep->count - 1].start_offset >= start_offset))
        ep->count--;
    put_last(ep, (struct epoch_entry){epoch, start_offset});
    return true;
}

int32_t epochs_latest(const struct epochs *ep)
{
    return ep->count ? ep->entries[ep->count - 1].epoch : EPOCH_NONE;
}

int32_t epochs_earliest(const struct epochs *ep)
{
    return ep->count ? ep->entries[0].epoch : EPOCH_NONE;
}

/* How many entries start at or below `offset`. */
static size_t count_up_to_offset(const struct epochs *ep, int64_t offset)
{
    size_t low = 0, high = ep->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ep->entries[middle].start_offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many entries have an epoch at or below `epoch`. */
static size_t count_up_to_epoch(const struct epochs *ep, int32_t epoch)
{
    size_t low = 0, high = ep->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ep->entries[middle].epoch <= epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t epochs_of_offset(const struct epochs *ep, int64_t offset)
{
    size_t n = count_up_to_offset(ep, offset);
    return n ? ep->entries[n - 1].epoch : EPOCH_NONE;
}

void epochs_end_offset(const struct epochs *ep, int32_t epoch, int64_t log_end, int32_t *found, int64_t *end)
{
    *found = EPOCH_NONE;
    *end = EPOCH_OFFSET_NONE;
    if (epoch == EPOCH_NONE) return;
    if (epoch == epochs_latest(ep)) {
        *found = epoch;
        *end = log_end;
        return;
    }
    size_t n = count_up_to_epoch(ep, epoch);
    if (n == ep->count) return;
    /* Below the first known: its records are gone, and a follower must go on from where ours begin. */
    *found = n ? ep->entries[n - 1].epoch : epoch;
    *end = ep->entries[n].start_offset;
}

bool epochs_truncate_end(struct epochs *ep, int64_t end)
{
    size_t before = ep->count;
    while (ep->count > 0 && ep->entries[ep->count - 1].start_offset >= end) ep->count--;
    return ep->count != before;
}

bool epochs_truncate_start(struct epochs *ep, int64_t start)
{
    size_t n = count_up_to_offset(ep, start);
    if (n == 0 || (n == 1 && ep->entries[0].start_offset == start)) return false;
    ep->entries[n - 1].start_offset = start;
    memmove(ep->entries, ep->entries + n - 1, (ep->count - n + 1) * sizeof *ep->entries);
    ep->count -= n - 1;
    ep->filed = EPOCHS_NOT_FILED;
    return true;
}

bool epochs_are_filed(const struct epochs *ep)
{
    return ep->filed == ep->count;
}

bool epochs_lead_file(const struct epochs *ep)
{
    return ep->filed != EPOCHS_NOT_FILED && ep->filed >= ep->count;
}

int32_t epochs_latest_known(const struct epochs *ep)
{
    size_t count = ep->filed == EPOCHS_NOT_FILED ? ep->count : MAX(ep->count, ep->filed);
    return count ? ep->entries[count - 1].epoch : EPOCH_NONE;
}

void epochs_set_filed(struct epochs *ep)
{
    ep->filed = ep->count;
}

/* ---- leader-epoch-checkpoint */

char *epochs_encode(const struct epochs *ep, size_t *size)
{
    size_t cap = (ep->count + 2) * LINE_SIZE_MAX;
    char *text = mem_alloc(cap);
    size_t at = (size_t)snprintf(text, cap, "0\n%zu\n", ep->count);
    for (size_t i = 0; i < ep->count; i++) {
        const struct epoch_entry *e = &ep->entries[i];
        at += (size_t)snprintf(text + at, cap - at, "%" PRId32 " %" PRId64 "\n", e->epoch, e->start_offset);
    }
    ASSERT(at < cap);
    *size = at;
    return text;
}

static enum err parse_lines(struct epochs *ep, struct textfile *t, struct fault *f)
{
    int64_t count, epoch, start_offset, lines = 0;
    struct str line;
    enum err e = textfile_checkpoint_head(t, &count, f);
    if (e) return e;
    if (t->line == 0) return OK; /* empty, as Kafka makes it; what a loss of power emptied, the log tells (open.c) */
    if (count < 0 || t->end[-1] != '\n') return textfile_fault(t, f, "cut off"); /* a whole file ends with a newline */
    while (textfile_line(t, &line)) {
        struct str first = textfile_field(&line);
        if (!textfile_number(first, 0, INT32_MAX, &epoch) || !textfile_number(line, 0, INT64_MAX, &start_offset))
            return textfile_fault(t, f, "expected an epoch and a start offset");
        epochs_assign(ep, (int32_t)epoch, start_offset); /* drops what contradicts it, as Kafka does */
        lines++;
    }
    return lines == count ? OK : textfile_fault(t, f, "not as many lines as the second one says");
}

static enum err parse(struct epochs *ep, struct textfile *t, struct fault *f)
{
    ep->count = 0;
    ep->filed = EPOCHS_NOT_FILED;
    enum err e = parse_lines(ep, t, f);
    if (e)
        epochs_clear(ep);
    else
        epochs_set_filed(ep);
    return e;
}

enum err epochs_decode(struct epochs *ep, const char *path, const char *text, size_t size, struct fault *f)
{
    struct textfile t;
    textfile_of(&t, path, text, size);
    return parse(ep, &t, f);
}

enum err epochs_read(struct epochs *ep, struct fs *fs, const char *path, struct fault *f)
{
    struct textfile t;
    epochs_clear(ep);
    enum err e = textfile_open(&t, fs, path, EPOCHS_FILE_SIZE_MAX, f);
    ep->filed = e == ERR_NOT_FOUND ? 0 : EPOCHS_NOT_FILED;
    if (e) return e == ERR_NOT_FOUND ? OK : e;
    e = parse(ep, &t, f);
    textfile_close(&t);
    return e;
}

enum err epochs_write(const struct epochs *ep, struct fs *fs, const char *path)
{
    size_t size;
    char *text = epochs_encode(ep, &size);
    enum err e = fs_replace(fs, path, text, size);
    mem_free(text);
    return e;
}
