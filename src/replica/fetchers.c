/* fetchers.c: who follows whom: the home loop's side of the fetchers.
 *
 * For each partition there is one wish (leader, epoch) and at most one `struct followed` that a fetcher has.  When the
 * wish is another than what that was made for, it is called back; once it is here, with nothing out any more, those who
 * wait for that are told, and the wish, whatever it has become meanwhile, is sent out anew. */
#include "replica/fetchers.h"

#include <stdlib.h>

#include "base/mem.h"
#include "replica/fetchers_internal.h"

#include "base/log.h"

struct follow {
    UT_hash_handle hh;
    char *key; /* "topic-7" */
    struct fetchers *f;
    struct partition *p; /* the wish; NULL: to follow nobody.  A reference */
    int32_t leader, leader_epoch;
    struct followed *at; /* what a fetcher has */
    bool leaving;        /* that was called back */
    struct list leavers; /* wait for it */
    size_t telling;      /* are being told: nothing goes out before the last of them knows */
};

struct leaver {
    struct list_node node;
    struct loop_msg msg;
    struct follow *follow;
    struct partition *p; /* a reference */
    void (*left)(void *arg, struct partition *p);
    void *arg;
};

/* ---- Settings that all loops read */

struct fetchers_config fetchers_config(struct fetchers *f)
{
    pthread_mutex_lock(&f->lock);
    struct fetchers_config config = f->opt.config;
    pthread_mutex_unlock(&f->lock);
    return config;
}

void fetchers_charge(struct fetchers *f, size_t bytes, int64_t now_us)
{
    struct throttle *t = &f->throttle;
    pthread_mutex_lock(&t->lock);
    if (t->bytes_per_second > 0) {
        int64_t from = MAX(t->paid_us, now_us);
        int64_t takes_us;
        if (__builtin_mul_overflow((int64_t)bytes, INT64_C(1000000), &takes_us)) takes_us = INT64_MAX;
        takes_us /= t->bytes_per_second;
        if (__builtin_add_overflow(from, takes_us, &t->paid_us)) t->paid_us = INT64_MAX;
    }
    pthread_mutex_unlock(&t->lock);
}

int64_t fetchers_over_rate_until(struct fetchers *f, int64_t now_us)
{
    struct throttle *t = &f->throttle;
    pthread_mutex_lock(&t->lock);
    int64_t until = t->bytes_per_second < 0 ? 0 : t->bytes_per_second == 0 ? INT64_MAX : t->paid_us;
    pthread_mutex_unlock(&t->lock);
    return until > now_us ? until : 0;
}

bool fetchers_counts(struct fetchers *f, const struct partition *p)
{
    struct throttle *t = &f->throttle;
    pthread_mutex_lock(&t->lock);
    bool (*counts)(void *, const struct partition *) = t->bytes_per_second < 0 ? NULL : t->counts;
    void *arg = t->arg;
    pthread_mutex_unlock(&t->lock);
    return counts && counts(arg, p);
}

void fetchers_throttle(struct fetchers *f, int64_t bytes_per_second,
                       bool (*counts)(void *arg, const struct partition *p), void *arg)
{
    ASSERT_OWNER(f->opt.home);
    struct throttle *t = &f->throttle;
    pthread_mutex_lock(&t->lock);
    if (t->bytes_per_second != bytes_per_second) t->paid_us = 0;
    t->bytes_per_second = bytes_per_second;
    t->counts = counts;
    t->arg = arg;
    pthread_mutex_unlock(&t->lock);
    LIST_EACH (&f->fetchers, n) {
        struct fetcher *fr = CONTAINER_OF(n, struct fetcher, node);
        if (!fr->retiring && !atomic_exchange(&fr->throttle_posted, true)) loop_post(fr->loop, &fr->throttle_msg);
    }
}

/* ---- Fetchers come and go */

static struct fetcher *find_fetcher(struct fetchers *f, int32_t leader, int32_t number)
{
    LIST_EACH (&f->fetchers, n) { /* as many as there are brokers */
        struct fetcher *fr = CONTAINER_OF(n, struct fetcher, node);
        if (fr->leader == leader && fr->number == number && !fr->retiring) return fr;
    }
    struct fetcher *fr = fetcher_new(f, leader, number);
    list_push_back(&f->fetchers, &fr->node);
    f->fetcher_count++;
    return fr;
}

static void run_stopped(struct loop_msg *msg)
{
    struct fetchers *f = CONTAINER_OF(msg, struct fetchers, stopped_msg);
    f->stopped(f->stopped_arg);
}

static void check_stopped(struct fetchers *f)
{
    if (f->stopping && !f->stop_told && f->stopped && !f->follows && f->fetcher_count == 0) {
        f->stop_told = true;
        f->stopped_msg.run = run_stopped;
        loop_post(f->opt.home, &f->stopped_msg);
    }
}

