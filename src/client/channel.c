/* channel.c: see channel.h.
 *
 * A frame is received whole into a buffer that grows with what has come, not with what was announced, and is then
 * copied into the caller's arena, where the decoded slices point.  Exactly the announced bytes are taken: what a broker
 * sends beyond them is found as the next response's head, with a correlation id that nobody waits for. */
#include "client/channel.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/writer.h"
#include "wire/gen/api_versions.h"
#include "wire/gen/request_header.h"
#include "wire/gen/response_header.h"

enum {
    ADDRESSES_MAX = 16,
    FRAME_LENGTH_SIZE = 4,
    CORRELATION_ID_SIZE = 4,
    RECEIVE_STEP = 64 << 10,
    REQUEST_IDLE_BYTES_MAX = 64 << 10
};

struct version_range {
    int16_t min, max; /* min > max: the broker does not have the API */
};

struct channel {
    struct channel_options opt;
    struct sock *sock;
    char *peer;
    unsigned ready; /* NET_* since the socket last had nothing for us */
    bool broken;
    int32_t correlation_id; /* of the newest request */
    struct version_range versions[API_COUNT];
    struct buf_pool *pool; /* for requests */
    uint8_t *in;
    size_t in_cap;
};

/* ---- waiting ---- */

static void on_ready(struct sock *s, void *arg, unsigned ready)
{
    (void)s;
    ((struct channel *)arg)->ready |= ready;
}

static bool wait_for(struct channel *c, unsigned wanted, int64_t deadline_us, const char *what, struct failure *f)
{
    while (!(c->ready & (wanted | NET_HANGUP))) {
        int64_t left_us = deadline_us - clock_mono_us(loop_clock(c->opt.loop));
        if (left_us <= 0) return failure_set(f, ERR_TIMEOUT, "%s %s in time.", c->peer, what);
        loop_turn(c->opt.loop, left_us);
    }
    return true;
}

static bool lost(struct channel *c, enum err e, struct failure *f)
{
    c->broken = true;
    if (e == ERR_CLOSED) return failure_set(f, e, "%s closed the connection.", c->peer);
    return failure_set(f, e, "The connection to %s failed: %s.", c->peer, err_text(e));
}

static bool send_all(struct channel *c, const uint8_t *data, size_t size, int64_t deadline_us, struct failure *f)
{
    while (size > 0) {
        struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
        size_t sent;
        enum err e = sock_send(c->sock, &iov, 1, false, &sent);
        if (e == ERR_AGAIN) {
            c->ready &= ~(unsigned)NET_WRITABLE;
            if (!wait_for(c, NET_WRITABLE, deadline_us, "did not take the request", f)) return false;
            continue;
        }
        if (e) return lost(c, e, f);
        data += sent;
        size -= sent;
    }
    return true;
}

static bool receive_all(struct channel *c, uint8_t *out, size_t size, int64_t deadline_us, struct failure *f)
{
    while (size > 0) {
        size_t got;
        enum err e = sock_recv(c->sock, out, size, &got);
        if (e == ERR_AGAIN) {
            c->ready &= (unsigned)NET_WRITABLE; /* whatever else there is will be told anew */
            if (!wait_for(c, NET_READABLE | NET_PEER_DONE, deadline_us, "did not answer", f)) return false;
            continue;
        }
        if (!e && got == 0) e = ERR_CLOSED;
        if (e) return lost(c, e, f);
        out += got;
        size -= got;
    }
    return true;
}

/* The next frame, without its length, into c->in. */
static bool receive_frame(struct channel *c, size_t *size, int64_t deadline_us, struct failure *f)
{
    uint8_t length[FRAME_LENGTH_SIZE];
    if (!receive_all(c, length, sizeof length, deadline_us, f)) return false;
    int32_t announced = (int32_t)get_be32(length);
    if (announced < CORRELATION_ID_SIZE || announced > CHANNEL_RESPONSE_MAX)
        return failure_set(f, ERR_CORRUPT,
                           "%s announces a response of %" PRId32 " bytes, where %d to %d can be: is it a Kafka "
                           "listener without TLS?",
                           c->peer, announced, CORRELATION_ID_SIZE, CHANNEL_RESPONSE_MAX);
    *size = (size_t)announced;
    for (size_t at = 0; at < *size;) {
        size_t step = MIN(*size - at, MAX((size_t)RECEIVE_STEP, at)); /* doubles as it comes */
        c->in = mem_grow(c->in, &c->in_cap, at + step, 1);
        if (!receive_all(c, c->in + at, step, deadline_us, f)) return false;
        at += step;
    }
    return true;
}

/* ---- one exchange ---- */

