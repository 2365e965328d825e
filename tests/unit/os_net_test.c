/* os: sockets over loopback, addresses, signals, process limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fs.h"
#include "os/net.h"
#include "os/process.h"
#include "os/signals.h"

enum { PAYLOAD_SIZE = 5 * 1024 * 1024 + 17, CHUNK = 64 * 1024 };

static struct loop *loop;
static struct net *net;

static int setup(void **state)
{
    (void)state;
    net = net_system();
    signal(SIGPIPE, SIG_IGN);
    return (int)loop_new(&loop, clock_system(), 0, NULL);
}

static int teardown(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

static struct net_addr address(const char *host, uint16_t port)
{
    struct net_addr a;
    size_t count;
    struct fault f;
    assert_int_equal(net_resolve(host, port, &a, 1, &count, &f), OK);
    assert_int_equal(count, 1);
    return a;
}

/* One end of a connection and what it has seen. */
struct end {
    struct sock *s;
    unsigned ready;
    bool close_when_ready;
};

static void end_ready(struct sock *s, void *arg, unsigned ready)
{
    struct end *end = arg;
    assert_ptr_equal(s, end->s);
    end->ready |= ready;
    if (end->close_when_ready) {
        sock_close(s);
        end->s = NULL;
    }
}

static void end_attach(struct end *end)
{
    assert_int_equal(sock_attach(end->s, loop, end_ready, end), OK);
}

static void turn_until(struct end *end, unsigned bits)
{
    while (!(end->ready & bits)) loop_turn(loop, -1);
}

/* A listener on a free port of 127.0.0.1 and a connection to it. */
struct pair {
    struct end listener, client, server;
    struct net_addr at, peer;
};

static void pair_listen(struct pair *p, int buffers)
{
    struct net_addr any_port = address("127.0.0.1", 0);
    memset(p, 0, sizeof *p);
    assert_int_equal(net_listen(net, loop, &any_port, 10, &p->listener.s), OK);
    sock_set_buffers(p->listener.s, buffers, buffers);
    end_attach(&p->listener);
    assert_int_equal(sock_local_addr(p->listener.s, &p->at), OK);
    assert_int_not_equal(net_addr_port(&p->at), 0);
}

static void pair_open(struct pair *p, int buffers)
{
    pair_listen(p, buffers);
    struct sock *none;
    assert_int_equal(sock_accept(p->listener.s, &none, &p->peer), ERR_AGAIN);
    assert_int_equal(net_connect(net, loop, &p->at, &p->client.s), OK);
    sock_set_buffers(p->client.s, buffers, buffers);
    end_attach(&p->client);
    turn_until(&p->listener, NET_READABLE);
    assert_int_equal(sock_accept(p->listener.s, &p->server.s, &p->peer), OK);
    end_attach(&p->server);
    turn_until(&p->client, NET_WRITABLE);
    assert_int_equal(p->client.ready, NET_WRITABLE);
}

static void pair_close(struct pair *p)
{
    if (p->listener.s) sock_close(p->listener.s);
    if (p->client.s) sock_close(p->client.s);
    if (p->server.s) sock_close(p->server.s);
}

static char *payload_new(void)
{
    char *data = mem_alloc(PAYLOAD_SIZE);
    for (size_t i = 0; i < PAYLOAD_SIZE; i++) data[i] = (char)(i * 2654435761u >> 13);
    return data;
}

/* Sends what fits; counts the sends that were cut short. */
static size_t send_some(struct sock *s, const char *data, size_t size, int *partial)
{
    size_t done = 0;
    while (done < size) {
        size_t first = MIN(size - done, 1000), rest = size - done - first;
        struct iovec iov[2] = {{(void *)(uintptr_t)(data + done), first},
                               {(void *)(uintptr_t)(data + done + first), MIN(rest, (size_t)1 << 20)}};
        size_t sent;
        enum err e = sock_send(s, iov, 2, rest > 1 << 20, &sent);
        if (e == ERR_AGAIN) break;
        assert_int_equal(e, OK);
        assert_true(sent > 0);
        if (sent < iov[0].iov_len + iov[1].iov_len) ++*partial;
        done += sent;
    }
    return done;
}

static size_t recv_some(struct sock *s, char *out, size_t room)
{
    size_t done = 0;
    while (done < room) {
        size_t got;
        enum err e = sock_recv(s, out + done, MIN(room - done, (size_t)CHUNK), &got);
        if (e == ERR_AGAIN) break;
        assert_int_equal(e, OK);
        assert_true(got > 0);
        done += got;
    }
    return done;
}

