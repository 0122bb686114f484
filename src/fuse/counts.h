/* SPDX-License-Identifier: Apache-2.0 */
/* counts.h - what the mount processes of a volume did, counted in the memfd that outlives them.
 *
 * Who holds the memfd reads it there, and asks nobody: a mount that hangs is counted like any other.
 * home: any. Numbers only rise, each by itself: a reader may see a request's count before its time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Requests that are alike are one: a file of /metrics has a series for each. */
enum counts_op {
    COUNTS_OTHER, /* what has no name here */
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
    COUNTS_MAKE,   /* mknod, create, mkdir, symlink, link, unnamed files */
    COUNTS_REMOVE, /* unlink, rmdir */
    COUNTS_RENAME,
    COUNTS_XATTR,
    COUNTS_STATFS,
    COUNTS_OPS
};

/* That a name or an attribute is not there is an answer; every other errno is an error. */
enum counts_result { COUNTS_OK, COUNTS_ERROR, COUNTS_RESULTS };

enum { COUNTS_BOUNDS = 5 };
extern const double counts_bounds_seconds[COUNTS_BOUNDS + 1]; /* ends with a 0 */

struct counts_cell {
    uint64_t within[COUNTS_BOUNDS + 1]; /* requests that took at most so long, and no less than the bound before; the
                                         * last: longer than all */
    uint64_t ns;                        /* of all of them */
};

struct counts {
    struct counts_cell ops[COUNTS_OPS][COUNTS_RESULTS];
    uint64_t opens_passed; /* whose reads and writes the kernel passes to the disk below */
    uint64_t opens_plain;  /* whose come to the mount process */
};

const char *counts_op_name(enum counts_op op);

/* A request of the kernel's `opcode` was answered with `error`: 0 or -errno. */
void counts_add(struct counts *c, uint32_t opcode, int error, uint64_t ns);
void counts_add_open(struct counts *c, bool passed);

/* sum += sign * by, for all numbers; sign is 1 or -1. */
void counts_sum(struct counts *sum, const struct counts *by, int sign);
