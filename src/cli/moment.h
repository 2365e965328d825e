/* moment.h: moments and durations as people write them (ISO 8601), as Kafka's tools take them.  Thread: any. */
#ifndef CLI_MOMENT_H
#define CLI_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

/* "2026-01-31T12:00:00.000", with "Z", "+01:00" or "+01" behind it, UTC without; seconds and their fraction may be left
 * out.  Milliseconds since 1970. */
bool moment_parse(const char *text, int64_t *out_ms);
/* "P1DT2H3M4.5S", with signs as Java's Duration.parse() takes them. */
bool duration_parse(const char *text, int64_t *out_ms);
/* A moment so long before another; one that cannot be told is the earliest, or the latest, that can. */
int64_t moment_before(int64_t moment_ms, int64_t duration_ms);
/* "2026-01-31T12:00:00.000Z". */
enum { MOMENT_TEXT_MAX = 32 };
void moment_format(int64_t ms, char out[MOMENT_TEXT_MAX]);

#endif
