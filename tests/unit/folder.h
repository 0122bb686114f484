/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a directory of its own for each test of a group: `dir`, by folder_setup and folder_teardown. */
#pragma once

#include "unit.h"
#include "util/file.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int dir = -1;
static char dir_name[] = "/tmp/cistern-unit-XXXXXX";

static inline int folder_setup(void **state)
{
    (void)state;
    memcpy(dir_name + sizeof dir_name - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(dir_name));
    dir = open(dir_name, O_RDONLY | O_DIRECTORY);
    return dir < 0;
}

static inline int folder_teardown(void **state)
{
    (void)state;
    struct err err;
    close(dir);
    return dir_remove(AT_FDCWD, dir_name, &err);
}
