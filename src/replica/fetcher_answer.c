/* fetcher_answer.c: what a leader's answer means for each partition: batches to append, a log to cut, an error.
 *
 * Batches are appended from the buffer that the answer was received in, in runs that fit into a segment.  An append is
 * mostly over when plog_append() returns; else another thread writes it, and a message says so.  What an append is
 * followed by (the high watermark, the next fetch) comes after it, and where a flush is due, after that.
 *
 * Who has much to catch up with would have the leader wait while it appends, and wait itself while the leader reads. So
 * the next fetch leaves before, when all that an answer brings ends below the leader's high watermark: then none of
 * these followers is in its in-sync set, into which they come at the high watermark at the earliest, and what the fetch
 * says to be here counts for nobody.  Should the append fail, the answer to that fetch is not taken. */
#include <inttypes.h>

#include "base/mem.h"
#include "replica/fetchers_internal.h"

#include "base/log.h"

#define LOG_FOLLOWED(level, event, fo, format, ...)                                                              \
    LOG_LIMITED(level, event, "topic=%s partition=%d leader=%d epoch=%d offset=%" PRId64 format, (fo)->p->topic, \
                (fo)->p->index, (fo)->fr->leader, (fo)->leader_epoch, (fo)->offset, __VA_ARGS__)

static void append_go_on(struct followed *fo);

/* ---- Ends of a partition's turn */

static void drop_frame(struct followed *fo)
{
    buf_unref(fo->frame);
    fo->frame = NULL;
    fo->data = NULL;
    fo->size = 0;
}

/* Its log is out of service: nothing to be done until the controller speaks. */
static void follow_stuck(struct followed *fo, const char *reason)
{
    LOG_FOLLOWED(LOG_LEVEL_WARN, "following_stopped", fo, " reason=%s", reason);
    followed_enter(fo, FOLLOWED_STUCK);
}

static void follow_failed(struct followed *fo, const char *reason)
{
    drop_frame(fo);
    if (!atomic_load(&fo->p->online)) {
        follow_stuck(fo, "offline");
        return;
    }
    LOG_FOLLOWED(LOG_LEVEL_WARN, "following_delayed", fo, " reason=%s", reason);
    followed_delay(fo, false);
}

/* The partition may have moved to another directory: there it goes on.  False: it has not. */
static bool follow_successor(struct followed *fo)
{
    struct partition *next = partition_successor(fo->p);
    if (!next) return false;
    partition_ref(next);
    partition_unref(fo->p);
    fo->p = next;
    return true;
}

/* ---- The leader's log start */

static void start_work(struct job *job)
{
    struct followed *fo = CONTAINER_OF(job, struct followed, start_job);
    fo->start_err = partition_raise_start(fo->start_p, fo->start_at);
}

static void start_done(struct job *job)
{
    struct followed *fo = CONTAINER_OF(job, struct followed, start_job);
    fo->start_out = false;
    partition_unref(fo->start_p);
    if (followed_check_gone(fo)) return;
    if (fo->start_err && fo->start_err != ERR_CLOSED)
        LOG_FOLLOWED(LOG_LEVEL_WARN, "start_not_raised", fo, " error=%s", err_name(fo->start_err));
    if (fo->state == FOLLOWED_READY) followed_ready(fo); /* the next fetch tells the leader */
}

static void follow_start(struct followed *fo)
{
    int64_t at = MIN(fo->leader_start, partition_high_watermark(fo->p));
    if (at <= plog_start(fo->p->pl) || fo->start_out) return;
    fo->start_out = true;
    fo->start_at = at;
    fo->start_p = partition_ref(fo->p); /* which an append may replace by its successor meanwhile */
    fo->start_job = (struct job){.loop = fo->fr->loop, .work = start_work, .done = start_done};
    workers_submit(fo->fr->f->opt.workers, &fo->start_job);
}

/* ---- After the appends */

static void publish(struct followed *fo)
{
    struct fetcher *fr = fo->fr;
    int64_t now_us = loop_now_us(fr->loop);
    partition_follow(fo->p, fo->leader_high_watermark);
    follow_start(fo);
    int64_t lag = MAX(fo->leader_high_watermark - fo->offset, 0);
    atomic_store_explicit(&fo->lag, lag, memory_order_relaxed);
    fo->failures = 0;
    /* As in Kafka one that is in sync is not held back: it would leave the in-sync set for it. */
    int64_t until_us = fo->throttle_counts && lag > 0 ? fetchers_over_rate_until(fr->f, now_us) : 0;
    if (until_us > 0)
        followed_throttle(fo, until_us);
    else
        followed_ready(fo);
}

