/* dynamic_config.h: configuration that lives in coordination (KIP-21, KIP-226): /config/topics, /config/brokers, and
 * the notifications under /config/changes that tell every broker to look again.
 *
 * What is stored is kept in memory.  A topic's settings that change go to its replicas here; a broker's make a new
 * snapshot (config.h), which every loop sees at its next look, and new settings for every topic here.
 *
 * A topic is created without a notification: its settings are written before its partitions, so they are read when the
 * first partition is about to be made (dynamic_config_prepare()).
 *
 * Thread: changes are applied on the home loop; look-ups are for any thread. */
#ifndef BROKER_DYNAMIC_CONFIG_H
#define BROKER_DYNAMIC_CONFIG_H

#include "broker/broker.h"
#include "wire/gen/leader_and_isr.h"

struct dynamic_config;

/* Reads everything that is stored, applies it and starts to follow changes; `done` on the home loop.  What somebody
 * has written there that makes no sense is no error (stored_config.h); a store that does not answer is. */
void dynamic_config_open(struct dynamic_config **out, struct broker *br,
                         void (*done)(void *arg, enum err e, const struct fault *f), void *arg);
/* A new session with the store has begun, and the watches of the one before are gone: reads everything again and
 * applies what has changed, went or came meanwhile.  An entity that cannot be read keeps its settings.  Home loop. */
void dynamic_config_renew(struct dynamic_config *dc);
/* The coordination session has ended; NULL is allowed. */
void dynamic_config_free(struct dynamic_config *dc);

/* Reads one entity again and applies it, as an alteration here does before it answers.  A broker entity's name is this
 * broker's id or CONFIG_DEFAULT.  `done` (may be NULL) on the home loop, when the settings are in effect, or when they
 * could not be read and the old ones stay (which is logged).  Any loop. */
enum config_entity { CONFIG_ENTITY_TOPIC, CONFIG_ENTITY_BROKER };
void dynamic_config_refresh(struct dynamic_config *dc, enum config_entity kind, struct str name,
                            void (*done)(void *arg), void *arg);

/* Before replicas_apply(): reads the settings of topics whose partitions are new (nobody notifies of those).  The
 * request is lent until `done`, on the home loop; at once when there is nothing to read.  Home loop. */
void dynamic_config_prepare(struct dynamic_config *dc, const struct leader_and_isr_request *request,
                            void (*done)(void *arg), void *arg);
/* The topic is deleted. */
void dynamic_config_forget(struct dynamic_config *dc, struct str topic);

/* The topic's own overrides, a copy to be freed with config_map_free(); NULL when it has none. */
struct config_map *dynamic_config_topic(struct dynamic_config *dc, struct str topic);
/* For replicas_options.settings_of: the topic's settings over the broker's. */
void dynamic_config_topic_settings(void *dynamic_config, struct str topic, struct topic_settings *out);
/* And for replicas_options.throttles_of. */
void dynamic_config_topic_throttles(void *dynamic_config, struct str topic, struct topic_throttles *out);

#endif
