/* limit.c: the yardstick, the least that a broker must do for a record on this machine.
 *
 * One thread, one epoll.  Produce: recv the frame, CRC32C of the batch by the CPU's instruction, patch the base offset,
 * one pwrite to the partition's file (page cache, no fsync), a small answer of fixed form.  Fetch: sendfile of the
 * partition's file from the offset asked for.  There is no durability, no index on disk, no replication, there are no
 * limits and no checks of the records.
 *
 * It is a yardstick and no proven floor: with 8 connections and 1 MB batches, and in fetches, a broker can come level
 * with it or below.  It speaks just the requests that kbench sends, in just those versions, and forgets its topics when
 * it stops. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
    perror(what);
    exit(1);
}
static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static void *grow(void *p, size_t n)
{
    p = realloc(p, n);
    if (!p) die("realloc");
    return p;
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

/* ---- CRC32C: three interleaved streams of crc32q */

#define LANE 1024
static uint32_t shift1[4][256], shift2[4][256]; /* what LANE and 2*LANE zero bytes do to a CRC */

static uint32_t soft_zeros(uint32_t c, size_t n)
{
    while (n--)
        for (int k = 0; k < 8; k++) c = (c & 1) ? (c >> 1) ^ 0x82f63b78u : c >> 1;
    return c;
}
static void crc_init(void)
{
    uint32_t bit1[32], bit2[32]; /* the map is linear: make it from the images of single bits */
    for (int i = 0; i < 32; i++) {
        bit1[i] = soft_zeros(1u << i, LANE);
        bit2[i] = soft_zeros(1u << i, 2 * LANE);
    }
    for (int b = 0; b < 4; b++)
        for (int v = 0; v < 256; v++)
            for (int i = 0; i < 8; i++)
                if (v >> i & 1) {
                    shift1[b][v] ^= bit1[8 * b + i];
                    shift2[b][v] ^= bit2[8 * b + i];
                }
}
static uint32_t shift(uint32_t t[4][256], uint32_t c)
{
    return t[0][c & 255] ^ t[1][c >> 8 & 255] ^ t[2][c >> 16 & 255] ^ t[3][c >> 24];
}
#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *p, size_t n)
{
    uint64_t a = 0xffffffffu;
    while (n >= 3 * LANE) {
        uint64_t b = 0, c = 0, x, y, z;
        for (size_t i = 0; i < LANE; i += 8) {
            memcpy(&x, p + i, 8);
            memcpy(&y, p + LANE + i, 8);
            memcpy(&z, p + 2 * LANE + i, 8);
            a = __builtin_ia32_crc32di(a, x);
            b = __builtin_ia32_crc32di(b, y);
            c = __builtin_ia32_crc32di(c, z);
        }
        a = shift(shift2, (uint32_t)a) ^ shift(shift1, (uint32_t)b) ^ (uint32_t)c;
        p += 3 * LANE;
        n -= 3 * LANE;
    }
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        a = __builtin_ia32_crc32di(a, x);
    }
    uint32_t r = (uint32_t)a;
    while (n--) r = __builtin_ia32_crc32qi(r, *p++);
    return ~r;
}
#else
static uint32_t crc32c(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;
    while (n--) {
        c ^= *p++;
        c = soft_zeros(c, 1);
    }
    return ~c;
}
#endif

/* ---- topics */

typedef struct {
    int64_t base, pos;
} Ent;
typedef struct {
    int fd;
    int64_t size, next;
    Ent *ent;
    size_t n, cap;
} Part;
typedef struct {
    char name[256];
    int np;
    Part *part;
} Topic;

static Topic *topics;
static int ntopics;
static const char *dir;
static int port = 9092, sndbuf, rcvbuf;

