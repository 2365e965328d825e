/* net_addr.c: addresses and names of machines.
 *
 * IPv4 peers of an IPv6 socket have mapped addresses (::ffff:10.0.0.1).  Everything here shows and compares them as
 * IPv4, so that limits and logs by address see one address for one machine. */
#include "os/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { HOST_NAME_SIZE = 256 };

static struct net_addr addr_of_ipv4(struct in_addr ip, uint16_t port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr = ip, .sin_port = htons(port)};
    struct net_addr a = {.sa_size = sizeof sin};
    memcpy(&a.sa, &sin, sizeof sin);
    return a;
}

static struct sockaddr_in ipv4_of(const struct net_addr *a)
{
    struct sockaddr_in sin;
    memcpy(&sin, &a->sa, sizeof sin);
    return sin;
}

static struct sockaddr_in6 ipv6_of(const struct net_addr *a)
{
    struct sockaddr_in6 sin6;
    memcpy(&sin6, &a->sa, sizeof sin6);
    return sin6;
}

static struct net_addr unmapped(const struct net_addr *a)
{
    if (a->sa.ss_family != AF_INET6) return *a;
    struct sockaddr_in6 sin6 = ipv6_of(a);
    if (!IN6_IS_ADDR_V4MAPPED(&sin6.sin6_addr)) return *a;
    struct in_addr ip;
    memcpy(&ip, &sin6.sin6_addr.s6_addr[12], sizeof ip);
    return addr_of_ipv4(ip, ntohs(sin6.sin6_port));
}

/* ---- as text ---- */

void net_addr_host(const struct net_addr *a, char out[NET_ADDR_TEXT_MAX])
{
    struct net_addr plain = unmapped(a);
    out[0] = '\0';
    if (plain.sa.ss_family == AF_INET) {
        struct sockaddr_in sin = ipv4_of(&plain);
        (void)inet_ntop(AF_INET, &sin.sin_addr, out, NET_ADDR_TEXT_MAX);
    } else if (plain.sa.ss_family == AF_INET6) {
        struct sockaddr_in6 sin6 = ipv6_of(&plain);
        (void)inet_ntop(AF_INET6, &sin6.sin6_addr, out, NET_ADDR_TEXT_MAX);
        size_t n = strlen(out);
        if (sin6.sin6_scope_id) snprintf(out + n, NET_ADDR_TEXT_MAX - n, "%%%u", sin6.sin6_scope_id);
    }
}

void net_host_format_java(const char *host, char out[NET_ADDR_TEXT_MAX])
{
    struct in6_addr ip;
    char plain[INET6_ADDRSTRLEN];
    size_t n = strcspn(host, "%"); /* then comes the scope */
    snprintf(plain, sizeof plain, "%.*s", (int)n, host);
    if (inet_pton(AF_INET6, plain, &ip) != 1) {
        snprintf(out, NET_ADDR_TEXT_MAX, "%s", host);
        return;
    }
    const uint8_t *b = ip.s6_addr;
    enum { GROUPS = 8 };
    size_t at = 0;
    for (int i = 0; i < GROUPS; i++)
        at += (size_t)snprintf(out + at, NET_ADDR_TEXT_MAX - at, i ? ":%x" : "%x", (b[2 * i] << 8) + b[2 * i + 1]);
    snprintf(out + at, NET_ADDR_TEXT_MAX - at, "%s", host + n);
}

void net_addr_format(const struct net_addr *a, char out[NET_ADDR_TEXT_MAX])
{
    enum { ROOM_FOR_PORT = 8 }; /* "[]:65535" */
    char host[NET_ADDR_TEXT_MAX];
    net_addr_host(a, host);
    snprintf(out, NET_ADDR_TEXT_MAX, strchr(host, ':') ? "[%.*s]:%u" : "%.*s:%u", NET_ADDR_TEXT_MAX - 1 - ROOM_FOR_PORT,
             host, (unsigned)net_addr_port(a));
}

