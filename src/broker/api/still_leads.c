/* still_leads.c: see still_leads.h. */
#include "broker/api/still_leads.h"

#include "base/mem.h"
#include "coord/coord.h"
#include "coord/znodes.h"

struct still_leads {
    int32_t broker_id, leader_epoch;
    void (*done)(void *arg, bool leads); /* NULL: nobody waits for it any more */
    void *arg;
};

static void on_state(void *arg, const struct coord_result *r)
{
    struct still_leads *sl = arg;
    struct znode_state zs;
    struct fault unreadable = {0}; /* the controller tells of it */
    struct arena a;
    arena_init(&a, SIZE_MAX);
    bool leads = !r->err && znode_state_decode(&a, r->path, r->data, &zs, &unreadable) == OK &&
                 zs.leader == sl->broker_id && zs.leader_epoch == sl->leader_epoch;
    arena_fini(&a);
    if (sl->done) sl->done(sl->arg, leads);
    mem_free(sl);
}

struct still_leads *still_leads_ask(struct broker *br, struct loop *loop, const struct partition *p,
                                    int32_t leader_epoch, void (*done)(void *arg, bool leads), void *arg)
{
    struct still_leads *sl = mem_zalloc(1, sizeof *sl);
    *sl = (struct still_leads){.broker_id = br->id, .leader_epoch = leader_epoch, .done = done, .arg = arg};
    struct arena a;
    arena_init(&a, SIZE_MAX);
    coord_get(br->coord, znode_state_path(&a, str_of(p->topic), p->index), COORD_NO_WATCH,
              (struct coord_to){loop, on_state, sl});
    arena_fini(&a);
    return sl;
}

void still_leads_forget(struct still_leads *sl)
{
    sl->done = NULL;
}
