/* kerr.c: look-ups in the table of error codes, and the one place where our errors become Kafka's. */
#include "wire/kerr.h"

static const struct kerr_row *row_of(int16_t code)
{
    if (code < KERR_MIN || code > KERR_MAX || !kerr_rows[code - KERR_MIN].name) code = KERR_UNKNOWN_SERVER_ERROR;
    return &kerr_rows[code - KERR_MIN];
}

const char *kerr_name(int16_t code)
{
    return row_of(code)->name;
}

bool kerr_is_retriable(int16_t code)
{
    return row_of(code)->retriable;
}

bool kerr_refreshes_metadata(int16_t code)
{
    return row_of(code)->refreshes_metadata;
}

enum kerr kerr_of(enum err e)
{
    /* An error without a row is KERR_NONE here and nothing a client can act upon: UNKNOWN_SERVER_ERROR. */
    static const int16_t codes[ERR_COUNT] = {
        [ERR_IO] = KERR_KAFKA_STORAGE_ERROR,
        [ERR_FULL] = KERR_KAFKA_STORAGE_ERROR,
        [ERR_DENIED] = KERR_KAFKA_STORAGE_ERROR, /* of a file: what a client may do is decided before */
        [ERR_LOCKED] = KERR_KAFKA_STORAGE_ERROR,
        [ERR_TOO_MANY] = KERR_KAFKA_STORAGE_ERROR,
        [ERR_NOT_FOUND] = KERR_UNKNOWN_TOPIC_OR_PARTITION,
        [ERR_EXISTS] = KERR_TOPIC_ALREADY_EXISTS,
        [ERR_TOO_BIG] = KERR_MESSAGE_TOO_LARGE,
        [ERR_TRUNCATED] = KERR_CORRUPT_MESSAGE,
        [ERR_CORRUPT] = KERR_CORRUPT_MESSAGE,
        [ERR_INVALID] = KERR_INVALID_REQUEST,
        [ERR_UNSUPPORTED] = KERR_UNSUPPORTED_VERSION,
        [ERR_RANGE] = KERR_OFFSET_OUT_OF_RANGE,
        [ERR_VERSION] = KERR_UNSUPPORTED_VERSION,
        [ERR_NOT_EMPTY] = KERR_NON_EMPTY_GROUP,
        [ERR_NOT_FILE] = KERR_KAFKA_STORAGE_ERROR,
        [ERR_TIMEOUT] = KERR_REQUEST_TIMED_OUT,
        [ERR_EXPIRED] = KERR_NETWORK_EXCEPTION,
        [ERR_UNSURE] = KERR_REQUEST_TIMED_OUT,
        [ERR_CLOSED] = KERR_NETWORK_EXCEPTION,
    };
    if (e == OK) return KERR_NONE;
    if ((unsigned)e >= ERR_COUNT || codes[e] == KERR_NONE) return KERR_UNKNOWN_SERVER_ERROR;
    return (enum kerr)codes[e];
}
