/* dynamic_config.h: configuration that lives in coordination (KIP-21, KIP-226): /config/topics, /config/brokers, and the
 * notifications under /config/changes that tell every broker to look again.
 *
 * Thread: the home loop applies; look-ups are for any thread. */
#ifndef BROKER_DYNAMIC_CONFIG_H
#define BROKER_DYNAMIC_CONFIG_H

#include "broker/broker.h"

struct dynamic_config;

/* Reads everything that is stored and starts to follow changes; `done` on the home loop. */
void dynamic_config_open(struct dynamic_config **out, struct broker *br,
                         void (*done)(void *arg, enum err e, const struct fault *f), void *arg);
void dynamic_config_free(struct dynamic_config *dc);

/* Reads one entity again and applies it: what an alteration here does before it answers, and a notification from
 * elsewhere.  `done` (may be NULL) on the home loop. */
enum config_entity { CONFIG_ENTITY_TOPIC, CONFIG_ENTITY_BROKER };
void dynamic_config_refresh(struct dynamic_config *dc, enum config_entity kind, struct str name, void (*done)(void *arg),
                            void *arg);

/* The topic's own overrides, a copy to be freed with config_map_free(); NULL when it has none. */
struct config_map *dynamic_config_topic(struct dynamic_config *dc, struct str topic);
/* What is stored for this broker or, with cluster, for all. */
struct config_map *dynamic_config_broker(struct dynamic_config *dc, bool cluster);
/* For replicas_options.settings_of: the topic's settings over the broker's. */
void dynamic_config_topic_settings(void *dynamic_config, struct str topic, struct topic_settings *out);

#endif