static Topic *topic_find(const char *s, size_t n)
{
    for (int i = 0; i < ntopics; i++)
        if (strlen(topics[i].name) == n && !memcmp(topics[i].name, s, n)) return &topics[i];
    return NULL;
}
static void part_path(char *out, size_t cap, const Topic *t, int p)
{
    snprintf(out, cap, "%s/%s-%d.log", dir, t->name, p);
}

static void topic_create(const char *s, size_t n, int np)
{
    topics = grow(topics, sizeof *topics * (size_t)(ntopics + 1));
    Topic *t = &topics[ntopics++];
    memset(t, 0, sizeof *t);
    if (n >= sizeof t->name) n = sizeof t->name - 1;
    memcpy(t->name, s, n);
    t->np = np;
    t->part = calloc((size_t)np, sizeof *t->part);
    for (int i = 0; i < np; i++) {
        char path[1024];
        part_path(path, sizeof path, t, i);
        t->part[i].fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (t->part[i].fd < 0) die(path);
    }
}
static void topic_delete(Topic *t)
{
    for (int i = 0; i < t->np; i++) {
        char path[1024];
        part_path(path, sizeof path, t, i);
        close(t->part[i].fd);
        unlink(path);
        free(t->part[i].ent);
    }
    free(t->part);
    *t = topics[--ntopics];
}

/* ---- connections */

typedef struct {
    int fd;
    int64_t off;
    size_t len;
} Chunk; /* fd < 0: bytes of the connection's mem at off */
typedef struct Conn {
    int fd, slot;
    uint8_t *in;
    size_t in_n, in_cap;
    uint8_t *mem;
    size_t mem_n, mem_cap;
    Chunk *ch;
    size_t ch_n, ch_cap, ch_at;
    uint8_t *park; /* a Fetch waiting for data */
    size_t park_n;
    int64_t park_until;
    uint32_t ev;
    bool dead;
} Conn;

static Conn **conns;
static int nconns, conns_cap, nparked, ep;
static bool appended;

static uint8_t *mem(Conn *c, size_t n)
{ /* n more bytes of memory output */
    if (c->mem_n + n > c->mem_cap) {
        c->mem_cap = (c->mem_n + n) * 2;
        c->mem = grow(c->mem, c->mem_cap);
    }
    Chunk *last = c->ch_n ? &c->ch[c->ch_n - 1] : NULL;
    if (last && last->fd < 0 && (size_t)last->off + last->len == c->mem_n)
        last->len += n;
    else {
        if (c->ch_n == c->ch_cap) c->ch = grow(c->ch, sizeof *c->ch * (c->ch_cap = c->ch_cap * 2 + 4));
        c->ch[c->ch_n++] = (Chunk){-1, (int64_t)c->mem_n, n};
    }
    c->mem_n += n;
    return c->mem + c->mem_n - n;
}
static void w(Conn *c, uint64_t v, int k)
{
    put_be(mem(c, (size_t)k), v, k);
}
static void wstr(Conn *c, const char *s)
{
    size_t n = strlen(s);
    w(c, n, 2);
    memcpy(mem(c, n), s, n);
}
static void wfile(Conn *c, int fd, int64_t off, size_t len)
{
    if (c->ch_n == c->ch_cap) c->ch = grow(c->ch, sizeof *c->ch * (c->ch_cap = c->ch_cap * 2 + 4));
    c->ch[c->ch_n++] = (Chunk){fd, off, len};
}

static bool flush(Conn *c)
{ /* false: connection gone */
    while (c->ch_at < c->ch_n) {
        Chunk *k = &c->ch[c->ch_at];
        while (k->len) {
            ssize_t n;
            if (k->fd < 0)
                n = send(c->fd, c->mem + k->off, k->len, MSG_NOSIGNAL | (c->ch_at + 1 < c->ch_n ? MSG_MORE : 0));
            else {
                off_t at = k->off;
                n = sendfile(c->fd, k->fd, &at, k->len);
            }
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && errno == EAGAIN) return true;
            if (n <= 0) return false;
            k->off += n;
            k->len -= (size_t)n;
        }
        c->ch_at++;
    }
    c->ch_at = c->ch_n = c->mem_n = 0;
    return true;
}

