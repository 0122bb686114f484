/* SPDX-License-Identifier: Apache-2.0 */
#include "siblings.h"
#include "util/file.h"
#include <fcntl.h>

#define DRIVERS "kubernetes.io~csi"

static DIR *open_dir(int dir, const char *name)
{
    return dir_stream(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* A folder a kind stays when the last of its volumes has gone. */
static bool has_volumes(int volumes, const char *kind)
{
    auto_dir d = open_dir(volumes, kind);
    return d && dir_next(d);
}

bool siblings_are_there(const char *target)
{
    const char *end = strstr(target, "/volumes/" DRIVERS "/");
    if (!end)
        return false;
    auto_mem char *path = str_dup((struct str){target, (size_t)(end - target) + strlen("/volumes")});
    auto_dir volumes = open_dir(AT_FDCWD, path);
    struct dirent *kind;
    bool found = false;
    while (volumes && !found && (kind = dir_next(volumes)) != NULL)
        found = strcmp(kind->d_name, DRIVERS) != 0 && has_volumes(dirfd(volumes), kind->d_name);
    return found;
}