static bool encode(struct channel *c, const struct exchange *x, const struct wire_api *api, struct writer *w,
                   struct failure *f)
{
    struct request_header header = {
        .request_api_key = api->key,
        .request_api_version = x->version,
        .correlation_id = c->correlation_id,
        .client_id = str_of(c->opt.client_id),
    };
    writer_i32(w, 0); /* the frame's length, below */
    enum err e = request_header_encode(&header, wire_request_header_version(api, x->version), w);
    if (!e) e = wire_encode(api->request, x->request, x->version, w);
    if (e == ERR_UNSUPPORTED || e == ERR_VERSION)
        return failure_set(f, ERR_UNSUPPORTED, "%s knows %s only up to version %d, which cannot say what is asked for.",
                           c->peer, api->name, x->version);
    if (e) return failure_set(f, e, "The %s request cannot be written: %s.", api->name, err_text(e));
    put_be32(w->buf->data, (uint32_t)(w->size - FRAME_LENGTH_SIZE));
    return true;
}

/* A broker that does not know the version of an ApiVersions request answers in version 0, which begins with the code.
 */
static int16_t answered_version(const struct exchange *x, const struct reader *r)
{
    struct reader peek = *r;
    bool refused = x->api == API_API_VERSIONS && reader_i16(&peek) == KERR_UNSUPPORTED_VERSION;
    return refused ? 0 : x->version;
}

static bool decode(struct channel *c, const struct exchange *x, const struct wire_api *api, struct bytes frame,
                   struct arena *a, struct failure *f)
{
    struct reader r = reader_of(frame.data, frame.size);
    struct response_header header;
    enum err e = response_header_decode(&header, wire_response_header_version(api, x->version), &r, a);
    if (e)
        return failure_set(f, ERR_CORRUPT, "%s sent a response to %s without a proper header: %s.", c->peer, api->name,
                           err_text(e));
    if (header.correlation_id != c->correlation_id)
        return failure_set(f, ERR_CORRUPT, "%s answered request %" PRId32 " where %" PRId32 " (%s) was asked.", c->peer,
                           header.correlation_id, c->correlation_id, api->name);
    int16_t version = answered_version(x, &r);
    e = wire_decode(api->response, x->response, version, &r, a);
    if (e == ERR_TOO_BIG)
        return failure_set(f, e, "%s sent a response to %s that takes more than %d bytes of memory.", c->peer,
                           api->name, CHANNEL_DECODE_MAX);
    if (e)
        return failure_set(f, ERR_CORRUPT, "%s sent something that is no %s response of version %d: %s.", c->peer,
                           api->name, version, err_text(e));
    if (reader_left(&r) > 0)
        return failure_set(f, ERR_CORRUPT, "%s sent a %s response of version %d with %zu bytes too many.", c->peer,
                           api->name, version, reader_left(&r));
    return true;
}

bool channel_call(struct channel *c, const struct exchange *x, struct arena *a, int64_t deadline_us, struct failure *f)
{
    ASSERT(!c->broken);
    const struct wire_api *api = wire_api_find((int16_t)x->api);
    ASSERT(api);
    struct writer w;
    writer_init(&w, c->pool);
    c->correlation_id = c->correlation_id == INT32_MAX ? 0 : c->correlation_id + 1;
    bool ok = encode(c, x, api, &w, f);
    if (!ok) goto out;
    size_t size = 0;
    ok = send_all(c, w.buf->data, w.size, deadline_us, f) && receive_frame(c, &size, deadline_us, f);
    if (ok) {
        uint8_t *frame = arena_alloc(a, size);
        memcpy(frame, c->in, size);
        ok = decode(c, x, api, (struct bytes){frame, size}, a, f);
    }
    c->broken = !ok;
out:
    writer_fini(&w);
    return ok;
}

/* ---- versions ---- */

static void learn_versions(struct channel *c, const struct api_versions_response *res)
{
    for (int32_t i = 0; i < res->api_keys_count; i++) {
        const struct api_versions_response_api_version *v = &res->api_keys[i];
        const struct wire_api *api = wire_api_find(v->api_key);
        if (api) c->versions[api->key] = (struct version_range){v->min_version, v->max_version};
    }
}

int16_t channel_version(const struct channel *c, enum api key, int16_t version_max)
{
    const struct wire_api *api = wire_api_find((int16_t)key);
    const struct version_range *theirs = &c->versions[key];
    int16_t max = MIN(MIN(api->request_max, theirs->max), version_max);
    return max >= MAX(api->request_min, theirs->min) ? max : -1;
}

