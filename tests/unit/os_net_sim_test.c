/* os/net_sim: bytes arrive in order whatever the delays, windows are bounded, and links and hosts fail as they are told
 * to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "os/net_sim.h"

enum { HOSTS = 3, PORT = 9092, WINDOW = 1000, RETRIES_US = 10 * 1000 * 1000 };

struct end {
    struct sock *sock;
    unsigned ready; /* all that it was told */
};

struct world {
    struct clock clock;
    int64_t now_us;
    struct loop *loop;
    struct net_sim *net;
    struct end listener, client, server;
};

static int64_t mono_us(struct clock *c)
{
    return CONTAINER_OF(c, struct world, clock)->now_us;
}

static void on_ready(struct sock *s, void *arg, unsigned ready)
{
    (void)s;
    ((struct end *)arg)->ready |= ready;
}

/* Until nothing is left to do, or the time is over. */
static void run_for(struct world *w, int64_t us)
{
    int64_t until_us = w->now_us + us;
    for (;;) {
        int64_t due_us = MIN(net_sim_due_us(w->net), loop_due_us(w->loop));
        if (due_us > until_us) break;
        w->now_us = MAX(w->now_us, due_us);
        net_sim_turn(w->net);
        loop_turn(w->loop, 0);
    }
    w->now_us = until_us;
}

static struct net_addr addr_of(const char *host, uint16_t port)
{
    struct net_addr a;
    size_t count;
    assert_int_equal(net_resolve(host, port, &a, 1, &count, NULL), OK);
    return a;
}

static void attach(struct world *w, struct end *e)
{
    e->ready = 0;
    assert_int_equal(sock_attach(e->sock, w->loop, on_ready, e), OK);
}

static void start(struct world *w)
{
    *w = (struct world){.clock.mono_us = mono_us};
    w->loop = loop_new_turned(&w->clock, 0);
    w->net = net_sim_new(&(struct net_sim_options){.seed = 7,
                                                   .clock = &w->clock,
                                                   .hosts = HOSTS,
                                                   .delay_us_min = 10,
                                                   .delay_us_max = 5000,
                                                   .slow_one_in = 5,
                                                   .slow_us = 50000,
                                                   .window_bytes = WINDOW});
    struct net_addr at = addr_of("10.0.0.1", PORT);
    assert_int_equal(net_listen(net_sim_host(w->net, 0), w->loop, &at, 10, &w->listener.sock), OK);
    attach(w, &w->listener);
}

static void stop(struct world *w)
{
    struct end *ends[] = {&w->client, &w->server, &w->listener};
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++)
        if (ends[i]->sock) sock_close(ends[i]->sock);
    loop_free(w->loop);
    net_sim_free(w->net);
}

static void begin_connect(struct world *w)
{
    struct net_addr to = addr_of("10.0.0.1", PORT);
    assert_int_equal(net_connect(net_sim_host(w->net, 1), w->loop, &to, &w->client.sock), OK);
    attach(w, &w->client);
}

static void accept_one(struct world *w)
{
    struct net_addr peer;
    char host[NET_ADDR_TEXT_MAX];
    assert_int_equal(sock_accept(w->listener.sock, &w->server.sock, &peer), OK);
    net_addr_host(&peer, host);
    assert_string_equal(host, "10.0.0.2");
    attach(w, &w->server);
}

static void connected(struct world *w)
{
    start(w);
    begin_connect(w);
    run_for(w, RETRIES_US);
    assert_int_equal(w->client.ready, NET_WRITABLE);
    accept_one(w);
}

static enum err send_text(struct end *e, const char *text, size_t *sent)
{
    struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
    return sock_send(e->sock, &iov, 1, false, sent);
}

static void assert_gets(struct end *e, const char *text)
{
    char got[2 * WINDOW];
    size_t size;
    assert_int_equal(sock_recv(e->sock, got, sizeof got, &size), OK);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(got, text, size);
}

static void assert_gets_nothing(struct end *e, enum err expected)
{
    char byte;
    size_t size;
    assert_int_equal(sock_recv(e->sock, &byte, 1, &size), expected);
}

static void bytes_arrive_in_order_and_then_the_end(void **state)
{
    (void)state;
    struct world w;
    connected(&w);
    char all[201] = "";
    for (int i = 0; i < 100; i++) {
        char two[3] = {(char)('a' + i % 26), (char)('0' + i % 10), '\0'};
        size_t sent;
        assert_int_equal(send_text(&w.client, two, &sent), OK);
        strcat(all, two);
        run_for(&w, 100);
    }
    sock_close(w.client.sock);
    w.client.sock = NULL;
    assert_gets_nothing(&w.server, ERR_AGAIN);
    run_for(&w, RETRIES_US);
    assert_int_equal(w.server.ready, NET_READABLE | NET_PEER_DONE | NET_WRITABLE);
    assert_gets(&w.server, all);
    assert_gets(&w.server, "");
    stop(&w);
}

