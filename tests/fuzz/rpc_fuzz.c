/* A peer of a connection between brokers may send anything, cut into pieces anyhow: an answer is decoded or the
 * connection ends, every call is answered once, and nothing is kept.
 *
 * Input: one byte that says how the rest is cut and whether it stands for all that the peer sends or comes behind an
 * answer to ApiVersions; then what it sends. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"
#include "rpc/rpc.h"
#include "wire/gen/api_versions.h"
#include "wire/gen/fetch.h"
#include "wire/gen/metadata.h"
#include "wire/gen/response_header.h"

enum { CALLS = 4, TURNS_MAX = 100000 };

struct fake_sock {
    struct sock sock;
    sock_ready_fn ready;
    void *arg;
    const uint8_t *data;
    size_t size, piece;
    bool open;
};

static struct fake_sock fake;

static enum err fake_connect(struct net *n, struct loop *l, const struct net_addr *to, struct sock **out)
{
    (void)l;
    (void)to;
    fake.sock.net = n;
    fake.open = true;
    *out = &fake.sock;
    return OK;
}

static enum err fake_attach(struct sock *s, struct loop *l, sock_ready_fn ready, void *arg)
{
    (void)s;
    (void)l;
    fake.ready = ready;
    fake.arg = arg;
    return OK;
}

/* A piece at a time; behind the last one the end. */
static enum err fake_recv(struct sock *s, void *out, size_t size, size_t *got)
{
    (void)s;
    *got = MIN(MIN(size, fake.piece), fake.size);
    if (*got == 0) return OK;
    memcpy(out, fake.data, *got);
    fake.data += *got;
    fake.size -= *got;
    return OK;
}

static enum err fake_send(struct sock *s, const struct iovec *iov, int count, bool more, size_t *sent)
{
    (void)s;
    (void)more;
    *sent = 0;
    for (int i = 0; i < count; i++) *sent += iov[i].iov_len;
    return OK;
}

static void fake_set_buffers(struct sock *s, int send_bytes, int receive_bytes)
{
    (void)s;
    (void)send_bytes;
    (void)receive_bytes;
}

static void fake_close(struct sock *s)
{
    (void)s;
    ASSERT(fake.open);
    fake.open = false;
}

static int64_t mono_us(struct clock *c)
{
    (void)c;
    return 1;
}

static int told, ended;

static void on_done(struct rpc_call *call)
{
    told++;
    ASSERT((call->err == OK) == (call->response != NULL));
}

static void on_ended(void *arg, enum rpc_end end, const char *text)
{
    (void)arg;
    ASSERT(end == RPC_LOST || end == RPC_MALFORMED);
    ASSERT(*text);
    ended++;
}

/* Every API that is asked for, in its newest version. */
static void versions_first(struct writer *w)
{
    struct api_versions_response_api_version rows[] = {
        {.api_key = API_METADATA, .min_version = 0, .max_version = 12},
        {.api_key = API_FETCH, .min_version = 4, .max_version = 16},
    };
    struct api_versions_response res = api_versions_response_default;
    res.api_keys = rows;
    res.api_keys_count = ARRAY_COUNT(rows);
    writer_i32(w, 0);
    writer_i32(w, 0); /* the first correlation id */
    ASSERT(api_versions_response_encode(&res, wire_api_find(API_API_VERSIONS)->request_max, w) == OK);
    put_be32(w->buf->data, (uint32_t)(w->size - 4));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct net_ops ops = {
        .connect = fake_connect,
        .recv = fake_recv,
        .send = fake_send,
        .attach = fake_attach,
        .set_buffers = fake_set_buffers,
        .close = fake_close,
    };
    static const size_t pieces[] = {SIZE_MAX, 1, 3, 7, 100, 5000};
    if (size == 0) return 0;
    struct net net = {.ops = &ops};
    struct clock clock = {.mono_us = mono_us};
    struct loop *loop;
    ASSERT(loop_new(&loop, &clock, 0, NULL) == OK);
    struct buf_pool *bufs = buf_pool_new(0);
    struct writer w;
    writer_init(&w, bufs);
    if (data[0] & 1) versions_first(&w);
    writer_bytes(&w, data + 1, size - 1);
    fake = (struct fake_sock){
        .data = w.buf ? w.buf->data : NULL, .size = w.size, .piece = pieces[(data[0] >> 1) % ARRAY_COUNT(pieces)]};
    told = ended = 0;

    const struct rpc_options opt = {.net = &net,
                                    .loop = loop,
                                    .bufs = bufs,
                                    .client_id = STR("fuzz"),
                                    .connect_timeout_ms = 1000,
                                    .ended = on_ended};
    struct rpc *r = rpc_open(&opt, STR("127.0.0.1"), 9);
    struct rpc_call calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
        calls[i] =
            (struct rpc_call){.api = i % 2 ? API_METADATA : API_FETCH,
                              .version_max = INT16_MAX,
                              .request = i % 2 ? (const void *)&metadata_request_default : &fetch_request_default,
                              .done = on_done};
        rpc_send(r, &calls[i]);
    }
    fake.ready(&fake.sock, fake.arg, NET_WRITABLE | NET_READABLE | NET_PEER_DONE);
    for (int i = 0; i < TURNS_MAX && !ended; i++) loop_turn(loop, 0);
    ASSERT(ended == 1 && told == CALLS);
    rpc_close(r);
    ASSERT(!fake.open);
    writer_fini(&w);
    loop_free(loop);
    buf_pool_free(bufs); /* asserts that every buffer is back */
    return 0;
}