static void on_flush_wake(struct partition_waiter *w)
{
    struct followed *fo = CONTAINER_OF(w, struct followed, flush_waiter);
    if (!atomic_exchange(&fo->flush_woken, true)) loop_post(fo->fr->loop, &fo->flush_msg);
}

static bool is_safe(const struct followed *fo)
{
    return plog_safe_end(fo->p->pl) >= fo->offset;
}

static void wait_for_disk(struct followed *fo);

static void on_flushed(struct loop_msg *msg)
{
    struct followed *fo = CONTAINER_OF(msg, struct followed, flush_msg);
    struct fetcher *fr = fo->fr;
    partition_unwait(fo->p, &fo->flush_waiter);
    fo->flush_out = false;
    fr->holding--;
    if (!followed_check_gone(fo)) {
        if (is_safe(fo))
            publish(fo);
        else if (!atomic_load(&fo->p->online) || atomic_load(&fo->p->flushes_failed) != fo->flushes_failed)
            follow_failed(fo, "flush_failed");
        else
            wait_for_disk(fo);
    }
    fetcher_go_on(fr);
}

static void wait_for_disk(struct followed *fo)
{
    followed_enter(fo, FOLLOWED_APPENDING);
    fo->fr->holding++;
    fo->flush_out = true;
    atomic_store(&fo->flush_woken, false);
    fo->flushes_failed = atomic_load(&fo->p->flushes_failed);
    fo->flush_msg.run = on_flushed;
    fo->flush_waiter = (struct partition_waiter){.until_durable = fo->offset, .wake = on_flush_wake};
    partition_wait(fo->p, &fo->flush_waiter);
    if (is_safe(fo) || !atomic_load(&fo->p->online)) on_flush_wake(&fo->flush_waiter);
}

void followed_stop_waiting(struct followed *fo)
{
    if (!fo->append_out) drop_frame(fo);
    if (!fo->flush_out) return;
    partition_unwait(fo->p, &fo->flush_waiter);
    if (atomic_load(&fo->flush_woken)) return; /* the message is on its way */
    fo->flush_out = false;
    fo->fr->holding--;
    fetcher_poke(fo->fr);
}

/* Everything of the answer is in the log. */
static void part_finish(struct followed *fo)
{
    drop_frame(fo);
    if (is_safe(fo))
        publish(fo);
    else
        wait_for_disk(fo); /* the log has asked for it (flush.messages, flush.mode) */
}

/* ---- Appending */

/* The batches that are appended next: as many whole ones as fit into a segment; 0: none is left.  CORRUPT_MESSAGE,
 * UNSUPPORTED_FOR_MESSAGE_FORMAT; UNKNOWN_LEADER_EPOCH: a batch is of a later leader than the one that is followed. */
static enum kerr next_run(struct followed *fo, size_t *run, struct batch_info *first)
{
    int64_t segment_bytes = plog_segment_bytes(fo->p->pl);
    *run = 0;
    while (fo->size - *run >= BATCH_HEADER_SIZE) {
        const uint8_t *at = fo->data + *run;
        struct batch_info b;
        enum err e = batch_parse_header(&b, at, INT32_MAX);
        if (e) return e == ERR_UNSUPPORTED ? KERR_UNSUPPORTED_FOR_MESSAGE_FORMAT : KERR_CORRUPT_MESSAGE;
        if ((size_t)b.size > fo->size - *run) break; /* cut by the leader's limit */
        if (*run > 0 && (int64_t)*run + b.size > segment_bytes) break;
        if (!batch_crc_ok(at, &b)) return KERR_CORRUPT_MESSAGE;
        if (b.leader_epoch > fo->leader_epoch) return KERR_UNKNOWN_LEADER_EPOCH;
        if (*run == 0) *first = b;
        fo->run_epoch = b.leader_epoch;
        *run += (size_t)b.size;
    }
    return KERR_NONE;
}

