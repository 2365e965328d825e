/* channel.h: one connection to a broker: connect, agree on versions, then one request and its response at a time.
 *
 * Every call waits, until its deadline and no longer, by turning the loop that it was given: there is no thread behind
 * it, and on a simulated loop it runs under the simulator.  A broker is believed nothing: a response that is longer or
 * shorter than announced, is none, or answers something else is a failure with a sentence that says so, after which the
 * connection is of no use and must be closed.
 * Thread: the owner of the loop. */
#ifndef CLIENT_CHANNEL_H
#define CLIENT_CHANNEL_H

#include "base/arena.h"
#include "client/failure.h"
#include "os/net.h"
#include "wire/apis.h"

struct channel;

/* Decoding one response takes no more than this from its arena; make arenas for responses with it. */
enum { CHANNEL_DECODE_MAX = 1 << 30 };
/* The longest response that is taken. */
enum { CHANNEL_RESPONSE_MAX = 100 << 20 };

struct channel_options {
    struct net *net;
    struct loop *loop;
    const char *client_id; /* lent for the channel's life */
};

/* Connects to the first of the host's addresses that answers, and learns the broker's versions.  The name service may
 * keep us waiting past the deadline (net_resolve()).  Retriable: nobody there, no answer. */
MUST_USE bool channel_open(struct channel **out, const struct channel_options *opt, const char *host, uint16_t port,
                           int64_t deadline_us, struct failure *f);
/* NULL is allowed. */
void channel_close(struct channel *c);

/* False once a call failed or the broker hung up: a new one must be opened.  Looks, without waiting. */
bool channel_is_usable(struct channel *c);
/* "host:port (address)", for messages. */
const char *channel_peer(const struct channel *c);
/* The highest version of an API that the broker and we know and that is not above `version_max`; -1: there is none. */
int16_t channel_version(const struct channel *c, enum api api, int16_t version_max);

struct exchange {
    enum api api;
    int16_t version;
    const void *request;
    void *response; /* decoded; its slices and arrays lie in the arena */
};

/* One request, one response.  After a failure to encode (ERR_UNSUPPORTED: the version cannot carry what the request
 * says) the channel stays usable. */
MUST_USE bool channel_call(struct channel *c, const struct exchange *x, struct arena *a, int64_t deadline_us,
                           struct failure *f);

#endif
