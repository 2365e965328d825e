/* stored_config.h: from a node below /config to settings that can be used.
 *
 * What somebody has written there by hand may be anything.  The broker goes on with what can be used, and says what
 * cannot, where and why: a setting that cannot be used keeps the value it had before, or its default; a node of which
 * nothing can be read keeps all that was there before.  Where nothing was there before, the lost setting may have been
 * one that says to keep records: then nothing is removed from the logs that it governs until it can be read.  Kafka
 * does not start with some of these nodes, and takes others for empty.  Pure, but for the log.  Thread: any. */
#ifndef BROKER_STORED_CONFIG_H
#define BROKER_STORED_CONFIG_H

#include "broker/config.h"
#include "broker/dynamic_config.h"

/* `before`: what was in effect for the entity; NULL: nothing.  A new map, to be freed; NULL: nothing is stored. */
struct config_map *stored_config_read(enum config_entity kind, struct str path, struct bytes data,
                                      const struct config_map *before);

#endif
