/* replay.c: what the partition's log says, record by record, into groups and offsets.
 *
 * A record that we cannot take in is skipped and told of, and the others count: one bad record must not keep a thousand
 * groups from their offsets, as it does in Kafka.  What the tail of a key or value has beyond the fields of its version
 * is ignored, as in Kafka. */
#include "group/group_internal.h"
#include "wire/gen/group_metadata_key.h"
#include "wire/gen/offset_commit_key.h"
#include "wire/gen/offset_commit_value.h"

#define LOG_MODULE "group"
#include "base/log.h"

/* What a key begins with.  The first is of before 0.9.0.1 and looks like the second. */
enum { KEY_OLD_OFFSET = 0, KEY_OFFSET = 1, KEY_GROUP = 2 };
enum { SKIPPED_NAMES_MAX = 10000 }; /* of groups, to warn of each once */

struct record {
    const struct group_replay *at;
    struct reader key; /* behind the prefix */
    struct bytes value;
    struct arena arena;
};

/* ---------------------------------------------------------------- values */

/* Reads a value behind its version.  ERR_UNSUPPORTED: nobody has told us of that one. */
static enum err value_decode(struct record *rec, const struct wire_schema *schema, void *out, int16_t *version)
{
    if (!wire_prefix_peek(rec->value, version)) return ERR_TRUNCATED;
    if (*version < schema->version_min || *version > schema->version_max) return ERR_UNSUPPORTED;
    struct reader r = reader_of(rec->value.data, rec->value.size);
    reader_i16(&r);
    return wire_decode(schema, out, *version, &r, &rec->arena);
}

static enum err skip(const struct group_shard *sh, const struct record *rec, enum err e, const char *what,
                     int16_t version)
{
    if (e == ERR_UNSUPPORTED) {
        LOG_LIMITED(LOG_LEVEL_WARN, "group_record_skipped",
                    "partition=%d offset=%lld kind=%s reason=version version=%d", sh->partition,
                    (long long)rec->at->offset, what, version);
        return OK;
    }
    LOG_LIMITED(LOG_LEVEL_WARN, "group_record_skipped", "partition=%d offset=%lld kind=%s reason=\"%s\"", sh->partition,
                (long long)rec->at->offset, what, err_text(e));
    return ERR_CORRUPT;
}

/* ---------------------------------------------------------------- offsets */

static struct group_offset offset_of(const struct record *rec, const struct offset_commit_value *v)
{
    return (struct group_offset){
        .offset = v->offset,
        .commit_ms = v->commit_timestamp,
        .expire_ms = v->expire_timestamp,
        .record_offset = rec->at->offset,
        .leader_epoch = v->leader_epoch,
        .metadata = v->metadata,
    };
}

static void offset_put(struct group_shard *sh, const struct record *rec, const struct offset_commit_key *key,
                       const struct group_offset *offset)
{
    struct group *grp = group_find(sh, key->group);
    if (!grp) grp = group_make(sh, key->group);
    if (rec->at->transactional) {
        group_transaction_put(grp, rec->at->producer_id, key->topic, key->partition, offset);
        return;
    }
    struct group_topic *t;
    struct group_position *pos = group_position_make(grp, key->topic, key->partition, &t);
    group_position_put(grp, pos, offset);
}

static void offset_remove(struct group_shard *sh, const struct record *rec, const struct offset_commit_key *key)
{
    struct group *grp = group_find(sh, key->group);
    if (!grp) return;
    if (rec->at->transactional) {
        group_transaction_remove(grp, rec->at->producer_id, key->topic, key->partition);
    } else {
        struct group_topic *t;
        struct group_position *pos = group_position_find(grp, key->topic, key->partition, &t);
        if (!pos) return;
        group_position_clear(grp, pos);
        group_position_drop_if_idle(t, pos);
    }
    group_drop_if_idle(grp);
}

static enum err replay_offset(struct group_shard *sh, struct record *rec)
{
    struct offset_commit_key key;
    enum err e = offset_commit_key_decode(&key, OFFSET_COMMIT_KEY_VERSION_MAX, &rec->key, &rec->arena);
    if (!e && (group_str_is_odd(key.group) || group_str_is_odd(key.topic))) e = ERR_CORRUPT;
    if (e) return skip(sh, rec, e, "offset_key", 0);
    if (!rec->value.data) {
        offset_remove(sh, rec, &key);
        return OK;
    }
    struct offset_commit_value v;
    int16_t version = 0;
    e = value_decode(rec, &offset_commit_value_schema, &v, &version);
    if (e) return skip(sh, rec, e, "offset", version);
    struct group_offset offset = offset_of(rec, &v);
    offset_put(sh, rec, &key, &offset);
    return OK;
}

/* ---------------------------------------------------------------- groups */

static bool member_is_odd(const struct group_metadata_value_member_metadata *m)
{
    return m->member_id.size == 0 || group_str_is_odd(m->member_id) || group_str_is_odd(m->group_instance_id) ||
           group_str_is_odd(m->client_id) || group_str_is_odd(m->client_host);
}

