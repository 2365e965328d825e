/* client_world.h: a broker that says what a test tells it to, on a thread of its own and a real socket.
 *
 * For each request, in order, one step of the script says what is sent back.  Requests beyond the script end the
 * connection.  ApiVersions is answered by itself, unless the script is about it. */
#ifndef CLIENT_WORLD_H
#define CLIENT_WORLD_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/cluster.h"
#include "wire/gen/api_versions.h"
#include "wire/gen/response_header.h"

struct fake;

/* One request as it came. */
struct asked {
    int16_t api, version;
    int32_t correlation_id;
};

/* Writes the answer, without the frame's length; the header is there already. */
typedef void (*answer_fn)(struct fake *fk, const struct asked *q, struct writer *w);

struct step {
    answer_fn answer;         /* NULL: nothing is sent, the connection is closed */
    int32_t lie_length;       /* other than 0: announced in place of the truth */
    int32_t lie_correlation;  /* added to the id */
    bool close_after, silent; /* silent: no answer, and the connection stays open */
    bool byte_by_byte;
    const char *trailer; /* bytes sent behind the frame */
};

struct fake {
    int listener;
    uint16_t port;
    const struct step *steps;
    int step_count, next;
    bool scripted_versions;       /* ApiVersions takes steps, too */
    bool without_consumer_groups; /* of the newer protocol */
    int16_t api_versions_max;     /* of every other API, 0: ours */
    struct asked asked[64];       /* what came, ApiVersions only if scripted */
    int asked_count;
    struct buf_pool *pool;
    pthread_t thread;
    char bootstrap[32];
};

static inline bool fake_read(int fd, void *out, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = read(fd, (char *)out + at, size - at);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

static inline void fake_write(int fd, const void *data, size_t size, bool byte_by_byte)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(fd, (const char *)data + at, byte_by_byte ? 1 : size - at, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += (size_t)n;
    }
}

/* Every API that we know, in our versions or up to the fake's limit. */
static inline void fake_versions(struct fake *fk, const struct asked *q, struct writer *w)
{
    static struct api_versions_response_api_version rows[API_COUNT];
    struct api_versions_response res = api_versions_response_default;
    res.api_keys = rows;
    for (int i = 0; i < API_COUNT; i++) {
        const struct wire_api *api = wire_api_find((int16_t)i);
        if (!api || (fk->without_consumer_groups && i == API_CONSUMER_GROUP_DESCRIBE)) continue;
        int16_t max = fk->api_versions_max && i != API_API_VERSIONS ? fk->api_versions_max : api->request_max;
        rows[res.api_keys_count] = api_versions_response_api_version_default;
        rows[res.api_keys_count].api_key = (int16_t)i;
        rows[res.api_keys_count].min_version = api->request_min;
        rows[res.api_keys_count++].max_version = MIN(max, api->request_max);
    }
    ASSERT(api_versions_response_encode(&res, q->version, w) == OK);
}

static inline bool fake_answer(struct fake *fk, int fd, const struct asked *q, const struct step *s)
{
    if (s->silent) return true;
    if (!s->answer) return false;
    const struct wire_api *api = wire_api_find(q->api);
    struct writer w;
    writer_init(&w, fk->pool);
    writer_i32(&w, 0);
    struct response_header h = {.correlation_id = q->correlation_id + s->lie_correlation};
    ASSERT(response_header_encode(&h, wire_response_header_version(api, q->version), &w) == OK);
    s->answer(fk, q, &w);
    put_be32(w.buf->data, s->lie_length ? (uint32_t)s->lie_length : (uint32_t)(w.size - 4));
    fake_write(fd, w.buf->data, w.size, s->byte_by_byte);
    if (s->trailer) fake_write(fd, s->trailer, strlen(s->trailer), false);
    writer_fini(&w);
    return !s->close_after;
}

static inline bool fake_serve_one(struct fake *fk, int fd)
{
    uint8_t length[4], frame[65536];
    if (!fake_read(fd, length, 4)) return false;
    uint32_t size = get_be32(length);
    ASSERT(size <= sizeof frame);
    if (!fake_read(fd, frame, size)) return false;
    struct asked q = {.api = (int16_t)get_be16(frame),
                      .version = (int16_t)get_be16(frame + 2),
                      .correlation_id = (int32_t)get_be32(frame + 4)};
    if (q.api == API_API_VERSIONS && !fk->scripted_versions)
        return fake_answer(fk, fd, &q, &(struct step){.answer = fake_versions});
    ASSERT(fk->asked_count < (int)ARRAY_COUNT(fk->asked));
    fk->asked[fk->asked_count++] = q;
    if (fk->next == fk->step_count) return false;
    return fake_answer(fk, fd, &q, &fk->steps[fk->next++]);
}

enum { FAKE_CONNECTIONS_MAX = 16 };

/* One connection after the other has its turn; a client that waits for an answer asks nothing meanwhile. */
static inline void *fake_run(void *arg)
{
    struct fake *fk = arg;
    struct pollfd fds[1 + FAKE_CONNECTIONS_MAX] = {{.fd = fk->listener, .events = POLLIN}};
    nfds_t count = 1;
    bool stop = false;
    while (!stop) {
        ASSERT(poll(fds, count, -1) > 0);
        for (nfds_t i = 1; i < count; i++) {
            if (!fds[i].revents || fake_serve_one(fk, fds[i].fd)) continue;
            close(fds[i].fd);
            fds[i--] = fds[--count];
        }
        if (!fds[0].revents) continue;
        int fd = accept(fk->listener, NULL, NULL);
        stop = fd < 0; /* shut down */
        if (stop) break;
        ASSERT(count <= FAKE_CONNECTIONS_MAX);
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    for (nfds_t i = 1; i < count; i++) close(fds[i].fd);
    return NULL;
}

static inline void fake_start(struct fake *fk, const struct step *steps, int count)
{
    fk->steps = steps;
    fk->step_count = count;
    fk->pool = buf_pool_new(0);
    fk->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    ASSERT(bind(fk->listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(fk->listener, 8) == 0);
    ASSERT(getsockname(fk->listener, (struct sockaddr *)&at, &size) == 0);
    fk->port = ntohs(at.sin_port);
    snprintf(fk->bootstrap, sizeof fk->bootstrap, "127.0.0.1:%u", fk->port);
    ASSERT(pthread_create(&fk->thread, NULL, fake_run, fk) == 0);
}

/* After the client's connections are closed. */
static inline void fake_stop(struct fake *fk)
{
    shutdown(fk->listener, SHUT_RDWR);
    ASSERT(pthread_join(fk->thread, NULL) == 0);
    close(fk->listener);
    buf_pool_free(fk->pool);
}

#endif
