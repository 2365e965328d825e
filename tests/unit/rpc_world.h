/* rpc_world.h: the other side of a connection between brokers: a plain socket in the test's own thread.  Whatever waits
 * for something turns the loop meanwhile. */
#ifndef RPC_WORLD_H
#define RPC_WORLD_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/writer.h"
#include "os/loop.h"
#include "wire/apis.h"
#include "wire/gen/api_versions.h"
#include "wire/gen/response_header.h"

enum { WAIT_MS_MAX = 60000 };

#define UNTIL(loop, condition)                                                     \
    do {                                                                           \
        int64_t give_up_us = clock_mono_us(clock_system()) + WAIT_MS_MAX * 1000ll; \
        while (!(condition)) {                                                     \
            assert_true(clock_mono_us(clock_system()) < give_up_us);               \
            loop_turn((loop), 1000);                                               \
        }                                                                          \
    } while (0)

struct peer_side {
    struct loop *loop;
    int listener, fd; /* -1: none */
    uint16_t port;
};

/* On `at->port`, or a free one if that is 0. */
static inline void peer_listen(struct peer_side *at)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(at->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof addr;
    int yes = 1;
    at->fd = -1;
    at->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(at->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    assert_int_equal(bind(at->listener, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(at->listener, 8), 0);
    assert_int_equal(getsockname(at->listener, (struct sockaddr *)&addr, &size), 0);
    at->port = ntohs(addr.sin_port);
}

static inline bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static inline void peer_accept(struct peer_side *at)
{
    UNTIL(at->loop, is_readable(at->listener));
    at->fd = accept(at->listener, NULL, NULL);
    assert_true(at->fd >= 0);
}

static inline void peer_close(struct peer_side *at)
{
    if (at->fd >= 0) close(at->fd);
    at->fd = -1;
}

/* Nobody listens there any more. */
static inline void peer_die(struct peer_side *at)
{
    peer_close(at);
    if (at->listener >= 0) close(at->listener);
    at->listener = -1;
}

struct asked {
    int16_t api, version;
    int32_t correlation_id;
};

static inline void peer_read(struct peer_side *at, void *out, size_t size)
{
    for (size_t have = 0; have < size;) {
        UNTIL(at->loop, is_readable(at->fd));
        ssize_t n = read(at->fd, (char *)out + have, size - have);
        assert_true(n > 0);
        have += (size_t)n;
    }
}

static inline struct asked peer_take(struct peer_side *at)
{
    uint8_t length[4];
    peer_read(at, length, sizeof length);
    size_t size = get_be32(length);
    uint8_t *frame = mem_alloc(size);
    peer_read(at, frame, size);
    struct asked q = {(int16_t)get_be16(frame), (int16_t)get_be16(frame + 2), (int32_t)get_be32(frame + 4)};
    mem_free(frame);
    return q;
}

static inline void peer_write(struct peer_side *at, const void *data, size_t size)
{
    for (size_t have = 0; have < size;) {
        ssize_t n = send(at->fd, (const char *)data + have, size - have, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) loop_turn(at->loop, 1000);
        if (n > 0) have += (size_t)n;
    }
}

static inline void answer_encode(struct writer *to, struct asked q, int16_t version, const void *response)
{
    const struct wire_api *api = wire_api_find(q.api);
    size_t begin = to->size;
    writer_i32(to, 0);
    struct response_header h = {.correlation_id = q.correlation_id};
    assert_int_equal(response_header_encode(&h, wire_response_header_version(api, q.version), to), OK);
    assert_int_equal(wire_encode(api->response, response, version, to), OK);
    put_be32(to->buf->data + begin, (uint32_t)(to->size - begin - 4));
}

static inline void peer_answer_as(struct peer_side *at, struct asked q, int16_t version, const void *response)
{
    struct writer to;
    writer_init(&to, NULL);
    answer_encode(&to, q, version, response);
    peer_write(at, to.buf->data, to.size);
    writer_fini(&to);
}

static inline void peer_answer(struct peer_side *at, struct asked q, const void *response)
{
    peer_answer_as(at, q, q.version, response);
}

/* Takes a connection and tells what this side serves. */
static inline void peer_meet(struct peer_side *at, struct api_versions_response_api_version *rows, int32_t count)
{
    peer_accept(at);
    struct asked q = peer_take(at);
    assert_int_equal(q.api, API_API_VERSIONS);
    struct api_versions_response res = api_versions_response_default;
    res.api_keys = rows;
    res.api_keys_count = count;
    peer_answer(at, q, &res);
}

#endif
