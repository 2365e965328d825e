/* fetch_sessions.c: the cache of sessions, what each remembers, and the plans that fetches make of them.
 *
 * A session holds one hash of partitions.  uthash keeps the order in which its entries were added: that is the order to
 * read, and a partition moves to its end by being taken out and added again.  Names are kept once a session, in a
 * second hash, and are copied into a plan's arena: nothing that a plan reads without a lock belongs to the session.
 *
 * WHAT ALWAYS HOLDS
 * (1) Two kinds of locks: the cache's and one a session.  Nobody takes one while holding another.
 * (2) A session is freed with its last reference.  The cache has one until it removes the session, each plan has one.
 * (3) Partitions go only in fetch_plan_begin(), which also raises `use`: while session->use == plan->use, the plan's
 *     pointers to partitions are good.
 * (4) The cached sizes sum up to fs->bytes <= fs->bytes_max: who makes a session grow past that loses it.
 * (5) By age (lru), by what a replica's new session may evict and by what any may evict: a cached session is in the
 *     first order always, in the others by the rules of session_touch(). */
#include "broker/fetch_sessions.h"

#include <assert.h>
#include <pthread.h>

#include "base/list.h"
#include "base/mem.h"

#include "base/hash.h"

/* Kafka's min.incremental.fetch.session.eviction.ms, a constant there, too. */
enum { EVICTION_MS = 120 * 1000 };
enum { SESSION_ID_NONE = 0 };
static const int64_t OFFSET_UNKNOWN = -1;

struct session_topic {
    UT_hash_handle hh;   /* by id or name, as the session has it */
    struct uuid id;      /* or zero */
    struct str copy;     /* in the arena of the plan that `copied_use` tells */
    uint64_t copied_use; /* 0: of none */
    int32_t parts_count;
    uint32_t name_size;
    char name[];
};

struct fetch_session_part {
    UT_hash_handle hh;
    struct session_topic *topic; /* the key: */
    int32_t partition;           /* these two */
    int32_t max_bytes;
    int32_t current_leader_epoch, last_fetched_epoch;
    int64_t fetch_offset, log_start_offset;
    int64_t told_high_watermark, told_log_start; /* what the client knows; OFFSET_UNKNOWN: nothing */
};

struct part_key {
    struct session_topic *topic;
    int32_t partition;
};
enum { PART_KEY_SIZE = sizeof(struct session_topic *) + sizeof(int32_t) };
static_assert(offsetof(struct fetch_session_part, partition) - offsetof(struct fetch_session_part, topic) ==
                  offsetof(struct part_key, partition),
              "a key in a partition looks like one alone");
static_assert(sizeof(struct fetch_session_part) <= 112, "there are many of these");

/* How much a session holds. */
struct session_size {
    int32_t count; /* partitions */
    size_t bytes;
};

/* Who may evict. */
enum evictor { EVICTOR_REPLICA, EVICTOR_ANY, EVICTOR_COUNT };
enum { HEAP_NOWHERE = -1 };

struct fetch_session {
    struct fetch_sessions *fs;
    int32_t id;
    bool privileged, by_id;
    int64_t created_ms;
    /* Under the cache's lock: */
    UT_hash_handle hh;
    struct list_node lru; /* or in a list of sessions to free */
    int64_t last_used_ms;
    int32_t refs;
    bool cached;
    struct session_size cached_size; /* `size` when last touched */
    int32_t heap_at[EVICTOR_COUNT];
    pthread_mutex_t lock; /* guards what follows */
    bool closed;          /* emptied: on its way out of the cache */
    int32_t epoch;        /* of the next request; FETCH_SESSION_EPOCH_INITIAL while it is being filled */
    uint64_t use;         /* counts plans */
    struct session_topic *topics;
    struct fetch_session_part *parts;
    struct session_size size;
    struct fetch_plan *watched; /* the plan that `use` counted last, if its request waits */
};

/* Sessions, the one to evict first at the top. */
struct evict_heap {
    struct fetch_session **at;
    int32_t count;
    size_t cap;
};

struct fetch_sessions {
    struct rng *rng;
    size_t slots, bytes_max;
    uint64_t hash_seed;
    pthread_mutex_t lock; /* guards what follows, and `rng` */
    struct fetch_session *by_id;
    struct list lru; /* the one that was unused for longest first */
    struct evict_heap heaps[EVICTOR_COUNT];
    size_t bytes;
};

