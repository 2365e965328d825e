/* znodes.c: Kafka's znodes, read and written with Jansson.
 *
 * Each decoder loads the JSON, pulls typed fields out of it through a `struct in` that remembers the first thing that
 * is wrong, and asks once at the end (as with struct reader). */
#include "coord/znodes.h"

#include <stdlib.h>

#include <jansson.h>

#include "base/mem.h"

/* --- reading JSON --- */

struct in {
    struct arena *a;
    json_t *root;
    const char *what; /* the first thing that is wrong; NULL: nothing */
};

static void in_fail(struct in *in, const char *what)
{
    if (!in->what) in->what = what;
}

static struct in in_open(struct arena *a, struct bytes data)
{
    struct in in = {.a = a};
    json_error_t error;
    in.root = data.size ? json_loadb((const char *)data.data, data.size, JSON_DECODE_ANY, &error) : NULL;
    if (!in.root)
        in_fail(&in, data.size ? arena_printf(a, "%s at byte %d", error.text, error.position).data : "it is empty");
    else if (!json_is_object(in.root))
        in_fail(&in, "it is not a JSON object");
    return in;
}

/* Lets go of the JSON and tells whether all went well. */
static enum err in_close(struct in *in, struct str path, struct fault *f)
{
    json_decref(in->root);
    if (!in->what) return OK;
    return fault_set(f, ERR_CORRUPT, "The content of %.*s in the coordination store is malformed: %s.", STR_ARG(path),
                     in->what);
}

static const json_t *in_field(struct in *in, const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    if (!v) in_fail(in, arena_printf(in->a, "the field \"%s\" is missing", key).data);
    return v;
}

static int64_t in_range(struct in *in, const json_t *v, const char *key, int64_t low, int64_t high)
{
    if (!v) return 0;
    if (json_is_integer(v) && json_integer_value(v) >= low && json_integer_value(v) <= high)
        return json_integer_value(v);
    in_fail(in, arena_printf(in->a, "\"%s\" is not a number within range", key).data);
    return 0;
}

static int32_t in_i32(struct in *in, const char *key)
{
    return (int32_t)in_range(in, in_field(in, in->root, key), key, INT32_MIN, INT32_MAX);
}

static int32_t in_i32_or(struct in *in, const char *key, int32_t missing)
{
    const json_t *v = json_object_get(in->root, key);
    return v ? (int32_t)in_range(in, v, key, INT32_MIN, INT32_MAX) : missing;
}

static struct str in_text(struct in *in, const json_t *v, const char *key)
{
    if (!v) return STR_EMPTY;
    if (json_is_string(v)) return arena_str(in->a, (struct str){json_string_value(v), json_string_length(v)});
    in_fail(in, arena_printf(in->a, "\"%s\" is not a string", key).data);
    return STR_EMPTY;
}

static struct str in_str(struct in *in, const char *key)
{
    return in_text(in, in_field(in, in->root, key), key);
}

/* Decimal digits in a whole string. */
static bool parse_i64(struct str s, int64_t *out)
{
    char text[24], *end;
    if (s.size == 0 || s.size >= sizeof text) return false;
    for (size_t i = 0; i < s.size; i++)
        if (!((s.data[i] >= '0' && s.data[i] <= '9') || (s.data[i] == '-' && i == 0 && s.size > 1))) return false;
    memcpy(text, s.data, s.size);
    text[s.size] = '\0';
    long long v = strtoll(text, &end, 10);
    if (s.size > 18 && (v == INT64_MAX || v == INT64_MIN)) return false;
    *out = v;
    return true;
}

static int64_t in_i64_text(struct in *in, const char *key)
{
    int64_t v = 0;
    struct str text = in_str(in, key);
    if (!in->what && !parse_i64(text, &v)) in_fail(in, arena_printf(in->a, "\"%s\" is not a number", key).data);
    return v;
}