typedef struct {
    const uint8_t *p, *end;
} Rd;
static int64_t g(Rd *r, int k)
{
    if (r->end - r->p < k) {
        r->p = r->end;
        return 0;
    }
    uint64_t v = get_be(r->p, k);
    r->p += k;
    return k == 1 ? (int8_t)v : k == 2 ? (int16_t)v : k == 4 ? (int32_t)v : (int64_t)v;
}
static const char *gstr(Rd *r, size_t *n)
{
    int64_t k = g(r, 2);
    if (k < 0) k = 0;
    if (r->end - r->p < k) k = r->end - r->p;
    const char *s = (const char *)r->p;
    r->p += k;
    *n = (size_t)k;
    return s;
}

static void do_produce(Conn *c, Rd *r, uint32_t corr)
{
    size_t n;
    gstr(r, &n);
    int acks = (int)g(r, 2);
    g(r, 4);
    int nt = (int)g(r, 4);
    size_t at = c->mem_n;
    if (acks) {
        w(c, 0, 4);
        w(c, corr, 4);
        w(c, (uint64_t)nt, 4);
    }
    while (nt-- > 0) {
        const char *s = gstr(r, &n);
        Topic *t = topic_find(s, n);
        int np = (int)g(r, 4);
        if (acks) {
            w(c, n, 2);
            memcpy(mem(c, n), s, n);
            w(c, (uint64_t)np, 4);
        }
        while (np-- > 0) {
            int idx = (int)g(r, 4), err = 3;
            int64_t len = g(r, 4), base = -1;
            if (len < 0 || r->end - r->p < len) len = r->end - r->p;
            uint8_t *b = (uint8_t *)r->p;
            r->p += len;
            if (t && idx >= 0 && idx < t->np && len >= 61) {
                Part *q = &t->part[idx];
                err = 2;
                if (crc32c(b + 21, (size_t)len - 21) == (uint32_t)get_be(b + 17, 4)) {
                    err = 0;
                    base = q->next;
                    put_be(b, (uint64_t)base, 8);
                    put_be(b + 12, 0, 4);
                    if (pwrite(q->fd, b, (size_t)len, q->size) != len) die("pwrite");
                    if (q->n == q->cap) q->ent = grow(q->ent, sizeof(Ent) * (q->cap = q->cap * 2 + 64));
                    q->ent[q->n++] = (Ent){base, q->size};
                    q->size += len;
                    q->next += (int64_t)get_be(b + 23, 4) + 1;
                    appended = true;
                }
            }
            if (acks) {
                w(c, (uint64_t)idx, 4);
                w(c, (uint64_t)err, 2);
                w(c, (uint64_t)base, 8);
                w(c, ~0ull, 8);
                w(c, 0, 8);
            }
        }
    }
    if (acks) {
        w(c, 0, 4);
        put_be(c->mem + at, c->mem_n - at - 4, 4);
    }
}

