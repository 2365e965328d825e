/* coordinator_record.h: what a record of __consumer_offsets or __transaction_state says, of whatever kind it is.
 *
 * For who shows such logs; the coordinators themselves know which message they want and use the generated codec.
 * Bytes <-> structs, no I/O.  Thread: any. */
#ifndef WIRE_COORDINATOR_RECORD_H
#define WIRE_COORDINATOR_RECORD_H

#include "wire/codec.h"

enum coordinator_log { COORDINATOR_LOG_NONE, COORDINATOR_LOG_OFFSETS, COORDINATOR_LOG_TRANSACTIONS };

/* By the topic's name: "__consumer_offsets", "__transaction_state", else NONE. */
enum coordinator_log coordinator_log_of_topic(struct str topic);

struct coordinator_record {
    int16_t type;                                        /* the number that a key starts with */
    const struct wire_schema *key_schema, *value_schema; /* value_schema NULL: a tombstone, or `value_err` */
    const void *key, *value;                             /* structs of these schemas, in the arena */
    int16_t value_version;
    enum err value_err; /* why the value of a good key cannot be read */
};

/* ERR_NOT_FOUND: no kind of record that is known has this key's type.  ERR_TRUNCATED, ERR_CORRUPT,
 *
 * ERR_TOO_BIG: the key cannot be read.  The type is set all the same, -1 where there is none.  Slices of the result
 * point into `key` and `value`. */
MUST_USE enum err coordinator_record_decode(struct coordinator_record *out, enum coordinator_log log, struct bytes key,
                                            struct bytes value, struct arena *a);

#endif
