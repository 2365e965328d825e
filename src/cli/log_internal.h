/* log_internal.h: what the files of `barnabas log` share.  Thread: main. */
#ifndef CLI_LOG_INTERNAL_H
#define CLI_LOG_INTERNAL_H

#include "cli/log_files.h"
#include "cli/log_out.h"
#include "wire/batch.h"
#include "wire/coordinator_record.h"

/* What a batch that is asked for may grow to when it is decompressed. */
enum { LOG_DECOMPRESSED_MAX = INT32_MAX };

/* Each gets its arguments, argv[0] being its name; exit statuses as cli.h says. */
int log_dump(int argc, char **argv);
int log_verify(int argc, char **argv);
int log_repair(int argc, char **argv);
int log_explain(int argc, char **argv);

/* ---- Dumping one file; what cannot be read is told through `out` */

struct dump_options {
    bool deep;                   /* a line for each record */
    bool records;                /* with key, value and headers */
    enum coordinator_log decode; /* what the records are */
};

void dump_log(struct log_out *out, struct file *file, const struct dump_options *opt);
/* Any other kind than LOG_FILE_LOG. */
void dump_small_file(struct log_out *out, struct fs *fs, enum log_file_kind kind, int64_t base_offset);

/* A decoded record: a new {"type":...,"data":{...}} for the key and {"version":...,"data":{...}} for the value, NULL
 * for a tombstone, with the embedded messages of consumer groups opened, as Kafka's tool shows them. */
json_t *coordinator_key_json(const struct coordinator_record *rec);
json_t *coordinator_value_json(const struct coordinator_record *rec);
/* The state's name in Kafka's code; "Unknown". */
const char *txn_state_name(int8_t status);

#endif
