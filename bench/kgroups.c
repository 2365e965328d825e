/* kgroups.c: thousands of members of consumer groups, for comparing group coordinators over loopback.
 *
 * Members behave as consumers do: an id first, then JoinGroup and SyncGroup; once they are assigned something a
 * heartbeat and a commit every --interval ms, spread evenly over it; told to, they join again.  A group has settled
 * when all its members have been assigned their parts in one generation.  Prints one JSON object: how long that took
 * from the first JoinGroup on, and what it and a window after it cost the processes in --pid; times are in the unit
 * that the key ends with.
 *
 * One thread, one epoll, a connection a member, at most one request in flight on each.  It speaks through the project's
 * own codec (src/wire); beside that it is a tool of the benchmarks and no part of the product, and ends at the first
 * thing that it does not understand. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/apis.h"
#include "wire/gen/consumer_protocol_assignment.h"
#include "wire/gen/consumer_protocol_subscription.h"
#include "wire/gen/find_coordinator.h"
#include "wire/gen/heartbeat.h"
#include "wire/gen/join_group.h"
#include "wire/gen/offset_commit.h"
#include "wire/gen/request_header.h"
#include "wire/gen/response_header.h"
#include "wire/gen/sync_group.h"
#include "wire/kerr.h"

/* The newest versions that Kafka 3.9 and 4.3 share without topic ids. */
enum { FIND_VERSION = 4, JOIN_VERSION = 9, SYNC_VERSION = 5, HEARTBEAT_VERSION = 4, COMMIT_VERSION = 9 };
enum { PIDS_MAX = 16, FRAME_MAX = 64 << 20, EVENTS_MAX = 256, SETTLE_S_MAX = 300 };

enum phase { JOINING, SYNCING, STABLE };
enum asked { NOTHING, JOIN, SYNC, HEARTBEAT, COMMIT };

struct group;

struct member {
    struct group *group;
    int fd;
    enum phase phase;
    enum asked asked;
    int64_t asked_ns;
    bool commit_next; /* of heartbeat and commit, which comes next */
    int32_t generation, partition;
    int64_t offset;
    char *id;
    uint8_t *in;
    size_t in_size, in_cap;
};

struct group {
    char name[32];
    int32_t generation; /* the newest that a member was told of */
    int stable;         /* members that are assigned their part in it */
    int expected;       /* members that its leader was told of */
    bool settled;
};

static struct {
    const char *topic;
    int groups, members, partitions, interval_ms, session_ms, pids[PIDS_MAX], pid_count;
    double seconds, warmup;
} O = {.topic = "bench", .groups = 1, .members = 3, .partitions = 3, .interval_ms = 1000, .session_ms = 45000};

static struct {
    struct sockaddr_storage addr;
    socklen_t addr_size;
    int epoll;
    struct member *members;
    struct group *groups;
    int member_count, settled;
    struct buf_pool *bufs;
    struct arena arena;
    struct bytes subscription;
    int64_t last_settled_ns;
    uint64_t joins, syncs, heartbeats, commits, rebalances, skipped;
    int32_t generation_max;
    uint64_t *latencies_us; /* of heartbeats and commits in the window */
    size_t latency_count, latency_cap;
} G;

/* ---- small things */

static _Noreturn void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "kgroups: ");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

static void check(enum err e, const char *what)
{
    if (e) die("%s: %s", what, err_name(e));
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Of whole processes, with the threads that have ended, finer than the ticks of /proc. */
static double cpu_s(void)
{
    double sum = 0;
    for (int i = 0; i < O.pid_count; i++) {
        clockid_t clock;
        struct timespec t;
        if (clock_getcpuclockid(O.pids[i], &clock) || clock_gettime(clock, &t))
            die("process %d is not there", O.pids[i]);
        sum += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    return sum;
}

static double own_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long rss_kb(void)
{
    long sum = 0;
    for (int i = 0; i < O.pid_count; i++) {
        char path[64], line[256];
        snprintf(path, sizeof path, "/proc/%d/status", O.pids[i]);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (!strncmp(line, "VmRSS:", 6)) sum += atol(line + 6);
        if (f) fclose(f);
    }
    return sum;
}

static struct bytes kept(const struct writer *w)
{
    uint8_t *copy = mem_alloc(w->size + 1);
    memcpy(copy, w->buf->data, w->size);
    return (struct bytes){copy, w->size};
}

/* ---- requests */

static void send_all(int fd, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            die("send: %s", strerror(errno));
        }
    }
}

