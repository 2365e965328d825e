/* cluster_probe.c: watches a cluster through a failover, partition by partition; beside kbench.c, whose codec it uses.
 *
 *   wait   asks every broker for Metadata until all partitions have a leader and a full in-sync set
 *   probe  keeps one small Produce in flight for each sampled partition, on a connection of its own to the leader, and
 *          notes the longest time between two acknowledged writes
 *
 * Times on stdout are of CLOCK_MONOTONIC, as Python's time.monotonic_ns().  probe: SIGUSR1 begins the measured part
 * (what was seen so far becomes the baseline), SIGTERM ends it.
 *
 * Metadata is asked of every broker, one request in flight to each, from the moment a partition has lost its leader
 * until it writes again.  Between two requests to a broker lie ten times the last round trip, but --backoff-ms at least
 * and 30 ms at most: a real client's refresh must not cost the brokers much of what the failover needs.  For the same
 * reason all partitions write in step, every --interval-ms: the followers then fetch many small writes at once. */
#define main kbench_main
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "kbench.c"
#pragma GCC diagnostic pop
#undef main
#include <signal.h>

#define MS            1000000ll
#define MAXBROKERS    16
#define CONNECT_RETRY (100 * MS) // to a leader that refuses connections, while Metadata still names it
#define REFUSED_RETRY (10 * MS)  // to a leader that says it is none, while Metadata still names it

typedef struct {
    int id, port;
    char host[64];
} Node;

static const char *topic, *boot[MAXBROKERS];
static int nboot, partitions, want_isr, sample_n = 120, interval_ms = 200, backoff_ms = 5;
static double timeout_s = 60;
static int64_t since;

static int connect_to(const char *host, int port, bool wait)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &a.sin_addr) != 1)
        die("no IPv4 address: %s", host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0) die("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timeval tv = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return -1;
    } // loopback: at once, either way
    if (!wait) fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static int connect_boot(int i)
{
    char host[64];
    const char *c = strrchr(boot[i], ':');
    if (!c) die("--brokers wants HOST:PORT,...");
    snprintf(host, sizeof host, "%.*s", (int)(c - boot[i]), boot[i]);
    return connect_to(host, atoi(c + 1), true);
}

static void metadata_req(Buf *q)
{
    req_begin(q, 3, 7, 2);
    b_i32(q, 1);
    b_str(q, topic);
    b_i8(q, 0);
}

typedef struct {
    int part, err, leader, epoch, isr;
} Pm;

static void r_nodes(Rd *r, Node *nodes, int *n)
{
    int k = r_i32(r);
    *n = 0;
    for (int i = 0; i < k && !r->bad; i++) {
        Node x = {.id = r_i32(r)};
        r_str(r, x.host, sizeof x.host);
        x.port = r_i32(r);
        r_str(r, NULL, 0);
        if (*n < MAXBROKERS) nodes[(*n)++] = x;
    }
}

// Calls each() for every partition; returns the topic's error, or -2 where the answer makes no sense.
static int r_metadata(Rd *r, Node *nodes, int *nnodes, void (*each)(const Pm *, void *), void *arg)
{
    int err = 3;
    r_i32(r);
    r_nodes(r, nodes, nnodes);
    r_str(r, NULL, 0);
    r_i32(r);
    for (int nt = r_i32(r); nt > 0 && !r->bad; nt--) {
        err = r_i16(r);
        r_str(r, NULL, 0);
        r_i8(r);
        for (int np = r_i32(r); np > 0 && !r->bad; np--) {
            Pm m = {.err = r_i16(r)};
            m.part = r_i32(r);
            m.leader = r_i32(r);
            m.epoch = r_i32(r);
            r_i32arr(r);
            m.isr = r_i32(r);
            if (m.isr > 0) r_skip(r, 4 * (int64_t)m.isr);
            r_i32arr(r);
            if (!r->bad) each(&m, arg);
        }
    }
    return r->bad ? -2 : err;
}

// ---------------------------------------------------------------- wait

typedef struct {
    int parts, led, full;
} Count;

static void count_one(const Pm *m, void *arg)
{
    Count *c = arg;
    c->parts++;
    if (!m->err && m->leader >= 0) c->led++;
    if (!m->err && m->leader >= 0 && m->isr >= want_isr) c->full++;
}

