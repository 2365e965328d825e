/* codec.h: messages between bytes and C structs, in every version of Kafka's protocol.
 *
 * The build makes one header per API, record and request header from protocol/ (include "wire/gen/fetch.h"): its
 * structs, their defaults (`fetch_request_default`: assign it before filling a struct in), and typed names for the
 * calls below (fetch_request_decode, fetch_request_encode, fetch_request_print).  There is no code per version: one
 * interpreter walks constant tables, so a handler sees one struct whatever version the peer speaks.
 *
 * How a field looks in C:
 *   string, bytes, uuid   struct str, struct bytes, struct uuid; a null string has data == NULL
 *   array                 `T *topics; int32_t topics_count;`   a null array has count -1
 *   nullable struct       `struct x *assignment`, NULL for null; any other struct is embedded
 *   records               struct records, see there
 * A field that a version lacks holds its default after decoding.  Encoding drops such a field if the protocol says that
 * it may be ignored or if it holds its default, and fails otherwise.  Text is not checked for being UTF-8.
 *
 * Memory: decoded slices point into the reader's bytes, arrays lie in the arena; both must outlive the struct.
 * Thread: any, nothing is shared but constants. */
#ifndef WIRE_CODEC_H
#define WIRE_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/reader.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "base/writer.h"

/* Record batches, opaque here.  Decoded: `bytes`, in the frame.  To encode: `splices` in their order if there are any
 * (the writer takes each one over, also when encoding fails, except with ERR_VERSION), else `bytes`, copied.
 * Null: bytes.data == NULL and no splices.  Empty but there: bytes.data != NULL, bytes.size == 0. */
struct records {
    struct bytes bytes;
    const struct splice *splices;
    uint32_t splice_count;
};

enum wire_type {
    WIRE_BOOL,
    WIRE_INT8,
    WIRE_INT16,
    WIRE_UINT16,
    WIRE_INT32,
    WIRE_UINT32,
    WIRE_INT64,
    WIRE_FLOAT64,
    WIRE_UUID,
    WIRE_STRING,
    WIRE_BYTES,
    WIRE_RECORDS,
    WIRE_STRUCT,
    WIRE_TYPE_COUNT
};

enum {
    WIRE_ARRAY = BIT(0),     /* a pointer to many of the type, and a count */
    WIRE_POINTER = BIT(1),   /* a nullable struct */
    WIRE_CLASSIC = BIT(2),   /* keeps the classic form in flexible versions */
    WIRE_IGNORABLE = BIT(3), /* dropped in silence where a version cannot carry it */
};

/* Versions are sets, one bit each: 0 to 31. */
struct wire_field {
    const char *name;                 /* in JSON */
    const struct wire_schema *schema; /* of a struct or of an array of them */
    uint32_t in_line, tagged;         /* versions that have it in its place, or in the tagged section */
    uint32_t nullable;                /* versions that may carry null */
    uint16_t at;                      /* in the C struct */
    uint16_t count_at;                /* of an array's count */
    uint8_t type;                     /* enum wire_type */
    uint8_t flags;
    uint8_t tag;
};

/* A message or a struct inside one; versions are those of the message. */
struct wire_schema {
    const char *name;          /* "FetchRequest", "FetchRequest.FetchTopic" */
    const void *default_value; /* a C struct of `size` bytes */
    const struct wire_field *fields;
    const uint8_t *by_tag;     /* numbers of the fields that have a tag, by rising tag */
    const uint16_t *size_mins; /* the least bytes a value takes on the wire, by version from 0 on */
    uint32_t flexible;         /* versions with compact forms and tagged sections */
    uint16_t size;
    uint8_t field_count, tag_count;
    int8_t version_min, version_max;
    int16_t record_id;  /* of a coordinator's key or value, else -1 */
    bool newer_is_last; /* a prefixed version above version_max is read as version_max (ConsumerProtocol*) */
};

/* Every message, by name; wire_schema_find() takes "FetchRequest", "GroupMetadataValue" and so on, NULL: none. */
extern const struct wire_schema *const wire_schemas[];
extern const int wire_schema_count;
const struct wire_schema *wire_schema_find(const char *name);

/* Reads a message at the reader's place and leaves it behind the message: whether more may follow is for the caller to
 * say.  Lengths and counts are checked against the bytes that are there before anything is allocated; unknown tagged
 * fields are skipped.  After an error *out holds defaults and nothing points into the bytes.
 * ERR_VERSION: no such version.  ERR_TRUNCATED, ERR_CORRUPT: the peer's fault.  ERR_TOO_BIG: past the arena's limit. */
MUST_USE enum err wire_decode(const struct wire_schema *s, void *out, int16_t version, struct reader *r,
                              struct arena *a);

/* Appends a message.  After an error the writer's content is of no use: writer_fini() it.
 * ERR_VERSION: no such version.  ERR_UNSUPPORTED: a value that this version cannot carry, or null where it must not be.
 * ERR_TOO_BIG: longer than its length field can say. */
MUST_USE enum err wire_encode(const struct wire_schema *s, const void *m, int16_t version, struct writer *w);

enum wire_print {
    WIRE_PRINT_FULL, /* everything; bytes in base64 */
    WIRE_PRINT_LOG   /* for people: bytes by their size alone, no more than 16 elements of an array */
};

/* Appends the message as one line of JSON, without a newline: the fields of that version, tagged ones only when they
 * differ from their default.  Bytes that are no UTF-8 come out as U+FFFD.  The version must exist. */
void wire_print(const struct wire_schema *s, const void *m, int16_t version, struct writer *w, enum wire_print how);

/* Some bodies follow a prefix: a coordinator's key an int16 that is its kind (`record_id`), a coordinator's value and
 * a few embedded messages an int16 that is their version.  The generated x_decode_prefixed() and x_encode_prefixed()
 * of those messages use these.  Decoding gives the version if `version` is not NULL.
 * ERR_NOT_FOUND: a key of another kind.  ERR_VERSION: a version that we do not know. */
MUST_USE enum err wire_decode_prefixed(const struct wire_schema *s, void *out, int16_t *version, struct reader *r,
                                       struct arena *a);
MUST_USE enum err wire_encode_prefixed(const struct wire_schema *s, const void *m, int16_t version, struct writer *w);
/* The prefix without taking it: a key's kind, a value's version.  False when there are less than two bytes. */
bool wire_prefix_peek(struct bytes record, int16_t *prefix);

/* The kinds of control records: the key is ControlRecordTypeSchema with its prefix. */
enum control_type {
    CONTROL_ABORT = 0,
    CONTROL_COMMIT = 1,
    CONTROL_LEADER_CHANGE = 2,
    CONTROL_SNAPSHOT_HEADER = 3,
    CONTROL_SNAPSHOT_FOOTER = 4,
    CONTROL_KRAFT_VERSION = 5,
    CONTROL_KRAFT_VOTERS = 6
};

#endif