static void request_begin(struct writer *w, int16_t key, int16_t version)
{
    writer_init(w, G.bufs);
    writer_i32(w, 0);
    struct request_header h = request_header_default;
    h.request_api_key = key;
    h.request_api_version = version;
    h.correlation_id = key;
    h.client_id = STR("kgroups");
    check(request_header_encode(&h, wire_request_header_version(wire_api_find(key), version), w), "header");
}

static void request_send(struct writer *w, int fd)
{
    put_be32(w->buf->data, (uint32_t)(w->size - 4));
    send_all(fd, w->buf->data, w->size);
    writer_fini(w);
}

static struct reader response_begin(const struct member *m, size_t size, int16_t key, int16_t version)
{
    struct reader r = reader_of(m->in + 4, size);
    struct response_header h;
    check(response_header_decode(&h, wire_response_header_version(wire_api_find(key), version), &r, &G.arena),
          "header");
    if (h.correlation_id != key) die("an answer to another request");
    return r;
}

static void ask(struct member *m, enum asked what, struct writer *w)
{
    m->asked = what;
    m->asked_ns = now_ns();
    request_send(w, m->fd);
}

static void send_join(struct member *m)
{
    struct join_group_request_join_group_request_protocol range = {.name = STR("range"), .metadata = G.subscription};
    struct join_group_request rq = join_group_request_default;
    rq.group_id = str_of(m->group->name);
    rq.session_timeout_ms = O.session_ms;
    rq.rebalance_timeout_ms = 300000;
    rq.member_id = m->id ? str_of(m->id) : STR_EMPTY;
    rq.protocol_type = STR("consumer");
    rq.protocols = &range;
    rq.protocols_count = 1;
    struct writer w;
    request_begin(&w, API_JOIN_GROUP, JOIN_VERSION);
    check(join_group_request_encode(&rq, JOIN_VERSION, &w), "JoinGroup");
    m->phase = JOINING;
    G.joins++;
    ask(m, JOIN, &w);
}

static int by_id(const void *a, const void *b)
{
    const struct sync_group_request_sync_group_request_assignment *x = a, *y = b;
    return str_compare(x->member_id, y->member_id);
}

/* What the range assignor does with one topic. */
static void assign(struct sync_group_request *rq, const struct join_group_response *rs)
{
    size_t n = (size_t)rs->members_count;
    rq->assignments = arena_array(&G.arena, struct sync_group_request_sync_group_request_assignment, n);
    rq->assignments_count = rs->members_count;
    for (size_t i = 0; i < n; i++) rq->assignments[i].member_id = rs->members[i].member_id;
    qsort(rq->assignments, n, sizeof *rq->assignments, by_id);
    int32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = (size_t)O.partitions / n + (i < (size_t)O.partitions % n);
        struct consumer_protocol_assignment_topic_partition topic = {.topic = str_of(O.topic)};
        topic.partitions = arena_array(&G.arena, int32_t, count);
        topic.partitions_count = (int32_t)count;
        for (size_t k = 0; k < count; k++) topic.partitions[k] = next++;
        struct consumer_protocol_assignment a = consumer_protocol_assignment_default;
        a.assigned_partitions = &topic;
        a.assigned_partitions_count = 1;
        struct writer w;
        writer_init(&w, G.bufs);
        check(consumer_protocol_assignment_encode_prefixed(&a, 1, &w), "an assignment");
        struct str copy = arena_str(&G.arena, (struct str){(const char *)w.buf->data, w.size});
        rq->assignments[i].assignment = (struct bytes){(const uint8_t *)copy.data, copy.size};
        writer_fini(&w);
    }
}

static void send_sync(struct member *m, const struct join_group_response *rs)
{
    struct sync_group_request rq = sync_group_request_default;
    rq.group_id = str_of(m->group->name);
    rq.generation_id = m->generation;
    rq.member_id = str_of(m->id);
    rq.protocol_type = STR("consumer");
    rq.protocol_name = STR("range");
    if (str_equal(rs->leader, rs->member_id)) assign(&rq, rs);
    struct writer w;
    request_begin(&w, API_SYNC_GROUP, SYNC_VERSION);
    check(sync_group_request_encode(&rq, SYNC_VERSION, &w), "SyncGroup");
    m->phase = SYNCING;
    G.syncs++;
    ask(m, SYNC, &w);
}