/* ---- What a session remembers; under its lock */

/* Clients choose names and ids: unless hashes hang on a secret, they could choose many of one hash. */
static unsigned key_hash(const struct fetch_session *s, const void *key, size_t size)
{
    enum { WORD = sizeof(uint64_t) };
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    const char *at = key;
    uint64_t h = s->fs->hash_seed ^ size;
    for (size_t n; size > 0; at += n, size -= n) {
        uint64_t word = 0;
        n = MIN(size, (size_t)WORD);
        memcpy(&word, at, n);
        unsigned __int128 product = (unsigned __int128)(h ^ word) * odd;
        h = (uint64_t)product ^ (uint64_t)(product >> 64) ^ s->fs->hash_seed;
    }
    return (unsigned)(h ^ h >> 32);
}

static struct session_topic *topic_find(const struct fetch_session *s, struct str name, struct uuid id)
{
    const void *key = s->by_id ? (const void *)id.bytes : name.data;
    size_t size = s->by_id ? sizeof id.bytes : name.size;
    struct session_topic *topic;
    HASH_FIND_BYHASHVALUE(hh, s->topics, key, size, key_hash(s, key, size), topic);
    return topic;
}

static size_t topic_bytes(bool by_id, struct str name)
{
    return sizeof(struct session_topic) + (by_id ? 0 : name.size);
}

static struct session_topic *topic_find_or_add(struct fetch_session *s, struct str name, struct uuid id)
{
    struct session_topic *topic = topic_find(s, name, id);
    if (topic) return topic;
    topic = mem_zalloc(1, topic_bytes(s->by_id, name));
    if (s->by_id) {
        topic->id = id;
        HASH_ADD_BYHASHVALUE(hh, s->topics, id, sizeof id, key_hash(s, &id, sizeof id), topic);
    } else {
        topic->name_size = (uint32_t)name.size;
        if (name.size) memcpy(topic->name, name.data, name.size);
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, s->topics, topic->name, name.size, key_hash(s, name.data, name.size), topic);
    }
    s->size.bytes += topic_bytes(s->by_id, name);
    return topic;
}

static void topic_drop(struct fetch_session *s, struct session_topic *topic)
{
    s->size.bytes -= sizeof *topic + topic->name_size;
    HASH_DEL(s->topics, topic);
    mem_free(topic);
}

static struct fetch_session_part *part_find(const struct fetch_session *s, struct session_topic *topic,
                                            int32_t partition)
{
    struct part_key key = {topic, partition};
    struct fetch_session_part *part;
    HASH_FIND_BYHASHVALUE(hh, s->parts, &key, PART_KEY_SIZE, key_hash(s, &key, PART_KEY_SIZE), part);
    return part;
}

/* Changes a partition in its place, or adds one at the end. */
static void part_put(struct fetch_session *s, struct session_topic *topic,
                     const struct fetch_request_fetch_partition *in)
{
    struct fetch_session_part *part = part_find(s, topic, in->partition);
    if (!part) {
        part = mem_zalloc(1, sizeof *part);
        part->topic = topic;
        part->partition = in->partition;
        part->told_high_watermark = part->told_log_start = OFFSET_UNKNOWN;
        unsigned hash = key_hash(s, &part->topic, PART_KEY_SIZE);
        HASH_ADD_BYHASHVALUE(hh, s->parts, topic, PART_KEY_SIZE, hash, part);
        topic->parts_count++;
        s->size.count++;
        s->size.bytes += sizeof *part;
    }
    part->max_bytes = in->partition_max_bytes;
    part->current_leader_epoch = in->current_leader_epoch;
    part->last_fetched_epoch = in->last_fetched_epoch;
    part->fetch_offset = in->fetch_offset;
    part->log_start_offset = in->log_start_offset;
    /* A follower says what it knows (KIP-1166): it may have thrown the answer away that told it more. */
    part->told_high_watermark = MIN(part->told_high_watermark, in->high_watermark);
}

