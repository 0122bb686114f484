/* SPDX-License-Identifier: Apache-2.0 */
#include "here.h"
#include "local/walk.h"
#include <dlfcn.h>

static bool types_are_unknown;
static int stat_error; /* of the file "denied" */

/* In place of the C library's: some file systems do not tell the types of entries. */
struct dirent *readdir(DIR *d)
{
    struct dirent *(*real)(DIR *);
    *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    struct dirent *e = real(d);
    if (e && types_are_unknown)
        e->d_type = DT_UNKNOWN;
    return e;
}

/* SELinux and servers of NFS deny it for a file in a readable directory. */
int fstatat(int dir, const char *restrict name, struct stat *restrict ret, int flags)
{
    int (*real)(int, const char *restrict, struct stat *restrict, int);
    *(void **)&real = dlsym(RTLD_NEXT, "fstatat");
    if (stat_error && strcmp(name, "denied") == 0) {
        errno = stat_error;
        return -1;
    }
    return real(dir, name, ret, flags);
}

/* The number of files, or the negative code. */
static int count_files(const struct here *h, const char *prefix)
{
    auto_walk w = NULL;
    struct walk_entry e;
    struct err err;
    int count = 0, r = walk_open(&(struct walk_options){.root = h->dir, .prefix = str_of(prefix)}, &w, &err);
    if (r < 0)
        return r;
    while ((r = walk_next(w, &e, &err)) > 0)
        count++;
    return r < 0 ? r : count;
}

static void file_that_cannot_be_statted_is_an_error(void **state)
{
    static const struct {
        int errnum, want;
    } cases[] = {{0, 3}, {EACCES, -ERR_DENIED}, {EIO, -ERR_IO}, {ELOOP, -ERR_INVALID}, {ENOENT, 2}};
    struct here h;
    (void)state;
    here_up(&h);
    here_file(&h, "d/a", "a");
    here_file(&h, "d/denied", "b");
    here_file(&h, "e", "c");
    for (size_t i = 0; i < 2 * countof(cases); i++) {
        types_are_unknown = i % 2 == 1;
        stat_error = cases[i / 2].errnum;
        assert_int_equal(count_files(&h, ""), cases[i / 2].want);
        assert_int_equal(count_files(&h, "d/a"), 1);
    }
    types_are_unknown = false;
    stat_error = 0;
    here_down(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_that_cannot_be_statted_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
