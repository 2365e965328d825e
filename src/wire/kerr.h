/* kerr.h: Kafka's error codes, as they cross the wire.  From protocol/errors.tsv, made by the build.  Thread: any. */
#ifndef WIRE_KERR_H
#define WIRE_KERR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/gen/kerr_codes.h" /* enum kerr: KERR_NONE = 0 ... */

struct kerr_row {
    const char *name;
    bool retriable, refreshes_metadata;
};

/* By code - KERR_MIN. */
extern const struct kerr_row kerr_rows[KERR_MAX - KERR_MIN + 1];

/* "OFFSET_OUT_OF_RANGE"; a code that there is not has the row of UNKNOWN_SERVER_ERROR, as in Kafka's clients. */
const char *kerr_name(int16_t code);
/* A client may send the same request again. */
bool kerr_is_retriable(int16_t code);
/* It should refresh its metadata first; such an error is always retriable. */
bool kerr_refreshes_metadata(int16_t code);

/* What a client is told of a failure of ours.  Where the request gives an `enum err` another meaning (a missing group,
 * say), the handler answers with the code that it knows to be right. */
enum kerr kerr_of(enum err e);

#endif