static void an_echo_through_small_buffers_returns_every_byte(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, 16 * 1024);
    char *data = payload_new(), *at_server = mem_alloc(PAYLOAD_SIZE), *back = mem_alloc(PAYLOAD_SIZE);
    size_t sent = 0, received = 0, echoed = 0, returned = 0;
    int partial = 0;
    while (returned < PAYLOAD_SIZE) {
        /* Edge triggered: each side does all it can, then waits for the next event. */
        size_t before = sent + received + echoed + returned;
        sent += send_some(p.client.s, data + sent, PAYLOAD_SIZE - sent, &partial);
        received += recv_some(p.server.s, at_server + received, PAYLOAD_SIZE - received);
        echoed += send_some(p.server.s, at_server + echoed, received - echoed, &partial);
        returned += recv_some(p.client.s, back + returned, PAYLOAD_SIZE - returned);
        if (sent + received + echoed + returned == before) loop_turn(loop, -1);
    }
    assert_memory_equal(back, data, PAYLOAD_SIZE);
    assert_true(partial > 0);
    mem_free(data);
    mem_free(at_server);
    mem_free(back);
    pair_close(&p);
}

static void a_file_is_sent_from_any_position_until_its_end(void **state)
{
    (void)state;
    char path[] = "/tmp/barnabas-os-net-XXXXXX";
    close(mkstemp(path));
    char *data = payload_new(), *back = mem_alloc(PAYLOAD_SIZE);
    struct file *file;
    assert_int_equal(fs_open(fs_system(), path, FS_READ | FS_WRITE, &file), OK);
    assert_int_equal(file_pwrite(file, data, PAYLOAD_SIZE, 0), OK);
    struct pair p;
    pair_open(&p, 16 * 1024);
    const size_t start = 12345;
    size_t sent = start, received = start;
    while (received < PAYLOAD_SIZE) {
        size_t n = 0;
        enum err e = sent < PAYLOAD_SIZE ? sock_send_file(p.server.s, file->fd, (int64_t)sent, PAYLOAD_SIZE - sent, &n)
                                         : ERR_AGAIN;
        assert_true(e == OK || e == ERR_AGAIN);
        sent += n;
        size_t got = recv_some(p.client.s, back + received, PAYLOAD_SIZE - received);
        received += got;
        if (e == ERR_AGAIN && got == 0) loop_turn(loop, -1);
    }
    assert_memory_equal(back + start, data + start, PAYLOAD_SIZE - start);
    size_t n;
    assert_int_equal(sock_send_file(p.server.s, file->fd, PAYLOAD_SIZE, 1, &n), ERR_TRUNCATED);
    assert_int_equal(sock_send_file(p.server.s, file->fd, 0, 0, &n), OK);
    assert_int_equal(n, 0);
    pair_close(&p);
    file_unref(file);
    assert_int_equal(fs_unlink(fs_system(), path), OK);
    mem_free(data);
    mem_free(back);
}

static void a_peer_that_closes_is_told_by_an_empty_read_then_by_a_failing_send(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, -1);
    struct iovec last = {(void *)(uintptr_t) "bye", 3};
    size_t n;
    assert_int_equal(sock_send(p.client.s, &last, 1, false, &n), OK);
    sock_close(p.client.s);
    p.client.s = NULL;
    turn_until(&p.server, NET_READABLE);
    char out[10];
    size_t got = 0;
    assert_int_equal(sock_recv(p.server.s, out, sizeof out, &got), OK);
    assert_int_equal(got, 3); /* what was sent before the end is not lost */
    assert_int_equal(sock_recv(p.server.s, out, sizeof out, &got), OK);
    assert_int_equal(got, 0);
    p.server.ready = 0;
    assert_int_equal(sock_send(p.server.s, &last, 1, false, &n), OK); /* answered by a reset */
    turn_until(&p.server, NET_HANGUP);
    enum err e;
    do {
        e = sock_send(p.server.s, &last, 1, false, &n);
    } while (e == OK);
    assert_int_equal(e, ERR_CLOSED);
    pair_close(&p);
}

static void a_refused_connection_says_so(void **state)
{
    (void)state;
    struct pair p;
    pair_listen(&p, -1);
    sock_close(p.listener.s); /* now nobody listens there */
    p.listener.s = NULL;
    enum err e = net_connect(net, loop, &p.at, &p.client.s);
    if (e == OK) {
        end_attach(&p.client);
        turn_until(&p.client, NET_WRITABLE | NET_HANGUP);
        assert_true(p.client.ready & NET_HANGUP);
        char c;
        size_t got;
        e = sock_recv(p.client.s, &c, 1, &got);
    }
    assert_int_equal(e, ERR_CLOSED);
    pair_close(&p);
}

