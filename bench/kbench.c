/* kbench.c: a raw Kafka-protocol load generator, for comparing brokers over loopback.
 *
 * Its codec knows just the request versions that both Apache Kafka 3.9 and 4.x accept and that are neither flexible nor
 * based on topic ids: Produce v7, Fetch v11, ListOffsets v1, Metadata v7, ApiVersions v0, CreateTopics v4, DeleteTopics
 * v3.
 *
 * The client is meant to cost far less CPU than any broker: batches are encoded once and sent again and again (the
 * broker assigns the offsets), fetched bytes are dropped in the kernel (recv MSG_TRUNC), and only batch headers are
 * read, to advance the offset.  Sending the batches with sendfile was measured and turned down: it spares the client
 * nothing and raises the receiving broker's cost.
 *
 * It talks to one broker, which must lead every partition of the topic.  Each command prints one JSON object; times are
 * in the unit that the key ends with, `seconds` is the window, and CPU and memory are of the processes in --pid.
 *
 * It is a tool of the benchmarks and no part of the product: it stands alone, uses libc and pthreads only, and ends at
 * the first thing that it does not understand. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BATCH_HDR 61
#define CLIENT_ID "kbench"

/* ---- small things */

static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "kbench: ");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

static void *xmalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p) die("out of memory");
    return p;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* CRC32C: the SSE4.2 instruction where the CPU has it, a table elsewhere. */
static uint32_t crc_table[256];

static uint32_t crc32c_sw(uint32_t c, const uint8_t *p, size_t n)
{
    while (n--) c = crc_table[(c ^ *p++) & 0xff] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_hw(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t c64 = c;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c64 = __builtin_ia32_crc32di(c64, v);
    }
    c = (uint32_t)c64;
    while (n--) c = __builtin_ia32_crc32qi(c, *p++);
    return c;
}
#endif

static uint32_t crc32c(const uint8_t *p, size_t n)
{
    static _Atomic int hw = -1;
    if (hw < 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = (c & 1) ? (c >> 1) ^ 0x82f63b78u : c >> 1;
            crc_table[i] = c;
        }
#if defined(__x86_64__)
        hw = __builtin_cpu_supports("sse4.2") ? 1 : 0;
#else
        hw = 0;
#endif
    }
#if defined(__x86_64__)
    if (hw) return ~crc32c_hw(~0u, p, n);
#endif
    return ~crc32c_sw(~0u, p, n);
}

/* ---- codec */

typedef struct {
    uint8_t *p;
    size_t n, cap;
} Buf;

static void b_need(Buf *b, size_t k)
{
    if (b->n + k <= b->cap) return;
    while (b->n + k > b->cap) b->cap = b->cap ? b->cap * 2 : 256;
    b->p = realloc(b->p, b->cap);
    if (!b->p) die("out of memory");
}
static void put_be(uint8_t *p, uint64_t v, int k)
{
    for (int i = k - 1; i >= 0; i--, v >>= 8) p[i] = (uint8_t)v;
}
static uint64_t get_be(const uint8_t *p, int k)
{
    uint64_t v = 0;
    for (int i = 0; i < k; i++) v = v << 8 | p[i];
    return v;
}
static void b_be(Buf *b, uint64_t v, int k)
{
    b_need(b, (size_t)k);
    put_be(b->p + b->n, v, k);
    b->n += (size_t)k;
}
static void b_i8(Buf *b, int v)
{
    b_be(b, (uint64_t)v, 1);
}
static void b_i16(Buf *b, int v)
{
    b_be(b, (uint64_t)v, 2);
}
static void b_i32(Buf *b, int64_t v)
{
    b_be(b, (uint64_t)v, 4);
}
static void b_i64(Buf *b, int64_t v)
{
    b_be(b, (uint64_t)v, 8);
}
static void b_raw(Buf *b, const void *p, size_t n)
{
    b_need(b, n);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}
static void b_str(Buf *b, const char *s)
{
    if (!s) {
        b_i16(b, -1);
        return;
    }
    b_i16(b, (int)strlen(s));
    b_raw(b, s, strlen(s));
}

typedef struct {
    const uint8_t *p, *end;
    bool bad;
} Rd;

static uint64_t r_be(Rd *r, int k)
{
    if (r->end - r->p < k) {
        r->bad = true;
        r->p = r->end;
        return 0;
    }
    uint64_t v = get_be(r->p, k);
    r->p += k;
    return v;
}
static int r_i8(Rd *r)
{
    return (int8_t)r_be(r, 1);
}
static int r_i16(Rd *r)
{
    return (int16_t)r_be(r, 2);
}
static int32_t r_i32(Rd *r)
{
    return (int32_t)r_be(r, 4);
}
static int64_t r_i64(Rd *r)
{
    return (int64_t)r_be(r, 8);
}
static void r_skip(Rd *r, int64_t n)
{
    if (n < 0 || r->end - r->p < n) {
        r->bad = true;
        r->p = r->end;
    } else
        r->p += n;
}
static void r_str(Rd *r, char *out, size_t cap)
{
    int n = r_i16(r);
    if (out && cap) out[0] = 0;
    if (n < 0) return;
    if (r->end - r->p < n) {
        r->bad = true;
        r->p = r->end;
        return;
    }
    if (out && cap) {
        size_t m = (size_t)n < cap - 1 ? (size_t)n : cap - 1;
        memcpy(out, r->p, m);
        out[m] = 0;
    }
    r->p += n;
}
static void r_i32arr(Rd *r)
{
    int32_t n = r_i32(r);
    if (n > 0) r_skip(r, 4 * (int64_t)n);
}

static void req_begin(Buf *b, int api, int ver, int32_t corr)
{
    b->n = 0;
    b_i32(b, 0);
    b_i16(b, api);
    b_i16(b, ver);
    b_i32(b, corr);
    b_str(b, CLIENT_ID);
}
static void req_end(Buf *b)
{
    put_be(b->p, b->n - 4, 4);
}

/* Record batch v2, uncompressed, CreateTime. */
static size_t put_varint(uint8_t *p, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    size_t n = 0;
    while (z >= 0x80) {
        p[n++] = (uint8_t)(z | 0x80);
        z >>= 7;
    }
    p[n++] = (uint8_t)z;
    return n;
}
static size_t varint_len(int64_t v)
{
    uint8_t t[10];
    return put_varint(t, v);
}

static size_t record_len(int idx, size_t value)
{
    size_t body = 1 + 1 + varint_len(idx) + 1 + varint_len((int64_t)value) + value + 1;
    return varint_len((int64_t)body) + body;
}

static int records_for(size_t batch_bytes, size_t value)
{
    size_t n = BATCH_HDR;
    int k = 0;
    for (;;) {
        size_t r = record_len(k, value);
        if (k && n + r > batch_bytes) return k;
        n += r;
        k++;
        if (n >= batch_bytes) return k;
    }
}

static void batch_finish(uint8_t *b, size_t total, int nrec, int64_t ts)
{
    put_be(b, 0, 8);
    put_be(b + 8, total - 12, 4);
    put_be(b + 12, 0xffffffffu, 4);
    b[16] = 2;
    put_be(b + 21, 0, 2);
    put_be(b + 23, (uint64_t)(nrec - 1), 4);
    put_be(b + 27, (uint64_t)ts, 8);
    put_be(b + 35, (uint64_t)ts, 8);
    put_be(b + 43, ~0ull, 8);
    put_be(b + 51, 0xffff, 2);
    put_be(b + 53, 0xffffffffu, 4);
    put_be(b + 57, (uint64_t)nrec, 4);
    put_be(b + 17, crc32c(b + 21, total - 21), 4);
}