static void send_heartbeat(struct member *m)
{
    struct heartbeat_request rq = heartbeat_request_default;
    rq.group_id = str_of(m->group->name);
    rq.generation_id = m->generation;
    rq.member_id = str_of(m->id);
    struct writer w;
    request_begin(&w, API_HEARTBEAT, HEARTBEAT_VERSION);
    check(heartbeat_request_encode(&rq, HEARTBEAT_VERSION, &w), "Heartbeat");
    ask(m, HEARTBEAT, &w);
}

static void send_commit(struct member *m)
{
    struct offset_commit_request_offset_commit_request_partition part =
        offset_commit_request_offset_commit_request_partition_default;
    part.partition_index = m->partition;
    part.committed_offset = ++m->offset;
    part.committed_metadata = STR_EMPTY;
    struct offset_commit_request_offset_commit_request_topic topic = {.name = str_of(O.topic)};
    topic.partitions = &part;
    topic.partitions_count = 1;
    struct offset_commit_request rq = offset_commit_request_default;
    rq.group_id = str_of(m->group->name);
    rq.generation_id_or_member_epoch = m->generation;
    rq.member_id = str_of(m->id);
    rq.topics = &topic;
    rq.topics_count = 1;
    struct writer w;
    request_begin(&w, API_OFFSET_COMMIT, COMMIT_VERSION);
    check(offset_commit_request_encode(&rq, COMMIT_VERSION, &w), "OffsetCommit");
    ask(m, COMMIT, &w);
}

/* ---- answers */

static void unsettle(struct member *m)
{
    struct group *grp = m->group;
    if (grp->settled) {
        grp->settled = false;
        G.settled--;
        G.rebalances++;
    }
    if (m->phase == STABLE && m->generation == grp->generation) grp->stable--;
}

static void join_again(struct member *m)
{
    unsettle(m);
    send_join(m);
}

static void on_join(struct member *m, struct reader *r)
{
    struct join_group_response rs;
    check(join_group_response_decode(&rs, JOIN_VERSION, r, &G.arena), "JoinGroup's answer");
    if (rs.error_code == KERR_MEMBER_ID_REQUIRED || rs.error_code == KERR_NONE) {
        mem_free(m->id);
        m->id = mem_alloc(rs.member_id.size + 1);
        memcpy(m->id, rs.member_id.data, rs.member_id.size);
        m->id[rs.member_id.size] = 0;
    } else if (rs.error_code == KERR_UNKNOWN_MEMBER_ID) {
        mem_free(m->id);
        m->id = NULL;
    }
    if (rs.error_code == KERR_MEMBER_ID_REQUIRED || rs.error_code == KERR_UNKNOWN_MEMBER_ID ||
        rs.error_code == KERR_COORDINATOR_LOAD_IN_PROGRESS) {
        send_join(m);
        return;
    }
    if (rs.error_code) die("JoinGroup: error %d", rs.error_code);
    struct group *grp = m->group;
    m->generation = rs.generation_id;
    if (rs.generation_id > grp->generation) {
        grp->generation = rs.generation_id;
        grp->stable = 0;
        grp->expected = 0;
    }
    if (rs.generation_id > G.generation_max) G.generation_max = rs.generation_id;
    if (str_equal(rs.leader, rs.member_id)) grp->expected = rs.members_count;
    send_sync(m, &rs);
}

static void on_sync(struct member *m, struct reader *r)
{
    struct sync_group_response rs;
    check(sync_group_response_decode(&rs, SYNC_VERSION, r, &G.arena), "SyncGroup's answer");
    if (rs.error_code == KERR_REBALANCE_IN_PROGRESS || rs.error_code == KERR_ILLEGAL_GENERATION) {
        join_again(m);
        return;
    }
    if (rs.error_code) die("SyncGroup: error %d", rs.error_code);
    struct consumer_protocol_assignment a;
    struct reader ar = reader_of(rs.assignment.data, rs.assignment.size);
    check(consumer_protocol_assignment_decode_prefixed(&a, NULL, &ar, &G.arena), "an assignment");
    m->partition = a.assigned_partitions_count && a.assigned_partitions[0].partitions_count
                       ? a.assigned_partitions[0].partitions[0]
                       : 0;
    m->phase = STABLE;
    struct group *grp = m->group;
    if (m->generation != grp->generation) return;
    if (++grp->stable == O.members && grp->expected == O.members) {
        grp->settled = true;
        G.settled++;
        G.last_settled_ns = now_ns();
    }
}

