/* config_map.c: overrides, a sorted array of key and text.  They are few and rarely change. */
#include "broker/config_internal.h"

#include <string.h>

#include "base/mem.h"

struct config_map {
    struct config_pair *pairs;
    size_t count, cap;
};

struct config_map *config_map_new(void)
{
    return mem_zalloc(1, sizeof(struct config_map));
}

/* Where `name` is, or would have to go. */
static size_t map_slot(const struct config_map *m, struct str name, bool *found)
{
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = str_compare(str_of(m->pairs[mid].name), name);
        if (c == 0) {
            *found = true;
            return mid;
        }
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *found = false;
    return low;
}

void config_map_set_at(struct config_map *m, struct str name, struct str value, int line)
{
    bool found;
    size_t at = map_slot(m, name, &found);
    if (found) {
        mem_free(m->pairs[at].value);
    } else {
        m->pairs = mem_grow(m->pairs, &m->cap, m->count + 1, sizeof *m->pairs);
        memmove(&m->pairs[at + 1], &m->pairs[at], (m->count - at) * sizeof *m->pairs);
        m->count++;
        m->pairs[at].name = mem_strndup(name.data, name.size);
    }
    m->pairs[at].value = mem_strndup(value.data, value.size);
    m->pairs[at].line = line;
}

void config_map_set(struct config_map *m, struct str name, struct str value)
{
    config_map_set_at(m, name, value, 0);
}

struct config_map *config_map_copy(const struct config_map *m)
{
    struct config_map *copy = config_map_new();
    copy->pairs = mem_grow(NULL, &copy->cap, m->count, sizeof *copy->pairs);
    for (; copy->count < m->count; copy->count++) {
        const struct config_pair *p = &m->pairs[copy->count];
        copy->pairs[copy->count] = (struct config_pair){mem_strdup(p->name), mem_strdup(p->value), p->line};
    }
    return copy;
}

void config_map_free(struct config_map *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->count; i++) {
        mem_free(m->pairs[i].name);
        mem_free(m->pairs[i].value);
    }
    mem_free(m->pairs);
    mem_free(m);
}

const char *config_map_get(const struct config_map *m, const char *name)
{
    bool found;
    size_t at = map_slot(m, str_of(name), &found);
    return found ? m->pairs[at].value : NULL;
}

bool config_map_remove(struct config_map *m, const char *name)
{
    bool found;
    size_t at = map_slot(m, str_of(name), &found);
    if (!found) return false;
    mem_free(m->pairs[at].name);
    mem_free(m->pairs[at].value);
    m->count--;
    memmove(&m->pairs[at], &m->pairs[at + 1], (m->count - at) * sizeof *m->pairs);
    return true;
}

size_t config_map_count(const struct config_map *m)
{
    return m->count;
}

const struct config_pair *config_map_at(const struct config_map *m, size_t index)
{
    ASSERT(index < m->count);
    return &m->pairs[index];
}