static void on_append_done(struct append *a)
{
    struct followed *fo = CONTAINER_OF(a, struct followed, append);
    if (atomic_exchange(&fo->append_at, APPEND_OVER) == APPEND_LEFT) loop_post(fo->fr->loop, &fo->appended_msg);
}

/* A batch that begins below the log's end: fine where the log is empty, and begins in its midst, since the leader's
 * log does (DeleteRecords does not care for batches).  The log begins anew where the batch does. */
static bool begins_within(const struct followed *fo)
{
    const struct plog *pl = fo->p->pl;
    struct batch_info b;
    enum err e = batch_parse_header(&b, fo->data, INT32_MAX);
    return !e && plog_start(pl) == plog_end(pl) && b.base_offset >= 0 && b.base_offset < plog_end(pl) &&
           batch_last_offset(&b) >= plog_end(pl);
}

/* An append is over.  False: so is the partition's turn. */
static bool append_took(struct followed *fo)
{
    const struct append *a = &fo->append;
    switch ((int)a->kerr) {
    case KERR_NONE:
        partition_wrote(fo->p, a->size);
        if (fo->throttle_counts) fetchers_charge(fo->fr->f, a->size, loop_now_us(fo->fr->loop));
        fo->offset = a->last_offset + 1;
        if (fo->run_epoch >= 0) fo->last_epoch = fo->run_epoch;
        fo->data += a->size;
        fo->size -= a->size;
        return true;
    case KERR_NOT_LEADER_OR_FOLLOWER: /* the log has moved, or is being deleted */
        if (follow_successor(fo)) return true;
        drop_frame(fo);
        follow_stuck(fo, "retired");
        return false;
    case KERR_OFFSET_OUT_OF_RANGE:
        if (begins_within(fo)) {
            followed_cut(fo, (int64_t)get_be64(fo->data + BATCH_AT_BASE_OFFSET), true);
            return false;
        }
        follow_failed(fo, "not_what_was_asked_for");
        return false;
    default: follow_failed(fo, kerr_name((int16_t)a->kerr)); return false;
    }
}

static void on_appended(struct loop_msg *msg)
{
    struct followed *fo = CONTAINER_OF(msg, struct followed, appended_msg);
    struct fetcher *fr = fo->fr;
    fo->append_out = false;
    fr->holding--;
    if (fo->leaving) drop_frame(fo);
    if (!followed_check_gone(fo) && !fo->leaving && append_took(fo)) append_go_on(fo);
    fetcher_go_on(fr);
}

/* True when it is over already. */
static bool append_run(struct followed *fo, size_t run, const struct batch_info *first)
{
    followed_enter(fo, FOLLOWED_APPENDING);
    fo->append = (struct append){
        .buf = fo->frame,
        .data = fo->data,
        .size = run,
        .info = *first,
        .origin = APPEND_REPLICA,
        .leader_epoch = fo->leader_epoch,
        .now_ms = clock_wall_ms(fo->fr->f->clock),
        .done = on_append_done,
    };
    fo->appended_msg.run = on_appended;
    atomic_store(&fo->append_at, APPEND_CALLED);
    plog_append(fo->p->pl, &fo->append);
    int called = APPEND_CALLED;
    if (!atomic_compare_exchange_strong(&fo->append_at, &called, APPEND_LEFT)) return true;
    fo->append_out = true;
    fo->fr->holding++;
    return false;
}

static void append_go_on(struct followed *fo)
{
    for (;;) {
        size_t run;
        struct batch_info first = {0};
        enum kerr kerr = next_run(fo, &run, &first);
        if (kerr) {
            follow_failed(fo, kerr_name((int16_t)kerr));
            return;
        }
        if (run == 0) break;
        if (partition_disk_is_full(fo->p)) { /* what is left of it is for making room */
            follow_failed(fo, "disk_full");
            return;
        }
        if (!append_run(fo, run, &first) || !append_took(fo)) return;
    }
    part_finish(fo);
}

/* ---- Cutting */

static void cut_work(struct job *job)
{
    struct followed *fo = CONTAINER_OF(job, struct followed, cut_job);
    int64_t below = partition_high_watermark(fo->p) - fo->cut_at;
    if (below > 0 && !fo->cut_anew) atomic_fetch_add(&fo->fr->f->cut_records, below);
    fo->cut_err = fo->cut_anew ? partition_start_at(fo->p, fo->cut_at) : partition_truncate(fo->p, fo->cut_at);
}

