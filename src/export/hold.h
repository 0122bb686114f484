/* SPDX-License-Identifier: Apache-2.0 */
/* hold.h - a file that holds still while it is read: opened without following links, and under a read lease, which the
 * kernel gives only while nobody can write the file, mappings included (mtime alone would not tell: a second store to a
 * dirty page does not move it). Whoever opens it for writing is made to wait by the kernel until the lease is given
 * back, and we learn of it by SIGIO: hold_yield gives it back.
 *
 * home: any; SIGIO must be blocked in every thread (its default ends the process). hold_check may be asked by another
 * thread than the one that yields. */
#pragma once

#include "logbook.h"

struct hold {
    int fd; /* -1: none */
    bool leased;
    struct stamp stamp; /* as it was when it was opened */
};

/* ERR_NOT_FOUND: it is gone, or no file any more. ERR_AGAIN: somebody can write it now. `must_lease` false lets a file
 * through that the kernel gives no lease on (a network file system; somebody else's file): ERR_UNSUPPORTED
 * otherwise. */
must_check int hold_open(int data, const char *path, bool must_lease, struct hold *ret, struct err *err);

/* Has it held still up to now? ERR_CHANGED if not. */
must_check int hold_check(const struct hold *h, struct err *err);

/* Gives the lease back if somebody waits for it; true if so. */
bool hold_yield(struct hold *h);
void hold_close(struct hold *h); /* may run twice */