static int cmd_wait(void)
{
    Buf q = {0}, a = {0};
    Node nodes[MAXBROKERS];
    int n, polls = 0, fd[MAXBROKERS];
    bool led[MAXBROKERS] = {0}, full[MAXBROKERS] = {0};
    int64_t end = now_ns() + (int64_t)(timeout_s * 1e9), led_at = 0;
    double busy = 0;
    Count c = {0};
    memset(fd, -1, sizeof fd);
    for (;;) {
        int nled = 0, nfull = 0;
        int64_t rtt = 0;
        for (int i = 0; i < nboot; i++) {
            // A broker that has said yes is not asked again; the next one is, only when this one has.
            if (!full[i]) {
                if (fd[i] < 0) fd[i] = connect_boot(i);
                Rd r;
                int64_t t = now_ns();
                metadata_req(&q);
                memset(&c, 0, sizeof c);
                if (fd[i] >= 0 && !rpc(fd[i], &q, &a, &r)) {
                    close(fd[i]);
                    fd[i] = -1;
                }
                if (fd[i] >= 0 && r_metadata(&r, nodes, &n, count_one, &c) == 0 && c.parts >= partitions) {
                    led[i] = led[i] || c.led == c.parts;
                    full[i] = c.full == c.parts;
                }
                rtt = now_ns() - t;
                busy += (double)rtt / 1e6;
                polls++;
            }
            nled += led[i];
            nfull += full[i];
            if (!full[i]) break;
        }
        if (nled == nboot && !led_at) led_at = now_ns();
        if (nfull == nboot) break;
        if (now_ns() > end)
            die("wait %s: %d partitions, %d led, %d full after %.0f s", topic, c.parts, c.led, c.full, timeout_s);
        int64_t pause = rtt * 4 > interval_ms * MS ? rtt * 4 : interval_ms * MS;
        usleep((useconds_t)(pause / 1000));
    }
    int64_t t = now_ns();
    printf("{\"full_ns\":%lld,\"leaders_ms\":%.1f,\"full_ms\":%.1f,\"polls\":%d,\"poll_ms\":%.1f}\n", (long long)t,
           (double)((led_at ? led_at : t) - since) / 1e6, (double)(t - since) / 1e6, polls, busy);
    return 0;
}

// ---------------------------------------------------------------- probe

enum { IDLE, INFLIGHT, LOST }; // waiting for the next turn, for the answer, for a leader

typedef struct {
    int id, acks, leader, epoch, first_leader, state, fd, fd_node;
    int failed_leader;
    bool failed_connect;
    int64_t due, begun, failed_at, last_ack;
    int64_t gap, gap_from, gap_to, base_gap, write, base_write, worst_from; // longest, ns
    int acked, base_acked, errs, last_err;
    uint8_t rb[512];
    size_t rn;
} Part;

static Part *P;
static int NP;
static Node nodes[MAXBROKERS];
static int nnodes;
static uint8_t batch[256];
static size_t batch_len;
static volatile sig_atomic_t stop_now, mark_now;
static int64_t mark_at;

static void on_signal(int s)
{
    if (s == SIGUSR1)
        mark_now = 1;
    else
        stop_now = 1;
}

static int errs_total, err_count[130];

static void lose(Part *p, int err, bool connect_failed, int64_t now)
{
    errs_total++;
    p->errs++;
    p->last_err = err;
    if (err >= 0 && err < 128)
        err_count[err]++;
    else
        err_count[128]++;
    if (p->fd >= 0 && err < 0) {
        close(p->fd);
        p->fd = -1;
        p->rn = 0;
    }
    p->state = LOST;
    p->failed_leader = p->leader;
    p->failed_connect = connect_failed;
    p->failed_at = now;
}

static int g_ep;