static void note_latency(const struct member *m)
{
    if (G.latency_count < G.latency_cap) G.latencies_us[G.latency_count++] = (uint64_t)(now_ns() - m->asked_ns) / 1000;
}

static void on_heartbeat(struct member *m, struct reader *r)
{
    struct heartbeat_response rs;
    check(heartbeat_response_decode(&rs, HEARTBEAT_VERSION, r, &G.arena), "Heartbeat's answer");
    note_latency(m);
    G.heartbeats++;
    if (rs.error_code == KERR_REBALANCE_IN_PROGRESS || rs.error_code == KERR_ILLEGAL_GENERATION) {
        join_again(m);
    } else if (rs.error_code) {
        die("Heartbeat: error %d", rs.error_code);
    }
}

static void on_commit(struct member *m, struct reader *r)
{
    struct offset_commit_response rs;
    check(offset_commit_response_decode(&rs, COMMIT_VERSION, r, &G.arena), "OffsetCommit's answer");
    note_latency(m);
    G.commits++;
    if (rs.topics_count != 1 || rs.topics[0].partitions_count != 1) die("OffsetCommit: not one partition");
    int16_t error = rs.topics[0].partitions[0].error_code;
    if (error == KERR_REBALANCE_IN_PROGRESS || error == KERR_ILLEGAL_GENERATION) {
        join_again(m);
    } else if (error) {
        die("OffsetCommit: error %d", error);
    }
}

static void on_answer(struct member *m, size_t size)
{
    static const struct {
        int16_t key, version;
        void (*run)(struct member *m, struct reader *r);
    } on[] = {
        [JOIN] = {API_JOIN_GROUP, JOIN_VERSION, on_join},
        [SYNC] = {API_SYNC_GROUP, SYNC_VERSION, on_sync},
        [HEARTBEAT] = {API_HEARTBEAT, HEARTBEAT_VERSION, on_heartbeat},
        [COMMIT] = {API_OFFSET_COMMIT, COMMIT_VERSION, on_commit},
    };
    enum asked what = m->asked;
    if (what == NOTHING) die("an answer to nothing");
    struct reader r = response_begin(m, size, on[what].key, on[what].version);
    m->asked = NOTHING;
    on[what].run(m, &r);
    arena_reset(&G.arena);
}

static void on_readable(struct member *m)
{
    for (;;) {
        size_t want = 4;
        if (m->in_size >= 4) {
            want = 4 + (size_t)get_be32(m->in);
            if (want > FRAME_MAX) die("an answer of %zu bytes", want);
        }
        if (want > m->in_cap) {
            m->in_cap = want < 128 ? 128 : want;
            m->in = mem_realloc(m->in, m->in_cap);
        }
        /* One request is in flight: nothing comes behind its answer, and all that is there can be taken. */
        ssize_t k = recv(m->fd, m->in + m->in_size, m->in_cap - m->in_size, 0);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (k <= 0) die("the broker closed a connection");
        m->in_size += (size_t)k;
        if (m->in_size < 4 || m->in_size < 4 + (size_t)get_be32(m->in)) continue;
        size_t size = get_be32(m->in);
        if (m->in_size != 4 + size) die("more than one answer");
        m->in_size = 0;
        on_answer(m, size);
        return;
    }
}

/* ---- the run */

static void resolve(const char *text)
{
    const char *colon = strrchr(text, ':');
    char host[256];
    if (!colon || (size_t)(colon - text) >= sizeof host) die("--broker wants HOST:PORT");
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(host, colon + 1, &hints, &found) || !found) die("cannot resolve %s", text);
    memcpy(&G.addr, found->ai_addr, found->ai_addrlen);
    G.addr_size = found->ai_addrlen;
    freeaddrinfo(found);
}

static int dial(void)
{
    int fd = socket(G.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&G.addr, G.addr_size)) die("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void recv_all(int fd, uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = recv(fd, p, n, MSG_WAITALL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) die("the broker closed a connection");
        p += k;
        n -= (size_t)k;
    }
}

