/* coordination.c: see coordination.h. */
#include "broker/coordination.h"

#include "coord/embedded.h"
#include "coord/zookeeper.h"

static enum err open_embedded(struct broker *br, struct coord_listener listener, struct fault *f)
{
    const struct coord_embedded_options opt = {
        .fs = br->fs,
        .clock = br->clock,
        .dir = replicas_dir_path(br->replicas, 0),
        .listener = listener,
    };
    enum err e = replicas_dir_error(br->replicas, 0);
    if (e)
        return fault_set(
            f, e,
            "The log directory %s cannot be used: %s. It is the first of log.dirs and holds the coordination store, "
            "without which the broker cannot start.",
            opt.dir, err_text(e));
    return coord_embedded_open(&br->coord, &opt, f);
}

static struct str text_of(const struct config *cfg, enum config_key key)
{
    return str_of(config_str(cfg, key));
}

/* Kafka's default of 10 is not applied: a new controller reads thousands of nodes, and with so few on their way the
 * ensemble wakes a chain of threads for each handful.  Measured with 5,000 partitions: half the time, and a third less
 * of its CPU.  Below the 1,000 at which an ensemble begins to throttle (globalOutstandingLimit). */
static int32_t in_flight_max(const struct config *cfg)
{
    enum { UNSET_IN_FLIGHT = 500 };
    if (config_source_of(cfg, CFG_ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS) == CONFIG_FROM_DEFAULT) return UNSET_IN_FLIGHT;
    return (int32_t)config_i64(cfg, CFG_ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS);
}

static enum err open_zookeeper(struct broker *br, const struct config *cfg, struct coord_listener listener,
                               struct fault *f)
{
    int32_t session_ms = (int32_t)config_i64(cfg, CFG_ZOOKEEPER_SESSION_TIMEOUT_MS);
    bool unset = config_is_null(cfg, CFG_ZOOKEEPER_CONNECTION_TIMEOUT_MS);
    struct str certificate = text_of(cfg, CFG_ZOOKEEPER_SSL_KEYSTORE_LOCATION);
    const struct coord_zookeeper_options opt = {
        .connect = text_of(cfg, CFG_ZOOKEEPER_CONNECT),
        .session_timeout_ms = session_ms,
        .connection_timeout_ms = unset ? session_ms : (int32_t)config_i64(cfg, CFG_ZOOKEEPER_CONNECTION_TIMEOUT_MS),
        .in_flight_max = in_flight_max(cfg),
        .listener = listener,
        .user = text_of(cfg, CFG_ZOOKEEPER_DIGEST_USERNAME),
        .password = text_of(cfg, CFG_ZOOKEEPER_DIGEST_PASSWORD),
        .set_acl = config_bool(cfg, CFG_ZOOKEEPER_SET_ACL),
        .tls = config_bool(cfg, CFG_ZOOKEEPER_SSL_CLIENT_ENABLE),
        .tls_truststore = text_of(cfg, CFG_ZOOKEEPER_SSL_TRUSTSTORE_LOCATION),
        .tls_certificate = certificate, /* a PEM key store is one file with both */
        .tls_key = certificate,
        .tls_key_password = text_of(cfg, CFG_ZOOKEEPER_SSL_KEYSTORE_PASSWORD),
        .tls_verify_host = *config_str(cfg, CFG_ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM) != '\0',
    };
    return coord_zookeeper_open(&br->coord, &opt, f);
}

enum err coordination_open(struct broker_run *run, struct coord_listener listener, struct fault *f)
{
    struct broker *br = &run->br;
    if (run->env.open_coord) {
        br->coord = run->env.open_coord(run->env.arg, listener);
        return OK;
    }
    if (br->alone) return open_embedded(br, listener, f);
    struct config *cfg = config_live_ref(br->config);
    enum err e = open_zookeeper(br, cfg, listener, f);
    config_unref(cfg);
    return e;
}
