/* macros.h: the few words the language lacks.  Thread: any. */
#ifndef BASE_MACROS_H
#define BASE_MACROS_H

#include <stddef.h>
#include <stdint.h>

#define MUST_USE                     __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#define NORETURN                     __attribute__((noreturn))
#define FALLTHROUGH                  __attribute__((fallthrough))
#define LIKELY(x)                    __builtin_expect(!!(x), 1)
#define UNLIKELY(x)                  __builtin_expect(!!(x), 0)

#define BIT(n)                         (1u << (n))
#define ARRAY_COUNT(a)                 (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, field) ((type *)(void *)((char *)(ptr)-offsetof(type, field)))
#define MIN(a, b)                      ((a) < (b) ? (a) : (b))
#define MAX(a, b)                      ((a) > (b) ? (a) : (b))

/* A broken invariant: always compiled in.  Crashing beats writing wrong data. */
#define ASSERT(x)     (LIKELY(x) ? (void)0 : assert_failed(#x, __FILE__, __LINE__, __func__))
#define UNREACHABLE() assert_failed("unreachable", __FILE__, __LINE__, __func__)

/* Prints the broken fact and aborts. */
NORETURN void assert_failed(const char *what, const char *file, int line, const char *func);

#endif