/* Has the coordinator's topic made, and waits for it. */
static void find_coordinator(void)
{
    int64_t end = now_ns() + (int64_t)60 * 1000000000;
    int fd = dial();
    for (;;) {
        struct str key = str_of(G.groups[0].name);
        struct find_coordinator_request rq = find_coordinator_request_default;
        rq.coordinator_keys = &key;
        rq.coordinator_keys_count = 1;
        struct writer w;
        request_begin(&w, API_FIND_COORDINATOR, FIND_VERSION);
        check(find_coordinator_request_encode(&rq, FIND_VERSION, &w), "FindCoordinator");
        request_send(&w, fd);
        struct member m = {.in = mem_alloc(4)};
        recv_all(fd, m.in, 4);
        size_t size = get_be32(m.in);
        m.in = mem_realloc(m.in, 4 + size);
        recv_all(fd, m.in + 4, size);
        struct reader r = response_begin(&m, size, API_FIND_COORDINATOR, FIND_VERSION);
        struct find_coordinator_response rs;
        check(find_coordinator_response_decode(&rs, FIND_VERSION, &r, &G.arena), "FindCoordinator's answer");
        int16_t error = rs.coordinators_count == 1 ? rs.coordinators[0].error_code : -1;
        mem_free(m.in);
        arena_reset(&G.arena);
        if (!error) break;
        if (error != KERR_COORDINATOR_NOT_AVAILABLE || now_ns() > end) die("FindCoordinator: error %d", error);
        usleep(10000);
    }
    close(fd);
}

static void make_members(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    struct str topic = str_of(O.topic);
    struct consumer_protocol_subscription s = consumer_protocol_subscription_default;
    s.topics = &topic;
    s.topics_count = 1;
    struct writer w;
    writer_init(&w, G.bufs);
    check(consumer_protocol_subscription_encode_prefixed(&s, 3, &w), "a subscription");
    G.subscription = kept(&w);
    writer_fini(&w);

    G.groups = mem_zalloc((size_t)O.groups, sizeof *G.groups);
    for (int i = 0; i < O.groups; i++)
        snprintf(G.groups[i].name, sizeof G.groups[i].name, "kgroups-%d-%d", getpid(), i);
    find_coordinator();

    G.member_count = O.groups * O.members;
    G.members = mem_zalloc((size_t)G.member_count, sizeof *G.members);
    G.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < G.member_count; i++) {
        struct member *m = &G.members[i];
        m->group = &G.groups[i % O.groups];
        m->fd = dial();
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = m};
        if (epoll_ctl(G.epoll, EPOLL_CTL_ADD, m->fd, &ev)) die("epoll: %s", strerror(errno));
    }
}

/* Each member has two turns an interval, one for a heartbeat and one for a commit.  Whoever is not stable, or still
 * waits for its last answer, misses the turn. */
static void take_turns(int64_t start_ns, uint64_t *turns)
{
    double per_ns = 2.0 * G.member_count / (O.interval_ms * 1e6);
    uint64_t due = (uint64_t)((double)(now_ns() - start_ns) * per_ns);
    for (; *turns < due; ++*turns) {
        struct member *m = &G.members[*turns % (uint64_t)G.member_count];
        if (m->phase != STABLE) continue;
        if (m->asked != NOTHING) {
            G.skipped++;
            continue;
        }
        m->commit_next ? send_commit(m) : send_heartbeat(m);
        m->commit_next = !m->commit_next;
    }
}

