/* log_settings.h: what a topic is configured to, found without the broker: the broker's configuration file, the
 * embedded store (read only, the broker may be running), and what the command line says.  Thread: main. */
#ifndef CLI_LOG_SETTINGS_H
#define CLI_LOG_SETTINGS_H

#include "broker/topic_settings.h"
#include "cli/log_dirs.h"

struct log_settings {
    struct config *config;        /* of the broker, its dynamic values included */
    struct config_map *overrides; /* of the topic */
    const char *source;           /* where the topic's came from, for people */
};

/* `file`: server.properties, NULL for none. */
MUST_USE enum err log_settings_load(struct log_settings *ls, const char *file, struct fault *f);
/* Adds what the embedded store in `dir` says of the topic and the broker; nothing when there is no store. */
MUST_USE enum err log_settings_store(struct log_settings *ls, const char *dir, struct str topic, struct fault *f);
/* A topic's "key=value" from the command line, over all else.  The fault explains. */
MUST_USE enum err log_settings_set(struct log_settings *ls, const char *pair, struct fault *f);
void log_settings_free(struct log_settings *ls);

#endif
