/* log.c: `barnabas log dump|verify|repair|explain`: which of them. */
#include <string.h>

#include "base/macros.h"
#include "cli/cli.h"
#include "cli/log_internal.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} subcommands[] = {
    {"dump", log_dump},
    {"verify", log_verify},
    {"repair", log_repair},
    {"explain", log_explain},
};

int cli_log(int argc, char **argv)
{
    if (argc < 2) return cli_usage_error("log", "say what to do: dump, verify, repair or explain");
    for (size_t i = 0; i < ARRAY_COUNT(subcommands); i++)
        if (strcmp(argv[1], subcommands[i].name) == 0) return subcommands[i].run(argc - 1, argv + 1);
    return cli_usage_error("log", "there is no '%s'", argv[1]);
}