static void cut_done(struct job *job)
{
    struct followed *fo = CONTAINER_OF(job, struct followed, cut_job);
    struct fetcher *fr = fo->fr;
    fo->cut_out = false;
    if (followed_check_gone(fo)) return;
    follow_successor(fo);
    fo->offset = plog_end(fo->p->pl);
    fo->last_epoch = plog_last_epoch(fo->p->pl);
    bool changed = fo->offset != fo->cut_end || fo->last_epoch != fo->cut_epoch || fo->cut_unfiled;
    if (fo->cut_err)
        follow_failed(fo, err_name(fo->cut_err));
    else if (fo->frame)
        append_go_on(fo); /* the batch that began below the log's end */
    else if (changed)
        followed_begin(fo);
    else
        follow_failed(fo, "nothing_to_cut");
    fetcher_poke(fr);
}

void followed_cut(struct followed *fo, int64_t offset, bool anew)
{
    followed_enter(fo, FOLLOWED_CUTTING);
    fo->cut_out = true;
    fo->cut_at = offset;
    fo->cut_anew = anew;
    fo->cut_end = plog_end(fo->p->pl);
    fo->cut_epoch = plog_last_epoch(fo->p->pl);
    fo->cut_unfiled = atomic_load(&fo->p->cut_unfiled);
    LOG_INFO("following_cut", "topic=%s partition=%d leader=%d epoch=%d end=%" PRId64 " at=%" PRId64 " anew=%s",
             fo->p->topic, fo->p->index, fo->fr->leader, fo->leader_epoch, fo->cut_end, offset,
             anew ? "true" : "false");
    fo->cut_job = (struct job){.loop = fo->fr->loop, .work = cut_work, .done = cut_done};
    workers_submit(fo->fr->f->opt.workers, &fo->cut_job);
}

/* The leader knows nothing of what we have above the end of this epoch there.  Where we have that epoch, too, the logs
 * differ from the smaller of both ends on; where we do not, from the end of the latest before it at the latest: the
 * fetch after the cut tells more (KIP-101, KIP-279). */
static void diverge(struct followed *fo, const struct fetch_response_epoch_end_offset *leader)
{
    struct plog *pl = fo->p->pl;
    int32_t epoch;
    int64_t epoch_end, end = plog_end(pl), at;
    plog_epoch_end(pl, leader->epoch, &epoch, &epoch_end);
    if (leader->end_offset < 0)
        at = partition_high_watermark(fo->p);
    else if (epoch < 0) /* from before epochs were noted */
        at = leader->end_offset;
    else if (epoch != leader->epoch)
        at = epoch_end;
    else
        at = MIN(epoch_end, leader->end_offset);
    followed_cut(fo, MIN(at, end), false);
}

void followed_begin(struct followed *fo)
{
    while (follow_successor(fo)) {
    }
    if (!atomic_load(&fo->p->online)) {
        follow_stuck(fo, "offline");
        return;
    }
    fo->offset = plog_end(fo->p->pl);
    fo->last_epoch = plog_last_epoch(fo->p->pl);
    int64_t high_watermark = MAX(partition_high_watermark(fo->p), plog_start(fo->p->pl));
    if (atomic_load(&fo->p->cut_unfiled))
        followed_cut(fo, fo->offset, false); /* once more: its checkpoints could not be written */
    else if (fo->last_epoch < 0 && fo->offset > high_watermark) {
        followed_cut(fo, high_watermark, false); /* nobody can tell whether the leader has the rest */
    } else if (is_safe(fo)) {
        followed_ready(fo);
    } else {
        fo->leader_high_watermark = fo->leader_start = 0; /* not known yet */
        plog_request_flush(fo->p->pl);
        wait_for_disk(fo);
    }
}

/* ---- An answer */

/* It needs to be asked again, at another broker or later; the controller will say, and as a rule in a moment: we may
 * have been told before the leader was.  Kafka's followers wait for replica.fetch.backoff.ms here, and acks=all with
 * them. */
