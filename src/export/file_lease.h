/* SPDX-License-Identifier: Apache-2.0 */
/* file_lease.h - Opens a file without following links, and takes a read lease on it. The kernel gives the lease only
 * while no process can write the file, mappings included. (mtime alone is not enough: a second store to a dirty page
 * does not change it.) A process that opens the file for writing waits in the kernel. SIGIO reports it, and
 * file_lease_yield() ends the lease.
 *
 * home: any; SIGIO must be blocked in every thread (its default ends the process). file_lease_check may be called by
 * another thread than the one that yields. */
#pragma once

#include "logbook.h"

struct file_lease {
    int fd; /* -1: none */
    bool leased;
    struct stamp stamp; /* attributes of the file when it was opened */
};

/* ERR_NOT_FOUND: it is gone, or not a file any more. ERR_AGAIN: another process can write it now. With `must_lease`
 * false, a file that the kernel gives no lease on (a network file system, another user's file) is accepted; otherwise
 * ERR_UNSUPPORTED. */
must_check int file_lease_open(int data, const char *path, bool must_lease, struct file_lease *ret, struct err *err);

/* ERR_CHANGED: the file was opened for writing or changed since. */
must_check int file_lease_check(const struct file_lease *h, struct err *err);

/* Gives the lease back if a process waits for it; returns whether it did. */
bool file_lease_yield(struct file_lease *h);
void file_lease_close(struct file_lease *h); /* may run twice */