static void part_drop(struct fetch_session *s, struct fetch_session_part *part)
{
    struct session_topic *topic = part->topic;
    HASH_DEL(s->parts, part);
    mem_free(part);
    s->size.count--;
    s->size.bytes -= sizeof *part;
    if (--topic->parts_count == 0) topic_drop(s, topic);
}

static void part_move_last(struct fetch_session *s, struct fetch_session_part *part)
{
    if (!part->hh.next) return;
    unsigned hash = part->hh.hashv;
    HASH_DEL(s->parts, part);
    HASH_ADD_BYHASHVALUE(hh, s->parts, topic, PART_KEY_SIZE, hash, part);
}

/* First what is new or changed, then what is forgotten, as Kafka does: a partition in both is forgotten. */
static void session_merge(struct fetch_session *s, const struct fetch_request *in)
{
    for (int32_t i = 0; i < in->topics_count; i++) {
        const struct fetch_request_fetch_topic *ft = &in->topics[i];
        if (ft->partitions_count == 0) continue;
        struct session_topic *topic = topic_find_or_add(s, ft->topic, ft->topic_id);
        for (int32_t k = 0; k < ft->partitions_count; k++) part_put(s, topic, &ft->partitions[k]);
    }
    for (int32_t i = 0; i < in->forgotten_topics_data_count; i++) {
        const struct fetch_request_forgotten_topic *ft = &in->forgotten_topics_data[i];
        for (int32_t k = 0; k < ft->partitions_count; k++) {
            /* Looked up anew each time: it goes with its last partition. */
            struct session_topic *topic = topic_find(s, ft->topic, ft->topic_id);
            struct fetch_session_part *part = topic ? part_find(s, topic, ft->partitions[k]) : NULL;
            if (part) part_drop(s, part);
        }
    }
}

static struct fetch_session *session_new(struct fetch_sessions *fs, bool privileged, bool by_id, int64_t now_ms)
{
    struct fetch_session *s = mem_zalloc(1, sizeof *s);
    s->fs = fs;
    s->privileged = privileged;
    s->by_id = by_id;
    s->created_ms = s->last_used_ms = now_ms;
    s->epoch = FETCH_SESSION_EPOCH_INITIAL;
    for (int e = 0; e < EVICTOR_COUNT; e++) s->heap_at[e] = HEAP_NOWHERE;
    ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    return s;
}