static void in_i32s(struct in *in, const json_t *v, const char *key, int32_t **out, int32_t *count)
{
    *out = NULL;
    *count = 0;
    if (!v) return;
    if (!json_is_array(v)) {
        in_fail(in, arena_printf(in->a, "\"%s\" is not an array", key).data);
        return;
    }
    size_t n = json_array_size(v);
    *out = arena_array(in->a, int32_t, n);
    *count = (int32_t)n;
    for (size_t i = 0; i < n; i++) (*out)[i] = (int32_t)in_range(in, json_array_get(v, i), key, INT32_MIN, INT32_MAX);
}

/* An object or nothing; anything else is wrong. */
static const json_t *in_object_or(struct in *in, const char *key)
{
    const json_t *v = json_object_get(in->root, key);
    if (!v || json_is_object(v)) return v;
    in_fail(in, arena_printf(in->a, "\"%s\" is not an object", key).data);
    return NULL;
}

/* --- writing JSON --- */

/* Takes the JSON over. */
static struct bytes out_give(struct arena *a, json_t *j)
{
    ASSERT(j);
    size_t size = json_dumpb(j, NULL, 0, JSON_COMPACT);
    char *text = arena_alloc(a, size + 1);
    json_dumpb(j, text, size, JSON_COMPACT);
    json_decref(j);
    return (struct bytes){(const uint8_t *)text, size};
}

static json_t *out_str(struct str s)
{
    json_t *j = str_is_null(s) ? json_null() : json_stringn(s.data, s.size);
    /* Not UTF-8: never let in by the callers' checks, and nothing that JSON could say. */
    return j ? j : json_string("");
}

static json_t *out_i32s(const int32_t *v, int32_t count)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < count; i++) json_array_append_new(array, json_integer(v[i]));
    return array;
}

static json_t *out_i64_text(int64_t v)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)v);
    return json_stringn(text, (size_t)n);
}

static void out_field(json_t *object, struct str key, json_t *value)
{
    char *name = mem_strndup(key.data, key.size);
    json_object_set_new(object, name, value);
    mem_free(name);
}

/* --- paths --- */

struct str znode_broker_path(struct arena *a, int32_t broker_id)
{
    return arena_printf(a, "/brokers/ids/%d", broker_id);
}

struct str znode_topic_path(struct arena *a, struct str topic)
{
    return arena_printf(a, "/brokers/topics/%.*s", STR_ARG(topic));
}

struct str znode_partitions_path(struct arena *a, struct str topic)
{
    return arena_printf(a, "/brokers/topics/%.*s/partitions", STR_ARG(topic));
}

struct str znode_partition_path(struct arena *a, struct str topic, int32_t partition)
{
    return arena_printf(a, "/brokers/topics/%.*s/partitions/%d", STR_ARG(topic), partition);
}

struct str znode_state_path(struct arena *a, struct str topic, int32_t partition)
{
    return arena_printf(a, "/brokers/topics/%.*s/partitions/%d/state", STR_ARG(topic), partition);
}

struct str znode_config_path(struct arena *a, struct str type, struct str name)
{
    return arena_printf(a, "/config/%.*s/%.*s", STR_ARG(type), STR_ARG(name));
}

struct str znode_delete_topic_path(struct arena *a, struct str topic)
{
    return arena_printf(a, "/admin/delete_topics/%.*s", STR_ARG(topic));
}

void znodes_make_persistent(struct coord *c, struct coord_to to)
{
    const struct str paths[] = {
        STR("/consumers"),      ZNODE_BROKER_IDS,      ZNODE_TOPICS,           ZNODE_CONFIG_CHANGES,
        ZNODE_DELETE_TOPICS,    ZNODE_BROKER_SEQID,    ZNODE_ISR_CHANGES,      ZNODE_PRODUCER_ID_BLOCK,
        ZNODE_LOG_DIR_EVENTS,   STR("/config/topics"), STR("/config/clients"), STR("/config/users"),
        STR("/config/brokers"), STR("/config/ips"),
    };
    coord_make_paths(c, paths, ARRAY_COUNT(paths), to);
}

/* --- brokers --- */

/* What brokers are told of each other must fit into the strings of messages. */
enum { BROKER_TEXT_MAX = INT16_MAX };