uint16_t net_addr_port(const struct net_addr *a)
{
    switch (a->sa.ss_family) {
    case AF_INET: return ntohs(ipv4_of(a).sin_port);
    case AF_INET6: return ntohs(ipv6_of(a).sin6_port);
    default: return 0;
    }
}

/* ---- from text ---- */

static void set_port(struct net_addr *a, uint16_t port)
{
    if (a->sa.ss_family == AF_INET) {
        struct sockaddr_in sin = ipv4_of(a);
        sin.sin_port = htons(port);
        memcpy(&a->sa, &sin, sizeof sin);
    } else {
        struct sockaddr_in6 sin6 = ipv6_of(a);
        sin6.sin6_port = htons(port);
        memcpy(&a->sa, &sin6, sizeof sin6);
    }
}

/* Ports left aside. */
static bool is_same_host(const struct net_addr *x, const struct net_addr *y)
{
    struct net_addr a = unmapped(x), b = unmapped(y);
    if (a.sa.ss_family != b.sa.ss_family) return false;
    if (a.sa.ss_family == AF_INET) return ipv4_of(&a).sin_addr.s_addr == ipv4_of(&b).sin_addr.s_addr;
    struct sockaddr_in6 a6 = ipv6_of(&a), b6 = ipv6_of(&b);
    return memcmp(&a6.sin6_addr, &b6.sin6_addr, sizeof a6.sin6_addr) == 0 &&
           (a6.sin6_scope_id == b6.sin6_scope_id || a6.sin6_scope_id == 0 || b6.sin6_scope_id == 0);
}

/* "::" takes both families; where the kernel has no IPv6, "0.0.0.0". */
static struct net_addr wildcard(uint16_t port)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return addr_of_ipv4((struct in_addr){htonl(INADDR_ANY)}, port);
    close(fd);
    struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port)};
    struct net_addr a = {.sa_size = sizeof sin6};
    memcpy(&a.sa, &sin6, sizeof sin6);
    return a;
}

static enum err err_of_resolver(int code)
{
    enum err e = ERR_NOT_FOUND;
    if (code == EAI_AGAIN) e = ERR_TIMEOUT;
    if (code == EAI_MEMORY) e = ERR_TOO_MANY;
    if (code == EAI_SYSTEM) e = err_of_errno(errno);
    return e ? e : ERR_IO; /* errno may have been left at 0: a failure must not read as success */
}

/* Adds the list's addresses of one family, each once. */
static void add_family(const struct addrinfo *list, int family, uint16_t port, struct net_addr *out, size_t max,
                       size_t *count)
{
    for (const struct addrinfo *ai = list; ai && *count < max; ai = ai->ai_next) {
        if (ai->ai_family != family || ai->ai_addrlen > sizeof out->sa) continue;
        struct net_addr a = {.sa_size = ai->ai_addrlen};
        memcpy(&a.sa, ai->ai_addr, ai->ai_addrlen);
        set_port(&a, port);
        bool known = false;
        for (size_t i = 0; i < *count && !known; i++) known = is_same_host(&out[i], &a);
        if (!known) out[(*count)++] = a;
    }
}

/* Without the brackets of an IPv6 address.  False: too long. */
static bool copy_host(const char *host, char name[HOST_NAME_SIZE])
{
    size_t size = strlen(host);
    if (size > 2 && host[0] == '[' && host[size - 1] == ']') {
        host++;
        size -= 2;
    }
    if (size >= HOST_NAME_SIZE) return false;
    memcpy(name, host, size);
    name[size] = '\0';
    return true;
}

bool net_addr_parse(const char *host, uint16_t port, struct net_addr *out)
{
    char name[HOST_NAME_SIZE];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    if (!copy_host(host, name) || getaddrinfo(name, NULL, &hints, &list) != 0) return false;
    size_t count = 0;
    add_family(list, AF_INET, port, out, 1, &count);
    add_family(list, AF_INET6, port, out, 1, &count);
    freeaddrinfo(list);
    return count == 1;
}

