/* controller_watch.c: three reads, in this order: the epoch, who is in office, his registration; then the change.
 *
 * An election between the first two makes the change fail, as one after them does: whoever was looked at has left the
 * office by himself, and nothing is left to do. */
#include "broker/controller_watch.h"

#include <inttypes.h>

#include "base/mem.h"
#include "coord/coord.h"
#include "coord/znodes.h"

#define LOG_MODULE "broker"
#include "base/log.h"

struct controller_watch {
    struct broker *br;
    int32_t removed_id; /* of the last one removed, its registration, and the epoch's version then; -1: none yet */
    int64_t removed_czxid;
    int32_t removed_version;
    bool looking; /* at one that is told to be dead */
};

/* One look at who is in office. */
struct look {
    struct controller_watch *cw;
    int32_t id;      /* it is to be gone when this broker is in office, */
    int64_t session; /*   or whoever has this session; 0: the id counts */
    int32_t epoch_version;
    bool in_office;
    int32_t version;      /* of /controller */
    int64_t registration; /* czxid; -1: none */
    bool failed;
};

static void look_begin(struct controller_watch *cw, int32_t id, int64_t session);

static void look_end(struct look *lk)
{
    if (!lk->session) lk->cw->looking = false;
    mem_free(lk);
}

static void on_removed(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    if (!r->err)
        LOG_WARN("controller_removed", "controller=%d reason=\"%s\"", lk->id,
                 lk->session ? "our own dead process held the office"
                             : "its connection broke and its port refuses: it counts as dead");
    else if (r->err == ERR_UNSURE && lk->session)
        look_begin(lk->cw, lk->id, lk->session); /* nobody tells of it again */
    else if (r->err != ERR_VERSION && r->err != ERR_NOT_FOUND && !coord_session_over(r->err))
        LOG_LIMITED(LOG_LEVEL_WARN, "controller_not_removed", "controller=%d error=%s", lk->id, err_name(r->err));
    look_end(lk);
}

static void remove_node(struct look *lk)
{
    struct broker *br = lk->cw->br;
    const struct coord_op steps[] = {
        {.kind = COORD_CHECK, .path = ZNODE_CONTROLLER_EPOCH, .version = lk->epoch_version},
        {.kind = COORD_DELETE, .path = ZNODE_CONTROLLER, .version = lk->version},
    };
    coord_multi(br->coord, steps, ARRAY_COUNT(steps), (struct coord_to){broker_home(br), on_removed, lk});
}

/* In an office that began after this broker had him removed, or had tried to: as long as he is in the same one, the
 * removal has not happened. */
static bool came_back(const struct controller_watch *cw, const struct look *lk)
{
    return lk->id == cw->removed_id && lk->registration == cw->removed_czxid &&
           lk->epoch_version != cw->removed_version;
}

static void decide(struct look *lk)
{
    struct controller_watch *cw = lk->cw;
    if (lk->failed || !lk->in_office || !cw->br->coord) {
        look_end(lk);
        return;
    }
    if (!lk->session && came_back(cw, lk)) {
        LOG_LIMITED(LOG_LEVEL_WARN, "controller_left_alone",
                    "controller=%d reason=\"it came back into office: it lives, and cannot be reached from here\"",
                    lk->id);
        look_end(lk);
        return;
    }
    if (!lk->session) {
        cw->removed_id = lk->id;
        cw->removed_czxid = lk->registration;
        cw->removed_version = lk->epoch_version;
    }
    remove_node(lk);
}

static void on_registration(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    lk->registration = r->err ? -1 : r->stat.czxid;
    if (r->err && r->err != ERR_NOT_FOUND) lk->failed = true;
    decide(lk);
}

static void on_controller(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct znode_controller node;
    struct fault f = {0};
    if (r->err || znode_controller_decode(&a, r->data, &node, &f)) {
        lk->failed = true;
    } else {
        lk->version = r->stat.version;
        lk->in_office = lk->session ? r->stat.ephemeral_owner == lk->session : node.broker_id == lk->id;
    }
    arena_fini(&a);
}

static void on_epoch(void *arg, const struct coord_result *r)
{
    struct look *lk = arg;
    if (r->err) lk->failed = true;
    lk->epoch_version = r->stat.version;
}

static void look_begin(struct controller_watch *cw, int32_t id, int64_t session)
{
    struct broker *br = cw->br;
    struct look *lk = mem_zalloc(1, sizeof *lk);
    *lk = (struct look){.cw = cw, .id = id, .session = session};
    struct arena a;
    arena_init(&a, SIZE_MAX);
    coord_get(br->coord, ZNODE_CONTROLLER_EPOCH, COORD_NO_WATCH, (struct coord_to){broker_home(br), on_epoch, lk});
    coord_get(br->coord, ZNODE_CONTROLLER, COORD_NO_WATCH, (struct coord_to){broker_home(br), on_controller, lk});
    coord_get(br->coord, znode_broker_path(&a, id), COORD_NO_WATCH,
              (struct coord_to){broker_home(br), on_registration, lk});
    arena_fini(&a);
}

void controller_watch_dead(void *controller_watch, int32_t controller_id)
{
    struct controller_watch *cw = controller_watch;
    ASSERT_OWNER(broker_home(cw->br));
    if (cw->looking) return;
    cw->looking = true;
    look_begin(cw, controller_id, 0);
}

void controller_watch_succeed(struct controller_watch *cw, int64_t session)
{
    ASSERT_OWNER(broker_home(cw->br));
    look_begin(cw, cw->br->id, session);
}

struct controller_watch *controller_watch_new(struct broker *br)
{
    struct controller_watch *cw = mem_zalloc(1, sizeof *cw);
    *cw = (struct controller_watch){.br = br, .removed_id = -1};
    return cw;
}

void controller_watch_free(struct controller_watch *cw)
{
    mem_free(cw);
}
