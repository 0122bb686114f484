/* SPDX-License-Identifier: Apache-2.0 */
/* counts.h - Counts the requests of a volume's mount processes, in the memfd that outlives them.
 *
 * The holder of the memfd reads the counts there, so a mount that hangs is counted too.
 * home: any. Each number only rises, by itself: a reader may see a request's count before its time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Similar requests share an entry: /metrics has a series for each. */
enum counts_op {
    COUNTS_OTHER,
    COUNTS_LOOKUP,
    COUNTS_FORGET,
    COUNTS_GETATTR,
    COUNTS_SETATTR,
    COUNTS_OPEN,
    COUNTS_RELEASE,
    COUNTS_READ,
    COUNTS_WRITE,
    COUNTS_FSYNC,
    COUNTS_READDIR,
    COUNTS_MAKE,   /* mknod, create, mkdir, symlink, link, tmpfile */
    COUNTS_REMOVE, /* unlink, rmdir */
    COUNTS_RENAME,
    COUNTS_XATTR,
    COUNTS_STATFS,
    COUNTS_OPS
};

/* ENOENT, ENODATA and ENOSYS are results; every other errno is an error. */
enum counts_result { COUNTS_OK, COUNTS_ERROR, COUNTS_RESULTS };

enum { COUNTS_BOUNDS = 5 };
extern const double counts_bounds_seconds[COUNTS_BOUNDS + 1]; /* ends with a 0 */

struct counts_cell {
    uint64_t within[COUNTS_BOUNDS + 1]; /* requests between the bound before and this one; the last: longer */
    uint64_t ns;                        /* the sum of their times */
};

struct counts {
    struct counts_cell ops[COUNTS_OPS][COUNTS_RESULTS];
    uint64_t opens_passed; /* with passthrough */
    uint64_t opens_plain;  /* with reads and writes through the mount process */
};

const char *counts_op_name(enum counts_op op);

/* Counts a request of the kernel's `opcode`; `error` is the reply's, 0 or -errno. */
void counts_add(struct counts *c, uint32_t opcode, int error, uint64_t ns);
void counts_add_open(struct counts *c, bool passed);

/* All requests; `c` may be in the memfd. */
uint64_t counts_total(const struct counts *c);

/* sum += sign * by; sign is 1 or -1. */
void counts_sum(struct counts *sum, const struct counts *by, int sign);
