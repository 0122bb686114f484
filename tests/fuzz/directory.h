/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - makes a directory for a fuzz target that reads files: made at the first call, removed at exit. */
#pragma once

#include "util/file.h"
#include <assert.h>
#include <fcntl.h>

static char fuzz_folder_name[] = "/tmp/cistern-fuzz-XXXXXX";

static inline void fuzz_folder_remove(void)
{
    struct err ignored;
    int r = dir_remove(AT_FDCWD, fuzz_folder_name, &ignored);
    assert(r == 0);
}

static inline int fuzz_folder(void)
{
    static int dir = -1;
    if (dir < 0) {
        const char *made = mkdtemp(fuzz_folder_name);
        assert(made);
        dir = open(fuzz_folder_name, O_RDONLY | O_DIRECTORY);
        assert(dir >= 0);
        atexit(fuzz_folder_remove);
    }
    return dir;
}

/* Writes a file with these bytes only. */
static inline void fuzz_file(int dir, const char *name, struct str bytes)
{
    struct err err = {0};
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int r = file_write_all(fd, name, bytes.ptr, bytes.len, &err);
    close(fd);
    assert(r == 0);
}