/* "LISTENER://HOST:PORT"; an IPv6 host is in brackets. */
static bool endpoint_parse(struct str text, struct znode_endpoint *out)
{
    const char *sep = text.size > 3 ? memmem(text.data, text.size, "://", 3) : NULL;
    if (!sep) return false;
    out->listener = (struct str){text.data, (size_t)(sep - text.data)};
    struct str rest = {sep + 3, text.size - out->listener.size - 3};
    size_t colon = rest.size;
    while (colon > 0 && rest.data[colon - 1] != ':') colon--;
    if (colon == 0) return false;
    int64_t port;
    if (!parse_i64((struct str){rest.data + colon, rest.size - colon}, &port) || port < -1 || port > 65535)
        return false;
    struct str host = {rest.data, colon - 1};
    if (host.size >= 2 && host.data[0] == '[' && host.data[host.size - 1] == ']')
        host = (struct str){host.data + 1, host.size - 2};
    out->host = host;
    out->port = (int32_t)port;
    return host.size <= BROKER_TEXT_MAX && out->listener.size <= BROKER_TEXT_MAX;
}

static void broker_endpoints(struct in *in, struct znode_broker *out)
{
    const json_t *list = in_field(in, in->root, "endpoints");
    const json_t *protocols = in_object_or(in, "listener_security_protocol_map");
    if (list && !json_is_array(list)) in_fail(in, "\"endpoints\" is not an array");
    size_t n = json_array_size(list);
    out->endpoints = arena_array(in->a, struct znode_endpoint, n);
    out->endpoint_count = n;
    for (size_t i = 0; i < n && !in->what; i++) {
        struct znode_endpoint *ep = &out->endpoints[i];
        if (!endpoint_parse(in_text(in, json_array_get(list, i), "endpoints"), ep)) {
            in_fail(in, "an endpoint is not LISTENER://HOST:PORT");
            return;
        }
        /* Before version 4 a listener's name is its protocol's. */
        struct str protocol = ep->listener;
        if (protocols) {
            struct str key = arena_str(in->a, ep->listener);
            protocol = in_text(in, json_object_get(protocols, key.data), "listener_security_protocol_map");
        }
        if (!security_protocol_parse(protocol, &ep->security_protocol))
            in_fail(in, "a listener has no known security protocol");
    }
}

static void in_features(struct in *in, const char *min_key, const char *max_key, struct znode_feature **out,
                        size_t *count)
{
    const json_t *features = in_object_or(in, "features");
    *out = arena_array(in->a, struct znode_feature, json_object_size(features));
    *count = 0;
    const char *name;
    json_t *range;
    json_object_foreach((json_t *)(uintptr_t)features, name, range)
    {
        struct znode_feature *ft = &(*out)[(*count)++];
        const json_t *low = json_object_get(range, min_key);
        ft->name = arena_str(in->a, str_of(name));
        ft->max_version = (int16_t)in_range(in, in_field(in, range, max_key), max_key, 0, INT16_MAX);
        ft->min_version = low ? (int16_t)in_range(in, low, min_key, 0, INT16_MAX) : 0;
    }
}

enum err znode_broker_decode(struct arena *a, struct str path, struct bytes data, struct znode_broker *out,
                             struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_broker b = {.rack = STR_NULL};
    b.version = in_i32(&in, "version");
    b.jmx_port = in_i32_or(&in, "jmx_port", -1);
    if (!in.what && b.version < 1) in_fail(&in, "its version is not supported");
    if (json_object_get(in.root, "timestamp")) b.timestamp_ms = in_i64_text(&in, "timestamp");
    if (b.version == 1) {
        b.endpoints = arena_array(a, struct znode_endpoint, 1);
        b.endpoint_count = 1;
        b.endpoints[0] =
            (struct znode_endpoint){STR("PLAINTEXT"), in_str(&in, "host"), in_i32(&in, "port"), SECURITY_PLAINTEXT};
    } else {
        broker_endpoints(&in, &b);
    }
    const json_t *rack = json_object_get(in.root, "rack");
    if (rack && !json_is_null(rack)) b.rack = in_text(&in, rack, "rack");
    if (!in.what && b.rack.size > BROKER_TEXT_MAX) in_fail(&in, "its rack is too long");
    in_features(&in, "min_version", "max_version", &b.features, &b.feature_count);
    enum err e = in_close(&in, path, f);
    if (!e) *out = b;
    return e;
}