static void a_socket_may_be_closed_within_its_own_ready(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, -1);
    p.server.close_when_ready = true;
    struct iovec hello = {(void *)(uintptr_t) "hi", 2};
    size_t n;
    assert_int_equal(sock_send(p.client.s, &hello, 1, false, &n), OK);
    while (p.server.s) loop_turn(loop, -1);
    pair_close(&p);
}

static void a_port_in_use_is_an_error_until_its_listener_closes(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, -1);
    struct sock *second;
    assert_int_equal(net_listen(net, loop, &p.at, 10, &second), ERR_EXISTS);
    /* With an accepted connection still open, a restart gets the port at once. */
    sock_close(p.server.s);
    sock_close(p.listener.s);
    p.server.s = p.listener.s = NULL;
    assert_int_equal(net_listen(net, loop, &p.at, 10, &second), OK);
    sock_close(second);
    pair_close(&p);
}

/* What descriptors the socket calls left behind is not visible through net.h; their options are: the newest descriptors
 * of the process are the pair's. */
static void connections_do_not_delay_small_answers_and_notice_dead_hosts(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, -1);
    int checked = 0, probed = 0;
    for (int fd = 3; fd < 64; fd++) {
        struct sockaddr_in sin;
        socklen_t size = sizeof sin;
        int on = 0;
        if (getpeername(fd, (struct sockaddr *)&sin, &size) < 0) continue;
        size = sizeof on;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
        assert_int_not_equal(on, 0);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size), 0);
        assert_int_not_equal(on, 0);
        int idle_s, interval_s, count;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &size), 0);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, &size), 0);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, &size), 0);
        probed += idle_s + interval_s * count <= NET_SILENCE_S_MAX;
        checked++;
    }
    assert_int_equal(checked, 2);
    assert_int_equal(probed, 1); /* the end that connected */
    pair_close(&p);
}

static void accept_says_when_descriptors_run_out_and_works_again_after(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p, -1);
    struct sock *second, *accepted;
    p.listener.ready = 0;
    assert_int_equal(net_connect(net, loop, &p.at, &second), OK);
    turn_until(&p.listener, NET_READABLE);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum err e = sock_accept(p.listener.s, &accepted, &p.peer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(e, ERR_TOO_MANY);
    assert_int_equal(sock_accept(p.listener.s, &accepted, &p.peer), OK);
    sock_close(accepted);
    sock_close(second);
    pair_close(&p);
}

static void one_wildcard_listener_takes_both_families_and_shows_ipv4_as_such(void **state)
{
    (void)state;
    struct net_addr any = address("", 0), at;
    if (any.sa.ss_family != AF_INET6) skip();
    struct end listener = {0};
    assert_int_equal(net_listen(net, loop, &any, 10, &listener.s), OK);
    end_attach(&listener);
    assert_int_equal(sock_local_addr(listener.s, &at), OK);
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < ARRAY_COUNT(hosts); i++) {
        struct net_addr to = address(hosts[i], net_addr_port(&at)), peer;
        struct sock *client, *server;
        enum err e = net_connect(net, loop, &to, &client);
        if (e && i == 1) break; /* a machine whose loopback has no IPv6 address */
        assert_int_equal(e, OK);
        while ((e = sock_accept(listener.s, &server, &peer)) == ERR_AGAIN) loop_turn(loop, -1);
        assert_int_equal(e, OK);
        char text[NET_ADDR_TEXT_MAX];
        net_addr_host(&peer, text);
        assert_string_equal(text, hosts[i]);
        sock_close(client);
        sock_close(server);
    }
    sock_close(listener.s);
}

static void addresses_are_written_as_people_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *host, *text, *host_text;
    } rows[] = {
        {"127.0.0.1", "127.0.0.1:9092", "127.0.0.1"},
        {"::1", "[::1]:9092", "::1"},
        {"[2001:db8::17]", "[2001:db8::17]:9092", "2001:db8::17"},
        {"::ffff:10.1.2.3", "10.1.2.3:9092", "10.1.2.3"},
        {"0.0.0.0", "0.0.0.0:9092", "0.0.0.0"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct net_addr a = address(rows[i].host, 9092);
        char text[NET_ADDR_TEXT_MAX];
        net_addr_format(&a, text);
        assert_string_equal(text, rows[i].text);
        net_addr_host(&a, text);
        assert_string_equal(text, rows[i].host_text);
        assert_int_equal(net_addr_port(&a), 9092);
    }
}

