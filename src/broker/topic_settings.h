/* topic_settings.h: from what a topic is configured to, to what its replicas act on.  Pure.  Thread: any. */
#ifndef BROKER_TOPIC_SETTINGS_H
#define BROKER_TOPIC_SETTINGS_H

#include "broker/config.h"
#include "replica/replicas.h"

/* `overrides` is /config/topics/T, NULL for none; a value in it that does not parse is passed over. */
void topic_settings_build(struct topic_settings *out, const struct config *cfg, const struct config_map *overrides);

#endif
