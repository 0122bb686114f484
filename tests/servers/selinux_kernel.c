/* SPDX-License-Identifier: Apache-2.0 */
/* selinux_kernel.c - Shows a program a kernel with SELinux; preloaded with LD_PRELOAD. /proc/filesystems has selinuxfs,
 * and mount(2) takes the option context="LABEL" at its end: CISTERN_CONTEXTS=FILE gets a line "SOURCE LABEL" for it,
 * and mountinfo shows it. A loop device that is still in use refuses another label, or none, with EINVAL. Nothing
 * enforces the label. Without CISTERN_CONTEXTS the real mount(2) gets the option, and refuses it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

enum { LINE_MAX_BYTES = 16384, LABEL_MAX_BYTES = 512 };

static const char filesystems[] = "nodev\tproc\nnodev\tselinuxfs\n\text4\n", option[] = "context=\"";

/* The label of the last mount of the source; "": none. */
static void label_of(const char *file, const char *source, char ret[LABEL_MAX_BYTES])
{
    char line[LINE_MAX_BYTES];
    size_t n = strlen(source);
    FILE *f = fopen(file, "r");
    ret[0] = '\0';
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, source, n) == 0 && line[n] == ' ')
            snprintf(ret, LABEL_MAX_BYTES, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
    if (f)
        fclose(f);
}

/* "... - xfs /dev/loop0 rw,noquota" becomes "... - xfs /dev/loop0 rw,context="LABEL",noquota". */
static void show_line(FILE *to, const char *file, const char *line)
{
    char source[LINE_MAX_BYTES] = "", label[LABEL_MAX_BYTES] = "";
    int options = 0;
    const char *dash = strstr(line, " - ");
    if (dash && sscanf(dash, " - %*s %s %n", source, &options) == 1)
        label_of(file, source, label);
    if (label[0])
        fprintf(to, "%.*s%.2s,%s%s\"%s", (int)(dash - line) + options, line, dash + options, option, label,
                dash + options + 2);
    else
        fputs(line, to);
}

static int show_mounts(int real, const char *file)
{
    char line[LINE_MAX_BYTES];
    int fd = memfd_create("mountinfo", MFD_CLOEXEC);
    FILE *from = fdopen(real, "r"), *to = fdopen(dup(fd), "w");
    while (fgets(line, sizeof line, from))
        show_line(to, file, line);
    fclose(from);
    if (fclose(to) != 0 || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    return fd;
}

int openat(int dir, const char *path, int flags, ...)
{
    const char *file = getenv("CISTERN_CONTEXTS");
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if (file && strcmp(path, "/proc/self/mountinfo") == 0)
        return show_mounts(REAL(openat)(dir, path, flags, mode), file);
    if (strcmp(path, "/proc/filesystems") != 0)
        return REAL(openat)(dir, path, flags, mode);
    int fd = memfd_create("filesystems", MFD_CLOEXEC);
    if (write(fd, filesystems, strlen(filesystems)) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    return fd;
}

/* A file system has one label as long as it is mounted anywhere. */
static int is_refused(const char *file, const char *source, const char *label)
{
    char old[LABEL_MAX_BYTES];
    int fd = REAL(openat)(AT_FDCWD, source, O_RDONLY | O_EXCL | O_CLOEXEC);
    int busy = fd < 0 && errno == EBUSY;
    if (fd >= 0)
        close(fd);
    label_of(file, source, old);
    return busy && strcmp(old, label) != 0;
}

static int mount_labelled(const char *file, const char *source, const char *target, const char *type,
                          unsigned long flags, const char *data)
{
    char left[4096] = "", label[LABEL_MAX_BYTES] = "";
    const char *at = data ? strstr(data, option) : NULL;
    if (at) {
        size_t n = (size_t)(at - data);
        memcpy(left, data, n > 0 ? n - 1 : 0); /* without the comma */
        snprintf(label, sizeof label, "%.*s", (int)strcspn(at + strlen(option), "\""), at + strlen(option));
    }
    if (strncmp(source, "/dev/loop", 9) == 0 && is_refused(file, source, label)) {
        errno = EINVAL;
        return -1;
    }
    int r = REAL(mount)(source, target, type, flags, at ? left : data);
    FILE *f = r == 0 ? fopen(file, "a") : NULL;
    if (f) {
        fprintf(f, "%s %s\n", source, label);
        fclose(f);
    }
    return r;
}

int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
    const char *file = getenv("CISTERN_CONTEXTS");
    return file && source && type ? mount_labelled(file, source, target, type, flags, data)
                                  : REAL(mount)(source, target, type, flags, data);
}