struct bytes znode_broker_encode(struct arena *a, const struct znode_broker *b)
{
    json_t *features = json_object(), *protocols = json_object(), *endpoints = json_array();
    for (size_t i = 0; i < b->feature_count; i++)
        out_field(features, b->features[i].name,
                  json_pack("{s:i,s:i}", "min_version", b->features[i].min_version, "max_version",
                            b->features[i].max_version));
    /* Clients from before listeners had names look at host and port: the first plaintext endpoint, or none. */
    const struct znode_endpoint *plain = NULL;
    for (size_t i = 0; i < b->endpoint_count; i++) {
        const struct znode_endpoint *ep = &b->endpoints[i];
        bool v6 = memchr(ep->host.data, ':', ep->host.size) != NULL;
        struct str text = arena_printf(a, "%.*s://%s%.*s%s:%d", STR_ARG(ep->listener), v6 ? "[" : "", STR_ARG(ep->host),
                                       v6 ? "]" : "", ep->port);
        json_array_append_new(endpoints, out_str(text));
        out_field(protocols, ep->listener, json_string(security_protocol_name(ep->security_protocol)));
        if (!plain && ep->security_protocol == SECURITY_PLAINTEXT) plain = ep;
    }
    json_t *j = json_pack("{s:o,s:o,s:o}", "features", features, "listener_security_protocol_map", protocols,
                          "endpoints", endpoints);
    if (!str_is_null(b->rack)) json_object_set_new(j, "rack", out_str(b->rack));
    json_object_set_new(j, "jmx_port", json_integer(b->jmx_port));
    json_object_set_new(j, "port", json_integer(plain ? plain->port : -1));
    json_object_set_new(j, "host", out_str(plain ? plain->host : STR_NULL));
    json_object_set_new(j, "version", json_integer(5));
    json_object_set_new(j, "timestamp", out_i64_text(b->timestamp_ms));
    return out_give(a, j);
}

/* --- topics --- */

static int compare_partitions(const void *a, const void *b)
{
    int32_t x = ((const struct znode_replicas *)a)->partition, y = ((const struct znode_replicas *)b)->partition;
    return x < y ? -1 : x > y;
}

enum err znode_topic_decode(struct arena *a, struct str path, struct bytes data, struct znode_topic *out,
                            struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_topic t = {0};
    const json_t *id = json_object_get(in.root, "topic_id");
    if (id && uuid_parse(&t.topic_id, in_text(&in, id, "topic_id"))) in_fail(&in, "\"topic_id\" is not an id");
    const json_t *partitions = in_object_or(&in, "partitions");
    const json_t *adding = in_object_or(&in, "adding_replicas"), *removing = in_object_or(&in, "removing_replicas");
    t.partitions = arena_array(a, struct znode_replicas, json_object_size(partitions));
    const char *key;
    json_t *replicas;
    json_object_foreach((json_t *)(uintptr_t)partitions, key, replicas)
    {
        struct znode_replicas *p = &t.partitions[t.partition_count++];
        int64_t number;
        if (!parse_i64(str_of(key), &number) || number < 0 || number > INT32_MAX) {
            in_fail(&in, "a partition is not a number");
            break;
        }
        p->partition = (int32_t)number;
        in_i32s(&in, replicas, "partitions", &p->replicas, &p->replica_count);
        in_i32s(&in, json_object_get(adding, key), "adding_replicas", &p->adding, &p->adding_count);
        in_i32s(&in, json_object_get(removing, key), "removing_replicas", &p->removing, &p->removing_count);
    }
    if (t.partition_count) qsort(t.partitions, t.partition_count, sizeof *t.partitions, compare_partitions);
    enum err e = in_close(&in, path, f);
    if (!e) *out = t;
    return e;
}

