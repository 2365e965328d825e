/* groups_doc.h: the tables of options of `groups` and `kafka-consumer-groups` for docs/groups-tool.md.  Thread: main.
 */
#ifndef CLI_GROUPS_DOC_H
#define CLI_GROUPS_DOC_H

#include <stdio.h>

/* Markdown. */
void groups_write_options(FILE *out);
void kafka_groups_write_options(FILE *out);

#endif