/* false: nothing to give yet and still time to wait */
static bool do_fetch(Conn *c, const uint8_t *p, size_t len, bool last)
{
    Rd r = {p + 8, p + len};
    uint32_t corr = (uint32_t)get_be(p + 4, 4);
    size_t n;
    gstr(&r, &n);
    g(&r, 4);
    int wait = (int)g(&r, 4);
    int64_t min = g(&r, 4), max = g(&r, 4);
    g(&r, 1);
    g(&r, 4);
    g(&r, 4);
    int64_t got = 0;
    for (int pass = 0; pass < 2; pass++) { /* first only count, then answer */
        Rd q = r;
        int64_t left = max;
        size_t at = c->mem_n, files = 0;
        int nt = (int)g(&q, 4);
        if (pass) {
            w(c, 0, 4);
            w(c, corr, 4);
            w(c, 0, 4);
            w(c, 0, 2);
            w(c, 0, 4);
            w(c, (uint64_t)nt, 4);
        }
        while (nt-- > 0) {
            const char *s = gstr(&q, &n);
            Topic *t = topic_find(s, n);
            int np = (int)g(&q, 4);
            if (pass) {
                w(c, n, 2);
                memcpy(mem(c, n), s, n);
                w(c, (uint64_t)np, 4);
            }
            while (np-- > 0) {
                int idx = (int)g(&q, 4);
                g(&q, 4);
                int64_t off = g(&q, 8);
                g(&q, 8);
                int64_t pmax = g(&q, 4), pos = 0, k = 0;
                Part *x = t && idx >= 0 && idx < t->np ? &t->part[idx] : NULL;
                if (x && off < x->next && x->n && left > 0) {
                    size_t lo = 0, hi = x->n;
                    while (hi - lo > 1) {
                        size_t m = (lo + hi) / 2;
                        if (x->ent[m].base <= off)
                            lo = m;
                        else
                            hi = m;
                    }
                    pos = x->ent[lo].pos;
                    int64_t first = (lo + 1 < x->n ? x->ent[lo + 1].pos : x->size) - pos;
                    k = x->size - pos;
                    int64_t lim = pmax < left ? pmax : left;
                    if (lim < first) lim = first;
                    if (k > lim) k = lim;
                }
                left -= k;
                got += pass ? 0 : k;
                if (pass) {
                    w(c, (uint64_t)idx, 4);
                    w(c, x ? 0 : 3, 2);
                    w(c, x ? (uint64_t)x->next : 0, 8);
                    w(c, x ? (uint64_t)x->next : 0, 8);
                    w(c, 0, 8);
                    w(c, 0, 4);
                    w(c, ~0ull, 4);
                    w(c, (uint64_t)k, 4);
                    if (k) {
                        wfile(c, x->fd, pos, (size_t)k);
                        files += (size_t)k;
                    }
                }
            }
        }
        if (!pass && got < min && wait > 0 && !last) return false;
        if (pass) put_be(c->mem + at, c->mem_n - at - 4 + files, 4);
    }
    return true;
}

