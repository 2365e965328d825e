/* group.c: the group itself: the table of groups, the table of states, who may stay in memory. */
#include "base/utf8.h"
#include "group/group_internal.h"

struct group *group_find(struct group_shard *sh, struct str id)
{
    struct group *grp;
    HASH_FIND(hh, sh->groups, id.data, id.size, grp);
    return grp;
}

struct group *group_make(struct group_shard *sh, struct str id)
{
    struct group *grp = mem_zalloc(1, sizeof *grp);
    grp->shard = sh;
    grp->id = mem_strndup(id.data, id.size);
    grp->state = GROUP_EMPTY;
    grp->state_since_ms = sh->wall_ms;
    HASH_ADD_KEYPTR(hh, sh->groups, grp->id, id.size, grp);
    return grp;
}

void group_free(struct group *grp)
{
    ASSERT(grp->members == NULL && grp->pending == NULL && grp->writes == 0);
    struct group_shard *sh = grp->shard;
    if (sh->expiry_next == grp) sh->expiry_next = grp->hh.next;
    HASH_DEL(sh->groups, grp);
    shard_timer_cancel(sh, &grp->join_timer);
    shard_timer_cancel(sh, &grp->sync_timer);
    group_offsets_free(grp);
    group_history_free(grp);
    mem_free(grp->protocol_type);
    mem_free(grp->protocol);
    mem_free(grp->leader);
    mem_free(grp->id);
    mem_free(grp);
}

/* (1) */
static const unsigned group_next[GROUP_STATE_COUNT] = {
    [GROUP_EMPTY] = BIT(GROUP_PREPARING) | BIT(GROUP_DEAD),
    [GROUP_PREPARING] = BIT(GROUP_COMPLETING) | BIT(GROUP_EMPTY) | BIT(GROUP_DEAD),
    [GROUP_COMPLETING] = BIT(GROUP_STABLE) | BIT(GROUP_PREPARING) | BIT(GROUP_DEAD),
    [GROUP_STABLE] = BIT(GROUP_PREPARING) | BIT(GROUP_DEAD),
    [GROUP_DEAD] = 0,
};

void group_enter(struct group *grp, enum group_state next)
{
    ASSERT(group_next[grp->state] & BIT(next));
    grp->state = next;
    grp->state_since_ms = grp->shard->wall_ms;
}

const char *group_state_name(enum group_state state)
{
    static const char *const names[GROUP_STATE_COUNT] = {
        [GROUP_EMPTY] = "Empty",
        [GROUP_PREPARING] = "PreparingRebalance",
        [GROUP_COMPLETING] = "CompletingRebalance",
        [GROUP_STABLE] = "Stable",
        [GROUP_DEAD] = "Dead",
    };
    return names[state];
}

/* A group of which the log has a record goes with a tombstone only (expire.c). */
void group_drop_if_idle(struct group *grp)
{
    if (grp->state != GROUP_EMPTY || grp->generation > 0 || grp->recorded) return;
    if (grp->members || grp->pending || grp->topics || grp->transactions || grp->writes > 0) return;
    group_free(grp);
}

/* Java's String.hashCode() is over UTF-16 code units: those past U+FFFF count as two. */
static uint32_t hash_of(struct str s)
{
    uint32_t h = 0;
    for (size_t i = 0; i < s.size;) {
        uint32_t c = (uint8_t)s.data[i++];
        int more = c < 0xc0 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        if (more > 0) c &= 0x3fu >> more;
        for (; more > 0 && i < s.size; more--) c = c << 6 | ((uint8_t)s.data[i++] & 0x3f);
        if (c >= 0x10000) {
            h = 31 * h + (0xd800 + ((c - 0x10000) >> 10));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
        }
        h = 31 * h + c;
    }
    return h;
}

int32_t group_partition_of(struct str group_id, int32_t partition_count)
{
    uint32_t h = hash_of(group_id);
    /* Kafka's Utils.abs: the smallest number has no opposite, and counts as 0. */
    uint32_t abs = h == 0x80000000u ? 0 : h > 0x80000000u ? 0u - h : h;
    return (int32_t)(abs % (uint32_t)partition_count);
}

bool group_str_is_odd(struct str s)
{
    return s.size > 0 && (memchr(s.data, '\0', s.size) != NULL || !str_is_utf8(s));
}

struct bytes group_copy_bytes(struct arena *a, struct bytes b)
{
    uint8_t *to = arena_alloc(a, MAX(b.size, (size_t)1));
    if (b.size) memcpy(to, b.data, b.size);
    return (struct bytes){to, b.size};
}

bool group_id_is_valid(struct str group_id, enum group_api api)
{
    static const bool may_be_empty[GROUP_API_COUNT] = {
        [GROUP_COMMIT] = true,
        [GROUP_FETCH] = true,
        [GROUP_DESCRIBE] = true,
        [GROUP_DELETE] = true,
    };
    if (str_is_null(group_id) || group_str_is_odd(group_id)) return false;
    return group_id.size > 0 || may_be_empty[api];
}

char *group_make_member_id(struct group_shard *sh, struct str prefix)
{
    struct uuid id = sh->env.member_id(sh->env.arg);
    const uint8_t *b = id.bytes;
    return mem_printf("%.*s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", STR_ARG(prefix),
                      b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
                      b[15]);
}