static void run_until(int64_t end_ns, bool until_settled)
{
    static int64_t start_ns;
    static uint64_t turns;
    if (!start_ns) start_ns = now_ns();
    struct epoll_event events[EVENTS_MAX];
    while (now_ns() < end_ns && !(until_settled && G.settled == O.groups)) {
        int n = epoll_wait(G.epoll, events, EVENTS_MAX, 1);
        if (n < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) on_readable(events[i].data.ptr);
        take_turns(start_ns, &turns);
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile_us(double q)
{
    if (!G.latency_count) return 0;
    return (double)G.latencies_us[(size_t)((double)(G.latency_count - 1) * q)];
}

static int run(void)
{
    make_members();
    double cpu = cpu_s(), own = own_cpu_s();
    int64_t start_ns = now_ns();
    for (int i = 0; i < G.member_count; i++) send_join(&G.members[i]);
    run_until(start_ns + (int64_t)SETTLE_S_MAX * 1000000000, true);
    if (G.settled != O.groups) die("%d of %d groups have settled in %d s", G.settled, O.groups, SETTLE_S_MAX);
    printf("{\"cmd\":\"groups\",\"groups\":%d,\"members\":%d,\"settle_ms\":%.2f,\"settle_broker_cpu_s\":%.4f,"
           "\"settle_client_cpu_s\":%.4f,\"generation_max\":%d,\"joins\":%llu,\"settled_rss_kb\":%ld",
           O.groups, O.members, (double)(G.last_settled_ns - start_ns) / 1e6, cpu_s() - cpu, own_cpu_s() - own,
           G.generation_max, (unsigned long long)G.joins, rss_kb());
    if (O.seconds > 0) {
        run_until(now_ns() + (int64_t)(O.warmup * 1e9), false);
        G.latency_cap = (size_t)(2.2 * G.member_count * O.seconds * 1000 / O.interval_ms) + 1000;
        G.latencies_us = mem_zalloc(G.latency_cap, sizeof *G.latencies_us);
        G.heartbeats = G.commits = G.rebalances = G.skipped = 0;
        cpu = cpu_s(), own = own_cpu_s();
        int64_t from_ns = now_ns();
        run_until(from_ns + (int64_t)(O.seconds * 1e9), false);
        double seconds = (double)(now_ns() - from_ns) / 1e9;
        double broker = cpu_s() - cpu;
        qsort(G.latencies_us, G.latency_count, sizeof *G.latencies_us, by_value);
        printf(",\"seconds\":%.3f,\"broker_cpu_s_per_min\":%.4f,\"client_cpu_s_per_min\":%.4f,\"heartbeats\":%llu,"
               "\"commits\":%llu,\"rebalances\":%llu,\"skipped\":%llu,\"lat_us\":{\"p50\":%.0f,\"p99\":%.0f,"
               "\"max\":%.0f},\"rss_kb\":%ld",
               seconds, broker * 60 / seconds, (own_cpu_s() - own) * 60 / seconds, (unsigned long long)G.heartbeats,
               (unsigned long long)G.commits, (unsigned long long)G.rebalances, (unsigned long long)G.skipped,
               quantile_us(.5), quantile_us(.99), quantile_us(1), rss_kb());
    }
    printf("}\n");
    return 0;
}

static const char usage[] =
    "usage: kgroups --broker HOST:PORT --topic T --partitions N --groups G --members M [--seconds S [--warmup S]]\n"
    "               [--interval MS] [--session MS] --pid P[,P...]\n"
    "G groups of M members each share the topic's N partitions; --seconds is the window after they have settled.\n";

int main(int argc, char **argv)
{
    static const struct option opts[] = {{"broker", 1, 0, 'b'}, {"topic", 1, 0, 't'},    {"partitions", 1, 0, 'p'},
                                         {"groups", 1, 0, 'g'}, {"members", 1, 0, 'm'},  {"seconds", 1, 0, 's'},
                                         {"warmup", 1, 0, 'w'}, {"interval", 1, 0, 'i'}, {"session", 1, 0, 'S'},
                                         {"pid", 1, 0, 'I'},    {"help", 0, 0, 'h'},     {0, 0, 0, 0}};
    const char *broker = NULL;
    int o;
    while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1) switch (o) {
        case 'b': broker = optarg; break;
        case 't': O.topic = optarg; break;
        case 'p': O.partitions = atoi(optarg); break;
        case 'g': O.groups = atoi(optarg); break;
        case 'm': O.members = atoi(optarg); break;
        case 's': O.seconds = atof(optarg); break;
        case 'w': O.warmup = atof(optarg); break;
        case 'i': O.interval_ms = atoi(optarg); break;
        case 'S': O.session_ms = atoi(optarg); break;
        case 'I':
            for (char *s = strtok(optarg, ","); s && O.pid_count < PIDS_MAX; s = strtok(NULL, ","))
                O.pids[O.pid_count++] = atoi(s);
            break;
        default: fputs(usage, stderr); return o == 'h' ? 0 : 2;
        }
    if (!broker || O.groups < 1 || O.members < 1 || O.partitions < 1 || O.interval_ms < 1) {
        fputs(usage, stderr);
        return 2;
    }
    resolve(broker);
    G.bufs = buf_pool_new(1 << 20);
    arena_init(&G.arena, SIZE_MAX);
    return run();
}