static void session_free(struct fetch_session *s)
{
    while (s->parts) part_drop(s, s->parts);
    ASSERT(s->size.count == 0 && s->size.bytes == 0);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* ---- Which session to evict; under the cache's lock */

/* Kafka's order: replicas' after others, small ones first; ids make it total. */
static bool evicted_before(const struct fetch_session *a, const struct fetch_session *b)
{
    if (a->privileged != b->privileged) return b->privileged;
    if (a->cached_size.count != b->cached_size.count) return a->cached_size.count < b->cached_size.count;
    return a->id < b->id;
}

static void heap_set(struct evict_heap *h, enum evictor e, int32_t at, struct fetch_session *s)
{
    h->at[at] = s;
    s->heap_at[e] = at;
}

/* Finds the place for `s`, starting from the free place `at`. */
static void heap_settle(struct evict_heap *h, enum evictor e, int32_t at, struct fetch_session *s)
{
    for (int32_t up; at > 0 && evicted_before(s, h->at[up = (at - 1) / 2]); at = up) heap_set(h, e, at, h->at[up]);
    for (;;) {
        int32_t down = 2 * at + 1;
        if (down >= h->count) break;
        if (down + 1 < h->count && evicted_before(h->at[down + 1], h->at[down])) down++;
        if (!evicted_before(h->at[down], s)) break;
        heap_set(h, e, at, h->at[down]);
        at = down;
    }
    heap_set(h, e, at, s);
}

static void heap_add(struct evict_heap *h, enum evictor e, struct fetch_session *s)
{
    h->at = mem_grow(h->at, &h->cap, (size_t)h->count + 1, sizeof(struct fetch_session *));
    int32_t at = h->count++;
    heap_settle(h, e, at, s);
}

static void heap_remove(struct evict_heap *h, enum evictor e, struct fetch_session *s)
{
    int32_t at = s->heap_at[e];
    if (at == HEAP_NOWHERE) return;
    s->heap_at[e] = HEAP_NOWHERE;
    struct fetch_session *last = h->at[--h->count];
    if (last != s) heap_settle(h, e, at, last);
}

/* ---- The cache; under its lock */

static struct fetch_session *session_find(const struct fetch_sessions *fs, int32_t id)
{
    struct fetch_session *s;
    HASH_FIND_INT(fs->by_id, &id, s);
    return s;
}

/* The last reference puts it into `dead`, for sessions_free_dead() after the lock. */
static void session_unref(struct fetch_session *s, struct list *dead)
{
    ASSERT(s->refs > 0);
    if (--s->refs == 0) list_push_back(dead, &s->lru);
}

static void sessions_free_dead(struct list *dead)
{
    for (struct list_node *n; (n = list_pop_front(dead));) session_free(CONTAINER_OF(n, struct fetch_session, lru));
}

static void session_remove(struct fetch_sessions *fs, struct fetch_session *s, struct list *dead)
{
    ASSERT(s->cached);
    s->cached = false;
    HASH_DEL(fs->by_id, s);
    list_remove(&s->lru);
    for (int e = 0; e < EVICTOR_COUNT; e++) heap_remove(&fs->heaps[e], (enum evictor)e, s);
    ASSERT(fs->bytes >= s->cached_size.bytes);
    fs->bytes -= s->cached_size.bytes;
    session_unref(s, dead);
}

/* Puts a used session where it belongs.  As in Kafka, a session may be evicted by any bigger one from its first use on
 * that comes EVICTION_MS after it was made, by a replica's at once unless it is a replica's itself. */
static void session_touch(struct fetch_sessions *fs, struct fetch_session *s, struct session_size size, int64_t now_ms)
{
    list_remove(&s->lru);
    list_push_back(&fs->lru, &s->lru);
    s->last_used_ms = now_ms;
    for (int e = 0; e < EVICTOR_COUNT; e++) heap_remove(&fs->heaps[e], (enum evictor)e, s);
    fs->bytes = fs->bytes - s->cached_size.bytes + size.bytes;
    s->cached_size = size;
    bool old = now_ms - s->created_ms > EVICTION_MS;
    if (old || !s->privileged) heap_add(&fs->heaps[EVICTOR_REPLICA], EVICTOR_REPLICA, s);
    if (old) heap_add(&fs->heaps[EVICTOR_ANY], EVICTOR_ANY, s);
}

/* The session that was unused for longest, if that was long enough. */
static bool evict_stale(struct fetch_sessions *fs, int64_t now_ms, struct list *dead)
{
    struct list_node *first = list_first(&fs->lru);
    if (!first) return false;
    struct fetch_session *s = CONTAINER_OF(first, struct fetch_session, lru);
    if (now_ms - s->last_used_ms <= EVICTION_MS) return false;
    session_remove(fs, s, dead);
    return true;
}

/* One that is worth less than a new one of `count` partitions. */
static bool evict_lesser(struct fetch_sessions *fs, bool privileged, int32_t count, struct list *dead)
{
    const struct evict_heap *h = &fs->heaps[privileged ? EVICTOR_REPLICA : EVICTOR_ANY];
    if (h->count == 0) return false;
    struct fetch_session *s = h->at[0];
    if (s->privileged != privileged ? s->privileged : count <= s->cached_size.count) return false;
    session_remove(fs, s, dead);
    return true;
}

static bool sessions_make_room(struct fetch_sessions *fs, bool privileged, struct session_size size, int64_t now_ms,
                               struct list *dead)
{
    if (size.count > FETCH_SESSION_PARTITIONS_MAX || size.bytes > fs->bytes_max) return false;
    while (fs->bytes > fs->bytes_max - size.bytes)
        if (!evict_stale(fs, now_ms, dead)) return false;
    return HASH_COUNT(fs->by_id) < fs->slots || evict_stale(fs, now_ms, dead) ||
           evict_lesser(fs, privileged, size.count, dead);
}

static int32_t session_id_draw(struct fetch_sessions *fs)
{
    int32_t id;
    do {
        id = (int32_t)rng_below(fs->rng, INT32_MAX) + 1;
    } while (session_find(fs, id));
    return id;
}

struct fetch_sessions *fetch_sessions_new(size_t slots, struct rng *rng)
{
    struct fetch_sessions *fs = mem_zalloc(1, sizeof *fs);
    fs->rng = rng;
    rng_fill(rng, &fs->hash_seed, sizeof fs->hash_seed);
    fs->slots = slots;
    fs->bytes_max = MAX((size_t)FETCH_SESSIONS_BYTES_MIN, slots * FETCH_SESSIONS_BYTES_A_SLOT);
    list_init(&fs->lru);
    ASSERT(pthread_mutex_init(&fs->lock, NULL) == 0);
    return fs;
}

void fetch_sessions_free(struct fetch_sessions *fs)
{
    if (!fs) return;
    struct list dead;
    list_init(&dead);
    while (fs->by_id) {
        ASSERT(fs->by_id->refs == 1);
        session_remove(fs, fs->by_id, &dead);
    }
    sessions_free_dead(&dead);
    ASSERT(fs->bytes == 0);
    for (int e = 0; e < EVICTOR_COUNT; e++) mem_free(fs->heaps[e].at);
    pthread_mutex_destroy(&fs->lock);
    mem_free(fs);
}

size_t fetch_sessions_count(struct fetch_sessions *fs)
{
    pthread_mutex_lock(&fs->lock);
    size_t count = HASH_COUNT(fs->by_id);
    pthread_mutex_unlock(&fs->lock);
    return count;
}

/* ---- Plans */

struct plan_args {
    struct fetch_sessions *fs;
    const struct fetch_request *in;
    bool by_id, replica;
    int64_t now_ms;
    struct arena *arena;
};

/* What a session for the request will hold at most: it may name a partition or a topic twice. */
static struct session_size request_size(const struct plan_args *args)
{
    struct session_size size = {0};
    for (int32_t i = 0; i < args->in->topics_count; i++) {
        const struct fetch_request_fetch_topic *ft = &args->in->topics[i];
        size.count += ft->partitions_count;
        size.bytes += (size_t)ft->partitions_count * sizeof(struct fetch_session_part);
        size.bytes += topic_bytes(args->by_id, ft->topic);
    }
    return size;
}

/* Without a session: the items are the request's own.  What it names twice is answered twice, and Kafka's clients do
 * not do that. */
static void plan_from_request(struct fetch_plan *plan, const struct plan_args *args, int32_t count)
{
    plan->items = arena_array(args->arena, struct fetch_item, (size_t)count);
    for (int32_t i = 0; i < args->in->topics_count; i++) {
        const struct fetch_request_fetch_topic *ft = &args->in->topics[i];
        for (int32_t k = 0; k < ft->partitions_count; k++) {
            const struct fetch_request_fetch_partition *fp = &ft->partitions[k];
            plan->items[plan->count++] = (struct fetch_item){
                .topic = args->by_id ? STR_NULL : ft->topic,
                .topic_id = args->by_id ? ft->topic_id : UUID_ZERO,
                .partition = fp->partition,
                .current_leader_epoch = fp->current_leader_epoch,
                .last_fetched_epoch = fp->last_fetched_epoch,
                .fetch_offset = fp->fetch_offset,
                .log_start_offset = fp->log_start_offset,
                .max_bytes = fp->partition_max_bytes,
                .known_high_watermark = fp->high_watermark,
            };
        }
    }
}

/* The name, copied for this plan at its first partition. */
static struct str topic_copy(struct session_topic *topic, uint64_t use, struct arena *arena)
{
    if (topic->copied_use != use) {
        topic->copy = arena_str(arena, (struct str){topic->name, topic->name_size});
        topic->copied_use = use;
    }
    return topic->copy;
}

/* Under the session's lock: another request counts from now on. */
static void session_overtake(struct fetch_session *s)
{
    struct fetch_plan *plan = s->watched;
    s->use++;
    s->watched = NULL;
    if (plan) plan->overtaken(plan->arg);
}

/* Under the session's lock. */
static void plan_from_session(struct fetch_plan *plan, struct fetch_session *s, struct arena *arena)
{
    plan->session = s;
    plan->session_id = s->id;
    session_overtake(s);
    plan->use = s->use;
    s->epoch = fetch_session_epoch_after(s->epoch);
    plan->items = arena_array(arena, struct fetch_item, (size_t)s->size.count);
    for (struct fetch_session_part *part = s->parts; part; part = part->hh.next)
        plan->items[plan->count++] = (struct fetch_item){
            .topic = s->by_id ? STR_NULL : topic_copy(part->topic, plan->use, arena),
            .topic_id = part->topic->id,
            .partition = part->partition,
            .current_leader_epoch = part->current_leader_epoch,
            .last_fetched_epoch = part->last_fetched_epoch,
            .fetch_offset = part->fetch_offset,
            .log_start_offset = part->log_start_offset,
            .max_bytes = part->max_bytes,
            .known_high_watermark = part->told_high_watermark,
            .part = part,
        };
    ASSERT(plan->count == s->size.count);
}

/* Closes the session that the request names and takes a place for a new one, if there is to be one.  It is found by its
 * id from here on, but accepts no request before it is filled. */
static struct fetch_session *session_replace(const struct plan_args *args, struct session_size size)
{
    struct fetch_sessions *fs = args->fs;
    struct fetch_session *s = NULL;
    struct list dead;
    list_init(&dead);
    pthread_mutex_lock(&fs->lock);
    struct fetch_session *old = session_find(fs, args->in->session_id);
    if (old) session_remove(fs, old, &dead);
    if (args->in->session_epoch == FETCH_SESSION_EPOCH_INITIAL && size.count > 0 &&
        sessions_make_room(fs, args->replica, size, args->now_ms, &dead)) {
        s = session_new(fs, args->replica, args->by_id, args->now_ms);
        s->id = session_id_draw(fs);
        s->refs = 2; /* the cache's and the plan's */
        s->cached = true;
        HASH_ADD_INT(fs->by_id, id, s);
        session_touch(fs, s, size, args->now_ms);
    }
    pthread_mutex_unlock(&fs->lock);
    sessions_free_dead(&dead);
    return s;
}

/* After a request: finds the session its new place in the cache, or takes it out: when it is empty, or too big. */
static void session_settle(struct fetch_session *s, struct session_size size, int64_t now_ms)
{
    struct fetch_sessions *fs = s->fs;
    struct list dead;
    list_init(&dead);
    pthread_mutex_lock(&fs->lock);
    if (s->cached) {
        session_touch(fs, s, size, now_ms);
        /* A client hears of it with its next request, and falls back to full fetches. */
        if (size.count == 0 || size.count > FETCH_SESSION_PARTITIONS_MAX || fs->bytes > fs->bytes_max)
            session_remove(fs, s, &dead);
    }
    pthread_mutex_unlock(&fs->lock);
    sessions_free_dead(&dead);
}

static void plan_full(struct fetch_plan *plan, const struct plan_args *args)
{
    struct session_size size_max = request_size(args);
    struct fetch_session *s = session_replace(args, size_max);
    if (!s) {
        plan_from_request(plan, args, size_max.count);
        return;
    }
    pthread_mutex_lock(&s->lock);
    struct fetch_request full = *args->in;
    full.forgotten_topics_data_count = 0; /* there is nothing to forget yet */
    session_merge(s, &full);
    plan_from_session(plan, s, args->arena);
    struct session_size size = s->size;
    pthread_mutex_unlock(&s->lock);
    if (size.bytes != size_max.bytes) session_settle(s, size, args->now_ms);
}

static struct fetch_session *session_pin(struct fetch_sessions *fs, int32_t id)
{
    pthread_mutex_lock(&fs->lock);
    struct fetch_session *s = session_find(fs, id);
    if (s) s->refs++;
    pthread_mutex_unlock(&fs->lock);
    return s;
}

static void session_unpin(struct fetch_session *s, bool close)
{
    struct fetch_sessions *fs = s->fs;
    struct list dead;
    list_init(&dead);
    pthread_mutex_lock(&fs->lock);
    if (close && s->cached) session_remove(fs, s, &dead);
    session_unref(s, &dead);
    pthread_mutex_unlock(&fs->lock);
    sessions_free_dead(&dead);
}

/* Under the session's lock.  In Kafka's order. */
static enum kerr session_check(const struct fetch_session *s, const struct plan_args *args)
{
    if (s->closed) return KERR_FETCH_SESSION_ID_NOT_FOUND;
    if (args->in->session_epoch != s->epoch) return KERR_INVALID_FETCH_SESSION_EPOCH;
    if (args->by_id != s->by_id) return KERR_FETCH_SESSION_TOPIC_ID_ERROR;
    return KERR_NONE;
}

static void plan_incremental(struct fetch_plan *plan, const struct plan_args *args)
{
    struct fetch_session *s = session_pin(args->fs, args->in->session_id);
    if (!s) {
        plan->kerr = KERR_FETCH_SESSION_ID_NOT_FOUND;
        return;
    }
    pthread_mutex_lock(&s->lock);
    plan->kerr = session_check(s, args);
    if (!plan->kerr) {
        session_merge(s, args->in);
        s->closed = s->size.count == 0;
        if (s->closed)
            session_overtake(s);
        else
            plan_from_session(plan, s, args->arena);
    }
    struct session_size size = s->size;
    pthread_mutex_unlock(&s->lock);

    plan->incremental = plan->session != NULL;
    if (!plan->kerr) session_settle(s, size, args->now_ms);
    if (plan->session) return;
    session_unpin(s, false);
    /* Nothing left to fetch closes the session, and the answer says so by session id 0. */
    if (!plan->kerr) plan_from_request(plan, args, request_size(args).count);
}

void fetch_plan_begin(struct fetch_plan *out, struct fetch_sessions *fs, const struct fetch_request *in, bool by_id,
                      bool replica, int64_t now_ms, struct arena *arena)
{
    struct plan_args args = {fs, in, by_id, replica, now_ms, arena};
    *out = (struct fetch_plan){.session_id = SESSION_ID_NONE};
    if (in->session_epoch == FETCH_SESSION_EPOCH_INITIAL || in->session_epoch == FETCH_SESSION_EPOCH_FINAL)
        plan_full(out, &args);
    else
        plan_incremental(out, &args);
}

/* Whether the client has something to learn, which it then knows.  An error is told each time, and its end, too: the
 * unknown offset differs from whatever is found then. */
static bool part_tell(struct fetch_session_part *part, const struct fetch_found *found)
{
    int64_t high_watermark = found->kerr ? OFFSET_UNKNOWN : found->high_watermark;
    int64_t log_start = found->kerr ? OFFSET_UNKNOWN : found->log_start;
    bool news = found->kerr || found->has_records || found->other_news || part->told_high_watermark != high_watermark ||
                part->told_log_start != log_start;
    part->told_high_watermark = high_watermark;
    part->told_log_start = log_start;
    return news;
}

bool fetch_plan_include(struct fetch_plan *plan, const struct fetch_item *item, const struct fetch_found *found)
{
    struct fetch_session *s = plan->session;
    if (!s) return true;
    if (plan->kerr) return false;
    bool news = false;
    pthread_mutex_lock(&s->lock);
    if (s->use != plan->use) {
        plan->kerr = KERR_INVALID_FETCH_SESSION_EPOCH;
    } else {
        news = part_tell(item->part, found);
        if (plan->incremental && found->has_records) part_move_last(s, item->part);
    }
    pthread_mutex_unlock(&s->lock);
    plan->told = true;
    return news || (!plan->incremental && !plan->kerr);
}

void fetch_plan_watch(struct fetch_plan *plan, void (*overtaken)(void *arg), void *arg)
{
    struct fetch_session *s = plan->session;
    if (!s) return;
    plan->overtaken = overtaken;
    plan->arg = arg;
    pthread_mutex_lock(&s->lock);
    bool late = s->use != plan->use;
    if (!late) s->watched = plan;
    pthread_mutex_unlock(&s->lock);
    if (late) overtaken(arg);
}

static void plan_unwatch(struct fetch_plan *plan)
{
    struct fetch_session *s = plan->session;
    pthread_mutex_lock(&s->lock);
    if (s->watched == plan) s->watched = NULL;
    pthread_mutex_unlock(&s->lock);
}

void fetch_plan_end(struct fetch_plan *plan)
{
    if (!plan->session) return;
    if (plan->overtaken) plan_unwatch(plan);
    session_unpin(plan->session, !plan->incremental && !plan->told);
    plan->session = NULL;
}