static void attempt(Part *p, int64_t now)
{
    static Buf q;
    if (p->fd >= 0 && p->fd_node != p->leader) {
        close(p->fd);
        p->fd = -1;
    }
    if (p->fd < 0) {
        Node *n = NULL;
        for (int i = 0; i < nnodes; i++)
            if (nodes[i].id == p->leader) n = &nodes[i];
        p->rn = 0;
        if (n) p->fd = connect_to(n->host, n->port, false);
        if (p->fd < 0) {
            lose(p, -1, true, now);
            return;
        }
        p->fd_node = p->leader;
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)(p - P)};
        epoll_ctl(g_ep, EPOLL_CTL_ADD, p->fd, &e);
    }
    req_begin(&q, 0, 7, p->id);
    b_str(&q, NULL);
    b_i16(&q, p->acks);
    b_i32(&q, 30000);
    b_i32(&q, 1);
    b_str(&q, topic);
    b_i32(&q, 1);
    b_i32(&q, p->id);
    b_i32(&q, (int64_t)batch_len);
    b_raw(&q, batch, batch_len);
    req_end(&q);
    if (send(p->fd, q.p, q.n, MSG_NOSIGNAL) != (ssize_t)q.n) {
        lose(p, -1, true, now);
        return;
    }
    p->state = INFLIGHT;
}

static void acked(Part *p, int64_t now)
{
    if (p->last_ack) {
        int64_t g = now - p->last_ack;
        if (g > p->gap) {
            p->gap = g;
            p->gap_from = p->last_ack;
            p->gap_to = now;
        }
    }
    if (now - p->begun > p->write) {
        p->write = now - p->begun;
        p->worst_from = p->begun;
    }
    p->last_ack = now;
    p->acked++;
    p->state = IDLE;
    p->due = (now / (interval_ms * MS) + 1) * interval_ms * MS; // all partitions in step: see above
}

static void readable(Part *p, int64_t now)
{
    ssize_t k = recv(p->fd, p->rb + p->rn, sizeof p->rb - p->rn, 0);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (k <= 0) {
        if (p->state == INFLIGHT)
            lose(p, -1, true, now);
        else {
            close(p->fd);
            p->fd = -1;
            p->rn = 0;
        }
        return;
    }
    p->rn += (size_t)k;
    if (p->rn < 4 || p->rn < 4 + get_be(p->rb, 4)) return;
    Rd r = {p->rb + 8, p->rb + p->rn, false};
    p->rn = 0;
    r_i32(&r);
    r_str(&r, NULL, 0);
    r_i32(&r);
    r_i32(&r);
    int err = r_i16(&r);
    if (r.bad || p->state != INFLIGHT)
        lose(p, -1, true, now);
    else if (err)
        lose(p, err, false, now);
    else
        acked(p, now);
}

static void learn(const Pm *m, void *arg)
{
    (void)arg;
    int stride = partitions / NP;
    if (m->part % stride || m->part / stride >= NP) return;
    Part *p = P + m->part / stride;
    if (m->epoch >= 0 && m->epoch < p->epoch) return; // a broker that has not heard yet
    p->epoch = m->epoch;
    p->leader = m->leader;
    if (p->first_leader < 0) p->first_leader = m->leader;
}

typedef struct {
    int fd;
    bool busy;
    int64_t sent, next;
    uint8_t *b;
    size_t len, cap;
} Ask;

static Ask M[MAXBROKERS];
static int64_t meta_answered; // when the newest question that has been answered was asked
static int meta_n;
static double meta_ms;

static void meta_drop(Ask *m, int64_t now)
{
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
    m->busy = false;
    m->next = now + 30 * MS;
}

static void meta_send(Ask *m, int64_t now)
{
    static Buf q;
    if (m->fd < 0) {
        m->fd = connect_boot((int)(m - M));
        if (m->fd < 0) {
            m->next = now + 30 * MS;
            return;
        }
        fcntl(m->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = UINT32_MAX - (uint32_t)(m - M)};
        epoll_ctl(g_ep, EPOLL_CTL_ADD, m->fd, &e);
    }
    metadata_req(&q);
    req_end(&q);
    m->busy = true;
    m->sent = now;
    m->len = 0;
    if (send(m->fd, q.p, q.n, MSG_NOSIGNAL) != (ssize_t)q.n) meta_drop(m, now);
}

