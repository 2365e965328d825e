/* cli.h: the command line: `barnabas COMMAND ...`.  One row a command; help is made from the rows. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>

/* Exit status: 0 done, 1 it failed, 2 the command line is wrong.  Main thread. */
int cli_main(int argc, char **argv);

enum { EXIT_USAGE = 2 };

/* Each gets its own arguments, argv[0] being the command's name. */
int cli_broker(int argc, char **argv);
int cli_coord(int argc, char **argv);
int cli_coord_import(int argc, char **argv);
int cli_log(int argc, char **argv);
int cli_kafka_dump_log(int argc, char **argv);
int cli_config_doc(int argc, char **argv);
int cli_groups(int argc, char **argv);
int cli_kafka_consumer_groups(int argc, char **argv);

/* Help of commands whose options stand in a table. */
void cli_groups_help(FILE *out);
void cli_kafka_consumer_groups_help(FILE *out);

/* "barnabas COMMAND: TEXT" on standard error, with a hint at --help; returns EXIT_USAGE. */
int cli_usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
