/* grace.c: one message a loop for each object; the last one to run releases it. */
#include "os/grace.h"

#include <pthread.h>

#include "base/list.h"
#include "base/mem.h"

struct grace_item;

struct grace_msg {
    struct loop_msg msg;
    struct grace_item *item;
};

struct grace_item {
    struct list_node node;
    struct grace *grace;
    void *object;
    void (*release)(void *object);
    _Atomic unsigned left;
    struct grace_msg msgs[];
};

struct grace {
    struct loop *const *loops;
    unsigned count;
    pthread_mutex_t lock; /* guards pending */
    struct list pending;
};

struct grace *grace_new(struct loop *const *loops, unsigned count)
{
    struct grace *g = mem_zalloc(1, sizeof *g);
    g->loops = loops;
    g->count = count;
    pthread_mutex_init(&g->lock, NULL);
    list_init(&g->pending);
    return g;
}

static void item_finish(struct grace_item *item)
{
    pthread_mutex_lock(&item->grace->lock);
    list_remove(&item->node);
    pthread_mutex_unlock(&item->grace->lock);
    item->release(item->object);
    mem_free(item);
}

static void item_passed(struct loop_msg *msg)
{
    struct grace_item *item = CONTAINER_OF(msg, struct grace_msg, msg)->item;
    if (atomic_fetch_sub(&item->left, 1) == 1) item_finish(item);
}

void grace_release(struct grace *g, void *object, void (*release)(void *object))
{
    struct grace_item *item = mem_zalloc(1, sizeof *item + g->count * sizeof item->msgs[0]);
    item->grace = g;
    item->object = object;
    item->release = release;
    atomic_init(&item->left, g->count);
    pthread_mutex_lock(&g->lock);
    list_push_back(&g->pending, &item->node);
    pthread_mutex_unlock(&g->lock);
    if (g->count == 0) {
        item_finish(item);
        return;
    }
    for (unsigned i = 0; i < g->count; i++) {
        item->msgs[i].item = item;
        item->msgs[i].msg.run = item_passed;
        loop_post(g->loops[i], &item->msgs[i].msg);
    }
}

void grace_free(struct grace *g)
{
    if (!g) return;
    struct list_node *n;
    while ((n = list_first(&g->pending))) item_finish(CONTAINER_OF(n, struct grace_item, node));
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}