static const struct {
    enum kerr kerr;
    enum log_level level;
} waited_errors[] = {
    {KERR_UNKNOWN_LEADER_EPOCH, LOG_LEVEL_DEBUG}, /* the controller has not told the leader yet */
    {KERR_NOT_LEADER_OR_FOLLOWER, LOG_LEVEL_DEBUG},
    {KERR_UNKNOWN_TOPIC_OR_PARTITION, LOG_LEVEL_INFO}, /* when it is being made, or deleted */
    {KERR_UNKNOWN_TOPIC_ID, LOG_LEVEL_INFO},
    {KERR_INCONSISTENT_TOPIC_ID, LOG_LEVEL_INFO},
};

static void part_error(struct followed *fo, enum kerr kerr)
{
    if (kerr == KERR_FENCED_LEADER_EPOCH) {
        follow_stuck(fo, kerr_name((int16_t)kerr));
        return;
    }
    enum log_level level = LOG_LEVEL_WARN;
    bool waited = false;
    for (size_t i = 0; i < ARRAY_COUNT(waited_errors); i++) {
        if (waited_errors[i].kerr != kerr) continue;
        waited = true;
        level = waited_errors[i].level;
    }
    LOG_FOLLOWED(level, "leader_refused", fo, " error=%s", kerr_name((int16_t)kerr));
    followed_delay(fo, waited);
}

/* Invariant 3; and the controller may have spoken of a later epoch already, which the home loop will bring. */
static bool is_asked_for(const struct followed *fo, const struct fetch_out *out)
{
    return fo->state == FOLLOWED_READY && fo->in_session && fo->put_serial <= out->serial &&
           fo->session_offset == fo->offset && atomic_load(&fo->p->leader_epoch) <= fo->leader_epoch;
}

static void take_part(struct followed *fo, const struct fetch_response_partition_data *pd, struct buf *frame)
{
    if (pd->diverging_epoch.epoch >= 0) {
        diverge(fo, &pd->diverging_epoch);
        return;
    }
    fo->leader_high_watermark = MAX(pd->high_watermark, 0);
    /* No log starts above its high watermark; what is told otherwise deletes nothing here. */
    fo->leader_start = pd->log_start_offset <= fo->leader_high_watermark ? pd->log_start_offset : 0;
    if (pd->records.bytes.size > 0) {
        fo->frame = buf_ref(frame);
        fo->data = frame->data + (pd->records.bytes.data - frame->data);
        fo->size = pd->records.bytes.size;
    }
    append_go_on(fo);
}

/* Those that are out of the leader's range are looked up together. */
struct out_of_range {
    struct followed **list;
    size_t count, cap;
};

/* Where whole batches end; false: there are none, or they are not sound. */
static bool batches_end(const uint8_t *at, size_t left, int64_t *end, int32_t *epoch)
{
    struct batch_info b;
    bool any = false;
    for (; left >= BATCH_HEADER_SIZE; at += b.size, left -= (size_t)b.size) {
        if (batch_parse_header(&b, at, INT32_MAX)) return false;
        if ((size_t)b.size > left) break;
        *end = batch_last_offset(&b) + 1;
        *epoch = b.leader_epoch;
        any = true;
    }
    return any;
}

/* Where one partition will be after its part of the answer; false: the next fetch cannot leave before that. */
static bool look_ahead(const struct fetch_response_partition_data *pd, struct ahead *a)
{
    if (!batches_end(pd->records.bytes.data, pd->records.bytes.size, &a->offset, &a->epoch)) return false;
    return a->epoch >= 0 && a->epoch <= a->fo->leader_epoch && a->offset > a->fo->offset &&
           a->offset < pd->high_watermark && !a->fo->throttle_counts;
}

/* Has the next fetch leave if everybody who has got records is far behind. */
static void read_ahead(struct fetcher *fr, const struct fetch_out *out, const struct fetch_response *resp)
{
    struct ahead *list = NULL;
    size_t count = 0, cap = 0;
    bool all = fetcher_may_read_ahead(fr);
    for (int32_t t = 0; t < resp->responses_count && all; t++) {
        const struct fetch_response_fetchable_topic_response *ft = &resp->responses[t];
        for (int32_t i = 0; i < ft->partitions_count && all; i++) {
            const struct fetch_response_partition_data *pd = &ft->partitions[i];
            struct ahead a = {.fo = fetcher_find(fr, ft->topic, ft->topic_id, pd->partition_index)};
            all = pd->error_code == KERR_NONE && pd->diverging_epoch.epoch < 0;
            if (!all || pd->records.bytes.size == 0 || !a.fo) continue;
            all = is_asked_for(a.fo, out) && look_ahead(pd, &a);
            list = mem_grow(list, &cap, count + 1, sizeof *list);
            list[count++] = a;
        }
    }
    if (all && count > 0) fetcher_read_ahead(fr, list, count);
    mem_free(list);
}