/* Opens a record in p; returns the value's place. *next is set behind the record. */
static uint8_t *record_put(uint8_t *p, int idx, size_t value, uint8_t **next)
{
    size_t body = 1 + 1 + varint_len(idx) + 1 + varint_len((int64_t)value) + value + 1;
    p += put_varint(p, (int64_t)body);
    *p++ = 0;
    *p++ = 0;
    p += put_varint(p, idx);
    *p++ = 1; /* null key */
    p += put_varint(p, (int64_t)value);
    uint8_t *v = p;
    p[value] = 0;
    *next = p + value + 1;
    return v;
}

static uint64_t rng_state = 0x9e3779b97f4a7c15ull;
static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

static size_t build_batch(uint8_t *b, int nrec, size_t value)
{
    uint8_t *p = b + BATCH_HDR;
    for (int i = 0; i < nrec; i++) {
        uint8_t *next, *v = record_put(p, i, value, &next);
        for (size_t k = 0; k < value; k += 8) {
            uint64_t x = rng();
            memcpy(v + k, &x, value - k < 8 ? value - k : 8);
        }
        p = next;
    }
    batch_finish(b, (size_t)(p - b), nrec, wall_ms());
    return (size_t)(p - b);
}

/* ---- sockets */

static struct sockaddr_storage g_addr;
static socklen_t g_addrlen;
static char g_host[256];
static int g_port;

static void resolve(const char *hp)
{
    const char *c = strrchr(hp, ':');
    if (!c || (size_t)(c - hp) >= sizeof g_host) die("--broker wants HOST:PORT");
    memcpy(g_host, hp, (size_t)(c - hp));
    g_port = atoi(c + 1);
    struct addrinfo h = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *r = NULL;
    if (getaddrinfo(g_host, c + 1, &h, &r) || !r) die("cannot resolve %s", hp);
    memcpy(&g_addr, r->ai_addr, r->ai_addrlen);
    g_addrlen = r->ai_addrlen;
    freeaddrinfo(r);
}

