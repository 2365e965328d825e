/* kafka_dump.h: what the files of `barnabas kafka-dump-log` share.  Thread: main. */
#ifndef CLI_KAFKA_DUMP_H
#define CLI_KAFKA_DUMP_H

#include "cli/log_internal.h"

enum { KAFKA_DUMP_DECODE_MAX = 256 << 20 }; /* memory for one decoded record */

/* Pairs of numbers that do not agree, of one file: told at the end, as Kafka's tool does. */
struct mismatch {
    int64_t first, second;
};
struct mismatches {
    char *file;
    struct mismatch *pairs;
    size_t count, cap;
};
struct mismatch_list {
    struct mismatches *files;
    size_t count, cap;
};

struct kafka_dump {
    const char *files;
    bool print_data, deep, sanity_only, verify_only, skip_metadata;
    int32_t bytes_max, message_max;
    enum coordinator_log decode;

    struct arena arena;
    struct mismatch_list offsets, gaps;             /* index against log; records that do not follow each other */
    struct mismatch_list times, unordered, nowhere; /* of the time index */
    bool failed;                                    /* a file could not be read */
};

void kafka_dump_file(struct kafka_dump *d, const char *path);
void kafka_dump_log_file(struct kafka_dump *d, const char *path, int64_t base_offset);
void kafka_dump_index(struct kafka_dump *d, const char *path, int64_t base_offset);
void kafka_dump_time_index(struct kafka_dump *d, const char *path, int64_t base_offset);

/* One sentence on standard error, in its place among the lines on standard output. */
void kafka_dump_failed(struct kafka_dump *d, const char *path, const char *fmt, ...) PRINTF_LIKE(3, 4);
void mismatch_add(struct mismatch_list *list, const char *path, int64_t first, int64_t second);
/* Prints and frees what was gathered. */
void kafka_dump_print_errors(struct kafka_dump *d);

/* Text as Java makes it of bytes that may be no UTF-8: what is none comes out as U+FFFD. */
void kafka_print_text(struct bytes text);
/* What the decoders print of a record, from the key on. */
void kafka_print_decoded(struct kafka_dump *d, const struct record *rec, const char *lead);

#endif
