/* replica_fetchers_threads_test.c: followers with loops, workers and connections of their own, of a leader that is a
 * thread of this process behind a real socket; for the thread sanitizer.  Partitions come and go meanwhile, and what
 * left() says must hold: nothing is appended then. */
#include "replica_world.h"

#include <pthread.h>

#include "os/net.h"
#include "os/thread.h"
#include "replica/fetchers.h"
#include "wire/apis.h"
#include "wire/gen/api_versions.h"
#include "wire/gen/fetch.h"
#include "wire/gen/request_header.h"
#include "wire/gen/response_header.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEADER = 1, FOLLOWER = 2, PARTS = 4, LOOPS = 3, RECORDS = 400, FRAME_MAX = 1 << 20 };

/* ---- The leader: any number of connections, one thread each */

static int listener_fd;
static int32_t listener_port;
static _Atomic bool over;
static _Atomic int64_t leader_end[PARTS];

struct served {
    int fd;
    bool in_session[PARTS];
    int64_t offset[PARTS];
};

static bool read_all(int fd, void *out, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, (char *)out + got, size - got);
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
}

static void put_record(struct writer *out, struct buf_pool *bufs, int64_t offset)
{
    struct batch_builder bb;
    batch_builder_init(&bb, bufs, 0, 1000);
    batch_builder_add(&bb, 1000, (struct bytes){NULL, 0}, (struct bytes){(const uint8_t *)"value", 5}, NULL, 0);
    size_t at = out->size;
    assert_int_equal(batch_builder_finish(&bb, out), OK);
    batch_builder_fini(&bb);
    batch_set_offset(out->buf->data + at, offset);
    batch_set_leader_epoch(out->buf->data + at, 0);
}

/* A response's frame: length, header, body. */
static bool send_response(struct served *s, enum api key, int16_t version, int32_t correlation_id, const void *body,
                          struct buf_pool *bufs)
{
    const struct wire_api *api = wire_api_find((int16_t)key);
    struct response_header header = {.correlation_id = correlation_id};
    struct writer w;
    writer_init(&w, bufs);
    writer_i32(&w, 0);
    assert_int_equal(response_header_encode(&header, wire_response_header_version(api, version), &w), OK);
    assert_int_equal(wire_encode(api->response, body, version, &w), OK);
    size_t size = writer_size(&w);
    uint8_t *frame = mem_alloc(size);
    writer_flatten(&w, frame);
    put_be32(frame, (uint32_t)(size - 4));
    writer_fini(&w);
    bool sent = write(s->fd, frame, size) == (ssize_t)size;
    mem_free(frame);
    return sent;
}

static bool serve_versions(struct served *s, const struct request_header *h, struct buf_pool *bufs)
{
    struct api_versions_response resp = api_versions_response_default;
    struct api_versions_response_api_version rows[2];
    rows[0] = rows[1] = api_versions_response_api_version_default;
    rows[0].api_key = API_FETCH;
    rows[0].min_version = 4;
    rows[0].max_version = 17;
    rows[1].api_key = API_API_VERSIONS;
    rows[1].max_version = 3;
    resp.api_keys = rows;
    resp.api_keys_count = 2;
    return send_response(s, API_API_VERSIONS, h->request_api_version, h->correlation_id, &resp, bufs);
}

static void take_session(struct served *s, const struct fetch_request *rq)
{
    if (rq->session_epoch == 0) memset(s->in_session, 0, sizeof s->in_session);
    for (int32_t t = 0; t < rq->topics_count; t++)
        for (int32_t i = 0; i < rq->topics[t].partitions_count; i++) {
            const struct fetch_request_fetch_partition *fp = &rq->topics[t].partitions[i];
            s->in_session[fp->partition] = true;
            s->offset[fp->partition] = fp->fetch_offset;
        }
    for (int32_t t = 0; t < rq->forgotten_topics_data_count; t++)
        for (int32_t i = 0; i < rq->forgotten_topics_data[t].partitions_count; i++)
            s->in_session[rq->forgotten_topics_data[t].partitions[i]] = false;
}

