/* wire.c: the network between the namespaces of a test: a switch of IP packets that can cut, delay and throttle each
 * way between two nodes by itself.
 *
 *     wire NAMESPACE...        node 1 is the first one; it gets the device `wire` with the address 10.99.0.1, and so on
 *
 * Commands on standard input, a line each, answered with "ok" or "no: REASON":
 *
 *     set FROM TO DELAY_US BYTES_PER_SECOND CUT      from node FROM to node TO; 0 bytes a second: as fast as it goes
 *
 * It ends with its standard input.  Packets are taken from a node's device, wait their time in the queue of their way,
 * and are given to the other's.  A queue that is full drops, as a switch does; so does a way that is cut. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    NODES_MAX = 32,
    PACKET_MAX = 65535,
    QUEUE_BYTES_MAX = 8 << 20,
    BATCH = 64, /* packets taken from one node before the others have their turn */
    IP4_DESTINATION_AT = 16
};

struct packet {
    struct packet *next;
    int64_t due_us;
    size_t size;
    uint8_t data[];
};

/* One way between two nodes. */
struct way {
    int64_t delay_us, bytes_per_s;
    bool cut;
    int64_t free_us; /* when the packet before has left */
    size_t bytes;
    struct packet *first, **end;
};

static int devices[NODES_MAX];
static int node_count;
static struct way ways[NODES_MAX][NODES_MAX];

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "wire: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, ": %s\n", strerror(errno));
    va_end(args);
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The device is made within the namespace, and stays in our hands outside of it. */
static int device_open(const char *namespace)
{
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s", namespace);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET)) die("namespace %s", namespace);
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "wire");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request)) die("device in %s", namespace);
    return fd;
}

/* ---- Packets */

static void way_push(struct way *w, const uint8_t *data, size_t size, int64_t now)
{
    if (w->cut || w->bytes + size > QUEUE_BYTES_MAX) return;
    struct packet *p = malloc(sizeof *p + size);
    if (!p) return;
    int64_t start = w->free_us > now ? w->free_us : now;
    w->free_us = w->bytes_per_s ? start + (int64_t)size * 1000000 / w->bytes_per_s : now;
    p->next = NULL;
    p->due_us = (w->bytes_per_s ? w->free_us : now) + w->delay_us;
    p->size = size;
    memcpy(p->data, data, size);
    if (!w->first) w->end = &w->first;
    *w->end = p;
    w->end = &p->next;
    w->bytes += size;
}

/* Gives what is due; returns when the next one is, or INT64_MAX. */
static int64_t way_pump(struct way *w, int to, int64_t now)
{
    while (w->first && (w->cut || w->first->due_us <= now)) {
        struct packet *p = w->first;
        w->first = p->next;
        w->bytes -= p->size;
        /* A device that is full or down drops it: the sender's TCP sends again. */
        if (!w->cut && write(devices[to], p->data, p->size) < 0 && errno != EAGAIN && errno != EIO && errno != ENOBUFS)
            die("write to node %d", to + 1);
        free(p);
    }
    return w->first ? w->first->due_us : INT64_MAX;
}

static void node_take(int from, int64_t now)
{
    static uint8_t data[PACKET_MAX];
    for (int i = 0; i < BATCH; i++) {
        ssize_t n = read(devices[from], data, sizeof data);
        if (n < 0) return; /* nothing there, or the device is down */
        if (n < 20 || data[0] >> 4 != 4) continue;
        int to = data[IP4_DESTINATION_AT + 3] - 1;
        if (to < 0 || to >= node_count || to == from) continue;
        way_push(&ways[from][to], data, (size_t)n, now);
        if (!ways[from][to].delay_us && !ways[from][to].bytes_per_s) way_pump(&ways[from][to], to, now);
    }
}

/* ---- Commands */

static void command_run(const char *line)
{
    int from, to, cut;
    long long delay_us, bytes_per_s;
    if (sscanf(line, "set %d %d %lld %lld %d", &from, &to, &delay_us, &bytes_per_s, &cut) != 5 || from < 1 || to < 1 ||
        from > node_count || to > node_count || delay_us < 0 || bytes_per_s < 0) {
        printf("no: set FROM TO DELAY_US BYTES_PER_SECOND CUT, nodes 1 to %d\n", node_count);
        return;
    }
    struct way *w = &ways[from - 1][to - 1];
    w->delay_us = delay_us;
    w->bytes_per_s = bytes_per_s;
    w->cut = cut;
    w->free_us = 0;
    puts("ok");
}

/* False at the end of the input. */
static bool commands_take(void)
{
    static char text[4096];
    static size_t size;
    ssize_t n = read(STDIN_FILENO, text + size, sizeof text - 1 - size);
    if (n <= 0) return false;
    size += (size_t)n;
    text[size] = '\0';
    char *line = text, *end;
    while ((end = strchr(line, '\n'))) {
        *end = '\0';
        command_run(line);
        line = end + 1;
    }
    fflush(stdout);
    size = strlen(line);
    memmove(text, line, size + 1);
    return size < sizeof text - 1;
}

int main(int argc, char **argv)
{
    struct pollfd fds[NODES_MAX + 1];
    if (argc < 2 || argc - 1 > NODES_MAX) {
        fprintf(stderr, "usage: wire NAMESPACE... (at most %d)\n", NODES_MAX);
        return 2;
    }
    for (; node_count < argc - 1; node_count++) {
        devices[node_count] = device_open(argv[1 + node_count]);
        fds[node_count] = (struct pollfd){.fd = devices[node_count], .events = POLLIN};
    }
    fds[node_count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    puts("ok");
    fflush(stdout);
    int64_t next = INT64_MAX;
    for (;;) {
        int64_t wait_us = next == INT64_MAX ? 1000000 : next - now_us();
        if (wait_us < 0) wait_us = 0;
        struct timespec timeout = {wait_us / 1000000, wait_us % 1000000 * 1000};
        if (ppoll(fds, (nfds_t)node_count + 1, &timeout, NULL) < 0 && errno != EINTR) die("poll");
        if (fds[node_count].revents && !commands_take()) return 0;
        int64_t now = now_us();
        for (int i = 0; i < node_count; i++)
            if (fds[i].revents) node_take(i, now);
        next = INT64_MAX;
        for (int from = 0; from < node_count; from++)
            for (int to = 0; to < node_count; to++) {
                int64_t due = way_pump(&ways[from][to], to, now);
                if (due < next) next = due;
            }
    }
}
