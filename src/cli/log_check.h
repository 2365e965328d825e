/* log_check.h: verifying many partitions at once, for `log verify` and `log repair`.  Thread: main; it has workers. */
#ifndef CLI_LOG_CHECK_H
#define CLI_LOG_CHECK_H

#include "cli/log_dirs.h"
#include "plog/verify.h"

/* A finding that is kept. */
struct kept_finding {
    enum verify_kind kind;
    char *file, *text;
    int64_t pos;
};
struct finding_list {
    struct kept_finding *items;
    size_t count, cap;
    size_t damages;
};
void finding_add(struct finding_list *list, enum verify_kind kind, const char *file, int64_t pos, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
void finding_list_free(struct finding_list *list);

struct partition_check {
    struct plog_verify_result result;
    enum err err; /* the directory could not be looked at */
    struct finding_list found;
};

/* One check a partition of `ld`, in an array to be freed with log_checks_free(), on all processors, with progress on a
 * terminal. */
MUST_USE enum err log_checks_run(struct partition_check **out, const struct log_dirs *ld, struct fs *fs, bool deep,
                                 struct fault *f);
void log_checks_free(struct partition_check *checks, size_t count);

/* What the checkpoint files say of partitions, against what was found of them. */
void log_checks_checkpoints(struct finding_list *out, const struct log_dirs *ld, const struct partition_check *checks);

#endif