struct bytes znode_topic_encode(struct arena *a, const struct znode_topic *t)
{
    json_t *partitions = json_object(), *adding = json_object(), *removing = json_object();
    for (size_t i = 0; i < t->partition_count; i++) {
        const struct znode_replicas *p = &t->partitions[i];
        char key[12];
        snprintf(key, sizeof key, "%d", p->partition);
        json_object_set_new(partitions, key, out_i32s(p->replicas, p->replica_count));
        if (p->adding_count) json_object_set_new(adding, key, out_i32s(p->adding, p->adding_count));
        if (p->removing_count) json_object_set_new(removing, key, out_i32s(p->removing, p->removing_count));
    }
    json_t *j = json_pack("{s:o}", "partitions", partitions);
    if (!uuid_is_zero(t->topic_id)) {
        char id[UUID_TEXT_SIZE + 1];
        uuid_format(t->topic_id, id);
        json_object_set_new(j, "topic_id", json_string(id));
    }
    json_object_set_new(j, "adding_replicas", adding);
    json_object_set_new(j, "removing_replicas", removing);
    json_object_set_new(j, "version", json_integer(3));
    return out_give(a, j);
}

enum err znode_state_decode(struct arena *a, struct str path, struct bytes data, struct znode_state *out,
                            struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_state s = {0};
    s.controller_epoch = in_i32(&in, "controller_epoch");
    s.leader = in_i32(&in, "leader");
    s.leader_epoch = in_i32(&in, "leader_epoch");
    s.leader_recovery_state = (int8_t)in_i32_or(&in, "leader_recovery_state", 0);
    in_i32s(&in, in_field(&in, in.root, "isr"), "isr", &s.isr, &s.isr_count);
    enum err e = in_close(&in, path, f);
    if (!e) *out = s;
    return e;
}

struct bytes znode_state_encode(struct arena *a, const struct znode_state *s)
{
    json_t *j = json_pack("{s:i,s:i,s:i,s:i,s:o}", "controller_epoch", s->controller_epoch, "leader", s->leader,
                          "version", 1, "leader_epoch", s->leader_epoch, "isr", out_i32s(s->isr, s->isr_count));
    if (s->leader_recovery_state)
        json_object_set_new(j, "leader_recovery_state", json_integer(s->leader_recovery_state));
    return out_give(a, j);
}

/* --- lists of partitions --- */

static enum err list_decode(struct arena *a, struct str path, struct bytes data, bool with_replicas,
                            struct znode_partition_list *out, struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_partition_list l = {0};
    const json_t *list = in_field(&in, in.root, "partitions");
    if (list && !json_is_array(list)) in_fail(&in, "\"partitions\" is not an array");
    l.partitions = arena_array(a, struct znode_listed, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list) && !in.what; i++) {
        const json_t *one = json_array_get(list, i);
        struct znode_listed *to = &l.partitions[l.count++];
        to->topic = in_text(&in, in_field(&in, one, "topic"), "topic");
        to->partition = (int32_t)in_range(&in, in_field(&in, one, "partition"), "partition", 0, INT32_MAX);
        if (with_replicas) in_i32s(&in, in_field(&in, one, "replicas"), "replicas", &to->replicas, &to->replica_count);
    }
    enum err e = in_close(&in, path, f);
    if (!e) *out = l;
    return e;
}

enum err znode_partitions_decode(struct arena *a, struct str path, struct bytes data, struct znode_partition_list *out,
                                 struct fault *f)
{
    return list_decode(a, path, data, false, out, f);
}

enum err znode_reassign_decode(struct arena *a, struct bytes data, struct znode_partition_list *out, struct fault *f)
{
    return list_decode(a, ZNODE_REASSIGN, data, true, out, f);
}

struct bytes znode_reassign_encode(struct arena *a, const struct znode_partition_list *l)
{
    json_t *list = json_array();
    for (size_t i = 0; i < l->count; i++) {
        const struct znode_listed *one = &l->partitions[i];
        json_array_append_new(list, json_pack("{s:o,s:i,s:o}", "topic", out_str(one->topic), "partition",
                                              one->partition, "replicas", out_i32s(one->replicas, one->replica_count)));
    }
    return out_give(a, json_pack("{s:i,s:o}", "version", 1, "partitions", list));
}