static void names_resolve_ipv4_first_and_unknown_ones_are_explained(void **state)
{
    (void)state;
    struct net_addr a[8];
    size_t count;
    struct fault f;
    assert_int_equal(net_resolve("localhost", 1, a, 8, &count, &f), OK);
    assert_int_equal(a[0].sa.ss_family, AF_INET);
    for (size_t i = 0; i < count; i++) assert_true(net_addr_is_local(&a[i]));
    /* A label of more than 63 characters: refused without asking a name server. */
    char bad_label[] = "a-machine-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.test";
    assert_int_equal(net_resolve(bad_label, 1, a, 8, &count, &f), ERR_NOT_FOUND);
    assert_non_null(strstr(f.text, bad_label));
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(net_resolve(long_name, 1, a, 8, &count, &f), ERR_INVALID);
    assert_int_equal(net_resolve(NULL, 7, a, 8, &count, &f), OK);
    assert_int_equal(count, 1);
    assert_int_equal(net_addr_port(&a[0]), 7);
}

static void local_addresses_are_told_from_others(void **state)
{
    (void)state;
    struct net_addr a = address("127.9.9.9", 0);
    assert_true(net_addr_is_local(&a));
    a = address("::1", 0);
    assert_true(net_addr_is_local(&a));
    a = address("::ffff:127.0.0.1", 0);
    assert_true(net_addr_is_local(&a));
    a = address("192.0.2.1", 0); /* documentation only */
    assert_false(net_addr_is_local(&a));
    a = address("2001:db8::1", 0);
    assert_false(net_addr_is_local(&a));
    char *name = net_host_name();
    assert_int_not_equal(name[0], '\0');
    mem_free(name);
}

/* ---- signals and limits ---- */

static int terms, hups;

static void count_signal(void *arg)
{
    ++*(int *)arg;
}

static void signals_arrive_on_the_loop(void **state)
{
    (void)state;
    static const struct signal_handler table[] = {{SIGTERM, count_signal, &terms}, {SIGHUP, count_signal, &hups}};
    struct signals *s;
    assert_int_equal(signals_open(&s, loop, table, ARRAY_COUNT(table), NULL), OK);
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGPIPE);
    kill(getpid(), SIGXFSZ);
    assert_int_equal(terms + hups, 0);
    while (terms + hups < 2) loop_turn(loop, -1);
    assert_int_equal(terms, 1);
    assert_int_equal(hups, 1);
    kill(getpid(), SIGTERM);
    while (terms < 2) loop_turn(loop, -1);
    signals_close(s);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM));
}

static void a_write_past_the_size_limit_is_an_error_after_a_part(void **state)
{
    (void)state;
    static const struct signal_handler none[] = {{SIGTERM, count_signal, &terms}};
    char path[] = "/tmp/barnabas-os-limit-XXXXXX";
    close(mkstemp(path));
    struct signals *s;
    assert_int_equal(signals_open(&s, loop, none, 1, NULL), OK); /* ignores SIGXFSZ */
    struct file *f;
    assert_int_equal(fs_open(fs_system(), path, FS_READ | FS_WRITE, &f), OK);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char text[] = "0123456789abcdef";
    struct iovec iov[] = {{text, 7}, {text + 7, 6}, {text + 13, 3}};
    enum err e = file_pwritev(f, iov, 3, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(e, ERR_TOO_BIG);
    int64_t size;
    assert_int_equal(file_size(f, &size), OK);
    assert_int_equal(size, 10);
    file_unref(f);
    assert_int_equal(fs_unlink(fs_system(), path), OK);
    signals_close(s);
}

static void the_file_limit_is_raised_and_processors_are_counted(void **state)
{
    (void)state;
    struct rlimit before, after;
    uint64_t now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit low = {.rlim_cur = MIN((rlim_t)64, before.rlim_max), .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(process_raise_file_limit(&now), OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_true(now == before.rlim_max && after.rlim_cur == before.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(process_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_echo_through_small_buffers_returns_every_byte),
        cmocka_unit_test(a_file_is_sent_from_any_position_until_its_end),
        cmocka_unit_test(a_peer_that_closes_is_told_by_an_empty_read_then_by_a_failing_send),
        cmocka_unit_test(a_refused_connection_says_so),
        cmocka_unit_test(a_socket_may_be_closed_within_its_own_ready),
        cmocka_unit_test(a_port_in_use_is_an_error_until_its_listener_closes),
        cmocka_unit_test(connections_do_not_delay_small_answers_and_notice_dead_hosts),
        cmocka_unit_test(accept_says_when_descriptors_run_out_and_works_again_after),
        cmocka_unit_test(one_wildcard_listener_takes_both_families_and_shows_ipv4_as_such),
        cmocka_unit_test(addresses_are_written_as_people_write_them),
        cmocka_unit_test(names_resolve_ipv4_first_and_unknown_ones_are_explained),
        cmocka_unit_test(local_addresses_are_told_from_others),
        cmocka_unit_test(signals_arrive_on_the_loop),
        cmocka_unit_test(a_write_past_the_size_limit_is_an_error_after_a_part),
        cmocka_unit_test(the_file_limit_is_raised_and_processors_are_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