static size_t take_parts(struct fetcher *fr, struct fetch_out *out, const struct fetch_response *resp,
                         struct out_of_range *oor)
{
    size_t named = 0;
    for (int32_t t = 0; t < resp->responses_count; t++) {
        const struct fetch_response_fetchable_topic_response *ft = &resp->responses[t];
        for (int32_t i = 0; i < ft->partitions_count; i++) {
            const struct fetch_response_partition_data *pd = &ft->partitions[i];
            struct followed *fo = fetcher_find(fr, ft->topic, ft->topic_id, pd->partition_index);
            named++;
            if (!fo || (!fo->read_ahead && !is_asked_for(fo, out))) continue;
            fo->read_ahead = false;
            if (pd->error_code == KERR_NONE) {
                take_part(fo, pd, out->call.frame);
            } else if (pd->error_code == KERR_OFFSET_OUT_OF_RANGE) {
                oor->list = mem_grow(oor->list, &oor->cap, oor->count + 1, sizeof(struct followed *));
                oor->list[oor->count++] = fo;
                followed_enter(fo, FOLLOWED_LOOKING);
            } else {
                part_error(fo, (enum kerr)pd->error_code);
            }
        }
    }
    return named;
}

/* Errors that only mean that the session is to begin anew. */
static bool is_of_session(enum kerr kerr)
{
    return kerr == KERR_FETCH_SESSION_ID_NOT_FOUND || kerr == KERR_INVALID_FETCH_SESSION_EPOCH ||
           kerr == KERR_FETCH_SESSION_TOPIC_ID_ERROR || kerr == KERR_UNKNOWN_TOPIC_ID ||
           kerr == KERR_INCONSISTENT_TOPIC_ID;
}

static void answer_failed(struct fetcher *fr, enum kerr kerr)
{
    if (kerr == KERR_INVALID_FETCH_SESSION_EPOCH && fr->out_count > 0) return; /* the one behind it has overtaken it */
    LOG_LIMITED(LOG_LEVEL_INFO, "fetch_refused", "broker=%d session=%d error=%s", fr->leader, fr->session_id,
                kerr_name((int16_t)kerr));
    if (kerr == KERR_FETCH_SESSION_ID_NOT_FOUND) fr->session_id = 0;
    fr->full_next = true;
    if (!is_of_session(kerr) || fr->failed_before) fetcher_back_off(fr);
    fr->failed_before = true;
}

static void take_session(struct fetcher *fr, const struct fetch_out *out, int32_t session_id)
{
    if (!out->full && session_id == fr->session_id) return;
    fr->no_session = session_id == 0;
    fr->full_next = fr->no_session;
    fr->session_id = session_id;
    fr->session_epoch = 1;
}

void fetcher_take_answer(struct fetcher *fr, struct fetch_out *out)
{
    const struct fetch_response *resp = out->call.response;
    fr->version = out->call.version;
    if (resp->error_code != KERR_NONE) {
        answer_failed(fr, (enum kerr)resp->error_code);
        return;
    }
    take_session(fr, out, resp->session_id);
    read_ahead(fr, out, resp);
    struct out_of_range oor = {0};
    size_t named = take_parts(fr, out, resp, &oor);
    if (oor.count > 0) fetcher_look_up(fr, oor.list, oor.count);
    mem_free(oor.list);
    fr->failed_before = out->full && named < out->named;
    if (!fr->failed_before) return;
    LOG_LIMITED(LOG_LEVEL_INFO, "fetch_incomplete", "broker=%d asked=%zu answered=%zu throttle_ms=%d", fr->leader,
                out->named, named, resp->throttle_time_ms);
    fr->full_next = true;
    fetcher_back_off(fr);
}
