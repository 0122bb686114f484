/* SPDX-License-Identifier: Apache-2.0 */
/* macro.h - attributes, cleanup (auto_), ownership (take) and small helpers for all rooms. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define must_check __attribute__((warn_unused_result))
#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))
#define auto_with(f) __attribute__((cleanup(f)))

#define countof(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Moves a pointer or a struct out of an auto_ variable: this becomes NULL or zeros, so its cleanup does nothing. */
#define take(p)                                                                                                        \
    ({                                                                                                                 \
        __typeof__(p) take_from_ = (p);                                                                                \
        __typeof__(*take_from_) taken_ = *take_from_;                                                                  \
        *take_from_ = (__typeof__(*take_from_)){0};                                                                    \
        taken_;                                                                                                        \
    })

/* Defines the cleanup of `auto_<name>` for a type whose _free accepts NULL. Cleanups keep errno. */
#define DEFINE_AUTO(name, type, free_function)                                                                         \
    static inline void auto_clean_##name(type **p)                                                                     \
    {                                                                                                                  \
        int kept_errno = errno;                                                                                        \
        free_function(*p);                                                                                             \
        *p = NULL;                                                                                                     \
        errno = kept_errno;                                                                                            \
    }

/* The same for a struct that is not on the heap. */
#define DEFINE_AUTO_DONE(name, type, done_function)                                                                    \
    static inline void auto_clean_##name(type *p)                                                                      \
    {                                                                                                                  \
        int kept_errno = errno;                                                                                        \
        done_function(p);                                                                                              \
        errno = kept_errno;                                                                                            \
    }

/* Closes it unless it is negative, and sets it to -1. */
static inline void fd_close(int *fd)
{
    int kept_errno = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = kept_errno;
}
#define auto_fd auto_with(fd_close) int

static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

static inline void auto_clean_mem(void *p)
{
    int kept_errno = errno;
    free(*(void **)p);
    *(void **)p = NULL;
    errno = kept_errno;
}
/* auto_mem char *text = ...; */
#define auto_mem auto_with(auto_clean_mem)

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
