/* SPDX-License-Identifier: Apache-2.0 */
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#define WALL_SECONDS_MAX (INT64_MAX / 2 / (int64_t)NS_PER_SECOND)

struct timespec time_to_spec(int64_t ns)
{
    int64_t ns_per_second = (int64_t)NS_PER_SECOND;
    struct timespec t = {.tv_sec = ns / ns_per_second, .tv_nsec = ns % ns_per_second};
    if (t.tv_nsec < 0) {
        t.tv_sec--;
        t.tv_nsec += ns_per_second;
    }
    return t;
}

int64_t time_from_spec(struct timespec t)
{
    if (t.tv_sec >= WALL_SECONDS_MAX)
        t = (struct timespec){.tv_sec = WALL_SECONDS_MAX - 1}; /* time_parse() reads it */
    else if (t.tv_sec < -WALL_SECONDS_MAX)
        t = (struct timespec){.tv_sec = -WALL_SECONDS_MAX};
    return t.tv_sec * (int64_t)NS_PER_SECOND + t.tv_nsec;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return time_from_spec(t);
}

uint64_t clock_now_ns(void)
{
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
    return (uint64_t)read_clock(CLOCK_BOOTTIME);
}

int64_t clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_sleep(uint64_t ns)
{
    struct timespec left = time_to_spec((int64_t)min_u64(ns, INT64_MAX));
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

bool clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = time_to_spec((int64_t)min_u64(until_ns, INT64_MAX));
    return pthread_cond_clockwait(c, lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}

/* splitmix64: https://prng.di.unimi.it/splitmix64.c (public domain); one state a thread, seeded by the kernel. */
uint64_t clock_random(void)
{
    static _Thread_local uint64_t state;
    if (state == 0 && getrandom(&state, sizeof state, 0) != sizeof state)
        state = clock_now_ns() | 1;
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t clock_doubled_ns(unsigned doublings, uint64_t base_ns, uint64_t cap_ns)
{
    uint64_t ns = min_u64(base_ns, cap_ns);
    for (; doublings > 0 && ns > 0 && ns < cap_ns; doublings--)
        ns = ns <= cap_ns / 2 ? 2 * ns : cap_ns;
    return ns;
}

static uint64_t backoff_cap(unsigned attempt, uint64_t base_ns, uint64_t cap_ns)
{
    return clock_doubled_ns(attempt > 0 ? attempt - 1 : 0, base_ns, cap_ns);
}

uint64_t clock_backoff_ns(unsigned attempt, uint64_t base_ns, uint64_t cap_ns)
{
    return clock_random() % (backoff_cap(attempt, base_ns, cap_ns) + 1);
}

uint64_t clock_backoff_half_ns(unsigned attempt, uint64_t base_ns, uint64_t cap_ns)
{
    uint64_t half_ns = backoff_cap(attempt, base_ns, cap_ns) / 2;
    return half_ns + clock_random() % (half_ns + 1);
}

char *time_text(int64_t wall_ns, char *buf)
{
    struct timespec t = time_to_spec(wall_ns);
    struct tm tm;
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(buf, TIME_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, TIME_TEXT_MAX - n, ".%03dZ", (int)(t.tv_nsec / 1000000));
    return buf;
}

static bool digits(struct str *s, size_t count, int *ret)
{
    int n = 0;
    if (s->len < count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (s->ptr[i] < '0' || s->ptr[i] > '9')
            return false;
        n = n * 10 + (s->ptr[i] - '0');
    }
    *s = str_from(*s, count);
    *ret = n;
    return true;
}

static bool literal(struct str *s, struct str what)
{
    if (!str_starts(*s, what))
        return false;
    *s = str_from(*s, what.len);
    return true;
}

static int days_of_month(int year, int month)
{
    if (month == 1)
        return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
    return month == 3 || month == 5 || month == 8 || month == 10 ? 30 : 31;
}

static bool in_range(const struct tm *tm)
{
    return tm->tm_mon >= 0 && tm->tm_mon < 12 && tm->tm_mday >= 1 &&
           tm->tm_mday <= days_of_month(tm->tm_year + 1900, tm->tm_mon) && tm->tm_hour < 24 && tm->tm_min < 60 &&
           tm->tm_sec <= 60;
}

static int64_t fraction(struct str *s)
{
    int64_t ns = 0, unit = 100000000;
    if (!literal(s, STR(".")))
        return 0;
    for (int digit; digits(s, 1, &digit); unit /= 10)
        ns += digit * unit;
    return ns;
}

static bool offset(struct str *s, int *ret_seconds)
{
    int hours, minutes;
    *ret_seconds = 0;
    if (literal(s, STR("Z")) || literal(s, STR("z")))
        return true;
    int sign = literal(s, STR("+")) ? 1 : literal(s, STR("-")) ? -1 : 0;
    if (sign == 0 || !digits(s, 2, &hours) || !literal(s, STR(":")) || !digits(s, 2, &minutes))
        return false;
    *ret_seconds = sign * (hours * 3600 + minutes * 60);
    return true;
}

static bool clock_digits(struct str *s, struct tm *tm)
{
    return digits(s, 2, &tm->tm_hour) && literal(s, STR(":")) && digits(s, 2, &tm->tm_min) && literal(s, STR(":")) &&
           digits(s, 2, &tm->tm_sec);
}

/* Days from 1970-01-01 to the first of a month. Years begin in March, so that the leap day is the last of one. timegm()
 * takes a lock of the process and ten times as long: a listing calls this for every key.
 * https://howardhinnant.github.io/date_algorithms.html */
static int64_t days_to(int64_t year, int month)
{
    int64_t y = month < 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
    int64_t of_year = (153 * ((month + 10) % 12) + 2) / 5;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool wall_of(const struct tm *tm, int offset_seconds, int64_t ns, int64_t *ret)
{
    int64_t days = days_to(tm->tm_year + 1900, tm->tm_mon) + tm->tm_mday - 1;
    int64_t seconds = ((days * 24 + tm->tm_hour) * 60 + tm->tm_min) * 60 + tm->tm_sec - offset_seconds;
    if (seconds < -WALL_SECONDS_MAX || seconds >= WALL_SECONDS_MAX)
        return false;
    *ret = seconds * (int64_t)NS_PER_SECOND + ns;
    return true;
}

int time_parse(struct str s, int64_t *ret_wall_ns, struct err *err)
{
    struct str rest = s;
    struct tm tm = {0};
    int offset_seconds;
    bool ok = digits(&rest, 4, &tm.tm_year) && literal(&rest, STR("-")) && digits(&rest, 2, &tm.tm_mon) &&
              literal(&rest, STR("-")) && digits(&rest, 2, &tm.tm_mday) &&
              (literal(&rest, STR("T")) || literal(&rest, STR("t")) || literal(&rest, STR(" "))) &&
              clock_digits(&rest, &tm);
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    int64_t ns = ok ? fraction(&rest) : 0;
    if (!ok || !in_range(&tm) || !offset(&rest, &offset_seconds) || rest.len != 0)
        return err_set(err, ERR_INVALID, "'%.*s' is not a time of RFC 3339", (int)min_u64(s.len, 64), s.ptr);
    if (!wall_of(&tm, offset_seconds, ns, ret_wall_ns))
        return err_set(err, ERR_RANGE, "'%.*s' is not between the years 1824 and 2115", STR_FMT(s));
    return 0;
}

/* One of `count` names of three letters; *ret is its index. */
static bool name(struct str *s, const char *names, int count, int *ret)
{
    for (int i = 0; i < count; i++)
        if (literal(s, (struct str){names + 3 * i, 3})) {
            *ret = i;
            return true;
        }
    return false;
}

bool time_parse_http(struct str s, int64_t *ret_wall_ns)
{
    struct tm tm = {0};
    bool ok = name(&s, "SunMonTueWedThuFriSat", 7, &tm.tm_wday) && literal(&s, STR(", ")) &&
              digits(&s, 2, &tm.tm_mday) && literal(&s, STR(" ")) &&
              name(&s, "JanFebMarAprMayJunJulAugSepOctNovDec", 12, &tm.tm_mon) && literal(&s, STR(" ")) &&
              digits(&s, 4, &tm.tm_year) && literal(&s, STR(" ")) && clock_digits(&s, &tm) && literal(&s, STR(" GMT"));
    tm.tm_year -= 1900;
    return ok && s.len == 0 && in_range(&tm) && wall_of(&tm, 0, 0, ret_wall_ns);
}

char *duration_text(uint64_t ns, char *buf)
{
    uint64_t seconds = ns / NS_PER_SECOND;
    if (ns < NS_PER_SECOND)
        snprintf(buf, TIME_TEXT_MAX, "%" PRIu64 " ms", ns / NS_PER_MS);
    else if (seconds < 60)
        snprintf(buf, TIME_TEXT_MAX, "%.1f s", (double)ns / (double)NS_PER_SECOND);
    else if (seconds < 3600)
        snprintf(buf, TIME_TEXT_MAX, "%" PRIu64 " min %02" PRIu64 " s", seconds / 60, seconds % 60);
    else
        snprintf(buf, TIME_TEXT_MAX, "%" PRIu64 " h %02" PRIu64 " min", seconds / 3600, seconds / 60 % 60);
    return buf;
}
