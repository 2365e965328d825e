/* security.h: how a listener's connections are secured: Kafka's names and numbers.  Thread: any. */
#ifndef WIRE_SECURITY_H
#define WIRE_SECURITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/* As UpdateMetadata and broker registrations carry them. */
enum security_protocol { SECURITY_PLAINTEXT, SECURITY_SSL, SECURITY_SASL_PLAINTEXT, SECURITY_SASL_SSL, SECURITY_COUNT };

/* "SASL_SSL" and so on; NULL for a number that is none. */
const char *security_protocol_name(int16_t protocol);
bool security_protocol_parse(struct str name, int16_t *out);

#endif