static int dial(int timeout_s)
{
    int fd = socket(g_addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timeval tv = {.tv_sec = timeout_s};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    if (connect(fd, (struct sockaddr *)&g_addr, g_addrlen)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool send_all(int fd, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool recv_all(int fd, uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = recv(fd, p, n, MSG_WAITALL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Sends req and reads one response frame; on success the body after the correlation id is in resp. */
static bool rpc(int fd, Buf *req, Buf *resp, Rd *r)
{
    req_end(req);
    uint8_t h[4];
    if (!send_all(fd, req->p, req->n) || !recv_all(fd, h, 4)) return false;
    size_t n = get_be(h, 4);
    if (n < 4 || n > (256u << 20)) return false;
    resp->n = 0;
    b_need(resp, n);
    if (!recv_all(fd, resp->p, n)) return false;
    resp->n = n;
    *r = (Rd){resp->p + 4, resp->p + n, false};
    return true;
}

static bool api_versions(int fd, Buf *q, Buf *a)
{
    Rd r;
    req_begin(q, 18, 0, 1);
    if (!rpc(fd, q, a, &r)) return false;
    int err = r_i16(&r);
    return !err && r_i32(&r) > 0 && !r.bad;
}

typedef struct {
    int brokers, controller, topic_err, parts, led;
    bool self, controller_live;
} Meta;

/* topic NULL: no topics asked. */
static bool metadata(int fd, Buf *q, Buf *a, const char *topic, Meta *m)
{
    Rd r;
    memset(m, 0, sizeof *m);
    m->controller = -1;
    req_begin(q, 3, 7, 2);
    if (topic) {
        b_i32(q, 1);
        b_str(q, topic);
    } else
        b_i32(q, 0);
    b_i8(q, 0);
    if (!rpc(fd, q, a, &r)) return false;
    r_i32(&r);
    m->brokers = r_i32(&r);
    int32_t ids[64];
    for (int i = 0; i < m->brokers && !r.bad; i++) {
        int32_t id = r_i32(&r);
        r_str(&r, NULL, 0);
        int port = r_i32(&r);
        r_str(&r, NULL, 0);
        if (port == g_port) m->self = true;
        if (i < 64) ids[i] = id;
    }
    r_str(&r, NULL, 0);
    m->controller = r_i32(&r);
    for (int i = 0; i < m->brokers && i < 64; i++)
        if (ids[i] == m->controller) m->controller_live = true;
    int nt = r_i32(&r);
    for (int t = 0; t < nt && !r.bad; t++) {
        m->topic_err = r_i16(&r);
        r_str(&r, NULL, 0);
        r_i8(&r);
        m->parts = r_i32(&r);
        for (int i = 0; i < m->parts && !r.bad; i++) {
            int e = r_i16(&r);
            r_i32(&r);
            int leader = r_i32(&r);
            r_i32(&r);
            r_i32arr(&r);
            r_i32arr(&r);
            r_i32arr(&r);
            if (!e && leader >= 0) m->led++;
        }
    }
    return !r.bad;
}

static int g_parts; /* partitions asked for by --partitions, 0 = all of the topic's */

static void wait_topic(const char *topic, double timeout_s)
{
    Buf q = {0}, a = {0};
    Meta m = {0};
    int64_t end = now_ns() + (int64_t)(timeout_s * 1e9);
    int fd = -1;
    for (;;) {
        if (fd < 0) fd = dial(10);
        if (fd >= 0) {
            if (!metadata(fd, &q, &a, topic, &m)) {
                close(fd);
                fd = -1;
            } else if (!m.topic_err && m.parts > 0 && m.led == m.parts && m.parts >= g_parts)
                break;
        }
        if (now_ns() > end)
            die("topic %s not ready: error %d, %d of %d partitions led", topic, m.topic_err, m.led, m.parts);
        usleep(3000);
    }
    if (!g_parts) g_parts = m.parts;
    close(fd);
    free(q.p);
    free(a.p);
}

/* ---- latency histogram (ns, 64 buckets an octave) */

typedef struct {
    uint64_t n, max;
    double sum;
    uint64_t b[64 * 64];
} Hist;

static void h_add(Hist *h, uint64_t v)
{
    h->n++;
    h->sum += (double)v;
    if (v > h->max) h->max = v;
    int i;
    if (v < 64)
        i = (int)v;
    else {
        int e = 63 - __builtin_clzll(v);
        i = (e - 5) * 64 + (int)((v >> (e - 6)) & 63);
    }
    h->b[i]++;
}
static double h_q(const Hist *h, double q)
{
    if (!h->n) return 0;
    uint64_t want = (uint64_t)(q * (double)h->n), c = 0;
    if (want >= h->n) want = h->n - 1;
    for (int i = 0; i < 64 * 64; i++) {
        c += h->b[i];
        if (c > want) {
            if (i < 64) return i;
            int e = i / 64 + 5;
            return (double)((1ull << e) + (((uint64_t)(i % 64)) << (e - 6)) + (1ull << (e - 6)) / 2);
        }
    }
    return (double)h->max;
}
static void h_merge(Hist *a, const Hist *b)
{
    a->n += b->n;
    a->sum += b->sum;
    if (b->max > a->max) a->max = b->max;
    for (int i = 0; i < 64 * 64; i++) a->b[i] += b->b[i];
}
static void h_print(const char *name, const Hist *h)
{
    printf("\"%s\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f,\"mean\":%.1f,\"count\":%llu}",
           name, h_q(h, .5) / 1e3, h_q(h, .9) / 1e3, h_q(h, .99) / 1e3, h_q(h, .999) / 1e3, (double)h->max / 1e3,
           h->n ? h->sum / (double)h->n / 1e3 : 0, (unsigned long long)h->n);
}

/* ---- CPU and memory of the broker */

static int g_pids[16], g_npids;

typedef struct {
    double broker_cpu, client_cpu;
    long rss_kb, hwm_kb;
    int64_t t;
} Sample;

static double proc_cpu(int pid)
{
    char path[64], s[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(s, 1, sizeof s - 1, f);
    fclose(f);
    s[n] = 0;
    char *p = strrchr(s, ')');
    unsigned long ut = 0, st = 0;
    if (p) sscanf(p + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ut, &st);
    return (double)(ut + st) / (double)sysconf(_SC_CLK_TCK);
}
static void proc_mem(int pid, long *rss, long *hwm)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    if (!f) return;
    long v;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmRSS: %ld", &v) == 1) *rss += v;
        if (sscanf(line, "VmHWM: %ld", &v) == 1) *hwm += v;
    }
    fclose(f);
}
static Sample sample(void)
{
    Sample s = {.t = now_ns()};
    for (int i = 0; i < g_npids; i++) {
        s.broker_cpu += proc_cpu(g_pids[i]);
        proc_mem(g_pids[i], &s.rss_kb, &s.hwm_kb);
    }
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    s.client_cpu =
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    return s;
}
static void print_samples(const Sample *a, const Sample *b)
{
    printf(",\"client_cpu_s\":%.3f", b->client_cpu - a->client_cpu);
    if (g_npids)
        printf(",\"broker_cpu_s\":%.3f,\"broker_rss_kb\":%ld,\"broker_hwm_kb\":%ld", b->broker_cpu - a->broker_cpu,
               b->rss_kb, b->hwm_kb);
}

/* ---- options and phases */

static struct {
    const char *topic, *config[16];
    int nconfig, connections, inflight, acks, per_request, threads, count, rf;
    size_t record, batch, max_bytes;
    double seconds, warmup, rate, cap_mb, hold, timeout, gb;
} O = {.topic = "kbench",
       .connections = 1,
       .inflight = 5,
       .acks = 1,
       .per_request = 1,
       .threads = 1,
       .count = 100,
       .rf = 1,
       .record = 1024,
       .batch = 16384,
       .max_bytes = 1 << 20,
       .seconds = 8,
       .warmup = 0,
       .hold = 0,
       .timeout = 30,
       .gb = 1};

static _Atomic int phase; /* 0 warm-up, 1 window, 2 over */
static _Atomic int64_t phase_bytes;
static int64_t phase_start;
static Sample s0, s1;
static pthread_mutex_t phase_mu = PTHREAD_MUTEX_INITIALIZER;

static int phase_now(int64_t now)
{
    int p = atomic_load_explicit(&phase, memory_order_relaxed);
    int64_t cap = (int64_t)(O.cap_mb * 1e6), got = cap ? atomic_load_explicit(&phase_bytes, memory_order_relaxed) : 0;
    bool turn = p == 0   ? now - phase_start >= (int64_t)(O.warmup * 1e9) || (cap && got >= cap / 2)
                : p == 1 ? now - s0.t >= (int64_t)(O.seconds * 1e9) || (cap && got >= cap)
                         : false;
    if (!turn) return p;
    pthread_mutex_lock(&phase_mu);
    if (atomic_load(&phase) == p) {
        if (p == 0)
            s0 = sample();
        else
            s1 = sample();
        atomic_store(&phase_bytes, 0);
        atomic_store(&phase, p + 1);
    }
    pthread_mutex_unlock(&phase_mu);
    return atomic_load(&phase);
}

typedef struct {
    Hist lat;
    uint64_t bytes, wire, records, requests, err[256];
} Stat;

static void count_err(Stat *s, int e)
{
    s->err[(e + 1) & 255]++;
} /* -1 (UNKNOWN) lands at 0 */

static void print_errors(const Stat *s)
{
    printf(",\"errors\":{");
    bool first = true;
    for (int i = 0; i < 256; i++)
        if (s->err[i] && i != 1) {
            printf("%s\"%d\":%llu", first ? "" : ",", i - 1, (unsigned long long)s->err[i]);
            first = false;
        }
    printf("}");
}
static void stat_merge(Stat *a, const Stat *b)
{
    h_merge(&a->lat, &b->lat);
    a->bytes += b->bytes;
    a->wire += b->wire;
    a->records += b->records;
    a->requests += b->requests;
    for (int i = 0; i < 256; i++) a->err[i] += b->err[i];
}

/* ---- produce */

#define MAXFLY 256

static uint8_t *g_batches;
static size_t g_batch_len, g_batch_stride;
static int g_nbatches, g_nrec;

typedef struct {
    int fd, fly, head; /* requests in flight, oldest in ring */
    int64_t sent[MAXFLY];
    int32_t corr;
    Buf hdr; /* request up to and with the first partition's record-set length */
    size_t corr_at, part_at;
    struct iovec *iov;
    uint8_t *phdr;     /* headers of the 2nd.. partitions */
    size_t off, total; /* of the request being sent; total 0: none */
    int next_part, step, batch_i;
    uint8_t rb[8192];
    size_t rn;
    bool want_out;
} PConn;

typedef struct {
    int id;
    PConn *c;
    int nc;
    Stat st;
    pthread_t th;
    bool failed;
} PThread;

static void p_start(PConn *c, int64_t t)
{
    put_be(c->hdr.p + c->corr_at, (uint64_t)(uint32_t)c->corr++, 4);
    for (int k = 0; k < O.per_request; k++) {
        uint8_t *h = k ? c->phdr + 8 * (k - 1) : c->hdr.p + c->part_at;
        put_be(h, (uint64_t)c->next_part, 4);
        c->next_part = (c->next_part + c->step) % g_parts;
        c->batch_i = (c->batch_i + 1) % g_nbatches;
        c->iov[2 * k + 1] = (struct iovec){g_batches + (size_t)c->batch_i * g_batch_stride, g_batch_len};
    }
    c->off = 0;
    c->total = c->hdr.n + g_batch_len + (size_t)(O.per_request - 1) * (8 + g_batch_len);
    if (O.acks) c->sent[(c->head + c->fly) % MAXFLY] = t;
}

/* 1 sent whole, 0 would block, -1 broken */
static int p_push(PConn *c)
{
    while (c->off < c->total) {
        ssize_t k;
        struct iovec v[64];
        int n = 0;
        size_t skip = c->off;
        for (int i = 0; i < 2 * O.per_request && n < 64; i++) {
            struct iovec w = c->iov[i];
            if (skip >= w.iov_len) {
                skip -= w.iov_len;
                continue;
            }
            w.iov_base = (uint8_t *)w.iov_base + skip;
            w.iov_len -= skip;
            skip = 0;
            v[n++] = w;
        }
        struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
        k = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (k < 0) {
            if (errno == EINTR) continue;
            return errno == EAGAIN ? 0 : -1;
        }
        c->off += (size_t)k;
    }
    c->total = 0;
    if (O.acks) c->fly++;
    return 1;
}

static void p_credit(Stat *s, int64_t now, int ph, int64_t t0, bool ok)
{
    size_t bytes = (size_t)O.per_request * g_batch_len;
    if (ok) atomic_fetch_add_explicit(&phase_bytes, (int64_t)bytes, memory_order_relaxed);
    if (ph != 1) return;
    s->requests++;
    if (t0) h_add(&s->lat, (uint64_t)(now > t0 ? now - t0 : 0));
    if (!ok) return;
    s->bytes += bytes;
    s->records += (uint64_t)O.per_request * (uint64_t)g_nrec;
}

/* Reads what there is; false when the connection is broken. */
static bool p_read(PThread *t, PConn *c)
{
    for (;;) {
        ssize_t k = recv(c->fd, c->rb + c->rn, sizeof c->rb - c->rn, 0);
        if (k < 0) return errno == EAGAIN || errno == EINTR;
        if (k == 0) return false;
        c->rn += (size_t)k;
        bool drained = c->rn < sizeof c->rb;
        size_t at = 0;
        int64_t now = now_ns();
        int ph = phase_now(now);
        while (c->rn - at >= 4) {
            size_t n = get_be(c->rb + at, 4);
            if (n > sizeof c->rb - 4) die("response of %zu bytes to produce", n);
            if (c->rn - at < 4 + n) break;
            Rd r = {c->rb + at + 8, c->rb + at + 4 + n, false};
            at += 4 + n;
            bool ok = true;
            int nt = r_i32(&r);
            for (int i = 0; i < nt; i++) {
                r_str(&r, NULL, 0);
                int np = r_i32(&r);
                for (int p = 0; p < np; p++) {
                    r_i32(&r);
                    int e = r_i16(&r);
                    r_skip(&r, 24);
                    if (e) {
                        ok = false;
                        if (ph == 1) count_err(&t->st, e);
                    }
                }
            }
            if (r.bad || c->fly <= 0) die("malformed produce response");
            int64_t t0 = c->sent[c->head];
            c->head = (c->head + 1) % MAXFLY;
            c->fly--;
            p_credit(&t->st, now, ph, t0, ok);
        }
        memmove(c->rb, c->rb + at, c->rn - at);
        c->rn -= at;
        if (drained) return true;
    }
}

static void *produce_thread(void *arg)
{
    PThread *t = arg;
    prctl(PR_SET_TIMERSLACK, 1000);
    int ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < t->nc; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &t->c[i]};
        epoll_ctl(ep, EPOLL_CTL_ADD, t->c[i].fd, &e);
    }
    double req_ns = O.rate > 0 ? (double)g_batch_len * O.per_request / (O.rate * 1e6 / O.threads) * 1e9 : 0;
    double due = (double)now_ns();
    int rr = 0, live = t->nc;
    int64_t drain_end = 0;
    while (live) {
        int64_t now = now_ns();
        int ph = phase_now(now);
        if (ph == 2 && !drain_end) drain_end = now + 10000000000;
        bool busy = false, idle_send = false;
        for (int j = 0; j < t->nc; j++) {
            PConn *c = &t->c[(rr + j) % t->nc];
            /* acks=0 has no responses to pace it: a few requests a turn, then look at the others */
            for (int burst = 0; burst < 16; burst++) {
                if (!c->total) {
                    if (ph == 2 || (O.acks && c->fly >= O.inflight)) break;
                    int64_t at = now;
                    if (req_ns > 0) {
                        if (due > (double)now) {
                            idle_send = true;
                            break;
                        }
                        at = (int64_t)due;
                        due += req_ns;
                    }
                    p_start(c, at);
                }
                int k = p_push(c);
                if (k < 0) {
                    t->failed = true;
                    goto out;
                }
                if (k == 0) break;
                if (!O.acks) {
                    p_credit(&t->st, now, ph, 0, true);
                    if (burst == 15) idle_send = true, busy = true;
                }
            }
            if ((c->total != 0) != c->want_out) {
                c->want_out = c->total != 0;
                struct epoll_event e = {.events = EPOLLIN | (c->want_out ? EPOLLOUT : 0), .data.ptr = c};
                epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
            }
        }
        rr++;
        if (ph == 2) {
            int left = 0;
            for (int j = 0; j < t->nc; j++) left += t->c[j].fly + (t->c[j].total != 0);
            if (!left || now > drain_end) break;
        }
        struct timespec to = {.tv_nsec = 20000000};
        if (busy)
            to.tv_nsec = 0;
        else if (idle_send) {
            double w = due - (double)now_ns();
            to.tv_nsec = w < 0 ? 0 : w > 2e7 ? 20000000 : (long)w;
        }
        struct epoll_event ev[64];
        int n = epoll_pwait2(ep, ev, 64, &to, NULL);
        for (int i = 0; i < n; i++)
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                if (!p_read(t, ev[i].data.ptr)) {
                    t->failed = true;
                    goto out;
                }
    }
out:
    if (t->failed) fprintf(stderr, "kbench: broker closed a connection: %s\n", strerror(errno));
    if (!O.acks && !t->failed) /* what is still in the sockets belongs to this case: wait for it */
        for (int i = 0; i < t->nc; i++) {
            Buf q = {0};
            struct pollfd pf = {t->c[i].fd, POLLIN, 0};
            req_begin(&q, 18, 0, 1);
            req_end(&q);
            if (send_all(t->c[i].fd, q.p, q.n)) poll(&pf, 1, 10000);
            free(q.p);
        }
    close(ep);
    return NULL;
}

static int cmd_produce(void)
{
    wait_topic(O.topic, 30);
    if (O.inflight < 1 || O.inflight >= MAXFLY) die("--inflight 1..%d", MAXFLY - 1);
    if (O.per_request < 1 || O.per_request > g_parts || O.per_request > 512) die("--per-request 1..partitions");
    if (O.threads > O.connections) O.threads = O.connections;
    g_nrec = records_for(O.batch, O.record);
    size_t cap = BATCH_HDR;
    for (int i = 0; i < g_nrec; i++) cap += record_len(i, O.record);
    g_nbatches = cap > (1 << 18) ? 4 : 16;
    g_batch_stride = (cap + 4095) & ~(size_t)4095;
    size_t all = g_batch_stride * (size_t)g_nbatches;
    g_batches = xmalloc(all);
    for (int i = 0; i < g_nbatches; i++)
        g_batch_len = build_batch(g_batches + (size_t)i * g_batch_stride, g_nrec, O.record);

    PThread *t = xmalloc(sizeof *t * (size_t)O.threads);
    PConn *c = xmalloc(sizeof *c * (size_t)O.connections);
    for (int i = 0; i < O.connections; i++) {
        PConn *x = &c[i];
        if ((x->fd = dial(30)) < 0) die("connect: %s", strerror(errno));
        req_begin(&x->hdr, 0, 7, 0);
        x->corr_at = 8;
        b_str(&x->hdr, NULL);
        b_i16(&x->hdr, O.acks);
        b_i32(&x->hdr, 30000);
        b_i32(&x->hdr, 1);
        b_str(&x->hdr, O.topic);
        b_i32(&x->hdr, O.per_request);
        x->part_at = x->hdr.n;
        b_i32(&x->hdr, 0);
        b_i32(&x->hdr, (int64_t)g_batch_len);
        put_be(x->hdr.p, x->hdr.n - 4 + g_batch_len + (size_t)(O.per_request - 1) * (8 + g_batch_len), 4);
        x->iov = xmalloc(sizeof *x->iov * 2 * (size_t)O.per_request);
        x->phdr = xmalloc(8 * (size_t)O.per_request);
        x->iov[0] = (struct iovec){x->hdr.p, x->hdr.n};
        for (int k = 1; k < O.per_request; k++) {
            put_be(x->phdr + 8 * (k - 1) + 4, g_batch_len, 4);
            x->iov[2 * k] = (struct iovec){x->phdr + 8 * (k - 1), 8};
        }
        x->next_part = i % g_parts;
        x->step = 1;
        struct timeval tv = {0};
        setsockopt(x->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
        setsockopt(x->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
        fcntl(x->fd, F_SETFL, O_NONBLOCK);
    }
    phase_start = now_ns();
    int used = 0;
    for (int i = 0; i < O.threads; i++) {
        t[i].id = i;
        t[i].c = c + used;
        t[i].nc = O.connections / O.threads + (i < O.connections % O.threads);
        used += t[i].nc;
        if (O.threads > 1)
            pthread_create(&t[i].th, NULL, produce_thread, &t[i]);
        else
            produce_thread(&t[i]);
    }
    bool failed = false;
    Stat *s = xmalloc(sizeof *s);
    for (int i = 0; i < O.threads; i++) {
        if (O.threads > 1) pthread_join(t[i].th, NULL);
        stat_merge(s, &t[i].st);
        failed |= t[i].failed;
    }
    if (atomic_load(&phase) < 2) s1 = sample();
    double sec = (double)(s1.t - s0.t) / 1e9;
    printf("{\"cmd\":\"produce\",\"acks\":%d,\"record\":%zu,\"batch\":%zu,\"records_per_batch\":%d,\"partitions\":%d,"
           "\"connections\":%d,"
           "\"inflight\":%d,\"per_request\":%d,\"seconds\":%.3f,\"bytes\":%llu,\"records\":%llu,\"requests\":%llu,"
           "\"mb_s\":%.2f,\"payload_mb_s\":%.2f,\"records_s\":%.0f,\"requests_s\":%.0f,",
           O.acks, O.record, g_batch_len, g_nrec, g_parts, O.connections, O.inflight, O.per_request, sec,
           (unsigned long long)s->bytes, (unsigned long long)s->records, (unsigned long long)s->requests,
           (double)s->bytes / 1e6 / sec, (double)s->records * (double)O.record / 1e6 / sec, (double)s->records / sec,
           (double)s->requests / sec);
    h_print("lat_us", &s->lat);
    print_errors(s);
    print_samples(&s0, &s1);
    printf("}\n");
    return failed ? 1 : 0;
}

/* ---- fetch */

typedef struct {
    int fd;
    size_t a, b, chunk;
    uint8_t buf[65536];
} In;

/* At least n bytes at in->buf + in->a. Reads in->chunk at a time, or exactly what is missing when chunk is 0. */
static bool in_need(In *in, size_t n)
{
    if (in->b - in->a >= n) return true;
    if (in->a) {
        memmove(in->buf, in->buf + in->a, in->b - in->a);
        in->b -= in->a;
        in->a = 0;
    }
    while (in->b < n) {
        size_t room = in->chunk ? sizeof in->buf - in->b : n - in->b;
        ssize_t k = recv(in->fd, in->buf + in->b, room, in->chunk ? 0 : MSG_WAITALL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        in->b += (size_t)k;
    }
    return true;
}
static bool in_skip(In *in, size_t n)
{
    size_t have = in->b - in->a;
    if (have >= n) {
        in->a += n;
        return true;
    }
    n -= have;
    in->a = in->b = 0;
    while (n) { /* dropped inside the kernel, never copied */
        ssize_t k = recv(in->fd, NULL, n, MSG_TRUNC | MSG_WAITALL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        n -= (size_t)k;
    }
    return true;
}
static bool in_int(In *in, int k, int64_t *v)
{
    if (!in_need(in, (size_t)k)) return false;
    uint64_t x = get_be(in->buf + in->a, k);
    in->a += (size_t)k;
    *v = k == 2 ? (int16_t)x : k == 4 ? (int32_t)x : (int64_t)x;
    return true;
}

typedef struct {
    int id;
    Stat st;
    pthread_t th;
    bool failed;
    int64_t *off;
    int *part, np;
    In in;
} FThread;

static void fetch_request(Buf *q, int32_t corr, const char *topic, const int *part, const int64_t *off, int np,
                          size_t max_part, int wait_ms)
{
    req_begin(q, 1, 11, corr);
    b_i32(q, -1);
    b_i32(q, wait_ms);
    b_i32(q, 1);
    uint64_t all = (uint64_t)max_part * (uint64_t)np;
    b_i32(q, all > 0x7fffffff ? 0x7fffffff : (int64_t)all);
    b_i8(q, 0);
    b_i32(q, 0);
    b_i32(q, -1);
    b_i32(q, 1);
    b_str(q, topic);
    b_i32(q, np);
    for (int i = 0; i < np; i++) {
        b_i32(q, part[i]);
        b_i32(q, -1);
        b_i64(q, off[i]);
        b_i64(q, -1);
        b_i32(q, (int64_t)max_part);
    }
    b_i32(q, 0);
    b_str(q, "");
    req_end(q);
}

#define TRY(x)                  \
    do {                        \
        if (!(x)) return false; \
    } while (0)

/* Reads one fetch response, advancing offsets; bytes and records of whole batches are added to *bytes, *records. */
static bool fetch_response(FThread *t, int ph, uint64_t *bytes, uint64_t *wire, uint64_t *records)
{
    In *in = &t->in;
    int64_t v, ntop, nparts, idx, err, hw, lso, start, nab, rem;
    TRY(in_int(in, 4, &v));
    *wire = (uint64_t)v + 4;
    TRY(in_int(in, 4, &v) && in_int(in, 4, &v) && in_int(in, 2, &err) && in_int(in, 4, &v));
    if (err && ph == 1) count_err(&t->st, (int)err);
    TRY(in_int(in, 4, &ntop));
    while (ntop-- > 0) {
        TRY(in_int(in, 2, &v) && in_skip(in, (size_t)v) && in_int(in, 4, &nparts));
        while (nparts-- > 0) {
            TRY(in_int(in, 4, &idx) && in_int(in, 2, &err) && in_int(in, 8, &hw) && in_int(in, 8, &lso) &&
                in_int(in, 8, &start) && in_int(in, 4, &nab));
            if (nab > 0) TRY(in_skip(in, 16 * (size_t)nab));
            TRY(in_int(in, 4, &v) && in_int(in, 4, &rem));
            int k = 0;
            while (k < t->np && t->part[k] != idx) k++;
            if (k == t->np) {
                fprintf(stderr, "kbench: unasked partition %d\n", (int)idx);
                return false;
            }
            if (err) {
                if (ph == 1) count_err(&t->st, (int)err);
                t->off[k] = start >= 0 ? start : 0;
            }
            if (rem <= 0 && !err) t->off[k] = start >= 0 ? start : 0; /* at the end: around again */
            int64_t next = -1;
            while (rem >= BATCH_HDR) {
                TRY(in_need(in, BATCH_HDR));
                const uint8_t *h = in->buf + in->a;
                int64_t total = (int64_t)get_be(h + 8, 4) + 12;
                if (total < BATCH_HDR) {
                    fprintf(stderr, "kbench: bad batch length %lld\n", (long long)total);
                    return false;
                }
                if (total > rem) break; /* cut off by the size limit */
                next = (int64_t)get_be(h, 8) + (int32_t)get_be(h + 23, 4) + 1;
                *records += get_be(h + 57, 4);
                *bytes += (uint64_t)total;
                in->chunk = total < 8192 ? sizeof in->buf : 0;
                TRY(in_skip(in, (size_t)total));
                rem -= total;
            }
            if (rem > 0) TRY(in_skip(in, (size_t)rem));
            if (next >= 0) t->off[k] = next >= hw ? (start >= 0 ? start : 0) : next;
        }
    }
    return true;
}

/* Waits until `bytes` may have been fetched at --rate; *due: the time when the last ones were. */
static void fetch_pace(int64_t *due, uint64_t bytes)
{
    if (O.rate <= 0) return;
    *due += (int64_t)((double)bytes / (O.rate * 1e6 / O.connections) * 1e9);
    int64_t wait = *due - now_ns();
    if (wait > 0) nanosleep(&(struct timespec){wait / 1000000000, wait % 1000000000}, NULL);
}

static void *fetch_thread(void *arg)
{
    FThread *t = arg;
    Buf q = {0};
    int32_t corr = 0;
    int64_t due = now_ns();
    for (;;) {
        int64_t t0 = now_ns();
        if (phase_now(t0) == 2) break;
        fetch_request(&q, corr++, O.topic, t->part, t->off, t->np, O.max_bytes, 500);
        uint64_t bytes = 0, wire = 0, records = 0;
        if (!send_all(t->in.fd, q.p, q.n) || !fetch_response(t, atomic_load(&phase), &bytes, &wire, &records)) {
            fprintf(stderr, "kbench: fetch connection broken: %s\n", strerror(errno));
            t->failed = true;
            break;
        }
        int64_t now = now_ns();
        atomic_fetch_add_explicit(&phase_bytes, (int64_t)bytes, memory_order_relaxed);
        if (phase_now(now) == 1) {
            h_add(&t->st.lat, (uint64_t)(now - t0));
            t->st.requests++;
            t->st.bytes += bytes;
            t->st.wire += wire;
            t->st.records += records;
        }
        fetch_pace(&due, bytes);
    }
    free(q.p);
    return NULL;
}

static int cmd_fetch(void)
{
    wait_topic(O.topic, 30);
    FThread *t = xmalloc(sizeof *t * (size_t)O.connections);
    phase_start = now_ns();
    for (int i = 0; i < O.connections; i++) {
        FThread *x = &t[i];
        x->part = xmalloc(sizeof(int) * (size_t)g_parts);
        x->off = xmalloc(sizeof(int64_t) * (size_t)g_parts);
        if (g_parts >= O.connections)
            for (int p = i; p < g_parts; p += O.connections) x->part[x->np++] = p;
        else
            x->part[x->np++] = i % g_parts;
        x->in.chunk = sizeof x->in.buf;
        if ((x->in.fd = dial(30)) < 0) die("connect: %s", strerror(errno));
    }
    for (int i = 0; i < O.connections; i++)
        if (O.connections > 1)
            pthread_create(&t[i].th, NULL, fetch_thread, &t[i]);
        else
            fetch_thread(&t[i]);
    Stat *s = xmalloc(sizeof *s);
    bool failed = false;
    for (int i = 0; i < O.connections; i++) {
        if (O.connections > 1) pthread_join(t[i].th, NULL);
        stat_merge(s, &t[i].st);
        failed |= t[i].failed;
    }
    if (atomic_load(&phase) < 2) s1 = sample();
    double sec = (double)(s1.t - s0.t) / 1e9;
    printf("{\"cmd\":\"fetch\",\"partitions\":%d,\"connections\":%d,\"max_bytes\":%zu,\"seconds\":%.3f,\"bytes\":%llu,"
           "\"wire_bytes\":%llu,"
           "\"records\":%llu,\"requests\":%llu,\"mb_s\":%.2f,\"records_s\":%.0f,\"requests_s\":%.0f,",
           g_parts, O.connections, O.max_bytes, sec, (unsigned long long)s->bytes, (unsigned long long)s->wire,
           (unsigned long long)s->records, (unsigned long long)s->requests, (double)s->bytes / 1e6 / sec,
           (double)s->records / sec, (double)s->requests / sec);
    h_print("lat_us", &s->lat);
    print_errors(s);
    print_samples(&s0, &s1);
    printf("}\n");
    return failed ? 1 : 0;
}

/* ---- end to end */

static int64_t e2e_end_off(int part)
{ /* ListOffsets v1, latest */
    Buf q = {0}, a = {0};
    int64_t off = 0, end = now_ns() + 10000000000;
    int fd = dial(10), e;
    if (fd < 0) die("connect: %s", strerror(errno));
    for (;;) {
        Rd r;
        req_begin(&q, 2, 1, 1);
        b_i32(&q, -1);
        b_i32(&q, 1);
        b_str(&q, O.topic);
        b_i32(&q, 1);
        b_i32(&q, part);
        b_i64(&q, -1);
        if (!rpc(fd, &q, &a, &r)) die("ListOffsets failed");
        r_i32(&r);
        r_str(&r, NULL, 0);
        r_i32(&r);
        r_i32(&r);
        e = r_i16(&r);
        r_i64(&r);
        off = r_i64(&r);
        if (!e) break;
        if (now_ns() > end) die("ListOffsets: error %d", e);
        usleep(5000); /* KRaft names a leader in Metadata a little before that broker has taken the partition on */
    }
    close(fd);
    free(q.p);
    free(a.p);
    return off;
}

typedef struct {
    Stat st;
    pthread_t th;
    bool failed;
    int64_t sent, got;
    Hist ack;
} E2E;

static void *e2e_consumer(void *arg)
{
    E2E *e = arg;
    prctl(PR_SET_TIMERSLACK, 1000);
    int *part = xmalloc(sizeof(int) * (size_t)g_parts);
    int64_t *off = xmalloc(sizeof(int64_t) * (size_t)g_parts);
    for (int i = 0; i < g_parts; i++) {
        part[i] = i;
        off[i] = e2e_end_off(i);
    }
    int fd = dial(30);
    if (fd < 0) die("connect: %s", strerror(errno));
    Buf q = {0}, a = {0};
    int32_t corr = 0;
    atomic_store(&phase, 0);
    phase_start = now_ns();
    e->got = -1; /* ready */
    while (phase_now(now_ns()) != 2) {
        Rd r;
        fetch_request(&q, corr++, O.topic, part, off, g_parts, O.max_bytes, 500);
        if (!rpc(fd, &q, &a, &r)) {
            e->failed = true;
            break;
        }
        int64_t now = now_ns();
        int ph = phase_now(now);
        r_i32(&r);
        int err = r_i16(&r);
        if (err && ph == 1) count_err(&e->st, err);
        r_i32(&r);
        int nt = r_i32(&r);
        if (ph == 1) e->st.requests++;
        while (nt-- > 0) {
            r_str(&r, NULL, 0);
            int np = r_i32(&r);
            while (np-- > 0) {
                int idx = r_i32(&r);
                err = r_i16(&r);
                if (err && ph == 1) count_err(&e->st, err);
                r_skip(&r, 24);
                int nab = r_i32(&r);
                if (nab > 0) r_skip(&r, 16 * (int64_t)nab);
                r_i32(&r);
                int32_t rem = r_i32(&r);
                if (rem < 0) rem = 0;
                if (r.bad || r.end - r.p < rem || idx < 0 || idx >= g_parts) {
                    e->failed = true;
                    goto out;
                }
                const uint8_t *p = r.p, *end = r.p + rem;
                r.p = end;
                while (end - p >= BATCH_HDR) {
                    int64_t total = (int64_t)get_be(p + 8, 4) + 12;
                    if (total > end - p) break;
                    int64_t base = (int64_t)get_be(p, 8);
                    int n = (int)get_be(p + 57, 4);
                    const uint8_t *x = p + BATCH_HDR;
                    for (int i = 0; i < n && base + i >= 0; i++) {
                        /* length, attributes, timestamp delta, offset delta, key length, value length */
                        uint64_t len = 0, tmp;
                        int sh = 0;
                        do {
                            tmp = *x;
                            len |= (tmp & 0x7f) << sh;
                            sh += 7;
                            x++;
                        } while (tmp & 0x80);
                        const uint8_t *y = x + 1;
                        x += len >> 1;
                        for (int f = 0; f < 4; f++)
                            while (*y++ & 0x80)
                                ;
                        if (base + i < off[idx]) continue;
                        uint64_t ts;
                        memcpy(&ts, y, 8);
                        if (ph == 1 && (int64_t)ts >= s0.t) {
                            h_add(&e->st.lat, now > (int64_t)ts ? (uint64_t)(now - (int64_t)ts) : 0);
                            e->st.records++;
                        }
                    }
                    off[idx] = base + (int32_t)get_be(p + 23, 4) + 1;
                    p += total;
                }
            }
        }
    }
out:
    close(fd);
    return NULL;
}

static int cmd_e2e(void)
{
    if (O.rate <= 0) O.rate = 2000;
    if (O.record < 8) O.record = 8;
    wait_topic(O.topic, 30);
    prctl(PR_SET_TIMERSLACK, 1000);
    E2E *e = xmalloc(sizeof *e);
    pthread_create(&e->th, NULL, e2e_consumer, e);
    while (((volatile E2E *)e)->got != -1) usleep(1000);
    int fd = dial(30);
    if (fd < 0) die("connect: %s", strerror(errno));
    uint8_t *payload = xmalloc(O.record);
    for (size_t i = 0; i < O.record; i++) payload[i] = (uint8_t)rng();
    int max_rec = records_for(O.batch, O.record);
    uint8_t *batch = xmalloc(BATCH_HDR + (O.record + 32) * (size_t)max_rec);
    Buf q = {0};
    int64_t sent_at[MAXFLY], due = now_ns(), step = (int64_t)(1e9 / O.rate);
    int head = 0, fly = 0, part = 0;
    uint8_t rb[8192];
    size_t rn = 0;
    int32_t corr = 0;
    uint64_t produced = 0, late = 0;
    bool failed = false;
    for (;;) {
        int64_t now = now_ns();
        if (phase_now(now) == 2) break;
        while (due <= now && (!O.acks || fly < O.inflight)) {
            int n = 0;
            uint8_t *p = batch + BATCH_HDR;
            while (due <= now && n < max_rec) {
                uint8_t *next, *v = record_put(p, n, O.record, &next);
                memcpy(v, payload, O.record);
                memcpy(v, &due, 8);
                p = next;
                due += step;
                n++;
            }
            if (n > 1) late++;
            size_t total = (size_t)(p - batch);
            batch_finish(batch, total, n, wall_ms());
            req_begin(&q, 0, 7, corr++);
            b_str(&q, NULL);
            b_i16(&q, O.acks);
            b_i32(&q, 30000);
            b_i32(&q, 1);
            b_str(&q, O.topic);
            b_i32(&q, 1);
            b_i32(&q, part);
            b_i32(&q, (int64_t)total);
            b_raw(&q, batch, total);
            req_end(&q);
            part = (part + 1) % g_parts;
            if (O.acks) {
                sent_at[(head + fly) % MAXFLY] = now;
                fly++;
            }
            if (!send_all(fd, q.p, q.n)) {
                failed = true;
                goto out;
            }
            produced += (uint64_t)n;
            now = now_ns();
        }
        int64_t w = due - now;
        if (O.acks && fly >= O.inflight) w = 20000000;
        if (w < 0) w = 0;
        if (w > 20000000) w = 20000000;
        struct timespec to = {.tv_nsec = (long)w};
        struct pollfd pf = {fd, POLLIN, 0};
        if (ppoll(&pf, 1, &to, NULL) > 0) {
            ssize_t k = recv(fd, rb + rn, sizeof rb - rn, MSG_DONTWAIT);
            if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) {
                failed = true;
                break;
            }
            if (k > 0) rn += (size_t)k;
            size_t at = 0;
            int64_t t = now_ns();
            while (rn - at >= 4 && rn - at >= 4 + get_be(rb + at, 4)) {
                size_t len = get_be(rb + at, 4);
                Rd r = {rb + at + 8, rb + at + 4 + len, false};
                r_i32(&r);
                r_str(&r, NULL, 0);
                r_i32(&r);
                r_i32(&r);
                int err = r_i16(&r);
                if (atomic_load(&phase) == 1) {
                    if (err) count_err(&e->st, err);
                    h_add(&e->ack, (uint64_t)(t - sent_at[head]));
                }
                head = (head + 1) % MAXFLY;
                fly--;
                at += 4 + len;
            }
            memmove(rb, rb + at, rn - at);
            rn -= at;
        }
    }
out:
    if (failed) fprintf(stderr, "kbench: produce connection broken\n");
    pthread_join(e->th, NULL);
    double sec = (double)(s1.t - s0.t) / 1e9;
    printf("{\"cmd\":\"e2e\",\"acks\":%d,\"rate\":%.0f,\"record\":%zu,\"partitions\":%d,\"seconds\":%.3f,\"records\":%"
           "llu,\"records_s\":%.0f,"
           "\"fetches\":%llu,\"grouped_sends\":%llu,\"produced\":%llu,",
           O.acks, O.rate, O.record, g_parts, sec, (unsigned long long)e->st.records, (double)e->st.records / sec,
           (unsigned long long)e->st.requests, (unsigned long long)late, (unsigned long long)produced);
    h_print("lat_us", &e->st.lat);
    printf(",");
    h_print("ack_us", &e->ack);
    print_errors(&e->st);
    print_samples(&s0, &s1);
    printf("}\n");
    return failed || e->failed ? 1 : 0;
}

/* ---- create, delete, conns, wait-ready, pretouch */

static int cmd_create(void)
{
    Buf q = {0}, a = {0};
    Rd r;
    char msg[512];
    int n = g_parts ? g_parts : 1;
    int fd = dial((int)O.timeout);
    if (fd < 0) die("connect: %s", strerror(errno));
    Sample b0 = sample();
    req_begin(&q, 19, 4, 1);
    b_i32(&q, 1);
    b_str(&q, O.topic);
    b_i32(&q, n);
    b_i16(&q, O.rf);
    b_i32(&q, 0);
    b_i32(&q, O.nconfig);
    for (int i = 0; i < O.nconfig; i++) {
        char k[256];
        const char *eq = strchr(O.config[i], '=');
        if (!eq || (size_t)(eq - O.config[i]) >= sizeof k) die("--config wants k=v");
        memcpy(k, O.config[i], (size_t)(eq - O.config[i]));
        k[eq - O.config[i]] = 0;
        b_str(&q, k);
        b_str(&q, eq + 1);
    }
    b_i32(&q, (int64_t)(O.timeout * 1000));
    b_i8(&q, 0);
    if (!rpc(fd, &q, &a, &r)) die("create: no answer");
    double ms = (double)(now_ns() - b0.t) / 1e6;
    r_i32(&r);
    r_i32(&r);
    r_str(&r, NULL, 0);
    int err = r_i16(&r);
    r_str(&r, msg, sizeof msg);
    if (err) fprintf(stderr, "kbench: create %s: error %d %s\n", O.topic, err, msg);
    double ready = 0;
    if (!err) {
        g_parts = n;
        wait_topic(O.topic, O.timeout);
        ready = (double)(now_ns() - b0.t) / 1e6;
    }
    Sample b1 = sample();
    printf("{\"cmd\":\"create\",\"topic\":\"%s\",\"partitions\":%d,\"error\":%d,\"ms\":%.2f,\"ready_ms\":%.2f", O.topic,
           n, err, ms, ready);
    print_samples(&b0, &b1);
    printf("}\n");
    return err ? 1 : 0;
}

static int cmd_delete(void)
{
    Buf q = {0}, a = {0};
    Rd r;
    int fd = dial((int)O.timeout);
    if (fd < 0) die("connect: %s", strerror(errno));
    int64_t t0 = now_ns();
    req_begin(&q, 20, 3, 1);
    b_i32(&q, 1);
    b_str(&q, O.topic);
    b_i32(&q, (int64_t)(O.timeout * 1000));
    if (!rpc(fd, &q, &a, &r)) die("delete: no answer");
    r_i32(&r);
    r_i32(&r);
    r_str(&r, NULL, 0);
    int err = r_i16(&r);
    printf("{\"cmd\":\"delete\",\"topic\":\"%s\",\"error\":%d,\"ms\":%.2f}\n", O.topic, err,
           (double)(now_ns() - t0) / 1e6);
    return err ? 1 : 0;
}

static int *g_fds;
static _Atomic int conn_next, conn_ok;
static Hist conn_lat[8];

static void *conns_thread(void *arg)
{
    Hist *h = arg;
    Buf q = {0}, a = {0};
    Meta m;
    int i;
    while ((i = atomic_fetch_add(&conn_next, 1)) < O.count) {
        int64_t t0 = now_ns();
        int fd = dial(15);
        if (fd >= 0 && api_versions(fd, &q, &a) && metadata(fd, &q, &a, NULL, &m)) {
            atomic_fetch_add(&conn_ok, 1);
            h_add(h, (uint64_t)(now_ns() - t0));
        } else if (fd >= 0) {
            close(fd);
            fd = -1;
        }
        g_fds[i] = fd;
    }
    free(q.p);
    free(a.p);
    return NULL;
}

static int cmd_conns(void)
{
    struct rlimit rl;
    getrlimit(RLIMIT_NOFILE, &rl);
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    g_fds = xmalloc(sizeof(int) * (size_t)O.count);
    Sample a = sample();
    pthread_t th[8];
    for (int i = 0; i < 8; i++) pthread_create(&th[i], NULL, conns_thread, &conn_lat[i]);
    for (int i = 0; i < 8; i++) pthread_join(th[i], NULL);
    Sample b = sample();
    Hist *h = xmalloc(sizeof *h);
    for (int i = 0; i < 8; i++) h_merge(h, &conn_lat[i]);
    if (O.hold > 0) usleep((useconds_t)(O.hold * 1e6));
    Sample c = sample();
    int alive = 0;
    for (int i = 0; i < O.count; i++) {
        char x;
        if (g_fds[i] >= 0 && recv(g_fds[i], &x, 1, MSG_DONTWAIT | MSG_PEEK) < 0 &&
            (errno == EAGAIN || errno == EWOULDBLOCK))
            alive++;
    }
    printf("{\"cmd\":\"conns\",\"count\":%d,\"ok\":%d,\"alive_after_hold\":%d,\"ms\":%.1f,\"rss_before_kb\":%ld,\"rss_"
           "after_kb\":%ld,"
           "\"rss_after_hold_kb\":%ld,\"hold_cpu_s\":%.3f,",
           O.count, atomic_load(&conn_ok), alive, (double)(b.t - a.t) / 1e6, a.rss_kb, b.rss_kb, c.rss_kb,
           c.broker_cpu - b.broker_cpu);
    h_print("lat_us", h);
    print_samples(&a, &b);
    printf("}\n");
    return atomic_load(&conn_ok) == O.count ? 0 : 1;
}

static int cmd_wait_ready(void)
{
    Buf q = {0}, a = {0};
    Meta m;
    int64_t t0 = now_ns(), end = t0 + (int64_t)(O.timeout * 1e9);
    do {
        int fd = dial(5);
        bool ok = fd >= 0 && api_versions(fd, &q, &a) && metadata(fd, &q, &a, NULL, &m) && m.brokers > 0 && m.self &&
                  m.controller >= 0 && m.controller_live;
        if (fd >= 0) close(fd);
        if (ok) {
            printf("{\"cmd\":\"wait-ready\",\"ms\":%.2f,\"brokers\":%d,\"controller\":%d}\n",
                   (double)(now_ns() - t0) / 1e6, m.brokers, m.controller);
            return 0;
        }
        usleep(1000);
    } while (now_ns() < end);
    fprintf(stderr, "kbench: not ready within %.0f s\n", O.timeout);
    return 1;
}

/* Touches memory and gives it back. In a virtual machine whose host reclaims free guest pages, the first touch
 * of a page costs far more than the kernel's own work; run this right before a case that fills the page cache. */
static int cmd_pretouch(void)
{
    size_t n = (size_t)(O.gb * 1e9);
    int64_t t0 = now_ns();
    uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("mmap: %s", strerror(errno));
    madvise(p, n, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i += 4096) p[i] = 1;
    double s = (double)(now_ns() - t0) / 1e9;
    printf("{\"cmd\":\"pretouch\",\"gb\":%.2f,\"seconds\":%.3f}\n", O.gb, s);
    return 0;
}

static const char usage[] =
    "usage: kbench COMMAND --broker HOST:PORT [options]\n"
    "  produce    --topic T --partitions N --record-size B --batch-bytes B --connections C --inflight I --acks 0|1|-1\n"
    "             --seconds S [--warmup S] [--rate MB/s] [--per-request P] [--threads T] [--cap-mb M]\n"
    "  fetch      --topic T --partitions N --connections C --max-bytes B --seconds S [--warmup S] [--cap-mb M]\n"
    "             [--rate MB/s]\n"
    "  e2e        --topic T --partitions N --rate MSGS/s --record-size B --acks A --seconds S [--warmup S] [--inflight "
    "I]\n"
    "  create     --topic T --partitions N --rf R [--config k=v]... [--timeout S]\n"
    "  delete     --topic T [--timeout S]\n"
    "  conns      --count N --hold S\n"
    "  wait-ready --timeout S\n"
    "  pretouch   --gb G\n"
    "Every command takes --pid P[,P...]: the broker's processes, whose CPU and memory are then reported for the "
    "window.\n"
    "--cap-mb ends the window early after that many MB (and the warm-up after half of it).\n";

int main(int argc, char **argv)
{
    static const struct option opts[] = {
        {"broker", 1, 0, 'b'},      {"topic", 1, 0, 't'},       {"partitions", 1, 0, 'p'}, {"record-size", 1, 0, 'r'},
        {"batch-bytes", 1, 0, 'B'}, {"connections", 1, 0, 'c'}, {"inflight", 1, 0, 'i'},   {"acks", 1, 0, 'a'},
        {"seconds", 1, 0, 's'},     {"warmup", 1, 0, 'w'},      {"rate", 1, 0, 'R'},       {"per-request", 1, 0, 'P'},
        {"threads", 1, 0, 'T'},     {"cap-mb", 1, 0, 'm'},      {"max-bytes", 1, 0, 'M'},  {"rf", 1, 0, 'f'},
        {"config", 1, 0, 'C'},      {"count", 1, 0, 'n'},       {"hold", 1, 0, 'H'},       {"timeout", 1, 0, 'o'},
        {"pid", 1, 0, 'I'},         {"gb", 1, 0, 'g'},          {"help", 0, 0, 'h'},       {0, 0, 0, 0}};
    if (argc < 2) {
        fputs(usage, stderr);
        return 2;
    }
    const char *cmd = argv[1], *broker = NULL;
    int o;
    optind = 2;
    while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1) switch (o) {
        case 'b': broker = optarg; break;
        case 't': O.topic = optarg; break;
        case 'p': g_parts = atoi(optarg); break;
        case 'r': O.record = (size_t)atoll(optarg); break;
        case 'B': O.batch = (size_t)atoll(optarg); break;
        case 'c': O.connections = atoi(optarg); break;
        case 'i': O.inflight = atoi(optarg); break;
        case 'a': O.acks = !strcmp(optarg, "all") ? -1 : atoi(optarg); break;
        case 's': O.seconds = atof(optarg); break;
        case 'w': O.warmup = atof(optarg); break;
        case 'R': O.rate = atof(optarg); break;
        case 'P': O.per_request = atoi(optarg); break;
        case 'T': O.threads = atoi(optarg); break;
        case 'm': O.cap_mb = atof(optarg); break;
        case 'M': O.max_bytes = (size_t)atoll(optarg); break;
        case 'f': O.rf = atoi(optarg); break;
        case 'C':
            if (O.nconfig < 16) O.config[O.nconfig++] = optarg;
            break;
        case 'n': O.count = atoi(optarg); break;
        case 'H': O.hold = atof(optarg); break;
        case 'o': O.timeout = atof(optarg); break;
        case 'g': O.gb = atof(optarg); break;
        case 'I':
            for (char *s = strtok(optarg, ","); s && g_npids < 16; s = strtok(NULL, ",")) g_pids[g_npids++] = atoi(s);
            break;
        default: fputs(usage, stderr); return o == 'h' ? 0 : 2;
        }
    if (O.connections < 1 || O.threads < 1) die("--connections and --threads want at least 1");
    if (!strcmp(cmd, "pretouch")) return cmd_pretouch();
    if (!broker) die("--broker HOST:PORT is missing");
    resolve(broker);
    if (!strcmp(cmd, "produce")) return cmd_produce();
    if (!strcmp(cmd, "fetch")) return cmd_fetch();
    if (!strcmp(cmd, "e2e")) return cmd_e2e();
    if (!strcmp(cmd, "create")) return cmd_create();
    if (!strcmp(cmd, "delete")) return cmd_delete();
    if (!strcmp(cmd, "conns")) return cmd_conns();
    if (!strcmp(cmd, "wait-ready")) return cmd_wait_ready();
    fputs(usage, stderr);
    return 2;
}