/* Asks in our highest version; a broker that does not know it says so, with its own range if it is not very old. */
static bool negotiate(struct channel *c, int64_t deadline_us, struct failure *f)
{
    const struct wire_api *api = wire_api_find(API_API_VERSIONS);
    struct api_versions_request req = api_versions_request_default;
    req.client_software_name = STR("barnabas");
    req.client_software_version = STR(BARNABAS_VERSION);
    struct api_versions_response res;
    struct arena a;
    arena_init(&a, CHANNEL_DECODE_MAX);
    int16_t version = api->request_max;
    bool ok = channel_call(c, &(struct exchange){API_API_VERSIONS, version, &req, &res}, &a, deadline_us, f);
    if (ok && res.error_code == KERR_UNSUPPORTED_VERSION && version > 0) {
        learn_versions(c, &res);
        version = MAX(channel_version(c, API_API_VERSIONS, api->request_max), 0);
        ok = channel_call(c, &(struct exchange){API_API_VERSIONS, version, &req, &res}, &a, deadline_us, f);
    }
    if (ok && res.error_code)
        ok = failure_refused(f, res.error_code, STR_NULL, "%s does not tell its versions", c->peer);
    if (ok) learn_versions(c, &res);
    arena_fini(&a);
    return ok;
}

/* ---- connecting ---- */

static void hang_up(struct channel *c)
{
    if (c->sock) sock_close(c->sock);
    c->sock = NULL;
    c->ready = 0;
}

static bool connect_to(struct channel *c, const struct net_addr *addr, int64_t deadline_us, struct failure *f)
{
    enum err e = net_connect(c->opt.net, c->opt.loop, addr, &c->sock);
    if (!e) e = sock_attach(c->sock, c->opt.loop, on_ready, c);
    if (e) return failure_set(f, e, "No connection to %s: %s.", c->peer, err_text(e));
    if (!wait_for(c, NET_WRITABLE, deadline_us, "could not be connected to", f)) return false;
    if (!(c->ready & NET_HANGUP)) return true;
    uint8_t byte;
    size_t got;
    e = sock_recv(c->sock, &byte, sizeof byte, &got); /* says why */
    if (e == ERR_CLOSED) return failure_set(f, e, "No connection to %s: nothing listens there.", c->peer);
    return failure_set(f, e ? e : ERR_CLOSED, "No connection to %s: %s.", c->peer, err_text(e ? e : ERR_CLOSED));
}

static void name_peer(struct channel *c, const char *host, uint16_t port, const struct net_addr *addr)
{
    char text[NET_ADDR_TEXT_MAX], number[NET_ADDR_TEXT_MAX];
    net_addr_format(addr, text);
    net_addr_host(addr, number);
    mem_free(c->peer);
    c->peer = strcmp(number, host) == 0 ? mem_printf("%s", text) : mem_printf("%s:%u (%s)", host, port, text);
}

bool channel_open(struct channel **out, const struct channel_options *opt, const char *host, uint16_t port,
                  int64_t deadline_us, struct failure *f)
{
    struct net_addr addrs[ADDRESSES_MAX];
    size_t count;
    struct fault fault = {0};
    enum err e = net_resolve(host, port, addrs, ADDRESSES_MAX, &count, &fault);
    if (e) return failure_set(f, e, "%s", fault.text);
    struct channel *c = mem_zalloc(1, sizeof *c);
    c->opt = *opt;
    c->pool = buf_pool_new(REQUEST_IDLE_BYTES_MAX);
    for (int i = 0; i < API_COUNT; i++) c->versions[i] = (struct version_range){0, -1};
    bool ok = false;
    for (size_t i = 0; i < count && !ok; i++) {
        int64_t now_us = clock_mono_us(loop_clock(opt->loop));
        int64_t share_us =
            now_us + (deadline_us - now_us) / (int64_t)(count - i); /* a silent one leaves time for all */
        hang_up(c);
        name_peer(c, host, port, &addrs[i]);
        ok = connect_to(c, &addrs[i], share_us, f);
    }
    ok = ok && negotiate(c, deadline_us, f);
    if (!ok) {
        channel_close(c);
        return false;
    }
    *out = c;
    return true;
}

void channel_close(struct channel *c)
{
    if (!c) return;
    hang_up(c);
    buf_pool_free(c->pool);
    mem_free(c->peer);
    mem_free(c->in);
    mem_free(c);
}

bool channel_is_usable(struct channel *c)
{
    if (!c->broken) loop_turn(c->opt.loop, 0);
    return !c->broken && !(c->ready & (NET_HANGUP | NET_PEER_DONE));
}

const char *channel_peer(const struct channel *c)
{
    return c->peer;
}