static void a_full_window_is_told_when_there_is_room_again(void **state)
{
    (void)state;
    struct world w;
    connected(&w);
    char much[WINDOW + 101];
    memset(much, 'x', sizeof much - 1);
    much[sizeof much - 1] = '\0';
    size_t sent;
    assert_int_equal(send_text(&w.client, much, &sent), OK);
    assert_int_equal(sent, WINDOW); /* a part: more is told of */
    run_for(&w, RETRIES_US);
    w.client.ready = 0;
    much[WINDOW] = '\0';
    assert_gets(&w.server, much);
    run_for(&w, RETRIES_US);
    assert_true(w.client.ready & NET_WRITABLE);
    assert_int_equal(send_text(&w.client, "y", &sent), OK);
    run_for(&w, RETRIES_US);
    assert_gets(&w.server, "y");
    stop(&w);
}

static void nobody_who_listens_refuses(void **state)
{
    (void)state;
    struct world w;
    start(&w);
    struct net_addr to = addr_of("10.0.0.3", PORT);
    assert_int_equal(net_connect(net_sim_host(w.net, 1), w.loop, &to, &w.client.sock), OK);
    attach(&w, &w.client);
    run_for(&w, RETRIES_US);
    assert_true(w.client.ready & NET_HANGUP);
    assert_gets_nothing(&w.client, ERR_CLOSED);
    stop(&w);
}

static void a_cut_link_brings_everything_when_it_is_mended(void **state)
{
    (void)state;
    struct world w;
    connected(&w);
    size_t sent;
    net_sim_set_link(w.net, 1, 0, NET_SIM_CUT, 0);
    assert_int_equal(send_text(&w.client, "one", &sent), OK);
    run_for(&w, RETRIES_US);
    assert_int_equal(send_text(&w.client, "two", &sent), OK); /* is still under way when the link is mended */
    assert_gets_nothing(&w.server, ERR_AGAIN);
    net_sim_set_link(w.net, 1, 0, NET_SIM_UP, 200 * 1000);
    run_for(&w, RETRIES_US);
    assert_gets(&w.server, "onetwo");
    assert_int_equal(w.client.ready, NET_WRITABLE); /* it did not notice */
    stop(&w);
}

static void connecting_over_a_cut_link_waits(void **state)
{
    (void)state;
    struct world w;
    start(&w);
    net_sim_set_link(w.net, 0, 1, NET_SIM_CUT, 0); /* the answer is lost */
    begin_connect(&w);
    run_for(&w, RETRIES_US);
    assert_int_equal(w.client.ready, 0);
    net_sim_set_link(w.net, 0, 1, NET_SIM_UP, 0);
    run_for(&w, RETRIES_US);
    assert_int_equal(w.client.ready, NET_WRITABLE);
    stop(&w);
}

static void a_refusing_link_refuses_and_breaks(void **state)
{
    (void)state;
    struct world w;
    connected(&w);
    size_t sent;
    net_sim_set_link(w.net, 0, 1, NET_SIM_REFUSING, 0);
    assert_int_equal(send_text(&w.server, "x", &sent), OK);
    run_for(&w, RETRIES_US);
    assert_true(w.server.ready & NET_HANGUP); /* the filter's reset */
    assert_int_equal(w.client.ready, NET_WRITABLE);
    net_sim_set_link(w.net, 0, 1, NET_SIM_UP, 0);
    assert_int_equal(send_text(&w.client, "y", &sent), OK); /* to one that is gone */
    run_for(&w, RETRIES_US);
    assert_true(w.client.ready & NET_HANGUP);
    stop(&w);
}

static void the_process_of_a_host_is_gone(void **state)
{
    (void)state;
    for (int silently = 0; silently < 2; silently++) {
        struct world w;
        connected(&w);
        size_t sent;
        net_sim_host_gone(w.net, 0, silently);
        w.server.sock = w.listener.sock = NULL;
        run_for(&w, RETRIES_US);
        assert_int_equal(w.client.ready & NET_HANGUP, silently ? 0 : NET_HANGUP);
        if (silently) assert_int_equal(send_text(&w.client, "x", &sent), OK);
        run_for(&w, RETRIES_US);
        assert_int_equal(w.client.ready & NET_HANGUP, silently ? 0 : NET_HANGUP);
        net_sim_host_up(w.net, 0);
        run_for(&w, RETRIES_US);
        assert_true(w.client.ready & NET_HANGUP);
        stop(&w);
    }
}

/* Nothing is sent: who waits for an answer hears it all the same. */
static void a_host_that_lost_its_power_has_forgotten_its_connections(void **state)
{
    (void)state;
    struct world w;
    connected(&w);
    net_sim_host_gone(w.net, 0, true);
    w.server.sock = w.listener.sock = NULL;
    run_for(&w, RETRIES_US);
    net_sim_host_up(w.net, 0);
    assert_int_equal(w.client.ready & NET_HANGUP, 0);
    run_for(&w, NET_SILENCE_S_MAX * INT64_C(1000000) + RETRIES_US);
    assert_true(w.client.ready & NET_HANGUP);
    stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_in_order_and_then_the_end),
        cmocka_unit_test(a_full_window_is_told_when_there_is_room_again),
        cmocka_unit_test(nobody_who_listens_refuses),
        cmocka_unit_test(a_cut_link_brings_everything_when_it_is_mended),
        cmocka_unit_test(connecting_over_a_cut_link_waits),
        cmocka_unit_test(a_refusing_link_refuses_and_breaks),
        cmocka_unit_test(the_process_of_a_host_is_gone),
        cmocka_unit_test(a_host_that_lost_its_power_has_forgotten_its_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
