/* zookeeper_hosts.c: zookeeper.connect as ZooKeeper's Java client reads it, told as its C client wants it: every
 * address with a port, IPv6 addresses without brackets, no chroot (the store puts it before the paths itself, to be
 * able to make it). */
#include <stdio.h>

#include "base/mem.h"
#include "coord/zookeeper_internal.h"

enum { PORT_DEFAULT = 2181, PORT_MAX = 65535 };

static struct str str_trim(struct str s)
{
    while (s.size && (s.data[0] == ' ' || s.data[0] == '\t')) s = (struct str){s.data + 1, s.size - 1};
    while (s.size && (s.data[s.size - 1] == ' ' || s.data[s.size - 1] == '\t')) s.size--;
    return s;
}

static bool port_parse(struct str text, int *out)
{
    int port = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || port > PORT_MAX) return false;
        port = port * 10 + (text.data[i] - '0');
    }
    *out = port;
    return text.size > 0 && port > 0 && port <= PORT_MAX;
}

/* One HOST, HOST:PORT, [HOST6] or [HOST6]:PORT. */
static bool host_parse(struct str text, struct str *host, int *port)
{
    struct str rest;
    *port = PORT_DEFAULT;
    if (text.size && text.data[0] == '[') {
        const char *end = memchr(text.data, ']', text.size);
        if (!end) return false;
        *host = (struct str){text.data + 1, (size_t)(end - text.data) - 1};
        rest = (struct str){end + 1, text.size - host->size - 2};
    } else {
        const char *colon = memchr(text.data, ':', text.size);
        *host = (struct str){text.data, colon ? (size_t)(colon - text.data) : text.size};
        rest = (struct str){text.data + host->size, text.size - host->size};
    }
    if (host->size == 0 || memchr(host->data, ' ', host->size)) return false;
    if (rest.size == 0) return true;
    return rest.data[0] == ':' && port_parse((struct str){rest.data + 1, rest.size - 1}, port);
}

static enum err chroot_check(struct str connect, struct str chroot, struct fault *f)
{
    if (chroot.size && !coord_path_is_ok(chroot))
        return fault_set(f, ERR_INVALID, "zookeeper.connect: '%.*s' in '%.*s' is no path of ZooKeeper.",
                         STR_ARG(chroot), STR_ARG(connect));
    if (chroot.size > COORD_CHROOT_MAX)
        return fault_set(f, ERR_INVALID, "zookeeper.connect: the path '%.*s' is longer than %d bytes.", STR_ARG(chroot),
                         COORD_CHROOT_MAX);
    return OK;
}

enum err zookeeper_hosts_parse(struct str connect, char **hosts, char **chroot, struct fault *f)
{
    struct str all = str_trim(connect);
    const char *slash = all.size ? memchr(all.data, '/', all.size) : NULL;
    struct str list = {all.data, slash ? (size_t)(slash - all.data) : all.size};
    struct str path = {slash, all.size - list.size};
    if (path.size == 1) path.size = 0;
    enum err e = chroot_check(connect, path, f);
    if (e) return e;
    char *out = mem_strdup("");
    for (size_t at = 0; at <= list.size;) {
        const char *comma = at < list.size ? memchr(list.data + at, ',', list.size - at) : NULL;
        size_t end = comma ? (size_t)(comma - list.data) : list.size;
        struct str host, one = str_trim((struct str){list.data + at, end - at});
        int port;
        if (!host_parse(one, &host, &port)) {
            mem_free(out);
            return fault_set(f, ERR_INVALID, "zookeeper.connect: '%.*s' in '%.*s' is no HOST:PORT.", STR_ARG(one),
                             STR_ARG(connect));
        }
        char *longer = mem_printf("%s%s%.*s:%d", out, out[0] ? "," : "", STR_ARG(host), port);
        mem_free(out);
        out = longer;
        at = end + 1;
    }
    *hosts = out;
    *chroot = mem_strndup(path.size ? path.data : "", path.size);
    return OK;
}
