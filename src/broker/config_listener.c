/* config_listener.c: listeners, advertised.listeners and what belongs to them.
 *
 * NAME://host:port, several separated by commas.  Names are folded to capitals, as in Kafka.  Rules that are Kafka's:
 * names differ; ports of `listeners` differ, but for one IPv4 and one IPv6 address on the same port (KIP-797); every
 * name has a security protocol; advertised names are a subset of the listeners' and never the address 0.0.0.0. */
#include "broker/config_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *upper(struct str s, struct arena *a)
{
    struct str copy = arena_str(a, s);
    char *text = (char *)(uintptr_t)copy.data;
    for (size_t i = 0; i < copy.size; i++) text[i] = (char)toupper((unsigned char)text[i]);
    return text;
}

/* The protocol that listener.security.protocol.map gives the name. */
static enum err map_protocol(const struct config *cfg, const char *name, enum security_protocol *out, struct fault *f)
{
    static const char key[] = "listener.security.protocol.map";
    struct arena scratch;
    arena_init(&scratch, SIZE_MAX);
    struct config_list pairs = config_split(str_of(config_str(cfg, CFG_LISTENER_SECURITY_PROTOCOL_MAP)), &scratch);
    int found = -1;
    enum err e = OK;
    for (size_t i = 0; i < pairs.count && !e; i++) {
        const char *colon = strrchr(pairs.items[i], ':');
        if (!colon) {
            e = config_fault(cfg, f, ERR_INVALID, key,
                             "Invalid value %.100s for configuration %s: expected NAME:PROTOCOL", pairs.items[i], key);
            continue;
        }
        struct str mapped = config_trim((struct str){pairs.items[i], (size_t)(colon - pairs.items[i])});
        struct str wanted = str_of(upper(config_trim(str_of(colon + 1)), &scratch));
        int16_t protocol;
        if (!security_protocol_parse(wanted, &protocol))
            e = config_fault(cfg, f, ERR_INVALID, key, "Invalid security protocol `%.50s` defined in %s", colon + 1,
                             key);
        else if (mapped.size == strlen(name) && strncasecmp(mapped.data, name, mapped.size) == 0)
            found = protocol;
    }
    arena_fini(&scratch);
    if (e) return e;
    const char *where = cfg->sources[CFG_LISTENERS] != CONFIG_FROM_DEFAULT ? "listeners" : key;
    if (found < 0)
        return config_fault(cfg, f, ERR_INVALID, where, "No security protocol defined for listener %s in %s", name,
                            key);
    if (found != SECURITY_PLAINTEXT)
        return config_fault(cfg, f, ERR_UNSUPPORTED, where,
                            "Listener %s uses the security protocol %s, which is not supported yet: only PLAINTEXT is",
                            name, security_protocol_name((int16_t)found));
    *out = (enum security_protocol)found;
    return OK;
}

static bool is_host_text(struct str s)
{
    for (size_t i = 0; i < s.size; i++)
        if (!isalnum((unsigned char)s.data[i]) && !strchr("-%._:", s.data[i])) return false;
    return true;
}

/* Splits NAME://host:port.  The last :// ends the name and the last : the host, so that ::1 needs no brackets. */
static bool endpoint_split(const char *text, struct str *name, struct str *host, long *port)
{
    const char *slashes = NULL;
    for (const char *at = strstr(text, "://"); at; at = strstr(at + 1, "://")) slashes = at;
    if (!slashes) return false;
    *name = config_trim((struct str){text, (size_t)(slashes - text)});
    const char *start = slashes + 3;
    const char *colon = strrchr(start, ':');
    if (!colon) return false;
    const char *digits = colon + 1;
    size_t digit_count = strspn(digits, "0123456789");
    if (digit_count == 0 || digit_count > 5 || digits[digit_count]) return false;
    *port = strtol(digits, NULL, 10);
    *host = (struct str){start, (size_t)(colon - start)};
    if (host->size && host->data[0] == '[') *host = (struct str){start + 1, host->size - 1};
    if (host->size && host->data[host->size - 1] == ']') host->size--;
    return *port <= UINT16_MAX && is_host_text(*host);
}

static enum err listener_parse(struct config *cfg, const char *key, const char *text, struct listener *out,
                               struct fault *f)
{
    struct str name, host;
    long port;
    if (!endpoint_split(text, &name, &host, &port))
        return config_fault(
            cfg, f, ERR_INVALID, key,
            "Invalid value %.200s for configuration %s: expected NAME://host:port with a port from 0 to %d", text, key,
            UINT16_MAX);
    if (name.size == 0)
        return config_fault(cfg, f, ERR_INVALID, key,
                            "Invalid value %.200s for configuration %s: the listener has no name", text, key);
    out->name = upper(name, &cfg->arena);
    out->host = host.size ? arena_str(&cfg->arena, host).data : NULL;
    out->port = (uint16_t)port;
    return map_protocol(cfg, out->name, &out->protocol, f);
}

