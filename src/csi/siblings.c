/* SPDX-License-Identifier: Apache-2.0 */
#include "siblings.h"
#include "util/file.h"
#include <dirent.h>
#include <fcntl.h>

#define DRIVERS "kubernetes.io~csi"

static void close_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

static DIR *open_dir(int dir, const char *name)
{
    auto_fd fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        take_fd(&fd);
    return d;
}

/* But for the two dots. */
static const char *next_name(DIR *d)
{
    struct dirent *e;
    do
        e = readdir(d);
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e ? e->d_name : NULL;
}

/* A folder a kind stays when the last of its volumes has gone. */
static bool has_volumes(int volumes, const char *kind)
{
    auto_with(close_dir) DIR *d = open_dir(volumes, kind);
    return d && next_name(d);
}

bool siblings_are_there(const char *target)
{
    const char *end = strstr(target, "/volumes/" DRIVERS "/");
    if (!end)
        return false;
    auto_mem char *path = str_dup((struct str){target, (size_t)(end - target) + strlen("/volumes")});
    auto_with(close_dir) DIR *volumes = open_dir(AT_FDCWD, path);
    const char *kind;
    bool found = false;
    while (volumes && !found && (kind = next_name(volumes)) != NULL)
        found = strcmp(kind, DRIVERS) != 0 && has_volumes(dirfd(volumes), kind);
    return found;
}