static void on_retired(struct loop_msg *msg)
{
    struct fetcher *fr = CONTAINER_OF(msg, struct fetcher, retired_msg);
    struct fetchers *f = fr->f;
    list_remove(&fr->node);
    f->fetcher_count--;
    fetcher_free(fr);
    check_stopped(f);
}

static void retire_if_idle(struct fetcher *fr)
{
    if (fr->partitions > 0 || fr->retiring) return;
    fr->retiring = true;
    fr->retired_msg.run = on_retired;
    loop_post(fr->loop, &fr->retire_msg);
}

/* Of the fetchers of one leader; as Kafka spreads them, so that neighbours of a topic go to different ones. */
static int32_t number_of(const struct fetchers *f, const struct partition *p)
{
    uint32_t h = 0;
    for (const char *c = p->topic; *c; c++) h = 31 * h + (uint8_t)*c;
    return (int32_t)((31 * h + (uint32_t)p->index) % (uint32_t)MAX(f->opt.config.per_leader, 1));
}

/* ---- One partition's wish */

static struct follow *find_follow(const struct fetchers *f, const char *key)
{
    struct follow *fw;
    HASH_FIND_STR(f->follows, key, fw);
    return fw;
}

/* The wish for this partition, which is to follow nobody where there was none. */
static struct follow *follow_of(struct fetchers *f, const struct partition *p)
{
    char *key = mem_printf("%s-%d", p->topic, p->index);
    struct follow *fw = find_follow(f, key);
    if (fw) {
        mem_free(key);
        return fw;
    }
    fw = mem_zalloc(1, sizeof *fw);
    fw->f = f;
    fw->key = key;
    list_init(&fw->leavers);
    HASH_ADD_KEYPTR(hh, f->follows, fw->key, strlen(fw->key), fw);
    return fw;
}

static void settle(struct follow *fw);

static void run_leaver(struct loop_msg *msg)
{
    struct leaver *lv = CONTAINER_OF(msg, struct leaver, msg);
    struct follow *fw = lv->follow;
    struct fetchers *f = fw->f;
    if (lv->left) lv->left(lv->arg, lv->p);
    partition_unref(lv->p);
    mem_free(lv);
    if (--fw->telling == 0) settle(fw);
    check_stopped(f);
}

/* In turns of their own: they may follow, or leave, anew. */
static void run_leavers(struct follow *fw)
{
    for (struct list_node *n; (n = list_pop_front(&fw->leavers)); fw->telling++)
        loop_post(fw->f->opt.home, &CONTAINER_OF(n, struct leaver, node)->msg);
}

static void free_follow(struct follow *fw)
{
    HASH_DEL(fw->f->follows, fw);
    partition_unref(fw->p);
    mem_free(fw->key);
    mem_free(fw);
}

static void on_arrived(struct loop_msg *msg)
{
    struct followed *fo = CONTAINER_OF(msg, struct followed, msg);
    fetcher_take(fo->fr, fo);
}

static void send_out(struct follow *fw)
{
    struct fetchers *f = fw->f;
    struct followed *fo = mem_zalloc(1, sizeof *fo);
    fo->follow = fw;
    fo->fr = find_fetcher(f, fw->leader, number_of(f, fw->p));
    fo->given = partition_ref(fw->p);
    fo->p = partition_ref(fw->p);
    fo->leader_epoch = fw->leader_epoch;
    fo->key = mem_strdup(fw->key);
    fo->key_size = strlen(fo->key);
    fo->id.topic_id = fw->p->topic_id;
    fo->id.index = fw->p->index;
    fo->fr->partitions++;
    fw->at = fo;
    fo->leave_msg.run = followed_leave;
    fo->msg.run = on_arrived;
    loop_post(fo->fr->loop, &fo->msg);
}

static bool is_as_wished(const struct follow *fw)
{
    const struct followed *fo = fw->at;
    return fw->p == fo->given && fw->leader == fo->fr->leader && fw->leader_epoch == fo->leader_epoch &&
           number_of(fw->f, fw->p) == fo->fr->number;
}

static void settle(struct follow *fw)
{
    struct fetchers *f = fw->f;
    bool wants = fw->p && fw->leader >= 0 && !f->stopping;
    if (fw->at) {
        if (fw->leaving || (wants && list_is_empty(&fw->leavers) && is_as_wished(fw))) return;
        fw->leaving = true;
        loop_post(fw->at->fr->loop, &fw->at->leave_msg);
        return;
    }
    run_leavers(fw);
    if (fw->telling > 0) return;
    if (wants)
        send_out(fw);
    else
        free_follow(fw);
}

