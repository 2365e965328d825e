/* config_write.h: altering stored configuration where the controller is another broker's: as among Kafka's brokers,
 * each writes by itself what it is asked for.  A write is conditional on what was read, so of two that meet the second
 * reads again. */
#ifndef BROKER_CONFIG_WRITE_H
#define BROKER_CONFIG_WRITE_H

#include "controller/controller.h"

struct broker;

/* Does what controller_alter_configs() does in office, with the same arguments, copied alike.  Any loop. */
void config_write_alter(struct broker *br, const struct controller_config_change *changes, size_t count,
                        bool validate_only, struct controller_to to);

#endif