static void meta_readable(Ask *m)
{
    if (m->cap < m->len + 65536) {
        m->cap = m->cap * 2 + 131072;
        m->b = realloc(m->b, m->cap);
        if (!m->b) die("out of memory");
    }
    ssize_t k = recv(m->fd, m->b + m->len, m->cap - m->len, 0);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (k <= 0 || !m->busy) {
        meta_drop(m, now_ns());
        return;
    }
    m->len += (size_t)k;
    if (m->len < 4 || m->len < 4 + get_be(m->b, 4)) return;
    Rd r = {m->b + 8, m->b + m->len, false};
    Node ns[MAXBROKERS];
    int nn;
    if (r_metadata(&r, ns, &nn, learn, NULL) == 0)
        for (int i = 0; i < nn; i++) { // addresses are kept: a broker that left the list may still be a leader
            int j = 0;
            while (j < nnodes && nodes[j].id != ns[i].id) j++;
            if (j < MAXBROKERS) {
                nodes[j] = ns[i];
                if (j == nnodes) nnodes++;
            }
        }
    int64_t now = now_ns(), rtt = now - m->sent, pause = rtt * 10;
    m->busy = false;
    if (m->sent > meta_answered) meta_answered = m->sent;
    meta_n++;
    meta_ms += (double)rtt / 1e6;
    if (pause > 30 * MS) pause = 30 * MS;
    if (pause < backoff_ms * MS) pause = backoff_ms * MS;
    m->next = now + pause;
}

static void turn(int64_t now)
{
    bool want = false;
    for (int i = 0; i < NP; i++) {
        Part *p = P + i;
        if (p->state == IDLE && now >= p->due) {
            p->begun = now;
            attempt(p, now);
        }
        if (p->state != LOST) continue;
        want = true;
        if (p->leader < 0) continue;
        int64_t pause = p->leader != p->failed_leader ? 0 : p->failed_connect ? CONNECT_RETRY : REFUSED_RETRY;
        if (now - p->failed_at >= pause && (pause || meta_answered >= p->failed_at || p->leader != p->failed_leader))
            attempt(p, now);
    }
    for (Ask *m = M; m < M + nboot; m++) {
        if (m->busy && now - m->sent > 3000 * MS) meta_drop(m, now);
        if (want && !m->busy && now >= m->next) meta_send(m, now);
    }
}

static void mark(int64_t now)
{
    mark_at = now;
    for (int i = 0; i < NP; i++) {
        P[i].base_gap = P[i].gap;
        P[i].base_write = P[i].write;
        P[i].base_acked = P[i].acked;
        P[i].gap = P[i].write = P[i].acked = P[i].errs = 0;
        P[i].first_leader = P[i].leader;
    }
    memset(err_count, 0, sizeof err_count);
    meta_n = 0;
    meta_ms = 0;
}

static void print_parts(int64_t start)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("R "
           "{\"start_ns\":%lld,\"mark_ns\":%lld,\"end_ns\":%lld,\"metadata_requests\":%d,\"metadata_ms\":%.1f,\"cpu_"
           "s\":%.3f,\"errors\":{",
           (long long)start, (long long)mark_at, (long long)now_ns(), meta_n, meta_n ? meta_ms / meta_n : 0,
           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    bool first = true;
    for (int i = 0; i < 129; i++)
        if (err_count[i]) {
            printf("%s\"%d\":%d", first ? "" : ",", i < 128 ? i : -1, err_count[i]);
            first = false;
        }
    printf("},\"columns\":[\"partition\",\"acks\",\"leader_before\",\"leader_after\",\"gap_ms\",\"gap_from_ns\",\"gap_"
           "to_ns\",\"write_ms\","
           "\"base_gap_ms\",\"base_write_ms\",\"acked\",\"base_acked\",\"errors\",\"last_error\"],\"rows\":[");
    for (int i = 0; i < NP; i++) {
        Part *p = P + i;
        if (p->state != IDLE && now_ns() - p->last_ack > p->gap) { // never came back
            p->gap = now_ns() - p->last_ack;
            p->gap_from = p->last_ack;
            p->gap_to = 0;
        }
        printf("%s[%d,%d,%d,%d,%.2f,%lld,%lld,%.2f,%.2f,%.2f,%d,%d,%d,%d]", i ? "," : "", p->id, p->acks,
               p->first_leader, p->leader, (double)p->gap / 1e6, (long long)p->gap_from, (long long)p->gap_to,
               (double)p->write / 1e6, (double)p->base_gap / 1e6, (double)p->base_write / 1e6, p->acked, p->base_acked,
               p->errs, p->last_err);
    }
    printf("]}\n");
    fflush(stdout);
}