/* --- configs --- */

enum err znode_config_decode_usable(struct arena *a, struct str path, struct bytes data, struct znode_config *out,
                                    struct fault *f)
{
    *out = (struct znode_config){0};
    if (!data.size) return OK;
    struct in in = in_open(a, data);
    const json_t *config = in_object_or(&in, "config");
    struct znode_config c = {0};
    c.settings = arena_array(a, struct znode_setting, json_object_size(config));
    c.textless = arena_array(a, struct str, json_object_size(config));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        struct str name = arena_str(a, str_of(key));
        if (json_is_string(value))
            c.settings[c.count++] = (struct znode_setting){name, in_text(&in, value, key)};
        else
            c.textless[c.textless_count++] = name;
    }
    enum err e = in_close(&in, path, f);
    if (!e) *out = c;
    return e;
}

enum err znode_config_decode(struct arena *a, struct str path, struct bytes data, struct znode_config *out,
                             struct fault *f)
{
    struct znode_config c;
    enum err e = znode_config_decode_usable(a, path, data, &c, f);
    if (!e && c.textless_count)
        e = fault_set(f, ERR_CORRUPT,
                      "The content of %.*s in the coordination store is malformed: \"%.*s\" is not a string.",
                      STR_ARG(path), STR_ARG(c.textless[0]));
    if (!e) *out = c;
    return e;
}

struct bytes znode_config_encode(struct arena *a, const struct znode_config *c)
{
    json_t *config = json_object();
    for (size_t i = 0; i < c->count; i++) out_field(config, c->settings[i].name, out_str(c->settings[i].value));
    return out_give(a, json_pack("{s:i,s:o}", "version", 1, "config", config));
}

enum err znode_config_change_decode(struct arena *a, struct str path, struct bytes data, struct str *entity_path,
                                    struct fault *f)
{
    struct in in = in_open(a, data);
    struct str entity = STR_EMPTY;
    int32_t version = in_i32(&in, "version");
    if (version == 1) {
        struct str type = in_str(&in, "entity_type"), name = in_str(&in, "entity_name");
        entity = arena_printf(a, "%.*s/%.*s", STR_ARG(type), STR_ARG(name));
    } else if (version == 2) {
        entity = in_str(&in, "entity_path");
    } else {
        in_fail(&in, "its version is not supported");
    }
    enum err e = in_close(&in, path, f);
    if (!e) *entity_path = entity;
    return e;
}

struct bytes znode_config_change_encode(struct arena *a, struct str entity_path)
{
    return out_give(a, json_pack("{s:i,s:o}", "version", 2, "entity_path", out_str(entity_path)));
}

/* --- the cluster's --- */

enum err znode_cluster_id_decode(struct arena *a, struct bytes data, struct str *id, struct fault *f)
{
    struct in in = in_open(a, data);
    struct str s = in_str(&in, "id");
    enum err e = in_close(&in, ZNODE_CLUSTER_ID, f);
    if (!e) *id = s;
    return e;
}

struct bytes znode_cluster_id_encode(struct arena *a, struct str id)
{
    return out_give(a, json_pack("{s:s,s:o}", "version", "1", "id", out_str(id)));
}

enum err znode_controller_decode(struct arena *a, struct bytes data, struct znode_controller *out, struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_controller c = {0};
    c.broker_id = in_i32(&in, "brokerid");
    c.kraft_controller_epoch = in_i32_or(&in, "kraftControllerEpoch", -1);
    if (json_object_get(in.root, "timestamp")) c.timestamp_ms = in_i64_text(&in, "timestamp");
    enum err e = in_close(&in, ZNODE_CONTROLLER, f);
    if (!e) *out = c;
    return e;
}

struct bytes znode_controller_encode(struct arena *a, const struct znode_controller *c)
{
    return out_give(a, json_pack("{s:i,s:i,s:o,s:i}", "version", 2, "brokerid", c->broker_id, "timestamp",
                                 out_i64_text(c->timestamp_ms), "kraftControllerEpoch", c->kraft_controller_epoch));
}