static bool serve_fetch(struct served *s, const struct request_header *h, const struct fetch_request *rq,
                        struct buf_pool *bufs)
{
    struct fetch_response resp = fetch_response_default;
    struct fetch_response_fetchable_topic_response topic = fetch_response_fetchable_topic_response_default;
    struct fetch_response_partition_data parts[PARTS];
    struct writer records[PARTS];
    take_session(s, rq);
    for (int i = 0; i < PARTS; i++) {
        writer_init(&records[i], bufs);
        if (!s->in_session[i]) continue;
        struct fetch_response_partition_data *pd = &parts[topic.partitions_count++];
        *pd = fetch_response_partition_data_default;
        pd->partition_index = i;
        int64_t end = atomic_load(&leader_end[i]);
        pd->high_watermark = end;
        pd->log_start_offset = 0;
        for (int64_t at = s->offset[i]; at < end && at < s->offset[i] + 7; at++) put_record(&records[i], bufs, at);
        if (records[i].size) pd->records.bytes = (struct bytes){records[i].buf->data, records[i].size};
    }
    topic.topic_id = (struct uuid){{1, 2, 3}};
    topic.partitions = parts;
    resp.session_id = 9;
    resp.responses = &topic;
    resp.responses_count = 1;
    bool sent = send_response(s, API_FETCH, h->request_api_version, h->correlation_id, &resp, bufs);
    for (int i = 0; i < PARTS; i++) writer_fini(&records[i]);
    return sent;
}

static bool serve_one(struct served *s, uint8_t *frame, size_t size, struct buf_pool *bufs)
{
    struct reader r = reader_of(frame, size);
    int16_t key = (int16_t)get_be16(frame), version = (int16_t)get_be16(frame + 2);
    const struct wire_api *api = wire_api_find(key);
    struct arena a;
    struct request_header h;
    struct fetch_request rq;
    arena_init(&a, SIZE_MAX);
    assert_int_equal(request_header_decode(&h, wire_request_header_version(api, version), &r, &a), OK);
    bool more;
    if (key == API_API_VERSIONS) {
        more = serve_versions(s, &h, bufs);
    } else {
        assert_int_equal(key, API_FETCH);
        assert_int_equal(fetch_request_decode(&rq, version, &r, &a), OK);
        more = serve_fetch(s, &h, &rq, bufs);
    }
    arena_fini(&a);
    return more;
}

static void *serve(void *arg)
{
    struct served *s = arg;
    struct buf_pool *bufs = buf_pool_new(0);
    uint8_t *frame = mem_alloc(FRAME_MAX);
    for (;;) {
        uint8_t length[4];
        if (!read_all(s->fd, length, sizeof length)) break;
        size_t size = get_be32(length);
        assert_true(size <= FRAME_MAX);
        if (!read_all(s->fd, frame, size) || !serve_one(s, frame, size, bufs)) break;
    }
    close(s->fd);
    mem_free(frame);
    mem_free(s);
    buf_pool_free(bufs);
    return NULL;
}

static pthread_t servers[64];
static int server_count;

static void *accept_all(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        int fd = accept(listener_fd, NULL, NULL);
        if (fd < 0) break;
        struct served *s = mem_zalloc(1, sizeof *s);
        s->fd = fd;
        assert_true(server_count < 64);
        assert_int_equal(pthread_create(&servers[server_count++], NULL, serve, s), 0);
    }
    return NULL;
}

static void leader_listen(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    listener_fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener_fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener_fd, 16), 0);
    assert_int_equal(getsockname(listener_fd, (struct sockaddr *)&at, &size), 0);
    listener_port = ntohs(at.sin_port);
}

/* ---- The follower */

static bool address_of(void *arg, int32_t broker_id, char host[256], int32_t *port)
{
    (void)arg, (void)broker_id;
    snprintf(host, 256, "127.0.0.1");
    *port = listener_port;
    return true;
}

static int64_t broker_epoch(void *arg)
{
    (void)arg;
    return 1;
}

struct run {
    struct loop *loops[LOOPS];
    pthread_t threads[LOOPS];
    struct workers *workers;
    struct fetchers *f;
    struct buf_pool *bufs;
    struct partition *parts[PARTS];
    int32_t epochs[PARTS];
    int leaves; /* so far */
    int stopped;
};

static void set_follower(struct partition *p, int32_t epoch)
{
    static const int32_t both[] = {LEADER, FOLLOWER};
    partition_set_role(p, &(struct partition_role){.leader = LEADER,
                                                   .leader_epoch = epoch,
                                                   .isr = both,
                                                   .isr_count = 2,
                                                   .replicas = both,
                                                   .replica_count = 2});
}

static void *turn_loop(void *arg)
{
    loop_run(arg);
    return NULL;
}

static void follow(struct run *run, int i)
{
    set_follower(run->parts[i], run->epochs[i]);
    fetchers_follow(run->f, run->parts[i], LEADER, run->epochs[i]);
}