enum err net_resolve(const char *host, uint16_t port, struct net_addr *out, size_t max, size_t *count, struct fault *f)
{
    ASSERT(max > 0);
    if (!host || !*host) {
        out[0] = wildcard(port);
        *count = 1;
        return OK;
    }
    char name[HOST_NAME_SIZE];
    if (!copy_host(host, name)) return fault_set(f, ERR_INVALID, "The host name %.60s... is too long.", host);

    struct in_addr ip;
    if (inet_pton(AF_INET, name, &ip) == 1) { /* nobody needs to be asked */
        out[0] = addr_of_ipv4(ip, port);
        *count = 1;
        return OK;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int code = getaddrinfo(name, NULL, &hints, &list);
    if (code) {
        enum err e = err_of_resolver(code);
        return fault_set(f, e, "The host name %s cannot be resolved: %s.", name, gai_strerror(code));
    }
    /* IPv4 first, as in Java: "localhost" is 127.0.0.1 for every Kafka tool and configuration. */
    *count = 0;
    add_family(list, AF_INET, port, out, max, count);
    add_family(list, AF_INET6, port, out, max, count);
    freeaddrinfo(list);
    if (*count == 0) return fault_set(f, ERR_NOT_FOUND, "The host name %s has no address.", name);
    return OK;
}

/* ---- this machine ---- */

static bool is_loopback(const struct net_addr *a)
{
    if (a->sa.ss_family == AF_INET) return ntohl(ipv4_of(a).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    struct sockaddr_in6 sin6 = ipv6_of(a);
    return IN6_IS_ADDR_LOOPBACK(&sin6.sin6_addr);
}

bool net_addr_is_local(const struct net_addr *a)
{
    struct net_addr plain = unmapped(a);
    if (plain.sa.ss_family != AF_INET && plain.sa.ss_family != AF_INET6) return false;
    if (is_loopback(&plain)) return true; /* all of 127.0.0.0/8, though an interface names only one */
    struct ifaddrs *list;
    if (getifaddrs(&list) < 0) return false;
    bool found = false;
    for (const struct ifaddrs *ifa = list; ifa && !found; ifa = ifa->ifa_next) {
        if (!ifa->ifa_addr || ifa->ifa_addr->sa_family != plain.sa.ss_family) continue;
        struct net_addr own = {0};
        own.sa_size = plain.sa.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&own.sa, ifa->ifa_addr, own.sa_size);
        found = is_same_host(&own, &plain);
    }
    freeifaddrs(list);
    return found;
}

/* What Java's InetAddress.getLocalHost().getCanonicalHostName() does: the name's first address, that address's name, if
 * that name leads back to the address; else the address as text.  Where Java would throw because the machine does not
 * know its own name, the name as it is. */
char *net_host_name(void)
{
    enum { ADDRESSES_MAX = 16 };
    char name[HOST_NAME_SIZE] = "";
    if (gethostname(name, sizeof name - 1) < 0 || !*name) return mem_strdup("localhost");
    struct net_addr own[ADDRESSES_MAX], back[ADDRESSES_MAX];
    size_t own_count, back_count;
    if (net_resolve(name, 0, own, ADDRESSES_MAX, &own_count, NULL) != OK) return mem_strdup(name);
    char canonical[NI_MAXHOST];
    const struct sockaddr *sa = (const struct sockaddr *)&own[0].sa;
    if (getnameinfo(sa, own[0].sa_size, canonical, sizeof canonical, NULL, 0, NI_NAMEREQD) == 0 &&
        net_resolve(canonical, 0, back, ADDRESSES_MAX, &back_count, NULL) == OK) {
        for (size_t i = 0; i < back_count; i++)
            if (is_same_host(&back[i], &own[0])) return mem_strdup(canonical);
    }
    char text[NET_ADDR_TEXT_MAX];
    net_addr_host(&own[0], text);
    return mem_strdup(text);
}
