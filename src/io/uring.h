/* SPDX-License-Identifier: Apache-2.0 */
/* uring.h - reads, writes and syncs files as jobs on a loop: by io_uring if the kernel allows it, else by a pool.
 * home: the loop. Submissions of one turn go to the kernel in one call. */
#pragma once

#include "io/thread_pool.h"

struct uring;

enum disk_op { DISK_READ, DISK_WRITE, DISK_FSYNC, DISK_FDATASYNC };

struct disk_job {
    enum disk_op op;
    int fd;      /* borrowed until done */
    void *bytes; /* borrowed until done; under O_DIRECT aligned as the file requires */
    size_t len;
    uint64_t offset;
    ssize_t result;                   /* bytes (short only at the end of a file), or -errno */
    void (*done)(struct disk_job *j); /* on the loop, never from within uring_submit; may free the job */
    size_t moved;                     /* private, as the fields below */
    struct list_node node;
    struct work fallback;
};

/* `allow_kernel` false always uses the pool (tests, and `--io=pool`). */
must_check int uring_new(struct loop *l, struct thread_pool *p, bool allow_kernel, struct uring **ret, struct err *err);
void uring_free(struct uring *u); /* no job may be under way; NULL is fine */
DEFINE_AUTO(uring, struct uring, uring_free)
#define auto_uring auto_with(auto_clean_uring) struct uring *
void uring_submit(struct uring *u, struct disk_job *j);
bool uring_is_kernel(const struct uring *u);