static void do_request(Conn *c, uint8_t *p, size_t len)
{
    int api = (int)get_be(p, 2);
    uint32_t corr = (uint32_t)get_be(p + 4, 4);
    Rd r = {p + 8, p + len};
    size_t n, at;
    gstr(&r, &n);
    if (api == 0) {
        do_produce(c, &r, corr);
        return;
    }
    if (api == 1) {
        if (!do_fetch(c, p, len, false)) {
            c->park = grow(c->park, len);
            memcpy(c->park, p, len);
            c->park_n = len;
            Rd f = {p + 8, p + len};
            gstr(&f, &n);
            g(&f, 4);
            c->park_until = now_ms() + g(&f, 4);
            nparked++;
        }
        return;
    }
    at = c->mem_n;
    w(c, 0, 4);
    w(c, corr, 4);
    if (api == 18) {
        static const int v[7][2] = {{0, 7}, {1, 11}, {2, 1}, {3, 7}, {18, 0}, {19, 4}, {20, 3}};
        w(c, 0, 2);
        w(c, 7, 4);
        for (int i = 0; i < 7; i++) {
            w(c, (uint64_t)v[i][0], 2);
            w(c, (uint64_t)v[i][1], 2);
            w(c, (uint64_t)v[i][1], 2);
        }
    } else if (api == 3) {
        w(c, 0, 4);
        w(c, 1, 4);
        w(c, 1, 4);
        wstr(c, "127.0.0.1");
        w(c, (uint64_t)port, 4);
        w(c, 0xffff, 2);
        wstr(c, "limit");
        w(c, 1, 4);
        int nt = (int)g(&r, 4);
        if (nt < 0) nt = 0;
        w(c, (uint64_t)nt, 4);
        while (nt-- > 0) {
            const char *s = gstr(&r, &n);
            Topic *t = topic_find(s, n);
            w(c, t ? 0 : 3, 2);
            w(c, n, 2);
            memcpy(mem(c, n), s, n);
            w(c, 0, 1);
            int np = t ? t->np : 0;
            w(c, (uint64_t)np, 4);
            for (int i = 0; i < np; i++) {
                w(c, 0, 2);
                w(c, (uint64_t)i, 4);
                w(c, 1, 4);
                w(c, 0, 4);
                w(c, 1, 4);
                w(c, 1, 4);
                w(c, 1, 4);
                w(c, 1, 4);
                w(c, 0, 4);
            }
        }
    } else if (api == 2) { /* ListOffsets: one partition */
        g(&r, 4);
        g(&r, 4);
        const char *s = gstr(&r, &n);
        Topic *t = topic_find(s, n);
        g(&r, 4);
        int idx = (int)g(&r, 4);
        int64_t ts = g(&r, 8);
        bool ok = t && idx >= 0 && idx < t->np;
        w(c, 1, 4);
        w(c, n, 2);
        memcpy(mem(c, n), s, n);
        w(c, 1, 4);
        w(c, (uint64_t)idx, 4);
        w(c, ok ? 0 : 3, 2);
        w(c, ~0ull, 8);
        w(c, ok && ts == -1 ? (uint64_t)t->part[idx].next : 0, 8);
    } else if (api == 19 || api == 20) {
        int nt = (int)g(&r, 4);
        w(c, 0, 4);
        w(c, (uint64_t)nt, 4);
        while (nt-- > 0) {
            const char *s = gstr(&r, &n);
            Topic *t = topic_find(s, n);
            int err = api == 19 ? (t ? 36 : 0) : (t ? 0 : 3);
            w(c, n, 2);
            memcpy(mem(c, n), s, n);
            w(c, (uint64_t)err, 2);
            if (api == 20) {
                if (t) topic_delete(t);
                continue;
            }
            w(c, 0xffff, 2);
            if (!t)
                topic_create(s, n, (int)g(&r, 4));
            else
                g(&r, 4);
            g(&r, 2);
            int na = (int)g(&r, 4);
            while (na-- > 0) {
                g(&r, 4);
                for (int k = (int)g(&r, 4); k > 0; k--) g(&r, 4);
            }
            int nc = (int)g(&r, 4);
            while (nc-- > 0) {
                gstr(&r, &n);
                gstr(&r, &n);
            }
        }
    } else {
        c->dead = true;
        return;
    }
    put_be(c->mem + at, c->mem_n - at - 4, 4);
}

static void interest(Conn *c)
{
    uint32_t e = (c->in_n < c->in_cap ? EPOLLIN : 0) | (c->ch_n ? EPOLLOUT : 0);
    if (e == c->ev) return;
    c->ev = e;
    struct epoll_event x = {.events = e, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &x);
}

/* Whole frames in the buffer; stops while an answer is waiting to go out or a fetch is parked. */
static void serve(Conn *c)
{
    size_t at = 0;
    while (!c->dead && !c->park_n && (c->ch_n == 0 || c->ch[c->ch_n - 1].fd < 0) && c->in_n - at >= 4) {
        size_t n = get_be(c->in + at, 4);
        if (n < 8 || n > (256u << 20)) {
            c->dead = true;
            break;
        }
        if (c->in_n - at < 4 + n) {
            if (4 + n > c->in_cap) c->in = grow(c->in, c->in_cap = 4 + n < (1 << 18) ? 1 << 18 : 4 + n);
            break;
        }
        do_request(c, c->in + at + 4, n);
        at += 4 + n;
    }
    if (at) {
        memmove(c->in, c->in + at, c->in_n - at);
        c->in_n -= at;
    }
    if (c->ch_n && !flush(c)) c->dead = true;
}

