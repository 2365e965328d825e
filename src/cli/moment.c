/* moment.c: see moment.h. */
#include "cli/moment.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"

enum { MS_PER_SECOND = 1000, SECONDS_PER_MINUTE = 60, SECONDS_PER_HOUR = 3600, SECONDS_PER_DAY = 86400 };

/* ---- reading digits; each advances *p and says whether it found what it wants ---- */

static bool take(const char **p, char c)
{
    if (**p != c) return false;
    (*p)++;
    return true;
}

static bool take_digits(const char **p, int count, int *out)
{
    *out = 0;
    for (int i = 0; i < count; i++, (*p)++) {
        if (**p < '0' || **p > '9') return false;
        *out = *out * 10 + (**p - '0');
    }
    return true;
}

static bool take_fraction(const char **p, int *out_ms)
{
    int digits = 0;
    *out_ms = 0;
    for (int scale = 100; **p >= '0' && **p <= '9'; (*p)++, digits++, scale /= 10) *out_ms += scale * (**p - '0');
    return digits > 0 && digits <= 9;
}

/* ---- moments ---- */

static bool take_date(const char **p, struct tm *tm)
{
    return take_digits(p, 4, &tm->tm_year) && take(p, '-') && take_digits(p, 2, &tm->tm_mon) && take(p, '-') &&
           take_digits(p, 2, &tm->tm_mday) && take(p, 'T');
}

static bool take_time(const char **p, struct tm *tm, int *ms)
{
    if (!take_digits(p, 2, &tm->tm_hour) || !take(p, ':') || !take_digits(p, 2, &tm->tm_min)) return false;
    if (!take(p, ':')) return true;
    if (!take_digits(p, 2, &tm->tm_sec)) return false;
    return !take(p, '.') || take_fraction(p, ms);
}

static bool take_zone(const char **p, int *offset_s)
{
    *offset_s = 0;
    if (!**p || take(p, 'Z')) return true;
    int sign = **p == '+' ? 1 : -1, hours, minutes = 0;
    if (!take(p, '+') && !take(p, '-')) return false;
    if (!take_digits(p, 2, &hours)) return false;
    if (**p) (void)take(p, ':');
    if (**p && !take_digits(p, 2, &minutes)) return false;
    *offset_s = sign * (hours * SECONDS_PER_HOUR + minutes * SECONDS_PER_MINUTE);
    return hours < 24 && minutes < 60;
}

bool moment_parse(const char *text, int64_t *out_ms)
{
    struct tm tm = {0};
    int ms = 0, offset_s;
    const char *p = text;
    if (!take_date(&p, &tm) || !take_time(&p, &tm, &ms) || !take_zone(&p, &offset_s) || *p) return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    struct tm same = tm;
    int64_t seconds = timegm(&same); /* which turns the 31st of February into a day of March */
    if (same.tm_mon != tm.tm_mon || same.tm_mday != tm.tm_mday || same.tm_hour != tm.tm_hour ||
        same.tm_min != tm.tm_min || same.tm_sec != tm.tm_sec)
        return false;
    *out_ms = (seconds - offset_s) * MS_PER_SECOND + ms;
    return true;
}

void moment_format(int64_t ms, char out[MOMENT_TEXT_MAX])
{
    time_t seconds = (time_t)(ms / MS_PER_SECOND);
    int rest = (int)(ms % MS_PER_SECOND);
    if (rest < 0) {
        rest += MS_PER_SECOND;
        seconds--;
    }
    struct tm tm;
    char text[MOMENT_TEXT_MAX];
    if (!gmtime_r(&seconds, &tm) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) == 0) {
        snprintf(out, MOMENT_TEXT_MAX, "%lld ms", (long long)ms);
        return;
    }
    snprintf(out, MOMENT_TEXT_MAX, "%.20s.%03dZ", text, rest);
}

/* ---- durations ---- */

/* "-12.5" behind which a unit stands: whole and thousandths. */
static bool take_amount(const char **p, int64_t *whole, int *ms, bool *negative, bool *has_fraction)
{
    *negative = **p == '-';
    if (**p == '-' || **p == '+') (*p)++;
    const char *first = *p;
    for (*whole = 0; **p >= '0' && **p <= '9'; (*p)++) {
        if (*whole > INT64_MAX / 10 - 1) return false;
        *whole = *whole * 10 + (**p - '0');
    }
    *ms = 0;
    *has_fraction = take(p, '.');
    return *p != first && (!*has_fraction || take_fraction(p, ms) || *p[0] == 'S' || *p[0] == 's');
}

/* The units in their order, each at most once; days before the T, the others behind it. */
static const struct {
    char unit;
    int seconds;
} units[] = {{'D', SECONDS_PER_DAY}, {'H', SECONDS_PER_HOUR}, {'M', SECONDS_PER_MINUTE}, {'S', 1}};

static bool add_amount(int64_t *sum_ms, int64_t whole, int unit_seconds, int ms, bool negative)
{
    int64_t part;
    if (__builtin_mul_overflow(whole, (int64_t)unit_seconds * MS_PER_SECOND, &part) ||
        __builtin_add_overflow(part, ms, &part))
        return false;
    return !__builtin_add_overflow(*sum_ms, negative ? -part : part, sum_ms);
}

bool duration_parse(const char *text, int64_t *out_ms)
{
    const char *p = text;
    bool minus = *p == '-', in_time = false, any = false;
    if (*p == '-' || *p == '+') p++;
    if (*p != 'P' && *p != 'p') return false;
    p++;
    int64_t sum_ms = 0;
    for (size_t next = 0; *p;) {
        if (!in_time && (*p == 'T' || *p == 't')) {
            in_time = true;
            any = false; /* something must follow */
            p++;
            continue;
        }
        int64_t whole;
        int ms;
        bool negative, has_fraction;
        if (!take_amount(&p, &whole, &ms, &negative, &has_fraction)) return false;
        char unit = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        while (next < ARRAY_COUNT(units) && units[next].unit != unit) next++;
        if (next == ARRAY_COUNT(units) || (unit == 'D') == in_time || (has_fraction && unit != 'S')) return false;
        if (!add_amount(&sum_ms, whole, units[next++].seconds, ms, negative)) return false;
        any = true;
        p++;
    }
    if (minus && __builtin_sub_overflow(0, sum_ms, &sum_ms)) return false;
    *out_ms = sum_ms;
    return any;
}

int64_t moment_before(int64_t moment_ms, int64_t duration_ms)
{
    int64_t ms;
    if (__builtin_sub_overflow(moment_ms, duration_ms, &ms)) return duration_ms > 0 ? INT64_MIN : INT64_MAX;
    return ms;
}
