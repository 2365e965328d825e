/* list.h: a doubly linked list of structs that carry their own links.  Thread: as its owner. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

struct list_node {
    struct list_node *prev, *next; /* both NULL: in no list */
};

/* The ring's head; empty when it points at itself. */
struct list {
    struct list_node head;
};

static inline void list_init(struct list *l)
{
    l->head.prev = l->head.next = &l->head;
}

static inline bool list_is_empty(const struct list *l)
{
    return l->head.next == &l->head;
}

static inline bool list_has(const struct list_node *n)
{
    return n->next != NULL;
}

static inline void list_push_back(struct list *l, struct list_node *n)
{
    n->prev = l->head.prev;
    n->next = &l->head;
    l->head.prev->next = n;
    l->head.prev = n;
}

/* `after` may be the head. */
static inline void list_insert_after(struct list_node *after, struct list_node *n)
{
    n->prev = after;
    n->next = after->next;
    after->next->prev = n;
    after->next = n;
}

static inline void list_push_front(struct list *l, struct list_node *n)
{
    list_insert_after(&l->head, n);
}

/* Out of whichever list it is in; a node in none stays so. */
static inline void list_remove(struct list_node *n)
{
    if (!n->next) return;
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = n->next = NULL;
}

/* NULL when empty. */
static inline struct list_node *list_first(const struct list *l)
{
    return list_is_empty(l) ? NULL : l->head.next;
}

static inline struct list_node *list_pop_front(struct list *l)
{
    struct list_node *n = list_first(l);
    if (n) list_remove(n);
    return n;
}

/* Walks the list; the current node may be removed meanwhile. */
#define LIST_EACH(l, node)                                                                       \
    for (struct list_node *node = (l)->head.next, *node##_next = node->next; node != &(l)->head; \
         node = node##_next, node##_next = node->next)

#endif