/* 4 or 6 for an address of that kind, else 0: a name, or every interface. */
static int address_family(const char *host)
{
    if (!host) return 0;
    unsigned char bytes[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, bytes) == 1) return 4;
    char plain[INET6_ADDRSTRLEN];
    size_t size = strcspn(host, "%"); /* without a zone */
    if (size >= sizeof plain) return 0;
    memcpy(plain, host, size);
    plain[size] = '\0';
    return inet_pton(AF_INET6, plain, bytes) == 1 ? 6 : 0;
}

/* Two listeners can share a port only as one IPv4 and one IPv6 address, and a third cannot join them. */
static enum err check_ports(const struct config *cfg, struct listener_list list, struct fault *f)
{
    for (size_t i = 0; i < list.count; i++) {
        int sharers = 0;
        for (size_t j = 0; j < list.count; j++) {
            if (i == j || list.items[i].port == 0 || list.items[i].port != list.items[j].port) continue;
            int a = address_family(list.items[i].host), b = address_family(list.items[j].host);
            if (a == 0 || b == 0 || a == b || ++sharers > 1)
                return config_fault(cfg, f, ERR_INVALID, "listeners",
                                    "Each listener must have a different port, unless one has an IPv4 and the other an "
                                    "IPv6 address: %s and %s both use port %d",
                                    list.items[MIN(i, j)].name, list.items[MAX(i, j)].name, list.items[i].port);
        }
    }
    return OK;
}

static enum err list_parse(struct config *cfg, enum config_key key, struct listener_list *out, struct fault *f)
{
    const char *name = config_broker_rows[key].name;
    struct config_list texts = config_split(str_of(config_str(cfg, key)), &cfg->arena);
    struct listener *items = arena_array(&cfg->arena, struct listener, texts.count);
    for (size_t i = 0; i < texts.count; i++) {
        enum err e = listener_parse(cfg, name, texts.items[i], &items[i], f);
        if (e) return e;
        if (listener_find((struct listener_list){items, i}, items[i].name))
            return config_fault(cfg, f, ERR_INVALID, name,
                                "Each listener must have a different name, %s: %s is there twice", name, items[i].name);
    }
    *out = (struct listener_list){items, texts.count};
    return OK;
}

static enum err check_advertised(const struct config *cfg, struct fault *f)
{
    static const char key[] = "advertised.listeners";
    for (size_t i = 0; i < cfg->advertised.count; i++) {
        const struct listener *l = &cfg->advertised.items[i];
        if (!listener_find(cfg->listeners, l->name))
            return config_fault(
                cfg, f, ERR_INVALID, key,
                "advertised.listeners listener names must be equal to or a subset of the ones defined in "
                "listeners: %s is not there",
                l->name);
        if (l->host && (strcmp(l->host, "0.0.0.0") == 0 || strcmp(l->host, "::") == 0))
            return config_fault(cfg, f, ERR_INVALID, config_is_null(cfg, CFG_ADVERTISED_LISTENERS) ? "listeners" : key,
                                "advertised.listeners cannot use the nonroutable meta-address %s. Use a routable IP "
                                "address, or set advertised.listeners where only listeners is set",
                                l->host);
    }
    return OK;
}

static enum err choose_inter_broker(struct config *cfg, struct fault *f)
{
    static const char key[] = "inter.broker.listener.name";
    const char *name = config_str(cfg, CFG_INTER_BROKER_LISTENER_NAME);
    if (name && cfg->sources[CFG_SECURITY_INTER_BROKER_PROTOCOL] != CONFIG_FROM_DEFAULT)
        return config_fault(cfg, f, ERR_INVALID, key,
                            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.");
    if (!name) name = config_str(cfg, CFG_SECURITY_INTER_BROKER_PROTOCOL);
    cfg->inter_broker = listener_find(cfg->advertised, name);
    if (!cfg->inter_broker)
        return config_fault(
            cfg, f, ERR_INVALID, key,
            "inter.broker.listener.name must be a listener name defined in advertised.listeners: %.100s is "
            "not there",
            name);
    return OK;
}

enum err config_listeners_resolve(struct config *cfg, struct fault *f)
{
    enum err e = list_parse(cfg, CFG_LISTENERS, &cfg->listeners, f);
    if (e) return e;
    if (cfg->listeners.count == 0)
        return config_fault(cfg, f, ERR_INVALID, "listeners", "There must be at least one listener in listeners.");
    e = check_ports(cfg, cfg->listeners, f);
    if (e) return e;
    cfg->advertised = cfg->listeners;
    if (!config_is_null(cfg, CFG_ADVERTISED_LISTENERS)) {
        e = list_parse(cfg, CFG_ADVERTISED_LISTENERS, &cfg->advertised, f);
        if (e) return e;
        if (cfg->advertised.count == 0)
            return config_fault(cfg, f, ERR_INVALID, "advertised.listeners",
                                "There must be at least one broker advertised listener.");
    }
    e = check_advertised(cfg, f);
    if (e) return e;
    return choose_inter_broker(cfg, f);
}
