/* SPDX-License-Identifier: Apache-2.0 */
/* selinux_kernel.c - Shows a program a kernel with SELinux; preloaded with LD_PRELOAD. /proc/filesystems has selinuxfs,
 * and mount(2) takes the option context="LABEL" at its end: CISTERN_CONTEXTS=FILE gets a line "SOURCE LABEL" for it.
 * Nothing enforces the label. Without CISTERN_CONTEXTS the real mount(2) gets the option, and refuses it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static const char filesystems[] = "nodev\tproc\nnodev\tselinuxfs\n\text4\n";

int openat(int dir, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if (strcmp(path, "/proc/filesystems") != 0)
        return REAL(openat)(dir, path, flags, mode);
    int fd = memfd_create("filesystems", MFD_CLOEXEC);
    if (write(fd, filesystems, strlen(filesystems)) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    return fd;
}

static void note(const char *file, const char *source, const char *label)
{
    FILE *f = fopen(file, "a");
    fprintf(f, "%s %.*s\n", source, (int)strcspn(label, "\""), label);
    fclose(f);
}

int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
    static const char option[] = ",context=\"";
    char left[4096] = "";
    const char *file = getenv("CISTERN_CONTEXTS"), *at = file && data ? strstr(data, option) : NULL;
    if (!at)
        return REAL(mount)(source, target, type, flags, data);
    memcpy(left, data, (size_t)(at - (const char *)data));
    int r = REAL(mount)(source, target, type, flags, left);
    if (r == 0)
        note(file, source, at + strlen(option));
    return r;
}
