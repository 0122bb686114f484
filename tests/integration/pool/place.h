/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - where the tests of src/volume work: as root, in a mount namespace of their own, in a fresh directory. */
#pragma once

#include "pool/mount.h"
#include "unit.h"
#include "util/file.h"
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Fails the test with the error's sentence. */
#define must(call)                                                                                                     \
    do {                                                                                                               \
        struct err err = {0};                                                                                          \
        if ((call) < 0)                                                                                                \
            fail_msg("%s: %s; %s", #call, err.text, err.advice);                                                       \
    } while (0)

/* Fails unless the call fails so, and (id not 0) with this id. */
#define must_fail(code, wanted_id, call)                                                                               \
    do {                                                                                                               \
        struct err err = {0};                                                                                          \
        int result = (call);                                                                                           \
        if (result != -(code))                                                                                         \
            fail_msg("%s: %d, not %s: %s", #call, result, err_code_name(code), err.text);                              \
        if ((wanted_id) && err.id != (wanted_id))                                                                      \
            fail_msg("%s: CIS%04u, not CIS%04u: %s", #call, err.id, (unsigned)(wanted_id), err.text);                  \
    } while (0)

static char place[64];

/* "<place>/<name>" in one of eight buffers that take turns. */
static inline const char *at(const char *name)
{
    static char bufs[8][PATH_MAX];
    static unsigned turn;
    char *buf = bufs[turn++ % countof(bufs)];
    snprintf(buf, sizeof bufs[0], "%s/%s", place, name);
    return buf;
}

/* Tests beside this one wait until their loop devices are free and their FUSE connections end: copies of their mounts
 * in this namespace would keep them. */
static inline void drop_copies(void)
{
    struct mount *all = NULL;
    size_t count = 0;
    must(mount_below("/", &all, &count, &err));
    for (size_t i = 0; i < count; i++) {
        const struct mount *m = &all[i];
        struct str at = str_of(m->target);
        bool is_loop = str_starts(str_of(m->source), STR("/dev/loop"));
        bool is_fuse = str_starts(str_of(m->fs_type), STR("fuse"));
        if ((is_loop || is_fuse) && (str_starts(at, STR("/tmp/")) || str_starts(at, STR("/var/tmp/"))))
            (void)umount2(m->target, MNT_DETACH | UMOUNT_NOFOLLOW);
    }
    mount_list_free(all, count);
}

static inline int enter_place(void **state)
{
    (void)state;
    /* Mounts of a test that fails or is killed end with the namespace. */
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        perror("these tests run as root");
        return -1;
    }
    drop_copies();
    snprintf(place, sizeof place, "/tmp/cistern-volume-test-XXXXXX");
    return mkdtemp(place) ? 0 : -1;
}

static inline int leave_place(void **state)
{
    (void)state;
    struct err err = {0};
    struct mount *mounts = NULL;
    size_t count = 0;
    if (mount_below(place, &mounts, &count, &err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (mount_unmount(mounts[i].target, 0, true, &err) < 0)
            fprintf(stderr, "%s\n", err.text);
        mount_done(&mounts[i]);
    }
    free(mounts);
    /* Remains of a failed test are guarded against removal. */
    static const char *const points[] = {"*/data", "*/volumes/*/data", "*/making/*/data", "*/trash/*/data"};
    for (size_t i = 0; i < countof(points); i++) {
        glob_t found;
        if (glob(at(points[i]), 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc; k++)
            if (mount_point_remove(found.gl_pathv[k], &err) < 0)
                fprintf(stderr, "%s\n", err.text);
        globfree(&found);
    }
    if (dir_remove(AT_FDCWD, place, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
    return 0;
}

/* Loop devices whose backing file is below `place`. */
static inline size_t loops_here(void)
{
    glob_t found;
    size_t count = 0;
    if (glob("/sys/block/loop*/loop/backing_file", 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        auto_mem char *text = NULL;
        struct err err;
        size_t len;
        if (file_read(AT_FDCWD, found.gl_pathv[i], PATH_MAX, &text, &len, &err) == 0 &&
            str_starts((struct str){text, len}, str_of(place)))
            count++;
    }
    globfree(&found);
    return count;
}

/* A loop device goes when its last user does, which is not at once: drivers beside this test open each one to find
 * their own. */
static inline void await_loops(size_t wanted)
{
    for (unsigned i = 0; i < 10000 && loops_here() != wanted; i++)
        usleep(1000);
    assert_int_equal(loops_here(), wanted);
}

static inline size_t mounts_here(void)
{
    struct mount *mounts = NULL;
    size_t count = 0;
    must(mount_below(place, &mounts, &count, &err));
    mount_list_free(mounts, count);
    return count;
}