/* No broker writes such: members that have no id, or strings that no request could name (group_str_is_odd()). */
static bool value_is_odd(const struct group_metadata_value *v)
{
    bool odd = group_str_is_odd(v->protocol_type) || group_str_is_odd(v->protocol) || group_str_is_odd(v->leader);
    for (int32_t i = 0; i < v->members_count && !odd; i++) odd = member_is_odd(&v->members[i]);
    return odd;
}

/* Its record is gone; offsets make it the group of a "simple" consumer. */
static void group_remove(struct group_shard *sh, struct str id)
{
    struct group *grp = group_find(sh, id);
    if (!grp) return;
    struct group_metadata_value nothing = group_metadata_value_default;
    nothing.protocol = nothing.leader = STR_NULL;
    group_restore(grp, &nothing);
    grp->recorded = false;
    group_drop_if_idle(grp);
}

static enum err replay_group(struct group_shard *sh, struct record *rec)
{
    struct str id = STR_NULL;
    struct group_metadata_key key;
    enum err e = group_metadata_key_decode(&key, GROUP_METADATA_KEY_VERSION_MAX, &rec->key, &rec->arena);
    if (!e && group_str_is_odd(key.group)) e = ERR_CORRUPT;
    if (e) return skip(sh, rec, e, "group_key", 0);
    id = key.group;
    if (!rec->value.data) {
        group_remove(sh, id);
        return OK;
    }
    struct group_metadata_value v;
    int16_t version = 0;
    e = value_decode(rec, &group_metadata_value_schema, &v, &version);
    if (!e && value_is_odd(&v)) e = ERR_CORRUPT;
    if (e) return skip(sh, rec, e, "group", version);
    for (int32_t i = 0; version == 0 && i < v.members_count; i++)
        v.members[i].rebalance_timeout = v.members[i].session_timeout; /* one timeout did for both */
    struct group *grp = group_find(sh, id);
    if (!grp) grp = group_make(sh, id);
    group_restore(grp, &v);
    grp->recorded = true;
    return OK;
}

/* ---------------------------------------------------------------- what we do not know */

/* True the first time, and when there are too many to remember. */
static bool is_news(struct group_shard *sh, struct str group)
{
    struct group_name *n;
    HASH_FIND(hh, sh->skipped, group.data, group.size, n);
    if (n) return false;
    if (HASH_COUNT(sh->skipped) >= SKIPPED_NAMES_MAX) return true;
    n = mem_zalloc(1, sizeof *n);
    n->name = mem_strndup(group.data, group.size);
    HASH_ADD_KEYPTR(hh, sh->skipped, n->name, group.size, n);
    return true;
}

/* Newer kinds all say first which group they are of: those of KIP-848, KIP-932, KIP-1071.  Their groups' offsets are
 * records that we know. */
static void replay_other(struct group_shard *sh, struct record *rec, int16_t type)
{
    if (!rec->value.data) return; /* gone in any case */
    int16_t size = reader_i16(&rec->key);
    const uint8_t *name = size > 0 ? reader_take(&rec->key, (size_t)size) : NULL;
    struct str group = name ? (struct str){(const char *)name, (size_t)size} : STR_EMPTY;
    if (!is_news(sh, group)) return;
    LOG_LIMITED(LOG_LEVEL_WARN, "group_record_skipped",
                "partition=%d offset=%lld group=\"%.*s\" type=%d reason=unknown_kind kept=offsets", sh->partition,
                (long long)rec->at->offset, STR_ARG(group), type);
}

void group_replay_end(struct group_shard *sh)
{
    struct group_name *n, *next;
    HASH_ITER(hh, sh->skipped, n, next)
    {
        HASH_DEL(sh->skipped, n);
        mem_free(n->name);
        mem_free(n);
    }
}

/* ---------------------------------------------------------------- entry points */

enum err group_shard_replay(struct group_shard *sh, const struct group_replay *at, struct bytes key, struct bytes value)
{
    sh->record_offset = MAX(sh->record_offset, at->offset);
    struct record rec = {.at = at, .value = value};
    if (!key.data) return skip(sh, &rec, ERR_TRUNCATED, "key", 0);
    rec.key = reader_of(key.data, key.size);
    int16_t type = reader_i16(&rec.key);
    if (rec.key.err) return skip(sh, &rec, rec.key.err, "key", 0);
    arena_init(&rec.arena, SIZE_MAX);
    enum err e = OK;
    switch (type) {
    case KEY_OLD_OFFSET:
    case KEY_OFFSET: e = replay_offset(sh, &rec); break;
    case KEY_GROUP: e = replay_group(sh, &rec); break;
    default: replay_other(sh, &rec, type); break;
    }
    arena_fini(&rec.arena);
    return e;
}

void group_shard_replay_marker(struct group_shard *sh, int64_t producer_id, bool commit)
{
    group_transactions_end(sh, producer_id, commit);
}