/* Nothing comes any more, until it follows again. */
static void on_left(void *arg, struct partition *p)
{
    struct run *run = arg;
    int64_t end = plog_end(p->pl);
    for (int i = 0; i < 100; i++) sched_yield();
    assert_int_equal(plog_end(p->pl), end);
    run->leaves++;
    run->epochs[p->index]++;
    follow(run, p->index);
}

static void on_stopped(void *arg)
{
    ((struct run *)arg)->stopped = 1;
}

static bool all_there(const struct run *run)
{
    for (int i = 0; i < PARTS; i++)
        if (partition_high_watermark(run->parts[i]) < RECORDS) return false;
    return true;
}

static void run_start(struct run *run, struct world *w)
{
    for (int i = 1; i < LOOPS; i++) {
        assert_int_equal(loop_new(&run->loops[i], clock_system(), (unsigned)i, NULL), OK);
        assert_int_equal(pthread_create(&run->threads[i], NULL, turn_loop, run->loops[i]), 0);
    }
    assert_int_equal(loop_new(&run->loops[0], clock_system(), 0, NULL), OK);
    loop_turn(run->loops[0], 0);
    assert_int_equal(workers_new(&run->workers, "w", 2, NULL), OK);
    run->bufs = buf_pool_new(1 << 20);
    const struct fetchers_options opt = {
        .net = net_system(),
        .home = run->loops[0],
        .loops = run->loops,
        .loop_count = LOOPS,
        .workers = run->workers,
        .bufs = run->bufs,
        .broker_id = FOLLOWER,
        .config = {.per_leader = 2,
                   .fetch_max_bytes = 1 << 20,
                   .response_max_bytes = 1 << 20,
                   .min_bytes = 1,
                   .wait_max_ms = 10,
                   .backoff_ms = 5,
                   .socket_timeout_ms = 10000,
                   .receive_buffer_bytes = -1},
        .address_of = address_of,
        .broker_epoch = broker_epoch,
    };
    run->f = fetchers_new(&opt);
    for (int i = 0; i < PARTS; i++) {
        run->parts[i] = partition_at(w, i);
        follow(run, i);
    }
}

static void run_end(struct run *run)
{
    fetchers_stop(run->f, on_stopped, run);
    while (!run->stopped) loop_turn(run->loops[0], 1000);
    fetchers_free(run->f);
    for (int i = 1; i < LOOPS; i++) {
        loop_stop(run->loops[i]);
        assert_int_equal(pthread_join(run->threads[i], NULL), 0);
    }
    workers_free(run->workers);
    for (int i = 0; i < LOOPS; i++) loop_free(run->loops[i]);
    buf_pool_free(run->bufs);
}

static void followers_come_and_go_while_a_leader_writes(void **state)
{
    (void)state;
    struct world w;
    struct run run = {.leaves = 0};
    pthread_t acceptor;
    char root[] = "/tmp/barnabas-fetchers-XXXXXX", first[64], second[64];
    assert_non_null(mkdtemp(root));
    snprintf(first, sizeof first, "%s/a", root);
    snprintf(second, sizeof second, "%s/b", root);
    const char *const dirs[] = {first, second};
    assert_int_equal(world_start_in(&w, fs_system(), dirs), OK);
    apply(&w, PARTS, true);
    leader_listen();
    assert_int_equal(pthread_create(&acceptor, NULL, accept_all, NULL), 0);
    run_start(&run, &w);
    int64_t written = 0;
    for (int turn = 0; turn < 100000 && !all_there(&run); turn++) {
        if (written < RECORDS) {
            written++;
            for (int i = 0; i < PARTS; i++) atomic_store(&leader_end[i], written);
        }
        if (turn % 20 == 0) fetchers_leave(run.f, run.parts[turn / 20 % PARTS], on_left, &run);
        if (turn % 77 == 0) fetchers_broker_changed(run.f, LEADER);
        if (turn % 131 == 0) fetchers_throttle(run.f, turn % 2 ? -1 : INT64_C(1) << 40, NULL, NULL);
        loop_turn(run.loops[0], 500);
    }
    assert_true(all_there(&run));
    assert_true(run.leaves > 0);
    run_end(&run);

    atomic_store(&over, true);
    shutdown(listener_fd, SHUT_RDWR);
    assert_int_equal(pthread_join(acceptor, NULL), 0);
    for (int i = 0; i < server_count; i++) assert_int_equal(pthread_join(servers[i], NULL), 0);
    close(listener_fd);
    world_end(&w, true);
    assert_int_equal(fs_remove_all(fs_system(), root), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_come_and_go_while_a_leader_writes),
    };
    if (!getenv("SHOW_LOG")) assert_int_equal(log_open_file("/dev/null", NULL), OK);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