static int cmd_probe(const int *acks, int nacks)
{
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGUSR1, &sa, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    g_ep = epoll_create1(EPOLL_CLOEXEC);
    NP = sample_n < partitions ? sample_n : partitions;
    P = xmalloc((size_t)NP * sizeof *P);
    int64_t start = now_ns(), next_line = start;
    int stride = partitions / NP;
    for (int i = 0; i < NP; i++)
        P[i] = (Part){.id = i * stride,
                      .acks = acks[i % nacks],
                      .leader = -1,
                      .first_leader = -1,
                      .failed_leader = -1,
                      .epoch = -1,
                      .state = LOST,
                      .fd = -1,
                      .begun = start};
    for (int i = 0; i < MAXBROKERS; i++) M[i].fd = -1;
    batch_len = build_batch(batch, 1, 64);
    for (;;) {
        int64_t now = now_ns();
        if (stop_now) break;
        if (mark_now) {
            mark_now = 0;
            mark(now);
        }
        turn(now);
        if (now >= next_line) {
            int stalled = 0;
            for (int i = 0; i < NP; i++)
                stalled += !P[i].last_ack || (P[i].state != IDLE && now - P[i].begun > 300 * MS);
            printf("S %lld %d %d\n", (long long)now, stalled, errs_total);
            fflush(stdout);
            next_line = now + 200 * MS;
        }
        struct epoll_event ev[64];
        int n = epoll_wait(g_ep, ev, 64, 1);
        for (int i = 0; i < n; i++) {
            if (ev[i].data.u32 > UINT32_MAX - MAXBROKERS) {
                Ask *m = M + (UINT32_MAX - ev[i].data.u32);
                if (m->fd >= 0) meta_readable(m);
            } else if (P[ev[i].data.u32].fd >= 0)
                readable(&P[ev[i].data.u32], now_ns());
        }
    }
    print_parts(start);
    return 0;
}

static const char probe_usage[] = "usage: cluster_probe wait  --brokers H:P,... --topic T --partitions N --isr K "
                                  "[--since NS] [--timeout S] [--interval-ms 20]\n"
                                  "       cluster_probe probe --brokers H:P,... --topic T --partitions N [--sample "
                                  "120] [--acks -1,1] [--interval-ms 200]\n"
                                  "                           [--backoff-ms 5]\n";

int main(int argc, char **argv)
{
    static const struct option opts[] = {{"brokers", 1, 0, 'b'},     {"topic", 1, 0, 't'},  {"partitions", 1, 0, 'p'},
                                         {"isr", 1, 0, 'k'},         {"since", 1, 0, 's'},  {"timeout", 1, 0, 'o'},
                                         {"interval-ms", 1, 0, 'i'}, {"sample", 1, 0, 'n'}, {"acks", 1, 0, 'a'},
                                         {"backoff-ms", 1, 0, 'B'},  {0, 0, 0, 0}};
    int acks[8] = {-1, 1}, nacks = 2, o;
    bool probe = argc > 1 && !strcmp(argv[1], "probe");
    if (argc < 2 || (!probe && strcmp(argv[1], "wait"))) {
        fputs(probe_usage, stderr);
        return 2;
    }
    if (!probe) interval_ms = 20;
    optind = 2;
    since = now_ns();
    while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1) switch (o) {
        case 'b':
            for (char *s = strtok(optarg, ","); s && nboot < MAXBROKERS; s = strtok(NULL, ",")) boot[nboot++] = s;
            break;
        case 't': topic = optarg; break;
        case 'p': partitions = atoi(optarg); break;
        case 'k': want_isr = atoi(optarg); break;
        case 's': since = atoll(optarg); break;
        case 'o': timeout_s = atof(optarg); break;
        case 'i': interval_ms = atoi(optarg); break;
        case 'n': sample_n = atoi(optarg); break;
        case 'a':
            nacks = 0;
            for (char *s = strtok(optarg, ","); s && nacks < 8; s = strtok(NULL, ",")) acks[nacks++] = atoi(s);
            break;
        case 'B': backoff_ms = atoi(optarg); break;
        default: fputs(probe_usage, stderr); return 2;
        }
    if (!nboot || !topic || partitions < 1) {
        fputs(probe_usage, stderr);
        return 2;
    }
    return probe ? cmd_probe(acks, nacks) : cmd_wait();
}