/* The partition is back, and nothing of it is out. */
static void on_returned(struct loop_msg *msg)
{
    struct followed *fo = CONTAINER_OF(msg, struct followed, msg);
    struct follow *fw = fo->follow;
    struct fetcher *fr = fo->fr;
    struct fetchers *f = fr->f;
    fr->partitions--;
    fw->at = NULL;
    fw->leaving = false;
    followed_free(fo);
    settle(fw); /* may need the same fetcher again */
    retire_if_idle(fr);
    check_stopped(f);
}

void fetchers_follow(struct fetchers *f, struct partition *p, int32_t leader, int32_t leader_epoch)
{
    ASSERT_OWNER(f->opt.home);
    struct follow *fw = follow_of(f, p);
    struct partition *before = fw->p;
    fw->p = partition_ref(p);
    partition_unref(before);
    fw->leader = leader;
    fw->leader_epoch = leader_epoch;
    settle(fw);
}

static const struct partition *newest(const struct partition *p)
{
    for (const struct partition *next; (next = partition_successor(p));) p = next;
    return p;
}

void fetchers_leave(struct fetchers *f, struct partition *p, void (*left)(void *arg, struct partition *p), void *arg)
{
    ASSERT_OWNER(f->opt.home);
    struct leaver *lv = mem_zalloc(1, sizeof *lv);
    struct follow *fw = follow_of(f, p);
    *lv = (struct leaver){.msg.run = run_leaver, .follow = fw, .p = partition_ref(p), .left = left, .arg = arg};
    if (fw->p && newest(fw->p) == newest(p)) { /* else another topic of that name is followed by now */
        partition_unref(fw->p);
        fw->p = NULL;
    }
    list_push_back(&fw->leavers, &lv->node);
    settle(fw);
}

void fetchers_broker_changed(struct fetchers *f, int32_t broker_id)
{
    ASSERT_OWNER(f->opt.home);
    LIST_EACH (&f->fetchers, n) {
        struct fetcher *fr = CONTAINER_OF(n, struct fetcher, node);
        if (fr->leader != broker_id || fr->retiring) continue;
        if (!atomic_exchange(&fr->changed_posted, true)) loop_post(fr->loop, &fr->changed_msg);
    }
}

void fetchers_configure(struct fetchers *f, const struct fetchers_config *config)
{
    ASSERT_OWNER(f->opt.home);
    pthread_mutex_lock(&f->lock);
    bool spread = f->opt.config.per_leader != config->per_leader;
    f->opt.config = *config;
    pthread_mutex_unlock(&f->lock);
    if (!spread) return;
    struct follow *fw, *next;
    HASH_ITER(hh, f->follows, fw, next)
    settle(fw);
}

/* ---- Life */

struct fetchers *fetchers_new(const struct fetchers_options *opt)
{
    struct fetchers *f = mem_zalloc(1, sizeof *f);
    f->opt = *opt;
    f->clock = loop_clock(opt->home);
    f->throttle.bytes_per_second = -1;
    ASSERT(pthread_mutex_init(&f->lock, NULL) == 0 && pthread_mutex_init(&f->throttle.lock, NULL) == 0);
    list_init(&f->fetchers);
    return f;
}

void fetchers_stop(struct fetchers *f, void (*stopped)(void *arg), void *arg)
{
    ASSERT_OWNER(f->opt.home);
    f->stopping = true;
    f->stopped = stopped;
    f->stopped_arg = arg;
    struct follow *fw, *next;
    HASH_ITER(hh, f->follows, fw, next)
    settle(fw);
    check_stopped(f);
}

void fetchers_free(struct fetchers *f)
{
    if (!f) return;
    struct follow *fw, *next;
    HASH_ITER(hh, f->follows, fw, next)
    {
        for (struct list_node *n; (n = list_pop_front(&fw->leavers));) {
            struct leaver *lv = CONTAINER_OF(n, struct leaver, node);
            partition_unref(lv->p);
            mem_free(lv);
        }
        if (fw->at) followed_free(fw->at);
        free_follow(fw);
    }
    for (struct list_node *n; (n = list_pop_front(&f->fetchers));) fetcher_free(CONTAINER_OF(n, struct fetcher, node));
    pthread_mutex_destroy(&f->throttle.lock);
    pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

struct fetchers_view fetchers_look(const struct fetchers *f)
{
    ASSERT_OWNER(f->opt.home);
    struct fetchers_view v = {
        .fetchers = f->fetcher_count, .partitions = HASH_COUNT(f->follows), .failed = atomic_load(&f->failed)};
    for (const struct follow *fw = f->follows; fw; fw = fw->hh.next)
        if (fw->at) v.max_lag = MAX(v.max_lag, atomic_load(&fw->at->lag));
    v.cut_records = atomic_load(&f->cut_records);
    return v;
}

void fetchers_returned(struct followed *fo)
{
    fo->msg.run = on_returned;
    loop_post(fo->fr->f->opt.home, &fo->msg);
}
