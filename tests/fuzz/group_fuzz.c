/* group_fuzz: bytes as the records of a __consumer_offsets partition, and then everything that reads what they left:
 * describing, fetching, expiring, deleting.
 * What must hold: nothing is read past a record; whatever was taken in can be told of, and goes with tombstones that,
 * read behind those records, leave a shard without groups. */
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "group/group_internal.h"
#include "wire/gen/delete_groups.h"
#include "wire/gen/describe_groups.h"
#include "wire/gen/list_groups.h"
#include "wire/gen/offset_fetch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct host {
    struct group_shard *sh;
    struct list writes;
    int64_t offset;
    struct group_shard *heir; /* reads what `sh` writes */
    int answers;
};

static void on_answer(void *arg, struct group_call *call)
{
    struct host *h = arg;
    (void)call;
    h->answers++;
}

static void on_write(void *arg, struct group_write *w)
{
    struct host *h = arg;
    list_push_back(&h->writes, &w->node);
}

static struct uuid on_member_id(void *arg)
{
    (void)arg;
    return UUID_ZERO;
}

static struct group_shard *shard_new(struct host *h)
{
    struct group_shard_env env = {h, on_answer, on_write, on_member_id};
    struct group_options opt = {
        .session_timeout_max_ms = INT32_MAX, .size_max = 100, .metadata_bytes_max = 4096, .offsets_retention_ms = 1000};
    return group_shard_new(0, &env, &opt);
}

/* ---- The input: records, each with its sizes before it */

static struct bytes take(struct reader *r)
{
    size_t size = (uint16_t)reader_i16(r);
    size = size == 0xffff ? SIZE_MAX : MIN(size, reader_left(r));
    return size == SIZE_MAX ? (struct bytes){NULL, 0} : (struct bytes){reader_take(r, size), size};
}

/* A copy as large as the record and no larger, so that ASan sees every read past it. */
static struct bytes own(struct bytes b)
{
    return b.data ? (struct bytes){(uint8_t *)mem_strndup((const char *)b.data, b.size), b.size} : b;
}

static void replay_one(struct host *h, struct reader *r)
{
    int8_t kind = reader_i8(r);
    if (kind & 1) {
        group_shard_replay_marker(h->sh, kind >> 4, kind & 2);
        group_shard_replay_marker(h->heir, kind >> 4, kind & 2);
        return;
    }
    struct bytes key = own(take(r)), value = own(take(r));
    struct group_replay at = {h->offset++, 1, kind & 2 ? kind >> 4 : -1, kind & 2};
    enum err e = group_shard_replay(h->sh, &at, key, value);
    ASSERT(e == OK || e == ERR_CORRUPT);
    ASSERT(group_shard_replay(h->heir, &at, key, value) == e);
    mem_free((void *)(uintptr_t)key.data);
    mem_free((void *)(uintptr_t)value.data);
}

/* ---- What reads it */

/* All that is written is safe, and the heir reads it. */
static void write_all(struct host *h)
{
    struct list_node *n;
    while ((n = list_pop_front(&h->writes))) {
        struct group_write *w = CONTAINER_OF(n, struct group_write, node);
        for (size_t i = 0; i < w->count; i++) {
            struct group_replay at = {.offset = h->offset++, .producer_id = -1};
            ASSERT(group_shard_replay(h->heir, &at, w->records[i].key, w->records[i].value) == OK);
        }
        group_shard_written(h->sh, w, KERR_NONE);
    }
}

static void call(struct host *h, enum group_api api, const void *in, void *out, struct arena *a)
{
    struct group_call c = {.api = api, .version = 5, .in = in, .out = out, .arena = a, .want_history = true};
    int before = h->answers;
    group_shard_call(h->sh, &c);
    write_all(h);
    ASSERT(h->answers == before + 1);
}

static void encode(const struct wire_schema *s, const void *m, int16_t version, struct buf_pool *pool)
{
    struct writer w;
    writer_init(&w, pool);
    ASSERT(wire_encode(s, m, version, &w) == OK);
    writer_fini(&w);
}

static void look_at(struct host *h, struct str id, struct arena *a, struct buf_pool *pool)
{
    struct describe_groups_response all = describe_groups_response_default;
    struct describe_groups_response_described_group described = describe_groups_response_described_group_default;
    call(h, GROUP_DESCRIBE, &id, &described, a);
    all.groups = &described;
    all.groups_count = 1;
    encode(&describe_groups_response_schema, &all, 5, pool);

    struct offset_fetch_request_offset_fetch_request_group fetch =
        offset_fetch_request_offset_fetch_request_group_default;
    fetch.group_id = id;
    fetch.topics_count = -1;
    struct offset_fetch_response_offset_fetch_response_group fetched =
        offset_fetch_response_offset_fetch_response_group_default;
    call(h, GROUP_FETCH, &fetch, &fetched, a);
    struct offset_fetch_response offsets = offset_fetch_response_default;
    offsets.groups = &fetched;
    offsets.groups_count = 1;
    encode(&offset_fetch_response_schema, &offsets, 8, pool);
}

static void look_at_all(struct host *h, bool delete)
{
    struct arena a;
    arena_init(&a, SIZE_MAX);
    struct buf_pool *pool = buf_pool_new(1 << 20);
    struct list_groups_request rq = list_groups_request_default;
    struct list_groups_response out = list_groups_response_default;
    call(h, GROUP_LIST, &rq, &out, &a);
    ASSERT((size_t)out.groups_count == group_shard_count(h->sh));
    encode(&list_groups_response_schema, &out, 5, pool);
    for (int32_t i = 0; i < out.groups_count; i++) {
        struct delete_groups_response_deletable_group_result result =
            delete_groups_response_deletable_group_result_default;
        look_at(h, out.groups[i].group_id, &a, pool);
        if (delete) call(h, GROUP_DELETE, &out.groups[i].group_id, &result, &a);
    }
    buf_pool_free(pool);
    arena_fini(&a);
}

/* Everybody's session ends, every offset expires, every group goes. */
static void run_out(struct host *h)
{
    int64_t late = (int64_t)1 << 40;
    for (int i = 0; i < 3; i++, late += (int64_t)1 << 40) {
        do {
            group_shard_tick(h->sh, late, late);
            write_all(h);
        } while (group_shard_due_ms(h->sh) <= late);
        group_shard_expire(h->sh);
        write_all(h);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_init(NULL, NULL, LOG_LEVEL_ERROR);
    struct host h = {.offset = 1};
    list_init(&h.writes);
    h.sh = shard_new(&h);
    h.heir = shard_new(&h);
    struct reader r = reader_of(data, size);
    while (reader_left(&r) > 0) replay_one(&h, &r);
    group_shard_loaded(h.sh, 1, 1);

    look_at_all(&h, false);
    group_shard_forget_topic(h.sh, STR("t"));
    write_all(&h);
    run_out(&h);
    look_at_all(&h, true);

    group_shard_loaded(h.heir, 1, 1);
    for (const struct group *grp = h.heir->groups; grp; grp = grp->hh.next)
        ASSERT(group_find(h.sh, group_id(grp)) || !group_id_is_valid(group_id(grp), GROUP_COMMIT));
    group_shard_close(h.sh, KERR_NOT_COORDINATOR);
    group_shard_close(h.heir, KERR_NOT_COORDINATOR);
    write_all(&h);
    group_shard_free(h.sh);
    group_shard_free(h.heir);
    return 0;
}