enum err znode_log_dir_event_decode(struct arena *a, struct str path, struct bytes data, int32_t *broker_id,
                                    struct fault *f)
{
    struct in in = in_open(a, data);
    int32_t id = in_i32(&in, "broker");
    enum err e = in_close(&in, path, f);
    if (!e) *broker_id = id;
    return e;
}

/* Event 1 is "a log directory failed", the only one there is. */
struct bytes znode_log_dir_event_encode(struct arena *a, int32_t broker_id)
{
    return out_give(a, json_pack("{s:i,s:i,s:i}", "version", 1, "broker", broker_id, "event", 1));
}

enum err znode_isr_changes_decode(struct arena *a, struct str path, struct bytes data, struct znode_isr_change **out,
                                  size_t *count, struct fault *f)
{
    struct in in = in_open(a, data);
    const json_t *list = in_field(&in, in.root, "partitions");
    size_t n = json_array_size(list);
    struct znode_isr_change *changes = arena_array(a, struct znode_isr_change, n);
    if (list && !json_is_array(list)) in_fail(&in, "\"partitions\" is no list");
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        changes[i].topic = in_text(&in, in_field(&in, item, "topic"), "topic");
        changes[i].partition = (int32_t)in_range(&in, in_field(&in, item, "partition"), "partition", 0, INT32_MAX);
    }
    enum err e = in_close(&in, path, f);
    if (e) return e;
    *out = changes;
    *count = n;
    return OK;
}

enum err znode_controller_epoch_decode(struct bytes data, int32_t *out, struct fault *f)
{
    int64_t v;
    if (!data.data || !parse_i64((struct str){(const char *)data.data, data.size}, &v) || v < 0 || v > INT32_MAX)
        return fault_set(f, ERR_CORRUPT, "The content of /controller_epoch in the coordination store is not a number.");
    *out = (int32_t)v;
    return OK;
}

struct bytes znode_controller_epoch_encode(struct arena *a, int32_t epoch)
{
    struct str s = arena_printf(a, "%d", epoch);
    return (struct bytes){(const uint8_t *)s.data, s.size};
}

enum err znode_producer_ids_decode(struct arena *a, struct bytes data, struct znode_producer_ids *out, struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_producer_ids p = {0};
    p.broker_id = in_i32(&in, "broker");
    p.start = in_i64_text(&in, "block_start");
    p.end = in_i64_text(&in, "block_end");
    if (!in.what && (p.start < 0 || p.end < p.start)) in_fail(&in, "the block ends before it starts");
    enum err e = in_close(&in, ZNODE_PRODUCER_ID_BLOCK, f);
    if (!e) *out = p;
    return e;
}

struct bytes znode_producer_ids_encode(struct arena *a, const struct znode_producer_ids *p)
{
    return out_give(a, json_pack("{s:i,s:i,s:o,s:o}", "version", 1, "broker", p->broker_id, "block_start",
                                 out_i64_text(p->start), "block_end", out_i64_text(p->end)));
}

enum err znode_features_decode(struct arena *a, struct bytes data, struct znode_features *out, struct fault *f)
{
    struct in in = in_open(a, data);
    struct znode_features fs = {0};
    int32_t version = in_i32(&in, "version"), status = in_i32(&in, "status");
    if (!in.what && (version < 1 || version > 2)) in_fail(&in, "its version is not supported");
    if (!in.what && status != 0 && status != 1) in_fail(&in, "\"status\" is neither 0 nor 1");
    fs.enabled = status == 1;
    in_field(&in, in.root, "features");
    in_features(&in, "min_version_level", "max_version_level", &fs.features, &fs.count);
    enum err e = in_close(&in, ZNODE_FEATURE, f);
    if (!e) *out = fs;
    return e;
}

struct bytes znode_features_encode(struct arena *a, const struct znode_features *fs)
{
    json_t *features = json_object();
    for (size_t i = 0; i < fs->count; i++)
        out_field(features, fs->features[i].name, json_pack("{s:i}", "max_version_level", fs->features[i].max_version));
    return out_give(a, json_pack("{s:o,s:i,s:i}", "features", features, "version", 2, "status", fs->enabled ? 1 : 0));
}