static void readable(Conn *c)
{
    size_t room = c->in_cap - c->in_n;
    if (c->in_n >= 4) { /* a big frame: read to its end and no further, so nothing need be moved */
        size_t n = get_be(c->in, 4) + 4;
        if (n > 65536 && n > c->in_n && n - c->in_n < room) room = n - c->in_n;
    } else if (c->in_cap > (1 << 18))
        room = (1 << 16) - c->in_n;
    ssize_t k = recv(c->fd, c->in + c->in_n, room, 0);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (k <= 0) {
        c->dead = true;
        return;
    }
    c->in_n += (size_t)k;
    serve(c);
}

static void drop(Conn *c)
{
    if (c->park_n) nparked--;
    close(c->fd);
    conns[c->slot] = conns[--nconns];
    conns[c->slot]->slot = c->slot;
    free(c->in);
    free(c->mem);
    free(c->ch);
    free(c->park);
    free(c);
}

static void parked(int64_t now)
{
    for (int i = 0; i < nconns; i++) {
        Conn *c = conns[i];
        if (!c->park_n || c->dead || !do_fetch(c, c->park, c->park_n, now >= c->park_until)) continue;
        c->park_n = 0;
        nparked--;
        if (!flush(c)) c->dead = true;
        if (!c->dead) serve(c);
        interest(c);
    }
}

static void on_term(int s)
{
    (void)s;
    while (ntopics) topic_delete(&topics[0]);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "serve")) {
        fprintf(stderr, "usage: limit serve --port P --dir DIR\n");
        return 2;
    }
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--port"))
            port = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--dir"))
            dir = argv[i + 1];
        else if (!strcmp(argv[i], "--sndbuf"))
            sndbuf = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rcvbuf"))
            rcvbuf = atoi(argv[i + 1]);
    }
    if (!dir) {
        fprintf(stderr, "limit: --dir is missing\n");
        return 2;
    }
    mkdir(dir, 0755);
    struct rlimit rl;
    getrlimit(RLIMIT_NOFILE, &rl);
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    crc_init();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_term);
    signal(SIGINT, on_term);
    int ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (rcvbuf) setsockopt(ls, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(ls, (struct sockaddr *)&a, sizeof a) || listen(ls, 4096)) die("listen");
    ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
    for (;;) {
        struct epoll_event ev[128];
        int n = epoll_wait(ep, ev, 128, nparked ? 5 : -1);
        bool any_dead = false;
        for (int i = 0; i < n; i++) {
            Conn *c = ev[i].data.ptr;
            if (!c) {
                int fd;
                while ((fd = accept4(ls, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    if (sndbuf) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
                    c = calloc(1, sizeof *c);
                    if (!c) die("calloc");
                    c->fd = fd;
                    c->in = grow(NULL, c->in_cap = 4096);
                    c->slot = nconns;
                    if (nconns == conns_cap)
                        conns = grow(conns, sizeof *conns * (size_t)(conns_cap = conns_cap * 2 + 64));
                    conns[nconns++] = c;
                    c->ev = EPOLLIN;
                    struct epoll_event x = {.events = EPOLLIN, .data.ptr = c};
                    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &x);
                }
                continue;
            }
            if (ev[i].events & EPOLLOUT) {
                if (!flush(c))
                    c->dead = true;
                else if (!c->ch_n)
                    serve(c);
            }
            if (!c->dead && ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                if (c->in_cap == 4096 && c->in_n == 4096) c->in = grow(c->in, c->in_cap = 1 << 18);
                readable(c);
            }
            if (!c->dead) interest(c);
            any_dead |= c->dead;
        }
        if (nparked) {
            int64_t now = now_ms();
            if (appended || n == 0) parked(now);
        }
        appended = false;
        if (any_dead)
            for (int i = 0; i < nconns;) {
                if (conns[i]->dead)
                    drop(conns[i]);
                else
                    i++;
            }
    }
}
